/*
 * Interconnects of groups, pairs and routes from the cache, which evaluates interchangeable devices
 * once, against the cluster's answer for the actual devices: random groups on clusters of equal and
 * unequal hosts, trees, racks, meshes and impaired links.
 */
#include "network_cache.h"
#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static const char *const clusters[] = {
    "6x dgx-a100",
    "5x dgx1-v100",
    "3x dgx-a100 + 2x dgx1-v100",
    "leaf:4 host:3 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2",
    "pod:2 leaf:3 host:2 dgx-h100 oversub:2",
    "2x gb200-nvl72",
    "8x p100-server",
};

/* A cluster whose links of one host may have a tenth of the bandwidth. */
static ty_cluster *open_cluster(const char *text, bool is_impaired, uint64_t *state)
{
    ty_cluster *cluster = NULL;
    ty_text json = {0};
    ty_json_writer writer = ty_json_writer_compact_on(&json);
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, &error), TY_OK, "%s: %s", text,
                 error.message);
    if (!is_impaired)
        return cluster;
    ty_cluster_to_json(cluster, &writer, NULL);
    /* The links at the end of the list belong to the last hosts: reduce the lanes of some
     * (prose-lint: ok). */
    for (int i = 0; i < 4; i++) {
        const size_t links = (size_t)(strstr(json.data, "\"links\": [") - json.data);
        char *at = json.data + links + next_random(state) % (json.length - links - 400);
        const char with[] = "\"lanes\": 0.1, \"from\": ";
        char *from = strstr(at, "\"from\": ");
        const char *end = from == NULL ? NULL : strchr(from, '}');
        size_t before;
        ty_text impaired = {0};
        if (from == NULL || (strstr(from, "lanes") != NULL && strstr(from, "lanes") < end))
            continue;
        if (from > json.data + 12 && strncmp(from - 13, "\"lanes\": 0.1", 12) == 0)
            continue;
        before = (size_t)(from - json.data);
        ty_text_append(&impaired, json.data, before);
        ty_text_add(&impaired, with);
        ty_text_add(&impaired, from + strlen("\"from\": "));
        ty_text_clear(&json);
        json = impaired;
    }
    ty_cluster_free(cluster);
    cluster = NULL;
    cr_assert_eq(ty_cluster_parse(json.data, text, &cluster, &error), TY_OK, "%s: %s", text,
                 error.message);
    ty_text_clear(&json);
    return cluster;
}

/* Devices with a stride, or any distinct ones. */
static uint32_t random_group(const ty_cluster *cluster, uint64_t *state, uint32_t *devices)
{
    const uint32_t all = ty_cluster_device_count(cluster);
    const uint32_t strides[] = {1, 2, 4, 8, all / 2};
    const uint32_t stride = strides[next_random(state) % 5];
    const uint32_t most = (all - 1) / stride + 1;
    const uint32_t count = 2 + (uint32_t)next_random(state) % (most > 12 ? 11 : most - 1);
    const uint32_t first = (uint32_t)next_random(state) % (all - (count - 1) * stride);

    for (uint32_t i = 0; i < count; i++)
        devices[i] = first + i * stride;
    for (uint32_t i = count; next_random(state) % 4 == 0 && i-- > 1;) { /* in another order */
        const uint32_t other = (uint32_t)next_random(state) % (i + 1), swapped = devices[i];
        devices[i] = devices[other];
        devices[other] = swapped;
    }
    return count;
}

