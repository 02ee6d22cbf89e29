/* The collective stream: encoding, collectives of buckets, decoding, gathers. */
#include "interpreter_exchange.h"
#include "interpreter_buckets.h"
#include "interpreter_replay.h"
#include "interpreter_watches.h"
#include "sharding.h"

struct exchange {
    stream_cursor at;
    ty_collective *running;
    ty_request *request; /* the same over a link */
    double since_s;
    bool is_passing; /* of a timed backend: an encode or decode takes its time */
};

static ty_status run_encode(ty_interpreter *in, const ty_instruction *encode, uint32_t step,
                            ty_error *error)
{
    bucket_state *bucket = &in->buckets[encode->bucket];

    if (in->memory != NULL)
        return in->memory->codec_encode(bucket->codec, encode->phase,
                                        interpreter_bucket_gradients(in, bucket, step), error);
    ty_codec_encode(bucket->codec, encode->phase, interpreter_bucket_gradients(in, bucket, step));
    return TY_OK;
}

static ty_status run_decode(ty_interpreter *in, const ty_instruction *decode, uint32_t step,
                            ty_error *error)
{
    bucket_state *bucket = &in->buckets[decode->bucket];

    if (in->memory != NULL)
        return in->memory->codec_decode(bucket->codec,
                                        interpreter_bucket_gradients(in, bucket, step), error);
    ty_codec_decode(bucket->codec, interpreter_bucket_gradients(in, bucket, step));
    return TY_OK;
}

static ty_status replay_start(ty_interpreter *in, const ty_instruction *exchange, uint32_t tag,
                              ty_error *error)
{
    const ty_collective_options options = interpreter_replay_exchange(in, exchange, tag);

    return ty_collective_start(in->options.transport, &options, &in->exchange->running, error);
}

static ty_status bucket_exchange(ty_interpreter *in, const ty_instruction *exchange, uint32_t step,
                                 ty_error *error)
{
    bucket_state *bucket = &in->buckets[exchange->bucket];
    const exchange_kind kind = interpreter_exchange_kind(in, exchange->bucket, step);
    const uint32_t tag =
        interpreter_bucket_tag(in->options.plan, in->window, exchange->bucket, step);
    ty_collective_options options = {.kind = TY_ALL_REDUCE,
                                     .data = interpreter_bucket_gradients(in, bucket, step),
                                     .count = bucket->count,
                                     .element = TY_ELEMENT_FLOAT};

    if (kind == EXCHANGE_NOTHING)
        return TY_OK;
    if (interpreter_is_timed(in))
        return replay_start(in, exchange, tag, error);
    if (kind == EXCHANGE_WEIGHTS) { /* FedAvg: McMahan et al., 2017, algorithm 1 */
        TY_TRY(interpreter_update(in, exchange->bucket, step, error));
        options.data =
            in->options.backend->parameters(bucket->virtual_stage->device) + bucket->offset;
    } else if (in->scenario.hooks->exchange != NULL) {
        in->scenario.hooks->exchange(&in->scenario, &options);
    } else if (bucket->codec != NULL) {
        options = ty_codec_exchange(bucket->codec, exchange->phase);
    }
    options.algorithm = in->options.plan->buckets[exchange->bucket].algorithm;
    options.members = bucket->members;
    options.hosts = bucket->hosts;
    options.member_count = bucket->member_count;
    options.tag = tag;
    interpreter_servers_name(in, exchange->bucket, &options);
    if (bucket->is_sharded)
        options.kind = TY_REDUCE_SCATTER;
    if (in->link != NULL)
        return in->link->exchange(in->link, &options, &in->exchange->request, error);
    return ty_collective_start(in->options.transport, &options, &in->exchange->running, error);
}

/* Advances the bucket's collective. */
static ty_status exchange_test(ty_interpreter *in, bool *is_done, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    if (in->exchange->running != NULL) {
        status = ty_collective_test(in->exchange->running, is_done, is_moved, error);
        if (status == TY_OK && *is_done)
            in->exchange->running = NULL;
    } else if (in->exchange->request != NULL) {
        status = in->link->test(in->link, in->exchange->request, is_done, error);
        if (status != TY_OK || *is_done)
            in->exchange->request = NULL;
    }
    return status;
}

static ty_status bucket_gather(ty_interpreter *in, const ty_instruction *gather, uint32_t step,
                               ty_error *error)
{
    bucket_state *bucket = &in->buckets[gather->bucket];
    const uint32_t tag =
        interpreter_bucket_tag(in->options.plan, in->window, gather->bucket, step) |
        (uint32_t)TAG_GATHER;
    ty_collective_options options;

    if (interpreter_gather_is_done(in, gather, step))
        return TY_OK;
    if (interpreter_is_timed(in))
        return replay_start(in, gather, tag, error);
    TY_TRY(interpreter_gather_begin(in, bucket, tag, &options, error));
    if (in->link != NULL)
        return in->link->exchange(in->link, &options, &in->exchange->request, error);
    return ty_collective_start(in->options.transport, &options, &in->exchange->running, error);
}

static uint32_t ready_collective(ty_interpreter *in, uint32_t *step)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_COLLECTIVE, &in->exchange->at, step);
    if (next != NO_INDEX && !interpreter_waits_done(in, next, *step))
        next = NO_INDEX;
    if (next != NO_INDEX && in->exchange->running == NULL && in->exchange->request == NULL &&
        in->program->instructions[next].op == TY_OP_GATHER &&
        !interpreter_gather_may_start(in, &in->program->instructions[next]))
        next = NO_INDEX;
    pthread_mutex_unlock(&in->lock);
    return next;
}

