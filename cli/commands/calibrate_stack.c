/* trainyard calibrate --stack: constants of a stack from step times, one figure, a profiler's trace
 * or logs of nccl-tests. */
#include "cli.h"
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A figure that is the value of an option. */
typedef struct figure {
    const char *option, *text;
    ty_step_unit unit;
} figure;
enum { FIGURES = 3 };

static void figures_of(const cli_options *options, figure out[FIGURES])
{
    out[0] = (figure){"--mfu", options->mfu, TY_STEP_MFU};
    out[1] = (figure){"--tokens-per-s", options->tokens_per_s, TY_STEP_TOKENS};
    out[2] = (figure){"--step-time", options->step_time, TY_STEP_SECONDS};
}

bool calibrates_stack(const cli_options *options)
{
    return options->stack != NULL || options->mfu != NULL || options->tokens_per_s != NULL ||
           options->step_time != NULL || options->constants != NULL;
}

/* Kinds of files; each can determine other constants. */
typedef enum file_kind { STEPS, TRACE, LOG, FILE_KINDS } file_kind;
static const char *const kind_names[FILE_KINDS] = {"table of steps", "trace", "log of nccl-tests"};

static file_kind kind_of(const char *path)
{
    if (ty_is_step_rows(path))
        return STEPS;
    return ty_is_profiler_trace(path) ? TRACE : LOG;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Name of a stack in a file in another folder: its name if the catalogue has it, else its full
 * path. */
static ty_status like_of(const char *stack, char **out, ty_error *error)
{
    char **names = NULL, *path;
    uint32_t count = 0, i = 0;
    ty_status status;

    if (strcmp(stack, "-") == 0 || (strchr(stack, '=') != NULL && !ty_file_exists(stack)))
        return ty_fail(
            error, TY_EINVAL,
            "--stack: found '%.100s', expected a name or a file: what is fitted is written "
            "as it differs from that",
            stack);
    TY_CHECK(ty_stack_names(&names, &count, error), status, done);
    while (i < count && strcmp(names[i], stack) != 0)
        i++;
    path = i < count ? NULL : realpath(stack, NULL);
    if ((*out = ty_strdup(path != NULL ? path : stack)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");
    free(path);
done:
    ty_names_free(names, count);
    return status;
}

/* Name of the file to write, else of the stack that it inherits from. */
static void name_of(const char *output, const char *stack, char out[128])
{
    const bool has_file = output != NULL && strcmp(output, "-") != 0;
    const char *whole = has_file ? output : stack, *slash = strrchr(whole, '/');
    const char *name = slash != NULL ? slash + 1 : whole, *end = strrchr(name, '.');
    size_t length = end != NULL && end > name && strcmp(end, ".json") == 0 ? (size_t)(end - name)
                                                                           : strlen(name);

    if (length > 100)
        length = 100;
    snprintf(out, 128, "%.*s%s", (int)length, name, has_file ? "" : "-calibrated");
    for (char *c = out; *c != '\0'; c++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *c) == NULL)
            *c = '-';
}

/* ---- Constants and rows ---------------------------------------------------------------------- */

/* "a,b" @param names [out] into `text`, NULL at the end */
static ty_status split(char *text, const char *names[TY_FIT_MOST_CONSTANTS + 1], ty_error *error)
{
    uint32_t count = 0;
    char *rest = NULL;

    for (char *name = strtok_r(text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (count == TY_FIT_MOST_CONSTANTS)
            return ty_fail(error, TY_EINVAL, "--constants: expected at most %d",
                           TY_FIT_MOST_CONSTANTS);
        names[count++] = name;
    }
    names[count] = NULL;
    if (count == 0)
        return ty_fail(error, TY_EINVAL,
                       "--constants: found none, expected names as in "
                       "product_share,network_share");
    return TY_OK;
}

static const char *const only_scale[] = {"compute_scale", NULL};

/* Fits the constants of --constants. Else it fits one per row of a trace, one for few rows, or
 * those that the rows determine. */
static ty_status fit_to(const cli_options *options, const ty_watch *watch, const char *what,
                        file_kind kind, ty_fit *fit, ty_error *error)
{
    const char *traced[TY_TRACED_KIND_COUNT];
    const char *names[TY_FIT_MOST_CONSTANTS + 1], *const *asked = NULL;
    char *text = NULL;
    uint32_t count;
    ty_error detail = {0};
    ty_status status = TY_OK;

    (void)ty_fit_rows(fit, &count);
    if (options->constants != NULL) {
        TY_TRY(ty_check_memory((text = ty_strdup(options->constants)) != NULL, error));
        TY_CHECK(split(text, names, error), status, done);
        asked = names;
    } else if (kind == TRACE) {
        ty_fit_trace_constants(fit, traced);
        ty_fit_set_prior(fit, 0);
        asked = traced;
    } else if (count < TY_FIT_LEAST_ROWS) {
        asked = only_scale;
        if (count > 1 && !options->quiet)
            print_stderr(
                "%s: %u rows tell compute_scale, how much longer all takes; three and more tell "
                "what does",
                what, count);
    }
    for (size_t i = 0; kind != TRACE && asked != NULL && asked[i] != NULL; i++)
        if (count < TY_FIT_LEAST_ROWS && strcmp(asked[i], only_scale[0]) != 0) {
            status = ty_fail(error, TY_EPARSE,
                             "%s: found %u row%s, expected %d and more for %s: fewer tell "
                             "compute_scale alone",
                             what, count, count == 1 ? "" : "s", TY_FIT_LEAST_ROWS, asked[i]);
            goto done;
        }
    if (count == 1)
        ty_fit_set_prior(fit, 0); /* a single figure needs no prior */
    if (asked != NULL)
        status = ty_fit_solve(fit, asked, &detail);
    else
        status = ty_fit_choose(
            fit, kind == LOG ? ty_fit_collective_constants : ty_fit_step_constants, watch, &detail);
    if (status != TY_OK)
        status = ty_fail(error, status, "%s: %s", options->constants != NULL ? "--constants" : what,
                         detail.message);
    else if (kind != TRACE && asked != NULL && count >= TY_FIT_LEAST_ROWS)
        status = ty_fit_leave_out(fit, error);
done:
    ty_free(text);
    return status;
}

/* Checks that a single figure is met; computation alone may be unable to. */
static ty_status check_met(const ty_fit *fit, file_kind kind, const char *place, ty_error *error)
{
    uint32_t count;
    const ty_fit_row *row = ty_fit_rows(fit, &count);
    char measured[32], left[32];

    if (count != 1 || kind != STEPS || fabs(row->after_s / row->measured_s - 1) < 0.01)
        return TY_OK;
    ty_format_seconds(row->measured_s, measured);
    ty_format_seconds(row->after_s, left);
    return ty_fail(
        error, TY_EPARSE,
        "%s: a step of %s, but by stack %s %s go to hosts and the network however fast "
        "layers are; expected a longer step, or three rows and more that tell what these "
        "take",
        place, measured, ty_fit_stack(fit)->name, left);
}

static ty_status add_figure(const cli_options *options, const ty_question *question, ty_fit *fit,
                            const char **place, ty_error *error)
{
    figure figures[FIGURES];
    ty_error detail = {0};
    ty_step_row row = {0};
    uint32_t found = 0;
    ty_status status = TY_OK;

    figures_of(options, figures);
    for (int f = 0; f < FIGURES; f++) {
        if (figures[f].text == NULL)
            continue;
        if (found++ > 0)
            return ty_fail(error, TY_EINVAL, "found %s and %s, expected one figure", *place,
                           figures[f].option);
        *place = figures[f].option;
        row.unit = figures[f].unit;
        if (ty_step_value_parse(row.unit, figures[f].text, &row.value, &detail) != TY_OK)
            return ty_fail(error, TY_EPARSE, "%s: %s", figures[f].option, detail.message);
    }
    TY_TRY(ty_check_memory((row.place = ty_strdup(*place)) != NULL, error));
    status = ty_fit_add_row(fit, question, &row, error);
    ty_free(row.place);
    return status;
}

static ty_status add_rows(const char *path, const ty_question *question, ty_fit *fit,
                          ty_error *error)
{
    ty_step_rows rows = {0};
    ty_status status = ty_step_rows_load(path, &rows, error);

    for (uint32_t i = 0; status == TY_OK && i < rows.count; i++)
        status = ty_fit_add_row(fit, question, &rows.rows[i], error);
    ty_step_rows_clear(&rows);
    return status;
}

static ty_status add_log(const cli_options *options, const char *path, const ty_cluster *cluster,
                         ty_fit *fit, ty_error *error)
{
    ty_collective_kind kind;
    ty_collective_log *log = NULL;
    ty_error detail = {0};
    ty_status status;

    TY_TRY(collective_from(options, &kind, error));
    TY_TRY(ty_collective_log_load(path, kind, &log, error));
    status = ty_fit_add_log(fit, log, cluster, &detail);
    if (status != TY_OK)
        status = ty_fail(error, status == TY_EINVAL ? TY_EPARSE : status, "%s: %s", path,
                         detail.message);
    ty_collective_log_free(log);
    return status;
}

/* Adds a trace of the layout in the options. */
static ty_status add_trace(const cli_options *options, const char *path,
                           const ty_question *question, ty_fit *fit, ty_error *error)
{
    ty_traced_steps steps;
    ty_error detail = {0};
    char step[32], talk[32];
    ty_status status;

    TY_TRY(ty_traced_steps_load(path, &steps, error));
    status = ty_fit_add_trace(fit, question, &steps, path, &detail);
    if (status != TY_OK)
        return ty_fail(error, status == TY_EINVAL || status == TY_EINFEASIBLE ? TY_EPARSE : status,
                       "%s: %s", path, detail.message);
    ty_format_seconds(steps.step_s, step);
    ty_format_seconds(steps.seconds[TY_TRACED_COLLECTIVES], talk);
    if (!options->quiet)
        print_stderr(
            "%s: %u step%s of %s each; %s of collectives are left alone, which wait for other "
            "ranks: a log of nccl-tests tells the network",
            path, steps.steps, steps.steps == 1 ? "" : "s", step, talk);
    return TY_OK;
}

/* Adds files. All must be of one kind, since each kind determines other constants. */
static ty_status add_files(const cli_options *options, const ty_question *question,
                           ty_cluster **cluster, ty_fit *fit, file_kind *kind, ty_error *error)
{
    *kind = kind_of(options->files[0]);
    if (*kind == LOG && options->cluster == NULL)
        return ty_fail(error, TY_EINVAL, "--cluster is needed: whose collectives are in the log");
    if (*kind == LOG)
        TY_TRY(ty_cluster_open(options->cluster, NULL, cluster, error));
    for (int i = 0; i < options->file_count; i++) {
        const char *path = options->files[i];
        const file_kind found = kind_of(path);
        if (found != *kind || (found == TRACE && i > 0))
            return ty_fail(
                error, TY_EPARSE,
                "%s: found a %s beside a %s, expected one kind at a time, and one trace: "
                "the second with --stack of what the first gave",
                path, kind_names[found], kind_names[*kind]);
        if (found == STEPS)
            TY_TRY(add_rows(path, question, fit, error));
        else if (found == TRACE)
            TY_TRY(add_trace(options, path, question, fit, error));
        else
            TY_TRY(add_log(options, path, *cluster, fit, error));
    }
    return TY_OK;
}

/* ---- The command ----------------------------------------------------------------------------- */

exit_code calibrate_stack(const cli_options *options)
{
    const ty_watch watch = watch_from(options);
    const char *place = NULL;
    file_kind kind = STEPS;
    char name[128], date[16] = "1970-01-01", *like = NULL;
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    ty_question question;
    ty_stack *stack = NULL;
    ty_cluster *cluster = NULL;
    ty_fit *fit = NULL;
    figure figures[FIGURES];
    ty_text data = {0}, text = {0}, written = {0};
    ty_json_writer stack_writer = ty_json_writer_on(&written);
    ty_fit_origin origin;
    const time_t now = time(NULL);
    struct tm day;
    ty_status status = TY_OK;

    if (options->stack == NULL)
        return report_usage("calibrate", "--stack is needed: whose constants are fitted");
    if (options->file_count > 0 &&
        (options->mfu != NULL || options->tokens_per_s != NULL || options->step_time != NULL))
        return report_usage("calibrate", "expected files or a figure, found both");
    if (options->file_count == 0 && options->mfu == NULL && options->tokens_per_s == NULL &&
        options->step_time == NULL)
        return report_usage(
            "calibrate", "--stack needs rows, a trace, logs, --mfu, --tokens-per-s or --step-time");
    interrupts_catch();
    TY_CHECK(question_from(options, 0, &question, &error), status, failed);
    TY_CHECK(like_of(options->stack, &like, &error), status, failed);
    TY_CHECK(ty_stack_open(options->stack, &stack, &error), status, failed);
    TY_CHECK(ty_fit_new(stack, &fit, &error), status, failed);
    ty_fit_set_by_device(fit, true);
    if (options->file_count > 0)
        TY_CHECK(add_files(options, &question, &cluster, fit, &kind, &error), status, failed);
    else
        TY_CHECK(add_figure(options, &question, fit, &place, &error), status, failed);
    if (place == NULL)
        place = options->files[0];
    TY_CHECK(fit_to(options, &watch, place, kind, fit, &error), status, failed);
    TY_CHECK(check_met(fit, kind, place, &error), status, failed);

    if (gmtime_r(&now, &day) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d", &day);
    name_of(options->output, stack->name, name);
    for (int i = 0; i < options->file_count; i++) /* "rows.csv, more.csv" or "--mfu 0.41" */
        ty_text_addf(&data, "%s%s", i > 0 ? ", " : "", options->files[i]);
    figures_of(options, figures);
    for (int i = 0; i < FIGURES; i++)
        if (figures[i].text != NULL)
            ty_text_addf(&data, "%s %s", figures[i].option, figures[i].text);
    TY_CHECK(ty_text_check(&data, &error), status, failed);
    origin = (ty_fit_origin){.name = name, .like = like, .data = data.data, .date = date};
    ty_fit_stack_to_json(fit, &origin, &stack_writer, NULL);
    ty_text_add(&written, "\n");
    if (options->output != NULL && ty_file_write_text(options->output, &written, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_json_writer w = ty_json_writer_on(&text);
        TY_CHECK(ty_fit_to_json(fit, &origin, &w, &error), status, failed);
        ty_text_add(&text, "\n");
    } else if (options->output == NULL || strcmp(options->output, "-") != 0) {
        TY_CHECK(ty_fit_to_text(fit, &text, &error), status, failed);
        if (options->output != NULL)
            ty_text_addf(&text, "written     %s: for --stack\n", options->output);
    }
    code = print_text(&text);

failed:
    if (status != TY_OK)
        code = report_bad_input(&error);
cleanup:
    ty_text_clear(&text);
    ty_text_clear(&data);
    ty_text_clear(&written);
    ty_fit_free(fit);
    ty_cluster_free(cluster);
    ty_stack_free(stack);
    ty_free(like);
    return code;
}
