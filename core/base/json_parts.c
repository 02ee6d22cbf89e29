/* Values that several of core's files share. */
#include "json_parts.h"

#include "ty_base.h"

#include <assert.h>
#include <string.h>

/* A member that is known to be there. */
static const ty_json *member(const ty_json *object, const char *key)
{
    size_t i = 0;
    while (strcmp(ty_json_key(ty_json_at(object, i)), key) != 0)
        i++;
    return ty_json_at(object, i);
}

ty_status ty_json_as_digest(const ty_json *value, ty_digest *out, ty_error *error)
{
    const char *hex;

    TY_TRY(ty_json_as_string(value, &hex, error));
    if (strlen(hex) != sizeof out->hex - 1 ||
        strspn(hex, "0123456789abcdef") != sizeof out->hex - 1)
        return ty_json_fail(value, error, "64 lower-case hexadecimal digits");
    memcpy(out->hex, hex, sizeof out->hex);
    return TY_OK;
}

ty_status ty_json_digest(const ty_json *object, const char *key, ty_digest *out, ty_error *error)
{
    const char *hex;

    TY_TRY(ty_json_string(object, key, &hex, error));
    return ty_json_as_digest(member(object, key), out, error);
}

ty_status ty_json_string_copy(const ty_json *object, const char *key, char **out, ty_error *error)
{
    const char *value;
    char *copy;

    TY_TRY(ty_json_string(object, key, &value, error));
    copy = ty_strdup(value);
    TY_TRY(ty_check_memory(copy != NULL, error));
    *out = copy;
    return TY_OK;
}

void ty_json_put_string_if(ty_json_writer *writer, const char *key, const char *value)
{
    if (value != NULL)
        ty_json_put_string(writer, key, value);
}

ty_status ty_json_name(const ty_json *object, const char *key, const char *(*name)(int), int count,
                       int *out, ty_error *error)
{
    const char *names[32];

    assert(count <= (int)(sizeof names / sizeof names[0]));
    for (int i = 0; i < count; i++)
        names[i] = name(i);
    return ty_json_enum(object, key, names, (size_t)count, out, error);
}

ty_status ty_json_uint32_array(const ty_json *object, const char *key, size_t minimum_count,
                               size_t maximum_count, uint32_t minimum, uint32_t maximum,
                               uint32_t **out, uint32_t *count, ty_error *error)
{
    const ty_json *array;
    uint32_t *values;
    size_t size;
    ty_status status = TY_OK;

    TY_TRY(ty_json_array(object, key, minimum_count, maximum_count, &array, error));
    size = ty_json_size(array);
    values = ty_alloc(size, sizeof *values);
    TY_TRY(ty_check_memory(values != NULL, error));
    for (size_t i = 0; i < size; i++) {
        status = ty_json_as_uint32(ty_json_at(array, i), minimum, maximum, &values[i], error);
        if (status != TY_OK) {
            ty_free(values);
            return status;
        }
    }
    *out = values;
    *count = (uint32_t)size;
    return TY_OK;
}

void ty_json_put_uint32_array(ty_json_writer *writer, const char *key, const uint32_t *values,
                              uint32_t count)
{
    ty_json_open_flat(writer, key, '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_uint(writer, NULL, values[i]);
    ty_json_close(writer, ']');
}
