/*
 * Measures the convergence of a task by short trainings on this machine. Data-parallel runs to the
 * target, one per seed, give the number of steps and the gradient noise. The first steps of each,
 * repeated with each compressor and with stale gradients, give the cost of these. Initial weights
 * and samples are the same, so the losses differ only by the change. The first half at half the
 * learning rate gives the cost of noise at the full rate.
 */
#include "question.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLAIN "pp=1,tp=1,compression=none"
#define SHORT_SHARE 4 /* short runs are a quarter as long as the run to the target */
#define SHORTEST 64   /* minimum of ty_loss_stretch */
#define LEAST_RANKS 2 /* replicas whose gradients differ */
/* The run at half the rate takes two steps per step of the others. It covers half the distance,
 * with as many steps as the run it is compared to: in the first steps, the difference between rates
 * is not yet the cost of noise. */
#define SLOW_STEPS 2

/* ---- One run ------------------------------------------------------------------------------- */

typedef struct calibration {
    const ty_calibration_question *asked;
    const ty_watch *watch;
    ty_question_inputs inputs;
    ty_calibration *out;
} calibration;

/* Plans a batch with pins in --fix syntax. */
static ty_status plan_make(const calibration *c, const char *fix, uint32_t batch, uint64_t seed,
                           ty_plan **out, ty_error *error)
{
    ty_question question = c->asked->question;
    ty_status status;

    question.fix = fix;
    question.global_batch = batch;
    question.seed = seed;
    question.task = NULL;
    question.top = 0;
    question.no_interval = true;
    question.learning_rate = 0;
    status = ty_question_plan(&question, &c->inputs, c->watch, out, error);
    /* The recipe of a changed plan applies to the plain runs' rate. */
    if (status == TY_OK && c->asked->question.learning_rate > 0)
        ty_plan_set_learning_rate(*out, c->asked->question.learning_rate);
    return status;
}

/* Trains, to the target if `steps` is 0. Takes the plan. */
static ty_status train(const calibration *c, ty_plan *plan, uint32_t steps, ty_run **out,
                       ty_error *error)
{
    ty_training training = c->asked->training;
    ty_plan_inputs inputs = {0};
    ty_job *job = NULL;
    char path[PATH_MAX] = "";
    ty_status status = TY_OK;

    if (steps > 0) {
        training.until = (ty_target){0};
        training.evaluate_every = 0;
        training.steps = steps;
    }
    TY_CHECK(ty_plan_inputs_from(plan, &inputs, error), status, cleanup);
    TY_CHECK(ty_scratch_file("trainyard-calibrate", path, sizeof path, error), status, cleanup);
    TY_CHECK(ty_training_job(&training, &inputs, path, &job, error), status, cleanup);
    job->measure_distortion = true;
    TY_CHECK(ty_worker_run(job, ty_plan_launched_count(job->plan), c->watch, error), status,
             cleanup);
    status = ty_run_load(path, out, error);

cleanup:
    if (path[0] != '\0')
        unlink(path);
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);
    return status;
}

/* Whether a failure drops one measurement and not the calibration: a training that diverges, a
 * target reached too early to compare or not at all, a change without a plan. */
static bool is_passed_over(ty_status status)
{
    return status == TY_EINFEASIBLE || status == TY_EINVAL || status == TY_EBACKEND ||
           status == TY_ELIMIT;
}

/* The worker has printed its own errors, which leave no message here. */
static const char *reason(const ty_error *why)
{
    return why->message[0] != '\0' ? why->message : "training diverged";
}

static void note(calibration *c, const char *what, const ty_error *why)
{
    ty_text_addf(&c->out->notes, "%s: not measured: %s\n", what, reason(why));
    ty_watch_note(c->watch, "%s: not measured: %s", what, reason(why));
}

/* ---- Runs to the target -------------------------------------------------------------------- */

