/* trainyard report: one HTML page from files, which it distinguishes by their schema. */
#include "cli.h"
#include "ty_phases.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_FILES 64  /* on the command line */
#define MOST_PLANS 2   /* the plan of the report, and a second one */
#define MOST_DERIVED 4 /* documents derived from the plan, or one of its phases */

typedef struct report_files {
    ty_json_document *parsed[MOST_FILES + MOST_DERIVED];
    ty_report_document documents[MOST_FILES + MOST_DERIVED];
    uint32_t count;
    const char *plan, *other, *run, *simulation, *estimate; /* paths; NULL: not given */
    ty_json_document *other_score;
} report_files;

static ty_status check_schema(const char *path, const char *schema, ty_error *error)
{
    ty_text known = {0};
    ty_status status;

    for (const char *const *s = ty_report_schemas; *s != NULL; s++) {
        if (strcmp(schema, *s) == 0) {
            ty_text_clear(&known);
            return TY_OK;
        }
        ty_text_addf(&known, "%s%s", s == ty_report_schemas ? "" : ", ", *s);
    }
    status = ty_fail(error, TY_EPARSE, "%s:/schema: found \"%.60s\", expected one of %s", path,
                     schema, known.data != NULL ? known.data : "");
    ty_text_clear(&known);
    return status;
}

/* Accepts two plans, and one file of each kind that belongs to the first. */
static ty_status take_role(report_files *files, const char *schema, const char *path,
                           ty_error *error)
{
    const struct {
        const char *schema;
        const char **path;
    } roles[] = {{"trainyard.plan/1", &files->plan},
                 {"trainyard.run/2", &files->run},
                 {"trainyard.simulation/2", &files->simulation},
                 {"trainyard.estimate/1", &files->estimate}};

    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(schema, roles[i].schema) != 0)
            continue;
        if (i == 0 && files->plan != NULL && files->other == NULL) {
            files->other = path;
            continue;
        }
        if (i == 0 && files->other != NULL)
            return ty_fail(error, TY_EINVAL,
                           "%s, %s and %s are plans; a report lays at most %d side by side",
                           files->plan, files->other, path, MOST_PLANS);
        if (*roles[i].path != NULL)
            return ty_fail(error, TY_EINVAL, "%s and %s are both %s; a report is of one",
                           *roles[i].path, path, schema);
        *roles[i].path = path;
    }
    return TY_OK;
}

static ty_status read_file(report_files *files, const char *path, ty_error *error)
{
    ty_report_document *out = &files->documents[files->count];
    char *bytes = NULL;
    size_t length;
    ty_status status = TY_OK;

    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, done);
    TY_CHECK(ty_json_parse(bytes, length, path, &files->parsed[files->count], error), status, done);
    *out = (ty_report_document){.path = path,
                                .root = ty_json_root(files->parsed[files->count]),
                                .digest = ty_digest_of(bytes, length)};
    files->count++;
    TY_CHECK(ty_json_string(out->root, "schema", &out->schema, error), status, done);
    out->schema = ty_json_schema_now(out->schema);
    TY_CHECK(check_schema(path, out->schema, error), status, done);
    TY_CHECK(take_role(files, out->schema, path, error), status, done);
done:
    ty_free(bytes);
    return status;
}

/* Reads the timeline of a simulate or estimate document. */
static ty_status read_timeline(const report_files *files, const char *path, const plan_results *f,
                               ty_timeline **out, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *object;
    ty_timeline *timeline = NULL;

    for (uint32_t i = 0; path != NULL && i < files->count; i++) {
        if (files->documents[i].path != path)
            continue;
        TY_CHECK(ty_json_object(files->documents[i].root, "timeline", &object, error), status,
                 cleanup);
        TY_CHECK(ty_timeline_from_json(object, &timeline, error), status, cleanup);
        ty_timeline_sort(timeline);
        TY_CHECK(ty_timeline_check(f->inputs.plan, f->inputs.program, timeline, path, error),
                 status, cleanup);
        *out = timeline;
        timeline = NULL; /* ownership passed on */
        break;
    }
cleanup:
    ty_timeline_free(timeline);
    return status;
}

/* @param f of the plan, and of the second one */
static ty_status files_read(const cli_options *options, report_files *files,
                            plan_results f[MOST_PLANS], ty_error *error)
{
    const ty_watch watch = watch_from(options);
    const char *of_a_plan;

    for (int i = 0; i < options->file_count; i++)
        TY_TRY(read_file(files, options->files[i], error));
    of_a_plan = files->run != NULL          ? files->run
                : files->simulation != NULL ? files->simulation
                                            : files->estimate;
    if (files->plan == NULL && of_a_plan != NULL)
        return ty_fail(error, TY_EINVAL, "%s says nothing without its plan: name both", of_a_plan);
    if (files->plan == NULL)
        return TY_OK;
    TY_TRY(plan_results_read(files->plan, files->run, &watch, &f[0], error));
    TY_TRY(read_timeline(files, files->simulation, &f[0], &f[0].simulated, error));
    TY_TRY(read_timeline(files, files->estimate, &f[0], &f[0].estimated, error));
    if (files->other != NULL)
        TY_TRY(plan_results_read(files->other, NULL, &watch, &f[1], error));
    return TY_OK;
}

static bool is_given(const report_files *files, const char *schema)
{
    for (uint32_t d = 0; d < files->count; d++)
        if (strcmp(files->documents[d].schema, schema) == 0)
            return true;
    return false;
}

