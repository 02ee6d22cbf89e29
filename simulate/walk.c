/* Building the walk: who is where, which send a receive waits for, who is in which collective. */
#include "walk.h"

#include "ty_memory.h"

#include <math.h>
#include <stdlib.h>

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
static ty_status match(ty_walk *walk, const struct sends *sends, ty_walk_rank *self, uint32_t index,
                       ty_error *error)
{
    const ty_plan *plan = walk->plan;
    const uint32_t rank = self->number;
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
    const ty_walk_rank *from =
        send == TY_NO_INSTRUCTION ? NULL : &walk->ranks[ty_walk_index(walk, peer)];
    if (from != NULL &&
        ty_program_peer_rank(plan, peer, &from->program->instructions[send]) != rank)
        send = TY_NO_INSTRUCTION; /* it goes to somebody else */
    if (send == TY_NO_INSTRUCTION)
        return ty_fail(error, TY_EINVAL,
                       "rank %u, instruction %u: a receive (%s, micro-batch %u) without its send: "
                       "rank %u of stage %u has none",
                       rank, index, ty_direction_name(receive->direction), receive->micro_batch,
                       peer, receive->peer_stage);
    self->arrival[index] = &walk->ranks[ty_walk_index(walk, peer)].done[send];
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
                TY_CHECK(match(walk, sends, &walk->ranks[r], i, error), status, cleanup);

cleanup:
    for (uint32_t s = 0; s < stages; s++)
        for (int d = 0; d < 2; d++)
            ty_free(sends[s].instructions[d]);
    ty_free(sends);
    return status;
}

