/**
 * @file job_secret.h
 * The secret of a job. Ranks prove to each other that they have it before any other message, so
 * that a process that merely reaches their sockets cannot join them. Internal to execute/.
 *
 * The launcher gives all ranks the same secret (`trainyard run` generates one for each run). It
 * comes in the environment or in a file, never on a command line, which all users of a host can
 * read. Each rank sends every other a nonce, and answers the other's with a code keyed by the
 * secret. The code covers both nonces, both ranks, the direction and the size of the job, so a code
 * from another run, from another pair or from the rank itself proves nothing. The code is
 * libsodium's crypto_auth (HMAC-SHA-512-256), the key a BLAKE2b hash of the secret. A secret
 * shorter than TY_SECRET_LEAST_LENGTH characters could be guessed from a code.
 *
 * Limits: later messages are neither encrypted nor authenticated one by one.
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
 * names. Removes the first from the environment, which child processes inherit.
 * @return TY_EINVAL: both are set, or the length is out of range; TY_EIO: the file cannot be read,
 *         belongs neither to this user nor to root, or others may read it (mode 0600 is expected);
 *         TY_EBACKEND: the library does not start
 */
ty_status ty_job_secret_read(ty_job_secret *out, ty_error *error) TY_MUST_CHECK;

/** Overwrites the key. */
void ty_job_secret_forget(ty_job_secret *secret);

/**
 * Sends every other rank a proof, and waits for one from each; called by all ranks alike, before
 * other messages. Two rounds of messages of 32 bytes.
 * @param patience_s seconds to wait for the other ranks
 * @return TY_EBACKEND, with the rank, if one does not prove that it has the secret or does not
 *         answer in time. Its behavior is unknown then, so set ty_transport.is_broken before
 *         closing the transport
 */
ty_status ty_job_secret_prove(const ty_job_secret *secret, ty_transport *transport,
                              double patience_s, ty_error *error) TY_MUST_CHECK;

#endif
