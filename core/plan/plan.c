/* Plans: stage replicas, buckets, rates. Checks are in plan_check.c, files in plan_json.c. */
#include "ty_plan.h"

#include "ty_base.h"
#include "ty_json.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SCORE_BYTES = 8 }; /* per member of a population: its score and its seed, 4 each */

uint64_t ty_memory_use_total(const ty_memory_use *use)
{
    return use->parameter_bytes + use->gradient_bytes + use->optimizer_bytes +
           use->activation_bytes + use->communication_bytes + use->compression_bytes +
           use->workspace_bytes;
}

/* ---- Stage replicas
 * --------------------------------------------------------------------------------- */

uint32_t ty_plan_virtual_stages(const ty_plan *plan)
{
    return plan->virtual_stages > 1 ? plan->virtual_stages : 1;
}

uint32_t ty_plan_pipeline_size(const ty_plan *plan)
{
    return plan->stage_count / ty_plan_virtual_stages(plan);
}

uint32_t ty_plan_stage_replica_count(const ty_plan *plan)
{
    uint32_t stage_replicas = 0;
    for (uint32_t s = 0; s < ty_plan_pipeline_size(plan); s++)
        stage_replicas += plan->stages[s].replicas;
    return stage_replicas;
}

uint32_t ty_plan_rank_count(const ty_plan *plan)
{
    return ty_plan_stage_replica_count(plan) * ty_plan_replica_ranks(plan);
}

uint32_t ty_plan_launched_count(const ty_plan *plan)
{
    return ty_plan_rank_count(plan) + plan->servers.count;
}

uint32_t ty_plan_device_of_rank(const ty_plan *plan, uint32_t rank)
{
    const uint32_t trained = ty_plan_rank_count(plan), width = ty_plan_replica_ranks(plan);

    return rank < trained ? ty_plan_device_of_replica_rank(plan, rank / width, rank % width)
                          : plan->servers.devices[rank - trained];
}

uint32_t ty_plan_first_replica(const ty_plan *plan, uint32_t stage)
{
    uint32_t stage_replica = 0;

    assert(stage <= plan->stage_count);
    if (stage == plan->stage_count)
        return ty_plan_stage_replica_count(plan);
    for (uint32_t s = 0; s < stage % ty_plan_pipeline_size(plan); s++)
        stage_replica += plan->stages[s].replicas;
    return stage_replica;
}

uint32_t ty_plan_stage_of_replica(const ty_plan *plan, uint32_t stage_replica)
{
    uint32_t stage = 0, end = plan->stages[0].replicas;
    while (stage_replica >= end) {
        stage++;
        assert(stage < ty_plan_pipeline_size(plan));
        end += plan->stages[stage].replicas;
    }
    return stage;
}

uint32_t ty_plan_device_of_replica(const ty_plan *plan, uint32_t stage_replica)
{
    return ty_plan_device_of_replica_rank(plan, stage_replica, 0);
}

uint32_t ty_plan_device_of_replica_rank(const ty_plan *plan, uint32_t stage_replica,
                                        uint32_t replica_rank)
{
    const uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
    const uint32_t replica = stage_replica - ty_plan_first_replica(plan, stage);
    return plan->stages[stage].devices[replica * ty_plan_replica_ranks(plan) + replica_rank];
}

ty_status ty_plan_by_device(const ty_plan *plan, ty_plan **out, ty_error *error)
{
    const uint32_t width = ty_plan_replica_ranks(plan);
    ty_plan *view = ty_alloc(1, sizeof *view);

    TY_TRY(ty_check_memory(view != NULL, error));
    *view = *plan;
    view->stages = ty_alloc(plan->stage_count, sizeof *view->stages);
    if (view->stages == NULL) {
        ty_plan_view_free(view);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        view->stages[s] = plan->stages[s];
        view->stages[s].replicas *= width;
    }
    view->tensor_parallel = view->context_parallel = view->expert_parallel = 1;
    view->micro_batches *= width;
    *out = view;
    return TY_OK;
}

void ty_plan_view_free(ty_plan *view)
{
    if (view == NULL)
        return;
    ty_free(view->stages);
    ty_free(view);
}

