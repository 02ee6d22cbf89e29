/*
 * ZeRO: all-gathers of sharded weights. Source: Rajbhandari et al., "ZeRO", SC 2020, sections 5 and
 * 7. With ZeRO 1 and 2 each bucket is gathered once per step, before the first forward; with ZeRO 3
 * before every pass, at most two buckets ahead of the compute stream, because gathered weights are
 * freed after use.
 */
#include "lowering.h"

#include "cost/kernels.h"

static bool is_sharded(const ty_lowering *l, uint32_t bucket)
{
    return ty_bucket_is_sharded(l->plan, &l->plan->buckets[bucket]);
}

static bool is_piece(const ty_lowering *l, uint32_t bucket)
{
    return is_sharded(l, bucket) && !ty_bucket_is_beside(l->plan, bucket);
}

/* Sharded buckets of a stage, from its first layer up (in the plan, from its last down), without
 * those of experts, which follow the bucket of their layers. NULL: none, or no memory. */
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

/* A bucket and its experts. */
static ty_status gather_both(ty_lowering *l, ty_lower_pass pass, uint32_t bucket, uint32_t after,
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

    TY_TRY(ty_check_memory(buckets != NULL, l->error));
    for (uint32_t i = 0; i < count; i++)
        TY_CHECK(gather_both(l, (ty_lower_pass){.stage = stage}, buckets[i], TY_NO_INSTRUCTION,
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

    l->begin = TY_NO_INSTRUCTION;
    for (uint32_t b = 0; b < l->plan->bucket_count; b++)
        is_any =
            is_any || (is_sharded(l, b) &&
                       l->plan->buckets[b].stage % l->program->stage_count == l->pipeline_rank);
    if (!is_any)
        return TY_OK;
    TY_TRY(ty_lower_append(l, &begin, NULL, 0, &l->begin));
    for (uint32_t s = l->pipeline_rank; l->plan->zero < 3 && s < l->plan->stage_count;
         s += l->program->stage_count)
        TY_TRY(gather_stage(l, s));
    return TY_OK;
}

bool ty_lower_is_gathered(const ty_lowering *l, ty_lower_pass pass)
{
    uint32_t bucket;

    if (l->begin == TY_NO_INSTRUCTION || (l->plan->zero < 3 && pass.micro_batch > 0))
        return false;
    bucket = ty_lower_next_bucket(l, pass.stage, 0);
    return bucket < l->plan->bucket_count && is_sharded(l, bucket);
}

void ty_lower_forget_gathered(ty_lowering *l)
{
    for (uint32_t k = 0; k < TY_GATHER_AHEAD; k++)
        l->together[k] = (ty_lower_gathered){l->plan->bucket_count, TY_NO_INSTRUCTION};
}

/* With ZeRO 3, gathers a bucket's weights unless they are gathered already; the least recently used
 * bucket is freed first. */
static ty_status bring_together(ty_lowering *l, ty_lower_pass pass, uint32_t bucket,
                                ty_lower_gathered **out)
{
    ty_lower_gathered *oldest = &l->together[0];
    ty_status status;

    for (uint32_t k = 0; k < TY_GATHER_AHEAD; k++) {
        if (l->together[k].bucket == bucket) {
            *out = &l->together[k];
            return TY_OK;
        }
        if (l->together[k].last_user != oldest->last_user &&
            (l->together[k].last_user == TY_NO_INSTRUCTION ||
             (oldest->last_user != TY_NO_INSTRUCTION &&
              l->together[k].last_user < oldest->last_user)))
            oldest = &l->together[k];
    }
    status = gather_both(l, pass, bucket, oldest->last_user, &l->gathers[bucket]);
    *oldest = (ty_lower_gathered){bucket, TY_NO_INSTRUCTION};
    *out = oldest;
    return status;
}

/* Layers of the part that starts with the n-th of `count` ascending buckets, within [first, end);
 * the first bucket also has the layers before it. */
static void piece_range(const ty_lowering *l, const uint32_t *buckets, uint32_t count, uint32_t n,
                        uint32_t *first, uint32_t *end)
{
    if (n > 0 && l->plan->buckets[buckets[n]].first_layer > *first)
        *first = l->plan->buckets[buckets[n]].first_layer;
    if (n + 1 < count && l->plan->buckets[buckets[n + 1]].first_layer < *end)
        *end = l->plan->buckets[buckets[n + 1]].first_layer;
}

ty_status ty_lower_gathered_range(ty_lowering *l, ty_op op, ty_lower_pass pass, uint32_t first,
                                  uint32_t end, const uint32_t waits[2], uint32_t *index)
{
    const bool is_upward = op == TY_OP_FORWARD || op == TY_OP_RECOMPUTE;
    /* all-gathers run in order: a wait for the last is a wait for all */
    const bool gathers_first = l->plan->zero < 3 && ty_stack_of(l->plan)->gather_hidden <= 0;
    uint32_t count = 0, behind[3] = {waits[0], waits[1], TY_NO_INSTRUCTION};
    uint32_t *buckets = ascending_buckets(l, pass.stage, &count);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(buckets != NULL, l->error));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = is_upward ? i : count - 1 - i;
        uint32_t piece_first = first, piece_end = end;
        ty_lower_gathered *together = NULL;
        ty_instruction piece;
        piece_range(l, buckets, count, n, &piece_first, &piece_end);
        if (piece_first >= piece_end)
            continue;
        if (l->plan->zero == 3)
            TY_CHECK(bring_together(l, pass, buckets[n], &together), status, done);
        behind[2] = l->gathers[buckets[gathers_first ? count - 1 : n]];
        piece = ty_lower_compute(op, pass, piece_first, piece_end - piece_first);
        TY_CHECK(ty_lower_append(l, &piece, behind, 3, index), status, done);
        if (together != NULL)
            together->last_user = *index;
        behind[0] = behind[1] = TY_NO_INSTRUCTION;
    }
done:
    ty_free(buckets);
    return status;
}
