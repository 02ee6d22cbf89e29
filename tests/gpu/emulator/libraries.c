/*
 * Stand-ins for the parts of cuBLASLt and cuDNN that the backend calls: slow loops that do what the
 * libraries' manuals say. What they accept they check, so that a wrong layout fails here too.
 */
#include "cuda_libraries.h"
#include "emulated_counts.h"
#include "emulated_queue.h"
#include "library_graphs.h"
#include "library_numbers.h"

#include "activation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * ---- cuBLASLt ----
 * Besides its numbers what cublasLt.h asks of arguments: types that a compute type has, leading
 * dimensions of auxiliary matrices, pointers aligned as was promised when the algorithm was asked
 * for, memory to work in. A call that breaks a rule fails and says which on standard error.
 */

static cublasStatus_t rule_broken(const char *rule)
{
    fprintf(stderr, "emulated cuBLASLt: %s\n", rule);
    return CUBLAS_STATUS_INVALID_VALUE;
}

typedef struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t stride;
} layout;

typedef struct operation {
    int32_t transposes_a, transposes_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_stride;
    cublasComputeType_t compute;
    cudaDataType_t scale;
} operation;

typedef struct preference {
    uint64_t workspace_bytes;
    uint32_t alignment[4]; /* of A, B, C and D in bytes */
} preference;

/* What an algorithm was found for, in its data. */
typedef struct promise {
    uint64_t index, workspace_bytes;
    uint32_t alignment[4], bias_alignment, aux_alignment;
} promise;
_Static_assert(sizeof(promise) <= sizeof(cublasLtMatmulAlgo_t),
               "a promise is kept in an algorithm");

static uint32_t alignment_of(const void *address)
{
    uint32_t alignment = 256;

    while ((uintptr_t)address % alignment != 0)
        alignment /= 2;
    return alignment;
}

