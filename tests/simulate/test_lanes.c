/* Plans with lanes of all kinds, simulated: on machines whose links nobody else uses, as the
 * estimate has them; folded as unfolded; and with all bytes of their exchanges on the links. */
#include "scenario.h"

#include "ty_memory.h"
#include "ty_planner.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

typedef struct row {
    const char *workload, *cluster;
    uint32_t stages, tensor, context, expert, zero;
    bool is_ring; /* else what the library chooses */
} row;

static const row rows[] = {
    {"gpt2", "1x dgx-h100", 1, 1, 2, 1, 0, true},
    {"gpt2", "2x dgx-h100", 1, 2, 4, 1, 0, false},
    {"gpt2", "2x dgx-h100", 2, 1, 4, 1, 1, false},
    {"gpt2", "4x dgx-a100", 1, 4, 8, 1, 0, true},
    {"mixtral-8x7b sequence=1024", "8x dgx-h100", 1, 1, 1, 8, 1, false},
    {"mixtral-8x7b sequence=1024", "8x dgx-h100", 1, 2, 2, 4, 1, true},
    {"mixtral-8x7b sequence=1024", "8x dgx-h100", 4, 1, 2, 8, 3, false},
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
    ty_plan_options options = ty_plan_options_default();
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(r->cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_workload_open(r->workload, &workload, &error), TY_OK, "%s", error.message);
    ty_workload_set_element_bytes(workload, 2);
    options.global_batch = 256;
    options.micro_batch_size = r->expert > 1 ? r->expert : 4;
    options.pipeline_stages = r->stages;
    options.fix_dimensions = true;
    options.dimensions = (ty_plan_dimensions){.tensor_parallel = r->tensor,
                                              .context_parallel = r->context,
                                              .expert_parallel = r->expert,
                                              .zero = r->zero,
                                              .recompute = TY_RECOMPUTE_FULL};
    options.fix_schedule = true;
    options.schedule = TY_ONE_F_ONE_B;
    options.fix_algorithm = r->is_ring;
    options.algorithm = TY_RING;
    cr_assert_eq(ty_plan_search(workload, s.cluster, NULL, &options, &s.plan, &error), TY_OK,
                 "%s on %s: %s", r->workload, r->cluster, error.message);
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

static ty_timeline *simulate(const subject *s, bool no_fold)
{
    ty_simulate_options how = ty_simulate_options_default();
    ty_timeline *timeline = NULL;
    ty_error error = {0};

    how.steps = 2;
    how.no_fold = no_fold;
    cr_assert_eq(ty_simulate(s->plan, s->program, s->costs, s->cluster, &how, &timeline, &error),
                 TY_OK, "%s: %s", s->plan->strategy, error.message);
    return timeline;
}

Test(lanes, folded_as_unfolded)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_timeline *folded = simulate(&s, false), *unfolded = simulate(&s, true);
        cr_assert_eq(folded->event_count, unfolded->event_count);
        for (uint64_t e = 0; e < folded->event_count; e++) {
            char what[96];
            snprintf(what, sizeof what, "row %d, rank %u, instruction %u", i,
                     folded->events[e].rank, folded->events[e].instruction);
            expect_close(what, folded->events[e].end_s, unfolded->events[e].end_s, 2e-2);
        }
        ty_timeline_free(folded);
        ty_timeline_free(unfolded);
        close_subject(&s);
    }
}

/* One exchange at a time, each over links of its own: a step is as long as the estimate says. What
 * software holds back is sent in pieces, and groups that share adapters are known to the costs, so
 * that they are held back twice: by at most 5 %. */
Test(lanes, a_step_is_as_estimated)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        subject s = open_subject(&rows[i]);
        ty_timeline *simulated = simulate(&s, false), *estimated = NULL;
        ty_step_summary found = {0}, expected = {0};
        ty_error error = {0};
        cr_assert_eq(ty_estimate(s.plan, s.program, s.costs, 2, &estimated, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_timeline_summarize(s.plan, s.program, simulated, &found, &error), TY_OK);
        cr_assert_eq(ty_timeline_summarize(s.plan, s.program, estimated, &expected, &error), TY_OK);
        expect_close(s.plan->strategy, found.step_time_s, expected.step_time_s, 0.05);
        ty_timeline_free(simulated);
        ty_timeline_free(estimated);
        close_subject(&s);
    }
}

/* What devices send in the rings of all groups: its edge of each, whoever is next. */
static double bytes_of_exchanges(const subject *s)
{
    double bytes = 0;

    for (uint32_t p = 0; p < s->program->stage_count; p++)
        for (uint32_t i = 0; i < s->program->stages[p].instruction_count; i++) {
            const ty_instruction *in = &s->program->stages[p].instructions[i];
            const ty_bucket *bucket;
            if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
                continue;
            bucket = &s->plan->buckets[in->bucket];
            bytes += s->costs->instructions[p][i].edge_bytes *
                     ty_bucket_device_count(s->plan, bucket) *
                     ty_bucket_group_count(s->plan, bucket);
        }
    return bytes;
}

/* Rings of one stage: whatever a device sends leaves it over a link of its own. */
Test(lanes, all_bytes_of_exchanges_are_on_links)
{
    uint32_t seen = 0;

    for (int i = 0; i < ROW_COUNT; i++) {
        subject s;
        ty_link_load *loads = NULL;
        ty_error error = {0};
        uint32_t count = 0;
        double sent = 0;
        if (!rows[i].is_ring || rows[i].stages > 1)
            continue;
        s = open_subject(&rows[i]);
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
        expect_close(s.plan->strategy, sent, bytes_of_exchanges(&s), 1e-9);
        seen++;
        ty_free(loads);
        close_subject(&s);
    }
    cr_expect(seen >= 3);
}

/* Every step of a ring as a message: lanes of a rank keep step, and it takes as long. */
Test(lanes, flows_and_messages_agree)
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
