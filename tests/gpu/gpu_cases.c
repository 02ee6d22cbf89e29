/*
 * The cuda backend against the CPU backend: passes, stages, updates, compressors, whole plans with
 * several virtual ranks on one GPU. A program without a test framework, so that it runs on machines
 * that have nothing but a GPU: `gpu_cases [--quick] [-o FILE] [NAME...]`. One line a case; exit
 * code 1 when one failed, 77 where there is no GPU. The same program runs on the emulator.
 */
#include "../execute/network.h"
#include "../execute/plans.h"
#include "device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

static const ty_device_backend *const cpu = &ty_device_cpu;
static const ty_device_backend *gpu;
static char message[512];
static FILE *results;
static int failures, passes;
static bool is_quick;

static bool wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Networks ---- */

static ty_workload *make_linear(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 5, 7});
    int x = network_simple(w, -1, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 33, true), TY_LAYER_RELU);
    x = network_simple(w, network_linear(w, x, 17, false), TY_LAYER_RELU);
    x = network_simple(w, network_linear(w, x, 20, true), TY_LAYER_GELU);
    x = network_simple(w, network_linear(w, x, 18, true), TY_LAYER_SILU);
    network_loss(w, network_linear(w, x, 10, true));
    return w;
}

static ty_workload *make_conv(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 12, 12});
    int x = network_pool(w, network_conv2d(w, -1, 5, 3, 3, 1, 0, 1, true), 2, 2, 0, false);
    x = network_simple(w, network_conv2d(w, x, 7, 3, 2, 1, 1, 1, true), TY_LAYER_RELU);
    x = network_simple(w, network_pool(w, x, 2, 2, 0, false), TY_LAYER_RELU);
    x = network_simple(w, x, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 11, true), TY_LAYER_RELU);
    network_loss(w, network_linear(w, x, 10, true));
    return w;
}

/* Colour images, groups, strides, padding, overlapping windows, joins, values read twice. */
static ty_workload *make_resnet(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){3, 11, 9});
    int stem = network_simple(w, network_conv2d(w, -1, 18, 3, 3, 2, 1, 1, false), TY_LAYER_RELU);
    int x = network_pool(w, stem, 3, 2, 1, false), y, z;
    y = network_simple(w, network_conv2d(w, x, 18, 3, 3, 1, 1, 3, true), TY_LAYER_RELU);
    y = network_conv2d(w, y, 18, 1, 1, 1, 0, 1, true);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_RELU);
    y = network_conv2d(w, x, 4, 1, 1, 1, 0, 1, true);
    z = network_pool(w, x, 3, 1, 1, true);
    x = network_join(w, TY_LAYER_CONCAT, (int[]){x, y, z}, 3);
    y = network_simple(w, x, TY_LAYER_FLATTEN);
    x = network_simple(w, network_global_pool(w, x), TY_LAYER_FLATTEN);
    x = network_linear(w, x, 10, true);
    y = network_linear(w, y, 10, true);
    network_loss(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2));
    return w;
}

/* Longer than a tile of queries and of keys, and a multiple of neither. */
static ty_workload *make_gpt(void)
{
    return network_make_gpt(2, 24, 3, 70, 31);
}

static ty_workload *make_llama(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){9});
    int x = network_embedding(w, 23, 20, 0), y;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 6, 2, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 30, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, x, 2, 1, 7, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, x, 16, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

typedef struct network {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch, cut; /* cut: first layer of a second stage */
    bool has_pooling;    /* where pixels are all but equal, rounding decides which is the maximum */
} network;

