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
#include <pthread.h>
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

/* Rows of an odd number of elements, with and without biases, a residual sum as in GNMT. */
static ty_workload *make_lstm_of(uint64_t length)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){length});
    int x = network_lstm(w, network_embedding(w, 23, 11, 0), 13, true);

    x = network_join(w, TY_LAYER_ADD, (int[]){x, network_lstm(w, x, 13, false)}, 2);
    network_loss(w, network_linear(w, network_lstm(w, x, 9, true), 23, true));
    return w;
}

static ty_workload *make_lstm(void)
{
    return make_lstm_of(7);
}

static ty_workload *make_lstm_step(void)
{
    return make_lstm_of(1);
}

typedef struct network {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch;
    bool has_pooling; /* where pixels are all but equal, rounding decides which is the maximum */
    bool has_attention;
} network;

static const network networks[] = {
    {"mlp", make_linear, 5, false, false},
    {"lenet", make_conv, 3, true, false},
    {"resnet", make_resnet, 2, true, false},
    {"gpt", make_gpt, 2, false, true},
    {"llama", make_llama, 3, false, true},
    {"lstm", make_lstm, 3, false, false},
    {"lstm of one step", make_lstm_step, 3, false, false},
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

static bool case_gradients(const network *n, const precision_case *p, ty_recompute recompute)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, n->batch, TY_PRECISION_FP32), other_o;
    ty_stage_device *one = NULL, *other = NULL;
    bool is_rough = n->has_pooling && p->precision != TY_PRECISION_FP32, is_right;

    other_o = o;
    other_o.precision = p->precision;
    other_o.recompute = recompute;
    is_right = stage_open(cpu, &o, &one) && stage_open(gpu, &other_o, &other) &&
               weights_set(one, other) && two_passes(cpu, one, &o, false) &&
               two_passes(gpu, other, &other_o, recompute == TY_RECOMPUTE_FULL) &&
               losses_compare(one, other, p->precision) &&
               gradients_compare(&o, one, other, is_rough ? pooling_tolerance : p->tolerance);
    cpu->close(one);
    gpu->close(other);
    network_free(w);
    return is_right;
}

/* ---- Stages on the device equal one ---- */

enum { MOST_STAGES = 4 };

/* A network in stages, each on a device of its own. */
typedef struct stage_case {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch, stage_count;
    uint32_t cuts[MOST_STAGES - 1]; /* first layers of the stages behind the first */
    ty_precision precision;
    ty_recompute recompute;
    double tolerance;
} stage_case;

typedef struct stage_chain {
    const ty_workload *w;
    uint32_t batch, count;
    uint32_t first[MOST_STAGES + 1]; /* layers; one behind the last at the end */
    ty_stage_device *devices[MOST_STAGES];
} stage_chain;

static uint32_t layers_of(const stage_chain *c, uint32_t s)
{
    return c->first[s + 1] - c->first[s];
}

/* Floats of a message across the cut before stage s. */
static uint64_t message_floats(const stage_chain *c, uint32_t s)
{
    uint32_t producers[64];
    const uint32_t count = ty_workload_crossing(c->w, c->first[s], producers);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += ty_shape_elements(&c->w->layers[producers[i]].output);
    return sum * c->batch;
}

static bool message_copy(const stage_chain *c, uint32_t s, bool is_gradient)
{
    ty_stage_device *before = c->devices[s - 1], *behind = c->devices[s];
    const uint64_t count = message_floats(c, s);
    float *host = malloc(count * sizeof *host);
    bool is_right = is_gradient
                        ? device_read(behind, gpu->input_gradient(behind, 0), count, host) &&
                              device_write(before, gpu->output_gradient(before, 0), host, count)
                        : device_read(before, gpu->output(before, 0), count, host) &&
                              device_write(behind, gpu->input(behind, 0), host, count);

    free(host);
    return is_right;
}

