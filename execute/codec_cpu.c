/* Compressors on the CPU: the table of kinds. */
#include "codec_kinds.h"

static void *room_allocate(void *device, uint64_t bytes)
{
    (void)device;
    return ty_alloc(bytes, 1);
}

static void room_release(void *device, void *memory)
{
    (void)device;
    ty_free(memory);
}

ty_status ty_codec_open(const ty_codec_options *options, ty_codec **out, ty_error *error)
{
    static const codec_backend cpu = {
        .kinds = {[TY_COMPRESSION_ROWS] = &codec_rows,
                  [TY_COMPRESSION_FP16] = &codec_fp16,
                  [TY_COMPRESSION_BF16] = &codec_bf16,
                  [TY_COMPRESSION_FP8_E4M3] = &codec_fp8_e4m3,
                  [TY_COMPRESSION_FP8_E5M2] = &codec_fp8_e5m2,
                  [TY_COMPRESSION_INT8] = &codec_int8,
                  [TY_COMPRESSION_TERNARY] = &codec_ternary,
                  [TY_COMPRESSION_ONE_BIT] = &codec_one_bit,
                  [TY_COMPRESSION_TOP_K] = &codec_top_k,
                  [TY_COMPRESSION_TOP_K_SAMPLED] = &codec_top_k_sampled,
                  [TY_COMPRESSION_RANDOM_K] = &codec_random_k,
                  [TY_COMPRESSION_DGC] = &codec_dgc,
                  [TY_COMPRESSION_POWERSGD] = &codec_powersgd},
        .allocate = room_allocate,
        .release = room_release};

    return codec_open(&cpu, NULL, options, out, error);
}

CPU_CLONES void codec_add(uint64_t count, const float *restrict source, float *restrict target)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] += source[i];
}
