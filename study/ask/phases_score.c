/* Progress of a training's phases towards a target, and the time to it. */
#include "question.h"
#include "ty_phases.h"

#include <math.h>
#include <string.h>

static ty_interval sum(ty_interval a, ty_interval b)
{
    return (ty_interval){a.low + b.low, a.expected + b.expected, a.high + b.high};
}

/* Lines of `more` that are not in `notes` yet. */
static void add_notes(const char *more, ty_text *notes)
{
    for (const char *end; more != NULL && (end = strchr(more, '\n')) != NULL; more = end + 1) {
        const size_t length = (size_t)(end - more) + 1;
        bool is_there = false;
        for (const char *at = notes->data; at != NULL && *at != '\0' && !is_there;) {
            const char *next = strchr(at, '\n') + 1;
            is_there = (size_t)(next - at) == length && strncmp(at, more, length) == 0;
            at = next;
        }
        if (!is_there)
            ty_text_append(notes, more, length);
    }
}

/* Adds steps of a phase towards the target. */
static void take(ty_phased_score *s, uint32_t p, double steps)
{
    const ty_score *own = &s->phases[p].score;
    const double share = steps / own->steps; /* of the training to the target by this phase alone */

    s->last = p;
    s->steps_of_last = steps;
    s->steps_to_target = sum(s->steps_to_target,
                             ty_interval_scale(own->samples_to_target, share / s->phases[p].batch));
    s->samples_to_target =
        sum(s->samples_to_target, ty_interval_scale(own->samples_to_target, share));
    s->time_to_target_s = sum(s->time_to_target_s, ty_interval_scale(own->time_to_target_s, share));
    if (s->has_price)
        s->money_usd = sum(s->money_usd, ty_interval_scale(own->money_usd, share));
    if (s->has_power)
        s->energy_j = sum(s->energy_j, ty_interval_scale(own->energy_j, share));
}

static void add_up(ty_phased_score *s)
{
    double gone = 0; /* progress at the calibration's temperature */

    for (uint32_t p = 0; p < s->count && !s->is_reached; p++) {
        const ty_phase_score *phase = &s->phases[p];
        const double length = phase->score.noise_multiplier, step = length / phase->score.steps;
        const double needed = fmax(0, length - gone) / step;

        s->is_reached = needed <= phase->steps;
        take(s, p, s->is_reached || p + 1 == s->count ? needed : phase->steps);
        gone += phase->steps * step;
    }
    if (!s->is_reached) {
        const ty_phase_score *phase = &s->phases[s->last];
        s->missing_steps = s->steps_of_last - phase->steps;
        s->missing_time_s =
            s->missing_steps / phase->score.steps * phase->score.time_to_target_s.expected;
    }
    for (uint32_t p = 0; p < s->count; p++) {
        ty_phase_score *phase = &s->phases[p];
        const ty_interval *whole = &phase->score.samples_to_target;
        const double samples = (double)phase->steps * phase->batch * phase->score.noise_multiplier /
                               s->phases[s->last].score.noise_multiplier;

        phase->share = samples / whole->expected;
        s->share = sum(s->share, (ty_interval){samples / whole->high, samples / whole->expected,
                                               samples / whole->low});
    }
}

