/* Graphs, their ideals, PipeDream's states, merging and chains, against masks of small graphs. */
#include "small_graphs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GRAPHS 600

static uint64_t start(uint64_t seed, uint32_t number)
{
    return seed + number * 0x9e3779b97f4a7c15u;
}

Test(ideals, are_all_downsets_and_ascend)
{
    uint64_t seed = test_seed("ideals");
    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t state = start(seed, i);
        small_graph g = random_graph(&state, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g);
        ty_ideals *ideals = NULL;
        uint32_t count = 0;
        cr_assert_eq(ty_ideals_find(graph, TY_IDEALS_ALL, 0, &ideals, NULL), TY_OK);
        for (uint32_t mask = 0; mask < 1u << g.n; mask++)
            count += is_ideal(&g, mask);
        cr_assert_eq(ideals->count, count, "graph %u: %u ideals, not %u", i, ideals->count, count);
        for (uint32_t k = 0; k < count; k++) {
            cr_assert(is_ideal(&g, (uint32_t)ideals->sets[k]));
            for (uint32_t before = 0; before < k; before++) {
                cr_assert_neq(ideals->sets[before], ideals->sets[k]);
                cr_assert_eq(ty_ideal_is_inside(ideals, before, k),
                             (ideals->sets[before] & ~ideals->sets[k]) == 0);
                cr_assert_not(ty_ideal_is_inside(ideals, k, before));
            }
        }
        cr_assert_eq(ideals->sets[0], 0);
        cr_assert_eq(ideals->sets[count - 1], (1u << g.n) - 1);
        ty_ideals_free(ideals);
        ty_layer_graph_free(graph);
    }
}

Test(ideals, states_are_pipedreams)
{
    uint64_t seed = test_seed("states");
    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t random = start(seed, i);
        small_graph g = random_graph(&random, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g);
        ty_states *s = NULL;
        uint32_t masks[1 << MOST_SMALL], count = pipedream_states(&g, masks), found = 0;
        cr_assert_eq(ty_states_find(graph, 0, &s, NULL), TY_OK);
        cr_assert_eq(s->ideals->count, count, "graph %u", i);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t mask = (uint32_t)s->ideals->sets[k];
            for (uint32_t m = 0; m < count; m++)
                found += masks[m] == mask;
            cr_assert_eq(s->compute_s[k], sum_of(&g, mask, offsetof(ty_graph_layer, compute_s)));
            cr_assert_eq(s->parameter_bytes[k],
                         sum_of(&g, mask, offsetof(ty_graph_layer, parameter_bytes)));
            cr_assert_eq(s->activation_bytes[k],
                         sum_of(&g, mask, offsetof(ty_graph_layer, activation_bytes)));
            cr_assert_eq(s->output_bytes[k], augmented_bytes(&g, mask), "graph %u, state %x", i,
                         mask);
        }
        cr_assert_eq(found, count, "graph %u", i);
        ty_states_free(s);
        ty_layer_graph_free(graph);
    }
}

/* The merged graph's ideals must be ideals of the given one, and nothing may be lost or made. */
static void check_merge(const small_graph *g, const ty_layer_graph *graph, uint32_t limit)
{
    ty_layer_graph *merged = NULL;
    ty_ideals *ideals = NULL;
    uint32_t owners[MOST_SMALL];
    double compute_s = 0, parameter_bytes = 0;
    ty_error error = {0};
    ty_status status = ty_layer_graph_merge(graph, limit, &merged, owners, &error);

    cr_assert_eq(status, TY_OK, "%s", error.message);
    cr_assert_eq(ty_ideals_find(merged, TY_IDEALS_ALL, 0, &ideals, NULL), TY_OK);
    cr_assert(limit == 0 || ideals->count <= limit);
    for (uint32_t i = 0; i < ideals->count; i++) {
        uint32_t mask = 0;
        for (uint32_t v = 0; v < g->n; v++)
            mask |= (uint32_t)ty_ideal_has(ideals, i, owners[v]) << v;
        cr_assert(is_ideal(g, mask));
    }
    for (uint32_t v = 0; v < merged->layer_count; v++) {
        compute_s += merged->layers[v].compute_s;
        parameter_bytes += merged->layers[v].parameter_bytes;
    }
    cr_assert_eq(compute_s, sum_of(g, (1u << g->n) - 1, offsetof(ty_graph_layer, compute_s)));
    cr_assert_eq(parameter_bytes,
                 sum_of(g, (1u << g->n) - 1, offsetof(ty_graph_layer, parameter_bytes)));
    ty_ideals_free(ideals);
    ty_layer_graph_free(merged);
}

