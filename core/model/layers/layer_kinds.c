/* The table of kinds of layers, and a layer's attributes, shape and tensors by its kind. */
#include "layer_kind.h"

#include "ty_base.h"

#include <stdio.h>

/* Imported layers: no attributes, no formulas. */
const layer_kind ty_kind_opaque = {
    .row = {.name = "opaque", .most_inputs = UINT32_MAX, .is_opaque = true, .reads_tokens = true},
};

#define ROW(NAME, symbol) [TY_LAYER_##NAME] = &ty_kind_##symbol,
static const layer_kind *const kinds[TY_LAYER_KIND_COUNT] = {TY_LAYER_KINDS(ROW)};

const layer_kind *ty_layer_kind_of(const ty_layer *layer)
{
    return (unsigned)layer->kind < TY_LAYER_KIND_COUNT ? kinds[layer->kind] : &ty_kind_opaque;
}

const ty_layer_row *ty_layer_row_of(const ty_layer *layer)
{
    return &ty_layer_kind_of(layer)->row;
}

const char *ty_layer_kind_name(ty_layer_kind kind)
{
    return (unsigned)kind < TY_LAYER_KIND_COUNT ? kinds[kind]->row.name : "unknown";
}

ty_attribute_use ty_layer_attribute_use(ty_layer_kind kind, ty_attribute attribute)
{
    if ((kinds[kind]->row.required & BIT(attribute)) != 0)
        return TY_ATTRIBUTE_REQUIRED;
    return (kinds[kind]->row.optional & BIT(attribute)) != 0 ? TY_ATTRIBUTE_OPTIONAL
                                                             : TY_ATTRIBUTE_UNUSED;
}

/* ---- Shapes ---- */

ty_status ty_layer_shape(const ty_workload *workload, uint32_t layer, ty_shape *out,
                         ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];
    const layer_kind *kind = ty_layer_kind_of(l);
    layer_shapes s = {.layer = l, .workload = workload, .index = layer};
    char found[TY_SHAPE_TEXT_SIZE];

    s.in = ty_layer_input_shape(workload, layer, 0);
    if (kind->shape == NULL) {
        *out = l->output;
        return TY_OK;
    }
    kind->shape(&s);
    if (s.complaint[0] != '\0') {
        ty_shape_text(s.in, found);
        return ty_fail(error, TY_EINVAL, "found %s input %s, expected %s", kind->row.name, found,
                       s.complaint);
    }
    *out = s.out;
    return TY_OK;
}

/* ---- Tensor parallelism ---- */

/* Whether the loss reads this layer: then it is an output projection, split like the vocabulary. */
static bool is_read_by_loss(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *loss = &workload->layers[workload->layer_count - 1];

    if (!ty_layer_row_of(loss)->is_loss || workload->tokens_per_sample == 0)
        return false;
    for (uint32_t i = 0; i < loss->input_count; i++)
        if (loss->inputs[i] == layer)
            return true;
    return false;
}

bool ty_layer_is_along_sequence(const ty_workload *workload, const ty_layer *layer)
{
    return workload->tokens_per_sample > 0 && layer->output.dimension_count == 2;
}

ty_tensor_split ty_layer_tensor_split(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *l = &workload->layers[layer];
    const ty_layer_row *row = ty_layer_row_of(l);
    bool is_split = true;

    if (row->split == TY_SPLIT_SEQUENCE)
        is_split = ty_layer_is_along_sequence(workload, l);
    else if (row->is_loss)
        is_split = l->input_count == 1 &&
                   ty_layer_tensor_split(workload, l->inputs[0]) == TY_SPLIT_VOCABULARY;
    else if (row->split == TY_SPLIT_VOCABULARY && row->table == TY_TABLE_NONE)
        is_split = is_read_by_loss(workload, layer);
    return is_split ? row->split : TY_SPLIT_NONE;
}

bool ty_layer_has_split_scores(const ty_workload *workload, uint32_t layer)
{
    return ty_layer_row_of(&workload->layers[layer])->products == 1 &&
           ty_layer_tensor_split(workload, layer) == TY_SPLIT_VOCABULARY;
}

/* ---- Parameters ---- */

uint32_t ty_layer_tensors(const ty_workload *workload, uint32_t layer, ty_layer_tensor *tensors)
{
    const ty_layer *l = &workload->layers[layer];
    const layer_kind *kind = ty_layer_kind_of(l);
    const uint32_t count = kind->tensors == NULL ? 0 : kind->tensors(l->attributes, tensors);

    if (ty_layer_has_split_scores(workload, layer))
        for (uint32_t t = 0; t < count; t++)
            tensors[t].division = TY_BY_ROWS;
    return count;
}

bool ty_layer_tied_matrix(const ty_layer *layer, uint64_t *rows, uint64_t *columns)
{
    const ty_layer_row *row = ty_layer_row_of(layer);

    if (row->tied_rows == row->tied_columns)
        return false;
    *rows = layer->attributes[row->tied_rows];
    *columns = layer->attributes[row->tied_columns];
    return true;
}
