/*
 * Internal to planner/: the state and functions that write the program of a pipeline rank:
 *
 *     lower.c               the state, and the loop over pipeline ranks
 *     short.c               how many micro-batches show the steady state
 *     schedule_*.c          the order of passes
 *     passes.c              forward and backward of a micro-batch, and programs of actors
 *     sharding.c            gathers of sharded weights
 *     gradient_exchange.c   collectives and updates after the last backward
 *     priority_lowering.c   collectives in the plan's priority order
 */
#ifndef TY_LOWERING_H
#define TY_LOWERING_H

#include "ty_planner.h"

/* Buckets that may be gathered ahead: compute uses one while the next arrives. */
#define TY_GATHER_AHEAD 2

/* A bucket with gathered weights, and the last pass so far that used them, or TY_NO_INSTRUCTION. */
typedef struct ty_lower_gathered {
    uint32_t bucket, last_user;
} ty_lower_gathered;

typedef struct ty_lowering {
    const ty_plan *plan;
    ty_program *program;
    bool are_passes_only;     /* only forwards and backwards, not split */
    uint32_t first_backward;  /* of the workload */
    uint64_t *transfer_bytes; /* [stages of the plan][activation, gradient]: across the cut before
                                 it, ty_plan_transfer_bytes */
    uint32_t pipeline_rank;
    uint32_t micro_batches; /* of one replica */
    uint32_t *forwards; /* [stages of the pipeline rank][micro_batches]: the forward's last part, or
                           TY_NO_INSTRUCTION before it is written */
    uint32_t *backwards; /* [stages of the pipeline rank]: the last part of the last backward */
    uint32_t *averaged;  /* [plan->bucket_count]: the instruction after which this pipeline rank's
                            bucket is averaged, or TY_NO_INSTRUCTION without a collective */
    uint32_t begin;      /* with ZeRO: where the step begins */
    uint32_t *gathers;   /* [plan->bucket_count]: the bucket's last gather, or its experts' */
    ty_lower_gathered together[TY_GATHER_AHEAD]; /* with ZeRO 3: in a micro-batch's pass */
    uint32_t *segments; /* [layers of the workload]: first layer of its segment, or of its stage
                           without recomputation */
    uint64_t left;      /* instructions that the program may still have */
    ty_error *error;
} ty_lowering;

/**
 * Lowers only the forwards and backwards of a plan, in order and not split: all that
 * ty_stage_memory reads of a program, in a tenth of the time. The time does not grow with the
 * micro-batches. Nothing runs this program.
 */
ty_status ty_plan_lower_passes(const ty_plan *plan, ty_program **out,
                               ty_error *error) TY_MUST_CHECK;

/** ty_plan_lower without the digest of the plan, which takes longer than a small program: for
 * callers that have both plan and program. */
ty_status ty_plan_lower_unsigned(const ty_plan *plan, ty_program **out,
                                 ty_error *error) TY_MUST_CHECK;
/** The same with the first `micro_batches` of all replicas: a multiple of ty_plan_repetition, or
 * all. The program's `left_out` are the others. Of any size: for estimates only. */
ty_status ty_plan_lower_short(const ty_plan *plan, uint32_t micro_batches, ty_program **out,
                              ty_error *error) TY_MUST_CHECK;

/* short.c: micro-batches of all replicas. */

/* Windows of a short program: it settles in the first, the second is compared with what follows it,
 * and it cools down in the last. A window has more micro-batches than are worked on at once. */
#define TY_SHORT_WINDOWS 4

/** After which a schedule repeats in its steady state. */
uint64_t ty_plan_repetition(const ty_plan *plan);
/** Of a program with the plan's in-flight micro-batches, apart from GPipe's. */
uint32_t ty_plan_memory_micro_batches(const ty_plan *plan);
/** Of a program long enough to reach the steady state; all if that is not much shorter. */
uint32_t ty_plan_steady_micro_batches(const ty_plan *plan);

/**
 * A schedule: for each stage of the pipeline rank, it calls ty_lower_forward once per micro-batch,
 * and ty_lower_backward, or ty_lower_backward_input and ty_lower_backward_weight.
 */
typedef ty_status ty_schedule_function(ty_lowering *lowering);

/** Each schedule and the function that writes its order. The zero-bubble pair differs in the number
 * of in-flight micro-batches, the PipeDream pair in the weight version that a pass uses. */
#define TY_SCHEDULE_ORDERS(ORDER)                                                                  \
    ORDER(TY_GPIPE, ty_schedule_gpipe)                                                             \
    ORDER(TY_ONE_F_ONE_B, ty_schedule_one_f_one_b)                                                 \
    ORDER(TY_INTERLEAVED, ty_schedule_interleaved)                                                 \
    ORDER(TY_ZERO_BUBBLE, ty_schedule_zero_bubble)                                                 \
    ORDER(TY_ZERO_BUBBLE_2P, ty_schedule_zero_bubble)                                              \
    ORDER(TY_PIPEDREAM, ty_schedule_pipedream)                                                     \
    ORDER(TY_PIPEDREAM_2BW, ty_schedule_pipedream)
#define TY_SCHEDULE_DECLARE(schedule, function) ty_schedule_function function;
TY_SCHEDULE_ORDERS(TY_SCHEDULE_DECLARE)

/** Weight gradients that a pipeline rank defers until after its passes, in micro-batches. */
uint32_t ty_schedule_put_off(ty_schedule schedule, uint32_t pipeline_rank);

