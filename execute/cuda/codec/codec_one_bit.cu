/* Signs and mean magnitudes, as in codec_one_bit.c. One warp encodes a group, each thread one word;
 * decoding is element by element. */
#include "codec_kernel.cuh"

enum { GROUP = TY_COMPRESSION_SIGN_GROUP, WORD_BITS = 32 };

static __device__ __forceinline__ uint64_t group_size(const cuda_sign_parts &shape, uint64_t group)
{
    return shape.part - group * GROUP < GROUP ? shape.part - group * GROUP : GROUP;
}

/* Number of a group's elements that are in the bucket. */
static __device__ __forceinline__ uint64_t group_real(const cuda_sign_parts &shape, uint64_t owner,
                                                      uint64_t group)
{
    const uint64_t first = owner * shape.part + group * GROUP, size = group_size(shape, group);
    const uint64_t left = first < shape.count ? shape.count - first : 0;

    return left < size ? left : size;
}

static __device__ float mean_magnitude(uint64_t real, const float *values)
{
    float sum = 0.0f;

    for (uint64_t i = threadIdx.x % WARP; i < real; i += WARP)
        sum += fabsf(values[i]);
    sum = warp_sum(sum);
    return real > 0 ? sum / (float)real : 0.0f;
}

static __global__ void signs_encode(cuda_sign_parts shape, uint64_t first_owner, uint64_t parts,
                                    float *values, char *encoded)
{
    const uint64_t part = warp_index() / shape.groups, group = warp_index() % shape.groups;
    float *own = values + part * shape.part + group * GROUP;
    float *scales = (float *)(encoded + part * shape.bytes);
    uint32_t *words = (uint32_t *)(scales + shape.groups) + group * (GROUP / WORD_BITS);
    uint64_t width, real;
    float scale;

    if (part >= parts)
        return;
    width = group_size(shape, group) / WORD_BITS;
    real = group_real(shape, first_owner + part, group);
    scale = mean_magnitude(real, own);
    __syncwarp(); /* all magnitudes have been read */
    for (uint64_t w = threadIdx.x % WARP; w < width; w += WARP) {
        uint32_t word = 0;
        for (uint32_t b = 0; b < WORD_BITS; b++) {
            const uint64_t i = b * width + w;
            const uint32_t sign = bits_of_float(own[i]) >> 31;
            word |= sign << b;
            own[i] = i < real ? own[i] - codec_signed(scale, sign) : 0.0f;
        }
        words[w] = word;
    }
    if (threadIdx.x % WARP == 0)
        scales[group] = scale;
}

/* Sent value of element i of a part. */
static __device__ __forceinline__ float sent(const cuda_sign_parts &shape, const char *encoded,
                                             uint64_t i)
{
    const float *scales = (const float *)encoded;
    const uint64_t group = i / GROUP, width = group_size(shape, group) / WORD_BITS;
    const uint32_t *words = (const uint32_t *)(scales + shape.groups) + group * (GROUP / WORD_BITS);
    const uint64_t bit = i % GROUP / width, word = i % GROUP % width;

    return codec_signed(scales[group], words[word] >> bit & 1u);
}

static __global__ void signs_add(cuda_sign_parts shape, uint32_t members, const char *encoded,
                                 float *sums)
{
    FOR_EACH (i, shape.part) {
        float sum = sums[i];
        for (uint32_t m = 0; m < members; m++)
            sum += sent(shape, encoded + m * shape.bytes, i);
        sums[i] = sum;
    }
}

static __global__ void signs_write(cuda_sign_parts shape, const char *encoded, float *values)
{
    FOR_EACH (i, shape.count)
        values[i] = 0.0f + sent(shape, encoded + i / shape.part * shape.bytes, i % shape.part);
}

void cuda_signs_encode(const cuda_sign_parts *shape, uint32_t first, uint32_t parts, float *values,
                       void *encoded, cudaStream_t stream)
{
    TY_LAUNCH(signs_encode, warps_grid(parts * shape->groups), BLOCK, 0, stream, *shape, first,
              parts, values, (char *)encoded);
}

void cuda_signs_add(const cuda_sign_parts *shape, uint32_t members, const void *encoded,
                    float *sums, cudaStream_t stream)
{
    TY_LAUNCH(signs_add, grid_for(shape->part), BLOCK, 0, stream, *shape, members,
              (const char *)encoded, sums);
}

void cuda_signs_write(const cuda_sign_parts *shape, const void *encoded, float *values,
                      cudaStream_t stream)
{
    TY_LAUNCH(signs_write, grid_for(shape->count), BLOCK, 0, stream, *shape, (const char *)encoded,
              values);
}
