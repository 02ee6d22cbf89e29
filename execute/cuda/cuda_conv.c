/* Convolutions through cuDNN, channels last: of planes it would make such images itself, in its
 * working memory. Filters are kept as the CPU backend has them and read in cuDNN's order, of which
 * scratch has a copy. Their gradients come out in that order, and in bf16 and half in that type,
 * and are added to the fp32 ones. */
#include "cuda_stage.h"

#include <stdio.h>

/* A pass each: its algorithm's kind of arithmetic is a part of the operation. */
enum { FORWARD, DATA, FILTER, PASSES };

typedef struct conv {
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t operations[PASSES];
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdDataAlgo_t data;
    cudnnConvolutionBwdFilterAlgo_t filter;
    size_t workspace_bytes;         /* the most of the three */
    uint64_t outputs, inputs, taps; /* of filters: [K][C / groups][R S] */
    bool is_permuted;               /* cuDNN's order of them is another */
} conv;

static void conv2d_release(ty_stage_device *stage, cuda_node *node)
{
    conv *c = node->state;

    if (c == NULL)
        return;
    if (c->x != NULL)
        stage->dnn->cudnnDestroyTensorDescriptor(c->x);
    if (c->y != NULL)
        stage->dnn->cudnnDestroyTensorDescriptor(c->y);
    if (c->w != NULL)
        stage->dnn->cudnnDestroyFilterDescriptor(c->w);
    for (int pass = 0; pass < PASSES; pass++)
        if (c->operations[pass] != NULL)
            stage->dnn->cudnnDestroyConvolutionDescriptor(c->operations[pass]);
    ty_free(c);
}

static cudnnMathType_t math_type(ty_precision precision)
{
    return precision == TY_PRECISION_FP32   ? CUDNN_FMA_MATH
           : precision == TY_PRECISION_TF32 ? CUDNN_DEFAULT_MATH
                                            : CUDNN_TENSOR_OP_MATH;
}

static ty_status tensor_make(const ty_stage_device *stage, const cuda_value *value,
                             cudnnTensorDescriptor_t *out, ty_error *error)
{
    const uint64_t *d = value->shape.dimensions;
    ty_status status = TY_OK;

    CUDA_DNN_CHECK(stage->dnn->cudnnCreateTensorDescriptor(out), status, done);
    CUDA_DNN_CHECK(stage->dnn->cudnnSetTensor4dDescriptor(
                       *out, CUDNN_TENSOR_NHWC, cuda_dnn_type(stage->type), (int)cuda_batch(stage),
                       (int)d[0], (int)d[1], (int)d[2]),
                   status, done);
done:
    return status;
}

static ty_status operation_make(const ty_stage_device *stage, const uint64_t *a, conv *c,
                                ty_error *error)
{
    const cuda_dnn *dnn = stage->dnn;
    ty_status status = TY_OK;

    CUDA_DNN_CHECK(dnn->cudnnCreateFilterDescriptor(&c->w), status, done);
    CUDA_DNN_CHECK(dnn->cudnnSetFilter4dDescriptor(
                       c->w, cuda_dnn_type(stage->type), CUDNN_TENSOR_NHWC, (int)a[TY_OUT_CHANNELS],
                       (int)(a[TY_IN_CHANNELS] / a[TY_GROUPS]), (int)a[TY_KERNEL_HEIGHT],
                       (int)a[TY_KERNEL_WIDTH]),
                   status, done);
    for (int pass = 0; pass < PASSES; pass++) {
        cudnnConvolutionDescriptor_t *made = &c->operations[pass];

        CUDA_DNN_CHECK(dnn->cudnnCreateConvolutionDescriptor(made), status, done);
        CUDA_DNN_CHECK(dnn->cudnnSetConvolution2dDescriptor(
                           *made, (int)a[TY_PADDING_HEIGHT], (int)a[TY_PADDING_WIDTH],
                           (int)a[TY_STRIDE], (int)a[TY_STRIDE], 1, 1, CUDNN_CROSS_CORRELATION,
                           CUDNN_DATA_FLOAT),
                       status, done);
        CUDA_DNN_CHECK(dnn->cudnnSetConvolutionGroupCount(*made, (int)a[TY_GROUPS]), status, done);
        CUDA_DNN_CHECK(dnn->cudnnSetConvolutionMathType(*made, math_type(stage->options.precision)),
                       status, done);
    }
done:
    return status;
}

