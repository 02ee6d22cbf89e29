/* Progress through phases, against a step-by-step simulation and against single plans. */
#include "ty_phases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void check_near(double found, double expected, double tolerance, const char *what)
{
    cr_assert(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.17g, expected %.17g", what, found, expected);
}

static void check_interval(ty_interval found, ty_interval expected, const char *what)
{
    check_near(found.low, expected.low, 1e-12, what);
    check_near(found.expected, expected.expected, 1e-12, what);
    check_near(found.high, expected.high, 1e-12, what);
}

/* A plan that reaches the target after `to_target` steps of its batch; noise multiplies the steps
 * by `noise`. */
static ty_phase_score made_hot(uint32_t steps, uint32_t batch, double to_target, double step_time_s,
                               double noise)
{
    ty_phase_score phase = {.steps = steps, .batch = batch};
    ty_score *s = &phase.score;

    s->step_time_s = step_time_s;
    s->has_target = s->has_price = s->has_power = true;
    s->steps = to_target;
    s->noise_multiplier = noise;
    s->samples_to_target = ty_interval_of_deviation(to_target * batch, 0.2);
    s->time_to_target_s = ty_interval_of_deviation(1.1 * to_target * step_time_s, 0.3);
    s->money_usd = ty_interval_scale(s->time_to_target_s, 0.01);
    s->energy_j = ty_interval_scale(s->time_to_target_s, 500);
    s->notes = ty_strdup("rate: a guess\n");
    cr_assert_not_null(s->notes);
    return phase;
}

static ty_phase_score made(uint32_t steps, uint32_t batch, double to_target, double step_time_s)
{
    return made_hot(steps, batch, to_target, step_time_s, 1);
}

/* One step at a time; the last phase continues to the target. */
static void walk(const ty_phase_score *phases, uint32_t count, double *steps, double *time_s,
                 uint32_t *last)
{
    double way = 0;

    *steps = *time_s = 0;
    for (uint32_t p = 0; p < count; p++) {
        const double length = phases[p].score.noise_multiplier;
        const double step = length / phases[p].score.steps;
        *last = p;
        for (uint32_t n = 0; (n < phases[p].steps || p + 1 == count) && way < length; n++) {
            const double part = fmin(1, (length - way) / step);
            way += step;
            *steps += part;
            *time_s += part * 1.1 * phases[p].score.step_time_s;
        }
        if (way >= length)
            return;
    }
}

Test(phased_score, as_walked_step_by_step)
{
    static const struct {
        uint32_t count;
        struct {
            uint32_t steps, batch;
            double to_target, step_time_s, noise;
        } phases[3];
        bool is_reached;
    } rows[] = {
        {2, {{300, 64, 1000, 0.1, 1.4}, {400, 256, 500, 0.3, 0.8}}, true},
        {2, {{800, 64, 1000, 0.1, 1.4}, {400, 64, 500, 0.1, 0.8}}, true},
        {2, {{300, 64, 1000, 0.1, 0.7}, {100, 64, 500, 0.1, 1.2}}, false},
        {1, {{1000, 64, 500, 0.1, 1}}, true},
        {1, {{100, 64, 500, 0.1, 1}}, false},
        {2, {{300, 64, 1000, 0.1, 1}, {400, 256, 500, 0.3, 1}}, true},
        {3, {{300, 64, 1000, 0.1, 1}, {100, 256, 500, 0.3, 1}, {50, 32, 2500, 0.07, 1}}, false},
        {3, {{300, 64, 1000, 0.1, 1}, {600, 256, 500, 0.3, 1}, {50, 32, 2500, 0.07, 1}}, true},
    };

    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ty_phase_score phases[3];
        ty_phased_score s = {0};
        double steps, time_s, own_s = 0, way = 0;
        uint32_t last = 0;

        for (uint32_t p = 0; p < rows[r].count; p++) {
            phases[p] = made_hot(rows[r].phases[p].steps, rows[r].phases[p].batch,
                                 rows[r].phases[p].to_target, rows[r].phases[p].step_time_s,
                                 rows[r].phases[p].noise);
            own_s += phases[p].steps * phases[p].score.step_time_s;
            way += rows[r].phases[p].noise * phases[p].steps / phases[p].score.steps;
        }
        walk(phases, rows[r].count, &steps, &time_s, &last);
        cr_assert_eq(ty_phased_score_make(phases, rows[r].count, false, &s, NULL), TY_OK);
        cr_assert(s.has_target && s.is_reached == rows[r].is_reached, "row %zu", r);
        cr_assert_eq(s.last, last, "row %zu: %u", r, s.last);
        check_near(s.steps_to_target.expected, steps, 1e-9, "steps");
        check_near(s.time_to_target_s.expected, time_s, 1e-9, "time");
        check_near(s.money_usd.expected, 0.01 * time_s, 1e-9, "money");
        check_near(s.energy_j.high / s.energy_j.expected, exp(0.3 * TY_INTERVAL_DEVIATIONS), 1e-9,
                   "equal deviations stay");
        check_near(s.time_s, own_s, 1e-12, "time of all phases");
        way /= rows[r].phases[last].noise;
        check_near(s.share.expected, way, 1e-12, "share");
        check_near(s.share.low, way * exp(-0.2 * TY_INTERVAL_DEVIATIONS), 1e-12, "share, low");
        if (!s.is_reached)
            check_near(s.missing_steps, (1 - way) * s.phases[s.count - 1].score.steps, 1e-12,
                       "missing");
        cr_assert_str_eq(s.notes, "rate: a guess\n", "one note for all");
        ty_phased_score_clear(&s);
    }
}

