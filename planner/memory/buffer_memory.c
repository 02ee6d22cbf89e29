/* Buffers of communication: messages between stages, collectives, tables, experts, gathered weights
 * and sequences; payloads and state of compressors. */
#include "gpu_scratch.h"
#include "memory/memory.h"

#include <math.h>

/* Staging for a message that arrives before its slot is free, and for one that leaves. */
#define STAGING_BUFFERS 2
/* A ring reduces one chunk while the next arrives. */
#define RING_PIECES 2
/* Autograd: activation and gradient, each way. */
#define MESSAGES 4
/* Weights that frameworks gather at once with ZeRO 3: the current layer and the next. */
#define GATHERED_LAYERS 2

double ty_memory_transfer(const stage_memory *m, uint32_t stage, ty_direction direction)
{
    if (stage == 0 || stage == m->plan->stage_count)
        return 0;
    return (double)ty_plan_transfer_bytes(m->plan, stage, direction) / m->samples;
}

/* ---- Buckets --------------------------------------------------------------------------------- */

static bool is_exchanged_here(const stage_memory *m, const ty_bucket *bucket)
{
    return (bucket->stage == m->index || bucket->tied_stage == m->index) &&
           ty_bucket_device_count(m->plan, bucket) > 1;
}

/* Scratch of a collective: a tree, an all-to-all and servers receive full payloads, a ring chunks;
 * an all-gather receives in place. */
static double collective_scratch(const stage_memory *m, const ty_bucket *bucket, uint32_t phase)
{
    const double wire = (double)ty_plan_exchange_bytes(m->plan, bucket, phase);
    const ty_collective_kind kind = ty_plan_exchange_kind(m->plan, bucket, phase);

    if (kind == TY_ALL_GATHER)
        return 0;
    if (kind == TY_ALL_TO_ALL || bucket->algorithm == TY_TREE ||
        bucket->algorithm == TY_PARAMETER_SERVER || bucket->algorithm == TY_BLOCK_MANAGER)
        return wire;
    return fmin(wire, RING_PIECES * wire / ty_bucket_device_count(m->plan, bucket));
}

/* Buckets are reduced one after another, so the largest scratch serves all. */
static double bucket_buffers(const stage_memory *m)
{
    double largest = 0;

    for (uint32_t b = 0; b < m->plan->bucket_count; b++) {
        const ty_bucket *bucket = &m->plan->buckets[b];
        const uint32_t phases = ty_compression_phases(&bucket->compression);
        for (uint32_t phase = 0; phase < phases && is_exchanged_here(m, bucket); phase++)
            largest = fmax(largest, collective_scratch(m, bucket, phase));
    }
    return ceil(largest);
}

double ty_memory_compression(const stage_memory *m)
{
    double bytes = 0;

    for (uint32_t b = 0; b < m->plan->bucket_count; b++) {
        const ty_bucket *bucket = &m->plan->buckets[b];
        const uint32_t members = ty_bucket_device_count(m->plan, bucket);
        ty_gradient_extent extent;
        if (!is_exchanged_here(m, bucket) || bucket->compression.kind == TY_COMPRESSION_NONE)
            continue;
        extent = ty_bucket_extent(m->plan, bucket);
        bytes += (double)ty_compression_payload_bytes(&bucket->compression, &extent, members) +
                 (double)ty_compression_state_bytes(&bucket->compression, &extent, members);
    }
    return bytes;
}

/* ---- Ranks of a stage replica ---------------------------------------------------------------- */

/* Tables that expert-parallel ranks shard: per slot the indices of all ranks' samples, vectors of
 * all samples or their gradients, and, unless these are summed in place, the rank's own. */
static double table_buffers(const stage_memory *m)
{
    const ty_table_exchange tables = ty_plan_tables(m->plan);
    const double own = m->samples / ty_plan_parallel_size(m->plan, TY_EXPERT_PARALLEL);
    double vectors = m->samples * (double)tables.own_numbers;
    double indices = m->samples * (double)tables.own_indices;

    if (tables.first_bag < m->first || tables.first_bag >= m->end)
        return 0;
    if (m->plan->table_shard != TY_TABLES_ROW)
        vectors += own * (double)tables.numbers;
    if (ty_schedule_at(m->plan->schedule)->splits_backward) /* stored for the second part */
        indices += m->samples * (double)tables.own_numbers;
    return m->slots * indices * TY_GRADIENT_ELEMENT_BYTES +
           vectors * m->plan->workload->element_bytes;
}

void ty_memory_expert_rows(const stage_memory *m, uint32_t layer, double *own, double *most)
{
    const ty_layer *l = memory_layer(m, layer);
    const uint64_t *a = l->attributes;
    const uint64_t ranks = ty_plan_parallel_size(m->plan, TY_EXPERT_PARALLEL);
    const uint64_t contexts = ty_plan_parallel_size(m->plan, TY_CONTEXT_PARALLEL);
    const uint64_t chosen = a[TY_EXPERTS_PER_TOKEN];
    const uint64_t rows =
        (uint64_t)(m->samples * ty_memory_tokens(&l->output) / (double)(ranks * contexts));

    *own = (double)ty_expert_rows(rows * chosen, a[TY_EXPERTS]);
    *most = (double)ty_rank_expert_rows(rows, chosen, a[TY_EXPERTS], ranks);
}

/* Bytes of one inner collective: an all-gather's result is the full tensor; keys and values of a
 * sequence are also stored in the order in which context-parallel ranks send them. Sums in place
 * have no buffer. */
