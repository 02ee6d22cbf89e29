/**
 * @file ty_collective_model.h
 * What a collective library makes of a machine: an equivalent of NCCL's performance model, and the
 * exchanges that frameworks build on top of it.
 *
 * A communicator (how many GPUs, on how many nodes, how they are linked) becomes a table of latency
 * and bandwidth for every algorithm and protocol; for a size the pair that takes least by that
 * table is the one NCCL chooses. Making a table costs microseconds, asking it far less than one.
 *
 *     ty_communicator communicator;
 *     ty_collective_table table;
 *     TY_CHECK(ty_communicator_of(cluster, devices, 16, &communicator, error), status, done);
 *     TY_CHECK(ty_collective_table_make(&communicator, NULL, &table, error), status, done);
 *     seconds = ty_collective_seconds(&table, TY_ALL_REDUCE, 64 << 20);
 *
 * Source of the model and of its constants: NVIDIA/nccl 2.28.9 and 2.30.7, src/graph/tuning.cc,
 * search.cc and topo.cc; planner/nccl/nccl.json has every constant with its source. Not modelled:
 * congestion, tuner plugins, symmetric-memory kernels, RCCL. How far it is from measurements:
 * docs/design/collectives.md.
 *
 * Bytes are what each member puts in: of an all-gather its own piece (nccl-tests' size divided by
 * the ranks), of everything else the whole buffer (nccl-tests' size).
 */
#ifndef TY_COLLECTIVE_MODEL_H
#define TY_COLLECTIVE_MODEL_H

#include "ty_core.h"
#include "ty_topologies.h"

/* ---- What it depends on ------------------------------------------------------------------ */

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

/** Bandwidths are per direction. Nodes hold ranks / nodes GPUs each. */
typedef struct ty_communicator {
    uint32_t ranks, nodes;
    ty_gpu_generation generation; /* of the oldest GPU */
    ty_host_processor processor;
    bool has_nvlink;          /* between all GPUs of a node; else PCI */
    bool has_nvswitch;        /* every GPU reaches every other at its full rate */
    bool has_nvls;            /* reduction in the NVSwitch: Hopper and later */
    bool has_collnet;         /* reduction in the network switch (SHARP), switched on */
    bool has_ll128;           /* NVLink inside nodes and RDMA between */
    double gpu_bytes_per_s;   /* all that a GPU sends to its node's others */
    double path_bytes_per_s;  /* most that one path between two of them carries */
    uint32_t nics;            /* of a node that its GPUs use */
    double nic_bytes_per_s;   /* of one by its name, no more than its PCI link */
    double network_latency_s; /* what a network plug-in reports; InfiniBand and sockets: 0 */
} ty_communicator;

/**
 * The communicator of some devices of a cluster.
 * @return TY_EUNSUPPORTED when one is not a GPU that NCCL runs on; TY_EINVAL for a device there
 *         is not or that comes twice.
 */
ty_status ty_communicator_of(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                             ty_communicator *out, ty_error *error) TY_MUST_CHECK;
/** The same where ty_cluster_rails of the devices is known. */
ty_status ty_communicator_on_rails(const ty_cluster *cluster, const uint32_t *devices,
                                   uint32_t count, const ty_rails *rails, ty_communicator *out,
                                   ty_error *error) TY_MUST_CHECK;
/** Whether NCCL runs on a device of this name: whether its compute capability is known. */
bool ty_is_nccl_device(const char *name);

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

/** Channels and what each carries, in GB/s (1e9 bytes/s) as NCCL counts. 0 channels: none. */
typedef struct ty_nccl_graph {
    uint32_t channels;
    double intra_gb_per_s, inter_gb_per_s;
} ty_nccl_graph;
typedef struct ty_nccl_graphs {
    ty_nccl_graph ring, tree, nvls, collnet;
} ty_nccl_graphs;
/**
 * What NCCL's search would find: as many channels of the fastest rate as the links hold.
 * Source: search.cc reduced to machines whose GPUs are alike. O(rungs of the ladder of rates).
 */
void ty_nccl_graphs_find(const ty_communicator *communicator, ty_nccl_graphs *out);

