/* trainyard check: reads files with their readers, and prints their formats and unused keys. */
#include "cli.h"
#include "ty_phases.h"
#include "ty_training_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Result of one file. */
typedef struct verdict {
    const char *format; /* static, or `own`; NULL: unknown */
    char own[64];
    ty_text notes;  /* one per line */
    ty_error error; /* status TY_OK: readable */
} verdict;

/* ---- Trainyard's files ------------------------------------------------------------------- */

static void keep_note(void *context, const char *line)
{
    ty_text_addf(&((verdict *)context)->notes, "%s\n", line);
}

static ty_status check_plan(const char *path, verdict *v)
{
    const ty_watch watch = {.note = keep_note, .context = v};
    ty_plan_inputs inputs = {0};
    ty_status status = ty_plan_inputs_load(path, NULL, &watch, &inputs, &v->error);

    ty_plan_inputs_clear(&inputs);
    return status;
}

/* Reads a file with its own reader: `load` takes the arguments, then the object. */
#define CHECK(name, type, load, ...)                                                               \
    static ty_status check_##name(const char *path, verdict *v)                                    \
    {                                                                                              \
        type *loaded = NULL;                                                                       \
        const ty_status status = load(__VA_ARGS__, &loaded, &v->error);                            \
        type##_free(loaded);                                                                       \
        return status;                                                                             \
    }
CHECK(phases, ty_phases, ty_phases_load, path)
CHECK(phased_plan, ty_phased_plan, ty_phased_plan_load, path)
CHECK(phased_run, ty_phased_run, ty_phased_run_load, path)
CHECK(job, ty_job, ty_job_load, path)
CHECK(run, ty_run, ty_run_load, path)
CHECK(profile, ty_profile, ty_profile_load, path)
CHECK(samples, ty_samples, ty_samples_load, path)
CHECK(stack, ty_stack, ty_stack_open, path)
CHECK(cluster, ty_cluster, ty_cluster_open, path, NULL)
CHECK(workload, ty_workload, ty_workload_open, path)
CHECK(calibration, ty_convergence, ty_convergence_open, path)
CHECK(records, ty_records, ty_records_load, path)
/* Accepts any collective; commands that use a log refuse one without a collective. */
CHECK(collective_log, ty_collective_log, ty_collective_log_load, path, TY_COLLECTIVE_COUNT)

static ty_status check_device(const char *path, verdict *v)
{
    return ty_device_file_check(path, &v->error);
}

/* Output of simulate and estimate: a report reads its timeline. */
static ty_status check_timeline(const char *path, verdict *v)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    const ty_json *object;
    ty_timeline *timeline = NULL;

    TY_CHECK(ty_json_load(path, &document, &v->error), status, done);
    TY_CHECK(ty_json_object(ty_json_root(document), "timeline", &object, &v->error), status, done);
    TY_CHECK(ty_timeline_from_json(object, &timeline, &v->error), status, done);
done:
    ty_timeline_free(timeline);
    ty_json_free(document);
    return status;
}

/* Documents of reports, read as a report does. */
static ty_status check_document(const char *path, verdict *v)
{
    ty_status status = TY_OK;
    ty_json_document *parsed = NULL;
    ty_report_document document = {.path = path};
    ty_text html = {0};

    TY_CHECK(ty_json_load(path, &parsed, &v->error), status, done);
    document.root = ty_json_root(parsed);
    TY_CHECK(ty_json_string(document.root, "schema", &document.schema, &v->error), status, done);
    document.schema = ty_json_schema_now(document.schema);
    status = ty_report_html(&(ty_report_input){.documents = &document, .document_count = 1}, &html,
                            &v->error);
done:
    ty_text_clear(&html);
    ty_json_free(parsed);
    return status;
}

