/**
 * @file fit.h
 * Constants of a stack fitted to measurements: what `trainyard calibrate --stack` and
 * tools/fit_stack do.
 *
 *     TY_CHECK(ty_fit_new(stack, &fit, error), status, cleanup);
 *     for (each row)
 *         TY_CHECK(ty_fit_add_step(fit, &row.question, &row.measurement, error), status, cleanup);
 *     TY_CHECK(ty_fit_choose(fit, ty_fit_step_constants, NULL, error), status, cleanup);
 *     rows = ty_fit_rows(fit, &row_count); // before, after, left out
 *     constants = ty_fit_constants(fit, &count); // fitted, or left alone and why
 *
 * A measurement is the time of a step of a question, of a collective, or of a kind of kernels of a
 * traced step. What it is compared with is what an answer has: a step's plan is searched once, by
 * the stack as it was, and then costed and walked anew for every trial.
 *
 * Loss: the mean of |log(predicted / measured)| over the rows, and for every constant a log-normal
 * prior around what the stack has, so that what the rows do not tell stays where it was:
 *     sum over rows |log(p/m)| / n  +  w sum over constants (log(c / c0) / s)^2
 * s = TY_FIT_DEVIATION and w = TY_FIT_NOISE / 2n, the posterior's mode where measurements differ by
 * TY_FIT_NOISE (exponential, both ways) for reasons that no constant has. Minimised by Gauss and
 * Newton with weights from the errors as they are (iteratively reweighted least squares), halved
 * steps where that overshoots; deterministic.
 *
 * Errors are |predicted / measured - 1|. Left out: the constants are fitted anew without the rows
 * of one group, which are then predicted; each group once.
 */
#ifndef FIT_H
#define FIT_H

#include "ty_collective_model.h"
#include "ty_study.h"

#define TY_FIT_DEVIATION 0.5   /* of the logarithm of a constant, before anything was measured */
#define TY_FIT_NOISE 0.03      /* of the logarithm of a measurement */
#define TY_FIT_LEAST_TOLD 0.02 /* of |d log t / d log c|: with less a row says nothing of c */
#define TY_FIT_MOST_CONSTANTS 24
/** Left-out groups of rows that name none: rows are dealt out among as many. */
#define TY_FIT_FOLDS 12

typedef struct ty_fit ty_fit;

/** @param stack that the constants start from; copied */
ty_status ty_fit_new(const ty_stack *stack, ty_fit **out, ty_error *error) TY_MUST_CHECK;
void ty_fit_free(ty_fit *fit);
/** w above, for all that is fitted from now on; negative: as above, which it is before. */
void ty_fit_set_prior(ty_fit *fit, double weight);

/** Whether constants that may differ by device are fitted for the device of the rows alone, where
 * all have the same: "h100-sxm:product_share" in place of "product_share". Before, they are not. */
void ty_fit_set_by_device(ty_fit *fit, bool is_by_device);

/* ---- Measurements ------------------------------------------------------------------------ */

typedef struct ty_measurement {
    const char *name;  /* in tables and messages; copied */
    const char *group; /* rows of one name are left out together; NULL: dealt out */
    double seconds;    /* measured, > 0 */
    bool is_judge;     /* nothing is fitted to it: it is only scored */
} ty_measurement;

/**
 * A step of the plan that answers a question.
 * @param question `stack` is what the fit's stack was opened by
 * @return as ty_question_open and ty_question_plan: TY_EINFEASIBLE where the layout does not fit
 */
ty_status ty_fit_add_step(ty_fit *fit, const ty_question *question,
                          const ty_measurement *measurement, ty_error *error) TY_MUST_CHECK;
/**
 * A collective, as nccl-tests measures one: alone, of the library's own choice.
 * @param cluster outlives the fit
 * @param ranks, hosts so many of its devices, in equal parts on its first `hosts` hosts
 * @param bytes   what each rank puts in
 */
