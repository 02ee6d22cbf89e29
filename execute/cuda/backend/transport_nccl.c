/*
 * Communication between GPUs by NCCL. MPI (or any other transport of the ranks) distributes the
 * identifiers. Then each pair of ranks has a communicator per direction, and so has each set of
 * ranks that share a bucket. Each communicator has its own stream, so that none waits for another.
 *
 * An NCCL kernel spins on its GPU until the kernels of all members run. If launched too early, it
 * may block the kernel that its own peer waits for. So no kernel is launched before all members
 * have reported over the transport that they are ready, and all devices launch in one order
 * (launch_order.h). The lowest member of a communicator leads. Each member reports to the leader
 * when it reaches an operation. When all have, the leader requests stamps from them, then sends
 * them the latest stamp, and they launch by it. With two members the second decides: its answer is
 * the operation's stamp. A communicator has one operation at a time. It follows:
 * - A running kernel only waits for threads that serve links (nccl_advance), and these wait for no
 *   NCCL kernel: everything that such a thread uses is allocated, connected and loaded before.
 * - The first unfinished operation in the order waits for no other operation on any device,
 *   whatever streams share a hardware queue.
 * - A rank that receives notices from a peer detects the end of its process; NCCL itself may spin
 *   forever.
 *
 * NCCL has no tags: it matches messages of a communicator by their order, which both programs fix.
 * A message posted too early waits here for its turn. Creating a communicator, and connecting its
 * ranks on first use, waits for all members. That runs in a thread of NCCL, since a call that waits
 * for a dead peer never returns, while polling detects it. So opening the link uses each
 * communicator once, in the same order on all ranks, first buckets, then pairs, which prevents
 * deadlock.
 *
 * Collectives inside a pass may be recorded with it (cuda_graph.c). Then the entire pass is one
 * operation of all ranks of a stage replica. It has its turn and place in the order like any other,
 * and no other operation is launched between its kernels. A graph references its communicators, so
 * it is destroyed before them.
 */
#include "cuda_stage.h"
#include "device_link.h"

#include <stdio.h>

/* Notices may arrive at any time: no other message may use their tag. */
enum { ID_TAG = 9, NOTICE_TAG = 13, INDEX_TAG = 11 };

/* Streaming multiprocessors per communicator: many are open at once, and compute needs the rest. */
enum { PAIR_BLOCKS = 2, GROUP_BLOCKS = 8 };

typedef struct channel channel;

/* Progress of a channel's current operation. */
typedef enum channel_step {
    STEP_POSTED,    /* not reported yet */
    STEP_READY,     /* member: reported ready; leader: requested all stamps */
    STEP_STAMP_DUE, /* a member has a stamp to send */
    STEP_STAMPED,   /* and sent it */
    STEP_GO_DUE,    /* the leader has the latest stamp to send */
    STEP_DECIDED,   /* launched when its turn comes */
    STEP_LAUNCHED,
} channel_step;

typedef struct nccl_request {
    ty_transfer transfer;          /* of a pair */
    ty_collective_options options; /* of a group */
    ty_stage_device *stage;        /* of passes: function, pass, and stage with the stream */
    ty_parallel_run *run;
    void *argument;
    struct nccl_request *next; /* on the same channel; messages in their order */
    bool is_done;
} nccl_request;

struct channel {       /* one communicator */
    bool is_of_passes; /* all ranks of a stage replica, for recorded passes; no communicator */
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event;
    uint32_t blocks;   /* multiprocessors for its kernels */
    uint32_t *members; /* ranks; of a pair: the sender, then the receiver */
    uint32_t *theirs;  /* the channel's number at each member that gets notices */
    uint32_t member_count, position, leader; /* leader: position of the lowest rank */
    ty_direction direction;                  /* TY_NO_DIRECTION: a group */
    uint64_t order;                          /* of the next message */

    nccl_request *waiting; /* the first is next */
    nccl_request *current; /* NULL: no operation requested or launched */
    channel_step step;     /* of the current one */
    ty_launch launch;      /* with its place in the order */
    /* For the leader: members ready for the next operation; for the current one, the number of
     * stamps received, and the latest. */
    uint32_t ready_count, stamp_count;
    uint64_t latest;
};

/* Notices of a channel: a member is ready for the next operation; the leader requests a stamp and
 * sends its own; a member sends its stamp; the leader sends the operation's. */
typedef enum notice_kind { NOTICE_READY, NOTICE_ASK, NOTICE_STAMP, NOTICE_GO } notice_kind;

typedef struct notice {
    uint32_t channel; /* the receiver's number of the channel */
    uint32_t kind;
    uint64_t stamp;
} notice;

typedef struct nccl_peer { /* a process that shares a channel with this one */
    uint32_t rank;
    notice heard;
    ty_request *listening;
} nccl_peer;

typedef struct nccl_told { /* a notice in transit; its address is fixed */
    notice said;
    ty_request *request; /* NULL: free */
} nccl_told;

typedef struct nccl_state {
    ty_link_options options;
    const cuda_nccl *nccl;
    ty_launch_order *order; /* of the stage, shared with other links of the process */
    channel *channels;
    uint32_t count;
    nccl_peer *peers;
    uint32_t peer_count;
    nccl_told *told; /* [told_count], two per member of each channel */
    uint32_t told_count;
    bool is_broken;
    ty_stage_device **recorded; /* [recorded_count]: stages whose graphs use these communicators */
    uint32_t recorded_count;
    void *probe;   /* device memory for the first use: one number per process */
    char *staging; /* copy of the data sent in an all-to-all, since the memory itself receives */
} nccl_state;

static ty_status nccl_fail(const nccl_state *state, ty_error *error, const char *call,
                           ncclResult_t code)
{
    return ty_fail(error, TY_EBACKEND, "%s: %s", call, state->nccl->ncclGetErrorString(code));
}