/* ---- Algorithms ---- */

enum { MOST_ALGORITHMS = 16, NO_ALGORITHM = -1 };

/* What an algorithm is chosen for: the pass, shapes, precision and cuDNN's version. */
static void key_make(const ty_stage_device *stage, const cuda_node *node, const char *pass,
                     char *key)
{
    const uint64_t *a = node->layer->attributes;
    char in[TY_SHAPE_TEXT_SIZE], out[TY_SHAPE_TEXT_SIZE];

    ty_shape_text(&stage->values[node->inputs[0]].shape, in);
    ty_shape_text(&stage->values[node->output].shape, out);
    snprintf(key, CUDA_KEY_SIZE,
             "cudnn %zu %s %s of %llu channels last, %s to %s by %llux%llu/%llu+%llux%llu/%llu",
             stage->dnn->cudnnGetVersion(), ty_precision_name(stage->options.precision), pass,
             (unsigned long long)cuda_batch(stage), in, out,
             (unsigned long long)a[TY_KERNEL_HEIGHT], (unsigned long long)a[TY_KERNEL_WIDTH],
             (unsigned long long)a[TY_STRIDE], (unsigned long long)a[TY_PADDING_HEIGHT],
             (unsigned long long)a[TY_PADDING_WIDTH], (unsigned long long)a[TY_GROUPS]);
}

/* The algorithm that was chosen for the key by measuring, if any. */
static int chosen_for(const ty_stage_device *stage, const char *key)
{
    uint32_t value;

    return cuda_choice_find(stage, key, &value) ? (int)value : NO_ALGORITHM;
}

/* An algorithm stands in the list with the arithmetic that it was found with, which need not be the
 * operation's, and what memory it wants is of that. fp32 is fp32 whatever the list says. */
static cudnnMathType_t found_math(const ty_stage_device *stage, cudnnMathType_t listed)
{
    return stage->options.precision == TY_PRECISION_FP32 ? CUDNN_FMA_MATH : listed;
}

/* Takes the first, which is the fastest, of those that give the same bits every time and whose
 * working memory is no more than WORKSPACE_LIMIT; otherwise the first that runs. One that was
 * chosen before goes before all. */
#define WORKSPACE_LIMIT (UINT64_C(256) << 20)
#define ALGORITHM_TAKE(found, count, chosen, into, math)                                           \
    do {                                                                                           \
        int best_ = -1;                                                                            \
        for (int i_ = 0; i_ < (count); i_++) {                                                     \
            bool runs_ = (found)[i_].status == CUDNN_STATUS_SUCCESS &&                             \
                         (found)[i_].memory <= WORKSPACE_LIMIT;                                    \
            bool repeats_ = (found)[i_].determinism == CUDNN_DETERMINISTIC;                        \
            if (runs_ && (best_ < 0 || (int)(found)[i_].algo == (chosen) ||                        \
                          ((int)(found)[best_].algo != (chosen) && repeats_ &&                     \
                           (found)[best_].determinism != CUDNN_DETERMINISTIC)))                    \
                best_ = i_;                                                                        \
        }                                                                                          \
        if (best_ >= 0) {                                                                          \
            (into) = (found)[best_].algo;                                                          \
            (math) = found_math(stage, (found)[best_].mathType);                                   \
        } else {                                                                                   \
            status = ty_fail(error, TY_EUNSUPPORTED, "cuDNN has no algorithm for it");             \
        }                                                                                          \
    } while (0)

/* cuDNN's list for one pass, by its guesses, or by what it measures where nothing is known yet and
 * the stage is there to measure; and the choice. */
