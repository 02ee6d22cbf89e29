/* Convergence: the law against its inverse, choices against brute force and closed forms. */
#include "ty_convergence.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_near(double found, double expected, double tolerance, const char *what)
{
    cr_assert(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.17g, expected %.17g", what, found, expected);
}

static ty_convergence made_task(double noise, double minimum)
{
    return (ty_convergence){.noise_scale_samples = noise,
                            .minimum_samples = minimum,
                            .log_deviation = 0.1,
                            .smallest_batch = 64,
                            .largest_batch = 4096,
                            .noise_growth = 16};
}

/* (S(B)/S - 1) (E(B)/E - 1) = 1 for every batch: McCandlish et al., equation 2.11. */
Test(convergence, steps_and_samples_lie_on_the_hyperbola)
{
    ty_convergence t = made_task(5000, 1e6);
    double least_steps = t.minimum_samples / t.noise_scale_samples;

    for (double b = 1; b < 1e6; b *= 3) {
        double steps = ty_convergence_steps(&t, b),
               samples = ty_convergence_samples(&t, b).expected;
        check_near((steps / least_steps - 1) * (samples / t.minimum_samples - 1), 1, 1e-9,
                   "product");
        check_near(steps * b, samples, 1e-12, "samples");
    }
}

Test(convergence, interval_widens_outside_the_data)
{
    ty_convergence t = made_task(5000, 1e6);
    ty_interval inside = ty_convergence_samples(&t, 4096),
                outside = ty_convergence_samples(&t, 8192);

    check_near(log(inside.high / inside.expected), 0.1 * TY_INTERVAL_DEVIATIONS, 1e-12, "inside");
    check_near(log(outside.expected / outside.low),
               (0.1 + TY_EXTRAPOLATION_DEVIATION) * TY_INTERVAL_DEVIATIONS, 1e-12, "outside");
}

Test(convergence, fit_finds_what_points_were_made_from)
{
    const double noises[] = {20, 1000, 44356, 3e5};

    for (size_t i = 0; i < sizeof noises / sizeof noises[0]; i++) {
        ty_convergence t = made_task(noises[i], 7e6);
        ty_convergence_point points[12];
        double noise = 0, minimum = 0, error_left = 1;
        for (int p = 0; p < 12; p++) {
            double b = 32 * pow(2, p);
            points[p] = (ty_convergence_point){b, ty_convergence_samples(&t, b).expected, 1 + p};
        }
        cr_assert_eq(ty_convergence_fit(points, 12, 0, &noise, &minimum, &error_left, NULL), TY_OK);
        check_near(noise, noises[i], 1e-6, "noise scale");
        check_near(minimum, 7e6, 1e-6, "minimum");
        cr_assert_lt(error_left, 1e-7);
    }
}

/* A slow grid is the oracle of the golden-section search, on points with errors. */
Test(convergence, fit_is_the_best_of_a_grid)
{
    srand(7);
    for (int round = 0; round < 20; round++) {
        ty_convergence_point points[6];
        double noise, minimum, rms, best = HUGE_VAL;
        for (int p = 0; p < 6; p++) {
            double b = 100 * pow(3, p);
            points[p] = (ty_convergence_point){
                b, 1e6 * (1 + b / 2000) * exp(0.2 * ((double)rand() / RAND_MAX - 0.5)), 1};
        }
        cr_assert_eq(ty_convergence_fit(points, 6, 0, &noise, &minimum, &rms, NULL), TY_OK);
        for (double log_noise = log(1.0); log_noise < log(1e6); log_noise += 0.01) {
            double sum = 0, squares = 0;
            for (int p = 0; p < 6; p++)
                sum += log(points[p].samples / (1 + points[p].batch / exp(log_noise))) / 6;
            for (int p = 0; p < 6; p++)
                squares +=
                    pow(log(points[p].samples / (1 + points[p].batch / exp(log_noise))) - sum, 2);
            best = fmin(best, sqrt(squares / 6));
        }
        cr_assert_leq(rms, best * (1 + 1e-9), "round %d: %g, grid %g", round, rms, best);
    }
}

Test(convergence, fit_refuses_what_it_cannot_use)
{
    const ty_convergence_point one = {256, 1e6, 1}, bad = {256, -1, 1};
    double noise = 0, minimum, rms;
    ty_error error = {0};

    cr_assert_eq(ty_convergence_fit(&one, 1, 0, &noise, &minimum, &rms, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "two batch sizes"));
    cr_assert_eq(ty_convergence_fit(&bad, 1, 100, &noise, &minimum, &rms, &error), TY_EINVAL);
    cr_assert_eq(ty_convergence_fit(&one, 0, 100, &noise, &minimum, &rms, &error), TY_EINVAL);
    cr_assert_eq(noise, 0);
    cr_assert_eq(ty_convergence_fit(&one, 1, 256, &noise, &minimum, &rms, &error), TY_OK);
    check_near(minimum, 5e5, 1e-12, "half of the samples at B = N");
}

/* |g_B|^2 = |G|^2 + tr/B exactly. */
/* Fitting points on the law returns the law, in their own unit; unreadable files are refused. */
Test(convergence, what_others_reached)
{
    static const char *const refused[] = {
        "",           "512",        "512:",    "512:23epoch",          "512:-1",
        "0:23",       "512:23*0",   "512:23,", "512:23epochs,1024:24", "512:23 ",
        "nan:23,1:2", "512:inf,1:2"};
    ty_convergence law;
    ty_reached reached = {0};
    ty_error error = {0};

    cr_assert_eq(ty_reached_parse("100:11epochs,1000:20epochs*4,4000:50epochs", &reached, &error),
                 TY_OK, "%s", error.message);
    cr_assert_str_eq(reached.unit, "epochs");
    cr_assert_eq(reached.count, 3);
    check_near(reached.points[1].weight, 2, 1e-12, "weight");
    cr_assert_eq(ty_reached_fit(&reached, &law, &error), TY_OK, "%s", error.message);
    check_near(law.noise_scale_samples, 1000, 1e-6, "noise scale");
    check_near(law.minimum_samples, 10, 1e-6, "smallest batches");
    check_near(law.log_deviation, sqrt(0.02 / 3), 1e-6, "deviation");
    check_near(law.smallest_batch, 100, 0, "smallest");
    check_near(law.largest_batch, 4000, 0, "largest");
    check_near(ty_convergence_samples(&law, 2000).expected, 30, 1e-6, "between");
    ty_reached_clear(&reached);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cr_assert_eq(ty_reached_parse(refused[i], &reached, &error), TY_EINVAL, "%s", refused[i]);
        cr_assert_null(reached.points, "%s", refused[i]);
    }
}

