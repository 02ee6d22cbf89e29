/* Additive attention between its matrix products; see cuda_additive.c. All sums have a fixed order:
 * one warp or thread per sum. */
#include "kernel.cuh"

/* ---- The vector that weighs ---- */

/* One block. */
static __global__ void additive_vector(uint64_t hidden, const float *v, const float *gain, float *u)
{
    float squares = 0.0f, scale;

    for (uint64_t h = threadIdx.x; h < hidden; h += blockDim.x)
        squares += v[h] * v[h];
    scale = gain[0] / sqrtf(block_sum(squares));
    for (uint64_t h = threadIdx.x; h < hidden; h += blockDim.x)
        u[h] = scale * v[h];
}

void cuda_additive_vector(uint64_t hidden, const float *v, const float *gain, float *u,
                          cudaStream_t stream)
{
    TY_MOVES(float_bytes(hidden + 1), float_bytes(hidden));
    TY_LAUNCH(additive_vector, 1, BLOCK, 0, stream, hidden, v, gain, u);
}

/* With w = v / |v|: dg = w du, dv = g / |v| (du - w (w du)). One block. */
static __global__ void vector_gradients(uint64_t hidden, const float *v, const float *gain,
                                        const float *du, bool adds, float *dv, float *dgain)
{
    float squares = 0.0f, products = 0.0f, length, along;

    for (uint64_t h = threadIdx.x; h < hidden; h += blockDim.x) {
        squares += v[h] * v[h];
        products += v[h] * du[h];
    }
    length = sqrtf(block_sum(squares));
    along = block_sum(products) / length;
    for (uint64_t h = threadIdx.x; h < hidden; h += blockDim.x)
        put(&dv[h], gain[0] / length * (du[h] - v[h] / length * along), adds);
    if (threadIdx.x == 0)
        put(dgain, along, adds);
}

void cuda_additive_vector_gradients(uint64_t hidden, const float *v, const float *gain,
                                    const float *du, bool adds, float *dv, float *dgain,
                                    cudaStream_t stream)
{
    TY_MOVES(float_bytes(2 * hidden + 1 + (adds ? hidden + 1 : 0)), float_bytes(hidden + 1));
    TY_LAUNCH(vector_gradients, 1, BLOCK, 0, stream, hidden, v, gain, du, adds, dv, dgain);
}

/* ---- Forward ---- */

static __device__ __forceinline__ uint64_t warp_of_grid()
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

static unsigned blocks_of_warps(uint64_t warps)
{
    return (unsigned)((warps * WARP + BLOCK - 1) / BLOCK);
}

/* Row of the key in a pair of a query row and a key. */
static __device__ __forceinline__ uint64_t key_row(const cuda_additive &a, uint64_t row, uint64_t s)
{
    return row / a.length * a.keys + s;
}

/* One warp per pair. */
template <typename T>
static __global__ void pair_scores(cuda_additive a, const float *u, const T *q, const T *k,
                                   float *scores)
{
    const uint64_t pair = warp_of_grid(), row = pair / a.keys;
    float sum = 0.0f;

    if (row >= a.batch * a.length)
        return;
    q += row * a.hidden;
    k += key_row(a, row, pair % a.keys) * a.hidden;
    for (uint64_t h = threadIdx.x % WARP; h < a.hidden; h += WARP)
        sum += u[h] * tanhf(to_float(q[h]) + to_float(k[h]));
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        scores[pair] = sum;
}

/* One warp per row, in place. */
static __global__ void pair_softmax(uint64_t rows, uint64_t keys, float *scores)
{
    const uint64_t row = warp_of_grid(), lane = threadIdx.x % WARP;
    float most = -INFINITY, sum = 0.0f;

    if (row >= rows)
        return;
    scores += row * keys;
    for (uint64_t s = lane; s < keys; s += WARP)
        most = fmaxf(most, scores[s]);
    most = warp_maximum(most);
    for (uint64_t s = lane; s < keys; s += WARP)
        sum += expf(scores[s] - most);
    sum = warp_sum(sum);
    for (uint64_t s = lane; s < keys; s += WARP)
        scores[s] = expf(scores[s] - most) / sum;
}

