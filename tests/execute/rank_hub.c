#include "rank_hub.h"

#include <math.h>
#include <string.h>

void rank_hub_open(rank_hub *hub, const ty_device_backend *backend, const ty_plan *plan)
{
    *hub = (rank_hub){.backend = backend, .plan = plan};
    pthread_barrier_init(&hub->barrier, NULL, ty_plan_replica_ranks(plan));
}

void rank_hub_close(rank_hub *hub)
{
    for (uint32_t l = 0; l < ty_plan_replica_ranks(hub->plan); l++)
        hub->backend->close(hub->devices[l]);
    pthread_barrier_destroy(&hub->barrier);
}

/* Index of a rank in its group of this kind. */
static uint32_t number_of(const rank_hub *hub, ty_parallelism kind, uint32_t rank)
{
    uint32_t number = 0;

    while (ty_plan_rank_along(hub->plan, kind, rank, number) != rank)
        number++;
    return number;
}

ty_parallel_group rank_hub_group(const rank_hub *hub, uint32_t rank)
{
    return (ty_parallel_group){.tp_size = ty_plan_parallel_size(hub->plan, TY_TENSOR_PARALLEL),
                               .tp_rank = number_of(hub, TY_TENSOR_PARALLEL, rank),
                               .divides_sequence = hub->plan->sequence_parallel,
                               .cp_size = hub->plan->context_parallel,
                               .cp_rank = number_of(hub, TY_CONTEXT_PARALLEL, rank),
                               .ep_size = hub->plan->expert_parallel,
                               .ep_rank = number_of(hub, TY_EXPERT_PARALLEL, rank),
                               .tables = hub->plan->table_shard};
}

static bool is_by_parts(const ty_parallel_exchange *exchange)
{
    return exchange->kind == TY_ALL_GATHER || exchange->kind == TY_ALL_TO_ALL;
}

uint64_t rank_hub_bytes(const rank_hub *hub, const ty_parallel_exchange *exchange)
{
    const uint32_t ranks = ty_plan_parallel_size(hub->plan, exchange->among);
    uint64_t count = exchange->count * (is_by_parts(exchange) ? ranks : 1);

    if (exchange->received_counts != NULL) {
        count = 0;
        for (uint32_t l = 0; l < ranks; l++)
            count += exchange->received_counts[l];
    }
    return count * ty_element_bytes(exchange->element);
}

/* Input of the n-th rank of the collective's group. */
static const char *data_of(const rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                           uint32_t n)
{
    return hub->data[ty_plan_rank_along(hub->plan, exchange->among, rank, n)];
}

/* Copies each rank's shard for this one. */
static void parts_take(const rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                       char *result)
{
    const uint64_t size = ty_element_bytes(exchange->element);
    const uint32_t own = number_of(hub, exchange->among, rank);

    for (uint32_t l = 0; l < ty_plan_parallel_size(hub->plan, exchange->among); l++) {
        const uint32_t from = ty_plan_rank_along(hub->plan, exchange->among, rank, l);
        const uint64_t *sent = hub->exchanges[from]->sent_counts;
        uint64_t before = own * exchange->count, count = exchange->count;

        if (sent != NULL) {
            before = 0;
            for (uint32_t m = 0; m < own; m++)
                before += sent[m];
            count = sent[own];
        }
        memcpy(result, data_of(hub, rank, exchange, l) + before * size, count * size);
        result += count * size;
    }
}

/* In 16 bits each sum of two is rounded, as in a ring. */
static void sum_add(ty_element element, uint64_t count, const void *from, void *to)
{
    const float *numbers = from;
    float *sums = to;

    if (element == TY_ELEMENT_HALF)
        ty_half_add(to, from, count);
    else if (element == TY_ELEMENT_BFLOAT)
        ty_bfloat_add(to, from, count);
    else
        for (uint64_t i = 0; i < count; i++)
            sums[i] = element == TY_ELEMENT_LARGEST_FLOAT ? fmaxf(sums[i], numbers[i])
                                                          : sums[i] + numbers[i];
}

static void result_make(const rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                        char *result)
{
    const uint32_t ranks = ty_plan_parallel_size(hub->plan, exchange->among);
    const uint64_t bytes = exchange->count * ty_element_bytes(exchange->element);

    if (exchange->kind == TY_ALL_TO_ALL)
        parts_take(hub, rank, exchange, result);
    if (!is_by_parts(exchange)) {
        memcpy(result, data_of(hub, rank, exchange, 0), bytes);
        for (uint32_t l = 1; l < ranks; l++)
            sum_add(exchange->element, exchange->count, data_of(hub, rank, exchange, l), result);
    }
    for (uint32_t l = 0; exchange->kind == TY_ALL_GATHER && l < ranks; l++)
        memcpy(result + l * bytes, data_of(hub, rank, exchange, l) + l * bytes, bytes);
}

void rank_hub_exchange(rank_hub *hub, uint32_t rank, const ty_parallel_exchange *exchange,
                       const void *brought, void *result)
{
    hub->data[rank] = brought;
    hub->exchanges[rank] = exchange;
    pthread_barrier_wait(&hub->barrier);
    result_make(hub, rank, exchange, result);
    pthread_barrier_wait(&hub->barrier);
}