/** Warm-up forwards of a pipeline rank, over all its replicas, so that later ranks have work
 * (PipeDream, section 3.2). */
uint32_t ty_plan_warmup(const ty_plan *plan, uint32_t pipeline_rank);
uint32_t ty_lower_warmup(const ty_lowering *lowering);

/** A micro-batch of a stage, and the number of rounds by which it runs ahead. */
typedef struct ty_lower_pass {
    uint32_t stage, micro_batch, lead;
} ty_lower_pass;

/** Load or receive, forward, and send. */
ty_status ty_lower_forward(ty_lowering *lowering, ty_lower_pass pass) TY_MUST_CHECK;
/**
 * Receive, recompute, backward, and send; nothing if the stage and all before it are frozen.
 * @param is_last the step's last backward of this stage: its gradients are reduced then
 */
ty_status ty_lower_backward(ty_lowering *lowering, ty_lower_pass pass, bool is_last) TY_MUST_CHECK;
/** The same in two parts: receive, gradients of activations, send; then
 * the gradients of weights. */
ty_status ty_lower_backward_input(ty_lowering *lowering, ty_lower_pass pass) TY_MUST_CHECK;
ty_status ty_lower_backward_weight(ty_lowering *lowering, ty_lower_pass pass,
                                   bool is_last) TY_MUST_CHECK;

/** TY_ELIMIT: the program is too large to be stored. */
ty_status ty_lower_refuse(const ty_lowering *lowering);

/** Appends to the current pipeline rank. */
static inline ty_status ty_lower_append(ty_lowering *l, const ty_instruction *instruction,
                                        const uint32_t *waits, uint32_t wait_count, uint32_t *index)
{
    if (l->left-- == 0)
        return ty_lower_refuse(l);
    return ty_program_append(l->program, l->pipeline_rank, instruction, waits, wait_count, index,
                             l->error);
}

/** A compute instruction on layers. */
static inline ty_instruction ty_lower_compute(ty_op op, ty_lower_pass pass, uint32_t first_layer,
                                              uint32_t layer_count)
{
    ty_instruction instruction = ty_instruction_of(op);
    instruction.stage = pass.stage;
    instruction.lead = pass.lead;
    instruction.micro_batch = pass.micro_batch;
    instruction.first_layer = first_layer;
    instruction.layer_count = layer_count;
    return instruction;
}

/** The program of a pipeline rank of actors: receive weights, generate samples, send them. */
ty_status ty_lower_actors(ty_lowering *lowering) TY_MUST_CHECK;
/** Learners send weights to their actors after the updates; nothing without actors. */
ty_status ty_lower_weights_out(ty_lowering *lowering) TY_MUST_CHECK;

/* gradient_exchange.c */

/** In evolution, the all-gather of the population's scores after the last forward; else nothing. */
ty_status ty_lower_scores(ty_lowering *lowering) TY_MUST_CHECK;

/** The stage's next reduced bucket from `from` on that has layers of its own, or the plan's count.
 * Experts belong to the layers of the bucket before them. */
uint32_t ty_lower_next_piece(const ty_lowering *lowering, uint32_t stage, uint32_t from);
/** Collectives of a bucket and of its experts, after `backward`. */
ty_status ty_lower_exchange_piece(ty_lowering *lowering, uint32_t bucket,
                                  uint32_t backward) TY_MUST_CHECK;
/** Collectives of all of a stage's own buckets, after `source`. */
ty_status ty_lower_exchange_own(ty_lowering *lowering, uint32_t stage,
                                uint32_t source) TY_MUST_CHECK;
/** All-reduces of tied weights, and the updates of all trainable layers of the pipeline rank. */
ty_status ty_lower_updates(ty_lowering *lowering) TY_MUST_CHECK;
/** A stage's next bucket of its own from `from` on, from its last layer
 * down; or the plan's count. */
uint32_t ty_lower_next_bucket(const ty_lowering *lowering, uint32_t stage, uint32_t from);
/** The bucket of the experts of a bucket's layers, if there is one and it is reduced; else the
 * plan's count. */
uint32_t ty_lower_experts_of(const ty_lowering *lowering, uint32_t bucket);
ty_instruction ty_lower_bucket_instruction(const ty_lowering *lowering, ty_op op, uint32_t stage,
                                           uint32_t bucket);

/* priority_lowering.c */

/** Applies the plan's priority order: turns the pipeline rank's complete list of instructions into
 * the loop that ty_program.h describes. */
ty_status ty_lower_by_priority(ty_lowering *lowering) TY_MUST_CHECK;

/* sharding.c */

/** Begin, and the all-gathers of a step; nothing without ZeRO. */
ty_status ty_lower_begin(ty_lowering *lowering) TY_MUST_CHECK;
/** Whether a pass of a micro-batch is split at buckets because their
 * weights are gathered for it. */
bool ty_lower_is_gathered(const ty_lowering *lowering, ty_lower_pass pass);
/** With ZeRO 3, drops the record of gathered weights: the next pass gathers its own. */
void ty_lower_forget_gathered(ty_lowering *lowering);
/**
 * A pass over layers [first, end) of a stage, split where sharded weights begin. Each part runs
 * after the all-gather of its bucket, unless the part before gathered it.
 * @param waits [2] of the first part
 * @param index [out] the last part
 */
ty_status ty_lower_gathered_range(ty_lowering *lowering, ty_op op, ty_lower_pass pass,
                                  uint32_t first, uint32_t end, const uint32_t waits[2],
                                  uint32_t *index) TY_MUST_CHECK;

#endif
