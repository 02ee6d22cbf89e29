/* The CPU backend against the reference, and against itself partitioned into stages, slots and
 * chunks. */
#include "device.h"
#include "dnnl_wrap.h"
#include "network.h"
#include "reference.h"

#include <criterion/criterion.h>
#include <math.h>

static const ty_device_backend *const cpu = &ty_device_cpu;

/* ---- Models: together they have every layer, in every context that lowering distinguishes ---- */

static ty_workload *make_encoder(void)
{
    return network_make_encoder(20, 4, 7, 23, true);
}

static ty_workload *make_types_alone(void)
{
    return network_make_encoder(20, 4, 7, 23, false);
}

/* Two of four experts, gated; three of five, with biases; one of three, whose weight is 1. */
static ty_workload *make_experts(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){9});
    int x = network_embedding(w, 23, 20, 0), y;
    y = network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 12, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe(w, network_simple(w, x, TY_LAYER_LAYER_NORM), 5, 3, 10, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 1, 16, false, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Gated shared experts of another width than the routed ones, and some with biases next to one of
 * two. */
static ty_workload *make_shared_experts(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){9});
    int x = network_embedding(w, 23, 20, 0), y;
    y = network_moe_shared(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 12, 7, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_moe_shared(w, network_simple(w, x, TY_LAYER_LAYER_NORM), 2, 1, 10, 24, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Sums whose inputs must not share a gradient: read directly by the branch, a relu in a branch, one
 * value twice, another reader in between, three inputs. */
static ty_workload *make_sums(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 1, (uint64_t[]){13});
    int a = network_linear(w, -1, 13, true), b, c;
    b = network_simple(w, network_linear(w, a, 13, true), TY_LAYER_RELU);
    a = network_join(w, TY_LAYER_ADD, (int[]){a, b}, 2);
    b = network_linear(w, a, 13, true);
    c = network_simple(w, a, TY_LAYER_GELU);
    a = network_join(w, TY_LAYER_ADD, (int[]){a, b, c}, 3);
    a = network_join(w, TY_LAYER_ADD, (int[]){a, a}, 2);
    b = network_simple(w, a, TY_LAYER_RELU);
    c = network_linear(w, a, 13, false);
    b = network_join(w, TY_LAYER_ADD, (int[]){b, c}, 2);
    c = network_simple(w, b, TY_LAYER_LAYER_NORM);
    a = network_join(w, TY_LAYER_ADD, (int[]){a, b}, 2);
    a = network_join(w, TY_LAYER_ADD, (int[]){a, c}, 2);
    network_loss(w, a);
    return w;
}

/* A residual block as in ResNet, then normalized features. */
static ty_workload *make_batch_norm(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){3, 7, 6});
    int x = network_conv2d(w, -1, 5, 3, 3, 1, 1, 1, false), y;
    x = network_simple(w, network_simple(w, x, TY_LAYER_BATCH_NORM), TY_LAYER_RELU);
    y = network_simple(w, network_conv2d(w, x, 5, 3, 3, 1, 1, 1, false), TY_LAYER_BATCH_NORM);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_RELU);
    x = network_simple(w, network_global_pool(w, x), TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 9, true), TY_LAYER_BATCH_NORM);
    network_loss(w, network_linear(w, x, 4, true));
    return w;
}

static ty_workload *make_llama(void)
{
    return network_make_llama(15, true);
}

/* A relu after the first layer must not overwrite data of that layer's backward pass. */
static ty_workload *make_lstm(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){6});
    int x = network_lstm(w, network_embedding(w, 17, 7, 0), 5, true), y;
    x = network_simple(w, x, TY_LAYER_RELU);
    y = network_lstm(w, x, 5, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 17, true));
    return w;
}

/* GNMT's form: an encoder that reads in both directions, and a decoder whose layers all read the
 * output of the first one's attention. */
static ty_workload *make_gnmt(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){7});
    int x = network_embedding(w, 17, 9, 0), y, memory, context;
    y = network_lstm(w, x, 5, true);
    x = network_lstm(w, x, 6, true);
    network_option(w, x, TY_IS_REVERSED, 1);
    memory = network_lstm(w, network_concat_features(w, (int[]){y, x}, 2), 8, false);
    network_option(w, memory, TY_IS_REVERSED, 1);
    x = network_lstm(w, network_embedding(w, 17, 6, 0), 10, true);
    context = network_additive_attention(w, x, memory, 13);
    x = network_lstm(w, network_concat_features(w, (int[]){x, context}, 2), 7, true);
    y = network_lstm(w, network_concat_features(w, (int[]){context, x}, 2), 7, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, network_simple(w, x, TY_LAYER_TANH), 17, true));
    return w;
}

/* T5's form: one embedding for two sequences of different lengths; the second attends to the first;
 * relative position biases, bidirectional and causal. */
static ty_workload *make_encoder_decoder(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){19});
    int tokens = network_embedding(w, 23, 12, 0), x = network_slice(w, tokens, 0, 11), y, memory;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 3, 5, false, false);
    network_option(w, y, TY_RELATIVE_BUCKETS, 8);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 14, true, false);
    network_option(w, y, TY_IS_RELU, 1);
    memory = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_slice(w, tokens, 11, 8);
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 3, true, true);
    network_option(w, y, TY_RELATIVE_BUCKETS, 5);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_simple(w, x, TY_LAYER_RMS_NORM);
    y = network_cross_attention(w, y, memory, 4, 2, 3, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_cross_attention(w, x, memory, 3, 3, 4, false);
    network_option(w, y, TY_HAS_QK_NORM, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Qwen3's norms, Qwen2's biases, all options together. */
static ty_workload *make_qwen(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){70});
    int x = network_embedding(w, 23, 12, 0), y;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 5, false, true);
    network_option(w, y, TY_HAS_QK_NORM, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, x, 3, 1, 4, false, true);
    network_option(w, y, TY_HAS_QKV_BIAS, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, x, 2, 2, 6, true, false);
    network_option(w, y, TY_HAS_QK_NORM, 1);
    network_option(w, y, TY_RELATIVE_BUCKETS, 6);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

static ty_workload *make_rotary(void)
{
    return network_make_rotary(true);
}

static ty_workload *make_frozen(void)
{
    ty_workload *w = network_make_small_gpt();
    for (uint32_t l = 0; l < w->layer_count; l++)
        w->layers[l].is_frozen = l == 1 || l == 5 || l == 6;
    return w;
}

/* No backward pass below the fourth layer. */
static ty_workload *make_frozen_prefix(void)
{
    ty_workload *w = network_make_small_lenet();
    for (uint32_t l = 0; l < 4; l++)
        w->layers[l].is_frozen = true;
    return w;
}

/* Branches of a teacher and of a student, and the loss of both. */
static ty_workload *make_taught(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 1, (uint64_t[]){22});
    int branches[2];
    for (int b = 0; b < 2; b++) {
        int x = network_slice(w, -1, 11 * (uint64_t)b, 11);
        x = network_simple(w, network_linear(w, x, 8, true), TY_LAYER_TANH);
        branches[b] = network_linear(w, x, 5, true);
        for (uint32_t l = 0; l < w->layer_count; l++)
            w->layers[l].is_frozen = b == 0 || w->layers[l].is_frozen;
    }
    network_loss(w, network_join(w, TY_LAYER_CONCAT, branches, 2));
    w->teacher = (ty_teacher){.labelled = 2, .every = 3, .decay = 0.9, .consistency = 7};
    return w;
}

