/* The builder against figures computed by hand, its mistakes, and failing allocations. */
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct expected {
    const char *name;
    uint64_t parameters; /* numbers; bytes are 4 times that, here and below */
    double forward_flop, backward_flop;
    uint64_t output, stash, traffic;
    uint32_t kernels;
} expected;

static void check_layers(const ty_workload *w, const expected *rows, uint32_t count)
{
    cr_assert_eq(w->layer_count, count, "%u layers", w->layer_count);
    for (uint32_t i = 0; i < count; i++) {
        const ty_layer *l = &w->layers[i];
        const expected *e = &rows[i];
        cr_assert_str_eq(l->name, e->name);
        cr_assert_eq(l->parameter_bytes, 4 * e->parameters, "%s: parameter bytes %llu", e->name,
                     (unsigned long long)l->parameter_bytes);
        cr_assert_eq(l->forward_flop, e->forward_flop, "%s: forward %g", e->name, l->forward_flop);
        cr_assert_eq(l->backward_flop, e->backward_flop, "%s: backward %g", e->name,
                     l->backward_flop);
        cr_assert_eq(l->output_bytes, 4 * e->output, "%s: output bytes %llu", e->name,
                     (unsigned long long)l->output_bytes);
        cr_assert_eq(l->stash_bytes, 4 * e->stash, "%s: stash bytes %llu", e->name,
                     (unsigned long long)l->stash_bytes);
        cr_assert_eq(l->traffic_bytes, 4 * e->traffic, "%s: traffic bytes %llu", e->name,
                     (unsigned long long)l->traffic_bytes);
        cr_assert_eq(l->kernel_count, e->kernels, "%s: kernels %u", e->name, l->kernel_count);
    }
}

static ty_workload *finish(ty_builder *b)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_OK, "%s", error.message);
    return w;
}

/* One image of 6 x 6 through a 3 x 3 convolution to 2 channels, and so on. */
Test(builder, image_quantities)
{
    static const expected rows[] = {
        /* 2 x (9 + 1); 72 outputs x 9 multiply-adds; no gradient of the batch */
        {"conv2d1", 20, 1296, 1296, 72, 72, 36 + 72, 1},
        {"relu1", 0, 0, 0, 72, 0, 144, 1}, /* in place */
        {"pool1", 0, 0, 0, 18, 18, 72 + 18, 1},
        {"flatten1", 0, 0, 0, 18, 0, 0, 0},
        {"output", 95, 180, 360, 5, 5, 23, 1},
        {"softmax_cross_entropy1", 0, 0, 0, 1, 2, 10, 1},
    };
    ty_builder *b = ty_builder_new("image", TY_INPUT_REAL, &(ty_shape){3, {1, 6, 6}});
    uint32_t x = ty_builder_conv2d(b, TY_BATCH, 2, &(ty_window){3, 3, 1, 1, 1}, 1, true);
    ty_workload *w;
    x = ty_builder_relu(b, x);
    x = ty_builder_pool(b, x, &(ty_window){2, 2, 2, 0, 0}, false);
    x = ty_builder_flatten(b, x);
    ty_builder_name_next(b, "output");
    x = ty_builder_linear(b, x, 5, true);
    ty_builder_loss(b, x);
    w = finish(b);
    check_layers(w, rows, 6);
    cr_assert_eq(ty_workload_stash_bytes(w, 0, 6), 4 * (72 + 18 + 5 + 2));
    cr_assert_eq(w->sample_bytes, 4 * 37);
    ty_workload_free(w);
}

/* Two steps of 3 features through an LSTM of 4: 16 gates; then layers without formulas. */
Test(builder, recurrent_and_opaque_quantities)
{
    static const expected rows[] = {
        /* 16 x (3 + 4 + 2); 2 x 2 x 16 x 7 forward; backward without the gradient of the batch,
         * which would be 2 x 2 x 16 x 3; stored: 16 gates and 4 cells per step; written and read */
        {"lstm1", 144, 448, 704, 8, 8 + 40, 6 + 8 + 80, 3},
        {"opaque1", 10, 100, 250, 5, 5, 8 + 5, 1},
        {"opaque2", 0, 0, 0, 5, 5, 0, 1},
        {"opaque3", 0, 0, 0, 5, 0, 0, 0},
        {"opaque4", 0, 0, 0, 1, 1, 0, 1},
    };
    const ty_opaque known = {
        .output = {1, {5}}, .parameter_bytes = 40, .forward_flop = 100, .backward_flop = 250};
    const ty_opaque timed = {.output = {1, {5}}, .measured_forward_s = 0.5, .is_timed = true};
    const ty_opaque view = {.output = {1, {5}}, .is_view = true};
    const ty_opaque last = {.output = {1, {1}}, .is_timed = true};
    ty_builder *b = ty_builder_new("steps", TY_INPUT_REAL, &(ty_shape){2, {2, 3}});
    uint32_t x = ty_builder_lstm(b, TY_BATCH, 4, true), y;
    ty_workload *w;

    x = ty_builder_opaque(b, &x, 1, &known);
    x = ty_builder_opaque(b, &x, 1, &timed);
    y = ty_builder_opaque(b, &x, 1, &view);
    ty_builder_opaque(b, (uint32_t[]){y, x}, 2, &last);
    w = finish(b);
    check_layers(w, rows, 5);
    cr_assert_eq(w->layers[2].measured_forward_s, 0.5);
    cr_assert_eq(w->layers[4].inputs[0], x);
    ty_workload_free(w);
}

