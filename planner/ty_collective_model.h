/**
 * @file ty_collective_model.h
 * Predicts the time of collectives: an equivalent of NCCL's performance model, and the collectives
 * that frameworks build on top of NCCL.
 *
 * A communicator (number of GPUs and nodes, and their links) becomes a table of latency and
 * bandwidth for every algorithm and protocol. NCCL chooses the pair with the least time by that
 * table. Building a table takes microseconds, a query far less than one.
 *
 *     ty_communicator communicator;
 *     ty_collective_table table;
 *     TY_CHECK(ty_communicator_of(cluster, devices, 16, &communicator, error), status, done);
 *     TY_CHECK(ty_collective_table_make(&communicator, NULL, &table, error), status, done);
 *     seconds = ty_collective_seconds(&table, TY_ALL_REDUCE, 64 << 20);
 *
 * Source of the model and of its constants: NVIDIA/nccl 2.28.9 and 2.30.7, src/graph/tuning.cc,
 * search.cc and topo.cc; planner/nccl/nccl.json has every constant with its source. Not modeled:
 * congestion, tuner plugins, symmetric-memory kernels, RCCL. Its error against measurements:
 * docs/design/collectives.md.
 *
 * Bytes are the input of one rank: its shard for an all-gather (nccl-tests' size divided by the
 * ranks), the full buffer for all others (nccl-tests' size).
 */
#ifndef TY_COLLECTIVE_MODEL_H
#define TY_COLLECTIVE_MODEL_H

#include "ty_core.h"
#include "ty_topologies.h"

/* ---- Communicators ----------------------------------------------------------------------- */

typedef enum ty_gpu_generation { /* by compute capability: below 8, 8, 9, 10 and above */
                                 TY_VOLTA,
                                 TY_AMPERE,
                                 TY_HOPPER,
                                 TY_BLACKWELL,
                                 TY_GPU_GENERATION_COUNT
} ty_gpu_generation;

typedef enum ty_host_processor {
    TY_PROCESSOR_OTHER,
    TY_PROCESSOR_INTEL,
    TY_PROCESSOR_AMD,
    TY_PROCESSOR_COUNT
} ty_host_processor;

/** Bandwidths are per direction. Each node has ranks / nodes GPUs. */
typedef struct ty_communicator {
    uint32_t ranks, nodes;
    ty_gpu_generation generation; /* of the oldest GPU */
    ty_host_processor processor;
    bool has_nvlink;             /* between all GPUs of a node; else PCI */
    bool has_nvswitch;           /* every GPU reaches every other at its full rate */
    bool is_staged;              /* GPUs of a node exchange through its memory */
    bool has_nvls;               /* reduction in the NVSwitch: Hopper and later */
    bool has_collnet;            /* reduction in the network switch (SHARP), enabled */
    bool has_ll128;              /* NVLink inside nodes and RDMA between */
    double gpu_bytes_per_s;      /* total that a GPU sends to the others of its node */
    double path_bytes_per_s;     /* maximum of one path between two of them */
    ty_link_transport transport; /* of the network between nodes */
    uint32_t flows;              /* connections of a NIC to each peer; 0: as many as NCCL opens */
    uint32_t nics;               /* per node that its GPUs use */
    double nic_bytes_per_s;      /* of one by its data sheet, at most its PCI link */
    double network_latency_s;    /* as a network plug-in reports it; InfiniBand and sockets: 0 */
    double message_latency_s;    /* likewise, as measured; sockets have one */
    double long_latency_s;       /* once more for messages longer than a packet */
    double network_share;        /* of the NICs' rate that is reached; 0: all */
    double socket_bytes_per_s;   /* most of a NIC, ty_socket_rate; with a network_share */
    bool is_simple_only;         /* the plug-in allows no protocol with flags */
} ty_communicator;

/**
 * The communicator of some devices of a cluster.
 * @return TY_EUNSUPPORTED if one is not a GPU that NCCL runs on; TY_EINVAL for an unknown device or
 * a repeated one.
 */
