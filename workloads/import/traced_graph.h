/**
 * @file traced_graph.h
 * Common graph of profiles and traces: numbered nodes with measured times, edges between numbers,
 * no order. Converts them to opaque layers. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_TRACED_GRAPH_H
#define TY_WORKLOADS_TRACED_GRAPH_H

#include "import.h"

typedef struct ty_traced_node {
    uint64_t id;
    const char *name; /* borrowed */
    size_t name_length;
    uint64_t output_elements; /* 0: unknown or none */
    ty_opaque known;          /* all except the output */
    bool is_passed_over;      /* its readers read its inputs instead */
    bool is_work;             /* stays a layer even if nothing reads it */
    bool is_host;             /* for the importer's own use */
    uint32_t in_count;        /* edges to it, once connected */
    /* Internal to traced_graph.c: */
    bool is_kept;
    uint32_t first_in, first_out, out_count, missing, input_count, layer;
    uint32_t *inputs;
} ty_traced_node;

typedef struct ty_traced_edge {
    uint64_t from_id, to_id;
    uint32_t from, to;
} ty_traced_edge;

/** Zero-initialize, set the first three, add, connect, look at the nodes, build, clear. */
typedef struct ty_traced_graph {
    ty_import_source *source;
    const char *prefix;      /* prefix of a node's number in messages: "node" */
    bool is_always_numbered; /* layers are named "node12 NAME"; else NAME if unique */
    bool may_be_partial;     /* drops edges from missing nodes */
    bool is_chain;           /* a node without inputs reads the one before it */
    uint32_t node_count, node_capacity;
    ty_traced_node *nodes; /* ascending by id, once connected */
    uint32_t edge_count, edge_capacity;
    ty_traced_edge *edges;
    uint32_t dropped_edge_count, input_count;
    uint32_t *by_reader, *by_producer, *order;
} ty_traced_graph;

#define TY_TRACED_MOST_NODES 2000000
#define TY_TRACED_MOST_EDGES 8000000

/** TY_EPARSE above the largest number of nodes. */
ty_status ty_traced_add_node(ty_traced_graph *graph, const ty_traced_node *node) TY_MUST_CHECK;
ty_status ty_traced_add_edge(ty_traced_graph *graph, uint64_t from, uint64_t to) TY_MUST_CHECK;
/** Finds the nodes of edges and an order: by number, as far as edges allow. Refuses cycles. */
ty_status ty_traced_connect(ty_traced_graph *graph) TY_MUST_CHECK;
/** Appends a layer for each node that is not skipped and is either work or read; joins several ends
 * by a layer without cost. Notes omitted nodes. */
ty_status ty_traced_build(ty_traced_graph *graph, ty_builder *builder) TY_MUST_CHECK;
void ty_traced_clear(ty_traced_graph *graph);

#endif
