/**
 * @file ty_stack.h
 * A stack: the framework that runs a plan, as far as it changes the plan's cost. A device has
 * physical rates; a stack has the share of them that its kernels reach, its host overhead, its
 * overlap and its memory use. Every predicted time and size names its stack.
 *
 *     ty_stack *stack = NULL;
 *     TY_CHECK(ty_stack_open("megatron", &stack, error), status, cleanup);
 *     seconds = flop / (peak * stack->product_share);
 *
 * Stacks are data: `planner/stacks/NAME.json`, one file each, or the user's own file
 * (`trainyard.stack/1`, docs/reference/framework-files.md). A stack may be `like` another and then
 * lists only the differences. Every figure has a source; fitted ones name the rows that they were
 * fitted to (docs/results/README.md). A plan carries its complete stack, so predictions for a saved
 * plan do not change. A stack is immutable once opened.
 */
#ifndef TY_STACK_H
#define TY_STACK_H

#include "ty_axes.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How a stack computes and stores the scores of attention. */
typedef enum ty_stack_attention {
    TY_ATTENTION_OF_WORKLOAD, /* by each layer's `is_fused` */
    TY_ATTENTION_SCORES,      /* scores, softmax and dropout go through memory and are stored */
    TY_ATTENTION_FUSED, /* scores are computed block by block and never stored (FlashAttention) */
    TY_STACK_ATTENTION_COUNT
} ty_stack_attention;
const char *
ty_stack_attention_name(ty_stack_attention attention); /* "workload", "scores", "fused" */

/** The program whose memory is counted. */
typedef enum ty_stack_memory {
    TY_MEMORY_WORKER,   /* allocations of trainyard-worker: every layer stores its output */
    TY_MEMORY_AUTOGRAD, /* a framework's automatic differentiation: each operation stores the inputs
                           that its backward reads (Korthikanti et al. 2022, section 4.1) */
    TY_STACK_MEMORY_COUNT
} ty_stack_memory;
const char *ty_stack_memory_name(ty_stack_memory memory); /* "worker", "autograd" */

/** Rows of published measurements that constants were fitted to: never validation. */
typedef struct ty_stack_fitted {
    char *source; /* its name in `validate`: "vtrain_multi" */
    char *model;  /* of that source; NULL: all of it */
} ty_stack_fitted;

/** Error of a stack's predictions on held-out published measurements. */
typedef struct ty_stack_judged {
    char *device;      /* prefix of the devices' names */
    uint32_t rows;     /* measurements */
    double mean_error; /* of |predicted / measured - 1| */
} ty_stack_judged;

/** A switch of the framework's launch files, and the constants that it sets. It is written after
 * the stack's name: "megatron tp_comm_overlap=on". */
typedef struct ty_stack_switch {
    char *name;  /* with its value: "tp_comm_overlap=on" */
    char *words; /* "tensor_hidden=0.9" */
    char *source;
} ty_stack_switch;

/** Plans that a stack can run. Anything else is never proposed for that stack, and rejected if the
 * user requests it. */
typedef struct ty_stack_plans {
    ty_axis_sets may;             /* values of each axis */
    bool elementwise_of_experts;  /* recompute elementwise is only for models without dense layers
                                     (ty_workload_is_dense) */
    bool whole_key_heads;         /* tensor-parallel ranks do not share key and value heads */
    bool whole_blocks;            /* stages begin where blocks do (ty_workload_blocks) */
    bool whole_segments;          /* blocks per recomputed segment divide those of every stage */
    bool experts_along_sequences; /* with experts, tensor parallelism needs sequence parallelism */
    bool experts_without_fp16;    /* expert parallelism does not support fp16 */
    bool compression_on_request;  /* gradients are compressed only if the user asks for it */
} ty_stack_plans;

#define TY_OF_DEVICE (-1.0) /* for a constant: the device's own figure, "device" in JSON */

/** Number of a stack's first constants that may differ by device: product_share to kernel_s. */
#define TY_STACK_DEVICE_CONSTANTS 10

/** Figures that replace a stack's own on some devices. */
typedef struct ty_stack_on {
    char *device; /* prefix of their names, "h100", or their generation, "hopper" */
    double values[TY_STACK_DEVICE_CONSTANTS]; /* NAN: the stack's own figure */
    char *sources[TY_STACK_DEVICE_CONSTANTS]; /* NULL: the stack's `source` */
} ty_stack_on;

