/* Reading files of measurements that others published. */
#include "ty_validate.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_NUMBER 1e24
#define MOST_RECORDS 10000000

static const char *const kinds[] = {"training-speed", "time-to-train",   "collective",
                                    "convergence",    "convergence-fit", "memory",
                                    "layer-profile",  "accuracy",        "compression-ratio"};
static const char *const confidences[] = {"read", "recalled"};

/* ---- Members ----------------------------------------------------------------------------- */

/* A part of a record where the source stated it; NULL where not. */
static ty_status read_part(const ty_json *object, const char *key, const ty_json **out,
                           ty_error *error)
{
    *out = NULL;
    return ty_json_has(object, key) ? ty_json_object(object, key, out, error) : TY_OK;
}

/* The members that become numbers and texts of ty_record: where they stand, where they go. */
typedef struct field {
    const char *part, *key; /* part NULL: in the record itself */
    size_t offset;
    bool is_number;
    bool may_be_text; /* "65536 then 32768": a number that is none counts as not stated */
} field;

#define NUMBER(part, key, member)                                                                  \
    {                                                                                              \
        part, key, offsetof(ty_record, member), true, false                                        \
    }
#define TEXT(part, key, member)                                                                    \
    {                                                                                              \
        part, key, offsetof(ty_record, member), false, false                                       \
    }

static const field fields[] = {
    TEXT("source", "table", source_table),
    TEXT("model", "name", model),
    TEXT("model", "family", model_family),
    TEXT("model", "dtype", dtype),
    NUMBER("model", "dataset_samples", dataset_samples),
    {"batch", "global", offsetof(ty_record, global_batch), true, true},
    NUMBER("batch", "per_gpu", batch_per_gpu),
    NUMBER("batch", "micro_batches", micro_batches),
    TEXT("cluster", "gpu", gpu),
    TEXT("cluster", "node", node),
    NUMBER("cluster", "gpus", gpus),
    NUMBER("cluster", "gpus_per_node", gpus_per_node),
    TEXT("parallel", "update", update),
    TEXT("parallel", "schedule", schedule),
    TEXT("parallel", "configuration", configuration),
    TEXT("parallel", "recompute", recompute),
    NUMBER("parallel", "dp", dp),
    NUMBER("parallel", "tp", tp),
    NUMBER("parallel", "pp", pp),
    NUMBER("parallel", "cp", cp),
    NUMBER("parallel", "ep", ep),
    TEXT("collective", "op", operation),
    TEXT("collective", "algorithm", algorithm),
    NUMBER("collective", "bytes", collective_bytes),
    TEXT(NULL, "quality", quality),
    TEXT(NULL, "framework", framework),
    TEXT(NULL, "software", software),
    TEXT(NULL, "input_data", input_data),
    NUMBER(NULL, "runs", runs),
};

static ty_status read_field(const ty_json *part, const field *f, ty_record *record, ty_error *error)
{
    char *at = (char *)record + f->offset;
    const char *text;
    double number;
    ty_status status;

    if (!f->is_number) {
        status = ty_json_string(part, f->key, &text, error);
        if (status == TY_OK)
            memcpy(at, &text, sizeof text);
        return status;
    }
    if (f->may_be_text && ty_json_string(part, f->key, &text, NULL) == TY_OK)
        return TY_OK;
    status = ty_json_number(part, f->key, 0, LARGEST_NUMBER, &number, error);
    if (status == TY_OK)
        memcpy(at, &number, sizeof number);
    return status;
}

static ty_status read_fields(const ty_json *object, ty_record *record, ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const field *f = &fields[i];
        const ty_json *part = object;
        static const char *const nothing = "";
        if (!f->is_number)
            memcpy((char *)record + f->offset, &nothing, sizeof nothing);
        if (f->part != NULL)
            TY_CHECK(read_part(object, f->part, &part, error), status, done);
        if (part != NULL && ty_json_has(part, f->key))
            TY_CHECK(read_field(part, f, record, error), status, done);
    }