#define NCCL_CHECK(call, status, label)                                                            \
    do {                                                                                           \
        ncclResult_t code_ = (call);                                                               \
        if (code_ != ncclSuccess) {                                                                \
            (status) = nccl_fail(state, error, #call, code_);                                      \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* Waits for an NCCL call that may stay in progress (ncclInProgress) until all members have
 * joined. */
#define NCCL_SETTLE(c, call, status, label)                                                        \
    do {                                                                                           \
        ncclResult_t code_ = (call);                                                               \
        if (code_ != ncclSuccess) {                                                                \
            (status) = settle(state, c, #call, code_, error);                                      \
            if ((status) != TY_OK)                                                                 \
                goto label;                                                                        \
        }                                                                                          \
    } while (0)

static ty_status notices_advance(nccl_state *state, bool *is_moved, ty_error *error);

/* Waits until the call is done, or a peer has ended. */
static ty_status settle(nccl_state *state, const channel *c, const char *call, ncclResult_t code,
                        ty_error *error)
{
    ty_backoff backoff = {0};
    ty_status status = TY_OK;

    while (code == ncclInProgress) {
        bool is_moved = false;

        TY_CHECK(notices_advance(state, &is_moved, error), status, done);
        ty_backoff_wait(&backoff);
        NCCL_CHECK(state->nccl->ncclCommGetAsyncError(c->comm, &code), status, done);
    }
    if (code != ncclSuccess)
        status = nccl_fail(state, error, call, code);
done:
    return status;
}

/* ---- Which communicators there are ---- */

static channel *channel_find(const nccl_state *state, const uint32_t *members, uint32_t count,
                             ty_direction direction)
{
    for (uint32_t c = 0; c < state->count; c++) {
        channel *found = &state->channels[c];
        if (!found->is_of_passes && found->member_count == count && found->direction == direction &&
            memcmp(found->members, members, count * sizeof *members) == 0)
            return found;
    }
    return NULL;
}

static ty_status channel_make(nccl_state *state, const uint32_t *members, uint32_t count,
                              ty_direction direction, ty_error *error)
{
    channel *grown, *made;

    grown = ty_resize(state->channels, state->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    state->channels = grown;
    made = &grown[state->count];
    *made = (channel){.member_count = count, .direction = direction};
    state->count++;
    made->members = ty_alloc(count, sizeof *made->members);
    made->theirs = ty_alloc(count, sizeof *made->theirs);
    TY_TRY(ty_check_memory(made->members != NULL && made->theirs != NULL, error));
    memcpy(made->members, members, count * sizeof *members);
    while (made->members[made->position] != state->options.transport->rank)
        made->position++;
    for (uint32_t m = 1; m < count; m++)
        if (members[m] < members[made->leader])
            made->leader = m;
    return TY_OK;
}

/* Adds a channel unless it exists. */
static ty_status channel_add(nccl_state *state, const uint32_t *members, uint32_t count,
                             ty_direction direction, ty_error *error)
{
    return channel_find(state, members, count, direction) != NULL
               ? TY_OK
               : channel_make(state, members, count, direction, error);
}

static bool is_member(const uint32_t *members, uint32_t count, uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++)
        if (members[i] == rank)
            return true;
    return false;
}

/* Stage replica of this or another process; communicators connect processes. */
static uint32_t replica_of(const nccl_state *state, uint32_t rank)
{
    return rank / ty_plan_replica_ranks(state->options.plan);
}

/* Process with this one's rank inside a stage replica. */
static uint32_t rank_of(const nccl_state *state, uint32_t stage_replica)
{
    const uint32_t width = ty_plan_replica_ranks(state->options.plan);

    return stage_replica * width + state->options.transport->rank % width;
}

/* Process groups of this process inside passes: one per kind of parallelism, then one with all
 * ranks of the stage replica, which run passes together. */
static ty_status parallel_groups_list(nccl_state *state, ty_error *error)
{
    const ty_plan *plan = state->options.plan;
    const uint32_t width = ty_plan_replica_ranks(plan), own = state->options.transport->rank;
    uint32_t *members = ty_alloc(width, sizeof *members);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(members != NULL, error));
    for (ty_parallelism k = 0; k < TY_PARALLELISM_COUNT && status == TY_OK; k++) {
        const uint32_t count = ty_plan_parallel_size(plan, k);

        for (uint32_t n = 0; n < count; n++)
            members[n] = own / width * width + ty_plan_rank_along(plan, k, own % width, n);
        if (count > 1)
            status = channel_add(state, members, count, TY_NO_DIRECTION, error);
    }
    for (uint32_t rank = 0; rank < width; rank++)
        members[rank] = own / width * width + rank;
    if (status == TY_OK)
        status = channel_make(state, members, width, TY_NO_DIRECTION, error);
    if (status == TY_OK)
        state->channels[state->count - 1].is_of_passes = true;
    ty_free(members);
    return status;
}

static ty_status groups_list(nccl_state *state, ty_error *error)
{
    const ty_plan *plan = state->options.plan;
    const uint32_t replica_rank = state->options.transport->rank % ty_plan_replica_ranks(plan);
    uint32_t *members = ty_alloc(ty_plan_rank_count(plan), sizeof *members);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(members != NULL, error));
    for (uint32_t b = 0; b < plan->bucket_count && status == TY_OK; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const uint32_t group = ty_bucket_group_of(plan, bucket, replica_rank);
        const uint32_t count = ty_bucket_ranks(plan, bucket, group, members);

        if (count > 1 && is_member(members, count, state->options.transport->rank))
            status = channel_add(state, members, count, TY_NO_DIRECTION, error);
    }
    ty_free(members);
    return status;
}

/* Sender and receiver of a send or recv of this rank. */
static void pair_of(const nccl_state *state, const ty_instruction *transfer, uint32_t pair[2])
{
    uint32_t own = state->options.transport->rank;
    uint32_t peer = rank_of(
        state, ty_program_peer_replica(state->options.plan, replica_of(state, own), transfer));
    bool is_send = transfer->op == TY_OP_SEND;

    pair[0] = is_send ? own : peer;
    pair[1] = is_send ? peer : own;
}

static const ty_stage_program *own_program(const nccl_state *state)
{
    uint32_t stage = ty_plan_stage_of_replica(state->options.plan,
                                              replica_of(state, state->options.transport->rank));

    return &state->options.program->stages[stage];
}

/* Orders groups before pairs, and both by their ranks, so that all ranks agree on the order. */
static int pair_compare(const void *x, const void *y)
{
    const channel *a = x, *b = y;
    uint32_t a_low = a->members[0] < a->members[1] ? a->members[0] : a->members[1];
    uint32_t b_low = b->members[0] < b->members[1] ? b->members[0] : b->members[1];
    uint32_t a_high = a->members[0] + a->members[1] - a_low;
    uint32_t b_high = b->members[0] + b->members[1] - b_low;

    if (a_low != b_low)
        return a_low < b_low ? -1 : 1;
    if (a_high != b_high)
        return a_high < b_high ? -1 : 1;
    return (int)a->direction - (int)b->direction;
}

static ty_status pairs_list(nccl_state *state, ty_error *error)
{
    const ty_stage_program *program = own_program(state);
    uint32_t groups = state->count;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < program->instruction_count && status == TY_OK; i++) {
        const ty_instruction *transfer = &program->instructions[i];
        uint32_t pair[2];

        if (transfer->op != TY_OP_SEND && transfer->op != TY_OP_RECEIVE)
            continue;
        pair_of(state, transfer, pair);
        status = channel_add(state, pair, 2, transfer->direction, error);
    }
    if (status == TY_OK && state->count > groups)
        qsort(state->channels + groups, state->count - groups, sizeof *state->channels,
              pair_compare);
    return status;
}

/* ---- Whether both ends of a pair move messages in one order ---- */

typedef struct message {
    uint32_t cut, micro_batch, step; /* cut: the stage after it; UINT32_MAX: none */
} message;

static bool is_on(const nccl_state *state, const channel *c, uint32_t rank, const ty_instruction *t)
{
    bool is_sender = rank == c->members[0];
    uint32_t peer = replica_of(state, c->members[is_sender ? 1 : 0]);

    return t->op == (is_sender ? TY_OP_SEND : TY_OP_RECEIVE) && t->direction == c->direction &&
           ty_program_peer_replica(state->options.plan, replica_of(state, rank), t) == peer;
}

/* The `index`-th message that a process sends or receives on the channel within the steps that its
 * streams repeat. */
static message message_at(const nccl_state *state, const channel *c, uint32_t rank, uint32_t steps,
                          uint64_t index)
{
    const ty_plan *plan = state->options.plan;
    uint32_t stage = ty_plan_stage_of_replica(plan, replica_of(state, rank));
    uint32_t replica = replica_of(state, rank) - ty_plan_first_replica(plan, stage);
    const ty_stage_program *program = &state->options.program->stages[stage];

    for (int64_t round = -(int64_t)steps; round < (int64_t)steps; round++)
        for (uint32_t i = 0; i < program->instruction_count; i++) {
            const ty_instruction *t = &program->instructions[i];
            int64_t step = round + t->lead;

            if (step < 0 || step >= (int64_t)steps || !is_on(state, c, rank, t))
                continue;
            if (index-- == 0)
                return (message){
                    t->stage > t->peer_stage ? t->stage : t->peer_stage,
                    ty_program_global_micro_batch(plan, t->stage, replica, t->micro_batch),
                    (uint32_t)step};
        }
    return (message){UINT32_MAX, 0, 0};
}

static ty_status order_check(const nccl_state *state, const channel *c, ty_error *error)
{
    const uint32_t steps = ty_program_largest_lead(state->options.program) + 2;
    message sent = {0, 0, 0}, received;

    for (uint64_t i = 0; sent.cut != UINT32_MAX; i++) {
        sent = message_at(state, c, c->members[0], steps, i);
        received = message_at(state, c, c->members[1], steps, i);
        if (sent.cut != received.cut || sent.micro_batch != received.micro_batch ||
            sent.step != received.step)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "process %u sends micro-batch %u to stage %u where process %u receives "
                           "%u for stage %u: NCCL needs one order (TRAINYARD_LINK=host does not)",
                           c->members[0], sent.micro_batch, sent.cut, c->members[1],
                           received.micro_batch, received.cut);
    }
    return TY_OK;
}

