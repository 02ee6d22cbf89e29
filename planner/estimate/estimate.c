/*
 * The estimator: all stage replicas run `steps` steps of a program. Each stream of each stage
 * replica is a slot with a cursor; a slot runs one instruction at a time. If cores are shared, the
 * estimator advances from event to event: each end lets the stage replica's own streams, and the
 * partners of a send/recv or collective, try to continue. If no host can be short of cores, an
 * instruction ends its cost after the last one that it waits for, and each stage replica continues
 * as far as the known ends allow.
 *
 * If also all stages have equal replicas, replica q communicates only with the q-th replicas of its
 * neighbors, and instructions of all replicas cost the same. Then the first replica represents all,
 * and the time does not grow with the number of devices.
 */
#include "core_sharing.h"
#include "steady.h"

#include <math.h>
#include <string.h>

typedef enum slot_state {
    SLOT_IDLE,    /* the instruction at the cursor waits for earlier ones */
    SLOT_READY,   /* a receive whose send has not ended */
    SLOT_RUNNING, /* also a collective that waits for its members */
    SLOT_DONE     /* it has run all steps */
} slot_state;

typedef struct slot {
    slot_state state;
    uint32_t round,
        position;  /* round of the loop, and index in the stream's part of the stage program */
    double free_s; /* end of the previous one; without shared cores */
} slot;

/* Data that all replicas of a pipeline rank share. */
typedef struct stage_walk {
    uint32_t first_replica, replicas; /* of the simulated ones */
    uint32_t micro_batches;           /* of one replica */
    uint32_t lead;                    /* rounds ahead */
    const ty_stage_program *program;
    const ty_instruction_cost *costs;
    uint32_t *order;                      /* instructions by stream; those of stream s are ... */
    uint32_t starts[TY_STREAM_COUNT + 1]; /* ... order[starts[s]] to order[starts[s + 1]] */
    uint32_t *sends; /* [virtual stages][2][micro_batches]: to the previous, to the next */
} stage_walk;

typedef struct bucket_walk {
    uint32_t member_count, arrived;
    uint32_t *members; /* stage replicas, ascending */
    double ready_s;    /* latest arrival; without shared cores */
} bucket_walk;

typedef struct walk {
    const ty_plan *plan;
    const ty_costs *costs;
    uint32_t steps, stage_replica_count;
    uint32_t pipeline_size, virtual_stages; /* lists of the program; stages of each */
    bool is_folded;                         /* one replica represents all */
    uint64_t step_events;                   /* instructions of all stage replicas in one step */
    stage_walk *stages;
    bucket_walk *buckets;
    uint32_t *replica_stage; /* [stage replica] */
    uint64_t *first_event;   /* [stage replica]: of its first instruction in a step */
    slot *slots;             /* [stage replica][stream] */
    double *starts, *ends;   /* [step][stage replica][instruction]; an end < 0 is not known yet */
    bool is_shared;          /* some host may need more cores than it has */
    ty_sharing sharing;      /* if so */
    uint32_t *called; /* if not: stage replicas that may continue, in turn; [rank_count], a ring */
    uint32_t first_called, called_count;
    bool *is_called; /* [stage replica] */
    ty_error *error;
} walk;

/* ---- Preparing --------------------------------------------------------------------------- */

/* Direction of a send as an index of stage_walk.sends: 0 to the previous stage, 1 to the next. */
static uint32_t direction_of(uint32_t from_stage, uint32_t to_stage)
{
    return to_stage > from_stage ? 1 : 0;
}

/* Whether an instruction starts only when all members of a bucket have arrived. */
static bool is_exchange(const ty_instruction *instruction)
{
    return instruction->op == TY_OP_COLLECTIVE || instruction->op == TY_OP_GATHER;
}

/* The stored index of the send of a stage's micro-batch. */
static uint32_t *send_of(const walk *w, uint32_t stage, uint32_t to_next, uint32_t micro_batch)
{
    const stage_walk *own = &w->stages[stage % w->pipeline_size];
    return &own->sends[((size_t)(stage / w->pipeline_size) * 2 + to_next) * own->micro_batches +
                       micro_batch];
}

/* ty_program_check proves programs correct; this only keeps incorrect ones from out-of-range
 * indices.
 */