static const network networks[] = {
    {"mlp", make_linear, 5, 5, false},   {"lenet", make_conv, 3, 2, true},
    {"resnet", make_resnet, 2, 2, true}, {"gpt", make_gpt, 2, 7, false},
    {"llama", make_llama, 3, 4, false},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* ---- Numbers and batches ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static float next_float(uint64_t *state)
{
    return (float)(next_random(state) % 20001) * 1e-4f - 1.0f;
}

/* The same batch into a slot of either backend; both keep it in host memory. */
static void batch_fill(const ty_device_backend *b, ty_stage_device *stage, uint32_t slot,
                       const ty_workload *w, uint32_t samples, uint64_t seed)
{
    const ty_shape *scores = ty_layer_input_shape(w, w->layer_count - 1, 0);
    uint64_t classes = scores->dimensions[scores->dimension_count - 1], vocabulary = classes;
    uint64_t inputs = ty_shape_elements(&w->input) * samples;
    uint64_t labels = ty_shape_elements(scores) / classes * samples, state = seed;
    float *input = w->input_kind == TY_INPUT_REAL ? b->input(stage, slot) : NULL;
    int32_t *tokens = b->tokens(stage, slot), *label = b->labels(stage, slot);

    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].kind == TY_LAYER_EMBEDDING)
            vocabulary = w->layers[l].attributes[TY_VOCABULARY];
    for (uint64_t i = 0; i < inputs; i++) {
        if (tokens != NULL)
            tokens[i] = (int32_t)(next_random(&state) % vocabulary);
        else if (input != NULL)
            input[i] = next_float(&state);
    }
    for (uint64_t i = 0; label != NULL && i < labels; i++)
        label[i] = (int32_t)(next_random(&state) % classes);
}

/* ---- Either backend's memory ---- */

static bool device_read(ty_stage_device *stage, const float *from, uint64_t count, float *to)
{
    ty_error error = {0};

    return gpu->memory->read(stage, to, from, count * sizeof *to, &error) == TY_OK ||
           wrong("%s", error.message);
}

static bool device_write(ty_stage_device *stage, float *to, const float *from, uint64_t count)
{
    ty_error error = {0};

    return gpu->memory->write(stage, to, from, count * sizeof *to, &error) == TY_OK ||
           wrong("%s", error.message);
}

/* Largest difference relative to the norm of each layer's slice, and a thousandth of the largest.
 */
static bool is_close(const ty_workload *w, const ty_stage_device *stage, const float *found,
                     const float *expected, double tolerance)
{
    double scale = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t l = 0; l < w->layer_count; l++) {
            uint64_t offset, count;
            double difference = 0, norm = 0;
            cpu->slice(stage, l, 1, &offset, &count);
            for (uint64_t i = offset; i < offset + count; i++) {
                difference += pow((double)found[i] - (double)expected[i], 2);
                norm += pow((double)expected[i], 2);
            }
            difference = sqrt(difference);
            norm = sqrt(norm);
            if (pass == 0)
                scale = fmax(scale, norm);
            else if (!(difference <= tolerance * (norm + 1e-2 * scale)))
                return wrong("gradients of %s differ by %g of %g, expected at most %g",
                             w->layers[l].name, difference, norm,
                             tolerance * (norm + 1e-2 * scale));
        }
    return scale > 0 || wrong("all gradients are 0");
}

/* ---- Passes ---- */

typedef struct precision_case {
    ty_precision precision;
    double tolerance;
} precision_case;

/* fp32: sums in another order. tf32 and fp16 round products' operands to 11 bits, bf16 to 8, in
 * each of up to 13 layers; measured against fp32 on the CPU. */
static const precision_case precisions[] = {{TY_PRECISION_FP32, 2e-5},
                                            {TY_PRECISION_TF32, 1e-2},
                                            {TY_PRECISION_BF16, 1e-1},
                                            {TY_PRECISION_FP16, 2e-2}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };
static const double pooling_tolerance = 0.3; /* under any precision but fp32 */

static ty_stage_options options_of(const ty_workload *w, uint32_t batch, ty_precision precision)
{
    return (ty_stage_options){.workload = w,
                              .layer_count = w->layer_count,
                              .micro_batch_size = batch,
                              .slots = 2,
                              .loss_scale = 1.0 / (2 * batch),
                              .seed = 7,
                              .tied_layer = TY_NO_LAYER,
                              .precision = precision};
}

static bool stage_open(const ty_device_backend *b, const ty_stage_options *o, ty_stage_device **out)
{
    ty_error error = {0};

    return b->open(o, out, &error) == TY_OK || wrong("%s: %s", b->name, error.message);
}

