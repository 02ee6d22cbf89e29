/* Gradient compressors: number formats against a definition by search, top-k against sorting, and
 * the characteristic property of each kind. */
#include "codec_kinds.h"
#include "crowd.h"

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

/* The nearest half, ties to even, by testing the neighbors of a value rounded down. */
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
    above = (high == 0x7c00 ? 65536 : half_value(high)) - x; /* infinity counts as 2^16 */
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

/* ---- Collectives among members of one process ---------------------------------------------- */

enum { MOST_MEMBERS = 4 };

typedef struct crowd {
    uint32_t count;
    ty_codec *codecs[MOST_MEMBERS];
} crowd;

static crowd crowd_open(const char *spec, uint64_t count, uint32_t members,
                        const ty_bucket_matrix *matrices, uint32_t matrix_count)
{
    crowd c = {.count = members};
    ty_error error = {0};
    ty_codec_options o = {.count = count,
                          .member_count = members,
                          .seed = 42,
                          .matrices = matrices,
                          .matrix_count = matrix_count};

    cr_assert_eq(ty_compression_parse(spec, &o.compression, &error), TY_OK, "%s", error.message);
    for (o.position = 0; o.position < members; o.position++)
        cr_assert_eq(ty_codec_open(&o, &c.codecs[o.position], &error), TY_OK, "%s: %s", spec,
                     error.message);
    return c;
}

static void crowd_close(crowd *c)
{
    for (uint32_t m = 0; m < c->count; m++)
        ty_codec_close(c->codecs[m]);
}

static void crowd_exchange(crowd *c, uint32_t phase)
{
    ty_collective_options e[MOST_MEMBERS];

    for (uint32_t m = 0; m < c->count; m++)
        e[m] = ty_codec_exchange(c->codecs[m], phase);
    exchange_run(e, c->count);
}

/* One step: decoded[m] is member m's result from all gradients. */
static void crowd_step(crowd *c, float *const *gradients, float *const *decoded)
{
    for (uint32_t p = 0; p < ty_compression_phases(&c->codecs[0]->options.compression); p++) {
        for (uint32_t m = 0; m < c->count; m++)
            ty_codec_encode(c->codecs[m], p, gradients[m]);
        crowd_exchange(c, p);
    }
    for (uint32_t m = 0; m < c->count; m++)
        ty_codec_decode(c->codecs[m], decoded[m]);
}

/* Gradients of similar sizes and either sign, some tiny. */
static void fill(uint64_t count, float *values, uint64_t *state)
{
    for (uint64_t i = 0; i < count; i++) {
        float share = (float)(int32_t)(next_random(state) >> 32) * 0x1p-31f;
        values[i] = share * share * share * (i % 7 == 0 ? 1e-3f : 1.0f);
    }
}

static float **rows_new(uint32_t rows, uint64_t count)
{
    float **all = ty_alloc(rows, sizeof *all);
    for (uint32_t r = 0; r < rows; r++)
        all[r] = ty_alloc(count, sizeof **all);
    return all;
}

static void rows_free(float **all, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        ty_free(all[r]);
    ty_free(all);
}

static const char *const every_spec[] = {/* and rows, below */
                                         "fp16",         "bf16",      "fp8-e4m3",
                                         "fp8-e5m2",     "int8",      "ternary",
                                         "one-bit",      "top-k:0.1", "top-k-sampled:0.1",
                                         "random-k:0.1", "dgc:0.1",   "dgc:0.1:3:0.5",
                                         "powersgd-2"};
enum { SPECS = sizeof every_spec / sizeof *every_spec };

/* ---- All kinds --------------------------------------------------------------------------- */

static uint64_t encoded_digest(const float *values, uint64_t count)
{
    uint64_t hash = 1469598103934665603u;
    for (uint64_t i = 0; i < count; i++)
        hash = (hash ^ bits_of_float(values[i])) * 1099511628211u;
    return hash;
}

/* All members decode the same bits, a second run repeats the first, and state and payload have the
 * planned sizes. */
