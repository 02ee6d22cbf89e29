/* ty_stage_memory against rows computed by hand. */
#include "../pin.h"
#include "memory/memory.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ty_workload *finish(ty_builder *b)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    return w;
}

/* linear 4 -> 3, relu | linear 3 -> 2, loss. Bytes of parameters: 60 and 32. Outputs: 12, in place,
 * 8, 4; the loss stores 4 more. */
static ty_workload *small_network(void)
{
    ty_builder *b = ty_builder_new("small", TY_INPUT_REAL, &(ty_shape){1, {4}});
    uint32_t x = ty_builder_linear(b, TY_BATCH, 3, true);
    x = ty_builder_relu(b, x);
    x = ty_builder_linear(b, x, 2, true);
    ty_builder_loss(b, x);
    return finish(b);
}

/* Stages and their programs: "FFBB" is two forwards, then two backwards. */
typedef struct setting {
    ty_plan plan;
    ty_plan_stage stages[2];
    uint32_t devices[8];
    ty_bucket buckets[2];
    ty_program program;
    ty_stage_program stage_programs[2];
    ty_instruction instructions[2][16];
} setting;

static void set_stage(setting *s, uint32_t stage, uint32_t first, uint32_t count, uint32_t replicas,
                      const char *passes)
{
    s->stages[stage] = (ty_plan_stage){
        .first_layer = first, .layer_count = count, .replicas = replicas, .devices = s->devices};
    for (uint32_t i = 0; passes[i] != '\0'; i++) {
        s->instructions[stage][i] =
            (ty_instruction){.op = passes[i] == 'F' ? TY_OP_FORWARD : TY_OP_BACKWARD,
                             .stage = stage,
                             .first_layer = first,
                             .layer_count = count,
                             .bucket = TY_NO_BUCKET,
                             .peer_stage = TY_NO_STAGE};
        s->stage_programs[stage].instruction_count = i + 1;
    }
    s->stage_programs[stage].instructions = s->instructions[stage];
    s->plan.stage_count = s->program.stage_count = stage + 1;
}

static setting *new_setting(ty_workload *w)
{
    setting *s = calloc(1, sizeof *s);
    s->plan.workload = w;
    cr_assert_eq(ty_stack_open(TY_WORKER_STACK, &s->plan.stack, NULL), TY_OK);
    s->plan.micro_batch_size = 5;
    s->plan.optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD, .momentum = 0.9};
    s->plan.stages = s->stages;
    s->plan.buckets = s->buckets;
    s->program.stages = s->stage_programs;
    return s;
}

static void free_setting(setting *s)
{
    ty_workload_free(s->plan.workload);
    ty_stack_free(s->plan.stack);
    free(s);
}

