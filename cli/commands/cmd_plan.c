/* trainyard plan, trainyard memory: questions to the planner. */
#include "cli.h"
#include "ty_training_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_IN_A_LINE 3

static ty_status write_candidates(const ty_plan *plan, const char *path, ty_error *error)
{
    ty_text csv = {0};

    ty_text_add(
        &csv,
        "candidate,step_time_s,simulated_step_time_s,peak_memory_bytes,on_front,fate,fix\r\n");
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        const ty_candidate *row = &plan->candidates[c];
        char estimated[32], simulated[32];
        ty_format_number(row->step_time_s, estimated);
        ty_format_number(row->simulated_step_time_s, simulated);
        csv_text(&csv, row->name);
        ty_text_addf(&csv, ",%s,%s,%llu,%d,", estimated, simulated,
                     (unsigned long long)row->peak_memory_bytes, ty_plan_is_on_front(plan, c));
        csv_text(&csv, row->reason);
        ty_text_add(&csv, ",");
        csv_text(&csv, row->fix != NULL ? row->fix : "");
        ty_text_add(&csv, "\r\n");
    }
    return save_text(path, &csv, error);
}

/* Prints the bandwidths below which a few compressors pay. */
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
        ty_text_addf(&line, "%s%s %s%s",
                     i == 0                    ? ""
                     : i % SHOWN_IN_A_LINE > 0 ? ", "
                                               : ",\n  ",
                     ty_shown_compressions[i],
                     bandwidth > 0 && isfinite(bandwidth) ? rate
                     : bandwidth > 0                      ? "any"
                                                          : "none",
                     bandwidth > 0 && isfinite(bandwidth) ? "/s" : "");
    }
    if (isfinite(ring)) {
        ty_format_bytes(ring, rate);
        ty_text_addf(text,
                     "\nCompression pays if bus bandwidth is below (without overlap; here %s/s):\n"
                     "  %s\n",
                     rate, line.data);
    }
cleanup:
    ty_text_clear(&line);
    return status;
}

/* Writes "trainyard.infeasible/1": the question, and why it has no answer. */
static void put_infeasible(const cli_options *options, const ty_stack *stack, const ty_error *error,
                           const ty_suggestion *suggestion, ty_text *text)
{
    ty_json_writer w = document_open("trainyard.infeasible/1", text);

    ty_json_put_string(&w, "workload", options->workload);
    ty_json_put_string(&w, "cluster", options->cluster);
    if (options->global_batch > 0)
        ty_json_put_uint(&w, "global_batch", options->global_batch);
    if (options->fix != NULL)
        ty_json_put_string(&w, "fix", options->fix);
    if (options->budget != NULL)
        ty_json_put_string(&w, "budget", options->budget);
    ty_json_put_string(&w, "stack", stack->name);
    ty_json_put_string(&w, "reason", error->message);
    if (suggestion->words != NULL) {
        const ty_plan *plan = suggestion->plan;
        ty_json_open(&w, "change", '{');
        ty_json_put_string(&w, "words", suggestion->words);
        ty_json_put_string(&w, "cluster", suggestion->cluster);
        ty_json_put_uint(&w, "global_batch", plan->global_batch);
        ty_json_put_string(&w, "stack", plan->stack->name);
        ty_json_put_string(&w, "precision", ty_precision_name(plan->workload->precision));
        ty_json_put_string(&w, "fix", plan->fix);
        ty_json_put_number(&w, "step_time_s", plan->prediction.step_time_s);
        ty_json_close(&w, '}');
    }
    document_close(&w);
}

/* Adds the options of the question that a plan does not store. None for a configuration file: the
 * user's command names it. */
static void add_question(const cli_options *o, ty_text *words)
{
    const struct {
        const char *option, *value;
    } texts[] = {{"-w", o->workload},
                 {"-c", o->cluster},
                 {"--profile", o->profile},
                 {"--profile-device", o->profile_device},
                 {"--optimizer", o->optimizer}};

    if (o->given != NULL)
        return;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].value != NULL) {
            ty_text_addf(words, "%s%s ", words->length > 0 ? " " : "", texts[i].option);
            ty_quote_shell(words, texts[i].value);
        }
    if (o->sequence > 0)
        ty_text_addf(words, " --seq %llu", (unsigned long long)o->sequence);
}