typedef struct ty_stack {
    char *name;   /* "megatron-2021": letters, digits, '-', '_' and '.' */
    char *asked;  /* argument of ty_stack_open; NULL: read from a document */
    char *why;    /* reason that it replaces the default stack; NULL: it is the default or was
                     requested. Not written to documents */
    char *title;  /* "Megatron-LM of 2021 on A100" */
    char *source; /* of figures without a source of their own */
    ty_provenance provenance;

    /* ---- Kernels. A product of m x n x k takes
     *   max(2 m n k / (peak x product_share) (1 + edge/m)(1 + edge/n)(1 + edge/k), traffic)
     * and a pass over memory bytes / (bandwidth x memory_share), each plus kernel_s. */
    double product_share; /* 0 to 1, of the peak of the precision; TY_OF_DEVICE */
    double product_edge;  /* elements; TY_OF_DEVICE */
    double fp8_share;     /* of the peak in 8 bits, narrow products (ty_workload.h); TY_OF_DEVICE */
    double fp4_share;     /* likewise in 4 bits */
    double expert_share;  /* rate of the grouped products of a mixture's experts, over that of one
                             product of their size */
    double attention_share; /* of the peak in 16 bits, fused attention forward; TY_OF_DEVICE, which
                               is the products' share if the device has no figure */
    double attention_backward; /* rate of fused attention's backward over its forward's, > 0;
                                  TY_OF_DEVICE */
    double device_share;       /* sustained share in a training step of a device's own shares, if
                                  TY_OF_DEVICE selects those: they are measured in bursts, kernel by
                                  kernel */
    double memory_share;       /* 0 to 1, of the memory's bandwidth; TY_OF_DEVICE */
    double kernel_s;      /* device seconds of a kernel in addition to its work; TY_OF_DEVICE */
    double traffic_share; /* of the unfused bytes that its passes move; 1: nothing is fused */
    double cast_bytes; /* traffic per number that enters a narrow product, for its conversion from
                          16 bits */
    double permutation_passes; /* over the tokens that are sent to experts and back, each a read
                                  or a write */
    double attention_kernels;  /* launches of attention's forward in addition to the layer's own
                                  count */
    double loss_kernels;       /* likewise of a loss over a vocabulary */
    double logit_bytes;        /* traffic of a loss, all passes, per row and class */
    double accumulate_bytes;   /* traffic of a backward pass per parameter in addition to the
                                  products' own: gradient accumulation */
    double optimizer_bytes;    /* traffic of AdamW's update per parameter, other optimizers in
                                  proportion; TY_OF_DEVICE: reads and writes each number once */

    /* ---- The host: a pass takes the longer of device and host. */
    double host_kernel_s;     /* per kernel launch */
    double host_collective_s; /* ... a collective inside a layer */
    double host_expert_s;     /* additional, per pass of a layer of experts: routing, group sizes */
    double host_unfused_s;    /* additional, per softmax to which the fused kernel does not apply */
    double host_pass_s;       /* per pass of a micro-batch over a stage */
    double host_step_s;       /* per step: optimizer, scaler, logging */
    double task_s; /* per step and device of the plan: for a driver that starts each step as one
                      task per device, one after the other */

    /* ---- The network, relative to the library's own model (ty_collective_model.h). */
    double host_link_share;    /* > 0, share of the rates inside hosts that collectives reach */
    double network_share;      /* > 0, likewise between hosts */
    double network_contention; /* loss per additional group that shares a host's NICs */
    double network_group_bytes_per_s; /* most that a group which does not fill its hosts achieves;
                                         0: no limit */
    double socket_flows; /* connections to each peer over sockets, unless the cluster has a number:
                            NCCL since 2.4 opens two */
    double collective_s; /* per collective in addition to the library's own latency */
    double collective_member_s; /* and per member of a host after the first, because all wait for
                                   each other; twice for an all-reduce */
    double tensor_hidden; /* share of tensor-parallel communication inside layers on one host that
                             is hidden by products */
    double gather_hidden; /* for weights under ZeRO 1 or 2: > 0, each bucket's all-gather overlaps
                             the first forward pass; 0, the first forward pass waits for all */
    /* Expert-parallel communication. */
    double expert_hidden; /* share that overlaps the products of another micro-batch, at most as
                             long as these take, and slows them down by `overlap_loss` of it */
    double expert_once; /* of a token's copies for experts on one other host, the share that crosses
                           the network once and is then forwarded inside that host: 0, a copy per
                           expert; 1, as DeepEP */
    double expert_hosts;   /* most hosts with experts of one token, if routing limits them; 0: no
                              limit */
    double dispatch_share; /* bytes sent to the experts over those sent back: half plus the scales
                              if sent in 8 bits */
    double overlap_loss;   /* share of the time of overlapped communication (gradients, weights, EP)
                              by which it slows compute, since it takes processors and bandwidth */
    /* Before a bucket's collective, its members agree that it is ready on all of them:
     *   exchange_cycle_s / 2 + agreement_rounds 2 ceil(log2 n) latency + coordinator_s n
     * for n members, with the latency of the worst link between neighbors. */
    double exchange_cycle_s; /* period at which collectives begin; each waits half of it on average;
                                0: they begin as soon as they are ready */
    double agreement_rounds; /* round trips of a few bytes in a tree of all members */
    double coordinator_s;    /* seconds of the one coordinator per member */
    double transfer_share;   /* share of a path's rate that send/recv between stages reaches */
    double transfer_s;       /* per send/recv in addition to the path's latency */

    /* ---- Memory. */
    double context_bytes; /* per process before its first tensor */
    double memory_waste;  /* share of activations lost to the allocator */
    double loss_bytes; /* of a loss over a vocabulary per row and class, without its input: half is
                          stored until backward, half is allocated during it. 8: a copy in fp32 and
                          its gradient; 0: all in place */
    double gradient_bytes; /* stored per parameter: 4, or 2 if gradients stay in 16 bits */
    double narrow_copies;  /* of the inputs of a narrow product (ty_workload.h), stored until
                              backward in their narrow format; 0: they are stored in 16 bits and
                              converted a second time */

    /* ---- Constants for the user's own measurements. */
    double compute_scale;  /* factor on the predicted time of layers and updates; > 0. 1 for times
                              from a profile */
    double step_jitter;    /* standard deviation of a device's work from step to step, as a share of
                              it: all wait for the slowest, ty_stack_waiting */
    double jitter_devices; /* number whose waiting the other constants include: that of the runs
                              they were fitted to */

    /* ---- Behavior. */
    ty_stack_attention attention;
    ty_stack_memory memory;
    bool has_dropout;       /* in language models: masks are computed, stored and read */
    bool overlaps_exchange; /* gradient communication overlaps backward */
    bool has_equal_stages;  /* pipeline stages have equal numbers of blocks, as in Megatron-LM,
                               instead of the best balance */
    ty_stack_plans plans;

    uint32_t on_count;
    ty_stack_on *on; /* of those with the figure, the longest prefix of a device's name applies,
                        else the device's generation */
    uint32_t fitted_count;
    ty_stack_fitted *fitted;
    uint32_t judged_count;
    ty_stack_judged
        *judged; /* of exactly this stack: one that is `like` it, or changed, has none */
    uint32_t switch_count;
    ty_stack_switch *switches; /* of exactly this stack; a copy and a plan's stack have none */
    /* [constants, in the order of ty_stack_constant_at] source of the figure; NULL: `source`. A
     * stack that is `like` another also has the sources of the figures that it inherits. */
    char **sources;
} ty_stack;

