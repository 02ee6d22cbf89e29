/**
 * @file mpi_frames.h
 * Messages between the ranks of an MPI job for a process that knows nothing of MPI: it starts a
 * worker as its relay (`trainyard-worker --relay`), a stream socket as the worker's standard input,
 * and both write frames to each other.
 *
 * Of a frame that a relay reads, `peer` is the rank to send to; of one that it writes, the rank
 * that it came from. Its first one has its own rank and, as the bytes, the number of ranks
 * (uint32_t). The frame to TY_RELAY_END, which every rank has to write when all is said, ends it,
 * and the job well; a stream that ends without is a failure, which ends the job.
 */
#ifndef MPI_FRAMES_H
#define MPI_FRAMES_H

#include "ty_base.h"

#include <stdint.h>

#define TY_RELAY_END UINT32_MAX /* as a peer */
#define TY_RELAY_MOST_BYTES (1u << 30)

typedef struct ty_relay_frame {
    uint32_t peer, length;
    char *bytes; /* [length], and a NUL behind them; owned by whoever read it */
} ty_relay_frame;

/** Both wait until the whole frame is through.
 *  @return TY_EIO where the stream has ended or fails; TY_EPARSE for a length beyond all sense */
ty_status ty_relay_read(int socket, ty_relay_frame *out, ty_error *error) TY_MUST_CHECK;
ty_status ty_relay_write(int socket, uint32_t peer, const void *bytes, uint32_t length,
                         ty_error *error) TY_MUST_CHECK;

#endif
