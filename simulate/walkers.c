/* The actors: each takes the instructions of its stream in order, waits for what they wait for,
 * plays them and writes down when. In the child only. */
#include "walk.h"

#include "child.h"
#include "disturbance.h"
#include "platform.h"
#include "ty_memory.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Waiting for each other ---------------------------------------------------------------- */

void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value)
{
    if (*counter >= value)
        return;
    walker->awaited = counter;
    walker->awaited_value = value;
    ty_engine_gate_wait(walker->gate);
}

/* Wakes without adding: for a counter that concerns a second rank. */
static void walk_wake(ty_walk *walk, const uint64_t *counter, uint32_t rank)
{
    for (int s = 0; s < TY_STREAM_COUNT; s++) {
        ty_walker *walker = &walk->ranks[rank].walkers[s];
        if (walker->awaited != counter || walker->awaited_value > *counter)
            continue;
        walker->awaited = NULL;
        ty_engine_gate_open(walker->gate);
    }
}

void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t rank)
{
    ++*counter;
    walk_wake(walk, counter, rank);
}

/* ---- Instructions -------------------------------------------------------------------------- */

double ty_walk_share(const ty_walk_rank *rank, const ty_instruction_cost *cost)
{
    return rank->has_cores ? cost->core_share : 0.0;
}

static void play_work(ty_walker *walker, uint32_t index)
{
    const ty_walk_rank *rank = &walker->walk->ranks[walker->rank];
    const ty_instruction_cost *cost = &rank->costs[index];
    double seconds = cost->seconds;

    if (rank->program->instructions[index].stream == TY_STREAM_COMPUTE)
        seconds *= rank->slowdown * ty_jitter(walker->walk->jitter, walker->walk->seed,
                                              rank->number, walker->step, index);
    ty_engine_work(rank->hosts[0], ty_walk_share(rank, cost), seconds);
}

