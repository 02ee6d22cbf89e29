/* The training recipe: momentum and learning rate of late and compressed gradients. */
#include "../plan_shape.h"

#include <criterion/criterion.h>
#include <math.h>

/* Of one rank a stage, or two where something is late by `staleness`. */
static ty_plan *small_plan(ty_schedule schedule, uint32_t stages, uint32_t micro_batches,
                           uint32_t staleness, ty_compression_kind compression)
{
    plan_shape shape = {.schedule = schedule,
                        .staleness = staleness,
                        .buckets = 1,
                        .micro_batches = staleness > 0 ? 2 * micro_batches : micro_batches,
                        .compression.kind = compression};
    ty_workload *workload = chain_workload(stages, false);

    for (uint32_t s = 0; s < stages; s++) {
        shape.layers[s] = 1;
        shape.replicas[s] = staleness > 0 ? 2 : 1;
    }
    workload->optimizer = (ty_optimizer){TY_OPTIMIZER_SGD, .learning_rate = 0.05, .momentum = 0.9};
    return plan_of(workload, NULL, &shape);
}

Test(recipe, of_each_kind_of_lateness_and_compressor)
{
    static const struct {
        const char *name;
        ty_schedule schedule;
        uint32_t stages, micro_batches, staleness;
        ty_compression_kind compression;
        double delay, momentum, factor;
    } rows[] = {
        {"flush", TY_ONE_F_ONE_B, 4, 8, 0, TY_COMPRESSION_NONE, 0, 0.9, 1},
        {"casts", TY_GPIPE, 1, 1, 0, TY_COMPRESSION_FP16, 0, 0.9, 1},
        {"unbiased", TY_GPIPE, 1, 1, 0, TY_COMPRESSION_INT8, 0, 0.9, 1},
        {"dgc", TY_GPIPE, 1, 1, 0, TY_COMPRESSION_DGC, 0, 0.9, 1},
        {"stashing, no pipeline", TY_PIPEDREAM, 1, 4, 0, TY_COMPRESSION_NONE, 0, 0.9, 1},
        {"stashing, hardly late", TY_PIPEDREAM, 2, 20, 0, TY_COMPRESSION_NONE, 0.05, 0.9, 1},
        {"stashing, late by a half", TY_PIPEDREAM, 2, 2, 0, TY_COMPRESSION_NONE, 0.5, 0.5, 1},
        {"stashing, late by 3", TY_PIPEDREAM, 4, 1, 0, TY_COMPRESSION_NONE, 3, 0.1,
         0.9 * 0.4450418679},
        {"2BW", TY_PIPEDREAM_2BW, 4, 4, 0, TY_COMPRESSION_NONE, 1, 0.1, 0.9},
        {"a step late", TY_GPIPE, 1, 1, 1, TY_COMPRESSION_NONE, 1, 0.1, 0.9},
        {"2 steps late", TY_GPIPE, 1, 1, 2, TY_COMPRESSION_NONE, 2, 0.1, 0.9 * 0.6180339887},
        {"top-k", TY_GPIPE, 1, 1, 0, TY_COMPRESSION_TOP_K, 0, 0.1, 0.9 * 3.1622776602},
        {"one-bit", TY_GPIPE, 1, 1, 0, TY_COMPRESSION_ONE_BIT, 0, 0.1, 0.9 * 3.1622776602},
        {"one-bit, late", TY_GPIPE, 1, 1, 1, TY_COMPRESSION_ONE_BIT, 1, 0.1, 0.9},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan *plan = small_plan(rows[i].schedule, rows[i].stages, rows[i].micro_batches,
                                   rows[i].staleness, rows[i].compression);
        const ty_recipe r = ty_plan_recipe(plan);
        ty_text text = {0};

        cr_expect_float_eq(r.delay_updates, rows[i].delay, 1e-12, "%s", rows[i].name);
        cr_expect_float_eq(r.momentum, rows[i].momentum, 1e-12, "%s", rows[i].name);
        cr_expect_float_eq(r.rate_factor, rows[i].factor, 1e-9, "%s", rows[i].name);
        ty_plan_set_learning_rate(plan, 0.02);
        cr_expect_float_eq(plan->optimizer.learning_rate, 0.02 * rows[i].factor, 1e-11);
        cr_expect_float_eq(plan->optimizer.momentum, rows[i].momentum, 1e-12);
        ty_plan_recipe_text(plan, &text);
        cr_expect_eq(text.length == 0, rows[i].momentum == 0.9, "%s", rows[i].name);
        ty_text_clear(&text);
        ty_plan_free(plan);
    }
}

