/* The zoo against published figures, and errors in its files. */
#include "ty_workloads.h"
#include "zoo.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static ty_workload *open_one(const char *name)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &w, &error), TY_OK, "%s: %s", name, error.message);
    return w;
}

/* Sources: see the files. GMAC: torchvision's model pages, at 224 x 224. */
Test(zoo, published_figures)
{
    static const struct {
        const char *name;
        uint64_t parameters;
        double forward_gmac; /* 0: not published */
        const char *dataset;
        uint32_t batch;
        ty_optimizer_kind optimizer;
        double learning_rate, momentum;
    } rows[] = {
        {"mlp", 1863690, 0, "fashion-mnist", 128, TY_OPTIMIZER_SGD, 0.05, 0.9},
        {"lenet", 431080, 0, "fashion-mnist", 128, TY_OPTIMIZER_SGD, 0.05, 0.9},
        {"gpt-tiny", 3257856, 0, "text", 8, TY_OPTIMIZER_ADAMW, 1e-3, 0},
        {"vgg16", 138357544, 15.47, "synthetic", 256, TY_OPTIMIZER_SGD, 0.01, 0.9},
        {"resnet50", 25557032, 4.09, "synthetic", 256, TY_OPTIMIZER_SGD, 0.1, 0.9},
        {"gpt2", 124439808, 0, "synthetic", 512, TY_OPTIMIZER_ADAMW, 6e-4, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double gmac = ty_workload_forward_flop(w, 0, w->layer_count) / 2e9;
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * rows[i].parameters,
                     "%s: %llu bytes of parameters", rows[i].name,
                     (unsigned long long)ty_workload_parameter_bytes(w, 0, w->layer_count));
        if (rows[i].forward_gmac > 0)
            cr_assert_lt(fabs(gmac / rows[i].forward_gmac - 1), 0.001, "%s: %g GMAC", rows[i].name,
                         gmac);
        cr_assert_str_eq(w->name, rows[i].name);
        cr_assert_str_eq(w->dataset, rows[i].dataset);
        cr_assert_eq(w->global_batch, rows[i].batch);
        cr_assert_eq(w->optimizer.kind, rows[i].optimizer);
        cr_assert_eq(w->optimizer.learning_rate, rows[i].learning_rate);
        cr_assert_eq(w->optimizer.momentum, rows[i].momentum);
        ty_workload_free(w);
    }
}

/* Counts of the checkpoints: safetensors indexes on the hub that the sources name, and of
 * llama-4-maverick (400 B) the sum of its shapes. */
Test(zoo, published_parameters_of_configurations)
{
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"mistral-7b", 7241732096},       {"mistral-nemo-12b", 12247782400},
        {"gemma-2-2b", 2614341888},       {"gemma-2-9b", 9241705984},
        {"gemma-2-27b", 27227128320},     {"gemma-3-1b", 999885952},
        {"gemma-3-4b", 4300079472},       {"gemma-3-12b", 12187325040},
        {"gemma-3-27b", 27432406640},     {"phi-4", 14659507200},
        {"phi-4-mini", 3836021760},       {"opt-125m", 125239296},
        {"opt-1.3b", 1315758080},         {"opt-6.7b", 6658473984},
        {"opt-13b", 12853473280},         {"opt-30b", 29974540288},
        {"bloom-560m", 559214592},        {"bloom-7b1", 7069016064},
        {"bloom-176b", 176247271424},     {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},     {"qwen2.5-3b", 3085938688},
        {"qwen2.5-7b", 7615616512},       {"qwen2.5-14b", 14770033664},
        {"qwen2.5-32b", 32763876352},     {"qwen2.5-72b", 72706203648},
        {"qwen3-0.6b", 596049920},        {"qwen3-1.7b", 1720574976},
        {"qwen3-4b", 4022468096},         {"qwen3-14b", 14768307200},
        {"llama-3.2-1b", 1235814400},     {"llama-3.2-3b", 3212749824},
        {"llama-4-scout", 107769861120},  {"llama-4-maverick", 400711848960},
        {"kimi-k2", 1026408232448},       {"gpt-oss-20b", 20914757184},
        {"gpt-oss-120b", 116829156672},   {"vit-base", 86567656},
        {"vit-large", 304326632},         {"whisper-small", 241734912},
        {"whisper-large-v3", 1543490560},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        const uint64_t bytes = ty_workload_parameter_bytes(w, 0, w->layer_count);
        cr_expect_eq(bytes / w->element_bytes, rows[i].parameters, "%s: %llu", rows[i].name,
                     (unsigned long long)(bytes / w->element_bytes));
        cr_expect_gt(w->global_batch, 0);
        ty_workload_free(w);
    }
}

