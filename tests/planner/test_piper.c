/* Piper's search against every pipeline of small graphs, and on a graph of GNMT's shape. */
#include "gnmt_shape.h"
#include "small_graphs.h"

#include "ty_memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Small graphs -----------------------------------------------------------------------------
 */

typedef struct piper_case {
    ty_piper_input in;
    small_graph graph;
    ty_piper_layer layers[MOST_SMALL];
    ty_piper_degree degrees[MOST_SMALL][2];
    double edge_bytes[MOST_SMALL * MOST_SMALL];
    double sync[MOST_SMALL][2][2][2][MOST_SMALL * MOST_SMALL]; /* layer, degree, variant, way */
    bool has_second;
} piper_case;

static void make_variant(piper_case *c, uint64_t *state, uint32_t v, uint32_t t, uint32_t k)
{
    ty_piper_variant *out = &c->degrees[v][t].variants[k];
    const ty_piper_variant *first = &c->degrees[v][t].variants[0];

    *out = (ty_piper_variant){.name = k == 0 ? "vanilla" : "recompute",
                              .time_s = (4.0 + below(state, 8)) / (t + 1),
                              .parameter_bytes = below(state, 4),
                              .memory_bytes_per_micro_batch = below(state, 4),
                              .memory_bytes = below(state, 3),
                              .forward_bytes = c->sync[v][t][k][0],
                              .backward_bytes = c->sync[v][t][k][1]};
    for (uint32_t e = 0; e < c->graph.edge_count; e++) {
        out->forward_bytes[e] = c->graph.edges[e].to == v ? below(state, 2) : 0;
        out->backward_bytes[e] = c->graph.edges[e].from == v ? below(state, 2) : 0;
    }
    if (k == 0)
        return;
    out->time_s = first->time_s + 1 + below(state, 3);
    out->parameter_bytes = first->parameter_bytes;
    out->memory_bytes_per_micro_batch = first->memory_bytes_per_micro_batch / 2;
    out->memory_bytes = first->memory_bytes;
    memcpy(out->forward_bytes, first->forward_bytes, sizeof c->sync[v][t][k][0]);
    memcpy(out->backward_bytes, first->backward_bytes, sizeof c->sync[v][t][k][1]);
}

static void random_case(uint64_t *state, piper_case *c)
{
    memset(c, 0, sizeof *c);
    c->graph = random_graph(state, 5);
    c->has_second = below(state, 2) == 0;
    for (uint32_t v = 0; v < c->graph.n; v++) {
        c->layers[v] = (ty_piper_layer){.id = v, .degrees = c->degrees[v]};
        c->layers[v].degree_count = 1 + (below(state, 3) > 0);
        for (uint32_t t = 0; t < c->layers[v].degree_count; t++) {
            c->degrees[v][t].tensor = t + 1;
            c->degrees[v][t].variant_count = 1 + c->has_second;
            for (uint32_t k = 0; k <= c->has_second; k++)
                make_variant(c, state, v, t, k);
        }
    }
    for (uint32_t e = 0; e < c->graph.edge_count; e++)
        c->edge_bytes[e] = below(state, 9);
    c->in = (ty_piper_input){.memory_bytes = below(state, 3) == 0 ? 1e9 : 3 + below(state, 25),
                             .devices = 1 + below(state, 5),
                             .micro_batches = 1 + below(state, 4),
                             .bandwidth_bytes_per_s = 1 + below(state, 8),
                             .layer_count = c->graph.n,
                             .edge_count = c->graph.edge_count,
                             .layers = c->layers,
                             .edges = c->graph.edges,
                             .edge_bytes = c->edge_bytes};
}

/* Seconds and bytes of a stage whose layers run the variants of `picks`; < 0: a layer cannot. */
static double price(const piper_case *c, uint32_t mask, uint32_t tensor, uint32_t d,
                    uint32_t in_flight, uint32_t picks, double *bytes)
{
    double seconds = 0;

    *bytes = 0;
    for (uint32_t v = 0; v < c->graph.n; v++) {
        const ty_piper_variant *p;
        double cut = 0;
        if ((mask >> v & 1) == 0)
            continue;
        if (tensor > c->layers[v].degree_count)
            return -1;
        p = &c->degrees[v][tensor - 1].variants[picks >> v & 1];
        for (uint32_t e = 0; e < c->graph.edge_count; e++) {
            const ty_graph_edge *edge = &c->graph.edges[e];
            if (edge->to == v && (mask >> edge->from & 1) == 0)
                cut += 2 * (c->edge_bytes[e] + p->forward_bytes[e]);
            if (edge->from == v && (mask >> edge->to & 1) == 0)
                cut += 2 * (c->edge_bytes[e] + p->backward_bytes[e]);
        }
        seconds += p->time_s / d +
                   (cut / d + 4 * (d - 1.0) * p->parameter_bytes / d / c->in.micro_batches) /
                       c->in.bandwidth_bytes_per_s;
        *bytes += p->memory_bytes_per_micro_batch * in_flight + p->memory_bytes;
    }
    return seconds;
}

/* The least time over all choices of variants that fit. */
static double best_stage(const piper_case *c, uint32_t mask, uint32_t tensor, uint32_t d,
                         uint32_t in_flight)
{
    double best = HUGE_VAL;
    for (uint32_t picks = 0; picks < 1u << c->graph.n; picks++) {
        double bytes, seconds;
        if ((picks & ~mask) != 0 || (picks != 0 && !c->has_second))
            continue;
        seconds = price(c, mask, tensor, d, in_flight, picks, &bytes);
        if (seconds >= 0 && bytes <= c->in.memory_bytes)
            best = fmin(best, seconds);
    }
    return best;
}

