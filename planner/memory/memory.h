/**
 * @file memory.h
 * The memory of a step: one model, a function per term. Internal to planner/.
 *
 * ty_stage_memory (ty_planner.h) adds the terms for the stages on a device. The search, the
 * estimate, the simulator and every report read its rows; the bounds of the search call the terms
 * below. With P weights on a rank, of b bytes each:
 *
 *  - Weights: P b (1 + versions), less what ZeRO 3 shards (ty_memory_states).
 *  - Gradients: P g (1 + staleness), less what ZeRO 2 shards (ty_memory_states).
 *  - Optimizer states by their row (core/model/optimizers.c), and a master copy of 4 P, less what
 *    ZeRO 1 shards (ty_memory_states).
 *  - Activations: the program's peak of in-flight micro-batches, and the largest working set.
 *  - Communication: messages, buckets, gathered weights and sequences (buffer_memory.c).
 *  - Compression: payloads and residuals of compressors (ty_memory_compression).
 *  - Workspace: libraries and their scratch, or the waste of a framework's allocator.
 *
 * A slot has the activations of one micro-batch from its forward to the end of its backward. Which
 * ones depends on the framework: trainyard-worker stores every output (worker_memory.c), automatic
 * differentiation the inputs that a backward reads (autograd_memory.c). Both read the same row per
 * layer kind (ty_memory_row_of). Sums are doubles, exact up to 2^53 bytes, so no product of sizes
 * can wrap.
 */
#ifndef TY_PLANNER_MEMORY_H
#define TY_PLANNER_MEMORY_H

#include "ty_planner.h"

/* ---- Layers ------------------------------------------------------------------------------ */

/** Numbers inside a layer, per sample, of all ranks together. */
typedef struct memory_numbers {
    double projected; /* outputs of the first products: queries, keys, values; hidden features */
    double second;    /* input of the second product: attention's sum, the activation's output */
    double scores;    /* of attention: queries times keys times heads */
    double latents;   /* of attention's queries and keys, unsharded by tensor parallelism */
    double routed;    /* tokens on their way to experts and back */
    double router;    /* a router's scores */
    double widest;    /* the largest gradient inside the layer */
} memory_numbers;

/** A layer kind in the memory model. */
typedef struct memory_row {
    void (*numbers)(const ty_workload *workload, uint32_t layer, memory_numbers *out);
    bool ignores_input; /* backward does not read what the layer read */
    bool gives_scores; /* its output becomes its gradient on accelerators if only a loss reads it */
    bool is_narrow;    /* its input enters a product in 8 or 4 bits, where products are narrow */
    bool has_mask;     /* dropout follows it in language models */
    bool keeps_stash;  /* autograd stores all that the workload counts, and the input */
    bool is_sum;       /* the gradient of its output is that of every input */
    bool is_loss;
    bool is_convolution, is_pool, is_rectifier, is_flatten, is_image; /* reads images in an order */
    bool is_bag; /* all-to-alls of tables have separate buffers */
} memory_row;

const memory_row *ty_memory_row_of(ty_layer_kind kind);
/** All 0 for kinds that have none. */
memory_numbers ty_memory_numbers(const ty_workload *workload, uint32_t layer);

/** Rows of a shape: tokens of a sequence, or 1. */
double ty_memory_tokens(const ty_shape *shape);

/* ---- A stage ----------------------------------------------------------------------------- */

/** Bytes of a layer per sample on one rank, and their readers. worker_memory.c fills it. */
typedef struct layer_use {
    double kept;     /* of all ranks: as the workload counts, in the storage of this device */
    double all;      /* outputs of forward that a backward may read, with copies */
    double output;   /* of it, the output */
    double inner;    /* of it, all else that backward reads; 0 without backward */
    double gradient; /* of the output; 0 without backward */
    double copies;   /* images in a second order */
    double copied;   /* gradients of these; 0 without backward */
    double at_once;  /* gradients that exist for one segment at a time */
    double split;    /* from the first part of a split backward to the second */
    double found;    /* stored if the rest is recomputed */
    bool is_kept;    /* without backward, but its output is read after its forward */
    bool is_sent;    /* its output goes to a later stage */
    bool is_between; /* its output goes to a later segment, and no further */
    bool has_gradient_between; /* its gradient goes from one segment to another */
    bool is_read, is_added;    /* only a sum reads it, not as its first input */
    bool is_seen[2];           /* counted already; in narrow numbers */
} layer_use;

