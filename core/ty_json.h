/**
 * @file ty_json.h
 * Strict JSON. Reading keeps track of which members were asked for, so that an unknown key is an
 * error, and every message names the file and the JSON pointer:
 * "plan.json:/stages/1/replicas: found -2, expected an integer from 1 to 1000000".
 *
 *     ty_json_document *document = NULL;
 *     const ty_json *root, *layers;
 *     TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
 *     root = ty_json_root(document);
 *     TY_CHECK(ty_json_schema(root, "trainyard.workload/1", error), status, cleanup);
 *     TY_CHECK(ty_json_array(root, "layers", 1, UINT32_MAX, &layers, error), status, cleanup);
 *     ...
 *     TY_CHECK(ty_json_end(root, error), status, cleanup);   // no member was left unread
 *
 * Refused on parsing, with line and column: whatever RFC 8259 refuses, anything after the document,
 * nesting deeper than 200, invalid UTF-8, NUL characters; with a pointer: duplicate keys, NaN,
 * Infinity and numbers that overflow. Integers from 2^53 on are refused where an integer is
 * expected, since they may have been rounded; numbers beyond TY_JSON_MAX_NUMBER are refused
 * everywhere. A minimum of DBL_MIN is shown as "> 0", a maximum of HUGE_VAL not at all. Reading
 * marks values, so that a document must not be shared by threads. Uses cJSON underneath; none of
 * its types show.
 */
#ifndef TY_JSON_H
#define TY_JSON_H

#include "ty_status.h"
#include "ty_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ty_json_document ty_json_document; /* owns every value in it */
typedef struct ty_json ty_json;                   /* one value; valid as long as its document */

/** @param name what messages call the text: a path or "<standard input>". */
ty_status ty_json_parse(const char *text, size_t length, const char *name, ty_json_document **out,
                        ty_error *error) TY_MUST_CHECK;
/** As ty_json_parse, for files of other programs: numbers that are not finite (Python writes NaN
 * and Infinity) are null, and `unknown` gets a sentence that says where the first one is. */
