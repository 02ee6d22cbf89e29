/*
 * Device memory between GPUs by NCCL. MPI (or whatever transport the ranks have) is used to hand
 * out identifiers; then there is a communicator per pair of ranks and direction, and one per set of
 * ranks that share a bucket, each on a stream of its own, so that none waits behind another.
 *
 * NCCL knows no tags: messages of a communicator are matched by their order, which both programs
 * fix, and a receive that is posted too early waits here for its turn. The first use of a
 * communicator connects its ranks and blocks; so each is used once while opening, in one order over
 * all ranks, that of buckets and then of pairs, which no two ranks can wait for in a circle.
 */
#include "cuda_stage.h"
#include "device_link.h"

#include <stdio.h>

enum { ID_TAG = 9 };

/* Of the streaming multiprocessors that a communicator may keep busy: many are open at once, and
 * compute wants the rest. */
enum { PAIR_BLOCKS = 2, GROUP_BLOCKS = 8 };

typedef struct channel { /* one communicator */
    ncclComm_t comm;
    cudaStream_t stream;
    uint32_t *members; /* ranks; of a pair: the sender, then the receiver */
    uint32_t member_count, position;
    ty_direction direction; /* TY_NO_DIRECTION: a group */
    uint64_t next;          /* order of the message that is started next */
} channel;

typedef struct nccl_request {
    channel *on;
    ty_transfer transfer; /* of a pair */
    cudaEvent_t event;
    bool is_started;
} nccl_request;

