/* Builds the walk: the host of each device, the send of each receive, the members of each
 * collective. */
#include "walk.h"

#include "child.h"
#include "fold_graph.h"
#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

/* Sends of a stage: [direction][the replica's own micro-batch] -> instruction. */
struct sends {
    uint32_t micro_batches;
    uint32_t *instructions[2];
};

static ty_status sends_index(const ty_plan *plan, const ty_program *program, uint32_t stage,
                             struct sends *sends, ty_error *error)
{
    const ty_stage_program *code = &program->stages[stage % program->stage_count];

    sends->micro_batches = plan->micro_batches / plan->stages[stage].replicas;
    for (int d = 0; d < 2; d++) {
        sends->instructions[d] = ty_alloc(sends->micro_batches, sizeof **sends->instructions);
        TY_TRY(ty_check_memory(sends->instructions[d] != NULL, error));
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
        sends->instructions[ty_direction_way(send->direction)][send->micro_batch] = i;
    }
    return TY_OK;
}

/* The counter of the send that `receive`, instruction `index` of a device, waits for: of the same
 * rank of the partner. */
static ty_status match(ty_walk *walk, const struct sends *sends, ty_walk_device *self,
                       uint32_t index, ty_error *error)
{
    const ty_plan *plan = walk->plan;
    const ty_instruction *receive = &self->program->instructions[index];
    const uint32_t stage = self->stage;
    const uint32_t replica = self->stage_replica - ty_plan_first_replica(plan, stage);
    const ty_walk_device *from = NULL;
    uint32_t send = TY_NO_INSTRUCTION;
    uint32_t peer = 0;

    if (receive->direction != TY_NO_DIRECTION && receive->peer_stage < plan->stage_count) {
        const struct sends *theirs = &sends[receive->peer_stage];
        const uint32_t micro_batch =
            ty_program_global_micro_batch(plan, stage, replica, receive->micro_batch) /
            plan->stages[receive->peer_stage].replicas;
        peer = ty_program_peer_replica(plan, self->stage_replica, receive);
        if (micro_batch < theirs->micro_batches)
            send = theirs->instructions[ty_direction_way(receive->direction)][micro_batch];
    }
    if (send != TY_NO_INSTRUCTION)
        from = &walk->devices[ty_walk_index(walk, peer * walk->width + self->replica_rank)];
    if (from != NULL && ty_program_peer_replica(plan, peer, &from->program->instructions[send]) !=
                            self->stage_replica)
        send = TY_NO_INSTRUCTION; /* it goes to another replica */
    if (send == TY_NO_INSTRUCTION)
        return ty_fail(
            error, TY_EINVAL,
            "stage replica %u, instruction %u: a receive (%s, micro-batch %u) without its send: "
            "stage replica %u of stage %u has none",
            self->stage_replica, index, ty_direction_name(receive->direction), receive->micro_batch,
            peer, receive->peer_stage);
    self->arrival[index] = &from->done[send];
    return TY_OK;
}

static ty_status match_all(ty_walk *walk, const ty_program *program, ty_error *error)
{
    ty_status status = TY_OK;
    const uint32_t stages = walk->plan->stage_count;
    struct sends *sends = ty_alloc(stages, sizeof *sends);

    TY_TRY(ty_check_memory(sends != NULL, error));
    for (uint32_t s = 0; s < stages; s++)
        TY_CHECK(sends_index(walk->plan, program, s, &sends[s], error), status, cleanup);
    for (uint32_t d = 0; d < walk->device_count; d++)
        for (uint32_t i = 0; i < walk->devices[d].program->instruction_count; i++)
            if (walk->devices[d].program->instructions[i].op == TY_OP_RECEIVE)
                TY_CHECK(match(walk, sends, &walk->devices[d], i, error), status, cleanup);

cleanup:
    for (uint32_t s = 0; s < stages; s++)
        for (int d = 0; d < 2; d++)
            ty_free(sends[s].instructions[d]);
    ty_free(sends);
    return status;
}