/* Adapters: backward only computes the gradients of inputs, as much as a forward pass plus the
 * scores again, through every block; only the norms are updated. */
Test(zoo, frozen_matrices_pass_gradients_on)
{
    static const char line[] = "decoder blocks=3 features=64 heads=4 hidden_features=256 "
                               "vocabulary=500 sequence=32";
    char words[160];
    ty_workload *full = open_one(line), *adapted;

    snprintf(words, sizeof words, "%s has_frozen_matrices=true", line);
    adapted = open_one(words);
    cr_assert_eq(adapted->layer_count, full->layer_count);
    for (uint32_t i = 0; i < full->layer_count; i++) {
        const ty_layer *a = &adapted->layers[i], *f = &full->layers[i];
        cr_expect_eq(a->is_frozen, a->kind != TY_LAYER_RMS_NORM, "%s", a->name);
        cr_expect_float_eq(a->forward_flop, f->forward_flop, 1e-6, "%s", a->name);
        if (a->kind == TY_LAYER_MLP || a->kind == TY_LAYER_LINEAR)
            cr_expect_float_eq(a->backward_flop, a->forward_flop, 1e-6, "%s: %g", a->name,
                               a->backward_flop);
        if (a->kind == TY_LAYER_ATTENTION)
            cr_expect(a->backward_flop > a->forward_flop && a->backward_flop < f->backward_flop,
                      "%s: %g", a->name, a->backward_flop);
    }
    ty_workload_free(full);
    ty_workload_free(adapted);
}

/* Per token 2 (12 L d^2 + V d) flop of products with weights and 4 L T d of attention (Kaplan et
 * al., arXiv:2001.08361, table 1, with the output layer added); backward is twice that. */
Test(zoo, gpt2_flop_by_closed_form)
{
    static const struct {
        const char *name;
        double blocks, features, vocabulary, tokens;
    } rows[] = {{"gpt2", 12, 768, 50257, 1024},
                {"gpt2 sequence=256", 12, 768, 50257, 256},
                {"gpt-tiny", 4, 256, 256, 128}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double d = rows[i].features;
        double per_token = 2 * (12 * rows[i].blocks * d * d + rows[i].vocabulary * d) +
                           4 * rows[i].blocks * rows[i].tokens * d;
        double forward = ty_workload_forward_flop(w, 0, w->layer_count);
        cr_assert_eq(forward, per_token * rows[i].tokens, "%s: forward %g", rows[i].name, forward);
        cr_assert_eq(ty_workload_backward_flop(w, 0, w->layer_count), 2 * forward, "%s",
                     rows[i].name);
        ty_workload_free(w);
    }
}

/* Parameter counts: torchvision's model pages, and sums by hand if the file's source is "by its
 * shapes". GMAC: infer_gmacs of timm's results/benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv;
 * torchvision's pages for alexnet and squeezenet. timm also counts some elementwise work, hence 1.5
 * %. */
Test(zoo, published_figures_of_image_networks)
{
    static const struct {
        const char *name;
        uint64_t parameters;
        double forward_gmac;
    } rows[] = {
        {"alexnet", 61100840, 0.714},     {"vgg19", 143667240, 19.63},
        {"resnet18", 11689512, 1.82},     {"resnet101", 44549160, 7.83},
        {"resnet152", 60192808, 11.56},   {"resnext50-32x4d", 25028904, 4.26},
        {"inception-v3", 23834568, 5.73}, {"inception-v3-aux", 27161264, 0},
        {"squeezenet", 1248424, 0.82},    {"densenet121", 7978856, 2.87},
        {"amoebanet-d", 122470120, 0},    {"unet", 232687328, 0},
        {"amoebanet-d-128", 31694440, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double gmac = ty_workload_forward_flop(w, 0, w->layer_count) / 2e9;
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * rows[i].parameters,
                     "%s: %llu bytes of parameters", rows[i].name,
                     (unsigned long long)ty_workload_parameter_bytes(w, 0, w->layer_count));
        if (rows[i].forward_gmac > 0)
            cr_assert_lt(fabs(gmac / rows[i].forward_gmac - 1), 0.015, "%s: %g GMAC", rows[i].name,
                         gmac);
        ty_workload_free(w);
    }
}

