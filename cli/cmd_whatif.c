/* trainyard whatif: the best plan for every combination of values, rows in their order whatever
 * the number of processes. */
#include "sweep.h"
#include "vary.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WHATIF_SCHEMA "trainyard.whatif/1"
#define MOST_ROWS 100000
#define USUAL_TOP 1 /* the chosen plan alone is simulated, unless --top says more */

typedef struct axis {
    const char *key;
    char **values;
    uint32_t count;
} axis;

typedef struct whatif {
    const cli_options *options;
    uint32_t top;
    ty_arena *texts;
    axis axes[CLI_MOST_VARIED];
    uint32_t axis_count;
    uint32_t row_count, done_count;
    char **rows; /* [row_count]: an object of JSON in one line; NULL: not done yet */
    ty_progress progress;
} whatif;

static void whatif_clear(whatif *w)
{
    for (uint32_t r = 0; w->rows != NULL && r < w->row_count; r++)
        ty_free(w->rows[r]);
    ty_free(w->rows);
    ty_arena_free(w->texts);
}

/* ---- The question -------------------------------------------------------------------------- */

/* "hosts=1,2,4"; a value in which a comma belongs cannot be given. */
static ty_status read_axis(whatif *w, const char *text, ty_error *error)
{
    axis *a = &w->axes[w->axis_count];
    const size_t most = strlen(text);
    char *copy = ty_arena_strdup(w->texts, text);
    char *equals = copy != NULL ? strchr(copy, '=') : NULL;
    char *rest, *value;

    a->values = ty_arena_alloc(w->texts, most + 1, sizeof *a->values);
    if (copy == NULL || a->values == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    if (equals == NULL || equals == copy || equals[1] == '\0')
        return ty_fail(error, TY_EINVAL, "--vary: found '%s', expected KEY=VALUE,VALUE,...", text);
    *equals = '\0';
    a->key = copy;
    rest = equals + 1;
    while ((value = strtok_r(rest, ",", &rest)) != NULL)
        a->values[a->count++] = value;
    if (a->count == 0)
        return ty_fail(error, TY_EINVAL, "--vary %s: no values", a->key);
    for (uint32_t i = 0; i < w->axis_count; i++)
        if (strcmp(w->axes[i].key, a->key) == 0)
            return ty_fail(error, TY_EINVAL, "--vary: key '%s' is given twice", a->key);
    w->axis_count++;
    return TY_OK;
}

/* The value of an axis in a row: the last axis changes fastest. */
static const char *value_of(const whatif *w, uint32_t row, uint32_t axis_index)
{
    for (uint32_t a = w->axis_count; a-- > axis_index + 1;)
        row /= w->axes[a].count;
    return w->axes[axis_index].values[row % w->axes[axis_index].count];
}

static ty_status set_point(const whatif *w, uint32_t row, vary_point *point, ty_error *error)
{
    ty_status status = vary_point_new(w->options, point, error);

    for (uint32_t a = 0; a < w->axis_count && status == TY_OK; a++) {
        ty_error detail = {0};
        status = vary_set(point, w->axes[a].key, value_of(w, row, a), &detail);
        if (status != TY_OK)
            status = ty_fail(error, status, "--vary %s=%s: %s", w->axes[a].key, value_of(w, row, a),
                             detail.message);
    }
    return status;
}

/* Reads the axes and tries every value once, so that typing errors show before the work starts. */
static ty_status whatif_open(const cli_options *options, whatif *w, ty_error *error)
{
    ty_status status = TY_OK;
    uint64_t rows = 1;

    *w = (whatif){.options = options, .texts = ty_arena_new()};
    w->top = options->no_simulate ? 0 : (uint32_t)(options->top > 0 ? options->top : USUAL_TOP);
    if (w->texts == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    if (options->workload == NULL || options->cluster == NULL)
        return ty_fail(error, TY_EINVAL, "--workload and --cluster are needed");
    if (options->vary_count == 0)
        return ty_fail(error, TY_EINVAL, "--vary KEY=V,... is needed, as in --vary hosts=1,2,4");
    for (int i = 0; i < options->vary_count; i++) {
        TY_CHECK(read_axis(w, options->vary[i], error), status, done);
        rows *= w->axes[w->axis_count - 1].count;
        if (rows > MOST_ROWS)
            return ty_fail(error, TY_EINVAL, "--vary: more than %d combinations", MOST_ROWS);
    }
    w->row_count = (uint32_t)rows;
    w->rows = ty_alloc(rows, sizeof *w->rows);
    if (w->rows == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t r = 0; r < w->row_count && status == TY_OK; r++) {
        vary_point point = {0};
        status = set_point(w, r, &point, error);
        vary_point_clear(&point);
    }
done:
    return status;
}

/* ---- One row ------------------------------------------------------------------------------- */

static void put_values(const whatif *w, uint32_t row, ty_json_writer *out)
{
    ty_json_open(out, "values", '{');
    for (uint32_t a = 0; a < w->axis_count; a++)
        ty_json_put_string(out, w->axes[a].key, value_of(w, row, a));
    ty_json_close(out, '}');
}

/* Dollars an hour of the hosts that the plan uses; 0: not known. */
static double price_of(const ty_cluster *cluster, const ty_plan *plan, ty_error *error)
{
    const uint32_t hosts = ty_cluster_host_count(cluster);
    bool *used = ty_alloc(hosts, sizeof *used);
    double price = 0;

    (void)error;
    for (uint32_t s = 0; used != NULL && s < plan->stage_count; s++)
        for (uint32_t d = 0; d < plan->stages[s].replicas * ty_plan_width(plan); d++)
            used[ty_cluster_device_host(cluster, plan->stages[s].devices[d])] = true;
    for (uint32_t h = 0; used != NULL && h < hosts; h++) {
        const ty_host_type *type = used[h] ? ty_cluster_host_type(cluster, h) : NULL;
        if (used[h] && (type == NULL || type->price_date == NULL)) {
            price = 0;
            break;
        }
        price += used[h] ? type->price_usd_per_hour : 0;
    }
    ty_free(used);
    return price;
}

static void put_answer(const ty_plan *plan, const ty_cluster *cluster, ty_json_writer *w)
{
    const bool is_simulated = plan->simulation.step_time_s > 0;
    const ty_step_summary *s = is_simulated ? &plan->simulation : &plan->prediction;
    uint64_t peak = 0, capacity = UINT64_MAX;
    const double price = price_of(cluster, plan, NULL);

    for (uint32_t i = 0; i < plan->stage_count; i++)
        if (ty_memory_use_total(&plan->memory[i]) > peak)
            peak = ty_memory_use_total(&plan->memory[i]);
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++)
        if (ty_cluster_device_type(cluster, d)->memory_bytes < capacity)
            capacity = ty_cluster_device_type(cluster, d)->memory_bytes;
    ty_json_put_uint(w, "devices", ty_cluster_device_count(cluster));
    ty_json_put_uint(w, "global_batch", plan->global_batch);
    ty_json_put_number(w, "step_time_s", s->step_time_s);
    ty_json_put_number(w, "estimated_step_time_s", plan->prediction.step_time_s);
    ty_json_put_bool(w, "is_simulated", is_simulated);
    ty_json_put_number(w, "samples_per_s", s->samples_per_s);
    ty_json_put_number(w, "tokens_per_s", s->tokens_per_s);
    ty_json_put_uint(w, "peak_memory_bytes", peak);
    ty_json_put_uint(w, "memory_bytes", capacity);
    if (price > 0)
        ty_json_put_number(w, "price_usd_per_hour", price);
    ty_json_put_string(w, "limited_by", s->limited_by);
    ty_json_put_string(w, "strategy", plan->strategy);
    ty_json_put_string(w, "plan",
                       plan->candidate_count > 0 ? plan->candidates[0].name : plan->strategy);
    ty_json_put_string(w, "stack", plan->stack->name);
    ty_json_put_string(w, "provenance", ty_provenance_name(plan->provenance));
}

/* In a child. "Nothing fits" and "this makes no sense" are answers; an unreadable file is not. */
static ty_status do_row(void *context, uint32_t row, ty_text *result, ty_error *error)
{
    const whatif *w = context;
    ty_status status;
    ty_json_writer out = ty_json_writer_on(result);
    vary_point point = {0};
    cli_question q = {0};
    ty_plan *plan = NULL;

    TY_CHECK(set_point(w, row, &point, error), status, done);
    status = vary_open(&point, &q, error);
    if (status == TY_OK)
        status = plan_answer(&point.options, &q, w->top, &plan, error);
    if (status != TY_OK && status != TY_EINFEASIBLE && status != TY_EINVAL)
        goto done;
    ty_json_open_flat(&out, NULL, '{');
    put_values(w, row, &out);
    if (status == TY_OK)
        put_answer(plan, q.cluster, &out);
    else
        ty_json_put_string(&out, "reason", error->message);
    ty_json_close(&out, '}');
    status = TY_OK;
done:
    ty_plan_free(plan);
    question_clear(&q);
    vary_point_clear(&point);
    return status;
}

/* ---- The document -------------------------------------------------------------------------- */

/* What rows depend on beside their values: a document may be taken only where it is the same. */
static void put_question(const whatif *w, ty_json_writer *out, const char *key)
{
    const cli_options *o = w->options;

    ty_json_open(out, key, '{');
    ty_json_put_string(out, "workload", o->workload);
    ty_json_put_string(out, "cluster", o->cluster);
    if (o->global_batch > 0)
        ty_json_put_uint(out, "global_batch", o->global_batch);
    if (o->profile != NULL)
        ty_json_put_string(out, "profile", o->profile);
    if (o->stack != NULL)
        ty_json_put_string(out, "stack", o->stack);
    if (o->fix != NULL)
        ty_json_put_string(out, "fix", o->fix);
    if (o->sequence > 0)
        ty_json_put_uint(out, "sequence", o->sequence);
    if (o->precision != NULL)
        ty_json_put_string(out, "precision", o->precision);
    if (o->system != NULL)
        ty_json_put_string(out, "system", o->system);
    if (o->objective != NULL)
        ty_json_put_string(out, "objective", o->objective);
    if (o->task != NULL)
        ty_json_put_string(out, "task", o->task);
    if (o->allow_lossy)
        ty_json_put_bool(out, "is_lossy_allowed", true);
    ty_json_put_uint(out, "seed", o->seed);
    ty_json_put_uint(out, "simulated_finalists", w->top);
    ty_json_close(out, '}');
}

static void put_document(const whatif *w, ty_text *text)
{
    ty_json_writer out = ty_json_writer_on(text);

    ty_json_open(&out, NULL, '{');
    ty_json_put_string(&out, "schema", WHATIF_SCHEMA);
    ty_json_put_string(&out, "version", TY_VERSION);
    put_question(w, &out, "question");
    ty_json_open(&out, "vary", '[');
    for (uint32_t a = 0; a < w->axis_count; a++) {
        ty_json_open_flat(&out, NULL, '{');
        ty_json_put_string(&out, "key", w->axes[a].key);
        ty_json_open(&out, "values", '[');
        for (uint32_t i = 0; i < w->axes[a].count; i++)
            ty_json_put_string(&out, NULL, w->axes[a].values[i]);
        ty_json_close(&out, ']');
        ty_json_close(&out, '}');
    }
    ty_json_close(&out, ']');
    ty_json_put_bool(&out, "is_complete", w->done_count == w->row_count);
    ty_json_open(&out, "rows", '[');
    for (uint32_t r = 0; r < w->row_count; r++)
        if (w->rows[r] != NULL)
            ty_json_put_raw(&out, NULL, w->rows[r]);
    ty_json_close(&out, ']');
    ty_json_close(&out, '}');
    ty_text_add(text, "\n");
}

static ty_status save_document(const whatif *w, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    put_document(w, &text);
    status = ty_file_write_text(w->options->output, &text, error);
    ty_text_clear(&text);
    return status;
}

/* ---- Resuming ------------------------------------------------------------------------------ */

static ty_status check_question(const whatif *w, const ty_json *root, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *theirs;
    ty_text ours = {0};
    ty_json_writer out = ty_json_writer_on(&ours);
    ty_json_document *document = NULL;
    char *own_text = NULL, *their_text = NULL;

    put_question(w, &out, NULL);
    TY_CHECK(ty_text_check(&ours, error), status, done);
    TY_CHECK(ty_json_parse(ours.data, ours.length, "question", &document, error), status, done);
    TY_CHECK(ty_json_text(ty_json_root(document), &own_text, error), status, done);
    TY_CHECK(ty_json_object(root, "question", &theirs, error), status, done);
    TY_CHECK(ty_json_text(theirs, &their_text, error), status, done);
    if (strcmp(own_text, their_text) != 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s:/question: found %.160s, expected %.160s: rows of another question",
                         w->options->rows, their_text, own_text);
done:
    ty_free(own_text);
    ty_free(their_text);
    ty_json_free(document);
    ty_text_clear(&ours);
    return status;
}

/* The row with a set of values; row_count: none. */
static ty_status find_row(const whatif *w, const ty_json *row, uint32_t *out, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *values;
    uint32_t index = 0;

    *out = w->row_count;
    TY_CHECK(ty_json_object(row, "values", &values, error), status, done);
    if (ty_json_size(values) != w->axis_count)
        return TY_OK;
    for (uint32_t a = 0; a < w->axis_count; a++) {
        const char *text;
        uint32_t i = 0;
        if (!ty_json_has(values, w->axes[a].key))
            return TY_OK;
        TY_CHECK(ty_json_string(values, w->axes[a].key, &text, error), status, done);
        while (i < w->axes[a].count && strcmp(w->axes[a].values[i], text) != 0)
            i++;
        if (i == w->axes[a].count)
            return TY_OK;
        index = index * w->axes[a].count + i;
    }
    *out = index;
done:
    return status;
}

static ty_status take_known_rows(whatif *w, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *root, *rows;

    TY_CHECK(ty_json_load(w->options->rows, &document, error), status, done);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, WHATIF_SCHEMA, error), status, done);
    TY_CHECK(check_question(w, root, error), status, done);
    TY_CHECK(ty_json_array(root, "rows", 0, MOST_ROWS, &rows, error), status, done);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        uint32_t index;
        TY_CHECK(find_row(w, ty_json_at(rows, i), &index, error), status, done);
        if (index == w->row_count || w->rows[index] != NULL)
            continue;
        TY_CHECK(ty_json_text(ty_json_at(rows, i), &w->rows[index], error), status, done);
        w->done_count++;
    }
