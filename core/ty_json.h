/**
 * @file ty_json.h
 * Strict JSON. Reading marks the members that were read, so an unknown key is an error, and every
 * message names the file and the JSON pointer: "plan.json:/stages/1/replicas: found -2, expected an
 * integer from 1 to 1000000".
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
 * The parser rejects, with line and column, everything that RFC 8259 rejects, text after the
 * document, nesting deeper than 200, invalid UTF-8 and NUL characters. It rejects, with a pointer,
 * duplicate keys, NaN, Infinity and numbers that overflow. Integers from 2^53 on are rejected as
 * integers, because they may have been rounded; numbers above TY_JSON_MAX_NUMBER are always
 * rejected. Messages print a minimum of DBL_MIN as "> 0" and omit a maximum of HUGE_VAL. Reading
 * marks values, so threads must not share a document. The implementation uses cJSON; none of its
 * types are exposed.
 */
#ifndef TY_JSON_H
#define TY_JSON_H

#include "ty_base.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ty_json_document ty_json_document; /* owns every value in it */
typedef struct ty_json ty_json;                   /* one value; valid as long as its document */

/** @param name name of the text in messages: a path or "<standard input>". */
ty_status ty_json_parse(const char *text, size_t length, const char *name, ty_json_document **out,
                        ty_error *error) TY_MUST_CHECK;
/** As ty_json_parse, for files of other programs: numbers that are not finite (Python writes NaN
 * and Infinity) are null, and `unknown` gets a sentence with the place of the first one. */
