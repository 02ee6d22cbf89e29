/* The actors: each runs the instructions of its stream in order, with their waits, and records the
 * times. Only in the child. */
#include "walk.h"

#include "child.h"
#include "disturbance.h"
#include "platform.h"
#include "ty_base.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Instructions -------------------------------------------------------------------------- */

static ty_walk_device *device_of(const ty_walker *walker)
{
    return &walker->walk->devices[walker->index];
}

/* The sender simulates the message to the same rank of the partner for both ends: it never waits
 * for the receiver. */
static void play_send(ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_device *device = device_of(walker);
    const ty_instruction *send = &device->program->instructions[index];
    const ty_instruction_cost *cost = &device->costs[index];
    ty_message message = ty_message_part(cost, 1.0);

    if (walk->fold != NULL) {
        ty_walk_aim(walker, ty_fold_transfer(walk->fold, device->rank, send), &message);
    } else {
        const ty_walk_device *to = &walk->devices[ty_walk_peer(walk, device, send)];
        message.from = device->host;
        message.to = to->host;
        message.from_share = ty_walk_share(device, cost);
        message.to_share = ty_walk_share(to, cost);
    }
    ty_engine_message(walk->engine, &message);
}

static uint32_t place_of(const ty_group *group, uint32_t index)
{
    uint32_t low = 0, high = group->member_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (group->members[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Functions of a shape, one per resolution. An all-to-all at once consists of messages only. */
static const ty_collective_play collective_plays[][TY_SHAPE_COUNT] = {
    [TY_FLOW] = {[TY_SHAPE_RING] = ty_flow_play,
                 [TY_SHAPE_TREE] = ty_flow_tree,
                 [TY_SHAPE_RAILS] = ty_flow_play,
                 [TY_SHAPE_HIERARCHY] = ty_flow_play,
                 [TY_SHAPE_SERVERS] = ty_flow_play,
                 [TY_SHAPE_DEDICATED] = ty_flow_play,
                 [TY_SHAPE_ALL_TO_ALL] = ty_flow_play},
    [TY_CHUNK] = {[TY_SHAPE_RING] = ty_chunk_ring,
                  [TY_SHAPE_TREE] = ty_chunk_tree,
                  [TY_SHAPE_RAILS] = ty_chunk_ring,
                  [TY_SHAPE_HIERARCHY] = ty_chunk_hierarchy,
                  [TY_SHAPE_SERVERS] = ty_flow_play,
                  [TY_SHAPE_DEDICATED] = ty_flow_play,
                  [TY_SHAPE_ALL_TO_ALL] = ty_chunk_all_to_all},
};

/* The collective of a group of several, once all have arrived. */
static void play_pattern(ty_walker *walker, ty_group *group, const ty_instruction_cost *cost)
{
    const ty_walk *walk = walker->walk;
    const uint32_t place = place_of(group, walker->index);

    if (walk->fold == NULL)
        collective_plays[walk->resolution][group->pattern->shape](walker, group, place, cost);
    else if (place == 0)
        ty_flow_folded(walker, group, cost);
    ty_engine_barrier_wait(walker->walk->engine, &group->barrier);
}

static void play_collective(ty_walker *walker, uint32_t index)
{
    const ty_walk_device *device = device_of(walker);
    const ty_instruction_cost *cost = &device->costs[index];
    ty_group *group = ty_walk_group(walker->walk, device, &device->program->instructions[index]);

    ty_engine_barrier_wait(walker->walk->engine, &group->barrier);
    if (group->pattern != NULL)
        play_pattern(walker, group, cost);
    else /* the rest may be below a route's latency: no such flow exists */
        ty_engine_work(walker->walk->engine, device->host, ty_walk_share(device, cost),
                       cost->seconds);
}

/* ---- Work with TP, CP and EP collectives --------------------------------------------------- */

/* @param is_apart of the instruction (ty_walk) */
static bool are_quiet(const ty_walk_device *device, const ty_parallel_instruction *parallel,
                      bool is_apart)
{
    for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
        if (parallel->costs[k].seconds > 0.0 && !device->parallel[k]->pattern->is_quiet &&
            !(is_apart && device->parallel[k]->pattern->is_private))
            return false;
    return true;
}

/* One after another, each once all have arrived. */
static void play_exchanges(ty_walker *walker, const ty_parallel_instruction *parallel,
                           uint32_t turns)
{
    const ty_walk_device *device = device_of(walker);

    for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
        ty_group *group = device->parallel[k];
        ty_instruction_cost part = parallel->costs[k];
        if (!(part.seconds > 0.0))
            continue;
        part.seconds /= turns;
        part.latency_s /= turns;
        part.edge_bytes /= turns;
        ty_engine_barrier_wait(walker->walk->engine, &group->barrier);
        if (group->pattern->is_quiet)
            ty_engine_work(walker->walk->engine, device->host, ty_walk_share(device, &part),
                           part.seconds);
        else
            play_pattern(walker, group, &part);
    }
}

/* The last of a group to arrive spends the time; the others wait for it. */
static void spend_together(ty_walker *walker, ty_group *group, double seconds)
{
    if (group->waiting_count + 1 < group->member_count) {
        group->waiting[group->waiting_count++] = walker;
        ty_engine_gate_wait(walker->walk->engine, walker->gate);
        return;
    }
    ty_engine_work(walker->walk->engine, device_of(walker)->host, 0.0, seconds);
    /* A released actor may return before all are released: it uses the entries of released ones. */
    const uint32_t count = group->waiting_count;
    group->waiting_count = 0;
    for (uint32_t i = 0; i < count; i++)
        ty_engine_gate_open(walker->walk->engine, group->waiting[i]->gate);
}

/* Equal ranks without contention for links and cores run in step throughout. */
static void play_in_step(ty_walker *walker, const ty_parallel_instruction *parallel, double work_s)
{
    const ty_walk_device *device = device_of(walker);
    ty_group *last = NULL;
    double seconds = work_s;

    for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
        if (!(parallel->costs[k].seconds > 0.0))
            continue;
        if (last != NULL)
            ty_engine_barrier_wait(walker->walk->engine, &last->barrier);
        last = device->parallel[k];
        seconds += parallel->costs[k].seconds;
    }
    spend_together(walker, last, seconds);
}

/* Without contention, the alternation of work and collectives makes no difference. */
static void play_parallel(ty_walker *walker, uint32_t index,
                          const ty_parallel_instruction *parallel, double work_s, double share)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_device *device = device_of(walker);
    const uint32_t turns = are_quiet(device, parallel, false) ? 1 : ty_walk_turns(parallel);

    if (walk->are_ranks_alike && share <= 0.0 &&
        are_quiet(device, parallel, walk->is_apart[device->stage][index])) {
        play_in_step(walker, parallel, work_s);
        return;
    }
    for (uint32_t t = 0; t < turns; t++) {
        ty_engine_work(walker->walk->engine, device->host, share, work_s / turns);
        play_exchanges(walker, parallel, turns);
    }
}

