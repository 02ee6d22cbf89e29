/* Transfers and collectives: closed forms without contention, fair shares with it. */
#include "scenario.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

/* One device per host, so that every message crosses the interconnect. */
#define HOSTS "host:%u gpu:1 @v100-sxm2-16gb nvlink2 edr100"

static ty_cluster *hosts(uint32_t leaves, uint32_t per_leaf, unsigned oversubscribed)
{
    char text[128];
    snprintf(text, sizeof text, "leaf:%u " HOSTS " oversub:%u", leaves, per_leaf, oversubscribed);
    return cluster_of(text);
}

static ty_path path_of(const ty_cluster *cluster, uint32_t from, uint32_t to)
{
    ty_path path = {0};
    ty_error error = {0};
    cr_assert(ty_cluster_path(cluster, from, to, &path, &error) == TY_OK, "%s", error.message);
    return path;
}

/* The cost of a message of `bytes` on a path, without overhead. */
static ty_instruction_cost message_cost(const ty_path *path, double bytes, double limit)
{
    const double rate =
        limit > 0.0 && limit < path->bandwidth_bytes_per_s ? limit : path->bandwidth_bytes_per_s;
    return (ty_instruction_cost){.seconds = path->latency_s + bytes / rate,
                                 .latency_s = path->latency_s,
                                 .edge_bytes = bytes,
                                 .rate_limit_bytes_per_s = limit};
}

/* ---- Transfers ----------------------------------------------------------------------------- */

Test(traffic, a_transfer_alone_takes_latency_and_bytes_over_rate)
{
    static const struct {
        double bytes, limit_share, extra_latency_s;
    } rows[] = {
        {1e9, 0.0, 0.0},  {1e6, 0.0, 0.0},   {1e9, 0.5, 0.0},   {1e9, 0.99, 0.0},
        {1e7, 0.1, 1e-3}, {12345, 0.0, 0.0}, {12345, 0.3, 0.0}, {0.0, 0.0, 0.0},
        {0.0, 0.5, 1e-4}, {1e8, 2.0, 0.0},   {1.0, 0.0, 0.0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        char what[64];
        scenario_open(&s, hosts(1, 2, 1), 2, (const uint32_t[]){1, 1}, 1);
        ty_path path = path_of(s.cluster, 0, 1);
        ty_instruction_cost cost =
            message_cost(&path, rows[i].bytes, rows[i].limit_share * path.bandwidth_bytes_per_s);
        cost.latency_s += rows[i].extra_latency_s;
        cost.seconds += rows[i].extra_latency_s;
        scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, cost);
        scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, cost);
        scenario_close(&s);
        ty_timeline *timeline = scenario_simulate(&s);
        snprintf(what, sizeof what, "%g bytes at %g of the link", rows[i].bytes,
                 rows[i].limit_share);
        expect_close(what, event_of(&s, timeline, 0, 0, 0)->end_s, cost.seconds, 1e-6);
        expect_close(what, event_of(&s, timeline, 0, 1, 0)->end_s, cost.seconds, 1e-6);
        cr_expect_eq(event_of(&s, timeline, 0, 1, 0)->start_s, 0.0, "the receiver was ready at 0");
        ty_timeline_free(timeline);
        ty_path_clear(&path);
        scenario_free(&s);
    }
}

/* Two replicas send to one stage replica, whose link they share. Each alone could use `share` of
 * it. */
Test(traffic, transfers_share_the_receivers_link)
{
    static const struct {
        double share, expected_slowdown; /* relative to bytes over the link's bandwidth */
    } rows[] = {{0.0, 2.0}, {0.75, 2.0}, {0.5, 2.0}, {0.25, 4.0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        const double bytes = 1e10;
        scenario_open(&s, hosts(1, 3, 1), 2, (const uint32_t[]){2, 1}, 2);
        ty_path path = path_of(s.cluster, 0, 2);
        const double bandwidth = path.bandwidth_bytes_per_s;
        const ty_instruction_cost cost = message_cost(&path, bytes, rows[i].share * bandwidth);
        scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, cost);
        scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, cost);
        scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 1), NULL, cost);
        scenario_close(&s);
        ty_timeline *timeline = scenario_simulate(&s);
        for (uint32_t r = 0; r < 2; r++)
            expect_close("send", event_of(&s, timeline, 0, r, 0)->end_s,
                         path.latency_s + rows[i].expected_slowdown * bytes / bandwidth, 1e-3);
        ty_timeline_free(timeline);
        ty_path_clear(&path);
        scenario_free(&s);
    }
}

