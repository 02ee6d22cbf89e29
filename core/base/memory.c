/* Allocation: checked sizes, failure on demand for tests, arenas. */
#include "ty_base.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Twice the large page of x86-64 and of most arm64 systems: smaller blocks may not contain a full
 * one. */
#define LARGE_BYTES ((size_t)4 << 20)

static atomic_long fail_countdown; /* 0: never fail */

static int must_fail(void)
{
    long left = atomic_load(&fail_countdown);
    if (left == 0)
        return 0;
    if (left == 1)
        return 1;
    atomic_store(&fail_countdown, left - 1);
    return 0;
}

void ty_memory_fail_after(long countdown)
{
    atomic_store(&fail_countdown, countdown);
}

static bool overflows(size_t count, size_t size)
{
    return size != 0 && count > SIZE_MAX / size;
}

void *ty_alloc(size_t count, size_t size)
{
    if (must_fail() || overflows(count, size))
        return NULL;
    return calloc(count > 0 ? count : 1, size > 0 ? size : 1);
}

void *ty_alloc_large(size_t count, size_t size)
{
    unsigned char *block = ty_alloc(count, size);

#ifdef MADV_HUGEPAGE
    if (block != NULL && count * size >= LARGE_BYTES) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const size_t before = (page - (uintptr_t)block % page) % page;
        /* Advice: without such pages nothing changes. */
        (void)madvise(block + before, (count * size - before) / page * page, MADV_HUGEPAGE);
    }
#endif
    return block;
}

void *ty_resize(void *block, size_t count, size_t size)
{
    if (must_fail() || overflows(count, size))
        return NULL;
    return realloc(block, count * size > 0 ? count * size : 1);
}

ty_status ty_reserve(void *array, uint32_t count, uint32_t *room, size_t size, ty_error *error)
{
    const uint32_t wanted = *room == 0 ? 16 : 2 * *room;
    void *block;

    if (count < *room)
        return TY_OK;
    memcpy(&block, array, sizeof block);
    block = ty_resize(block, wanted, size);
    TY_TRY(ty_check_memory(block != NULL, error));
    memcpy(array, &block, sizeof block);
    *room = wanted;
    return TY_OK;
}

void ty_free(void *block)
{
    free(block);
}

char *ty_strndup(const char *text, size_t length)
{
    char *copy;
    if (length == SIZE_MAX || (copy = ty_alloc(length + 1, 1)) == NULL)
        return NULL;
    memcpy(copy, text, length);
    return copy;
}

char *ty_strdup(const char *text)
{
    return text == NULL ? NULL : ty_strndup(text, strlen(text));
}

/* Blocks are cut from chunks that double in size; a chunk never moves. */
typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
} chunk;

struct ty_arena {
    chunk *chunks;
};

ty_arena *ty_arena_new(void)
{
    return ty_alloc(1, sizeof(ty_arena));
}

void *ty_arena_alloc(ty_arena *arena, size_t count, size_t size)
{
    const size_t align = alignof(max_align_t);
    size_t bytes;
    chunk *c = arena->chunks;
    void *block;

    if (size != 0 && count > (SIZE_MAX / 2 - align) / size)
        return NULL;
    bytes = (count * size + align - 1) / align * align;
    if (c == NULL || c->size - c->used < bytes) {
        size_t room = c == NULL ? 4096 : c->size * 2;
        if (room > ((size_t)16 << 20))
            room = (size_t)16 << 20;
        if (room < bytes)
            room = bytes;
        c = ty_alloc(1, sizeof(chunk) + room);
        if (c == NULL)
            return NULL;
        c->size = room;
        c->next = arena->chunks;
        arena->chunks = c;
    }
    block = c->bytes + c->used;
    c->used += bytes;
    return block;
}

char *ty_arena_strdup(ty_arena *arena, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = ty_arena_alloc(arena, size, 1);

    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}

void ty_arena_free(ty_arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->chunks != NULL) {
        chunk *next = arena->chunks->next;
        ty_free(arena->chunks);
        arena->chunks = next;
    }
    ty_free(arena);
}
