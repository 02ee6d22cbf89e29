/* Models in one stage, in every precision and kind of recomputation, and in several stages. */
#include "gpu_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Models ---- */

static ty_workload *make_encoder(void)
{
    return network_make_encoder(24, 3, 70, 31, true);
}

/* A vocabulary so large that rows of scores are padded further. */
static ty_workload *make_many_words(void)
{
    return network_make_encoder(24, 3, 8, 1030, true);
}

static ty_workload *make_types_alone(void)
{
    return network_make_encoder(20, 4, 7, 23, false);
}

/* Its number of hidden features lets cuBLASLt fuse the gelu. */
static ty_workload *make_rotary(void)
{
    return network_make_rotary(false);
}

static ty_workload *make_llama(void)
{
    return network_make_llama(16, false);
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

/* Both directions of a sequence in parallel, as in GNMT. */
static ty_workload *make_lstm_both(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){6});
    const int x = network_embedding(w, 23, 10, 0), there = network_lstm(w, x, 7, true);
    const int back = network_lstm(w, x, 5, true);

    w->layers[back].attributes[TY_IS_REVERSED] = 1;
    network_loss(
        w, network_linear(w, network_concat_features(w, (int[]){there, back, x}, 3), 23, true));
    return w;
}

static ty_workload *make_lstm_step(void)
{
    return make_lstm_of(1);
}

/* Norms of every head's queries and keys, as in Qwen3. */
static ty_workload *make_normed_heads(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){8});
    int x = network_embedding(w, 23, 12, 0);

    for (uint64_t kv_heads = 1; kv_heads <= 3; kv_heads += 2) {
        const int y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, kv_heads, 4,
                                        kv_heads == 3, true);
        network_option(w, y, TY_HAS_QK_NORM, 1);
        x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    }
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Two slices of a sequence that are joined later, one of them read twice; biases only in the first
 * projections, and a relu, as in Qwen2.5 and in T5. */
static ty_workload *make_slices(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){9});
    const int tokens = network_embedding(w, 23, 12, 0);
    int x = network_slice(w, tokens, 2, 7), y;

    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 1, 4, false, true);
    network_option(w, y, TY_HAS_QKV_BIAS, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 16, false, false);
    w->layers[y].attributes[TY_IS_RELU] = 1;
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    x = network_join(w, TY_LAYER_CONCAT, (int[]){x, network_slice(w, tokens, 0, 3)}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Gated experts for some tokens each; then more of them, some of which may get no tokens, with
 * biases, next to shared ones. */
static ty_workload *make_mixtures(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){19});
    int x = network_embedding(w, 23, 12, 0);

    x = network_join(
        w, TY_LAYER_ADD,
        (int[]){x, network_moe(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 2, 10, false, true)},
        2);
    x = network_join(w, TY_LAYER_ADD,
                     (int[]){x, network_moe_shared(w, network_simple(w, x, TY_LAYER_RMS_NORM), 37,
                                                   3, 6, 9, true, false)},
                     2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Cross attention, and relative position biases in both sequences, as in T5; grouped-query heads,
 * biases, and norms of queries and keys. */
static ty_workload *make_two_sequences(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){19});
    const int tokens = network_embedding(w, 23, 12, 0);
    int memory = network_slice(w, tokens, 0, 11), x = network_slice(w, tokens, 11, 8), y;

    y = network_attention(w, network_simple(w, memory, TY_LAYER_RMS_NORM), 3, 3, 4, false, false);
    network_option(w, y, TY_RELATIVE_BUCKETS, 6);
    memory = network_join(w, TY_LAYER_ADD, (int[]){memory, y}, 2);
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 1, 4, true, true);
    network_option(w, y, TY_RELATIVE_BUCKETS, 5);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    for (uint64_t kv_heads = 1; kv_heads <= 3; kv_heads += 2) {
        y = network_cross_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), memory, 3, kv_heads,
                                    4, kv_heads == 1);
        if (kv_heads == 3)
            network_option(w, y, TY_HAS_QK_NORM, 1);
        x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    }
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* Relative positions over several tiles of queries and of keys, in both directions. */
static ty_workload *make_distances(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){150});
    const int x = network_embedding(w, 23, 8, 0);
    int y = network_attention(w, x, 2, 1, 4, false, false);

    network_option(w, y, TY_RELATIVE_BUCKETS, 32);
    y = network_attention(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), 2, 2, 4, false, true);
    network_option(w, y, TY_RELATIVE_BUCKETS, 8);
    network_loss(w, network_linear(w, y, 23, true));
    return w;
}

