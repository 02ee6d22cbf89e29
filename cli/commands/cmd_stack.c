/* trainyard stack: known frameworks and their constants. */
#include "cli.h"

#include <string.h>

static ty_status list_stacks(const cli_options *options, ty_text *text, ty_error *error)
{
    ty_json_writer w = list_open(options->json, "trainyard.stacks/1", "stacks", text);
    char **names = NULL;
    uint32_t count = 0;
    ty_status status = ty_stack_names(&names, &count, error);

    for (uint32_t i = 0; status == TY_OK && i < count; i++) {
        ty_stack *stack = NULL;
        status = ty_stack_open(names[i], &stack, error);
        if (status != TY_OK)
            break;
        if (options->json) {
            ty_json_open_flat(&w, NULL, '{');
            ty_json_put_string(&w, "name", stack->name);
            ty_json_put_string(&w, "title", stack->title);
            ty_json_put_string(&w, "provenance", ty_provenance_name(stack->provenance));
            ty_json_close(&w, '}');
        } else if (options->quiet) {
            ty_text_addf(text, "%s\n", names[i]);
        } else {
            ty_text_addf(text, "%-24s %s\n", stack->name, stack->title);
        }
        ty_stack_free(stack);
    }
    list_close(options->json, &w);
    ty_names_free(names, count);
    return status;
}

static ty_status show_stack(const cli_options *options, ty_text *text, ty_error *error)
{
    ty_json_writer w = ty_json_writer_on(text);
    ty_stack *stack = NULL;

    TY_TRY(ty_stack_open(options->files[1], &stack, error));
    if (options->json) {
        ty_stack_to_json(stack, &w, NULL);
        ty_text_add(text, "\n");
    } else {
        ty_print_stack(stack, text);
    }
    ty_stack_free(stack);
    return TY_OK;
}

exit_code cmd_stack(const cli_options *options)
{
    static const char *const verbs[] = {"list", "show"};
    const char *verb = options->files[0];
    char meant[SUGGESTION_SIZE];
    const bool is_list = strcmp(verb, "list") == 0;
    ty_error error = {0};
    ty_text text = {0};
    ty_status status;

    if (!is_list && strcmp(verb, "show") != 0)
        return report_usage("stack", "found '%s', expected list or show%s", verb,
                            suggestion(verb, verbs, 2, sizeof verbs[0], meant));
    if (is_list == (options->file_count > 1))
        return report_usage("stack", is_list ? "list takes no name" : "show needs a name");
    status = is_list ? list_stacks(options, &text, &error) : show_stack(options, &text, &error);
    if (status == TY_OK)
        return deliver_text(options->output, &text);
    ty_text_clear(&text);
    return report_bad_input(&error);
}
