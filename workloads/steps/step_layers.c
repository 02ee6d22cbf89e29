/* Steps of a model family that append layers: for vision, audio and image models, whose blocks do
 * not follow one embedding. Layers without a worker kind are opaque, with their parameters and
 * products. */
#include "steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
enum { MOST_INPUTS = 8 };

/* State of a step that appends a layer. */
typedef struct layer_step {
    steps_reader *r;
    const ty_json *step;
    ty_builder *b;
    uint32_t inputs[MOST_INPUTS], count;
} layer_step;

static ty_status read_numbers(steps_reader *r, const ty_json *step, const char *key, size_t most,
                              double *out, uint32_t *count)
{
    const ty_json *list;

    TY_TRY(ty_json_array(step, key, 1, most, &list, r->error));
    for (size_t i = 0; i < ty_json_size(list); i++)
        TY_TRY(ty_steps_number(r, ty_json_at(list, i), &out[i]));
    *count = (uint32_t)ty_json_size(list);
    return TY_OK;
}

static uint64_t as_size(double value)
{
    return value >= 1 ? (uint64_t)fmin(value, 1e18) : 0;
}

static ty_status read_shape(steps_reader *r, const ty_json *step, const char *key, ty_shape *out)
{
    double sizes[TY_MAX_DIMENSIONS];
    ty_status status = read_numbers(r, step, key, TY_MAX_DIMENSIONS, sizes, &out->dimension_count);

    for (uint32_t i = 0; status == TY_OK && i < out->dimension_count; i++)
        out->dimensions[i] = as_size(sizes[i]);
    return status;
}

/* Several numbers of a step; missing ones are 0. */
static ty_status read_values(const layer_step *l, const char *const *keys, size_t count,
                             double *out)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < count && status == TY_OK; i++)
        status = ty_steps_value(l->r, l->step, keys[i], 0, &out[i]);
    return status;
}

ty_status ty_steps_open(steps_reader *reader, const ty_json *step)
{
    static const char *const kinds[] = {"token", "real"};
    ty_shape input = {0};
    char *name = NULL;
    double bytes;
    int kind;
    ty_status status;

    TY_CHECK(ty_json_enum(step, "open", kinds, COUNT(kinds), &kind, reader->error), status, done);
    TY_CHECK(read_shape(reader, step, "input", &input), status, done);
    TY_CHECK(ty_steps_value(reader, step, "sample_bytes", 0, &bytes), status, done);
    TY_CHECK(ty_import_name(reader->source, &name), status, done);
    ty_builder_free(reader->builder);
    reader->builder = ty_builder_new(name, kind == 0 ? TY_INPUT_TOKEN : TY_INPUT_REAL, &input);
    TY_CHECK(ty_check_memory(reader->builder != NULL, reader->error), status, done);
    if (bytes > 0)
        ty_builder_set_sample_bytes(reader->builder, as_size(bytes));
done:
    ty_free(name);
    return status;
}

/* ---- Kinds ----------------------------------------------------------------------------------- */

/* "parameters", each multiplied with "rows" rows of the input, or else "products". Backward takes
 * "backward" times as long as forward, 2 by default. */
static ty_status append_opaque(const layer_step *l, uint32_t *x)
{
    ty_opaque known = {0};
    double parameters, rows, products, backward, is_view;

    TY_TRY(read_shape(l->r, l->step, "output", &known.output));
    TY_TRY(ty_steps_value(l->r, l->step, "parameters", 0, &parameters));
    TY_TRY(ty_steps_value(l->r, l->step, "rows", 0, &rows));
    TY_TRY(ty_steps_value(l->r, l->step, "products", parameters * rows, &products));
    TY_TRY(ty_steps_value(l->r, l->step, "backward", 2, &backward));
    TY_TRY(ty_steps_value(l->r, l->step, "is_view", 0, &is_view));
    known.parameter_bytes = as_size(4 * parameters);
    known.forward_flop = 2 * products;
    known.backward_flop = 2 * products * backward;
    known.is_view = is_view != 0;
    *x = ty_builder_opaque(l->b, l->inputs, l->count, &known);
    return TY_OK;
}

/* The embedding of the scope's sizes; "table" is the layer with its matrix. */
static ty_status append_embedding(const layer_step *l, uint32_t *x)
{
    ty_transformer t;
    const char *table;

    TY_TRY(ty_json_string(l->step, "table", &table, l->r->error));
    TY_TRY(ty_steps_transformer(l->r, &t));
    return ty_steps_set(l->r, table, ty_transformer_append_embedding(l->b, &t, x));
}

static ty_status append_blocks(const layer_step *l, uint32_t *x)
{
    ty_transformer t;
    double memory;

    TY_TRY(ty_steps_value(l->r, l->step, "memory", TY_BATCH, &memory));
    TY_TRY(ty_steps_transformer(l->r, &t));
    *x = ty_transformer_append(l->b, &t, l->r->scope->prefix, l->inputs[0], (uint32_t)memory);
    return TY_OK;
}

static ty_status append_head(const layer_step *l, uint32_t *x)
{
    ty_transformer t;
    double table;

    TY_TRY(ty_steps_value(l->r, l->step, "table", TY_BATCH, &table));
    TY_TRY(ty_steps_transformer(l->r, &t));
    ty_transformer_append_head(l->b, &t, l->inputs[0], (uint32_t)table);
    *x = l->inputs[0];
    return TY_OK;
}

