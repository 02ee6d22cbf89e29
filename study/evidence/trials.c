/* Successive halving over learning rate, momentum and batch, by short trainings on local ranks. */
#include "ty_study.h"

#include "question.h"
#include "run_folder.h"
#include "ty_convergence.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLAIN "pp=1,tp=1,compression=none"
#define USUAL_STEPS 64
#define LARGEST_RATE 1e6 /* as plans have it */

typedef struct trial_run {
    ty_trial trial;
    ty_gradient_noise noise; /* of its last round */
    char folder[PATH_MAX];   /* of its checkpoint; "": none yet */
    int held;                /* what keeps it */
} trial_run;

typedef struct halving {
    const ty_trials_question *asked;
    const ty_watch *watch;
    ty_question_inputs inputs;
    ty_trials *out;
    trial_run *runs; /* [out->count], those that are left first */
} halving;

/* ---- Settings ------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    double least, most;
    bool is_whole, is_said;
    uint32_t count;
    double values[TY_MOST_TRIED_VALUES];
} setting;

enum { RATE, MOMENTUM, BATCH, SETTINGS };

static ty_status values_read(const char *text, size_t length, setting *out, ty_error *error)
{
    const char *const end = text + length;

    out->count = 0;
    while (text < end) {
        char *behind;
        const double value = strtod(text, &behind);
        if (behind == text || behind > end || (behind < end && *behind != '+') ||
            !(value >= out->least && value <= out->most) ||
            (out->is_whole && value != floor(value)))
            return ty_fail(error, TY_EINVAL,
                           "--trials %s: found '%.*s', expected %s from %g to %g with + between",
                           out->name, (int)length, end - length,
                           out->is_whole ? "whole numbers" : "numbers", out->least, out->most);
        if (out->count == TY_MOST_TRIED_VALUES)
            return ty_fail(error, TY_EINVAL, "--trials %s: found more than %d values", out->name,
                           TY_MOST_TRIED_VALUES);
        out->values[out->count++] = value;
        text = behind + (behind < end);
    }
    if (out->count == 0 || end[-1] == '+')
        return ty_fail(error, TY_EINVAL, "--trials %s: found '%.*s', expected values as in 1+2",
                       out->name, (int)length, end - length);
    return TY_OK;
}

/* @param settings what is not said has one value, which is the workload's */
static ty_status settings_read(const char *text, setting settings[SETTINGS], ty_error *error)
{
    uint32_t count = 1;

    while (*text != '\0') {
        const size_t length = strcspn(text, ","), name = strcspn(text, "=");
        size_t s = 0;

        while (s < SETTINGS && (name >= length || strlen(settings[s].name) != name ||
                                strncmp(settings[s].name, text, name) != 0))
            s++;
        if (s == SETTINGS || settings[s].is_said)
            return ty_fail(error, TY_EINVAL,
                           "--trials: found '%.*s'%s, expected learning_rate=, momentum= or batch=",
                           (int)length, text, s < SETTINGS ? " again" : "");
        TY_TRY(values_read(text + name + 1, length - name - 1, &settings[s], error));
        settings[s].is_said = true;
        text += length + (text[length] == ',');
    }
    for (int s = 0; s < SETTINGS; s++)
        count *= settings[s].count;
    if (count < 2 || count > TY_MOST_TRIALS)
        return ty_fail(error, TY_EINVAL, "--trials: found %u combinations, expected 2 to %d", count,
                       TY_MOST_TRIALS);
    return TY_OK;
}

