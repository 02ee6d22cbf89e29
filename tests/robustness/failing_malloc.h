/* The C library's malloc, replaced in this program and the shared libraries under it: it counts,
 * and fails when asked. With a sanitizer, which replaces malloc itself, only what goes through
 * ty_base.h fails, and nothing is counted. */
#ifndef TY_FAILING_MALLOC_H
#define TY_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/** Whether all allocations are seen, or the project's own alone. */
bool memory_sees_all(void);

/** What the calling thread allocated and released since memory_watch. */
typedef struct memory_use {
    long blocks; /* left */
    size_t peak_bytes;
} memory_use;

void memory_watch(void);
/** What comes between is not counted. */
void memory_pause(void);
void memory_resume(void);
memory_use memory_watched(void);

/**
 * The allocation number `countdown` from now (1 is the next) fails; 0: none does.
 * @param do_all those after it fail, too (always so with a sanitizer)
 */
void memory_fail(long countdown, bool do_all);
/** Whether one has failed since. Always true with a sanitizer, where it is not known. */
bool memory_has_failed(void);

#endif
