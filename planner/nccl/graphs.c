/* Result of NCCL's graph search on nodes with equal GPUs and NICs: a channel fits if bandwidth is
 * left for it, so the search is one division per rate. */
#include "nccl_constants.h"

#include <math.h>

#define GB 1e9

static const nccl_constants *const k = &ty_nccl_constants;

/* Bandwidth of a node for a pattern, in GB/s. */
typedef struct offer {
    double intra, path; /* of a GPU to the others of its node, and of one path */
    double nic;
    uint32_t nics; /* 0: one node */
    double most_channels;
} offer;

static double channels_inside(double total, double rung)
{
    return floor(total / rung * (1 + 1e-9));
}

/* From the fastest rate down, while the next one may be better. */
static ty_nccl_graph search(const double *ladder, const offer *o)
{
    ty_nccl_graph best = {0};

    for (uint32_t i = 0; i < NCCL_RUNGS && ladder[i] > 0; i++) {
        /* Channels of a rate that fit, inside the node and over its NICs. */
        double channels =
            ladder[i] <= o->path * (1 + 1e-9) ? channels_inside(o->intra, ladder[i]) : 0;
        if (o->nics > 0)
            channels = fmin(channels, o->nics * channels_inside(o->nic, ladder[i]));
        channels = fmin(channels, o->most_channels);
        if (best.channels > 0 && ladder[i] <= k->search_stop_ratio * best.intra_gb_per_s)
            break;
        if (channels * ladder[i] > best.channels * best.intra_gb_per_s)
            best = (ty_nccl_graph){(uint32_t)channels, ladder[i], ladder[i]};
    }
    return best;
}

/* A node slower than every rate still has one channel. */
static ty_nccl_graph search_or_crawl(const double *ladder, const offer *o)
{
    ty_nccl_graph found = search(ladder, o);
    double rate = o->nics > 0 ? fmin(o->path, o->nic) : o->path;

    return found.channels > 0 ? found : (ty_nccl_graph){1, rate, rate};
}

/* Fast channels are halved, so that more of the GPU works on them. */
static void duplicate(const ty_communicator *c, ty_nccl_graph *graph)
{
    double rate = graph->intra_gb_per_s;

    if (rate < k->duplicate_from_gb_per_s || 2 * graph->channels > k->most_channels ||
        (c->generation > TY_AMPERE && rate < k->keep_below_gb_per_s &&
         graph->channels > k->keep_above_channels))
        return;
    graph->channels *= 2;
    graph->intra_gb_per_s /= 2;
    graph->inter_gb_per_s /= 2;
}

/* Trees cross the network less often than links inside nodes: between two nodes the rate inside
 * rises up to twice the network's. */
static ty_nccl_graph tree_of(const ty_nccl_graph *ring, const double *ladder, double total)
{
    ty_nccl_graph tree = *ring;

    for (uint32_t i = 0; i < NCCL_RUNGS && ladder[i] > 0; i++)
        if (ladder[i] > tree.intra_gb_per_s && ladder[i] <= 2 * tree.inter_gb_per_s &&
            ladder[i] * tree.channels <= total) {
            tree.intra_gb_per_s = ladder[i];
            break;
        }
    return tree;
}

/* One channel per head GPU: all of a node, or those with a NIC, up to the library's maximum. */
static ty_nccl_graph nvls_of(const ty_communicator *c, const double *ladder, double total,
                             double nic)
{
    uint32_t per_node = c->ranks / c->nodes;
    uint32_t heads = c->nodes > 1 && c->nics < per_node ? c->nics : per_node;
    ty_nccl_graph graph = {0};

    if (heads > k->most_nvls_heads)
        heads = k->most_nvls_heads;
    for (uint32_t i = 0; i < NCCL_RUNGS && ladder[i] > 0; i++)
        if (ladder[i] * heads <= total * (1 + 1e-9) && (c->nodes == 1 || ladder[i] <= nic)) {
            graph = (ty_nccl_graph){heads, ladder[i], ladder[i]};
            break;
        }
    for (uint32_t i = 0; c->nodes == 1 && graph.channels > 0 && ladder[i] > 0; i++)
        if (ladder[i] <= 2 * graph.intra_gb_per_s) {
            graph.inter_gb_per_s = ladder[i];
            break;
        }
    return graph;
}

void ty_nccl_graphs_find(const ty_communicator *c, ty_nccl_graphs *out)
{
    uint32_t per_node = c->ranks / c->nodes;
    const double *ladder = c->nodes > 1 ? k->inter_ladder_gb_per_s[c->generation]
                                        : k->intra_ladder_gb_per_s[c->generation];
    double gpu = c->gpu_bytes_per_s / GB, nic = c->nic_bytes_per_s / GB;
    /* A pattern that is not a closed ring leaves one of a node's exits free. */
    double open = per_node > 1 ? gpu * per_node / (per_node - 1) : HUGE_VAL;
    offer o = {.intra = gpu,
               .path = c->path_bytes_per_s / GB,
               .nic = nic,
               .nics = c->nodes > 1 ? c->nics : 0,
               .most_channels = k->most_channels};

    if (c->nodes > 1)
        o.intra = open;
    if (per_node == 1)
        o.path = HUGE_VAL;
    *out = (ty_nccl_graphs){.ring = search_or_crawl(ladder, &o)};
    duplicate(c, &out->ring);
    out->tree = c->nodes > 1 && per_node > 1 ? tree_of(&out->ring, ladder, open) : out->ring;
    if (c->has_nvls && per_node > 1)
        out->nvls = nvls_of(c, ladder, open, nic);
    if (c->has_collnet)
        out->collnet = out->tree;
}