/* Two sequences of two widths; other layers read one of them, too. */
static ty_workload *make_additive(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){17});
    const int tokens = network_embedding(w, 23, 12, 0);
    const int memory = network_slice(w, tokens, 0, 10), x = network_slice(w, tokens, 10, 7);
    int y = network_additive_attention(w, x, memory, 40);

    y = network_additive_attention(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2),
                                   network_simple(w, memory, TY_LAYER_RMS_NORM), 9);
    network_loss(w, network_linear(w, y, 23, true));
    return w;
}

/* Batch norm with fewer channels than a warp has threads and with more; groups, sums, slices and
 * concatenations of channels and of columns; a linear layer that reads rows of an image and
 * computes some, which a convolution reads. */
static ty_workload *make_images(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){3, 9, 7});
    int x = network_conv2d(w, -1, 5, 3, 2, 1, 1, 1, false), y, z;

    x = network_simple(w, network_simple(w, x, TY_LAYER_BATCH_NORM), TY_LAYER_RELU);
    y = network_simple(w, network_conv2d(w, x, 35, 1, 1, 1, 0, 1, true), TY_LAYER_BATCH_NORM);
    y = network_conv2d(w, network_simple(w, y, TY_LAYER_RELU), 35, 3, 3, 1, 1, 7, false);
    y = network_simple(w, y, TY_LAYER_BATCH_NORM);
    z = network_conv2d(w, x, 35, 1, 1, 1, 0, 1, true);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){y, z}, 2), TY_LAYER_RELU);
    y = network_slice(w, x, 3, 11);
    z = network_pool(w, network_slice(w, x, 14, 11), 3, 1, 1, true);
    y = network_concat_features(w, (int[]){y, z}, 2);
    z = network_simple(w, network_linear(w, x, 16, true), TY_LAYER_SILU);
    y = network_join(w, TY_LAYER_CONCAT, (int[]){z, y, z}, 3);
    y = network_conv2d(w, y, 6, 3, 3, 2, 0, 1, true);
    network_loss(w, network_linear(w, network_simple(w, y, TY_LAYER_FLATTEN), 10, true));
    return w;
}

/* A convolution and its norm; `is_frozen` applies to both. */
static int normed(ty_workload *w, int x, uint64_t channels, bool is_frozen)
{
    const int y = network_conv2d(w, x, channels, 3, 3, 1, 1, 1, false);
    const int z = network_simple(w, y, TY_LAYER_BATCH_NORM);

    w->layers[y].is_frozen = w->layers[z].is_frozen = is_frozen;
    return z;
}

static int rectified_sum(ty_workload *w, int a, int b)
{
    return network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){a, b}, 2), TY_LAYER_RELU);
}

/* Sums of two inputs, one from the norm right before. Variants: the norm's output is also read
 * elsewhere; the other input is another norm, or the same norm's input; no relu; frozen layers; and
 * a sum that only another sum reads. */
static ty_workload *make_normed_sums(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){3, 9, 7});
    int x = network_simple(w, normed(w, -1, 5, false), TY_LAYER_RELU), y;

    x = rectified_sum(w, x, normed(w, x, 5, false));
    y = normed(w, x, 35, false);
    x = rectified_sum(w, y, normed(w, x, 35, false));
    x = network_join(w, TY_LAYER_ADD, (int[]){x, normed(w, x, 35, false)}, 2);
    x = rectified_sum(w, x, network_simple(w, x, TY_LAYER_BATCH_NORM));
    x = rectified_sum(w, x, normed(w, x, 35, true));
    y = rectified_sum(w, x, normed(w, x, 35, false));
    x = rectified_sum(w, x, normed(w, y, 35, false));
    y = network_conv2d(w, x, 35, 1, 1, 1, 0, 1, true);
    y = network_join(w, TY_LAYER_ADD, (int[]){y, rectified_sum(w, x, normed(w, x, 35, false))}, 2);
    x = rectified_sum(w, y, normed(w, x, 35, false));
    y = network_conv2d(w, x, 2, 1, 1, 1, 0, 1, true);
    network_loss(w, network_linear(w, network_simple(w, y, TY_LAYER_FLATTEN), 10, true));
    return w;
}

typedef struct network {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch;
    bool has_choices; /* of a maximum, of experts, or by relus after several norms of few numbers:
                       * rounding decides if values are nearly equal */
    bool has_attention;
} network;

