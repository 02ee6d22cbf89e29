/* Diffusion transformers by their diffusers configurations: DiT, Stable Diffusion 3, Flux. Patches
 * of a latent image, and rows of a text, go through attention and mlps; norms without parameters
 * are scaled and shifted by what a matrix makes of time and prompt, once a sample: opaque, as is
 * what makes patches and takes them apart. Of two streams that attend together, attention is one
 * layer over the rows of both, and the second stream's projections are a layer of parameters
 * without products of its own. Sources: Peebles and Xie, arXiv:2212.09748; Esser et al.,
 * arXiv:2403.03206; modelling classes of huggingface/diffusers. */
#include "hf_config.h"

#include <stdio.h>
#include <string.h>

typedef struct canvas {
    ty_builder *builder;
    uint64_t features, heads, head_size, rows, text_rows, block;
    bool has_qk_norm;
} canvas;

static const char *name_of(const canvas *k, const char *part, char out[64])
{
    snprintf(out, 64, "block%llu.%s", (unsigned long long)k->block + 1, part);
    return out;
}

static void name_next(const canvas *k, const char *part)
{
    char name[64];
    ty_builder_name_next(k->builder, name_of(k, part, name));
}

/* A norm without parameters, scaled and shifted; `vectors` of the features' width come of a matrix
 * that meets one row. 0: made by an earlier one. */
static uint32_t modulate(const canvas *k, const char *part, uint32_t x, uint64_t rows,
                         uint64_t vectors)
{
    char name[64];
    double width = (double)k->features;
    return ty_hf_opaque(k->builder, name_of(k, part, name), &x, 1,
                        &(ty_shape){2, {rows, k->features}}, (double)vectors * width * (width + 1),
                        1);
}

/* @param is_shared the mlp's last bias is the attention's too */
static uint32_t attend(const canvas *k, const char *part, uint32_t x, bool is_shared)
{
    name_next(k, part);
    ty_builder_set_next(k->builder, TY_HAS_QKV_BIAS, is_shared);
    ty_builder_set_next(k->builder, TY_IS_FUSED, 1);
    ty_builder_set_next(k->builder, TY_HAS_QK_NORM, k->has_qk_norm);
    return ty_builder_attention(k->builder, x, k->heads, k->heads, k->head_size, !is_shared, false);
}

static uint32_t add(const canvas *k, const char *part, uint32_t a, uint32_t b)
{
    name_next(k, part);
    return ty_builder_add(k->builder, (uint32_t[]){a, b}, 2);
}

static uint32_t feed(const canvas *k, const char *part, uint32_t x)
{
    name_next(k, part);
    return ty_builder_mlp(k->builder, x, 4 * k->features, true, false);
}

/* Time and prompt as vectors: two-layer networks from so many numbers each. */
static double condition_parameters(const canvas *k, const double *from, size_t count)
{
    double width = (double)k->features, sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (from[i] + 1) * width + (width + 1) * width;
    return sum;
}

#define TIME_FEATURES 256 /* sines and cosines that time becomes */

static ty_status open_canvas(hf_config *c, canvas *k, ty_shape *input, uint64_t *channels)
{
    char *name = NULL;
    ty_status status;

    TY_CHECK(ty_hf_need_size(c, "num_attention_heads", &k->heads), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "attention_head_dim", &k->head_size), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "in_channels", channels), status, cleanup);
    k->features = k->heads * k->head_size;
    if (k->features > INT32_MAX) {
        status = ty_json_fail(c->root, c->error, "heads of a size that make features");
        goto cleanup;
    }
    input->dimensions[0] = *channels;
    TY_CHECK(ty_import_name(c->source, &name), status, cleanup);
    k->builder = ty_builder_new(name, TY_INPUT_REAL, input);
    if (k->builder == NULL)
        status = ty_fail(c->error, TY_ENOMEM, "%s: out of memory", c->source->path);

cleanup:
    ty_free(name);
    return status;
}

