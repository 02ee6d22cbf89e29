/**
 * @file ty_partition.h
 * Dividing a graph of layers into pipeline stages with replicas, exactly: PipeDream's optimizer,
 * and the same with replicas on devices in place of servers.
 *
 * Both work on the graph's states: sets of layers that hold every predecessor of their members
 * (PipeDream draws them as antichains). A pipeline is a chain of states, from none of the layers to
 * all of them; its stages are the differences.
 *
 *     TY_CHECK(ty_layer_graph_read("graph.txt", &graph, error), status, cleanup);
 *     TY_CHECK(ty_states_find(graph, &states, error), status, cleanup);
 *     ty_divide_options options = {.levels = (ty_level[]){{4, 10e9}, {4, 1.25e9}},
 *                                  .level_count = 2, .activation_ratio = 1};
 *     TY_CHECK(ty_divide(states, &options, &division, error), status, cleanup);
 *
 * docs/design/partition.md has the formulas and figures.
 */
#ifndef TY_PARTITION_H
#define TY_PARTITION_H

#include "ty_core.h"

typedef struct ty_graph_layer {
    char *name;
    double compute_s; /* forward and backward of one mini-batch */
    double activation_bytes, parameter_bytes;
} ty_graph_layer;

typedef struct ty_graph_edge {
    uint32_t from, to; /* layers; `to` reads what `from` makes */
} ty_graph_edge;

typedef struct ty_layer_graph {
    uint32_t layer_count, words; /* 64-bit words of a set of layers: bit i is layer i */
    ty_graph_layer *layers;      /* in any order */
    uint64_t *sources, *readers; /* [layer_count][words] */
    uint64_t *ancestors;         /* [layer_count][words], the layer itself included */
    uint32_t *order;             /* topological; among equals the lowest layer first */
    ty_arena *arena;             /* holds all of the above */
} ty_layer_graph;

/**
 * A graph from copies of its parts. Repeated edges count once.
 * @return TY_EINVAL for no layer, figures that are not finite and >= 0, edges to nowhere, cycles
 */
