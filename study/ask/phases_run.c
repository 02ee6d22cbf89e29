/* Runs phases one after the other, each from the checkpoint of the one before. */
#include "question.h"
#include "run_folder.h"
#include "ty_phases.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RUN_SCHEMA "trainyard.phased-run/1"

/* Runs one phase up to step `steps` of the training; writes its result to `output`.
 * @param has_result [out] whether there is one, also for the steps before a failure */
static ty_status run_phase(ty_plan *plan, const ty_training *training, const char *output,
                           bool *has_result, const ty_watch *watch, ty_error *error)
{
    ty_plan_inputs inputs = {0};
    ty_job *job = NULL;
    ty_status status;

    TY_CHECK(ty_plan_inputs_from(plan, &inputs, error), status, done);
    TY_CHECK(ty_training_job(training, &inputs, output, &job, error), status, done);
    status = ty_worker_run(job, ty_plan_launched_count(job->plan), watch, error);
    *has_result = status == TY_OK || job->is_kept;
done:
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);
    return status;
}

/* Whether the run met its target, so that no further phase is needed. */
static ty_status is_over(const char *path, bool *out, ty_error *error)
{
    ty_run *run = NULL;
    const ty_status status = ty_run_load(path, &run, error);

    if (status == TY_OK)
        *out = ty_run_reached(run) != NULL;
    ty_run_free(run);
    return status;
}

/* Appends a run's file as an element of the document's list.
 * @param kept path of a copy for resuming the training; NULL: none */
static ty_status add_run(const char *path, const char *kept, ty_json_writer *writer,
                         ty_error *error)
{
    char *bytes = NULL;
    size_t length;
    ty_status status = ty_file_read(path, 0, &bytes, &length, error);

    if (status == TY_OK && kept != NULL)
        status = ty_file_write(kept, bytes, length, error);
    if (status == TY_OK)
        ty_json_put_raw(writer, NULL, bytes);
    ty_free(bytes);
    return status;
}

/* ---- Resuming ----------------------------------------------------------------------------------
 *
 * The results of finished phases are stored next to the checkpoint: phase-1.json, and so on. */

#define KEPT_SIZE (PATH_MAX + 32)

static const char *kept_path(const char *checkpoint, uint32_t phase, char out[KEPT_SIZE])
{
    snprintf(out, KEPT_SIZE, "%s/phase-%u.json", checkpoint, phase + 1);
    return out;
}

/* Steps of the newest checkpoint; 0: none, which the worker reports. */
static ty_status steps_done(const char *checkpoint, uint32_t *out, ty_error *error)
{
    char path[KEPT_SIZE];
    ty_json_document *document = NULL;
    ty_status status;

    *out = 0;
    snprintf(path, sizeof path, "%s/latest.json", checkpoint);
    if (!ty_file_exists(path))
        return TY_OK;
    status = ty_json_load(path, &document, error);
    if (status == TY_OK)
        status = ty_json_uint32(ty_json_root(document), "step", 0, UINT32_MAX, out, error);
    ty_json_free(document);
    return status;
}

/* Whether a phase has a result of this plan that did not meet the target, so that the training
 * continues after it. */
static ty_status has_result(const char *path, const ty_plan *plan, bool *out, ty_error *error)
{
    ty_run *run = NULL;
    ty_digest digest;
    ty_status status = TY_OK;

    *out = false;
    if (!ty_file_exists(path))
        return TY_OK;
    TY_CHECK(ty_run_load(path, &run, error), status, done);
    TY_CHECK(ty_plan_digest(plan, &digest, error), status, done);
    if (strcmp(run->plan_digest.hex, digest.hex) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s:/plan_digest: found that of another plan, expected that of the phase",
                         path);
    *out = status == TY_OK && ty_run_reached(run) == NULL;
done:
    ty_run_free(run);
    return status;
}

/* Reads the results of finished phases next to the checkpoint, except for the last phase, which the
 * worker restores.
 * @param first [out] the phase to resume
 * @param steps [out] of those before it */
static ty_status go_on(const ty_phased_plan *plan, const char *checkpoint, ty_json_writer *writer,
                       uint32_t *first, uint32_t *steps, ty_error *error)
{
    char path[KEPT_SIZE];
    uint32_t done = 0;
    bool is_there = true;
    ty_status status = steps_done(checkpoint, &done, error);

    for (uint32_t p = 0; p + 1 < plan->count && status == TY_OK; p++) {
        if (*steps + plan->steps[p] > done)
            break;
        kept_path(checkpoint, p, path);
        TY_TRY(has_result(path, plan->plans[p], &is_there, error));
        if (!is_there)
            break;
        TY_TRY(add_run(path, NULL, writer, error));
        *steps += plan->steps[p];
        *first = p + 1;
    }
    return status;
}

