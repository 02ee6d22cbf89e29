/* Converts published names to catalogue names, and records to questions. */
#include "row_question.h"

#include "ty_planner.h"
#include "ty_study.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* No source has more; each costs memory. */
#define MOST_DEVICES 16384
/* A step is compute, proportional to the scale, plus the rest: each round reduces the error to the
 * rest's share. */
#define MOST_ROUNDS 200
#define SCALE_TOLERANCE 1e-6
#define SMALLEST_SCALE 1e-4

/* ---- Names ----------------------------------------------------------------------------------- */

ty_status ty_names_open(ty_json_document **out, ty_error *error)
{
    char *path = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_data_path("study/catalogue", "published.json", &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, out, error), status, cleanup);
    status = ty_json_schema(ty_json_root(*out), "trainyard.published/1", error);

cleanup:
    ty_free(path);
    return status;
}

static bool matches(const ty_json *row, const ty_record *record)
{
    const ty_json *patterns;

    if (ty_json_object(row, "of", &patterns, NULL) != TY_OK)
        return false;
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        const ty_json *pattern = ty_json_at(patterns, i);
        const char *text = ""; /* matches unstated values */
        if (ty_json_as_string(pattern, &text, NULL) != TY_OK)
            text = "";
        if (fnmatch(text, ty_find_text(record->json, ty_json_key(pattern)), 0) != 0)
            return false;
    }
    return true;
}

/* The first matching row from an index on; moves the index after it. */
static const ty_json *next_row(const ty_json *names, const char *list, const ty_record *record,
                               size_t *index)
{
    const ty_json *rows;

    if (ty_json_array(names, list, 0, UINT16_MAX, &rows, NULL) != TY_OK)
        return NULL;
    while (*index < ty_json_size(rows))
        if (matches(ty_json_at(rows, (*index)++), record))
            return ty_json_at(rows, *index - 1);
    return NULL;
}

const ty_json *ty_names_row(const ty_json *names, const char *list, const ty_record *record)
{
    size_t index = 0;
    return next_row(names, list, record, &index);
}

/* The catalogue's name of a record's hosts; several hosts must be used in full, with the named
 * network. "": unknown. */
static const char *host_of(const ty_json *names, const ty_record *record, uint32_t hosts,
                           uint32_t per_host)
{
    const ty_json *row;
    size_t index = 0;

    while ((row = next_row(names, "hosts", record, &index)) != NULL) {
        const double devices = ty_find_number(row, "per_host", 0);
        const char *network = ty_find_text(row, "network");
        if (hosts > 1 && network[0] != '\0' && fnmatch(network, record->network, 0) != 0)
            continue;
        if (fabs(devices - per_host) < 0.5 || (hosts == 1 && devices > per_host))
            return ty_find_text(row, "host");
    }
    return "";
}

bool ty_names_cluster(const ty_json *names, const ty_record *record,
                      char line[TY_ROW_QUESTION_SIZE], char reason[TY_SKIP_REASON_SIZE])
{
    const ty_json *gpu = ty_names_row(names, "gpus", record), *network;
    uint32_t gpus, per_host, hosts;
    const char *host;

    if (!(record->gpus >= 1 && record->gpus <= MOST_DEVICES)) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "number of devices not stated, or above %d",
                 MOST_DEVICES);
        return false;
    }
    if (gpu == NULL) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "device not stated, or not in the catalogue");
        return false;
    }
    gpus = per_host = (uint32_t)record->gpus;
    if (record->gpus_per_node >= 1 && record->gpus_per_node < gpus)
        per_host = (uint32_t)record->gpus_per_node;
    hosts = (gpus + per_host - 1) / per_host;
    host = host_of(names, record, hosts, per_host);
    if (host[0] != '\0') {
        snprintf(line, TY_ROW_QUESTION_SIZE, "%ux %s", hosts, host);
        return true;
    }
    network = ty_names_row(names, "networks", record);
    if (hosts > 1 && network == NULL) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "network between nodes not stated, or not known");
        return false;
    }
    snprintf(line, TY_ROW_QUESTION_SIZE, "leaf:1 host:%u gpu:%u @%s %s %s", hosts, per_host,
             ty_find_text(gpu, "device"), ty_find_text(gpu, "inside"),
             hosts > 1 ? ty_find_text(network, "link") : "eth10"); /* not used inside a host */
    return true;
}

