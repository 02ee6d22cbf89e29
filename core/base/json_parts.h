/* Values that several of core's files share. Internal to core. */
#ifndef TY_JSON_PARTS_H
#define TY_JSON_PARTS_H

#include "ty_base.h"
#include "ty_json.h"

/** A member of 64 lower-case hexadecimal digits. */
ty_status ty_json_digest(const ty_json *object, const char *key, ty_digest *out,
                         ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_digest(const ty_json *value, ty_digest *out, ty_error *error) TY_MUST_CHECK;
/** A copy of a string member; free with ty_free. */
ty_status ty_json_string_copy(const ty_json *object, const char *key, char **out,
                              ty_error *error) TY_MUST_CHECK;
/** Writes a string member unless it is NULL. */
void ty_json_put_string_if(ty_json_writer *writer, const char *key, const char *value);

/** One of `count` names, `name(i)` being the i-th; `out` is set only on TY_OK. */
ty_status ty_json_name(const ty_json *object, const char *key, const char *(*name)(int), int count,
                       int *out, ty_error *error) TY_MUST_CHECK;

/** An array of integers, counted and in range; free with ty_free. */
ty_status ty_json_uint32_array(const ty_json *object, const char *key, size_t minimum_count,
                               size_t maximum_count, uint32_t minimum, uint32_t maximum,
                               uint32_t **out, uint32_t *count, ty_error *error) TY_MUST_CHECK;
void ty_json_put_uint32_array(ty_json_writer *writer, const char *key, const uint32_t *values,
                              uint32_t count);

/** From 2^53 on, readers that use doubles may have rounded an integer. */
#define TY_JSON_MAX_INTEGER 9007199254740991u

/** Defines `load`, which reads a file of one document by `from_json`. */
#define JSON_LOAD(load, type, from_json)                                                           \
    ty_status load(const char *path, type **out, ty_error *error)                                  \
    {                                                                                              \
        ty_json_document *document = NULL;                                                         \
        ty_status status = ty_json_load(path, &document, error);                                   \
                                                                                                   \
        if (status == TY_OK)                                                                       \
            status = from_json(ty_json_root(document), out, error);                                \
        ty_json_free(document);                                                                    \
        return status;                                                                             \
    }

#endif
