/* trainyard plan, trainyard memory: questions to the planner. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define USUAL_TOP 5

/* RFC 4180: quotes around every text. */
static void csv_text(ty_text *csv, const char *text)
{
    ty_text_add(csv, "\"");
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"')
            ty_text_add(csv, "\"");
        ty_text_append(csv, c, 1);
    }
    ty_text_add(csv, "\"");
}

static ty_status write_candidates(const ty_plan *plan, const char *path, ty_error *error)
{
    ty_text csv = {0};
    ty_status status;

    ty_text_add(&csv,
                "candidate,step_time_s,simulated_step_time_s,peak_memory_bytes,on_front,fate\r\n");
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        const ty_candidate *row = &plan->candidates[c];
        char estimated[32], simulated[32];
        ty_format_number(row->step_time_s, estimated);
        ty_format_number(row->simulated_step_time_s, simulated);
        csv_text(&csv, row->name);
        ty_text_addf(&csv, ",%s,%s,%llu,%d,", estimated, simulated,
                     (unsigned long long)row->peak_memory_bytes, ty_plan_is_on_front(plan, c));
        csv_text(&csv, row->reason);
        ty_text_add(&csv, "\r\n");
    }
    status = ty_file_write_text(path, &csv, error);
    ty_text_clear(&csv);
    return status;
}

/* At which bandwidth the answer to "does it pay?" changes, for a few compressors. */
static ty_status add_crossovers(const ty_question_inputs *q, const ty_plan *plan, ty_text *text,
                                ty_error *error)
{
    char rate[32];
    double ring = HUGE_VAL;
    ty_text line = {0};
    ty_status status = TY_OK;

    for (size_t i = 0; ty_shown_compressions[i] != NULL; i++) {
        ty_compression c = {0};
        double bandwidth;
        TY_CHECK(ty_compression_parse(ty_shown_compressions[i], &c, error), status, cleanup);
        TY_CHECK(ty_plan_compression_crossover(plan, q->cluster, &c, &bandwidth, &ring, error),
                 status, cleanup);
        ty_format_bytes(bandwidth, rate);
        ty_text_addf(&line, "%s%s %s%s", i > 0 ? ", " : "", ty_shown_compressions[i],
                     bandwidth > 0 && isfinite(bandwidth) ? rate
                     : bandwidth > 0                      ? "any"
                                                          : "none",
                     bandwidth > 0 && isfinite(bandwidth) ? "/s" : "");
    }
    if (isfinite(ring)) {
        ty_format_bytes(ring, rate);
        ty_text_addf(text,
                     "\ncompression shortens exchanges below these bandwidths, were nothing "
                     "hidden (here %s/s):\n  %s\n",
                     rate, line.data);
    }
cleanup:
    ty_text_clear(&line);
    return status;
}

/* "trainyard.infeasible/1": the question, and why it has no answer. */
static void put_infeasible(const cli_options *options, const ty_error *error, ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.infeasible/1");
    ty_json_put_string(&w, "workload", options->workload);
    ty_json_put_string(&w, "cluster", options->cluster);
    if (options->global_batch > 0)
        ty_json_put_uint(&w, "global_batch", options->global_batch);
    if (options->fix != NULL)
        ty_json_put_string(&w, "fix", options->fix);
    ty_json_put_string(&w, "reason", error->message);
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

exit_code cmd_plan(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    ty_text text = {0};
    ty_question question;
    const ty_watch watch = watch_from(options);

    if (question_from(options, USUAL_TOP, &question, &error) != TY_OK ||
        ty_question_open(&question, &watch, &q, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (ty_question_plan(&question, &q, &watch, &plan, &error) != TY_OK ||
        (options->output != NULL && ty_plan_save(plan, options->output, &error) != TY_OK) ||
        (options->candidates != NULL &&
         write_candidates(plan, options->candidates, &error) != TY_OK)) {
        code = report_failure(&error);
        if (options->json && code == EXIT_NO_PLAN) {
            put_infeasible(options, &error, &text);
            if (print_text(&text) != EXIT_DONE)
                code = EXIT_FAILED;
        }
        goto cleanup;
    }
    if (options->json) {
        ty_json_writer writer = ty_json_writer_on(&text);
        ty_plan_to_json(plan, &writer, NULL);
        ty_text_add(&text, "\n");
    } else if (options->output == NULL || strcmp(options->output, "-") != 0) {
        ty_print_plan(plan, &text);
        if (add_crossovers(&q, plan, &text, &error) != TY_OK) {
            code = report_failure(&error);
            goto cleanup;
        }
    }
    code = print_text(&text);
    if (code == EXIT_DONE && interrupted(NULL))
        code = EXIT_INTERRUPTED;

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    return code;
}

static void memory_to_json(const ty_plan *plan, ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.memory/1");
    ty_json_put_string(&w, "workload", plan->workload->name);
    ty_json_put_string(&w, "cluster", plan->cluster_name);
    ty_json_put_string(&w, "strategy", plan->strategy);
    ty_json_open(&w, "stages", '[');
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_memory_use *use = &plan->memory[s];
        ty_json_open(&w, NULL, '{');
        ty_json_put_uint(&w, "parameter_bytes", use->parameter_bytes);
        ty_json_put_uint(&w, "gradient_bytes", use->gradient_bytes);
        ty_json_put_uint(&w, "optimizer_bytes", use->optimizer_bytes);
        ty_json_put_uint(&w, "activation_bytes", use->activation_bytes);
        ty_json_put_uint(&w, "communication_bytes", use->communication_bytes);
        ty_json_put_uint(&w, "compression_bytes", use->compression_bytes);
        ty_json_put_uint(&w, "workspace_bytes", use->workspace_bytes);
        ty_json_put_uint(&w, "total_bytes", ty_memory_use_total(use));
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

exit_code cmd_memory(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    ty_text text = {0};
    ty_question question;
    const ty_watch watch = watch_from(options);

    if (question_from(options, 0, &question, &error) != TY_OK ||
        ty_question_open(&question, &watch, &q, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (ty_question_plan(&question, &q, &watch, &plan, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json)
        memory_to_json(plan, &text);
    else
        ty_print_memory(plan, &text);
    code = print_text(&text);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    return code;
}
