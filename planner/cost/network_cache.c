/* An open hash table from questions (kind and devices) to results. Interchangeable devices share an
 * entry: a question consists of their places, if all have one. */
#include "network_cache.h"

#include <stdlib.h>
#include <string.h>

typedef enum question { GROUP, PAIR, SHARED } question;

typedef struct entry {
    uint64_t hash;
    uint32_t word_count;
    uint32_t *words; /* of the question; after the entry */
    ty_group_network network;
    double figures[2];
} entry;

struct ty_network_cache {
    const ty_cluster *cluster;
    entry **slots; /* [slot_count], a power of two; NULL: empty */
    uint32_t slot_count, entry_count;
    size_t bytes;
    uint32_t *words; /* the current question */
    uint32_t word_count, word_room;
    ty_routes *routes;       /* between pairs; NULL: not known yet */
    ty_device_place *places; /* of the cluster's devices; likewise */
    uint32_t *islands;       /* those of the current question */
    uint32_t island_room;
    uint32_t *ranks; /* [device_count]: of an island of the current question, by its first device */
};

#define FIRST_SLOTS 256
#define DEVICE_WORDS 3 /* maximum per device in a question */

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for networks");
}

ty_status ty_network_cache_new(const ty_cluster *cluster, ty_network_cache **out, ty_error *error)
{
    ty_network_cache *cache = ty_alloc(1, sizeof *cache);

    TY_TRY(ty_check_memory(cache != NULL, error));
    cache->cluster = cluster;
    *out = cache;
    return TY_OK;
}

static void entry_free(entry *e)
{
    if (e == NULL)
        return;
    ty_group_network_clear(&e->network);
    ty_free(e);
}

void ty_network_cache_trim(ty_network_cache *cache, size_t bytes)
{
    if (cache->bytes <= bytes)
        return;
    for (uint32_t i = 0; i < cache->slot_count; i++) {
        entry_free(cache->slots[i]);
        cache->slots[i] = NULL;
    }
    cache->entry_count = 0;
    cache->bytes = 0;
}

void ty_network_cache_free(ty_network_cache *cache)
{
    if (cache == NULL)
        return;
    for (uint32_t i = 0; i < cache->slot_count; i++)
        entry_free(cache->slots[i]);
    ty_free(cache->slots);
    ty_free(cache->words);
    ty_routes_free(cache->routes);
    ty_free(cache->places);
    ty_free(cache->islands);
    ty_free(cache->ranks);
    ty_free(cache);
}

const ty_cluster *ty_network_cache_cluster(const ty_network_cache *cache)
{
    return cache->cluster;
}

/* ---- The current question ------------------------------------------------------------------ */

/* A question with up to `most` words. */
static ty_status ask(ty_network_cache *cache, question kind, uint64_t most, ty_error *error)
{
    const uint64_t room = most + 1;

    if (room > cache->word_room) {
        uint32_t *grown = room < UINT32_MAX ? ty_resize(cache->words, room, sizeof *grown) : NULL;
        TY_TRY(ty_check_memory(grown != NULL, error));
        cache->words = grown;
        cache->word_room = (uint32_t)room;
    }
    cache->words[0] = (uint32_t)kind;
    cache->word_count = 1;
    return TY_OK;
}

static void add_words(ty_network_cache *cache, const void *words, uint32_t count)
{
    memcpy(cache->words + cache->word_count, words, count * sizeof *cache->words);
    cache->word_count += count;
}

/* The places of all devices, found when the first question comes. */
static ty_status find_places(ty_network_cache *cache, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(cache->cluster);
    ty_device_place *places;
    ty_status status;

    if (cache->places != NULL)
        return TY_OK;
    if (cache->ranks == NULL && (cache->ranks = ty_alloc(devices, sizeof *cache->ranks)) == NULL)
        return out_of_memory(error);
    TY_TRY(ty_check_memory((places = ty_alloc(devices, sizeof *places)) != NULL, error));
    status = ty_cluster_places(cache->cluster, places, error);
    if (status == TY_OK)
        cache->places = places;
    else
        ty_free(places);
    return status;
}

