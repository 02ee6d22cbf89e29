/* ZeRO: each replica keeps a shard of a bucket (Rajbhandari et al., "ZeRO", SC 2020). In host
 * memory arrays have their unsharded length; `discard` returns other replicas' shards to the
 * system, which never allocates pages of optimizer state that are never touched. Device memory
 * cannot be released while kernels of a link may wait. So it has the shards, and places that hold
 * entire buckets in turns, all allocated at the start. */
#include "sharding.h"
#include "interpreter_buckets.h"

enum { SHARE_TAG = 8 };

/* Whether a layer of the same stage after the bucket uses a matrix that the bucket owns. A gather
 * of that layer's bucket would not include it. */
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
static const bucket_state *sharded_from(const ty_interpreter *in,
                                        const virtual_stage_state *virtual_stage, uint64_t start)
{
    const bucket_state *first = NULL;

    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const bucket_state *bucket = &in->buckets[b];

        if (bucket->virtual_stage == virtual_stage && bucket->is_sharded && bucket->count > 0 &&
            bucket->offset >= start && (first == NULL || bucket->offset < first->offset))
            first = bucket;
    }
    return first;
}

uint32_t interpreter_kept_ranges(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                                 ty_parameter_range *out)
{
    const bucket_state *bucket;
    uint64_t start = 0;
    uint32_t count = 0;

    while ((bucket = sharded_from(in, virtual_stage, start)) != NULL) {
        out[count++] = (ty_parameter_range){start, bucket->offset - start};
        out[count++] = (ty_parameter_range){bucket->share_offset, bucket->share_count};
        start = bucket->offset + bucket->count;
    }
    out[count++] = (ty_parameter_range){
        start, in->options.backend->parameter_count(virtual_stage->device) - start};
    return count;
}

ty_parameter_range *interpreter_kept_room(const ty_interpreter *in)
{
    return ty_alloc(2 * (size_t)in->options.plan->bucket_count + 1, sizeof(ty_parameter_range));
}

/* ---- Memory of devices ---- */

void interpreter_sharing_find(ty_interpreter *in)
{
    const uint32_t zero = in->options.plan->zero;
    const bool is_half = ty_precision_bytes(in->options.precision) == sizeof(uint16_t);

    if (in->memory == NULL)
        return;
    /* With ZeRO 1 and 2 the 16-bit weights of passes are unsharded; fp32 master weights never are.
     */
    in->shares_weights = zero == 3 || (zero > 0 && is_half);
    /* Gradients of several micro-batches are summed before they are reduced. */
    in->shares_gradients = zero >= 2 && in->local_micro_batches == 1;
}

/* Passes go from one bucket to the next, so two places in turns suffice for all buckets except
 * those kept for a step. Experts are needed together with the bucket of their layers. */
static void places_give(const ty_interpreter *in, const virtual_stage_state *virtual_stage)
{
    const ty_plan *plan = in->options.plan;
    uint32_t turns[2] = {0, 0}, lasting = 4;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *planned = &plan->buckets[b];
        bucket_state *bucket = &in->buckets[b];

        if (bucket->virtual_stage != virtual_stage || !bucket->is_sharded)
            continue;
        if (bucket->is_shared)
            bucket->place = lasting++;
        else
            bucket->place = 2 * planned->of_experts + turns[planned->of_experts]++ % 2;
    }
}

static ty_sharded_range range_of(const bucket_state *bucket)
{
    return (ty_sharded_range){{bucket->offset, bucket->count},
                              {bucket->share_offset, bucket->share_count},
                              bucket->place};
}

