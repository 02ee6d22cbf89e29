/* The answer of a search: the best candidate as a plan, and why the others lost; or why there is
 * none. */
#include "candidate.h"
#include "costing.h"

#include <math.h>

double ty_candidate_time_s(const candidate *c)
{
    if (c->simulation.step_time_s > 0)
        return c->simulation.step_time_s;
    return c->estimate.step_time_s > 0 ? c->estimate.step_time_s : c->expected_s;
}

/* By which share a candidate is slower than the best, like compared with like. */
static double slower_by(const candidate *c, const candidate *best)
{
    if (c->simulation.step_time_s > 0)
        return c->simulation.step_time_s / best->simulation.step_time_s - 1;
    return ty_candidate_time_s(c) / best->estimate.step_time_s - 1;
}

static void add_loss(const candidate *c, const candidate *best, ty_text *text)
{
    const ty_step_summary *s = c->simulation.step_time_s > 0 ? &c->simulation : &c->estimate;
    bool is_estimated = c->estimate.step_time_s > 0;
    bool could_be_simulated = best->simulation.step_time_s > 0 && c->simulation.step_time_s <= 0;
    double slower = slower_by(c, best) * 100;

    if (slower <= -0.05 && is_estimated)
        ty_text_addf(text, "%.1f %% faster, less simple: %s", -slower, s->limited_by);
    else if (slower >= 0.05 && is_estimated)
        ty_text_addf(text, "%.*f %% slower: %s", slower < 10 ? 1 : 0, slower, s->limited_by);
    else if (slower >= 0.5)
        ty_text_addf(text, "about %.0f %% slower, not estimated", slower);
    else if (!is_estimated)
        ty_text_add(text, "not estimated: others looked better");
    else if (could_be_simulated)
        ty_text_add(text, "not simulated: within 1 % of one that was");
    else
        ty_text_addf(text, "as fast, less simple: %s", s->limited_by);
}

static ty_status fate(const candidate *c, const candidate *best, char **out, ty_error *error)
{
    ty_text text = {0};

    if (c == best) {
        ty_text_add(&text, "chosen");
    } else if (c->missing_bytes > 0) {
        char bytes[32];
        ty_format_memory((double)c->missing_bytes, bytes);
        ty_text_addf(&text, "does not fit: stage %u misses %s a device", c->missing_stage, bytes);
    } else {
        add_loss(c, best, &text);
    }
    return ty_text_take(&text, out, error);
}

static ty_status add_candidates(const search_question *q, const candidate_list *list, ty_plan *plan,
                                ty_error *error)
{
    ty_status status = TY_OK;

    plan->candidates = ty_alloc(list->count, sizeof *plan->candidates);
    if (plan->candidates == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < list->count; i++) {
        const candidate *c = &list->items[i];
        ty_candidate *row = &plan->candidates[i];
        plan->candidate_count = i + 1;
        TY_CHECK(ty_candidate_name(q, c, true, &row->name, error), status, done);
        TY_CHECK(fate(c, &list->items[0], &row->reason, error), status, done);
        if (c->missing_bytes == 0)
            row->step_time_s =
                c->estimate.step_time_s > 0 ? c->estimate.step_time_s : c->expected_s;
        row->simulated_step_time_s = c->simulation.step_time_s;
        row->peak_memory_bytes = c->peak_memory_bytes;
    }
done:
    return status;
}

/* The step as it is estimated with one end of the band of what was not measured. */
static ty_status step_outside(const search_question *q, const draft *d, ty_outside outside,
                              double *step_time_s, ty_error *error)
{
    ty_profile profile = *d->plan->profile;
    ty_plan plan = *d->plan;
    ty_step_summary summary;
    ty_status status;

    profile.outside = outside;
    plan.profile = &profile;
    status = ty_draft_estimate(q, &plan, d->program, &summary, error);
    if (status == TY_OK)
        *step_time_s = summary.step_time_s;
    return status;
}

/* What the answer rests on beside measurements. */
static ty_status find_band(const search_question *q, const draft *d, ty_plan *plan, ty_error *error)
{
    const uint32_t samples = plan->micro_batch_size;
    uint32_t smallest, largest;
    double least, most;
    bool is_within;
    ty_status status = TY_OK;

    if (d->plan->profile == NULL)
        return TY_OK;
    is_within = !ty_profile_micro_batches(d->plan->profile, &smallest, &largest) ||
                (samples >= smallest && samples <= largest);
    TY_CHECK(step_outside(q, d, TY_OUTSIDE_LEAST, &least, error), status, done);
    TY_CHECK(step_outside(q, d, TY_OUTSIDE_MOST, &most, error), status, done);
    if (is_within && most - least <= TY_OUTSIDE_SHARE * plan->prediction.step_time_s)
        return TY_OK;
    plan->least_step_time_s = least;
    plan->most_step_time_s = most;
done:
    return status;
}

