/* Requirements on every transport. All of its ranks run them together; the same for threads and
 * MPI. */
#ifndef TY_TEST_COLLECTIVE_CASES_H
#define TY_TEST_COLLECTIVE_CASES_H

#include "transport.h"

/** @return TY_OK, or TY_EBACKEND with the case, the result and the expectation. */
ty_status collective_cases_run(ty_transport *transport, ty_error *error);
ty_status message_cases_run(ty_transport *transport, ty_error *error);

#endif
