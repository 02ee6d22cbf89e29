/*
 * Collectives among the ranks of a stage replica inside a pass, in the stage's type, or in floats
 * for float sums.
 *
 * In a queued pass, the host waits for the stream before a collective, and the collective has ended
 * when the call returns. So the link finds complete data and leaves complete data, on any stream or
 * thread. In a recorded pass (cuda_graph.c), a collective becomes a part of the graph, without
 * waits.
 */
#include "cuda_stage.h"

ty_status cuda_parallel_exchange(ty_stage_device *stage, const ty_parallel_exchange *exchange,
                                 ty_error *error)
{
    const ty_parallel_group *parallel = &stage->options.parallel;

    if (stage->own->is_recording) {
        stage->own->recorded_exchanges++;
        return parallel->record(parallel->context, stage, exchange, error);
    }
    TY_TRY(cuda_pass_wait(stage, error));
    TY_TRY(parallel->exchange(parallel->context, exchange, error));
    return cuda_use(stage, error);
}

ty_status cuda_ranks_agree(ty_stage_device *stage, ty_parallelism among, bool *is_everywhere,
                           ty_error *error)
{
    const uint32_t ranks =
        among == TY_TENSOR_PARALLEL ? tp_size_of(&stage->options) : cp_size_of(&stage->options);
    float is_missing = *is_everywhere ? 0.0f : 1.0f;
    ty_status status = TY_OK;

    if (ranks == 1)
        return TY_OK;
    CUDA_CHECK(cudaMemcpyAsync(stage->parallel_message, &is_missing, sizeof is_missing,
                               cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
    TY_CHECK(cuda_parallel_exchange(stage,
                                    &(ty_parallel_exchange){.among = among,
                                                            .kind = TY_ALL_REDUCE,
                                                            .element = TY_ELEMENT_LARGEST_FLOAT,
                                                            .data = stage->parallel_message,
                                                            .count = 1},
                                    error),
             status, done);
    CUDA_CHECK(cudaMemcpyAsync(&is_missing, stage->parallel_message, sizeof is_missing,
                               cudaMemcpyDeviceToHost, stage->own->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    *is_everywhere = is_missing == 0.0f;
done:
    return status;
}

/* ---- A divided layer's operands ---- */

/* Memory for all-gathers in backward. If backward is split in two, the first part gathers for both,
 * and the second needs no communication. */
static void *kept_room(const ty_stage_device *stage, const stage_node *node, bool is_gradient)
{
    const uint64_t offset = is_gradient ? node->tp_elements * stage->element : 0;

    return node->tp_kept == NULL ? NULL : (char *)node->tp_kept[stage->slot] + offset;
}

static bool is_kept(const ty_stage_device *stage, const stage_node *node)
{
    return node->tp_kept != NULL && stage->part == STAGE_WEIGHTS;
}

/* The unsharded input and its gradient may share memory: the product for the weights comes
 * first. */
ty_status cuda_input_product_backward(ty_stage_device *stage, const stage_node *node,
                                      uint32_t input, uint32_t slot, cuda_affine_gradient *affine,
                                      ty_error *error)
{
    const ty_shape shape = cp_shape(
        &stage->options, ty_layer_input_shape(stage->options.workload, node->layer_index, input));
    const bool is_trained = ty_layer_is_trained(stage->options.workload, node->layer_index);
    const bool adds = node->adds[input];
    void *dx = cuda_in_gradient(stage, node, input), *kept = kept_room(stage, node, false);
    void *room = kept != NULL ? kept : stage->gather_workspace;

    affine->dx = stage_summand(stage, node, adds, dx);
    affine->adds_x = affine->dx == dx && adds;
    affine->x = room; /* not read if no weight is trained */
    if (!stage_gathers(stage, node))
        affine->x = cuda_in(stage, node, input, slot);
    else if (!is_kept(stage, node) && is_trained)
        TY_TRY(stage_whole_input(stage, node, 0, slot, room, &affine->x, error));
    TY_TRY(cuda_affine_backward(stage, affine, error));
    return stage_ranks_sum(stage, node, &shape, affine->dx, adds, dx, error);
}

ty_status cuda_whole_gradient(ty_stage_device *stage, const stage_node *node, void *room,
                              const void **out, ty_error *error)
{
    void *kept = kept_room(stage, node, true);

    *out = kept;
    if (is_kept(stage, node))
        return TY_OK;
    return stage_whole_gradient(stage, node, stage->slot, kept != NULL ? kept : room, out, error);
}

/* ---- Biases after a sum over ranks: each rank adds its own features ------ */

static shard_range own_of(const ty_stage_device *stage, uint64_t columns)
{
    return shard_range_of(columns, tp_size_of(&stage->options), stage->options.parallel.tp_rank);
}

void cuda_add_tp_bias(ty_stage_device *stage, uint64_t rows, uint64_t columns, const float *bias,
                      void *y)
{
    const shard_range own = own_of(stage, columns);

    cuda_add_part_bias(stage->own->type, rows, columns, own.first, own.count, bias, y,
                       stage->own->stream);
}

void cuda_tp_bias_gradient(ty_stage_device *stage, uint64_t rows, uint64_t columns, const void *dy,
                           bool adds, float *sums)
{
    const shard_range own = own_of(stage, columns);

    cuda_column_sums(stage->own->type, rows, own.count, columns,
                     (const char *)dy + own.first * stage->element, adds, sums, stage->own->sums,
                     stage->own->stream);
}