static bool chain_open(stage_chain *c, const stage_case *n, const ty_stage_options *of_one)
{
    bool is_right = true;

    for (uint32_t s = 0; s < c->count && is_right; s++) {
        ty_stage_options o = *of_one;

        o.precision = n->precision;
        o.recompute = n->recompute;
        o.first_layer = c->first[s];
        o.layer_count = layers_of(c, s);
        for (uint32_t l = 0; l < c->w->layer_count; l++) {
            const uint32_t owner = c->w->layers[l].tied_to;
            if (owner == TY_NO_LAYER || (owner >= c->first[s] && l < c->first[s + 1]))
                continue;
            if (owner >= c->first[s] && owner < c->first[s + 1])
                o.tied_layer = owner;
            if (l >= c->first[s] && l < c->first[s + 1])
                o.tied_layer = l;
        }
        is_right = stage_open(gpu, &o, &c->devices[s]);
    }
    return is_right;
}

static bool chain_run(const stage_chain *c, const stage_case *n)
{
    ty_error error = {0};
    bool is_right = true;

    batch_fill(gpu, c->devices[0], 0, c->w, c->batch, 11);
    for (uint32_t s = 0; s < c->count && is_right; s++)
        is_right = (s == 0 || message_copy(c, s, false)) &&
                   (gpu->forward(c->devices[s], 0, c->first[s], layers_of(c, s), &error) == TY_OK ||
                    wrong("%s", error.message));
    for (uint32_t s = c->count; s-- > 0 && is_right;) {
        if (n->recompute == TY_RECOMPUTE_FULL)
            is_right = gpu->recompute(c->devices[s], 0, &error) == TY_OK;
        is_right =
            is_right &&
            (gpu->backward(c->devices[s], 0, c->first[s], layers_of(c, s), true, &error) == TY_OK ||
             wrong("%s", error.message)) &&
            (s == 0 || message_copy(c, s, true));
    }
    return is_right;
}

/* A matrix tied across a cut lies behind the others, so networks with one are compared by their
 * loss only. */
static bool chain_compare(const stage_chain *c, ty_stage_device *one, double tolerance)
{
    uint64_t done = 0, offset, count;
    float *host = malloc(cpu->parameter_count(one) * sizeof *host);
    bool is_right = true;

    for (uint32_t s = 0; s < c->count && is_right; s++) {
        gpu->tied_slice(c->devices[s], &offset, &count);
        if (count > 0) {
            free(host);
            return true;
        }
        gpu->slice(c->devices[s], c->first[s], layers_of(c, s), &offset, &count);
        is_right =
            device_read(c->devices[s], gpu->gradients(c->devices[s]) + offset, count, host + done);
        done += count;
    }
    is_right = is_right && is_close(c->w, one, host, cpu->gradients(one), tolerance);
    free(host);
    return is_right;
}

/* The CPU backend's one stage is the measure. */
static bool case_stages(const stage_case *n)
{
    ty_workload *w = n->make();
    const ty_stage_options o = options_of(w, n->batch, TY_PRECISION_FP32);
    stage_chain c = {.w = w, .batch = n->batch, .count = n->stage_count};
    ty_stage_device *one = NULL, *last;
    uint64_t labels, right;
    double expected = 0, found;
    bool is_right;
    ty_error error = {0};

    for (uint32_t s = 1; s < c.count; s++)
        c.first[s] = n->cuts[s - 1];
    c.first[c.count] = w->layer_count;
    is_right = stage_open(cpu, &o, &one) && chain_open(&c, n, &o);
    if (is_right) {
        batch_fill(cpu, one, 0, w, n->batch, 11);
        is_right = (cpu->forward(one, 0, 0, w->layer_count, &error) == TY_OK &&
                    cpu->backward(one, 0, 0, w->layer_count, true, &error) == TY_OK) ||
                   wrong("%s", error.message);
    }
    if (is_right) {
        last = c.devices[c.count - 1];
        cpu->loss(one, 0, &expected, &right, &labels);
        memcpy(gpu->labels(last, 0), cpu->labels(one, 0), labels * sizeof(int32_t));
        is_right = chain_run(&c, n);
        gpu->loss(last, 0, &found, &right, &labels);
        if (is_right && !(fabs(found - expected) <= n->tolerance * expected))
            is_right = wrong("loss %g, expected %g", found, expected);
    }
    is_right = is_right && chain_compare(&c, one, n->tolerance);
    cpu->close(one);
    for (uint32_t s = 0; s < c.count; s++)
        gpu->close(c.devices[s]);
    network_free(w);
    return is_right;
}

