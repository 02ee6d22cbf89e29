/* Compressors: the same members with the same gradients on the CPU and on the GPU. Payloads,
 * decoded gradients and residuals must be equal, bit for bit; PowerSGD's sums have another order.
 * Tests of the CPU cover the properties of compressors (tests/execute/test_codecs.c). This file
 * repeats them where bits may differ. */
#include "gpu_cases.h"

#include "../execute/crowd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MEMBERS = 3, MATRICES = 3, STEPS = 4 };

static const struct {
    const char *name, *spec;
    double tolerance; /* of a vector's norm; 0: bits. See docs/guides/train-on-gpus.md. */
} kinds[] = {
    {"codec rows", "rows", 0},
    {"codec fp16", "fp16", 0},
    {"codec bf16", "bf16", 0},
    {"codec fp8-e4m3", "fp8-e4m3", 0},
    {"codec fp8-e5m2", "fp8-e5m2", 0},
    {"codec int8", "int8", 0},
    {"codec ternary", "ternary", 0},
    {"codec one-bit", "one-bit", 0},
    {"codec top-k 2 %", "top-k:0.02", 0},
    {"codec top-k of all", "top-k:1", 0},
    {"codec top-k-sampled", "top-k-sampled:0.01", 0},
    {"codec top-k-sampled, half", "top-k-sampled:0.5", 0},
    {"codec random-k", "random-k:0.1", 0},
    {"codec dgc", "dgc:0.02", 0},
    {"codec dgc, warm-up", "dgc:0.01:3", 0},
    {"codec dgc, clipped", "dgc:0.1:2:0.5", 0},
    {"codec powersgd-1", "powersgd-1", 1e-5},
    {"codec powersgd-6", "powersgd-6", 1e-4},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- Members of both sides --------------------------------------------------------------- */

typedef struct twins {
    ty_stage_device *stage;
    ty_compression compression;
    uint64_t count;
    uint32_t members;
    double tolerance;
    ty_bucket_matrix matrices[MATRICES];
    ty_codec_options options;
    ty_codec *own[MOST_MEMBERS], *other[MOST_MEMBERS];
    float *gradients[MOST_MEMBERS], *decoded, *back; /* host */
    float *on_device[MOST_MEMBERS];
} twins;

/* Rows: a matrix of 33 columns and data after it. PowerSGD: one factored matrix, one too small for
 * that, another factored one, and data around them. */
static void matrices_set(twins *t)
{
    ty_codec_options *o = &t->options;

    o->matrices = t->matrices;
    if (t->compression.kind == TY_COMPRESSION_ROWS) {
        const uint64_t columns = t->count > 34 ? 33 : 1;
        t->matrices[0] = (ty_bucket_matrix){0, t->count / (columns + 2) + 1, columns};
        o->matrix_count = 1;
        o->row_room = t->matrices[0].rows / 3 + 1;
    } else if (t->matrices[0].rows > 0) { /* the case's matrix */
        o->matrix_count = 1;
    } else if (t->count >= 2000) {
        t->matrices[0] = (ty_bucket_matrix){5, 31, t->count / 100};
        t->matrices[1] = (ty_bucket_matrix){5 + 31 * (t->count / 100), 3, 4};
        t->matrices[2] = (ty_bucket_matrix){t->count / 2 + 7, t->count / 60, 29};
        o->matrix_count = MATRICES;
    }
}

static bool device_codec_open(twins *t, uint32_t member)
{
    ty_error error = {0};

    t->options.position = member;
    return gpu->memory->codec_open(t->stage, &t->options, &t->other[member], &error) == TY_OK ||
           wrong("%s", error.message);
}

static void twins_close(twins *t)
{
    for (uint32_t m = 0; m < t->members; m++) {
        ty_codec_close(t->own[m]);
        ty_codec_close(t->other[m]);
        gpu->memory->release(t->stage, t->on_device[m]);
        free(t->gradients[m]);
    }
    free(t->decoded);
    free(t->back);
}

static bool twins_open(twins *t)
{
    ty_error error = {0};
    bool is_right = true;

    t->options = (ty_codec_options){.compression = t->compression,
                                    .count = t->count,
                                    .member_count = t->members,
                                    .seed = 42,
                                    .momentum = 0.5};
    matrices_set(t);
    t->decoded = calloc(t->count, sizeof(float));
    t->back = calloc(t->count, sizeof(float));
    for (uint32_t m = 0; m < t->members && is_right; m++) {
        t->gradients[m] = calloc(t->count, sizeof(float));
        t->on_device[m] = gpu->memory->allocate(t->stage, t->count * sizeof(float));
        t->options.position = m;
        is_right =
            ty_codec_open(&t->options, &t->own[m], &error) == TY_OK || wrong("%s", error.message);
        is_right = is_right && device_codec_open(t, m);
    }
    return is_right;
}

/* ---- Gradients --------------------------------------------------------------------------- */

/* Alternates many ties and zeros, sizes from 2^-30 on, groups of zeros, and similar sizes. */
static float element(uint32_t step, uint64_t i, uint64_t *state)
{
    const float value = next_float(state);
    const uint64_t drawn = next_random(state);

    switch (step % 4) {
    case 0:
        return (float)((int)(drawn % 41) - 20) * 0.125f;
    case 1:
        return ldexpf(value, -(int)(drawn % 31));
    case 2:
        return i / 700 % 3 == 0 ? 0.0f : value;
    default:
        return value * value * value;
    }
}

/* Every third row of a table is touched. */
static bool fill(const twins *t, uint32_t step)
{
    const ty_bucket_matrix *table = &t->matrices[0];
    const bool are_rows = t->compression.kind == TY_COMPRESSION_ROWS;
    uint64_t state = 100 * t->count + step;

    for (uint32_t m = 0; m < t->members; m++) {
        for (uint64_t i = 0; i < t->count; i++)
            t->gradients[m][i] = element(step, i, &state);
        for (uint64_t i = 0; are_rows && i < table->rows * table->columns; i++)
            if (i / table->columns % 3 != step % 3)
                t->gradients[m][i] = 0.0f;
        if (!device_write(t->stage, t->on_device[m], t->gradients[m], t->count))
            return false;
    }
    return true;
}

/* ---- A step on either side --------------------------------------------------------------- */

/* Equal bits, or numbers within the tolerance. */
static bool is_equal(const twins *t, const char *what, uint32_t member, const void *found,
                     const void *expected, uint64_t bytes)
{
    const uint64_t floats = bytes / sizeof(float);
    double difference = 0, norm = 0;

    if (t->tolerance == 0)
        return memcmp(found, expected, bytes) == 0 ||
               wrong("%s of member %u of %u differs, %llu elements", what, member, t->members,
                     (unsigned long long)t->count);
    for (uint64_t i = 0; i < floats; i++) {
        float f, e;
        memcpy(&f, (const char *)found + i * sizeof f, sizeof f);
        memcpy(&e, (const char *)expected + i * sizeof e, sizeof e);
        difference += pow((double)f - (double)e, 2);
        norm += pow((double)e, 2);
    }
    return difference <= t->tolerance * t->tolerance * norm ||
           wrong("%s of member %u of %u, %llu elements, differs by %g of %g", what, member,
                 t->members, (unsigned long long)t->count, sqrt(difference), sqrt(norm));
}

/* This member's payload of a phase, on either side. */
static bool payload_compare(const twins *t, uint32_t member, const ty_collective_options *found,
                            const ty_collective_options *expected)
{
    const uint64_t at =
        expected->kind == TY_ALL_GATHER ? member * exchange_part_bytes(expected) : 0;
    const uint64_t bytes =
        expected->kind == TY_ALL_TO_ALL ? exchange_bytes(expected) : exchange_part_bytes(expected);

    if (found->kind != expected->kind || found->count != expected->count ||
        found->element != expected->element || found->member_count != expected->member_count)
        return wrong("%llu elements are exchanged otherwise", (unsigned long long)t->count);
    return is_equal(t, "what is sent", member, (const char *)found->data + at,
                    (const char *)expected->data + at, bytes);
}

/* Options of the devices' members for a phase, in host memory; freed by exchange_end. */
static bool exchange_begin(const twins *t, uint32_t phase, ty_collective_options *out)
{
    ty_error error = {0};
    bool is_right = true;

    for (uint32_t m = 0; m < t->members; m++) {
        out[m] = ty_codec_exchange(t->other[m], phase);
        const void *data = out[m].data;
        out[m].data = calloc(1, exchange_bytes(&out[m]) + 1);
        if (gpu->memory->read(t->stage, out[m].data, data, exchange_bytes(&out[m]), &error) !=
            TY_OK)
            is_right = wrong("%s", error.message);
    }
    return is_right;
}

static bool exchange_end(const twins *t, uint32_t phase, ty_collective_options *e)
{
    ty_error error = {0};
    bool is_right = true;

    for (uint32_t m = 0; m < t->members; m++) {
        void *data = ty_codec_exchange(t->other[m], phase).data;
        if (gpu->memory->write(t->stage, data, e[m].data, exchange_bytes(&e[m]), &error) != TY_OK)
            is_right = wrong("%s", error.message);
        free(e[m].data);
    }
    return is_right;
}

static bool phase_compare(const twins *t, uint32_t phase)
{
    ty_collective_options own[MOST_MEMBERS], other[MOST_MEMBERS];
    ty_error error = {0};
    bool is_right = true;

    for (uint32_t m = 0; m < t->members; m++) {
        ty_codec_encode(t->own[m], phase, t->gradients[m]);
        if (gpu->memory->codec_encode(t->other[m], phase, t->on_device[m], &error) != TY_OK)
            return wrong("%s", error.message);
        own[m] = ty_codec_exchange(t->own[m], phase);
    }
    is_right = exchange_begin(t, phase, other);
    for (uint32_t m = 0; m < t->members && is_right; m++)
        is_right = payload_compare(t, m, &other[m], &own[m]);
    if (is_right) {
        exchange_run(own, t->members);
        exchange_run(other, t->members);
    }
    return exchange_end(t, phase, other) && is_right;
}

/* All members of the device decode the same bits. */
static bool decoded_compare(const twins *t)
{
    const uint64_t bytes = t->count * sizeof(float);
    float *first = malloc(bytes);
    ty_error error = {0};
    bool is_right = true;

    for (uint32_t m = 0; m < t->members && is_right; m++) {
        ty_codec_decode(t->own[m], t->decoded);
        is_right = gpu->memory->codec_decode(t->other[m], t->on_device[m], &error) == TY_OK ||
                   wrong("%s", error.message);
        is_right = is_right && device_read(t->stage, t->on_device[m], t->count, t->back) &&
                   is_equal(t, "what is decoded", m, t->back, t->decoded, bytes);
        if (m == 0)
            memcpy(first, t->back, bytes);
        if (is_right && memcmp(first, t->back, bytes) != 0)
            is_right = wrong("members decode other numbers");
    }
    free(first);
    return is_right;
}

/* ---- State ------------------------------------------------------------------------ */

static bool piece_read(const twins *t, uint32_t piece, const void *data, uint64_t bytes, void *to)
{
    ty_error error = {0};

    if (piece > 0)
        return gpu->memory->read(t->stage, to, data, bytes, &error) == TY_OK ||
               wrong("%s", error.message);
    memcpy(to, data, bytes);
    return true;
}

static bool state_compare(const twins *t, uint32_t member)
{
    bool is_right = true, has_more = true;

    for (uint32_t piece = 0; has_more && is_right; piece++) {
        void *expected = NULL, *found = NULL, *read;
        uint64_t bytes = 0, found_bytes = 0;
        has_more = ty_codec_state(t->own[member], piece, &expected, &bytes);
        if (ty_codec_state(t->other[member], piece, &found, &found_bytes) != has_more ||
            found_bytes != bytes)
            return wrong("piece %u of the state is %llu bytes, expected %llu", piece,
                         (unsigned long long)found_bytes, (unsigned long long)bytes);
        if (!has_more)
            break;
        read = malloc(bytes + 1);
        is_right = piece_read(t, piece, found, bytes, read) &&
                   (piece == 0 ? memcmp(read, expected, bytes) == 0 || wrong("steps differ")
                               : is_equal(t, "what is kept", member, read, expected, bytes));
        free(read);
    }
    return is_right;
}

/* A new compressor on the device continues from the CPU's state, as from its checkpoint. */
static bool state_move(twins *t, uint32_t member)
{
    void *from = NULL, *to = NULL;
    uint64_t bytes = 0;
    ty_error error = {0};

    ty_codec_close(t->other[member]);
    t->other[member] = NULL;
    if (!device_codec_open(t, member))
        return false;
    for (uint32_t piece = 0; ty_codec_state(t->own[member], piece, &from, &bytes); piece++) {
        if (!ty_codec_state(t->other[member], piece, &to, &bytes))
            return wrong("the state lacks piece %u", piece);
        if (piece == 0)
            memcpy(to, from, bytes);
        else if (gpu->memory->write(t->stage, to, from, bytes, &error) != TY_OK)
            return wrong("%s", error.message);
    }
    return true;
}

static bool memory_compare(const twins *t)
{
    const uint64_t found = ty_codec_memory_bytes(t->other[0]);
    ty_gradient_extent extent = {.elements = t->count, .dense_elements = t->count};
    uint64_t expected;

    for (uint32_t i = 0; i < t->options.matrix_count; i++)
        ty_powersgd_count(&t->compression, t->matrices[i].rows, t->matrices[i].columns, &extent);
    if (t->compression.kind == TY_COMPRESSION_ROWS)
        extent = ty_rows_extent(t->count, t->matrices[0].rows, t->matrices[0].columns,
                                t->options.row_room);
    expected = ty_compression_state_bytes(&t->compression, &extent, t->members) +
               ty_compression_payload_bytes(&t->compression, &extent, t->members);
    /* Plans describe the steps after a warm-up, which sends more. */
    return found == expected || (t->compression.warmup_steps > 0 && found > expected) ||
           wrong("%llu bytes are allocated, expected %llu", (unsigned long long)found,
                 (unsigned long long)expected);
}

/* ---- Cases ------------------------------------------------------------------------------- */

static bool twins_compare(twins *t)
{
    /* Unused slots of rows have their previous content. */
    const bool has_state = t->compression.kind != TY_COMPRESSION_ROWS;
    bool is_right = twins_open(t) && memory_compare(t);

    for (uint32_t step = 0; step < STEPS && is_right; step++) {
        for (uint32_t m = 0; m < t->members && is_right && step == STEPS / 2; m++)
            is_right = state_compare(t, m) && (!has_state || state_move(t, m));
        is_right = is_right && fill(t, step);
        for (uint32_t p = 0; p < ty_compression_phases(&t->compression) && is_right; p++)
            is_right = phase_compare(t, p);
        is_right = is_right && decoded_compare(t);
    }
    for (uint32_t m = 0; m < t->members && is_right; m++)
        is_right = state_compare(t, m);
    twins_close(t);
    return is_right;
}

/* The last one, which is too slow for the emulator, has larger tiles than others. */
static bool case_kind(ty_stage_device *stage, const char *spec, double tolerance)
{
    static const uint64_t sizes[] = {1, 33, 512, 2049, 5000, 20011, 9000001};
    const size_t count = sizeof sizes / sizeof *sizes - is_quick;
    twins t = {.stage = stage, .tolerance = tolerance};
    ty_error error = {0};
    bool is_right =
        ty_compression_parse(spec, &t.compression, &error) == TY_OK || wrong("%s", error.message);

    for (size_t i = 0; i < count && is_right; i++)
        for (uint32_t members = 1; members <= MOST_MEMBERS && is_right; members += 2) {
            t = (twins){.stage = stage,
                        .compression = t.compression,
                        .tolerance = tolerance,
                        .count = sizes[i],
                        .members = members};
            is_right = twins_compare(&t);
        }
    return is_right;
}

/* Only the device's member: `t` lacks the CPU's result. */
static bool device_step(const twins *t)
{
    ty_error error = {0};

    for (uint32_t p = 0; p < ty_compression_phases(&t->compression); p++)
        if (gpu->memory->codec_encode(t->other[0], p, t->on_device[0], &error) != TY_OK)
            return wrong("%s", error.message);
    if (gpu->memory->codec_decode(t->other[0], t->on_device[0], &error) != TY_OK)
        return wrong("%s", error.message);
    return device_read(t->stage, t->on_device[0], t->count, t->back);
}

/* Zeros stay zeros, and non-finite values must be preserved, so that a diverging run is
 * detected. */
static bool specials_compare(twins *t)
{
    uint64_t seen = 0;
    bool is_right = twins_open(t);

    for (uint32_t step = 0; step < 2 && is_right; step++) {
        is_right =
            device_write(t->stage, t->on_device[0], t->gradients[0], t->count) && device_step(t);
        for (uint64_t i = 0; i < t->count && is_right; i++)
            if (t->back[i] != 0.0f)
                is_right = wrong("a zero became %g", (double)t->back[i]);
    }
    for (uint64_t i = 0; i < t->count; i++)
        t->gradients[0][i] = i % 300 == 0 ? (i % 600 == 0 ? NAN : INFINITY) : 0.0f;
    is_right = is_right && device_write(t->stage, t->on_device[0], t->gradients[0], t->count) &&
               device_step(t);
    for (uint64_t i = 0; i < t->count; i++)
        seen += !isfinite(t->back[i]);
    twins_close(t);
    return is_right && (seen > 0 || wrong("numbers that are not finite are gone"));
}

static bool case_specials(ty_stage_device *stage)
{
    bool is_right = true;
    ty_error error = {0};

    for (int k = 0; k < KINDS && is_right; k++) {
        twins t = {.stage = stage, .count = 2400, .members = 1};
        is_right = ty_compression_parse(kinds[k].spec, &t.compression, &error) == TY_OK ||
                   wrong("%s", error.message);
        is_right = is_right && specials_compare(&t);
        if (!is_right) {
            char said[sizeof message];
            memcpy(said, message, sizeof said);
            (void)wrong("%s: %.400s", kinds[k].spec, said);
        }
    }
    return is_right;
}

/* ---- PowerSGD ---------------------------------------------------------------------- */

enum { TALL = 40, WIDE = 70, RANK = 3 };

/* P's vectors are orthonormal. */
static bool orthonormal(const twins *t)
{
    float p[RANK * TALL];
    const void *data = ty_codec_exchange(t->other[0], 0).data;

    if (!device_read(t->stage, data, RANK * TALL, p))
        return false;
    for (int a = 0; a < RANK; a++)
        for (int b = 0; b <= a; b++) {
            double product = 0;
            for (int i = 0; i < TALL; i++)
                product += (double)p[a * TALL + i] * (double)p[b * TALL + i];
            if (!(fabs(product - (a == b)) < 1e-5))
                return wrong("P%d.P%d is %g", a, b, product);
        }
    return true;
}

/* A matrix of rank 3 is decoded exactly and leaves no residual. */
static bool low_rank_compare(twins *t)
{
    float left[RANK * TALL], right[RANK * WIDE];
    uint64_t state = 31;
    bool is_right = twins_open(t);

    for (int i = 0; i < RANK * TALL; i++)
        left[i] = next_float(&state);
    for (int i = 0; i < RANK * WIDE; i++)
        right[i] = next_float(&state);
    for (int i = 0; i < TALL * WIDE; i++)
        for (int k = 0; k < RANK; k++)
            t->gradients[0][i] += left[k * TALL + i / WIDE] * right[k * WIDE + i % WIDE];
    is_right =
        is_right && device_write(t->stage, t->on_device[0], t->gradients[0], t->count) &&
        device_step(t) && orthonormal(t) &&
        is_equal(t, "what came through", 0, t->back, t->gradients[0], t->count * sizeof(float));
    twins_close(t);
    return is_right;
}

static bool case_low_rank(ty_stage_device *stage)
{
    twins t = {.stage = stage,
               .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = RANK},
               .count = TALL * WIDE,
               .members = 1,
               .matrices = {{0, TALL, WIDE}},
               .tolerance = 1e-5};

    return low_rank_compare(&t);
}