ty_status interpreter_sharing_open(ty_interpreter *in, virtual_stage_state *virtual_stage,
                                   ty_error *error)
{
    const uint32_t bucket_count = in->options.plan->bucket_count;
    ty_parameter_range *kept = interpreter_kept_room(in);
    ty_sharded_range *ranges = ty_alloc(bucket_count, sizeof *ranges);
    ty_sharding sharding = {.of_weights = in->shares_weights,
                            .of_gradients = in->shares_gradients,
                            .weights_last = in->options.plan->zero < 3,
                            .ranges = ranges};
    ty_status status;

    if (kept == NULL || ranges == NULL) {
        status = ty_check_memory(false, error);
        goto cleanup;
    }
    places_give(in, virtual_stage);
    for (uint32_t b = 0; b < bucket_count; b++) {
        const bucket_state *bucket = &in->buckets[b];

        if (bucket->virtual_stage == virtual_stage && bucket->is_sharded)
            ranges[sharding.range_count++] = range_of(bucket);
    }
    sharding.kept = kept;
    sharding.kept_count = interpreter_kept_ranges(in, virtual_stage, kept);
    status = in->memory->parameters_open(virtual_stage->device, &sharding, error);
cleanup:
    ty_free(kept);
    ty_free(ranges);
    return status;
}

float *interpreter_weights_at(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                              uint64_t offset)
{
    return in->shares_weights ? in->memory->kept(virtual_stage->device, TY_WEIGHTS, offset)
                              : in->options.backend->parameters(virtual_stage->device) + offset;
}

float *interpreter_gradients_at(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                                uint32_t step, uint64_t offset)
{
    return in->shares_gradients ? in->memory->kept(virtual_stage->device, TY_GRADIENTS, offset)
                                : interpreter_gradients(in, virtual_stage, step) + offset;
}

float *interpreter_bucket_gradients(const ty_interpreter *in, const bucket_state *bucket,
                                    uint32_t step)
{
    return in->shares_gradients
               ? in->memory->whole(bucket->virtual_stage->device, bucket->offset)
               : interpreter_gradients(in, bucket->virtual_stage, step) + bucket->offset;
}

/* ---- Gathers and reductions ---- */

/* The options except address and type. */
static ty_collective_options gather_of(const bucket_state *bucket, uint32_t tag)
{
    return (ty_collective_options){.kind = TY_ALL_GATHER,
                                   .members = bucket->members,
                                   .member_count = bucket->member_count,
                                   .count = bucket->count,
                                   .is_of_shares = true,
                                   .element = TY_ELEMENT_FLOAT,
                                   .tag = tag};
}

ty_status interpreter_gather_begin(ty_interpreter *in, const bucket_state *bucket, uint32_t tag,
                                   ty_collective_options *out, ty_error *error)
{
    const ty_sharded_range range = range_of(bucket);

    *out = gather_of(bucket, tag);
    if (in->memory != NULL)
        return in->memory->gather_begin(bucket->virtual_stage->device, &range, &out->data,
                                        &out->element, error);
    out->data = in->options.backend->parameters(bucket->virtual_stage->device) + bucket->offset;
    return TY_OK;
}

ty_status interpreter_gather_end(ty_interpreter *in, const bucket_state *bucket, ty_error *error)
{
    const ty_sharded_range range = range_of(bucket);

    return in->memory != NULL ? in->memory->gather_end(bucket->virtual_stage->device, &range, error)
                              : TY_OK;
}

bool interpreter_gather_is_done(ty_interpreter *in, const ty_instruction *gather, uint32_t step)
{
    bucket_state *bucket = &in->buckets[gather->bucket];
    const bool is_done = bucket->is_shared && bucket->gathered_step == step + 1;

    bucket->gathered_step = step + 1;
    return is_done;
}

/* Discards other ranks' shards of a bucket in an array. */
static void others_discard(const ty_interpreter *in, const bucket_state *bucket, float *array)
{
    const uint64_t end = bucket->offset + bucket->count;
    const uint64_t share_end = bucket->share_offset + bucket->share_count;
    const ty_device_backend *backend = in->options.backend;

    if (backend->discard == NULL)
        return;
    backend->discard(bucket->virtual_stage->device, array + bucket->offset,
                     bucket->share_offset - bucket->offset);
    backend->discard(bucket->virtual_stage->device, array + share_end, end - share_end);
}

