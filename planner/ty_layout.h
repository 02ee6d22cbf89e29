/**
 * @file ty_layout.h
 * Hybrid parallelism of large transformers in closed form: how a model of equal layers is laid out
 * over thousands of equal devices (tensor, sequence, context, expert, pipeline and data
 * parallelism, ZeRO, micro-batches, recomputation, schedule), how long a step of a layout takes,
 * how much memory it needs, and which layout is best.
 *
 *     ty_layout_question question;
 *     TY_CHECK(ty_layout_question_of(workload, cluster, 4096, &question, error), status, cleanup);
 *     TY_CHECK(ty_layout_search(&question, &options, &answer, error), status, cleanup);
 *     printf("tp %u pp %u: %.3f s\n", answer->best[0].layout.tensor, ...);
 *
 * An estimate costs about a microsecond and needs no allocation; a layout that does not fit is
 * found out sooner. Nothing here grows with the number of devices. docs/layout.md has the formulas,
 * their sources, the constants and how well they predict published runs.
 *
 * Ranks are placed as Megatron-LM places them: tensor parallel neighbours first, then context, then
 * data, then pipeline stages. Everything is a pure function of its inputs.
 */
#ifndef TY_LAYOUT_H
#define TY_LAYOUT_H

#include "ty_core.h"
#include "ty_topologies.h"

/* ---- The decision ------------------------------------------------------------------------ */

typedef enum ty_layout_schedule {
    TY_LAYOUT_GPIPE,       /* all forwards, then all backwards */
    TY_LAYOUT_1F1B,        /* with flush; interleaved where `interleave` > 1 */
    TY_LAYOUT_ZERO_BUBBLE, /* ZB-H1: weight gradients fill the drain (Qi et al. 2024) */
    TY_LAYOUT_SCHEDULE_COUNT
} ty_layout_schedule;
const char *ty_layout_schedule_name(ty_layout_schedule schedule); /* "gpipe", "1f1b", "zb-h1" */

typedef enum ty_layout_recompute {
    TY_LAYOUT_KEEP_ALL,
    TY_LAYOUT_SELECTIVE, /* scores and softmax of attention are made anew (Korthikanti 2022) */
    TY_LAYOUT_FULL,      /* only the input of each layer is kept */
    TY_LAYOUT_RECOMPUTE_COUNT
} ty_layout_recompute;
const char *
ty_layout_recompute_name(ty_layout_recompute recompute); /* "none", "selective", "full" */

typedef enum ty_layout_precision {
    TY_LAYOUT_HALF, /* fp16 or bf16 with fp32 master weights */
    TY_LAYOUT_FP8,  /* matrix products of the layers in fp8, the rest as half */
    TY_LAYOUT_FP32,
    TY_LAYOUT_PRECISION_COUNT
} ty_layout_precision;
const char *ty_layout_precision_name(ty_layout_precision precision); /* "half", "fp8", "fp32" */

/** devices = tensor * context * pipeline * data; expert divides context * data. */
typedef struct ty_layout {
    uint32_t tensor, context, expert, pipeline, data; /* degrees; 1: not used */
    uint32_t interleave;                              /* model chunks per pipeline stage; 1: none */
    uint32_t micro_batch;                             /* sequences */
    uint32_t zero; /* 0 to 3: optimizer state, also gradients, also parameters are sharded */
    ty_layout_schedule schedule;
    ty_layout_recompute recompute;
    ty_layout_precision precision;
    ty_compression_kind compression; /* of gradients on the wire */
    bool sequence_parallel;          /* activations between tensor parallel parts are split, too */
    bool overlap_gradients;          /* buckets leave while the last micro-batch goes backward */
    bool overlap_tensor;   /* collectives of tensor parallelism in pieces, beside the products */
    uint64_t bucket_bytes; /* of fp32 gradients; 0: all at once */
} ty_layout;

#define TY_LAYOUT_TEXT_SIZE 160
/** "tp 8+sp, pp 16 x 3, dp 32, micro-batch 1, selective recompute, zero 1, overlap". */
void ty_layout_text(const ty_layout *layout, char out[TY_LAYOUT_TEXT_SIZE]);
/** The order that breaks ties: field by field as above, smaller first. <0, 0, >0. */
int ty_layout_compare(const ty_layout *a, const ty_layout *b);