static void check(const setting *s, uint32_t stage, const char *name, const ty_memory_use *expected)
{
    ty_memory_use found;
    ty_error error = {0};
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, stage, &found, &error), TY_OK, "%s: %s",
                 name, error.message);
    const struct {
        const char *row;
        uint64_t found, expected;
    } rows[] = {
        {"parameters", found.parameter_bytes, expected->parameter_bytes},
        {"gradients", found.gradient_bytes, expected->gradient_bytes},
        {"optimizer", found.optimizer_bytes, expected->optimizer_bytes},
        {"activations", found.activation_bytes, expected->activation_bytes},
        {"communication", found.communication_bytes, expected->communication_bytes},
        {"compression", found.compression_bytes, expected->compression_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_assert_eq(rows[i].found, rows[i].expected, "%s: %s %llu, not %llu", name, rows[i].row,
                     (unsigned long long)rows[i].found, (unsigned long long)rows[i].expected);
    cr_assert_gt(found.workspace_bytes, 0);
}

/* Two micro-batches in flight on the first stage, one on the second; five samples each. */
Test(memory, pipeline)
{
    setting *s = new_setting(small_network());
    set_stage(s, 0, 0, 2, 1, "FFBB");
    set_stage(s, 1, 2, 2, 1, "FBFB");
    /* Two slots: input 16 as it arrives and as it is read, and activations 12. One set of gradients
     * 12. For send/recv 12 per slot and two more. */
    check(s, 0, "first stage",
          &(ty_memory_use){.parameter_bytes = 60,
                           .gradient_bytes = 60,
                           .optimizer_bytes = 60,
                           .activation_bytes = 5 * (2 * (2 * 16 + 12) + 12),
                           .communication_bytes = 5 * (2 + 2) * 12});
    /* One slot: input 12 and activations 8 + 8. The scores' buffer becomes their gradient; the
     * gradient of the loss takes 4, its stored data 4. */
    check(s, 1, "second stage",
          &(ty_memory_use){.parameter_bytes = 32,
                           .gradient_bytes = 32,
                           .optimizer_bytes = 32,
                           .activation_bytes = 5 * ((12 + 16) + 8),
                           .communication_bytes = 5 * (1 + 2) * 12});
    s->plan.staleness = 2; /* one set in use and two in flight */
    check(s, 1, "late gradients",
          &(ty_memory_use){.parameter_bytes = 32,
                           .gradient_bytes = 3 * 32,
                           .optimizer_bytes = 32,
                           .activation_bytes = 5 * ((12 + 16) + 8),
                           .communication_bytes = 5 * (1 + 2) * 12});
    s->plan.staleness = 0;
    s->stages[0].recompute = TY_RECOMPUTE_FULL;
    /* The only output is sent, so it is in the send slots. In addition: its gradient, and the
     * input. */
    check(s, 0, "recomputing",
          &(ty_memory_use){.parameter_bytes = 60,
                           .gradient_bytes = 60,
                           .optimizer_bytes = 60,
                           .activation_bytes = 5 * (2 * (16 + 12) + 12 + 16),
                           .communication_bytes = 5 * (2 + 2) * 12});
    s->plan.workload->layers[0].is_frozen = true;
    s->stages[0].recompute = TY_RECOMPUTE_NONE;
    /* The first stage has no trained layer: inputs and output of each slot, no gradients sent or
     * received. */
    check(s, 0, "frozen",
          &(ty_memory_use){.parameter_bytes = 60,
                           .activation_bytes = 5 * (2 * (2 * 16 + 12)),
                           .communication_bytes = 5 * 2 * 12});
    /* The next stage sends no gradient back: two buffers for its received data. */
    check(s, 1, "behind frozen layers",
          &(ty_memory_use){.parameter_bytes = 32,
                           .gradient_bytes = 32,
                           .optimizer_bytes = 32,
                           .activation_bytes = 5 * ((12 + 16) + 8),
                           .communication_bytes = 5 * 2 * 12});
    free_setting(s);
}

/* One stage whose first two layers are frozen: of their 12 + 0 bytes of output, a trained layer
 * reads the rectified 12, which are stored in each of two slots. Only the last two layers have
 * gradients. */
Test(memory, frozen_prefix)
{
    setting *s = new_setting(small_network());
    s->plan.workload->layers[0].is_frozen = true;
    set_stage(s, 0, 0, 4, 1, "FFBB");
    check(s, 0, "prefix",
          &(ty_memory_use){.parameter_bytes = 92,
                           .gradient_bytes = 32,
                           .optimizer_bytes = 32,
                           .activation_bytes = 5 * (2 * (2 * 16 + 12 + 16) + 8)});
    /* All layers frozen: no backward pass, so nothing is stored for one. */
    s->plan.workload->layers[2].is_frozen = true;
    check(s, 0, "all",
          &(ty_memory_use){.parameter_bytes = 92, .activation_bytes = 5 * (2 * 2 * 16 + 28)});
    free_setting(s);
}

/* ---- Workspace of cuDNN ---- */

typedef struct convolution_row {
    const char *name;
    ty_precision precision;
    uint64_t in_channels, out_channels, size, kernel, stride, groups;
    bool reads_samples;
    uint64_t expected; /* without libraries: cuDNN's workspace, and a copy of the filters */
} convolution_row;

/* A convolution whose output has the size of its input, except for the stride. */
static ty_workload *one_convolution(const convolution_row *row)
{
    const uint64_t padding = row->kernel / 2;
    const ty_window window = {row->kernel, row->kernel, row->stride, padding, padding};
    ty_builder *b = ty_builder_new("convolution", TY_INPUT_REAL,
                                   &(ty_shape){3, {row->in_channels, row->size, row->size}});
    const uint32_t x = row->reads_samples ? TY_BATCH : ty_builder_relu(b, TY_BATCH);

    ty_builder_conv2d(b, x, row->out_channels, &window, row->groups, false);
    return finish(b);
}

/* Five samples on an accelerator. */
Test(memory, room_that_convolutions_work_in)
{
    enum { LIBRARIES = 64 << 20, MOST_SUMS = 40 << 20, PARTS = 128 };
    static const convolution_row rows[] = {
        /* Planes of 32 + 64 channels; filters of one pixel need no reordering. */
        {"fp32", TY_PRECISION_FP32, 32, 64, 20, 1, 1, 1, false, 5 * 96 * 400 * 4 + 2048 * 4},
        {"fp32, a stride", TY_PRECISION_FP32, 32, 64, 20, 3, 2, 1, false,
         5 * (32 * 400 + 64 * 100) * 4 + 2 * 18432 * 4},
        /* Twice 9 numbers of a filter, and 16 of a tile. */
        {"fp32, 3 x 3", TY_PRECISION_FP32, 32, 64, 20, 3, 1, 1, false,
         5 * 96 * 400 * 4 + 2048 * 34 * 4 + 18432 * 4},
        {"fp32, tiles beyond the limit", TY_PRECISION_FP32, 2048, 2048, 2, 3, 1, 1, false,
         UINT64_C(5) * 4096 * 4 * 4 + UINT64_C(2) * 2048 * 2048 * 9 * 4},
        {"fp32, half of 16 groups", TY_PRECISION_FP32, 32, 64, 20, 3, 1, 16, false,
         5 * 48 * 400 * 4 + 128 * 34 * 4 + 1152 * 4},
        {"fp32, channel by channel", TY_PRECISION_FP32, 32, 32, 20, 3, 1, 32, false, 288 * 4},
        {"fp32, samples", TY_PRECISION_FP32, 3, 64, 20, 3, 1, 1, true, 1728 * 4},
        {"fp32, samples of many channels", TY_PRECISION_FP32, 32, 64, 20, 1, 1, 1, true,
         5 * 96 * 400 * 4 + 2048 * 4},
        /* Three channels become four. */
        {"TF32, samples", TY_PRECISION_TF32, 3, 64, 20, 3, 1, 1, true,
         5 * 68 * 400 * 4 + 2304 * 4 * PARTS + 2 * 1728 * 4},
        /* Two copies need 252 and 126 MB; the limit allows only one. */
        {"TF32, images beyond the limit", TY_PRECISION_TF32, 16, 8, 888, 1, 1, 1, false,
         UINT64_C(5) * 16 * 888 * 888 * 4 + 128 * 4 * PARTS + 2 * 128 * 4},
        {"TF32, samples beyond the limit", TY_PRECISION_TF32, 8, 16, 888, 1, 1, 1, true,
         UINT64_C(5) * 8 * 888 * 888 * 4 + 128 * 4 * PARTS + 2 * 128 * 4},
        {"TF32, at the limit", TY_PRECISION_TF32, 1024, 1024, 80, 1, 1, 1, false,
         (UINT64_C(256) << 20) + 1024 * 1024 * 4},
        {"bf16", TY_PRECISION_BF16, 32, 64, 20, 3, 1, 1, false, 18432 * 4 * PARTS + 18432 * 2},
        {"bf16, large filters", TY_PRECISION_BF16, 256, 256, 20, 3, 1, 1, false,
         MOST_SUMS + 256 * 256 * 9 * 2},
        /* Three channels become eight. */
        {"fp16, samples", TY_PRECISION_FP16, 3, 64, 20, 3, 1, 1, true,
         5 * 8 * 400 * 2 + 4608 * 4 * PARTS + 1728 * 2},
        {"fp16, one channel is made", TY_PRECISION_FP16, 64, 1, 20, 1, 1, 1, false,
         5 * 8 * 400 * 2 + 512 * 4 * PARTS + 64 * 2},
        {"bf16, two groups", TY_PRECISION_BF16, 32, 64, 20, 1, 1, 2, false,
         5 * 96 * 400 * 2 + 1024 * 4 * PARTS + 1024 * 2},
        {"bf16, 16 groups", TY_PRECISION_BF16, 64, 64, 20, 1, 1, 16, false,
         256 * 4 * PARTS + 256 * 2},
        {"bf16, channel by channel", TY_PRECISION_BF16, 32, 32, 20, 3, 1, 32, false,
         32 * 4 * 9 * 4 * PARTS + 288 * 2},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = one_convolution(&rows[i]);
        setting *s = new_setting(w);
        /* Two batches of five samples wait as floats. */
        const uint64_t waiting =
            UINT64_C(2) * 5 * rows[i].in_channels * rows[i].size * rows[i].size * 4;
        ty_memory_use found;
        ty_error error = {0};

        ty_workload_set_precision(w, rows[i].precision);
        set_stage(s, 0, 0, w->layer_count, 1, "FB");
        cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &found, &error), TY_OK, "%s: %s",
                     rows[i].name, error.message);
        cr_expect_eq(found.workspace_bytes, LIBRARIES + waiting + rows[i].expected,
                     "%s: %llu bytes beside libraries and batches, not %llu", rows[i].name,
                     (unsigned long long)(found.workspace_bytes - LIBRARIES - waiting),
                     (unsigned long long)rows[i].expected);
        free_setting(s);
    }
}

