#include "small_graphs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(next_random(state) >> 11) % limit;
}

uint64_t test_seed(const char *name)
{
    const char *text = getenv("TY_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20240607;
    fprintf(stderr, "%s: seed %llu (TY_TEST_SEED)\n", name, (unsigned long long)seed);
    return seed;
}

static void shuffle(uint64_t *state, uint32_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t other = below(state, i), saved = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = saved;
    }
}

small_graph random_graph(uint64_t *state, uint32_t most_layers)
{
    small_graph g = {.n = 1 + below(state, most_layers)};
    uint32_t number[MOST_SMALL], density = 1 + below(state, 4);

    shuffle(state, number, g.n);
    for (uint32_t i = 0; i < g.n; i++) {
        uint32_t to = number[i];
        g.layers[to] = (ty_graph_layer){.compute_s = below(state, 7),
                                        .activation_bytes = below(state, 5),
                                        .parameter_bytes = below(state, 4)};
        for (uint32_t k = 0; k < i; k++) {
            uint32_t from = number[k];
            if (below(state, 5) >= density && k + 1 != i)
                continue;
            if (k + 1 == i && below(state, 4) == 0)
                continue;
            g.edges[g.edge_count++] = (ty_graph_edge){from, to};
            g.sources[to] |= 1u << from;
            g.readers[from] |= 1u << to;
            g.ancestors[to] |= 1u << from | g.ancestors[from];
        }
    }
    return g;
}

ty_layer_graph *graph_of(const small_graph *g)
{
    ty_layer_graph *graph = NULL;
    ty_error error = {0};
    ty_status status =
        ty_layer_graph_make(g->layers, g->n, g->edges, g->edge_count, &graph, &error);
    cr_assert_eq(status, TY_OK, "%s", error.message);
    return graph;
}

bool is_ideal(const small_graph *g, uint32_t mask)
{
    for (uint32_t v = 0; v < g->n; v++)
        if ((mask >> v & 1) != 0 && (g->sources[v] & ~mask) != 0)
            return false;
    return true;
}

uint32_t pipedream_states(const small_graph *g, uint32_t masks[1 << MOST_SMALL])
{
    bool is_known[1 << MOST_SMALL] = {false};
    uint32_t count = 0, first = 0;

    while (g->sources[first] != 0)
        first++;
    masks[count++] = 0;
    masks[count++] = 1u << first;
    is_known[1u << first] = true;
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t v = 0; v < g->n; v++) {
            uint32_t next = masks[i] | 1u << v | g->ancestors[v];
            if ((g->sources[v] & masks[i]) != 0 && !is_known[next]) {
                is_known[next] = true;
                masks[count++] = next;
            }
        }
    return count;
}

double augmented_bytes(const small_graph *g, uint32_t mask)
{
    uint32_t handed = 0;
    double bytes = 0;

    for (uint32_t a = 0; a < g->n; a++) {
        if ((mask >> a & 1) == 0 || (g->readers[a] & mask) != 0)
            continue;
        handed |= 1u << a;
        for (uint32_t p = 0; p < g->n; p++)
            if ((g->ancestors[a] >> p & 1) != 0 &&
                (g->readers[p] & ~(g->ancestors[a] | 1u << a)) != 0)
                handed |= 1u << p;
    }
    for (uint32_t v = 0; v < g->n; v++)
        bytes += (handed >> v & 1) != 0 ? g->layers[v].activation_bytes : 0;
    return bytes;
}

double crossing_bytes(const small_graph *g, uint32_t mask, uint32_t *tensors)
{
    double bytes = 0;
    *tensors = 0;
    for (uint32_t v = 0; v < g->n; v++)
        if ((mask >> v & 1) != 0 && (g->readers[v] & ~mask) != 0) {
            bytes += g->layers[v].activation_bytes;
            ++*tensors;
        }
    return bytes;
}

double sum_of(const small_graph *g, uint32_t mask, size_t field_offset)
{
    double sum = 0;
    for (uint32_t v = 0; v < g->n; v++)
        if ((mask >> v & 1) != 0)
            sum += *(const double *)((const char *)&g->layers[v] + field_offset);
    return sum;
}
