/**
 * @file job_secret.h
 * The secret of a job: what its ranks prove to each other to have before anything else is said, so
 * that a process which merely reaches their sockets does not become one of them. Internal to
 * execute/.
 *
 * Whoever starts the ranks gives all of them the same one (`trainyard run` makes it up for each
 * run). It comes in the environment or in a file, never on a command line, which all users of a
 * host can read. Each rank sends every other a number that is used once, and answers the other's
 * with a code that is keyed by the secret and covers both numbers, both ranks, the direction and
 * the size of the job: what was heard in another run, of another pair or from the rank itself
 * proves nothing. The code is libsodium's crypto_auth (HMAC-SHA-512-256), the key a BLAKE2b hash of
 * the secret; with fewer than TY_SECRET_LEAST_LENGTH characters it could be guessed from a code.
 *
 * What this does not do: messages that follow are neither encrypted nor authenticated one by one.
 */
#ifndef TY_EXECUTE_JOB_SECRET_H
#define TY_EXECUTE_JOB_SECRET_H

#include "transport.h"

enum { TY_SECRET_KEY_BYTES = 32, TY_SECRET_LEAST_LENGTH = 32, TY_SECRET_MOST_LENGTH = 1024 };

typedef struct ty_job_secret {
    bool is_set; /* false: the job has none */
    unsigned char key[TY_SECRET_KEY_BYTES];
} ty_job_secret;

/**
 * Reads the secret from TY_SECRET_VARIABLE, or else from the file that TY_SECRET_FILE_VARIABLE
 * names, and takes the first out of the environment, which programs that are started inherit.
 * @return TY_EINVAL: both are set, or it is shorter or longer than it may be; TY_EIO: the file
 *         cannot be read, is none of this user's (or root's), or others may read it (mode 0600);
 *         TY_EBACKEND: the library does not start
 */
ty_status ty_job_secret_read(ty_job_secret *out, ty_error *error) TY_MUST_CHECK;

/** Overwrites the key. */
void ty_job_secret_forget(ty_job_secret *secret);

/**
 * Sends every other rank a proof, and waits for one from each; called by all ranks alike, before
 * other messages. Two rounds of messages of 32 bytes.
 * @param patience_s how long to wait for the others
 * @return TY_EBACKEND, with the rank, where one does not prove that it has the secret, or says
 *         nothing in time; nothing is known then of what it will do, so that the transport should
 *         not be closed in peace (ty_transport.is_broken)
 */
ty_status ty_job_secret_prove(const ty_job_secret *secret, ty_transport *transport,
                              double patience_s, ty_error *error) TY_MUST_CHECK;

#endif
