/*
 * cuDNN's graphs: descriptors with attributes, and operations that run one by one. The requirements
 * of the interface and of the attention guide are checked. These are types and numbers of
 * attributes; those needed before each kind is finalized, and no changes after that; shapes; every
 * virtual tensor written once before it is read; and an aligned pointer for every other tensor. A
 * call that breaks a rule fails and prints the rule on standard error.
 *
 * Among attention's rules: heads are multiples of 8 numbers, at most 256, contiguous, and begin at
 * a multiple of 16 bytes. A convolution is a graph by itself; its tensors have no gaps and all have
 * the same layout, planes or channels last.
 */
#include "library_graphs.h"
#include "emulated_counts.h"
#include "library_convolutions.h"
#include "library_numbers.h"

#include "ty_core.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    AXES = 4,
    SPACE = 2 /* of them in images */,
    MOST_ATTRIBUTES = 8,
    MOST_TENSORS = 64,
    MOST_POINTERS = 16,
    MOST_HEAD = 256
};

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values;
} attribute;

/* A tensor of a graph, and its uses by the graph's operations. */
typedef struct member {
    const struct descriptor *tensor;
    bool is_read, is_written;
    uint32_t products; /* number of readers, of it or of a reordered view */
    bool is_summed;    /* over heads */
    bool is_added;     /* floats in memory, to which a product adds in any order */
} member;

/* An engine that can run a graph. */
typedef struct engine {
    uint32_t notes;           /* 1 << a cudnnBackendNumericalNote_t, of each */
    double delay_s;           /* over the fastest, if several are compared */
    uint64_t workspace_bytes; /* in addition to the graph's */
    bool is_of_several;       /* listed if several are requested */
    bool is_refused;          /* its plans are not supported */
} engine;

typedef struct descriptor {
    cudnnBackendDescriptorType_t kind;
    bool is_final;
    uint32_t uses, attribute_count;
    attribute attributes[MOST_ATTRIBUTES];
    /* Of graphs: */
    uint32_t member_count;
    member *members;
    /* Of results of heuristics, engines and plans: */
    struct descriptor *graph;
    const engine *engine;
} descriptor;

static cudnnStatus_t broken(cudnnStatus_t status, const char *rule)
{
    fprintf(stderr, "emulated cuDNN: %s\n", rule);
    return status;
}

/* ---- Descriptors ---- */

enum { ANY_OPERATION = -1, NO_LINK = -2 };

/* The valid attributes. */
typedef struct rule {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t most;
    bool is_needed;
    int link; /* the required kind of descriptor */
} rule;

#define LINK(kind, name, is_needed, to)                                                            \
    {                                                                                              \
        kind, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, is_needed, (int)(to)                         \
    }
#define PLAIN(kind, name, type, most, is_needed)                                                   \
    {                                                                                              \
        kind, name, type, most, is_needed, NO_LINK                                                 \
    }
#define CONVOLUTION(kind, name, x, w, y)                                                           \
    LINK(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                                  \
         CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, true,                                \
         CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),                                                    \
        LINK(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                              \
             CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x, true,                                  \
             CUDNN_BACKEND_TENSOR_DESCRIPTOR),                                                     \
        LINK(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                              \
             CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w, true,                                  \
             CUDNN_BACKEND_TENSOR_DESCRIPTOR),                                                     \
        LINK(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                              \
             CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y, true,                                  \
             CUDNN_BACKEND_TENSOR_DESCRIPTOR),                                                     \
        PLAIN(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                             \
              CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, CUDNN_TYPE_FLOAT, 1, true),         \
        PLAIN(CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR,                             \
              CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, CUDNN_TYPE_FLOAT, 1, true)
static const rule rules[] = {
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
          true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, AXES,
          true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, AXES, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
          true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
          false),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
          false),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
          1, true),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
          1, true),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1,
          false),
    PLAIN(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
          CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true),
    PLAIN(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
          1, true),
    PLAIN(CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
          true),
    LINK(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
         true, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, false,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, false,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, true,
         CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, true,
         CUDNN_BACKEND_MATMUL_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    LINK(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, true,
         CUDNN_BACKEND_TENSOR_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
          CUDNN_TYPE_DATA_TYPE, 1, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
          CUDNN_TYPE_CONVOLUTION_MODE, 1, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
          CUDNN_TYPE_INT64, 1, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64,
          SPACE, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
          CUDNN_TYPE_INT64, SPACE, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
          CUDNN_TYPE_INT64, SPACE, true),
    PLAIN(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
          CUDNN_TYPE_INT64, SPACE, true),
    CONVOLUTION(FORWARD, FORWARD, X, W, Y),
    CONVOLUTION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    CONVOLUTION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 64, true, ANY_OPERATION},
    PLAIN(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
          CUDNN_TYPE_HANDLE, 1, true),
    LINK(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, true,
         CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
          true),
    LINK(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, true,
         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
          CUDNN_TYPE_HANDLE, 1, true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
          CUDNN_TYPE_INT64, MOST_POINTERS, true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
          CUDNN_TYPE_VOID_PTR, MOST_POINTERS, true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
          CUDNN_TYPE_VOID_PTR, 1, true),
};
enum { RULES = sizeof rules / sizeof *rules };

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
           : type == CUDNN_TYPE_INT64 ? sizeof(int64_t)
           : type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_VOID_PTR ||
                   type == CUDNN_TYPE_BACKEND_DESCRIPTOR
               ? sizeof(void *)
               : sizeof(int);
}

