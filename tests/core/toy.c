#include "toy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const plan_shape toy_specs[] = {
    {"alone", .replicas = {1}, .buckets = 3, .micro_batches = 1},
    {"alone tied", .replicas = {1}, .buckets = 3, .micro_batches = 2, .is_tied = true},
    {"data parallel", .replicas = {4}, .buckets = 3, .micro_batches = 4},
    {"data parallel accumulating", .replicas = {2}, .buckets = 3, .micro_batches = 6,
     .compression.kind = TY_COMPRESSION_FP16},
    {"data parallel top-k", .replicas = {3}, .buckets = 3, .micro_batches = 3,
     .compression = {TY_COMPRESSION_TOP_K, .ratio = 0.25}, .is_tied = true},
    {"data parallel rows", .replicas = {2}, .buckets = 3, .micro_batches = 2,
     .compression.kind = TY_COMPRESSION_ROWS},
    {"data parallel one-bit", .replicas = {3}, .buckets = 3, .micro_batches = 3,
     .compression.kind = TY_COMPRESSION_ONE_BIT},
    {"data parallel powersgd", .replicas = {2}, .buckets = 3, .micro_batches = 2,
     .compression.kind = TY_COMPRESSION_POWERSGD, .is_tied = true},
    {"pipeline", .replicas = {1, 1}, .cuts = {2}, .buckets = 2, .stage_buckets = {1},
     .micro_batches = 2},
    {"pipeline of four", .replicas = {1, 1, 1, 1}, .cuts = {1, 3, 5}, .buckets = 1,
     .micro_batches = 4},
    {"pipeline recomputed", .replicas = {1, 1}, .cuts = {3}, .buckets = 2, .micro_batches = 3,
     .recompute = TY_RECOMPUTE_FULL},
    {"pipeline tied", .replicas = {1, 1}, .cuts = {3}, .buckets = 2, .micro_batches = 2,
     .is_tied = true},
    {"pipeline tied inside", .replicas = {1, 2, 1}, .cuts = {1, 5}, .buckets = 1,
     .stage_buckets = {1, 2}, .micro_batches = 4, .is_tied = true},
    {"hybrid", .replicas = {2, 1}, .cuts = {2}, .buckets = 2, .stage_buckets = {1},
     .micro_batches = 4},
    {"hybrid up", .replicas = {1, 3}, .cuts = {2}, .buckets = 2, .stage_buckets = {1},
     .micro_batches = 6, .compression.kind = TY_COMPRESSION_FP16},
    {"hybrid tied", .replicas = {3, 2}, .cuts = {3}, .buckets = 2, .micro_batches = 12,
     .compression = {TY_COMPRESSION_TOP_K, .ratio = 0.25}, .recompute = TY_RECOMPUTE_FULL,
     .is_tied = true},
};
const size_t toy_spec_count = sizeof toy_specs / sizeof toy_specs[0];

static ty_layer *add_layer(ty_workload *w, const char *name, ty_layer_kind kind, uint64_t features)
{
    ty_layer *layer = &w->layers[w->layer_count];
    layer->name = ty_strdup(name);
    layer->kind = kind;
    layer->tied_to = TY_NO_LAYER;
    layer->input_count = w->layer_count > 0;
    layer->inputs = ty_alloc(1, sizeof(uint32_t));
    layer->inputs[0] = w->layer_count - 1;
    layer->output = (ty_shape){2, {3, features}};
    layer->output_bytes = 3 * 4 * features;
    layer->stash_bytes = layer->output_bytes;
    layer->forward_flop = 100;
    layer->backward_flop = 200;
    w->layer_count++;
    return layer;
}

static void add_linear(ty_workload *w, const char *name, uint64_t out, bool has_bias)
{
    ty_layer *layer = add_layer(w, name, TY_LAYER_LINEAR, out);
    layer->attributes[TY_IN_FEATURES] = 4;
    layer->attributes[TY_OUT_FEATURES] = out;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    layer->parameter_bytes = (4 * out + (has_bias ? out : 0)) * 4;
}

