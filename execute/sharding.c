/* ZeRO: each replica keeps a share of a bucket (Rajbhandari et al., "ZeRO", SC 2020). Its arrays
 * are as long as without; what others keep is given back to the system (`discard`), optimizer state
 * that is never touched is never handed out. */
#include "interpreter_state.h"

enum { SHARE_TAG = 8 };

/* A layer of the same stage behind the bucket uses a matrix that is owned in it. No gather of that
 * layer's bucket would bring it. */
static bool is_shared(const ty_plan *plan, const ty_bucket *bucket)
{
    const ty_plan_stage *stage = &plan->stages[bucket->stage];
    const uint32_t end = bucket->first_layer + bucket->layer_count;
    uint32_t layer;

    for (layer = end; !bucket->of_experts && layer < stage->first_layer + stage->layer_count;
         layer++) {
        uint32_t owner = plan->workload->layers[layer].tied_to;
        if (owner != TY_NO_LAYER && owner >= bucket->first_layer && owner < end)
            return true;
    }
    return false;
}

void interpreter_share_find(const ty_interpreter *in, uint32_t index)
{
    const ty_bucket *planned = &in->options.plan->buckets[index];
    bucket_state *bucket = &in->buckets[index];
    const uint64_t start = ty_share_start(bucket->count, bucket->member_count, bucket->position);
    const uint64_t end = ty_share_start(bucket->count, bucket->member_count, bucket->position + 1);

    bucket->is_sharded = ty_bucket_is_sharded(in->options.plan, planned);
    bucket->is_shared = bucket->is_sharded && is_shared(in->options.plan, planned);
    bucket->share_offset = bucket->offset + start;
    bucket->share_count = end - start;
}

/* The stage's first sharded bucket from `start` on, in the order of its parameters; or NULL. */
static const bucket_state *sharded_from(const ty_interpreter *in, const held_stage *held,
                                        uint64_t start)
{
    const bucket_state *first = NULL;

    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const bucket_state *bucket = &in->buckets[b];

        if (bucket->held == held && bucket->is_sharded && bucket->count > 0 &&
            bucket->offset >= start && (first == NULL || bucket->offset < first->offset))
            first = bucket;
    }
    return first;
}

uint32_t interpreter_kept_ranges(const ty_interpreter *in, const held_stage *held,
                                 ty_parameter_range *out)
{
    const bucket_state *bucket;
    uint64_t start = 0;
    uint32_t count = 0;

    while ((bucket = sharded_from(in, held, start)) != NULL) {
        out[count++] = (ty_parameter_range){start, bucket->offset - start};
        out[count++] = (ty_parameter_range){bucket->share_offset, bucket->share_count};
        start = bucket->offset + bucket->count;
    }
    out[count++] =
        (ty_parameter_range){start, in->options.backend->parameter_count(held->device) - start};
    return count;
}

ty_parameter_range *interpreter_kept_room(const ty_interpreter *in)
{
    return ty_alloc(2 * (size_t)in->options.plan->bucket_count + 1, sizeof(ty_parameter_range));
}

bool interpreter_gather_is_done(ty_interpreter *in, const ty_instruction *gather, uint32_t step)
{
    bucket_state *bucket = &in->buckets[gather->bucket];
    const bool is_done = bucket->is_shared && bucket->gathered_step == step + 1;

    bucket->gathered_step = step + 1;
    return is_done;
}

/* Of an array that holds the bucket: all but the own share. */
static void others_discard(const ty_interpreter *in, const bucket_state *bucket, float *array)
{
    const uint64_t end = bucket->offset + bucket->count;
    const uint64_t share_end = bucket->share_offset + bucket->share_count;
    const ty_device_backend *backend = in->options.backend;

    if (backend->discard == NULL)
        return;
    backend->discard(bucket->held->device, array + bucket->offset,
                     bucket->share_offset - bucket->offset);
    backend->discard(bucket->held->device, array + share_end, end - share_end);
}

