/* Gradient servers: their shards, against every other placement; files, and invalid plans. */
#include "toy.h"

#include <criterion/criterion.h>
#include <string.h>

/* "data parallel", four replicas, with servers on the devices after the replicas' devices. */
static ty_plan *served_plan(uint32_t servers, ty_server_shard shard)
{
    ty_plan *plan = toy_plan_named("data parallel");

    ty_cluster_free(plan->cluster);
    plan->cluster = host_of(TOY_DEVICES + servers);
    plan->servers.count = servers;
    plan->servers.shard = shard;
    plan->servers.devices = ty_alloc(servers, sizeof *plan->servers.devices);
    for (uint32_t s = 0; s < servers; s++)
        plan->servers.devices[s] = TOY_DEVICES + s;
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        plan->buckets[b].algorithm = TY_PARAMETER_SERVER;
    cr_assert_eq(ty_plan_check(plan, "toy", NULL), TY_OK);
    return plan;
}

static uint64_t elements_of(const ty_bucket *bucket)
{
    return bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
}

Test(servers, have_every_element_once)
{
    for (uint32_t servers = 1; servers <= 9; servers++)
        for (int shard = 0; shard < TY_SERVER_SHARD_COUNT; shard++) {
            ty_plan *plan = served_plan(servers, (ty_server_shard)shard);
            ty_server_map map = {0};
            cr_assert_eq(ty_server_map_make(plan, &map, NULL), TY_OK);
            for (uint32_t b = 0; b < plan->bucket_count; b++) {
                uint64_t at = 0, most = 0;
                for (uint32_t p = map.first_parts[b]; p < map.first_parts[b + 1]; p++) {
                    cr_expect_eq(map.parts[p].first, at, "%u servers, bucket %u", servers, b);
                    cr_expect_gt(map.parts[p].count, 0);
                    cr_expect_lt(map.parts[p].server, servers);
                    most = map.parts[p].count > most ? map.parts[p].count : most;
                    at += map.parts[p].count;
                }
                cr_expect_eq(at, elements_of(&plan->buckets[b]), "%u servers, bucket %u", servers,
                             b);
                if (shard == TY_SHARD_SIZE) { /* within an element of each other */
                    cr_expect_leq(most, (at + servers - 1) / servers);
                    cr_expect_float_eq(ty_server_map_largest_share(&map, b),
                                       (double)most / (double)at, 1e-15);
                }
            }
            ty_server_map_clear(&map);
            ty_plan_free(plan);
        }
}

/* Bytes of the fullest server in the best placement of the toy's tensors: embedding and position
 * rows, two linear layers with a bias each, and a head. */
static uint64_t best_by_force(const uint64_t *tensors, uint32_t count, uint64_t *loads,
                              uint32_t servers)
{
    uint64_t best = UINT64_MAX;

    if (count == 0) {
        for (uint32_t s = 0, any = 1; s < servers; s++, any = 0)
            best = any || loads[s] > best ? loads[s] : best;
        return best;
    }
    for (uint32_t s = 0; s < servers; s++) {
        uint64_t found;
        loads[s] += tensors[0];
        found = best_by_force(tensors + 1, count - 1, loads, servers);
        best = found < best ? found : best;
        loads[s] -= tensors[0];
    }
    return best;
}

/* Tensors are unsharded, except those of more than a fair share; no worse than 4/3 of the best
 * balance. */
Test(servers, are_balanced_by_tensor)
{
    static const uint64_t tensors[] = {32, 12, 16, 4, 16, 4, 32}; /* elements */

    for (uint32_t servers = 1; servers <= 3; servers++) {
        ty_plan *plan = served_plan(servers, TY_SHARD_TENSOR);
        uint64_t loads[3] = {0}, placed[3] = {0}, most = 0, best;
        ty_server_map map = {0};
        cr_assert_eq(ty_server_map_make(plan, &map, NULL), TY_OK);
        for (uint32_t p = 0; p < map.first_parts[plan->bucket_count]; p++)
            placed[map.parts[p].server] += map.parts[p].count;
        for (uint32_t s = 0; s < servers; s++)
            most = placed[s] > most ? placed[s] : most;
        best = best_by_force(tensors, sizeof tensors / sizeof tensors[0], loads, servers);
        cr_expect_leq(3 * most, 4 * best, "%u servers: found %llu, the best is %llu", servers,
                      (unsigned long long)most, (unsigned long long)best);
        ty_server_map_clear(&map);
        ty_plan_free(plan);
    }
}

