/**
 * @file ty_validate.h
 * Predictions scored on measurements that others published.
 *
 *     ty_validation *v = NULL;
 *     TY_CHECK(ty_validation_run("measurements/", &v, error), status, cleanup);
 *     ty_validation_to_json(v, &writer);
 *
 * A file of measurements is one JSON object
 *     {"schema": 1, "family": "horovod", "count": 4, "records": [...]}
 * and a record an object with `id`, `kind`, `source`, `confidence` (read, recalled), `measured`
 * (`metric`, `value`, `unit`) and, as far as the source says, `model`, `batch`, `cluster`,
 * `parallel`, `collective`, `also_measured` and context. docs/results/README.md lists which members
 * are read; others are ignored.
 *
 * The first predictor that accepts a record predicts it, or skips it with a reason. Three numbers
 * score a source (docs/results/README.md): error, pair order, regret. Rows that a constant was
 * fitted to are scored apart.
 */
#ifndef TY_VALIDATE_H
#define TY_VALIDATE_H

#include "ty_core.h"

/* ---- Records ----------------------------------------------------------------------------- */

/** One published measurement. Texts are borrowed from the file, "" where not stated; numbers are 0
 * where not stated. */
typedef struct ty_record {
    const char *id, *kind;
    bool is_recalled;
    const char *source_table;
    const char *model, *model_family, *dtype;
    const char *gpu, *node, *network; /* network between nodes */
    const char *update, *schedule, *configuration, *recompute;
    const char *framework, *software, *input_data;
    const char *operation, *algorithm; /* of a collective */
    double global_batch, batch_per_gpu, micro_batches;
    double gpus, gpus_per_node, node_gigabytes_per_s; /* the last of the network */
    double dp, tp, pp, cp, ep;
    double runs;
    double collective_bytes;
    const char *metric, *unit;
    double value;
    const ty_json *json; /* the record itself, for what is not above */
} ty_record;

typedef struct ty_records {
    char *family; /* of the file: the name of the source */
    uint32_t count;
    ty_record *items;
    ty_json_document *document;
} ty_records;

/**
 * Reads a file of measurements.
 * @return TY_EPARSE with file and pointer: another schema, a count that is not the number of
 *         records, a record without what all must have, an id that comes twice, a figure that is
 *         no number where one is expected
 */
ty_status ty_records_load(const char *path, ty_records **out, ty_error *error) TY_MUST_CHECK;
/** From memory. @param name file name for messages */
ty_status ty_records_parse(const char *text, size_t length, const char *name, ty_records **out,
                           ty_error *error) TY_MUST_CHECK;
void ty_records_free(ty_records *records);

/** A further metric of the same run; 0 if there is none of that name. */
double ty_record_also_measured(const ty_record *record, const char *metric);
/** Whether more of the metric is better; false for times, sizes and samples to target. */
bool ty_record_more_is_better(const ty_record *record);

/* ---- Predictions ------------------------------------------------------------------------- */

#define TY_SKIP_REASON_SIZE 160

typedef struct ty_verdict {
    const char *predictor; /* static */
    bool is_predicted;     /* else skipped for `reason` */
    bool is_fitted;        /* a constant of the prediction was fitted to this row */
    double value;          /* in the record's unit */
    char reason[TY_SKIP_REASON_SIZE];
    /* If the prediction answers a question: the command with the same answer, as a JSON array of
     * words after the program's name; the answer; and its place in the command's JSON. Else NULL, 0
     * and NULL. */
    char *command;
    double answer;
    const char *answer_at; /* JSON pointer, static */
    char assumed[256];     /* where the source is silent; "" nothing */
} ty_verdict;

/* ---- Scores ------------------------------------------------------------------------------ */

typedef struct ty_validation_score {
    uint32_t rows;                              /* that were scored */
    double mean_error, median_error, p90_error; /* of |predicted/measured - 1|; NaN: no row */
    uint32_t pairs, choices;                    /* that order and regret are over */
    double pair_order, mean_regret;             /* NaN: no pair, no choice */
} ty_validation_score;

/** A prediction and its measurement. */
typedef struct ty_scored_row {
    double measured, predicted; /* > 0 */
    bool more_is_better;
    uint32_t group; /* rows of one model on one cluster */
} ty_scored_row;

/**
 * Error, pair order and regret of rows. The median and the 90th percentile are the smallest error
 * that at least that share of rows does not exceed. Pairs are of one group, their measurements
 * different; a tie of predictions is half right. The regret of a group of two and more is by how
 * much the row that the predictions would choose is worse than the best measured one, as a share of
 * the best.
 */
ty_status ty_validation_score_rows(const ty_scored_row *rows, uint32_t count,
                                   ty_validation_score *out, ty_error *error) TY_MUST_CHECK;

typedef struct ty_skip_count {
    char reason[TY_SKIP_REASON_SIZE];
    uint32_t rows;
} ty_skip_count;

typedef struct ty_predictor_score {
    const char *predictor; /* static */
    ty_validation_score score;
} ty_predictor_score;

typedef struct ty_validated_source {
    char *source;
    uint32_t rows, fitted_rows, skipped_rows, recalled_rows;
    ty_validation_score score;  /* of rows neither fitted nor skipped */
    ty_validation_score fitted; /* of the fitted ones */
    uint32_t predictor_count;
    ty_predictor_score *predictors; /* unfitted rows by predictor, in the order they are asked */
    uint32_t skip_count;
    ty_skip_count *skips; /* most frequent first */
    ty_verdict *verdicts; /* [rows] in the file's order */
    ty_records *records;
} ty_validated_source;

typedef struct ty_validation {
    uint32_t source_count;
    ty_validated_source *sources; /* by name */
} ty_validation;

/**
 * Scores a file, or every *.json of a directory.
 * @return as ty_records_load; TY_EIO for a directory without such files
 */
ty_status ty_validation_run(const char *path, ty_validation **out, ty_error *error) TY_MUST_CHECK;
void ty_validation_free(ty_validation *validation);

/** `trainyard.validation/1`. */
void ty_validation_to_json(const ty_validation *validation, ty_json_writer *writer);
/** Appends a readable table. */
void ty_validation_print(const ty_validation *validation, ty_text *text);

#endif