/* ---- Mistakes ---------------------------------------------------------------------------- */

static bool refusal_compare(ty_stage_device *stage, const ty_codec_options *options,
                            const char *expected)
{
    ty_codec *codec = NULL;
    ty_error error = {0};

    if (gpu->memory->codec_open(stage, options, &codec, &error) == TY_EINVAL &&
        strstr(error.message, expected) != NULL)
        return true;
    ty_codec_close(codec);
    return wrong("found %.300s, expected %s", error.message, expected);
}

static bool case_refusals(ty_stage_device *stage)
{
    const ty_codec_options empty = {.compression.kind = TY_COMPRESSION_INT8, .member_count = 1};
    const ty_codec_options outside = {
        .compression.kind = TY_COMPRESSION_INT8, .count = 1, .member_count = 2, .position = 2};
    const ty_codec_options large = {
        .compression = {TY_COMPRESSION_DGC, .ratio = 0.1}, .count = UINT32_MAX, .member_count = 1};
    const ty_codec_options none = {.count = 1, .member_count = 1};
    const ty_codec_options rows = {
        .compression.kind = TY_COMPRESSION_ROWS, .count = 5, .member_count = 1};

    return refusal_compare(stage, &empty, "0 elements") &&
           refusal_compare(stage, &outside, "member 2 of 2") &&
           refusal_compare(stage, &large, "less than 2^32") &&
           refusal_compare(stage, &none, "expected a compressor") &&
           refusal_compare(stage, &rows, "no matrix");
}

void codecs_run(void)
{
    ty_workload *w = network_make_activations();
    ty_stage_options o = options_of(w, 2, TY_PRECISION_FP32);
    ty_stage_device *stage = NULL;

    if (!stage_open(gpu, &o, &stage))
        report("codec: a stage", false);
    for (int k = 0; k < KINDS && stage != NULL; k++)
        if (is_asked(kinds[k].name))
            report(kinds[k].name, case_kind(stage, kinds[k].spec, kinds[k].tolerance));
    if (stage != NULL && is_asked("codec: zeros and what is not finite"))
        report("codec: zeros and what is not finite", case_specials(stage));
    if (stage != NULL && is_asked("codec: low rank"))
        report("codec: low rank", case_low_rank(stage));
    if (stage != NULL && is_asked("codec: refusals"))
        report("codec: refusals", case_refusals(stage));
    gpu->close(stage);
    network_free(w);
}
