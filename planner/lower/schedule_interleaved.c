/*
 * Interleaved 1F1B: a position holds several stages, far apart in the network, so that the pipe
 * fills with small stages and the bubble shrinks by their number.
 * Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC
 * 2021, section 2.2: micro-batches go in groups as large as the pipe is deep; a group passes all
 * stages of a position before the next group.
 */
#include "lowering.h"

/* The n-th pass of a position: which stage, which micro-batch. Backward goes through the stages in
   reverse. */
static ty_lower_pass nth_pass(const ty_lowering *l, uint32_t n, bool is_backward)
{
    const uint32_t positions = l->program->stage_count, held = ty_plan_interleave(l->plan);
    const uint32_t local = n / positions % held;
    const uint32_t stage = is_backward ? held - 1 - local : local;

    return (ty_lower_pass){.stage = stage * positions + l->position,
                           .micro_batch = n / (positions * held) * positions + n % positions};
}

ty_status ty_schedule_interleaved(ty_lowering *l)
{
    const uint32_t positions = l->program->stage_count, held = ty_plan_interleave(l->plan);
    const uint32_t count = l->micro_batches * held;
    uint32_t warmup = (positions - l->position - 1) * 2 + (held - 1) * positions;

    if (l->micro_batches % positions != 0)
        return ty_fail(l->error, TY_EINVAL,
                       "plan:/micro_batches: found %u a replica, expected a multiple of the %u "
                       "positions of an interleaved pipeline",
                       l->micro_batches, positions);
    warmup = warmup < count ? warmup : count;
    for (uint32_t n = 0; n < warmup; n++)
        TY_TRY(ty_lower_forward(l, nth_pass(l, n, false)));
    for (uint32_t n = 0; n < count; n++) {
        const ty_lower_pass back = nth_pass(l, n, true);
        if (warmup + n < count)
            TY_TRY(ty_lower_forward(l, nth_pass(l, warmup + n, false)));
        TY_TRY(ty_lower_backward(l, back, back.micro_batch + 1 == l->micro_batches));
    }
    return TY_OK;
}
