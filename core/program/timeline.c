/* Timelines: collecting, ordering, checking, finding, and their file. The breakdown of a step is in
 * timeline_summary.c. */
#include "ty_run.h"

#include "ty_base.h"
#include "ty_json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

ty_status ty_timeline_new_unsigned(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                                   ty_error *error)
{
    ty_timeline *timeline = ty_alloc(1, sizeof *timeline);

    TY_TRY(ty_check_memory(timeline != NULL, error));
    timeline->stage_replica_count = ty_plan_stage_replica_count(plan);
    timeline->step_count = step_count;
    *out = timeline;
    return TY_OK;
}

ty_status ty_timeline_new(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                          ty_error *error)
{
    ty_timeline *timeline = NULL;
    ty_status status = TY_OK;

    TY_TRY(ty_timeline_new_unsigned(plan, step_count, &timeline, error));
    TY_CHECK(ty_plan_digest(plan, &timeline->plan_digest, error), status, cleanup);
    *out = timeline;
    timeline = NULL;

cleanup:
    ty_timeline_free(timeline);
    return status;
}

ty_status ty_timeline_add(ty_timeline *timeline, const ty_event *event)
{
    if (timeline->event_count == timeline->capacity) {
        uint64_t capacity = timeline->capacity == 0 ? 64 : timeline->capacity * 2;
        ty_event *grown = ty_resize(timeline->events, capacity, sizeof *grown);
        if (grown == NULL)
            return TY_ENOMEM;
        timeline->events = grown;
        timeline->capacity = capacity;
    }
    timeline->events[timeline->event_count++] = *event;
    return TY_OK;
}

void ty_timeline_free(ty_timeline *timeline)
{
    if (timeline == NULL)
        return;
    ty_free(timeline->events);
    ty_free(timeline);
}

static int compare_events(const void *left, const void *right)
{
    const ty_event *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->stage_replica != b->stage_replica)
        return a->stage_replica < b->stage_replica ? -1 : 1;
    return (a->instruction > b->instruction) - (a->instruction < b->instruction);
}

void ty_timeline_sort(ty_timeline *timeline)
{
    if (timeline->event_count > 1)
        qsort(timeline->events, timeline->event_count, sizeof *timeline->events, compare_events);
}

/* ---- Checking and finding ------------------------------------------------------------------ */

static ty_status check_event(const ty_event *event, uint64_t index, const ty_event *expected,
                             const char *name, ty_error *error)
{
    if (compare_events(event, expected) != 0)
        return ty_fail(
            error, TY_EPARSE,
            "%s:/events/%llu: found instruction %u of stage replica %u in step %u, expected "
            "instruction %u of stage replica %u in step %u",
            name, (unsigned long long)index, event->instruction, event->stage_replica, event->step,
            expected->instruction, expected->stage_replica, expected->step);
    if (!isfinite(event->start_s) || !isfinite(event->end_s) || event->end_s < event->start_s)
        return ty_fail(
            error, TY_EPARSE,
            "%s:/events/%llu: found start %g s and end %g s of instruction %u of stage replica "
            "%u in step %u, expected finite times in order",
            name, (unsigned long long)index, event->start_s, event->end_s, event->instruction,
            event->stage_replica, event->step);
    return TY_OK;
}

ty_status ty_timeline_check(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, const char *name, ty_error *error)
{
    const uint64_t step_events = ty_program_event_count(plan, program);
    uint64_t index = 0;

    if (timeline->stage_replica_count != ty_plan_stage_replica_count(plan))
        return ty_fail(error, TY_EPARSE,
                       "%s:/stage_replica_count: found %u, expected the plan's %u", name,
                       timeline->stage_replica_count, ty_plan_stage_replica_count(plan));
    if (timeline->event_count != step_events * timeline->step_count)
        return ty_fail(error, TY_EPARSE,
                       "%s:/events: found %llu events, expected %llu for each of %u steps", name,
                       (unsigned long long)timeline->event_count, (unsigned long long)step_events,
                       timeline->step_count);
    for (uint32_t step = 0; step < timeline->step_count; step++) {
        uint32_t stage_replica = 0;
        for (uint32_t s = 0; s < program->stage_count; s++)
            for (uint32_t q = 0; q < plan->stages[s].replicas; q++, stage_replica++)
                for (uint32_t i = 0; i < program->stages[s].instruction_count; i++, index++) {
                    ty_event expected = {
                        .stage_replica = stage_replica, .step = step, .instruction = i};
                    TY_TRY(check_event(&timeline->events[index], index, &expected, name, error));
                }
    }
    return TY_OK;
}

