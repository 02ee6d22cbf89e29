/**
 * @file ty_partition.h
 * Dividing a graph of layers into pipeline stages with replicas, exactly: PipeDream's search, and
 * one that beats it.
 *
 * Everything works on the graph's *ideals*: sets of layers that hold every predecessor of each of
 * their members (downsets; PipeDream draws them as antichains). A pipeline is a chain of ideals,
 * from none of the layers to all of them; its stages are the differences. On a graph that is a
 * chain the ideals are its prefixes; on others there may be very many, so that branches can be
 * merged first (ty_layer_graph_merge).
 *
 *     TY_CHECK(ty_layer_graph_read("graph.txt", &graph, error), status, cleanup);
 *     TY_CHECK(ty_states_find(graph, 0, &states, error), status, cleanup);
 *     ty_divide_options options = {.levels = (ty_level[]){{4, 10e9}, {4, 1.25e9}},
 *                                  .level_count = 2, .activation_ratio = 1};
 *     TY_CHECK(ty_divide_flat(states, &options, &division, error), status, cleanup);
 *
 * Answers are functions of their inputs alone. docs/design/partition.md has the formulas and
 * figures.
 */
#ifndef TY_PARTITION_H
#define TY_PARTITION_H

#include "ty_core.h"

/* ---- Graphs ------------------------------------------------------------------------------ */

typedef struct ty_graph_layer {
    char *name;
    double compute_s; /* forward and backward of one mini-batch */
    double activation_bytes, parameter_bytes;
} ty_graph_layer;

typedef struct ty_graph_edge {
    uint32_t from, to; /* layers; `to` reads what `from` makes */
} ty_graph_edge;

typedef struct ty_layer_graph {
    uint32_t layer_count, edge_count;
    ty_graph_layer *layers; /* in any order */
    ty_graph_edge *edges;   /* each pair once */
    ty_arena *arena;        /* holds all of the above */
} ty_layer_graph;

/**
 * A graph from copies of its parts. Repeated edges become one.
 * @return TY_EINVAL for no layer, figures that are not finite and >= 0, edges to nowhere, cycles.
 */
ty_status ty_layer_graph_make(const ty_graph_layer *layers, uint32_t layer_count,
                              const ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;

/**
 * A PipeDream profile (graph.txt) as PipeDream's optimizer sees it: sources called "Input..." and
 * sinks called "__getitem__..." are left out. "-" is standard input.
 */
ty_status ty_layer_graph_read(const char *path, ty_layer_graph **out,
                              ty_error *error) TY_MUST_CHECK;

void ty_layer_graph_free(ty_layer_graph *graph);

/**
 * A coarser graph with fewer ideals: runs of layers behind a branching one, each the only reader of
 * the one before and reading nothing else, become one (PipeDream's compress_branches). A merged
 * layer has the sum of its members' time and parameters, and the activations that its members hand
 * on; those that stay inside are lost to memory limits, as there. Cuts inside what was merged are
 * lost; all others stay as they were.
 * @param owners [out, graph->layer_count] the merged layer that each layer belongs to
 */
ty_status ty_layer_graph_merge(const ty_layer_graph *graph, ty_layer_graph **out, uint32_t *owners,
                               ty_error *error) TY_MUST_CHECK;

/* ---- Ideals ------------------------------------------------------------------------------ */

typedef struct ty_ideals {
    uint32_t layer_count, count, words;
    uint64_t *sets; /* [count][words]: bit i of a set is layer i */
} ty_ideals;

/**
 * PipeDream's states: the ideals that grow from the first source by adding, with all its
 * predecessors, a reader of something that is in. Where there is one source, that is all of them.
 * The first is empty, the last is the largest; they ascend by compute time, then by number of
 * layers, then as sets of bits, and so that a part comes before the whole.
 * @param limit most ideals
 * @return TY_ELIMIT naming the limit where there are more.
 */
ty_status ty_ideals_find(const ty_layer_graph *graph, uint32_t limit, ty_ideals **out,
                         ty_error *error) TY_MUST_CHECK;
void ty_ideals_free(ty_ideals *ideals);
bool ty_ideal_has(const ty_ideals *ideals, uint32_t ideal, uint32_t layer);
/** Whether all of `part` is in `whole`; an ideal is inside itself. */
bool ty_ideal_is_inside(const ty_ideals *ideals, uint32_t part, uint32_t whole);

/**
 * PipeDream's states with their sums: the prefixes of every pipeline. State 0 is empty, so that
 * state i here is i-1 there.
 */
typedef struct ty_states {
    ty_ideals *ideals;
    double *compute_s, *activation_bytes, *parameter_bytes; /* [count] of all that is in */
    double *output_bytes; /* [count] what PipeDream takes to cross the cut behind: the activations
                             of the last layers, and of each predecessor of one of them that feeds a
                             layer which is no predecessor of that one */
    uint64_t *inside;     /* bits [count][row_words]: row `whole`, bit `part` */
    uint32_t row_words;
} ty_states;
/** @param limit most states; 0: TY_MOST_STATES, whose tables take some 130 MB */
#define TY_MOST_STATES 4096u
ty_status ty_states_find(const ty_layer_graph *graph, uint32_t limit, ty_states **out,
                         ty_error *error) TY_MUST_CHECK;
void ty_states_free(ty_states *states);

/* ---- Dividing ---------------------------------------------------------------------------- */

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
} ty_divide_options;