static ty_status check_instruction(const walk *w, uint32_t stage, const ty_instruction *instruction,
                                   const ty_instruction_cost *cost)
{
    bool is_transfer = instruction->op == TY_OP_SEND || instruction->op == TY_OP_RECEIVE;
    bool is_right = (uint32_t)instruction->stream < TY_STREAM_COUNT;

    if (is_transfer)
        is_right = is_right && instruction->micro_batch < w->stages[stage].micro_batches &&
                   instruction->stage < w->plan->stage_count &&
                   instruction->stage % w->pipeline_size == stage &&
                   (instruction->peer_stage + 1 == instruction->stage ||
                    instruction->peer_stage == instruction->stage + 1) &&
                   instruction->peer_stage < w->plan->stage_count;
    if (is_exchange(instruction))
        is_right = is_right && instruction->bucket < w->plan->bucket_count &&
                   (w->plan->buckets[instruction->bucket].stage == instruction->stage ||
                    w->plan->buckets[instruction->bucket].tied_stage == instruction->stage);
    for (uint32_t i = 0; i < instruction->wait_count; i++)
        is_right = is_right && instruction->waits[i] < w->stages[stage].program->instruction_count;
    if (!is_right)
        return ty_fail(w->error, TY_EINVAL,
                       "program:/stages/%u: a %s has no such stream, partner or bucket", stage,
                       ty_op_name(instruction->op));
    if (!(isfinite(cost->seconds) && cost->seconds >= 0 && isfinite(cost->core_share) &&
          cost->core_share >= 0))
        return ty_fail(w->error, TY_EINVAL,
                       "costs of stage %u: a %s takes %g s and %g cores, expected numbers >= 0",
                       stage, ty_op_name(instruction->op), cost->seconds, cost->core_share);
    return TY_OK;
}

/* Sorts a stage's instructions by stream and finds its sends. */
static ty_status prepare_stage(walk *w, uint32_t index, const ty_program *program)
{
    stage_walk *stage = &w->stages[index];
    uint32_t count = program->stages[index].instruction_count, next = 0;

    stage->first_replica = w->is_folded ? index : ty_plan_first_replica(w->plan, index);
    stage->replicas = w->is_folded ? 1 : w->plan->stages[index].replicas;
    stage->micro_batches = w->plan->micro_batches / w->plan->stages[index].replicas;
    stage->lead = ty_program_lead(program, index);
    stage->program = &program->stages[index];
    stage->costs = w->costs->instructions[index];
    stage->order = ty_alloc(count, sizeof *stage->order);
    stage->sends =
        ty_alloc((size_t)stage->micro_batches * 2 * w->virtual_stages, sizeof *stage->sends);
    TY_TRY(ty_check_memory(stage->order != NULL && stage->sends != NULL, w->error));
    for (size_t k = 0; k < (size_t)stage->micro_batches * 2 * w->virtual_stages; k++)
        stage->sends[k] = TY_NO_INSTRUCTION;
    for (uint32_t s = 0; s < TY_STREAM_COUNT; s++) {
        stage->starts[s] = next;
        for (uint32_t i = 0; i < count; i++)
            if ((uint32_t)stage->program->instructions[i].stream == s)
                stage->order[next++] = i;
    }
    stage->starts[TY_STREAM_COUNT] = next;
    for (uint32_t i = 0; i < count; i++) {
        const ty_instruction *instruction = &stage->program->instructions[i];
        TY_TRY(check_instruction(w, index, instruction, &stage->costs[i]));
        if (instruction->op == TY_OP_SEND)
            *send_of(w, instruction->stage,
                     direction_of(instruction->stage, instruction->peer_stage),
                     instruction->micro_batch) = i;
    }
    return TY_OK;
}

static uint32_t instruction_at(const walk *w, uint32_t slot_index)
{
    const stage_walk *stage = &w->stages[w->replica_stage[slot_index / TY_STREAM_COUNT]];
    return stage
        ->order[stage->starts[slot_index % TY_STREAM_COUNT] + w->slots[slot_index].position];
}

static uint64_t event_of(const walk *w, uint32_t step, uint32_t stage_replica, uint32_t instruction)
{
    return step * w->step_events + w->first_event[stage_replica] + instruction;
}

/* The step of a slot's instruction; outside the run while the loop fills or drains.
 */
