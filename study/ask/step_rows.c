/* Tables of measured steps, as CSV or JSON: one layout and figure per row, and the conversion of a
 * figure to a step time. */
#include "fit.h"

#include "costing.h"
#include "question.h"
#include "ty_base.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "trainyard.steps/1"
#define MOST_ROWS 10000
#define MOST_BYTES ((uint64_t)16 << 20)
enum { MOST_COLUMNS = 64, FIELD_ROOM = 512 };

static const char *const units[TY_STEP_UNIT_COUNT] = {"step_s",
                                                      "tokens_per_s",
                                                      "tokens_per_s_per_device",
                                                      "samples_per_s",
                                                      "samples_per_s_per_device",
                                                      "mfu"};

/* Column names, in addition to the units and the keys of --fix. */
static const char *const words[] = {"name", "workload",  "cluster", "global_batch",
                                    "seq",  "precision", "fix"};
#define WORD_COUNT (sizeof words / sizeof words[0])

static int unit_of(const char *name)
{
    for (int u = 0; u < TY_STEP_UNIT_COUNT; u++)
        if (strcmp(units[u], name) == 0)
            return u;
    return -1;
}

static bool is_column(const char *name)
{
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return unit_of(name) >= 0 || ty_axis_find(name) != TY_AXIS_COUNT;
}

/* ---- Figures --------------------------------------------------------------------------------- */

ty_status ty_step_value_parse(ty_step_unit unit, const char *text, double *out, ty_error *error)
{
    char *end;
    double value;

    if (unit == TY_STEP_SECONDS) {
        ty_status status = ty_parse_seconds(text, &value, error);
        if (status != TY_OK)
            return status;
    } else {
        value = strtod(text, &end);
        if (end == text || *end != '\0')
            return ty_fail(error, TY_EINVAL, "found '%.60s', expected %s", text,
                           unit == TY_STEP_MFU ? "a share of the peak as in 0.41"
                                               : "a number as in 11200");
    }
    if (!(value > 0 && isfinite(value)))
        return ty_fail(error, TY_EINVAL, "found '%.60s', expected more than 0", text);
    if (unit == TY_STEP_MFU && value > 1)
        return ty_fail(error, TY_EINVAL,
                       "found '%.60s', %.4g %% of the peak, expected a share of it from 0 to 1",
                       text, 100 * value);
    *out = value;
    return TY_OK;
}