/* Two micro-batches, both forward before the first backward, as a pipeline has it. */
static bool two_passes(const ty_device_backend *b, ty_stage_device *stage,
                       const ty_stage_options *o, bool recomputes)
{
    uint32_t layers = o->layer_count;
    ty_error error = {0};
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < 2 && status == TY_OK; s++) {
        batch_fill(b, stage, s, o->workload, o->micro_batch_size, 11 + s);
        status = b->forward(stage, s, 0, layers, &error);
    }
    for (uint32_t s = 0; s < 2 && status == TY_OK; s++) {
        if (recomputes)
            status = b->recompute(stage, s, &error);
        for (uint32_t l = layers; l-- > 0 && recomputes && status == TY_OK;)
            status = b->backward(stage, s, l, 1, s == 0, &error);
        if (!recomputes)
            status = b->backward(stage, s, 0, layers, s == 0, &error);
    }
    return status == TY_OK || wrong("%s: %s", b->name, error.message);
}

static bool losses_compare(ty_stage_device *one, ty_stage_device *other, ty_precision precision)
{
    for (uint32_t s = 0; s < 2; s++) {
        double expected, found, tolerance = precision == TY_PRECISION_FP32 ? 1e-5 : 3e-2;
        uint64_t right, found_right, labels, found_labels;
        cpu->loss(one, s, &expected, &right, &labels);
        gpu->loss(other, s, &found, &found_right, &found_labels);
        if (!(fabs(found - expected) <= tolerance * expected))
            return wrong("loss %g, expected %g", found, expected);
        if (labels != found_labels || (precision == TY_PRECISION_FP32 && right != found_right))
            return wrong("%llu of %llu right, expected %llu of %llu",
                         (unsigned long long)found_right, (unsigned long long)found_labels,
                         (unsigned long long)right, (unsigned long long)labels);
    }
    return true;
}

/* Same initial weights; then other weights, so that no bias is 0, in both. */
static bool weights_set(ty_stage_device *one, ty_stage_device *other)
{
    uint64_t count = cpu->parameter_count(one), state = 5;
    float *host = malloc(count * sizeof *host), *weights = cpu->parameters(one);
    bool is_right = gpu->parameter_count(other) == count || wrong("other parameters");

    is_right = is_right && device_read(other, gpu->parameters(other), count, host);
    if (is_right && memcmp(host, weights, count * sizeof *host) != 0)
        is_right = wrong("initial weights differ");
    for (uint64_t i = 0; i < count; i++)
        weights[i] += 0.1f * next_float(&state);
    is_right = is_right && device_write(other, gpu->parameters(other), weights, count);
    free(host);
    return is_right;
}

static bool gradients_compare(const ty_stage_options *o, ty_stage_device *one,
                              ty_stage_device *other, double tolerance)
{
    uint64_t count = cpu->parameter_count(one);
    float *host = malloc(count * sizeof *host);
    bool is_right = device_read(other, gpu->gradients(other), count, host) &&
                    is_close(o->workload, one, host, cpu->gradients(one), tolerance);

    free(host);
    return is_right;
}

static bool case_gradients(const network *n, const precision_case *p, bool recomputes)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, n->batch, TY_PRECISION_FP32), other_o;
    ty_stage_device *one = NULL, *other = NULL;
    bool is_rough = n->has_pooling && p->precision != TY_PRECISION_FP32, is_right;

    other_o = o;
    other_o.precision = p->precision;
    other_o.recompute = recomputes ? TY_RECOMPUTE_FULL : TY_RECOMPUTE_NONE;
    is_right = stage_open(cpu, &o, &one) && stage_open(gpu, &other_o, &other) &&
               weights_set(one, other) && two_passes(cpu, one, &o, false) &&
               two_passes(gpu, other, &other_o, recomputes) &&
               losses_compare(one, other, p->precision) &&
               gradients_compare(&o, one, other, is_rough ? pooling_tolerance : p->tolerance);
    cpu->close(one);
    gpu->close(other);
    network_free(w);
    return is_right;
}

