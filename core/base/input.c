/* Whether samples arrive as fast as training uses them. */
#include "ty_cluster.h"

#include "option_words.h"
#include "ty_json.h"

#include <math.h>
#include <string.h>

#define MOST_SAMPLES_PER_S 1e12
#define MOST_BYTES 1e21
#define MOST_CORES 1000000

const char *ty_shuffle_name(ty_shuffle shuffle)
{
    static const char *const names[TY_SHUFFLE_COUNT] = {
        [TY_SHUFFLE_GLOBAL] = "global", [TY_SHUFFLE_HOST] = "host"};
    return (unsigned)shuffle < TY_SHUFFLE_COUNT ? names[shuffle] : "unknown";
}

bool ty_input_is_said(const ty_input *input)
{
    return input->data_bytes > 0 || input->decode_samples_per_s > 0 || input->cores > 0 ||
           input->is_first_epoch || input->shuffle != TY_SHUFFLE_GLOBAL;
}

/* ---- Words --------------------------------------------------------------------------------- */

static ty_status read_data(const char *value, void *out, ty_error *error)
{
    ty_input *input = out;
    uint64_t bytes;
    ty_status status = ty_parse_bytes(value, &bytes, error);

    if (status == TY_OK && bytes == 0)
        return ty_fail(error, TY_EINVAL, "found '%s', expected a size such as 1.3TB", value);
    if (status == TY_OK)
        input->data_bytes = (double)bytes;
    return status;
}

/* Samples per second, with or without "/s". */
static ty_status read_decode(const char *value, void *out, ty_error *error)
{
    ty_input *input = out;
    const size_t length = strlen(value);
    char digits[32];
    double rate;

    if (length < sizeof digits) {
        const bool has_unit = length > 2 && strcmp(value + length - 2, "/s") == 0;
        memcpy(digits, value, length + 1);
        if (has_unit)
            digits[length - 2] = '\0';
        if (digits[strspn(digits, "0123456789.eE+-")] == '\0' &&
            ty_parse_bandwidth(digits, &rate, NULL) == TY_OK && rate > 0 &&
            rate <= MOST_SAMPLES_PER_S) {
            input->decode_samples_per_s = rate;
            return TY_OK;
        }
    }
    return ty_fail(error, TY_EINVAL, "found '%.60s', expected samples per second of one core > 0",
                   value);
}

static ty_status read_cores(const char *value, void *out, ty_error *error)
{
    ty_input *input = out;
    uint64_t cores;
    ty_status status = ty_parse_uint(value, 1, MOST_CORES, &cores, error);

    if (status == TY_OK)
        input->cores = (uint32_t)cores;
    return status;
}

static ty_status read_epoch(const char *value, void *out, ty_error *error)
{
    ty_input *input = out;
    input->is_first_epoch = strcmp(value, "first") == 0;
    if (!input->is_first_epoch && strcmp(value, "later") != 0)
        return ty_fail(error, TY_EINVAL, "found '%.60s', expected first or later", value);
    return TY_OK;
}

static ty_status read_shuffle(const char *value, void *out, ty_error *error)
{
    ty_input *input = out;
    for (int s = 0; s < TY_SHUFFLE_COUNT; s++)
        if (strcmp(value, ty_shuffle_name((ty_shuffle)s)) == 0) {
            input->shuffle = (ty_shuffle)s;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL, "found '%.60s', expected global or host", value);
}

