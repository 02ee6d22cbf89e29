#include "dnn_norms.h"
#include "ty_workloads.h"

#include <stdio.h>

typedef cudnnBackendDescriptor_t descriptor;

/* Operations after a norm, in the same graph. Backward of a relu uses a mask that forward has
 * written, as in cuDNN's patterns. */
typedef struct norm {
    cudnnBackendNormMode_t mode;
    cuda_dnn_layout x, gain, statistics;
    bool has_other, has_relu;
} norm;

typedef struct tally {
    const cuda_dnn_target *target;
    const char *device;
    int planned, *failures;
} tally;

/* ---- Graphs ---- */

static descriptor tensor(cuda_dnn_graph *g, cudnnDataType_t type, const cuda_dnn_layout *at,
                         cuda_dnn_sort sort)
{
    return cuda_dnn_tensor(g, g->made_count, type, at, sort); /* a new identifier for each */
}

static void pointwise(cuda_dnn_graph *g, cudnnPointwiseMode_t mode, descriptor a, descriptor b,
                      descriptor made)
{
    const descriptor how = cuda_dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor operation;

    cuda_dnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    cuda_dnn_set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    cuda_dnn_finalize(g, how);
    operation = cuda_dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    if (b != NULL)
        cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, made);
    cuda_dnn_operation(g, operation);
}

static void forward_make(cuda_dnn_graph *g, const norm *n)
{
    static const cuda_dnn_layout one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16, sums = CUDNN_DATA_FLOAT;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    const bool is_last = !n->has_other && !n->has_relu;
    descriptor made =
        tensor(g, is_last ? type : sums, &n->x, is_last ? CUDA_DNN_REAL : CUDA_DNN_VIRTUAL);
    const descriptor operands[] = {
        tensor(g, type, &n->x, CUDA_DNN_REAL), tensor(g, sums, &n->gain, CUDA_DNN_REAL),
        tensor(g, sums, &n->statistics, CUDA_DNN_REAL), tensor(g, sums, &one, CUDA_DNN_VALUE)};
    const descriptor mean = tensor(g, sums, &n->statistics, CUDA_DNN_REAL);
    const descriptor shift = tensor(g, sums, &n->gain, CUDA_DNN_REAL);
    const descriptor operation = cuda_dnn_make(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);

    cuda_dnn_set(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1,
                 &n->mode);
    cuda_dnn_set(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1,
                 &phase);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, operands[0]);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, operands[1]);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, operands[2]);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, operands[3]);
    if (n->mode != CUDNN_RMS_NORM) {
        cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean);
        cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, shift);
    }
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, made);
    cuda_dnn_operation(g, operation);
    if (n->has_other) {
        const descriptor other = tensor(g, type, &n->x, CUDA_DNN_REAL);
        const descriptor sum = tensor(g, sums, &n->x, CUDA_DNN_VIRTUAL);
        pointwise(g, CUDNN_POINTWISE_ADD, made, other, sum);
        made = sum;
    }
    if (n->has_relu) {
        const descriptor output = tensor(g, type, &n->x, CUDA_DNN_REAL);
        const descriptor mask = tensor(g, CUDNN_DATA_BOOLEAN, &n->x, CUDA_DNN_REAL);
        pointwise(g, CUDNN_POINTWISE_RELU_FWD, made, NULL, output);
        pointwise(g, CUDNN_POINTWISE_CMP_GT, output, tensor(g, sums, &one, CUDA_DNN_VALUE), mask);
    }
}

static void backward_make(cuda_dnn_graph *g, const norm *n)
{
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16, sums = CUDNN_DATA_FLOAT;
    const bool is_rms = n->mode == CUDNN_RMS_NORM;
    descriptor dy = tensor(g, type, &n->x, CUDA_DNN_REAL), operation;

    if (n->has_relu) { /* with another summand, whose gradient is also an output */
        const descriptor mask = tensor(g, CUDNN_DATA_BOOLEAN, &n->x, CUDA_DNN_REAL);
        const descriptor passed =
            tensor(g, type, &n->x, n->has_other ? CUDA_DNN_REAL : CUDA_DNN_VIRTUAL);
        pointwise(g, CUDNN_POINTWISE_MUL, dy, mask, passed);
        dy = passed;
    }
    operation = cuda_dnn_make(g, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    cuda_dnn_set(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1,
                 &n->mode);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
                  tensor(g, type, &n->x, CUDA_DNN_REAL));
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
                  tensor(g, sums, &n->statistics, CUDA_DNN_REAL));
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
                  tensor(g, sums, &n->gain, CUDA_DNN_REAL));
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                  tensor(g, sums, &n->gain, CUDA_DNN_REAL));
    cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC,
                  tensor(g, type, &n->x, CUDA_DNN_REAL));
    if (!is_rms) {
        cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
                      tensor(g, sums, &n->statistics, CUDA_DNN_REAL));
        cuda_dnn_link(g, operation, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC,
                      tensor(g, sums, &n->gain, CUDA_DNN_REAL));
    }
    cuda_dnn_operation(g, operation);
}

