/* Latency and bandwidth of every algorithm and protocol; NCCL chooses the least time. Letters as in
 * NVIDIA/nccl src/graph/tuning.cc: n ranks on N nodes, s steps of a ring. */
#include "nccl_constants.h"

#include <math.h>

#define GB 1e9
#define US 1e-6

enum { HOP_NVLINK, HOP_PCI, HOP_NETWORK };

static const nccl_constants *const k = &ty_nccl_constants;

typedef struct tuning {
    const ty_communicator *c;
    double network_us; /* latency of a message in addition to NCCL's own */
    ty_nccl_graphs graphs;
    double n, nodes, per_node;
    uint32_t size; /* index of the tables by number of nodes */
    int hop;
} tuning;

static const char *const algorithm_names[] = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
static const char *const protocol_names[] = {"LL", "LL128", "Simple"};

const char *ty_nccl_algorithm_name(ty_nccl_algorithm algorithm)
{
    return (unsigned)algorithm < TY_NCCL_ALGORITHM_COUNT ? algorithm_names[algorithm] : "unknown";
}

const char *ty_nccl_protocol_name(ty_nccl_protocol protocol)
{
    return (unsigned)protocol < TY_NCCL_PROTOCOL_COUNT ? protocol_names[protocol] : "unknown";
}

/* ---- Allowed pairs --------------------------------------------------------------------------- */

static bool is_gather(ty_collective_kind kind)
{
    return kind == TY_ALL_GATHER || kind == TY_REDUCE_SCATTER;
}

static bool has_nvls(const tuning *t)
{
    return t->graphs.nvls.channels >= 2 && t->n > 2;
}

static bool has_collnet(const tuning *t)
{
    return t->graphs.collnet.channels > 0 && t->nodes > 1 &&
           t->per_node <= k->collnet_most_ranks_per_node;
}

static bool is_algorithm_allowed(const tuning *t, ty_collective_kind kind,
                                 ty_nccl_algorithm algorithm)
{
    switch (algorithm) {
    case TY_NCCL_RING:
        return kind <= TY_REDUCE;
    case TY_NCCL_TREE:
        return kind == TY_ALL_REDUCE;
    case TY_NCCL_NVLS:
        return (kind == TY_ALL_REDUCE || (is_gather(kind) && t->per_node <= k->most_nvls_heads)) &&
               has_nvls(t) && (t->nodes <= 1 || has_collnet(t));
    case TY_NCCL_NVLS_TREE:
        return kind == TY_ALL_REDUCE && has_nvls(t) && t->nodes > 1;
    case TY_NCCL_COLLNET_DIRECT:
        return (kind == TY_ALL_REDUCE || is_gather(kind)) && has_collnet(t) && t->c->has_nvswitch;
    case TY_NCCL_COLLNET_CHAIN:
        return kind == TY_ALL_REDUCE && has_collnet(t);
    case TY_NCCL_PAT:
        return is_gather(kind) && t->per_node <= 1 && t->nodes > 1;
    case TY_NCCL_ALGORITHM_COUNT:
        break;
    }
    return false;
}

static bool is_allowed(const tuning *t, ty_collective_kind kind, ty_nccl_algorithm algorithm,
                       ty_nccl_protocol protocol)
{
    bool is_simple_only = algorithm != TY_NCCL_RING && algorithm != TY_NCCL_TREE;

    if ((protocol == TY_NCCL_LL128 && !t->c->has_ll128) ||
        (protocol != TY_NCCL_SIMPLE && t->c->is_simple_only && t->nodes > 1))
        return false;
    return is_algorithm_allowed(t, kind, algorithm) &&
           (!is_simple_only || protocol == TY_NCCL_SIMPLE);
}

/* ---- Bandwidth, GB/s ----------------------------------------------------------------------- */

static double steps_of(const tuning *t, ty_collective_kind kind)
{
    return kind == TY_ALL_REDUCE || is_gather(kind)
               ? ty_collective_terms_of(kind, TY_RING, t->c->ranks).steps
               : t->n;
}