/* Three tokens, vocabulary 5, 4 features; 2 query heads of size 2 share one key-value head. */
Test(builder, sequence_quantities)
{
    static const expected rows[] = {
        {"embedding1", 20 + 12, 0, 0, 12, 12, 3 + 36, 1},
        {"layer_norm1", 8, 0, 0, 12, 12 + 6, 24, 1},
        /* projections 4 x 8 and 4 x 4, biases 8 and 4; forward: 2*3*4*8 to project, 2 x 2*2*9*2 for
         * scores and context, 2*3*4*4 out; stored: 3 x 8, probabilities 18, 3 x 4 */
        {"attention1", 48 + 12, 192 + 144 + 96, 2 * (192 + 144 + 96), 12, 12 + 54,
         24 + 2 * 54 + 2 * 18, 5},
        {"add1", 0, 0, 0, 12, 12, 36, 1},
        {"mlp1", 48 + 10, 288, 2 * 288, 12, 12 + 36, 24 + 72, 3},
        {"linear1", 0, 120, 240, 15, 15, 27, 1},
        {"softmax_cross_entropy1", 0, 0, 0, 1, 1 + 3, 30, 1},
    };
    ty_builder *b = ty_builder_new("sequence", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    uint32_t embedding = ty_builder_embedding(b, TY_BATCH, 5, 4, 3), x;
    ty_workload *w;
    x = ty_builder_layer_norm(b, embedding);
    x = ty_builder_attention(b, x, 2, 1, 2, true, true);
    x = ty_builder_add(b, (uint32_t[]){x, embedding}, 2);
    x = ty_builder_mlp(b, x, 6, true, false);
    x = ty_builder_tied_linear(b, x, embedding);
    ty_builder_loss(b, x);
    w = finish(b);
    check_layers(w, rows, 7);
    cr_assert_eq(w->layers[5].tied_to, 0);
    cr_assert_eq(w->layers[3].inputs[0], 0, "inputs of an add are put in order");
    cr_assert_eq(w->tokens_per_sample, 3);
    ty_workload_free(w);
}

/* Layers not covered above: groups, stride, averages, concatenation, norms, gates. */
Test(builder, remaining_quantities)
{
    static const expected images[] = {
        /* 4 x (1 x 9), 4 x 2 x 2 outputs of 9 multiply-adds each */
        {"conv2d1", 36, 288, 288, 16, 16, 50 + 16, 1},
        {"batch_norm1", 8, 0, 0, 16, 16 + 8, 48, 1},
        {"relu1", 0, 0, 0, 16, 16, 32, 1}, /* not in place: its input has two readers */
        {"concat1", 0, 0, 0, 32, 32, 64, 1},
        {"pool1", 0, 0, 0, 8, 8, 40, 1},
    };
    static const expected sequences[] = {
        {"embedding1", 20, 0, 0, 12, 12, 3 + 24, 1},
        {"rms_norm1", 4, 0, 0, 12, 12 + 3, 24, 1},
        {"mlp1", 72, 432, 2 * 432, 12, 12 + 54, 24 + 108, 4},
        {"gelu1", 0, 0, 0, 12, 12, 24, 1},
        {"silu1", 0, 0, 0, 12, 12, 24, 1},
    };
    ty_builder *b = ty_builder_new("images", TY_INPUT_REAL, &(ty_shape){3, {2, 5, 5}});
    uint32_t x = ty_builder_conv2d(b, TY_BATCH, 4, &(ty_window){3, 3, 2, 0, 0}, 2, false), y;
    ty_workload *w;
    x = ty_builder_batch_norm(b, x);
    y = ty_builder_relu(b, x);
    x = ty_builder_concat(b, (uint32_t[]){x, y}, 2);
    ty_builder_global_pool(b, x);
    w = finish(b);
    check_layers(w, images, 5);
    ty_workload_free(w);

    b = ty_builder_new("sequences", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    x = ty_builder_embedding(b, TY_BATCH, 5, 4, 0);
    x = ty_builder_rms_norm(b, x);
    x = ty_builder_mlp(b, x, 6, false, true);
    x = ty_builder_gelu(b, x);
    ty_builder_silu(b, x);
    w = finish(b);
    check_layers(w, sequences, 5);
    ty_workload_free(w);
}

/* Optional attributes, each against the same layer worked out by hand: 3 tokens of 4 features. */
Test(builder, optional_attributes)
{
    static const expected rows[] = {
        {"embedding1", 4 * (5 + 3 + 2), 0, 0, 12, 12, 3 + 4 * 12, 1},
        /* as sequence_quantities' attention, but biases of 4, 2 and 2, two norms of 2, a table of 3
         * distances for 2 heads; the inputs of the norms, 3 x 4 and 3 x 2, are stored */
        {"attention1", 48 + 8 + 4 + 6, 432, 864, 12, 12 + 54 + 18, 24 + 2 * 72 + 2 * 18, 7},
        /* the same, fused: 3 x 2 sums instead of 18 probabilities, and no pass over scores */
        {"attention2", 48 + 12, 432, 864, 12, 12 + 42, 24 + 2 * 42, 3},
        /* latents of 5 and 6 + 1, 2 heads of 3 (1 rotated) with values of 2: 4 x (5 + 7 + 4) and 5
         * x 6 and 6 x 2 x (2 + 2) and norms of 5 and 6. Flop 2*3*4*12 and 2*3*(30 + 48), scores and
         * context 2*18*5, output 2*3*4*4. Stored: queries 6, context 4, latents 2 x 5 and 2 x 6,
         * keys and values 10 */
        {"attention3", 64 + 30 + 48 + 11, 288 + 468 + 180 + 96, 2 * 1032, 12,
         12 + 3 * (6 + 4 + 10 + 10 + 12) + 6, 24 + 2 * 132, 8},
        {"mlp1", 48, 288, 576, 12, 12 + 18, 24 + 36, 3}, /* hidden ones once */
        /* router 4 x 3 + 3; 3 experts of 5 and a shared one of 6, three matrices each; a token is
         * in 2 x 5 + 6 hidden features. Stored: 3 scores, 3 x 16 hidden, 2 copies before and
         * after */
        {"moe1", 15 + 3 * 4 * 21, 72 + 1152, 2 * 1224, 12, 12 + 3 * 51 + 48, 24 + 2 * 201, 12},
        {"moe2", 12 + 2 * 4 * 15 + 15 + 12, 72 + 240, 624, 12, 12 + 3 * 13 + 24, 24 + 2 * 63, 7},
        {"slice1", 0, 0, 0, 8, 8, 16, 1},
        {"tanh1", 0, 0, 0, 8, 8, 16, 1},
        /* 2 queries over 3 keys, 2 heads of 2: products of 2 x 4 x 4 and 3 x 4 x 8 and 2 x 4 x 4 */
        {"attention4", 64, 64 + 192 + 96 + 64, 832, 8, 8 + 2 * 8 + 3 * 8 + 12, 20 + 8 + 2 * 52 + 24,
         6},
        {"linear1", 5, 80, 160, 10, 10, 18, 1},
    };
    ty_builder *b = ty_builder_new("sequence", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    uint32_t embedding, memory, x;
    ty_workload *w;
    ty_builder_set_next(b, TY_TOKEN_TYPES, 2);
    embedding = ty_builder_embedding(b, TY_BATCH, 5, 4, 3);
    ty_builder_set_next(b, TY_HAS_QKV_BIAS, 1);
    ty_builder_set_next(b, TY_HAS_QK_NORM, 1);
    ty_builder_set_next(b, TY_RELATIVE_BUCKETS, 3);
    x = ty_builder_attention(b, embedding, 2, 1, 2, false, true);
    ty_builder_set_next(b, TY_IS_FUSED, 1);
    x = ty_builder_attention(b, x, 2, 1, 2, true, true);
    ty_builder_set_next(b, TY_IS_FUSED, 1);
    ty_builder_set_next(b, TY_QUERY_RANK, 5);
    ty_builder_set_next(b, TY_KV_RANK, 6);
    ty_builder_set_next(b, TY_ROTARY_SIZE, 1);
    ty_builder_set_next(b, TY_VALUE_HEAD_SIZE, 2);
    x = ty_builder_attention(b, x, 2, 2, 3, false, true);
    ty_builder_set_next(b, TY_IS_RELU, 1);
    x = ty_builder_mlp(b, x, 6, false, false);
    ty_builder_set_next(b, TY_SHARED_FEATURES, 6);
    ty_builder_set_next(b, TY_HAS_ROUTER_BIAS, 1);
    x = ty_builder_moe(b, x, 3, 2, 5, false, true);
    memory = ty_builder_moe(b, x, 3, 1, 5, true, false);
    x = ty_builder_slice(b, memory, 1, 2);
    x = ty_builder_tanh(b, x);
    x = ty_builder_cross_attention(b, x, memory, 2, 2, 2, false);
    ty_builder_tied_linear_with_bias(b, x, embedding);
    w = finish(b);
    check_layers(w, rows, sizeof rows / sizeof rows[0]);
    cr_assert_eq(w->layers[9].inputs[0], memory);
    ty_workload_free(w);
}

/* Layers of GNMT in addition to forward LSTM layers. */
static ty_workload *build_newer(bool is_frozen)
{
    ty_builder *b = ty_builder_new("newer", TY_INPUT_TOKEN, &(ty_shape){1, {6}});
    uint32_t x = ty_builder_embedding(b, TY_BATCH, 10, 8, 0);

    ty_builder_name_next(b, "windowed");
    ty_builder_set_next(b, TY_WINDOW, 2);
    ty_builder_set_next(b, TY_HAS_SINKS, 1);
    ty_builder_set_next(b, TY_HAS_GATE, 1);
    ty_builder_set_next(b, TY_HAS_WIDE_QK_NORM, 1);
    x = ty_builder_attention(b, x, 2, 1, 4, false, true);
    ty_builder_name_next(b, "sparse");
    ty_builder_set_next(b, TY_QUERY_RANK, 4);
    ty_builder_set_next(b, TY_KV_RANK, 2);
    ty_builder_set_next(b, TY_ROTARY_SIZE, 1);
    ty_builder_set_next(b, TY_CHOSEN_ROWS, 3);
    ty_builder_set_next(b, TY_INDEX_HEADS, 2);
    ty_builder_set_next(b, TY_INDEX_HEAD_SIZE, 5);
    x = ty_builder_attention(b, x, 2, 2, 4, false, true);
    ty_builder_name_next(b, "latent_moe");
    ty_builder_set_next(b, TY_SHARED_FEATURES, 5);
    ty_builder_set_next(b, TY_HAS_GATE, 1);
    ty_builder_set_next(b, TY_LATENT_FEATURES, 2);
    x = ty_builder_moe(b, x, 4, 2, 3, false, false);
    ty_builder_name_next(b, "mamba2");
    ty_builder_set_next(b, TY_HEADS, 4);
    ty_builder_set_next(b, TY_GROUPS, 2);
    x = ty_builder_state_space(b, x, 16, 4, 3, false);
    ty_builder_name_next(b, "mamba");
    ty_builder_set_next(b, TY_STEP_RANK, 2);
    ty_builder_set_next(b, TY_HAS_STEP_NORMS, 1);
    x = ty_builder_state_space(b, x, 16, 4, 3, false);
    ty_builder_name_next(b, "delta");
    x = ty_builder_gated_delta(b, x, 4, 2, 3, 5, 4);
    ty_builder_name_next(b, "unshifted");
    ty_builder_set_next(b, TY_LACKS_SHIFT, 1);
    x = ty_builder_layer_norm(b, x);
    ty_builder_name_next(b, "shared_mlp");
    ty_builder_set_next(b, TY_IS_SHARED, 1);
    x = ty_builder_mlp(b, x, 16, true, false);
    if (is_frozen)
        ty_builder_freeze(b, 1, 9);
    return finish(b);
}

/* Six tokens of 8 features; figures computed by hand from the papers' shapes. */
Test(builder, layers_of_newer_families)
{
    static const struct {
        const char *name;
        uint64_t parameters;
        double forward_flop, of_states; /* scores, scans: products without parameters */
    } rows[] = {
        /* queries, gates, keys and values, output: 4 x 64; norms of 8 and 4; 2 sinks. Every query
         * reads 2 keys: 2 x 2 heads x 6 x 2 x 8 */
        {"windowed", 4 * 64 + 12 + 2, 2 * 8 * (6 * 16 + 6 * 8) + 384 + 2 * 6 * 64, 384},
        /* latents of 4 and 2: 8 x (4 + 2 + 1 + 8) + 4 x 8 + 2 x 2 x (3 + 4); indexer 4 x 2 x 5 + 8
         * x (5 + 2) + 10; norms 6; 3 keys read, all 6 by the indexer */
        {"sparse", 8 * 15 + 32 + 28 + 106 + 6,
         2 * 8 * (6 * (4 + 5 + 2) + 6 * 3) + 2 * (6 * (32 + 40) + 6 * 28) +
             (2 * (2 * 6 * 3) * 8 + 2 * 36 * 10) + 2 * 6 * 64,
         2 * (2 * 6 * 3) * 8 + 2 * 36 * 10},
        {"latent_moe", 8 * 4 + 8 + 2 * 16 + 2 * (2 * 12 + 40),
         2 * 48 * 5 + 2 * 6 * (2 * (2 * 3 * 2 + 40) + 32), 0},
        {"mamba2", 8 * (52 + 16) + 32 * 4 + 12 + 16,
         2 * 6 * 8 * 52 + 4 * 6 * 64 + 2 * 6 * (128 + 96), 4 * 6 * 64},
        {"mamba", 8 * (32 + 16) + 16 * 12 + 16 * 4 + 16 * 6 + 10,
         2 * 6 * 8 * 32 + 4 * 6 * 64 + 2 * 6 * (128 + 192 + 48), 4 * 6 * 64},
        {"delta", 8 * (60 + 20) + 32 * 4 + 8 + 5, 2 * 6 * 8 * 60 + 6 * 6 * 60 + 2 * 6 * (160 + 128),
         6 * 6 * 60},
        {"unshifted", 8, 0, 0},
        {"shared_mlp", 0, 2 * 2 * 6 * 8 * 16, 0},
    };
    for (int is_frozen = 0; is_frozen < 2; is_frozen++) {
        ty_workload *w = build_newer(is_frozen);
        for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const ty_layer *l = &w->layers[i + 1];
            const double forward = rows[i].forward_flop;
            cr_assert_str_eq(l->name, rows[i].name);
            cr_expect_eq(l->parameter_bytes, 4 * rows[i].parameters, "%s: %llu parameters", l->name,
                         (unsigned long long)l->parameter_bytes / 4);
            cr_expect_eq(l->forward_flop, forward, "%s: %g", l->name, l->forward_flop);
            cr_expect_eq(l->backward_flop, forward + (is_frozen ? rows[i].of_states : forward),
                         "%s", l->name);
            cr_expect_geq(l->stash_bytes, l->output_bytes, "%s", l->name);
        }
        ty_workload_free(w);
    }
}

Test(builder, two_sequences)
{
    static const expected rows[] = {
        {"embedding1", 5 * 4, 0, 0, 12, 12, 3 + 2 * 12, 1},
        {"embedding2", 5 * 6, 0, 0, 18, 18, 3 + 2 * 18, 1},
        {"slice1", 0, 0, 0, 12, 12, 24, 1},
        /* 2 queries of 6 over 3 rows of 4, scores of 5 hidden numbers: matrices of 6 x 5 and 4 x 5,
         * a vector, a bias, a gain. Flop 2*5*(2*6 + 3*4), scores 2*6*5, values 2*6*4. Stored: 2 x 5
         * and 3 x 5, 6 probabilities */
        {"additive_attention1", 30 + 20 + 5 + 5 + 1, 240 + 60 + 48, 2 * 348, 8, 8 + 25 + 6,
         24 + 8 + 2 * 31, 5},
        {"concat1", 0, 0, 0, 20, 20, 40, 1},
        /* steps of 10 features, 3 hidden ones: products of 10 x 12 and 3 x 12 twice */
        {"lstm1", 12 * (10 + 3 + 2), 2 * 2 * 12 * 13, 4 * 2 * 12 * 13, 6, 6 + 2 * 15,
         20 + 6 + 2 * 2 * 15, 3},
    };
    ty_builder *b = ty_builder_new("pair", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
    uint32_t memory = ty_builder_embedding(b, TY_BATCH, 5, 4, 0), x;
    ty_workload *w;
    x = ty_builder_slice(b, ty_builder_embedding(b, TY_BATCH, 5, 6, 0), 0, 2);
    x = ty_builder_concat_features(
        b, (uint32_t[]){x, ty_builder_additive_attention(b, x, memory, 5)}, 2);
    ty_builder_set_next(b, TY_IS_REVERSED, 1);
    ty_builder_lstm(b, x, 3, true);
    w = finish(b);
    check_layers(w, rows, sizeof rows / sizeof rows[0]);
    cr_assert_eq(w->layers[3].inputs[0], memory);
    cr_assert_eq(w->layers[4].output.dimensions[1], 10);
    ty_workload_free(w);
}

Test(builder, clicks)
{
    static const expected rows[] = {
        {"slice1", 0, 0, 0, 2, 2, 4, 1},
        {"linear1", 4 * 2 + 4, 16, 16, 4, 4, 6, 1},
        /* three indices, as many rows of 4, their sum */
        {"embedding_bag1", 50 * 4, 0, 0, 4, 4, 3 + 3 * 4 + 4, 1},
        {"embedding_bag2", 7 * 4, 0, 0, 4, 4, 1 + 4 + 4, 1},
        /* three pairs of 4 numbers */
        {"dot_interaction1", 0, 2 * 3 * 4, 2 * 2 * 3 * 4, 7, 7, 12 + 7, 1},
    };
    ty_builder *b = ty_builder_new("clicks", TY_INPUT_REAL, &(ty_shape){1, {6}});
    uint32_t x = ty_builder_linear(b, ty_builder_slice(b, TY_BATCH, 0, 2), 4, true);
    uint32_t bag = ty_builder_embedding_bag(b, TY_BATCH, 50, 4, 2, 3, true);
    uint32_t table = ty_builder_embedding_bag(b, TY_BATCH, 7, 4, 5, 1, false);
    ty_workload *w;
    ty_error error = {0};

    ty_builder_dot_interaction(b, (uint32_t[]){table, x, bag}, 3);
    w = finish(b);
    check_layers(w, rows, sizeof rows / sizeof rows[0]);
    cr_assert_eq(w->layers[4].inputs[0], x, "the first made comes first");
    cr_assert_eq(w->layers[2].attributes[TY_IS_AVERAGE], 1);
    ty_workload_free(w);
    b = ty_builder_new("clicks", TY_INPUT_REAL, &(ty_shape){1, {6}});
    ty_builder_embedding_bag(b, TY_BATCH, 50, 4, 4, 3, false);
    cr_assert_eq(ty_builder_finish(b, &w, &error), TY_EINVAL);
    cr_assert_str_eq(error.message,
                     "embedding_bag1: found embedding_bag input 6, expected the batch, made of at "
                     "least 7 numbers (first_row and rows)");
}

/* A first layer after a flatten needs no gradient of its input either. */
Test(builder, no_gradient_of_the_batch_behind_a_flatten)
{
    ty_builder *b = ty_builder_new("flat", TY_INPUT_REAL, &(ty_shape){3, {1, 2, 2}});
    uint32_t x = ty_builder_linear(b, ty_builder_flatten(b, TY_BATCH), 3, true);
    ty_workload *w;
    ty_builder_linear(b, x, 3, true);
    w = finish(b);
    cr_assert_eq(w->layers[1].backward_flop, w->layers[1].forward_flop);
    cr_assert_eq(w->layers[2].backward_flop, 2 * w->layers[2].forward_flop);
    ty_workload_free(w);
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void window_too_large(ty_builder *b)
{
    ty_builder_pool(b, TY_BATCH, &(ty_window){9, 9, 1, 0, 0}, false);
}

static void padding_too_large(ty_builder *b)
{
    ty_builder_pool(b, TY_BATCH, &(ty_window){2, 2, 1, 2, 2}, false);
}

static void no_stride(ty_builder *b)
{
    ty_builder_conv2d(b, TY_BATCH, 4, &(ty_window){1, 1, 0, 0, 0}, 1, false);
}

static void uneven_groups(ty_builder *b)
{
    ty_builder_conv2d(b, TY_BATCH, 4, &(ty_window){1, 1, 1, 0, 0}, 3, false);
}

static void no_features(ty_builder *b)
{
    ty_builder_linear(b, TY_BATCH, 0, true);
}

static void too_many_features(ty_builder *b)
{
    ty_builder_linear(b, TY_BATCH, UINT64_MAX, true);
}

static void too_many_parameters(ty_builder *b)
{
    uint32_t x = ty_builder_linear(b, TY_BATCH, 2000000000, false);
    ty_builder_linear(b, x, 2000000000, false);
}

static void unknown_input(ty_builder *b)
{
    ty_builder_relu(b, 3);
}

static void different_shapes(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH), y = ty_builder_flatten(b, x);
    ty_builder_add(b, (uint32_t[]){x, y}, 2);
}

static void different_rows(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH), y = ty_builder_slice(b, x, 0, 1);
    ty_builder_concat_features(b, (uint32_t[]){x, y}, 2);
}

static void bag_of_an_image(ty_builder *b)
{
    ty_builder_embedding_bag(b, TY_BATCH, 5, 4, 0, 1, false);
}

static void interaction_of_two_sizes(ty_builder *b)
{
    uint32_t x = ty_builder_flatten(b, TY_BATCH), y = ty_builder_slice(b, x, 0, 1);
    ty_builder_dot_interaction(b, (uint32_t[]){x, y}, 2);
}

static void attention_to_an_image(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH);
    ty_builder_additive_attention(b, ty_builder_relu(b, x), x, 4);
}

static void lonely_add(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH);
    ty_builder_add(b, &x, 1);
}

