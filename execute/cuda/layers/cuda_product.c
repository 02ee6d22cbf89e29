/*
 * Matrix products through cuBLASLt. It is column-major, so a row-major matrix is its transpose
 * there: y = x W^T becomes y^T = W x^T. Algorithms are queried once per shape and cached;
 * measurements may choose among them (cuda_choices.c).
 */
#include "cuda_stage.h"

#include <stdio.h>

enum { MOST_CANDIDATES = 8 };

/* A product D = op(A) op(B), column-major, m x n over k. */
typedef struct shape {
    uint64_t m, n, k, lda, ldb, ldd;
    bool transposes_a, transposes_b;
    bool is_sum_float; /* D is fp32 whatever the type */
    int epilogue;
    uint32_t alignment[3]; /* of A, B and D in bytes */
    uint32_t bias_alignment;
} shape;

typedef struct operands {
    const void *a, *b, *bias;
    void *d, *aux;
    bool adds; /* to D; an epilogue's sums are overwritten */
} operands;

typedef struct product {
    shape key;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithms[MOST_CANDIDATES]; /* in the order of trials, */
    int algorithm, algorithm_count;                   /* starting from this one; 0: there is none */
} product;

struct cuda_plan_cache {
    product *products;
    uint32_t count, room;
};

#define BLAS_CHECK(call, status, label)                                                            \
    do {                                                                                           \
        cublasStatus_t code_ = (call);                                                             \
        if (code_ != CUBLAS_STATUS_SUCCESS) {                                                      \
            (status) = cuda_blas_fail(error, #call, code_);                                        \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

static bool is_same(const shape *x, const shape *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldd == y->ldd && x->transposes_a == y->transposes_a &&
           x->transposes_b == y->transposes_b && x->is_sum_float == y->is_sum_float &&
           x->epilogue == y->epilogue && x->alignment[0] == y->alignment[0] &&
           x->alignment[1] == y->alignment[1] && x->alignment[2] == y->alignment[2] &&
           x->bias_alignment == y->bias_alignment;
}

/* The largest power of two up to 256 that divides the address. */
static uint32_t alignment_of(const void *address)
{
    uint32_t alignment = 256;

    while ((uintptr_t)address % alignment != 0)
        alignment /= 2;
    return alignment;
}

static cudaDataType_t data_type(cuda_type type)
{
    return type == CUDA_TYPE_FLOAT ? CUDA_R_32F : type == CUDA_TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static void product_free(const cuda_blas *blas, product *p)
{
    if (p->a != NULL)
        blas->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != NULL)
        blas->cublasLtMatrixLayoutDestroy(p->b);
    if (p->d != NULL)
        blas->cublasLtMatrixLayoutDestroy(p->d);
    if (p->operation != NULL)
        blas->cublasLtMatmulDescDestroy(p->operation);
}

void cuda_products_free(ty_stage_device *stage)
{
    cuda_plan_cache *cache = stage->own->products;

    for (uint32_t i = 0; cache != NULL && i < cache->count; i++)
        product_free(stage->own->blas, &cache->products[i]);
    if (cache != NULL)
        ty_free(cache->products);
    ty_free(cache);
    stage->own->products = NULL;
}

static ty_status attribute_set(const cuda_blas *blas, cublasLtMatmulDesc_t operation,
                               cublasLtMatmulDescAttributes_t attribute, const void *value,
                               size_t size, ty_error *error)
{
    cublasStatus_t code = blas->cublasLtMatmulDescSetAttribute(operation, attribute, value, size);

    return code == CUBLAS_STATUS_SUCCESS
               ? TY_OK
               : cuda_blas_fail(error, "cublasLtMatmulDescSetAttribute", code);
}

/* The pointers of an epilogue change from call to call. */
static ty_status epilogue_set(const ty_stage_device *stage, const product *p, const operands *o,
                              ty_error *error)
{
    int64_t aux_stride = (int64_t)p->key.ldd;

    if (o->bias != NULL)
        TY_TRY(attribute_set(stage->own->blas, p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                             &o->bias, sizeof o->bias, error));
    if (o->aux != NULL) {
        TY_TRY(attribute_set(stage->own->blas, p->operation,
                             CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux, sizeof o->aux,
                             error));
        TY_TRY(attribute_set(stage->own->blas, p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                             &aux_stride, sizeof aux_stride, error));
    }
    return TY_OK;
}

static ty_status operation_make(const ty_stage_device *stage, const operands *o, product *p,
                                ty_error *error)
{
    const cuda_blas *blas = stage->own->blas;
    bool is_tf32 = stage->options.precision == TY_PRECISION_TF32;
    int32_t a = p->key.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t b = p->key.transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)p->key.epilogue;
    ty_status status = TY_OK;

    BLAS_CHECK(
        blas->cublasLtMatmulDescCreate(
            &p->operation, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        status, done);
    TY_CHECK(attribute_set(blas, p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, error),
             status, done);
    TY_CHECK(attribute_set(blas, p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, error),
             status, done);
    TY_CHECK(attribute_set(blas, p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                           sizeof epilogue, error),
             status, done);
    status = epilogue_set(stage, p, o, error);
done:
    return status;
}

static ty_status layouts_make(const ty_stage_device *stage, product *p, ty_error *error)
{
    const cuda_blas *blas = stage->own->blas;
    const shape *k = &p->key;
    cudaDataType_t type = data_type(stage->own->type);
    ty_status status = TY_OK;

    BLAS_CHECK(blas->cublasLtMatrixLayoutCreate(&p->a, type, k->transposes_a ? k->k : k->m,
                                                k->transposes_a ? k->m : k->k, (int64_t)k->lda),
               status, done);
    BLAS_CHECK(blas->cublasLtMatrixLayoutCreate(&p->b, type, k->transposes_b ? k->n : k->k,
                                                k->transposes_b ? k->k : k->n, (int64_t)k->ldb),
               status, done);
    BLAS_CHECK(blas->cublasLtMatrixLayoutCreate(&p->d, k->is_sum_float ? CUDA_R_32F : type, k->m,
                                                k->n, (int64_t)k->ldd),
               status, done);
done:
    return status;
}

static ty_status preference_make(const ty_stage_device *stage, const shape *k,
                                 cublasLtMatmulPreference_t *out, ty_error *error)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const cuda_blas *blas = stage->own->blas;
    ty_status status = TY_OK;

    BLAS_CHECK(blas->cublasLtMatmulPreferenceCreate(out), status, done);
    BLAS_CHECK(blas->cublasLtMatmulPreferenceSetAttribute(
                   *out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &stage->own->workspace_bytes,
                   sizeof stage->own->workspace_bytes),
               status, done);
    for (int i = 0; i < 4; i++)
        BLAS_CHECK(blas->cublasLtMatmulPreferenceSetAttribute(
                       *out, aligned[i], &k->alignment[i < 2 ? i : 2], sizeof k->alignment[0]),
                   status, done);
done:
    return status;
}

/* ---- Algorithms ---- */

/* Key of a choice: all arguments to cuBLASLt. */
static void key_make(const ty_stage_device *stage, const shape *k, char *out)
{
    snprintf(out, CUDA_KEY_SIZE,
             "product %s %llu x %llu x %llu, %llu %llu %llu, %d%d%d, epilogue %d, aligned %u %u %u",
             ty_precision_name(stage->options.precision), (unsigned long long)k->m,
             (unsigned long long)k->n, (unsigned long long)k->k, (unsigned long long)k->lda,
             (unsigned long long)k->ldb, (unsigned long long)k->ldd, k->transposes_a,
             k->transposes_b, k->is_sum_float, k->epilogue, (unsigned)k->alignment[0],
             (unsigned)k->alignment[1], (unsigned)k->alignment[2]);
}

/* A product into temporary memory. */
typedef struct trial {
    const ty_stage_device *stage;
    const product *product;
    const operands *operands;
    const cublasLtMatmulAlgo_t *algorithm;
    void *d;
} trial;

static bool trial_run(const void *context)
{
    const trial *t = context;
    const ty_stage_device *stage = t->stage;
    const product *p = t->product;
    const float one = 1.0f, zero = 0.0f;

    return stage->own->blas->cublasLtMatmul(
               stage->own->blas_handle, p->operation, &one, t->operands->a, p->a, t->operands->b,
               p->b, &zero, t->d, p->d, t->d, p->d, t->algorithm, stage->own->workspace,
               stage->own->workspace_bytes, stage->own->stream) == CUBLAS_STATUS_SUCCESS;
}

/* Uses the current operands but temporary output memory, as the product may add to its output. */
static ty_status fastest_find(const ty_stage_device *stage, const product *p, const operands *o,
                              const cublasLtMatmulHeuristicResult_t *found, int count,
                              uint32_t *fastest, ty_error *error)
{
    trial t = {stage, p, o, NULL, NULL};
    float least = -1, milliseconds;
    ty_status status = TY_OK;

    CUDA_CHECK(cudaMalloc(&t.d, p->key.ldd * p->key.n * sizeof(float)), status, cleanup);
    for (int i = 0; i < count; i++) {
        t.algorithm = &found[i].algo;
        TY_CHECK(cuda_trials_time(stage, trial_run, &t, &milliseconds, error), status, cleanup);
        if (milliseconds >= 0 && (least < 0 || milliseconds < least)) {
            least = milliseconds;
            *fastest = (uint32_t)i;
        }
    }
cleanup:
    cudaFree(t.d);
    return status;
}

/* Chooses from cuBLASLt's list, best guess first: the noted choice, or a new one. */
static ty_status algorithm_choose(ty_stage_device *stage, product *p, const operands *o,
                                  const cublasLtMatmulHeuristicResult_t *found, int count,
                                  ty_error *error)
{
    char key[CUDA_KEY_SIZE];
    uint32_t choice = 0;

    key_make(stage, &p->key, key);
    if (!cuda_choice_find(stage, key, &choice) && stage->options.measures_algorithms &&
        !stage->own->is_recording) {
        TY_TRY(fastest_find(stage, p, o, found, count, &choice, error));
        TY_TRY(cuda_choice_note(stage, key, choice, error));
    }
    choice = choice < (uint32_t)count ? choice : 0;
    p->algorithms[p->algorithm_count++] = found[choice].algo;
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        if (i != choice)
            p->algorithms[p->algorithm_count++] = found[i].algo;
    return TY_OK;
}

static ty_status unsupported(const shape *key, ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "cuBLASLt has no product of %llu x %llu x %llu with epilogue %d",
                   (unsigned long long)key->m, (unsigned long long)key->n,
                   (unsigned long long)key->k, key->epilogue);
}

/* Without algorithms if cuBLASLt has none for this shape and epilogue. */
static ty_status product_make(ty_stage_device *stage, const shape *key, const operands *o,
                              product *p, ty_error *error)
{
    const cuda_blas *blas = stage->own->blas;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found[MOST_CANDIDATES];
    int count = 0;
    cublasStatus_t code;
    ty_status status;

    p->key = *key;
    TY_CHECK(operation_make(stage, o, p, error), status, done);
    TY_CHECK(layouts_make(stage, p, error), status, done);
    TY_CHECK(preference_make(stage, key, &preference, error), status, done);
    code = blas->cublasLtMatmulAlgoGetHeuristic(stage->own->blas_handle, p->operation, p->a, p->b,
                                                p->d, p->d, preference, MOST_CANDIDATES, found,
                                                &count);
    if (code == CUBLAS_STATUS_SUCCESS && count > 0)
        status = algorithm_choose(stage, p, o, found, count, error);
done:
    if (preference != NULL)
        blas->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static ty_status product_find(ty_stage_device *stage, const shape *key, const operands *o,
                              product **out, ty_error *error)
{
    cuda_plan_cache *cache = stage->own->products;
    product made = {0};
    ty_status status;

    if (cache == NULL)
        cache = stage->own->products = ty_alloc(1, sizeof *cache);
    for (uint32_t i = 0; cache != NULL && i < cache->count; i++) {
        *out = &cache->products[i];
        if (is_same(&cache->products[i].key, key))
            return TY_OK;
    }
    if (cache != NULL && cache->count == cache->room) {
        uint32_t room = cache->room == 0 ? 32 : 2 * cache->room;
        product *grown = ty_resize(cache->products, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        cache->products = grown;
        cache->room = room;
    }
    TY_TRY(ty_check_memory(cache != NULL, error));
    status = product_make(stage, key, o, &made, error);
    if (status != TY_OK) {
        product_free(stage->own->blas, &made);
        return status;
    }
    *out = &cache->products[cache->count++];
    **out = made;
    return TY_OK;
}

static bool is_refusal(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE ||
           code == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* Runs the first algorithm that is not refused (listed ones may be), and keeps it. TY_EUNSUPPORTED
 * if there is none. */
static ty_status product_run(const ty_stage_device *stage, product *p, const operands *o,
                             ty_error *error)
{
    const float one = 1.0f, beta = o->adds ? 1.0f : 0.0f;
    cublasStatus_t code = CUBLAS_STATUS_NOT_SUPPORTED;
    int tried = p->algorithm;

    for (; tried < p->algorithm_count && is_refusal(code); tried++) {
        p->algorithm = tried;
        code = stage->own->blas->cublasLtMatmul(stage->own->blas_handle, p->operation, &one, o->a,
                                                p->a, o->b, p->b, &beta, o->d, p->d, o->d, p->d,
                                                &p->algorithms[tried], stage->own->workspace,
                                                stage->own->workspace_bytes, stage->own->stream);
    }
    if (code == CUBLAS_STATUS_SUCCESS)
        return TY_OK;
    if (!is_refusal(code))
        return cuda_blas_fail(error, "cublasLtMatmul", code);
    p->algorithm = p->algorithm_count;
    return unsupported(&p->key, error);
}

static ty_status multiply(ty_stage_device *stage, shape *key, const operands *o, ty_error *error)
{
    product *p = NULL;

    key->alignment[0] = alignment_of(o->a);
    key->alignment[1] = alignment_of(o->b);
    key->alignment[2] = alignment_of(o->d);
    key->bias_alignment = o->bias != NULL ? alignment_of(o->bias) : 0;
    if (o->bias != NULL && key->bias_alignment < key->alignment[2])
        key->alignment[2] = key->bias_alignment; /* read with the alignment of the result */
    TY_TRY(product_find(stage, key, o, &p, error));
    TY_TRY(epilogue_set(stage, p, o, error));
    return product_run(stage, p, o, error);
}

/* ---- Affine maps ---- */

ty_status cuda_affine_forward(ty_stage_device *stage, const cuda_affine *f, ty_error *error)
{
    shape key = {.m = f->out,
                 .n = f->rows,
                 .k = f->in,
                 .lda = f->in,
                 .ldb = f->in,
                 .ldd = f->y_stride > 0 ? f->y_stride : f->out,
                 .transposes_a = true};
    operands o = {.a = f->weight, .b = f->x, .d = f->y, .bias = f->bias, .aux = f->before_gelu};

    if (f->before_gelu != NULL)
        key.epilogue =
            f->bias != NULL ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    else
        key.epilogue = f->bias != NULL ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    return multiply(stage, &key, &o, error);
}

ty_status cuda_strided_forward(ty_stage_device *stage, const cuda_strided *p, ty_error *error)
{
    shape key = {.m = p->out,
                 .n = p->rows,
                 .k = p->in,
                 .lda = p->in,
                 .ldb = p->x_stride,
                 .ldd = p->y_stride,
                 .transposes_a = true,
                 .is_sum_float = true,
                 .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    operands o = {.a = p->weight, .b = p->x, .d = p->y, .adds = p->adds};

    return multiply(stage, &key, &o, error);
}

ty_status cuda_strided_backward(ty_stage_device *stage, const cuda_strided *p, ty_error *error)
{
    shape key = {.m = p->in,
                 .n = p->rows,
                 .k = p->out,
                 .lda = p->in,
                 .ldb = p->x_stride,
                 .ldd = p->y_stride,
                 .is_sum_float = true,
                 .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    operands o = {.a = p->weight, .b = p->x, .d = p->y, .adds = p->adds};

    return multiply(stage, &key, &o, error);
}

uint64_t cuda_affine_sums(uint64_t rows, uint64_t out)
{
    return cuda_column_sums_scratch(rows, out);
}

/* Rows of a padded weight's gradient that fast products write in place. */
static uint64_t whole_rows(uint64_t out)
{
    return out / CUDA_SCORE_PADDING * CUDA_SCORE_PADDING;
}

uint64_t cuda_affine_rest(uint64_t in, uint64_t out, uint64_t dy_stride)
{
    return dy_stride > out ? (dy_stride - whole_rows(out)) * in : 0;
}

/* The gradient has no padding, so the last rows are computed in scratch. */
static ty_status padded_weight_gradient(ty_stage_device *stage, const shape *all, const operands *o,
                                        ty_error *error)
{
    const uint64_t whole = whole_rows(all->n), rest = (all->n - whole) * all->m;
    shape first = *all, last = *all;
    operands of_last = *o;

    first.n = whole;
    last.n = all->ldb - whole;
    of_last.b = (const char *)o->b + whole * stage->element;
    of_last.d = stage->own->sums;
    of_last.adds = false;
    if (whole > 0)
        TY_TRY(multiply(stage, &first, o, error));
    TY_TRY(multiply(stage, &last, &of_last, error));
    cuda_accumulate_float(CUDA_TYPE_FLOAT, rest, stage->own->sums, o->adds,
                          (float *)o->d + whole * all->m, stage->own->stream);
    return TY_OK;
}

/* dW^T [in x out] = x^T dy, and the sums of dy's columns where cuBLASLt computes them with it. */
static ty_status weight_gradient(ty_stage_device *stage, const cuda_affine_gradient *g, shape *key,
                                 operands *o, bool *has_bias, ty_error *error)
{
    ty_status status;

    *has_bias = false;
    if (g->is_padded)
        return padded_weight_gradient(stage, key, o, error);
    if (g->dbias != NULL) {
        key->epilogue = CUBLASLT_EPILOGUE_BGRADB;
        o->bias = stage->own->sums;
        status = multiply(stage, key, o, error);
        *has_bias = status == TY_OK;
        if (status != TY_EUNSUPPORTED)
            return status;
        key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        o->bias = NULL;
    }
    return multiply(stage, key, o, error);
}

/* dx^T [in x rows] = W^T dy^T. */
ty_status cuda_affine_backward(ty_stage_device *stage, const cuda_affine_gradient *g,
                               ty_error *error)
{
    const uint64_t dy_stride = g->dy_stride > 0 ? g->dy_stride : g->out;
    shape weight = {.m = g->in,
                    .n = g->out,
                    .k = g->rows,
                    .lda = g->in,
                    .ldb = dy_stride,
                    .ldd = g->in,
                    .transposes_b = true,
                    .is_sum_float = true,
                    .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    shape input = {.m = g->in,
                   .n = g->rows,
                   .k = g->is_padded ? dy_stride : g->out,
                   .lda = g->in,
                   .ldb = dy_stride,
                   .ldd = g->in,
                   .epilogue = g->x_before_gelu != NULL ? CUBLASLT_EPILOGUE_DGELU
                                                        : CUBLASLT_EPILOGUE_DEFAULT};
    operands of_weight = {.a = g->x, .b = g->dy, .d = g->dweight, .adds = g->adds_weight};
    operands of_input = {.a = g->weight, .b = g->dy, .d = g->dx, .adds = g->adds_x};
    bool has_bias = false;
    ty_status status = TY_OK;

    if (g->x_before_gelu != NULL)
        of_input.aux = (void *)(uintptr_t)g->x_before_gelu; /* read only, but declared otherwise */
    if (g->dweight != NULL)
        TY_CHECK(weight_gradient(stage, g, &weight, &of_weight, &has_bias, error), status, done);
    if (has_bias)
        cuda_accumulate_float(CUDA_TYPE_FLOAT, g->out, stage->own->sums, g->adds_bias, g->dbias,
                              stage->own->stream);
    else if (g->dbias != NULL)
        cuda_column_sums(stage->own->type, g->rows, g->out, dy_stride, g->dy, g->adds_bias,
                         g->dbias, stage->own->sums, stage->own->stream);
    if (g->dx != NULL)
        status = multiply(stage, &input, &of_input, error);
done:
    return status;
}
