/* ty_layer_cost: kernels by hand, precedence of measured times, and its errors. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* 1 Tflop/s at 50 %, 100 GB/s at 80 %, 5 us per kernel. */
static ty_device_type simple_device(void)
{
    return (ty_device_type){.name = "simple",
                            .peak_fp32_flop_per_s = 1e12,
                            .memory_bandwidth_bytes_per_s = 1e11,
                            .memory_bytes = 1u << 30,
                            .launch_overhead_s = 5e-6,
                            .matmul_efficiency = 0.5,
                            .memory_efficiency = 0.8};
}

static ty_workload *finish(ty_builder *b)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    return w;
}

enum { FIRST, RELU, SECOND, FLATTEN, LOSS };
static ty_workload *small_network(void)
{
    ty_builder *b = ty_builder_new("small", TY_INPUT_REAL, &(ty_shape){1, {1024}});
    uint32_t x = ty_builder_linear(b, TY_BATCH, 1024, true);
    x = ty_builder_relu(b, x);
    x = ty_builder_linear(b, x, 10, false);
    x = ty_builder_flatten(b, x);
    ty_builder_loss(b, x);
    return finish(b);
}

static void check_close(const char *name, double found, double expected)
{
    cr_assert(fabs(found - expected) <= 1e-12 * expected, "%s: %.15g, not %.15g", name, found,
              expected);
}

Test(layer_cost, roofline_by_hand)
{
    static const struct {
        const char *name;
        uint32_t layer, samples;
        double forward_s, backward_s;
    } rows[] = {
        /* Bound by arithmetic: 64 x 2 x 1024 x 1024 flop; backward has no gradient of the batch. */
        {"wide", FIRST, 64, 134217728 / 5e11 + 5e-6, 134217728 / 5e11 + 10e-6},
        /* Bound by memory: 1024 x 1024 weights and 2 x 1024 activations of 4 bytes, in one product
         * per direction: there is no gradient of the batch. */
        {"one sample", FIRST, 1, (4194304 + 8192) / 8e10 + 5e-6, (4194304 + 8192) / 8e10 + 10e-6},
        {"elementwise", RELU, 64, 64 * 8192 / 8e10 + 5e-6, 1.5 * 64 * 8192 / 8e10 + 5e-6},
        /* 64 x 1024 numbers in, 1024 x 10 weights, 64 x 10 numbers out. */
        {"narrow", SECOND, 64, (64 * 4136 + 40960) / 8e10 + 5e-6,
         2 * (64 * 4136 + 40960) / 8e10 + 10e-6},
        {"nothing to do", FLATTEN, 64, 0, 0},
    };
    ty_workload *w = small_network();
    ty_device_type device = simple_device();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double forward_s, backward_s;
        ty_provenance provenance = TY_MEASURED;
        ty_error error = {0};
        cr_assert_eq(ty_layer_cost(w, rows[i].layer, rows[i].samples, &device, NULL, &forward_s,
                                   &backward_s, &provenance, &error),
                     TY_OK, "%s: %s", rows[i].name, error.message);
        check_close(rows[i].name, forward_s, rows[i].forward_s);
        check_close(rows[i].name, backward_s, rows[i].backward_s);
        cr_assert_eq(provenance, TY_DATASHEET, "%s", rows[i].name);
    }
    ty_workload_free(w);
}

/* Twice the rates and half the overhead halve the time of every layer of the zoo's shapes. */
Test(layer_cost, narrow_products_by_hand)
{
    ty_workload *w = small_network();
    ty_device_type device = simple_device();
    const double flop = 134217728, bytes_per_s = 8e10;
    double forward_s, backward_s;
    ty_provenance provenance;
    ty_error error;

    device.peak_fp16_flop_per_s = 4e12;
    device.peak_fp8_flop_per_s = 8e12;
    device.fp8_efficiency = 0.25;
    device.product_edge = 16;
    ty_workload_set_precision(w, TY_PRECISION_BF16);
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 64, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_OK);
    check_close("edges", forward_s,
                flop / 2e12 * (1 + 16.0 / 64) * (1 + 16.0 / 1024) * (1 + 16.0 / 1024) + 5e-6);
    device.product_edge = 0;
    ty_workload_set_precision(w, TY_PRECISION_FP8);
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 64, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_OK);
    /* The batch is cast to fewer bits, 3 bytes per number; backward does so twice. */
    check_close("forward", forward_s, flop / 2e12 + 3 * 65536 / bytes_per_s + 5e-6);
    check_close("backward", backward_s, flop / 2e12 + 2 * 3 * 65536 / bytes_per_s + 10e-6);
    device.fp8_efficiency = 0; /* not known: as products */
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 64, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_OK);
    check_close("as products", forward_s, flop / 4e12 + 3 * 65536 / bytes_per_s + 5e-6);
    ty_workload_set_precision(w, TY_PRECISION_FP4);
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 64, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_EUNSUPPORTED);
    cr_assert(strstr(error.message, "in fp4") != NULL, "%s", error.message);
    ty_workload_free(w);
}

