/* Reads files of published measurements. */
#include "row_question.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_NUMBER 1e24
#define MOST_RECORDS 10000000

static const char *const kinds[] = {"training-speed", "time-to-train",   "collective",
                                    "convergence",    "convergence-fit", "memory",
                                    "layer-profile",  "accuracy",        "compression-ratio"};
static const char *const confidences[] = {"read", "recalled"};

/* ---- Members by path ------------------------------------------------------------------------- */

/* The object of a path's last member, and that member; NULL if the path ends early, at a missing
 * member (`*at` is its name), or at one that is no object (TY_EPARSE). */
static ty_status find_part(const ty_json *object, const char *path, const ty_json **part,
                           const char **last, ty_error *error)
{
    ty_status status = TY_OK;

    *part = object;
    for (*last = path; status == TY_OK && *part != NULL;) {
        const char *dot = strchr(*last, '.');
        char key[64];
        if (dot == NULL || (size_t)(dot - *last) >= sizeof key)
            break;
        memcpy(key, *last, (size_t)(dot - *last));
        key[dot - *last] = '\0';
        object = *part;
        *part = NULL;
        *last = dot + 1;
        if (ty_json_has(object, key))
            status = ty_json_object(object, key, part, error);
    }
    if (status == TY_OK && *part != NULL && !ty_json_has(*part, *last))
        *part = NULL;
    return status;
}

bool ty_find_has(const ty_json *object, const char *path)
{
    const ty_json *part;
    const char *key;

    return find_part(object, path, &part, &key, NULL) == TY_OK && part != NULL;
}

double ty_find_number(const ty_json *object, const char *path, double otherwise)
{
    const ty_json *part;
    const char *key;
    double value;

    return find_part(object, path, &part, &key, NULL) == TY_OK && part != NULL &&
                   ty_json_number(part, key, -LARGEST_NUMBER, LARGEST_NUMBER, &value, NULL) == TY_OK
               ? value
               : otherwise;
}

bool ty_find_flag(const ty_json *object, const char *path, bool otherwise)
{
    const ty_json *part;
    const char *key;
    bool value;

    return find_part(object, path, &part, &key, NULL) == TY_OK && part != NULL &&
                   ty_json_bool(part, key, &value, NULL) == TY_OK
               ? value
               : otherwise;
}

const char *ty_find_text(const ty_json *object, const char *path)
{
    const ty_json *part;
    const char *key, *value;

    return find_part(object, path, &part, &key, NULL) == TY_OK && part != NULL &&
                   ty_json_string(part, key, &value, NULL) == TY_OK
               ? value
               : "";
}

/* ---- Records --------------------------------------------------------------------------------- */

/* The members with numbers and texts of ty_record. */
#define NUMBER(path, member)                                                                       \
    {                                                                                              \
        path, offsetof(ty_record, member), true, false                                             \
    }
#define TEXT(path, member)                                                                         \
    {                                                                                              \
        path, offsetof(ty_record, member), false, false                                            \
    }

static const struct field {
    const char *path;
    size_t offset;
    bool is_number;
    bool may_be_text; /* "65536 then 32768": a text counts as not stated */
} fields[] = {
    TEXT("source.table", source_table),
    TEXT("model.name", model),
    TEXT("model.family", model_family),
    TEXT("model.dtype", dtype),
    {"batch.global", offsetof(ty_record, global_batch), true, true},
    NUMBER("batch.per_gpu", batch_per_gpu),
    NUMBER("batch.micro_batches", micro_batches),
    TEXT("cluster.gpu", gpu),
    TEXT("cluster.node", node),
    TEXT("cluster.inter_node.network", network),
    NUMBER("cluster.inter_node.GBps_per_node", node_gigabytes_per_s),
    NUMBER("cluster.gpus", gpus),
    NUMBER("cluster.gpus_per_node", gpus_per_node),
    TEXT("parallel.update", update),
    TEXT("parallel.schedule", schedule),
    TEXT("parallel.configuration", configuration),
    TEXT("parallel.recompute", recompute),
    NUMBER("parallel.dp", dp),
    NUMBER("parallel.tp", tp),
    NUMBER("parallel.pp", pp),
    NUMBER("parallel.cp", cp),
    NUMBER("parallel.ep", ep),
    TEXT("collective.op", operation),
    TEXT("collective.algorithm", algorithm),
    NUMBER("collective.bytes", collective_bytes),
    TEXT("framework", framework),
    TEXT("software", software),
    TEXT("input_data", input_data),
    TEXT("measured.unit", unit),
    NUMBER("runs", runs),
};

static ty_status read_field(const struct field *f, ty_record *record, ty_error *error)
{
    char *at = (char *)record + f->offset;
    const ty_json *part;
    const char *key, *text = "";
    double number = 0;
    ty_status status = find_part(record->json, f->path, &part, &key, error);

    if (status == TY_OK && part != NULL && !f->is_number)
        status = ty_json_string(part, key, &text, error);
    else if (status == TY_OK && part != NULL &&
             !(f->may_be_text && ty_json_string(part, key, &text, NULL) == TY_OK))
        status = ty_json_number(part, key, 0, LARGEST_NUMBER, &number, error);
    if (f->is_number)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &text, sizeof text);
    return status;
}

