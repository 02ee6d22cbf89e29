/* Sends of collectives, by shape: see pattern.h. If the rounds of a pattern are even, an edge
 * carries its bytes at a steady rate. One flow per edge then takes as long as all rounds, and has
 * the same contention on average. A tree's edge is busy in one of many rounds: it is a flow of that
 * round. */
#include "pattern.h"

#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SHIFTS = 4 }; /* hosts that represent all others */
_Static_assert((int)MOST_SHIFTS < (int)TY_MOST_STRANDS, "beside them there is the own host's");
_Static_assert(2 * (int)TY_TORUS_AXES <= (int)TY_MOST_STRANDS, "both ways of an axis");

/* ---- Shapes of a bucket ------------------------------------------------------------------ */

/* TY_SHAPE_COUNT: none. */
static ty_pattern_shape shape_of(ty_collective_kind kind, ty_algorithm algorithm)
{
    static const ty_pattern_shape shapes[TY_ALGORITHM_COUNT] = {
        [TY_RING] = TY_SHAPE_RING,
        [TY_TREE] = TY_SHAPE_TREE,
        [TY_AUTOMATIC] = TY_SHAPE_RAILS,
        [TY_HIERARCHICAL] = TY_SHAPE_HIERARCHY,
        [TY_PARAMETER_SERVER] = TY_SHAPE_SERVERS,
        [TY_BLOCK_MANAGER] = TY_SHAPE_SERVERS,
    };

    if ((unsigned)algorithm >= TY_ALGORITHM_COUNT)
        return TY_SHAPE_COUNT;
    if (kind == TY_ALL_TO_ALL)
        return TY_SHAPE_ALL_TO_ALL;
    /* All-gather and reduce-scatter are rings, whatever the plan's algorithm for all-reduces. */
    if (kind != TY_ALL_REDUCE && algorithm != TY_AUTOMATIC)
        return TY_SHAPE_RING;
    return shapes[algorithm];
}

/* The pattern's key; shape TY_SHAPE_COUNT if nothing is sent. */
static ty_pattern key_of(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    const bool is_gather = phase == TY_GATHER_PHASE;
    ty_pattern key = {.pipeline_rank = bucket->stage % pipeline_size,
                      .tied = TY_NO_STAGE,
                      .among = TY_PARALLELISM_COUNT,
                      .shape = TY_SHAPE_COUNT,
                      .of_experts = bucket->of_experts,
                      .member_count = ty_bucket_device_count(plan, bucket),
                      .ranks = ty_bucket_rank_count(plan, bucket),
                      .groups = ty_bucket_group_count(plan, bucket)};

    if (bucket->tied_stage != TY_NO_STAGE)
        key.tied = bucket->tied_stage % pipeline_size;
    /* Whether a bucket is reduced only in every k-th step. */
    if (key.member_count < 2 || key.tied == key.pipeline_rank ||
        (phase != TY_GATHER_PHASE && ty_plan_exchange_interval(plan, bucket) > 1))
        return key;
    if (is_gather ? ty_bucket_is_sharded(plan, bucket)
                  : phase < ty_compression_phases(&bucket->compression))
        key.shape = shape_of(is_gather ? TY_ALL_GATHER : ty_plan_exchange_kind(plan, bucket, phase),
                             bucket->algorithm);
    if (key.shape == TY_SHAPE_SERVERS && plan->servers.count > 0) {
        key.shape = TY_SHAPE_DEDICATED;
        key.servers = plan->servers.count;
    }
    return key;
}

const ty_pattern *ty_pattern_of(const ty_pattern_set *set, const ty_plan *plan,
                                const ty_bucket *bucket, uint32_t phase)
{
    const ty_pattern key = key_of(plan, bucket, phase);

    for (uint32_t i = 0; i < set->count; i++)
        if (set->patterns[i].pipeline_rank == key.pipeline_rank &&
            set->patterns[i].tied == key.tied && set->patterns[i].among == key.among &&
            set->patterns[i].shape == key.shape && set->patterns[i].of_experts == key.of_experts)
            return &set->patterns[i];
    return NULL;
}

