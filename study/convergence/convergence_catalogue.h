/**
 * @file convergence_catalogue.h
 * Reads study/catalogue/convergence.json. Internal to study/convergence/.
 */
#ifndef TY_STUDY_CONVERGENCE_CATALOGUE_H
#define TY_STUDY_CONVERGENCE_CATALOGUE_H

#include "ty_convergence.h"

typedef struct ty_convergence_catalogue {
    ty_json_document *document;
    const ty_json *sources, *tasks, *compressors, *staleness; /* members of the document */
} ty_convergence_catalogue;

ty_status ty_convergence_catalogue_open(ty_convergence_catalogue *out,
                                        ty_error *error) TY_MUST_CHECK;
void ty_convergence_catalogue_close(ty_convergence_catalogue *catalogue);
/** The members low, expected and high. @param minimum bound on `low` */
ty_status ty_interval_read(const ty_json *object, double minimum, ty_interval *out,
                           ty_error *error) TY_MUST_CHECK;

/** Names of the rules in files. */
extern const char *const ty_scaling_rule_names[TY_SCALING_RULE_COUNT];

/** Citation of a source. @param out [out] free with ty_free */
ty_status ty_convergence_cite(const ty_convergence_catalogue *c, const char *key, char **out,
                              ty_error *error) TY_MUST_CHECK;

#endif