static uint32_t step_of(const walk *w, uint32_t slot_index)
{
    const stage_walk *stage = &w->stages[w->replica_stage[slot_index / TY_STREAM_COUNT]];
    const ty_instruction *in = &stage->program->instructions[instruction_at(w, slot_index)];
    return w->slots[slot_index].round + in->lead - stage->lead;
}

/* Advances to the next instruction of a stream. */
static void move(walk *w, uint32_t slot_index)
{
    slot *s = &w->slots[slot_index];
    const uint32_t stream = slot_index % TY_STREAM_COUNT;
    const stage_walk *stage = &w->stages[w->replica_stage[slot_index / TY_STREAM_COUNT]];

    if (++s->position < stage->starts[stream + 1] - stage->starts[stream])
        return;
    s->position = 0;
    if (++s->round == w->steps + stage->lead)
        s->state = SLOT_DONE;
}

/* Skips instructions outside the steps of the run. */
static void skip(walk *w, uint32_t slot_index)
{
    while (w->slots[slot_index].state != SLOT_DONE && step_of(w, slot_index) >= w->steps)
        move(w, slot_index);
}

static ty_status prepare_replicas(walk *w)
{
    w->replica_stage = ty_alloc(w->stage_replica_count, sizeof *w->replica_stage);
    w->first_event = ty_alloc(w->stage_replica_count, sizeof *w->first_event);
    w->slots = ty_alloc((size_t)w->stage_replica_count * TY_STREAM_COUNT, sizeof *w->slots);
    TY_TRY(ty_check_memory(w->replica_stage != NULL && w->first_event != NULL && w->slots != NULL,
                           w->error));
    for (uint32_t s = 0; s < w->pipeline_size; s++) {
        for (uint32_t q = 0; q < w->stages[s].replicas; q++) {
            uint32_t stage_replica = w->stages[s].first_replica + q;
            w->replica_stage[stage_replica] = s;
            w->first_event[stage_replica] = w->step_events;
            w->step_events += w->stages[s].program->instruction_count;
            for (uint32_t stream = 0; stream < TY_STREAM_COUNT; stream++)
                if (w->stages[s].starts[stream] == w->stages[s].starts[stream + 1])
                    w->slots[stage_replica * TY_STREAM_COUNT + stream].state = SLOT_DONE;
                else
                    skip(w, stage_replica * TY_STREAM_COUNT + stream);
        }
    }
    if (w->step_events > SIZE_MAX / w->steps)
        return ty_fail(w->error, TY_ENOMEM, "out of memory");
    w->starts = ty_alloc((size_t)w->step_events * w->steps, sizeof *w->starts);
    w->ends = ty_alloc((size_t)w->step_events * w->steps, sizeof *w->ends);
    TY_TRY(ty_check_memory(w->starts != NULL && w->ends != NULL, w->error));
    for (uint64_t e = 0; e < w->step_events * w->steps; e++)
        w->ends[e] = -1;
    return TY_OK;
}

static ty_status prepare_buckets(walk *w)
{
    TY_TRY(ty_check_memory(
        (w->buckets = ty_alloc(w->plan->bucket_count, sizeof *w->buckets)) != NULL, w->error));
    for (uint32_t b = 0; b < w->plan->bucket_count; b++) {
        bucket_walk *bucket = &w->buckets[b];
        const ty_bucket *planned = &w->plan->buckets[b];
        const bool is_tied = planned->tied_stage != TY_NO_STAGE;
        bucket->member_count =
            w->is_folded ? (is_tied ? 2u : 1u) : ty_bucket_member_count(w->plan, planned);
        TY_TRY(ty_check_memory(
            (bucket->members = ty_alloc(bucket->member_count, sizeof *bucket->members)) != NULL,
            w->error));
        if (!w->is_folded)
            ty_bucket_members(w->plan, planned, bucket->members);
        else
            bucket->members[0] = w->stages[planned->stage % w->pipeline_size].first_replica;
        if (w->is_folded && is_tied)
            bucket->members[1] = w->stages[planned->tied_stage % w->pipeline_size].first_replica;
    }
    return TY_OK;
}

/* The host of a simulated stage replica. */
static uint32_t host_of(const walk *w, uint32_t stage_replica)
{
    const uint32_t pipeline_rank = w->replica_stage[stage_replica];
    return w->costs->replica_host[w->is_folded ? ty_plan_first_replica(w->plan, pipeline_rank)
                                               : stage_replica];
}