/** A stage of a plan on one rank. */
typedef struct stage_memory {
    const ty_plan *plan;
    const ty_stack *stack;
    const ty_plan_stage *stage;
    uint32_t index, first, end;         /* of the stage; its layers */
    double slots;                       /* maximum of in-flight micro-batches */
    double samples;                     /* per micro-batch, of all ranks of a replica */
    bool is_on_cores;                   /* of a host: trainyard-worker's CPU backend */
    bool *takes_part;                   /* [layers]: in backward */
    layer_use *layers;                  /* [layers] */
    ty_layer_again *again;              /* [layers]: what recomputation computes again */
    uint32_t *segments, segment_count;  /* first layers of segments, if recomputed in segments */
    uint32_t *crossing, crossing_count; /* layers whose outputs cross the cut after the stage */
} stage_memory;

static inline const ty_layer *memory_layer(const stage_memory *m, uint32_t layer)
{
    return &m->plan->workload->layers[layer];
}

static inline const memory_row *memory_row_at(const stage_memory *m, uint32_t layer)
{
    return ty_memory_row_of(memory_layer(m, layer)->kind);
}

/** The layer in whose memory an output is stored: rectifiers and views have none of their own. */
uint32_t ty_memory_holder(const stage_memory *m, uint32_t layer);

/** Bytes per sample that cross the cut before a stage, one way; 0 at either end of the pipeline. */
double ty_memory_transfer(const stage_memory *m, uint32_t stage, ty_direction direction);

/** Rows of one rank's copies of a micro-batch's tokens, as GPUs allocate them: of its own tokens,
 * and the maximum that may arrive. */
void ty_memory_expert_rows(const stage_memory *m, uint32_t layer, double *own, double *most);

/* ---- Terms --------------------------------------------------------------------------------- */

/** Bytes of weights of one rank. */
typedef struct memory_weights {
    double all, trained;
    double states;             /* trained ones times bytes of optimizer states per parameter */
    double sharded, elsewhere; /* of trained ones: in buckets that ZeRO shards; on other ranks */
    bool sums_gradients;       /* gradients stay unsharded over several micro-batches */
} memory_weights;

typedef struct memory_states {
    double weights, gradients, optimizer;
} memory_states;

/**
 * Weights, gradients and optimizer states.
 * @param plan its workload, optimizer, stack, zero and staleness are read
 * Each step of staleness adds one set of gradients. Weights of fewer than 32 bits have an fp32
 * master copy, whatever the optimizer (Micikevicius et al., "Mixed Precision Training", ICLR 2018,
 * section 3.1). ZeRO shards states in proportion to their weights: Rajbhandari et al., SC 2020,
 * section 5. With ZeRO 3 the worker's only shard of 16-bit weights is that master copy.
 */
memory_states ty_memory_states(const ty_plan *plan, const memory_weights *weights);

/**
 * Activations of a stage as trainyard-worker allocates them: every output, all else that backward
 * reads, and one set of gradients, or one per slot with a split backward. A stage recomputed in
 * segments stores their inputs; all segments share one working set, of the largest.
 * @param slot [out] bytes per micro-batch in flight
 * @param once [out] bytes that exist once
 */
void ty_worker_activations(const stage_memory *m, double *slot, double *once);
/**
 * Activations as a framework's automatic differentiation stores them: every operation stores the
 * inputs that its backward reads; a tensor with several readers is stored once. Source: Korthikanti
 * et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, sections 4.1 to
 * 4.3, for layers of any sizes.
 */
void ty_autograd_activations(const stage_memory *m, double *slot, double *once);

/**
 * Lower bounds for the search: bytes per sample that each layer adds to a micro-batch in flight on
 * one rank, in any stage without recomputation.
 * @param plan without stages; of the largest micro-batch in question
 * @param devices of any stage, all of one kind
 * @param bytes [out] [layers of the workload]
 */
ty_status ty_memory_least_slots(const ty_plan *plan, uint32_t *devices, double *bytes,
                                ty_error *error) TY_MUST_CHECK;

/** Buffers of messages, collectives, tables, experts and gathered weights. @param weights bytes */
double ty_worker_buffers(const stage_memory *m);
double ty_autograd_buffers(const stage_memory *m, double weights);

/** Encoded payloads, of all members for an all-gather, and the state of compressors. */
double ty_memory_compression(const stage_memory *m);

/**
 * Memory of libraries: on an accelerator with their scratch memory, on a host's cores with the
 * samples or labels that the first and last stages read.
 * @param positions the PP size; pipeline rank p has the virtual stages p, p + PP and so on
 */
uint64_t ty_memory_workspace(const ty_plan *plan, uint32_t position, uint32_t positions,
                             bool is_on_cores);

#endif