/* In one node, the limit of the GPUs' generation; on several nodes, that of their processors. */
static double ll_total(const tuning *t)
{
    uint32_t row = t->c->generation;

    if (t->nodes > 1)
        row = t->c->processor == TY_PROCESSOR_INTEL ? TY_VOLTA : TY_AMPERE;
    return k->ll_total_gb_per_s[row][t->size];
}

static double ring_rate(const tuning *t, ty_collective_kind kind, ty_nccl_protocol protocol)
{
    const ty_nccl_graph *ring = &t->graphs.ring;
    double all = ring->channels * (t->nodes <= 2 ? ring->intra_gb_per_s : ring->inter_gb_per_s);

    if (protocol == TY_NCCL_LL)
        all = fmin(ll_total(t), all / 2); /* half of LL's bytes are flags */
    else if (protocol == TY_NCCL_LL128)
        all = fmin(k->ll128_share * all,
                   ring->channels * k->ring_ll128_channel_gb_per_s[t->c->generation][t->size]);
    return all * t->n / steps_of(t, kind);
}

static double tree_rate(const tuning *t, ty_nccl_protocol protocol, ty_gpu_generation g)
{
    const ty_nccl_graph *tree = &t->graphs.tree;
    double all = tree->channels * (t->nodes <= 2 ? tree->intra_gb_per_s : tree->inter_gb_per_s);

    all = fmin(k->tree_share * all, tree->channels * k->tree_channel_gb_per_s[g][t->size]);
    if (protocol == TY_NCCL_LL)
        all = fmin(all / k->tree_ll_divisor, ll_total(t));
    else if (protocol == TY_NCCL_LL128)
        all = fmin(all * (t->nodes <= 1 ? k->tree_ll128_host_share : k->tree_ll128_share),
                   tree->channels * k->tree_ll128_channel_gb_per_s[g][t->size]);
    if (t->per_node <= 1)
        all *= k->plain_tree_share;
    return all / 2; /* up and down */
}

static double nvls_rate(const tuning *t, ty_collective_kind kind, ty_nccl_algorithm algorithm)
{
    const ty_nccl_graph *nvls = &t->graphs.nvls;
    double channels = nvls->channels, inter = nvls->inter_gb_per_s;
    double intra =
        nvls->intra_gb_per_s * k->nvls_efficiency[t->c->generation] * (channels - 1) / channels;

    intra *= kind == TY_ALL_REDUCE ? 2 : (t->per_node - 1) / t->per_node;
    if (algorithm == TY_NCCL_NVLS_TREE) {
        inter *= t->nodes <= 2 ? 2 : 1;
        inter = fmin(inter, k->nvls_tree_channel_gb_per_s[t->c->generation][t->size]);
    }
    return channels * fmin(intra, inter) * t->n / steps_of(t, kind);
}

static double collnet_rate(const tuning *t, ty_collective_kind kind, ty_nccl_algorithm algorithm)
{
    const ty_nccl_graph *graph = &t->graphs.collnet;
    double all = graph->channels * graph->intra_gb_per_s, share = t->per_node / graph->channels;

    if (algorithm == TY_NCCL_COLLNET_CHAIN)
        return all / 2;
    if (is_gather(kind))
        return t->per_node *
               fmin(graph->intra_gb_per_s, k->collnet_gather_share * graph->inter_gb_per_s);
    share -= (share - 1) / 2;
    all /= share;
    if (t->c->generation >= TY_HOPPER)
        all *= k->collnet_reduce_share;
    return all / 2;
}

static double rate_of(const tuning *t, ty_collective_kind kind, ty_nccl_algorithm algorithm,
                      ty_nccl_protocol protocol)
{
    const ty_nccl_graph *ring = &t->graphs.ring;

    switch (algorithm) {
    case TY_NCCL_RING:
        return ring_rate(t, kind, protocol);
    case TY_NCCL_TREE:
        return tree_rate(t, protocol, t->c->generation);
    case TY_NCCL_NVLS:
    case TY_NCCL_NVLS_TREE:
        return nvls_rate(t, kind, algorithm);
    case TY_NCCL_COLLNET_DIRECT:
    case TY_NCCL_COLLNET_CHAIN:
        return collnet_rate(t, kind, algorithm);
    case TY_NCCL_PAT:
        return k->pat_share * ring->channels *
               (t->nodes <= 2 ? ring->intra_gb_per_s : ring->inter_gb_per_s);
    case TY_NCCL_ALGORITHM_COUNT:
        break;
    }
    return 0;
}

