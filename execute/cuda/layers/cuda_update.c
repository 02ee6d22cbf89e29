/* The optimizer step and its states on the GPU, only for the parameters that this rank updates. */
#include "cuda_stage.h"

#include <math.h>

/* ---- States of the ranges in order, each as in ty_optimizer_step ------------------ */

ty_status cuda_state_open(ty_stage_device *stage, uint32_t state_count,
                          const ty_parameter_range *ranges, uint32_t range_count, ty_error *error)
{
    uint64_t total = 0;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    stage->own->state_count = state_count;
    stage->own->state_ranges = ty_alloc(range_count, sizeof *stage->own->state_ranges);
    TY_TRY(ty_check_memory(stage->own->state_ranges != NULL, error));
    for (uint32_t r = 0; r < range_count; r++) {
        stage->own->state_ranges[r] = (cuda_range){ranges[r].offset, ranges[r].count, total};
        total += ranges[r].count;
    }
    stage->own->state_range_count = range_count;
    if (state_count > 0)
        stage->own->optimizer_state = cuda_buffer(stage, total * state_count * sizeof(float));
    if (state_count > 0 && stage->own->optimizer_state == NULL) {
        (void)cudaGetLastError();
        status = ty_fail(error, TY_ENOMEM, "out of GPU memory for %.3g GB of optimizer state",
                         (double)(total * state_count * sizeof(float)) * 1e-9);
    }
done:
    return status;
}

float *cuda_state(const ty_stage_device *stage, uint64_t offset)
{
    const cuda_range *range =
        cuda_range_find(stage->own->state_ranges, stage->own->state_range_count, offset);

    return range == NULL ? NULL
                         : stage->own->optimizer_state +
                               (range->start + offset - range->offset) * stage->own->state_count;
}

/* ---- Updates ---- */

static cuda_update update_of(const ty_optimizer *optimizer, uint64_t step)
{
    double correction1 = 1.0 - pow(optimizer->beta1, (double)step);
    double correction2 = 1.0 - pow(optimizer->beta2, (double)step);

    if (!ty_optimizer_row_of(optimizer->kind)->has_betas)
        return (cuda_update){.rate = (float)optimizer->learning_rate,
                             .momentum = (float)optimizer->momentum,
                             .decay = (float)optimizer->weight_decay};
    return (cuda_update){.is_adamw = true,
                         .rate = (float)(optimizer->learning_rate / correction1),
                         .beta1 = (float)optimizer->beta1,
                         .beta2 = (float)optimizer->beta2,
                         .root_scale = (float)(1.0 / sqrt(correction2)),
                         .epsilon = (float)optimizer->epsilon,
                         .keep = (float)(1.0 - optimizer->learning_rate * optimizer->weight_decay)};
}

/* Divides gradients by the loss scale, and checks that all are finite. */
static ty_status unscale(ty_stage_device *stage, uint64_t offset, uint64_t count, bool *is_finite,
                         ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(
        cudaMemsetAsync(stage->own->is_bad, 0, sizeof *stage->own->is_bad, stage->own->stream),
        status, done);
    cuda_unscale(count, (float)(1.0 / stage->own->loss_factor),
                 stage->gradients + cuda_kept_start(&stage->own->gradient_layout, offset),
                 stage->own->is_bad, stage->own->stream);
    CUDA_CHECK(cudaMemcpyAsync(stage->own->host_is_bad, stage->own->is_bad,
                               sizeof *stage->own->is_bad, cudaMemcpyDeviceToHost,
                               stage->own->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    *is_finite = *stage->own->host_is_bad == 0;
    /* Keeps unsharded parameters equal on all ranks. */
    status = cuda_ranks_agree(stage, TY_TENSOR_PARALLEL, is_finite, error);
done:
    return status;
}

/* All parameters, unless ranges are specified. An update may need no state although others do:
 * plain SGD, if a compressor has the momentum. */
static ty_status state_check(ty_stage_device *stage, uint32_t state_count, uint64_t offset,
                             ty_error *error)
{
    const ty_parameter_range all = {0, stage->placed.count};
    ty_status status = TY_OK;

    if (state_count == 0)
        return TY_OK;
    if (stage->own->state_ranges == NULL)
        status = cuda_state_open(stage, state_count, &all, 1, error);
    if (status != TY_OK)
        return status;
    if (state_count != stage->own->state_count)
        return ty_fail(error, TY_EINVAL, "found %u numbers of state per parameter, had %u",
                       (unsigned)state_count, (unsigned)stage->own->state_count);
    if (cuda_state(stage, offset) == NULL)
        return ty_fail(error, TY_EINVAL, "found no state for parameter %llu",
                       (unsigned long long)offset);
    return TY_OK;
}

ty_status cuda_update_slice(ty_stage_device *stage, const ty_optimizer *optimizer, uint64_t step,
                            uint64_t offset, uint64_t count, bool *is_finite, ty_error *error)
{
    const cuda_update update = update_of(optimizer, step);
    const uint32_t states = ty_optimizer_state_count(optimizer);
    const cuda_layout *weights = &stage->own->weight_layout;
    /* Sharded weights are copied after their all-gather. */
    const bool is_copied = stage->own->type != CUDA_TYPE_FLOAT &&
                           cuda_range_find(weights->whole, weights->whole_count, offset) == NULL;
    const cuda_copy copy = cuda_copy_of(stage, stage->own->weights);

    TY_TRY(cuda_use(stage, error));
    TY_TRY(state_check(stage, states, offset, error));
    *is_finite = true;
    if (stage->options.precision == TY_PRECISION_FP16)
        TY_TRY(unscale(stage, offset, count, is_finite, error));
    if (!*is_finite)
        return TY_OK;
    cuda_update_step(stage->own->type, &update, offset, count,
                     stage->parameters + cuda_kept_start(weights, offset),
                     stage->gradients + cuda_kept_start(&stage->own->gradient_layout, offset),
                     states > 0 ? cuda_state(stage, offset) : NULL, is_copied ? &copy : NULL,
                     stage->own->stream);
    return cuda_pass_wait(stage, error);
}