/* Maximum core demand of each host: in every stream of every stage replica, the instruction that
 * needs most. */
static ty_status prepare_sharing(walk *w)
{
    const ty_costs *costs = w->costs;
    double *demand = ty_alloc(costs->host_count, sizeof *demand);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(demand != NULL, w->error));
    for (uint32_t stage_replica = 0; stage_replica < w->stage_replica_count; stage_replica++) {
        const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];
        double most[TY_STREAM_COUNT] = {0};
        for (uint32_t i = 0; i < stage->program->instruction_count; i++) {
            double *m = &most[stage->program->instructions[i].stream];
            *m = fmax(*m, stage->costs[i].core_share);
        }
        for (uint32_t s = 0; s < TY_STREAM_COUNT; s++)
            demand[host_of(w, stage_replica)] += most[s];
    }
    for (uint32_t h = 0; h < costs->host_count; h++)
        w->is_shared = w->is_shared || demand[h] > costs->host_cores[h];
    /* Each slot uses its own stage replica's host, a send also the receiver's. */
    if (w->is_shared)
        status = ty_sharing_init(&w->sharing, w->stage_replica_count * TY_STREAM_COUNT,
                                 w->stage_replica_count * (TY_STREAM_COUNT + 1), costs->host_count,
                                 costs->host_cores, demand, w->error);
    ty_free(demand);
    return status;
}

static ty_status check_input(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             uint32_t steps, ty_error *error)
{
    const uint32_t stage_replicas = ty_plan_stage_replica_count(plan),
                   pipeline_size = ty_plan_pipeline_size(plan);

    if (steps == 0)
        return ty_fail(error, TY_EINVAL, "steps: found 0, expected at least 1");
    if (program->stage_count != pipeline_size || costs->stage_count != pipeline_size ||
        costs->stage_replica_count != stage_replicas)
        return ty_fail(
            error, TY_EINVAL,
            "costs for %u stages and %u stage replicas and a program of %u stages, expected the "
            "plan's %u stages and %u stage replicas",
            costs->stage_count, costs->stage_replica_count, program->stage_count, pipeline_size,
            stage_replicas);
    for (uint32_t s = 0; s < pipeline_size; s++) {
        if (plan->micro_batches % plan->stages[s].replicas != 0)
            return ty_fail(error, TY_EINVAL,
                           "plan:/stages/%u/replicas: found %u, expected a divisor of the %u "
                           "micro-batches",
                           s, plan->stages[s].replicas, plan->micro_batches);
        if (costs->instruction_counts[s] != program->stages[s].instruction_count)
            return ty_fail(error, TY_EINVAL,
                           "costs of stage %u: found %u instructions, expected the program's %u", s,
                           costs->instruction_counts[s], program->stages[s].instruction_count);
    }
    for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++)
        if (costs->replica_host[stage_replica] >= costs->host_count ||
            !(costs->host_cores[costs->replica_host[stage_replica]] > 0))
            return ty_fail(
                error, TY_EINVAL,
                "costs: stage replica %u is on host %u, expected one of %u hosts with cores",
                stage_replica, costs->replica_host[stage_replica], costs->host_count);
    return TY_OK;
}

/* ---- Walking ----------------------------------------------------------------------------- */

/* The stage replica at the other end of a send/recv. */
static uint32_t peer_of(const walk *w, uint32_t stage_replica, const ty_instruction *instruction,
                        uint32_t *micro_batch)
{
    const stage_walk *own = &w->stages[w->replica_stage[stage_replica]];
    const stage_walk *peer = &w->stages[instruction->peer_stage % w->pipeline_size];
    uint32_t global =
        instruction->micro_batch * own->replicas + (stage_replica - own->first_replica);

    *micro_batch = global / peer->replicas;
    return peer->first_replica + global % peer->replicas;
}

/* End of the send that matches a receive; < 0: not yet. */
static double arrival_s(const walk *w, uint32_t stage_replica, uint32_t step,
                        const ty_instruction *receive)
{
    uint32_t micro_batch, sender = peer_of(w, stage_replica, receive, &micro_batch);
    uint32_t to_next = direction_of(receive->peer_stage, receive->stage);
    uint32_t send = *send_of(w, receive->peer_stage, to_next, micro_batch);
    return send != TY_NO_INSTRUCTION ? w->ends[event_of(w, step, sender, send)] : -1;
}