/* A software limit restricts one transfer to a quarter of the link; the other gets three
 * quarters. */
Test(traffic, a_slow_transfer_leaves_the_rest_of_the_link)
{
    scenario s;
    scenario_open(&s, hosts(1, 3, 1), 3, (const uint32_t[]){1, 1, 1}, 1);
    ty_path path = path_of(s.cluster, 0, 1);
    const double bandwidth = path.bandwidth_bytes_per_s;
    const ty_instruction_cost slow = message_cost(&path, bandwidth, bandwidth / 4.0);
    const ty_instruction_cost fast = message_cost(&path, 1.5 * bandwidth, 0.0);
    scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, slow);
    scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, slow);
    scenario_add(&s, 2, transfer(TY_OP_SEND, TY_GRADIENT, 1, 0), NULL, fast);
    scenario_close(&s);
    ty_timeline *timeline = scenario_simulate(&s);
    expect_close("slow", event_of(&s, timeline, 0, 0, 0)->end_s, 4.0, 1e-3);
    expect_close("fast", event_of(&s, timeline, 0, 2, 0)->end_s, 2.0, 1e-3);
    ty_timeline_free(timeline);
    ty_path_clear(&path);
    scenario_free(&s);
}

/* The two directions of a link are independent. */
Test(traffic, opposite_transfers_do_not_meet)
{
    scenario s;
    scenario_open(&s, hosts(1, 2, 1), 2, (const uint32_t[]){1, 1}, 1);
    ty_path path = path_of(s.cluster, 0, 1);
    const ty_instruction_cost cost = message_cost(&path, 1e9, 0.0);
    scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, cost);
    scenario_add(&s, 0, transfer(TY_OP_RECEIVE, TY_GRADIENT, 1, 0), NULL, cost);
    scenario_add(&s, 1, transfer(TY_OP_SEND, TY_GRADIENT, 0, 0), NULL, cost);
    scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, cost);
    scenario_close(&s);
    ty_timeline *timeline = scenario_simulate(&s);
    for (uint32_t r = 0; r < 2; r++)
        expect_close("receive", event_of(&s, timeline, 0, r, 1)->end_s, cost.seconds, 1e-6);
    ty_timeline_free(timeline);
    ty_path_clear(&path);
    scenario_free(&s);
}

/* Micro-batch m belongs to replica m mod 2 on one side and m mod 3 on the other. */
Test(traffic, unequal_replicas_find_each_other)
{
    enum { MICRO_BATCHES = 6 };
    scenario s;
    scenario_open(&s, hosts(1, 5, 1), 2, (const uint32_t[]){2, 3}, MICRO_BATCHES);
    const double latency_s = 1e-3;
    for (uint32_t k = 0; k < 3; k++) {
        const ty_instruction_cost work = {.seconds = 1.0};
        const uint32_t forward = scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, work);
        scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, k),
                     (const uint32_t[]){forward, TY_NO_INSTRUCTION},
                     (ty_instruction_cost){.seconds = latency_s, .latency_s = latency_s});
    }
    for (uint32_t k = 0; k < 2; k++)
        scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, k), NULL,
                     (ty_instruction_cost){0});
    scenario_close(&s);
    s.options.steps = 2;
    ty_timeline *timeline = scenario_simulate(&s);
    for (uint32_t step = 0; step < 2; step++) {
        for (uint32_t m = 0; m < MICRO_BATCHES; m++) {
            const double sent_s = step * 3.0 + m / 2 + 1.0; /* replica m mod 2 computes it as its
                                                             * (m/2)-th */
            char what[48];
            snprintf(what, sizeof what, "micro-batch %u of step %u", m, step);
            expect_close(what, event_of(&s, timeline, step, 2 + m % 3, m / 3)->end_s,
                         sent_s + latency_s, 1e-6);
        }
    }
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/* ---- Collectives --------------------------------------------------------------------------- */

/*
 * Thakur, Rabenseifner, Gropp 2005, section 3, for n members, S bytes each, latency a, bandwidth B:
 * ring all-reduce 2(n-1) a + 2(n-1)/n S/B; ring all-gather (n-1) (a + S/B); binomial tree, up and
 * down, 2 ceil(log2 n) (a + S/B).
 */