/* Divides weights that an all-reduce summed over `divisor` ranks. */
static ty_status weights_average(const ty_interpreter *in, const bucket_state *bucket,
                                 uint32_t divisor, ty_error *error)
{
    ty_stage_device *device = bucket->virtual_stage->device;
    float *weights;

    if (in->memory != NULL)
        return in->memory->weights_average(device, bucket->offset, bucket->count, divisor, error);
    weights = in->options.backend->parameters(device) + bucket->offset;
    for (uint64_t i = 0; i < bucket->count && divisor > 1; i++)
        weights[i] /= (float)divisor;
    return TY_OK;
}

static bool is_compressed(const bucket_state *bucket)
{
    return bucket->codec != NULL;
}

static ty_status collective_done(ty_interpreter *in, uint32_t index, uint32_t step, ty_error *error)
{
    const ty_instruction *did = &in->program->instructions[index];
    bucket_state *bucket = &in->buckets[did->bucket];

    if (did->op == (is_compressed(bucket) ? TY_OP_DECODE : TY_OP_COLLECTIVE)) {
        if (interpreter_exchange_kind(in, did->bucket, step) == EXCHANGE_WEIGHTS &&
            !interpreter_is_timed(in))
            TY_TRY(weights_average(in, bucket, bucket->member_count, error));
        TY_TRY(interpreter_exchange_over(in, bucket, error));
        interpreter_noise_after(in, did->bucket, step);
    }
    pthread_mutex_lock(&in->lock);
    interpreter_done(in, index, step, in->exchange->since_s, ty_now_s());
    pthread_mutex_unlock(&in->lock);
    interpreter_advance(in, TY_STREAM_COLLECTIVE, &in->exchange->at);
    return TY_OK;
}

static bool is_first_of_exchange(const ty_interpreter *in, const ty_instruction *instruction)
{
    const bucket_state *bucket = &in->buckets[instruction->bucket];

    return instruction->phase == 0 &&
           instruction->op == (is_compressed(bucket) ? TY_OP_ENCODE : TY_OP_COLLECTIVE);
}

static bool is_codec(const ty_instruction *instruction)
{
    return instruction->op == TY_OP_ENCODE || instruction->op == TY_OP_DECODE;
}

/* One instruction at most, so that send/recv does not wait for a queue of compressions. */
ty_status interpreter_exchange_advance(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    uint32_t step = 0, next = ready_collective(in, &step);
    const ty_instruction *instruction;
    bool is_done = true, is_linked;
    ty_status status = TY_OK;

    if (next == NO_INDEX)
        return TY_OK;
    instruction = &in->program->instructions[next];
    if (in->exchange->running == NULL && in->exchange->request == NULL &&
        !in->exchange->is_passing) {
        in->exchange->since_s = ty_now_s();
        if (is_first_of_exchange(in, instruction)) {
            interpreter_noise_before(in, instruction->bucket, step);
            interpreter_distortion_measure(in, instruction->bucket, step);
        }
        *is_moved = true;
        if (interpreter_is_timed(in) && is_codec(instruction))
            in->exchange->is_passing = true;
        else if (instruction->op == TY_OP_ENCODE)
            status = run_encode(in, instruction, step, error);
        else if (instruction->op == TY_OP_DECODE)
            status = run_decode(in, instruction, step, error);
        else if (instruction->op == TY_OP_GATHER)
            status = bucket_gather(in, instruction, step, error);
        else
            status = bucket_exchange(in, instruction, step, error);
    }
    is_linked = in->exchange->request != NULL;
    if (status == TY_OK)
        status = exchange_test(in, &is_done, is_moved, error);
    if (status == TY_OK && is_done && is_linked && instruction->op == TY_OP_GATHER &&
        !interpreter_is_timed(in))
        status = interpreter_gather_end(in, &in->buckets[instruction->bucket], error);
    if (in->exchange->is_passing) {
        is_done = interpreter_is_over(in, next, in->exchange->since_s);
        in->exchange->is_passing = !is_done;
        *is_moved = *is_moved || is_done;
    }
    if (status == TY_OK && is_done)
        status = collective_done(in, next, step, error);
    return status;
}

bool interpreter_exchange_is_passing(const ty_interpreter *in)
{
    return in->exchange->is_passing;
}

bool interpreter_exchange_is_under_way(const ty_interpreter *in)
{
    const struct exchange *e = in->exchange;

    return e->running != NULL || e->request != NULL || e->is_passing;
}

ty_status interpreter_exchange_open(ty_interpreter *in, ty_error *error)
{
    in->exchange = ty_alloc(1, sizeof *in->exchange);
    return ty_check_memory(in->exchange != NULL, error);
}

void interpreter_exchange_start(ty_interpreter *in, stream_cursor at)
{
    in->exchange->at = at;
}

void interpreter_exchange_cancel(ty_interpreter *in)
{
    if (in->exchange == NULL)
        return;
    if (in->exchange->request != NULL)
        in->link->cancel(in->link, in->exchange->request);
    ty_collective_cancel(in->exchange->running);
}

void interpreter_exchange_close(ty_interpreter *in)
{
    ty_free(in->exchange);
}