static const struct network {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch;
} networks[] = {
    {"linear", network_make_activations, 6},
    {"lenet", network_make_small_lenet, 5},
    {"residual", network_make_residual, 3},
    {"gpt", network_make_small_gpt, 2},
    {"encoder", make_encoder, 3},
    {"types alone", make_types_alone, 2},
    {"llama", make_llama, 3},
    {"experts", make_experts, 3},
    {"shared experts", make_shared_experts, 3},
    {"sums", make_sums, 4},
    {"frozen", make_frozen, 2},
    {"frozen prefix", make_frozen_prefix, 3},
    {"batch norm", make_batch_norm, 4},
    {"lstm", make_lstm, 3},
    {"gnmt", make_gnmt, 3},
    {"encoder-decoder", make_encoder_decoder, 3},
    {"qwen", make_qwen, 2},
    {"rotary", make_rotary, 2},
    {"dlrm", network_make_dlrm, 6},
    {"taught", make_taught, 6},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* ---- Data and comparison ---- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53 * 2 - 1;
}

typedef struct batch {
    uint64_t samples, inputs, labels, classes;
    float *input;
    int32_t *tokens, *label;
} batch;

static batch batch_new(const ty_workload *w, uint64_t samples, uint64_t seed)
{
    const ty_layer *loss = &w->layers[w->layer_count - 1];
    const ty_shape *logits = &w->layers[loss->inputs[0]].output;
    batch b = {samples, ty_shape_elements(&w->input),
               0,       logits->dimensions[logits->dimension_count - 1],
               NULL,    NULL,
               NULL};
    uint64_t state = seed * 2654435761u + 1;
    b.labels = ty_shape_elements(logits) / b.classes;
    b.classes = ty_class_count(w);
    b.input = calloc(samples * b.inputs, sizeof *b.input);
    b.tokens = calloc(samples * b.inputs, sizeof *b.tokens);
    b.label = calloc(samples * b.labels, sizeof *b.label);
    for (uint64_t i = 0; i < samples * b.inputs; i++) {
        b.input[i] = (float)uniform(&state);
        b.tokens[i] = (int32_t)(next_random(&state) % b.classes);
    }
    for (uint32_t l = 0; l < w->layer_count; l++) { /* indices of tables */
        const uint64_t *a = w->layers[l].attributes;
        for (uint64_t i = 0; w->layers[l].kind == TY_LAYER_EMBEDDING_BAG && i < samples; i++)
            for (uint64_t r = a[TY_FIRST_ROW]; r < a[TY_FIRST_ROW] + a[TY_ROWS]; r++)
                b.input[i * b.inputs + r] = (float)(next_random(&state) % a[TY_VOCABULARY]);
    }
    for (uint64_t i = 0; i < samples * b.labels; i++)
        b.label[i] = (int32_t)(next_random(&state) % b.classes);
    for (uint64_t i = 0; i < samples && ty_workload_has_teacher(w); i++)
        b.label[i] = i % w->teacher.every == 0 ? b.label[i] : TY_NO_LABEL;
    return b;
}

static void batch_free(batch *b)
{
    free(b->input);
    free(b->tokens);
    free(b->label);
}

/* Weights larger and less regular than the initial ones, so that no path is close to zero. */
static void parameters_spread(ty_stage_device *stage, uint64_t seed)
{
    uint64_t state = seed + 77;
    for (uint64_t i = 0; i < cpu->parameter_count(stage); i++)
        cpu->parameters(stage)[i] += 0.2f * (float)uniform(&state);
}

static ty_stage_device *stage_open(const ty_stage_options *options)
{
    ty_error error = {0};
    ty_stage_device *stage = NULL;
    cr_assert_eq(cpu->open(options, &stage, &error), TY_OK, "%s", error.message);
    return stage;
}

static ty_stage_options whole(const ty_workload *w, uint32_t samples, uint32_t slots)
{
    return (ty_stage_options){.workload = w,
                              .layer_count = w->layer_count,
                              .micro_batch_size = samples,
                              .slots = slots,
                              .loss_scale = 0.25,
                              .seed = 42,
                              .tied_layer = TY_NO_LAYER};
}

static void stage_fill(ty_stage_device *stage, uint32_t slot, const batch *b)
{
    if (cpu->tokens(stage, slot) != NULL)
        memcpy(cpu->tokens(stage, slot), b->tokens, b->samples * b->inputs * sizeof *b->tokens);
    else if (cpu->input(stage, slot) != NULL)
        memcpy(cpu->input(stage, slot), b->input, b->samples * b->inputs * sizeof *b->input);
    if (cpu->labels(stage, slot) != NULL)
        memcpy(cpu->labels(stage, slot), b->label, b->samples * b->labels * sizeof *b->label);
}

static void forward(ty_stage_device *stage, const ty_stage_options *o, uint32_t slot)
{
    ty_error error = {0};
    cr_assert_eq(cpu->forward(stage, slot, o->first_layer, o->layer_count, &error), TY_OK, "%s",
                 error.message);
}

static void backward(ty_stage_device *stage, const ty_stage_options *o, uint32_t slot,
                     bool is_first)
{
    ty_error error = {0};
    cr_assert_eq(cpu->backward(stage, slot, o->first_layer, o->layer_count, is_first, &error),
                 TY_OK, "%s", error.message);
}

static reference *reference_of(const ty_workload *w, const batch *b, const float *parameters,
                               double loss_scale)
{
    reference *r = reference_new(w, b->samples);
    double *input = calloc(b->samples * b->inputs, sizeof *input);
    for (uint64_t i = 0; i < b->samples * b->inputs; i++)
        input[i] = (double)b->input[i];
    for (uint64_t i = 0; i < r->parameter_count; i++)
        r->parameters[i] = (double)parameters[i];
    r->input = input;
    r->tokens = b->tokens;
    r->labels = b->label;
    r->loss_scale = loss_scale;
    return r;
}

static void reference_drop(reference *r)
{
    free((void *)(uintptr_t)r->input);
    reference_free(r);
}

/* Largest difference over the largest magnitude, layer by layer. */
static void expect_close(const char *what, const ty_workload *w, const uint64_t *offsets,
                         const float *found, const double *expected, double tolerance)
{
    for (uint32_t l = 0; l < w->layer_count; l++) {
        double scale = 0, worst = 0;
        for (uint64_t i = offsets[l]; i < offsets[l + 1]; i++) {
            scale = fmax(scale, fabs(expected[i]));
            cr_assert(isfinite(found[i]), "%s: %s is not finite", what, w->layers[l].name);
            worst = fmax(worst, fabs((double)found[i] - expected[i]));
        }
        cr_assert_leq(worst, tolerance * scale, "%s: %s (%s): off by %g of %g", what,
                      w->layers[l].name, ty_layer_kind_name(w->layers[l].kind), worst, scale);
    }
}

/* ---- Validation of the reference ---- */

Test(kernels, reference_gradients_are_finite_differences)
{
    for (int n = 0; n < NETWORKS; n++) {
        ty_workload *w = networks[n].make();
        ty_stage_options o = whole(w, 2, 1);
        ty_stage_device *stage = stage_open(&o);
        batch b = batch_new(w, 2, 5);
        reference *r;
        uint64_t state = 99;
        double largest = 0;
        parameters_spread(stage, 1);
        r = reference_of(w, &b, cpu->parameters(stage), 1);
        reference_forward(r);
        reference_backward(r);
        for (uint64_t i = 0; i < r->parameter_count; i++)
            largest = fmax(largest, fabs(r->gradients[i]));
        for (int trial = 0; trial < 60; trial++) {
            uint64_t i = next_random(&state) % r->parameter_count;
            double step = 1e-6, kept = r->parameters[i], above, below, slope;
            uint32_t layer = 0;
            while (r->offsets[layer + 1] <= i)
                layer++;
            if (w->layers[layer].is_frozen)
                continue;
            r->parameters[i] = kept + step;
            reference_forward(r);
            above = r->loss_sum;
            r->parameters[i] = kept - step;
            reference_forward(r);
            below = r->loss_sum;
            r->parameters[i] = kept;
            slope = (above - below) / (2 * step);
            cr_assert_leq(fabs(slope - r->gradients[i]), 1e-6 * largest + 1e-8,
                          "%s: parameter %lu of %s: slope %g, gradient %g", networks[n].name, i,
                          w->layers[layer].name, slope, r->gradients[i]);
        }
        reference_drop(r);
        batch_free(&b);
        cpu->close(stage);
        network_free(w);
    }
}

