/* trainyard export: writes the launch files of a plan. */
#include "cli.h"
#include "ty_base.h"
#include "ty_phases.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define JOB_OUTPUT "run.json" /* output of the job, in the folder of the launch files */

/* ---- Writing ----------------------------------------------------------------------------- */

/* Writes all files or none: existing files are found before the first is written. */
static ty_status refuse_overwriting(const char *directory, const ty_launch_files *files,
                                    ty_error *error)
{
    for (uint32_t i = 0; i < files->count; i++) {
        char *path = NULL;
        ty_status status = path_in(directory, files->files[i].name, &path, error);
        if (status == TY_OK && ty_file_exists(path))
            status = ty_fail(error, TY_EIO, "%s is there already; --force replaces it", path);
        ty_free(path);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

static ty_status write_one(const cli_options *options, const ty_launch_file *file, ty_error *error)
{
    ty_status status = TY_OK;
    char *path = NULL;
    bool is_replaced;

    TY_CHECK(path_in(options->output, file->name, &path, error), status, cleanup);
    is_replaced = ty_file_exists(path);
    TY_CHECK(ty_file_write(path, file->bytes, file->length, error), status, cleanup);
    if (file->is_program && chmod(path, 0755) != 0)
        status = ty_fail(error, TY_EIO, "%s: cannot be made executable", path);
    if (status == TY_OK && !options->quiet)
        print_stderr("%s %s", is_replaced ? "replaced" : "wrote", path);

cleanup:
    ty_free(path);
    return status;
}

static ty_status write_all(const cli_options *options, const ty_launch_files *files,
                           ty_error *error)
{
    ty_status status = TY_OK;

    TY_TRY(ty_directory_make(options->output, error));
    if (!options->force)
        TY_TRY(refuse_overwriting(options->output, files, error));
    for (uint32_t i = 0; i < files->count; i++)
        TY_TRY(write_one(options, &files->files[i], error));
    if (!options->quiet && files->next[0] != '\0') {
        ty_text folder = {0};
        ty_quote_shell(&folder, options->output);
        status = ty_text_check(&folder, error);
        if (status == TY_OK)
            print_stderr("next: cd %s && %s", folder.data, files->next);
        ty_text_clear(&folder);
    }
    return status;
}

static exit_code show_all(const ty_launch_files *files)
{
    ty_text text = {0};

    for (uint32_t i = 0; i < files->count; i++) {
        if (files->files[i].is_binary) {
            ty_text_clear(&text);
            return report_usage("export", "%s is not text; needs -o DIR", files->files[i].name);
        }
        ty_text_addf(&text, "%s==> %s <==\n", i > 0 ? "\n" : "", files->files[i].name);
        ty_text_add(&text, files->files[i].bytes);
    }
    return print_text(&text);
}

/* ---- Making ------------------------------------------------------------------------------ */

/* Backend and precision follow from the plan unless options override them. */
static ty_status choose_backend(const ty_plan_inputs *inputs, cli_options *options, ty_error *error)
{
    const char *precision = ty_launch_precision(inputs->plan, inputs->cluster);

    if (options->backend == NULL)
        options->backend = ty_launch_backend(inputs->plan, inputs->cluster);
    if (options->backend == NULL)
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "--to %s: trainyard-worker runs on processors and on NVIDIA's GPUs; found "
            "%.60s; --backend cpu trains on the processors of their hosts",
            options->to,
            ty_cluster_device_type(inputs->cluster, ty_plan_device_of_replica(inputs->plan, 0))
                ->name);
    if (options->precision == NULL && strcmp(options->backend, "cuda") == 0 &&
        strcmp(precision, "fp32") != 0)
        options->precision = precision;
    return TY_OK;
}

static ty_status write_job(const cli_options *options, const char *target, const char *plan_path,
                           ty_plan_inputs *inputs, ty_text *text, uint32_t *steps, ty_error *error)
{
    ty_status status = TY_OK;
    ty_job *job = NULL;
    cli_options chosen = *options;

    chosen.to = target;
    TY_CHECK(choose_backend(inputs, &chosen, error), status, cleanup);
    TY_CHECK(job_from_options(&chosen, inputs, JOB_OUTPUT, &job, error), status, cleanup);
    *steps = job->steps;
    status = ty_job_to_text(job, plan_path, text, error);
    inputs->plan = job->plan;
    inputs->program = job->program;
    job->plan = NULL;
    job->program = NULL;
    ty_text_add(text, "\n");
    if (status == TY_OK)
        status = ty_text_check(text, error);

cleanup:
    ty_job_free(job);
    return status;
}

ty_status launch_open(const cli_options *options, const char *plan_path, ty_plan_inputs *inputs,
                      const char *target, ty_launch_files **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text job = {0}, command = {0};
    uint32_t steps = (uint32_t)options->steps, ignored;
    uint32_t hosts = ty_cluster_host_count(inputs->cluster);
    const char *nodes = options->nodes;
    char **names = NULL;
    ty_training training = {0};

    TY_CHECK(training_from(options, &training, error), status, cleanup);
    if (nodes == NULL && ty_cluster_is_local(inputs->plan->cluster_name, &ignored))
        nodes = "localhost";
    if (nodes != NULL)
        TY_CHECK(ty_host_names(nodes, hosts, &names, error), status, cleanup);
    if (ty_launch_needs_job(target))
        TY_CHECK(write_job(options, target, plan_path, inputs, &job, &steps, error), status,
                 cleanup);
    ty_text_addf(&command, "trainyard export %s --to %s", plan_path, target);
    if (options->on != NULL)
        ty_text_addf(&command, " --on %s", options->on);
    if (options->checkpoint != NULL)
        ty_text_addf(&command, " --checkpoint %s", options->checkpoint);
    if (options->checkpoint_every != NULL)
        ty_text_addf(&command, " --checkpoint-every %s", options->checkpoint_every);
    if (options->keep_text != NULL)
        ty_text_addf(&command, " --keep %s", options->keep_text);
    TY_CHECK(ty_text_check(&command, error), status, cleanup);
    status = ty_launch(target,
                       &(ty_launch_input){.plan = inputs->plan,
                                          .program = inputs->program,
                                          .costs = inputs->costs,
                                          .cluster = inputs->cluster,
                                          .job = job.data,
                                          .steps = steps,
                                          .host_names = names,
                                          .script = options->script,
                                          .image = options->image,
                                          .on = options->on,
                                          .checkpoint = training.checkpoint,
                                          .checkpoint_every = training.checkpoint_every,
                                          .checkpoint_every_s = training.checkpoint_every_s,
                                          .keep = training.keep,
                                          .rdma = options->rdma,
                                          .command = command.data,
                                          .version = TY_VERSION},
                       out, error);

cleanup:
    ty_names_free(names, hosts);
    ty_text_clear(&job);
    ty_text_clear(&command);
    return status;
}

exit_code cmd_export(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    ty_plan_inputs inputs = {0};
    ty_launch_files *files = NULL;

    if (options->to == NULL)
        return report_usage("export", "needs --to TARGET");
    if (ty_is_phased_plan(options->files[0])) {
        ty_fail(&error, TY_EUNSUPPORTED,
                "--to %s: %.100s has the plans of several phases, which 'trainyard run' trains; "
                "expected one plan: take that of a phase out, as by jq '.phases[0].plan'",
                options->to, options->files[0]);
        return report_failure(&error);
    }
    if (ty_plan_inputs_load(options->files[0], NULL, &watch, &inputs, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_launch_needs_job(options->to) && ty_plan_inputs_of_worker(&inputs, &error) != TY_OK)
        code = report_failure(&error);
    else if (launch_open(options, options->files[0], &inputs, options->to, &files, &error) != TY_OK)
        code = report_failure(&error);
    else if (options->output == NULL || strcmp(options->output, "-") == 0)
        code = show_all(files);
    else if (write_all(options, files, &error) != TY_OK)
        code = report_failure(&error);
    ty_launch_free(files);
    ty_plan_inputs_clear(&inputs);
    return code;
}
