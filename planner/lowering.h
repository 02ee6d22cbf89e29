/*
 * Internal to planner/: what a schedule writes a stage's program with. lower.c owns the state and
 * offers "forward" and "backward" of a micro-batch; the schedule_*.c files only say in which order;
 * gradient_exchange.c cuts the last backward and writes what follows it.
 */
#ifndef TY_LOWERING_H
#define TY_LOWERING_H

#include "ty_planner.h"

typedef struct ty_lowering {
    const ty_plan *plan;
    ty_program *program;
    uint32_t stage;
    uint32_t micro_batches;             /* of one replica */
    uint64_t input_bytes, output_bytes; /* of one micro-batch across the stage's two cuts */
    uint32_t *forwards;                 /* [micro_batches]: index of the forward instruction */
    uint32_t *averaged; /* [plan->bucket_count]: the instruction that leaves this stage's bucket
                           averaged,     or TY_NO_INSTRUCTION where nothing is exchanged */
    ty_error *error;
} ty_lowering;

/** A schedule: calls ty_lower_forward and ty_lower_backward once for each micro-batch. */
typedef ty_status (*ty_schedule_function)(ty_lowering *lowering);
ty_status ty_schedule_gpipe(ty_lowering *lowering) TY_MUST_CHECK;
ty_status ty_schedule_one_f_one_b(ty_lowering *lowering) TY_MUST_CHECK;

/** Load or receive, forward, and send of the replica's `micro_batch`-th micro-batch. */
ty_status ty_lower_forward(ty_lowering *lowering, uint32_t micro_batch) TY_MUST_CHECK;
/**
 * Receive, recompute, backward, and send.
 * @param is_last the step's last backward of this stage: gradients leave with it
 */
ty_status ty_lower_backward(ty_lowering *lowering, uint32_t micro_batch,
                            bool is_last) TY_MUST_CHECK;

/** Appends to the stage in hand. */
ty_status ty_lower_append(ty_lowering *lowering, const ty_instruction *instruction,
                          const uint32_t *waits, uint32_t wait_count,
                          uint32_t *index) TY_MUST_CHECK;
/** A compute instruction on layers. */
ty_instruction ty_lower_compute(ty_op op, uint32_t micro_batch, uint32_t first_layer,
                                uint32_t layer_count);
/** Sends the input gradient of `micro_batch` to the previous stage, if there is one. */
ty_status ty_lower_send_gradient(ty_lowering *lowering, uint32_t micro_batch,
                                 uint32_t backward) TY_MUST_CHECK;

/* gradient_exchange.c */

/** The backward of the last micro-batch in pieces, each followed by the exchange of its bucket. */
ty_status ty_lower_last_backward(ty_lowering *lowering, uint32_t micro_batch,
                                 uint32_t received) TY_MUST_CHECK;
/** The updates of all trainable layers of the stage. */
ty_status ty_lower_updates(ty_lowering *lowering) TY_MUST_CHECK;

#endif
