/*
 * Passes as CUDA graphs. A pass is dozens of launches on the stage's stream without waits in
 * between, and a repeated pass has the same launches. Inputs that change from call to call are in
 * memory that the launches read: batches and the loss's factor in pinned host memory, weights and
 * gradients on the device. All else that changes launches is in the key below.
 *
 * The first run of a pass is queued: it queries cuBLASLt for algorithms, loads kernels and detects
 * unsupported epilogues. The second run captures the launches; from then on the graph is launched.
 * Nothing runs during a capture, so a failed one has no side effects: that pass is queued then and
 * ever after.
 *
 * Collectives inside a pass become a part of its graph if the link records
 * (ty_parallel_group.record). Then ranks must act alike: they agree on whether a pass is a graph
 * and launch it together, and a rank that cannot launch it ends the run.
 *
 * A capture affects only this thread (cudaStreamCaptureModeThreadLocal): other threads may allocate
 * and use NCCL meanwhile. But they must not queue work on the captured stream, as it would become
 * part of the graph; see cuda_recording_hold.
 */
#include "cuda_stage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Passes with a graph at most; others are queued. A graph takes about as much device memory as the
 * arguments of its launches: some hundred KB per thousand launches. */
enum { MOST_PASSES = 8192 };

typedef enum pass_state {
    PASS_NEW,
    PASS_SEEN,     /* queued once */
    PASS_RECORDED, /* in `graph` */
    PASS_NEVER     /* cannot be recorded */
} pass_state;

