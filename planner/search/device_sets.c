/* Sets of devices that a plan may use, the others idle. If the batch does not divide by the
 * devices, or communication costs more than they gain, fewer devices can be faster: whole hosts of
 * one kind, or devices of one host. */
#include "candidate.h"
#include "cost/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Up to here every number of hosts is evaluated; above it, only numbers with many divisors. */
#define FEW_HOSTS 8
/* The largest of these, in addition to the powers of two. */
#define MOST_NICE 3
/* Number of host kinds with sets of their own: those with the most devices. */
#define MOST_KINDS 3

/** Interchangeable hosts: equal in number and kind of devices and, if routes distinguish them, in
 * links.
 */
typedef struct host_kind {
    const ty_device_type *type;
    uint32_t per_host, place;
    uint32_t hosts;
} host_kind;

typedef struct set_list {
    device_set *sets;
    uint32_t count, room;
} set_list;

/** Inputs of the sets. */
typedef struct pool {
    const ty_cluster *cluster;
    const ty_device_place *places; /* NULL: links do not count */
    const bool *is_taken;          /* [devices]: by servers, or on the host of one */
    uint32_t left;                 /* devices that are not */
    bool may_idle;                 /* plans may use fewer of them */
} pool;

void ty_device_sets_free(device_set *sets, uint32_t count)
{
    for (uint32_t i = 0; sets != NULL && i < count; i++) {
        ty_free(sets[i].devices);
        ty_free(sets[i].name);
    }
    ty_free(sets);
}