/* ---- All-to-all, which NCCL has as messages ---- */

/* Consecutive shards. This member's own shard is copied. An empty shard sends one unused byte, so
 * that all members launch a kernel, in the same order on all devices.
 */
static ty_status unequal_parts_start(nccl_state *state, const channel *c,
                                     const ty_collective_options *options, uint64_t size,
                                     ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    const char *sent = options->data;
    char *received = options->received;
    uint64_t sent_before = 0, received_before = 0;
    ncclResult_t code = ncclSuccess;
    ty_status status = TY_OK;

    for (uint32_t p = 0; p < c->position; p++) {
        sent_before += options->sent_counts[p] * size;
        received_before += options->received_counts[p] * size;
    }
    CUDA_CHECK(cudaMemcpyAsync(received + received_before, sent + sent_before,
                               options->sent_counts[c->position] * size, cudaMemcpyDeviceToDevice,
                               c->stream),
               status, done);
    NCCL_CHECK(nccl->ncclGroupStart(), status, done);
    for (uint32_t p = 0; p < c->member_count && code == ncclSuccess; p++) {
        const uint64_t out = options->sent_counts[p] * size,
                       in = options->received_counts[p] * size;

        if (p != c->position)
            code = nccl->ncclSend(out > 0 ? sent : (char *)state->probe, out > 0 ? out : 1,
                                  ncclChar, (int)p, c->comm, c->stream);
        if (p != c->position && code == ncclSuccess)
            code = nccl->ncclRecv(in > 0 ? received : state->staging + p, in > 0 ? in : 1, ncclChar,
                                  (int)p, c->comm, c->stream);
        sent += out;
        received += in;
    }
    NCCL_SETTLE(c, nccl->ncclGroupEnd(), status, done);
    NCCL_CHECK(code, status, done);
done:
    return status;
}

/* In place: part p goes to member p, and its place receives member p's part for this one. */
static ty_status all_to_all_start(nccl_state *state, const channel *c, char *data, uint64_t bytes,
                                  ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    ncclResult_t code = ncclSuccess;
    ty_status status = TY_OK;

    if (bytes * c->member_count > state->options.all_to_all_bytes)
        return ty_fail(error, TY_EINVAL, "an all-to-all of %llu bytes, expected at most %llu",
                       (unsigned long long)(bytes * c->member_count),
                       (unsigned long long)state->options.all_to_all_bytes);
    CUDA_CHECK(cudaMemcpyAsync(state->staging, data, bytes * c->member_count,
                               cudaMemcpyDeviceToDevice, c->stream),
               status, done);
    NCCL_CHECK(nccl->ncclGroupStart(), status, done);
    for (uint32_t p = 0; p < c->member_count && code == ncclSuccess; p++) {
        if (p == c->position)
            continue;
        code =
            nccl->ncclSend(state->staging + p * bytes, bytes, ncclChar, (int)p, c->comm, c->stream);
        if (code == ncclSuccess)
            code = nccl->ncclRecv(data + p * bytes, bytes, ncclChar, (int)p, c->comm, c->stream);
    }
    NCCL_SETTLE(c, nccl->ncclGroupEnd(), status, done);
    NCCL_CHECK(code, status, done);
done:
    return status;
}

/* ---- Opening ---- */

static ty_status id_share(const nccl_state *state, const channel *c, ncclUniqueId *id,
                          ty_error *error)
{
    ty_transport *transport = state->options.transport;
    ty_status status = TY_OK;

    if (c->position != 0)
        return ty_transport_receive(transport, c->members[0], ID_TAG, id, sizeof *id, error);
    NCCL_CHECK(state->nccl->ncclGetUniqueId(id), status, done);
    for (uint32_t i = 1; i < c->member_count; i++)
        TY_CHECK(ty_transport_send(transport, c->members[i], ID_TAG, id, sizeof *id, error), status,
                 done);
done:
    return status;
}

