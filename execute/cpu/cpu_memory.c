/* Buffers of a stage in the host's memory. */
#include "cpu_layer.h"

void *cpu_buffer(ty_stage_device *stage, uint64_t bytes)
{
    const uint64_t alignment = CPU_ALIGNMENT;
    unsigned char *block;

    if (bytes > UINT64_MAX - alignment)
        return NULL;
    block = ty_alloc_large(bytes + alignment, 1);
    if (block == NULL)
        return NULL;
    if (!stage_block_keep(&stage->blocks, block)) {
        ty_free(block);
        return NULL;
    }
    stage->memory_bytes += bytes + alignment;
    return block + (alignment - (uintptr_t)block % alignment);
}
