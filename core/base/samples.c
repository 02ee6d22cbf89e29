/* Read rates of samples (`trainyard.samples/1`), and the `--input` that follows from them. */
#include "ty_cluster.h"

#include "json_parts.h"
#include "ty_base.h"
#include "ty_json.h"

#include <math.h>

#define SCHEMA "trainyard.samples/1"
/* Figures of --input that are rounded. */
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

/* Significant digits of a measurement. */
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

/* The `--input` of a plan, derived from the rest. */
static void write_input(const json_field *field, const void *samples, const void *context,
                        ty_json_writer *writer)
{
    ty_input input;

    (void)context;
    ty_samples_input(samples, &input);
    ty_input_to_json(&input, writer, field->key);
}

static void write_words(const json_field *field, const void *samples, const void *context,
                        ty_json_writer *writer)
{
    ty_input input;
    ty_text words = {0};

    (void)context;
    ty_samples_input(samples, &input);
    ty_input_words(&input, &words);
    ty_json_put_string_if(writer, field->key, words.data);
    ty_text_clear(&words);
}

static const json_field rate_fields[] = {
    {"threads", JSON_UINT32, JSON_AT(ty_samples_rate, threads), 0, MOST_THREADS},
    {"samples_per_s", JSON_NUMBER, JSON_AT(ty_samples_rate, samples_per_s), LEAST_RATE, MOST_RATE},
};
static const json_record rate_record = JSON_FLAT_RECORD(ty_samples_rate, rate_fields);

static const json_field fields[] = {
    {"workload", JSON_TEXT, JSON_AT(ty_samples, workload)},
    {"data", JSON_TEXT, JSON_AT(ty_samples, data)},
    {"cores", JSON_UINT32, JSON_AT(ty_samples, cores), 1, UINT32_MAX},
    {"samples", JSON_UINT64, JSON_AT(ty_samples, sample_count), 1, (double)TY_JSON_MAX_INTEGER},
    {"sample_bytes", JSON_NUMBER, JSON_AT(ty_samples, sample_bytes), DBL_MIN, MOST_BYTES},
    {"data_bytes", JSON_NUMBER, JSON_AT(ty_samples, data_bytes), 1, MOST_BYTES},
    {"visited", JSON_UINT64, JSON_AT(ty_samples, visited), 1, (double)TY_JSON_MAX_INTEGER},
    {"skipped", JSON_UINT32, JSON_AT(ty_samples, skipped), 0, UINT32_MAX},
    {"first_visit_samples_per_s", JSON_NUMBER, JSON_AT(ty_samples, first_visit_samples_per_s),
     LEAST_RATE, MOST_RATE},
    {"rates", JSON_HERE, JSON_AT(ty_samples, rates), 1, TY_MOST_READERS, .of = &rate_record,
     .count_at = offsetof(ty_samples, rate_count)},
    {"input", JSON_STRUCT, .of = &ty_input_record, .read = ty_record_pass_by, .write = write_input,
     .about = "what is said of the samples, with --input"},
    {"words", JSON_TEXT, .read = ty_record_pass_by, .write = write_words,
     .about = "what --input takes"},
};
const json_record ty_samples_record = JSON_RECORD(ty_samples, fields);

/* Checks across figures: no more samples were visited than there are, and threads ascend. */
static ty_status check(const ty_json *object, ty_samples *s, ty_error *error)
{
    const ty_json *rows;

    TY_TRY(ty_json_uint64(object, "visited", 1, s->sample_count, &s->visited, error));
    TY_TRY(ty_json_array(object, "rates", 1, TY_MOST_READERS, &rows, error));
    for (uint32_t i = 1; i < s->rate_count; i++)
        TY_TRY(ty_json_uint32(ty_json_at(rows, i), "threads", s->rates[i - 1].threads + 1,
                              MOST_THREADS, &s->rates[i].threads, error));
    return TY_OK;
}

static ty_status read_samples(const ty_json *object, ty_samples *s, ty_error *error)
{
    TY_TRY(ty_json_schema(object, SCHEMA, error));
    ty_json_ignore(object, "input");
    ty_json_ignore(object, "words");
    TY_TRY(ty_record_read_all(object, &ty_samples_record, s, NULL, error));
    return check(object, s, error);
}

ty_status ty_samples_load(const char *path, ty_samples **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_samples *samples = ty_alloc(1, sizeof *samples);
    ty_status status;

    TY_TRY(ty_check_memory(samples != NULL, error));
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
    ty_record_write_document(SCHEMA, &ty_samples_record, samples, NULL, writer, NULL);
}

ty_status ty_samples_save(const ty_samples *samples, const char *path, ty_error *error)
{
    return ty_record_save(SCHEMA, &ty_samples_record, samples, NULL, path, error);
}

void ty_samples_free(ty_samples *samples)
{
    if (samples != NULL)
        ty_record_clear(&ty_samples_record, samples);
    ty_free(samples);
}