/* ---- Latency, us --------------------------------------------------------------------------- */

static double network_hop(const tuning *t, ty_nccl_algorithm algorithm, ty_nccl_protocol protocol)
{
    ty_nccl_algorithm row = t->per_node <= 1 ? TY_NCCL_TREE : algorithm;

    /* Simple waits for the network twice, the second time to flush. */
    return k->hop_latency_us[HOP_NETWORK][row][protocol] +
           t->network_us * (protocol == TY_NCCL_SIMPLE ? 2 : 1);
}

static double ring_latency(const tuning *t, ty_collective_kind kind, ty_nccl_protocol protocol)
{
    double base = k->base_latency_us[TY_NCCL_RING][protocol];
    double intra = k->hop_latency_us[t->hop][TY_NCCL_RING][protocol];
    double inter = network_hop(t, TY_NCCL_RING, protocol), crossings = 0, post = 0;

    if (!(kind == TY_ALL_REDUCE || is_gather(kind)))
        return base + (t->nodes > 1 ? inter : intra);
    if (t->nodes > 1) {
        crossings = (kind == TY_ALL_REDUCE ? 2 : 1) * (t->nodes - 1);
        post = k->post_overhead_us[t->c->processor] *
               (protocol == TY_NCCL_SIMPLE ? k->post_overhead_simple_factor : 1);
    }
    return base + (steps_of(t, kind) - crossings) * fmax(intra, post) + crossings * inter;
}

static double latency_of(const tuning *t, ty_collective_kind kind, ty_nccl_algorithm algorithm,
                         ty_nccl_protocol protocol)
{
    double intra = k->hop_latency_us[t->hop][algorithm][protocol];
    double inter = network_hop(t, algorithm, protocol), base, rounds = floor(log2(t->nodes));

    base = k->base_latency_us[algorithm][protocol];
    switch (algorithm) {
    case TY_NCCL_RING:
        return ring_latency(t, kind, protocol);
    case TY_NCCL_TREE:
        return base + 2 * ((t->per_node - 1) * intra + rounds * inter);
    case TY_NCCL_NVLS:
        return intra + (t->nodes > 1 ? inter : 0);
    case TY_NCCL_NVLS_TREE:
        return intra + 2 * rounds * inter;
    case TY_NCCL_COLLNET_DIRECT:
        return 2 * (fmin(1, t->per_node - 1) * intra + (t->per_node - 1) * k->collnet_rank_us) +
               inter;
    case TY_NCCL_COLLNET_CHAIN:
        return 2 * (t->per_node - 1) * intra + inter;
    case TY_NCCL_PAT:
        return base + rounds * inter / k->pat_hop_divisor + k->pat_rank_us * t->n;
    case TY_NCCL_ALGORITHM_COUNT:
        break;
    }
    return 0;
}

/* ---- Collectives that NCCL does not model ---------------------------------------------------- */

/* All-to-all: the time of the busier of NVLink and network. A message to one peer goes over one of
 * them. */
static ty_collective_pair exchange_pair(const tuning *t, ty_collective_kind kind)
{
    const ty_communicator *c = t->c;
    double inside = c->gpu_bytes_per_s;
    double outside = t->nodes > 1 ? c->nic_bytes_per_s * c->nics / t->per_node : HUGE_VAL;
    ty_collective_pair pair = {.algorithm = TY_NCCL_RING, .protocol = TY_NCCL_SIMPLE};

    pair.latency_s = US * (k->p2p_base_us + k->p2p_hop_us[t->nodes > 1 ? HOP_NETWORK : t->hop]);
    if (kind == TY_ALL_TO_ALL)
        pair.bytes_per_s = k->p2p_share / fmax((t->per_node - 1) / t->n / inside,
                                               (t->n - t->per_node) / t->n / outside);
    else
        pair.bytes_per_s = t->nodes > 1 ? fmin(c->nic_bytes_per_s, outside) : inside;
    return pair;
}

