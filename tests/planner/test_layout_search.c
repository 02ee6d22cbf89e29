/* The search for a layout against the estimation of every configuration, on random questions; its
 * answers where nothing fits and when it is stopped. */
#include "ty_planner.h"

#include "ty_memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUESTIONS 2000

static uint64_t seed = 20261120;

static uint32_t pick(uint32_t count)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % count);
}

static uint32_t one_of(const uint32_t *values, uint32_t count)
{
    return values[pick(count)];
}

static ty_layout_constants constants(void)
{
    ty_layout_constants k;
    ty_error error = {0};
    cr_assert_eq(ty_layout_constants_load(NULL, &k, &error), TY_OK, "%s", error.message);
    return k;
}

/* Small shapes on few devices, such that layouts that fit and layouts that do not are mixed. */
static ty_layout_question random_question(const ty_layout_constants *k)
{
    static const uint32_t layers[] = {1, 2, 3, 4, 6, 8}, heads[] = {1, 2, 4, 6},
                          devices[] = {1, 2, 4, 6, 8}, batches[] = {1, 2, 4, 6, 8, 12};
    ty_layout_question q = {.shape = {.layers = one_of(layers, 6),
                                      .heads = one_of(heads, 4),
                                      .vocabulary = 100 + pick(40000),
                                      .sequence = 64u << pick(4),
                                      .is_causal = pick(2) == 0,
                                      .is_fused = pick(2) == 0,
                                      .is_gated = pick(2) == 0,
                                      .is_tied = pick(2) == 0,
                                      .has_dropout = pick(2) == 0},
                            .cluster = {.devices = one_of(devices, 5),
                                        .devices_per_host = 1u << pick(4),
                                        .host_bandwidth_bytes_per_s = 1e9 * (1 + pick(300)),
                                        .nic_bandwidth_bytes_per_s = 1e9 * (1 + pick(100)),
                                        .oversubscription = 1 + pick(3)},
                            .device = {.name = "random",
                                       .peak_half_flop_per_s = 1e12 * (1 + pick(300)),
                                       .memory_bandwidth_bytes_per_s = 1e10 * (1 + pick(200))},
                            .constants = *k,
                            .global_batch = one_of(batches, 6),
                            .gradient_bytes = 2 + 2 * pick(2)};
    q.shape.hidden = q.shape.heads * 64 * (1 + pick(4));
    q.shape.ffn = q.shape.hidden * (1 + pick(4));
    if (pick(3) == 0) {
        q.shape.experts = 2 + 2 * pick(3);
        q.shape.experts_per_token = 1 + pick(2);
        q.shape.expert_ffn = q.shape.ffn;
        q.shape.shared_ffn = pick(2) * q.shape.ffn;
        q.shape.dense_layers = pick(q.shape.layers + 1);
    }
    q.constants.context_bytes = 1e6;
    q.constants.nic_group_bytes_per_s = pick(2) * 1e9;
    q.constants.data_skew = pick(2) * 0.01;
    if (pick(2) == 0)
        q.constants.host_kernel_s = 0;
    q.device.memory_bytes =
        ty_layout_parameters(&q.shape) * (2 + pick(60)) / q.cluster.devices + 1e7;
    return q;
}

/* Each dimension is free, or not: so that what is left stays small. */
static ty_layout_options random_options(void)
{
    ty_layout_options o = ty_layout_options_default();
    o.schedules = 2 | pick(8);
    o.recomputes = 1 | pick(8);
    o.zeros = 1 | pick(16);
    o.compressions = 1 | pick(8);
    o.sequence_parallel = 1 | pick(4);
    o.overlap_gradients = 1 | pick(4);
    o.overlap_tensor = 1 | pick(4);
    if (pick(8) == 0) /* and what leaves out much, or everything */
        o.zeros = 8, o.overlap_gradients = 2, o.recomputes = 4;
    o.bucket_count = pick(3);
    o.top = 1 + pick(12);
    if (pick(4) == 0)
        o.micro_batch = 1;
    return o;
}

static bool is_same(const ty_layout_result *a, const ty_layout_result *b)
{
    return ty_layout_compare(&a->layout, &b->layout) == 0 &&
           a->estimate.step_time_s == b->estimate.step_time_s &&
           a->estimate.memory.total == b->estimate.memory.total;
}

