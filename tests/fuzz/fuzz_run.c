/* Jobs, runs and timelines, distinguished by their schema: accepted ones are valid. */
#include "fuzz.h"
#include "ty_core.h"

#include <math.h>
#include <string.h>

static void use_job(const ty_job *job)
{
    ty_error error = {0};

    MUST(ty_plan_check(job->plan, "input", &error) == TY_OK);
    MUST((job->program == NULL) == (job->kind != TY_JOB_TRAIN));
    if (job->kind == TY_JOB_TRAIN) {
        MUST(ty_program_check(job->plan, job->program, "input", &error) == TY_OK);
        MUST((uint64_t)job->warmup_steps + job->timeline_steps <= job->steps);
    } else {
        MUST(job->micro_batch_count > 0);
    }
}

static void use_timeline(const ty_timeline *timeline)
{
    for (uint64_t i = 0; i < timeline->event_count; i++) {
        const ty_event *event = &timeline->events[i], *before = event - 1;
        MUST(event->stage_replica < timeline->stage_replica_count &&
             event->step < timeline->step_count);
        MUST(isfinite(event->start_s) && isfinite(event->end_s));
        MUST(event->end_s >= event->start_s);
        if (i == 0)
            continue;
        MUST(before->step < event->step ||
             (before->step == event->step && (before->stage_replica < event->stage_replica ||
                                              (before->stage_replica == event->stage_replica &&
                                               before->instruction <= event->instruction))));
    }
}

static void use_run(const ty_run *run)
{
    MUST(run->stage_replica_count > 0 && run->step_count > 0);
    for (uint32_t i = 0; i < run->step_count; i++)
        MUST(isfinite(run->losses[i]));
    if (run->timeline != NULL) {
        MUST(run->timeline->stage_replica_count == run->stage_replica_count);
        MUST(strcmp(run->timeline->plan_digest.hex, run->plan_digest.hex) == 0);
        use_timeline(run->timeline);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_json_document *document = NULL;
    const ty_json *root;
    ty_job *job = NULL;
    ty_run *run = NULL;
    ty_timeline *timeline = NULL;
    ty_error error = {0};

    if (ty_json_parse((const char *)bytes, length, "input", &document, &error) != TY_OK)
        return 0;
    root = ty_json_root(document);
    if (ty_job_from_json(root, &job, &error) == TY_OK)
        use_job(job);
    else if (ty_run_from_json(root, &run, &error) == TY_OK)
        use_run(run);
    else if (ty_timeline_from_json(root, &timeline, &error) == TY_OK)
        use_timeline(timeline);
    else
        MUST(error.status == TY_EPARSE && strlen(error.message) > 10);
    ty_json_free(document);
    ty_job_free(job);
    ty_run_free(run);
    ty_timeline_free(timeline);
    return 0;
}
