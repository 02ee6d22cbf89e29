/* Profiles as `trainyard.profile/1`: a head, and one list of rows per kind of measurement. */
#include "json_parts.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_profile.h"
#include "workload_layers.h"

#include <stdlib.h>
#include <string.h>

#define SCHEMA "trainyard.profile/1"

JSON_NAMES(collective_name, ty_collective_kind, ty_collective_name)
JSON_NAMES(algorithm_name, ty_algorithm, ty_algorithm_name)
JSON_NAMES(compression_name, ty_compression_kind, ty_compression_name)
JSON_NAMES(optimizer_name, ty_optimizer_kind, ty_optimizer_name)

/* ---- rows ---- */

#define SECONDS(type, name) #name, JSON_NUMBER, JSON_AT(type, name), 0, HUGE_VAL
#define SIZE(type, name) #name, JSON_UINT64, JSON_AT(type, name), 0, TY_MAX_QUANTITY

static bool has_parts(const void *row)
{
    const ty_layer_time *layer = row;

    return layer->input_s + layer->weight_s > 0;
}

static const json_field layer_time_fields[] = {
    {"signature", JSON_TEXT, JSON_AT(ty_layer_time, signature)},
    {"micro_batch", JSON_UINT32, JSON_AT(ty_layer_time, micro_batch), 1, UINT32_MAX},
    {SECONDS(ty_layer_time, forward_s)},
    {SECONDS(ty_layer_time, backward_s)},
    {SECONDS(ty_layer_time, input_s), .is_optional = true, .is_said = has_parts,
     .about = "of a backward in two parts"},
    {SECONDS(ty_layer_time, weight_s), .is_optional = true, .is_said = has_parts,
     .about = "of a backward in two parts"},
};
static const json_record layer_time_record = JSON_FLAT_RECORD(ty_layer_time, layer_time_fields);

/* No more than there are ranks. */
static ty_status read_hosts(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    ty_collective_time *row = record;

    (void)context;
    return ty_json_uint32(object, field->key, 1, row->ranks, &row->hosts, error);
}

static const json_field collective_time_fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_collective_time, kind), .name = collective_name,
     .name_count = TY_COLLECTIVE_COUNT},
    {"algorithm", JSON_NAME, JSON_AT(ty_collective_time, algorithm), .name = algorithm_name,
     .name_count = TY_ALGORITHM_COUNT},
    {"ranks", JSON_UINT32, JSON_AT(ty_collective_time, ranks), 2, UINT32_MAX},
    {SIZE(ty_collective_time, bytes)},
    {SECONDS(ty_collective_time, seconds)},
    {"hosts", JSON_UINT32, JSON_AT(ty_collective_time, hosts), 1, UINT32_MAX, .is_optional = true,
     .read = read_hosts, .about = "hosts that the ranks were on, in equal parts"},
};
static const json_record collective_time_record =
    JSON_FLAT_RECORD(ty_collective_time, collective_time_fields);

static const json_field transfer_time_fields[] = {
    {SIZE(ty_transfer_time, bytes)},
    {SECONDS(ty_transfer_time, seconds)},
    {SECONDS(ty_transfer_time, cpu_s), .is_optional = true},
};
static const json_record transfer_time_record =
    JSON_FLAT_RECORD(ty_transfer_time, transfer_time_fields);

/* For compressed rows, the share of rows sent, which is not in a plan. */
static bool is_of_rows(const void *row)
{
    return ty_compression_at(((const ty_codec_time *)row)->compression.kind)->sends_rows;
}

static bool has_two_phases(const void *row)
{
    return ty_compression_phases(&((const ty_codec_time *)row)->compression) > 1;
}

static const json_field codec_time_fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_codec_time, compression.kind), .name = compression_name,
     .name_count = TY_COMPRESSION_COUNT},
    {NULL, JSON_MEMBERS, JSON_AT(ty_codec_time, compression), .of = &ty_compression_record},
    {"ratio", JSON_NUMBER, JSON_AT(ty_codec_time, compression.ratio), DBL_MIN, 1,
     .applies = is_of_rows},
    {"ranks", JSON_UINT32, JSON_AT(ty_codec_time, ranks), 1, UINT32_MAX},
    {SIZE(ty_codec_time, elements)},
    {"encode_s", JSON_NUMBER, JSON_AT(ty_codec_time, cost.encode_s[0]), 0, HUGE_VAL},
    {"second_encode_s", JSON_NUMBER, JSON_AT(ty_codec_time, cost.encode_s[1]), 0, HUGE_VAL,
     .applies = has_two_phases},
    {"decode_s", JSON_NUMBER, JSON_AT(ty_codec_time, cost.decode_s), 0, HUGE_VAL},
};
static const json_record codec_time_record = JSON_FLAT_RECORD(ty_codec_time, codec_time_fields);

