/* Costs of work on one device: layers, optimizer steps, compressors, loading. Replicas of a stage
 * run in step, so the slowest kind of device among them sets the time. */
#include "costing.h"

#include <math.h>

/* Decoding pairs adds each member's: 8 bytes read, 8 changed per kept element. */
#define PAIR_PASSES 4.0
/* Rows: encode reads all, and reads and writes some once more; decode adds those of each member: it
 * reads them, and reads and writes the sum. */
#define ROW_COPY_PASSES 2.0
#define ROW_ADD_PASSES 3.0

/* ---- The current stage ------------------------------------------------------------------- */

static bool is_known(const ty_stage_costing *stage, const ty_device_type *type)
{
    for (uint32_t t = 0; t < stage->type_count; t++)
        if (stage->types[t] == type)
            return true;
    return false;
}

/* As the worker decides whether a separate thread makes batches. */
static bool has_spare_core(const ty_costing *costing, const ty_plan_stage *planned)
{
    const ty_plan *plan = costing->plan;
    const uint32_t host = ty_cluster_device_host(costing->cluster, planned->devices[0]);
    const uint32_t cores = ty_cluster_host_cores(costing->cluster, host);
    uint32_t processes = 0;

    for (uint32_t p = 0; p < ty_plan_pipeline_size(plan); p++)
        for (uint32_t d = 0; d < plan->stages[p].replicas * ty_plan_replica_ranks(plan); d++)
            processes +=
                ty_cluster_device_host(costing->cluster, plan->stages[p].devices[d]) == host;
    return cores == 0 || cores >= 2 * processes;
}

/* Share of backward for the gradients of a layer's weights: measured, or by flop. */
static ty_status weight_share(const ty_costing *costing, uint32_t layer, double *out)
{
    const ty_plan *plan = costing->plan;
    char *signature = NULL;
    ty_status status;

    *out = ty_layer_weight_share(plan->workload, &plan->workload->layers[layer]);
    if (costing->profile == NULL || !ty_profile_has_parts(costing->profile))
        return TY_OK;
    status = ty_layer_signature(plan->workload, layer, &signature, costing->error);
    if (status == TY_OK)
        (void)ty_profile_weight_share(costing->profile, signature, plan->micro_batch_size, out);
    ty_free(signature);
    return status;
}

/* TP, CP and EP collectives in all passes of a layer. */
static ty_status cost_talk(ty_costing *costing, uint32_t layer, bool has_backward)
{
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];

    for (int pass = 0; pass < COST_PASSES; pass++) {
        const uint32_t count =
            pass == COST_AGAIN ? ty_layer_recompute_collectives(
                                     costing->plan, layer, costing->stage.again[layer].what, inner)
            : pass == COST_FORWARD || has_backward
                ? ty_layer_inner_collectives(costing->plan, layer, pass == COST_BACKWARD, inner)
                : 0;
        for (uint32_t i = 0; i < count; i++) {
            double seconds = 0, hidden_s = 0;
            TY_TRY(ty_cost_inner(costing, &inner[i], &seconds, &hidden_s));
            costing->stage.inner_s[pass][layer] += seconds;
            costing->stage.hidden_s[pass][layer] += hidden_s;
        }
    }
    return TY_OK;
}

/* The layers of a stage of the pipeline rank: compute on each kind of device, and collectives. */
static ty_status cost_stage_layers(ty_costing *costing, const ty_plan_stage *planned,
                                   const bool *takes_part)
{
    const ty_plan *plan = costing->plan;
    ty_stage_costing *stage = &costing->stage;
    const uint32_t end = planned->first_layer + planned->layer_count;

    for (uint32_t l = planned->first_layer; l < end; l++) {
        TY_TRY(cost_talk(costing, l, takes_part[l]));
        TY_TRY(weight_share(costing, l, &stage->weight_shares[l]));
    }
    for (uint32_t t = 0; t < stage->type_count; t++) {
        ty_layer_price *prices = &stage->prices[(size_t)t * plan->workload->layer_count];
        TY_TRY(ty_layer_prices_of(plan, planned->first_layer, planned->layer_count, stage->types[t],
                                  stage->inner_s, takes_part, prices, costing->error));
        for (uint32_t l = planned->first_layer; l < end; l++) {
            if ((planned->recompute != TY_RECOMPUTE_SELECTIVE &&
                 planned->recompute != TY_RECOMPUTE_OPERATOR) ||
                !takes_part[l])
                prices[l].scores_s = 0;
            ty_cost_relies_on(costing, prices[l].provenance);
        }
    }
    return TY_OK;
}

