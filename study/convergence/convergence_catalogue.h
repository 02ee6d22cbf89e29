/**
 * @file convergence_catalogue.h
 * study/catalogue/convergence.json, opened. Internal to study/convergence/.
 */
#ifndef TY_STUDY_CONVERGENCE_CATALOGUE_H
#define TY_STUDY_CONVERGENCE_CATALOGUE_H

#include "ty_convergence.h"

typedef struct ty_convergence_catalogue {
    ty_json_document *document;
    const ty_json *sources, *tasks, *compressors, *staleness; /* parts of the document */
} ty_convergence_catalogue;

ty_status ty_convergence_catalogue_open(ty_convergence_catalogue *out,
                                        ty_error *error) TY_MUST_CHECK;
void ty_convergence_catalogue_close(ty_convergence_catalogue *catalogue);
/** The members low, expected and high. @param minimum of the lowest */
ty_status ty_interval_read(const ty_json *object, double minimum, ty_interval *out,
                           ty_error *error) TY_MUST_CHECK;

/** What the rules are called in files. */
extern const char *const ty_scaling_rule_names[TY_SCALING_RULE_COUNT];

/** The text of a source. @param out [out] free with ty_free */
ty_status ty_convergence_cite(const ty_convergence_catalogue *c, const char *key, char **out,
                              ty_error *error) TY_MUST_CHECK;

#endif