/* ---- Two stages on the device equal one ---- */

static bool copy_border(ty_stage_device *from_stage, const float *from, ty_stage_device *to_stage,
                        float *to, uint64_t count)
{
    float *host = malloc(count * sizeof *host);
    bool is_right =
        device_read(from_stage, from, count, host) && device_write(to_stage, to, host, count);

    free(host);
    return is_right;
}

static bool stages_run(const network *n, const ty_workload *w, ty_stage_device *a,
                       ty_stage_device *z)
{
    uint64_t count = ty_shape_elements(&w->layers[n->cut - 1].output) * n->batch;
    ty_error error = {0};

    batch_fill(gpu, a, 0, w, n->batch, 11);
    if (gpu->forward(a, 0, 0, n->cut, &error) != TY_OK ||
        !copy_border(a, gpu->output(a, 0), z, gpu->input(z, 0), count) ||
        gpu->forward(z, 0, n->cut, w->layer_count - n->cut, &error) != TY_OK ||
        gpu->backward(z, 0, n->cut, w->layer_count - n->cut, true, &error) != TY_OK ||
        !copy_border(z, gpu->input_gradient(z, 0), a, gpu->output_gradient(a, 0), count) ||
        gpu->backward(a, 0, 0, n->cut, true, &error) != TY_OK)
        return error.message[0] != '\0' ? wrong("%s", error.message) : false;
    return true;
}

/* The CPU backend's one stage is the measure; a matrix tied across the cut lies behind the others,
 * so networks with one are compared by their loss only. */
static bool case_stages(const network *n)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, n->batch, TY_PRECISION_FP32), first = o, second = o;
    ty_stage_device *one = NULL, *a = NULL, *z = NULL;
    uint64_t offset, count, tail, labels, right;
    double expected, found;
    float *host = NULL;
    bool is_right;
    ty_error error = {0};

    first.layer_count = n->cut;
    second.first_layer = n->cut;
    second.layer_count = w->layer_count - n->cut;
    for (uint32_t l = n->cut; l < w->layer_count; l++)
        if (w->layers[l].tied_to < n->cut) {
            second.tied_layer = l;
            first.tied_layer = w->layers[l].tied_to;
        }
    is_right =
        stage_open(cpu, &o, &one) && stage_open(gpu, &first, &a) && stage_open(gpu, &second, &z);
    if (is_right) {
        batch_fill(cpu, one, 0, w, n->batch, 11);
        is_right = cpu->forward(one, 0, 0, w->layer_count, &error) == TY_OK &&
                   cpu->backward(one, 0, 0, w->layer_count, true, &error) == TY_OK;
        cpu->loss(one, 0, &expected, &right, &labels);
        memcpy(gpu->labels(z, 0), cpu->labels(one, 0), labels * sizeof(int32_t));
        is_right = is_right && stages_run(n, w, a, z);
    }
    if (is_right) {
        gpu->loss(z, 0, &found, &right, &labels);
        is_right = fabs(found - expected) <= 1e-5 * expected ||
                   wrong("loss %g, expected %g", found, expected);
    }
    if (is_right && first.tied_layer == TY_NO_LAYER) {
        host = malloc(cpu->parameter_count(one) * sizeof *host);
        gpu->slice(a, 0, n->cut, &offset, &count);
        tail = gpu->parameter_count(z);
        is_right = device_read(a, gpu->gradients(a), count, host) &&
                   device_read(z, gpu->gradients(z), tail, host + count) &&
                   is_close(w, one, host, cpu->gradients(one), 2e-5);
        free(host);
    }
    cpu->close(one);
    gpu->close(a);
    gpu->close(z);
    network_free(w);
    return is_right;
}

/* ---- Updates and compressors ---- */

