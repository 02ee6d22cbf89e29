/* Workloads: tables, JSON round trips, every rule of the check, digests, sums, cuts. */
#include "ty_base.h"
#include "ty_workload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CNN TY_CORPUS "/workload/tiny_cnn.json"
#define GPT TY_CORPUS "/workload/tiny_gpt.json"
#define OPAQUE TY_CORPUS "/workload/opaque.json"

static const char *const files[] = {CNN, GPT, OPAQUE};

static ty_workload *load(const char *path)
{
    ty_workload *workload = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_load(path, &workload, &error), TY_OK, "%s", error.message);
    return workload;
}

static ty_status from_text(const char *text, ty_workload **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "w.json", &document, error);
    if (status == TY_OK)
        status = ty_workload_from_json(ty_json_root(document), out, error);
    ty_json_free(document);
    return status;
}

/* The file's text with the first `find` after `from` replaced; free with ty_free. */
static char *edited(const char *path, const char *from, const char *find, const char *put)
{
    ty_text text = {0};
    char *bytes = NULL, *out = NULL;
    const char *at;
    size_t length = 0;

    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, NULL), TY_OK);
    at = strstr(bytes, from);
    cr_assert_not_null(at, "%s", from);
    at = strstr(at, find);
    cr_assert_not_null(at, "%s", find);
    ty_text_append(&text, bytes, (size_t)(at - bytes));
    ty_text_add(&text, put);
    ty_text_add(&text, at + strlen(find));
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    ty_free(bytes);
    return out;
}

static ty_digest digest_of(const ty_workload *workload)
{
    ty_digest digest;
    cr_assert_eq(ty_workload_digest(workload, &digest, NULL), TY_OK);
    return digest;
}

Test(workload, names_and_attributes)
{
    static const struct {
        ty_layer_kind kind;
        const char *name, *attributes; /* options after the bar */
    } rows[] = {
        {TY_LAYER_LINEAR, "linear", "in_features out_features has_bias "},
        {TY_LAYER_CONV2D, "conv2d",
         "has_bias in_channels out_channels kernel_height kernel_width stride padding_height "
         "padding_width groups "},
        {TY_LAYER_BATCH_NORM, "batch_norm", "features "},
        {TY_LAYER_LAYER_NORM, "layer_norm", "features | lacks_shift is_shared "},
        {TY_LAYER_RMS_NORM, "rms_norm", "features "},
        {TY_LAYER_POOL, "pool",
         "kernel_height kernel_width stride padding_height padding_width is_average is_global "},
        {TY_LAYER_RELU, "relu", ""},
        {TY_LAYER_GELU, "gelu", ""},
        {TY_LAYER_SILU, "silu", ""},
        {TY_LAYER_EMBEDDING, "embedding", "features vocabulary positions | token_types "},
        {TY_LAYER_ATTENTION, "attention",
         "has_bias features heads kv_heads head_size is_causal "
         "| value_head_size has_qkv_bias has_qk_norm query_rank kv_rank rotary_size "
         "relative_buckets "
         "is_fused window chosen_rows index_heads index_head_size has_sinks has_gate "
         "has_wide_qk_norm lacks_key_bias shares_kv is_shared "},
        {TY_LAYER_MLP, "mlp", "has_bias features hidden_features is_gated | is_relu is_shared "},
        {TY_LAYER_MOE, "moe",
         "has_bias features hidden_features is_gated experts experts_per_token "
         "| shared_features has_router_bias has_gate latent_features "},
        {TY_LAYER_LSTM, "lstm", "in_features has_bias hidden_features | is_reversed "},
        {TY_LAYER_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy", "classes "},
        {TY_LAYER_ADD, "add", ""},
        {TY_LAYER_CONCAT, "concat", "| is_of_features "},
        {TY_LAYER_FLATTEN, "flatten", ""},
        {TY_LAYER_TANH, "tanh", ""},
        {TY_LAYER_SLICE, "slice", "first_row rows "},
        {TY_LAYER_ADDITIVE_ATTENTION, "additive_attention",
         "in_features features hidden_features "},
        {TY_LAYER_STATE_SPACE, "state_space",
         "has_bias kernel_width features hidden_features state_size "
         "| groups heads step_rank has_step_norms "},
        {TY_LAYER_GATED_DELTA, "gated_delta",
         "kernel_width features heads kv_heads head_size value_head_size "},
        {TY_LAYER_EMBEDDING_BAG, "embedding_bag", "is_average features vocabulary first_row rows "},
        {TY_LAYER_DOT_INTERACTION, "dot_interaction", ""},
        {TY_LAYER_OPAQUE, "opaque", ""},
    };

    cr_assert_eq(sizeof rows / sizeof rows[0], TY_LAYER_KIND_COUNT);
    for (size_t i = 0; i < TY_LAYER_KIND_COUNT; i++) {
        char names[512] = "", options[256] = "";
        for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
            ty_attribute_use use = ty_layer_attribute_use(rows[i].kind, a);
            if (use == TY_ATTRIBUTE_REQUIRED)
                strcat(strcat(names, ty_attribute_name(a)), " ");
            else if (use == TY_ATTRIBUTE_OPTIONAL)
                strcat(strcat(options, ty_attribute_name(a)), " ");
        }
        if (options[0] != '\0')
            strcat(strcat(names, "| "), options);
        cr_expect_str_eq(ty_layer_kind_name(rows[i].kind), rows[i].name);
        cr_expect_str_eq(names, rows[i].attributes, "%s", rows[i].name);
    }
}

