/* A binary heap that stores the position of each item. */
#include "event_heap.h"

ty_status ty_event_heap_init(ty_event_heap *heap, uint32_t capacity, ty_error *error)
{
    ty_event_heap made = {0};

    made.items = ty_alloc(capacity, sizeof *made.items);
    made.positions = ty_alloc(capacity, sizeof *made.positions);
    made.times = ty_alloc(capacity, sizeof *made.times);
    if (made.items == NULL || made.positions == NULL || made.times == NULL) {
        ty_event_heap_clear(&made);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < capacity; i++)
        made.positions[i] = UINT32_MAX;
    *heap = made;
    return TY_OK;
}

void ty_event_heap_clear(ty_event_heap *heap)
{
    ty_free(heap->items);
    ty_free(heap->positions);
    ty_free(heap->times);
    *heap = (ty_event_heap){0};
}

static bool is_before(const ty_event_heap *heap, uint32_t a, uint32_t b)
{
    if (heap->times[a] < heap->times[b])
        return true;
    return heap->times[a] == heap->times[b] && a < b;
}

static void place(ty_event_heap *heap, uint32_t position, uint32_t item)
{
    heap->items[position] = item;
    heap->positions[item] = position;
}

static void sift_up(ty_event_heap *heap, uint32_t position, uint32_t item)
{
    while (position > 0) {
        uint32_t parent = (position - 1) / 2;
        if (!is_before(heap, item, heap->items[parent]))
            break;
        place(heap, position, heap->items[parent]);
        position = parent;
    }
    place(heap, position, item);
}

static void sift_down(ty_event_heap *heap, uint32_t position, uint32_t item)
{
    for (;;) {
        uint32_t child = 2 * position + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && is_before(heap, heap->items[child + 1], heap->items[child]))
            child++;
        if (!is_before(heap, heap->items[child], item))
            break;
        place(heap, position, heap->items[child]);
        position = child;
    }
    place(heap, position, item);
}

void ty_event_heap_set(ty_event_heap *heap, uint32_t item, double time)
{
    bool is_later = heap->positions[item] != UINT32_MAX && time > heap->times[item];
    heap->times[item] = time;
    if (heap->positions[item] == UINT32_MAX)
        sift_up(heap, heap->count++, item);
    else if (is_later)
        sift_down(heap, heap->positions[item], item);
    else
        sift_up(heap, heap->positions[item], item);
}

uint32_t ty_event_heap_pop(ty_event_heap *heap)
{
    uint32_t first = heap->items[0], last = heap->items[--heap->count];
    heap->positions[first] = UINT32_MAX;
    if (heap->count > 0)
        sift_down(heap, 0, last);
    return first;
}
