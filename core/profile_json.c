/* Profiles as `trainyard.profile/1`: a head, and one list of rows per kind of measurement. */
#include "json_parts.h"
#include "profile_names.h"
#include "ty_file.h"
#include "ty_memory.h"
#include "workload_layers.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "trainyard.profile/1"

/* ---- rows ---- */

static ty_status read_seconds(const ty_json *object, const char *key, double *out, ty_error *error)
{
    return ty_json_number(object, key, 0.0, HUGE_VAL, out, error);
}

static ty_status read_size(const ty_json *object, const char *key, uint64_t *out, ty_error *error)
{
    return ty_json_uint64(object, key, 0, TY_MAX_QUANTITY, out, error);
}

static ty_status read_layer_time(const ty_json *object, void *out, ty_error *error)
{
    ty_layer_time *row = out;
    ty_status status;

    TY_CHECK(ty_json_string_copy(object, "signature", &row->signature, error), status, done);
    TY_CHECK(ty_json_uint32(object, "micro_batch", 1, UINT32_MAX, &row->micro_batch, error), status,
             done);
    TY_CHECK(read_seconds(object, "forward_s", &row->forward_s, error), status, done);
    TY_CHECK(read_seconds(object, "backward_s", &row->backward_s, error), status, done);
    if (ty_json_has(object, "input_s"))
        TY_CHECK(read_seconds(object, "input_s", &row->input_s, error), status, done);
    if (ty_json_has(object, "weight_s"))
        TY_CHECK(read_seconds(object, "weight_s", &row->weight_s, error), status, done);
done:
    return status;
}

static void write_layer_time(const void *in, ty_json_writer *writer)
{
    const ty_layer_time *row = in;
    ty_json_put_string(writer, "signature", row->signature);
    ty_json_put_uint(writer, "micro_batch", row->micro_batch);
    ty_json_put_number(writer, "forward_s", row->forward_s);
    ty_json_put_number(writer, "backward_s", row->backward_s);
    if (row->input_s + row->weight_s > 0) {
        ty_json_put_number(writer, "input_s", row->input_s);
        ty_json_put_number(writer, "weight_s", row->weight_s);
    }
}

static ty_status read_collective_time(const ty_json *object, void *out, ty_error *error)
{
    ty_collective_time *row = out;
    ty_status status;
    int kind = 0, algorithm = 0;

    TY_CHECK(ty_json_enum(object, "kind", ty_collective_names, TY_COLLECTIVE_COUNT, &kind, error),
             status, done);
    TY_CHECK(ty_json_enum(object, "algorithm", ty_algorithm_names, TY_ALGORITHM_COUNT, &algorithm,
                          error),
             status, done);
    row->kind = (ty_collective_kind)kind;
    row->algorithm = (ty_algorithm)algorithm;
    TY_CHECK(ty_json_uint32(object, "ranks", 2, UINT32_MAX, &row->ranks, error), status, done);
    TY_CHECK(read_size(object, "bytes", &row->bytes, error), status, done);
    TY_CHECK(read_seconds(object, "seconds", &row->seconds, error), status, done);
    if (ty_json_has(object, "hosts"))
        TY_CHECK(ty_json_uint32(object, "hosts", 1, row->ranks, &row->hosts, error), status, done);
done:
    return status;
}

static void write_collective_time(const void *in, ty_json_writer *writer)
{
    const ty_collective_time *row = in;
    ty_json_put_string(writer, "kind", ty_collective_name(row->kind));
    ty_json_put_string(writer, "algorithm", ty_algorithm_name(row->algorithm));
    ty_json_put_uint(writer, "ranks", row->ranks);
    ty_json_put_uint(writer, "bytes", row->bytes);
    ty_json_put_number(writer, "seconds", row->seconds);
    if (row->hosts > 0)
        ty_json_put_uint(writer, "hosts", row->hosts);
}

static ty_status read_transfer_time(const ty_json *object, void *out, ty_error *error)
{
    ty_transfer_time *row = out;
    ty_status status;

    TY_CHECK(read_size(object, "bytes", &row->bytes, error), status, done);
    TY_CHECK(read_seconds(object, "seconds", &row->seconds, error), status, done);
    if (ty_json_has(object, "cpu_s"))
        TY_CHECK(read_seconds(object, "cpu_s", &row->cpu_s, error), status, done);
done:
    return status;
}

static void write_transfer_time(const void *in, ty_json_writer *writer)
{
    const ty_transfer_time *row = in;
    ty_json_put_uint(writer, "bytes", row->bytes);
    ty_json_put_number(writer, "seconds", row->seconds);
    if (row->cpu_s > 0)
        ty_json_put_number(writer, "cpu_s", row->cpu_s);
}

