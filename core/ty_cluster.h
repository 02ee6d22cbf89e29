/**
 * @file ty_cluster.h
 * A cluster in the form that plans carry: devices, hosts, switches and the links between them.
 * Vertices are devices, hosts (their PCIe/memory hub), NVLink switches, NICs and network switches;
 * edges are links with a bandwidth per direction, a latency and a kind. topologies/ opens clusters
 * by their names and computes routes and message times.
 *
 * A cluster is immutable and may have several owners: plans and questions. Each owner calls
 * ty_cluster_free.
 *
 *     TY_CHECK(ty_cluster_parse(text, "cluster.json", &cluster, error), status, done);
 *     plan->cluster = ty_cluster_share(cluster);
 *     ...
 *     ty_cluster_free(cluster); // the plan still has it
 *
 * Files are `trainyard.cluster/1` (docs/reference/file-formats.md).
 */
#ifndef TY_CLUSTER_H
#define TY_CLUSTER_H

#include "ty_base.h"
#include "ty_json.h"
#include "ty_workload.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ty_cluster ty_cluster;

typedef enum ty_vertex_kind {
    TY_VERTEX_DEVICE,
    TY_VERTEX_HOST,
    TY_VERTEX_DEVICE_SWITCH, /* NVSwitch, or a PCIe switch */
    TY_VERTEX_NIC,
    TY_VERTEX_SWITCH, /* leaf, spine */
    TY_VERTEX_KIND_COUNT
} ty_vertex_kind;
const char *ty_vertex_kind_name(ty_vertex_kind kind);

/** A kind of device, from the catalogue. Peak rates are dense. */
typedef struct ty_device_type {
    char *name;       /* "a100-sxm4-40gb" */
    char *generation; /* of its architecture, "hopper": its devices behave alike; NULL: unknown */
    char *source;
    char noun[8]; /* in rates: "TPU"; "": a GPU, or cores of a host */
    /* Of products, dense: fp16 is also bf16, fp8 and fp4 are of any format. 0: not supported. */
    double peak_fp32_flop_per_s, peak_tf32_flop_per_s, peak_fp16_flop_per_s;
    double peak_fp8_flop_per_s, peak_fp4_flop_per_s;
    double memory_bandwidth_bytes_per_s;
    uint64_t memory_bytes;
    uint64_t usable_memory_bytes; /* memory that a framework can allocate; 0: all */
    double launch_overhead_s;     /* per kernel */
    double matmul_efficiency; /* achieved share of peak in large matrix products and convolutions */
    double fp8_efficiency, fp4_efficiency; /* likewise of those peaks; 0: matmul_efficiency */
    bool is_fp8_estimate, is_fp4_estimate; /* no measurement of a kernel in that precision */
    double product_edge; /* elements: a product of m x n x k takes (1 + edge/m)(1 + edge/n)(1 +
                            edge/k) times as long */
    double attention_efficiency; /* achieved share of the fp16 peak in fused attention, forward; 0:
                                    as products */
    double attention_backward;   /* rate of its backward over its forward's; 0: 1 */
    double memory_efficiency;    /* achieved share of memory bandwidth in elementwise work */
    double convolution_efficiency; /* achieved share of the fp32 peak in convolutions by implicit
                                      matrix products; 0: unknown, they cost the same as products */
    double core_share; /* host cores that one computing device uses: 1 for "cpu", else 0 */
    double power_w;
} ty_device_type;

/** Peak rate of products in a precision, flop/s; 0: unsupported. TF32 falls back to fp32. */
double ty_device_peak(const ty_device_type *device, ty_precision precision);
/** "GPU", "TPU", or "device" for cores of a host. */
const char *ty_device_noun(const ty_device_type *device);
/** Bytes that a framework can allocate on a device. */
uint64_t ty_device_usable_bytes(const ty_device_type *device);
/** The share of usable memory that a plan leaves free by default: for the error of the memory model
 * and for uncounted buffers, such as CUDA graphs and larger communicators. Context and
 * fragmentation are counted as workspace (ty_stack). */
#define TY_USUAL_MEMORY_RESERVE 0.04
/** Bytes of a device that a plan may use: usable memory less its share `reserve`. */
uint64_t ty_device_room_bytes(const ty_device_type *device, double reserve);

