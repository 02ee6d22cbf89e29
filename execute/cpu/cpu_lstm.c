/*
 * Long short-term memory over a sequence, from a state of zeros. Hochreiter and Schmidhuber, 1997,
 * with forget gates (Gers, Schmidhuber and Cummins, 2000), in the order of cuDNN and PyTorch: input
 * gate i, forget gate f, candidate g, output gate o.
 *     c_t = f c_(t-1) + i g,   h_t = o tanh(c_t)
 * One product covers the inputs of all steps. Products with the state go step by step, from the
 * first to the last or, reversed, from the last to the first.
 */
#include "cpu_layer.h"
#include "cpu_math.h"
#include "stage_shapes.h"

/* Stash: gates [rows][gates] and cells [rows][hidden]; if backward has two parts, also the gradient
 * of the gates' inputs, which else is scratch. Scratch: gradients of the state and of the cell that
 * go back to the step before. */
static ty_status lstm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);

    (void)error;
    node->stash_bytes = l.rows * (l.gates + l.hidden) * sizeof(float);
    node->scratch_bytes = (2 * l.batch * l.hidden + l.rows * l.gates) * sizeof(float);
    if (stage->options.splits_backward)
        node->stash_bytes += l.rows * l.gates * sizeof(float);
    return TY_OK;
}

/* One sample at one step; `before` is the cell of the step before, NULL at the first. */
CPU_CLONES static void cell_forward(uint64_t n, const float *bias, const float *before,
                                    float *gates, float *cell, float *state)
{
    if (bias != NULL)
        for (uint64_t k = 0; k < LSTM_GATES * n; k++)
            gates[k] += bias[k];
    for (uint64_t k = 0; k < n; k++) {
        float i = cpu_sigmoid(gates[k]), f = cpu_sigmoid(gates[n + k]);
        float g = cpu_tanh(gates[2 * n + k]), o = cpu_sigmoid(gates[3 * n + k]);
        gates[k] = i;
        gates[n + k] = f;
        gates[2 * n + k] = g;
        gates[3 * n + k] = o;
        cell[k] = i * g + (before != NULL ? f * before[k] : 0.0f);
        state[k] = o * cpu_tanh(cell[k]);
    }
}

/* dstate, dcell: gradients from the step after; dcell becomes the one for the step before. */
CPU_CLONES static void cell_backward(uint64_t n, const float *gates, const float *cell,
                                     const float *before, const float *dy, const float *dstate,
                                     float *dcell, float *dgates)
{
    for (uint64_t k = 0; k < n; k++) {
        float i = gates[k], f = gates[n + k], g = gates[2 * n + k], o = gates[3 * n + k];
        float t = cpu_tanh(cell[k]), dh = dy[k] + dstate[k];
        float dc = dcell[k] + dh * o * (1.0f - t * t);
        dgates[k] = dc * g * i * (1.0f - i);
        dgates[n + k] = before != NULL ? dc * before[k] * f * (1.0f - f) : 0.0f;
        dgates[2 * n + k] = dc * i * (1.0f - g * g);
        dgates[3 * n + k] = dh * t * o * (1.0f - o);
        dcell[k] = dc * f;
    }
}

static ty_status lstm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    float *gates = node->stash[slot], *cells = gates + l.rows * l.gates;
    float *y = cpu_out(stage, node, slot);
    const float *bias = l.has_bias ? cpu_parameters(stage, node, LSTM_STATE_BIAS) : NULL;

    (void)error;
    cpu_affine(l.rows, l.in, l.gates, cpu_in(stage, node, 0, slot),
               cpu_parameters(stage, node, LSTM_INPUT),
               l.has_bias ? cpu_parameters(stage, node, LSTM_INPUT_BIAS) : NULL, gates);
    for (uint64_t n = 0; n < l.length; n++) {
        const uint64_t t = stage_lstm_step(&l, n), before = n > 0 ? stage_lstm_step(&l, n - 1) : t;
        if (n > 0)
            cpu_gemm(false, true, l.batch, l.gates, l.hidden, 1.0f, y + before * l.hidden,
                     l.length * l.hidden, cpu_parameters(stage, node, LSTM_STATE), l.hidden, 1.0f,
                     gates + t * l.gates, l.length * l.gates);
        for (uint64_t b = 0; b < l.batch; b++) {
            float *own = cells + b * l.length * l.hidden;
            uint64_t row = b * l.length + t;
            cell_forward(l.hidden, bias, n > 0 ? own + before * l.hidden : NULL,
                         gates + row * l.gates, own + t * l.hidden, y + row * l.hidden);
        }
    }
    return TY_OK;
}

