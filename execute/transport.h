/**
 * @file transport.h
 * A communication backend: what moves bytes between ranks. One struct of functions and one file per backend
 * ("mpi" between processes, "local" between threads of one process). Internal to execute/.
 *
 * A transport is used by one thread of its rank, the communication thread, except for open, close and barrier.
 * Messages between two ranks with equal tags arrive in order. Waiting sleeps rather than spins: ranks may share cores with others.
 */
#ifndef TY_EXECUTE_TRANSPORT_H
#define TY_EXECUTE_TRANSPORT_H

#include "ty_core.h"

typedef struct ty_transport ty_transport;
typedef struct ty_request ty_request; /* a message on its way; freed by the test that finds it done */

struct ty_transport {
    uint32_t rank, size;
    void *state;
    /** Starts a message; the buffer stays untouched until it is done. */
    ty_status (*send)(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                      uint64_t bytes, ty_request **out, ty_error *error);
    ty_status (*receive)(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                         uint64_t bytes, ty_request **out, ty_error *error);
    /** Never blocks. */
    ty_status (*test)(ty_transport *transport, ty_request *request, bool *is_done, ty_error *error);
    ty_status (*barrier)(ty_transport *transport, ty_error *error);
    /** Ends all ranks at once because this one failed. */
    void (*abort)(ty_transport *transport);
    void (*close)(ty_transport *transport);
};

/** MPI_COMM_WORLD with MPI_THREAD_MULTIPLE or FUNNELED through the communication thread. */
ty_status ty_transport_mpi(ty_transport **out, ty_error *error) TY_MUST_CHECK;
/** `size` transports that reach each other, for as many threads. @param out [size] */
ty_status ty_transport_local(uint32_t size, ty_transport **out, ty_error *error) TY_MUST_CHECK;

typedef enum ty_element { TY_ELEMENT_FLOAT, TY_ELEMENT_HALF, TY_ELEMENT_BYTE } ty_element;

/**
 * One collective as a state machine over point-to-point messages, so that the communication thread
 * can advance several things at once: ring and binomial-tree all-reduce (sum), ring all-gather. The
 * algorithm is exactly the one the plan names and the cost model prices.
 * @param members ranks, ascending, this one included; @param data in place: [count] for all-reduce,
 *        [members][count] for all-gather with this member's part filled in
 * @param tag     equal on all members and unused by other messages in flight
 */
typedef struct ty_collective ty_collective;
ty_status ty_collective_start(ty_transport *transport, ty_collective_kind kind,
                              ty_algorithm algorithm, const uint32_t *members, uint32_t member_count, void *data,
                              uint64_t count, ty_element element, uint32_t tag,
                              ty_collective **out, ty_error *error) TY_MUST_CHECK;
/** Advances as far as messages allow; frees the collective when `is_done`. */
ty_status ty_collective_test(ty_collective *collective, bool *is_done,
                             ty_error *error) TY_MUST_CHECK;
void ty_collective_cancel(ty_collective *collective);

#endif
