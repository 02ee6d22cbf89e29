#include "plans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *need(void *block)
{
    if (block == NULL)
        abort();
    return block;
}

static char *text(const char *string)
{
    return need(ty_strdup(string));
}

static ty_workload *make_workload(uint32_t layer_count, bool is_tied)
{
    ty_workload *w = need(ty_alloc(1, sizeof *w));

    w->name = text("chain");
    w->source = text("made for a test");
    w->element_bytes = 4;
    w->input_kind = TY_INPUT_REAL;
    w->input = (ty_shape){1, {100}};
    w->sample_bytes = 404;
    w->dataset = text("synthetic");
    w->global_batch = 8;
    w->layer_count = layer_count;
    w->layers = need(ty_alloc(layer_count, sizeof *w->layers));
    for (uint32_t i = 0; i < layer_count; i++) {
        ty_layer *layer = &w->layers[i];
        char name[16];
        snprintf(name, sizeof name, "layer%u", i);
        layer->name = text(name);
        layer->kind = TY_LAYER_OPAQUE;
        layer->tied_to = TY_NO_LAYER;
        layer->output = (ty_shape){1, {100}};
        layer->output_bytes = 400;
        layer->stash_bytes = 400;
        layer->parameter_bytes = (i + 1) * 4000;
        if (i > 0) {
            layer->input_count = 1;
            layer->inputs = need(ty_alloc(1, sizeof *layer->inputs));
            layer->inputs[0] = i - 1;
        }
    }
    if (is_tied) { /* an embedding of 10 words and the linear layer that uses its matrix */
        w->layers[0].kind = TY_LAYER_EMBEDDING;
        w->layers[0].attributes[TY_VOCABULARY] = 10;
        w->layers[0].attributes[TY_FEATURES] = 100;
        w->layers[layer_count - 1].kind = TY_LAYER_LINEAR;
        w->layers[layer_count - 1].attributes[TY_IN_FEATURES] = 100;
        w->layers[layer_count - 1].attributes[TY_OUT_FEATURES] = 10;
        w->layers[layer_count - 1].tied_to = 0;
        w->layers[layer_count - 1].parameter_bytes = 0;
    }
    if (ty_workload_index_make(w, NULL) != TY_OK)
        abort();
    return w;
}

static void add_bucket(ty_plan *plan, const plan_shape *shape, uint32_t stage, uint32_t tied_stage,
                       uint32_t first_layer, uint32_t layer_count)
{
    ty_bucket *bucket = &plan->buckets[plan->bucket_count++];
    *bucket = (ty_bucket){.stage = stage,
                          .first_layer = first_layer,
                          .layer_count = layer_count,
                          .tied_stage = tied_stage,
                          .compression = shape->compression};
    if (ty_compression_has_ratio(shape->compression.kind) && shape->compression.ratio == 0)
        bucket->compression.ratio = 0.01;
    if (ty_compression_has_rank(shape->compression.kind) && shape->compression.rank == 0)
        bucket->compression.rank = 2;
    bucket->gradient_bytes = ty_bucket_gradient_bytes(plan, bucket);
}

/* From the last trainable layer of the stage to its first, in parts as equal as can be. */
static void add_buckets(ty_plan *plan, const plan_shape *shape, uint32_t stage)
{
    const ty_layer *layers = plan->workload->layers;
    uint32_t first = plan->stages[stage].first_layer;
    uint32_t end = first + plan->stages[stage].layer_count;

    if (shape->is_tied && stage == 0)
        first++; /* its only parameters are the tied matrix */
    while (end > first && layers[end - 1].parameter_bytes == 0)
        end--;
    for (uint32_t left = shape->buckets[stage]; left > 0 && end > first; left--) {
        uint32_t count = left >= end - first ? 1 : (end - first) / left;
        add_bucket(plan, shape, stage, TY_NO_STAGE, end - count, count);
        end -= count;
    }
}

ty_plan *make_plan(const plan_shape *shape)
{
    ty_plan *plan = need(ty_alloc(1, sizeof *plan));
    uint32_t layer_count = 0, device = 0, room = 1;

    plan->stages = need(ty_alloc(shape->stage_count, sizeof *plan->stages));
    plan->stage_count = shape->stage_count;
    plan->virtual_stages = shape->virtual_stages;
    plan->zero = shape->zero;
    plan->staleness = shape->staleness;
    for (uint32_t s = 0; s < shape->stage_count; s++) {
        ty_plan_stage *stage = &plan->stages[s];
        *stage = (ty_plan_stage){.first_layer = layer_count,
                                 .layer_count = shape->layers[s],
                                 .replicas = shape->replicas[s],
                                 .recompute = shape->is_by_operator  ? TY_RECOMPUTE_OPERATOR
                                              : shape->is_recomputed ? TY_RECOMPUTE_FULL
                                                                     : TY_RECOMPUTE_NONE,
                                 .recompute_blocks = shape->recompute_blocks};
        stage->devices = need(ty_alloc(stage->replicas, sizeof *stage->devices));
        for (uint32_t q = 0; q < stage->replicas; q++)
            stage->devices[q] = s < ty_plan_pipeline_size(plan)
                                    ? device++
                                    : plan->stages[s % ty_plan_pipeline_size(plan)].devices[q];
        layer_count += shape->layers[s];
        room += shape->buckets[s];
    }
    plan->workload = make_workload(layer_count, shape->is_tied);
    if (ty_workload_digest(plan->workload, &plan->workload_digest, NULL) != TY_OK)
        abort();
    if (ty_stack_open(TY_WORKER_STACK, &plan->stack, NULL) != TY_OK)
        abort();
    plan->cluster_name = text("made for a test");
    if (ty_cluster_open("host:1 gpu:64 @v100-sxm2-16gb nvlink2 edr100", NULL, &plan->cluster,
                        NULL) != TY_OK)
        abort();
    plan->strategy = text("made for a test");
    plan->schedule = shape->schedule;
    plan->micro_batches = shape->micro_batches;
    plan->micro_batch_size = 2;
    plan->global_batch = plan->micro_batches * plan->micro_batch_size;
    plan->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    plan->buckets = need(ty_alloc(room, sizeof *plan->buckets));
    for (uint32_t s = 0; s < shape->stage_count; s++)
        add_buckets(plan, shape, s);
    if (shape->is_tied)
        add_bucket(plan, shape, 0, shape->stage_count - 1, 0, 1);
    return plan;
}

