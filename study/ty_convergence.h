/**
 * @file ty_convergence.h
 * Steps and time that a model needs to reach its target. Besides the step time these depend on the
 * global batch size, on gradient staleness and on gradient compression.
 *
 *     ty_convergence *task = NULL;
 *     TY_CHECK(ty_convergence_open("resnet50-imagenet", &task, error), status, cleanup);
 *     double steps = ty_convergence_steps(task, 8192);
 *
 * The law: with N the gradient noise scale and B the global batch, both in samples,
 *     steps(B)   = S (1 + N/B)          S: steps to target with exact gradients
 *     samples(B) = E (1 + B/N)          E = S N: samples to target with the smallest batches
 * Source: McCandlish et al. 2018 (arXiv:1812.06162), equation 2.11. It assumes that the learning
 * rate is tuned for every batch. E is for a target, an optimizer and a data set: a task. Where a
 * calibration measured what noise costs at its own rate, ty_temperature_multiplier corrects it.
 *
 * Tasks and the effects of compressors and staleness are data with sources:
 * study/catalogue/convergence.json. What comes from there is a prior; what a calibration run
 * measured replaces it. Every uncertain figure is a ty_interval.
 */
#ifndef TY_CONVERGENCE_H
#define TY_CONVERGENCE_H

#include "ty_core.h"

/* ---- Intervals --------------------------------------------------------------------------- */

/** A positive figure with its 80 % prediction interval [low, high]. */
typedef struct ty_interval {
    double low, expected, high;
} ty_interval;

/** A figure known exactly. */
ty_interval ty_interval_exact(double value);
/** expected * exp(-+ TY_INTERVAL_DEVIATIONS * log_deviation): from a standard deviation of the log.
 */
ty_interval ty_interval_of_deviation(double expected, double log_deviation);
/** Product of independent figures: the distances of the bounds, as logs, add in quadrature. */
ty_interval ty_interval_product(ty_interval a, ty_interval b);
ty_interval ty_interval_scale(ty_interval a, double factor);
/**
 * Geometric mean of independent estimates of one positive figure. Its log deviation is the larger
 * of their mean deviation and their scatter, divided by the square root of their number.
 * @param count >= 1
 */
ty_interval ty_interval_mean(const ty_interval *estimates, uint32_t count);
/** {"low": ..., "expected": ..., "high": ...} on one line. */
void ty_interval_to_json(ty_interval interval, ty_json_writer *writer, const char *key);

/** Standard deviations from the middle to the bounds of the central 80 % of a normal distribution.
 */
#define TY_INTERVAL_DEVIATIONS 1.2816

/* ---- Steps and samples ------------------------------------------------------------------- */

typedef enum ty_scaling_rule {
    TY_SCALING_LINEAR, /* SGD: learning rate in proportion to the batch */
    TY_SCALING_SQRT,   /* Adam, LAMB: to its square root */
    TY_SCALING_RULE_COUNT
} ty_scaling_rule;
const char *ty_scaling_rule_name(ty_scaling_rule rule); /* "linear", "sqrt" */

/** Cost of a compressor, measured in a calibration run: see ty_compression_cost. */
typedef struct ty_compressor_calibration {
    ty_compression compression;
    double distortion; /* |Cg - g|^2 / |g|^2 of a rank's gradients, mean over steps; NaN: unknown */
    ty_interval lag;   /* with error feedback: delay of training in updates; >= 0 */
    ty_interval factor; /* without error feedback: factor on steps; > 0 */
} ty_compressor_calibration;

/** One task: workload, data set, target. */
typedef struct ty_convergence {
    char *name;   /* "resnet50-imagenet" */
    char *target; /* "75.9 % top-1" */
    char *source;
    bool is_prior;              /* from the catalogue; false: measured in a calibration run */
    double noise_scale_samples; /* N, averaged over the run */
    double minimum_samples;     /* E */
    double log_deviation; /* of samples to target around the law; spread between runs included */
    double smallest_batch, largest_batch; /* range the figures were taken in */
    double noise_growth;                  /* noise scale at the end over that at the start; >= 1 */
    ty_scaling_rule scaling_rule;
    double scaling_limit_batch; /* largest batch the rule is known to hold to; 0: not known */
    /* Of a calibration run: */
    double learning_rate, batch;  /* that it trained with; 0: not known */
    bool has_temperature_cost;    /* only with a batch */
    ty_interval temperature_cost; /* of that rate and batch: see ty_temperature_multiplier */
    bool has_staleness;
    ty_interval staleness; /* delay of training in updates, per update of gradient staleness */
    uint32_t compressor_count;
    ty_compressor_calibration *compressors; /* owned */
} ty_convergence;