/* ---- Layers and ties ----------------------------------------------------------------------- */

uint32_t ty_plan_stage_of_layer(const ty_plan *plan, uint32_t layer)
{
    uint32_t stage = 0;
    while (stage + 1 < plan->stage_count && layer >= plan->stages[stage + 1].first_layer)
        stage++;
    return stage;
}

/* Elements of the matrix that other layers can be tied to; 0 if there is none. */
static uint64_t matrix_elements(const ty_layer *layer)
{
    uint64_t rows, columns;

    return ty_layer_tied_matrix(layer, &rows, &columns) ? rows * columns : 0;
}

static bool may_be_shared(const ty_layer *layer)
{
    return layer->tied_to == TY_NO_LAYER && matrix_elements(layer) > 0;
}

uint32_t ty_plan_tied_stage(const ty_plan *plan, uint32_t layer)
{
    const ty_workload *w = plan->workload;
    uint32_t own;

    if (!may_be_shared(&w->layers[layer]))
        return TY_NO_STAGE;
    own = ty_plan_stage_of_layer(plan, layer);
    for (uint32_t user = layer + 1; user < w->layer_count; user++) {
        if (w->layers[user].tied_to != layer)
            continue;
        uint32_t stage = ty_plan_stage_of_layer(plan, user);
        if (stage != own)
            return stage;
    }
    return TY_NO_STAGE;
}

/* ---- Buckets ------------------------------------------------------------------------------- */

/* The number of a layer's `elements` per tensor-parallel rank. A vocabulary is sharded by rows and
 * padded. */
static uint64_t tp_elements(const ty_plan *plan, uint32_t layer, uint64_t elements)
{
    const ty_layer *l = &plan->workload->layers[layer];
    const uint64_t ranks = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL),
                   matrix = matrix_elements(l);
    uint64_t rows, columns;

    if (ranks == 1 || elements == 0 || ty_tensor_parameter_share(plan, layer) >= 1)
        return elements;
    if (ty_layer_tensor_split(plan->workload, layer) != TY_SPLIT_VOCABULARY || elements < matrix ||
        !ty_layer_tied_matrix(l, &rows, &columns))
        return (elements + ranks - 1) / ranks;
    return (rows + ranks - 1) / ranks * columns + (elements - matrix + ranks - 1) / ranks;
}

/* Elements per rank that a layer adds to a bucket of its stage, including tied matrices. */
static uint64_t own_elements(const ty_plan *plan, const ty_bucket *bucket, uint32_t layer)
{
    const ty_layer *l = &plan->workload->layers[layer];

    if (l->is_frozen)
        return 0;
    return tp_elements(plan, layer,
                       bucket->of_experts ? ty_rank_expert_elements(plan, layer)
                                          : l->parameter_bytes / plan->workload->element_bytes -
                                                ty_layer_expert_elements(plan, layer));
}

uint64_t ty_bucket_gradient_bytes(const ty_plan *plan, const ty_bucket *bucket)
{
    const ty_workload *w = plan->workload;
    const uint32_t end = bucket->first_layer + bucket->layer_count;
    uint64_t elements = 0;
    bool is_shared = false;

    if (bucket->tied_stage != TY_NO_STAGE) {
        const ty_layer *owner = &w->layers[bucket->first_layer];
        return owner->is_frozen ? 0
                                : tp_elements(plan, bucket->first_layer, matrix_elements(owner)) *
                                      TY_GRADIENT_ELEMENT_BYTES;
    }
    for (uint32_t i = bucket->first_layer; i < end; i++) {
        elements += own_elements(plan, bucket, i);
        is_shared = is_shared || may_be_shared(&w->layers[i]);
    }
    if (bucket->of_experts)
        return elements * TY_GRADIENT_ELEMENT_BYTES;
    /* Ties are few, so this iterates over tied layers instead of each layer's possible users. A
     * matrix with several users in the tied stage is subtracted at the first. */
    for (uint32_t user = end; is_shared && user < w->layer_count; user++) {
        const uint32_t owner = w->layers[user].tied_to;
        uint32_t earlier;
        if (owner == TY_NO_LAYER || owner < bucket->first_layer || owner >= end ||
            w->layers[owner].is_frozen || ty_plan_stage_of_layer(plan, user) == bucket->stage)
            continue;
        for (earlier = end; earlier < user; earlier++)
            if (w->layers[earlier].tied_to == owner &&
                ty_plan_stage_of_layer(plan, earlier) != bucket->stage)
                break;
        if (earlier == user) {
            uint64_t matrix = tp_elements(plan, owner, matrix_elements(&w->layers[owner]));
            elements -= matrix < elements ? matrix : elements;
        }
    }
    return elements * TY_GRADIENT_ELEMENT_BYTES;
}