/* ---- The backend against the reference ---- */

Test(kernels, gradients_and_loss_match_the_reference)
{
    for (int n = 0; n < NETWORKS; n++) {
        ty_workload *w = networks[n].make();
        ty_stage_options o = whole(w, networks[n].batch, 1);
        ty_stage_device *stage = stage_open(&o);
        batch b = batch_new(w, networks[n].batch, 3);
        reference *r;
        double loss;
        uint64_t correct, labels;
        parameters_spread(stage, 2);
        r = reference_of(w, &b, cpu->parameters(stage), o.loss_scale);
        cr_assert_eq(cpu->parameter_count(stage), r->parameter_count, "%s", networks[n].name);
        stage_fill(stage, 0, &b);
        forward(stage, &o, 0);
        backward(stage, &o, 0, true);
        reference_forward(r);
        reference_backward(r);
        cpu->loss(stage, 0, &loss, &correct, &labels);
        cr_assert_float_eq(loss, r->loss_sum, 1e-5 * r->loss_sum, "%s: loss %g, expected %g",
                           networks[n].name, loss, r->loss_sum);
        cr_assert_eq(correct, r->correct, "%s", networks[n].name);
        cr_assert_eq(labels, b.samples * b.labels, "%s", networks[n].name);
        expect_close(networks[n].name, w, r->offsets, cpu->gradients(stage), r->gradients, 1e-5);
        reference_drop(r);
        batch_free(&b);
        cpu->close(stage);
        network_free(w);
    }
}

/* Two micro-batches of the model, in as many steps, against the sum of the reference's gradients.
 * @return the stage, to be closed */
static ty_stage_device *micro_batches_compare(const char *name, const ty_workload *w,
                                              uint32_t micro_batch, int steps)
{
    const ty_stage_options o = whole(w, micro_batch, 2);
    ty_stage_device *stage = stage_open(&o);
    batch b[2] = {batch_new(w, micro_batch, 11), batch_new(w, micro_batch, 12)};
    reference *r[2];

    parameters_spread(stage, 3);
    for (int step = 0; step < steps; step++) {
        for (uint32_t s = 0; s < 2; s++) {
            stage_fill(stage, s, &b[s]);
            forward(stage, &o, s);
        }
        backward(stage, &o, 0, true);
        backward(stage, &o, 1, false);
    }
    for (int s = 0; s < 2; s++) {
        r[s] = reference_of(w, &b[s], cpu->parameters(stage), o.loss_scale);
        reference_forward(r[s]);
        reference_backward(r[s]);
    }
    for (uint64_t i = 0; i < r[0]->parameter_count; i++)
        r[0]->gradients[i] += r[1]->gradients[i];
    expect_close(name, w, r[0]->offsets, cpu->gradients(stage), r[0]->gradients, 1e-5);
    for (int s = 0; s < 2; s++) {
        reference_drop(r[s]);
        batch_free(&b[s]);
    }
    return stage;
}

/* Two micro-batches in two slots, alternating as in a pipeline, accumulate; is_first resets the
 * sum. */
Test(kernels, micro_batches_accumulate_from_the_first_on)
{
    for (int n = 0; n < NETWORKS; n++) {
        ty_workload *w = networks[n].make();

        cpu->close(micro_batches_compare(networks[n].name, w, networks[n].batch, 2));
        network_free(w);
    }
}

/* Images large enough for chunks of one sample, after a value that three convolutions read, one of
 * them with strides. */
static ty_workload *make_pooled(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 60, 60});
    int stem = network_conv2d(w, -1, 4, 3, 3, 1, 1, 1, true), x, y, z;
    x = network_simple(w, network_conv2d(w, stem, 40, 3, 3, 1, 1, 1, true), TY_LAYER_RELU);
    x = network_simple(w, network_pool(w, x, 3, 2, 1, false), TY_LAYER_FLATTEN);
    y = network_pool(w, network_conv2d(w, stem, 40, 3, 3, 1, 1, 2, false), 2, 2, 0, true);
    y = network_simple(w, network_simple(w, y, TY_LAYER_RELU), TY_LAYER_FLATTEN);
    z = network_simple(w, network_conv2d(w, stem, 33, 5, 3, 2, 1, 1, true), TY_LAYER_FLATTEN);
    x = network_linear(w, x, 4, true);
    y = network_linear(w, y, 4, true);
    z = network_linear(w, z, 4, true);
    network_loss(w, network_join(w, TY_LAYER_ADD, (int[]){x, y, z}, 3));
    return w;
}

/* As above; and at most one chunk of the pooled images exists at a time. */
Test(kernels, images_are_pooled_in_pieces)
{
    const uint64_t image_bytes = sizeof(float) * 40 * 60 * 60;
    ty_workload *w = make_pooled();
    ty_stage_device *stage = micro_batches_compare("pooled", w, 3, 1);

    cr_assert_lt(cpu->memory_bytes(stage) - 2 * cpu->parameter_count(stage) * sizeof(float),
                 2 * 3 * (2 + 1) * image_bytes, "all images of two slots and their gradients");
    cpu->close(stage);
    network_free(w);
}

/* Backward of a slot layer by layer, each segment after its recomputation. */
static void backward_in_segments(ty_stage_device *stage, const ty_stage_options *o, uint32_t slot,
                                 bool is_first)
{
    const ty_recompute_range range = {o->first_layer, o->layer_count, o->recompute,
                                      o->recompute_blocks};
    uint32_t *starts = calloc(o->workload->layer_count, sizeof *starts);
    uint32_t end = o->first_layer + o->layer_count;
    ty_error error = {0};

    for (uint32_t s = ty_recompute_segments(o->workload, &range, starts); s-- > 0;) {
        cr_assert_eq(cpu->recompute(stage, slot, starts[s], end - starts[s], &error), TY_OK, "%s",
                     error.message);
        for (uint32_t l = end; l-- > starts[s];)
            cr_assert_eq(cpu->backward(stage, slot, l, 1, is_first, &error), TY_OK);
        end = starts[s];
    }
    free(starts);
}

/* Recomputation of any kind, and a backward pass layer by layer, change nothing, not even
 * rounding. */
