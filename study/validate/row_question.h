/**
 * @file row_question.h
 * The question of a published measurement, in command line syntax: `validate` predicts what the
 * same command prints. Internal.
 */
#ifndef TY_ROW_QUESTION_H
#define TY_ROW_QUESTION_H

#include "ty_study.h"
#include "ty_validate.h"

/* ---- Members by path, "cluster.inter_node.network" --------------------------------------- */

bool ty_find_has(const ty_json *object, const char *path);
/** `otherwise` if there is no such number. */
double ty_find_number(const ty_json *object, const char *path, double otherwise);
bool ty_find_flag(const ty_json *object, const char *path, bool otherwise);
/** "" if there is no such text. */
const char *ty_find_text(const ty_json *object, const char *path);

/* ---- Names: study/catalogue/published.json ----------------------------------------------- */

ty_status ty_names_open(ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** The first row of a list whose patterns a record matches; NULL: none. */
const ty_json *ty_names_row(const ty_json *names, const char *list, const ty_record *record);

#define TY_ROW_QUESTION_SIZE 384
/**
 * The hosts of a record as a cluster line, as many as its devices fill. Uses a catalogue host if
 * the record names one with its devices per host, else devices with one NIC each.
 * @return false with a reason if the device or the network is unknown
 */
bool ty_names_cluster(const ty_json *names, const ty_record *record,
                      char line[TY_ROW_QUESTION_SIZE], char reason[TY_SKIP_REASON_SIZE]);

/* ---- Questions --------------------------------------------------------------------------- */

/* In `assumed`: a question that is repeated with recomputation if it does not fit. */
#define TY_ASSUMED_NO_RECOMPUTE "nothing recomputed"
#define TY_STEP_TIME_AT "/prediction/step_time_s" /* in a plan's document */

/** Texts; "": omitted. */
typedef struct ty_row_question {
    char workload[TY_ROW_QUESTION_SIZE], cluster[TY_ROW_QUESTION_SIZE], stack[TY_ROW_QUESTION_SIZE];
    char precision[16], fix[TY_ROW_QUESTION_SIZE];
    uint32_t global_batch;
    char sharded_stack[32]; /* framework if states must have been sharded; "": only `stack` */
    double measured_step_s; /* step time of the global batch; 0: unknown */
    char assumed[TY_ROW_QUESTION_SIZE]; /* values that the source omits, and the assumptions for
                                           them */
} ty_row_question;

/** Appends to a text of a question. */
void ty_row_question_add(char out[TY_ROW_QUESTION_SIZE], const char *format, ...) TY_PRINTF(2, 3);

/**
 * Converts a language model's record to shape, cluster and layout texts. Omitted values get the
 * default of its software (`language_stacks` of the names).
 * @param reason [out] why there is no question; "" if there is one
 */
void ty_ask_language_model(const ty_json *names, const ty_record *record, ty_row_question *out,
                           char reason[TY_SKIP_REASON_SIZE]);

/** "NAME compute_scale=X", or only the name if X is 1. */
void ty_row_question_set_scale(ty_row_question *asked, const char *stack, double scale);

/**
 * Step time in seconds, as printed by `plan`.
 * @param record of the question
 * @param is_fitted [out] whether a constant of the framework was fitted to the record's model
 * @return TY_EINFEASIBLE if nothing fits
 */
ty_status ty_row_question_step(const ty_row_question *asked, const ty_record *record,
                               double *step_s, bool *is_fitted, ty_error *error) TY_MUST_CHECK;

/**
 * Finds the compute scale of a framework at which a step takes the measured time, to a millionth;
 * sets it in `asked->stack`.
 * @return TY_EINFEASIBLE if communication alone takes as long, or nothing fits
 */
ty_status ty_row_question_calibrate(ty_row_question *asked, const ty_record *record,
                                    const char *stack, double measured_s, double *scale,
                                    ty_error *error) TY_MUST_CHECK;

/** Verdict of a question answered with `step_s`, and its command; the caller sets the value. */
ty_status ty_row_question_answer(const ty_row_question *asked, double step_s, ty_verdict *out,
                                 ty_error *error) TY_MUST_CHECK;

/** Words after the program's name, NULL at the end, as a verdict's `command`. */
ty_status ty_verdict_command(const char *const *words, ty_verdict *out,
                             ty_error *error) TY_MUST_CHECK;

/**
 * The verdict on a record, by the first predictor that accepts it.
 * @return TY_ENOMEM and TY_EIO; other failures become skips with their message
 */
ty_status ty_predict(const ty_json *names, const ty_records *records, const ty_record *record,
                     ty_verdict *out, ty_error *error) TY_MUST_CHECK;
/** The predictors' names in the order of the calls; NULL after the last. */
const char *ty_predictor_name(uint32_t index);

#endif