static void check_group(ty_network_cache *cache, const ty_cluster *cluster, const uint32_t *devices,
                        uint32_t count, const char *name)
{
    const ty_group_network *found = NULL;
    ty_group_network exact = {0};
    ty_error error = {0};

    cr_assert_eq(ty_network_of_group(cache, devices, count, &found, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_group_network_find(cluster, devices, count, &exact, &error), TY_OK);
    cr_expect(found->members == exact.members && found->groups_per_host == exact.groups_per_host &&
                  found->rails.hosts == exact.rails.hosts &&
                  found->rails.per_host == exact.rails.per_host &&
                  memcmp(found->rails.order, exact.rails.order, count * sizeof(uint32_t)) == 0,
              "%s: %u devices from %u: another shape", name, count, devices[0]);
    cr_expect(memcmp(&found->rails.across_bytes_per_s, &exact.rails.across_bytes_per_s,
                     sizeof(double)) == 0 &&
                  memcmp(&found->rails.bandwidth_bytes_per_s, &exact.rails.bandwidth_bytes_per_s,
                         sizeof(double)) == 0 &&
                  memcmp(&found->rails.exchange_bytes_per_s, &exact.rails.exchange_bytes_per_s,
                         sizeof(double)) == 0 &&
                  memcmp(&found->ring_bandwidth_bytes_per_s, &exact.ring_bandwidth_bytes_per_s,
                         sizeof(double)) == 0 &&
                  memcmp(&found->ring_latency_s, &exact.ring_latency_s, sizeof(double)) == 0,
              "%s: %u devices from %u: %g and %g bytes/s", name, count, devices[0],
              found->rails.bandwidth_bytes_per_s, exact.rails.bandwidth_bytes_per_s);
    cr_expect((found->table == NULL) == (exact.table == NULL));
    if (found->table != NULL && exact.table != NULL)
        cr_expect(memcmp(found->table, exact.table, sizeof *exact.table) == 0, "%s: table", name);
    ty_group_network_clear(&exact);
}

static void check_pair(ty_network_cache *cache, const ty_cluster *cluster, uint32_t from,
                       uint32_t to, const char *name)
{
    double bandwidth, latency, rate, exact_rate;
    ty_path path = {0};
    ty_error error = {0};

    cr_assert_eq(ty_network_of_pair(cache, from, to, &bandwidth, &latency, &error), TY_OK);
    cr_assert_eq(ty_cluster_path(cluster, from, to, &path, &error), TY_OK);
    cr_expect(bandwidth == path.bandwidth_bytes_per_s && latency == path.latency_s,
              "%s: %u to %u: %.17g s and %.17g s", name, from, to, latency, path.latency_s);
    ty_path_clear(&path);
    cr_assert_eq(ty_network_shared_rate(cache, (const uint32_t[]){from, to},
                                        (const uint32_t[]){to, from}, 2, 0.5, &rate, &error),
                 TY_OK);
    cr_assert_eq(ty_cluster_shared_rate(cluster, (const uint32_t[]){from, to},
                                        (const uint32_t[]){to, from}, 2, 0.5, &exact_rate, &error),
                 TY_OK);
    cr_expect(rate == exact_rate, "%s: %u and %u: %g and %g bytes/s", name, from, to, rate,
              exact_rate);
}

Test(networks, are_those_of_the_very_devices)
{
    enum { ROUNDS = 150 };
    uint64_t state = 20261123;
    uint32_t devices[16];

    for (size_t c = 0; c < 2 * sizeof clusters / sizeof *clusters; c++) {
        const char *name = clusters[c / 2];
        ty_cluster *cluster = open_cluster(name, c % 2 == 1, &state);
        ty_network_cache *cache = NULL;
        cr_assert_eq(ty_network_cache_new(cluster, &cache, NULL), TY_OK);
        for (int i = 0; i < ROUNDS; i++) {
            const uint32_t count = random_group(cluster, &state, devices);
            check_group(cache, cluster, devices, count, name);
            check_pair(cache, cluster, devices[0], devices[count - 1], name);
        }
        ty_network_cache_free(cache);
        ty_cluster_free(cluster);
    }
}

/* Equal hosts around a switch have one kind per device index, on every host. A host with a
 * different link is of another kind. */
Test(networks, places_are_told_apart_where_routes_are)
{
    ty_cluster *cluster = NULL;
    ty_device_place places[24];

    cr_assert_eq(ty_cluster_open("3x dgx-a100", NULL, &cluster, NULL), TY_OK);
    cr_assert_eq(ty_cluster_places(cluster, places, NULL), TY_OK);
    for (uint32_t d = 0; d < 24; d++) {
        cr_expect_eq(places[d].kind, places[d % 8].kind);
        cr_expect_eq(places[d].island, d / 8 * 8);
        cr_expect_eq(places[d].gate, places[0].gate);
    }
    cr_expect_neq(places[0].kind, places[1].kind);
    ty_cluster_free(cluster);

    cr_assert_eq(ty_cluster_open("2x dgx-a100 + dgx1-v100", NULL, &cluster, NULL), TY_OK);
    cr_assert_eq(ty_cluster_places(cluster, places, NULL), TY_OK);
    cr_expect_eq(places[0].kind, places[8].kind);
    cr_expect_neq(places[0].kind, places[16].kind);
    ty_cluster_free(cluster);
}

static double inner_s(const ty_group_network *network, const ty_stack *stack, uint32_t chosen)
{
    const ty_inner_collective inner = {.among = TY_EXPERT_PARALLEL,
                                       .kind = TY_ALL_TO_ALL,
                                       .bytes = (uint64_t)chosen << 26,
                                       .count = 2,
                                       .experts = 64,
                                       .chosen = chosen};
    ty_instruction_cost cost;

    cr_assert_eq(ty_group_inner_cost(network, stack, &inner, &cost, NULL), TY_OK);
    return cost.seconds;
}

/* Of a token's eight copies, those for experts on one other host cross the interconnect once, which
 * reduces the bytes of the all-to-all. Nothing changes inside a host, or for one copy. */
Test(networks, tokens_cross_once_for_all_experts_of_a_host)
{
    static const char *const texts[] = {"1x dgx-h100", "2x dgx-h100", "4x dgx-h100"};

    for (size_t c = 0; c < sizeof texts / sizeof *texts; c++) {
        ty_cluster *cluster = NULL;
        ty_stack *stack = NULL;
        ty_group_network network;
        uint32_t devices[32], count, hosts;
        double each_s, once_s;
        cr_assert_eq(ty_cluster_open(texts[c], NULL, &cluster, NULL), TY_OK);
        cr_assert_eq(ty_stack_open("megatron host_link_share=1", &stack, NULL), TY_OK);
        count = ty_cluster_device_count(cluster);
        hosts = ty_cluster_host_count(cluster);
        for (uint32_t d = 0; d < count; d++)
            devices[d] = d;
        cr_assert_eq(ty_group_network_find(cluster, devices, count, &network, NULL), TY_OK);
        each_s = inner_s(&network, stack, 8);
        stack->expert_once = 1;
        once_s = inner_s(&network, stack, 8);
        cr_expect_eq(once_s<each_s, hosts> 1, "%s: %g s, %g s", texts[c], once_s, each_s);
        if (hosts > 1) {
            const ty_inner_collective eight = {.experts = 64, .chosen = 8};
            const double across = 8.0 * (hosts - 1) / hosts;
            const double share = ty_expert_parts_met(&eight, hosts, 0) / across;
            ty_instruction_cost less;
            cr_assert_eq(ty_group_exchange_cost(&network, TY_ALL_TO_ALL, TY_AUTOMATIC,
                                                (uint64_t)(share * (8 << 26)), &less, NULL),
                         TY_OK);
            ty_exchange_by_stack(&network, stack, TY_ALL_TO_ALL, &less);
            cr_expect(fabs(once_s / less.seconds - 1) <= 1e-6, "%s: %g s, expected %g s", texts[c],
                      once_s, less.seconds);
            stack->expert_hosts = 1; /* all experts of a token on one host */
            cr_expect(inner_s(&network, stack, 8) < once_s);
            stack->expert_hosts = 0;
        }
        stack->dispatch_share = 0.5;
        cr_expect(inner_s(&network, stack, 8) < once_s && inner_s(&network, stack, 8) > once_s / 2);
        stack->dispatch_share = 1;
        once_s = inner_s(&network, stack, 1);
        stack->expert_once = 0;
        cr_expect(fabs(once_s / inner_s(&network, stack, 1) - 1) <= 1e-12, "%s", texts[c]);
        ty_group_network_clear(&network);
        ty_stack_free(stack);
        ty_cluster_free(cluster);
    }
}
