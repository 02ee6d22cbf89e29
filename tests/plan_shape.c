#include "plan_shape.h"

#include <stdio.h>
#include <stdlib.h>

void must(bool holds, const char *what, const char *detail)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, detail);
        abort();
    }
}

ty_workload *chain_workload(uint32_t layers, bool is_tied)
{
    ty_workload *w = ty_alloc(1, sizeof *w);
    ty_layer *last;
    ty_error error = {0};

    w->name = ty_strdup("chain");
    w->source = ty_strdup("made for a test");
    w->element_bytes = 4;
    w->input_kind = TY_INPUT_REAL;
    w->input = (ty_shape){1, {100}};
    w->sample_bytes = 404;
    w->dataset = ty_strdup("synthetic");
    w->global_batch = 8;
    w->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    w->layer_count = layers;
    w->layers = ty_alloc(layers, sizeof *w->layers);
    for (uint32_t i = 0; i < layers; i++) {
        ty_layer *layer = &w->layers[i];
        char name[16];
        snprintf(name, sizeof name, "layer%u", i);
        layer->name = ty_strdup(name);
        layer->kind = TY_LAYER_OPAQUE;
        layer->tied_to = TY_NO_LAYER;
        layer->output = (ty_shape){1, {100}};
        layer->output_bytes = 400;
        layer->stash_bytes = 400;
        layer->parameter_bytes = (i + 1) * 4000;
        layer->input_count = i > 0;
        layer->inputs = ty_alloc(1, sizeof *layer->inputs);
        layer->inputs[0] = i - 1;
    }
    if (is_tied) { /* 10 words of 100 features */
        last = &w->layers[layers - 1];
        w->layers[0].kind = TY_LAYER_EMBEDDING;
        w->layers[0].attributes[TY_VOCABULARY] = 10;
        w->layers[0].attributes[TY_FEATURES] = 100;
        last->kind = TY_LAYER_LINEAR;
        last->attributes[TY_IN_FEATURES] = 100;
        last->attributes[TY_OUT_FEATURES] = 10;
        last->tied_to = 0;
        last->parameter_bytes = 0;
    }
    must(ty_workload_index_make(w, &error) == TY_OK, w->name, error.message);
    return w;
}

ty_cluster *host_of(uint32_t devices)
{
    ty_text text = {0};
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    ty_text_add(&text,
                "{\"schema\": \"trainyard.cluster/1\", \"name\": \"toy\", \"device_types\": "
                "[{\"name\": \"d\", \"source\": \"made by hand\", \"peak_fp32_flop_per_s\": 1e9, "
                "\"peak_tf32_flop_per_s\": 0, \"peak_fp16_flop_per_s\": 0, "
                "\"memory_bandwidth_bytes_per_s\": 1e9, \"launch_overhead_s\": 0, "
                "\"matmul_efficiency\": 1, \"memory_efficiency\": 1, \"core_share\": 0, "
                "\"power_w\": 1, \"memory_bytes\": 1073741824}], \"link_types\": [{\"name\": "
                "\"l\", \"source\": \"made by hand\", \"bandwidth_bytes_per_s\": 1e9, "
                "\"latency_s\": 0}], \"vertices\": [{\"name\": \"h\", \"kind\": \"host\"}");
    for (uint32_t d = 0; d < devices; d++)
        ty_text_addf(&text,
                     ", {\"name\": \"%u\", \"kind\": \"device\", \"type\": \"d\", \"host\": \"h\"}",
                     d);
    ty_text_add(&text, "], \"links\": [");
    for (uint32_t d = 0; d < devices; d++)
        ty_text_addf(&text, "%s{\"from\": \"%u\", \"to\": \"h\", \"type\": \"l\"}",
                     d > 0 ? ", " : "", d);
    ty_text_add(&text, "]}");
    must(ty_text_check(&text, &error) == TY_OK, "host", error.message);
    must(ty_cluster_parse(text.data, "toy", &cluster, &error) == TY_OK, "host", error.message);
    ty_text_clear(&text);
    return cluster;
}

uint32_t shape_layers(const plan_shape *shape)
{
    uint32_t sum = 0;

    for (uint32_t s = 0; s < MOST_SHAPE_STAGES; s++)
        sum += shape->layers[s];
    return sum;
}