/* ---- Groups of collectives ----------------------------------------------------------------- */

/* Concurrent groups of the same collective. */
typedef struct party {
    const ty_bucket *bucket;   /* NULL: of TP, CP or EP */
    const ty_pattern *pattern; /* NULL: of a bucket that takes its `seconds` */
    ty_collective_kind kind;
    uint32_t sides, member_count; /* of each */
    uint32_t first_slot;
} party;

/* Buffers for the group with most members. */
typedef struct gathering {
    uint32_t *ranks;  /* [member] */
    uint32_t *joined; /* [side]: a side of the same group, or itself */
    uint32_t *owners; /* [class]: a side that it is in, or TY_NO_GROUP */
} gathering;

static void find_members(const ty_walk *walk, const party *p, uint32_t side, uint32_t *out)
{
    if (p->bucket != NULL)
        ty_pattern_members(walk->plan, p->bucket, side, out);
    else
        for (uint32_t m = 0; m < p->member_count; m++)
            out[m] = ty_pattern_rank(walk->plan, p->pattern, m, side);
    for (uint32_t m = 0; m < p->member_count; m++)
        out[m] = ty_walk_index(walk, out[m]);
}

static uint32_t root_of(uint32_t *joined, uint32_t side)
{
    while (joined[side] != side)
        side = joined[side] = joined[joined[side]];
    return side;
}

/* Sides with members of one class of devices form one group: the class's representative acts in all
 * of them. */
static void join_sides(const ty_walk *walk, const party *p, gathering *g)
{
    for (uint32_t side = 0; side < p->sides; side++)
        g->joined[side] = side;
    if (walk->fold == NULL)
        return;
    for (uint32_t c = 0; c < walk->device_count; c++)
        g->owners[c] = TY_NO_GROUP;
    for (uint32_t side = 0; side < p->sides; side++) {
        find_members(walk, p, side, g->ranks);
        for (uint32_t m = 0; m < p->member_count; m++) {
            uint32_t *owner = &g->owners[g->ranks[m]];
            if (*owner == TY_NO_GROUP)
                *owner = side;
            else
                g->joined[root_of(g->joined, side)] = root_of(g->joined, *owner);
        }
    }
}