/* ---- ... with shared cores ----------------------------------------------------------------- */

/* Ends the slot's instruction now and advances. */
static void advance(walk *w, uint32_t slot_index)
{
    const uint32_t stage_replica = slot_index / TY_STREAM_COUNT;

    w->ends[event_of(w, step_of(w, slot_index), stage_replica, instruction_at(w, slot_index))] =
        w->sharing.now_s;
    w->slots[slot_index].state = SLOT_IDLE;
    move(w, slot_index);
    skip(w, slot_index);
}

/* All members have arrived: the first one's slot represents the collective. */
static void start_collective(walk *w, const bucket_walk *bucket)
{
    uint32_t first = bucket->members[0] * TY_STREAM_COUNT + TY_STREAM_COLLECTIVE;
    const stage_walk *stage = &w->stages[w->replica_stage[bucket->members[0]]];

    ty_sharing_start(&w->sharing, first, stage->costs[instruction_at(w, first)].seconds);
    for (uint32_t i = 0; i < bucket->member_count; i++) {
        uint32_t stage_replica = bucket->members[i];
        uint32_t member = stage_replica * TY_STREAM_COUNT + TY_STREAM_COLLECTIVE;
        double share =
            w->stages[w->replica_stage[stage_replica]].costs[instruction_at(w, member)].core_share;
        if (share > 0)
            ty_sharing_use(&w->sharing, first, host_of(w, stage_replica), share);
    }
}

static void start_instruction(walk *w, uint32_t slot_index, const ty_instruction *instruction)
{
    uint32_t stage_replica = slot_index / TY_STREAM_COUNT, host = host_of(w, stage_replica),
             ignored;
    const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];
    const ty_instruction_cost *cost = &stage->costs[instruction - stage->program->instructions];

    ty_sharing_start(&w->sharing, slot_index, cost->seconds);
    if (cost->core_share <= 0)
        return;
    ty_sharing_use(&w->sharing, slot_index, host, cost->core_share);
    if (instruction->op == TY_OP_SEND) {
        uint32_t other = host_of(w, peer_of(w, stage_replica, instruction, &ignored));
        if (other != host)
            ty_sharing_use(&w->sharing, slot_index, other, 0);
    }
}

/* Time at which the previous step freed the slot that a load fills; < 0: not yet. If steps overlap,
 * another step's. */
static double left_s(const walk *w, uint32_t stage_replica, uint32_t step, uint32_t load)
{
    const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];

    if (!stage->costs[load].is_between_steps || stage->lead > 0 || step == 0)
        return 0;
    return w
        ->ends[event_of(w, step - 1, stage_replica, ty_program_last_pass(stage->program, load))];
}

/* Lets a slot continue if it can; true if that ended an instruction. */
static bool try_slot(walk *w, uint32_t slot_index)
{
    slot *s = &w->slots[slot_index];
    uint32_t stage_replica = slot_index / TY_STREAM_COUNT, index;
    const ty_instruction *instruction;
    uint64_t first;

    if (s->state == SLOT_RUNNING || s->state == SLOT_DONE)
        return false;
    index = instruction_at(w, slot_index);
    instruction = &w->stages[w->replica_stage[stage_replica]].program->instructions[index];
    if (s->state == SLOT_IDLE) {
        first = event_of(w, step_of(w, slot_index), stage_replica, 0);
        for (uint32_t i = 0; i < instruction->wait_count; i++)
            if (w->ends[first + instruction->waits[i]] < 0)
                return false;
        if (left_s(w, stage_replica, step_of(w, slot_index), index) < 0)
            return false;
        w->starts[first + index] = w->sharing.now_s;
    }
    if (instruction->op == TY_OP_RECEIVE) {
        s->state = SLOT_READY;
        if (arrival_s(w, stage_replica, step_of(w, slot_index), instruction) < 0)
            return false;
        advance(w, slot_index);
        return true;
    }
    s->state = SLOT_RUNNING;
    if (is_exchange(instruction)) {
        bucket_walk *bucket = &w->buckets[instruction->bucket];
        if (++bucket->arrived == bucket->member_count)
            start_collective(w, bucket);
    } else {
        start_instruction(w, slot_index, instruction);
    }
    return false;
}

