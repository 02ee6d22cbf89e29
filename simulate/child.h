/* Runs a piece of work in a child process, because what it calls may end the process or go on for
 * ever. The parent survives whatever happens there and can say what it was. */
#ifndef TY_CHILD_H
#define TY_CHILD_H

#include "ty_status.h"

#include <stddef.h>

/**
 * The work. It sees all memory as it was before the fork; what it changes is gone afterwards,
 * except `result`, which the parent sees.
 */
typedef ty_status (*ty_child_body)(void *context, void *result, ty_error *error);

/** Exit code by which work deep in foreign code, with no way back, tells that memory ran out. */
enum { TY_CHILD_NO_MEMORY = 12 };

/**
 * Runs `body` in a forked child with its output captured.
 * @param result       [out] result_size zeroed bytes for the body to fill; untouched on failure
 * @param time_limit_s wall-clock seconds; > 0
 * @return what the body returned, with its message; TY_ELIMIT when time was up; TY_EINTERRUPTED
 * when the child was interrupted (Ctrl-C reaches it too); TY_EBACKEND when it died, with the signal
 * or exit code and what it had to say on stderr; TY_EIO or TY_ENOMEM when there was no child.
 */
ty_status ty_child_run(ty_child_body body, void *context, void *result, size_t result_size,
                       double time_limit_s, ty_error *error) TY_MUST_CHECK;

#endif