/* ---- Tables ------------------------------------------------------------------------------ */

/**
 * How measured times differ from NCCL's own model, which ranks algorithms and is no clock: seconds
 * = overhead + latency + bytes / (bandwidth * efficiency), by where a collective runs and how it
 * synchronises: with flags (LL, LL128), or by Simple's fences, on which NVLS and trees of it build,
 * too. A ring inside a node takes some of a step more than NCCL counts, for a member's own piece,
 * which it copies or reduces without a link: what two GPUs reach of their links is a third less
 * than what eight do.
 */
typedef enum ty_collective_medium {
    TY_MEDIUM_NODE_FLAGS,
    TY_MEDIUM_NODE_SIMPLE,
    TY_MEDIUM_NVLS,
    TY_MEDIUM_NETWORK_FLAGS,
    TY_MEDIUM_NETWORK_SIMPLE,
    TY_MEDIUM_COUNT
} ty_collective_medium;
/** What a program pays for a call besides the library's kernel. */
typedef enum ty_collective_calls {
    TY_CALLS_LAUNCHED, /* each launched and met by itself, as nccl-tests and eager frameworks do */
    TY_CALLS_QUEUED,   /* behind one another on the devices, or in a CUDA graph: nothing */
    TY_CALLS_COUNT
} ty_collective_calls;
const char *ty_collective_calls_name(ty_collective_calls calls); /* "launched" */
typedef struct ty_collective_calibration {
    double overhead_s[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double efficiency[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT];
    double own_steps[TY_GPU_GENERATION_COUNT]; /* of a ring in a node, for a member's own piece */
    double peer_s[TY_GPU_GENERATION_COUNT];    /* of an exchange with everybody, for each of them */
    bool is_nvls_by_links; /* NVLS in a node by what a GPU's links carry, not by NCCL's rungs */
    double direct_links;   /* rate of NVLinks without a switch between, over NCCL's figure of it */
} ty_collective_calibration;
/** NCCL's own figures: no overhead, efficiency 1. */
ty_collective_calibration ty_collective_uncalibrated(void);
/** The fit that comes with Trainyard (nccl.json). Queued calls were measured inside nodes only:
 *  between nodes they are taken for launched ones. */
ty_collective_calibration ty_collective_calibrated(ty_collective_calls calls);

typedef struct ty_collective_pair {
    ty_nccl_algorithm algorithm;
    ty_nccl_protocol protocol;
    double latency_s, bytes_per_s;           /* NCCL's: they decide */
    double real_latency_s, real_bytes_per_s; /* calibrated: they are answered */
} ty_collective_pair;

#define TY_MOST_PAIRS (TY_NCCL_ALGORITHM_COUNT * TY_NCCL_PROTOCOL_COUNT)
/** Immutable once made; plain memory. */
typedef struct ty_collective_table {
    uint32_t ranks, nodes, ring_channels;
    ty_gpu_generation generation;
    ty_host_processor processor;
    uint32_t pair_counts[TY_COLLECTIVE_COUNT];
    ty_collective_pair pairs[TY_COLLECTIVE_COUNT][TY_MOST_PAIRS];
} ty_collective_table;

/** @param calibration NULL: the one that comes with Trainyard
 *  @return TY_EINVAL when the communicator makes no sense (no ranks, more nodes than ranks, a rate
 *  that is not positive). */
ty_status ty_collective_table_make(const ty_communicator *communicator,
                                   const ty_collective_calibration *calibration,
                                   ty_collective_table *out, ty_error *error) TY_MUST_CHECK;

/** What NCCL would do with a size, and how long it takes: seconds = latency + bytes / rate. */
typedef struct ty_collective_choice {
    ty_nccl_algorithm algorithm;
    ty_nccl_protocol protocol;
    double seconds, latency_s;
    double bytes_per_s; /* of `bytes`; HUGE_VAL where nothing moves */
} ty_collective_choice;
ty_collective_choice ty_collective_choose(const ty_collective_table *table, ty_collective_kind kind,
                                          uint64_t bytes);
/** The same with the algorithm given, as by NCCL_ALGO; the best of all where it cannot be had. */
ty_collective_choice ty_collective_choose_by(const ty_collective_table *table,
                                             ty_collective_kind kind, ty_nccl_algorithm algorithm,
                                             uint64_t bytes);
/** Seconds alone. 0 with one rank. */
double ty_collective_seconds(const ty_collective_table *table, ty_collective_kind kind,
                             uint64_t bytes);
/** Busiest link's bytes over seconds, as nccl-tests prints it: algorithm bandwidth times 2(n-1)/n
 *  of an all-reduce, (n-1)/n of what is gathered, scattered or exchanged, 1 of the others.
 *  Source: nccl-tests doc/PERFORMANCE.md. */
double ty_collective_bus_factor(ty_collective_kind kind, uint32_t ranks);
/** The table's entry as NCCL has it; false where the pair is not allowed. */
bool ty_collective_entry(const ty_collective_table *table, ty_collective_kind kind,
                         ty_nccl_algorithm algorithm, ty_nccl_protocol protocol, double *latency_s,
                         double *bytes_per_s);

/* ---- Exchanges of frameworks ------------------------------------------------------------- */

/** Links of an exchange that no library's model covers. */
typedef struct ty_exchange_links {
    uint32_t hosts, per_host;
    double host_bytes_per_s, host_latency_s; /* a member's rate to the others of its host */
    double rail_bytes_per_s, rail_latency_s; /* a member's rate to other hosts, all sending */
    double exchange_bytes_per_s; /* S over seconds while everybody sends everybody a share S/n;
                                    HUGE_VAL: both ways at once do not disturb each other */
} ty_exchange_links;

/** Seconds of an exchange in its phases. */
typedef struct ty_exchange_time {
    double seconds, latency_s;
    double host_s, rail_s; /* transfer inside hosts and between them: hierarchical phases follow one
                              another, of an exchange with everybody the longer counts */
} ty_exchange_time;

/**
 * Reduce-scatter inside each host, all-reduce of the pieces across hosts (each member with its
 * likes), all-gather inside: Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE (Sergeev and Del Balso,
 * arXiv:1802.05799; horovod/common/ops/nccl_operations.cc). Rings in each phase:
 *   2 (g-1) a_host + 2 (N-1) a_rail + 2 (g-1)/g S/B_host + 2 (N-1)/N (S/g)/B_rail
 */
ty_exchange_time ty_hierarchical_all_reduce(const ty_exchange_links *links, double bytes);
/**
 * BigDL's all-reduce over Spark's block manager: every task reads its slice of the gradient from
 * all others, sums it, and then reads all slices of the result (Dai et al., arXiv:1804.05839,
 * section 3.3, algorithm 2). Two rounds in which everybody sends to everybody:
 *   2 a + 2 max((g-1)/n S/B_host, (n-g)/n S/B_rail, S/B_exchange)
 * Launching two Spark jobs is not in it.
 */
ty_exchange_time ty_block_manager_all_reduce(const ty_exchange_links *links, double bytes);

/** Where the servers of a parameter-server exchange run. */
typedef enum ty_server_place {
    TY_SERVERS_DEDICATED, /* on hosts of their own */
    TY_SERVERS_COLOCATED  /* on the first `servers` workers' hosts; all of them: sharded */
} ty_server_place;
typedef struct ty_parameter_servers {
    ty_server_place place;
    uint32_t workers, servers;
    double worker_bytes_per_s, server_bytes_per_s; /* of each one's network link */
    double latency_s;
    double largest_share; /* dedicated: of the bytes, on the server that has most; 0: 1/servers */
} ty_parameter_servers;
/**
 * Push of the gradient and pull of the weights, each server with an equal share of them, or at most
 * `largest_share`; push and pull one after the other (Li et al., OSDI 2014; the bounds as in Jiang
 * et al., BytePS, OSDI 2020, section 2.2). With W workers and P servers, each way takes the longest
 * of
 *   dedicated: S/B_worker, W/P S/B_server (W times the largest share where they are unequal)
 *   co-located: what the busiest host sends as worker, and receives as server: (W-1)/P S/B, and S/B
 *   of a host without a server.
 * @return TY_EINVAL: no workers, no servers, more co-located servers than workers, a largest share
 * that is less than an equal one or more than all
 */
ty_status ty_parameter_server_seconds(const ty_parameter_servers *servers, double bytes,
                                      double *seconds, ty_error *error) TY_MUST_CHECK;

/* ---- One collective ---------------------------------------------------------------------- */

typedef struct ty_collective_question {
    ty_collective_kind kind;
    uint32_t ranks;        /* the first so many devices of the cluster; 0: all of them */
    const char *algorithm; /* NCCL's by NCCL_ALGO's names, or a framework's ("hierarchical"); NULL:
                              what the library would choose */
    ty_collective_calls calls;
} ty_collective_question;

typedef struct ty_collective_answer {
    uint64_t size;                    /* as asked */
    const char *algorithm, *protocol; /* static; protocol "" where no library is modelled */
    double seconds, latency_s;
    double alg_bandwidth_bytes_per_s; /* size over seconds */
    double bus_bandwidth_bytes_per_s; /* by ty_collective_bus_factor */
} ty_collective_answer;

/**
 * One collective by itself at several sizes: what plans pay for an exchange before their stack adds
 * to it, no faster than the links.
 * @param sizes bytes as nccl-tests counts them: of an all-gather the result, of others what a
 *              member puts in; at least a byte of each
 * @param out   [out, count]
 * @return TY_EINVAL: fewer than two ranks, more than devices, an algorithm that is not known or
 * that the devices do not have for this collective
 */
ty_status ty_collective_ask(const ty_cluster *cluster, const ty_collective_question *question,
                            const uint64_t *sizes, uint32_t count, ty_collective_answer *out,
                            ty_error *error) TY_MUST_CHECK;

/* ==== collective log ========================================================================== */

/*
 * Logs of nccl-tests (all_reduce_perf and its like), and what they tell the planner.
 *
 * A row is `size count type [redop] [root]  time algbw busbw error  time algbw busbw error`: bytes,
 * elements, microseconds and GB/s, out of place and in place (nccl-tests doc/PERFORMANCE.md). Both
 * kinds of header are read (an `error` column, or `#wrong` and `root`); lines of other programs
 * between the rows are skipped, rows of size 0 too.
 */

typedef struct ty_collective_log_row {
    uint64_t size;  /* as printed: of an all-gather the whole result */
    uint64_t bytes; /* what each member puts in */
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
 * The collective is that of the program's name in the log, else `kind`, else that of the file's
 * name, else an all-reduce where bus and algorithm bandwidth differ as an all-reduce's do. Ranks
 * are counted in the list of devices, else worked out of the elements or the two bandwidths.
 * @param kind TY_COLLECTIVE_COUNT: not given
 * @return TY_EPARSE with file and line: no rows (with the log's last line, which tends to say why),
 *         a row cut short, wrong results, a tuner's table, a log that does not say what it measured
 */
ty_status ty_collective_log_load(const char *path, ty_collective_kind kind, ty_collective_log **out,
                                 ty_error *error) TY_MUST_CHECK;
/** The same from memory. @param name file name, for messages and for its words */
ty_status ty_collective_log_parse(const char *text, const char *name, ty_collective_kind kind,
                                  ty_collective_log **out, ty_error *error) TY_MUST_CHECK;
void ty_collective_log_free(ty_collective_log *log);

/**
 * Adds a log's rows to a profile as measured collectives of the library's own choice. Of the two
 * times of a row the shorter counts: what disturbs a measurement makes it longer. A size that is
 * already there for as many ranks and hosts is replaced.
 * @param cluster says on how many hosts the ranks were, where the log does not
 * @return TY_EINVAL when the cluster has fewer devices than the log has ranks, or they cannot have
 *         been on as many hosts as the log says
 */
ty_status ty_profile_calibrate(ty_profile *profile, const ty_collective_log *log,
                               const ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
/** An empty profile of a cluster's devices by their data sheet, to be calibrated.
 *  @param date ISO 8601 */
ty_status ty_profile_of_cluster(const ty_cluster *cluster, const char *date, ty_profile **out,
                                ty_error *error) TY_MUST_CHECK;

#endif