static const struct own_format {
    const char *schema;
    ty_status (*check)(const char *path, verdict *v);
} own_formats[] = {
    {"trainyard.plan/1", check_plan},
    {"trainyard.phases/1", check_phases},
    {"trainyard.phased-plan/1", check_phased_plan},
    {"trainyard.phased-run/1", check_phased_run},
    {"trainyard.job/1", check_job},
    {"trainyard.run/2", check_run},
    {"trainyard.profile/1", check_profile},
    {"trainyard.samples/1", check_samples},
    {"trainyard.stack/1", check_stack},
    {"trainyard.cluster/1", check_cluster},
    {"trainyard.device/1", check_device},
    {"trainyard.workload/1", check_workload},
    {"trainyard.zoo/1", check_workload},
    {"trainyard.calibration/1", check_calibration},
    {"trainyard.simulation/2", check_timeline},
    {"trainyard.estimate/1", check_timeline},
    {"trainyard.whatif/1", check_document},
    {"trainyard.infeasible/1", check_document},
    {"trainyard.validation/1", check_document},
    {"trainyard.score/1", check_document},
    {"trainyard.phased-score/1", check_document},
    {"trainyard.launch/1", check_document},
    {"trainyard.compression/1", check_document},
};
#define OWN_COUNT (sizeof own_formats / sizeof own_formats[0])

/* Reads a JSON document by its schema. @return false: no Trainyard document, or not JSON */
static bool check_own(const char *path, verdict *v)
{
    ty_json_document *document = NULL;
    const ty_json *root;
    const char *schema = NULL;
    bool is_own = false;

    if (ty_json_load(path, &document, NULL) != TY_OK)
        return false;
    root = ty_json_root(document);
    if (ty_json_is_object(root) && ty_json_has(root, "schema") &&
        ty_json_string(root, "schema", &schema, NULL) == TY_OK)
        is_own = strncmp(schema, "trainyard.", strlen("trainyard.")) == 0;
    for (size_t i = 0; is_own && i < OWN_COUNT && v->format == NULL; i++)
        if (strcmp(ty_json_schema_now(schema), own_formats[i].schema) == 0) {
            v->format = own_formats[i].schema;
            v->error.status = own_formats[i].check(path, v);
        }
    if (is_own && v->format == NULL) {
        const char *close = ty_suggest(schema, own_formats, OWN_COUNT, sizeof own_formats[0]);
        ty_fail(&v->error, TY_EPARSE, "%s:/schema: found \"%.60s\", which no command reads%s%s%s",
                path, schema, close != NULL ? "; did you mean \"" : "", close != NULL ? close : "",
                close != NULL ? "\"?" : "");
    }
    ty_json_free(document);
    return is_own;
}

/* ---- Files of other tools ---------------------------------------------------------------- */

static void keep_notes(const ty_import_report *report, verdict *v)
{
    v->format = report->format;
    for (uint32_t i = 0; i < report->note_count; i++)
        ty_text_addf(&v->notes, "%s\n", report->notes[i]);
}

static ty_status as_workload(const char *path, verdict *v, ty_error *error)
{
    ty_import_report report = {0};
    ty_workload *workload = NULL;
    ty_error question = {0};
    ty_status status = ty_workload_import(path, NULL, &workload, &report, &question);

    if (status == TY_OK) {
        keep_notes(&report, v);
    } else {
        /* A file that only lacks one option is good; the note names the option. */
        const ty_import_options answered = {.sequence = 1};
        ty_import_report_clear(&report);
        report = (ty_import_report){0};
        if (ty_workload_import(path, &answered, &workload, &report, NULL) == TY_OK) {
            v->format = report.format;
            ty_text_addf(&v->notes, "%s\n", question.message);
            status = TY_OK;
        } else {
            status = ty_fail(error, status, "%s", question.message);
        }
    }
    ty_import_report_clear(&report);
    ty_workload_free(workload);
    return status;
}

/* Reads a file for plan --config; a note says if it has no model. */
static ty_status as_training_config(const char *path, verdict *v, ty_error *error)
{
    static const char any_model[] = "gpt2";
    ty_training_config config = {0};
    ty_error question = {0};
    ty_status status = ty_training_config_load(path, NULL, 0, &config, &question);

    if (status != TY_OK) {
        status = ty_training_config_load(path, any_model, 0, &config, error);
        if (status == TY_OK)
            ty_text_addf(&v->notes, "%s\n", question.message);
    }
    if (status == TY_OK) { /* freed with the configuration */
        snprintf(v->own, sizeof v->own, "%s", config.format);
        v->format = v->own;
    }
    for (uint32_t i = 0; i < config.report.note_count; i++)
        ty_text_addf(&v->notes, "%s\n", config.report.notes[i]);
    ty_training_config_clear(&config);
    return status;
}

