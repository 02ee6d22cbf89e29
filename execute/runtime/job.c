/* A job on one rank: checks, training between evaluations, results. */
#include "checkpoint.h"
#include "profile_job.h"
#include "results.h"
#include "samples_job.h"
#include "server.h"
#include "ty_base.h"
#include "ty_execute.h"
#include "ty_plan.h"
#include "weights.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED_TAG = 12, CLOCK_TAG = 14, DIVERGED = 10, GROWTH = 8 };

typedef struct training {
    const ty_job *job;
    ty_transport *transport;
    const ty_execute_options *options;
    ty_dataset *dataset, *test_set; /* of the first and last stage */
    double skipped;                 /* samples, by all ranks */
    weights *initial;               /* until the interpreter is open; NULL: those of the seed */
    ty_interpreter *interpreter;
    ty_progress progress;
    ty_checkpoint_place place; /* that it resumes from */
    uint32_t start;            /* steps done when this run began */
    uint32_t saved;            /* step of this run's newest checkpoint; `start` without */
    double saved_s;            /* on rank 0: when it was due last, or the run began */
    uint32_t stretch;          /* steps until rank 0 looks at the clock; 0: it need not */
    int lock;                  /* on the folder for checkpoints; -1: another rank has it, or none */
    bool is_warned;            /* of a loss that diverges */
    bool is_finished;          /* by an earlier run, whose result still exists */
    double origin_s;
    double stretch_started_s; /* of the current steps */
    ty_run *run;              /* wall time and evaluations so far */
    ty_error unsaved;         /* why there is no checkpoint, or no weights, of these steps */
} training;

/* ---- Checks and set-up ------------------------------------------------------------------- */

static ty_status job_check(const ty_job *job, const ty_transport *transport, ty_error *error)
{
    char and_servers[32] = "";

    if (job->plan->servers.count > 0)
        snprintf(and_servers, sizeof and_servers, " and %u server%s", job->plan->servers.count,
                 job->plan->servers.count > 1 ? "s" : "");
    if (ty_plan_launched_count(job->plan) != transport->size)
        return ty_fail(
            error, TY_EPARSE,
            "job:/plan/stages: found a plan of %u ranks%s, expected one of %u, as many as were "
            "started",
            ty_plan_rank_count(job->plan), and_servers, transport->size);
    if ((uint64_t)job->warmup_steps + job->timeline_steps > job->steps)
        return ty_fail(error, TY_EINVAL,
                       "%u warm-up steps and %u recorded ones are more than %u steps",
                       job->warmup_steps, job->timeline_steps, job->steps);
    TY_TRY(ty_plan_check(job->plan, "plan", error));
    return ty_program_check(job->plan, job->program, "program", error);
}

/* Features of a job that a timed backend does not support. */
static ty_status timed_check(const ty_job *job, const ty_device_backend *backend, ty_error *error)
{
    const char *what = NULL;

    if (job->instruction_s == NULL)
        return ty_fail(error, TY_EINVAL,
                       "job:/instruction_s: found none, expected a time for each "
                       "instruction");
    if (ty_target_is_set(&job->until))
        what = "a target to reach";
    if (job->checkpoint != NULL)
        what = "a folder for checkpoints";
    if (job->gradients != NULL)
        what = "a file for gradients";
    if (job->init != NULL || job->save_weights != NULL)
        what = "a file of weights";
    if (job->precision != NULL)
        what = "a precision";
    if (what == NULL)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED, "backend \"%s\" trains nothing: found %s", backend->name,
                   what);
}

/* Whether the backend supports the job, before anything is opened. */
static ty_status backend_check(const ty_job *job, const ty_device_backend *backend, ty_error *error)
{
    if (backend->is_timed)
        return timed_check(job, backend, error);
    if (job->plan->servers.count > 0 && backend->memory != NULL)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "backend \"%s\" cannot run plan \"%s\" yet: found servers of their own, "
                       "which sum gradients in the memory of hosts",
                       backend->name, job->plan->strategy);
    return TY_OK;
}

