/*
 * One forward, one backward, flushed at the end of the step: a stage keeps only as many
 * micro-batches in flight as it takes to keep the stages behind it busy.
 * Source: Narayanan et al., "PipeDream", SOSP 2019, section 3.2, for the number of warm-up
 * forwards with unequal replicas; the flush is that of PipeDream-2BW (ICML 2021), section 2.2.
 *
 * Free of deadlock: with A_i = R - 1 - (ranks of earlier stages), w_i r_i <= A_i < (w_i + 1) r_i
 * and A_(i+1) = A_i - r_i. So w_(i+1) r_(i+1) < (w_i + 1) r_i: what stage i+1 needs before its
 * backward of a micro-batch never waits for that backward.
 */
#include "lowering.h"

static uint32_t warmup_forwards(const ty_lowering *lowering)
{
    const ty_plan *plan = lowering->plan;
    uint32_t later = 0, warmup;

    for (uint32_t s = lowering->stage; s < plan->stage_count; s++)
        later += plan->stages[s].replicas;
    warmup = (later - 1) / plan->stages[lowering->stage].replicas;
    return warmup < lowering->micro_batches ? warmup : lowering->micro_batches;
}

ty_status ty_schedule_one_f_one_b(ty_lowering *lowering)
{
    uint32_t count = lowering->micro_batches, warmup = warmup_forwards(lowering);
    ty_status status = TY_OK;

    for (uint32_t k = 0; k < warmup; k++)
        TY_CHECK(ty_lower_forward(lowering, k), status, done);
    for (uint32_t k = 0; k < count; k++) {
        if (warmup + k < count)
            TY_CHECK(ty_lower_forward(lowering, warmup + k), status, done);
        TY_CHECK(ty_lower_backward(lowering, k, k + 1 == count), status, done);
    }
done:
    return status;
}