bool interpreter_gather_may_start(ty_interpreter *in, const ty_instruction *gather)
{
    bucket_state *bucket = &in->buckets[gather->bucket];

    if (in->options.plan->zero < 3 || bucket->is_shared)
        return true;
    if (bucket->is_in_use)
        return false;
    bucket->is_in_use = true;
    return true;
}

static bool passes_through(const ty_bucket *bucket, const ty_instruction *in)
{
    return in->stream == TY_STREAM_COMPUTE && in->bucket == TY_NO_BUCKET &&
           in->stage == bucket->stage &&
           in->first_layer < bucket->first_layer + bucket->layer_count &&
           bucket->first_layer < in->first_layer + in->layer_count;
}

/* Whether a later pass uses what was gathered for this one: until it is gathered anew, or the step
 * is over. */
static bool is_used_again(const ty_interpreter *in, uint32_t bucket, const ty_instruction *pass)
{
    const ty_instruction *end = in->program->instructions + in->program->instruction_count;

    for (const ty_instruction *next = pass + 1; next < end; next++) {
        if (next->op == TY_OP_GATHER && next->bucket == bucket)
            return false;
        if (passes_through(&in->options.plan->buckets[bucket], next))
            return true;
    }
    return false;
}

void interpreter_pass_over(ty_interpreter *in, const ty_instruction *pass)
{
    const ty_plan *plan = in->options.plan;
    uint32_t b;

    for (b = 0; b < plan->bucket_count; b++) {
        bucket_state *bucket = &in->buckets[b];

        if (!bucket->is_in_use || !passes_through(&plan->buckets[b], pass) ||
            is_used_again(in, b, pass))
            continue;
        bucket->is_in_use = false;
        others_discard(in, bucket, in->options.backend->parameters(bucket->held->device));
    }
}

void interpreter_exchange_over(ty_interpreter *in, const bucket_state *bucket)
{
    if (bucket->is_sharded && in->options.plan->zero >= 2)
        others_discard(in, bucket, in->options.backend->gradients(bucket->held->device));
}

/* Over the way that the devices' memory has. */
static ty_status gather_run(ty_interpreter *in, const ty_collective_options *options,
                            ty_error *error)
{
    ty_request *request = NULL;
    ty_backoff backoff = {0};
    bool is_done = false;
    ty_status status;

    if (in->link == NULL)
        return ty_collective_run(in->options.transport, options, error);
    status = in->link->exchange(in->link, options, &request, error);
    while (status == TY_OK && !is_done) {
        status = in->link->test(in->link, request, &is_done, error);
        if (status == TY_OK && !is_done)
            ty_backoff_wait(&backoff);
    }
    return status;
}

ty_status interpreter_gather_all(ty_interpreter *in, bool is_gradients, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;
    uint32_t b;
    ty_status status = TY_OK;

    for (b = 0; b < in->options.plan->bucket_count && status == TY_OK; b++) {
        const bucket_state *bucket = &in->buckets[b];
        float *array;

        if (!bucket->is_member || !bucket->is_sharded)
            continue;
        array = is_gradients ? backend->gradients(bucket->held->device)
                             : backend->parameters(bucket->held->device);
        status = gather_run(in,
                            &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                     .members = bucket->members,
                                                     .member_count = bucket->member_count,
                                                     .data = array + bucket->offset,
                                                     .count = bucket->count,
                                                     .is_of_shares = true,
                                                     .element = TY_ELEMENT_FLOAT,
                                                     .tag = SHARE_TAG},
                            error);
        if (status == TY_OK && in->memory != NULL && !is_gradients)
            status = in->memory->weights_take(bucket->held->device, array + bucket->offset,
                                              bucket->count, 1, error);
    }
    return status;
}

void interpreter_shares_only(ty_interpreter *in)
{
    uint32_t b;

    for (b = 0; b < in->options.plan->bucket_count; b++) {
        const bucket_state *bucket = &in->buckets[b];

        if (bucket->is_sharded && in->options.plan->zero == 3)
            others_discard(in, bucket, in->options.backend->parameters(bucket->held->device));
    }
}