/* Reports why a question has no plan, and a verified change that has one. */
static exit_code refuse(const cli_options *options, const ty_question *question,
                        const ty_question_inputs *q, const ty_watch *watch, const ty_error *error,
                        ty_text *text)
{
    ty_suggestion suggestion = {0};
    ty_text again = {0};
    ty_error detail = {0};
    exit_code code = report_failure(error);
    cli_options changed = *options;

    if (code != EXIT_NO_PLAN)
        return code;
    if (ty_question_suggestion(question, q, watch, &suggestion, &detail) != TY_OK)
        return report_failure(&detail);
    if (suggestion.words != NULL) {
        char seconds[32];
        ty_format_seconds(suggestion.plan->prediction.step_time_s, seconds);
        print_stderr("trainyard: try: %s: %s per step", suggestion.words, seconds);
        changed.cluster = suggestion.cluster;
        if (options->given == NULL) /* else the option for a configuration file */
            ty_text_add(&again, "trainyard plan");
        changed.given = NULL;
        changed.workload = options->given == NULL ? options->workload : NULL;
        add_question(&changed, &again);
        ty_text_add(&again, " ");
        ty_plan_add_question(suggestion.plan, &again);
        if (!again.failed)
            print_stderr("trainyard: try:   %s --fix %s", again.data, suggestion.plan->fix);
        ty_text_clear(&again);
    }
    if (options->json) {
        put_infeasible(options, q->stack, error, &suggestion, text);
        if (print_text(text) != EXIT_DONE)
            code = EXIT_FAILED;
    }
    ty_suggestion_clear(&suggestion);
    return code;
}

/* Warns if sizes of the plan are outside the measured range. */
static void warn_of_outside(const ty_plan *plan)
{
    uint32_t smallest, largest;
    char least[32], most[32];

    if (!(plan->most_step_time_s > 0))
        return;
    ty_format_seconds(plan->least_step_time_s, least);
    ty_format_seconds(plan->most_step_time_s, most);
    if (ty_profile_micro_batches(plan->profile, &smallest, &largest) &&
        (plan->micro_batch_size > largest || plan->micro_batch_size < smallest))
        print_stderr("trainyard: warning: the step rests on times outside what was measured (a "
                     "micro-batch is of %u; measured: %u to %u): between %s and %s",
                     plan->micro_batch_size, smallest, largest, least, most);
    else
        print_stderr("trainyard: warning: the step rests on times outside what was measured (of "
                     "messages, updates or compression): between %s and %s",
                     least, most);
}

static void warn_of_uneven(const ty_plan *plan)
{
    for (int kind = 0; kind < TY_IMBALANCE_COUNT; kind++) {
        ty_text text = {0};
        ty_print_uneven(plan, (ty_imbalance_kind)kind, &text);
        if (text.length > 0 && !text.failed)
            print_stderr("trainyard: warning: %s", text.data);
        ty_text_clear(&text);
    }
}

/* Warns if the framework in --stack has launch files of its own ("megatron", also for
 * "megatron-2021") that cannot express the plan. */
static void warn_of_launch(const cli_options *options, const ty_plan *plan,
                           const ty_cluster *cluster)
{
    const ty_launch_input input = {.plan = plan, .cluster = cluster, .version = TY_VERSION};
    const char *target;
    ty_launch_files *files = NULL;
    ty_error refusal = {0};

    if (options->stack == NULL || plan->stack == NULL)
        return;
    for (uint32_t i = 0; (target = ty_launch_target(i, NULL)) != NULL; i++) {
        const size_t length = strlen(target);
        if (strncmp(plan->stack->name, target, length) == 0 &&
            strchr("-", plan->stack->name[length]) != NULL)
            break;
    }
    if (target != NULL && ty_launch(target, &input, &files, &refusal) == TY_EUNSUPPORTED)
        print_stderr("trainyard: warning: no launch files for this plan: %s", refusal.message);
    ty_launch_free(files);
}

/* Below this share, compression has no bottleneck to remove. */
#define NOTABLE_EXCHANGE 0.05

/* Names the configuration file in errors about its pins, which the user did not type. */
static void name_config(const cli_options *options, ty_error *error)
{
    const ty_error plain = *error;

    if (options->given != NULL && strncmp(plain.message, "--fix", strlen("--fix")) == 0)
        (void)ty_fail(error, plain.status, "%s, as %s", options->training_config, plain.message);
}

