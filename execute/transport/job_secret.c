/* Proofs between ranks that they have the job's secret. Codes, keys and random numbers are
 * libsodium's. */
#include "job_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NONCE_BYTES = 32,
    PROOF_BYTES = crypto_auth_BYTES,
    /* Tags of set-up messages (transport.c has 1 and 2). */
    NONCE_TAG = 3,
    PROOF_TAG = 4
};
_Static_assert((int)TY_SECRET_KEY_BYTES == (int)crypto_auth_KEYBYTES, "keys are crypto_auth's");

/* ---- Reading the secret -------------------------------------------------------------------- */

/* @param text without a terminating NUL */
static ty_status secret_take(ty_job_secret *out, const char *text, size_t length, const char *where,
                             ty_error *error)
{
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    if (length < TY_SECRET_LEAST_LENGTH || length > TY_SECRET_MOST_LENGTH)
        return ty_fail(error, TY_EINVAL,
                       "%.160s: found a secret of %zu characters, expected %d to %d", where, length,
                       TY_SECRET_LEAST_LENGTH, TY_SECRET_MOST_LENGTH);
    crypto_generichash(out->key, sizeof out->key, (const unsigned char *)text, length, NULL, 0);
    out->is_set = true;
    return TY_OK;
}

static ty_status file_check(int file, const char *path, ty_error *error)
{
    struct stat found;

    if (fstat(file, &found) != 0)
        return ty_fail(error, TY_EIO, "%.160s: %s", path, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return ty_fail(error, TY_EIO, "%.160s: expected a file that has the job's secret", path);
    if (found.st_uid != geteuid() && found.st_uid != 0)
        return ty_fail(error, TY_EIO, "%.160s: a file of user %u, expected one of user %u or root",
                       path, (unsigned)found.st_uid, (unsigned)geteuid());
    if ((found.st_mode & 077) != 0)
        return ty_fail(error, TY_EIO,
                       "%.160s: the job's secret is open to others, expected mode 0600, found %04o",
                       path, (unsigned)found.st_mode & 07777);
    return TY_OK;
}

static ty_status file_read(ty_job_secret *out, const char *path, ty_error *error)
{
    char text[TY_SECRET_MOST_LENGTH + 3]; /* with a newline, and one byte to detect longer ones */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t length = 0;
    ssize_t part = 0;
    ty_status status;

    if (file < 0)
        return ty_fail(error, TY_EIO, "%.160s: %s", path, strerror(errno));
    TY_CHECK(file_check(file, path, error), status, cleanup);
    while (length < sizeof text && (part = read(file, text + length, sizeof text - length)) > 0)
        length += (size_t)part;
    status = part < 0 ? ty_fail(error, TY_EIO, "%.160s: %s", path, strerror(errno))
                      : secret_take(out, text, length, path, error);
    sodium_memzero(text, sizeof text);

cleanup:
    close(file);
    return status;
}

ty_status ty_job_secret_read(ty_job_secret *out, ty_error *error)
{
    char *text = getenv(TY_SECRET_VARIABLE);
    const char *path = getenv(TY_SECRET_FILE_VARIABLE);
    ty_job_secret found = {0};
    ty_status status = TY_OK;

    if (text != NULL && path != NULL)
        return ty_fail(error, TY_EINVAL,
                       "found both " TY_SECRET_VARIABLE " and " TY_SECRET_FILE_VARIABLE
                       ", expected one of them");
    if (sodium_init() < 0)
        return ty_fail(error, TY_EBACKEND, "libsodium does not start");
    if (text != NULL) {
        status = secret_take(&found, text, strlen(text), TY_SECRET_VARIABLE, error);
        sodium_memzero(text, strlen(text));
        unsetenv(TY_SECRET_VARIABLE);
    } else if (path != NULL) {
        status = file_read(&found, path, error);
    }
    if (status == TY_OK)
        *out = found;
    ty_job_secret_forget(&found);
    return status;
}

void ty_job_secret_forget(ty_job_secret *secret)
{
    sodium_memzero(secret, sizeof *secret);
}

/* ---- The proofs ---------------------------------------------------------------------------- */

/* The text that a code covers, as bytes in an order that does not depend on the host. */
typedef struct statement {
    char purpose[16];
    unsigned char ranks[3][4]; /* prover, verifier, job size; most significant byte first */
    unsigned char of_prover[NONCE_BYTES], of_other[NONCE_BYTES];
} statement;

static void code_make(const ty_job_secret *secret, const uint32_t ranks[3],
                      const unsigned char *of_prover, const unsigned char *of_other,
                      unsigned char out[PROOF_BYTES])
{
    statement said = {.purpose = "trainyard rank\n"};

    for (int r = 0; r < 3; r++)
        for (int b = 0; b < 4; b++)
            said.ranks[r][b] = (unsigned char)(ranks[r] >> (24 - 8 * b));
    memcpy(said.of_prover, of_prover, NONCE_BYTES);
    memcpy(said.of_other, of_other, NONCE_BYTES);
    crypto_auth(out, (const unsigned char *)&said, sizeof said, secret->key);
}

/* Messages to and from every other rank: one each way. */
typedef struct exchange {
    ty_transport *transport;
    uint32_t tag;
    double until_s;
    ty_request **requests; /* [2][size]: from and to each rank; NULL: done, or none */
} exchange;

/* Whether all are done. On failure `failed` has the other rank. */
static ty_status exchange_poll(const exchange *e, bool *is_done, uint32_t *failed, ty_error *error)
{
    const uint32_t size = e->transport->size;

    *is_done = true;
    for (uint32_t r = 0; r < 2 * size; r++) {
        bool is_here = false;
        ty_status status;
        if (e->requests[r] == NULL)
            continue;
        *failed = r % size;
        status = e->transport->test(e->transport, e->requests[r], &is_here, error);
        if (status != TY_OK || is_here)
            e->requests[r] = NULL;
        if (status != TY_OK)
            return status;
        *is_done = *is_done && is_here;
    }
    return TY_OK;
}

/**
 * @param bytes of each message, one size for all
 * @param to what to send to rank r, `step` bytes apart; 0: all the same
 * @param from [size][bytes]
 */
static ty_status exchange_run(const exchange *e, uint64_t bytes, const unsigned char *to,
                              uint64_t step, unsigned char *from, ty_error *error)
{
    ty_transport *t = e->transport;
    const double begun_s = ty_now_s();
    ty_backoff backoff = {0};
    ty_status status = TY_OK;
    uint32_t failed = 0;
    bool is_done = false;
    ty_error reason = {0};

    for (uint32_t r = 0; r < t->size && status == TY_OK; r++) {
        failed = r;
        if (r == t->rank)
            continue;
        status = t->receive(t, r, e->tag, from + r * bytes, bytes, &e->requests[r], &reason);
        if (status == TY_OK)
            status =
                t->send(t, r, e->tag, to + r * step, bytes, &e->requests[t->size + r], &reason);
    }
    while (status == TY_OK && !is_done) {
        status = exchange_poll(e, &is_done, &failed, &reason);
        if (status == TY_OK && !is_done && ty_now_s() > e->until_s)
            status =
                ty_fail(&reason, TY_EBACKEND, "it said nothing for %.0f s", ty_now_s() - begun_s);
        else if (status == TY_OK && !is_done)
            ty_backoff_wait(&backoff);
    }
    for (uint32_t r = 0; r < 2 * t->size; r++) {
        if (e->requests[r] != NULL)
            t->cancel(t, e->requests[r]);
        e->requests[r] = NULL;
    }
    if (status == TY_OK || status == TY_ENOMEM)
        return status == TY_OK ? TY_OK : ty_fail(error, status, "%s", reason.message);
    return ty_fail(error, TY_EBACKEND,
                   "rank %u does not prove to rank %u that it has the secret of this job: %.128s",
                   failed, t->rank, reason.message);
}

ty_status ty_job_secret_prove(const ty_job_secret *secret, ty_transport *transport,
                              double patience_s, ty_error *error)
{
    const uint32_t size = transport->size, own = transport->rank;
    exchange e = {.transport = transport, .until_s = ty_now_s() + patience_s};
    unsigned char nonce[NONCE_BYTES], expected[PROOF_BYTES];
    unsigned char(*nonces)[NONCE_BYTES] = ty_alloc(size, NONCE_BYTES);
    unsigned char(*proofs)[PROOF_BYTES] = ty_alloc(size, PROOF_BYTES);
    unsigned char(*found)[PROOF_BYTES] = ty_alloc(size, PROOF_BYTES);
    ty_status status = TY_OK;

    e.requests = ty_alloc(2 * (size_t)size, sizeof(ty_request *));
    TY_CHECK(ty_check_memory(
                 e.requests != NULL && nonces != NULL && proofs != NULL && found != NULL, error),
             status, cleanup);
    randombytes_buf(nonce, sizeof nonce);
    e.tag = NONCE_TAG;
    TY_CHECK(exchange_run(&e, NONCE_BYTES, nonce, 0, nonces[0], error), status, cleanup);
    for (uint32_t r = 0; r < size; r++)
        code_make(secret, (const uint32_t[]){own, r, size}, nonce, nonces[r], proofs[r]);
    e.tag = PROOF_TAG;
    TY_CHECK(exchange_run(&e, PROOF_BYTES, proofs[0], PROOF_BYTES, found[0], error), status,
             cleanup);
    for (uint32_t r = 0; r < size && status == TY_OK; r++) {
        if (r == own)
            continue;
        code_make(secret, (const uint32_t[]){r, own, size}, nonces[r], nonce, expected);
        if (sodium_memcmp(expected, found[r], PROOF_BYTES) != 0)
            status = ty_fail(error, TY_EBACKEND,
                             "rank %u does not have the secret of this job: what it proves to rank "
                             "%u is not so",
                             r, own);
    }

cleanup:
    ty_free(e.requests);
    ty_free(nonces);
    ty_free(proofs);
    ty_free(found);
    return status;
}
