/* Folding: simulating one representative of all interchangeable replicas must give the result of
 * simulating all, on random plans whose flows contend for NICs, trunks and NVLink. */
#include "contention.h"

#include "fold.h"
#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLANS = 60 };

#define TOLERANCE 1e-3

static void compare_folded(bool has_kinds)
{
    uint32_t folded_plans = 0;

    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        uint64_t state = seed;
        scenario s;
        ty_error error = {0};
        ty_fold *fold = NULL;
        random_contention(&s, &state, seed % 4 == 0);
        s.options.engine = TY_ENGINE_FLOW;
        if (has_kinds)
            random_ranks(&s, &state);
        cr_assert_eq(
            ty_fold_new(&s.plan, &s.program, s.costs, NULL, s.cluster, NULL, &fold, &error), TY_OK,
            "%s", error.message);
        folded_plans += fold != NULL;
        ty_fold_free(fold);
        ty_timeline *folded = scenario_simulate(&s);
        ty_timeline *again = scenario_simulate(&s);
        cr_expect(memcmp(folded->events, again->events, folded->event_count * sizeof(ty_event)) ==
                      0,
                  "seed %u: not the same bytes again", (unsigned)seed);
        ty_timeline_free(again);
        s.options.no_fold = true;
        ty_timeline *unfolded = scenario_simulate(&s);
        cr_assert_eq(folded->event_count, unfolded->event_count);
        for (uint64_t e = 0; e < folded->event_count; e++) {
            char what[96];
            snprintf(what, sizeof what, "seed %u, step %u, stage replica %u, instruction %u",
                     (unsigned)seed, folded->events[e].step, folded->events[e].stage_replica,
                     folded->events[e].instruction);
            expect_close(what, folded->events[e].start_s, unfolded->events[e].start_s, TOLERANCE);
            expect_close(what, folded->events[e].end_s, unfolded->events[e].end_s, TOLERANCE);
        }
        ty_timeline_free(folded);
        ty_timeline_free(unfolded);
        scenario_free(&s);
    }
    cr_expect(folded_plans > PLANS / 2, "only %u of %u plans were folded", folded_plans, PLANS);
}

Test(fold, folded_and_unfolded_agree)
{
    compare_folded(false);
}

Test(fold, folded_and_unfolded_agree_with_ranks_of_all_kinds)
{
    compare_folded(true);
}

/* Two of eight replicas are slow: they form a class, and the others wait for them. */
Test(fold, slow_ranks_are_classes_of_their_own)
{
    const double slowdowns[] = {1, 1, 1.5, 1, 1, 1.5, 1, 1};
    const uint32_t replicas = 8;
    scenario s;
    ty_error error = {0};
    ty_fold *fold = NULL;

    scenario_open(&s, cluster_of("leaf:1 host:8 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 1,
                  &replicas, replicas);
    const uint32_t bucket = scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE);
    const uint32_t backward =
        scenario_add(&s, 0, op(TY_OP_BACKWARD), NULL, (ty_instruction_cost){.seconds = 1.0});
    scenario_add(&s, 0, exchange(bucket), (const uint32_t[]){backward, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = 0.1, .edge_bytes = 1e9});
    scenario_close(&s);
    cr_assert_eq(
        ty_fold_new(&s.plan, &s.program, s.costs, NULL, s.cluster, slowdowns, &fold, &error), TY_OK,
        "%s", error.message);
    cr_assert_not_null(fold);
    cr_expect_eq(ty_fold_class_count(fold), 2, "found %u classes", ty_fold_class_count(fold));
    s.options.slowdowns = slowdowns;
    ty_timeline *timeline = scenario_simulate(&s);
    for (uint32_t r = 0; r < replicas; r++) {
        expect_close("work", event_of(&s, timeline, 0, r, 0)->end_s, slowdowns[r], 1e-9);
        expect_close("exchange", event_of(&s, timeline, 0, r, 1)->end_s,
                     event_of(&s, timeline, 0, 2, 1)->end_s, 1e-9);
        cr_expect(event_of(&s, timeline, 0, r, 1)->end_s > 1.5);
    }
    ty_timeline_free(timeline);
    ty_fold_free(fold);
    scenario_free(&s);
}