/* Takes ownership of the devices, also on failure. */
static ty_status add_set(set_list *list, uint32_t *devices, uint32_t count, bool is_spare,
                         ty_error *error)
{
    if (list->count == list->room) {
        const uint32_t room = 2 * list->room + 8;
        device_set *more = ty_resize(list->sets, room, sizeof *more);
        if (more == NULL) {
            ty_free(devices);
            return out_of_memory(error);
        }
        list->sets = more;
        list->room = room;
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (list->sets[i].count == count &&
            memcmp(list->sets[i].devices, devices, count * sizeof *devices) == 0) {
            ty_free(devices);
            return TY_OK;
        }
    list->sets[list->count++] =
        (device_set){.count = count, .devices = devices, .is_spare = is_spare};
    return TY_OK;
}

static ty_status add_all(const pool *from, set_list *list, ty_error *error)
{
    uint32_t *devices = ty_alloc(from->left, sizeof *devices);
    uint32_t count = 0;

    TY_TRY(ty_check_memory(devices != NULL, error));
    for (uint32_t d = 0; count < from->left; d++)
        if (!from->is_taken[d])
            devices[count++] = d;
    return add_set(list, devices, count, false, error);
}

/* ---- Kinds of hosts ------------------------------------------------------------------------ */

static bool is_alike(const host_kind *a, const host_kind *b)
{
    return a->type == b->type && a->per_host == b->per_host && a->place == b->place;
}

static int by_devices(const void *left, const void *right)
{
    const host_kind *a = left, *b = right;
    const uint64_t x = (uint64_t)a->hosts * a->per_host, y = (uint64_t)b->hosts * b->per_host;

    return (x < y) - (x > y);
}

/* The kind that a host has, by its devices, which are numbered host by host. `first` is its first.
 */
static host_kind kind_of_host(const pool *from, uint32_t first)
{
    const ty_cluster *cluster = from->cluster;
    const uint32_t host = ty_cluster_device_host(cluster, first);
    host_kind kind = {.type = ty_cluster_device_type(cluster, first),
                      .place = from->places == NULL ? 0 : from->places[first].kind,
                      .hosts = 1};

    for (uint32_t d = first;
         d < ty_cluster_device_count(cluster) && ty_cluster_device_host(cluster, d) == host; d++) {
        if (ty_cluster_device_type(cluster, d) != kind.type)
            kind.type = NULL; /* of several types: only in plans for all devices */
        kind.per_host++;
    }
    if (from->is_taken[first])
        kind.type = NULL; /* no device trains there */
    return kind;
}

/* The kinds with the most devices. @return their number */
static uint32_t find_kinds(const pool *from, host_kind out[MOST_KINDS])
{
    enum { KNOWN = 64 }; /* that many kinds are distinguished; hosts of others have none */
    host_kind kinds[KNOWN];
    uint32_t count = 0, kept;

    for (uint32_t d = 0; d < ty_cluster_device_count(from->cluster);) {
        const host_kind kind = kind_of_host(from, d);
        uint32_t k = 0;
        while (k < count && !is_alike(&kinds[k], &kind))
            k++;
        if (kind.type != NULL && k < count)
            kinds[k].hosts++;
        else if (kind.type != NULL && count < KNOWN)
            kinds[count++] = kind;
        d += kind.per_host;
    }
    qsort(kinds, count, sizeof *kinds, by_devices);
    kept = count < MOST_KINDS ? count : MOST_KINDS;
    memcpy(out, kinds, kept * sizeof *out);
    return kept;
}

/* The first devices, `each`, of the first hosts of a kind. */
static ty_status add_share(const pool *from, const host_kind *kind, uint32_t hosts, uint32_t each,
                           bool is_spare, set_list *list, ty_error *error)
{
    const uint32_t count = hosts * each;
    uint32_t *devices = ty_alloc(count, sizeof *devices);
    uint32_t found = 0;

    TY_TRY(ty_check_memory(devices != NULL, error));
    for (uint32_t d = 0; found < count;) {
        const host_kind here = kind_of_host(from, d);
        for (uint32_t i = 0; is_alike(&here, kind) && i < each && found < count; i++)
            devices[found++] = d + i;
        d += here.per_host;
    }
    return add_set(list, devices, count, is_spare, error);
}

static ty_status add_hosts(const pool *from, const host_kind *kind, uint32_t hosts, bool is_spare,
                           set_list *list, ty_error *error)
{
    return add_share(from, kind, hosts, kind->per_host, is_spare, list, error);
}

/* ---- How many -------------------------------------------------------------------------------- */

/* Whether a number divides a batch, or has only small factors, which batches and parallel sizes
 * share. */
static bool divides_well(uint32_t devices, uint32_t batch)
{
    static const uint32_t factors[] = {2, 3, 5};

    if (batch % devices == 0)
        return true;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        while (devices % factors[i] == 0)
            devices /= factors[i];
    return devices == 1;
}

static ty_status add_kind(const pool *from, const host_kind *kind, uint32_t batch, set_list *list,
                          ty_error *error)
{
    const bool all_divide = divides_well(kind->hosts * kind->per_host, batch);
    uint32_t nice = 0;

    if (kind->hosts * kind->per_host < from->left)
        TY_TRY(add_hosts(from, kind, kind->hosts, false, list, error));
    for (uint32_t hosts = kind->hosts - 1; hosts > 0; hosts--) {
        const bool is_nice = nice < MOST_NICE && divides_well(hosts * kind->per_host, batch);
        const bool is_power = (hosts & (hosts - 1)) == 0;
        if (hosts > FEW_HOSTS && !is_power && !is_nice)
            continue;
        nice += is_nice;
        TY_TRY(add_hosts(from, kind, hosts, !is_power && hosts > FEW_HOSTS && all_divide, list,
                         error));
        list->sets[list->count - 1].is_regular = is_power;
    }
    return TY_OK;
}

/* Exactly that many devices: whole hosts of a kind, the first ones of a host, or as many of each of
 * the fewest hosts, such as 64 of the 72 of a rack. */
static ty_status add_fixed(const pool *from, const host_kind *kinds, uint32_t kind_count,
                           uint32_t wanted, set_list *list, ty_error *error)
{
    const ty_cluster *cluster = from->cluster;
    uint32_t *devices;

    for (uint32_t k = 0; k < kind_count; k++)
        if (wanted % kinds[k].per_host == 0 && wanted / kinds[k].per_host <= kinds[k].hosts)
            return add_hosts(from, &kinds[k], wanted / kinds[k].per_host, false, list, error);
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster);) {
        const host_kind kind = kind_of_host(from, d);
        if (kind.per_host < wanted || kind.type == NULL) {
            d += kind.per_host;
            continue;
        }
        TY_TRY(ty_check_memory((devices = ty_alloc(wanted, sizeof *devices)) != NULL, error));
        for (uint32_t i = 0; i < wanted; i++)
            devices[i] = d + i;
        return add_set(list, devices, wanted, false, error);
    }
    for (uint32_t k = 0; k < kind_count; k++)
        for (uint32_t hosts = 2; hosts <= kinds[k].hosts; hosts++)
            if (wanted % hosts == 0 && wanted / hosts <= kinds[k].per_host)
                return add_share(from, &kinds[k], hosts, wanted / hosts, false, list, error);
    return ty_fail(error, TY_EINVAL,
                   "devices: found %u, expected the same number of each of some hosts of a kind of "
                   "%s, which have up to %u",
                   wanted, ty_cluster_name(cluster), kinds[0].per_host);
}