/* Shares the channel's numbers between its leader and its members. */
static ty_status indices_share(const nccl_state *state, channel *c, ty_error *error)
{
    ty_transport *transport = state->options.transport;
    const uint32_t own = (uint32_t)(c - state->channels);

    for (uint32_t m = 0; m < c->member_count; m++) {
        if (m == c->position || (c->position != c->leader && m != c->leader))
            continue;
        TY_TRY(ty_transport_send(transport, c->members[m], INDEX_TAG, &own, sizeof own, error));
        TY_TRY(ty_transport_receive(transport, c->members[m], INDEX_TAG, &c->theirs[m],
                                    sizeof c->theirs[m], error));
    }
    return TY_OK;
}

/* Name of a channel for all members: its leader's process, and the leader's number for it. */
static uint64_t launch_name(const nccl_state *state, const channel *c)
{
    const uint64_t own = (uint64_t)(c - state->channels);
    const uint64_t number = c->position == c->leader ? own : c->theirs[c->leader];

    return (uint64_t)c->members[c->leader] << 32 | number << 1 | state->options.is_inside_replica;
}

/* As cudaStreamSynchronize, which would wait forever for an ended peer. */
static ty_status probe_wait(nccl_state *state, const channel *c, ty_error *error)
{
    ty_backoff backoff = {0};
    cudaError_t code;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaEventRecord(c->event, c->stream), status, done);
    while ((code = cudaEventQuery(c->event)) == cudaErrorNotReady) {
        bool is_moved = false;

        (void)cudaGetLastError();
        TY_CHECK(notices_advance(state, &is_moved, error), status, done);
        ty_backoff_wait(&backoff);
    }
    CUDA_CHECK(code, status, done);
done:
    return status;
}

/* Runs every kind of collective once, with one number per member. */
static ty_status group_probe(nccl_state *state, const channel *c, ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    float *all = state->probe, *own = all + c->position;
    ty_status status = TY_OK;

    NCCL_SETTLE(
        c, nccl->ncclAllReduce(all, all, c->member_count, ncclFloat, ncclSum, c->comm, c->stream),
        status, done);
    TY_CHECK(probe_wait(state, c, error), status, done);
    NCCL_SETTLE(c, nccl->ncclReduceScatter(all, own, 1, ncclFloat, ncclSum, c->comm, c->stream),
                status, done);
    TY_CHECK(probe_wait(state, c, error), status, done);
    NCCL_SETTLE(c, nccl->ncclAllGather(own, all, 1, ncclFloat, c->comm, c->stream), status, done);
    TY_CHECK(probe_wait(state, c, error), status, done);
    NCCL_SETTLE(c, nccl->ncclReduce(all, all, 1, ncclFloat, ncclSum, 0, c->comm, c->stream), status,
                done);
    TY_CHECK(probe_wait(state, c, error), status, done);
    NCCL_SETTLE(c, nccl->ncclBroadcast(all, all, 1, ncclFloat, 0, c->comm, c->stream), status,
                done);
    TY_CHECK(probe_wait(state, c, error), status, done);
    if (state->options.all_to_all_bytes > 0)
        TY_CHECK(all_to_all_start(state, c, state->probe, 1, error), status, done);
    TY_CHECK(probe_wait(state, c, error), status, done);
done:
    return status;
}

static ty_status pair_probe(nccl_state *state, const channel *c, ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    ty_status status = TY_OK;

    if (c->position == 0)
        NCCL_SETTLE(c, nccl->ncclSend(state->probe, 1, ncclChar, 1, c->comm, c->stream), status,
                    done);
    else
        NCCL_SETTLE(c, nccl->ncclRecv(state->probe, 1, ncclChar, 0, c->comm, c->stream), status,
                    done);
    TY_CHECK(probe_wait(state, c, error), status, done);
done:
    return status;
}

/* Its kernels have priority, since other GPUs wait for them too. */
static ty_status stream_open(channel *c, ty_error *error)
{
    int least = 0, greatest = 0;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), status, done);
    CUDA_CHECK(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest), status,
               done);
    CUDA_CHECK(cudaEventCreateWithFlags(&c->event, cudaEventDisableTiming), status, done);
done:
    return status;
}

static ty_status channel_open(nccl_state *state, channel *c, ty_error *error)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ty_status status;

    if (c->is_of_passes) {
        TY_CHECK(indices_share(state, c, error), status, done);
        c->launch.name = launch_name(state, c);
        CUDA_CHECK(cudaEventCreateWithFlags(&c->event, cudaEventDisableTiming), status, done);
        return TY_OK;
    }
    config.blocking = 0;
    c->blocks = c->direction == TY_NO_DIRECTION ? GROUP_BLOCKS : PAIR_BLOCKS;
    config.maxCTAs = (int)c->blocks;
    state->options.stage->own->link_blocks += c->blocks;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = state->options.is_inside_replica ? "lanes" : "ranks";
#endif
    TY_CHECK(id_share(state, c, &id, error), status, done);
    TY_CHECK(indices_share(state, c, error), status, done);
    c->launch.name = launch_name(state, c);
    TY_CHECK(stream_open(c, error), status, done);
    NCCL_SETTLE(c,
                state->nccl->ncclCommInitRankConfig(&c->comm, (int)c->member_count, id,
                                                    (int)c->position, &config),
                status, done);
    status = c->direction == TY_NO_DIRECTION ? group_probe(state, c, error)
                                             : pair_probe(state, c, error);
done:
    return status;
}