ty_workload *toy_workload(bool is_tied)
{
    ty_workload *w = ty_alloc(1, sizeof *w);
    ty_layer *layer;

    w->name = ty_strdup(is_tied ? "toy tied" : "toy");
    w->source = ty_strdup("made by hand");
    w->dataset = ty_strdup("synthetic");
    w->element_bytes = 4;
    w->input_kind = TY_INPUT_TOKEN;
    w->input = (ty_shape){1, {3}};
    w->sample_bytes = 24;
    w->tokens_per_sample = 3;
    w->global_batch = 8;
    w->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    w->layers = ty_alloc(6, sizeof *w->layers);
    layer = add_layer(w, "embed", TY_LAYER_EMBEDDING, 4);
    layer->attributes[TY_VOCABULARY] = 8;
    layer->attributes[TY_FEATURES] = 4;
    layer->attributes[TY_POSITIONS] = 3;
    layer->parameter_bytes = (8 * 4 + 3 * 4) * 4;
    add_linear(w, "down", 4, true);
    add_layer(w, "relu", TY_LAYER_RELU, 4);
    add_linear(w, "up", 4, true);
    add_linear(w, "head", 8, false);
    layer = add_layer(w, "loss", TY_LAYER_SOFTMAX_CROSS_ENTROPY, 8);
    layer->attributes[TY_CLASSES] = 8;
    layer->output = (ty_shape){1, {1}};
    layer->output_bytes = 4;
    if (is_tied) {
        w->layers[3].tied_to = 1;
        w->layers[3].parameter_bytes = 16;
        w->layers[4].tied_to = 0;
        w->layers[4].parameter_bytes = 0;
    }
    cr_assert_eq(ty_workload_check(w, "toy", NULL), TY_OK);
    cr_assert_eq(ty_workload_index_make(w, NULL), TY_OK);
    return w;
}

ty_plan *toy_plan(const plan_shape *shape)
{
    plan_shape of_toy = *shape;
    uint32_t devices = 0;
    ty_plan *plan;

    for (uint32_t s = 0; s < MOST_SHAPE_STAGES; s++)
        devices += shape->replicas[s];
    devices = devices > TOY_DEVICES ? devices : TOY_DEVICES;
    of_toy.cluster = "toy cluster";
    plan = plan_of(toy_workload(shape->is_tied), host_of(devices), &of_toy);
    plan->seed = 1;
    for (uint32_t s = 0; s < plan->stage_count; s++)
        for (uint32_t q = 0; q < plan->stages[s].replicas; q++)
            plan->stages[s].devices[q] = devices - 1 - plan->stages[s].devices[q];
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        plan->buckets[b].algorithm = b % 2 == 0 ? TY_RING : TY_TREE;
    cr_assert_eq(ty_plan_check(plan, "toy", NULL), TY_OK);
    return plan;
}

ty_plan *toy_plan_named(const char *name)
{
    for (size_t i = 0; i < toy_spec_count; i++)
        if (strcmp(toy_specs[i].name, name) == 0)
            return toy_plan(&toy_specs[i]);
    cr_assert_fail("no toy plan is called %s", name);
    return NULL;
}

/* ---- Programs ------------------------------------------------------------------------------ */

static uint32_t append(ty_program *program, uint32_t stage, ty_instruction in, uint32_t wait_1,
                       uint32_t wait_2)
{
    uint32_t waits[] = {wait_1, wait_2}, index = 0;
    cr_assert_eq(ty_program_append(program, stage, &in, waits, 2, &index, NULL), TY_OK);
    return index;
}

static ty_instruction pass(ty_op op, const ty_plan_stage *stage, uint32_t micro_batch)
{
    ty_instruction in = ty_instruction_of(op);
    in.first_layer = stage->first_layer;
    in.layer_count = stage->layer_count;
    in.micro_batch = micro_batch;
    return in;
}

static ty_instruction transfer(const ty_plan *plan, ty_op op, uint32_t stage,
                               ty_direction direction, uint32_t micro_batch)
{
    ty_instruction in = ty_instruction_of(op);
    bool goes_up = (op == TY_OP_SEND) == (direction == TY_ACTIVATION);
    uint32_t later = goes_up ? stage + 1 : stage;
    in.direction = direction;
    in.micro_batch = micro_batch;
    in.peer_stage = goes_up ? stage + 1 : stage - 1;
    in.bytes = ty_plan_transfer_bytes(plan, later, direction);
    return in;
}

static void append_forward(ty_program *program, const ty_plan *plan, uint32_t s, uint32_t m)
{
    uint32_t load = TY_NO_INSTRUCTION, receive = TY_NO_INSTRUCTION, forward;

    if (s == 0 || s + 1 == plan->stage_count) {
        ty_instruction in = ty_instruction_of(TY_OP_LOAD);
        in.micro_batch = m;
        in.bytes = plan->stage_count == 1 ? 48 : 24;
        load = append(program, s, in, TY_NO_INSTRUCTION, TY_NO_INSTRUCTION);
    }
    if (s > 0)
        receive = append(program, s, transfer(plan, TY_OP_RECEIVE, s, TY_ACTIVATION, m),
                         TY_NO_INSTRUCTION, TY_NO_INSTRUCTION);
    forward = append(program, s, pass(TY_OP_FORWARD, &plan->stages[s], m), load, receive);
    if (s + 1 < plan->stage_count)
        append(program, s, transfer(plan, TY_OP_SEND, s, TY_ACTIVATION, m), forward,
               TY_NO_INSTRUCTION);
}

