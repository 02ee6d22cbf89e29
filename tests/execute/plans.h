/* Plans for the tests of the runtime: a workload divided as asked, lowered, run in this process. */
#ifndef TY_TEST_EXECUTE_PLANS_H
#define TY_TEST_EXECUTE_PLANS_H

#include "../plan_shape.h"

#include "ty_execute.h"
#include "ty_planner.h"

/** The text of a zoo file: two recurrent layers with a residual sum, as in GNMT. */
extern const char gnmt_small[];
/** Another: a decoder whose tokens see two of four experts each, as in Mixtral. */
extern const char moe_small[];

/** In the quick form of a test (quick.h) a network of the same layers, a tenth as wide, for what
 * has one: `mlp` and the `gpt-tiny` of short sequences. Else the same again. */
const char *narrow(const char *workload);

/** A name with changes, a path, or the text of a zoo file. Aborts the test with a message on any
 * error, like all functions here. */
ty_workload *open_workload(const char *workload);
/** @param workload as in open_workload */
ty_plan *make_plan(const char *workload, const plan_shape *shape);
/** The same training on one rank. */
ty_plan *plan_alone(const ty_plan *plan, uint32_t micro_batch_size);
/** A training job for the plan, which it takes over. Paths are under `directory`, and so is the
 * data: images are written there, token workloads get synthetic text. */
ty_job *make_job(ty_plan *plan, uint32_t steps, const char *directory);
/** The same in a directory that has data. */
ty_job *make_job_on(ty_plan *plan, uint32_t steps, const char *directory);
void write_data(const char *directory);
/** A new directory in $TMPDIR, or /tmp; free the name with directory_remove, which also empties it.
 */
char *directory_make(void);
void directory_remove(char *directory);

#endif