static int compare_indices(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Adds the members of a side to its group; with folding, classes that are not in it yet. */
static ty_status add_members(const ty_walk *walk, const party *p, uint32_t side, gathering *g,
                             ty_group *group, ty_error *error)
{
    uint32_t *grown =
        ty_resize(group->members, group->member_count + p->member_count, sizeof *grown);

    TY_TRY(ty_check_memory(grown != NULL, error));
    group->members = grown;
    find_members(walk, p, side, g->ranks);
    for (uint32_t m = 0; m < p->member_count; m++) {
        const uint32_t index = g->ranks[m];
        if (walk->fold != NULL && g->owners[index] == TY_NO_GROUP)
            continue;
        if (walk->fold != NULL)
            g->owners[index] = TY_NO_GROUP;
        group->members[group->member_count++] = index;
    }
    return walk->fold == NULL || p->pattern == NULL
               ? TY_OK
               : ty_fold_exchange(walk->fold, p->pattern, side, &group->ways, &group->way_count,
                                  error);
}

/* Latency of a collective at the first member's first instruction of it; 0: none. */
static double latency_of(const ty_walk *walk, const party *p, const ty_group *group)
{
    const ty_walk_device *first = &walk->devices[group->members[0]];

    for (uint32_t i = 0; i < first->program->instruction_count; i++) {
        const ty_instruction *in = &first->program->instructions[i];
        const ty_parallel_instruction *parallel =
            ty_parallel_instruction_of(walk->parallel, first->stage, i);
        if (p->bucket == NULL && parallel != NULL &&
            parallel->costs[p->pattern->among].seconds > 0.0)
            return parallel->costs[p->pattern->among].latency_s / parallel->collectives;
        if (p->bucket != NULL && (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER) &&
            ty_walk_group(walk, first, in) == group)
            return first->costs[i].latency_s;
    }
    return 0.0;
}

static ty_status make_room(const ty_walk *walk, const party *p, ty_group *group, ty_error *error)
{
    if (p->bucket == NULL) {
        TY_TRY(ty_check_memory(
            (group->waiting = ty_alloc(group->member_count, sizeof(ty_walker *))) != NULL, error));
    }
    if (walk->resolution != TY_CHUNK)
        return TY_OK;
    group->plays = ty_alloc(group->member_count, sizeof *group->plays);
    group->arrived = ty_alloc((size_t)group->member_count * TY_MOST_LEGS, sizeof *group->arrived);
    group->invited = ty_alloc(group->member_count, sizeof *group->invited);
    return group->plays == NULL || group->arrived == NULL || group->invited == NULL
               ? out_of_memory(error)
               : TY_OK;
}

static ty_status add_groups(ty_walk *walk, const party *p, gathering *g, ty_error *error)
{
    const uint32_t first = walk->group_count;

    join_sides(walk, p, g);
    for (uint32_t side = 0; side < p->sides; side++)
        if (root_of(g->joined, side) == side) {
            walk->slots[p->first_slot + side] = walk->group_count;
            walk->groups[walk->group_count++] = (ty_group){.kind = p->kind, .pattern = p->pattern};
        }
    for (uint32_t side = 0; side < p->sides; side++) {
        const uint32_t index = walk->slots[p->first_slot + root_of(g->joined, side)];
        walk->slots[p->first_slot + side] = index;
        TY_TRY(add_members(walk, p, side, g, &walk->groups[index], error));
    }
    for (uint32_t i = first; i < walk->group_count; i++) {
        ty_group *group = &walk->groups[i];
        if (walk->fold != NULL)
            qsort(group->members, group->member_count, sizeof *group->members, compare_indices);
        TY_TRY(make_room(walk, p, group, error));
        if (walk->resolution == TY_CHUNK)
            group->latency_s = latency_of(walk, p, group);
    }
    return TY_OK;
}

/* `phase`: of the bucket, or TY_GATHER_PHASE. */
static party party_of_bucket(const ty_walk *walk, const ty_pattern_set *patterns, uint32_t index,
                             uint32_t phase)
{
    const ty_bucket *bucket = &walk->plan->buckets[index];
    const bool is_gather = phase == TY_GATHER_PHASE;
    const bool is_there = is_gather || phase < ty_compression_phases(&bucket->compression);
    return (party){
        .bucket = bucket,
        .pattern = is_there ? ty_pattern_of(patterns, walk->plan, bucket, phase) : NULL,
        .kind = is_gather || !is_there ? TY_ALL_GATHER
                                       : ty_plan_exchange_kind(walk->plan, bucket, phase),
        .sides = is_there ? ty_bucket_group_count(walk->plan, bucket) : 0,
        .member_count = ty_bucket_device_count(walk->plan, bucket),
    };
}

/* An all-reduce goes around the ring twice, others once. */
static party party_of_parallel(const ty_walk *walk, const ty_pattern *pattern)
{
    const bool are_sums = pattern->among == TY_TENSOR_PARALLEL && !walk->plan->sequence_parallel;
    return (party){.pattern = pattern,
                   .kind = are_sums ? TY_ALL_REDUCE : TY_ALL_GATHER,
                   .sides = pattern->groups,
                   .member_count = pattern->member_count};
}

static ty_status add_parties(ty_walk *walk, party *parties, uint32_t count, gathering *g,
                             ty_error *error)
{
    uint64_t slots = 0;
    uint32_t most_members = 0, most_sides = 0;

    for (uint32_t i = 0; i < count; i++) {
        parties[i].first_slot = (uint32_t)slots;
        slots += parties[i].sides;
        if (parties[i].member_count > most_members)
            most_members = parties[i].member_count;
        if (parties[i].sides > most_sides)
            most_sides = parties[i].sides;
    }
    walk->slots = ty_alloc(slots, sizeof *walk->slots);
    walk->groups = ty_alloc(slots, sizeof *walk->groups);
    g->ranks = ty_alloc(most_members, sizeof *g->ranks);
    g->joined = ty_alloc(most_sides, sizeof *g->joined);
    g->owners = ty_alloc(walk->device_count, sizeof *g->owners);
    if (walk->slots == NULL || walk->groups == NULL || g->ranks == NULL || g->joined == NULL ||
        g->owners == NULL || slots > UINT32_MAX)
        return out_of_memory(error);
    for (uint32_t i = 0; i < count; i++)
        TY_TRY(add_groups(walk, &parties[i], g, error));
    return TY_OK;
}

/* Buckets, by phase, then pipeline ranks, by kind of parallelism. */
static ty_status find_groups(ty_walk *walk, ty_error *error)
{
    const ty_pattern_set *patterns =
        walk->fold == NULL ? &walk->patterns : ty_fold_patterns(walk->fold);
    const uint32_t of_buckets = walk->plan->bucket_count * TY_GROUPS_OF_A_BUCKET;
    const uint32_t of_parallel = ty_plan_pipeline_size(walk->plan) * TY_PARALLELISM_COUNT;
    ty_status status;
    gathering g = {0};
    party *parties = ty_alloc((size_t)of_buckets + of_parallel, sizeof *parties);
    uint32_t count = 0;

    walk->bucket_slots = ty_alloc(of_buckets, sizeof *walk->bucket_slots);
    walk->parallel_slots = ty_alloc(of_parallel, sizeof *walk->parallel_slots);
    if (parties == NULL || walk->bucket_slots == NULL || walk->parallel_slots == NULL) {
        ty_free(parties);
        return out_of_memory(error);
    }
    for (uint32_t i = 0; i < of_buckets; i++, count++)
        parties[count] =
            party_of_bucket(walk, patterns, i / TY_GROUPS_OF_A_BUCKET, i % TY_GROUPS_OF_A_BUCKET);
    for (uint32_t i = 0; i < of_parallel; i++) {
        const ty_pattern *pattern = ty_pattern_of_parallel(
            patterns, i / TY_PARALLELISM_COUNT, (ty_parallelism)(i % TY_PARALLELISM_COUNT));
        parties[count++] = pattern == NULL ? (party){0} : party_of_parallel(walk, pattern);
    }
    uint64_t slot = 0;
    for (uint32_t i = 0; i < count; slot += parties[i++].sides)
        *(i < of_buckets ? &walk->bucket_slots[i] : &walk->parallel_slots[i - of_buckets]) =
            i >= of_buckets && parties[i].pattern == NULL ? TY_NO_GROUP : (uint32_t)slot;
    status = add_parties(walk, parties, count, &g, error);
    ty_free(parties);
    ty_free(g.ranks);
    ty_free(g.joined);
    ty_free(g.owners);
    return status;
}

/* ---- Passes apart from gradient buckets ---------------------------------------------------- */

static bool is_exchange(const ty_instruction *in)
{
    return in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER;
}

/* Lower bound of the instructions that have ended before an instruction starts. */
typedef struct past {
    uint32_t compute;   /* one plus the index of the last such instruction of compute */
    uint32_t exchanges; /* collectives of buckets, in the order of their stream */
} past;

static past later(past a, past b)
{
    return (past){a.compute > b.compute ? a.compute : b.compute,
                  a.exchanges > b.exchanges ? a.exchanges : b.exchanges};
}

/* Computes the past of each instruction's end. @return false if collectives of one step can overlap
 * with another step */
static bool find_pasts(const ty_stage_program *program, past *pasts)
{
    past streams[TY_STREAM_COUNT] = {{0, 0}}; /* of the stream's last so far */
    uint32_t exchanges = 0;

    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const ty_instruction *in = &program->instructions[i];
        past own = streams[in->stream];
        for (uint32_t w = 0; w < in->wait_count; w++)
            own = later(own, pasts[in->waits[w]]);
        if (in->stream == TY_STREAM_COMPUTE)
            own.compute = i + 1;
        if (is_exchange(in))
            own.exchanges = ++exchanges;
        pasts[i] = streams[in->stream] = own;
        if (in->lead > 0)
            return false;
    }
    return streams[TY_STREAM_COMPUTE].exchanges == exchanges;
}

