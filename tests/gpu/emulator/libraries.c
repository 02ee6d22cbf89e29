/*
 * Stand-ins for the parts of cuBLASLt and cuDNN that the backend calls: slow loops that follow the
 * libraries' manuals. They check their arguments, so that a wrong layout fails here too.
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
 * Checks the requirements of cublasLt.h on arguments, in addition to computing: the types of each
 * compute type, leading dimensions of auxiliary matrices, pointers aligned as promised in the query
 * for the algorithm, workspace. A call that breaks a rule fails and prints the rule on standard
 * error.
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

/* Alignment and workspace that an algorithm was chosen for, in its data. */
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

/* The sums of B over k are written, of D's type and one for each of its columns. */
static bool sums_columns(const operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool has_bias(const operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BIAS ||
           o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || sums_columns(o);
}

/* Checks a product of these matrices for any shape. Returns NULL, or the rule that is broken. */
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

/* Extra time of each algorithm over the fastest, more than any delay of the host; the last one
 * fails. */
enum { ALGORITHMS = 4 };
static const double delays_s[ALGORITHMS] = {1000, 0, 2000, 0};

/* Whether tensor cores would read the matrix 16 bytes at a time, to its end. */
static bool has_fast_rows(const layout *of)
{
    return of->type == CUDA_R_32F || (of->stride % 8 == 0 && of->rows % 8 == 0);
}

/* Matching shapes, or nothing is found. */
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
    const bool is_asked = emulated_algorithms() || emulated_fault("refused");
    const int offered = is_asked && asked >= ALGORITHMS ? ALGORITHMS : 1;
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
    *found = !(sums_columns(o) && emulated_fault("sums")) &&
                     (!emulated_fault("unaligned") ||
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

    if (has_bias(o) && !sums_columns(o))
        sum += number_get(type, o->bias, row);
    if (o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
        o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX) {
        number_put(type, o->aux, aux, sum);
        return gelu_of(sum);
    }
    return o->epilogue == CUBLASLT_EPILOGUE_DGELU ? sum * gelu_slope(number_get(type, o->aux, aux))
                                                  : sum;
}

/* A matrix as [rows][depth]; `is_by_depth`: it is already stored that way, column-major. */
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

/* Eight independent sums, for the vectorizer. */
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

/* A requested product: a copy of its descriptors. */
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
    for (uint64_t n = 0; n < z->columns && sums_columns(o); n++) {
        float sum = 0;

        for (uint64_t k = 0; k < depth; k++)
            sum += right[n * depth + k];
        number_put(z->type, (void *)(uintptr_t)o->bias, n, sum);
    }
    ty_free(left);
    ty_free(right);
}

/* Checks pointers and workspace against those that the algorithm was found for. */
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

/* A gelu stores its input, or backward reads it; it has as many elements as the result. */
static uint64_t matmul_reads(const matmul *call)
{
    const operation *o = &call->operation;

    return layout_bytes(&call->a_layout) + layout_bytes(&call->b_layout) +
           (call->beta != 0 ? layout_bytes(&call->d_layout) : 0) +
           (o->epilogue == CUBLASLT_EPILOGUE_DGELU ? layout_bytes(&call->d_layout) : 0) +
           (has_bias(o) && !sums_columns(o) ? layout_bytes(&call->d_layout) / call->d_layout.columns
                                            : 0);
}

static uint64_t matmul_writes(const matmul *call)
{
    const operation *o = &call->operation;
    const bool keeps = has_aux(o) && o->epilogue != CUBLASLT_EPILOGUE_DGELU;

    return layout_bytes(&call->d_layout) * (keeps ? 2 : 1) +
           (sums_columns(o) ? layout_bytes(&call->d_layout) / call->d_layout.rows : 0);
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
    if (promised.index == ALGORITHMS - 1 || (promised.index == 0 && emulated_fault("refused")))
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

/* Of the headers: attention needs newer ones than some installations have. */
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

ty_status cuda_dnn_load(const cuda_dnn **out, ty_error *error)
{
    static const cuda_dnn fake = {
        .cudnnGetVersion = fake_dnn_version,
        .cudnnCreate = fake_dnn_create,
        .cudnnDestroy = fake_dnn_destroy,
        .cudnnSetStream = fake_dnn_stream,
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

/* Between devices that run concurrently with the host; see nccl.cc. */
ty_status cuda_nccl_load(const cuda_nccl **out, ty_error *error)
{
#define NCCL_FUNCTION(function) .function = function,
    static const cuda_nccl fake = {CUDA_NCCL_FUNCTIONS(NCCL_FUNCTION)};

    if (getenv("TRAINYARD_EMULATED_DEVICES") == NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "one emulated device has no NCCL");
    *out = &fake;
    return TY_OK;
}