static int compare_indices(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Of the members, one of each class. */
static void keep_classes(const ty_walk *walk, ty_group *group)
{
    uint32_t kept = 0;

    for (uint32_t m = 0; m < group->member_count; m++)
        group->ranks[m] = ty_walk_index(walk, group->ranks[m]);
    qsort(group->ranks, group->member_count, sizeof *group->ranks, compare_indices);
    for (uint32_t m = 0; m < group->member_count; m++)
        if (m == 0 || group->ranks[m] != group->ranks[kept - 1])
            group->ranks[kept++] = group->ranks[m];
    group->member_count = kept;
}

/* The latency of an exchange where the first member has it first; 0 where it has none. */
static double latency_of(const ty_walk *walk, const ty_group *group)
{
    const ty_walk_rank *first = &walk->ranks[group->ranks[0]];

    for (uint32_t i = 0; i < first->program->instruction_count; i++) {
        const ty_instruction *in = &first->program->instructions[i];
        if ((in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER) &&
            ty_walk_group(walk, in) == group)
            return first->costs[i].latency_s;
    }
    return 0.0;
}

/* `phase`: of the bucket's exchange, or TY_GATHER_PHASE. */
static ty_status group_fill(const ty_walk *walk, uint32_t bucket, uint32_t phase, ty_group *group,
                            ty_error *error)
{
    const ty_bucket *what = &walk->plan->buckets[bucket];
    const uint32_t members = ty_bucket_member_count(walk->plan, what);
    const uint32_t lanes = ty_bucket_lane_count(walk->plan, what);
    const bool is_gather = phase == TY_GATHER_PHASE;
    const ty_pattern_set *patterns =
        walk->fold == NULL ? &walk->patterns : ty_fold_patterns(walk->fold);

    if (!is_gather && phase >= ty_compression_phases(&what->compression))
        return TY_OK;
    group->ranks = ty_alloc(members, sizeof *group->ranks);
    group->plays = ty_alloc(members, sizeof *group->plays);
    group->arrived = ty_alloc((size_t)members * lanes * TY_MOST_LEGS, sizeof *group->arrived);
    group->invited = ty_alloc(members, sizeof *group->invited);
    if (group->ranks == NULL || group->plays == NULL || group->arrived == NULL ||
        group->invited == NULL)
        return out_of_memory(error);
    group->kind = is_gather ? TY_ALL_GATHER : ty_plan_exchange_kind(walk->plan, what, phase);
    group->pattern = ty_pattern_of(patterns, walk->plan, what, phase);
    group->member_count = members;
    group->lanes = lanes;
    ty_pattern_members(walk->plan, what, group->ranks);
    if (walk->resolution == TY_CHUNK)
        group->latency_s = latency_of(walk, group);
    if (walk->fold == NULL)
        return TY_OK;
    keep_classes(walk, group);
    return group->pattern == NULL ? TY_OK
                                  : ty_fold_exchange(walk->fold, group->pattern, &group->ways,
                                                     &group->way_count, error);
}

static ty_status rank_fill(ty_walk *walk, const ty_program *program, const ty_costs *costs,
                           uint32_t rank, ty_error *error)
{
    ty_walk_rank *self = &walk->ranks[rank];

    self->number = walk->fold == NULL ? rank : ty_fold_first_rank(walk->fold, rank);
    self->stage = ty_plan_stage_of_rank(walk->plan, self->number);
    self->program = &program->stages[self->stage];
    self->costs = costs->instructions[self->stage];
    self->has_cores = isfinite(costs->host_cores[costs->rank_host[self->number]]);
    self->first_event = walk->step_events;
    self->hosts = ty_alloc(walk->width, sizeof *self->hosts);
    self->done = ty_alloc(self->program->instruction_count, sizeof *self->done);
    self->arrival = ty_alloc(self->program->instruction_count, sizeof *self->arrival);
    if (self->hosts == NULL || self->done == NULL || self->arrival == NULL)
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
                      const ty_cluster *cluster, const ty_fold *fold,
                      const ty_simulate_options *options, ty_walk **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_walk *walk = ty_alloc(1, sizeof *walk);

    if (walk == NULL)
        return out_of_memory(error);
    walk->plan = plan;
    walk->cluster = cluster;
    walk->fold = fold;
    walk->width = ty_plan_width(plan);
    walk->steps = options->steps;
    walk->resolution = options->resolution;
    walk->jitter = options->jitter;
    walk->seed = options->seed;
    const uint32_t rank_count = fold == NULL ? ty_plan_rank_count(plan) : ty_fold_class_count(fold);
    walk->ranks = ty_alloc(rank_count, sizeof *walk->ranks);
    walk->groups =
        ty_alloc((size_t)plan->bucket_count * TY_GROUPS_OF_A_BUCKET, sizeof *walk->groups);
    if (walk->ranks == NULL || walk->groups == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    walk->rank_count = rank_count;
    walk->group_count = plan->bucket_count * TY_GROUPS_OF_A_BUCKET;
    for (uint32_t r = 0; r < walk->rank_count; r++)
        TY_CHECK(rank_fill(walk, program, costs, r, error), status, cleanup);
    for (uint32_t r = 0; r < walk->rank_count; r++)
        walk->ranks[r].slowdown =
            options->slowdowns == NULL ? 1.0 : options->slowdowns[walk->ranks[r].number];
    TY_CHECK(match_all(walk, program, error), status, cleanup);
    if (fold == NULL)
        TY_CHECK(ty_pattern_set_fill(&walk->patterns, plan, cluster, error), status, cleanup);
    for (uint32_t g = 0; g < walk->group_count; g++)
        TY_CHECK(group_fill(walk, g / TY_GROUPS_OF_A_BUCKET, g % TY_GROUPS_OF_A_BUCKET,
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
        ty_free(walk->ranks[r].hosts);
        ty_free(walk->ranks[r].done);
        ty_free(walk->ranks[r].arrival);
    }
    for (uint32_t b = 0; b < walk->group_count; b++) {
        ty_free(walk->groups[b].ranks);
        ty_free(walk->groups[b].plays);
        ty_free(walk->groups[b].arrived);
        ty_free(walk->groups[b].invited);
        ty_free(walk->groups[b].ways);
    }
    ty_pattern_set_clear(&walk->patterns);
    ty_free(walk->flow_ends);
    ty_free(walk->ranks);
    ty_free(walk->groups);
    ty_free(walk);
}

ty_group *ty_walk_group(const ty_walk *walk, const ty_instruction *instruction)
{
    const uint32_t phase = instruction->op == TY_OP_GATHER ? TY_GATHER_PHASE : instruction->phase;
    return &walk->groups[(size_t)instruction->bucket * TY_GROUPS_OF_A_BUCKET + phase];
}

sg_host_t ty_group_host(const ty_walk *walk, const ty_group *group, uint32_t member, uint32_t side)
{
    return walk->ranks[group->ranks[member / group->lanes]]
        .hosts[ty_pattern_lane(walk->plan, group->pattern, member, side)];
}

uint32_t ty_walk_index(const ty_walk *walk, uint32_t rank)
{
    return walk->fold == NULL ? rank : ty_fold_classes(walk->fold)[rank];
}