static bool update_compare(ty_stage_device *one, ty_stage_device *other, const ty_optimizer *opt)
{
    uint64_t count = cpu->parameter_count(one), state = 3;
    float *optimizer = calloc(count * 2, sizeof *optimizer), *host = malloc(count * sizeof *host);
    float *gradients = cpu->gradients(one);
    bool is_finite, is_right = true;
    ty_error error = {0};

    for (uint64_t step = 1; step <= 3 && is_right; step++) {
        for (uint64_t i = 0; i < count; i++)
            gradients[i] = next_float(&state);
        is_right = device_write(other, gpu->gradients(other), gradients, count);
        ty_optimizer_step(opt, step, count, cpu->parameters(one), gradients, optimizer);
        if (gpu->memory->update(other, opt, step, 0, count, &is_finite, &error) != TY_OK)
            is_right = wrong("%s", error.message);
    }
    is_right = is_right && device_read(other, gpu->parameters(other), count, host);
    for (uint64_t i = 0; i < count && is_right; i++)
        if (!(fabs((double)host[i] - (double)cpu->parameters(one)[i]) <=
              2e-6 * (1 + fabs((double)host[i]))))
            is_right = wrong("weight %llu is %.9g, expected %.9g", (unsigned long long)i,
                             (double)host[i], (double)cpu->parameters(one)[i]);
    free(optimizer);
    free(host);
    return is_right;
}

static bool case_update(const ty_optimizer *optimizer)
{
    ty_workload *w = make_linear();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *one = NULL, *other = NULL;
    bool is_right = stage_open(cpu, &o, &one) && stage_open(gpu, &o, &other) &&
                    update_compare(one, other, optimizer);

    cpu->close(one);
    gpu->close(other);
    network_free(w);
    return is_right;
}

/* Gradients with many ties and zeros; two rounds, so that residuals count; bytes must be equal. */
static bool codec_compare(ty_stage_device *stage, ty_compression compression, uint64_t count)
{
    const ty_device_memory *memory = gpu->memory;
    ty_codec *own = NULL;
    ty_device_codec *other = NULL;
    ty_error error = {0};
    float *g = malloc(count * sizeof *g), *back = malloc(count * sizeof *back);
    float *dg = memory->allocate(stage, count * sizeof *g);
    const ty_gradient_extent extent = {.elements = count};
    const ty_codec_options options = {
        .compression = compression, .count = count, .member_count = 1};
    uint64_t bytes, state = count;
    unsigned char *found;
    bool is_right = ty_codec_open(&options, &own, &error) == TY_OK &&
                    memory->codec_open(stage, &options, &other, &error) == TY_OK;

    if (!is_right)
        return wrong("%s", error.message);
    bytes = ty_compression_wire_bytes(&compression, &extent, 1, 0);
    found = malloc(bytes);
    for (int round = 0; round < 2 && is_right; round++) {
        for (uint64_t i = 0; i < count; i++)
            g[i] = (float)((int)(next_random(&state) % 41) - 20) * 0.125f;
        ty_codec_encode(own, 0, g);
        is_right = device_write(stage, dg, g, count) &&
                   memory->codec_encode(other, 0, dg, &error) == TY_OK &&
                   memory->read(stage, found, memory->codec_exchange(other, 0).data, bytes,
                                &error) == TY_OK;
        if (is_right && memcmp(found, ty_codec_exchange(own, 0).data, bytes) != 0)
            is_right = wrong("encoded bytes of %llu elements differ", (unsigned long long)count);
        if (is_right) {
            ty_codec_decode(own, g);
            is_right = memory->codec_decode(other, dg, &error) == TY_OK &&
                       device_read(stage, dg, count, back);
        }
        if (is_right && memcmp(g, back, count * sizeof *g) != 0)
            is_right =
                wrong("decoded gradients of %llu elements differ", (unsigned long long)count);
    }
    ty_codec_close(own);
    memory->codec_close(other);
    memory->release(stage, dg);
    free(found);
    free(g);
    free(back);
    return is_right;
}

static bool case_codec(ty_compression_kind kind)
{
    static const struct {
        uint64_t count;
        double share;
    } sizes[] = {{1, 1}, {33, 0.16}, {2048, 1}, {5000, 0.01}, {70001, 0.01}};
    ty_workload *w = make_linear();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *stage = NULL;
    bool is_right = stage_open(gpu, &o, &stage);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && is_right; i++)
        is_right = codec_compare(
            stage,
            (ty_compression){.kind = kind,
                             .ratio = kind == TY_COMPRESSION_TOP_K ? sizes[i].share : 0},
            sizes[i].count);
    gpu->close(stage);
    network_free(w);
    return is_right;
}