static ty_status stage_room(ty_costing *costing)
{
    ty_stage_costing *stage = &costing->stage;
    const size_t layers = costing->plan->workload->layer_count;

    stage->prices = ty_alloc(stage->type_count * layers, sizeof *stage->prices);
    stage->weight_shares = ty_alloc(layers, sizeof *stage->weight_shares);
    stage->again = ty_alloc(layers, sizeof *stage->again);
    stage->takes_part = ty_alloc(layers, sizeof *stage->takes_part);
    stage->gather_s = ty_alloc(costing->plan->bucket_count, sizeof *stage->gather_s);
    for (uint32_t b = 0; stage->gather_s != NULL && b < costing->plan->bucket_count; b++)
        stage->gather_s[b] = (double)NAN;
    for (int pass = 0; pass < COST_PASSES; pass++) {
        stage->inner_s[pass] = ty_alloc(layers, sizeof *stage->inner_s[pass]);
        stage->hidden_s[pass] = ty_alloc(layers, sizeof *stage->hidden_s[pass]);
        TY_TRY(ty_check_memory(stage->inner_s[pass] != NULL && stage->hidden_s[pass] != NULL,
                               costing->error));
    }
    TY_TRY(ty_check_memory(stage->prices != NULL && stage->weight_shares != NULL &&
                               stage->again != NULL && stage->takes_part != NULL &&
                               stage->gather_s != NULL,
                           costing->error));
    return TY_OK;
}

ty_status ty_cost_stage_meet(ty_costing *costing, uint32_t index)
{
    const ty_plan_stage *planned = &costing->plan->stages[index];
    ty_stage_costing *stage = &costing->stage;
    const uint32_t devices = planned->replicas * ty_plan_replica_ranks(costing->plan);
    uint32_t count = 0;

    *stage = (ty_stage_costing){.stage = index};
    TY_TRY(ty_check_memory((stage->types = ty_alloc(devices, sizeof *stage->types)) != NULL,
                           costing->error));
    for (uint32_t q = 0; q < devices; q++) {
        const ty_device_type *type = ty_cluster_device_type(costing->cluster, planned->devices[q]);
        if (is_known(stage, type))
            continue;
        stage->types[stage->type_count++] = type;
        stage->rank_core_share = fmax(stage->rank_core_share, type->core_share);
    }
    /* Processes of a stage replica on the host of its first one share the host's cores. */
    const uint32_t first = ty_cluster_device_host(costing->cluster, planned->devices[0]);
    for (uint32_t l = 0; l < ty_plan_replica_ranks(costing->plan); l++)
        count += ty_cluster_device_host(costing->cluster, planned->devices[l]) == first;
    stage->core_share = stage->rank_core_share * count;
    stage->has_spare_core = !(stage->rank_core_share > 0) || has_spare_core(costing, planned);
    return TY_OK;
}

/* The layers of the current pipeline rank. */
static ty_status cost_pipeline_rank(ty_costing *costing)
{
    const ty_plan *plan = costing->plan;

    for (uint32_t s = costing->stage.stage; s < plan->stage_count; s += ty_plan_pipeline_size(plan))
        TY_TRY(cost_stage_layers(costing, &plan->stages[s], costing->stage.takes_part));
    return TY_OK;
}

ty_status ty_cost_stage_open(ty_costing *costing, uint32_t index)
{
    TY_TRY(ty_cost_stage_meet(costing, index));
    TY_TRY(stage_room(costing));
    ty_workload_mark_backward(costing->plan->workload, costing->stage.takes_part);
    TY_TRY(ty_plan_mark_again(costing->plan, costing->stage.again, costing->error));
    return cost_pipeline_rank(costing);
}

ty_status ty_cost_stage_likewise(ty_costing *costing, uint32_t index)
{
    costing->stage.stage = index;
    return cost_pipeline_rank(costing);
}

