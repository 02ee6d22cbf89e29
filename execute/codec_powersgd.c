/*
 * Matrices as the product of two factors of rank r: Vogels, Karimireddy and Jaggi, "PowerSGD",
 * NeurIPS 2019, algorithms 1 and 2. One step of subspace iteration from the last step's factor:
 *   P = M Q, summed;  P orthonormalised;  Q = M^T P, summed;  M^ = P Q^T;  error = M - M^ / members
 * M is a member's gradient and error. Vectors, and matrices that would not gain, are summed as they
 * are, with P. Factors are kept transposed, [rank][rows] and [rank][columns], so that all inner
 * loops are over memory in order. A factor without length, as of a gradient of zeros, is drawn
 * anew, alike on all members.
 */
#include "codec_kinds.h"

enum { ERRORS }; /* arrays: of all factored matrices, one after the other */

/* After a projection, what is left of a vector is rounding if it is shorter than this share. */
#define NO_LENGTH 1e-5f

/* One matrix in the hands of the loops below. */
typedef struct factored {
    uint64_t rows, columns, rank;
    float *m;     /* [rows][columns] */
    float *p, *q; /* [rank][rows], [rank][columns] */
    uint64_t offset;
} factored;

/* Goes through the factored matrices; `at` is zero at first. */
static bool next_matrix(const ty_codec *codec, uint32_t *index, factored *at)
{
    const ty_compression *c = &codec->options.compression;

    if (at->rank == 0)
        *at = (factored){.rank = c->rank,
                         .m = codec->arrays[ERRORS],
                         .p = codec->payloads[0],
                         .q = codec->payloads[1]};
    else {
        at->m += at->rows * at->columns;
        at->p += at->rank * at->rows;
        at->q += at->rank * at->columns;
    }
    while (*index < codec->options.matrix_count) {
        const ty_bucket_matrix *matrix = &codec->options.matrices[(*index)++];
        if (!ty_powersgd_factors(c, matrix->rows, matrix->columns))
            continue;
        at->rows = matrix->rows;
        at->columns = matrix->columns;
        at->offset = matrix->offset;
        return true;
    }
    at->rows = at->columns = 0;
    return false;
}

/* Copies what is in no factored matrix between the bucket and the payload. */
static void dense_copy(ty_codec *codec, const float *gradients, float *out)
{
    float *dense = (float *)codec->payloads[0] + codec->extent.p_elements;
    uint64_t done = 0;
    uint32_t index = 0;
    factored at = {0};
    bool has_more = true;

    while (has_more) {
        has_more = next_matrix(codec, &index, &at);
        uint64_t end = has_more ? at.offset : codec->options.count, count = end - done;
        if (gradients != NULL)
            memcpy(dense, gradients + done, count * sizeof *dense);
        else
            memcpy(out + done, dense, count * sizeof *dense);
        dense += count;
        done = end + at.rows * at.columns;
    }
}

static ty_status powersgd_open(ty_codec *codec, ty_error *error)
{
    return codec_array_add(codec, codec->options.count - codec->extent.dense_elements, error);
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

/* Takes the parts along the vectors before it from vector k, and its length; returns the share of
   its length that was left. */
CPU_CLONES static float project(uint64_t count, uint64_t k, float *vectors)
{
    float *v = vectors + k * count, before = sqrtf(dot(count, v, v)), after, scale;

    for (int twice = 0; twice < 2; twice++) /* once is not enough in floats */
        for (uint64_t j = 0; j < k; j++) {
            const float *u = vectors + j * count;
            float along = dot(count, u, v);
            for (uint64_t i = 0; i < count; i++)
                v[i] -= along * u[i];
        }
    after = sqrtf(dot(count, v, v));
    scale = after > NO_LENGTH * before ? 1.0f / after : 0.0f;
    for (uint64_t i = 0; i < count; i++)
        v[i] = scale > 0.0f ? v[i] * scale : 0.0f;
    return scale > 0.0f ? after / before : before > 0.0f || before == 0.0f ? 0.0f : NAN;
}

static void draw(uint64_t count, uint32_t key, float *v)
{
    for (uint64_t i = 0; i < count; i++)
        v[i] = codec_uniform(codec_hash(key + (uint32_t)i)) - 0.5f;
}

/* Gram-Schmidt. Vectors without length of their own become 0, or are drawn anew with a key. */
static void orthonormalise(uint64_t count, uint64_t rank, float *vectors, const uint32_t *key)
{
    for (uint64_t k = 0; k < rank; k++) {
        if (project(count, k, vectors) != 0.0f || key == NULL)
            continue;
        draw(count, codec_hash(*key + (uint32_t)k), vectors + k * count);
        project(count, k, vectors);
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

/* Q = M^T P, four rows at a time so that Q is walked less often. */
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

/* M^ = P Q^T, and M becomes what M^ / members leaves of it. */
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
    factored at = {0};
    uint32_t index = 0, key = codec_shared_key(codec);

    while (next_matrix(codec, &index, &at)) {
        codec_add(at.rows * at.columns, gradients + at.offset, at.m);
        key = codec_hash(key + index);
        orthonormalise(at.columns, at.rank, at.q, &key);
        multiply(&at);
    }
    dense_copy(codec, gradients, NULL);
}

static void second_factor(ty_codec *codec, const float *gradients)
{
    factored at = {0};
    uint32_t index = 0;

    (void)gradients;
    while (next_matrix(codec, &index, &at)) {
        orthonormalise(at.rows, at.rank, at.p, NULL);
        multiply_transposed(&at);
    }
}

static void product(ty_codec *codec, float *gradients)
{
    factored at = {0};
    uint32_t index = 0;

    while (next_matrix(codec, &index, &at))
        reconstruct(&at, (float)codec->options.member_count, gradients + at.offset);
    dense_copy(codec, NULL, gradients);
}

const codec_kind codec_powersgd = {.open = powersgd_open,
                                   .encode = {first_factor, second_factor},
                                   .decode = product,
                                   .element = TY_ELEMENT_FLOAT,
                                   .keeps_payload = true};