/* ---- Plans: virtual ranks on one GPU against one CPU rank ---- */

typedef struct plan_case {
    const char *name, *workload, *quick_workload;
    plan_shape shape;
    const char *precision;
    double gradient_tolerance, loss_tolerance;
} plan_case;

#define BATCH .global_batch = 8, .micro_batch_size = 2
#define EXACT NULL, 1e-4, 1e-3
static const plan_case plans[] = {
    {"plan mlp, one rank", "mlp", "mlp", {.replicas = {1}, .buckets = 1, BATCH}, EXACT},
    {"plan mlp, data parallel 2", "mlp", "mlp", {.replicas = {2}, .buckets = 3, BATCH}, EXACT},
    {"plan mlp, data parallel 2, fp16 buckets",
     "mlp",
     "mlp",
     {.replicas = {2}, .buckets = 2, BATCH, .compression.kind = TY_COMPRESSION_FP16},
     NULL,
     4e-3,
     1e-2},
    {"plan mlp, data parallel 2, top-k of all",
     "mlp",
     "mlp",
     {.replicas = {2},
      .buckets = 2,
      BATCH,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}},
     EXACT},
    {"plan lenet, 1f1b 2+1",
     "lenet",
     "lenet",
     {.schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2, BATCH},
     EXACT},
    {"plan gpt, gpipe 2 stages",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH},
     EXACT},
    {"plan gpt, 1f1b 3 stages, recompute",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .cuts = {7, 13},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, data parallel 2, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 3, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, data parallel 2, fp16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 3, BATCH},
     "fp16",
     3e-2,
     1e-2},
};
enum { PLANS = sizeof plans / sizeof *plans };

typedef struct outcome {
    char *gradients;
    size_t length;
    ty_run *run;
} outcome;

static bool plan_run(const char *workload, const plan_shape *shape, const char *backend,
                     const char *precision, uint32_t steps, outcome *out)
{
    char *directory = directory_make();
    ty_job *job = make_job(make_plan(workload, shape), steps, directory);
    ty_error error = {0};
    bool is_right;

    ty_free(job->backend);
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(precision);
    is_right = ty_execute_job_locally(job, ty_plan_rank_count(job->plan), &(ty_execute_options){0},
                                      &error) == TY_OK &&
               ty_file_read(job->gradients, 0, &out->gradients, &out->length, &error) == TY_OK &&
               ty_run_load(job->output, &out->run, &error) == TY_OK;
    directory_remove(directory);
    ty_job_free(job);
    return is_right || wrong("%s: %s", backend, error.message);
}

static void outcome_free(outcome *o)
{
    ty_free(o->gradients);
    ty_run_free(o->run);
}

/* Headers of [layer, count] and floats between them; see ty_interpreter_save_gradients. */
static bool files_compare(const outcome *found, const outcome *expected, double tolerance)
{
    double difference = 0, norm = 0;
    size_t at = 0;

    if (found->length != expected->length)
        return wrong("gradients of %zu bytes, expected %zu", found->length, expected->length);
    while (at < expected->length) {
        uint64_t header[2];
        memcpy(header, expected->gradients + at, sizeof header);
        at += sizeof header;
        for (uint64_t i = 0; i < header[1]; i++, at += sizeof(float)) {
            float f, e;
            memcpy(&f, found->gradients + at, sizeof f);
            memcpy(&e, expected->gradients + at, sizeof e);
            difference += pow((double)f - (double)e, 2);
            norm += pow((double)e, 2);
        }
    }
    if (!(norm > 0 && difference <= tolerance * tolerance * norm))
        return wrong("gradients differ by %g of %g, expected at most %g of it", sqrt(difference),
                     sqrt(norm), tolerance);
    return true;
}

