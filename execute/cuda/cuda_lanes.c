/*
 * What the lanes of a tensor parallel rank tell each other inside a pass. Messages are floats in
 * device memory whatever the stage's type is, as between stages. The pass's stream is awaited
 * before an exchange, and an exchange has ended when it returns: so whoever moves the data, by
 * whichever stream or thread, finds it complete and leaves it so.
 */
#include "cuda_stage.h"

static ty_status exchange(ty_stage_device *stage, ty_collective_kind kind, bool is_maximum,
                          uint64_t count, float *data, ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;
    ty_status status;

    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    TY_CHECK(
        lanes->exchange(lanes->context,
                        &(ty_lane_exchange){
                            .kind = kind, .is_maximum = is_maximum, .data = data, .count = count},
                        error),
        status, done);
    status = cuda_use(stage, error);
done:
    return status;
}

ty_status cuda_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                float *data, ty_error *error)
{
    return exchange(stage, TY_ALL_REDUCE, is_maximum, count, data, error);
}

ty_status cuda_lanes_agree(ty_stage_device *stage, bool *is_everywhere, ty_error *error)
{
    float is_missing = *is_everywhere ? 0.0f : 1.0f;
    ty_status status = TY_OK;

    if (lane_count(&stage->options) == 1)
        return TY_OK;
    CUDA_CHECK(cudaMemcpyAsync(stage->lane_floats, &is_missing, sizeof is_missing,
                               cudaMemcpyHostToDevice, stage->stream),
               status, done);
    TY_CHECK(exchange(stage, TY_ALL_REDUCE, true, 1, stage->lane_floats, error), status, done);
    CUDA_CHECK(cudaMemcpyAsync(&is_missing, stage->lane_floats, sizeof is_missing,
                               cudaMemcpyDeviceToHost, stage->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    *is_everywhere = is_missing == 0.0f;
done:
    return status;
}

/* How a tensor [B, T, D] lies as [lane][B][T / lanes][D], where each lane's part is one piece. */
static cuda_pieces pieces_of(const ty_stage_device *stage, const ty_shape *whole)
{
    const uint64_t lanes = lane_count(&stage->options);

    return (cuda_pieces){cuda_batch(stage), lanes, ty_shape_elements(whole) / lanes};
}

/* A tensor of that shape a sample from the lanes' parts of its sequence. */
static ty_status gather(ty_stage_device *stage, const ty_shape *shape, const void *own, void *whole,
                        ty_error *error)
{
    const cuda_pieces p = pieces_of(stage, shape);
    const uint64_t part = p.batch * p.run;
    ty_status status;

    cuda_convert(stage->type, own, CUDA_TYPE_FLOAT,
                 stage->lane_floats + stage->options.lanes.position * part, part, stage->stream);
    status = exchange(stage, TY_ALL_GATHER, false, part, stage->lane_floats, error);
    if (status == TY_OK)
        cuda_from_pieces(stage->type, &p, stage->lane_floats, whole, stage->stream);
    return status;
}

static ty_status sum_scattered(ty_stage_device *stage, const ty_shape *shape, const void *summand,
                               bool adds, void *to, ty_error *error)
{
    const cuda_pieces p = pieces_of(stage, shape);
    const uint64_t part = p.batch * p.run;
    ty_status status;

    cuda_to_pieces(stage->type, &p, summand, stage->lane_floats, stage->stream);
    status = exchange(stage, TY_REDUCE_SCATTER, false, part * p.lanes, stage->lane_floats, error);
    if (status == TY_OK)
        cuda_take_floats(stage->type, part,
                         stage->lane_floats + stage->options.lanes.position * part, adds, to,
                         stage->stream);
    return status;
}

ty_status cuda_lanes_sum(ty_stage_device *stage, const cuda_node *node, const ty_shape *shape,
                         const void *summand, bool adds, void *to, ty_error *error)
{
    const uint64_t count = ty_shape_elements(shape) * cuda_batch(stage);
    ty_status status;

    if (!node->is_divided || to == NULL)
        return TY_OK; /* it is there */
    if (stage->options.lanes.divides_sequence)
        return sum_scattered(stage, shape, summand, adds, to, error);
    cuda_convert(stage->type, summand, CUDA_TYPE_FLOAT, stage->lane_floats, count, stage->stream);
    status = exchange(stage, TY_ALL_REDUCE, false, count, stage->lane_floats, error);
    if (status == TY_OK)
        cuda_take_floats(stage->type, count, stage->lane_floats, adds, to, stage->stream);
    return status;
}

ty_status cuda_whole_input(ty_stage_device *stage, const cuda_node *node, uint32_t slot, void *room,
                           const void **out, ty_error *error)
{
    *out = cuda_in(stage, node, 0, slot);
    if (!cuda_gathers(stage, node))
        return TY_OK;
    *out = room;
    return gather(stage, cuda_whole_input_shape(stage, node), cuda_in(stage, node, 0, slot), room,
                  error);
}

/* Room for what is gathered in backward. Where that comes in two parts, the first gathers for both,
 * so that the second exchanges nothing. */
static void *kept_room(const ty_stage_device *stage, const cuda_node *node, bool is_gradient)
{
    const uint64_t offset = is_gradient ? node->lane_elements * stage->element : 0;

    return node->lane_kept == NULL ? NULL : (char *)node->lane_kept[stage->slot] + offset;
}

static bool is_kept(const ty_stage_device *stage, const cuda_node *node)
{
    return node->lane_kept != NULL && stage->part == CUDA_WEIGHTS;
}

/* The whole input and the gradient of it may have the same room: the product for the weights comes
 * first. */
ty_status cuda_input_product_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                      cuda_affine_gradient *affine, ty_error *error)
{
    const bool is_trained = ty_layer_is_trained(stage->options.workload, node->layer_index);
    void *dx = cuda_in_gradient(stage, node, 0), *kept = kept_room(stage, node, false);
    void *room = kept != NULL ? kept : stage->lane_whole;
    ty_status status = TY_OK;

    affine->dx = cuda_summand(stage, node, node->adds[0], dx);
    affine->adds_x = affine->dx == dx && node->adds[0];
    affine->x = room; /* not read where nothing is trained */
    if (!is_kept(stage, node) && (is_trained || !cuda_gathers(stage, node)))
        TY_CHECK(cuda_whole_input(stage, node, slot, room, &affine->x, error), status, done);
    TY_CHECK(cuda_affine_backward(stage, affine, error), status, done);
    status = cuda_lanes_sum(stage, node, cuda_whole_input_shape(stage, node), affine->dx,
                            node->adds[0], dx, error);
done:
    return status;
}

ty_status cuda_whole_gradient(ty_stage_device *stage, const cuda_node *node, void *room,
                              const void **out, ty_error *error)
{
    void *kept = kept_room(stage, node, true);

    *out = cuda_out_gradient(stage, node);
    if (!cuda_gathers(stage, node))
        return TY_OK;
    room = kept != NULL ? kept : room;
    *out = room;
    if (is_kept(stage, node))
        return TY_OK;
    return gather(stage, &node->layer->output, cuda_out_gradient(stage, node), room, error);
}

/* ---- Biases behind a sum over lanes: each adds its own features of it ---- */

static lane_range own_of(const ty_stage_device *stage, uint64_t columns)
{
    return lane_range_of(columns, lane_count(&stage->options), stage->options.lanes.position);
}

void cuda_add_lane_bias(ty_stage_device *stage, uint64_t rows, uint64_t columns, const float *bias,
                        void *y)
{
    const lane_range own = own_of(stage, columns);

    cuda_add_part_bias(stage->type, rows, columns, own.first, own.count, bias, y, stage->stream);
}

void cuda_lane_bias_gradient(ty_stage_device *stage, uint64_t rows, uint64_t columns,
                             const void *dy, bool adds, float *sums)
{
    const lane_range own = own_of(stage, columns);

    cuda_column_sums(stage->type, rows, own.count, columns,
                     (const char *)dy + own.first * stage->element, adds, sums, stage->sums,
                     stage->stream);
}