void ty_cost_stage_close(ty_costing *costing)
{
    ty_free(costing->stage.types);
    ty_free(costing->stage.prices);
    ty_free(costing->stage.weight_shares);
    ty_free(costing->stage.again);
    ty_free(costing->stage.takes_part);
    ty_free(costing->stage.gather_s);
    ty_server_map_clear(&costing->stage.server_map);
    for (int pass = 0; pass < COST_PASSES; pass++) {
        ty_free(costing->stage.inner_s[pass]);
        ty_free(costing->stage.hidden_s[pass]);
    }
    costing->stage = (ty_stage_costing){0};
}

/* ---- Operations -------------------------------------------------------------------------- */

double ty_cost_overhead_s(const ty_costing *costing)
{
    return costing->profile == NULL ? 0 : costing->profile->instruction_overhead_s;
}

/* The straggler factor of the plan's devices. */
static double waiting(const ty_plan *plan)
{
    const ty_stack *stack = ty_stack_of(plan);
    return stack->step_jitter > 0 ? ty_stack_waiting(stack, ty_plan_rank_count(plan)) : 1;
}

/* Seconds of an operation on one layer, whose price is at index `at` of the kind of device. */
static double layer_seconds(const ty_costing *costing, ty_op op, uint32_t layer, size_t at)
{
    const ty_stage_costing *stage = &costing->stage;
    const ty_layer_price *price = &stage->prices[at];
    const double weight_s = price->backward.device_s * stage->weight_shares[layer];

    if (op == TY_OP_BACKWARD)
        return price->backward.device_s + price->scores_s;
    if (op == TY_OP_BACKWARD_INPUT)
        return price->backward.device_s - weight_s + price->scores_s;
    if (op == TY_OP_RECOMPUTE)
        return ty_layer_again_s(&costing->plan->workload->layers[layer], price,
                                stage->again[layer].what);
    return op == TY_OP_BACKWARD_WEIGHT ? weight_s : price->forward.device_s;
}

/* All collectives of a bucket, or the all-gather of its weights. */
static ty_status beside_s(ty_costing *costing, uint32_t index, bool is_gather, double *seconds)
{
    const ty_bucket *bucket = &costing->plan->buckets[index];
    const uint32_t phases = is_gather ? 1 : ty_compression_phases(&bucket->compression);
    ty_status status = TY_OK;

    *seconds = 0;
    for (uint32_t phase = 0; phase < phases && status == TY_OK; phase++) {
        ty_instruction exchange = ty_instruction_of(is_gather ? TY_OP_GATHER : TY_OP_COLLECTIVE);
        ty_instruction_cost cost = {0};
        exchange.bucket = index;
        exchange.phase = phase;
        exchange.bytes = is_gather ? ty_bucket_gather_bytes(costing->plan, bucket)
                                   : ty_plan_exchange_bytes(costing->plan, bucket, phase);
        status = ty_cost_collective(costing, &exchange, &cost);
        *seconds += cost.seconds;
    }
    return status;
}

/* Slowdown of compute by concurrent collectives: with ZeRO 3 the all-gather of every bucket in
 * every pass, and during the last backward of a step the buckets' own. The overlap is at most the
 * compute time. */
static ty_status lost_s(ty_costing *costing, const ty_instruction *instruction, double compute_s,
                        double *lost)
{
    const ty_plan *plan = costing->plan;
    const double share = ty_stack_of(plan)->overlap_loss;
    const ty_plan_stage *stage = &plan->stages[costing->stage.stage];
    const bool is_last = instruction->op != TY_OP_FORWARD && instruction->op != TY_OP_RECOMPUTE &&
                         instruction->micro_batch + 1 == plan->micro_batches / stage->replicas;
    double all_s = 0;

    *lost = 0;
    if (!(share > 0) || instruction->op == TY_OP_BACKWARD_WEIGHT ||
        !ty_stack_of(plan)->overlaps_exchange)
        return TY_OK;
    for (uint32_t b = 0; b < plan->bucket_count && (plan->zero == 3 || is_last); b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        double seconds = 0;
        if (bucket->first_layer < instruction->first_layer ||
            bucket->first_layer >= instruction->first_layer + instruction->layer_count ||
            bucket->tied_stage != TY_NO_STAGE || ty_bucket_device_count(plan, bucket) < 2)
            continue;
        if (plan->zero == 3 && instruction->op != TY_OP_RECOMPUTE &&
            ty_bucket_is_sharded(plan, bucket)) {
            if (isnan(costing->stage.gather_s[b]))
                TY_TRY(beside_s(costing, b, true, &costing->stage.gather_s[b]));
            all_s += costing->stage.gather_s[b];
        }
        if (is_last)
            TY_TRY(beside_s(costing, b, false, &seconds));
        all_s += seconds;
    }
    *lost = share * fmin(all_s, compute_s);
    return TY_OK;
}