const ty_pattern *ty_pattern_of_parallel(const ty_pattern_set *set, uint32_t pipeline_rank,
                                         ty_parallelism kind)
{
    for (uint32_t i = set->count; i-- > 0 && set->patterns[i].among != TY_PARALLELISM_COUNT;)
        if (set->patterns[i].pipeline_rank == pipeline_rank && set->patterns[i].among == kind)
            return &set->patterns[i];
    return NULL;
}

/* ---- All patterns of a plan ------------------------------------------------------------------ */

uint32_t ty_tree_rounds(uint32_t members)
{
    uint32_t rounds = 0;
    while (((uint64_t)1 << rounds) < members)
        rounds++;
    return rounds;
}

uint32_t ty_tree_turn(uint32_t member)
{
    uint32_t bit = 0;

    if (member == 0)
        return UINT32_MAX;
    while ((member >> bit & 1) == 0)
        bit++;
    return bit;
}

static int compare_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* With virtual stages, a tied weight's user may be on earlier devices than its owner. */
void ty_pattern_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                        uint32_t *ranks)
{
    const uint32_t count = ty_bucket_ranks(plan, bucket, group, ranks);
    qsort(ranks, count, sizeof *ranks, compare_ranks);
}

uint32_t ty_pattern_rank(const ty_plan *plan, const ty_pattern *pattern, uint32_t member,
                         uint32_t group)
{
    const uint32_t width = ty_plan_replica_ranks(plan);

    if (pattern->among != TY_PARALLELISM_COUNT) {
        const uint32_t groups = width / pattern->member_count; /* of a stage replica */
        return (pattern->first_replicas[0] + group / groups) * width +
               ty_rank_of_parallel_group(plan, pattern->among, group % groups, member);
    }
    if (member >= pattern->member_count)
        return ty_plan_rank_count(plan) + member - pattern->member_count;
    const ty_bucket alike = {.of_experts = pattern->of_experts};
    const uint32_t place = member / pattern->ranks;
    const uint32_t stage_replica = place < pattern->replicas
                                       ? pattern->first_replicas[0] + place
                                       : pattern->first_replicas[1] + place - pattern->replicas;
    return stage_replica * width + ty_bucket_rank(plan, &alike, group, member % pattern->ranks);
}

static ty_status find_places(ty_pattern *pattern, ty_error *error)
{
    TY_TRY(ty_check_memory(
        (pattern->places = ty_alloc(pattern->member_count, sizeof *pattern->places)) != NULL,
        error));
    for (uint32_t p = 0; p < pattern->member_count; p++)
        pattern->places[pattern->rails.order[p]] = p;
    return TY_OK;
}

/* Neighbors inside hosts and across them: of the first group, which represents the others. */
static ty_status find_rails(ty_pattern *pattern, const ty_plan *plan, const ty_cluster *cluster,
                            ty_error *error)
{
    const uint32_t n = pattern->member_count, width = ty_plan_replica_ranks(plan);
    uint32_t *devices = ty_alloc(n, sizeof *devices);
    ty_status status;

    TY_TRY(ty_check_memory(devices != NULL, error));
    for (uint32_t m = 0; m < n; m++) {
        const uint32_t rank = ty_pattern_rank(plan, pattern, m, 0);
        devices[m] = ty_plan_device_of_replica_rank(plan, rank / width, rank % width);
    }
    status = ty_cluster_rails(cluster, devices, n, &pattern->rails, error);
    ty_free(devices);
    return status == TY_OK ? find_places(pattern, error) : status;
}

