/* Everything that a program sends in a step: see traffic.h. */
#include "traffic.h"

static void visit_send(ty_visit *v, const ty_instruction *in)
{
    const ty_fold_graph *graph = v->graph;
    const ty_fold_key *key =
        ty_fold_key_of(graph, v->pipeline_rank, in->peer_stage % graph->pipeline_size);
    const double bytes = v->costs->instructions[v->pipeline_rank][v->instruction].edge_bytes;

    if (key == NULL)
        return;
    for (v->replica = 0; v->replica < graph->plan->stages[v->pipeline_rank].replicas; v->replica++)
        for (uint32_t replica_rank = 0; replica_rank < graph->width; replica_rank++) {
            const size_t place = (size_t)v->replica * key->period + in->micro_batch % key->period;
            const ty_fold_edge *edge =
                &graph->edges[key->first_edge + place * graph->width + replica_rank];
            v->tell(v->context, v, edge, ty_fold_device(graph, edge->from),
                    ty_fold_device(graph, edge->to), bytes);
        }
}

static void visit_group(ty_visit *v, const ty_pattern *pattern, uint32_t side,
                        const ty_instruction_cost *cost)
{
    const ty_fold_graph *graph = v->graph;
    uint32_t number = ty_fold_group_of(graph, pattern, side)->first_edge;
    ty_strand strands[TY_MOST_STRANDS];

    for (uint32_t m = 0; m < pattern->member_count; m++) {
        const uint32_t count = ty_pattern_strands(pattern, m, cost, strands);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t l = 0; l < strands[i].count; l++, number++) {
                const ty_leg *leg = &strands[i].legs[l];
                v->tell(
                    v->context, v, &graph->edges[number],
                    ty_fold_device(graph, ty_pattern_rank(graph->plan, pattern, leg->from, side)),
                    ty_fold_device(graph, ty_pattern_rank(graph->plan, pattern, leg->to, side)),
                    leg->message.bytes);
            }
    }
}

/* All traffic of a step; a collective of two pipeline ranks once. */
void ty_visit_all(ty_visit *v)
{
    for (v->pipeline_rank = 0; v->pipeline_rank < v->graph->pipeline_size; v->pipeline_rank++) {
        const ty_stage_program *code = &v->program->stages[v->pipeline_rank];
        for (v->instruction = 0; v->instruction < code->instruction_count; v->instruction++) {
            const ty_instruction *in = &code->instructions[v->instruction];
            const ty_parallel_instruction *parallel =
                ty_parallel_instruction_of(v->parallel, v->pipeline_rank, v->instruction);
            for (int k = 0; parallel != NULL && k < TY_PARALLELISM_COUNT; k++) {
                const ty_pattern *pattern = ty_pattern_of_parallel(
                    &v->graph->patterns, v->pipeline_rank, (ty_parallelism)k);
                if (!(parallel->costs[k].seconds > 0.0) || pattern == NULL)
                    continue;
                for (uint32_t side = 0; side < pattern->groups; side++) {
                    v->replica = side / ty_parallel_group_count(v->graph->plan, (ty_parallelism)k);
                    visit_group(v, pattern, side, &parallel->costs[k]);
                }
            }
            if (in->op == TY_OP_SEND)
                visit_send(v, in);
            if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
                continue;
            const ty_pattern *pattern = ty_pattern_of(
                &v->graph->patterns, v->graph->plan, &v->graph->plan->buckets[in->bucket],
                in->op == TY_OP_GATHER ? TY_GATHER_PHASE : in->phase);
            if (pattern == NULL || pattern->pipeline_rank != v->pipeline_rank)
                continue;
            v->replica = TY_NO_EDGE;
            for (uint32_t side = 0; side < pattern->groups; side++)
                visit_group(v, pattern, side,
                            &v->costs->instructions[v->pipeline_rank][v->instruction]);
        }
    }
}

ty_status ty_traffic_graph_fill(ty_traffic_graph *all, const ty_plan *plan,
                                const ty_program *program, const ty_costs *costs,
                                const ty_cluster *cluster, ty_error *error)
{
    ty_status status =
        ty_parallel_exchanges_find(plan, program, costs, cluster, &all->parallel, error);

    all->graph = (ty_fold_graph){
        .plan = plan, .cluster = cluster, .parallel = &all->parallel, .error = error};
    return status == TY_OK ? ty_fold_graph_fill(&all->graph, program) : status;
}

void ty_traffic_graph_clear(ty_traffic_graph *all)
{
    ty_fold_graph_clear(&all->graph);
    ty_parallel_exchanges_clear(&all->parallel);
}
