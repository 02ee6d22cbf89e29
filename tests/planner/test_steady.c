/*
 * Estimates and memory of short programs against those of whole programs: random plans of every
 * schedule with many micro-batches.
 */
#include "lowering.h"
#include "plans.h"
#include "steady.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

enum { SEEDS = 140, SLOW_STAGES = 8 };

/* Seconds of every kind of instruction of every pipeline rank, the same in all programs. */
typedef struct seconds {
    double of[SLOW_STAGES][TY_OP_COUNT][2]; /* toward the last stage, toward the first */
    double *of_bucket;                      /* [buckets] */
    double cores;                           /* of the one host; 0: none is shared */
} seconds;

static ty_status costs_by_kind(void *context, const ty_plan *plan, const ty_program *program,
                               ty_costs **out, ty_error *error)
{
    const seconds *s = context;

    (void)error;
    *out = make_costs(plan, program);
    for (uint32_t r = 0; r < program->stage_count; r++)
        for (uint32_t i = 0; i < program->stages[r].instruction_count; i++) {
            const ty_instruction *in = &program->stages[r].instructions[i];
            ty_instruction_cost *cost = &(*out)->instructions[r][i];
            if (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER)
                cost->seconds = s->of_bucket[in->bucket];
            else if (in->op != TY_OP_RECEIVE)
                cost->seconds = s->of[r][in->op][in->direction == TY_GRADIENT];
        }
    if (s->cores > 0)
        share_host(*out, s->cores);
    return TY_OK;
}

/* Every schedule, one to eight pipeline ranks, and enough micro-batches for a short program. */
static plan_shape shape_of(random_numbers *numbers, uint64_t seed)
{
    plan_shape shape = {.schedule = (ty_schedule)(seed % TY_SCHEDULE_COUNT)};
    const ty_schedule_row *row = ty_schedule_at(shape.schedule);
    const uint32_t most = 2 + random_below(numbers, SLOW_STAGES - 1);
    const uint32_t ranks =
        row->needs_pipeline || row->is_interleaved ? most : 1 + random_below(numbers, most);
    const bool has_equal = row->is_interleaved || random_below(numbers, 3) > 0;
    const uint32_t replicas = 1 + random_below(numbers, 2);

    shape.virtual_stages = row->is_interleaved ? 2 : 0;
    for (uint32_t s = 0; s < ranks * (row->is_interleaved ? 2 : 1); s++) {
        shape.replicas[s] = has_equal ? replicas : 1 + random_below(numbers, 2);
        shape.layers[s] = 1 + random_below(numbers, 2);
        shape.stage_buckets[s] = 1;
    }
    shape.zero = random_below(numbers, 3) == 0 ? random_below(numbers, row->most_zero + 1u) : 0;
    if (!row->splits_backward && random_below(numbers, 3) == 0) {
        shape.recompute = TY_RECOMPUTE_FULL;
        shape.recompute_blocks = 1;
    }
    shape.micro_batches =
        2 * (600 + random_below(numbers, 600)) * (row->is_interleaved ? ranks : 1);
    if (seed % 12 == 0) /* then the first stage runs ahead of all others, and no period is found */
        shape.frozen = shape.layers[0];
    return shape;
}

/* One stage in three takes as long as the one before it, one in ten has free transfers. */
static void set_costs(random_numbers *numbers, const ty_plan *plan, seconds *out)
{
    const bool is_equal = random_below(numbers, 3) == 0, is_free = random_below(numbers, 10) == 0;

    for (uint32_t r = 0; r < SLOW_STAGES; r++)
        for (uint32_t op = 0; op < TY_OP_COUNT; op++)
            for (int way = 0; way < 2; way++) {
                double *s = &out->of[r][op][way];
                *s = 1e-3 +
                     2e-8 * random_below(numbers, 1000003); /* of equal ends, rounding decides */
                if (op == TY_OP_SEND)
                    *s = is_free ? 0 : *s / 20;
                else if (is_equal && r > 0 &&
                         op != TY_OP_LOAD) /* which are of samples or of labels */
                    *s = out->of[r - 1][op][way];
            }
    out->of_bucket = ty_alloc(plan->bucket_count, sizeof *out->of_bucket);
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        out->of_bucket[b] = 1e-8 * random_below(numbers, 1000003);
}

static ty_plan *plan_with_frozen(const plan_shape *shape)
{
    ty_workload *workload = chain_workload(shape_layers(shape), false);

    for (uint32_t l = 0; l < shape->frozen; l++)
        workload->layers[l].is_frozen = true;
    return plan_of(workload, NULL, shape);
}

static void expect_same_memory(uint64_t seed, const ty_plan *plan, const ty_program *program)
{
    ty_program *passes = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower_passes(plan, &passes, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        ty_memory_use whole, some;
        cr_assert_eq(ty_stage_memory(plan, program, s, &whole, &error), TY_OK);
        cr_assert_eq(ty_stage_memory(plan, passes, s, &some, &error), TY_OK);
        cr_expect_eq(memcmp(&whole, &some, sizeof whole), 0, "seed %llu, stage %u",
                     (unsigned long long)seed, s);
    }
    ty_program_free(passes);
}

