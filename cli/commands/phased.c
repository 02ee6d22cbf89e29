/* Trainings of several phases: plan --phases, and estimate, simulate, run and compare of its
 * file. */
#include "cli.h"
#include "option_table.h"
#include "ty_phases.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Shared by all commands --------------------------------------------------------------------
 */

/* Refuses options that belong to one plan, or that phases have themselves. */
static exit_code refuse_options(const char *command, const cli_options *options,
                                const char *const *allowed)
{
    const option_row *row;

    for (size_t i = 0; (row = option_at(i)) != NULL; i++) {
        bool is_allowed = strcmp(row->name, "json") == 0 || strcmp(row->name, "quiet") == 0 ||
                          strcmp(row->name, "trust-config") == 0;
        for (const char *const *a = allowed; *a != NULL; a++)
            is_allowed = is_allowed || strcmp(*a, row->name) == 0;
        if (!is_allowed && strcmp(row->name, "seed") != 0 && option_is_set(row, options))
            return report_usage(command,
                                "--%s: found with a plan of several phases, which are "
                                "taken as they are",
                                row->name);
    }
    return EXIT_DONE;
}

#define ALLOWED(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* "128x128" */
#define SIZE_TEXT 24
static const char *size_text(const ty_plan *plan, char out[SIZE_TEXT])
{
    const uint64_t *sides = &plan->workload->input.dimensions[1];

    snprintf(out, SIZE_TEXT, "%ux%u", (unsigned)sides[0], (unsigned)sides[1]);
    return out;
}

/* Prints a line per phase, and one for the sum.
 * @param steps_s [count] step time per phase */
static void print_phases(const ty_phased_plan *plan, const double *steps_s, ty_text *text)
{
    uint32_t steps = 0;
    double seconds = 0, samples = 0;
    char step[32], time[32], count[32], size[SIZE_TEXT];
    const bool has_sizes = ty_phased_plan_resizes(plan);

    ty_text_addf(text, "%s on %s\n\n", plan->plans[0]->workload->name,
                 plan->plans[0]->cluster_name);
    ty_text_addf(text,
                 "phase   batch%s  learning rate  momentum     steps       step       time  "
                 "plan\n",
                 has_sizes ? "     images" : "");
    for (uint32_t p = 0; p < plan->count; p++) {
        const ty_plan *own = plan->plans[p];
        const ty_optimizer *o = &own->optimizer;
        char momentum[32] = "-";
        if (ty_optimizer_row_of(o->kind)->has_momentum)
            snprintf(momentum, sizeof momentum, "%.4g", o->momentum);
        ty_format_seconds(steps_s[p], step);
        ty_format_seconds(plan->steps[p] * steps_s[p], time);
        ty_text_addf(text, "%5u  %6u", p + 1, own->global_batch);
        if (has_sizes)
            ty_text_addf(text, "  %9s", size_text(own, size));
        ty_text_addf(text, "  %13.4g  %8s  %8u  %9s  %9s  %s\n", o->learning_rate, momentum,
                     plan->steps[p], step, time, own->strategy);
        steps += plan->steps[p];
        seconds += plan->steps[p] * steps_s[p];
        samples += (double)plan->steps[p] * own->global_batch;
    }
    ty_format_seconds(seconds, time);
    ty_format_count(samples, count);
    ty_text_addf(text, "all     %u steps, %s samples, %s\n", steps, count, time);
}

/* Prints the result of all phases in a line. */
static void print_way(const ty_phased_score *s, ty_text *text)
{
    char time[32], low[32], high[32];

    if (!s->has_target)
        return;
    ty_format_seconds(s->time_to_target_s.expected, time);
    ty_format_seconds(s->time_to_target_s.low, low);
    ty_format_seconds(s->time_to_target_s.high, high);
    if (s->is_reached)
        ty_text_addf(text,
                     "target  in phase %u, after %.0f of its steps and %.0f in all: %s (%s to "
                     "%s)\n",
                     s->last + 1, s->steps_of_last, s->steps_to_target.expected, time, low, high);
    else
        ty_text_addf(text,
                     "target  not reached: %.3g %% of the way (%.3g to %.3g); %.0f more steps "
                     "of phase %u would, %s (%s to %s) in all\n",
                     100 * s->share.expected, 100 * s->share.low, 100 * s->share.high,
                     s->missing_steps, s->last + 1, time, low, high);
}