template <typename T>
static __global__ void pair_context(cuda_additive a, const float *p, const T *memory, T *y)
{
    FOR_EACH (i, a.batch * a.length * a.features) {
        const uint64_t row = i / a.features;
        float sum = 0.0f;

        for (uint64_t s = 0; s < a.keys; s++)
            sum += p[row * a.keys + s] *
                   to_float(memory[key_row(a, row, s) * a.features + i % a.features]);
        y[i] = of_float<T>(sum);
    }
}

void cuda_additive_forward(cuda_type type, const cuda_additive *a, const float *u, const void *q,
                           const void *k, const void *memory, float *p, void *y,
                           cudaStream_t stream)
{
    const uint64_t rows = a->batch * a->length, pairs = rows * a->keys;
    [[maybe_unused]] const uint64_t key_rows = a->batch * a->keys;

    TY_MOVES(bytes_of(type, (rows + key_rows) * a->hidden) + float_bytes(a->hidden),
             float_bytes(pairs));
    TY_DISPATCH(type, TY_LAUNCH(pair_scores<T>, blocks_of_warps(pairs), BLOCK, 0, stream, *a, u,
                                (const T *)q, (const T *)k, p))
    TY_MOVES(float_bytes(pairs), float_bytes(pairs));
    TY_LAUNCH(pair_softmax, blocks_of_warps(rows), BLOCK, 0, stream, rows, a->keys, p);
    TY_MOVES(float_bytes(pairs) + bytes_of(type, key_rows * a->features),
             bytes_of(type, rows * a->features));
    TY_DISPATCH(type, TY_LAUNCH(pair_context<T>, grid_for(rows * a->features), BLOCK, 0, stream, *a,
                                p, (const T *)memory, (T *)y))
}

/* ---- Backward ---- */