Test(convergence, staleness)
{
    ty_convergence t = made_task(1000, 1e6);
    ty_interval small, large, none;

    cr_assert_eq(ty_staleness_delay(TY_STALENESS_WEIGHT_STASHING, 4), 1.5);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_VERTICAL_SYNC, 4), 3);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_DOUBLE_BUFFERED, 9), 1);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_ASYNCHRONOUS, 8), 7);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_BOUNDED, 4), 2);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_DELAYED, 3), 3);
    cr_assert_eq(ty_staleness_delay(TY_STALENESS_NONE, 8), 0);
    cr_assert_eq(ty_staleness_multiplier(&t, 1, 3, &small, NULL), TY_OK);
    cr_assert_eq(ty_staleness_multiplier(&t, 1e6, 3, &large, NULL), TY_OK);
    cr_assert_eq(ty_staleness_multiplier(&t, 1e6, 0, &none, NULL), TY_OK);
    cr_assert_lt(small.expected, 1.01, "small batches hide delays");
    check_near(large.expected, 1 + 3 / (1 + 1e-3), 1e-9, "large batches pay them in full");
    cr_assert_eq(none.high, 1);
    cr_assert(small.low <= small.expected && small.expected <= small.high);
    cr_assert_eq(ty_staleness_multiplier(&t, 1, -1, &none, NULL), TY_EINVAL);
}

Test(convergence, every_compressor_has_a_prior_with_a_source)
{
    ty_convergence t = made_task(1000, 1e6);
    ty_error error = {0};

    for (uint32_t i = 0; i < TY_COMPRESSION_COUNT; i++) {
        const char *wanted = ty_compression_name((ty_compression_kind)i);
        ty_interval m = {0};
        cr_assert_eq(ty_compression_multiplier(&t, 256, wanted, NULL, &m, &error), TY_OK, "%s",
                     error.message);
        cr_assert(m.low >= 1 && m.expected >= m.low && m.high >= m.expected, "%s", wanted);
    }
    cr_assert_eq(ty_compression_multiplier(&t, 256, "topk", NULL, &(ty_interval){0}, &error),
                 TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "did you mean top-k"));
}