/* Same seed, same bytes; another seed, other times; the median is the cost. */
Test(fold, jitter_is_repeatable_and_centred)
{
    enum { STEPS_OF_JITTER = 400 };
    const uint32_t one = 1;
    uint32_t shorter = 0;
    scenario s;

    scenario_open(&s, cluster_of("leaf:1 host:2 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 1, &one, 1);
    scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, (ty_instruction_cost){.seconds = 1.0});
    scenario_close(&s);
    s.options.steps = STEPS_OF_JITTER;
    s.options.jitter = 0.1;
    s.options.seed = 1;
    ty_timeline *first = scenario_simulate(&s);
    ty_timeline *again = scenario_simulate(&s);
    s.options.seed = 2;
    ty_timeline *other = scenario_simulate(&s);
    cr_expect(memcmp(first->events, again->events, first->event_count * sizeof(ty_event)) == 0);
    cr_expect(memcmp(first->events, other->events, first->event_count * sizeof(ty_event)) != 0);
    for (uint64_t e = 0; e < first->event_count; e++)
        shorter += first->events[e].end_s - first->events[e].start_s < 1.0;
    /* Four standard deviations of 400 tosses of a coin. */
    cr_expect(shorter > 160 && shorter < 240, "%u of 400 are shorter than the median", shorter);
    expect_close("mean", first->events[first->event_count - 1].end_s / STEPS_OF_JITTER,
                 exp(0.1 * 0.1 / 2), 0.02);
    ty_timeline_free(first);
    ty_timeline_free(again);
    ty_timeline_free(other);
    scenario_free(&s);
}

/* Values of the formula worked out by hand: l = 0, 1 and 4. */
Test(fold, the_straggler_law)
{
    expect_close("1", ty_straggler_law(1), 1.0, 1e-12);
    expect_close("2", ty_straggler_law(2), 1.045, 1e-12);
    expect_close("16", ty_straggler_law(16), 1.144, 1e-12);
}

/*
 * A ring through two stages, as for a tied weight, distinguishes the members of a long ring by
 * their distance from its seam. Folding treats distant members as interchangeable.
 */
Test(fold, a_seam_in_a_long_ring_makes_no_difference)
{
    const uint32_t replicas[] = {1024, 1024};
    scenario s;

    scenario_open(&s, cluster_of("256x dgx-a100"), 2, replicas, 1024);
    s.buckets[scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE)].tied_stage = 1;
    for (uint32_t stage = 0; stage < 2; stage++) {
        const bool is_first = stage == 0;
        const ty_instruction_cost message = {.seconds = 1e-2, .edge_bytes = 1e8};
        uint32_t last = TY_NO_INSTRUCTION;
        if (!is_first)
            last = scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL,
                                (ty_instruction_cost){0});
        last =
            scenario_add(&s, stage, op(TY_OP_FORWARD), (const uint32_t[]){last, TY_NO_INSTRUCTION},
                         (ty_instruction_cost){.seconds = 1e-3});
        if (is_first)
            scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0),
                         (const uint32_t[]){last, TY_NO_INSTRUCTION}, message);
        scenario_add(&s, stage, exchange(0), NULL, message);
    }
    scenario_close(&s);
    ty_fold *fold = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_fold_new(&s.plan, &s.program, s.costs, NULL, s.cluster, NULL, &fold, &error),
                 TY_OK);
    cr_assert_not_null(fold);
    s.options.time_limit_s = 280.0; /* thousands of actors; with sanitizers each is a thread */
    cr_expect(ty_fold_flow_count(fold) < 200, "%u classes of routes", ty_fold_flow_count(fold));
    ty_fold_free(fold);
    ty_timeline *folded = scenario_simulate(&s);
    s.options.no_fold = true;
    ty_timeline *unfolded = scenario_simulate(&s);
    cr_assert_eq(folded->event_count, unfolded->event_count);
    for (uint64_t e = 0; e < folded->event_count; e++)
        expect_close("event", folded->events[e].end_s, unfolded->events[e].end_s, 1e-3);
    ty_timeline_free(folded);
    ty_timeline_free(unfolded);
    scenario_free(&s);
}

/* As many devices as possible, all alike: the simulation grows with the number of classes. */
Test(fold, alike_ranks_are_one_class)
{
    static const struct {
        const char *cluster;
        uint32_t replicas, classes;
    } rows[] = {{"8x dgx-a100", 64, 1}, {"64x dgx-a100", 512, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        ty_error error = {0};
        ty_fold *fold = NULL;
        scenario_open(&s, cluster_of(rows[i].cluster), 1, &rows[i].replicas, rows[i].replicas);
        scenario_add(&s, 0, exchange(scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE)), NULL,
                     (ty_instruction_cost){.seconds = 1e-3, .edge_bytes = 1e6});
        scenario_close(&s);
        cr_assert_eq(
            ty_fold_new(&s.plan, &s.program, s.costs, NULL, s.cluster, NULL, &fold, &error), TY_OK,
            "%s", error.message);
        cr_assert_not_null(fold, "%s", rows[i].cluster);
        cr_expect_eq(ty_fold_class_count(fold), rows[i].classes, "%s: found %u classes",
                     rows[i].cluster, ty_fold_class_count(fold));
        cr_expect(ty_fold_flow_count(fold) <= 8, "%s: found %u classes of routes", rows[i].cluster,
                  ty_fold_flow_count(fold));
        ty_fold_free(fold);
        scenario_free(&s);
    }
}

