/* Records of files by their tables. */
#include "ty_json.h"

#include "json_parts.h"
#include "ty_base.h"

#include <assert.h>
#include <string.h>

/* Members have their types; only the table has their offsets. */
static void *place(void *record, size_t at)
{
    return (char *)record + at;
}

static double number_at(const void *record, size_t at)
{
    double value;
    memcpy(&value, (const char *)record + at, sizeof value);
    return value;
}

static uint32_t uint32_at(const void *record, size_t at)
{
    uint32_t value;
    memcpy(&value, (const char *)record + at, sizeof value);
    return value;
}

static uint64_t uint64_at(const void *record, size_t at)
{
    uint64_t value;
    memcpy(&value, (const char *)record + at, sizeof value);
    return value;
}

static bool bool_at(const void *record, size_t at)
{
    bool value;
    memcpy(&value, (const char *)record + at, sizeof value);
    return value;
}

static const char *pointer_at(const void *record, size_t at)
{
    const char *value;
    memcpy(&value, (const char *)record + at, sizeof value);
    return value;
}

static bool has_field(const json_field *f, const void *record, const void *context)
{
    return (f->applies == NULL || f->applies(record)) &&
           (f->applies_in == NULL || f->applies_in(context));
}

/* ---- Reading ------------------------------------------------------------------------------- */

static size_t most_count(const json_field *field)
{
    return field->most_count > 0 ? field->most_count : UINT32_MAX;
}

/* Allocates an array's values, of `size` bytes each, for the record, which owns them. */
static ty_status read_array(const ty_json *object, const json_field *field, size_t size, void *out,
                            const ty_json **array, void **values, ty_error *error)
{
    uint32_t count;

    TY_TRY(ty_json_array(object, field->key, field->least_count, most_count(field), array, error));
    count = (uint32_t)ty_json_size(*array);
    *values = ty_alloc(count, size);
    TY_TRY(ty_check_memory(*values != NULL, error));
    memcpy(place(out, field->at), values, sizeof *values);
    memcpy(place(out, field->count_at), &count, sizeof count);
    return TY_OK;
}

static ty_status read_numbers(const ty_json *object, const json_field *field, void *out,
                              ty_error *error)
{
    const ty_json *array = NULL;
    void *made = NULL;
    ty_status status = read_array(object, field, sizeof(double), out, &array, &made, error);
    double *values = made;

    for (uint32_t i = 0; status == TY_OK && i < ty_json_size(array); i++)
        status = ty_json_as_number(ty_json_at(array, i), field->minimum, field->maximum, &values[i],
                                   error);
    return status;
}

static ty_status read_digests(const ty_json *object, const json_field *field, void *out,
                              ty_error *error)
{
    const ty_json *array = NULL;
    void *made = NULL;
    ty_status status = read_array(object, field, sizeof(ty_digest), out, &array, &made, error);
    ty_digest *digests = made;

    for (uint32_t i = 0; status == TY_OK && i < ty_json_size(array); i++)
        status = ty_json_as_digest(ty_json_at(array, i), &digests[i], error);
    return status;
}

/* "[step, square, variance]" */
ty_status ty_record_read_tuple(const ty_json *value, const json_record *record, void *out,
                               ty_error *error)
{
    ty_status status = TY_OK;

    if (!ty_json_is_array(value) || ty_json_size(value) != record->field_count) {
        ty_text keys = {0};
        for (uint32_t i = 0; i < record->field_count; i++)
            ty_text_addf(&keys, "%s%s", i > 0 ? ", " : "", record->fields[i].key);
        status = ty_json_fail(value, error, "[%s]", keys.data != NULL ? keys.data : "");
        ty_text_clear(&keys);
    }
    for (uint32_t i = 0; i < record->field_count && status == TY_OK; i++) {
        const json_field *f = &record->fields[i];
        assert(f->kind == JSON_NUMBER || f->kind == JSON_UINT32);
        status = f->kind == JSON_NUMBER
                     ? ty_json_as_number(ty_json_at(value, i), f->minimum, f->maximum,
                                         place(out, f->at), error)
                     : ty_json_as_uint32(ty_json_at(value, i), (uint32_t)f->minimum,
                                         (uint32_t)f->maximum, place(out, f->at), error);
    }
    return status;
}

