/* The layers of "sequential" zoo files, one reader per kind. */
#include "zoo_scope.h"

typedef struct place {
    const ty_zoo_script *script;
    const ty_zoo_frame *frame;
    const ty_json *layer;
    uint32_t *x; /* [in] the tensor read; [out] the new layer */
} place;

typedef struct layer_kind {
    const char *name;
    /* One of the two: `read` for kinds with members, else a plain append. */
    ty_status (*read)(const place *p);
    uint32_t (*append)(ty_builder *builder, uint32_t input);
} layer_kind;

static ty_status read_size(const place *p, const char *key, uint64_t fallback, uint64_t *out)
{
    return ty_zoo_scoped_size(p->frame, p->layer, key, fallback, out, p->script->reader->error);
}

static ty_status read_flag(const place *p, const char *key, bool fallback, bool *out)
{
    return ty_zoo_flag(p->layer, key, fallback, out, p->script->reader->error);
}

static ty_status read_linear(const place *p)
{
    uint64_t out_features;
    bool has_bias;

    TY_TRY(read_size(p, "out_features", TY_ZOO_REQUIRED, &out_features));
    TY_TRY(read_flag(p, "has_bias", true, &has_bias));
    *p->x = ty_builder_linear(p->script->reader->builder, *p->x, out_features, has_bias);
    return TY_OK;
}

/* @param usual_stride default; 0: the window's height */
static ty_status read_window(const place *p, uint64_t usual_stride, ty_window *out)
{
    ty_error *error = p->script->reader->error;
    uint64_t kernel[2], stride, padding[2];

    TY_TRY(ty_zoo_scoped_sizes(p->frame, p->layer, "kernel", TY_ZOO_REQUIRED, kernel, 2, error));
    TY_TRY(read_size(p, "stride", usual_stride > 0 ? usual_stride : kernel[0], &stride));
    TY_TRY(ty_zoo_scoped_sizes(p->frame, p->layer, "padding", 0, padding, 2, error));
    *out = (ty_window){kernel[0], kernel[1], stride, padding[0], padding[1]};
    return TY_OK;
}

static ty_status read_conv2d(const place *p)
{
    uint64_t out_channels, groups;
    ty_window window;
    bool has_bias;

    TY_TRY(read_size(p, "out_channels", TY_ZOO_REQUIRED, &out_channels));
    TY_TRY(read_window(p, 1, &window));
    TY_TRY(read_size(p, "groups", 1, &groups));
    TY_TRY(read_flag(p, "has_bias", true, &has_bias));
    *p->x = ty_builder_conv2d(p->script->reader->builder, *p->x, out_channels, &window, groups,
                              has_bias);
    return TY_OK;
}

static ty_status read_pool(const place *p)
{
    ty_window window;
    bool is_global, is_average;

    TY_TRY(read_flag(p, "is_global", false, &is_global));
    if (is_global) {
        *p->x = ty_builder_global_pool(p->script->reader->builder, *p->x);
        return TY_OK;
    }
    TY_TRY(read_flag(p, "is_average", false, &is_average));
    TY_TRY(read_window(p, 0, &window));
    *p->x = ty_builder_pool(p->script->reader->builder, *p->x, &window, is_average);
    return TY_OK;
}

static ty_status read_slice(const place *p)
{
    uint64_t first_row, rows;

    TY_TRY(read_size(p, "first_row", 0, &first_row));
    TY_TRY(read_size(p, "rows", TY_ZOO_REQUIRED, &rows));
    *p->x = ty_builder_slice(p->script->reader->builder, *p->x, first_row, rows);
    return TY_OK;
}

static ty_status read_embedding(const place *p)
{
    uint64_t vocabulary, features, positions;

    TY_TRY(read_size(p, "vocabulary", TY_ZOO_REQUIRED, &vocabulary));
    TY_TRY(read_size(p, "features", TY_ZOO_REQUIRED, &features));
    TY_TRY(read_size(p, "positions", 0, &positions));
    *p->x =
        ty_builder_embedding(p->script->reader->builder, *p->x, vocabulary, features, positions);
    return TY_OK;
}

static ty_status read_embedding_bag(const place *p)
{
    uint64_t vocabulary, features, first_row, rows;
    bool is_average;

    TY_TRY(read_size(p, "vocabulary", TY_ZOO_REQUIRED, &vocabulary));
    TY_TRY(read_size(p, "features", TY_ZOO_REQUIRED, &features));
    TY_TRY(read_size(p, "first_row", 0, &first_row));
    TY_TRY(read_size(p, "rows", 1, &rows));
    TY_TRY(read_flag(p, "is_average", false, &is_average));
    *p->x = ty_builder_embedding_bag(p->script->reader->builder, *p->x, vocabulary, features,
                                     first_row, rows, is_average);
    return TY_OK;
}

static ty_status read_dot_interaction(const place *p)
{
    uint32_t inputs[TY_ZOO_MOST_BRANCHES], count;

    TY_TRY(ty_zoo_label_list(p->script, p->layer, inputs, &count));
    *p->x = ty_builder_dot_interaction(p->script->reader->builder, inputs, count);
    return TY_OK;
}

