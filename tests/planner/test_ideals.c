/* Graphs, PipeDream's states and merging, against masks of small graphs. */
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

Test(ideals, are_downsets_and_ascend)
{
    uint64_t seed = test_seed("ideals");
    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t state = start(seed, i);
        small_graph g = random_graph(&state, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g);
        ty_states *states = NULL;
        uint32_t masks[1 << MOST_SMALL], count = pipedream_states(&g, masks);
        cr_assert_eq(ty_states_find(graph, &states, NULL), TY_OK);
        cr_assert_eq(states->count, count, "graph %u: %u ideals, not %u", i, states->count, count);
        for (uint32_t k = 0; k < count; k++) {
            cr_assert(is_ideal(&g, (uint32_t)states->sets[k]));
            for (uint32_t before = 0; before < k; before++) {
                cr_assert_neq(states->sets[before], states->sets[k]);
                cr_assert_eq(ty_state_is_inside(states, before, k),
                             (states->sets[before] & ~states->sets[k]) == 0);
                cr_assert_not(ty_state_is_inside(states, k, before));
            }
        }
        cr_assert_eq(states->sets[0], 0);
        ty_states_free(states);
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
        cr_assert_eq(ty_states_find(graph, &s, NULL), TY_OK);
        cr_assert_eq(s->count, count, "graph %u", i);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t mask = (uint32_t)s->sets[k];
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

/* The merged graph's states must be ideals of the given one, and its totals must stay the same. */
Test(ideals, merging_keeps_a_part_of_them)
{
    uint64_t seed = test_seed("merge");
    uint32_t merged_count = 0;

    for (uint32_t i = 1; i <= GRAPHS; i++) {
        uint64_t random = start(seed, i);
        small_graph g = random_graph(&random, MOST_SMALL);
        ty_layer_graph *graph = graph_of(&g), *merged = NULL;
        ty_states *states = NULL;
        uint32_t owners[MOST_SMALL];
        double compute_s = 0, parameter_bytes = 0;
        ty_error error = {0};

        cr_assert_eq(ty_layer_graph_merge(graph, &merged, owners, &error), TY_OK, "%s",
                     error.message);
        merged_count += merged->layer_count < g.n;
        cr_assert_eq(ty_states_find(merged, &states, NULL), TY_OK);
        for (uint32_t k = 0; k < states->count; k++) {
            uint32_t mask = 0;
            for (uint32_t v = 0; v < g.n; v++)
                mask |= (uint32_t)ty_state_has(states, k, owners[v]) << v;
            cr_assert(is_ideal(&g, mask));
        }
        for (uint32_t v = 0; v < merged->layer_count; v++) {
            compute_s += merged->layers[v].compute_s;
            parameter_bytes += merged->layers[v].parameter_bytes;
        }
        cr_assert_eq(compute_s, sum_of(&g, (1u << g.n) - 1, offsetof(ty_graph_layer, compute_s)));
        cr_assert_eq(parameter_bytes,
                     sum_of(&g, (1u << g.n) - 1, offsetof(ty_graph_layer, parameter_bytes)));
        ty_states_free(states);
        ty_layer_graph_free(merged);
        ty_layer_graph_free(graph);
    }
    cr_assert_gt(merged_count, 5, "%u", merged_count);
}

/* Thirteen parallel operations have more states than the tables support. */
Test(ideals, too_many_are_told)
{
    enum { WIDTH = 13 };
    ty_graph_layer layers[WIDTH + 1] = {{0}};
    ty_graph_edge edges[WIDTH];
    ty_layer_graph *graph = NULL;
    ty_states *states = NULL;
    ty_error error = {0};

    for (uint32_t i = 0; i < WIDTH; i++)
        edges[i] = (ty_graph_edge){0, i + 1};
    cr_assert_eq(ty_layer_graph_make(layers, WIDTH + 1, edges, WIDTH, &graph, &error), TY_OK);
    cr_assert_eq(ty_states_find(graph, &states, &error), TY_ELIMIT);
    cr_assert(strstr(error.message, "4096") != NULL, "%s", error.message);
    ty_layer_graph_free(graph);
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
