/*
 * One forward, one backward, flushed at the end of the step: a stage has only as many in-flight
 * micro-batches as keep the stages after it busy. Source: Narayanan et al., "PipeDream", SOSP 2019,
 * section 3.2, for the number of warm-up forwards with unequal replicas; the flush is that of
 * PipeDream-2BW (ICML 2021), section 2.2.
 *
 * Free of deadlock: with A_i = R - 1 - (replicas of earlier stages), w_i r_i <= A_i < (w_i + 1) r_i
 * and A_(i+1) = A_i - r_i. So w_(i+1) r_(i+1) < (w_i + 1) r_i: what stage i+1 needs before its
 * backward of a micro-batch never waits for that backward.
 */
#include "lowering.h"

ty_status ty_schedule_one_f_one_b(ty_lowering *l)
{
    const uint32_t count = l->micro_batches;
    const uint32_t warmup = ty_lower_warmup(l) < count ? ty_lower_warmup(l) : count;
    ty_lower_pass pass = {.stage = l->pipeline_rank};

    for (; pass.micro_batch < warmup; pass.micro_batch++)
        TY_TRY(ty_lower_forward(l, pass));
    for (uint32_t k = 0; k < count; k++) {
        pass.micro_batch = warmup + k;
        if (pass.micro_batch < count)
            TY_TRY(ty_lower_forward(l, pass));
        pass.micro_batch = k;
        TY_TRY(ty_lower_backward(l, pass, k + 1 == count));
    }
    return TY_OK;
}