static ty_instruction_cost collective_cost(ty_collective_kind kind, ty_algorithm algorithm,
                                           uint32_t members, double bytes, double bandwidth,
                                           double latency_s)
{
    const double n = members;
    const double rounds = 2.0 * ceil(log2(n));
    ty_instruction_cost cost = {0};

    if (kind == TY_ALL_GATHER) {
        cost.latency_s = (n - 1) * latency_s;
        cost.edge_bytes = (n - 1) * bytes;
    } else if (kind == TY_ALL_TO_ALL) {
        cost.latency_s = (n - 1) * latency_s;
        cost.edge_bytes = (n - 1) / n * bytes;
    } else if (algorithm == TY_RING) {
        cost.latency_s = 2 * (n - 1) * latency_s;
        cost.edge_bytes = 2 * (n - 1) / n * bytes;
    } else {
        cost.latency_s = rounds * latency_s;
        cost.edge_bytes = rounds * bytes;
    }
    cost.seconds = cost.latency_s + cost.edge_bytes / bandwidth;
    return cost;
}

static ty_instruction_cost collective_cost_on(const ty_cluster *cluster, ty_collective_kind kind,
                                              ty_algorithm algorithm, const uint32_t *devices,
                                              uint32_t members, double bytes, double limit_share)
{
    double bandwidth = 0.0, latency_s = 0.0;
    ty_error error = {0};
    cr_assert(ty_cluster_ring(cluster, devices, members, &bandwidth, &latency_s, &error) == TY_OK,
              "%s", error.message);
    const double rate = limit_share > 0.0 ? limit_share * bandwidth : bandwidth;
    ty_instruction_cost cost = collective_cost(kind, algorithm, members, bytes, rate, latency_s);
    cost.rate_limit_bytes_per_s = limit_share > 0.0 ? rate : 0.0;
    return cost;
}

Test(traffic, collectives_alone_equal_their_closed_forms)
{
    static const struct {
        ty_algorithm algorithm;
        ty_compression_kind compression;
        double bytes, limit_share;
    } rows[] = {
        {TY_RING, TY_COMPRESSION_NONE, 1e8, 0.0},    {TY_RING, TY_COMPRESSION_NONE, 1e8, 0.6},
        {TY_RING, TY_COMPRESSION_NONE, 1e4, 0.0},    {TY_RING, TY_COMPRESSION_TOP_K, 1e7, 0.0},
        {TY_TREE, TY_COMPRESSION_NONE, 1e8, 0.0},    {TY_TREE, TY_COMPRESSION_NONE, 1e8, 0.6},
        {TY_TREE, TY_COMPRESSION_NONE, 1e4, 0.0},    {TY_TREE, TY_COMPRESSION_TOP_K, 1e7, 0.0},
        {TY_RING, TY_COMPRESSION_ONE_BIT, 1e7, 0.0},
    };
    static const ty_resolution resolutions[] = {TY_FLOW, TY_CHUNK};
    static const double tolerances[] = {1e-6, 1e-2};
    static const uint32_t devices[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

    for (uint32_t n = 2; n <= 9; n++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            scenario s;
            scenario_open(&s, hosts(1, n, 1), 1, &n, n);
            const uint32_t bucket = scenario_bucket(&s, 0, rows[i].algorithm, rows[i].compression);
            const ty_collective_kind kind =
                ty_compression_collective(&s.buckets[bucket].compression, 0);
            const ty_instruction_cost cost = collective_cost_on(
                s.cluster, kind, rows[i].algorithm, devices, n, rows[i].bytes, rows[i].limit_share);
            scenario_add(&s, 0, exchange(bucket), NULL, cost);
            scenario_close(&s);
            s.options.steps = 2;
            for (int r = 0; r < 2; r++) {
                char what[96];
                s.options.resolution = resolutions[r];
                ty_timeline *timeline = scenario_simulate(&s);
                snprintf(what, sizeof what, "%s of %g bytes among %u, %s, limit %g",
                         ty_algorithm_name(rows[i].algorithm), rows[i].bytes, n,
                         r == 0 ? "flow" : "chunk", rows[i].limit_share);
                for (uint32_t q = 0; q < n; q++) {
                    expect_close(what, event_of(&s, timeline, 0, q, 0)->end_s, cost.seconds,
                                 tolerances[r]);
                    expect_close(what, event_of(&s, timeline, 1, q, 0)->end_s, 2 * cost.seconds,
                                 tolerances[r]);
                }
                ty_timeline_free(timeline);
            }
            scenario_free(&s);
        }
    }
}