ty_status ty_cost_layers(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost)
{
    const ty_plan *plan = costing->plan;
    const ty_stage_costing *stage = &costing->stage;
    const ty_op op = instruction->op;
    const int pass = op == TY_OP_RECOMPUTE                                ? COST_AGAIN
                     : op == TY_OP_BACKWARD || op == TY_OP_BACKWARD_INPUT ? COST_BACKWARD
                                                                          : COST_FORWARD;
    const uint32_t own = instruction->stage < plan->stage_count ? instruction->stage : stage->stage;
    const ty_plan_stage *planned = &plan->stages[own];
    const uint32_t first = instruction->first_layer - planned->first_layer;
    double slowest_s = 0, inner_s = 0, hidden_s = 0, pass_s, lost;
    ty_status status;

    if (own % ty_plan_pipeline_size(plan) != stage->stage ||
        instruction->first_layer < planned->first_layer || first > planned->layer_count ||
        instruction->layer_count > planned->layer_count - first)
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: a %s of layers %u to %u, which are not the stage's",
                       stage->stage, ty_op_name(op), instruction->first_layer,
                       instruction->first_layer + instruction->layer_count - 1);
    for (uint32_t t = 0; t < stage->type_count; t++) {
        double sum_s = 0;
        for (uint32_t i = 0; i < instruction->layer_count; i++)
            sum_s += layer_seconds(costing, op, instruction->first_layer + i,
                                   (size_t)t * plan->workload->layer_count +
                                       instruction->first_layer + i);
        slowest_s = fmax(slowest_s, sum_s);
    }
    for (uint32_t i = 0; op != TY_OP_BACKWARD_WEIGHT && i < instruction->layer_count; i++) {
        inner_s += stage->inner_s[pass][instruction->first_layer + i];
        hidden_s += stage->hidden_s[pass][instruction->first_layer + i];
    }
    /* Another micro-batch's pass overlaps with this one's collectives, and takes as long. */
    inner_s += fmax(0, hidden_s - slowest_s);
    /* A pass may be split at buckets, or into two parts. */
    pass_s = ty_stack_of(plan)->host_pass_s * instruction->layer_count / planned->layer_count;
    if (op == TY_OP_BACKWARD_INPUT || op == TY_OP_BACKWARD_WEIGHT)
        pass_s /= 2;
    *cost = (ty_instruction_cost){.seconds = slowest_s * waiting(plan) + inner_s + pass_s +
                                             ty_cost_overhead_s(costing),
                                  .inner_s = inner_s,
                                  .core_share = stage->core_share};
    status = lost_s(costing, instruction, slowest_s, &lost);
    cost->seconds += lost + ty_stack_of(plan)->overlap_loss * fmin(hidden_s, slowest_s);
    return status;
}

ty_status ty_cost_begin(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost)
{
    *cost = (ty_instruction_cost){0};
    if (instruction->bytes > 0)
        *cost = (ty_instruction_cost){
            .seconds = ty_cost_memory_s(costing, 2 * (double)instruction->bytes) +
                       ty_cost_overhead_s(costing),
            .core_share = costing->stage.core_share};
    return TY_OK;
}

/* Seconds to move `bytes` through the memory of the slowest kind of device. */
double ty_cost_memory_s(const ty_costing *costing, double bytes)
{
    double slowest_s = 0;

    for (uint32_t t = 0; t < costing->stage.type_count; t++)
        slowest_s =
            fmax(slowest_s, bytes / ty_rates_of(costing->stage.types[t], ty_stack_of(costing->plan),
                                                costing->plan->workload->precision)
                                        .bytes_per_s);
    return slowest_s;
}

static ty_status bucket_of(const ty_costing *costing, const ty_instruction *instruction,
                           const ty_bucket **out)
{
    if (instruction->bucket >= costing->plan->bucket_count)
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: a %s of bucket %u, but the plan has %u",
                       costing->stage.stage, ty_op_name(instruction->op), instruction->bucket,
                       costing->plan->bucket_count);
    *out = &costing->plan->buckets[instruction->bucket];
    return TY_OK;
}

