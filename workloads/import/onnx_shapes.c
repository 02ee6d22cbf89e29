/* Shape inference for the operators of image models, and for the shape arithmetic in exported
 * graphs. Source: onnx/onnx docs/Operators.md. */
#include "onnx_shapes.h"

#include <string.h>

#define LARGEST 2147483647

ty_onnx_value *ty_onnx_input(const ty_onnx_graph *g, const ty_onnx_node *n, uint32_t i)
{
    return i < n->input_count && n->inputs[i] != TY_ONNX_NO_VALUE ? &g->values[n->inputs[i]] : NULL;
}

void ty_onnx_same_shape(ty_onnx_value *out, const ty_onnx_value *from)
{
    out->rank = from->rank;
    memcpy(out->dimensions, from->dimensions, sizeof out->dimensions);
    out->has_shape = from->has_shape;
}

/* The first input, if it has a shape. */
static const ty_onnx_value *shaped(const ty_onnx_graph *g, const ty_onnx_node *n)
{
    const ty_onnx_value *x = ty_onnx_input(g, n, 0);
    return x != NULL && x->has_shape ? x : NULL;
}

static bool give(ty_onnx_value *out, const uint64_t *dimensions, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (dimensions[i] > LARGEST)
            return false;
    out->rank = rank;
    memcpy(out->dimensions, dimensions, rank * sizeof *dimensions);
    out->has_shape = true;
    return true;
}

/* Resolves an axis; negative ones count from the end. */
static bool settle_axis(int64_t written, uint32_t rank, uint32_t *axis)
{
    if (written < 0)
        written += rank;
    if (written < 0 || written >= rank)
        return false;
    *axis = (uint32_t)written;
    return true;
}

/* "axes" as an attribute, or as an input from opset 13 on. */
static uint32_t read_axes(const ty_onnx_graph *g, const ty_onnx_node *n,
                          int64_t axes[TY_ONNX_MOST_RANK])
{
    const ty_onnx_value *given = ty_onnx_input(g, n, 1);
    uint32_t count = ty_onnx_attribute(n, "axes", axes, TY_ONNX_MOST_RANK);

    if (count > 0 || given == NULL || given->integer_count > TY_ONNX_MOST_RANK)
        return count;
    for (uint32_t i = 0; i < given->integer_count; i++)
        axes[i] = given->integers[i];
    return given->integer_count;
}

bool ty_onnx_broadcast(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    uint32_t rank = 0;

    for (uint32_t i = 0; i < TY_ONNX_MOST_RANK; i++)
        dimensions[i] = 1; /* from the right */
    for (uint32_t i = 0; i < n->input_count; i++) {
        const ty_onnx_value *v = ty_onnx_input(g, n, i);
        if (v == NULL || !v->has_shape)
            continue;
        rank = v->rank > rank ? v->rank : rank;
        for (uint32_t k = 0; k < v->rank; k++) {
            uint64_t size = v->dimensions[v->rank - 1 - k];
            if (dimensions[k] != 1 && size != 1 && dimensions[k] != size)
                return false;
            dimensions[k] = size != 1 ? size : dimensions[k];
        }
    }
    for (uint32_t i = 0; i < rank / 2; i++) {
        uint64_t left = dimensions[i];
        dimensions[i] = dimensions[rank - 1 - i];
        dimensions[rank - 1 - i] = left;
    }
    return rank > 0 && give(out, dimensions, rank);
}

bool ty_onnx_reshape(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n), *wanted = ty_onnx_input(g, n, 1);
    int64_t sizes[TY_ONNX_MOST_RANK];
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    uint32_t rank, open = TY_ONNX_MOST_RANK;
    double product = 1, total;

    rank = ty_onnx_attribute(n, "shape", sizes, TY_ONNX_MOST_RANK); /* before opset 5 */
    if (rank == 0 && wanted != NULL && wanted->integer_count <= TY_ONNX_MOST_RANK)
        for (; rank < wanted->integer_count; rank++)
            sizes[rank] = wanted->integers[rank];
    if (x == NULL || rank == 0)
        return false;
    total = ty_onnx_elements(x);
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == -1) {
            if (open != TY_ONNX_MOST_RANK)
                return false;
            open = i;
            continue;
        }
        if (sizes[i] < 0 || sizes[i] > LARGEST || (sizes[i] == 0 && i >= x->rank))
            return false;
        dimensions[i] = sizes[i] == 0 ? x->dimensions[i] : (uint64_t)sizes[i];
        product *= (double)dimensions[i];
    }
    if (product < 1 || (open == TY_ONNX_MOST_RANK && product != total) || total / product > LARGEST)
        return false;
    if (open < TY_ONNX_MOST_RANK) {
        dimensions[open] = (uint64_t)(total / product);
        if ((double)dimensions[open] * product != total)
            return false;
    }
    return give(out, dimensions, rank);
}