Test(kernels, recompute_and_pieces_give_the_same_bits)
{
    static const struct {
        ty_recompute kind;
        uint32_t blocks;
    } kinds[] = {{TY_RECOMPUTE_FULL, 0},
                 {TY_RECOMPUTE_FULL, 1},
                 {TY_RECOMPUTE_FULL, 2},
                 {TY_RECOMPUTE_OPERATOR, 0},
                 {TY_RECOMPUTE_ELEMENTWISE, 0}};

    for (int n = 0; n < NETWORKS * (int)(sizeof kinds / sizeof kinds[0]); n++) {
        const struct network *net = &networks[n % NETWORKS];
        ty_workload *w = net->make();
        ty_stage_options o = whole(w, net->batch, 2);
        ty_stage_device *plain = stage_open(&o), *other;
        batch b[2] = {batch_new(w, o.micro_batch_size, 21), batch_new(w, o.micro_batch_size, 22)};
        o.recompute = kinds[n / NETWORKS].kind;
        o.recompute_blocks = kinds[n / NETWORKS].blocks;
        other = stage_open(&o);
        for (uint32_t s = 0; s < 2; s++) {
            stage_fill(plain, s, &b[s]);
            stage_fill(other, s, &b[s]);
            forward(plain, &o, s);
            forward(other, &o, s);
        }
        for (uint32_t s = 0; s < 2; s++) {
            double loss[2];
            uint64_t correct[2], labels;
            backward(plain, &o, s, s == 0);
            backward_in_segments(other, &o, s, s == 0);
            cpu->loss(plain, s, &loss[0], &correct[0], &labels);
            cpu->loss(other, s, &loss[1], &correct[1], &labels);
            cr_assert(loss[0] == loss[1] && correct[0] == correct[1], "%s", net->name);
        }
        cr_assert_arr_eq(cpu->gradients(plain), cpu->gradients(other),
                         cpu->parameter_count(plain) * sizeof(float), "%s", net->name);
        if (o.recompute_blocks == 0 && o.recompute == TY_RECOMPUTE_FULL)
            cr_assert_lt(cpu->memory_bytes(other), cpu->memory_bytes(plain), "%s", net->name);
        batch_free(&b[0]);
        batch_free(&b[1]);
        cpu->close(plain);
        cpu->close(other);
        network_free(w);
    }
}

/* ---- Two stages ---- */

static bool crosses(const ty_workload *w, uint32_t cut, uint32_t *tied)
{
    *tied = TY_NO_LAYER;
    for (uint32_t l = cut; l < w->layer_count; l++)
        if (w->layers[l].tied_to < cut)
            *tied = l;
    return *tied != TY_NO_LAYER;
}

/* Bytes of all tensors at a cut, or only of those that may have a gradient. */
static uint64_t message_bytes(const ty_workload *w, uint64_t samples, uint32_t cut,
                              bool is_gradient)
{
    uint32_t producers[64], count = ty_workload_crossing(w, cut, producers);
    uint64_t floats = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!is_gradient || producers[i] >= ty_workload_first_backward(w))
            floats += ty_shape_elements(&w->layers[producers[i]].output) * samples;
    return floats * sizeof(float);
}

static void two_stages(const struct network *network, const ty_workload *w, uint32_t cut)
{
    ty_stage_options o = whole(w, network->batch, 2), first = o, second = o;
    ty_stage_device *one = stage_open(&o), *a, *z;
    batch b = batch_new(w, network->batch, 31);
    uint64_t rest = cpu->parameter_count(one), offset, count, tied_count = 0;
    uint32_t user;
    double *expected, loss[2];
    uint64_t correct[2], labels;
    float *joined;

    first.layer_count = cut;
    second.first_layer = cut;
    second.layer_count = w->layer_count - cut;
    if (crosses(w, cut, &user)) {
        second.tied_layer = user;
        first.tied_layer = w->layers[user].tied_to;
    }
    a = stage_open(&first);
    z = stage_open(&second);
    cpu->slice(a, 0, cut, &offset, &count);
    cr_assert_eq(offset, 0);
    cpu->tied_slice(a, &offset, &tied_count);
    cr_assert_eq(count + tied_count, cpu->parameter_count(a));
    cr_assert(tied_count == 0 || offset == count);
    /* Same weights, wherever the layers are. */
    cr_assert_arr_eq(cpu->parameters(one), cpu->parameters(a) + (tied_count > 0 ? offset : 0),
                     (tied_count > 0 ? tied_count : count) * sizeof(float), "%s cut at %u",
                     network->name, cut);
    cpu->slice(z, cut, w->layer_count - cut, &offset, &count);
    cr_assert_arr_eq(cpu->parameters(one) + rest - count, cpu->parameters(z), count * sizeof(float),
                     "%s cut at %u", network->name, cut);
    if (tied_count > 0)
        cr_assert_arr_eq(cpu->parameters(z) + count, cpu->parameters(one),
                         tied_count * sizeof(float));

    stage_fill(one, 1, &b);
    forward(one, &o, 1);
    backward(one, &o, 1, true);
    stage_fill(a, 1, &b);
    forward(a, &first, 1);
    memcpy(cpu->input(z, 1), cpu->output(a, 1), message_bytes(w, network->batch, cut, false));
    stage_fill(z, 1, &(batch){b.samples, 0, b.labels, b.classes, b.input, b.tokens, b.label});
    forward(z, &second, 1);
    backward(z, &second, 1, true);
    if (cpu->input_gradient(z, 1) != NULL) {
        memcpy(cpu->output_gradient(a, 1), cpu->input_gradient(z, 1),
               message_bytes(w, network->batch, cut, true));
        backward(a, &first, 1, true);
    }
    cpu->loss(one, 1, &loss[0], &correct[0], &labels);
    cpu->loss(z, 1, &loss[1], &correct[1], &labels);
    cr_assert_float_eq(loss[0], loss[1], 1e-6 * loss[0], "%s cut at %u", network->name, cut);
    cr_assert_eq(correct[0], correct[1]);

    /* Both stages' gradients in the order of the single stage: the tied matrix comes first. */
    joined = calloc(rest, sizeof *joined);
    expected = calloc(rest, sizeof *expected);
    for (uint64_t i = 0; i < rest; i++)
        expected[i] = (double)cpu->gradients(one)[i];
    for (uint64_t i = 0; i < tied_count; i++)
        joined[i] = cpu->gradients(a)[rest - count - tied_count + i] + cpu->gradients(z)[count + i];
    memcpy(joined + tied_count, cpu->gradients(a), (rest - count - tied_count) * sizeof *joined);
    memcpy(joined + rest - count, cpu->gradients(z), count * sizeof *joined);
    {
        uint64_t offsets[64] = {0};
        for (uint32_t l = 0; l < w->layer_count; l++)
            offsets[l + 1] = offsets[l] + w->layers[l].parameter_bytes / 4;
        expect_close(network->name, w, offsets, joined, expected, 2e-6);
    }
    free(joined);
    free(expected);
    batch_free(&b);
    cpu->close(one);
    cpu->close(a);
    cpu->close(z);
}

Test(kernels, two_stages_equal_one)
{
    uint32_t cuts = 0, tied;
    for (int n = 0; n < NETWORKS; n++) {
        ty_workload *w = networks[n].make();
        for (uint32_t cut = 1; cut < w->layer_count; cut++)
            if (ty_workload_is_divisible(w, cut)) {
                two_stages(&networks[n], w, cut);
                cuts += crosses(w, cut, &tied);
            }
        network_free(w);
    }
    cr_assert_gt(cuts, 0, "no cut had a tied matrix across it");
}

/* ---- Many stages, which relay tensors that later stages read ---- */

enum { MOST_ROW = 64 };

typedef struct row { /* of stages */
    const ty_workload *workload;
    uint32_t count;
    ty_stage_options options[MOST_ROW];
    ty_stage_device *stages[MOST_ROW];
} row;

/* Stages of `stride` layers each, from the first possible cut on. */
static row row_open(const ty_workload *w, uint32_t samples, uint32_t stride, ty_recompute recompute,
                    bool splits_backward)
{
    row r = {.workload = w};
    uint32_t first = 0, end;

    for (; first < w->layer_count; first = end) {
        ty_stage_options *o = &r.options[r.count];
        for (end = first + stride; end < w->layer_count && !ty_workload_is_divisible(w, end);)
            end++;
        end = end < w->layer_count ? end : w->layer_count;
        *o = whole(w, samples, 2);
        o->first_layer = first;
        o->layer_count = end - first;
        o->recompute = recompute;
        o->splits_backward = splits_backward;
        r.stages[r.count++] = stage_open(o);
    }
    return r;
}