/* Fixed cost of a step, shared among the updates of the pipeline rank. */
static double share_of_step(const ty_costing *costing, const ty_bucket *bucket, double step_s)
{
    const ty_plan *plan = costing->plan;
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    double all = 0;

    for (uint32_t b = 0; step_s > 0 && b < plan->bucket_count; b++)
        if (plan->buckets[b].stage % pipeline_size == costing->stage.stage ||
            (plan->buckets[b].tied_stage != TY_NO_STAGE &&
             plan->buckets[b].tied_stage % pipeline_size == costing->stage.stage))
            all += (double)plan->buckets[b].gradient_bytes;
    return all > 0 ? step_s * (double)bucket->gradient_bytes / all : 0;
}

/* Seconds of products in bf16, or the workload's precision on devices without it, at the rate of
 * large products on the slowest kind of device. */
static double products_s(const ty_costing *costing, double flop)
{
    const ty_stack *stack = ty_stack_of(costing->plan);
    double slowest_s = 0;

    for (uint32_t t = 0; flop > 0 && t < costing->stage.type_count; t++) {
        const ty_device_type *type = costing->stage.types[t];
        double rate = ty_rates_of(type, stack, TY_PRECISION_BF16).product_flop_per_s;
        if (!(rate > 0))
            rate = ty_rates_of(type, stack, costing->plan->workload->precision).product_flop_per_s;
        slowest_s = fmax(slowest_s, flop / rate);
    }
    return slowest_s;
}

/* Bytes that an optimizer moves per byte of fp32 gradient: it reads weight and gradient, writes the
 * weight, and reads and writes its states. */
static double update_passes(const ty_optimizer *optimizer, double state_bytes)
{
    return 3 + ty_optimizer_row_of(optimizer->kind)->more_reads +
           2 * state_bytes / TY_GRADIENT_ELEMENT_BYTES;
}

/* Seconds of an update: by memory bandwidth, and by products. A stack's bytes per parameter are
 * those of AdamW; other optimizers move more or fewer in proportion. */
ty_status ty_cost_update(ty_costing *costing, const ty_instruction *instruction,
                         ty_instruction_cost *cost)
{
    const ty_optimizer *optimizer = &costing->plan->optimizer;
    const double of_adamw = update_passes(&ty_optimizer_row_of(TY_OPTIMIZER_ADAMW)->usual, 8);
    const ty_bucket *bucket = NULL;
    ty_optimizer_work work;
    double passes;
    /* Passes over a bucket's numbers beyond an optimizer's: in evolution it reads the noise of each
     * member (from a table of random numbers) and adds it. Source: Salimans et al.,
     * arXiv:1703.03864, section 2.1. */
    const double noise = costing->plan->workload->learning == TY_LEARNING_EVOLUTION
                             ? (double)costing->plan->global_batch
                             : 0;
    /* After the update a teacher reads its own weight and the new one, and writes its own; weights
     * for actors are copied. */
    const double behind = (ty_workload_has_teacher(costing->plan->workload) ? 3 : 0) +
                          (ty_plan_actors(costing->plan) > 0 ? 2 : 0);
    double seconds;
    ty_inner_collective among_ranks = {.kind = TY_ALL_REDUCE, .count = 1};
    double inner_s = 0, hidden_s = 0;
    uint64_t bytes;
    ty_status status = bucket_of(costing, instruction, &bucket);

    if (status != TY_OK)
        return status;
    work = ty_plan_optimizer_work(costing->plan, bucket->first_layer, bucket->layer_count);
    passes = update_passes(optimizer, work.state_bytes) + noise;
    among_ranks.bytes = ty_bucket_rank_bytes(costing->plan, bucket);
    if (among_ranks.bytes > 0)
        status = ty_cost_inner(costing, &among_ranks, &inner_s, &hidden_s);
    if (status != TY_OK)
        return status;
    bytes = bucket->gradient_bytes;
    if (ty_bucket_is_sharded(costing->plan, bucket))
        bytes /= ty_bucket_device_count(costing->plan, bucket);
    if (costing->profile == NULL || noise > 0 ||
        !ty_profile_update(costing->profile, optimizer->kind, bytes / TY_GRADIENT_ELEMENT_BYTES,
                           &seconds)) {
        seconds = ty_cost_memory_s(costing, ty_stack_of(costing->plan)->optimizer_bytes < 0
                                                ? passes * (double)bytes
                                                : ty_stack_of(costing->plan)->optimizer_bytes *
                                                      ((passes - noise) / of_adamw) *
                                                      (double)bytes / TY_GRADIENT_ELEMENT_BYTES);
        seconds += products_s(costing, work.flop * (double)bytes / TY_GRADIENT_ELEMENT_BYTES);
        seconds += ty_cost_memory_s(costing, behind * (double)bytes);
        seconds *= ty_stack_of(costing->plan)->compute_scale;
        seconds += share_of_step(costing, bucket, ty_stack_of(costing->plan)->host_step_s);
        ty_cost_relies_on(costing, TY_DATASHEET);
    } else {
        seconds *= (passes + behind) / passes; /* measured without */
    }
    seconds = seconds * waiting(costing->plan) + inner_s + ty_cost_overhead_s(costing);
    /* Also if the update was measured: the worker measured it, without a driver's overhead. */
    seconds += share_of_step(
        costing, bucket, ty_stack_of(costing->plan)->task_s * ty_plan_rank_count(costing->plan));
    *cost = (ty_instruction_cost){
        .seconds = seconds, .inner_s = inner_s, .core_share = costing->stage.core_share};
    return TY_OK;
}

