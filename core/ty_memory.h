/**
 * @file ty_memory.h
 * Allocation for the whole project. Sizes are multiplied with an overflow check; tests can make
 * the n-th allocation fail.
 */
#ifndef TY_MEMORY_H
#define TY_MEMORY_H

#include "ty_status.h"

#include <stddef.h>
#include <stdint.h>

/** `count` zeroed elements of `size` bytes; NULL when memory runs out or the product overflows. A
 *  zero count gives a valid pointer. */
void *ty_alloc(size_t count, size_t size);

/** The same for tensors, which are walked through again and again: asks the system to keep a large
 *  block in large pages, where it has them (transparent huge pages of Linux, `madvise` or
 * `always`), so that fewer addresses have to be translated. Only pages within the block are asked
 * for. */
void *ty_alloc_large(size_t count, size_t size);

/** Grows or shrinks `block` (NULL allowed) to `count` elements of `size` bytes; new bytes are not
 *  cleared. NULL on failure, `block` is then untouched. */
void *ty_resize(void *block, size_t count, size_t size);

/** Makes room for one more than `count` elements of `size` bytes. Rooms double, so that n additions
 *  cost O(n).
 * @param array the address of the pointer to them, of whatever type; NULL and room 0 at first */
ty_status ty_reserve(void *array, uint32_t count, uint32_t *room, size_t size,
                     ty_error *error) TY_MUST_CHECK;

/** Releases what ty_alloc, ty_resize or ty_strdup gave; NULL is ignored. */
void ty_free(void *block);

/** Copy of `text` (NULL gives NULL). NULL also when memory runs out. */
char *ty_strdup(const char *text);

/** Copy of the first `length` bytes of `text`, terminated. */
char *ty_strndup(const char *text, size_t length);

/**
 * For tests: the allocation number `countdown` from now (1 is the next one) and all that follow
 * fail, until called again with 0. Process-wide; the one deliberate global of the project.
 */
void ty_memory_fail_after(long countdown);

/** An arena: many small blocks, freed at once. Blocks are zeroed and aligned for any type. */
typedef struct ty_arena ty_arena;
ty_arena *ty_arena_new(void);
void *ty_arena_alloc(ty_arena *arena, size_t count, size_t size);
char *ty_arena_strdup(ty_arena *arena, const char *text);
void ty_arena_free(ty_arena *arena);

#endif