done:
    ty_json_free(document);
    return status;
}

/* ---- Results ------------------------------------------------------------------------------- */

static const char *const csv_columns[] = {
    "devices",
    "global_batch",
    "step_time_s",
    "estimated_step_time_s",
    "samples_per_s",
    "tokens_per_s",
    "peak_memory_bytes",
    "memory_bytes",
    "price_usd_per_hour",
    "limited_by",
    "plan",
    "reason",
};
#define CSV_COLUMN_COUNT (sizeof csv_columns / sizeof csv_columns[0])

/* RFC 4180: texts in quotes, numbers plain, what is not there empty. */
static ty_status put_cell(ty_text *csv, const ty_json *row, const char *key, ty_error *error)
{
    ty_status status = TY_OK;
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
    TY_CHECK(ty_json_string(row, key, &string, error), status, done);
    ty_text_add(csv, "\"");
    for (const char *c = string; *c != '\0'; c++)
        ty_text_add(csv, *c == '"' ? "\"\"" : (const char[]){*c, '\0'});
    ty_text_add(csv, "\"");
done:
    return status;
}

static ty_status put_csv(const whatif *w, ty_text *csv, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    for (uint32_t a = 0; a < w->axis_count; a++)
        ty_text_addf(csv, "%s,", w->axes[a].key);
    for (size_t c = 0; c < CSV_COLUMN_COUNT; c++)
        ty_text_addf(csv, "%s%s", csv_columns[c], c + 1 < CSV_COLUMN_COUNT ? "," : "\r\n");
    for (uint32_t r = 0; r < w->row_count; r++) {
        const ty_json *row, *values;
        TY_CHECK(ty_json_parse(w->rows[r], strlen(w->rows[r]), "row", &document, error), status,
                 done);
        row = ty_json_root(document);
        TY_CHECK(ty_json_object(row, "values", &values, error), status, done);
        for (uint32_t a = 0; a < w->axis_count; a++) {
            TY_CHECK(put_cell(csv, values, w->axes[a].key, error), status, done);
            ty_text_add(csv, ",");
        }
        for (size_t c = 0; c < CSV_COLUMN_COUNT; c++) {
            TY_CHECK(put_cell(csv, row, csv_columns[c], error), status, done);
            ty_text_add(csv, c + 1 < CSV_COLUMN_COUNT ? "," : "\r\n");
        }
        ty_json_free(document);
        document = NULL;
    }
done:
    ty_json_free(document);
    return status;
}