/* Values that are read far behind where they are made: they cross cuts beside others, and are
 * relayed by stages that do not read them; one is crossed under two names. */
static ty_workload *make_skips(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){2, 3, 3});
    int a = network_simple(w, -1, TY_LAYER_FLATTEN), b, c, d, e;
    a = network_linear(w, a, 12, true);                                   /* 1 */
    b = network_simple(w, network_linear(w, a, 12, true), TY_LAYER_GELU); /* 3 */
    c = network_simple(w, b, TY_LAYER_FLATTEN);                           /* 4: b's memory */
    d = network_linear(w, c, 12, false);                                  /* 5 */
    d = network_join(w, TY_LAYER_ADD, (int[]){d, a}, 2);                  /* 6 */
    e = network_simple(w, d, TY_LAYER_SILU);                              /* 7 */
    e = network_join(w, TY_LAYER_ADD, (int[]){e, b, c}, 3);               /* 8 */
    e = network_join(w, TY_LAYER_CONCAT, (int[]){e, a, c}, 3);            /* 9 */
    network_loss(w, network_linear(w, e, 10, true));
    return w;
}

#define SKIPS make_skips, 5
static const stage_case stages[] = {
    {"stages mlp", make_linear, 5, 2, {5}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages lenet", make_conv, 3, 2, {2}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages resnet", make_resnet, 2, 2, {2}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages resnet, cuts inside blocks",
     make_resnet,
     2,
     4,
     {4, 9, 11},
     TY_PRECISION_FP32,
     TY_RECOMPUTE_NONE,
     2e-5},
    {"stages gpt", make_gpt, 2, 2, {7}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages gpt, cuts inside blocks",
     make_gpt,
     2,
     3,
     {2, 5},
     TY_PRECISION_FP32,
     TY_RECOMPUTE_SELECTIVE,
     2e-5},
    {"stages llama", make_llama, 3, 2, {4}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages lstm", make_lstm, 3, 3, {2, 4}, TY_PRECISION_FP32, TY_RECOMPUTE_FULL, 2e-5},
    {"stages skips fp32", SKIPS, 4, {3, 5, 7}, TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5},
    {"stages skips tf32", SKIPS, 4, {3, 5, 7}, TY_PRECISION_TF32, TY_RECOMPUTE_NONE, 1e-2},
    {"stages skips bf16", SKIPS, 4, {3, 5, 7}, TY_PRECISION_BF16, TY_RECOMPUTE_NONE, 1e-1},
    {"stages skips fp16", SKIPS, 4, {3, 5, 7}, TY_PRECISION_FP16, TY_RECOMPUTE_NONE, 2e-2},
    {"stages skips, recompute", SKIPS, 4, {4, 6, 9}, TY_PRECISION_FP32, TY_RECOMPUTE_FULL, 2e-5},
};
enum { STAGES = sizeof stages / sizeof *stages };

/* ---- Lanes: threads that exchange through memory, and together are what one device is ---- */

enum { MOST_LANES = 4 };

typedef struct lane_hub {
    pthread_barrier_t barrier;
    uint32_t lanes;
    float *data[MOST_LANES]; /* what each brought, on the host */
} lane_hub;

typedef struct lane {
    lane_hub *hub;
    uint32_t position;
    pthread_t thread;
    ty_stage_options options;
    ty_stage_device *device;
    double loss;
    uint64_t correct, labels;
    bool is_wrong;
    ty_error error;
} lane;

/* Every lane makes the same sums in the same order, of what all brought. */
static void exchange_here(const lane *own, const ty_lane_exchange *exchange, float *result)
{
    const lane_hub *hub = own->hub;
    const uint64_t count = exchange->count;

    for (uint64_t i = 0; exchange->kind != TY_ALL_GATHER && i < count; i++) {
        result[i] = hub->data[0][i];
        for (uint32_t l = 1; l < hub->lanes; l++)
            result[i] = exchange->is_maximum ? fmaxf(result[i], hub->data[l][i])
                                             : result[i] + hub->data[l][i];
    }
    for (uint32_t l = 0; exchange->kind == TY_ALL_GATHER && l < hub->lanes; l++)
        memcpy(result + l * count, hub->data[l] + l * count, count * sizeof *result);
}

static ty_status exchange_in_memory(void *context, const ty_lane_exchange *exchange,
                                    ty_error *error)
{
    lane *own = context;
    const uint64_t all = exchange->kind == TY_ALL_GATHER ? own->hub->lanes : 1;
    const uint64_t bytes = exchange->count * all * sizeof(float);
    float *brought = malloc(bytes), *result = malloc(bytes);
    ty_status status = gpu->memory->read(own->device, brought, exchange->data, bytes, error);

    own->hub->data[own->position] = brought;
    pthread_barrier_wait(&own->hub->barrier);
    exchange_here(own, exchange, result);
    pthread_barrier_wait(&own->hub->barrier);
    if (status == TY_OK)
        status = gpu->memory->write(own->device, exchange->data, result, bytes, error);
    free(brought);
    free(result);
    return status;
}

static void *lane_run(void *argument)
{
    lane *own = argument;
    const uint32_t layers = own->options.layer_count;
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < 2 && status == TY_OK; s++) {
        batch_fill(gpu, own->device, s, own->options.workload, own->options.micro_batch_size,
                   11 + s);
        status = gpu->forward(own->device, s, 0, layers, &own->error);
        gpu->loss(own->device, s, &own->loss, &own->correct, &own->labels);
    }
    for (uint32_t s = 0; s < 2 && status == TY_OK; s++)
        status = gpu->backward(own->device, s, 0, layers, s == 0, &own->error);
    own->is_wrong = status != TY_OK;
    return NULL;
}

