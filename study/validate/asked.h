/**
 * @file asked.h
 * The question that a published measurement answers, in the words of the command line: what
 * `validate` predicts is what a user gets who types them. Internal.
 */
#ifndef TY_ASKED_H
#define TY_ASKED_H

#include "ty_study.h"
#include "ty_validate.h"

/* ---- Members by path, "cluster.inter_node.network" --------------------------------------- */

bool ty_find_has(const ty_json *object, const char *path);
/** `otherwise` where there is no such number. */
double ty_find_number(const ty_json *object, const char *path, double otherwise);
bool ty_find_flag(const ty_json *object, const char *path, bool otherwise);
/** "" where there is no such text. */
const char *ty_find_text(const ty_json *object, const char *path);

/* ---- Names: study/catalogue/published.json ----------------------------------------------- */

ty_status ty_names_open(ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** The first row of a list whose patterns a record matches; NULL: none. */
const ty_json *ty_names_row(const ty_json *names, const char *list, const ty_record *record);

#define TY_ASKED_SIZE 384
/**
 * The hosts that a record ran on, as a one-line description: as many as its devices fill, hosts of
 * the catalogue where the record names one that has the record's devices per host, else devices
 * with one adapter each.
 * @return false with a reason where the device or the network is not known
 */
bool ty_names_cluster(const ty_json *names, const ty_record *record, char line[TY_ASKED_SIZE],
                      char reason[TY_SKIP_REASON_SIZE]);

/* ---- Questions --------------------------------------------------------------------------- */

/* Of `assumed`: what is asked again, recomputing, where it does not fit. */
#define TY_ASSUMED_NO_RECOMPUTE "nothing recomputed"
#define TY_STEP_TIME_AT "/prediction/step_time_s" /* of a plan's document */

/** Words; "" where they are left out. */
typedef struct ty_asked {
    char workload[TY_ASKED_SIZE], cluster[TY_ASKED_SIZE], stack[TY_ASKED_SIZE];
    char precision[16], fix[TY_ASKED_SIZE];
    uint32_t global_batch;
    char sharded_stack[32]; /* asked of where states must have been sharded; "": of `stack` alone */
    double measured_step_s; /* of a step of the global batch; 0: not told */
    char assumed[TY_ASKED_SIZE]; /* what the source leaves out, and what was taken for it */
} ty_asked;

/** Adds to a text of a question. */
void ty_asked_add(char out[TY_ASKED_SIZE], const char *format, ...) TY_PRINTF(2, 3);

/**
 * A language model's record, by reading alone: shape, cluster and layout as words. What the source
 * leaves out is filled with the usual choice of its software (`language_stacks` of the names).
 * @param reason [out] why there is no question; "" where there is one
 */
void ty_ask_language_model(const ty_json *names, const ty_record *record, ty_asked *out,
                           char reason[TY_SKIP_REASON_SIZE]);

/** "NAME compute_scale=X", or the name alone where X is 1. */
void ty_asked_set_scale(ty_asked *asked, const char *stack, double scale);

/**
 * Seconds of a step, as `plan` answers.
 * @param record whose question it is
 * @param is_fitted [out] whether a constant of the stack was fitted to the record's model
 * @return TY_EINFEASIBLE where nothing fits
 */
ty_status ty_asked_step(const ty_asked *asked, const ty_record *record, double *step_s,
                        bool *is_fitted, ty_error *error) TY_MUST_CHECK;

/**
 * The scale of a stack's computing at which a step takes as long as was measured, to a millionth.
 * `asked->stack` is left with it.
 * @return TY_EINFEASIBLE where communication alone takes as long, or nothing fits
 */
ty_status ty_asked_calibrate(ty_asked *asked, const ty_record *record, const char *stack,
                             double measured_s, double *scale, ty_error *error) TY_MUST_CHECK;

/** The verdict that a question was answered with `step_s`, and its command; the value is the
 * caller's. */
ty_status ty_asked_answer(const ty_asked *asked, double step_s, ty_verdict *out,
                          ty_error *error) TY_MUST_CHECK;

/** Words after the program's name, NULL at the end, as a verdict's `command`. */
ty_status ty_verdict_command(const char *const *words, ty_verdict *out,
                             ty_error *error) TY_MUST_CHECK;

/**
 * The verdict on a record, by the first predictor that takes it.
 * @return TY_ENOMEM and TY_EIO; what else fails is a skip with its message
 */
ty_status ty_predict(const ty_json *names, const ty_records *records, const ty_record *record,
                     ty_verdict *out, ty_error *error) TY_MUST_CHECK;
/** The predictors' names in the order they are asked; NULL after the last. */
const char *ty_predictor_name(uint32_t index);

#endif
