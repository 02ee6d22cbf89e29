/*
 * The buckets of a plan: each trained layer is in one, in order; each satisfies its compressor;
 * tied weights come last.
 */
#include "plan_check.h"

#include "ty_base.h"

enum { MAX_BUCKETS = 1000000 };

typedef plan_checker checker;

/* Rows need exactly one embedding, because their number would be unknown otherwise. */
static ty_status check_rows(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    ty_error detail = {0};

    if (b->layer_count != 1)
        return ty_plan_complain(
            c,
            "/buckets/%u/compression: found rows of %u layers, expected a bucket of "
            "one embedding",
            index, b->layer_count);
    if (ty_rows_check(c->plan, b->first_layer, &detail) != TY_OK)
        return ty_plan_complain(c, "/buckets/%u/compression: found rows: %s", index,
                                detail.message);
    return TY_OK;
}

static ty_status check_codec(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    ty_error detail = {0};

    if ((unsigned)b->algorithm >= TY_ALGORITHM_COUNT)
        return ty_plan_complain(c, "/buckets/%u/algorithm: found %d, expected an algorithm", index,
                                (int)b->algorithm);
    if (ty_compression_check(&b->compression, &detail) != TY_OK)
        return ty_plan_complain(c, "/buckets/%u/compression: %s", index, detail.message);
    if (ty_bucket_is_sharded(c->plan, b) && !ty_compression_shards(&b->compression))
        return ty_plan_complain(
            c,
            "/buckets/%u/compression: found %s with zero %u, expected none, fp16, bf16 "
            "or random-k, which leave each replica its share of the sum",
            index, ty_compression_name(b->compression.kind), c->plan->zero);
    return ty_compression_at(b->compression.kind)->sends_rows ? check_rows(c, index) : TY_OK;
}

/* A bucket's own figures; its stage and range are valid already. */
static ty_status check_bucket_bytes(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    const uint64_t bytes = ty_bucket_gradient_bytes(c->plan, b);

    if (bytes == 0)
        return ty_plan_complain(
            c, "/buckets/%u: layers %u to %u have no gradients for it, expected some", index,
            b->first_layer, b->first_layer + b->layer_count - 1);
    if (b->gradient_bytes != bytes)
        return ty_plan_complain(c, "/buckets/%u/gradient_bytes: found %llu, expected %llu", index,
                                (unsigned long long)b->gradient_bytes, (unsigned long long)bytes);
    return check_codec(c, index);
}

static ty_status check_range(const checker *c, uint32_t index)
{
    const ty_plan *p = c->plan;
    const ty_bucket *b = &p->buckets[index];
    const ty_plan_stage *s;

    if (b->stage >= p->stage_count)
        return ty_plan_complain(c, "/buckets/%u/stage: found %u, expected 0 to %u", index, b->stage,
                                p->stage_count - 1);
    s = &p->stages[b->stage];
    if (b->layer_count == 0 || b->first_layer < s->first_layer ||
        b->first_layer - s->first_layer >= s->layer_count ||
        b->layer_count > s->first_layer + s->layer_count - b->first_layer)
        return ty_plan_complain(
            c,
            "/buckets/%u: found layers %u + %u, expected a part of stage %u, layers "
            "%u to %u",
            index, b->first_layer, b->layer_count, b->stage, s->first_layer,
            s->first_layer + s->layer_count - 1);
    return TY_OK;
}

static ty_status check_frozen(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];

    for (uint32_t i = b->first_layer; i < b->first_layer + b->layer_count; i++) {
        const ty_layer *layer = &c->plan->workload->layers[i];
        if (layer->is_frozen && layer->parameter_bytes > 0)
            return ty_plan_complain(
                c,
                "/buckets/%u: found layer %u (\"%s\"), which is frozen, expected only "
                "layers that are trained or have no parameters",
                index, i, layer->name);
    }
    return TY_OK;
}

/* Elements of a bucket's layers that are sharded over expert-parallel ranks, and the others. */
static bool has_experts(const ty_plan *p, const ty_bucket *b)
{
    for (uint32_t i = b->first_layer; i < b->first_layer + b->layer_count; i++)
        if (ty_layer_expert_elements(p, i) > 0 && !p->workload->layers[i].is_frozen)
            return true;
    return false;
}

static bool has_others(const ty_plan *p, const ty_bucket *b)
{
    ty_bucket others = *b;

    others.of_experts = false;
    return ty_bucket_gradient_bytes(p, &others) > 0;
}

/* Sharded tables share one bucket: expert-parallel ranks have equal parts of them in no other
 * partition into buckets. */
static ty_status check_tables(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    const ty_layer *layers = c->plan->workload->layers;
    const uint32_t first = ty_plan_tables(c->plan).first_bag;
    uint32_t last = first;

    if (first == TY_NO_LAYER || layers[first].is_frozen)
        return TY_OK;
    for (uint32_t i = first; i < c->plan->workload->layer_count; i++)
        last = ty_layer_is_bag(&layers[i]) ? i : last;
    if (b->first_layer > last || b->first_layer + b->layer_count <= first ||
        (b->first_layer <= first && b->first_layer + b->layer_count > last))
        return TY_OK;
    return ty_plan_complain(
        c, "/buckets/%u: found layers %u to %u, expected all sharded tables, %u to %u", index,
        b->first_layer, b->first_layer + b->layer_count - 1, first, last);
}