ty_status ty_fit_add_collective(ty_fit *fit, const ty_cluster *cluster, ty_collective_kind kind,
                                uint32_t ranks, uint32_t hosts, uint64_t bytes,
                                const ty_measurement *measurement, ty_error *error) TY_MUST_CHECK;

/**
 * ty_fit_add_collective of each row of a log of nccl-tests, the shorter of its two times.
 * @param cluster outlives the fit; says on how many hosts the ranks were, where the log does not
 */
ty_status ty_fit_add_log(ty_fit *fit, const ty_collective_log *log, const ty_cluster *cluster,
                         ty_error *error) TY_MUST_CHECK;

/**
 * The kernels of a traced step, of the rank that is the first of the first stage: a row for each of
 * products, fused attention and passes over memory that plan and trace both have. Collectives are
 * none: in a trace they wait for other ranks.
 * @param name of the trace, in tables and messages
 */
ty_status ty_fit_add_trace(ty_fit *fit, const ty_question *question, const ty_traced_steps *steps,
                           const char *name, ty_error *error) TY_MUST_CHECK;

/* ---- Measurements as people have them ---------------------------------------------------- */

/** What was measured, by its name in files and options. MFU: flop of the model's products, forward
 * and backward, attention counted whole and nothing made again, over the peak of the precision. */
typedef enum ty_step_unit {
    TY_STEP_SECONDS,        /* "step_s" */
    TY_STEP_TOKENS,         /* "tokens_per_s", of all devices */
    TY_STEP_DEVICE_TOKENS,  /* "tokens_per_s_per_device" */
    TY_STEP_SAMPLES,        /* "samples_per_s" */
    TY_STEP_DEVICE_SAMPLES, /* "samples_per_s_per_device" */
    TY_STEP_MFU,            /* "mfu", 0 to 1 */
    TY_STEP_UNIT_COUNT
} ty_step_unit;

/** A step with its layout: the words of a question, and a figure. Texts are the row's own; NULL and
 * 0: not said. */
