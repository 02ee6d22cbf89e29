/* Groups that share a scale: fp8, int8, ternary, as in codec_fp8.c, codec_int8.c and
 * codec_ternary.c. One warp encodes a group; decoding goes element by element. */
#include "codec_kernel.cuh"

enum { GROUP = TY_COMPRESSION_GROUP, PER_BYTE = CODEC_TERNARY_PER_BYTE };

static __host__ __device__ __forceinline__ uint64_t group_count(uint64_t count)
{
    return (count + GROUP - 1) / GROUP;
}

static __device__ __forceinline__ uint64_t group_size(uint64_t count, uint64_t group)
{
    return count - group * GROUP < GROUP ? count - group * GROUP : GROUP;
}

/* The largest magnitude of a group, as bits. */
static __device__ uint32_t group_largest(uint64_t size, const float *values)
{
    uint32_t largest = 0;

    for (uint64_t i = threadIdx.x % WARP; i < size; i += WARP)
        largest = codec_magnitude(values[i]) > largest ? codec_magnitude(values[i]) : largest;
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        uint32_t other =
            bits_of_float(__shfl_xor_sync(0xffffffffu, float_of_bits(largest), offset));
        largest = other > largest ? other : largest;
    }
    return largest;
}

/* Other members' payloads are unaligned, so scales are copied byte by byte. */
static __device__ void scale_put(uint8_t *scales, uint64_t group, float scale)
{
    unsigned lane = threadIdx.x % WARP;

    if (lane < sizeof scale)
        scales[group * sizeof scale + lane] = (uint8_t)(bits_of_float(scale) >> 8 * lane);
}

