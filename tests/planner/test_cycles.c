/* Gradients fused by a cycle, and the search over cycle, threshold and algorithm. */
#include "../pin.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct scene {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_stack *stack;
    ty_plan_options how;
} scene;

static scene open_scene(const char *cluster, const char *stack)
{
    scene s = {.how = ty_plan_options_default()};
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg16", &s.workload, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open(cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_stack_open(stack, &s.stack, &error), TY_OK, "%s", error.message);
    s.how.stack = s.stack;
    return s;
}

static void close_scene(scene *s)
{
    ty_stack_free(s->stack);
    ty_cluster_free(s->cluster);
    ty_workload_free(s->workload);
}

static ty_plan *horovod(const scene *s)
{
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_system(ty_system_find("horovod"), s->workload, s->cluster, NULL, &s->how,
                                &plan, &error),
                 TY_OK, "%s", error.message);
    return plan;
}

/* If all gradients are ready in one cycle they form one bucket; if one is ready per cycle, each has
 * its own bucket. In between, longer cycles give fewer buckets. A bucket ends once it has enough
 * bytes. */
Test(cycles, fuse_what_is_ready_in_a_beat)
{
    static const double cycles_s[] = {1e-9, 0.002, 0.01, 0.04, 10};
    enum { CYCLES = sizeof cycles_s / sizeof cycles_s[0] };
    scene s = open_scene("2x p100-server", "trainyard");
    uint32_t counts[CYCLES];

    pin(&s.how.pins, "pp=1,compression=none,micro_batch=32,bucket=one");
    for (size_t i = 0; i < CYCLES; i++) {
        ty_plan *plan = NULL;
        ty_error error = {0};
        pin(&s.how.pins, "cycle=%gs", cycles_s[i]);
        cr_assert_eq(ty_plan_search(s.workload, s.cluster, NULL, &s.how, &plan, &error), TY_OK,
                     "%s", error.message);
        counts[i] = plan->bucket_count;
        cr_expect(i == 0 || counts[i] <= counts[i - 1], "%u after %u", counts[i], counts[i - 1]);
        ty_plan_free(plan);
    }
    cr_expect_gt(counts[0], counts[2]);
    cr_expect_gt(counts[2], 1);
    cr_expect_eq(counts[CYCLES - 1], 1);
    for (uint64_t enough = (uint64_t)1 << 20; enough <= (uint64_t)1 << 28; enough <<= 4) {
        ty_plan *plan = NULL;
        ty_pin(&s.how.pins, TY_AXIS_BUCKET, enough);
        cr_assert_eq(ty_plan_search(s.workload, s.cluster, NULL, &s.how, &plan, NULL), TY_OK);
        for (uint32_t b = 0; b + 1 < plan->bucket_count; b++)
            cr_expect_geq(plan->buckets[b].gradient_bytes, enough);
        cr_expect_gt(plan->bucket_count, 1);
        ty_plan_free(plan);
    }
    close_scene(&s);
}

/* Each single choice is no faster than the answer, one is as fast, and the answer lists all with
 * their slowdown. */
static void check_choices(const char *stack, const double *cycles_s, uint32_t cycle_count)
{
    static const uint64_t thresholds[] = {(uint64_t)128 << 20, (uint64_t)64 << 20,
                                          (uint64_t)16 << 20};
    scene s = open_scene("16x p100-server", stack);
    ty_plan *answer = horovod(&s);
    const double best_s = answer->prediction.step_time_s;
    double least_s = HUGE_VAL;
    uint32_t listed = 0;

    for (uint32_t c = 0; c < cycle_count; c++)
        for (size_t t = 0; t < sizeof thresholds / sizeof thresholds[0]; t++)
            for (int hierarchical = 0; hierarchical < 2; hierarchical++) {
                ty_plan *one;
                bool is_listed = false;
                if (cycles_s[c] > 0)
                    pin(&s.how.pins, "cycle=%gs", cycles_s[c]);
                ty_pin(&s.how.pins, TY_AXIS_BUCKET, thresholds[t]);
                pin(&s.how.pins, "algorithm=%s", hierarchical ? "hierarchical" : "automatic");
                one = horovod(&s);
                least_s = fmin(least_s, one->prediction.step_time_s);
                for (uint32_t i = 0; i < answer->candidate_count; i++)
                    is_listed =
                        is_listed ||
                        (fabs(answer->candidates[i].step_time_s - one->prediction.step_time_s) <
                             1e-9 * best_s &&
                         (strstr(answer->candidates[i].name, ", hierarchical") != NULL) ==
                             (hierarchical == 1) &&
                         (i == 0 ? strcmp(answer->candidates[i].reason, "chosen") == 0
                                 : strstr(answer->candidates[i].reason, " % slower: ") != NULL ||
                                       strstr(answer->candidates[i].reason, "as fast") != NULL));
                cr_expect(is_listed, "%s: %g s, %zu, %d", stack, cycles_s[c], t, hierarchical);
                listed += is_listed;
                ty_plan_free(one);
            }
    cr_expect_float_eq(best_s, least_s, 1e-12, "%s: %.12g, least is %.12g", stack, best_s, least_s);
    cr_expect_eq(listed, 6 * cycle_count);
    cr_expect(cycle_count == 1 || answer->stack->exchange_cycle_s > 0);
    ty_plan_free(answer);
    close_scene(&s);
}

Test(cycles, are_searched_where_the_stack_has_one)
{
    static const double tuned_s[] = {0.001, 0.0025, 0.005, 0.01}, none_s[] = {0};

    check_choices("horovod", tuned_s, 4);
    check_choices("trainyard", none_s, 1);
}

/* Collectives wait for the requested cycle. */
Test(cycles, are_paid_for_where_the_stack_has_one)
{
    scene s = open_scene("16x p100-server", "horovod");
    ty_plan *plan;

    pin(&s.how.pins, "cycle=7ms");
    plan = horovod(&s);
    cr_expect_float_eq(plan->stack->exchange_cycle_s, 0.007, 1e-12);
    cr_expect_not_null(strstr(plan->candidates[0].name, "cycle 7 ms"), "%s",
                       plan->candidates[0].name);
    cr_expect_eq(plan->stack->plans.may.of[TY_AXIS_ZERO], s.stack->plans.may.of[TY_AXIS_ZERO]);
    ty_plan_free(plan);
    close_scene(&s);
    s = open_scene("16x p100-server", "trainyard");
    pin(&s.how.pins, "cycle=7ms");
    plan = horovod(&s);
    cr_expect(!(plan->stack->exchange_cycle_s > 0), "the worker waits for none");
    ty_plan_free(plan);
    close_scene(&s);
}
