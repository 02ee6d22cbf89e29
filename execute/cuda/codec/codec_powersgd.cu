/*
 * Matrices as the product of two factors, as in codec_powersgd.c. Processes all matrices of a
 * bucket at once: a block's y is the matrix. Sums have a fixed order, so members with the same
 * factors get the same bits. The order differs from the CPU's.
 */
#include "codec_kernel.cuh"

enum { ROW_WARPS = BLOCK / WARP };
enum { RANKS = 4 }; /* sums per thread; reduces how often a product reads the matrix */

/* ---- Elements ---- */

static __global__ void errors_add(cuda_factored_batch batch)
{
    const cuda_factored a = batch.of[blockIdx.y];

    FOR_EACH (i, a.rows * a.columns)
        a.m[i] += a.gradients[i];
}

static __global__ void reconstruct(cuda_factored_batch batch, float share)
{
    const cuda_factored a = batch.of[blockIdx.y];

    FOR_EACH (i, a.rows * a.columns) {
        const uint64_t row = i / a.columns, column = i % a.columns;
        float sum = 0.0f;
        for (uint64_t k = 0; k < batch.rank; k++)
            sum += a.p[k * a.rows + row] * a.q[k * a.columns + column];
        a.gradients[i] = sum;
        a.m[i] -= share * sum;
    }
}

/* ---- Orthonormalising: one block a matrix; a thread has the same elements of all vectors ---- */

static __device__ float dot(uint64_t count, const float *a, const float *b)
{
    float sum = 0.0f;

    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x)
        sum += a[i] * b[i];
    return block_sum(sum);
}

/* Subtracts from vector k its projections on the earlier vectors, and normalizes it; returns
 * whether nothing was left. Runs twice, since once is not enough in floats. */
static __device__ bool project(uint64_t count, uint64_t k, float *vectors)
{
    float *v = vectors + k * count;
    const float before = sqrtf(dot(count, v, v));
    float scale;

    for (int pass = 0; pass < 2; pass++)
        for (uint64_t j = 0; j < k; j++) {
            const float *u = vectors + j * count, along = dot(count, u, v);
            for (uint64_t i = threadIdx.x; i < count; i += blockDim.x)
                v[i] -= along * u[i];
        }
    scale = codec_unit_scale(before, sqrtf(dot(count, v, v)));
    for (uint64_t i = threadIdx.x; i < count; i += blockDim.x)
        v[i] = scale > 0.0f ? v[i] * scale : 0.0f;
    return codec_is_lost(before, scale);
}

/* Orthonormalizes P or Q. Dependent vectors of Q are drawn again. */
static __global__ void orthonormalise(cuda_factored_batch batch, bool is_q)
{
    const cuda_factored a = batch.of[blockIdx.x];
    const uint64_t count = is_q ? a.columns : a.rows;
    float *vectors = is_q ? a.q : a.p;

    for (uint64_t k = 0; k < batch.rank; k++) {
        if (!project(count, k, vectors) || !is_q)
            continue;
        for (uint64_t i = threadIdx.x; i < count; i += blockDim.x)
            vectors[k * count + i] = codec_drawn(codec_hash(a.key + (uint32_t)k), i);
        (void)project(count, k, vectors);
    }
}

/* ---- Products ---- */

/* P = M Q: one warp per row. */
static __global__ void multiply(cuda_factored_batch batch)
{
    const cuda_factored a = batch.of[blockIdx.y];
    const uint64_t warps = (uint64_t)gridDim.x * ROW_WARPS;
    const unsigned lane = threadIdx.x % WARP;

    for (uint64_t row = warp_index(); row < a.rows; row += warps)
        for (uint64_t first = 0; first < batch.rank; first += RANKS) {
            float sums[RANKS] = {0.0f};
            for (uint64_t c = lane; c < a.columns; c += WARP) {
                const float m = a.m[row * a.columns + c];
                for (uint64_t k = 0; k < RANKS && first + k < batch.rank; k++)
                    sums[k] += m * a.q[(first + k) * a.columns + c];
            }
            for (uint64_t k = 0; k < RANKS && first + k < batch.rank; k++) {
                const float sum = warp_sum(sums[k]);
                if (lane == 0)
                    a.p[(first + k) * a.rows + row] = sum;
            }
        }
}