static ty_status read_rows(const ty_json *object, const json_field *field, void *out,
                           const void *context, ty_error *error)
{
    const ty_json *array;
    char *rows = place(out, field->at);
    uint32_t count;
    ty_status status = TY_OK;

    TY_TRY(ty_json_array(object, field->key, (size_t)field->minimum, (size_t)field->maximum, &array,
                         error));
    count = (uint32_t)ty_json_size(array);
    if (field->kind != JSON_HERE) {
        rows = ty_alloc(count, field->of->size);
        TY_TRY(ty_check_memory(rows != NULL, error));
        memcpy(place(out, field->at), &rows, sizeof rows);
    }
    memcpy(place(out, field->count_at), &count, sizeof count);
    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        const ty_json *row = ty_json_at(array, i);
        void *room = rows + i * field->of->size;
        status = field->kind == JSON_TUPLES
                     ? ty_record_read_tuple(row, field->of, room, error)
                     : ty_record_read_all(row, field->of, room, context, error);
    }
    return status;
}

static ty_status read_field(const ty_json *object, const json_field *f, void *out,
                            const void *context, ty_error *error)
{
    void *at = place(out, f->at);
    const ty_json *value;
    const char *text;
    uint32_t count;
    int name = 0;
    ty_status status;

    if (f->read != NULL)
        return f->read(object, f, out, context, error);
    switch (f->kind) {
    case JSON_NUMBER:
        return ty_json_number(object, f->key, f->minimum, f->maximum, at, error);
    case JSON_UINT32:
        return ty_json_uint32(object, f->key, (uint32_t)f->minimum, (uint32_t)f->maximum, at,
                              error);
    case JSON_UINT64:
        return ty_json_uint64(object, f->key, (uint64_t)f->minimum, (uint64_t)f->maximum, at,
                              error);
    case JSON_BOOL:
        return ty_json_bool(object, f->key, at, error);
    case JSON_TEXT:
        return ty_json_string_copy(object, f->key, at, error);
    case JSON_WORD:
        return ty_json_string(object, f->key, at, error);
    case JSON_CHARS:
        TY_TRY(ty_json_string(object, f->key, &text, error));
        if (strlen(text) > (size_t)f->maximum)
            return ty_json_fail(object, error, "\"%s\" to be shorter than %.0f bytes", f->key,
                                f->maximum + 1);
        memcpy(at, text, strlen(text) + 1);
        return TY_OK;
    case JSON_DIGEST:
        return ty_json_digest(object, f->key, at, error);
    case JSON_DIGESTS:
        return read_digests(object, f, out, error);
    case JSON_NAME:
        status = ty_json_name(object, f->key, f->name, f->name_count, &name, error);
        memcpy(at, &name, sizeof name);
        return status;
    case JSON_NUMBERS:
        return read_numbers(object, f, out, error);
    case JSON_UINTS:
        status =
            ty_json_uint32_array(object, f->key, f->least_count, most_count(f),
                                 (uint32_t)f->minimum, (uint32_t)f->maximum, at, &count, error);
        if (status == TY_OK)
            memcpy(place(out, f->count_at), &count, sizeof count);
        return status;
    case JSON_STRUCT:
        status = ty_json_object(object, f->key, &value, error);
        return status == TY_OK ? ty_record_read_all(value, f->of, at, context, error) : status;
    case JSON_ROWS:
    case JSON_HERE:
    case JSON_TUPLES:
        return read_rows(object, f, out, context, error);
    case JSON_MEMBERS:
        return ty_record_read(object, f->of, at, context, error);
    case JSON_OTHER:
        break;
    }
    assert(false);
    return TY_EINVAL;
}

ty_status ty_record_read(const ty_json *object, const json_record *record, void *out,
                         const void *context, ty_error *error)
{
    for (uint32_t i = 0; i < record->field_count; i++) {
        const json_field *f = &record->fields[i];
        json_field older = *f;
        if (!has_field(f, out, context))
            continue;
        if (f->was != NULL && !ty_json_has(object, f->key) && ty_json_has(object, f->was)) {
            older.key = f->was;
            f = &older;
        }
        if (f->is_optional && !ty_json_has(object, f->key)) {
            const uint32_t absent = (uint32_t)f->absent;
            if (f->read != NULL)
                continue; /* only its reader knows its place */
            if (f->kind == JSON_UINT32 || f->kind == JSON_NAME)
                memcpy(place(out, f->at), &absent, sizeof absent);
            else if (f->kind == JSON_NUMBER)
                memcpy(place(out, f->at), &f->absent, sizeof f->absent);
            continue;
        }
        TY_TRY(read_field(object, f, out, context, error));
    }
    return TY_OK;
}