static ty_status read_codec_time(const ty_json *object, void *out, ty_error *error)
{
    ty_codec_time *row = out;
    ty_status status;

    TY_CHECK(ty_compression_read(object, "kind", &row->compression, error), status, done);
    if (row->compression.kind == TY_COMPRESSION_ROWS)
        TY_CHECK(ty_json_number(object, "ratio", DBL_MIN, 1, &row->compression.ratio, error),
                 status, done);
    TY_CHECK(ty_json_uint32(object, "ranks", 1, UINT32_MAX, &row->ranks, error), status, done);
    TY_CHECK(read_size(object, "elements", &row->elements, error), status, done);
    TY_CHECK(read_seconds(object, "encode_s", &row->cost.encode_s[0], error), status, done);
    if (ty_compression_phases(&row->compression) > 1)
        TY_CHECK(read_seconds(object, "second_encode_s", &row->cost.encode_s[1], error), status,
                 done);
    TY_CHECK(read_seconds(object, "decode_s", &row->cost.decode_s, error), status, done);
done:
    return status;
}

static void write_codec_time(const void *in, ty_json_writer *writer)
{
    const ty_codec_time *row = in;
    ty_compression_write(&row->compression, writer, "kind");
    if (row->compression.kind == TY_COMPRESSION_ROWS)
        ty_json_put_number(writer, "ratio", row->compression.ratio);
    ty_json_put_uint(writer, "ranks", row->ranks);
    ty_json_put_uint(writer, "elements", row->elements);
    ty_json_put_number(writer, "encode_s", row->cost.encode_s[0]);
    if (ty_compression_phases(&row->compression) > 1)
        ty_json_put_number(writer, "second_encode_s", row->cost.encode_s[1]);
    ty_json_put_number(writer, "decode_s", row->cost.decode_s);
}

static ty_status read_update_time(const ty_json *object, void *out, ty_error *error)
{
    ty_update_time *row = out;
    ty_status status;
    int kind = 0;

    TY_CHECK(ty_json_enum(object, "kind", ty_optimizer_names, 2, &kind, error), status, done);
    row->kind = (ty_optimizer_kind)kind;
    TY_CHECK(read_size(object, "elements", &row->elements, error), status, done);
    TY_CHECK(read_seconds(object, "seconds", &row->seconds, error), status, done);
done:
    return status;
}

static void write_update_time(const void *in, ty_json_writer *writer)
{
    const ty_update_time *row = in;
    ty_json_put_string(writer, "kind", ty_optimizer_name(row->kind));
    ty_json_put_uint(writer, "elements", row->elements);
    ty_json_put_number(writer, "seconds", row->seconds);
}

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

typedef struct row_list {
    const char *key;
    size_t row_size, count_offset, rows_offset; /* of and in ty_profile */
    ty_status (*read)(const ty_json *object, void *row, ty_error *error);
    void (*write)(const void *row, ty_json_writer *writer);
    int (*compare)(const void *, const void *);
} row_list;

