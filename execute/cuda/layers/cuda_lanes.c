/*
 * What the lanes of a rank tell each other inside a pass, in the stage's type, or in floats where
 * sums are kept as such.
 *
 * Where a pass is queued its stream is awaited before an exchange, and an exchange has ended when
 * it returns: so whoever moves the data, by whichever stream or thread, finds it complete and
 * leaves it so. Where it is recorded (cuda_graph.c), an exchange becomes a part of the graph, and
 * nobody waits.
 */
#include "cuda_stage.h"

ty_status cuda_lanes_exchange(ty_stage_device *stage, const ty_lane_exchange *exchange,
                              ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;
    ty_status status;

    if (stage->is_recording) {
        stage->recorded_exchanges++;
        return lanes->record(lanes->context, stage, exchange, error);
    }
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    TY_CHECK(lanes->exchange(lanes->context, exchange, error), status, done);
    status = cuda_use(stage, error);
done:
    return status;
}

static ty_status all_reduce(ty_stage_device *stage, ty_lane_kind among, ty_element element,
                            uint64_t count, void *data, ty_error *error)
{
    return cuda_lanes_exchange(stage,
                               &(ty_lane_exchange){.among = among,
                                                   .kind = TY_ALL_REDUCE,
                                                   .element = element,
                                                   .data = data,
                                                   .count = count},
                               error);
}

ty_status cuda_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                float *data, ty_error *error)
{
    return all_reduce(stage, TY_TENSOR_LANES,
                      is_maximum ? TY_ELEMENT_LARGEST_FLOAT : TY_ELEMENT_FLOAT, count, data, error);
}

ty_status cuda_lanes_agree(ty_stage_device *stage, ty_lane_kind among, bool *is_everywhere,
                           ty_error *error)
{
    const uint32_t lanes = among == TY_TENSOR_LANES ? lane_count(&stage->options)
                                                    : lane_context_count(&stage->options);
    float is_missing = *is_everywhere ? 0.0f : 1.0f;
    ty_status status = TY_OK;

    if (lanes == 1)
        return TY_OK;
    CUDA_CHECK(cudaMemcpyAsync(stage->lane_message, &is_missing, sizeof is_missing,
                               cudaMemcpyHostToDevice, stage->stream),
               status, done);
    TY_CHECK(all_reduce(stage, among, TY_ELEMENT_LARGEST_FLOAT, 1, stage->lane_message, error),
             status, done);
    CUDA_CHECK(cudaMemcpyAsync(&is_missing, stage->lane_message, sizeof is_missing,
                               cudaMemcpyDeviceToHost, stage->stream),
               status, done);
    TY_CHECK(cuda_pass_wait(stage, error), status, done);
    *is_everywhere = is_missing == 0.0f;
done:
    return status;
}

/* ---- Parts of sequences, as pieces of a message: of each lane one ---- */

static uint64_t piece_count(const cuda_pieces *p)
{
    return p->batch * p->runs * p->run;
}

/* Whether the pieces lie in the tensor as they do in a message. */
static bool is_in_order(const cuda_pieces *p)
{
    return p->batch == 1 && p->runs == 1;
}

/* This lane's piece of a message. */
static void *own_piece(const ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p,
                       void *message)
{
    const ty_lane_group *lanes = &stage->options.lanes;
    const uint32_t position = among == TY_TENSOR_LANES ? lanes->position : lanes->context_position;

    return (char *)message + position * piece_count(p) * stage->element;
}

/* Of every lane a piece, of which this lane's is there. */
static ty_status pieces_gather(ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p,
                               void *message, ty_error *error)
{
    return cuda_lanes_exchange(stage,
                               &(ty_lane_exchange){.among = among,
                                                   .kind = TY_ALL_GATHER,
                                                   .element = cuda_element(stage),
                                                   .data = message,
                                                   .count = piece_count(p)},
                               error);
}

/* Of the sum of all lanes' messages this lane's piece. */
static ty_status pieces_sum(ty_stage_device *stage, ty_lane_kind among, const cuda_pieces *p,
                            void *message, ty_error *error)
{
    return cuda_lanes_exchange(stage,
                               &(ty_lane_exchange){.among = among,
                                                   .kind = TY_REDUCE_SCATTER,
                                                   .element = cuda_element(stage),
                                                   .data = message,
                                                   .count = p->lanes * piece_count(p)},
                               error);
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
    void *message = is_in_order(&p) ? whole : stage->lane_message;
    ty_status status;

    cuda_accumulate(stage->type, piece_count(&p), own, false,
                    own_piece(stage, TY_TENSOR_LANES, &p, message), stage->stream);
    status = pieces_gather(stage, TY_TENSOR_LANES, &p, message, error);
    if (status == TY_OK && !is_in_order(&p))
        cuda_from_pieces(stage->type, &p, message, whole, stage->stream);
    return status;
}

static ty_status sum_scattered(ty_stage_device *stage, const ty_shape *shape, void *summand,
                               bool adds, void *to, ty_error *error)
{
    const cuda_pieces p = tensor_pieces(stage, shape);
    void *message = is_in_order(&p) ? summand : stage->lane_message;
    ty_status status;

    if (!is_in_order(&p))
        cuda_to_pieces(stage->type, &p, summand, message, stage->stream);
    status = pieces_sum(stage, TY_TENSOR_LANES, &p, message, error);
    if (status == TY_OK)
        cuda_accumulate(stage->type, piece_count(&p),
                        own_piece(stage, TY_TENSOR_LANES, &p, message), adds, to, stage->stream);
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
    ty_status status;

    cuda_copy_rows(stage->type, piece_count(&p) / rows->columns, rows->columns, own, rows->stride,
                   false, own_piece(stage, TY_CONTEXT_LANES, &p, stage->lane_message),
                   rows->columns, stage->stream);
    status = pieces_gather(stage, TY_CONTEXT_LANES, &p, stage->lane_message, error);
    if (status == TY_OK)
        cuda_from_pieces(stage->type, &p, stage->lane_message, whole, stage->stream);
    return status;
}

ty_status cuda_context_scatter(ty_stage_device *stage, const cuda_context_rows *rows,
                               const void *whole, void *own, ty_error *error)
{
    const cuda_pieces p = context_pieces(stage, rows);
    ty_status status;

    cuda_to_pieces(stage->type, &p, whole, stage->lane_message, stage->stream);
    status = pieces_sum(stage, TY_CONTEXT_LANES, &p, stage->lane_message, error);
    if (status == TY_OK)
        cuda_copy_rows(stage->type, piece_count(&p) / rows->columns, rows->columns,
                       own_piece(stage, TY_CONTEXT_LANES, &p, stage->lane_message), rows->columns,
                       false, own, rows->stride, stage->stream);
    return status;
}

/* ---- A divided layer's operands ---- */

ty_status cuda_lanes_sum(ty_stage_device *stage, const cuda_node *node, const ty_shape *shape,
                         void *summand, bool adds, void *to, ty_error *error)
{
    const uint64_t count = ty_shape_elements(shape) * cuda_batch(stage);
    ty_status status;

    if (!node->is_divided || to == NULL)
        return TY_OK; /* it is there */
    if (stage->options.lanes.divides_sequence)
        return sum_scattered(stage, shape, summand, adds, to, error);
    status = all_reduce(stage, TY_TENSOR_LANES, cuda_element(stage), count, summand, error);
    if (status == TY_OK && (summand != to || adds))
        cuda_accumulate(stage->type, count, summand, adds, to, stage->stream);
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