typedef struct nccl_state {
    ty_link_options options;
    const cuda_nccl *nccl;
    channel *channels;
    uint32_t count;
    bool is_broken;
    void *probe;   /* device memory for the first use: a number for each process */
    char *staging; /* what goes out in an all-to-all, while the same memory takes what comes in */
    uint64_t staging_bytes;
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

/* ---- Which communicators there are ---- */

static channel *channel_find(const nccl_state *state, const uint32_t *members, uint32_t count,
                             ty_direction direction)
{
    for (uint32_t c = 0; c < state->count; c++) {
        channel *found = &state->channels[c];
        if (found->member_count == count && found->direction == direction &&
            memcmp(found->members, members, count * sizeof *members) == 0)
            return found;
    }
    return NULL;
}

/* If it is not there yet. */
static ty_status channel_add(nccl_state *state, const uint32_t *members, uint32_t count,
                             ty_direction direction, ty_error *error)
{
    channel *grown, *made;

    if (channel_find(state, members, count, direction) != NULL)
        return TY_OK;
    grown = ty_resize(state->channels, state->count + 1, sizeof *grown);
    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for communicators");
    state->channels = grown;
    made = &grown[state->count];
    *made = (channel){.member_count = count, .direction = direction};
    made->members = ty_alloc(count, sizeof *made->members);
    if (made->members == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for communicators");
    memcpy(made->members, members, count * sizeof *members);
    while (made->members[made->position] != state->options.transport->rank)
        made->position++;
    state->count++;
    return TY_OK;
}

static bool is_member(const uint32_t *members, uint32_t count, uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++)
        if (members[i] == rank)
            return true;
    return false;
}

/* The rank of the plan that this process, or another, is a lane of; communicators are between
 * processes. */
static uint32_t rank_of(const nccl_state *state, uint32_t process)
{
    return process / ty_plan_width(state->options.plan);
}

/* The process of a rank that is the same lane as this one. */
static uint32_t process_of(const nccl_state *state, uint32_t rank)
{
    const uint32_t width = ty_plan_width(state->options.plan);

    return rank * width + state->options.transport->rank % width;
}

/* The processes that exchange with this one inside passes: of each kind of lanes a row. */
static ty_status lanes_list(nccl_state *state, ty_error *error)
{
    const ty_plan *plan = state->options.plan;
    const uint32_t width = ty_plan_width(plan), own = state->options.transport->rank;
    uint32_t *members = ty_alloc(width, sizeof *members);
    ty_status status = TY_OK;

    if (members == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for communicators");
    for (ty_lane_kind k = 0; k < TY_LANE_KIND_COUNT && status == TY_OK; k++) {
        const uint32_t count = ty_plan_lanes(plan, k);

        for (uint32_t n = 0; n < count; n++)
            members[n] = own / width * width + ty_plan_lane_along(plan, k, own % width, n);
        if (count > 1)
            status = channel_add(state, members, count, TY_NO_DIRECTION, error);
    }
    ty_free(members);
    return status;
}

static ty_status groups_list(nccl_state *state, ty_error *error)
{
    const ty_plan *plan = state->options.plan;
    const uint32_t lane = state->options.transport->rank % ty_plan_width(plan);
    uint32_t *members = ty_alloc(ty_plan_process_count(plan), sizeof *members);
    ty_status status = TY_OK;

    if (members == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for communicators");
    for (uint32_t b = 0; b < plan->bucket_count && status == TY_OK; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const uint32_t group = ty_bucket_group_of(plan, bucket, lane);
        const uint32_t count = ty_bucket_processes(plan, bucket, group, members);

        if (count > 1 && is_member(members, count, state->options.transport->rank))
            status = channel_add(state, members, count, TY_NO_DIRECTION, error);
    }
    ty_free(members);
    return status;
}

/* The sender and the receiver of a transfer of this rank. */
static void pair_of(const nccl_state *state, const ty_instruction *transfer, uint32_t pair[2])
{
    uint32_t own = state->options.transport->rank;
    uint32_t peer =
        process_of(state, ty_program_peer_rank(state->options.plan, rank_of(state, own), transfer));
    bool is_send = transfer->op == TY_OP_SEND;

    pair[0] = is_send ? own : peer;
    pair[1] = is_send ? peer : own;
}

static const ty_stage_program *own_program(const nccl_state *state)
{
    uint32_t stage =
        ty_plan_stage_of_rank(state->options.plan, rank_of(state, state->options.transport->rank));

    return &state->options.program->stages[stage];
}

/* Pairs after groups, by their ranks, so that all ranks agree on what comes first. */
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
    uint32_t cut, micro_batch, step; /* cut: the stage behind it; UINT32_MAX: none */
} message;

static bool is_on(const nccl_state *state, const channel *c, uint32_t process,
                  const ty_instruction *t)
{
    bool is_sender = process == c->members[0];
    uint32_t peer = rank_of(state, c->members[is_sender ? 1 : 0]);

    return t->op == (is_sender ? TY_OP_SEND : TY_OP_RECEIVE) && t->direction == c->direction &&
           ty_program_peer_rank(state->options.plan, rank_of(state, process), t) == peer;
}

/* The `index`-th message that a process sends or receives on the channel in a stretch of some
 * steps, which streams walk in rounds. */
static message message_at(const nccl_state *state, const channel *c, uint32_t process,
                          uint32_t steps, uint64_t index)
{
    const ty_plan *plan = state->options.plan;
    uint32_t stage = ty_plan_stage_of_rank(plan, rank_of(state, process));
    uint32_t replica = rank_of(state, process) - ty_plan_first_rank(plan, stage);
    const ty_stage_program *program = &state->options.program->stages[stage];

    for (int64_t round = -(int64_t)steps; round < (int64_t)steps; round++)
        for (uint32_t i = 0; i < program->instruction_count; i++) {
            const ty_instruction *t = &program->instructions[i];
            int64_t step = round + t->lead;

            if (step < 0 || step >= (int64_t)steps || !is_on(state, c, process, t))
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

/* Kept for the next one. One exchange is under way at a time. */
static ty_status staging_grow(nccl_state *state, uint64_t bytes, ty_error *error)
{
    ty_status status = TY_OK;

    if (bytes <= state->staging_bytes)
        return TY_OK;
    cudaFree(state->staging);
    state->staging = NULL;
    state->staging_bytes = 0;
    CUDA_CHECK(cudaMalloc((void **)&state->staging, bytes), status, done);
    state->staging_bytes = bytes;
done:
    return status;
}

/* In place: part p goes to member p, and member p's part for this one comes where it was. */
static ty_status all_to_all_start(nccl_state *state, const channel *c, char *data, uint64_t bytes,
                                  ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    ncclResult_t code = ncclSuccess;
    ty_status status;

    TY_CHECK(staging_grow(state, bytes * c->member_count, error), status, done);
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
    NCCL_CHECK(nccl->ncclGroupEnd(), status, done);
    NCCL_CHECK(code, status, done);
done:
    return status;
}

/* Whether a bucket's members each send parts to the others. */
static bool has_all_to_all(const ty_plan *plan)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_compression *c = &plan->buckets[b].compression;
        if (c->kind != TY_COMPRESSION_NONE && ty_compression_collective(c, 0) == TY_ALL_TO_ALL)
            return true;
    }
    return false;
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

/* Connects the members: one message, or one sum, and messages of all to all where there will be. */
static ty_status channel_probe(nccl_state *state, const channel *c, ty_error *error)
{
    const cuda_nccl *nccl = state->nccl;
    ty_status status = TY_OK;

    if (c->direction == TY_NO_DIRECTION)
        NCCL_CHECK(nccl->ncclAllReduce(state->probe, state->probe, 1, ncclFloat, ncclSum, c->comm,
                                       c->stream),
                   status, done);
    else if (c->position == 0)
        NCCL_CHECK(nccl->ncclSend(state->probe, 1, ncclChar, 1, c->comm, c->stream), status, done);
    else
        NCCL_CHECK(nccl->ncclRecv(state->probe, 1, ncclChar, 0, c->comm, c->stream), status, done);
    if (c->direction == TY_NO_DIRECTION && !state->options.is_of_lanes &&
        has_all_to_all(state->options.plan))
        TY_CHECK(all_to_all_start(state, c, state->probe, 1, error), status, done);
    CUDA_CHECK(cudaStreamSynchronize(c->stream), status, done);
done:
    return status;
}

static ty_status channel_open(nccl_state *state, channel *c, ty_error *error)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ty_status status;

    config.maxCTAs = c->direction == TY_NO_DIRECTION ? GROUP_BLOCKS : PAIR_BLOCKS;
    TY_CHECK(id_share(state, c, &id, error), status, done);
    CUDA_CHECK(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), status, done);
    NCCL_CHECK(state->nccl->ncclCommInitRankConfig(&c->comm, (int)c->member_count, id,
                                                   (int)c->position, &config),
               status, done);
    status = channel_probe(state, c, error);
done:
    return status;
}

/* Each rank becomes a host of its own to NCCL, which otherwise refuses two ranks on one GPU. */
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

static void nccl_close(ty_device_link *link)
{
    nccl_state *state;

    if (link == NULL)
        return;
    state = link->state;
    for (uint32_t i = 0; i < state->count; i++) {
        channel *c = &state->channels[i];
        if (c->comm != NULL && (state->is_broken || state->options.transport->is_broken))
            (void)state->nccl->ncclCommAbort(c->comm);
        else if (c->comm != NULL)
            (void)state->nccl->ncclCommDestroy(c->comm);
        if (c->stream != NULL)
            cudaStreamDestroy(c->stream);
        ty_free(c->members);
    }
    cudaFree(state->probe);
    cudaFree(state->staging);
    ty_free(state->channels);
    ty_free(state);
    ty_free(link);
}

/* ---- Messages ---- */

static ty_status request_new(channel *on, nccl_request **out, ty_error *error)
{
    nccl_request *made = ty_alloc(1, sizeof *made);
    ty_status status = TY_OK;

    if (made == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    made->on = on;
    CUDA_CHECK(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming), status, cleanup);
    *out = made;
    made = NULL; /* given away */
cleanup:
    ty_free(made);
    return status;
}

static void request_free(nccl_request *request)
{
    if (request != NULL)
        cudaEventDestroy(request->event);
    ty_free(request);
}

/* If it is the message's turn. */
static ty_status transfer_start(nccl_state *state, nccl_request *request, ty_error *error)
{
    channel *c = request->on;
    const ty_transfer *t = &request->transfer;
    ty_status status = TY_OK;

    if (request->is_started || t->order != c->next)
        return TY_OK;
    if (c->position == 0)
        NCCL_CHECK(state->nccl->ncclSend(t->buffer, t->bytes, ncclChar, 1, c->comm, c->stream),
                   status, done);
    else
        NCCL_CHECK(state->nccl->ncclRecv(t->buffer, t->bytes, ncclChar, 0, c->comm, c->stream),
                   status, done);
    CUDA_CHECK(cudaEventRecord(request->event, c->stream), status, done);
    request->is_started = true;
    c->next++;
done:
    return status;
}

static ty_status transfer_post(ty_device_link *link, const ty_transfer *transfer, bool is_send,
                               ty_request **out, ty_error *error)
{
    nccl_state *state = link->state;
    uint32_t own = state->options.transport->rank;
    uint32_t pair[2] = {is_send ? own : transfer->peer, is_send ? transfer->peer : own};
    channel *c = channel_find(state, pair, 2, transfer->direction);
    nccl_request *request = NULL;
    ty_status status;

    if (c == NULL)
        return ty_fail(error, TY_EINVAL, "rank %u has no messages with rank %u", own,
                       transfer->peer);
    TY_CHECK(cuda_use(state->options.stage, error), status, cleanup);
    TY_CHECK(request_new(c, &request, error), status, cleanup);
    request->transfer = *transfer;
    TY_CHECK(transfer_start(state, request, error), status, cleanup);
    *out = (ty_request *)request;
    request = NULL; /* given away */
cleanup:
    request_free(request);
    return status;
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

/* Each member's share, summed there or sent from there to all: one group of calls, where shares
 * differ in length. */
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
    NCCL_CHECK(nccl->ncclGroupEnd(), status, done);
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
        NCCL_CHECK(nccl->ncclReduceScatter(data, own, share, type, ncclSum, c->comm, c->stream),
                   status, done);
    else
        NCCL_CHECK(nccl->ncclAllGather(own, data, share, type, c->comm, c->stream), status, done);
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
    if (options->kind == TY_ALL_TO_ALL)
        return all_to_all_start(state, c, data, options->count * size, error);
    if (options->kind == TY_ALL_GATHER)
        NCCL_CHECK(nccl->ncclAllGather(data + c->position * options->count * size, data,
                                       options->count, type, c->comm, c->stream),
                   status, done);
    else if (options->kind == TY_ALL_REDUCE && is_summed)
        NCCL_CHECK(nccl->ncclAllReduce(data, data, options->count, type, sum, c->comm, c->stream),
                   status, done);
    else
        status = ty_fail(error, TY_EUNSUPPORTED, "collective %s of %llu elements is not built in",
                         ty_collective_name(options->kind), (unsigned long long)options->count);
done:
    return status;
}

static ty_status nccl_exchange(ty_device_link *link, const ty_collective_options *options,
                               ty_request **out, ty_error *error)
{
    nccl_state *state = link->state;
    channel *c = channel_find(state, options->members, options->member_count, TY_NO_DIRECTION);
    nccl_request *request = NULL;
    ty_status status;

    if (c == NULL)
        return ty_fail(error, TY_EINVAL, "these processes have no collectives");
    TY_CHECK(cuda_use(state->options.stage, error), status, cleanup);
    TY_CHECK(request_new(c, &request, error), status, cleanup);
    TY_CHECK(collective_start(state, c, options, error), status, cleanup);
    CUDA_CHECK(cudaEventRecord(request->event, c->stream), status, cleanup);
    request->is_started = true;
    *out = (ty_request *)request;
    request = NULL; /* given away */
cleanup:
    request_free(request);
    return status;
}

/* A rank that died shows as a failure of the communicator. */
static ty_status failure_look(nccl_state *state, const channel *c, ty_error *error)
{
    ncclResult_t failure = ncclSuccess;
    ty_status status = TY_OK;

    NCCL_CHECK(state->nccl->ncclCommGetAsyncError(c->comm, &failure), status, done);
    if (failure != ncclSuccess && failure != ncclInProgress)
        status = nccl_fail(state, error, "NCCL", failure);
done:
    return status;
}

static void nccl_cancel(ty_device_link *link, ty_request *request)
{
    nccl_state *state = link->state;

    state->is_broken = true; /* what is on its way can only be aborted with its communicator */
    request_free((nccl_request *)request);
}

static ty_status nccl_test(ty_device_link *link, ty_request *request, bool *is_done,
                           ty_error *error)
{
    nccl_state *state = link->state;
    nccl_request *own = (nccl_request *)request;
    cudaError_t code = cudaErrorNotReady;
    ty_status status;

    *is_done = false;
    TY_CHECK(transfer_start(state, own, error), status, cleanup);
    if (own->is_started)
        code = cudaEventQuery(own->event);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        TY_CHECK(failure_look(state, own->on, error), status, cleanup);
        return TY_OK;
    }
    CUDA_CHECK(code, status, cleanup);
    *is_done = true;
    request_free(own);
    return TY_OK;

cleanup:
    nccl_cancel(link, request);
    return status;
}

