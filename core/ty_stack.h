/**
 * @file ty_stack.h
 * A stack: the software that runs a plan, as far as it changes what the plan costs. A device has
 * physical rates; a stack says how much of them its kernels reach, what its host adds, what it
 * overlaps, what it keeps in memory. Every predicted time and size names its stack.
 *
 *     ty_stack *stack = NULL;
 *     TY_CHECK(ty_stack_open("megatron", &stack, error), status, cleanup);
 *     seconds = flop / (peak * stack->product_share);
 *
 * Stacks are data: `planner/stacks/NAME.json`, one file each, or a file of one's own
 * (`trainyard.stack/1`, docs/reference/framework-files.md). A stack may be `like` another and then
 * says only what differs. Every figure has a source; those that were fitted say to which rows
 * (docs/results/README.md). A plan carries its stack whole, so that a saved plan is always answered
 * alike. A stack is immutable once opened.
 */
#ifndef TY_STACK_H
#define TY_STACK_H

#include "ty_base.h"
#include "ty_json.h"
#include "ty_profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What a stack keeps and makes of the scores of attention. */
typedef enum ty_stack_attention {
    TY_ATTENTION_OF_WORKLOAD, /* as each layer's `is_fused` says */
    TY_ATTENTION_SCORES,      /* scores, softmax and dropout go through memory and are kept */
    TY_ATTENTION_FUSED,       /* scores are made block by block and never kept (FlashAttention) */
    TY_STACK_ATTENTION_COUNT
} ty_stack_attention;
const char *
ty_stack_attention_name(ty_stack_attention attention); /* "workload", "scores", "fused" */

/** Whose memory is counted. */
typedef enum ty_stack_memory {
    TY_MEMORY_WORKER,   /* what trainyard-worker allocates: every layer keeps its output */
    TY_MEMORY_AUTOGRAD, /* what a framework's automatic differentiation keeps: each operation the
                           inputs its backward reads (Korthikanti et al. 2022, section 4.1) */
    TY_STACK_MEMORY_COUNT
} ty_stack_memory;
const char *ty_stack_memory_name(ty_stack_memory memory); /* "worker", "autograd" */

/** Rows of published measurements that constants were fitted to: never validation. */
typedef struct ty_stack_fitted {
    char *source; /* as `validate` calls it: "vtrain_multi" */
    char *model;  /* of that source; NULL: all of it */
} ty_stack_fitted;

/** How far answers by a stack are from published measurements that nothing was fitted to. */
typedef struct ty_stack_judged {
    char *device;      /* what names of the devices begin with */
    uint32_t rows;     /* measurements */
    double mean_error; /* of |predicted / measured - 1| */
} ty_stack_judged;

/** A switch of the software's launch files, and the constants that it sets: written after the
 * stack's name, "megatron tp_comm_overlap=on". */
typedef struct ty_stack_switch {
    char *name;  /* with its value: "tp_comm_overlap=on" */
    char *words; /* "tensor_hidden=0.9" */
    char *source;
} ty_stack_switch;

/** What plans a stack can run, as sets: bit 1 << n for the n-th of an enumeration. What is in none
 * of them is never proposed for that stack, and refused where it is asked for. */
typedef struct ty_stack_plans {
    uint32_t schedules;          /* of ty_schedule, for two and more stages; 0: no pipelines */
    uint32_t compressions;       /* of ty_compression_kind */
    uint32_t recomputes;         /* of ty_recompute */
    uint32_t zero_levels;        /* of 0 to 3 */
    uint32_t parallelism;        /* of ty_parallelism */
    bool uneven_stages;          /* stages may have numbers of replicas of their own */
    bool late_gradients;         /* staleness */
    bool priority;               /* an order of exchanges, and forward behind each (ty_plan.h) */
    bool elementwise_of_experts; /* recompute elementwise is for networks of nothing but routed
                                  * experts (ty_workload_is_dense) */
    bool whole_key_heads;        /* tensor-parallel ranks do not share heads of keys and values */
    bool whole_blocks;           /* stages begin where blocks do (ty_workload_blocks) */
    bool whole_segments;         /* blocks made again at a time divide those of every stage */
    bool
        experts_along_sequences; /* with experts, tensor-parallel ranks need sequence parallelism */
    bool experts_without_fp16;   /* expert-parallel ranks are not for fp16 */
    bool compression_on_request; /* gradients are compressed only if the user asks for it */
} ty_stack_plans;