/* A pass is apart if every collective that can start before its end had ended before its start. */
static ty_status mark_apart(const ty_stage_program *program, bool *is_apart)
{
    past *pasts = ty_alloc(program->instruction_count, sizeof *pasts);
    uint32_t next = 0, begun = 0;

    if (pasts == NULL)
        return TY_ENOMEM;
    const uint32_t count = find_pasts(program, pasts) ? program->instruction_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (program->instructions[i].stream != TY_STREAM_COMPUTE)
            continue;
        for (; next < count; next++) {
            if (!is_exchange(&program->instructions[next]))
                continue;
            if (pasts[next].compute > i)
                break;
            begun++;
        }
        is_apart[i] = pasts[i].exchanges == begun;
    }
    ty_free(pasts);
    return TY_OK;
}

static ty_status find_apart(ty_walk *walk, const ty_program *program, ty_error *error)
{
    TY_TRY(ty_check_memory(
        (walk->is_apart = ty_alloc(program->stage_count, sizeof *walk->is_apart)) != NULL, error));
    for (uint32_t s = 0; s < program->stage_count; s++) {
        walk->is_apart[s] = ty_alloc(program->stages[s].instruction_count, sizeof **walk->is_apart);
        if (walk->is_apart[s] == NULL ||
            mark_apart(&program->stages[s], walk->is_apart[s]) != TY_OK)
            return out_of_memory(error);
    }
    return TY_OK;
}

