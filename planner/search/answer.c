/* The answer of a search: the best candidate as a plan, and why the others were rejected; or why
 * there is none. */
#include "candidate.h"
#include "costing.h"
#include "memory/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ty_candidate_time_s(const candidate *c)
{
    if (c->simulation.step_time_s > 0)
        return c->simulation.step_time_s;
    return c->estimate.step_time_s > 0 ? c->estimate.step_time_s : c->expected_s;
}

/* Relative slowdown of a candidate against the best, by the same method. */
static double slower_by(const candidate *c, const candidate *best)
{
    if (c->simulation.step_time_s > 0 && best->simulation.step_time_s > 0)
        return c->simulation.step_time_s / best->simulation.step_time_s - 1;
    if (c->estimate.step_time_s > 0)
        return c->estimate.step_time_s / best->estimate.step_time_s - 1;
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
        ty_text_add(text, "as fast, not simulated");
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

typedef struct named_row {
    const char *name, *fix;
    uint32_t row;
} named_row;

static int by_name(const void *left, const void *right)
{
    const named_row *a = left, *b = right;
    int order = strcmp(a->name, b->name);

    if (order == 0)
        order = strcmp(a->fix, b->fix);
    return order != 0 ? order : (a->row > b->row) - (a->row < b->row);
}

static ty_status add_layers(const search_question *q, const candidate *c, ty_candidate *row,
                            ty_error *error)
{
    const ty_stage_list layers = ty_division_layers(q, c->division);
    ty_text name = {0};
    char *longer;

    ty_text_addf(&name, "%s, layers ", row->name);
    ty_stage_list_print(layers.numbers, layers.count, &name);
    TY_TRY(ty_text_take(&name, &longer, error));
    ty_free(row->name);
    row->name = longer;
    return TY_OK;
}

static void drop_candidate(ty_plan *plan, uint32_t i)
{
    ty_candidate *c = &plan->candidates[i];

    candidate_clear(c);
    memmove(c, c + 1, (plan->candidate_count - i - 1) * sizeof *c);
    plan->candidate_count--;
}

/* Pipelines that differ only in their cuts name these. */
static ty_status distinguish(const search_question *q, const candidate_list *list, ty_plan *plan,
                             ty_error *error)
{
    const uint32_t count = plan->candidate_count;
    named_row *rows = ty_alloc(count, sizeof *rows);
    bool *is_alike = ty_alloc(count, sizeof *is_alike);
    bool *is_repetition = ty_alloc(count, sizeof *is_repetition);
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(rows != NULL && is_alike != NULL && is_repetition != NULL, error),
             status, done);
    for (uint32_t i = 0; i < count; i++)
        rows[i] = (named_row){plan->candidates[i].name, plan->candidates[i].fix, i};
    qsort(rows, count, sizeof *rows, by_name);
    for (uint32_t i = 1, kept = 0; i < count; i++) {
        if (strcmp(rows[kept].name, rows[i].name) != 0)
            kept = i;
        else if (strcmp(rows[kept].fix, rows[i].fix) == 0)
            is_repetition[rows[i].row] = true;
        else {
            is_alike[rows[kept].row] = is_alike[rows[i].row] = true;
            kept = i;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_alike[i] && list->items[i].division->stage_count > 1)
            TY_CHECK(add_layers(q, &list->items[i], &plan->candidates[i], error), status, done);
    /* A plan that was found in several ways is listed once, with its best-known time. */
    for (uint32_t i = plan->candidate_count; i > 0; i--)
        if (is_repetition[i - 1])
            drop_candidate(plan, i - 1);
done:
    ty_free(is_repetition);
    ty_free(is_alike);
    ty_free(rows);
    return status;
}

ty_status ty_plan_put_beside(ty_plan *plan, const ty_plan *other, const char *fix,
                             const char *reason, uint32_t *row, ty_error *error)
{
    const candidate best = {.estimate = plan->prediction, .simulation = plan->simulation};
    const char *own_fix = other != NULL ? other->fix : fix;
    ty_candidate *rows, made = {.is_asked = true};
    ty_text loss = {0};
    ty_status status = TY_OK;

    if (plan->candidate_count > 0 && plan->candidates[0].fix != NULL &&
        strcmp(plan->candidates[0].fix, own_fix) == 0)
        return TY_OK;
    for (uint32_t i = *row; i < plan->candidate_count; i++)
        if (plan->candidates[i].fix != NULL && strcmp(plan->candidates[i].fix, own_fix) == 0)
            drop_candidate(plan, i);
    if (other != NULL) {
        const candidate c = {.estimate = other->prediction, .simulation = other->simulation};
        add_loss(&c, &best, &loss);
        made.step_time_s = other->prediction.step_time_s;
        made.simulated_step_time_s = other->simulation.step_time_s;
        for (uint32_t s = 0; s < other->stage_count; s++) {
            const uint64_t bytes = ty_memory_use_total(&other->memory[s]);
            made.peak_memory_bytes =
                bytes > made.peak_memory_bytes ? bytes : made.peak_memory_bytes;
        }
    } else {
        ty_text_add(&loss, reason);
    }
    TY_CHECK(ty_text_take(&loss, &made.reason, error), status, failed);
    made.name = ty_strdup(other == NULL                ? fix
                          : other->candidate_count > 0 ? other->candidates[0].name
                                                       : other->strategy);
    made.fix = ty_strdup(own_fix);
    rows = ty_resize(plan->candidates, plan->candidate_count + 1, sizeof *rows);
    if (rows != NULL)
        plan->candidates = rows;
    TY_CHECK(ty_check_memory(made.name != NULL && made.fix != NULL && rows != NULL, error), status,
             failed);
    memmove(&rows[*row + 1], &rows[*row], (plan->candidate_count - *row) * sizeof *rows);
    rows[*row] = made;
    plan->candidate_count++;
    *row += 1;
    return TY_OK;

failed:
    candidate_clear(&made);
    return status;
}

static ty_status add_candidates(const search_question *q, const candidate_list *list, ty_plan *plan,
                                ty_error *error)
{
    TY_TRY(ty_check_memory(
        (plan->candidates = ty_alloc(list->count, sizeof *plan->candidates)) != NULL, error));
    for (uint32_t i = 0; i < list->count; i++) {
        const candidate *c = &list->items[i];
        ty_candidate *row = &plan->candidates[i];
        plan->candidate_count = i + 1;
        TY_TRY(ty_candidate_name(q, c, true, &row->name, error));
        TY_TRY(fate(c, &list->items[0], &row->reason, error));
        TY_TRY(ty_candidate_fix(q, c, &row->fix, error));
        if (c->missing_bytes == 0)
            row->step_time_s =
                c->estimate.step_time_s > 0 ? c->estimate.step_time_s : c->expected_s;
        row->simulated_step_time_s = c->simulation.step_time_s;
        row->peak_memory_bytes = c->peak_memory_bytes;
    }
    return distinguish(q, list, plan, error);
}

/* The step time with one end of the range of costs that were not measured. */
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

/* Provenance of the answer other than measurements. Both ends can cross each other and the
 * prediction: slower work can leave more cores or bandwidth to the critical path. */
static ty_status find_band(const search_question *q, const draft *d, ty_plan *plan, ty_error *error)
{
    const uint32_t samples = plan->micro_batch_size;
    const double likely = plan->prediction.step_time_s;
    uint32_t smallest, largest;
    double ends[2], least, most;
    bool is_within;

    if (d->plan->profile == NULL)
        return TY_OK;
    is_within = !ty_profile_micro_batches(d->plan->profile, &smallest, &largest) ||
                (samples >= smallest && samples <= largest);
    TY_TRY(step_outside(q, d, TY_OUTSIDE_LEAST, &ends[0], error));
    TY_TRY(step_outside(q, d, TY_OUTSIDE_MOST, &ends[1], error));
    least = fmin(likely, fmin(ends[0], ends[1]));
    most = fmax(likely, fmax(ends[0], ends[1]));
    if (is_within && most - least <= TY_OUTSIDE_SHARE * likely)
        return TY_OK;
    plan->least_step_time_s = least;
    plan->most_step_time_s = most;
    return TY_OK;
}

ty_status ty_answer_make(const search_question *q, const candidate_list *list, ty_plan **out,
                         ty_error *error)
{
    const candidate *best = &list->items[0];
    ty_status status = TY_OK;
    draft d = {0};
    ty_costs *costs = NULL;
    ty_plan *plan = NULL;

    TY_CHECK(ty_draft_plan(q, best, &d, error), status, done);
    TY_CHECK(ty_draft_lower(&d, error), status, done);
    TY_CHECK(ty_costs_by_networks(d.plan, d.program, q->networks, &costs, error), status, done);
    TY_CHECK(ty_plan_copy(d.plan, &plan, error), status, done);
    plan->has_prediction = true;
    plan->prediction = best->estimate;
    plan->simulation = best->simulation;
    plan->provenance = costs->provenance;
    TY_CHECK(find_band(q, &d, plan, error), status, done);
    if (!q->options->answer_alone)
        TY_CHECK(add_candidates(q, list, plan, error), status, done);
    TY_CHECK(ty_candidate_fix(q, best, &plan->fix, error), status, done);
    TY_CHECK(ty_plan_check(plan, "plan", error), status, done);
    *out = plan;
    plan = NULL;

done:
    ty_plan_free(plan);
    ty_costs_free(costs);
    ty_draft_clear(&d);
    return status;
}

double ty_least_devices(const ty_workload *w, const ty_cluster *cluster, const ty_stack *stack,
                        uint32_t staleness, double memory_reserve, double *state_bytes)
{
    const ty_plan plan = {.workload = (ty_workload *)w,
                          .stack = (ty_stack *)stack,
                          .optimizer = w->optimizer,
                          .staleness = staleness};
    memory_weights held = {0};
    memory_states states;
    uint64_t largest = 1;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const double bytes = (double)w->layers[l].parameter_bytes;
        held.all += bytes;
        held.trained += w->layers[l].is_frozen ? 0 : bytes;
        held.states +=
            w->layers[l].is_frozen ? 0 : bytes * ty_plan_optimizer_work(&plan, l, 1).state_bytes;
    }
    states = ty_memory_states(&plan, &held);
    *state_bytes = states.weights + states.gradients + states.optimizer;
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++) {
        const uint64_t bytes =
            ty_device_room_bytes(ty_cluster_device_type(cluster, d), memory_reserve);
        largest = bytes > largest ? bytes : largest;
    }
    return ceil(*state_bytes / (double)largest);
}