/** The catalogue's name of Trainyard's own worker, which `run` starts. */
#define TY_WORKER_STACK "trainyard"

/**
 * Opens a stack of the catalogue by its name, or from a file, followed by constants that replace
 * its own: "tensorflow-2017 compute_scale=1.12 step_jitter=0". Such a stack has "-changed" after
 * its name, and its title lists the changes. One of these words may be a switch of the stack, which
 * does not change the name. A text with '/' or with ".json" at its end is a file, "-" is standard
 * input, and any other word is a file only if the catalogue has no such name. `like` takes the same
 * texts; a path is relative to the folder of the file with the `like`.
 * @return TY_EPARSE with file and pointer: an unknown constant or one out of range, a stack that is
 *   `like` itself; TY_EINVAL for an unknown name or constant, with the nearest, and for a figure
 *   out of range.
 */
ty_status ty_stack_open(const char *text, ty_stack **out, ty_error *error) TY_MUST_CHECK;
/** The text that opens this stack: `asked`, or else its name. */
const char *ty_stack_words(const ty_stack *stack);
/** Reads a stack in the form that plans carry: complete, not `like` another, checked like a
 * file. */
ty_status ty_stack_from_json(const ty_json *object, ty_stack **out, ty_error *error) TY_MUST_CHECK;
void ty_stack_to_json(const ty_stack *stack, ty_json_writer *writer, const char *key);
ty_status ty_stack_copy(const ty_stack *stack, ty_stack **out, ty_error *error) TY_MUST_CHECK;
/** SHA-256 of its JSON as written above, without blanks. */
ty_status ty_stack_digest(const ty_stack *stack, ty_digest *out, ty_error *error) TY_MUST_CHECK;
void ty_stack_free(ty_stack *stack);

/** Every plan: the default for a stack without limits. */
ty_stack_plans ty_stack_all_plans(void);

/** As text: "schedules of pipelines 1f1b, interleaved; ...". */
void ty_stack_plans_text(const ty_stack_plans *plans, ty_text *text);