bool ty_onnx_flatten(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    uint64_t dimensions[2] = {1, 1};
    int64_t axis = 1;

    ty_onnx_attribute(n, "axis", &axis, 1);
    if (x == NULL || ty_onnx_elements(x) > LARGEST)
        return false;
    if (axis < 0)
        axis += x->rank;
    for (uint32_t i = 0; i < x->rank; i++)
        dimensions[(int64_t)i < axis ? 0 : 1] *= x->dimensions[i];
    return give(out, dimensions, 2);
}

bool ty_onnx_squeeze(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    int64_t axes[TY_ONNX_MOST_RANK];
    uint32_t count = read_axes(g, n, axes), rank = 0, axis;
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    bool is_dropped[TY_ONNX_MOST_RANK] = {false};

    if (x == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!settle_axis(axes[i], x->rank, &axis) || x->dimensions[axis] != 1)
            return false;
        is_dropped[axis] = true;
    }
    for (uint32_t i = 0; i < x->rank; i++)
        if (!is_dropped[i] && (count > 0 || x->dimensions[i] != 1 || i == 0))
            dimensions[rank++] = x->dimensions[i];
    return give(out, dimensions, rank);
}

bool ty_onnx_unsqueeze(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    int64_t axes[TY_ONNX_MOST_RANK];
    uint32_t count = read_axes(g, n, axes), next = 0, axis, rank;
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    bool is_new[TY_ONNX_MOST_RANK] = {false};

    if (x == NULL || count == 0 || x->rank + count > TY_ONNX_MOST_RANK)
        return false;
    rank = x->rank + count;
    for (uint32_t i = 0; i < count; i++) {
        if (!settle_axis(axes[i], rank, &axis) || is_new[axis])
            return false;
        is_new[axis] = true;
    }
    for (uint32_t i = 0; i < rank; i++)
        dimensions[i] = is_new[i] ? 1 : x->dimensions[next++];
    return give(out, dimensions, rank);
}

bool ty_onnx_transpose(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    int64_t order[TY_ONNX_MOST_RANK];
    uint32_t count = ty_onnx_attribute(n, "perm", order, TY_ONNX_MOST_RANK), axis;
    uint64_t dimensions[TY_ONNX_MOST_RANK];

    if (x == NULL || (count > 0 && count != x->rank))
        return false;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (!settle_axis(count > 0 ? order[i] : (int64_t)(x->rank - 1 - i), x->rank, &axis))
            return false;
        dimensions[i] = x->dimensions[axis];
    }
    return give(out, dimensions, x->rank);
}

bool ty_onnx_concat(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out,
                    uint32_t *axis)
{
    const ty_onnx_value *x = shaped(g, n);
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    int64_t written = 1;

    ty_onnx_attribute(n, "axis", &written, 1);
    if (x == NULL || !settle_axis(written, x->rank, axis))
        return false;
    memcpy(dimensions, x->dimensions, sizeof dimensions);
    for (uint32_t i = 1; i < n->input_count; i++) {
        const ty_onnx_value *v = ty_onnx_input(g, n, i);
        if (v == NULL || !v->has_shape || v->rank != x->rank)
            return false;
        for (uint32_t k = 0; k < x->rank; k++)
            if (k != *axis && v->dimensions[k] != x->dimensions[k])
                return false;
        dimensions[*axis] += v->dimensions[*axis];
        if (dimensions[*axis] > LARGEST)
            return false;
    }
    return give(out, dimensions, x->rank);
}

bool ty_onnx_reduce(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    int64_t axes[TY_ONNX_MOST_RANK], keep = 1;
    uint32_t count = read_axes(g, n, axes), rank = 0, axis;
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    bool is_reduced[TY_ONNX_MOST_RANK] = {false};

    ty_onnx_attribute(n, "keepdims", &keep, 1);
    if (x == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!settle_axis(axes[i], x->rank, &axis))
            return false;
        is_reduced[axis] = true;
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        bool is_gone = is_reduced[i] || count == 0;
        if (!is_gone || keep != 0)
            dimensions[rank++] = is_gone ? 1 : x->dimensions[i];
    }
    return give(out, dimensions, rank);
}

