/* Rotary positions of queries and keys; see cpu_rotary.c. */
#include "kernel.cuh"

/* One thread rotates a pair of numbers in every head of a row. */
template <typename T> static __global__ void rotate(cuda_rotary r, T *rows)
{
    const uint64_t half = r.head_size / 2;

    FOR_EACH (at, r.batch * r.length * half) {
        const uint64_t row = at / half, i = at % half;
        const double exponent = 2.0 * (double)i / (double)r.head_size;
        const float frequency = (float)exp2(-exponent * r.log2_base);
        const float angle = (float)token_place(&r.runs, row % r.length) * frequency;
        const float cosine = cosf(angle), sine = r.is_back ? -sinf(angle) : sinf(angle);
        T *x = rows + row * r.stride + i;

        for (uint64_t h = 0; h < r.heads; h++, x += r.head_size) {
            const float a = to_float(x[0]), b = to_float(x[half]);
            x[0] = of_float<T>(a * cosine - b * sine);
            x[half] = of_float<T>(b * cosine + a * sine);
        }
    }
}

void cuda_rotate(cuda_type type, const cuda_rotary *rotary, void *rows, cudaStream_t stream)
{
    const uint64_t pairs = rotary->batch * rotary->length * rotary->head_size / 2;

    TY_MOVES(bytes_of(type, 2 * pairs * rotary->heads), bytes_of(type, 2 * pairs * rotary->heads));
    TY_DISPATCH(type, TY_LAUNCH(rotate<T>, grid_for(pairs), BLOCK, 0, stream, *rotary, (T *)rows))
}