static bool case_plan(const plan_case *c)
{
    plan_shape alone = {.name = "one rank", .replicas = {1}, .buckets = 1}, shape = c->shape;
    const char *workload = is_quick ? c->quick_workload : c->workload;
    uint32_t steps = is_quick ? 3 : 20;
    outcome expected = {0}, found = {0};
    bool is_right;

    shape.name = c->name;
    alone.global_batch = alone.micro_batch_size = shape.global_batch;
    is_right = plan_run(workload, &alone, "cpu", NULL, steps, &expected) &&
               plan_run(workload, &shape, "cuda", c->precision, steps, &found) &&
               files_compare(&found, &expected, c->gradient_tolerance);
    for (uint32_t i = 0; is_right && i < steps; i++) {
        double f = found.run->losses[i], e = expected.run->losses[i];
        if (!(fabs(f - e) <= c->loss_tolerance * fabs(e)))
            is_right = wrong("loss of step %u is %.7g, expected %.7g", i, f, e);
    }
    outcome_free(&expected);
    outcome_free(&found);
    return is_right;
}

/* ---- Plans that this backend lacks something for: refused by name ---- */

static const plan_case refusals[] = {
    {.name = "refused several sets of weights",
     .shape = {.schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH}},
    {.name = "refused backward in two parts",
     .shape = {.schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH}},
    {.name = "refused several stages on one device",
     .shape = {.schedule = TY_INTERLEAVED,
               .replicas = {1, 1, 1, 1},
               .cuts = {2, 4, 5},
               .buckets = 1,
               BATCH,
               .interleave = 2}},
    {.name = "refused ZeRO", .shape = {.replicas = {2}, .buckets = 1, BATCH, .zero = 1}},
    {.name = "refused local steps",
     .shape = {.replicas = {2}, .buckets = 1, BATCH, .local_steps = 2}},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static bool case_refused(const plan_case *c)
{
    const char *what = c->name + strlen("refused ");
    plan_shape shape = c->shape;
    outcome found = {0};
    bool has_run;

    shape.name = c->name;
    has_run = plan_run("mlp", &shape, "cuda", NULL, 1, &found);
    outcome_free(&found);
    if (has_run || strstr(message, what) == NULL)
        return wrong("found %.200s, expected a refusal of %s", has_run ? "a run" : message, what);
    return true;
}

/* ---- All of them ---- */

static bool is_asked(int count, char **names, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strstr(name, names[i]) != NULL)
            return true;
    return count == 0;
}

static void report(const char *name, bool is_right)
{
    printf("%s %s%s%s\n", is_right ? "ok  " : "FAIL", name, is_right ? "" : ": ",
           is_right ? "" : message);
    fflush(stdout);
    if (results != NULL)
        fprintf(results, "%s\n    {\"name\": \"%s\", \"passed\": %s%s%s%s}",
                passes + failures > 0 ? "," : "", name, is_right ? "true" : "false",
                is_right ? "" : ", \"message\": \"", is_right ? "" : message, is_right ? "" : "\"");
    passes += is_right;
    failures += !is_right;
}