/* Whether the loss of the last of `done` steps is DIVERGED times the first. In reinforcement
 * learning a loss may be negative, which means nothing. */
static bool diverges(const training *t, uint32_t done)
{
    const double *losses = ty_interpreter_losses(t->interpreter);

    return done > 0 && t->job->instruction_s == NULL &&
           t->job->plan->workload->learning == TY_LEARNING_GRADIENT &&
           losses[done - 1] > DIVERGED * losses[0];
}

static void divergence_report(training *t, uint32_t done, double loss)
{
    if (t->is_warned || !diverges(t, done))
        return;
    t->is_warned = true;
    fprintf(stderr,
            "warning: training diverges: the loss of step %u is %.4g, more than %d times the first "
            "(%.4g)%s; a smaller learning rate than %g may help\n",
            done, loss, DIVERGED, ty_interpreter_losses(t->interpreter)[0],
            t->job->checkpoint != NULL ? ", and no checkpoint is written until it falls" : "",
            t->job->plan->optimizer.learning_rate);
}

static void on_step(void *context, uint32_t steps_done, double loss)
{
    training *t = context;
    double seconds = t->run->wall_s + ty_now_s() - t->stretch_started_s;
    double rate;
    char note[96];

    if (t->transport->rank != 0)
        return;
    divergence_report(t, steps_done, loss);
    rate = seconds > 0 ? (double)(steps_done - t->start) * t->job->plan->global_batch / seconds : 0;
    if (t->job->instruction_s != NULL)
        snprintf(note, sizeof note, "%.0f samples/s", rate);
    else
        snprintf(note, sizeof note, "loss %.4f, %.0f samples/s", loss, rate);
    ty_progress_update(&t->progress, steps_done, note);
}

static uint32_t kept(const ty_job *job)
{
    return job->keep > 0 ? job->keep : TY_CHECKPOINTS_KEPT;
}

static bool resumes(const training *t)
{
    return t->job->resume || (t->options->resume && t->job->checkpoint != NULL);
}

/* On all ranks of the plan, so that they resume from the same step. */
static ty_status start_find(training *t, ty_error *error)
{
    const ty_job *job = t->job;
    const ty_checkpoint_query query = {.directory = job->checkpoint,
                                       .plan = job->plan,
                                       .steps = job->steps,
                                       .is_optional = !job->resume};
    FILE *to = t->transport->rank == 0 ? t->options->progress : NULL;
    const uint32_t launched = t->transport->size;
    ty_error damage = {0};
    ty_status status;

    if (!resumes(t))
        return TY_OK;
    t->transport->size = ty_plan_rank_count(job->plan);
    status = ty_checkpoint_agree(query, t->transport, &t->place, &damage, error);
    t->transport->size = launched;
    TY_TRY(status);
    t->start = t->saved = t->place.step;
    if (damage.status != TY_OK && t->transport->rank == 0)
        fprintf(stderr, "warning: %s; training resumes from the checkpoint before it, of step %u\n",
                damage.message, t->start);
    else if (to != NULL && t->options->resume && t->start > 0)
        fprintf(to, "resumes from the checkpoint of step %u in %s\n", t->start, job->checkpoint);
    return TY_OK;
}

/* Warm-up is recorded too, because the run may end within it. */
static uint32_t recorded_steps(const training *t)
{
    const uint64_t most = (uint64_t)t->job->warmup_steps + t->job->timeline_steps;
    const uint32_t left = t->job->steps - t->start;

    if (t->job->timeline_steps == 0)
        return 0;
    return left < most ? left : (uint32_t)most;
}

/* The steps of the timeline, once the number of this run's steps is known. A run that ended within
 * its warm-up counts a quarter of its steps as warm-up. */
static ty_recorded_steps window_find(const training *t)
{
    const ty_job *job = t->job;
    const uint32_t did = ty_interpreter_steps(t->interpreter) - t->start;
    ty_recorded_steps window = {.first = job->warmup_steps};

    if (did <= window.first)
        window.first = did / 4;
    window.count = did - window.first;
    if (window.count > job->timeline_steps)
        window.count = job->timeline_steps;
    return window;
}

