/* Order of gradient collectives: the programs with an order, their step time against a recurrence
 * computed by hand, and the planner's order against all possible ones. */
#include "../pin.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BUCKETS 6

static ty_program *lower(ty_plan *plan)
{
    ty_program *program = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_program_check(plan, program, "priority", &error), TY_OK, "%s", error.message);
    return program;
}

/* A replicated stage with one layer per bucket; the buckets in any order. */
static ty_plan *random_plan(random_numbers *numbers)
{
    const uint32_t buckets = 1 + random_below(numbers, MOST_BUCKETS);
    const plan_shape shape = {.schedule = random_below(numbers, 2) == 0 ? TY_GPIPE : TY_ONE_F_ONE_B,
                              .replicas = {2},
                              .layers = {buckets},
                              .buckets = buckets,
                              .micro_batches = 2 * (1 + random_below(numbers, 3)),
                              .compression.kind = random_below(numbers, 2) == 0
                                                      ? TY_COMPRESSION_NONE
                                                      : TY_COMPRESSION_POWERSGD};
    ty_plan *plan = make_plan(&shape);

    cr_assert_eq(plan->bucket_count, buckets);
    plan->exchange_order = ty_alloc(buckets, sizeof *plan->exchange_order);
    for (uint32_t i = 0; i < buckets; i++) {
        const uint32_t at = random_below(numbers, i + 1);
        plan->exchange_order[i] = plan->exchange_order[at];
        plan->exchange_order[at] = i;
    }
    return plan;
}