static void passes_run(int count, char **names)
{
    char name[96];

    for (int n = 0; n < NETWORKS; n++)
        for (int p = 0; p < PRECISIONS; p += is_quick ? 2 : 1) {
            snprintf(name, sizeof name, "gradients %s %s", networks[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(count, names, name))
                report(name, case_gradients(&networks[n], &precisions[p], false));
        }
    for (int n = 0; n < NETWORKS; n++) {
        snprintf(name, sizeof name, "recompute %s", networks[n].name);
        if (is_asked(count, names, name))
            report(name, case_gradients(&networks[n], &precisions[0], true));
        snprintf(name, sizeof name, "stages %s", networks[n].name);
        if (is_asked(count, names, name))
            report(name, case_stages(&networks[n]));
    }
}

static void others_run(int count, char **names)
{
    static const ty_optimizer optimizers[] = {
        {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1, .weight_decay = 0.01},
        {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1, .momentum = 0.9},
        {.kind = TY_OPTIMIZER_ADAMW,
         .learning_rate = 0.01,
         .beta1 = 0.9,
         .beta2 = 0.95,
         .epsilon = 1e-8,
         .weight_decay = 0.1}};
    static const char *const updates[] = {"update sgd", "update momentum", "update adamw"};

    for (int i = 0; i < 3; i++)
        if (is_asked(count, names, updates[i]))
            report(updates[i], case_update(&optimizers[i]));
    if (is_asked(count, names, "codec fp16"))
        report("codec fp16", case_codec(TY_COMPRESSION_FP16));
    if (is_asked(count, names, "codec top-k"))
        report("codec top-k", case_codec(TY_COMPRESSION_TOP_K));
    for (int i = 0; i < PLANS; i++)
        if (is_asked(count, names, plans[i].name))
            report(plans[i].name, case_plan(&plans[i]));
    for (int i = 0; i < REFUSALS; i++)
        if (is_asked(count, names, refusals[i].name))
            report(refusals[i].name, case_refused(&refusals[i]));
}

/* ---- For tests/gpu/check ---- */

/* The wall time of the later half of the steps, which the first ones' loading does not touch. */
static int bench(const char *workload, const char *precision, uint32_t batch, uint32_t steps)
{
    plan_shape shape = {.name = "one rank", .replicas = {1}, .buckets = 1};
    outcome some = {0}, more = {0};
    double step_s, samples;
    bool is_right;

    shape.global_batch = shape.micro_batch_size = batch;
    is_right = plan_run(workload, &shape, "cuda", precision, steps, &some) &&
               plan_run(workload, &shape, "cuda", precision, 3 * steps, &more);
    if (is_right) {
        step_s = (more.run->wall_s - some.run->wall_s) / (2 * steps);
        samples = batch / step_s;
        printf("{\"workload\": \"%s\", \"precision\": \"%s\", \"batch\": %u, \"steps\": %u, "
               "\"step_time_s\": %.6g, \"samples_per_s\": %.6g, \"first_loss\": %.6g, "
               "\"last_loss\": %.6g}\n",
               workload, precision, batch, steps, step_s, samples, more.run->losses[0],
               more.run->losses[3 * steps - 1]);
    } else {
        fprintf(stderr, "%s\n", message);
    }
    outcome_free(&some);
    outcome_free(&more);
    return !is_right;
}

static int job_write(const char *workload, uint32_t ranks, const char *folder)
{
    plan_shape shape = {.name = "data parallel",
                        .replicas = {ranks},
                        .buckets = 3,
                        .global_batch = 8,
                        .micro_batch_size = 2};
    ty_job *job = make_job(make_plan(workload, &shape), 10, folder);
    ty_error error = {0};
    char path[4096];
    ty_status status;

    ty_free(job->backend);
    job->backend = ty_strdup("cuda");
    snprintf(path, sizeof path, "%s/job.json", folder);
    status = ty_job_save(job, path, &error);
    if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    else
        printf("%s\n", job->output);
    ty_job_free(job);
    return status != TY_OK;
}

int main(int argc, char **argv)
{
    ty_error error = {0};
    int first = 1;

    if (argc == 6 && strcmp(argv[1], "--bench") == 0)
        return bench(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]));
    if (argc == 5 && strcmp(argv[1], "--job") == 0)
        return job_write(argv[2], (uint32_t)atoi(argv[3]), argv[4]);

    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--quick") == 0)
            is_quick = true;
        else if (strcmp(argv[first], "-o") == 0 && first + 1 < argc)
            results = fopen(argv[++first], "w");
    }
    if (ty_device_backend_find("cuda", &gpu, &error) != TY_OK) {
        printf("skipped: %s\n", error.message);
        return EXIT_SKIP;
    }
    if (results != NULL)
        fprintf(results, "{\"schema\": \"trainyard.gpu_cases/1\", \"cases\": [");
    passes_run(argc - first, argv + first);
    others_run(argc - first, argv + first);
    if (results != NULL) {
        fprintf(results, "\n]}\n");
        fclose(results);
    }
    printf("%d passed, %d failed\n", passes, failures);
    return failures > 0 || passes == 0;
}
