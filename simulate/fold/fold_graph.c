/* Sends with their routes and links: see fold_graph.h. */
#include "fold_graph.h"

#include "ty_base.h"

const ty_fold_key *ty_fold_key_of(const ty_fold_graph *graph, uint32_t pipeline_rank, uint32_t peer)
{
    for (uint32_t k = 0; k < graph->key_count; k++)
        if (graph->keys[k].pipeline_rank == pipeline_rank && graph->keys[k].peer == peer)
            return &graph->keys[k];
    return NULL;
}

/* ---- Edges --------------------------------------------------------------------------------- */

static void add_key(ty_fold_graph *graph, uint32_t pipeline_rank, uint32_t peer, uint32_t *kinds)
{
    const uint32_t own = graph->plan->stages[pipeline_rank].replicas;
    const uint32_t theirs = graph->plan->stages[peer].replicas;
    const uint32_t own_micro_batches = graph->plan->micro_batches / own;
    uint32_t period = theirs / (uint32_t)ty_greatest_divisor(own, theirs);

    if (ty_fold_key_of(graph, pipeline_rank, peer) != NULL)
        return;
    if (period > own_micro_batches)
        period = own_micro_batches;
    graph->keys[graph->key_count++] = (ty_fold_key){.pipeline_rank = pipeline_rank,
                                                    .peer = peer,
                                                    .period = period,
                                                    .first_edge = graph->edge_count,
                                                    .first_kind = *kinds};
    graph->edge_count += own * period * graph->width;
    *kinds += period;
}

/* Sends in either direction: a pipeline rank that only receives needs its sender. */
static ty_status find_keys(ty_fold_graph *graph, const ty_program *program, uint32_t *kinds)
{
    /* A pipeline rank communicates with the ones before and after it. */
    TY_TRY(ty_check_memory(
        (graph->keys = ty_alloc((size_t)graph->pipeline_size * 4, sizeof *graph->keys)) != NULL,
        graph->error));
    for (uint32_t p = 0; p < graph->pipeline_size; p++)
        for (uint32_t i = 0; i < program->stages[p].instruction_count; i++) {
            const ty_instruction *in = &program->stages[p].instructions[i];
            if (in->op != TY_OP_SEND && in->op != TY_OP_RECEIVE)
                continue;
            if (graph->key_count == graph->pipeline_size * 4)
                return ty_fail(graph->error, TY_EINVAL,
                               "stage %u, instruction %u: a transfer to no neighbour; was the "
                               "program checked?",
                               p, i);
            add_key(graph, p, in->peer_stage % graph->pipeline_size, kinds);
        }
    return TY_OK;
}

/* Strands are the same for any cost. */
static uint32_t strands_of(const ty_pattern *pattern, uint32_t member,
                           ty_strand strands[TY_MOST_STRANDS])
{
    static const ty_instruction_cost any = {.seconds = 1.0};
    return ty_pattern_strands(pattern, member, &any, strands);
}

static ty_status find_groups(ty_fold_graph *graph)
{
    ty_strand strands[TY_MOST_STRANDS];
    ty_status status = ty_pattern_set_fill(&graph->patterns, graph->plan, graph->parallel,
                                           graph->cluster, graph->error);
    uint64_t count = 0;

    if (status != TY_OK)
        return status;
    for (uint32_t p = 0; p < graph->patterns.count; p++)
        count += graph->patterns.patterns[p].groups;
    graph->first_groups = ty_alloc(graph->patterns.count, sizeof *graph->first_groups);
    graph->groups = ty_alloc(count, sizeof *graph->groups);
    if (graph->first_groups == NULL || graph->groups == NULL || count > UINT32_MAX)
        return out_of_memory(graph->error);
    for (uint32_t p = 0; p < graph->patterns.count; p++) {
        const ty_pattern *pattern = &graph->patterns.patterns[p];
        uint64_t edges = 0;
        for (uint32_t m = 0; m < pattern->member_count; m++) {
            const uint32_t strand_count = strands_of(pattern, m, strands);
            for (uint32_t i = 0; i < strand_count; i++)
                edges += strands[i].count;
        }
        if (edges * pattern->groups > UINT32_MAX - graph->edge_count)
            return out_of_memory(graph->error);
        graph->first_groups[p] = graph->group_count;
        for (uint32_t side = 0; side < pattern->groups; side++) {
            graph->groups[graph->group_count++] =
                (ty_fold_group){p, side, graph->edge_count, (uint32_t)edges, 0};
            graph->edge_count += (uint32_t)edges;
        }
    }
    return TY_OK;
}

