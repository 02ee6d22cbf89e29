/* Reads tasks from study/catalogue/convergence.json and from calibration files. */
#include "convergence_catalogue.h"
#include "ty_json.h"

#include <float.h>
#include <math.h>
#include <string.h>

ty_status ty_convergence_catalogue_open(ty_convergence_catalogue *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_convergence_catalogue c = {0};
    char *path = NULL;
    const ty_json *root;

    TY_CHECK(ty_data_path("study/catalogue", "convergence.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &c.document, error), status, cleanup);
    root = ty_json_root(c.document);
    TY_CHECK(ty_json_schema(root, "trainyard.convergence/1", error), status, cleanup);
    TY_CHECK(ty_json_object(root, "sources", &c.sources, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "tasks", 1, UINT16_MAX, &c.tasks, error), status, cleanup);
    TY_CHECK(ty_json_array(root, "compressors", 1, UINT16_MAX, &c.compressors, error), status,
             cleanup);
    TY_CHECK(ty_json_object(root, "staleness", &c.staleness, error), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    *out = c;
    c = (ty_convergence_catalogue){0};

cleanup:
    ty_free(path);
    ty_convergence_catalogue_close(&c);
    return status;
}

void ty_convergence_catalogue_close(ty_convergence_catalogue *catalogue)
{
    ty_json_free(catalogue->document);
    *catalogue = (ty_convergence_catalogue){0};
}

/* ---- One task ---------------------------------------------------------------------------- */

static const char *rule_name(int rule)
{
    return ty_scaling_rule_name((ty_scaling_rule)rule);
}

static bool has_rate(const void *task)
{
    return ((const ty_convergence *)task)->learning_rate > 0;
}

static const json_field fields[] = {
    {"name", JSON_TEXT, JSON_AT(ty_convergence, name)},
    {"target", JSON_TEXT, JSON_AT(ty_convergence, target)},
    {"source", JSON_TEXT, JSON_AT(ty_convergence, source)},
    {"noise_scale_samples", JSON_NUMBER, JSON_AT(ty_convergence, noise_scale_samples), DBL_MIN,
     1e15},
    {"minimum_samples", JSON_NUMBER, JSON_AT(ty_convergence, minimum_samples), DBL_MIN, 1e18},
    {"log_deviation", JSON_NUMBER, JSON_AT(ty_convergence, log_deviation), 0, 10},
    {"smallest_batch", JSON_NUMBER, JSON_AT(ty_convergence, smallest_batch), DBL_MIN, 1e12},
    {"largest_batch", JSON_NUMBER, JSON_AT(ty_convergence, largest_batch), DBL_MIN, 1e12},
    {"noise_growth", JSON_NUMBER, JSON_AT(ty_convergence, noise_growth), 1, 1e6},
    {"scaling_rule", JSON_NAME, JSON_AT(ty_convergence, scaling_rule), .name = rule_name,
     .name_count = TY_SCALING_RULE_COUNT},
    {"scaling_limit_batch", JSON_NUMBER, JSON_AT(ty_convergence, scaling_limit_batch), DBL_MIN,
     1e12, .is_optional = true},
    {"learning_rate", JSON_NUMBER, JSON_AT(ty_convergence, learning_rate), DBL_MIN, 1e6,
     .is_optional = true},
    {"batch", JSON_NUMBER, JSON_AT(ty_convergence, batch), DBL_MIN, 1e12, .applies = has_rate},
};
static const json_record task_record = JSON_RECORD(ty_convergence, fields);

ty_status ty_convergence_from_json(const ty_json *object, ty_convergence **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_convergence *t = ty_alloc(1, sizeof *t);

    TY_TRY(ty_check_memory(t != NULL, error));
    ty_json_ignore(object, "workload"); /* workload of the task, for the catalogue */
    TY_CHECK(ty_record_read_all(object, &task_record, t, NULL, error), status, cleanup);
    if (t->smallest_batch > t->largest_batch) {
        status = ty_json_fail(object, error, "a smallest batch not above the largest");
        goto cleanup;
    }
    *out = t;
    t = NULL;

cleanup:
    ty_convergence_free(t);
    return status;
}

void ty_convergence_to_json(const ty_convergence *task, ty_json_writer *writer, const char *key)
{
    ty_record_write(&task_record, task, NULL, writer, key);
}

void ty_convergence_free(ty_convergence *task)
{
    if (task == NULL)
        return;
    ty_free(task->name);
    ty_free(task->target);
    ty_free(task->source);
    ty_free(task->compressors);
    ty_free(task);
}

/* ---- Finding one ------------------------------------------------------------------------- */

ty_status ty_convergence_cite(const ty_convergence_catalogue *c, const char *key, char **out,
                              ty_error *error)
{
    const char *text;

    TY_TRY(ty_json_string(c->sources, key, &text, error));
    *out = ty_strdup(text);
    return *out == NULL ? ty_fail(error, TY_ENOMEM, "out of memory") : TY_OK;
}

static ty_status take_task(const ty_convergence_catalogue *c, const ty_json *object,
                           ty_convergence **out, ty_error *error)
{
    ty_convergence *t = NULL;
    char *source = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_convergence_from_json(object, &t, error), status, cleanup);
    TY_CHECK(ty_convergence_cite(c, t->source, &source, error), status, cleanup);
    ty_free(t->source);
    t->source = source;
    t->is_prior = true;
    *out = t;
    t = NULL;

cleanup:
    ty_convergence_free(t);
    return status;
}

/* The first task whose `key` is `value`; NULL if there is none. */
static const ty_json *find_task(const ty_convergence_catalogue *c, const char *key,
                                const char *value)
{
    for (size_t i = 0; i < ty_json_size(c->tasks); i++) {
        const ty_json *task = ty_json_at(c->tasks, i);
        const char *found;
        if (ty_json_has(task, key) && ty_json_string(task, key, &found, NULL) == TY_OK &&
            strcmp(found, value) == 0)
            return task;
    }
    return NULL;
}

static ty_status unknown_task(const ty_convergence_catalogue *c, const char *name, ty_error *error)
{
    const char *names[64];
    const char *close;
    size_t count = 0;
    ty_text known = {0};
    ty_status status;

    for (size_t i = 0; i < ty_json_size(c->tasks) && count < sizeof names / sizeof names[0]; i++)
        if (ty_json_string(ty_json_at(c->tasks, i), "name", &names[count], NULL) == TY_OK)
            count++;
    close = ty_suggest(name, names, count, sizeof names[0]);
    for (size_t i = 0; i < count && close == NULL; i++)
        ty_text_addf(&known, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    status = ty_fail(error, TY_EPARSE, "no file and no known task is called '%s'%s%s", name,
                     close != NULL ? "; did you mean " : "; expected a calibration file, ",
                     close != NULL        ? close
                     : known.data != NULL ? known.data
                                          : "or the name of a task");
    ty_text_clear(&known);
    return status;
}

/* ---- Calibrations ------------------------------------------------------------------------ */

void ty_convergence_to_calibration(const ty_convergence *task, ty_json_writer *writer)
{
    ty_convergence_to_json(task, writer, "convergence");
    if (task->has_temperature_cost)
        ty_interval_to_json(task->temperature_cost, writer, "temperature_cost");
    if (task->has_staleness)
        ty_interval_to_json(task->staleness, writer, "staleness");
    ty_json_open(writer, "compression", '[');
    for (uint32_t i = 0; i < task->compressor_count; i++) {
        const ty_compressor_calibration *c = &task->compressors[i];
        ty_json_open_flat(writer, NULL, '{');
        ty_compression_write(&c->compression, writer, "compression");
        if (!isnan(c->distortion))
            ty_json_put_number(writer, "distortion", c->distortion);
        if (ty_compression_has_feedback(&c->compression))
            ty_interval_to_json(c->lag, writer, "lag_updates");
        else
            ty_interval_to_json(c->factor, writer, "factor");
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
}

static ty_status read_compressor(const ty_json *row, ty_compressor_calibration *out,
                                 ty_error *error)
{
    const ty_json *cost;
    const char *key;
    bool is_lag;

    out->distortion = NAN;
    TY_TRY(ty_compression_read(row, "compression", &out->compression, error));
    if (ty_json_has(row, "distortion"))
        TY_TRY(ty_json_number(row, "distortion", 0, 1e6, &out->distortion, error));
    is_lag = ty_compression_has_feedback(&out->compression);
    key = is_lag ? "lag_updates" : "factor";
    TY_TRY(ty_json_object(row, key, &cost, error));
    TY_TRY(ty_interval_read(cost, is_lag ? 0 : DBL_MIN, is_lag ? &out->lag : &out->factor, error));
    TY_TRY(ty_json_end(cost, error));
    return ty_json_end(row, error);
}

static ty_status read_temperature_cost(const ty_json *root, ty_convergence *t, ty_error *error)
{
    const ty_json *value;
    ty_status status = TY_OK;

    if (!ty_json_has(root, "temperature_cost"))
        return TY_OK;
    TY_TRY(ty_json_object(root, "temperature_cost", &value, error));
    TY_TRY(ty_interval_read(value, 0, &t->temperature_cost, error));
    TY_TRY(ty_json_end(value, error));
    if (t->temperature_cost.high > TY_TEMPERATURE_COST_MOST)
        status = ty_json_fail(value, error, "a cost of at most 10 (of the log of steps)");
    else if (!(t->batch > 0))
        status =
            ty_json_fail(value, error, "the \"batch\" that it was measured at in \"convergence\"");
    t->has_temperature_cost = status == TY_OK;
    return status;
}

static ty_status read_effects(const ty_json *root, ty_convergence *t, ty_error *error)
{
    const ty_json *value;

    TY_TRY(read_temperature_cost(root, t, error));
    if (ty_json_has(root, "staleness")) {
        TY_TRY(ty_json_object(root, "staleness", &value, error));
        TY_TRY(ty_interval_read(value, 0, &t->staleness, error));
        TY_TRY(ty_json_end(value, error));
        t->has_staleness = true;
    }
    if (!ty_json_has(root, "compression"))
        return TY_OK;
    TY_TRY(ty_json_array(root, "compression", 0, UINT16_MAX, &value, error));
    t->compressors = ty_alloc(ty_json_size(value), sizeof *t->compressors);
    TY_TRY(ty_check_memory(t->compressors != NULL, error));
    for (; t->compressor_count < ty_json_size(value); t->compressor_count++)
        TY_TRY(read_compressor(ty_json_at(value, t->compressor_count),
                               &t->compressors[t->compressor_count], error));
    return TY_OK;
}

static ty_status from_calibration(const char *path, ty_convergence **out, ty_error *error)
{
    /* Other results of a calibration run, read elsewhere. */
    static const char *const others[] = {
        "environment", "date",    "collectives",     "noise", "proposal",
        "provenance",  "machine", "steps_to_target", "notes"};
    ty_json_document *document = NULL;
    const ty_json *root, *object;
    ty_convergence *task = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, "trainyard.calibration/1", error), status, cleanup);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ty_json_ignore(root, others[i]);
    TY_CHECK(ty_json_object(root, "convergence", &object, error), status, cleanup);
    TY_CHECK(ty_convergence_from_json(object, &task, error), status, cleanup);
    TY_CHECK(read_effects(root, task, error), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    *out = task;
    task = NULL;

cleanup:
    ty_convergence_free(task);
    ty_json_free(document);
    return status;
}

ty_status ty_convergence_open(const char *name_or_path, ty_convergence **out, ty_error *error)
{
    ty_convergence_catalogue c = {0};
    const ty_json *task;
    ty_status status = TY_OK;

    TY_CHECK(ty_convergence_catalogue_open(&c, error), status, cleanup);
    task = find_task(&c, "name", name_or_path);
    if (task != NULL)
        status = take_task(&c, task, out, error);
    else if (strcmp(name_or_path, "-") == 0 || ty_file_exists(name_or_path))
        status = from_calibration(name_or_path, out, error);
    else
        status = unknown_task(&c, name_or_path, error);

cleanup:
    ty_convergence_catalogue_close(&c);
    return status;
}

ty_status ty_convergence_of_workload(const char *workload, ty_convergence **out, ty_error *error)
{
    ty_convergence_catalogue c = {0};
    const ty_json *task;
    ty_status status = TY_OK;

    TY_CHECK(ty_convergence_catalogue_open(&c, error), status, cleanup);
    task = find_task(&c, "workload", workload);
    status = task != NULL ? take_task(&c, task, out, error)
                          : ty_fail(error, TY_EIO,
                                    "workload %s: nothing is known of its convergence; name a task "
                                    "or a calibration file",
                                    workload);

cleanup:
    ty_convergence_catalogue_close(&c);
    return status;
}

ty_status ty_interval_read(const ty_json *object, double minimum, ty_interval *out, ty_error *error)
{
    ty_interval v;

    TY_TRY(ty_json_number(object, "low", minimum, 1e6, &v.low, error));
    TY_TRY(ty_json_number(object, "expected", v.low, 1e6, &v.expected, error));
    TY_TRY(ty_json_number(object, "high", v.expected, 1e6, &v.high, error));
    *out = v;
    return TY_OK;
}
