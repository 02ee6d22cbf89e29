/* Color refinement: see fold.h. Colors are 64-bit hashes of all known properties of an item; a
 * multiset of colors is the sum of their mixed values, so that order does not matter. */
#include "fold_graph.h"

#include "ty_base.h"

#include <string.h>

/*
 * One different link in a ring distinguishes every member by its distance from it, although that
 * makes no difference far away. With this many colors and equal replicas in all stages, only near
 * items distinguish: links of a color still carry flows of the same colors, but a flow's links may
 * have a color that others of its class do not have.
 */
enum { MANY_COLOURS = 1024, NEAR_ROUNDS = 4 };

/* Finalizer of MurmurHash3 (Appleby, 2011). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    x ^= x >> 33;
    return x;
}

static uint64_t join(uint64_t a, uint64_t b)
{
    return mix(a * 0x9e3779b97f4a7c15u + b + 1);
}

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* ---- One round ----------------------------------------------------------------------------- */

static void colour_edges(ty_fold_graph *graph, uint64_t *next)
{
    for (uint32_t e = 0; e < graph->edge_count; e++) {
        const ty_fold_edge *edge = &graph->edges[e];
        uint64_t colour = join(edge->colour, edge->kind);
        if (edge->group == TY_NO_EDGE) {
            colour = join(colour, graph->rank_colours[edge->from]);
            colour = join(colour, graph->rank_colours[edge->to]);
        } else {
            colour = join(colour, graph->groups[edge->group].colour);
        }
        if (edge->partner != TY_NO_EDGE)
            colour = join(colour, graph->edges[edge->partner].colour);
        for (uint32_t i = 0; i < edge->link_count; i++)
            colour = join(colour, graph->link_colours[graph->links[edge->first_link + i]]);
        next[e] = colour;
    }
    for (uint32_t e = 0; e < graph->edge_count; e++)
        graph->edges[e].colour = next[e];
}

static void colour_links(ty_fold_graph *graph, uint64_t *sums)
{
    const uint32_t links = ty_cluster_link_count(graph->cluster) * 2;

    memset(sums, 0, links * sizeof *sums);
    for (uint32_t e = 0; e < graph->edge_count; e++)
        for (uint32_t i = 0; i < graph->edges[e].link_count; i++)
            sums[graph->links[graph->edges[e].first_link + i]] += mix(graph->edges[e].colour);
    for (uint32_t l = 0; l < links; l++)
        graph->link_colours[l] = join(graph->link_colours[l], sums[l]);
}

static void colour_groups(ty_fold_graph *graph)
{
    for (uint32_t g = 0; g < graph->group_count; g++) {
        ty_fold_group *group = &graph->groups[g];
        const ty_pattern *pattern = &graph->patterns.patterns[group->pattern];
        uint64_t sum = 0;
        for (uint32_t m = 0; m < pattern->member_count; m++)
            sum += mix(graph->rank_colours[ty_pattern_rank(graph->plan, pattern, m, group->side)]);
        group->colour = join(group->colour, sum);
        sum = 0;
        for (uint32_t e = 0; e < group->edge_count; e++)
            sum += mix(graph->edges[group->first_edge + e].colour);
        group->colour = join(group->colour, sum);
    }
}

/* The partners of a rank for each of its micro-batches, in order; the routes; and its groups.
 */
static void colour_ranks(ty_fold_graph *graph, uint64_t *next)
{
    for (uint32_t p = 0; p < graph->rank_count; p++)
        next[p] = graph->rank_colours[p];
    for (uint32_t k = 0; k < graph->key_count; k++) {
        const ty_fold_key *key = &graph->keys[k];
        const ty_fold_edge *edge = &graph->edges[key->first_edge];
        const uint32_t count =
            graph->plan->stages[key->pipeline_rank].replicas * key->period * graph->width;
        for (uint32_t e = 0; e < count; e++, edge++)
            next[edge->from] =
                join(join(next[edge->from], graph->rank_colours[edge->to]), edge->colour);
    }
    for (uint32_t g = 0; g < graph->group_count; g++) {
        const ty_fold_group *group = &graph->groups[g];
        const ty_pattern *pattern = &graph->patterns.patterns[group->pattern];
        for (uint32_t m = 0; m < pattern->member_count; m++) {
            const uint32_t rank = ty_pattern_rank(graph->plan, pattern, m, group->side);
            next[rank] = join(next[rank], group->colour);
        }
    }
    memcpy(graph->rank_colours, next, graph->rank_count * sizeof *next);
}

