/**
 * @file call_watch.h
 * Ends a process that is lost in a call of a library. Internal to execute/; POSIX.
 *
 * Calls that never wait (MPI_Test) use microseconds of processor time, and those that wait for
 * others who are known to be on their way little more. Where one of them has used seconds, it will
 * not come back: Open MPI 4.1 loops for ever in its timers when two connections that say to be of
 * one rank are taken within one look at its sockets, and who can connect from a rank's host can
 * make them (tests/testbed/stranger). No error can be returned then, and peers would wait for ever:
 * the process says what it has to say and exits with EXIT_FAILURE, from a thread of the watch.
 * Measured in processor time of the calling thread, so that neither a stopped process nor a
 * crowded machine is taken for a lost one.
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
 * @param patience_s processor time of one call, seconds
 * @param complaint a line for standard error, without its end; copied, up to 255 bytes
 * @return TY_ENOMEM, TY_EBACKEND (no thread)
 */
ty_status ty_call_watch_open(double patience_s, const char *complaint, ty_call_watch **out,
                             ty_error *error) TY_MUST_CHECK;
/** Begins a call of this thread. Of all threads one at a time is in a call. */
void ty_call_watch_begin(ty_call_watch *watch);
void ty_call_watch_end(ty_call_watch *watch);
/** @param watch may be NULL */
void ty_call_watch_close(ty_call_watch *watch);

#endif