/* ---- The link ---- */

ty_status cuda_link_check(ty_stage_device *stage, ty_error *error)
{
    const cuda_nccl *nccl;

    (void)stage;
    return cuda_nccl_load(&nccl, error);
}

/* NCCL sums by algorithms of its own choice; what is made of other messages it does not have. */
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

    if (state->options.is_of_lanes)
        return lanes_list(state, error);
    status = groups_list(state, error);
    return status == TY_OK ? pairs_list(state, error) : status;
}

static ty_status channels_open(nccl_state *state, ty_error *error)
{
    const uint64_t probe_bytes = sizeof(float) * ty_plan_process_count(state->options.plan);
    ty_status status;

    TY_CHECK(algorithms_check(state->options.plan, error), status, done);
    TY_CHECK(cuda_nccl_load(&state->nccl, error), status, done);
    TY_CHECK(cuda_use(state->options.stage, error), status, done);
    TY_CHECK(channels_list(state, error), status, done);
    for (uint32_t i = 0; i < state->count; i++)
        if (state->channels[i].direction != TY_NO_DIRECTION)
            TY_CHECK(order_check(state, &state->channels[i], error), status, done);
    CUDA_CHECK(cudaMalloc(&state->probe, probe_bytes), status, done);
    CUDA_CHECK(cudaMemset(state->probe, 0, probe_bytes), status, done);
    for (uint32_t i = 0; i < state->count; i++)
        TY_CHECK(channel_open(state, &state->channels[i], error), status, done);
done:
    return status;
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
    *link = (ty_device_link){.name = "nccl",
                             .state = state,
                             .send = nccl_send,
                             .receive = nccl_receive,
                             .exchange = nccl_exchange,
                             .test = nccl_test,
                             .cancel = nccl_cancel,
                             .close = nccl_close};
    if (ty_device_link_is_shared())
        shared_gpu_configure(options->transport->rank);
    status = channels_open(state, error);
    if (status == TY_OK) {
        *out = link;
    } else {
        state->is_broken = true;
        nccl_close(link);
    }
    return status;
}