/* Checks, before training, that all outputs can be written. On rank 0, which writes them. */
static ty_status places_try(training *t, ty_error *error)
{
    const ty_job *job = t->job;

    if (t->transport->rank != 0)
        return TY_OK;
    if (job->checkpoint != NULL)
        TY_TRY(ty_checkpoint_lock(job->checkpoint, &t->lock, error));
    if (job->checkpoint != NULL && !resumes(t))
        TY_TRY(ty_checkpoint_refuse(job->checkpoint, error));
    if (job->save_weights != NULL)
        TY_TRY(ty_file_try(job->save_weights, error));
    return ty_file_try(job->output, error);
}

/* Unused cores per rank, as far as this rank can tell. */
static long spare_cores(const training *t)
{
    return sysconf(_SC_NPROCESSORS_ONLN) / (long)t->transport->size - 1;
}

/* Threads that decode samples while this rank computes: the spare cores, and at least two, which
 * run while passes wait for other ranks: one decodes while the other waits for storage. */
static ty_reading reading_of(const training *t)
{
    const long least = 2, most = 8, spare = spare_cores(t);
    const uint32_t ahead = 4; /* micro-batches: this one, the next, and those between */

    return (ty_reading){.bad_samples = t->job->bad_samples,
                        .threads = (uint32_t)(spare > most    ? most
                                              : spare > least ? spare
                                                              : least),
                        .room = ahead * t->job->plan->micro_batch_size};
}

static bool is_server(const training *t)
{
    return t->transport->rank >= ty_plan_rank_count(t->job->plan);
}

/* Checks on one rank alone, before ranks communicate. */
static ty_status training_check(training *t, ty_error *error)
{
    TY_TRY(job_check(t->job, t->transport, error));
    return places_try(t, error);
}