/* Whether another bucket is in this one's place. */
static bool is_place_taken(const ty_interpreter *in, const bucket_state *bucket, bool by_gradients)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const bucket_state *other = &in->buckets[b];

        if (other != bucket && other->virtual_stage == bucket->virtual_stage && other->is_sharded &&
            other->place == bucket->place && (by_gradients ? other->is_made : other->is_in_use))
            return true;
    }
    return false;
}

bool interpreter_gather_may_start(ty_interpreter *in, const ty_instruction *gather)
{
    bucket_state *bucket = &in->buckets[gather->bucket];

    if (in->options.plan->zero < 3 || bucket->is_shared)
        return true;
    if (bucket->is_in_use || (in->memory != NULL && is_place_taken(in, bucket, false)))
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

bool interpreter_backward_may_start(ty_interpreter *in, const ty_instruction *backward)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count && in->shares_gradients; b++)
        if (in->buckets[b].is_sharded && passes_through(&in->options.plan->buckets[b], backward) &&
            is_place_taken(in, &in->buckets[b], true))
            return false;
    return true;
}

void interpreter_backward_starts(ty_interpreter *in, const ty_instruction *backward)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count && in->shares_gradients; b++)
        if (in->buckets[b].is_sharded && passes_through(&in->options.plan->buckets[b], backward))
            in->buckets[b].is_made = true;
}

/* Whether a later pass of the step uses the weights gathered for this one, before they are gathered
 * again. */
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

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        bucket_state *bucket = &in->buckets[b];

        if (!bucket->is_in_use || !passes_through(&plan->buckets[b], pass) ||
            is_used_again(in, b, pass))
            continue;
        bucket->is_in_use = false;
        others_discard(in, bucket, in->options.backend->parameters(bucket->virtual_stage->device));
    }
}

ty_status interpreter_exchange_over(ty_interpreter *in, bucket_state *bucket, ty_error *error)
{
    const uint64_t place = bucket->share_offset - bucket->offset;
    ty_status status = TY_OK;

    if (!bucket->is_sharded || in->options.plan->zero < 2)
        return TY_OK;
    if (!in->shares_gradients) {
        others_discard(in, bucket, in->options.backend->gradients(bucket->virtual_stage->device));
        return TY_OK;
    }
    if (bucket->share_count > 0)
        status = in->memory->copy(
            bucket->virtual_stage->device,
            interpreter_gradients_at(in, bucket->virtual_stage, 0, bucket->share_offset),
            interpreter_bucket_gradients(in, bucket, 0) + place,
            bucket->share_count * sizeof(float), error);
    pthread_mutex_lock(&in->lock);
    bucket->is_made = false;
    pthread_mutex_unlock(&in->lock);
    return status;
}

/* Runs a collective over the transport or the link of the devices' memory. */
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

/* Reads all numbers of a stage that this rank keeps into `gathered`. */
static ty_status kept_read(const ty_interpreter *in, virtual_stage_state *virtual_stage,
                           ty_parameter_array of, ty_error *error)
{
    ty_parameter_range *ranges = interpreter_kept_room(in);
    uint32_t count;
    ty_status status = TY_OK;

    virtual_stage->gathered =
        ty_alloc_large(in->options.backend->parameter_count(virtual_stage->device),
                       sizeof *virtual_stage->gathered);
    if (ranges == NULL || virtual_stage->gathered == NULL) {
        ty_free(ranges);
        return ty_check_memory(false, error);
    }
    count = interpreter_kept_ranges(in, virtual_stage, ranges);
    for (uint32_t r = 0; r < count && status == TY_OK; r++)
        status = in->memory->read(virtual_stage->device, virtual_stage->gathered + ranges[r].offset,
                                  in->memory->kept(virtual_stage->device, of, ranges[r].offset),
                                  ranges[r].count * sizeof *virtual_stage->gathered, error);
    ty_free(ranges);
    return status;
}