/* One phase equals its plan, and so do several phases of it. */
Test(phased_score, of_one_plan)
{
    for (uint32_t count = 1; count <= 4; count++) {
        ty_phase_score phases[4], plain = made(0, 128, 840, 0.012);
        ty_phased_score s = {0};

        for (uint32_t p = 0; p < count; p++)
            phases[p] = made(210, 128, 840, 0.012);
        cr_assert_eq(ty_phased_score_make(phases, count, false, &s, NULL), TY_OK);
        cr_assert_eq(s.is_reached, count == 4);
        check_interval(s.time_to_target_s, plain.score.time_to_target_s, "time");
        check_interval(s.samples_to_target, plain.score.samples_to_target, "samples");
        check_interval(s.money_usd, plain.score.money_usd, "money");
        check_interval(s.energy_j, plain.score.energy_j, "energy");
        check_near(s.steps_to_target.expected, 840, 1e-12, "steps");
        ty_phased_score_clear(&s);
        ty_score_clear(&plain.score);
    }
}

Test(phased_score, what_is_not_known)
{
    ty_phase_score phases[] = {made(10, 64, 100, 0.1), made(10, 64, 100, 0.2)};
    ty_phased_score s = {0};

    phases[1].score.has_target = false;
    phases[0].score.has_price = false;
    cr_assert_eq(ty_phased_score_make(phases, 2, true, &s, NULL), TY_OK);
    cr_assert(!s.has_target && !s.has_price && s.has_power && !s.is_reached);
    check_near(s.time_s, 3, 1e-12, "time");
    cr_assert_eq(s.time_to_target_s.expected, 0);
    ty_phased_score_clear(&s);
}

Test(phased_score, out_of_memory)
{
    ty_status status = TY_ENOMEM;

    for (long n = 1; status == TY_ENOMEM && n < 100; n++) {
        ty_phase_score phases[] = {made(10, 64, 100, 0.1), made(10, 64, 100, 0.2)};
        ty_phased_score s = {0};

        ty_memory_fail_after(n);
        status = ty_phased_score_make(phases, 2, true, &s, NULL);
        ty_memory_fail_after(0);
        cr_assert_null(phases[0].score.notes, "they are cleared in any case");
        ty_phased_score_clear(&s);
    }
    cr_assert_eq(status, TY_OK);
}