static void expect_close(uint64_t seed, const char *what, double found, double expected,
                         double scale)
{
    cr_expect(fabs(found - expected) <= 1e-9 * scale, "seed %llu, %s: %.17g, not %.17g",
              (unsigned long long)seed, what, found, expected);
}

Test(steady, short_programs_equal_whole_ones)
{
    uint32_t shortened = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        random_numbers numbers = {seed * 0x9E3779B97F4A7C15ULL};
        const plan_shape shape = shape_of(&numbers, seed);
        ty_plan *plan = plan_with_frozen(&shape);
        ty_program *program = NULL, *some = NULL;
        ty_costs *costs = NULL;
        seconds s = {.cores = seed % 40 == 0 ? 1.5 : 0};
        ty_step_summary whole, found;
        ty_error error = {0};

        set_costs(&numbers, plan, &s);
        cr_assert_eq(ty_plan_lower_unsigned(plan, &program, &error), TY_OK, "seed %llu: %s",
                     (unsigned long long)seed, error.message);
        expect_same_memory(seed, plan, program);
        cr_assert_eq(costs_by_kind(&s, plan, program, &costs, &error), TY_OK);
        cr_assert_eq(ty_estimate_summary(plan, program, costs,
                                         3 + 2 * ty_program_largest_lead(program), &whole, &error),
                     TY_OK, "seed %llu: %s", (unsigned long long)seed, error.message);
        cr_assert_eq(ty_plan_lower_short(plan, ty_plan_steady_micro_batches(plan), &some, &error),
                     TY_OK);
        shortened += some->left_out > 0;
        cr_assert_eq(ty_estimate_steady(plan, some, costs_by_kind, &s, &found, &error), TY_OK,
                     "seed %llu: %s", (unsigned long long)seed, error.message);
        expect_close(seed, "step", found.step_time_s, whole.step_time_s, whole.step_time_s);
        expect_close(seed, "samples", found.samples_per_s, whole.samples_per_s,
                     whole.samples_per_s);
        expect_close(seed, "compute", found.compute_share, whole.compute_share, 1);
        expect_close(seed, "bubble", found.bubble_share, whole.bubble_share, 1);
        expect_close(seed, "collectives", found.exposed_collective_share,
                     whole.exposed_collective_share, 1);
        expect_close(seed, "transfers", found.exposed_transfer_share, whole.exposed_transfer_share,
                     1);
        expect_close(seed, "input", found.input_share, whole.input_share, 1);
        cr_expect_str_eq(found.limited_by, whole.limited_by, "seed %llu: %s",
                         (unsigned long long)seed, found.limited_by);
        ty_costs_free(costs);
        ty_program_free(program);
        ty_program_free(some);
        ty_plan_free(plan);
        ty_free(s.of_bucket);
    }
    cr_expect_gt(shortened, SEEDS / 2, "only %u programs are short", shortened);
}

/* From as many micro-batches as pipeline ranks on. */
Test(steady, memory_of_few_micro_batches)
{
    uint32_t shortened = 0;

    for (uint64_t seed = 1; seed <= 10 * SEEDS; seed++) {
        random_numbers numbers = {seed * 0x9E3779B97F4A7C15ULL};
        plan_shape shape = shape_of(&numbers, seed);
        uint32_t ranks = 0;
        ty_plan *plan;
        ty_program *program = NULL, *passes = NULL;
        ty_error error = {0};

        while (ranks < sizeof shape.replicas / sizeof *shape.replicas && shape.replicas[ranks] > 0)
            ranks++;
        ranks /= shape.virtual_stages > 0 ? shape.virtual_stages : 1;
        shape.micro_batches = 2 * ranks * (1 + random_below(&numbers, 64 / ranks));
        plan = plan_with_frozen(&shape);
        cr_assert_eq(ty_plan_lower_unsigned(plan, &program, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_plan_lower_passes(plan, &passes, &error), TY_OK, "%s", error.message);
        shortened += passes->left_out > 0;
        expect_same_memory(seed, plan, program);
        ty_program_free(passes);
        ty_program_free(program);
        ty_plan_free(plan);
    }
    cr_expect_gt(shortened, SEEDS, "only %u programs are short", shortened);
}

Test(steady, divisors_in_order)
{
    for (uint32_t n = 1; n <= 300; n++) {
        uint32_t last = 0;
        for (uint32_t d = 1; d <= n; d++)
            if (n % d == 0) {
                cr_expect_eq(ty_next_divisor(n, last), d, "%u after %u", n, last);
                last = d;
            }
        cr_expect_eq(ty_next_divisor(n, last), 0, "%u after all", n);
    }
    cr_expect_eq(ty_next_divisor(UINT32_MAX, 65537), 3 * 65537);
}
