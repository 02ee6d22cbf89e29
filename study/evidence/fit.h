/**
 * @file fit.h
 * Fits constants of a framework to measurements, for `trainyard calibrate --stack` and
 * tools/fit_stack.
 *
 *     TY_CHECK(ty_fit_new(stack, &fit, error), status, cleanup);
 *     for (each row)
 *         TY_CHECK(ty_fit_add_step(fit, &row.question, &row.measurement, error), status, cleanup);
 *     TY_CHECK(ty_fit_choose(fit, ty_fit_step_constants, NULL, error), status, cleanup);
 *     rows = ty_fit_rows(fit, &row_count); // before, after, left out
 *     constants = ty_fit_constants(fit, &count); // fitted, or left alone and why
 *
 * A measurement is the time of a question's step, of a collective, or of a kind of kernels in a
 * traced step. Predictions are those of the planner: a step's plan is searched once, with the
 * original framework, then costed and estimated again per trial.
 *
 * Loss: the mean of |log(predicted / measured)| over the rows, and for every constant a log-normal
 * prior around the framework's value, so that constants that rows do not determine stay unchanged:
 *     sum over rows |log(p/m)| / n  +  w sum over constants (log(c / c0) / s)^2
 * s = TY_FIT_DEVIATION and w = TY_FIT_NOISE / 2n, the posterior's mode if measurements have noise
 * of TY_FIT_NOISE (double exponential). Minimized by Gauss-Newton steps with weights from the
 * current errors (iteratively reweighted least squares), halved on overshoot; deterministic.
 *
 * Errors are |predicted / measured - 1|. Left-out errors: the constants are fitted again without
 * the rows of one group, which are then predicted; each group once.
 */
#ifndef FIT_H
#define FIT_H

#include "ty_collective_model.h"
#include "ty_study.h"

#define TY_FIT_DEVIATION 0.5   /* prior, of the logarithm of a constant */
#define TY_FIT_NOISE 0.03      /* of the logarithm of a measurement */
#define TY_FIT_LEAST_TOLD 0.02 /* of |d log t / d log c|: below it, a row does not determine c */
#define TY_FIT_MOST_CONSTANTS 24
/** Groups for rows without a group name, assigned in turn. */
#define TY_FIT_FOLDS 12

typedef struct ty_fit ty_fit;

/** @param stack framework with the start values; copied */
ty_status ty_fit_new(const ty_stack *stack, ty_fit **out, ty_error *error) TY_MUST_CHECK;
void ty_fit_free(ty_fit *fit);
/** Sets w above for later fits; negative: the default above. */
void ty_fit_set_prior(ty_fit *fit, double weight);

/** Whether to fit constants that may differ by device for the rows' common device only:
 * "h100-sxm:product_share" instead of "product_share". Default: false. */
void ty_fit_set_by_device(ty_fit *fit, bool is_by_device);

/* ---- Measurements ------------------------------------------------------------------------ */

typedef struct ty_measurement {
    const char *name;  /* in tables and messages; copied */
    const char *group; /* rows of one group are left out together; NULL: assigned in turn */
    double seconds;    /* measured, > 0 */
    bool is_judge;     /* held-out: only scored */
} ty_measurement;

/**
 * Adds a step of a question's plan.
 * @param question `stack` is the name with which the fit's framework was opened
 * @return as ty_question_open and ty_question_plan: TY_EINFEASIBLE if the layout does not fit
 */
ty_status ty_fit_add_step(ty_fit *fit, const ty_question *question,
                          const ty_measurement *measurement, ty_error *error) TY_MUST_CHECK;
/**
 * Adds a collective as measured by nccl-tests: without other traffic, with the library's choice of
 * algorithm.
 * @param cluster outlives the fit
 * @param ranks, hosts number of ranks, in equal numbers on the first `hosts` hosts
 * @param bytes message size: bytes per rank
 */
ty_status ty_fit_add_collective(ty_fit *fit, const ty_cluster *cluster, ty_collective_kind kind,
                                uint32_t ranks, uint32_t hosts, uint64_t bytes,
                                const ty_measurement *measurement, ty_error *error) TY_MUST_CHECK;