/* Every kind of the newer families costs the products that it counts: on a device with unlimited
 * memory bandwidth, seconds are proportional to flop. */
Test(layer_cost, newer_layers_cost_their_products)
{
    enum { SAMPLES = 8 };
    ty_builder *b = ty_builder_new("newer", TY_INPUT_TOKEN, &(ty_shape){1, {32}});
    uint32_t x = ty_builder_embedding(b, TY_BATCH, 10, 64, 0);
    ty_device_type device = simple_device();
    ty_workload *w;

    device.memory_bandwidth_bytes_per_s = 1e30;
    device.launch_overhead_s = 0;
    ty_builder_set_next(b, TY_WINDOW, 8);
    x = ty_builder_attention(b, x, 4, 2, 16, false, false);
    ty_builder_set_next(b, TY_HAS_SINKS, 1);
    ty_builder_set_next(b, TY_HAS_GATE, 1);
    x = ty_builder_attention(b, x, 4, 2, 16, false, false);
    for (int has_query_latents = 0; has_query_latents < 2; has_query_latents++) {
        if (has_query_latents)
            ty_builder_set_next(b, TY_QUERY_RANK, 24);
        ty_builder_set_next(b, TY_KV_RANK, 12);
        ty_builder_set_next(b, TY_ROTARY_SIZE, 4);
        ty_builder_set_next(b, TY_CHOSEN_ROWS, 6);
        ty_builder_set_next(b, TY_INDEX_HEADS, 2);
        ty_builder_set_next(b, TY_INDEX_HEAD_SIZE, 10);
        x = ty_builder_attention(b, x, 4, 4, 16, false, false);
    }
    ty_builder_set_next(b, TY_SHARED_FEATURES, 40);
    ty_builder_set_next(b, TY_HAS_GATE, 1);
    ty_builder_set_next(b, TY_LATENT_FEATURES, 16);
    x = ty_builder_moe(b, x, 4, 2, 48, true, false);
    ty_builder_set_next(b, TY_HEADS, 4);
    ty_builder_set_next(b, TY_GROUPS, 2);
    x = ty_builder_state_space(b, x, 128, 16, 4, false);
    ty_builder_set_next(b, TY_STEP_RANK, 8);
    x = ty_builder_state_space(b, x, 128, 16, 4, false);
    x = ty_builder_gated_delta(b, x, 4, 2, 16, 16, 4);
    ty_builder_set_next(b, TY_IS_SHARED, 1);
    x = ty_builder_mlp(b, x, 128, true, false);
    w = finish(b);
    cr_assert_eq(w->layer_count, 10);
    for (uint32_t l = 1; l < w->layer_count; l++) {
        const ty_layer *layer = &w->layers[l];
        double forward_s, backward_s;
        ty_provenance provenance;
        cr_assert_eq(
            ty_layer_cost(w, l, SAMPLES, &device, NULL, &forward_s, &backward_s, &provenance, NULL),
            TY_OK);
        cr_expect(fabs(forward_s * 5e11 / SAMPLES - layer->forward_flop) <=
                      1e-9 * layer->forward_flop,
                  "%s (%u): %g flop are priced, %g counted", layer->name, l,
                  forward_s * 5e11 / SAMPLES, layer->forward_flop);
        cr_expect(fabs(backward_s * 5e11 / SAMPLES - layer->backward_flop) <=
                      1e-9 * layer->backward_flop,
                  "%s (%u), backward: %g flop are priced, %g counted", layer->name, l,
                  backward_s * 5e11 / SAMPLES, layer->backward_flop);
    }
    ty_workload_free(w);
}

