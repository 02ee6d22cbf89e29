/* trainyard systems: what every known system would do, side by side. */
#include "cli.h"

#include <stdio.h>

static uint64_t peak_memory(const ty_plan *plan)
{
    uint64_t peak = 0;

    for (uint32_t s = 0; plan->memory != NULL && s < plan->stage_count; s++) {
        const uint64_t bytes = ty_memory_use_total(&plan->memory[s]);
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

static const ty_step_summary *summary_of(const ty_plan *plan)
{
    return plan->simulation.step_time_s > 0 ? &plan->simulation : &plan->prediction;
}

static void row_to_json(const ty_system *system, const ty_plan *plan, const ty_error *refusal,
                        ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "system", system->name);
    if (plan == NULL) {
        ty_json_put_string(w, "reason", refusal->message);
    } else {
        const ty_step_summary *s = summary_of(plan);
        ty_json_put_string(w, "strategy", plan->strategy);
        ty_json_put_number(w, "step_time_s", s->step_time_s);
        ty_json_put_number(w, "samples_per_s", s->samples_per_s);
        if (s->tokens_per_s > 0)
            ty_json_put_number(w, "tokens_per_s", s->tokens_per_s);
        ty_json_put_uint(w, "peak_memory_bytes", peak_memory(plan));
        ty_json_put_string(w, "limited_by", s->limited_by);
    }
    ty_json_close(w, '}');
}

static void row_to_text(const ty_system *system, const ty_plan *plan, const ty_error *refusal,
                        ty_text *text)
{
    char step[32], rate[32], memory[32];

    ty_text_addf(text, "%-20s ", system->name);
    if (plan == NULL) {
        ty_text_addf(text, "%s\n", refusal->message);
        return;
    }
    ty_format_seconds(summary_of(plan)->step_time_s, step);
    ty_format_count(summary_of(plan)->samples_per_s, rate);
    ty_format_memory((double)peak_memory(plan), memory);
    ty_text_addf(text, "%9s  %9s  %9s  %s\n%-20s %s\n", step, rate, memory, plan->strategy, "",
                 summary_of(plan)->limited_by);
}

/* Every system in turn. One that cannot is a row with its reason; lack of memory and an interrupt
   end the table. */
static ty_status all_systems(const ty_question_inputs *q, const ty_plan_options *options,
                             bool is_json, ty_json_writer *w, ty_text *text, ty_error *error)
{
    const ty_system *system;

    for (uint32_t i = 0; (system = ty_system_at(i)) != NULL; i++) {
        ty_plan *plan = NULL;
        ty_error refusal = {0};
        ty_status status =
            ty_plan_system(system, q->workload, q->cluster, q->profile, options, &plan, &refusal);
        if (status == TY_ENOMEM || status == TY_EINTERRUPTED)
            return ty_fail(error, status, "%s", refusal.message);
        if (is_json)
            row_to_json(system, plan, &refusal, w);
        else
            row_to_text(system, plan, &refusal, text);
        ty_plan_free(plan);
    }
    return TY_OK;
}

exit_code cmd_systems(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan_options how = ty_plan_options_default();
    cli_options asked = *options;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    if (asked.stack == NULL)
        asked.stack = TY_WORKER_STACK; /* it can run what any of them does */
    if (question_open(&asked, &q, &error) != TY_OK)
        return report_bad_input(&error);
    how.stack = q.stack;
    how.global_batch = (uint32_t)options->global_batch;
    how.seed = options->seed;
    how.should_stop = interrupted;
    interrupts_catch();
    if (options->json) {
        ty_json_open(&w, NULL, '{');
        ty_json_put_string(&w, "schema", "trainyard.systems/1");
        ty_json_put_string(&w, "workload", q.workload->name);
        ty_json_put_string(&w, "cluster", options->cluster);
        ty_json_put_string(&w, "stack", q.stack->name);
        ty_json_open(&w, "systems", '[');
    } else {
        ty_print_stack_name(q.stack, &text);
        ty_text_addf(&text, "%-20s %9s  %9s  %9s  %s\n", "system", "step", "samples/s", "memory",
                     "plan, and what limits it");
    }
    if (all_systems(&q, &how, options->json, &w, &text, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_json_close(&w, ']');
        ty_json_close(&w, '}');
        ty_text_add(&text, "\n");
    }
    code = print_text(&text);

cleanup:
    ty_text_clear(&text);
    ty_question_inputs_clear(&q);
    return code;
}
