/* Runs a piece of work in a child process, because what it calls may end the process or go on for
 * ever. The parent survives whatever happens there and can say what it was. */
#ifndef TY_CHILD_H
#define TY_CHILD_H

#include "ty_base.h"

#include <stddef.h>

/**
 * The work. It sees all memory as it was before the fork; what it changes is gone afterwards,
 * except `result`, which the parent sees.
 */
typedef ty_status (*ty_child_body)(void *context, void *result, ty_error *error);

/** Exit code by which work deep in foreign code, with no way back, tells that memory ran out. */
enum { TY_CHILD_NO_MEMORY = 12 };

/** A child at work. */
typedef struct ty_child ty_child;

/**
 * Starts `body` in a forked child with its output captured. Several may run at once; as a child has
 * only the forking thread, start them where no other thread may hold a lock that `body` needs.
 * @param result_size  bytes of the body's result, zeroed before it starts
 * @param time_limit_s wall-clock seconds from now; > 0, may be INFINITY
 * @param out          [out] for ty_child_wait and ty_child_free; NULL on failure
 * @return TY_EIO or TY_ENOMEM when there is no child
 */
ty_status ty_child_start(ty_child_body body, void *context, size_t result_size, double time_limit_s,
                         ty_child **out, ty_error *error) TY_MUST_CHECK;

/**
 * Waits for the child's end, once.
 * @param result [out] as many bytes as ty_child_start was told; untouched on failure
 * @return what the body returned, with its message; TY_ELIMIT when time was up; TY_EINTERRUPTED
 * when the child was interrupted (Ctrl-C reaches it too); TY_EBACKEND when it died, with the signal
 * or exit code and what it had to say on stderr
 */
ty_status ty_child_wait(ty_child *child, void *result, ty_error *error) TY_MUST_CHECK;

/** Ends the child if it has not ended, with the children that it has itself. NULL is allowed. */
void ty_child_free(ty_child *child);

/** ty_child_start and ty_child_wait in one. */
ty_status ty_child_run(ty_child_body body, void *context, void *result, size_t result_size,
                       double time_limit_s, ty_error *error) TY_MUST_CHECK;

#endif
