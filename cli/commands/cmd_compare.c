/* trainyard compare: prediction and measurement side by side. */
#include "cli.h"
#include "ty_phases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "5%" or "5" */
static bool parse_percentage(const char *text, double *out)
{
    char sign, after;
    int read = sscanf(text, "%lf%c%c", out, &sign, &after);

    return (read == 1 || (read == 2 && sign == '%')) && *out >= 0 && isfinite(*out);
}

/* Predicts steps and time to the run's target, if it has one and its task is known. */
static ty_status predict_target(const cli_options *options, plan_results *f, ty_error *error)
{
    const ty_plan_inputs *in = &f->inputs;
    ty_target_comparison *t = &f->comparison->target;
    ty_score score = {0};
    ty_status status = TY_OK;

    if (!ty_target_is_set(&t->until))
        return options->task == NULL
                   ? TY_OK
                   : ty_fail(error, TY_EINVAL,
                             "--task: the run had no target, expected one made with --until");
    TY_CHECK(ty_plan_score(in->plan, in->cluster, options->task, NULL, &score, error), status,
             cleanup);
    t->is_predicted = score.has_target;
    interval_spread(score.samples_to_target, 1.0 / in->plan->global_batch, t->predicted_steps);
    interval_spread(score.time_to_target_s, 1, t->predicted_s);

cleanup:
    ty_score_clear(&score);
    return status;
}

exit_code cmd_compare(const cli_options *options)
{
    exit_code code;
    const ty_watch watch = watch_from(options);
    ty_error error = {0};
    plan_results f = {0};
    ty_text text = {0};
    double limit = 0;

    if (ty_is_phased_plan(options->files[0]))
        return phased_compare(options);
    if (options->fail_over != NULL && !parse_percentage(options->fail_over, &limit))
        return report_usage("compare", "--fail-over: found '%s', expected a percentage as in 5%%",
                            options->fail_over);
    if (plan_results_read(options->files[0], options->files[1], &watch, &f, &error) != TY_OK) {
        code = report_bad_input(&error);
    } else if (f.run->timeline == NULL) {
        ty_fail(&error, TY_EPARSE,
                "%s:/timeline: found none, expected one: this run recorded no step",
                options->files[1]);
        code = report_bad_input(&error);
    } else if (plan_results_make(&f, &error) != TY_OK) {
        code = report_failure(&error);
    } else if (predict_target(options, &f, &error) != TY_OK) {
        code = report_bad_input(&error);
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
    plan_results_clear(&f);
    return code;
}