/* After a bucket with experts comes the one `of_experts` with the same layers. It is alone if its
 * layers have no other parameters. `index` may be the number of buckets. */
static ty_status check_pair(const checker *c, uint32_t index)
{
    const ty_plan *p = c->plan;
    const ty_bucket *b = index < p->bucket_count ? &p->buckets[index] : NULL;
    const ty_bucket *before = index > 0 ? &p->buckets[index - 1] : NULL;
    const bool is_awaited = before != NULL && !before->of_experts &&
                            before->tied_stage == TY_NO_STAGE && has_experts(p, before);

    if (is_awaited && (b == NULL || !b->of_experts || b->stage != before->stage ||
                       b->first_layer != before->first_layer ||
                       b->layer_count != before->layer_count || b->tied_stage != TY_NO_STAGE))
        return ty_plan_complain(
            c,
            "/buckets/%u: expected the experts of layers %u to %u, which the bucket "
            "before it has without them",
            index, before->first_layer, before->first_layer + before->layer_count - 1);
    return TY_OK;
}

/* The bucket's range is valid already. */
static ty_status check_experts(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];

    if (b->of_experts && (!has_experts(c->plan, b) ||
                          (!ty_bucket_is_beside(c->plan, index) && has_others(c->plan, b))))
        return ty_plan_complain(
            c,
            "/buckets/%u/of_experts: found true, expected false behind a bucket "
            "without experts, and without expert parallelism",
            index);
    return TY_OK;
}

/* `covered` counts the buckets of each layer; `lowest` is the lowest layer of the stage's buckets
 * so far. */
static ty_status check_own_bucket(const checker *c, uint32_t index, uint32_t *lowest,
                                  bool *is_covered)
{
    const ty_bucket *b = &c->plan->buckets[index];

    TY_TRY(check_range(c, index));
    TY_TRY(check_experts(c, index));
    TY_TRY(check_tables(c, index));
    if (ty_bucket_is_beside(c->plan, index))
        return check_bucket_bytes(c, index);
    if (b->first_layer + b->layer_count > lowest[b->stage])
        return ty_plan_complain(c,
                                "/buckets/%u: found layers %u to %u, expected them below layer %u: "
                                "buckets of a stage go from its last layer to its first and do not "
                                "overlap",
                                index, b->first_layer, b->first_layer + b->layer_count - 1,
                                lowest[b->stage]);
    lowest[b->stage] = b->first_layer;
    TY_TRY(check_frozen(c, index));
    for (uint32_t i = 0; i < b->layer_count; i++)
        is_covered[b->first_layer + i] = true;
    return check_bucket_bytes(c, index);
}

static ty_status check_tied_bucket(const checker *c, uint32_t index, bool *is_tied_covered)
{
    const ty_bucket *b = &c->plan->buckets[index];
    uint32_t tied_stage;

    TY_TRY(check_range(c, index));
    if (b->layer_count != 1)
        return ty_plan_complain(c,
                                "/buckets/%u/layer_count: found %u, expected 1 for a tied weight",
                                index, b->layer_count);
    tied_stage = ty_plan_tied_stage(c->plan, b->first_layer);
    if (tied_stage == TY_NO_STAGE)
        return ty_plan_complain(
            c,
            "/buckets/%u/first_layer: layer %u has no tied copy in another stage, "
            "expected one that has",
            index, b->first_layer);
    if (b->tied_stage != tied_stage)
        return ty_plan_complain(c, "/buckets/%u/tied_stage: found %u, expected %u", index,
                                b->tied_stage, tied_stage);
    if (tied_stage % ty_plan_pipeline_size(c->plan) == b->stage % ty_plan_pipeline_size(c->plan))
        return ty_plan_complain(
            c,
            "/buckets/%u: the weight is tied between stages %u and %u, which share "
            "devices, expected different ones",
            index, b->stage, tied_stage);
    if (is_tied_covered[b->first_layer])
        return ty_plan_complain(
            c,
            "/buckets/%u/first_layer: layer %u has a tied bucket already, expected "
            "one",
            index, b->first_layer);
    is_tied_covered[b->first_layer] = true;
    return check_bucket_bytes(c, index);
}

/* Copies of one weight in three stages would need a bucket of three stages. */
static ty_status check_tied_users(const checker *c, uint32_t owner, uint32_t tied_stage)
{
    const ty_workload *w = c->plan->workload;

    for (uint32_t user = owner + 1; user < w->layer_count; user++) {
        const uint32_t stage = ty_plan_stage_of_layer(c->plan, user);
        if (w->layers[user].tied_to != owner)
            continue;
        if (stage != ty_plan_stage_of_layer(c->plan, owner) && stage != tied_stage)
            return ty_plan_complain(
                c,
                "/stages: found the weight of layer %u in stages %u, %u and %u, "
                "expected it in at most two",
                owner, ty_plan_stage_of_layer(c->plan, owner), tied_stage, stage);
    }
    return TY_OK;
}

