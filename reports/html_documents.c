/* Documents of other commands as members of the report's document: required members, and copies. */
#include "html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS 100000
#define MOST_AXES 16
#define MOST_CURVE_POINTS 600

/* ---- Required members of documents ---------------------------------------------------------- */

typedef enum value_kind { ARRAY, NUMBER, STRING, LINES, STRINGS, NUMBERS } value_kind;

/* `path` has a key per level; "[]" after a key: every element, "?": the member may be missing. */
typedef struct rule {
    const char *schema, *path;
    value_kind kind;
    double least, most; /* bounds of the number, or of the length of an array */
    const char *like;   /* sibling, or member of the root, whose length the array has; of a number:
                           its key in older versions of the document */
} rule;

#define ANY 1e300
static const rule rules[] = {
    {"trainyard.infeasible/1", "workload", STRING, 0, 0, NULL},
    {"trainyard.infeasible/1", "cluster", STRING, 0, 0, NULL},
    {"trainyard.infeasible/1", "reason", STRING, 0, 0, NULL},
    {"trainyard.whatif/1", "vary[].key", STRING, 0, 0, NULL},
    {"trainyard.whatif/1", "vary[].values", STRINGS, 1, MOST_ROWS, NULL},
    {"trainyard.whatif/1", "rows[].devices?", NUMBER, 1, 1e9, NULL},
    {"trainyard.whatif/1", "rows[].estimated_step_time_s?", NUMBER, 0, ANY, NULL},
    {"trainyard.validation/1", "sources", ARRAY, 0, 64, NULL},
    {"trainyard.validation/1", "sources[].source", STRING, 0, 0, NULL},
    {"trainyard.validation/1", "sources[].median_error?", NUMBER, 0, ANY, NULL},
    {"trainyard.validation/1", "sources[].mean_error?", NUMBER, 0, ANY, NULL},
    {"trainyard.validation/1", "sources[].p90_error?", NUMBER, 0, ANY, NULL},
    {"trainyard.validation/1", "sources[].pair_order?", NUMBER, 0, ANY, NULL},
    {"trainyard.simulation/2", "memory_over_time?", ARRAY, 0, ANY, NULL},
    {"trainyard.simulation/2", "memory_over_time?[].stage_replica", NUMBER, 0, UINT32_MAX, "rank"},
    {"trainyard.simulation/2", "memory_over_time?[].time_s", NUMBERS, 1, ANY, NULL},
    {"trainyard.simulation/2", "memory_over_time?[].bytes", NUMBERS, 1, ANY, "time_s"},
    {"trainyard.launch/1", "targets", ARRAY, 1, 64, NULL},
    {"trainyard.launch/1", "targets[].target", STRING, 0, 0, NULL},
    {"trainyard.launch/1", "targets[].reason?", STRING, 0, 0, NULL},
    {"trainyard.launch/1", "targets[].files?", ARRAY, 1, 4096, NULL},
    {"trainyard.launch/1", "targets[].files?[].name", STRING, 0, 0, NULL},
    {"trainyard.launch/1", "targets[].files?[].bytes?", NUMBER, 0, 9e15, NULL},
    {"trainyard.launch/1", "targets[].files?[].text?", LINES, 0, 0, NULL},
    {"trainyard.compression/1", "bandwidths_bytes_per_s", NUMBERS, 1, 256, NULL},
    {"trainyard.compression/1", "ring_bandwidth_bytes_per_s?", NUMBER, 0, ANY, NULL},
    {"trainyard.compression/1", "curves", ARRAY, 1, 16, NULL},
    {"trainyard.compression/1", "curves[].compression", STRING, 0, 0, NULL},
    {"trainyard.compression/1", "curves[].seconds", NUMBERS, 1, 256, "bandwidths_bytes_per_s"},
    {"trainyard.phased-plan/1", "phases", ARRAY, 1, 1000, NULL},
    {"trainyard.phased-plan/1", "phases[].steps", NUMBER, 1, 1e9, NULL},
    {"trainyard.phased-plan/1", "phases[].time_s", NUMBER, 0, ANY, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.strategy", STRING, 0, 0, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.cluster_name", STRING, 0, 0, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.global_batch", NUMBER, 1, 1e10, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.optimizer.learning_rate", NUMBER, 0, ANY, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.workload.name", STRING, 0, 0, NULL},
    {"trainyard.phased-plan/1", "phases[].plan.workload.input_shape", NUMBERS, 1, 8, NULL},
};

static size_t length_like(const ty_json *object, const ty_json *root, const char *key)
{
    const ty_json *array = NULL;

    if (ty_json_array(ty_json_has(object, key) ? object : root, key, 0, SIZE_MAX, &array, NULL) !=
        TY_OK)
        return 0;
    return ty_json_size(array);
}

/* Checks every element of an array, of numbers or else of strings. */
static ty_status check_elements(const ty_json *array, bool is_of_numbers, ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < ty_json_size(array) && status == TY_OK; i++) {
        const char *text;
        double number;
        status = is_of_numbers ? ty_json_as_number(ty_json_at(array, i), 0, ANY, &number, error)
                               : ty_json_as_string(ty_json_at(array, i), &text, error);
    }
    return status;
}