/* Makes each rank a separate host for NCCL, which otherwise refuses two ranks on one GPU. */
static void shared_gpu_configure(uint32_t rank)
{
    char host[32];

    snprintf(host, sizeof host, "rank%u", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MAX_NCHANNELS", "2", 0);
    setenv("NCCL_PROTO", "Simple", 0);
}

/* At most one thread sleeps in the order, where no notice wakes it. */
static void order_leave(const nccl_state *state, const channel *c)
{
    const ty_stage_device *stage = state->options.stage;

    if (ty_launch_leave(state->order, &c->launch) && state->options.ring == NULL &&
        stage->own->launch_ring != NULL)
        stage->own->launch_ring(stage->own->launch_ring_context);
}

/* NCCL frees a communicator only after all graphs that use it. */
static void recorded_drop(const nccl_state *state)
{
    for (uint32_t s = 0; s < state->recorded_count; s++)
        cuda_graphs_drop(state->recorded[s]);
}

/* Aborts running operations: their kernels wait for peers that may never join. Called before any
 * memory is freed, since freeing waits for kernels. */
static void nccl_break(nccl_state *state)
{
    if (state->is_broken)
        return;
    state->is_broken = true;
    recorded_drop(state);
    for (uint32_t i = 0; i < state->count; i++) {
        channel *c = &state->channels[i];
        if (c->comm != NULL)
            (void)state->nccl->ncclCommAbort(c->comm);
        c->comm = NULL;
        order_leave(state, c);
        c->waiting = c->current = NULL; /* the callers own them */
    }
}

static void channel_close(const nccl_state *state, channel *c)
{
    if (c->comm != NULL)
        (void)state->nccl->ncclCommDestroy(c->comm);
    state->options.stage->own->link_blocks -= c->blocks;
    if (c->stream != NULL) {
        (void)cudaStreamSynchronize(c->stream); /* the callback at its end has run */
        cudaStreamDestroy(c->stream);
    }
    if (c->event != NULL)
        cudaEventDestroy(c->event);
    ty_free(c->members);
    ty_free(c->theirs);
}

static void nccl_close(ty_device_link *link)
{
    nccl_state *state;
    ty_transport *transport;

    if (link == NULL)
        return;
    state = link->state;
    transport = state->options.transport;
    (void)cudaSetDevice(state->options.stage->own->ordinal);
    if (state->options.ring != NULL)
        state->options.stage->own->launch_ring = NULL;
    if (transport->is_broken)
        nccl_break(state);
    recorded_drop(state);
    for (uint32_t i = 0; i < state->count; i++)
        channel_close(state, &state->channels[i]);
    for (uint32_t p = 0; p < state->peer_count; p++)
        transport->cancel(transport, state->peers[p].listening);
    for (uint32_t i = 0; state->told != NULL && i < state->told_count; i++)
        transport->cancel(transport, state->told[i].request);
    cuda_memory_release(state->options.stage, state->probe);
    cuda_memory_release(state->options.stage, state->staging);
    ty_free(state->recorded);
    ty_free(state->channels);
    ty_free(state->peers);
    ty_free(state->told);
    ty_free(state);
    ty_free(link);
}

/* ---- Kernels of operations ---- */

static ty_status transfer_start(nccl_state *state, const channel *c, const ty_transfer *t,
                                ty_error *error)
{
    ty_status status = TY_OK;

    if (c->position == 0)
        NCCL_SETTLE(c, state->nccl->ncclSend(t->buffer, t->bytes, ncclChar, 1, c->comm, c->stream),
                    status, done);
    else
        NCCL_SETTLE(c, state->nccl->ncclRecv(t->buffer, t->bytes, ncclChar, 0, c->comm, c->stream),
                    status, done);
done:
    return status;
}

/* Reduces or broadcasts each member's shard in one group of calls, for shards of different
 * length. */
static ty_status unequal_shares_start(nccl_state *state, const channel *c,
                                      const ty_collective_options *options, ncclDataType_t type,
                                      uint64_t size, ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    ncclResult_t code = ncclSuccess;
    ty_status status = TY_OK;

    NCCL_CHECK(nccl->ncclGroupStart(), status, done);
    for (uint32_t p = 0; p < c->member_count && code == ncclSuccess; p++) {
        const uint64_t start = ty_share_start(options->count, c->member_count, p);
        const uint64_t count = ty_share_start(options->count, c->member_count, p + 1) - start;
        char *share = (char *)options->data + start * size;

        if (count == 0)
            continue;
        code =
            options->kind == TY_REDUCE_SCATTER
                ? nccl->ncclReduce(share, share, count, type, ncclSum, (int)p, c->comm, c->stream)
                : nccl->ncclBroadcast(share, share, count, type, (int)p, c->comm, c->stream);
    }
    NCCL_SETTLE(c, nccl->ncclGroupEnd(), status, done);
    NCCL_CHECK(code, status, done);
done:
    return status;
}

static ty_status shares_start(nccl_state *state, const channel *c,
                              const ty_collective_options *options, ncclDataType_t type,
                              uint64_t size, ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    const uint64_t share = options->count / c->member_count;
    char *data = options->data, *own = data + c->position * share * size;
    ty_status status = TY_OK;

    if (share * c->member_count != options->count)
        return unequal_shares_start(state, c, options, type, size, error);
    if (options->kind == TY_REDUCE_SCATTER)
        NCCL_SETTLE(c, nccl->ncclReduceScatter(data, own, share, type, ncclSum, c->comm, c->stream),
                    status, done);
    else
        NCCL_SETTLE(c, nccl->ncclAllGather(own, data, share, type, c->comm, c->stream), status,
                    done);
done:
    return status;
}

static ty_status collective_start(nccl_state *state, const channel *c,
                                  const ty_collective_options *options, ty_error *error)
{
    static const ncclDataType_t types[TY_ELEMENT_COUNT] = {
        [TY_ELEMENT_FLOAT] = ncclFloat,   [TY_ELEMENT_LARGEST_FLOAT] = ncclFloat,
        [TY_ELEMENT_HALF] = ncclHalf,     [TY_ELEMENT_BFLOAT] = ncclBfloat16,
        [TY_ELEMENT_DOUBLE] = ncclDouble, [TY_ELEMENT_BYTE] = ncclChar};
    const cuda_nccl *nccl = state->nccl;
    const ncclDataType_t type = types[options->element];
    const ncclRedOp_t sum = options->element == TY_ELEMENT_LARGEST_FLOAT ? ncclMax : ncclSum;
    const uint64_t size = ty_element_bytes(options->element);
    const bool is_summed = options->element != TY_ELEMENT_BYTE;
    char *data = options->data;
    ty_status status = TY_OK;

    if (options->is_of_shares || options->kind == TY_REDUCE_SCATTER)
        return shares_start(state, c, options, type, size, error);
    if (options->kind == TY_ALL_TO_ALL && options->sent_counts != NULL)
        return unequal_parts_start(state, c, options, size, error);
    if (options->kind == TY_ALL_TO_ALL)
        return all_to_all_start(state, c, data, options->count * size, error);
    if (options->kind == TY_ALL_GATHER)
        NCCL_SETTLE(c,
                    nccl->ncclAllGather(data + c->position * options->count * size, data,
                                        options->count, type, c->comm, c->stream),
                    status, done);
    else if (options->kind == TY_ALL_REDUCE && is_summed)
        NCCL_SETTLE(c,
                    nccl->ncclAllReduce(data, data, options->count, type, sum, c->comm, c->stream),
                    status, done);
    else
        status = ty_fail(error, TY_EUNSUPPORTED, "collective %s of %llu elements is not built in",
                         ty_collective_name(options->kind), (unsigned long long)options->count);
done:
    return status;
}

/* ---- Agreement on launches ---- */

static uint32_t notice_tag(const nccl_state *state)
{
    return NOTICE_TAG + (state->options.is_inside_replica ? TY_TAG_OF_PASSES : 0);
}

static ty_status peer_listen(nccl_state *state, nccl_peer *peer, ty_error *error)
{
    ty_transport *transport = state->options.transport;

    return transport->receive(transport, peer->rank, notice_tag(state), &peer->heard,
                              sizeof peer->heard, &peer->listening, error);
}

/* Number of free notice slots. */
static uint32_t told_free(const nccl_state *state)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < state->told_count; i++)
        found += state->told[i].request == NULL;
    return found;
}