static int compare_islands(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* Numbers the islands of the current question in their order. */
static ty_status rank_islands(ty_network_cache *cache, const uint32_t *devices, uint32_t count,
                              ty_error *error)
{
    uint32_t found = 0;
    bool has_order = true;

    if (count > cache->island_room) {
        uint32_t *grown = ty_resize(cache->islands, count, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        cache->islands = grown;
        cache->island_room = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t island = cache->places[devices[i]].island;
        if (found > 0 && cache->islands[found - 1] == island)
            continue;
        has_order = has_order && (found == 0 || cache->islands[found - 1] < island);
        cache->islands[found++] = island;
    }
    if (!has_order)
        qsort(cache->islands, found, sizeof *cache->islands, compare_islands);
    for (uint32_t i = 0, rank = 0; i < found; i++) {
        rank += i > 0 && cache->islands[i] != cache->islands[i - 1];
        cache->ranks[cache->islands[i]] = rank;
    }
    return TY_OK;
}

/* Devices as words: their places, or the devices if one has no place. There is room for
 * DEVICE_WORDS of each, and one more. */
static ty_status add_devices(ty_network_cache *cache, const uint32_t *devices, uint32_t count,
                             ty_error *error)
{
    enum { THEMSELVES, AT_ONE_GATE, AT_GATES };
    uint32_t form = AT_ONE_GATE;

    TY_TRY(find_places(cache, error));
    for (uint32_t i = 0; i < count && form != THEMSELVES; i++) {
        if (devices[i] >= ty_cluster_device_count(cache->cluster) ||
            cache->places[devices[i]].kind == TY_NO_PLACE)
            form = THEMSELVES;
        else if (cache->places[devices[i]].gate != cache->places[devices[0]].gate)
            form = AT_GATES;
    }
    cache->words[cache->word_count++] = form;
    if (form == THEMSELVES) {
        add_words(cache, devices, count);
        return TY_OK;
    }
    TY_TRY(rank_islands(cache, devices, count, error));
    for (uint32_t i = 0; i < count; i++) {
        const ty_device_place *place = &cache->places[devices[i]];
        const uint32_t words[] = {place->kind, cache->ranks[place->island], place->gate};
        add_words(cache, words, form == AT_GATES ? 3 : 2);
    }
    return TY_OK;
}

/* Where the question's entry is or would be. */
static entry **slot_of(const ty_network_cache *cache, uint64_t hash)
{
    uint32_t slot = (uint32_t)hash & (cache->slot_count - 1);

    for (;; slot = (slot + 1) & (cache->slot_count - 1)) {
        const entry *e = cache->slots[slot];
        if (e == NULL || (e->hash == hash && e->word_count == cache->word_count &&
                          memcmp(e->words, cache->words, e->word_count * sizeof *e->words) == 0))
            return &cache->slots[slot];
    }
}

/* Makes room for one more entry, with half of the slots empty. */
static ty_status make_room(ty_network_cache *cache, ty_error *error)
{
    const uint32_t count = cache->slot_count == 0 ? FIRST_SLOTS : cache->slot_count * 2;
    entry **slots;

    if ((cache->entry_count + 1) * 2 <= cache->slot_count)
        return TY_OK;
    TY_TRY(ty_check_memory((slots = ty_alloc(count, sizeof(entry *))) != NULL, error));
    for (uint32_t i = 0; i < cache->slot_count; i++) {
        entry *e = cache->slots[i];
        uint32_t slot = e == NULL ? 0 : (uint32_t)e->hash & (count - 1);
        while (e != NULL && slots[slot] != NULL)
            slot = (slot + 1) & (count - 1);
        if (e != NULL)
            slots[slot] = e;
    }
    ty_free(cache->slots);
    cache->slots = slots;
    cache->slot_count = count;
    return TY_OK;
}

/* The entry of the current question, or NULL and its slot. */
static ty_status look_up(ty_network_cache *cache, entry **found, entry ***place, uint64_t *hash,
                         ty_error *error)
{
    TY_TRY(make_room(cache, error));
    /* Fowler, Noll and Vo's mixing on words, folded; only speed depends on it. */
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t w = 0; w < cache->word_count; w++) {
        h = (h ^ cache->words[w]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    *hash = h ^ h >> 32;
    *place = slot_of(cache, *hash);
    *found = **place;
    return TY_OK;
}

/* An entry for the current question, not in the table yet. */
static entry *entry_new(const ty_network_cache *cache, uint64_t hash)
{
    const size_t size = sizeof(entry) + cache->word_count * sizeof(uint32_t);
    entry *e = ty_alloc(1, size);

    if (e == NULL)
        return NULL;
    e->hash = hash;
    e->word_count = cache->word_count;
    e->words = (uint32_t *)(e + 1);
    memcpy(e->words, cache->words, e->word_count * sizeof *e->words);
    return e;
}

static void keep(ty_network_cache *cache, entry **place, entry *e)
{
    *place = e;
    cache->entry_count++;
    cache->bytes += sizeof *e + e->word_count * sizeof *e->words +
                    (size_t)e->network.members * sizeof *e->network.rails.order +
                    (e->network.table != NULL ? sizeof *e->network.table : 0);
}

/* ---- Questions ----------------------------------------------------------------------------- */

ty_status ty_network_of_group(ty_network_cache *cache, const uint32_t *devices, uint32_t count,
                              const ty_group_network **out, ty_error *error)
{
    entry *e = NULL, **place;
    uint64_t hash;

    TY_TRY(ask(cache, GROUP, DEVICE_WORDS * (uint64_t)count + 1, error));
    TY_TRY(add_devices(cache, devices, count, error));
    TY_TRY(look_up(cache, &e, &place, &hash, error));
    if (e == NULL) {
        TY_TRY(ty_check_memory((e = entry_new(cache, hash)) != NULL, error));
        const ty_status status =
            ty_group_network_find(cache->cluster, devices, count, &e->network, error);
        if (status != TY_OK) {
            entry_free(e);
            return status;
        }
        keep(cache, place, e);
    }
    *out = &e->network;
    return TY_OK;
}

ty_status ty_network_of_pair(ty_network_cache *cache, uint32_t from, uint32_t to,
                             double *bandwidth_bytes_per_s, double *latency_s, ty_error *error)
{
    const uint32_t pair[2] = {from, to};
    entry *e = NULL, **place;
    uint64_t hash;

    TY_TRY(ask(cache, PAIR, DEVICE_WORDS * 2 + 1, error));
    TY_TRY(add_devices(cache, pair, 2, error));
    TY_TRY(look_up(cache, &e, &place, &hash, error));
    if (e == NULL) {
        ty_path path;
        if (cache->routes == NULL)
            TY_TRY(ty_routes_new(cache->cluster, &cache->routes, error));
        TY_TRY(ty_routes_find(cache->routes, from, to, &path, error));
        TY_TRY(ty_check_memory((e = entry_new(cache, hash)) != NULL, error));
        e->figures[0] = path.bandwidth_bytes_per_s;
        e->figures[1] = path.latency_s;
        keep(cache, place, e);
    }
    *bandwidth_bytes_per_s = e->figures[0];
    *latency_s = e->figures[1];
    return TY_OK;
}

ty_status ty_network_shared_rate(ty_network_cache *cache, const uint32_t *from, const uint32_t *to,
                                 uint32_t count, double use, double *bytes_per_s, ty_error *error)
{
    enum { USE_WORDS = sizeof use / sizeof(uint32_t) };
    uint32_t *both;
    entry *e = NULL, **place;
    uint64_t hash;
    ty_status status = TY_OK;

    if (count > UINT32_MAX / 2)
        return out_of_memory(error);
    TY_TRY(ty_check_memory((both = ty_alloc(2 * (size_t)count, sizeof *both)) != NULL, error));
    memcpy(both, from, count * sizeof *both);
    memcpy(both + count, to, count * sizeof *both);
    TY_CHECK(ask(cache, SHARED, USE_WORDS + DEVICE_WORDS * 2 * (uint64_t)count + 1, error), status,
             done);
    add_words(cache, &use, USE_WORDS);
    TY_CHECK(add_devices(cache, both, 2 * count, error), status, done);
    TY_CHECK(look_up(cache, &e, &place, &hash, error), status, done);
    if (e == NULL) {
        double rate;
        TY_CHECK(ty_cluster_shared_rate(cache->cluster, from, to, count, use, &rate, error), status,
                 done);
        TY_CHECK(ty_check_memory((e = entry_new(cache, hash)) != NULL, error), status, done);
        e->figures[0] = rate;
        keep(cache, place, e);
    }
    *bytes_per_s = e->figures[0];
done:
    ty_free(both);
    return status;
}
