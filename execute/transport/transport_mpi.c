/* The "mpi" transport: ranks are the processes of MPI_COMM_WORLD. The only file that calls MPI.
 * Messages between ranks of one host go through shared memory (shared_memory.h) if all of them have
 * it. If none do, MPI's sockets wake waiting threads (socket_bell.h). */
#include "call_watch.h"
#include "job_secret.h"
#include "shared_memory.h"
#include "socket_bell.h"

#include <mpi.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NOT_HERE UINT32_MAX             /* a rank of another host */
#define PIECE_BYTES (UINT64_C(1) << 30) /* counts are ints: longer messages are split */
#define PROOF_PATIENCE_S 30.0           /* all ranks are started when MPI is */
#define CALL_PATIENCE_S 15.0            /* of CPU time, in a call that does not wait */

enum { REQUEST_MPI = TY_REQUEST_SHARED + 1 };

typedef struct message {
    int path; /* REQUEST_MPI */
    int piece_count;
    uint32_t inbox;
    bool was_polled; /* an earlier poll did not find it */
    MPI_Request pieces[];
} message;

static ty_status mpi_fail(ty_error *error, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return ty_fail(error, TY_EBACKEND, "%s: %.*s", call, length, text);
}

typedef struct mpi_state {
    pthread_mutex_t calls;    /* MPI is called by one thread at a time (MPI_THREAD_SERIALIZED) */
    ty_call_watch *watch;     /* of those calls */
    ty_shared_memory *shared; /* NULL: everything goes through MPI */
    bool is_sharing;          /* `shared` is used */
    ty_socket_bell *sockets;  /* NULL: the system has none */
    uint32_t *members;        /* [size]: a rank's index among those of this host, or NOT_HERE */
} mpi_state;

static void lock(const ty_transport *transport)
{
    mpi_state *state = transport->state;

    pthread_mutex_lock(&state->calls);
    ty_call_watch_begin(state->watch);
}

static void unlock(const ty_transport *transport)
{
    mpi_state *state = transport->state;

    ty_call_watch_end(state->watch);
    pthread_mutex_unlock(&state->calls);
}

/* ---- Messages through MPI ---------------------------------------------------------------- */

