/**
 * @file socket_bell.h
 * Sleeping until messages between hosts can go on, where they come through a library that can only
 * be asked (MPI over TCP): the sockets that it holds open in this process wake whoever sleeps here.
 * Internal to execute/.
 *
 * The library's sockets are found among the open files (/proc/self/fd) and watched, never read. Not
 * every library has sockets (RDMA, shared memory), so the bell learns how far it may be trusted:
 * ty_socket_bell_told_ns grows while what was waited for came with a ring, and shrinks to what one
 * sleeps without any bell when it came without.
 *
 * Each inbox is one thread's; ty_socket_bell_wake may be called by any.
 */
#ifndef TY_EXECUTE_SOCKET_BELL_H
#define TY_EXECUTE_SOCKET_BELL_H

#include "ty_core.h"

#include <stdint.h>

typedef struct ty_socket_bell ty_socket_bell;

/** @return TY_EBACKEND: the system has no files for it; TY_ENOMEM */
ty_status ty_socket_bell_open(ty_socket_bell **out, ty_error *error) TY_MUST_CHECK;
void ty_socket_bell_close(ty_socket_bell *bell); /* NULL is ignored */

/** How often the inbox was woken: to be asked before looking for messages. */
uint32_t ty_socket_bell_count(const ty_socket_bell *bell, uint32_t inbox);
/**
 * Returns when the inbox was woken since `seen`, or a socket has news, or the time is over.
 * @param quiet_ns sockets are not listened to for so long: their news gathers, and one look takes
 *        it all
 */
void ty_socket_bell_sleep(ty_socket_bell *bell, uint32_t inbox, uint32_t seen, long quiet_ns,
                          long longest_ns);
void ty_socket_bell_wake(ty_socket_bell *bell, uint32_t inbox);
/** That a message which was looked for in vain is there after all: evidence for or against the
 * sockets, by how the sleep before ended. */
void ty_socket_bell_found(ty_socket_bell *bell, uint32_t inbox);
/** How long one may sleep in trust of the sockets: nanoseconds. */
long ty_socket_bell_told_ns(const ty_socket_bell *bell, uint32_t inbox);

#endif