/**
 * Opens a task of the catalogue by its name, or a `trainyard.calibration/1` file: its member
 * "convergence" and, if present, "staleness" and "compression" (docs/design/convergence-model.md).
 * @return TY_EIO naming the closest task for an unknown name; TY_EPARSE for bad content.
 */
ty_status ty_convergence_open(const char *name_or_path, ty_convergence **out,
                              ty_error *error) TY_MUST_CHECK;
/** The catalogue's task for a workload of the zoo; TY_EIO if there is none. */
ty_status ty_convergence_of_workload(const char *workload, ty_convergence **out,
                                     ty_error *error) TY_MUST_CHECK;
ty_status ty_convergence_from_json(const ty_json *object, ty_convergence **out,
                                   ty_error *error) TY_MUST_CHECK;
/** The members "convergence", "staleness" and "compression" of a calibration, to an open object. */
void ty_convergence_to_calibration(const ty_convergence *task, ty_json_writer *writer);
void ty_convergence_to_json(const ty_convergence *task, ty_json_writer *writer, const char *key);
void ty_convergence_free(ty_convergence *task);

/** Steps to target, with the learning rate that ty_learning_rate has for the batch; batch > 0. */
double ty_convergence_steps(const ty_convergence *task, double batch);
/** Samples to target with their interval. The interval widens by a log deviation of
 * TY_EXTRAPOLATION_DEVIATION per doubling of the batch outside the range of the task's figures. */
ty_interval ty_convergence_samples(const ty_convergence *task, double batch);
#define TY_EXTRAPOLATION_DEVIATION 0.1

/**
 * Factor on the law's steps for a batch B where a calibration at batch B0 measured c, the
 * temperature cost:
 *     exp(c (k - 1)),  k = (B0 + N) / (B + N)
 * The temperature of a training is its learning rate over its batch (McCandlish et al., appendix C;
 * Mandt, Hoffman and Blei 2017, arXiv:1704.04289). At a rate far below the largest stable one,
 * noise raises the loss by a share in proportion to the temperature, whatever the batch. If losses
 * fall as a power of steps x rate, log(steps x rate) grows in proportion too: by c at the
 * calibration's temperature. k is the temperature at B over the calibration's, with the rate of
 * ty_learning_rate. For Adam the rate is divided by the root mean square of the gradients, which
 * gives the same k. Returns 1 if no c was measured.
 */
ty_interval ty_temperature_multiplier(const ty_convergence *task, double batch);
/**
 * Factor on steps if training uses `share` of ty_learning_rate's rate for its batch: the same steps
 * x rate, and the cost of noise at that temperature,
 *     exp(c k (share - 1)) / share,  k = (B0 + N) / (B + N)
 * A calibration measures c at share 1/2. The rate is that of the calibration's momentum m: r (1 -
 * m) / (1 - m') of another, m'.
 * @param share > 0
 */
ty_interval ty_rate_multiplier(const ty_convergence *task, double batch, double share);
#define TY_TEMPERATURE_COST_MOST 10.0 /* 22026 times the steps: no calibration would have ended */

/** One batch size and the samples to target with it. */
typedef struct ty_convergence_point {
    double batch, samples; /* > 0 */
    double weight;         /* e.g. the square root of the number of runs; > 0 */
} ty_convergence_point;

/**
 * Fits the law to points by weighted least squares of log(samples). N by golden section over its
 * log between a hundredth of the smallest batch and a hundred times the largest, E in closed form.
 * If the points show no growth, N is the upper end, a lower bound of the noise scale.
 * @param count at least 1; with one batch size only N is `assumed_noise`, which must then be > 0
 * @param rms_log_error [out] weighted, over the points
 */
ty_status ty_convergence_fit(const ty_convergence_point *points, uint32_t count,
                             double assumed_noise, double *noise_scale_samples,
                             double *minimum_samples, double *rms_log_error,
                             ty_error *error) TY_MUST_CHECK;

/** Published samples to target at several batch sizes. */
typedef struct ty_reached {
    const char *unit; /* of the figures: "samples", "epochs" or "tokens"; static */
    uint32_t count;
    ty_convergence_point *points; /* owned; `samples` are of `unit`, weights roots of the runs */
} ty_reached;
/**
 * "BATCH:FIGURE[UNIT][*RUNS],...": batches in samples; the default unit is samples, the default
 * number of runs 1. "512:23epochs*5,1024:26epochs"
 * @return TY_EINVAL with the point that cannot be read, or two units in one list
 */
ty_status ty_reached_parse(const char *text, ty_reached *out, ty_error *error) TY_MUST_CHECK;
void ty_reached_clear(ty_reached *reached);
/**
 * ty_convergence_fit's law as a task without names: figures, the range of batches, and the
 * deviation of n points around it, two of which the law itself takes, with a prior as in
 * ty_run_deviation: sqrt((2 * 0.1^2 + n rms^2) / (2 + n - 2)). `minimum_samples` and the result of
 * ty_convergence_samples are in the figures' unit; steps are only defined if that unit is samples.
 * The task owns nothing.
 */