typedef struct ty_step_row {
    char *place; /* "rows.csv:3", "rows.json:/rows/1": what messages begin with */
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
/** Whether a file begins as rows do: JSON that is no trace, or a line of columns. */
bool ty_is_step_rows(const char *path);
/** "0.41" as a figure; of seconds "800ms" too. @return TY_EINVAL naming what was expected */
ty_status ty_step_value_parse(ty_step_unit unit, const char *text, double *out,
                              ty_error *error) TY_MUST_CHECK;
/**
 * Seconds of a plan's step by a figure.
 * @return TY_EINVAL: of tokens where samples have none; faster than the devices' peak, with how
 * much
 */
ty_status ty_step_seconds(ty_step_unit unit, double value, const ty_plan *plan,
                          const ty_cluster *cluster, double *out, ty_error *error) TY_MUST_CHECK;
/**
 * ty_fit_add_step of a row. What it does not say is taken from `otherwise`.
 * @return TY_EPARSE with the row's place in front: also for a layout that does not fit
 */
ty_status ty_fit_add_row(ty_fit *fit, const ty_question *otherwise, const ty_step_row *row,
                         ty_error *error) TY_MUST_CHECK;

/* ---- Fitting ----------------------------------------------------------------------------- */

/** Names of constants, NULL at the end: what is tried for steps, and for collectives. */
extern const char *const ty_fit_step_constants[];
extern const char *const ty_fit_collective_constants[];
/** Those that the rows of ty_fit_add_trace tell, one each. @param names [out] NULL at the end */
void ty_fit_trace_constants(const ty_fit *fit, const char *names[TY_TRACED_KIND_COUNT]);

/**
 * Fits just these constants, whatever the rows tell of them.
 * @param names as ty_stack_find has them, NULL at the end; may be empty
 * @return TY_EINVAL for a name there is not, with the nearest, and for a constant that no factor
 *         changes: one that is 0, or the device's own where the rows are of several devices
 */
ty_status ty_fit_solve(ty_fit *fit, const char *const *names, ty_error *error) TY_MUST_CHECK;
/**
 * Fits those of the constants that the rows can tell: one after the other the constant, or of two
 * that hide each other both, are taken that lower the left-out error most, as long as any do, and
 * those that are not missed are dropped again. What to try is told by straight lines through the
 * rows' times, by the left-out error and by the loss. What moves no row, or lowers nothing, is left
 * alone, which its `reason` says. Rows are left out as ty_fit_leave_out does.
 * @param watch NULL: nobody waits
 * @return TY_EINVAL with fewer than TY_FIT_LEAST_ROWS rows; TY_EINTERRUPTED
 */
ty_status ty_fit_choose(ty_fit *fit, const char *const *names, const ty_watch *watch,
                        ty_error *error) TY_MUST_CHECK;
#define TY_FIT_LEAST_ROWS 3 /* to choose by leaving rows out */
/** Predicts every row that is fitted to without its group: `left_out_s`. The constants stay. */
ty_status ty_fit_leave_out(ty_fit *fit, ty_error *error) TY_MUST_CHECK;

/* ---- What was found ---------------------------------------------------------------------- */

typedef struct ty_fit_row {
    const char *name, *group;
    bool is_judge;
    double measured_s, before_s, after_s;
    double left_out_s; /* NaN: not asked for */
} ty_fit_row;
typedef struct ty_fit_constant {
    const char *name;     /* "network_share", "h100-sxm:product_share" */
    double before, after; /* before: of the device where the stack leaves it to that */
    double told;          /* largest |d log t / d log c| of a row, at the stack as it was */
    bool is_fitted;
    bool is_at_limit;   /* it would be more, or less, than the constant may be */
    const char *reason; /* why it was left alone; "" where it was fitted */
} ty_fit_constant;
typedef struct ty_fit_score {
    uint32_t rows;
    double mean, signed_mean, median, p90;
} ty_fit_score;
/** Which of a row's predictions. */
typedef enum ty_fit_stage { TY_FIT_BEFORE, TY_FIT_AFTER, TY_FIT_LEFT_OUT } ty_fit_stage;

/** Of the fit, until it is freed or added to. */
const ty_fit_row *ty_fit_rows(const ty_fit *fit, uint32_t *count);
/** Of the last ty_fit_solve or ty_fit_choose, in the order of its names. */
const ty_fit_constant *ty_fit_constants(const ty_fit *fit, uint32_t *count);
/** The stack with what was fitted. */
const ty_stack *ty_fit_stack(const ty_fit *fit);
/** @param group NULL: of all groups */
ty_status ty_fit_score_of(const ty_fit *fit, ty_fit_stage stage, bool is_judge, const char *group,
                          ty_fit_score *out, ty_error *error) TY_MUST_CHECK;

/* ---- What is written --------------------------------------------------------------------- */

/** What a stack that was fitted says of itself. */
typedef struct ty_fit_origin {
    const char *name; /* of the stack: letters, digits, '-', '_' and '.' */
    const char *like; /* the stack that the fit's is, as ty_stack_open reads it from the file */
    const char *data; /* what it was fitted to, for people: "rows.csv", "--mfu 0.41" */
    const char *date; /* ISO 8601 */
} ty_fit_origin;
/** `trainyard.stack/1`: like that stack, with what was fitted and where from. */
void ty_fit_stack_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *writer,
                          const char *key);
/** `trainyard.fit/1` (docs/schemas/fit.json): rows, constants, errors, and that stack. */
ty_status ty_fit_to_json(const ty_fit *fit, const ty_fit_origin *origin, ty_json_writer *writer,
                         ty_error *error) TY_MUST_CHECK;
/** The same as a table for people. */
ty_status ty_fit_to_text(const ty_fit *fit, ty_text *text, ty_error *error) TY_MUST_CHECK;

#endif
