/* trainyard score: time to target, money and energy of a plan. */
#include "cli.h"
#include "ty_phases.h"

static void score_to_text(const ty_score *s, ty_text *text)
{
    char usd[32];

    if (s->has_target) {
        ty_text_addf(text, "%-11s %.4g (%.3g samples)\n", "steps", s->steps,
                     s->samples_to_target.expected);
        print_interval("to target", &s->time_to_target_s, 3600, "h", text);
    }
    if (s->has_target && s->has_price)
        print_interval("money", &s->money_usd, 1, "USD", text);
    if (s->has_target && s->has_power)
        print_interval("energy", &s->energy_j, 3.6e6, "kWh", text);
    if (s->has_power)
        print_interval("power", &s->power_w, 1e3, "kW", text);
    ty_text_addf(text, "%-11s %.2f %% of the time, a checkpoint of %.3g GB every %.3g min\n",
                 "goodput", 100 * s->failures.goodput, (double)s->checkpoint_bytes / 1e9,
                 s->failures.checkpoint_interval_s / 60);
    if (s->cost.steps > 0) {
        ty_training_cost_line(&s->cost, text);
        ty_format_usd(s->cost.cost_usd_per_million_tokens, usd);
        if (s->cost.cost_usd_per_million_tokens > 0)
            ty_text_addf(text, "            %s per million tokens\n", usd);
        if (s->cost.energy_mwh > 0)
            ty_text_addf(text, "            %.3g MWh\n", s->cost.energy_mwh);
    }
    if (s->is_bound_by_input)
        ty_text_addf(text, "%-11s %s\n", "input", s->input_bound_by);
    ty_text_addf(text, "%s", s->notes != NULL ? s->notes : "");
}

exit_code cmd_score(const cli_options *options)
{
    exit_code code;
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    ty_plan_inputs inputs = {0};
    ty_score score = {0};
    ty_text text = {0};
    ty_cost_question cost;

    if (ty_is_phased_plan(options->files[0]))
        return phased_score(options);
    if (cost_from(options, &cost, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_plan_inputs_load(options->files[0], NULL, &watch, &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_plan_score(inputs.plan, inputs.cluster, options->task, &cost, &score, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_json_writer w = ty_json_writer_on(&text);
        ty_score_to_json(&score, &w, NULL);
        ty_text_add(&text, "\n");
    } else {
        score_to_text(&score, &text);
    }
    code = print_text(&text);

cleanup:
    ty_score_clear(&score);
    ty_plan_inputs_clear(&inputs);
    ty_text_clear(&text);
    return code;
}