/* @param step_time_s [out] of the plan; unchanged without one */
static exit_code plan_question(const cli_options *options, double *step_time_s)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    ty_text text = {0}, words = {0};
    ty_question question;
    const ty_watch watch = watch_from(options);

    if (question_from(options, TY_USUAL_TOP, &question, &error) != TY_OK ||
        ty_question_open(&question, &watch, &q, &error) != TY_OK) {
        name_config(options, &error);
        return report_bad_input(&error);
    }
    note_names(options);
    interrupts_catch();
    if (ty_question_plan(&question, &q, &watch, &plan, &error) != TY_OK) {
        name_config(options, &error);
        code = refuse(options, &question, &q, &watch, &error, &text);
        goto cleanup;
    }
    if (ty_question_imbalance(&question, &q, &watch, plan, &error) != TY_OK ||
        (options->output != NULL && ty_plan_save(plan, options->output, &error) != TY_OK) ||
        (options->candidates != NULL &&
         write_candidates(plan, options->candidates, &error) != TY_OK)) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (!options->quiet) {
        warn_of_outside(plan);
        warn_of_uneven(plan);
        warn_of_launch(options, plan, q.cluster);
    }
    if (options->json) {
        ty_json_writer writer = ty_json_writer_on(&text);
        ty_plan_to_json(plan, &writer, NULL);
        ty_text_add(&text, "\n");
    } else if (options->output == NULL || strcmp(options->output, "-") != 0) {
        add_question(options, &words);
        ty_print_plan(plan, q.cluster, words.data, &text);
        if (ty_plan_summary(plan)->exposed_collective_share >= NOTABLE_EXCHANGE &&
            add_crossovers(&q, plan, &text, &error) != TY_OK) {
            code = report_failure(&error);
            goto cleanup;
        }
    }
    *step_time_s = ty_plan_summary(plan)->step_time_s;
    code = options->json ? print_text(&text) : print_answer(&text);
    if (code == EXIT_DONE && interrupted(NULL)) {
        print_stderr("trainyard: interrupted: this is the best plan found so far");
        code = EXIT_INTERRUPTED;
    }

cleanup:
    ty_text_clear(&words);
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    return code;
}

/* ---- A training program's file as the question ------------------------------------------------
 */