static const network networks[] = {
    {"mlp", network_make_activations, 5, false, false},
    {"lenet", network_make_small_lenet, 3, true, false},
    {"resnet", network_make_residual, 2, true, false},
    {"gpt", network_make_small_gpt, 2, false, true},
    {"encoder", make_encoder, 2, false, true},
    {"many words", make_many_words, 2, false, true},
    {"types alone", make_types_alone, 3, false, true},
    {"llama", make_llama, 3, false, true},
    {"rotary", make_rotary, 2, false, true},
    {"lstm", make_lstm, 3, false, false},
    {"lstm both ways", make_lstm_both, 3, false, false},
    {"slices", make_slices, 3, false, true},
    {"normed heads", make_normed_heads, 3, false, true},
    {"lstm of one step", make_lstm_step, 3, false, false},
    {"mixtures", make_mixtures, 3, true, false},
    {"two sequences", make_two_sequences, 3, false, true},
    {"distances", make_distances, 2, false, true},
    {"additive", make_additive, 3, false, false},
    {"images", make_images, 3, true, false},
    {"normed sums", make_normed_sums, 3, true, false},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* ---- One stage ---- */

static const double choice_tolerance = 0.3; /* in every precision except fp32 */

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

/* Same initial weights; then other weights in both, so that no bias is 0. */
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

static bool case_gradients(const network *n, const precision_case *p, ty_recompute recompute,
                           uint32_t blocks)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, n->batch, TY_PRECISION_FP32), other_o;
    ty_stage_device *one = NULL, *other = NULL;
    bool is_rough = n->has_choices && p->precision != TY_PRECISION_FP32, is_right;

    other_o = o;
    other_o.precision = p->precision;
    other_o.recompute = recompute;
    other_o.recompute_blocks = blocks;
    is_right = stage_open(cpu, &o, &one) && stage_open(gpu, &other_o, &other) &&
               weights_set(one, other) && two_passes(cpu, one, &o) &&
               two_passes(gpu, other, &other_o) && losses_compare(one, other, p->precision) &&
               gradients_compare(&o, one, other, is_rough ? choice_tolerance : p->tolerance);
    cpu->close(one);
    gpu->close(other);
    network_free(w);
    return is_right;
}

/* ---- Sharded weights ---- */

enum { SHARERS = 2 };

static bool sharer_open(const ty_stage_options *o, const ty_sharded_range *range, bool lasts,
                        const float *weights, ty_stage_device **out)
{
    const ty_sharding sharding = {.of_weights = true,
                                  .weights_last = lasts,
                                  .range_count = 1,
                                  .kept_count = 1,
                                  .ranges = range,
                                  .kept = &range->share};
    ty_stage_options sharded = *o;
    ty_error error = {0};

    sharded.is_sharded = true;
    return stage_open(gpu, &sharded, out) &&
           (gpu->memory->parameters_open(*out, &sharding, &error) == TY_OK ||
            wrong("%s", error.message)) &&
           device_write(*out, gpu->memory->kept(*out, TY_WEIGHTS, range->share.offset),
                        weights + range->share.offset, range->share.count);
}

/* All-gathers the two shards to both devices, in the precision of the passes. */
static bool sharers_gather(ty_stage_device *const *sharers, const ty_sharded_range *ranges,
                           ty_precision precision)
{
    const uint64_t size = ty_precision_bytes(precision), count = ranges[0].whole.count;
    char *host = malloc(count * size);
    void *data[SHARERS];
    ty_element element;
    ty_error error = {0};
    ty_status status = TY_OK;

    for (uint32_t m = 0; m < SHARERS && status == TY_OK; m++) {
        const uint64_t first = ranges[m].share.offset * size;

        TY_CHECK(gpu->memory->gather_begin(sharers[m], &ranges[m], &data[m], &element, &error),
                 status, done);
        if (ty_element_bytes(element) != size) {
            free(host);
            return wrong("numbers of %u bytes come together, expected %u",
                         (unsigned)ty_element_bytes(element), (unsigned)size);
        }
        status = gpu->memory->read(sharers[m], host + first, (char *)data[m] + first,
                                   ranges[m].share.count * size, &error);
    }
    for (uint32_t m = 0; m < SHARERS && status == TY_OK; m++) {
        TY_CHECK(gpu->memory->write(sharers[m], data[m], host, count * size, &error), status, done);
        status = gpu->memory->gather_end(sharers[m], &ranges[m], &error);
    }
done:
    free(host);
    return status == TY_OK || wrong("%s", error.message);
}