Test(codecs, members_agree_and_memory_is_as_planned)
{
    enum { STEPS = 4 };
    const uint64_t sizes[] = {1, 31, 513, 4800, 10007};
    for (int s = 0; s < SPECS; s++)
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            for (uint32_t members = 2; members <= MOST_MEMBERS; members++) {
                const uint64_t count = sizes[n];
                const ty_bucket_matrix matrix = {0, 60, count / 60};
                float **in = rows_new(members, count), **out = rows_new(members, count);
                uint64_t digests[2][STEPS];
                for (int run = 0; run < 2; run++) {
                    crowd c = crowd_open(every_spec[s], count, members, &matrix, count >= 60);
                    const ty_compression *k = &c.codecs[0]->options.compression;
                    uint64_t state = 7;
                    cr_assert_eq(ty_codec_memory_bytes(c.codecs[0]),
                                 ty_compression_state_bytes(k, &c.codecs[0]->extent, members) +
                                     ty_compression_payload_bytes(k, &c.codecs[0]->extent, members),
                                 "%s of %lu among %u", every_spec[s], count, members);
                    for (int step = 0; step < STEPS; step++) {
                        for (uint32_t m = 0; m < members; m++)
                            fill(count, in[m], &state);
                        crowd_step(&c, in, out);
                        for (uint32_t m = 1; m < members; m++)
                            cr_assert_arr_eq(out[m], out[0], count * sizeof(float),
                                             "%s of %lu: member %u", every_spec[s], count, m);
                        digests[run][step] = encoded_digest(out[0], count);
                    }
                    crowd_close(&c);
                }
                cr_assert_arr_eq(digests[0], digests[1], sizeof digests[0], "%s", every_spec[s]);
                rows_free(in, members);
                rows_free(out, members);
            }
}

Test(codecs, bytes_are_those_of_the_plan)
{
    enum { COUNT = 6000, MEMBERS = 3 };
    const ty_bucket_matrix matrix = {0, 60, 100};
    float **in = rows_new(MEMBERS, COUNT), **out = rows_new(MEMBERS, COUNT);
    for (int s = 0; s < SPECS; s++) {
        crowd c = crowd_open(every_spec[s], COUNT, MEMBERS, &matrix, 1);
        const ty_compression *k = &c.codecs[0]->options.compression;
        for (uint32_t step = 0; step < 5; step++) {
            crowd_step(&c, in, out);
            for (uint32_t p = 0; p < ty_compression_phases(k); p++) {
                ty_collective_options e = ty_codec_exchange(c.codecs[1], p);
                uint64_t planned = ty_compression_wire_bytes(k, &c.codecs[0]->extent, MEMBERS, p);
                uint64_t bytes = exchange_part_bytes(&e) * (e.kind == TY_ALL_TO_ALL ? MEMBERS : 1);
                cr_assert_eq(e.kind, ty_compression_collective(k, p));
                if (step < k->warmup_steps)
                    cr_assert_gt(bytes, planned, "%s warms up", every_spec[s]);
                else
                    cr_assert_eq(bytes, planned, "%s, phase %u", every_spec[s], p);
            }
        }
        crowd_close(&c);
    }
    rows_free(in, MEMBERS);
    rows_free(out, MEMBERS);
}

/* Non-finite values must be preserved, so that a diverging run is detected. */
Test(codecs, zeros_stay_zeros_and_nan_is_passed_on)
{
    enum { COUNT = 4800 };
    const ty_bucket_matrix matrix = {0, 60, 80};
    float *in[2] = {ty_alloc(COUNT, sizeof(float)), ty_alloc(COUNT, sizeof(float))};
    float **out = rows_new(2, COUNT);
    for (int s = 0; s < SPECS; s++) {
        crowd c = crowd_open(every_spec[s], COUNT, 2, &matrix, 1);
        uint64_t seen = 0;
        memset(in[1], 0, COUNT * sizeof(float));
        for (int step = 0; step < 3; step++) {
            crowd_step(&c, in, out);
            for (int i = 0; i < COUNT; i++)
                cr_assert(out[0][i] == 0.0f, "%s: element %d is %g", every_spec[s], i,
                          (double)out[0][i]);
        }
        for (int i = 0; i < COUNT; i++)
            in[1][i] = i % 5 == 0 ? NAN : 1.0f;
        crowd_step(&c, in, out);
        for (int i = 0; i < COUNT; i++)
            seen += isnan(out[0][i]);
        cr_assert_gt(seen, 0, "%s", every_spec[s]);
        crowd_close(&c);
    }
    ty_free(in[0]);
    ty_free(in[1]);
    rows_free(out, 2);
}

/* ---- Formats ----------------------------------------------------------------------------- */

Test(codecs, casts_lose_no_more_than_their_rounding)
{
    enum { COUNT = 3000, MEMBERS = 3 };
    const struct {
        const char *spec;
        double relative; /* half a unit in the last place, in groups that of the largest */
    } rows[] = {{"fp16", 0x1p-11}, {"bf16", 0x1p-8}, {"fp8-e4m3", 0x1p-4}, {"fp8-e5m2", 0x1p-3}};
    float **in = rows_new(MEMBERS, COUNT), **out = rows_new(MEMBERS, COUNT);
    uint64_t state = 3;
    for (uint32_t m = 0; m < MEMBERS; m++)
        fill(COUNT, in[m], &state);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        crowd c = crowd_open(rows[r].spec, COUNT, MEMBERS, NULL, 0);
        crowd_step(&c, in, out);
        for (int i = 0; i < COUNT; i++) {
            double sum = 0, magnitudes = 0;
            for (uint32_t m = 0; m < MEMBERS; m++) {
                sum += (double)in[m][i];
                magnitudes += fabs((double)in[m][i]);
            }
            /* Intermediate sums are also rounded, once per member; subnormals add less than 2^-10
             * of the largest. */
            cr_assert(fabs((double)out[0][i] - sum) <=
                          MEMBERS * rows[r].relative * magnitudes + 0x1p-16,
                      "%s: element %d is %g, expected %g", rows[r].spec, i, (double)out[0][i], sum);
        }
        crowd_close(&c);
    }
    rows_free(in, MEMBERS);
    rows_free(out, MEMBERS);
}

