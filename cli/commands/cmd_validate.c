/* trainyard validate: predictions against published measurements. */
#include "cli.h"

/* Prints the coverage of prediction intervals on the rows of an evidence file. */
static exit_code judge_evidence(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_evidence *evidence = NULL;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_status status = ty_evidence_load(options->files[0], &evidence, &error);

    if (status == TY_OK)
        status = options->json ? ty_evidence_to_json(evidence, &w, &error)
                               : ty_evidence_print(evidence, &text, &error);
    if (options->json)
        ty_text_add(&text, "\n");
    code = status == TY_OK ? print_text(&text) : report_bad_input(&error);
    ty_text_clear(&text);
    ty_evidence_free(evidence);
    return code;
}

exit_code cmd_validate(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_validation *validation = NULL;
    ty_text text = {0};

    if (ty_is_evidence(options->files[0]))
        return judge_evidence(options);
    if (ty_validation_run(options->files[0], &validation, &error) != TY_OK) {
        code = report_bad_input(&error);
    } else {
        if (options->json) {
            ty_json_writer w = ty_json_writer_on(&text);
            ty_validation_to_json(validation, &w);
            ty_text_add(&text, "\n");
        } else {
            ty_validation_print(validation, &text);
        }
        code = print_text(&text);
    }
    ty_text_clear(&text);
    ty_validation_free(validation);
    return code;
}
