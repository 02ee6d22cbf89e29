/*
 * One forward, one backward without a flush: backwards of one step overlap with forwards of the
 * next. Each pipeline rank runs as many micro-batches ahead as 1F1B has warm-up forwards. Source:
 * Narayanan et al., "PipeDream", SOSP 2019, section 3.2; with two versions of the weights, each
 * used for a full step, PipeDream-2BW (ICML 2021), section 3.1, in which a step must have at least
 * PP micro-batches.
 */
#include "lowering.h"

ty_status ty_schedule_pipedream(ty_lowering *l)
{
    const uint32_t count = l->micro_batches, warmup = ty_lower_warmup(l);

    for (uint32_t k = 0; k < count; k++) {
        const ty_lower_pass ahead = {.stage = l->pipeline_rank,
                                     .micro_batch = (warmup + k) % count,
                                     .lead = (warmup + k) / count};
        const ty_lower_pass back = {.stage = l->pipeline_rank, .micro_batch = k};
        TY_TRY(ty_lower_forward(l, ahead));
        TY_TRY(ty_lower_backward(l, back, k + 1 == count));
    }
    return TY_OK;
}