#define TY_OF_DEVICE (-1.0) /* of a constant: the device's own figure, "device" in JSON */

/** How many of a stack's first constants may be others on certain devices: product_share to
 * kernel_s. */
#define TY_STACK_DEVICE_CONSTANTS 10

/** What holds on some devices in place of a stack's own figures. */
typedef struct ty_stack_on {
    char *device; /* start of their names, "h100", or their generation, "hopper" */
    double values[TY_STACK_DEVICE_CONSTANTS]; /* NAN: the stack's own figure */
    char *sources[TY_STACK_DEVICE_CONSTANTS]; /* NULL: as the stack's `source` says */
} ty_stack_on;

typedef struct ty_stack {
    char *name;   /* "megatron-2021": letters, digits, '-', '_' and '.' */
    char *asked;  /* what ty_stack_open was given; NULL: it was read from a document */
    char *why;    /* it answers in place of the usual one; NULL: it is that or was asked for. Not
                     written to documents */
    char *title;  /* "Megatron-LM of 2021 on A100" */
    char *source; /* of what is not said by the figures themselves */
    ty_provenance provenance;

    /* ---- Kernels. A product of m x n x k takes
     *   max(2 m n k / (peak x product_share) (1 + edge/m)(1 + edge/n)(1 + edge/k), traffic)
     * and a pass over memory bytes / (bandwidth x memory_share), each with kernel_s beside it. */
    double product_share; /* 0 to 1, of the peak of the precision; TY_OF_DEVICE */
    double product_edge;  /* elements; TY_OF_DEVICE */
    double fp8_share;     /* of the peak in 8 bits, narrow products (ty_workload.h); TY_OF_DEVICE */
    double fp4_share;     /* likewise in 4 bits */
    double expert_share; /* rate of the products of a mixture's experts, which are grouped, over one
                            product's of their size */
    double attention_share;    /* of the peak in 16 bits, fused attention forward; TY_OF_DEVICE, and
                                  as products of a device that says nothing of it */
    double attention_backward; /* rate of fused attention's backward over its forward's, > 0;
                                  TY_OF_DEVICE */
    double device_share;  /* of a device's own shares, where those are asked for, what a training
                             step sustains: they are measured in bursts, kernel by kernel */
    double memory_share;  /* 0 to 1, of the memory's bandwidth; TY_OF_DEVICE */
    double kernel_s;      /* device seconds of a kernel beside its work; TY_OF_DEVICE */
    double traffic_share; /* of the unfused bytes that its passes move: 1 nothing is fused */
    double cast_bytes;    /* traffic per number that enters a narrow product: it is made of one
                             in 16 bits */
    double permutation_passes; /* over the tokens that are sent to experts and back, each a read
                                  or a write */
    double attention_kernels;  /* launches of attention's forward beside the layer's own count */
    double loss_kernels;       /* likewise of a loss over a vocabulary */
    double logit_bytes;        /* traffic of a loss, all passes, per row and class */
    double accumulate_bytes;   /* traffic of a backward pass per parameter beside the products' own:
                                  gradients that are added up */
    double optimizer_bytes;    /* traffic of an update per parameter; TY_OF_DEVICE: what the
                                  optimizer reads and writes, each number once */

    /* ---- The host: a pass takes the longer of device and host. */
    double host_kernel_s;     /* until a kernel is launched */
    double host_collective_s; /* ... a collective inside a layer */
    double host_expert_s;     /* more per pass of a layer of experts: routing, sizes of groups */
    double host_unfused_s;    /* more per softmax where the fused kernel does not apply */
    double host_pass_s;       /* per pass of a micro-batch over a stage */
    double host_step_s;       /* per step: optimizer, scaler, logging */
    double task_s; /* per step and device of the plan: of a driver that starts every step as a task
                      on each device, one after the other */

    /* ---- The network, over what the library's own model says (ty_collective_model.h). */
    double host_link_share;           /* > 0, of the rates inside hosts that collectives reach */
    double network_share;             /* > 0, likewise between hosts */
    double network_contention;        /* loss per further group that shares a host's adapters */
    double network_group_bytes_per_s; /* most that a group draws which does not fill its hosts; 0:
                                         no limit */
    double collective_s;              /* of a collective beside the library's own latency */
    double collective_member_s; /* and for every member of a host beyond the first, who all wait
                                   for one another; of an all-reduce twice */
    double tensor_hidden; /* of what tensor-parallel ranks of one host exchange inside layers, the
                             share that runs beside products and is not waited for */
    double gather_hidden; /* of weights that ZeRO 1 or 2 shards: > 0, each bucket's gather overlaps
                             the first forward pass; 0, the first forward pass waits for all */
    /* What expert-parallel ranks exchange. */
    double expert_hidden; /* the share that runs beside the products of another micro-batch, as far
                             as these last, and costs them `overlap_loss` of it */
    double expert_once;   /* of the copies of a token for experts of one other host, the share that
                             crosses the network once for all of them and is passed on inside: 0 a
                             copy for each expert, 1 as DeepEP */
    double expert_hosts;  /* most hosts that the experts of a token are on, where routing keeps them
                             together; 0: no limit */
    double dispatch_share; /* bytes of what goes to the experts, over those of what comes back: half
                              and the scales where it goes in 8 bits */
    double overlap_loss; /* of the time of an exchange that runs beside computing, of gradients, of
                            weights or among expert-parallel ranks, what it costs computing:
                            processors and bandwidth of the device */
    /* Before the members of a bucket exchange it they agree that it is ready on all of them:
     *   exchange_cycle_s / 2 + agreement_rounds 2 ceil(log2 n) latency + coordinator_s n
     * among n members, latency being that of the worst link between neighbours. */
    double exchange_cycle_s; /* exchanges begin at the beats of a cycle of that length, of which
                                each waits half on average; 0: they begin when they are ready */
    double agreement_rounds; /* times that a few bytes go up and down a tree of all members */
    double coordinator_s;    /* of one coordinator for each member that it hears of and answers */
    double transfer_share;   /* of a path's rate that transfers between stages reach */
    double transfer_s;       /* of a transfer beside the path's latency */

    /* ---- Memory. */
    double context_bytes;  /* of a process before its first tensor */
    double memory_waste;   /* share of activations lost to the allocator */
    double loss_bytes;     /* of a loss over a vocabulary per row and class, beside the scores that
                              it reads: half is kept until backward, half is there during it. 8: a
                              copy in fp32 and its gradient; 0: all in place */
    double gradient_bytes; /* kept per parameter: 4, or 2 where gradients stay in 16 bits */
    double narrow_copies;  /* of what enters a narrow product (ty_workload.h), kept until backward
                              in the numbers in which it entered; 0: it is kept in 16 bits, and made
                              narrow again */

    /* ---- What a measurement of one's own says. */
    double compute_scale; /* how many times as long layers and updates take as costed; > 0. Of what
                             a profile measured 1 */
    double step_jitter;   /* deviation of a device's work from step to step, as a share of it: all
                             wait for the slowest, ty_stack_waiting */

    /* ---- What it does. */
    ty_stack_attention attention;
    ty_stack_memory memory;
    bool has_dropout;       /* of language models: masks are made, kept and read */
    bool overlaps_exchange; /* gradients leave while backward goes on */
    bool has_equal_stages;  /* pipeline stages are equal numbers of whole blocks of the network, as
                               Megatron-LM divides it, not what balances best */
    ty_stack_plans plans;

    uint32_t on_count;
    ty_stack_on *on; /* of those with the figure the longest that begins a device's name counts,
                        else the one of its generation */
    uint32_t fitted_count;
    ty_stack_fitted *fitted;
    uint32_t judged_count;
    ty_stack_judged *judged; /* of this very stack: one that is like it, or changed, has none */
    uint32_t switch_count;
    ty_stack_switch *switches; /* of this very stack; a copy and a plan's stack have none */
    /* [constants, in the order of ty_stack_constant_at] where the figure comes from; NULL: as
     * `source` says. Of a stack that is `like` another also for what it took from there. */
    char **sources;
} ty_stack;