#define ALGORITHM_CHOOSE(pass, guess, measure, size, found, into, operation, ...)                  \
    do {                                                                                           \
        char key_[CUDA_KEY_SIZE];                                                                  \
        cudnnMathType_t math_ = CUDNN_DEFAULT_MATH;                                                \
        size_t bytes_ = 0;                                                                         \
        int chosen_, count_ = 0;                                                                   \
        key_make(stage, node, (pass), key_);                                                       \
        chosen_ = chosen_for(stage, key_);                                                         \
        if (chosen_ == NO_ALGORITHM && stage->options.measures_algorithms)                         \
            CUDA_DNN_CHECK(stage->dnn->measure(stage->dnn_handle, __VA_ARGS__, MOST_ALGORITHMS,    \
                                               &count_, (found)),                                  \
                           status, done);                                                          \
        else                                                                                       \
            CUDA_DNN_CHECK(stage->dnn->guess(stage->dnn_handle, __VA_ARGS__, MOST_ALGORITHMS,      \
                                             &count_, (found)),                                    \
                           status, done);                                                          \
        ALGORITHM_TAKE((found), count_, chosen_, (into), math_);                                   \
        if (status != TY_OK)                                                                       \
            goto done;                                                                             \
        CUDA_DNN_CHECK(stage->dnn->cudnnSetConvolutionMathType((operation), math_), status, done); \
        CUDA_DNN_CHECK(stage->dnn->size(stage->dnn_handle, __VA_ARGS__, (into), &bytes_), status,  \
                       done);                                                                      \
        if (bytes_ > c->workspace_bytes)                                                           \
            c->workspace_bytes = bytes_;                                                           \
        if (chosen_ == NO_ALGORITHM && stage->options.measures_algorithms)                         \
            status = cuda_choice_note(stage, key_, (uint32_t)(into), error);                       \
        if (status != TY_OK)                                                                       \
            goto done;                                                                             \
    } while (0)

static ty_status algorithms_find(ty_stage_device *stage, const cuda_node *node, conv *c,
                                 ty_error *error)
{
    cudnnConvolutionFwdAlgoPerf_t forward[MOST_ALGORITHMS];
    cudnnConvolutionBwdDataAlgoPerf_t data[MOST_ALGORITHMS];
    cudnnConvolutionBwdFilterAlgoPerf_t filter[MOST_ALGORITHMS];
    ty_status status = TY_OK;

    ALGORITHM_CHOOSE("forward", cudnnGetConvolutionForwardAlgorithm_v7,
                     cudnnFindConvolutionForwardAlgorithm, cudnnGetConvolutionForwardWorkspaceSize,
                     forward, c->forward, c->operations[FORWARD], c->x, c->w,
                     c->operations[FORWARD], c->y);
    ALGORITHM_CHOOSE("data", cudnnGetConvolutionBackwardDataAlgorithm_v7,
                     cudnnFindConvolutionBackwardDataAlgorithm,
                     cudnnGetConvolutionBackwardDataWorkspaceSize, data, c->data,
                     c->operations[DATA], c->w, c->y, c->operations[DATA], c->x);
    ALGORITHM_CHOOSE("filter", cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                     cudnnFindConvolutionBackwardFilterAlgorithm,
                     cudnnGetConvolutionBackwardFilterWorkspaceSize, filter, c->filter,
                     c->operations[FILTER], c->x, c->y, c->operations[FILTER], c->w);
done:
    return status;
}

/* Scratch: cuDNN's working memory, then filters in its order, or their gradient. */
static uint64_t own_scratch_offset(const conv *c)
{
    return (c->workspace_bytes + 255) / 256 * 256;
}

static void *own_scratch(const ty_stage_device *stage, const conv *c)
{
    return (char *)stage->scratch + own_scratch_offset(c);
}

/* The filters as cuDNN reads them. */
static const void *filters(const ty_stage_device *stage, const cuda_node *node)
{
    const conv *c = node->state;
    const void *weights = cuda_weights(stage, node, 0);

    if (!c->is_permuted)
        return weights;
    cuda_filter_permute(stage->type, c->outputs, c->inputs, c->taps, weights, own_scratch(stage, c),
                        stage->stream);
    return own_scratch(stage, c);
}

