/*
 * Passes as CUDA graphs. A pass is dozens of launches on the stage's stream with nothing to wait
 * for in between, and the same ones whenever the same pass is made again: what changes from call to
 * call lies in memory that the launches read (batches and the loss's factor in pinned host memory,
 * weights and gradients on the device), and what makes them differ is in the key below.
 *
 * The first time a pass is queued as it is: then cuBLASLt is asked for algorithms, kernels are
 * loaded, epilogues that there are not are found out. The second time its launches are captured,
 * and from then on they are launched as one. Nothing runs during a capture, so that one that fails,
 * for whatever reason, costs nothing but itself: that pass is queued then, as ever after.
 *
 * Captures are of this thread alone (cudaStreamCaptureModeThreadLocal): other threads may allocate
 * and use NCCL meanwhile. But they must not put work on the stream that is being captured, which
 * would become part of the graph; see cuda_recording_hold.
 */
#include "cuda_stage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Passes that are told apart; more are queued. A graph takes about as much device memory as its
 * launches have arguments: some hundred KB a thousand of them. */
enum { MOST_PASSES = 512 };

typedef enum pass_state {
    PASS_NEW,
    PASS_SEEN,     /* queued once */
    PASS_RECORDED, /* `graph` is it */
    PASS_NEVER     /* cannot be recorded */
} pass_state;

typedef struct pass_entry {
    /* What makes launches differ: */
    cuda_pass pass;
    bool is_evaluating, is_timed;
    const float *parameters, *gradients; /* the sets in use */

    pass_state state;
    cudaGraphExec_t graph;
} pass_entry;

struct cuda_graphs {
    bool is_on;
    pthread_mutex_t recording;
    pass_entry *entries;
    uint32_t count, room;
    ty_device_graphs counts;
    char given_up[160];
};

/* What lanes tell each other in the middle of a pass is awaited by the host. */
static bool has_lanes(const ty_stage_device *stage)
{
    return lane_count(&stage->options) > 1 || lane_context_count(&stage->options) > 1;
}

ty_status cuda_graphs_open(ty_stage_device *stage, ty_error *error)
{
    const char *asked = getenv("TRAINYARD_CUDA_GRAPHS");
    const bool is_asked = asked == NULL || asked[0] == '\0' || strcmp(asked, "1") == 0;
    cuda_graphs *made;

    if (!is_asked && strcmp(asked, "0") != 0)
        return ty_fail(error, TY_EINVAL, "TRAINYARD_CUDA_GRAPHS: found \"%s\", expected 0 or 1",
                       asked);
    made = ty_alloc(1, sizeof *made);
    if (made == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for graphs");
    made->is_on = is_asked && !has_lanes(stage);
    pthread_mutex_init(&made->recording, NULL);
    stage->graphs = made;
    return TY_OK;
}

void cuda_graphs_free(ty_stage_device *stage)
{
    cuda_graphs *graphs = stage->graphs;

    if (graphs == NULL)
        return;
    for (uint32_t i = 0; i < graphs->count; i++)
        if (graphs->entries[i].state == PASS_RECORDED)
            cudaGraphExecDestroy(graphs->entries[i].graph);
    pthread_mutex_destroy(&graphs->recording);
    ty_free(graphs->entries);
    ty_free(graphs);
    stage->graphs = NULL;
}

void cuda_recording_hold(ty_stage_device *stage)
{
    pthread_mutex_lock(&stage->graphs->recording);
}

void cuda_recording_go_on(ty_stage_device *stage)
{
    pthread_mutex_unlock(&stage->graphs->recording);
}

ty_device_graphs cuda_graphs_counts(const ty_stage_device *stage)
{
    return stage->graphs->counts;
}

/* ---- Passes that are told apart ---- */

static bool is_same(const pass_entry *a, const pass_entry *b)
{
    return a->pass.is_forward == b->pass.is_forward && a->pass.is_again == b->pass.is_again &&
           a->pass.part == b->pass.part && a->pass.slot == b->pass.slot &&
           a->pass.first == b->pass.first && a->pass.count == b->pass.count &&
           a->pass.is_first == b->pass.is_first && a->is_evaluating == b->is_evaluating &&
           a->is_timed == b->is_timed && a->parameters == b->parameters &&
           a->gradients == b->gradients;
}

/* NULL: there is no room for another. */
static pass_entry *entry_find(ty_stage_device *stage, const cuda_pass *pass)
{
    cuda_graphs *graphs = stage->graphs;
    const pass_entry wanted = {.pass = *pass,
                               .is_evaluating = stage->is_evaluating,
                               .is_timed = stage->is_timed,
                               .parameters = stage->parameters,
                               .gradients = stage->gradients};

    for (uint32_t i = 0; i < graphs->count; i++)
        if (is_same(&graphs->entries[i], &wanted))
            return &graphs->entries[i];
    if (graphs->count == MOST_PASSES)
        return NULL;
    if (graphs->count == graphs->room) {
        const uint32_t room = graphs->room == 0 ? 32 : 2 * graphs->room;
        pass_entry *grown = ty_resize(graphs->entries, room, sizeof *grown);
        if (grown == NULL)
            return NULL;
        graphs->entries = grown;
        graphs->room = room;
    }
    graphs->entries[graphs->count] = wanted;
    return &graphs->entries[graphs->count++];
}

/* ---- Recording ---- */

/* Between its begin and its end a capture takes what this thread puts on the stream. A launch that
 * was refused meanwhile is not in the graph, which then is not the pass. */
static ty_status capture(ty_stage_device *stage, const cuda_pass *pass, cuda_pass_queue *queue,
                         cudaGraph_t *out, ty_error *error)
{
    cudaError_t ended;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaStreamBeginCapture(stage->stream, cudaStreamCaptureModeThreadLocal), status,
               done);
    stage->is_recording = true;
    status = queue(stage, pass, error);
    stage->is_recording = false;
    ended = cudaStreamEndCapture(stage->stream, out);
    if (status == TY_OK && ended != cudaSuccess)
        status = cuda_fail(error, "cudaStreamEndCapture", ended);
    if (status == TY_OK)
        CUDA_CHECK(cudaGetLastError(), status, done);
done:
    return status;
}

