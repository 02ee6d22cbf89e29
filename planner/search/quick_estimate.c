/* Quick estimates of candidates, from running sums over layers. */
#include "quick_estimate.h"

#include "cost/kernels.h"
#include "memory/memory.h"

#include <math.h>

static void clear_partitioners(quick_costs *costs)
{
    ty_partitioner_close(costs->by_all_cuts);
    ty_partitioner_close(costs->by_narrow_cuts);
    costs->by_all_cuts = costs->by_narrow_cuts = NULL;
}

void ty_quick_costs_clear(quick_costs *costs)
{
    ty_free(costs->gradient_sums);
    ty_free(costs->expert_sums);
    ty_free(costs->factor_sums);
    ty_free(costs->state_sums);
    ty_free(costs->stash_sums);
    ty_free(costs->networks);
    ty_free(costs->expert_networks);
    ty_free(costs->layer_s);
    ty_free(costs->compute_sums);
    ty_free(costs->backward_sums);
    ty_free(costs->transfer_s);
    ty_free(costs->takes_part);
    ty_free(costs->plain_exchanges);
    ty_free(costs->position_of);
    ty_free(costs->narrow_cuts);
    ty_free(costs->row_layers);
    ty_free(costs->row_seconds);
    clear_partitioners(costs);
    *costs = (quick_costs){0};
}

/* Lower bound of states and slots of any stage: ZeRO shards over infinitely many replicas, and
 * recomputation stores nothing. */
static ty_status sum_bytes(quick_costs *costs, ty_error *error)
{
    const search_question *q = costs->q;
    const ty_workload *w = q->workload;
    ty_plan plan = ty_plan_of_dimensions(q, q->global_batch);
    double *slots = ty_alloc(w->layer_count, sizeof *slots);
    ty_status status = TY_OK;

    plan.cluster = (ty_cluster *)q->cluster;
    plan.zero = q->dimensions.zero;
    plan.staleness = q->pins->staleness;
    plan.optimizer = w->optimizer;
    TY_TRY(ty_check_memory(slots != NULL, error));
    if (q->dimensions.recompute == TY_RECOMPUTE_NONE)
        TY_CHECK(ty_memory_least_slots(&plan, q->set->devices, slots, error), status, done);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *layer = &w->layers[l];
        const uint64_t parameters =
            (uint64_t)((double)layer->parameter_bytes * ty_rank_parameter_share(&plan, l));
        const double trained = layer->is_frozen ? 0 : (double)parameters;
        const memory_weights held = {.all = (double)parameters,
                                     .trained = trained,
                                     .states =
                                         trained * ty_plan_optimizer_work(&plan, l, 1).state_bytes,
                                     .sharded = trained,
                                     .elsewhere = trained};
        const memory_states states = ty_memory_states(&plan, &held);
        const uint64_t gradients =
            layer->is_frozen ? 0 : parameters / w->element_bytes * TY_GRADIENT_ELEMENT_BYTES;
        /* Gradients of experts, which only some expert-parallel stage replicas have. */
        const ty_bucket of_experts = {
            .first_layer = l, .layer_count = 1, .tied_stage = TY_NO_STAGE, .of_experts = true};
        const uint64_t experts = ty_plan_parallel_size(&plan, TY_EXPERT_PARALLEL) > 1
                                     ? ty_bucket_gradient_bytes(&plan, &of_experts)
                                     : 0;
        costs->gradient_sums[l + 1] =
            costs->gradient_sums[l] + (gradients > experts ? gradients - experts : 0);
        costs->expert_sums[l + 1] = costs->expert_sums[l] + experts;
        costs->state_sums[l + 1] =
            costs->state_sums[l] + (uint64_t)(states.weights + states.gradients + states.optimizer);
        costs->stash_sums[l + 1] = costs->stash_sums[l] + (uint64_t)slots[l];
    }
done:
    ty_free(slots);
    return status;
}

/* PowerSGD factors of all layers before each, by the rank that the search proposes or the options
 * fix. */