static void message_cancel(message *own)
{
    for (int i = 0; own != NULL && i < own->piece_count; i++) {
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

static message *message_new(uint64_t bytes, uint32_t tag)
{
    uint64_t count = bytes == 0 ? 1 : (bytes - 1) / PIECE_BYTES + 1, i;
    message *made = ty_alloc(1, sizeof *made + count * sizeof made->pieces[0]);

    if (made == NULL)
        return NULL;
    made->path = REQUEST_MPI;
    made->piece_count = (int)count;
    made->inbox = ty_tag_inbox(tag);
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
    message *made = message_new(bytes, tag);
    int i, code = MPI_SUCCESS;

    TY_TRY(ty_check_memory(made != NULL, error));
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
    message *made = message_new(bytes, tag);
    int i, code = MPI_SUCCESS;

    TY_TRY(ty_check_memory(made != NULL, error));
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

/* Reports to the sockets' bell, which learns from it. */
static void message_found(const ty_transport *transport, const message *own)
{
    const mpi_state *state = transport->state;

    if (own->was_polled && state->sockets != NULL && !state->is_sharing)
        ty_socket_bell_found(state->sockets, own->inbox);
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
    if (*is_done) {
        message_found(transport, own);
        ty_free(own);
    } else {
        own->was_polled = true;
    }
    return TY_OK;
}

/* ---- Messages through shared memory ------------------------------------------------------ */

static ty_shared_memory *shared_of(const ty_transport *transport)
{
    const mpi_state *state = transport->state;

    return state->shared;
}

static uint32_t member_of(const ty_transport *transport, uint32_t rank)
{
    const mpi_state *state = transport->state;

    return state->is_sharing ? state->members[rank] : NOT_HERE;
}

static bool is_shared(const ty_request *request)
{
    return *(const int *)(const void *)request == TY_REQUEST_SHARED;
}

static ty_status any_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                          uint64_t bytes, ty_request **out, ty_error *error)
{
    const uint32_t member = member_of(transport, to);

    if (member == NOT_HERE)
        return mpi_send(transport, to, tag, buffer, bytes, out, error);
    return ty_shared_send(
        shared_of(transport),
        &(ty_shared_message){.member = member, .tag = tag, .from = buffer, .bytes = bytes}, out,
        error);
}

static ty_status any_receive(ty_transport *transport, uint32_t from, uint32_t tag, void *buffer,
                             uint64_t bytes, ty_request **out, ty_error *error)
{
    const uint32_t member = member_of(transport, from);

    if (member == NOT_HERE)
        return mpi_receive(transport, from, tag, buffer, bytes, out, error);
    return ty_shared_receive(
        shared_of(transport),
        &(ty_shared_message){.member = member, .tag = tag, .to = buffer, .bytes = bytes}, out,
        error);
}

static bool shared_sums(const ty_transport *transport, uint32_t from)
{
    return member_of(transport, from) != NOT_HERE;
}

static ty_status shared_receive_sum(ty_transport *transport, uint32_t from, uint32_t tag,
                                    void *buffer, uint64_t bytes, ty_add add,
                                    uint64_t element_bytes, ty_request **out, ty_error *error)
{
    return ty_shared_receive(shared_of(transport),
                             &(ty_shared_message){.member = member_of(transport, from),
                                                  .tag = tag,
                                                  .to = buffer,
                                                  .bytes = bytes,
                                                  .add = add,
                                                  .element_bytes = element_bytes},
                             out, error);
}

static ty_status any_test(ty_transport *transport, ty_request *request, bool *is_done,
                          ty_error *error)
{
    if (is_shared(request))
        return ty_shared_test(shared_of(transport), request, is_done, error);
    return mpi_test(transport, request, is_done, error);
}

static void any_cancel(ty_transport *transport, ty_request *request)
{
    if (request == NULL)
        return;
    if (is_shared(request))
        ty_shared_cancel(shared_of(transport), request);
    else
        mpi_cancel(transport, request);
}

static uint32_t shared_bell(ty_transport *transport, uint32_t inbox)
{
    return ty_shared_bell(shared_of(transport), inbox);
}

static void shared_sleep(ty_transport *transport, uint32_t inbox, uint32_t seen, long quiet_ns,
                         long longest_ns)
{
    (void)quiet_ns; /* it rings only for expected messages */
    ty_shared_sleep(shared_of(transport), inbox, seen, longest_ns);
}

static void shared_wake(ty_transport *transport, uint32_t inbox)
{
    ty_shared_wake(shared_of(transport), inbox);
}

/* ---- The bell of MPI's sockets ----------------------------------------------------------- */

static ty_socket_bell *sockets_of(const ty_transport *transport)
{
    const mpi_state *state = transport->state;

    return state->sockets;
}

static uint32_t socket_bell(ty_transport *transport, uint32_t inbox)
{
    return ty_socket_bell_count(sockets_of(transport), inbox);
}

static void socket_sleep(ty_transport *transport, uint32_t inbox, uint32_t seen, long quiet_ns,
                         long longest_ns)
{
    ty_socket_bell_sleep(sockets_of(transport), inbox, seen, quiet_ns, longest_ns);
}

static void socket_wake(ty_transport *transport, uint32_t inbox)
{
    ty_socket_bell_wake(sockets_of(transport), inbox);
}

static long socket_told_ns(const ty_transport *transport, uint32_t inbox)
{
    return ty_socket_bell_told_ns(sockets_of(transport), inbox);
}

/* ---- The ranks of this host -------------------------------------------------------------- */

typedef enum link_choice { LINK_AUTO, LINK_MPI, LINK_SHARED, LINK_WRONG } link_choice;

/* The values for devices (device_link.c) do not change the host's transport. */
static link_choice choice_read(ty_error *error)
{
    static const struct {
        const char *value;
        link_choice choice;
    } known[] = {{"", LINK_AUTO},     {"auto", LINK_AUTO}, {"host", LINK_AUTO},
                 {"nccl", LINK_AUTO}, {"mpi", LINK_MPI},   {"shared", LINK_SHARED}};
    const char *value = getenv("TRAINYARD_LINK");

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (value == NULL || strcmp(value, known[i].value) == 0)
            return known[i].choice;
    (void)ty_fail(error, TY_EINVAL,
                  "TRAINYARD_LINK: found \"%s\", expected mpi, shared, host, nccl or auto", value);
    return LINK_WRONG;
}

/* Data that the ranks of a host send each other before they share memory. */
typedef struct introduction {
    uint32_t rank;
    ty_status status; /* of its choice and its segment */
    link_choice choice;
    ty_shared_address address;
    ty_error error;
} introduction;

static ty_status members_find(ty_transport *transport, const introduction *all, uint32_t count,
                              ty_error *error)
{
    mpi_state *state = transport->state;

    state->members = ty_alloc(transport->size, sizeof *state->members);
    TY_TRY(ty_check_memory(state->members != NULL, error));
    for (uint32_t r = 0; r < transport->size; r++)
        state->members[r] = NOT_HERE;
    for (uint32_t m = 0; m < count; m++)
        state->members[all[m].rank] = m;
    return TY_OK;
}

/* Joins all segments, or returns the first failure among the ranks. */
static ty_status segments_join(ty_shared_memory *memory, const introduction *all, uint32_t count,
                               ty_error *error)
{
    ty_shared_address addresses[TY_SHARED_MOST_MEMBERS];

    for (uint32_t m = 0; m < count; m++) {
        if (all[m].status != TY_OK)
            return ty_fail(error, all[m].status, "%s", all[m].error.message);
        addresses[m] = all[m].address;
    }
    return ty_shared_memory_join(memory, addresses, error);
}

/* Creates this rank's segment, unless its choice is MPI. */
static void introduce(const ty_transport *transport, uint32_t count, introduction *own,
                      ty_shared_memory **memory)
{
    own->rank = transport->rank;
    own->choice = choice_read(&own->error);
    if (own->choice == LINK_WRONG)
        own->status = TY_EINVAL;
    else if (own->choice == LINK_MPI)
        own->status =
            ty_fail(&own->error, TY_EUNSUPPORTED, "TRAINYARD_LINK is mpi on rank %u", own->rank);
    else
        own->status =
            ty_shared_memory_make(count, transport->local_rank, memory, &own->address, &own->error);
}

/* Whether all ranks of the host have joined; else none uses shared memory. */
static ty_status host_agree(MPI_Comm host, ty_status own, bool *is_shared_by_all, ty_error *error)
{
    int worst = (int)own, code = MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, host);

    *is_shared_by_all = worst == TY_OK;
    return code == MPI_SUCCESS ? TY_OK : mpi_fail(error, "MPI_Allreduce", code);
}

/* The ranks of one host create segments, send each other the addresses, and join them. If that
 * fails, all messages go through MPI, unless the user required shared memory. */
static ty_status host_join(ty_transport *transport, MPI_Comm host, uint32_t count,
                           introduction *all, ty_error *error)
{
    introduction *own = &all[transport->local_rank];
    mpi_state *state = transport->state;
    ty_shared_memory *memory = NULL;
    bool is_joined = false;
    ty_error reason = {0};
    int code;
    ty_status status, joined;

    introduce(transport, count, own, &memory);
    code = MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, all, (int)sizeof *all, MPI_BYTE, host);
    if (code != MPI_SUCCESS) {
        status = mpi_fail(error, "MPI_Allgather", code);
        goto cleanup;
    }
    TY_CHECK(members_find(transport, all, count, error), status, cleanup);
    joined = segments_join(memory, all, count, &reason);
    TY_CHECK(host_agree(host, joined, &is_joined, error), status, cleanup);
    if (is_joined) {
        ty_shared_memory_seal(memory);
        state->shared = memory;
        ty_transport_mpi_share(transport, true);
        memory = NULL; /* given away */
    } else if (joined == TY_EINVAL) {
        status = ty_fail(error, joined, "%s", reason.message);
    } else if (own->choice == LINK_SHARED) {
        status = ty_fail(error, TY_EUNSUPPORTED, "TRAINYARD_LINK=shared: %s",
                         joined != TY_OK ? reason.message : "another rank of this host cannot");
    }
cleanup:
    ty_shared_memory_close(memory);
    return status;
}