done:
    return status;
}

static ty_status read_network(const ty_json *object, ty_record *record, ty_error *error)
{
    const ty_json *cluster, *network;
    double rate;
    ty_status status = TY_OK;

    record->network = "";
    TY_CHECK(read_part(object, "cluster", &cluster, error), status, done);
    if (cluster == NULL)
        return TY_OK;
    TY_CHECK(read_part(cluster, "inter_node", &network, error), status, done);
    if (network == NULL)
        return TY_OK;
    if (ty_json_has(network, "network"))
        TY_CHECK(ty_json_string(network, "network", &record->network, error), status, done);
    if (ty_json_has(network, "GBps_per_node")) {
        TY_CHECK(ty_json_number(network, "GBps_per_node", 0, LARGEST_NUMBER, &rate, error), status,
                 done);
        record->inter_node_bytes_per_s = rate * 1e9;
    }
done:
    return status;
}

static ty_status read_also_measured(const ty_json *object, ty_error *error)
{
    const ty_json *list;
    const char *name;
    double value;
    ty_status status = TY_OK;

    if (!ty_json_has(object, "also_measured"))
        return TY_OK;
    TY_CHECK(ty_json_array(object, "also_measured", 0, MOST_RECORDS, &list, error), status, done);
    for (size_t i = 0; i < ty_json_size(list); i++) {
        const ty_json *row = ty_json_at(list, i);
        if (!ty_json_is_object(row))
            return ty_json_fail(row, error, "an object with metric and value");
        TY_CHECK(ty_json_string(row, "metric", &name, error), status, done);
        TY_CHECK(ty_json_number(row, "value", -LARGEST_NUMBER, LARGEST_NUMBER, &value, error),
                 status, done);
    }
done:
    return status;
}

static ty_status read_record(const ty_json *object, ty_record *record, ty_error *error)
{
    const ty_json *measured, *source;
    int kind = 0, confidence = 0;
    ty_status status = TY_OK;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error, "a record: an object");
    record->json = object;
    TY_CHECK(ty_json_string(object, "id", &record->id, error), status, done);
    TY_CHECK(ty_json_enum(object, "kind", kinds, sizeof kinds / sizeof kinds[0], &kind, error),
             status, done);
    record->kind = kinds[kind];
    TY_CHECK(ty_json_object(object, "source", &source, error), status, done);
    TY_CHECK(ty_json_enum(object, "confidence", confidences,
                          sizeof confidences / sizeof confidences[0], &confidence, error),
             status, done);
    record->is_recalled = confidence == 1;
    TY_CHECK(ty_json_object(object, "measured", &measured, error), status, done);
    TY_CHECK(ty_json_string(measured, "metric", &record->metric, error), status, done);
    TY_CHECK(
        ty_json_number(measured, "value", -LARGEST_NUMBER, LARGEST_NUMBER, &record->value, error),
        status, done);
    record->unit = "";
    if (ty_json_has(measured, "unit"))
        TY_CHECK(ty_json_string(measured, "unit", &record->unit, error), status, done);
    TY_CHECK(read_fields(object, record, error), status, done);
    TY_CHECK(read_network(object, record, error), status, done);
    status = read_also_measured(object, error);
done:
    return status;
}

