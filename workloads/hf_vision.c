/* Networks that look or listen: image classifiers, CLIP, Whisper, and language models whose
 * sequence begins with an image. Blocks are those of transformer.c; what makes patches of an image,
 * spectra of sound or joins two towers has no kind of the worker's and is opaque, with its
 * parameters and products. Sources: modelling classes of huggingface/transformers. */
#include "hf_config.h"

#include <math.h>
#include <string.h>

uint32_t ty_hf_opaque(ty_builder *b, const char *name, const uint32_t *inputs, uint32_t count,
                      const ty_shape *output, double parameters, double rows)
{
    const ty_opaque known = {.output = *output,
                             .parameter_bytes = (uint64_t)(4 * parameters),
                             .forward_flop = 2 * parameters * rows,
                             .backward_flop = 4 * parameters * rows};
    ty_builder_name_next(b, name);
    return ty_builder_opaque(b, inputs, count, &known);
}

static ty_builder *new_builder(const hf_config *c, ty_input_kind kind, const ty_shape *input,
                               double sample_bytes)
{
    char *name = NULL;
    ty_builder *b = NULL;

    if (ty_import_name(c->source, &name) == TY_OK) {
        b = ty_builder_new(name, kind, input);
        if (b != NULL)
            ty_builder_set_sample_bytes(b, (uint64_t)sample_bytes);
    }
    ty_free(name);
    return b;
}

/* ---- Images ---------------------------------------------------------------------------------- */

/* What makes a sequence of an image. */
typedef struct eye {
    ty_transformer t; /* its blocks */
    uint64_t patch, channels, frames, image;
    uint64_t positions; /* rows of the table; 0: as many as patches and classes */
    uint64_t classes;   /* rows before the patches */
    uint64_t merged;    /* patches a side that become one row of the language model's */
    bool has_patch_bias, has_first_norm, lacks_positions;
} eye;

static double patches_of(const eye *e)
{
    double side = e->image > 0 ? floor((double)e->image / (double)e->patch) : 0;
    if (side >= 1)
        return side * side;
    return e->positions > 0 ? (double)e->positions : 1024;
}

static double patch_numbers(const eye *e)
{
    return (double)(e->channels * e->frames * e->patch * e->patch);
}

/* Of an image, or of as many frames as one patch has. */
static double image_bytes(const eye *e)
{
    return patches_of(e) * patch_numbers(e);
}

/* Patches and blocks behind them. */
static uint32_t append_eye(ty_builder *b, const eye *e, const char *prefix)
{
    const double features = (double)e->t.features, rows = patches_of(e) + (double)e->classes;
    const double positions = e->lacks_positions ? 0
                             : e->positions > 0 ? (double)e->positions
                                                : rows;
    const double matrix = patch_numbers(e) * features;
    const ty_opaque patches = {
        .output = {2, {(uint64_t)rows, e->t.features}},
        .parameter_bytes = (uint64_t)(4 * (matrix + features * ((double)e->has_patch_bias +
                                                                (double)e->classes + positions))),
        .forward_flop = 2 * matrix * patches_of(e),
        .backward_flop = 2 * matrix * patches_of(e)};
    char name[48];
    uint32_t x;

    snprintf(name, sizeof name, "%spatches", prefix);
    ty_builder_name_next(b, name);
    x = ty_builder_opaque(b, (uint32_t[]){TY_BATCH}, 1, &patches);
    if (e->has_first_norm) {
        snprintf(name, sizeof name, "%sfirst_norm", prefix);
        ty_builder_name_next(b, name);
        x = ty_builder_layer_norm(b, x);
    }
    return ty_transformer_append(b, &e->t, prefix, x, TY_BATCH);
}

