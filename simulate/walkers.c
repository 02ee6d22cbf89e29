/* The actors: each takes the instructions of its stream in order, waits for what they wait for,
 * plays them and writes down when. In the child only. */
#include "walk.h"

#include "engine.h"

#include <stdio.h>

/* ---- Waiting for each other ---------------------------------------------------------------- */

void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value)
{
    if (*counter >= value)
        return;
    walker->awaited = counter;
    walker->awaited_value = value;
    ty_engine_gate_wait(walker->gate);
}

void ty_walk_wake(ty_walk *walk, const uint64_t *counter, uint32_t rank)
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
    ty_walk_wake(walk, counter, rank);
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
    ty_engine_work(rank->host, ty_walk_share(rank, cost), cost->seconds);
}

/* The sender plays the message, for both ends: it never waits for the receiver. */
static void play_send(ty_walker *walker, uint32_t index)
{
    ty_walk *walk = walker->walk;
    const ty_walk_rank *rank = &walk->ranks[walker->rank];
    const ty_instruction_cost *cost = &rank->costs[index];
    const uint32_t peer =
        ty_program_peer_rank(walk->plan, walker->rank, &rank->program->instructions[index]);
    const ty_walk_rank *to = &walk->ranks[peer];
    const double limit = cost->rate_limit_bytes_per_s;

    ty_engine_message(&(ty_message){
        .from = rank->host,
        .to = to->host,
        .latency_s = cost->latency_s,
        .bytes = cost->edge_bytes,
        .least_s = limit > 0.0 ? cost->edge_bytes / limit : 0.0,
        .is_paced = true,
        .seconds = cost->seconds,
        .from_share = ty_walk_share(rank, cost),
        .to_share = ty_walk_share(to, cost),
    });
}

static void play_receive(ty_walker *walker, uint32_t index)
{
    ty_walk_await(walker, walker->walk->ranks[walker->rank].arrival[index],
                  (uint64_t)walker->step + 1);
}

static uint32_t member_of(const ty_group *group, uint32_t rank)
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

static void play_collective(ty_walker *walker, uint32_t index)
{
    static const ty_collective_play plays[][TY_ALGORITHM_COUNT] = {
        [TY_FLOW] = {[TY_RING] = ty_flow_ring,
                     [TY_TREE] = ty_flow_tree,
                     [TY_AUTOMATIC] = ty_flow_rails,
                     [TY_HIERARCHICAL] = ty_phased_hierarchical,
                     [TY_PARAMETER_SERVER] = ty_phased_exchange,
                     [TY_BLOCK_MANAGER] = ty_phased_exchange},
        [TY_CHUNK] = {[TY_RING] = ty_chunk_ring,
                      [TY_TREE] = ty_chunk_tree,
                      [TY_AUTOMATIC] = ty_chunk_rails,
                      [TY_HIERARCHICAL] = ty_phased_hierarchical,
                      [TY_PARAMETER_SERVER] = ty_phased_exchange,
                      [TY_BLOCK_MANAGER] = ty_phased_exchange},
    };
    ty_walk *walk = walker->walk;
    const ty_walk_rank *rank = &walk->ranks[walker->rank];
    const ty_instruction *in = &rank->program->instructions[index];
    const uint32_t which = in->op == TY_OP_GATHER ? TY_MOST_PHASES : in->phase;
    ty_group *group = &walk->groups[(size_t)in->bucket * TY_GROUPS_OF_A_BUCKET + which];
    ty_collective_play how = plays[walk->resolution][group->algorithm];

    if (group->kind == TY_ALL_TO_ALL)
        how = ty_chunk_all_to_all;
    ty_engine_barrier_wait(group->barrier);
    if (group->is_share) /* less than a route's latency may be left of it: there is no such flow */
        play_work(walker, index);
    else
        how(walker, group, member_of(group, walker->rank), &rank->costs[index]);
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
        ty_walk_wake(walk, &rank->done[index],
                     ty_program_peer_rank(walk->plan, walker->rank, instruction));
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

static ty_status place(ty_walk *walk, uint32_t rank, ty_error *error)
{
    ty_walk_rank *self = &walk->ranks[rank];

    self->host = ty_engine_host(self->host_name);
    if (self->host == NULL)
        return ty_fail(error, TY_EBACKEND, "rank %u: the platform has no host '%s'", rank,
                       self->host_name);
    for (int s = 0; s < TY_STREAM_COUNT; s++) {
        char name[48];
        if (!has_instructions(self->program, (ty_stream)s))
            continue;
        self->walkers[s].gate = ty_engine_gate();
        snprintf(name, sizeof name, "rank-%u-%s", rank, ty_stream_name((ty_stream)s));
        ty_engine_spawn(name, self->host, live, &self->walkers[s]);
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
    for (uint32_t b = 0; b < walk->group_count; b++)
        if (walk->groups[b].member_count > 0)
            walk->groups[b].barrier = ty_engine_barrier(walk->groups[b].member_count);
    for (uint32_t r = 0; r < walk->rank_count; r++)
        if ((status = place(walk, r, error)) != TY_OK)
            return status;
    ty_engine_run();
    return check_end(walk, error);
}
