/* Slow, obvious versions of the estimator. Both return [step][stage replica][instruction] arrays,
 * to be freed with ty_free. They abort if memory runs out or the program never ends. */
#ifndef TY_TEST_ORACLES_H
#define TY_TEST_ORACLES_H

#include "ty_planner.h"

/** Delays times until none changes. Cores are not shared. */
void relax(const ty_plan *plan, const ty_program *program, const ty_costs *costs, uint32_t steps,
           double **starts, double **ends);

/** Event by event: everything that can start starts, all rates are recomputed, and the first
 * instruction to end ends. */
void walk_slowly(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                 uint32_t steps, double **starts, double **ends);

#endif