Test(layer_cost, scales_with_the_device)
{
    static const char *const names[] = {"lenet", "resnet50", "gpt-tiny"};
    ty_device_type slow = simple_device(), fast = slow;

    fast.peak_fp32_flop_per_s *= 2;
    fast.memory_bandwidth_bytes_per_s *= 2;
    fast.launch_overhead_s /= 2;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ty_workload *w = NULL;
        cr_assert_eq(ty_workload_open(names[i], &w, NULL), TY_OK);
        for (uint32_t layer = 0; layer < w->layer_count; layer++) {
            double slow_s[2], fast_s[2];
            ty_provenance provenance;
            cr_assert_eq(
                ty_layer_cost(w, layer, 8, &slow, NULL, &slow_s[0], &slow_s[1], &provenance, NULL),
                TY_OK);
            cr_assert_eq(
                ty_layer_cost(w, layer, 8, &fast, NULL, &fast_s[0], &fast_s[1], &provenance, NULL),
                TY_OK);
            check_close(w->layers[layer].name, 2 * fast_s[0], slow_s[0]);
            check_close(w->layers[layer].name, 2 * fast_s[1], slow_s[1]);
            cr_assert(slow_s[0] >= 8 * w->layers[layer].forward_flop / 5e11, "%s: above the peak",
                      w->layers[layer].name);
        }
        ty_workload_free(w);
    }
}

/* An embedding reads only the rows of its tokens, for any table size; the output layer that shares
 * the table reads all of it. */
Test(layer_cost, tables_and_ties)
{
    ty_device_type device = simple_device();
    double table_s[2], output_s[2];

    for (int large = 0; large < 2; large++) {
        uint64_t vocabulary = large ? 400000 : 200000;
        ty_builder *b = ty_builder_new("tied", TY_INPUT_TOKEN, &(ty_shape){1, {1}});
        uint32_t embedding = ty_builder_embedding(b, TY_BATCH, vocabulary, 64, 0);
        ty_workload *w;
        ty_provenance provenance;
        double backward_s;
        ty_builder_tied_linear(b, embedding, embedding);
        w = finish(b);
        cr_assert_eq(
            ty_layer_cost(w, 0, 1, &device, NULL, &table_s[large], &backward_s, &provenance, NULL),
            TY_OK);
        cr_assert_eq(
            ty_layer_cost(w, 1, 1, &device, NULL, &output_s[large], &backward_s, &provenance, NULL),
            TY_OK);
        check_close("output", output_s[large],
                    ((double)vocabulary * 64 * 4 + 4 * (64 + (double)vocabulary)) / 8e10 + 5e-6);
        ty_workload_free(w);
    }
    cr_assert_eq(table_s[0], table_s[1]);
}

Test(layer_cost, measured_times_come_first)
{
    ty_workload *w = small_network();
    ty_device_type device = simple_device();
    ty_layer_time times[2] = {{.micro_batch = 8, .forward_s = 0.25, .backward_s = 0.5},
                              {.micro_batch = 16, .forward_s = 0.5, .backward_s = 1}};
    ty_profile profile = {.layer_time_count = 2, .layer_times = times};
    char *signature = NULL;
    double forward_s, backward_s;
    ty_provenance provenance = TY_DATASHEET;

    cr_assert_eq(ty_layer_signature(w, FIRST, &signature, NULL), TY_OK);
    times[0].signature = times[1].signature = signature;
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 12, &device, &profile, &forward_s, &backward_s, &provenance, NULL),
        TY_OK);
    check_close("forward", forward_s, 0.375);
    check_close("backward", backward_s, 0.75);
    cr_assert_eq(provenance, TY_MEASURED);
    cr_assert_eq(
        ty_layer_cost(w, FIRST, 8, NULL, &profile, &forward_s, &backward_s, &provenance, NULL),
        TY_OK, "needs no device");
    cr_assert_eq(
        ty_layer_cost(w, SECOND, 8, &device, &profile, &forward_s, &backward_s, &provenance, NULL),
        TY_OK);
    cr_assert_eq(provenance, TY_DATASHEET, "not measured");
    ty_free(signature);
    ty_workload_free(w);
}

Test(layer_cost, opaque_layers_have_their_own_times)
{
    ty_layer layer = {.name = "imported",
                      .kind = TY_LAYER_OPAQUE,
                      .tied_to = TY_NO_LAYER,
                      .output = {1, {4}},
                      .measured_forward_s = 0.5,
                      .measured_backward_s = 0.75};
    ty_workload w = {
        .name = "w", .element_bytes = 4, .input = {1, {4}}, .layer_count = 1, .layers = &layer};
    double forward_s, backward_s;
    ty_provenance provenance;

    cr_assert_eq(ty_layer_cost(&w, 0, 4, NULL, NULL, &forward_s, &backward_s, &provenance, NULL),
                 TY_OK);
    cr_assert(forward_s == 2 && backward_s == 3, "%g and %g", forward_s, backward_s);
    cr_assert_eq(provenance, TY_CALIBRATED);
}