/* ---- Routes -------------------------------------------------------------------------------- */

static ty_status add_link(ty_fold_graph *graph, uint32_t link)
{
    if (graph->link_count == graph->link_capacity) {
        const uint64_t capacity = graph->link_capacity == 0 ? 1024 : graph->link_capacity * 2;
        uint32_t *grown = ty_resize(graph->links, capacity, sizeof *grown);
        if (grown == NULL || capacity > UINT32_MAX)
            return out_of_memory(graph->error);
        graph->links = grown;
        graph->link_capacity = capacity;
    }
    graph->links[graph->link_count++] = link;
    return TY_OK;
}

/* The route between two devices. */
static ty_status route(ty_fold_graph *graph, ty_fold_edge *edge, uint32_t source, uint32_t target)
{
    uint32_t at = ty_cluster_device_vertex(graph->cluster, source);
    ty_path path;

    if (graph->routes == NULL)
        TY_TRY(ty_routes_new(graph->cluster, &graph->routes, graph->error));
    TY_TRY(ty_routes_find(graph->routes, source, target, &path, graph->error));
    edge->first_link = (uint32_t)graph->link_count;
    edge->link_count = path.link_count;
    edge->latency_s = path.latency_s;
    edge->bandwidth_bytes_per_s = path.bandwidth_bytes_per_s;
    for (uint32_t i = 0; i < path.link_count; i++) {
        const ty_link_edge *link = ty_cluster_link(graph->cluster, path.links[i]);
        const bool is_forward = link->from == at;
        at = is_forward ? link->to : link->from;
        TY_TRY(add_link(graph, path.links[i] * 2 + !is_forward));
    }
    return TY_OK;
}

static ty_status fill_key(ty_fold_graph *graph, const ty_fold_key *key)
{
    ty_fold_edge *edge = &graph->edges[key->first_edge];
    const uint32_t first_replica = ty_plan_first_replica(graph->plan, key->pipeline_rank);
    const uint32_t first_peer = ty_plan_first_replica(graph->plan, key->peer);
    const uint32_t own = graph->plan->stages[key->pipeline_rank].replicas;
    const uint32_t theirs = graph->plan->stages[key->peer].replicas;
    ty_status status = TY_OK;

    for (uint32_t q = 0; q < own; q++)
        for (uint32_t phase = 0; phase < key->period; phase++) {
            const uint64_t micro_batch = (uint64_t)phase * own + q;
            const uint32_t peer = first_peer + (uint32_t)(micro_batch % theirs);
            for (uint32_t replica_rank = 0; status == TY_OK && replica_rank < graph->width;
                 replica_rank++, edge++) {
                *edge = (ty_fold_edge){.kind = key->first_kind + phase,
                                       .from = (first_replica + q) * graph->width + replica_rank,
                                       .to = peer * graph->width + replica_rank,
                                       /* The second sender to a receiver that serves several
                                        * differs from the first. */
                                       .turn = (uint32_t)(micro_batch / theirs),
                                       .group = TY_NO_EDGE,
                                       .partner = TY_NO_EDGE};
                status = route(graph, edge, ty_fold_device(graph, edge->from),
                               ty_fold_device(graph, edge->to));
            }
        }
    return status;
}

uint32_t ty_fold_device(const ty_fold_graph *graph, uint32_t rank)
{
    return ty_plan_device_of_rank(graph->plan, rank);
}