bool ty_onnx_matmul(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out,
                    double *multiply_adds)
{
    const ty_onnx_value *a = shaped(g, n), *b = ty_onnx_input(g, n, 1);
    const ty_onnx_value *longer;
    uint64_t dimensions[TY_ONNX_MOST_RANK];

    if (a == NULL || b == NULL || !b->has_shape || a->rank < 2 || b->rank < 2 ||
        a->dimensions[a->rank - 1] != b->dimensions[b->rank - 2])
        return false;
    longer = a->rank >= b->rank ? a : b;
    memcpy(dimensions, longer->dimensions, sizeof dimensions);
    dimensions[longer->rank - 2] = a->dimensions[a->rank - 2];
    dimensions[longer->rank - 1] = b->dimensions[b->rank - 1];
    if (!give(out, dimensions, longer->rank))
        return false;
    *multiply_adds = ty_onnx_elements(out) * (double)a->dimensions[a->rank - 1];
    return true;
}

bool ty_onnx_gather(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n), *indices = ty_onnx_input(g, n, 1);
    uint64_t dimensions[TY_ONNX_MOST_RANK];
    uint32_t axis, rank = 0;
    int64_t written = 0;

    ty_onnx_attribute(n, "axis", &written, 1);
    if (x == NULL || indices == NULL || !indices->has_shape ||
        !settle_axis(written, x->rank, &axis) || x->rank - 1 + indices->rank > TY_ONNX_MOST_RANK)
        return false;
    for (uint32_t i = 0; i < axis; i++)
        dimensions[rank++] = x->dimensions[i];
    for (uint32_t i = 0; i < indices->rank; i++)
        dimensions[rank++] = indices->dimensions[i];
    for (uint32_t i = axis + 1; i < x->rank; i++)
        dimensions[rank++] = x->dimensions[i];
    return give(out, dimensions, rank);
}

/* ---- Windows --------------------------------------------------------------------------------- */

static bool read_pairs(const ty_onnx_node *n, const char *name, int64_t lowest, uint64_t usual,
                       uint64_t *out, uint32_t count)
{
    int64_t values[4];
    uint32_t found = ty_onnx_attribute(n, name, values, count);

    for (uint32_t i = 0; i < count; i++) {
        if (found == count && (values[i] < lowest || values[i] > LARGEST))
            return false;
        out[i] = found == count ? (uint64_t)values[i] : usual;
    }
    return found == 0 || found == count;
}

bool ty_onnx_slide(const ty_onnx_node *n, const ty_onnx_value *x, const uint64_t *kernel,
                   ty_onnx_window *out)
{
    ty_wire automatic = ty_onnx_text_attribute(n, "auto_pad");
    bool is_same = ty_wire_is(&automatic, "SAME_UPPER") || ty_wire_is(&automatic, "SAME_LOWER");
    uint64_t pads[4], dilations[2];
    int64_t rounds_up = 0;

    ty_onnx_attribute(n, "ceil_mode", &rounds_up, 1);
    if (!x->has_shape || x->rank != 4 || !read_pairs(n, "strides", 1, 1, out->stride, 2) ||
        !read_pairs(n, "dilations", 1, 1, dilations, 2) || !read_pairs(n, "pads", 0, 0, pads, 4) ||
        !read_pairs(n, "kernel_shape", 1, 0, out->kernel, 2))
        return false;
    out->is_dilated = dilations[0] != 1 || dilations[1] != 1;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t size = x->dimensions[2 + i], padded, reach;
        if (kernel != NULL)
            out->kernel[i] = kernel[i];
        if (out->kernel[i] == 0 || out->kernel[i] > LARGEST)
            return false;
        reach = (out->kernel[i] - 1) * dilations[i] + 1;
        padded = size + pads[i] + pads[2 + i];
        out->before[i] = pads[i];
        if (is_same) {
            out->out[i] = (size + out->stride[i] - 1) / out->stride[i];
            continue;
        }
        if (padded < reach)
            return false;
        out->out[i] =
            (padded - reach + (rounds_up != 0 ? out->stride[i] - 1 : 0)) / out->stride[i] + 1;
    }
    return true;
}

/* ---- Constants ------------------------------------------------------------------------------- */

