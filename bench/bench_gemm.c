/*
 * Compares matrix products of oneDNN and OpenBLAS on one core, for the shapes that dominate mlp and
 * gpt-tiny. The CPU backend uses oneDNN because of these figures. JSON on stdout.
 */
#include "dnnl_wrap.h"
#include "timing.h"
#include "ty_core.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 15

typedef struct shape {
    const char *name;
    int m, n, k; /* C[m,n] = A[m,k] B[n,k]^T, as a linear layer's forward */
} shape;

static const shape shapes[] = {
    {"mlp 128x1024x784", 128, 1024, 784},        {"mlp 128x1024x1024", 128, 1024, 1024},
    {"gpt-tiny 1024x768x256", 1024, 768, 256},   {"gpt-tiny 1024x1024x256", 1024, 1024, 256},
    {"gpt-tiny 1024x256x1024", 1024, 256, 1024}, {"square 1024", 1024, 1024, 1024},
};

static double thread_s(void)
{
    return clock_s(CLOCK_THREAD_CPUTIME_ID);
}

static void with_onednn(const shape *s, const float *a, const float *b, float *c)
{
    cpu_gemm(false, true, (uint64_t)s->m, (uint64_t)s->n, (uint64_t)s->k, 1, a, (uint64_t)s->k, b,
             (uint64_t)s->k, 0, c, (uint64_t)s->n);
}

static void with_openblas(const shape *s, const float *a, const float *b, float *c)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s->m, s->n, s->k, 1, a, s->k, b, s->k, 0,
                c, s->n);
}

static double flop_per_s(const shape *s,
                         void (*multiply)(const shape *, const float *, const float *, float *),
                         const float *a, const float *b, float *c)
{
    double times[ROUNDS];

    multiply(s, a, b, c);
    for (int r = 0; r < ROUNDS; r++) {
        double start_s = thread_s();
        multiply(s, a, b, c);
        times[r] = thread_s() - start_s;
    }
    return 2.0 * s->m * s->n * s->k / median(times, ROUNDS);
}

int main(void)
{
    size_t largest = (size_t)1024 * 1024;
    float *a = ty_alloc(largest, sizeof *a), *b = ty_alloc(largest, sizeof *b);
    float *c = ty_alloc(largest, sizeof *c);

    if (a == NULL || b == NULL || c == NULL)
        return 1;
    for (size_t i = 0; i < largest; i++) {
        a[i] = (float)(i % 13) * 0.1f - 0.6f;
        b[i] = (float)(i % 7) * 0.1f - 0.3f;
    }
    cpu_single_thread();
    openblas_set_num_threads(1);
    printf("{\n  \"schema\": \"trainyard.bench/1\",\n  \"bench\": \"gemm\",\n  \"openblas\": "
           "\"%s\",\n  \"rows\": [\n",
           openblas_get_corename());
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double onednn = flop_per_s(&shapes[i], with_onednn, a, b, c);
        double openblas = flop_per_s(&shapes[i], with_openblas, a, b, c);
        printf(
            "    {\"shape\": \"%s\", \"onednn_flop_per_s\": %.4g, \"openblas_flop_per_s\": %.4g, "
            "\"ratio\": %.3f}%s\n",
            shapes[i].name, onednn, openblas, onednn / openblas,
            i + 1 < sizeof shapes / sizeof shapes[0] ? "," : "");
    }
    puts("  ]\n}");
    ty_free(a);
    ty_free(b);
    ty_free(c);
    return 0;
}
