/**
 * @file sweep.h
 * Independent pieces of work side by side, each in a process of its own. Internal to study/.
 */
#ifndef TY_STUDY_SWEEP_H
#define TY_STUDY_SWEEP_H

#include "ty_study.h"

typedef struct ty_sweep {
    uint32_t count;    /* pieces */
    uint32_t parallel; /* at most so many at once; >= 1 */
    const ty_watch *watch;
    void *context;
    /* Whether a piece is to be done; NULL: all. */
    bool (*is_wanted)(void *context, uint32_t index);
    /* In the child: appends the piece's result. */
    ty_status (*work)(void *context, uint32_t index, ty_text *result, ty_error *error);
    /* In the parent, in the order in which pieces end; `result` is terminated. */
    ty_status (*take)(void *context, uint32_t index, const char *result, ty_error *error);
    /* In the parent: a piece whose process died, and how; NULL: that is a failure. */
    ty_status (*lose)(void *context, uint32_t index, const char *how, ty_error *error);
} ty_sweep;

/**
 * Does every wanted piece. The first failure, of a piece or of taking its result, ends the others
 * and is returned; of several that were under way, whichever came first.
 * @return TY_EINTERRUPTED once the watch says so; TY_EBACKEND for a child that died, if nothing
 * takes its loss.
 */
ty_status ty_sweep_run(const ty_sweep *work, ty_error *error) TY_MUST_CHECK;

#endif