/* The matrices among a layer's tensors from the `first` on, in memory order and before its vectors.
 */
static uint32_t matrices_from(const ty_workload *workload, uint32_t layer, uint32_t first,
                              ty_bucket_matrix out[TY_MOST_MATRICES])
{
    const uint32_t end = ty_layer_row_of(&workload->layers[layer])->matrices;
    ty_layer_tensor tensors[TY_MOST_TENSORS] = {0};
    uint64_t offset = 0;
    uint32_t count = 0;

    ty_layer_tensors(workload, layer, tensors);
    for (const ty_layer_tensor *t = tensors + first; t < tensors + end && t->count > 0; t++) {
        out[count++] = (ty_bucket_matrix){offset, t->count / t->columns, t->columns};
        offset += t->count;
    }
    return count;
}

static uint64_t matrices_sum(const ty_bucket_matrix *matrices, uint32_t count)
{
    uint64_t sum = 0;

    for (uint32_t m = 0; m < count; m++)
        sum += matrices[m].rows * matrices[m].columns;
    return sum;
}

uint32_t ty_layer_matrices(const ty_workload *workload, uint32_t layer,
                           ty_bucket_matrix out[TY_MOST_MATRICES])
{
    const ty_layer *l = &workload->layers[layer];
    const uint32_t count = matrices_from(workload, layer, l->tied_to != TY_NO_LAYER, out);

    return matrices_sum(out, count) * workload->element_bytes <= l->parameter_bytes ? count : 0;
}

/* Elements that a layer adds to a bucket, and its matrices. If one of the layer's matrices has a
 * bucket of its own, none are listed: a rule for the others is not worth it. */
static uint64_t layer_part(const ty_plan *plan, const ty_bucket *bucket, uint32_t index,
                           ty_bucket_matrix matrices[TY_MOST_MATRICES], uint32_t *count)
{
    const ty_layer_row *row = ty_layer_row_of(&plan->workload->layers[index]);
    const ty_bucket alone = {.stage = bucket->stage,
                             .first_layer = index,
                             .layer_count = 1,
                             .tied_stage = bucket->tied_stage,
                             .of_experts = bucket->of_experts};
    uint64_t elements = ty_bucket_gradient_bytes(plan, &alone) / TY_GRADIENT_ELEMENT_BYTES;

    *count = matrices_from(plan->workload, index, 0, matrices);
    if (row->is_recurrent || bucket->of_experts) /* different experts per rank */
        *count = 0;
    if (bucket->tied_stage != TY_NO_STAGE)
        *count = *count > 0 ? 1 : 0;
    if (matrices_sum(matrices, *count) > elements)
        *count = 0;
    return elements;
}

uint32_t ty_bucket_matrices(const ty_plan *plan, const ty_bucket *bucket,
                            ty_bucket_matrix *matrices)
{
    uint64_t offset = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < bucket->layer_count; i++) {
        ty_bucket_matrix found[TY_MOST_MATRICES];
        uint32_t found_count;
        const uint64_t elements =
            layer_part(plan, bucket, bucket->first_layer + i, found, &found_count);
        for (uint32_t m = 0; m < found_count; m++, count++) {
            if (matrices == NULL)
                continue;
            matrices[count] = found[m];
            matrices[count].offset += offset;
        }
        offset += elements;
    }
    return count;
}

static bool is_tied_to(const ty_workload *w, uint32_t owner, uint32_t *user)
{
    for (*user = owner + 1; *user < w->layer_count; ++*user)
        if (w->layers[*user].tied_to == owner)
            return true;
    return false;
}