static void row_forward(const row *r, const batch *b)
{
    for (uint32_t s = 0; s < r->count; s++) {
        const uint32_t first = r->options[s].first_layer;
        const batch rest = {b->samples, 0, b->labels, b->classes, b->input, b->tokens, b->label};
        stage_fill(r->stages[s], 1, s == 0 ? b : &rest);
        if (s > 0)
            memcpy(cpu->input(r->stages[s], 1), cpu->output(r->stages[s - 1], 1),
                   message_bytes(r->workload, b->samples, first, false));
        forward(r->stages[s], &r->options[s], 1);
    }
}

static void row_backward(const row *r, const batch *b)
{
    ty_error error = {0};

    for (uint32_t s = r->count; s-- > 0;) {
        const ty_stage_options *o = &r->options[s];
        const uint32_t end = o->first_layer + o->layer_count;
        if (s + 1 < r->count && cpu->output_gradient(r->stages[s], 1) != NULL)
            memcpy(cpu->output_gradient(r->stages[s], 1), cpu->input_gradient(r->stages[s + 1], 1),
                   message_bytes(r->workload, b->samples, end, true));
        if (o->recompute == TY_RECOMPUTE_FULL)
            cr_assert_eq(cpu->recompute(r->stages[s], 1, o->first_layer, o->layer_count, &error),
                         TY_OK, "%s", error.message);
        if (!o->splits_backward) {
            backward(r->stages[s], o, 1, true);
            continue;
        }
        cr_assert_eq(cpu->backward_input(r->stages[s], 1, o->first_layer, o->layer_count, &error),
                     TY_OK, "%s", error.message);
        cr_assert_eq(
            cpu->backward_weight(r->stages[s], 1, o->first_layer, o->layer_count, true, &error),
            TY_OK, "%s", error.message);
    }
}

static void row_equals_one(const struct network *network, const ty_workload *w, row r)
{
    ty_stage_options o = whole(w, network->batch, 2);
    ty_stage_device *one = stage_open(&o);
    batch b = batch_new(w, network->batch, 37);
    uint64_t offsets[MOST_ROW + 1] = {0}, correct[2], labels;
    float *joined = calloc(cpu->parameter_count(one) + 1, sizeof *joined);
    double *expected = calloc(cpu->parameter_count(one) + 1, sizeof *expected), loss[2];

    stage_fill(one, 1, &b);
    forward(one, &o, 1);
    backward(one, &o, 1, true);
    row_forward(&r, &b);
    row_backward(&r, &b);
    cpu->loss(one, 1, &loss[0], &correct[0], &labels);
    cpu->loss(r.stages[r.count - 1], 1, &loss[1], &correct[1], &labels);
    cr_assert_float_eq(loss[0], loss[1], 1e-6 * loss[0], "%s in %u stages", network->name, r.count);
    for (uint32_t l = 0; l < w->layer_count; l++)
        offsets[l + 1] = offsets[l] + w->layers[l].parameter_bytes / 4;
    for (uint64_t i = 0; i < cpu->parameter_count(one); i++)
        expected[i] = (double)cpu->gradients(one)[i];
    for (uint32_t s = 0; s < r.count; s++)
        memcpy(joined + offsets[r.options[s].first_layer], cpu->gradients(r.stages[s]),
               cpu->parameter_count(r.stages[s]) * sizeof *joined);
    expect_close(network->name, w, offsets, joined, expected, 2e-5);
    for (uint32_t s = 0; s < r.count; s++)
        cpu->close(r.stages[s]);
    free(joined);
    free(expected);
    batch_free(&b);
    cpu->close(one);
}

/* In chains of stages of one to three layers, without recomputation, with both kinds of it, and
 * with backward in two parts.
 * @return tensors at cuts in addition to the first of each */
static uint32_t rows_equal_one(const struct network *network, const ty_workload *w)
{
    uint32_t beside = 0;

    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].tied_to != TY_NO_LAYER)
            return 0; /* two_stages_equal_one has these */
    for (uint32_t stride = 1; stride <= 3; stride++) {
        row_equals_one(network, w, row_open(w, network->batch, stride, TY_RECOMPUTE_NONE, false));
        row_equals_one(network, w, row_open(w, network->batch, stride, TY_RECOMPUTE_FULL, false));
        row_equals_one(network, w,
                       row_open(w, network->batch, stride, TY_RECOMPUTE_SELECTIVE, false));
        row_equals_one(network, w, row_open(w, network->batch, stride, TY_RECOMPUTE_NONE, true));
    }
    for (uint32_t cut = 1; cut < w->layer_count; cut++)
        if (ty_workload_is_divisible(w, cut))
            beside += ty_workload_crossing(w, cut, NULL) - 1;
    return beside;
}

Test(kernels, rows_of_stages_equal_one)
{
    uint32_t beside = 0;
    for (int n = 0; n < NETWORKS; n++) {
        ty_workload *w = networks[n].make();
        beside += rows_equal_one(&networks[n], w);
        network_free(w);
    }
    cr_assert_gt(beside, 0, "no tensor was relayed");
}

/* ---- Random graphs: buffer sharing, fusion and in-place layers must not change results ---- */

static ty_workload *make_random(uint64_t seed)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){2, 3, 7});
    uint64_t state = seed * 7919 + 1;
    int layers = 3 + (int)(next_random(&state) % 10), sum[32], unread = 0;
    network_conv2d(w, -1, 2, 3, 3, 1, 1, 1, true);
    for (int l = 1; l < layers; l++) {
        int input = (int)(next_random(&state) % (uint64_t)l), other;
        if (next_random(&state) % 2)
            input = l - 1;
        other = (int)(next_random(&state) % (uint64_t)l);
        if (other < input) {
            int kept = input;
            input = other;
            other = kept;
        }
        switch (next_random(&state) % 8) {
        case 0:
            network_linear(w, other, 7, true);
            break;
        case 1:
            network_conv2d(w, other, 2, 3, 3, 1, 1, 2, false);
            break;
        case 2:
            network_simple(w, other, TY_LAYER_RELU);
            break;
        case 3:
            network_simple(w, other, TY_LAYER_GELU);
            break;
        case 4:
            network_simple(w, other, TY_LAYER_LAYER_NORM);
            break;
        case 5:
            network_pool(w, other, 3, 1, 1, next_random(&state) % 2);
            break;
        default:
            network_join(w, TY_LAYER_ADD, (int[]){input, other}, 2);
            break;
        }
        w->layers[l].is_frozen = next_random(&state) % 8 == 0;
    }
    for (int l = 0; l < layers; l++) {
        bool is_read = false;
        for (uint32_t k = 0; k < w->layer_count; k++)
            for (uint32_t i = 0; i < w->layers[k].input_count; i++)
                is_read = is_read || w->layers[k].inputs[i] == (uint32_t)l;
        if (!is_read)
            sum[unread++] = l;
    }
    network_join(w, TY_LAYER_ADD, sum, (uint32_t)unread);
    network_loss(w, network_simple(w, (int)w->layer_count - 1, TY_LAYER_FLATTEN));
    return w;
}

Test(kernels, random_graphs_match_the_reference)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        char name[32];
        struct network network = {name, NULL, 2};
        ty_workload *w = make_random(seed);
        ty_stage_options o = whole(w, 2, 1);
        ty_stage_device *stage = stage_open(&o);
        batch b = batch_new(w, 2, seed);
        reference *r;
        snprintf(name, sizeof name, "random graph %lu", seed);
        parameters_spread(stage, seed);
        r = reference_of(w, &b, cpu->parameters(stage), o.loss_scale);
        stage_fill(stage, 0, &b);
        forward(stage, &o, 0);
        backward(stage, &o, 0, true);
        reference_forward(r);
        reference_backward(r);
        expect_close(name, w, r->offsets, cpu->gradients(stage), r->gradients, 1e-3);
        for (uint32_t cut = 1; cut < w->layer_count; cut++)
            if (ty_workload_is_divisible(w, cut))
                two_stages(&network, w, cut);
        rows_equal_one(&network, w);
        reference_drop(r);
        batch_free(&b);
        cpu->close(stage);
        network_free(w);
    }
}