Test(traffic, a_collective_starts_with_its_last_member)
{
    scenario s;
    scenario_open(&s, hosts(1, 3, 1), 2, (const uint32_t[]){2, 1}, 2);
    s.buckets[scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE)].tied_stage = 1;
    const ty_instruction_cost cost = collective_cost_on(s.cluster, TY_ALL_REDUCE, TY_RING,
                                                        (const uint32_t[]){0, 1, 2}, 3, 1e8, 0.0);
    for (uint32_t stage = 0; stage < 2; stage++) {
        const uint32_t forward = scenario_add(&s, stage, op(TY_OP_FORWARD), NULL,
                                              (ty_instruction_cost){.seconds = 1.0 + stage});
        scenario_add(&s, stage, exchange(0), (const uint32_t[]){forward, TY_NO_INSTRUCTION}, cost);
    }
    scenario_close(&s);
    ty_timeline *timeline = scenario_simulate(&s);
    for (uint32_t r = 0; r < 3; r++) {
        const ty_event *event = event_of(&s, timeline, 0, r, 1);
        expect_close("ready", event->start_s, r < 2 ? 1.0 : 2.0, 1e-6);
        expect_close("done", event->end_s, 2.0 + cost.seconds, 1e-6);
    }
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/* Latency determines the number of steps of rings in channels. Members with different costs take
 * the same number, and a collective after one of other latency does not wait for steps that no
 * member takes. */
Test(traffic, channels_agree_on_their_steps)
{
    static const double latencies_s[][2] = {{1e-3, 2e-5}, {2e-5, 1e-3}, {0.0, 1e-3}};

    for (size_t i = 0; i < sizeof latencies_s / sizeof *latencies_s; i++) {
        scenario s;
        scenario_open(&s, hosts(1, 8, 1), 2, (const uint32_t[]){4, 4}, 4);
        const uint32_t tied = scenario_bucket(&s, 0, TY_AUTOMATIC, TY_COMPRESSION_NONE);
        const uint32_t own = scenario_bucket(&s, 0, TY_AUTOMATIC, TY_COMPRESSION_NONE);
        s.buckets[tied].tied_stage = 1;
        for (uint32_t k = 0; k < 2; k++) {
            const double latency_s = latencies_s[i][k];
            const ty_instruction_cost cost = {
                .seconds = latency_s + 1e-3, .latency_s = latency_s, .edge_bytes = 1e7};
            scenario_add(&s, k, exchange(tied), NULL, cost);
            scenario_add(&s, 0, exchange(own), NULL, cost);
        }
        scenario_close(&s);
        s.options.resolution = TY_CHUNK;
        ty_timeline *timeline = scenario_simulate(&s);
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t k = 0; k < 2; k++) {
                const ty_event *event = event_of(&s, timeline, 0, r, 1 + k);
                cr_expect(event->end_s - event->start_s >= latencies_s[i][k] + 7e-4,
                          "took %g s with a latency of %g s", event->end_s - event->start_s,
                          latencies_s[i][k]);
            }
        ty_timeline_free(timeline);
        scenario_free(&s);
    }
}

/* Two leaves of two hosts; the uplink of either carries half of a host's traffic. Each ring has a
 * member on both sides. */
Test(traffic, two_rings_over_one_uplink_take_twice)
{
    static const ty_resolution resolutions[] = {TY_FLOW, TY_CHUNK};

    for (int r = 0; r < 2; r++) {
        double ends_s[2];
        for (int rings = 1; rings <= 2; rings++) {
            scenario s;
            scenario_open(&s, hosts(2, 2, 4), 2, (const uint32_t[]){2, 2}, 2);
            for (uint32_t stage = 0; stage < 2; stage++) {
                s.stages[stage].devices[0] = stage;
                s.stages[stage].devices[1] = 2 + stage;
                const uint32_t bucket = scenario_bucket(&s, stage, TY_RING, TY_COMPRESSION_NONE);
                if (stage < (uint32_t)rings)
                    scenario_add(&s, stage, exchange(bucket), NULL,
                                 collective_cost_on(s.cluster, TY_ALL_REDUCE, TY_RING,
                                                    s.stages[stage].devices, 2, 1e9, 0.0));
            }
            scenario_close(&s);
            s.options.resolution = resolutions[r];
            ty_timeline *timeline = scenario_simulate(&s);
            ends_s[rings - 1] = event_of(&s, timeline, 0, 0, 0)->end_s;
            if (rings == 1)
                expect_close("one ring", ends_s[0], s.cost_rows[0][0].seconds, 1e-6);
            else
                expect_close("second ring", event_of(&s, timeline, 0, 2, 0)->end_s, ends_s[1],
                             1e-6);
            ty_timeline_free(timeline);
            scenario_free(&s);
        }
        expect_close(r == 0 ? "flow" : "chunk", ends_s[1] / ends_s[0], 2.0, 1e-3);
    }
}