ty_play *ty_walk_plays(uint32_t count)
{
    ty_play *plays = ty_alloc(count, sizeof *plays);
    if (plays == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    return plays;
}

void ty_walk_play(ty_walker *walker, const ty_play *plays, uint32_t count)
{
    ty_engine_play(walker->walk->crew, walker->gate, plays, count);
}

void ty_walk_aim(const ty_walker *walker, uint32_t flow, ty_message *message)
{
    const ty_walk *walk = walker->walk;

    if (flow == TY_NO_FLOW) {
        message->from = message->to = walk->ranks[walker->rank].hosts[0];
        return;
    }
    message->from = walk->flow_ends[2 * (size_t)flow];
    message->to = walk->flow_ends[2 * (size_t)flow + 1];
    message->route_bandwidth_bytes_per_s = ty_fold_flow_of(walk->fold, flow)->bandwidth_bytes_per_s;
}

/* With folding: over one route of each class that the lanes use. */
static void play_folded_send(ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_rank *rank = &walk->ranks[walker->rank];
    ty_fold_way *ways = NULL;
    uint32_t count = 0;

    if (ty_fold_transfer(walk->fold, rank->number, &rank->program->instructions[index], &ways,
                         &count, NULL) != TY_OK)
        _Exit(TY_CHILD_NO_MEMORY);
    ty_play *plays = ty_walk_plays(count);
    for (uint32_t w = 0; w < count; w++) {
        plays[w] = (ty_play){{ty_message_part(&rank->costs[index], 1.0)}, 1};
        ty_walk_aim(walker, ways[w].flows[0], &plays[w].messages[0]);
    }
    ty_walk_play(walker, plays, count);
    ty_free(plays);
    ty_free(ways);
}

/* The sender plays the messages, lane to lane, for both ends: it never waits for the receiver. */
static void play_send(ty_walker *walker, uint32_t index)
{
    const ty_walk *walk = walker->walk;
    const ty_walk_rank *rank = &walk->ranks[walker->rank];
    const ty_instruction_cost *cost = &rank->costs[index];

    if (walk->fold != NULL) {
        play_folded_send(walker, index);
        return;
    }
    const uint32_t peer =
        ty_program_peer_rank(walk->plan, rank->number, &rank->program->instructions[index]);
    const ty_walk_rank *to = &walk->ranks[peer];
    ty_play *plays = ty_walk_plays(walk->width);
    for (uint32_t lane = 0; lane < walk->width; lane++) {
        ty_message message = ty_message_part(cost, 1.0);
        message.from = rank->hosts[lane];
        message.to = to->hosts[lane];
        message.from_share = ty_walk_share(rank, cost);
        message.to_share = ty_walk_share(to, cost);
        plays[lane] = (ty_play){{message}, 1};
    }
    ty_walk_play(walker, plays, walk->width);
    ty_free(plays);
}

static void play_receive(ty_walker *walker, uint32_t index)
{
    ty_walk_await(walker, walker->walk->ranks[walker->rank].arrival[index],
                  (uint64_t)walker->step + 1);
}

static uint32_t place_of(const ty_group *group, uint32_t rank)
{
    uint32_t low = 0, high = group->member_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (group->ranks[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How a shape is played: one entry for each resolution. Where everybody sends to everybody at once,
 * a message is all that there is of it. */
static const ty_collective_play collective_plays[][TY_SHAPE_COUNT] = {
    [TY_FLOW] = {[TY_SHAPE_RING] = ty_flow_play,
                 [TY_SHAPE_TREE] = ty_flow_tree,
                 [TY_SHAPE_RAILS] = ty_flow_play,
                 [TY_SHAPE_HIERARCHY] = ty_flow_play,
                 [TY_SHAPE_SERVERS] = ty_flow_play,
                 [TY_SHAPE_ALL_TO_ALL] = ty_flow_play},
    [TY_CHUNK] = {[TY_SHAPE_RING] = ty_chunk_ring,
                  [TY_SHAPE_TREE] = ty_chunk_tree,
                  [TY_SHAPE_RAILS] = ty_chunk_ring,
                  [TY_SHAPE_HIERARCHY] = ty_chunk_hierarchy,
                  [TY_SHAPE_SERVERS] = ty_flow_play,
                  [TY_SHAPE_ALL_TO_ALL] = ty_chunk_all_to_all},
};

static void play_collective(ty_walker *walker, uint32_t index)
{
    ty_walk *walk = walker->walk;
    const ty_walk_rank *rank = &walk->ranks[walker->rank];
    ty_group *group = ty_walk_group(walk, &rank->program->instructions[index]);
    const uint32_t place = place_of(group, walker->rank);

    ty_engine_barrier_wait(group->barrier);
    if (group->pattern == NULL) /* less than a route's latency may be left: there is no such flow */
        play_work(walker, index);
    else if (walk->fold == NULL)
        collective_plays[walk->resolution][group->pattern->shape](walker, group, place,
                                                                  &rank->costs[index]);
    else if (place == 0)
        ty_flow_folded(walker, group, &rank->costs[index]);
    ty_engine_barrier_wait(group->barrier);
}

static void play(ty_walker *walker, uint32_t index)
{
    static void (*const plays[TY_OP_COUNT])(ty_walker *, uint32_t) = {
        [TY_OP_LOAD] = play_work,         [TY_OP_FORWARD] = play_work,
        [TY_OP_RECOMPUTE] = play_work,    [TY_OP_BACKWARD] = play_work,
        [TY_OP_SEND] = play_send,         [TY_OP_RECEIVE] = play_receive,
        [TY_OP_ENCODE] = play_work,       [TY_OP_COLLECTIVE] = play_collective,
        [TY_OP_DECODE] = play_work,       [TY_OP_UPDATE] = play_work,
        [TY_OP_BEGIN] = play_work,        [TY_OP_BACKWARD_INPUT] = play_work,
        [TY_OP_GATHER] = play_collective, [TY_OP_BACKWARD_WEIGHT] = play_work,
    };
    plays[walker->walk->ranks[walker->rank].program->instructions[index].op](walker, index);
}

/* ---- A stream's life ----------------------------------------------------------------------- */

/* A class may send to ranks of several. */
static void wake_receivers(ty_walk *walk, const ty_walk_rank *rank, const ty_instruction *send,
                           const uint64_t *sent)
{
    const uint32_t peer = ty_program_peer_rank(walk->plan, rank->number, send);

    if (walk->fold == NULL) {
        walk_wake(walk, sent, peer);
        return;
    }
    const uint32_t position = ty_plan_stage_of_rank(walk->plan, peer);
    for (uint32_t r = 0; r < walk->rank_count; r++)
        if (walk->ranks[r].stage == position)
            walk_wake(walk, sent, r);
}

static void take(ty_walker *walker, uint32_t index)
{
    ty_walk *walk = walker->walk;
    ty_walk_rank *rank = &walk->ranks[walker->rank];
    const ty_instruction *instruction = &rank->program->instructions[index];
    ty_event *event = &walk->events[walker->step * walk->step_events + rank->first_event + index];

    for (uint32_t w = 0; w < instruction->wait_count; w++)
        ty_walk_await(walker, &rank->done[instruction->waits[w]], (uint64_t)walker->step + 1);
    event->rank = walker->rank;
    event->step = walker->step;
    event->instruction = index;
    event->start_s = ty_engine_clock();
    play(walker, index);
    event->end_s = ty_engine_clock();
    ty_walk_advance(walk, &rank->done[index], walker->rank);
    if (instruction->op == TY_OP_SEND)
        wake_receivers(walk, rank, instruction, &rank->done[index]);
}

static void live(void *context)
{
    ty_walker *walker = context;
    const ty_walk *walk = walker->walk;
    const ty_stage_program *program = walk->ranks[walker->rank].program;

    /* Rounds of the program's loop; what belongs to no step of the run is left out. */
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

/* Where a lane is; with folding there is no place but those of the flows. */
static ty_status find_host(const ty_walk *walk, ty_walk_rank *self, uint32_t lane, ty_error *error)
{
    char name[TY_SIMGRID_NAME_SIZE] = "anywhere";

    if (walk->fold == NULL) {
        ty_status status = ty_simgrid_host_name(
            walk->cluster, ty_plan_device_of_lane(walk->plan, self->number, lane), name, error);
        if (status != TY_OK)
            return status;
    }
    self->hosts[lane] = ty_engine_host(name);
    if (self->hosts[lane] == NULL)
        return ty_fail(error, TY_EBACKEND, "rank %u: the platform has no host '%s'", self->number,
                       name);
    return TY_OK;
}

static ty_status place(ty_walk *walk, uint32_t rank, ty_error *error)
{
    ty_walk_rank *self = &walk->ranks[rank];
    ty_status status;

    for (uint32_t lane = 0; lane < walk->width; lane++)
        if ((status = find_host(walk, self, lane, error)) != TY_OK)
            return status;
    for (int s = 0; s < TY_STREAM_COUNT; s++) {
        char name[48];
        if (!has_instructions(self->program, (ty_stream)s))
            continue;
        self->walkers[s].gate = ty_engine_gate();
        snprintf(name, sizeof name, "rank-%u-%s", self->number, ty_stream_name((ty_stream)s));
        ty_engine_spawn(name, self->hosts[0], live, &self->walkers[s]);
    }
    return TY_OK;
}

/* The hosts at the ends of the folded routes. */
static ty_status find_flow_ends(ty_walk *walk, ty_error *error)
{
    const uint32_t count = walk->fold == NULL ? 0 : ty_fold_flow_count(walk->fold);

    walk->flow_ends = ty_alloc((size_t)count * 2, sizeof *walk->flow_ends);
    if (walk->flow_ends == NULL)
        return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
    for (uint32_t f = 0; f < count * 2; f++) {
        char name[TY_SIMGRID_NAME_SIZE];
        snprintf(name, sizeof name, "%s-%u", f % 2 == 0 ? "from" : "to", f / 2);
        walk->flow_ends[f] = ty_engine_host(name);
        if (walk->flow_ends[f] == NULL)
            return ty_fail(error, TY_EBACKEND, "the folded platform has no host '%s'", name);
    }
    return TY_OK;
}

/* Nobody may be left waiting. The program was proved free of deadlock; this proves the walk. */
static ty_status check_end(const ty_walk *walk, ty_error *error)
{
    for (uint32_t r = 0; r < walk->rank_count; r++)
        for (uint32_t i = 0; i < walk->ranks[r].program->instruction_count; i++)
            if (walk->ranks[r].done[i] != walk->steps)
                return ty_fail(error, TY_EBACKEND,
                               "rank %u was left waiting at instruction %u (%s) of step %llu", r, i,
                               ty_op_name(walk->ranks[r].program->instructions[i].op),
                               (unsigned long long)walk->ranks[r].done[i]);
    return TY_OK;
}

ty_status ty_walk_run(ty_walk *walk, ty_event *events, ty_error *error)
{
    ty_status status;

    walk->events = events;
    walk->crew = ty_engine_crew();
    if ((status = find_flow_ends(walk, error)) != TY_OK)
        return status;
    for (uint32_t b = 0; b < walk->group_count; b++)
        if (walk->groups[b].member_count > 0)
            walk->groups[b].barrier = ty_engine_barrier(walk->groups[b].member_count);
    for (uint32_t r = 0; r < walk->rank_count; r++)
        if ((status = place(walk, r, error)) != TY_OK)
            return status;
    ty_engine_run();
    return check_end(walk, error);
}