/* A kind without measured times is costed by its flop and bytes like any other; one without either
 * is free. */
Test(layer_cost, opaque_layers_without_times_have_a_roofline)
{
    const ty_device_type device = {.name = "d",
                                   .peak_fp32_flop_per_s = 100,
                                   .memory_bandwidth_bytes_per_s = 10,
                                   .matmul_efficiency = 1,
                                   .memory_efficiency = 1};
    ty_layer layer = {.name = "untimed",
                      .kind = TY_LAYER_OPAQUE,
                      .tied_to = TY_NO_LAYER,
                      .output = {1, {4}},
                      .forward_flop = 400,
                      .backward_flop = 800};
    ty_workload w = {
        .name = "w", .element_bytes = 4, .input = {1, {4}}, .layer_count = 1, .layers = &layer};
    double forward_s, backward_s;
    ty_provenance provenance;

    cr_assert_eq(ty_layer_cost(&w, 0, 2, &device, NULL, &forward_s, &backward_s, &provenance, NULL),
                 TY_OK);
    cr_assert(forward_s == 8 && backward_s == 16, "%g and %g", forward_s, backward_s);
    cr_assert_eq(provenance, TY_DATASHEET);
    layer.forward_flop = layer.backward_flop = 0;
    cr_assert_eq(ty_layer_cost(&w, 0, 2, NULL, NULL, &forward_s, &backward_s, &provenance, NULL),
                 TY_OK);
    cr_assert(forward_s == 0 && backward_s == 0, "%g and %g", forward_s, backward_s);
}