static ty_status notify(nccl_state *state, const channel *c, uint32_t member, notice_kind kind,
                        uint64_t stamp, ty_error *error)
{
    ty_transport *transport = state->options.transport;
    nccl_told *place = state->told;

    while (place->request != NULL)
        place++;
    place->said = (notice){c->theirs[member], kind, stamp};
    return transport->send(transport, c->members[member], notice_tag(state), &place->said,
                           sizeof place->said, &place->request, error);
}

static ty_status notify_all(nccl_state *state, const channel *c, notice_kind kind, uint64_t stamp,
                            ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t m = 0; m < c->member_count && status == TY_OK; m++)
        if (m != c->position)
            status = notify(state, c, m, kind, stamp, error);
    return status;
}

static ty_status told_advance(nccl_state *state, ty_error *error)
{
    ty_transport *transport = state->options.transport;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < state->told_count && status == TY_OK; i++) {
        bool is_done = false;

        if (state->told[i].request == NULL)
            continue;
        status = transport->test(transport, state->told[i].request, &is_done, error);
        if (status != TY_OK || is_done)
            state->told[i].request = NULL;
    }
    return status;
}

/* The other members launch it as well, now or soon. */
static ty_status launch(nccl_state *state, channel *c, ty_error *error)
{
    const nccl_request *request = c->current;
    const cudaStream_t stream = c->is_of_passes ? request->stage->own->stream : c->stream;
    ty_status status;

    c->step = STEP_LAUNCHED;
    if (c->is_of_passes)
        TY_CHECK(request->run(request->stage, request->argument, error), status, done);
    else if (c->direction == TY_NO_DIRECTION)
        TY_CHECK(collective_start(state, c, &request->options, error), status, done);
    else
        TY_CHECK(transfer_start(state, c, &request->transfer, error), status, done);
    CUDA_CHECK(cudaEventRecord(c->event, stream), status, done);
    if (state->options.ring != NULL)
        CUDA_CHECK(cudaLaunchHostFunc(stream, state->options.ring, state->options.context), status,
                   done);
done:
    order_leave(state, c);
    return status;
}

/* All members and the leader itself are ready. */
static ty_status stamps_ask(nccl_state *state, channel *c, ty_error *error)
{
    c->ready_count -= c->member_count - 1;
    c->stamp_count = 0;
    ty_launch_propose(state->order, &c->launch);
    c->latest = c->launch.stamp;
    c->step = STEP_READY;
    return notify_all(state, c, NOTICE_ASK, c->launch.stamp, error);
}

/* With two members, this stamp is final. */
static void stamp_make(nccl_state *state, channel *c, uint64_t asked)
{
    ty_launch_propose(state->order, &c->launch);
    if (c->member_count == 2)
        ty_launch_decide(state->order, &c->launch,
                         asked > c->launch.stamp ? asked : c->launch.stamp);
    c->step = STEP_STAMP_DUE;
}

static void stamp_take(nccl_state *state, channel *c, uint64_t stamp)
{
    if (stamp > c->latest)
        c->latest = stamp;
    if (++c->stamp_count < c->member_count - 1)
        return;
    ty_launch_decide(state->order, &c->launch, c->latest);
    c->step = c->member_count == 2 ? STEP_DECIDED : STEP_GO_DUE;
}

static ty_status notice_take(nccl_state *state, const nccl_peer *peer, ty_error *error)
{
    const notice *heard = &peer->heard;
    channel *c = heard->channel < state->count ? &state->channels[heard->channel] : NULL;
    const bool is_leader = c != NULL && c->position == c->leader;
    const bool is_ready = c != NULL && c->current != NULL && c->step == STEP_READY;

    if (is_leader && heard->kind == NOTICE_READY) {
        c->ready_count++;
    } else if (is_leader && is_ready && heard->kind == NOTICE_STAMP) {
        stamp_take(state, c, heard->stamp);
    } else if (c != NULL && !is_leader && is_ready && heard->kind == NOTICE_ASK) {
        stamp_make(state, c, heard->stamp);
    } else if (c != NULL && !is_leader && c->current != NULL && c->step == STEP_STAMPED &&
               heard->kind == NOTICE_GO) {
        ty_launch_decide(state->order, &c->launch, heard->stamp);
        c->step = STEP_DECIDED;
    } else {
        return ty_fail(error, TY_EBACKEND, "process %u says what it should not of channel %u",
                       peer->rank, heard->channel);
    }
    return TY_OK;
}

/* Detects peers that have ended. */
static ty_status notices_advance(nccl_state *state, bool *is_moved, ty_error *error)
{
    ty_transport *transport = state->options.transport;
    ty_status status = TY_OK;

    for (uint32_t p = 0; p < state->peer_count; p++) {
        nccl_peer *peer = &state->peers[p];
        bool is_here = true;

        while (is_here) {
            is_here = false;
            status = transport->test(transport, peer->listening, &is_here, error);
            if (status != TY_OK || is_here)
                peer->listening = NULL;
            if (status != TY_OK)
                goto done;
            if (!is_here)
                break;
            *is_moved = true;
            TY_CHECK(notice_take(state, peer, error), status, done);
            TY_CHECK(peer_listen(state, peer, error), status, done);
        }
    }
done:
    return status;
}

/* Reports asynchronous NCCL errors, such as a failed network. */
static ty_status failure_check(nccl_state *state, const channel *c, ty_error *error)
{
    ncclResult_t failure = ncclSuccess;
    ty_status status = TY_OK;

    NCCL_CHECK(state->nccl->ncclCommGetAsyncError(c->comm, &failure), status, done);
    if (failure != ncclSuccess && failure != ncclInProgress)
        status = nccl_fail(state, error, "NCCL", failure);
done:
    return status;
}

