/* One step of a long short-term memory for all samples. Formulas and their sources: cpu_lstm.c. */
#include "kernel.cuh"

#include "activation.h"

/* Offsets of element i = [sample][hidden] at a step, at the step before, if any, and of its
 * gates. */
typedef struct cell_place {
    uint64_t state, before, gates;
} cell_place;

static __device__ __forceinline__ cell_place place_of(cuda_cell c, uint64_t i)
{
    uint64_t step = c.is_reversed ? c.length - 1 - c.step : c.step, k = i % c.hidden;
    uint64_t row = i / c.hidden * c.length + step, before = c.is_reversed ? row + 1 : row - 1;
    cell_place at = {row * c.hidden + k, before * c.hidden + k, row * 4 * c.hidden + k};

    return at;
}

template <typename T>
static __global__ void cell_forward(cuda_cell c, const float *input_bias, const float *state_bias,
                                    float *gates, float *cells, T *y)
{
    FOR_EACH (i, c.batch * c.hidden) {
        cell_place at = place_of(c, i);
        uint64_t n = c.hidden, k = i % n;
        float sums[4], cell;
        for (uint64_t gate = 0; gate < 4; gate++) {
            sums[gate] = gates[at.gates + gate * n];
            if (input_bias != NULL)
                sums[gate] += input_bias[gate * n + k] + state_bias[gate * n + k];
        }
        sums[0] = sigmoid_of(sums[0]);
        sums[1] = sigmoid_of(sums[1]);
        sums[2] = tanhf(sums[2]);
        sums[3] = sigmoid_of(sums[3]);
        for (uint64_t gate = 0; gate < 4; gate++)
            gates[at.gates + gate * n] = sums[gate];
        cell = sums[0] * sums[2];
        if (c.step > 0)
            cell += sums[1] * cells[at.before];
        cells[at.state] = cell;
        y[at.state] = of_float<T>(sums[3] * tanhf(cell));
    }
}

void cuda_cell_forward(cuda_type type, const cuda_cell *c, const float *input_bias,
                       const float *state_bias, float *gates, float *cells, void *y,
                       cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(cell_forward<T>, grid_for(c->batch * c->hidden), BLOCK, 0, stream,
                                *c, input_bias, state_bias, gates, cells, (T *)y))
}

template <typename T>
static __global__ void cell_backward(cuda_cell c, const float *gates, const float *cells,
                                     const T *dy, const float *dstate, float *dcell, T *dgates)
{
    bool is_last = c.step + 1 == c.length;

    FOR_EACH (s, c.batch * c.hidden) {
        cell_place at = place_of(c, s);
        uint64_t n = c.hidden;
        float i = gates[at.gates], f = gates[at.gates + n], g = gates[at.gates + 2 * n];
        float o = gates[at.gates + 3 * n], t = tanhf(cells[at.state]);
        float before = c.step > 0 ? cells[at.before] : 0.0f;
        float dh = to_float(dy[at.state]) + (is_last ? 0.0f : dstate[s]);
        float dc = (is_last ? 0.0f : dcell[s]) + dh * o * (1.0f - t * t);
        dgates[at.gates] = of_float<T>(dc * g * i * (1.0f - i));
        dgates[at.gates + n] = of_float<T>(dc * before * f * (1.0f - f));
        dgates[at.gates + 2 * n] = of_float<T>(dc * i * (1.0f - g * g));
        dgates[at.gates + 3 * n] = of_float<T>(dh * t * o * (1.0f - o));
        dcell[s] = dc * f;
    }
}

void cuda_cell_backward(cuda_type type, const cuda_cell *c, const float *gates, const float *cells,
                        const void *dy, const float *dstate, float *dcell, void *dgates,
                        cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(cell_backward<T>, grid_for(c->batch * c->hidden), BLOCK, 0, stream,
                                *c, gates, cells, (const T *)dy, dstate, dcell, (T *)dgates))
}