/* ---- Questions ------------------------------------------------------------------------------- */

void ty_row_question_add(char out[TY_ROW_QUESTION_SIZE], const char *format, ...)
{
    const size_t length = strlen(out);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(out + length, TY_ROW_QUESTION_SIZE - length, format, arguments);
    va_end(arguments);
}

void ty_row_question_set_scale(ty_row_question *asked, const char *stack, double scale)
{
    char number[32];

    ty_format_number(scale, number);
    snprintf(asked->stack, sizeof asked->stack, "%s", stack);
    if (scale < 1 || scale > 1)
        ty_row_question_add(asked->stack, " compute_scale=%s", number);
}

ty_status ty_row_question_step(const ty_row_question *asked, const ty_record *record,
                               double *step_s, bool *is_fitted, ty_error *error)
{
    const ty_question question = {.workload = asked->workload,
                                  .cluster = asked->cluster,
                                  .stack = asked->stack,
                                  .precision = asked->precision,
                                  .fix = asked->fix,
                                  .global_batch = asked->global_batch,
                                  .no_interval = true,
                                  .seed = 1};
    ty_question_inputs inputs = {0};
    char source[64];
    ty_plan *plan = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_question_open(&question, NULL, &inputs, error), status, cleanup);
    TY_CHECK(ty_question_plan(&question, &inputs, NULL, &plan, error), status, cleanup);
    *step_s = plan->prediction.step_time_s;
    snprintf(source, sizeof source, "%.*s", (int)strcspn(record->id, "/"), record->id);
    for (char *c = source; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    *is_fitted = ty_stack_is_fitted(inputs.stack, source, record->model);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&inputs);
    return status;
}

ty_status ty_row_question_calibrate(ty_row_question *asked, const ty_record *record,
                                    const char *stack, double measured_s, double *out,
                                    ty_error *error)
{
    double scale = 1, step_s;
    bool is_fitted;

    for (int round = 0; round < MOST_ROUNDS && scale > SMALLEST_SCALE; round++) {
        ty_row_question_set_scale(asked, stack, scale);
        TY_TRY(ty_row_question_step(asked, record, &step_s, &is_fitted, error));
        if (fabs(step_s / measured_s - 1) < SCALE_TOLERANCE) {
            *out = scale;
            return TY_OK;
        }
        scale *= measured_s / step_s;
    }
    return ty_fail(error, TY_EINFEASIBLE, "no scale makes a step take %g s", measured_s);
}

/* ---- Answers --------------------------------------------------------------------------------- */

ty_status ty_verdict_command(const char *const *words, ty_verdict *out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    ty_json_open(&w, NULL, '[');
    for (; *words != NULL; words++)
        ty_json_put_string(&w, NULL, *words);
    ty_json_close(&w, ']');
    out->is_predicted = true;
    return ty_text_take(&text, &out->command, error);
}

ty_status ty_row_question_answer(const ty_row_question *asked, double step_s, ty_verdict *out,
                                 ty_error *error)
{
    const char *const options[][2] = {{"--workload", asked->workload},
                                      {"--cluster", asked->cluster},
                                      {"--stack", asked->stack},
                                      {"--precision", asked->precision},
                                      {"--fix", asked->fix}};
    const char *words[16] = {"plan"};
    size_t at = 1;
    char batch[16];

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i][1][0] != '\0') {
            words[at++] = options[i][0];
            words[at++] = options[i][1];
        }
    snprintf(batch, sizeof batch, "%u", asked->global_batch);
    words[at++] = "--global-batch";
    words[at++] = batch;
    words[at++] = "--no-simulate";
    words[at] = "--json";
    out->answer = step_s;
    out->answer_at = TY_STEP_TIME_AT;
    return ty_verdict_command(words, out, error);
}