/* All pipelines from the back: `after` is done with so many devices and replicas. */
static void try_pipelines(const piper_case *c, uint32_t after, uint32_t devices, uint32_t replicas,
                          double worst, double *best)
{
    const uint32_t all = (1u << c->graph.n) - 1;

    if (after == all)
        *best = fmin(*best, worst);
    for (uint32_t next = 0; next <= all; next++) {
        if ((next & after) != after || next == after || !is_ideal(&c->graph, all & ~next))
            continue;
        for (uint32_t t = 1; t <= 2; t++)
            for (uint32_t d = 1; devices + t * d <= c->in.devices; d++) {
                uint32_t total = replicas + d;
                double own;
                if (c->in.micro_batches % d != 0 || total > c->in.micro_batches)
                    continue;
                own = best_stage(c, next & ~after, t, d, (total + d - 1) / d);
                if (own < HUGE_VAL)
                    try_pipelines(c, next, devices + t * d, total, fmax(worst, own), best);
            }
    }
}

/* The stages of an answer, priced anew. */
static double price_answer(const piper_case *c, const ty_piper_division *d)
{
    uint32_t seen = 0, replicas = 0, devices = 0;
    double slowest = 0;

    for (uint32_t i = d->stage_count; i-- > 0;) {
        const ty_piper_stage *s = &d->stages[i];
        uint32_t mask = 0;
        double best = HUGE_VAL;
        for (uint32_t k = 0; k < s->layer_count; k++)
            mask |= 1u << s->layers[k];
        cr_assert_eq(seen & mask, 0);
        seen |= mask;
        replicas += s->replicas;
        devices += s->replicas * s->tensor;
        cr_assert(is_ideal(&c->graph, ((1u << c->graph.n) - 1) & ~seen));
        cr_assert_eq(s->in_flight, (replicas + s->replicas - 1) / s->replicas);
        cr_assert_leq(s->memory_bytes, c->in.memory_bytes);
        for (uint32_t picks = 0; picks < 1u << c->graph.n; picks++) {
            double bytes, seconds = price(c, mask, s->tensor, s->replicas, s->in_flight,
                                          c->has_second ? picks : 0, &bytes);
            if (fabs(seconds - s->time_s) <= 1e-12 * seconds &&
                fabs(bytes - s->memory_bytes) <= 1e-9)
                best = seconds;
        }
        cr_assert(best < HUGE_VAL, "no choice of variants takes %g s", s->time_s);
        slowest = fmax(slowest, best);
    }
    cr_assert_eq(seen, (1u << c->graph.n) - 1);
    cr_assert_leq(devices, c->in.devices);
    return slowest;
}

Test(piper, equals_brute_force)
{
    uint64_t seed = test_seed("piper");
    uint32_t feasible = 0, exact = 0;

    for (uint32_t i = 1; i <= 400; i++) {
        static piper_case c;
        uint64_t state = seed + i * 0x9e3779b97f4a7c15u;
        ty_piper_division *division = NULL;
        ty_error error = {0};
        double best = HUGE_VAL;
        ty_status status;
        random_case(&state, &c);
        try_pipelines(&c, 0, 0, 0, 0, &best);
        status = ty_divide_piper(&c.in, &division, &error);
        cr_assert_eq(status, best < HUGE_VAL ? TY_OK : TY_EINFEASIBLE, "case %u: %s", i,
                     error.message);
        if (division == NULL)
            continue;
        feasible++;
        cr_assert_leq(fabs(price_answer(&c, division) - division->time_s), 1e-12 * best);
        cr_assert_geq(division->time_s, best * (1 - 1e-12), "case %u", i);
        if (!c.has_second) /* else variants are picked greedily, as Piper does */
            cr_assert_leq(division->time_s, best * (1 + 1e-12), "case %u: %.17g, not %.17g", i,
                          division->time_s, best);
        exact += division->time_s <= best * (1 + 1e-12);
        ty_piper_division_free(division);
    }
    cr_assert_gt(feasible, 150);
    cr_assert_gt(exact * 10, feasible * 9);
}

Test(piper, runs_out_of_memory)
{
    static piper_case c;
    uint64_t state = 11;
    long failures = 0;

    do
        random_case(&state, &c);
    while (c.graph.n < 4 || c.in.devices < 3 || c.in.memory_bytes < 1e6);
    for (ty_status status = TY_ENOMEM; status != TY_OK; failures++) {
        ty_piper_division *division = NULL;
        ty_error error = {0};
        ty_memory_fail_after(failures + 1);
        status = ty_divide_piper(&c.in, &division, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || (status == TY_ENOMEM && error.message[0] != '\0'),
                  "allocation %ld: %s", failures + 1, error.message);
        ty_piper_division_free(division);
    }
    cr_assert_gt(failures, 20);
}

/* ---- GNMT's shape ------------------------------------------------------------------------------
 */

Test(piper, gnmt_has_as_many_ideals)
{
    ty_graph_layer layers[GNMT_LAYERS] = {{0}};
    ty_graph_edge edges[GNMT_MOST_EDGES];
    ty_layer_graph *graph = NULL;
    ty_ideals *ideals = NULL;
    ty_error error = {0};

    for (uint32_t v = 0; v < GNMT_LAYERS; v++)
        layers[v].compute_s = 1;
    cr_assert_eq(ty_layer_graph_make(layers, GNMT_LAYERS, edges, gnmt_edges(edges), &graph, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_ideals_find(graph, TY_IDEALS_ALL, 0, &ideals, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ideals->count, 17914, "%u", ideals->count);
    cr_assert_eq(ty_ideals_find(graph, TY_IDEALS_ALL, 1000, &ideals, &error), TY_ELIMIT);
    ty_ideals_free(ideals);
    ty_layer_graph_free(graph);
}