static ty_status as_cluster(const char *path, const cli_options *options, verdict *v,
                            ty_error *error)
{
    ty_cluster_import_options how = {.host = options->host, .device = options->device};
    ty_import_notes notes = {0};
    ty_cluster *cluster = NULL;
    ty_status status = ty_cluster_import(path, &how, &cluster, &notes, error);

    if (status == TY_OK) {
        v->format = notes.format;
        ty_text_add(&v->notes, notes.text);
    }
    ty_import_notes_clear(&notes);
    ty_cluster_free(cluster);
    return status;
}

static ty_status as_trace(const char *path, verdict *v, ty_error *error)
{
    ty_import_report report = {0};
    ty_profile *profile = NULL;
    ty_status status = ty_profile_import_kineto(path, &profile, &report, error);

    if (status == TY_OK)
        keep_notes(&report, v);
    ty_import_report_clear(&report);
    ty_profile_free(profile);
    return status;
}

/* Finds a reader for a file. If none can read it, the error is that of the reader that knows the
 * format; the others only say that it is not theirs. */
static void check_foreign(const char *path, const cli_options *options, verdict *v)
{
    ty_error workload = {0}, cluster = {0}, other = {0};
    verdict own = {0};

    /* Megatron-LM's arguments serve both: a model for --workload, and more of them for --config. */
    if (as_workload(path, v, &workload) == TY_OK) {
        if (strcmp(v->format, "Megatron-LM arguments") == 0) {
            ty_text_clear(&v->notes);
            if (as_training_config(path, v, &other) != TY_OK)
                ty_text_addf(&v->notes, "%s\n", other.message);
        }
        return;
    }
    if (as_training_config(path, v, &other) == TY_OK ||
        as_cluster(path, options, v, &cluster) == TY_OK || as_trace(path, v, &other) == TY_OK)
        return;
    if (check_records(path, &own) == TY_OK)
        v->format = "published measurements";
    else if (check_collective_log(path, &own) == TY_OK)
        v->format = "nccl-tests log";
    else
        v->error = strstr(cluster.message, "none of the formats") == NULL ? cluster : workload;
}

/* ---- The command ------------------------------------------------------------------------- */

static void write_text(const char *path, const verdict *v, ty_text *text)
{
    if (v->error.status != TY_OK) {
        ty_text_addf(text, "%s: bad: %s\n", path, v->error.message);
        return;
    }
    ty_text_addf(text, "%s: %s, good\n", path, v->format);
    for (const char *line = v->notes.data; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        ty_text_addf(text, "    %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void write_json(const char *path, const verdict *v, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "file", path);
    ty_json_put_bool(w, "is_good", v->error.status == TY_OK);
    if (v->format != NULL)
        ty_json_put_string(w, "format", v->format);
    if (v->error.status != TY_OK)
        ty_json_put_string(w, "message", v->error.message);
    ty_json_open(w, "notes", '[');
    for (const char *line = v->notes.data; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        char note[600];
        snprintf(note, sizeof note, "%.*s", (int)length, line);
        ty_json_put_string(w, NULL, note);
        line += length + (line[length] == '\n');
    }
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

exit_code cmd_check(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_text text = {0};
    ty_json_writer w = list_open(options->json, "trainyard.check/1", "files", &text);

    for (int i = 0; i < options->file_count; i++) {
        verdict v = {0};
        const char *path = options->files[i];
        struct stat found;
        /* Each reader starts at the beginning, so pipes cannot be checked. */
        if (!ty_file_exists(path))
            ty_fail(&v.error, TY_EIO, "no such file");
        else if (((stat(path, &found) == 0 && S_ISDIR(found.st_mode)) ||
                  ty_file_check_plain(path, &v.error) == TY_OK) &&
                 !check_own(path, &v))
            check_foreign(path, options, &v);
        if (v.error.status != TY_OK)
            code = EXIT_BAD_INPUT;
        if (options->json)
            write_json(path, &v, &w);
        else
            write_text(path, &v, &text);
        ty_text_clear(&v.notes);
    }
    list_close(options->json, &w);
    return print_text(&text) == EXIT_DONE ? code : EXIT_FAILED;
}