static ty_status not_reached(const calibration *c, const ty_run *run, ty_error *error)
{
    ty_text target = {0};
    double accuracy = 0, loss = HUGE_VAL;
    ty_status status;

    for (uint32_t i = 0; i < run->evaluation_count; i++) {
        accuracy = fmax(accuracy, run->evaluations[i].accuracy);
        loss = fmin(loss, run->evaluations[i].loss);
    }
    ty_target_text(&c->asked->training.until, &target);
    status =
        ty_fail(error, TY_ELIMIT,
                "%s was not reached in %u steps (best accuracy %.4g, loss %.4g): ask for less, "
                "or allow more with --steps",
                target.data != NULL ? target.data : "the target", run->step_count, accuracy, loss);
    ty_text_clear(&target);
    return status;
}

static int by_step(const void *left, const void *right)
{
    const ty_noise_sample *a = left, *b = right;
    return (a->step > b->step) - (a->step < b->step);
}

/* Runs have different lengths, so estimates are sorted by their share of the run. */
static ty_status samples_add(calibration *c, const ty_run *run, ty_error *error)
{
    const double scale = (double)UINT32_MAX / run->step_count;
    ty_noise_sample *grown = ty_resize(
        c->out->samples, (size_t)c->out->sample_count + run->noise_sample_count + 1, sizeof *grown);

    TY_TRY(ty_check_memory(grown != NULL, error));
    c->out->samples = grown;
    for (uint32_t i = 0; i < run->noise_sample_count; i++) {
        c->out->samples[c->out->sample_count] = run->noise_samples[i];
        c->out->samples[c->out->sample_count++].step =
            (uint32_t)(run->noise_samples[i].step * scale);
    }
    qsort(c->out->samples, c->out->sample_count, sizeof *c->out->samples, by_step);
    return TY_OK;
}

static ty_status run_to_target(calibration *c, uint64_t seed, ty_error *error)
{
    const uint32_t index = c->out->run_count;
    const ty_evaluation *reached;
    ty_plan *plan = NULL;
    ty_run *run = NULL;
    ty_status status = TY_OK;

    TY_CHECK(plan_make(c, PLAIN, c->out->batch, seed, &plan, error), status, done);
    TY_CHECK(train(c, plan, 0, &run, error), status, done);
    reached = ty_run_reached(run);
    if (reached == NULL) {
        status = not_reached(c, run, error);
        goto done;
    }
    TY_CHECK(samples_add(c, run, error), status, done);
    c->out->steps[index] = reached->step;
    c->out->step_time_s +=
        (run->wall_s / run->step_count - c->out->step_time_s) / (index + 1); /* mean so far */
    c->out->seeds[index] = seed;
    c->out->runs[index] = run;
    c->out->run_count++;
    run = NULL;
done:
    ty_run_free(run);
    return status;
}

/* Leaves out seeds that do not reach the target, if at least one does. */
static ty_status runs_to_target(calibration *c, ty_error *error)
{
    const uint64_t first = c->asked->question.seed;
    const uint32_t count = c->asked->runs > 0 ? c->asked->runs : 1;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++) {
        ty_error why = {0};
        char what[48];

        status = run_to_target(c, first + i, &why);
        if (status != TY_OK &&
            (!is_passed_over(status) || (i + 1 == count && c->out->run_count == 0)))
            return ty_fail(error, status, "%s", reason(&why));
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)(first + i));
        if (status != TY_OK)
            note(c, what, &why);
    }
    return TY_OK;
}

/* ---- Convergence from the runs ------------------------------------------------------------- */

static ty_status describe(const calibration *c, ty_convergence *t, const ty_plan *plan,
                          ty_error *error)
{
    ty_text name = {0}, source = {0}, target = {0};
    ty_status status = TY_OK;

    ty_target_text(&c->asked->training.until, &target);
    ty_text_addf(&name, "%s %s", plan->workload->name, target.data != NULL ? target.data : "");
    ty_text_addf(&source, "%u runs of batch %u, learning rate %g, on %u local ranks (%s)",
                 c->out->run_count, c->out->batch, plan->optimizer.learning_rate, c->out->ranks,
                 c->out->runs[0]->date);
    TY_CHECK(ty_text_take(&target, &t->target, error), status, done);
    TY_CHECK(ty_text_take(&name, &t->name, error), status, done);
    status = ty_text_take(&source, &t->source, error);
done:
    ty_text_clear(&target);
    ty_text_clear(&name);
    ty_text_clear(&source);
    return status;
}