const ty_fold_group *ty_fold_group_of(const ty_fold_graph *graph, const ty_pattern *pattern,
                                      uint32_t side)
{
    return &graph->groups[graph->first_groups[pattern - graph->patterns.patterns] + side];
}

/* @param number [in, out] of the strand's first edge; then of the next edge */
static ty_status fill_strand(ty_fold_graph *graph, uint32_t index, const ty_strand *strand,
                             uint32_t kind, uint32_t *number)
{
    const ty_fold_group *group = &graph->groups[index];
    const ty_pattern *pattern = &graph->patterns.patterns[group->pattern];
    const uint32_t first = *number;
    ty_status status = TY_OK;

    for (uint32_t l = 0; status == TY_OK && l < strand->count; l++) {
        const ty_leg *leg = &strand->legs[l];
        ty_fold_edge *edge = &graph->edges[(*number)++];
        *edge = (ty_fold_edge){.kind = kind + l,
                               .from = TY_NO_EDGE,
                               .to = TY_NO_EDGE,
                               .group = index,
                               .partner = strand->count == 1 ? TY_NO_EDGE
                                                             : first + (l + 1) % strand->count,
                               .first_link = (uint32_t)graph->link_count};
        if (leg->from != leg->to)
            status = route(
                graph, edge,
                ty_fold_device(graph,
                               ty_pattern_rank(graph->plan, pattern, leg->from, group->side)),
                ty_fold_device(graph, ty_pattern_rank(graph->plan, pattern, leg->to, group->side)));
    }
    return status;
}

/* Edges of different rounds are different kinds. */
enum { MOST_ROUNDS = 32, KINDS_OF_A_GROUP = (TY_MOST_STRANDS + MOST_ROUNDS) * TY_MOST_LEGS };

static ty_status fill_group(ty_fold_graph *graph, uint32_t index)
{
    const ty_fold_group *group = &graph->groups[index];
    const ty_pattern *pattern = &graph->patterns.patterns[group->pattern];
    const uint32_t first_kind = graph->kind_count + KINDS_OF_A_GROUP * group->pattern;
    uint32_t number = group->first_edge;
    ty_strand strands[TY_MOST_STRANDS];
    ty_status status = TY_OK;

    for (uint32_t m = 0; m < pattern->member_count; m++) {
        const uint32_t count = strands_of(pattern, m, strands);
        for (uint32_t i = 0; status == TY_OK && i < count; i++) {
            const uint32_t place =
                pattern->shape == TY_SHAPE_TREE && m > 0 ? TY_MOST_STRANDS + ty_tree_turn(m) : i;
            status =
                fill_strand(graph, index, &strands[i], first_kind + place * TY_MOST_LEGS, &number);
        }
    }
    return status;
}

ty_status ty_fold_graph_fill(ty_fold_graph *graph, const ty_program *program)
{
    graph->rank_count = ty_plan_rank_count(graph->plan);
    graph->pipeline_size = ty_plan_pipeline_size(graph->plan);
    graph->width = ty_plan_replica_ranks(graph->plan);
    graph->is_even = true;
    for (uint32_t p = 1; p < graph->pipeline_size; p++)
        graph->is_even &= graph->plan->stages[p].replicas == graph->plan->stages[0].replicas;
    TY_TRY(find_keys(graph, program, &graph->kind_count));
    TY_TRY(find_groups(graph));
    TY_TRY(ty_check_memory(
        (graph->edges = ty_alloc(graph->edge_count, sizeof *graph->edges)) != NULL, graph->error));
    for (uint32_t k = 0; k < graph->key_count; k++)
        TY_TRY(fill_key(graph, &graph->keys[k]));
    for (uint32_t g = 0; g < graph->group_count; g++)
        TY_TRY(fill_group(graph, g));
    return TY_OK;
}

/* ---- Ranks without contention -------------------------------------------------------------- */