/* Ranks that can share memory are on one host. */
static ty_status host_find(ty_transport *transport, ty_error *error)
{
    MPI_Comm host;
    int rank = 0, count = 0;
    int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    introduction *all;
    ty_status status;

    if (code != MPI_SUCCESS)
        return mpi_fail(error, "MPI_Comm_split_type", code);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &count);
    transport->local_rank = (uint32_t)rank;
    transport->is_unproven = transport->is_unproven && (uint32_t)count < transport->size;
    all = ty_alloc((size_t)count, sizeof *all);
    status = all == NULL  ? ty_fail(error, TY_ENOMEM, "out of memory")
             : count == 1 ? TY_OK
                          : host_join(transport, host, (uint32_t)count, all, error);
    ty_free(all);
    MPI_Comm_free(&host);
    return status;
}

/* ---- Opening and closing ----------------------------------------------------------------- */

static void state_free(mpi_state *state)
{
    ty_call_watch_close(state->watch);
    ty_shared_memory_close(state->shared);
    ty_socket_bell_close(state->sockets);
    ty_free(state->members);
    pthread_mutex_destroy(&state->calls);
    ty_free(state);
}

/* MPI_Finalize of most libraries spins until the slowest rank arrives, so sleep first. */
static void mpi_close(ty_transport *transport)
{
    const mpi_state *state = transport->state;

    if (transport->is_broken) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    } else {
        ty_error ignored = {0};
        if (ty_transport_barrier(transport, &ignored) != TY_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        ty_call_watch_begin(state->watch);
        MPI_Finalize();
        ty_call_watch_end(state->watch);
    }
    state_free(transport->state);
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

static mpi_state *state_new(void)
{
    mpi_state *state = ty_alloc(1, sizeof *state);

    if (state != NULL && pthread_mutex_init(&state->calls, NULL) != 0) {
        ty_free(state);
        return NULL;
    }
    return state;
}

/* Configures MPI for ranks that share cores and for slow networks. */
static void mpi_configure(void)
{
    /* With more ranks than cores Open MPI would call sched_yield in every test that finds nothing,
     * which can cost a scheduler's slice; all callers sleep between tests anyway. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
    /* Over TCP, messages above this size need a rendezvous, which on a slow link waits for the data
     * in the other direction. Pieces of collectives stay below: with Open MPI's 64 KiB an
     * all-reduce of 1.7 MB over 100 Mb/s takes 1.7 times as long (tests/testbed). A value set by
     * the user has precedence. */
    setenv("OMPI_MCA_btl_tcp_eager_limit", "524288", 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", "524288", 0);
}

ty_status ty_transport_mpi(ty_transport **out, ty_error *error)
{
    ty_transport *transport = ty_alloc(1, sizeof *transport);
    mpi_state *state = state_new();
    ty_job_secret secret = {0};
    ty_error no_bell = {0};
    int code, level = 0, rank = 0, size = 0;
    char complaint[256];
    ty_status status;

    TY_CHECK(ty_check_memory(transport != NULL && state != NULL, error), status, cleanup);
    TY_CHECK(ty_job_secret_read(&secret, error), status, cleanup);
    mpi_configure();
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        status = ty_fail(error, TY_EBACKEND, "MPI does not start with threads");
        goto cleanup;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    *transport = (ty_transport){.rank = (uint32_t)rank,
                                .size = (uint32_t)size,
                                .state = state,
                                .send = any_send,
                                .receive = any_receive,
                                .test = any_test,
                                .cancel = any_cancel,
                                .close = mpi_close,
                                .is_unproven = !secret.is_set};
    TY_CHECK(check_tags(error), status, finalize);
    snprintf(complaint, sizeof complaint,
             "trainyard-worker: rank %d: a call of MPI that waits for nobody does not come back in "
             "%.0f s of processor time; a foreign connection to a rank's port can do that",
             rank, CALL_PATIENCE_S);
    TY_CHECK(ty_call_watch_open(CALL_PATIENCE_S, complaint, &state->watch, error), status,
             finalize);
    if (secret.is_set) /* do not finalize: it would wait for a stranger */
        TY_CHECK(ty_job_secret_prove(&secret, transport, PROOF_PATIENCE_S, error), status, cleanup);
    if (ty_socket_bell_open(&state->sockets, &no_bell) != TY_OK)
        state->sockets = NULL; /* messages are polled instead */
    ty_transport_mpi_share(transport, false);
    ty_call_watch_begin(state->watch); /* all other ranks exist, so the wait is short */
    status = host_find(transport, error);
    ty_call_watch_end(state->watch);
    TY_CHECK(status, status, finalize);
    ty_job_secret_forget(&secret);
    *out = transport;
    return TY_OK;

finalize:
    MPI_Finalize();
cleanup:
    ty_job_secret_forget(&secret);
    if (state != NULL)
        state_free(state);
    ty_free(transport);
    return status;
}

void ty_transport_mpi_share(ty_transport *transport, bool is_sharing)
{
    mpi_state *state = transport->state;
    const bool has_sockets = state->sockets != NULL;
    uint32_t count = 0;

    for (uint32_t r = 0; state->shared != NULL && r < transport->size; r++)
        count += state->members[r] != NOT_HERE;
    state->is_sharing = is_sharing && state->shared != NULL;
    transport->rings_always = state->is_sharing && count == transport->size;
    transport->sums = state->is_sharing ? shared_sums : NULL;
    transport->receive_sum = state->is_sharing ? shared_receive_sum : NULL;
    transport->shares_memory = state->is_sharing;
    transport->bell = state->is_sharing ? shared_bell : has_sockets ? socket_bell : NULL;
    transport->sleep = state->is_sharing ? shared_sleep : has_sockets ? socket_sleep : NULL;
    transport->wake = state->is_sharing ? shared_wake : has_sockets ? socket_wake : NULL;
    transport->told_ns = !state->is_sharing && has_sockets ? socket_told_ns : NULL;
}
