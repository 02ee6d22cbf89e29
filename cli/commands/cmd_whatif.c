/* trainyard whatif: the best plan for every combination of values. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define USUAL_TOP 1 /* only the chosen plan is simulated, unless --top is higher */

typedef struct whatif {
    const cli_options *options;
    ty_arena *texts;
    ty_question question;
    ty_whatif_axis axes[CLI_MOST_VARIED];
    uint32_t axis_count;
    ty_whatif *rows;
    ty_progress progress;
    bool is_unsaved; /* the output cannot be written */
} whatif;

/* ---- The question -------------------------------------------------------------------------- */

/* Parses "hosts=1,2,4", with or without blanks; a value cannot contain a comma. */
static ty_status read_axis(whatif *c, const char *text, ty_error *error)
{
    char *copy = ty_arena_strdup(c->texts, text);
    char *equals = copy != NULL ? strchr(copy, '=') : NULL;
    const char **values = ty_arena_alloc(c->texts, strlen(text) + 1, sizeof *values);
    uint32_t count = 0;
    char *rest, *value;

    TY_TRY(ty_check_memory(copy != NULL && values != NULL, error));
    if (equals == NULL || equals == copy || equals[1] == '\0')
        return ty_fail(error, TY_EINVAL, "--vary: found '%s', expected KEY=VALUE,VALUE,...", text);
    *equals = '\0';
    rest = equals + 1;
    while ((value = strtok_r(rest, ",", &rest)) != NULL) {
        size_t length;
        value += strspn(value, " ");
        for (length = strlen(value); length > 0 && value[length - 1] == ' '; length--)
            continue;
        value[length] = '\0';
        values[count++] = value;
    }
    c->axes[c->axis_count++] = (ty_whatif_axis){copy, values, count};
    return TY_OK;
}

static ty_status whatif_open(const cli_options *options, whatif *c, ty_error *error)
{
    ty_status status = TY_OK;

    *c = (whatif){.options = options, .texts = ty_arena_new()};
    TY_TRY(ty_check_memory(c->texts != NULL, error));
    TY_TRY(question_from(options, USUAL_TOP, &c->question, error));
    for (int i = 0; i < options->vary_count; i++)
        TY_TRY(read_axis(c, options->vary[i], error));
    TY_TRY(ty_whatif_new(&c->question, c->axes, c->axis_count, &c->rows, error));
    note_names(options);
    if (options->rows != NULL)
        status = ty_whatif_resume(c->rows, options->rows, error);
    return status;
}

/* ---- Results ------------------------------------------------------------------------------- */

/* Saves finished rows to the file, so that a crash loses nothing. */
static ty_status keep(void *context, const ty_whatif *rows, ty_error *error)
{
    whatif *c = context;
    ty_text text = {0};
    ty_json_writer out = ty_json_writer_on(&text);

    ty_progress_update(&c->progress, ty_whatif_done_count(rows), NULL);
    if (c->options->output == NULL || c->options->csv || strcmp(c->options->output, "-") == 0)
        return TY_OK;
    ty_whatif_to_json(c->rows, &out);
    ty_text_add(&text, "\n");
    c->is_unsaved = save_text(c->options->output, &text, error) != TY_OK;
    return c->is_unsaved ? error->status : TY_OK;
}

static const char *const csv_columns[] = {
    "devices",
    "global_batch",
    "step_time_s",
    "estimated_step_time_s",
    "samples_per_s",
    "tokens_per_s",
    "mfu",
    "tflops_per_device",
    "tokens_per_s_per_device",
    "peak_memory_bytes",
    "usable_memory_bytes",
    "memory_bytes",
    "price_usd_per_hour",
    "days",
    "cost_usd",
    "cost_usd_per_million_tokens",
    "energy_mwh",
    "limited_by",
    "plan",
    "reason",
};
#define CSV_COLUMN_COUNT (sizeof csv_columns / sizeof csv_columns[0])

/* Writes a cell (RFC 4180): texts in quotes, numbers plain, missing values empty. */
static ty_status put_cell(ty_text *csv, const ty_json *row, const char *key, ty_error *error)
{
    ty_status status;
    const char *string;
    double number;

    if (!ty_json_has(row, key))
        return TY_OK;
    if (ty_json_number(row, key, -1e300, 1e300, &number, NULL) == TY_OK) {
        char shown[32];
        ty_format_number(number, shown);
        ty_text_add(csv, shown);
        return TY_OK;
    }
    status = ty_json_string(row, key, &string, error);
    if (status == TY_OK)
        csv_text(csv, string);
    return status;
}

