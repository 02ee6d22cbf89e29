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
#define KIND(kind, symbol, name) [TY_COMPRESSION_##kind] = &codec_##symbol,
    static const codec_backend cpu = {
        .kinds = {TY_COMPRESSIONS(KIND)}, .allocate = room_allocate, .release = room_release};
#undef KIND

    return codec_open(&cpu, NULL, options, out, error);
}

CPU_CLONES void codec_add(uint64_t count, const float *restrict source, float *restrict target)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] += source[i];
}
