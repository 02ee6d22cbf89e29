/* Ranks as threads of one process. */
#ifndef TY_TEST_RANK_THREADS_H
#define TY_TEST_RANK_THREADS_H

#include "transport.h"

#include <pthread.h>

enum { RANK_THREADS_MOST = 16 };

/** As ty_transport_local. @param out [size] */
typedef ty_status (*rank_open)(uint32_t size, ty_transport **out, ty_error *error);
typedef ty_status (*rank_function)(ty_transport *transport, ty_error *error);

typedef struct rank_thread {
    pthread_t thread;
    ty_transport *transport;
    rank_function function;
    ty_status status; /* result of the function, and */
    ty_error error;   /* its message */
} rank_thread;

/**
 * Runs the function on every rank, each in a thread that then closes the rank's transport. If one
 * fails, it stops the others.
 * @param ranks [out][size] result of each rank
 * @return TY_EBACKEND if threads cannot be created
 */
ty_status rank_threads_run(ty_transport *const *transports, uint32_t size, rank_function function,
                           rank_thread *ranks, ty_error *error);

/** The same on new transports.
 * @return also the first failure, with its rank */
ty_status rank_threads_all(rank_open open, uint32_t size, rank_function function, ty_error *error);

/** A transport that wraps another one: it uses its functions and state, and a test may override
 * some. Closing it closes the other. */
typedef struct wrapped_transport {
    ty_transport transport;
    ty_transport *inner;
} wrapped_transport;

wrapped_transport transport_wrap(ty_transport *inner);

#endif