/* Of rows an embedding has a bucket of its own, and all others are uncompressed. */
static bool divide_rows(ty_plan *plan, const plan_shape *shape, ty_bucket *bucket);

static void add_bucket(ty_plan *plan, const plan_shape *shape, ty_bucket bucket)
{
    ty_compression *compression = &bucket.compression;

    if (divide_rows(plan, shape, &bucket))
        return;
    bucket.algorithm = shape->algorithm;
    if (compression->kind == TY_COMPRESSION_NONE && shape->compression.kind != TY_COMPRESSION_ROWS)
        *compression = shape->compression;
    if (ty_compression_has_ratio(compression->kind) && compression->ratio == 0)
        compression->ratio = 0.01;
    if (ty_compression_has_rank(compression->kind) && compression->rank == 0)
        compression->rank = 2;
    bucket.gradient_bytes = ty_bucket_gradient_bytes(plan, &bucket);
    if (bucket.gradient_bytes > 0)
        plan->buckets[plan->bucket_count++] = bucket;
}

static bool divide_rows(ty_plan *plan, const plan_shape *shape, ty_bucket *bucket)
{
    const uint32_t first = bucket->first_layer, end = first + bucket->layer_count;
    ty_bucket part = *bucket;

    if (shape->compression.kind != TY_COMPRESSION_ROWS ||
        bucket->compression.kind == TY_COMPRESSION_ROWS)
        return false;
    for (uint32_t l = end; l-- > first;) {
        if (ty_rows_check(plan, l, NULL) != TY_OK)
            continue;
        part.first_layer = l + 1;
        part.layer_count = end - l - 1;
        if (part.layer_count > 0)
            add_bucket(plan, shape, part);
        part.first_layer = l;
        part.layer_count = 1;
        part.compression = shape->compression;
        add_bucket(plan, shape, part);
        part.first_layer = first;
        part.layer_count = l - first;
        part.compression = (ty_compression){0};
        if (part.layer_count > 0)
            add_bucket(plan, shape, part);
        return true;
    }
    return false;
}

/* Sharded experts have a bucket right after the one of everything else in their layers. */
static void add_layers(ty_plan *plan, const plan_shape *shape, ty_bucket bucket)
{
    uint64_t experts = 0;

    add_bucket(plan, shape, bucket);
    for (uint32_t l = 0; l < bucket.layer_count; l++)
        experts += ty_layer_expert_elements(plan, bucket.first_layer + l);
    bucket.of_experts = true;
    if (experts > 0 && shape->experts > 1)
        add_bucket(plan, shape, bucket);
}

/* Whether sharded embedding bags are on both sides of a cut before a layer. */
static bool cuts_tables(const ty_plan *plan, uint32_t layer)
{
    const uint32_t first = ty_plan_tables(plan).first_bag;
    bool is_behind = false;

    for (uint32_t l = layer; l < plan->workload->layer_count; l++)
        is_behind = is_behind || plan->workload->layers[l].kind == TY_LAYER_EMBEDDING_BAG;
    return first < layer && is_behind;
}

static uint32_t buckets_of(const plan_shape *shape, uint32_t stage)
{
    return shape->stage_buckets[stage] > 0 ? shape->stage_buckets[stage] : shape->buckets;
}

/* As many layers each as can be, from the stage's last layer with parameters to its first that is
 * not frozen. */
static void add_buckets(ty_plan *plan, const plan_shape *shape, uint32_t stage)
{
    const ty_plan_stage *own = &plan->stages[stage];
    uint32_t end = own->first_layer + own->layer_count, left = buckets_of(shape, stage);
    uint32_t first = own->first_layer > shape->frozen ? own->first_layer : shape->frozen;

    for (; left > 0 && end > first; left--) {
        uint32_t count = (end - first + left - 1) / left;

        while (cuts_tables(plan, end - count))
            count++;
        add_layers(plan, shape,
                   (ty_bucket){.stage = stage,
                               .first_layer = end - count,
                               .layer_count = count,
                               .tied_stage = TY_NO_STAGE});
        end -= count;
    }
}