static void sum_factors(quick_costs *costs)
{
    const ty_workload *w = costs->q->workload;
    ty_plan_stage everything = {.layer_count = w->layer_count, .replicas = 1};
    ty_plan plan = ty_plan_of_dimensions(costs->q, 1);

    plan.stage_count = 1;
    plan.stages = &everything;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        ty_gradient_extent *sum = &costs->factor_sums[l + 1], one;
        ty_bucket bucket = {.first_layer = l,
                            .layer_count = 1,
                            .tied_stage = TY_NO_STAGE,
                            .compression =
                                ty_proposed_compression(costs->q->pins, TY_COMPRESSION_POWERSGD)};
        bucket.gradient_bytes = costs->gradient_sums[l + 1] - costs->gradient_sums[l];
        one = ty_bucket_extent(&plan, &bucket);
        *sum = costs->factor_sums[l];
        sum->p_elements += one.p_elements;
        sum->q_elements += one.q_elements;
        sum->dense_elements += one.dense_elements;
    }
}

/* Embeddings whose gradients may be sent as rows, if the options allow any. */
static bool find_rows(quick_costs *costs)
{
    const search_question *q = costs->q;
    const ty_plan plan = ty_plan_of_dimensions(q, 1);
    const size_t stage_replicas = (size_t)q->stage_replica_count + 1;
    const bool is_allowed = q->dimensions.zero == 0 && ty_may_have_rows(q->pins);

    if ((costs->row_layers = ty_alloc(q->workload->layer_count, sizeof *costs->row_layers)) == NULL)
        return false;
    for (uint32_t l = 0; is_allowed && l < q->workload->layer_count; l++)
        if (ty_layer_has_table(&q->workload->layers[l]) && ty_rows_check(&plan, l, NULL) == TY_OK)
            costs->row_layers[costs->row_layer_count++] = l;
    costs->row_seconds =
        ty_alloc(costs->row_layer_count * stage_replicas, sizeof *costs->row_seconds);
    if (costs->row_seconds == NULL)
        return false;
    for (size_t i = 0; i < costs->row_layer_count * stage_replicas; i++)
        costs->row_seconds[i] = -1;
    return true;
}

#define MOST_KNOWN_EXCHANGES ((size_t)1 << 20) /* 8 MiB */

/* If there are few enough, a place for the all-reduce between each two cuts. */
static bool make_plain_exchanges(quick_costs *costs)
{
    const search_question *q = costs->q;
    const size_t positions = (size_t)q->cut_count + 2,
                 stage_replicas = (size_t)q->stage_replica_count + 1;
    const uint32_t layers = q->workload->layer_count;

    if (stage_replicas > MOST_KNOWN_EXCHANGES / (positions * positions))
        return true;
    costs->plain_exchanges = ty_alloc(positions * positions * stage_replicas, sizeof(double));
    costs->position_of = ty_alloc((size_t)layers + 1, sizeof *costs->position_of);
    if (costs->plain_exchanges == NULL || costs->position_of == NULL)
        return false;
    for (size_t i = 0; i < positions * positions * stage_replicas; i++)
        costs->plain_exchanges[i] = -1;
    for (uint32_t l = 0; l <= layers; l++)
        costs->position_of[l] = UINT32_MAX;
    costs->position_of[0] = 0;
    costs->position_of[layers] = q->cut_count + 1;
    for (uint32_t i = 0; i < q->cut_count; i++)
        costs->position_of[q->cuts[i]] = i + 1;
    return true;
}

