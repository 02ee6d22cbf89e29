/*
 * What the lanes of a rank tell each other inside a pass. Messages are floats in device memory
 * whatever the stage's type is, as between stages. The pass's stream is awaited before an exchange,
 * and an exchange has ended when it returns: so whoever moves the data, by whichever stream or
 * thread, finds it complete and leaves it so.
 */
#include "cuda_stage.h"

ty_status cuda_lanes_exchange(ty_stage_device *stage, const ty_lane_exchange *of_floats,
                              ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;
    ty_status status;

    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    TY_CHECK(lanes->exchange(lanes->context, of_floats, error), status, done);
    status = cuda_use(stage, error);
done:
    return status;
}

ty_status cuda_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                float *data, ty_error *error)
{
    return cuda_lanes_exchange(stage,
                               &(ty_lane_exchange){.among = TY_TENSOR_LANES,
                                                   .kind = TY_ALL_REDUCE,
                                                   .is_maximum = is_maximum,
                                                   .data = data,
                                                   .count = count},
                               error);
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
    TY_CHECK(cuda_lanes_all_reduce(stage, true, 1, stage->lane_floats, error), status, done);
    CUDA_CHECK(cudaMemcpyAsync(&is_missing, stage->lane_floats, sizeof is_missing,
                               cudaMemcpyDeviceToHost, stage->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    *is_everywhere = is_missing == 0.0f;
done:
    return status;
}

/* ---- Parts of sequences, as pieces of a message: of each lane one ---- */

static uint64_t piece_floats(const cuda_pieces *p)
{
    return p->batch * p->runs * p->run;
}

/* This lane's piece. */
static float *own_piece(const ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p)
{
    const ty_lane_group *lanes = &stage->options.lanes;
    const uint32_t position = among == TY_TENSOR_LANES ? lanes->position : lanes->context_position;

    return stage->lane_floats + position * piece_floats(p);
}

/* A whole tensor from the lanes' pieces, of which this lane's is there. */
static ty_status pieces_gather(ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p,
                               void *whole, ty_error *error)
{
    const ty_lane_exchange gather = {.among = among,
                                     .kind = TY_ALL_GATHER,
                                     .data = stage->lane_floats,
                                     .count = piece_floats(p)};
    ty_status status = cuda_lanes_exchange(stage, &gather, error);

    if (status == TY_OK)
        cuda_from_pieces(stage->type, p, stage->lane_floats, whole, stage->stream);
    return status;
}

/* The sum of whole tensors, of which this lane gets its piece. */
static ty_status pieces_sum(ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p,
                            const void *whole, ty_error *error)
{
    const ty_lane_exchange scatter = {.among = among,
                                      .kind = TY_REDUCE_SCATTER,
                                      .data = stage->lane_floats,
                                      .count = p->lanes * piece_floats(p)};

    cuda_to_pieces(stage->type, p, whole, stage->lane_floats, stage->stream);
    return cuda_lanes_exchange(stage, &scatter, error);
}

/* How a tensor [B, T, D] lies as [lane][B][T / lanes][D]. */
static cuda_pieces tensor_pieces(const ty_stage_device *stage, const ty_shape *whole)
{
    const uint64_t lanes = lane_count(&stage->options);

    return (cuda_pieces){cuda_batch(stage), lanes, 1, ty_shape_elements(whole) / lanes};
}

/* A tensor of that shape a sample from the lanes' parts of its sequence. */
static ty_status gather(ty_stage_device *stage, const ty_shape *shape, const void *own, void *whole,
                        ty_error *error)
{
    const cuda_pieces p = tensor_pieces(stage, shape);

    cuda_convert(stage->type, own, CUDA_TYPE_FLOAT, own_piece(stage, TY_TENSOR_LANES, &p),
                 piece_floats(&p), stage->stream);
    return pieces_gather(stage, TY_TENSOR_LANES, &p, whole, error);
}

static ty_status sum_scattered(ty_stage_device *stage, const ty_shape *shape, const void *summand,
                               bool adds, void *to, ty_error *error)
{
    const cuda_pieces p = tensor_pieces(stage, shape);
    ty_status status = pieces_sum(stage, TY_TENSOR_LANES, &p, summand, error);

    if (status == TY_OK)
        cuda_take_floats(stage->type, piece_floats(&p), own_piece(stage, TY_TENSOR_LANES, &p), adds,
                         to, stage->stream);
    return status;
}

static cuda_pieces context_pieces(const ty_stage_device *stage, const cuda_context_rows *rows)
{
    const uint64_t lanes = lane_context_count(&stage->options);

    return (cuda_pieces){cuda_batch(stage), lanes, TY_CONTEXT_RUNS,
                         rows->sequence / lanes / TY_CONTEXT_RUNS * rows->columns};
}

ty_status cuda_context_gather(ty_stage_device *stage, const cuda_context_rows *rows,
                              const void *own, void *whole, ty_error *error)
{
    const cuda_pieces p = context_pieces(stage, rows);

    cuda_rows_to_floats(stage->type, piece_floats(&p) / rows->columns, rows->columns, own,
                        rows->stride, own_piece(stage, TY_CONTEXT_LANES, &p), stage->stream);
    return pieces_gather(stage, TY_CONTEXT_LANES, &p, whole, error);
}

ty_status cuda_context_scatter(ty_stage_device *stage, const cuda_context_rows *rows,
                               const void *whole, void *own, ty_error *error)
{
    const cuda_pieces p = context_pieces(stage, rows);
    ty_status status = pieces_sum(stage, TY_CONTEXT_LANES, &p, whole, error);

    if (status == TY_OK)
        cuda_rows_of_floats(stage->type, piece_floats(&p) / rows->columns, rows->columns,
                            own_piece(stage, TY_CONTEXT_LANES, &p), own, rows->stride,
                            stage->stream);
    return status;
}

/* ---- A divided layer's operands ---- */

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
    status = cuda_lanes_all_reduce(stage, false, count, stage->lane_floats, error);
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
    return gather(stage, &node->whole_input, cuda_in(stage, node, 0, slot), room, error);
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
ty_status cuda_input_product_backward(ty_stage_device *stage, const cuda_node *node, uint32_t input,
                                      uint32_t slot, cuda_affine_gradient *affine, ty_error *error)
{
    const ty_shape shape = lane_context_shape(
        &stage->options, ty_layer_input_shape(stage->options.workload, node->layer_index, input));
    const bool is_trained = ty_layer_is_trained(stage->options.workload, node->layer_index);
    const bool adds = node->adds[input];
    void *dx = cuda_in_gradient(stage, node, input), *kept = kept_room(stage, node, false);
    void *room = kept != NULL ? kept : stage->lane_whole;
    ty_status status = TY_OK;

    affine->dx = cuda_summand(stage, node, adds, dx);
    affine->adds_x = affine->dx == dx && adds;
    affine->x = room; /* not read where nothing is trained */
    if (!cuda_gathers(stage, node))
        affine->x = cuda_in(stage, node, input, slot);
    else if (!is_kept(stage, node) && is_trained)
        TY_CHECK(cuda_whole_input(stage, node, slot, room, &affine->x, error), status, done);
    TY_CHECK(cuda_affine_backward(stage, affine, error), status, done);
    status = cuda_lanes_sum(stage, node, &shape, affine->dx, adds, dx, error);
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
    return gather(stage, &node->whole_output, cuda_out_gradient(stage, node), room, error);
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
