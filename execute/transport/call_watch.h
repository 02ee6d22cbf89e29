/**
 * @file call_watch.h
 * Ends a process that hangs in a call of a library. Internal to execute/; POSIX.
 *
 * Calls that never wait (MPI_Test) use microseconds of CPU time, and those that wait for ranks
 * about to arrive little more. A call that has used seconds will not return. Open MPI 4.1 loops
 * forever in its timers if it accepts two connections that claim one rank in the same poll of its
 * sockets. Any process that can connect from a rank's host can cause this (tests/testbed/stranger).
 * No error can be returned then, and peers would wait forever. So a thread of the watch prints the
 * message and exits the process with EXIT_FAILURE. It measures CPU time of the calling thread, so
 * that a stopped process or a busy host does not count as hanging.
 *
 *     ty_call_watch_open(15, "rank 3: MPI does not come back", &watch, error);
 *     ty_call_watch_begin(watch);
 *     MPI_Test(...);
 *     ty_call_watch_end(watch);
 *     ty_call_watch_close(watch);
 */
#ifndef TY_CALL_WATCH_H
#define TY_CALL_WATCH_H

#include "ty_base.h"

typedef struct ty_call_watch ty_call_watch;

/**
 * @param patience_s CPU time of one call, seconds
 * @param complaint a line for standard error, without its end; copied, up to 255 bytes
 * @return TY_ENOMEM, TY_EBACKEND (no thread)
 */
ty_status ty_call_watch_open(double patience_s, const char *complaint, ty_call_watch **out,
                             ty_error *error) TY_MUST_CHECK;
/** Begins a call of this thread. Only one thread at a time is in a call. */
void ty_call_watch_begin(ty_call_watch *watch);
void ty_call_watch_end(ty_call_watch *watch);
/** @param watch may be NULL */
void ty_call_watch_close(ty_call_watch *watch);

#endif
