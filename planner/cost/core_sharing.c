/*
 * Fluid sharing of cores. Rates change only when work starts or ends; hosts with such changes are
 * recorded, and their rates adjusted once before time advances.
 */
#include "core_sharing.h"

#define NONE UINT32_MAX

struct ty_sharing_host {
    double cores, rate;
    uint32_t first_use;
    bool can_be_short, is_changed;
};

struct ty_sharing_work {
    double remaining_s; /* at rate 1, as of `updated_s` */
    double rate, updated_s;
    uint32_t first_use;
};

struct ty_sharing_use_node {
    uint32_t slot, host;
    uint32_t next_of_slot; /* also the list of free nodes */
    uint32_t next_of_host, previous_of_host;
    double core_share;
};

ty_status ty_sharing_init(ty_sharing *sharing, uint32_t slots, uint32_t uses, uint32_t hosts,
                          const double *host_cores, const double *host_demand, ty_error *error)
{
    ty_sharing made = {.free_node = NONE};
    ty_status status = TY_OK;

    TY_CHECK(ty_event_heap_init(&made.ends, slots, error), status, cleanup);
    made.works = ty_alloc(slots, sizeof *made.works);
    made.hosts = ty_alloc(hosts, sizeof *made.hosts);
    made.nodes = ty_alloc(uses, sizeof *made.nodes);
    made.changed = ty_alloc(hosts, sizeof *made.changed);
    TY_CHECK(ty_check_memory(made.works != NULL && made.hosts != NULL && made.nodes != NULL &&
                                 made.changed != NULL,
                             error),
             status, cleanup);
    for (uint32_t h = 0; h < hosts; h++)
        made.hosts[h] = (ty_sharing_host){.cores = host_cores[h],
                                          .rate = 1,
                                          .first_use = NONE,
                                          .can_be_short = host_demand[h] > host_cores[h]};
    for (uint32_t n = uses; n > 0; n--) {
        made.nodes[n - 1].next_of_slot = made.free_node;
        made.free_node = n - 1;
    }
    *sharing = made;
    made = (ty_sharing){0};

cleanup:
    ty_sharing_clear(&made);
    return status;
}

void ty_sharing_clear(ty_sharing *sharing)
{
    ty_event_heap_clear(&sharing->ends);
    ty_free(sharing->works);
    ty_free(sharing->hosts);
    ty_free(sharing->nodes);
    ty_free(sharing->changed);
    *sharing = (ty_sharing){0};
}

static void mark_changed(ty_sharing *sharing, uint32_t host)
{
    if (sharing->hosts[host].is_changed)
        return;
    sharing->hosts[host].is_changed = true;
    sharing->changed[sharing->changed_count++] = host;
}

void ty_sharing_start(ty_sharing *sharing, uint32_t slot, double seconds)
{
    sharing->works[slot] = (ty_sharing_work){
        .remaining_s = seconds, .rate = 1, .updated_s = sharing->now_s, .first_use = NONE};
    ty_event_heap_set(&sharing->ends, slot, sharing->now_s + seconds);
}

void ty_sharing_use(ty_sharing *sharing, uint32_t slot, uint32_t host, double core_share)
{
    ty_sharing_host *h = &sharing->hosts[host];
    uint32_t n = sharing->free_node;
    ty_sharing_use_node *node = &sharing->nodes[n];

    if (!h->can_be_short)
        return;
    sharing->free_node = node->next_of_slot;
    *node = (ty_sharing_use_node){.slot = slot,
                                  .host = host,
                                  .next_of_slot = sharing->works[slot].first_use,
                                  .next_of_host = h->first_use,
                                  .previous_of_host = NONE,
                                  .core_share = core_share};
    sharing->works[slot].first_use = n;
    if (h->first_use != NONE)
        sharing->nodes[h->first_use].previous_of_host = n;
    h->first_use = n;
    mark_changed(sharing, host);
}

static void release_uses(ty_sharing *sharing, uint32_t slot)
{
    uint32_t next;

    for (uint32_t n = sharing->works[slot].first_use; n != NONE; n = next) {
        ty_sharing_use_node *node = &sharing->nodes[n];
        next = node->next_of_slot;
        if (node->previous_of_host == NONE)
            sharing->hosts[node->host].first_use = node->next_of_host;
        else
            sharing->nodes[node->previous_of_host].next_of_host = node->next_of_host;
        if (node->next_of_host != NONE)
            sharing->nodes[node->next_of_host].previous_of_host = node->previous_of_host;
        mark_changed(sharing, node->host);
        node->next_of_slot = sharing->free_node;
        sharing->free_node = n;
    }
    sharing->works[slot].first_use = NONE;
}

/* The slowest of a slot's hosts sets its rate. An unchanged rate is left alone, so that a slot
 * without contention ends exactly at its start plus its seconds. */
static void adjust_slot(ty_sharing *sharing, uint32_t slot)
{
    ty_sharing_work *work = &sharing->works[slot];
    double rate = 1;

    for (uint32_t n = work->first_use; n != NONE; n = sharing->nodes[n].next_of_slot)
        if (sharing->hosts[sharing->nodes[n].host].rate < rate)
            rate = sharing->hosts[sharing->nodes[n].host].rate;
    if (rate == work->rate)
        return;
    work->remaining_s -= (sharing->now_s - work->updated_s) * work->rate;
    if (work->remaining_s < 0)
        work->remaining_s = 0; /* rounding */
    work->updated_s = sharing->now_s;
    work->rate = rate;
    ty_event_heap_set(&sharing->ends, slot, sharing->now_s + work->remaining_s / rate);
}

static void adjust_hosts(ty_sharing *sharing)
{
    for (uint32_t i = 0; i < sharing->changed_count; i++) {
        ty_sharing_host *h = &sharing->hosts[sharing->changed[i]];
        double demand = 0;
        for (uint32_t n = h->first_use; n != NONE; n = sharing->nodes[n].next_of_host)
            demand += sharing->nodes[n].core_share;
        h->rate = demand > h->cores ? h->cores / demand : 1;
    }
    for (uint32_t i = 0; i < sharing->changed_count; i++) {
        ty_sharing_host *h = &sharing->hosts[sharing->changed[i]];
        for (uint32_t n = h->first_use; n != NONE; n = sharing->nodes[n].next_of_host)
            adjust_slot(sharing, sharing->nodes[n].slot);
        h->is_changed = false;
    }
    sharing->changed_count = 0;
}

bool ty_sharing_next(ty_sharing *sharing, uint32_t *slot)
{
    const ty_event_heap *ends = &sharing->ends;

    if (ends->count == 0)
        return false;
    if (ends->times[ends->items[0]] > sharing->now_s)
        adjust_hosts(sharing);
    *slot = ty_event_heap_pop(&sharing->ends);
    sharing->now_s = ends->times[*slot];
    release_uses(sharing, *slot);
    return true;
}