typedef struct pass_entry {
    /* Key of the launches: */
    stage_pass pass;
    bool is_evaluating, is_timed;
    const float *parameters, *gradients; /* the sets in use */

    pass_state state;
    bool has_exchanges; /* collectives of ranks */
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

static bool is_parallel(const ty_stage_device *stage)
{
    return tp_size_of(&stage->options) > 1 || cp_size_of(&stage->options) > 1;
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
    TY_TRY(ty_check_memory(made != NULL, error));
    made->is_on = is_asked && (!is_parallel(stage) || stage->options.parallel.record != NULL);
    pthread_mutex_init(&made->recording, NULL);
    stage->own->graphs = made;
    return TY_OK;
}

void cuda_graphs_drop(ty_stage_device *stage)
{
    cuda_graphs *graphs = stage->own->graphs;

    for (uint32_t i = 0; i < graphs->count; i++) {
        pass_entry *entry = &graphs->entries[i];
        if (entry->state == PASS_RECORDED)
            cudaGraphExecDestroy(entry->graph);
        entry->state = PASS_NEVER;
    }
}

void cuda_graphs_free(ty_stage_device *stage)
{
    cuda_graphs *graphs = stage->own->graphs;

    if (graphs == NULL)
        return;
    cuda_graphs_drop(stage);
    pthread_mutex_destroy(&graphs->recording);
    ty_free(graphs->entries);
    ty_free(graphs);
    stage->own->graphs = NULL;
}

void cuda_recording_hold(ty_stage_device *stage)
{
    pthread_mutex_lock(&stage->own->graphs->recording);
}

void cuda_recording_go_on(ty_stage_device *stage)
{
    pthread_mutex_unlock(&stage->own->graphs->recording);
}

ty_device_graphs cuda_graphs_counts(const ty_stage_device *stage)
{
    return stage->own->graphs->counts;
}

/* ---- Table of passes --------------- */

static bool is_same(const pass_entry *a, const pass_entry *b)
{
    return a->pass.is_forward == b->pass.is_forward && a->pass.is_again == b->pass.is_again &&
           a->pass.part == b->pass.part && a->pass.slot == b->pass.slot &&
           a->pass.first == b->pass.first && a->pass.count == b->pass.count &&
           a->pass.is_first == b->pass.is_first && a->is_evaluating == b->is_evaluating &&
           a->is_timed == b->is_timed && a->parameters == b->parameters &&
           a->gradients == b->gradients;
}

/* NULL if the table is full. */
static ty_status entry_find(ty_stage_device *stage, const stage_pass *pass, pass_entry **out,
                            ty_error *error)
{
    cuda_graphs *graphs = stage->own->graphs;
    const pass_entry wanted = {.pass = *pass,
                               .is_evaluating = stage->is_evaluating,
                               .is_timed = stage->own->is_timed,
                               .parameters = stage->parameters,
                               .gradients = stage->gradients};

    *out = NULL;
    for (uint32_t i = 0; i < graphs->count && *out == NULL; i++)
        if (is_same(&graphs->entries[i], &wanted))
            *out = &graphs->entries[i];
    if (*out != NULL || graphs->count == MOST_PASSES)
        return TY_OK;
    if (graphs->count == graphs->room) {
        const uint32_t room = graphs->room == 0 ? 32 : 2 * graphs->room;
        pass_entry *grown = ty_resize(graphs->entries, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        graphs->entries = grown;
        graphs->room = room;
    }
    graphs->entries[graphs->count] = wanted;
    *out = &graphs->entries[graphs->count++];
    return TY_OK;
}

/* ---- Recording ---- */

/* A capture records the work that this thread queues on the stream between its begin and end. A
 * launch that failed meanwhile is missing from the graph, which is incomplete then. */
static ty_status capture(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
                         cudaGraph_t *out, ty_error *error)
{
    cudaError_t ended;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaStreamBeginCapture(stage->own->stream, cudaStreamCaptureModeThreadLocal), status,
               done);
    stage->own->is_recording = true;
    status = queue(stage, pass, error);
    stage->own->is_recording = false;
    ended = cudaStreamEndCapture(stage->own->stream, out);
    if (status == TY_OK && ended != cudaSuccess)
        status = cuda_fail(error, "cudaStreamEndCapture", ended);
    if (status == TY_OK)
        CUDA_CHECK(cudaGetLastError(), status, done);
done:
    return status;
}

static ty_status record(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
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
    (void)cudaGetLastError(); /* clears the error, which the status reports */
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

/* Whether all ranks have recorded the pass; else none launches it. */
static ty_status agree(ty_stage_device *stage, bool *is_recorded, ty_error *error)
{
    ty_status status = cuda_ranks_agree(stage, TY_TENSOR_PARALLEL, is_recorded, error);

    return status == TY_OK ? cuda_ranks_agree(stage, TY_CONTEXT_PARALLEL, is_recorded, error)
                           : status;
}

/* Records the second run of a pass. If one rank cannot record it, no rank launches it. */
static ty_status recording_make(ty_stage_device *stage, const stage_pass *pass,
                                cuda_pass_queue *queue, pass_entry *entry, ty_error *error)
{
    ty_error reason = {0};
    bool is_recorded;

    stage->own->recorded_exchanges = 0;
    is_recorded = record(stage, pass, queue, &entry->graph, &reason) == TY_OK;
    entry->has_exchanges = stage->own->recorded_exchanges > 0;
    if (is_recorded) {
        entry->state = PASS_RECORDED;
        stage->own->graphs->counts.count++;
    }
    TY_TRY(agree(stage, &is_recorded, error));
    if (is_recorded)
        return TY_OK;
    if (reason.message[0] == '\0')
        (void)ty_fail(&reason, TY_EBACKEND, "another rank could not record it");
    give_up(stage->own->graphs, entry, &reason);
    return TY_OK;
}

static ty_status graph_launch(ty_stage_device *stage, void *graph, ty_error *error)
{
    ty_status status = TY_OK;

    CUDA_CHECK(cudaGraphLaunch(graph, stage->own->stream), status, done);
done:
    return status;
}

/* Whether the pass was launched as a graph, or, with collectives in it, has ended. */
static ty_status replay(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
                        pass_entry *entry, bool *is_under_way, ty_error *error)
{
    const ty_parallel_group *parallel = &stage->options.parallel;
    ty_error reason = {0};

    *is_under_way = false;
    if (entry->state == PASS_SEEN)
        TY_TRY(recording_make(stage, pass, queue, entry, error));
    if (entry->state != PASS_RECORDED)
        return TY_OK;
    if (entry->has_exchanges) {
        TY_TRY(parallel->launch(parallel->context, stage, graph_launch, entry->graph, error));
    } else if (graph_launch(stage, entry->graph, &reason) != TY_OK) {
        give_up(stage->own->graphs, entry, &reason);
        return TY_OK;
    }
    stage->own->graphs->counts.replays++;
    *is_under_way = true;
    return TY_OK;
}

ty_status cuda_pass_run(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
                        ty_error *error)
{
    cuda_graphs *graphs = stage->own->graphs;
    pass_entry *entry = NULL;
    bool is_under_way = false;
    ty_status status = TY_OK;

    if (graphs->is_on && !stage->own->waits_inside && pass->count > 0)
        TY_CHECK(entry_find(stage, pass, &entry, error), status, done);
    if (entry != NULL)
        TY_CHECK(replay(stage, pass, queue, entry, &is_under_way, error), status, done);
    if (is_under_way)
        return TY_OK;
    graphs->counts.queued++;
    status = queue(stage, pass, error);
    if (entry != NULL && entry->state == PASS_NEW && status == TY_OK)
        entry->state = PASS_SEEN;
done:
    return status;
}
