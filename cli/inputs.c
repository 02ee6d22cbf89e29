/* Converts options to the questions, trainings and watches of study/. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_RATE 1e6 /* as in plans */

/* ---- Questions ----------------------------------------------------------------------------- */

static ty_status parse_length(const char *name, const char *text, double *out, ty_error *error)
{
    ty_error detail = {0};

    if (text == NULL || ty_parse_count(text, out, &detail) == TY_OK)
        return TY_OK;
    return ty_fail(error, TY_EINVAL, "--%s: %s", name, detail.message);
}

ty_status cost_from(const cli_options *options, ty_cost_question *out, ty_error *error)
{
    *out = (ty_cost_question){.steps = (double)options->steps, .price = options->price};
    TY_TRY(parse_length("tokens", options->tokens, &out->tokens, error));
    TY_TRY(parse_length("epochs", options->epochs, &out->epochs, error));
    return ty_cost_question_check(out, error);
}

ty_status question_from(const cli_options *options, uint32_t usual_top, ty_question *out,
                        ty_error *error)
{
    ty_question question = {.workload = options->workload,
                            .given = options->given,
                            .cluster = options->cluster,
                            .profile = options->profile,
                            .profile_device = options->profile_device,
                            .stack = options->stack,
                            .fix = options->fix,
                            .against = options->against,
                            .input = options->input,
                            .budget = options->budget,
                            .memory_reserve = options->memory_reserve,
                            .precision = options->precision,
                            .optimizer = options->optimizer,
                            .system = options->system,
                            .objective = options->objective,
                            .task = options->task,
                            .global_batch = (uint32_t)options->global_batch,
                            .sequence = options->sequence,
                            .seed = options->seed,
                            .top = options->top > 0 ? (uint32_t)options->top : usual_top,
                            .allow_lossy = options->allow_lossy,
                            .is_fastest = options->fastest};
    char after;

    if (usual_top == 0 || options->no_simulate)
        question.top = 0;
    if (usual_top > 0) /* other commands run steps and do not price them */
        TY_TRY(cost_from(options, &question.cost, error));
    if (options->learning_rate != NULL &&
        (sscanf(options->learning_rate, "%lf%c", &question.learning_rate, &after) != 1 ||
         !(question.learning_rate > 0) || question.learning_rate > LARGEST_RATE))
        return ty_fail(error, TY_EINVAL,
                       "--learning-rate: found '%s', expected a number above 0 and up to %g",
                       options->learning_rate, LARGEST_RATE);
    *out = question;
    return TY_OK;
}

static void note_cluster(const char *typed)
{
    ty_cluster *cluster = NULL;
    char *line = NULL;
    uint32_t devices, hosts;

    if (ty_cluster_is_local(typed, &hosts) || ty_file_exists(typed) ||
        ty_cluster_line(typed, &line, NULL) != TY_OK)
        return;
    if (strcmp(line, typed) != 0 &&
        (strncmp(line, "1x ", 3) != 0 || strcmp(line + 3, typed) != 0) &&
        ty_cluster_open(line, NULL, &cluster, NULL) == TY_OK) {
        devices = ty_cluster_device_count(cluster);
        hosts = ty_cluster_host_count(cluster);
        print_stderr("trainyard: note: cluster \"%s\" taken as %s: %u device%s on %u host%s", typed,
                     line, devices, devices == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
    }
    ty_cluster_free(cluster);
    ty_free(line);
}

void note_names(const cli_options *options)
{
    char *meant = NULL;
    bool is_guess;

    if (options->quiet)
        return;
    if (options->workload != NULL && options->given == NULL &&
        ty_zoo_name(options->workload, &meant, &is_guess, NULL) == TY_OK && is_guess)
        print_stderr("trainyard: note: workload \"%s\" taken as %s", options->workload, meant);
    ty_free(meant);
    if (options->cluster != NULL)
        note_cluster(options->cluster);
}

static void print_note(void *context, const char *line)
{
    (void)context;
    /* An interrupt leaves the cursor after ^C, in a line of progress. */
    print_stderr("%s%s", interrupted(NULL) ? "\n" : "", line);
}

ty_watch watch_from(const cli_options *options)
{
    return (ty_watch){.should_stop = interrupted,
                      .should_stop_now = interrupted_again,
                      .note = options->quiet ? NULL : print_note};
}

ty_status question_open(const cli_options *options, ty_question_inputs *out, ty_error *error)
{
    const ty_watch watch = watch_from(options);
    ty_question question;
    ty_status status = question_from(options, 0, &question, error);

    return status == TY_OK ? ty_question_open(&question, &watch, out, error) : status;
}

/* ---- Trainings ----------------------------------------------------------------------------- */

/* "100" steps, or "10min". */
static ty_status interval_from(const char *text, ty_training *out, ty_error *error)
{
    const size_t digits = strspn(text, "0123456789");
    ty_error why = {0};

    if (digits > 0 && digits < 10 && text[digits] == '\0' && strtoul(text, NULL, 10) > 0) {
        out->checkpoint_every = (uint32_t)strtoul(text, NULL, 10);
        return TY_OK;
    }
    if (digits < strlen(text) && ty_parse_seconds(text, &out->checkpoint_every_s, &why) == TY_OK &&
        out->checkpoint_every_s > 0)
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "--checkpoint-every: found '%.40s', expected steps or a time, such as 100 or "
                   "10min",
                   text);
}