static ty_status check_member(const ty_json *object, const ty_json *root, const char *key,
                              const rule *r, ty_error *error)
{
    const ty_json *value;
    const char *text;
    double number;
    size_t least = (size_t)r->least, most = r->most < 1e15 ? (size_t)r->most : SIZE_MAX;
    ty_status status;

    if (r->kind == NUMBER && r->like != NULL && !ty_json_has(object, key))
        key = ty_json_has(object, r->like) ? r->like : key;
    if (r->kind == NUMBER)
        return ty_json_number(object, key, r->least, r->most, &number, error);
    if (r->kind == STRING)
        return ty_json_string(object, key, &text, error);
    if (r->kind == LINES)
        return ty_json_lines(object, key, &text, error);
    if (r->like != NULL)
        least = most = length_like(object, root, r->like);
    status = ty_json_array(object, key, least, most, &value, error);
    if (status == TY_OK && r->kind != ARRAY)
        status = check_elements(value, r->kind == NUMBERS, error);
    return status;
}

static ty_status check_rule(const ty_json *object, const ty_json *root, const char *path,
                            const rule *r, ty_error *error)
{
    const size_t length = strcspn(path, ".?[");
    const char *rest = path + length + (path[length] == '?');
    const ty_json *value;
    char key[48];

    snprintf(key, sizeof key, "%.*s", (int)length, path);
    if (path[length] == '?' && !ty_json_has(object, key))
        return TY_OK;
    if (*rest == '\0')
        return check_member(object, root, key, r, error);
    if (*rest == '.') {
        TY_TRY(ty_json_object(object, key, &value, error));
        return check_rule(value, root, rest + 1, r, error);
    }
    TY_TRY(ty_json_array(object, key, 0, SIZE_MAX, &value, error));
    for (size_t i = 0; i < ty_json_size(value); i++)
        TY_TRY(check_rule(ty_json_at(value, i), root, rest + strlen("[]."), r, error));
    return TY_OK;
}

/* Checks that every row has a value per axis, and a time or a reason. */
static ty_status check_row(const ty_json *row, const ty_json *vary, ty_error *error)
{
    const ty_json *values, *known;
    const char *key, *text, *one;
    double number;

    TY_TRY(ty_json_object(row, "values", &values, error));
    for (size_t a = 0; a < ty_json_size(vary); a++) {
        bool is_known = false;
        TY_TRY(ty_json_string(ty_json_at(vary, a), "key", &key, error));
        TY_TRY(ty_json_array(ty_json_at(vary, a), "values", 1, MOST_ROWS, &known, error));
        TY_TRY(ty_json_string(values, key, &text, error));
        for (size_t i = 0; i < ty_json_size(known) && !is_known; i++)
            is_known = ty_json_as_string(ty_json_at(known, i), &one, NULL) == TY_OK &&
                       strcmp(one, text) == 0;
        if (!is_known)
            return ty_json_fail(values, error, "a value that vary lists of %s", key);
    }
    if (ty_json_has(row, "reason"))
        return TY_OK;
    TY_TRY(ty_json_number(row, "step_time_s", 0, ANY, &number, error));
    return ty_json_number(row, "samples_per_s", 0, ANY, &number, error);
}

static ty_status check_whatif(const ty_json *root, ty_error *error)
{
    const ty_json *vary, *rows, *values;
    uint64_t count = 1;

    TY_TRY(ty_json_array(root, "vary", 1, MOST_AXES, &vary, error));
    for (size_t a = 0; a < ty_json_size(vary); a++) {
        TY_TRY(ty_json_array(ty_json_at(vary, a), "values", 1, MOST_ROWS, &values, error));
        count *= ty_json_size(values);
        if (count > MOST_ROWS)
            return ty_json_fail(vary, error, "at most %d combinations", MOST_ROWS);
    }
    TY_TRY(ty_json_array(root, "rows", 0, MOST_ROWS, &rows, error));
    for (size_t i = 0; i < ty_json_size(rows); i++)
        TY_TRY(check_row(ty_json_at(rows, i), vary, error));
    return TY_OK;
}

static ty_status check_document(const ty_report_document *d, ty_error *error)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].schema, d->schema) == 0)
            TY_TRY(check_rule(d->root, d->root, rules[i].path, &rules[i], error));
    return strcmp(d->schema, "trainyard.whatif/1") == 0 ? check_whatif(d->root, error) : TY_OK;
}

/* ---- Copies --------------------------------------------------------------------------------- */