ty_status ty_json_parse_foreign(const char *text, size_t length, const char *name, ty_text *unknown,
                                ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** Reads and parses a file; "-" is standard input. */
ty_status ty_json_load(const char *path, ty_json_document **out, ty_error *error) TY_MUST_CHECK;
void ty_json_free(ty_json_document *document);

const ty_json *ty_json_root(const ty_json_document *document);

/** The root must be an object whose "schema" is exactly `schema`. */
ty_status ty_json_schema(const ty_json *object, const char *schema, ty_error *error) TY_MUST_CHECK;

/** Whether an object has a member. Does not mark it as read, unless it is null, which counts as
 *  absent. */
bool ty_json_has(const ty_json *object, const char *key);

/** No quantity of a training is larger. Products of a few of them stay finite. */
#define TY_JSON_MAX_NUMBER 1e100

/* A member that must be there, of the given type and inside the given inclusive range. */
ty_status ty_json_number(const ty_json *object, const char *key, double minimum, double maximum,
                         double *out, ty_error *error) TY_MUST_CHECK;
ty_status ty_json_uint64(const ty_json *object, const char *key, uint64_t minimum, uint64_t maximum,
                         uint64_t *out, ty_error *error) TY_MUST_CHECK;
ty_status ty_json_uint32(const ty_json *object, const char *key, uint32_t minimum, uint32_t maximum,
                         uint32_t *out, ty_error *error) TY_MUST_CHECK;
ty_status ty_json_bool(const ty_json *object, const char *key, bool *out,
                       ty_error *error) TY_MUST_CHECK;
/** Borrowed, terminated, non-empty, ty_is_printable; valid as long as the document. */
ty_status ty_json_string(const ty_json *object, const char *key, const char **out,
                         ty_error *error) TY_MUST_CHECK;
/** The same, of a text that may have several lines: whoever shows it takes care of it. */
ty_status ty_json_lines(const ty_json *object, const char *key, const char **out,
                        ty_error *error) TY_MUST_CHECK;
/** A string that is one of `names`; `out` gets its index. The message lists or suggests names. */
ty_status ty_json_enum(const ty_json *object, const char *key, const char *const *names,
                       size_t count, int *out, ty_error *error) TY_MUST_CHECK;
ty_status ty_json_object(const ty_json *object, const char *key, const ty_json **out,
                         ty_error *error) TY_MUST_CHECK;
/** An array of `minimum` to `maximum` elements. */
ty_status ty_json_array(const ty_json *object, const char *key, size_t minimum, size_t maximum,
                        const ty_json **out, ty_error *error) TY_MUST_CHECK;

/** A member that must be there, of whatever type: for those that may be of several. */
ty_status ty_json_member(const ty_json *object, const char *key, const ty_json **out,
                         ty_error *error) TY_MUST_CHECK;

/** Elements of an array, members of an object, 0 for anything else. */
size_t ty_json_size(const ty_json *value);
/** The i-th element or member; i < ty_json_size(). Marks it as read. Constant time. */
const ty_json *ty_json_at(const ty_json *value, size_t i);
/** Name of a member obtained by ty_json_at() on an object. */
const char *ty_json_key(const ty_json *value);
bool ty_json_is_object(const ty_json *value);
bool ty_json_is_array(const ty_json *value);
bool ty_json_is_string(const ty_json *value);
bool ty_json_is_number(const ty_json *value);

/* The same checks for a value in hand, such as an array element. */
ty_status ty_json_as_number(const ty_json *value, double minimum, double maximum, double *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_uint64(const ty_json *value, uint64_t minimum, uint64_t maximum, uint64_t *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_uint32(const ty_json *value, uint32_t minimum, uint32_t maximum, uint32_t *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_string(const ty_json *value, const char **out, ty_error *error) TY_MUST_CHECK;

/** Every member of the object must have been read: an unknown key is an error that suggests the
 * known ones asked for so far. Call it last on every object. */
ty_status ty_json_end(const ty_json *object, ty_error *error) TY_MUST_CHECK;
/** Marks a member and all below it as read, whatever it is: for notes and provenance. */
void ty_json_ignore(const ty_json *object, const char *key);

/** Name of the next member that was not read; it counts as read from now on. NULL when there is no
 * more. For documents of others, where an unknown key is no mistake but worth a note. */
const char *ty_json_next_unread(const ty_json *object);

/** Where a value is, as messages say it: "plan.json:/stages/1", and "plan.json:" for the root, so
 * that a further pointer can be appended. Cut off at the size of the buffer. */
#define TY_JSON_PLACE_SIZE 320
void ty_json_place(const ty_json *value, char out[TY_JSON_PLACE_SIZE]);

/** TY_EPARSE with "file:/pointer: found <value>, expected <...>". */
ty_status ty_json_fail(const ty_json *value, ty_error *error, const char *expected, ...)
    TY_PRINTF(3, 4);

/** The value as JSON text on one line, members in their order, numbers that read back exactly. */
ty_status ty_json_text(const ty_json *value, char **out, ty_error *error) TY_MUST_CHECK;
/** The same of an object without one of its members. */
ty_status ty_json_text_without(const ty_json *value, const char *key, char **out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Writing: a stream of calls onto a ty_text, indented by two spaces; commas and nesting are kept
 * for you. Numbers read back exactly; what JSON cannot hold marks the text as failed (TY_EINVAL):
 * a NaN or infinity, an integer from 2^53 on, a string that is not UTF-8.
 *
 *     ty_json_writer w = ty_json_writer_on(&text);
 *     ty_json_open(&w, NULL, '{');
 *     ty_json_put_string(&w, "schema", "trainyard.plan/1");
 *     ty_json_open(&w, "stages", '[');  ...  ty_json_close(&w, ']');
 *     ty_json_close(&w, '}');
 */
typedef struct ty_json_writer {
    ty_text *text;
    int depth;
    int flat_depth; /* of the outermost container written on one line; 0: none is open */
    bool is_first;  /* in the innermost container */
    bool is_compact;
} ty_json_writer;

ty_json_writer ty_json_writer_on(ty_text *text);
/** On one line, as ty_json_text has the document: what a digest is made of, without reading it. */
ty_json_writer ty_json_writer_compact_on(ty_text *text);
/** Opens '{' or '['; `key` is NULL inside arrays and at the root. */
void ty_json_open(ty_json_writer *writer, const char *key, char bracket);
/** As ty_json_open, with everything inside on one line: for rows of numbers. */
void ty_json_open_flat(ty_json_writer *writer, const char *key, char bracket);
void ty_json_close(ty_json_writer *writer, char bracket);
void ty_json_put_string(ty_json_writer *writer, const char *key, const char *value);
void ty_json_put_number(ty_json_writer *writer, const char *key, double value);
void ty_json_put_uint(ty_json_writer *writer, const char *key, uint64_t value);
void ty_json_put_bool(ty_json_writer *writer, const char *key, bool value);
void ty_json_put_null(ty_json_writer *writer, const char *key);
/** Inserts JSON text as it is (a whole value, already valid). */
void ty_json_put_raw(ty_json_writer *writer, const char *key, const char *json);

#endif
