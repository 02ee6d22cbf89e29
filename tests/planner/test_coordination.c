/* Coordination time of a framework before a collective or a step can begin: the terms of
 * ty_stack.h, equal in the estimate and in the simulator. */
#include "../pin.h"
#include "ty_planner.h"
#include "ty_simulate.h"

#include <criterion/criterion.h>
#include <math.h>

typedef struct times {
    double estimate_s, simulation_s;
} times;

/* Steps of VGG-16 with one bucket, without overlap: any addition to it is added to the step. */
static times steps_of(const char *cluster_text, const char *stack_text, uint32_t devices)
{
    ty_plan_options how = ty_plan_options_default();
    const ty_simulate_options options = ty_simulate_options_default();
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_stack *plain = NULL, *stack = NULL;
    ty_plan *plan = NULL;
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary estimate = {0}, simulation = {0};
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg16", &workload, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open(cluster_text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_stack_open("trainyard", &plain, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_stack_open(stack_text, &stack, &error), TY_OK, "%s", error.message);
    how.stack = plain;
    how.global_batch = devices * 8;
    pin(&how.pins, "pp=1,micro_batch=8,bucket=one,compression=none,algorithm=ring");
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &how, &plan, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(plan->bucket_count, 1);
    cr_assert_eq(ty_plan_use_stack(plan, stack, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_estimate_summary(plan, program, costs, 4, &estimate, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_simulate(plan, program, costs, cluster, &options, &timeline, &error), TY_OK,
                 "%s", error.message);
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &simulation, &error), TY_OK, "%s",
                 error.message);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_program_free(program);
    ty_plan_free(plan);
    ty_stack_free(plain);
    ty_stack_free(stack);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return (times){estimate.step_time_s, simulation.step_time_s};
}

static void expect_more(const char *what, times more, times less, double seconds)
{
    cr_expect_float_eq(more.estimate_s - less.estimate_s, seconds, 1e-7, "%s: %.9g, expected %.9g",
                       what, more.estimate_s - less.estimate_s, seconds);
    cr_expect_float_eq(more.simulation_s - less.simulation_s, seconds, 1e-7,
                       "%s, simulated: %.9g, expected %.9g", what,
                       more.simulation_s - less.simulation_s, seconds);
}

Test(coordination, is_added_to_what_nothing_hides)
{
    static const struct {
        const char *stack;
        double seconds; /* of eight devices */
    } rows[] = {
        {"trainyard exchange_cycle_s=0.004", 0.002},
        {"trainyard coordinator_s=1e-4", 8e-4},
        {"trainyard task_s=1e-3", 8e-3},
        {"trainyard exchange_cycle_s=0.004 coordinator_s=1e-4 task_s=1e-3", 0.002 + 8e-4 + 8e-3},
    };
    const times plain = steps_of("2x p100-server", "trainyard", 8);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_more(rows[i].stack, steps_of("2x p100-server", rows[i].stack, 8), plain,
                    rows[i].seconds);
}

/* A tree of eight has three levels, of sixteen four, each with a latency up and down; a coordinator
 * receives from all. */
Test(coordination, grows_with_the_members)
{
    const times eight = steps_of("2x p100-server", "trainyard", 8);
    const times sixteen = steps_of("4x p100-server", "trainyard", 16);
    const times agreed = steps_of("2x p100-server", "trainyard agreement_rounds=100", 8);
    const times more = steps_of("2x p100-server", "trainyard agreement_rounds=200", 8);
    const times wider = steps_of("4x p100-server", "trainyard agreement_rounds=100", 16);
    const double round_s = (agreed.estimate_s - eight.estimate_s) / 100;

    cr_expect_gt(round_s, 6 * 1e-6, "six latencies between hosts, of microseconds");
    cr_expect_lt(round_s, 6 * 1e-4);
    expect_more("twice the rounds", more, eight, 200 * round_s);
    expect_more("twice the members", wider, sixteen, 100 * round_s * 4 / 3);
    expect_more("a coordinator of sixteen",
                steps_of("4x p100-server", "trainyard coordinator_s=1e-4", 16), sixteen, 16e-4);
}

/* A single device has no peer to agree with. */
Test(coordination, one_device_waits_for_nobody)
{
    const char *one = "leaf:1 host:1 gpu:1 @p100-pcie-16gb pcie3 eth10";

    expect_more("alone", steps_of(one, "trainyard exchange_cycle_s=1 agreement_rounds=9", 1),
                steps_of(one, "trainyard", 1), 0);
}

/* In these terms the frameworks of Horovod and BigDL differ from the frameworks that they build
 * on. */
Test(coordination, stacks_of_systems_have_it)
{
    const times plain = steps_of("2x p100-server", "tensorflow-2017", 8);
    const times cached = steps_of("2x p100-server", "horovod", 8);
    const times asked =
        steps_of("2x p100-server", "horovod agreement_rounds=0 coordinator_s=1e-4", 8);

    cr_expect_gt(cached.estimate_s - plain.estimate_s, 0.0005, "half a cycle of a millisecond");
    expect_more("without the cache", asked, plain, 0.0005 + 8e-4);
    expect_more("tasks of Spark", steps_of("2x p100-server", "bigdl", 8),
                steps_of("2x p100-server", "bigdl task_s=0", 8), 8 * 0.00076);
}