/* Outputs of convolutions and matrix products, in millions of numbers per sample: infer_macts of
 * the same table of timm, which has two decimals. */
Test(zoo, published_activations_of_image_networks)
{
    static const struct {
        const char *name;
        double millions;
    } rows[] = {
        {"resnet18", 2.48},         {"resnet50", 11.11},   {"resnet101", 16.23},
        {"resnet152", 22.56},       {"vgg16", 13.56},      {"vgg19", 14.86},
        {"resnext50-32x4d", 14.40}, {"densenet121", 6.90}, {"inception-v3", 8.97},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        uint64_t bytes = 0;
        for (uint32_t l = 0; l < w->layer_count; l++)
            if (w->layers[l].kind == TY_LAYER_CONV2D || w->layers[l].kind == TY_LAYER_LINEAR)
                bytes += w->layers[l].output_bytes;
        cr_assert_lt(fabs((double)bytes / 4e6 - rows[i].millions), 0.00501, "%s: %g bytes",
                     rows[i].name, (double)bytes);
        ty_workload_free(w);
    }
}

/* An LSTM of D inputs and H outputs has 4 H (D + H + 2). */
static uint64_t lstm(uint64_t in, uint64_t hidden)
{
    return 4 * hidden * (in + hidden + 2);
}

Test(zoo, recurrent_and_other_networks_by_their_shapes)
{
    /* PipeDream's profile of GNMT (4 + 4 layers) has 775,063,808 bytes, without the 1,025 numbers
     * that normalize its attention. */
    const uint64_t gnmt8 = 775063808 / 4 + 1025;
    const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"gnmt-8", gnmt8},
        {"gnmt-16", gnmt8 + 4 * lstm(1024, 1024) + 4 * lstm(2048, 1024)},
        {"awd-lm", 10000 * 400 + lstm(400, 1150) + 4 * lstm(1150, 1150) + lstm(1150, 400)},
        {"s2vt", 4097 * 500 + 12594 * 500 + lstm(500, 1000) + lstm(1500, 1000) + 1001 * 12594},
        {"dlrm-kaggle", 33762577ull * 16 + 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16 + 368 * 512 +
                            513 * 256 + 257},
        {"dlrm-tiny", 3743 * 8 + 5 * 32 + 33 * 8 + 24 * 64 + 65},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count), 4 * rows[i].parameters,
                     "%s: %llu bytes of parameters", rows[i].name,
                     (unsigned long long)ty_workload_parameter_bytes(w, 0, w->layer_count));
        ty_workload_free(w);
    }
}

/* LeNet by hand, numbers per sample: outputs without the relu, which is in place, and one stored by
 * the loss. */
Test(zoo, lenet_stash_by_hand)
{
    ty_workload *w = open_one("lenet");
    uint64_t conv1 = 20 * 24 * 24, pool1 = 20 * 12 * 12, conv2 = 50 * 8 * 8, pool2 = 50 * 4 * 4;
    cr_assert_eq(ty_workload_stash_bytes(w, 0, w->layer_count),
                 4 * (conv1 + pool1 + conv2 + pool2 + 500 + 10 + 2));
    cr_assert_eq(w->sample_bytes, 785);
    ty_workload_free(w);
}