/* A side, or two that are equal. */
static ty_status read_side(const hf_config *c, const ty_json *v, const char *key, bool is_needed,
                           uint64_t *out)
{
    const ty_json *list;
    uint64_t sides[2];
    ty_status status;

    if (!ty_json_has(v, key) || ty_json_array(v, key, 0, SIZE_MAX, &list, NULL) != TY_OK)
        return ty_hf_size_of(c, v, (hf_names){key}, is_needed, 1, out);
    TY_CHECK(ty_json_array(v, key, 2, 2, &list, c->error), status, cleanup);
    for (size_t i = 0; i < 2; i++)
        TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), 1, INT32_MAX, &sides[i], c->error), status,
                 cleanup);
    if (sides[0] != sides[1])
        status = ty_json_fail(list, c->error, "two equal sides");
    else
        *out = sides[0];

cleanup:
    return status;
}

/* "mlp_ratio", in place of a number of hidden features. */
static ty_status read_ratio(const hf_config *c, const ty_json *v, eye *e)
{
    double ratio = 4;
    ty_status status = TY_OK;

    if (ty_json_has(v, "mlp_ratio"))
        status = ty_json_number(v, "mlp_ratio", 0.01, 1000, &ratio, c->error);
    if (status == TY_OK && e->t.hidden_features == 0)
        e->t.hidden_features = (uint64_t)(ratio * (double)e->t.features);
    return status;
}

static ty_status read_eye(const hf_config *c, const ty_json *v, eye *e)
{
    const struct {
        uint64_t *out;
        bool is_needed;
        const char *names[HF_MOST_NAMES];
    } keys[] = {
        /* Qwen2-VL's "hidden_size" is the language model's */
        {&e->t.features, true, {"embed_dim", "hidden_size", "vt_hidden_size", "width"}},
        {&e->t.blocks, true, {"num_hidden_layers", "depth", "vt_num_hidden_layers", "layers"}},
        {&e->t.heads, true, {"num_attention_heads", "num_heads", "vt_num_attention_heads"}},
        {&e->t.kv_heads, false, {"num_key_value_heads"}},
        {&e->t.head_size, false, {"head_dim"}},
        {&e->t.hidden_features, false, {"intermediate_size", "vt_intermediate_size"}},
        {&e->channels, false, {"in_channels", "in_chans", "num_channels"}},
        {&e->frames, false, {"temporal_patch_size"}},
        {&e->positions, false, {"num_position_embeddings", "position_embedding_size"}},
        {&e->merged, false, {"spatial_merge_size", "pooling_kernel_size"}},
    };
    ty_status status = TY_OK;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == TY_OK; i++)
        status = ty_hf_size_of(c, v, keys[i].names, keys[i].is_needed && *keys[i].out == 0, 1,
                               keys[i].out);
    if (status == TY_OK)
        status = read_side(c, v, ty_json_has(v, "patch_size") ? "patch_size" : "spatial_patch_size",
                           e->patch == 0, &e->patch);
    ty_json_ignore(v, "spatial_patch_size");
    if (status == TY_OK)
        status = read_side(c, v, "image_size", false, &e->image);
    return status == TY_OK ? read_ratio(c, v, e) : status;
}

static ty_status check_eye(const hf_config *c, const ty_json *v, eye *e)
{
    char expected[TY_TRANSFORMER_TEXT_SIZE], place[TY_JSON_PLACE_SIZE];

    if (ty_transformer_fits(&e->t, expected) && image_bytes(e) < 1e12)
        return TY_OK;
    ty_json_place(v, place);
    return ty_fail(c->error, TY_EPARSE, "%.200s expected %s", place, expected);
}

static const eye usual_eye = {.t = {.form = TY_ENCODER,
                                    .norm_place = TY_NORMS_BEFORE,
                                    .has_attention_bias = true,
                                    .has_mlp_bias = true,
                                    .is_fused = true},
                              .channels = 3,
                              .frames = 1,
                              .merged = 1,
                              .has_patch_bias = true};

/* ---- An image before a text ------------------------------------------------------------------ */

