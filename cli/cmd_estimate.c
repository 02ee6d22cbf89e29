/* trainyard estimate, trainyard simulate: readers of a plan's program. */
#include "cli.h"

#include <string.h>

static ty_status write_trace(const plan_inputs *inputs, const ty_timeline *timeline,
                             const char *path, ty_error *error)
{
    ty_text trace = {0};
    char *text = NULL;
    ty_status status = ty_trace_write(inputs->plan, inputs->program, timeline, NULL, &trace, error);

    if (status == TY_OK)
        status = ty_text_take(&trace, &text, error);
    if (status == TY_OK)
        status = ty_file_write(path, text, strlen(text), error);
    ty_text_clear(&trace);
    ty_free(text);
    return status;
}

/* Prints what a reader found; the timeline goes along in the JSON form. */
static ty_status show(const cli_options *options, const plan_inputs *inputs, const char *schema,
                      const ty_timeline *timeline, ty_text *text, ty_error *error)
{
    ty_status status = TY_OK;
    ty_step_summary summary;

    TY_CHECK(ty_timeline_summarize(inputs->plan, inputs->program, timeline, &summary, error),
             status, done);
    if (options->trace != NULL)
        TY_CHECK(write_trace(inputs, timeline, options->trace, error), status, done);
    if (options->json) {
        ty_json_writer w = ty_json_writer_on(text);
        ty_json_open(&w, NULL, '{');
        ty_json_put_string(&w, "schema", schema);
        ty_json_put_string(&w, "workload", inputs->plan->workload->name);
        ty_json_put_string(&w, "cluster", inputs->plan->cluster_name);
        ty_json_put_string(&w, "strategy", inputs->plan->strategy);
        ty_json_put_number(&w, "step_time_s", summary.step_time_s);
        ty_json_put_number(&w, "samples_per_s", summary.samples_per_s);
        if (summary.tokens_per_s > 0)
            ty_json_put_number(&w, "tokens_per_s", summary.tokens_per_s);
        ty_step_summary_to_json(&summary, &w, "summary");
        ty_timeline_to_json(timeline, &w, "timeline");
        ty_json_close(&w, '}');
        ty_text_add(text, "\n");
    } else {
        ty_text_addf(text, "%s on %s, %s\n", inputs->plan->workload->name,
                     inputs->plan->cluster_name, inputs->plan->strategy);
        ty_print_summary(&summary, text);
    }
done:
    return status;
}

exit_code cmd_estimate(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    plan_inputs inputs = {0};
    ty_timeline *timeline = NULL;
    ty_text text = {0};

    if (plan_inputs_load(options->files[0], &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_estimate(inputs.plan, inputs.program, inputs.costs,
                    3 + 2 * ty_program_largest_lead(inputs.program), &timeline, &error) != TY_OK ||
        show(options, &inputs, "trainyard.estimate/1", timeline, &text, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->program && !options->json) {
        ty_text_add(&text, "\n");
        ty_program_print(inputs.plan, inputs.program, &text);
    }
    code = print_text(&text);

cleanup:
    ty_text_clear(&text);
    ty_timeline_free(timeline);
    plan_inputs_clear(&inputs);
    return code;
}

exit_code cmd_simulate(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    plan_inputs inputs = {0};
    ty_timeline *timeline = NULL;
    ty_text text = {0};
    ty_simulate_options how = ty_simulate_options_default();

    if (options->resolution != NULL) {
        if (strcmp(options->resolution, "chunk") == 0)
            how.resolution = TY_CHUNK;
        else if (strcmp(options->resolution, "flow") != 0)
            return report_usage("simulate", "--resolution: found '%s', expected flow or chunk",
                                options->resolution);
    }
    if (options->steps > 1000)
        return report_usage("simulate", "--steps: at most 1000 steps are simulated");
    if (options->steps > 0)
        how.steps = (uint32_t)options->steps;
    if (plan_inputs_load(options->files[0], &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_simulate(inputs.plan, inputs.program, inputs.costs, inputs.cluster, &how, &timeline,
                    &error) != TY_OK ||
        show(options, &inputs, "trainyard.simulation/1", timeline, &text, &error) != TY_OK)
        code = report_failure(&error);
    else
        code = print_text(&text);
    ty_text_clear(&text);
    ty_timeline_free(timeline);
    plan_inputs_clear(&inputs);
    return code;
}