static bool is_left_out(const ty_json *member)
{
    static const char *const keys[] = {"layers",  "timeline", "candidates", "cluster", "stack",
                                       "devices", "buckets",  "stages",     "memory",  "profile",
                                       "program", "skipped",  "predictions"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(ty_json_key(member), keys[i]) == 0)
            return ty_json_is_object(member) || ty_json_is_array(member);
    return false;
}

void ty_report_put_copy(ty_json_writer *w, const char *key, const ty_json *value)
{
    const bool is_object = ty_json_is_object(value);
    const size_t size = ty_json_size(value);
    char *text = NULL;

    if (!is_object &&
        !(ty_json_is_array(value) && size > 0 && ty_json_is_object(ty_json_at(value, 0)))) {
        if (ty_json_text(value, &text, NULL) == TY_OK)
            ty_json_put_raw(w, key, text);
        else
            w->text->failed = TY_ENOMEM;
        ty_free(text);
        return;
    }
    ty_json_open(w, key, is_object ? '{' : '[');
    for (size_t i = 0; i < size; i++) {
        const ty_json *member = ty_json_at(value, i);
        if (!is_object || !is_left_out(member))
            ty_report_put_copy(w, is_object ? ty_json_key(member) : NULL, member);
    }
    ty_json_close(w, is_object ? '}' : ']');
}

/* Finds the first of the largest numbers in a part of an array. */
static size_t largest_of(const ty_json *numbers, size_t from, size_t end)
{
    double most = -1, one;
    size_t largest = from;

    for (size_t i = from; i < end && i < ty_json_size(numbers); i++)
        if (ty_json_as_number(ty_json_at(numbers, i), 0, ANY, &one, NULL) == TY_OK && one > most) {
            most = one;
            largest = i;
        }
    return largest;
}

/* Writes the memory curves of a checked trainyard.simulation/2, thinned to their peaks. */
static void put_memory_curves(ty_json_writer *w, const ty_json *root)
{
    static const char *const keys[] = {"time_s", "bytes"};
    const ty_json *all, *values[2];
    double number;

    ty_json_open(w, "content", '{');
    ty_json_open(w, "memory_over_time", '[');
    if (!ty_json_has(root, "memory_over_time") ||
        ty_json_array(root, "memory_over_time", 0, SIZE_MAX, &all, NULL) != TY_OK)
        all = NULL;
    for (size_t c = 0; all != NULL && c < ty_json_size(all); c++) {
        const ty_json *curve = ty_json_at(all, c);
        const char *key = ty_json_has(curve, "stage_replica") ? "stage_replica" : "rank";
        if (ty_json_number(curve, key, 0, UINT32_MAX, &number, NULL) != TY_OK ||
            ty_json_array(curve, keys[0], 1, SIZE_MAX, &values[0], NULL) != TY_OK ||
            ty_json_array(curve, keys[1], 1, SIZE_MAX, &values[1], NULL) != TY_OK)
            continue;
        ty_json_open(w, NULL, '{');
        ty_json_put_number(w, "stage_replica", number);
        for (int k = 0; k < 2; k++) {
            const size_t count = ty_json_size(values[1]), stride = count / MOST_CURVE_POINTS + 1;
            ty_json_open(w, keys[k], '[');
            for (size_t i = 0; i < count; i += stride)
                if (ty_json_as_number(ty_json_at(values[k], largest_of(values[1], i, i + stride)),
                                      0, ANY, &number, NULL) == TY_OK)
                    ty_json_put_number(w, NULL, number);
            ty_json_close(w, ']');
        }
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

/* The document already has plans, runs and estimates. */
static bool is_shown(const ty_report_document *d)
{
    return d->root != NULL && strcmp(d->schema, "trainyard.plan/1") != 0 &&
           strcmp(d->schema, "trainyard.run/2") != 0 &&
           strcmp(d->schema, "trainyard.estimate/1") != 0;
}

ty_status ty_report_put_documents(const ty_report_input *in, ty_json_writer *w, ty_error *error)
{
    ty_json_open(w, "files", '[');
    for (uint32_t i = 0; i < in->document_count; i++) {
        const ty_report_document *d = &in->documents[i];
        if (d->is_derived)
            continue;
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "path", d->path);
        ty_json_put_string(w, "schema", d->schema);
        ty_json_put_string(w, "sha256", d->digest.hex);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    ty_json_open(w, "documents", '[');
    for (uint32_t i = 0; i < in->document_count; i++) {
        const ty_report_document *d = &in->documents[i];
        if (!is_shown(d))
            continue;
        TY_TRY(check_document(d, error));
        ty_json_open(w, NULL, '{');
        ty_json_put_string(w, "path", d->path);
        ty_json_put_string(w, "schema", d->schema);
        if (strcmp(d->schema, "trainyard.simulation/2") == 0)
            put_memory_curves(w, d->root);
        else
            ty_report_put_copy(w, "content", d->root);
        ty_json_close(w, '}');
    }
    ty_json_close(w, ']');
    return TY_OK;
}