/* The layers of a stage share the workspace of the largest one; each stage has its own. It is
 * unknown for devices older than Ampere. */
Test(memory, room_that_layers_of_a_stage_share)
{
    enum { LIBRARIES = 64 << 20, IMAGES = 64, WAITING = 2 * IMAGES * 3 * 224 * 224 * 4 };
    static const char *const clusters[] = {"1x dgx-a100", "1x p100-server"};
    const uint64_t largest = UINT64_C(4) * IMAGES * (256 * 56 * 56 + 512 * 28 * 28);
    const uint64_t last = UINT64_C(4) * IMAGES * (512 + 2048) * 7 * 7;
    ty_workload *w = NULL;
    ty_memory_use found;
    uint32_t end;
    setting *s;

    cr_assert_eq(ty_workload_open("resnet50", &w, NULL), TY_OK);
    s = new_setting(w);
    s->plan.micro_batch_size = IMAGES;
    set_stage(s, 0, 0, w->layer_count, 1, "FB");
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &found, NULL), TY_OK);
    cr_expect_eq(found.workspace_bytes, LIBRARIES + WAITING + largest + 256 * 512 * 4);
    end = w->layer_count;
    while (w->layers[end - 1].kind != TY_LAYER_CONV2D)
        end--;
    set_stage(s, 0, 0, end - 1, 1, "FB");
    set_stage(s, 1, end - 1, w->layer_count - end + 1, 1, "FB");
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 1, &found, NULL), TY_OK);
    cr_expect_eq(found.workspace_bytes, LIBRARIES + last + 512 * 2048 * 4);
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        cr_assert_eq(ty_cluster_open(clusters[i], NULL, &s->plan.cluster, NULL), TY_OK);
        cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 1, &found, NULL), TY_OK);
        cr_expect_eq(found.workspace_bytes, LIBRARIES + (i == 0 ? last + 512 * 2048 * 4 : 0));
        ty_cluster_free(s->plan.cluster);
    }
    free_setting(s);
}

