/* trainyard estimate, and the output of timelines that trainyard simulate shares. */
#include "cli.h"
#include "ty_phases.h"

#include <string.h>

ty_status trace_save(const ty_plan_inputs *inputs, const ty_timeline *timeline, const char *path,
                     ty_error *error)
{
    ty_text trace = {0};
    ty_status status = ty_trace_write(inputs->plan, inputs->program, timeline, NULL, &trace, error);

    if (status == TY_OK)
        status = ty_file_write_text(path, &trace, error);
    ty_text_clear(&trace);
    return status;
}

/* Prints a summary; JSON includes the timeline. */
ty_status show_timeline(const cli_options *options, const ty_plan_inputs *inputs,
                        const char *schema, const ty_timeline *timeline, show_more more,
                        void *context, ty_text *text, ty_error *error)
{
    ty_step_summary summary;

    TY_TRY(ty_timeline_summarize(inputs->plan, inputs->program, timeline, &summary, error));
    TY_TRY(ty_plan_judge(inputs->plan, summary.step_time_s, error));
    if (options->trace != NULL)
        TY_TRY(trace_save(inputs, timeline, options->trace, error));
    if (options->json) {
        ty_json_writer w = document_open(schema, text);
        ty_json_put_string(&w, "workload", inputs->plan->workload->name);
        ty_json_put_string(&w, "cluster", inputs->plan->cluster_name);
        ty_json_put_string(&w, "stack", inputs->plan->stack->name);
        ty_json_put_string(&w, "strategy", inputs->plan->strategy);
        ty_json_put_number(&w, "step_time_s", summary.step_time_s);
        ty_json_put_number(&w, "samples_per_s", summary.samples_per_s);
        if (summary.tokens_per_s > 0)
            ty_json_put_number(&w, "tokens_per_s", summary.tokens_per_s);
        ty_plan_rates_to_json(inputs->plan, &summary, &w);
        ty_step_summary_to_json(&summary, &w, "summary");
        ty_deployment_to_json(&inputs->plan->deployment, inputs->plan->workload, &w, "deployment");
        if (more != NULL)
            more(context, &w, text);
        ty_timeline_to_json(timeline, &w, "timeline");
        document_close(&w);
    } else {
        ty_text_addf(text, "%s on %s, %s\n", inputs->plan->workload->name,
                     inputs->plan->cluster_name, inputs->plan->strategy);
        ty_print_summary(&summary, &inputs->plan->interval,
                         ty_device_noun(ty_cluster_device_type(inputs->cluster, 0)), text);
        ty_print_nearest(inputs->plan, text);
        ty_print_deployment(inputs->plan, text);
        ty_print_stack_name(inputs->plan->stack, text);
        if (more != NULL)
            more(context, NULL, text);
    }
    return TY_OK;
}

exit_code cmd_estimate(const cli_options *options)
{
    exit_code code;
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    ty_plan_inputs inputs = {0};
    ty_timeline *timeline = NULL;
    ty_text text = {0};

    if (ty_is_phased_plan(options->files[0]))
        return phased_predict("estimate", options);
    if (ty_plan_inputs_load(options->files[0], options->stack, &watch, &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_estimate(inputs.plan, inputs.program, inputs.costs,
                    3 + 2 * ty_program_largest_lead(inputs.program), &timeline, &error) != TY_OK ||
        show_timeline(options, &inputs, "trainyard.estimate/1", timeline, NULL, NULL, &text,
                      &error) != TY_OK) {
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
    ty_plan_inputs_clear(&inputs);
    return code;
}
