/* Groups gradients into buckets so that a step's last all-reduce ends as early as possible. */
#include "candidate.h"
#include "costing.h"

#include <math.h>

/* ---- The choice itself ------------------------------------------------------------------- */

ty_status ty_buckets_choose(uint32_t count, const double *ready_s, ty_bucket_seconds *seconds,
                            void *context, uint32_t *first_of_last, double *end_s, ty_error *error)
{
    uint32_t *buckets = ty_alloc((size_t)count + 1, sizeof *buckets);

    TY_TRY(ty_check_memory(buckets != NULL, error));
    end_s[0] = 0;
    for (uint32_t end = 1; end <= count; end++) {
        end_s[end] = HUGE_VAL;
        for (uint32_t first = end; first-- > 0;) {
            const double start = fmax(end_s[first], ready_s[end - 1]);
            const double done = start + seconds(context, first, end - first);
            if (done > end_s[end] || (done == end_s[end] && buckets[first] + 1 >= buckets[end]))
                continue;
            end_s[end] = done;
            first_of_last[end] = first;
            buckets[end] = buckets[first] + 1;
        }
    }
    ty_free(buckets);
    return TY_OK;
}

/* ---- For a stage of a plan --------------------------------------------------------------- */

/* A stage's layers with gradients, from the last down, in the order of backward. Small neighbors
 * form one piece, so that there are about MOST_PIECES at most. */
#define MOST_PIECES 96

typedef struct pieces {
    ty_costing *costing;
    uint32_t stage;
    ty_compression compression;
    ty_algorithm algorithm;
    uint32_t count;
    uint32_t *first, *end; /* [count] layers [first, end) */
    double *ready_s;       /* [count] since the start of backward */
    ty_status status;      /* of the costs */
} pieces;

/* The bucket of pieces [first, first + count). */
static ty_bucket bucket_of_pieces(const pieces *p, uint32_t first, uint32_t count)
{
    ty_bucket bucket = {.stage = p->stage,
                        .first_layer = p->first[first + count - 1],
                        .tied_stage = TY_NO_STAGE,
                        .algorithm = p->algorithm,
                        .compression = p->compression};

    bucket.layer_count = p->end[first] - bucket.first_layer;
    bucket.gradient_bytes = ty_bucket_gradient_bytes(p->costing->plan, &bucket);
    return bucket;
}

static double bucket_seconds(void *context, uint32_t first, uint32_t count)
{
    pieces *p = context;
    const ty_bucket bucket = bucket_of_pieces(p, first, count);
    ty_codec_cost codec;
    double sum_s;

    ty_cost_of_codec(p->costing, &bucket, &codec);
    sum_s = codec.encode_s[0] + codec.encode_s[1] + codec.decode_s;
    for (uint32_t phase = 0; phase < ty_compression_phases(&bucket.compression); phase++) {
        ty_instruction_cost cost = {0};
        if (p->status == TY_OK)
            p->status = ty_cost_collective_of(
                p->costing, &bucket, ty_plan_exchange_kind(p->costing->plan, &bucket, phase),
                bucket.algorithm, ty_plan_exchange_bytes(p->costing->plan, &bucket, phase), &cost);
        sum_s += cost.seconds;
    }
    return sum_s;
}

/* False if a frozen layer's weights are between the gradients: no bucket may include them. */
static bool cut_pieces(pieces *p)
{
    const ty_plan *plan = p->costing->plan;
    const ty_plan_stage *stage = &plan->stages[p->stage];
    const uint32_t end = stage->first_layer + stage->layer_count;
    uint64_t total = 0, held = 0;
    double time_s = 0;

    for (uint32_t l = stage->first_layer; l < end; l++) {
        const ty_bucket one = {
            .stage = p->stage, .first_layer = l, .layer_count = 1, .tied_stage = TY_NO_STAGE};
        if (plan->workload->layers[l].is_frozen && plan->workload->layers[l].parameter_bytes > 0)
            return false;
        total += ty_bucket_gradient_bytes(plan, &one);
    }
    for (uint32_t l = end; l-- > stage->first_layer;) {
        const ty_bucket one = {
            .stage = p->stage, .first_layer = l, .layer_count = 1, .tied_stage = TY_NO_STAGE};
        const uint64_t bytes = ty_bucket_gradient_bytes(plan, &one);
        const ty_stage_costing *costs = &p->costing->stage;
        double slowest_s = 0;
        for (uint32_t t = 0; t < costs->type_count; t++)
            slowest_s =
                fmax(slowest_s,
                     costs->prices[t * (size_t)plan->workload->layer_count + l].backward.device_s);
        time_s += slowest_s + costs->inner_s[COST_BACKWARD][l];
        if (bytes == 0)
            continue;
        if (p->count == 0 || held >= total / MOST_PIECES) {
            p->end[p->count++] = l + 1;
            held = 0;
        }
        held += bytes;
        p->first[p->count - 1] = l;
        p->ready_s[p->count - 1] = time_s;
    }
    return p->count > 0;
}

