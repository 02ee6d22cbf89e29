/* Smaller graphs with the same flow: against igraph on the complete graph, and reduced to nothing
 * for trivial graphs. */
#include "flow_reduce.h"
#include "graph.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

enum { VERTICES = 12, EDGES = 24 };

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

Test(flow_reduce, keeps_the_flow)
{
    uint32_t smaller = 0, connected = 0;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t state = seed;
        uint32_t ends[2 * EDGES], all_ends[2 * EDGES];
        double capacities[EDGES], all_capacities[EDGES], expected = -1, found = -1;
        flow_graph graph = {2 + random_below(&state, VERTICES - 1), 1 + random_below(&state, EDGES),
                            ends, capacities};
        const uint32_t source = random_below(&state, graph.vertex_count);
        const uint32_t target =
            (source + 1 + random_below(&state, graph.vertex_count - 1)) % graph.vertex_count;
        const graph_edges all = {graph.vertex_count, graph.edge_count, all_ends};
        for (uint32_t i = 0; i < 2 * graph.edge_count; i++)
            ends[i] = all_ends[i] = random_below(&state, graph.vertex_count);
        for (uint32_t e = 0; e < graph.edge_count; e++)
            capacities[e] = all_capacities[e] = 1 + random_below(&state, 20);
        cr_assert_eq(graph_max_flow(&all, all_capacities, source, target, &expected, NULL), TY_OK);
        cr_assert_eq(flow_reduce(&graph, source, target, NULL), TY_OK);
        cr_assert_eq(graph_max_flow(&(graph_edges){graph.vertex_count, graph.edge_count, ends},
                                    capacities, 0, 1, &found, NULL),
                     TY_OK);
        cr_assert(fabs(found - expected) <= 1e-9, "seed %llu: %g, not %g", (unsigned long long)seed,
                  found, expected);
        smaller += graph.vertex_count < all.vertex_count && graph.edge_count < all.edge_count;
        connected += expected > 0;
        /* Nothing reducible is left. */
        for (uint32_t v = 2; v < graph.vertex_count; v++) {
            uint32_t degree = 0;
            for (uint32_t i = 0; i < 2 * graph.edge_count; i++)
                degree += ends[i] == v;
            cr_assert_gt(degree, 2, "seed %llu: vertex %u has %u edges", (unsigned long long)seed,
                         v, degree);
        }
    }
    cr_assert_gt(smaller, 1000, "%u graphs", smaller);
    cr_assert_gt(connected, 1000, "%u graphs", connected);
}

/* A chain of a thousand links with a tree on each vertex reduces to one edge, with the minimum
 * capacity. */
Test(flow_reduce, chains_and_trees_are_one_edge)
{
    enum { LENGTH = 1000 };
    static uint32_t ends[2 * 3 * LENGTH];
    static double capacities[3 * LENGTH];
    flow_graph graph = {.vertex_count = 3 * LENGTH + 1, .ends = ends, .capacities = capacities};

    for (uint32_t i = 0; i < LENGTH; i++) {
        const uint32_t edges[3][2] = {
            {i, i + 1}, {i, LENGTH + 1 + 2 * i}, {LENGTH + 1 + 2 * i, LENGTH + 2 + 2 * i}};
        memcpy(&ends[2 * graph.edge_count], edges, sizeof edges);
        for (uint32_t e = 0; e < 3; e++)
            capacities[graph.edge_count++] = i == 700 ? 3 : 5;
    }
    cr_assert_eq(flow_reduce(&graph, 0, LENGTH, NULL), TY_OK);
    cr_assert_eq(graph.vertex_count, 2);
    cr_assert_eq(graph.edge_count, 1);
    cr_assert_eq(capacities[0], 3);
}
