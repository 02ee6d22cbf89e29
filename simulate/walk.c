/* Building the walk: who is where, which send a receive waits for, who is in which collective. */
#include "walk.h"

#include "platform.h"
#include "ty_memory.h"

#include <math.h>
#include <string.h>

/* Where a stage's sends are: [direction][the replica's own micro-batch] -> instruction. */
struct sends {
    uint32_t micro_batches;
    uint32_t *instructions[2];
};

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
}

static ty_status sends_index(const ty_plan *plan, const ty_program *program, uint32_t stage,
                             struct sends *sends, ty_error *error)
{
    const ty_stage_program *code = &program->stages[stage % program->stage_count];

    sends->micro_batches = plan->micro_batches / plan->stages[stage].replicas;
    for (int d = 0; d < 2; d++) {
        sends->instructions[d] = ty_alloc(sends->micro_batches, sizeof **sends->instructions);
        if (sends->instructions[d] == NULL)
            return out_of_memory(error);
        for (uint32_t m = 0; m < sends->micro_batches; m++)
            sends->instructions[d][m] = TY_NO_INSTRUCTION;
    }
    for (uint32_t i = 0; i < code->instruction_count; i++) {
        const ty_instruction *send = &code->instructions[i];
        if (send->op != TY_OP_SEND || send->stage != stage)
            continue;
        if (send->direction == TY_NO_DIRECTION || send->micro_batch >= sends->micro_batches ||
            send->peer_stage >= plan->stage_count)
            return ty_fail(error, TY_EINVAL,
                           "stage %u, instruction %u: a send without direction, micro-batch or "
                           "peer; was the program checked?",
                           stage, i);
        sends->instructions[send->direction == TY_GRADIENT][send->micro_batch] = i;
    }
    return TY_OK;
}

/* The counter of the send that `receive`, instruction `index` of `rank`, waits for. */
static ty_status match(ty_walk *walk, const struct sends *sends, uint32_t rank, uint32_t index,
                       ty_error *error)
{
    const ty_plan *plan = walk->plan;
    ty_walk_rank *self = &walk->ranks[rank];
    const ty_instruction *receive = &self->program->instructions[index];
    const uint32_t stage = self->stage;
    const uint32_t replica = rank - ty_plan_first_rank(plan, stage);
    uint32_t send = TY_NO_INSTRUCTION;
    uint32_t peer = 0;

    if (receive->direction != TY_NO_DIRECTION && receive->peer_stage < plan->stage_count) {
        const struct sends *theirs = &sends[receive->peer_stage];
        const uint32_t micro_batch =
            ty_program_global_micro_batch(plan, stage, replica, receive->micro_batch) /
            plan->stages[receive->peer_stage].replicas;
        peer = ty_program_peer_rank(plan, rank, receive);
        if (micro_batch < theirs->micro_batches)
            send = theirs->instructions[receive->direction == TY_GRADIENT][micro_batch];
    }
    if (send == TY_NO_INSTRUCTION)
        return ty_fail(error, TY_EINVAL,
                       "rank %u, instruction %u: a receive without its send; was the program "
                       "checked?",
                       rank, index);
    self->arrival[index] = &walk->ranks[peer].done[send];
    return TY_OK;
}

static ty_status match_all(ty_walk *walk, const ty_program *program, ty_error *error)
{
    ty_status status = TY_OK;
    const uint32_t stages = walk->plan->stage_count;
    struct sends *sends = ty_alloc(stages, sizeof *sends);

    if (sends == NULL)
        return out_of_memory(error);
    for (uint32_t s = 0; s < stages; s++)
        TY_CHECK(sends_index(walk->plan, program, s, &sends[s], error), status, cleanup);
    for (uint32_t r = 0; r < walk->rank_count; r++)
        for (uint32_t i = 0; i < walk->ranks[r].program->instruction_count; i++)
            if (walk->ranks[r].program->instructions[i].op == TY_OP_RECEIVE)
                TY_CHECK(match(walk, sends, r, i, error), status, cleanup);

cleanup:
    for (uint32_t s = 0; s < stages; s++)
        for (int d = 0; d < 2; d++)
            ty_free(sends[s].instructions[d]);
    ty_free(sends);
    return status;
}

/* Who passes on to whom inside hosts and across them. */
static ty_status find_rails(const ty_walk *walk, const ty_cluster *cluster, ty_group *group,
                            ty_error *error)
{
    uint32_t n = group->member_count, *devices = ty_alloc(n, sizeof *devices);
    ty_status status;

    group->position = ty_alloc(n, sizeof *group->position);
    if (devices == NULL || group->position == NULL) {
        ty_free(devices);
        return out_of_memory(error);
    }
    for (uint32_t m = 0; m < n; m++)
        devices[m] = ty_plan_device_of_rank(walk->plan, group->ranks[m]);
    status = ty_cluster_rails(cluster, devices, n, &group->rails, error);
    for (uint32_t p = 0; status == TY_OK && p < n; p++)
        group->position[group->rails.order[p]] = p;
    ty_free(devices);
    return status;
}

