/* Everything that a program sends in a step: see traffic.h. */
#include "traffic.h"

static void visit_send(ty_visit *v, const ty_instruction *in)
{
    const ty_fold_graph *graph = v->graph;
    const ty_fold_key *key =
        ty_fold_key_of(graph, v->position, in->peer_stage % graph->position_count);
    const double bytes = v->costs->instructions[v->position][v->instruction].edge_bytes;

    if (key == NULL)
        return;
    for (v->replica = 0; v->replica < graph->plan->stages[v->position].replicas; v->replica++)
        for (uint32_t lane = 0; lane < graph->width; lane++) {
            const size_t place = (size_t)v->replica * key->period + in->micro_batch % key->period;
            const ty_fold_edge *edge = &graph->edges[key->first_edge + place * graph->width + lane];
            v->tell(v->context, v, edge, ty_plan_device_of_lane(graph->plan, edge->from, lane),
                    ty_plan_device_of_lane(graph->plan, edge->to, lane), bytes);
        }
}

static void visit_exchange(ty_visit *v, const ty_pattern *pattern)
{
    const ty_fold_graph *graph = v->graph;
    const ty_instruction_cost *cost = &v->costs->instructions[v->position][v->instruction];
    uint32_t number = graph->groups[pattern - graph->patterns.patterns].first_edge;
    ty_strand strands[TY_MOST_STRANDS];

    v->replica = TY_NO_EDGE;
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        const uint32_t count = ty_pattern_strands(pattern, m, cost, strands);
        for (uint32_t i = 0; i < count * pattern->groups; i++)
            for (uint32_t l = 0; l < strands[i % count].count; l++, number++) {
                const ty_leg *leg = &strands[i % count].legs[l];
                const uint32_t side = i / count;
                v->tell(v->context, v, &graph->edges[number],
                        ty_fold_member_device(graph, pattern, leg->from, side),
                        ty_fold_member_device(graph, pattern, leg->to, side), leg->message.bytes);
            }
    }
}

/* Everything that is sent in a step; a collective of two positions once. */
void ty_visit_all(ty_visit *v)
{
    for (v->position = 0; v->position < v->graph->position_count; v->position++) {
        const ty_stage_program *code = &v->program->stages[v->position];
        for (v->instruction = 0; v->instruction < code->instruction_count; v->instruction++) {
            const ty_instruction *in = &code->instructions[v->instruction];
            if (in->op == TY_OP_SEND)
                visit_send(v, in);
            if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
                continue;
            const ty_pattern *pattern = ty_pattern_of(
                &v->graph->patterns, v->graph->plan, &v->graph->plan->buckets[in->bucket],
                in->op == TY_OP_GATHER ? TY_GATHER_PHASE : in->phase);
            if (pattern != NULL && pattern->position == v->position)
                visit_exchange(v, pattern);
        }
    }
}