/* AdamW and SGD without momentum keep theirs; the rate falls where gradients are later than 1. */
Test(recipe, without_momentum)
{
    static const ty_optimizer usual[] = {
        {TY_OPTIMIZER_ADAMW, .learning_rate = 0.001, .beta1 = 0.9, .beta2 = 0.999},
        {TY_OPTIMIZER_SGD, .learning_rate = 0.1}};

    for (size_t i = 0; i < 2; i++)
        for (uint32_t late = 0; late <= 2; late++) {
            ty_plan *plan = small_plan(TY_GPIPE, 1, 1, late, TY_COMPRESSION_TOP_K);
            plan->workload->optimizer = usual[i];
            ty_plan_set_learning_rate(plan, usual[i].learning_rate);
            cr_expect_float_eq(plan->optimizer.learning_rate / usual[i].learning_rate,
                               late < 2 ? 1 : 0.6180339887, 1e-9);
            cr_expect_eq(plan->optimizer.momentum, 0);
            cr_expect_eq(plan->optimizer.beta1, usual[i].beta1);
            ty_plan_free(plan);
        }
}

/* Descent on x^2/2 times `curvature`, a share of whose gradient is `whole` updates late and the
 * rest one more: the largest |x| at the end, after a start at 1. */
static double descend(double rate, double momentum, double delay, double curvature)
{
    enum { STEPS = 4000, LONGEST = 70 };
    const int whole = (int)floor(delay);
    const double share = delay - whole;
    double x[LONGEST + STEPS], v = 0, last = 0;

    for (int t = 0; t < LONGEST; t++)
        x[t] = 1;
    for (int t = LONGEST; t < LONGEST + STEPS; t++) {
        const double gradient =
            curvature * ((1 - share) * x[t - 1 - whole] + share * x[t - 2 - whole]);
        v = momentum * v + gradient;
        x[t] = x[t - 1] - rate * v;
        if (fabs(x[t]) > 1e9)
            return 1e9;
        if (t >= STEPS)
            last = fmax(last, fabs(x[t]));
    }
    return last;
}

/* The recipe is stable for every lateness and momentum, where the workload's rate is at most one
 * over the curvature; without it a late gradient of a usual momentum is not. */
Test(recipe, is_stable_on_quadratics)
{
    static const double momenta[] = {0, 0.5, 0.9, 0.99};

    for (size_t m = 0; m < sizeof momenta / sizeof momenta[0]; m++)
        for (uint32_t tenths = 1; tenths <= 640; tenths += tenths < 20 ? 1 : 31) {
            const uint32_t late = tenths < 10 ? 0 : tenths / 10;
            ty_plan *plan = tenths < 10 ? small_plan(TY_PIPEDREAM, 2, 10, 0, TY_COMPRESSION_NONE)
                                        : small_plan(TY_GPIPE, 1, 1, late, TY_COMPRESSION_NONE);
            ty_recipe r;
            double delay;

            plan->stages[0].replicas = tenths < 10 ? tenths : 1;
            plan->workload->optimizer.momentum = momenta[m];
            r = ty_plan_recipe(plan);
            delay = tenths < 10 ? tenths / 10.0 : late;
            cr_expect_float_eq(r.delay_updates, delay, 1e-12);
            cr_expect_lt(descend(0.97 * r.rate_factor, r.momentum, delay, 1), 1.01,
                         "delay %g, momentum %g", delay, momenta[m]);
            if (momenta[m] >= 0.9 && delay >= 1)
                cr_expect_geq(descend(0.99, momenta[m], delay, 1), 1e9, "delay %g", delay);
            ty_plan_free(plan);
        }
}
