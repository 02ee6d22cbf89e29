/* The outcome of running a plan, and a comparison of two outcomes. */
#ifndef TY_TEST_EXECUTE_OUTCOME_H
#define TY_TEST_EXECUTE_OUTCOME_H

#include "ty_execute.h"

#include <stddef.h>

typedef struct outcome {
    char *gradients; /* see ty_interpreter_save_gradients; NULL: the job did not request them */
    size_t gradient_length;
    ty_run *run;
} outcome;

/** Runs the job with its ranks as threads of this process. The test fails if the run does not
 * succeed. */
outcome outcome_of(const ty_job *job);
void outcome_free(outcome *o);
/** Fails the test if a layer's gradients, or a step's losses, differ by more. */
void compare_gradients(const char *what, const outcome *found, const outcome *expected,
                       double tolerance);
void compare_losses(const char *what, const outcome *found, const outcome *expected,
                    double tolerance);
/** Runs a job that can be emulated (emulation.h); fails the test if a step's loss differs by
 * more. */
void compare_emulated(const char *what, const ty_job *job, double tolerance);

#endif