static ty_status append_attention(const layer_step *l, uint32_t *x)
{
    static const char *const keys[] = {"heads", "head_size", "has_bias", "has_qkv_bias",
                                       "has_qk_norm"};
    double n[COUNT(keys)];
    ty_status status = read_values(l, keys, COUNT(keys), n);

    if (status != TY_OK)
        return status;
    ty_builder_set_next(l->b, TY_HAS_QKV_BIAS, n[3] != 0);
    ty_builder_set_next(l->b, TY_IS_FUSED, 1);
    ty_builder_set_next(l->b, TY_HAS_QK_NORM, n[4] != 0);
    *x = ty_builder_attention(l->b, l->inputs[0], as_size(n[0]), as_size(n[0]), as_size(n[1]),
                              n[2] != 0, false);
    return TY_OK;
}

static ty_status append_linear(const layer_step *l, uint32_t *x)
{
    static const char *const keys[] = {"features", "has_bias"};
    double n[COUNT(keys)];
    ty_status status = read_values(l, keys, COUNT(keys), n);

    if (status == TY_OK)
        *x = ty_builder_linear(l->b, l->inputs[0], as_size(n[0]), n[1] != 0);
    return status;
}

static ty_status append_mlp(const layer_step *l, uint32_t *x)
{
    static const char *const keys[] = {"hidden_features", "has_bias"};
    double n[COUNT(keys)];
    ty_status status = read_values(l, keys, COUNT(keys), n);

    if (status == TY_OK)
        *x = ty_builder_mlp(l->b, l->inputs[0], as_size(n[0]), n[1] != 0, false);
    return status;
}

static ty_status append_slice(const layer_step *l, uint32_t *x)
{
    static const char *const keys[] = {"first", "rows"};
    double n[COUNT(keys)];
    ty_status status = read_values(l, keys, COUNT(keys), n);

    if (status == TY_OK)
        *x = ty_builder_slice(l->b, l->inputs[0], as_size(n[0]), as_size(n[1]));
    return status;
}

static ty_status append_add(const layer_step *l, uint32_t *x)
{
    *x = ty_builder_add(l->b, l->inputs, l->count);
    return TY_OK;
}

static ty_status append_concat(const layer_step *l, uint32_t *x)
{
    *x = ty_builder_concat(l->b, l->inputs, l->count);
    return TY_OK;
}

static ty_status append_norm(const layer_step *l, uint32_t *x)
{
    *x = ty_builder_layer_norm(l->b, l->inputs[0]);
    return TY_OK;
}

static const char *const names[] = {"opaque",    "embedding", "blocks",    "head",
                                    "attention", "linear",    "mlp",       "slice",
                                    "add",       "concat",    "layer_norm"};
static ty_status (*const kinds[COUNT(names)])(const layer_step *l, uint32_t *x) = {
    append_opaque, append_embedding, append_blocks, append_head,   append_attention, append_linear,
    append_mlp,    append_slice,     append_add,    append_concat, append_norm};

/* "of" are its inputs, by default the batch; "as" is the name of its output. */
ty_status ty_steps_layer(steps_reader *reader, const ty_json *step)
{
    layer_step l = {
        .r = reader, .step = step, .b = reader->builder, .inputs = {TY_BATCH}, .count = 1};
    double inputs[MOST_INPUTS];
    const char *as;
    ty_text name = {0};
    uint32_t x = 0;
    int kind;
    ty_status status;

    TY_CHECK(ty_json_enum(step, "layer", names, COUNT(names), &kind, reader->error), status, done);
    if (ty_json_has(step, "of")) {
        TY_CHECK(read_numbers(reader, step, "of", MOST_INPUTS, inputs, &l.count), status, done);
        for (uint32_t i = 0; i < l.count; i++)
            l.inputs[i] = (uint32_t)inputs[i];
    }
    if (ty_json_has(step, "name")) {
        ty_text_add(&name, reader->scope->prefix);
        TY_CHECK(ty_steps_text(reader, step, "name", &name), status, done);
        ty_builder_name_next(l.b, name.data);
    }
    TY_CHECK(kinds[kind](&l, &x), status, done);
    if (ty_json_has(step, "as")) {
        TY_CHECK(ty_json_string(step, "as", &as, reader->error), status, done);
        status = ty_steps_set(reader, as, x);
    }
done:
    ty_text_clear(&name);
    return status;
}

/* ---- Sizes that go together ------------------------------------------------------------------ */

/* Sets the requested or the usual sequence length, and the bytes of a token. */
ty_status ty_steps_settle(steps_reader *reader, const ty_json *step)
{
    char place[TY_JSON_PLACE_SIZE];
    ty_transformer t;

    ty_json_ignore(step, "settle");
    ty_json_place(reader->top->object, place);
    TY_TRY(ty_steps_transformer(reader, &t));
    TY_TRY(ty_import_settle(reader->source, &t, place));
    TY_TRY(ty_steps_set_size(reader, "sequence", t.sequence));
    return ty_steps_set_size(reader, "token_bytes", t.token_bytes);
}

ty_status ty_steps_fits(steps_reader *reader, const ty_json *step)
{
    char place[TY_JSON_PLACE_SIZE], expected[TY_TRANSFORMER_TEXT_SIZE];
    ty_transformer t;
    ty_status status = ty_steps_transformer(reader, &t);

    ty_json_ignore(step, "fits");
    if (status != TY_OK || ty_transformer_fits(&t, expected))
        return status;
    ty_json_place(reader->scope->object, place);
    return ty_fail(reader->error, TY_EPARSE, "%.200s expected %s", place, expected);
}
