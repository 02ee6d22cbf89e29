/* ty_buckets_choose against all possible boundaries. */
#include "../pin.h"
#include "ty_base.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 10

typedef struct gradients {
    uint32_t count;
    double ready_s[MOST], bytes[MOST];
    double latency_s, s_per_byte;
} gradients;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static double seconds(void *context, uint32_t first, uint32_t count)
{
    const gradients *g = context;
    double sum = 0;

    for (uint32_t i = first; i < first + count; i++)
        sum += g->bytes[i];
    return g->latency_s + sum * g->s_per_byte;
}

/* Integers, so that sums are exact. */
static gradients random_gradients(uint64_t *state)
{
    gradients g = {.count = 1 + (uint32_t)(next_random(state) % MOST),
                   .latency_s = (double)(next_random(state) % 8),
                   .s_per_byte = (double)(1 + next_random(state) % 3)};
    double time_s = 0;

    for (uint32_t i = 0; i < g.count; i++) {
        time_s += (double)(next_random(state) % 6);
        g.ready_s[i] = time_s;
        g.bytes[i] = (double)(next_random(state) % 6);
    }
    return g;
}

/* Bit i of `cuts`: a bucket ends after gradient i. */
static double end_of(gradients *g, uint32_t cuts, uint32_t *buckets)
{
    double end_s = 0;
    uint32_t first = 0;

    *buckets = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        if (i + 1 < g->count && (cuts >> i & 1) == 0)
            continue;
        end_s = fmax(end_s, g->ready_s[i]) + seconds(g, first, i + 1 - first);
        first = i + 1;
        ++*buckets;
    }
    return end_s;
}

static uint32_t count_buckets(const uint32_t *first_of_last, uint32_t end)
{
    uint32_t count = 0;

    for (; end > 0; end = first_of_last[end]) {
        cr_assert_lt(first_of_last[end], end);
        count++;
    }
    return count;
}

Test(buckets, equal_brute_force)
{
    uint64_t state = 20240611;
    uint32_t divided = 0;

    for (uint32_t trial = 0; trial < 2000; trial++) {
        gradients g = random_gradients(&state);
        uint32_t first_of_last[MOST + 1], fewest = UINT32_MAX;
        double end_s[MOST + 1], best_s = HUGE_VAL;
        for (uint32_t cuts = 0; cuts < 1u << (g.count - 1); cuts++) {
            uint32_t buckets;
            const double s = end_of(&g, cuts, &buckets);
            if (s < best_s || (s == best_s && buckets < fewest)) {
                best_s = s;
                fewest = buckets;
            }
        }
        cr_assert_eq(ty_buckets_choose(g.count, g.ready_s, seconds, &g, first_of_last, end_s, NULL),
                     TY_OK);
        cr_assert_eq(end_s[g.count], best_s, "trial %u: %g, not %g", trial, end_s[g.count], best_s);
        cr_assert_leq(count_buckets(first_of_last, g.count), g.count);
        divided += fewest > 1;
    }
    cr_assert_gt(divided, 500);
}

/* Latency only: one bucket. Bandwidth only: as many as help, the last one as small as possible. */
Test(buckets, follow_latency_and_bandwidth)
{
    gradients g = {.count = 4, .ready_s = {1, 2, 3, 4}, .bytes = {1, 1, 1, 1}};
    uint32_t first_of_last[5];
    double end_s[5];

    g.latency_s = 10;
    cr_assert_eq(ty_buckets_choose(4, g.ready_s, seconds, &g, first_of_last, end_s, NULL), TY_OK);
    cr_assert_eq(first_of_last[4], 0);
    cr_assert_eq(end_s[4], 14);
    g.latency_s = 0;
    g.s_per_byte = 1;
    cr_assert_eq(ty_buckets_choose(4, g.ready_s, seconds, &g, first_of_last, end_s, NULL), TY_OK);
    cr_assert_eq(count_buckets(first_of_last, 4), 4);
    cr_assert_eq(end_s[4], 5);
}

Test(buckets, survive_a_failing_allocation)
{
    gradients g = {.count = 2, .ready_s = {1, 2}, .bytes = {1, 1}, .s_per_byte = 1};
    uint32_t first_of_last[3];
    double end_s[3];
    ty_error error = {0};

    ty_memory_fail_after(1);
    cr_assert_eq(ty_buckets_choose(2, g.ready_s, seconds, &g, first_of_last, end_s, &error),
                 TY_ENOMEM);
    ty_memory_fail_after(0);
}

/* If communication is exposed, the plan with fitted buckets ends no later than any plan with equal
 * ones. */
Test(buckets, are_fitted_where_the_exchange_shows)
{
    ty_workload *vgg = NULL;
    ty_cluster *cluster = NULL;
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan = NULL;
    double fitted_s = HUGE_VAL, others_s = HUGE_VAL;
    ty_error error = {0};

    pin(&options.pins, "pp=1,compression=none,micro_batch=16");
    cr_assert_eq(ty_workload_open("vgg16", &vgg, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open("4x p100-server-roce", NULL, &cluster, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_plan_search(vgg, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        double *least_s =
            strstr(plan->candidates[i].name, "fitted") != NULL ? &fitted_s : &others_s;
        if (plan->candidates[i].step_time_s > 0)
            *least_s = fmin(*least_s, plan->candidates[i].step_time_s);
    }
    cr_assert_lt(others_s, HUGE_VAL);
    cr_assert_leq(fitted_s, others_s * (1 + 1e-9), "fitted %g s, others %g s", fitted_s, others_s);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(vgg);
}
