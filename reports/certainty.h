/* Internal to reports/: what published measurements say of a plan's figures. */
#ifndef TY_CERTAINTY_H
#define TY_CERTAINTY_H

#include "ty_plan.h"

/**
 * How far off the plan's stack was on the cluster's first device; NULL where nothing says so.
 * Stacks are judged by steps of language models: of a network of no tokens they say nothing.
 * @param cluster NULL: not at hand
 */
const ty_stack_judged *ty_plan_judged(const ty_plan *plan, const ty_cluster *cluster);

#endif