/* ---- Devices ------------------------------------------------------------------------------- */

/* A cost's cores are those of the ranks that are on the host of the stage replica's first. */
static double core_part_of(const ty_walk *walk, const ty_costs *costs, uint32_t stage_replica)
{
    const uint32_t host = costs->replica_host[stage_replica];
    uint32_t ranks = 0;

    if (!isfinite(costs->host_cores[host]))
        return 0.0;
    for (uint32_t l = 0; l < walk->width; l++)
        ranks += ty_cluster_device_host(walk->cluster, ty_plan_device_of_replica_rank(
                                                           walk->plan, stage_replica, l)) == host;
    return 1.0 / ranks;
}

static ty_status device_fill(ty_walk *walk, const ty_program *program, const ty_costs *costs,
                             const double *slowdowns, uint32_t index, ty_error *error)
{
    ty_walk_device *self = &walk->devices[index];

    self->rank = walk->fold == NULL ? index : ty_fold_first(walk->fold, index);
    self->stage_replica = self->rank / walk->width;
    self->replica_rank = self->rank % walk->width;
    self->stage = ty_plan_stage_of_replica(walk->plan, self->stage_replica);
    self->program = &program->stages[self->stage];
    self->costs = costs->instructions[self->stage];
    self->slowdown = slowdowns == NULL ? 1.0 : slowdowns[self->rank];
    self->core_part = core_part_of(walk, costs, self->stage_replica);
    self->first_event = walk->step_events;
    self->done = ty_alloc(self->program->instruction_count, sizeof *self->done);
    self->arrival = ty_alloc(self->program->instruction_count, sizeof *self->arrival);
    TY_TRY(ty_check_memory(self->done != NULL && self->arrival != NULL, error));
    for (int s = 0; s < TY_STREAM_COUNT; s++)
        self->walkers[s] = (ty_walker){.walk = walk,
                                       .index = index,
                                       .stream = (ty_stream)s,
                                       .lead = ty_program_lead(program, self->stage)};
    walk->step_events += self->program->instruction_count;
    return TY_OK;
}

