/* trainyard compare, trainyard report: prediction and measurement side by side. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Everything both commands look at. */
typedef struct findings {
    plan_inputs inputs;
    ty_timeline *estimated, *simulated;
    ty_run *run;               /* NULL: not measured */
    ty_comparison *comparison; /* NULL: not measured */
} findings;

static void findings_clear(findings *f)
{
    ty_comparison_free(f->comparison);
    ty_run_free(f->run);
    ty_timeline_free(f->simulated);
    ty_timeline_free(f->estimated);
    plan_inputs_clear(&f->inputs);
}

static ty_status findings_read(const char *plan_path, const char *run_path, findings *f,
                               ty_error *error)
{
    ty_status status = TY_OK;
    ty_digest digest;

    TY_CHECK(plan_inputs_load(plan_path, &f->inputs, error), status, done);
    if (run_path == NULL)
        return TY_OK;
    TY_CHECK(ty_run_load(run_path, &f->run, error), status, done);
    TY_CHECK(ty_plan_digest(f->inputs.plan, &digest, error), status, done);
    if (strcmp(digest.hex, f->run->plan_digest.hex) != 0)
        return ty_fail(error, TY_EPARSE,
                       "%s:/plan_digest: found %.12s..., expected %.12s... of %s: the run is of "
                       "another plan",
                       run_path, f->run->plan_digest.hex, digest.hex, plan_path);
    TY_CHECK(
        ty_timeline_check(f->inputs.plan, f->inputs.program, f->run->timeline, run_path, error),
        status, done);
done:
    return status;
}

static ty_status findings_make(findings *f, ty_error *error)
{
    ty_status status = TY_OK;
    ty_simulate_options how = ty_simulate_options_default();
    const plan_inputs *in = &f->inputs;

    TY_CHECK(ty_estimate(in->plan, in->program, in->costs,
                         3 + 2 * ty_program_largest_lead(in->program), &f->estimated, error),
             status, done);
    TY_CHECK(ty_simulate(in->plan, in->program, in->costs, in->cluster, &how, &f->simulated, error),
             status, done);
    if (f->run != NULL)
        TY_CHECK(ty_compare(in->plan, in->program, f->simulated, f->run, &f->comparison, error),
                 status, done);
done:
    return status;
}

/* "5%" or "5" */
static bool parse_percentage(const char *text, double *out)
{
    char sign, after;
    int read = sscanf(text, "%lf%c%c", out, &sign, &after);

    return (read == 1 || (read == 2 && sign == '%')) && *out >= 0 && isfinite(*out);
}

exit_code cmd_compare(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    findings f = {0};
    ty_text text = {0};
    double limit = 0;

    if (options->fail_over != NULL && !parse_percentage(options->fail_over, &limit))
        return report_usage("compare", "--fail-over: found '%s', expected a percentage as in 5%%",
                            options->fail_over);
    if (findings_read(options->files[0], options->files[1], &f, &error) != TY_OK) {
        code = report_bad_input(&error);
    } else if (findings_make(&f, &error) != TY_OK) {
        code = report_failure(&error);
    } else {
        if (options->json) {
            ty_json_writer w = ty_json_writer_on(&text);
            ty_comparison_to_json(f.inputs.plan, f.comparison, &w, NULL);
            ty_text_add(&text, "\n");
        } else {
            ty_print_comparison(f.inputs.plan, f.comparison, &text);
        }
        code = print_text(&text);
        if (code == EXIT_DONE && options->fail_over != NULL &&
            fabs(f.comparison->step_time_error) * 100 > limit)
            code = EXIT_FAILED;
    }
    ty_text_clear(&text);
    findings_clear(&f);
    return code;
}

exit_code cmd_report(const cli_options *options)
{
    exit_code code = EXIT_DONE;
    ty_error error = {0};
    findings f = {0};
    ty_text html = {0};
    ty_text command_line = {0};
    char *page = NULL;
    const char *run_path = options->file_count > 1 ? options->files[1] : NULL;

    if (options->output == NULL)
        return report_usage("report", "needs -o FILE");
    if (findings_read(options->files[0], run_path, &f, &error) != TY_OK) {
        code = report_bad_input(&error);
        goto cleanup;
    }
    ty_text_addf(&command_line, "trainyard report %s%s%s -o %s", options->files[0],
                 run_path != NULL ? " " : "", run_path != NULL ? run_path : "", options->output);
    if (findings_make(&f, &error) != TY_OK ||
        ty_report_html(&(ty_report_input){.title = options->title,
                                          .plan = f.inputs.plan,
                                          .program = f.inputs.program,
                                          .estimated = f.estimated,
                                          .simulated = f.simulated,
                                          .run = f.run,
                                          .comparison = f.comparison,
                                          .command = command_line.data},
                       &html, &error) != TY_OK ||
        ty_text_take(&html, &page, &error) != TY_OK ||
        ty_file_write(options->output, page, strlen(page), &error) != TY_OK)
        code = report_failure(&error);

cleanup:
    ty_free(page);
    ty_text_clear(&command_line);
    ty_text_clear(&html);
    findings_clear(&f);
    return code;
}
