/* Layers without parameters that move or combine numbers: activations, sums, copies and views. */
#include "layer_kind.h"

#include <stdio.h>

#define ACTIVATION(name_, in_place)                                                                \
    const layer_kind ty_kind_##name_ = {.row = {.name = #name_,                                    \
                                                .split = TY_SPLIT_SEQUENCE,                        \
                                                .is_elementwise = true,                            \
                                                .is_pass = true,                                   \
                                                .is_of_tokens = true,                              \
                                                .works_in_place = (in_place)},                     \
                                        .shape = ty_layer_same_shape}

ACTIVATION(relu, true);
ACTIVATION(gelu, false);
ACTIVATION(silu, false);
ACTIVATION(tanh, false);

/* ---- Layers of several inputs ---- */

static void add_shape(layer_shapes *s)
{
    char expected[TY_SHAPE_TEXT_SIZE];

    s->out = *s->in;
    for (uint32_t i = 1; i < s->layer->input_count; i++) {
        if (ty_layer_shapes_equal(ty_layer_input_shape(s->workload, s->index, i), s->in))
            continue;
        ty_shape_text(ty_layer_input_shape(s->workload, s->index, i), expected);
        snprintf(s->complaint, sizeof s->complaint, "%s as input %u", expected, i);
    }
}

static void concat_shape(layer_shapes *s)
{
    const bool is_last = layer_size(s, TY_IS_OF_FEATURES) != 0;
    const uint32_t along = is_last ? s->in->dimension_count - 1 : 0;

    s->out = *s->in;
    for (uint32_t i = 1; i < s->layer->input_count; i++) {
        const ty_shape *other = ty_layer_input_shape(s->workload, s->index, i);
        ty_shape rest = *other;
        rest.dimensions[along] = s->in->dimensions[along];
        if (!ty_layer_shapes_equal(&rest, s->in))
            snprintf(s->complaint, sizeof s->complaint,
                     "what differs from input %u in the %s dimension only", i,
                     is_last ? "last" : "first");
        s->out.dimensions[along] += other->dimensions[along];
    }
}

const layer_kind ty_kind_add = {
    .row = {.name = "add",
            .least_inputs = 2,
            .most_inputs = UINT32_MAX,
            .is_sum = true,
            .split = TY_SPLIT_SEQUENCE,
            .is_pass = true,
            .is_of_tokens = true,
            .ignores_output = true},
    .shape = add_shape,
};

const layer_kind ty_kind_concat = {
    .row = {.name = "concat",
            .optional = BIT(TY_IS_OF_FEATURES),
            .least_inputs = 2,
            .most_inputs = UINT32_MAX,
            .is_pass = true},
    .shape = concat_shape,
};

/* ---- slice, flatten ---- */

static void slice_shape(layer_shapes *s)
{
    if (layer_size(s, TY_FIRST_ROW) + layer_size(s, TY_ROWS) > s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint, "at least %llu rows (first_row and rows)",
                 (unsigned long long)(layer_size(s, TY_FIRST_ROW) + layer_size(s, TY_ROWS)));
    s->out = *s->in;
    s->out.dimensions[0] = layer_size(s, TY_ROWS);
}

static double out_twice(const layer_view *v) /* the rest of the input is not read */
{
    return 2 * v->out;
}

const layer_kind ty_kind_slice = {
    .row = {.name = "slice", .required = BIT(TY_FIRST_ROW) | BIT(TY_ROWS), .is_pass = true},
    .shape = slice_shape,
    .traffic = out_twice,
};

static void flatten_shape(layer_shapes *s)
{
    s->out = (ty_shape){1, {ty_shape_elements(s->in)}};
}

const layer_kind ty_kind_flatten = {
    .row = {.name = "flatten", .is_view = true, .is_pass = true},
    .shape = flatten_shape,
};
