/* The family "residual": ResNets for 224 x 224 images. A 7 x 7 stem, stages of blocks that halve
 * the image and double the channels, global pooling, one linear layer.
 *
 * The stride of a bottleneck is in its 3 x 3 convolution ("v1.5", as in torchvision and MLPerf),
 * not in the first 1 x 1 as in He et al. 2015. The published 4.09 GMAC of ResNet-50 refer to this
 * form. */
#include "zoo_family.h"

#include <stdio.h>

#define MOST_BLOCKS 1000 /* per stage */

typedef struct convolution {
    uint64_t out_channels, kernel, stride;
} convolution;

/* Name of the next layer: "stage2.block1.conv3". */
static void name_next(ty_builder *b, const char *prefix, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    ty_builder_name_next(b, name);
}

/* Convolution without bias, then batch norm; at stride 1 the window keeps the image's size. */
static uint32_t normed_conv(ty_builder *b, uint32_t x, const convolution *c, const char *prefix,
                            const char *part)
{
    uint64_t padding = c->kernel / 2;
    ty_window window = {c->kernel, c->kernel, c->stride, padding, padding};
    char norm[32];

    snprintf(norm, sizeof norm, "%s_norm", part);
    name_next(b, prefix, part);
    x = ty_builder_conv2d(b, x, c->out_channels, &window, 1, false);
    name_next(b, prefix, norm);
    return ty_builder_batch_norm(b, x);
}

typedef struct block_kind {
    const char *name;
    uint32_t convolution_count;
    /* [convolution_count]; out_channels in units of the stage's width, stride 0: the block's. */
    convolution convolutions[3];
} block_kind;

static const block_kind block_kinds[] = {
    {"basic", 2, {{1, 3, 0}, {1, 3, 1}}},
    {"bottleneck", 3, {{1, 1, 1}, {1, 3, 0}, {4, 1, 1}}},
};
#define BLOCK_KIND_COUNT (sizeof block_kinds / sizeof block_kinds[0])

/* @param channels [in, out] of x, then of the result */
static uint32_t append_block(ty_builder *b, uint32_t x, const block_kind *kind, uint64_t width,
                             uint64_t stride, uint64_t *channels, const char *prefix)
{
    uint32_t shortcut = x, inputs[2];
    uint64_t out_channels = width * kind->convolutions[kind->convolution_count - 1].out_channels;

    for (uint32_t i = 0; i < kind->convolution_count; i++) {
        convolution c = kind->convolutions[i];
        char part[32];
        c.out_channels *= width;
        c.stride = c.stride == 0 ? stride : c.stride;
        snprintf(part, sizeof part, "conv%u", i + 1);
        x = normed_conv(b, x, &c, prefix, part);
        if (i + 1 < kind->convolution_count) {
            snprintf(part, sizeof part, "relu%u", i + 1);
            name_next(b, prefix, part);
            x = ty_builder_relu(b, x);
        }
    }
    if (stride != 1 || *channels != out_channels)
        shortcut =
            normed_conv(b, shortcut, &(convolution){out_channels, 1, stride}, prefix, "shortcut");
    inputs[0] = shortcut;
    inputs[1] = x;
    name_next(b, prefix, "add");
    x = ty_builder_add(b, inputs, 2);
    name_next(b, prefix, "relu");
    *channels = out_channels;
    return ty_builder_relu(b, x);
}

static uint32_t append_stem(ty_builder *b, uint64_t width)
{
    uint32_t x = normed_conv(b, TY_BATCH, &(convolution){width, 7, 2}, "stem", "conv");
    name_next(b, "stem", "relu");
    x = ty_builder_relu(b, x);
    name_next(b, "stem", "pool");
    return ty_builder_pool(b, x, &(ty_window){3, 3, 2, 1, 1}, false);
}

static void append_head(ty_builder *b, uint32_t x, uint64_t classes)
{
    ty_builder_name_next(b, "pool");
    x = ty_builder_global_pool(b, x);
    ty_builder_name_next(b, "flatten");
    x = ty_builder_flatten(b, x);
    ty_builder_name_next(b, "output");
    x = ty_builder_linear(b, x, classes, true);
    ty_builder_name_next(b, "loss");
    ty_builder_loss(b, x);
}

ty_status ty_zoo_residual(ty_zoo_reader *reader)
{
    const char *names[BLOCK_KIND_COUNT];
    const ty_json *blocks;
    uint64_t width, classes, channels;
    uint32_t x;
    int kind;

    for (size_t i = 0; i < BLOCK_KIND_COUNT; i++)
        names[i] = block_kinds[i].name;
    TY_TRY(ty_zoo_open_real(reader));
    TY_TRY(ty_json_enum(reader->root, "block", names, BLOCK_KIND_COUNT, &kind, reader->error));
    TY_TRY(ty_zoo_size(reader->root, "width", TY_ZOO_REQUIRED, &width, reader->error));
    TY_TRY(ty_zoo_size(reader->root, "classes", TY_ZOO_REQUIRED, &classes, reader->error));
    TY_TRY(ty_json_array(reader->root, "blocks", 1, 16, &blocks, reader->error));

    x = append_stem(reader->builder, width);
    channels = width;
    for (size_t stage = 0; stage < ty_json_size(blocks); stage++, width *= 2) {
        uint32_t count;
        TY_TRY(ty_json_as_uint32(ty_json_at(blocks, stage), 1, MOST_BLOCKS, &count, reader->error));
        for (uint32_t i = 0; i < count; i++) {
            char prefix[48];
            snprintf(prefix, sizeof prefix, "stage%zu.block%u", stage + 1, i + 1);
            x = append_block(reader->builder, x, &block_kinds[kind], width,
                             stage > 0 && i == 0 ? 2 : 1, &channels, prefix);
        }
        TY_TRY(ty_zoo_progress(reader, ty_json_at(blocks, stage)));
    }
    append_head(reader->builder, x, classes);
    return ty_zoo_progress(reader, reader->root);
}
