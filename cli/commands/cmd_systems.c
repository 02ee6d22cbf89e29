/* trainyard systems: the plan of every known system in one table. */
#include "cli.h"

#include <stdio.h>

/* Answer of a system: a plan, or the reason why it has none. */
typedef struct row {
    const ty_system *system;
    ty_plan *plan;
    ty_error refusal;
    const char *same_as; /* first row with the same plan; NULL: none */
} row;

static void row_to_json(const row *r, ty_json_writer *w)
{
    const ty_plan *plan = r->plan;

    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "system", r->system->name);
    if (plan == NULL) {
        ty_json_put_string(w, "reason", r->refusal.message);
    } else {
        const ty_step_summary *s = ty_plan_summary(plan);
        ty_json_put_string(w, "strategy", plan->strategy);
        ty_json_put_number(w, "step_time_s", s->step_time_s);
        ty_json_put_number(w, "samples_per_s", s->samples_per_s);
        if (s->tokens_per_s > 0)
            ty_json_put_number(w, "tokens_per_s", s->tokens_per_s);
        ty_plan_rates_to_json(plan, s, w);
        ty_json_put_string(w, "limited_by", s->limited_by);
        ty_json_put_string(w, "stack", plan->stack->name);
        if (plan->stack->why != NULL)
            ty_json_put_string(w, "stack_reason", plan->stack->why);
        if (r->same_as != NULL)
            ty_json_put_string(w, "same_as", r->same_as);
    }
    ty_json_close(w, '}');
}

static void row_to_text(const row *r, ty_text *text)
{
    const ty_plan *plan = r->plan;
    ty_memory_peak peak = {0};
    char step[32], rate[32], memory[32] = "-";

    ty_text_addf(text, "%-20s ", r->system->name);
    if (plan == NULL) {
        ty_text_addf(text, "%s\n", r->refusal.message);
        return;
    }
    ty_format_seconds(ty_plan_summary(plan)->step_time_s, step);
    ty_format_count(ty_plan_summary(plan)->samples_per_s, rate);
    if (ty_plan_memory_peak(plan, &peak))
        ty_format_memory((double)peak.bytes, memory);
    ty_text_addf(text, "%9s  %9s  %9s  %s\n%-20s %s%s%s\n", step, rate, memory, plan->strategy, "",
                 ty_plan_summary(plan)->limited_by, r->same_as != NULL ? "; the same plan as " : "",
                 r->same_as != NULL ? r->same_as : "");
    if (plan->stack->why != NULL)
        ty_text_addf(text, "%-20s stack %s: %s\n", "", plan->stack->name, plan->stack->why);
}

#define MOST_SYSTEMS 64

/* Plans with every system in turn. A system without a plan is a row with its reason; lack of memory
 * and an interrupt end the table. */
static ty_status all_systems(const ty_question_inputs *q, const ty_plan_options *options,
                             bool is_json, ty_json_writer *w, ty_text *text, bool *is_any,
                             ty_error *error)
{
    row rows[MOST_SYSTEMS] = {0};
    uint32_t count = 0;
    ty_status status = TY_OK;

    for (; count < MOST_SYSTEMS && ty_system_at(count) != NULL; count++) {
        row *r = &rows[count];
        r->system = ty_system_at(count);
        status = ty_plan_system(r->system, q->workload, q->cluster, q->profile, options, &r->plan,
                                &r->refusal);
        if (status == TY_ENOMEM || status == TY_EINTERRUPTED) {
            status = ty_fail(error, status, "%s", r->refusal.message);
            goto done;
        }
        status = TY_OK; /* a refusal is a row */
        *is_any |= r->plan != NULL;
        /* Finds the first earlier row with the same plan. */
        for (uint32_t i = 0; r->plan != NULL && r->same_as == NULL && i < count; i++) {
            bool agree = false;
            if (rows[i].plan != NULL)
                TY_CHECK(ty_systems_agree(rows[i].plan, r->plan, &agree, error), status, done);
            if (agree)
                r->same_as = rows[i].system->name;
        }
        if (is_json)
            row_to_json(r, w);
        else
            row_to_text(r, text);
    }
done:
    for (uint32_t i = 0; i < MOST_SYSTEMS; i++)
        ty_plan_free(rows[i].plan);
    return status;
}

exit_code cmd_systems(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan_options how = ty_plan_options_default();
    ty_text text = {0};
    ty_json_writer w = {0};
    bool is_any = false;

    if (question_open(options, &q, &error) != TY_OK)
        return report_bad_input(&error);
    note_names(options);
    how.stack = options->stack != NULL ? q.stack : NULL; /* else that of each system */
    how.global_batch = options->global_batch > 0 ? (uint32_t)options->global_batch
                                                 : ty_system_batch(q.workload, q.cluster);
    how.seed = options->seed;
    how.should_stop = interrupted;
    interrupts_catch();
    if (options->json) {
        w = document_open("trainyard.systems/1", &text);
        ty_json_put_string(&w, "workload", q.workload->name);
        ty_json_put_string(&w, "cluster", options->cluster);
        ty_json_put_string(&w, "stack", q.stack->name);
        ty_json_put_uint(&w, "global_batch", how.global_batch);
        ty_json_open(&w, "systems", '[');
    } else {
        ty_print_stack_name(q.stack, &text);
        ty_text_addf(&text, "batch       %u samples per step\n", how.global_batch);
        ty_text_addf(&text, "%-20s %9s  %9s  %9s  %s\n", "system", "step", "samples/s", "memory",
                     "plan, and what limits it");
    }
    if (all_systems(&q, &how, options->json, &w, &text, &is_any, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    list_close(options->json, &w);
    code = print_text(&text);
    if (code == EXIT_DONE && !is_any)
        code = report_failure(&(ty_error){TY_EINFEASIBLE, "no system has a plan"});

cleanup:
    ty_text_clear(&text);
    ty_question_inputs_clear(&q);
    return code;
}