static void find_ranks(ty_pattern *pattern, const ty_plan *plan)
{
    uint32_t first = pattern->pipeline_rank, second = pattern->tied;

    if (second != TY_NO_STAGE && second < first) {
        first = pattern->tied;
        second = pattern->pipeline_rank;
    }
    pattern->replicas = plan->stages[first].replicas;
    pattern->first_replicas[0] = ty_plan_first_replica(plan, first);
    pattern->first_replicas[1] = second == TY_NO_STAGE ? 0 : ty_plan_first_replica(plan, second);
}

static ty_status add_pattern(ty_pattern_set *set, const ty_plan *plan, const ty_cluster *cluster,
                             uint32_t index, uint32_t phase, ty_error *error)
{
    const ty_bucket *bucket = &plan->buckets[index];
    const ty_pattern key = key_of(plan, bucket, phase);

    if ((unsigned)bucket->algorithm >= TY_ALGORITHM_COUNT)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "plan:/buckets/%u/algorithm: algorithm %d is not simulated; expected one of "
                       "%s to %s",
                       index, (int)bucket->algorithm, ty_algorithm_name(TY_RING),
                       ty_algorithm_name((ty_algorithm)(TY_ALGORITHM_COUNT - 1)));
    if (key.shape == TY_SHAPE_COUNT || ty_pattern_of(set, plan, bucket, phase) != NULL)
        return TY_OK;
    ty_pattern *pattern = &set->patterns[set->count++];
    *pattern = key;
    find_ranks(pattern, plan);
    pattern->tree_rounds = (double)ty_tree_rounds(key.member_count);
    return (key.shape != TY_SHAPE_RING && key.shape != TY_SHAPE_TREE &&
            key.shape != TY_SHAPE_DEDICATED)
               ? find_rails(pattern, plan, cluster, error)
               : TY_OK;
}

/* Expert-parallel ranks send tokens or samples in an all-to-all. Other ranks, and EP with
 * row-sharded tables, send partial sums and shards around a ring. */
static ty_status add_parallel(ty_pattern_set *set, const ty_plan *plan,
                              const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                              uint32_t pipeline_rank, ty_parallelism kind, ty_error *error)
{
    const uint32_t n = ty_plan_parallel_size(plan, kind);
    ty_status status;

    if (!parallel->is_used[pipeline_rank][kind])
        return TY_OK;
    ty_pattern *pattern = &set->patterns[set->count++];
    *pattern = (ty_pattern){
        .pipeline_rank = pipeline_rank,
        .tied = TY_NO_STAGE,
        .among = kind,
        .shape =
            parallel->is_all_to_all[pipeline_rank][kind] ? TY_SHAPE_ALL_TO_ALL : TY_SHAPE_RAILS,
        .member_count = n,
        .ranks = n,
        .groups = plan->stages[pipeline_rank].replicas * ty_parallel_group_count(plan, kind)};
    find_ranks(pattern, plan);
    status = ty_parallel_rails(plan, cluster, pipeline_rank, kind, &pattern->rails, error);
    return status == TY_OK ? find_places(pattern, error) : status;
}

ty_status ty_pattern_set_fill(ty_pattern_set *set, const ty_plan *plan,
                              const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                              ty_error *error)
{
    ty_status status = TY_OK;
    const size_t pipeline_size = parallel == NULL ? 0 : parallel->pipeline_size;

    set->patterns = ty_alloc((size_t)plan->bucket_count * (TY_GATHER_PHASE + 1) +
                                 pipeline_size * TY_PARALLELISM_COUNT,
                             sizeof *set->patterns);
    TY_TRY(ty_check_memory(set->patterns != NULL, error));
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        for (uint32_t phase = 0; status == TY_OK && phase <= TY_GATHER_PHASE; phase++)
            status = add_pattern(set, plan, cluster, b, phase, error);
    for (uint32_t p = 0; p < pipeline_size; p++)
        for (int k = 0; status == TY_OK && k < TY_PARALLELISM_COUNT; k++)
            status = add_parallel(set, plan, parallel, cluster, p, (ty_parallelism)k, error);
    return status;
}