Test(priority, programs_keep_to_the_order)
{
    random_numbers numbers = {1};

    for (int n = 0; n < 200; n++) {
        ty_plan *plan = random_plan(&numbers);
        ty_program *program = lower(plan);
        const ty_stage_program *list = &program->stages[0];
        uint32_t next = 0, updated = 0, forward = 0;

        for (uint32_t i = 0; i < list->instruction_count; i++) {
            const ty_instruction *in = &list->instructions[i];
            if (in->op == TY_OP_COLLECTIVE && in->phase == 0)
                cr_expect_eq(in->bucket, plan->exchange_order[next++]);
            if (in->op == TY_OP_UPDATE) /* first layer first */
                cr_expect_eq(in->bucket, plan->bucket_count - ++updated);
            if (in->op == TY_OP_FORWARD && forward < plan->bucket_count) {
                cr_expect_eq(in->first_layer, forward);
                cr_expect_eq(in->layer_count, 1);
                cr_expect_eq(++forward, updated);
            }
            cr_expect(in->bucket == TY_NO_BUCKET || in->lead == 0);
        }
        cr_expect_eq(next, plan->bucket_count);
        cr_expect_eq(updated, plan->bucket_count);
        cr_expect_eq(ty_program_largest_lead(program), 1);
        cr_expect_eq(ty_program_peak_in_flight(program, 0),
                     plan->schedule == TY_GPIPE ? plan->micro_batches / 2 : 1);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

static void swap(ty_stage_program *list, uint32_t i)
{
    const ty_instruction kept = list->instructions[i];
    list->instructions[i] = list->instructions[i + 1];
    list->instructions[i + 1] = kept;
}

/* Two neighbors are swapped: collectives, and an update with the next forward pass. */
Test(priority, checker_refuses_another_order)
{
    const plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                              .replicas = {2},
                              .layers = {3},
                              .buckets = 3,
                              .micro_batches = 2};
    ty_plan *plan = make_plan(&shape);
    ty_program *program;
    ty_stage_program *list;
    uint32_t exchanges = 0, forwards = 0;
    ty_error error = {0};

    plan->exchange_order = ty_alloc(3, sizeof *plan->exchange_order);
    memcpy(plan->exchange_order, (const uint32_t[]){2, 0, 1}, 3 * sizeof(uint32_t));
    program = lower(plan);
    list = &program->stages[0];
    for (uint32_t i = 0; i + 1 < list->instruction_count; i++) {
        const ty_op one = list->instructions[i].op, other = list->instructions[i + 1].op;
        const char *expected = NULL;
        if (one == TY_OP_COLLECTIVE && other == TY_OP_COLLECTIVE)
            expected = "expected the exchange of bucket ";
        if (one == TY_OP_UPDATE && other == TY_OP_FORWARD)
            expected = "expected the update of bucket ";
        if (expected == NULL)
            continue;
        exchanges += one == TY_OP_COLLECTIVE;
        forwards += one == TY_OP_UPDATE;
        swap(list, i);
        cr_assert_eq(ty_program_check(plan, program, "swapped", &error), TY_EPARSE);
        cr_expect_not_null(strstr(error.message, expected), "%s", error.message);
        swap(list, i);
    }
    cr_expect_eq(exchanges, 2);
    cr_expect_eq(forwards, 3);
    for (uint32_t i = 0; i < list->instruction_count; i++) {
        list->instructions[i].lead += 1;
        cr_assert_eq(ty_program_check(plan, program, "late", &error), TY_EPARSE);
        if (list->instructions[i].op != TY_OP_BACKWARD) /* others of these belong to the next
                                                         * step */
            cr_expect_not_null(strstr(error.message, "with an order of all-reduces"), "%s",
                               error.message);
        list->instructions[i].lead -= 1;
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Seconds of each bucket's forward, backward, collective and update. */
typedef struct bucket_times {
    double forward_s, backward_s, exchange_s, update_s;
} bucket_times;

static void set_times(const ty_plan *plan, const ty_program *program, const bucket_times *times,
                      ty_costs *costs)
{
    for (uint32_t i = 0; i < program->stages[0].instruction_count; i++) {
        const ty_instruction *in = &program->stages[0].instructions[i];
        double *seconds = &costs->instructions[0][i].seconds;
        for (uint32_t l = in->first_layer; l < in->first_layer + in->layer_count; l++) {
            const bucket_times *of = &times[plan->bucket_count - 1 - l];
            if (in->op == TY_OP_FORWARD)
                *seconds += of->forward_s;
            if (in->op == TY_OP_BACKWARD)
                *seconds += of->backward_s;
        }
        if (in->op == TY_OP_COLLECTIVE)
            *seconds = times[in->bucket].exchange_s;
        if (in->op == TY_OP_UPDATE)
            *seconds = times[in->bucket].update_s;
    }
}

/* The mean of `steps` steps after a first one, one micro-batch per replica, by hand. */
static double recurrence_s(const ty_plan *plan, const bucket_times *times, uint32_t steps)
{
    const uint32_t buckets = plan->bucket_count;
    double ready_s[MOST_BUCKETS], arrived_s[MOST_BUCKETS] = {0};
    double now_s = 0, link_s = 0, first_s = 0, end_s = 0;

    for (uint32_t step = 0; step <= steps + 1; step++) {
        for (uint32_t b = buckets; b-- > 0;) { /* the first layers are in the last bucket */
            if (step > 0) {
                now_s = fmax(now_s, arrived_s[b]) + times[b].update_s;
                end_s = now_s;
            }
            now_s += times[b].forward_s;
        }
        first_s = step == 1 ? end_s : first_s;
        for (uint32_t b = 0; b < buckets; b++)
            ready_s[b] = now_s += times[b].backward_s;
        for (uint32_t i = 0; i < buckets; i++) {
            const uint32_t b = plan->exchange_order[i];
            link_s = fmax(link_s, ready_s[b]) + times[b].exchange_s;
            arrived_s[b] = link_s;
        }
    }
    return (end_s - first_s) / steps;
}

Test(priority, a_step_is_what_a_recurrence_says)
{
    enum { STEPS = 6 };
    random_numbers numbers = {2};

    for (int n = 0; n < 300; n++) {
        const uint32_t buckets = 1 + random_below(&numbers, MOST_BUCKETS);
        const plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                                  .replicas = {2},
                                  .layers = {buckets},
                                  .buckets = buckets,
                                  .micro_batches = 2};
        ty_plan *plan = make_plan(&shape);
        ty_program *program;
        ty_costs *costs;
        ty_timeline *timeline = NULL;
        bucket_times times[MOST_BUCKETS];
        double ends[2] = {0, 0}, found_s, expected_s;
        ty_error error = {0};

        plan->exchange_order = ty_alloc(buckets, sizeof *plan->exchange_order);
        for (uint32_t i = 0; i < buckets; i++) {
            const uint32_t at = random_below(&numbers, i + 1);
            plan->exchange_order[i] = plan->exchange_order[at];
            plan->exchange_order[at] = i;
            times[i] = (bucket_times){random_seconds(&numbers), random_seconds(&numbers),
                                      2 * random_seconds(&numbers), random_seconds(&numbers)};
        }
        program = lower(plan);
        costs = make_costs(plan, program);
        set_times(plan, program, times, costs);
        cr_assert_eq(ty_estimate(plan, program, costs, STEPS + 2, &timeline, &error), TY_OK, "%s",
                     error.message);
        for (uint64_t e = 0; e < timeline->event_count; e++) {
            const ty_event *event = &timeline->events[e];
            if (program->stages[0].instructions[event->instruction].op == TY_OP_UPDATE &&
                (event->step == 0 || event->step == STEPS))
                ends[event->step > 0] = fmax(ends[event->step > 0], event->end_s);
        }
        found_s = (ends[1] - ends[0]) / STEPS;
        expected_s = recurrence_s(plan, times, STEPS);
        cr_expect(fabs(found_s - expected_s) <= 1e-9 * expected_s + 1e-12, "case %d: %.9g, %.9g", n,
                  found_s, expected_s);
        ty_timeline_free(timeline);
        ty_costs_free(costs);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* ---- The planner's order ------------------------------------------------------------------- */

static double estimated_s(const ty_plan *plan)
{
    ty_program *program = lower((ty_plan *)plan);
    ty_costs *costs = NULL;
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_eq(ty_costs_of_program(plan, program, plan->cluster, &costs, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_estimate_summary(plan, program, costs, 5, &summary, &error), TY_OK, "%s",
                 error.message);
    ty_costs_free(costs);
    ty_program_free(program);
    return summary.step_time_s;
}

/* The shortest step over all orders of the buckets after the first `fixed`. */
static double best_of_all(ty_plan *plan, uint32_t fixed)
{
    uint32_t *order = plan->exchange_order;
    double best_s = HUGE_VAL;

    if (fixed == plan->bucket_count)
        return estimated_s(plan);
    for (uint32_t i = fixed; i < plan->bucket_count; i++) {
        uint32_t kept = order[fixed];
        order[fixed] = order[i];
        order[i] = kept;
        best_s = fmin(best_s, best_of_all(plan, fixed + 1));
        kept = order[fixed];
        order[fixed] = order[i];
        order[i] = kept;
    }
    return best_s;
}

/* With the framework that supports all orders; a query for an order uses another default. */
static ty_plan *search(const ty_workload *workload, const ty_cluster *cluster, const char *fix)
{
    ty_plan_options how = ty_plan_options_default();
    ty_stack *stack = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &stack, &error), TY_OK, "%s", error.message);
    how.stack = stack;
    cr_assert_eq(ty_pins_read(fix, ty_cluster_device_count(cluster), &how.pins, &error), TY_OK,
                 "%s", error.message);
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &how, &plan, &error), TY_OK, "%s: %s", fix,
                 error.message);
    cr_assert_eq(ty_plan_check(plan, "found", &error), TY_OK, "%s", error.message);
    ty_stack_free(stack);
    return plan;
}

/* Maximum step time relative to the best of all orders: with the planner's order, and with the
 * first layers first (docs/design/parallelism.md). */
#define FARTHEST 1.02
#define FARTHEST_FRONT 1.25

/* Models whose first layers have few weights, whose last layers have many, and some in between, on
 * fast and slow links. */
Test(priority, the_order_against_all_orders)
{
    static const struct {
        const char *workload, *buckets;
    } rows[] = {{"vgg16", "25MiB"},    {"vgg16", "16MiB"},   {"alexnet", "8MiB"}, {"lenet", "1B"},
                {"resnet50", "25MiB"}, {"resnet18", "8MiB"}, {"mlp", "1B"}};
    static const char *const clusters[] = {"2x p100-server",
                                           "host:4 gpu:1 @v100-sxm2-16gb nvlink2 eth10",
                                           "host:2 gpu:1 @v100-sxm2-16gb nvlink2 eth1"};
    double farthest = 1, farthest_front = 1, gained = 0;
    uint32_t compared = 0;
    ty_error error = {0};

    for (size_t w = 0; w < sizeof rows / sizeof rows[0]; w++)
        for (size_t c = 0; c < sizeof clusters / sizeof clusters[0]; c++) {
            ty_workload *workload = NULL;
            ty_cluster *cluster = NULL;
            ty_plan *without, *with, *shorter;
            char fix[128], words[160];
            double best_s;

            cr_assert_eq(ty_workload_open(rows[w].workload, &workload, &error), TY_OK);
            cr_assert_eq(ty_cluster_open(clusters[c], NULL, &cluster, &error), TY_OK, "%s",
                         error.message);
            snprintf(fix, sizeof fix, "pp=1,compression=none,recompute=none,bucket=%s",
                     rows[w].buckets);
            without = search(workload, cluster, fix);
            snprintf(words, sizeof words, "%s,priority=1,micro_batch=%u", fix,
                     without->micro_batch_size);
            with = search(workload, cluster, words);
            snprintf(words, sizeof words, "%s,priority=shorter,micro_batch=%u", fix,
                     without->micro_batch_size);
            shorter = search(workload, cluster, words);
            cr_assert_null(without->exchange_order);
            cr_assert_not_null(with->exchange_order);
            cr_assert_leq(with->bucket_count, 6);
            cr_expect_lt(fabs(estimated_s(with) / with->prediction.step_time_s - 1), 1e-9);
            cr_expect_leq(shorter->prediction.step_time_s,
                          fmin(with->prediction.step_time_s, without->prediction.step_time_s) *
                              (1 + 1e-9));
            cr_expect_eq(shorter->exchange_order != NULL,
                         shorter->prediction.step_time_s < without->prediction.step_time_s);
            cr_expect_lt(fabs(estimated_s(shorter) / shorter->prediction.step_time_s - 1), 1e-9);
            best_s = fmin(best_of_all(with, 0), without->prediction.step_time_s);
            cr_expect_geq(with->prediction.step_time_s, best_s * (1 - 1e-9));
            cr_expect_geq(shorter->prediction.step_time_s, best_s * (1 - 1e-9));
            farthest_front = fmax(farthest_front, with->prediction.step_time_s / best_s);
            farthest = fmax(farthest, shorter->prediction.step_time_s / best_s);
            gained =
                fmax(gained, 1 - shorter->prediction.step_time_s / without->prediction.step_time_s);
            compared++;
            ty_plan_free(without);
            ty_plan_free(with);
            ty_plan_free(shorter);
            ty_cluster_free(cluster);
            ty_workload_free(workload);
        }
    cr_log_info("%u plans: shorter at most %.4f of the best order, 1 %.4f, up to %.3f gained\n",
                compared, farthest, farthest_front, gained);
    cr_expect_leq(farthest_front, FARTHEST_FRONT);
    cr_expect_leq(farthest, FARTHEST);
    cr_expect_gt(gained, 0.02);
}

Test(priority, refused_by_reason)
{
    static const struct {
        const char *fix, *message;
    } rows[] = {
        {"priority=1,pp=2", "priority: found 1, expected 0: the next step's forward begins on"},
        {"priority=1,zero=1", "priority: found 1, expected 0: with ZeRO"},
        {"priority=1,servers=1", "priority: found 1, expected 0: servers answer"},
        {"priority=1,staleness=1", "priority: found 1, expected 0: late gradients"},
        {"priority=1,schedule=pipedream", "priority: found 1, expected 0: that schedule"},
        {"priority=1,recompute=full", "priority: found 1, expected 0: segments are recomputed"},
        {"priority=1,dp=1,devices=1", "priority: found 1, expected 0: one replica"},
        {"priority=2", "--fix priority: found '2', expected 0, 1 for buckets"},
    };
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_workload_open("vgg16", &workload, &error), TY_OK);
    cr_assert_eq(ty_cluster_open("2x p100-server", NULL, &cluster, &error), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan_options how = ty_plan_options_default();
        ty_plan *plan = NULL;
        ty_status status = ty_pins_read(rows[i].fix, 8, &how.pins, &error);

        if (status == TY_OK)
            status = ty_plan_search(workload, cluster, NULL, &how, &plan, &error);
        cr_expect_eq(status, TY_EINVAL, "%s", rows[i].fix);
        cr_expect_not_null(strstr(error.message, rows[i].message), "%s: %s", rows[i].fix,
                           error.message);
    }
    ty_workload_set_precision(workload, TY_PRECISION_FP16);
    for (int k = 0; k < 2; k++) { /* refused by the framework, then by the training mode */
        ty_plan_options how = {.seed = 1};
        ty_plan *plan = NULL;
        pin(&how.pins, "priority=1");
        cr_expect_eq(ty_plan_search(workload, cluster, NULL, &how, &plan, &error), TY_EINVAL);
        cr_expect_not_null(strstr(error.message, k == 0 ? "gradients of fp16" : "local steps"),
                           "%s", error.message);
        ty_workload_set_precision(workload, TY_PRECISION_FP32);
        workload->local_steps = 4;
    }
    ty_cluster_free(cluster);
    ty_workload_free(workload);
}