ty_status ty_reached_fit(const ty_reached *reached, ty_convergence *out,
                         ty_error *error) TY_MUST_CHECK;
/** `trainyard.law/1`. @param batch size to evaluate the law at; 0: none */
void ty_reached_to_json(const ty_reached *reached, const ty_convergence *law, double batch,
                        ty_json_writer *writer);

/* ---- Stale and compressed gradients ------------------------------------------------------ */

typedef enum ty_staleness_kind {
    TY_STALENESS_NONE,            /* synchronous, pipelines with flush included */
    TY_STALENESS_WEIGHT_STASHING, /* PipeDream: stage s of n is n-1-s updates stale */
    TY_STALENESS_VERTICAL_SYNC,   /* all stages n-1 updates stale */
    TY_STALENESS_DOUBLE_BUFFERED, /* PipeDream-2BW: one update stale */
    TY_STALENESS_ASYNCHRONOUS,    /* n workers, a parameter server: n-1 updates stale on average */
    TY_STALENESS_BOUNDED,         /* workers at most n updates apart: n/2 on average */
    TY_STALENESS_DELAYED,         /* a plan's staleness n: all gradients n updates stale */
    TY_STALENESS_KIND_COUNT
} ty_staleness_kind;
/** Mean staleness in updates. @param depth stages, workers or bound, as above; >= 1 */
double ty_staleness_delay(ty_staleness_kind kind, uint32_t depth);

/**
 * Factor on steps for a mean staleness of d updates:  (N/B + 1 + c d) / (N/B + 1). Staleness only
 * lengthens the part of training that exact gradients would take (Stich and Karimireddy 2020,
 * theorem 1); c is from the catalogue and uncertain. If the task's calibration measured the delay
 * of training L, in updates per update of staleness: 1 + L d / steps(B).
 */
ty_status ty_staleness_multiplier(const ty_convergence *task, double batch, double delay,
                                  ty_interval *out, ty_error *error) TY_MUST_CHECK;

/** Measured effect of a compressor. */
typedef struct ty_compressor_effect {
    /* From a calibration run; NaN if not measured. Of an unbiased compressor E|Cg-g|^2 / |g|^2; of
     * one with error feedback 1 - |Cg-g|^2 / |g|^2, averaged over steps. */
    double omega, delta;
    uint32_t workers; /* whose errors average out, with omega; >= 1 */
} ty_compressor_effect;

/**
 * Factor on steps for a compressor by its catalogue name: none, fp16, bf16, fp8, int8, one-bit,
 * ternary, top-k, random-k, dgc, powersgd.
 * - `effect` NULL: the catalogue's prior, judged from published accuracies.
 * - omega measured: (1 + omega/p + (1+omega) N/B) / (1 + N/B): the variance of the mean gradient.
 * - delta measured: 1 + c (1/delta - 1) / (1 + N/B), c as for staleness: error feedback delays the
 *   residual by 1/delta - 1 steps on average.
 * @return TY_EINVAL for an unknown name, with the nearest one; or measured figures out of range
 */
ty_status ty_compression_multiplier(const ty_convergence *task, double batch,
                                    const char *compressor, const ty_compressor_effect *effect,
                                    ty_interval *out, ty_error *error) TY_MUST_CHECK;
/**
 * The same for a compressor with its parameters, if the task's calibration measured it. With error
 * feedback, which sends the residual later, training has a constant delay of L updates: 1 + L /
 * steps(B). Without it, the measured factor. Else the prior.
 */
ty_status ty_compression_cost(const ty_convergence *task, double batch,
                              const ty_compression *compression, ty_interval *out,
                              ty_error *error) TY_MUST_CHECK;

/* ---- From short runs --------------------------------------------------------------------- */

/**
 * Factor on steps of a changed training, from the losses of the first steps of both runs. Both
 * start from the same weights and use the same samples in every step. With f(t) the mean loss over
 * steps t/2 to t, and the last one T = count,
 *   factor = 2 ^ (log(f_changed(T) / f(T)) / log(f(T/2) / f(T)))
 * which is exact if losses fall as a power of the steps. f_changed(T) and f(T) are over the same
 * samples, so the scatter of the samples cancels. The interval is from the scatter of that ratio
 * among eight parts of the last half, and from that of the losses around a power law in both means.
 * @param count at least 64
 * @return TY_EINFEASIBLE where the loss does not fall between the two means: more steps are needed
 */
ty_status ty_loss_stretch(const double *losses, const double *changed, uint32_t count,
                          ty_interval *factor, ty_error *error) TY_MUST_CHECK;