/* ---- Initial weights ---- */

Test(kernels, initial_weights_have_the_documented_deviations)
{
    ty_workload *w = network_make_mlp(), *gpt = network_make_gpt(3, 128, 2, 8, 64);
    ty_stage_options o = whole(w, 1, 1), p = whole(gpt, 1, 1);
    ty_stage_device *mlp = stage_open(&o), *transformer = stage_open(&p);
    const struct {
        const char *what;
        const float *at;
        uint64_t count;
        double deviation;
    } rows[] = {
        {"first", cpu->parameters(mlp), 1024 * 784, sqrt(1.0 / (3 * 784))},
        {"bias", cpu->parameters(mlp) + 1024 * 784, 1024, 0},
        {"last", cpu->parameters(mlp) + 1024 * 785 + 1024 * 1025, 10240, sqrt(1.0 / (3 * 1024))},
        {"embedding", cpu->parameters(transformer), 64 * 128, 0.02},
        {"projection", cpu->parameters(transformer) + 72 * 128 + 256, 384 * 128, 0.02},
        {"output projection", cpu->parameters(transformer) + 72 * 128 + 256 + 384 * 128, 128 * 128,
         0.02 / sqrt(6)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sum = 0, squares = 0, n = (double)rows[i].count, deviation;
        for (uint64_t k = 0; k < rows[i].count; k++) {
            sum += (double)rows[i].at[k];
            squares += (double)rows[i].at[k] * (double)rows[i].at[k];
        }
        deviation = sqrt(squares / n);
        /* Five standard errors of mean and deviation. */
        cr_assert_leq(fabs(sum / n), 5 * rows[i].deviation / sqrt(n), "%s", rows[i].what);
        cr_assert_leq(fabs(deviation - rows[i].deviation), 5 * rows[i].deviation / sqrt(2 * n),
                      "%s: %g, expected %g", rows[i].what, deviation, rows[i].deviation);
    }
    cpu->close(mlp);
    cpu->close(transformer);
    network_free(w);
    network_free(gpt);
}

Test(kernels, another_seed_gives_other_weights)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = whole(w, 1, 1);
    ty_stage_device *a = stage_open(&o), *b = stage_open(&o), *c;
    uint64_t bytes = cpu->parameter_count(a) * sizeof(float);
    o.seed++;
    c = stage_open(&o);
    cr_assert_arr_eq(cpu->parameters(a), cpu->parameters(b), bytes);
    cr_assert_arr_neq(cpu->parameters(a), cpu->parameters(c), bytes);
    cpu->close(a);
    cpu->close(b);
    cpu->close(c);
    network_free(w);
}

/* ---- Optimizers ---- */

Test(kernels, optimizers_match_their_definitions)
{
    const ty_optimizer rows[] = {
        {TY_OPTIMIZER_SGD, 0.1, 0, 0, 0, 0, 0},
        {TY_OPTIMIZER_SGD, 0.1, 0, 0, 0, 0, 0.01},
        {TY_OPTIMIZER_SGD, 0.05, 0.9, 0, 0, 0, 0.001},
        {TY_OPTIMIZER_ADAMW, 0.01, 0, 0.9, 0.999, 1e-8, 0},
        {TY_OPTIMIZER_ADAMW, 0.003, 0, 0.8, 0.95, 1e-6, 0.1},
    };
    enum { N = 37 };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const ty_optimizer *o = &rows[k];
        float w[N], g[N], state[2 * N] = {0};
        double W[N], m[N] = {0}, v[N] = {0};
        uint64_t random = 7;
        for (int i = 0; i < N; i++)
            W[i] = (double)(w[i] = (float)uniform(&random));
        for (uint64_t step = 1; step <= 20; step++) {
            for (int i = 0; i < N; i++) {
                double G = (double)(g[i] = (float)uniform(&random));
                if (o->kind == TY_OPTIMIZER_SGD) {
                    m[i] = o->momentum * m[i] + G + o->weight_decay * W[i];
                    W[i] -= o->learning_rate * m[i];
                } else {
                    m[i] = o->beta1 * m[i] + (1 - o->beta1) * G;
                    v[i] = o->beta2 * v[i] + (1 - o->beta2) * G * G;
                    W[i] -= o->learning_rate *
                            (m[i] / (1 - pow(o->beta1, (double)step)) /
                                 (sqrt(v[i] / (1 - pow(o->beta2, (double)step))) + o->epsilon) +
                             o->weight_decay * W[i]);
                }
            }
            ty_optimizer_step(o, step, N, w, g, state);
        }
        for (int i = 0; i < N; i++)
            cr_assert_leq(fabs((double)w[i] - W[i]), 2e-6, "optimizer %zu: %g, expected %g", k,
                          (double)w[i], W[i]);
    }
}

Test(kernels, mlp_learns_separable_data)
{
    ty_workload *w = network_make_mlp();
    ty_stage_options o = whole(w, 64, 1);
    ty_stage_device *stage;
    float *state;
    uint64_t random = 3, correct, labels;
    double loss;
    o.loss_scale = 1.0 / 64;
    stage = stage_open(&o);
    state = calloc(cpu->parameter_count(stage), sizeof *state);
    for (int b = 0; b < 64; b++) {
        int label = b % 10;
        cpu->labels(stage, 0)[b] = label;
        for (int i = 0; i < 784; i++)
            cpu->input(stage, 0)[b * 784 + i] =
                (float)uniform(&random) * 0.5f + (i / 79 == label ? 1.0f : 0.0f);
    }
    for (uint64_t step = 1; step <= 50; step++) {
        forward(stage, &o, 0);
        backward(stage, &o, 0, true);
        ty_optimizer_step(&w->optimizer, step, cpu->parameter_count(stage), cpu->parameters(stage),
                          cpu->gradients(stage), state);
    }
    cpu->loss(stage, 0, &loss, &correct, &labels);
    cr_assert_lt(loss / (double)labels, 0.01);
    cr_assert_eq(correct, labels);
    free(state);
    cpu->close(stage);
    network_free(w);
}

/* ---- Mistakes ---- */

static ty_layer *first_of(ty_workload *w, ty_layer_kind kind)
{
    for (uint32_t i = 0; i < w->layer_count; i++)
        if (w->layers[i].kind == kind)
            return &w->layers[i];
    cr_assert_fail("no %s", ty_layer_kind_name(kind));
    return NULL;
}

/* Biases by the distance between tokens of two sequences. */
static ty_workload *make_far_biases(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){6});
    int x = network_embedding(w, 9, 8, 0), memory = network_slice(w, x, 0, 4);
    x = network_cross_attention(w, network_slice(w, x, 4, 2), memory, 2, 2, 4, false);
    network_option(w, x, TY_RELATIVE_BUCKETS, 4);
    network_loss(w, network_linear(w, x, 9, true));
    return w;
}