uint32_t random_below(random_numbers *numbers, uint32_t limit)
{
    uint64_t x = numbers->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    numbers->state = x;
    return (uint32_t)((x * 0x2545F4914F6CDD1DULL) >> 33) % limit;
}

/* From 0.1 ms to 10 ms; one in ten takes no time at all. */
double random_seconds(random_numbers *numbers)
{
    return random_below(numbers, 10) == 0 ? 0 : 1e-4 * (1 + random_below(numbers, 100));
}

plan_shape random_shape(random_numbers *numbers)
{
    plan_shape shape = {.schedule = random_below(numbers, 2) == 0 ? TY_GPIPE : TY_ONE_F_ONE_B,
                        .stage_count = 1 + random_below(numbers, MAX_STAGES),
                        .micro_batches = 6 * (1 + random_below(numbers, 4)),
                        .compression.kind =
                            (ty_compression_kind)random_below(numbers, TY_COMPRESSION_COUNT),
                        .is_recomputed = random_below(numbers, 3) == 0};

    if (shape.compression.kind == TY_COMPRESSION_ROWS) /* there are no embeddings here */
        shape.compression.kind = TY_COMPRESSION_NONE;
    shape.staleness = random_below(numbers, 2) == 0 ? random_below(numbers, 4) : 0;
    shape.recompute_blocks = shape.is_recomputed ? random_below(numbers, 3) : 0;
    shape.is_by_operator =
        shape.is_recomputed && shape.recompute_blocks == 0 && random_below(numbers, 2) == 0;
    shape.is_tied = shape.stage_count > 1 && random_below(numbers, 2) == 0;
    for (uint32_t s = 0; s < shape.stage_count; s++) {
        shape.replicas[s] = 1 + random_below(numbers, 3);
        shape.layers[s] = 2 + random_below(numbers, 4);
        shape.buckets[s] = 1 + random_below(numbers, shape.layers[s]);
    }
    return shape;
}

ty_costs *make_costs(const ty_plan *plan, const ty_program *program)
{
    ty_costs *costs = NULL;

    if (ty_costs_new(plan, program, &costs, NULL) != TY_OK)
        abort();
    costs->host_count = costs->stage_replica_count;
    costs->host_cores = need(ty_alloc(costs->host_count, sizeof *costs->host_cores));
    for (uint32_t stage_replica = 0; stage_replica < costs->stage_replica_count; stage_replica++) {
        costs->replica_host[stage_replica] = stage_replica;
        costs->host_cores[stage_replica] = HUGE_VAL;
    }
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            if (program->stages[s].instructions[i].op != TY_OP_RECEIVE)
                costs->instructions[s][i].core_share = 1;
    return costs;
}

void set_seconds(ty_costs *costs, const ty_program *program, uint32_t stage, ty_op op,
                 double seconds)
{
    for (uint32_t i = 0; i < costs->instruction_counts[stage]; i++)
        if (program->stages[stage].instructions[i].op == op)
            costs->instructions[stage][i].seconds = seconds;
}

void set_random_seconds(ty_costs *costs, const ty_plan *plan, const ty_program *program,
                        random_numbers *numbers)
{
    double *bucket_s = need(ty_alloc(plan->bucket_count, sizeof *bucket_s));

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        bucket_s[b] = random_seconds(numbers);
    for (uint32_t s = 0; s < costs->stage_count; s++) {
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++) {
            const ty_instruction *instruction = &program->stages[s].instructions[i];
            double *seconds = &costs->instructions[s][i].seconds;
            if (instruction->op == TY_OP_COLLECTIVE)
                *seconds = bucket_s[instruction->bucket];
            else if (instruction->op != TY_OP_RECEIVE)
                *seconds = random_seconds(numbers);
        }
    }
    ty_free(bucket_s);
}

void share_host(ty_costs *costs, double cores)
{
    costs->host_count = 1;
    costs->host_cores[0] = cores;
    for (uint32_t stage_replica = 0; stage_replica < costs->stage_replica_count; stage_replica++)
        costs->replica_host[stage_replica] = 0;
}
