/* Follows a timeline back along the last dependency of each instruction. */
#include "critical_path.h"

#include <math.h>

typedef struct walk {
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *timeline;
    const partners *partners;
    uint32_t step;
} walk;

void ty_critical_path_clear(critical_path *path)
{
    ty_free(path->links);
    *path = (critical_path){0};
}

bool ty_critical_path_has(const critical_path *path, uint32_t stage_replica, uint32_t instruction)
{
    for (uint32_t i = 0; i < path->count; i++)
        if (path->links[i].stage_replica == stage_replica &&
            path->links[i].instruction == instruction)
            return true;
    return false;
}

static const ty_event *event_of(const walk *w, uint32_t stage_replica, uint32_t instruction)
{
    return ty_timeline_find(w->timeline, w->program, w->plan, w->step, stage_replica, instruction);
}

static const ty_stage_program *program_of(const walk *w, uint32_t stage_replica)
{
    return &w->program->stages[ty_plan_stage_of_replica(w->plan, stage_replica)];
}

/* Finds the compute instruction that ends last. */
static const ty_event *last_event(const walk *w)
{
    const ty_event *last = NULL;

    for (uint32_t r = 0; r < w->timeline->stage_replica_count; r++) {
        const ty_stage_program *stage = program_of(w, r);
        for (uint32_t i = 0; i < stage->instruction_count; i++) {
            const ty_event *e = event_of(w, r, i);
            if (stage->instructions[i].stream == TY_STREAM_COMPUTE &&
                (last == NULL || e->end_s > last->end_s))
                last = e;
        }
    }
    return last;
}

/* The dependency within its own stage replica that ended last: the instruction before it in its
 * stream, or one of its waits. */
static const ty_event *own_cause(const walk *w, const ty_event *e)
{
    const ty_stage_program *stage = program_of(w, e->stage_replica);
    const ty_instruction *in = &stage->instructions[e->instruction];
    const ty_event *cause = NULL;

    for (uint32_t i = e->instruction; i-- > 0;)
        if (stage->instructions[i].stream == in->stream) {
            cause = event_of(w, e->stage_replica, i);
            break;
        }
    for (uint32_t k = 0; k < in->wait_count; k++) {
        const ty_event *other = event_of(w, e->stage_replica, in->waits[k]);
        if (cause == NULL || other->end_s > cause->end_s)
            cause = other;
    }
    return cause;
}

/* A partner that was ready later than the stage replica itself; else its own last dependency. */
static const ty_event *cause_of(const walk *w, const ty_event *e, bool *is_partner)
{
    const ty_event *partner = ty_partners_last(w->partners, w->timeline, e);

    *is_partner = partner != NULL && partner->stage_replica != e->stage_replica &&
                  partner->start_s > e->start_s;
    return *is_partner ? partner : own_cause(w, e);
}

ty_status ty_critical_path_find(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, const partners *p, uint32_t step,
                                double start_s, critical_path *out, ty_error *error)
{
    const walk w = {plan, program, timeline, p, step};
    const uint64_t most = ty_program_event_count(plan, program);
    const ty_event *e = last_event(&w);
    critical_path path = {0};
    uint32_t capacity = 0;
    double to_s = e != NULL ? e->end_s : 0;

    while (e != NULL && to_s > start_s && path.count < most) {
        bool is_partner;
        const ty_event *cause = cause_of(&w, e, &is_partner);
        double from_s = start_s;
        if (cause != NULL)
            from_s = fmin(fmax(start_s, is_partner ? cause->start_s : cause->end_s), to_s);
        if (is_partner && cause->end_s >= e->end_s)
            from_s = to_s; /* the send has all of this time */
        if (path.count == capacity) {
            path_link *grown;
            capacity = capacity > 0 ? 2 * capacity : 256;
            grown = ty_resize(path.links, capacity, sizeof *grown);
            if (grown == NULL) {
                ty_critical_path_clear(&path);
                return ty_fail(error, TY_ENOMEM, "out of memory");
            }
            path.links = grown;
        }
        path.links[path.count++] = (path_link){e->stage_replica, e->instruction, from_s, to_s};
        to_s = from_s;
        e = cause;
    }
    *out = path;
    return TY_OK;
}