Test(workload, optimizer_state)
{
    static const struct {
        ty_optimizer optimizer;
        uint32_t expected;
    } rows[] = {{{.kind = TY_OPTIMIZER_SGD}, 0},
                {{.kind = TY_OPTIMIZER_SGD, .momentum = 0.9}, 1},
                {{.kind = TY_OPTIMIZER_ADAMW, .beta1 = 0.9}, 2}};
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(ty_optimizer_state_count(&rows[i].optimizer), rows[i].expected);
    cr_expect_str_eq(ty_optimizer_name(TY_OPTIMIZER_ADAMW), "adamw");
}

/* From AdamW with a rate of 3e-4, or from SGD with momentum 0.8. */
Test(workload, optimizer_words)
{
    static const struct {
        const char *word, *expected;
        double rate, momentum; /* from AdamW */
        double sgd_momentum;   /* from SGD */
    } rows[] = {{"sgd", "sgd", 1e-3, 0, 0},
                {"Momentum", "momentum", 1e-3, 0.9, 0.8},
                {"adam", "adamw", 3e-4, 0, 0},
                {"OneBitAdam", "adamw", 3e-4, 0, 0},
                {"adamw_8bit", "adam8bit", 3e-4, 0, 0},
                {"Adafactor", "adafactor", 1e-2, 0, 0},
                {"dist_muon", "muon", 3e-4, 0.95, 0.95}};
    static const struct {
        const char *word, *message;
    } mistakes[] = {{"adm", "found 'adm', expected sgd, momentum, adam, adamw, adam8bit, adafactor "
                            "or muon; did you mean adam?"},
                    {"lion", "found 'lion', expected sgd"},
                    {"", "found '', expected sgd"}};
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_optimizer o = {TY_OPTIMIZER_ADAMW, 3e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        ty_optimizer from_sgd = {TY_OPTIMIZER_SGD, 0.1, .momentum = 0.8}, again;
        cr_assert_eq(ty_optimizer_set(&o, rows[i].word, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_optimizer_set(&from_sgd, rows[i].word, &error), TY_OK);
        cr_expect_str_eq(ty_optimizer_word(&o), rows[i].expected);
        cr_expect_eq(o.learning_rate, rows[i].rate, "%s", rows[i].word);
        cr_expect_eq(o.momentum, rows[i].momentum, "%s", rows[i].word);
        cr_expect_eq(from_sgd.momentum, rows[i].sgd_momentum, "%s", rows[i].word);
        again = o;
        cr_assert_eq(ty_optimizer_set(&again, ty_optimizer_word(&o), &error), TY_OK);
        cr_expect_arr_eq(&again, &o, sizeof o, "%s", rows[i].word);
        cr_expect_eq(ty_optimizer_check_executed(&o, NULL), i < 4 ? TY_OK : TY_EUNSUPPORTED);
    }
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        ty_optimizer o = {.kind = TY_OPTIMIZER_ADAMW};
        cr_expect_eq(ty_optimizer_set(&o, mistakes[i].word, &error), TY_EINVAL);
        cr_expect(strstr(error.message, mistakes[i].message) != NULL, "%s", error.message);
    }
}

Test(workload, is_read_as_written)
{
    ty_workload *w = load(GPT);
    const ty_layer *attention = &w->layers[2], *logits = &w->layers[11];

    cr_expect_str_eq(w->name, "tiny-gpt");
    cr_expect(w->input_kind == TY_INPUT_TOKEN && w->input.dimension_count == 1);
    cr_expect(w->tokens_per_sample == 8 && w->sample_bytes == 36 && w->global_batch == 16);
    cr_expect(w->optimizer.kind == TY_OPTIMIZER_ADAMW && w->optimizer.epsilon == 1e-8);
    cr_expect_eq(w->layer_count, 13);
    cr_expect_eq(attention->kind, TY_LAYER_ATTENTION);
    cr_expect(attention->attributes[TY_HEADS] == 4 && attention->attributes[TY_KV_HEADS] == 2);
    cr_expect(attention->input_count == 1 && attention->inputs[0] == 1);
    cr_expect(attention->output.dimension_count == 2 && attention->output.dimensions[1] == 16);
    cr_expect(attention->forward_flop == 30000.0 && attention->kernel_count == 1);
    cr_expect_eq(attention->tied_to, TY_NO_LAYER);
    cr_expect_eq(logits->tied_to, 0);
    ty_workload_free(w);
    w = load(CNN);
    cr_expect(w->layers[0].is_frozen && !w->layers[1].is_frozen);
    cr_expect_eq(w->layers[0].input_count, 0);
    ty_workload_free(w);
}

Test(workload, survives_writing_and_reading)
{
    char folder[] = "/tmp/trainyard-test-XXXXXX", path[64];

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/w.json", folder);
    for (size_t i = 0; i < 3; i++) {
        ty_workload *first = load(files[i]), *second;
        cr_assert_eq(ty_workload_save(first, path, NULL), TY_OK);
        second = load(path);
        cr_expect_str_eq(digest_of(first).hex, digest_of(second).hex, "%s", files[i]);
        ty_workload_free(second);
        ty_workload_free(first);
    }
    unlink(path);
    rmdir(folder);
}

