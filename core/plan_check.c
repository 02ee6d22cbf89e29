/* What must hold of every plan, wherever it came from. */
#include "plan_check.h"

#include "json_parts.h"
#include "ty_memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUCKETS = 1000000 };

typedef struct checker {
    const ty_plan *plan;
    const char *place;
    ty_error *error;
} checker;

/* "plan.json:/stages/1/replicas: found 3, expected ..." */
static ty_status complain(const checker *c, const char *format, ...) TY_PRINTF(2, 3);

static ty_status complain(const checker *c, const char *format, ...)
{
    char what[384];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ty_fail(c->error, TY_EPARSE, "%s%s", c->place, what);
}

/* ---- Batch and optimizer ------------------------------------------------------------------- */

static ty_status check_batch(const checker *c)
{
    const ty_plan *p = c->plan;
    const struct {
        const char *name;
        uint32_t value, maximum;
    } counts[] = {
        {"global_batch", p->global_batch, UINT32_MAX},
        {"micro_batch_size", p->micro_batch_size, UINT32_MAX},
        {"micro_batches", p->micro_batches, TY_MAX_MICRO_BATCHES},
    };

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value == 0 || counts[i].value > counts[i].maximum)
            return complain(c, "/%s: found %u, expected 1 to %u", counts[i].name, counts[i].value,
                            counts[i].maximum);
    if ((uint64_t)p->micro_batches * p->micro_batch_size != p->global_batch)
        return complain(
            c, "/global_batch: found %u, expected micro_batches * micro_batch_size = %llu",
            p->global_batch, (unsigned long long)p->micro_batches * p->micro_batch_size);
    if ((unsigned)p->schedule >= TY_SCHEDULE_COUNT)
        return complain(c, "/schedule: found %d, expected a schedule", (int)p->schedule);
    if (p->seed > TY_JSON_MAX_INTEGER)
        return complain(c, "/seed: found %llu, expected less than 2^53",
                        (unsigned long long)p->seed);
    return TY_OK;
}

static ty_status check_optimizer(const checker *c)
{
    const ty_optimizer *o = &c->plan->optimizer;
    const bool is_adamw = o->kind == TY_OPTIMIZER_ADAMW;
    const struct {
        const char *name;
        double value, maximum;
    } rates[] = {
        {"learning_rate", o->learning_rate, 1e6},
        {"momentum", o->momentum, 1},
        {"beta1", o->beta1, 1},
        {"beta2", o->beta2, 1},
        {"epsilon", o->epsilon, 1},
        {"weight_decay", o->weight_decay, 1e6},
    };

    if (o->kind != TY_OPTIMIZER_SGD && !is_adamw)
        return complain(c, "/optimizer/kind: found %d, expected an optimizer", (int)o->kind);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (!(rates[i].value >= 0) || rates[i].value > rates[i].maximum)
            return complain(c, "/optimizer/%s: found %g, expected a number from 0 to %g",
                            rates[i].name, rates[i].value, rates[i].maximum);
    return TY_OK;
}

/* ---- Stages -------------------------------------------------------------------------------- */

/* What a schedule asks of the stages. */
static ty_status check_schedule(const checker *c)
{
    const ty_plan *p = c->plan;
    const uint32_t positions = ty_plan_position_count(p);

    for (uint32_t s = 0; s < p->stage_count; s++) {
        const uint32_t replicas = p->stages[s].replicas;
        const uint32_t local = replicas > 0 ? p->micro_batches / replicas : 0;
        if (p->schedule == TY_INTERLEAVED &&
            (replicas != p->stages[0].replicas || local % positions != 0))
            return complain(c,
                            "/stages/%u/replicas: found %u with %u micro-batches each, expected as "
                            "many as in stage 0, and a multiple of the %u positions",
                            s, replicas, local, positions);
        if (p->schedule == TY_PIPEDREAM_2BW && local < positions)
            return complain(c,
                            "/stages/%u/replicas: found %u with %u micro-batches each, expected at "
                            "least %u, one for each stage",
                            s, replicas, local, positions);
        if (p->schedule == TY_ZERO_BUBBLE && p->stages[s].recompute == TY_RECOMPUTE_FULL)
            return complain(c,
                            "/stages/%u/recompute: found \"full\" with schedule \"zb-h1\", whose "
                            "backward comes in two parts, expected \"none\" or \"selective\"",
                            s);
    }
    return TY_OK;
}