/* The variance of the mean of p workers' unbiased estimates, by sampling. */
Test(convergence, measured_omega_is_the_variance_of_the_mean)
{
    ty_convergence t = made_task(1000, 1e6);
    ty_compressor_effect effect = {.omega = 0.5, .delta = NAN, .workers = 8};
    ty_interval m;

    cr_assert_eq(ty_compression_multiplier(&t, 250, "int8", &effect, &m, NULL), TY_OK);
    check_near(m.expected, (1 + 0.5 / 8 + 1.5 * 4) / 5, 1e-12, "omega");
    effect = (ty_compressor_effect){.omega = NAN, .delta = 1, .workers = 8};
    cr_assert_eq(ty_compression_multiplier(&t, 250, "top-k", &effect, &m, NULL), TY_OK);
    cr_assert_eq(m.high, 1, "nothing is lost at delta 1");
    effect.delta = 0;
    cr_assert_eq(ty_compression_multiplier(&t, 250, "top-k", &effect, &m, NULL), TY_EINVAL);
    effect.delta = NAN;
    cr_assert_eq(ty_compression_multiplier(&t, 250, "top-k", &effect, &m, NULL), TY_EINVAL);
}

/* Losses that fall as a power: a run that takes m times as many steps has the loss of step t / m.
 */
Test(convergence, loss_stretch_of_powers)
{
    static const double factors[] = {0.8, 1, 1.3, 4};
    enum { COUNT = 4000 };
    static double losses[COUNT], changed[COUNT];

    for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
        for (double power = 0.1; power < 1; power += 0.2) {
            ty_interval m = {0};
            for (int t = 0; t < COUNT; t++) {
                losses[t] = 3 * pow(t + 1, -power);
                changed[t] = 3 * pow((t + 1) / factors[f], -power);
            }
            cr_assert_eq(ty_loss_stretch(losses, changed, COUNT, &m, NULL), TY_OK);
            /* Sums approximate integrals: the first steps are where they differ. */
            check_near(m.expected, factors[f], 3e-3, "factor");
            check_near(m.low, m.high, 1e-2, "no scatter");
        }
}

/* Noise that both runs share cancels. The interval of the rest covers the truth in 80 % of
 * cases. */
Test(convergence, loss_stretch_of_noisy_losses)
{
    enum { COUNT = 1024, ROUNDS = 400 };
    double losses[COUNT], changed[COUNT], mean = 0;
    int covered = 0;
    ty_interval m = {0};
    ty_error error = {0};

    srand(11);
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = 0; t < COUNT; t++) {
            double shared = exp(0.3 * ((double)rand() / RAND_MAX - 0.5));
            losses[t] = shared * pow(t + 1, -0.3);
            changed[t] =
                shared * pow((t + 1) / 1.2, -0.3) * exp(0.1 * ((double)rand() / RAND_MAX - 0.5));
        }
        cr_assert_eq(ty_loss_stretch(losses, changed, COUNT, &m, &error), TY_OK);
        covered += m.low <= 1.2 && 1.2 <= m.high;
        mean += m.expected / ROUNDS;
    }
    check_near(mean, 1.2, 5e-3, "mean of many");
    cr_assert(covered > 0.65 * ROUNDS && covered < 0.95 * ROUNDS, "%d of %d intervals", covered,
              ROUNDS);
    cr_assert_eq(ty_loss_stretch(losses, losses, COUNT, &m, &error), TY_OK);
    cr_assert_eq(m.low, 1);
    cr_assert_eq(m.high, 1);
    cr_assert_eq(ty_loss_stretch(losses, changed, 63, &m, &error), TY_EINVAL);
    changed[5] = NAN;
    cr_assert_eq(ty_loss_stretch(losses, changed, COUNT, &m, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "step 5"));
    for (int t = 0; t < COUNT; t++)
        losses[t] = changed[t] = 1 + t;
    cr_assert_eq(ty_loss_stretch(losses, changed, COUNT, &m, &error), TY_EINFEASIBLE);
    cr_assert_not_null(strstr(error.message, "more steps"));
}