static bool is_convolution(const descriptor *operation)
{
    return operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

static bool is_operation(const descriptor *of)
{
    return is_convolution(of) || of->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
           of->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
           of->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
           of->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

static const rule *rule_of(const descriptor *of, cudnnBackendAttributeName_t name)
{
    for (size_t i = 0; i < RULES; i++)
        if (rules[i].kind == of->kind && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static const attribute *find(const descriptor *of, cudnnBackendAttributeName_t name)
{
    for (uint32_t i = 0; i < of->attribute_count; i++)
        if (of->attributes[i].name == name)
            return &of->attributes[i];
    return NULL;
}

/* NULL: not set. */
static const descriptor *linked(const descriptor *of, cudnnBackendAttributeName_t name)
{
    const attribute *found = find(of, name);

    return found != NULL ? *(descriptor *const *)found->values : NULL;
}

static int number_of(const descriptor *of, cudnnBackendAttributeName_t name)
{
    return *(const int *)find(of, name)->values;
}

static int64_t long_of(const descriptor *of, cudnnBackendAttributeName_t name)
{
    return *(const int64_t *)find(of, name)->values;
}

static bool is_set(const descriptor *of, cudnnBackendAttributeName_t name)
{
    const attribute *found = find(of, name);

    return found != NULL && *(const bool *)found->values;
}

static void release(descriptor *of)
{
    if (of == NULL || --of->uses > 0)
        return;
    for (uint32_t i = 0; i < of->attribute_count; i++) {
        const attribute *a = &of->attributes[i];
        if (rule_of(of, a->name)->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            for (int64_t k = 0; k < a->count; k++)
                release(((descriptor **)a->values)[k]);
        ty_free(a->values);
    }
    release(of->graph);
    ty_free(of->members);
    ty_free(of);
}

static descriptor *shared(const descriptor *of)
{
    descriptor *one = (descriptor *)(uintptr_t)of;

    one->uses++;
    return one;
}

cudnnStatus_t graph_descriptor_create(cudnnBackendDescriptorType_t kind,
                                      cudnnBackendDescriptor_t *out)
{
    descriptor *made = ty_alloc(1, sizeof *made);

    made->kind = kind;
    made->uses = 1;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t graph_descriptor_destroy(cudnnBackendDescriptor_t made)
{
    release(made);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t links_check(const rule *r, int64_t count, const void *values)
{
    for (int64_t i = 0; i < count && r->link != NO_LINK; i++) {
        const descriptor *to = ((descriptor *const *)values)[i];
        if (to == NULL || !to->is_final)
            return broken(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                          "a descriptor is used before it is finalized");
        if (r->link == ANY_OPERATION ? !is_operation(to) : (int)to->kind != r->link)
            return broken(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                          "a descriptor of another kind is expected");
        shared(to);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t graph_attribute_set(cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count,
                                  const void *values)
{
    descriptor *of = made;
    const rule *r = rule_of(of, name);
    cudnnStatus_t status;

    if (of->is_final)
        return broken(CUDNN_STATUS_BAD_PARAM, "a descriptor is changed that is final");
    if (r == NULL)
        return broken(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that the descriptor has not");
    if (type != r->type)
        return broken(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
    if (count < 1 || count > r->most || values == NULL)
        return broken(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "an attribute of another size");
    if (find(of, name) != NULL)
        return broken(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an attribute is set twice");
    status = links_check(r, count, values);
    if (status == CUDNN_STATUS_SUCCESS) {
        attribute *a = &of->attributes[of->attribute_count++];
        *a = (attribute){name, count, ty_alloc((size_t)count, bytes_of(type))};
        memcpy(a->values, values, (size_t)count * bytes_of(type));
    }
    return status;
}

/* ---- Tensors ---- */

static const int64_t *sizes_of(const descriptor *tensor)
{
    return find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->values;
}

static const int64_t *strides_of(const descriptor *tensor)
{
    return find(tensor, CUDNN_ATTR_TENSOR_STRIDES)->values;
}

static bool is_virtual(const descriptor *tensor)
{
    return is_set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

static bool is_by_value(const descriptor *tensor)
{
    return is_set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

static cudnnDataType_t type_of(const descriptor *tensor)
{
    return (cudnnDataType_t)number_of(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
}

static bool has_16_bits(const descriptor *tensor)
{
    return type_of(tensor) == CUDNN_DATA_HALF || type_of(tensor) == CUDNN_DATA_BFLOAT16;
}

static uint64_t elements(const descriptor *tensor)
{
    uint64_t count = 1;

    for (int i = 0; i < AXES; i++)
        count *= (uint64_t)sizes_of(tensor)[i];
    return count;
}

/* From the first element to the end of the last one. */
static uint64_t span(const descriptor *tensor)
{
    uint64_t last = 0;

    for (int i = 0; i < AXES; i++)
        last += (uint64_t)((sizes_of(tensor)[i] - 1) * strides_of(tensor)[i]);
    return last + 1;
}

static cudnnStatus_t tensor_check(const descriptor *of)
{
    const int64_t alignment = long_of(of, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);

    if (find(of, CUDNN_ATTR_TENSOR_DIMENSIONS)->count != AXES ||
        find(of, CUDNN_ATTR_TENSOR_STRIDES)->count != AXES)
        return broken(CUDNN_STATUS_BAD_PARAM, "a tensor of the backend's has 4 axes");
    for (int i = 0; i < AXES; i++)
        if (sizes_of(of)[i] < 1 || strides_of(of)[i] < 1)
            return broken(CUDNN_STATUS_BAD_PARAM, "a size or a stride below 1");
    if (alignment < 1 || (alignment & (alignment - 1)) != 0)
        return broken(CUDNN_STATUS_BAD_PARAM, "an alignment that is no power of 2");
    if (is_virtual(of) && is_by_value(of))
        return broken(CUDNN_STATUS_BAD_PARAM, "a virtual tensor that is brought by value");
    if (is_by_value(of) && elements(of) != 1)
        return broken(CUDNN_STATUS_BAD_PARAM, "several numbers by value");
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Operations ---- */

/* Inputs and outputs of an operation. */
typedef struct operands {
    const descriptor *reads[3], *makes;
} operands;

/* All three of a convolution, whichever is the output. */
typedef struct convolved {
    const descriptor *kind, *x, *w, *y;
    float alpha, beta;
} convolved;

static convolved convolved_of(const descriptor *operation)
{
#define CONVOLVED(name, x, w, y)                                                                   \
    (convolved)                                                                                    \
    {                                                                                              \
        linked(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC),                    \
            linked(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x),                      \
            linked(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w),                      \
            linked(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y),                      \
            *(float *)find(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA)->values,    \
            *(float *)find(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA)->values      \
    }
    return operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
               ? CONVOLVED(FORWARD, X, W, Y)
           : operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
               ? CONVOLVED(BWD_DATA, DX, W, DY)
               : CONVOLVED(BWD_FILTER, X, DW, DY);
}

static operands convolved_operands(const descriptor *operation)
{
    const convolved c = convolved_of(operation);

    return operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
               ? (operands){{c.x, c.w}, c.y}
           : operation->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
               ? (operands){{c.w, c.y}, c.x}
               : (operands){{c.x, c.y}, c.w};
}

static operands operands_of(const descriptor *operation)
{
    if (is_convolution(operation))
        return convolved_operands(operation);
    if (operation->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        return (operands){{linked(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                           linked(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                           linked(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)},
                          linked(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    if (operation->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        return (operands){{linked(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)},
                          linked(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    if (operation->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return (operands){{linked(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                           linked(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC)},
                          linked(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    return (operands){{linked(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)},
                      linked(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
}

/* Whether x has one number, or several equal ones, for each of y's. */
static bool spreads(const descriptor *x, const descriptor *y)
{
    for (int i = 0; i < AXES; i++)
        if (sizes_of(x)[i] != sizes_of(y)[i] && sizes_of(x)[i] != 1)
            return false;
    return true;
}

static cudnnStatus_t pointwise_check(const descriptor *of)
{
    const descriptor *kind = linked(of, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const operands o = operands_of(of);
    const int mode = number_of(kind, CUDNN_ATTR_POINTWISE_MODE);
    const bool is_one = mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG ||
                        mode == CUDNN_POINTWISE_IDENTITY || mode == CUDNN_POINTWISE_GEN_INDEX;
    const bool is_choice = mode == CUDNN_POINTWISE_BINARY_SELECT;

    if (is_one != (o.reads[1] == NULL) || is_choice != (o.reads[2] != NULL))
        return broken(CUDNN_STATUS_BAD_PARAM, "a pointwise mode with other operands");
    for (int i = 0; i < 3; i++)
        if (o.reads[i] != NULL && !spreads(o.reads[i], o.makes))
            return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                          "pointwise operands of two shapes");
    if (mode == CUDNN_POINTWISE_GEN_INDEX &&
        (find(kind, CUDNN_ATTR_POINTWISE_AXIS) == NULL || type_of(o.makes) != CUDNN_DATA_INT32))
        return broken(CUDNN_STATUS_BAD_PARAM, "indices of no axis, or not of 32 bits");
    if ((mode == CUDNN_POINTWISE_CMP_GE) != (type_of(o.makes) == CUDNN_DATA_BOOLEAN) ||
        (is_choice && type_of(o.reads[2]) != CUDNN_DATA_BOOLEAN))
        return broken(CUDNN_STATUS_BAD_PARAM, "a comparison, or a choice, that is not of booleans");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t matmul_check(const descriptor *of)
{
    const operands o = operands_of(of);
    const int64_t *a = sizes_of(o.reads[0]), *b = sizes_of(o.reads[1]), *c = sizes_of(o.makes);

    if (a[0] != b[0] || a[0] != c[0] || a[1] != c[1] || a[1] % b[1] != 0)
        return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "products of other samples or heads");
    if (a[2] != c[2] || a[3] != b[2] || b[3] != c[3])
        return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "matrices that have no product");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t reduction_check(const descriptor *of)
{
    const operands o = operands_of(of);

    for (int i = 0; i < AXES; i++)
        if (sizes_of(o.reads[0])[i] % sizes_of(o.makes)[i] != 0)
            return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a sum of another shape");
    return CUDNN_STATUS_SUCCESS;
}

/* The same memory, in another order. */
static cudnnStatus_t reshape_check(const descriptor *of)
{
    const operands o = operands_of(of);

    return elements(o.reads[0]) == elements(o.makes) && span(o.reads[0]) == span(o.makes)
               ? CUDNN_STATUS_SUCCESS
               : broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "other numbers by another shape");
}

static const int64_t *space_of(const descriptor *kind, cudnnBackendAttributeName_t name)
{
    return find(kind, name)->values;
}

static cudnnStatus_t convolution_check(const descriptor *of)
{
    return find(of, CUDNN_ATTR_CONVOLUTION_DILATIONS)->count == SPACE &&
                   find(of, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->count == SPACE &&
                   find(of, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->count == SPACE &&
                   find(of, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->count == SPACE &&
                   long_of(of, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == SPACE
               ? CUDNN_STATUS_SUCCESS
               : broken(CUDNN_STATUS_BAD_PARAM, "a convolution of two axes with numbers of others");
}

/* Whether it has no gaps, considering axes longer than one. */
static bool is_packed(const descriptor *tensor)
{
    int64_t behind = 1;

    for (int taken = 0; taken < AXES; taken++) {
        int least = -1;
        for (int i = 0; i < AXES; i++)
            if (sizes_of(tensor)[i] > 1 && strides_of(tensor)[i] >= behind &&
                (least < 0 || strides_of(tensor)[i] < strides_of(tensor)[least]))
                least = i;
        if (least < 0)
            break;
        if (strides_of(tensor)[least] != behind)
            return false;
        behind *= sizes_of(tensor)[least];
    }
    return (uint64_t)behind == elements(tensor);
}

/* In planes or channels last, if that differs. */
static bool lies_alike(const descriptor *a, const descriptor *b)
{
    const descriptor *const both[] = {a, b};
    bool is_last[2];

    for (int i = 0; i < 2; i++) {
        const int64_t *sizes = sizes_of(both[i]);
        if (sizes[1] == 1 || sizes[2] * sizes[3] == 1)
            return true;
        is_last[i] = strides_of(both[i])[1] == 1;
    }
    return is_last[0] == is_last[1];
}

static cudnnStatus_t convolved_check(const descriptor *of)
{
    const convolved c = convolved_of(of);
    const int64_t *x = sizes_of(c.x), *w = sizes_of(c.w), *y = sizes_of(c.y);

    if (type_of(c.x) != type_of(c.w) || type_of(c.x) != type_of(c.y))
        return broken(CUDNN_STATUS_NOT_SUPPORTED, "a convolution of several types");
    if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
        return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                      "images or channels that have no convolution");
    for (int i = 0; i < SPACE; i++)
        if ((x[2 + i] + space_of(c.kind, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i] +
             space_of(c.kind, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[i] - w[2 + i]) /
                    space_of(c.kind, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i] +
                1 !=
            y[2 + i])
            return broken(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                          "images of another size than the convolution makes");
    if (!is_packed(c.x) || !is_packed(c.w) || !is_packed(c.y))
        return broken(CUDNN_STATUS_BAD_PARAM, "a tensor with gaps, or upon itself");
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Graphs ---- */

static member *member_of(const descriptor *graph, const descriptor *tensor)
{
    for (uint32_t i = 0; i < graph->member_count; i++)
        if (graph->members[i].tensor == tensor)
            return &graph->members[i];
    return NULL;
}

/* The tensor's member, added if missing; NULL if another tensor has its number. */
static member *member_make(descriptor *graph, const descriptor *tensor)
{
    member *found = member_of(graph, tensor);

    if (found != NULL)
        return found;
    for (uint32_t i = 0; i < graph->member_count; i++)
        if (long_of(graph->members[i].tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID) ==
            long_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID))
            return NULL;
    if (graph->member_count == MOST_TENSORS)
        return NULL;
    graph->members[graph->member_count] = (member){.tensor = tensor};
    return &graph->members[graph->member_count++];
}

/* A product that reads a reordered view of a tensor also reads the tensor. */
static void product_count(const descriptor *graph, const descriptor *tensor)
{
    const attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);

    member_of(graph, tensor)->products++;
    for (int64_t i = 0; i < operations->count; i++) {
        const descriptor *one = ((descriptor *const *)operations->values)[i];
        if (one->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR &&
            operands_of(one).makes == tensor)
            member_of(graph, operands_of(one).reads[0])->products++;
    }
}

static cudnnStatus_t graph_check(descriptor *graph)
{
    const attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);

    graph->members = ty_alloc(MOST_TENSORS, sizeof *graph->members);
    for (int64_t i = 0; i < operations->count; i++) {
        const descriptor *one = ((descriptor *const *)operations->values)[i];
        const operands o = operands_of(one);
        member *made;

        for (int k = 0; k < 3 && o.reads[k] != NULL; k++) {
            member *read = member_make(graph, o.reads[k]);
            if (read == NULL)
                return broken(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                              "two tensors of one number");
            if (is_virtual(read->tensor) && !read->is_written)
                return broken(CUDNN_STATUS_BAD_PARAM, "a virtual tensor that nothing has made");
            read->is_read = true;
            if (one->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                product_count(graph, read->tensor);
            if (one->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR &&
                sizes_of(o.reads[0])[1] != sizes_of(o.makes)[1])
                read->is_summed = true;
        }
        made = member_make(graph, o.makes);
        if (made == NULL || made->is_written || is_by_value(o.makes))
            return broken(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                          "a tensor that is made twice, or has another's number");
        made->is_written = true;
        made->is_added = one->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR &&
                         !is_virtual(o.makes) && !has_16_bits(o.makes);
        made->is_read = made->is_read || (is_convolution(one) && convolved_of(one).beta != 0);
    }
    for (uint32_t i = 0; i < graph->member_count; i++)
        if (is_virtual(graph->members[i].tensor) && !graph->members[i].is_read)
            return broken(CUDNN_STATUS_BAD_PARAM, "a virtual tensor that nothing reads");
    return CUDNN_STATUS_SUCCESS;
}

/* The convolution that a graph is, or NULL. */
static const descriptor *convolution_in(const descriptor *graph)
{
    const attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const descriptor *first = *(descriptor *const *)operations->values;

    return operations->count == 1 && is_convolution(first) ? first : NULL;
}

/* Supports exactly the backend's requests. */
static bool is_supported_convolution(const descriptor *of)
{
    const convolved c = convolved_of(of);
    bool is_plain = number_of(c.kind, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                    number_of(c.kind, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;

    for (int i = 0; i < SPACE; i++)
        is_plain = is_plain && space_of(c.kind, CUDNN_ATTR_CONVOLUTION_DILATIONS)[i] == 1 &&
                   space_of(c.kind, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i] ==
                       space_of(c.kind, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[i];
    return is_plain && !emulated_fault("convolutions") && lies_alike(c.x, c.w) &&
           lies_alike(c.x, c.y) && lies_alike(c.w, c.y);
}

/* Heads with sizes and locations that the fused kernels read. */
static bool is_supported(const descriptor *graph)
{
    if (convolution_in(graph) != NULL)
        return is_supported_convolution(convolution_in(graph));
    for (uint32_t i = 0; i < graph->member_count; i++) {
        const descriptor *tensor = graph->members[i].tensor;
        const int64_t *sizes = sizes_of(tensor), *strides = strides_of(tensor);
        bool is_together = false;

        if (is_virtual(tensor) || !has_16_bits(tensor))
            continue;
        for (int axis = 0; axis < AXES; axis++) {
            if (strides[axis] % 8 == 0)
                continue;
            is_together =
                strides[axis] == 1 && axis > 1 && sizes[axis] % 8 == 0 && sizes[axis] <= MOST_HEAD;
            if (!is_together)
                return false;
        }
        if (!is_together)
            return false;
    }
    return true;
}

static bool has_sums(const descriptor *graph)
{
    for (uint32_t i = 0; i < graph->member_count; i++)
        if (graph->members[i].is_added)
            return true;
    return false;
}

/* Workspace between kernels: the summands of heads, in 16 bits, and the tensors that two products
 * read. With sums in memory, two more of these, as on Ampere. */
static uint64_t workspace_of(const descriptor *plan)
{
    const descriptor *graph = plan->graph;
    uint64_t bytes = 250 + plan->engine->workspace_bytes;

    for (uint32_t i = 0; i < graph->member_count; i++) {
        const member *m = &graph->members[i];
        if (is_virtual(m->tensor) && (m->is_summed || (m->products > 1 && !has_sums(graph))))
            bytes += elements(m->tensor) * sizeof(uint16_t);
        if (m->is_added)
            bytes += elements(m->tensor) * sizeof(float);
    }
    return bytes;
}

static cudnnStatus_t pack_check(const descriptor *of)
{
    return find(of, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count ==
                   find(of, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count
               ? CUDNN_STATUS_SUCCESS
               : broken(CUDNN_STATUS_BAD_PARAM, "not a pointer for every number");
}

static cudnnStatus_t plan_check(descriptor *of)
{
    const descriptor *from = linked(of, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    of->graph = shared(from->graph);
    of->engine = from->engine;
    return of->engine->is_refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t graph_finalize(cudnnBackendDescriptor_t made)
{
    descriptor *of = made;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    if (of->is_final)
        return broken(CUDNN_STATUS_BAD_PARAM, "a descriptor is finalized twice");
    for (size_t i = 0; i < RULES; i++)
        if (rules[i].kind == of->kind && rules[i].is_needed && find(of, rules[i].name) == NULL)
            return broken(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
    if (of->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        status = tensor_check(of);
    else if (of->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        status = pointwise_check(of);
    else if (of->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        status = matmul_check(of);
    else if (of->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        status = reduction_check(of);
    else if (of->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        status = reshape_check(of);
    else if (of->kind == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
        status = convolution_check(of);
    else if (is_convolution(of))
        status = convolved_check(of);
    else if (of->kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        status = graph_check(of);
    else if (of->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        status = plan_check(of);
    else if (of->kind == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        status = pack_check(of);
    of->is_final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- Queries of descriptors ---- */

#define NOTE(name) (UINT32_C(1) << CUDNN_NUMERICAL_NOTE_##name)

/* The first engine sums in any order. */
static const engine attention_engines[] = {{.notes = NOTE(TENSOR_CORE) | NOTE(NONDETERMINISTIC)},
                                           {.notes = NOTE(TENSOR_CORE)}};
/* Engines for convolutions, best guess first, and the fallbacks. The slower ones take longer than
 * any delay of the host. */
static const engine conv_engines[] = {
    {.notes = NOTE(TENSOR_CORE) | NOTE(NONDETERMINISTIC)},
    {.notes = NOTE(TENSOR_CORE) | NOTE(REDUCED_PRECISION_REDUCTION)},
    {.notes = NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS)},
    {.notes = NOTE(TENSOR_CORE), .is_refused = true},
    {.notes = NOTE(TENSOR_CORE), .workspace_bytes = UINT64_C(300) << 20},
    {.notes = NOTE(TENSOR_CORE), .delay_s = 1000},
    {.notes = NOTE(TENSOR_CORE), .is_of_several = true},
    {.notes = NOTE(TENSOR_CORE), .delay_s = 2000, .is_of_several = true}};
static const engine conv_fallbacks[] = {{.notes = NOTE(NONDETERMINISTIC)},
                                        {.notes = NOTE(STRICT_NAN_PROP), .delay_s = 3000},
                                        {.delay_s = 1500, .is_of_several = true}};

static void engine_give(descriptor *to, const descriptor *graph, const engine *given)
{
    to->graph = shared(graph);
    to->engine = given;
    to->is_final = true;
}

/* Only supported ones. */
static int64_t configurations_give(const descriptor *guesses, int64_t asked, descriptor **out)
{
    const descriptor *graph = linked(guesses, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const bool is_first = number_of(guesses, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
    const bool is_conv = convolution_in(graph) != NULL;
    const engine *list = !is_conv ? attention_engines : is_first ? conv_engines : conv_fallbacks;
    const size_t length = !is_conv   ? is_first ? sizeof attention_engines : 0
                          : is_first ? sizeof conv_engines
                                     : sizeof conv_fallbacks;
    int64_t given = 0;

    for (size_t i = 0; i < length / sizeof *list && given < asked && is_supported(graph); i++)
        if (!list[i].is_of_several || emulated_algorithms())
            engine_give(out[given++], graph, &list[i]);
    return given;
}

static int64_t notes_give(const engine *of, int64_t asked, cudnnBackendNumericalNote_t *out)
{
    int64_t given = 0;

    for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && given < asked; note++)
        if ((of->notes >> note & 1) != 0)
            out[given++] = (cudnnBackendNumericalNote_t)note;
    return given;
}

cudnnStatus_t graph_attribute_get(cudnnBackendDescriptor_t const made,
                                  cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t asked, int64_t *count,
                                  void *values)
{
    const descriptor *of = made;

    (void)type;
    if (!of->is_final)
        return broken(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is asked before that");
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        *count = configurations_give(of, asked, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        engine_give(*(descriptor **)values, of->graph, of->engine);
        *count = 1;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *count = notes_give(of->engine, asked, values);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)values = (int64_t)workspace_of(of);
        *count = 1;
    } else {
        return broken(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that nobody gives");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Playing a graph ---- */

/* A call, by value: host arguments are read at the call. */
typedef struct call {
    const descriptor *graph;
    const engine *engine;
    void *pointers[MOST_TENSORS]; /* of each member; NULL of virtual ones */
    float values[MOST_TENSORS];
    void *workspace;
    uint64_t workspace_bytes;
} call;

/* A member in memory; virtual ones as floats, rounded to their type. */
typedef struct place {
    const descriptor *tensor;
    void *data;
    bool is_float;
} place;

static uint64_t offset_of(const place *p, const int64_t index[AXES])
{
    uint64_t at = 0;

    for (int i = 0; i < AXES; i++)
        if (sizes_of(p->tensor)[i] != 1)
            at += (uint64_t)(index[i] * strides_of(p->tensor)[i]);
    return at;
}

static float get(const place *p, uint64_t at)
{
    return p->is_float ? ((const float *)p->data)[at]
                       : number_get(number_type(type_of(p->tensor)), p->data, at);
}

static void put(const place *p, uint64_t at, float value)
{
    if (p->is_float) {
        if (has_16_bits(p->tensor)) {
            uint16_t bits;
            number_put(number_type(type_of(p->tensor)), &bits, 0, value);
            value = number_get(number_type(type_of(p->tensor)), &bits, 0);
        }
        ((float *)p->data)[at] = value;
    } else {
        number_put(number_type(type_of(p->tensor)), p->data, at, value);
    }
}

static bool next(const descriptor *tensor, int64_t index[AXES])
{
    for (int i = AXES - 1; i >= 0; i--) {
        if (++index[i] < sizes_of(tensor)[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static float combined(int mode, float x, float other, float choice)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + other;
    case CUDNN_POINTWISE_SUB:
        return x - other;
    case CUDNN_POINTWISE_MUL:
        return x * other;
    case CUDNN_POINTWISE_DIV:
        return x / other;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= other ? 1.0f : 0.0f;
    default: /* CUDNN_POINTWISE_BINARY_SELECT */
        return choice != 0 ? x : other;
    }
}

static void pointwise_play(const descriptor *of, const place *const reads[3], const place *y)
{
    const descriptor *kind = linked(of, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = number_of(kind, CUDNN_ATTR_POINTWISE_MODE);
    int64_t index[AXES] = {0};

    do {
        float x[3] = {0};
        for (int i = 0; i < 3 && reads[i] != NULL; i++)
            x[i] = get(reads[i], offset_of(reads[i], index));
        put(y, offset_of(y, index),
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? (float)index[long_of(kind, CUDNN_ATTR_POINTWISE_AXIS)]
                : combined(mode, x[0], x[1], x[2]));
    } while (next(y->tensor, index));
}

static void reduction_play(const descriptor *of, const place *x, const place *y)
{
    const bool is_most = number_of(linked(of, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                                   CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    int64_t index[AXES] = {0};

    do { /* the group of x's for each of y's */
        int64_t within[AXES] = {0}, groups[AXES], at[AXES];
        float sum = is_most ? -INFINITY : 0;
        bool is_more = true;

        for (int i = 0; i < AXES; i++)
            groups[i] = sizes_of(x->tensor)[i] / sizes_of(y->tensor)[i];
        while (is_more) {
            float one;
            for (int i = 0; i < AXES; i++)
                at[i] = index[i] * groups[i] + within[i];
            one = get(x, offset_of(x, at));
            sum = !is_most ? sum + one : one > sum ? one : sum;
            is_more = false;
            for (int i = AXES - 1; i >= 0 && !is_more; i--) {
                is_more = ++within[i] < groups[i];
                if (!is_more)
                    within[i] = 0;
            }
        }
        put(y, offset_of(y, index), sum);
    } while (next(y->tensor, index));
}

/* A sum in any order begins at another element in every call. */
static void matmul_play(const place *a, const place *b, const place *c)
{
    static atomic_uint calls;
    const bool is_ordered = is_virtual(c->tensor) || type_of(c->tensor) != CUDNN_DATA_FLOAT;
    const int64_t share = sizes_of(a->tensor)[1] / sizes_of(b->tensor)[1];
    const int64_t depth = sizes_of(a->tensor)[3];
    const int64_t a_step = strides_of(a->tensor)[3], b_step = strides_of(b->tensor)[2];
    const int64_t begin = is_ordered ? 0 : (int64_t)(atomic_fetch_add(&calls, 1) % (unsigned)depth);
    int64_t index[AXES] = {0};

    do {
        const uint64_t from = offset_of(a, (int64_t[]){index[0], index[1], index[2], 0});
        const uint64_t other = offset_of(b, (int64_t[]){index[0], index[1] / share, 0, index[3]});
        float sum = 0;
        for (int64_t i = 0; i < depth; i++) {
            const int64_t k = (begin + i) % depth;
            sum += get(a, from + (uint64_t)(k * a_step)) * get(b, other + (uint64_t)(k * b_step));
        }
        put(c, offset_of(c, index), sum);
    } while (next(c->tensor, index));
}

static void reshape_play(const place *x, const place *y)
{
    int64_t index[AXES] = {0};

    do {
        const uint64_t at = offset_of(y, index);
        put(y, at, get(x, at));
    } while (next(y->tensor, index));
}

static void *pointer_of(const call *c, const descriptor *tensor)
{
    return c->pointers[member_of(c->graph, tensor) - c->graph->members];
}

/* Elements of a tensor in any layout, as [n][c][h][w]; tensor cores round floats to 11 bits. */
static float *numbers_of(const call *c, const descriptor *tensor)
{
    const place from = {tensor, pointer_of(c, tensor), false};
    const bool rounds = !has_16_bits(tensor) && (c->engine->notes & NOTE(TENSOR_CORE)) != 0;
    float *made = ty_alloc(elements(tensor), sizeof *made);
    int64_t index[AXES] = {0};
    uint64_t i = 0;

    do {
        const float one = get(&from, offset_of(&from, index));
        made[i++] = rounds ? tf32_of(one) : one;
    } while (next(tensor, index));
    return made;
}

static void convolution_play(const call *c, const descriptor *operation)
{
    const convolved v = convolved_of(operation);
    const operands o = operands_of(operation);
    const place to = {o.makes, pointer_of(c, o.makes), false};
    const int64_t *strides = space_of(v.kind, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *padding = space_of(v.kind, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    convolution sizes = {.strides = {strides[0], strides[1]}, .padding = {padding[0], padding[1]}};
    float *x = v.x == o.makes ? ty_alloc(elements(v.x), sizeof *x) : numbers_of(c, v.x);
    float *w = v.w == o.makes ? ty_alloc(elements(v.w), sizeof *w) : numbers_of(c, v.w);
    float *y = v.y == o.makes ? ty_alloc(elements(v.y), sizeof *y) : numbers_of(c, v.y);
    const float *sums = v.x == o.makes ? x : v.w == o.makes ? w : y;
    int64_t index[AXES] = {0};
    uint64_t i = 0;

    memcpy(sizes.x, sizes_of(v.x), sizeof sizes.x);
    memcpy(sizes.w, sizes_of(v.w), sizeof sizes.w);
    memcpy(sizes.y, sizes_of(v.y), sizeof sizes.y);
    convolve(&sizes,
             v.y == o.makes   ? CONVOLVE_Y
             : v.x == o.makes ? CONVOLVE_X
                              : CONVOLVE_W,
             x, w, y);
    do {
        const uint64_t at = offset_of(&to, index);
        put(&to, at, v.alpha * sums[i++] + (v.beta != 0 ? v.beta * get(&to, at) : 0));
    } while (next(o.makes, index));
    ty_free(x);
    ty_free(w);
    ty_free(y);
}

static void graph_play(const void *arguments)
{
    const call *c = arguments;
    const descriptor *graph = c->graph;
    const attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    place places[MOST_TENSORS];
    float values[MOST_TENSORS];

    memset(c->workspace, 0xff, c->workspace_bytes); /* a copy that may be overwritten */
    if (convolution_in(graph) != NULL) {
        convolution_play(c, convolution_in(graph));
        return;
    }
    memcpy(values, c->values, sizeof values);
    for (uint32_t i = 0; i < graph->member_count; i++) {
        const descriptor *tensor = graph->members[i].tensor;
        places[i] = (place){tensor,
                            is_virtual(tensor)    ? ty_alloc(span(tensor), sizeof(float))
                            : is_by_value(tensor) ? &values[i]
                                                  : c->pointers[i],
                            is_virtual(tensor) || is_by_value(tensor)};
    }
    for (int64_t i = 0; i < operations->count; i++) {
        const descriptor *one = ((descriptor *const *)operations->values)[i];
        const operands o = operands_of(one);
        const place *reads[3] = {NULL}, *y = &places[member_of(graph, o.makes) - graph->members];

        for (int k = 0; k < 3 && o.reads[k] != NULL; k++)
            reads[k] = &places[member_of(graph, o.reads[k]) - graph->members];
        if (one->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            pointwise_play(one, reads, y);
        else if (one->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            reduction_play(one, reads[0], y);
        else if (one->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            matmul_play(reads[0], reads[1], y);
        else
            reshape_play(reads[0], y);
    }
    for (uint32_t i = 0; i < graph->member_count; i++)
        if (is_virtual(places[i].tensor))
            ty_free(places[i].data);
}

/* ---- Calls ---- */

/* Pointers of the members, from a pack that has no others. */
static cudnnStatus_t pointers_find(const descriptor *graph, const descriptor *pack, call *out)
{
    const attribute *numbers = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->values;
    int64_t found = 0;

    for (uint32_t i = 0; i < graph->member_count; i++) {
        const descriptor *tensor = graph->members[i].tensor;
        void *at = NULL;

        if (is_virtual(tensor))
            continue;
        for (int64_t k = 0; k < numbers->count; k++)
            if (((const int64_t *)numbers->values)[k] ==
                long_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)) {
                at = pointers[k];
                found++;
            }
        if (at == NULL)
            return broken(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor without a pointer");
        if (is_by_value(tensor)) {
            out->values[i] = *(const float *)at;
            continue;
        }
        if ((uintptr_t)at % (uintptr_t)long_of(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) != 0)
            return broken(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                          "a pointer less aligned than was said");
        out->pointers[i] = at;
    }
    return found == numbers->count
               ? CUDNN_STATUS_SUCCESS
               : broken(CUDNN_STATUS_BAD_PARAM, "a pointer of a tensor that is not in the graph");
}

static uint64_t bytes_moved(const descriptor *graph, bool is_written)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < graph->member_count; i++) {
        const member *m = &graph->members[i];
        if (!is_virtual(m->tensor) && !is_by_value(m->tensor) &&
            (is_written ? m->is_written : m->is_read))
            bytes += elements(m->tensor) * (has_16_bits(m->tensor) ? 2 : 4);
    }
    return bytes;
}

cudnnStatus_t graph_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                            cudnnBackendDescriptor_t pack)
{
    const descriptor *of = plan, *with = pack;
    const descriptor *graph = of->graph;
    call c = {.graph = graph, .engine = of->engine};
    cudnnStatus_t status;

    if (is_out_of_memory())
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    if (!of->is_final || !with->is_final)
        return broken(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan or pack that is not final");
    c.workspace = *(void *const *)find(with, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values;
    c.workspace_bytes = workspace_of(of);
    if (c.workspace == NULL)
        return broken(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no memory to work in");
    status = pointers_find(graph, with, &c);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (emulated_algorithms())
        emulated_delay(*(cudaStream_t *)(void *)handle, of->engine->delay_s);
    if (!emulated_call_counted("cudnnBackendExecute", bytes_moved(graph, false) + c.workspace_bytes,
                               bytes_moved(graph, true) + c.workspace_bytes))
        emulated_call(*(cudaStream_t *)(void *)handle, graph_play, &c, sizeof c);
    return CUDNN_STATUS_SUCCESS;
}