ty_status ty_rows_check(const ty_plan *plan, uint32_t layer, ty_error *error)
{
    const ty_workload *w = plan->workload;
    const ty_layer *l = &w->layers[layer];
    uint32_t user;

    if (!ty_layer_has_table(l))
        return ty_fail(error, TY_EINVAL, "layer %u (\"%s\") is %s, expected an embedding", layer,
                       l->name, ty_layer_kind_name(l->kind));
    if (l->is_frozen)
        return ty_fail(error, TY_EINVAL, "layer %u (\"%s\") is frozen", layer, l->name);
    if (is_tied_to(w, layer, &user))
        return ty_fail(error, TY_EINVAL,
                       "layer %u (\"%s\") uses the matrix of layer %u (\"%s\") too, and all its "
                       "rows: expected an embedding that is not tied",
                       user, w->layers[user].name, layer, l->name);
    if (l->attributes[TY_VOCABULARY] >= UINT32_MAX)
        return ty_fail(error, TY_EINVAL, "layer %u has %llu rows, expected less than 2^32 - 1",
                       layer, (unsigned long long)l->attributes[TY_VOCABULARY]);
    if (ty_plan_replica_ranks(plan) > 1)
        return ty_fail(error, TY_EINVAL, "found %u ranks per replica, expected one",
                       ty_plan_replica_ranks(plan));
    if (plan->zero > 0)
        return ty_fail(error, TY_EINVAL, "found ZeRO %u, expected none", plan->zero);
    if (w->local_steps > 1 || w->learning != TY_LEARNING_GRADIENT)
        return ty_fail(error, TY_EINVAL, "found %s, expected gradients to be exchanged",
                       w->local_steps > 1 ? "local steps" : ty_learning_name(w->learning));
    return TY_OK;
}

uint64_t ty_plan_replica_tokens(const ty_plan *plan, uint32_t stage, uint32_t embedding)
{
    const ty_layer *l = &plan->workload->layers[embedding];
    const uint64_t of_sample =
        ty_layer_is_bag(l) ? l->attributes[TY_ROWS]
                           : ty_shape_elements(ty_layer_input_shape(plan->workload, embedding, 0));

    return (uint64_t)plan->global_batch / plan->stages[stage].replicas * of_sample;
}

static ty_gradient_extent extent_of_rows(const ty_plan *plan, const ty_bucket *bucket)
{
    const uint64_t *a = plan->workload->layers[bucket->first_layer].attributes;
    const uint64_t elements = bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES;
    const uint64_t tokens = ty_plan_replica_tokens(plan, bucket->stage, bucket->first_layer);
    uint64_t rows = a[TY_VOCABULARY];

    if (a[TY_FEATURES] == 0 || rows > elements / a[TY_FEATURES]) /* not in a checked plan */
        rows = 0;
    return ty_rows_extent(elements, rows, a[TY_FEATURES], tokens < rows ? tokens : rows);
}

ty_gradient_extent ty_bucket_extent(const ty_plan *plan, const ty_bucket *bucket)
{
    const ty_compression *c = &bucket->compression;
    ty_gradient_extent extent = {.elements = bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES};

    if (ty_compression_at(c->kind)->sends_rows)
        return extent_of_rows(plan, bucket);
    if (!ty_compression_has_rank(c->kind))
        return extent;
    extent.dense_elements = extent.elements;
    for (uint32_t i = 0; i < bucket->layer_count; i++) {
        ty_bucket_matrix found[TY_MOST_MATRICES];
        uint32_t count;
        layer_part(plan, bucket, bucket->first_layer + i, found, &count);
        for (uint32_t m = 0; m < count; m++)
            ty_powersgd_count(c, found[m].rows, found[m].columns, &extent);
    }
    return extent;
}

uint64_t ty_bucket_wire_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase)
{
    const ty_gradient_extent extent = ty_bucket_extent(plan, bucket);

    if (bucket->compression.kind == TY_COMPRESSION_NONE)
        return bucket->gradient_bytes;
    return ty_compression_wire_bytes(&bucket->compression, &extent,
                                     ty_bucket_device_count(plan, bucket), phase);
}