/** A kind of host, from the catalogue: price, power, memory and NICs. */
typedef struct ty_host_type {
    char *name; /* "p4d.24xlarge" */
    char *source;
    double price_usd_per_hour; /* per host, on demand; 0 if price_date is NULL */
    char *price_date, *price_source;
    double power_w;         /* per host under load; 0: unknown */
    uint64_t memory_bytes;  /* of the host, next to that of its devices; 0: unknown */
    uint32_t nics_per_link; /* NICs that are drawn as one; 0: one */
} ty_host_type;

/**
 * A level of sample storage: memory of the hosts, their disks, a network or parallel file system,
 * an object store. A cluster lists them in read order: all but the last are caches of each host,
 * the last one has all samples and may be shared by the hosts (see "input" for their rates).
 */
typedef struct ty_storage {
    char *name; /* "nas" */
    char *source;
    bool is_shared;               /* one for all hosts; else every host has one */
    double bandwidth_bytes_per_s; /* of reads, in total */
    double host_bytes_per_s;      /* shared: most that one host can read; 0: no limit */
    double latency_s;             /* per request */
    double requests;              /* in flight per host; >= 1 */
    double request_bytes;         /* 0: one sample per request */
    double capacity_bytes;        /* of a cache, per host; 0: has all samples */
} ty_storage;
#define TY_MOST_STORAGE 8 /* of a cluster */

/** Protocol of messages between hosts. */
typedef enum ty_link_transport {
    TY_LINK_NONE, /* links inside hosts, between chips, or unknown */
    TY_LINK_INFINIBAND,
    TY_LINK_ROCE,
    TY_LINK_EFA,
    TY_LINK_TCP,   /* sockets over any Ethernet */
    TY_LINK_ENA,   /* sockets over Amazon's network */
    TY_LINK_GVNIC, /* sockets over Google's network */
    TY_LINK_TCPX,  /* the same straight from GPU memory: GPUDirect-TCPX */
    TY_LINK_COUNT
} ty_link_transport;
const char *ty_link_transport_name(ty_link_transport transport); /* "infiniband" */
/** Whether the processors of the hosts carry the bytes through sockets. */
bool ty_link_transport_is_sockets(ty_link_transport transport);

typedef struct ty_link_edge {
    uint32_t from, to;            /* vertices; links are full duplex, listed once */
    double bandwidth_bytes_per_s; /* per direction */
    double latency_s;
    char *kind; /* "nvlink2", "pcie3", "edr100", "memory" */
    char *source;
    ty_link_transport transport;
    uint32_t flows; /* connections of an adapter to each peer; 0: the framework's usual number */
} ty_link_edge;

/* ---- Life cycle, files --------------------------------------------------------------------- */

ty_status ty_cluster_from_json(const ty_json *object, ty_cluster **out,
                               ty_error *error) TY_MUST_CHECK;
/** @param name file name for messages */
ty_status ty_cluster_parse(const char *json, const char *name, ty_cluster **out,
                           ty_error *error) TY_MUST_CHECK;
void ty_cluster_to_json(const ty_cluster *cluster, ty_json_writer *writer, const char *key);
/** The document on one line, as in plans and for a cluster's digest. @param out [out] free with
 * ty_free */