ty_status ty_step_seconds(ty_step_unit unit, double value, const ty_plan *plan,
                          const ty_cluster *cluster, double *out, ty_error *error)
{
    const bool is_of_device = unit == TY_STEP_DEVICE_TOKENS || unit == TY_STEP_DEVICE_SAMPLES;
    const bool is_of_tokens = unit == TY_STEP_DEVICE_TOKENS || unit == TY_STEP_TOKENS;
    const double least_s =
        ty_plan_model_flop(plan, cluster) / ty_plan_peak_flop_per_s(plan, cluster);
    const uint32_t devices = ty_plan_rank_count(plan);
    const ty_workload *w = plan->workload;
    double seconds = value;

    if (is_of_tokens && w->tokens_per_sample == 0)
        return ty_fail(error, TY_EINVAL, "%s: samples of %s are not made of tokens, expected %s",
                       units[unit], w->name, units[TY_STEP_SAMPLES]);
    if (unit == TY_STEP_MFU)
        seconds = least_s / value;
    else if (unit != TY_STEP_SECONDS)
        seconds = (double)plan->global_batch * (is_of_tokens ? (double)w->tokens_per_sample : 1.0) /
                  (value * (is_of_device ? devices : 1));
    if (!(seconds >= least_s * (1 - 1e-9)))
        return ty_fail(
            error, TY_EINVAL,
            "%s: found %g, which is %.4g %% of the peak of the plan's %u devices: a step of "
            "%u samples takes them %.3g s at least; expected what was measured, in this "
            "unit",
            units[unit], value, 100 * least_s / seconds, devices, plan->global_batch, least_s);
    *out = seconds;
    return TY_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void clear_row(ty_step_row *row)
{
    ty_free(row->place);
    ty_free(row->name);
    ty_free(row->workload);
    ty_free(row->cluster);
    ty_free(row->precision);
    ty_free(row->fix);
}

void ty_step_rows_clear(ty_step_rows *rows)
{
    for (uint32_t i = 0; i < rows->count; i++)
        clear_row(&rows->rows[i]);
    ty_free(rows->rows);
    *rows = (ty_step_rows){0};
}

/* State of reading a row: keys of --fix one by one. */
typedef struct reading {
    ty_step_row row;
    ty_text fix;
    bool has_figure;
} reading;

static ty_status fail_column(const char *place, const char *name, ty_error *error)
{
    const char *names[WORD_COUNT + TY_STEP_UNIT_COUNT], *close;

    memcpy(names, words, sizeof words);
    memcpy(&names[WORD_COUNT], units, sizeof units);
    close = ty_suggest(name, names, WORD_COUNT + TY_STEP_UNIT_COUNT, sizeof names[0]);
    return ty_fail(
        error, TY_EPARSE,
        "%s: found '%.40s', expected workload, cluster, global_batch, seq, precision, fix "
        "or a key of it, name, and step_s, tokens_per_s, samples_per_s (or either "
        "_per_device) or mfu%s%s%s",
        place, name, close != NULL ? "; did you mean '" : "", close != NULL ? close : "",
        close != NULL ? "'?" : "");
}

/* Reads one field of a row; ignores an empty one. */
static ty_status read_field(reading *r, const char *key, const char *value, ty_error *error)
{
    const struct {
        const char *key;
        char **text;
    } texts[] = {{"name", &r->row.name},
                 {"workload", &r->row.workload},
                 {"cluster", &r->row.cluster},
                 {"precision", &r->row.precision}};
    const int unit = unit_of(key);
    ty_error detail = {0};
    uint64_t number;
    ty_status status = TY_OK;

    if (value[0] == '\0')
        return TY_OK;
    if (!ty_is_printable(value))
        return ty_fail(error, TY_EPARSE, "%s: %s: found a letter that cannot be printed",
                       r->row.place, key);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(key, texts[i].key) == 0) {
            *texts[i].text = ty_strdup(value);
            return *texts[i].text != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory");
        }
    if (unit >= 0) {
        if (r->has_figure)
            return ty_fail(error, TY_EPARSE, "%s: found %s and %s, expected one figure",
                           r->row.place, units[r->row.unit], key);
        r->has_figure = true;
        r->row.unit = (ty_step_unit)unit;
        status = ty_step_value_parse(r->row.unit, value, &r->row.value, &detail);
    } else if (strcmp(key, "global_batch") == 0) {
        status = ty_parse_uint(value, 1, 1u << 30, &number, &detail);
        r->row.global_batch = status == TY_OK ? (uint32_t)number : 0;
    } else if (strcmp(key, "seq") == 0) {
        status = ty_parse_uint(value, 1, 1u << 30, &r->row.sequence, &detail);
    } else if (strcmp(key, "fix") == 0) {
        ty_text_addf(&r->fix, "%s%s", r->fix.length > 0 ? "," : "", value);
    } else {
        ty_text_addf(&r->fix, "%s%s=%s", r->fix.length > 0 ? "," : "", key, value);
    }
    if (status != TY_OK)
        return ty_fail(error, TY_EPARSE, "%s: %s: %s", r->row.place, key, detail.message);
    return TY_OK;
}

