/* Memory of a stage on its GPU, and pinned host memory. */
#include "cuda_stage.h"

#include <string.h>

void *cuda_buffer(ty_stage_device *stage, uint64_t bytes)
{
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaMalloc(&made, bytes) != cudaSuccess)
        return NULL;
    /* cudaMemset uses the legacy stream, which the stage's streams do not wait for. */
    if (cudaMemset(made, 0, bytes) != cudaSuccess || cudaStreamSynchronize(NULL) != cudaSuccess ||
        !stage_block_keep(&stage->blocks, made)) {
        cudaFree(made);
        return NULL;
    }
    stage->memory_bytes += bytes;
    cuda_memory_count(stage, bytes);
    return made;
}

void *cuda_host_buffer(ty_stage_device *stage, uint64_t bytes)
{
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaHostAlloc(&made, bytes, cudaHostAllocDefault) != cudaSuccess)
        return NULL;
    memset(made, 0, bytes);
    if (!stage_block_keep(&stage->own->host_blocks, made)) {
        cudaFreeHost(made);
        return NULL;
    }
    return made;
}

void cuda_buffers_free(ty_stage_device *stage)
{
    for (uint32_t b = 0; b < stage->blocks.count; b++)
        cudaFree(stage->blocks.blocks[b]);
    for (uint32_t b = 0; b < stage->own->host_blocks.count; b++)
        cudaFreeHost(stage->own->host_blocks.blocks[b]);
    ty_free(stage->own->host_blocks.blocks);
}

void cuda_memory_count(ty_stage_device *stage, uint64_t bytes)
{
    pthread_mutex_lock(&stage->own->memory_lock);
    stage->own->taken_bytes += bytes;
    if (stage->own->taken_bytes > stage->own->peak_bytes)
        stage->own->peak_bytes = stage->own->taken_bytes;
    pthread_mutex_unlock(&stage->own->memory_lock);
}

static bool taken_note(ty_stage_device *stage, void *memory, uint64_t bytes)
{
    bool has_room = true;

    pthread_mutex_lock(&stage->own->memory_lock);
    if (stage->own->taken_count == stage->own->taken_room) {
        const uint32_t room = stage->own->taken_room > 0 ? 2 * stage->own->taken_room : 16;
        cuda_taken *grown = ty_resize(stage->own->taken, room, sizeof *grown);
        has_room = grown != NULL;
        stage->own->taken = has_room ? grown : stage->own->taken;
        stage->own->taken_room = has_room ? room : stage->own->taken_room;
    }
    if (has_room)
        stage->own->taken[stage->own->taken_count++] = (cuda_taken){memory, bytes};
    pthread_mutex_unlock(&stage->own->memory_lock);
    if (has_room)
        cuda_memory_count(stage, bytes);
    return has_room;
}

void *cuda_memory_allocate(void *device, uint64_t bytes)
{
    ty_stage_device *stage = device;
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaSetDevice(stage->own->ordinal) != cudaSuccess ||
        cudaMalloc(&made, bytes) != cudaSuccess || cudaMemset(made, 0, bytes) != cudaSuccess ||
        cudaStreamSynchronize(NULL) != cudaSuccess || !taken_note(stage, made, bytes)) {
        (void)cudaGetLastError();
        cudaFree(made);
        return NULL;
    }
    return made;
}

void cuda_memory_release(void *device, void *memory)
{
    ty_stage_device *stage = device;

    (void)cudaSetDevice(stage->own->ordinal);
    cudaFree(memory);
    pthread_mutex_lock(&stage->own->memory_lock);
    for (uint32_t t = 0; t < stage->own->taken_count; t++)
        if (memory != NULL && stage->own->taken[t].memory == memory) {
            stage->own->taken_bytes -= stage->own->taken[t].bytes;
            stage->own->taken[t] = stage->own->taken[--stage->own->taken_count];
            break;
        }
    pthread_mutex_unlock(&stage->own->memory_lock);
}
