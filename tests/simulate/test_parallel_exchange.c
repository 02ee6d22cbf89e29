/* Simulated plans with TP, CP and EP ranks. On hosts without contention the time equals the
 * estimate; folded equals unfolded; all bytes of collectives are on the links. With contention they
 * are slower, by an amount computed by hand. */
#include "../pin.h"
#include "scenario.h"

#include "parallel_exchange.h"

#include "ty_base.h"
#include "ty_planner.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

typedef struct row {
    const char *workload, *cluster;
    uint32_t stages, tensor, context, expert, zero;
    bool is_ring;    /* otherwise the library's choice */
    bool is_crowded; /* traffic of ranks has contention */
    bool is_along_sequence;
    ty_table_shard tables;
} row;

static const row rows[] = {
    {"gpt2", "1x dgx-h100", 1, 1, 2, 1, 0, true, false, false, TY_TABLES_WHOLE},
    {"gpt2", "2x dgx-h100", 1, 2, 4, 1, 0, false, false, false, TY_TABLES_WHOLE},
    {"gpt2", "2x dgx-h100", 2, 1, 4, 1, 1, false, false, false, TY_TABLES_WHOLE},
    {"gpt2", "4x dgx-a100", 1, 4, 8, 1, 0, true, false, false, TY_TABLES_WHOLE},
    {"gpt2", "4x dgx-a100", 2, 4, 1, 1, 1, false, false, true, TY_TABLES_WHOLE},
    {"gpt2", "4x dgx1-v100", 2, 4, 1, 1, 0, true, false, true, TY_TABLES_WHOLE},
    {"gpt2", "host:8 gpu:1 @a100-sxm4-80gb nvlink3 hdr200", 4, 2, 1, 1, 0, true, true, false,
     TY_TABLES_WHOLE},
    {"mixtral-8x7b sequence=1024", "8x dgx-h200", 1, 1, 1, 8, 1, false, false, false,
     TY_TABLES_WHOLE},
    {"dlrm-kaggle", "1x dgx-h100", 1, 1, 1, 4, 0, true, false, false, TY_TABLES_ROW},
    {"dlrm-kaggle", "2x dgx-h100", 1, 1, 1, 8, 0, false, false, false, TY_TABLES_COLUMN},
    {"dlrm-kaggle", "2x dgx-h100", 2, 1, 1, 4, 1, false, false, false, TY_TABLES_TABLE},
    {"mixtral-8x7b sequence=1024", "8x dgx-h100", 1, 2, 2, 4, 1, true, false, false,
     TY_TABLES_WHOLE},
    {"mixtral-8x7b sequence=1024", "8x dgx-h100", 4, 1, 2, 8, 3, false, true, false,
     TY_TABLES_WHOLE},
    {"gpt2", "2x dgx-h100", 2, 4, 1, 1, 1, false, false, true, TY_TABLES_WHOLE},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

typedef struct subject {
    ty_cluster *cluster;
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
} subject;

static subject open_subject(const row *r)
{
    subject s = {0};
    ty_workload *workload = NULL;
    ty_stack *worker = NULL;
    ty_plan_options options = ty_plan_options_default();
    ty_error error = {0};

    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &worker, &error), TY_OK, "%s", error.message);
    options.stack = worker;
    cr_assert_eq(ty_cluster_open(r->cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_open(r->workload, &workload, &error), TY_OK, "%s", error.message);
    ty_workload_set_precision(workload, TY_PRECISION_BF16);
    options.global_batch = 64;
    pin(&options.pins, "pp=%u,micro_batch=%u,schedule=1f1b", r->stages,
        r->expert > 1 ? r->expert : 4);
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    options.pins.dimensions = (ty_plan_dimensions){
        .tensor_parallel = r->tensor,
        .context_parallel = r->context,
        .expert_parallel = r->expert,
        .sequence_parallel = r->is_along_sequence,
        .table_shard = r->tables,
        .zero = r->zero,
        .recompute = r->tables == TY_TABLES_WHOLE ? TY_RECOMPUTE_FULL : TY_RECOMPUTE_NONE};
    if (r->is_ring)
        pin(&options.pins, "algorithm=ring");
    cr_assert_eq(ty_plan_search(workload, s.cluster, NULL, &options, &s.plan, &error), TY_OK,
                 "%s on %s: %s", r->workload, r->cluster, error.message);
    ty_stack_free(worker);
    cr_assert_eq(ty_plan_lower(s.plan, &s.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_program_check(s.plan, s.program, "program", &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_costs_of_program(s.plan, s.program, s.cluster, &s.costs, &error), TY_OK, "%s",
                 error.message);
    ty_workload_free(workload);
    return s;
}

static void close_subject(subject *s)
{
    ty_costs_free(s->costs);
    ty_program_free(s->program);
    ty_plan_free(s->plan);
    ty_cluster_free(s->cluster);
}

static ty_timeline *simulate_with(const subject *s, bool no_fold, const double *slowdowns)
{
    ty_simulate_options how = ty_simulate_options_default();
    ty_timeline *timeline = NULL;
    ty_error error = {0};

    how.steps = 2;
    how.no_fold = no_fold;
    how.slowdowns = slowdowns;
    cr_assert_eq(ty_simulate(s->plan, s->program, s->costs, s->cluster, &how, &timeline, &error),
                 TY_OK, "%s: %s", s->plan->strategy, error.message);
    return timeline;
}

static ty_timeline *simulate(const subject *s, bool no_fold)
{
    return simulate_with(s, no_fold, NULL);
}

/* Unfolded, software below a link's bandwidth sends chunks, which share links less exactly than a
 * rate limit (folded). The first finishers differ by some microseconds per step. */
Test(ranks, folded_as_unfolded)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_timeline *folded = simulate(&s, false), *unfolded = simulate(&s, true);
        double step_s = 0;
        cr_assert_eq(folded->event_count, unfolded->event_count);
        for (uint64_t e = 0; e < folded->event_count; e++)
            step_s = fmax(step_s, unfolded->events[e].end_s / 2); /* of two steps */
        for (uint64_t e = 0; e < folded->event_count; e++) {
            const double difference_s = folded->events[e].end_s - unfolded->events[e].end_s;
            char what[96];
            snprintf(what, sizeof what, "row %d, stage replica %u, instruction %u", i,
                     folded->events[e].stage_replica, folded->events[e].instruction);
            cr_expect_lt(fabs(difference_s), 2e-2 * step_s, "%s: found %g, expected %g of %g", what,
                         folded->events[e].end_s, unfolded->events[e].end_s, step_s);
        }
        ty_timeline_free(folded);
        ty_timeline_free(unfolded);
        close_subject(&s);
    }
}