const ty_event *ty_timeline_find(const ty_timeline *timeline, const ty_program *program,
                                 const ty_plan *plan, uint32_t step, uint32_t stage_replica,
                                 uint32_t instruction)
{
    uint64_t step_events = 0, before = 0;
    uint32_t first_replica = 0;

    for (uint32_t s = 0; s < program->stage_count; s++) {
        const uint32_t replicas = plan->stages[s].replicas;
        const uint64_t count = program->stages[s].instruction_count;
        if (stage_replica >= first_replica)
            before = step_events + (stage_replica - first_replica) * count;
        step_events += replicas * count;
        first_replica += replicas;
    }
    before += step * step_events + instruction;
    assert(stage_replica < first_replica && before < timeline->event_count);
    return &timeline->events[before];
}

/* ---- File ---------------------------------------------------------------------------------- */

static const json_field event_fields[] = {
    {"stage_replica", JSON_UINT32, JSON_AT(ty_event, stage_replica), 0, TY_MAX_RANKS - 1},
    {"step", JSON_UINT32, JSON_AT(ty_event, step), 0, UINT32_MAX - 1},
    {"instruction", JSON_UINT32, JSON_AT(ty_event, instruction), 0, UINT32_MAX - 1},
    {"start_s", JSON_NUMBER, JSON_AT(ty_event, start_s), -DBL_MAX, DBL_MAX},
    {"end_s", JSON_NUMBER, JSON_AT(ty_event, end_s), -DBL_MAX, DBL_MAX},
};
static const json_record event_record = JSON_RECORD(ty_event, event_fields);

/* Events are of the timeline's stage replicas and steps, and none ends before it begins. */
static ty_status read_events(const ty_json *object, const json_field *field, void *out,
                             const void *context, ty_error *error)
{
    ty_timeline *timeline = out;
    const ty_json *events;

    (void)context;
    TY_TRY(ty_json_array(object, field->key, 0, SIZE_MAX, &events, error));
    for (size_t i = 0; i < ty_json_size(events); i++) {
        const ty_json *row = ty_json_at(events, i);
        ty_event event;
        TY_TRY(ty_record_read_tuple(row, field->of, &event, error));
        TY_TRY(ty_json_as_uint32(ty_json_at(row, 0), 0, timeline->stage_replica_count - 1,
                                 &event.stage_replica, error));
        TY_TRY(
            ty_json_as_uint32(ty_json_at(row, 1), 0, timeline->step_count - 1, &event.step, error));
        TY_TRY(ty_json_as_number(ty_json_at(row, 4), event.start_s, DBL_MAX, &event.end_s, error));
        TY_TRY(ty_check_memory(ty_timeline_add(timeline, &event) == TY_OK, error));
    }
    return TY_OK;
}

static void write_events(const json_field *field, const void *in, const void *context,
                         ty_json_writer *writer)
{
    const ty_timeline *timeline = in;

    (void)context;
    ty_json_open(writer, field->key, '[');
    for (uint64_t i = 0; i < timeline->event_count; i++)
        ty_record_write_tuple(field->of, &timeline->events[i], writer);
    ty_json_close(writer, ']');
}

static const json_field fields[] = {
    {"plan_digest", JSON_DIGEST, JSON_AT(ty_timeline, plan_digest)},
    {"stage_replica_count", JSON_UINT32, JSON_AT(ty_timeline, stage_replica_count), 1, TY_MAX_RANKS,
     .was = "rank_count"},
    {"step_count", JSON_UINT32, JSON_AT(ty_timeline, step_count), 1, UINT32_MAX},
    {"events", JSON_TUPLES, .of = &event_record, .read = read_events, .write = write_events},
};
const json_record ty_timeline_record = JSON_RECORD(ty_timeline, fields);

ty_status ty_timeline_from_json(const ty_json *object, ty_timeline **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_timeline *timeline = ty_alloc(1, sizeof *timeline);

    TY_TRY(ty_check_memory(timeline != NULL, error));
    TY_CHECK(ty_json_schema(object, "trainyard.timeline/2", error), status, cleanup);
    TY_CHECK(ty_record_read_all(object, &ty_timeline_record, timeline, NULL, error), status,
             cleanup);
    ty_timeline_sort(timeline);
    *out = timeline;
    timeline = NULL;

cleanup:
    ty_timeline_free(timeline);
    return status;
}

void ty_timeline_to_json(const ty_timeline *timeline, ty_json_writer *writer, const char *key)
{
    ty_record_write_document("trainyard.timeline/2", &ty_timeline_record, timeline, NULL, writer,
                             key);
}