ty_status ty_quick_costs_make(const search_question *q, quick_costs *out, ty_error *error)
{
    size_t layers = q->workload->layer_count, devices = q->device_count;

    *out = (quick_costs){.q = q,
                         .gradient_sums = ty_alloc(layers + 1, sizeof(uint64_t)),
                         .expert_sums = ty_alloc(layers + 1, sizeof(uint64_t)),
                         .factor_sums = ty_alloc(layers + 1, sizeof(ty_gradient_extent)),
                         .state_sums = ty_alloc(layers + 1, sizeof(uint64_t)),
                         .stash_sums = ty_alloc(layers + 1, sizeof(uint64_t)),
                         .networks = ty_alloc(devices + 1, sizeof(const ty_group_network *)),
                         .expert_networks = ty_alloc(devices + 1, sizeof(const ty_group_network *)),
                         .layer_s = ty_alloc(layers, sizeof(double)),
                         .compute_sums = ty_alloc(layers + 1, sizeof(double)),
                         .backward_sums = ty_alloc(layers + 1, sizeof(double)),
                         .transfer_s = ty_alloc(layers + 1, sizeof(double)),
                         .takes_part = ty_alloc(layers, sizeof(bool)),
                         .narrow_cuts = ty_alloc(q->cut_count, sizeof(uint32_t))};
    if (out->gradient_sums == NULL || out->expert_sums == NULL || out->expert_networks == NULL ||
        out->factor_sums == NULL || out->state_sums == NULL || out->stash_sums == NULL ||
        out->networks == NULL || out->layer_s == NULL || out->compute_sums == NULL ||
        out->backward_sums == NULL || out->transfer_s == NULL || out->takes_part == NULL ||
        out->narrow_cuts == NULL || !find_rows(out) || !make_plain_exchanges(out)) {
        ty_quick_costs_clear(out);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < q->cut_count; i++)
        if (ty_workload_is_cut(q->workload, q->cuts[i]))
            out->narrow_cuts[out->narrow_count++] = q->cuts[i];
    out->first_backward = ty_workload_first_backward(q->workload);
    ty_workload_mark_backward(q->workload, out->takes_part);
    TY_TRY(sum_bytes(out, error));
    sum_factors(out);
    return TY_OK;
}

/* Every cut is priced as the route from the first device to the last: the links between neighboring
 * stages are not known yet. */
static ty_status price_transfers(quick_costs *costs, const ty_plan *plan, ty_error *error)
{
    const search_question *q = costs->q;
    double bandwidth_bytes_per_s, latency_s;

    if (q->stage_replica_count < 2)
        return TY_OK;
    TY_TRY(ty_network_of_pair(q->networks, q->set->devices[0], q->set->devices[q->device_count - 1],
                              &bandwidth_bytes_per_s, &latency_s, error));
    for (uint32_t i = 0; i < q->cut_count; i++) {
        double bytes = (double)ty_rank_bytes(plan, ty_workload_cut_bytes(q->workload, q->cuts[i]));
        double ways = q->cuts[i] > costs->first_backward ? 2 : 1;
        costs->transfer_s[q->cuts[i]] = ways * (latency_s + bytes / bandwidth_bytes_per_s);
    }
    return TY_OK;
}

/* The network of every `stride`-th of the first devices of the set. */
static bool look_up_network(quick_costs *costs, uint32_t members, uint32_t stride,
                            const ty_group_network **out)
{
    uint32_t *devices;

    if (costs->status != TY_OK || *out != NULL)
        return costs->status == TY_OK;
    devices = ty_alloc(members, sizeof *devices);
    for (uint32_t d = 0; devices != NULL && d < members; d++)
        devices[d] = costs->q->set->devices[d * stride];
    costs->status = devices == NULL
                        ? TY_ENOMEM
                        : ty_network_of_group(costs->q->networks, devices, members, out, NULL);
    ty_free(devices);
    return costs->status == TY_OK;
}

/* The network of a gradient group: neighbors, with tensor-parallel ranks in between; for experts,
 * also expert-parallel ranks in between. Looked up once per group size. */
static const ty_group_network *find_network(quick_costs *costs, uint32_t members, bool of_experts)
{
    const ty_plan plan = ty_plan_of_dimensions(costs->q, 1);
    const uint32_t tensor = ty_plan_parallel_size(&plan, TY_TENSOR_PARALLEL);
    const ty_group_network **network =
        of_experts ? &costs->expert_networks[members] : &costs->networks[members];

    return look_up_network(costs, members,
                           of_experts ? tensor * ty_plan_parallel_size(&plan, TY_EXPERT_PARALLEL)
                                      : tensor,
                           network)
               ? *network
               : NULL;
}