/* A run that is 40 updates behind throughout is reported as such, at every point. */
Test(convergence, lag_of_a_shifted_run)
{
    enum { COUNT = 4096, LAG = 40 };
    static double losses[COUNT], changed[COUNT];

    for (int t = 0; t < COUNT; t++) {
        losses[t] = pow(t + 1, -0.3);
        changed[t] = pow(fmax(1, t + 1 - LAG), -0.3);
    }
    for (uint32_t count = 512; count <= COUNT; count *= 2) {
        ty_interval factor = {0};
        cr_assert_eq(ty_loss_stretch(losses, changed, count, &factor, NULL), TY_OK);
        check_near(ty_lag_of_stretch(factor, count).expected, LAG, 0.03, "lag");
    }
    cr_assert_eq(ty_lag_of_stretch((ty_interval){0.9, 1, 1.25}, 100).low, 0);
    check_near(ty_lag_of_stretch((ty_interval){0.9, 1, 1.25}, 100).high, 73 * 0.2, 1e-12, "high");
}

/* With error feedback and with staleness the lag is added to the steps; other losses multiply. */
Test(convergence, measured_costs)
{
    ty_convergence t = made_task(1000, 1e6);
    const ty_compression top_k = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.01};
    const ty_compression int8 = {.kind = TY_COMPRESSION_INT8};
    ty_compressor_calibration known[] = {
        {.compression = top_k, .distortion = 0.5, .lag = {10, 40, 90}},
        {.compression = int8, .distortion = 0.1, .factor = {0.9, 1.1, 1.3}}};
    ty_interval m = {0};

    t.compressors = known;
    t.compressor_count = 2;
    for (double batch = 8; batch < 1e5; batch *= 3) {
        cr_assert_eq(ty_compression_cost(&t, batch, &top_k, &m, NULL), TY_OK);
        check_near(m.expected * ty_convergence_steps(&t, batch),
                   ty_convergence_steps(&t, batch) + 40, 1e-12, "lag");
        cr_assert_eq(ty_compression_cost(&t, batch, &int8, &m, NULL), TY_OK);
        cr_assert(m.low == 0.9 && m.expected == 1.1 && m.high == 1.3);
    }
    known[0].compression.ratio = 0.1;
    cr_assert_eq(ty_compression_cost(&t, 250, &top_k, &m, NULL), TY_OK);
    check_near(m.expected, 1.06, 1e-12, "another ratio has the prior");
    t.has_staleness = true;
    t.staleness = (ty_interval){0, 6, 20};
    cr_assert_eq(ty_staleness_multiplier(&t, 250, 0.5, &m, NULL), TY_OK);
    check_near(m.expected, 1 + 3 / ty_convergence_steps(&t, 250), 1e-12, "half an update late");
}

Test(convergence, noise_over_a_run)
{
    enum { COUNT = 64 };
    ty_noise_sample samples[COUNT];
    double noise = 0, growth = 0, deviation = -1;
    ty_error error = {0};

    for (uint32_t i = 0; i < COUNT; i++)
        samples[i] = (ty_noise_sample){
            .step = 16 * i, .square = i % 2 == 0 ? 3 : -1, .variance = i < COUNT / 2 ? 100 : 300};
    cr_assert_eq(ty_noise_over_run(samples, COUNT, &noise, &growth, &deviation, &error), TY_OK);
    check_near(noise, 200, 1e-12, "mean of parts");
    check_near(growth, 9, 1e-12, "threefold over half a run");
    for (uint32_t i = 0; i < COUNT / 4; i++) /* large gradients at the start: N is 1 there */
        samples[i] = (ty_noise_sample){.step = i, .square = 1000, .variance = 1000};
    cr_assert_eq(ty_noise_over_run(samples, COUNT, &noise, &growth, &deviation, &error), TY_OK);
    check_near(noise, (1 + 100 + 300 + 300) / 4.0, 1e-12, "every part counts alike");
    check_near(deviation, 0, 1e-12, "enough estimates");
    for (uint32_t count = 7; count > 0; count--) { /* few estimates widen the interval */
        const double of_more = deviation;
        cr_assert_eq(ty_noise_over_run(samples, count, &noise, &growth, &deviation, &error), TY_OK);
        check_near(noise, 1, 1e-12, "of few estimates");
        cr_assert_gt(deviation, of_more);
    }
    cr_assert_eq(ty_noise_over_run(samples, 0, &noise, &growth, &deviation, &error),
                 TY_EINFEASIBLE);
    cr_assert_not_null(strstr(error.message, "no estimate"));
    for (uint32_t i = 0; i < COUNT; i++)
        samples[i].square = -1;
    cr_assert_eq(ty_noise_over_run(samples, COUNT, &noise, &growth, &deviation, &error),
                 TY_EINFEASIBLE);
}