static ty_status check_tensor(const ty_plan *p, uint32_t lanes, ty_error *why)
{
    return ty_tensor_check(p->workload, lanes, ty_plan_sequence_parts(p), why);
}

static ty_status check_context(const ty_plan *p, uint32_t lanes, ty_error *why)
{
    return ty_context_check(p->workload, lanes, why);
}

static ty_status check_expert(const ty_plan *p, uint32_t lanes, ty_error *why)
{
    const ty_status status = ty_expert_check(p->workload, lanes, why);

    if (status == TY_OK && p->micro_batch_size % lanes != 0)
        return ty_fail(why, TY_EINVAL,
                       "expert parallel %u: micro-batches of %u samples, expected a multiple of it",
                       lanes, p->micro_batch_size);
    return status;
}

/* Lanes with the same weights sum up their gradients in every step. */
static ty_status check_learning(const ty_plan *p, ty_lane_kind kind, ty_error *why)
{
    if (kind == TY_TENSOR_LANES)
        return TY_OK;
    if (p->workload->learning == TY_LEARNING_EVOLUTION || p->workload->local_steps > 1)
        return ty_fail(why, TY_EINVAL, "expected 1 where %s",
                       p->workload->local_steps > 1 ? "replicas take local steps"
                                                    : "a population is evaluated");
    return TY_OK;
}

static ty_status check_lanes(const checker *c)
{
    static const struct {
        const char *name;
        ty_status (*check)(const ty_plan *p, uint32_t lanes, ty_error *why);
    } kinds[TY_LANE_KIND_COUNT] = {
        [TY_TENSOR_LANES] = {"tensor_parallel", check_tensor},
        [TY_CONTEXT_LANES] = {"context_parallel", check_context},
        [TY_EXPERT_LANES] = {"expert_parallel", check_expert},
    };

    for (int k = 0; k < TY_LANE_KIND_COUNT; k++) {
        const uint32_t lanes = ty_plan_lanes(c->plan, (ty_lane_kind)k);
        ty_error why = {0};
        if (lanes > TY_MAX_LANES)
            return complain(c, "/%s: found %u, expected at most %d", kinds[k].name, lanes,
                            TY_MAX_LANES);
        if (lanes > 1 && (kinds[k].check(c->plan, lanes, &why) != TY_OK ||
                          check_learning(c->plan, (ty_lane_kind)k, &why) != TY_OK))
            return complain(c, "/%s: found %u: %s", kinds[k].name, lanes, why.message);
    }
    if (c->plan->sequence_parallel && ty_plan_lanes(c->plan, TY_TENSOR_LANES) == 1)
        return complain(c, "/sequence_parallel: found true without tensor parallelism, expected "
                           "false");
    return TY_OK;
}

static bool has_replicas(const ty_plan *p)
{
    for (uint32_t s = 0; s < p->stage_count; s++)
        if (p->stages[s].replicas > 1)
            return true;
    return false;
}

/* Late gradients need an exchange that can be late, and nothing else that waits for it. */
static ty_status check_staleness(const checker *c)
{
    const ty_plan *p = c->plan;
    const char *why = NULL;

    if (p->staleness > TY_MAX_STALENESS)
        return complain(c, "/staleness: found %u, expected at most %d", p->staleness,
                        TY_MAX_STALENESS);
    if (ty_schedule_is_asynchronous(p->schedule))
        why = "the schedule's own gradients are late already";
    else if (p->workload->learning == TY_LEARNING_EVOLUTION)
        why = "a population has no gradients";
    else if (p->workload->local_steps > 1)
        why = "replicas take local steps and exchange weights";
    else if (p->zero > 0)
        why = "with ZeRO weights are gathered behind the exchange that may be late";
    else if (!has_replicas(p))
        why = "no stage has replicas whose gradients could be late";
    if (p->staleness > 0 && why != NULL)
        return complain(c, "/staleness: found %u, expected 0: %s", p->staleness, why);
    return TY_OK;
}