static ty_status put_line(const whatif *w, uint32_t r, ty_text *text, uint32_t *plans,
                          ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *row;
    const char *words;
    double step_s, rate;
    char time[32], count[32];

    TY_CHECK(ty_json_parse(w->rows[r], strlen(w->rows[r]), "row", &document, error), status, done);
    row = ty_json_root(document);
    for (uint32_t a = 0; a < w->axis_count; a++)
        ty_text_addf(text, "%s=%s  ", w->axes[a].key, value_of(w, r, a));
    if (ty_json_has(row, "reason")) {
        TY_CHECK(ty_json_string(row, "reason", &words, error), status, done);
        ty_text_addf(text, "no plan: %s\n", words);
        goto done;
    }
    ++*plans;
    TY_CHECK(ty_json_number(row, "step_time_s", 0, 1e300, &step_s, error), status, done);
    TY_CHECK(ty_json_number(row, "samples_per_s", 0, 1e300, &rate, error), status, done);
    TY_CHECK(ty_json_string(row, "plan", &words, error), status, done);
    ty_format_seconds(step_s, time);
    ty_format_count(rate, count);
    ty_text_addf(text, "%s a step, %s samples/s, %s", time, count, words);
    TY_CHECK(ty_json_string(row, "limited_by", &words, error), status, done);
    ty_text_addf(text, "; limited by %s\n", words);
done:
    ty_json_free(document);
    return status;
}

