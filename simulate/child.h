/* Runs a function in a child process, because its callees may end the process or never return. The
 * parent survives and reports the reason. */
#ifndef TY_CHILD_H
#define TY_CHILD_H

#include "ty_base.h"

#include <stddef.h>

/**
 * The function. It sees memory as of the fork. The parent sees only `*result` afterwards.
 */
typedef ty_status (*ty_child_body)(void *context, void *result, ty_error *error);

/** Exit code for out of memory, for code inside libraries that cannot return an error. */
enum { TY_CHILD_NO_MEMORY = 12 };

/** A running child. */
typedef struct ty_child ty_child;

/**
 * Starts `body` in a forked child with its output captured. Several may run at once. A child has
 * only the forking thread, so no other thread may hold a lock that `body` needs.
 * @param result_size  bytes of the body's result, zeroed before it starts
 * @param time_limit_s wall-clock seconds from now; > 0, may be INFINITY
 * @param out          [out] for ty_child_wait and ty_child_free; NULL on failure
 * @return TY_EIO or TY_ENOMEM if there is no child
 */
ty_status ty_child_start(ty_child_body body, void *context, size_t result_size, double time_limit_s,
                         ty_child **out, ty_error *error) TY_MUST_CHECK;

/**
 * Waits for the child's end, once.
 * @param result [out] `result_size` bytes of ty_child_start; unchanged on failure
 * @return the body's status, with its message; TY_ELIMIT at the time limit; TY_EINTERRUPTED if the
 * child was interrupted (Ctrl-C reaches it too). TY_EBACKEND if it died, with the signal or exit
 * code and its stderr
 */
ty_status ty_child_wait(ty_child *child, void *result, ty_error *error) TY_MUST_CHECK;

/** Ends the child and its own children if they still run. NULL is allowed. */
void ty_child_free(ty_child *child);

/** ty_child_start and ty_child_wait in one. */
ty_status ty_child_run(ty_child_body body, void *context, void *result, size_t result_size,
                       double time_limit_s, ty_error *error) TY_MUST_CHECK;

#endif