/* One run gives no information about the spread; many determine it. */
Test(convergence, deviation_of_runs)
{
    static double steps[1000];
    double mean_log = 0;

    steps[0] = 500;
    check_near(ty_run_deviation(steps, 1, &mean_log), TY_PRIOR_RUN_DEVIATION * sqrt(2), 1e-12,
               "one run");
    check_near(mean_log, log(500), 1e-12, "mean of one");
    for (int i = 0; i < 1000; i++)
        steps[i] = 500 * exp(i % 2 == 0 ? 0.3 : -0.3);
    check_near(ty_run_deviation(steps, 1000, &mean_log), 0.3, 2e-3, "many runs");
    check_near(mean_log, log(500), 1e-12, "mean of many");
}

Test(convergence, learning_rate)
{
    ty_convergence t = made_task(1e9, 1e6);
    bool is_beyond = true;
    double rate = 0;

    t.scaling_limit_batch = 8192;
    cr_assert_eq(ty_learning_rate(&t, 0.1, 256, 8192, &rate, &is_beyond, NULL), TY_OK);
    check_near(rate, 3.2, 1e-4, "Goyal et al.: 0.1 at 256 is 3.2 at 8192");
    cr_assert_not(is_beyond);
    t.noise_scale_samples = 300; /* steps times learning rate are constant, up and down */
    for (double b = 8; b < 1e5; b *= 4) {
        cr_assert_eq(ty_learning_rate(&t, 0.1, 256, b, &rate, &is_beyond, NULL), TY_OK);
        check_near(rate * ty_convergence_steps(&t, b), 0.1 * ty_convergence_steps(&t, 256), 1e-12,
                   "rate times steps");
    }
    t.noise_scale_samples = 1e9;
    t.scaling_rule = TY_SCALING_SQRT;
    cr_assert_eq(ty_learning_rate(&t, 0.1, 256, 16384, &rate, &is_beyond, NULL), TY_OK);
    check_near(rate, 0.8, 1e-4, "square root");
    cr_assert(is_beyond);
    t.noise_scale_samples = 100; /* far above the noise scale a larger batch supports no higher
                                  * rate */
    cr_assert_eq(ty_learning_rate(&t, 0.1, 1e5, 1e7, &rate, &is_beyond, NULL), TY_OK);
    cr_assert_lt(rate, 0.1001);
    cr_assert_eq(ty_learning_rate(&t, 0.1, 0, 1, &rate, &is_beyond, NULL), TY_EINVAL);
}

/* A step time of a + b B minimizes the time to target at B = sqrt(N a / b). */
Test(convergence, best_batch_is_the_closed_form)
{
    ty_convergence t = made_task(3000, 1e6);
    ty_batch_option options[4000];
    double a = 0.02, b = 1e-4, time_s = 0;
    uint32_t best = 0;

    for (int i = 0; i < 4000; i++)
        options[i] = (ty_batch_option){i + 1, a + b * (i + 1)};
    cr_assert_eq(ty_best_batch(&t, options, 4000, &best, &time_s, NULL), TY_OK);
    cr_assert_leq(fabs(options[best].batch - sqrt(3000 * a / b)), 1);
    check_near(time_s, ty_convergence_steps(&t, options[best].batch) * options[best].step_time_s,
               1e-12, "time");
}