/**
 * Delay of a changed training in updates, from its ty_loss_stretch over `count` steps: t (1 -
 * 1/factor). The loss of step t = TY_STRETCH_MIDDLE count is the mean over the last half of the
 * steps. Bounds below 0 become 0: residuals and stale gradients are assumed never to help.
 */
ty_interval ty_lag_of_stretch(ty_interval factor, double count);
/* Of t^-b over [1/2, 1]: 0.729 to 0.735 for b from 0.1 to 0.5. */
#define TY_STRETCH_MIDDLE 0.73

/**
 * Temperature cost at a learning rate, from the ty_loss_stretch of a training at `share` of that
 * rate, 0 < share < 1. The stretch is in steps x rate: losses are averaged over as many steps as
 * move the weights as far as one step at the full rate. -log(factor) / (1 - share); bounds below 0
 * become 0.
 */
ty_interval ty_temperature_cost_of_stretch(ty_interval factor, double share);

/**
 * Noise scale of a run from its single estimates, in order. The run has up to eight parts of
 * sixteen estimates or more. The scale of a part is the ratio of its sums; the result is the mean
 * of the parts. steps(B) sums the effect of noise over all steps, so parts of equal length have
 * equal weight. The ratio of all sums would be that of the first steps, where gradients are
 * largest. Growth compares the halves, N2/N1 squared, since their middles are half a run apart; at
 * least 1.
 * @param log_deviation [out] of the scale's log, which widens the interval if there are fewer than
 *                            eight estimates; else 0
 * @return TY_EINFEASIBLE: no estimate, or sums that are not positive
 */
ty_status ty_noise_over_run(const ty_noise_sample *samples, uint32_t count, double *noise_scale,
                            double *growth, double *log_deviation, ty_error *error) TY_MUST_CHECK;
/** Noise scales of parts of equal length; NaN if the sums are not positive. @param scales [out,
 * parts]
 */
void ty_noise_parts(const ty_noise_sample *samples, uint32_t count, uint32_t parts, double *scales);
#define TY_NOISE_PARTS 8

/**
 * Deviation of the log steps of one more run from the mean of these runs, which differ only by the
 * seed. It combines their variance with a prior that counts like TY_PRIOR_RUNS more runs,
 *   sqrt((2 * 0.1^2 + sum (log s - mean)^2) / (2 + n - 1) * (1 + 1/n))
 * The prior is the middle of the catalogue's deviations, 0.02 to 0.13.
 * @param count at least 1
 */
double ty_run_deviation(const double *steps, uint32_t count, double *mean_log);
#define TY_PRIOR_RUN_DEVIATION 0.1
#define TY_PRIOR_RUNS 2.0

/* ---- Learning rate ----------------------------------------------------------------------- */

/**
 * Learning rate for a batch, from one known to work for another: times (1 + N/B0) / (1 + N/B) for
 * the linear rule, which far below the noise scale is B/B0, and the square root of that for the
 * other (McCandlish et al., equation 2.9). So steps fall as the rate rises. Steps x rate, the
 * distance that training covers, stays the same except for ty_temperature_multiplier.
 * @param is_beyond_limit [out] the batch exceeds the largest one that the task's rule is known to
 *                              hold for
 */
ty_status ty_learning_rate(const ty_convergence *task, double base_rate, double base_batch,
                           double batch, double *rate, bool *is_beyond_limit,
                           ty_error *error) TY_MUST_CHECK;

/* ---- Choosing the batch ------------------------------------------------------------------ */

/** A global batch that can be run, and its step time on the cluster in question. */
typedef struct ty_batch_option {
    double batch, step_time_s; /* > 0 */
} ty_batch_option;

/** The option with the least steps(B) * step time; the smaller batch wins ties. */
ty_status ty_best_batch(const ty_convergence *task, const ty_batch_option *options, uint32_t count,
                        uint32_t *best, double *training_time_s, ty_error *error) TY_MUST_CHECK;

/**
 * A batch for each phase of training. The noise scale grows from phase to phase by a constant
 * factor, by `task->noise_growth` from the first to the last, its mean being the task's; phases do
 * equal parts of the steps that exact gradients would take, S / phases. Each phase takes its best
 * option, which is the optimum, since phases do not depend on each other. Temperatures are those of
 * the task's noise scale, as the rates are.
 * @param chosen          [out, phases] index of an option
 * @param training_time_s [out] of all phases; never above that of ty_best_batch
 */
ty_status ty_batch_schedule(const ty_convergence *task, const ty_batch_option *options,
                            uint32_t count, uint32_t phases, uint32_t *chosen,
                            double *training_time_s, ty_error *error) TY_MUST_CHECK;

#endif