/* ---- The question ------------------------------------------------------------------------ */

/** A decoder or an encoder: a stack of equal layers between an embedding and a head. */
typedef struct ty_layout_shape {
    uint32_t layers, hidden, heads, kv_heads; /* kv_heads 0: as heads */
    uint32_t head_size;                       /* 0: hidden / heads */
    uint32_t ffn;                             /* inner features of the mlp; 0: 4 hidden */
    uint32_t vocabulary, sequence;            /* tokens per sample */
    uint32_t experts, experts_per_token;      /* 0: dense */
    uint32_t expert_ffn, shared_ffn; /* of one expert; of the experts that see all tokens */
    uint32_t dense_layers;       /* first layers with a dense mlp of `ffn` although experts > 0 */
    double attention_parameters; /* per layer; 0: from the sizes (latent attention differs) */
    bool is_gated;               /* three matrices in the mlp instead of two */
    bool is_causal;
    bool is_fused; /* attention keeps no scores (FlashAttention) and skips masked blocks */
    bool has_dropout;
    bool is_tied;       /* the head uses the embedding's matrix */
    uint32_t positions; /* learned ones */
} ty_layout_shape;

typedef struct ty_layout_cluster {
    uint32_t devices, devices_per_host;
    double
        host_bandwidth_bytes_per_s; /* of a device to its neighbours in the host, one direction */
    double host_latency_s;
    double nic_bandwidth_bytes_per_s; /* of a whole host, all adapters, one direction */
    double nic_latency_s;
    double oversubscription; /* of the network beyond the hosts; 1: none */
} ty_layout_cluster;

typedef struct ty_layout_device {
    char name[64];
    double peak_half_flop_per_s, peak_fp8_flop_per_s, peak_fp32_flop_per_s; /* 0: not supported */
    double memory_bandwidth_bytes_per_s, memory_bytes;
} ty_layout_device;

/**
 * What the formulas take from measurements. Read from planner/layout/constants.json, where each has
 * its unit, its source and, if it was fitted, the rows it was fitted to (docs/layout.md).
 */
typedef struct ty_layout_constants {
    char name[32];
    ty_provenance provenance;
    double matmul_efficiency; /* share of peak in matrix products without edges */
    double matmul_edge;       /* elements: a product of m x n x k costs as if
                                 (1 + edge/m)(1 + edge/n)(1 + edge/k) as large */
    double memory_efficiency; /* share of memory bandwidth in elementwise kernels */
    double kernel_s;          /* device seconds of a kernel beside its work */
    double host_kernel_s;     /* host seconds until a kernel is launched */
    double host_collective_s; /* ... until a collective of a layer is launched */
    double host_unfused_s;    /* ... more per softmax where the fused kernel does not apply */
    double host_slot_s;       /* ... per micro-batch and stage: loop, loss, synchronisation */
    double host_step_s;       /* ... per step: optimizer, scaler, logging */
    double host_bandwidth_efficiency, nic_bandwidth_efficiency; /* of collectives */
    double nic_contention; /* loss per further group that shares a host's adapters: with g groups
                              they carry 1 / (1 + loss (g - 1)) */
    double nic_group_bytes_per_s; /* most that a group draws from the network which does not fill
                                     its hosts, and so has no adapter of its own; 0: no limit */
    double collective_s;          /* base of a collective */
    double collective_hop_s;      /* per member inside a host */
    double collective_nic_hop_s;  /* per doubling of hosts */
    double send_bandwidth_efficiency; /* of transfers between stages */
    double send_s;                    /* latency of one, host synchronisation included */
    double logit_bytes;     /* memory traffic per token and vocabulary entry, head and loss */
    double optimizer_bytes; /* memory traffic per parameter of a step */
    double overlap_loss;    /* share of compute lost while a collective runs beside it */
    double data_skew;       /* relative slow-down per doubling of data parallel hosts */
    double context_bytes;   /* memory a process needs before the first tensor */
    double memory_waste;    /* share of activations lost to the allocator */
} ty_layout_constants;

