/* Effect of gradient noise at a learning rate: against closed forms, and against descent with
 * momentum on quadratics with known Hessian H and noise covariance S, so that expected losses are
 * exact. */
#include "ty_phases.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_near(double found, double expected, double tolerance, const char *what)
{
    cr_assert(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.17g, expected %.17g", what, found, expected);
}

/* ---- Quadratics ---------------------------------------------------------------------------- */

enum { MODES = 31, STEPS = 800, MOST_STEPS = 16000 };
static const double momentum = 0.9, base_rate = 0.02, base_batch = 128;

/* In the axes of H. */
typedef struct quadratic {
    double curvature[MODES], noise[MODES]; /* of H; of S, one sample's covariance */
    double start[MODES];                   /* squares of the first weights */
} quadratic;

/* Second moments of weights and velocities. */
typedef struct moments {
    double weight[MODES], both[MODES], velocity[MODES];
} moments;

/* Curvatures fall by the root of 2 from mode to mode, and losses with exact gradients as steps to
 * the power -`power`. */
static quadratic quadratic_make(double largest, double power, double noise_power)
{
    quadratic q;

    for (int i = 0; i < MODES; i++) {
        q.curvature[i] = largest * pow(2, -0.5 * i);
        q.start[i] = pow(q.curvature[i], power - 1);
        q.noise[i] = pow(q.curvature[i], noise_power);
    }
    return q;
}

static double loss_of(const quadratic *q, const moments *m)
{
    double loss = 0;

    for (int i = 0; i < MODES; i++)
        loss += q->curvature[i] * m->weight[i] / 2;
    return loss;
}

/* v' = momentum v + g, w' = w - rate v', g = H w + noise of variance S / batch. */
static void descend(const quadratic *q, double rate, double batch, moments *m)
{
    for (int i = 0; i < MODES; i++) {
        const double h = q->curvature[i];
        const double velocity = momentum * momentum * m->velocity[i] +
                                2 * momentum * h * m->both[i] + h * h * m->weight[i] +
                                q->noise[i] / batch;
        const double both = momentum * m->both[i] + h * m->weight[i];

        m->weight[i] += rate * (rate * velocity - 2 * both);
        m->both[i] = both - rate * velocity;
        m->velocity[i] = velocity;
    }
}

static moments moments_at_start(const quadratic *q)
{
    moments m = {0};

    memcpy(m.weight, q->start, sizeof m.weight);
    return m;
}

/* @param losses [out, steps], or NULL. @return the last one */
static double train(const quadratic *q, double rate, double batch, uint32_t steps, double *losses)
{
    moments m = moments_at_start(q);
    double loss = 0;

    for (uint32_t t = 0; t < steps; t++) {
        loss = loss_of(q, &m);
        if (losses != NULL)
            losses[t] = loss;
        descend(q, rate, batch, &m);
    }
    return loss;
}

static double steps_to(const quadratic *q, double rate, double batch, double target)
{
    moments m = moments_at_start(q);
    uint32_t steps = 1;

    for (; loss_of(q, &m) > target && steps < MOST_STEPS; steps++)
        descend(q, rate, batch, &m);
    cr_assert_lt(steps, MOST_STEPS, "batch %g does not reach the target", batch);
    return steps;
}

/* Sets the noise so that after STEPS of the base it makes up the given share of the loss, which is
 * returned. */
static double noise_set(quadratic *q, double share)
{
    const double with = train(q, base_rate, base_batch, STEPS, NULL);
    quadratic exact = *q;
    double without, scale;

    memset(exact.noise, 0, sizeof exact.noise);
    without = train(&exact, base_rate, base_batch, STEPS, NULL);
    scale = share / (1 - share) * without / (with - without);
    for (int i = 0; i < MODES; i++)
        q->noise[i] *= scale;
    return without / (1 - share);
}

/* The noise scales tr S / |G|^2 and tr(H S) / G'HG over the base's run: means of eighths. */
static void noise_scales(const quadratic *q, double *plain, double *weighted)
{
    enum { PARTS = 8 };
    moments m = moments_at_start(q);

    *plain = *weighted = 0;
    for (int p = 0; p < PARTS; p++) {
        double noise = 0, square = 0, curved_noise = 0, curved_square = 0;
        for (int t = 0; t < STEPS / PARTS; t++, descend(q, base_rate, base_batch, &m))
            for (int i = 0; i < MODES; i++) {
                const double h = q->curvature[i], g = h * h * m.weight[i];
                noise += q->noise[i];
                square += g;
                curved_noise += h * q->noise[i];
                curved_square += h * g;
            }
        *plain += noise / square / PARTS;
        *weighted += curved_noise / curved_square / PARTS;
    }
}

/* As in a calibration: half of the distance at half the rate, two steps for one. */
static ty_interval cost_measured(const quadratic *q)
{
    enum { COUNT = STEPS / 2 };
    static double losses[COUNT], halves[2 * COUNT], slow[COUNT];
    ty_interval factor = {0};
    ty_error error = {0};

    train(q, base_rate, base_batch, COUNT, losses);
    train(q, base_rate / 2, base_batch, 2 * COUNT, halves);
    for (int t = 0; t < COUNT; t++)
        slow[t] = (halves[2 * t] + halves[2 * t + 1]) / 2;
    cr_assert_eq(ty_loss_stretch(losses, slow, COUNT, &factor, &error), TY_OK, "%s", error.message);
    return ty_temperature_cost_of_stretch(factor, 0.5);
}

static ty_convergence task_of(const quadratic *q, double target, double noise_scale)
{
    return (ty_convergence){.noise_scale_samples = noise_scale,
                            .minimum_samples = base_batch / (1 + base_batch / noise_scale) *
                                               steps_to(q, base_rate, base_batch, target),
                            .smallest_batch = base_batch,
                            .largest_batch = base_batch,
                            .noise_growth = 1,
                            .learning_rate = base_rate,
                            .batch = base_batch};
}

/* The largest error of a task's steps, from a quarter to eight times the batch size, with its
 * rates. */
static double worst_error(const quadratic *q, double target, const ty_convergence *task)
{
    double worst = 0, rate = 0;
    bool ignored;

    for (double batch = base_batch / 4; batch <= 8 * base_batch; batch *= 2) {
        cr_assert_eq(ty_learning_rate(task, base_rate, base_batch, batch, &rate, &ignored, NULL),
                     TY_OK);
        worst = fmax(
            worst, fabs(ty_convergence_steps(task, batch) / steps_to(q, rate, batch, target) - 1));
    }
    return worst;
}

/* Spectra, noises and their shares. Nearly all of |G|^2 is noise that returned as displaced
 * weights. So neither noise scale predicts the progress per step, and the one closer to the cost of
 * one step (McCandlish et al., equation 2.8) has the larger error. */
Test(temperature, steps_on_noisy_quadratics)
{
    static const struct {
        double largest, power, share, noise_power;
    } rows[] = {{10, 0.3, 0.2, 1},
                {10, 0.3, 0.1, 1},
                {20, 0.3, 0.15, 1},
                {10, 0.3, 0.15, 0.5},
                {10, 0.5, 0.2, 1}};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        quadratic q = quadratic_make(rows[r].largest, rows[r].power, rows[r].noise_power);
        const double target = noise_set(&q, rows[r].share);
        double plain, weighted, before, curved, after;
        ty_convergence task;

        noise_scales(&q, &plain, &weighted);
        task = task_of(&q, target, weighted);
        curved = worst_error(&q, target, &task);
        task = task_of(&q, target, plain);
        before = worst_error(&q, target, &task);
        task.has_temperature_cost = true;
        task.temperature_cost = cost_measured(&q);
        after = worst_error(&q, target, &task);
        cr_assert_lt(after, 0.08, "row %zu: %g", r, after);
        cr_assert_gt(before, 0.12, "row %zu: %g", r, before);
        cr_assert_gt(curved, before, "row %zu: %g, %g", r, curved, before);
    }
}