static bool lanes_open(lane *lanes, lane_hub *hub, const ty_stage_options *of_one,
                       bool divides_sequence)
{
    bool is_right = true;

    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        lanes[l].hub = hub;
        lanes[l].position = l;
        lanes[l].options = *of_one;
        lanes[l].options.lanes = (ty_lane_group){.count = hub->lanes,
                                                 .position = l,
                                                 .divides_sequence = divides_sequence,
                                                 .exchange = exchange_in_memory,
                                                 .context = &lanes[l]};
        is_right = stage_open(gpu, &lanes[l].options, &lanes[l].device);
    }
    return is_right;
}

static bool lanes_run(lane *lanes, lane_hub *hub)
{
    bool is_right = true;

    pthread_barrier_init(&hub->barrier, NULL, hub->lanes);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_create(&lanes[l].thread, NULL, lane_run, &lanes[l]);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_join(lanes[l].thread, NULL);
    pthread_barrier_destroy(&hub->barrier);
    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        is_right = !lanes[l].is_wrong || wrong("lane %u: %s", l, lanes[l].error.message);
        if (is_right && lanes[l].loss != lanes[0].loss)
            is_right =
                wrong("lanes 0 and %u know losses %.9g and %.9g", l, lanes[0].loss, lanes[l].loss);
    }
    return is_right;
}

/* What one device has of a layer, from the lanes' parameters or gradients; with the sequence
 * divided gradients of undivided layers are sums over lanes. */
