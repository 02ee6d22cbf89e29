/**
 * @file socket_bell.h
 * Sleep until messages between hosts can advance, for a library that can only be polled (MPI over
 * TCP): its open sockets in this process wake the sleeping thread. Internal to execute/.
 *
 * The bell finds the library's sockets among the open files (/proc/self/fd) and watches them, but
 * never reads them. Not every library has sockets (RDMA, shared memory), so the bell learns how
 * reliable they are. ty_socket_bell_told_ns grows while expected messages arrive with a ring. When
 * one arrives without, it shrinks to the sleep without any bell.
 *
 * Each inbox belongs to one thread; any thread may call ty_socket_bell_wake.
 */
#ifndef TY_EXECUTE_SOCKET_BELL_H
#define TY_EXECUTE_SOCKET_BELL_H

#include "ty_core.h"

#include <stdint.h>

typedef struct ty_socket_bell ty_socket_bell;

/** @return TY_EBACKEND: the system has no files for it; TY_ENOMEM */
ty_status ty_socket_bell_open(ty_socket_bell **out, ty_error *error) TY_MUST_CHECK;
void ty_socket_bell_close(ty_socket_bell *bell); /* NULL is ignored */

/** Number of wake-ups of the inbox: read it before polling for messages. */
uint32_t ty_socket_bell_count(const ty_socket_bell *bell, uint32_t inbox);
/**
 * Returns when the inbox was woken since `seen`, or a socket has an event, or the time is over.
 * @param quiet_ns ignores sockets this long: their events gather, and one poll handles them all
 */
void ty_socket_bell_sleep(ty_socket_bell *bell, uint32_t inbox, uint32_t seen, long quiet_ns,
                          long longest_ns);
void ty_socket_bell_wake(ty_socket_bell *bell, uint32_t inbox);
/** Reports that a message arrived after a poll that did not find it: evidence for or against the
 * sockets, depending on how the sleep before ended. */
void ty_socket_bell_found(ty_socket_bell *bell, uint32_t inbox);
/** Longest sleep that relies on the sockets, nanoseconds. */
long ty_socket_bell_told_ns(const ty_socket_bell *bell, uint32_t inbox);

#endif