static ty_status put_csv(const whatif *c, ty_text *csv, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    for (uint32_t a = 0; a < c->axis_count; a++)
        ty_text_addf(csv, "%s,", c->axes[a].key);
    for (size_t k = 0; k < CSV_COLUMN_COUNT; k++)
        ty_text_addf(csv, "%s%s", csv_columns[k], k + 1 < CSV_COLUMN_COUNT ? "," : "\r\n");
    for (uint32_t r = 0; r < ty_whatif_row_count(c->rows); r++) {
        const ty_json *row, *values;
        TY_CHECK(ty_json_parse(ty_whatif_row(c->rows, r), strlen(ty_whatif_row(c->rows, r)), "row",
                               &document, error),
                 status, done);
        row = ty_json_root(document);
        TY_CHECK(ty_json_object(row, "values", &values, error), status, done);
        for (uint32_t a = 0; a < c->axis_count; a++) {
            TY_CHECK(put_cell(csv, values, c->axes[a].key, error), status, done);
            ty_text_add(csv, ",");
        }
        for (size_t k = 0; k < CSV_COLUMN_COUNT; k++) {
            TY_CHECK(put_cell(csv, row, csv_columns[k], error), status, done);
            ty_text_add(csv, k + 1 < CSV_COLUMN_COUNT ? "," : "\r\n");
        }
        ty_json_free(document);
        document = NULL;
    }
done:
    ty_json_free(document);
    return status;
}

/* ---- The table ----------------------------------------------------------------------------- */

/* Number of rows by result. */
typedef struct outcome {
    uint32_t plans, refused, lost;
} outcome;

/* A column of figures: a right-aligned cell per row, "-" if the row lacks the figure. */
typedef struct column {
    const char *heading, *key;
    int width;
    void (*format)(double value, char out[32]);
    bool is_of_cost; /* only with a length of training */
} column;

static void format_share(double share, char out[32])
{
    snprintf(out, 32, "%.1f %%", 100 * share);
}

static const column columns[] = {
    {"step", "step_time_s", 8, ty_format_seconds, false},
    {"samples/s", "samples_per_s", 9, ty_format_count, false},
    {"tokens/s", "tokens_per_s", 8, ty_format_count, false},
    {"MFU", "mfu", 6, format_share, false},
    {"memory", "peak_memory_bytes", 8, ty_format_memory, false},
    {"of", "usable_memory_bytes", 9, ty_format_memory, false},
    {"days", "days", 5, ty_format_days, true},
    {"cost", "cost_usd", 6, ty_format_usd, true},
};
#define COLUMN_COUNT (sizeof columns / sizeof columns[0])

static bool is_shown(const whatif *c, const column *of)
{
    const ty_cost_question *cost = &c->question.cost;

    return !of->is_of_cost || cost->tokens > 0 || cost->epochs > 0 || cost->steps > 0;
}

static int axis_width(const ty_whatif_axis *axis)
{
    size_t width = strlen(axis->key);

    for (uint32_t i = 0; i < axis->count; i++)
        width = strlen(axis->values[i]) > width ? strlen(axis->values[i]) : width;
    return (int)width;
}

static ty_status put_figures(const whatif *c, const ty_json *row, ty_text *text, ty_error *error)
{
    char cell[32];
    double value;
    ty_status status = TY_OK;

    for (size_t k = 0; k < COLUMN_COUNT && status == TY_OK; k++) {
        if (!is_shown(c, &columns[k]))
            continue;
        snprintf(cell, sizeof cell, "-");
        if (ty_json_has(row, columns[k].key)) {
            status = ty_json_number(row, columns[k].key, 0, 1e300, &value, error);
            if (status == TY_OK && value > 0)
                columns[k].format(value, cell);
        }
        ty_text_addf(text, "%*s  ", columns[k].width, cell);
    }
    return status;
}