/* The score of a plan, with the fields that phases need. */
static ty_phase_score phase_of(const ty_convergence *task, double batch, double share,
                               uint32_t steps)
{
    const ty_interval rate = ty_rate_multiplier(task, batch, share);
    ty_phase_score phase = {.steps = steps, .batch = (uint32_t)batch};

    phase.score.has_target = true;
    phase.score.steps = ty_convergence_steps(task, batch) * rate.expected;
    phase.score.noise_multiplier =
        ty_temperature_multiplier(task, batch).expected * rate.expected * share;
    phase.score.samples_to_target = ty_interval_exact(phase.score.steps * batch);
    return phase;
}

/* Two phases with other batch sizes, or with one batch size and lower rates: the cost of noise
 * follows the second phase's temperature, the progress stays. `added`: by 1 / steps for each
 * step. */
Test(temperature, phases_on_noisy_quadratics)
{
    static const struct {
        double batches[2], shares[2];
        uint32_t first_steps;
    } rows[] = {
        {{64, 256}, {1, 1}, 400},    {{256, 64}, {1, 1}, 100},    {{128, 512}, {1, 1}, 300},
        {{128, 128}, {1, 0.5}, 400}, {{128, 128}, {1, 0.2}, 200}, {{128, 128}, {0.5, 1}, 400},
    };
    double worst = 0, worst_added = 0;

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        quadratic q = quadratic_make(10, 0.3, 1);
        const double target = noise_set(&q, 0.2);
        double plain, weighted, rates[2] = {0}, steps, added;
        moments m = moments_at_start(&q);
        uint32_t walked = 0;
        bool ignored;
        ty_convergence task;
        ty_phase_score phases[2];
        ty_phased_score score = {0};

        noise_scales(&q, &plain, &weighted);
        task = task_of(&q, target, plain);
        task.has_temperature_cost = true;
        task.temperature_cost = cost_measured(&q);
        for (int p = 0; p < 2; p++) {
            const double batch = rows[r].batches[p];
            cr_assert_eq(
                ty_learning_rate(&task, base_rate, base_batch, batch, &rates[p], &ignored, NULL),
                TY_OK);
            rates[p] *= rows[r].shares[p];
            phases[p] = phase_of(&task, batch, rows[r].shares[p],
                                 p == 0 ? rows[r].first_steps : MOST_STEPS);
        }
        for (; walked < MOST_STEPS && loss_of(&q, &m) > target; walked++) {
            const int p = walked >= rows[r].first_steps;
            descend(&q, rates[p], rows[r].batches[p], &m);
        }
        added =
            phases[0].steps + (1 - phases[0].steps / phases[0].score.steps) * phases[1].score.steps;
        cr_assert_eq(ty_phased_score_make(phases, 2, false, &score, NULL), TY_OK);
        cr_assert(score.is_reached && score.last == 1, "row %zu", r);
        steps = score.steps_to_target.expected;
        worst = fmax(worst, fabs(steps / walked - 1));
        worst_added = fmax(worst_added, fabs(added / walked - 1));
        ty_phased_score_clear(&score);
    }
    cr_assert_lt(worst, 0.07, "%g", worst);
    cr_assert_gt(worst_added, 0.15, "%g", worst_added);
}

