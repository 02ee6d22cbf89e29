/* Contention of concurrent routes. */
#include "route_loads.h"

#include <math.h>

route_loads route_loads_on(const ty_cluster *cluster)
{
    return (route_loads){.router = router_on(cluster)};
}

static uint32_t *slot_of(const route_loads *l, uint64_t way)
{
    uint64_t slot = way * 0x9E3779B97F4A7C15u >> 32 & (l->slot_count - 1); /* Knuth's hash */

    while (l->slots[slot] != 0 && l->ways[l->slots[slot] - 1] != way)
        slot = (slot + 1) & (l->slot_count - 1);
    return &l->slots[slot];
}

/* Makes room for one more direction of a link; keeps half of the slots empty. */
static bool make_room(route_loads *l)
{
    enum { FIRST_WAYS = 64 };
    const uint32_t room = l->room > 0 ? 2 * l->room : FIRST_WAYS;
    uint64_t *ways;
    double *all;
    uint32_t *slots;

    if (l->count < l->room)
        return true;
    if ((ways = ty_resize(l->ways, room, sizeof *ways)) == NULL)
        return false;
    l->ways = ways;
    if ((all = ty_resize(l->loads, room, sizeof *all)) == NULL)
        return false;
    l->loads = all;
    if ((slots = ty_alloc(2 * (size_t)room, sizeof *slots)) == NULL)
        return false;
    ty_free(l->slots);
    l->slots = slots;
    l->slot_count = 2 * room;
    l->room = room;
    for (uint32_t i = 0; i < l->count; i++)
        *slot_of(l, l->ways[i]) = i + 1;
    return true;
}

/* The index of a link direction, new or existing. */
static ty_status index_of(route_loads *l, uint64_t way, uint32_t *index, ty_error *error)
{
    uint32_t *slot;

    TY_TRY(ty_check_memory(make_room(l), error));
    slot = slot_of(l, way);
    if (*slot == 0) {
        l->ways[l->count] = way;
        l->loads[l->count] = 0;
        *slot = ++l->count;
    }
    *index = *slot - 1;
    return TY_OK;
}

void route_loads_clear(route_loads *l)
{
    ty_free(l->ways);
    ty_free(l->loads);
    ty_free(l->slots);
    router_clear(&l->router);
}

ty_status route_loads_note(route_loads *l, uint32_t from, uint32_t to, route_ways *out,
                           ty_error *error)
{
    router *r = &l->router;
    const ty_cluster *cluster = r->cluster;
    uint32_t at = cluster->device_vertices[from];

    TY_TRY(router_find(r, from, to, error));
    if (out->count + r->link_count > out->room) {
        const uint64_t room = out->room * 2 + r->link_count + 256;
        uint32_t *grown = ty_resize(out->ways, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        out->ways = grown;
        out->room = room;
    }
    for (uint32_t i = 0; i < r->link_count; i++) {
        const ty_link_edge *link = &cluster->links[r->links[i]];
        TY_TRY(index_of(l, 2 * (uint64_t)r->links[i] + (link->from != at), &out->ways[out->count],
                        error));
        out->count++;
        at = link->from == at ? link->to : link->from;
    }
    out->latency_s = fmax(out->latency_s, r->latency_s);
    return TY_OK;
}

void route_loads_add(route_loads *l, const route_ways *routes, double weight)
{
    for (uint64_t i = 0; i < routes->count; i++)
        l->loads[routes->ways[i]] += weight;
}

double route_loads_rate(const route_loads *l)
{
    const ty_cluster *cluster = l->router.cluster;
    double rate = HUGE_VAL;

    for (uint32_t i = 0; i < l->count; i++)
        if (l->loads[i] > 0)
            rate = fmin(rate, cluster->links[l->ways[i] / 2].bandwidth_bytes_per_s / l->loads[i]);
    return rate;
}

void route_loads_forget(route_loads *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        l->loads[i] = 0;
}