/* Every combination, the workload's own figure where none is named. */
static ty_status trials_list(halving *h, setting settings[SETTINGS], ty_error *error)
{
    const ty_workload *w = h->inputs.workload;
    const double own[SETTINGS] = {[RATE] = w->optimizer.learning_rate,
                                  [MOMENTUM] = w->optimizer.momentum,
                                  [BATCH] = w->global_batch};
    uint32_t count = 1, at = 0;

    for (int s = 0; s < SETTINGS; s++) {
        count *= settings[s].count;
        if (!settings[s].is_said)
            settings[s].values[0] = own[s];
    }
    if (settings[MOMENTUM].count > 1 && w->optimizer.kind != TY_OPTIMIZER_SGD)
        return ty_fail(error, TY_EINVAL,
                       "--trials momentum: found with an optimizer that has none, expected sgd");
    h->out->trials = ty_alloc(count, sizeof *h->out->trials);
    h->runs = ty_alloc(count, sizeof *h->runs);
    TY_TRY(ty_check_memory(h->out->trials != NULL && h->runs != NULL, error));
    for (uint32_t b = 0; b < settings[BATCH].count; b++)
        for (uint32_t m = 0; m < settings[MOMENTUM].count; m++)
            for (uint32_t r = 0; r < settings[RATE].count; r++)
                h->runs[at++].trial = (ty_trial){.learning_rate = settings[RATE].values[r],
                                                 .momentum = settings[MOMENTUM].values[m],
                                                 .batch = (uint32_t)settings[BATCH].values[b],
                                                 .loss = HUGE_VAL};
    h->out->count = count;
    return TY_OK;
}

/* ---- One training --------------------------------------------------------------------------- */

static ty_status plan_make(const halving *h, const ty_trial *trial, ty_plan **out, ty_error *error)
{
    ty_question question = h->asked->question;
    ty_status status;

    question.fix = question.fix != NULL ? question.fix : PLAIN;
    question.global_batch = trial->batch;
    question.task = NULL;
    question.top = 0;
    status = ty_question_plan(&question, &h->inputs, h->watch, out, error);
    if (status == TY_OK) {
        (*out)->optimizer.learning_rate = trial->learning_rate;
        (*out)->optimizer.momentum = trial->momentum;
    }
    return status;
}

/* Takes the plan, goes on from the trial's checkpoint, and looks at the test set at the end. */
static ty_status train(halving *h, trial_run *run, ty_plan *plan, uint32_t steps, ty_run **out,
                       ty_error *error)
{
    ty_training training = h->asked->training;
    ty_plan_inputs inputs = {0};
    ty_job *job = NULL;
    char path[PATH_MAX] = "";
    ty_text checkpoint = {0};
    ty_status status = TY_OK;

    training.steps = steps;
    training.until = (ty_target){.loss = DBL_MIN}; /* never, but it evaluates */
    training.evaluate_every = steps;
    ty_text_addf(&checkpoint, "%s/" TY_RUN_CHECKPOINT, run->folder);
    TY_CHECK(ty_text_check(&checkpoint, error), status, cleanup);
    training.checkpoint = checkpoint.data;
    training.resume = run->trial.rounds > 0;
    TY_CHECK(ty_plan_inputs_from(plan, &inputs, error), status, cleanup);
    TY_CHECK(ty_scratch_file("trainyard-trial", path, sizeof path, error), status, cleanup);
    TY_CHECK(ty_training_job(&training, &inputs, path, &job, error), status, cleanup);
    TY_CHECK(ty_worker_run(job, ty_plan_launched_count(job->plan), h->watch, error), status,
             cleanup);
    status = ty_run_load(path, out, error);
cleanup:
    if (path[0] != '\0')
        unlink(path);
    ty_text_clear(&checkpoint);
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);
    return status;
}

static void folder_remove(trial_run *run)
{
    if (run->folder[0] != '\0')
        ty_run_folder_remove(run->folder, run->held);
    run->folder[0] = '\0';
}

/* Until it has seen `samples`, or as few more as its batch has. One that diverges is out, which is
 * an answer. */
static ty_status trial_go_on(halving *h, trial_run *r, uint64_t samples, ty_error *error)
{
    const uint32_t steps = (uint32_t)((samples + r->trial.batch - 1) / r->trial.batch);
    ty_plan *plan = NULL;
    ty_run *run = NULL;
    ty_error detail = {0};
    ty_status status;

    if (r->folder[0] == '\0')
        TY_CHECK(ty_run_folder_make(r->folder, &r->held, error), status, done);
    TY_CHECK(plan_make(h, &r->trial, &plan, error), status, done);
    status = train(h, r, plan, steps, &run, &detail);
    if (status == TY_ELIMIT) { /* as the worker has said */
        ty_watch_note(h->watch, "learning rate %g, momentum %g, batch %u: out",
                      r->trial.learning_rate, r->trial.momentum, r->trial.batch);
        r->trial.loss = NAN;
        r->trial.rounds++;
        status = TY_OK;
    } else if (status != TY_OK) {
        status = ty_fail(error, status, "%s", detail.message);
    } else if (run->evaluation_count == 0) {
        status = ty_fail(error, TY_EBACKEND, "a trial's run has no evaluation");
    } else {
        const ty_evaluation *last = &run->evaluations[run->evaluation_count - 1];
        h->out->seconds += run->wall_s;
        h->out->samples += (uint64_t)steps * r->trial.batch - r->trial.samples;
        r->trial.seconds += run->wall_s;
        r->trial.samples = (uint64_t)steps * r->trial.batch;
        r->trial.loss = last->loss;
        r->trial.accuracy = last->accuracy;
        r->trial.rounds++;
        r->noise = run->noise;
    }
done:
    ty_run_free(run);
    return status;
}