/* A slowdown of 1 sends every collective of a pass through SimGrid. Passes that skip it take as
 * long. */
Test(ranks, passes_apart_from_exchanges_take_as_long)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        const uint32_t devices = ty_plan_rank_count(s.plan);
        double *ones = ty_alloc(devices, sizeof *ones);
        cr_assert_neq(ones, NULL);
        for (uint32_t d = 0; d < devices; d++)
            ones[d] = 1.0;
        ty_timeline *spared = simulate(&s, false), *sent = simulate_with(&s, false, ones);
        for (uint64_t e = 0; e < sent->event_count; e++) {
            char what[96];
            snprintf(what, sizeof what, "row %d, stage replica %u, instruction %u", i,
                     sent->events[e].stage_replica, sent->events[e].instruction);
            expect_close(what, spared->events[e].end_s, sent->events[e].end_s, 1e-5);
        }
        ty_timeline_free(spared);
        ty_timeline_free(sent);
        ty_free(ones);
        close_subject(&s);
    }
}

static double step_of(const subject *s, const ty_timeline *timeline)
{
    ty_step_summary summary = {0};
    ty_error error = {0};

    cr_assert_eq(ty_timeline_summarize(s->plan, s->program, timeline, &summary, &error), TY_OK,
                 "%s", error.message);
    return summary.step_time_s;
}

/* Collectives of ranks come between their computation, in the estimate as in the simulation.
 * Without contention a step takes the same time, otherwise longer. */
Test(ranks, a_step_is_as_estimated)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_timeline *simulated = simulate(&s, false), *estimated = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_estimate(s.plan, s.program, s.costs, 2, &estimated, &error), TY_OK, "%s",
                     error.message);
        if (rows[i].is_crowded)
            cr_expect_gt(step_of(&s, simulated), 1.001 * step_of(&s, estimated), "%s: %g s, %g s",
                         s.plan->strategy, step_of(&s, simulated), step_of(&s, estimated));
        else
            expect_close(s.plan->strategy, step_of(&s, simulated), step_of(&s, estimated), 5e-3);
        ty_timeline_free(simulated);
        ty_timeline_free(estimated);
        close_subject(&s);
    }
}