/* ---- Recomputing, buckets ---- */

/* Recomputation pays if inner tensors are large compared with the boundaries. */
Test(memory, recompute_saves_on_real_networks)
{
    setting *s;
    ty_workload *w = NULL;
    ty_memory_use kept, recomputed;

    cr_assert_eq(ty_workload_open("gpt-tiny", &w, NULL), TY_OK);
    s = new_setting(w);
    set_stage(s, 0, 0, w->layer_count, 1, "FFFFBBBB");
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &kept, NULL), TY_OK);
    s->stages[0].recompute = TY_RECOMPUTE_FULL;
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &recomputed, NULL), TY_OK);
    cr_assert_lt(2 * recomputed.activation_bytes, kept.activation_bytes);
    cr_assert_eq(kept.parameter_bytes, 4 * 3257856);
    free_setting(s);
}

/* All 23 parameters in one bucket: 92 bytes, as halves 46, two of them as value and index 16. */
Test(memory, buckets_and_compression)
{
    static const struct {
        const char *name;
        uint32_t replicas;
        ty_algorithm algorithm;
        ty_compression_kind compression;
        double ratio;
        uint64_t communication, compressed;
    } rows[] = {
        {"alone", 1, TY_RING, TY_COMPRESSION_NONE, 0, 0, 0},
        {"ring of two", 2, TY_RING, TY_COMPRESSION_NONE, 0, 92, 0},
        {"ring of four", 4, TY_RING, TY_COMPRESSION_NONE, 0, 46, 0},
        {"tree", 4, TY_TREE, TY_COMPRESSION_NONE, 0, 92, 0},
        {"halves", 4, TY_TREE, TY_COMPRESSION_FP16, 0, 46, 46},
        {"top-k", 4, TY_RING, TY_COMPRESSION_TOP_K, 0.1, 0, 2 * 92 + 4 * 16},
        {"top-k alone", 1, TY_RING, TY_COMPRESSION_TOP_K, 0.1, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setting *s = new_setting(small_network());
        set_stage(s, 0, 0, 4, rows[i].replicas, "FB");
        s->plan.bucket_count = 1;
        s->buckets[0] = (ty_bucket){.layer_count = 4,
                                    .tied_stage = TY_NO_STAGE,
                                    .gradient_bytes = 92,
                                    .algorithm = rows[i].algorithm,
                                    .compression.kind = rows[i].compression,
                                    .compression.ratio = rows[i].ratio};
        check(s, 0, rows[i].name,
              &(ty_memory_use){.parameter_bytes = 92,
                               .gradient_bytes = 92,
                               .optimizer_bytes = 92,
                               .activation_bytes = 5 * (2 * 16 + 28 + 20),
                               .communication_bytes = rows[i].communication,
                               .compression_bytes = rows[i].compressed});
        free_setting(s);
    }
}

/* An embedding of 5 x 4 and an output layer that shares it, on two stages: both store it, with
 * AdamW's two moments per parameter. */
Test(memory, tied_copy)
{
    ty_builder *b = ty_builder_new("tied", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    uint32_t x = ty_builder_embedding(b, TY_BATCH, 5, 4, 0);
    setting *s;

    ty_builder_loss(b, ty_builder_tied_linear(b, x, x));
    s = new_setting(finish(b));
    s->plan.optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_ADAMW};
    set_stage(s, 0, 0, 1, 1, "FB");
    set_stage(s, 1, 1, 2, 1, "FB");
    s->plan.bucket_count = 1;
    s->buckets[0] = (ty_bucket){.layer_count = 1, .tied_stage = 1, .gradient_bytes = 80};
    check(s, 0, "owner",
          &(ty_memory_use){.parameter_bytes = 80,
                           .gradient_bytes = 80,
                           .optimizer_bytes = 160,
                           .activation_bytes = 5 * (12 + 48 + 48),
                           .communication_bytes = 5 * 3 * 48 + 80});
    check(s, 1, "user",
          &(ty_memory_use){.parameter_bytes = 80,
                           .gradient_bytes = 80,
                           .optimizer_bytes = 160,
                           .activation_bytes = 5 * (48 + 60 + 16 + 4 + 12),
                           .communication_bytes = 5 * 3 * 48 + 80});
    free_setting(s);
}

/* An embedding of 50 x 64, a matrix of 128 x 64 with a bias, and an output layer of 50 x 128.
 * States by hand: Adam 8 bytes per parameter; in 8 bits 2 and two scales of 4 bytes per block of
 * 256, from 4096 entries on; Adafactor rows and columns; Muon 4 bytes for the one hidden matrix,
 * Adam for all else. */
Test(memory, states_of_optimizers)
{
    static const struct {
        const char *word;
        double bytes, flop;
    } rows[] = {
        {"sgd", 0, 0},
        {"momentum", 4 * 17920, 0},
        {"adam", 8 * 17920, 0},
        {"adam8bit", 8 * 3200 + 2 * (8192 + 4 * 32) + 8 * 128 + 2 * (6400 + 4 * 25), 0},
        {"adafactor", 4 * (50 + 64 + 128 + 64 + 128 + 50 + 128), 0},
        {"muon", 8 * 3200 + 4 * 8192 + 8 * 128 + 8 * 6400,
         5.0 * (4 * 64 * 64 * 128 + 2 * 64 * 64 * 64)},
    };
    ty_builder *b = ty_builder_new("small", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    uint32_t x = ty_builder_embedding(b, TY_BATCH, 50, 64, 0);
    setting *s;

    x = ty_builder_linear(b, x, 128, true);
    ty_builder_loss(b, ty_builder_linear(b, x, 50, false));
    s = new_setting(finish(b));
    set_stage(s, 0, 0, 4, 1, "FB");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_memory_use found;
        ty_optimizer_work work;
        ty_error error = {0};
        cr_assert_eq(ty_optimizer_set(&s->plan.optimizer, rows[i].word, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &found, &error), TY_OK, "%s",
                     error.message);
        work = ty_plan_optimizer_work(&s->plan, 0, 4);
        cr_expect_float_eq((double)found.optimizer_bytes, rows[i].bytes, 1, "%s: %llu",
                           rows[i].word, (unsigned long long)found.optimizer_bytes);
        cr_expect_float_eq(17920 * work.state_bytes, rows[i].bytes, 1e-6, "%s", rows[i].word);
        cr_expect_float_eq(17920 * work.flop, rows[i].flop, 1e-3, "%s", rows[i].word);
    }
    free_setting(s);
}

/* Llama-3-8B in bf16: 8,030,261,248 parameters with a master copy of 4 bytes. Per layer matrices of
 * 4096 x 4096 (2), 1024 x 4096 (2) and 14336 x 4096 (3), and two norms of 4096; an embedding and an
 * output layer of 128256 x 4096, and a norm. Rows and columns together: 90,112 per layer with the
 * norms, 268,800 for the rest; with two tensor-parallel ranks 63,488 and 140,544. */
Test(memory, states_of_llama_3_8b)
{
    static const double parameters = 8030261248.0, tables = 2 * 525336576.0, norms = 65 * 4096.0;
    const struct {
        const char *word;
        uint32_t tensor_parallel;
        double bytes;
    } rows[] = {
        {"sgd", 1, 4 * parameters},
        {"adamw", 1, 12 * parameters},
        {"adam8bit", 1, 4 * parameters + 2 * parameters + 8 * parameters / 256},
        {"adafactor", 1, 4 * parameters + 4 * (32 * 90112.0 + 268800)},
        {"adafactor", 2, 2 * (parameters + norms) + 4 * (32 * 63488.0 + 140544)},
        {"muon", 1, 8 * parameters + 4 * (tables + norms)},
        {"muon", 2, 4 * (parameters + norms) + 4 * (tables / 2 + norms)},
    };
    ty_error error = {0};
    ty_workload *w = NULL;
    setting *s;

    cr_assert_eq(ty_workload_open("llama-3-8b", &w, &error), TY_OK, "%s", error.message);
    ty_workload_set_precision(w, TY_PRECISION_BF16);
    s = new_setting(w);
    set_stage(s, 0, 0, w->layer_count, 1, "FB");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_memory_use found;
        s->plan.tensor_parallel = rows[i].tensor_parallel;
        cr_assert_eq(ty_optimizer_set(&s->plan.optimizer, rows[i].word, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &found, &error), TY_OK, "%s",
                     error.message);
        cr_expect_float_eq((double)found.optimizer_bytes, rows[i].bytes, 16, "%s, tp=%u: %llu",
                           rows[i].word, rows[i].tensor_parallel,
                           (unsigned long long)found.optimizer_bytes);
    }
    free_setting(s);
}