static void try_replica(walk *w, uint32_t stage_replica)
{
    bool has_ended = true;

    while (has_ended) {
        has_ended = false;
        for (uint32_t s = 0; s < TY_STREAM_COUNT; s++)
            while (try_slot(w, stage_replica * TY_STREAM_COUNT + s))
                has_ended = true;
    }
}

/* Ends the instruction of a slot, and of its partners. */
static void end_slot(walk *w, uint32_t slot_index)
{
    uint32_t stage_replica = slot_index / TY_STREAM_COUNT, ignored;
    const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];
    const ty_instruction *instruction =
        &stage->program->instructions[instruction_at(w, slot_index)];

    if (is_exchange(instruction)) {
        bucket_walk *bucket = &w->buckets[instruction->bucket];
        bucket->arrived = 0;
        for (uint32_t i = 0; i < bucket->member_count; i++)
            advance(w, bucket->members[i] * TY_STREAM_COUNT + TY_STREAM_COLLECTIVE);
        for (uint32_t i = 0; i < bucket->member_count; i++)
            try_replica(w, bucket->members[i]);
        return;
    }
    advance(w, slot_index);
    try_replica(w, stage_replica);
    if (instruction->op == TY_OP_SEND)
        try_replica(w, peer_of(w, stage_replica, instruction, &ignored));
}

/* ---- ... with enough cores for all --------------------------------------------------------- */

/* Records an end that a stage replica may wait for. */
static void call_replica(walk *w, uint32_t stage_replica)
{
    if (w->is_called[stage_replica])
        return;
    w->is_called[stage_replica] = true;
    w->called[(w->first_called + w->called_count++) % w->stage_replica_count] = stage_replica;
}

static void end_at(walk *w, uint32_t slot_index, uint64_t event, double end_s)
{
    w->ends[event] = end_s;
    w->slots[slot_index].free_s = end_s;
    w->slots[slot_index].state = SLOT_IDLE;
    move(w, slot_index);
    skip(w, slot_index);
}

/* Runs a collective when its last member has arrived, at the first one's cost. */
static void end_collective(walk *w, bucket_walk *bucket)
{
    const uint32_t first = bucket->members[0] * TY_STREAM_COUNT + TY_STREAM_COLLECTIVE;
    const double end_s =
        bucket->ready_s +
        w->stages[w->replica_stage[bucket->members[0]]].costs[instruction_at(w, first)].seconds;

    bucket->arrived = 0;
    bucket->ready_s = 0;
    for (uint32_t i = 0; i < bucket->member_count; i++) {
        const uint32_t stage_replica = bucket->members[i];
        const uint32_t member = stage_replica * TY_STREAM_COUNT + TY_STREAM_COLLECTIVE;
        end_at(w, member, event_of(w, step_of(w, member), stage_replica, instruction_at(w, member)),
               end_s);
        call_replica(w, stage_replica);
    }
}

/* Runs a slot's instruction if all that it waits for has ended. @return whether it did */
static bool pass(walk *w, uint32_t stage_replica, uint32_t slot_index)
{
    slot *s = &w->slots[slot_index];
    const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];
    const ty_instruction *instruction;
    uint32_t index, step, ignored;
    double ready_s = s->free_s, arrived_s;
    uint64_t first;

    if (s->state != SLOT_IDLE)
        return false;
    index = instruction_at(w, slot_index);
    instruction = &stage->program->instructions[index];
    step = w->slots[slot_index].round + instruction->lead - stage->lead;
    first = event_of(w, step, stage_replica, 0);
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const double end_s = w->ends[first + instruction->waits[i]];
        if (end_s < 0)
            return false;
        ready_s = end_s > ready_s ? end_s : ready_s;
    }
    if (left_s(w, stage_replica, step, index) < 0)
        return false;
    ready_s = fmax(ready_s, left_s(w, stage_replica, step, index));
    w->starts[first + index] = ready_s;
    if (is_exchange(instruction)) {
        bucket_walk *bucket = &w->buckets[instruction->bucket];
        s->state = SLOT_RUNNING;
        bucket->ready_s = ready_s > bucket->ready_s ? ready_s : bucket->ready_s;
        if (++bucket->arrived < bucket->member_count)
            return false;
        end_collective(w, bucket);
        return true;
    }
    if (instruction->op == TY_OP_RECEIVE) {
        arrived_s = arrival_s(w, stage_replica, step, instruction);
        if (arrived_s < 0)
            return false;
        end_at(w, slot_index, first + index, arrived_s > ready_s ? arrived_s : ready_s);
        return true;
    }
    end_at(w, slot_index, first + index, ready_s + stage->costs[index].seconds);
    if (instruction->op == TY_OP_SEND)
        call_replica(w, peer_of(w, stage_replica, instruction, &ignored));
    return true;
}

