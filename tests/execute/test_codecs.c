/* Gradient compressors: halves against a definition by search, top-k against sorting. */
#include "codec.h"

#include <criterion/criterion.h>
#include <math.h>

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* From the definition: sign, exponent and fraction. */
static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 0   ? ldexp(fraction, -24)
                       : exponent < 31 ? ldexp(1024 + fraction, exponent - 25)
                       : fraction == 0 ? INFINITY
                                       : NAN;
    return half >> 15 ? -magnitude : magnitude;
}

/* The nearest half, ties to the even one, by trying the neighbours of a value rounded down. */
static uint16_t half_nearest(double value)
{
    uint16_t low = 0, high = 0x7c00, sign = signbit(value) ? 0x8000 : 0;
    double x = fabs(value), below, above;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(middle) <= x)
            low = middle;
        else
            high = middle;
    }
    below = x - half_value(low);
    above = (high == 0x7c00 ? 65536 : half_value(high)) - x; /* infinity as if it were 2^16 */
    if (isinf(x))
        return sign | 0x7c00;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

Test(codecs, every_half_survives_a_round_trip)
{
    static uint16_t halves[65536], back[65536];
    static float floats[65536];
    for (uint32_t h = 0; h < 65536; h++)
        halves[h] = (uint16_t)h;
    half_to_float(65536, halves, floats);
    half_from_float(65536, floats, back);
    for (uint32_t h = 0; h < 65536; h++) {
        double value = half_value((uint16_t)h);
        if (isnan(value)) {
            cr_assert(isnan(floats[h]), "%04x", h);
            cr_assert(isnan(half_value(back[h])), "%04x became %04x", h, back[h]);
            cr_assert_eq(back[h] & 0x8000, h & 0x8000);
            continue;
        }
        cr_assert((double)floats[h] == value && !signbit(floats[h]) == !signbit(value), "%04x: %g",
                  h, (double)floats[h]);
        cr_assert_eq(back[h], h);
    }
}

Test(codecs, floats_round_to_the_nearest_half)
{
    uint64_t state = 5;
    const float corners[] = {
        0.0f,         -0.0f,           65504.0f,          65519.996f, 65520.0f,
        65536.0f,     1e30f,           INFINITY,          -INFINITY,  0x1p-14f,
        0x1.ffcp-15f, 0x1p-24f,        0x1p-25f,          0x1.8p-25f, 0x1.000002p-25f,
        0x1p-26f,     1.0f + 0x1p-11f, 1.0f + 0x1.8p-10f, 1e-40f};
    enum { CORNERS = sizeof corners / sizeof *corners };
    for (int i = 0; i < 300000; i++) {
        float value;
        uint16_t half;
        uint32_t bits = (uint32_t)next_random(&state);
        if (i < CORNERS)
            value = corners[i];
        else {
            bits = (bits & 0x80ffffffu) | (96u + bits % 48u) << 23; /* around the halves' range */
            memcpy(&value, &bits, sizeof value);
        }
        half_from_float(1, &value, &half);
        cr_assert_eq(half, half_nearest((double)value), "%a: %04x, expected %04x", (double)value,
                     half, half_nearest((double)value));
    }
}

Test(codecs, halves_are_summed_in_float)
{
    uint64_t state = 9;
    enum { N = 1001 };
    uint16_t a[N], b[N], sum[N];
    for (int i = 0; i < N; i++) {
        a[i] = (uint16_t)(next_random(&state) % 0x7000 | (next_random(&state) & 0x8000));
        b[i] = (uint16_t)(next_random(&state) % 0x7000 | (next_random(&state) & 0x8000));
        sum[i] = a[i];
    }
    ty_half_add(sum, b, N);
    for (int i = 0; i < N; i++)
        cr_assert_eq(sum[i], half_nearest(half_value(a[i]) + half_value(b[i])), "%g + %g",
                     half_value(a[i]), half_value(b[i]));
}

Test(codecs, fp16_decodes_what_it_encodes)
{
    enum { N = 77 };
    ty_codec *codec = NULL;
    float in[N], out[N];
    uint16_t encoded[N];
    cr_assert_eq(ty_codec_open(TY_COMPRESSION_FP16, N, 0, &codec, NULL), TY_OK);
    cr_assert_eq(ty_codec_bytes(codec), 2 * N);
    for (int i = 0; i < N; i++)
        in[i] = (float)(i - 30) * 0.37f;
    ty_codec_encode(codec, in, encoded);
    ty_codec_decode(codec, encoded, 3, out);
    for (int i = 0; i < N; i++)
        cr_assert_eq((double)out[i], half_value(half_nearest((double)in[i])));
    ty_codec_close(codec);
}

/* ---- Top-k ---- */

typedef struct pair {
    uint32_t index;
    float value;
} pair;

static int larger_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    float p = fabsf(x->value), q = fabsf(y->value);
    if (p != q)
        return p > q ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int index_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->index < y->index ? -1 : 1;
}

typedef enum filling { NORMAL, FEW_VALUES, ALL_EQUAL, ALL_ZERO, WIDE, FILLINGS } filling;

static float element(filling how, uint64_t *state)
{
    uint64_t bits = next_random(state);
    float sign = bits & 1 ? 1.0f : -1.0f, share = (float)(bits >> 40) * 0x1p-24f;
    switch (how) {
    case FEW_VALUES:
        return sign * (float)(bits >> 8 & 3);
    case ALL_EQUAL:
        return sign * 0.75f;
    case ALL_ZERO:
        return 0.0f;
    case WIDE:
        return sign * ldexpf(share, (int)(bits >> 4 & 127) - 64);
    case NORMAL:
    case FILLINGS:
        break;
    }
    return sign * share * share;
}