/* The search's bound, summed over the layers of a stage, is below the activations of the stage. */
Test(memory, least_slots_bound_every_stage)
{
    static const char *const networks[] = {"lenet", "resnet18", "gpt-tiny", "t5-small"};
    static const char *const stacks[] = {TY_WORKER_STACK, "megatron-2021"};

    for (size_t i = 0; i < 2 * sizeof networks / sizeof *networks; i++) {
        ty_workload *w = NULL;
        cr_assert_eq(ty_workload_open(networks[i / 2], &w, NULL), TY_OK);
        setting *s = new_setting(w);
        double *bytes = calloc(w->layer_count, sizeof *bytes);
        uint32_t checked = 0;

        ty_stack_free(s->plan.stack);
        cr_assert_eq(ty_stack_open(stacks[i % 2], &s->plan.stack, NULL), TY_OK);
        cr_assert_eq(ty_memory_least_slots(&s->plan, s->devices, bytes, NULL), TY_OK);
        for (uint32_t cut = 1; cut < w->layer_count; cut++) {
            set_stage(s, 0, 0, cut, 1, "FB");
            set_stage(s, 1, cut, w->layer_count - cut, 1, "FB");
            for (uint32_t stage = 0; stage < 2; stage++, checked++) {
                const uint32_t first = s->stages[stage].first_layer;
                ty_memory_use use;
                double least = 0;
                for (uint32_t l = first; l < first + s->stages[stage].layer_count; l++)
                    least += bytes[l] * s->plan.micro_batch_size;
                cr_assert_eq(ty_stage_memory(&s->plan, &s->program, stage, &use, NULL), TY_OK);
                cr_expect_leq(least, (double)use.activation_bytes, "%s by %s, stage %u from %u",
                              w->name, stacks[i % 2], stage, first);
            }
        }
        cr_expect_gt(checked, 0);
        free(bytes);
        free_setting(s);
    }
}

