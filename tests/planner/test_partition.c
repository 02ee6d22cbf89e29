/* The partitioner against brute force, its documented tie-breaking, its errors, and its speed. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 8
#define MOST_DEVICES 5

/* A random chain. All times are small integers, so that their sums are exact in any order and equal
 * partitions compare equal. */
typedef struct chain {
    uint32_t layers, cut_count, devices, stages;
    double layer_s[MOST_LAYERS], transfer_s[MOST_LAYERS + 1];
    uint32_t cuts[MOST_LAYERS];
    double parameters[MOST_LAYERS];
    double memory; /* that fits a stage; 0: everything fits */
    bool has_fixed;
    uint32_t fixed[MOST_DEVICES]; /* replicas per stage */
} chain;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(next_random(state) >> 11) % limit;
}

static double sum(const double *values, uint32_t first, uint32_t count)
{
    double total = 0;
    for (uint32_t i = first; i < first + count; i++)
        total += values[i];
    return total;
}

static double exchange_s(void *context, uint32_t first, uint32_t count, uint32_t replicas)
{
    const chain *c = context;
    return sum(c->parameters, first, count) * (replicas - 1);
}

/* Earlier stages have more in-flight micro-batches. */
static bool fits(void *context, uint32_t first, uint32_t count, uint32_t replicas,
                 uint32_t stages_after)
{
    const chain *c = context;
    return c->memory == 0 ||
           sum(c->parameters, first, count) * (1 + stages_after) / replicas <= c->memory;
}

static chain random_chain(uint64_t *state)
{
    chain c = {.layers = 1 + below(state, MOST_LAYERS), .devices = 1 + below(state, MOST_DEVICES)};
    c.stages = 1 + below(state, c.devices);
    for (uint32_t i = 0; i < c.layers; i++) {
        c.layer_s[i] = below(state, 6);
        c.parameters[i] = below(state, 4);
        c.transfer_s[i + 1] = below(state, 8);
        if (i > 0 && below(state, 4) != 0)
            c.cuts[c.cut_count++] = i;
    }
    if (below(state, 2) == 0)
        c.memory = 1 + below(state, 8);
    c.has_fixed = below(state, 3) == 0;
    for (uint32_t i = 0; i < c.devices; i++)
        c.fixed[i < c.stages ? i : below(state, c.stages)]++;
    return c;
}

static ty_partition_input input_of(chain *c)
{
    return (ty_partition_input){.layer_count = c->layers,
                                .layer_s = c->layer_s,
                                .transfer_s = c->transfer_s,
                                .cut_count = c->cut_count,
                                .cuts = c->cuts,
                                .devices = c->devices,
                                .stages = c->stages,
                                .exchange_s = exchange_s,
                                .fits = fits,
                                .context = c,
                                .fixed_replicas = c->has_fixed ? c->fixed : NULL};
}

typedef struct division {
    uint32_t first_layers[MOST_DEVICES], replicas[MOST_DEVICES];
    double bottleneck_s, cut_s;
} division;

/* Every partition, in the order that breaks ties: the first best one stays. */
static void enumerate(chain *c, uint32_t stage, uint32_t first, uint32_t devices, division *trial,
                      division *best)
{
    uint32_t stages_after = c->stages - 1 - stage;
    for (uint32_t cut = 0; cut <= c->cut_count; cut++) {
        uint32_t end = cut < c->cut_count ? c->cuts[cut] : c->layers;
        if (end <= first || (stages_after == 0) != (end == c->layers))
            continue;
        for (uint32_t r = 1; r + stages_after <= devices; r++) {
            division saved = *trial;
            double compute = sum(c->layer_s, first, end - first);
            double exchange = r == 1 ? 0 : exchange_s(c, first, end - first, r);
            if ((stages_after == 0 && r != devices) || (c->has_fixed && r != c->fixed[stage]) ||
                !fits(c, first, end - first, r, stages_after))
                continue;
            trial->first_layers[stage] = first;
            trial->replicas[stage] = r;
            trial->bottleneck_s = fmax(trial->bottleneck_s, (compute + exchange) / r);
            if (stage > 0)
                trial->bottleneck_s = fmax(trial->bottleneck_s, c->transfer_s[first] / r);
            if (stages_after > 0) {
                trial->bottleneck_s = fmax(trial->bottleneck_s, c->transfer_s[end] / r);
                trial->cut_s += c->transfer_s[end];
                enumerate(c, stage + 1, end, devices - r, trial, best);
            } else if (trial->bottleneck_s < best->bottleneck_s ||
                       (trial->bottleneck_s == best->bottleneck_s && trial->cut_s < best->cut_s)) {
                *best = *trial;
            }
            *trial = saved;
        }
    }
}