static void play_work(ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_device *device = device_of(walker);
    const ty_instruction_cost *cost = &device->costs[index];
    const ty_parallel_instruction *parallel =
        ty_parallel_instruction_of(walk->parallel, device->stage, index);
    const double share = ty_walk_share(device, cost);
    double work_s = parallel == NULL ? cost->seconds : parallel->compute_s;

    if (device->program->instructions[index].stream == TY_STREAM_COMPUTE)
        work_s *= device->slowdown *
                  ty_jitter(walk->jitter, walk->seed, device->rank, walker->step, index);
    if (parallel == NULL)
        ty_engine_work(walker->walk->engine, device->host, share, work_s);
    else
        play_parallel(walker, index, parallel, work_s, share);
}

/* Samples from the shared store, in parallel with the fixed time of a load. With folding, all
 * readers are interchangeable and in step: it takes the predicted time of all together. */
static void play_load(ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_device *device = device_of(walker);
    const ty_instruction_cost *cost = &device->costs[index];
    const double limit = cost->rate_limit_bytes_per_s;
    const uint32_t store = ty_network_store(walk->engine->network);

    if (store == TY_NO_HOST || !(cost->edge_bytes > 0.0)) {
        play_work(walker, index);
        return;
    }
    ty_engine_work_both(
        walk->engine, &(ty_work){device->host, ty_walk_share(device, cost), cost->latency_s},
        &(ty_work){store, limit / ty_simgrid_store(walk->cluster)->bandwidth_bytes_per_s,
                   cost->edge_bytes / limit});
}

static void play(ty_walker *walker, uint32_t index)
{
    static void (*const plays[TY_OP_COUNT])(ty_walker *, uint32_t) = {
        [TY_OP_LOAD] = play_load,
        [TY_OP_FORWARD] = play_work,
        [TY_OP_RECOMPUTE] = play_work,
        [TY_OP_BACKWARD] = play_work,
        [TY_OP_SEND] = play_send,
        [TY_OP_ENCODE] = play_work,
        [TY_OP_COLLECTIVE] = play_collective,
        [TY_OP_DECODE] = play_work,
        [TY_OP_UPDATE] = play_work,
        [TY_OP_BEGIN] = play_work,
        [TY_OP_BACKWARD_INPUT] = play_work,
        [TY_OP_GATHER] = play_collective,
        [TY_OP_BACKWARD_WEIGHT] = play_work,
    };
    plays[device_of(walker)->program->instructions[index].op](walker, index);
}

/* ---- Streams ------------------------------------------------------------------------------- */

static ty_event *event_of(const ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    return &walk->events[walker->step * walk->step_events + device_of(walker)->first_event + index];
}

static bool are_over(const ty_walk_device *device, const ty_instruction *in, uint32_t step)
{
    for (uint32_t w = 0; w < in->wait_count; w++)
        if (device->done[in->waits[w]] <= step)
            return false;
    return true;
}