static bool gradients_equal(ty_stage_device *one, ty_stage_device *other)
{
    const uint64_t count = gpu->parameter_count(one);
    float *host = malloc(2 * count * sizeof *host);
    bool is_right = device_read(one, gpu->gradients(one), count, host) &&
                    device_read(other, gpu->gradients(other), count, host + count) &&
                    (memcmp(host, host + count, count * sizeof *host) == 0 ||
                     wrong("gradients differ from those with whole weights"));

    free(host);
    return is_right;
}

/* Two ranks with a shard of the weights each compute, after an all-gather, bit for bit the
 * gradients of one with all weights. Weights are multiples of 1/64, so that 16 bits represent them
 * exactly. */
static bool case_gathers(const network *n, const precision_case *p, bool lasts)
{
    ty_workload *w = n->make();
    ty_stage_options o = options_of(w, n->batch, p->precision);
    ty_stage_device *whole = NULL, *sharers[SHARERS] = {NULL};
    ty_sharded_range ranges[SHARERS];
    float *weights = NULL;
    uint64_t count, state = 5;
    bool is_right;

    o.is_deterministic = true;
    is_right = stage_open(gpu, &o, &whole);
    count = is_right ? gpu->parameter_count(whole) : 0;
    weights = calloc(count + 1, sizeof *weights);
    for (uint64_t i = 0; i < count; i++)
        weights[i] = ((float)(next_random(&state) % 33) - 16) / 64;
    is_right = is_right && device_write(whole, gpu->parameters(whole), weights, count);
    for (uint32_t m = 0; m < SHARERS && is_right; m++) {
        const uint64_t first = m * (count * 2 / 5), end = m == 0 ? count * 2 / 5 : count;

        ranges[m] = (ty_sharded_range){{0, count}, {first, end - first}, 0};
        is_right = sharer_open(&o, &ranges[m], lasts, weights, &sharers[m]);
    }
    is_right =
        is_right && sharers_gather(sharers, ranges, p->precision) && two_passes(gpu, whole, &o);
    for (uint32_t m = 0; m < SHARERS && is_right; m++)
        is_right = two_passes(gpu, sharers[m], &o) && gradients_equal(sharers[m], whole);
    for (uint32_t m = 0; m < SHARERS; m++)
        gpu->close(sharers[m]);
    gpu->close(whole);
    free(weights);
    network_free(w);
    return is_right;
}

/* ---- Stages on the device equal one ---- */

enum { MOST_STAGES = 4 };

/* A model in stages, each on a separate device. */
typedef struct stage_case {
    const char *name;
    ty_workload *(*make)(void);
    uint32_t batch, stage_count;
    uint32_t cuts[MOST_STAGES - 1]; /* first layers of the stages after the first */
    ty_precision precision;
    ty_recompute recompute;
    double tolerance;
} stage_case;

typedef struct stage_chain {
    const ty_workload *w;
    uint32_t batch, count;
    uint32_t first[MOST_STAGES + 1]; /* layers; at the end, the number of layers */
    ty_stage_device *devices[MOST_STAGES];
} stage_chain;

static uint32_t layers_of(const stage_chain *c, uint32_t s)
{
    return c->first[s + 1] - c->first[s];
}

/* Floats of a message at the cut before stage s. */
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
            is_right =
                gpu->recompute(c->devices[s], 0, c->first[s], layers_of(c, s), &error) == TY_OK;
        is_right =
            is_right &&
            (gpu->backward(c->devices[s], 0, c->first[s], layers_of(c, s), true, &error) == TY_OK ||
             wrong("%s", error.message)) &&
            (s == 0 || message_copy(c, s, true));
    }
    return is_right;
}

/* A matrix tied across stages comes after the others, so for models with one only the losses are
 * compared. */
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

/* The reference is a single stage of the CPU backend. */
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

