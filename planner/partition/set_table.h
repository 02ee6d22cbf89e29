/* Different sets of layers, numbered as they come. */
#ifndef TY_SET_TABLE_H
#define TY_SET_TABLE_H

#include "ty_core.h"

typedef struct set_table {
    uint32_t words, count, capacity, slot_count;
    uint64_t *sets;  /* [count][words] */
    uint32_t *slots; /* hash table of numbers + 1; 0: free */
} set_table;

/** Number of a set, or UINT32_MAX. */
uint32_t ty_set_table_find(const set_table *table, const uint64_t *set);
/** Adds a set that is not in it; it gets number `count`. */
ty_status ty_set_table_add(set_table *table, const uint64_t *set, ty_error *error) TY_MUST_CHECK;
void ty_set_table_clear(set_table *table);

static inline const uint64_t *set_table_at(const set_table *table, uint32_t number)
{
    return &table->sets[(size_t)number * table->words];
}

#endif