ty_status ty_phased_plan_run(ty_phased_plan *plan, const ty_training *training, const char *output,
                             uint32_t *written, const ty_watch *watch, ty_error *error)
{
    const bool is_played = training->backend != NULL && strcmp(training->backend, "replay") == 0;
    char folder[PATH_MAX], path[KEPT_SIZE], state[KEPT_SIZE], kept[KEPT_SIZE];
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_error detail = {0};
    uint32_t steps = 0, first = 0;
    bool is_reached = false;
    int held;
    ty_status status = ty_run_folder_make(folder, &held, error), filed = TY_OK;

    *written = 0;
    if (status != TY_OK)
        return status;
    snprintf(path, sizeof path, "%s/run.json", folder);
    snprintf(state, sizeof state, "%s/" TY_RUN_CHECKPOINT, folder);
    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", RUN_SCHEMA);
    ty_json_open(&writer, "phases", '[');
    if (training->resume && !is_played) {
        filed = go_on(plan, training->checkpoint, &writer, &first, &steps, &detail);
        *written = filed == TY_OK ? first : 0;
    } else if (training->checkpoint != NULL && !is_played) {
        /* Removes results of an earlier training whose checkpoint is gone; an existing checkpoint
         * is refused. */
        snprintf(kept, sizeof kept, "%s/latest.json", training->checkpoint);
        if (!ty_file_exists(kept))
            for (uint32_t p = 0; p < TY_MOST_TRAINING_PHASES; p++)
                (void)unlink(kept_path(training->checkpoint, p, kept));
    }
    for (uint32_t p = first; p < plan->count && !is_reached && status == TY_OK && filed == TY_OK;
         p++) {
        const bool is_last = p + 1 == plan->count;
        ty_training own = *training;
        ty_plan *phase = plan->plans[p];
        bool is_measured = false;

        steps += plan->steps[p];
        own.steps = is_played ? plan->steps[p] : steps;
        if (!is_played) {
            own.checkpoint = training->checkpoint != NULL ? training->checkpoint : state;
            own.resume = p > 0 || training->resume;
            own.init = p == 0 ? training->init : NULL;
        }
        /* A target may be met before the last phase. */
        if (!is_last && !ty_target_is_set(&training->until))
            own.save_weights = NULL;
        plan->plans[p] = NULL; /* ownership moved */
        ty_watch_note(watch, "phase %u of %u: %u steps in batches of %u", p + 1, plan->count,
                      plan->steps[p], phase->global_batch);
        status = run_phase(phase, &own, path, &is_measured, watch, &detail);
        if (status != TY_OK) /* without a message, the worker has printed the reason */
            status = detail.message[0] == '\0'
                         ? ty_fail(error, status, "%s", "")
                         : ty_fail(error, status, "phase %u: %.240s", p + 1, detail.message);
        if (is_measured) {
            const bool is_kept = status == TY_OK && training->checkpoint != NULL;
            filed = add_run(path, is_kept ? kept_path(training->checkpoint, p, kept) : NULL,
                            &writer, &detail);
            *written += filed == TY_OK;
        }
        if (filed == TY_OK && status == TY_OK && !is_played)
            filed = is_over(path, &is_reached, &detail);
        if (filed != TY_OK)
            break;
    }
    ty_json_close(&writer, ']');
    ty_json_close(&writer, '}');
    ty_text_add(&text, "\n");
    if (filed == TY_OK && *written > 0)
        filed = ty_file_write_text(output, &text, &detail);
    if (filed != TY_OK) {
        *written = 0;
        if (status == TY_OK)
            status = ty_fail(error, filed, "%s", detail.message);
    }
    ty_text_clear(&text);
    ty_run_folder_remove(folder, held);
    return status;
}

/* ---- Documents ---------------------------------------------------------------------------------
 */

void ty_phased_run_free(ty_phased_run *run)
{
    if (run == NULL)
        return;
    for (uint32_t p = 0; run->runs != NULL && p < run->count; p++)
        ty_run_free(run->runs[p]);
    ty_free(run->runs);
    ty_free(run);
}

ty_status ty_phased_run_load(const char *path, ty_phased_run **out, ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *root, *list;
    ty_phased_run *run = ty_alloc(1, sizeof *run);
    ty_status status;

    TY_TRY(ty_check_memory(run != NULL, error));
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, RUN_SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "phases", 1, TY_MOST_TRAINING_PHASES, &list, error), status,
             cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    run->runs = ty_alloc(ty_json_size(list), sizeof(ty_run *));
    TY_CHECK(ty_check_memory(run->runs != NULL, error), status, cleanup);
    run->count = (uint32_t)ty_json_size(list);
    for (uint32_t p = 0; p < run->count; p++)
        TY_CHECK(ty_run_from_json(ty_json_at(list, p), &run->runs[p], error), status, cleanup);
    *out = run;
    run = NULL; /* ownership moved */
cleanup:
    ty_phased_run_free(run);
    ty_json_free(document);
    return status;
}