static ty_status partition(const ty_partition_input *input, uint32_t stages, uint32_t *first_layers,
                           uint32_t *replicas, double *bottleneck_s, ty_error *error)
{
    ty_partitioner *partitioner = NULL;
    ty_status status = ty_partitioner_open(input, &partitioner, error);

    if (status == TY_OK)
        status =
            ty_partitioner_divide(partitioner, stages, first_layers, replicas, bottleneck_s, error);
    ty_partitioner_close(partitioner);
    return status;
}

/* If several numbers of stages can be queried: after queries of two other numbers. */
static ty_status divide_in_turn(const ty_partition_input *input, uint64_t *state, division *found,
                                ty_error *error)
{
    ty_partition_input most = *input;
    ty_partitioner *partitioner = NULL;
    division other;
    ty_status status;

    if (input->fixed_replicas == NULL)
        most.stages = input->devices;
    status = ty_partitioner_open(&most, &partitioner, error);
    for (int i = 0; input->fixed_replicas == NULL && status == TY_OK && i < 2; i++) {
        const ty_status earlier =
            ty_partitioner_divide(partitioner, 1 + below(state, most.stages), other.first_layers,
                                  other.replicas, &other.bottleneck_s, error);
        cr_assert(earlier == TY_OK || earlier == TY_EINFEASIBLE);
    }
    if (status == TY_OK)
        status = ty_partitioner_divide(partitioner, input->stages, found->first_layers,
                                       found->replicas, &found->bottleneck_s, error);
    ty_partitioner_close(partitioner);
    return status;
}

static void check_against_brute_force(uint64_t seed, uint32_t number, uint32_t *feasible)
{
    uint64_t state = seed + number * 0x9e3779b97f4a7c15u;
    chain c = random_chain(&state);
    ty_partition_input input = input_of(&c);
    division trial = {0}, best = {.bottleneck_s = HUGE_VAL}, found = {0};
    ty_error error = {0};
    ty_status status = divide_in_turn(&input, &state, &found, &error);

    enumerate(&c, 0, 0, c.devices, &trial, &best);
    if (best.bottleneck_s == HUGE_VAL) {
        cr_assert_eq(status, TY_EINFEASIBLE, "seed %llu, chain %u: %s", (unsigned long long)seed,
                     number, error.message);
        return;
    }
    (*feasible)++;
    cr_assert_eq(status, TY_OK, "seed %llu, chain %u: %s", (unsigned long long)seed, number,
                 error.message);
    cr_assert_eq(found.bottleneck_s, best.bottleneck_s, "seed %llu, chain %u: %g, not %g",
                 (unsigned long long)seed, number, found.bottleneck_s, best.bottleneck_s);
    for (uint32_t i = 0; i < c.stages; i++)
        cr_assert(found.first_layers[i] == best.first_layers[i] &&
                      found.replicas[i] == best.replicas[i],
                  "seed %llu, chain %u, stage %u: layer %u x %u, not %u x %u",
                  (unsigned long long)seed, number, i, found.first_layers[i], found.replicas[i],
                  best.first_layers[i], best.replicas[i]);
}

Test(partition, equals_brute_force)
{
    const char *text = getenv("TY_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20240607;
    uint32_t feasible = 0;

    fprintf(stderr, "partition: seed %llu (TY_TEST_SEED)\n", (unsigned long long)seed);
    for (uint32_t i = 1; i <= 2000; i++)
        check_against_brute_force(seed, i, &feasible);
    cr_assert_gt(feasible, 500);
}

/* Layers of 2 2 2 6 seconds, each cut 1 second. Three devices in two stages: {2 2} x 1 is 4 and {2
 * 6} x 2 is 4; {2 2 2} x 1 would be 6, {2 2 6} x 2 would be 5. */
Test(partition, hand_computed)
{
    const double layer_s[] = {2, 2, 2, 6}, transfer_s[] = {0, 1, 1, 1, 0};
    const uint32_t cuts[] = {1, 2, 3};
    static const struct {
        const char *name;
        uint32_t devices, stages, first_layers[3], replicas[3];
        double bottleneck_s;
    } rows[] = {
        {"one stage", 1, 1, {0}, {1}, 12},
        {"data parallel", 3, 1, {0}, {3}, 4},
        {"balanced pair", 2, 2, {0, 3}, {1, 1}, 6},
        {"replicas behind", 3, 2, {0, 2}, {1, 2}, 4},
        {"three stages", 3, 3, {0, 1, 3}, {1, 1, 1}, 6},
        {"four devices", 4, 2, {0, 3}, {2, 2}, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_partition_input input = {.layer_count = 4,
                                    .layer_s = layer_s,
                                    .transfer_s = transfer_s,
                                    .cut_count = 3,
                                    .cuts = cuts,
                                    .devices = rows[i].devices,
                                    .stages = rows[i].stages};
        uint32_t first_layers[3], replicas[3];
        double bottleneck_s;
        ty_error error = {0};
        cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &bottleneck_s, &error),
                     TY_OK, "%s: %s", rows[i].name, error.message);
        cr_assert_eq(bottleneck_s, rows[i].bottleneck_s, "%s: %g", rows[i].name, bottleneck_s);
        for (uint32_t k = 0; k < rows[i].stages; k++)
            cr_assert(
                first_layers[k] == rows[i].first_layers[k] && replicas[k] == rows[i].replicas[k],
                "%s: stage %u is layer %u x %u", rows[i].name, k, first_layers[k], replicas[k]);
    }
}

