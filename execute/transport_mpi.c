/* The "mpi" transport: ranks are the processes of MPI_COMM_WORLD. The only file that calls MPI. */
#include "transport.h"

#include <mpi.h>

#include <pthread.h>
#include <stdlib.h>

#define PIECE_BYTES (UINT64_C(1) << 30) /* counts are ints: longer messages go in pieces */

typedef struct message {
    int piece_count;
    MPI_Request pieces[];
} message;

static ty_status mpi_fail(ty_error *error, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return ty_fail(error, TY_EBACKEND, "%s: %.*s", call, length, text);
}

/* MPI is called by one thread at a time (MPI_THREAD_SERIALIZED). */
static void lock(const ty_transport *transport)
{
    pthread_mutex_lock(transport->state);
}

static void unlock(const ty_transport *transport)
{
    pthread_mutex_unlock(transport->state);
}

static void message_cancel(message *own)
{
    int i;

    for (i = 0; own != NULL && i < own->piece_count; i++) {
        if (own->pieces[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&own->pieces[i]);
            MPI_Request_free(&own->pieces[i]);
        }
    }
    ty_free(own);
}

static void mpi_cancel(ty_transport *transport, ty_request *request)
{
    lock(transport);
    message_cancel((message *)request);
    unlock(transport);
}

static message *message_new(uint64_t bytes)
{
    uint64_t count = bytes == 0 ? 1 : (bytes - 1) / PIECE_BYTES + 1, i;
    message *made = ty_alloc(1, sizeof *made + count * sizeof made->pieces[0]);

    if (made == NULL)
        return NULL;
    made->piece_count = (int)count;
    for (i = 0; i < count; i++)
        made->pieces[i] = MPI_REQUEST_NULL;
    return made;
}

static int piece_size(uint64_t bytes, int piece)
{
    uint64_t left = bytes - (uint64_t)piece * PIECE_BYTES;

    return (int)(left < PIECE_BYTES ? left : PIECE_BYTES);
}

static ty_status mpi_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                          uint64_t bytes, ty_request **out, ty_error *error)
{
    message *made = message_new(bytes);
    int i, code = MPI_SUCCESS;

    if (made == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    lock(transport);
    for (i = 0; i < made->piece_count && code == MPI_SUCCESS; i++)
        code = MPI_Isend((const char *)buffer + (uint64_t)i * PIECE_BYTES, piece_size(bytes, i),
                         MPI_BYTE, (int)to, (int)tag, MPI_COMM_WORLD, &made->pieces[i]);
    if (code != MPI_SUCCESS)
        message_cancel(made);
    unlock(transport);
    if (code != MPI_SUCCESS)
        return mpi_fail(error, "MPI_Isend", code);
    *out = (ty_request *)made;
    return TY_OK;
}

static ty_status mpi_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                             uint64_t bytes, ty_request **out, ty_error *error)
{
    message *made = message_new(bytes);
    int i, code = MPI_SUCCESS;

    if (made == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    lock(transport);
    for (i = 0; i < made->piece_count && code == MPI_SUCCESS; i++)
        code = MPI_Irecv((char *)buffer + (uint64_t)i * PIECE_BYTES, piece_size(bytes, i), MPI_BYTE,
                         (int)from, (int)tag, MPI_COMM_WORLD, &made->pieces[i]);
    if (code != MPI_SUCCESS)
        message_cancel(made);
    unlock(transport);
    if (code != MPI_SUCCESS)
        return mpi_fail(error, "MPI_Irecv", code);
    *out = (ty_request *)made;
    return TY_OK;
}

static ty_status mpi_test(ty_transport *transport, ty_request *request, bool *is_done,
                          ty_error *error)
{
    message *own = (message *)request;
    int i, is_complete = 1, code = MPI_SUCCESS;

    lock(transport);
    for (i = 0; i < own->piece_count && is_complete && code == MPI_SUCCESS; i++) {
        if (own->pieces[i] != MPI_REQUEST_NULL)
            code = MPI_Test(&own->pieces[i], &is_complete, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS)
        message_cancel(own);
    unlock(transport);
    if (code != MPI_SUCCESS)
        return mpi_fail(error, "MPI_Test", code);
    *is_done = is_complete != 0;
    if (*is_done)
        ty_free(own);
    return TY_OK;
}

/* MPI_Finalize of most libraries spins until the slowest rank is there, so sleep first. */
static void mpi_close(ty_transport *transport)
{
    if (transport->is_broken) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    } else {
        ty_error ignored = {0};
        if (ty_transport_barrier(transport, &ignored) != TY_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Finalize();
    }
    pthread_mutex_destroy(transport->state);
    ty_free(transport->state);
    ty_free(transport);
}

static ty_status check_tags(ty_error *error)
{
    int *limit = NULL, is_set = 0;

    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &is_set);
    if (is_set && (unsigned)*limit < TY_TAG_LIMIT - 1)
        return ty_fail(error, TY_EUNSUPPORTED, "this MPI has tags up to %d, expected at least %u",
                       *limit, TY_TAG_LIMIT - 1);
    return TY_OK;
}

/* Ranks that can share memory are on one host. */
static ty_status local_rank(uint32_t *out, ty_error *error)
{
    MPI_Comm host;
    int rank = 0;
    int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);

    if (code != MPI_SUCCESS)
        return mpi_fail(error, "MPI_Comm_split_type", code);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    *out = (uint32_t)rank;
    return TY_OK;
}

ty_status ty_transport_mpi(ty_transport **out, ty_error *error)
{
    ty_transport *transport = ty_alloc(1, sizeof *transport);
    pthread_mutex_t *calls = ty_alloc(1, sizeof *calls);
    int code, level = 0, rank = 0, size = 0;
    ty_status status;

    if (transport == NULL || calls == NULL || pthread_mutex_init(calls, NULL) != 0) {
        ty_free(transport);
        ty_free(calls);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    /* With more ranks than cores Open MPI would call sched_yield in every test that finds nothing,
     * which can cost a scheduler's slice; whoever tests here sleeps in between anyway. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
    /* Over TCP, messages above this first ask whether they are expected, and on a slow link the
     * question waits behind what is being sent the other way. Pieces of collectives never ask: with
     * Open MPI's 64 KiB an all-reduce of 1.7 MB over 100 Mb/s takes 1.7 times as long
     * (tests/testbed). What the user has set stays. */
    setenv("OMPI_MCA_btl_tcp_eager_limit", "524288", 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", "524288", 0);
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        ty_free(calls);
        ty_free(transport);
        return ty_fail(error, TY_EBACKEND, "MPI does not start with threads");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    *transport = (ty_transport){.rank = (uint32_t)rank,
                                .size = (uint32_t)size,
                                .state = calls,
                                .send = mpi_send,
                                .receive = mpi_receive,
                                .test = mpi_test,
                                .cancel = mpi_cancel,
                                .close = mpi_close};
    TY_CHECK(check_tags(error), status, cleanup);
    TY_CHECK(local_rank(&transport->local_rank, error), status, cleanup);
    *out = transport;
    return TY_OK;

cleanup:
    MPI_Finalize();
    ty_free(calls);
    ty_free(transport);
    return status;
}
