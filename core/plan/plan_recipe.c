/* The learning rate and momentum for a plan's stale or compressed gradients. */
#include "ty_plan.h"

#include <math.h>

/* Not 0, so the optimizer keeps its state and a run can continue with or without a recipe. */
static const double least_momentum = 0.1;
static const double pi = 3.14159265358979323846;

double ty_plan_delay_updates(const ty_plan *plan, uint32_t stage)
{
    if (plan->staleness > 0)
        return plan->staleness;
    if (ty_schedule_at(plan->schedule)->versions != TY_WEIGHTS_IN_FLIGHT)
        return ty_schedule_stashed_versions(plan->schedule, 0);
    return (plan->stage_count - 1.0 - stage) * plan->stages[stage].replicas / plan->micro_batches;
}

/* The largest stable product of rate and curvature, for momentum 0. */
static double stable_product(double delay)
{
    return delay <= 1 ? 1 / delay : 2 * sin(pi / (4 * delay + 2));
}

static bool has_feedback(const ty_plan *plan)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_compression *c = &plan->buckets[b].compression;
        if (ty_compression_has_feedback(c) && !ty_compression_has_momentum(c))
            return true;
    }
    return false;
}

ty_recipe ty_plan_recipe(const ty_plan *plan)
{
    const ty_optimizer *usual = &plan->workload->optimizer;
    const bool is_sgd = ty_optimizer_row_of(usual->kind)->is_descent;
    ty_recipe r = {.has_feedback = has_feedback(plan), .rate_factor = 1};

    for (uint32_t s = 0; s < plan->stage_count; s++)
        r.delay_updates = fmax(r.delay_updates, ty_plan_delay_updates(plan, s));
    if (is_sgd) {
        const double late = fmax(least_momentum, 1 - r.delay_updates);
        r.momentum = fmin(usual->momentum, r.has_feedback ? least_momentum : late);
        if (r.has_feedback)
            r.rate_factor = (1 - r.momentum) / sqrt(1 - usual->momentum);
    }
    if (r.delay_updates > 0)
        r.rate_factor =
            fmin(r.rate_factor, (is_sgd ? 1 - r.momentum : 1) * stable_product(r.delay_updates));
    return r;
}

bool ty_recipe_changes(const ty_recipe *r, const ty_optimizer *usual)
{
    return r->rate_factor != 1 ||
           (ty_optimizer_row_of(usual->kind)->is_descent && r->momentum != usual->momentum);
}

double ty_recipe_share(const ty_recipe *r, const ty_optimizer *usual)
{
    if (!ty_optimizer_row_of(usual->kind)->is_descent)
        return r->rate_factor;
    return r->rate_factor * (1 - usual->momentum) / (1 - r->momentum);
}

void ty_plan_set_learning_rate(ty_plan *plan, double rate)
{
    const ty_recipe r = ty_plan_recipe(plan);

    plan->optimizer = plan->workload->optimizer;
    plan->optimizer.learning_rate = rate * r.rate_factor;
    if (ty_optimizer_row_of(plan->optimizer.kind)->is_descent)
        plan->optimizer.momentum = r.momentum;
}

void ty_plan_recipe_text(const ty_plan *plan, ty_text *text)
{
    const ty_optimizer *usual = &plan->workload->optimizer, *own = &plan->optimizer;
    const ty_recipe r = ty_plan_recipe(plan);

    if (!ty_recipe_changes(&r, usual))
        return;
    ty_text_addf(text, "learning rate %.4g", own->learning_rate);
    if (own->learning_rate != usual->learning_rate)
        ty_text_addf(text, " for %.4g", usual->learning_rate);
    if (ty_optimizer_row_of(own->kind)->is_descent && own->momentum != usual->momentum)
        ty_text_addf(text, ", momentum %.4g for %.4g", own->momentum, usual->momentum);
    ty_text_add(text, ": ");
    if (r.delay_updates > 0)
        ty_text_addf(text, "gradients arrive %.3g update%s late", r.delay_updates,
                     r.delay_updates == 1 ? "" : "s");
    if (r.has_feedback)
        ty_text_addf(text, "%serror feedback delays gradients", r.delay_updates > 0 ? "; " : "");
}
