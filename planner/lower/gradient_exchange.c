/*
 * Gradients at the end of a step: each bucket is encoded, reduced and decoded while backward
 * computes the layers before it, and then the weights are updated. Buckets come last layer first,
 * in the order of backward. A weight tied to another stage comes after all others on both stages,
 * so that all ranks call their common collectives in the same order.
 */
#include "lowering.h"

static bool is_tied(const ty_bucket *bucket)
{
    return bucket->tied_stage != TY_NO_STAGE;
}

/* Whether a bucket has gradients of this pipeline rank. */
static bool is_own(const ty_lowering *l, const ty_bucket *bucket)
{
    const uint32_t pipeline_size = l->program->stage_count;
    return bucket->stage % pipeline_size == l->pipeline_rank ||
           (is_tied(bucket) && bucket->tied_stage % pipeline_size == l->pipeline_rank);
}

/* The stage of this pipeline rank with a bucket. */
static uint32_t holder(const ty_lowering *l, const ty_bucket *bucket)
{
    return bucket->stage % l->program->stage_count == l->pipeline_rank ? bucket->stage
                                                                       : bucket->tied_stage;
}

ty_instruction ty_lower_bucket_instruction(const ty_lowering *l, ty_op op, uint32_t stage,
                                           uint32_t bucket)
{
    ty_instruction instruction = ty_instruction_of(op);
    instruction.stage = stage;
    instruction.bucket = bucket;
    instruction.first_layer = l->plan->buckets[bucket].first_layer;
    instruction.layer_count = l->plan->buckets[bucket].layer_count;
    return instruction;
}

/* Encode and collective of each phase, decode; encode and decode only with a compressor. */
static ty_status exchange(ty_lowering *l, uint32_t bucket_index, uint32_t backward)
{
    const ty_bucket *bucket = &l->plan->buckets[bucket_index];
    bool is_encoded = bucket->compression.kind != TY_COMPRESSION_NONE;
    const uint32_t at = holder(l, bucket);
    ty_instruction encode = ty_lower_bucket_instruction(l, TY_OP_ENCODE, at, bucket_index);
    ty_instruction collective = ty_lower_bucket_instruction(l, TY_OP_COLLECTIVE, at, bucket_index);
    ty_instruction decode = ty_lower_bucket_instruction(l, TY_OP_DECODE, at, bucket_index);
    uint32_t previous = backward;

    encode.bytes = decode.bytes = bucket->gradient_bytes;
    for (uint32_t phase = 0; phase < ty_compression_phases(&bucket->compression); phase++) {
        encode.phase = collective.phase = phase;
        collective.bytes = ty_plan_exchange_bytes(l->plan, bucket, phase);
        if (is_encoded)
            TY_TRY(ty_lower_append(l, &encode, &previous, 1, &previous));
        TY_TRY(ty_lower_append(l, &collective, &previous, 1, &previous));
    }
    if (is_encoded)
        TY_TRY(ty_lower_append(l, &decode, &previous, 1, &previous));
    l->averaged[bucket_index] = previous;
    return TY_OK;
}

uint32_t ty_lower_next_bucket(const ty_lowering *l, uint32_t stage, uint32_t from)
{
    const ty_plan *plan = l->plan;
    while (from < plan->bucket_count &&
           (plan->buckets[from].stage != stage || is_tied(&plan->buckets[from])))
        from++;
    return from;
}

static bool is_exchanged(const ty_lowering *l, uint32_t bucket)
{
    return ty_bucket_device_count(l->plan, &l->plan->buckets[bucket]) > 1;
}

/* The stage's next bucket from `from` on that is reduced, or the count. */
static uint32_t next_exchanged(const ty_lowering *l, uint32_t stage, uint32_t from)
{
    uint32_t bucket = ty_lower_next_bucket(l, stage, from);

    while (bucket < l->plan->bucket_count && !is_exchanged(l, bucket))
        bucket = ty_lower_next_bucket(l, stage, bucket + 1);
    return bucket;
}

/* The next one with layers of its own: experts belong to the layers of the bucket before them. */
uint32_t ty_lower_next_piece(const ty_lowering *l, uint32_t stage, uint32_t from)
{
    uint32_t bucket = next_exchanged(l, stage, from);

    while (bucket < l->plan->bucket_count && ty_bucket_is_beside(l->plan, bucket))
        bucket = next_exchanged(l, stage, bucket + 1);
    return bucket;
}

/* The bucket of the same layers' experts, if it exists and is reduced; else the count. */
uint32_t ty_lower_experts_of(const ty_lowering *l, uint32_t bucket)
{
    const uint32_t next = bucket + 1;
    return next < l->plan->bucket_count && ty_bucket_is_beside(l->plan, next) &&
                   is_exchanged(l, next)
               ? next
               : l->plan->bucket_count;
}

/* Weights that are averaged after local steps are known only after backward. */
ty_status ty_lower_exchange_own(ty_lowering *l, uint32_t stage, uint32_t source)
{
    for (uint32_t b = next_exchanged(l, stage, 0); b < l->plan->bucket_count;
         b = next_exchanged(l, stage, b + 1))
        TY_TRY(exchange(l, b, source));
    return TY_OK;
}

ty_status ty_lower_scores(ty_lowering *l)
{
    if (l->plan->workload->learning != TY_LEARNING_EVOLUTION)
        return TY_OK;
    return ty_lower_exchange_own(l, l->pipeline_rank, l->forwards[l->micro_batches - 1]);
}

/* Collectives of the gradients that a part of backward completes. */
ty_status ty_lower_exchange_piece(ty_lowering *l, uint32_t bucket, uint32_t backward)
{
    const uint32_t experts = ty_lower_experts_of(l, bucket);
    ty_status status = exchange(l, bucket, backward);

    if (status == TY_OK && experts != l->plan->bucket_count)
        status = exchange(l, experts, backward);
    return status;
}

/* Tied weights come after all other buckets of the pipeline rank, so waiting for all of backward
 * costs no time. */
static ty_status exchange_tied(ty_lowering *l)
{
    for (uint32_t b = 0; b < l->plan->bucket_count; b++) {
        const ty_bucket *bucket = &l->plan->buckets[b];
        if (is_tied(bucket) && is_own(l, bucket))
            TY_TRY(exchange(l, b, l->backwards[holder(l, bucket) / l->program->stage_count]));
    }
    return TY_OK;
}

ty_status ty_lower_updates(ty_lowering *l)
{
    TY_TRY(exchange_tied(l));
    for (uint32_t b = 0; b < l->plan->bucket_count; b++) {
        const ty_bucket *bucket = &l->plan->buckets[b];
        ty_instruction update;
        if (!is_own(l, bucket))
            continue;
        update = ty_lower_bucket_instruction(l, TY_OP_UPDATE, holder(l, bucket), b);
        TY_TRY(ty_lower_append(l, &update, &l->averaged[b], 1, NULL));
    }
    return TY_OK;
}