static void expect_equal(const ty_layout_answer *a, const ty_layout_answer *b, int question)
{
    cr_assert_eq(a->configurations, b->configurations, "question %d: %llu of %llu", question,
                 (unsigned long long)a->configurations, (unsigned long long)b->configurations);
    cr_assert_eq(a->configurations, a->estimated + a->unfit + a->pruned);
    cr_assert_eq(a->best_count, b->best_count, "question %d", question);
    cr_assert_eq(a->front_count, b->front_count, "question %d", question);
    for (uint32_t i = 0; i < a->best_count; i++)
        cr_assert(is_same(&a->best[i], &b->best[i]), "question %d: best %u", question, i);
    for (uint32_t i = 0; i < a->front_count; i++)
        cr_assert(is_same(&a->front[i], &b->front[i]), "question %d: front %u", question, i);
}

Test(layout_search, equals_the_exhaustive_one)
{
    ty_layout_constants k = constants();
    int found = 0, infeasible = 0, without = 0;
    uint64_t pruned = 0;

    for (int i = 0; i < QUESTIONS; i++) {
        ty_layout_question q = random_question(&k);
        ty_layout_options o = random_options();
        ty_layout_answer *fast = NULL, *slow = NULL;
        ty_error error = {0};
        ty_status a, b;
        cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK, "%s", error.message);
        a = ty_layout_search(&q, &o, &fast, &error);
        b = ty_layout_search_exhaustive(&q, &o, &slow, &error);
        if (b == TY_OK) {
            cr_assert_eq(a, TY_OK, "question %d: %s", i, error.message);
            expect_equal(fast, slow, i);
            pruned += fast->pruned;
            found++;
        } else {
            cr_assert(a == TY_EINFEASIBLE || a == TY_EINVAL, "question %d", i);
            infeasible += a == TY_EINFEASIBLE;
            without += a == TY_EINVAL;
        }
        ty_layout_answer_free(fast);
        ty_layout_answer_free(slow);
    }
    cr_log_info("%d answered, %d do not fit, %d have no layout", found, infeasible, without);
    cr_expect(found > QUESTIONS / 3 && infeasible > 20 && pruned > 0, "%d, %d, %llu", found,
              infeasible, (unsigned long long)pruned);
}

/* Of a front no member is beaten in both, and of all others none beats a member. */
Test(layout_search, front_is_a_front)
{
    ty_layout_constants k = constants();
    for (int i = 0; i < 200; i++) {
        ty_layout_question q = random_question(&k);
        ty_layout_options o = ty_layout_options_default();
        ty_layout_answer *a = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK);
        if (ty_layout_search(&q, &o, &a, &error) != TY_OK)
            continue;
        cr_expect(is_same(&a->front[0], &a->best[0]));
        for (uint32_t j = 1; j < a->front_count; j++) {
            cr_expect(a->front[j].estimate.step_time_s > a->front[j - 1].estimate.step_time_s);
            cr_expect(a->front[j].estimate.memory.total < a->front[j - 1].estimate.memory.total);
        }
        for (uint32_t j = 1; j < a->best_count; j++)
            cr_expect(a->best[j].estimate.step_time_s >= a->best[j - 1].estimate.step_time_s);
        ty_layout_answer_free(a);
    }
}

/* ---- GPT-3 ------------------------------------------------------------------------------------
 */

