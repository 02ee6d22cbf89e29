/**
 * @file ty_partition.h
 * Partitions a graph of layers into pipeline stages with replicas, exactly: PipeDream's optimizer,
 * and the same with replicas on devices instead of servers.
 *
 * Both work on the graph's states: sets of layers that contain every predecessor of their members
 * (PipeDream draws them as antichains). A pipeline is a chain of states from the empty set to all
 * layers; its stages are the differences.
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
    uint32_t from, to; /* layers; `to` reads the output of `from` */
} ty_graph_edge;

typedef struct ty_layer_graph {
    uint32_t layer_count, words; /* 64-bit words of a set of layers: bit i is layer i */
    ty_graph_layer *layers;      /* in any order */
    uint64_t *sources, *readers; /* [layer_count][words] */
    uint64_t *ancestors;         /* [layer_count][words], the layer itself included */
    uint32_t *order;             /* topological; ties by the lowest layer */
    ty_arena *arena;             /* owns all of the above */
} ty_layer_graph;

/**
 * Makes a graph from copies of layers and edges. Repeated edges count once.
 * @return TY_EINVAL for no layer, figures that are not finite and >= 0, edges to nowhere, cycles
 */
ty_status ty_layer_graph_make(const ty_graph_layer *layers, uint32_t layer_count,
                              const ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * Reads a PipeDream profile (graph.txt) as PipeDream's optimizer does: without sources called
 * "Input..." and sinks called "__getitem__..."; layers are in topological order. "-" is stdin.
 */
ty_status ty_layer_graph_read(const char *path, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * Makes a graph with fewer states (PipeDream's compress_branches). Each run of layers after a
 * branching one, in which each layer is the only reader of the one before and reads nothing else,
 * becomes one layer. Its time and parameters are the sums over the run, its activations those that
 * leave the run. Cuts inside a run are lost.
 * @param owners [out, graph->layer_count] the merged layer that each layer belongs to
 */
ty_status ty_layer_graph_merge(const ty_layer_graph *graph, ty_layer_graph **out, uint32_t *owners,
                               ty_error *error) TY_MUST_CHECK;
void ty_layer_graph_free(ty_layer_graph *graph);

/**
 * The prefixes of every pipeline, ascending by compute time, then by number of layers, then as sets
 * of bits: a subset comes before its superset. State 0 is empty, the last one is the largest. As in
 * PipeDream, they grow from the first source: each step adds a reader of a layer in the set, with
 * all its predecessors.
 */
typedef struct ty_states {
    uint32_t count, words;
    uint64_t *sets;                                         /* [count][words] */
    double *compute_s, *activation_bytes, *parameter_bytes; /* [count] sums over its layers */
    double *output_bytes; /* [count] bytes across the cut by PipeDream's rule: the activations of
                             the last layers, and of each predecessor of one of them that feeds a
                             layer outside that one's predecessors */
    ty_arena *arena;
} ty_states;
#define TY_MOST_STATES 4096u
/** @return TY_ELIMIT if there are more than TY_MOST_STATES */
ty_status ty_states_find(const ty_layer_graph *graph, ty_states **out,
                         ty_error *error) TY_MUST_CHECK;
bool ty_state_has(const ty_states *states, uint32_t state, uint32_t layer);
/** Whether `part` is a subset of `whole`; a state is inside itself. */
bool ty_state_is_inside(const ty_states *states, uint32_t part, uint32_t whole);
void ty_states_free(ty_states *states);

/** A level of a hierarchy of machines: `units` units of the level below, connected by links. */
typedef struct ty_level {
    uint32_t units;
    double bandwidth_bytes_per_s;
} ty_level;
#define TY_MOST_LEVELS 8
#define TY_MOST_DEVICES 4096

typedef struct ty_divide_options {
    const ty_level *levels; /* innermost first: {4, 10e9}, {2, 1.25e9} is two servers of four */
    uint32_t level_count;
    double activation_ratio; /* send/recv bytes are divided by this; 0: no send/recv time */
    double memory_bytes;     /* per device, as PipeDream counts it; 0: no limit */
    bool is_straight;        /* no replicas */
    bool may_use_fewer;      /* devices may stay idle */
    bool is_flat;            /* replicas on devices instead of servers */
} ty_divide_options;

/** A part of a partition: a stage, or a run of stages that is partitioned again one level below. */
typedef struct ty_division_part {
    uint32_t parent;       /* part that contains this one; TY_NO_PART: none */
    uint32_t level;        /* level of its units; 0: devices, so it is a stage */
    uint32_t from, to;     /* states: its layers are those of `to` that are not in `from` */
    uint32_t units;        /* replicas of this part */
    uint32_t first_device; /* of its first replica; the others follow */
    double time_s;         /* per mini-batch, gradient all-reduce included */
} ty_division_part;
#define TY_NO_PART UINT32_MAX

typedef struct ty_division {
    double time_s;          /* per mini-batch of the slowest stage or transfer: the objective */
    double single_device_s; /* all layers on one device */
    double data_parallel_s; /* data parallelism on all devices, by the same formula */
    uint32_t part_count;
    ty_division_part *parts; /* parents before children, in pipeline order */
} ty_division;

/**
 * Runs PipeDream's hierarchical optimizer with the formula of its code. It differs from the
 * paper's: compute and all-reduce times are added, and every parameter is sent four times. At a
 * level of M units with bandwidth B, `Min` units in the unit below, for the states i..j (k: a state
 * between):
 *
 *     base   T[i][j][m] = (C(i..j) + 4 (m-1) W(i..j) / (B m Min)) / m
 *     stage  S(k..j, m') = (C(k..j) + 4 (m'-1) W(k..j) / (B m')) / m'
 *     cut    X(k, m') = 2 O[k] / (B m') / ratio, after j too unless j is the last
 *     T[i][j][m] = min(base, min over k, m' of max(T[i][k][m-m'], S(k..j, m'), X(k, m'), X(j, m')))
 *
 * C of a level is T with all units of the level below. Cuts are between nested states. With a
 * memory limit, stages with ceil((M-m)/m') (A+W) above it are skipped. Source:
 * msr-fiddle/pipedream, optimizer/optimizer_graph_hierarchical.py; Narayanan et al., SOSP 2019,
 * section 3.1. O(levels N^3 M^2) at worst; the bound T[i][k][m] >= C(i..k)/devices leaves a few k
 * of each.
 *
 * `is_flat`: devices are numbered across the servers, and a part is a stage on any number of
 * consecutive devices, or a run of stages on full units of a higher level, partitioned as above.
 * Gradients move at the bandwidth of the highest level that its devices span, activations at that
 * of its devices and the neighbor. The hierarchical partition is one of the candidates.
 *
 * Ties: the partition with fewest devices if some may stay idle; else the first found.
 * @return TY_EINFEASIBLE if nothing fits, with the memory needed and the limit; TY_EINVAL for
 * options out of range
 */
ty_status ty_divide(const ty_states *states, const ty_divide_options *options, ty_division **out,
                    ty_error *error) TY_MUST_CHECK;
void ty_division_free(ty_division *division);

#endif