ty_status ty_cluster_text(const ty_cluster *cluster, char **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_cluster_digest(const ty_cluster *cluster, ty_digest *out,
                            ty_error *error) TY_MUST_CHECK;
/** Adds an owner of the same cluster, which threads may share. O(1). */
ty_cluster *ty_cluster_share(const ty_cluster *cluster);
void ty_cluster_free(ty_cluster *cluster);

typedef enum ty_cluster_part { TY_PART_DEVICES, TY_PART_LINKS, TY_PART_STORAGE } ty_cluster_part;

/** A change of one figure of link, device or storage kinds: set or multiplied. */
typedef struct ty_cluster_edit {
    ty_cluster_part part;
    const char *name;  /* of the kind; NULL: all; for storage, the last level */
    const char *field; /* its key in files: "latency_s", "memory_bytes"; "peak_": all peak rates
                          that are not 0 */
    double value;
    bool is_factor;
} ty_cluster_edit;
/**
 * A copy of a cluster with changed figures. Shares everything else with `cluster`. O(links).
 * @return TY_EINVAL: an edit without effect, because there is no such kind or field; TY_EPARSE: a
 *   figure out of the range of files
 */
ty_status ty_cluster_edited(const ty_cluster *cluster, const ty_cluster_edit *edits, uint32_t count,
                            ty_cluster **out, ty_error *error) TY_MUST_CHECK;

/* ---- Contents ------------------------------------------------------------------------------ */

const char *ty_cluster_name(const ty_cluster *cluster);
uint32_t ty_cluster_device_count(const ty_cluster *cluster);
uint32_t ty_cluster_host_count(const ty_cluster *cluster);
const ty_device_type *ty_cluster_device_type(const ty_cluster *cluster, uint32_t device);
uint32_t ty_cluster_device_host(const ty_cluster *cluster, uint32_t device);
/** NULL if only the inside of a host is known. */
const ty_host_type *ty_cluster_host_type(const ty_cluster *cluster, uint32_t host);
const char *ty_cluster_host_name(const ty_cluster *cluster, uint32_t host);
/** Whether devices that are linked through the host's PCIe exchange through its memory, because
 * they have no peer-to-peer access. */
bool ty_cluster_host_is_staged(const ty_cluster *cluster, uint32_t host);
/** Cores of a host that its CPU devices share; 0 without CPU devices. */
uint32_t ty_cluster_host_cores(const ty_cluster *cluster, uint32_t host);

/** Levels of storage, in read order. */
uint32_t ty_cluster_storage_count(const ty_cluster *cluster);
const ty_storage *ty_cluster_storage(const ty_cluster *cluster, uint32_t level);

/* The graph, for the simulator's platform and pictures. */
uint32_t ty_cluster_vertex_count(const ty_cluster *cluster);
ty_vertex_kind ty_cluster_vertex_kind(const ty_cluster *cluster, uint32_t vertex);
const char *ty_cluster_vertex_name(const ty_cluster *cluster, uint32_t vertex); /* unique */
uint32_t ty_cluster_device_vertex(const ty_cluster *cluster, uint32_t device);
uint32_t ty_cluster_link_count(const ty_cluster *cluster);
const ty_link_edge *ty_cluster_link(const ty_cluster *cluster, uint32_t link);
/** Parallel links that one link stands for, as NICs drawn as one. */
double ty_cluster_link_lanes(const ty_cluster *cluster, uint32_t link);

/* ==== input =================================================================================== */

/*
 * Whether samples arrive as fast as training uses them: the rate of storage (ty_storage) and of the
 * cores that decode, with all readers at once.
 *
 *     ty_input_question q = {.levels = levels, .level_count = 2, .input = {.data_bytes = 1e12},
 *                            .sample_bytes = 110e3, .hosts = 4, .readers = 32, .host_readers = 8};
 *     TY_CHECK(ty_input_rate(&q, &outlook, error), status, done);
 *     total_samples_per_s = q.readers * outlook.samples_per_s; // bound by outlook.bound_by
 *
 * Levels and processors work concurrently, and requests are pipelined. So a latency only limits the
 * rate: a host has `requests` in flight, which gives at most requests x request bytes / latency
 * (Little, "A Proof for the Queuing Formula L = lambda W", 1961).
 */

/** The samples that a host reads in an epoch. */
typedef enum ty_shuffle {
    TY_SHUFFLE_GLOBAL, /* different ones in each: a cache is hit with its share of all samples */
    TY_SHUFFLE_HOST,   /* always the same ones, its share of the data */
    TY_SHUFFLE_COUNT
} ty_shuffle;
const char *ty_shuffle_name(ty_shuffle shuffle); /* "global" */

/** The user's description of the samples, in addition to the workload's. All 0: unspecified. */
typedef struct ty_input {
    double data_bytes;           /* of all samples; 0: unknown, and caches have none of them */
    double decode_samples_per_s; /* decoded and augmented per core; 0: no decoding */
    uint32_t cores;              /* dedicated to it per host; 0 counts as 1 */
    bool is_first_epoch;         /* caches are empty: the last level serves all reads */
    ty_shuffle shuffle;
} ty_input;
bool ty_input_is_said(const ty_input *input);

/**
 * "data=1.3TB,decode=250,cores=32,epoch=first,shuffle=host": sets these fields of `input` and
 * leaves the others.
 * @return TY_EINVAL naming the key, the value found and the value expected
 */
ty_status ty_input_read(const char *text, ty_input *input, ty_error *error) TY_MUST_CHECK;
/** Appends the specified fields in this form; nothing if there are none. */
void ty_input_words(const ty_input *input, ty_text *text);

/** As a member of a document, with all fields; nothing if none is specified. */
void ty_input_to_json(const ty_input *input, ty_json_writer *writer, const char *key);

typedef struct ty_input_question {
    const ty_storage *levels; /* [level_count] of a cluster; 0: storage is fast enough */
    uint32_t level_count;
    ty_input input;
    double sample_bytes;                   /* > 0 */
    uint32_t hosts, readers, host_readers; /* equal concurrent readers: number of hosts, readers in
                                              total, and on the host with the most; each >= 1 */
} ty_input_question;

typedef struct ty_input_forecast {
    double samples_per_s;                /* per reader while all read; HUGE_VAL: unlimited */
    const char *bound_by;                /* name of a level, or "decoding"; NULL: unlimited */
    double level_share[TY_MOST_STORAGE]; /* share of the samples read from each level */
    /* The same split for simulation, per sample: a reader's own time, independent of other readers;
     * its bytes from the storage that all hosts share; and its rate limit there. 0: none */
    double own_s, store_bytes, store_limit_bytes_per_s;
} ty_input_forecast;

/**
 * Each level has the samples that the levels before it do not, up to its capacity, and samples do
 * not move between levels. For n readers, k of them on a host, with V bytes per sample, a sample
 * takes
 *   of a level of the host:       V x share / min(bandwidth, requests x request / latency) x k
 *   of the shared store of R:     V x share x max(n / R, k / min(host's, requests x request /
 *                                 latency))
 *   of cores that decode d each:  k / (cores x d) seconds for a sample,
 * and the longest of these counts.
 * @return TY_EINVAL: figures out of range; data larger than every level
 */
ty_status ty_input_rate(const ty_input_question *question, ty_input_forecast *out,
                        ty_error *error) TY_MUST_CHECK;

/* ==== samples ================================================================================= */

/*
 * The measured rate of the worker's reader for a data set on a machine (`trainyard.samples/1`), and
 * the `--input` that follows from it.
 *
 *     TY_CHECK(ty_samples_load("samples.json", &samples, error), status, done);
 *     ty_samples_input(samples, &input); // goes to a question as --input does
 */

#define TY_MOST_READERS 16 /* numbers of threads that are tried */

/** Rate of a number of reader threads and the rank that uses the samples. */
typedef struct ty_samples_rate {
    uint32_t threads; /* that prefetch samples; 0: the rank reads them itself */
    double samples_per_s;
} ty_samples_rate;

typedef struct ty_samples {
    char *workload, *data;            /* owned */
    uint32_t cores;                   /* of the machine */
    uint64_t sample_count;            /* of the training set */
    double sample_bytes;              /* as stored, mean of the visited ones */
    double data_bytes;                /* of all samples */
    uint64_t visited;                 /* samples, the same ones for every number of threads */
    uint32_t skipped;                 /* of these, unreadable ones */
    double first_visit_samples_per_s; /* when each was read for the first time, from any storage,
                                         with the most threads */
    uint32_t rate_count;
    ty_samples_rate rates[TY_MOST_READERS]; /* of later visits, by threads, ascending */
} ty_samples;

/** The number of threads to plan with: the fewest within 5 % of the best rate. */
const ty_samples_rate *ty_samples_best(const ty_samples *samples);
/**
 * The equivalent of --input: all bytes, and the rate per thread of ty_samples_best, on one core per
 * thread. Ranks that read samples themselves use their own core: one, without `cores`.
 */
void ty_samples_input(const ty_samples *samples, ty_input *out);

/** Reads `trainyard.samples/1`; figures out of range are TY_EPARSE. */
ty_status ty_samples_load(const char *path, ty_samples **out, ty_error *error) TY_MUST_CHECK;
/** Includes `input` and its text in addition to the measurements; ty_samples_load ignores both. */
void ty_samples_to_json(const ty_samples *samples, ty_json_writer *writer);
ty_status ty_samples_save(const ty_samples *samples, const char *path,
                          ty_error *error) TY_MUST_CHECK;
void ty_samples_free(ty_samples *samples);

#endif
