/* Shape rules and formulas that several kinds of layers have. */
#include "layer_kind.h"

#include <stdio.h>

static uint64_t last_dimension(const ty_shape *shape)
{
    return shape->dimensions[shape->dimension_count - 1];
}

bool ty_layer_shapes_equal(const ty_shape *a, const ty_shape *b)
{
    if (a->dimension_count != b->dimension_count)
        return false;
    for (uint32_t i = 0; i < a->dimension_count; i++) {
        if (a->dimensions[i] != b->dimensions[i])
            return false;
    }
    return true;
}

/* The last dimension of the input must equal the attribute. */
bool ty_layer_ends_in(layer_shapes *s, ty_attribute attribute)
{
    if (last_dimension(s->in) == layer_size(s, attribute))
        return true;
    snprintf(s->complaint, sizeof s->complaint, "a last dimension of %s %llu",
             ty_attribute_name(attribute), (unsigned long long)layer_size(s, attribute));
    return false;
}

bool ty_layer_has_dimensions(layer_shapes *s, uint32_t count, const char *what)
{
    if (s->in->dimension_count == count)
        return true;
    snprintf(s->complaint, sizeof s->complaint, "%s", what);
    return false;
}

void ty_layer_same_shape(layer_shapes *s)
{
    s->out = *s->in;
}

void ty_layer_norm_shape(layer_shapes *s)
{
    if (ty_layer_ends_in(s, TY_FEATURES))
        s->out = *s->in;
}

double ty_layer_in_and_out(const layer_view *v)
{
    return v->in + v->out;
}

double ty_layer_one_per_row(const layer_view *v)
{
    return v->rows;
}

double ty_layer_owned(const layer_view *v)
{
    return 1 - at(v, TY_IS_SHARED);
}

double ty_layer_query_rows(const layer_view *v)
{
    return v->out / at(v, TY_FEATURES);
}