/* ---- Rounds --------------------------------------------------------------------------------- */

static int by_loss(const void *left, const void *right)
{
    const ty_trial *a = &((const trial_run *)left)->trial, *b = &((const trial_run *)right)->trial;
    const double x = isfinite(a->loss) ? a->loss : HUGE_VAL;
    const double y = isfinite(b->loss) ? b->loss : HUGE_VAL;

    if (x != y)
        return x < y ? -1 : 1;
    if (a->batch != b->batch) /* a tie: always the same one */
        return a->batch < b->batch ? -1 : 1;
    if (a->momentum != b->momentum)
        return a->momentum < b->momentum ? -1 : 1;
    return (a->learning_rate > b->learning_rate) - (a->learning_rate < b->learning_rate);
}

static ty_status rounds_run(halving *h, ty_error *error)
{
    uint32_t left = h->out->count, keep;
    uint64_t samples = h->out->first_samples;

    for (bool is_last = false; !is_last; samples *= 2) {
        h->out->rounds++;
        is_last = left <= 2; /* one of these is found */
        ty_watch_note(h->watch, "round %u: %u trials, until %llu samples", h->out->rounds, left,
                      (unsigned long long)samples);
        for (uint32_t i = 0; i < left; i++)
            TY_TRY(trial_go_on(h, &h->runs[i], samples, error));
        /* The better half of those left, that have not diverged. */
        qsort(h->runs, left, sizeof *h->runs, by_loss);
        keep = (left + 1) / 2;
        while (keep > 0 && !isfinite(h->runs[keep - 1].trial.loss))
            keep--;
        for (uint32_t i = keep; i < left; i++)
            folder_remove(&h->runs[i]);
        left = keep;
        if (left == 0) {
            return ty_fail(error, TY_ELIMIT,
                           "every trial of round %u diverged: expected a smaller learning rate "
                           "among them",
                           h->out->rounds);
        }
    }
    return TY_OK;
}

static ty_status open_question(halving *h, ty_error *error)
{
    const ty_question *q = &h->asked->question;
    const uint32_t steps = h->asked->training.steps > 0 ? h->asked->training.steps : USUAL_STEPS;
    setting settings[SETTINGS] = {[RATE] = {"learning_rate", DBL_MIN, LARGEST_RATE, .count = 1},
                                  [MOMENTUM] = {"momentum", 0, 0.9999, .count = 1},
                                  [BATCH] = {"batch", 1, 1 << 20, .is_whole = true, .count = 1}};
    uint32_t ignored;

    if (q->cluster == NULL || !ty_cluster_is_local(q->cluster, &ignored))
        return ty_fail(error, TY_EINVAL,
                       "--cluster: found %s, expected local:N: the trials are made on this machine",
                       q->cluster != NULL ? q->cluster : "none");
    if (h->asked->training.checkpoint != NULL || ty_target_is_set(&h->asked->training.until))
        return ty_fail(error, TY_EINVAL,
                       "--trials: found with a target or a checkpoint, expected --steps of the "
                       "first round");
    TY_TRY(settings_read(h->asked->settings, settings, error));
    TY_TRY(ty_question_open(q, h->watch, &h->inputs, error));
    TY_TRY(trials_list(h, settings, error));
    h->out->ranks = ty_cluster_device_count(h->inputs.cluster);
    h->out->first_samples = (uint64_t)steps * h->inputs.workload->global_batch;
    return TY_OK;
}