void ty_pattern_set_clear(ty_pattern_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        ty_rails_clear(&set->patterns[i].rails);
        ty_free(set->patterns[i].places);
    }
    ty_free(set->patterns);
    *set = (ty_pattern_set){0};
}

/* ---- Neighbours ------------------------------------------------------------------------------ */

uint32_t ty_pattern_around(const ty_pattern *pattern, uint32_t member, uint32_t further)
{
    const uint32_t g = pattern->rails.per_host, p = pattern->places[member];
    return pattern->rails.order[p - p % g + (p % g + further) % g];
}

uint32_t ty_pattern_across(const ty_pattern *pattern, uint32_t member, uint32_t hosts)
{
    const uint64_t p = pattern->places[member] + (uint64_t)hosts * pattern->rails.per_host;
    return pattern->rails.order[p % pattern->member_count];
}

ty_message ty_message_part(const ty_instruction_cost *cost, double count)
{
    const double limit = cost->rate_limit_bytes_per_s;

    return (ty_message){
        .latency_s = cost->latency_s / count,
        .bytes = cost->edge_bytes / count,
        .least_s = limit > 0.0 ? cost->edge_bytes / count / limit : 0.0,
        .is_paced = true,
        .seconds = cost->seconds / count,
    };
}

/* A part of the transfer that takes its share of the time for any number of bytes. */
static ty_message timed(double latency_s, double bytes, double transfer_s)
{
    return (ty_message){.latency_s = latency_s,
                        .bytes = bytes,
                        .least_s = transfer_s,
                        .seconds = latency_s + transfer_s};
}