/* ---- plan --------------------------------------------------------------------------------------
 */

exit_code phased_plan(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_phases *phases = NULL;
    ty_phased_plan *plan = NULL;
    ty_phased_score score = {0};
    ty_question question;
    ty_text text = {0};
    double steps_s[TY_MOST_TRAINING_PHASES];
    const ty_watch watch = watch_from(options);

    if (options->training_config != NULL)
        return report_usage("plan", "--phases and --config: expected one of them");
    if (options->tokens != NULL || options->epochs != NULL || options->steps > 0)
        return report_usage("plan", "--phases and --tokens, --epochs or --steps: the phases have "
                                    "lengths of their own");
    if (options->candidates != NULL || options->against != NULL)
        return report_usage("plan",
                            "--phases and --%s: expected one of them, phases have "
                            "candidates of their own",
                            options->against != NULL ? "against" : "candidates");
    if (question_from(options, TY_USUAL_TOP, &question, &error) != TY_OK ||
        ty_phases_load(options->phases, &phases, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (ty_phased_plan_make(&question, phases, &watch, &plan, &error) != TY_OK ||
        (options->output != NULL && ty_phased_plan_save(plan, options->output, &error) != TY_OK)) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_json_writer writer = ty_json_writer_on(&text);
        ty_phased_plan_to_json(plan, &writer);
        ty_text_add(&text, "\n");
    } else if (options->output == NULL || strcmp(options->output, "-") != 0) {
        for (uint32_t p = 0; p < plan->count; p++)
            steps_s[p] = ty_plan_summary(plan->plans[p])->step_time_s;
        print_phases(plan, steps_s, &text);
        if (ty_phased_plan_score(plan, options->task, &question.cost, &score, &error) != TY_OK) {
            code = report_bad_input(&error);
            goto cleanup;
        }
        print_way(&score, &text);
    }
    code = print_text(&text);
cleanup:
    ty_text_clear(&text);
    ty_phased_score_clear(&score);
    ty_phased_plan_free(plan);
    ty_phases_free(phases);
    return code;
}

/* ---- estimate, simulate ------------------------------------------------------------------------
 */

/* @param step_s [out] step time */
static ty_status predict(const cli_options *options, const ty_plan *plan, bool is_simulated,
                         double *step_s, ty_json_writer *writer, ty_error *error)
{
    const ty_watch watch = watch_from(options);
    ty_plan_inputs inputs = {0};
    ty_plan *own = NULL;
    ty_stack *stack = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_simulate_options how = ty_simulate_options_default();
    uint32_t lead;
    ty_status status = TY_OK;

    TY_CHECK(ty_plan_copy(plan, &own, error), status, done);
    if (options->stack != NULL) {
        status = ty_stack_open(options->stack, &stack, error);
        if (status == TY_OK)
            status = ty_plan_use_stack(own, stack, error);
    }
    if (status != TY_OK) {
        ty_plan_free(own);
        goto done;
    }
    TY_CHECK(ty_plan_inputs_from(own, &inputs, error), status, done);
    if (stack == NULL)
        TY_CHECK(ty_plan_inputs_compare(&inputs, options->files[0], &watch, error), status, done);
    lead = 2 * ty_program_largest_lead(inputs.program);
    how.steps += lead;
    status = is_simulated ? ty_simulate(inputs.plan, inputs.program, inputs.costs, inputs.cluster,
                                        &how, &timeline, error)
                          : ty_estimate(inputs.plan, inputs.program, inputs.costs, 3 + lead,
                                        &timeline, error);
    TY_CHECK(status, status, done);
    TY_CHECK(ty_timeline_summarize(inputs.plan, inputs.program, timeline, &summary, error), status,
             done);
    *step_s = summary.step_time_s;
    ty_json_open(writer, NULL, '{');
    ty_json_put_uint(writer, "global_batch", plan->global_batch);
    if (ty_workload_has_images(plan->workload)) {
        ty_json_open_flat(writer, "image_size", '[');
        for (uint32_t d = 1; d < plan->workload->input.dimension_count; d++)
            ty_json_put_uint(writer, NULL, plan->workload->input.dimensions[d]);
        ty_json_close(writer, ']');
    }
    ty_json_put_string(writer, "strategy", plan->strategy);
    ty_json_put_number(writer, "step_time_s", summary.step_time_s);
    ty_json_put_number(writer, "samples_per_s", summary.samples_per_s);
    ty_plan_rates_to_json(inputs.plan, &summary, writer);
    ty_step_summary_to_json(&summary, writer, "summary");
done:
    ty_stack_free(stack);
    ty_timeline_free(timeline);
    ty_plan_inputs_clear(&inputs);
    return status;
}

exit_code phased_predict(const char *command, const cli_options *options)
{
    const bool is_simulated = strcmp(command, "simulate") == 0;
    exit_code code = refuse_options(command, options, ALLOWED("stack"));
    ty_error error = {0};
    ty_phased_plan *plan = NULL;
    ty_text text = {0}, json = {0};
    ty_json_writer w;
    double steps_s[TY_MOST_TRAINING_PHASES], seconds = 0;

    if (code != EXIT_DONE)
        return code;
    if (ty_phased_plan_load(options->files[0], &plan, &error) != TY_OK)
        return report_bad_input(&error);
    w = document_open("trainyard.phased-prediction/1", &json);
    ty_json_put_string(&w, "workload", plan->plans[0]->workload->name);
    ty_json_put_string(&w, "cluster", plan->plans[0]->cluster_name);
    ty_json_put_bool(&w, "is_simulated", is_simulated);
    ty_json_open(&w, "phases", '[');
    for (uint32_t p = 0; p < plan->count; p++) {
        if (predict(options, plan->plans[p], is_simulated, &steps_s[p], &w, &error) != TY_OK) {
            code = report_failure(&error);
            goto cleanup;
        }
        seconds += plan->steps[p] * steps_s[p];
        ty_json_put_uint(&w, "steps", plan->steps[p]);
        ty_json_put_number(&w, "time_s", plan->steps[p] * steps_s[p]);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_put_number(&w, "time_s", seconds);
    document_close(&w);
    print_phases(plan, steps_s, &text);
    code = print_text(options->json ? &json : &text);
cleanup:
    ty_text_clear(&text);
    ty_text_clear(&json);
    ty_phased_plan_free(plan);
    return code;
}

/* ---- score
 * ---------------------------------------------------------------------------------------
 */

static void score_to_text(const ty_phased_score *s, ty_text *text)
{
    if (s->has_target) {
        ty_text_add(text, "phase   batch     steps  alone to the target  of the way\n");
        for (uint32_t p = 0; p < s->count; p++)
            ty_text_addf(text, "%5u  %6u  %8u  %19.0f  %8.3g %%\n", p + 1, s->phases[p].batch,
                         s->phases[p].steps, s->phases[p].score.steps, 100 * s->phases[p].share);
        ty_text_add(text, "\n");
    }
    print_way(s, text);
    if (s->has_target && s->has_price)
        print_interval("money", &s->money_usd, 1, "USD", text);
    if (s->has_target && s->has_power)
        print_interval("energy", &s->energy_j, 3.6e6, "kWh", text);
    ty_text_add(text, s->notes);
}

exit_code phased_score(const cli_options *options)
{
    exit_code code = refuse_options("score", options, ALLOWED("task", "price"));
    const ty_cost_question cost = {.price = options->price};
    ty_error error = {0};
    ty_phased_plan *plan = NULL;
    ty_phased_score score = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    if (code != EXIT_DONE)
        return code;
    if (ty_phased_plan_load(options->files[0], &plan, &error) != TY_OK ||
        ty_phased_plan_score(plan, options->task, &cost, &score, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    if (options->json) {
        ty_phased_score_to_json(&score, &w);
        ty_text_add(&text, "\n");
    } else {
        score_to_text(&score, &text);
    }
    code = print_text(&text);
cleanup:
    ty_text_clear(&text);
    ty_phased_score_clear(&score);
    ty_phased_plan_free(plan);
    return code;
}

/* ---- run ---------------------------------------------------------------------------------------
 */

static ty_status show_run(const cli_options *options, const char *path, ty_text *text,
                          ty_error *error)
{
    ty_phased_run *run = NULL;
    ty_status status;

    if (options->json)
        return add_file(path, text, error);
    status = ty_phased_run_load(path, &run, error);
    for (uint32_t p = 0; status == TY_OK && p < run->count; p++) {
        ty_text_addf(text, "%sphase %u\n", p > 0 ? "\n" : "", p + 1);
        ty_print_run(run->runs[p], text);
    }
    ty_phased_run_free(run);
    return status;
}

exit_code phased_run(const cli_options *options)
{
    exit_code code =
        refuse_options("run", options,
                       ALLOWED("backend", "precision", "until", "evaluate-every", "data",
                               "bad-samples", "checkpoint", "checkpoint-every", "keep", "resume",
                               "deterministic", "init", "save-weights", "anyway", "output"));
    ty_error error = {0};
    ty_phased_plan *plan = NULL;
    ty_training training;
    ty_text text = {0};
    char scratch[PATH_MAX] = "";
    const char *output = options->output;
    uint32_t written = 0;
    const ty_watch watch = watch_from(options);

    if (code != EXIT_DONE)
        return code;
    if (ty_phased_plan_load(options->files[0], &plan, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (output == NULL &&
        ty_scratch_file("trainyard-run", scratch, sizeof scratch, &error) == TY_OK)
        output = scratch;
    if (output == NULL || training_from(options, &training, &error) != TY_OK ||
        machine_check(options, plan->plans[0], training.backend, &error) != TY_OK ||
        (output != scratch && ty_file_try(output, &error) != TY_OK) ||
        ty_phased_plan_run(plan, &training, output, &written, &watch, &error) != TY_OK)
        code = report_failure(&error);
    if (written > 0) {
        const exit_code shown = show_run(options, output, &text, &error) == TY_OK
                                    ? print_text(&text)
                                    : report_failure(&error);
        code = code == EXIT_DONE ? shown : code;
    }
    if (scratch[0] != '\0')
        unlink(scratch);
    ty_text_clear(&text);
    ty_phased_plan_free(plan);
    return code;
}

/* ---- compare -----------------------------------------------------------------------------------
 */

/* Compares one phase's prediction with its run. */
static ty_status compare_phase(const ty_phased_plan *plan, ty_phased_run *run, uint32_t p,
                               ty_text *text, ty_json_writer *writer, ty_error *error)
{
    plan_results f = {0};
    ty_plan *own = NULL;
    ty_digest digest;
    char size[SIZE_TEXT];
    ty_status status;

    TY_CHECK(ty_plan_copy(plan->plans[p], &own, error), status, done);
    TY_CHECK(ty_plan_inputs_from(own, &f.inputs, error), status, done);
    f.run = run->runs[p];
    run->runs[p] = NULL; /* ownership passed on */
    TY_CHECK(ty_plan_digest(f.inputs.plan, &digest, error), status, done);
    if (strcmp(digest.hex, f.run->plan_digest.hex) != 0 || f.run->timeline == NULL) {
        status = ty_fail(error, TY_EPARSE,
                         "phase %u: found %s, expected a run of the plan's phase with its timeline",
                         p + 1, f.run->timeline == NULL ? "no timeline" : "a run of another plan");
        goto done;
    }
    TY_CHECK(ty_timeline_check(f.inputs.plan, f.inputs.program, f.run->timeline, "run", error),
             status, done);
    TY_CHECK(plan_results_make(&f, error), status, done);
    f.comparison->target = (ty_target_comparison){0}; /* belongs to all phases */
    ty_text_addf(text, "%sphase %u: %u steps in batches of %u", p > 0 ? "\n" : "", p + 1,
                 plan->steps[p], f.inputs.plan->global_batch);
    if (ty_phased_plan_resizes(plan))
        ty_text_addf(text, ", images of %s", size_text(f.inputs.plan, size));
    ty_text_add(text, "\n");
    ty_print_comparison(f.inputs.plan, f.comparison, text);
    ty_comparison_to_json(f.inputs.plan, f.comparison, writer, NULL);
done:
    plan_results_clear(&f);
    return status;
}

/* Finds steps and time to the run's target, measured and predicted. Call it before the phases' runs
 * are freed. */
static ty_status compare_target(const cli_options *options, const ty_phased_plan *plan,
                                const ty_phased_run *run, ty_target_comparison *out,
                                ty_error *error)
{
    const ty_run *last = run->runs[run->count - 1];
    const ty_evaluation *reached = ty_run_reached(last);
    ty_phased_score score = {0};
    ty_status status;

    *out = (ty_target_comparison){.until = last->until, .is_reached = reached != NULL};
    if (!ty_target_is_set(&last->until))
        return options->task == NULL
                   ? TY_OK
                   : ty_fail(error, TY_EINVAL,
                             "--task: the run had no target, expected one made with --until");
    if (reached != NULL) {
        out->measured_steps = reached->step;
        out->measured_s = reached->seconds;
        for (uint32_t p = 0; p + 1 < run->count; p++)
            out->measured_s += run->runs[p]->wall_s;
    }
    status = ty_phased_plan_score(plan, options->task, NULL, &score, error);
    if (status == TY_OK) {
        out->is_predicted = score.has_target;
        interval_spread(score.steps_to_target, 1, out->predicted_steps);
        interval_spread(score.time_to_target_s, 1, out->predicted_s);
    }
    ty_phased_score_clear(&score);
    return status;
}

exit_code phased_compare(const cli_options *options)
{
    exit_code code = refuse_options("compare", options, ALLOWED("task"));
    ty_target_comparison target;
    ty_error error = {0};
    ty_phased_plan *plan = NULL;
    ty_phased_run *run = NULL;
    ty_text text = {0}, json = {0};
    ty_json_writer w;

    if (code != EXIT_DONE)
        return code;
    if (ty_phased_plan_load(options->files[0], &plan, &error) != TY_OK ||
        ty_phased_run_load(options->files[1], &run, &error) != TY_OK ||
        compare_target(options, plan, run, &target, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    w = list_open(true, "trainyard.phased-comparison/1", "phases", &json);
    for (uint32_t p = 0; p < run->count && p < plan->count; p++)
        if (compare_phase(plan, run, p, &text, &w, &error) != TY_OK) {
            code = report_bad_input(&error);
            goto cleanup;
        }
    ty_json_close(&w, ']');
    if (ty_target_is_set(&target.until)) {
        ty_target_comparison_to_json(&target, &w);
        ty_text_add(&text, "\n");
        ty_print_target(&target, &text);
    }
    document_close(&w);
    code = print_text(options->json ? &json : &text);
cleanup:
    ty_text_clear(&text);
    ty_text_clear(&json);
    ty_phased_run_free(run);
    ty_phased_plan_free(plan);
    return code;
}