static ty_status add_buckets(pieces *p, ty_plan *plan, ty_error *error)
{
    uint32_t *first = ty_alloc((size_t)p->count + 1, sizeof *first);
    double *end_s = ty_alloc((size_t)p->count + 1, sizeof *end_s);
    ty_bucket *added = &plan->buckets[plan->bucket_count];
    uint32_t count = 0;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(first != NULL && end_s != NULL, error), status, done);
    TY_CHECK(ty_buckets_choose(p->count, p->ready_s, bucket_seconds, p, first, end_s, error),
             status, done);
    if (p->status != TY_OK) {
        status = p->status;
        goto done;
    }
    for (uint32_t end = p->count; end > 0; end = first[end])
        added[count++] = bucket_of_pieces(p, first[end], end - first[end]);
    for (uint32_t i = 0; i < count / 2; i++) { /* found from the last on */
        const ty_bucket kept = added[i];
        added[i] = added[count - 1 - i];
        added[count - 1 - i] = kept;
    }
    plan->bucket_count += count;
done:
    ty_free(end_s);
    ty_free(first);
    return status;
}

/* Gradients that are ready in one cycle share a bucket, up to `enough` bytes. */
static void add_by_cycle(const pieces *p, double cycle_s, uint64_t enough, ty_plan *plan)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        const ty_bucket bucket = bucket_of_pieces(p, first, i + 1 - first);
        if (i + 1 < p->count && bucket.gradient_bytes < enough &&
            floor(p->ready_s[i + 1] / cycle_s) <= floor(p->ready_s[i] / cycle_s))
            continue;
        plan->buckets[plan->bucket_count++] = bucket;
        first = i + 1;
    }
}

/* @param cycle_s 0: the buckets that end first, of any size */
static ty_status add_to_stage(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                              const ty_compression *compression, double cycle_s, uint64_t enough,
                              bool *is_done, ty_error *error)
{
    const uint32_t layers = plan->stages[stage].layer_count;
    ty_costing costing = ty_costing_of(plan, networks, error);
    pieces p = {.costing = &costing,
                .stage = stage,
                .compression = *compression,
                .first = ty_alloc(layers, sizeof *p.first),
                .end = ty_alloc(layers, sizeof *p.end),
                .ready_s = ty_alloc(layers, sizeof *p.ready_s)};
    ty_bucket any = {.stage = stage,
                     .first_layer = plan->stages[stage].first_layer,
                     .layer_count = layers,
                     .tied_stage = TY_NO_STAGE};
    bool is_library = false;
    ty_status status = TY_OK;

    *is_done = false;
    TY_CHECK(ty_check_memory(p.first != NULL && p.end != NULL && p.ready_s != NULL, error), status,
             done);
    TY_CHECK(ty_cost_stage_open(&costing, stage), status, done);
    TY_CHECK(ty_cost_is_library(&costing, &any, &is_library), status, done);
    p.algorithm = is_library ? TY_AUTOMATIC : TY_RING;
    *is_done = cut_pieces(&p);
    if (*is_done && cycle_s > 0)
        add_by_cycle(&p, cycle_s, enough, plan);
    else if (*is_done)
        status = add_buckets(&p, plan, error);
done:
    ty_cost_stage_close(&costing);
    ty_free(p.ready_s);
    ty_free(p.end);
    ty_free(p.first);
    return status;
}

ty_status ty_stage_buckets_choose(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                  const ty_compression *compression, bool *is_done, ty_error *error)
{
    return add_to_stage(plan, stage, networks, compression, 0, 0, is_done, error);
}

ty_status ty_stage_buckets_by_cycle(ty_plan *plan, uint32_t stage, ty_network_cache *networks,
                                    const ty_compression *compression, double cycle_s,
                                    uint64_t enough, bool *is_done, ty_error *error)
{
    return add_to_stage(plan, stage, networks, compression, cycle_s, enough, is_done, error);
}