/* Other rates than the rule's: steps x rate is constant, at their temperature. */
Test(temperature, other_rates_on_noisy_quadratics)
{
    double worst = 0, without = 0;

    for (double share = 0.25; share < 1; share += 0.25)
        for (double batch = base_batch / 2; batch <= 4 * base_batch; batch *= 2) {
            quadratic q = quadratic_make(10, 0.3, 1);
            const double target = noise_set(&q, 0.2);
            double plain, weighted, rate = 0, steps, found;
            bool ignored;
            ty_convergence task;

            noise_scales(&q, &plain, &weighted);
            task = task_of(&q, target, plain);
            task.has_temperature_cost = true;
            task.temperature_cost = cost_measured(&q);
            cr_assert_eq(
                ty_learning_rate(&task, base_rate, base_batch, batch, &rate, &ignored, NULL),
                TY_OK);
            steps = steps_to(&q, share * rate, batch, target);
            found = ty_convergence_steps(&task, batch);
            without = fmax(without, fabs(found / steps - 1));
            found *= ty_rate_multiplier(&task, batch, share).expected;
            worst = fmax(worst, fabs(found / steps - 1));
        }
    cr_assert_lt(worst, 0.07, "%g", worst);
    cr_assert_gt(without, 0.5, "%g", without);
}

