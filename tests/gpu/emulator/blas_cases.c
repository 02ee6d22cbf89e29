/*
 * The stand-in for cuBLASLt refuses what cublasLt.h forbids: each call breaks one rule, next to a
 * call that breaks none.
 */
#include "cuda_libraries.h"

#include <stdio.h>
#include <stdlib.h>

enum { M = 16, N = 8, K = 32, WORKSPACE = 1024 };

/* Arguments of a call; a case changes one of them. */
typedef struct product {
    cublasComputeType_t compute;
    cudaDataType_t scale, a_type, b_type, c_type, d_type;
    cublasLtEpilogue_t epilogue;
    int64_t aux_stride;
    uint64_t shift[6]; /* bytes, of A, B, D, bias, aux and workspace, after the choice of the
                        * algorithm */
    uint32_t alignment[4];
    size_t workspace_bytes;
    bool has_bias, has_aux;
} product;

static const product right = {.compute = CUBLAS_COMPUTE_32F,
                              .scale = CUDA_R_32F,
                              .a_type = CUDA_R_16BF,
                              .b_type = CUDA_R_16BF,
                              .c_type = CUDA_R_16BF,
                              .d_type = CUDA_R_16BF,
                              .epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                              .aux_stride = M,
                              .alignment = {16, 16, 16, 16},
                              .workspace_bytes = WORKSPACE,
                              .has_bias = true,
                              .has_aux = true};

static char *memory[6];

static bool attribute_set(const cuda_blas *blas, cublasLtMatmulDesc_t made,
                          cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
    return blas->cublasLtMatmulDescSetAttribute(made, attribute, value, size) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool pointers_set(const cuda_blas *blas, cublasLtMatmulDesc_t made, const product *p,
                         bool is_shifted)
{
    const void *bias = memory[3] + (is_shifted ? p->shift[3] : 0);
    const void *aux = memory[4] + (is_shifted ? p->shift[4] : 0);

    return (!p->has_bias ||
            attribute_set(blas, made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias)) &&
           (!p->has_aux ||
            attribute_set(blas, made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
}

/* Whether an algorithm is found and runs. */
static bool is_taken(const product *p)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t most = WORKSPACE * 2;
    const float one = 1, zero = 0;
    const cuda_blas *blas = NULL;
    ty_error error = {0};
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulDesc_t made = NULL;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    bool is_right;

    if (cuda_blas_load(&blas, &error) != TY_OK)
        return false;
    (void)blas->cublasLtCreate(&handle);
    (void)blas->cublasLtMatmulDescCreate(&made, p->compute, p->scale);
    (void)blas->cublasLtMatrixLayoutCreate(&a, p->a_type, M, K, M);
    (void)blas->cublasLtMatrixLayoutCreate(&b, p->b_type, K, N, K);
    (void)blas->cublasLtMatrixLayoutCreate(&c, p->c_type, M, N, M);
    (void)blas->cublasLtMatrixLayoutCreate(&d, p->d_type, M, N, M);
    (void)blas->cublasLtMatmulPreferenceCreate(&preference);
    (void)blas->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    for (int i = 0; i < 4; i++)
        (void)blas->cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &p->alignment[i],
                                                         sizeof p->alignment[i]);
    is_right = attribute_set(blas, made, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue,
                             sizeof p->epilogue) &&
               attribute_set(blas, made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->aux_stride,
                             sizeof p->aux_stride) &&
               pointers_set(blas, made, p, false) &&
               blas->cublasLtMatmulAlgoGetHeuristic(handle, made, a, b, c, d, preference, 1, &found,
                                                    &count) == CUBLAS_STATUS_SUCCESS &&
               count == 1 && pointers_set(blas, made, p, true) &&
               blas->cublasLtMatmul(
                   handle, made, &one, memory[0] + p->shift[0], a, memory[1] + p->shift[1], b,
                   &zero, memory[2] + p->shift[2], c, memory[2] + p->shift[2], d, &found.algo,
                   memory[5] + p->shift[5], p->workspace_bytes, NULL) == CUBLAS_STATUS_SUCCESS;
    (void)blas->cublasLtMatmulPreferenceDestroy(preference);
    (void)blas->cublasLtMatrixLayoutDestroy(a);
    (void)blas->cublasLtMatrixLayoutDestroy(b);
    (void)blas->cublasLtMatrixLayoutDestroy(c);
    (void)blas->cublasLtMatrixLayoutDestroy(d);
    (void)blas->cublasLtMatmulDescDestroy(made);
    (void)blas->cublasLtDestroy(handle);
    return is_right;
}

static int failures;

static void expect(const char *what, bool is_right, const product *p)
{
    const bool is_found = is_taken(p);

    printf("%s %s: %s\n", is_found == is_right ? "ok  " : "FAIL", what,
           is_found ? "taken" : "refused");
    failures += is_found != is_right;
}

int main(void)
{
    product p;

    for (int m = 0; m < 6; m++)
        memory[m] = aligned_alloc(256, 4096);
    expect("bf16 with gelu and a bias", true, &right);
#define BROKEN(what, ...)                                                                          \
    do {                                                                                           \
        p = right;                                                                                 \
        __VA_ARGS__;                                                                               \
        expect(what, false, &p);                                                                   \
    } while (0)
    BROKEN("a scale of 16 bits", p.scale = CUDA_R_16BF);
    BROKEN("operands of two types", p.b_type = CUDA_R_16F);
    BROKEN("C of another type than D", p.c_type = CUDA_R_32F);
    BROKEN("D of another 16 bits", p.c_type = p.d_type = CUDA_R_16F);
    BROKEN("TF32 of 16 bits", p.compute = CUBLAS_COMPUTE_32F_FAST_TF32);
    BROKEN("a bias without a pointer", p.has_bias = false);
    BROKEN("gelu without a place for what it reads", p.has_aux = false);
    BROKEN("an auxiliary matrix with rows of 12", p.aux_stride = M + 4);
    BROKEN("an auxiliary matrix that is too short", p.aux_stride = M - 8);
    BROKEN("A less aligned than was said", p.shift[0] = 8);
    BROKEN("B less aligned than was said", p.shift[1] = 2);
    BROKEN("D less aligned than was said", p.shift[2] = 4);
    BROKEN("another bias, less aligned", p.shift[3] = 2);
    BROKEN("another auxiliary matrix, less aligned", p.shift[4] = 2);
    BROKEN("a workspace at 8 bytes", p.shift[5] = 8);
    BROKEN("too little workspace", p.workspace_bytes = WORKSPACE - 1);
    p = right;
    p.alignment[0] = p.alignment[1] = p.alignment[2] = p.alignment[3] = 2;
    p.shift[0] = p.shift[1] = p.shift[2] = 2;
    expect("matrices of 2 bytes, said before", true, &p);
    for (int m = 0; m < 6; m++)
        free(memory[m]);
    printf("%d failed\n", failures);
    return failures > 0;
}