static bool is_wanted(void *context, uint32_t row)
{
    return ((const whatif *)context)->rows[row] == NULL;
}

/* Keeps a row, and what is done so far in the file, so that nothing is lost with the process. */
static ty_status take_row(void *context, uint32_t row, const char *result, ty_error *error)
{
    whatif *w = context;

    w->rows[row] = ty_strdup(result);
    if (w->rows[row] == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    ty_progress_update(&w->progress, ++w->done_count, NULL);
    if (w->options->output != NULL && !w->options->csv && strcmp(w->options->output, "-") != 0)
        return save_document(w, error);
    return TY_OK;
}

static bool is_measured_here(const whatif *w)
{
    uint32_t ranks;

    for (uint32_t a = 0; a < w->axis_count; a++)
        for (uint32_t i = 0; strcmp(w->axes[a].key, "cluster") == 0 && i < w->axes[a].count; i++)
            if (ty_cluster_is_local(w->axes[a].values[i], &ranks))
                return true;
    return ty_cluster_is_local(w->options->cluster, &ranks);
}

/* Over the ranks there are, or the cores; machines measured here are measured one at a time. */
static ty_status sweep_all(const whatif *w, sweep *work, ty_error *error)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (!sweep_has_ranks()) {
        work->parallel = cores < 1 || is_measured_here(w) ? 1 : (uint32_t)cores;
        return sweep_run(work, error);
    }
    if (is_measured_here(w))
        return ty_fail(
            error, TY_EINVAL,
            "a local cluster is measured on one machine: start whatif without a launcher");
    return sweep_over_ranks(work, error);
}