static ty_status end_row(reading *r, ty_step_rows *out, ty_error *error)
{
    ty_step_row *grown;

    if (!r->has_figure)
        return ty_fail(error, TY_EPARSE,
                       "%s: has no figure, expected step_s, tokens_per_s, samples_per_s (or either "
                       "_per_device) or mfu",
                       r->row.place);
    if (out->count == MOST_ROWS)
        return ty_fail(error, TY_EPARSE, "%s: found more than %d rows", r->row.place, MOST_ROWS);
    if (r->fix.length > 0)
        TY_TRY(ty_text_take(&r->fix, &r->row.fix, error));
    grown = ty_resize(out->rows, (size_t)out->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    out->rows = grown;
    out->rows[out->count++] = r->row;
    r->row = (ty_step_row){0}; /* ownership moved */
    return TY_OK;
}

static ty_status begin_row(reading *r, ty_text *place, ty_error *error)
{
    *r = (reading){.has_figure = false};
    return ty_text_take(place, &r->row.place, error);
}

static void clear_reading(reading *r)
{
    clear_row(&r->row);
    ty_text_clear(&r->fix);
}

/* ---- Comma-separated values ------------------------------------------------------------------ */

typedef struct lines {
    const char *rest, *line;
    size_t length; /* of the line, without its end */
    uint32_t number;
} lines;

/* The next line that is neither blank nor a comment. */
static bool next_line(lines *l)
{
    while (*l->rest != '\0') {
        l->line = l->rest;
        l->length = strcspn(l->rest, "\n");
        l->rest += l->length + (l->rest[l->length] == '\n');
        l->number++;
        while (l->length > 0 && strchr(" \t\r", l->line[l->length - 1]) != NULL)
            l->length--;
        while (l->length > 0 && (*l->line == ' ' || *l->line == '\t')) {
            l->line++;
            l->length--;
        }
        if (l->length > 0 && *l->line != '#')
            return true;
    }
    return false;
}

/* Reads a field, plain or in quotes, in which two quotes are one. (RFC 4180)
 * @return false after the last, or if it is too long */
static bool next_field(const lines *l, size_t *at, char out[FIELD_ROOM])
{
    size_t length = 0;
    bool is_quoted;

    if (*at > l->length)
        return false;
    while (*at < l->length && (l->line[*at] == ' ' || l->line[*at] == '\t'))
        ++*at;
    is_quoted = *at < l->length && l->line[*at] == '"';
    *at += is_quoted;
    for (; *at < l->length; ++*at) {
        if (!is_quoted && l->line[*at] == ',')
            break;
        if (is_quoted && l->line[*at] == '"') {
            if (*at + 1 == l->length || l->line[*at + 1] != '"')
                break;
            ++*at;
        }
        if (length + 1 == FIELD_ROOM)
            return false;
        out[length++] = l->line[*at];
    }
    while (*at < l->length && l->line[*at] != ',')
        ++*at;
    ++*at; /* the comma, or past the end */
    while (!is_quoted && length > 0 && strchr(" \t", out[length - 1]) != NULL)
        length--;
    out[length] = '\0';
    return true;
}

static ty_status read_values(const char *path, const char *text, ty_step_rows *out, ty_error *error)
{
    char(*columns)[FIELD_ROOM] = ty_alloc(MOST_COLUMNS + 1, sizeof *columns);
    char field[FIELD_ROOM];
    lines l = {.rest = text};
    uint32_t count = 0;
    size_t at = 0;
    bool has_figure = false;
    reading r = {.has_figure = false};
    ty_text place = {0};
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(columns != NULL, error));
    if (!next_line(&l)) {
        status = ty_fail(error, TY_EPARSE, "%s: found no line, expected columns and rows", path);
        goto done;
    }
    ty_text_addf(&place, "%s:%u", path, l.number);
    TY_CHECK(ty_text_check(&place, error), status, done);
    while (count < MOST_COLUMNS && next_field(&l, &at, columns[count])) {
        if (!is_column(columns[count])) {
            status = fail_column(place.data, columns[count], error);
            goto done;
        }
        for (uint32_t c = 0; c < count; c++)
            if (strcmp(columns[c], columns[count]) == 0) {
                status = ty_fail(error, TY_EPARSE, "%s: found column %s twice", place.data,
                                 columns[count]);
                goto done;
            }
        has_figure = has_figure || unit_of(columns[count]) >= 0;
        count++;
    }
    if (!has_figure) {
        status = ty_fail(error, TY_EPARSE,
                         "%s: found no column of a figure, expected step_s, tokens_per_s, "
                         "samples_per_s (or either _per_device) or mfu",
                         place.data);
        goto done;
    }
    while (next_line(&l)) {
        uint32_t fields = 0;
        ty_text_clear(&place);
        ty_text_addf(&place, "%s:%u", path, l.number);
        clear_reading(&r);
        TY_CHECK(begin_row(&r, &place, error), status, done);
        for (at = 0; next_field(&l, &at, field);)
            fields++;
        if (at <= l.length || fields != count) {
            status = ty_fail(error, TY_EPARSE,
                             "%s: found %s than the %u columns of the first line; a field with a "
                             "comma in it stands in quotes",
                             r.row.place, fields < count ? "less fields" : "more fields", count);
            goto done;
        }
        at = 0;
        for (uint32_t c = 0; c < count && next_field(&l, &at, field); c++)
            TY_CHECK(read_field(&r, columns[c], field, error), status, done);
        TY_CHECK(end_row(&r, out, error), status, done);
    }
done:
    clear_reading(&r);
    ty_text_clear(&place);
    ty_free(columns);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static ty_status read_object(const ty_json *object, ty_step_rows *out, ty_error *error)
{
    char where[TY_JSON_PLACE_SIZE];
    reading r = {.has_figure = false};
    ty_text place = {0};
    ty_status status = TY_OK;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error, "an object: a row");
    ty_json_place(object, where);
    ty_text_add(&place, where);
    TY_CHECK(begin_row(&r, &place, error), status, done);
    for (size_t i = 0; i < ty_json_size(object); i++) {
        const ty_json *member = ty_json_at(object, i);
        const char *text = NULL;
        char number[32];
        double value;
        if (!is_column(ty_json_key(member))) {
            status = fail_column(where, ty_json_key(member), error);
            goto done;
        }
        if (ty_json_is_number(member)) {
            TY_CHECK(ty_json_as_number(member, -HUGE_VAL, HUGE_VAL, &value, error), status, done);
            ty_format_number(value, number);
            text = number;
        } else {
            TY_CHECK(ty_json_as_string(member, &text, error), status, done);
        }
        TY_CHECK(read_field(&r, ty_json_key(member), text, error), status, done);
    }
    status = end_row(&r, out, error);
done:
    clear_reading(&r);
    ty_text_clear(&place);
    return status;
}