static bool layer_joined(const lane *lanes, uint32_t layer, bool is_gradient, bool is_summed,
                         float *whole)
{
    const uint32_t count = lanes[0].hub->lanes;
    uint64_t offset, part, all = gpu->lanes_join(lanes[0].device, layer, false, NULL, NULL);
    float *parts;
    bool is_right = true;

    gpu->slice(lanes[0].device, layer, 1, &offset, &part);
    parts = malloc(count * part * sizeof *parts + 1);
    for (uint32_t l = 0; l < count && is_right; l++) {
        float *from =
            is_gradient ? gpu->gradients(lanes[l].device) : gpu->parameters(lanes[l].device);
        is_right = part == 0 || device_read(lanes[l].device, from + offset, part, parts + l * part);
    }
    gpu->lanes_join(lanes[0].device, layer, false, parts, whole);
    for (uint32_t l = 1; l < count && is_gradient && is_summed && part == all; l++)
        for (uint64_t i = 0; i < all; i++)
            whole[i] = l == 1 ? parts[i] + parts[part + i] : whole[i] + parts[l * part + i];
    free(parts);
    return is_right;
}

static bool lanes_joined(const lane *lanes, const ty_stage_device *one, const ty_workload *w,
                         bool is_gradient, bool is_summed, float *whole)
{
    bool is_right = true;

    for (uint32_t l = 0; l < w->layer_count && is_right; l++) {
        uint64_t offset, count;

        cpu->slice(one, l, 1, &offset, &count);
        if (gpu->lanes_join(lanes[0].device, l, false, NULL, NULL) != count)
            return wrong("layer %s has %llu numbers on all lanes, expected %llu", w->layers[l].name,
                         (unsigned long long)gpu->lanes_join(lanes[0].device, l, false, NULL, NULL),
                         (unsigned long long)count);
        is_right = layer_joined(lanes, l, is_gradient, is_summed, whole + offset);
    }
    return is_right;
}

typedef struct lane_case {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t lanes;
    bool divides_sequence;
} lane_case;

/* Initial weights to the bit, then loss and gradients, beside one device of the CPU backend. */
static bool case_lanes(const lane_case *n, const precision_case *p)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32), other_o = o;
    lane_hub hub = {.lanes = n->lanes};
    lane lanes[MOST_LANES] = {0};
    ty_stage_device *one = NULL;
    float *whole = NULL;
    double expected = 0, tolerance = p->precision == TY_PRECISION_FP32 ? 1e-5 : 3e-2;
    uint64_t right, labels;
    bool is_right;

    other_o.precision = p->precision;
    is_right = stage_open(cpu, &o, &one) && lanes_open(lanes, &hub, &other_o, n->divides_sequence);
    if (is_right) {
        whole = malloc(cpu->parameter_count(one) * sizeof *whole);
        is_right = lanes_joined(lanes, one, w, false, false, whole);
        if (is_right &&
            memcmp(whole, cpu->parameters(one), cpu->parameter_count(one) * sizeof *whole) != 0)
            is_right = wrong("initial weights differ");
    }
    is_right = is_right && lanes_run(lanes, &hub) && two_passes(cpu, one, &o, false);
    if (is_right) {
        cpu->loss(one, 1, &expected, &right, &labels);
        if (!(fabs(lanes[0].loss - expected) <= tolerance * expected) ||
            lanes[0].labels != labels ||
            (p->precision == TY_PRECISION_FP32 && lanes[0].correct != right))
            is_right =
                wrong("loss %g, %llu of %llu right, expected %g, %llu of %llu", lanes[0].loss,
                      (unsigned long long)lanes[0].correct, (unsigned long long)lanes[0].labels,
                      expected, (unsigned long long)right, (unsigned long long)labels);
    }
    is_right = is_right && lanes_joined(lanes, one, w, true, n->divides_sequence, whole) &&
               is_close(w, one, whole, cpu->gradients(one), p->tolerance);
    free(whole);
    cpu->close(one);
    for (uint32_t l = 0; l < n->lanes; l++)
        gpu->close(lanes[l].device);
    network_free(w);
    return is_right;
}

static void *lane_update(void *argument)
{
    static const ty_optimizer descent = {.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.1};
    lane *own = argument;
    bool is_finite = true;

    own->is_wrong =
        gpu->memory->update(own->device, &descent, 1, 0, gpu->parameter_count(own->device),
                            &is_finite, &own->error) != TY_OK;
    own->correct = is_finite;
    return NULL;
}