static ty_status check_dimensions(const checker *c)
{
    const ty_plan *p = c->plan;
    const uint32_t interleave = ty_plan_interleave(p);
    ty_status status;

    if (p->stage_count % interleave != 0 || (interleave > 1 && p->stage_count / interleave < 2))
        return complain(c,
                        "/interleave: found %u with %u stages, expected a divisor that leaves at "
                        "least two positions",
                        interleave, p->stage_count);
    if ((p->schedule == TY_INTERLEAVED) != (interleave > 1))
        return complain(c,
                        "/interleave: found %u with schedule \"%s\", expected more than 1 with "
                        "\"interleaved\" and with no other",
                        interleave, ty_schedule_name(p->schedule));
    if ((status = check_lanes(c)) != TY_OK)
        return status;
    if ((status = check_schedule(c)) != TY_OK)
        return status;
    if (p->zero > 3)
        return complain(c, "/zero: found %u, expected 0 to 3", p->zero);
    if (p->zero > 0 && p->schedule != TY_GPIPE && p->schedule != TY_ONE_F_ONE_B &&
        p->schedule != TY_INTERLEAVED)
        return complain(c, "/zero: found %u with schedule \"%s\", expected 0", p->zero,
                        ty_schedule_name(p->schedule));
    return check_staleness(c);
}

/* All stages of a position lie on the same devices. */
static ty_status check_position(const checker *c, uint32_t index)
{
    const ty_plan *p = c->plan;
    const uint32_t first = index % ty_plan_position_count(p);
    const size_t devices = (size_t)p->stages[index].replicas * ty_plan_width(p);

    if (index == first)
        return TY_OK;
    if (p->stages[index].replicas != p->stages[first].replicas)
        return complain(c,
                        "/stages/%u/replicas: found %u, expected %u as in stage %u, which shares "
                        "its devices",
                        index, p->stages[index].replicas, p->stages[first].replicas, first);
    if (memcmp(p->stages[index].devices, p->stages[first].devices,
               devices * sizeof *p->stages[index].devices) != 0)
        return complain(c, "/stages/%u/devices: expected those of stage %u, %u positions before it",
                        index, first, ty_plan_position_count(p));
    return TY_OK;
}

static ty_status check_stage(const checker *c, uint32_t index, uint32_t first_layer)
{
    const ty_plan *p = c->plan;
    const ty_plan_stage *s = &p->stages[index];

    if (s->first_layer != first_layer)
        return complain(c,
                        "/stages/%u/first_layer: found %u, expected %u, the layer after the "
                        "stage before",
                        index, s->first_layer, first_layer);
    if (s->layer_count == 0 || s->layer_count > p->workload->layer_count - first_layer)
        return complain(c, "/stages/%u/layer_count: found %u, expected 1 to %u", index,
                        s->layer_count, p->workload->layer_count - first_layer);
    if (first_layer > 0 && !ty_workload_is_divisible(p->workload, first_layer))
        return complain(c,
                        "/stages/%u/first_layer: the workload cannot be divided before layer %u "
                        "(\"%s\"): expected all layers that read the batch before the cut",
                        index, first_layer, p->workload->layers[first_layer].name);
    if (s->replicas == 0 || p->micro_batches % s->replicas != 0)
        return complain(c, "/stages/%u/replicas: found %u, expected a divisor of micro_batches, %u",
                        index, s->replicas, p->micro_batches);
    if ((unsigned)s->recompute >= TY_RECOMPUTE_COUNT)
        return complain(c,
                        "/stages/%u/recompute: found %d, expected \"none\", \"selective\" or "
                        "\"full\"",
                        index, (int)s->recompute);
    if (s->devices == NULL)
        return complain(c, "/stages/%u/devices: found none, expected one per replica and lane",
                        index);
    return check_position(c, index);
}