static ty_layout_question gpt3(uint32_t hosts, uint32_t batch)
{
    ty_workload *w = NULL;
    ty_layout_question q = {.cluster = {.devices = 8 * hosts,
                                        .devices_per_host = 8,
                                        .host_bandwidth_bytes_per_s = 300e9,
                                        .nic_bandwidth_bytes_per_s = 200e9,
                                        .oversubscription = 1},
                            .device = {.name = "a100-sxm4-80gb",
                                       .peak_half_flop_per_s = 312e12,
                                       .memory_bandwidth_bytes_per_s = 2039e9,
                                       .memory_bytes = 80.0 * 1073741824},
                            .constants = constants(),
                            .global_batch = batch,
                            .gradient_bytes = 4};
    ty_error error = {0};
    cr_assert_eq(ty_workload_open("gpt3-175b", &w, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_layout_shape_of(w, &q.shape, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK, "%s", error.message);
    ty_workload_free(w);
    return q;
}

/* 18 bytes for each of 175e9 parameters need more than sixteen devices of 80 GiB; the number that
 * is said to do is enough, and half of it is not. */
Test(layout_search, says_what_would_fit)
{
    ty_layout_question q = gpt3(2, 64);
    ty_layout_options o = ty_layout_options_default();
    ty_layout_answer *a = NULL;
    ty_error error = {0};
    const char *place;
    unsigned devices = 0;

    cr_assert_eq(ty_layout_search(&q, &o, &a, &error), TY_EINFEASIBLE);
    cr_expect_not_null(strstr(error.message, "80 GiB"), "%s", error.message);
    place = strstr(error.message, " or ");
    cr_assert(place != NULL && sscanf(place, " or %u devices", &devices) == 1, "%s", error.message);
    q.cluster.devices = devices;
    cr_assert_eq(ty_layout_search(&q, &o, &a, &error), TY_OK, "%s", error.message);
    cr_expect(a->best[0].estimate.memory.total <= q.device.memory_bytes);
    ty_layout_answer_free(a);
    q.cluster.devices = devices / 2;
    cr_expect_eq(ty_layout_search(&q, &o, &a, &error), TY_EINFEASIBLE);
}

Test(layout_search, without_any_layout)
{
    ty_layout_question q = gpt3(2, 64);
    ty_layout_options o = ty_layout_options_default();
    ty_layout_answer *a = NULL;
    ty_error error = {0};

    o.tensor = 5;
    cr_expect_eq(ty_layout_search(&q, &o, &a, &error), TY_EINVAL);
    o = ty_layout_options_default();
    o.top = 0;
    cr_expect_eq(ty_layout_search(&q, &o, &a, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "top"), "%s", error.message);
}

typedef struct stopper {
    int polls, stop_at;
} stopper;

static bool stop(void *context)
{
    stopper *s = context;
    return s->polls++ >= s->stop_at;
}

Test(layout_search, can_be_stopped)
{
    ty_layout_question q = gpt3(64, 1024);
    ty_layout_options o = ty_layout_options_default();
    stopper s = {0, 1 << 30};
    int polls;
    ty_layout_answer *a = NULL;
    ty_error error = {0};

    o.should_stop = stop;
    o.stop_context = &s;
    cr_assert_eq(ty_layout_search(&q, &o, &a, &error), TY_OK, "%s", error.message);
    cr_expect(!a->is_interrupted);
    ty_layout_answer_free(a);
    polls = s.polls;
    s = (stopper){0, polls - 1};
    cr_assert_eq(ty_layout_search(&q, &o, &a, &error), TY_OK, "%s", error.message);
    cr_expect(a->is_interrupted && a->best_count > 0 && s.polls == polls);
    ty_layout_answer_free(a);
    s = (stopper){0, 0};
    cr_expect_eq(ty_layout_search(&q, &o, &a, &error), TY_EINTERRUPTED);
}

/* What is fixed is kept. */
Test(layout_search, keeps_what_is_fixed)
{
    ty_layout_question q = gpt3(64, 1024);
    ty_layout_options o = ty_layout_options_default();
    ty_layout_answer *a = NULL;
    ty_error error = {0};

    o.tensor = 8;
    o.pipeline = 16;
    o.interleave = 2;
    o.micro_batch = 2;
    o.zeros = 1u << 1;
    cr_assert_eq(ty_layout_search(&q, &o, &a, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < a->best_count; i++) {
        const ty_layout *l = &a->best[i].layout;
        cr_expect(l->tensor == 8 && l->pipeline == 16 && l->interleave == 2 &&
                  l->micro_batch == 2 && l->zero == 1);
    }
    ty_layout_answer_free(a);
}

Test(layout_search, survives_lack_of_memory)
{
    ty_layout_question q = gpt3(16, 64);
    ty_layout_options o = ty_layout_options_default();
    ty_status status = TY_ENOMEM;
    ty_error error = {0};

    for (long n = 1; status == TY_ENOMEM && n < 1000; n++) {
        ty_layout_answer *a = NULL;
        ty_memory_fail_after(n);
        status = ty_layout_search(&q, &o, &a, &error);
        ty_memory_fail_after(0);
        ty_layout_answer_free(a);
    }
    cr_expect_eq(status, TY_OK, "%s", error.message);
}