Test(layer_cost, refuses_what_it_cannot_know)
{
    ty_workload *w = small_network();
    ty_device_type device = simple_device();
    double forward_s = -1, backward_s = -1;
    ty_provenance provenance = TY_CALIBRATED;
    ty_error error = {0};

    cr_assert_eq(
        ty_layer_cost(w, 9, 1, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_EINVAL);
    cr_assert(strstr(error.message, "found layer 9") != NULL, "%s", error.message);
    cr_assert_eq(
        ty_layer_cost(w, 0, 0, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_EINVAL);
    cr_assert_eq(ty_layer_cost(w, 0, 1, NULL, NULL, &forward_s, &backward_s, &provenance, &error),
                 TY_EINVAL);
    cr_assert(strstr(error.message, "layer linear1: not in the profile") != NULL, "%s",
              error.message);
    w->precision = TY_PRECISION_BF16; /* unsupported by the device */
    cr_assert_eq(
        ty_layer_cost(w, 0, 1, &device, NULL, &forward_s, &backward_s, &provenance, &error),
        TY_EUNSUPPORTED);
    cr_assert(strstr(error.message, "device simple: has no peak rate") != NULL, "%s",
              error.message);
    cr_assert(forward_s == -1 && backward_s == -1 && provenance == TY_CALIBRATED);
    ty_workload_free(w);
}

/* ---- Convolutions with several library algorithms
 * ------------------------------------------------ */

/* The simple device, with 0.4 of the peak in implicit products: 4e11 flop/s, 8e10 bytes/s. */
static ty_device_type choosing_device(void)
{
    ty_device_type device = simple_device();
    device.convolution_efficiency = 0.4;
    device.launch_overhead_s = 0;
    return device;
}

typedef struct window_case {
    const char *name;
    uint64_t in_channels, out_channels, size, kernel, stride, padding, groups;
    uint32_t samples;
    double forward_s, backward_s;
} window_case;

static ty_workload *one_convolution(const window_case *c)
{
    ty_builder *b =
        ty_builder_new("c", TY_INPUT_REAL, &(ty_shape){3, {c->in_channels, c->size, c->size}});
    uint32_t x = ty_builder_conv2d(b, TY_BATCH, c->in_channels, &(ty_window){1, 1, 1, 0, 0},
                                   c->in_channels, false);
    ty_window window = {c->kernel, c->kernel, c->stride, c->padding, c->padding};
    ty_builder_conv2d(b, x, c->out_channels, &window, c->groups, false);
    return finish(b);
}

/* Times by hand. The weight gradient of as few as 32,000 weights runs at half the rate. */
Test(layer_cost, convolutions_by_hand)
{
    static const window_case rows[] = {
        /* 2 x 128 x 128 flop for each of 10 x 28 x 28 pixels, 16,384 weights. */
        {"1 x 1", 128, 128, 28, 1, 1, 0, 1, 10, 256901120 / 4e11,
         256901120 / 4e11 * (1 + 48384 / 16384.0)},
        /* 32 channels leave half of a block idle; the gradient of the input uses all of it. */
        {"narrow", 128, 32, 28, 1, 1, 0, 1, 10, 64225280 / 4e11 * 2,
         64225280 / 4e11 * (1 + 36096 / 4096.0)},
        /* Each of 128 groups computes one channel, with special kernels that are bound by memory
         * bandwidth. */
        {"depthwise", 128, 128, 28, 1, 1, 0, 128, 10, (2 * 10 * 128 * 784 * 4 + 128 * 4) / 8e10, 0},
        /* A stride leaves 0.85 of the rate: 2 x 64 x 64 x 9 flop for 10 x 14 x 14 pixels. */
        {"strided", 64, 64, 28, 3, 2, 1, 1, 10, 144506880 / 4e11 / 0.85,
         144506880 / 4e11 / 0.85 * (1 + 68864 / 36864.0)},
        /* Tiles of 4 x 4 from 6 x 6: a quarter of the products, 1 + 2 x 36/16 times the traffic. */
        {"Winograd", 512, 512, 28, 3, 1, 1, 1, 10,
         36993761280 / 4 / 4e11 + 5.5 * 2 * 10 * 512 * 784 * 4 / 8e10, 0},
        /* 7 x 7 pixels are computed as 8 x 8. */
        {"Winograd, 7 x 7", 512, 512, 7, 3, 1, 1, 1, 10,
         (2312110080 / 4 / 4e11 + 5.5 * 2 * 10 * 512 * 49 * 4 / 8e10) * 64 / 49, 0},
        /* 5 x 5: 64 products for 16 outputs instead of 400, 1 + 2 x 4 times the traffic. */
        {"Winograd, 5 x 5", 256, 256, 28, 5, 1, 2, 1, 10,
         25690112000 / 6.25 / 4e11 + 9.0 * 2 * 10 * 256 * 784 * 4 / 8e10, 0},
    };
    const ty_device_type device = choosing_device();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = one_convolution(&rows[i]);
        double forward_s, backward_s;
        ty_provenance provenance;
        cr_assert_eq(ty_layer_cost(w, 1, rows[i].samples, &device, NULL, &forward_s, &backward_s,
                                   &provenance, NULL),
                     TY_OK);
        check_close(rows[i].name, forward_s, rows[i].forward_s);
        cr_expect_eq(ty_winograd_saving(&w->layers[1]) > 1,
                     strncmp(rows[i].name, "Winograd", 8) == 0, "%s", rows[i].name);
        if (rows[i].backward_s > 0)
            check_close(rows[i].name, backward_s, rows[i].backward_s);
        cr_assert(backward_s > forward_s, "%s: backward has two products", rows[i].name);
        ty_workload_free(w);
    }
}

/* The chosen algorithm is never slower than plain products, and nothing changes if the rate is
 * unknown or numbers have two bytes. */
Test(layer_cost, convolutions_where_there_is_no_choice)
{
    ty_device_type device = choosing_device(), plain = device;
    ty_workload *w = NULL;

    plain.convolution_efficiency = 0;
    device.peak_fp16_flop_per_s = plain.peak_fp16_flop_per_s = 1e12;
    cr_assert_eq(ty_workload_open("resnet50", &w, NULL), TY_OK);
    for (uint32_t layer = 0; layer < w->layer_count; layer++) {
        double a[2], b[2];
        ty_provenance provenance;
        w->precision = TY_PRECISION_BF16;
        cr_assert_eq(ty_layer_cost(w, layer, 4, &device, NULL, &a[0], &a[1], &provenance, NULL),
                     TY_OK);
        cr_assert_eq(ty_layer_cost(w, layer, 4, &plain, NULL, &b[0], &b[1], &provenance, NULL),
                     TY_OK);
        cr_assert_eq(a[0], b[0], "%s", w->layers[layer].name);
        cr_assert_eq(a[1], b[1], "%s", w->layers[layer].name);
        w->precision = TY_PRECISION_FP32;
        if (w->layers[layer].kind == TY_LAYER_CONV2D)
            continue;
        cr_assert_eq(ty_layer_cost(w, layer, 4, &device, NULL, &a[0], &a[1], &provenance, NULL),
                     TY_OK);
        cr_assert_eq(ty_layer_cost(w, layer, 4, &plain, NULL, &b[0], &b[1], &provenance, NULL),
                     TY_OK);
        cr_assert_eq(a[0], b[0], "%s", w->layers[layer].name);
    }
    ty_workload_free(w);
}
