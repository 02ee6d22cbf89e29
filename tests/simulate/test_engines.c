/* The flow engine and SimGrid are each other's oracle. */
#include "contention.h"

#include "../quick.h"
#include "child.h"
#include "engine.h"
#include "platform.h"
#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

/* SimGrid sends rate-limited messages in pieces where it has no limit (ty_simulate.h). */
#define TOLERANCE 1e-6
#define LIMITED_TOLERANCE 2e-2

static ty_timeline *simulate_by(scenario *s, ty_engine_kind engine)
{
    ty_engine_kind used = TY_ENGINE_ANY;

    s->options.engine = engine;
    s->options.engine_used = &used;
    ty_timeline *timeline = scenario_simulate(s);
    cr_expect_eq(used, engine);
    return timeline;
}

static void compare_engines(scenario *s, const char *what, double tolerance)
{
    ty_timeline *flow = simulate_by(s, TY_ENGINE_FLOW);
    ty_timeline *simgrid = simulate_by(s, TY_ENGINE_SIMGRID);

    cr_assert_eq(flow->event_count, simgrid->event_count);
    for (uint64_t e = 0; e < flow->event_count; e++) {
        const ty_event *event = &flow->events[e];
        char where[160];
        snprintf(where, sizeof where, "%s, step %u, stage replica %u, instruction %u", what,
                 event->step, event->stage_replica, event->instruction);
        expect_close(where, event->start_s, simgrid->events[e].start_s, tolerance);
        expect_close(where, event->end_s, simgrid->events[e].end_s, tolerance);
    }
    ty_timeline_free(flow);
    ty_timeline_free(simgrid);
}

/* Contention, stragglers, uneven replicas, late gradients; folded and whole, flow and chunk. */
Test(engines, random_programs_agree)
{
    const uint32_t programs = quick_or_all(30, 300);

    for (uint64_t seed = 1; seed <= programs; seed++) {
        uint64_t state = seed;
        double slowdowns[512];
        char what[32];
        scenario s;
        const bool is_limited = seed % 10 == 0;
        random_contention(&s, &state, is_limited);
        if (seed % 2 == 0)
            random_ranks(&s, &state);
        cr_assert(ty_plan_rank_count(&s.plan) <= sizeof slowdowns / sizeof *slowdowns);
        for (uint32_t r = 0; r < ty_plan_rank_count(&s.plan); r++)
            slowdowns[r] = (seed * 7 + r) % 5 == 0 ? 1.5 : 1.0;
        if (seed % 3 == 0)
            s.options.slowdowns = slowdowns;
        s.options.jitter = seed % 7 == 0 ? 0.1 : 0.0;
        s.options.no_fold = seed % 4 == 1;
        s.options.resolution = seed % 5 == 2 ? TY_CHUNK : TY_FLOW;
        snprintf(what, sizeof what, "seed %u", (unsigned)seed);
        compare_engines(&s, what, is_limited ? LIMITED_TOLERANCE : TOLERANCE);
        scenario_free(&s);
    }
}

/* Ranks that compete for the cores of their host, with works of several cores. */
Test(engines, shares_of_cores_agree)
{
    const uint32_t replicas = 6;

    for (uint32_t cores = 1; cores <= 8; cores++) {
        char what[32];
        scenario s;
        scenario_open(&s, cluster_of_cores(replicas, cores), 1, &replicas, replicas);
        const uint32_t bucket = scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE);
        for (uint32_t i = 0; i < 3; i++)
            scenario_add(&s, 0, op(TY_OP_BACKWARD), NULL,
                         (ty_instruction_cost){.seconds = 0.1 * (i + 1), .core_share = 0.7 * i});
        scenario_add(&s, 0, exchange(bucket), NULL,
                     (ty_instruction_cost){.seconds = 0.25, .edge_bytes = 1e6, .core_share = 0.5});
        scenario_close(&s);
        snprintf(what, sizeof what, "%u cores", cores);
        compare_engines(&s, what, TOLERANCE);
        scenario_free(&s);
    }
}

