/* The same sweep over the ranks of an MPI job: rank 0 hands out pieces one by one to whoever asks,
 * and takes the results. A question is an index, or DONE where nobody has one for the asker; an
 * answer is an index, the status as a letter and the result or the message; the first answer of a
 * rank has no index and no result: it only asks. Messages go through relays (mpi_frames.h), so that
 * this program needs no MPI. */
#include "mpi_frames.h"
#include "question.h"
#include "sweep.h"
#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DONE UINT32_MAX
#define LETTER 'a' /* of TY_OK */
#define POLL_MS 100

/* Open MPI's own launcher says how many there are; Slurm does, where it starts them by PMIx. */
bool ty_sweep_has_ranks(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");

    if (size == NULL && getenv("PMIX_RANK") != NULL)
        size = getenv("SLURM_STEP_NUM_TASKS");
    return size != NULL && strtol(size, NULL, 10) > 1;
}

bool ty_sweep_is_first_rank(void)
{
    const char *rank = getenv("PMIX_RANK");

    return !ty_sweep_has_ranks() || rank == NULL || strcmp(rank, "0") == 0;
}

/* ---- The relay ----------------------------------------------------------------------------- */

typedef struct relay {
    const ty_watch *watch;
    pid_t worker;
    int socket;
    uint32_t rank, ranks;
} relay;

/* Waits for a frame, or until nobody wants one any more. */
static ty_status hear(const relay *r, ty_relay_frame *out, ty_error *error)
{
    struct pollfd ready = {.fd = r->socket, .events = POLLIN};
    ty_status status;

    while (poll(&ready, 1, POLL_MS) <= 0)
        if (ty_watch_stops(r->watch))
            return ty_fail(error, TY_EINTERRUPTED, "interrupted");
    status = ty_relay_read(r->socket, out, error);
    if (status == TY_EIO && ty_watch_stops(r->watch))
        status = ty_fail(error, TY_EINTERRUPTED, "interrupted");
    return status;
}

static ty_status relay_open(relay *r, ty_error *error)
{
    char worker[PATH_MAX];
    int ends[2];
    ty_relay_frame hello;
    ty_status status = TY_OK;

    TY_TRY(ty_worker_path(worker, error));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return ty_fail(error, TY_EIO, "socketpair: %s", strerror(errno));
    r->socket = ends[0];
    r->worker = fork();
    if (r->worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN); /* it ends with us, who catch them */
        signal(SIGTERM, SIG_IGN);
        dup2(ends[1], STDIN_FILENO);
        execl(worker, "trainyard-worker", "--relay", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (r->worker < 0)
        return ty_fail(error, TY_EIO, "fork: %s", strerror(errno));
    status = hear(r, &hello, error);
    if (status == TY_EIO)
        return ty_fail(error, TY_EBACKEND, "%s --relay: MPI does not start", worker);
    if (status != TY_OK)
        return status;
    r->rank = hello.peer;
    if (hello.length == sizeof r->ranks)
        memcpy(&r->ranks, hello.bytes, sizeof r->ranks);
    ty_free(hello.bytes);
    return TY_OK;
}

/* After a failure some may wait for an answer for good: without a last frame the relay ends as a
 * failure, and the launcher ends the job. */
static void relay_close(relay *r, bool is_well)
{
    ty_error ignored = {0};

    if (r->socket < 0)
        return;
    if (is_well && ty_relay_write(r->socket, TY_RELAY_END, "", 0, &ignored) != TY_OK)
        is_well = false; /* the launcher knows by now */
    close(r->socket);
    while (r->worker > 0 && waitpid(r->worker, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- Ranks that work ----------------------------------------------------------------------- */

static ty_status tell(const relay *r, uint32_t index, ty_status what, const char *words,
                      ty_error *error)
{
    const char letter = (char)(LETTER + what);
    ty_text answer = {0};
    ty_status status;

    ty_text_append(&answer, (const char *)&index, sizeof index);
    ty_text_append(&answer, &letter, 1);
    ty_text_add(&answer, words);
    status = ty_text_check(&answer, error);
    if (status == TY_OK)
        status = ty_relay_write(r->socket, 0, answer.data, (uint32_t)answer.length, error);
    ty_text_clear(&answer);
    return status;
}

static ty_status do_piece(const ty_sweep *work, const relay *r, uint32_t index, ty_error *error)
{
    ty_text result = {0};
    ty_error why = {0};
    ty_status status = work->work(work->context, index, &result, &why);

    if (status == TY_OK)
        status = ty_text_check(&result, &why);
    if (status != TY_OK)
        status = tell(r, index, status, why.message, error);
    else
        status = tell(r, index, status, result.data != NULL ? result.data : "", error);
    ty_text_clear(&result);
    return status;
}

static ty_status work_for_others(const ty_sweep *work, const relay *r, ty_error *error)
{
    ty_relay_frame question;

    TY_TRY(tell(r, DONE, TY_OK, "", error));
    for (;;) {
        uint32_t index = DONE;
        TY_TRY(hear(r, &question, error));
        if (question.length == sizeof index)
            memcpy(&index, question.bytes, sizeof index);
        ty_free(question.bytes);
        if (index == DONE)
            break;
        TY_TRY(do_piece(work, r, index, error));
    }
    return TY_OK;
}

/* ---- The rank that hands out --------------------------------------------------------------- */

/* Once something has failed nobody is given another piece, and those under way are heard. */
static ty_status hand_out(const ty_sweep *work, const relay *r, bool *all_heard, ty_error *error)
{
    const size_t head = sizeof(uint32_t) + 1;
    uint32_t next = 0;
    ty_status status = TY_OK;

    for (uint32_t asking = r->ranks - 1; asking > 0;) {
        ty_relay_frame heard;
        uint32_t index = DONE;
        char letter = LETTER;
        TY_TRY(hear(r, &heard, error));
        if (heard.length >= head) {
            memcpy(&index, heard.bytes, sizeof index);
            letter = heard.bytes[sizeof index];
        }
        if (status == TY_OK && index != DONE && letter != LETTER)
            status = ty_fail(error, (ty_status)(letter - LETTER), "%s", heard.bytes + head);
        else if (status == TY_OK && index != DONE)
            status = work->take(work->context, index, heard.bytes + head, error);
        ty_free(heard.bytes);
        while (next < work->count && work->is_wanted != NULL &&
               !work->is_wanted(work->context, next))
            next++;
        index = status == TY_OK && next < work->count ? next++ : DONE;
        TY_TRY(ty_relay_write(r->socket, heard.peer, &index, sizeof index, error));
        asking -= index == DONE;
    }
    *all_heard = true;
    return status;
}

ty_status ty_sweep_over_ranks(const ty_sweep *work, ty_error *error)
{
    relay r = {.watch = work->watch, .socket = -1};
    bool is_well = false;
    ty_status status = relay_open(&r, error);

    if (status == TY_OK && r.rank == 0) {
        status = hand_out(work, &r, &is_well, error);
    } else if (status == TY_OK) {
        status = work_for_others(work, &r, error);
        is_well = status == TY_OK;
    }
    relay_close(&r, is_well);
    return status;
}