/* Of the full bucket, by memory bandwidth. */
static ty_codec_cost codec_by_bandwidth(const ty_costing *costing, const ty_bucket *bucket)
{
    const ty_compression *c = &bucket->compression;
    const ty_compression_row *row = ty_compression_at(c->kind);
    uint32_t members = ty_bucket_device_count(costing->plan, bucket);
    double pass_s = ty_cost_memory_s(costing, (double)bucket->gradient_bytes);
    ty_codec_cost cost = {.decode_s = row->decode_passes + row->rank_passes * c->rank};
    bool are_pairs =
        ty_compression_has_ratio(c->kind) && ty_compression_collective(c, 0) == TY_ALL_GATHER;
    /* Bytes of a bucket that one member sends. */
    const double rows = ty_compression_at(c->kind)->sends_rows
                            ? (double)ty_bucket_wire_bytes(costing->plan, bucket, 0) /
                                  (double)bucket->gradient_bytes
                            : 0;

    for (int phase = 0; phase < TY_MOST_PHASES; phase++)
        cost.encode_s[phase] = (row->encode_passes[phase] + row->rank_passes * c->rank) * pass_s;
    cost.encode_s[0] += ROW_COPY_PASSES * rows * pass_s;
    cost.decode_s +=
        members * (are_pairs ? PAIR_PASSES * c->ratio : row->member_passes + ROW_ADD_PASSES * rows);
    cost.decode_s *= pass_s;
    return cost;
}

void ty_cost_of_codec(ty_costing *costing, const ty_bucket *bucket, ty_codec_cost *cost)
{
    uint32_t members = ty_bucket_device_count(costing->plan, bucket);
    ty_gradient_extent extent;
    ty_compression measured;

    if (bucket->compression.kind == TY_COMPRESSION_NONE) {
        *cost = (ty_codec_cost){0};
        return;
    }
    extent = ty_bucket_extent(costing->plan, bucket);
    measured = ty_compression_measured(&bucket->compression, &extent);
    if (costing->profile != NULL &&
        ty_profile_codec(costing->profile, &measured, members, extent.elements, cost))
        return;
    *cost = codec_by_bandwidth(costing, bucket);
    ty_cost_relies_on(costing, TY_DATASHEET);
}

ty_status ty_cost_codec(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost)
{
    const ty_bucket *bucket = NULL;
    ty_codec_cost codec;
    double seconds;

    TY_TRY(bucket_of(costing, instruction, &bucket));
    if (instruction->phase >= ty_compression_phases(&bucket->compression))
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: phase %u of bucket %u, which has no such phase",
                       costing->stage.stage, instruction->phase, instruction->bucket);
    ty_cost_of_codec(costing, bucket, &codec);
    seconds = instruction->op == TY_OP_ENCODE ? codec.encode_s[instruction->phase] : codec.decode_s;
    seconds /= ty_plan_exchange_interval(costing->plan, bucket);
    *cost = (ty_instruction_cost){.seconds = seconds, .core_share = costing->stage.core_share};
    return TY_OK;
}