/* Without a choice: SimGrid, but the flow engine for more than 1,024 simulated devices. */
Test(engines, large_simulations_use_the_flow_engine)
{
    static const struct {
        uint32_t replicas;
        bool is_whole;
        ty_engine_kind used;
    } rows[] = {
        {1024, true, TY_ENGINE_SIMGRID},
        {1025, true, TY_ENGINE_FLOW},
        {1025, false, TY_ENGINE_SIMGRID},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_engine_kind used = TY_ENGINE_ANY;
        scenario s;
        scenario_open(&s, cluster_of("130x dgx-a100"), 1, &rows[i].replicas, rows[i].replicas);
        scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, (ty_instruction_cost){.seconds = 1.0});
        scenario_close(&s);
        s.options.no_fold = rows[i].is_whole;
        s.options.engine_used = &used;
        ty_timeline_free(scenario_simulate(&s));
        cr_expect_eq(used, rows[i].used, "%u replicas, %s: %s", rows[i].replicas,
                     rows[i].is_whole ? "whole" : "folded", ty_engine_name(used));
        scenario_free(&s);
    }
}

/* ---- Two messages on one link -------------------------------------------------------------- */

enum { MESSAGES = 2 };
#define BYTES 1e9

struct sender {
    ty_engine *engine;
    ty_message message;
    double end_s;
};

static void send_one(void *context)
{
    struct sender *self = context;

    ty_engine_message(self->engine, &self->message);
    self->end_s = ty_engine_clock(self->engine);
}

struct question {
    const ty_cluster *cluster;
    ty_engine_kind engine;
};

/* From device 0 to device 1 of its leaf and to device 2 of another, with the ends as the result. */
static ty_status send_both(void *context, void *result, ty_error *error)
{
    const struct question *q = context;
    double *ends_s = result;
    ty_network *network = NULL;
    ty_text platform = {0};
    ty_engine engine;
    struct sender senders[MESSAGES];

    TY_TRY(ty_network_of_cluster(q->cluster, &network, error));
    TY_TRY(ty_simgrid_platform(q->cluster, &platform, error));
    if (q->engine == TY_ENGINE_SIMGRID)
        TY_TRY(ty_engine_open_simgrid(&engine, network, &platform, error));
    else
        TY_TRY(ty_engine_open_flow(&engine, network, error));
    for (uint32_t m = 0; m < MESSAGES; m++) {
        senders[m] = (struct sender){&engine, {.from = 0, .to = m + 1, .bytes = BYTES}, 0.0};
        engine.calls->spawn(&engine, 0, send_one, &senders[m], false);
    }
    engine.calls->run(&engine);
    for (uint32_t m = 0; m < MESSAGES; m++)
        ends_s[m] = senders[m].end_s;
    return TY_OK;
}

/* Of two messages over a full link, neither is faster for its lower latency. */
Test(engines, share_a_link_evenly_whatever_the_latency)
{
    ty_cluster *cluster = cluster_of("leaf:2 host:2 gpu:1 @v100-sxm2-16gb nvlink2 edr100");
    ty_path near = {0}, far = {0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_path(cluster, 0, 1, &near, &error), TY_OK);
    cr_assert_eq(ty_cluster_path(cluster, 0, 2, &far, &error), TY_OK);
    cr_expect_gt(far.latency_s, near.latency_s + 1e-7);
    for (int engine = TY_ENGINE_SIMGRID; engine <= TY_ENGINE_FLOW; engine++) {
        const struct question question = {cluster, (ty_engine_kind)engine};
        double ends_s[MESSAGES];
        cr_assert_eq(
            ty_child_run(send_both, (void *)&question, ends_s, sizeof ends_s, 10.0, &error), TY_OK,
            "%s", error.message);
        /* The near one is alone until the far one starts; then each has half the link. */
        const double alone_s = far.latency_s - near.latency_s;
        const double both_s = 2 * (BYTES / near.bandwidth_bytes_per_s - alone_s);
        expect_close("near", ends_s[0], far.latency_s + both_s, 1e-7);
        expect_close("far", ends_s[1], near.latency_s + 2 * BYTES / near.bandwidth_bytes_per_s,
                     1e-7);
    }
    ty_path_clear(&near);
    ty_path_clear(&far);
    ty_cluster_free(cluster);
}