static bool is_operator(const ty_onnx_node *n, const char *name)
{
    return ty_wire_is(&n->operator_name, name);
}

/* Integers of x[indices] or of several joined; NULL out->integers if any is unknown. */
static ty_status fold_integers(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = ty_onnx_input(g, n, 0), *other = ty_onnx_input(g, n, 1);
    int64_t *kept = ty_arena_alloc(g->arena, TY_ONNX_MOST_INTS, sizeof *kept);
    uint32_t count = 0;

    TY_TRY(ty_check_memory(kept != NULL, g->source->error));
    if (is_operator(n, "Gather")) {
        for (uint32_t i = 0; x != NULL && other != NULL && i < other->integer_count; i++) {
            int64_t at = other->integers[i] + (other->integers[i] < 0 ? x->integer_count : 0);
            if (at < 0 || at >= x->integer_count)
                return TY_OK;
            kept[count++] = x->integers[at];
        }
    } else {
        for (uint32_t i = 0; i < (is_operator(n, "Concat") ? n->input_count : 1); i++) {
            const ty_onnx_value *v = ty_onnx_input(g, n, i);
            if (v == NULL || v->integer_count == 0 || v->integer_count > TY_ONNX_MOST_INTS - count)
                return TY_OK;
            memcpy(kept + count, v->integers, v->integer_count * sizeof *kept);
            count += v->integer_count;
        }
    }
    if (count > 0 && out->has_shape && ty_onnx_elements(out) == (double)count) {
        out->integers = kept;
        out->integer_count = count;
    }
    return TY_OK;
}

static ty_status fold_shape(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = shaped(g, n);
    int64_t *kept;

    if (x == NULL || x->rank == 0)
        return TY_OK;
    kept = ty_arena_alloc(g->arena, x->rank, sizeof *kept);
    TY_TRY(ty_check_memory(kept != NULL, g->source->error));
    for (uint32_t i = 0; i < x->rank; i++)
        kept[i] = (int64_t)x->dimensions[i];
    out->integers = kept;
    out->integer_count = x->rank;
    out->is_integer = true;
    give(out, &(uint64_t){x->rank}, 1);
    return TY_OK;
}

/* A tensor filled with one value, in the shape of its input's numbers. */
static void fold_constant_of_shape(const ty_onnx_graph *g, const ty_onnx_node *n,
                                   ty_onnx_value *out)
{
    const ty_onnx_value *x = ty_onnx_input(g, n, 0);
    uint64_t dimensions[TY_ONNX_MOST_RANK];

    if (x == NULL || x->integer_count == 0 || x->integer_count > TY_ONNX_MOST_RANK)
        return;
    for (uint32_t i = 0; i < x->integer_count; i++) {
        if (x->integers[i] < 0)
            return;
        dimensions[i] = (uint64_t)x->integers[i];
    }
    give(out, dimensions, x->integer_count);
}

ty_status ty_onnx_fold(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out)
{
    static const struct {
        const char *name;
        bool (*shape)(const ty_onnx_graph *, const ty_onnx_node *, ty_onnx_value *);
    } rows[] = {{"Reshape", ty_onnx_reshape},
                {"Squeeze", ty_onnx_squeeze},
                {"Unsqueeze", ty_onnx_unsqueeze},
                {"Transpose", ty_onnx_transpose},
                {"Gather", ty_onnx_gather},
                {"Cast", NULL},
                {"Identity", NULL},
                {"Concat", NULL}};
    const ty_onnx_value *x = ty_onnx_input(g, n, 0);
    uint32_t axis;

    out->is_constant = out->is_defined = true;
    if (is_operator(n, "Constant"))
        return ty_onnx_constant(g, n, out);
    if (is_operator(n, "Shape"))
        return fold_shape(g, n, out);
    if (is_operator(n, "ConstantOfShape")) {
        fold_constant_of_shape(g, n, out);
        return TY_OK;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!is_operator(n, rows[i].name) || x == NULL)
            continue;
        out->is_integer = x->is_integer;
        if (rows[i].shape != NULL)
            rows[i].shape(g, n, out);
        else if (is_operator(n, "Concat"))
            ty_onnx_concat(g, n, out, &axis);
        else if (x->has_shape)
            ty_onnx_same_shape(out, x);
        return is_operator(n, "Transpose") ? TY_OK : fold_integers(g, n, out);
    }
    return TY_OK;
}