/* Values that are read many layers later: their cuts transfer several tensors, and stages that do
 * not read them relay them; one is transferred under two names. */
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
#define IN_FP32 TY_PRECISION_FP32, TY_RECOMPUTE_NONE, 2e-5
static const stage_case stages[] = {
    {"stages mlp", network_make_activations, 5, 2, {5}, IN_FP32},
    {"stages lenet", network_make_small_lenet, 3, 2, {2}, IN_FP32},
    {"stages resnet", network_make_residual, 2, 2, {2}, IN_FP32},
    {"stages resnet, cuts inside blocks", network_make_residual, 2, 4, {4, 9, 11}, IN_FP32},
    {"stages images, cuts inside blocks", make_images, 3, 4, {2, 7, 13}, IN_FP32},
    {"stages images, cuts behind rows, fp16",
     make_images,
     3,
     3,
     {4, 15},
     TY_PRECISION_FP16,
     TY_RECOMPUTE_FULL,
     2e-2},
    {"stages normed sums, cuts around sums", make_normed_sums, 3, 4, {5, 17, 22}, IN_FP32},
    {"stages gpt", network_make_small_gpt, 2, 2, {7}, IN_FP32},
    {"stages gpt, cuts inside blocks",
     network_make_small_gpt,
     2,
     3,
     {2, 5},
     TY_PRECISION_FP32,
     TY_RECOMPUTE_SELECTIVE,
     2e-5},
    {"stages llama", make_llama, 3, 2, {4}, IN_FP32},
    {"stages lstm", make_lstm, 3, 3, {2, 4}, TY_PRECISION_FP32, TY_RECOMPUTE_FULL, 2e-5},
    {"stages lstm both ways", make_lstm_both, 3, 2, {2}, IN_FP32},
    {"stages normed heads", make_normed_heads, 3, 2, {3}, IN_FP32},
    {"stages slices", make_slices, 3, 3, {1, 6}, IN_FP32},
    {"stages mixtures", make_mixtures, 3, 3, {2, 5}, IN_FP32},
    {"stages two sequences", make_two_sequences, 3, 3, {5, 11}, IN_FP32},
    {"stages additive", make_additive, 3, 3, {3, 5}, IN_FP32},
    {"stages skips fp32", SKIPS, 4, {3, 5, 7}, IN_FP32},
    {"stages skips tf32", SKIPS, 4, {3, 5, 7}, TY_PRECISION_TF32, TY_RECOMPUTE_NONE, 1e-2},
    {"stages skips bf16", SKIPS, 4, {3, 5, 7}, TY_PRECISION_BF16, TY_RECOMPUTE_NONE, 1e-1},
    {"stages skips fp16", SKIPS, 4, {3, 5, 7}, TY_PRECISION_FP16, TY_RECOMPUTE_NONE, 2e-2},
    {"stages skips, recompute", SKIPS, 4, {4, 6, 9}, TY_PRECISION_FP32, TY_RECOMPUTE_FULL, 2e-5},
};
enum { STAGES = sizeof stages / sizeof *stages };

/* ---- All of them ---- */

void passes_run(void)
{
    static const struct {
        const char *name;
        ty_recompute kind;
        uint32_t blocks;
    } kinds[] = {{"recompute", TY_RECOMPUTE_FULL, 0},
                 {"recompute blocks of", TY_RECOMPUTE_FULL, 1},
                 {"recompute operators of", TY_RECOMPUTE_OPERATOR, 0},
                 {"recompute elements of", TY_RECOMPUTE_ELEMENTWISE, 0},
                 {"selective", TY_RECOMPUTE_SELECTIVE, 0}};
    char name[96];

    for (int n = 0; n < NETWORKS; n++)
        for (int p = 0; p < PRECISIONS; p += is_quick ? 2 : 1) {
            snprintf(name, sizeof name, "gradients %s %s", networks[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(name))
                report(name, case_gradients(&networks[n], &precisions[p], TY_RECOMPUTE_NONE, 0));
        }
    for (int n = 0; n < NETWORKS; n++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            snprintf(name, sizeof name, "%s %s", kinds[k].name, networks[n].name);
            if (is_asked(name) &&
                (kinds[k].kind != TY_RECOMPUTE_SELECTIVE || networks[n].has_attention))
                report(name, case_gradients(&networks[n], &precisions[0], kinds[k].kind,
                                            kinds[k].blocks));
        }
    }
    for (int n = 0; n < NETWORKS; n++)
        for (int p = 0; p < PRECISIONS; p += is_quick ? 2 : 1) {
            snprintf(name, sizeof name, "gathers %s %s", networks[n].name,
                     ty_precision_name(precisions[p].precision));
            if (is_asked(name))
                report(name, case_gathers(&networks[n], &precisions[p], n % 2 == 0));
        }
    for (int n = 0; n < STAGES; n++)
        if (is_asked(stages[n].name))
            report(stages[n].name, case_stages(&stages[n]));
}