Test(ideals, merging_keeps_a_part_of_them)
{
    uint64_t seed = test_seed("merge");
    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t state = start(seed, i);
        small_graph g = random_graph(&state, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g);
        check_merge(&g, graph, 0);
        check_merge(&g, graph, 8);
        ty_layer_graph_free(graph);
    }
}

/* Cells of 2 x 5 parallel operations one behind the other, as NASNet's, each reading the two cells
 * before: far too many ideals by themselves, few when equal cells are merged alike. */
Test(ideals, repeated_cells_are_merged)
{
    enum { CELLS = 20, WIDTH = 10, SIZE = WIDTH + 1, COUNT = 1 + CELLS * SIZE };
    ty_graph_layer layers[COUNT] = {{0}};
    ty_graph_edge edges[COUNT * 3];
    uint32_t edge_count = 0, owners[COUNT];
    ty_layer_graph *graph = NULL, *merged = NULL;
    ty_states *states = NULL;
    ty_error error = {0};

    for (uint32_t i = 0; i < COUNT; i++)
        layers[i] = (ty_graph_layer){.compute_s = 1 + i % SIZE, .activation_bytes = 1};
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        uint32_t first = 1 + cell * SIZE, join = first + WIDTH;
        for (uint32_t i = 0; i < WIDTH; i++) {
            edges[edge_count++] = (ty_graph_edge){first - 1, first + i};
            if (cell > 0 && i % 2 == 0)
                edges[edge_count++] = (ty_graph_edge){first - 1 - SIZE, first + i};
            edges[edge_count++] = (ty_graph_edge){first + i, join};
        }
    }
    cr_assert_eq(ty_layer_graph_make(layers, COUNT, edges, edge_count, &graph, &error), TY_OK);
    cr_assert_eq(ty_states_find(graph, 0, &states, &error), TY_ELIMIT);
    cr_assert(strstr(error.message, "4096") != NULL, "%s", error.message);
    cr_assert_eq(ty_layer_graph_merge(graph, 500, &merged, owners, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_states_find(merged, 500, &states, &error), TY_OK, "%s", error.message);
    cr_assert_gt(states->ideals->count, CELLS);
    /* Alike, one after the other; the first reads one cell only. */
    for (uint32_t i = 1 + SIZE; i + SIZE < COUNT; i++)
        cr_assert_eq(owners[i + SIZE] - owners[i], owners[1 + 2 * SIZE] - owners[1 + SIZE]);
    ty_states_free(states);
    ty_layer_graph_free(merged);
    ty_layer_graph_free(graph);
}

static void try_orders(const small_graph *g, uint32_t mask, double bytes, double *least)
{
    uint32_t tensors;
    bytes += crossing_bytes(g, mask, &tensors);
    if (mask == (1u << g->n) - 1)
        *least = fmin(*least, bytes);
    for (uint32_t v = 0; v < g->n; v++)
        if ((mask >> v & 1) == 0 && (g->sources[v] & ~mask) == 0)
            try_orders(g, mask | 1u << v, bytes, least);
}