/* An update after one lane's gradients overflowed: no lane may do it. @return whether all agreed */
static bool lanes_update(lane *lanes, lane_hub *hub, bool expected)
{
    bool is_right = true;

    pthread_barrier_init(&hub->barrier, NULL, hub->lanes);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_create(&lanes[l].thread, NULL, lane_update, &lanes[l]);
    for (uint32_t l = 0; l < hub->lanes; l++)
        pthread_join(lanes[l].thread, NULL);
    pthread_barrier_destroy(&hub->barrier);
    for (uint32_t l = 0; l < hub->lanes && is_right; l++) {
        is_right = !lanes[l].is_wrong || wrong("lane %u: %s", l, lanes[l].error.message);
        if (is_right && (lanes[l].correct == 1) != expected)
            is_right = wrong("lane %u %s", l, expected ? "did not update" : "updated");
    }
    return is_right;
}

static bool case_overflow(void)
{
    ty_workload *w = network_make_gpt(1, 8, 2, 4, 9);
    const ty_stage_options o = options_of(w, 1, TY_PRECISION_FP16);
    const float beyond = INFINITY, nothing = 0;
    lane_hub hub = {.lanes = 2};
    lane lanes[MOST_LANES] = {0};
    bool is_right = lanes_open(lanes, &hub, &o, false) && lanes_update(lanes, &hub, true) &&
                    device_write(lanes[1].device, gpu->gradients(lanes[1].device), &beyond, 1) &&
                    lanes_update(lanes, &hub, false) &&
                    device_write(lanes[1].device, gpu->gradients(lanes[1].device), &nothing, 1) &&
                    lanes_update(lanes, &hub, true);

    for (uint32_t l = 0; l < hub.lanes; l++)
        gpu->close(lanes[l].device);
    network_free(w);
    return is_right;
}

/* Words that lanes do not divide evenly, heads of an odd size, a tied matrix, biases, positions. */
static ty_workload *make_lane_gpt(void)
{
    return network_make_gpt(2, 28, 4, 12, 37);
}

/* Rms norms, a gated mlp without biases, two query heads to a key head, an output projection of its
 * own with a bias; with 4 lanes the last has one word. */
static ty_workload *make_lane_llama(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    int x = network_embedding(w, 37, 32, 0), y;

    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 8, 4, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 48, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_simple(w, x, TY_LAYER_RMS_NORM);
    network_loss(w, network_linear(w, x, 37, true));
    return w;
}

static const lane_case lane_cases[] = {
    {"lanes gpt, 2", make_lane_gpt, 2, false},
    {"lanes gpt, 4", make_lane_gpt, 4, false},
    {"lanes llama, 2", make_lane_llama, 2, false},
    {"lanes llama, 4", make_lane_llama, 4, false},
    {"lanes gpt, 2 along the sequence", make_lane_gpt, 2, true},
    {"lanes gpt, 4 along the sequence", make_lane_gpt, 4, true},
    {"lanes llama, 2 along the sequence", make_lane_llama, 2, true},
    {"lanes llama, 4 along the sequence", make_lane_llama, 4, true},
};
enum { LANE_CASES = sizeof lane_cases / sizeof *lane_cases };

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

/* Two recurrent layers with a residual sum, as in GNMT. */
static const char gnmt_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"lstm-small\", \"family\": \"sequential\","
    "\"source\": \"gnmt-8.json\", \"sequence\": 8, \"token_bytes\": 4, \"dataset\": "
    "\"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"adamw\", "
    "\"learning_rate\": 0.01, \"weight_decay\": 0, \"beta1\": 0.9, \"beta2\": 0.999, "
    "\"epsilon\": 1e-08}, \"layers\": ["
    "{\"kind\": \"embedding\", \"vocabulary\": 64, \"features\": 24},"
    "{\"kind\": \"lstm\", \"hidden_features\": 24},"
    "{\"branches\": [[], [{\"kind\": \"lstm\", \"hidden_features\": 24}]], \"join\": \"add\"},"
    "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"softmax_cross_entropy\"}]}";

