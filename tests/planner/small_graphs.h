/* Random graphs of a few layers, as bit masks, and queries about their ideals: slow and obvious. */
#ifndef TY_TEST_SMALL_GRAPHS_H
#define TY_TEST_SMALL_GRAPHS_H

#include "ty_planner.h"

#define MOST_SMALL 7

typedef struct small_graph {
    uint32_t n;
    uint32_t sources[MOST_SMALL], readers[MOST_SMALL]; /* masks */
    uint32_t ancestors[MOST_SMALL];                    /* itself left out */
    ty_graph_layer layers[MOST_SMALL];
    ty_graph_edge edges[MOST_SMALL * MOST_SMALL];
    uint32_t edge_count;
} small_graph;

uint64_t next_random(uint64_t *state);
uint32_t below(uint64_t *state, uint32_t limit);
uint64_t test_seed(const char *name);

/** Values are small integers; layers are in no particular order. */
small_graph random_graph(uint64_t *state, uint32_t most_layers);
ty_layer_graph *graph_of(const small_graph *g);

/** Whether a mask contains all inputs of its members. */
bool is_ideal(const small_graph *g, uint32_t mask);
/** All masks that PipeDream's antichains lead to, the empty one first.
 * @return number of masks */
uint32_t pipedream_states(const small_graph *g, uint32_t masks[1 << MOST_SMALL]);
/** Bytes of PipeDream's augmented antichain. */
double augmented_bytes(const small_graph *g, uint32_t mask);
/** Bytes of the tensors that cross a cut, each counted once, and the number of these tensors. */
double crossing_bytes(const small_graph *g, uint32_t mask, uint32_t *tensors);
double sum_of(const small_graph *g, uint32_t mask, size_t field_offset);

#endif