Test(kernels, bad_options_are_refused)
{
    ty_workload *w = network_make_activations(), *gpt = network_make_small_gpt(),
                *opaque = network_make_activations();
    ty_workload *relu = network_make_small_gpt(), *cross = make_far_biases(),
                *late = network_make_small_gpt(), *biased = make_experts();
    const struct {
        const char *name;
        ty_status status;
        const char *message;
        ty_stage_options o;
    } rows[] = {
        {"no layers",
         TY_EINVAL,
         "expected a range",
         {.workload = w, .micro_batch_size = 1, .slots = 1}},
        {"too many layers",
         TY_EINVAL,
         "expected a range",
         {.workload = w,
          .first_layer = 1,
          .layer_count = w->layer_count,
          .micro_batch_size = 1,
          .slots = 1}},
        {"no samples", TY_EINVAL, "at least 1", {.workload = w, .layer_count = 2, .slots = 1}},
        {"no slots",
         TY_EINVAL,
         "at least 1",
         {.workload = w, .layer_count = 2, .micro_batch_size = 1}},
        {"unnamed tie",
         TY_EINVAL,
         "not named as tied",
         {.workload = gpt,
          .first_layer = 10,
          .layer_count = gpt->layer_count - 10,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
        {"tie elsewhere",
         TY_EINVAL,
         "tied layer 0",
         {.workload = gpt,
          .first_layer = 10,
          .layer_count = 2,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = 0}},
        {"batch behind a cut",
         TY_EINVAL,
         "reads the batch, which only stage 0 has",
         {.workload = late,
          .first_layer = 2,
          .layer_count = late->layer_count - 2,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
        {"option",
         TY_EUNSUPPORTED,
         "does not train a gated mlp with is_relu",
         {.workload = relu,
          .layer_count = relu->layer_count,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
        {"bias of a router",
         TY_EUNSUPPORTED,
         "does not train moe with has_router_bias",
         {.workload = biased,
          .layer_count = biased->layer_count,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
        {"two sequences",
         TY_EUNSUPPORTED,
         "does not train attention to another sequence with relative_buckets",
         {.workload = cross,
          .layer_count = cross->layer_count,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
        {"kind",
         TY_EUNSUPPORTED,
         "opaque",
         {.workload = opaque,
          .layer_count = 3,
          .micro_batch_size = 1,
          .slots = 1,
          .tied_layer = TY_NO_LAYER}},
    };
    opaque->layers[2].kind = TY_LAYER_OPAQUE;
    first_of(relu, TY_LAYER_MLP)->attributes[TY_IS_RELU] = 1;
    first_of(relu, TY_LAYER_MLP)->attributes[TY_IS_GATED] = 1;
    first_of(biased, TY_LAYER_MOE)->attributes[TY_HAS_ROUTER_BIAS] = 1;
    first_of(late, TY_LAYER_MLP)->input_count = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_stage_device *stage = NULL;
        ty_error error = {0};
        cr_assert_eq(cpu->open(&rows[i].o, &stage, &error), rows[i].status, "%s: %s", rows[i].name,
                     error.message);
        cr_assert_null(stage);
        cr_assert_not_null(strstr(error.message, rows[i].message), "%s: %s", rows[i].name,
                           error.message);
    }
    w->layers[1].parameter_bytes += 4;
    {
        ty_stage_options o = whole(w, 1, 1);
        ty_stage_device *stage = NULL;
        ty_error error = {0};
        cr_assert_eq(cpu->open(&o, &stage, &error), TY_EINVAL);
        cr_assert_not_null(strstr(error.message, "parameter bytes"), "%s", error.message);
    }
    network_free(w);
    network_free(gpt);
    network_free(opaque);
    network_free(relu);
    network_free(biased);
    network_free(cross);
    network_free(late);
}

Test(kernels, bad_batches_are_refused)
{
    ty_workload *w = network_make_small_gpt();
    ty_stage_options o = whole(w, 2, 1);
    ty_stage_device *stage = stage_open(&o);
    ty_error error = {0};
    cpu->tokens(stage, 0)[3] = 31;
    cr_assert_eq(cpu->forward(stage, 0, 0, w->layer_count, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "token 31 at place 3"), "%s", error.message);
    cpu->tokens(stage, 0)[3] = 30;
    cpu->labels(stage, 0)[5] = -1;
    cr_assert_eq(cpu->forward(stage, 0, 0, w->layer_count, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "label -1 of row 5"), "%s", error.message);
    cr_assert_eq(cpu->forward(stage, 1, 0, w->layer_count, &error), TY_EINVAL);
    cr_assert_eq(cpu->forward(stage, 0, 1, w->layer_count, &error), TY_EINVAL);
    cr_assert_eq(cpu->backward(stage, 0, 0, w->layer_count + 1, true, &error), TY_EINVAL);
    cpu->close(stage);
    network_free(w);
}

Test(kernels, bad_indices_are_refused)
{
    static const float bad[] = {-1, 5, 2.5f, NAN, INFINITY, 1e20f};
    ty_workload *w = network_make_dlrm();
    ty_stage_options o = whole(w, 2, 1);
    ty_stage_device *stage = stage_open(&o);
    batch b = batch_new(w, 2, 11);
    ty_error error = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        stage_fill(stage, 0, &b);
        cpu->input(stage, 0)[10 + 5] = bad[i]; /* of the second sample, the second of the bag */
        cr_assert_eq(cpu->forward(stage, 0, 0, w->layer_count, &error), TY_EINVAL, "%g",
                     (double)bad[i]);
        cr_assert_not_null(strstr(error.message, "at place 5 of sample 1, expected a whole number "
                                                 "from 0 to 4"),
                           "%s", error.message);
    }
    cpu->close(stage);
    w->layers[3].attributes[TY_VOCABULARY] = (1u << 24) + 1;
    cr_assert_eq(cpu->supports(w, 0, w->layer_count, &error), TY_EUNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "found a table of 16777217 rows"), "%s",
                       error.message);
    batch_free(&b);
    network_free(w);
}

Test(kernels, every_failing_allocation_is_reported)
{
    ty_workload *w = network_make_residual();
    ty_stage_options o = whole(w, 1, 2);
    ty_stage_device *stage = NULL;
    long n = 1;
    for (; n < 100000; n++) {
        ty_error error = {0};
        ty_status status;
        ty_memory_fail_after(n);
        status = cpu->open(&o, &stage, &error);
        ty_memory_fail_after(0);
        if (status == TY_OK)
            break;
        cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, error.message);
        cr_assert_null(stage);
        cr_assert_str_not_empty(error.message);
    }
    cr_assert_gt(n, 20);
    cpu->close(stage);
    network_free(w);
}

/* Evaluation normalizes with the statistics of training: after many passes over one batch, with
 * those of that batch. */
Test(kernels, batch_norm_evaluates_with_running_statistics)
{
    ty_workload *w = make_batch_norm();
    ty_stage_options o = whole(w, 16, 1);
    ty_stage_device *stage = stage_open(&o);
    batch b = batch_new(w, 16, 3);
    double trained, before, after;
    uint64_t correct, labels, count = 0;

    parameters_spread(stage, 2);
    stage_fill(stage, 0, &b);
    cpu->set_evaluating(stage, true);
    forward(stage, &o, 0);
    cpu->loss(stage, 0, &before, &correct, &labels);
    cpu->set_evaluating(stage, false);
    for (int pass = 0; pass < 100; pass++) { /* 0.9^100 of the start is left */
        forward(stage, &o, 0);
        forward(stage, &o, 0); /* only backward moves the statistics */
        backward(stage, &o, 0, true);
    }
    cpu->loss(stage, 0, &trained, &correct, &labels);
    cpu->set_evaluating(stage, true);
    forward(stage, &o, 0);
    cpu->loss(stage, 0, &after, &correct, &labels);
    /* The population's variance is a little more than the batch's. */
    cr_assert_lt(fabs(after - trained), 0.05 * trained, "%g, %g, %g", before, trained, after);
    cr_assert_gt(fabs(before - trained), 4 * fabs(after - trained));
    cr_assert_not_null(cpu->statistics(stage, &count));
    cr_assert_eq(count, 2 * (5 + 5 + 9));
    batch_free(&b);
    cpu->close(stage);
    network_free(w);
}

/* ---- Convolutions of channels that fill no vector, against loops ---- */

#define FENCE 64 /* numbers on both sides of an array that must not change */

/* Numbers between -1 and 1 inside a fence; outputs to be overwritten have some, too. */
static float *fenced(size_t count, uint64_t *seed)
{
    float *all = malloc((count + 2 * FENCE) * sizeof *all);

    cr_assert_not_null(all);
    for (size_t i = 0; i < count + 2 * FENCE; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        all[i] = i < FENCE || i >= count + FENCE ? 12345 : (float)(*seed >> 40) * 0x1p-23f - 1;
    }
    return all + FENCE;
}

static void expect_fence(const float *array, size_t count, const char *what)
{
    for (size_t i = 0; i < FENCE; i++)
        cr_assert(array[count + i] == 12345 && array[-(ptrdiff_t)i - 1] == 12345,
                  "%s is written outside of its ends", what);
}

static void expect_same(const float *found, const double *expected, size_t count,
                        const cpu_conv_shape *s, const char *what)
{
    double worst = 0, scale = 0;

    for (size_t i = 0; i < count; i++) {
        cr_assert(isfinite(found[i]));
        worst = fmax(worst, fabs((double)found[i] - expected[i]));
        scale = fmax(scale, fabs(expected[i]));
    }
    cr_assert(worst <= 1e-5 * scale,
              "%s of %llu x %llu channels, %llu groups, kernel %llu x %llu, stride %llu, padding "
              "%llu: off by %g of %g",
              what, (unsigned long long)s->in_channels, (unsigned long long)s->out_channels,
              (unsigned long long)s->groups, (unsigned long long)s->kernel_height,
              (unsigned long long)s->kernel_width, (unsigned long long)s->stride,
              (unsigned long long)s->padding_height, worst, scale);
    expect_fence(found, count, what);
}

typedef struct conv_sums {
    double *y, *dx, *dw, *db;
} conv_sums;

static void convolve(const cpu_conv_shape *s, const float *x, const float *w, const float *bias,
                     const float *dy, conv_sums *sums)
{
    const uint64_t in = s->in_channels / s->groups, out = s->out_channels / s->groups;
    size_t at = 0;

    for (uint64_t b = 0; b < s->batch; b++)
        for (uint64_t h = 0; h < s->out_height; h++)
            for (uint64_t v = 0; v < s->out_width; v++)
                for (uint64_t o = 0; o < s->out_channels; o++, at++) {
                    double sum = (double)bias[o];
                    sums->db[o] += (double)dy[at];
                    for (uint64_t k = 0; k < s->kernel_height * s->kernel_width; k++) {
                        uint64_t line = h * s->stride + k / s->kernel_width - s->padding_height;
                        uint64_t column = v * s->stride + k % s->kernel_width - s->padding_width;
                        if (line >= s->in_height || column >= s->in_width) /* below 0, too */
                            continue;
                        for (uint64_t i = 0; i < in; i++) {
                            size_t of_x = ((b * s->in_height + line) * s->in_width + column) *
                                              s->in_channels +
                                          o / out * in + i;
                            size_t of_w = (o * in + i) * s->kernel_height * s->kernel_width + k;
                            sum += (double)x[of_x] * (double)w[of_w];
                            sums->dx[of_x] += (double)dy[at] * (double)w[of_w];
                            sums->dw[of_w] += (double)dy[at] * (double)x[of_x];
                        }
                    }
                    sums->y[at] = s->has_relu && sum < 0 ? 0 : sum;
                }
}

static void check_convolution(const cpu_conv_shape *s, uint64_t *seed)
{
    const size_t in = s->batch * s->in_height * s->in_width * s->in_channels;
    const size_t out = s->batch * s->out_height * s->out_width * s->out_channels;
    const size_t weights =
        s->out_channels * s->in_channels / s->groups * s->kernel_height * s->kernel_width;
    conv_sums sums = {calloc(out, sizeof(double)), calloc(in, sizeof(double)),
                      calloc(weights, sizeof(double)), calloc(s->out_channels, sizeof(double))};
    float *x = fenced(in, seed), *w = fenced(weights, seed), *bias = fenced(s->out_channels, seed),
          *dy = fenced(out, seed), *y = fenced(out, seed), *dx = fenced(in, seed),
          *dw = fenced(weights, seed), *db = fenced(s->out_channels, seed), *scratch;
    cpu_conv *conv = NULL;
    ty_error error = {0};

    cr_assert_eq(cpu_conv_open(s, "conv", &conv, &error), TY_OK, "%s", error.message);
    scratch = fenced(cpu_conv_scratch_bytes(conv) / sizeof *scratch, seed);
    convolve(s, x, w, bias, dy, &sums);
    cr_assert_eq(cpu_conv_forward(conv, x, w, bias, y, scratch, &error), TY_OK, "%s",
                 error.message);
    expect_same(y, sums.y, out, s, "images");
    cr_assert_eq(cpu_conv_backward_weights(conv, x, dy, dw, db, scratch, &error), TY_OK, "%s",
                 error.message);
    expect_same(dw, sums.dw, weights, s, "gradients of weights");
    expect_same(db, sums.db, s->out_channels, s, "gradients of biases");
    cr_assert_eq(cpu_conv_backward_data(conv, dy, w, dx, scratch, &error), TY_OK, "%s",
                 error.message);
    expect_same(dx, sums.dx, in, s, "gradients of images");
    expect_fence(scratch, cpu_conv_scratch_bytes(conv) / sizeof *scratch, "working memory");
    expect_fence(x, in, "x");
    expect_fence(dy, out, "dy");
    expect_fence(w, weights, "w");
    cpu_conv_close(conv);
    float *const arrays[] = {x, w, bias, dy, y, dx, dw, db, scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i] - FENCE);
    free(sums.y), free(sums.dx), free(sums.dw), free(sums.db);
}

/* oneDNN 3.7.2 loses weights during the reordering to its layout if channels do not fill blocks,
 * and sums the padding between them. */
Test(kernels, convolutions_of_any_channels)
{
    static const uint64_t channels[] = {1, 3, 8, 20, 32}, kernels[][2] = {{1, 1}, {3, 2}, {5, 5}};
    uint64_t seed = 1, count = 0;

    for (uint64_t i = 0; i < 5; i++)
        for (uint64_t o = 0; o < 5; o++)
            for (uint64_t k = 0; k < 3; k++)
                for (uint64_t variant = 0; variant < 4; variant++, count++) {
                    const uint64_t groups = variant == 3 && channels[i] % 4 == 0 ? 4 : 1;
                    cpu_conv_shape s = {.batch = 1 + variant,
                                        .groups = groups,
                                        .in_channels = channels[i],
                                        .in_height = 9,
                                        .in_width = 10,
                                        .out_channels = (5 + channels[o]) / groups * groups,
                                        .kernel_height = kernels[k][0],
                                        .kernel_width = kernels[k][1],
                                        .stride = 1 + variant % 2,
                                        .has_bias = true,
                                        .has_relu = variant >= 2,
                                        .has_weight_gradient = true,
                                        .has_input_gradient = true};
                    if (variant / 2 == 0) {
                        s.padding_height = s.kernel_height / 2;
                        s.padding_width = s.kernel_width / 2;
                    }
                    s.out_height =
                        (s.in_height + 2 * s.padding_height - s.kernel_height) / s.stride + 1;
                    s.out_width =
                        (s.in_width + 2 * s.padding_width - s.kernel_width) / s.stride + 1;
                    check_convolution(&s, &seed);
                }
    cr_assert_eq(count, 300);
}