Test(codecs, floats_round_to_the_nearest_bfloat)
{
    uint64_t state = 11;
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)next_random(&state), low = bits & 0xffffu, up;
        float value = float_of_bits(bits);
        uint16_t bfloat;
        if (isnan(value))
            continue;
        bfloat_from_float(1, &value, &bfloat);
        up = low > 0x8000u || (low == 0x8000u && (bits >> 16 & 1));
        cr_assert_eq(bfloat, (bits >> 16) + up, "%08x became %04x", bits, bfloat);
    }
}

/* ---- Unbiasedness ------------------------------------------------------------------------ */

/* The mean of many steps with the same gradients converges to them as 1 / sqrt(steps): within 5
 * standard errors everywhere, by the variance of the rounding. Ternary is unbiased for unclipped
 * values: magnitudes here are so even that none reaches 2.5 deviations. */
Test(codecs, stochastic_rounding_is_unbiased)
{
    enum { COUNT = 700, STEPS = 3000 };
    const struct {
        const char *spec;
        double steps_to_scale; /* distance of two levels, of the largest magnitude */
    } rows[] = {{"int8", 1.0 / 127}, {"ternary", 1}};
    float *in[1] = {ty_alloc(COUNT, sizeof(float))}, *out[1] = {ty_alloc(COUNT, sizeof(float))};
    for (int i = 0; i < COUNT; i++)
        in[0][i] = (i % 2 == 0 ? 1.0f : -1.0f) * (0.3f + 0.7f * (float)(i % 97) / 97.0f);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        crowd c = crowd_open(rows[r].spec, COUNT, 1, NULL, 0);
        double sums[COUNT] = {0};
        for (int step = 0; step < STEPS; step++) {
            crowd_step(&c, in, out);
            for (int i = 0; i < COUNT; i++)
                sums[i] += (double)out[0][i];
        }
        for (int i = 0; i < COUNT; i++) {
            /* A value between two levels: the variance is at most a quarter of their distance's
             * square; of ternary's, at most the square of the scale's half. */
            double limit = 5 * 0.5 * rows[r].steps_to_scale / sqrt(STEPS);
            cr_assert(fabs(sums[i] / STEPS - (double)in[0][i]) <= limit,
                      "%s: the mean of element %d is %g, expected %g within %g", rows[r].spec, i,
                      sums[i] / STEPS, (double)in[0][i], limit);
        }
        crowd_close(&c);
    }
    ty_free(in[0]);
    ty_free(out[0]);
}

/* ---- Error feedback ---------------------------------------------------------------------- */

/* The sum of all members' residuals: the error arrays, by kind. */
static double kept_of(const crowd *c, uint64_t element)
{
    double sum = 0;
    for (uint32_t m = 0; m < c->count; m++) {
        const ty_codec *codec = c->codecs[m];
        if (codec->options.compression.kind == TY_COMPRESSION_DGC) {
            sum += (double)codec->arrays[1][element];
            continue;
        }
        sum += (double)codec->arrays[0][element];
        if (codec->options.compression.kind == TY_COMPRESSION_ONE_BIT) {
            uint64_t part = ty_one_bit_part(codec->options.count, c->count);
            if (element / part == m)
                sum += (double)codec->arrays[1][element % part];
        }
    }
    return sum;
}

