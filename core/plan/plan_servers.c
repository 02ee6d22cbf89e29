/* Parameter servers: their parts of the buckets, their memory, and their checks. */
#include "plan_check.h"

#include "ty_base.h"

#include <stdlib.h>
#include <string.h>

static const char *const shard_names[TY_SERVER_SHARD_COUNT] = {
    [TY_SHARD_SIZE] = "size",
    [TY_SHARD_TENSOR] = "tensor",
};

const char *ty_server_shard_name(ty_server_shard shard)
{
    return (unsigned)shard < TY_SERVER_SHARD_COUNT ? shard_names[shard] : "unknown";
}

bool ty_server_can_sum(const ty_compression *compression)
{
    return ty_compression_at(compression->kind)->is_elementwise;
}

/* ---- Parts --------------------------------------------------------------------------------- */

/* A tensor of a bucket, or an equal part of one. */
typedef struct piece {
    uint32_t bucket, server;
    uint64_t first, count;
} piece;

typedef struct piece_list {
    piece *items;
    size_t count, room;
} piece_list;

uint64_t ty_share_start(uint64_t count, uint32_t shares, uint32_t position)
{
    /* Avoids count * position, which may wrap. */
    return count / shares * position + count % shares * position / shares;
}

/* Parts of `count` elements from `first`, each of at most `most`. */
static ty_status pieces_add(piece_list *list, uint32_t bucket, uint64_t first, uint64_t count,
                            uint64_t most, ty_error *error)
{
    const uint32_t parts = count == 0 ? 0 : (uint32_t)((count - 1) / most + 1);

    if (list->count + parts > list->room) {
        const size_t room = 2 * (list->count + parts);
        piece *grown = ty_resize(list->items, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        list->items = grown;
        list->room = room;
    }
    for (uint32_t p = 0; p < parts; p++) {
        const uint64_t from = ty_share_start(count, parts, p);
        list->items[list->count++] = (piece){.bucket = bucket,
                                             .first = first + from,
                                             .count = ty_share_start(count, parts, p + 1) - from};
    }
    return TY_OK;
}

/* A bucket's matrices, and the vectors between them. */
static ty_status pieces_of_tensors(const ty_plan *plan, uint32_t index, uint64_t most,
                                   piece_list *list, ty_error *error)
{
    const ty_bucket *bucket = &plan->buckets[index];
    const uint64_t elements = bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
    const uint32_t count = ty_bucket_matrices(plan, bucket, NULL);
    ty_bucket_matrix *matrices = ty_alloc(count, sizeof *matrices);
    uint64_t at = 0;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(matrices != NULL, error));
    ty_bucket_matrices(plan, bucket, matrices);
    for (uint32_t m = 0; m < count; m++) {
        const uint64_t size = matrices[m].rows * matrices[m].columns;
        TY_CHECK(pieces_add(list, index, at, matrices[m].offset - at, most, error), status, done);
        TY_CHECK(pieces_add(list, index, matrices[m].offset, size, most, error), status, done);
        at = matrices[m].offset + size;
    }
    status = pieces_add(list, index, at, elements - at, most, error);
done:
    ty_free(matrices);
    return status;
}

static int by_place(const void *left, const void *right)
{
    const piece *a = left, *b = right;

    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static int by_size(const void *left, const void *right)
{
    const piece *a = left, *b = right;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return by_place(left, right);
}

/* The largest first, each to the server with the least so far (Graham's rule: at most 4/3 of the
 * best balance, SIAM J. Appl. Math. 17, 1969). */
static ty_status pieces_place(piece_list *list, uint32_t servers, ty_error *error)
{
    uint64_t *loads;

    if (list->count == 0) /* in a plan without buckets so far; qsort does not accept NULL */
        return TY_OK;
    TY_TRY(ty_check_memory((loads = ty_alloc(servers, sizeof *loads)) != NULL, error));
    qsort(list->items, list->count, sizeof *list->items, by_size);
    for (size_t i = 0; i < list->count; i++) {
        uint32_t least = 0;
        for (uint32_t s = 1; s < servers; s++)
            if (loads[s] < loads[least])
                least = s;
        list->items[i].server = least;
        loads[least] += list->items[i].count;
    }
    qsort(list->items, list->count, sizeof *list->items, by_place);
    ty_free(loads);
    return TY_OK;
}

static ty_status pieces_by_tensor(const ty_plan *plan, piece_list *list, ty_error *error)
{
    uint64_t total = 0, fair;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        total += plan->buckets[b].gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
    fair = total / plan->servers.count;
    fair = fair > 0 ? fair : 1;
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        TY_TRY(pieces_of_tensors(plan, b, fair, list, error));
    return pieces_place(list, plan->servers.count, error);
}

static ty_status pieces_by_size(const ty_plan *plan, piece_list *list, ty_error *error)
{
    const uint32_t servers = plan->servers.count;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const uint64_t elements = plan->buckets[b].gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
        for (uint32_t s = 0; s < servers; s++) {
            const uint64_t from = ty_share_start(elements, servers, s);
            const uint64_t to = ty_share_start(elements, servers, s + 1);
            TY_TRY(pieces_add(list, b, from, to - from, UINT64_MAX, error));
            if (to > from)
                list->items[list->count - 1].server = s;
        }
    }
    return TY_OK;
}