ty_status ty_record_read_all(const ty_json *object, const json_record *record, void *out,
                             const void *context, ty_error *error)
{
    TY_TRY(ty_record_read(object, record, out, context, error));
    return ty_json_end(object, error);
}

ty_status ty_record_pass_by(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    (void)object, (void)field, (void)record, (void)context, (void)error;
    return TY_OK;
}

void ty_record_clear(const json_record *record, void *in)
{
    const uint32_t none = 0;

    for (uint32_t i = 0; i < record->field_count; i++) {
        const json_field *f = &record->fields[i];
        const bool has_rows = f->kind == JSON_ROWS || f->kind == JSON_TUPLES;
        char *block = NULL;
        if (f->read != NULL && f->at == 0)
            continue;
        if (f->kind == JSON_STRUCT || f->kind == JSON_MEMBERS)
            ty_record_clear(f->of, place(in, f->at));
        if (!has_rows && f->kind != JSON_TEXT && f->kind != JSON_DIGESTS &&
            f->kind != JSON_NUMBERS && f->kind != JSON_UINTS)
            continue;
        memcpy(&block, place(in, f->at), sizeof block);
        for (uint32_t r = 0; has_rows && block != NULL && r < uint32_at(in, f->count_at); r++)
            ty_record_clear(f->of, block + r * f->of->size);
        ty_free(block);
        block = NULL;
        memcpy(place(in, f->at), &block, sizeof block);
        if (has_rows)
            memcpy(place(in, f->count_at), &none, sizeof none);
    }
}

/* ---- Writing ------------------------------------------------------------------------------- */

static bool says_something(const json_field *f, const void *in)
{
    if (f->is_said != NULL)
        return f->is_said(in);
    for (size_t i = 0; i < f->said_size; i++)
        if (((const char *)in)[f->said_at + i] != 0)
            return true;
    if (f->said_size > 0)
        return false;
    switch (f->kind) {
    case JSON_NUMBER: {
        const double value = number_at(in, f->at);
        return value < f->absent || value > f->absent;
    }
    case JSON_UINT32:
        return uint32_at(in, f->at) != (uint32_t)f->absent && uint32_at(in, f->at) >= f->minimum;
    case JSON_UINT64:
        return uint64_at(in, f->at) != (uint64_t)f->absent &&
               (double)uint64_at(in, f->at) >= f->minimum;
    case JSON_BOOL:
        return bool_at(in, f->at);
    case JSON_TEXT:
    case JSON_WORD:
        return pointer_at(in, f->at) != NULL;
    case JSON_CHARS:
        return ((const char *)in)[f->at] != '\0';
    case JSON_DIGESTS:
    case JSON_NUMBERS:
    case JSON_UINTS:
    case JSON_ROWS:
    case JSON_HERE:
    case JSON_TUPLES:
        return uint32_at(in, f->count_at) > 0;
    case JSON_NAME:
        return uint32_at(in, f->at) != (uint32_t)f->absent;
    case JSON_DIGEST:
    case JSON_STRUCT:
    case JSON_MEMBERS:
    case JSON_OTHER:
        break;
    }
    return true;
}

void ty_record_write_tuple(const json_record *record, const void *in, ty_json_writer *writer)
{
    ty_json_open_flat(writer, NULL, '[');
    for (uint32_t i = 0; i < record->field_count; i++) {
        const json_field *f = &record->fields[i];
        if (f->kind == JSON_NUMBER)
            ty_json_put_number(writer, NULL, number_at(in, f->at));
        else
            ty_json_put_uint(writer, NULL, uint32_at(in, f->at));
    }
    ty_json_close(writer, ']');
}

static void write_tuples(const json_field *f, const void *in, ty_json_writer *writer)
{
    const char *row = pointer_at(in, f->at);

    ty_json_open_flat(writer, f->key, '[');
    for (uint32_t i = 0; i < uint32_at(in, f->count_at); i++, row += f->of->size)
        ty_record_write_tuple(f->of, row, writer);
    ty_json_close(writer, ']');
}

