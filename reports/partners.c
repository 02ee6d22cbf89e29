/* Finds partners through tables made once per program. */
#include "partners.h"

#include <math.h>

struct partners {
    const ty_plan *plan;
    const ty_program *program;
    uint32_t *local_count;  /* [stages]: micro-batches of one replica */
    uint32_t **sends;       /* [stages][2 * local_count]: by direction and micro-batch */
    uint32_t **collectives; /* [stages][buckets][TY_MOST_PHASES] */
    uint32_t *members;      /* scratch, [stage replicas] */
};

void ty_partners_free(partners *p)
{
    if (p == NULL)
        return;
    for (uint32_t s = 0; s < p->plan->stage_count; s++) {
        if (p->sends != NULL)
            ty_free(p->sends[s]);
        if (p->collectives != NULL)
            ty_free(p->collectives[s]);
    }
    ty_free(p->sends);
    ty_free(p->collectives);
    ty_free(p->local_count);
    ty_free(p->members);
    ty_free(p);
}

static uint32_t send_slot(const partners *p, uint32_t stage, ty_direction direction,
                          uint32_t micro_batch)
{
    return (ty_direction_way(direction) > 0 ? p->local_count[stage] : 0) + micro_batch;
}

static void fill_stage(partners *p, uint32_t stage)
{
    const ty_stage_program *program = &p->program->stages[stage % p->program->stage_count];

    for (uint32_t i = 0; i < 2 * p->local_count[stage]; i++)
        p->sends[stage][i] = UINT32_MAX;
    for (uint32_t b = 0; b < p->plan->bucket_count * TY_MOST_PHASES; b++)
        p->collectives[stage][b] = UINT32_MAX;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const ty_instruction *in = &program->instructions[i];
        if (in->stage != stage)
            continue;
        if (in->op == TY_OP_SEND)
            p->sends[stage][send_slot(p, stage, in->direction, in->micro_batch)] = i;
        else if (in->op == TY_OP_COLLECTIVE)
            p->collectives[stage][in->bucket * TY_MOST_PHASES + in->phase] = i;
    }
}

ty_status ty_partners_new(const ty_plan *plan, const ty_program *program, partners **out,
                          ty_error *error)
{
    partners *p = ty_alloc(1, sizeof *p);

    TY_TRY(ty_check_memory(p != NULL, error));
    p->plan = plan;
    p->program = program;
    p->local_count = ty_alloc(plan->stage_count, sizeof *p->local_count);
    p->sends = ty_alloc(plan->stage_count, sizeof *p->sends);
    p->collectives = ty_alloc(plan->stage_count, sizeof *p->collectives);
    p->members = ty_alloc(ty_plan_stage_replica_count(plan), sizeof *p->members);
    if (p->local_count == NULL || p->sends == NULL || p->collectives == NULL || p->members == NULL)
        goto failed;
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        p->local_count[s] = plan->micro_batches / plan->stages[s].replicas;
        p->sends[s] = ty_alloc((size_t)p->local_count[s] * 2, sizeof *p->sends[s]);
        p->collectives[s] =
            ty_alloc((size_t)plan->bucket_count * TY_MOST_PHASES, sizeof *p->collectives[s]);
        if (p->sends[s] == NULL || p->collectives[s] == NULL)
            goto failed;
        fill_stage(p, s);
    }
    *out = p;
    return TY_OK;

failed:
    ty_partners_free(p);
    return ty_fail(error, TY_ENOMEM, "out of memory");
}

uint32_t ty_partners_send(const partners *p, uint32_t stage_replica, const ty_instruction *receive,
                          uint32_t *sender)
{
    uint32_t stage = ty_plan_stage_of_replica(p->plan, stage_replica);
    uint32_t replica = stage_replica - ty_plan_first_replica(p->plan, stage);
    uint32_t global = ty_program_global_micro_batch(p->plan, stage, replica, receive->micro_batch);
    uint32_t peer = receive->peer_stage;

    *sender = ty_program_peer_replica(p->plan, stage_replica, receive);
    return p->sends[peer][send_slot(p, peer, receive->direction,
                                    global / p->plan->stages[peer].replicas)];
}

/* The event at which a stage replica reaches a phase of a bucket's all-reduce; NULL: it has
 * none. */
static const ty_event *member_event(const partners *p, const ty_timeline *timeline, uint32_t step,
                                    const ty_instruction *in, uint32_t stage_replica)
{
    const ty_bucket *b = &p->plan->buckets[in->bucket];
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(p->plan, stage_replica);
    const uint32_t holder =
        b->stage % p->program->stage_count == pipeline_rank ? b->stage : b->tied_stage;
    const uint32_t index = p->collectives[holder][in->bucket * TY_MOST_PHASES + in->phase];

    return index == UINT32_MAX
               ? NULL
               : ty_timeline_find(timeline, p->program, p->plan, step, stage_replica, index);
}

const ty_event *ty_partners_last(const partners *p, const ty_timeline *timeline,
                                 const ty_event *event)
{
    const uint32_t stage = ty_plan_stage_of_replica(p->plan, event->stage_replica);
    const ty_instruction *in = &p->program->stages[stage].instructions[event->instruction];
    const ty_event *last = NULL;

    if (in->op == TY_OP_RECEIVE) {
        uint32_t sender;
        uint32_t send = ty_partners_send(p, event->stage_replica, in, &sender);
        if (send != UINT32_MAX)
            last = ty_timeline_find(timeline, p->program, p->plan, event->step, sender, send);
    } else if (in->op == TY_OP_COLLECTIVE) {
        uint32_t count = ty_bucket_members(p->plan, &p->plan->buckets[in->bucket], p->members);
        for (uint32_t m = 0; m < count; m++) {
            const ty_event *e = member_event(p, timeline, event->step, in, p->members[m]);
            if (e != NULL && (last == NULL || e->start_s > last->start_s))
                last = e;
        }
    }
    return last;
}

double ty_partners_ready_s(const partners *p, const ty_timeline *timeline, const ty_event *event)
{
    const ty_event *last = ty_partners_last(p, timeline, event);
    const double ready_s = last != NULL ? fmax(event->start_s, last->start_s) : event->start_s;

    return ready_s < event->end_s ? ready_s : event->end_s;
}
