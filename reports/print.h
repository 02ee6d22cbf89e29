/* Internal to reports/: parts of texts for a terminal. */
#ifndef TY_REPORTS_PRINT_H
#define TY_REPORTS_PRINT_H

#include "ty_plan.h"

#define LABEL_COLUMNS 12 /* "Throughput  " */

/**
 * Error of the plan's stack on the cluster's first device; NULL if unknown. It comes from steps of
 * language models, so it does not apply to models without tokens.
 * @param cluster may be NULL
 */
const ty_stack_judged *ty_plan_judged(const ty_plan *plan, const ty_cluster *cluster);
/** Prints "Label       value", with aligned values. */
void ty_print_fact(ty_text *text, const char *label, const char *format, ...) TY_PRINTF(3, 4);
/** Prints servers, input, gradients, rows and deployment if they are not the default. */
void ty_print_details(const ty_plan *plan, const ty_cluster *cluster, ty_text *text);
void ty_print_stages(const ty_plan *plan, ty_text *text);
void ty_print_variants(const ty_plan *plan, ty_text *text);

#endif