/* For a pass, checks all communicators that it may use. */
static ty_status failures_check(nccl_state *state, const channel *c, ty_error *error)
{
    ty_status status = TY_OK;

    if (!c->is_of_passes)
        return failure_check(state, c, error);
    for (uint32_t i = 0; i < state->count && status == TY_OK; i++)
        if (!state->channels[i].is_of_passes)
            status = failure_check(state, &state->channels[i], error);
    return status;
}

/* Whether the kernel has ended. */
static ty_status end_check(nccl_state *state, channel *c, bool *is_moved, ty_error *error)
{
    const cudaError_t code = cudaEventQuery(c->event);
    ty_status status = TY_OK;

    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return failures_check(state, c, error);
    }
    CUDA_CHECK(code, status, done);
    c->current->is_done = true;
    c->current = NULL;
    *is_moved = true;
done:
    return status;
}

static void next_take(channel *c)
{
    nccl_request *next = c->waiting;

    if (next == NULL || (c->direction != TY_NO_DIRECTION && next->transfer.order != c->order))
        return;
    c->waiting = next->next;
    c->current = next;
    c->step = STEP_POSTED;
    c->order++;
}

static ty_status channel_advance(nccl_state *state, channel *c, bool *is_moved, ty_error *error)
{
    const uint32_t others = c->member_count - 1, room = told_free(state);
    const bool is_leader = c->position == c->leader;
    ty_status status = TY_OK;

    if (c->current != NULL && c->step == STEP_LAUNCHED)
        TY_CHECK(end_check(state, c, is_moved, error), status, done);
    if (c->current == NULL)
        next_take(c);
    if (c->current == NULL)
        return TY_OK;
    if (c->step == STEP_POSTED && is_leader && c->ready_count >= others && room >= others) {
        *is_moved = true;
        TY_CHECK(stamps_ask(state, c, error), status, done);
    } else if (c->step == STEP_POSTED && !is_leader && room > 0) {
        *is_moved = true;
        c->step = STEP_READY;
        TY_CHECK(notify(state, c, c->leader, NOTICE_READY, 0, error), status, done);
    } else if (c->step == STEP_STAMP_DUE && room > 0) {
        *is_moved = true;
        c->step = c->member_count == 2 ? STEP_DECIDED : STEP_STAMPED;
        TY_CHECK(notify(state, c, c->leader, NOTICE_STAMP, c->launch.stamp, error), status, done);
    } else if (c->step == STEP_GO_DUE && room >= others) {
        *is_moved = true;
        c->step = STEP_DECIDED;
        TY_CHECK(notify_all(state, c, NOTICE_GO, c->launch.stamp, error), status, done);
    }
    if (c->step == STEP_DECIDED && ty_launch_is_next(state->order, &c->launch)) {
        *is_moved = true;
        status = launch(state, c, error);
    }
done:
    return status;
}

static ty_status nccl_advance(ty_device_link *link, bool *is_moved, ty_error *error)
{
    nccl_state *state = link->state;
    ty_status status = TY_OK;

    if (state->is_broken)
        return ty_fail(error, TY_EBACKEND, "the link between devices was given up");
    CUDA_CHECK(cudaSetDevice(state->options.stage->own->ordinal), status, done);
    TY_CHECK(told_advance(state, error), status, done);
    TY_CHECK(notices_advance(state, is_moved, error), status, done);
    for (uint32_t i = 0; i < state->count && status == TY_OK; i++)
        status = channel_advance(state, &state->channels[i], is_moved, error);
done:
    return status;
}

/* ---- Requests ---- */

static ty_status request_post(ty_device_link *link, channel *on, const nccl_request *like,
                              ty_request **out, ty_error *error)
{
    nccl_request *made = ty_alloc(1, sizeof *made), **place = &on->waiting;
    bool is_moved = false;
    ty_status status;

    TY_TRY(ty_check_memory(made != NULL, error));
    *made = *like;
    while (*place != NULL &&
           (on->direction == TY_NO_DIRECTION || (*place)->transfer.order < made->transfer.order))
        place = &(*place)->next;
    made->next = *place;
    *place = made;
    status = nccl_advance(link, &is_moved, error);
    if (status == TY_OK) {
        *out = (ty_request *)made;
    } else {
        nccl_break(link->state);
        ty_free(made);
    }
    return status;
}

static ty_status transfer_post(ty_device_link *link, const ty_transfer *transfer, bool is_send,
                               ty_request **out, ty_error *error)
{
    nccl_state *state = link->state;
    uint32_t own = state->options.transport->rank;
    uint32_t pair[2] = {is_send ? own : transfer->peer, is_send ? transfer->peer : own};
    channel *c = channel_find(state, pair, 2, transfer->direction);

    if (c == NULL)
        return ty_fail(error, TY_EINVAL, "rank %u has no messages with rank %u", own,
                       transfer->peer);
    return request_post(link, c, &(nccl_request){.transfer = *transfer}, out, error);
}

static ty_status nccl_send(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                           ty_error *error)
{
    return transfer_post(link, transfer, true, out, error);
}

static ty_status nccl_receive(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                              ty_error *error)
{
    return transfer_post(link, transfer, false, out, error);
}

static ty_status nccl_exchange(ty_device_link *link, const ty_collective_options *options,
                               ty_request **out, ty_error *error)
{
    nccl_state *state = link->state;
    channel *c = channel_find(state, options->members, options->member_count, TY_NO_DIRECTION);

    if (c == NULL)
        return ty_fail(error, TY_EINVAL, "these processes have no collectives");
    return request_post(link, c, &(nccl_request){.options = *options}, out, error);
}

/* Whether all NCCL kernels that may run concurrently with a graph of collectives fit on the device
 * together. Such a graph is launched at once. Its kernels may wait for kernels of other
 * communicators, which wait for peers that may themselves wait for the graph. */
static bool has_room(const nccl_state *state)
{
    const ty_stage_device *stage = state->options.stage;

    return 2 * stage->own->link_blocks <= (uint32_t)stage->own->processors;
}

static ty_status recorded_note(nccl_state *state, ty_stage_device *stage, ty_error *error)
{
    ty_stage_device **grown;

    for (uint32_t s = 0; s < state->recorded_count; s++)
        if (state->recorded[s] == stage)
            return TY_OK;
    grown = ty_resize(state->recorded, state->recorded_count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    state->recorded = grown;
    grown[state->recorded_count++] = stage;
    return TY_OK;
}

static ty_status nccl_record(ty_device_link *link, ty_stage_device *stage,
                             const ty_collective_options *options, ty_error *error)
{
    nccl_state *state = link->state;
    const channel *c =
        channel_find(state, options->members, options->member_count, TY_NO_DIRECTION);
    channel on_pass;
    ty_status status;

    if (!has_room(state))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "kernels of NCCL may take %u of %d multiprocessors, expected at most half",
                       state->options.stage->own->link_blocks,
                       state->options.stage->own->processors);
    if (c == NULL || options->sent_counts != NULL)
        return ty_fail(error, TY_EINVAL, "these processes have no collective that is recorded");
    status = recorded_note(state, stage, error);
    if (status != TY_OK)
        return status;
    on_pass = *c;
    on_pass.stream = stage->own->stream;
    return collective_start(state, &on_pass, options, error);
}