Test(zoo, structure)
{
    static const struct {
        const char *name;
        uint32_t layers;
    } rows[] = {
        /* stem 4; blocks: 8 convolutions, norms, relus and 2 to join, 4 times 2 for a shortcut;
           head 4 */
        {"resnet50", 4 + 16 * 10 + 4 * 2 + 4},
        {"gpt2", 1 + 12 * 6 + 3},
        {"vgg16", 13 * 2 + 5 + 1 + 5 + 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        cr_assert_eq(w->layer_count, rows[i].layers, "%s: %u layers", rows[i].name, w->layer_count);
        ty_workload_free(w);
    }
}

/* Every entry: a valid workload with the name of its file, with a source, that survives a round
 * trip. */
Test(zoo, entries_hold_and_round_trip)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_error error = {0};

    cr_assert_eq(ty_zoo_list(&names, &count, &error), TY_OK, "%s", error.message);
    cr_assert_geq(count, 6);
    for (uint32_t i = 0; i < count; i++) {
        ty_workload *w = open_one(names[i]), *again = NULL;
        ty_json_document *document = NULL;
        ty_text text = {0};
        ty_json_writer writer = ty_json_writer_on(&text);
        ty_digest before, after;

        cr_assert(i == 0 || strcmp(names[i - 1], names[i]) < 0, "%s out of order", names[i]);
        cr_assert_str_eq(w->name, names[i]);
        cr_assert_gt(strlen(w->source), 20, "%s: source '%s'", names[i], w->source);
        cr_assert_eq(ty_workload_check(w, names[i], &error), TY_OK, "%s", error.message);
        ty_workload_to_json(w, &writer, NULL);
        cr_assert_eq(ty_json_parse(text.data, text.length, names[i], &document, &error), TY_OK,
                     "%s", error.message);
        cr_assert_eq(ty_workload_from_json(ty_json_root(document), &again, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_workload_digest(w, &before, &error), TY_OK);
        cr_assert_eq(ty_workload_digest(again, &after, &error), TY_OK);
        cr_assert_str_eq(before.hex, after.hex, "%s", names[i]);
        ty_text_clear(&text);
        ty_json_free(document);
        ty_workload_free(w);
        ty_workload_free(again);
    }
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
}

/* ---- Bad files ------------------------------------------------------------------------------- */

#define TRAINING                                                                                   \
    "\"source\": \"a test\", \"dataset\": \"synthetic\", \"global_batch\": 8,"                     \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1, \"momentum\": 0, "                 \
    "\"weight_decay\": 0}"
#define SEQUENTIAL(layers)                                                                         \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"x\", \"family\": \"sequential\", "              \
    "\"input\": [1, 4, 4], \"sample_bytes\": 17, \"layers\": [" layers "], " TRAINING "}"
#define RESIDUAL(input, blocks)                                                                    \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"x\", \"family\": \"residual\", "                \
    "\"input\": " input ", \"sample_bytes\": 17, \"block\": \"basic\", \"blocks\": " blocks        \
    ", \"width\": 8, \"classes\": 4, " TRAINING "}"
#define TRANSFORMER(heads, sequence)                                                               \
    "{\"schema\": \"trainyard.zoo/1\", \"name\": \"x\", \"family\": \"transformer\", "             \
    "\"blocks\": 1, \"features\": 8, \"heads\": " heads ", \"hidden_features\": 16, "              \
    "\"vocabulary\": 10, \"positions\": 16, \"sequence\": " sequence                               \
    ", \"token_bytes\": 1, " TRAINING "}"

static ty_status build(const char *text, const ty_zoo_overrides *overrides, ty_workload **out,
                       ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "x.json", &document, error);
    if (status == TY_OK)
        status = ty_zoo_build(ty_json_root(document), overrides, out, error);
    ty_json_free(document);
    return status;
}