/* Edges over one direction of a link. */
typedef struct link_use {
    uint32_t edges, parallel_edges;
    bool has_transfers;
    bool has_later, has_earlier; /* of a route: neither its first nor its last link */
} link_use;

static bool is_alone(const link_use *use)
{
    return use->edges == 1;
}

/* All other edges start, or all end, at one member of the group, which is a member of these
 * collectives. */
static bool is_private(const link_use *use)
{
    return use->parallel_edges == 1 && !use->has_transfers && !(use->has_later && use->has_earlier);
}

static bool have_all(const ty_fold_graph *graph, const ty_pattern *pattern, const link_use *uses,
                     bool (*is_so)(const link_use *))
{
    for (uint32_t side = 0; side < pattern->groups; side++) {
        const ty_fold_group *group = ty_fold_group_of(graph, pattern, side);
        for (uint32_t e = group->first_edge; e < group->first_edge + group->edge_count; e++)
            for (uint32_t i = 0; i < graph->edges[e].link_count; i++)
                if (!is_so(&uses[graph->links[graph->edges[e].first_link + i]]))
                    return false;
    }
    return true;
}

static void count_uses(const ty_fold_graph *graph, link_use *uses)
{
    for (uint32_t e = 0; e < graph->edge_count; e++) {
        const ty_fold_edge *edge = &graph->edges[e];
        const bool is_transfer = edge->group == TY_NO_EDGE;
        const bool is_inside_replica =
            !is_transfer && graph->patterns.patterns[graph->groups[edge->group].pattern].among !=
                                TY_PARALLELISM_COUNT;
        for (uint32_t i = 0; i < edge->link_count; i++) {
            link_use *use = &uses[graph->links[edge->first_link + i]];
            use->edges++;
            use->parallel_edges += is_inside_replica;
            use->has_transfers |= is_transfer;
            use->has_later |= i > 0;
            use->has_earlier |= i + 1 < edge->link_count;
        }
    }
}

/* Edges of TP, CP and EP come last, so those that stay move up. */
static void drop_quiet_edges(ty_fold_graph *graph)
{
    uint32_t kept = 0;

    for (uint32_t g = 0; g < graph->group_count; g++) {
        ty_fold_group *group = &graph->groups[g];
        if (g == 0)
            kept = group->first_edge;
        const uint32_t moved = group->first_edge - kept;
        if (graph->patterns.patterns[group->pattern].is_quiet)
            group->edge_count = 0;
        for (uint32_t e = 0; e < group->edge_count; e++) {
            ty_fold_edge *edge = &graph->edges[kept + e];
            *edge = graph->edges[group->first_edge + e];
            if (edge->partner != TY_NO_EDGE)
                edge->partner -= moved;
        }
        group->first_edge = kept;
        kept += group->edge_count;
    }
    if (graph->group_count > 0)
        graph->edge_count = kept;
}

ty_status ty_fold_graph_hush(ty_fold_graph *graph)
{
    link_use *uses = ty_alloc((size_t)ty_cluster_link_count(graph->cluster) * 2, sizeof *uses);

    TY_TRY(ty_check_memory(uses != NULL, graph->error));
    count_uses(graph, uses);
    for (uint32_t p = 0; p < graph->patterns.count; p++) {
        ty_pattern *pattern = &graph->patterns.patterns[p];
        if (pattern->among == TY_PARALLELISM_COUNT)
            continue;
        pattern->is_quiet = have_all(graph, pattern, uses, is_alone);
        pattern->is_private = have_all(graph, pattern, uses, is_private);
    }
    ty_free(uses);
    drop_quiet_edges(graph);
    return TY_OK;
}

void ty_fold_graph_clear(ty_fold_graph *graph)
{
    ty_routes_free(graph->routes);
    ty_free(graph->keys);
    ty_pattern_set_clear(&graph->patterns);
    ty_free(graph->first_groups);
    ty_free(graph->groups);
    ty_free(graph->edges);
    ty_free(graph->links);
    ty_free(graph->rank_colours);
    ty_free(graph->link_colours);
}
