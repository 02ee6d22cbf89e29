/* Rates at which samples are read (`trainyard.samples/1`), and what a plan is told of them. */
#include "ty_samples.h"

#include "json_parts.h"
#include "ty_file.h"
#include "ty_memory.h"

#include <float.h>
#include <math.h>

#define SCHEMA "trainyard.samples/1"
/* Figures that --input takes, and that have digits to round. */
#define LEAST_RATE 1e-9
#define MOST_RATE 1e12
#define MOST_BYTES 1e21
#define MOST_THREADS 1000000

static const double enough = 0.95; /* of the best rate: more threads would be wasted */

const ty_samples_rate *ty_samples_best(const ty_samples *samples)
{
    const ty_samples_rate *best = &samples->rates[0], *first = best;

    for (uint32_t i = 1; i < samples->rate_count; i++)
        if (samples->rates[i].samples_per_s > best->samples_per_s)
            best = &samples->rates[i];
    while (first->samples_per_s < enough * best->samples_per_s)
        first++;
    return first;
}

/* Digits that a measurement has. */
static double rounded(double value)
{
    const double scale = pow(10, 3 - floor(log10(value)));

    return round(value * scale) / scale;
}

void ty_samples_input(const ty_samples *samples, ty_input *out)
{
    const ty_samples_rate *best = ty_samples_best(samples);
    const uint32_t threads = best->threads > 0 ? best->threads : 1;

    *out = (ty_input){.data_bytes = round(samples->data_bytes),
                      .decode_samples_per_s = rounded(best->samples_per_s / threads),
                      .cores = best->threads};
}

/* ---- File ----------------------------------------------------------------------------------- */

static ty_status read_rates(const ty_json *object, ty_samples *s, ty_error *error)
{
    const ty_json *rows;
    ty_status status;

    TY_CHECK(ty_json_array(object, "rates", 1, TY_MOST_READERS, &rows, error), status, done);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        const ty_json *row = ty_json_at(rows, i);
        ty_samples_rate *rate = &s->rates[i];

        if (!ty_json_is_object(row))
            return ty_json_fail(row, error, "an object");
        TY_CHECK(ty_json_uint32(row, "threads", i > 0 ? s->rates[i - 1].threads + 1 : 0,
                                MOST_THREADS, &rate->threads, error),
                 status, done);
        TY_CHECK(ty_json_number(row, "samples_per_s", LEAST_RATE, MOST_RATE, &rate->samples_per_s,
                                error),
                 status, done);
        TY_CHECK(ty_json_end(row, error), status, done);
        s->rate_count++;
    }
done:
    return status;
}

static ty_status read_samples(const ty_json *object, ty_samples *s, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "workload", &s->workload, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "data", &s->data, error), status, done);
    TY_CHECK(ty_json_uint32(object, "cores", 1, UINT32_MAX, &s->cores, error), status, done);
    TY_CHECK(ty_json_uint64(object, "samples", 1, UINT64_MAX, &s->sample_count, error), status,
             done);
    TY_CHECK(ty_json_number(object, "sample_bytes", DBL_MIN, MOST_BYTES, &s->sample_bytes, error),
             status, done);
    TY_CHECK(ty_json_number(object, "data_bytes", 1, MOST_BYTES, &s->data_bytes, error), status,
             done);
    TY_CHECK(ty_json_uint64(object, "visited", 1, s->sample_count, &s->visited, error), status,
             done);
    TY_CHECK(ty_json_uint32(object, "skipped", 0, UINT32_MAX, &s->skipped, error), status, done);
    TY_CHECK(ty_json_number(object, "first_visit_samples_per_s", LEAST_RATE, MOST_RATE,
                            &s->first_visit_samples_per_s, error),
             status, done);
    TY_CHECK(read_rates(object, s, error), status, done);
    ty_json_ignore(object, "input");
    ty_json_ignore(object, "words");
    TY_CHECK(ty_json_end(object, error), status, done);
done:
    return status;
}

ty_status ty_samples_load(const char *path, ty_samples **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_samples *samples = ty_alloc(1, sizeof *samples);
    ty_status status;

    if (samples == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(read_samples(ty_json_root(document), samples, error), status, cleanup);
    *out = samples;
    samples = NULL;

cleanup:
    ty_samples_free(samples);
    ty_json_free(document);
    return status;
}

void ty_samples_to_json(const ty_samples *samples, ty_json_writer *writer)
{
    ty_input input;
    ty_text words = {0};

    ty_samples_input(samples, &input);
    ty_input_words(&input, &words);
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "schema", SCHEMA);
    ty_json_put_string(writer, "workload", samples->workload);
    ty_json_put_string(writer, "data", samples->data);
    ty_json_put_uint(writer, "cores", samples->cores);
    ty_json_put_uint(writer, "samples", samples->sample_count);
    ty_json_put_number(writer, "sample_bytes", samples->sample_bytes);
    ty_json_put_number(writer, "data_bytes", samples->data_bytes);
    ty_json_put_uint(writer, "visited", samples->visited);
    ty_json_put_uint(writer, "skipped", samples->skipped);
    ty_json_put_number(writer, "first_visit_samples_per_s", samples->first_visit_samples_per_s);
    ty_json_open(writer, "rates", '[');
    for (uint32_t i = 0; i < samples->rate_count; i++) {
        ty_json_open_flat(writer, NULL, '{');
        ty_json_put_uint(writer, "threads", samples->rates[i].threads);
        ty_json_put_number(writer, "samples_per_s", samples->rates[i].samples_per_s);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    ty_input_to_json(&input, writer, "input");
    if (words.data != NULL)
        ty_json_put_string(writer, "words", words.data);
    ty_json_close(writer, '}');
    ty_text_clear(&words);
}

ty_status ty_samples_save(const ty_samples *samples, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_status status;

    ty_samples_to_json(samples, &writer);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    return status;
}

void ty_samples_free(ty_samples *samples)
{
    if (samples == NULL)
        return;
    ty_free(samples->workload);
    ty_free(samples->data);
    ty_free(samples);
}