static ty_status run_unshared(walk *w)
{
    w->called = ty_alloc(w->stage_replica_count, sizeof *w->called);
    w->is_called = ty_alloc(w->stage_replica_count, sizeof *w->is_called);
    TY_TRY(ty_check_memory(w->called != NULL && w->is_called != NULL, w->error));
    for (uint32_t stage_replica = 0; stage_replica < w->stage_replica_count; stage_replica++)
        call_replica(w, stage_replica);
    while (w->called_count > 0) {
        const uint32_t stage_replica = w->called[w->first_called];
        bool has_passed = true;
        w->first_called = (w->first_called + 1) % w->stage_replica_count;
        w->called_count--;
        w->is_called[stage_replica] = false;
        while (has_passed) {
            has_passed = false;
            for (uint32_t s = 0; s < TY_STREAM_COUNT; s++)
                while (pass(w, stage_replica, stage_replica * TY_STREAM_COUNT + s))
                    has_passed = true;
        }
    }
    return TY_OK;
}

/* ---- ... of both kinds --------------------------------------------------------------------- */

static ty_status run(walk *w)
{
    ty_status status;
    uint32_t ended;

    if (w->is_shared) {
        for (uint32_t stage_replica = 0; stage_replica < w->stage_replica_count; stage_replica++)
            try_replica(w, stage_replica);
        while (ty_sharing_next(&w->sharing, &ended))
            end_slot(w, ended);
    } else if ((status = run_unshared(w)) != TY_OK) {
        return status;
    }
    for (uint32_t i = 0; i < w->stage_replica_count * TY_STREAM_COUNT; i++) {
        uint32_t stage_replica = i / TY_STREAM_COUNT;
        const stage_walk *stage = &w->stages[w->replica_stage[stage_replica]];
        if (w->slots[i].state != SLOT_DONE)
            return ty_fail(
                w->error, TY_EINVAL,
                "the program never ends: stage replica %u is stuck at instruction %u (%s) of "
                "step %u",
                stage_replica, instruction_at(w, i),
                ty_op_name(stage->program->instructions[instruction_at(w, i)].op), step_of(w, i));
    }
    return TY_OK;
}

/* ---- The answer -------------------------------------------------------------------------- */

/* All events of one stage replica and step, represented by `walked`. */
static ty_status write_replica(const walk *w, ty_event event, uint32_t walked,
                               ty_timeline *timeline)
{
    const uint32_t count = w->stages[w->replica_stage[walked]].program->instruction_count;

    for (event.instruction = 0; event.instruction < count; event.instruction++) {
        uint64_t e = event_of(w, event.step, walked, event.instruction);
        event.start_s = w->starts[e];
        event.end_s = w->ends[e];
        if (ty_timeline_add(timeline, &event) != TY_OK)
            return ty_fail(w->error, TY_ENOMEM, "out of memory");
    }
    return TY_OK;
}

/* Into a timeline that is still empty. */
static ty_status write_timeline(const walk *w, ty_timeline *timeline)
{
    ty_event event = {0};

    for (event.step = 0; event.step < w->steps; event.step++) {
        event.stage_replica = 0;
        for (uint32_t p = 0; p < w->pipeline_size; p++)
            for (uint32_t q = 0; q < w->plan->stages[p].replicas; q++, event.stage_replica++)
                TY_TRY(write_replica(w, event, w->stages[p].first_replica + (w->is_folded ? 0 : q),
                                     timeline));
    }
    return TY_OK;
}