uint64_t rank_hub_tokens(const rank_hub *hub, uint32_t rank, uint32_t samples, const int32_t *whole,
                         int32_t *part)
{
    const uint32_t ranks = ty_plan_parallel_size(hub->plan, TY_CONTEXT_PARALLEL);
    const uint32_t c = number_of(hub, TY_CONTEXT_PARALLEL, rank);
    const uint64_t length = hub->plan->workload->tokens_per_sample;
    const uint64_t own = samples / ty_plan_parallel_size(hub->plan, TY_EXPERT_PARALLEL) * length;
    const uint64_t first = number_of(hub, TY_EXPERT_PARALLEL, rank) * own;
    uint64_t taken = 0;

    for (uint64_t i = first; i < first + own; i++) {
        const uint64_t of_all = i % length * 2 * ranks / length;
        if (of_all == c || of_all == 2 * ranks - 1 - c)
            part[taken++] = whole[i];
    }
    return taken;
}

/* ---- An unsharded device's weights ---- */

static bool floats_read(const rank_hub *hub, uint32_t rank, const float *from, uint64_t count,
                        float *to)
{
    const ty_device_memory *memory = hub->backend->memory;

    if (memory != NULL)
        return memory->read(hub->devices[rank], to, from, count * sizeof *to, NULL) == TY_OK;
    memcpy(to, from, count * sizeof *to);
    return true;
}

/* Joins the tensor-parallel ranks from `first` on. With sequence parallelism, gradients of
 * replicated weights are summed over them. */
static float *layer_joined(const rank_hub *hub, uint32_t first, uint32_t layer, bool of_gradients,
                           uint64_t *count)
{
    const ty_device_backend *backend = hub->backend;
    const ty_stage_device *device = hub->devices[first];
    const uint32_t ranks = ty_plan_parallel_size(hub->plan, TY_TENSOR_PARALLEL);
    const bool adds = of_gradients && hub->plan->sequence_parallel &&
                      ty_tensor_parameter_share(hub->plan, layer) >= 1;
    uint64_t offset, part;
    float *parts, *whole;
    bool is_read = true;

    backend->slice(device, layer, 1, &offset, &part);
    *count = backend->shards_join(device, layer, false, NULL, NULL);
    parts = ty_alloc(ranks * part, sizeof *parts);
    whole = ty_alloc(*count, sizeof *whole);
    for (uint32_t l = 0; l < ranks && part > 0; l++) {
        ty_stage_device *own = hub->devices[first + l];
        const float *from = of_gradients ? backend->gradients(own) : backend->parameters(own);
        is_read = is_read && floats_read(hub, first + l, from + offset, part, parts + l * part);
    }
    backend->shards_join(device, layer, false, parts, whole);
    for (uint64_t i = 0; adds && i < part; i++) {
        whole[i] = 0;
        for (uint32_t l = 0; l < ranks; l++)
            whole[i] += parts[l * part + i];
    }
    ty_free(parts);
    if (!is_read) {
        ty_free(whole);
        return NULL;
    }
    return whole;
}

float *rank_hub_weights(const rank_hub *hub, uint32_t context, uint32_t layer, uint64_t *count)
{
    return layer_joined(hub, context * ty_plan_parallel_size(hub->plan, TY_TENSOR_PARALLEL), layer,
                        false, count);
}

/* Appends the gradients of a layer's experts to the others, summed over context-parallel ranks. */
static void experts_add(const rank_hub *hub, uint32_t layer, float **gradients, uint64_t *count)
{
    const uint32_t tensor = ty_plan_parallel_size(hub->plan, TY_TENSOR_PARALLEL);
    const ty_device_backend *cpu = hub->backend;
    uint64_t offset, part, experts;
    float *parts;

    cpu->expert_slice(hub->devices[0], layer, 1, &offset, &part);
    experts = cpu->experts_join(hub->devices[0], layer, NULL, NULL);
    parts = ty_alloc(ty_plan_replica_ranks(hub->plan) * part, sizeof *parts);
    for (uint32_t rank = 0; rank < ty_plan_replica_ranks(hub->plan); rank++) {
        const uint64_t place = number_of(hub, TY_EXPERT_PARALLEL, rank) * tensor +
                               number_of(hub, TY_TENSOR_PARALLEL, rank);
        for (uint64_t i = 0; i < part; i++)
            parts[place * part + i] += cpu->gradients(hub->devices[rank])[offset + i];
    }
    *gradients = ty_resize(*gradients, *count + experts, sizeof **gradients);
    cpu->experts_join(hub->devices[0], layer, parts, *gradients + *count);
    *count += experts;
    ty_free(parts);
}

float *rank_hub_gradients(const rank_hub *hub, uint32_t layer, uint64_t *count)
{
    const uint32_t tensor = ty_plan_parallel_size(hub->plan, TY_TENSOR_PARALLEL);
    float *sum = layer_joined(hub, 0, layer, true, count);

    for (uint32_t first = tensor; sum != NULL && first < ty_plan_replica_ranks(hub->plan);
         first += tensor) {
        float *more = layer_joined(hub, first, layer, true, count);

        for (uint64_t i = 0; more != NULL && i < *count; i++)
            sum[i] += more[i];
        if (more == NULL) {
            ty_free(sum);
            sum = NULL;
        }
        ty_free(more);
    }
    if (sum != NULL && ty_plan_parallel_size(hub->plan, TY_EXPERT_PARALLEL) > 1)
        experts_add(hub, layer, &sum, count);
    return sum;
}
