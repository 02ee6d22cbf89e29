/* An open hash table of sets. */
#include "set_table.h"

#include <string.h>

/* Fowler, Noll and Vo's mixing on words, folded; only speed depends on it. */
static uint32_t first_slot(const set_table *t, const uint64_t *set)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t w = 0; w < t->words; w++) {
        h = (h ^ set[w]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32) & (t->slot_count - 1);
}

static void put(set_table *t, uint32_t number)
{
    uint32_t slot = first_slot(t, set_table_at(t, number));
    while (t->slots[slot] != 0)
        slot = (slot + 1) & (t->slot_count - 1);
    t->slots[slot] = number + 1;
}

static ty_status make_room(set_table *t, ty_error *error)
{
    uint32_t capacity = t->capacity == 0 ? 256 : t->capacity * 2, *slots;
    uint64_t *sets;

    if (t->count < t->capacity)
        return TY_OK;
    sets = ty_resize(t->sets, (size_t)capacity * t->words, sizeof *sets);
    if (sets == NULL)
        return ty_fail(error, TY_ENOMEM, "ideals: out of memory");
    t->sets = sets;
    slots = ty_alloc((size_t)capacity * 2, sizeof *slots);
    if (slots == NULL)
        return ty_fail(error, TY_ENOMEM, "ideals: out of memory");
    ty_free(t->slots);
    t->slots = slots;
    t->slot_count = capacity * 2;
    t->capacity = capacity;
    for (uint32_t i = 0; i < t->count; i++)
        put(t, i);
    return TY_OK;
}

uint32_t ty_set_table_find(const set_table *table, const uint64_t *set)
{
    if (table->count == 0)
        return UINT32_MAX;
    for (uint32_t slot = first_slot(table, set); table->slots[slot] != 0;
         slot = (slot + 1) & (table->slot_count - 1))
        if (memcmp(set_table_at(table, table->slots[slot] - 1), set, table->words * sizeof *set) ==
            0)
            return table->slots[slot] - 1;
    return UINT32_MAX;
}

ty_status ty_set_table_add(set_table *table, const uint64_t *set, ty_error *error)
{
    ty_status status = TY_OK;

    TY_CHECK(make_room(table, error), status, done);
    memcpy(&table->sets[(size_t)table->count * table->words], set, table->words * sizeof *set);
    put(table, table->count++);
done:
    return status;
}

void ty_set_table_clear(set_table *table)
{
    ty_free(table->sets);
    ty_free(table->slots);
    *table = (set_table){0};
}