static double transfer_s(const ty_instruction_cost *cost)
{
    return fmax(0.0, cost->seconds - cost->latency_s);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static uint32_t ring(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                     ty_strand *out)
{
    out[0] = (ty_strand){1, {{member, (member + 1) % p->member_count, ty_message_part(cost, 1.0)}}};
    return 1;
}

/* The parent of a member is its number without the lowest bit. Of the 2 ceil(log2 n) equal rounds,
 * an edge is busy in one on the way up and one on the way down. */
static uint32_t tree(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                     ty_strand *out)
{
    const uint32_t parent = member & (member - 1);
    const double rounds = 2.0 * p->tree_rounds;
    const ty_message one =
        timed(cost->latency_s / rounds, cost->edge_bytes / rounds, transfer_s(cost) / rounds);

    if (member == 0) /* its edges are its children's */
        out[0] = (ty_strand){1, {{0, 0, timed(0.0, 0.0, cost->seconds)}}};
    else
        out[0] = (ty_strand){2, {{member, parent, one}, {parent, member, one}}};
    return 1;
}

/* The member `steps` further along an axis (in `order`, the first axis changes fastest). The member
 * itself beyond the end of a line. */
static uint32_t along(const ty_pattern *p, uint32_t member, uint32_t axis, bool is_back)
{
    const ty_torus_axis *axes = p->rails.torus.axes;
    const uint32_t m = axes[axis].members, place = p->places[member];
    uint32_t stride = 1, at;

    for (uint32_t i = 0; i < axis; i++)
        stride *= axes[i].members;
    at = place / stride % m;
    if (!axes[axis].is_ring && at == (is_back ? 0 : m - 1))
        return member;
    return p->rails.order[place - at * stride + (at + (is_back ? m - 1 : 1)) % m * stride];
}

/* Messages of each axis to the neighbors on both sides, all at once. */
static uint32_t torus(const ty_pattern *p, uint32_t member, ty_collective_kind kind,
                      const ty_instruction_cost *cost, ty_strand *out)
{
    const ty_torus *t = &p->rails.torus;
    double shares[TY_TORUS_AXES];

    ty_torus_shares(t, kind, shares);
    for (uint32_t i = 0; i < 2 * t->axis_count; i++) {
        const uint32_t axis = i / 2, to = along(p, member, axis, i % 2 == 1);
        ty_message message = ty_message_part(cost, 1.0);
        message.bytes *= shares[axis] / (t->axes[axis].is_ring ? 2 : 1);
        message.is_paced = false; /* axes that share a limit carry unequal parts */
        if (to == member)
            message = timed(0.0, 0.0, cost->seconds);
        out[i] = (ty_strand){1, {{member, to, message}}};
    }
    return 2 * t->axis_count;
}

/* (g-1)/g of the bytes around the host (a mesh spreads most of these over its other rings), and 1/g
 * across. */
static uint32_t rails(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                      ty_strand *out)
{
    const double g = p->rails.per_host;
    uint32_t count = 0;
    ty_message message = ty_message_part(cost, 1.0);

    if (p->rails.torus.axis_count > 0)
        return torus(p, member, TY_ALL_GATHER, cost, out);
    if (p->rails.per_host > 1) {
        message.bytes =
            cost->edge_bytes * p->rails.around_share * (p->rails.hosts > 1 ? (g - 1) / g : 1);
        out[count++] = (ty_strand){1, {{member, ty_pattern_around(p, member, 1), message}}};
    }
    if (p->rails.hosts > 1) {
        message.bytes = cost->edge_bytes / g;
        /* Devices that share a NIC fill it together, which a rate limit per message ignores. */
        message.is_paced = false;
        out[count++] = (ty_strand){1, {{member, ty_pattern_across(p, member, 1), message}}};
    }
    return count;
}

static ty_hierarchy_parts hierarchy_parts_of(const ty_rails *rails, const ty_instruction_cost *cost)
{
    const double g = rails->per_host, hosts = rails->hosts;
    const double around = (g - 1) / g, across = 2 * (hosts - 1) / hosts / g;
    const double payload = cost->edge_bytes / (2 * around + across);
    const double around_s = (g - 1) * rails->around_latency_s;
    const double across_s = 2 * (hosts - 1) * rails->across_latency_s;
    const double scale =
        2 * around_s + across_s > 0 ? cost->latency_s / (2 * around_s + across_s) : 0.0;

    return (ty_hierarchy_parts){
        .around_latency_s = around_s * scale,
        .across_latency_s = across_s * scale,
        .around_bytes = payload * around * rails->around_share,
        .across_bytes = payload * across,
        .around_s = transfer_s(cost) * (1 - cost->across_share) / 2,
        .across_s = transfer_s(cost) * cost->across_share,
    };
}

/* Reduce-scatter around the host, all-reduce across, all-gather around it. */
static uint32_t hierarchy(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                          ty_strand *out)
{
    const ty_hierarchy_parts parts = hierarchy_parts_of(&p->rails, cost);
    const ty_leg around = {member, ty_pattern_around(p, member, 1),
                           timed(parts.around_latency_s, parts.around_bytes, parts.around_s)};
    const ty_leg across = {member, ty_pattern_across(p, member, 1),
                           timed(parts.across_latency_s, parts.across_bytes, parts.across_s)};

    out[0].count = 0;
    if (p->rails.per_host > 1)
        out[0].legs[out[0].count++] = around;
    if (p->rails.hosts > 1)
        out[0].legs[out[0].count++] = across;
    if (p->rails.per_host > 1)
        out[0].legs[out[0].count++] = around;
    return 1;
}

/* The i-th of `shifts` distances, in hosts, that represent all. */
static uint32_t shift_of(const ty_pattern *p, uint32_t i, uint32_t shifts)
{
    return 1 + (uint32_t)((uint64_t)i * (p->rails.hosts - 1) / shifts);
}

static uint32_t shift_count(const ty_pattern *p)
{
    const uint32_t others = p->rails.hosts - 1;
    return others < MOST_SHIFTS ? others : MOST_SHIFTS;
}

/*
 * Push and pull; slices and results. One message represents those to the other members of the host;
 * one message to each of a few hosts represents those to all: every NIC and link of a host has its
 * real load.
 */
static uint32_t servers(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                        ty_strand *out)
{
    const uint32_t shifts = shift_count(p);
    const double n = p->member_count, g = p->rails.per_host;
    const double share = cost->edge_bytes / 2 / (n - 1); /* of each other member, each way */
    ty_leg leg = {member, 0, timed(cost->latency_s / 2, 0, transfer_s(cost) / 2)};
    uint32_t count = 0;

    if (p->rails.per_host > 1) {
        leg.to = ty_pattern_around(p, member, 1);
        leg.message.bytes = share * (g - 1) * p->rails.around_share;
        out[count++] = (ty_strand){2, {leg, leg}};
    }
    for (uint32_t i = 0; i < shifts; i++) {
        leg.to = ty_pattern_across(p, member, shift_of(p, i, shifts));
        leg.message.bytes = share * (n - g) / shifts;
        out[count++] = (ty_strand){2, {leg, leg}};
    }
    return count;
}

/*
 * Push and pull of an equal share of each server, or of a few that represent all: assigned to
 * members in turn, so that every server has its real load. If one server has more of a bucket than
 * others, the cost has the time of its share, and no share is faster.
 */
static uint32_t dedicated(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                          ty_strand *out)
{
    const uint32_t count = p->servers < TY_MOST_STRANDS ? p->servers : TY_MOST_STRANDS;
    const ty_message way =
        timed(cost->latency_s / 2, cost->edge_bytes / 2 / count, transfer_s(cost) / 2);

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t turn = p->servers == count ? i : (uint64_t)member * count + i;
        const uint32_t server = p->member_count + (uint32_t)(turn % p->servers);
        out[i] = (ty_strand){2, {{member, server, way}, {server, member, way}}};
    }
    return count;
}

