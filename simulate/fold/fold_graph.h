/* The graph to fold, for the files of simulate/: all sends, with their routes and links. */
#ifndef TY_FOLD_GRAPH_H
#define TY_FOLD_GRAPH_H

#include "fold.h"

#define TY_NO_EDGE UINT32_MAX

/** Sends of a pipeline rank to another one. Replica q's k-th micro-batch has the same receiver as
 * its (k mod period)-th. */
typedef struct ty_fold_key {
    uint32_t pipeline_rank, peer, period;
    uint32_t first_edge; /* [replica][period][rank] */
    uint32_t first_kind;
} ty_fold_key;

/** One of the concurrent groups of a pattern, and the edges of its members: in the order of
 * members, strands and legs. */
typedef struct ty_fold_group {
    uint32_t pattern, side;
    uint32_t first_edge, edge_count; /* a quiet pattern has no edges */
    uint64_t colour;
} ty_fold_group;

/** A route with traffic. */
typedef struct ty_fold_edge {
    uint32_t kind; /* of sends: key and phase; of collectives: pattern, strand or round, and leg */
    uint32_t from, to; /* ranks; TY_NO_EDGE in collectives, which belong to all members */
    uint32_t turn;     /* the receiver's micro-batch that the first send delivers */
    uint32_t group;    /* TY_NO_EDGE in sends */
    uint32_t partner;  /* the next leg of its strand, cyclic */
    uint32_t first_link, link_count;
    double latency_s, bandwidth_bytes_per_s;
    uint64_t colour;
} ty_fold_edge;

typedef struct ty_fold_graph {
    const ty_plan *plan;
    const ty_cluster *cluster;
    ty_routes *routes;                     /* of the cluster; NULL: not known yet */
    const ty_parallel_exchanges *parallel; /* or NULL */
    const double *slowdowns;               /* [rank] or NULL */
    uint32_t rank_count, pipeline_size, width;
    bool is_even; /* all stages have equal replicas */
    uint32_t key_count, kind_count, edge_count, group_count;
    ty_fold_key *keys;
    ty_pattern_set patterns;
    uint32_t *first_groups; /* [pattern] */
    ty_fold_group *groups;  /* by pattern, then by side */
    ty_fold_edge *edges;
    uint64_t link_count, link_capacity;
    uint32_t *links; /* of the edges: 2 * link of the cluster, + 1 against its direction */
    uint64_t *rank_colours, *link_colours;
    ty_error *error;
} ty_fold_graph;

/** Finds keys, groups, edges and their routes. Clear it also after a failure. */
ty_status ty_fold_graph_fill(ty_fold_graph *graph, const ty_program *program) TY_MUST_CHECK;
/** Finds the quiet patterns of TP, CP and EP groups, and drops their edges. */
ty_status ty_fold_graph_hush(ty_fold_graph *graph) TY_MUST_CHECK;
void ty_fold_graph_clear(ty_fold_graph *graph);
/** Refines colors until the partition is stable. */
ty_status ty_fold_graph_refine(ty_fold_graph *graph) TY_MUST_CHECK;
/** The key of a send; NULL if there is none. */
const ty_fold_key *ty_fold_key_of(const ty_fold_graph *graph, uint32_t pipeline_rank,
                                  uint32_t peer);

/** The device of a rank. */
uint32_t ty_fold_device(const ty_fold_graph *graph, uint32_t rank);
/** The `side`-th group of a pattern of the graph. */
const ty_fold_group *ty_fold_group_of(const ty_fold_graph *graph, const ty_pattern *pattern,
                                      uint32_t side);

#endif