static ty_status conv2d_build(ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const cuda_value *in = &stage->values[node->inputs[0]], *out = &stage->values[node->output];
    conv *c = ty_alloc(1, sizeof *c);
    ty_error reason = {0};
    ty_status status;

    if (c == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    node->state = c;
    c->outputs = a[TY_OUT_CHANNELS];
    c->inputs = a[TY_IN_CHANNELS] / a[TY_GROUPS];
    c->taps = a[TY_KERNEL_HEIGHT] * a[TY_KERNEL_WIDTH];
    c->is_permuted = c->inputs > 1 && c->taps > 1;
    TY_CHECK(cuda_dnn_open(stage, &reason), status, done);
    TY_CHECK(tensor_make(stage, in, &c->x, &reason), status, done);
    TY_CHECK(tensor_make(stage, out, &c->y, &reason), status, done);
    TY_CHECK(operation_make(stage, a, c, &reason), status, done);
    TY_CHECK(algorithms_find(stage, node, c, &reason), status, done);
    node->scratch_bytes = own_scratch_offset(c) + c->outputs * c->inputs * c->taps * sizeof(float);
    node->sum_floats = cuda_column_sums_scratch(out->count / c->outputs, c->outputs);
done:
    if (status != TY_OK)
        return ty_fail(error, status, "layer %s: %s", node->layer->name, reason.message);
    return TY_OK;
}

static ty_status conv2d_forward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                ty_error *error)
{
    const float one = 1.0f, zero = 0.0f;
    const conv *c = node->state;
    void *y = cuda_out(stage, node, slot);
    ty_status status = TY_OK;

    CUDA_DNN_CHECK(stage->dnn->cudnnConvolutionForward(
                       stage->dnn_handle, &one, c->x, cuda_in(stage, node, 0, slot), c->w,
                       filters(stage, node), c->operations[FORWARD], c->forward, stage->scratch,
                       c->workspace_bytes, &zero, c->y, y),
                   status, done);
    if (node->layer->attributes[TY_HAS_BIAS] != 0)
        cuda_add_bias(stage->type, cuda_count(stage, node), c->outputs,
                      cuda_parameters(stage, node, 1), y, stage->stream);
done:
    return status;
}

static ty_status weights_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                  bool is_first, ty_error *error)
{
    const float one = 1.0f, zero = 0.0f;
    const conv *c = node->state;
    const bool is_in_place = stage->type == CUDA_TYPE_FLOAT && !c->is_permuted;
    const bool adds = cuda_adds(node, 0, is_first);
    float *dw = cuda_parameter_gradient(stage, node, 0);
    void *own = own_scratch(stage, c);
    void *dy = cuda_out_gradient(stage, node);
    ty_status status = TY_OK;

    if (dw == NULL)
        return TY_OK;
    CUDA_DNN_CHECK(stage->dnn->cudnnConvolutionBackwardFilter(
                       stage->dnn_handle, &one, c->x, cuda_in(stage, node, 0, slot), c->y, dy,
                       c->operations[FILTER], c->filter, stage->scratch, c->workspace_bytes,
                       is_in_place && adds ? &one : &zero, c->w, is_in_place ? (void *)dw : own),
                   status, done);
    if (c->is_permuted)
        cuda_filter_gradient(stage->type, c->outputs, c->inputs, c->taps, own, adds, dw,
                             stage->stream);
    else if (!is_in_place)
        cuda_accumulate_float(stage->type, c->outputs * c->inputs * c->taps, own, adds, dw,
                              stage->stream);
    if (node->layer->attributes[TY_HAS_BIAS] != 0)
        cuda_column_sums(stage->type, cuda_count(stage, node) / c->outputs, c->outputs, c->outputs,
                         dy, cuda_adds(node, 1, is_first), cuda_parameter_gradient(stage, node, 1),
                         stage->sums, stage->stream);
done:
    return status;
}

static ty_status conv2d_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const float one = 1.0f, zero = 0.0f;
    const conv *c = node->state;
    void *dx = cuda_in_gradient(stage, node, 0);
    ty_status status = weights_backward(stage, node, slot, is_first, error);

    if (status != TY_OK || dx == NULL)
        return status;
    CUDA_DNN_CHECK(stage->dnn->cudnnConvolutionBackwardData(
                       stage->dnn_handle, &one, c->w, filters(stage, node), c->y,
                       cuda_out_gradient(stage, node), c->operations[DATA], c->data, stage->scratch,
                       c->workspace_bytes, node->adds[0] ? &one : &zero, c->x, dx),
                   status, done);
done:
    return status;
}

const cuda_kind cuda_conv2d = {.order = CUDA_CHANNELS_LAST,
                               .build = conv2d_build,
                               .forward = conv2d_forward,
                               .backward = conv2d_backward,
                               .release = conv2d_release};