/* Bytes that devices send in the rings of all groups: one edge of each ring per device. For TP, CP
 * and EP ranks, the bytes inside instructions. */
static double bytes_of_exchanges(const subject *s, const ty_parallel_exchanges *ranks)
{
    const uint32_t width = ty_plan_replica_ranks(s->plan);
    double bytes = 0;

    for (uint32_t p = 0; p < s->program->stage_count; p++)
        for (uint32_t i = 0; i < s->program->stages[p].instruction_count; i++) {
            const ty_instruction *in = &s->program->stages[p].instructions[i];
            const ty_parallel_instruction *inside = ty_parallel_instruction_of(ranks, p, i);
            const ty_bucket *bucket;
            for (int k = 0; inside != NULL && k < TY_PARALLELISM_COUNT; k++)
                bytes += inside->costs[k].edge_bytes * width * s->plan->stages[p].replicas;
            if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
                continue;
            bucket = &s->plan->buckets[in->bucket];
            bytes += s->costs->instructions[p][i].edge_bytes *
                     ty_bucket_device_count(s->plan, bucket) *
                     ty_bucket_group_count(s->plan, bucket);
        }
    return bytes;
}

/* Rings of one stage: all bytes that a device sends cross its own uplink, once. */
Test(ranks, all_bytes_of_exchanges_are_on_links)
{
    uint32_t seen = 0;

    for (int i = 0; i < ROW_COUNT; i++) {
        subject s;
        ty_link_load *loads = NULL;
        ty_parallel_exchanges inside = {0};
        ty_error error = {0};
        uint32_t count = 0;
        double sent = 0;
        if (!rows[i].is_ring || rows[i].stages > 1)
            continue;
        s = open_subject(&rows[i]);
        cr_assert_eq(
            ty_parallel_exchanges_find(s.plan, s.program, s.costs, s.cluster, &inside, &error),
            TY_OK, "%s", error.message);
        cr_assert_eq(ty_link_loads(s.plan, s.program, s.costs, s.cluster, &loads, &count, &error),
                     TY_OK, "%s", error.message);
        for (uint32_t l = 0; l < count; l++) {
            const ty_link_edge *link = ty_cluster_link(s.cluster, loads[l].link);
            const uint32_t from = loads[l].is_backward ? link->to : link->from;
            for (uint32_t d = 0; d < ty_cluster_device_count(s.cluster); d++)
                if (ty_cluster_device_vertex(s.cluster, d) == from)
                    sent += loads[l].bytes;
        }
        cr_expect(sent > 0);
        expect_close(s.plan->strategy, sent, bytes_of_exchanges(&s, &inside), 1e-9);
        seen++;
        ty_parallel_exchanges_clear(&inside);
        ty_free(loads);
        close_subject(&s);
    }
    cr_expect(seen >= 3);
}

/* Every step of a ring as a message: ranks of a stage replica stay in step, and the time is the
 * same. */
Test(ranks, flows_and_messages_agree)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        ty_simulate_options how = ty_simulate_options_default();
        ty_timeline *timelines[2] = {NULL};
        ty_step_summary found[2] = {{0}};
        ty_error error = {0};
        subject s;
        if (!rows[i].is_ring)
            continue;
        s = open_subject(&rows[i]);
        for (int r = 0; r < 2; r++) {
            how.resolution = r == 0 ? TY_FLOW : TY_CHUNK;
            how.steps = 2;
            cr_assert_eq(
                ty_simulate(s.plan, s.program, s.costs, s.cluster, &how, &timelines[r], &error),
                TY_OK, "%s", error.message);
            cr_assert_eq(ty_timeline_summarize(s.plan, s.program, timelines[r], &found[r], &error),
                         TY_OK);
            ty_timeline_free(timelines[r]);
        }
        expect_close(s.plan->strategy, found[1].step_time_s, found[0].step_time_s, 0.02);
        close_subject(&s);
    }
}

/* ---- Contention -------------------------------------------------------------------- */

/* Four hosts with one device each; all traffic passes the PCIe link to the NIC. Two replicas of two
 * tensor-parallel ranks: TP neighbors are on different hosts, and so are the members of the
 * gradient all-reduce. */
#define NETWORK "host:4 gpu:1 @a100-sxm4-80gb nvlink3 hdr200"
#define WAY_BYTES_PER_S 24e9

typedef struct crowd {
    scenario s;
    ty_workload *workload;
} crowd;

/* The gradients of a first pass are reduced while a second pass computes for `work_s` and its TP
 * collectives need `ranks_s` on their links, in layers [first, first + count). Times are in
 * seconds, so that latencies are negligible. */