static ty_status check_also_measured(const ty_json *object, ty_error *error)
{
    const ty_json *list;
    const char *name;
    double value;

    if (!ty_json_has(object, "also_measured"))
        return TY_OK;
    TY_TRY(ty_json_array(object, "also_measured", 0, MOST_RECORDS, &list, error));
    for (size_t i = 0; i < ty_json_size(list); i++) {
        const ty_json *row = ty_json_at(list, i);
        if (!ty_json_is_object(row))
            return ty_json_fail(row, error, "an object with metric and value");
        TY_TRY(ty_json_string(row, "metric", &name, error));
        TY_TRY(ty_json_number(row, "value", -LARGEST_NUMBER, LARGEST_NUMBER, &value, error));
    }
    return TY_OK;
}

static ty_status read_record(const ty_json *object, ty_record *record, ty_error *error)
{
    const ty_json *measured, *source;
    int kind = 0, confidence = 0;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error, "a record: an object");
    record->json = object;
    TY_TRY(ty_json_string(object, "id", &record->id, error));
    TY_TRY(ty_json_enum(object, "kind", kinds, sizeof kinds / sizeof kinds[0], &kind, error));
    record->kind = kinds[kind];
    TY_TRY(ty_json_object(object, "source", &source, error));
    TY_TRY(ty_json_enum(object, "confidence", confidences, 2, &confidence, error));
    record->is_recalled = confidence == 1;
    TY_TRY(ty_json_object(object, "measured", &measured, error));
    TY_TRY(ty_json_string(measured, "metric", &record->metric, error));
    TY_TRY(
        ty_json_number(measured, "value", -LARGEST_NUMBER, LARGEST_NUMBER, &record->value, error));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        TY_TRY(read_field(&fields[i], record, error));
    return check_also_measured(object, error);
}

double ty_record_also_measured(const ty_record *record, const char *metric)
{
    const ty_json *list;

    if (!ty_json_has(record->json, "also_measured") ||
        ty_json_array(record->json, "also_measured", 0, MOST_RECORDS, &list, NULL) != TY_OK)
        return 0;
    for (size_t i = 0; i < ty_json_size(list); i++)
        if (strcmp(ty_find_text(ty_json_at(list, i), "metric"), metric) == 0)
            return ty_find_number(ty_json_at(list, i), "value", 0);
    return 0;
}

bool ty_record_more_is_better(const ty_record *record)
{
    static const char *const less[] = {"s",      "ms",    "us", "min", "h",  "epochs", "samples",
                                       "tokens", "steps", "B",  "MB",  "GB", "GiB",    "MiB"};

    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        if (strcmp(record->unit, less[i]) == 0)
            return false;
    return true;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const ty_record *const *)a)->id, (*(const ty_record *const *)b)->id);
}

static ty_status check_ids(const ty_records *r, ty_error *error)
{
    const ty_record **sorted = ty_alloc((size_t)r->count + 1, sizeof *sorted);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(sorted != NULL, error));
    for (uint32_t i = 0; i < r->count; i++)
        sorted[i] = &r->items[i];
    qsort(sorted, r->count, sizeof *sorted, by_id);
    for (uint32_t i = 1; i < r->count && status == TY_OK; i++)
        if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
            status = ty_json_fail(sorted[i]->json, error,
                                  "an id of its own: \"%s\" is that of another record too",
                                  sorted[i]->id);
    ty_free(sorted);
    return status;
}

static ty_status read_all(const ty_json *root, ty_records *r, ty_error *error)
{
    const ty_json *list;
    const char *family;
    uint32_t schema, count;

    if (!ty_json_is_object(root))
        return ty_json_fail(root, error, "an object with schema, family, count and records");
    TY_TRY(ty_json_member(root, "schema", &list, error));
    if (ty_json_uint32(root, "schema", 1, 1, &schema, NULL) != TY_OK)
        return ty_json_fail(list, error, "1, of gathered measurements");
    TY_TRY(ty_json_string(root, "family", &family, error));
    TY_TRY(ty_json_uint32(root, "count", 0, MOST_RECORDS, &count, error));
    TY_TRY(ty_json_array(root, "records", 0, MOST_RECORDS, &list, error));
    TY_TRY(ty_json_end(root, error));
    if (ty_json_size(list) != count)
        return ty_json_fail(list, error, "as many records as /count says: %u", count);
    r->family = ty_strdup(family);
    r->items = ty_alloc(count, sizeof *r->items);
    TY_TRY(ty_check_memory(r->family != NULL && r->items != NULL, error));
    for (r->count = 0; r->count < count; r->count++)
        TY_TRY(read_record(ty_json_at(list, r->count), &r->items[r->count], error));
    return check_ids(r, error);
}

/* Takes ownership of the document. */
static ty_status from_document(ty_json_document *document, ty_records **out, ty_error *error)
{
    ty_records *r = ty_alloc(1, sizeof *r);
    ty_status status;

    if (r == NULL) {
        ty_json_free(document);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    r->document = document;
    status = read_all(ty_json_root(document), r, error);
    if (status == TY_OK)
        *out = r;
    else
        ty_records_free(r);
    return status;
}

ty_status ty_records_load(const char *path, ty_records **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_load(path, &document, error);

    return status == TY_OK ? from_document(document, out, error) : status;
}

ty_status ty_records_parse(const char *text, size_t length, const char *name, ty_records **out,
                           ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, length, name, &document, error);

    return status == TY_OK ? from_document(document, out, error) : status;
}

void ty_records_free(ty_records *records)
{
    if (records == NULL)
        return;
    ty_json_free(records->document);
    ty_free(records->items);
    ty_free(records->family);
    ty_free(records);
}
