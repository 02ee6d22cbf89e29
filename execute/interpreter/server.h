/**
 * @file server.h
 * A parameter server: a process that sums gradients and trains nothing (ty_plan_servers). It has no
 * program of its own. It takes part in every gradient reduction of every step, bucket by bucket in
 * the order of the program. It receives its shards from all replicas, adds them up in the order of
 * ranks, and sends the complete sum to all of them. Internal to execute/.
 *
 * Rank 0 tells servers which steps come next and when there are no more (ty_servers_notify).
 */
#ifndef TY_EXECUTE_SERVER_H
#define TY_EXECUTE_SERVER_H

#include "transport.h"

/** Serves until rank 0 ends it. */
ty_status ty_serve(const ty_plan *plan, const ty_program *program, ty_transport *transport,
                   ty_error *error) TY_MUST_CHECK;
/** By rank 0: announces steps [first, end) next. first == end ends the servers, even before all
 * steps announced earlier, none of which is in progress. */
ty_status ty_servers_notify(const ty_plan *plan, ty_transport *transport, uint32_t first,
                            uint32_t end, ty_error *error) TY_MUST_CHECK;

#endif