/* The rates that the rule has for the other batches that were tried, beside what was found. */
static ty_status rule_follow(halving *h, ty_error *error)
{
    const ty_trials *out = h->out;
    const ty_trial *found = &out->trials[0];
    const ty_convergence law = {
        .noise_scale_samples = out->noise_scale_samples,
        .scaling_rule = h->inputs.workload->optimizer.kind == TY_OPTIMIZER_SGD ? TY_SCALING_LINEAR
                                                                               : TY_SCALING_SQRT};

    for (uint32_t i = 1; i < out->count && out->has_noise_scale; i++) {
        const uint32_t batch = out->trials[i].batch;
        ty_trials_rate *rate = &h->out->by_rule[out->by_rule_count];
        bool is_beyond, is_known = batch == found->batch;

        for (uint32_t k = 0; k < out->by_rule_count; k++)
            is_known = is_known || out->by_rule[k].batch == batch;
        if (is_known)
            continue;
        TY_TRY(ty_learning_rate(&law, found->learning_rate, found->batch, batch,
                                &rate->learning_rate, &is_beyond, error));
        rate->batch = batch;
        h->out->by_rule_count++;
    }
    return TY_OK;
}

ty_status ty_trials_run(const ty_trials_question *question, const ty_watch *watch, ty_trials *out,
                        ty_error *error)
{
    halving h = {.asked = question, .watch = watch, .out = out};
    const ty_gradient_noise *noise;
    ty_status status;

    *out = (ty_trials){0};
    TY_CHECK(open_question(&h, error), status, done);
    TY_CHECK(rounds_run(&h, error), status, done);
    for (uint32_t i = 0; i < out->count; i++) /* losers were left behind in their order */
        out->trials[i] = h.runs[i].trial;
    noise = &h.runs[0].noise;
    out->has_noise_scale = noise->steps > 0 && noise->square > 0 && noise->variance > 0;
    out->noise_scale_samples = out->has_noise_scale ? noise->variance / noise->square : 0;
    out->whole_samples = out->count * out->trials[0].samples;
    status = rule_follow(&h, error);
done:
    for (uint32_t i = 0; h.runs != NULL && i < out->count; i++)
        folder_remove(&h.runs[i]);
    ty_free(h.runs);
    ty_question_inputs_clear(&h.inputs);
    return status;
}

/* ---- What was found ------------------------------------------------------------------------- */

void ty_trials_to_json(const ty_trials *trials, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.trials/1");
    ty_json_put_uint(w, "ranks", trials->ranks);
    ty_json_put_uint(w, "rounds", trials->rounds);
    ty_json_put_uint(w, "first_round_samples", trials->first_samples);
    ty_json_put_number(w, "train_s", trials->seconds);
    ty_json_put_uint(w, "samples", trials->samples);
    ty_json_put_uint(w, "samples_without_halving", trials->whole_samples);
    if (trials->has_noise_scale)
        ty_json_put_number(w, "noise_scale_samples", trials->noise_scale_samples);
    ty_json_open(w, "by_the_rule", '[');
    for (uint32_t i = 0; i < trials->by_rule_count; i++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_uint(w, "global_batch", trials->by_rule[i].batch);
        ty_json_put_number(w, "learning_rate", trials->by_rule[i].learning_rate);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "trials", '[');
    for (uint32_t i = 0; i < trials->count; i++) {
        const ty_trial *t = &trials->trials[i];
        ty_json_open(w, NULL, '{');
        ty_json_put_number(w, "learning_rate", t->learning_rate);
        ty_json_put_number(w, "momentum", t->momentum);
        ty_json_put_uint(w, "global_batch", t->batch);
        ty_json_put_uint(w, "rounds", t->rounds);
        ty_json_put_uint(w, "samples", t->samples);
        ty_json_put_bool(w, "diverged", !isfinite(t->loss));
        if (isfinite(t->loss)) {
            ty_json_put_number(w, "test_loss", t->loss);
            ty_json_put_number(w, "test_accuracy", t->accuracy);
        }
        ty_json_put_number(w, "train_s", t->seconds);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

void ty_trials_clear(ty_trials *trials)
{
    ty_free(trials->trials);
    *trials = (ty_trials){0};
}