/* If the gradients give no estimate, assumes a noise scale equal to the batch. */
static ty_status noise_measure(calibration *c, ty_convergence *t, double *log_deviation,
                               ty_error *error)
{
    ty_error why = {0};
    const ty_status status =
        ty_noise_over_run(c->out->samples, c->out->sample_count, &t->noise_scale_samples,
                          &t->noise_growth, log_deviation, &why);

    if (status != TY_EINFEASIBLE)
        return status == TY_OK ? status : ty_fail(error, status, "%s", why.message);
    note(c, "noise scale, taken to be the batch", &why);
    t->noise_scale_samples = c->out->batch;
    t->noise_growth = 1;
    *log_deviation = 1;
    return TY_OK;
}

static ty_status task_make(calibration *c, ty_error *error)
{
    ty_plan *plan = NULL;
    ty_convergence *t = ty_alloc(1, sizeof *t);
    double mean_log, noise_deviation;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(t != NULL, error));
    TY_CHECK(plan_make(c, PLAIN, c->out->batch, c->out->seeds[0], &plan, error), status, done);
    TY_CHECK(noise_measure(c, t, &noise_deviation, error), status, done);
    t->log_deviation =
        hypot(noise_deviation, ty_run_deviation(c->out->steps, c->out->run_count, &mean_log));
    t->minimum_samples =
        exp(mean_log) * c->out->batch / (1 + c->out->batch / t->noise_scale_samples);
    t->smallest_batch = t->largest_batch = t->batch = c->out->batch;
    t->learning_rate = plan->optimizer.learning_rate;
    t->scaling_rule =
        ty_optimizer_row_of(plan->optimizer.kind)->is_descent ? TY_SCALING_LINEAR : TY_SCALING_SQRT;
    TY_CHECK(describe(c, t, plan, error), status, done);
    c->out->task = t;
    t = NULL;
done:
    ty_convergence_free(t);
    ty_plan_free(plan);
    return status;
}

/* ---- The cost of noise ----------------------------------------------------------------------- */

/* Measures a figure with one seed. */
typedef ty_status (*seed_measure)(const calibration *c, uint32_t index, void *context,
                                  ty_interval *out, ty_error *error);

/* Measures it with each seed, and takes the mean of the valid results. */
static ty_status seeds_measure(const calibration *c, seed_measure measure, void *context,
                               ty_interval *mean, ty_error *error)
{
    ty_interval *estimates = ty_alloc(c->out->run_count, sizeof *estimates);
    uint32_t count = 0;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(estimates != NULL, error));
    for (uint32_t i = 0; i < c->out->run_count; i++) {
        status = measure(c, i, context, &estimates[count], error);
        count += status == TY_OK;
        if (status != TY_OK && !is_passed_over(status))
            goto done;
    }
    if (count > 0) {
        *mean = ty_interval_mean(estimates, count);
        status = TY_OK;
    }
done:
    ty_free(estimates);
    return status;
}

/* Losses of a run's seed at a fraction of its learning rate, one per step of the run: the mean over
 * as many steps as cover the same distance. @param losses [out, steps] */
static ty_status slow_losses(const calibration *c, uint32_t index, uint32_t steps, double *losses,
                             ty_error *error)
{
    ty_plan *plan = NULL;
    ty_run *run = NULL;
    ty_status status = TY_OK;

    TY_CHECK(plan_make(c, PLAIN, c->out->batch, c->out->seeds[index], &plan, error), status, done);
    plan->optimizer.learning_rate /= SLOW_STEPS;
    TY_CHECK(train(c, plan, SLOW_STEPS * steps, &run, error), status, done);
    for (uint32_t i = 0; i < steps; i++) {
        losses[i] = 0;
        for (uint32_t k = 0; k < SLOW_STEPS; k++)
            losses[i] += run->losses[SLOW_STEPS * i + k] / SLOW_STEPS;
    }
done:
    ty_run_free(run);
    return status;
}