/* ---- The table ------------------------------------------------------------------------------- */

static ty_collective_medium medium_of(const tuning *t, const ty_collective_pair *pair)
{
    bool has_flags = pair->protocol != TY_NCCL_SIMPLE;

    if (t->nodes > 1)
        return has_flags ? TY_MEDIUM_NETWORK_FLAGS : TY_MEDIUM_NETWORK_SIMPLE;
    if (pair->algorithm == TY_NCCL_NVLS)
        return TY_MEDIUM_NVLS;
    return has_flags ? TY_MEDIUM_NODE_FLAGS : TY_MEDIUM_NODE_SIMPLE;
}

/* Links from GPU to GPU, without a switch. */
static bool is_direct(const tuning *t)
{
    return t->c->has_nvlink && !t->c->has_nvswitch && t->nodes == 1;
}

/* Share of a ring's rate in a node that the step for a member's own shard leaves. */
static double own_share(const tuning *t, const ty_collective_calibration *calibration,
                        ty_collective_kind kind, const ty_collective_pair *pair)
{
    const double steps = kind == TY_ALL_TO_ALL ? t->n - 1 : steps_of(t, kind);

    if (pair->algorithm != TY_NCCL_RING || t->nodes > 1 || is_direct(t) || kind == TY_SEND_RECEIVE)
        return 1;
    return steps / (steps + calibration->own_steps[t->c->generation]);
}

/* All-reduce of the NVSwitches: a GPU's links carry its data to the switch once, and its share of
 * the sum back. */
static double switch_rate(const tuning *t)
{
    return t->c->gpu_bytes_per_s * k->nvls_efficiency[t->c->generation] / (1 + 1 / t->per_node);
}

/* NVLS trees are no faster than the switches. Between two nodes data crosses every NIC once each
 * way; NCCL rates Blackwell's below that. */
static double switch_tree_rate(const tuning *t, const ty_collective_calibration *calibration,
                               double bytes_per_s)
{
    const double *efficiency = calibration->efficiency[t->c->generation];

    if (t->nodes <= 2 && t->c->generation >= TY_BLACKWELL)
        bytes_per_s = t->c->nics * t->c->nic_bytes_per_s;
    return fmin(bytes_per_s,
                switch_rate(t) * efficiency[TY_MEDIUM_NVLS] / efficiency[TY_MEDIUM_NETWORK_SIMPLE]);
}

/* Real bytes/s of a pair, before efficiency. NCCL's figure of NVLS counts full rates of its list
 * for each head. Trees are as fast as in an earlier generation on the same links: NCCL rates
 * Blackwell's lower.
 */
static double carried(const tuning *t, const ty_collective_calibration *calibration,
                      ty_collective_kind kind, const ty_collective_pair *pair)
{
    double bytes_per_s = pair->bytes_per_s;

    if (calibration->is_nvls_by_links && pair->algorithm == TY_NCCL_NVLS && kind == TY_ALL_REDUCE &&
        t->nodes <= 1)
        return switch_rate(t);
    if (calibration->is_nvls_by_links && pair->algorithm == TY_NCCL_NVLS_TREE)
        return switch_tree_rate(t, calibration, bytes_per_s);
    if (pair->algorithm == TY_NCCL_TREE)
        for (int g = TY_VOLTA; g < (int)t->c->generation; g++)
            bytes_per_s =
                fmax(bytes_per_s, GB * tree_rate(t, pair->protocol, (ty_gpu_generation)g));
    return bytes_per_s * own_share(t, calibration, kind, pair);
}

/* Seconds in addition to NCCL's own latency, for messages of `message_us` in place of the reported
 * ones. */