static ty_status training_prepare(training *t, ty_error *error)
{
    const ty_job *job = t->job;
    const ty_plan *plan = job->plan;
    ty_reading reading = reading_of(t);
    const ty_device_backend *backend = NULL;
    ty_precision precision = TY_PRECISION_FP32;
    uint32_t pipeline_rank;
    ty_status status;

    TY_CHECK(start_find(t, error), status, done);
    if (t->start > 0)
        TY_CHECK(ty_result_is_kept(job, &t->place, &t->is_finished, error), status, done);
    if (t->is_finished && job->save_weights == NULL)
        return TY_OK;
    TY_CHECK(ty_device_backend_find(job->backend, t->transport->size == 1, &backend, error), status,
             done);
    if (!backend->is_timed) /* a timed one computes nothing */
        TY_CHECK(ty_job_precision(job, &precision, error), status, done);
    TY_CHECK(backend_check(job, backend, error), status, done);
    pipeline_rank =
        ty_plan_stage_of_replica(plan, t->transport->rank / ty_plan_replica_ranks(plan));
    reading.labels_only = pipeline_rank > 0;
    if (!backend->is_timed && plan->workload->learning == TY_LEARNING_GRADIENT &&
        (pipeline_rank == 0 || pipeline_rank + 1 == ty_plan_pipeline_size(plan))) {
        TY_CHECK(ty_dataset_open(plan->workload, job->data, false, &t->dataset, error), status,
                 done);
        TY_CHECK(ty_dataset_prepare(t->dataset, &reading, error), status, done);
        if (ty_job_evaluates(job)) {
            TY_CHECK(ty_dataset_open(plan->workload, job->data, true, &t->test_set, error), status,
                     done);
            TY_CHECK(ty_dataset_prepare(t->test_set, &reading, error), status, done);
        }
    }
    if (job->init != NULL)
        TY_CHECK(weights_open(job->init, plan->workload, &t->initial, error), status, done);
    TY_CHECK(ty_interpreter_open(
                 &(ty_interpreter_options){
                     .plan = plan,
                     .program = job->program,
                     .backend = backend,
                     .dataset = t->dataset,
                     .has_spare_core = spare_cores(t) > 0,
                     .instruction_s = job->instruction_s,
                     .transport = t->transport,
                     .precision = precision,
                     .weights = t->initial != NULL ? weights_source(t->initial) : NULL,
                     .steps = job->steps,
                     .first_recorded = t->start,
                     .recorded_steps = recorded_steps(t),
                     .is_deterministic = job->deterministic,
                     .measure_distortion = job->measure_distortion,
                     .stop = t->options->stop,
                     .on_step = on_step,
                     .context = t},
                 &t->interpreter, error),
             status, done);
    if (t->start > 0)
        TY_CHECK(ty_checkpoint_load(t->interpreter, job->checkpoint, &t->place, kept(job), error),
                 status, done);
    t->run = ty_alloc(1, sizeof *t->run);
    if (t->run == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
done:
    return status;
}

static void training_free(training *t)
{
    ty_interpreter_close(t->interpreter);
    weights_close(t->initial);
    if (t->dataset != NULL)
        ty_dataset_close(t->dataset);
    if (t->test_set != NULL)
        ty_dataset_close(t->test_set);
    ty_run_free(t->run);
    ty_checkpoint_unlock(t->lock);
    ty_checkpoint_place_clear(&t->place);
}

/* ---- Training ---------------------------------------------------------------------------- */

/* Steps until the next evaluation, checkpoint, look at the clock or end. */
static uint32_t stretch_end(const training *t, uint32_t done)
{
    const ty_job *job = t->job;
    uint32_t end = job->steps;

    if (t->stretch > 0 && t->stretch < end - done)
        end = done + t->stretch;

    if (job->gradients != NULL && done == 0)
        end = 1;
    if (ty_target_is_set(&job->until) && job->evaluate_every > 0 &&
        (done / job->evaluate_every + 1) * (uint64_t)job->evaluate_every < end)
        end = (done / job->evaluate_every + 1) * job->evaluate_every;
    if (job->checkpoint_every > 0 &&
        (done / job->checkpoint_every + 1) * (uint64_t)job->checkpoint_every < end)
        end = (done / job->checkpoint_every + 1) * job->checkpoint_every;
    return end;
}

/* The loss is no longer finite. */
static ty_status diverged(const training *t, ty_error *error)
{
    char what[sizeof error->message];

    if (t->job->checkpoint == NULL || t->saved == 0)
        return TY_ELIMIT;
    snprintf(what, sizeof what, "%s", error->message);
    return ty_fail(error, TY_ELIMIT, "%.160s; the checkpoint after step %u is kept", what,
                   t->saved);
}

static ty_status evaluate(training *t, bool *is_reached, ty_error *error)
{
    ty_run *run = t->run;
    const ty_variant *variant = &t->job->plan->deployment.variant;
    ty_evaluation *grown,
        made = {.step = ty_interpreter_steps(t->interpreter), .seconds = run->wall_s};

    TY_TRY(ty_interpreter_evaluate(t->interpreter, t->test_set, NULL, &made.loss, &made.accuracy,
                                   error));
    if (!isfinite(made.loss)) {
        ty_fail(error, TY_ELIMIT, "the test loss after step %u is no longer a finite number",
                made.step);
        return diverged(t, error);
    }
    made.variant_loss = made.loss;
    made.variant_accuracy = made.accuracy;
    if (ty_variant_changes(variant))
        TY_TRY(ty_interpreter_evaluate(t->interpreter, t->test_set, variant, &made.variant_loss,
                                       &made.variant_accuracy, error));
    grown = ty_resize(run->evaluations, run->evaluation_count + 1, sizeof *grown);
    if (grown == NULL) {
        t->transport->is_broken = true;
        return ty_fail(error, TY_ENOMEM, "out of memory for evaluations");
    }
    run->evaluations = grown;
    run->evaluations[run->evaluation_count++] = made;
    *is_reached = ty_target_is_met(&t->job->until, made.accuracy, made.loss);
    return TY_OK;
}

static ty_status checkpoint(training *t, ty_error *error)
{
    const uint32_t step = ty_interpreter_steps(t->interpreter);
    ty_status status = TY_OK;

    if (step > t->saved) /* a failure must not remove the files that it resumed from */
        status = ty_checkpoint_save(t->interpreter, t->job->checkpoint, kept(t->job), error);
    if (status == TY_OK)
        t->saved = step;
    return status;
}

/* Interrupted after all current steps have ended: saves them. */
static ty_status interrupted(training *t, ty_error *error)
{
    ty_error unsaved = {0};
    char stopped[sizeof error->message];

    snprintf(stopped, sizeof stopped, "%s", error->message);
    if (t->job->checkpoint == NULL || diverges(t, ty_interpreter_steps(t->interpreter)))
        return TY_EINTERRUPTED;
    if (checkpoint(t, &unsaved) != TY_OK)
        return ty_fail(error, TY_EINTERRUPTED, "%.100s; no checkpoint: %.100s", stopped,
                       unsaved.message);
    return ty_fail(error, TY_EINTERRUPTED, "%.100s; saved in %.100s", stopped, t->job->checkpoint);
}

/* With checkpoints by time: whether one is due by rank 0's clock, and the steps until it looks
 * again. `steps` took the time since the stretch began. All ranks return the same. */
static ty_status clock_ask(training *t, uint32_t steps, bool *is_due, ty_error *error)
{
    const double every_s = t->job->checkpoint_every_s, now_s = ty_now_s();
    double said[2] = {0};

    if (!(every_s > 0))
        return TY_OK;
    if (t->transport->rank == 0) {
        const double step_s = (now_s - t->stretch_started_s) / steps,
                     left_s = every_s - (now_s - t->saved_s);
        said[0] = !(left_s > 0);
        /* The first steps may be slow, so the estimate grows slowly. */
        said[1] = fmin((double)GROWTH * steps, (left_s > 0 ? left_s : every_s) / step_s);
        said[1] = fmin(fmax(floor(said[1]), 1), t->job->steps);
        if (said[0] > 0)
            t->saved_s = now_s;
    }
    TY_TRY(ty_collective_run(t->transport,
                             &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                      .algorithm = TY_TREE,
                                                      .member_count = t->transport->size,
                                                      .data = said,
                                                      .count = 2,
                                                      .element = TY_ELEMENT_DOUBLE,
                                                      .tag = CLOCK_TAG},
                             error));
    *is_due = said[0] > 0;
    t->stretch = (uint32_t)said[1];
    return TY_OK;
}