static void open_crowd(crowd *c, uint32_t first, uint32_t count, double work_s, double ranks_s,
                       double exchange_s)
{
    const uint32_t replicas = 4;
    ty_error error = {0};
    scenario *s = &c->s;

    cr_assert_eq(ty_workload_open("gpt2", &c->workload, &error), TY_OK, "%s", error.message);
    scenario_open(s, cluster_of(NETWORK), 1, &replicas, replicas);
    s->plan.micro_batches = s->plan.global_batch = 2;
    s->plan.workload = c->workload;
    s->plan.tensor_parallel = 2;
    s->plan.micro_batch_size = 1 << 20; /* more than the links can carry */
    s->stages[0].replicas = 2;          /* devices 0, 1 and 2, 3 */
    scenario_bucket(s, 0, TY_RING, TY_COMPRESSION_NONE);
    ty_instruction pass = op(TY_OP_BACKWARD);
    pass.micro_batch = 0;
    const uint32_t passed[] = {scenario_add(s, 0, pass, (uint32_t[]){TY_NO_INSTRUCTION},
                                            (ty_instruction_cost){.seconds = 10.0}),
                               TY_NO_INSTRUCTION};
    scenario_add(
        s, 0, exchange(0), passed,
        (ty_instruction_cost){.seconds = exchange_s, .edge_bytes = exchange_s * WAY_BYTES_PER_S});
    pass.first_layer = first;
    pass.layer_count = count;
    scenario_add(s, 0, pass, (uint32_t[]){TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = work_s + ranks_s, .inner_s = ranks_s});
    scenario_close(s);
}

static void close_crowd(crowd *c)
{
    scenario_free(&c->s);
    ty_workload_free(c->workload);
}

static uint32_t first_mlp(const ty_workload *workload)
{
    uint32_t layer = 0;

    while (workload->layers[layer].kind != TY_LAYER_MLP)
        layer++;
    return layer;
}

Test(ranks, share_links_with_exchanges)
{
    static const struct {
        uint32_t layers; /* 0: one mlp, with one collective; else all layers */
        double work_s, ranks_s, exchange_s, pass_end_s, exchange_end_s;
    } cases[] = {
        /* The gradient all-reduce ends before the TP collectives start. */
        {0, 10, 10, 10, 30, 20},
        /* From 20 on both share the links: the last 5 s of the all-reduce take 10 s. By then the TP
         * collectives have done 5 s and have 5 s left. */
        {0, 10, 10, 15, 35, 30},
        /* Both from 10 on: half the rate for 20. */
        {0, 0, 10, 10, 30, 30},
        /* Four rounds of 2.5 and 2.5: the all-reduce has sent 2.5 when the first TP collective
         * starts; both need 2.5 more, which takes 5. The rest has no contention. */
        {1, 10, 10, 5, 32.5, 17.5},
        /* It contends with the ranks in the first round, where it sends 2.5 in 5, after the 2.5
         * before. It sends 2.5 while they compute, and its last 2.5 take 5 in the second round. */
        {1, 10, 10, 10, 35, 25},
    };
    ty_workload *gpt2 = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("gpt2", &gpt2, &error), TY_OK, "%s", error.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int variant = 0; variant < 3; variant++) {
            crowd c = {0};
            char what[64];
            open_crowd(&c, cases[i].layers == 0 ? first_mlp(gpt2) : 0,
                       cases[i].layers == 0 ? 1 : gpt2->layer_count, cases[i].work_s,
                       cases[i].ranks_s, cases[i].exchange_s);
            c.s.options.no_fold = variant == 1;
            c.s.options.resolution = variant == 2 ? TY_CHUNK : TY_FLOW;
            ty_timeline *timeline = scenario_simulate(&c.s);
            const double tolerance = variant == 2 ? 1e-2 : 1e-4;
            for (uint32_t stage_replica = 0; stage_replica < 2; stage_replica++) {
                snprintf(what, sizeof what, "case %zu, %s, pass", i,
                         variant == 0   ? "folded"
                         : variant == 1 ? "whole"
                                        : "chunk");
                expect_close(what, event_of(&c.s, timeline, 0, stage_replica, 2)->end_s,
                             cases[i].pass_end_s, tolerance);
                expect_close("exchange", event_of(&c.s, timeline, 0, stage_replica, 1)->end_s,
                             cases[i].exchange_end_s, tolerance);
            }
            ty_timeline_free(timeline);
            close_crowd(&c);
        }
    ty_workload_free(gpt2);
}