/** A part of a division: a stage, or a run of stages that is divided again one level below. */
typedef struct ty_division_part {
    uint32_t parent;       /* part that this one divides; TY_NO_PART: the whole */
    uint32_t level;        /* whose units it gets; 0: devices, so that it is a stage */
    uint32_t from, to;     /* states: its layers are those of `to` that are not in `from` */
    uint32_t units;        /* replicas of what is inside */
    uint32_t first_device; /* of its first replica; others follow at once */
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
void ty_division_free(ty_division *division);

/**
 * PipeDream's hierarchical optimizer, with its formula as it is coded, which differs from the
 * paper's (compute and exchange are added, and every parameter travels four times). At a level of M
 * units with bandwidth B, `Min` units in the unit below, for the states i..j (k: a state between):
 *
 *     base   T[i][j][m] = (C(i..j) + 4 (m-1) W(i..j) / (B m Min)) / m
 *     stage  S(k..j, m') = (C(k..j) + 4 (m'-1) W(k..j) / (B m')) / m'
 *     cut    X(k, m') = 2 O[k] / (B m') / ratio, behind j too unless j is the last
 *     T[i][j][m] = min(base, min over k, m' of max(T[i][k][m-m'], S(k..j, m'), X(k, m'), X(j, m')))
 *
 * C of a level is T with all units of the level below. Splits are taken between states that
 * contain each other only. With a memory limit, stages with ceil((M-m)/m') (A+W) above it are
 * skipped. Ties at each level, from the top: least memory of the largest stage, by
 * (ceil((M-m)/m') + 1) (A+W); then least bytes over cuts; then fewest stages; then, from the back,
 * the stage that begins first and has fewest replicas.
 * Source: msr-fiddle/pipedream, optimizer/optimizer_graph_hierarchical.py; Narayanan et al., SOSP
 * 2019, section 3.1. O(levels N^3 M^2) at worst; the bound T[i][k][m] >= C(i..k)/devices leaves a
 * few k of each.
 * @return TY_EINFEASIBLE where nothing fits, saying what there is to hold and the limit;
 *         TY_EINVAL for options out of range.
 */
ty_status ty_divide_hierarchical(const ty_states *states, const ty_divide_options *options,
                                 ty_division **out, ty_error *error) TY_MUST_CHECK;

/**
 * The same formula with replicas placed on devices. Devices are numbered through the servers; the
 * pipeline takes them in order. Each of its parts is either
 *   - a stage with any number of replicas on consecutive devices. Its exchange goes at the
 *     bandwidth of the highest level that these devices lie across, and its transfers, from the
 *     stage before and to the one behind, at that of the highest level that they and the device
 *     next to them lie across; each of both sides is charged, as in PipeDream's formula; or
 *   - a run of stages on whole units of a higher level (servers), divided inside as PipeDream does.
 * So every device has its level's bandwidth to itself, as in PipeDream's formula. The answer is
 * never worse than ty_divide_hierarchical's, which is among those looked at. A memory limit counts
 * the devices behind a stage, or the units behind a run. Ties: the hierarchical answer where it is
 * as good, else as above.
 */
ty_status ty_divide_flat(const ty_states *states, const ty_divide_options *options,
                         ty_division **out, ty_error *error) TY_MUST_CHECK;

#endif
