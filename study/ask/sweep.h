/**
 * @file sweep.h
 * Runs independent tasks concurrently, each in its own process. Internal to study/.
 */
#ifndef TY_STUDY_SWEEP_H
#define TY_STUDY_SWEEP_H

#include "ty_study.h"

typedef struct ty_sweep {
    uint32_t count;    /* tasks */
    uint32_t parallel; /* most concurrent tasks; >= 1 */
    const ty_watch *watch;
    void *context;
    /* Whether to run a task; NULL: all. */
    bool (*is_wanted)(void *context, uint32_t index);
    /* In the child: appends the task's result. */
    ty_status (*work)(void *context, uint32_t index, ty_text *result, ty_error *error);
    /* In the parent, in the order in which tasks end; `result` is terminated. */
    ty_status (*take)(void *context, uint32_t index, const char *result, ty_error *error);
    /* In the parent: a task whose process died, and the reason; NULL: that is a failure. */
    ty_status (*lose)(void *context, uint32_t index, const char *how, ty_error *error);
} ty_sweep;

/**
 * Runs every wanted task. Returns the first failure, of a task or of taking its result, and ends
 * the other tasks.
 * @return TY_EINTERRUPTED if the watch stops it; TY_EBACKEND for a child that died, unless `lose`
 *         accepts it.
 */
ty_status ty_sweep_run(const ty_sweep *work, ty_error *error) TY_MUST_CHECK;

#endif