/* ---- Until nothing changes ----------------------------------------------------------------- */

/* The i-th of all colors: of links, ranks, edges and groups. */
static uint64_t colour_at(const ty_fold_graph *graph, uint64_t i)
{
    const uint64_t links = (uint64_t)ty_cluster_link_count(graph->cluster) * 2;

    if (i < links)
        return graph->link_colours[i];
    if ((i -= links) < graph->rank_count)
        return graph->rank_colours[i];
    if ((i -= graph->rank_count) < graph->edge_count)
        return graph->edges[i].colour;
    return graph->groups[i - graph->edge_count].colour;
}

static uint64_t colour_total(const ty_fold_graph *graph)
{
    return (uint64_t)ty_cluster_link_count(graph->cluster) * 2 + graph->rank_count +
           graph->edge_count + graph->group_count;
}

/* Number of different colors; `table` has `size` slots, a power of two and at least twice the
 * number of colors. Color 0 marks an empty slot. */
static uint64_t count_colours(const ty_fold_graph *graph, uint64_t *table, uint64_t size)
{
    const uint64_t total = colour_total(graph);
    uint64_t count = 0;

    memset(table, 0, size * sizeof *table);
    for (uint64_t i = 0; i < total; i++) {
        const uint64_t colour = colour_at(graph, i);
        uint64_t at = colour & (size - 1);
        while (table[at] != 0 && table[at] != colour)
            at = (at + 1) & (size - 1);
        count += table[at] == 0;
        table[at] = colour;
    }
    return count;
}

static void colour_first(ty_fold_graph *graph)
{
    uint32_t rank = 0;

    for (uint32_t p = 0; p < graph->pipeline_size; p++)
        for (uint32_t q = 0; q < graph->plan->stages[p].replicas * graph->width; q++)
            graph->rank_colours[rank++] = mix(p + 1);
    for (rank = 0; graph->slowdowns != NULL && rank < graph->rank_count; rank++)
        graph->rank_colours[rank] =
            join(graph->rank_colours[rank], bits_of(graph->slowdowns[rank]));
    for (uint32_t l = 0; l < ty_cluster_link_count(graph->cluster) * 2; l++)
        graph->link_colours[l] =
            mix(bits_of(ty_cluster_link(graph->cluster, l / 2)->bandwidth_bytes_per_s));
    for (uint32_t e = 0; e < graph->edge_count; e++)
        graph->edges[e].colour =
            join(mix(bits_of(graph->edges[e].latency_s)), graph->edges[e].turn);
    for (uint32_t g = 0; g < graph->group_count; g++)
        graph->groups[g].colour = graph->groups[g].pattern + 1;
}

ty_status ty_fold_graph_refine(ty_fold_graph *graph)
{
    ty_status status = TY_OK;
    const uint64_t links = (uint64_t)ty_cluster_link_count(graph->cluster) * 2;
    const uint64_t total = colour_total(graph);
    uint64_t size = 2, before = 0, found = 0;
    uint32_t rounds = 0;

    while (size < 2 * total)
        size *= 2;
    uint64_t *table = ty_alloc(size, sizeof *table);
    uint64_t *scratch = ty_alloc(total, sizeof *scratch);
    graph->rank_colours = ty_alloc(graph->rank_count, sizeof *graph->rank_colours);
    graph->link_colours = ty_alloc(links, sizeof *graph->link_colours);
    TY_CHECK(ty_check_memory(table != NULL && scratch != NULL && graph->rank_colours != NULL &&
                                 graph->link_colours != NULL,
                             graph->error),
             status, cleanup);
    colour_first(graph);
    do {
        if (found > MANY_COLOURS && rounds >= NEAR_ROUNDS && graph->is_even) {
            /* An item that is simulated separately also has separate flows. */
            colour_groups(graph);
            colour_edges(graph, scratch);
            colour_links(graph, scratch);
            break;
        }
        rounds++;
        before = found;
        colour_edges(graph, scratch);
        colour_links(graph, scratch);
        colour_groups(graph);
        colour_ranks(graph, scratch);
        found = count_colours(graph, table, size);
    } while (found != before);

cleanup:
    ty_free(table);
    ty_free(scratch);
    return status;
}