ty_status ty_phased_score_make(ty_phase_score *phases, uint32_t count, bool is_resized,
                               ty_phased_score *out, ty_error *error)
{
    ty_phased_score s = {.count = count, .has_price = true, .has_power = true, .has_target = true};
    ty_text notes = {0};
    ty_status status = TY_OK;

    s.phases = ty_alloc(count, sizeof *s.phases);
    if (s.phases == NULL) {
        for (uint32_t p = 0; p < count; p++)
            ty_score_clear(&phases[p].score);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    memcpy(s.phases, phases, count * sizeof *phases);
    memset(phases, 0, count * sizeof *phases);
    for (uint32_t p = 0; p < count; p++) {
        const ty_score *own = &s.phases[p].score;
        s.time_s += s.phases[p].steps * own->step_time_s;
        s.samples += (double)s.phases[p].steps * s.phases[p].batch;
        s.has_target = s.has_target && own->has_target;
        s.has_price = s.has_price && own->has_price;
        s.has_power = s.has_power && own->has_power;
        s.is_prior = s.is_prior || own->is_prior;
        add_notes(own->notes, &notes);
    }
    if (s.has_target)
        add_up(&s);
    if (s.has_target && is_resized)
        ty_text_add(&notes, "convergence: a sample counts the same at every size of its image\n");
    if (!s.has_target)
        s.is_prior = false;
    TY_CHECK(ty_text_take(&notes, &s.notes, error), status, cleanup);
    *out = s;
    return TY_OK;

cleanup:
    ty_text_clear(&notes);
    ty_phased_score_clear(&s);
    return status;
}

ty_status ty_phased_plan_score(const ty_phased_plan *plan, const char *task,
                               const ty_cost_question *cost, ty_phased_score *out, ty_error *error)
{
    ty_phase_score phases[TY_MOST_TRAINING_PHASES] = {0};
    ty_error detail = {0};

    for (uint32_t p = 0; p < plan->count; p++) {
        const ty_plan *own = plan->plans[p];
        const ty_status status =
            ty_plan_score(own, own->cluster, task, cost, &phases[p].score, &detail);
        if (status != TY_OK) {
            for (uint32_t q = 0; q <= p; q++)
                ty_score_clear(&phases[q].score);
            return ty_fail(error, status, "phase %u: %.240s", p + 1, detail.message);
        }
        phases[p].steps = plan->steps[p];
        phases[p].batch = own->global_batch;
    }
    return ty_phased_score_make(phases, plan->count, ty_phased_plan_resizes(plan), out, error);
}

void ty_phased_score_clear(ty_phased_score *score)
{
    for (uint32_t p = 0; score->phases != NULL && p < score->count; p++)
        ty_score_clear(&score->phases[p].score);
    ty_free(score->phases);
    ty_free(score->notes);
    *score = (ty_phased_score){0};
}

/* ---- Documents ---------------------------------------------------------------------------------
 */

static void put_target(const ty_phased_score *s, ty_json_writer *w)
{
    ty_json_put_string(w, "convergence_provenance", s->is_prior ? "prior" : "measured");
    ty_interval_to_json(s->share, w, "share_of_way");
    ty_json_put_bool(w, "is_reached", s->is_reached);
    ty_json_put_uint(w, "last_phase", s->last + 1);
    ty_json_put_number(w, "steps_to_target", s->steps_to_target.expected);
    ty_json_put_number(w, "steps_of_last_phase", s->steps_of_last);
    if (!s->is_reached) {
        ty_json_put_number(w, "missing_steps", s->missing_steps);
        ty_json_put_number(w, "missing_time_s", s->missing_time_s);
    }
    ty_interval_to_json(s->samples_to_target, w, "samples_to_target");
    ty_interval_to_json(s->time_to_target_s, w, "time_to_target_s");
    if (s->has_price)
        ty_interval_to_json(s->money_usd, w, "money_usd");
    if (s->has_power)
        ty_interval_to_json(s->energy_j, w, "energy_j");
}

void ty_phased_score_to_json(const ty_phased_score *s, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.phased-score/1");
    ty_json_put_number(w, "time_s", s->time_s);
    ty_json_put_number(w, "samples", s->samples);
    if (s->has_target)
        put_target(s, w);
    ty_json_open(w, "phases", '[');
    for (uint32_t p = 0; p < s->count; p++) {
        ty_json_open(w, NULL, '{');
        ty_json_put_uint(w, "steps", s->phases[p].steps);
        ty_json_put_uint(w, "global_batch", s->phases[p].batch);
        ty_json_put_number(w, "step_time_s", s->phases[p].score.step_time_s);
        ty_json_put_number(w, "samples_per_s", s->phases[p].score.samples_per_s);
        if (s->has_target) {
            ty_json_put_number(w, "share_of_way", s->phases[p].share);
            ty_json_put_number(w, "steps_to_target", s->phases[p].score.steps);
        }
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_score_notes_to_json(s->notes, w);
    ty_json_close(w, '}');
}
