/* Tables whose rows are looked up by index, and products of the resulting vectors. */
#include "layer_kind.h"

#include <stdio.h>

static void embedding_shape(layer_shapes *s)
{
    uint64_t positions = layer_size(s, TY_POSITIONS);

    if (s->layer->input_count != 0 || s->workload->input_kind != TY_INPUT_TOKEN)
        snprintf(s->complaint, sizeof s->complaint, "the batch, made of tokens");
    else if (positions != 0 && positions < s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint, "at most %llu tokens (positions)",
                 (unsigned long long)positions);
    s->out = (ty_shape){2, {s->in->dimensions[0], layer_size(s, TY_FEATURES)}};
}

static uint32_t embedding_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t features = a[TY_FEATURES];

    tensors[0] = layer_matrix("weight", a[TY_VOCABULARY], features, TY_START_NORMAL, TY_BY_ROWS);
    tensors[1] =
        layer_matrix("positions", a[TY_POSITIONS], features, TY_START_NORMAL, TY_BY_COLUMNS);
    tensors[2] = layer_matrix("types", a[TY_TOKEN_TYPES], features, TY_START_NORMAL, TY_BY_COLUMNS);
    return a[TY_TOKEN_TYPES] > 0 ? 3 : a[TY_POSITIONS] > 0 ? 2 : 1;
}

static double embedding_parameters(const layer_view *v)
{
    double rows = at(v, TY_VOCABULARY) + at(v, TY_POSITIONS) + at(v, TY_TOKEN_TYPES);
    return rows * at(v, TY_FEATURES);
}

static double embedding_traffic(const layer_view *v) /* tokens; rows of the tables; their sum */
{
    return v->in + v->out * (2 + (at(v, TY_POSITIONS) > 0) + (at(v, TY_TOKEN_TYPES) > 0));
}

const layer_kind ty_kind_embedding = {
    .row = {.name = "embedding",
            .required = BIT(TY_VOCABULARY) | BIT(TY_FEATURES) | BIT(TY_POSITIONS),
            .optional = BIT(TY_TOKEN_TYPES),
            .matrices = 2,
            .table = TY_TABLE_OF_TOKENS,
            .split = TY_SPLIT_VOCABULARY,
            .reads_tokens = true,
            .is_of_tokens = true,
            .tied_rows = TY_VOCABULARY,
            .tied_columns = TY_FEATURES},
    .shape = embedding_shape,
    .tensors = embedding_tensors,
    .parameters = embedding_parameters,
    .traffic = embedding_traffic,
};

/* ---- embedding_bag ---- */

static void embedding_bag_shape(layer_shapes *s)
{
    const uint64_t end = layer_size(s, TY_FIRST_ROW) + layer_size(s, TY_ROWS);

    if (s->layer->input_count != 0 || s->workload->input_kind != TY_INPUT_REAL ||
        s->in->dimension_count != 1 || end > s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint,
                 "the batch, made of at least %llu numbers (first_row and rows)",
                 (unsigned long long)end);
    s->out = (ty_shape){1, {layer_size(s, TY_FEATURES)}};
}

static uint32_t bag_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    tensors[0] =
        layer_matrix("weight", a[TY_VOCABULARY], a[TY_FEATURES], TY_START_FAN_IN, TY_UNDIVIDED);
    tensors[0].fan_in = a[TY_VOCABULARY];
    tensors[0].is_table = true;
    return 1;
}

static double bag_parameters(const layer_view *v)
{
    return at(v, TY_VOCABULARY) * at(v, TY_FEATURES);
}

static double bag_traffic(const layer_view *v) /* indices; rows of the table; their sum */
{
    return at(v, TY_ROWS) * (1 + at(v, TY_FEATURES)) + v->out;
}

const layer_kind ty_kind_embedding_bag = {
    .row = {.name = "embedding_bag",
            .required = BIT(TY_VOCABULARY) | BIT(TY_FEATURES) | BIT(TY_FIRST_ROW) | BIT(TY_ROWS) |
                        BIT(TY_IS_AVERAGE),
            .matrices = 1,
            .table = TY_TABLE_OF_BAG},
    .shape = embedding_bag_shape,
    .tensors = bag_tensors,
    .parameters = bag_parameters,
    .traffic = bag_traffic,
};

/* ---- dot_interaction: products of every two of the inputs (Naumov et al., arXiv:1906.00091,
 * section 2.1) ---- */

static void dot_interaction_shape(layer_shapes *s)
{
    const uint64_t count = s->layer->input_count;

    if (!ty_layer_has_dimensions(s, 1, "vectors of 1 dimension"))
        return;
    for (uint32_t i = 1; i < count; i++)
        if (!ty_layer_shapes_equal(ty_layer_input_shape(s->workload, s->index, i), s->in))
            snprintf(s->complaint, sizeof s->complaint, "as many numbers in input %u", i);
    s->out = (ty_shape){1, {s->in->dimensions[0] + count * (count - 1) / 2}};
}

static double interaction_flop(const layer_view *v)
{
    return v->in * (v->layer->input_count - 1);
}

const layer_kind ty_kind_dot_interaction = {
    .row = {.name = "dot_interaction", .least_inputs = 2, .most_inputs = UINT32_MAX},
    .shape = dot_interaction_shape,
    .forward_flop = interaction_flop,
    .input_product = interaction_flop,
    .unweighted = interaction_flop,
};