/* Without noise a rate only costs its first steps. */
Test(temperature, exact_gradients_cost_nothing)
{
    quadratic q = quadratic_make(10, 0.3, 1);

    memset(q.noise, 0, sizeof q.noise);
    cr_assert_lt(cost_measured(&q).expected, 0.05);
}

/* ---- Closed forms -------------------------------------------------------------------------- */

static ty_convergence made_task(void)
{
    return (ty_convergence){.noise_scale_samples = 300,
                            .minimum_samples = 1e5,
                            .log_deviation = 0.1,
                            .smallest_batch = 128,
                            .largest_batch = 128,
                            .noise_growth = 16,
                            .learning_rate = 0.02,
                            .batch = 128,
                            .has_temperature_cost = true,
                            .temperature_cost = {0.2, 0.4, 0.8}};
}

/* k is the rate over the batch size, relative to the calibration's. */
Test(temperature, multiplier_is_of_the_rule_s_temperature)
{
    const ty_convergence t = made_task();
    ty_convergence law = t;

    law.has_temperature_cost = false;
    for (double batch = 8; batch < 1e5; batch *= 2) {
        const ty_interval m = ty_temperature_multiplier(&t, batch);
        double rate = 0, change;
        bool ignored;
        cr_assert_eq(ty_learning_rate(&t, 0.02, 128, batch, &rate, &ignored, NULL), TY_OK);
        change = rate / batch / (0.02 / 128) - 1;
        check_near(log(m.expected), 0.4 * change, 1e-9, "expected");
        check_near(log(m.high), (change > 0 ? 0.8 : 0.2) * change, 1e-9, "high");
        check_near(log(m.low), (change > 0 ? 0.2 : 0.8) * change, 1e-9, "low");
        check_near(ty_convergence_steps(&t, batch), ty_convergence_steps(&law, batch) * m.expected,
                   1e-12, "steps");
        check_near(ty_convergence_samples(&t, batch).expected,
                   batch * ty_convergence_steps(&t, batch), 1e-12, "samples");
        cr_assert_eq(ty_temperature_multiplier(&law, batch).high, 1);
    }
    cr_assert_gt(ty_convergence_samples(&t, 512).high / ty_convergence_samples(&t, 512).expected,
                 ty_convergence_samples(&law, 512).high /
                     ty_convergence_samples(&law, 512).expected,
                 "an uncertain cost widens");
}

/* A calibration measures c at half of its rate. */
Test(temperature, multiplier_of_another_rate)
{
    const ty_convergence t = made_task();
    ty_convergence law = t;
    const ty_interval half = ty_rate_multiplier(&t, 128, 0.5),
                      same = ty_rate_multiplier(&t, 512, 1);

    law.has_temperature_cost = false;
    check_near(half.expected, 2 * exp(-0.4 / 2), 1e-12, "half");
    check_near(half.low, 2 * exp(-0.8 / 2), 1e-12, "half, low");
    check_near(half.high, 2 * exp(-0.2 / 2), 1e-12, "half, high");
    check_near(ty_temperature_cost_of_stretch(ty_interval_exact(half.expected / 2), 0.5).expected,
               0.4, 1e-12, "there and back");
    check_near(same.expected, 1, 1e-12, "the rule's");
    check_near(ty_rate_multiplier(&law, 512, 0.1).high, 10, 1e-12, "steps x rate");
    check_near(ty_rate_multiplier(&t, 512, 2).expected, exp(0.4 * 428 / 812) / 2, 1e-12, "twice");
}