/* Derives documents from the plan that no file provides. */
static ty_status derive_documents(const cli_options *options, report_files *files, plan_results *f,
                                  ty_error *error)
{
    static const char *const schemas[MOST_DERIVED] = {"trainyard.simulation/2", "trainyard.score/1",
                                                      "trainyard.compression/1",
                                                      "trainyard.launch/1"};
    ty_status status = TY_OK;

    for (size_t i = 0; i < MOST_DERIVED; i++) {
        ty_json_document **parsed = &files->parsed[files->count];
        if (is_given(files, schemas[i]))
            continue;
        if (i == 0)
            status = ty_plan_memory_document(
                &f->inputs, f->simulated != NULL ? f->simulated : f->estimated, parsed, error);
        else if (i == 1)
            status = ty_plan_score_document(&f->inputs, options->task, parsed, error);
        else if (i == 2)
            status = ty_plan_compression_document(&f->inputs, parsed, error);
        else
            status = launch_document(options, files->plan, &f->inputs, parsed, error);
        if (status != TY_OK)
            break;
        if (*parsed == NULL)
            continue;
        files->documents[files->count++] = (ty_report_document){.path = files->plan,
                                                                .schema = schemas[i],
                                                                .root = ty_json_root(*parsed),
                                                                .is_derived = true};
    }
    return status;
}

/* Derives the score of phases if no file has it. */
static ty_status derive_phases(const cli_options *options, report_files *files, ty_error *error)
{
    static const char schema[] = "trainyard.phased-score/1";
    const char *path = NULL;
    ty_phased_plan *plan = NULL;
    ty_phased_score score = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_status status = TY_OK;

    for (uint32_t d = 0; d < files->count && path == NULL; d++)
        if (strcmp(files->documents[d].schema, "trainyard.phased-plan/1") == 0)
            path = files->documents[d].path;
    if (path == NULL || is_given(files, schema))
        return TY_OK;
    TY_CHECK(ty_phased_plan_load(path, &plan, error), status, done);
    TY_CHECK(ty_phased_plan_score(plan, options->task, NULL, &score, error), status, done);
    ty_phased_score_to_json(&score, &w);
    TY_CHECK(ty_text_check(&text, error), status, done);
    TY_CHECK(ty_json_parse(text.data, text.length, schema, &files->parsed[files->count], error),
             status, done);
    files->documents[files->count] =
        (ty_report_document){.path = path,
                             .schema = schema,
                             .root = ty_json_root(files->parsed[files->count]),
                             .is_derived = true};
    files->count++;
done:
    ty_text_clear(&text);
    ty_phased_score_clear(&score);
    ty_phased_plan_free(plan);
    return status;
}

static ty_status make_all(const cli_options *options, report_files *files,
                          plan_results f[MOST_PLANS], ty_error *error)
{
    if (files->plan == NULL)
        return derive_phases(options, files, error);
    TY_TRY(plan_results_make(&f[0], error));
    TY_TRY(derive_documents(options, files, &f[0], error));
    if (files->other == NULL)
        return TY_OK;
    if (!(f[1].inputs.plan->simulation.step_time_s > 0))
        TY_TRY(plan_results_make(&f[1], error));
    TY_TRY(ty_plan_score_document(&f[1].inputs, options->task, &files->other_score, error));
    return TY_OK;
}

static ty_status write_page(const cli_options *options, const report_files *files,
                            const plan_results f[MOST_PLANS], ty_error *error)
{
    ty_status status = TY_OK;
    ty_text html = {0}, command = {0};
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm day;
    const ty_report_other other = {
        .path = files->other,
        .plan = f[1].inputs.plan,
        .program = f[1].inputs.program,
        .simulated = f[1].simulated,
        .cluster = f[1].inputs.cluster,
        .score = files->other_score != NULL ? ty_json_root(files->other_score) : NULL};
    ty_report_input input = {.title = options->title,
                             .plan = f[0].inputs.plan,
                             .program = f[0].inputs.program,
                             .estimated = f[0].estimated,
                             .simulated = f[0].simulated,
                             .run = f[0].run,
                             .comparison = f[0].comparison,
                             .cluster = f[0].inputs.cluster,
                             .costs = f[0].inputs.costs,
                             .documents = files->documents,
                             .document_count = files->count,
                             .other = files->other != NULL ? &other : NULL,
                             .date = date,
                             .version = TY_VERSION};

    if (gmtime_r(&now, &day) != NULL) /* as people write it: "2026-11-22 22:51 UTC" */
        strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &day);
    ty_text_add(&command, "trainyard report");
    for (int i = 0; i < options->file_count; i++)
        ty_text_addf(&command, " %s", options->files[i]);
    ty_text_addf(&command, " -o %s (version %s)", options->output, TY_VERSION);
    TY_CHECK(ty_text_check(&command, error), status, done);
    input.command = command.data;
    TY_CHECK(ty_report_html(&input, &html, error), status, done);
    status = ty_file_write_text(options->output, &html, error);
done:
    ty_text_clear(&command);
    ty_text_clear(&html);
    return status;
}

exit_code cmd_report(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    plan_results f[MOST_PLANS] = {0};
    report_files files = {0};

    if (options->output == NULL)
        return report_usage("report", "needs -o FILE");
    if (files_read(options, &files, f, &error) != TY_OK ||
        make_all(options, &files, f, &error) != TY_OK)
        code = report_bad_input(&error);
    else if (write_page(options, &files, f, &error) != TY_OK)
        code = report_failure(&error);
    for (uint32_t i = 0; i < files.count; i++)
        ty_json_free(files.parsed[i]);
    ty_json_free(files.other_score);
    for (int i = 0; i < MOST_PLANS; i++)
        plan_results_clear(&f[i]);
    return code;
}