static ty_status check_coverage(const checker *c, const bool *is_covered,
                                const bool *is_tied_covered)
{
    const ty_plan *p = c->plan;

    for (uint32_t i = 0; i < p->workload->layer_count; i++) {
        const uint32_t stage = ty_plan_stage_of_layer(p, i);
        const ty_bucket alone = {
            .stage = stage, .first_layer = i, .layer_count = 1, .tied_stage = TY_NO_STAGE};
        uint32_t tied_stage;

        if (p->workload->layers[i].is_frozen || p->workload->layers[i].parameter_bytes == 0)
            continue;
        if (!is_covered[i] &&
            (ty_bucket_gradient_bytes(p, &alone) > 0 || ty_layer_expert_elements(p, i) > 0))
            return ty_plan_complain(
                c,
                "/buckets: found none with layer %u (\"%s\") of stage %u, expected "
                "every trainable layer in one",
                i, p->workload->layers[i].name, stage);
        tied_stage = ty_plan_tied_stage(p, i);
        if (tied_stage == TY_NO_STAGE)
            continue;
        if (!is_tied_covered[i])
            return ty_plan_complain(
                c,
                "/buckets: found none for the weight of layer %u (\"%s\"), tied "
                "between stages %u and %u, expected a tied bucket",
                i, p->workload->layers[i].name, stage, tied_stage);
        TY_TRY(check_tied_users(c, i, tied_stage));
    }
    return TY_OK;
}

/* Scores are known after the last layer, and a teacher's weights are with its student's. */
static ty_status check_whole_network(const checker *c)
{
    const ty_plan *p = c->plan;
    const char *why = ty_workload_whole_reason(p->workload);

    if (why == NULL)
        return TY_OK;
    if (p->stage_count > 1 && ty_plan_actors(p) == 0)
        return ty_plan_complain(c, "/stages: found %u, expected 1 where %s", p->stage_count, why);
    if (p->zero > 0 && ty_workload_has_teacher(p->workload))
        return ty_plan_complain(c, "/zero: found %u, expected 0 where %s", p->zero, why);
    if (ty_schedule_at(p->schedule)->versions == TY_WEIGHTS_DOUBLE &&
        ty_workload_has_teacher(p->workload))
        return ty_plan_complain(c, "/schedule: found %s, which keeps two sets of weights, where %s",
                                ty_schedule_name(p->schedule), why);
    if (p->workload->learning != TY_LEARNING_EVOLUTION)
        return TY_OK;
    for (uint32_t b = 0; b < p->bucket_count; b++)
        if (p->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            return ty_plan_complain(
                c, "/buckets/%u/compression: found %s, expected none: scores are exchanged", b,
                ty_compression_name(p->buckets[b].compression.kind));
    return TY_OK;
}

ty_status ty_plan_check_buckets(const checker *c)
{
    const ty_plan *p = c->plan;
    ty_status status = TY_OK;
    bool are_tied = false;
    uint32_t *lowest = ty_alloc(p->stage_count, sizeof *lowest);
    bool *is_covered = ty_alloc(p->workload->layer_count, sizeof *is_covered);
    bool *is_tied_covered = ty_alloc(p->workload->layer_count, sizeof *is_tied_covered);

    TY_CHECK(
        ty_check_memory(lowest != NULL && is_covered != NULL && is_tied_covered != NULL, c->error),
        status, cleanup);
    if (p->bucket_count > MAX_BUCKETS || (p->bucket_count > 0 && p->buckets == NULL)) {
        status = ty_plan_complain(c, "/buckets: found %u, expected at most %d", p->bucket_count,
                                  MAX_BUCKETS);
        goto cleanup;
    }
    for (uint32_t s = 0; s < p->stage_count; s++)
        lowest[s] = p->stages[s].first_layer + p->stages[s].layer_count;
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        const bool is_tied = p->buckets[b].tied_stage != TY_NO_STAGE;
        if (are_tied && !is_tied) {
            status = ty_plan_complain(
                c, "/buckets/%u: found after a tied weight, expected tied ones last", b);
            goto cleanup;
        }
        are_tied = is_tied;
        TY_CHECK(check_pair(c, b), status, cleanup);
        TY_CHECK(is_tied ? check_tied_bucket(c, b, is_tied_covered)
                         : check_own_bucket(c, b, lowest, is_covered),
                 status, cleanup);
    }
    TY_CHECK(check_pair(c, p->bucket_count), status, cleanup);
    TY_CHECK(check_coverage(c, is_covered, is_tied_covered), status, cleanup);
    status = check_whole_network(c);

cleanup:
    ty_free(lowest);
    ty_free(is_covered);
    ty_free(is_tied_covered);
    return status;
}