/* Rounds inside the host, then across: one message of each kind
 * represents all rounds of that kind. */
static uint32_t all_to_all(const ty_pattern *p, uint32_t member, const ty_instruction_cost *cost,
                           ty_strand *out)
{
    const uint32_t shifts = shift_count(p), strands = shifts > 0 ? shifts : 1;
    const double n = p->member_count, g = p->rails.per_host;

    if (p->rails.torus.axis_count > 0)
        return torus(p, member, TY_ALL_TO_ALL, cost, out);
    for (uint32_t i = 0; i < strands; i++) {
        const double around = (g - 1) / (n - 1), across = (n - g) / (n - 1);
        out[i].count = 0;
        if (p->rails.per_host > 1) {
            ty_message message = ty_message_part(cost, 1 / around);
            message.bytes *= p->rails.around_share / strands;
            out[i].legs[out[i].count++] =
                (ty_leg){member, ty_pattern_around(p, member, 1), message};
        }
        if (shifts > 0) {
            ty_message message = ty_message_part(cost, 1 / across);
            message.bytes /= strands;
            out[i].legs[out[i].count++] =
                (ty_leg){member, ty_pattern_across(p, member, shift_of(p, i, shifts)), message};
        }
        for (uint32_t leg = 0; leg < out[i].count; leg++) /* concurrent messages share the limit */
            out[i].legs[leg].message.is_paced = strands == 1;
    }
    return strands;
}

uint32_t ty_pattern_strands(const ty_pattern *pattern, uint32_t member,
                            const ty_instruction_cost *cost, ty_strand out[TY_MOST_STRANDS])
{
    static uint32_t (*const shapes[TY_SHAPE_COUNT])(const ty_pattern *, uint32_t,
                                                    const ty_instruction_cost *, ty_strand *) = {
        [TY_SHAPE_RING] = ring,           [TY_SHAPE_TREE] = tree,
        [TY_SHAPE_RAILS] = rails,         [TY_SHAPE_HIERARCHY] = hierarchy,
        [TY_SHAPE_SERVERS] = servers,     [TY_SHAPE_ALL_TO_ALL] = all_to_all,
        [TY_SHAPE_DEDICATED] = dedicated,
    };
    return shapes[pattern->shape](pattern, member, cost, out);
}