/* Three replicas of two stages, each on its own host. Every NIC carries its ring edge; in the first
 * stage also its sends, in the second its receives. */
Test(fold, link_loads_are_the_bytes_of_transfers_and_edges)
{
    const uint32_t replicas[] = {3, 3};
    const double ring_bytes = 4e8, sent_bytes = 1e8;
    scenario s;
    ty_error error = {0};
    ty_link_load *loads = NULL;
    uint32_t count = 0, busiest = 0;
    double total = 0.0;

    scenario_open(&s, cluster_of("leaf:1 host:6 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 2, replicas,
                  6);
    for (uint32_t stage = 0; stage < 2; stage++) {
        for (uint32_t k = 0; k < 2; k++)
            scenario_add(&s, stage,
                         stage == 0 ? transfer(TY_OP_SEND, TY_ACTIVATION, 1, k)
                                    : transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, k),
                         NULL, (ty_instruction_cost){.edge_bytes = stage == 0 ? sent_bytes : 0});
        scenario_add(&s, stage, exchange(scenario_bucket(&s, stage, TY_RING, TY_COMPRESSION_NONE)),
                     NULL, (ty_instruction_cost){.edge_bytes = ring_bytes});
    }
    scenario_close(&s);
    cr_assert_eq(ty_link_loads(&s.plan, &s.program, s.costs, s.cluster, &loads, &count, &error),
                 TY_OK, "%s", error.message);
    for (uint32_t l = 0; l < count; l++) {
        const ty_link_edge *link = ty_cluster_link(s.cluster, loads[l].link);
        cr_expect(l == 0 || loads[l].busy_s <= loads[l - 1].busy_s);
        expect_close("busy", loads[l].busy_s, loads[l].bytes / link->bandwidth_bytes_per_s, 1e-12);
        if (ty_cluster_vertex_kind(s.cluster, link->from) != TY_VERTEX_SWITCH &&
            ty_cluster_vertex_kind(s.cluster, link->to) != TY_VERTEX_SWITCH)
            continue;
        busiest += loads[l].bytes == ring_bytes + 2 * sent_bytes;
        total += loads[l].bytes;
    }
    cr_expect_eq(busiest, 6, "%u links carry both", busiest);
    /* Six ring edges and six transfers, each over two links of the leaf. */
    expect_close("bytes at the leaf", total, 2 * (6 * ring_bytes + 6 * sent_bytes), 1e-12);
    ty_free(loads);
    scenario_free(&s);
}

static double last_end_s(scenario *s, ty_resolution resolution)
{
    double end_s = 0.0;

    s->options.resolution = resolution;
    ty_timeline *timeline = scenario_simulate(s);
    for (uint64_t e = 0; e < timeline->event_count; e++)
        end_s = fmax(end_s, timeline->events[e].end_s);
    ty_timeline_free(timeline);
    return end_s;
}

/* Rings as flows and message by message, concurrent with transfers on the same links. */
Test(fold, flow_and_chunk_agree_on_rings)
{
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        uint64_t state = seed;
        char what[32];
        scenario s;
        random_contention(&s, &state, false);
        s.options.engine = TY_ENGINE_FLOW;
        for (uint32_t b = 0; b < s.plan.bucket_count; b++)
            s.buckets[b].algorithm = TY_RING;
        snprintf(what, sizeof what, "seed %u", (unsigned)seed);
        expect_close(what, last_end_s(&s, TY_CHUNK), last_end_s(&s, TY_FLOW), 0.03);
        scenario_free(&s);
    }
}

/* Binomial trees, which two of three collectives use. */
Test(fold, flow_and_chunk_agree_on_trees)
{
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        uint64_t state = seed;
        char what[32];
        scenario s;
        random_contention(&s, &state, false);
        s.options.engine = TY_ENGINE_FLOW;
        for (uint32_t b = 0; b < s.plan.bucket_count; b++)
            s.buckets[b].algorithm = (seed + b) % 3 == 0 ? TY_RING : TY_TREE;
        snprintf(what, sizeof what, "seed %u", (unsigned)seed);
        expect_close(what, last_end_s(&s, TY_CHUNK), last_end_s(&s, TY_FLOW), 0.04);
        scenario_free(&s);
    }
}