static void check_chain(const small_graph *g, const ty_layer_graph *graph, uint32_t limit,
                        uint32_t number)
{
    ty_downset_chain *chain = NULL;
    double least = HUGE_VAL, bytes = 0;
    uint32_t mask = 0;

    cr_assert_eq(ty_downset_chain_find(graph, limit, &chain, NULL), TY_OK);
    cr_assert_eq(chain->count, g->n);
    for (uint32_t i = 0; i <= g->n; i++) {
        uint32_t tensors;
        double cut = crossing_bytes(g, mask, &tensors);
        cr_assert(is_ideal(g, mask), "graph %u", number);
        cr_assert_eq(chain->cut_bytes[i], cut);
        cr_assert_eq(chain->cut_tensors[i], tensors);
        bytes += cut;
        mask |= i < g->n ? 1u << chain->layers[i] : 0;
    }
    cr_assert_eq(mask, (1u << g->n) - 1);
    try_orders(g, 0, 0, &least);
    if (limit == 0)
        cr_assert_eq(bytes, least, "graph %u: %g bytes, not %g", number, bytes, least);
    else
        cr_assert_geq(bytes, least);
    ty_downset_chain_free(chain);
}

Test(ideals, chains_carry_the_least)
{
    uint64_t seed = test_seed("chains");
    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t state = start(seed, i);
        small_graph g = random_graph(&state, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g);
        check_chain(&g, graph, 0, i);
        check_chain(&g, graph, 8, i);
        ty_layer_graph_free(graph);
    }
}

/* A workload's chain: gnmt's attention reads the encoder's end at every step of the decoder. */
Test(ideals, chains_of_the_zoo)
{
    static const char *const names[] = {"lenet", "gnmt-8", "t5-base", "gpt-tiny"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ty_workload *w = NULL;
        ty_layer_graph *graph = NULL;
        ty_downset_chain *chain = NULL;
        ty_error error = {0};
        double *layer_s;
        cr_assert_eq(ty_workload_open(names[i], &w, &error), TY_OK, "%s", error.message);
        layer_s = ty_alloc(w->layer_count, sizeof *layer_s);
        cr_assert_eq(ty_layer_graph_of_workload(w, 2, layer_s, &graph, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_downset_chain_find(graph, 2000, &chain, &error), TY_OK, "%s: %s", names[i],
                     error.message);
        cr_assert_eq(chain->count, w->layer_count);
        for (uint32_t k = 0; k <= chain->count; k++) { /* where the order is the workload's own */
            bool is_same = true;
            for (uint32_t l = 0; l < k; l++)
                is_same = is_same && chain->layers[l] < k;
            if (is_same)
                cr_assert_eq(chain->cut_bytes[k], 2 * (double)ty_workload_cut_bytes(w, k), "%s %u",
                             names[i], k);
        }
        ty_downset_chain_free(chain);
        ty_layer_graph_free(graph);
        ty_workload_free(w);
        ty_free(layer_s);
    }
}

Test(ideals, refusals)
{
    const ty_graph_layer good[2] = {{.compute_s = 1}, {.compute_s = 2}};
    const ty_graph_layer bad[1] = {{.name = "conv", .compute_s = NAN}};
    const ty_graph_edge circle[2] = {{0, 1}, {1, 0}}, nowhere[1] = {{0, 2}};
    ty_layer_graph *graph = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_layer_graph_make(good, 0, NULL, 0, &graph, &error), TY_EINVAL);
    cr_assert_eq(ty_layer_graph_make(bad, 1, NULL, 0, &graph, &error), TY_EINVAL);
    cr_assert(strstr(error.message, "conv") != NULL && strstr(error.message, "compute_s") != NULL);
    cr_assert_eq(ty_layer_graph_make(good, 2, circle, 2, &graph, &error), TY_EINVAL);
    cr_assert(strstr(error.message, "circle") != NULL);
    cr_assert_eq(ty_layer_graph_make(good, 2, nowhere, 1, &graph, &error), TY_EINVAL);
    cr_assert_eq(ty_layer_graph_read("/nonexistent/graph.txt", &graph, &error), TY_EIO);
    cr_assert_null(graph);
}