/* Sent values and residuals add up to the input, step after step. */
Test(codecs, error_feedback_conserves_every_element)
{
    enum { ROWS = 50, COLUMNS = 60, COUNT = ROWS * COLUMNS, STEPS = 40, MEMBERS = 3 };
    static const char *const specs[] = {"top-k:0.05", "top-k-sampled:0.05", "random-k:0.05",
                                        "dgc:0.05",   "dgc:0.05:20",        "one-bit",
                                        "powersgd-2"};
    const ty_bucket_matrix matrix = {0, ROWS, COLUMNS};
    float **in = rows_new(MEMBERS, COUNT), **out = rows_new(MEMBERS, COUNT);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        crowd c = crowd_open(specs[s], COUNT, MEMBERS, &matrix, 1);
        double *went_in = ty_alloc(COUNT, sizeof *went_in), *came = ty_alloc(COUNT, sizeof *came);
        uint64_t state = 17;
        cr_assert(ty_compression_has_feedback(&c.codecs[0]->options.compression));
        for (int step = 0; step < STEPS; step++) {
            for (uint32_t m = 0; m < MEMBERS; m++) {
                fill(COUNT, in[m], &state);
                for (int i = 0; i < COUNT; i++)
                    went_in[i] += (double)in[m][i];
            }
            crowd_step(&c, in, out);
            for (int i = 0; i < COUNT; i++)
                came[i] += (double)out[0][i];
        }
        for (int i = 0; i < COUNT; i++)
            cr_assert(fabs(came[i] + kept_of(&c, (uint64_t)i) - went_in[i]) < 2e-4,
                      "%s: element %d: %g came and %g is kept of %g", specs[s], i, came[i],
                      kept_of(&c, (uint64_t)i), went_in[i]);
        ty_free(went_in);
        ty_free(came);
        crowd_close(&c);
    }
    rows_free(in, MEMBERS);
    rows_free(out, MEMBERS);
}

/* A compressor with contraction delta loses at most the share 1 - delta of the square of its input:
 * k / n for the k largest, in expectation for random ones, |x|_1^2 / (n |x|_2^2) of each group for
 * signs. */
Test(codecs, error_feedback_contracts)
{
    enum { COUNT = 1024, STEPS = 200 };
    const char *const specs[] = {"top-k:0.1", "random-k:0.1", "one-bit"};
    float *in[1] = {ty_alloc(COUNT, sizeof(float))}, *out[1] = {ty_alloc(COUNT, sizeof(float))};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        double mean = 0, delta = 102.0 / 1024;
        uint64_t state = 23;
        for (int step = 0; step < STEPS; step++) {
            crowd c = crowd_open(specs[s], COUNT, 1, NULL, 0);
            double all = 0, lost = 0, magnitudes = 0, limit;
            for (int again = 0; again <= step % 9; again++) /* another draw of random-k */
                crowd_step(&c, in, out);
            for (uint32_t a = 0; a < 2; a++)
                if (c.codecs[0]->arrays[a] != NULL)
                    memset(c.codecs[0]->arrays[a], 0, c.codecs[0]->array_counts[a] * sizeof(float));
            fill(COUNT, in[0], &state);
            crowd_step(&c, in, out);
            for (int i = 0; i < COUNT; i++) {
                double x = (double)in[0][i], e = (double)out[0][i] - x;
                all += x * x;
                lost += e * e;
                magnitudes += fabs(x);
            }
            if (s == 2)
                delta = magnitudes * magnitudes / (COUNT * all);
            limit = (1 - delta) * all * (1 + 1e-5);
            mean += lost / all / STEPS;
            cr_assert(s == 1 || lost <= limit, "%s lost %g, at most %g", specs[s], lost, limit);
            crowd_close(&c);
        }
        if (s == 1)
            cr_assert(fabs(mean - (1 - delta)) < 0.02, "random-k lost %g on average", mean);
    }
    ty_free(in[0]);
    ty_free(out[0]);
}

/* ---- Momentum ---------------------------------------------------------------------------- */

/* Deep gradient compression sends the clipped gradient in the first step; the residual is the sum
 * of velocities. */
Test(codecs, dgc_takes_momentum_and_clips)
{
    enum { COUNT = 100 };
    ty_codec_options o = {.compression = {.kind = TY_COMPRESSION_DGC, .ratio = 1},
                          .count = COUNT,
                          .member_count = 1,
                          .momentum = 0.5};
    float in[COUNT], out[COUNT];
    ty_codec *codec = NULL;
    double norm = 0;
    uint64_t state = 5;
    fill(COUNT, in, &state);
    for (int i = 0; i < COUNT; i++)
        norm += (double)in[i] * (double)in[i];
    for (int clipped = 0; clipped < 2; clipped++) {
        double scale = clipped ? 0.25 : 1;
        o.compression.clip_norm = clipped ? 0.25 * sqrt(norm) : 0;
        cr_assert_eq(ty_codec_open(&o, &codec, NULL), TY_OK);
        ty_codec_encode(codec, 0, in);
        ty_codec_decode(codec, out);
        for (int i = 0; i < COUNT; i++) {
            double expected = out[i] == 0.0f ? 0 : scale * (double)in[i];
            cr_assert(fabs((double)out[i] - expected) <= 1e-6, "element %d", i);
            /* Velocities of sent elements restart from 0. */
            cr_assert((out[i] == 0.0f) == (codec->arrays[0][i] != 0.0f), "element %d", i);
        }
        ty_codec_close(codec);
    }
    /* If almost nothing is sent, the residual is a sum of velocities: after 3 steps 1 + 1.5 +
     * 1.75. */
    o.compression = (ty_compression){.kind = TY_COMPRESSION_DGC, .ratio = 0.01};
    cr_assert_eq(ty_codec_open(&o, &codec, NULL), TY_OK);
    for (int step = 0; step < 3; step++)
        ty_codec_encode(codec, 0, in);
    uint64_t untouched = 0;
    for (int i = 0; i < COUNT; i++)
        untouched += fabs((double)codec->arrays[1][i] - 4.25 * (double)in[i]) < 1e-5;
    cr_assert_geq(untouched, COUNT - 3);
    ty_codec_close(codec);
}