static void repeated_input(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH);
    ty_builder_add(b, (uint32_t[]){x, x}, 2);
}

static void attention_on_image(ty_builder *b)
{
    ty_builder_attention(b, TY_BATCH, 1, 1, 4, true, true);
}

static void embedding_of_numbers(ty_builder *b)
{
    ty_builder_embedding(b, TY_BATCH, 10, 4, 0);
}

static void tie_to_nothing(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH);
    ty_builder_tied_linear(b, x, x);
}

static void same_name(ty_builder *b)
{
    ty_builder_name_next(b, "relu2");
    ty_builder_relu(b, ty_builder_relu(b, TY_BATCH));
    ty_builder_relu(b, 1);
}

static void unused_layer(ty_builder *b)
{
    ty_builder_relu(b, TY_BATCH);
    ty_builder_relu(b, TY_BATCH);
}

static void stray_option(ty_builder *b)
{
    ty_builder_set_next(b, TY_IS_FUSED, 1);
    ty_builder_relu(b, TY_BATCH);
}

static void required_option(ty_builder *b)
{
    ty_builder_set_next(b, TY_HAS_BIAS, 1);
    ty_builder_linear(b, TY_BATCH, 4, true);
}

static void rows_beyond_the_end(ty_builder *b)
{
    ty_builder_slice(b, TY_BATCH, 1, 2);
}