static ty_status read_json(const char *path, const char *text, size_t length, ty_step_rows *out,
                           ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *rows;
    ty_status status = TY_OK;

    TY_TRY(ty_json_parse(text, length, path, &document, error));
    rows = ty_json_root(document);
    if (!ty_json_is_array(rows)) {
        const ty_json *root = rows;
        TY_CHECK(ty_json_schema(root, SCHEMA, error), status, done);
        TY_CHECK(ty_json_array(root, "rows", 0, MOST_ROWS, &rows, error), status, done);
        TY_CHECK(ty_json_end(root, error), status, done);
    }
    for (size_t i = 0; i < ty_json_size(rows); i++)
        TY_CHECK(read_object(ty_json_at(rows, i), out, error), status, done);
done:
    ty_json_free(document);
    return status;
}

/* ---- Files ----------------------------------------------------------------------------------- */

ty_status ty_step_rows_load(const char *path, ty_step_rows *out, ty_error *error)
{
    ty_step_rows rows = {0};
    char *bytes = NULL;
    const char *text;
    size_t length;
    ty_status status = TY_OK;

    TY_TRY(ty_file_read(path, MOST_BYTES, &bytes, &length, error));
    text = bytes;
    ty_skip_mark(&text, &length);
    if (strlen(text) != length)
        status = ty_fail(error, TY_EPARSE, "%s: found a NUL, expected text", path);
    else if (text[strspn(text, " \t\r\n")] == '{' || text[strspn(text, " \t\r\n")] == '[')
        status = read_json(path, text, length, &rows, error);
    else
        status = read_values(path, text, &rows, error);
    if (status == TY_OK && rows.count == 0)
        status = ty_fail(error, TY_EPARSE, "%s: found no row, expected one and more", path);
    if (status == TY_OK)
        *out = rows;
    else
        ty_step_rows_clear(&rows);
    ty_free(bytes);
    return status;
}

bool ty_is_step_rows(const char *path)
{
    const size_t named = strlen(path);
    char *bytes = NULL, field[FIELD_ROOM];
    const char *text;
    size_t length, at = 0;
    lines l;
    bool is_rows = named > 4 && strcmp(path + named - 4, ".csv") == 0;

    if (is_rows || ty_is_profiler_trace(path))
        return is_rows;
    if (strcmp(path, "-") == 0 || ty_file_read(path, MOST_BYTES, &bytes, &length, NULL) != TY_OK)
        return false;
    text = bytes;
    ty_skip_mark(&text, &length);
    l = (lines){.rest = text};
    if (next_line(&l)) {
        is_rows = *l.line == '{' || *l.line == '[';
        while (!is_rows && next_field(&l, &at, field))
            is_rows = is_column(field);
    }
    ty_free(bytes);
    return is_rows;
}
