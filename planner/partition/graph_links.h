/* Who reads whom in a graph, in a form that is quick to ask. */
#ifndef TY_GRAPH_LINKS_H
#define TY_GRAPH_LINKS_H

#include "ty_partition.h"

/** Neighbours of layer v: `readers[reader_starts[v] .. reader_starts[v + 1]]`, in the order of the
 *  edges; `sources` likewise. Lies in the arena given. */
typedef struct graph_links {
    uint32_t layer_count, words;
    uint32_t *reader_starts, *readers;
    uint32_t *source_starts, *sources;
    uint32_t *order;     /* topological; among equals the lowest layer first */
    uint64_t *ancestors; /* [layer_count][words], the layer itself included */
} graph_links;

/** TY_EINVAL where the edges go round in a circle, naming a layer that lies on it. */
ty_status ty_graph_links_make(ty_arena *arena, uint32_t layer_count, const ty_graph_edge *edges,
                              uint32_t edge_count, graph_links *out, ty_error *error) TY_MUST_CHECK;

static inline const uint64_t *graph_ancestors(const graph_links *links, uint32_t layer)
{
    return &links->ancestors[(size_t)layer * links->words];
}

static inline uint32_t graph_reader_count(const graph_links *links, uint32_t layer)
{
    return links->reader_starts[layer + 1] - links->reader_starts[layer];
}

static inline uint32_t graph_source_count(const graph_links *links, uint32_t layer)
{
    return links->source_starts[layer + 1] - links->source_starts[layer];
}

#endif