ty_status training_from(const cli_options *options, ty_training *out, ty_error *error)
{
    ty_training training = {.backend = options->backend,
                            .precision = options->precision,
                            .data = options->data,
                            .steps = (uint32_t)options->steps,
                            .evaluate_every = (uint32_t)options->evaluate_every,
                            .checkpoint = options->checkpoint,
                            .keep = (uint32_t)options->keep,
                            .resume = options->resume,
                            .init = options->init,
                            .deterministic = options->deterministic,
                            .save_weights = options->save_weights,
                            .bad_samples = (uint32_t)options->bad_samples};
    ty_error detail = {0};

    if (options->until == NULL && options->evaluate_every > 0)
        return ty_fail(error, TY_EINVAL,
                       "--evaluate-every: found without --until, expected a target");
    if (options->until != NULL &&
        ty_target_parse(options->until, &training.until, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "--until: %s", detail.message);
    if (options->checkpoint == NULL &&
        (options->checkpoint_every != NULL || options->keep > 0 || options->resume))
        return ty_fail(error, TY_EINVAL, "--%s: found without --checkpoint, expected the folder",
                       options->resume     ? "resume"
                       : options->keep > 0 ? "keep"
                                           : "checkpoint-every");
    if (options->checkpoint_every != NULL)
        TY_TRY(interval_from(options->checkpoint_every, &training, error));
    if (options->init != NULL && options->resume)
        return ty_fail(error, TY_EINVAL,
                       "--init: found with --resume, which resumes from the weights of a "
                       "checkpoint; expected one of them");
    *out = training;
    return TY_OK;
}

ty_status job_from_options(const cli_options *options, ty_plan_inputs *inputs, const char *output,
                           ty_job **out, ty_error *error)
{
    ty_training training;
    ty_status status = training_from(options, &training, error);

    return status == TY_OK ? ty_training_job(&training, inputs, output, out, error) : status;
}

/* Ranks run on this machine's cores, or on its GPUs, which the worker checks. */
ty_status machine_check(const cli_options *options, const ty_plan *plan, const char *backend,
                        ty_error *error)
{
    uint32_t ranks;

    if (options->anyway || (backend != NULL && strcmp(backend, "cpu") != 0) ||
        ty_cluster_is_local(plan->cluster_name, &ranks))
        return TY_OK;
    return ty_fail(error, TY_EINVAL,
                   "a plan for %.80s, not for this machine, whose cores would train its %u "
                   "ranks: say --anyway, plan with -c local, or let --backend replay run it",
                   plan->cluster_name, ty_plan_launched_count(plan));
}

ty_status collective_from(const cli_options *options, ty_collective_kind *kind, ty_error *error)
{
    const char *name = options->collective;

    *kind = TY_COLLECTIVE_COUNT;
    if (name == NULL)
        return TY_OK;
    for (int k = 0; k < TY_COLLECTIVE_COUNT; k++)
        if (strcmp(name, ty_collective_name((ty_collective_kind)k)) == 0) {
            *kind = (ty_collective_kind)k;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL,
                   "--collective: found '%s', expected all_reduce, all_gather, reduce_scatter, "
                   "broadcast, reduce, all_to_all or send_receive",
                   name);
}

void print_import_report(const char *path, const ty_import_report *report)
{
    print_stderr("trainyard: %s: %s", path, report->format);
    for (uint32_t i = 0; i < report->note_count; i++)
        print_stderr("trainyard: note: %s", report->notes[i]);
}
