#include "crowd.h"

#include <string.h>

uint64_t exchange_part_bytes(const ty_collective_options *exchange)
{
    return exchange->count * ty_element_bytes(exchange->element);
}

uint64_t exchange_bytes(const ty_collective_options *exchange)
{
    return exchange_part_bytes(exchange) *
           (exchange->kind == TY_ALL_REDUCE ? 1 : exchange->member_count);
}

static void reduce(const ty_collective_options *to, const ty_collective_options *from)
{
    const float *source = from->data;
    float *target = to->data;

    if (to->element == TY_ELEMENT_HALF)
        ty_half_add(to->data, from->data, to->count);
    else if (to->element == TY_ELEMENT_BFLOAT)
        ty_bfloat_add(to->data, from->data, to->count);
    else
        for (uint64_t i = 0; i < to->count; i++)
            target[i] += source[i];
}

static void parts_swap(char *a, char *b, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

void exchange_run(const ty_collective_options *e, uint32_t count)
{
    const uint64_t part = exchange_part_bytes(&e[0]);

    for (uint32_t m = 1; e[0].kind == TY_ALL_REDUCE && m < count; m++)
        reduce(&e[0], &e[m]);
    for (uint32_t m = 1; e[0].kind == TY_ALL_REDUCE && m < count; m++)
        memcpy(e[m].data, e[0].data, part);
    for (uint32_t from = 0; e[0].kind == TY_ALL_GATHER && from < count; from++)
        for (uint32_t to = 0; to < count; to++)
            if (to != from)
                memcpy((char *)e[to].data + from * part, (char *)e[from].data + from * part, part);
    for (uint32_t from = 0; e[0].kind == TY_ALL_TO_ALL && from < count; from++)
        for (uint32_t to = 0; to < from; to++)
            parts_swap((char *)e[from].data + to * part, (char *)e[to].data + from * part, part);
}