/** Checks that a model can be sharded over tensor-parallel ranks, and that the stack supports it.
 * @return as ty_tensor_check */
ty_status ty_stack_tensor_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, uint32_t sequence_parts,
                                ty_error *error) TY_MUST_CHECK;
/** The same for expert-parallel ranks. @param tables a ty_table_shard. @return as
 * ty_expert_check */
ty_status ty_stack_expert_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, int tables, bool is_fp16,
                                ty_error *error) TY_MUST_CHECK;
/** The layer at which blocks begin: the one after a leading embedding, which may be a stage by
 * itself; else 0. */
uint32_t ty_stack_first_block(const ty_workload *workload);
/** Checks that the stack can have stages that begin at these layers.
 * @param first_layers [stages], the first 0
 * @param is_full full recomputation is requested
 * @param segment with it, the blocks per segment; 0: a stage's
 * @return TY_EINVAL with the stage that it cannot have, and why */
ty_status ty_stack_stages_check(const ty_stack_plans *plans, const ty_workload *workload,
                                const uint32_t *first_layers, uint32_t stages, bool is_full,
                                uint32_t segment, ty_error *error) TY_MUST_CHECK;
/** The kinds of ty_recompute that the stack has for a model, as a set. */
uint32_t ty_stack_recomputes(const ty_stack_plans *plans, bool is_dense);
/**
 * Whether the stack can run the pinned values with a model.
 * @param whose subject of the message: "stack megatron"
 * @param is_fp16 layers compute in fp16
 * @return TY_EINVAL with the value found and those in `plans`
 */
ty_status ty_stack_plans_check(const char *whose, const ty_stack_plans *plans, const ty_pins *pins,
                               const ty_workload *workload, bool is_fp16,
                               ty_error *error) TY_MUST_CHECK;
/** ty_stack_plans_check for a stack's plans and name. */
ty_status ty_stack_check(const ty_stack *stack, const ty_pins *pins, const ty_workload *workload,
                         bool is_fp16, ty_error *error) TY_MUST_CHECK;
/**
 * Factor on the time of the devices' work if `devices` of them wait for each other:
 *   (1 + step_jitter z(n)) / (1 + step_jitter z(jitter_devices)), at least 1
 * where z(n) is ty_expected_largest. The model assumes that work varies independently on each
 * device and in each step.
 */
double ty_stack_waiting(const ty_stack *stack, uint32_t devices);
/**
 * Mean of the largest of n standard normal numbers, by Blom's approximation of its quantile (1958):
 * the inverse normal distribution at (n - 0.375)/(n + 0.25); 0 for n = 1.
 */
double ty_expected_largest(uint32_t n);

/** Names of the catalogue's stacks, sorted; free each and the array with ty_free. */
ty_status ty_stack_names(char ***names, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** The i-th constant: its JSON key, its offset in a stack and its range; NULL after the last. For
 * code that fits, prints or reads constants. */
typedef struct ty_stack_constant {
    const char *key;
    size_t offset; /* of a double in ty_stack */
    double minimum, maximum;
    bool may_be_of_device; /* TY_OF_DEVICE is allowed, "device" in JSON */
    bool may_be_missing;   /* then it is `usual` */
    double usual;
} ty_stack_constant;
const ty_stack_constant *ty_stack_constant_at(uint32_t i);
double *ty_stack_value(ty_stack *stack, const ty_stack_constant *constant);
/** The source of the i-th constant: its own or the stack's; never NULL. */
const char *ty_stack_source(const ty_stack *stack, uint32_t i);
/** The error of predictions for a device; the longest matching prefix applies; NULL: unknown. */
const ty_stack_judged *ty_stack_judged_on(const ty_stack *stack, const char *device);
/** The value of one of the first TY_STACK_DEVICE_CONSTANTS constants on a device: the device's,
 * else that of its generation, else the stack's.
 * @param constant of `stack`: &stack->product_share
 * @param device its name
 * @param generation from ty_device_type; NULL: unknown */
double ty_stack_on_device(const ty_stack *stack, const double *constant, const char *device,
                          const char *generation);
/** A constant by its key, or by "DEVICE:KEY" one of `on`, which is added if it is missing, with the
 * value that applies there. @param generation of that device; NULL: unknown
 * @return TY_EINVAL for an unknown constant, or one that may not differ by device, with the
 *   nearest; TY_ENOMEM
 */
ty_status ty_stack_find(ty_stack *stack, const char *name, const char *generation,
                        const ty_stack_constant **constant, double **value,
                        ty_error *error) TY_MUST_CHECK;

/** Whether constants were fitted to a row of a source. */
bool ty_stack_is_fitted(const ty_stack *stack, const char *source, const char *model);

#endif