/* Eight servers: a fair share is 14 elements, and no server has more of one tensor. */
Test(servers, divide_hot_tensors)
{
    ty_plan *plan = served_plan(8, TY_SHARD_TENSOR);
    uint64_t placed[8] = {0};
    ty_server_map map = {0};

    cr_assert_eq(ty_server_map_make(plan, &map, NULL), TY_OK);
    for (uint32_t p = 0; p < map.first_parts[plan->bucket_count]; p++)
        placed[map.parts[p].server] += map.parts[p].count;
    for (uint32_t s = 0; s < 8; s++) {
        cr_expect_gt(placed[s], 0, "server %u", s);
        cr_expect_leq(placed[s], 20, "server %u: %llu", s, (unsigned long long)placed[s]);
    }
    ty_server_map_clear(&map);
    ty_plan_free(plan);
}

/* Before its buckets are chosen, a plan has none. */
Test(servers, have_nothing_of_a_plan_without_buckets)
{
    for (int shard = 0; shard < TY_SERVER_SHARD_COUNT; shard++) {
        ty_plan *plan = served_plan(2, (ty_server_shard)shard);
        const uint32_t bucket_count = plan->bucket_count;
        ty_server_map map = {0};
        plan->bucket_count = 0;
        cr_assert_eq(ty_server_map_make(plan, &map, NULL), TY_OK);
        cr_expect_eq(map.first_parts[0], 0);
        ty_server_map_clear(&map);
        plan->bucket_count = bucket_count;
        ty_plan_free(plan);
    }
}

Test(servers, need_memory_for_their_part_and_what_replicas_send)
{
    const uint64_t landing = (uint64_t)4 * TY_SERVER_WINDOW * TY_SERVER_PIECE_BYTES;
    ty_plan *plan = served_plan(1, TY_SHARD_SIZE);
    ty_server_map map = {0};
    uint64_t largest = 0;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        largest =
            plan->buckets[b].gradient_bytes > largest ? plan->buckets[b].gradient_bytes : largest;
    cr_assert_eq(ty_server_map_make(plan, &map, NULL), TY_OK);
    cr_expect_eq(ty_server_bytes(plan, &map, 0), largest + landing);
    ty_server_map_clear(&map);
    ty_plan_free(plan);
}

/* ---- Files --------------------------------------------------------------------------------- */

Test(servers, go_to_a_file_and_back)
{
    ty_plan *plan = served_plan(2, TY_SHARD_TENSOR), *loaded = NULL, *copy = NULL;
    const char *path = toy_path("servers.json");
    ty_digest digest, other;
    ty_error error = {0};

    cr_assert_eq(ty_plan_save(plan, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_load(path, &loaded, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_copy(loaded, &copy, &error), TY_OK, "%s", error.message);
    cr_expect_eq(copy->servers.count, 2);
    cr_expect_eq(copy->servers.shard, TY_SHARD_TENSOR);
    cr_expect_eq(copy->servers.devices[1], plan->servers.devices[1]);
    cr_expect_eq(ty_plan_launched_count(copy), 6);
    cr_expect_eq(ty_plan_device_of_rank(copy, 5), plan->servers.devices[1]);
    cr_assert_eq(ty_plan_digest(plan, &digest, NULL), TY_OK);
    copy->servers.shard = TY_SHARD_SIZE;
    cr_assert_eq(ty_plan_digest(copy, &other, NULL), TY_OK);
    cr_expect_str_neq(digest.hex, other.hex);
    remove(path);
    ty_plan_free(plan);
    ty_plan_free(loaded);
    ty_plan_free(copy);
}

Test(servers, bad_files_are_refused_with_pointer)
{
    static const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"\"shard\": \"size\"", "\"shard\": \"sizes\"", ":/servers/shard: found \"sizes\""},
        {"\"shard\": \"size\"", "\"shard\": \"size\", \"hosts\": 2", "hosts"},
        {"\"shard\": \"size\"", "\"shards\": \"size\"", "/servers"},
        {"\"servers\": {", "\"servers\": {\"devices\": [],", "/servers/devices"},
        {"\"algorithm\": \"parameter-server\"", "\"algorithm\": \"ring\"",
         ":/buckets/0/algorithm: found \"ring\", expected \"parameter-server\": the plan has"},
    };
    ty_plan *plan = served_plan(2, TY_SHARD_SIZE);
    char *good = toy_plan_json(plan);
    const char *path = toy_path("bad-servers.json");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_plan *loaded = NULL;
        ty_error error = {0};
        toy_write(path, bad);
        cr_expect_eq(ty_plan_load(path, &loaded, &error), TY_EPARSE, "row %zu", i);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    remove(path);
    ty_free(good);
    ty_plan_free(plan);
}