static void walk_clear(walk *w)
{
    for (uint32_t s = 0; w->stages != NULL && s < w->pipeline_size; s++) {
        ty_free(w->stages[s].order);
        ty_free(w->stages[s].sends);
    }
    for (uint32_t b = 0; w->buckets != NULL && b < w->plan->bucket_count; b++)
        ty_free(w->buckets[b].members);
    ty_free(w->stages);
    ty_free(w->buckets);
    ty_free(w->replica_stage);
    ty_free(w->first_event);
    ty_free(w->slots);
    ty_free(w->starts);
    ty_free(w->ends);
    ty_free(w->called);
    ty_free(w->is_called);
    ty_sharing_clear(&w->sharing);
}

static bool can_fold(const ty_plan *plan, const ty_costs *costs)
{
    for (uint32_t s = 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            return false;
    for (uint32_t h = 0; h < costs->host_count; h++)
        if (isfinite(costs->host_cores[h]))
            return false;
    return true;
}

/* Runs all steps. @param w [out] clear it also after a failure */
static ty_status walk_all(walk *w, const ty_program *program)
{
    TY_TRY(check_input(w->plan, program, w->costs, w->steps, w->error));
    w->pipeline_size = program->stage_count;
    w->virtual_stages = ty_plan_virtual_stages(w->plan);
    w->is_folded = can_fold(w->plan, w->costs);
    w->stage_replica_count = w->is_folded ? w->pipeline_size : w->costs->stage_replica_count;
    TY_TRY(ty_check_memory((w->stages = ty_alloc(w->pipeline_size, sizeof *w->stages)) != NULL,
                           w->error));
    for (uint32_t s = 0; s < w->pipeline_size; s++)
        TY_TRY(prepare_stage(w, s, program));
    TY_TRY(prepare_replicas(w));
    TY_TRY(prepare_buckets(w));
    TY_TRY(prepare_sharing(w));
    return run(w);
}

ty_status ty_estimate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      uint32_t steps, ty_timeline **out, ty_error *error)
{
    walk w = {.plan = plan, .costs = costs, .steps = steps, .error = error};
    ty_timeline *timeline = NULL;
    ty_status status;

    TY_CHECK(walk_all(&w, program), status, cleanup);
    TY_CHECK(ty_timeline_new(plan, steps, &timeline, error), status, cleanup);
    TY_CHECK(write_timeline(&w, timeline), status, cleanup);
    *out = timeline;
    timeline = NULL;

cleanup:
    ty_timeline_free(timeline);
    walk_clear(&w);
    return status;
}

void ty_walked_clear(ty_walked *walked)
{
    if (walked->has_stages)
        ty_free(walked->plan.stages);
    ty_timeline_free(walked->timeline);
    *walked = (ty_walked){0};
}

ty_status ty_estimate_walk(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                           uint32_t steps, ty_walked *out, ty_error *error)
{
    walk w = {.plan = plan, .costs = costs, .steps = steps, .error = error};
    ty_plan *one = &out->plan;
    ty_status status = walk_all(&w, program);

    *out = (ty_walked){.plan = *plan};
    if (status != TY_OK)
        goto done;
    if (w.is_folded) { /* each replica spends its time like the first */
        one->micro_batches = plan->micro_batches / plan->stages[0].replicas;
        one->stages = ty_alloc(plan->stage_count, sizeof *one->stages);
        out->has_stages = true;
        TY_CHECK(ty_check_memory(one->stages != NULL, error), status, done);
        memcpy(one->stages, plan->stages, plan->stage_count * sizeof *one->stages);
        for (uint32_t s = 0; s < plan->stage_count; s++)
            one->stages[s].replicas = 1;
    }
    w.plan = one;
    TY_CHECK(ty_timeline_new_unsigned(one, steps, &out->timeline, error), status, done);
    TY_CHECK(write_timeline(&w, out->timeline), status, done);
    status = ty_timeline_summarize(one, program, out->timeline, &out->summary, error);
done:
    walk_clear(&w);
    return status;
}

ty_status ty_estimate_summary(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              uint32_t steps, ty_step_summary *out, ty_error *error)
{
    ty_walked walked = {0};
    const ty_status status = ty_estimate_walk(plan, program, costs, steps, &walked, error);

    if (status == TY_OK) {
        *out = walked.summary;
        ty_step_summary_rate(plan, out); /* of all its devices, not of one replica's */
    }
    ty_walked_clear(&walked);
    return status;
}