/** A set of constants by name ("a100-megatron"), NULL: "default". TY_EINVAL names the sets. */
ty_status ty_layout_constants_load(const char *name, ty_layout_constants *out,
                                   ty_error *error) TY_MUST_CHECK;
/** The i-th constant's name, NULL behind the last, and where it is: for those who fit them. */
const char *ty_layout_constant(ty_layout_constants *constants, uint32_t i, double **value);

/** Members of a collective and where they sit. Groups of one kind run at the same time: those that
 * share a host share its adapters. */
typedef struct ty_layout_group {
    uint32_t members;
    uint32_t members_per_host; /* <= members */
    uint32_t groups_per_host;  /* >= 1: how many such groups leave a host side by side */
} ty_layout_group;

/**
 * Seconds of one collective; the one place where networks are modelled, so that a finer model can
 * be put in. Not negative, and the same for the same arguments.
 * @param bytes what each member holds before an all-reduce or reduce-scatter, after an all-gather;
 *              of an all-to-all (`is_all_to_all`) what each member sends in all
 */
typedef double (*ty_layout_collective)(const void *context, ty_collective_kind kind,
                                       bool is_all_to_all, const ty_layout_group *group,
                                       double bytes);

/** A question without its options. Plain numbers: copy it, change it, ask again. */
typedef struct ty_layout_question {
    ty_layout_shape shape;
    ty_layout_cluster cluster;
    ty_layout_device device;
    ty_layout_constants constants;
    uint32_t global_batch; /* sequences */
    double gradient_bytes; /* kept per parameter: 4, or 2 where gradients stay in half precision */
    ty_layout_collective collective; /* NULL: ty_layout_latency_bandwidth */
    const void *collective_context;  /* NULL with the former: this question */
} ty_layout_question;

/**
 * The transformer in a workload: its layers counted and their attributes read. Works for whatever
 * the zoo or an importer made of equal decoder or encoder layers.
 * @return TY_EUNSUPPORTED, naming the layer that does not belong into a stack of equal layers.
 */
ty_status ty_layout_shape_of(const ty_workload *workload, ty_layout_shape *out,
                             ty_error *error) TY_MUST_CHECK;
/** Hosts, links and adapters of a cluster of equal hosts. TY_EUNSUPPORTED for unequal devices. */
ty_status ty_layout_cluster_of(const ty_cluster *cluster, ty_layout_cluster *out,
                               ty_error *error) TY_MUST_CHECK;
ty_layout_device ty_layout_device_of(const ty_device_type *type);
/** All of it, with the default constants, whose efficiencies are over the catalogue's rates.
 * @param global_batch 0: the workload's usual one */
ty_status ty_layout_question_of(const ty_workload *workload, const ty_cluster *cluster,
                                uint32_t global_batch, ty_layout_question *out,
                                ty_error *error) TY_MUST_CHECK;
/** Whether a question can be answered at all: sizes inside their ranges, no NaN. Fills what 0
 * stands for. TY_EINVAL names the field. */
ty_status ty_layout_question_check(ty_layout_question *question, ty_error *error) TY_MUST_CHECK;

double ty_layout_parameters(const ty_layout_shape *shape); /* of the whole model */
/** Of one step, forward and backward without recomputation; full (not causal) attention counts. */
double ty_layout_model_flop(const ty_layout_shape *shape, uint32_t global_batch);

/**
 * Latency and bandwidth: an all-reduce of S bytes among n members, h of them per host,
 *   2 (n-1)/n S / B + base + 2 ((h-1) hop + ceil(log2(n/h)) nic_hop)
 * where B is the bandwidth of the device inside the host, or of the host's adapters over the
 * groups that share them (and the oversubscription) if that is less and the group leaves the host;
 * less still for a group that does not fill its hosts where the constants limit it
 * (nic_group_bytes_per_s); all-gather and reduce-scatter take half. Sources: Thakur et al. 2005;
 * NCCL's tuner for the hops.
 */
double ty_layout_latency_bandwidth(const void *question, ty_collective_kind kind,
                                   bool is_all_to_all, const ty_layout_group *group, double bytes);

/* ---- The estimate ------------------------------------------------------------------------ */