static void no_rows(ty_builder *b)
{
    ty_builder_slice(b, TY_BATCH, 1, 0);
}

static void memory_behind_the_queries(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH), y = ty_builder_relu(b, x);
    ty_builder_cross_attention(b, x, y, 1, 1, 4, true);
}

static void memory_is_an_image(ty_builder *b)
{
    uint32_t x = ty_builder_relu(b, TY_BATCH), y = ty_builder_relu(b, x);
    ty_builder_cross_attention(b, y, x, 1, 1, 4, true);
}

/* One of five sums has a norm that comes right after it and is its only reader. The norms of the
 * others are elsewhere, read two sums, or one of three. */
Test(builder, norms_of_sums)
{
    ty_builder *b = ty_builder_new("sums", TY_INPUT_REAL, &(ty_shape){3, {2, 3, 3}});
    const ty_window window = {1, 1, 1, 0, 0};
    const uint32_t stem = ty_builder_relu(b, TY_BATCH);
    const uint32_t norm = ty_builder_batch_norm(b, stem);
    const uint32_t joined = ty_builder_add(b, (uint32_t[]){stem, norm}, 2);
    const uint32_t early = ty_builder_batch_norm(b, joined);
    const uint32_t late = ty_builder_conv2d(b, joined, 2, &window, 1, true);
    const uint32_t apart = ty_builder_add(b, (uint32_t[]){early, late}, 2);
    const uint32_t shared = ty_builder_batch_norm(b, apart);
    const uint32_t first = ty_builder_add(b, (uint32_t[]){apart, shared}, 2);
    const uint32_t second = ty_builder_add(b, (uint32_t[]){first, shared}, 2);
    const uint32_t third = ty_builder_batch_norm(b, second);
    const uint32_t three = ty_builder_add(b, (uint32_t[]){joined, second, third}, 3);
    ty_workload *w;

    ty_builder_loss(b, ty_builder_linear(b, ty_builder_flatten(b, three), 2, true));
    w = finish(b);
    for (uint32_t l = 0; l < w->layer_count; l++)
        cr_expect_eq(ty_workload_norm_of_sum(w, l), l == joined ? norm : TY_NO_LAYER, "layer %u",
                     (unsigned)l);
    ty_workload_free(w);
}

