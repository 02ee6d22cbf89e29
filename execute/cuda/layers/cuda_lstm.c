/*
 * Long short-term memory over a sequence: input [gates][in], state [gates][hidden], and a bias of
 * each, gates in the CPU backend's order, which is cuDNN's. One product covers the inputs of all
 * steps; products with the state run step by step, each followed by one kernel. Gates and cells are
 * fp32 in every precision, because a cell is a sum over all steps.
 */
#include "cuda_stage.h"

static cuda_cell cell_of(const stage_lstm *l, uint64_t step)
{
    return (cuda_cell){l->batch, l->length, l->hidden, step, l->is_reversed};
}

/* Stash: gates [rows][gates] and cells [rows][hidden], floats. Scratch: the gradient of the gates'
 * inputs, [rows][gates], then, in floats, the gradients of state and cell for the previous step,
 * [batch][hidden] each. */
static ty_status lstm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);

    (void)error;
    node->stash_bytes = l.rows * (l.gates + l.hidden) * sizeof(float);
    node->scratch_bytes =
        2 * l.batch * l.hidden * sizeof(float) + l.rows * l.gates * stage->element;
    if (stage->options.splits_backward) /* the second part of backward reads the scratch */
        node->stash_bytes += node->scratch_bytes;
    node->sum_floats = cuda_affine_sums(l.rows, l.gates);
    return TY_OK;
}

static ty_status lstm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    float *gates = node->stash[slot], *cells = gates + l.rows * l.gates;
    const float *input_bias = l.has_bias ? cuda_parameters(stage, node, LSTM_INPUT_BIAS) : NULL;
    const float *state_bias = l.has_bias ? cuda_parameters(stage, node, LSTM_STATE_BIAS) : NULL;
    char *y = cuda_out(stage, node, slot);
    const cuda_strided all = {.rows = l.rows,
                              .in = l.in,
                              .out = l.gates,
                              .x = cuda_in(stage, node, 0, slot),
                              .x_stride = l.in,
                              .weight = cuda_weights(stage, node, LSTM_INPUT),
                              .y = gates,
                              .y_stride = l.gates};
    cuda_strided step = {.rows = l.batch,
                         .in = l.hidden,
                         .out = l.gates,
                         .x_stride = l.length * l.hidden,
                         .weight = cuda_weights(stage, node, LSTM_STATE),
                         .y_stride = l.length * l.gates,
                         .adds = true};
    ty_status status = cuda_strided_forward(stage, &all, error);

    for (uint64_t t = 0; t < l.length && status == TY_OK; t++) {
        const cuda_cell cell = cell_of(&l, t);

        step.x = t == 0 ? NULL : y + stage_lstm_step(&l, t - 1) * l.hidden * stage->element;
        step.y = gates + stage_lstm_step(&l, t) * l.gates;
        if (t > 0)
            status = cuda_strided_forward(stage, &step, error);
        cuda_cell_forward(stage->own->type, &cell, input_bias, state_bias, gates, cells, y,
                          stage->own->stream);
    }
    return status;
}

/* Backward through all steps: the gradients of the gates' inputs. */
static ty_status gates_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                char *dgates, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    const float *gates = node->stash[slot], *cells = gates + l.rows * l.gates;
    float *dstate = (float *)(void *)(dgates + l.rows * l.gates * stage->element);
    float *dcell = dstate + l.batch * l.hidden;
    cuda_strided step = {.rows = l.batch,
                         .in = l.hidden,
                         .out = l.gates,
                         .x_stride = l.length * l.gates,
                         .weight = cuda_weights(stage, node, LSTM_STATE),
                         .y = dstate,
                         .y_stride = l.hidden};
    ty_status status = TY_OK;

    for (uint64_t t = l.length; t-- > 0 && status == TY_OK;) {
        const cuda_cell cell = cell_of(&l, t);

        cuda_cell_backward(stage->own->type, &cell, gates, cells, cuda_out_gradient(stage, node),
                           dstate, dcell, dgates, stage->own->stream);
        step.x = dgates + stage_lstm_step(&l, t) * l.gates * stage->element;
        if (t > 0)
            status = cuda_strided_backward(stage, &step, error);
    }
    return status;
}

/* The state of a step enters the gates of the next: multiplies rows of the state with the gates one
 * row later, or, reversed, one row earlier. Sets the gates of each first step, which has no
 * previous state, to 0. Overwrites dgates. */
static ty_status state_gradients(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, char *dgates, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    const uint64_t row_bytes = l.gates * stage->element;
    const uint64_t from = l.is_reversed ? 1 : 0, next = 1 - from; /* first row of each */
    const cuda_affine_gradient state = {.rows = l.rows - 1,
                                        .in = l.hidden,
                                        .out = l.gates,
                                        .x = (char *)cuda_out(stage, node, slot) +
                                             from * l.hidden * stage->element,
                                        .dy = dgates + next * row_bytes,
                                        .dweight = cuda_parameter_gradient(stage, node, LSTM_STATE),
                                        .adds_weight = stage_adds(node, LSTM_STATE, is_first)};
    ty_status status = TY_OK;

    if (state.dweight == NULL)
        return TY_OK;
    if (l.has_bias)
        cuda_column_sums(stage->own->type, l.rows, l.gates, l.gates, dgates,
                         stage_adds(node, LSTM_STATE_BIAS, is_first),
                         cuda_parameter_gradient(stage, node, LSTM_STATE_BIAS), stage->own->sums,
                         stage->own->stream);
    if (l.length == 1 && !state.adds_weight)
        CUDA_CHECK(cudaMemsetAsync(state.dweight, 0, l.gates * l.hidden * sizeof(float),
                                   stage->own->stream),
                   status, done);
    if (l.length == 1)
        return TY_OK;
    CUDA_CHECK(cudaMemset2DAsync(dgates + stage_lstm_step(&l, 0) * row_bytes, l.length * row_bytes,
                                 0, row_bytes, l.batch, stage->own->stream),
               status, done);
    status = cuda_affine_backward(stage, &state, error);
done:
    return status;
}

static ty_status lstm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    char *kept = (char *)node->stash[slot] + node->stash_bytes - node->scratch_bytes;
    char *dgates = stage->options.splits_backward ? kept : stage->scratch;
    const cuda_affine_gradient in = {
        .rows = l.rows,
        .in = l.in,
        .out = l.gates,
        .x = cuda_in(stage, node, 0, slot),
        .weight = cuda_weights(stage, node, LSTM_INPUT),
        .dy = dgates,
        .dweight = cuda_parameter_gradient(stage, node, LSTM_INPUT),
        .dbias = l.has_bias ? cuda_parameter_gradient(stage, node, LSTM_INPUT_BIAS) : NULL,
        .dx = cuda_in_gradient(stage, node, 0),
        .adds_weight = stage_adds(node, LSTM_INPUT, is_first),
        .adds_bias = stage_adds(node, LSTM_INPUT_BIAS, is_first),
        .adds_x = node->adds[0]};
    ty_status status = TY_OK;

    if (stage->part != STAGE_WEIGHTS)
        status = gates_backward(stage, node, slot, dgates, error);
    if (status == TY_OK)
        status = cuda_affine_backward(stage, &in, error);
    return status == TY_OK ? state_gradients(stage, node, slot, is_first, dgates, error) : status;
}

const stage_kind cuda_lstm = {.floats = STAGE_BIT(LSTM_INPUT_BIAS) | STAGE_BIT(LSTM_STATE_BIAS),
                              .build = lstm_build,
                              .forward = lstm_forward,
                              .backward = lstm_backward};