static ty_status read_blocks(const hf_config *c, const char *key, uint64_t *out)
{
    return ty_json_uint64(c->root, key, 1, 10000, out, c->error);
}

/* Patches of the latent image, with what else has parameters before the blocks. */
static uint32_t append_patches(const canvas *k, double numbers, double further)
{
    double width = (double)k->features;
    const ty_opaque known = {.output = {2, {k->rows, k->features}},
                             .parameter_bytes = (uint64_t)(4 * ((numbers + 1) * width + further)),
                             .forward_flop = 2 * numbers * width * (double)k->rows,
                             .backward_flop = 2 * numbers * width * (double)k->rows};
    ty_builder_name_next(k->builder, "patches");
    return ty_builder_opaque(k->builder, (uint32_t[]){TY_BATCH}, 1, &known);
}

/* The last norm, the rows' numbers, and the loss. */
static void append_end(const canvas *k, uint32_t x, uint64_t numbers)
{
    double width = (double)k->features;

    x = ty_hf_opaque(k->builder, "final_norm", &x, 1, &(ty_shape){2, {k->rows, k->features}},
                     2 * width * (width + 1), 1);
    ty_builder_name_next(k->builder, "output");
    x = ty_builder_linear(k->builder, x, numbers, true);
    ty_hf_opaque(k->builder, "loss", &x, 1, &(ty_shape){1, {1}}, 0, 0);
}

/* ---- DiT ------------------------------------------------------------------------------------- */

ty_status ty_hf_build_dit(hf_config *c, ty_builder **out)
{
    canvas k = {0};
    ty_shape input = {3, {0}};
    uint64_t blocks = 0, channels = 0, outputs = 0, patch = 2, side = 32, classes = 1000;
    double condition[] = {TIME_FEATURES}, width;
    uint32_t x;
    const char *norm;
    ty_status status;

    TY_CHECK(ty_hf_text(c, "norm_type", &norm), status, cleanup);
    if (norm == NULL || strcmp(norm, "ada_norm_zero") != 0 ||
        !ty_json_has(c->root, "num_embeds_ada_norm")) {
        status = ty_json_fail(c->root, c->error,
                              "a Transformer2DModel with norm_type ada_norm_zero and "
                              "num_embeds_ada_norm, as DiT's");
        goto cleanup;
    }
    TY_CHECK(read_blocks(c, "num_layers", &blocks), status, cleanup);
    TY_CHECK(ty_hf_size(c, "patch_size", 1, &patch), status, cleanup);
    TY_CHECK(ty_hf_size(c, "sample_size", 1, &side), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "num_embeds_ada_norm", &classes), status, cleanup);
    input.dimensions[1] = input.dimensions[2] = side;
    TY_CHECK(open_canvas(c, &k, &input, &channels), status, cleanup);
    outputs = channels;
    TY_CHECK(ty_hf_size(c, "out_channels", 1, &outputs), status, cleanup);
    k.rows = side / patch * (side / patch);
    width = (double)k.features;
    x = append_patches(&k, (double)(channels * patch * patch),
                       condition_parameters(&k, condition, 1) +
                           ((double)classes + 1) * width + /* a class, or none */
                           (double)k.rows * width);        /* positions */
    for (k.block = 0; k.block < blocks; k.block++) {
        x = add(&k, "attention_add", x,
                attend(&k, "attention", modulate(&k, "attention_norm", x, k.rows, 6), false));
        x = add(&k, "mlp_add", x, feed(&k, "mlp", modulate(&k, "mlp_norm", x, k.rows, 0)));
    }
    append_end(&k, x, patch * patch * outputs);
    *out = k.builder;
    k.builder = NULL; /* given away */

cleanup:
    ty_builder_free(k.builder);
    return status;
}

/* ---- Two streams ----------------------------------------------------------------------------- */

/* Image and text attend together. The text's own projections are parameters; a last block's text
 * goes nowhere. @param is_dual the image attends to itself, too (SD 3.5 medium) */