Test(temperature, cost_of_a_stretch)
{
    const ty_interval c =
        ty_temperature_cost_of_stretch((ty_interval){exp(-0.3), exp(-0.2), exp(0.1)}, 0.5);
    const ty_interval quarter = ty_temperature_cost_of_stretch(ty_interval_exact(exp(-0.3)), 0.25);

    check_near(c.expected, 0.4, 1e-12, "expected");
    check_near(c.high, 0.6, 1e-12, "high");
    cr_assert_eq(c.low, 0, "noise is not taken to help");
    check_near(quarter.expected, 0.4, 1e-12, "a quarter of the rate");
}

Test(temperature, choice_of_batch)
{
    const ty_convergence t = made_task();
    const ty_batch_option options[] = {{32, 0.03}, {128, 0.05}, {512, 0.13}, {2048, 0.45}};
    double best = HUGE_VAL, constant = 0, scheduled = 0;
    uint32_t chosen[4], one = 0;

    for (int i = 0; i < 4; i++)
        best = fmin(best, ty_convergence_steps(&t, options[i].batch) * options[i].step_time_s);
    cr_assert_eq(ty_best_batch(&t, options, 4, &one, &constant, NULL), TY_OK);
    check_near(constant, best, 1e-12, "brute force");
    cr_assert_eq(ty_batch_schedule(&t, options, 4, 4, chosen, &scheduled, NULL), TY_OK);
    cr_assert_leq(scheduled, constant);
}

/* ---- Files --------------------------------------------------------------------------------- */

static ty_status open_text(const char *cost, const char *batch, ty_convergence **out,
                           ty_error *error)
{
    char path[] = "/tmp/ty_temperature_XXXXXX";
    const int file = mkstemp(path);
    ty_text text = {0};
    ty_status status;

    cr_assert_geq(file, 0);
    close(file);
    ty_text_addf(&text,
                 "{\"schema\": \"trainyard.calibration/1\", \"convergence\": {\"name\": \"mine\", "
                 "\"target\": \"loss 2\", \"source\": \"measured\", \"noise_scale_samples\": 500, "
                 "\"minimum_samples\": 1e5, \"log_deviation\": 0.05, \"smallest_batch\": 8, "
                 "\"largest_batch\": 64, \"noise_growth\": 2, \"scaling_rule\": \"linear\"%s}, "
                 "\"temperature_cost\": %s}",
                 batch, cost);
    cr_assert_eq(ty_file_write(path, text.data, text.length, error), TY_OK);
    status = ty_convergence_open(path, out, error);
    ty_text_clear(&text);
    unlink(path);
    return status;
}

Test(temperature, of_a_calibration_file)
{
    static const char with_batch[] = ", \"learning_rate\": 0.1, \"batch\": 64";
    ty_convergence *t = NULL;
    ty_error error = {0};

    cr_assert_eq(
        open_text("{\"low\": 0.1, \"expected\": 0.2, \"high\": 0.4}", with_batch, &t, &error),
        TY_OK, "%s", error.message);
    cr_assert(t->has_temperature_cost && t->temperature_cost.high == 0.4);
    check_near(ty_temperature_multiplier(t, 436).expected, exp(0.2 * (564.0 / 936 - 1)), 1e-12,
               "multiplier");
    ty_convergence_free(t);
    t = NULL;
    cr_assert_neq(open_text("{\"low\": 0.1, \"expected\": 0.2, \"high\": 0.4}", "", &t, &error),
                  TY_OK);
    cr_assert_not_null(strstr(error.message, "batch"), "%s", error.message);
    cr_assert_neq(
        open_text("{\"low\": 0.1, \"expected\": 0.2, \"high\": 11}", with_batch, &t, &error),
        TY_OK);
    cr_assert_not_null(strstr(error.message, "/temperature_cost"), "%s", error.message);
    cr_assert_neq(
        open_text("{\"low\": 0.3, \"expected\": 0.2, \"high\": 1}", with_batch, &t, &error), TY_OK);
    cr_assert_null(t);
}
