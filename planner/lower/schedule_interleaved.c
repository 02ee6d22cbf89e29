/*
 * Interleaved 1F1B: a pipeline rank has several virtual stages, far apart in the model, so that
 * warm-up uses small stages and the bubble shrinks by their number. Source: Narayanan et al.,
 * "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021, section 2.2:
 * micro-batches run in groups of PP; a group passes all virtual stages of a pipeline rank before
 * the next group.
 */
#include "lowering.h"

/* Stage and micro-batch of the n-th pass of a pipeline rank. Backward
 * visits the stages in reverse. */
static ty_lower_pass nth_pass(const ty_lowering *l, uint32_t n, bool is_backward)
{
    const uint32_t pipeline_size = l->program->stage_count,
                   virtual_stages = ty_plan_virtual_stages(l->plan);
    const uint32_t local = n / pipeline_size % virtual_stages;
    const uint32_t stage = is_backward ? virtual_stages - 1 - local : local;

    return (ty_lower_pass){.stage = stage * pipeline_size + l->pipeline_rank,
                           .micro_batch = n / (pipeline_size * virtual_stages) * pipeline_size +
                                          n % pipeline_size};
}

ty_status ty_schedule_interleaved(ty_lowering *l)
{
    const uint32_t pipeline_size = l->program->stage_count,
                   virtual_stages = ty_plan_virtual_stages(l->plan);
    const uint32_t count = l->micro_batches * virtual_stages;
    uint32_t warmup =
        (pipeline_size - l->pipeline_rank - 1) * 2 + (virtual_stages - 1) * pipeline_size;

    if (l->micro_batches % pipeline_size != 0)
        return ty_fail(l->error, TY_EINVAL,
                       "plan:/micro_batches: found %u per replica, expected a multiple of the %u "
                       "pipeline ranks of an interleaved pipeline",
                       l->micro_batches, pipeline_size);
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
