/* trainyard demo: the whole loop once, on this machine, in about a minute. */
#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define DEMO_WORKLOAD "lenet"
#define DEMO_CLUSTER "local:2"
#define DEMO_STEPS 400

static void headline(const char *text)
{
    printf("\n== %s\n", text);
    fflush(stdout);
}

exit_code cmd_demo(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    struct {
        char *plan, *run, *report;
    } files = {0};
    const char *const in = options->directory, *plan_and_run[2];
    cli_options step;
    char worker[PATH_MAX];

    if (ty_worker_path(worker, &error) != TY_OK ||
        (in != NULL && ty_directory_make(in, &error) != TY_OK) ||
        path_in(in, "plan.json", &files.plan, &error) != TY_OK ||
        path_in(in, "run.json", &files.run, &error) != TY_OK ||
        path_in(in, "report.html", &files.report, &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    interrupts_catch();

    headline("Measure this machine and plan " DEMO_WORKLOAD " for two local ranks");
    step = (cli_options){.workload = DEMO_WORKLOAD,
                         .cluster = DEMO_CLUSTER,
                         .output = files.plan,
                         .seed = 1,
                         .quiet = options->quiet};
    if ((code = cmd_plan(&step)) != EXIT_DONE)
        goto cleanup;

    headline("Train it for real on Fashion-MNIST");
    plan_and_run[0] = files.plan;
    plan_and_run[1] = files.run;
    step = (cli_options){.files = plan_and_run,
                         .file_count = 1,
                         .steps = options->steps > 0 ? options->steps : DEMO_STEPS,
                         .data = options->data,
                         .output = files.run,
                         .quiet = options->quiet};
    if ((code = cmd_run(&step)) != EXIT_DONE)
        goto cleanup;

    headline("Predicted against measured");
    step = (cli_options){.files = plan_and_run, .file_count = 2};
    if ((code = cmd_compare(&step)) != EXIT_DONE)
        goto cleanup;

    step.output = files.report;
    if ((code = cmd_report(&step)) != EXIT_DONE)
        goto cleanup;
    printf("\nWrote %s, %s and %s.\n", files.plan, files.run, files.report);

cleanup:
    ty_free(files.plan);
    ty_free(files.run);
    ty_free(files.report);
    return code;
}