#define LIST(name)                                                                                 \
    {                                                                                              \
#name "s", sizeof(ty_##name), offsetof(ty_profile, name##_count),                          \
            offsetof(ty_profile, name##s), read_##name, write_##name, compare_##name##s            \
    }

static const row_list lists[] = {
    LIST(layer_time), LIST(collective_time), LIST(transfer_time),
    LIST(codec_time), LIST(update_time),
};
#define LIST_COUNT (sizeof lists / sizeof lists[0])

static uint32_t row_count(const ty_profile *profile, const row_list *list)
{
    uint32_t count;
    memcpy(&count, (const char *)profile + list->count_offset, sizeof count);
    return count;
}

static char *rows_of(const ty_profile *profile, const row_list *list)
{
    char *rows;
    memcpy(&rows, (const char *)profile + list->rows_offset, sizeof rows);
    return rows;
}

/* Takes ownership of `rows`. */
static void set_rows(ty_profile *profile, const row_list *list, char *rows, uint32_t count)
{
    memcpy((char *)profile + list->rows_offset, &rows, sizeof rows);
    memcpy((char *)profile + list->count_offset, &count, sizeof count);
}

/* A second row for the same thing would make look-ups depend on the order. */
static ty_status refuse_duplicates(const row_list *list, const ty_json *array, const char *rows,
                                   ty_error *error)
{
    size_t count = ty_json_size(array);
    const char **sorted = ty_alloc(count, sizeof *sorted);
    ty_status status = TY_OK;

    if (sorted == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        sorted[i] = rows + i * list->row_size;
    qsort(sorted, count, sizeof *sorted, list->compare);
    for (size_t i = 1; i < count && status == TY_OK; i++) {
        const char *later = sorted[i] > sorted[i - 1] ? sorted[i] : sorted[i - 1];
        const char *earlier = sorted[i] > sorted[i - 1] ? sorted[i - 1] : sorted[i];
        if (list->compare(&sorted[i - 1], &sorted[i]) == 0)
            status = ty_json_fail(ty_json_at(array, (size_t)(later - rows) / list->row_size), error,
                                  "no second row for what row %zu measures",
                                  (size_t)(earlier - rows) / list->row_size);
    }
    ty_free(sorted);
    return status;
}

static ty_status read_list(const ty_json *object, const row_list *list, ty_profile *profile,
                           ty_error *error)
{
    const ty_json *array = NULL;
    ty_status status;
    char *rows;

    TY_CHECK(ty_json_array(object, list->key, 0, UINT32_MAX, &array, error), status, done);
    rows = ty_alloc(ty_json_size(array), list->row_size);
    if (rows == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    set_rows(profile, list, rows, (uint32_t)ty_json_size(array));
    for (size_t i = 0; i < ty_json_size(array); i++) {
        const ty_json *row = ty_json_at(array, i);
        TY_CHECK(list->read(row, rows + i * list->row_size, error), status, done);
        TY_CHECK(ty_json_end(row, error), status, done);
    }
    TY_CHECK(refuse_duplicates(list, array, rows, error), status, done);
done:
    return status;
}

static void write_list(const ty_profile *profile, const row_list *list, ty_json_writer *writer)
{
    const char *rows = rows_of(profile, list);

    ty_json_open(writer, list->key, '[');
    for (uint32_t i = 0; i < row_count(profile, list); i++) {
        ty_json_open_flat(writer, NULL, '{');
        list->write(rows + i * list->row_size, writer);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
}

/* ---- the whole ---- */

static ty_status read_profile(const ty_json *object, ty_profile *p, ty_error *error)
{
    ty_status status;

    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "machine", &p->machine, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "backend", &p->backend, error), status, done);
    TY_CHECK(ty_json_string_copy_if(object, "device", &p->device, error), status, done);
    TY_CHECK(ty_json_string_copy_if(object, "precision", &p->precision, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "date", &p->date, error), status, done);
    TY_CHECK(ty_json_string_copy(object, "versions", &p->versions, error), status, done);
    TY_CHECK(ty_json_string_copy_if(object, "scaled", &p->scaled, error), status, done);
    TY_CHECK(ty_json_uint32(object, "cores", 1, UINT32_MAX, &p->cores, error), status, done);
    if (ty_json_has(object, "others_share"))
        TY_CHECK(ty_json_number(object, "others_share", 0, 1, &p->others_share, error), status,
                 done);
    TY_CHECK(ty_json_uint32(object, "concurrent_ranks", 1, UINT32_MAX, &p->concurrent_ranks, error),
             status, done);
    TY_CHECK(read_size(object, "memory_bytes", &p->memory_bytes, error), status, done);
    TY_CHECK(
        ty_json_number(object, "peak_flop_per_s", DBL_MIN, HUGE_VAL, &p->peak_flop_per_s, error),
        status, done);
    TY_CHECK(ty_json_number(object, "memory_bandwidth_bytes_per_s", DBL_MIN, HUGE_VAL,
                            &p->memory_bandwidth_bytes_per_s, error),
             status, done);
    TY_CHECK(read_seconds(object, "instruction_overhead_s", &p->instruction_overhead_s, error),
             status, done);
    TY_CHECK(read_seconds(object, "load_s_per_byte", &p->load_s_per_byte, error), status, done);
    for (size_t i = 0; i < LIST_COUNT; i++)
        TY_CHECK(read_list(object, &lists[i], p, error), status, done);
    TY_CHECK(ty_json_end(object, error), status, done);
done:
    return status;
}

ty_status ty_profile_from_json(const ty_json *object, ty_profile **out, ty_error *error)
{
    ty_profile *profile = ty_alloc(1, sizeof *profile);
    ty_status status = TY_OK;

    if (profile == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(read_profile(object, profile, error), status, cleanup);
    *out = profile;
    profile = NULL;

cleanup:
    ty_profile_free(profile);
    return status;
}

ty_status ty_profile_load(const char *path, ty_profile **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_profile_from_json(ty_json_root(document), out, error), status, cleanup);

cleanup:
    ty_json_free(document);
    return status;
}

void ty_profile_to_json(const ty_profile *profile, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", SCHEMA);
    ty_json_put_string(writer, "machine", profile->machine);
    ty_json_put_string(writer, "backend", profile->backend);
    ty_json_put_string_if(writer, "device", profile->device);
    ty_json_put_string_if(writer, "precision", profile->precision);
    ty_json_put_string(writer, "date", profile->date);
    ty_json_put_string(writer, "versions", profile->versions);
    ty_json_put_string_if(writer, "scaled", profile->scaled);
    ty_json_put_uint(writer, "cores", profile->cores);
    if (profile->others_share > 0)
        ty_json_put_number(writer, "others_share", profile->others_share);
    ty_json_put_uint(writer, "concurrent_ranks", profile->concurrent_ranks);
    ty_json_put_uint(writer, "memory_bytes", profile->memory_bytes);
    ty_json_put_number(writer, "peak_flop_per_s", profile->peak_flop_per_s);
    ty_json_put_number(writer, "memory_bandwidth_bytes_per_s",
                       profile->memory_bandwidth_bytes_per_s);
    ty_json_put_number(writer, "instruction_overhead_s", profile->instruction_overhead_s);
    ty_json_put_number(writer, "load_s_per_byte", profile->load_s_per_byte);
    for (size_t i = 0; i < LIST_COUNT; i++)
        write_list(profile, &lists[i], writer);
    ty_json_close(writer, '}');
}

ty_status ty_profile_save(const ty_profile *profile, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_status status;

    ty_profile_to_json(profile, &writer, NULL);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    return status;
}