/* ---- PowerSGD ---------------------------------------------------------------------------- */

enum { TALL = 40, WIDE_SIDE = 70, RANK = 3 };

/* The members' sum has rank 3: each member's matrix has rank 3 with the same columns. */
static void fill_low_rank(float *values, const float *columns, uint64_t *state)
{
    for (int r = 0; r < TALL; r++) {
        float weights[RANK];
        fill(RANK, weights, state);
        for (int c = 0; c < WIDE_SIDE; c++) {
            float sum = 0;
            for (int k = 0; k < RANK; k++)
                sum += weights[k] * columns[k * WIDE_SIDE + c];
            values[r * WIDE_SIDE + c] = sum;
        }
    }
}

Test(codecs, powersgd_is_exact_for_its_rank)
{
    enum { VECTOR = 11, COUNT = VECTOR + TALL * WIDE_SIDE + VECTOR, MEMBERS = 2 };
    const ty_bucket_matrix matrix = {VECTOR, TALL, WIDE_SIDE};
    float **in = rows_new(MEMBERS, COUNT), **out = rows_new(MEMBERS, COUNT);
    float columns[RANK * WIDE_SIDE];
    crowd c = crowd_open("powersgd-3", COUNT, MEMBERS, &matrix, 1);
    uint64_t state = 31;

    fill(RANK * WIDE_SIDE, columns, &state);
    for (int step = 0; step < 3; step++) {
        const float *p = c.codecs[0]->payloads[0];
        for (uint32_t m = 0; m < MEMBERS; m++) {
            fill(COUNT, in[m], &state);
            fill_low_rank(in[m] + VECTOR, columns, &state);
        }
        crowd_step(&c, in, out);
        for (int a = 0; a < RANK; a++)
            for (int b = 0; b <= a; b++) {
                double product = 0;
                for (int i = 0; i < TALL; i++)
                    product += (double)p[a * TALL + i] * (double)p[b * TALL + i];
                cr_assert(fabs(product - (a == b)) < 1e-5, "step %d: P%d.P%d = %g", step, a, b,
                          product);
            }
        for (int i = 0; i < COUNT; i++)
            cr_assert(fabs((double)out[0][i] - ((double)in[0][i] + (double)in[1][i])) < 1e-5,
                      "step %d: element %d is %g, expected %g", step, i, (double)out[0][i],
                      (double)in[0][i] + (double)in[1][i]);
        /* Members' residuals cancel; the next step would add them. */
        for (uint32_t m = 0; m < MEMBERS; m++)
            memset(c.codecs[m]->arrays[0], 0, TALL * WIDE_SIDE * sizeof(float));
    }
    crowd_close(&c);
    rows_free(in, MEMBERS);
    rows_free(out, MEMBERS);
}

/* The warm start is a subspace iteration: repeated on one matrix it converges to the best rank-2
 * approximation. For a diagonal matrix these are its two largest elements. */
Test(codecs, powersgd_finds_the_best_approximation)
{
    enum { SIDE = 30 };
    const ty_bucket_matrix matrix = {0, SIDE, SIDE};
    float *in[1] = {ty_alloc(SIDE * SIDE, sizeof(float))};
    float *out[1] = {ty_alloc(SIDE * SIDE, sizeof(float))};
    crowd c = crowd_open("powersgd-2", SIDE * SIDE, 1, &matrix, 1);

    for (int i = 0; i < SIDE; i++)
        in[0][i * SIDE + i] = i == 7 ? 5.0f : i == 20 ? 3.0f : 0.5f;
    for (int step = 0; step < 20; step++) {
        memset(c.codecs[0]->arrays[0], 0, SIDE * SIDE * sizeof(float)); /* no feedback */
        crowd_step(&c, in, out);
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        double expected = i == 7 * SIDE + 7 ? 5 : i == 20 * SIDE + 20 ? 3 : 0;
        cr_assert(fabs((double)out[0][i] - expected) < 1e-4, "element %d is %g", i,
                  (double)out[0][i]);
    }
    crowd_close(&c);
    ty_free(in[0]);
    ty_free(out[0]);
}

