/* Collectives of tensor-parallel and context-parallel ranks inside a pass, in the type of values,
 * or in floats if sums are floats. */
#include "stage.h"

static ty_status exchange(ty_stage_device *stage, ty_parallelism among, ty_collective_kind kind,
                          ty_element element, void *data, uint64_t count, ty_error *error)
{
    return stage->backend->exchange(
        stage,
        &(ty_parallel_exchange){
            .among = among, .kind = kind, .element = element, .data = data, .count = count},
        error);
}

ty_status stage_ranks_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                 float *data, ty_error *error)
{
    return exchange(stage, TY_TENSOR_PARALLEL, TY_ALL_REDUCE,
                    is_maximum ? TY_ELEMENT_LARGEST_FLOAT : TY_ELEMENT_FLOAT, data, count, error);
}

/* ---- Shards of sequences: one piece of a message per rank ---- */

static uint64_t piece_count(const stage_pieces *p)
{
    return p->batch * p->runs * p->run;
}

/* Whether the tensor has the order of a message. */
static bool is_in_order(const stage_pieces *p)
{
    return p->batch == 1 && p->runs == 1;
}

/* This rank's piece of a message. */
static void *own_piece(const ty_stage_device *stage, ty_parallelism among, const stage_pieces *p,
                       void *message)
{
    const ty_parallel_group *parallel = &stage->options.parallel;
    const uint32_t position = among == TY_TENSOR_PARALLEL ? parallel->tp_rank : parallel->cp_rank;

    return (char *)message + position * piece_count(p) * stage->element;
}

/* All-gathers the pieces of a message; this rank's piece is in place. */
static ty_status pieces_gather(ty_stage_device *stage, ty_parallelism among, const stage_pieces *p,
                               void *message, ty_error *error)
{
    return exchange(stage, among, TY_ALL_GATHER, stage->element_kind, message, piece_count(p),
                    error);
}

/* Reduce-scatters all ranks' messages to this rank's piece. */
static ty_status pieces_sum(ty_stage_device *stage, ty_parallelism among, const stage_pieces *p,
                            void *message, ty_error *error)
{
    return exchange(stage, among, TY_REDUCE_SCATTER, stage->element_kind, message,
                    p->ranks * piece_count(p), error);
}

/* A tensor [B, T, D] as [n][B][T / n][D] for n ranks. */
static stage_pieces tensor_pieces(const ty_stage_device *stage, const ty_shape *whole)
{
    const uint64_t ranks = tp_size_of(&stage->options);

    return (stage_pieces){stage_batch(stage), ranks, 1, ty_shape_elements(whole) / ranks};
}

/* Gathers a tensor of that shape per sample from the ranks' shards of its sequence. */
static ty_status gather(ty_stage_device *stage, const ty_shape *shape, const void *own, void *whole,
                        ty_error *error)
{
    const stage_pieces p = tensor_pieces(stage, shape);
    void *message = is_in_order(&p) ? whole : stage->parallel_message;
    ty_status status;

    stage->backend->accumulate(stage, piece_count(&p), own, false,
                               own_piece(stage, TY_TENSOR_PARALLEL, &p, message));
    status = pieces_gather(stage, TY_TENSOR_PARALLEL, &p, message, error);
    if (status == TY_OK && !is_in_order(&p))
        stage->backend->from_pieces(stage, &p, message, whole);
    return status;
}

static ty_status sum_scattered(ty_stage_device *stage, const ty_shape *shape, void *summand,
                               bool adds, void *to, ty_error *error)
{
    const stage_pieces p = tensor_pieces(stage, shape);
    void *message = is_in_order(&p) ? summand : stage->parallel_message;
    ty_status status;

    if (!is_in_order(&p))
        stage->backend->to_pieces(stage, &p, summand, message);
    status = pieces_sum(stage, TY_TENSOR_PARALLEL, &p, message, error);
    if (status == TY_OK)
        stage->backend->accumulate(stage, piece_count(&p),
                                   own_piece(stage, TY_TENSOR_PARALLEL, &p, message), adds, to);
    return status;
}

static stage_pieces context_pieces(const ty_stage_device *stage, const stage_context_rows *rows)
{
    const uint64_t ranks = cp_size_of(&stage->options);

    return (stage_pieces){stage_batch(stage), ranks, TY_CONTEXT_RUNS,
                          rows->sequence / ranks / TY_CONTEXT_RUNS * rows->columns};
}

ty_status stage_context_gather(ty_stage_device *stage, const stage_context_rows *rows,
                               const void *own, void *message, void *whole, ty_error *error)
{
    const stage_pieces p = context_pieces(stage, rows);
    ty_status status;

    stage->backend->copy_rows(stage, piece_count(&p) / rows->columns, rows->columns, own,
                              rows->stride, false,
                              own_piece(stage, TY_CONTEXT_PARALLEL, &p, message), rows->columns);
    status = pieces_gather(stage, TY_CONTEXT_PARALLEL, &p, message, error);
    if (status == TY_OK)
        stage->backend->from_pieces(stage, &p, message, whole);
    return status;
}

ty_status stage_context_scatter(ty_stage_device *stage, const stage_context_rows *rows,
                                const void *whole, void *message, void *own, ty_error *error)
{
    const stage_pieces p = context_pieces(stage, rows);
    ty_status status;

    stage->backend->to_pieces(stage, &p, whole, message);
    status = pieces_sum(stage, TY_CONTEXT_PARALLEL, &p, message, error);
    if (status == TY_OK)
        stage->backend->copy_rows(stage, piece_count(&p) / rows->columns, rows->columns,
                                  own_piece(stage, TY_CONTEXT_PARALLEL, &p, message), rows->columns,
                                  false, own, rows->stride);
    return status;
}

/* ---- A sharded layer's operands ---- */

ty_status stage_ranks_sum(ty_stage_device *stage, const stage_node *node, const ty_shape *shape,
                          void *summand, bool adds, void *to, ty_error *error)
{
    const uint64_t count = ty_shape_elements(shape) * stage_batch(stage);
    ty_status status;

    if (!node->is_divided || to == NULL)
        return TY_OK; /* it is in place */
    if (stage->options.parallel.divides_sequence)
        return sum_scattered(stage, shape, summand, adds, to, error);
    status = exchange(stage, TY_TENSOR_PARALLEL, TY_ALL_REDUCE, stage->element_kind, summand, count,
                      error);
    if (status == TY_OK && (summand != to || adds))
        stage->backend->accumulate(stage, count, summand, adds, to);
    return status;
}

ty_status stage_whole_input(ty_stage_device *stage, const stage_node *node, uint32_t input,
                            uint32_t slot, void *room, const void **out, ty_error *error)
{
    const void *own = stage->values[node->inputs[input]].data[slot];

    *out = stage_gathers(stage, node) ? room : own;
    if (!stage_gathers(stage, node))
        return TY_OK;
    return gather(stage, input == 0 ? &node->whole_input : &node->whole_output, own, room, error);
}

ty_status stage_whole_gradient(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               void *room, const void **out, ty_error *error)
{
    void **gradient = stage->values[node->output].gradient;
    const void *own = gradient == NULL ? NULL : gradient[slot];

    *out = stage_gathers(stage, node) ? room : own;
    if (!stage_gathers(stage, node))
        return TY_OK;
    return gather(stage, &node->whole_output, own, room, error);
}