static cublasStatus_t fake_create(cublasLtHandle_t *out)
{
    *out = ty_alloc(1, 1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle)
{
    ty_free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t fake_version(void)
{
    return 0;
}

static cublasStatus_t fake_operation_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                            cudaDataType_t scale)
{
    *out = ty_alloc(1, sizeof(operation));
    *(operation *)(void *)*out =
        (operation){.epilogue = CUBLASLT_EPILOGUE_DEFAULT, .compute = compute, .scale = scale};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_operation_destroy(cublasLtMatmulDesc_t made)
{
    ty_free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_operation_set(cublasLtMatmulDesc_t made,
                                         cublasLtMatmulDescAttributes_t attribute,
                                         const void *value, size_t size)
{
    operation *own = (operation *)(void *)made;
    void *to = attribute == CUBLASLT_MATMUL_DESC_TRANSA                 ? (void *)&own->transposes_a
               : attribute == CUBLASLT_MATMUL_DESC_TRANSB               ? (void *)&own->transposes_b
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE             ? (void *)&own->epilogue
               : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER         ? (void *)&own->bias
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? (void *)&own->aux
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD      ? (void *)&own->aux_stride
                                                                        : NULL;

    if (to == NULL)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *out, cudaDataType type,
                                         uint64_t rows, uint64_t columns, int64_t stride)
{
    layout *made = ty_alloc(1, sizeof *made);

    *made = (layout){type, rows, columns, stride};
    *out = (cublasLtMatrixLayout_t)(void *)made;
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t made)
{
    ty_free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_create(cublasLtMatmulPreference_t *out)
{
    preference *made = ty_alloc(1, sizeof *made);

    *made = (preference){.alignment = {256, 256, 256, 256}};
    *out = (cublasLtMatmulPreference_t)(void *)made;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_destroy(cublasLtMatmulPreference_t made)
{
    ty_free(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_set(cublasLtMatmulPreference_t made,
                                          cublasLtMatmulPreferenceAttributes_t attribute,
                                          const void *value, size_t size)
{
    preference *own = (preference *)(void *)made;
    const int matrix = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;

    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(uint64_t))
        memcpy(&own->workspace_bytes, value, size);
    else if (matrix >= 0 && matrix < 4 && size == sizeof(uint32_t))
        memcpy(&own->alignment[matrix], value, size);
    else
        return rule_broken("an attribute of a preference that is none, or of another size");
    return CUBLAS_STATUS_SUCCESS;
}

static bool has_aux(const operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || o->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool has_bias(const operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BIAS || o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* Of a product of these matrices, whatever its shape. NULL, or the rule that is broken. */
static const char *types_check(const operation *o, const layout *a, const layout *b,
                               const layout *c, const layout *d)
{
    const bool is_float = a->type == CUDA_R_32F;

    if (o->scale != CUDA_R_32F)
        return "sums in 32 bits are scaled by 32 bits";
    if (a->type != b->type || c->type != d->type)
        return "A and B are of one type, and so are C and D";
    if (o->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !is_float)
        return "TF32 multiplies matrices of 32 bits";
    if (o->compute != CUBLAS_COMPUTE_32F && o->compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return "another compute type than the backend asks for";
    if (d->type != CUDA_R_32F && d->type != a->type)
        return "a product is of its operands' type or of 32 bits";
    if (has_bias(o) && o->bias == NULL)
        return "an epilogue with a bias and no pointer to it";
    if (has_aux(o) &&
        (o->aux == NULL || o->aux_stride % 8 != 0 || o->aux_stride < (int64_t)d->rows))
        return "the leading dimension of what gelu read is divisible by 8 and at least D's rows";
    return NULL;
}

/* What each algorithm takes longer than the fastest, more than any machine is held up; the last one
 * fails. */
enum { ALGORITHMS = 4 };
static const double delays_s[ALGORITHMS] = {1000, 0, 2000, 0};

/* Whether tensor cores would read the matrix 16 bytes at a time. */
static bool has_fast_rows(const layout *of)
{
    return of->type == CUDA_R_32F || of->stride % 8 == 0;
}

/* Shapes that fit, or nothing is found. */
static cublasStatus_t fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t made,
                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                     cublasLtMatmulPreference_t wanted, int asked,
                                     cublasLtMatmulHeuristicResult_t *results, int *found)
{
    const operation *o = (const operation *)(void *)made;
    const layout *x = (layout *)(void *)a, *y = (layout *)(void *)b, *z = (layout *)(void *)d;
    const preference *preferred = (const preference *)(void *)wanted;
    const char *rule = types_check(o, x, y, (layout *)(void *)c, z);
    uint64_t k = o->transposes_a ? x->rows : x->columns;
    const int offered = emulated_algorithms() && asked >= ALGORITHMS ? ALGORITHMS : 1;
    promise promised = {.workspace_bytes = preferred->workspace_bytes / 2,
                        .bias_alignment = alignment_of(o->bias),
                        .aux_alignment = alignment_of(o->aux)};

    (void)handle;
    *found = 0;
    if (rule != NULL)
        return rule_broken(rule);
    memcpy(promised.alignment, preferred->alignment, sizeof promised.alignment);
    memset(results, 0, (size_t)offered * sizeof *results);
    for (int i = 0; i < offered; i++) {
        promised.index = (uint64_t)i;
        memcpy(&results[i].algo, &promised, sizeof promised);
        results[i].workspaceSize = promised.workspace_bytes;
    }
    *found = (!emulated_fault("unaligned") ||
              (has_fast_rows(x) && has_fast_rows(y) && has_fast_rows(z))) &&
                     (o->transposes_a ? x->columns : x->rows) == z->rows &&
                     (o->transposes_b ? y->rows : y->columns) == z->columns &&
                     (o->transposes_b ? y->columns : y->rows) == k
                 ? offered
                 : 0;
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float fake_epilogue(const operation *o, cudaDataType_t type, uint64_t row, uint64_t column,
                           float sum)
{
    uint64_t aux = column * (uint64_t)o->aux_stride + row;

    if (has_bias(o))
        sum += number_get(type, o->bias, row);
    if (o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
        o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX) {
        number_put(type, o->aux, aux, sum);
        return gelu_of(sum);
    }
    return o->epilogue == CUBLASLT_EPILOGUE_DGELU ? sum * gelu_slope(number_get(type, o->aux, aux))
                                                  : sum;
}

/* A matrix as [rows][depth]; `is_by_depth` says that it lies so, column-major, already. */
static float *floats_of(const layout *of, const void *data, bool is_by_depth, uint64_t rows,
                        uint64_t depth)
{
    uint64_t stride = (uint64_t)of->stride;
    float *made = ty_alloc(rows * depth, sizeof *made);

    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t k = 0; k < depth; k++)
            made[r * depth + k] =
                number_get(of->type, data, is_by_depth ? r * stride + k : k * stride + r);
    return made;
}

/* Eight sums side by side, for the vectoriser. */
static float dot(uint64_t depth, const float *a, const float *b)
{
    float sums[8] = {0}, sum = 0;
    uint64_t k = 0;

    for (; k + 8 <= depth; k += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += a[k + (uint64_t)lane] * b[k + (uint64_t)lane];
    for (; k < depth; k++)
        sum += a[k] * b[k];
    for (int lane = 0; lane < 8; lane++)
        sum += sums[lane];
    return sum;
}

/* A product that was asked for: what its descriptors said then. */
typedef struct matmul {
    operation operation;
    layout a_layout, b_layout, d_layout;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
} matmul;

static void matmul_run(const void *arguments)
{
    const matmul *call = arguments;
    const operation *o = &call->operation;
    const layout *x = &call->a_layout, *y = &call->b_layout, *z = &call->d_layout;
    uint64_t depth = o->transposes_a ? x->rows : x->columns;
    float *left = floats_of(x, call->a, o->transposes_a, z->rows, depth);
    float *right = floats_of(y, call->b, !o->transposes_b, z->columns, depth);

    for (uint64_t n = 0; n < z->columns; n++)
        for (uint64_t m = 0; m < z->rows; m++) {
            uint64_t at = n * (uint64_t)z->stride + m;
            float sum = call->alpha * dot(depth, left + m * depth, right + n * depth);
            if (call->beta != 0)
                sum += call->beta * number_get(z->type, call->c, at);
            number_put(z->type, call->d, at, fake_epilogue(o, z->type, m, n, sum));
        }
    ty_free(left);
    ty_free(right);
}

/* Of pointers and memory, against what the algorithm was found for. */
static const char *pointers_check(const matmul *call, const promise *promised,
                                  const void *workspace, size_t workspace_bytes)
{
    const void *const matrices[] = {call->a, call->b, call->c, call->d};

    for (int m = 0; m < 4; m++)
        if (matrices[m] == NULL || alignment_of(matrices[m]) < promised->alignment[m])
            return "a matrix is not aligned as was said when the algorithm was asked for";
    if (has_bias(&call->operation) && alignment_of(call->operation.bias) < promised->bias_alignment)
        return "a bias is less aligned than the one the algorithm was found for";
    if (has_aux(&call->operation) && alignment_of(call->operation.aux) < promised->aux_alignment)
        return "what gelu read is less aligned than what the algorithm was found for";
    if (workspace_bytes < promised->workspace_bytes || workspace == NULL ||
        (uintptr_t)workspace % 16 != 0)
        return "the workspace is smaller than the algorithm asks for, or not aligned to 16 bytes";
    return NULL;
}

static uint64_t layout_bytes(const layout *of)
{
    return of->rows * of->columns * (of->type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t));
}

/* A gelu keeps, or backward reads, what goes into it; that has as many elements as the result. */
static uint64_t matmul_reads(const matmul *call)
{
    const operation *o = &call->operation;

    return layout_bytes(&call->a_layout) + layout_bytes(&call->b_layout) +
           (call->beta != 0 ? layout_bytes(&call->d_layout) : 0) +
           (o->epilogue == CUBLASLT_EPILOGUE_DGELU ? layout_bytes(&call->d_layout) : 0) +
           (has_bias(o) ? layout_bytes(&call->d_layout) / call->d_layout.columns : 0);
}

static uint64_t matmul_writes(const matmul *call)
{
    const operation *o = &call->operation;
    const bool keeps = has_aux(o) && o->epilogue != CUBLASLT_EPILOGUE_DGELU;

    return layout_bytes(&call->d_layout) * (keeps ? 2 : 1);
}

static cublasStatus_t fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t made,
                                  const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                                  const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                  cublasLtMatrixLayout_t d_layout,
                                  const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                  size_t workspace_bytes, cudaStream_t stream)
{
    const matmul call = {.operation = *(const operation *)(void *)made,
                         .a_layout = *(const layout *)(void *)a_layout,
                         .b_layout = *(const layout *)(void *)b_layout,
                         .d_layout = *(const layout *)(void *)d_layout,
                         .alpha = *(const float *)alpha,
                         .beta = *(const float *)beta,
                         .a = a,
                         .b = b,
                         .c = c,
                         .d = d};

    promise promised;
    const char *rule;

    (void)handle;
    memcpy(&promised, algorithm, sizeof promised);
    rule = types_check(&call.operation, &call.a_layout, &call.b_layout, (layout *)(void *)c_layout,
                       &call.d_layout);
    if (rule == NULL)
        rule = pointers_check(&call, &promised, workspace, workspace_bytes);
    if (rule != NULL)
        return rule_broken(rule);
    if (is_out_of_memory())
        return CUBLAS_STATUS_ALLOC_FAILED;
    if (promised.index == ALGORITHMS - 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (emulated_algorithms())
        emulated_delay(stream, delays_s[promised.index]);
    if (!emulated_call_counted("cublasLtMatmul", matmul_reads(&call), matmul_writes(&call)))
        emulated_call(stream, matmul_run, &call, sizeof call);
    return CUBLAS_STATUS_SUCCESS;
}

ty_status cuda_blas_load(const cuda_blas **out, ty_error *error)
{
    static const cuda_blas fake = {
        .cublasLtCreate = fake_create,
        .cublasLtDestroy = fake_destroy,
        .cublasLtGetVersion = fake_version,
        .cublasLtMatmul = fake_matmul,
        .cublasLtMatmulAlgoGetHeuristic = fake_heuristic,
        .cublasLtMatmulDescCreate = fake_operation_create,
        .cublasLtMatmulDescDestroy = fake_operation_destroy,
        .cublasLtMatmulDescSetAttribute = fake_operation_set,
        .cublasLtMatmulPreferenceCreate = fake_preference_create,
        .cublasLtMatmulPreferenceDestroy = fake_preference_destroy,
        .cublasLtMatmulPreferenceSetAttribute = fake_preference_set,
        .cublasLtMatrixLayoutCreate = fake_layout_create,
        .cublasLtMatrixLayoutDestroy = fake_layout_destroy,
    };

    (void)error;
    *out = &fake;
    return TY_OK;
}

/* ---- cuDNN ---- */

/* Channels last. */
typedef struct tensor {
    cudaDataType_t type;
    int n, c, h, w;
} tensor;

typedef struct convolution {
    int padding_h, padding_w, stride_h, stride_w, groups;
    cudnnMathType_t math;
} convolution;

/* Of the headers: what attention is taken from is newer than some. */
static size_t fake_dnn_version(void)
{
    return CUDNN_VERSION;
}

static cudnnStatus_t fake_dnn_create(cudnnHandle_t *out)
{
    *out = ty_alloc(1, sizeof(cudaStream_t));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_dnn_destroy(cudnnHandle_t handle)
{
    ty_free(handle);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_dnn_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    *(cudaStream_t *)(void *)handle = stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_tensor_create(cudnnTensorDescriptor_t *out)
{
    *out = ty_alloc(1, sizeof(tensor));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_tensor_destroy(cudnnTensorDescriptor_t made)
{
    ty_free(made);
    return CUDNN_STATUS_SUCCESS;
}

/* Of images and of filters alike. Planes it knows as well, but makes channels last of them, which
 * nobody here should have it do. */
static cudnnStatus_t format_status(cudnnTensorFormat_t format)
{
    return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t fake_tensor_set(cudnnTensorDescriptor_t made, cudnnTensorFormat_t format,
                                     cudnnDataType_t type, int n, int c, int h, int w)
{
    *(tensor *)(void *)made = (tensor){number_type(type), n, c, h, w};
    return format_status(format);
}

static cudnnStatus_t fake_filter_create(cudnnFilterDescriptor_t *out)
{
    *out = ty_alloc(1, sizeof(tensor));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_filter_destroy(cudnnFilterDescriptor_t made)
{
    ty_free(made);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_filter_set(cudnnFilterDescriptor_t made, cudnnDataType_t type,
                                     cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    *(tensor *)(void *)made = (tensor){number_type(type), k, c, h, w};
    return format_status(format);
}

static cudnnStatus_t fake_convolution_create(cudnnConvolutionDescriptor_t *out)
{
    *out = ty_alloc(1, sizeof(convolution));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_convolution_destroy(cudnnConvolutionDescriptor_t made)
{
    ty_free(made);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_convolution_set(cudnnConvolutionDescriptor_t made, int padding_h,
                                          int padding_w, int stride_h, int stride_w, int dilation_h,
                                          int dilation_w, cudnnConvolutionMode_t mode,
                                          cudnnDataType_t compute)
{
    *(convolution *)(void *)made =
        (convolution){padding_h, padding_w, stride_h, stride_w, 1, CUDNN_DEFAULT_MATH};
    return dilation_h == 1 && dilation_w == 1 && mode == CUDNN_CROSS_CORRELATION &&
                   compute == CUDNN_DATA_FLOAT
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t fake_groups_set(cudnnConvolutionDescriptor_t made, int groups)
{
    ((convolution *)(void *)made)->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_math_set(cudnnConvolutionDescriptor_t made, cudnnMathType_t math)
{
    ((convolution *)(void *)made)->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* As the library may: an algorithm is listed with other arithmetic than was asked for, and wants
 * more memory with any but that. */
static cudnnMathType_t listed_math(const cudnnConvolutionDescriptor_t of)
{
    const cudnnMathType_t asked = ((const convolution *)(const void *)of)->math;

    return asked == CUDNN_TENSOR_OP_MATH ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

enum { LISTED_BYTES = 1000, OTHER_BYTES = 5000 };

static size_t workspace_of(const convolution *of)
{
    return of->math == CUDNN_TENSOR_OP_MATH ? OTHER_BYTES : LISTED_BYTES;
}

#define FAKE_SIZE(name, algorithm_type, first, second, third)                                      \
    static cudnnStatus_t name(cudnnHandle_t handle, const first a, const second b,                 \
                              const cudnnConvolutionDescriptor_t c, const third d,                 \
                              algorithm_type algorithm, size_t *bytes)                             \
    {                                                                                              \
        (void)handle, (void)a, (void)b, (void)d, (void)algorithm;                                  \
        *bytes = workspace_of((const convolution *)(const void *)c);                               \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }
FAKE_SIZE(fake_forward_size, cudnnConvolutionFwdAlgo_t, cudnnTensorDescriptor_t,
          cudnnFilterDescriptor_t, cudnnTensorDescriptor_t)
FAKE_SIZE(fake_data_size, cudnnConvolutionBwdDataAlgo_t, cudnnFilterDescriptor_t,
          cudnnTensorDescriptor_t, cudnnTensorDescriptor_t)
FAKE_SIZE(fake_filter_size, cudnnConvolutionBwdFilterAlgo_t, cudnnTensorDescriptor_t,
          cudnnTensorDescriptor_t, cudnnFilterDescriptor_t)

/* By guess in the order of their numbers, by measuring the other way round. */
#define FAKE_ALGORITHMS(result, found, is_measured, of)                                            \
    do {                                                                                           \
        *(found) = emulated_algorithms() ? 2 : 1;                                                  \
        memset((result), 0, (size_t) * (found) * sizeof *(result));                                \
        for (int i_ = 0; i_ < *(found); i_++) {                                                    \
            (result)[i_].algo = (is_measured) ? *(found)-1 - i_ : i_;                              \
            (result)[i_].status = CUDNN_STATUS_SUCCESS;                                            \
            (result)[i_].determinism = CUDNN_DETERMINISTIC;                                        \
            (result)[i_].memory = LISTED_BYTES;                                                    \
            (result)[i_].mathType = listed_math(of);                                               \
        }                                                                                          \
    } while (0)

static cudnnStatus_t fake_forward_find(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                       const cudnnFilterDescriptor_t w,
                                       const cudnnConvolutionDescriptor_t c,
                                       const cudnnTensorDescriptor_t y, const int asked, int *found,
                                       cudnnConvolutionFwdAlgoPerf_t *results)
{
    (void)handle, (void)x, (void)w, (void)y, (void)asked;
    FAKE_ALGORITHMS(results, found, false, c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_forward_measure(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                          const cudnnFilterDescriptor_t w,
                                          const cudnnConvolutionDescriptor_t c,
                                          const cudnnTensorDescriptor_t y, const int asked,
                                          int *found, cudnnConvolutionFwdAlgoPerf_t *results)
{
    (void)handle, (void)x, (void)w, (void)y, (void)asked;
    FAKE_ALGORITHMS(results, found, true, c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_data_find(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                    const cudnnTensorDescriptor_t dy,
                                    const cudnnConvolutionDescriptor_t c,
                                    const cudnnTensorDescriptor_t dx, const int asked, int *found,
                                    cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    (void)handle, (void)w, (void)dy, (void)dx, (void)asked;
    FAKE_ALGORITHMS(results, found, false, c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_data_measure(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                       const cudnnTensorDescriptor_t dy,
                                       const cudnnConvolutionDescriptor_t c,
                                       const cudnnTensorDescriptor_t dx, const int asked,
                                       int *found, cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    (void)handle, (void)w, (void)dy, (void)dx, (void)asked;
    FAKE_ALGORITHMS(results, found, true, c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_filter_find(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                      const cudnnTensorDescriptor_t dy,
                                      const cudnnConvolutionDescriptor_t c,
                                      const cudnnFilterDescriptor_t dw, const int asked, int *found,
                                      cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    (void)handle, (void)x, (void)dy, (void)dw, (void)asked;
    FAKE_ALGORITHMS(results, found, false, c);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_filter_measure(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                         const cudnnTensorDescriptor_t dy,
                                         const cudnnConvolutionDescriptor_t c,
                                         const cudnnFilterDescriptor_t dw, const int asked,
                                         int *found, cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    (void)handle, (void)x, (void)dy, (void)dw, (void)asked;
    FAKE_ALGORITHMS(results, found, true, c);
    return CUDNN_STATUS_SUCCESS;
}

/* Where an element lies. */
static uint64_t place_of(const tensor *t, int n, int c, int h, int w)
{
    return (((uint64_t)n * (uint64_t)t->h + (uint64_t)h) * (uint64_t)t->w + (uint64_t)w) *
               (uint64_t)t->c +
           (uint64_t)c;
}

/* Where an output, a weight and an input meet. */
typedef struct meeting {
    uint64_t x, w, y;
} meeting;

/* Calls `meet` for every product that a convolution sums. */
static void convolve(const tensor *x, const tensor *w, const convolution *c, const tensor *y,
                     void (*meet)(void *context, meeting at), void *context)
{
    int outs = w->n / c->groups;

    for (int n = 0; n < y->n; n++)
        for (int k = 0; k < y->c; k++)
            for (int p = 0; p < y->h; p++)
                for (int q = 0; q < y->w; q++)
                    for (int ch = 0; ch < w->c; ch++)
                        for (int r = 0; r < w->h; r++)
                            for (int s = 0; s < w->w; s++) {
                                int row = p * c->stride_h + r - c->padding_h;
                                int column = q * c->stride_w + s - c->padding_w;
                                int from = k / outs * w->c + ch;
                                if (row < 0 || row >= x->h || column < 0 || column >= x->w)
                                    continue;
                                meet(context,
                                     (meeting){place_of(x, n, from, row, column),
                                               place_of(w, k, ch, r, s), place_of(y, n, k, p, q)});
                            }
}

/* A convolution that was asked for: what its descriptors said then. */
typedef struct conv_call {
    tensor x, w, y;
    convolution operation;
    float alpha, beta;
    const void *x_data, *w_data, *y_data; /* what it reads; y: its gradient, backward */
    void *to;                             /* what it makes: the third */
    void (*meet)(void *context, meeting at);
    void *workspace;
    size_t workspace_bytes;
} conv_call;

typedef struct passes {
    cudaDataType_t type;
    const void *x, *w, *y;
    float *sums;
} passes;

static void meet_forward(void *context, meeting at)
{
    const passes *p = context;
    p->sums[at.y] += number_get(p->type, p->x, at.x) * number_get(p->type, p->w, at.w);
}

static void meet_data(void *context, meeting at)
{
    const passes *p = context;
    p->sums[at.x] += number_get(p->type, p->y, at.y) * number_get(p->type, p->w, at.w);
}

static void meet_filter(void *context, meeting at)
{
    const passes *p = context;
    p->sums[at.w] += number_get(p->type, p->y, at.y) * number_get(p->type, p->x, at.x);
}

static void finish(const tensor *of, const conv_call *call, const float *sums)
{
    uint64_t count = (uint64_t)of->n * (uint64_t)of->c * (uint64_t)of->h * (uint64_t)of->w;

    for (uint64_t i = 0; i < count; i++)
        number_put(of->type, call->to, i,
                   call->alpha * sums[i] +
                       (call->beta != 0 ? call->beta * number_get(of->type, call->to, i) : 0));
}

static void conv_run(const void *arguments)
{
    const conv_call *call = arguments;
    const tensor *of = call->meet == meet_forward ? &call->y
                       : call->meet == meet_data  ? &call->x
                                                  : &call->w;
    passes p = {
        of->type, call->x_data, call->w_data, call->y_data,
        ty_alloc((size_t)of->n * (size_t)of->c * (size_t)of->h * (size_t)of->w, sizeof(float))};

    memset(call->workspace, 0xff, call->workspace_bytes); /* it is ours to spoil */
    convolve(&call->x, &call->w, &call->operation, &call->y, call->meet, &p);
    finish(of, call, p.sums);
    ty_free(p.sums);
}

/* Tensor cores read 16 bytes at a time. */
static bool is_aligned(const tensor *of, const void *data)
{
    return of->type == CUDA_R_32F || (uintptr_t)data % 16 == 0;
}

static uint64_t tensor_bytes(const tensor *of)
{
    return (uint64_t)of->n * (uint64_t)of->c * (uint64_t)of->h * (uint64_t)of->w *
           (of->type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t));
}

static cudnnStatus_t conv_queue(cudnnHandle_t handle, const char *name, const conv_call *call)
{
    const tensor *of = call->meet == meet_forward ? &call->y
                       : call->meet == meet_data  ? &call->x
                                                  : &call->w;
    const uint64_t written = tensor_bytes(of);
    const uint64_t read = tensor_bytes(&call->x) + tensor_bytes(&call->w) + tensor_bytes(&call->y) -
                          (call->beta != 0 ? 0 : written);

    if (is_out_of_memory())
        return CUDNN_STATUS_ALLOC_FAILED;
    if (call->workspace_bytes < workspace_of(&call->operation) ||
        !is_aligned(&call->x, call->x_data) || !is_aligned(&call->w, call->w_data) ||
        !is_aligned(&call->y, call->y_data) || !is_aligned(&call->w, call->to))
        return CUDNN_STATUS_BAD_PARAM;
    if (!emulated_call_counted(name, read, written))
        emulated_call(*(cudaStream_t *)(void *)handle, conv_run, call, sizeof *call);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_forward(cudnnHandle_t handle, const void *alpha,
                                  const cudnnTensorDescriptor_t x, const void *x_data,
                                  const cudnnFilterDescriptor_t w, const void *w_data,
                                  const cudnnConvolutionDescriptor_t c,
                                  cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                  size_t workspace_bytes, const void *beta,
                                  const cudnnTensorDescriptor_t y, void *y_data)
{
    (void)algorithm;
    return conv_queue(handle, "cudnnConvolutionForward",
                      &(conv_call){.x = *(tensor *)(void *)x,
                                   .w = *(tensor *)(void *)w,
                                   .y = *(tensor *)(void *)y,
                                   .operation = *(convolution *)(void *)c,
                                   .alpha = *(const float *)alpha,
                                   .beta = *(const float *)beta,
                                   .x_data = x_data,
                                   .w_data = w_data,
                                   .to = y_data,
                                   .meet = meet_forward,
                                   .workspace = workspace,
                                   .workspace_bytes = workspace_bytes});
}

static cudnnStatus_t fake_data(cudnnHandle_t handle, const void *alpha,
                               const cudnnFilterDescriptor_t w, const void *w_data,
                               const cudnnTensorDescriptor_t dy, const void *dy_data,
                               const cudnnConvolutionDescriptor_t c,
                               cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                               size_t workspace_bytes, const void *beta,
                               const cudnnTensorDescriptor_t dx, void *dx_data)
{
    (void)algorithm;
    return conv_queue(handle, "cudnnConvolutionBackwardData",
                      &(conv_call){.x = *(tensor *)(void *)dx,
                                   .w = *(tensor *)(void *)w,
                                   .y = *(tensor *)(void *)dy,
                                   .operation = *(convolution *)(void *)c,
                                   .alpha = *(const float *)alpha,
                                   .beta = *(const float *)beta,
                                   .w_data = w_data,
                                   .y_data = dy_data,
                                   .to = dx_data,
                                   .meet = meet_data,
                                   .workspace = workspace,
                                   .workspace_bytes = workspace_bytes});
}

static cudnnStatus_t fake_filter(cudnnHandle_t handle, const void *alpha,
                                 const cudnnTensorDescriptor_t x, const void *x_data,
                                 const cudnnTensorDescriptor_t dy, const void *dy_data,
                                 const cudnnConvolutionDescriptor_t c,
                                 cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                 size_t workspace_bytes, const void *beta,
                                 const cudnnFilterDescriptor_t dw, void *dw_data)
{
    (void)algorithm;
    return conv_queue(handle, "cudnnConvolutionBackwardFilter",
                      &(conv_call){.x = *(tensor *)(void *)x,
                                   .w = *(tensor *)(void *)dw,
                                   .y = *(tensor *)(void *)dy,
                                   .operation = *(convolution *)(void *)c,
                                   .alpha = *(const float *)alpha,
                                   .beta = *(const float *)beta,
                                   .x_data = x_data,
                                   .y_data = dy_data,
                                   .to = dw_data,
                                   .meet = meet_filter,
                                   .workspace = workspace,
                                   .workspace_bytes = workspace_bytes});
}

ty_status cuda_dnn_load(const cuda_dnn **out, ty_error *error)
{
    static const cuda_dnn fake = {
        .cudnnGetVersion = fake_dnn_version,
        .cudnnCreate = fake_dnn_create,
        .cudnnDestroy = fake_dnn_destroy,
        .cudnnSetStream = fake_dnn_stream,
        .cudnnCreateTensorDescriptor = fake_tensor_create,
        .cudnnDestroyTensorDescriptor = fake_tensor_destroy,
        .cudnnSetTensor4dDescriptor = fake_tensor_set,
        .cudnnCreateFilterDescriptor = fake_filter_create,
        .cudnnDestroyFilterDescriptor = fake_filter_destroy,
        .cudnnSetFilter4dDescriptor = fake_filter_set,
        .cudnnCreateConvolutionDescriptor = fake_convolution_create,
        .cudnnDestroyConvolutionDescriptor = fake_convolution_destroy,
        .cudnnSetConvolution2dDescriptor = fake_convolution_set,
        .cudnnSetConvolutionGroupCount = fake_groups_set,
        .cudnnSetConvolutionMathType = fake_math_set,
        .cudnnGetConvolutionForwardAlgorithm_v7 = fake_forward_find,
        .cudnnGetConvolutionBackwardDataAlgorithm_v7 = fake_data_find,
        .cudnnGetConvolutionBackwardFilterAlgorithm_v7 = fake_filter_find,
        .cudnnGetConvolutionForwardWorkspaceSize = fake_forward_size,
        .cudnnGetConvolutionBackwardDataWorkspaceSize = fake_data_size,
        .cudnnGetConvolutionBackwardFilterWorkspaceSize = fake_filter_size,
        .cudnnFindConvolutionForwardAlgorithm = fake_forward_measure,
        .cudnnFindConvolutionBackwardDataAlgorithm = fake_data_measure,
        .cudnnFindConvolutionBackwardFilterAlgorithm = fake_filter_measure,
        .cudnnConvolutionForward = fake_forward,
        .cudnnConvolutionBackwardData = fake_data,
        .cudnnConvolutionBackwardFilter = fake_filter,
        .cudnnBackendCreateDescriptor = graph_descriptor_create,
        .cudnnBackendDestroyDescriptor = graph_descriptor_destroy,
        .cudnnBackendSetAttribute = graph_attribute_set,
        .cudnnBackendGetAttribute = graph_attribute_get,
        .cudnnBackendFinalize = graph_finalize,
        .cudnnBackendExecute = graph_execute,
    };

    (void)error;
    *out = &fake;
    return TY_OK;
}

/* Between devices that work beside the host; see nccl.cc. */
ty_status cuda_nccl_load(const cuda_nccl **out, ty_error *error)
{
#define NCCL_FUNCTION(function) .function = function,
    static const cuda_nccl fake = {CUDA_NCCL_FUNCTIONS(NCCL_FUNCTION)};

    if (getenv("TRAINYARD_EMULATED_DEVICES") == NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "one emulated device has no NCCL");
    *out = &fake;
    return TY_OK;
}