/* ---- Top-k ------------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b)
{
    const codec_pair *x = a, *y = b;
    float p = fabsf(x->value), q = fabsf(y->value);
    if (p != q)
        return p > q ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int index_first(const void *a, const void *b)
{
    const codec_pair *x = a, *y = b;
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

static void check_top_k(uint64_t n, double ratio, filling how, uint64_t *state)
{
    ty_codec_options o = {.compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = ratio},
                          .count = n,
                          .member_count = 1};
    uint64_t k = ty_compression_kept(&o.compression, n);
    float *g = calloc(n, sizeof *g);
    codec_pair *expected = calloc(n, sizeof *expected);
    const codec_pair *sent;
    ty_codec *codec = NULL;

    cr_assert_eq(ty_codec_open(&o, &codec, NULL), TY_OK);
    for (uint64_t i = 0; i < n; i++)
        expected[i] = (codec_pair){(uint32_t)i, g[i] = element(how, state)};
    qsort(expected, n, sizeof *expected, larger_first);
    qsort(expected, k, sizeof *expected, index_first);
    ty_codec_encode(codec, 0, g);
    sent = codec->payloads[0];
    cr_assert_eq(ty_codec_exchange(codec, 0).count, 8 * k);
    for (uint64_t i = 0; i < k; i++)
        cr_assert(sent[i].index == expected[i].index && sent[i].value == expected[i].value,
                  "%lu of %lu, filling %d, pair %lu: (%u, %g), expected (%u, %g)", k, n, (int)how,
                  i, sent[i].index, (double)sent[i].value, expected[i].index,
                  (double)expected[i].value);
    ty_codec_close(codec);
    free(g);
    free(expected);
}

Test(codecs, top_k_equals_sorting)
{
    const uint64_t sizes[] = {1, 2, 15, 16, 17, 100, 1000, 4097, 20000};
    const double ratios[] = {1e-9, 0.01, 0.5, 1};
    uint64_t state = 4711;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (filling how = NORMAL; how < FILLINGS; how++)
            for (int part = 0; part < 4; part++)
                check_top_k(sizes[s], ratios[part], how, &state);
}

/* A sampled threshold sends at least 80 % of k and never more than k, none of them smaller than the
 * residuals. */
Test(codecs, sampled_top_k_sends_the_largest)
{
    enum { COUNT = 50000 };
    float *in[1] = {ty_alloc(COUNT, sizeof(float))}, *out[1] = {ty_alloc(COUNT, sizeof(float))};
    uint64_t state = 77;
    for (filling how = NORMAL; how < FILLINGS; how++) {
        crowd c = crowd_open("top-k-sampled:0.01", COUNT, 1, NULL, 0);
        uint64_t sent = 0;
        double least = INFINITY, largest_kept = 0;
        for (int i = 0; i < COUNT; i++)
            in[0][i] = element(how, &state);
        crowd_step(&c, in, out);
        for (int i = 0; i < COUNT; i++) {
            const codec_pair *pairs = c.codecs[0]->payloads[0];
            if (i < COUNT / 100 && pairs[i].index != CODEC_NO_INDEX) {
                sent++;
                least = fmin(least, fabs((double)pairs[i].value));
            }
            largest_kept = fmax(largest_kept, fabs((double)c.codecs[0]->arrays[0][i]));
        }
        cr_assert_leq(sent, COUNT / 100);
        cr_assert_geq(sent, COUNT / 125, "filling %d: %lu", (int)how, sent);
        cr_assert_geq(least, largest_kept, "filling %d", (int)how);
        crowd_close(&c);
    }
    ty_free(in[0]);
    ty_free(out[0]);
}

/* Members draw the same indices, each about equally often. */
Test(codecs, random_places_are_shared_and_even)
{
    enum { COUNT = 1000, STEPS = 2000 };
    float **in = rows_new(2, COUNT), **out = rows_new(2, COUNT);
    crowd c = crowd_open("random-k:0.1", COUNT, 2, NULL, 0);
    uint32_t times[COUNT] = {0};
    for (int step = 0; step < STEPS; step++) {
        uint64_t places = 0;
        for (int i = 0; i < COUNT; i++)
            in[0][i] = in[1][i] = 1.0f;
        crowd_step(&c, in, out);
        for (int i = 0; i < COUNT; i++) {
            times[i] += out[0][i] > 0;
            places += out[0][i] > 0;
        }
        cr_assert_eq(places, COUNT / 10);
    }
    for (int i = 0; i < COUNT; i++) /* 200 +- 5 times sqrt(180) */
        cr_assert(times[i] > 133 && times[i] < 267, "element %d was sent %u times", i, times[i]);
    crowd_close(&c);
    rows_free(in, 2);
    rows_free(out, 2);
}