static double more_latency(const tuning *t, const ty_collective_calibration *calibration,
                           ty_collective_kind kind, const ty_collective_pair *pair)
{
    const bool is_switched =
        pair->algorithm == TY_NCCL_NVLS || pair->algorithm == TY_NCCL_NVLS_TREE;
    double seconds = calibration->overhead_s[t->c->generation][medium_of(t, pair)];
    tuning real = *t;

    real.network_us = t->c->message_latency_s / US;
    if (kind == TY_ALL_TO_ALL || kind == TY_SEND_RECEIVE)
        seconds += t->nodes > 1 ? t->c->message_latency_s : 0;
    else
        seconds += US * (latency_of(&real, kind, pair->algorithm, pair->protocol) -
                         latency_of(t, kind, pair->algorithm, pair->protocol));
    if (kind == TY_ALL_TO_ALL)
        seconds += calibration->peer_s[t->c->generation] * (t->n - 1);
    if (calibration->is_nvls_by_links && is_switched)
        seconds += US * k->nvls_rank_us * fmax(0, t->n - k->nvls_usual_ranks * t->nodes);
    return seconds;
}

/* Share of a pair's rate that the network carries, if its NICs are slower than NCCL plans with. */
static double network_share(const tuning *t, ty_collective_kind kind,
                            const ty_collective_pair *pair)
{
    const bool is_tree = pair->algorithm == TY_NCCL_TREE;
    const ty_nccl_graph *graph = is_tree ? &t->graphs.tree : &t->graphs.ring;
    double planned =
        GB * graph->channels * (t->nodes <= 2 ? graph->intra_gb_per_s : graph->inter_gb_per_s);

    if (t->nodes <= 1 || !(t->c->network_share > 0))
        return 1;
    if (is_tree && t->nodes <= 2) /* crosses once where a ring crosses twice */
        planned /= 2;
    if (kind == TY_ALL_TO_ALL || kind == TY_SEND_RECEIVE)
        planned = t->c->nics * t->c->nic_bytes_per_s;
    return t->c->network_share * fmin(1, t->c->nics * t->c->socket_bytes_per_s / planned);
}

static void add_pair(const tuning *t, const ty_collective_calibration *calibration,
                     ty_collective_kind kind, ty_collective_pair pair, ty_collective_table *out)
{
    const ty_collective_medium medium = medium_of(t, &pair);
    const ty_gpu_generation generation = t->c->generation;

    pair.real_latency_s = pair.latency_s + more_latency(t, calibration, kind, &pair);
    pair.real_bytes_per_s = carried(t, calibration, kind, &pair) * network_share(t, kind, &pair) *
                            calibration->efficiency[generation][medium] *
                            (is_direct(t) ? calibration->direct_links : 1);
    out->pairs[kind][out->pair_counts[kind]++] = pair;
}

static void fill(const tuning *t, const ty_collective_calibration *calibration,
                 ty_collective_kind kind, ty_collective_table *out)
{
    if (kind == TY_ALL_TO_ALL || kind == TY_SEND_RECEIVE) {
        ty_collective_pair pair = exchange_pair(t, kind);
        add_pair(t, calibration, kind, pair, out);
        if (kind == TY_ALL_TO_ALL && t->nodes == 1) { /* small messages use flags, half of it */
            pair.protocol = TY_NCCL_LL;
            pair.latency_s = US * (k->base_latency_us[TY_NCCL_RING][TY_NCCL_LL] +
                                   k->hop_latency_us[t->hop][TY_NCCL_RING][TY_NCCL_LL]);
            pair.bytes_per_s /= 2;
            add_pair(t, calibration, kind, pair, out);
        }
        return;
    }
    for (int a = 0; a < TY_NCCL_ALGORITHM_COUNT; a++)
        for (int p = 0; p < TY_NCCL_PROTOCOL_COUNT; p++) {
            ty_nccl_algorithm algorithm = (ty_nccl_algorithm)a;
            ty_nccl_protocol protocol = (ty_nccl_protocol)p;
            ty_collective_pair pair = {.algorithm = algorithm, .protocol = protocol};
            if (!is_allowed(t, kind, algorithm, protocol))
                continue;
            pair.bytes_per_s = GB * rate_of(t, kind, algorithm, protocol);
            pair.latency_s = US * latency_of(t, kind, algorithm, protocol);
            if (pair.bytes_per_s > 0)
                add_pair(t, calibration, kind, pair, out);
        }
}