static double inner_buffer(const stage_memory *m, const ty_inner_collective *inner)
{
    if (inner->kind == TY_ALL_REDUCE)
        return 0;
    return (double)inner->bytes *
           (inner->kind == TY_ALL_GATHER ? ty_plan_parallel_size(m->plan, inner->among) : 1) *
           (inner->kind == TY_REDUCE_SCATTER && inner->among == TY_CONTEXT_PARALLEL ? 2 : 1);
}

/* One layer at a time: sequences gathered and scattered by context and sequence parallelism, tokens
 * sent to experts and back. On accelerators the latter are the received rows, and gradients of
 * experts' outputs. */
static double rank_buffers(const stage_memory *m)
{
    double largest = 0, own, most;

    for (uint32_t i = m->first; i < m->end; i++) {
        const uint64_t *a = memory_layer(m, i)->attributes;
        ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
        const uint32_t count = ty_layer_inner_collectives(m->plan, i, true, inner);
        const bool sends_rows = a[TY_EXPERTS_PER_TOKEN] > 0 && !m->is_on_cores &&
                                ty_plan_parallel_size(m->plan, TY_EXPERT_PARALLEL) > 1;
        double bytes = 0;
        if (sends_rows) {
            ty_memory_expert_rows(m, i, &own, &most);
            bytes = 2 * most * (double)a[TY_FEATURES] * m->plan->workload->element_bytes;
        }
        for (uint32_t k = 0; k < count && !memory_row_at(m, i)->is_bag; k++)
            if (!sends_rows || inner[k].among != TY_EXPERT_PARALLEL)
                bytes += inner_buffer(m, &inner[k]);
        largest = fmax(largest, bytes);
    }
    return largest;
}

/* ---- ZeRO ------------------------------------------------------------------------------------ */

/* Weights of sharded buckets that are gathered at a time: the one in use and the next, alternating
 * in two buffers; likewise the experts of their layers. @param narrow [out] the largest bucket
 */
static double whole_at_once(const stage_memory *m, double *largest)
{
    double places[2][2] = {{0, 0}, {0, 0}};
    uint32_t turn[2] = {0, 0};

    *largest = 0;
    for (uint32_t b = 0; b < m->plan->bucket_count; b++) {
        const ty_bucket *bucket = &m->plan->buckets[b];
        const double numbers = (double)bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
        double *place = &places[bucket->of_experts][turn[bucket->of_experts]];
        if (bucket->stage != m->index || !ty_bucket_is_sharded(m->plan, bucket))
            continue;
        *place = fmax(*place, numbers);
        turn[bucket->of_experts] ^= 1;
        *largest = fmax(*largest, numbers);
    }
    return places[0][0] + places[0][1] + places[1][0] + places[1][1];
}

/* Weights with ZeRO 3, as passes read them, and gradients between backward and their
 * reduce-scatter. 16-bit weights are gathered one bucket at a time, then copied to where they are
 * read. */
static double gathered(const stage_memory *m)
{
    const double element = m->plan->workload->element_bytes;
    double largest, at_once = whole_at_once(m, &largest), bytes = 0;

    if (m->plan->zero > 0 && element < TY_GRADIENT_ELEMENT_BYTES)
        bytes += largest * element;
    if (m->plan->zero >= 3)
        bytes += at_once * element;
    if (m->plan->zero >= 2 && m->plan->micro_batches == m->stage->replicas)
        bytes += at_once * TY_GRADIENT_ELEMENT_BYTES;
    return bytes;
}

/* ---- A stage --------------------------------------------------------------------------------- */

double ty_worker_buffers(const stage_memory *m)
{
    const uint32_t next = m->index + 1;
    const double in = ty_memory_transfer(m, m->index, TY_ACTIVATION);
    const double out = ty_memory_transfer(m, next, TY_ACTIVATION);
    /* Gradients of each slot are received or wait to be sent. */
    const double gradients =
        ty_memory_transfer(m, m->index, TY_GRADIENT) + ty_memory_transfer(m, next, TY_GRADIENT);

    return m->samples * (m->slots * gradients + STAGING_BUFFERS * (in + out)) + bucket_buffers(m) +
           rank_buffers(m) + table_buffers(m) + gathered(m);
}

double ty_autograd_buffers(const stage_memory *m, double weights)
{
    const ty_plan *plan = m->plan;
    const double share = m->stack->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
    const double message = m->samples * fmax(ty_memory_transfer(m, m->index, TY_ACTIVATION),
                                             ty_memory_transfer(m, m->index + 1, TY_ACTIVATION));
    double bucket = 0, largest = 0;

    for (uint32_t i = m->first; i < m->end; i++)
        largest = fmax(largest, (double)memory_layer(m, i)->parameter_bytes *
                                    ty_rank_parameter_share(plan, i));
    for (uint32_t b = 0; m->stack->overlaps_exchange && b < plan->bucket_count; b++)
        if (plan->buckets[b].stage == m->index &&
            ty_bucket_device_count(plan, &plan->buckets[b]) > 1)
            bucket = fmax(bucket, (double)plan->buckets[b].gradient_bytes * share);
    /* One bucket of all gradients is the gradients themselves. */
    if (bucket >= weights / plan->workload->element_bytes * m->stack->gradient_bytes)
        bucket = 0;
    return MESSAGES * message + bucket + (plan->zero >= 3 ? GATHERED_LAYERS * largest : 0);
}