Test(memory, refuses_strange_questions)
{
    setting *s = new_setting(small_network());
    ty_memory_use use = {.parameter_bytes = 7};
    ty_error error = {0};

    set_stage(s, 0, 0, 4, 1, "FB");
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 1, &use, &error), TY_EINVAL);
    cr_assert(strstr(error.message, "found stage 1") != NULL, "%s", error.message);
    cr_assert_eq(use.parameter_bytes, 7);
    free_setting(s);
}

Test(memory, more_than_any_device_has_is_counted_as_a_pebibyte)
{
    setting *s = new_setting(small_network());
    ty_memory_use use;
    ty_error error = {0};

    set_stage(s, 0, 0, 4, 1, "FB");
    s->plan.micro_batch_size = UINT32_MAX;
    s->plan.workload->layers[0].stash_bytes = (uint64_t)1 << 50;
    cr_assert_eq(ty_stage_memory(&s->plan, &s->program, 0, &use, &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(use.activation_bytes, (uint64_t)1 << 50);
    cr_expect_lt(ty_memory_use_total(&use), (uint64_t)1 << 53);
    free_setting(s);
}

/* ---- Activations of a transformer, as published -------------------------------------------- */

static double activations_of(uint32_t blocks, const ty_plan_dimensions *d, uint32_t micro_batch,
                             const char *software, ty_precision precision)
{
    char text[128];
    ty_plan_options options = ty_plan_options_default();
    ty_workload *w = NULL;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_stack *stack = NULL;
    ty_error error = {0};
    double bytes;

    snprintf(text, sizeof text,
             "transformer blocks=%u features=1024 heads=16 hidden_features=4096 vocabulary=512 "
             "sequence=1024 positions=1024",
             blocks);
    cr_assert_eq(ty_workload_open(text, &w, &error), TY_OK, "%s", error.message);
    ty_workload_set_precision(w, precision);
    snprintf(text, sizeof text, "host:1 gpu:%u @b200 nvlink5 hdr200", d->tensor_parallel);
    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_stack_open(software, &stack, &error), TY_OK, "%s", error.message);
    options.stack = stack;
    options.global_batch = micro_batch;
    pin(&options.pins, "pp=1,micro_batch=%u", micro_batch);
    options.pins.axes |= TY_AXES_OF_DIMENSIONS;
    options.pins.dimensions = *d;
    cr_assert_eq(ty_plan_search(w, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    bytes = (double)plan->memory[0].activation_bytes;
    ty_plan_free(plan);
    ty_stack_free(stack);
    ty_cluster_free(cluster);
    ty_workload_free(w);
    return bytes;
}

/* Activation memory per additional layer: Korthikanti et al., "Reducing Activation Recomputation in
 * Large Transformer Models", 2022, table 2, with s = 1024, h = 1024, a = 16. */
Test(memory, of_a_layer_as_korthikanti_have_it)
{
    static const struct {
        ty_plan_dimensions dimensions;
        double by_sbh;
        const char *software;
        ty_precision precision;
    } rows[] = {
        {{.tensor_parallel = 1}, 34 + 5 * 16, "megatron-2021", TY_PRECISION_BF16},
        {{.tensor_parallel = 4}, 10 + 24 / 4.0 + 5 * 16 / 4.0, "megatron-2021", TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .sequence_parallel = true},
         (34 + 5 * 16) / 4.0,
         "megatron-2021",
         TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .recompute = TY_RECOMPUTE_SELECTIVE},
         10 + 24 / 4.0,
         "megatron-2021",
         TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .sequence_parallel = true, .recompute = TY_RECOMPUTE_SELECTIVE},
         34 / 4.0,
         "megatron-2021",
         TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 1},
         2,
         "megatron-2021",
         TY_PRECISION_BF16},
        /* Without dropout masks, and with attention that stores no scores. */
        {{.tensor_parallel = 1}, 34 - 2, "megatron", TY_PRECISION_BF16},
        /* Without the outputs of two norms and of the activation function. */
        {{.tensor_parallel = 1, .recompute = TY_RECOMPUTE_ELEMENTWISE},
         32 - 2 - 2 - 8,
         "maxtext",
         TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .sequence_parallel = true, .recompute = TY_RECOMPUTE_ELEMENTWISE},
         20 / 4.0,
         "maxtext",
         TY_PRECISION_BF16},
        {{.tensor_parallel = 4, .recompute = TY_RECOMPUTE_ELEMENTWISE},
         4 + 16 / 4.0,
         "maxtext",
         TY_PRECISION_BF16},
        /* The layer input, attention's projections and sums, and the first product of the mlp. */
        {{.tensor_parallel = 1, .recompute = TY_RECOMPUTE_OPERATOR},
         2 + 8 + 8,
         "torchtitan",
         TY_PRECISION_BF16},
        /* In low precision: the inputs of matrix products from norms and the activation function,
         * and the input of attention's output projection, in addition to the inputs of attention's
         * backward. */
        {{.tensor_parallel = 1}, 32 - 1 - 1 - 4 + 1, "megatron", TY_PRECISION_FP8},
        {{.tensor_parallel = 1}, 32 - 1.5 - 1.5 - 6 + 0.5, "megatron", TY_PRECISION_FP4},
        {{.tensor_parallel = 4, .sequence_parallel = true}, 27 / 4.0, "megatron", TY_PRECISION_FP8},
        /* Without the outputs of two norms and of the activation function. */
        {{.tensor_parallel = 1, .recompute = TY_RECOMPUTE_ELEMENTWISE},
         27 - 1 - 1 - 4,
         "maxtext",
         TY_PRECISION_FP8},
        {{.tensor_parallel = 1}, 32, "torchtitan", TY_PRECISION_FP8},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t b = 1; b <= 4; b *= 4) {
            const double sbh = 1024.0 * b * 1024;
            const double one =
                activations_of(3, &rows[i].dimensions, b, rows[i].software, rows[i].precision);
            const double more =
                activations_of(5, &rows[i].dimensions, b, rows[i].software, rows[i].precision);
            cr_expect(fabs((more - one) / 2 / (rows[i].by_sbh * sbh) - 1) < 1e-3,
                      "row %zu, %u samples: %g, expected %g times sbh", i, b,
                      (more - one) / 2 / sbh, rows[i].by_sbh);
        }
}