static void append_joint(const canvas *k, uint32_t *image, uint32_t *text, bool is_last,
                         bool is_dual)
{
    ty_builder *b = k->builder;
    double width = (double)k->features, head = (double)k->head_size;
    double matrix = width * (width + 1);
    uint32_t both, of_text, of_image, alone = TY_BATCH;
    char name[64];

    of_image = modulate(k, "image_norm", *image, k->rows, is_dual ? 9 : 6);
    if (is_dual)
        alone = attend(k, "image_attention", of_image, false);
    of_text = modulate(k, "text_norm", *text, k->text_rows, is_last ? 2 : 6);
    name_next(k, "together");
    both = ty_builder_concat(b, (uint32_t[]){of_image, of_text}, 2);
    both = ty_hf_opaque(b, name_of(k, "text_projections", name), &both, 1,
                        &(ty_shape){2, {k->rows + k->text_rows, k->features}},
                        (is_last ? 3 : 4) * matrix + (k->has_qk_norm ? 2 * head : 0), 0);
    both = attend(k, "attention", both, false);
    name_next(k, "image_rows");
    of_image = ty_builder_slice(b, both, 0, k->rows);
    *image = add(k, "image_attention_add", *image, of_image);
    if (is_dual)
        *image = add(k, "image_alone_add", *image, alone);
    *image = add(k, "image_mlp_add", *image,
                 feed(k, "image_mlp", modulate(k, "image_mlp_norm", *image, k->rows, 0)));
    if (is_last)
        return;
    name_next(k, "text_rows");
    of_text = ty_builder_slice(b, both, k->rows, k->text_rows);
    *text = add(k, "text_attention_add", *text, of_text);
    *text = add(k, "text_mlp_add", *text,
                feed(k, "text_mlp", modulate(k, "text_mlp_norm", *text, k->text_rows, 0)));
}

/* The text's rows: made of an encoder's output, which is not part of the network. */
static uint32_t append_text(const canvas *k, uint64_t from)
{
    return ty_hf_opaque(k->builder, "text", (uint32_t[]){TY_BATCH}, 1,
                        &(ty_shape){2, {k->text_rows, k->features}},
                        ((double)from + 1) * (double)k->features, (double)k->text_rows);
}

/* "dual_attention_layers": the first so many blocks, by their numbers. */
static ty_status count_dual_blocks(const hf_config *c, uint64_t blocks, uint64_t *out)
{
    const ty_json *list;
    uint64_t block;
    ty_status status = TY_OK;

    if (!ty_json_has(c->root, "dual_attention_layers"))
        return TY_OK;
    TY_CHECK(ty_json_array(c->root, "dual_attention_layers", 0, blocks, &list, c->error), status,
             cleanup);
    for (size_t i = 0; i < ty_json_size(list); i++)
        TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), i, i, &block, c->error), status, cleanup);
    *out = ty_json_size(list);

cleanup:
    return status;
}