/* Seconds of a layer's TP, CP and EP collectives, of the first stage replica. */
static double inner_s(quick_costs *costs, const ty_plan *plan, uint32_t layer, bool is_backward)
{
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
    const uint32_t count = ty_layer_inner_collectives(plan, layer, is_backward, inner);
    double seconds = 0;

    for (uint32_t i = 0; i < count && costs->status == TY_OK; i++) {
        const ty_parallelism kind = inner[i].among;
        const ty_group_network **group = &costs->parallel[kind];
        ty_instruction_cost cost = {0};
        if (!look_up_network(costs, ty_plan_parallel_size(plan, kind),
                             ty_plan_rank_along(plan, kind, 0, 1), group))
            return HUGE_VAL;
        costs->status = ty_group_inner_cost(*group, ty_stack_of(plan), &inner[i], &cost, NULL);
        seconds += cost.seconds * inner[i].count *
                   (1 - ty_talk_hidden(*group, ty_stack_of(plan), &inner[i]));
    }
    return costs->status == TY_OK ? seconds : HUGE_VAL;
}

ty_status ty_quick_costs_set(quick_costs *costs, uint32_t micro_batches, ty_error *error)
{
    const search_question *q = costs->q;
    uint32_t samples = q->global_batch / micro_batches;
    const uint32_t layers = q->workload->layer_count;
    const ty_plan plan = ty_plan_of_dimensions(q, samples);
    double *talk_s[2] = {ty_alloc(layers, sizeof(double)), ty_alloc(layers, sizeof(double))};
    ty_layer_price *prices = ty_alloc(layers, sizeof *prices);
    ty_layer_again *again = ty_alloc(layers, sizeof *again);
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(
                 talk_s[0] != NULL && talk_s[1] != NULL && prices != NULL && again != NULL, error),
             status, done);
    clear_partitioners(costs);
    /* Lower bound of each layer's recomputation, wherever segments begin: by operator a block's
     * first product counts. */
    const ty_recompute_range whole = {0, q->workload->layer_count, q->dimensions.recompute,
                                      q->dimensions.recompute_blocks};

    ty_recompute_mark_again(q->workload, &whole, NULL, 0, again);
    for (uint32_t l = 0; l < q->workload->layer_count; l++)
        if (q->dimensions.recompute == TY_RECOMPUTE_OPERATOR &&
            ty_layer_row_of(&q->workload->layers[l])->products == 1)
            again[l].what = TY_AGAIN_NOTHING;
    for (uint32_t l = 0; l < layers; l++) {
        talk_s[0][l] = inner_s(costs, &plan, l, false);
        talk_s[1][l] = costs->takes_part[l] ? inner_s(costs, &plan, l, true) : 0;
    }
    TY_CHECK(ty_layer_prices_of(&plan, 0, layers,
                                ty_cluster_device_type(q->cluster, q->set->devices[0]), talk_s,
                                costs->takes_part, prices, error),
             status, done);
    for (uint32_t l = 0; l < layers; l++) {
        double forward_s = prices[l].forward.device_s;
        double backward_s = prices[l].backward.device_s + talk_s[1][l];
        if (q->dimensions.recompute == TY_RECOMPUTE_SELECTIVE && costs->takes_part[l])
            backward_s += prices[l].scores_s;
        if (ty_recompute_has_segments(q->dimensions.recompute))
            backward_s += ty_layer_again_s(&q->workload->layers[l], &prices[l], again[l].what);
        forward_s += talk_s[0][l];
        costs->layer_s[l] = forward_s + backward_s;
        costs->compute_sums[l + 1] = costs->compute_sums[l] + forward_s + backward_s;
        costs->backward_sums[l + 1] = costs->backward_sums[l] + backward_s;
    }
    TY_CHECK(price_transfers(costs, &plan, error), status, done);
    costs->micro_batches = micro_batches;
done:
    ty_free(talk_s[0]);
    ty_free(talk_s[1]);
    ty_free(prices);
    ty_free(again);
    return status;
}