/* ---- Files ------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const ty_record *const *x = a, *const *y = b;
    return strcmp((*x)->id, (*y)->id);
}

static ty_status check_ids(const ty_records *r, ty_error *error)
{
    const ty_record **sorted = ty_alloc(r->count, sizeof *sorted);
    ty_status status = TY_OK;

    if (sorted == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < r->count; i++)
        sorted[i] = &r->items[i];
    if (r->count > 1)
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
    ty_status status = TY_OK;

    if (!ty_json_is_object(root))
        return ty_json_fail(root, error, "an object with schema, family, count and records");
    TY_CHECK(ty_json_member(root, "schema", &list, error), status, done);
    if (ty_json_uint32(root, "schema", 1, 1, &schema, NULL) != TY_OK)
        return ty_json_fail(list, error, "1, of gathered measurements");
    TY_CHECK(ty_json_string(root, "family", &family, error), status, done);
    TY_CHECK(ty_json_uint32(root, "count", 0, MOST_RECORDS, &count, error), status, done);
    TY_CHECK(ty_json_array(root, "records", 0, MOST_RECORDS, &list, error), status, done);
    TY_CHECK(ty_json_end(root, error), status, done);
    if (ty_json_size(list) != count)
        return ty_json_fail(list, error, "as many records as /count says: %u", count);
    r->family = ty_strdup(family);
    r->items = ty_alloc(count, sizeof *r->items);
    if (r->family == NULL || r->items == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (r->count = 0; r->count < count; r->count++)
        TY_CHECK(read_record(ty_json_at(list, r->count), &r->items[r->count], error), status, done);
    status = check_ids(r, error);
done:
    return status;
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
    ty_records *records = NULL;
    ty_status status = ty_json_load(path, &document, error);

    if (status == TY_OK)
        status = from_document(document, &records, error);
    if (status != TY_OK)
        return status;
    records->path = ty_strdup(path);
    if (records->path == NULL) {
        ty_records_free(records);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = records;
    return TY_OK;
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
    ty_free(records->path);
    ty_free(records);
}

/* ---- Questions --------------------------------------------------------------------------- */

static const ty_json *member_of(const ty_record *record, const char *member)
{
    const ty_json *part = NULL;

    if (!ty_json_has(record->json, member) ||
        ty_json_object(record->json, member, &part, NULL) != TY_OK)
        return NULL;
    return part;
}

double ty_record_number(const ty_record *record, const char *member, const char *key)
{
    const ty_json *part = member_of(record, member);
    double value;

    if (part == NULL || !ty_json_has(part, key) ||
        ty_json_number(part, key, -LARGEST_NUMBER, LARGEST_NUMBER, &value, NULL) != TY_OK)
        return 0;
    return value;
}

bool ty_record_has(const ty_record *record, const char *member, const char *key)
{
    const ty_json *part = member_of(record, member);
    return part != NULL && ty_json_has(part, key);
}

bool ty_record_flag(const ty_record *record, const char *member, const char *key, bool otherwise)
{
    const ty_json *part = member_of(record, member);
    bool value;

    if (part == NULL || !ty_json_has(part, key) || ty_json_bool(part, key, &value, NULL) != TY_OK)
        return otherwise;
    return value;
}

double ty_record_nested(const ty_record *record, const char *member, const char *inner,
                        const char *key)
{
    const ty_json *part = member_of(record, member), *object;
    double value;

    if (part == NULL || !ty_json_has(part, inner) ||
        ty_json_object(part, inner, &object, NULL) != TY_OK || !ty_json_has(object, key) ||
        ty_json_number(object, key, -LARGEST_NUMBER, LARGEST_NUMBER, &value, NULL) != TY_OK)
        return 0;
    return value;
}

const char *ty_record_text(const ty_record *record, const char *member, const char *key)
{
    const ty_json *part = member_of(record, member);
    const char *text;

    if (part == NULL || !ty_json_has(part, key) || ty_json_string(part, key, &text, NULL) != TY_OK)
        return "";
    return text;
}

double ty_record_also_measured(const ty_record *record, const char *metric)
{
    const ty_json *list;

    if (!ty_json_has(record->json, "also_measured") ||
        ty_json_array(record->json, "also_measured", 0, MOST_RECORDS, &list, NULL) != TY_OK)
        return 0;
    for (size_t i = 0; i < ty_json_size(list); i++) {
        const ty_json *row = ty_json_at(list, i);
        const char *name;
        double value;
        if (ty_json_string(row, "metric", &name, NULL) == TY_OK && strcmp(name, metric) == 0 &&
            ty_json_number(row, "value", -LARGEST_NUMBER, LARGEST_NUMBER, &value, NULL) == TY_OK)
            return value;
    }
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
