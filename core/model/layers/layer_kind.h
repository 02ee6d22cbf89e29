/**
 * @file layer_kind.h
 * A kind of layer: its row, the shape of its output, its parameter tensors and its formulas. Every
 * kind has a file in this folder that defines one `ty_kind_NAME`. Private to core.
 */
#ifndef TY_LAYER_KIND_H
#define TY_LAYER_KIND_H

#include "ty_workload.h"

/** A layer and its first input, from which its rule computes the shape of its output. */
typedef struct layer_shapes {
    const ty_layer *layer;
    const ty_shape *in;
    const ty_workload *workload;
    uint32_t index;
    ty_shape out;
    char complaint[160]; /* the input that the rule expected; "" if it is right */
} layer_shapes;

/** Arguments of formulas. Counts are doubles: exact up to 2^53, no overflow beyond. */
typedef struct layer_view {
    const ty_layer *layer;
    double in;   /* elements of all inputs, per sample */
    double out;  /* elements of the output */
    double rows; /* of the first input as a matrix over its last dimension: T of [T,D] */
} layer_view;

typedef double (*layer_formula)(const layer_view *v);

typedef struct layer_kind {
    ty_layer_row row;
    void (*shape)(layer_shapes *s); /* NULL: any shape */
    /* Tensors of a layer by its attributes, see ty_layer_tensors; NULL: none, or not known
     * individually. */
    uint32_t (*tensors)(const uint64_t *a, ty_layer_tensor *tensors);
    /* Numbers and flop per sample. NULL stands for 0 unless the comment says otherwise. */
    layer_formula parameters;
    layer_formula forward_flop;
    layer_formula input_product; /* the part of it that has the layer's input as a factor */
    layer_formula unweighted;    /* the part of it that has no parameters as a factor */
    layer_formula stashed;       /* numbers stored for backward in addition to the output */
    layer_formula traffic;       /* numbers forward reads and writes; NULL: inputs, output, and what
                                    is stashed once written and once read */
    layer_formula kernels;       /* NULL: one */
} layer_kind;

#define LAYER_KIND_DECLARE(NAME, symbol) extern const layer_kind ty_kind_##symbol;
TY_LAYER_KINDS(LAYER_KIND_DECLARE)

/** The kind of a layer; one out of range is opaque. */
const layer_kind *ty_layer_kind_of(const ty_layer *layer);

/** A set of one attribute. */
#define BIT(attribute) ((uint64_t)1 << (attribute))
/** Attributes of windows over images. */
#define WINDOW                                                                                     \
    (BIT(TY_KERNEL_HEIGHT) | BIT(TY_KERNEL_WIDTH) | BIT(TY_STRIDE) | BIT(TY_PADDING_HEIGHT) |      \
     BIT(TY_PADDING_WIDTH))

static inline double at(const layer_view *v, ty_attribute attribute)
{
    return (double)v->layer->attributes[attribute];
}

static inline uint64_t layer_size(const layer_shapes *s, ty_attribute attribute)
{
    return s->layer->attributes[attribute];
}

/* ---- Shapes ---- */

bool ty_layer_shapes_equal(const ty_shape *a, const ty_shape *b);
/** Whether the last dimension of the input is the attribute's; else sets `complaint`. */
bool ty_layer_ends_in(layer_shapes *s, ty_attribute attribute);
/** Whether the input has this many dimensions; else sets `complaint` to `what`. */
bool ty_layer_has_dimensions(layer_shapes *s, uint32_t count, const char *what);
void ty_layer_same_shape(layer_shapes *s); /* the output is like the input */
void ty_layer_norm_shape(layer_shapes *s); /* the same, of `features` in the last dimension */

/* ---- Tensors ---- */

static inline ty_layer_tensor layer_matrix(const char *name, uint64_t rows, uint64_t columns,
                                           ty_tensor_start start, ty_tensor_division division)
{
    return (ty_layer_tensor){.name = name,
                             .count = rows * columns,
                             .start = start,
                             .fan_in = columns,
                             .division = division,
                             .columns = columns};
}

static inline ty_layer_tensor layer_vector(const char *name, uint64_t count, float constant,
                                           ty_tensor_division division)
{
    return (ty_layer_tensor){
        .name = name, .count = count, .constant = constant, .division = division};
}

/* ---- Formulas that several kinds have ---- */

double ty_layer_in_and_out(const layer_view *v); /* elements of inputs and output */
double ty_layer_one_per_row(const layer_view *v);
double ty_layer_owned(const layer_view *v); /* 0 if the parameters are another layer's, else 1 */
double ty_layer_query_rows(const layer_view *v); /* rows of the output: T of [T,D] */

#endif