/* Gradients of the gates' inputs, back through all steps. */
static void gates_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           float *dgates)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    const float *gates = node->stash[slot], *cells = gates + l.rows * l.gates;
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *dstate = stage->scratch, *dcell = dstate + l.batch * l.hidden;

    memset(dstate, 0, 2 * l.batch * l.hidden * sizeof *dstate);
    for (uint64_t n = l.length; n-- > 0;) {
        const uint64_t t = stage_lstm_step(&l, n), before = n > 0 ? stage_lstm_step(&l, n - 1) : t;
        for (uint64_t b = 0; b < l.batch; b++) {
            uint64_t row = b * l.length + t;
            const float *own = cells + b * l.length * l.hidden;
            cell_backward(l.hidden, gates + row * l.gates, own + t * l.hidden,
                          n > 0 ? own + before * l.hidden : NULL, dy + row * l.hidden,
                          dstate + b * l.hidden, dcell + b * l.hidden, dgates + row * l.gates);
        }
        cpu_gemm(false, false, l.batch, l.hidden, l.gates, 1.0f, dgates + t * l.gates,
                 l.length * l.gates, cpu_parameters(stage, node, LSTM_STATE), l.hidden, 0.0f,
                 dstate, l.hidden);
    }
}

/* The state of a step is an input of the next step's gates. */
static void state_gradients(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            bool is_first, const float *dgates)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    const float *y = cpu_out(stage, node, slot);
    float *dw = cpu_parameter_gradient(stage, node, LSTM_STATE);
    const uint64_t state = l.is_reversed ? 1 : 0, next = 1 - state; /* first rows of the two */
    const bool adds = stage_adds(node, LSTM_STATE, is_first);

    if (dw == NULL)
        return;
    if (l.length == 1 && !adds)
        memset(dw, 0, l.gates * l.hidden * sizeof *dw);
    for (uint64_t b = 0; b < l.batch && l.length > 1; b++)
        cpu_gemm(true, false, l.gates, l.hidden, l.length - 1, 1.0f,
                 dgates + (b * l.length + next) * l.gates, l.gates,
                 y + (b * l.length + state) * l.hidden, l.hidden, adds || b > 0 ? 1.0f : 0.0f, dw,
                 l.hidden);
    if (l.has_bias)
        cpu_column_sums(l.rows, l.gates, dgates, stage_adds(node, LSTM_STATE_BIAS, is_first),
                        cpu_parameter_gradient(stage, node, LSTM_STATE_BIAS));
}

static ty_status lstm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const stage_lstm l = stage_lstm_of(stage, node);
    float *dgates = stage->options.splits_backward
                        ? (float *)node->stash[slot] + l.rows * (l.gates + l.hidden)
                        : (float *)stage->scratch + 2 * l.batch * l.hidden;
    const cpu_affine_gradient in = {
        .weight = cpu_parameter_gradient(stage, node, LSTM_INPUT),
        .bias = l.has_bias ? cpu_parameter_gradient(stage, node, LSTM_INPUT_BIAS) : NULL,
        .x = cpu_in_gradient(stage, node, 0, slot),
        .adds_weight = stage_adds(node, LSTM_INPUT, is_first),
        .adds_bias = stage_adds(node, LSTM_INPUT_BIAS, is_first),
        .adds_x = node->adds[0],
    };

    (void)error;
    if (stage->part != STAGE_WEIGHTS)
        gates_backward(stage, node, slot, dgates);
    state_gradients(stage, node, slot, is_first, dgates);
    cpu_affine_backward(l.rows, l.in, l.gates, cpu_in(stage, node, 0, slot),
                        cpu_parameters(stage, node, LSTM_INPUT), dgates, &in);
    return TY_OK;
}

const stage_kind cpu_lstm = {
    .reads_output = true,
    .build = lstm_build,
    .forward = lstm_forward,
    .backward = lstm_backward,
};