static ty_status check(const ty_communicator *c, ty_error *error)
{
    if (c->ranks == 0 || c->nodes == 0 || c->nodes > c->ranks)
        return ty_fail(error, TY_EINVAL, "communicator: found %u ranks on %u nodes", c->ranks,
                       c->nodes);
    if ((unsigned)c->generation >= TY_GPU_GENERATION_COUNT ||
        (unsigned)c->processor >= TY_PROCESSOR_COUNT)
        return ty_fail(error, TY_EINVAL, "communicator: no such generation or processor");
    if (c->ranks > c->nodes && !(c->gpu_bytes_per_s > 0 && c->path_bytes_per_s > 0 &&
                                 isfinite(c->gpu_bytes_per_s) && isfinite(c->path_bytes_per_s)))
        return ty_fail(error, TY_EINVAL,
                       "communicator: found %g and %g bytes/s between GPUs, expected more than 0",
                       c->gpu_bytes_per_s, c->path_bytes_per_s);
    if (c->nodes > 1 && !(c->nics > 0 && c->nic_bytes_per_s > 0 && isfinite(c->nic_bytes_per_s) &&
                          c->network_latency_s >= 0))
        return ty_fail(error, TY_EINVAL,
                       "communicator: found %u NICs of %g bytes/s, expected more than 0", c->nics,
                       c->nic_bytes_per_s);
    return TY_OK;
}

ty_status ty_collective_table_make(const ty_communicator *c,
                                   const ty_collective_calibration *calibration,
                                   ty_collective_table *out, ty_error *error)
{
    const ty_collective_calibration own = ty_collective_calibrated(TY_CALLS_LAUNCHED);
    ty_status status = check(c, error);
    tuning t = {.c = c, .n = c->ranks, .nodes = c->nodes};

    if (status != TY_OK)
        return status;
    t.per_node = floor(t.n / t.nodes);
    t.size = c->nodes == 1 ? 0 : c->nodes == 2 ? 1 : 2;
    t.hop = c->has_nvlink ? HOP_NVLINK : HOP_PCI;
    t.network_us = c->network_latency_s / US;
    ty_nccl_graphs_find(c, &t.graphs);
    *out = (ty_collective_table){.ranks = c->ranks,
                                 .nodes = c->nodes,
                                 .ring_channels = t.graphs.ring.channels,
                                 .generation = c->generation,
                                 .processor = c->processor,
                                 .long_latency_s = c->nodes > 1 ? c->long_latency_s : 0};
    for (int kind = 0; kind < TY_COLLECTIVE_COUNT && c->ranks > 1; kind++)
        fill(&t, calibration != NULL ? calibration : &own, (ty_collective_kind)kind, out);
    return TY_OK;
}

ty_collective_calibration ty_collective_uncalibrated(void)
{
    ty_collective_calibration none = {.direct_links = 1};

    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++)
        for (int m = 0; m < TY_MEDIUM_COUNT; m++)
            none.efficiency[g][m] = 1;
    return none;
}

const char *ty_collective_calls_name(ty_collective_calls calls)
{
    static const char *const names[] = {"launched", "queued"};
    return (unsigned)calls < TY_CALLS_COUNT ? names[calls] : "unknown";
}

ty_collective_calibration ty_collective_calibrated(ty_collective_calls calls)
{
    ty_collective_calibration calibration;

    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++) {
        for (int m = 0; m < TY_MEDIUM_COUNT; m++) {
            calibration.overhead_s[g][m] = US * k->call_overhead_us[calls][g][m];
            calibration.efficiency[g][m] = k->efficiency[g][m];
        }
        calibration.own_steps[g] = k->own_steps[g];
        calibration.peer_s[g] = US * k->call_peer_us[calls][g];
    }
    calibration.direct_links = k->direct_link_share;
    calibration.is_nvls_by_links = true;
    return calibration;
}