/* ---- Rows -------------------------------------------------------------------------------- */

typedef struct table {
    uint64_t rows, columns, dense, tokens; /* dense: numbers after the matrix */
} table;

static crowd rows_open(const table *t, uint32_t members)
{
    const ty_bucket_matrix matrix = {0, t->rows, t->columns};
    crowd c = {.count = members};
    ty_codec_options o = {.compression.kind = TY_COMPRESSION_ROWS,
                          .count = t->rows * t->columns + t->dense,
                          .member_count = members,
                          .matrices = &matrix,
                          .matrix_count = 1,
                          .row_room = t->tokens < t->rows ? t->tokens : t->rows};
    ty_error error = {0};

    for (o.position = 0; o.position < members; o.position++)
        cr_assert_eq(ty_codec_open(&o, &c.codecs[o.position], &error), TY_OK, "%s", error.message);
    return c;
}

/* An embedding's gradient after backward: each token's gradient is added to its row and may be
 * zero; every position row has a gradient. */
static void touch(const table *t, float *gradients, uint64_t *state)
{
    const uint64_t matrix = t->rows * t->columns;

    memset(gradients, 0, matrix * sizeof *gradients);
    for (uint64_t i = 0; i < t->tokens; i++) {
        const uint64_t row = next_random(state) % t->rows, column = next_random(state) % t->columns;
        const float value = (float)(next_random(state) % 9) - 4.0f;
        gradients[row * t->columns + column] += value;
        if (i % 3 == 0)
            gradients[row * t->columns + t->columns - 1] -= value;
    }
    for (uint64_t i = 0; i < t->dense; i++)
        gradients[matrix + i] = (float)(next_random(state) % 64) - 32.0f;
}

/* Small integers, whose sums are exact in any order: the decoded values are the exact sum. */
Test(codecs, rows_are_summed_exactly)
{
    static const table tables[] = {{1, 1, 0, 1},      {5, 3, 2, 2},     {7, 64, 0, 7},
                                   {40, 65, 130, 11}, {33, 200, 5, 90}, {1000, 16, 0, 1}};
    uint64_t state = 11;

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (uint32_t members = 1; members <= MOST_MEMBERS; members++) {
            const table *t = &tables[i];
            const uint64_t count = t->rows * t->columns + t->dense;
            float **in = rows_new(members, count), **out = rows_new(members, count);
            float *sum = ty_alloc(count, sizeof *sum);
            crowd c = rows_open(t, members);
            const ty_gradient_extent *extent = &c.codecs[0]->extent;
            const ty_compression *k = &c.codecs[0]->options.compression;
            cr_assert_eq(ty_codec_memory_bytes(c.codecs[0]),
                         ty_compression_payload_bytes(k, extent, members));
            for (int step = 0; step < 5; step++) {
                memset(sum, 0, count * sizeof *sum);
                for (uint32_t m = 0; m < members; m++) {
                    touch(t, in[m], &state);
                    codec_add(count, in[m], sum);
                    fill(count, out[m], &state); /* decode overwrites */
                }
                crowd_step(&c, in, out);
                for (uint32_t m = 0; m < members; m++)
                    for (uint64_t e = 0; e < count; e++)
                        cr_assert(out[m][e] == sum[e],
                                  "table %zu, member %u of %u, element %lu: "
                                  "%g, expected %g",
                                  i, m, members, e, (double)out[m][e], (double)sum[e]);
                cr_assert_eq(ty_codec_exchange(c.codecs[0], 0).count,
                             ty_compression_wire_bytes(k, extent, members, 0));
            }
            crowd_close(&c);
            ty_free(sum);
            rows_free(in, members);
            rows_free(out, members);
        }
}

/* A touched row whose gradient is zero takes no slot. A row with NaN, or with minus zero and one
 * other number, takes one. Indices ascend, and unused slots have none. */
Test(codecs, rows_that_are_zero_stay_at_home)
{
    const table t = {6, 70, 0, 4};
    crowd c = rows_open(&t, 1);
    float *gradients = ty_alloc(420, sizeof *gradients);
    const uint32_t *indices = c.codecs[0]->payloads[0];

    gradients[5 * 70 + 69] = 1e-45f;
    gradients[1 * 70] = -0.0f;
    gradients[2 * 70 + 40] = NAN;
    ty_codec_encode(c.codecs[0], 0, gradients);
    cr_expect_arr_eq(indices, ((uint32_t[]){2, 5, CODEC_NO_INDEX, CODEC_NO_INDEX}), 16);
    ty_codec_decode(c.codecs[0], gradients);
    cr_expect(isnan(gradients[2 * 70 + 40]) && gradients[2 * 70] == 0.0f);
    cr_expect_eq(gradients[5 * 70 + 69], 1e-45f);
    ty_free(gradients);
    crowd_close(&c);
}