Test(workload, is_found_inside_another_document)
{
    ty_workload *first = load(CNN), *second = NULL;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    const ty_json *object = NULL;
    ty_error error = {0};

    ty_json_open(&w, NULL, '{');
    ty_workload_to_json(first, &w, "workload");
    ty_json_close(&w, '}');
    cr_assert_eq(ty_json_parse(text.data, text.length, "plan.json", &document, &error), TY_OK);
    cr_assert_eq(ty_json_object(ty_json_root(document), "workload", &object, &error), TY_OK);
    cr_assert_eq(ty_workload_from_json(object, &second, &error), TY_OK, "%s", error.message);
    cr_expect_str_eq(digest_of(first).hex, digest_of(second).hex);
    ty_workload_free(second);
    ty_json_free(document);

    first->layers[5].inputs[0] = 9;
    cr_assert_eq(ty_workload_check(first, "mine", &error), TY_EPARSE);
    cr_expect(strstr(error.message, "mine:/layers/5/inputs/0: found 9") == error.message, "%s",
              error.message);
    text.length = 0;
    w = ty_json_writer_on(&text);
    ty_json_open(&w, NULL, '{');
    ty_workload_to_json(first, &w, "workload");
    ty_json_close(&w, '}');
    cr_assert_eq(ty_json_parse(text.data, text.length, "plan.json", &document, &error), TY_OK);
    cr_assert_eq(ty_json_object(ty_json_root(document), "workload", &object, &error), TY_OK);
    cr_assert_eq(ty_workload_from_json(object, &second, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "plan.json:/workload/layers/5/inputs/0: found 9") ==
                  error.message,
              "%s", error.message);
    ty_workload_free(first);
    ty_json_free(document);
    ty_text_clear(&text);
}

/* The members that only scenarios have survive a round trip, and 1 local step equals none. */
Test(workload, scenarios)
{
    char *text = edited(CNN, "{", "\"layers\": [",
                        "\"learning\": \"gradient\", \"local_steps\": 20, "
                        "\"input_s_per_sample\": 0.25, \"layers\": [");
    char *plain = edited(CNN, "{", "\"layers\": [", "\"local_steps\": 1, \"layers\": [");
    ty_workload *w = NULL, *again = NULL;
    ty_json_document *document = NULL;
    ty_text written = {0};
    ty_json_writer writer = ty_json_writer_on(&written);
    ty_error error = {0};

    cr_assert_eq(from_text(text, &w, &error), TY_OK, "%s", error.message);
    cr_assert_eq(w->local_steps, 20);
    cr_assert_eq(w->input_s_per_sample, 0.25);
    ty_workload_to_json(w, &writer, NULL);
    cr_assert_eq(ty_json_parse(written.data, written.length, "w", &document, &error), TY_OK);
    cr_assert_eq(ty_workload_from_json(ty_json_root(document), &again, &error), TY_OK, "%s",
                 error.message);
    cr_expect_str_eq(digest_of(w).hex, digest_of(again).hex);
    ty_workload_free(w);
    ty_workload_free(again);
    cr_assert_eq(from_text(plain, &w, &error), TY_OK, "%s", error.message);
    again = load(CNN);
    cr_expect_str_eq(digest_of(w).hex, digest_of(again).hex);
    ty_workload_free(w);
    ty_workload_free(again);
    ty_json_free(document);
    ty_text_clear(&written);
    free(text);
    free(plain);
}

/* conv1 is frozen: backward ends at the norm after it, which is trained. */
Test(workload, backward_of_frozen_layers)
{
    ty_workload *w = load(CNN);
    bool takes_part[16];

    cr_assert_leq(w->layer_count, 16);
    cr_expect_eq(ty_workload_first_backward(w), 1);
    ty_workload_mark_backward(w, takes_part);
    for (uint32_t l = 0; l < w->layer_count; l++)
        cr_expect_eq(takes_part[l], l > 0, "layer %u", l);
    w->layers[0].is_frozen = false;
    cr_expect_eq(ty_workload_first_backward(w), 0);
    for (uint32_t l = 0; l < w->layer_count; l++)
        w->layers[l].is_frozen = true;
    cr_expect_eq(ty_workload_first_backward(w), w->layer_count);
    ty_workload_mark_backward(w, takes_part);
    cr_expect_not(takes_part[w->layer_count - 1]);
    for (uint32_t l = 0; l < w->layer_count; l++)
        w->layers[l].is_frozen = false;
    w->learning = TY_LEARNING_EVOLUTION;
    cr_expect_eq(ty_workload_first_backward(w), w->layer_count);
    ty_workload_free(w);
}

