/* Finds the buckets that gain by compression, and the bandwidth at which the answer changes. */
#include "costing.h"

#include <math.h>

static const ty_compression none = {0};

ty_status ty_cost_exchange(ty_costing *costing, const ty_bucket *planned,
                           const ty_compression *compression, ty_exchange_terms *terms,
                           double *seconds)
{
    ty_bucket bucket = *planned;
    ty_codec_cost codec;

    bucket.compression = *compression;
    ty_cost_of_codec(costing, &bucket, &codec);
    *terms = (ty_exchange_terms){.fixed_s = codec.encode_s[0] + codec.encode_s[1] + codec.decode_s};
    *seconds = terms->fixed_s;
    for (uint32_t phase = 0; phase < ty_compression_phases(compression); phase++) {
        ty_instruction_cost cost;
        ty_status status = ty_cost_collective_of(
            costing, &bucket, ty_plan_exchange_kind(costing->plan, &bucket, phase),
            planned->algorithm, ty_plan_exchange_bytes(costing->plan, &bucket, phase), &cost);
        if (status != TY_OK)
            return status;
        terms->fixed_s += cost.latency_s;
        terms->edge_bytes += cost.edge_bytes;
        *seconds += cost.seconds;
    }
    return TY_OK;
}

ty_status ty_cost_stage_turn(ty_costing *costing, const ty_bucket *bucket, uint32_t *stage)
{
    if (*stage == bucket->stage)
        return TY_OK;
    ty_cost_stage_close(costing);
    *stage = bucket->stage;
    return ty_cost_stage_meet(costing, bucket->stage);
}

/* Rows were chosen before, separately (row_choice.c). */
static bool is_chosen_here(const ty_bucket *bucket)
{
    return bucket->compression.kind != TY_COMPRESSION_NONE &&
           !ty_compression_at(bucket->compression.kind)->sends_rows;
}

ty_status ty_choose_compressions(ty_plan *plan, ty_network_cache *networks, ty_error *error)
{
    ty_costing costing = ty_costing_of(plan, networks, error);
    double *gains_s = ty_alloc(plan->bucket_count, sizeof *gains_s);
    uint32_t stage = TY_NO_STAGE;
    bool has_gain = false;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(gains_s != NULL, error));
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        if (!is_chosen_here(&plan->buckets[b]))
            continue;
        TY_CHECK(ty_cost_stage_turn(&costing, &plan->buckets[b], &stage), status, cleanup);
        /* Seconds that a bucket gains by its compression. */
        const ty_bucket *bucket = &plan->buckets[b];
        ty_exchange_terms ignored;
        double plain_s, compressed_s;
        TY_CHECK(ty_cost_exchange(&costing, bucket, &none, &ignored, &plain_s), status, cleanup);
        TY_CHECK(ty_cost_exchange(&costing, bucket, &bucket->compression, &ignored, &compressed_s),
                 status, cleanup);
        gains_s[b] = plain_s - compressed_s;
        has_gain = has_gain || gains_s[b] > 0;
    }
    for (uint32_t b = 0; has_gain && b < plan->bucket_count; b++)
        if (is_chosen_here(&plan->buckets[b]) && !(gains_s[b] > 0))
            plan->buckets[b].compression = (ty_compression){0};
cleanup:
    ty_cost_stage_close(&costing);
    ty_free(gains_s);
    return status;
}

/* Adds the collectives of one bucket, uncompressed and compressed. */
static ty_status add_terms(ty_costing *costing, const ty_bucket *bucket,
                           const ty_compression *compression, ty_exchange_terms *plain,
                           ty_exchange_terms *compressed)
{
    ty_exchange_terms terms;
    double ignored;

    TY_TRY(ty_cost_exchange(costing, bucket, &none, &terms, &ignored));
    plain->fixed_s += terms.fixed_s;
    plain->edge_bytes += terms.edge_bytes;
    TY_TRY(ty_cost_exchange(costing, bucket, compression, &terms, &ignored));
    compressed->fixed_s += terms.fixed_s;
    compressed->edge_bytes += terms.edge_bytes;
    return TY_OK;
}

ty_status ty_plan_exchange_terms(const ty_plan *plan, const ty_cluster *cluster,
                                 const ty_compression *compression, ty_exchange_terms *plain,
                                 ty_exchange_terms *compressed, double *ring_bandwidth_bytes_per_s,
                                 ty_error *error)
{
    ty_network_cache *networks = NULL;
    ty_costing costing;
    uint32_t stage = TY_NO_STAGE;
    ty_status status = ty_network_cache_new(cluster, &networks, error);

    if (status != TY_OK)
        return status;
    costing = ty_costing_of(plan, networks, error);
    *plain = *compressed = (ty_exchange_terms){0};
    *ring_bandwidth_bytes_per_s = HUGE_VAL;
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage != TY_NO_STAGE || ty_bucket_device_count(plan, bucket) < 2)
            continue;
        TY_CHECK(ty_cost_stage_turn(&costing, bucket, &stage), status, cleanup);
        TY_CHECK(add_terms(&costing, bucket, compression, plain, compressed), status, cleanup);
        *ring_bandwidth_bytes_per_s =
            fmin(*ring_bandwidth_bytes_per_s,
                 costing.stage.networks[bucket->of_experts]->ring_bandwidth_bytes_per_s);
    }
cleanup:
    ty_cost_stage_close(&costing);
    ty_network_cache_free(networks);
    return status;
}

ty_status ty_plan_compression_crossover(const ty_plan *plan, const ty_cluster *cluster,
                                        const ty_compression *compression,
                                        double *bandwidth_bytes_per_s,
                                        double *ring_bandwidth_bytes_per_s, ty_error *error)
{
    ty_exchange_terms plain, compressed;
    ty_status status = ty_plan_exchange_terms(plan, cluster, compression, &plain, &compressed,
                                              ring_bandwidth_bytes_per_s, error);

    *bandwidth_bytes_per_s = status == TY_OK ? ty_compression_crossover(plain, compressed) : 0;
    return status;
}