/* A checkpoint of diverging training would replace the last good one. */
static bool is_checkpoint_due(const training *t, uint32_t done, bool is_reached, bool is_time)
{
    const ty_job *job = t->job;

    return job->checkpoint != NULL &&
           (is_reached || is_time || done == job->steps ||
            (job->checkpoint_every > 0 && done % job->checkpoint_every == 0)) &&
           !diverges(t, done);
}

/* A full disk delays a checkpoint, not the training: the next one may succeed.
 * @return false: the run ends here, with the reason in `unsaved` */
static bool checkpoint_try(training *t, bool is_last)
{
    t->unsaved = (ty_error){0};
    if (checkpoint(t, &t->unsaved) == TY_OK)
        return true;
    if (is_last || t->transport->is_broken || t->unsaved.status == TY_EBACKEND)
        return false;
    if (t->transport->rank == 0)
        fprintf(
            stderr,
            "warning: no checkpoint after step %u, and training continues: %s; the newest is of "
            "step %u\n",
            ty_interpreter_steps(t->interpreter), t->unsaved.message, t->saved);
    return true;
}

static ty_status train(training *t, ty_error *error)
{
    const ty_job *job = t->job;
    bool is_reached = false, is_time = false;
    uint32_t done = t->start;
    ty_status status = TY_OK;

    /* All steps were done before, and the result was lost. */
    if (done == job->steps && ty_job_evaluates(job))
        TY_CHECK(evaluate(t, &is_reached, error), status, done);
    t->saved_s = ty_now_s();
    t->stretch = job->checkpoint_every_s > 0;
    while (done < job->steps && !is_reached) {
        uint32_t end = stretch_end(t, done);

        if (t->transport->rank == 0)
            TY_CHECK(ty_servers_notify(job->plan, t->transport, done, end, error), status, done);
        t->stretch_started_s = ty_now_s();
        status = ty_interpreter_run(t->interpreter, end, error);
        t->run->wall_s += ty_now_s() - t->stretch_started_s;
        if (status == TY_EINTERRUPTED)
            return interrupted(t, error);
        if (status == TY_ELIMIT)
            return diverged(t, error);
        TY_CHECK(status, status, done);
        if (done == 0 && job->gradients != NULL)
            TY_CHECK(ty_interpreter_save_gradients(t->interpreter, job->gradients, error), status,
                     done);
        TY_CHECK(clock_ask(t, end - done, &is_time, error), status, done);
        done = end;
        if (ty_job_evaluates(job) &&
            (done == job->steps || (job->evaluate_every > 0 && done % job->evaluate_every == 0)))
            TY_CHECK(evaluate(t, &is_reached, error), status, done);
        if (is_checkpoint_due(t, done, is_reached, is_time) &&
            !checkpoint_try(t, is_reached || done == job->steps))
            break; /* the last one is unchanged; the result has the steps until here */
    }
done:
    return status;
}