static uint32_t append_backward(ty_program *program, const ty_plan *plan, uint32_t s, uint32_t m)
{
    uint32_t receive = TY_NO_INSTRUCTION, backward;

    if (s + 1 < plan->stage_count)
        receive = append(program, s, transfer(plan, TY_OP_RECEIVE, s, TY_GRADIENT, m),
                         TY_NO_INSTRUCTION, TY_NO_INSTRUCTION);
    if (plan->stages[s].recompute == TY_RECOMPUTE_FULL)
        append(program, s, pass(TY_OP_RECOMPUTE, &plan->stages[s], m), TY_NO_INSTRUCTION,
               TY_NO_INSTRUCTION);
    backward =
        append(program, s, pass(TY_OP_BACKWARD, &plan->stages[s], m), receive, TY_NO_INSTRUCTION);
    if (s > 0)
        append(program, s, transfer(plan, TY_OP_SEND, s, TY_GRADIENT, m), backward,
               TY_NO_INSTRUCTION);
    return backward;
}

static void append_bucket(ty_program *program, const ty_plan *plan, uint32_t s, uint32_t b,
                          uint32_t after)
{
    static const ty_op chain[] = {TY_OP_ENCODE,     TY_OP_COLLECTIVE, TY_OP_ENCODE,
                                  TY_OP_COLLECTIVE, TY_OP_DECODE,     TY_OP_UPDATE};
    const ty_bucket *bucket = &plan->buckets[b];
    bool is_exchanged = ty_bucket_member_count(plan, bucket) > 1;

    for (size_t i = is_exchanged ? 0 : 5; i < 6; i++) {
        ty_instruction in = ty_instruction_of(chain[i]);
        const bool is_codec = in.op == TY_OP_ENCODE || in.op == TY_OP_DECODE;
        if ((i == 2 || i == 3) && ty_compression_phases(&bucket->compression) == 1)
            continue;
        in.phase = i == 2 || i == 3;
        if (bucket->compression.kind == TY_COMPRESSION_NONE && is_codec)
            continue;
        in.first_layer = bucket->first_layer;
        in.layer_count = bucket->layer_count;
        in.bucket = b;
        in.bytes = in.op == TY_OP_COLLECTIVE ? ty_bucket_wire_bytes(plan, bucket, in.phase)
                   : is_codec                ? bucket->gradient_bytes
                                             : 0;
        after = append(program, s, in, after, TY_NO_INSTRUCTION);
    }
}

ty_program *toy_program(const ty_plan *plan)
{
    ty_program *program;

    cr_assert_eq(ty_program_new(plan, &program, NULL), TY_OK);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t count = plan->micro_batches / plan->stages[s].replicas, last = 0;
        for (uint32_t m = 0; m < count; m++)
            append_forward(program, plan, s, m);
        for (uint32_t m = count; m-- > 0;)
            last = append_backward(program, plan, s, m);
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            if (plan->buckets[b].stage == s || plan->buckets[b].tied_stage == s)
                append_bucket(program, plan, s, b, last);
    }
    return program;
}

void toy_event(ty_timeline *timeline, uint32_t step, uint32_t stage_replica, uint32_t instruction,
               double start_s, double end_s)
{
    ty_event event = {stage_replica, step, instruction, start_s, end_s};
    cr_assert_eq(ty_timeline_add(timeline, &event), TY_OK);
}

/* ---- Text ---------------------------------------------------------------------------------- */

static char *take(ty_text *text)
{
    char *json;
    ty_error error = {0};
    cr_assert_eq(ty_text_take(text, &json, &error), TY_OK, "%s", error.message);
    return json;
}

char *toy_plan_json(const ty_plan *plan)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_plan_to_json(plan, &writer, NULL);
    return take(&text);
}

char *toy_program_json(const ty_program *program)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_program_to_json(program, &writer, NULL);
    return take(&text);
}

char *toy_timeline_json(const ty_timeline *timeline)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_timeline_to_json(timeline, &writer, NULL);
    return take(&text);
}

char *toy_replace(const char *text, const char *old, const char *new)
{
    ty_text out = {0};
    const char *at = strstr(text, old);

    cr_assert_not_null(at, "nothing to replace: %s", old);
    ty_text_append(&out, text, (size_t)(at - text));
    ty_text_add(&out, new);
    ty_text_add(&out, at + strlen(old));
    return take(&out);
}

const char *toy_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "/tmp/trainyard-%ld-%s", (long)getpid(), name);
    return path;
}

void toy_write(const char *path, const char *text)
{
    cr_assert_eq(ty_file_write(path, text, strlen(text), NULL), TY_OK);
}

char *toy_read(const char *path)
{
    char *bytes;
    size_t length;
    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, NULL), TY_OK);
    return bytes;
}