Test(builder, mistakes_are_kept_until_the_end)
{
    static const struct {
        void (*make)(ty_builder *b);
        ty_status status;
        const char *message;
    } rows[] = {
        {window_too_large, TY_EINVAL,
         "pool1: found pool input 2x4x4, expected an image no smaller"},
        {padding_too_large, TY_EINVAL,
         "pool1: found pool input 2x4x4, expected an image no smaller"},
        {no_stride, TY_EINVAL, "conv2d1/attributes/stride: found 0, expected 1 to"},
        {uneven_groups, TY_EINVAL,
         "conv2d1: found conv2d input 2x4x4, expected groups that divide"},
        {no_features, TY_EINVAL, "linear1/attributes/out_features: found 0"},
        {too_many_features, TY_EINVAL,
         "linear1/attributes/out_features: found 18446744073709551615"},
        {too_many_parameters, TY_EINVAL, "linear2: sizes above 2^53"},
        {unknown_input, TY_EINVAL, "relu1/inputs/0: found 3, expected an earlier layer"},
        {different_shapes, TY_EINVAL, "add1: found add input 2x4x4, expected 32 as input 1"},
        {different_rows, TY_EINVAL, "concat1: found concat input 2x4x4, expected"},
        {bag_of_an_image, TY_EINVAL, "embedding_bag1: found embedding_bag input 2x4x4, expected"},
        {interaction_of_two_sizes, TY_EINVAL, "found dot_interaction input 32, expected as many"},
        {attention_to_an_image, TY_EINVAL,
         "found additive_attention input 2x4x4, expected a sequence"},
        {lonely_add, TY_EINVAL, "add1/inputs: found 1, expected at least 2 for add"},
        {repeated_input, TY_EINVAL, "add1/inputs/1: found 0, expected an earlier layer"},
        {attention_on_image, TY_EINVAL,
         "attention1: found attention input 2x4x4, expected a sequence"},
        {embedding_of_numbers, TY_EINVAL,
         "embedding1: found embedding input 2x4x4, expected the batch"},
        {tie_to_nothing, TY_EINVAL, "needs an earlier embedding"},
        {stray_option, TY_EINVAL, "relu1: relu has no optional attribute is_fused"},
        {required_option, TY_EINVAL, "linear1: linear has no optional attribute has_bias"},
        {rows_beyond_the_end, TY_EINVAL,
         "slice1: found slice input 2x4x4, expected at least 3 rows"},
        {no_rows, TY_EINVAL, "slice1/attributes/rows: found 0"},
        {memory_behind_the_queries, TY_EINVAL,
         "attention1/inputs/1: found 0, expected an earlier layer"},
        {memory_is_an_image, TY_EINVAL,
         "attention1: found attention input 2x4x4, expected a sequence"},
        {same_name, TY_EPARSE, "/layers/1/name: found \"relu2\""},
        {unused_layer, TY_EPARSE, "/layers/0: found no reader"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_builder *b = ty_builder_new("wrong", TY_INPUT_REAL, &(ty_shape){3, {2, 4, 4}});
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status;
        rows[i].make(b);
        status = ty_builder_finish(b, &w, &error);
        cr_assert_eq(status, rows[i].status, "row %zu: status %d: %s", i, status, error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        cr_assert_null(w);
    }
}

Test(builder, mistakes_with_tokens)
{
    static const struct {
        uint64_t kv_rank, query_rank, rotary_size, kv_heads, experts_per_token;
        ty_status status;
        const char *message;
    } rows[] = {
        {4, 4, 1, 2, 1, TY_OK, ""},
        {4, 4, 1, 1, 1, TY_EINVAL, "attention1: found attention input 3x4, expected query_rank"},
        {4, 0, 2, 2, 1, TY_EINVAL, "expected query_rank and rotary_size only with kv_rank"},
        {0, 4, 0, 2, 1, TY_EINVAL, "expected query_rank and rotary_size only with kv_rank"},
        {4, 0, 0, 2, 3, TY_EINVAL, "expected experts_per_token to be at most experts"},
        {4, 0, 0, 2, 0, TY_EINVAL, "moe1/attributes/experts_per_token: found 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_builder *b = ty_builder_new("wrong", TY_INPUT_TOKEN, &(ty_shape){1, {3}});
        uint32_t x = ty_builder_embedding(b, TY_BATCH, 5, 4, 0);
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status;
        ty_builder_set_next(b, TY_KV_RANK, rows[i].kv_rank);
        ty_builder_set_next(b, TY_QUERY_RANK, rows[i].query_rank);
        ty_builder_set_next(b, TY_ROTARY_SIZE, rows[i].rotary_size);
        x = ty_builder_attention(b, x, 2, rows[i].kv_heads, 2, false, true);
        ty_builder_moe(b, x, 2, rows[i].experts_per_token, 8, false, true);
        status = ty_builder_finish(b, &w, &error);
        cr_assert_eq(status, rows[i].status, "row %zu: status %d: %s", i, status, error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        ty_workload_free(w);
    }
}

Test(builder, refuses_senseless_batches)
{
    static const struct {
        ty_input_kind kind;
        ty_shape shape;
    } rows[] = {{TY_INPUT_REAL, {0, {0}}},
                {TY_INPUT_REAL, {5, {1, 1, 1, 1}}},
                {TY_INPUT_REAL, {2, {4, 0}}},
                {TY_INPUT_REAL, {4, {1u << 30, 1u << 30, 1u << 30, 1u << 30}}},
                {TY_INPUT_TOKEN, {2, {4, 4}}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_builder *b = ty_builder_new("odd", rows[i].kind, &rows[i].shape);
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_builder_relu(b, TY_BATCH);
        cr_assert_eq(ty_builder_finish(b, &w, &error), TY_EINVAL, "row %zu", i);
        cr_assert(strstr(error.message, "no sensible shape") != NULL, "%s", error.message);
    }
}

Test(builder, survives_failing_allocations)
{
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        ty_workload *w = NULL;
        ty_builder *b;
        uint32_t x, y;
        cr_assert_lt(n, 500);
        ty_memory_fail_after(n);
        b = ty_builder_new("small", TY_INPUT_REAL, &(ty_shape){1, {4}});
        ty_builder_set_source(b, "a test");
        ty_builder_set_training(b, "synthetic", 8, &(ty_optimizer){.learning_rate = 0.1});
        ty_builder_name_next(b, "first");
        x = ty_builder_linear(b, TY_BATCH, 4, true);
        y = ty_builder_relu(b, x);
        x = ty_builder_add(b, (uint32_t[]){x, y}, 2);
        ty_builder_loss(b, x);
        status = ty_builder_finish(b, &w, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: status %d: %s", n,
                  status, error.message);
        ty_workload_free(w);
    }
    cr_assert_gt(n, 15);
}