/* Sizes that a file of Mistral's tower leaves out. */
static const eye pixtral_eye = {.t = {.form = TY_ENCODER,
                                      .norm_place = TY_NORMS_BEFORE,
                                      .is_fused = true,
                                      .features = 1024,
                                      .blocks = 24,
                                      .heads = 16,
                                      .hidden_features = 4096},
                                .channels = 3,
                                .frames = 1,
                                .merged = 1,
                                .patch = 16,
                                .image = 1024};

/* How the towers of known families differ from a plain one, by the "model_type" of the file and of
 * the tower. */
static void set_tower(const char *type, const char *own, eye *e)
{
    bool is_gated = strstr(type, "gemma4") != NULL || strstr(type, "pixtral") != NULL ||
                    strstr(type, "mistral3") != NULL || strstr(type, "qwen2_5_vl") != NULL ||
                    strstr(type, "glm4v") != NULL;

    if (is_gated) {
        e->t.is_gated = e->t.is_rms_norm = true;
        e->t.has_attention_bias = e->t.has_mlp_bias = strstr(type, "qwen2_5") != NULL;
        e->has_patch_bias = false;
        e->lacks_positions = strstr(type, "gemma4") == NULL; /* rotated */
    }
    if (strstr(type, "gemma4") != NULL) { /* two tables of positions, of rows and columns */
        e->t.norm_place = TY_NORMS_AROUND;
        e->t.has_qk_norm = true;
        e->positions *= 2;
        e->t.lacks_final_norm = true;
    }
    if (strstr(type, "qwen") != NULL)
        e->t.lacks_final_norm = true; /* what joins it to the text has one */
    if (strstr(type, "kimi") != NULL) {
        e->positions = 64 * 64;
        e->merged = 2;
    }
    if (strstr(type, "qwen2_vl") != NULL) {
        e->has_patch_bias = false;
        e->lacks_positions = true; /* rotated */
    }
    if (strstr(type, "internvl") != NULL) {
        e->classes = 1;
        e->t.lacks_final_norm = true;
    }
    if (strstr(type, "llama4") != NULL || strstr(own, "clip") != NULL) {
        e->classes = 1;
        e->has_patch_bias = false;
        e->has_first_norm = true;
    }
    if (strstr(type, "llama4") != NULL)
        e->merged = 2;
}

/* Numbers of what makes the language model's rows of the tower's. */
static double projector_parameters(const char *type, const eye *e, double features, double outputs)
{
    const double width = (double)e->t.features, side = (double)e->merged;
    const double merged = width * side * side;
    double both;

    if (strstr(type, "gemma") != NULL)
        return width * features + (strstr(type, "gemma3") != NULL ? width : 0);
    if (strstr(type, "llama4") != NULL) /* 4,096 between the two towers */
        return (merged + 4096 + features) * 4096;
    if (strcmp(type, "pixtral") == 0 && side > 1) /* merged in the tower's width: Mistral 3 */
        return merged * width + width + width * features + features * features;
    if (strstr(type, "idefics3") != NULL || strstr(type, "smolvlm") != NULL)
        return merged * features;
    if (strstr(type, "qwen2") != NULL)
        return (merged + features) * (merged + 1) + width * (e->t.is_rms_norm ? 1 : 2);
    if (strstr(type, "qwen3") != NULL || strstr(type, "kimi") != NULL)
        return (1 + outputs) * (merged * merged + merged + merged * features + features) +
               2 * width + 2 * merged * outputs;
    both = merged * features + features + features * features + features;
    if (strstr(type, "internvl") != NULL) /* a norm; and two scales of every block of the tower */
        both += 2 * merged + 2 * width * (double)e->t.blocks;
    return both;
}

static ty_status count_deepstack(const hf_config *c, const ty_json *v, double *out)
{
    const ty_json *list;
    ty_status status = TY_OK;

    *out = 0;
    if (!ty_json_has(v, "deepstack_visual_indexes"))
        return TY_OK;
    status = ty_json_array(v, "deepstack_visual_indexes", 0, 100, &list, c->error);
    if (status == TY_OK)
        *out = (double)ty_json_size(list);
    return status;
}

