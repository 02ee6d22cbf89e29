/* trainyard compare: prediction and measurement side by side. */
#include "cli.h"

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