uint64_t ty_bucket_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket)
{
    uint64_t bytes = 0;

    for (uint32_t phase = 0; phase < ty_compression_phases(&bucket->compression); phase++)
        bytes += ty_bucket_wire_bytes(plan, bucket, phase);
    return bytes;
}

uint64_t ty_plan_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase)
{
    if (plan->workload->learning == TY_LEARNING_EVOLUTION)
        return (uint64_t)SCORE_BYTES * plan->global_batch / plan->stages[bucket->stage].replicas;
    return ty_bucket_wire_bytes(plan, bucket, phase);
}

ty_collective_kind ty_plan_exchange_kind(const ty_plan *plan, const ty_bucket *bucket,
                                         uint32_t phase)
{
    if (plan->workload->learning == TY_LEARNING_EVOLUTION)
        return TY_ALL_GATHER;
    return ty_bucket_is_sharded(plan, bucket)
               ? TY_REDUCE_SCATTER
               : ty_compression_collective(&bucket->compression, phase);
}

uint32_t ty_plan_exchange_interval(const ty_plan *plan, const ty_bucket *bucket)
{
    bool is_alone = plan->workload->local_steps > 1 && bucket->tied_stage == TY_NO_STAGE;
    return is_alone ? plan->workload->local_steps : 1;
}

uint32_t ty_bucket_member_count(const ty_plan *plan, const ty_bucket *bucket)
{
    uint32_t count = plan->stages[bucket->stage].replicas;
    if (bucket->tied_stage != TY_NO_STAGE)
        count += plan->stages[bucket->tied_stage].replicas;
    return count;
}

uint32_t ty_bucket_device_count(const ty_plan *plan, const ty_bucket *bucket)
{
    return ty_bucket_member_count(plan, bucket) * ty_bucket_rank_count(plan, bucket);
}

uint32_t ty_bucket_devices(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                           uint32_t *devices)
{
    const uint32_t stages[2] = {bucket->stage, bucket->tied_stage};
    const uint32_t ranks = ty_bucket_rank_count(plan, bucket), width = ty_plan_replica_ranks(plan);
    uint32_t count = 0;

    for (int h = 0; h < 2 && stages[h] != TY_NO_STAGE; h++)
        for (uint32_t q = 0; q < plan->stages[stages[h]].replicas; q++)
            for (uint32_t n = 0; n < ranks; n++)
                devices[count++] =
                    plan->stages[stages[h]]
                        .devices[(size_t)q * width + ty_bucket_rank(plan, bucket, group, n)];
    return count;
}

uint32_t ty_bucket_ranks(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                         uint32_t *ranks)
{
    const uint32_t each = ty_bucket_rank_count(plan, bucket), width = ty_plan_replica_ranks(plan);
    const uint32_t stage_replicas = ty_bucket_members(plan, bucket, ranks);

    for (uint32_t m = stage_replicas; m-- > 0;) { /* in place: from the last stage replica down */
        const uint32_t first = ranks[m] * width;
        for (uint32_t n = each; n-- > 0;)
            ranks[m * each + n] = first + ty_bucket_rank(plan, bucket, group, n);
    }
    return stage_replicas * each;
}

bool ty_bucket_is_sharded(const ty_plan *plan, const ty_bucket *bucket)
{
    return plan->zero > 0 && bucket->tied_stage == TY_NO_STAGE &&
           ty_bucket_device_count(plan, bucket) > 1;
}

uint64_t ty_bucket_rank_bytes(const ty_plan *plan, const ty_bucket *bucket)
{
    const ty_workload *workload = plan->workload;
    const uint32_t members = ty_bucket_device_count(plan, bucket);
    const bool is_alike =
        members == 1 || ty_compression_at(bucket->compression.kind)->is_elementwise;
    uint64_t elements = 0;

    if (ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) == 1 || bucket->tied_stage != TY_NO_STAGE ||
        bucket->of_experts || (!plan->sequence_parallel && is_alike))
        return 0;
    for (uint32_t i = bucket->first_layer; i < bucket->first_layer + bucket->layer_count; i++)
        if (!workload->layers[i].is_frozen && ty_tensor_parameter_share(plan, i) >= 1)
            elements += workload->layers[i].parameter_bytes / workload->element_bytes;
    if (ty_bucket_is_sharded(plan, bucket))
        elements = (elements + members - 1) / members;
    return elements * TY_GRADIENT_ELEMENT_BYTES;
}

