/**
 * @file server.h
 * A process that sums gradients and trains nothing (ty_plan_servers). It takes part in every
 * exchange of every step, bucket by bucket in the order of the program, with no program of its own:
 * it receives its parts from all replicas, adds them up in the order of the replicas' ranks, and
 * sends them all the sum when that is whole. Internal to execute/.
 *
 * Rank 0 says which steps come next and when there are no more (ty_servers_tell).
 */
#ifndef TY_EXECUTE_SERVER_H
#define TY_EXECUTE_SERVER_H

#include "transport.h"

/** Serves until told that it is over. */
ty_status ty_serve(const ty_plan *plan, const ty_program *program, ty_transport *transport,
                   ty_error *error) TY_MUST_CHECK;
/** By rank 0: steps [first, end) come next; none, first == end: it is over, also in the midst of
 * the steps told before, none of which is under way. */
ty_status ty_servers_tell(const ty_plan *plan, ty_transport *transport, uint32_t first,
                          uint32_t end, ty_error *error) TY_MUST_CHECK;

#endif