/** The catalogue's name of the software that comes with this: what `run` runs. */
#define TY_WORKER_STACK "trainyard"

/**
 * A stack of the catalogue by its name, or of a file, then constants that replace its own:
 * "tensorflow-2017 compute_scale=1.12 step_jitter=0". Such a stack has "-changed" after its name,
 * and its title lists the changes. A switch of the stack may be one of these words; it leaves the
 * name as it is. A text with '/' or with ".json" at its end is a file, "-" is standard input, and
 * any other word is a file only if the catalogue has no such name. `like` is read alike, a file's
 * path from the folder of the file that says so.
 * @return TY_EPARSE with file and pointer: a constant that is not known or out of range, a stack
 *         that is like itself; TY_EINVAL for a name or a constant there is not, with the nearest,
 *         and for a figure out of range.
 */
ty_status ty_stack_open(const char *text, ty_stack **out, ty_error *error) TY_MUST_CHECK;
/** What opens the stack again: `asked`, or else its name. */
const char *ty_stack_words(const ty_stack *stack);
/** As a plan carries it: complete, not `like` another, checked as a file is. */
ty_status ty_stack_from_json(const ty_json *object, ty_stack **out, ty_error *error) TY_MUST_CHECK;
void ty_stack_to_json(const ty_stack *stack, ty_json_writer *writer, const char *key);
ty_status ty_stack_copy(const ty_stack *stack, ty_stack **out, ty_error *error) TY_MUST_CHECK;
/** SHA-256 of its JSON as written above, without blanks. */
ty_status ty_stack_digest(const ty_stack *stack, ty_digest *out, ty_error *error) TY_MUST_CHECK;
void ty_stack_free(ty_stack *stack);