/* Without folding: the patterns of collectives, and ranks without contention. */
static ty_status find_patterns(ty_walk *walk, const ty_program *program, ty_error *error)
{
    ty_fold_graph graph = {
        .plan = walk->plan, .cluster = walk->cluster, .parallel = walk->parallel, .error = error};
    ty_status status;

    if (walk->parallel == NULL || walk->parallel->pipeline_size == 0)
        return ty_pattern_set_fill(&walk->patterns, walk->plan, NULL, walk->cluster, error);
    TY_CHECK(ty_fold_graph_fill(&graph, program), status, cleanup);
    TY_CHECK(ty_fold_graph_hush(&graph), status, cleanup);
    walk->patterns = graph.patterns;
    graph.patterns = (ty_pattern_set){0};
cleanup:
    ty_fold_graph_clear(&graph);
    return status;
}

ty_status ty_walk_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const ty_fold *fold, const ty_simulate_options *options, ty_walk **out,
                      ty_error *error)
{
    ty_status status = TY_OK;
    ty_walk *walk = ty_alloc(1, sizeof *walk);

    TY_TRY(ty_check_memory(walk != NULL, error));
    walk->plan = plan;
    walk->cluster = cluster;
    walk->fold = fold;
    walk->parallel = parallel;
    walk->width = ty_plan_replica_ranks(plan);
    walk->steps = options->steps;
    walk->resolution = options->resolution;
    walk->jitter = options->jitter;
    walk->seed = options->seed;
    walk->are_ranks_alike = options->jitter <= 0.0 && options->slowdowns == NULL;
    const uint32_t count = fold == NULL ? ty_plan_rank_count(plan) : ty_fold_class_count(fold);
    TY_CHECK(
        ty_check_memory((walk->devices = ty_alloc(count, sizeof *walk->devices)) != NULL, error),
        status, cleanup);
    walk->device_count = count;
    TY_CHECK(find_apart(walk, program, error), status, cleanup);
    for (uint32_t d = 0; d < count; d++)
        TY_CHECK(device_fill(walk, program, costs, options->slowdowns, d, error), status, cleanup);
    TY_CHECK(match_all(walk, program, error), status, cleanup);
    if (fold == NULL)
        TY_CHECK(find_patterns(walk, program, error), status, cleanup);
    TY_CHECK(find_groups(walk, error), status, cleanup);
    for (uint32_t d = 0; d < walk->device_count; d++) {
        ty_walk_device *self = &walk->devices[d];
        const uint32_t replica =
            self->stage_replica - ty_plan_first_replica(walk->plan, self->stage);
        for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
            const uint32_t first =
                walk->parallel_slots[self->stage * TY_PARALLELISM_COUNT + (uint32_t)k];
            const uint32_t side =
                replica * ty_parallel_group_count(walk->plan, (ty_parallelism)k) +
                ty_parallel_group_of(walk->plan, (ty_parallelism)k, self->replica_rank);
            if (first != TY_NO_GROUP)
                self->parallel[k] = &walk->groups[walk->slots[first + side]];
        }
    }
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
    for (uint32_t d = 0; d < walk->device_count; d++) {
        ty_free(walk->devices[d].done);
        ty_free(walk->devices[d].arrival);
    }
    for (uint32_t g = 0; g < walk->group_count; g++) {
        ty_free(walk->groups[g].members);
        ty_free(walk->groups[g].waiting);
        ty_free(walk->groups[g].plays);
        ty_free(walk->groups[g].arrived);
        ty_free(walk->groups[g].invited);
        ty_free(walk->groups[g].ways);
    }
    for (uint32_t s = 0; walk->is_apart != NULL && s < ty_plan_pipeline_size(walk->plan); s++)
        ty_free(walk->is_apart[s]);
    ty_free(walk->is_apart);
    ty_pattern_set_clear(&walk->patterns);
    ty_free(walk->devices);
    ty_free(walk->groups);
    ty_free(walk->bucket_slots);
    ty_free(walk->parallel_slots);
    ty_free(walk->slots);
    ty_free(walk);
}