Test(codecs, top_k_equals_sorting)
{
    const uint64_t sizes[] = {1, 2, 15, 16, 17, 100, 1000, 4097, 20000};
    uint64_t state = 4711;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (filling how = NORMAL; how < FILLINGS; how++)
            for (int part = 0; part < 4; part++) {
                uint64_t n = sizes[s], k = part == 0   ? 1
                                           : part == 1 ? n / 100 + 1
                                           : part == 2 ? n / 2 + 1
                                                       : n;
                float *g = calloc(n, sizeof *g);
                pair *expected = calloc(n, sizeof *expected), *sent = calloc(k, sizeof *sent);
                ty_codec *codec = NULL;
                k = k > n ? n : k;
                cr_assert_eq(ty_codec_open(TY_COMPRESSION_TOP_K, n, k, &codec, NULL), TY_OK);
                cr_assert_eq(ty_codec_bytes(codec), 8 * k);
                for (uint64_t i = 0; i < n; i++)
                    expected[i] = (pair){(uint32_t)i, g[i] = element(how, &state)};
                qsort(expected, n, sizeof *expected, larger_first);
                qsort(expected, k, sizeof *expected, index_first);
                ty_codec_encode(codec, g, sent);
                for (uint64_t i = 0; i < k; i++)
                    cr_assert(sent[i].index == expected[i].index &&
                                  sent[i].value == expected[i].value,
                              "%lu of %lu, filling %d, pair %lu: (%u, %g), expected (%u, %g)", k, n,
                              (int)how, i, sent[i].index, (double)sent[i].value, expected[i].index,
                              (double)expected[i].value);
                ty_codec_close(codec);
                free(g);
                free(expected);
                free(sent);
            }
}

/* In units of 1/1024 sums are exact, so nothing may be lost: sent and kept add up to what went in.
 */
Test(codecs, error_feedback_conserves_every_element)
{
    enum { N = 3000, K = 40, STEPS = 50, MEMBERS = 2 };
    static float g[N], total[MEMBERS][N], received[N], sum[N];
    static pair sent[MEMBERS][K];
    ty_codec *codecs[MEMBERS] = {NULL};
    uint64_t state = 17, delivered = 0;
    for (int m = 0; m < MEMBERS; m++)
        cr_assert_eq(ty_codec_open(TY_COMPRESSION_TOP_K, N, K, &codecs[m], NULL), TY_OK);
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m < MEMBERS; m++) {
            for (int i = 0; i < N; i++) {
                g[i] = (float)((int)(next_random(&state) % 2001) - 1000) / 1024.0f;
                total[m][i] += g[i];
            }
            ty_codec_encode(codecs[m], g, sent[m]);
        }
        ty_codec_decode(codecs[0], sent, MEMBERS, received);
        for (int i = 0; i < N; i++) {
            sum[i] += received[i];
            delivered += received[i] != 0.0f;
        }
    }
    cr_assert_gt(delivered, STEPS * K / 2);
    for (int i = 0; i < N; i++) {
        float kept = codecs[0]->residual[i] + codecs[1]->residual[i];
        cr_assert_eq(sum[i] + kept, total[0][i] + total[1][i], "element %d", i);
    }
    for (int m = 0; m < MEMBERS; m++)
        ty_codec_close(codecs[m]);
}

Test(codecs, a_foreign_index_is_ignored)
{
    ty_codec *codec = NULL;
    float out[4];
    const pair from_elsewhere[2] = {{2, 1.5f}, {4000000000u, 9.0f}};
    cr_assert_eq(ty_codec_open(TY_COMPRESSION_TOP_K, 4, 2, &codec, NULL), TY_OK);
    ty_codec_decode(codec, from_elsewhere, 1, out);
    cr_assert_arr_eq(out, ((float[]){0, 0, 1.5f, 0}), sizeof out);
    ty_codec_close(codec);
}

Test(codecs, bad_arguments_are_refused)
{
    const struct {
        ty_compression_kind kind;
        uint64_t count, k;
        const char *message;
    } rows[] = {
        {TY_COMPRESSION_NONE, 5, 0, "expected fp16 or top-k"},
        {TY_COMPRESSION_COUNT, 5, 0, "expected fp16 or top-k"},
        {TY_COMPRESSION_FP16, 0, 0, "bucket of 0"},
        {TY_COMPRESSION_TOP_K, 5, 0, "top-k of 0 of 5"},
        {TY_COMPRESSION_TOP_K, 5, 6, "top-k of 6 of 5"},
        {TY_COMPRESSION_TOP_K, (uint64_t)1 << 32, 6, "less than 2^32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_codec *codec = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_codec_open(rows[i].kind, rows[i].count, rows[i].k, &codec, &error),
                     TY_EINVAL, "row %zu", i);
        cr_assert_null(codec);
        cr_assert_not_null(strstr(error.message, rows[i].message), "%s", error.message);
    }
    for (long n = 1; n <= 3; n++) {
        ty_codec *codec = NULL;
        ty_memory_fail_after(n);
        cr_assert_eq(ty_codec_open(TY_COMPRESSION_TOP_K, 10, 2, &codec, NULL), TY_ENOMEM);
        ty_memory_fail_after(0);
    }
}