/* Q = M^T P: a block has 32 columns, and each of its W warps every W-th row of them. */
static __global__ void multiply_transposed(cuda_factored_batch batch)
{
    __shared__ float parts[ROW_WARPS][RANKS][WARP];
    const cuda_factored a = batch.of[blockIdx.y];
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    for (uint64_t at = (uint64_t)blockIdx.x * WARP; at < a.columns;
         at += (uint64_t)gridDim.x * WARP)
        for (uint64_t first = 0; first < batch.rank; first += RANKS) {
            const uint64_t c = at + lane;
            float sums[RANKS] = {0.0f};
            for (uint64_t row = warp; row < a.rows && c < a.columns; row += ROW_WARPS) {
                const float m = a.m[row * a.columns + c];
                for (uint64_t k = 0; k < RANKS && first + k < batch.rank; k++)
                    sums[k] += m * a.p[(first + k) * a.rows + row];
            }
            __syncthreads(); /* the previous sums have been read */
            for (unsigned k = 0; k < RANKS; k++)
                parts[warp][k][lane] = sums[k];
            __syncthreads();
            if (warp >= RANKS || first + warp >= batch.rank || c >= a.columns)
                continue;
            sums[0] = 0.0f;
            for (unsigned w = 0; w < ROW_WARPS; w++)
                sums[0] += parts[w][warp][lane];
            a.q[(first + warp) * a.columns + c] = sums[0];
        }
}

/* ---- Launches ---- */

static uint64_t largest_of(const cuda_factored_batch *batch,
                           uint64_t (*size)(const cuda_factored *))
{
    uint64_t largest = 1;

    for (uint32_t i = 0; i < batch->count; i++)
        largest = size(&batch->of[i]) > largest ? size(&batch->of[i]) : largest;
    return largest;
}

static uint64_t elements_of(const cuda_factored *a)
{
    return a->rows * a->columns;
}

static uint64_t row_threads(const cuda_factored *a)
{
    return a->rows * WARP;
}

static uint64_t column_threads(const cuda_factored *a)
{
    return (a->columns + WARP - 1) / WARP * BLOCK;
}

/* Per matrix, blocks for the matrix that needs the most threads. */
static dim3 batch_grid(const cuda_factored_batch *batch, uint64_t (*threads)(const cuda_factored *))
{
    return dim3(grid_for(largest_of(batch, threads)), batch->count);
}

void cuda_first_factor(const cuda_factored_batch *batch, cudaStream_t stream)
{
    TY_LAUNCH_GRID(errors_add, batch_grid(batch, elements_of), BLOCK, 0, stream, *batch);
    TY_LAUNCH(orthonormalise, batch->count, BLOCK, 0, stream, *batch, true);
    TY_LAUNCH_GRID(multiply, batch_grid(batch, row_threads), BLOCK, 0, stream, *batch);
}

void cuda_second_factor(const cuda_factored_batch *batch, cudaStream_t stream)
{
    TY_LAUNCH(orthonormalise, batch->count, BLOCK, 0, stream, *batch, false);
    TY_LAUNCH_GRID(multiply_transposed, batch_grid(batch, column_threads), BLOCK, 0, stream,
                   *batch);
}

void cuda_reconstruct(const cuda_factored_batch *batch, uint32_t members, cudaStream_t stream)
{
    TY_LAUNCH_GRID(reconstruct, batch_grid(batch, elements_of), BLOCK, 0, stream, *batch,
                   1.0f / (float)members);
}