/* Four ranks per stage replica behind one NIC: each rank sends a quarter of a transfer, and of the
 * rings of a collective. If every rank has its own NIC, the time is that of a single rank. */
Test(traffic, ranks_share_what_their_routes_share)
{
    static const struct {
        const char *cluster;
        uint32_t away; /* first device of the second stage replica */
        double slowdown;
    } rows[] = {{"2x p100-server", 4, 4.0}, {"2x dgx-h100", 8, 1.0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int variant = 0; variant < 6; variant++) {
            const bool is_send = variant % 2 == 0, is_tree = variant / 2 == 2;
            const double bytes = 1e9;
            const uint32_t counts[] = {is_send ? 1 : 2, 1};
            scenario s;
            scenario_open(&s, cluster_of(rows[i].cluster), is_send ? 2 : 1, counts, 2);
            s.plan.tensor_parallel = 4;
            for (uint32_t stage = 0; stage < s.plan.stage_count; stage++) {
                ty_free(s.stages[stage].devices);
                s.stages[stage].devices = ty_alloc(8, sizeof(uint32_t));
                for (uint32_t d = 0; d < 8; d++)
                    s.stages[stage].devices[d] =
                        (d + 4 * stage) % 8 < 4 ? d % 4 : rows[i].away + d % 4;
            }
            ty_path path = path_of(s.cluster, 0, rows[i].away);
            const ty_instruction_cost cost = message_cost(&path, bytes, 0.0);
            if (is_send) {
                scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, cost);
                scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, cost);
            } else {
                const uint32_t bucket =
                    scenario_bucket(&s, 0, is_tree ? TY_TREE : TY_RING, TY_COMPRESSION_NONE);
                scenario_add(&s, 0, exchange(bucket), NULL, cost);
            }
            scenario_close(&s);
            s.options.no_fold = variant / 2 == 1;
            ty_timeline *timeline = scenario_simulate(&s);
            expect_close(rows[i].cluster, event_of(&s, timeline, 0, 0, 0)->end_s,
                         path.latency_s + rows[i].slowdown * bytes / path.bandwidth_bytes_per_s,
                         1e-3);
            ty_timeline_free(timeline);
            ty_path_clear(&path);
            scenario_free(&s);
        }
    }
}

static ty_timeline *two_sends(scenario *s, const char *cluster, const uint32_t devices[4],
                              bool no_fold, bool is_together)
{
    /* Stages 0 and 1, 2 and 3: a sender and its receiver each. */
    scenario_open(s, cluster_of(cluster), 4, (const uint32_t[]){1, 1, 1, 1}, 1);
    for (uint32_t stage = 0; stage < 4; stage++)
        s->stages[stage].devices[0] = devices[stage];
    for (uint32_t stage = 0; stage < 4; stage += 2) {
        ty_path path = path_of(s->cluster, devices[stage], devices[stage + 1]);
        const ty_instruction_cost cost = message_cost(&path, 1e9, 0.0);
        ty_path_clear(&path);
        if (stage > 0 && !is_together)
            continue;
        scenario_add(s, stage, transfer(TY_OP_SEND, TY_ACTIVATION, stage + 1, 0), NULL, cost);
        scenario_add(s, stage + 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, stage, 0), NULL, cost);
    }
    scenario_close(s);
    s->options.no_fold = no_fold;
    return scenario_simulate(s);
}

/* Two transfers that share a link slow down by its missing bandwidth, from the count of flows per
 * link. With a link for each, nothing changes. */
