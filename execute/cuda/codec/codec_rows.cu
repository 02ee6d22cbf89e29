/* Rows of an embedding's gradient that are not zero, with their indices, as in codec_rows.c. Prefix
 * sums convert flags of rows to places. */
#include "codec_kernel.cuh"

/* [rows] flags, overwritten by places, then the number of places. */
uint64_t cuda_rows_workspace(uint64_t rows)
{
    return (rows + 1) * sizeof(uint32_t);
}

/* One warp per row: flags rows that are not all zero. */
static __global__ void rows_mark(cuda_row_table shape, const float *matrix, uint32_t *flags)
{
    uint64_t row = warp_index();
    uint32_t bits = 0;

    if (row >= shape.rows)
        return;
    for (uint64_t c = threadIdx.x % WARP; c < shape.columns; c += WARP)
        bits |= codec_magnitude(matrix[row * shape.columns + c]);
    bits = __ballot_sync(0xffffffffu, bits != 0);
    if (threadIdx.x % WARP == 0)
        flags[row] = bits != 0;
}

/* One block, as in tiles_scan of codec_select.cu: the flag of a row becomes its place, or
 * CODEC_NO_INDEX. Surplus places have no index. */
static __global__ void rows_place(cuda_row_table shape, uint32_t *flags, uint32_t *indices)
{
    __shared__ uint32_t runs[BLOCK];
    uint64_t first = shape.rows * threadIdx.x / BLOCK;
    uint64_t end = shape.rows * (threadIdx.x + 1) / BLOCK;
    uint32_t place = 0, all = 0;

    for (uint64_t row = first; row < end; row++)
        place += flags[row];
    runs[threadIdx.x] = place;
    __syncthreads();
    place = 0;
    for (unsigned r = 0; r < BLOCK; r++) {
        place += r < threadIdx.x ? runs[r] : 0;
        all += runs[r];
    }
    for (uint64_t row = first; row < end; row++)
        flags[row] = flags[row] != 0 ? place++ : CODEC_NO_INDEX;
    for (uint64_t i = all + threadIdx.x; i < shape.room; i += BLOCK)
        indices[i] = CODEC_NO_INDEX;
    if (threadIdx.x == 0)
        flags[shape.rows] = all;
}

/* One warp per row. More rows than `room` can only be a bug, and must show. */
static __global__ void rows_pack(cuda_row_table shape, const float *matrix, const uint32_t *places,
                                 uint32_t *indices, float *values)
{
    uint64_t row = warp_index();
    unsigned lane = threadIdx.x % WARP;

    if (row >= shape.rows || places[row] >= shape.room)
        return;
    for (uint64_t c = lane; c < shape.columns; c += WARP) {
        bool is_spoilt = places[row] == 0 && c == 0 && places[shape.rows] > shape.room;
        values[places[row] * shape.columns + c] = is_spoilt ? NAN : matrix[row * shape.columns + c];
    }
    if (lane == 0)
        indices[places[row]] = (uint32_t)row;
}

void cuda_rows_encode(const cuda_row_table *shape, const float *gradients, void *encoded,
                      void *workspace, cudaStream_t stream)
{
    uint32_t *indices = (uint32_t *)encoded, *places = (uint32_t *)workspace;
    float *values = (float *)(indices + shape->room);

    TY_LAUNCH(rows_mark, warps_grid(shape->rows), BLOCK, 0, stream, *shape, gradients, places);
    TY_LAUNCH(rows_place, 1, BLOCK, 0, stream, *shape, places, indices);
    TY_LAUNCH(rows_pack, warps_grid(shape->rows), BLOCK, 0, stream, *shape, gradients, places,
              indices, values);
    cudaMemcpyAsync(values + shape->room * shape->columns, gradients + shape->rows * shape->columns,
                    shape->dense_elements * sizeof *values, cudaMemcpyDeviceToDevice, stream);
}

/* One warp per place; the indices of one member differ, and invalid ones are ignored. */
static __global__ void rows_add(cuda_row_table shape, const uint32_t *indices, const float *values,
                                float *gradients)
{
    uint64_t place = warp_index();

    if (place >= shape.room || indices[place] >= shape.rows)
        return;
    for (uint64_t c = threadIdx.x % WARP; c < shape.columns; c += WARP)
        gradients[indices[place] * shape.columns + c] += values[place * shape.columns + c];
}

void cuda_rows_decode(const cuda_row_table *shape, uint32_t members, const void *encoded,
                      float *gradients, cudaStream_t stream)
{
    uint64_t matrix = shape->rows * shape->columns;
    uint64_t words = shape->room * (1 + shape->columns) + shape->dense_elements;

    cudaMemsetAsync(gradients, 0, (matrix + shape->dense_elements) * sizeof *gradients, stream);
    for (uint32_t m = 0; m < members; m++) {
        const uint32_t *indices = (const uint32_t *)encoded + m * words;
        const float *values = (const float *)(indices + shape->room);
        TY_LAUNCH(rows_add, warps_grid(shape->room), BLOCK, 0, stream, *shape, indices, values,
                  gradients);
        if (shape->dense_elements > 0)
            cuda_accumulate_float(CUDA_TYPE_FLOAT, shape->dense_elements,
                                  values + shape->room * shape->columns, true, gradients + matrix,
                                  stream);
    }
}