static void write_field(const json_field *f, const void *in, const void *context,
                        ty_json_writer *writer)
{
    const char *at = (const char *)in + f->at;
    ty_digest digest;
    const ty_digest *digests;
    const double *numbers;
    const uint32_t *integers;

    switch (f->kind) {
    case JSON_NUMBER:
        ty_json_put_number(writer, f->key, number_at(in, f->at));
        break;
    case JSON_UINT32:
        ty_json_put_uint(writer, f->key, uint32_at(in, f->at));
        break;
    case JSON_UINT64:
        ty_json_put_uint(writer, f->key, uint64_at(in, f->at));
        break;
    case JSON_BOOL:
        ty_json_put_bool(writer, f->key, bool_at(in, f->at));
        break;
    case JSON_TEXT:
    case JSON_WORD:
        ty_json_put_string(writer, f->key, pointer_at(in, f->at));
        break;
    case JSON_CHARS:
        ty_json_put_string(writer, f->key, at);
        break;
    case JSON_DIGEST:
        memcpy(&digest, at, sizeof digest);
        ty_json_put_string(writer, f->key, digest.hex);
        break;
    case JSON_DIGESTS:
        memcpy(&digests, at, sizeof digests);
        ty_json_open(writer, f->key, '[');
        for (uint32_t i = 0; i < uint32_at(in, f->count_at); i++)
            ty_json_put_string(writer, NULL, digests[i].hex);
        ty_json_close(writer, ']');
        break;
    case JSON_NAME:
        ty_json_put_string(writer, f->key, f->name((int)uint32_at(in, f->at)));
        break;
    case JSON_NUMBERS:
        memcpy(&numbers, at, sizeof numbers);
        ty_json_open_flat(writer, f->key, '[');
        for (uint32_t i = 0; i < uint32_at(in, f->count_at); i++)
            ty_json_put_number(writer, NULL, numbers[i]);
        ty_json_close(writer, ']');
        break;
    case JSON_UINTS:
        memcpy(&integers, at, sizeof integers);
        ty_json_put_uint32_array(writer, f->key, integers, uint32_at(in, f->count_at));
        break;
    case JSON_STRUCT:
        ty_record_write(f->of, at, context, writer, f->key);
        break;
    case JSON_ROWS:
    case JSON_HERE:
        if (f->kind == JSON_ROWS)
            at = pointer_at(in, f->at);
        ty_json_open(writer, f->key, '[');
        for (uint32_t i = 0; i < uint32_at(in, f->count_at); i++)
            ty_record_write(f->of, at + i * f->of->size, context, writer, NULL);
        ty_json_close(writer, ']');
        break;
    case JSON_TUPLES:
        write_tuples(f, in, writer);
        break;
    case JSON_MEMBERS:
        ty_record_put(f->of, at, context, writer);
        break;
    case JSON_OTHER:
        break;
    }
}

void ty_record_put(const json_record *record, const void *in, const void *context,
                   ty_json_writer *writer)
{
    for (uint32_t i = 0; i < record->field_count; i++) {
        const json_field *f = &record->fields[i];
        if (!has_field(f, in, context) || (f->is_optional && !says_something(f, in)))
            continue;
        if (f->write != NULL)
            f->write(f, in, context, writer);
        else
            write_field(f, in, context, writer);
    }
}

void ty_record_write(const json_record *record, const void *in, const void *context,
                     ty_json_writer *writer, const char *key)
{
    if (record->is_flat)
        ty_json_open_flat(writer, key, '{');
    else
        ty_json_open(writer, key, '{');
    ty_record_put(record, in, context, writer);
    ty_json_close(writer, '}');
}

void ty_record_write_document(const char *schema, const json_record *record, const void *in,
                              const void *context, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", schema);
    ty_record_put(record, in, context, writer);
    ty_json_close(writer, '}');
}

ty_status ty_record_save(const char *schema, const json_record *record, const void *in,
                         const void *context, const char *path, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_status status;

    ty_record_write_document(schema, record, in, context, &writer, NULL);
    ty_text_add(&text, "\n");
    status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    return status;
}
