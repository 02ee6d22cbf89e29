/*
 * Compressors on the CPU, as JSON: CPU seconds of encodes and decodes of one rank of two, and GB/s
 * of uncompressed gradient.
 *
 *     bench_codecs [side of the square bucket]
 */
#include "codec.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 31, MEMBERS = 2, USUAL_SIDE = 1024, TOUCHED = 10 };

static const char *const specs[] = {
    "fp16",       "bf16",       "fp8-e4m3",           "fp8-e5m2",      "int8",     "ternary",
    "one-bit",    "top-k:0.01", "top-k-sampled:0.01", "random-k:0.01", "dgc:0.01", "powersgd-1",
    "powersgd-2", "powersgd-4", "powersgd-16",        "rows",
};

static void put_rate(ty_json_writer *w, const char *seconds_key, const char *rate_key,
                     double *seconds, uint64_t count)
{
    double typical_s = median(seconds, ROUNDS);

    ty_json_put_number(w, seconds_key, typical_s);
    ty_json_put_number(w, rate_key, 4e-9 * (double)count / typical_s);
}

/* As if the other rank had sent the same. */
static void gather(const ty_codec *codec, uint32_t phase)
{
    ty_collective_options exchange = ty_codec_exchange(codec, phase);

    if (exchange.kind == TY_ALL_GATHER)
        memcpy((char *)exchange.data + exchange.count, exchange.data, exchange.count);
}

/* Keeps one of every TOUCHED rows; only the compressor `rows` depends on it. */
static void touch(uint64_t side, float *gradients)
{
    for (uint64_t row = 0; row < side; row++)
        if (row % TOUCHED != 0)
            memset(gradients + row * side, 0, side * sizeof *gradients);
}

static ty_status bench(const char *spec, uint64_t side, const float *gradients, float *decoded,
                       ty_json_writer *w, ty_error *error)
{
    double encode[TY_MOST_PHASES][ROUNDS], decode[ROUNDS];
    ty_codec_options options = {.count = side * side,
                                .member_count = MEMBERS,
                                .seed = 1,
                                .matrices = &(ty_bucket_matrix){0, side, side},
                                .matrix_count = 1,
                                .row_room = (side + TOUCHED - 1) / TOUCHED};
    ty_codec *codec = NULL;
    uint32_t phases;
    ty_status status;

    TY_CHECK(ty_compression_parse(spec, &options.compression, error), status, done);
    TY_CHECK(ty_codec_open(&options, &codec, error), status, done);
    phases = ty_compression_phases(&options.compression);
    for (int r = 0; r < ROUNDS; r++) {
        double start;
        for (uint32_t p = 0; p < phases; p++) {
            start = cpu_s();
            ty_codec_encode(codec, p, gradients);
            encode[p][r] = cpu_s() - start;
            gather(codec, p);
        }
        start = cpu_s();
        ty_codec_decode(codec, decoded);
        decode[r] = cpu_s() - start;
    }
    ty_json_open_flat(w, NULL, '{');
    ty_json_put_string(w, "codec", spec);
    put_rate(w, "encode_cpu_s", "encode_gb_per_s", encode[0], options.count);
    if (phases > 1)
        put_rate(w, "second_encode_cpu_s", "second_encode_gb_per_s", encode[1], options.count);
    put_rate(w, "decode_cpu_s", "decode_gb_per_s", decode, options.count);
    ty_json_close(w, '}');
done:
    ty_codec_close(codec);
    return status;
}

/* Unit of the passes in core/model/compression.c: a large copy, read plus written. */
static void put_copy(ty_json_writer *w, const float *from, float *to, uint64_t count)
{
    double seconds[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        double start = cpu_s();
        memcpy(to, from, count * sizeof *to);
        seconds[r] = cpu_s() - start;
    }
    ty_json_put_number(w, "copy_gb_per_s", 8e-9 * (double)count / median(seconds, ROUNDS));
}

int main(int argc, char **argv)
{
    uint64_t side = argc > 1 ? strtoull(argv[1], NULL, 10) : USUAL_SIDE, random = 1;
    float *gradients = ty_alloc(side * side, sizeof *gradients);
    float *decoded = ty_alloc(side * side, sizeof *decoded);
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = gradients == NULL || decoded == NULL
                           ? ty_fail(&error, TY_ENOMEM, "out of memory for gradients")
                           : TY_OK;

    for (uint64_t i = 0; status == TY_OK && i < side * side; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        gradients[i] = (float)(int32_t)(random >> 32) * 0x1p-31f;
        gradients[i] *= gradients[i] * gradients[i];
    }
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.bench-codecs/1");
    ty_json_put_uint(&w, "elements", side * side);
    if (status == TY_OK)
        put_copy(&w, gradients, decoded, side * side);
    ty_json_open(&w, "codecs", '[');
    for (size_t i = 0; status == TY_OK && i < sizeof specs / sizeof *specs; i++) {
        if (strcmp(specs[i], "rows") == 0) /* the last one */
            touch(side, gradients);
        status = bench(specs[i], side, gradients, decoded, &w, &error);
    }
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    if (status == TY_OK)
        status = ty_text_take(&text, &json, &error);
    if (status == TY_OK)
        printf("%s\n", json);
    else
        fprintf(stderr, "bench_codecs: %s\n", error.message);
    ty_text_clear(&text);
    ty_free(json);
    ty_free(gradients);
    ty_free(decoded);
    return status == TY_OK ? 0 : 1;
}