/* ---- Collectives ------------------------------------------------------------------------- */

/* The plan's algorithm: fixed, the library's choice, or a ring for quick estimates. */
static ty_algorithm algorithm_of(const quick_costs *costs, const ty_group_network *network)
{
    if (ty_is_pinned(costs->q->pins, TY_AXIS(ALGORITHM)))
        return costs->q->pins->algorithm;
    return ty_group_has_library(network) ? TY_AUTOMATIC : TY_RING;
}

/* Input of a compressor for a part of layers [first, end): their matrices, assumed equal. */
static ty_gradient_extent part_extent(const quick_costs *costs, uint32_t first, uint32_t end,
                                      double parts, const ty_compression *c)
{
    double bytes = (double)(costs->gradient_sums[end] - costs->gradient_sums[first]);
    ty_gradient_extent extent = {.elements = (uint64_t)(bytes / parts) / TY_GRADIENT_ELEMENT_BYTES};
    const ty_gradient_extent *sums = costs->factor_sums;

    if (ty_compression_has_rank(c->kind)) {
        extent.p_elements =
            (uint64_t)((double)(sums[end].p_elements - sums[first].p_elements) / parts);
        extent.q_elements =
            (uint64_t)((double)(sums[end].q_elements - sums[first].q_elements) / parts);
        extent.dense_elements =
            (uint64_t)((double)(sums[end].dense_elements - sums[first].dense_elements) / parts);
    }
    return extent;
}

static bool find_servers(quick_costs *costs)
{
    const search_question *q = costs->q;

    if (costs->status == TY_OK && costs->server_network.workers == 0)
        costs->status =
            ty_server_network_find(q->networks, q->set->devices, q->set->count, q->servers,
                                   q->pins->servers, &costs->server_network, NULL);
    return costs->status == TY_OK;
}

/* Its collectives, with its compressor if that was measured. */
static double bucket_s(quick_costs *costs, const ty_gradient_extent *extent, uint32_t members,
                       bool of_experts, const ty_compression *c)
{
    const ty_profile *profile = costs->q->profile;
    const bool is_evolution = costs->q->workload->learning == TY_LEARNING_EVOLUTION;
    ty_codec_cost codec = {0};
    double sum_s;

    if (profile != NULL) {
        const ty_compression measured = ty_compression_measured(c, extent);
        (void)ty_profile_codec(profile, &measured, members, extent->elements, &codec);
    }
    sum_s = codec.encode_s[0] + codec.encode_s[1] + codec.decode_s;
    for (uint32_t phase = 0; phase < ty_compression_phases(c); phase++) {
        ty_collective_kind kind =
            is_evolution ? TY_ALL_GATHER : ty_compression_collective(c, phase);
        /* Scores are a few bytes per sample: only latency matters. */
        uint64_t bytes = is_evolution ? costs->q->global_batch
                                      : ty_compression_wire_bytes(c, extent, members, phase);
        const ty_group_network *network;
        ty_instruction_cost cost;
        double seconds;

        if (profile != NULL &&
            ty_profile_collective(profile, kind, TY_RING, members, bytes, &seconds)) {
            sum_s += seconds;
            continue;
        }
        network = find_network(costs, members, of_experts);
        if (network != NULL && costs->q->pins->servers > 0) {
            if (!find_servers(costs) ||
                ty_server_exchange_cost(&costs->server_network, 1.0 / costs->q->pins->servers,
                                        bytes, &cost, NULL) != TY_OK)
                return INFINITY;
            ty_server_exchange_by_stack(&costs->server_network, network, costs->q->stack,
                                        1.0 / costs->q->pins->servers, bytes, &cost);
            sum_s += cost.seconds;
            continue;
        }
        if (network == NULL || ty_group_exchange_cost(network, kind, algorithm_of(costs, network),
                                                      bytes, &cost, NULL) != TY_OK)
            return INFINITY;
        ty_exchange_by_stack(network, costs->q->stack, kind, &cost);
        ty_exchange_add_sums(network, kind, algorithm_of(costs, network), bytes, &cost);
        sum_s += cost.seconds;
    }
    return sum_s;
}