ty_status ty_json_parse_foreign(const char *text, size_t length, const char *name, ty_text *unknown,
                                ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** Reads and parses a file; "-" is standard input. */
ty_status ty_json_load(const char *path, ty_json_document **out, ty_error *error) TY_MUST_CHECK;
void ty_json_free(ty_json_document *document);

const ty_json *ty_json_root(const ty_json_document *document);

/** The current version of a schema: "trainyard.run/2" for "trainyard.run/1", others unchanged. */
const char *ty_json_schema_now(const char *schema);
/** Checks that the root is an object whose "schema" is `schema`, or an older version of it, whose
 * members may have older keys (json_field). */
ty_status ty_json_schema(const ty_json *object, const char *schema, ty_error *error) TY_MUST_CHECK;

/** Whether an object has a member. Does not mark it as read, unless it is null, which counts as
 *  absent. */
bool ty_json_has(const ty_json *object, const char *key);

/** No quantity of a training is larger. Products of a few of them stay finite. */
#define TY_JSON_MAX_NUMBER 1e100

/* A required member of the given type and in the given inclusive range. */
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
/** The same for a text that may have several lines: quote it for display. */
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

/* The same checks for a value, such as an array element. */
ty_status ty_json_as_number(const ty_json *value, double minimum, double maximum, double *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_uint64(const ty_json *value, uint64_t minimum, uint64_t maximum, uint64_t *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_uint32(const ty_json *value, uint32_t minimum, uint32_t maximum, uint32_t *out,
                            ty_error *error) TY_MUST_CHECK;
ty_status ty_json_as_string(const ty_json *value, const char **out, ty_error *error) TY_MUST_CHECK;

/** Checks that every member of the object was read: an unknown key is an error that suggests the
 * keys read so far. Call it last on every object. */
ty_status ty_json_end(const ty_json *object, ty_error *error) TY_MUST_CHECK;
/** Marks a member and everything in it as read, of any type: for notes and provenance. */
void ty_json_ignore(const ty_json *object, const char *key);

/** Name of the next unread member, which it marks as read. NULL if there is none. For documents of
 * other programs, in which an unknown key is not an error but deserves a note. */
const char *ty_json_next_unread(const ty_json *object);

/** The place of a value, for messages: "plan.json:/stages/1", and "plan.json:" for the root, so a
 * pointer can be appended. Truncated to the size of the buffer. */
#define TY_JSON_PLACE_SIZE 320
void ty_json_place(const ty_json *value, char out[TY_JSON_PLACE_SIZE]);

/** TY_EPARSE with "file:/pointer: found <value>, expected <...>". */
ty_status ty_json_fail(const ty_json *value, ty_error *error, const char *expected, ...)
    TY_PRINTF(3, 4);

/** The value as JSON text on one line, members in their order, numbers that read back exactly. */
ty_status ty_json_text(const ty_json *value, char **out, ty_error *error) TY_MUST_CHECK;
/** The same for an object without one of its members. */
ty_status ty_json_text_without(const ty_json *value, const char *key, char **out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Writing: a stream of calls onto a ty_text, indented by two spaces; the writer handles commas and
 * nesting. Numbers read back exactly; values that JSON cannot represent mark the text as failed
 * (TY_EINVAL): a NaN or infinity, an integer from 2^53 on, a string that is not UTF-8.
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
/** On one line, in the form of ty_json_text: for a digest without parsing. */
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
/** Inserts JSON text unchanged (one complete, valid value). */
void ty_json_put_raw(ty_json_writer *writer, const char *key, const char *json);

/* ==== json record ============================================================================= */

/*
 * A record of a file, defined once: a table of its members, which gives its reader, its writer and
 * its part of docs/schemas (tests/core/schema_tables.c prints them).
 *
 *     static const json_field fields[] = {
 *         {"name", JSON_TEXT, JSON_AT(ty_candidate, name)},
 *         {"step_time_s", JSON_NUMBER, JSON_AT(ty_candidate, step_time_s), 0, DBL_MAX},
 *         {"fix", JSON_TEXT, JSON_AT(ty_candidate, fix), .is_optional = true},
 *     };
 *     const json_record ty_candidate_record = JSON_RECORD(ty_candidate, fields);
 */

typedef enum json_kind {
    JSON_NUMBER, /* double */
    JSON_UINT32,
    JSON_UINT64,
    JSON_BOOL,
    JSON_TEXT,    /* char *, a copy of the record's own */
    JSON_WORD,    /* const char * into the document: valid as long as it */
    JSON_CHARS,   /* char [maximum + 1] */
    JSON_DIGEST,  /* ty_digest */
    JSON_DIGESTS, /* ty_digest *, least_count to most_count of them; their number is at `count_at`
                   */
    JSON_NAME,    /* an enumeration: one of the `name_count` names of `name` */
    JSON_NUMBERS, /* double *, minimum and maximum of each; their number is at `count_at` */
    JSON_UINTS,   /* uint32_t *, likewise */
    JSON_STRUCT,  /* a record in the record: `of` */
    JSON_ROWS,    /* pointer to minimum to maximum records `of`; their number is at `count_at` */
    JSON_HERE,    /* the same, `maximum` of them in the record itself */
    JSON_TUPLES,  /* as rows, each an array of the members of `of`, numbers and 32-bit integers */
    JSON_MEMBERS, /* a record whose members are among this one's: `of`, and no key */
    JSON_OTHER    /* custom: `read` and `write` */
} json_kind;

typedef struct json_record json_record;
typedef struct json_field json_field;
struct json_field {
    const char *key;
    json_kind kind;
    size_t at;               /* of the member, in the record */
    double minimum, maximum; /* inclusive, as for ty_json_number */
    double absent;           /* value of an optional number, integer or name that is missing */
    /* May be missing. The writer omits it if it has no value: a number that equals `absent`, an
     * integer below its minimum, false, NULL, empty. For other kinds `is_said` decides. */
    bool is_optional;
    bool (*is_said)(const void *record);
    size_t said_at, said_size; /* or JSON_SAID: has a value if a byte of this member is not 0 */
    bool (*applies)(const void *record); /* whether a record has it, from its previous members */
    bool (*applies_in)(const void *context); /* likewise, from the caller's context */
    const char *(*name)(int);
    int name_count;
    const json_record *of;
    size_t count_at;                  /* of a uint32_t in the record */
    uint32_t least_count, most_count; /* of numbers and integers; 0: any number */
    /* Replace the kind's own; `context` is the caller's. */
    ty_status (*read)(const ty_json *object, const json_field *field, void *record,
                      const void *context, ty_error *error);
    void (*write)(const json_field *field, const void *record, const void *context,
                  ty_json_writer *writer);
    const char *schema; /* the file of docs/schemas that defines it: "workload.json" */
    const char *about;  /* for readers of the schema */
    const char *was;    /* the key in older versions of the document, read where `key` is missing */
};

struct json_record {
    const json_field *fields;
    uint32_t field_count;
    size_t size;
    bool is_flat; /* written on one line */
};

#define JSON_AT(type, member) .at = offsetof(type, member)
#define JSON_SAID(type, member)                                                                    \
    .said_at = offsetof(type, member), .said_size = sizeof((type *)NULL)->member
/** Defines a `name` function for fields of an enumeration from its name `function`. */
#define JSON_NAMES(name, type, function)                                                           \
    static const char *name(int i)                                                                 \
    {                                                                                              \
        return function((type)i);                                                                  \
    }
#define JSON_RECORD(type, table)                                                                   \
    {                                                                                              \
        .fields = (table), .field_count = sizeof(table) / sizeof(table)[0], .size = sizeof(type)   \
    }
#define JSON_FLAT_RECORD(type, table)                                                              \
    {                                                                                              \
        .fields = (table), .field_count = sizeof(table) / sizeof(table)[0], .size = sizeof(type),  \
        .is_flat = true                                                                            \
    }

/** Reads the members of `record` from `object` into a zeroed `out`; the object may have others.
 * After a failure `out` has the allocations so far. */
ty_status ty_record_read(const ty_json *object, const json_record *record, void *out,
                         const void *context, ty_error *error) TY_MUST_CHECK;
/** The same, and rejects other members. */
ty_status ty_record_read_all(const ty_json *object, const json_record *record, void *out,
                             const void *context, ty_error *error) TY_MUST_CHECK;
/** A `read` for a member that is read elsewhere, before or later. */
ty_status ty_record_pass_by(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error) TY_MUST_CHECK;
/** Frees the texts, arrays and rows of a record, and sets them to NULL and their numbers to 0.
 * Includes members with their own `read` if the table has their offset `at`, above 0. */
void ty_record_clear(const json_record *record, void *in);
/** One row of JSON_TUPLES, for other containers. */
ty_status ty_record_read_tuple(const ty_json *value, const json_record *record, void *out,
                               ty_error *error) TY_MUST_CHECK;
void ty_record_write_tuple(const json_record *record, const void *in, ty_json_writer *writer);
/** Writes the members of `record`, without brackets. */
void ty_record_put(const json_record *record, const void *in, const void *context,
                   ty_json_writer *writer);
/** The same as an object. @param key NULL inside arrays and at the root */
void ty_record_write(const json_record *record, const void *in, const void *context,
                     ty_json_writer *writer, const char *key);
/** The same as a document, whose first member is its schema. */
void ty_record_write_document(const char *schema, const json_record *record, const void *in,
                              const void *context, ty_json_writer *writer, const char *key);
/** Writes a document to a file. @return as ty_file_write_text */
ty_status ty_record_save(const char *schema, const json_record *record, const void *in,
                         const void *context, const char *path, ty_error *error) TY_MUST_CHECK;

/* Records of core's files, and those that they share. */
extern const json_record ty_compression_record; /* of a ty_compression, after its kind */
extern const json_record ty_optimizer_record, ty_input_record, ty_step_summary_record;
extern const json_record ty_training_cost_record;
extern const json_record ty_until_record;          /* of a ty_target in its owner */
extern const json_record ty_device_figures_record; /* of a ty_device_type */
extern const json_record ty_plan_record, ty_profile_record, ty_run_record, ty_cluster_record;
extern const json_record ty_samples_record, ty_job_record, ty_timeline_record, ty_program_record;
extern const json_record ty_workload_record;

#endif