/* Seconds that a rank takes to make a batch, as measured. The last stage makes only labels. */
static double batch_s(const ty_costing *costing, const ty_instruction *load)
{
    const ty_plan *plan = costing->plan;
    const uint32_t samples =
        plan->micro_batch_size / ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);

    if (costing->profile == NULL)
        return 0;
    return costing->stage.stage == 0
               ? ty_profile_input(costing->profile, plan->workload, samples, load->bytes)
               : (double)load->bytes * costing->profile->load_s_per_byte;
}

/* Batch assembly is as measured. Storage is the cluster's; without a figure it is no limit. A
 * source with a rate of its own is the workload's. All run concurrently, and only the first uses a
 * core that training may need. */
/* Steps of episodes follow one another: each is a pass of one row of every episode. The environment
 * is included only if it was measured. */
static ty_status play_by_kernels(ty_costing *costing, const ty_workload *step, double *seconds)
{
    const ty_plan *plan = costing->plan;
    const ty_plan alone = {.workload = (ty_workload *)step,
                           .stack = plan->stack,
                           .micro_batch_size = plan->micro_batch_size};

    *seconds = 0;
    for (uint32_t t = 0; t < costing->stage.type_count; t++) {
        double device_s = 0, host_s = 0;
        for (uint32_t l = 0; l + 1 < step->layer_count; l++) { /* without the loss */
            ty_layer_price price;
            TY_TRY(ty_layer_price_of(&alone, l, costing->stage.types[t], &price, costing->error));
            device_s += price.forward.device_s;
            host_s += price.forward.host_s;
        }
        *seconds = fmax(*seconds, fmax(device_s, host_s));
    }
    *seconds *= (double)plan->workload->input.dimensions[0];
    ty_cost_relies_on(costing, TY_DATASHEET);
    return TY_OK;
}

static ty_status find_play(ty_costing *costing)
{
    const ty_plan *plan = costing->plan;
    ty_workload *step = NULL;
    char *signature = NULL;
    double ignored;
    ty_status status = ty_workload_play_signature(plan->workload, &signature, costing->error);

    if (status == TY_OK && (plan->profile == NULL ||
                            !ty_profile_layer(plan->profile, signature, plan->micro_batch_size,
                                              &costing->stage.play_s, &ignored))) {
        TY_CHECK(ty_workload_step_make(plan->workload, &step, costing->error), status, done);
        status = play_by_kernels(costing, step, &costing->stage.play_s);
    }
done:
    ty_free(signature);
    ty_workload_free(step);
    return status;
}

/* Samples from episodes. */
static ty_status cost_play(ty_costing *costing, ty_instruction_cost *cost)
{
    const ty_status status = costing->stage.play_s > 0 ? TY_OK : find_play(costing);

    *cost = (ty_instruction_cost){.seconds = costing->stage.play_s + ty_cost_overhead_s(costing),
                                  .core_share = costing->stage.core_share};
    return status;
}

ty_status ty_cost_load(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost)
{
    const double read_s = batch_s(costing, instruction);
    double source_s = costing->stage.stage > 0 ? 0
                                               : costing->plan->workload->input_s_per_sample *
                                                     costing->plan->micro_batch_size;

    ty_input_forecast input = {.samples_per_s = HUGE_VAL};
    double samples, own_s, seconds;

    if (instruction->stream == TY_STREAM_COMPUTE)
        return cost_play(costing, cost);
    if (costing->stage.stage == 0) {
        ty_status status = ty_plan_input(costing->plan, &input, costing->error);
        if (status != TY_OK)
            return status;
    }
    samples = (double)costing->plan->micro_batch_size / ty_plan_replica_ranks(costing->plan);
    own_s = fmax(fmax(read_s, source_s), samples * input.own_s);
    seconds = fmax(own_s, samples / input.samples_per_s);
    *cost = (ty_instruction_cost){.seconds = seconds,
                                  .latency_s = own_s,
                                  .edge_bytes = samples * input.store_bytes,
                                  .rate_limit_bytes_per_s = input.store_limit_bytes_per_s,
                                  .core_share = seconds > read_s ? 0 : costing->stage.core_share,
                                  .is_between_steps =
                                      !(seconds > read_s) && !costing->stage.has_spare_core};
    if (source_s > 0)
        ty_cost_relies_on(costing, TY_CALIBRATED);
    if (input.bound_by != NULL)
        ty_cost_relies_on(costing, TY_DATASHEET);
    return TY_OK;
}