static int compare_indices(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static ty_status check_devices(const checker *c, uint32_t used)
{
    const ty_plan *p = c->plan;
    ty_status status = TY_OK;
    uint32_t count = 0;
    uint32_t *devices = ty_alloc(used, sizeof *devices);

    if (devices == NULL)
        return ty_fail(c->error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < ty_plan_position_count(p); s++)
        for (uint32_t q = 0; q < p->stages[s].replicas * ty_plan_width(p); q++)
            devices[count++] = p->stages[s].devices[q];
    qsort(devices, count, sizeof *devices, compare_indices);
    for (uint32_t i = 1; i < count; i++)
        if (devices[i] == devices[i - 1]) {
            status = complain(c, "/stages: found device %u twice, expected each once", devices[i]);
            break;
        }
    ty_free(devices);
    return status;
}

static ty_status check_stages(const checker *c)
{
    const ty_plan *p = c->plan;
    uint64_t devices = 0;
    uint32_t next_layer = 0;
    ty_status status;

    if (p->stages == NULL || p->stage_count == 0 || p->stage_count > TY_MAX_STAGES_OF_A_PLAN)
        return complain(c, "/stages: found %u, expected 1 to %d", p->stage_count,
                        TY_MAX_STAGES_OF_A_PLAN);
    if ((status = check_dimensions(c)) != TY_OK)
        return status;
    for (uint32_t s = 0; s < p->stage_count; s++) {
        if ((status = check_stage(c, s, next_layer)) != TY_OK)
            return status;
        next_layer += p->stages[s].layer_count;
        if (s < ty_plan_position_count(p))
            devices += (uint64_t)p->stages[s].replicas * ty_plan_width(p);
    }
    if (next_layer != p->workload->layer_count)
        return complain(c, "/stages: found layers 0 to %u, expected all %u of the workload",
                        next_layer - 1, p->workload->layer_count);
    if (devices > TY_MAX_RANKS)
        return complain(c, "/stages: found %llu devices in all, expected at most %d",
                        (unsigned long long)devices, TY_MAX_RANKS);
    return check_devices(c, (uint32_t)devices);
}

/* ---- Buckets ------------------------------------------------------------------------------- */

/* Rows are of exactly one embedding, or how many there are would not be known. */
static ty_status check_rows(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    ty_error detail = {0};

    if (b->layer_count != 1)
        return complain(c,
                        "/buckets/%u/compression: found rows of %u layers, expected a bucket of "
                        "one embedding",
                        index, b->layer_count);
    if (ty_rows_check(c->plan, b->first_layer, &detail) != TY_OK)
        return complain(c, "/buckets/%u/compression: found rows: %s", index, detail.message);
    return TY_OK;
}

static ty_status check_codec(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    ty_error detail = {0};

    if ((unsigned)b->algorithm >= TY_ALGORITHM_COUNT)
        return complain(c, "/buckets/%u/algorithm: found %d, expected an algorithm", index,
                        (int)b->algorithm);
    if (ty_compression_check(&b->compression, &detail) != TY_OK)
        return complain(c, "/buckets/%u/compression: %s", index, detail.message);
    if (ty_bucket_is_sharded(c->plan, b) && !ty_compression_shards(&b->compression))
        return complain(c,
                        "/buckets/%u/compression: found %s with zero %u, expected none, fp16, bf16 "
                        "or random-k, which leave each replica its share of the sum",
                        index, ty_compression_name(b->compression.kind), c->plan->zero);
    return b->compression.kind == TY_COMPRESSION_ROWS ? check_rows(c, index) : TY_OK;
}

/* A bucket's own figures; its stage and range are valid already. */
static ty_status check_bucket_bytes(const checker *c, uint32_t index)
{
    const ty_bucket *b = &c->plan->buckets[index];
    const uint64_t bytes = ty_bucket_gradient_bytes(c->plan, b);

    if (bytes == 0)
        return complain(c, "/buckets/%u: layers %u to %u have no gradients for it, expected some",
                        index, b->first_layer, b->first_layer + b->layer_count - 1);
    if (b->gradient_bytes != bytes)
        return complain(c, "/buckets/%u/gradient_bytes: found %llu, expected %llu", index,
                        (unsigned long long)b->gradient_bytes, (unsigned long long)bytes);
    return check_codec(c, index);
}

static ty_status check_range(const checker *c, uint32_t index)
{
    const ty_plan *p = c->plan;
    const ty_bucket *b = &p->buckets[index];
    const ty_plan_stage *s;

    if (b->stage >= p->stage_count)
        return complain(c, "/buckets/%u/stage: found %u, expected 0 to %u", index, b->stage,
                        p->stage_count - 1);
    s = &p->stages[b->stage];
    if (b->layer_count == 0 || b->first_layer < s->first_layer ||
        b->first_layer - s->first_layer >= s->layer_count ||
        b->layer_count > s->first_layer + s->layer_count - b->first_layer)
        return complain(c,
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
            return complain(c,
                            "/buckets/%u: found layer %u (\"%s\"), which is frozen, expected only "
                            "layers that are trained or have no parameters",
                            index, i, layer->name);
    }
    return TY_OK;
}

/* Whether a bucket has to be followed by one of its experts. */
static bool has_experts(const ty_plan *p, const ty_bucket *b)
{
    for (uint32_t i = b->first_layer; i < b->first_layer + b->layer_count; i++)
        if (ty_layer_expert_elements(p->workload, i) > 0)
            return ty_plan_lanes(p, TY_EXPERT_LANES) > 1;
    return false;
}

/* Behind a bucket with experts comes theirs, of the same layers, and nowhere else. `index` may be
   the number of buckets. */
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
        return complain(c,
                        "/buckets/%u: expected the experts of layers %u to %u, which the bucket "
                        "before it has without them",
                        index, before->first_layer, before->first_layer + before->layer_count - 1);
    if (!is_awaited && b != NULL && b->of_experts)
        return complain(c,
                        "/buckets/%u/of_experts: found true, expected false behind a bucket "
                        "without experts, and without expert parallelism",
                        index);
    return TY_OK;
}

