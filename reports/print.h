/* Internal to reports/: parts of texts for a terminal. */
#ifndef TY_REPORTS_PRINT_H
#define TY_REPORTS_PRINT_H

#include "ty_plan.h"

#define LABEL_COLUMNS 12 /* "Throughput  " */

/**
 * How far off the plan's stack was on the cluster's first device; NULL where nothing says so.
 * Stacks are judged by steps of language models: of a network of no tokens they say nothing.
 * @param cluster NULL: not at hand
 */
const ty_stack_judged *ty_plan_judged(const ty_plan *plan, const ty_cluster *cluster);
/** "Label       value", with values below each other. */
void ty_print_fact(ty_text *text, const char *label, const char *format, ...) TY_PRINTF(3, 4);
/** Servers, input, gradients, rows and deployment, as far as they are out of the ordinary. */
void ty_print_details(const ty_plan *plan, const ty_cluster *cluster, ty_text *text);
void ty_print_stages(const ty_plan *plan, ty_text *text);
void ty_print_variants(const ty_plan *plan, ty_text *text);

#endif