static ty_status put_line(const whatif *c, uint32_t r, ty_text *text, outcome *count_of,
                          ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *row;
    const char *words;

    TY_CHECK(ty_json_parse(ty_whatif_row(c->rows, r), strlen(ty_whatif_row(c->rows, r)), "row",
                           &document, error),
             status, done);
    row = ty_json_root(document);
    for (uint32_t a = 0; a < c->axis_count; a++)
        ty_text_addf(text, "%-*s  ", axis_width(&c->axes[a]), ty_whatif_value(c->rows, r, a));
    if (ty_json_has(row, "reason")) {
        TY_CHECK(ty_json_string(row, "reason", &words, error), status, done);
        ty_text_addf(text, "no plan: %s\n", words);
        count_of->refused += ty_json_has(row, "is_refused");
        count_of->lost += ty_json_has(row, "is_lost");
        goto done;
    }
    count_of->plans++;
    TY_CHECK(put_figures(c, row, text, error), status, done);
    TY_CHECK(ty_json_string(row, "plan", &words, error), status, done);
    ty_text_add(text, words);
    TY_CHECK(ty_json_string(row, "limited_by", &words, error), status, done);
    ty_text_addf(text, "; %s", words);
    if (ty_json_has(row, "stack_reason")) {
        TY_CHECK(ty_json_string(row, "stack", &words, error), status, done);
        ty_text_addf(text, "; stack %s", words);
        TY_CHECK(ty_json_string(row, "stack_reason", &words, error), status, done);
        ty_text_addf(text, " (because %s)", words);
    }
    ty_text_add(text, "\n");
done:
    ty_json_free(document);
    return status;
}

static exit_code judge(const outcome *rows, uint32_t count)
{
    ty_error error;

    if (rows->lost > 0) {
        (void)ty_fail(&error, TY_EBACKEND,
                      "%u of %u combinations came to no end, for the reasons above; --rows with "
                      "what -o wrote tries them again",
                      rows->lost, count);
        return report_failure(&error);
    }
    if (rows->refused == count)
        return report_failure(&(ty_error){TY_EINVAL, "--vary: no combination makes sense, for the "
                                                     "reasons said of each"});
    if (rows->plans == 0)
        return report_failure(&(ty_error){TY_EINFEASIBLE, "no combination has a plan"});
    return EXIT_DONE;
}

static exit_code finish(whatif *c, ty_error *error)
{
    const cli_options *o = c->options;
    ty_text text = {0}, lines = {0};
    ty_json_writer out = ty_json_writer_on(&text);
    ty_status status = TY_OK;
    outcome rows = {0};
    exit_code code = EXIT_DONE;

    for (uint32_t a = 0; a < c->axis_count; a++)
        ty_text_addf(&lines, "%-*s  ", axis_width(&c->axes[a]), c->axes[a].key);
    for (size_t k = 0; k < COLUMN_COUNT; k++)
        if (is_shown(c, &columns[k]))
            ty_text_addf(&lines, "%*s  ", columns[k].width, columns[k].heading);
    ty_text_add(&lines, "plan; bottleneck\n");
    for (uint32_t r = 0; r < ty_whatif_row_count(c->rows) && status == TY_OK; r++)
        status = put_line(c, r, &lines, &rows, error);
    if (status == TY_OK && o->csv)
        status = put_csv(c, &text, error);
    else if (status == TY_OK && (o->json || o->output != NULL)) {
        ty_whatif_to_json(c->rows, &out);
        ty_text_add(&text, "\n");
    }
    if (status == TY_OK)
        status = ty_text_check(&text, error);
    if (status == TY_OK && o->output != NULL)
        status = ty_file_write_text(o->output, &text, error);
    if (status != TY_OK)
        code = report_failure(error);
    else if (o->output == NULL && (o->csv || o->json))
        code = print_text(&text);
    else if (o->output == NULL || strcmp(o->output, "-") != 0)
        code = print_text(&lines);
    if (code == EXIT_DONE)
        code = judge(&rows, ty_whatif_row_count(c->rows));
    ty_text_clear(&text);
    ty_text_clear(&lines);
    return code;
}

exit_code cmd_whatif(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    whatif c;
    char note[64];
    const ty_watch watch = watch_from(options);

    if (options->json && options->csv)
        return report_usage("whatif", "--json and --csv exclude each other");
    interrupts_catch();
    if (whatif_open(options, &c, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    ty_progress_start(&c.progress, options->quiet ? NULL : stderr, "what-if",
                      ty_whatif_row_count(c.rows), "rows");
    if (ty_whatif_run(c.rows, &watch, keep, &c, &error) != TY_OK) {
        code = c.is_unsaved ? report_failure(&error) : report_bad_input(&error);
    } else {
        snprintf(note, sizeof note, "%u rows", ty_whatif_row_count(c.rows));
        ty_progress_finish(&c.progress, note);
        code = finish(&c, &error);
    }

cleanup:
    ty_whatif_free(c.rows);
    ty_arena_free(c.texts);
    return code;
}
