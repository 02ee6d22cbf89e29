/**
 * @file ty_json_record.h
 * What a record of a file has, said once: a table of its members, from which its reader, its writer
 * and its part of docs/schemas follow (tests/core/schema_tables.c prints them).
 *
 *     static const json_field fields[] = {
 *         {"name", JSON_TEXT, JSON_AT(ty_candidate, name)},
 *         {"step_time_s", JSON_NUMBER, JSON_AT(ty_candidate, step_time_s), 0, DBL_MAX},
 *         {"fix", JSON_TEXT, JSON_AT(ty_candidate, fix), .is_optional = true},
 *     };
 *     const json_record ty_candidate_record = JSON_RECORD(ty_candidate, fields);
 */
#ifndef TY_JSON_RECORD_H
#define TY_JSON_RECORD_H

#include "ty_json.h"
#include "ty_status.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

typedef enum json_kind {
    JSON_NUMBER, /* double */
    JSON_UINT32,
    JSON_UINT64,
    JSON_BOOL,
    JSON_TEXT,    /* char *, a copy of the record's own */
    JSON_WORD,    /* const char *, the document's: valid as long as it */
    JSON_CHARS,   /* char [maximum + 1] */
    JSON_DIGEST,  /* ty_digest */
    JSON_DIGESTS, /* ty_digest *, least_count to most_count of them; how many at `count_at` */
    JSON_NAME,    /* an enumeration: one of the `name_count` names that `name` has */
    JSON_NUMBERS, /* double *, minimum and maximum of each; how many at `count_at` */
    JSON_UINTS,   /* uint32_t *, likewise */
    JSON_STRUCT,  /* a record in the record: `of` */
    JSON_ROWS, /* records, a pointer to them: minimum to maximum of `of`; how many at `count_at` */
    JSON_HERE, /* the same, `maximum` of them in the record itself */
    JSON_TUPLES,  /* as rows, each an array of the members of `of`, numbers and 32-bit integers */
    JSON_MEMBERS, /* a record whose members are among this one's: `of`, and no key */
    JSON_OTHER    /* what `read` and `write` do */
} json_kind;

typedef struct json_record json_record;
typedef struct json_field json_field;
struct json_field {
    const char *key;
    json_kind kind;
    size_t at;               /* of the member, in the record */
    double minimum, maximum; /* inclusive, as for ty_json_number */
    double absent;           /* an optional number's, integer's or name's where it is left out */
    /* May be missing. It is not written where it says nothing: a figure that is `absent` or an
     * integer below its minimum, what is false, NULL, empty. Of other kinds `is_said` tells. */
    bool is_optional;
    bool (*is_said)(const void *record);
    size_t said_at, said_size; /* or JSON_SAID: said where a byte of this member is not 0 */
    bool (*applies)(const void *record); /* only such records have it, by what was read before it */
    bool (*applies_in)(const void *context); /* likewise, by the caller's */
    const char *(*name)(int);
    int name_count;
    const json_record *of;
    size_t count_at;                  /* of a uint32_t in the record */
    uint32_t least_count, most_count; /* of numbers and integers; 0: as many as there are */
    /* In place of what the kind says; `context` is the caller's. */
    ty_status (*read)(const ty_json *object, const json_field *field, void *record,
                      const void *context, ty_error *error);
    void (*write)(const json_field *field, const void *record, const void *context,
                  ty_json_writer *writer);
    const char *schema; /* "workload.json": the file of docs/schemas that says it */
    const char *about;  /* for readers of the schema */
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
/** Defines the `name` of fields of an enumeration: `function` has its names. */
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

/** Reads the members of `record` from `object` into a zeroed `out`; others may be left. What it has
 * allocated by then is in `out` after a failure, too. */
ty_status ty_record_read(const ty_json *object, const json_record *record, void *out,
                         const void *context, ty_error *error) TY_MUST_CHECK;
/** The same, and there are no others. */
ty_status ty_record_read_all(const ty_json *object, const json_record *record, void *out,
                             const void *context, ty_error *error) TY_MUST_CHECK;
/** A `read` for a member that is read elsewhere, before or later. */
ty_status ty_record_pass_by(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error) TY_MUST_CHECK;
/** Frees what a record owns: texts, arrays and rows, which then are NULL and none. Members with a
 * `read` of their own belong to it where the table says `at` which offset, above 0, they are. */
void ty_record_clear(const json_record *record, void *in);
/** A row of JSON_TUPLES by itself, for who keeps them otherwise. */
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

/* What core's files have and what they share. */
extern const json_record ty_compression_record; /* of a ty_compression, behind its kind */
extern const json_record ty_optimizer_record, ty_input_record, ty_step_summary_record;
extern const json_record ty_training_cost_record;
extern const json_record ty_until_record;          /* of a ty_target, of what has one */
extern const json_record ty_device_figures_record; /* of a ty_device_type */
extern const json_record ty_plan_record, ty_profile_record, ty_run_record, ty_cluster_record;
extern const json_record ty_samples_record, ty_job_record, ty_timeline_record, ty_program_record;
extern const json_record ty_workload_record;

#endif