/* "0-7+16-23", ascending and in the cluster, as ty_pins_read ensures. */
static ty_status add_listed(const pool *from, const ty_pins *o, set_list *list, ty_error *error)
{
    const ty_cluster *cluster = from->cluster;
    uint32_t *devices = ty_alloc(o->devices, sizeof *devices);
    const char *at = o->device_list;
    uint32_t count = 0;

    TY_TRY(ty_check_memory(devices != NULL, error));
    for (bool has_more = true; has_more; at++) {
        char *end;
        unsigned long device = strtoul(at, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : device;
        for (; device <= last && count < o->devices && !from->is_taken[device]; device++)
            devices[count++] = (uint32_t)device;
        at = end;
        has_more = device > last && *at == '+';
    }
    if (count == o->devices)
        return add_set(list, devices, count, false, error);
    ty_free(devices);
    return ty_fail(error, TY_EINVAL, "devices: found '%.*s', expected %u of the %u of %s%s",
                   (int)strspn(o->device_list, "0123456789+-"), o->device_list, o->devices,
                   ty_cluster_device_count(cluster), ty_cluster_name(cluster),
                   o->servers > 0 ? " that no server has" : "");
}

/* Fewer devices than a host has. CPUs stay together: they share the cores of their host. */
static ty_status add_parts(const pool *from, const host_kind *kinds, uint32_t kind_count,
                           uint32_t batch, set_list *list, ty_error *error)
{
    uint32_t nice = 0;
    ty_status status = TY_OK;

    if (kind_count == 0 || kinds[0].type->core_share > 0)
        return TY_OK;
    for (uint32_t n = kinds[0].per_host - 1; status == TY_OK && n > 0 && n < kinds[0].per_host;
         n--) {
        const bool is_nice = nice < MOST_NICE && divides_well(n, batch);
        if (n > FEW_HOSTS && (n & (n - 1)) != 0 && !is_nice)
            continue;
        nice += is_nice;
        const uint32_t before = list->count;
        status = add_fixed(from, kinds, 1, n, list, error);
        if (list->count > before)
            list->sets[before].is_regular = true;
    }
    return status;
}

static ty_status propose(pool *from, const ty_pins *o, uint32_t batch, set_list *list,
                         ty_error *error)
{
    const ty_cluster *cluster = from->cluster;
    host_kind kinds[MOST_KINDS];
    ty_device_place *places = NULL;
    uint32_t kind_count = find_kinds(from, kinds);
    ty_status status = TY_OK;

    if (o->device_list != NULL)
        return add_listed(from, o, list, error);
    if (o->devices > from->left)
        return ty_fail(error, TY_EINVAL, "devices: found %u, %s has %u%s", o->devices,
                       ty_cluster_name(cluster), from->left,
                       from->left < ty_cluster_device_count(cluster) ? " beside its servers" : "");
    if (ty_is_pinned(o, TY_AXIS(DEVICES)) && o->devices < from->left && kind_count > 0)
        return add_fixed(from, kinds, kind_count, o->devices, list, error);
    if (ty_is_pinned(o, TY_AXIS(DEVICES)) && o->devices != from->left)
        return ty_fail(error, TY_EINVAL, "devices: found %u, %s has %u", o->devices,
                       ty_cluster_name(cluster), from->left);
    TY_CHECK(add_all(from, list, error), status, done);
    if (!from->may_idle || ty_is_pinned(o, TY_AXIS(DEVICES)))
        goto done;
    if (ty_cluster_host_count(cluster) == 1)
        goto parts;
    for (uint32_t k = 0; k < kind_count; k++)
        TY_CHECK(add_kind(from, &kinds[k], batch, list, error), status, done);
    TY_CHECK(
        ty_check_memory(
            (places = ty_alloc(ty_cluster_device_count(cluster), sizeof *places)) != NULL, error),
        status, done);
    TY_CHECK(ty_cluster_places(cluster, places, error), status, done);
    from->places = places;
    kind_count = find_kinds(from, kinds);
    for (uint32_t k = 0; k < kind_count; k++)
        TY_CHECK(add_kind(from, &kinds[k], batch, list, error), status, done);
parts:
    if (o->servers == 0 && o->actors == 0)
        status = add_parts(from, kinds, kind_count, batch, list, error);
done:
    from->places = NULL;
    ty_free(places);
    return status;
}

ty_status ty_device_sets_propose(const ty_cluster *cluster, const ty_pins *o, bool may_idle,
                                 const uint32_t *servers, uint32_t batch, device_set **sets,
                                 uint32_t *count, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(cluster);
    const bool has_hosts = ty_cluster_host_count(cluster) > 1;
    bool *is_taken = ty_alloc(devices, sizeof *is_taken);
    pool from = {.cluster = cluster, .is_taken = is_taken, .may_idle = may_idle};
    set_list list = {0};
    ty_status status;

    TY_TRY(ty_check_memory(is_taken != NULL, error));
    for (uint32_t s = 0; s < o->servers; s++) {
        const uint32_t host = ty_cluster_device_host(cluster, servers[s]);
        is_taken[servers[s]] = true;
        for (uint32_t d = 0; has_hosts && d < devices; d++)
            is_taken[d] = is_taken[d] || ty_cluster_device_host(cluster, d) == host;
    }
    for (uint32_t a = 0; a < o->actors; a++)
        is_taken[ty_actor_device(cluster, o, a)] = true;
    for (uint32_t d = 0; d < devices; d++)
        from.left += !is_taken[d];
    status = propose(&from, o, batch, &list, error);
    ty_free(is_taken);
    if (status != TY_OK) {
        ty_device_sets_free(list.sets, list.count);
        return status;
    }
    *sets = list.sets;
    *count = list.count;
    return TY_OK;
}

uint32_t ty_actor_device(const ty_cluster *cluster, const ty_pins *o, uint32_t actor)
{
    return ty_cluster_device_count(cluster) - o->actors + actor;
}

/* ---- Servers --------------------------------------------------------------------------------- */

/* A device that may be a server: the first of its host, or any on a single host. */
typedef struct place {
    uint32_t device;
    double flop_per_s;
} place;

/* Slow ones first; of equal ones the last. */
static int by_worth(const void *left, const void *right)
{
    const place *a = left, *b = right;

    if (a->flop_per_s < b->flop_per_s || a->flop_per_s > b->flop_per_s)
        return a->flop_per_s < b->flop_per_s ? -1 : 1;
    return (a->device < b->device) - (a->device > b->device);
}

static double fastest_flop_per_s(const ty_device_type *type)
{
    double fastest = 0;

    for (int p = 0; p < TY_PRECISION_COUNT; p++)
        fastest = fmax(fastest, ty_device_peak(type, (ty_precision)p));
    return fastest;
}

ty_status ty_server_devices(const ty_cluster *cluster, uint32_t wanted, uint32_t *devices,
                            ty_error *error)
{
    const uint32_t all = ty_cluster_device_count(cluster);
    const bool has_hosts = ty_cluster_host_count(cluster) > 1;
    place *places = ty_alloc(all, sizeof *places);
    uint32_t count = 0;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(places != NULL, error));
    for (uint32_t d = 0; d < all; d++)
        if (!has_hosts || d == 0 ||
            ty_cluster_device_host(cluster, d) != ty_cluster_device_host(cluster, d - 1))
            places[count++] = (place){d, fastest_flop_per_s(ty_cluster_device_type(cluster, d))};
    qsort(places, count, sizeof *places, by_worth);
    if (wanted >= count)
        status = ty_fail(error, TY_EINVAL,
                         "servers: found %u, expected fewer than the %u %s of %s, of which others "
                         "train",
                         wanted, count, has_hosts ? "hosts" : "devices", ty_cluster_name(cluster));
    for (uint32_t s = 0; s < wanted && status == TY_OK; s++)
        devices[s] = places[s].device;
    ty_free(places);
    return status;
}

double ty_device_set_bound_s(const search_question *q, const device_set *set)
{
    const ty_workload *w = q->workload;
    double flop = ty_workload_forward_flop(w, 0, w->layer_count) * q->global_batch, rate = 0;

    for (uint32_t d = 0; d < set->count; d++)
        rate += fastest_flop_per_s(ty_cluster_device_type(q->cluster, set->devices[d]));
    return rate > 0 && q->profile == NULL ? flop / rate
                                          : 0; /* a measured collective may be faster */
}