/* Sums the skipped samples of all ranks, for the final message. */
static ty_status skipped_sum(training *t, ty_error *error)
{
    if (t->job->bad_samples == 0)
        return TY_OK;
    if (t->dataset != NULL)
        t->skipped += ty_dataset_skipped(t->dataset, NULL);
    if (t->test_set != NULL)
        t->skipped += ty_dataset_skipped(t->test_set, NULL);
    return ty_collective_run(t->transport,
                             &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                      .algorithm = TY_TREE,
                                                      .member_count = t->transport->size,
                                                      .data = &t->skipped,
                                                      .count = 1,
                                                      .element = TY_ELEMENT_DOUBLE,
                                                      .tag = SKIPPED_TAG},
                             error);
}

static void skipped_report(const training *t)
{
    const char *first = NULL;
    FILE *to = t->transport->rank == 0 ? t->options->progress : NULL;

    if (to == NULL || !(t->skipped > 0))
        return;
    fprintf(to, "skipped %.0f samples that cannot be read", t->skipped);
    if (t->dataset != NULL && ty_dataset_skipped(t->dataset, &first) > 0)
        fprintf(to, "; the first: %s", first);
    fputc('\n', to);
}

static void weights_report(const training *t)
{
    FILE *to = t->transport->rank == 0 ? t->options->progress : NULL;
    uint32_t layers, fresh;

    if (to == NULL || t->initial == NULL)
        return;
    weights_count(t->initial, &layers, &fresh);
    fprintf(to, "starts from %s: %u layers", t->job->init, layers - fresh);
    if (fresh > 0)
        fprintf(to, ", and %u that it does not have, or of another shape, from the seed", fresh);
    fputc('\n', to);
}

static void progress_end(training *t)
{
    const ty_run *run = t->run;
    uint32_t steps = ty_interpreter_steps(t->interpreter);
    double rate =
        run->wall_s > 0 ? (double)(steps - t->start) * t->job->plan->global_batch / run->wall_s : 0;
    char note[160], seconds[32];

    ty_format_seconds(run->wall_s, seconds);
    if (steps == t->start)
        snprintf(note, sizeof note, "the checkpoint has all %u steps; nothing was trained", steps);
    else if (run->evaluation_count > 0)
        snprintf(note, sizeof note, "%u steps in %s, test accuracy %.2f %%, loss %.4f", steps,
                 seconds, 100 * run->evaluations[run->evaluation_count - 1].accuracy,
                 run->evaluations[run->evaluation_count - 1].loss);
    else if (t->job->instruction_s != NULL)
        snprintf(note, sizeof note, "%u steps in %s, %.0f samples/s", steps, seconds, rate);
    else
        snprintf(note, sizeof note, "%u steps in %s, loss %.4f, %.0f samples/s", steps, seconds,
                 steps > 0 ? ty_interpreter_losses(t->interpreter)[steps - 1] : 0, rate);
    ty_progress_finish(&t->progress, note);
}

/* A full disk for a checkpoint or weights must not cost the result: once written, it is kept,
 * whatever else failed. @param is_cut whether the run did not reach its end */