/* Patches a side that become one row, as the whole file says it: a number, or its inverse. */
static ty_status read_merging(const hf_config *c, eye *e)
{
    double share = 1;
    ty_status status;

    TY_CHECK(ty_hf_size_of(c, c->outer, (hf_names){"spatial_merge_size", "scale_factor"}, false, 1,
                           &e->merged),
             status, cleanup);
    if (!ty_json_has(c->outer, "downsample_ratio"))
        goto cleanup;
    TY_CHECK(ty_json_number(c->outer, "downsample_ratio", 0.01, 1, &share, c->error), status,
             cleanup);
    e->merged = (uint64_t)round(1 / share);

cleanup:
    return status;
}

/* Rows of the text that an image becomes. */
static ty_status count_image_rows(const hf_config *c, const eye *e, uint64_t *out)
{
    double rows = patches_of(e) / (double)(e->merged * e->merged);

    *out = rows >= 1 ? (uint64_t)rows : 1;
    return ty_hf_size_of(c, c->outer,
                         (hf_names){"mm_tokens_per_image", "vision_soft_tokens_per_image"}, false,
                         1, out);
}

ty_status ty_hf_build_with_vision(hf_config *c, ty_builder **out)
{
    const ty_transformer *t = &c->t;
    const ty_json *v;
    const char *type = "", *own = "";
    eye e = usual_eye;
    uint64_t image_rows = 1;
    uint32_t embedding, text, image;
    double deepstack;
    ty_status status;
    ty_builder *b = NULL;

    TY_CHECK(ty_json_object(c->outer, "vision_config", &v, c->error), status, cleanup);
    if (ty_json_has(v, "model_type"))
        TY_CHECK(ty_json_string(v, "model_type", &own, c->error), status, cleanup);
    if (ty_json_has(c->outer, "model_type"))
        TY_CHECK(ty_json_string(c->outer, "model_type", &type, c->error), status, cleanup);
    if (type[0] == '\0' || strcmp(own, "pixtral") == 0)
        type = own;
    if (strcmp(type, "pixtral") == 0)
        e = pixtral_eye;
    TY_CHECK(read_eye(c, v, &e), status, cleanup);
    TY_CHECK(read_merging(c, &e), status, cleanup);
    set_tower(type, own, &e);
    TY_CHECK(check_eye(c, v, &e), status, cleanup);
    TY_CHECK(count_deepstack(c, v, &deepstack), status, cleanup);
    TY_CHECK(count_image_rows(c, &e, &image_rows), status, cleanup);

    b = new_builder(c, TY_INPUT_TOKEN, &(ty_shape){1, {t->sequence}},
                    (double)((t->sequence + 1) * t->token_bytes) + image_bytes(&e));
    embedding = ty_transformer_append_embedding(b, t, &text);
    image = append_eye(b, &e, "vision.");
    image = ty_hf_opaque(
        b, "vision.projector", &image, 1, &(ty_shape){2, {image_rows, t->features}},
        projector_parameters(type, &e, (double)t->features, deepstack), (double)image_rows);
    ty_builder_name_next(b, "image_and_text");
    text =
        ty_builder_opaque(b, (uint32_t[]){text, image}, 2,
                          &(ty_opaque){.output = {2, {t->sequence, t->features}}, .is_view = true});
    text = ty_transformer_append(b, t, "", text, TY_BATCH);
    ty_transformer_append_head(b, t, text, embedding);
    ty_import_note(c->source,
                   "vision_config: one image of %.0f patches a sample, %llu rows of the text",
                   patches_of(&e), (unsigned long long)image_rows);
    *out = b;
    b = NULL; /* given away */

cleanup:
    ty_builder_free(b);
    return status;
}

/* ---- Classes of an image --------------------------------------------------------------------- */