/**
 * ty_fit_add_collective for each row of an nccl-tests log, with the shorter of its two times.
 * @param cluster outlives the fit; gives the number of hosts if the log does not
 */
ty_status ty_fit_add_log(ty_fit *fit, const ty_collective_log *log, const ty_cluster *cluster,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Adds the kernels of a traced step of the first rank: one row each for products, fused attention
 * and memory passes, if plan and trace both have them. Ignores collectives, which wait for other
 * ranks in a trace.
 * @param name of the trace, in tables and messages
 */
ty_status ty_fit_add_trace(ty_fit *fit, const ty_question *question, const ty_traced_steps *steps,
                           const char *name, ty_error *error) TY_MUST_CHECK;

/* ---- Measurements as people have them ---------------------------------------------------- */

/** Units of measurements, by their names in files and options. MFU: flop of the model's products,
 * forward and backward, over the peak of the precision. It counts attention unmasked and no
 * recomputation. */
typedef enum ty_step_unit {
    TY_STEP_SECONDS,        /* "step_s" */
    TY_STEP_TOKENS,         /* "tokens_per_s", of all devices */
    TY_STEP_DEVICE_TOKENS,  /* "tokens_per_s_per_device" */
    TY_STEP_SAMPLES,        /* "samples_per_s" */
    TY_STEP_DEVICE_SAMPLES, /* "samples_per_s_per_device" */
    TY_STEP_MFU,            /* "mfu", 0 to 1 */
    TY_STEP_UNIT_COUNT
} ty_step_unit;

/** A step with its layout: texts of a question, and a figure. The row owns its texts; NULL and 0:
 * not specified. */
typedef struct ty_step_row {
    char *place; /* "rows.csv:3", "rows.json:/rows/1": prefix of messages */
    char *name;
    char *workload, *cluster, *precision, *fix;
    uint32_t global_batch;
    uint64_t sequence;
    ty_step_unit unit;
    double value;
} ty_step_row;
typedef struct ty_step_rows {
    ty_step_row *rows;
    uint32_t count;
} ty_step_rows;

/**
 * Rows of a file: comma-separated values, whose first line names the columns, or JSON, an array of
 * objects or `trainyard.steps/1`. Columns: workload, cluster, global_batch, seq, precision, fix,
 * the keys of --fix, name, and at least one of the units above. Each row has one of these units
 * (docs/reference/file-formats.md).
 * @return TY_EPARSE with file and line or pointer
 */
ty_status ty_step_rows_load(const char *path, ty_step_rows *out, ty_error *error) TY_MUST_CHECK;
void ty_step_rows_clear(ty_step_rows *rows);
/** Whether a file begins like rows: JSON that is no trace, or a line of columns. */
bool ty_is_step_rows(const char *path);
/** Parses a figure: "0.41"; for seconds also "800ms". @return TY_EINVAL with the expected form */
ty_status ty_step_value_parse(ty_step_unit unit, const char *text, double *out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * Converts a figure to a plan's step time.
 * @return TY_EINVAL: tokens of samples without tokens; faster than the devices' peak, with the
 *         factor
 */
ty_status ty_step_seconds(ty_step_unit unit, double value, const ty_plan *plan,
                          const ty_cluster *cluster, double *out, ty_error *error) TY_MUST_CHECK;
/**
 * ty_fit_add_step of a row, with missing values from `otherwise`.
 * @return TY_EPARSE, with the row's place first: also for a layout that does not fit
 */
ty_status ty_fit_add_row(ty_fit *fit, const ty_question *otherwise, const ty_step_row *row,
                         ty_error *error) TY_MUST_CHECK;

/* ---- Fitting ----------------------------------------------------------------------------- */

/** Names of the constants to try for steps, and for collectives; NULL at the end. */
extern const char *const ty_fit_step_constants[];
extern const char *const ty_fit_collective_constants[];
/** Names of the constants that the rows of ty_fit_add_trace determine, one each. @param names [out]
 * NULL at the end */
void ty_fit_trace_constants(const ty_fit *fit, const char *names[TY_TRACED_KIND_COUNT]);

/**
 * Fits exactly these constants, even if the rows do not determine them.
 * @param names as for ty_stack_find, NULL at the end; may be empty
 * @return TY_EINVAL for an unknown name, with the nearest, and for a constant that no factor
 *         changes: one that is 0, or one of a device if the rows have several devices
 */
ty_status ty_fit_solve(ty_fit *fit, const char *const *names, ty_error *error) TY_MUST_CHECK;
/**
 * Fits the constants that the rows determine. Repeatedly adds the constant, or the two that mask
 * each other, with the largest reduction of the left-out error, until none helps; then drops
 * unnecessary ones. Linearized times propose constants, by the left-out error and by the loss.
 * Other constants stay unchanged, with a `reason`. Rows are left out as in ty_fit_leave_out.
 * @param watch may be NULL
 * @return TY_EINVAL with fewer than TY_FIT_LEAST_ROWS rows; TY_EINTERRUPTED
 */
ty_status ty_fit_choose(ty_fit *fit, const char *const *names, const ty_watch *watch,
                        ty_error *error) TY_MUST_CHECK;
#define TY_FIT_LEAST_ROWS 3 /* for cross-validation */
/** Predicts every fitted row without its group: `left_out_s`. The constants stay unchanged. */
ty_status ty_fit_leave_out(ty_fit *fit, ty_error *error) TY_MUST_CHECK;

/* ---- Results ----------------------------------------------------------------------------- */

typedef struct ty_fit_row {
    const char *name, *group;
    bool is_judge;
    double measured_s, before_s, after_s;
    double left_out_s; /* NaN: not computed */
} ty_fit_row;
typedef struct ty_fit_constant {
    const char *name;     /* "network_share", "h100-sxm:product_share" */
    double before, after; /* before: the device's, if the framework has none */
    double told;          /* largest |d log t / d log c| of a row, at the original constants */
    bool is_fitted;
    bool is_at_limit;   /* the fit stopped at the constant's limit */
    const char *reason; /* why it was not fitted; "" if it was */
} ty_fit_constant;
typedef struct ty_fit_score {
    uint32_t rows;
    double mean, signed_mean, median, p90;
} ty_fit_score;
/** Kind of a row's prediction. */
typedef enum ty_fit_stage { TY_FIT_BEFORE, TY_FIT_AFTER, TY_FIT_LEFT_OUT } ty_fit_stage;

/** Owned by the fit; valid until it is freed or gets another row. */
const ty_fit_row *ty_fit_rows(const ty_fit *fit, uint32_t *count);
/** Of the last ty_fit_solve or ty_fit_choose, in the order of its names. */
const ty_fit_constant *ty_fit_constants(const ty_fit *fit, uint32_t *count);
/** The framework with the fitted constants. */
const ty_stack *ty_fit_stack(const ty_fit *fit);
/** @param group NULL: of all groups */
ty_status ty_fit_score_of(const ty_fit *fit, ty_fit_stage stage, bool is_judge, const char *group,
                          ty_fit_score *out, ty_error *error) TY_MUST_CHECK;

/* ---- Output ------------------------------------------------------------------------------ */

/** Metadata of a fitted framework. */
typedef struct ty_fit_origin {
    const char *name; /* of the framework: letters, digits, '-', '_' and '.' */
    const char *like; /* the framework it inherits from, as for ty_stack_open */
    const char *data; /* description of the measurements: "rows.csv", "--mfu 0.41" */
    const char *date; /* ISO 8601 */
} ty_fit_origin;
/** `trainyard.stack/1`: inherits from that framework, with the fitted constants and their
 * origin. */
void ty_fit_stack_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *writer,
                          const char *key);
/** `trainyard.fit/1` (docs/schemas/fit.json): rows, constants, errors, and that framework. */
ty_status ty_fit_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *writer,
                         ty_error *error) TY_MUST_CHECK;
/** The same as a readable table. */
ty_status ty_fit_to_text(const ty_fit *fit, ty_text *text, ty_error *error) TY_MUST_CHECK;

#endif
