/* Measurements of all ranks, gathered on rank 0 as a run. */
#include "results.h"

#include "machine.h"
#include "ty_base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESULT_TAG = 6, CLOCK_TAG = 7, RESCUE_PATH_SIZE = 1024 };

typedef struct rank_result {
    uint64_t event_count, peak_memory_bytes;
} rank_result;

typedef struct rank_clock {
    ty_boot_id boot;
    double now_s;
} rank_clock;

/* Ranks of one host share a clock. That of another host is aligned at a barrier. */
ty_status ty_results_clock(ty_transport *transport, double *origin_s, ty_error *error)
{
    rank_clock *clocks = ty_alloc(transport->size, sizeof *clocks);
    rank_clock *own;
    ty_status status;

    TY_TRY(ty_check_memory(clocks != NULL, error));
    own = &clocks[transport->rank];
    TY_CHECK(ty_transport_barrier(transport, error), status, cleanup);
    *own = (rank_clock){ty_machine_boot(), ty_now_s()};
    TY_CHECK(ty_collective_run(transport,
                               &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                        .member_count = transport->size,
                                                        .data = clocks,
                                                        .count = sizeof *clocks,
                                                        .element = TY_ELEMENT_BYTE,
                                                        .tag = CLOCK_TAG},
                               error),
             status, cleanup);
    *origin_s = strcmp(clocks[0].boot.text, own->boot.text) == 0 ? clocks[0].now_s : own->now_s;
cleanup:
    ty_free(clocks);
    return status;
}

static ty_status results_send(ty_transport *transport, const rank_result *own,
                              const ty_event *events, ty_error *error)
{
    TY_TRY(ty_transport_send(transport, 0, RESULT_TAG, own, sizeof *own, error));
    TY_TRY(ty_transport_send(transport, 0, RESULT_TAG, events, own->event_count * sizeof *events,
                             error));
    return TY_OK;
}

static ty_status results_receive(ty_transport *transport, uint32_t from, rank_result *result,
                                 ty_event **events, ty_error *error)
{
    ty_event *received = NULL;
    ty_status status;

    TY_CHECK(ty_transport_receive(transport, from, RESULT_TAG, result, sizeof *result, error),
             status, cleanup);
    received = ty_alloc(result->event_count, sizeof *received);
    TY_TRY(ty_check_memory(received != NULL, error));
    TY_CHECK(ty_transport_receive(transport, from, RESULT_TAG, received,
                                  result->event_count * sizeof *received, error),
             status, cleanup);
    *events = received;
    return TY_OK;
cleanup:
    ty_free(received);
    return status;
}

static ty_status events_add(ty_timeline *timeline, const ty_event *events, uint64_t count,
                            ty_error *error)
{
    ty_status status = TY_OK;

    for (uint64_t i = 0; i < count && status == TY_OK; i++)
        status = ty_timeline_add(timeline, &events[i]);
    return status == TY_OK ? TY_OK : ty_fail(error, status, "out of memory for a timeline");
}

/* The first event of the recorded steps is at 0. */
static void timeline_rebase(ty_timeline *timeline)
{
    double first_s = HUGE_VAL;

    for (uint64_t i = 0; i < timeline->event_count; i++)
        first_s = fmin(first_s, timeline->events[i].start_s);
    for (uint64_t i = 0; i < timeline->event_count; i++) {
        timeline->events[i].start_s -= first_s;
        timeline->events[i].end_s -= first_s;
    }
}

/* A stage replica's events are those of its first rank, its memory that of the rank with most. */
static ty_status run_collect(ty_transport *transport, uint32_t width, const rank_result *own,
                             const ty_event *events, ty_run *run, ty_error *error)
{
    uint32_t rank;
    ty_status status;

    TY_CHECK(events_add(run->timeline, events, own->event_count, error), status, done);
    run->peak_memory_bytes[0] = own->peak_memory_bytes;
    for (rank = 1; rank < transport->size; rank++) {
        uint64_t *peak = &run->peak_memory_bytes[rank / width];
        ty_event *received = NULL;
        rank_result result;

        TY_CHECK(results_receive(transport, rank, &result, &received, error), status, done);
        status = events_add(run->timeline, received, result.event_count, error);
        ty_free(received);
        if (status != TY_OK)
            goto done;
        *peak = result.peak_memory_bytes > *peak ? result.peak_memory_bytes : *peak;
    }
    timeline_rebase(run->timeline);
    ty_timeline_sort(run->timeline);
done:
    return status;
}