ty_status ty_hf_build_vit(hf_config *c, ty_builder **out)
{
    const ty_json *labels;
    eye e = usual_eye;
    uint64_t classes = 1000;
    bool has_bias = true;
    ty_status status;
    ty_builder *b;

    e.t.features = 768;
    e.t.blocks = e.t.heads = 12;
    e.t.hidden_features = 0;
    e.patch = 16;
    e.image = 224;
    e.classes = 1;
    e.t.head = TY_CLASSIFIER_HEAD;
    TY_CHECK(read_eye(c, c->root, &e), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "qkv_bias", &has_bias), status, cleanup);
    if (ty_json_has(c->root, "id2label")) {
        TY_CHECK(ty_json_object(c->root, "id2label", &labels, c->error), status, cleanup);
        classes = ty_json_size(labels);
    } else {
        TY_CHECK(ty_hf_size(c, "num_labels", 1, &classes), status, cleanup);
        ty_import_note(c->source, "%llu classes assumed", (unsigned long long)classes);
    }
    e.t.classes = classes;
    TY_CHECK(check_eye(c, c->root, &e), status, cleanup);
    b = new_builder(c, TY_INPUT_REAL, &(ty_shape){3, {e.channels, e.image, e.image}},
                    image_bytes(&e) + 2);
    ty_transformer_append_head(b, &e.t, append_eye(b, &e, ""), TY_BATCH);
    *out = b;

cleanup:
    return status;
}

/* As ty_import_settle, with the place of the configuration. */
static ty_status settle(const hf_config *c, ty_transformer *t)
{
    char place[TY_JSON_PLACE_SIZE];

    ty_json_place(c->root, place);
    return ty_import_settle(c->source, t, place);
}

/* ---- Two towers ------------------------------------------------------------------------------ */

/* A part of the file, or an object that has nothing: all is as usual. */
static ty_status find_part(const hf_config *c, const char *key, const ty_json **out)
{
    return ty_json_object(c->outer, key, out, c->error);
}

ty_status ty_hf_build_clip(hf_config *c, ty_builder **out)
{
    const ty_json *part;
    hf_config words = *c;
    ty_transformer *t = &words.t;
    eye e = usual_eye;
    uint64_t shared = 512;
    uint32_t text, image;
    ty_status status;
    ty_builder *b;

    *t = (ty_transformer){.form = TY_DECODER,
                          .has_attention_bias = true,
                          .has_mlp_bias = true,
                          .is_fused = true,
                          .features = 512,
                          .hidden_features = 2048,
                          .blocks = 12,
                          .heads = 8,
                          .vocabulary = 49408,
                          .positions = 77};
    e.t.features = 768;
    e.t.hidden_features = 3072;
    e.t.blocks = e.t.heads = 12;
    e.patch = 32;
    e.image = 224;
    e.classes = 1;
    e.has_patch_bias = false;
    e.has_first_norm = true;
    e.t.lacks_final_norm = true; /* one of the first row alone: in what joins the towers */
    TY_CHECK(find_part(c, "text_config", &part), status, cleanup);
    words.root = part;
    TY_CHECK(ty_hf_size(&words, "hidden_size", 1, &t->features), status, cleanup);
    TY_CHECK(ty_hf_size(&words, "intermediate_size", 1, &t->hidden_features), status, cleanup);
    TY_CHECK(ty_hf_size(&words, "num_hidden_layers", 1, &t->blocks), status, cleanup);
    TY_CHECK(ty_hf_size(&words, "num_attention_heads", 1, &t->heads), status, cleanup);
    TY_CHECK(ty_hf_size(&words, "vocab_size", 1, &t->vocabulary), status, cleanup);
    TY_CHECK(ty_hf_size(&words, "max_position_embeddings", 1, &t->positions), status, cleanup);
    TY_CHECK(find_part(c, "vision_config", &part), status, cleanup);
    TY_CHECK(read_eye(c, part, &e), status, cleanup);
    TY_CHECK(check_eye(c, part, &e), status, cleanup);
    TY_CHECK(ty_hf_size(c, "projection_dim", 1, &shared), status, cleanup);
    ty_json_ignore(c->root, "logit_scale_init_value");
    t->sequence = t->positions;
    TY_CHECK(settle(c, t), status, cleanup);

    b = new_builder(c, TY_INPUT_TOKEN, &(ty_shape){1, {t->sequence}},
                    (double)(t->sequence * t->token_bytes) + image_bytes(&e));
    ty_transformer_append_embedding(b, t, &text);
    image = append_eye(b, &e, "vision.");
    text = ty_transformer_append(b, t, "text.", text, TY_BATCH);
    ty_hf_opaque(
        b, "contrast", (uint32_t[]){text, image}, 2, &(ty_shape){1, {1}},
        (double)shared * (double)(t->features + e.t.features) + 2 * (double)e.t.features + 1, 1);
    *out = b;

cleanup:
    return status;
}

