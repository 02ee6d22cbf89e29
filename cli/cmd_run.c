/* trainyard run: trains for real on local ranks. */
#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USUAL_STEPS 60
#define WARMUP_STEPS 10
#define TIMELINE_STEPS 20
#define EVALUATE_EVERY 50
#define STEPS_WHEN_UNTIL 100000

static ty_status until_prepare(const cli_options *options, ty_job *job, ty_error *error)
{
    ty_error detail = {0};

    if (options->until == NULL)
        return options->evaluate_every == 0
                   ? TY_OK
                   : ty_fail(error, TY_EINVAL,
                             "--evaluate-every: found without --until, expected a target");
    if (ty_target_parse(options->until, &job->until, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "--until: %s", detail.message);
    job->evaluate_every =
        options->evaluate_every > 0 ? (uint32_t)options->evaluate_every : EVALUATE_EVERY;
    if (options->steps == 0)
        job->steps = STEPS_WHEN_UNTIL;
    return TY_OK;
}

static ty_status checkpoint_prepare(const cli_options *options, ty_job *job, ty_error *error)
{
    if (options->checkpoint == NULL && (options->checkpoint_every > 0 || options->resume))
        return ty_fail(error, TY_EINVAL, "--%s: found without --checkpoint, expected the folder",
                       options->resume ? "resume" : "checkpoint-every");
    job->checkpoint = ty_strdup(options->checkpoint);
    job->checkpoint_every = (uint32_t)options->checkpoint_every;
    job->resume = options->resume;
    if (options->checkpoint != NULL && job->checkpoint == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    return TY_OK;
}

/* What replay lets every instruction take: as long as it was predicted to, but for what lanes
 * exchange meanwhile, which is played. */
static ty_status times_copy(const ty_costs *costs, ty_job *job, ty_error *error)
{
    job->instruction_s = ty_job_times(job->program);
    if (job->instruction_s == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < costs->stage_count; s++)
        for (uint32_t i = 0; i < costs->instruction_counts[s]; i++)
            job->instruction_s[s][i] =
                costs->instructions[s][i].seconds - costs->instructions[s][i].inner_s;
    return TY_OK;
}

ty_status job_from_options(const cli_options *options, plan_inputs *inputs, const char *output,
                           ty_job **out, ty_error *error)
{
    ty_job *job = ty_alloc(1, sizeof *job);
    ty_status status;

    if (job == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    job->kind = TY_JOB_TRAIN;
    job->plan = inputs->plan;
    job->program = inputs->program;
    inputs->plan = NULL;
    inputs->program = NULL;
    job->backend = ty_strdup(options->backend != NULL ? options->backend : "cpu");
    job->precision = ty_strdup(options->precision);
    job->data = ty_strdup(options->data);
    job->output = ty_strdup(output);
    job->steps = (uint32_t)(options->steps > 0 ? options->steps : USUAL_STEPS);
    status = until_prepare(options, job, error);
    if (status != TY_OK) {
        ty_job_free(job);
        return status;
    }
    job->warmup_steps = job->steps > 2 * WARMUP_STEPS ? WARMUP_STEPS : job->steps / 4;
    job->timeline_steps = job->steps - job->warmup_steps;
    if (job->timeline_steps > TIMELINE_STEPS)
        job->timeline_steps = TIMELINE_STEPS;
    status = job->backend == NULL || job->output == NULL
                 ? ty_fail(error, TY_ENOMEM, "out of memory")
                 : checkpoint_prepare(options, job, error);
    if (status == TY_OK && strcmp(job->backend, "replay") == 0)
        status = times_copy(inputs->costs, job, error);
    if (status != TY_OK) {
        ty_job_free(job);
        return status;
    }
    *out = job;
    return TY_OK;
}

/* The run as the worker wrote it, or a summary for people. */
static ty_status show(const cli_options *options, const char *path, ty_text *text, ty_error *error)
{
    ty_status status;
    ty_run *run = NULL;

    if (options->json) {
        char *bytes = NULL;
        size_t length;
        status = ty_file_read(path, 0, &bytes, &length, error);
        if (status == TY_OK)
            ty_text_append(text, bytes, length);
        ty_free(bytes);
        return status;
    }
    status = ty_run_load(path, &run, error);
    if (status == TY_OK)
        ty_print_run(run, text);
    ty_run_free(run);
    return status;
}

static ty_status write_text(const char *path, ty_text *text, ty_error *error)
{
    const ty_status status = ty_file_write_text(path, text, error);

    ty_text_clear(text);
    return status;
}

/* --metrics, --mlperf-log */
static ty_status write_logs(const cli_options *options, const ty_job *job, const char *path,
                            ty_error *error)
{
    ty_status status = TY_OK;
    ty_run *run = NULL;
    ty_text text = {0};

    if (options->metrics == NULL && options->mlperf_log == NULL)
        return TY_OK;
    TY_CHECK(ty_run_load(path, &run, error), status, cleanup);
    if (options->metrics != NULL) {
        ty_run_to_metrics(job->plan, run, &text);
        TY_CHECK(write_text(options->metrics, &text, error), status, cleanup);
    }
    if (options->mlperf_log != NULL) {
        ty_run_to_mlperf(job->plan, run, &text);
        TY_CHECK(write_text(options->mlperf_log, &text, error), status, cleanup);
    }

cleanup:
    ty_run_free(run);
    return status;
}

static ty_status logs_try(const cli_options *options, ty_error *error)
{
    ty_status status = TY_OK;

    if (options->metrics != NULL)
        TY_CHECK(ty_file_try(options->metrics, error), status, done);
    if (options->mlperf_log != NULL)
        status = ty_file_try(options->mlperf_log, error);
done:
    return status;
}

exit_code cmd_run(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    plan_inputs inputs = {0};
    ty_job *job = NULL;
    ty_text text = {0};
    char scratch[PATH_MAX] = "";
    const char *output = options->output;

    if (plan_inputs_load(options->files[0], &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (output == NULL && scratch_file("trainyard-run", scratch, sizeof scratch, &error) == TY_OK)
        output = scratch;
    if (output == NULL || logs_try(options, &error) != TY_OK ||
        job_from_options(options, &inputs, output, &job, &error) != TY_OK ||
        worker_run(job, ty_plan_process_count(job->plan), options->quiet, &error) != TY_OK ||
        write_logs(options, job, output, &error) != TY_OK ||
        show(options, output, &text, &error) != TY_OK)
        code = report_failure(&error);
    else
        code = print_text(&text);
    if (scratch[0] != '\0')
        unlink(scratch);
    ty_text_clear(&text);
    ty_job_free(job);
    plan_inputs_clear(&inputs);
    return code;
}