/* An embedding alone, as rows. */
static double rows_s(quick_costs *costs, uint32_t index, uint32_t members)
{
    double *known =
        &costs->row_seconds[index * ((size_t)costs->q->stage_replica_count + 1) + members];
    const uint32_t layer = costs->row_layers[index];
    ty_plan_stage everything = {.layer_count = costs->q->workload->layer_count,
                                .replicas = members};
    ty_plan plan = ty_plan_of_dimensions(costs->q, 1);
    const ty_bucket bucket = {.first_layer = layer,
                              .layer_count = 1,
                              .tied_stage = TY_NO_STAGE,
                              .gradient_bytes =
                                  costs->gradient_sums[layer + 1] - costs->gradient_sums[layer],
                              .compression.kind = TY_COMPRESSION_ROWS};
    ty_gradient_extent extent;

    if (*known >= 0)
        return *known;
    plan.stage_count = 1;
    plan.stages = &everything;
    plan.global_batch = costs->q->global_batch;
    extent = ty_bucket_extent(&plan, &bucket);
    *known = bucket_s(costs, &extent, members, false, &bucket.compression);
    return *known;
}

/* Remaining seconds of an all-reduce if embeddings among its layers are sent as rows: all that can,
 * if requested, else those that it shortens. */
static double less_by_rows(quick_costs *costs, uint32_t first, uint32_t end, uint32_t members,
                           double seconds)
{
    double bytes = (double)(costs->gradient_sums[end] - costs->gradient_sums[first]);

    for (uint32_t i = 0; i < costs->row_layer_count && members <= costs->q->stage_replica_count;
         i++) {
        const uint32_t layer = costs->row_layers[i];
        double own, with_s;
        if (layer < first || layer >= end)
            continue;
        own = (double)(costs->gradient_sums[layer + 1] - costs->gradient_sums[layer]);
        with_s = seconds * (1 - own / bytes) + rows_s(costs, i, members);
        if (with_s > seconds && !ty_asks_for_rows(costs->q->pins))
            continue;
        seconds = with_s;
        bytes -= own;
    }
    return seconds;
}

/* The cached entry of an often used all-reduce; NULL if it has none. */
static double *plain_exchange(const quick_costs *costs, uint32_t first, uint32_t end,
                              uint32_t members, const candidate *c)
{
    const size_t positions = (size_t)costs->q->cut_count + 2;
    uint32_t from, to;

    if (costs->plain_exchanges == NULL || c->bucket_bytes != UINT64_MAX ||
        c->compression.kind != TY_COMPRESSION_NONE || members > costs->q->stage_replica_count)
        return NULL;
    from = costs->position_of[first];
    to = costs->position_of[end];
    if (from == UINT32_MAX || to == UINT32_MAX)
        return NULL;
    return &costs->plain_exchanges[(from * positions + to) *
                                       ((size_t)costs->q->stage_replica_count + 1) +
                                   members];
}

double ty_quick_exchange_s(quick_costs *costs, uint32_t first, uint32_t end, uint32_t members,
                           const candidate *c, double *buckets)
{
    const ty_plan plan = ty_plan_of_dimensions(costs->q, 1);
    const uint32_t sharers = members * ty_plan_parallel_size(&plan, TY_CONTEXT_PARALLEL);
    const uint32_t devices = sharers * ty_plan_parallel_size(&plan, TY_EXPERT_PARALLEL);
    const uint64_t bytes = costs->gradient_sums[end] - costs->gradient_sums[first];
    const uint64_t experts = costs->expert_sums[end] - costs->expert_sums[first];
    const ty_compression compression =
        ty_compression_at(c->compression.kind)->sends_rows ? (ty_compression){0} : c->compression;
    double *known;
    ty_gradient_extent extent;
    double seconds;

    *buckets = 1;
    if (devices < 2 || bytes == 0)
        return 0;
    known = plain_exchange(costs, first, end, members, c);
    if (known != NULL && *known >= 0)
        return *known;
    *buckets = fmax(1, ceil((double)bytes / (double)c->bucket_bytes));
    extent = part_extent(costs, first, end, *buckets, &compression);
    seconds = bucket_s(costs, &extent, devices, false, &compression);
    if (experts > 0 && sharers > 1) {
        extent.elements = (uint64_t)((double)experts / *buckets) / TY_GRADIENT_ELEMENT_BYTES;
        extent.p_elements = extent.q_elements = 0;
        extent.dense_elements = extent.elements;
        seconds += bucket_s(costs, &extent, sharers, true, &compression);
    }
    seconds = less_by_rows(costs, first, end, devices, *buckets * seconds);
    seconds /= fmax(1, costs->q->workload->local_steps);
    if (known != NULL && costs->status == TY_OK)
        *known = seconds;
    return seconds;
}