static const json_field update_time_fields[] = {
    {"kind", JSON_NAME, JSON_AT(ty_update_time, kind), .name = optimizer_name,
     .name_count = TY_OPTIMIZER_COUNT},
    {SIZE(ty_update_time, elements)},
    {SECONDS(ty_update_time, seconds)},
};
static const json_record update_time_record = JSON_FLAT_RECORD(ty_update_time, update_time_fields);

/* ---- order of pointers to rows: by everything but the times ---- */

static int compare_numbers(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_uints(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_layer_times(const void *left, const void *right)
{
    const ty_layer_time *a = *(const ty_layer_time *const *)left,
                        *b = *(const ty_layer_time *const *)right;
    int order = strcmp(a->signature, b->signature);
    return order != 0 ? order : compare_uints(a->micro_batch, b->micro_batch);
}

static int compare_collective_times(const void *left, const void *right)
{
    const ty_collective_time *a = *(const ty_collective_time *const *)left,
                             *b = *(const ty_collective_time *const *)right;
    int order = compare_uints(a->kind, b->kind);
    if (order == 0)
        order = compare_uints(a->algorithm, b->algorithm);
    if (order == 0)
        order = compare_uints(a->ranks, b->ranks);
    if (order == 0)
        order = compare_uints(a->hosts, b->hosts);
    return order != 0 ? order : compare_uints(a->bytes, b->bytes);
}

static int compare_transfer_times(const void *left, const void *right)
{
    const ty_transfer_time *a = *(const ty_transfer_time *const *)left,
                           *b = *(const ty_transfer_time *const *)right;
    return compare_uints(a->bytes, b->bytes);
}

static int compare_codec_times(const void *left, const void *right)
{
    const ty_codec_time *a = *(const ty_codec_time *const *)left,
                        *b = *(const ty_codec_time *const *)right;
    int order = compare_uints(a->compression.kind, b->compression.kind);
    if (order == 0)
        order = compare_numbers(a->compression.ratio, b->compression.ratio);
    if (order == 0)
        order = compare_uints(a->compression.rank, b->compression.rank);
    if (order == 0)
        order = compare_uints(a->ranks, b->ranks);
    return order != 0 ? order : compare_uints(a->elements, b->elements);
}

static int compare_update_times(const void *left, const void *right)
{
    const ty_update_time *a = *(const ty_update_time *const *)left,
                         *b = *(const ty_update_time *const *)right;
    int order = compare_uints(a->kind, b->kind);
    return order != 0 ? order : compare_uints(a->elements, b->elements);
}

/* ---- lists ---- */

#define LIST(name)                                                                                 \
    {                                                                                              \
#name "s", JSON_ROWS, JSON_AT(ty_profile, name##s), 0, UINT32_MAX,                         \
            .of = &name##_record, .count_at = offsetof(ty_profile, name##_count)                   \
    }

static const json_field list_fields[] = {
    LIST(layer_time), LIST(collective_time), LIST(transfer_time),
    LIST(codec_time), LIST(update_time),
};
static const json_record lists_record = JSON_RECORD(ty_profile, list_fields);

/* Per list, in their order. */
static int (*const orders[])(const void *, const void *) = {
    compare_layer_times, compare_collective_times, compare_transfer_times,
    compare_codec_times, compare_update_times,
};
_Static_assert(sizeof orders / sizeof orders[0] == sizeof list_fields / sizeof list_fields[0],
               "an order for each list");

/* A second row for the same thing would make look-ups depend on the order. */
static ty_status refuse_duplicates(const ty_json *object, const ty_profile *profile, size_t list,
                                   ty_error *error)
{
    const json_field *field = &list_fields[list];
    const size_t size = field->of->size;
    const ty_json *array;
    const char **sorted, *rows;
    ty_status status = ty_json_array(object, field->key, 0, UINT32_MAX, &array, error);
    size_t count;

    if (status != TY_OK)
        return status;
    count = ty_json_size(array);
    sorted = ty_alloc(count, sizeof *sorted);
    TY_TRY(ty_check_memory(sorted != NULL, error));
    memcpy(&rows, (const char *)profile + field->at, sizeof rows);
    for (size_t i = 0; i < count; i++)
        sorted[i] = rows + i * size;
    qsort(sorted, count, sizeof *sorted, orders[list]);
    for (size_t i = 1; i < count && status == TY_OK; i++) {
        const char *later = sorted[i] > sorted[i - 1] ? sorted[i] : sorted[i - 1];
        const char *earlier = sorted[i] > sorted[i - 1] ? sorted[i - 1] : sorted[i];
        if (orders[list](&sorted[i - 1], &sorted[i]) == 0)
            status = ty_json_fail(ty_json_at(array, (size_t)(later - rows) / size), error,
                                  "no second row for what row %zu measures",
                                  (size_t)(earlier - rows) / size);
    }
    ty_free(sorted);
    return status;
}

/* ---- documents ---- */

static const json_field profile_fields[] = {
    {"machine", JSON_TEXT, JSON_AT(ty_profile, machine)},
    {"backend", JSON_TEXT, JSON_AT(ty_profile, backend)},
    {"device", JSON_TEXT, JSON_AT(ty_profile, device), .is_optional = true},
    {"precision", JSON_TEXT, JSON_AT(ty_profile, precision), .is_optional = true},
    {"date", JSON_TEXT, JSON_AT(ty_profile, date)},
    {"versions", JSON_TEXT, JSON_AT(ty_profile, versions)},
    {"scaled", JSON_TEXT, JSON_AT(ty_profile, scaled), .is_optional = true},
    {"cores", JSON_UINT32, JSON_AT(ty_profile, cores), 1, UINT32_MAX},
    {"others_share", JSON_NUMBER, JSON_AT(ty_profile, others_share), 0, 1, .is_optional = true,
     .about = "of the cores, that others took meanwhile"},
    {"concurrent_ranks", JSON_UINT32, JSON_AT(ty_profile, concurrent_ranks), 1, UINT32_MAX},
    {SIZE(ty_profile, memory_bytes)},
    {"peak_flop_per_s", JSON_NUMBER, JSON_AT(ty_profile, peak_flop_per_s), DBL_MIN, HUGE_VAL},
    {"memory_bandwidth_bytes_per_s", JSON_NUMBER, JSON_AT(ty_profile, memory_bandwidth_bytes_per_s),
     DBL_MIN, HUGE_VAL},
    {SECONDS(ty_profile, instruction_overhead_s)},
    {SECONDS(ty_profile, load_s_per_byte)},
    {"input_source", JSON_TEXT, JSON_AT(ty_profile, input_source), .is_optional = true,
     .about = "workload whose samples were made"},
    {SECONDS(ty_profile, input_s_per_sample), .is_optional = true,
     JSON_SAID(ty_profile, input_source), .about = "that a rank takes to make a sample"},
    {NULL, JSON_MEMBERS, .of = &lists_record},
};
const json_record ty_profile_record = JSON_RECORD(ty_profile, profile_fields);

void ty_profile_free(ty_profile *profile)
{
    if (profile != NULL)
        ty_record_clear(&ty_profile_record, profile);
    ty_free(profile);
}

static ty_status read_profile(const ty_json *object, ty_profile *profile, ty_error *error)
{
    ty_status status = ty_json_schema(object, SCHEMA, error);

    if (status == TY_OK)
        status = ty_record_read_all(object, &ty_profile_record, profile, NULL, error);
    for (size_t i = 0; i < sizeof orders / sizeof orders[0] && status == TY_OK; i++)
        status = refuse_duplicates(object, profile, i, error);
    return status;
}

ty_status ty_profile_from_json(const ty_json *object, ty_profile **out, ty_error *error)
{
    ty_profile *profile = ty_alloc(1, sizeof *profile);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(profile != NULL, error));
    TY_CHECK(read_profile(object, profile, error), status, cleanup);
    *out = profile;
    profile = NULL;

cleanup:
    ty_profile_free(profile);
    return status;
}

JSON_LOAD(ty_profile_load, ty_profile, ty_profile_from_json)

void ty_profile_to_json(const ty_profile *profile, ty_json_writer *writer, const char *key)
{
    ty_record_write_document(SCHEMA, &ty_profile_record, profile, NULL, writer, key);
}

ty_status ty_profile_save(const ty_profile *profile, const char *path, ty_error *error)
{
    return ty_record_save(SCHEMA, &ty_profile_record, profile, NULL, path, error);
}