/* Messages of one collective of a group, per member. */
static double messages_of(const ty_walk *walk, const ty_group *group)
{
    const double messages = walk->fold != NULL ? (double)group->way_count / group->member_count
                                               : (double)TY_MOST_STRANDS;
    return group->pattern == NULL ? 1.0 : messages;
}

static double parallel_activities(const ty_walk *walk, const ty_walk_device *device, uint32_t index)
{
    const ty_parallel_instruction *parallel =
        ty_parallel_instruction_of(walk->parallel, device->stage, index);
    const bool is_apart = walk->is_apart[device->stage][index];
    double sum = 0.0;

    for (int k = 0; parallel != NULL && k < TY_PARALLELISM_COUNT; k++) {
        const ty_group *group = device->parallel[k];
        if (parallel->costs[k].seconds > 0.0 && !group->pattern->is_quiet &&
            !(is_apart && group->pattern->is_private))
            sum += ty_walk_turns(parallel) * (1.0 + messages_of(walk, group));
    }
    return sum;
}

double ty_walk_activities(const ty_walk *walk)
{
    double sum = 0.0;

    for (uint32_t d = 0; d < walk->device_count; d++) {
        const ty_walk_device *device = &walk->devices[d];
        for (uint32_t i = 0; i < device->program->instruction_count; i++) {
            const ty_instruction *in = &device->program->instructions[i];
            if (in->op != TY_OP_RECEIVE)
                sum += 1.0 + parallel_activities(walk, device, i);
            if (is_exchange(in))
                sum += messages_of(walk, ty_walk_group(walk, device, in));
        }
    }
    return sum * walk->steps;
}

uint32_t ty_walk_index(const ty_walk *walk, uint32_t rank)
{
    return walk->fold == NULL ? rank : ty_fold_classes(walk->fold)[rank];
}

ty_group *ty_walk_group(const ty_walk *walk, const ty_walk_device *device,
                        const ty_instruction *instruction)
{
    const uint32_t phase = instruction->op == TY_OP_GATHER ? TY_GATHER_PHASE : instruction->phase;
    const uint32_t side = ty_bucket_group_of(walk->plan, &walk->plan->buckets[instruction->bucket],
                                             device->replica_rank);
    const uint32_t first =
        walk->bucket_slots[(size_t)instruction->bucket * TY_GROUPS_OF_A_BUCKET + phase];
    return &walk->groups[walk->slots[first + side]];
}

uint32_t ty_walk_peer(const ty_walk *walk, const ty_walk_device *device,
                      const ty_instruction *instruction)
{
    return ty_program_peer_replica(walk->plan, device->stage_replica, instruction) * walk->width +
           device->replica_rank;
}

/* ---- Waiting for each other ---------------------------------------------------------------- */

void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value)
{
    if (*counter >= value)
        return;
    walker->awaited = counter;
    walker->awaited_value = value;
    ty_engine_gate_wait(walker->walk->engine, walker->gate);
}

void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t index)
{
    ++*counter;
    for (int s = 0; s < TY_STREAM_COUNT; s++) {
        ty_walker *walker = &walk->devices[index].walkers[s];
        if (walker->awaited != counter || walker->awaited_value > *counter)
            continue;
        walker->awaited = NULL;
        ty_engine_gate_open(walk->engine, walker->gate);
    }
}

/* ---- Messages ------------------------------------------------------------------------------ */

ty_play *ty_walk_plays(uint32_t count)
{
    ty_play *plays = ty_alloc(count, sizeof *plays);
    if (plays == NULL)
        _Exit(TY_CHILD_NO_MEMORY);
    return plays;
}

void ty_walk_aim(const ty_walker *walker, uint32_t flow, ty_message *message)
{
    const ty_walk *walk = walker->walk;

    if (flow == TY_NO_FLOW) {
        message->from = message->to = walk->devices[walker->index].host;
        return;
    }
    message->from = 2 * flow;
    message->to = 2 * flow + 1;
}