ty_status ty_communicator_of(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                             ty_communicator *out, ty_error *error) TY_MUST_CHECK;
/** The same if the caller has ty_cluster_rails of the devices. */
ty_status ty_communicator_on_rails(const ty_cluster *cluster, const uint32_t *devices,
                                   uint32_t count, const ty_rails *rails, ty_communicator *out,
                                   ty_error *error) TY_MUST_CHECK;
/** Whether NCCL runs on a device of this name: whether its compute capability is known. */
bool ty_is_nccl_device(const char *name);
/**
 * Most bytes/s of an adapter if the host's processors carry them through sockets; HUGE_VAL for
 * other transports. Each connection has a thread that moves `a` bytes/s, and all share memory and
 * interrupts at `c`: 1 / (1 / (a f) + 1 / c) for f connections. Amazon's network limits each
 * connection, too.
 * @param flows connections to each peer; 0: as many as NCCL opens
 */
double ty_socket_rate(ty_link_transport transport, double flows);

/* ---- Graphs ------------------------------------------------------------------------------ */

/** The order is that of NCCL's own tables. */
typedef enum ty_nccl_algorithm {
    TY_NCCL_TREE,
    TY_NCCL_RING,
    TY_NCCL_COLLNET_DIRECT,
    TY_NCCL_COLLNET_CHAIN,
    TY_NCCL_NVLS,
    TY_NCCL_NVLS_TREE,
    TY_NCCL_PAT,
    TY_NCCL_ALGORITHM_COUNT
} ty_nccl_algorithm;
typedef enum ty_nccl_protocol {
    TY_NCCL_LL,
    TY_NCCL_LL128,
    TY_NCCL_SIMPLE,
    TY_NCCL_PROTOCOL_COUNT
} ty_nccl_protocol;
const char *ty_nccl_algorithm_name(ty_nccl_algorithm algorithm); /* "NVLS" */
const char *ty_nccl_protocol_name(ty_nccl_protocol protocol);    /* "LL128" */

/** Channels and the rate of each, in GB/s (1e9 bytes/s) as NCCL counts. 0 channels: none. */
typedef struct ty_nccl_graph {
    uint32_t channels;
    double intra_gb_per_s, inter_gb_per_s;
} ty_nccl_graph;
typedef struct ty_nccl_graphs {
    ty_nccl_graph ring, tree, nvls, collnet;
} ty_nccl_graphs;
/**
 * Finds the graphs of NCCL's search: as many channels of the fastest rate as the links allow.
 * Source: search.cc, reduced to nodes with equal GPUs. O(number of rates that NCCL tries).
 */
void ty_nccl_graphs_find(const ty_communicator *communicator, ty_nccl_graphs *out);

/* ---- Tables ------------------------------------------------------------------------------ */

/**
 * Corrects NCCL's own model, which ranks algorithms but does not predict time: seconds = overhead +
 * latency + bytes / (bandwidth * efficiency). The constants depend on where a collective runs and
 * how it synchronizes: with flags (LL, LL128), or by Simple's fences, which NVLS and NVLS trees use
 * too. A ring inside a node takes a fraction of a step more than NCCL counts, because a rank copies
 * or reduces its own shard without a link. Two GPUs therefore reach a third less of their links
 * than eight do.
 */