/* As in a U-Net: layer 1 is read again by the sum of channels in 9, layer 3 by that in 6. */
static const char u_net_small[] =
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"u-net-small\", \"family\": \"sequential\","
    "\"source\": \"unet.json\", \"input\": [2, 10, 10], \"sample_bytes\": 801,"
    "\"dataset\": \"synthetic\", \"global_batch\": 24, \"optimizer\": {\"kind\": \"sgd\","
    "\"learning_rate\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0}, \"layers\": ["
    "{\"kind\": \"conv2d\", \"out_channels\": 5, \"kernel\": 3, \"padding\": 1},"
    "{\"kind\": \"relu\"}, {\"branches\": [[], [{\"kind\": \"conv2d\", \"out_channels\": 6, "
    "\"kernel\": 3, \"padding\": 1}, {\"kind\": \"relu\"}, {\"branches\": [[], ["
    "{\"kind\": \"conv2d\", \"out_channels\": 7, \"kernel\": 3, \"padding\": 1}, "
    "{\"kind\": \"relu\"}]], \"join\": \"concat\"}, {\"kind\": \"conv2d\", "
    "\"out_channels\": 4, \"kernel\": 3, \"padding\": 1}, {\"kind\": \"relu\"}]], "
    "\"join\": \"concat\"}, {\"kind\": \"conv2d\", \"out_channels\": 3, \"kernel\": 3}, "
    "{\"kind\": \"relu\"}, {\"kind\": \"flatten\"}, {\"kind\": \"linear\", "
    "\"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}";

typedef struct plan_case {
    const char *name;
    const char *workload, *quick_workload; /* a name with changes, or the text of a zoo file */
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
    {"plan u-net, 1f1b 4 stages, tensors relayed",
     u_net_small,
     u_net_small,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1, 1, 1}, .cuts = {3, 5, 8}, .buckets = 1, BATCH},
     EXACT},
    {"plan lstm, data parallel 2",
     gnmt_small,
     gnmt_small,
     {.replicas = {2}, .buckets = 2, BATCH},
     EXACT},
    {"plan lstm, 1f1b 2 stages, bf16",
     gnmt_small,
     gnmt_small,
     {.schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {2}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 1f1b 3 stages, cuts inside a block, selective",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .cuts = {2, 3},
      .buckets = 1,
      BATCH,
      .recompute = TY_RECOMPUTE_SELECTIVE},
     EXACT},
    {"plan gpt, gpipe 2 stages, cut inside a block, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {12}, .buckets = 1, BATCH},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 2 lanes",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1}, .buckets = 2, BATCH, .lanes = 2},
     EXACT},
    {"plan gpt, data parallel 2, 2 lanes, fp16 buckets",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 2, BATCH, .lanes = 2, .compression.kind = TY_COMPRESSION_FP16},
     NULL,
     4e-3,
     1e-2},
    {"plan gpt, data parallel 2, 2 lanes, top-k",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2},
      .buckets = 2,
      BATCH,
      .lanes = 2,
      .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 1}},
     EXACT},
    {"plan gpt, data parallel 2, 2 lanes along the sequence",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {2}, .buckets = 2, BATCH, .lanes = 2, .divides_sequence = true},
     EXACT},
    {"plan gpt, 1f1b 2 stages of 2 lanes along the sequence, recompute",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1},
      .cuts = {11},
      .buckets = 1,
      BATCH,
      .lanes = 2,
      .divides_sequence = true,
      .recompute = TY_RECOMPUTE_FULL},
     EXACT},
    {"plan gpt, gpipe 2 stages of 2 lanes, loss alone, bf16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {27}, .buckets = 1, BATCH, .lanes = 2},
     "bf16",
     1e-1,
     3e-2},
    {"plan gpt, 4 lanes along the sequence, fp16",
     "gpt-tiny sequence=32",
     "gpt-tiny sequence=8",
     {.replicas = {1}, .buckets = 1, BATCH, .lanes = 4, .divides_sequence = true},
     "fp16",
     3e-2,
     1e-2},
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
    char *directory = directory_make(), path[4096];
    ty_job *job;
    ty_error error = {0};
    bool is_right;

    snprintf(path, sizeof path, "%s/workload.json", directory);
    if (workload[0] == '{' && ty_file_write(path, workload, strlen(workload), &error) != TY_OK)
        return wrong("%s", error.message);
    job = make_job(make_plan(workload[0] == '{' ? path : workload, shape), steps, directory);
    ty_free(job->backend);
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(precision);
    is_right = ty_execute_job_locally(job, ty_plan_process_count(job->plan),
                                      &(ty_execute_options){0}, &error) == TY_OK &&
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