/* Whether the stream of receives is at one within the run; advances to it if necessary. */
static bool find_receive(ty_walker *walker)
{
    const ty_stage_program *program = device_of(walker)->program;

    for (; walker->round < walker->walk->steps + walker->lead; walker->round++, walker->next = 0)
        for (; walker->next < program->instruction_count; walker->next++) {
            const ty_instruction *in = &program->instructions[walker->next];
            walker->step = walker->round + in->lead - walker->lead;
            if (in->op == TY_OP_RECEIVE && walker->step < walker->walk->steps)
                return true;
        }
    return false;
}

/* Completes all receives of a device that wait for nothing more. */
static void receive(ty_walk *walk, uint32_t index)
{
    ty_walk_device *device = &walk->devices[index];
    ty_walker *walker = &device->walkers[TY_STREAM_RECEIVE];

    while (find_receive(walker)) {
        const uint32_t at = walker->next;
        if (!walker->is_ready &&
            !are_over(device, &device->program->instructions[at], walker->step))
            return;
        if (!walker->is_ready)
            event_of(walker, at)->start_s = ty_engine_clock(walk->engine);
        walker->is_ready = *device->arrival[at] <= walker->step;
        if (walker->is_ready)
            return;
        event_of(walker, at)->end_s = ty_engine_clock(walk->engine);
        walker->next++;
        ty_walk_advance(walk, &device->done[at], index);
    }
}

/* A class may send to devices of several. */
static void reach_receivers(ty_walk *walk, const ty_walk_device *device, const ty_instruction *send)
{
    const uint32_t peer = ty_walk_peer(walk, device, send);

    if (walk->fold == NULL) {
        receive(walk, peer);
        return;
    }
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(walk->plan, peer / walk->width);
    for (uint32_t d = 0; d < walk->device_count; d++)
        if (walk->devices[d].stage == pipeline_rank)
            receive(walk, d);
}

static void take(ty_walker *walker, uint32_t index)
{
    ty_walk *walk = walker->walk;
    ty_walk_device *device = device_of(walker);
    const ty_instruction *instruction = &device->program->instructions[index];
    ty_event *event = event_of(walker, index);

    for (uint32_t w = 0; w < instruction->wait_count; w++)
        ty_walk_await(walker, &device->done[instruction->waits[w]], (uint64_t)walker->step + 1);
    if (device->costs[index].is_between_steps && walker->lead == 0)
        ty_walk_await(walker, &device->done[ty_program_last_pass(device->program, index)],
                      walker->step);
    event->start_s = ty_engine_clock(walk->engine);
    play(walker, index);
    event->end_s = ty_engine_clock(walk->engine);
    ty_walk_advance(walk, &device->done[index], walker->index);
    receive(walk, walker->index);
    if (instruction->op == TY_OP_SEND)
        reach_receivers(walk, device, instruction);
}

static void live(void *context)
{
    ty_walker *walker = context;
    const ty_walk *walk = walker->walk;
    const ty_stage_program *program = device_of(walker)->program;

    /* Rounds of the program's loop, without instructions outside the run. */
    for (uint32_t round = 0; round < walk->steps + walker->lead; round++)
        for (uint32_t i = 0; i < program->instruction_count; i++) {
            walker->step = round + program->instructions[i].lead - walker->lead;
            if (program->instructions[i].stream == walker->stream && walker->step < walk->steps)
                take(walker, i);
        }
}

static bool has_instructions(const ty_stage_program *program, ty_stream stream)
{
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].stream == stream)
            return true;
    return false;
}

static void place(ty_walk *walk, uint32_t index)
{
    ty_engine *engine = walk->engine;
    ty_walk_device *self = &walk->devices[index];

    self->host = ty_network_host(
        engine->network,
        ty_plan_device_of_replica_rank(walk->plan, self->stage_replica, self->replica_rank));
    for (int s = 0; s < TY_STREAM_COUNT; s++) {
        if (s == TY_STREAM_RECEIVE || !has_instructions(self->program, (ty_stream)s))
            continue;
        self->walkers[s].gate = ty_engine_gate(engine);
        engine->calls->spawn(engine, self->host, live, &self->walkers[s], false);
    }
}

ty_status ty_walk_run(ty_walk *walk, ty_engine *engine, ty_event *events, ty_error *error)
{
    walk->engine = engine;
    walk->events = events;
    for (uint32_t g = 0; g < walk->group_count; g++)
        walk->groups[g].barrier = ty_engine_barrier(engine, walk->groups[g].member_count);
    for (uint32_t d = 0; d < walk->device_count; d++)
        place(walk, d);
    for (uint32_t d = 0; d < walk->device_count; d++)
        receive(walk, d);
    engine->calls->run(engine);
    /* No actor may still wait. ty_program_check proved the program free of deadlock; this checks
     * the walk. */
    for (uint32_t d = 0; d < walk->device_count; d++) {
        const ty_walk_device *self = &walk->devices[d];
        for (uint32_t i = 0; i < self->program->instruction_count; i++)
            if (self->done[i] != walk->steps)
                return ty_fail(
                    error, TY_EBACKEND,
                    "stage replica %u was left waiting at instruction %u (%s) of step %llu",
                    self->stage_replica, i, ty_op_name(self->program->instructions[i].op),
                    (unsigned long long)self->done[i]);
    }
    return TY_OK;
}
