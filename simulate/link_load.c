/* What a step puts on each link: from the program, its costs and the routes, without a simulation.
 */
#include "fold_graph.h"

#include "ty_memory.h"

#include <stdlib.h>

/* Bytes that a rank of a position sends in a step to the peers of one phase of a key. */
static double sent_bytes(const ty_fold_graph *graph, const ty_program *program,
                         const ty_costs *costs, const ty_fold_key *key, uint32_t phase)
{
    const ty_stage_program *code = &program->stages[key->position];
    double bytes = 0.0;

    for (uint32_t i = 0; i < code->instruction_count; i++) {
        const ty_instruction *in = &code->instructions[i];
        if (in->op == TY_OP_SEND && in->peer_stage % graph->position_count == key->peer &&
            in->micro_batch % key->period == phase)
            bytes += costs->instructions[key->position][i].edge_bytes;
    }
    return bytes;
}

static void add_edge(const ty_fold_graph *graph, const ty_fold_edge *edge, double bytes,
                     ty_link_load *loads)
{
    for (uint32_t i = 0; i < edge->link_count; i++)
        loads[graph->links[edge->first_link + i]].bytes += bytes;
}

/* A collective of a pattern, with what each leg of each strand carries. */
static void add_exchange(const ty_fold_graph *graph, const ty_pattern *pattern,
                         const ty_instruction_cost *cost, ty_link_load *loads)
{
    uint32_t edge = graph->groups[pattern - graph->patterns.patterns].first_edge;
    ty_strand strands[TY_MOST_STRANDS];

    for (uint32_t m = 0; m < pattern->member_count; m++) {
        const uint32_t count = ty_pattern_strands(pattern, m, cost, strands);
        for (uint32_t i = 0; i < count * graph->width; i++)
            for (uint32_t l = 0; l < strands[i % count].count; l++, edge++)
                add_edge(graph, &graph->edges[edge], strands[i % count].legs[l].message.bytes,
                         loads);
    }
}

/* Every collective of a position that is its pattern's first: the tied one has the same. */
static void add_exchanges(const ty_fold_graph *graph, const ty_program *program,
                          const ty_costs *costs, uint32_t position, ty_link_load *loads)
{
    for (uint32_t i = 0; i < program->stages[position].instruction_count; i++) {
        const ty_instruction *in = &program->stages[position].instructions[i];
        if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
            continue;
        const ty_pattern *pattern =
            ty_pattern_of(&graph->patterns, graph->plan, &graph->plan->buckets[in->bucket],
                          in->op == TY_OP_GATHER ? TY_GATHER_PHASE : in->phase);
        if (pattern != NULL && pattern->position == position)
            add_exchange(graph, pattern, &costs->instructions[position][i], loads);
    }
}

static void add_key(const ty_fold_graph *graph, const ty_program *program, const ty_costs *costs,
                    const ty_fold_key *key, ty_link_load *loads)
{
    const uint32_t replicas = graph->plan->stages[key->position].replicas;

    for (uint32_t phase = 0; phase < key->period; phase++) {
        const double bytes = sent_bytes(graph, program, costs, key, phase);
        for (uint32_t q = 0; q < replicas; q++)
            for (uint32_t lane = 0; lane < graph->width; lane++)
                add_edge(graph,
                         &graph->edges[key->first_edge +
                                       ((size_t)q * key->period + phase) * graph->width + lane],
                         bytes, loads);
    }
}

static int by_busy_seconds(const void *left, const void *right)
{
    const ty_link_load *a = left, *b = right;
    if (a->busy_s != b->busy_s)
        return a->busy_s > b->busy_s ? -1 : 1;
    if (a->link != b->link)
        return a->link < b->link ? -1 : 1;
    return (int)a->is_backward - (int)b->is_backward;
}

ty_status ty_link_loads(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                        const ty_cluster *cluster, ty_link_load **out, uint32_t *count,
                        ty_error *error)
{
    ty_status status;
    const uint32_t links = ty_cluster_link_count(cluster) * 2;
    uint32_t kept = 0;
    ty_fold_graph graph = {.plan = plan, .cluster = cluster, .error = error};
    ty_link_load *loads = ty_alloc(links, sizeof *loads);

    if (loads == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(ty_fold_graph_fill(&graph, program), status, cleanup);
    for (uint32_t k = 0; k < graph.key_count; k++)
        add_key(&graph, program, costs, &graph.keys[k], loads);
    for (uint32_t p = 0; p < graph.position_count; p++)
        add_exchanges(&graph, program, costs, p, loads);
    for (uint32_t l = 0; l < links; l++)
        if (loads[l].bytes > 0.0)
            loads[kept++] = (ty_link_load){
                .link = l / 2,
                .is_backward = l % 2 == 1,
                .bytes = loads[l].bytes,
                .busy_s = loads[l].bytes / ty_cluster_link(cluster, l / 2)->bandwidth_bytes_per_s};
    qsort(loads, kept, sizeof *loads, by_busy_seconds);
    *out = loads;
    *count = kept;
    loads = NULL;
cleanup:
    ty_fold_graph_clear(&graph);
    ty_free(loads);
    return status;
}