static ty_status record(ty_stage_device *stage, const cuda_pass *pass, cuda_pass_queue *queue,
                        cudaGraphExec_t *out, ty_error *error)
{
    cudaGraph_t graph = NULL;
    ty_status status;

    cuda_recording_hold(stage);
    status = capture(stage, pass, queue, &graph, error);
    cuda_recording_go_on(stage);
    if (status == TY_OK)
        CUDA_CHECK(cudaGraphInstantiateWithFlags(out, graph, 0), status, done);
done:
    if (graph != NULL)
        cudaGraphDestroy(graph);
    (void)cudaGetLastError(); /* of what failed; it is told by the status */
    return status;
}

static void give_up(cuda_graphs *graphs, pass_entry *entry, const ty_error *reason)
{
    if (entry->state == PASS_RECORDED) {
        cudaGraphExecDestroy(entry->graph);
        graphs->counts.count--;
    }
    entry->state = PASS_NEVER;
    if (graphs->counts.given_up != NULL)
        return;
    snprintf(graphs->given_up, sizeof graphs->given_up, "%.*s", (int)sizeof graphs->given_up - 1,
             reason->message);
    graphs->counts.given_up = graphs->given_up;
}

/* Whether the pass is under way as a graph. */
static bool replay(ty_stage_device *stage, const cuda_pass *pass, cuda_pass_queue *queue,
                   pass_entry *entry)
{
    cuda_graphs *graphs = stage->graphs;
    ty_error reason = {0};
    ty_error *error = &reason;
    ty_status status = TY_OK;

    if (entry->state == PASS_SEEN) {
        TY_CHECK(record(stage, pass, queue, &entry->graph, error), status, failed);
        entry->state = PASS_RECORDED;
        graphs->counts.count++;
    }
    if (entry->state != PASS_RECORDED)
        return false;
    CUDA_CHECK(cudaGraphLaunch(entry->graph, stage->stream), status, failed);
    graphs->counts.replays++;
    return true;
failed:
    give_up(graphs, entry, error);
    return false;
}

ty_status cuda_pass_run(ty_stage_device *stage, const cuda_pass *pass, cuda_pass_queue *queue,
                        ty_error *error)
{
    cuda_graphs *graphs = stage->graphs;
    pass_entry *entry =
        graphs->is_on && !stage->waits_inside && pass->count > 0 ? entry_find(stage, pass) : NULL;
    ty_status status;

    if (entry != NULL && replay(stage, pass, queue, entry))
        return TY_OK;
    graphs->counts.queued++;
    status = queue(stage, pass, error);
    if (entry != NULL && entry->state == PASS_NEW && status == TY_OK)
        entry->state = PASS_SEEN;
    return status;
}