/* What one CPU rank makes of a workload; plans of the same one are compared with the same run. All
 * plans have one global batch. */
static const outcome *outcome_alone(const char *workload, uint32_t global_batch, uint32_t steps)
{
    static const char *of;
    static outcome kept;
    const plan_shape alone = {.name = "one rank",
                              .replicas = {1},
                              .buckets = 1,
                              .global_batch = global_batch,
                              .micro_batch_size = global_batch};

    if (of != NULL && strcmp(of, workload) == 0)
        return &kept;
    outcome_free(&kept);
    kept = (outcome){0};
    of = plan_run(workload, &alone, "cpu", NULL, steps, &kept) ? workload : NULL;
    return of != NULL ? &kept : NULL;
}

static bool case_plan(const plan_case *c)
{
    plan_shape shape = c->shape;
    const char *workload = is_quick ? c->quick_workload : c->workload;
    uint32_t steps = is_quick ? 3 : 20;
    const outcome *expected = outcome_alone(workload, shape.global_batch, steps);
    outcome found = {0};
    bool is_right;

    shape.name = c->name;
    is_right = expected != NULL &&
               plan_run(workload, &shape, "cuda", c->precision, steps, &found) &&
               files_compare(&found, expected, c->gradient_tolerance);
    for (uint32_t i = 0; is_right && i < steps; i++) {
        double f = found.run->losses[i], e = expected->run->losses[i];
        if (!(fabs(f - e) <= c->loss_tolerance * fabs(e)))
            is_right = wrong("loss of step %u is %.7g, expected %.7g", i, f, e);
    }
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
                report(name, case_gradients(&networks[n], &precisions[p], TY_RECOMPUTE_NONE));
        }
    for (int n = 0; n < NETWORKS; n++) {
        snprintf(name, sizeof name, "recompute %s", networks[n].name);
        if (is_asked(count, names, name))
            report(name, case_gradients(&networks[n], &precisions[0], TY_RECOMPUTE_FULL));
    }
    for (int n = 0; n < NETWORKS; n++) {
        snprintf(name, sizeof name, "selective %s", networks[n].name);
        if (networks[n].has_attention && is_asked(count, names, name))
            report(name, case_gradients(&networks[n], &precisions[0], TY_RECOMPUTE_SELECTIVE));
    }
    for (int n = 0; n < STAGES; n++)
        if (is_asked(count, names, stages[n].name))
            report(stages[n].name, case_stages(&stages[n]));
    if (is_asked(count, names, "lanes overflow"))
        report("lanes overflow", case_overflow());
    for (int n = 0; n < LANE_CASES; n++)
        for (int p = 0; p < PRECISIONS; p++) {
            snprintf(name, sizeof name, "%s, %s", lane_cases[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(count, names, name))
                report(name, case_lanes(&lane_cases[n], &precisions[p]));
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

static int job_write(const char *workload, uint32_t ranks, uint32_t lanes, const char *folder)
{
    plan_shape shape = {.name = "data parallel",
                        .replicas = {ranks},
                        .buckets = 3,
                        .global_batch = 8,
                        .micro_batch_size = 2,
                        .lanes = lanes,
                        .divides_sequence = lanes > 1};
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
    if (argc == 6 && strcmp(argv[1], "--job") == 0)
        return job_write(argv[2], (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]), argv[5]);

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
