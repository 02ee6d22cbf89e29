/* Converts between a tensor in sample order and the ranks' shards of it; adds sharded biases. */
#include "kernel.cuh"

/* Index in [B][T][D] of element i of [rank][B][T / ranks][D]. */
static __device__ __forceinline__ uint64_t place_of(stage_pieces p, uint64_t i)
{
    uint64_t piece = i / p.run, r = piece % p.runs, b = piece / p.runs % p.batch;
    uint64_t rank = piece / p.runs / p.batch;
    uint64_t part = r == 0 ? rank : p.ranks * p.runs - 1 - rank; /* as in ty_context_run_start */

    return (b * p.ranks * p.runs + part) * p.run + i % p.run;
}

static uint64_t count_of(const stage_pieces *p)
{
    return p->ranks * p->batch * p->runs * p->run;
}

template <typename T> static __global__ void to_pieces(stage_pieces p, const T *whole, T *pieces)
{
    FOR_EACH (i, p.ranks * p.batch * p.runs * p.run)
        pieces[i] = whole[place_of(p, i)];
}

void cuda_to_pieces(cuda_type type, const stage_pieces *p, const void *whole, void *pieces,
                    cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, count_of(p)), bytes_of(type, count_of(p)));
    TY_DISPATCH(type, TY_LAUNCH(to_pieces<T>, grid_for(count_of(p)), BLOCK, 0, stream, *p,
                                (const T *)whole, (T *)pieces))
}

template <typename T> static __global__ void from_pieces(stage_pieces p, const T *pieces, T *whole)
{
    FOR_EACH (i, p.ranks * p.batch * p.runs * p.run)
        whole[place_of(p, i)] = pieces[i];
}

void cuda_from_pieces(cuda_type type, const stage_pieces *p, const void *pieces, void *whole,
                      cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, count_of(p)), bytes_of(type, count_of(p)));
    TY_DISPATCH(type, TY_LAUNCH(from_pieces<T>, grid_for(count_of(p)), BLOCK, 0, stream, *p,
                                (const T *)pieces, (T *)whole))
}

template <typename T>
static __global__ void add_part_bias(uint64_t rows, uint64_t columns, uint64_t first,
                                     uint64_t count, const float *bias, T *y)
{
    FOR_EACH (i, rows * count) {
        uint64_t c = i % count;
        put(&y[i / count * columns + first + c], bias[c], true);
    }
}

void cuda_add_part_bias(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                        uint64_t count, const float *bias, void *y, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * count) + float_bytes(count), bytes_of(type, rows * count));
    TY_DISPATCH(type, TY_LAUNCH(add_part_bias<T>, grid_for(rows * count), BLOCK, 0, stream, rows,
                                columns, first, count, bias, (T *)y))
}
