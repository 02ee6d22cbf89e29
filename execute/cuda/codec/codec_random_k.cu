/* Values at random places, the same on all members, as in codec_random_k.c. */
#include "codec_kernel.cuh"

static __global__ void places_take(uint64_t count, uint64_t k, uint32_t key, float *values,
                                   float *encoded)
{
    FOR_EACH (i, k) {
        const uint64_t place = codec_place(count, k, i, key);
        encoded[i] = values[place];
        values[place] = 0.0f;
    }
}

static __global__ void places_put(uint64_t count, uint64_t k, uint32_t key, const float *encoded,
                                  float *values)
{
    FOR_EACH (i, k)
        values[codec_place(count, k, i, key)] = encoded[i];
}

void cuda_places_take(uint64_t count, uint64_t k, uint32_t key, float *values, float *encoded,
                      cudaStream_t stream)
{
    TY_LAUNCH(places_take, grid_for(k), BLOCK, 0, stream, count, k, key, values, encoded);
}

void cuda_places_put(uint64_t count, uint64_t k, uint32_t key, const float *encoded, float *values,
                     cudaStream_t stream)
{
    cudaMemsetAsync(values, 0, count * sizeof *values, stream);
    TY_LAUNCH(places_put, grid_for(k), BLOCK, 0, stream, count, k, key, encoded, values);
}