/** Bytes of one device, of the stage that needs most. */
typedef struct ty_layout_memory {
    double parameters, gradients, optimizer;
    double activations; /* kept for the micro-batches in flight */
    double transient;   /* the layer that is recomputed or differentiated, logits */
    double buffers;     /* messages, buckets, gathered parameters */
    double reserve;     /* context, allocator */
    double total;
} ty_layout_memory;

/** Seconds of a step by what the slowest stage does; they add up to the step. */
typedef struct ty_layout_estimate {
    double step_time_s;
    double compute_s, recompute_s;
    double tensor_s, context_s, expert_s; /* exposed communication inside layers */
    double transfer_s;                    /* between stages */
    double bubble_s;
    double data_s; /* exposed exchange of gradients and parameters */
    double optimizer_s;
    double other_s;                /* host, embedding, head and loss */
    double model_flop_utilisation; /* of the peak of the layout's precision */
    ty_layout_memory memory;
} ty_layout_estimate;

/**
 * Whether a layout is one at all for this question: degrees multiply to the devices and divide
 * heads, sequence, experts, layers and batch. TY_EINVAL says which rule it breaks.
 */
ty_status ty_layout_check(const ty_layout_question *question, const ty_layout *layout,
                          ty_error *error) TY_MUST_CHECK;
/** Memory alone. The layout passes ty_layout_check. */
void ty_layout_memory_of(const ty_layout_question *question, const ty_layout *layout,
                         ty_layout_memory *out);
/**
 * Time and memory, whether it fits or not. The question passes ty_layout_question_check.
 * @return what ty_layout_check returns.
 */
ty_status ty_layout_estimate_of(const ty_layout_question *question, const ty_layout *layout,
                                ty_layout_estimate *out, ty_error *error) TY_MUST_CHECK;

/* ---- The search -------------------------------------------------------------------------- */

/** What may vary; 0 or NULL members leave a dimension free. */
typedef struct ty_layout_options {
    uint32_t tensor, context, expert, pipeline, interleave, data, micro_batch; /* fixed degrees */
    uint32_t schedules, recomputes, precisions, zeros, compressions; /* bit i: value i is allowed */
    uint32_t sequence_parallel, overlap_gradients, overlap_tensor;   /* bit 0: off, bit 1: on */
    const uint64_t *buckets; /* [bucket_count] sizes to try */
    uint32_t bucket_count;
    uint32_t top;                       /* layouts to return, best first; at most 1000 */
    double memory_bytes;                /* what a device may use; 0: all of it */
    bool (*should_stop)(void *context); /* polled every some thousand layouts; NULL: never */
    void *stop_context;
} ty_layout_options;
/** Everything free, half precision, lossless or fp16 gradients, six bucket sizes, the best ten. */
ty_layout_options ty_layout_options_default(void);

typedef struct ty_layout_result {
    ty_layout layout;
    ty_layout_estimate estimate;
} ty_layout_result;

typedef struct ty_layout_answer {
    uint32_t best_count, front_count;
    ty_layout_result *best;  /* by step time, then memory, then ty_layout_compare */
    ty_layout_result *front; /* none is both faster and smaller; fastest first */
    uint64_t configurations; /* in the space: all that pass ty_layout_check and the options */
    uint64_t estimated, unfit, pruned; /* their sum; unfit: memory told; pruned: bounds told */
    bool is_interrupted;               /* best so far */
} ty_layout_answer;

/**
 * The best layouts and the front of time against memory, exactly: what is pruned provably belongs
 * to neither. Deterministic. Needs some tens of MB.
 * @return TY_EINFEASIBLE: none fits; the message has what misses least, by how much, and the
 *         smallest change that makes it fit. TY_EINVAL: no layout passes the rules and options.
 *         TY_EINTERRUPTED: stopped before any was found.
 */
ty_status ty_layout_search(const ty_layout_question *question, const ty_layout_options *options,
                           ty_layout_answer **out, ty_error *error) TY_MUST_CHECK;
/** The same by estimating every configuration one by one: the search's oracle. */
ty_status ty_layout_search_exhaustive(const ty_layout_question *question,
                                      const ty_layout_options *options, ty_layout_answer **out,
                                      ty_error *error) TY_MUST_CHECK;
void ty_layout_answer_free(ty_layout_answer *answer);

#endif