/* ---- Invalid plans ------------------------------------------------------------------------- */

static void on_a_replica(ty_plan *p)
{
    p->servers.devices[1] = p->stages[0].devices[2];
}
static void twice(ty_plan *p)
{
    p->servers.devices[1] = p->servers.devices[0];
}
static void unknown_shard(ty_plan *p)
{
    p->servers.shard = TY_SERVER_SHARD_COUNT;
}
static void by_ring(ty_plan *p)
{
    p->buckets[1].algorithm = TY_RING;
}
static void compressed(ty_plan *p)
{
    p->buckets[1].compression = (ty_compression){.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1};
}
static void sharded(ty_plan *p)
{
    p->zero = 1;
}
static void without_flush(ty_plan *p)
{
    p->schedule = TY_PIPEDREAM;
}
static void with_local_steps(ty_plan *p)
{
    p->workload->local_steps = 4;
}
static void without_devices(ty_plan *p)
{
    ty_free(p->servers.devices);
    p->servers.devices = NULL;
}

Test(servers, flaws_are_refused)
{
    static const struct {
        void (*spoil)(ty_plan *);
        const char *message;
    } rows[] = {
        {on_a_replica, "expected one that neither trains nor is another server"},
        {twice, "toy:/servers/devices/1: found device 8, expected one that neither"},
        {unknown_shard, "toy:/servers/shard: found 2"},
        {by_ring, "toy:/buckets/1/algorithm: found \"ring\", expected \"parameter-server\""},
        {compressed, "toy:/buckets/1/compression: found top-k, expected none, fp16 or bf16"},
        {sharded, "toy:/servers: found 2, expected none: with ZeRO"},
        {without_flush, "toy:/servers: found 2, expected none: that schedule has no flush"},
        {with_local_steps, "toy:/servers: found 2, expected none: replicas take local steps"},
        {without_devices, "toy:/servers/devices: found 2, expected 1 to"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan *plan = served_plan(2, TY_SHARD_SIZE);
        ty_error error = {0};
        rows[i].spoil(plan);
        cr_expect_eq(ty_plan_check(plan, "toy", &error), TY_EPARSE, "row %zu: %s", i,
                     rows[i].message);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_plan_free(plan);
    }
}

Test(servers, need_one_stage_of_replicas)
{
    static const char *const plans[] = {"alone", "pipeline"};
    static const char *const messages[] = {
        "toy:/servers: found 1, expected none: they sum the gradients of at least two",
        "toy:/servers: found 1, expected none: they serve replicas of the entire model"};

    for (size_t i = 0; i < 2; i++) {
        ty_plan *plan = toy_plan_named(plans[i]);
        ty_error error = {0};
        plan->servers.count = 1;
        plan->servers.devices = ty_alloc(1, sizeof *plan->servers.devices);
        plan->servers.devices[0] = 9;
        cr_expect_eq(ty_plan_check(plan, "toy", &error), TY_EPARSE, "%s", messages[i]);
        cr_expect_not_null(strstr(error.message, messages[i]), "%s", error.message);
        ty_plan_free(plan);
    }
}