static ty_status temperature_stretch(const calibration *c, uint32_t index, void *context,
                                     ty_interval *factor, ty_error *error)
{
    const ty_run *run = c->out->runs[index];
    const uint32_t steps = run->step_count / SLOW_STEPS;
    double *losses = NULL;
    ty_status status;

    (void)context;
    if (steps < SHORTEST)
        return ty_fail(error, TY_EINFEASIBLE,
                       "the target was reached in %u steps, expected at least %d: evaluate later "
                       "or ask for more",
                       run->step_count, SLOW_STEPS * SHORTEST);
    losses = ty_alloc(steps, sizeof *losses);
    TY_TRY(ty_check_memory(losses != NULL, error));
    status = slow_losses(c, index, steps, losses, error);
    if (status == TY_OK)
        status = ty_loss_stretch(run->losses, losses, steps, factor, error);
    ty_free(losses);
    return status;
}

/* Without a result, steps depend only on the noise scale. */
static ty_status temperature_measure(calibration *c, ty_error *error)
{
    ty_interval factor;
    ty_error why = {0};
    ty_status status = seeds_measure(c, temperature_stretch, NULL, &factor, &why);

    if (status == TY_OK) {
        c->out->task->temperature_cost = ty_temperature_cost_of_stretch(factor, 1.0 / SLOW_STEPS);
        c->out->task->has_temperature_cost = true;
    } else if (is_passed_over(status)) {
        snprintf(c->out->temperature_note, sizeof c->out->temperature_note, "%s", reason(&why));
        status = TY_OK;
    } else {
        ty_fail(error, status, "half the learning rate: %s", why.message);
    }
    return status;
}

/* ---- Changes ------------------------------------------------------------------------------- */

/* A changed plan and its effect on the losses. */
typedef struct change {
    const char *fix;
    ty_interval factor;       /* on steps */
    double steps, distortion; /* mean over seeds and compared steps; NaN: lossless */
    uint32_t runs;            /* number of compared runs */
} change;

static uint32_t short_steps(const ty_run *run)
{
    const uint32_t steps = run->step_count / SHORT_SHARE;
    return steps > SHORTEST ? steps : SHORTEST;
}

/* Losses to compare a change with: the plain run's, or those of a short run with the optimizer that
 * the change's recipe sets. Scores include the cost of that optimizer through its rate. */
static ty_status reference(const calibration *c, uint32_t index, const ty_plan *changed,
                           uint32_t steps, ty_run **own, const double **losses, ty_error *error)
{
    const ty_recipe recipe = ty_plan_recipe(changed);
    ty_plan *plan = NULL;
    ty_status status;

    *losses = c->out->runs[index]->losses;
    if (!ty_recipe_changes(&recipe, &changed->workload->optimizer))
        return TY_OK;
    TY_TRY(plan_make(c, PLAIN, c->out->batch, c->out->seeds[index], &plan, error));
    plan->optimizer = changed->optimizer;
    status = train(c, plan, steps, own, error);
    if (status == TY_OK)
        *losses = (*own)->losses;
    return status;
}