static void add_stages(ty_plan *plan, const plan_shape *shape)
{
    const bool has_layers = shape_layers(shape) > 0;
    uint32_t first = 0;

    while (plan->stage_count < MOST_SHAPE_STAGES && shape->replicas[plan->stage_count] > 0)
        plan->stage_count++;
    plan->stages = ty_alloc(plan->stage_count, sizeof *plan->stages);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        ty_plan_stage *stage = &plan->stages[s];
        uint32_t devices = shape->replicas[s] * ty_plan_replica_ranks(plan);
        uint32_t end = has_layers                  ? first + shape->layers[s]
                       : s + 1 < plan->stage_count ? shape->cuts[s]
                                                   : plan->workload->layer_count;

        *stage = (ty_plan_stage){.first_layer = first,
                                 .layer_count = end - first,
                                 .replicas = shape->replicas[s],
                                 .recompute = shape->recompute,
                                 .recompute_blocks = shape->recompute_blocks,
                                 .devices = ty_alloc(devices, sizeof *stage->devices)};
        for (uint32_t d = 0; d < devices; d++)
            stage->devices[d] = ty_plan_first_replica(plan, s) * ty_plan_replica_ranks(plan) + d;
        first = end;
    }
}

ty_plan *plan_of(ty_workload *workload, ty_cluster *cluster, const plan_shape *shape)
{
    ty_plan *plan = ty_alloc(1, sizeof *plan);
    ty_error error = {0};
    uint32_t room = workload->layer_count;

    plan->workload = workload;
    must(ty_workload_digest(workload, &plan->workload_digest, &error) == TY_OK, workload->name,
         error.message);
    must(ty_stack_open(TY_WORKER_STACK, &plan->stack, &error) == TY_OK, workload->name,
         error.message);
    plan->cluster_name = ty_strdup(shape->cluster != NULL ? shape->cluster : "this process");
    plan->strategy = ty_strdup(shape->name != NULL ? shape->name : "made for a test");
    plan->schedule = shape->schedule;
    plan->micro_batch_size = shape->micro_batch_size > 0 ? shape->micro_batch_size : 2;
    plan->micro_batches = shape->micro_batches > 0 ? shape->micro_batches
                                                   : shape->global_batch / plan->micro_batch_size;
    plan->global_batch = plan->micro_batches * plan->micro_batch_size;
    plan->optimizer = workload->optimizer;
    plan->seed = 42;
    plan->virtual_stages = shape->virtual_stages;
    plan->zero = shape->zero;
    plan->staleness = shape->staleness;
    plan->tensor_parallel = shape->tp;
    plan->sequence_parallel = shape->divides_sequence;
    plan->context_parallel = shape->contexts;
    plan->expert_parallel = shape->experts;
    plan->table_shard = shape->tables;
    plan->lag = shape->lag;
    add_stages(plan, shape);
    plan->servers.count = shape->servers;
    plan->servers.shard = shape->shard;
    if (shape->servers > 0)
        plan->servers.devices = ty_alloc(shape->servers, sizeof *plan->servers.devices);
    for (uint32_t k = 0; k < shape->servers; k++)
        plan->servers.devices[k] = ty_plan_rank_count(plan) + k;
    for (uint32_t s = 0; s < plan->stage_count; s++)
        room += 2 * buckets_of(shape, s);
    plan->buckets = ty_alloc(room, sizeof *plan->buckets);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        add_buckets(plan, shape, s);
    for (uint32_t layer = 0; layer < workload->layer_count; layer++) {
        uint32_t tied_stage = ty_plan_tied_stage(plan, layer);
        if (tied_stage != TY_NO_STAGE)
            add_bucket(plan, shape,
                       (ty_bucket){.stage = ty_plan_stage_of_layer(plan, layer),
                                   .first_layer = layer,
                                   .layer_count = 1,
                                   .tied_stage = tied_stage});
    }
    plan->cluster = cluster != NULL ? cluster : host_of(ty_plan_rank_count(plan) + shape->servers);
    must(ty_plan_check(plan, plan->strategy, &error) == TY_OK, plan->strategy, error.message);
    if (shape->is_reversed)
        plan->exchange_order = ty_alloc(plan->bucket_count, sizeof *plan->exchange_order);
    for (uint32_t b = 0; b < plan->bucket_count && shape->is_reversed; b++)
        plan->exchange_order[b] = plan->bucket_count - 1 - b;
    return plan;
}