static ty_status result_make(const training *t, bool is_cut, ty_error *error)
{
    const ty_error *unsaved = &t->unsaved;
    char why[sizeof error->message];
    bool is_written;
    ty_status status = ty_results_save(t->job, t->interpreter, t->transport, window_find(t),
                                       t->origin_s, t->run, &is_written, error);

    /* An unwritable output is rank 0's failure, but all ranks return it. */
    status = ty_transport_agree(t->transport, status, error);
    if (t->options->is_kept != NULL)
        *t->options->is_kept =
            is_written && (is_cut || status != TY_OK || unsaved->status != TY_OK);
    if (unsaved->status == TY_OK)
        return status;
    if (is_written || status == TY_OK)
        snprintf(why, sizeof why, "the result is of the %u steps until then",
                 ty_interpreter_steps(t->interpreter));
    else
        snprintf(why, sizeof why, "%s", error->message);
    return ty_fail(error, unsaved->status, "%.200s; %.200s", unsaved->message, why);
}

/* The measurements of an interrupted run are a result too, of fewer steps. If it cannot be written,
 * the run still returns as interrupted. A launcher that is terminated gives its ranks at most a
 * second, which is for the checkpoint. */
static void measured_keep(training *t)
{
    const bool is_ended = t->options->stop != NULL && *t->options->stop == SIGTERM;
    ty_error unwritten = {0};
    ty_status status = is_ended ? TY_EINTERRUPTED : TY_OK;

    if (t->transport->is_broken || ty_interpreter_steps(t->interpreter) == t->start ||
        ty_transport_agree(t->transport, status, &unwritten) != TY_OK)
        return;
    (void)result_make(t, true, &unwritten);
}

/* An earlier run completed the job: writes its result again. */
static ty_status give_again(const training *t, ty_error *error)
{
    ty_progress progress;
    char note[96];
    ty_status status = TY_OK;

    if (t->transport->rank == 0)
        status = ty_result_give_again(t->job, error);
    TY_CHECK(ty_transport_agree(t->transport, status, error), status, done);
    snprintf(note, sizeof note, "finished before, after %u steps; its result again", t->place.step);
    ty_progress_start(&progress, t->transport->rank == 0 ? t->options->progress : NULL, "training",
                      t->job->steps, "steps");
    ty_progress_finish(&progress, note);
done:
    return status;
}

/* A parameter server's entire run. Afterwards it rejoins the other ranks, which train without it.
 */
static ty_status serve(const training *t, ty_error *error)
{
    const ty_status status = ty_serve(t->job->plan, t->job->program, t->transport, error);

    t->transport->is_broken = status != TY_OK;
    return status;
}

/* Ends the servers, whatever the run's status. */
static ty_status servers_dismiss(const training *t, ty_status status, ty_error *error)
{
    if (t->transport->rank != 0 || t->transport->is_broken)
        return status;
    if (status != TY_OK)
        error = NULL; /* it has the earlier failure */
    const ty_status told = ty_servers_notify(t->job->plan, t->transport, 0, 0, error);
    return status != TY_OK ? status : told;
}

