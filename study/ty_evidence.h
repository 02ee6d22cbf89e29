/**
 * @file ty_evidence.h
 * How sure a predicted step time is: a prediction interval from the errors on published runs, and
 * the published runs nearest to a plan.
 *
 *     TY_CHECK(ty_plan_judge(plan, step_s, error), status, cleanup);
 *     if (plan->interval.coverage > 0)
 *         printf("%g to %g s\n", plan->interval.low_s, plan->interval.high_s);
 *
 * The evidence is study/evidence/rows.json: measured step times, and the planner's answers to the
 * questions that a reader of the source would ask (docs/results/evidence.py writes both). The
 * residual of a row is log(measured / predicted). Rows that a constant was fitted to have no say in
 * intervals.
 *
 * Groups of rows, from coarse to fine, estimate a shift (their median) and a width (the 80th
 * percentile of the distance from the shift, in the logarithm); each group corrects the one before
 * by n / (n + k), and a group without rows changes nothing. The shift depends on the kind of model,
 * the framework, its release and the precision alone, so an interval never changes the order of
 * devices, sizes and layouts. The width also depends on the number of hosts and on the distance to
 * the nearest row; on a generation of devices without rows it is that of the kind. A factor, found
 * with whole sources left out, makes the interval hold for 80 % of the rows (split conformal
 * prediction: Lei et al., JASA 113, 2018, with leave-one-group-out residuals).
 */
#ifndef TY_EVIDENCE_H
#define TY_EVIDENCE_H

#include "ty_core.h"

#define TY_EVIDENCE_NONE UINT32_MAX

/** A measured run, or a question without measurement. Texts are indices of `words`;
 * TY_EVIDENCE_NONE: a word of no row. */
typedef struct ty_measured_run {
    uint32_t source, citation, model;
    uint32_t kind; /* dense, mixture, encoder (no causal mask), image, other */
    uint32_t devices;
    uint32_t device, generation; /* of the first device */
    uint32_t hosts;
    uint32_t framework, release; /* "megatron", "megatron-2021" */
    uint32_t precision;
    double parameters;
    uint32_t sequence; /* tokens; 0: samples are no sequences */
    uint32_t global_batch;
    uint32_t is_assumed; /* the source omits recomputation or sharding */
    uint32_t is_fitted;  /* a constant of the planner was fitted to it */
    double step_s, predicted_s;
    double residual; /* log(step_s / predicted_s) */
    double at[3];    /* logarithms to base 2 of devices, parameters and sequence */
} ty_measured_run;

typedef struct ty_evidence {
    ty_json_document *document; /* owns the words */
    uint32_t word_count;
    const char **words;
    uint32_t row_count;
    ty_measured_run *rows; /* by residual */
    /* Half the interval over the width: of a source without rows here, and of one with rows. */
    double new_source_factor, known_source_factor;
} ty_evidence;

/** Reads `trainyard.evidence/1`. @param path NULL: the catalogue's rows.json */
ty_status ty_evidence_load(const char *path, ty_evidence **out, ty_error *error) TY_MUST_CHECK;
void ty_evidence_free(ty_evidence *evidence);
/** Whether a file is a `trainyard.evidence/1`. */
bool ty_is_evidence(const char *path);

/** The question of a plan. */
void ty_evidence_question(const ty_evidence *evidence, const ty_plan *plan, ty_measured_run *out);

/**
 * The interval of a predicted step time.
 * @param question its source is TY_EVIDENCE_NONE, or that of rows measured on the same system
 */
ty_step_interval ty_evidence_interval(const ty_evidence *evidence, const ty_measured_run *question,
                                      double step_s);

/**
 * Fills in the interval and the nearest runs of a plan whose step takes `step_s`. A plan with times
 * measured on the user's own devices gets neither: published errors are not theirs
 * (docs/results/own-runs.md has those).
 */
ty_status ty_plan_judge(ty_plan *plan, double step_s, ty_error *error) TY_MUST_CHECK;

/* ---- Judging the evidence itself ---------------------------------------------------------- */

/** Rows that do not count when the interval of a row is judged. */
typedef enum ty_left_out {
    TY_LEFT_OUT_ROW,    /* the source has other rows */
    TY_LEFT_OUT_SOURCE, /* all rows of its source */
    TY_LEFT_OUT_DEVICE, /* all rows on its device, and its source is unknown */
    TY_LEFT_OUT_COUNT
} ty_left_out;
/** "row", "source", "device". */
const char *ty_left_out_name(ty_left_out left_out);

typedef struct ty_coverage {
    uint32_t rows;
    double coverage;                 /* share of rows in their interval */
    double median_half_width;        /* (high - low) / 2 over the expected time */
    double mean_error, median_error; /* of the expected time, as for ty_validation_score */
} ty_coverage;

/**
 * Coverage of rows that nothing was fitted to, each judged without what is left out. O(rows^2).
 * @param kind a word, or TY_EVIDENCE_NONE for all kinds
 */
ty_status ty_evidence_coverage(const ty_evidence *evidence, ty_left_out left_out, uint32_t kind,
                               ty_coverage *out, ty_error *error) TY_MUST_CHECK;

/** The factor at which intervals hold for 80 % of the rows, each source counted by the square root
 * of its rows; TY_LEFT_OUT_ROW or TY_LEFT_OUT_SOURCE. */
ty_status ty_evidence_factor(const ty_evidence *evidence, ty_left_out left_out, double *out,
                             ty_error *error) TY_MUST_CHECK;

/** `trainyard.coverage/1`: factors, and coverage by what is left out and by kind. */
ty_status ty_evidence_to_json(const ty_evidence *evidence, ty_json_writer *writer,
                              ty_error *error) TY_MUST_CHECK;
/** Appends the same as a table. */
ty_status ty_evidence_print(const ty_evidence *evidence, ty_text *text,
                            ty_error *error) TY_MUST_CHECK;

#endif