/** Everything that a plan may have: what a stack can run that does not say otherwise. */
ty_stack_plans ty_stack_all_plans(void);

/** In words: "schedules of pipelines 1f1b, interleaved; ...". */
void ty_stack_plans_text(const ty_stack_plans *plans, ty_text *text);

static inline bool ty_stack_has(uint32_t set, int member)
{
    return (set >> member & 1) != 0;
}

/** What a plan, or what is asked of one, uses of them: of the same enumerations, -1 where that is
 * left open. */
typedef struct ty_stack_use {
    uint32_t sizes[3]; /* of each ty_parallelism; 0 counts as 1 */
    uint32_t stages;   /* 0: left open */
    int schedule, compression, recompute, zero;
    uint32_t staleness;
    bool has_priority;     /* an order of exchanges */
    bool shares_key_heads; /* tensor-parallel ranks have parts of a head of keys and values */
    bool is_uneven;        /* stages differ in replicas */
    bool is_dense;         /* ty_workload_is_dense */
    bool has_experts;      /* ty_workload_has_experts */
    bool is_fp16;          /* what layers compute in */
    int sequence_parallel; /* 0 or 1; -1: left open */
    uint32_t blocks;       /* of the network, for `segment`; 0: it is not looked at */
    uint32_t segment;      /* blocks that full recomputing makes again at a time; 0: a stage's */
    uint32_t parts;        /* equal stages of all positions; 0: left open */
} ty_stack_use;
/** Whether a network can be divided among tensor-parallel ranks, and by the stack. @return as
 * ty_tensor_check */