ty_status ty_answer_make(const search_question *q, const candidate_list *list, ty_plan **out,
                         ty_error *error)
{
    const candidate *best = &list->items[0];
    ty_status status = TY_OK;
    draft d = {0};
    ty_costs *costs = NULL;
    ty_plan *plan = NULL;

    TY_CHECK(ty_draft_make(q, best, &d, error), status, done);
    TY_CHECK(ty_costs_by_networks(d.plan, d.program, q->networks, &costs, error), status, done);
    TY_CHECK(ty_plan_copy(d.plan, &plan, error), status, done);
    plan->has_prediction = true;
    plan->prediction = best->estimate;
    plan->simulation = best->simulation;
    plan->provenance = costs->provenance;
    TY_CHECK(find_band(q, &d, plan, error), status, done);
    TY_CHECK(add_candidates(q, list, plan, error), status, done);
    TY_CHECK(ty_plan_check(plan, "plan", error), status, done);
    *out = plan;
    plan = NULL;

done:
    ty_plan_free(plan);
    ty_costs_free(costs);
    ty_draft_clear(&d);
    return status;
}

/* Parameters, gradients and optimizer state, each kept once, gradients that may be late once more
 * for each step. */
static double least_state_bytes(const search_question *q)
{
    const ty_workload *w = q->workload;
    const uint32_t states = 1 + q->options->staleness + ty_optimizer_state_count(&w->optimizer) +
                            (w->element_bytes < TY_GRADIENT_ELEMENT_BYTES ? 1 : 0);
    double bytes = 0;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const double elements = (double)w->layers[l].parameter_bytes / w->element_bytes;
        bytes += (double)w->layers[l].parameter_bytes;
        if (!w->layers[l].is_frozen)
            bytes += elements * TY_GRADIENT_ELEMENT_BYTES * states;
    }
    return bytes;
}

/* "; use ...": the nearest change that may help. */
static void advise(const search_question *q, const candidate *least, ty_text *text)
{
    const double state = least_state_bytes(q);
    const double devices = ceil(state / (double)q->largest_memory_bytes);
    char bytes[32];

    ty_format_memory(state, bytes);
    if (devices > q->device_count)
        ty_text_addf(text,
                     "; parameters, gradients and optimizer state alone are %s: at least %.0f such "
                     "devices hold them",
                     bytes, devices);
    else if (q->options->staleness > 0)
        ty_text_addf(text,
                     "; use a staleness below %u, which keeps fewer sets of gradients, or more "
                     "devices",
                     q->options->staleness);
    else if (q->global_batch > least->micro_batches)
        ty_text_addf(text, "; use more devices, or a smaller global batch than %u",
                     q->global_batch);
    else
        ty_text_add(text, "; use more devices, or shorter samples: micro-batches are of one");
}

ty_status ty_answer_refuse(const search_question *q, const candidate_list *list, ty_error *error)
{
    const candidate *least = NULL;
    char *name = NULL;
    char missing[32], need[32];
    ty_text advice = {0};
    ty_status status;

    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].is_judged &&
            (least == NULL || list->items[i].missing_bytes < least->missing_bytes))
            least = &list->items[i];
    if (least == NULL)
        return ty_fail(error, TY_EINFEASIBLE,
                       "no way to divide %s with a global batch of %u over %u devices: every "
                       "stage's replicas must divide the micro-batches; try a batch that is a "
                       "multiple of %u",
                       q->workload->name, q->global_batch, q->device_count, q->device_count);
    status = ty_candidate_name(q, least, true, &name, error);
    if (status != TY_OK)
        return status;
    ty_format_memory((double)least->missing_bytes, missing);
    ty_format_memory((double)least->peak_memory_bytes, need);
    advise(q, least, &advice);
    status = ty_text_check(&advice, error);
    if (status == TY_OK)
        status =
            ty_fail(error, TY_EINFEASIBLE,
                    "%s does not fit: the closest plan (%s) needs %s a device and misses %s on "
                    "stage %u%s",
                    q->workload->name, name, need, missing, least->missing_stage, advice.data);
    ty_text_clear(&advice);
    ty_free(name);
    return status;
}