/* Factor on steps from the losses, compared to one run's. */
static ty_status change_stretch(const calibration *c, uint32_t index, void *context,
                                ty_interval *factor, ty_error *error)
{
    change *changed = context;
    const ty_run *plain = c->out->runs[index];
    const uint32_t steps = short_steps(plain);
    const double *losses;
    ty_plan *plan = NULL;
    ty_run *run = NULL, *own = NULL;
    ty_status status;

    if (steps > plain->step_count)
        return ty_fail(error, TY_EINFEASIBLE,
                       "the target was reached in %u steps, expected at least %d to compare with: "
                       "evaluate later or ask for more",
                       plain->step_count, SHORTEST);
    TY_CHECK(plan_make(c, changed->fix, c->out->batch, c->out->seeds[index], &plan, error), status,
             done);
    status = reference(c, index, plan, steps, &own, &losses, error);
    if (status != TY_OK) {
        ty_plan_free(plan);
        goto done;
    }
    TY_CHECK(train(c, plan, steps, &run, error), status, done);
    TY_CHECK(ty_loss_stretch(losses, run->losses, steps, factor, error), status, done);
    changed->runs++;
    changed->steps += (steps - changed->steps) / changed->runs; /* means so far */
    changed->distortion +=
        ((run->distortion_steps > 0 ? run->distortion : (double)NAN) - changed->distortion) /
        changed->runs;
done:
    ty_run_free(run);
    ty_run_free(own);
    return status;
}

static ty_status change_measure(const calibration *c, change *changed, ty_error *error)
{
    changed->steps = changed->distortion = changed->runs = 0;
    return seeds_measure(c, change_stretch, changed, &changed->factor, error);
}

static ty_status compressor_measure(calibration *c, const char *name,
                                    const ty_compression *compression, ty_error *error)
{
    change changed = {0};
    ty_text fix = {0};
    ty_error why = {0};
    ty_status status = TY_OK;

    ty_text_addf(&fix, "pp=1,tp=1,compression=%s", name);
    TY_CHECK(ty_text_check(&fix, error), status, done);
    changed.fix = fix.data;
    status = change_measure(c, &changed, &why);
    if (is_passed_over(status)) {
        note(c, name, &why);
        status = TY_OK;
        goto done;
    }
    if (status != TY_OK) {
        ty_fail(error, status, "%s: %s", name, why.message);
        goto done;
    }
    c->out->task->compressors[c->out->task->compressor_count++] =
        (ty_compressor_calibration){.compression = *compression,
                                    .distortion = changed.distortion,
                                    .lag = ty_lag_of_stretch(changed.factor, changed.steps),
                                    .factor = changed.factor};
done:
    ty_text_clear(&fix);
    return status;
}

static ty_status compressors_measure(calibration *c, ty_error *error)
{
    ty_text name = {0};
    ty_status status = TY_OK;

    c->out->task->compressors =
        ty_alloc(c->asked->compression_count, sizeof *c->out->task->compressors);
    TY_TRY(ty_check_memory(c->out->task->compressors != NULL, error));
    for (uint32_t i = 0; i < c->asked->compression_count; i++) {
        ty_text_clear(&name);
        ty_compression_text(&c->asked->compressions[i], &name);
        TY_CHECK(ty_text_check(&name, error), status, done);
        TY_CHECK(compressor_measure(c, name.data, &c->asked->compressions[i], error), status, done);
    }
done:
    ty_text_clear(&name);
    return status;
}

/* Two stages that update after each micro-batch, the most asynchronous plan: staleness is one
 * update in the first, none in the second. If the workload or the ranks cannot be split like that,
 * replicas with a staleness of one step. If training diverges, the cost stays unknown. */
static ty_status staleness_measure(calibration *c, ty_error *error)
{
    double delay = ty_staleness_delay(TY_STALENESS_WEIGHT_STASHING, 2);
    ty_error why = {0};
    ty_text fix = {0};
    change changed = {0};
    ty_status status;

    ty_text_addf(&fix, "pp=2,tp=1,schedule=pipedream,compression=none,micro_batch=%u",
                 c->out->batch);
    TY_TRY(ty_text_check(&fix, error));
    changed.fix = fix.data;
    status = change_measure(c, &changed, &why);
    if (status == TY_EINFEASIBLE || status == TY_EINVAL) {
        delay = ty_staleness_delay(TY_STALENESS_DELAYED, 1);
        changed.fix = PLAIN ",staleness=1";
        status = change_measure(c, &changed, &why);
    }
    if (status == TY_OK) {
        c->out->task->staleness =
            ty_interval_scale(ty_lag_of_stretch(changed.factor, changed.steps), 1 / delay);
        c->out->task->has_staleness = true;
    } else if (is_passed_over(status)) {
        snprintf(c->out->staleness_note, sizeof c->out->staleness_note, "%s", reason(&why));
        status = TY_OK;
    } else {
        ty_fail(error, status, "%s", why.message);
    }
    ty_text_clear(&fix);
    return status;
}