ty_status ty_layer_graph_make(const ty_graph_layer *layers, uint32_t layer_count,
                              const ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * A PipeDream profile (graph.txt) as PipeDream's optimizer sees it: sources called "Input..." and
 * sinks called "__getitem__..." are left out; layers are in topological order. "-" is stdin.
 */
ty_status ty_layer_graph_read(const char *path, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * A graph with fewer states: each run of layers after a branching one, where each layer is the only
 * reader of the one before and reads nothing else, becomes one layer (PipeDream's
 * compress_branches). It has the sum of its members' time and parameters, and the activations that
 * leave it. Cuts inside of it are lost.
 * @param owners [out, graph->layer_count] the merged layer that each layer belongs to
 */
ty_status ty_layer_graph_merge(const ty_layer_graph *graph, ty_layer_graph **out, uint32_t *owners,
                               ty_error *error) TY_MUST_CHECK;
void ty_layer_graph_free(ty_layer_graph *graph);

/**
 * The prefixes of every pipeline, ascending by compute time, then by number of layers, then as sets
 * of bits: a part comes before the whole. State 0 is empty, the last one is the largest. They are
 * PipeDream's: they grow from the first source by adding, with all its predecessors, a reader of
 * something that is in.
 */
typedef struct ty_states {
    uint32_t count, words;
    uint64_t *sets;                                         /* [count][words] */
    double *compute_s, *activation_bytes, *parameter_bytes; /* [count] of all that is in */
    double *output_bytes; /* [count] what PipeDream takes to cross the cut: the activations of the
                             last layers, and of each predecessor of one of them that feeds a layer
                             which is no predecessor of that one */
    ty_arena *arena;
} ty_states;
#define TY_MOST_STATES 4096u
/** @return TY_ELIMIT where there would be more than TY_MOST_STATES */
ty_status ty_states_find(const ty_layer_graph *graph, ty_states **out,
                         ty_error *error) TY_MUST_CHECK;
bool ty_state_has(const ty_states *states, uint32_t state, uint32_t layer);
/** Whether all of `part` is in `whole`; a state is inside itself. */
bool ty_state_is_inside(const ty_states *states, uint32_t part, uint32_t whole);
void ty_states_free(ty_states *states);

/** A level of a hierarchy of machines: so many units, each of the level below, joined by links. */
typedef struct ty_level {
    uint32_t units;
    double bandwidth_bytes_per_s;
} ty_level;
#define TY_MOST_LEVELS 8
#define TY_MOST_DEVICES 4096

typedef struct ty_divide_options {
    const ty_level *levels; /* innermost first: {4, 10e9}, {2, 1.25e9} is two servers of four */
    uint32_t level_count;
    double activation_ratio; /* activations travel divided by this; 0: their transfers are free */
    double memory_bytes;     /* of a device, as PipeDream counts it; 0: no limit */
    bool is_straight;        /* no replicas */
    bool may_use_fewer;      /* devices may stay idle */
    bool is_flat;            /* replicas on devices in place of servers */
} ty_divide_options;

/** A part of a division: a stage, or a run of stages that is divided again one level below. */
typedef struct ty_division_part {
    uint32_t parent;       /* part that this one divides; TY_NO_PART: the whole */
    uint32_t level;        /* whose units it gets; 0: devices, so that it is a stage */
    uint32_t from, to;     /* states: its layers are those of `to` that are not in `from` */
    uint32_t units;        /* replicas of what is inside */
    uint32_t first_device; /* of its first replica; the others follow */
    double time_s;         /* per mini-batch, gradient exchange included */
} ty_division_part;
#define TY_NO_PART UINT32_MAX

typedef struct ty_division {
    double time_s;          /* per mini-batch of the slowest stage or transfer: the objective */
    double single_device_s; /* all layers on one device */
    double data_parallel_s; /* all layers on every device, by the same formula */
    uint32_t part_count;
    ty_division_part *parts; /* parents before children, front of the pipeline first */
} ty_division;

/**
 * PipeDream's hierarchical optimizer, with its formula as it is coded, which differs from the
 * paper's (compute and exchange are added, and every parameter travels four times). At a level of M
 * units with bandwidth B, `Min` units in the unit below, for the states i..j (k: a state between):
 *
 *     base   T[i][j][m] = (C(i..j) + 4 (m-1) W(i..j) / (B m Min)) / m
 *     stage  S(k..j, m') = (C(k..j) + 4 (m'-1) W(k..j) / (B m')) / m'
 *     cut    X(k, m') = 2 O[k] / (B m') / ratio, after j too unless j is the last
 *     T[i][j][m] = min(base, min over k, m' of max(T[i][k][m-m'], S(k..j, m'), X(k, m'), X(j, m')))
 *
 * C of a level is T with all units of the level below. Splits are between states that contain each
 * other. With a memory limit, stages with ceil((M-m)/m') (A+W) above it are skipped.
 * Source: msr-fiddle/pipedream, optimizer/optimizer_graph_hierarchical.py; Narayanan et al., SOSP
 * 2019, section 3.1. O(levels N^3 M^2) at worst; the bound T[i][k][m] >= C(i..k)/devices leaves a
 * few k of each.
 *
 * `is_flat`: devices are numbered through the servers, and a part is a stage on any number of
 * consecutive devices, or a run of stages on whole units of a higher level, divided as above.
 * Gradients travel at the bandwidth of the highest level that its devices span, activations at that
 * of its devices and the neighbor. The hierarchical division is among those looked at.
 *
 * Of equally fast divisions, one with fewest devices where some may stay idle; else the first
 * found.
 * @return TY_EINFEASIBLE where nothing fits, with what there is to hold and the limit; TY_EINVAL
 * for options out of range
 */
ty_status ty_divide(const ty_states *states, const ty_divide_options *options, ty_division **out,
                    ty_error *error) TY_MUST_CHECK;
void ty_division_free(ty_division *division);

#endif