static exit_code finish(whatif *w, ty_error *error)
{
    const cli_options *o = w->options;
    ty_text text = {0}, lines = {0};
    ty_status status = TY_OK;
    uint32_t plans = 0;
    exit_code code = EXIT_DONE;

    for (uint32_t r = 0; r < w->row_count && status == TY_OK; r++)
        status = put_line(w, r, &lines, &plans, error);
    if (status == TY_OK && o->csv)
        status = put_csv(w, &text, error);
    else if (status == TY_OK && (o->json || o->output != NULL))
        put_document(w, &text);
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
    if (code == EXIT_DONE && plans == 0) {
        fputs("trainyard: error: no combination has a plan\n", stderr);
        code = EXIT_NO_PLAN;
    }
    ty_text_clear(&text);
    ty_text_clear(&lines);
    return code;
}

exit_code cmd_whatif(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    whatif w;
    char note[64];
    sweep work = {.context = &w, .is_wanted = is_wanted, .work = do_row, .take = take_row};

    if (options->json && options->csv)
        return report_usage("whatif", "--json and --csv exclude each other");
    interrupts_catch();
    if (whatif_open(options, &w, &error) != TY_OK ||
        (options->rows != NULL && take_known_rows(&w, &error) != TY_OK)) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    ty_progress_start(&w.progress, options->quiet || !sweep_is_first_rank() ? NULL : stderr,
                      "what-if", w.row_count, "rows");
    work.count = w.row_count;
    if (sweep_all(&w, &work, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    if (!sweep_is_first_rank()) {
        code = EXIT_DONE;
        goto cleanup;
    }
    snprintf(note, sizeof note, "%u rows", w.row_count);
    ty_progress_finish(&w.progress, note);
    code = finish(&w, &error);

cleanup:
    whatif_clear(&w);
    return code;
}
