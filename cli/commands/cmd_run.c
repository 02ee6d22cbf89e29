/* trainyard run: trains for real on local ranks. */
#include "cli.h"
#include "ty_phases.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints the run as the worker wrote it, or a summary. */
static ty_status show(const cli_options *options, const char *path, ty_text *text, ty_error *error)
{
    ty_status status;
    ty_run *run = NULL;

    if (options->json)
        return add_file(path, text, error);
    status = ty_run_load(path, &run, error);
    if (status == TY_OK)
        ty_print_run(run, text);
    ty_run_free(run);
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
        TY_CHECK(save_text(options->metrics, &text, error), status, cleanup);
    }
    if (options->mlperf_log != NULL) {
        ty_run_to_mlperf(job->plan, run, &text);
        TY_CHECK(save_text(options->mlperf_log, &text, error), status, cleanup);
    }

cleanup:
    ty_run_free(run);
    return status;
}

exit_code cmd_run(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    ty_plan_inputs inputs = {0};
    ty_job *job = NULL;
    ty_text text = {0};
    char scratch[PATH_MAX] = "";
    const char *output = options->output;
    const ty_watch watch = watch_from(options);

    if (ty_is_phased_plan(options->files[0]))
        return phased_run(options);
    if (ty_plan_inputs_load(options->files[0], NULL, &watch, &inputs, &error) != TY_OK ||
        ty_plan_inputs_of_worker(&inputs, &error) != TY_OK)
        return report_bad_input(&error);
    interrupts_catch();
    if (output == NULL &&
        ty_scratch_file("trainyard-run", scratch, sizeof scratch, &error) == TY_OK)
        output = scratch;
    if (output == NULL ||
        (options->metrics != NULL && ty_file_try(options->metrics, &error) != TY_OK) ||
        (options->mlperf_log != NULL && ty_file_try(options->mlperf_log, &error) != TY_OK) ||
        job_from_options(options, &inputs, output, &job, &error) != TY_OK ||
        machine_check(options, job->plan, job->backend, &error) != TY_OK ||
        ty_worker_run(job, ty_plan_launched_count(job->plan), &watch, &error) != TY_OK)
        code = report_failure(&error);
    if (code == EXIT_DONE || (job != NULL && job->is_kept)) {
        exit_code shown = show(options, output, &text, &error) == TY_OK ? print_text(&text)
                                                                        : report_failure(&error);
        code = code == EXIT_DONE ? shown : code;
    }
    if (code == EXIT_DONE && write_logs(options, job, output, &error) != TY_OK)
        code = report_failure(&error);
    if (scratch[0] != '\0')
        unlink(scratch);
    ty_text_clear(&text);
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);
    return code;
}