static double schedule_time(const ty_convergence *t, const ty_batch_option *options,
                            const uint32_t *chosen, uint32_t phases)
{
    double ratio = phases > 1 ? pow(t->noise_growth, 1.0 / (phases - 1)) : 1, mean = 0, sum = 0;

    for (uint32_t p = 0; p < phases; p++)
        mean += pow(ratio, p) / phases;
    for (uint32_t p = 0; p < phases; p++) {
        const ty_batch_option *o = &options[chosen[p]];
        sum += t->minimum_samples / t->noise_scale_samples / phases *
               (1 + t->noise_scale_samples * pow(ratio, p) / mean / o->batch) * o->step_time_s;
    }
    return sum;
}

Test(convergence, batch_schedule_is_the_best_of_all)
{
    ty_convergence t = made_task(3000, 1e6);
    const ty_batch_option options[] = {{256, 0.03}, {1024, 0.05}, {4096, 0.13}, {16384, 0.45}};
    uint32_t chosen[4], tried[4], one = 0;
    double found = 0, constant = 0, best = HUGE_VAL;

    cr_assert_eq(ty_batch_schedule(&t, options, 4, 4, chosen, &found, NULL), TY_OK);
    for (uint32_t code = 0; code < 256; code++) {
        for (int p = 0; p < 4; p++)
            tried[p] = code >> 2 * p & 3;
        best = fmin(best, schedule_time(&t, options, tried, 4));
    }
    check_near(found, best, 1e-12, "brute force");
    cr_assert_eq(ty_best_batch(&t, options, 4, &one, &constant, NULL), TY_OK);
    cr_assert_leq(found, constant);
    for (int p = 1; p < 4; p++)
        cr_assert_geq(chosen[p], chosen[p - 1], "batches grow with the noise");
    t.noise_growth = 1;
    cr_assert_eq(ty_batch_schedule(&t, options, 4, 4, chosen, &found, NULL), TY_OK);
    check_near(found, constant, 1e-12, "no growth");
}

Test(convergence, tasks_of_the_catalogue)
{
    ty_convergence *t = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_convergence_of_workload("resnet50", &t, &error), TY_OK, "%s", error.message);
    cr_assert(t->is_prior);
    /* The two medians of the logs from which the doubling from 32768 to 65536 is known: 60 and
     * 88. */
    check_near(ty_convergence_samples(t, 65536).expected /
                   ty_convergence_samples(t, 32768).expected,
               88.0 / 60, 0.05, "doubling the batch");
    ty_convergence_free(t);
    t = NULL;
    cr_assert_eq(ty_convergence_open("resnet50-imagnet", &t, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "did you mean resnet50-imagenet"));
    cr_assert_null(t);
}

Test(convergence, calibration_file)
{
    char path[] = "/tmp/ty_calibration_XXXXXX";
    const char *good =
        "{\"schema\": \"trainyard.calibration/1\", \"convergence\": {\"name\": \"mine\", "
        "\"target\": \"loss 2\", \"source\": \"measured\", \"noise_scale_samples\": 500, "
        "\"minimum_samples\": 1e5, \"log_deviation\": 0.05, \"smallest_batch\": 8, "
        "\"largest_batch\": 64, \"noise_growth\": 2, \"scaling_rule\": \"sqrt\"}}";
    ty_convergence *t = NULL;
    ty_error error = {0};
    int file = mkstemp(path);

    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(ty_file_write(path, good, strlen(good), &error), TY_OK);
    cr_assert_eq(ty_convergence_open(path, &t, &error), TY_OK, "%s", error.message);
    cr_assert_not(t->is_prior);
    cr_assert_eq(t->noise_scale_samples, 500);
    ty_convergence_free(t);
    t = NULL;
    cr_assert_eq(ty_file_write(path,
                               "{\"schema\": \"trainyard.calibration/1\", \"convergence\": "
                               "{\"name\": \"x\", \"target\": \"y\", \"source\": \"z\", "
                               "\"noise_scale_samples\": -1}}",
                               118, &error),
                 TY_OK);
    cr_assert_neq(ty_convergence_open(path, &t, &error), TY_OK);
    unlink(path);
}

