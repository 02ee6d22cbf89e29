/* The optimizer on a bucket, and the kind of the bucket's collective in a step. */
#include "interpreter_buckets.h"

#include <string.h>

/* Selects the step's set of gradients, if those of other steps are still in use. */
void interpreter_gradients_select(const ty_interpreter *in,
                                  const virtual_stage_state *virtual_stage, uint32_t step)
{
    if (in->gradient_sets > 1)
        in->options.backend->select_gradients(virtual_stage->device, step % in->gradient_sets);
}

/* On the device, an overflow is counted, and the slice keeps its weights. */
static ty_status update_on_device(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                                  const ty_optimizer *optimizer, uint32_t step, uint64_t offset,
                                  uint64_t count, ty_error *error)
{
    bool is_finite = true;
    ty_status status;

    interpreter_gradients_select(in, virtual_stage, step);
    status = in->memory->update(virtual_stage->device, optimizer, (uint64_t)step + 1, offset, count,
                                &is_finite, error);
    if (status == TY_OK && !is_finite) {
        pthread_mutex_lock(&in->lock);
        in->sums[step % in->window].overflow_count += 1;
        pthread_mutex_unlock(&in->lock);
    }
    return status;
}

/* If the compressor applies momentum, the optimizer does plain descent. */
static ty_optimizer optimizer_of(const ty_interpreter *in, uint32_t bucket)
{
    const ty_plan *plan = in->options.plan;
    ty_optimizer optimizer = plan->optimizer;

    if (in->buckets[bucket].member_count > 1 &&
        ty_compression_has_momentum(&plan->buckets[bucket].compression))
        optimizer.momentum = 0;
    return optimizer;
}

/* With several weight versions the oldest is replaced: it becomes a copy of the newest, which the
 * update then changes. */
static ty_status version_renew(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                               uint32_t step, uint64_t offset, uint64_t count, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;
    const float *from;
    float *to;

    if (virtual_stage->version_count == 1)
        return TY_OK;
    backend->select(virtual_stage->device, step % virtual_stage->version_count);
    from = backend->parameters(virtual_stage->device) + offset;
    backend->select(virtual_stage->device, (step + 1) % virtual_stage->version_count);
    to = backend->parameters(virtual_stage->device) + offset;
    if (in->memory != NULL)
        return in->memory->copy(virtual_stage->device, to, from, count * sizeof *to, error);
    memcpy(to, from, count * sizeof *to);
    return TY_OK;
}

static ty_status update_slice(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                              const ty_optimizer *optimizer, uint32_t step, uint64_t offset,
                              uint64_t count, ty_error *error)
{
    ty_status status;

    if (count == 0)
        return TY_OK;
    status = version_renew(in, virtual_stage, step, offset, count, error);
    if (status == TY_OK && in->memory != NULL)
        status = update_on_device(in, virtual_stage, optimizer, step, offset, count, error);
    else if (status == TY_OK)
        ty_optimizer_step(optimizer, (uint64_t)step + 1, count,
                          in->options.backend->parameters(virtual_stage->device) + offset,
                          interpreter_gradients(in, virtual_stage, step) + offset,
                          virtual_stage->optimizer_state + offset * in->state_count);
    return status;
}

/* Skips frozen layers, so that weight decay does not change them. Layers with contiguous parameters
 * are updated at once. */
ty_status interpreter_update(ty_interpreter *in, uint32_t index, uint32_t step, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *planned = &plan->buckets[index];
    const bucket_state *bucket = &in->buckets[index];
    const virtual_stage_state *virtual_stage = bucket->virtual_stage;
    const ty_optimizer optimizer = optimizer_of(in, index);
    uint64_t first = 0, end = 0;
    uint32_t layer;

    if (bucket->is_sharded)
        return update_slice(in, virtual_stage, &optimizer, step, bucket->share_offset,
                            bucket->share_count, error);
    if (planned->tied_stage != TY_NO_STAGE)
        return update_slice(in, virtual_stage, &optimizer, step, bucket->offset, bucket->count,
                            error);
    for (layer = planned->first_layer; layer < planned->first_layer + planned->layer_count;
         layer++) {
        uint64_t offset = 0, count = 0;

        if (plan->workload->layers[layer].is_frozen)
            continue;
        interpreter_bucket_slice(in, index, layer, 1, &offset, &count);
        if (count > 0 && offset != end) {
            TY_TRY(update_slice(in, virtual_stage, &optimizer, step, first, end - first, error));
            first = offset;
        }
        end = count > 0 ? offset + count : end;
    }
    return update_slice(in, virtual_stage, &optimizer, step, first, end - first, error);
}

exchange_kind interpreter_exchange_kind(const ty_interpreter *in, uint32_t bucket, uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t interval = ty_plan_exchange_interval(plan, &plan->buckets[bucket]);

    if (interval == 1 || in->buckets[bucket].member_count == 1)
        return EXCHANGE_GRADIENTS;
    return (step + 1) % interval == 0 ? EXCHANGE_WEIGHTS : EXCHANGE_NOTHING;
}