typedef enum ty_collective_medium {
    TY_MEDIUM_NODE_FLAGS,
    TY_MEDIUM_NODE_SIMPLE,
    TY_MEDIUM_NVLS,
    TY_MEDIUM_NETWORK_FLAGS,
    TY_MEDIUM_NETWORK_SIMPLE,
    TY_MEDIUM_COUNT
} ty_collective_medium;
/** Cost of a call to a program, in addition to the library's kernel. */
typedef enum ty_collective_calls {
    TY_CALLS_LAUNCHED, /* each launched and synchronized alone, as in nccl-tests and eager
                          frameworks */
    TY_CALLS_QUEUED,   /* one after another on the devices, or in a CUDA graph: no cost */
    TY_CALLS_COUNT
} ty_collective_calls;
const char *ty_collective_calls_name(ty_collective_calls calls); /* "launched" */
typedef struct ty_collective_calibration {
    double overhead_s[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double efficiency[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double own_steps[TY_GPU_GENERATION_COUNT]; /* of a ring in a node, for a rank's own shard */
    double peer_s[TY_GPU_GENERATION_COUNT];    /* of an all-to-all, per peer */
    bool is_nvls_by_links; /* NVLS in a node at the rate of a GPU's links, not at NCCL's rates */
    double direct_links;   /* rate of NVLinks without a switch, over NCCL's figure */
} ty_collective_calibration;
/** NCCL's own figures: no overhead, efficiency 1. */
ty_collective_calibration ty_collective_uncalibrated(void);
/** The fit that comes with Trainyard (nccl.json). Queued calls were measured inside nodes only;
 * between nodes they use the constants of launched ones. */
ty_collective_calibration ty_collective_calibrated(ty_collective_calls calls);

typedef struct ty_collective_pair {
    ty_nccl_algorithm algorithm;
    ty_nccl_protocol protocol;
    double latency_s, bytes_per_s;           /* NCCL's, for the choice */
    double real_latency_s, real_bytes_per_s; /* calibrated, for the answer */
} ty_collective_pair;

#define TY_MOST_PAIRS (TY_NCCL_ALGORITHM_COUNT * TY_NCCL_PROTOCOL_COUNT)
/** Immutable once made; plain memory. */
typedef struct ty_collective_table {
    uint32_t ranks, nodes, ring_channels;
    ty_gpu_generation generation;
    ty_host_processor processor;
    double long_latency_s; /* of messages longer than a packet, with several nodes */
    uint32_t pair_counts[TY_COLLECTIVE_COUNT];
    ty_collective_pair pairs[TY_COLLECTIVE_COUNT][TY_MOST_PAIRS];
} ty_collective_table;

/** @param calibration NULL: the one that comes with Trainyard
 *  @return TY_EINVAL if the communicator is invalid (no ranks, more nodes than ranks, a rate that
 * is not positive). */
ty_status ty_collective_table_make(const ty_communicator *communicator,
                                   const ty_collective_calibration *calibration,
                                   ty_collective_table *out, ty_error *error) TY_MUST_CHECK;

/** NCCL's choice for a size, and its time: seconds = latency + bytes / rate. */
typedef struct ty_collective_choice {
    ty_nccl_algorithm algorithm;
    ty_nccl_protocol protocol;
    double seconds, latency_s;
    double bytes_per_s; /* of `bytes`; HUGE_VAL if nothing is sent */
} ty_collective_choice;
ty_collective_choice ty_collective_choose(const ty_collective_table *table, ty_collective_kind kind,
                                          uint64_t bytes);
/** The same with a fixed algorithm, as by NCCL_ALGO; the best of all if it is not available. */
ty_collective_choice ty_collective_choose_by(const ty_collective_table *table,
                                             ty_collective_kind kind, ty_nccl_algorithm algorithm,
                                             uint64_t bytes);
/** Only the seconds. 0 with one rank. */
double ty_collective_seconds(const ty_collective_table *table, ty_collective_kind kind,
                             uint64_t bytes);
/** Bus bandwidth over algorithm bandwidth, as in nccl-tests: the busiest link's bytes over the
 * message size. 2(n-1)/n for an all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all,
 * 1 for the others. Source: nccl-tests doc/PERFORMANCE.md. */
double ty_collective_bus_factor(ty_collective_kind kind, uint32_t ranks);
/** The table's entry with NCCL's own figures; false if the pair is not allowed. */
bool ty_collective_entry(const ty_collective_table *table, ty_collective_kind kind,
                         ty_nccl_algorithm algorithm, ty_nccl_protocol protocol, double *latency_s,
                         double *bytes_per_s);

/* ---- Collectives of frameworks ----------------------------------------------------------- */

/** Links of a collective that no library's model covers. */
typedef struct ty_exchange_links {
    uint32_t hosts, per_host;
    double host_bytes_per_s, host_latency_s; /* a rank's rate to the others of its host */
    double rail_bytes_per_s, rail_latency_s; /* a rank's rate to other hosts while all send */
    double exchange_bytes_per_s; /* S over seconds of an all-to-all with S/n per pair; HUGE_VAL:
                                    full duplex without contention */
} ty_exchange_links;

/** Seconds of a collective by phase. */
typedef struct ty_exchange_time {
    double seconds, latency_s;
    double host_s, rail_s; /* transfer inside hosts and between them: hierarchical phases follow one
                              another; of an all-to-all the longer counts */
} ty_exchange_time;

/**
 * Reduce-scatter inside each host, all-reduce of the shards across hosts (among ranks of the same
 * local index), all-gather inside: Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE (Sergeev and Del Balso,
 * arXiv:1802.05799; horovod/common/ops/nccl_operations.cc). Rings in each phase:
 *   2 (g-1) a_host + 2 (N-1) a_rail + 2 (g-1)/g S/B_host + 2 (N-1)/N (S/g)/B_rail
 */
ty_exchange_time ty_hierarchical_all_reduce(const ty_exchange_links *links, double bytes);
/**
 * BigDL's all-reduce over Spark's block manager: every task reads its slice of the gradient from
 * all others, sums it, and then reads all slices of the result (Dai et al., arXiv:1804.05839,
 * section 3.3, algorithm 2). These are two all-to-all rounds:
 *   2 a + 2 max((g-1)/n S/B_host, (n-g)/n S/B_rail, S/B_exchange)
 * The launch of two Spark jobs is not included.
 */
ty_exchange_time ty_block_manager_all_reduce(const ty_exchange_links *links, double bytes);

/** Where parameter servers run. */
typedef enum ty_server_place {
    TY_SERVERS_DEDICATED, /* on hosts of their own */
    TY_SERVERS_COLOCATED  /* on the hosts of the first `servers` workers; all of them: sharded */
} ty_server_place;
typedef struct ty_parameter_servers {
    ty_server_place place;
    uint32_t workers, servers;
    double worker_bytes_per_s, server_bytes_per_s; /* of each one's network link */
    double latency_s;
    double largest_share; /* dedicated: fraction on the server with most; 0: 1/servers */
} ty_parameter_servers;
/**
 * Push of the gradient and pull of the weights, one after the other, each server with an equal
 * share, or at most `largest_share` (Li et al., OSDI 2014; the bounds as in Jiang et al., BytePS,
 * OSDI 2020, section 2.2). With W workers and P servers, each way takes the longest of
 *   dedicated: S/B_worker, W/P S/B_server (W times the largest share if they are unequal)
 *   co-located: the busiest host's bytes, sent as a worker or received as a server: (W-1)/P S/B,
 *   and S/B for a host without a server.
 * @return TY_EINVAL: no workers, no servers, more co-located servers than workers, a largest share
 * less than 1/servers or more than 1
 */
ty_status ty_parameter_server_seconds(const ty_parameter_servers *servers, double bytes,
                                      double *seconds, ty_error *error) TY_MUST_CHECK;

/* ---- One collective ---------------------------------------------------------------------- */

typedef struct ty_collective_question {
    ty_collective_kind kind;
    uint32_t ranks;        /* the number of the cluster's devices, from the first; 0: all */
    uint32_t per_host;     /* of these, only the first N of each host; 0: all */
    const char *algorithm; /* a name of NCCL_ALGO, or a framework's ("hierarchical"); NULL: the
                              library's choice */
    ty_collective_calls calls;
} ty_collective_question;

typedef struct ty_collective_answer {
    uint64_t size;                    /* as asked */
    const char *algorithm, *protocol; /* static; protocol "" if no library is modeled */
    double seconds, latency_s;
    double alg_bandwidth_bytes_per_s; /* size over seconds */
    double bus_bandwidth_bytes_per_s; /* by ty_collective_bus_factor */
} ty_collective_answer;

/** The devices of a question, as ty_collective_ask takes them.
 * @param devices [out] of the cluster's number; NULL: not needed
 * @return their number */
uint32_t ty_collective_devices(const ty_cluster *cluster, const ty_collective_question *question,
                               uint32_t *devices);

/**
 * Times one collective alone at several sizes: its cost in a plan without the stack's overhead, no
 * faster than the links.
 * @param sizes bytes as nccl-tests counts them: the result of an all-gather, else the input of one
 * rank; at least one byte per rank
 * @param out   [out, count]
 * @return TY_EINVAL: fewer than two ranks, more ranks than devices, an algorithm that is unknown or
 * that the devices do not have for this collective
 */
ty_status ty_collective_ask(const ty_cluster *cluster, const ty_collective_question *question,
                            const uint64_t *sizes, uint32_t count, ty_collective_answer *out,
                            ty_error *error) TY_MUST_CHECK;

/* ==== collective log ========================================================================== */

/*
 * Reads logs of nccl-tests (all_reduce_perf and similar) and calibrates a profile with them.
 *
 * A row is `size count type [redop] [root]  time algbw busbw error  time algbw busbw error`: bytes,
 * elements, microseconds and GB/s, out of place and in place (nccl-tests doc/PERFORMANCE.md). The
 * parser reads both kinds of header (an `error` column, or `#wrong` and `root`). It skips lines of
 * other programs between the rows, and rows of size 0.
 */

typedef struct ty_collective_log_row {
    uint64_t size;  /* as printed: the result of an all-gather */
    uint64_t bytes; /* the input of one rank */
    double out_of_place_s, in_place_s;
} ty_collective_log_row;

typedef struct ty_collective_log {
    ty_collective_kind kind;
    uint32_t ranks;
    uint32_t hosts; /* 0: the log does not say */
    uint32_t row_count;
    ty_collective_log_row *rows; /* in the order of the log */
} ty_collective_log;

/**
 * Reads a log; "-" is standard input.
 * The collective comes from the program's name in the log, else `kind`, else the file's name. It is
 * an all-reduce otherwise, if bus and algorithm bandwidth differ as an all-reduce's do. The number
 * of ranks comes from the list of devices, else from the elements or the two bandwidths.
 * @param kind TY_COLLECTIVE_COUNT: not specified
 * @return TY_EPARSE with file and line: no rows (with the log's last line, which often says why), a
 * truncated row, wrong results, a tuner's table, a log that does not name its collective
 */
ty_status ty_collective_log_load(const char *path, ty_collective_kind kind, ty_collective_log **out,
                                 ty_error *error) TY_MUST_CHECK;
/** The same from memory. @param name file name, for messages and to find the collective */
ty_status ty_collective_log_parse(const char *text, const char *name, ty_collective_kind kind,
                                  ty_collective_log **out, ty_error *error) TY_MUST_CHECK;
void ty_collective_log_free(ty_collective_log *log);

/**
 * Adds a log's rows to a profile as measured collectives with the library's own choice of
 * algorithm. The shorter of a row's two times counts, because disturbances only lengthen a
 * measurement. A row replaces one of the same size, ranks and hosts.
 * @param cluster gives the number of hosts if the log does not
 * @return TY_EINVAL if the cluster has fewer devices than the log has ranks, or cannot place them
 * on as many hosts as the log says
 */
ty_status ty_profile_calibrate(ty_profile *profile, const ty_collective_log *log,
                               const ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
/** Makes an empty profile of a cluster's devices from their data sheets, for calibration.
 *  @param date ISO 8601 */
ty_status ty_profile_of_cluster(const ty_cluster *cluster, const char *date, ty_profile **out,
                                ty_error *error) TY_MUST_CHECK;

#endif
