/* The family "sequential": "layers" is a list, each layer reads the one before. */
#include "zoo_family.h"

typedef struct layer_kind {
    const char *name;
    /* One of the two: kinds with figures of their own are read, plain ones only appended. */
    ty_status (*read)(ty_zoo_reader *reader, const ty_json *layer, uint32_t *x);
    uint32_t (*append)(ty_builder *builder, uint32_t input);
} layer_kind;

static ty_status read_linear(ty_zoo_reader *reader, const ty_json *layer, uint32_t *x)
{
    ty_status status = TY_OK;
    uint64_t out_features;
    bool has_bias;

    TY_CHECK(ty_zoo_size(layer, "out_features", TY_ZOO_REQUIRED, &out_features, reader->error),
             status, cleanup);
    TY_CHECK(ty_zoo_flag(layer, "has_bias", true, &has_bias, reader->error), status, cleanup);
    *x = ty_builder_linear(reader->builder, *x, out_features, has_bias);

cleanup:
    return status;
}

/* Square windows. @param usual_stride when the file names none; 0: as large as the window */
static ty_status read_window(const ty_json *layer, uint64_t usual_stride, ty_window *out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    uint64_t kernel, stride, padding;

    TY_CHECK(ty_zoo_size(layer, "kernel", TY_ZOO_REQUIRED, &kernel, error), status, cleanup);
    TY_CHECK(ty_zoo_size(layer, "stride", usual_stride > 0 ? usual_stride : kernel, &stride, error),
             status, cleanup);
    TY_CHECK(ty_zoo_size(layer, "padding", 0, &padding, error), status, cleanup);
    *out = (ty_window){kernel, kernel, stride, padding, padding};

cleanup:
    return status;
}

static ty_status read_conv2d(ty_zoo_reader *reader, const ty_json *layer, uint32_t *x)
{
    ty_status status = TY_OK;
    uint64_t out_channels, groups;
    ty_window window;
    bool has_bias;

    TY_CHECK(ty_zoo_size(layer, "out_channels", TY_ZOO_REQUIRED, &out_channels, reader->error),
             status, cleanup);
    TY_CHECK(read_window(layer, 1, &window, reader->error), status, cleanup);
    TY_CHECK(ty_zoo_size(layer, "groups", 1, &groups, reader->error), status, cleanup);
    TY_CHECK(ty_zoo_flag(layer, "has_bias", true, &has_bias, reader->error), status, cleanup);
    *x = ty_builder_conv2d(reader->builder, *x, out_channels, &window, groups, has_bias);

cleanup:
    return status;
}

static ty_status read_pool(ty_zoo_reader *reader, const ty_json *layer, uint32_t *x)
{
    ty_status status = TY_OK;
    ty_window window;
    bool is_global, is_average;

    TY_CHECK(ty_zoo_flag(layer, "is_global", false, &is_global, reader->error), status, cleanup);
    if (is_global) {
        *x = ty_builder_global_pool(reader->builder, *x);
        goto cleanup;
    }
    TY_CHECK(ty_zoo_flag(layer, "is_average", false, &is_average, reader->error), status, cleanup);
    TY_CHECK(read_window(layer, 0, &window, reader->error), status, cleanup);
    *x = ty_builder_pool(reader->builder, *x, &window, is_average);

cleanup:
    return status;
}

static const layer_kind kinds[] = {
    {"linear", read_linear, NULL},
    {"conv2d", read_conv2d, NULL},
    {"pool", read_pool, NULL},
    {"batch_norm", NULL, ty_builder_batch_norm},
    {"layer_norm", NULL, ty_builder_layer_norm},
    {"rms_norm", NULL, ty_builder_rms_norm},
    {"relu", NULL, ty_builder_relu},
    {"gelu", NULL, ty_builder_gelu},
    {"silu", NULL, ty_builder_silu},
    {"flatten", NULL, ty_builder_flatten},
    {"softmax_cross_entropy", NULL, ty_builder_loss},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static ty_status read_layer(ty_zoo_reader *reader, const ty_json *layer, uint32_t *x)
{
    ty_status status = TY_OK;
    const char *names[KIND_COUNT], *name;
    int kind;

    for (size_t i = 0; i < KIND_COUNT; i++)
        names[i] = kinds[i].name;
    if (!ty_json_is_object(layer))
        return ty_json_fail(layer, reader->error, "a layer: {\"kind\": ...}");
    TY_CHECK(ty_json_enum(layer, "kind", names, KIND_COUNT, &kind, reader->error), status, cleanup);
    if (ty_json_has(layer, "name")) {
        TY_CHECK(ty_json_string(layer, "name", &name, reader->error), status, cleanup);
        ty_builder_name_next(reader->builder, name);
    }
    if (kinds[kind].append != NULL)
        *x = kinds[kind].append(reader->builder, *x);
    else
        TY_CHECK(kinds[kind].read(reader, layer, x), status, cleanup);
    TY_CHECK(ty_json_end(layer, reader->error), status, cleanup);
    status = ty_zoo_progress(reader, layer);

cleanup:
    return status;
}

ty_status ty_zoo_sequential(ty_zoo_reader *reader)
{
    ty_status status = TY_OK;
    const ty_json *layers;
    uint32_t x = TY_BATCH;

    TY_CHECK(ty_zoo_open_real(reader), status, cleanup);
    TY_CHECK(ty_json_array(reader->root, "layers", 1, 100000, &layers, reader->error), status,
             cleanup);
    for (size_t i = 0; i < ty_json_size(layers); i++)
        TY_CHECK(read_layer(reader, ty_json_at(layers, i), &x), status, cleanup);

cleanup:
    return status;
}