/* `covered` counts the buckets of each layer; `lowest` is where the stage's buckets have come
   down to. */
static ty_status check_own_bucket(const checker *c, uint32_t index, uint32_t *lowest,
                                  bool *is_covered)
{
    const ty_bucket *b = &c->plan->buckets[index];
    ty_status status = check_range(c, index);

    if (status != TY_OK)
        return status;
    if (b->of_experts) /* of the same layers as the one before */
        return check_bucket_bytes(c, index);
    if (b->first_layer + b->layer_count > lowest[b->stage])
        return complain(c,
                        "/buckets/%u: found layers %u to %u, expected them below layer %u: "
                        "buckets of a stage go from its last layer to its first and do not "
                        "overlap",
                        index, b->first_layer, b->first_layer + b->layer_count - 1,
                        lowest[b->stage]);
    lowest[b->stage] = b->first_layer;
    if ((status = check_frozen(c, index)) != TY_OK)
        return status;
    for (uint32_t i = 0; i < b->layer_count; i++)
        is_covered[b->first_layer + i] = true;
    return check_bucket_bytes(c, index);
}

static ty_status check_tied_bucket(const checker *c, uint32_t index, bool *is_tied_covered)
{
    const ty_bucket *b = &c->plan->buckets[index];
    uint32_t tied_stage;
    ty_status status = check_range(c, index);

    if (status != TY_OK)
        return status;
    if (b->layer_count != 1)
        return complain(c, "/buckets/%u/layer_count: found %u, expected 1 for a tied weight", index,
                        b->layer_count);
    tied_stage = ty_plan_tied_stage(c->plan, b->first_layer);
    if (tied_stage == TY_NO_STAGE)
        return complain(c,
                        "/buckets/%u/first_layer: layer %u has no tied copy in another stage, "
                        "expected one that has",
                        index, b->first_layer);
    if (b->tied_stage != tied_stage)
        return complain(c, "/buckets/%u/tied_stage: found %u, expected %u", index, b->tied_stage,
                        tied_stage);
    if (tied_stage % ty_plan_position_count(c->plan) == b->stage % ty_plan_position_count(c->plan))
        return complain(c,
                        "/buckets/%u: the weight is tied between stages %u and %u, which share "
                        "devices, expected different ones",
                        index, b->stage, tied_stage);
    if (is_tied_covered[b->first_layer])
        return complain(c,
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
            return complain(c,
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
        ty_status status;

        if (p->workload->layers[i].is_frozen || p->workload->layers[i].parameter_bytes == 0)
            continue;
        if (!is_covered[i] && ty_bucket_gradient_bytes(p, &alone) > 0)
            return complain(c,
                            "/buckets: found none with layer %u (\"%s\") of stage %u, expected "
                            "every trainable layer in one",
                            i, p->workload->layers[i].name, stage);
        tied_stage = ty_plan_tied_stage(p, i);
        if (tied_stage == TY_NO_STAGE)
            continue;
        if (!is_tied_covered[i])
            return complain(c,
                            "/buckets: found none for the weight of layer %u (\"%s\"), tied "
                            "between stages %u and %u, expected a tied bucket",
                            i, p->workload->layers[i].name, stage, tied_stage);
        if ((status = check_tied_users(c, i, tied_stage)) != TY_OK)
            return status;
    }
    return TY_OK;
}

/* Scores are known behind the last layer: evolution evaluates whole networks, uncompressed. */
static ty_status check_evolution(const checker *c)
{
    const ty_plan *p = c->plan;

    if (p->workload->learning != TY_LEARNING_EVOLUTION)
        return TY_OK;
    if (p->stage_count > 1)
        return complain(c, "/stages: found %u, expected 1 where a population is evaluated",
                        p->stage_count);
    for (uint32_t b = 0; b < p->bucket_count; b++)
        if (p->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            return complain(
                c, "/buckets/%u/compression: found %s, expected none: scores are exchanged", b,
                ty_compression_name(p->buckets[b].compression.kind));
    return TY_OK;
}

static ty_status check_buckets(const checker *c)
{
    const ty_plan *p = c->plan;
    ty_status status = TY_OK;
    bool are_tied = false;
    uint32_t *lowest = ty_alloc(p->stage_count, sizeof *lowest);
    bool *is_covered = ty_alloc(p->workload->layer_count, sizeof *is_covered);
    bool *is_tied_covered = ty_alloc(p->workload->layer_count, sizeof *is_tied_covered);

    if (lowest == NULL || is_covered == NULL || is_tied_covered == NULL) {
        status = ty_fail(c->error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    if (p->bucket_count > MAX_BUCKETS || (p->bucket_count > 0 && p->buckets == NULL)) {
        status =
            complain(c, "/buckets: found %u, expected at most %d", p->bucket_count, MAX_BUCKETS);
        goto cleanup;
    }
    for (uint32_t s = 0; s < p->stage_count; s++)
        lowest[s] = p->stages[s].first_layer + p->stages[s].layer_count;
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        const bool is_tied = p->buckets[b].tied_stage != TY_NO_STAGE;
        if (are_tied && !is_tied) {
            status =
                complain(c, "/buckets/%u: found after a tied weight, expected tied ones last", b);
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
    status = check_evolution(c);

cleanup:
    ty_free(lowest);
    ty_free(is_covered);
    ty_free(is_tied_covered);
    return status;
}

/* ---- The answer ---------------------------------------------------------------------------- */

static ty_status check_summary(const checker *c, const char *key, const ty_step_summary *s)
{
    const struct {
        const char *name;
        double value, maximum;
    } figures[] = {
        {"step_time_s", s->step_time_s, HUGE_VAL},
        {"samples_per_s", s->samples_per_s, HUGE_VAL},
        {"tokens_per_s", s->tokens_per_s, HUGE_VAL},
        {"compute_share", s->compute_share, 1 + 1e-6},
        {"exposed_collective_share", s->exposed_collective_share, 1 + 1e-6},
        {"exposed_transfer_share", s->exposed_transfer_share, 1 + 1e-6},
        {"bubble_share", s->bubble_share, 1 + 1e-6},
        {"input_share", s->input_share, 1 + 1e-6},
    };

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (!isfinite(figures[i].value) || figures[i].value < 0 ||
            figures[i].value > figures[i].maximum)
            return complain(
                c, "/%s/%s: found %g, expected %s", key, figures[i].name, figures[i].value,
                isfinite(figures[i].maximum) ? "a share from 0 to 1" : "a finite number >= 0");
    return TY_OK;
}

static ty_status check_answer(const checker *c)
{
    const ty_plan *p = c->plan;
    ty_status status;

    for (uint32_t i = 0; i < p->candidate_count; i++) {
        const ty_candidate *candidate = &p->candidates[i];
        if (candidate->name == NULL || candidate->reason == NULL)
            return complain(c, "/candidates/%u: found no %s", i,
                            candidate->name == NULL ? "name" : "reason");
        if (!isfinite(candidate->step_time_s) || candidate->step_time_s < 0 ||
            !isfinite(candidate->simulated_step_time_s) || candidate->simulated_step_time_s < 0)
            return complain(c,
                            "/candidates/%u: found step times %g s and %g s, expected finite "
                            "numbers >= 0",
                            i, candidate->step_time_s, candidate->simulated_step_time_s);
    }
    if (!p->has_prediction)
        return TY_OK;
    if (p->memory == NULL)
        return complain(c, "/memory: found none, expected one per stage with the prediction");
    if ((unsigned)p->provenance > TY_DATASHEET)
        return complain(c, "/provenance: found %d, expected a provenance", (int)p->provenance);
    if ((status = check_summary(c, "prediction", &p->prediction)) != TY_OK)
        return status;
    return check_summary(c, "simulation", &p->simulation);
}

/* ---- Documents ----------------------------------------------------------------------------- */

/* However the cluster's text is laid out, its digest is that of its one-line form. */
static ty_status cluster_digest(const char *json, ty_digest *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    char *compact = NULL;

    TY_CHECK(ty_json_parse(json, strlen(json), "cluster", &document, error), status, cleanup);
    TY_CHECK(ty_json_text(ty_json_root(document), &compact, error), status, cleanup);
    *out = ty_digest_of(compact, strlen(compact));

cleanup:
    ty_free(compact);
    ty_json_free(document);
    return status;
}

static ty_status check_documents(const checker *c)
{
    const ty_plan *p = c->plan;
    ty_digest digest;
    ty_status status;

    if (p->cluster_name == NULL || p->cluster_name[0] == '\0' || p->strategy == NULL ||
        p->strategy[0] == '\0')
        return complain(c, "/%s: found nothing, expected a name",
                        p->cluster_name == NULL || p->cluster_name[0] == '\0' ? "cluster_name"
                                                                              : "strategy");
    if ((status = ty_workload_digest(p->workload, &digest, c->error)) != TY_OK)
        return status;
    if (strcmp(digest.hex, p->workload_digest.hex) != 0)
        return complain(c,
                        "/workload_digest: this plan was made for another workload (digest "
                        "%.12s...), found one with digest %.12s...",
                        p->workload_digest.hex, digest.hex);
    if (p->cluster_json == NULL)
        return complain(c, "/cluster: found none, expected the cluster the plan was made for");
    if ((status = cluster_digest(p->cluster_json, &digest, c->error)) != TY_OK)
        return status;
    if (strcmp(digest.hex, p->cluster_digest.hex) != 0)
        return complain(c,
                        "/cluster_digest: this plan was made for another cluster (digest "
                        "%.12s...), found one with digest %.12s...",
                        p->cluster_digest.hex, digest.hex);
    return TY_OK;
}

ty_status ty_plan_check_at(const ty_plan *plan, const char *place, ty_error *error)
{
    static ty_status (*const checks[])(const checker *) = {
        check_batch, check_optimizer, check_stages, check_buckets, check_answer, check_documents,
    };
    const checker c = {plan, place, error};

    if (plan->workload == NULL || plan->workload->layer_count == 0)
        return complain(&c, "/workload: found none, expected one with layers");
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        ty_status status = checks[i](&c);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

ty_status ty_plan_check(const ty_plan *plan, const char *name, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];

    snprintf(place, sizeof place, "%s:", name);
    return ty_plan_check_at(plan, place, error);
}
