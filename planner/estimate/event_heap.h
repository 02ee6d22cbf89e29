/*
 * Internal to planner/: a binary heap of numbered items by time, in which an item's time can change
 * (a binary heap with positions; Sedgewick, "Algorithms", 4th edition, section 2.4, "index priority
 * queue"). Ties: the lowest number first, so that estimates are reproducible.
 */
#ifndef TY_EVENT_HEAP_H
#define TY_EVENT_HEAP_H

#include "ty_core.h"

typedef struct ty_event_heap {
    uint32_t count;
    uint32_t *items;     /* [capacity]: heap order */
    uint32_t *positions; /* [capacity]: of each item in `items`; UINT32_MAX: not in the heap */
    double *times;       /* [capacity]: of each item */
} ty_event_heap;

ty_status ty_event_heap_init(ty_event_heap *heap, uint32_t capacity, ty_error *error) TY_MUST_CHECK;
void ty_event_heap_clear(ty_event_heap *heap);
/** Inserts an item, or changes its time. O(log count). */
void ty_event_heap_set(ty_event_heap *heap, uint32_t item, double time);
/** Removes and returns the earliest item; count > 0. */
uint32_t ty_event_heap_pop(ty_event_heap *heap);

#endif
