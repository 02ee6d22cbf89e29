/* The same sweep over the ranks of an MPI job: rank 0 hands out pieces one by one to whoever asks,
 * and takes the results. A question is an index, or DONE where nobody has one for the asker; an
 * answer is an index, the status as a letter and the result or the message; the first answer of a
 * rank has no index and no result: it only asks. */
#include "sweep.h"

#include "question.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DONE UINT32_MAX
#define TAG_QUESTION 1
#define TAG_ANSWER 2
#define LETTER 'a' /* of TY_OK */
#define WAIT_NS 1000000

typedef struct answer {
    uint32_t index; /* DONE: none yet */
    char letter;
    int from;
    char *text; /* terminated; owned */
} answer;

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

/* Sleeps between looks: waiting ranks leave their core to working ones. */
static ty_status wait_for(const ty_watch *watch, int tag, MPI_Message *message, MPI_Status *from, ty_error *error)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    int is_there = 0;

    for (;;) {
        MPI_Improbe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &is_there, message, from);
        if (is_there)
            return TY_OK;
        if (ty_watch_stops(watch))
            return ty_fail(error, TY_EINTERRUPTED, "interrupted");
        nanosleep(&pause, NULL);
    }
}

/* ---- Ranks that work ----------------------------------------------------------------------- */

static ty_status tell(uint32_t index, ty_status status, const char *text, ty_error *error)
{
    const size_t length = strlen(text), head = sizeof index + 1;
    char *bytes = length < INT32_MAX - head ? ty_alloc(head + length, 1) : NULL;

    if (bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    memcpy(bytes, &index, sizeof index);
    bytes[sizeof index] = (char)(LETTER + status);
    memcpy(bytes + head, text, length);
    MPI_Send(bytes, (int)(head + length), MPI_BYTE, 0, TAG_ANSWER, MPI_COMM_WORLD);
    ty_free(bytes);
    return TY_OK;
}

static ty_status be_asked(const ty_watch *watch, uint32_t *index, ty_error *error)
{
    MPI_Message message;
    MPI_Status from;
    ty_status status = wait_for(watch, TAG_QUESTION, &message, &from, error);

    if (status == TY_OK)
        MPI_Mrecv(index, sizeof *index, MPI_BYTE, &message, &from);
    return status;
}

static ty_status do_piece(const ty_sweep *work, uint32_t index, ty_error *error)
{
    ty_text result = {0};
    ty_error why = {0};
    ty_status status = work->work(work->context, index, &result, &why);

    if (status == TY_OK)
        status = ty_text_check(&result, &why);
    if (status != TY_OK)
        status = tell(index, status, why.message, error);
    else
        status = tell(index, status, result.data != NULL ? result.data : "", error);
    ty_text_clear(&result);
    return status;
}

static ty_status work_for_others(const ty_sweep *work, ty_error *error)
{
    uint32_t index = 0;
    ty_status status = TY_OK;

    TY_CHECK(tell(DONE, TY_OK, "", error), status, done);
    for (;;) {
        TY_CHECK(be_asked(work->watch, &index, error), status, done);
        if (index == DONE)
            break;
        TY_CHECK(do_piece(work, index, error), status, done);
    }
done:
    return status;
}

/* ---- The rank that hands out --------------------------------------------------------------- */

static ty_status hear(const ty_watch *watch, answer *out, ty_error *error)
{
    const size_t head = sizeof out->index + 1;
    MPI_Message message;
    MPI_Status from;
    int length = 0;
    char *bytes;
    ty_status status = wait_for(watch, TAG_ANSWER, &message, &from, error);

    if (status != TY_OK)
        return status;
    MPI_Get_count(&from, MPI_BYTE, &length);
    bytes = ty_alloc((size_t)length + 1, 1);
    if (bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    MPI_Mrecv(bytes, length, MPI_BYTE, &message, &from);
    memcpy(&out->index, bytes, sizeof out->index);
    out->letter = bytes[sizeof out->index];
    out->from = from.MPI_SOURCE;
    memmove(bytes, bytes + head, (size_t)length - head + 1);
    out->text = bytes;
    return TY_OK;
}

static uint32_t next_wanted(const ty_sweep *work, uint32_t *next)
{
    while (*next < work->count && work->is_wanted != NULL && !work->is_wanted(work->context, *next))
        ++*next;
    return *next < work->count ? (*next)++ : DONE;
}

/* Once something has failed nobody is given another piece, and those under way are heard. */
static ty_status hand_out(const ty_sweep *work, int ranks, bool *all_heard, ty_error *error)
{
    uint32_t next = 0;
    ty_status status = TY_OK;

    for (int asking = ranks - 1; asking > 0;) {
        answer heard;
        uint32_t index;
        ty_status how = hear(work->watch, &heard, error);
        if (how != TY_OK)
            return how;
        if (status == TY_OK && heard.index != DONE && heard.letter != LETTER)
            status = ty_fail(error, (ty_status)(heard.letter - LETTER), "%s", heard.text);
        else if (status == TY_OK && heard.index != DONE)
            status = work->take(work->context, heard.index, heard.text, error);
        ty_free(heard.text);
        index = status == TY_OK ? next_wanted(work, &next) : DONE;
        MPI_Send(&index, sizeof index, MPI_BYTE, heard.from, TAG_QUESTION, MPI_COMM_WORLD);
        asking -= index == DONE;
    }
    *all_heard = true;
    return status;
}

ty_status ty_sweep_over_ranks(const ty_sweep *work, ty_error *error)
{
    int rank = 0, ranks = 1;
    bool all_heard = false;
    ty_status status;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return ty_fail(error, TY_EBACKEND, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) {
        status = hand_out(work, ranks, &all_heard, error);
    } else {
        status = work_for_others(work, error);
        all_heard = status == TY_OK;
    }
    /* Else some wait for an answer for good, and the launcher ends them once this process ends. */
    if (all_heard)
        MPI_Finalize();
    return status;
}
