#include "failing_malloc.h"

#include "ty_base.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER

bool memory_sees_all(void)
{
    return false;
}

void memory_watch(void)
{
}

void memory_pause(void)
{
}

void memory_resume(void)
{
}

memory_use memory_watched(void)
{
    return (memory_use){0, 0};
}

void memory_fail(long countdown, bool do_all)
{
    (void)do_all;
    ty_memory_fail_after(countdown);
}

bool memory_has_failed(void)
{
    return true;
}

#else

/* glibc's own malloc, for replacements that call it. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

static _Thread_local struct {
    bool is_watching, do_all, has_failed;
    long countdown, blocks;
    int64_t bytes, peak_bytes;
} state;

bool memory_sees_all(void)
{
    return true;
}

void memory_watch(void)
{
    state.is_watching = true;
    state.blocks = 0;
    state.bytes = state.peak_bytes = 0;
}

void memory_pause(void)
{
    state.is_watching = false;
}

void memory_resume(void)
{
    state.is_watching = true;
}

memory_use memory_watched(void)
{
    state.is_watching = false;
    return (memory_use){state.blocks, (size_t)state.peak_bytes};
}

void memory_fail(long countdown, bool do_all)
{
    state.countdown = countdown;
    state.do_all = do_all;
    if (countdown != 0)
        state.has_failed = false;
}

bool memory_has_failed(void)
{
    return state.has_failed;
}

static bool must_fail(void)
{
    if (state.countdown == 0 || --state.countdown > 0)
        return false;
    state.countdown = state.do_all ? 1 : 0;
    state.has_failed = true;
    errno = ENOMEM;
    return true;
}

static void count(const void *block, int sign)
{
    if (!state.is_watching || block == NULL)
        return;
    state.blocks += sign;
    state.bytes += sign * (int64_t)malloc_usable_size((void *)block);
    if (state.bytes > state.peak_bytes)
        state.peak_bytes = state.bytes;
}

void *malloc(size_t size)
{
    void *block = must_fail() ? NULL : __libc_malloc(size);

    count(block, 1);
    return block;
}

void *calloc(size_t number, size_t size)
{
    void *block = must_fail() ? NULL : __libc_calloc(number, size);

    count(block, 1);
    return block;
}

void *realloc(void *block, size_t size)
{
    void *grown;

    if (must_fail())
        return NULL;
    count(block, -1);
    grown = __libc_realloc(block, size);
    count(grown != NULL || size == 0 ? grown : block, 1);
    return grown;
}

void free(void *block)
{
    count(block, -1);
    __libc_free(block);
}

#endif