/* Merge adjacent parts of one server. */
static ty_status parts_make(const ty_plan *plan, const piece_list *list, ty_server_map *map,
                            ty_error *error)
{
    uint32_t count = 0, bucket = 0;

    map->parts = ty_alloc(list->count, sizeof *map->parts);
    map->first_parts = ty_alloc((size_t)plan->bucket_count + 1, sizeof *map->first_parts);
    TY_TRY(ty_check_memory(map->parts != NULL && map->first_parts != NULL, error));
    for (size_t i = 0; i < list->count; i++) {
        const piece *p = &list->items[i];
        for (; bucket < p->bucket; bucket++)
            map->first_parts[bucket + 1] = count;
        if (count > map->first_parts[bucket] && map->parts[count - 1].server == p->server)
            map->parts[count - 1].count += p->count;
        else
            map->parts[count++] = (ty_server_part){p->server, p->first, p->count};
    }
    for (; bucket < plan->bucket_count; bucket++)
        map->first_parts[bucket + 1] = count;
    return TY_OK;
}

ty_status ty_server_map_make(const ty_plan *plan, ty_server_map *out, ty_error *error)
{
    ty_server_map map = {0};
    piece_list list = {0};
    ty_status status = TY_OK;

    if (plan->servers.count > 0)
        TY_CHECK(plan->servers.shard == TY_SHARD_TENSOR ? pieces_by_tensor(plan, &list, error)
                                                        : pieces_by_size(plan, &list, error),
                 status, cleanup);
    TY_CHECK(parts_make(plan, &list, &map, error), status, cleanup);
    *out = map;
    map = (ty_server_map){0};
cleanup:
    ty_free(list.items);
    ty_server_map_clear(&map);
    return status;
}

void ty_server_map_clear(ty_server_map *map)
{
    ty_free(map->parts);
    ty_free(map->first_parts);
    *map = (ty_server_map){0};
}

/* Elements of a bucket on one server. */
static uint64_t elements_of(const ty_server_map *map, uint32_t bucket, uint32_t server)
{
    uint64_t elements = 0;

    for (uint32_t p = map->first_parts[bucket]; p < map->first_parts[bucket + 1]; p++)
        elements += map->parts[p].server == server ? map->parts[p].count : 0;
    return elements;
}

double ty_server_map_largest_share(const ty_server_map *map, uint32_t bucket)
{
    uint64_t all = 0, most = 0;

    for (uint32_t p = map->first_parts[bucket]; p < map->first_parts[bucket + 1]; p++) {
        const uint64_t here = elements_of(map, bucket, map->parts[p].server);
        all += map->parts[p].count;
        most = here > most ? here : most;
    }
    return all > 0 ? (double)most / (double)all : 0;
}

uint64_t ty_server_bytes(const ty_plan *plan, const ty_server_map *map, uint32_t server)
{
    const uint64_t replicas = plan->stages[0].replicas;
    uint64_t most = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const uint64_t bytes = elements_of(map, b, server) * TY_GRADIENT_ELEMENT_BYTES;
        most = bytes > most ? bytes : most;
    }
    return most + (most > 0 ? replicas * TY_SERVER_WINDOW * TY_SERVER_PIECE_BYTES : 0);
}

/* ---- Checks -------------------------------------------------------------------------------- */

static int compare_devices(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static ty_status check_devices(const plan_checker *c)
{
    const ty_plan_servers *servers = &c->plan->servers;
    const uint32_t replicas = c->plan->stages[0].replicas, count = replicas + servers->count;
    uint32_t *all = ty_alloc(count, sizeof *all), last = servers->count;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(all != NULL, c->error));
    memcpy(all, c->plan->stages[0].devices, replicas * sizeof *all);
    memcpy(all + replicas, servers->devices, servers->count * sizeof *all);
    qsort(all, count, sizeof *all, compare_devices);
    for (uint32_t i = 1; i < count && status == TY_OK; i++) {
        if (all[i] != all[i - 1])
            continue;
        while (servers->devices[--last] != all[i]) { /* replicas have distinct devices */
        }
        status = ty_plan_complain(c,
                                  "/servers/devices/%u: found device %u, expected one that neither "
                                  "trains nor is another server",
                                  last, all[i]);
    }
    ty_free(all);
    return status;
}

static ty_status check_exchanges(const plan_checker *c)
{
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        if (bucket->algorithm != TY_PARAMETER_SERVER)
            return ty_plan_complain(
                c, "/buckets/%u/algorithm: found \"%s\", expected \"%s\": the plan has servers", b,
                ty_algorithm_name(bucket->algorithm), ty_algorithm_name(TY_PARAMETER_SERVER));
        if (!ty_server_can_sum(&bucket->compression))
            return ty_plan_complain(c,
                                    "/buckets/%u/compression: found %s, expected none, fp16 or "
                                    "bf16, of which servers make sums",
                                    b, ty_compression_name(bucket->compression.kind));
    }
    return TY_OK;
}

ty_status ty_plan_check_servers(const plan_checker *c)
{
    const ty_plan *p = c->plan;
    const char *why;

    if (p->servers.count == 0)
        return TY_OK;
    if (p->servers.devices == NULL || p->servers.count > TY_MAX_RANKS)
        return ty_plan_complain(c, "/servers/devices: found %u, expected 1 to %d", p->servers.count,
                                TY_MAX_RANKS);
    if ((unsigned)p->servers.shard >= TY_SERVER_SHARD_COUNT)
        return ty_plan_complain(c, "/servers/shard: found %d, expected a way to divide gradients",
                                (int)p->servers.shard);
    why = ty_plan_refusal(TY_AXIS_SERVERS, p);
    if (why != NULL)
        return ty_plan_complain(c, "/servers: found %u, expected none: %s", p->servers.count, why);
    TY_TRY(check_devices(c));
    return check_exchanges(c);
}