/* Describes the libraries, and the device if the host did not compute. */
static ty_status versions_describe(const ty_interpreter *interpreter, const ty_transport *transport,
                                   char **out, ty_error *error)
{
    char *libraries = NULL, *device = NULL;
    ty_text text = {0};
    ty_status status;

    TY_CHECK(ty_machine_versions(transport, &libraries, error), status, done);
    TY_CHECK(ty_interpreter_describe(interpreter, &device, error), status, done);
    ty_text_addf(&text, "%s%s%s", libraries, device != NULL ? ", " : "",
                 device != NULL ? device : "");
    status = ty_text_take(&text, out, error);
done:
    ty_free(libraries);
    ty_free(device);
    return status;
}

static ty_status run_describe(const ty_job *job, const ty_interpreter *interpreter,
                              const ty_transport *transport, ty_run *run, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_plan_digest(job->plan, &run->plan_digest, error), status, done);
    TY_CHECK(ty_machine_name(&run->machine, error), status, done);
    TY_CHECK(versions_describe(interpreter, transport, &run->versions, error), status, done);
    TY_CHECK(ty_machine_date(&run->date, error), status, done);
    run->backend = ty_strdup(job->backend);
    if (run->backend == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
done:
    return status;
}

static ty_status noise_samples_copy(const ty_interpreter *interpreter, ty_run *run, ty_error *error)
{
    uint32_t count = 0;
    const ty_noise_sample *samples = ty_interpreter_noise_samples(interpreter, &count);

    run->noise_samples = ty_alloc(count, sizeof *run->noise_samples);
    TY_TRY(ty_check_memory(run->noise_samples != NULL, error));
    run->noise_sample_count = count;
    for (uint32_t i = 0; i < count; i++)
        run->noise_samples[i] = samples[i];
    return TY_OK;
}