static ty_status read_tied_linear(const place *p)
{
    uint32_t embedding;

    TY_TRY(ty_zoo_label_get(p->script, p->layer, "embedding", &embedding));
    *p->x = ty_builder_tied_linear(p->script->reader->builder, *p->x, embedding);
    return TY_OK;
}

static ty_status read_lstm(const place *p)
{
    uint64_t hidden_features;
    bool has_bias, is_reversed;

    TY_TRY(read_size(p, "hidden_features", TY_ZOO_REQUIRED, &hidden_features));
    TY_TRY(read_flag(p, "has_bias", true, &has_bias));
    TY_TRY(read_flag(p, "is_reversed", false, &is_reversed));
    ty_builder_set_next(p->script->reader->builder, TY_IS_REVERSED, is_reversed);
    *p->x = ty_builder_lstm(p->script->reader->builder, *p->x, hidden_features, has_bias);
    return TY_OK;
}

static ty_status read_additive_attention(const place *p)
{
    uint64_t hidden_features;
    uint32_t memory;

    TY_TRY(ty_zoo_label_get(p->script, p->layer, "memory", &memory));
    TY_TRY(read_size(p, "hidden_features", TY_ZOO_REQUIRED, &hidden_features));
    *p->x =
        ty_builder_additive_attention(p->script->reader->builder, *p->x, memory, hidden_features);
    return TY_OK;
}

static ty_status read_output(const place *p, uint32_t first_input, ty_shape *out)
{
    const ty_zoo_reader *reader = p->script->reader;
    const ty_shape *same = ty_builder_shape(reader->builder, first_input);
    const ty_json *shape;

    if (!ty_json_has(p->layer, "output")) {
        *out = same != NULL ? *same : (ty_shape){1, {1}};
        return TY_OK;
    }
    TY_TRY(ty_json_array(p->layer, "output", 1, TY_MAX_DIMENSIONS, &shape, reader->error));
    out->dimension_count = (uint32_t)ty_json_size(shape);
    for (uint32_t i = 0; i < out->dimension_count; i++)
        TY_TRY(ty_json_as_uint64(ty_json_at(shape, i), 1, INT32_MAX, &out->dimensions[i],
                                 reader->error));
    return TY_OK;
}

/* Backward of unknown layers repeats forward for the gradients of both factors, as for products.
 */
static ty_status read_opaque(const place *p)
{
    const ty_zoo_reader *reader = p->script->reader;
    ty_opaque known = {0};
    uint32_t inputs[TY_ZOO_MOST_BRANCHES] = {*p->x}, count = 1;
    uint64_t parameters = 0;

    if (ty_json_has(p->layer, "inputs"))
        TY_TRY(ty_zoo_label_list(p->script, p->layer, inputs, &count));
    TY_TRY(read_output(p, inputs[0], &known.output));
    if (ty_json_has(p->layer, "parameters"))
        TY_TRY(ty_json_uint64(p->layer, "parameters", 0, (uint64_t)1 << 50, &parameters,
                              reader->error));
    if (ty_json_has(p->layer, "forward_flop"))
        TY_TRY(
            ty_json_number(p->layer, "forward_flop", 0, 1e18, &known.forward_flop, reader->error));
    known.parameter_bytes = 4 * parameters;
    known.backward_flop = 2 * known.forward_flop;
    *p->x = ty_builder_opaque(reader->builder, inputs, count, &known);
    return TY_OK;
}

static const layer_kind kinds[] = {
    {"linear", read_linear, NULL},
    {"conv2d", read_conv2d, NULL},
    {"pool", read_pool, NULL},
    {"slice", read_slice, NULL},
    {"embedding", read_embedding, NULL},
    {"embedding_bag", read_embedding_bag, NULL},
    {"dot_interaction", read_dot_interaction, NULL},
    {"tied_linear", read_tied_linear, NULL},
    {"lstm", read_lstm, NULL},
    {"additive_attention", read_additive_attention, NULL},
    {"opaque", read_opaque, NULL},
    {"batch_norm", NULL, ty_builder_batch_norm},
    {"layer_norm", NULL, ty_builder_layer_norm},
    {"rms_norm", NULL, ty_builder_rms_norm},
    {"relu", NULL, ty_builder_relu},
    {"gelu", NULL, ty_builder_gelu},
    {"silu", NULL, ty_builder_silu},
    {"tanh", NULL, ty_builder_tanh},
    {"flatten", NULL, ty_builder_flatten},
    {"softmax_cross_entropy", NULL, ty_builder_loss},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

ty_status ty_zoo_layer(const ty_zoo_script *script, const ty_zoo_frame *frame,
                       const ty_json *object, uint32_t *x)
{
    const place p = {script, frame, object, x};
    const char *names[KIND_COUNT], *name;
    int kind;

    for (size_t i = 0; i < KIND_COUNT; i++)
        names[i] = kinds[i].name;
    TY_TRY(ty_json_enum(object, "kind", names, KIND_COUNT, &kind, script->reader->error));
    if (ty_json_has(object, "name")) {
        TY_TRY(ty_json_string(object, "name", &name, script->reader->error));
        ty_builder_name_next(script->reader->builder, name);
    }
    if (kinds[kind].append != NULL)
        *x = kinds[kind].append(script->reader->builder, *x);
    else
        TY_TRY(kinds[kind].read(&p));
    return TY_OK;
}