/* Constraints that no other partition changes. Suggestions are computed on request
 * (ty_question_suggestion). */
static void describe_state(const search_question *q, ty_text *text)
{
    double state;
    const double devices = ty_least_devices(q->workload, q->cluster, q->stack, q->pins->staleness,
                                            q->options->memory_reserve, &state);
    char bytes[32];

    ty_format_memory(state, bytes);
    if (devices > q->device_count)
        ty_text_addf(text,
                     "; parameters, gradients and optimizer state alone are %s: at least %.0f such "
                     "devices hold them",
                     bytes, devices);
}

ty_status ty_answer_refuse(const search_question *q, const candidate_list *list, ty_error *error)
{
    const candidate *least = NULL;
    char *name = NULL;
    char missing[32], need[32];
    ty_text state = {0};
    ty_status status;

    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].is_judged &&
            (least == NULL || list->items[i].missing_bytes < least->missing_bytes))
            least = &list->items[i];
    if (least == NULL)
        return ty_fail(error, TY_EINFEASIBLE,
                       "no way to divide %s with a global batch of %u over %u devices: every "
                       "stage's replicas must divide the micro-batches",
                       q->workload->name, q->global_batch, q->device_count);
    TY_TRY(ty_candidate_name(q, least, true, &name, error));
    ty_format_memory((double)least->missing_bytes, missing);
    ty_format_memory((double)least->peak_memory_bytes, need);
    describe_state(q, &state);
    status = ty_text_check(&state, error);
    if (status == TY_OK)
        status =
            ty_fail(error, TY_EINFEASIBLE,
                    "%s does not fit: the closest plan (%s) needs %s a device and misses %s on "
                    "stage %u%s",
                    q->workload->name, name, need, missing, least->missing_stage,
                    state.data != NULL ? state.data : "");
    ty_text_clear(&state);
    ty_free(name);
    return status;
}