ty_status ty_stack_tensor_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, uint32_t sequence_parts,
                                ty_error *error) TY_MUST_CHECK;
/** The same of expert-parallel ranks. @param tables a ty_table_shard. @return as ty_expert_check */
ty_status ty_stack_expert_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, int tables, bool is_fp16,
                                ty_error *error) TY_MUST_CHECK;
/** Where blocks begin: behind an embedding that comes first, which may be a stage by itself; else
 * 0. */
uint32_t ty_stack_first_block(const ty_workload *workload);
/** Whether the stack can have stages that begin at these layers.
 * @param first_layers [stages], the first 0
 * @param is_full full recomputing is asked for
 * @param segment with it, the blocks that are made again at a time; 0: a stage's
 * @return TY_EINVAL: which stage it cannot have, and why */
ty_status ty_stack_stages_check(const ty_stack_plans *plans, const ty_workload *workload,
                                const uint32_t *first_layers, uint32_t stages, bool is_full,
                                uint32_t segment, ty_error *error) TY_MUST_CHECK;
/** Ways to recompute a network, of ty_recompute. */
uint32_t ty_stack_recomputes(const ty_stack_plans *plans, bool is_dense);
/** @param whose whom a refusal is about: "stack megatron"
 *  @return TY_EINVAL: what there is in `plans`, and what was found */
ty_status ty_stack_plans_check(const char *whose, const ty_stack_plans *plans,
                               const ty_stack_use *use, ty_error *error) TY_MUST_CHECK;
/** ty_stack_plans_check of a stack's plans, by its name. */
ty_status ty_stack_check(const ty_stack *stack, const ty_stack_use *use,
                         ty_error *error) TY_MUST_CHECK;
/**
 * How many times as long the devices' work takes where `devices` of them wait for one another:
 *   1 + step_jitter z(n)
 * z(n) being ty_expected_largest. Work is taken to vary by itself on each device and in each step.
 */
double ty_stack_waiting(const ty_stack *stack, uint32_t devices);
/**
 * Mean of the largest of n standard normal numbers, by Blom's approximation of its quantile (1958):
 * the inverse normal distribution at (n - 0.375)/(n + 0.25); 0 for n = 1.
 */
double ty_expected_largest(uint32_t n);

/** Names of the catalogue's stacks, sorted; free each and the array with ty_free. */
ty_status ty_stack_names(char ***names, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** The i-th constant: its JSON key, its place in a stack and its range; NULL behind the last. For
 * those who fit them, print them or read them. */
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
/** Where the i-th constant comes from: its own source or the stack's; never NULL. */
const char *ty_stack_source(const ty_stack *stack, uint32_t i);
/** What is known of answers for a device; the longest name counts; NULL: nothing. */
const ty_stack_judged *ty_stack_judged_on(const ty_stack *stack, const char *device);
/** The figure of one of the first TY_STACK_DEVICE_CONSTANTS constants on a device: its own, else
 * that of its generation, else the stack's.
 * @param constant of `stack`: &stack->product_share
 * @param device its name
 * @param generation as ty_device_type has it; NULL: not known */
double ty_stack_on_device(const ty_stack *stack, const double *constant, const char *device,
                          const char *generation);
/** A constant by its key, or by "DEVICE:KEY" one of `on`, which is made where it is missing, with
 * the figure that holds there. @param generation of that device; NULL: not known
 * @return TY_EINVAL: none there is, or none that may differ by device, with the nearest; TY_ENOMEM
 */
ty_status ty_stack_find(ty_stack *stack, const char *name, const char *generation,
                        const ty_stack_constant **constant, double **value,
                        ty_error *error) TY_MUST_CHECK;

/** Whether a row of a source is one that constants were fitted to. */
bool ty_stack_is_fitted(const ty_stack *stack, const char *source, const char *model);

#endif
