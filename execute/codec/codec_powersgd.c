/*
 * Matrices as the product of two factors of rank r: Vogels, Karimireddy and Jaggi, "PowerSGD",
 * NeurIPS 2019, algorithms 1 and 2. One step of subspace iteration from the last step's factor:
 *   P = M Q, summed;  P orthonormalized;  Q = M^T P, summed;  M^ = P Q^T;  error = M - M^ / members
 * M is a member's gradient plus its error. Vectors, and matrices that would not gain, are summed
 * uncompressed, with P. Factors are stored transposed, [rank][rows] and [rank][columns], so that
 * all inner loops access memory in order. A factor without length, as of a gradient of zeros, is
 * replaced by random numbers, the same on all members.
 */
#include "codec_kinds.h"

/* One matrix, for the loops below. */
typedef struct factored {
    uint64_t rows, columns, rank;
    float *m;     /* [rows][columns] */
    float *p, *q; /* [rank][rows], [rank][columns] */
} factored;

static factored matrix_at(const ty_codec *codec, const codec_factored *at)
{
    return (factored){.rows = at->rows,
                      .columns = at->columns,
                      .rank = codec->options.compression.rank,
                      .m = codec->arrays[CODEC_ERRORS] + at->m,
                      .p = (float *)codec->payloads[0] + at->p,
                      .q = (float *)codec->payloads[1] + at->q};
}

/* Elements outside factored matrices follow P in the payload. */
static float *dense_of(const ty_codec *codec)
{
    return (float *)codec->payloads[0] + codec->extent.p_elements;
}

/* ---- Linear algebra ---------------------------------------------------------------------- */

CPU_INLINE float dot(uint64_t count, const float *a, const float *b)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Makes vector k orthogonal to the vectors before it, of length 1; returns whether nothing was
 * left.
 */
CPU_CLONES static bool project(uint64_t count, uint64_t k, float *vectors)
{
    float *v = vectors + k * count, before = sqrtf(dot(count, v, v)), scale;

    for (int twice = 0; twice < 2; twice++) /* once is not enough in floats */
        for (uint64_t j = 0; j < k; j++) {
            const float *u = vectors + j * count;
            float along = dot(count, u, v);
            for (uint64_t i = 0; i < count; i++)
                v[i] -= along * u[i];
        }
    scale = codec_unit_scale(before, sqrtf(dot(count, v, v)));
    for (uint64_t i = 0; i < count; i++)
        v[i] = scale > 0.0f ? v[i] * scale : 0.0f;
    return codec_is_lost(before, scale);
}

static void draw(uint64_t count, uint32_t key, float *v)
{
    for (uint64_t i = 0; i < count; i++)
        v[i] = codec_drawn(key, i);
}

/* Gram-Schmidt. Vectors without length of their own become 0, or, with a key, random. */
static void orthonormalise(uint64_t count, uint64_t rank, float *vectors, const uint32_t *key)
{
    for (uint64_t k = 0; k < rank; k++) {
        if (!project(count, k, vectors) || key == NULL)
            continue;
        draw(count, codec_hash(*key + (uint32_t)k), vectors + k * count);
        (void)project(count, k, vectors);
    }
}

/* P = M Q. */
CPU_CLONES static void multiply(const factored *a)
{
    for (uint64_t row = 0; row < a->rows; row++)
        for (uint64_t k = 0; k < a->rank; k++)
            a->p[k * a->rows + row] =
                dot(a->columns, a->m + row * a->columns, a->q + k * a->columns);
}

/* Q = M^T P, four rows at a time to read Q less often. */
CPU_CLONES static void multiply_transposed(const factored *a)
{
    const uint64_t columns = a->columns;
    uint64_t row = 0;

    memset(a->q, 0, a->rank * columns * sizeof *a->q);
    for (; row + 4 <= a->rows; row += 4) {
        const float *restrict m0 = a->m + row * columns, *restrict m1 = m0 + columns;
        const float *restrict m2 = m1 + columns, *restrict m3 = m2 + columns;
        for (uint64_t k = 0; k < a->rank; k++) {
            const float *p = a->p + k * a->rows + row;
            const float p0 = p[0], p1 = p[1], p2 = p[2], p3 = p[3];
            float *restrict q = a->q + k * columns;
            for (uint64_t i = 0; i < columns; i++)
                q[i] += p0 * m0[i] + p1 * m1[i] + p2 * m2[i] + p3 * m3[i];
        }
    }
    for (; row < a->rows; row++)
        for (uint64_t k = 0; k < a->rank; k++) {
            const float p = a->p[k * a->rows + row], *restrict m = a->m + row * columns;
            float *restrict q = a->q + k * columns;
            for (uint64_t i = 0; i < columns; i++)
                q[i] += p * m[i];
        }
}

/* M^ = P Q^T, and M becomes the error M - M^ / members. */
CPU_CLONES static void reconstruct(const factored *a, float members, float *restrict out)
{
    const uint64_t columns = a->columns;
    const float share = 1.0f / members;

    for (uint64_t row = 0; row < a->rows; row++) {
        float *restrict to = out + row * columns, *restrict m = a->m + row * columns;
        memset(to, 0, columns * sizeof *to);
        for (uint64_t k = 0; k < a->rank; k++) {
            const float p = a->p[k * a->rows + row], *restrict q = a->q + k * columns;
            for (uint64_t i = 0; i < columns; i++)
                to[i] += p * q[i];
        }
        for (uint64_t i = 0; i < columns; i++)
            m[i] -= share * to[i];
    }
}

/* ---- Phases ------------------------------------------------------------------------------ */

static void first_factor(ty_codec *codec, const float *gradients)
{
    codec_factored at = {0}, behind = {0};
    codec_dense dense = {0};
    uint32_t index = 0;

    while (codec_next_factored(codec, &index, &at)) {
        const factored a = matrix_at(codec, &at);
        codec_add(a.rows * a.columns, gradients + at.offset, a.m);
        orthonormalise(a.columns, a.rank, a.q, &at.key);
        multiply(&a);
    }
    for (index = 0; codec_next_dense(codec, &index, &behind, &dense);)
        memcpy(dense_of(codec) + dense.at, gradients + dense.offset,
               dense.count * sizeof *gradients);
}

static void second_factor(ty_codec *codec, const float *gradients)
{
    codec_factored at = {0};
    uint32_t index = 0;

    (void)gradients;
    while (codec_next_factored(codec, &index, &at)) {
        const factored a = matrix_at(codec, &at);
        orthonormalise(a.rows, a.rank, a.p, NULL);
        multiply_transposed(&a);
    }
}

static void product(ty_codec *codec, float *gradients)
{
    codec_factored at = {0}, behind = {0};
    codec_dense dense = {0};
    uint32_t index = 0;

    while (codec_next_factored(codec, &index, &at)) {
        const factored a = matrix_at(codec, &at);
        reconstruct(&a, (float)codec->options.member_count, gradients + at.offset);
    }
    for (index = 0; codec_next_dense(codec, &index, &behind, &dense);)
        memcpy(gradients + dense.offset, dense_of(codec) + dense.at,
               dense.count * sizeof *gradients);
}

const codec_kind codec_powersgd = {.encode = {first_factor, second_factor}, .decode = product};