/* More rows than a step's tokens touch can only be a mistake, which is detected before memory is
 * overrun. */
Test(codecs, rows_without_room_are_seen)
{
    const table t = {6, 3, 1, 2};
    crowd c = rows_open(&t, 2);
    float *gradients[2] = {ty_alloc(19, sizeof(float)), ty_alloc(19, sizeof(float))};

    for (int i = 0; i < 18; i++)
        gradients[0][i] = 1.0f;
    crowd_step(&c, gradients, gradients);
    cr_expect(isnan(gradients[0][0]) && isnan(gradients[1][0]));
    cr_expect_eq(gradients[0][18], 0.0f);
    ty_free(gradients[0]);
    ty_free(gradients[1]);
    crowd_close(&c);
}

Test(codecs, foreign_rows_are_ignored)
{
    const table t = {3, 2, 0, 2};
    crowd c = rows_open(&t, 1);
    uint32_t *indices = c.codecs[0]->payloads[0];
    float out[6], values[4] = {9.0f, 9.0f, 1.5f, 2.5f};

    indices[0] = 3;
    indices[1] = 1;
    memcpy(indices + 2, values, sizeof values);
    ty_codec_decode(c.codecs[0], out);
    cr_expect_arr_eq(out, ((float[]){0, 0, 1.5f, 2.5f, 0, 0}), sizeof out);
    crowd_close(&c);
}

Test(codecs, a_foreign_index_is_ignored)
{
    ty_codec_options o = {
        .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.5}, .count = 4, .member_count = 1};
    ty_codec *codec = NULL;
    float out[4];
    const codec_pair from_elsewhere[2] = {{2, 1.5f}, {4000000000u, 9.0f}};
    cr_assert_eq(ty_codec_open(&o, &codec, NULL), TY_OK);
    memcpy(codec->payloads[0], from_elsewhere, sizeof from_elsewhere);
    ty_codec_decode(codec, out);
    cr_assert_arr_eq(out, ((float[]){0, 0, 1.5f, 0}), sizeof out);
    ty_codec_close(codec);
}

Test(codecs, bad_arguments_are_refused)
{
    const struct {
        ty_codec_options options;
        const char *message;
    } rows[] = {
        {{.count = 5, .member_count = 1}, "expected a compressor"},
        {{.compression = {.kind = TY_COMPRESSION_COUNT}, .count = 5, .member_count = 1},
         "expected one of the"},
        {{.compression = {.kind = TY_COMPRESSION_FP16}, .member_count = 1}, "bucket of 0"},
        {{.compression = {.kind = TY_COMPRESSION_TOP_K}, .count = 5, .member_count = 1},
         "found ratio 0 for top-k"},
        {{.compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 65},
          .count = 5,
          .member_count = 1},
         "found rank 65"},
        {{.compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.5},
          .count = (uint64_t)1 << 32,
          .member_count = 1},
         "less than 2^32"},
        {{.compression = {.kind = TY_COMPRESSION_INT8},
          .count = 5,
          .member_count = 2,
          .position = 2},
         "member 2 of 2"},
        {{.compression = {.kind = TY_COMPRESSION_ROWS}, .count = 5, .member_count = 1},
         "found no matrix for rows"},
        {{.compression = {.kind = TY_COMPRESSION_ROWS},
          .count = 6,
          .member_count = 1,
          .matrices = &(ty_bucket_matrix){0, 3, 2},
          .matrix_count = 1},
         "found room for 0 rows, expected 1 to 3"},
        {{.compression = {.kind = TY_COMPRESSION_ROWS},
          .count = 6,
          .member_count = 1,
          .matrices = &(ty_bucket_matrix){0, 3, 2},
          .matrix_count = 1,
          .row_room = 4},
         "found room for 4 rows, expected 1 to 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_codec *codec = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_codec_open(&rows[i].options, &codec, &error), TY_EINVAL, "row %zu", i);
        cr_assert_null(codec);
        cr_assert_not_null(strstr(error.message, rows[i].message), "%s", error.message);
    }
    for (int s = 0; s < SPECS; s++) {
        ty_codec_options o = {.count = 4800,
                              .member_count = 2,
                              .matrices = &(ty_bucket_matrix){0, 60, 80},
                              .matrix_count = 1};
        ty_status status = TY_ENOMEM;
        cr_assert_eq(ty_compression_parse(every_spec[s], &o.compression, NULL), TY_OK);
        for (long n = 1; status != TY_OK; n++) {
            ty_codec *codec = NULL;
            ty_memory_fail_after(n);
            status = ty_codec_open(&o, &codec, NULL);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || (status == TY_ENOMEM && codec == NULL));
            ty_codec_close(codec);
        }
    }
}