static const option_key keys[] = {
    {"data", read_data},   {"decode", read_decode},   {"cores", read_cores},
    {"epoch", read_epoch}, {"shuffle", read_shuffle},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

ty_status ty_input_read(const char *text, ty_input *input, ty_error *error)
{
    ty_input result = *input;

    TY_TRY(ty_option_words_read("--input", text, keys, KEY_COUNT, &result, error));
    *input = result;
    return TY_OK;
}

void ty_input_words(const ty_input *input, ty_text *text)
{
    const char *comma = "";
    char number[32];

    if (input->data_bytes > 0)
        ty_text_addf(text, "data=%.0f", input->data_bytes), comma = ",";
    if (input->decode_samples_per_s > 0) {
        ty_format_number(input->decode_samples_per_s, number);
        ty_text_addf(text, "%sdecode=%s", comma, number), comma = ",";
    }
    if (input->cores > 0)
        ty_text_addf(text, "%scores=%u", comma, input->cores), comma = ",";
    if (input->is_first_epoch)
        ty_text_addf(text, "%sepoch=first", comma), comma = ",";
    if (input->shuffle != TY_SHUFFLE_GLOBAL)
        ty_text_addf(text, "%sshuffle=%s", comma, ty_shuffle_name(input->shuffle));
}

/* ---- Documents ----------------------------------------------------------------------------- */

JSON_NAMES(shuffle_name, ty_shuffle, ty_shuffle_name)

static const json_field input_fields[] = {
    {"data_bytes", JSON_NUMBER, JSON_AT(ty_input, data_bytes), 0, MOST_BYTES},
    {"decode_samples_per_s", JSON_NUMBER, JSON_AT(ty_input, decode_samples_per_s), 0,
     MOST_SAMPLES_PER_S},
    {"cores", JSON_UINT32, JSON_AT(ty_input, cores), 0, MOST_CORES},
    {"is_first_epoch", JSON_BOOL, JSON_AT(ty_input, is_first_epoch)},
    {"shuffle", JSON_NAME, JSON_AT(ty_input, shuffle), .name = shuffle_name,
     .name_count = TY_SHUFFLE_COUNT},
};
const json_record ty_input_record = JSON_RECORD(ty_input, input_fields);

void ty_input_to_json(const ty_input *input, ty_json_writer *writer, const char *key)
{
    if (ty_input_is_said(input))
        ty_record_write(&ty_input_record, input, NULL, writer, key);
}

/* ---- Rates --------------------------------------------------------------------------------- */

static ty_status check(const ty_input_question *q, ty_error *error)
{
    if (q->level_count > TY_MOST_STORAGE)
        return ty_fail(error, TY_EINVAL, "input: found %u storage levels, expected at most %d",
                       q->level_count, TY_MOST_STORAGE);
    if (!(q->sample_bytes > 0) || isinf(q->sample_bytes) || !(q->input.data_bytes >= 0) ||
        isinf(q->input.data_bytes) || !(q->input.decode_samples_per_s >= 0))
        return ty_fail(error, TY_EINVAL,
                       "input: found samples of %g bytes in %g bytes, %g decoded per second by a "
                       "core, expected samples of some bytes and nothing below 0",
                       q->sample_bytes, q->input.data_bytes, q->input.decode_samples_per_s);
    if (q->hosts == 0 || q->host_readers == 0 || q->readers < q->host_readers)
        return ty_fail(error, TY_EINVAL,
                       "input: found %u readers, %u of a host, on %u hosts, expected some",
                       q->readers, q->host_readers, q->hosts);
    for (uint32_t i = 0; i < q->level_count; i++) {
        const ty_storage *level = &q->levels[i];
        if (!(level->bandwidth_bytes_per_s > 0) || !(level->latency_s >= 0) ||
            !(level->requests >= 1))
            return ty_fail(error, TY_EINVAL,
                           "input: %s: found %g bytes/s, %g s and %g requests, expected numbers > "
                           "0, a latency >= 0",
                           level->name, level->bandwidth_bytes_per_s, level->latency_s,
                           level->requests);
        if (level->is_shared && i + 1 < q->level_count)
            return ty_fail(error, TY_EINVAL,
                           "input: %s: found a shared level before the last, expected caches of a "
                           "host",
                           level->name);
    }
    return TY_OK;
}

/* The most that one host reads from a level, alone. */
static double host_rate(const ty_storage *level, double sample_bytes)
{
    const double request = level->request_bytes > 0 ? level->request_bytes : sample_bytes;
    double rate = level->bandwidth_bytes_per_s;

    if (level->is_shared && level->host_bytes_per_s > 0)
        rate = fmin(rate, level->host_bytes_per_s);
    if (level->latency_s > 0)
        rate = fmin(rate, level->requests * request / level->latency_s);
    return rate;
}

/* Shares of the samples by level. */
static ty_status divide(const ty_input_question *q, ty_input_forecast *out, ty_error *error)
{
    const double data =
        q->input.shuffle == TY_SHUFFLE_HOST ? q->input.data_bytes / q->hosts : q->input.data_bytes;
    const bool is_cached = data > 0 && !q->input.is_first_epoch;
    double left = 1;

    for (uint32_t i = 0; i < q->level_count; i++) {
        const double room =
            q->levels[i].capacity_bytes > 0 ? q->levels[i].capacity_bytes : HUGE_VAL;
        const bool is_last = i + 1 == q->level_count;
        if (!is_last && !is_cached)
            continue;
        out->level_share[i] = is_last && !(data > 0) ? left : fmin(left, room / data);
        left -= out->level_share[i];
    }
    if (q->level_count > 0 && left > 1e-9)
        return ty_fail(error, TY_EINVAL, "input: %.3g of %.4g bytes have room on no storage level",
                       left * data, data);
    return TY_OK;
}

ty_status ty_input_rate(const ty_input_question *q, ty_input_forecast *out, ty_error *error)
{
    ty_input_forecast result = {0};
    double longest_s = 0;

    TY_TRY(check(q, error));
    TY_TRY(divide(q, &result, error));
    if (q->input.decode_samples_per_s > 0) {
        const double cores = q->input.cores > 0 ? q->input.cores : 1;
        result.own_s = longest_s = q->host_readers / (cores * q->input.decode_samples_per_s);
        result.bound_by = "decoding";
    }
    for (uint32_t i = 0; i < q->level_count; i++) {
        const ty_storage *level = &q->levels[i];
        const double bytes = q->sample_bytes * result.level_share[i];
        const double limit = host_rate(level, q->sample_bytes) / q->host_readers;
        double level_s = bytes / limit;
        if (!(bytes > 0))
            continue;
        if (level->is_shared) {
            result.store_bytes = bytes;
            result.store_limit_bytes_per_s = limit;
            level_s = fmax(level_s, bytes * q->readers / level->bandwidth_bytes_per_s);
        } else {
            result.own_s = fmax(result.own_s, level_s);
        }
        if (level_s > longest_s) {
            longest_s = level_s;
            result.bound_by = level->name;
        }
    }
    result.samples_per_s = longest_s > 0 ? 1 / longest_s : HUGE_VAL;
    *out = result;
    return TY_OK;
}