/* One edit of a good file each, and the resulting message. */
Test(workload, every_rule_is_checked)
{
    static const struct {
        const char *path, *from, *find, *put, *message;
    } rows[] = {
        {CNN, "schema", "workload/1", "workload/2", "/schema: found \"trainyard.workload/2\""},
        {CNN, "{", "tiny-cnn", "", "/name: found \"\""},
        {CNN, "{", "\"element_bytes\": 4", "\"element_bytes\": 0", "/element_bytes: found 0"},
        {CNN, "{", "\"real\"", "\"reel\"", "/input_kind: found \"reel\", expected \"real\"?"},
        {CNN, "{", "[1, 28, 28]", "[1, 28, 0]", "/input_shape/2: found 0"},
        {CNN, "{", "[1, 28, 28]", "[1, 1, 1, 28, 28]", "/input_shape: found an array of 5"},
        {CNN, "{", "[1, 28, 28]", "[1, 4294967296, 4294967296]",
         "/input_shape: found 1x4294967296x4294967296, expected dimensions >= 1 and a product "
         "below 2^53"},
        {CNN, "{", "\"global_batch\": 128", "\"global_batch\": -1", "/global_batch: found -1"},
        {CNN, "optimizer", "0.05", "-0.05", "/optimizer/learning_rate: found -0.05"},
        {CNN, "optimizer", "0.9", "1", "/optimizer/momentum: found 1"},
        {CNN, "optimizer", "momentum", "momentun", "/optimizer/momentum: found only \"momentun\""},
        {CNN, "optimizer", "\"sgd\"", "\"adamw\"", "/optimizer/beta1: found nothing"},
        {CNN, "{", "\"layers\": [", "\"layers\": [], \"x\": [", "/layers: found an array of 0"},
        {CNN, "conv1", "\"conv2d\"", "\"conv3d\"",
         "/layers/0/kind: found \"conv3d\", expected \"conv2d\"?"},
        {CNN, "conv1", "\"groups\": 1", "\"groups\": 2", "expected groups that divide"},
        {CNN, "conv1", "\"stride\": 2", "\"stride\": 0", "/layers/0/attributes/stride: found 0"},
        {CNN, "conv1", "\"has_bias\": 0", "\"has_bias\": 2",
         "/layers/0/attributes/has_bias: found 2"},
        {CNN, "conv1", "\"has_bias\": 0", "\"has_bias\": 0, \"heads\": 1",
         "/layers/0/attributes/heads: found an unknown key"},
        {CNN, "conv1", ", \"has_bias\": 0", "", "/layers/0/attributes/has_bias: found nothing"},
        {CNN, "conv1", "\"in_channels\": 1", "\"in_channels\": 3",
         "/layers/0: found conv2d input 1x28x28, expected in_channels 3"},
        {CNN, "conv1", "\"kernel_height\": 3", "\"kernel_height\": 31",
         "expected an image no smaller than the window"},
        {CNN, "conv1", "\"padding_width\": 1", "\"padding_width\": 3",
         "and the window larger than its padding"},
        {CNN, "conv1", "[8, 14, 14]", "[8, 14, 15]",
         "/layers/0/output_shape: found 8x14x15, expected 8x14x14"},
        {CNN, "conv1", "\"kernel_count\": 1", "\"kernel_count\": 1, \"color\": 1",
         "/layers/0/color: found an unknown key"},
        {CNN, "schema", "\"layers\": [", "\"learning\": \"guessing\", \"layers\": [",
         "/learning: found \"guessing\""},
        {CNN, "schema", "\"layers\": [", "\"local_steps\": 0, \"layers\": [",
         "/local_steps: found 0"},
        {CNN, "schema", "\"layers\": [",
         "\"learning\": \"evolution\", \"local_steps\": 2, \"layers\": [",
         "/local_steps: found 2, expected none"},
        {CNN, "schema", "\"layers\": [", "\"learning\": \"reinforcement\", \"layers\": [",
         "/learning: found reinforcement, expected another: the input is not an episode"},
        {CNN, "schema", "\"layers\": [", "\"deviation\": 0.1, \"layers\": [",
         "/deviation: found 0.1, expected none without evolution"},
        {CNN, "schema", "\"layers\": [", "\"deviation\": -1, \"layers\": [",
         "/deviation: found -1"},
        {CNN, "schema", "\"layers\": [",
         "\"teacher\": {\"labelled\": 0, \"every\": 1, \"decay\": 0, \"consistency\": 1, "
         "\"shift\": 0}, \"layers\": [",
         "/teacher/labelled: found 0"},
        {CNN, "schema", "\"layers\": [", "\"teacher\": {\"labelled\": 5}, \"layers\": [",
         "/teacher/every: found nothing"},
        {CNN, "schema", "\"layers\": [",
         "\"teacher\": {\"labelled\": 5, \"every\": 1, \"decay\": 0, \"consistency\": 1, "
         "\"shift\": 0}, \"layers\": [",
         "/teacher: found one, expected none: the input is not two views"},
        {CNN, "schema", "\"layers\": [", "\"input_s_per_sample\": -1, \"layers\": [",
         "/input_s_per_sample: found -1"},
        {CNN, "schema", "\"layers\": [", "\"input_s_per_sample\": 1e9, \"layers\": [",
         "/input_s_per_sample: found 1"},
        {CNN, "conv1", "\"is_frozen\"", "\"is_frosen\"",
         "/layers/0/is_frosen: found an unknown key, expected \"is_frozen\"?"},
        {CNN, "norm1", "\"features\": 8", "\"features\": 9",
         "/layers/1: found batch_norm input 8x14x14, expected a first dimension of features 9"},
        {CNN, "\"norm1\"", "\"norm1\"", "\"conv1\"",
         "/layers/1/name: found \"conv1\" as in layer 0"},
        {CNN, "relu1", "[1]", "[2]", "/layers/2/inputs/0: found 2, expected an earlier layer"},
        {CNN, "relu1", "[1]", "[0, 1]", "/layers/2/inputs: found 2, expected at most 1 for relu"},
        {CNN, "relu1", "[1]", "[0]", "/layers/1: found no reader of \"norm1\""},
        {CNN, "\"sum\"", "[2, 3]", "[2]", "/layers/4/inputs: found 1, expected at least 2"},
        {CNN, "\"sum\"", "[2, 3]", "[3, 2]", "/layers/4/inputs/1: found 2"},
        {CNN, "\"sum\"", "[2, 3]", "[3, 3]", "/layers/4/inputs/1: found 3"},
        {CNN, "\"both\"", "[16, 14, 14]", "[8, 14, 14]", "found 8x14x14, expected 16x14x14"},
        {CNN, "\"mean\"", "\"kernel_width\": 7", "\"kernel_width\": 6",
         "expected the image as the window of a global pool"},
        {CNN, "\"flat\"", "[16]", "[4, 4]", "/layers/8/output_shape: found 4x4, expected 16"},
        {CNN, "\"out\"", "\"in_features\": 16", "\"in_features\": 17",
         "/layers/9: found linear input 16, expected a last dimension of in_features 17"},
        {CNN, "\"out\"", "\"forward_flop\": 320", "\"forward_flop\": -320",
         "/layers/9/forward_flop: found -320, expected a number >= 0"},
        {CNN, "\"out\"", "\"stash_bytes\": 40", "\"stash_bytes\": 40.5",
         "/layers/9/stash_bytes: found 40.5"},
        {CNN, "\"out\"", "\"kernel_count\": 1", "\"kernel_count\": 1, \"measured_forward_s\": 1",
         "/layers/9/measured_forward_s: found an unknown key"},
        {CNN, "\"loss\"", "\"classes\": 10", "\"classes\": 11",
         "/layers/10: found softmax_cross_entropy input 10, expected a last dimension of classes "
         "11"},
        {GPT, "{", "[8]", "[8, 1]", "/input_shape: found 2 dimensions, expected 1 for tokens"},
        {GPT, "\"tokens\"", "\"positions\": 8", "\"positions\": 4", "at most 4 tokens"},
        {GPT, "\"norm1\"", "[0]", "[]", "/layers/1/inputs: found none, expected one"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 3",
         "expected heads to be a multiple of kv_heads"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 4, \"rotary_size\": 2",
         "expected query_rank and rotary_size only with kv_rank"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 4, \"kv_rank\": 2",
         "with it one input, kv_heads equal to heads"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 4, \"value_head_size\": 0",
         "/attributes/value_head_size: found 0"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 4, \"is_fused\": 2",
         "/attributes/is_fused: found 2"},
        {GPT, "\"attention1\"", "\"heads\": 4", "\"heads\": 4, \"is_relu\": 1",
         "/attributes/is_relu: found an unknown key"},
        {GPT, "\"experts\"", "\"experts_per_token\": 2", "\"experts_per_token\": 5",
         "expected experts_per_token to be at most experts"},
        {GPT, "\"memory\"", "\"in_features\": 16", "\"in_features\": 8", "/layers/10: found lstm"},
        {GPT, "\"logits\"", "\"tied_to\": 0", "\"tied_to\": 11",
         "/layers/11/tied_to: found 11, expected an earlier layer"},
        {GPT, "\"logits\"", "\"tied_to\": 0", "\"tied_to\": 5",
         "/layers/11/tied_to: found linear tied to mlp"},
        {GPT, "\"tokens\"", "\"vocabulary\": 50", "\"vocabulary\": 51",
         "/layers/11/tied_to: found a matrix of 51 x 16, expected 50 x 16"},
        {GPT, "\"act\"", "\"gelu\"", "\"embedding\"", "/layers/8/attributes/features"},
        {OPAQUE, "\"b\"", "\"measured_backward_s\": 0", "\"measured_backward_s\": -1",
         "/layers/1/measured_backward_s: found -1"},
        {OPAQUE, "\"b\"", "[0]", "[]", "/layers/0: found no reader of \"a\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = edited(rows[i].path, rows[i].from, rows[i].find, rows[i].put);
        ty_workload *workload = NULL;
        ty_error error = {0};
        ty_status status = from_text(text, &workload, &error);
        cr_expect_eq(status, TY_EPARSE, "row %zu: %s was taken", i, rows[i].put);
        cr_expect_null(workload);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        cr_expect_eq(strncmp(error.message, "w.json:/", 8), 0, "row %zu: %s", i, error.message);
        ty_free(text);
    }
}

/* Errors that only a workload made by hand can have. */
static void bad_kind(ty_workload *w)
{
    w->layers[1].kind = 99;
}
static void bad_optimizer(ty_workload *w)
{
    w->optimizer.kind = 7;
}
static void no_source(ty_workload *w)
{
    ty_free(w->source);
    w->source = NULL;
}
static void latin_source(ty_workload *w)
{
    ty_free(w->source);
    w->source = ty_strdup("M\xfcller");
}
static void cut_name(ty_workload *w)
{
    ty_free(w->layers[1].name);
    w->layers[1].name = ty_strdup("norm\xe2\x82");
}
static void nan_flop(ty_workload *w)
{
    w->layers[1].backward_flop = (double)NAN;
}
static void infinite_rate(ty_workload *w)
{
    w->optimizer.learning_rate = HUGE_VAL;
}
static void large_bytes(ty_workload *w)
{
    w->layers[1].stash_bytes = (uint64_t)1 << 53;
}
static void stray_attribute(ty_workload *w)
{
    w->layers[2].attributes[TY_HEADS] = 1;
}
static void measured_relu(ty_workload *w)
{
    w->layers[2].measured_forward_s = 1e-3;
}
static void no_dimensions(ty_workload *w)
{
    w->layers[2].output.dimension_count = 0;
}
static void early_loss(ty_workload *w)
{
    w->layers[2].kind = TY_LAYER_SOFTMAX_CROSS_ENTROPY;
}
static void tied_to_tied(ty_workload *w)
{
    w->layers[9].tied_to = 8;
    w->layers[8].tied_to = 7;
    w->layers[8].kind = TY_LAYER_OPAQUE;
}

static void lonely_attention(ty_workload *w)
{
    uint64_t *a = w->layers[2].attributes;
    w->layers[2].kind = TY_LAYER_ADDITIVE_ATTENTION;
    a[TY_IN_FEATURES] = a[TY_FEATURES] = a[TY_HIDDEN_FEATURES] = 14;
}
static void attention_to_images(ty_workload *w)
{
    ty_layer *sum = &w->layers[4];
    sum->kind = TY_LAYER_ADDITIVE_ATTENTION;
    sum->attributes[TY_IN_FEATURES] = sum->attributes[TY_FEATURES] = 14;
    sum->attributes[TY_HIDDEN_FEATURES] = 14;
}
static void bag_of_images(ty_workload *w)
{
    uint64_t *a = w->layers[2].attributes;
    w->layers[2].kind = TY_LAYER_EMBEDDING_BAG;
    a[TY_VOCABULARY] = a[TY_FEATURES] = a[TY_ROWS] = 14;
}
static void lonely_interaction(ty_workload *w)
{
    w->layers[2].kind = TY_LAYER_DOT_INTERACTION;
}
static void interaction_of_images(ty_workload *w)
{
    w->layers[4].kind = TY_LAYER_DOT_INTERACTION;
}
static void wide_concat(ty_workload *w)
{
    w->layers[5].attributes[TY_IS_OF_FEATURES] = 1;
}

Test(workload, made_by_hand)
{
    static const struct {
        void (*spoil)(ty_workload *);
        const char *message;
    } rows[] = {{bad_kind, "hand:/layers/1/kind: found number 99"},
                {bad_optimizer, "hand:/optimizer/kind: found number 7"},
                {no_source, "hand:/source: found nothing"},
                {latin_source, "hand:/source: found bytes that are no UTF-8"},
                {cut_name, "hand:/layers/1/name: found bytes that are no UTF-8"},
                {nan_flop, "hand:/layers/1/backward_flop: found"},
                {infinite_rate, "hand:/optimizer/learning_rate: found inf"},
                {large_bytes, "hand:/layers/1/stash_bytes: found 9007199254740992"},
                {stray_attribute, "hand:/layers/2/attributes/heads: found 1, expected 0 to 0"},
                {measured_relu, "hand:/layers/2/measured_forward_s: found 0.001, expected none"},
                {no_dimensions, "hand:/layers/2/output_shape: found 0 dimensions"},
                {early_loss, "hand:/layers/2/kind: found a loss"},
                {tied_to_tied, "hand:/layers/8/tied_to: found opaque tied to pool"},
                {lonely_attention, "hand:/layers/2/inputs: found 1, expected 2 for additive"},
                {attention_to_images, "hand:/layers/4: found additive_attention input 8x14x14, "
                                      "expected a sequence of 2 dimensions"},
                {bag_of_images, "hand:/layers/2: found embedding_bag input 8x14x14, expected the "
                                "batch, made of at least 14 numbers"},
                {lonely_interaction, "hand:/layers/2/inputs: found 1, expected at least 2 for dot"},
                {interaction_of_images, "hand:/layers/4: found dot_interaction input 8x14x14, "
                                        "expected vectors of 1 dimension"},
                {wide_concat, "hand:/layers/5/output_shape: found 16x14x14, expected 8x14x28"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = load(CNN);
        ty_error error = {0};
        cr_assert_eq(ty_workload_check(w, "hand", &error), TY_OK);
        rows[i].spoil(w);
        cr_expect_eq(ty_workload_check(w, "hand", &error), TY_EPARSE, "row %zu", i);
        cr_expect(strstr(error.message, rows[i].message) == error.message, "row %zu: %s", i,
                  error.message);
        ty_workload_free(w);
    }
}

/* Any change of a workload's content changes its digest; a change of its formatting does not. */
Test(workload, digests)
{
    static const struct {
        const char *from, *find, *put;
        bool is_same;
    } rows[] = {{"{", "tiny-cnn", "tiny-cnm", false},
                {"{", "made for tests", "made up", false},
                {"{", "785", "786", false},
                {"{", "0.0005", "0.00050000000000000012", false},
                {"{", "\"is_frozen\": true", "\"is_frozen\": false", false},
                {"{", "\"forward_flop\": 320", "\"forward_flop\": 321", false},
                {"{", "0.0005", "5e-4", true},
                {"{", "\n", "\n\n  ", true},
                {"relu1", "\"kernel_count\": 1", "\"kernel_count\": 1, \"tied_to\": null", true}};
    ty_workload *w = load(CNN);
    ty_digest original = digest_of(w);

    ty_workload_free(w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = edited(CNN, rows[i].from, rows[i].find, rows[i].put);
        ty_error error = {0};
        cr_assert_eq(from_text(text, &w, &error), TY_OK, "%s", error.message);
        cr_expect_eq(strcmp(digest_of(w).hex, original.hex) == 0, rows[i].is_same, "row %zu: %s", i,
                     rows[i].put);
        ty_workload_free(w);
        ty_free(text);
    }
}

/* Every optional attribute distinguishes two workloads, and is omitted from files if it is 0. */
Test(workload, optional_attributes)
{
    static const struct {
        const char *find, *put, *signature;
    } rows[] = {
        {"\"heads\": 4", "\"heads\": 4, \"is_fused\": 0", " is_causal=1 input=8x16"},
        {"\"heads\": 4", "\"heads\": 4, \"is_fused\": 1", " is_causal=1 is_fused=1 input=8x16"},
        {"\"heads\": 4, \"kv_heads\": 2",
         "\"heads\": 4, \"kv_heads\": 4, \"kv_rank\": 8, \"rotary_size\": 2",
         " is_causal=1 kv_rank=8 rotary_size=2 input=8x16"},
        {"\"inputs\": [1]", "\"inputs\": [0, 1]", " is_causal=1 input=8x16,8x16"},
    };
    ty_workload *w = load(GPT), *again;
    ty_digest original = digest_of(w);

    ty_workload_free(w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = edited(GPT, "\"attention1\"", rows[i].find, rows[i].put), *signature = NULL;
        ty_text written = {0};
        ty_json_writer writer = ty_json_writer_on(&written);
        ty_error error = {0};
        cr_assert_eq(from_text(text, &w, &error), TY_OK, "row %zu: %s", i, error.message);
        cr_expect_eq(strcmp(digest_of(w).hex, original.hex) == 0, i == 0, "row %zu", i);
        cr_assert_eq(ty_layer_signature(w, 2, &signature, &error), TY_OK);
        cr_expect(strstr(signature, rows[i].signature) != NULL, "row %zu: %s", i, signature);
        ty_workload_to_json(w, &writer, NULL);
        cr_assert_eq(from_text(written.data, &again, &error), TY_OK, "%s", error.message);
        cr_expect_str_eq(digest_of(again).hex, digest_of(w).hex, "row %zu", i);
        ty_workload_free(w);
        ty_workload_free(again);
        ty_text_clear(&written);
        ty_free(signature);
        ty_free(text);
    }
}

Test(workload, signatures)
{
    static const struct {
        const char *path;
        uint32_t layer;
        const char *expected;
    } rows[] = {
        {CNN, 0,
         "conv2d has_bias=0 in_channels=1 out_channels=8 kernel_height=3 kernel_width=3 stride=2 "
         "padding_height=1 padding_width=1 groups=1 input=1x28x28 is_frozen=1"},
        {CNN, 2, "relu input=8x14x14"},
        {CNN, 5, "concat input=8x14x14,8x14x14"},
        {CNN, 9, "linear in_features=16 out_features=10 has_bias=1 input=16"},
        {GPT, 0, "embedding features=16 vocabulary=50 positions=8 input=8"},
        {OPAQUE, 0, "opaque input=3x224x224 forward_s=0.001 backward_s=0.0021 element_bytes=2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = load(rows[i].path);
        char *signature = NULL;
        cr_assert_eq(ty_layer_signature(w, rows[i].layer, &signature, NULL), TY_OK);
        cr_expect_str_eq(signature, rows[i].expected);
        ty_free(signature);
        ty_workload_free(w);
    }
}

Test(workload, sums)
{
    ty_workload *w = load(CNN);

    /* conv1 72, norm1 16, conv2 576, out 170 parameters of 4 bytes */
    cr_expect_eq(ty_workload_parameter_bytes(w, 0, 11), 4 * (72 + 16 + 576 + 170));
    cr_expect_eq(ty_workload_parameter_bytes(w, 1, 3), 4 * (16 + 576));
    cr_expect_eq(ty_workload_parameter_bytes(w, 3, 0), 0);
    cr_expect_eq(ty_workload_stash_bytes(w, 7, 4), 4 * (16 + 16 + 10 + 1));
    cr_expect(ty_workload_forward_flop(w, 9, 2) == 370.0);
    cr_expect(ty_workload_backward_flop(w, 9, 2) == 660.0);
    ty_workload_free(w);
}

/* ---- cuts against the definition, on random graphs ---- */

static uint32_t next_random(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % limit;
}

static ty_workload *random_graph(uint64_t *state)
{
    ty_workload *w = ty_alloc(1, sizeof *w);

    w->layer_count = 2 + next_random(state, 9);
    w->layers = ty_alloc(w->layer_count, sizeof *w->layers);
    for (uint32_t i = 0; i < w->layer_count; i++) {
        ty_layer *l = &w->layers[i];
        bool is_chain = next_random(state, 2) == 0;
        l->inputs = ty_alloc(w->layer_count, sizeof *l->inputs);
        l->output_bytes = 1 + next_random(state, 1000);
        for (uint32_t k = 0; k < i; k++) {
            if (is_chain ? k + 1 == i : next_random(state, 3) == 0)
                l->inputs[l->input_count++] = k;
        }
        if (l->input_count > 0 && next_random(state, 4) == 0) { /* the last one twice */
            l->inputs[l->input_count] = l->inputs[l->input_count - 1];
            l->input_count++;
        }
    }
    cr_assert_eq(ty_workload_index_make(w, NULL), TY_OK);
    return w;
}

Test(workload, cuts_by_definition)
{
    uint64_t seed = 7, state = seed;
    int cut_count = 0, wide_count = 0;

    for (int round = 0; round < 2000; round++) {
        ty_workload *w = random_graph(&state);
        for (uint32_t cut = 0; cut <= w->layer_count; cut++) {
            uint64_t bytes = 0;
            uint32_t crossing = 0, last = TY_NO_LAYER, producers[16], found[16];
            bool batch_crosses = false, is_cut;
            for (uint32_t producer = 0; producer < cut; producer++) {
                bool crosses = false;
                for (uint32_t i = cut; i < w->layer_count; i++) {
                    for (uint32_t k = 0; k < w->layers[i].input_count; k++)
                        crosses = crosses || w->layers[i].inputs[k] == producer;
                }
                if (crosses) {
                    bytes += w->layers[producer].output_bytes;
                    producers[crossing++] = producer;
                    last = producer;
                }
            }
            for (uint32_t i = cut; i < w->layer_count; i++)
                batch_crosses = batch_crosses || w->layers[i].input_count == 0;
            is_cut = cut > 0 && cut < w->layer_count && !batch_crosses && crossing == 1 &&
                     last == cut - 1;
            cut_count += is_cut;
            wide_count += cut > 0 && cut < w->layer_count && !batch_crosses && crossing > 1;
            cr_assert_eq(ty_workload_crossing(w, cut, NULL), crossing);
            cr_assert_eq(ty_workload_crossing(w, cut, found), crossing);
            for (uint32_t i = 0; i < crossing; i++)
                cr_assert_eq(found[i], producers[i], "seed %llu round %d cut %u",
                             (unsigned long long)seed, round, cut);
            cr_assert_eq(ty_workload_is_divisible(w, cut),
                         cut > 0 && cut < w->layer_count && !batch_crosses,
                         "seed %llu round %d cut %u", (unsigned long long)seed, round, cut);
            cr_assert_eq(ty_workload_cut_gradient_bytes(w, cut), bytes, "nothing is frozen");
            cr_assert_eq(ty_workload_cut_bytes(w, cut), bytes, "seed %llu round %d cut %u",
                         (unsigned long long)seed, round, cut);
            cr_assert_eq(ty_workload_is_cut(w, cut), is_cut, "seed %llu round %d cut %u",
                         (unsigned long long)seed, round, cut);
        }
        ty_workload_free(w);
    }
    cr_assert_gt(cut_count, 100, "the graphs have cuts");
    cr_assert_gt(wide_count, 100, "and wider ones");
}

Test(workload, every_allocation_may_fail)
{
    for (size_t i = 0; i < 3; i++) {
        ty_workload *w = NULL;
        ty_status status = TY_ENOMEM;
        ty_error error = {0};
        ty_digest digest;
        long n = 0;
        while (status != TY_OK) {
            ty_memory_fail_after(++n);
            status = ty_workload_load(files[i], &w, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "%s, allocation %ld: %s", files[i], n,
                      error.message);
            cr_assert(status == TY_OK || w == NULL);
            cr_assert_lt(n, 1000);
        }
        cr_assert_gt(n, 10);
        ty_memory_fail_after(1);
        cr_expect_eq(ty_workload_digest(w, &digest, &error), TY_ENOMEM);
        ty_memory_fail_after(0);
        ty_workload_free(w);
    }
    ty_workload_free(NULL);
}

/* ---- Precisions ---------------------------------------------------------------------------- */

Test(workload, precisions_are_kept_where_their_size_does_not_tell)
{
    static const struct {
        ty_precision precision;
        uint32_t bytes;
        bool is_written;
    } rows[] = {{TY_PRECISION_FP32, 4, false}, {TY_PRECISION_TF32, 4, true},
                {TY_PRECISION_BF16, 2, false}, {TY_PRECISION_FP16, 2, true},
                {TY_PRECISION_FP8, 2, true},   {TY_PRECISION_FP4, 2, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_json_document *document = NULL;
        ty_workload *w = load(CNN), *back = NULL;
        ty_text text = {0};
        ty_json_writer writer = ty_json_writer_on(&text);
        const uint64_t bytes = w->layers[0].parameter_bytes;
        ty_error error = {0};

        ty_workload_set_precision(w, rows[i].precision);
        cr_assert_eq(w->element_bytes, rows[i].bytes);
        cr_assert_eq(w->layers[0].parameter_bytes, bytes / 4 * rows[i].bytes);
        cr_assert_eq(ty_workload_check(w, "toy", &error), TY_OK, "%s", error.message);
        ty_workload_to_json(w, &writer, NULL);
        cr_assert_eq(strstr(text.data, "\"precision\"") != NULL, rows[i].is_written);
        cr_assert_eq(ty_json_parse(text.data, text.length, "toy", &document, &error), TY_OK);
        cr_assert_eq(ty_workload_from_json(ty_json_root(document), &back, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(back->precision, rows[i].precision);
        back->element_bytes = 1;
        cr_assert_eq(ty_workload_check(back, "toy", &error),
                     rows[i].precision == TY_PRECISION_FP32 ? TY_OK : TY_EPARSE);
        ty_json_free(document);
        ty_text_clear(&text);
        ty_workload_free(back);
        ty_workload_free(w);
    }
}
