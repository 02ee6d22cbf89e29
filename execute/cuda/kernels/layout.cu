/* Transposes matrices tile by tile: images between planes, [B,C,H,W], and channels last, [B,H,W,C];
 * filters between storage, [K,C,R,S], and cuDNN's layout for channels-last images, [K,R,S,C]. */
#include "kernel.cuh"

enum { TILE_SIDE = 32, TILE_ELEMENTS = TILE_SIDE * TILE_SIDE };

/* Tiles of matrices: squares, or, if one side is short, tiles with the same number of elements. */
typedef struct tiling {
    uint64_t count;        /* tiles of all matrices */
    uint64_t down, across; /* tiles of one matrix */
    unsigned rows, columns;
} tiling;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static tiling tiling_of(uint64_t matrices, uint64_t rows, uint64_t columns)
{
    const uint64_t short_rows = smaller(rows, TILE_SIDE);
    tiling t;

    t.columns = (unsigned)smaller(columns, TILE_ELEMENTS / short_rows);
    if (rows > TILE_SIDE)
        t.columns = (unsigned)smaller(columns, TILE_SIDE);
    t.rows = (unsigned)smaller(rows, TILE_ELEMENTS / t.columns);
    t.down = (rows + t.rows - 1) / t.rows;
    t.across = (columns + t.columns - 1) / t.columns;
    t.count = matrices * t.down * t.across;
    return t;
}

/* Rows of a tile are an odd number of floats apart, which avoids bank conflicts when reading
 * columns. */
template <typename A, typename B>
static __global__ void transpose(tiling t, uint64_t rows, uint64_t columns, const A *from,
                                 bool adds, B *to)
{
    __shared__ float tile[2 * TILE_ELEMENTS];

    for (uint64_t n = blockIdx.x; n < t.count; n += gridDim.x) {
        const uint64_t matrix = n / (t.down * t.across), place = n % (t.down * t.across);
        const uint64_t row = place / t.across * t.rows, column = place % t.across * t.columns;
        const unsigned height = rows - row < t.rows ? (unsigned)(rows - row) : t.rows;
        const unsigned width =
            columns - column < t.columns ? (unsigned)(columns - column) : t.columns;
        const unsigned stride = width | 1;
        const A *corner = from + (matrix * rows + row) * columns + column;
        B *turned = to + (matrix * columns + column) * rows + row;

        for (unsigned i = threadIdx.x; i < height * width; i += blockDim.x)
            tile[i / width * stride + i % width] =
                to_float(corner[i / width * columns + i % width]);
        __syncthreads();
        for (unsigned i = threadIdx.x; i < height * width; i += blockDim.x)
            put(&turned[i / height * rows + i % height], tile[i % height * stride + i / height],
                adds);
        __syncthreads(); /* before the next tile */
    }
}

template <typename A>
static void transpose_from(const tiling *t, uint64_t rows, uint64_t columns, const void *from,
                           cuda_type to_type, bool adds, void *to, cudaStream_t stream)
{
    const unsigned blocks = t->count < MOST_BLOCKS ? (unsigned)t->count : MOST_BLOCKS;

    TY_DISPATCH(to_type, TY_LAUNCH((transpose<A, T>), blocks, BLOCK, 0, stream, *t, rows, columns,
                                   (const A *)from, adds, (T *)to))
}

void cuda_transpose(cuda_type from_type, uint64_t matrices, uint64_t rows, uint64_t columns,
                    const void *from, cuda_type to_type, bool adds, void *to, cudaStream_t stream)
{
    const tiling t = tiling_of(matrices, rows, columns);
    [[maybe_unused]] const uint64_t count = matrices * rows * columns;

    TY_MOVES(bytes_of(from_type, count) + (adds ? bytes_of(to_type, count) : 0),
             bytes_of(to_type, count));
    TY_DISPATCH(from_type, transpose_from<T>(&t, rows, columns, from, to_type, adds, to, stream))
}

void cuda_filter_permute(cuda_type type, uint64_t outputs, uint64_t inputs, uint64_t taps,
                         const void *weights, void *to, cudaStream_t stream)
{
    cuda_transpose(type, outputs, inputs, taps, weights, type, false, to, stream);
}

void cuda_filter_gradient(cuda_type type, uint64_t outputs, uint64_t inputs, uint64_t taps,
                          const void *from, bool adds, float *gradients, cudaStream_t stream)
{
    cuda_transpose(type, outputs, taps, inputs, from, CUDA_TYPE_FLOAT, adds, gradients, stream);
}