/* Two stages on 12 devices, replicas in multiples of four: as good as the best of all cuts and
 * allocations. */
Test(partition, gives_out_granules)
{
    enum { LAYERS = 5, ALL = 12, GRANULE = 4 };
    const double layer_s[LAYERS] = {3, 1, 4, 1, 5}, transfer_s[LAYERS + 1] = {0, 2, 1, 3, 1, 0};
    const uint32_t cuts[] = {1, 2, 3, 4};
    const ty_partition_input input = {.layer_count = LAYERS,
                                      .layer_s = layer_s,
                                      .transfer_s = transfer_s,
                                      .cut_count = LAYERS - 1,
                                      .cuts = cuts,
                                      .devices = ALL,
                                      .stages = 2,
                                      .granule = GRANULE};
    uint32_t first_layers[2], replicas[2];
    double bottleneck_s, best_s = HUGE_VAL;

    cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &bottleneck_s, NULL),
                 TY_OK);
    for (uint32_t cut = 1; cut < LAYERS; cut++)
        for (uint32_t r = GRANULE; r < ALL; r += GRANULE) {
            double front_s = 0, back_s = 0, cut_s;
            for (uint32_t l = 0; l < LAYERS; l++)
                *(l < cut ? &front_s : &back_s) += layer_s[l];
            cut_s = transfer_s[cut] / (r < ALL - r ? r : ALL - r);
            best_s = fmin(best_s, fmax(fmax(front_s / r, back_s / (ALL - r)), cut_s));
        }
    cr_expect_eq(bottleneck_s, best_s, "%g, expected %g", bottleneck_s, best_s);
    cr_expect_eq(replicas[0] % GRANULE, 0);
    cr_expect_eq(replicas[0] + replicas[1], ALL);
}