ty_status interpreter_gather_all(ty_interpreter *in, bool is_gradients, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;
    const bool is_on_host = is_gradients ? in->shares_gradients : in->shares_weights;
    ty_status status = TY_OK;

    for (uint32_t h = 0; h < in->virtual_stage_count && is_on_host && status == TY_OK; h++)
        status =
            kept_read(in, &in->virtual_stages[h], is_gradients ? TY_GRADIENTS : TY_WEIGHTS, error);
    for (uint32_t b = 0; b < in->options.plan->bucket_count && status == TY_OK; b++) {
        const bucket_state *bucket = &in->buckets[b];
        ty_collective_options gather = gather_of(bucket, SHARE_TAG);
        float *array;

        if (!bucket->is_member || !bucket->is_sharded)
            continue;
        if (is_on_host)
            array = bucket->virtual_stage->gathered;
        else
            array = is_gradients ? backend->gradients(bucket->virtual_stage->device)
                                 : backend->parameters(bucket->virtual_stage->device);
        gather.data = array + bucket->offset;
        status = is_on_host ? ty_collective_run(in->options.transport, &gather, error)
                            : gather_run(in, &gather, error);
    }
    return status;
}

void interpreter_shares_only(ty_interpreter *in)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const bucket_state *bucket = &in->buckets[b];

        if (bucket->is_sharded && in->options.plan->zero == 3)
            others_discard(in, bucket,
                           in->options.backend->parameters(bucket->virtual_stage->device));
    }
    for (uint32_t h = 0; h < in->virtual_stage_count; h++) {
        ty_free(in->virtual_stages[h].gathered);
        in->virtual_stages[h].gathered = NULL;
    }
}

/* The stage's sharded bucket of experts, or of all else, that has a layer; or NULL. */
static const bucket_state *bucket_of(const ty_interpreter *in,
                                     const virtual_stage_state *virtual_stage, uint32_t layer,
                                     bool of_experts)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count; b++) {
        const ty_bucket *planned = &in->options.plan->buckets[b];

        if (in->buckets[b].virtual_stage == virtual_stage && in->buckets[b].is_sharded &&
            planned->of_experts == of_experts && layer >= planned->first_layer &&
            layer - planned->first_layer < planned->layer_count)
            return &in->buckets[b];
    }
    return NULL;
}

static ty_status bucket_together(ty_interpreter *in, const bucket_state *bucket, ty_error *error)
{
    ty_collective_options gather;

    if (bucket == NULL)
        return TY_OK;
    TY_TRY(interpreter_gather_begin(in, bucket, SHARE_TAG, &gather, error));
    TY_TRY(gather_run(in, &gather, error));
    return interpreter_gather_end(in, bucket, error);
}

/* Whether devices have room for only some buckets' weights at a time. */
static bool takes_turns(const ty_interpreter *in)
{
    return in->memory != NULL && in->options.plan->zero == 3;
}

ty_status interpreter_weights_together(ty_interpreter *in, ty_error *error)
{
    for (uint32_t b = 0; b < in->options.plan->bucket_count && !takes_turns(in); b++)
        if (in->buckets[b].is_member && in->buckets[b].is_sharded)
            TY_TRY(bucket_together(in, &in->buckets[b], error));
    return TY_OK;
}

ty_status interpreter_forward_alone(ty_interpreter *in, const virtual_stage_state *virtual_stage,
                                    bool has_batch, ty_error *error)
{
    const ty_plan_stage *stage = &in->options.plan->stages[virtual_stage->stage];
    const uint32_t end = stage->first_layer + stage->layer_count;
    const bucket_state *at = NULL;
    uint32_t first = stage->first_layer;
    ty_status status = TY_OK;

    for (uint32_t l = first; l < end && takes_turns(in); l++) {
        const bucket_state *bucket = bucket_of(in, virtual_stage, l, false);

        if (bucket == NULL || bucket == at)
            continue;
        if (has_batch && l > first)
            TY_CHECK(
                in->options.backend->forward(virtual_stage->device, 0, first, l - first, error),
                status, done);
        first = l;
        at = bucket;
        TY_CHECK(bucket_together(in, bucket, error), status, done);
        TY_CHECK(bucket_together(in, bucket_of(in, virtual_stage, l, true), error), status, done);
    }
    if (has_batch)
        status = in->options.backend->forward(virtual_stage->device, 0, first, end - first, error);
done:
    return status;
}