/* ---- Devices -----------------------------------------------------------------------------------
 */

/* All devices are simulated, and the observed times of a stage replica's ranks are those of the
 * stage replica. */
Test(ranks, every_device_takes_part)
{
    subject s = open_subject(&rows[4]);
    const uint32_t devices = ty_cluster_device_count(s.cluster),
                   width = ty_plan_replica_ranks(s.plan);
    ty_simulate_options how = ty_simulate_options_default();
    ty_timeline *stage_replicas = NULL, *ranks = NULL, *again = NULL;
    ty_plan *view = NULL;
    ty_error error = {0};
    uint32_t classes = 0;

    how.no_fold = true;
    cr_assert_eq(ty_simulate_classes(s.plan, s.program, s.costs, s.cluster, &how, &classes, &error),
                 TY_OK);
    cr_expect_eq(classes, devices, "%u are walked of %u", classes, devices);
    how.devices = &ranks;
    cr_assert_eq(ty_simulate(s.plan, s.program, s.costs, s.cluster, &how, &stage_replicas, &error),
                 TY_OK);
    ty_timeline_free(stage_replicas);
    how.devices = &again;
    cr_assert_eq(ty_simulate(s.plan, s.program, s.costs, s.cluster, &how, &stage_replicas, &error),
                 TY_OK);
    cr_assert_eq(ty_plan_by_device(s.plan, &view, &error), TY_OK);
    cr_expect_eq(ty_timeline_check(view, s.program, ranks, "devices", &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(ty_plan_stage_replica_count(view), devices);
    ty_plan_view_free(view);
    cr_assert_eq(ranks->event_count, stage_replicas->event_count * width);
    cr_expect_eq(ranks->stage_replica_count, devices);
    cr_expect_arr_eq(ranks->events, again->events, ranks->event_count * sizeof *ranks->events);
    for (uint64_t e = 0, r = 0; e < ranks->event_count; r++) {
        const uint32_t stage =
            ty_plan_stage_of_replica(s.plan, stage_replicas->events[r].stage_replica);
        const uint32_t count = s.program->stages[stage].instruction_count;
        double end_s = 0;
        for (uint32_t replica_rank = 0; replica_rank < width; replica_rank++)
            end_s = fmax(end_s, ranks->events[e + (uint64_t)replica_rank * count].end_s);
        cr_assert_eq(end_s, stage_replicas->events[r].end_s);
        e += stage_replicas->events[r].instruction + 1 == count ? (uint64_t)(width - 1) * count + 1
                                                                : 1;
    }
    ty_timeline_free(stage_replicas);
    ty_timeline_free(ranks);
    ty_timeline_free(again);
    close_subject(&s);
}

/* A slow device slows its group as if the entire group were slow, but by no more than its own
 * compute. */
Test(ranks, a_slow_device_slows_its_rank)
{
    subject s = open_subject(&rows[4]);
    const uint32_t devices = ty_plan_rank_count(s.plan), width = ty_plan_replica_ranks(s.plan);
    double *slowdowns = ty_alloc(devices, sizeof *slowdowns), step_s[3] = {0};
    ty_error error = {0};

    for (int slow = 0; slow < 3; slow++) { /* no slow rank, one, all ranks of the stage replica */
        ty_simulate_options how = ty_simulate_options_default();
        ty_timeline *timelines[2] = {NULL};
        for (uint32_t d = 0; d < devices; d++)
            slowdowns[d] = d / width == 1 && (slow == 2 || (slow == 1 && d % width == 2)) ? 2 : 1;
        how.slowdowns = slowdowns;
        for (int no_fold = 0; no_fold < 2; no_fold++) {
            how.no_fold = no_fold == 1;
            cr_assert_eq(ty_simulate(s.plan, s.program, s.costs, s.cluster, &how,
                                     &timelines[no_fold], &error),
                         TY_OK, "%s", error.message);
        }
        step_s[slow] = step_of(&s, timelines[0]);
        expect_close("folded", step_s[slow], step_of(&s, timelines[1]), 1e-3);
        ty_timeline_free(timelines[0]);
        ty_timeline_free(timelines[1]);
    }
    cr_expect_gt(step_s[1], 1.05 * step_s[0]);
    cr_expect_lt(step_s[1], 2 * step_s[0]);
    expect_close("one rank or all", step_s[1], step_s[2], 1e-3);
    ty_free(slowdowns);
    close_subject(&s);
}
