/* The constants of nccl.json, compiled in: constants.cmake writes the table, with sources. Indices:
 * algorithm and protocol as in ty_collective_model.h; hops are NVLink, PCI, network; generations as
 * ty_gpu_generation; sizes of a communicator are one, two and more nodes; processors as
 * ty_host_processor. */
#ifndef TY_NCCL_CONSTANTS_H
#define TY_NCCL_CONSTANTS_H

#include "ty_collective_model.h"

enum { NCCL_HOPS = 3, NCCL_SIZES = 3, NCCL_RUNGS = 24, NCCL_NAMES = 32 };

/** The value of names with this prefix. */
typedef struct nccl_name {
    const char *prefix;
    int value;
} nccl_name;

/** A network by its transport, of hosts with GPUs of a generation or later. */
typedef struct nccl_network {
    const char *transport;
    int generation;                 /* the first */
    double reported_us, message_us; /* latency: reported to NCCL, which chooses by it; real */
    double long_us;                 /* of a collective whose messages are longer than a packet */
    bool is_simple_only;            /* no LL, no LL128 */
    double two_share, more_share;   /* of the rate, with two nodes and with more */
} nccl_network;

typedef struct nccl_constants {
    double base_latency_us[TY_NCCL_ALGORITHM_COUNT][TY_NCCL_PROTOCOL_COUNT];
    double hop_latency_us[NCCL_HOPS][TY_NCCL_ALGORITHM_COUNT][TY_NCCL_PROTOCOL_COUNT];
    double ll_total_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_SIZES];
    double ring_ll128_channel_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_SIZES];
    double tree_ll128_channel_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_SIZES];
    double tree_channel_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_SIZES];
    double nvls_tree_channel_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_SIZES];
    double nvls_efficiency[TY_GPU_GENERATION_COUNT];
    double tree_correction[TY_NCCL_PROTOCOL_COUNT][NCCL_RUNGS]; /* by log2(bytes / 64); 0: end */
    double plateau_factor[TY_GPU_GENERATION_COUNT], plateau_bytes;
    double post_overhead_us[TY_PROCESSOR_COUNT], post_overhead_simple_factor;
    double ll128_share, tree_share, tree_ll_divisor, tree_ll128_host_share, tree_ll128_share;
    double plain_tree_share;
    double pat_share, pat_hop_divisor, pat_rank_us;
    double collnet_rank_us, collnet_reduce_share, collnet_gather_share;
    double collnet_most_ranks_per_node;
    double intra_ladder_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_RUNGS]; /* descending; 0: end */
    double inter_ladder_gb_per_s[TY_GPU_GENERATION_COUNT][NCCL_RUNGS];
    double search_stop_ratio, duplicate_from_gb_per_s, keep_below_gb_per_s, keep_above_channels;
    double most_channels;
    uint32_t most_nvls_heads;
    double p2p_base_us, p2p_hop_us[NCCL_HOPS], p2p_share;
    double call_overhead_us[TY_CALLS_COUNT][TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double call_peer_us[TY_CALLS_COUNT][TY_GPU_GENERATION_COUNT];
    double direct_link_share;
    double efficiency[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double own_steps[TY_GPU_GENERATION_COUNT];
    nccl_name devices[NCCL_NAMES];     /* start of a device's name: compute capability times 10 */
    nccl_network networks[NCCL_NAMES]; /* the first that applies */
    double packet_bytes;
    double ena_flow_gb_per_s; /* of a connection */
    double socket_thread_gb_per_s, socket_host_gb_per_s;
    double socket_flows;                   /* connections to each peer */
    double staged_share;                   /* of a PCIe port, through host memory */
    double nvls_usual_ranks, nvls_rank_us; /* latency of each rank after the usual ones */
    nccl_name interconnects[NCCL_NAMES];   /* start of a link's kind: ty_host_processor */
} nccl_constants;

extern const nccl_constants ty_nccl_constants;

#endif
