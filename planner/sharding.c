/*
 * ZeRO: where sharded weights come together again. Source: Rajbhandari et al., "ZeRO", SC 2020,
 * sections 5 and 7. With ZeRO 1 and 2 each bucket is gathered once a step, before the first
 * forward; with ZeRO 3 before every pass, at most two buckets ahead of the compute stream, since
 * what is gathered is given up again.
 */
#include "lowering.h"

/* Pieces that may be gathered ahead: one is computed with while the next arrives. */
#define GATHER_AHEAD 2

static bool is_sharded(const ty_lowering *l, uint32_t bucket)
{
    return ty_bucket_is_sharded(l->plan, &l->plan->buckets[bucket]);
}

static bool is_piece(const ty_lowering *l, uint32_t bucket)
{
    return is_sharded(l, bucket) && !l->plan->buckets[bucket].of_experts;
}

/* Sharded buckets of a stage, from its first layer up, as the plan has them from its last down;
   without those of experts, which go with the bucket of their layers. NULL: none, or no memory. */
static uint32_t *ascending_buckets(const ty_lowering *l, uint32_t stage, uint32_t *count)
{
    const uint32_t none = l->plan->bucket_count;
    uint32_t *buckets, found = 0, b;

    for (b = ty_lower_next_bucket(l, stage, 0); b != none;
         b = ty_lower_next_bucket(l, stage, b + 1))
        found += is_piece(l, b);
    *count = found;
    buckets = ty_alloc(found, sizeof *buckets);
    for (b = ty_lower_next_bucket(l, stage, 0); buckets != NULL && b != none;
         b = ty_lower_next_bucket(l, stage, b + 1))
        if (is_piece(l, b))
            buckets[--found] = b;
    return buckets;
}

static ty_status gather_bucket(ty_lowering *l, ty_lower_pass pass, uint32_t bucket, uint32_t after,
                               uint32_t *index)
{
    ty_instruction gather = ty_lower_bucket_instruction(l, TY_OP_GATHER, pass.stage, bucket);
    const uint32_t waits[2] = {l->begin, after};

    gather.bytes = ty_bucket_gather_bytes(l->plan, &l->plan->buckets[bucket]);
    gather.micro_batch = l->plan->zero == 3 ? pass.micro_batch : TY_NO_MICRO_BATCH;
    return ty_lower_append(l, &gather, waits, 2, index);
}

ty_status ty_lower_gather(ty_lowering *l, ty_lower_pass pass, uint32_t bucket, uint32_t after,
                          uint32_t *index)
{
    const uint32_t experts = ty_lower_experts_of(l, bucket);
    ty_status status = gather_bucket(l, pass, bucket, after, index);

    if (status == TY_OK && experts != l->plan->bucket_count)
        status = gather_bucket(l, pass, experts, after, index);
    return status;
}

static ty_status gather_stage(ty_lowering *l, uint32_t stage)
{
    uint32_t count = 0;
    uint32_t *buckets = ascending_buckets(l, stage, &count);
    ty_status status = TY_OK;

    if (buckets == NULL)
        return ty_fail(l->error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++)
        TY_CHECK(ty_lower_gather(l, (ty_lower_pass){.stage = stage}, buckets[i], TY_NO_INSTRUCTION,
                                 &l->gathers[buckets[i]]),
                 status, done);
done:
    ty_free(buckets);
    return status;
}

ty_status ty_lower_begin(ty_lowering *l)
{
    const ty_instruction begin = ty_instruction_of(TY_OP_BEGIN);
    bool is_any = false;
    ty_status status = TY_OK;

    l->begin = TY_NO_INSTRUCTION;
    for (uint32_t b = 0; b < l->plan->bucket_count; b++)
        is_any = is_any || (is_sharded(l, b) &&
                            l->plan->buckets[b].stage % l->program->stage_count == l->position);
    if (!is_any)
        return TY_OK;
    TY_CHECK(ty_lower_append(l, &begin, NULL, 0, &l->begin), status, done);
    for (uint32_t s = l->position; l->plan->zero < 3 && s < l->plan->stage_count;
         s += l->program->stage_count)
        TY_CHECK(gather_stage(l, s), status, done);
done:
    return status;
}

bool ty_lower_is_gathered(const ty_lowering *l, ty_lower_pass pass)
{
    uint32_t bucket;

    if (l->begin == TY_NO_INSTRUCTION || (l->plan->zero < 3 && pass.micro_batch > 0))
        return false;
    bucket = ty_lower_next_bucket(l, pass.stage, 0);
    return bucket < l->plan->bucket_count && is_sharded(l, bucket);
}

/* Layers of the piece that starts with the n-th of `count` ascending buckets. */
static void piece_range(const ty_lowering *l, uint32_t stage, uint32_t lowest,
                        const uint32_t *buckets, uint32_t count, uint32_t n, uint32_t *first,
                        uint32_t *end)
{
    const ty_plan_stage *s = &l->plan->stages[stage];

    *first = n == 0 ? lowest : l->plan->buckets[buckets[n]].first_layer;
    *end = n + 1 == count ? s->first_layer + s->layer_count
                          : l->plan->buckets[buckets[n + 1]].first_layer;
}

ty_status ty_lower_gathered_pass(ty_lowering *l, ty_op op, ty_lower_pass pass,
                                 const uint32_t waits[2], uint32_t *index)
{
    const bool is_upward = op == TY_OP_FORWARD || op == TY_OP_RECOMPUTE;
    uint32_t count = 0, pieces[GATHER_AHEAD] = {TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
    uint32_t *buckets = ascending_buckets(l, pass.stage, &count);
    ty_status status = TY_OK;

    if (buckets == NULL)
        return ty_fail(l->error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = is_upward ? i : count - 1 - i;
        uint32_t first, end, *gather = &l->gathers[buckets[n]];
        uint32_t behind[3] = {i == 0 ? waits[0] : TY_NO_INSTRUCTION,
                              i == 0 ? waits[1] : TY_NO_INSTRUCTION, TY_NO_INSTRUCTION};
        ty_instruction piece;
        piece_range(l, pass.stage,
                    is_upward ? l->plan->stages[pass.stage].first_layer
                              : ty_lower_first_backward(l, pass.stage),
                    buckets, count, n, &first, &end);
        if (l->plan->zero == 3)
            TY_CHECK(ty_lower_gather(l, pass, buckets[n], pieces[i % GATHER_AHEAD], gather), status,
                     done);
        behind[2] = *gather;
        piece = ty_lower_compute(op, pass, first, end - first);
        TY_CHECK(ty_lower_append(l, &piece, behind, 3, index), status, done);
        pieces[i % GATHER_AHEAD] = *index;
    }
done:
    ty_free(buckets);
    return status;
}