/* ---- What to do with it -------------------------------------------------------------------- */

/* One batch: the learning rate by the rule, the steps by the law, the step time by the planner.
 * Skips batches without a plan. */
static ty_status row_add(calibration *c, uint32_t batch, ty_error *error)
{
    ty_calibration_batch *row = &c->out->batches[c->out->batch_count];
    ty_plan *plan = NULL;
    ty_error ignored = {0};
    ty_status status = plan_make(c, NULL, batch, c->asked->question.seed, &plan, &ignored);

    if (status == TY_EINFEASIBLE || status == TY_EINVAL)
        return TY_OK;
    if (status != TY_OK)
        return ty_fail(error, status, "%s", ignored.message);
    *row = (ty_calibration_batch){.batch = batch,
                                  .steps = ty_convergence_steps(c->out->task, batch),
                                  .step_time_s = plan->prediction.step_time_s};
    ty_plan_free(plan);
    status = ty_learning_rate(c->out->task, c->out->task->learning_rate, c->out->batch, batch,
                              &row->learning_rate, &row->is_beyond_limit, error);
    c->out->batch_count += status == TY_OK;
    return status;
}

static ty_status propose(calibration *c, ty_error *error)
{
    ty_batch_option options[2 * TY_CALIBRATION_POWERS + 1];
    double time_s;

    for (int power = -TY_CALIBRATION_POWERS; power <= TY_CALIBRATION_POWERS; power++) {
        const double batch = ldexp(c->out->batch, power);
        if (batch >= 1 && batch == floor(batch) && batch <= INT_MAX)
            TY_TRY(row_add(c, (uint32_t)batch, error));
    }
    for (uint32_t i = 0; i < c->out->batch_count; i++)
        options[i] = (ty_batch_option){c->out->batches[i].batch, c->out->batches[i].step_time_s};
    TY_TRY(
        ty_best_batch(c->out->task, options, c->out->batch_count, &c->out->best, &time_s, error));
    return ty_batch_schedule(c->out->task, options, c->out->batch_count, TY_CALIBRATION_PHASES,
                             c->out->schedule, &time_s, error);
}

/* ---- Output -------------------------------------------------------------------------------- */