/* A calibration survives a round trip. */
Test(convergence, calibration_there_and_back)
{
    char path[] = "/tmp/ty_calibration_XXXXXX", name[] = "mine", target[] = "loss=2",
         source[] = "measured";
    ty_compressor_calibration known[] = {
        {{.kind = TY_COMPRESSION_TOP_K, .ratio = 0.01}, 0.75, {0.5, 1, 2}, {0, 0, 0}},
        {{.kind = TY_COMPRESSION_TERNARY}, NAN, {0, 0, 0}, {0.5, 1.25, 2}}};
    ty_convergence t = made_task(700, 1e5), *read = NULL;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_error error = {0};
    int file = mkstemp(path);

    cr_assert_geq(file, 0);
    close(file);
    t.name = name;
    t.target = target;
    t.source = source;
    t.learning_rate = 0.05;
    t.batch = 128;
    t.has_temperature_cost = true;
    t.temperature_cost = (ty_interval){0.2, 0.4, 0.5};
    t.has_staleness = true;
    t.staleness = (ty_interval){0.1, 0.5, 2};
    t.compressor_count = 2;
    t.compressors = known;
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.calibration/1");
    ty_convergence_to_calibration(&t, &w);
    ty_json_close(&w, '}');
    cr_assert_eq(ty_text_check(&text, &error), TY_OK);
    cr_assert_eq(ty_file_write(path, text.data, text.length, &error), TY_OK);
    cr_assert_eq(ty_convergence_open(path, &read, &error), TY_OK, "%s", error.message);
    cr_assert_eq(read->learning_rate, 0.05);
    cr_assert_eq(read->batch, 128);
    cr_assert(read->has_staleness && read->staleness.high == 2);
    cr_assert(read->has_temperature_cost && read->temperature_cost.low == 0.2);
    cr_assert_eq(read->compressor_count, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(ty_compression_equals(&read->compressors[i].compression, &known[i].compression));
        cr_assert_eq(read->compressors[i].lag.expected, known[i].lag.expected);
        cr_assert_eq(read->compressors[i].factor.expected, known[i].factor.expected);
    }
    cr_assert_eq(read->compressors[0].distortion, 0.75);
    cr_assert(isnan(read->compressors[1].distortion));
    ty_convergence_free(read);
    ty_text_clear(&text);
    unlink(path);
}

Test(convergence, intervals)
{
    ty_interval a = ty_interval_of_deviation(2, 0.3), b = ty_interval_of_deviation(5, 0.4);
    ty_interval p = ty_interval_product(a, b), e = ty_interval_product(a, ty_interval_exact(3));

    check_near(p.expected, 10, 1e-12, "product");
    check_near(log(p.high / 10), 0.5 * TY_INTERVAL_DEVIATIONS, 1e-12, "quadrature");
    check_near(e.high, 3 * a.high, 1e-12, "exact factor");
}

/* Similar estimates: their own error over the root of their number. Distant estimates: their
 * distance. */
Test(convergence, estimates_of_one_figure)
{
    const ty_interval one = ty_interval_of_deviation(2, 0.3);
    const ty_interval alike[] = {one, one, one, one};
    const ty_interval apart[] = {ty_interval_of_deviation(1, 0.01),
                                 ty_interval_of_deviation(4, 0.01)};
    const ty_interval same = ty_interval_mean(&one, 1);
    const ty_interval close = ty_interval_mean(alike, 4), far = ty_interval_mean(apart, 2);

    check_near(same.expected, 2, 1e-12, "one");
    check_near(same.high, one.high, 1e-12, "one's bound");
    check_near(close.expected, 2, 1e-12, "four");
    check_near(log(close.high / 2), 0.15 * TY_INTERVAL_DEVIATIONS, 1e-12, "half as wide");
    check_near(log(2 / close.low), 0.15 * TY_INTERVAL_DEVIATIONS, 1e-12, "both ways");
    check_near(far.expected, 2, 1e-12, "geometric");
    check_near(log(far.high / 2), log(2) * TY_INTERVAL_DEVIATIONS, 1e-12, "standard error");
}

Test(convergence, no_allocation_is_taken_for_granted)
{
    for (long n = 1, done = 0; !done; n++) {
        ty_convergence *t = NULL;
        ty_status opened;
        ty_memory_fail_after(n);
        opened = ty_convergence_of_workload("resnet50", &t, NULL);
        ty_memory_fail_after(0);
        done = opened == TY_OK;
        cr_assert((opened == TY_OK) == (t != NULL));
        cr_assert(opened == TY_OK || opened == TY_ENOMEM);
        ty_convergence_free(t);
        cr_assert_lt(n, 10000);
    }
}
