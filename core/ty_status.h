/**
 * @file ty_status.h
 * How a call fails: a status for the program, a sentence for the person.
 *
 *     ty_error error = {0};
 *     if (ty_plan_load("plan.json", &plan, &error) != TY_OK)
 *         fprintf(stderr, "error: %s\n", error.message);
 */
#ifndef TY_STATUS_H
#define TY_STATUS_H

#include <stdbool.h>

typedef enum ty_status {
    TY_OK = 0,
    TY_EINVAL,       /* an argument is outside its documented range */
    TY_ENOMEM,       /* memory ran out, or a size overflowed */
    TY_EIO,          /* a file could not be read or written */
    TY_EPARSE,       /* a file was read but its content is wrong */
    TY_EINFEASIBLE,  /* the question has no answer: no plan fits */
    TY_ELIMIT,       /* a search or simulation budget is spent */
    TY_EUNSUPPORTED, /* not built in, or not on this machine */
    TY_EBACKEND,     /* SimGrid, igraph, MPI, oneDNN, CUDA or NCCL failed */
    TY_EINTERRUPTED  /* the user asked to stop */
} ty_status;

/** Where the detail of a failure goes. Owned by the caller; zero-initialise it. */
typedef struct ty_error {
    ty_status status;
    char message[512]; /* "plan.json:/stages/0/replicas: found -1, expected an integer > 0" */
} ty_error;

#if defined(__GNUC__)
#define TY_MUST_CHECK __attribute__((warn_unused_result))
#define TY_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TY_MUST_CHECK
#define TY_PRINTF(text, first)
#endif

/** Runs `call` and returns its status from the function unless it is TY_OK: for where nothing is to
 * be released, as NCCL's NCCLCHECK. */
#define TY_TRY(call)                                                                               \
    do {                                                                                           \
        const ty_status tried = (call);                                                            \
        if (tried != TY_OK)                                                                        \
            return tried;                                                                          \
    } while (0)

/** Runs `call`, keeps its result in `status`, and leaves for `label` unless it is TY_OK. */
#define TY_CHECK(call, status, label)                                                              \
    do {                                                                                           \
        if (((status) = (call)) != TY_OK)                                                          \
            goto label;                                                                            \
    } while (0)

/**
 * Fills `error` (which may be NULL) and returns `status`, so that a failure is one statement:
 * `return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));`
 */
ty_status ty_fail(ty_error *error, ty_status status, const char *format, ...) TY_PRINTF(3, 4);

/** TY_OK, or TY_ENOMEM with its message where what was allocated is not there. */
static inline ty_status ty_check_memory(bool is_there, ty_error *error)
{
    if (is_there)
        return TY_OK;
    (void)ty_fail(error, TY_ENOMEM, "out of memory");
    return TY_ENOMEM;
}

/** A short fixed word for a status: "ok", "bad input", ... Never NULL. */
const char *ty_status_name(ty_status status);

#endif