/* @return TY_OK and the plan's workspace */
static ty_status plan(const cuda_dnn_target *target, const norm *n, bool is_forward,
                      uint64_t *bytes, ty_error *error)
{
    const cuda_dnn_terms terms = {.workspace_bytes = UINT64_MAX};
    cuda_dnn_graph g = {.target = target};
    cuda_dnn_plan made;
    ty_status status;

    (is_forward ? forward_make : backward_make)(&g, n);
    status = cuda_dnn_plan_make(&g, &terms, &made, error);
    if (status != TY_OK)
        return status;
    *bytes = made.workspace_bytes;
    target->dnn->cudnnBackendDestroyDescriptor(made.descriptor);
    return TY_OK;
}

/* ---- Norms of models ---- */

static void both_plan(tally *t, const char *name, const norm *n)
{
    for (int forward = 1; forward >= 0; forward--) {
        ty_error error = {0};
        uint64_t bytes;

        if (plan(t->target, n, forward == 1, &bytes, &error) == TY_OK) {
            printf("%s %s of %lld x %lld x %lld x %lld%s%s, %s: %llu B\n", t->device, name,
                   (long long)n->x.sizes[0], (long long)n->x.sizes[1], (long long)n->x.sizes[2],
                   (long long)n->x.sizes[3], n->has_other ? ", sum" : "",
                   n->has_relu ? ", relu" : "", forward == 1 ? "forward" : "backward",
                   (unsigned long long)bytes);
            t->planned++;
        } else {
            printf("FAIL %s %s: %s\n", t->device, name, error.message);
            (*t->failures)++;
        }
    }
}

static norm batch_norm_of(uint64_t images, const ty_shape *shape)
{
    const uint64_t *d = shape->dimensions;

    return (norm){.mode = CUDNN_BATCH_NORM,
                  .x = cuda_dnn_channels_last(images, d[0], d[1], d[2]),
                  .gain = cuda_dnn_channels_last(1, d[0], 1, 1),
                  .statistics = cuda_dnn_channels_last(1, d[0], 1, 1)};
}

/* Finds the operations after layer `l`: the only layer that reads it, if it is the next one. */
static void behind_find(const ty_workload *w, uint32_t l, norm *n)
{
    n->has_other = l + 1 < w->layer_count && ty_workload_norm_of_sum(w, l + 1) == l;
    l += n->has_other ? 1 : 0;
    n->has_relu = l + 1 < w->layer_count && w->layers[l + 1].kind == TY_LAYER_RELU &&
                  w->layers[l + 1].inputs[0] == l;
}

static bool is_alike(const norm *a, const norm *b)
{
    return a->x.sizes[1] == b->x.sizes[1] && a->x.sizes[2] == b->x.sizes[2] &&
           a->x.sizes[3] == b->x.sizes[3] && a->has_other == b->has_other &&
           a->has_relu == b->has_relu;
}

static void batch_norms(tally *t, const char *name, uint64_t images, bool only_sums)
{
    enum { MOST_SHAPES = 40 };
    norm seen[MOST_SHAPES];
    uint32_t count = 0;
    ty_workload *w = NULL;
    ty_error error = {0};

    if (ty_workload_open(name, &w, &error) != TY_OK) {
        printf("FAIL %s: %s\n", name, error.message);
        (*t->failures)++;
        return;
    }
    for (uint32_t l = 0; l < w->layer_count && count < MOST_SHAPES; l++) {
        uint32_t s = 0;
        if (w->layers[l].kind != TY_LAYER_BATCH_NORM)
            continue;
        seen[count] = batch_norm_of(images, &w->layers[l].output);
        behind_find(w, l, &seen[count]);
        while (!is_alike(&seen[s], &seen[count]))
            s++;
        if (s < count)
            continue;
        if (seen[count].has_other || !only_sums)
            both_plan(t, "batch norm", &seen[count]);
        count++;
    }
    ty_workload_free(w);
}

/* Statistics of rows; gain and shift of columns. */
static void row_norm(tally *t, const char *name, cudnnBackendNormMode_t mode, uint64_t rows,
                     uint64_t columns)
{
    const norm n = {.mode = mode,
                    .x = cuda_dnn_channels_last(rows, columns, 1, 1),
                    .gain = cuda_dnn_channels_last(1, columns, 1, 1),
                    .statistics = cuda_dnn_channels_last(rows, 1, 1, 1)};

    both_plan(t, name, &n);
}

int dnn_norms_plan(const cuda_dnn_target *target, const char *device, bool only_sums, int *failures)
{
    tally t = {.target = target, .device = device, .failures = failures};
    const ty_shape odd = {3, {36, 14, 14}};
    const norm refused = batch_norm_of(64, &odd);
    ty_error error = {0};
    uint64_t bytes;

    batch_norms(&t, "resnet50", 64, only_sums);
    row_norm(&t, "layer norm", CUDNN_LAYER_NORM, 16384, 768);
    row_norm(&t, "RMS norm", CUDNN_RMS_NORM, 8192, 4096);
    if (plan(target, &refused, true, &bytes, &error) == TY_OK) {
        printf("FAIL %s batch norm of 36 channels was not refused\n", device);
        (*failures)++;
    } else {
        printf("refused batch norm of 36 channels: %s\n", error.message);
    }
    return t.planned;
}