static ty_status nccl_launch(ty_device_link *link, ty_stage_device *stage, ty_parallel_run *run,
                             void *argument, ty_request **out, ty_error *error)
{
    nccl_state *state = link->state;
    channel *c = &state->channels[state->count - 1];

    if (!c->is_of_passes)
        return ty_fail(error, TY_EINVAL, "these processes make no passes together");
    return request_post(link, c, &(nccl_request){.stage = stage, .run = run, .argument = argument},
                        out, error);
}

/* A running operation can only be aborted with its communicator. All others are aborted too, since
 * freeing memory waits for their kernels. */
static void nccl_cancel(ty_device_link *link, ty_request *request)
{
    nccl_break(link->state);
    ty_free(request);
}

static ty_status nccl_test(ty_device_link *link, ty_request *request, bool *is_done,
                           ty_error *error)
{
    const nccl_request *own = (const nccl_request *)request;
    bool is_moved = false;
    ty_status status = nccl_advance(link, &is_moved, error);

    *is_done = status == TY_OK && own->is_done;
    if (status != TY_OK)
        nccl_cancel(link, request);
    else if (*is_done)
        ty_free(request);
    return status;
}

/* ---- The link ---- */

ty_status cuda_link_check(ty_stage_device *stage, ty_error *error)
{
    const cuda_nccl *nccl;

    (void)stage;
    return cuda_nccl_load(&nccl, error);
}

/* NCCL chooses the algorithm of its sums; it has no collectives made of other messages. */
static ty_status algorithms_check(const ty_plan *plan, ty_error *error)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_algorithm found = plan->buckets[b].algorithm;

        if (found != TY_RING && found != TY_TREE && found != TY_AUTOMATIC &&
            ty_bucket_device_count(plan, &plan->buckets[b]) > 1)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "plan:/buckets/%u/algorithm: found %s, which NCCL does not have, "
                           "expected ring, tree or automatic (TRAINYARD_LINK=host has all)",
                           b, ty_algorithm_name(found));
    }
    return TY_OK;
}

static ty_status channels_list(nccl_state *state, ty_error *error)
{
    ty_status status;

    if (state->options.is_inside_replica)
        return parallel_groups_list(state, error);
    status = groups_list(state, error);
    return status == TY_OK ? pairs_list(state, error) : status;
}

/* Processes that share a channel; the link receives notices from each. */
static ty_status peers_open(nccl_state *state, ty_error *error)
{
    const uint32_t own = state->options.transport->rank;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < state->count; i++)
        state->told_count += 2 * state->channels[i].member_count;
    state->peers = ty_alloc(state->options.transport->size, sizeof *state->peers);
    state->told = ty_alloc(state->told_count, sizeof *state->told);
    TY_TRY(ty_check_memory(state->peers != NULL && state->told != NULL, error));
    for (uint32_t rank = 0; rank < state->options.transport->size && status == TY_OK; rank++) {
        bool is_shared = false;

        for (uint32_t i = 0; i < state->count && rank != own; i++)
            is_shared = is_shared || is_member(state->channels[i].members,
                                               state->channels[i].member_count, rank);
        if (!is_shared)
            continue;
        state->peers[state->peer_count] = (nccl_peer){.rank = rank};
        status = peer_listen(state, &state->peers[state->peer_count++], error);
    }
    return status;
}

static ty_status channels_open(nccl_state *state, ty_error *error)
{
    const uint64_t probe_bytes = sizeof(float) * ty_plan_rank_count(state->options.plan);

    TY_TRY(algorithms_check(state->options.plan, error));
    TY_TRY(cuda_nccl_load(&state->nccl, error));
    TY_TRY(cuda_use(state->options.stage, error));
    TY_TRY(channels_list(state, error));
    for (uint32_t i = 0; i < state->count; i++)
        if (state->channels[i].direction != TY_NO_DIRECTION)
            TY_TRY(order_check(state, &state->channels[i], error));
    state->probe = cuda_memory_allocate(state->options.stage, probe_bytes);
    if (state->options.all_to_all_bytes > 0)
        state->staging =
            cuda_memory_allocate(state->options.stage, state->options.all_to_all_bytes);
    if (state->probe == NULL || (state->options.all_to_all_bytes > 0 && state->staging == NULL))
        return ty_fail(error, TY_ENOMEM, "out of GPU memory for an all-to-all");
    TY_TRY(peers_open(state, error));
    for (uint32_t i = 0; i < state->count; i++)
        TY_TRY(channel_open(state, &state->channels[i], error));
    return TY_OK;
}

ty_status cuda_link_open(const ty_link_options *options, ty_device_link **out, ty_error *error)
{
    ty_device_link *link = ty_alloc(1, sizeof *link);
    nccl_state *state = ty_alloc(1, sizeof *state);
    ty_status status;

    if (link == NULL || state == NULL) {
        ty_free(link);
        ty_free(state);
        return ty_fail(error, TY_ENOMEM, "out of memory for a link");
    }
    state->options = *options;
    state->order = &options->stage->own->launches;
    if (options->ring != NULL) {
        options->stage->own->launch_ring = options->ring;
        options->stage->own->launch_ring_context = options->context;
    }
    if (options->all_to_all_bytes > 0 && /* and one byte per process for the probe */
        options->all_to_all_bytes < options->transport->size)
        state->options.all_to_all_bytes = options->transport->size;
    *link = (ty_device_link){.name = "nccl",
                             .state = state,
                             .is_direct = true,
                             .rings = options->ring != NULL,
                             .advance = nccl_advance,
                             .send = nccl_send,
                             .receive = nccl_receive,
                             .exchange = nccl_exchange,
                             .record = nccl_record,
                             .launch = nccl_launch,
                             .test = nccl_test,
                             .cancel = nccl_cancel,
                             .close = nccl_close};
    if (ty_device_link_is_shared())
        shared_gpu_configure(options->transport->rank);
    status = channels_open(state, error);
    if (status == TY_OK) {
        *out = link;
    } else {
        nccl_break(state);
        nccl_close(link);
    }
    return status;
}