static __device__ __forceinline__ float scale_get(const uint8_t *scales, uint64_t group)
{
    const uint8_t *at = scales + group * sizeof(float);

    return float_of_bits((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                         (uint32_t)at[3] << 24);
}

/* ---- Formats of one byte ---- */

template <int LARGEST, uint32_t FRACTION, uint32_t BIAS> struct fp8 {
    static __device__ float largest(void)
    {
        return (float)LARGEST;
    }
    static __device__ uint8_t code(float value, float inverse, uint32_t)
    {
        return codec_to_fp8(value * inverse, FRACTION, BIAS);
    }
    static __device__ float value(uint8_t code)
    {
        return codec_of_fp8(code, FRACTION, BIAS);
    }
};
typedef fp8<(int)CODEC_E4M3_LARGEST, CODEC_E4M3_FRACTION, CODEC_E4M3_BIAS> e4m3;
typedef fp8<(int)CODEC_E5M2_LARGEST, CODEC_E5M2_FRACTION, CODEC_E5M2_BIAS> e5m2;

struct int8 {
    static __device__ float largest(void)
    {
        return CODEC_INT8_LARGEST;
    }
    static __device__ uint8_t code(float value, float inverse, uint32_t key)
    {
        return codec_to_int8(value, inverse, key);
    }
    static __device__ float value(uint8_t code)
    {
        return codec_of_int8(code);
    }
};

template <typename FORMAT>
static __global__ void bytes_encode(uint64_t count, uint32_t key, const float *values,
                                    uint8_t *encoded)
{
    const uint64_t groups = group_count(count), group = warp_index(), first = group * GROUP;
    uint8_t *codes = encoded + groups * sizeof(float) + first;
    uint64_t size;
    float scale, inverse;

    if (group >= groups)
        return;
    size = group_size(count, group);
    scale = codec_scale_of(group_largest(size, values + first), FORMAT::largest(), &inverse);
    for (uint64_t i = threadIdx.x % WARP; i < size; i += WARP)
        codes[i] = scale > 0.0f
                       ? FORMAT::code(values[first + i], inverse, key + (uint32_t)(first + i))
                       : (uint8_t)CODEC_NOTHING;
    scale_put(encoded, group, scale);
}

template <typename FORMAT>
static __global__ void bytes_decode(uint64_t count, uint32_t members, uint64_t stride,
                                    const uint8_t *encoded, float *values)
{
    const uint64_t scales = group_count(count) * sizeof(float);

    FOR_EACH (i, count) {
        float sum = 0.0f;
        for (uint32_t m = 0; m < members; m++) {
            const uint8_t *payload = encoded + m * stride;
            sum += scale_get(payload, i / GROUP) * FORMAT::value(payload[scales + i]);
        }
        values[i] = sum;
    }
}

/* ---- Ternary ---- */

static __device__ float ternary_scale(uint64_t size, const float *values)
{
    const uint32_t largest = group_largest(size, values);
    const float maximum = float_of_bits(largest);
    float squares = 0.0f, scale;

    if (!codec_ternary_has_scale(largest, &scale))
        return scale;
    for (uint64_t i = threadIdx.x % WARP; i < size; i += WARP)
        squares += (values[i] / maximum) * (values[i] / maximum);
    return codec_ternary_scale(maximum, size, warp_sum(squares));
}

/* Byte j of a group has the elements j, j + q, j + 2q and j + 3q; q is a quarter of the group. */
static __global__ void ternary_encode(uint64_t count, uint32_t key, const float *values,
                                      uint8_t *encoded)
{
    const uint64_t groups = group_count(count), group = warp_index(), first = group * GROUP;
    uint8_t *codes = encoded + groups * sizeof(float) + first / PER_BYTE;
    uint64_t size, quarter;
    float scale;

    if (group >= groups)
        return;
    size = group_size(count, group);
    quarter = (size + PER_BYTE - 1) / PER_BYTE;
    scale = ternary_scale(size, values + first);
    for (uint64_t j = threadIdx.x % WARP; j < quarter; j += WARP) {
        uint32_t code = 0;
        for (uint32_t part = 0; part < PER_BYTE; part++) {
            const uint64_t i = j + part * quarter;
            if (i < size)
                code |= (uint32_t)codec_to_ternary(values[first + i], scale,
                                                   key + (uint32_t)(first + i))
                        << 2 * part;
        }
        codes[j] = scale > 0.0f ? (uint8_t)code : (uint8_t)CODEC_NOTHING;
    }
    scale_put(encoded, group, scale);
}

static __global__ void ternary_decode(uint64_t count, uint32_t members, uint64_t stride,
                                      const uint8_t *encoded, float *values)
{
    const uint64_t scales = group_count(count) * sizeof(float);

    FOR_EACH (i, count) {
        const uint64_t group = i / GROUP,
                       quarter = (group_size(count, group) + PER_BYTE - 1) / PER_BYTE;
        const uint64_t part = i % GROUP / quarter, at = i % GROUP % quarter;
        float sum = 0.0f;
        for (uint32_t m = 0; m < members; m++) {
            const uint8_t *payload = encoded + m * stride;
            uint8_t codes = payload[scales + group * (GROUP / PER_BYTE) + at];
            sum += scale_get(payload, group) * codec_of_ternary(codes >> 2 * part & 3);
        }
        values[i] = sum;
    }
}

/* ---- Any of them ---- */

void cuda_groups_encode(cuda_group_format format, uint64_t count, uint32_t key, const float *values,
                        void *encoded, cudaStream_t stream)
{
    static void (*const kernels[])(uint64_t, uint32_t, const float *, uint8_t *) = {
        bytes_encode<e4m3>, bytes_encode<e5m2>, bytes_encode<int8>, ternary_encode};

    TY_LAUNCH(kernels[format], warps_grid(group_count(count)), BLOCK, 0, stream, count, key, values,
              (uint8_t *)encoded);
}

void cuda_groups_decode(cuda_group_format format, uint64_t count, uint32_t members, uint64_t stride,
                        const void *encoded, float *values, cudaStream_t stream)
{
    static void (*const kernels[])(uint64_t, uint32_t, uint64_t, const uint8_t *, float *) = {
        bytes_decode<e4m3>, bytes_decode<e5m2>, bytes_decode<int8>, ternary_decode};

    TY_LAUNCH(kernels[format], grid_for(count), BLOCK, 0, stream, count, members, stride,
              (const uint8_t *)encoded, values);
}