uint32_t ty_bucket_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t *stage_replicas)
{
    const uint32_t stages[2] = {bucket->stage, bucket->tied_stage};
    uint32_t count = 0;

    for (int h = 0; h < 2 && stages[h] != TY_NO_STAGE; h++) {
        uint32_t first = ty_plan_first_replica(plan, stages[h]);
        for (uint32_t q = 0; q < plan->stages[stages[h]].replicas; q++)
            stage_replicas[count++] = first + q;
    }
    return count;
}

const ty_step_summary *ty_plan_summary(const ty_plan *plan)
{
    return plan->simulation.step_time_s > 0 ? &plan->simulation : &plan->prediction;
}

double ty_winograd_saving(const ty_layer *layer)
{
    const uint64_t *a = layer->attributes;
    const double window = (double)a[TY_KERNEL_HEIGHT], tile = TY_WINOGRAD_TILE + window - 1;
    const bool is_square = a[TY_KERNEL_HEIGHT] == a[TY_KERNEL_WIDTH];

    if (!is_square || (a[TY_KERNEL_HEIGHT] != 3 && a[TY_KERNEL_HEIGHT] != 5) || a[TY_STRIDE] > 1 ||
        a[TY_GROUPS] > 1)
        return 1;
    return TY_WINOGRAD_TILE * TY_WINOGRAD_TILE * window * window / (tile * tile);
}

bool ty_convolution_is_chosen(const ty_workload *workload, const ty_layer *layer,
                              const ty_device_type *device)
{
    return ty_layer_row_of(layer)->is_convolution && workload->precision == TY_PRECISION_FP32 &&
           device->convolution_efficiency > 0;
}

double ty_plan_model_flop(const ty_plan *plan, const ty_cluster *cluster)
{
    const ty_workload *w = plan->workload;
    const uint32_t first = ty_workload_first_backward(w),
                   pipeline_size = ty_plan_pipeline_size(plan);
    double forward = 0, backward = 0;

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_plan_stage *stage = &plan->stages[s];
        const uint32_t device = plan->stages[s % pipeline_size].devices[0];
        const uint32_t end = stage->first_layer + stage->layer_count;
        for (uint32_t l = stage->first_layer; l < end && l < w->layer_count; l++) {
            const ty_layer *layer = &w->layers[l];
            const bool is_chosen =
                cluster != NULL &&
                ty_convolution_is_chosen(w, layer, ty_cluster_device_type(cluster, device));
            const double saving = is_chosen ? ty_winograd_saving(layer) : 1;
            forward += layer->forward_flop / saving;
            backward += l >= first ? layer->backward_flop / saving : 0;
        }
    }
    return plan->global_batch * (forward + backward);
}

double ty_plan_peak_flop_per_s(const ty_plan *plan, const ty_cluster *cluster)
{
    double sum = 0;

    for (uint32_t s = 0; cluster != NULL && s < ty_plan_pipeline_size(plan); s++)
        for (uint32_t d = 0; d < plan->stages[s].replicas * ty_plan_replica_ranks(plan); d++)
            sum += ty_device_peak(ty_cluster_device_type(cluster, plan->stages[s].devices[d]),
                                  plan->workload->precision);
    return sum;
}

/* The rate of a local machine's cores is measured, so it is not a peak. */
static bool has_measured_peak(const ty_plan *plan)
{
    return plan->profile != NULL && plan->cluster != NULL &&
           ty_cluster_device_type(plan->cluster, plan->stages[0].devices[0])->core_share > 0;
}