Test(partition, refuses_bad_questions)
{
    const double layer_s[] = {1, 1, 1}, nan_s[] = {1, NAN, 1}, transfer_s[] = {0, 1, 1, 0};
    const uint32_t cuts[] = {1, 2}, descending[] = {2, 1}, outside[] = {1, 3}, three[] = {1, 2};
    const struct {
        const char *name, *message;
        ty_status status;
        ty_partition_input input;
    } rows[] = {
        {"no stage", "0 stages", TY_EINVAL, {3, layer_s, transfer_s, 2, cuts, 2, 0, 0, 0, 0, 0, 0}},
        {"no layer", "0 layers", TY_EINVAL, {0, layer_s, transfer_s, 0, cuts, 2, 1, 0, 0, 0, 0, 0}},
        {"too few devices",
         "found 1 devices",
         TY_EINVAL,
         {3, layer_s, transfer_s, 2, cuts, 1, 2, 0, 0, 0, 0, 0}},
        {"descending",
         "cuts[1]: found 1",
         TY_EINVAL,
         {3, layer_s, transfer_s, 2, descending, 2, 2, 0, 0, 0, 0, 0}},
        {"outside",
         "cuts[1]: found 3",
         TY_EINVAL,
         {3, layer_s, transfer_s, 2, outside, 2, 2, 0, 0, 0, 0, 0}},
        {"NaN",
         "layer_s[1]: found",
         TY_EINVAL,
         {3, nan_s, transfer_s, 2, cuts, 2, 2, 0, 0, 0, 0, 0}},
        {"fixed replicas of other devices",
         "found 3 in all",
         TY_EINVAL,
         {3, layer_s, transfer_s, 2, cuts, 4, 2, 0, 0, 0, three, 0}},
        {"granules of no divisor",
         "a multiple of 3",
         TY_EINVAL,
         {3, layer_s, transfer_s, 2, cuts, 4, 1, 0, 0, 0, 0, 3}},
        {"too few cuts",
         "4 stages need 3 cuts",
         TY_EINFEASIBLE,
         {3, layer_s, transfer_s, 2, cuts, 4, 4, 0, 0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t first_layers[4] = {77}, replicas[4] = {77};
        double bottleneck_s = -1;
        ty_error error = {0};
        ty_status status = partition(&rows[i].input, rows[i].input.stages, first_layers, replicas,
                                     &bottleneck_s, &error);
        cr_assert_eq(status, rows[i].status, "%s: status %d", rows[i].name, status);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "%s: %s", rows[i].name,
                  error.message);
        cr_assert(first_layers[0] == 77 && replicas[0] == 77 && bottleneck_s == -1, "%s",
                  rows[i].name);
    }
}

Test(partition, survives_failing_allocations)
{
    const double layer_s[] = {1, 2, 3}, transfer_s[] = {0, 1, 1, 0};
    const uint32_t cuts[] = {1, 2};
    ty_partition_input input = {3, layer_s, transfer_s, 2, cuts, 3, 2, NULL, NULL, NULL, NULL, 0};
    uint32_t first_layers[2], replicas[2];
    double bottleneck_s;
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        cr_assert_lt(n, 100);
        ty_memory_fail_after(n);
        status = partition(&input, input.stages, first_layers, replicas, &bottleneck_s, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
    }
    cr_assert_gt(n, 3);
}

/* As many layers, cuts and devices as VGG-16 on 16 devices. Without communication no partition is
 * faster than equal shares for all devices, and the best of all stage counts is close to that. */
Test(partition, nears_the_equal_share)
{
    double layer_s[40], transfer_s[41] = {0}, sum = 0, least = HUGE_VAL;
    uint32_t cuts[39], first_layers[16], replicas[16];

    for (uint32_t i = 0; i < 40; i++) {
        layer_s[i] = 1 + (i * 7) % 11;
        sum += layer_s[i];
        if (i > 0)
            cuts[i - 1] = i;
    }
    for (uint32_t stages = 1; stages <= 16; stages++) {
        ty_partition_input input = {.layer_count = 40,
                                    .layer_s = layer_s,
                                    .transfer_s = transfer_s,
                                    .cut_count = 39,
                                    .cuts = cuts,
                                    .devices = 16,
                                    .stages = stages};
        double bottleneck_s = 0;
        cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &bottleneck_s, NULL),
                     TY_OK);
        cr_assert_geq(bottleneck_s, sum / 16 * (1 - 1e-12), "%u stages", stages);
        least = fmin(least, bottleneck_s);
    }
    cr_assert_lt(least, sum / 16 * (1 + 1e-12));
}

/* Replicas split the transfers at their cuts. With many replicas compute is the bottleneck, so that
 * stages are balanced however slow one link is. */
Test(partition, shares_transfers_among_replicas)
{
    const double layer_s[] = {1, 1, 1, 1}, transfer_s[] = {0, 6, 6, 6, 0};
    const uint32_t cuts[] = {1, 2, 3}, ones[] = {1, 1}, many[] = {1000, 1000};
    ty_partition_input input = {.layer_count = 4,
                                .layer_s = layer_s,
                                .transfer_s = transfer_s,
                                .cut_count = 3,
                                .cuts = cuts,
                                .devices = 2,
                                .stages = 2,
                                .fixed_replicas = ones};
    uint32_t first_layers[2], replicas[2];
    double seconds;

    cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &seconds, NULL), TY_OK);
    cr_assert_eq(seconds, 6);
    input.devices = 2000;
    input.fixed_replicas = many;
    cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &seconds, NULL), TY_OK);
    cr_assert_eq(seconds, 6.0 / 1000);
}

/* Fixed replicas are unchanged, and cost at least as much as the free choice. */
Test(partition, keeps_fixed_replicas)
{
    const double layer_s[] = {4, 1, 1, 2, 3}, transfer_s[] = {0, 0, 0, 0, 0, 0};
    const uint32_t cuts[] = {1, 2, 3, 4}, fixed[] = {1, 3};
    ty_partition_input input = {.layer_count = 5,
                                .layer_s = layer_s,
                                .transfer_s = transfer_s,
                                .cut_count = 4,
                                .cuts = cuts,
                                .devices = 4,
                                .stages = 2};
    uint32_t first_layers[2], replicas[2];
    double free_s, fixed_s;

    cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &free_s, NULL), TY_OK);
    input.fixed_replicas = fixed;
    cr_assert_eq(partition(&input, input.stages, first_layers, replicas, &fixed_s, NULL), TY_OK);
    cr_assert_eq(replicas[0], 1);
    cr_assert_eq(replicas[1], 3);
    cr_assert_eq(first_layers[1], 1);
    cr_assert_geq(fixed_s, free_s);
}