static void put_noise(const ty_calibration *c, ty_json_writer *w)
{
    double scales[TY_NOISE_PARTS];

    ty_json_open(w, "noise", '{');
    ty_json_put_uint(w, "estimates", c->sample_count);
    ty_noise_parts(c->samples, c->sample_count, TY_NOISE_PARTS, scales);
    ty_json_open_flat(w, "scale_samples", '['); /* scales of consecutive parts of the run */
    for (uint32_t p = 0; p < TY_NOISE_PARTS; p++)
        if (isnan(scales[p]))
            ty_json_put_null(w, NULL);
        else
            ty_json_put_number(w, NULL, scales[p]);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static void put_proposal(const ty_calibration *c, ty_json_writer *w)
{
    ty_json_open(w, "proposal", '{');
    ty_json_put_uint(w, "global_batch", c->batches[c->best].batch);
    ty_json_put_number(w, "learning_rate", c->batches[c->best].learning_rate);
    ty_json_open_flat(w, "schedule", '[');
    for (uint32_t p = 0; p < TY_CALIBRATION_PHASES; p++)
        ty_json_put_uint(w, NULL, c->batches[c->schedule[p]].batch);
    ty_json_close(w, ']');
    ty_json_open(w, "batches", '[');
    for (uint32_t i = 0; i < c->batch_count; i++) {
        const ty_calibration_batch *row = &c->batches[i];
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_uint(w, "global_batch", row->batch);
        ty_json_put_number(w, "learning_rate", row->learning_rate);
        ty_json_put_number(w, "steps", row->steps);
        ty_json_put_number(w, "step_time_s", row->step_time_s);
        ty_json_put_number(w, "time_to_target_s", row->steps * row->step_time_s);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

void ty_calibration_to_json(const ty_calibration *c, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.calibration/1");
    ty_json_put_string(w, "date", c->runs[0]->date);
    ty_json_put_string(w, "machine", c->runs[0]->machine);
    ty_convergence_to_calibration(c->task, w);
    ty_json_open_flat(w, "steps_to_target", '[');
    for (uint32_t i = 0; i < c->run_count; i++)
        ty_json_put_number(w, NULL, c->steps[i]);
    ty_json_close(w, ']');
    put_noise(c, w);
    put_proposal(c, w);
    if (c->notes.length > 0)
        ty_score_notes_to_json(c->notes.data, w);
    ty_json_close(w, '}');
}

/* ---- The whole ----------------------------------------------------------------------------- */

static ty_status open_question(calibration *c, ty_error *error)
{
    const ty_question *q = &c->asked->question;
    const uint32_t runs = c->asked->runs > 0 ? c->asked->runs : 1;
    ty_calibration *out = c->out;
    uint32_t ignored;
    ty_status status = TY_OK;

    if (q->cluster == NULL || !ty_cluster_is_local(q->cluster, &ignored))
        return ty_fail(error, TY_EINVAL,
                       "--cluster: found %s, expected local:N: the runs are made on this machine",
                       q->cluster != NULL ? q->cluster : "none");
    if (!ty_target_is_set(&c->asked->training.until))
        return ty_fail(error, TY_EINVAL,
                       "--until is needed: the accuracy or loss to calibrate for");
    TY_TRY(ty_question_open(q, c->watch, &c->inputs, error));
    out->ranks = ty_cluster_device_count(c->inputs.cluster);
    if (out->ranks < LEAST_RANKS)
        return ty_fail(
            error, TY_EINVAL,
            "--cluster: found %s, expected local:2 or more: the noise scale is told from "
            "the gradients of replicas",
            q->cluster);
    out->batch = q->global_batch > 0 ? q->global_batch : c->inputs.workload->global_batch;
    out->steps = ty_alloc(runs, sizeof *out->steps);
    out->seeds = ty_alloc(runs, sizeof *out->seeds);
    out->runs = ty_alloc(runs, sizeof *out->runs);
    if (out->steps == NULL || out->seeds == NULL || out->runs == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    return status;
}

ty_status ty_calibrate(const ty_calibration_question *question, const ty_watch *watch,
                       ty_calibration *out, ty_error *error)
{
    calibration c = {.asked = question, .watch = watch, .out = out};
    ty_status status = TY_OK;

    *out = (ty_calibration){0};
    TY_CHECK(open_question(&c, error), status, done);
    TY_CHECK(runs_to_target(&c, error), status, done);
    TY_CHECK(task_make(&c, error), status, done);
    TY_CHECK(temperature_measure(&c, error), status, done);
    TY_CHECK(compressors_measure(&c, error), status, done);
    TY_CHECK(staleness_measure(&c, error), status, done);
    status = propose(&c, error);
done:
    ty_question_inputs_clear(&c.inputs);
    return status;
}

void ty_calibration_clear(ty_calibration *c)
{
    ty_convergence_free(c->task);
    for (uint32_t i = 0; c->runs != NULL && i < c->run_count; i++)
        ty_run_free(c->runs[i]);
    ty_free(c->runs);
    ty_free(c->samples);
    ty_free(c->steps);
    ty_free(c->seeds);
    ty_text_clear(&c->notes);
    *c = (ty_calibration){0};
}
