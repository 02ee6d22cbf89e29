/* The public form of the critical path of a timeline's last step. */
#include "critical_path.h"
#include "ty_reports.h"

#include <math.h>

/* Begin of the last step: the end of the previous step's compute. */
static double start_of(const ty_plan *plan, const ty_program *program, const ty_timeline *timeline)
{
    double start_s = 0.0;

    for (uint64_t e = 0; e < timeline->event_count; e++) {
        const ty_event *event = &timeline->events[e];
        const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, event->stage_replica);
        const ty_instruction *in = &program->stages[pipeline_rank].instructions[event->instruction];
        if (event->step + 2 == timeline->step_count && in->stream == TY_STREAM_COMPUTE)
            start_s = fmax(start_s, event->end_s);
    }
    return start_s;
}

static ty_status copy_parts(const critical_path *path, uint32_t step, ty_critical_part **out,
                            ty_error *error)
{
    ty_critical_part *parts = ty_alloc(path->count, sizeof *parts);

    TY_TRY(ty_check_memory(parts != NULL, error));
    for (uint32_t i = 0; i < path->count; i++) {
        const path_link *link = &path->links[path->count - 1 - i];
        parts[i] = (ty_critical_part){link->stage_replica, step, link->instruction, link->from_s,
                                      link->to_s};
    }
    *out = parts;
    return TY_OK;
}

ty_status ty_critical_parts(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, ty_critical_part **out, uint32_t *count,
                            ty_error *error)
{
    ty_status status;
    critical_path path = {0};
    partners *p = NULL;

    TY_CHECK(ty_timeline_check(plan, program, timeline, "timeline", error), status, cleanup);
    if (timeline->step_count == 0) {
        status = ty_fail(error, TY_EINVAL, "critical path: a timeline without steps");
        goto cleanup;
    }
    TY_CHECK(ty_partners_new(plan, program, &p, error), status, cleanup);
    TY_CHECK(ty_critical_path_find(plan, program, timeline, p, timeline->step_count - 1,
                                   start_of(plan, program, timeline), &path, error),
             status, cleanup);
    TY_CHECK(copy_parts(&path, timeline->step_count - 1, out, error), status, cleanup);
    *count = path.count;
cleanup:
    ty_critical_path_clear(&path);
    ty_partners_free(p);
    return status;
}
