/*
 * Zero bubble: gradients of weights, which no stage waits for, are deferred, so that those of
 * activations are sent earlier and the end of the step is filled. Source: Qi et al., "Zero Bubble
 * Pipeline Parallelism", ICLR 2024, its handcrafted schedules.
 *
 * - H1 ("zb-h1"): the n-th pipeline rank defers n of them, and has as many in-flight micro-batches
 *   as the first rank of 1F1B: p with p pipeline ranks. The bubble per step is (p - 1)(f + b - w),
 *   w being the weights' part.
 * - H2 ("zb-2p"): twice as many forwards come before the first backward, and twice as many weights'
 *   parts are deferred: 2p - 1 in flight on every rank, fewer than the 2p in the paper's
 *   measurements of ZB-2P. With at least 2p micro-batches, each pipeline rank runs an f later than
 *   the one before it at both ends of a step: the bubble is (p - 1)(f + b - 2w), or none. So
 *   nothing at the end of a step may wait for all pipeline ranks.
 */
#include "lowering.h"

uint32_t ty_schedule_put_off(ty_schedule schedule, uint32_t pipeline_rank)
{
    return pipeline_rank * ty_schedule_at(schedule)->warmup_times;
}

ty_status ty_schedule_zero_bubble(ty_lowering *l)
{
    const uint32_t count = l->micro_batches;
    const uint32_t ahead = ty_lower_warmup(l) * ty_schedule_at(l->plan->schedule)->warmup_times;
    const uint32_t warmup = ahead < count ? ahead : count;
    const uint32_t put_off = ty_schedule_put_off(l->plan->schedule, l->pipeline_rank);
    ty_lower_pass pass = {.stage = l->pipeline_rank};
    uint32_t weights = 0; /* micro-batches whose weights' part is written */

    for (; pass.micro_batch < warmup; pass.micro_batch++)
        TY_TRY(ty_lower_forward(l, pass));
    for (uint32_t k = 0; k < count; k++) {
        pass.micro_batch = warmup + k;
        if (pass.micro_batch < count)
            TY_TRY(ty_lower_forward(l, pass));
        pass.micro_batch = k;
        TY_TRY(ty_lower_backward_input(l, pass));
        if (k < put_off)
            continue;
        pass.micro_batch = weights++;
        TY_TRY(ty_lower_backward_weight(l, pass, weights == count));
    }
    while (weights < count) {
        pass.micro_batch = weights++;
        TY_TRY(ty_lower_backward_weight(l, pass, weights == count));
    }
    return TY_OK;
}