static ty_status train_job(const ty_job *job, ty_transport *transport,
                           const ty_execute_options *options, ty_error *error)
{
    training t = {.job = job, .transport = transport, .options = options, .lock = -1};
    const uint32_t launched = transport->size;
    ty_status status;

    status = training_check(&t, error);
    TY_CHECK(ty_transport_agree(transport, status, error), status, unprepared);
    if (!is_server(&t))
        status = training_prepare(&t, error);
    TY_CHECK(ty_transport_agree(transport, status, error), status, unprepared);
    if (is_server(&t)) {
        status = serve(&t, error);
        goto unprepared;
    }
    transport->size = ty_plan_rank_count(job->plan); /* servers are no ranks */
    if (t.is_finished && job->save_weights == NULL) {
        status = give_again(&t, error);
        goto cleanup;
    }
    TY_CHECK(ty_interpreter_connect(t.interpreter, error), status, broken);
    if (t.is_finished) {
        TY_CHECK(weights_save(t.interpreter, job->save_weights, error), status, cleanup);
        status = give_again(&t, error);
        goto cleanup;
    }
    weights_report(&t);
    ty_progress_start(&t.progress, transport->rank == 0 ? options->progress : NULL, "training",
                      job->steps, "steps");
    TY_CHECK(ty_results_clock(transport, &t.origin_s, error), status, broken);
    status = train(&t, error);
    if (status == TY_EINTERRUPTED)
        measured_keep(&t);
    TY_CHECK(status, status, cleanup);
    if (job->save_weights != NULL && t.unsaved.status == TY_OK)
        t.unsaved.status = weights_save(t.interpreter, job->save_weights, &t.unsaved);
    if (transport->is_broken || t.unsaved.status == TY_EBACKEND) {
        status = ty_fail(error, t.unsaved.status, "%s", t.unsaved.message);
        goto cleanup;
    }
    TY_CHECK(skipped_sum(&t, error), status, broken);
    progress_end(&t);
    skipped_report(&t);
    status = result_make(&t, false, error);
    goto cleanup;

broken:
    transport->is_broken = true;
cleanup:
    status = servers_dismiss(&t, status, error);
    transport->size = launched;
unprepared:
    training_free(&t);
    return status;
}

ty_status ty_execute_job(const ty_job *job, ty_transport *transport,
                         const ty_execute_options *options, ty_error *error)
{
    if (job->kind == TY_JOB_SAMPLES)
        return ty_transport_agree(
            transport, transport->rank == 0 ? ty_samples_job(job, options, error) : TY_OK, error);
    if (job->kind == TY_JOB_PROFILE)
        return ty_profile_job(job, transport, options, error);
    return train_job(job, transport, options, error);
}

/* ---- In one process ---------------------------------------------------------------------- */

typedef struct local_rank {
    pthread_t thread;
    bool is_started;
    const ty_job *job;
    ty_transport *transport;
    const ty_execute_options *options;
    bool is_broken;
    ty_status status;
    ty_error error;
} local_rank;

static void *local_main(void *argument)
{
    local_rank *rank = argument;

    rank->status = ty_execute_job(rank->job, rank->transport, rank->options, &rank->error);
    rank->is_broken = rank->transport->is_broken;
    rank->transport->close(rank->transport);
    return NULL;
}

/* The first failure that is a rank's own; failures of ranks that waited for it come after. */
static const local_rank *first_failure(const local_rank *ranks, uint32_t count)
{
    const local_rank *found = NULL;

    for (uint32_t i = 0; i < count; i++) {
        bool is_bystander = strstr(ranks[i].error.message, "another rank failed") != NULL;
        if (ranks[i].status != TY_OK && (found == NULL || !is_bystander)) {
            found = &ranks[i];
            if (!is_bystander)
                break;
        }
    }
    return found;
}

ty_status ty_execute_job_locally(const ty_job *job, uint32_t count,
                                 const ty_execute_options *options, ty_error *error)
{
    local_rank *ranks = ty_alloc(count, sizeof *ranks);
    ty_transport **transports = ty_alloc(count, sizeof(ty_transport *));
    const local_rank *failed;
    ty_status status;

    if (ranks == NULL || transports == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for %u ranks", count);
        goto cleanup;
    }
    TY_CHECK(ty_transport_local(count, transports, error), status, cleanup);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = (local_rank){.job = job, .transport = transports[i], .options = options};
        ranks[i].is_started = pthread_create(&ranks[i].thread, NULL, local_main, &ranks[i]) == 0;
        if (!ranks[i].is_started) {
            ranks[i].status = ty_fail(&ranks[i].error, TY_EBACKEND, "no thread for rank %u", i);
            transports[i]->is_broken = true;
            transports[i]->close(transports[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i].is_started)
            pthread_join(ranks[i].thread, NULL);
    }
    failed = first_failure(ranks, count);
    if (failed != NULL)
        status = ty_fail(error, failed->status, "%s", failed->error.message);
cleanup:
    ty_free(ranks);
    ty_free(transports);
    return status;
}