/* Plans the same model and batch with an open layout, to show a faster plan. */
static exit_code plan_without_layout(const cli_options *options, double step_time_s)
{
    ty_question_inputs q = {0};
    ty_question question;
    ty_plan *plan = NULL;
    ty_error error = {0};
    ty_text text = {0};
    char seconds[32];
    const ty_watch watch = watch_from(options);
    exit_code code = EXIT_DONE;
    ty_status status;

    if (question_from(options, TY_USUAL_TOP, &question, &error) != TY_OK ||
        ty_question_open(&question, &watch, &q, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    status = ty_question_plan(&question, &q, &watch, &plan, &error);
    if (status == TY_EINFEASIBLE && step_time_s > 0) { /* the file's may use the memory reserve */
        print_stderr("trainyard: note: with the layout left open, %s", error.message);
        goto cleanup;
    }
    if (status != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    ty_text_add(&text, "\nWith the layout left open\n");
    ty_print_layout(plan, &text);
    ty_format_seconds(ty_plan_summary(plan)->step_time_s, seconds);
    ty_text_addf(&text, "Step time   %s", seconds);
    if (step_time_s > 0)
        ty_text_addf(&text, ", %.2f of the file's",
                     ty_plan_summary(plan)->step_time_s / step_time_s);
    ty_text_add(&text, "\n");
    code = print_text(&text);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    return code;
}

/* Number of devices in the question; 0: open. */
static ty_status count_devices(const cli_options *options, uint32_t *out, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status;

    *out = 0;
    if (options->cluster == NULL || ty_cluster_is_local(options->cluster, out))
        return TY_OK;
    status = ty_cluster_open(options->cluster, NULL, &cluster, error);
    if (status == TY_OK)
        *out = ty_cluster_device_count(cluster);
    ty_cluster_free(cluster);
    return status;
}

/* Appends the user's pins to those of the file. */
static void add_pins(const cli_options *options, ty_text *fix)
{
    if (options->fix != NULL)
        ty_text_addf(fix, "%s%s", fix->length > 0 ? "," : "", options->fix);
}

/* @param bounds [out] limits of the plans that the file's program can run */
static ty_status load_config(const cli_options *options, ty_training_config *config,
                             ty_workload **again, ty_text *fix, ty_text *bounds, ty_error *error)
{
    ty_training_config second = {0};
    uint32_t devices;
    ty_status status;

    TY_CHECK(ty_training_config_load(options->training_config, options->workload,
                                     options->vocabulary, config, error),
             status, cleanup);
    TY_CHECK(count_devices(options, &devices, error), status, cleanup);
    if (devices > 0 && options->global_batch == 0)
        TY_CHECK(ty_training_config_settle(config, devices, error), status, cleanup);
    if (devices > 0)
        TY_CHECK(ty_training_config_buckets(config, devices, error), status, cleanup);
    TY_CHECK(ty_training_config_fix(config, fix, error), status, cleanup);
    TY_CHECK(ty_training_config_bounds(config, bounds, error), status, cleanup);
    add_pins(options, fix);
    add_pins(options, bounds);
    TY_CHECK(ty_text_check(fix, error), status, cleanup);
    TY_CHECK(ty_text_check(bounds, error), status, cleanup);
    TY_CHECK(ty_training_config_load(options->training_config, options->workload,
                                     options->vocabulary, &second, error),
             status, cleanup);
    *again = second.workload;
    second.workload = NULL; /* ownership passed on */

cleanup:
    ty_training_config_clear(&second);
    return status;
}

/* Answers the options without --config. @param step_time_s [out] 0: no plan */
typedef exit_code answer_function(const cli_options *options, double *step_time_s);

/* The answer for the configuration of --config. `plan` also answers it without its layout. */
static exit_code answer_config(const cli_options *options, const char *command,
                               answer_function *answer)
{
    cli_options own = *options;
    ty_training_config config = {0};
    ty_workload *again = NULL;
    ty_text fix = {0}, bounds = {0}, stack = {0};
    ty_error error = {0};
    double step_time_s = 0;
    uint32_t ranks;
    exit_code code, open_code;

    if (options->sequence > 0)
        return report_usage(command, "--config and --seq: the file says the sequence");
    if (load_config(options, &config, &again, &fix, &bounds, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    if (!options->quiet) {
        print_stderr("trainyard: %s: %s: %s, %s", options->training_config, config.format,
                     config.workload->name, fix.length > 0 ? fix.data : "no layout");
        for (uint32_t i = 0; i < config.report.note_count; i++)
            print_stderr("trainyard: note: %s", config.report.notes[i]);
    }
    own.given = &config.workload;
    own.fix = fix.length > 0 ? fix.data : NULL;
    own.precision = options->precision != NULL ? options->precision : config.precision;
    if (own.global_batch == 0)
        own.global_batch = config.global_batch;
    if (own.stack == NULL && own.system == NULL &&
        !ty_cluster_is_local(own.cluster != NULL ? own.cluster : "", &ranks)) {
        if (config.switches.length > 0) /* after the name */
            ty_text_addf(&stack, "%s %s", config.stack, config.switches.data);
        own.stack = config.switches.length > 0 ? stack.data : config.stack;
    } else if (config.switches.length > 0 && !options->quiet)
        print_stderr("trainyard: note: %s not used: the software is not the file's",
                     config.switches.data);
    code = answer(&own, &step_time_s);
    if ((code != EXIT_DONE && code != EXIT_NO_PLAN) || options->json || own.fix == NULL ||
        answer != plan_question)
        goto cleanup;
    own.given = &again;
    own.fix = bounds.length > 0 ? bounds.data : NULL;
    open_code = plan_without_layout(&own, step_time_s);
    code = code == EXIT_DONE ? open_code : code;

cleanup:
    ty_workload_free(again);
    ty_text_clear(&bounds);
    ty_text_clear(&fix);
    ty_text_clear(&stack);
    ty_training_config_clear(&config);
    return code;
}

static exit_code answer_options(const cli_options *options, const char *command,
                                answer_function *answer)
{
    double step_time_s;

    if (options->training_config == NULL && options->vocabulary > 0)
        return report_usage(command, "--vocabulary belongs to --config; for others write "
                                     "'FILE vocabulary=N'");
    if (options->phases != NULL)
        return phased_plan(options);
    return options->training_config != NULL ? answer_config(options, command, answer)
                                            : answer(options, &step_time_s);
}

exit_code cmd_plan(const cli_options *options)
{
    return answer_options(options, "plan", plan_question);
}

static void memory_to_json(const ty_plan *plan, ty_text *text)
{
    ty_json_writer w = document_open("trainyard.memory/1", text);

    ty_json_put_string(&w, "workload", plan->workload->name);
    ty_json_put_string(&w, "cluster", plan->cluster_name);
    ty_json_put_string(&w, "stack", plan->stack->name);
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
    list_close(true, &w);
}

static exit_code memory_question(const cli_options *options, double *step_time_s)
{
    exit_code code;
    ty_error error = {0};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    ty_text text = {0};
    ty_question question;
    const ty_watch watch = watch_from(options);

    *step_time_s = 0;
    if (question_from(options, 0, &question, &error) != TY_OK ||
        ty_question_open(&question, &watch, &q, &error) != TY_OK)
        return report_bad_input(&error);
    note_names(options);
    interrupts_catch();
    if (ty_question_plan(&question, &q, &watch, &plan, &error) != TY_OK) {
        code = refuse(options, &question, &q, &watch, &error, &text);
        goto cleanup;
    }
    if (options->json) {
        memory_to_json(plan, &text);
    } else {
        ty_print_stack_name(plan->stack, &text);
        ty_print_memory(plan, &text);
    }
    code = print_text(&text);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
    return code;
}

exit_code cmd_memory(const cli_options *options)
{
    return answer_options(options, "memory", memory_question);
}