Test(traffic, what_is_shared_slows_down)
{
    static const struct {
        const char *what, *cluster;
        uint32_t devices[4];
        bool is_shared;
    } rows[] = {
        {"one adapter of a host", "2x p100-server", {0, 4, 1, 5}, true},
        {"an adapter each", "2x dgx-a100", {0, 8, 1, 9}, false},
        {"a leaf's uplink, 4 to 1",
         "leaf:2 host:4 gpu:1 @v100-sxm2-16gb nvlink2 edr100 oversub:4",
         {0, 4, 1, 5},
         true},
        {"a leaf's uplink, 1 to 1",
         "leaf:2 host:4 gpu:1 @v100-sxm2-16gb nvlink2 edr100",
         {0, 4, 1, 5},
         false},
        {"within leaves",
         "leaf:2 host:4 gpu:1 @v100-sxm2-16gb nvlink2 edr100 oversub:4",
         {0, 1, 4, 5},
         false},
        {"the line between sites", "site:2 [2x p100-server] wan10", {0, 8, 4, 12}, true},
        {"NVLink to one device", "1x dgx-a100", {0, 2, 1, 2}, true},
        {"NVLink to two", "1x dgx-a100", {0, 2, 1, 3}, false},
        {"PCIe from one device", "1x p100-server", {0, 2, 0, 3}, true},
        {"PCIe of four devices", "1x p100-server", {0, 1, 2, 3}, false},
    };
    enum { ROWS = sizeof rows / sizeof *rows };

    for (size_t i = 0; i < ROWS; i++)
        for (int no_fold = 0; no_fold < 2; no_fold++) {
            double ends_s[2], expected_s[2];
            for (int together = 0; together < 2; together++) {
                const uint32_t *d = rows[i].devices;
                double rate = 0.0;
                ty_error error = {0};
                scenario s;
                ty_timeline *timeline =
                    two_sends(&s, rows[i].cluster, d, no_fold == 1, together == 1);
                ty_path path = path_of(s.cluster, d[0], d[1]);
                cr_assert_eq(ty_cluster_shared_rate(s.cluster, (const uint32_t[]){d[0], d[2]},
                                                    (const uint32_t[]){d[1], d[3]},
                                                    1 + (uint32_t)together, 1.0, &rate, &error),
                             TY_OK, "%s", error.message);
                expected_s[together] = path.latency_s + 1e9 / rate;
                ends_s[together] = event_of(&s, timeline, 0, 0, 0)->end_s;
                expect_close(rows[i].what, ends_s[together], expected_s[together], 1e-3);
                ty_path_clear(&path);
                ty_timeline_free(timeline);
                scenario_free(&s);
            }
            cr_expect((ends_s[1] > 1.9 * ends_s[0]) == rows[i].is_shared, "%s: %g and %g s",
                      rows[i].what, ends_s[0], ends_s[1]);
        }
}

/* Two jobs with a ring each on the same hosts: a shared NIC takes twice the time, separate NICs
 * change nothing; a single job takes its usual time. */
Test(traffic, jobs_share_the_links_of_a_cluster)
{
    static const struct {
        const char *cluster;
        uint32_t away, other; /* second member of the first job; first device of the second job */
        double slowdown;
    } rows[] = {{"2x p100-server", 4, 1, 2.0}, {"2x dgx-a100", 8, 1, 1.0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        ty_timeline *timelines[2] = {NULL, NULL};
        ty_error error = {0};
        const uint32_t replicas = 2, devices[] = {0, rows[i].away};
        scenario_open(&s, cluster_of(rows[i].cluster), 1, &replicas, 2);
        s.stages[0].devices[1] = rows[i].away;
        scenario_add(&s, 0, exchange(scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE)), NULL,
                     collective_cost_on(s.cluster, TY_ALL_REDUCE, TY_RING, devices, 2, 1e9, 0.0));
        scenario_close(&s);
        const ty_tenant tenants[] = {{&s.plan, &s.program, s.costs, 0},
                                     {&s.plan, &s.program, s.costs, rows[i].other}};
        const ty_tenant clash[] = {tenants[0], tenants[0]};
        const ty_tenant outside[] = {
            tenants[0],
            {&s.plan, &s.program, s.costs, ty_cluster_device_count(s.cluster) - rows[i].away}};
        ty_timeline *alone = scenario_simulate(&s);
        cr_assert_eq(ty_simulate_tenants(tenants, 2, s.cluster, &s.options, timelines, &error),
                     TY_OK, "%s", error.message);
        for (int t = 0; t < 2; t++) {
            expect_close(rows[i].cluster, event_of(&s, timelines[t], 0, 1, 0)->end_s,
                         rows[i].slowdown * event_of(&s, alone, 0, 1, 0)->end_s, 1e-3);
            ty_timeline_free(timelines[t]);
        }
        cr_expect_eq(ty_simulate_tenants(clash, 2, s.cluster, &s.options, timelines, &error),
                     TY_EINVAL);
        cr_expect_str_eq(error.message, "jobs: device 0 is used twice");
        cr_expect_eq(ty_simulate_tenants(outside, 2, s.cluster, &s.options, timelines, &error),
                     TY_EINVAL);
        ty_timeline_free(alone);
        scenario_free(&s);
    }
}