void ty_step_summary_rate(const ty_plan *plan, ty_step_summary *s)
{
    const double flop_per_s = ty_plan_model_flop(plan, plan->cluster) / s->step_time_s;
    const double peak = ty_plan_peak_flop_per_s(plan, plan->cluster);
    const uint32_t devices = ty_plan_rank_count(plan);

    s->devices = devices;
    s->mfu = peak > 0 && !has_measured_peak(plan) ? flop_per_s / peak : 0;
    s->tflops_per_device = flop_per_s / devices * 1e-12;
    s->tokens_per_s_per_device = s->tokens_per_s / devices;
}

bool ty_plan_memory_peak(const ty_plan *plan, ty_memory_peak *out)
{
    double least_free = HUGE_VAL;

    if (plan->memory == NULL)
        return false;
    for (uint32_t s = 0; s < ty_plan_pipeline_size(plan); s++) {
        const uint64_t bytes = ty_memory_use_total(&plan->memory[s]);
        const uint32_t devices = plan->stages[s].replicas * ty_plan_replica_ranks(plan);
        const ty_device_type *smallest = NULL;
        uint64_t usable = 0;
        double limit = 0;
        for (uint32_t d = 0; plan->cluster != NULL && d < devices; d++) {
            const ty_device_type *type =
                ty_cluster_device_type(plan->cluster, plan->stages[s].devices[d]);
            if (smallest == NULL || ty_device_usable_bytes(type) < usable) {
                smallest = type;
                usable = ty_device_usable_bytes(type);
            }
        }
        if (smallest != NULL)
            limit = (double)ty_device_room_bytes(smallest, plan->memory_reserve);
        if (!(limit - (double)bytes < least_free))
            continue;
        least_free = limit - (double)bytes;
        *out = (ty_memory_peak){.stage = s,
                                .bytes = bytes,
                                .usable_bytes = usable,
                                .is_tight = smallest != NULL &&
                                            (double)bytes > (1 - TY_TIGHT_SHARE) * limit};
    }
    return true;
}

ty_status ty_plan_input(const ty_plan *plan, ty_input_forecast *out, ty_error *error)
{
    const ty_plan_stage *first = &plan->stages[0];
    const uint32_t levels = plan->cluster == NULL ? 0 : ty_cluster_storage_count(plan->cluster);
    uint32_t *on_host;
    ty_input_question q = {.level_count = levels,
                           .input = plan->input,
                           .sample_bytes = (double)plan->workload->sample_bytes,
                           .readers = first->replicas * ty_plan_replica_ranks(plan)};

    *out = (ty_input_forecast){.samples_per_s = HUGE_VAL};
    if (plan->cluster == NULL || (levels == 0 && !(plan->input.decode_samples_per_s > 0)))
        return TY_OK;
    if (levels > 0)
        q.levels = ty_cluster_storage(plan->cluster, 0);
    on_host = ty_alloc(ty_cluster_host_count(plan->cluster), sizeof *on_host);
    TY_TRY(ty_check_memory(on_host != NULL, error));
    for (uint32_t d = 0; d < q.readers; d++) {
        const uint32_t host = ty_cluster_device_host(plan->cluster, first->devices[d]);
        q.hosts += on_host[host] == 0;
        if (++on_host[host] > q.host_readers)
            q.host_readers = on_host[host];
    }
    ty_free(on_host);
    return ty_input_rate(&q, out, error);
}

/* ---- Candidates ---------------------------------------------------------------------------- */

double ty_candidate_step_s(const ty_candidate *candidate)
{
    return candidate->simulated_step_time_s > 0 ? candidate->simulated_step_time_s
                                                : candidate->step_time_s;
}

/* Candidates with known time and memory. */
static bool is_known(const ty_candidate *c)
{
    return ty_candidate_step_s(c) > 0 && c->peak_memory_bytes > 0;
}

bool ty_plan_is_on_front(const ty_plan *plan, uint32_t candidate)
{
    const ty_candidate *c = &plan->candidates[candidate];

    if (!is_known(c))
        return false;
    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        const ty_candidate *other = &plan->candidates[i];
        const double faster_s = ty_candidate_step_s(c) - ty_candidate_step_s(other);
        if (is_known(other) && faster_s >= 0 && other->peak_memory_bytes <= c->peak_memory_bytes &&
            (faster_s > 0 || other->peak_memory_bytes < c->peak_memory_bytes))
            return false;
    }
    return true;
}
