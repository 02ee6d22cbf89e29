/* trainyard validate: predictions against published measurements. */
#include "cli.h"

exit_code cmd_validate(const cli_options *options)
{
    exit_code code;
    ty_error error = {0};
    ty_validation *validation = NULL;
    ty_text text = {0};

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
