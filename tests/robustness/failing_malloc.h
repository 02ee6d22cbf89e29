/* The C library's malloc, replaced in this program and the shared libraries that it loads. It
 * counts, and fails on request. With a sanitizer, which replaces malloc itself, only allocations
 * through ty_base.h fail, and nothing is counted. */
#ifndef TY_FAILING_MALLOC_H
#define TY_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/** Whether all allocations are seen, or only the project's. */
bool memory_sees_all(void);

/** Memory that the calling thread allocated and released since memory_watch. */
typedef struct memory_use {
    long blocks; /* left */
    size_t peak_bytes;
} memory_use;

void memory_watch(void);
/** Allocations from here on are not counted. */
void memory_pause(void);
void memory_resume(void);
memory_use memory_watched(void);

/**
 * Allocation number `countdown` from now (1 is the next) fails; 0: none does.
 * @param do_all later ones fail, too (always so with a sanitizer)
 */
void memory_fail(long countdown, bool do_all);
/** Whether an allocation has failed since. Always true with a sanitizer, since it cannot be
 * known. */
bool memory_has_failed(void);

#endif