/* Gradient of the loss with respect to a probability; one warp per pair. */
template <typename T>
static __global__ void pair_gains(cuda_additive a, const T *dy, const T *memory, float *dscores)
{
    const uint64_t pair = warp_of_grid(), row = pair / a.keys;
    float sum = 0.0f;

    if (row >= a.batch * a.length)
        return;
    dy += row * a.features;
    memory += key_row(a, row, pair % a.keys) * a.features;
    for (uint64_t f = threadIdx.x % WARP; f < a.features; f += WARP)
        sum += to_float(dy[f]) * to_float(memory[f]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        dscores[pair] = sum;
}

/* Gradient through the softmax, in place; one warp per row. */
static __global__ void pair_softmax_gradient(uint64_t rows, uint64_t keys, const float *p,
                                             float *dscores)
{
    const uint64_t row = warp_of_grid(), lane = threadIdx.x % WARP;
    float mean = 0.0f;

    if (row >= rows)
        return;
    p += row * keys;
    dscores += row * keys;
    for (uint64_t s = lane; s < keys; s += WARP)
        mean += p[s] * dscores[s];
    mean = warp_sum(mean);
    for (uint64_t s = lane; s < keys; s += WARP)
        dscores[s] = p[s] * (dscores[s] - mean);
}

/* Also each row's contribution to the gradient of the vector. */
template <typename T>
static __global__ void query_gradients(cuda_additive a, const float *u, const T *q, const T *k,
                                       const float *dscores, T *dq, float *du_of_row)
{
    FOR_EACH (i, a.batch * a.length * a.hidden) {
        const uint64_t row = i / a.hidden, h = i % a.hidden;
        const float own = to_float(q[i]);
        float inner = 0.0f, weighed = 0.0f;

        for (uint64_t s = 0; s < a.keys; s++) {
            const float t = tanhf(own + to_float(k[key_row(a, row, s) * a.hidden + h]));
            const float d = dscores[row * a.keys + s];
            inner += d * (1.0f - t * t);
            weighed += d * t;
        }
        dq[i] = of_float<T>(inner * u[h]);
        du_of_row[i] = weighed;
    }
}

template <typename T>
static __global__ void key_gradients(cuda_additive a, const float *u, const T *q, const T *k,
                                     const float *dscores, T *dk)
{
    FOR_EACH (i, a.batch * a.keys * a.hidden) {
        const uint64_t h = i % a.hidden, sample = i / a.hidden / a.keys, s = i / a.hidden % a.keys;
        const float own = to_float(k[i]);
        float inner = 0.0f;

        for (uint64_t row = sample * a.length; row < (sample + 1) * a.length; row++) {
            const float t = tanhf(to_float(q[row * a.hidden + h]) + own);
            inner += dscores[row * a.keys + s] * (1.0f - t * t);
        }
        dk[i] = of_float<T>(inner * u[h]);
    }
}

void cuda_additive_backward(cuda_type type, const cuda_additive *a, const float *u, const void *q,
                            const void *k, const void *memory, const float *p, const void *dy,
                            float *dscores, void *dq, void *dk, float *du_of_row,
                            cudaStream_t stream)
{
    const uint64_t rows = a->batch * a->length, key_rows = a->batch * a->keys;
    const uint64_t pairs = rows * a->keys;
    const uint64_t read =
        bytes_of(type, (rows + key_rows) * a->hidden) + float_bytes(pairs + a->hidden);

    TY_MOVES(bytes_of(type, (rows + key_rows) * a->features), float_bytes(pairs));
    TY_DISPATCH(type, TY_LAUNCH(pair_gains<T>, blocks_of_warps(pairs), BLOCK, 0, stream, *a,
                                (const T *)dy, (const T *)memory, dscores))
    TY_MOVES(float_bytes(2 * pairs), float_bytes(pairs));
    TY_LAUNCH(pair_softmax_gradient, blocks_of_warps(rows), BLOCK, 0, stream, rows, a->keys, p,
              dscores);
    TY_MOVES(read, bytes_of(type, rows * a->hidden) + float_bytes(rows * a->hidden));
    TY_DISPATCH(type, TY_LAUNCH(query_gradients<T>, grid_for(rows * a->hidden), BLOCK, 0, stream,
                                *a, u, (const T *)q, (const T *)k, dscores, (T *)dq, du_of_row))
    TY_MOVES(read, bytes_of(type, key_rows * a->hidden));
    TY_DISPATCH(type, TY_LAUNCH(key_gradients<T>, grid_for(key_rows * a->hidden), BLOCK, 0, stream,
                                *a, u, (const T *)q, (const T *)k, dscores, (T *)dk))
}

template <typename T>
static __global__ void memory_gradients(cuda_additive a, const float *p, const T *dy, bool adds,
                                        T *dmemory)
{
    FOR_EACH (i, a.batch * a.keys * a.features) {
        const uint64_t f = i % a.features, s = i / a.features % a.keys;
        const uint64_t sample = i / a.features / a.keys;
        float sum = 0.0f;

        for (uint64_t row = sample * a.length; row < (sample + 1) * a.length; row++)
            sum += p[row * a.keys + s] * to_float(dy[row * a.features + f]);
        put(&dmemory[i], sum, adds);
    }
}

void cuda_additive_memory(cuda_type type, const cuda_additive *a, const float *p, const void *dy,
                          bool adds, void *dmemory, cudaStream_t stream)
{
    const uint64_t count = a->batch * a->keys * a->features;
    [[maybe_unused]] const uint64_t rows = a->batch * a->length;

    TY_MOVES(float_bytes(rows * a->keys) + bytes_of(type, rows * a->features + (adds ? count : 0)),
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(memory_gradients<T>, grid_for(count), BLOCK, 0, stream, *a, p,
                                (const T *)dy, adds, (T *)dmemory))
}