/* `phase`: of the bucket's exchange, or TY_MOST_PHASES for the gathers of its weights. */
static ty_status group_fill(const ty_walk *walk, const ty_cluster *cluster, uint32_t bucket,
                            uint32_t phase, ty_group *group, ty_error *error)
{
    const ty_bucket *what = &walk->plan->buckets[bucket];
    const uint32_t members = ty_bucket_member_count(walk->plan, what);
    const bool is_gather = phase == TY_MOST_PHASES;

    if (!is_gather && phase >= ty_compression_phases(&what->compression))
        return TY_OK;
    group->ranks = ty_alloc(members, sizeof *group->ranks);
    group->plays = ty_alloc(members, sizeof *group->plays);
    group->arrived = ty_alloc(members, sizeof *group->arrived);
    group->invited = ty_alloc(members, sizeof *group->invited);
    if (group->ranks == NULL || group->plays == NULL || group->arrived == NULL ||
        group->invited == NULL)
        return out_of_memory(error);
    group->is_share = !is_gather && ty_plan_exchange_interval(walk->plan, what) > 1;
    group->kind = is_gather ? TY_ALL_GATHER : ty_plan_exchange_kind(walk->plan, what, phase);
    /* What is gathered goes round in a ring whatever the plan says of reductions. */
    group->algorithm =
        group->kind == TY_ALL_REDUCE || what->algorithm == TY_AUTOMATIC ? what->algorithm : TY_RING;
    group->member_count = ty_bucket_members(walk->plan, what, group->ranks);
    if (members < 2 || !ty_is_railed(group->algorithm))
        return TY_OK;
    return find_rails(walk, cluster, group, error);
}

static ty_status rank_fill(ty_walk *walk, const ty_program *program, const ty_costs *costs,
                           const ty_cluster *cluster, uint32_t rank, ty_error *error)
{
    ty_walk_rank *self = &walk->ranks[rank];
    char name[TY_SIMGRID_NAME_SIZE];
    ty_status status =
        ty_simgrid_host_name(cluster, ty_plan_device_of_rank(walk->plan, rank), name, error);
    if (status != TY_OK)
        return status;
    self->stage = ty_plan_stage_of_rank(walk->plan, rank);
    self->program = &program->stages[self->stage];
    self->costs = costs->instructions[self->stage];
    self->has_cores = isfinite(costs->host_cores[costs->rank_host[rank]]);
    self->first_event = walk->step_events;
    self->host_name = ty_strdup(name);
    self->done = ty_alloc(self->program->instruction_count, sizeof *self->done);
    self->arrival = ty_alloc(self->program->instruction_count, sizeof *self->arrival);
    if (self->host_name == NULL || self->done == NULL || self->arrival == NULL)
        return out_of_memory(error);
    for (int s = 0; s < TY_STREAM_COUNT; s++)
        self->walkers[s] = (ty_walker){.walk = walk,
                                       .rank = rank,
                                       .stream = (ty_stream)s,
                                       .lead = ty_program_lead(program, self->stage)};
    walk->step_events += self->program->instruction_count;
    return TY_OK;
}

ty_status ty_walk_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options, ty_walk **out,
                      ty_error *error)
{
    ty_status status = TY_OK;
    ty_walk *walk = ty_alloc(1, sizeof *walk);

    if (walk == NULL)
        return out_of_memory(error);
    walk->plan = plan;
    walk->steps = options->steps;
    walk->resolution = options->resolution;
    walk->ranks = ty_alloc(ty_plan_rank_count(plan), sizeof *walk->ranks);
    walk->groups =
        ty_alloc((size_t)plan->bucket_count * TY_GROUPS_OF_A_BUCKET, sizeof *walk->groups);
    if (walk->ranks == NULL || walk->groups == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    walk->rank_count = ty_plan_rank_count(plan);
    walk->group_count = plan->bucket_count * TY_GROUPS_OF_A_BUCKET;
    for (uint32_t r = 0; r < walk->rank_count; r++)
        TY_CHECK(rank_fill(walk, program, costs, cluster, r, error), status, cleanup);
    TY_CHECK(match_all(walk, program, error), status, cleanup);
    for (uint32_t g = 0; g < walk->group_count; g++)
        TY_CHECK(group_fill(walk, cluster, g / TY_GROUPS_OF_A_BUCKET, g % TY_GROUPS_OF_A_BUCKET,
                            &walk->groups[g], error),
                 status, cleanup);
    *out = walk;
    walk = NULL;

cleanup:
    ty_walk_free(walk);
    return status;
}

void ty_walk_free(ty_walk *walk)
{
    if (walk == NULL)
        return;
    for (uint32_t r = 0; r < walk->rank_count; r++) {
        ty_free(walk->ranks[r].host_name);
        ty_free(walk->ranks[r].done);
        ty_free(walk->ranks[r].arrival);
    }
    for (uint32_t b = 0; b < walk->group_count; b++) {
        ty_free(walk->groups[b].ranks);
        ty_free(walk->groups[b].plays);
        ty_free(walk->groups[b].arrived);
        ty_free(walk->groups[b].invited);
        ty_free(walk->groups[b].position);
        ty_rails_clear(&walk->groups[b].rails);
    }
    ty_free(walk->ranks);
    ty_free(walk->groups);
    ty_free(walk);
}

sg_host_t ty_group_host(const ty_walk *walk, const ty_group *group, uint32_t member)
{
    return walk->ranks[group->ranks[member]].host;
}

uint32_t ty_tree_rounds(uint32_t members)
{
    uint32_t rounds = 0;
    while (((uint64_t)1 << rounds) < members)
        rounds++;
    return rounds;
}
