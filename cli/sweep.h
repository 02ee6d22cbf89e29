/**
 * @file sweep.h
 * Independent pieces of work side by side, each in a process of its own. Internal to cli/.
 */
#ifndef TY_CLI_SWEEP_H
#define TY_CLI_SWEEP_H

#include "cli.h"

typedef struct sweep {
    uint32_t count;    /* pieces */
    uint32_t parallel; /* at most so many at once; >= 1 */
    void *context;
    /* Whether a piece is to be done; NULL: all. */
    bool (*is_wanted)(void *context, uint32_t index);
    /* In the child: appends the piece's result. */
    ty_status (*work)(void *context, uint32_t index, ty_text *result, ty_error *error);
    /* In the parent, in the order in which pieces end; `result` is terminated. */
    ty_status (*take)(void *context, uint32_t index, const char *result, ty_error *error);
} sweep;

/**
 * Does every wanted piece. The first failure, of a piece or of taking its result, ends the others
 * and is returned; of several that were under way, whichever came first.
 * @return TY_EINTERRUPTED once interrupted() is true; TY_EBACKEND for a child that died.
 */
ty_status sweep_run(const sweep *work, ty_error *error) TY_MUST_CHECK;

#endif