/* ---- A step ------------------------------------------------------------------------------ */

bool ty_quick_fits(const quick_costs *costs, uint32_t first, uint32_t end, uint32_t replicas,
                   uint32_t stages_after)
{
    uint32_t micro_batch = costs->q->global_batch / costs->micro_batches;
    uint32_t local = costs->micro_batches / replicas;
    /* In-flight micro-batches of 1F1B if each later stage has one replica, see ty_plan_lower; GPipe
     * has more.
     */
    uint32_t kept = 1 + (replicas + stages_after - 1) / replicas;
    double bytes = (double)(costs->state_sums[end] - costs->state_sums[first]);

    kept = kept < local ? kept : local;
    bytes += (double)(costs->stash_sums[end] - costs->stash_sums[first]) * micro_batch * kept;
    return bytes <= (double)costs->q->largest_memory_bytes;
}

double ty_quick_step_s(quick_costs *costs, const candidate *c)
{
    const bool is_late = costs->q->pins->staleness > 0;
    double slowest_s = 0, sum_s = 0, transfers_s = 0, longest_s = 0;

    for (uint32_t s = 0; s < c->division->stage_count; s++) {
        uint32_t first = c->division->first_layers[s], replicas = c->division->replicas[s];
        uint32_t end = ty_division_end(costs->q, c->division, s);
        double one_s = costs->compute_sums[end] - costs->compute_sums[first];
        double backward_s = costs->backward_sums[end] - costs->backward_sums[first];
        double buckets, exchange_s;
        exchange_s = ty_quick_exchange_s(costs, first, end, replicas, c, &buckets);
        longest_s = fmax(longest_s, exchange_s);
        /* The last bucket is complete at the end of backward; the others overlap with it. Stale
         * gradients have at least one step. */
        exchange_s =
            is_late ? 0
                    : fmax(exchange_s / buckets, exchange_s - backward_s * (buckets - 1) / buckets);
        slowest_s = fmax(slowest_s, one_s * (c->micro_batches / replicas - 1) + exchange_s);
        sum_s += one_s;
        transfers_s += costs->transfer_s[first];
    }
    /* A step takes at least the time in which the sources of the first stage supply its samples. */
    return fmax(fmax(slowest_s + sum_s + transfers_s, is_late ? longest_s : 0),
                costs->q->workload->input_s_per_sample * costs->q->global_batch /
                    c->division->replicas[0]);
}

double ty_quick_compression_gain_s(quick_costs *costs, const candidate *c)
{
    candidate plain = *c;
    double gain_s = 0;

    plain.compression = (ty_compression){0};
    for (uint32_t s = 0; s < c->division->stage_count; s++) {
        uint32_t first = c->division->first_layers[s], replicas = c->division->replicas[s];
        uint32_t end = ty_division_end(costs->q, c->division, s);
        double ignored;
        double with_s = ty_quick_exchange_s(costs, first, end, replicas, c, &ignored);
        double without_s = ty_quick_exchange_s(costs, first, end, replicas, &plain, &ignored);
        gain_s = fmax(gain_s, without_s - with_s);
    }
    return gain_s;
}