static ty_status run_fill(const ty_job *job, ty_interpreter *interpreter,
                          const ty_transport *transport, uint32_t recorded, ty_run *run,
                          ty_error *error)
{
    run->stage_replica_count = ty_plan_stage_replica_count(job->plan);
    run->step_count = ty_interpreter_steps(interpreter);
    run->peak_memory_bytes = ty_alloc(run->stage_replica_count, sizeof *run->peak_memory_bytes);
    if (job->instruction_s == NULL)
        run->losses = ty_alloc(run->step_count, sizeof *run->losses);
    if ((run->losses == NULL && job->instruction_s == NULL) || run->peak_memory_bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a run");
    run->until = job->until;
    run->variant = job->plan->deployment.variant;
    run->distortion = ty_interpreter_distortion(interpreter, &run->distortion_steps);
    run->noise = ty_interpreter_noise(interpreter);
    TY_TRY(noise_samples_copy(interpreter, run, error));
    for (uint32_t i = 0; run->losses != NULL && i < run->step_count; i++)
        run->losses[i] = ty_interpreter_losses(interpreter)[i];
    TY_TRY(ty_timeline_new(job->plan, recorded, &run->timeline, error));
    TY_TRY(run_describe(job, interpreter, transport, run, error));
    return TY_OK;
}

/* ---- Next to the checkpoint ---------------------------------------------------------------- */

static ty_status result_path(const ty_job *job, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    ty_text_addf(&text, "%s/result.json", job->checkpoint);
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

static ty_status result_keep(const ty_job *job, const ty_run *run, ty_error *error)
{
    char *path = NULL;
    ty_status status;

    if (job->checkpoint == NULL)
        return TY_OK;
    TY_CHECK(result_path(job, &path, error), status, done);
    status = ty_run_save(run, path, error);
done:
    ty_free(path);
    return status;
}

/* Saves the result in a temporary folder of its own, so that it is not lost. */
static ty_status result_rescue(const ty_run *run, char path[RESCUE_PATH_SIZE], ty_error *error)
{
    const char *const folders[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
    ty_status status = TY_EIO;

    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && status != TY_OK; i++) {
        char folder[RESCUE_PATH_SIZE - 16];
        if (folders[i] == NULL || folders[i][0] == '\0' ||
            snprintf(folder, sizeof folder, "%s/trainyard-result-XXXXXX", folders[i]) >=
                (int)sizeof folder ||
            mkdtemp(folder) == NULL)
            continue;
        snprintf(path, RESCUE_PATH_SIZE, "%s/run.json", folder);
        status = ty_run_save(run, path, error);
        if (status != TY_OK)
            rmdir(folder);
    }
    return status;
}

/* A disk that is full at the end must not cost the training: the result goes where there is room,
 * and the error message says where. */
static ty_status result_save(const ty_job *job, const ty_run *run, bool *is_written,
                             ty_error *error)
{
    ty_error kept = {0}, rescued = {0};
    char path[RESCUE_PATH_SIZE], why[sizeof error->message];
    const ty_status in_folder = result_keep(job, run, &kept);
    const ty_status status = ty_run_save(run, job->output, error);

    *is_written = status == TY_OK;
    if (status == TY_OK)
        return in_folder == TY_OK ? TY_OK : ty_fail(error, in_folder, "%s", kept.message);
    if (status != TY_EIO)
        return status;
    snprintf(why, sizeof why, "%s", error->message);
    if (in_folder == TY_OK && job->checkpoint != NULL)
        return ty_fail(error, TY_EIO, "%.110s; the result is in %.110s/result.json", why,
                       job->checkpoint);
    if (result_rescue(run, path, &rescued) == TY_OK)
        return ty_fail(error, TY_EIO, "%.110s; the result is in %.110s", why, path);
    return ty_fail(error, TY_EIO, "%.110s; nor could it be saved elsewhere: %.110s", why,
                   rescued.message);
}

/* The result next to the checkpoint; NULL if none can be read. */
static ty_status result_load(const ty_job *job, ty_run **out, ty_error *error)
{
    ty_error unread = {0};
    char *path = NULL;
    ty_status status;

    *out = NULL;
    TY_CHECK(result_path(job, &path, error), status, done);
    if (ty_file_exists(path) && ty_run_load(path, out, &unread) == TY_ENOMEM)
        status = ty_fail(error, TY_ENOMEM, "%s", unread.message);
done:
    ty_free(path);
    return status;
}

/* Whether the run reached the job's steps or target. */
static bool has_finished(const ty_job *job, const ty_run *run)
{
    if (run->step_count == job->steps)
        return true;
    for (uint32_t i = 0; ty_target_is_set(&job->until) && i < run->evaluation_count; i++)
        if (ty_target_is_met(&job->until, run->evaluations[i].accuracy, run->evaluations[i].loss))
            return true;
    return false;
}

ty_status ty_result_is_kept(const ty_job *job, const ty_checkpoint_place *place, bool *out,
                            ty_error *error)
{
    ty_run *run = NULL;
    ty_status status = result_load(job, &run, error);

    if (status != TY_OK)
        return status;
    *out = run != NULL && run->step_count == place->step &&
           strcmp(run->plan_digest.hex, place->plan.hex) == 0 && has_finished(job, run);
    ty_run_free(run);
    return TY_OK;
}

ty_status ty_result_give_again(const ty_job *job, ty_error *error)
{
    char *path = NULL, *bytes = NULL;
    size_t length;
    ty_status status;

    TY_CHECK(result_path(job, &path, error), status, done);
    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, done);
    status = ty_file_write(job->output, bytes, length, error);
done:
    ty_free(bytes);
    ty_free(path);
    return status;
}

/* ---- All ----------------------------------------------------------------------------------- */

ty_status ty_results_save(const ty_job *job, ty_interpreter *interpreter, ty_transport *transport,
                          ty_recorded_steps window, double origin_s, ty_run *run, bool *is_written,
                          ty_error *error)
{
    rank_result own = {.peak_memory_bytes = ty_interpreter_peak_memory_bytes(interpreter)};
    const uint32_t width = ty_plan_replica_ranks(job->plan);
    uint64_t measured_count;
    const ty_event *measured = ty_interpreter_events(interpreter, &measured_count);
    ty_event *events = ty_alloc(measured_count, sizeof *events);
    ty_status status;

    *is_written = false;
    TY_TRY(ty_check_memory(events != NULL, error));
    for (uint64_t i = 0; i < measured_count && transport->rank % width == 0; i++) {
        ty_event *event = &events[own.event_count];
        if (measured[i].step < window.first || measured[i].step - window.first >= window.count)
            continue;
        *event = measured[i];
        event->step -= window.first;
        event->start_s -= origin_s;
        event->end_s -= origin_s;
        own.event_count++;
    }
    if (transport->rank != 0) {
        status = results_send(transport, &own, events, error);
        goto cleanup;
    }
    TY_CHECK(run_fill(job, interpreter, transport, window.count, run, error), status, cleanup);
    TY_CHECK(ty_interpreter_disturbance(interpreter, window.first, window.count, &run->disturbance,
                                        error),
             status, cleanup);
    TY_CHECK(run_collect(transport, width, &own, events, run, error), status, cleanup);
    if (run->timeline->step_count > 0) {
        TY_CHECK(ty_timeline_check(job->plan, job->program, run->timeline, "timeline", error),
                 status, cleanup);
        TY_CHECK(
            ty_timeline_summarize(job->plan, job->program, run->timeline, &run->summary, error),
            status, cleanup);
    } else {
        ty_timeline_free(run->timeline);
        run->timeline = NULL;
    }
    status = result_save(job, run, is_written, error);
cleanup:
    ty_free(events);
    return status;
}