/* ---- Sound to text --------------------------------------------------------------------------- */

ty_status ty_hf_build_whisper(hf_config *c, ty_builder **out)
{
    ty_transformer t = {.form = TY_DECODER,
                        .has_attention_bias = true,
                        .lacks_key_bias = true,
                        .has_mlp_bias = true,
                        .is_fused = true,
                        .is_tied = true};
    ty_transformer encoder;
    uint64_t bands = 80, frames = 1500;
    uint32_t embedding, text, sound;
    double features;
    ty_status status;
    ty_builder *b;

    encoder = t;
    encoder.form = TY_ENCODER;
    encoder.norm_place = TY_NORMS_BEFORE;
    TY_CHECK(ty_hf_need_size(c, "d_model", &t.features), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "vocab_size", &t.vocabulary), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "encoder_layers", &encoder.blocks), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "decoder_layers", &t.blocks), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "encoder_attention_heads", &encoder.heads), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "decoder_attention_heads", &t.heads), status, cleanup);
    encoder.hidden_features = t.hidden_features = 4 * t.features;
    TY_CHECK(ty_hf_size(c, "encoder_ffn_dim", 1, &encoder.hidden_features), status, cleanup);
    TY_CHECK(ty_hf_size(c, "decoder_ffn_dim", 1, &t.hidden_features), status, cleanup);
    TY_CHECK(ty_hf_size(c, "num_mel_bins", 1, &bands), status, cleanup);
    TY_CHECK(ty_hf_size(c, "max_source_positions", 1, &frames), status, cleanup);
    t.positions = 448;
    TY_CHECK(ty_hf_size(c, "max_target_positions", 1, &t.positions), status, cleanup);
    ty_json_ignore(c->root, "num_hidden_layers"); /* the encoder's again */
    encoder.features = t.features;
    TY_CHECK(settle(c, &t), status, cleanup);
    TY_CHECK(settle(c, &encoder), status, cleanup);

    features = (double)t.features;
    b = new_builder(c, TY_INPUT_TOKEN, &(ty_shape){1, {t.sequence}},
                    (double)((t.sequence + 1) * t.token_bytes) +
                        4.0 * (double)(2 * frames * bands));
    embedding = ty_transformer_append_embedding(b, &t, &text);
    sound = ty_hf_opaque(
        b, "encoder.convolutions", (uint32_t[]){TY_BATCH}, 1, &(ty_shape){2, {frames, t.features}},
        3 * features * (features + 2 * (double)bands) - 3 * features * (double)bands + 2 * features,
        (double)frames);
    sound = ty_hf_opaque(b, "encoder.positions", &sound, 1, &(ty_shape){2, {frames, t.features}},
                         (double)frames * features, 0);
    sound = ty_transformer_append(b, &encoder, "encoder.", sound, TY_BATCH);
    text = ty_transformer_append(b, &t, "decoder.", text, sound);
    ty_transformer_append_head(b, &t, text, embedding);
    *out = b;

cleanup:
    return status;
}