ty_status ty_hf_build_sd3(hf_config *c, ty_builder **out)
{
    canvas k = {.text_rows = 333};
    ty_shape input = {3, {0}};
    uint64_t blocks = 0, channels = 0, outputs = 16, patch = 2, side = 128, pooled = 2048;
    uint64_t text_features = 4096, duals = 0;
    double condition[2] = {TIME_FEATURES, 0};
    uint32_t image, text;
    const char *norm;
    ty_status status;

    TY_CHECK(read_blocks(c, "num_layers", &blocks), status, cleanup);
    TY_CHECK(ty_hf_size(c, "patch_size", 1, &patch), status, cleanup);
    TY_CHECK(ty_hf_size(c, "sample_size", 1, &side), status, cleanup);
    TY_CHECK(ty_hf_size(c, "pooled_projection_dim", 1, &pooled), status, cleanup);
    TY_CHECK(ty_hf_size(c, "joint_attention_dim", 1, &text_features), status, cleanup);
    TY_CHECK(ty_hf_text(c, "qk_norm", &norm), status, cleanup);
    k.has_qk_norm = norm != NULL;
    ty_json_ignore(c->root, "caption_projection_dim");
    ty_json_ignore(c->root, "pos_embed_max_size");
    TY_CHECK(count_dual_blocks(c, blocks, &duals), status, cleanup);
    input.dimensions[1] = input.dimensions[2] = side;
    TY_CHECK(open_canvas(c, &k, &input, &channels), status, cleanup);
    TY_CHECK(ty_hf_size(c, "out_channels", 1, &outputs), status, cleanup);
    k.rows = side / patch * (side / patch);
    condition[1] = (double)pooled;
    image = append_patches(&k, (double)(channels * patch * patch),
                           condition_parameters(&k, condition, 2));
    text = append_text(&k, text_features);
    for (k.block = 0; k.block < blocks; k.block++)
        append_joint(&k, &image, &text, k.block + 1 == blocks, k.block < duals);
    append_end(&k, image, patch * patch * outputs);
    ty_import_note(c->source, "a prompt of %llu rows assumed", (unsigned long long)k.text_rows);
    *out = k.builder;
    k.builder = NULL; /* given away */

cleanup:
    ty_builder_free(k.builder);
    return status;
}

/* One stream: attention and mlp read the same and share their last product. */
static uint32_t append_single(const canvas *k, uint32_t x, uint64_t rows)
{
    uint32_t normed = modulate(k, "norm", x, rows, 3),
             attention = attend(k, "attention", normed, true), mlp;

    mlp = feed(k, "mlp", normed);
    name_next(k, "add");
    return ty_builder_add(k->builder, (uint32_t[]){x, attention, mlp}, 3);
}

ty_status ty_hf_build_flux(hf_config *c, ty_builder **out)
{
    canvas k = {.has_qk_norm = true, .rows = 4096, .text_rows = 512};
    ty_shape input = {3, {0, 64, 64}};
    uint64_t doubles = 0, singles = 0, channels = 0, pooled = 768, text_features = 4096;
    double condition[3] = {TIME_FEATURES, 0, TIME_FEATURES};
    bool has_guidance = false;
    uint32_t image, text, both;
    ty_status status;

    TY_CHECK(read_blocks(c, "num_layers", &doubles), status, cleanup);
    TY_CHECK(read_blocks(c, "num_single_layers", &singles), status, cleanup);
    TY_CHECK(ty_hf_size(c, "pooled_projection_dim", 1, &pooled), status, cleanup);
    TY_CHECK(ty_hf_size(c, "joint_attention_dim", 1, &text_features), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "guidance_embeds", &has_guidance), status, cleanup);
    ty_json_ignore(c->root, "patch_size");
    ty_json_ignore(c->root, "axes_dims_rope");
    TY_CHECK(open_canvas(c, &k, &input, &channels), status, cleanup);
    condition[1] = (double)pooled;
    image = append_patches(&k, (double)channels,
                           condition_parameters(&k, condition, has_guidance ? 3 : 2));
    text = append_text(&k, text_features);
    for (k.block = 0; k.block < doubles; k.block++)
        append_joint(&k, &image, &text, false, false);
    ty_builder_name_next(k.builder, "streams");
    both = ty_builder_concat(k.builder, (uint32_t[]){image, text}, 2);
    for (; k.block < doubles + singles; k.block++)
        both = append_single(&k, both, k.rows + k.text_rows);
    ty_builder_name_next(k.builder, "image_rows");
    image = ty_builder_slice(k.builder, both, 0, k.rows);
    append_end(&k, image, channels);
    ty_import_note(c->source, "1024 x 1024 pixels and a prompt of %llu rows assumed",
                   (unsigned long long)k.text_rows);
    *out = k.builder;
    k.builder = NULL; /* given away */

cleanup:
    ty_builder_free(k.builder);
    return status;
}
