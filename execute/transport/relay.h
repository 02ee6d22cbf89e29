/**
 * @file relay.h
 * The other end of mpi_frames.h, a rank of an MPI job.
 */
#ifndef TY_EXECUTE_RELAY_H
#define TY_EXECUTE_RELAY_H

#include "mpi_frames.h"

/** Starts MPI and carries frames between `socket` and the other ranks' relays, until the end.
 *  @return a failure after which MPI was not finalized: the launcher ends the job */
ty_status ty_relay_serve(int socket, ty_error *error) TY_MUST_CHECK;

#endif