Test(zoo, good_small_files)
{
    static const char *const texts[] = {
        SEQUENTIAL("{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 3, "
                   "\"has_bias\": false, \"name\": \"y\"}, {\"kind\": \"softmax_cross_entropy\"}"),
        SEQUENTIAL("{\"kind\": \"conv2d\", \"out_channels\": 4, \"kernel\": 3, \"padding\": 1, "
                   "\"stride\": 2, \"groups\": 1}, {\"kind\": \"batch_norm\"}, {\"kind\": "
                   "\"pool\", \"is_global\": true}, {\"kind\": \"gelu\"}"),
        SEQUENTIAL(
            "{\"label\": \"a\"}, {\"repeat\": 3, \"layers\": [{\"kind\": \"conv2d\", "
            "\"out_channels\": 2, \"kernel\": [1, 3], \"padding\": [0, 1]}]}, {\"branches\": "
            "[[], [{\"kind\": \"relu\"}]], \"join\": \"concat\"}, {\"label\": \"b\"}, "
            "{\"kind\": \"opaque\", \"inputs\": [\"b\"], \"output\": [7], \"parameters\": 5}"),
        RESIDUAL("[3, 32, 32]", "[1, 1]"),
        TRANSFORMER("2", "16"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        cr_assert_eq(build(texts[i], &(ty_zoo_overrides){0}, &w, &error), TY_OK, "%zu: %s", i,
                     error.message);
        ty_workload_free(w);
    }
}

Test(zoo, bad_files_are_refused_with_a_pointer)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[]", "x.json:"},
        {"{\"schema\": \"trainyard.zoo/2\"}", "x.json:/schema"},
        {"{\"schema\": \"trainyard.zoo/1\", \"name\": \"x\", \"family\": \"residul\"}",
         "x.json:/family"},
        {"{\"schema\": \"trainyard.zoo/1\", \"name\": \"\"}", "x.json:/name"},
        {SEQUENTIAL(""), "x.json:/layers"},
        {SEQUENTIAL("7"), "x.json:/layers/0: found 7, expected a layer"},
        {SEQUENTIAL("{\"kind\": \"flatten\"}, {\"kind\": \"liner\"}"), "x.json:/layers/1/kind"},
        {SEQUENTIAL("{\"kind\": \"linear\"}"), "x.json:/layers/0"},
        {SEQUENTIAL("{\"kind\": \"linear\", \"out_features\": 0}"),
         "x.json:/layers/0/out_features: found 0"},
        {SEQUENTIAL("{\"kind\": \"linear\", \"out_features\": 1e12}"),
         "x.json:/layers/0/out_features"},
        {SEQUENTIAL("{\"kind\": \"relu\", \"slope\": 1}"), "x.json:/layers/0/slope"},
        {SEQUENTIAL("{\"kind\": \"pool\", \"kernel\": 5}"),
         "(pool1: found pool input 1x4x4, expected an image no smaller"},
        {SEQUENTIAL("{\"kind\": \"pool\", \"kernel\": 5}"), "x.json:/layers/0: "},
        {SEQUENTIAL("{\"kind\": \"softmax_cross_entropy\"}, {\"kind\": \"relu\"}"),
         "x:/layers/0/kind: found a loss"},
        {SEQUENTIAL("{\"from\": \"a\"}"), "a label given before; \"a\" was not"},
        {SEQUENTIAL("{\"repeat\": 2, \"layers\": []}"), "x.json:/layers/0/layers"},
        {SEQUENTIAL("{\"repeat\": 0, \"layers\": [{\"kind\": \"relu\"}]}"),
         "x.json:/layers/0/repeat: found 0"},
        {SEQUENTIAL("{\"repeat\": 1000000000, \"layers\": [{\"label\": \"a\"}]}"),
         "at most 200000 statements"},
        {SEQUENTIAL("{\"branches\": [[], []], \"join\": \"add\"}"),
         "add1/inputs/0: found 4294967295, expected an earlier"},
        {SEQUENTIAL("{\"branches\": [[], 7], \"join\": \"add\"}"),
         "x.json:/layers/0/branches/1: found 7"},
        {SEQUENTIAL("{\"branches\": [[]], \"join\": \"add\"}"), "x.json:/layers/0/branches"},
        {SEQUENTIAL("{\"branches\": [[], []], \"join\": \"ad\"}"), "x.json:/layers/0/join"},
        {SEQUENTIAL("{\"frozen\": []}"), "x.json:/layers/0/frozen"},
        {SEQUENTIAL("{\"kind\": \"relu\"}], \"frozen_through\": \"y\", \"x\": ["),
         "y: no layer of this name to freeze"},
        {SEQUENTIAL("{\"kind\": \"relu\"}], \"learning\": \"guess\", \"x\": ["),
         "x.json:/learning"},
        {SEQUENTIAL("{\"kind\": \"slice\", \"rows\": 2}"), "expected at least 2 rows"},
        {SEQUENTIAL("{\"block\": \"b\"}"), "expected one of the file's \"blocks\""},
        {SEQUENTIAL("{\"label\": \"a\", \"layer\": 1}"), "x.json:/layers/0/layer"},
        {SEQUENTIAL("{\"kind\": \"linear\", \"out_features\": \"$n\"}"), "a block used with \"n\""},
        {SEQUENTIAL("{\"kind\": \"conv2d\", \"out_channels\": 1, \"kernel\": [1, 2, 3]}"),
         "x.json:/layers/0/kernel"},
        {SEQUENTIAL("{\"kind\": \"lstm\", \"hidden_features\": 3}"), "expected a sequence"},
        {SEQUENTIAL("{\"kind\": \"relu\"}], \"blocks\": {\"b\": [{\"kind\": \"relu\"}]}, \"x\": ["),
         "x.json:/blocks/b"},
        {SEQUENTIAL("{\"block\": \"b\"}], \"blocks\": {\"b\": [{\"block\": \"b\"}]}, \"x\": ["),
         "nested at most 40 deep"},
        {SEQUENTIAL("{\"block\": \"b\", \"n\": 1}], \"blocks\": {\"b\": [{\"kind\": \"relu\"}]}, "
                    "\"x\": ["),
         "x.json:/layers/0/n"},
        {RESIDUAL("[3, 32]", "[1]"), "expected an image"},
        {RESIDUAL("[3, 32, 32]", "[1, 0]"), "x.json:/blocks/1: found 0"},
        {RESIDUAL("[3, 32, 32]", "[]"), "x.json:/blocks"},
        {RESIDUAL("[3, 0, 32]", "[1]"), "x.json:/input/1: found 0"},
        {TRANSFORMER("3", "16"), "heads that divide features; 8 is not a multiple of 3"},
        {TRANSFORMER("2", "17"), "sequence <= positions; 17 is above 16"},
        {TRANSFORMER("\"2\"", "16"), "x.json:/heads: found \"2\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status = build(rows[i].text, &(ty_zoo_overrides){0}, &w, &error);
        cr_assert_eq(status, TY_EPARSE, "row %zu: status %d: %s", i, status, error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        cr_assert_null(w);
    }
}

Test(zoo, bad_training_is_refused)
{
    static const struct {
        const char *from, *to, *message;
    } rows[] = {
        {"\"global_batch\": 8", "\"global_batch\": 0", "x.json:/global_batch: found 0"},
        {"\"kind\": \"sgd\"", "\"kind\": \"adam\"", "x.json:/optimizer/kind"},
        {"\"momentum\": 0", "\"momentum\": 2", "x.json:/optimizer/momentum: found 2"},
        {"\"momentum\": 0", "\"beta1\": 0", "x.json:/optimizer"},
        {"\"learning_rate\": 0.1", "\"learning_rate\": -1", "x.json:/optimizer/learning_rate"},
        {"\"source\": \"a test\"", "\"origin\": \"a test\"", "x.json:"},
        {"\"sample_bytes\": 17", "\"sample_bytes\": -17", "x.json:/sample_bytes: found -17"},
    };
    static const char good[] = SEQUENTIAL("{\"kind\": \"relu\"}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = strstr(good, rows[i].from);
        char text[2 * sizeof good];
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status;
        cr_assert_not_null(at, "row %zu", i);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, rows[i].to,
                 at + strlen(rows[i].from));
        status = build(text, &(ty_zoo_overrides){0}, &w, &error);
        cr_assert_eq(status, TY_EPARSE, "row %zu: status %d: %s", i, status, error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
    }
}

/* Freezing a layer saves the cost of its gradients: its entire backward pass if no trained layer
 * precedes it; the input's gradient for the first trained layer; the weights' gradient for layers
 * after trained ones. */
Test(zoo, frozen_layers_compute_less)
{
    static const char text[] =
        SEQUENTIAL("{\"kind\": \"flatten\"}, {\"frozen\": [{\"kind\": \"linear\", "
                   "\"out_features\": 8}]}, {\"kind\": \"linear\", \"out_features\": 8}, "
                   "{\"frozen\": [{\"kind\": \"linear\", \"out_features\": 8}]}, "
                   "{\"kind\": \"linear\", \"out_features\": 8}");
    static const double shares[] = {0, 0, 1, 1, 2}; /* of forward */
    ty_workload *w = NULL;
    ty_error error = {0};

    cr_assert_eq(build(text, &(ty_zoo_overrides){0}, &w, &error), TY_OK, "%s", error.message);
    for (uint32_t l = 0; l < 5; l++) {
        cr_expect_eq(w->layers[l].backward_flop, shares[l] * w->layers[l].forward_flop, "layer %u",
                     l);
        cr_expect_eq(w->layers[l].is_frozen, l == 1 || l == 3, "layer %u", l);
    }
    ty_workload_free(w);
}

/* Scores of attention have no weights: their gradients are still computed if the projections are
 * frozen. */
Test(zoo, frozen_attention_keeps_its_scores)
{
    ty_workload *w = open_one("gpt-tiny");
    uint32_t layer = 0;

    while (w->layers[layer].kind != TY_LAYER_ATTENTION)
        layer++;
    w->layers[layer].is_frozen = true;
    cr_assert_eq(ty_layer_set_quantities(w, layer, true, NULL), TY_OK);
    /* Scores and their product with the values, 2 T^2 d each, repeated twice; projections, 8 T d^2,
     * once. */
    cr_expect_eq(w->layers[layer].backward_flop,
                 2 * (2 * 2 * 128.0 * 128 * 256) + 8 * 128.0 * 256 * 256);
    ty_workload_free(w);
}
