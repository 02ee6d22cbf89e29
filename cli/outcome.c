/* End of a command: messages, exit codes, interrupts. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static exit_code code_of(ty_status status)
{
    static const exit_code codes[] = {
        [TY_OK] = EXIT_DONE,          [TY_EINVAL] = EXIT_USAGE,
        [TY_ENOMEM] = EXIT_FAILED,    [TY_EIO] = EXIT_FAILED,
        [TY_EPARSE] = EXIT_BAD_INPUT, [TY_EINFEASIBLE] = EXIT_NO_PLAN,
        [TY_ELIMIT] = EXIT_FAILED,    [TY_EUNSUPPORTED] = EXIT_FAILED,
        [TY_EBACKEND] = EXIT_FAILED,  [TY_EINTERRUPTED] = EXIT_INTERRUPTED,
    };
    return codes[status];
}

/* Color only on a terminal, and never if NO_COLOR (no-color.org) is set. */
static bool is_coloured(FILE *stream)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return (none == NULL || none[0] == '\0') && terminal != NULL && strcmp(terminal, "dumb") != 0 &&
           isatty(fileno(stream));
}

/* Receivers of ty_command, which runs one command at a time. NULL: the terminal. */
static const cli_audience *heard_by;

void audience_set(const cli_audience *audience)
{
    heard_by = audience;
}

void print_stderr(const char *format, ...)
{
    va_list arguments;
    char line[1024];

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (heard_by == NULL)
        fprintf(stderr, "%s\n", line);
    else if (heard_by->note != NULL)
        heard_by->note(heard_by->context, line);
}

exit_code report_failure(const ty_error *error)
{
    const char *word = is_coloured(stderr) ? "\033[1;31merror:\033[0m " : "error: ";

    if (heard_by != NULL) {
        ty_text_add(heard_by->message, error->message);
        return code_of(error->status);
    }
    if (error->message[0] != '\0')
        fprintf(stderr, "trainyard: %s%s\n", error->status == TY_EINTERRUPTED ? "" : word,
                error->message);
    return code_of(error->status);
}

exit_code report_bad_input(const ty_error *error)
{
    exit_code code = report_failure(error);
    return error->status == TY_EIO ? EXIT_BAD_INPUT : code;
}

exit_code report_usage(const char *command, const char *format, ...)
{
    va_list arguments;

    if (heard_by != NULL) {
        char line[1024];
        va_start(arguments, format);
        vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        ty_text_add(heard_by->message, line);
        return EXIT_USAGE;
    }
    fputs("trainyard: ", stderr);
    if (command != NULL)
        fprintf(stderr, "%s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, " (see trainyard %s%s--help)\n", command != NULL ? command : "",
            command != NULL ? " " : "");
    return EXIT_USAGE;
}

ty_json_writer document_open(const char *schema, ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", schema);
    return w;
}

void document_close(ty_json_writer *w)
{
    ty_json_close(w, '}');
    ty_text_add(w->text, "\n");
}

ty_json_writer list_open(bool is_json, const char *schema, const char *array, ty_text *text)
{
    ty_json_writer w = is_json ? document_open(schema, text) : ty_json_writer_on(text);

    if (is_json)
        ty_json_open(&w, array, '[');
    return w;
}

void list_close(bool is_json, ty_json_writer *w)
{
    if (!is_json)
        return;
    ty_json_close(w, ']');
    document_close(w);
}

ty_status add_file(const char *path, ty_text *text, ty_error *error)
{
    char *bytes = NULL;
    size_t length;
    const ty_status status = ty_file_read(path, 0, &bytes, &length, error);

    if (status == TY_OK)
        ty_text_append(text, bytes, length);
    ty_free(bytes);
    return status;
}

ty_status path_in(const char *directory, const char *name, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_status status;

    ty_text_addf(&text, "%s%s%s", directory != NULL ? directory : "", directory != NULL ? "/" : "",
                 name);
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

const char *suggestion(const char *word, const void *names, size_t count, size_t stride,
                       char out[SUGGESTION_SIZE])
{
    const char *close = ty_suggest(word, names, count, stride);

    out[0] = '\0';
    if (close != NULL)
        snprintf(out, SUGGESTION_SIZE, "; did you mean '%s'?", close);
    return out;
}

ty_status save_text(const char *path, ty_text *text, ty_error *error)
{
    const ty_status status = ty_file_write_text(path, text, error);

    ty_text_clear(text);
    return status;
}

void csv_text(ty_text *csv, const char *text)
{
    ty_text_add(csv, "\"");
    for (const char *c = text; *c != '\0'; c++)
        ty_text_append(csv, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    ty_text_add(csv, "\"");
}

void print_interval(const char *label, const ty_interval *i, double unit, const char *name,
                    ty_text *text)
{
    ty_text_addf(text, "%-11s %.3g %s (%.3g to %.3g)\n", label, i->expected / unit, name,
                 i->low / unit, i->high / unit);
}

exit_code print_text(ty_text *text)
{
    ty_error error = {0};
    char *string = NULL;
    exit_code code = EXIT_DONE;

    if (heard_by != NULL) {
        if (ty_text_check(text, &error) == TY_OK)
            ty_text_append(heard_by->answer, text->data, text->length);
        else
            code = report_failure(&error);
        ty_text_clear(text);
        return code;
    }
    if (ty_text_take(text, &string, &error) != TY_OK)
        return report_failure(&error);
    errno = 0;
    if (fputs(string, stdout) == EOF || fflush(stdout) == EOF) {
        ty_fail(&error, TY_EIO, "standard output: %s", strerror(errno));
        code = report_failure(&error);
    }
    ty_free(string);
    return code;
}

#define BOLD "\033[1m"
#define WARNING "\033[33m"
#define PLAIN "\033[0m"
#define LABEL_COLUMNS 12
static const char tight[] = "a tight fit";

/* A label begins a line and ends before two blanks or the line's end. */
static size_t label_length(const char *line, size_t length)
{
    for (size_t i = 0; i < length && i <= LABEL_COLUMNS; i++)
        if (line[i] == ' ' && (i + 1 == length || line[i + 1] == ' '))
            return i;
    return length < LABEL_COLUMNS ? length : 0;
}

exit_code print_answer(ty_text *text)
{
    ty_text styled = {0};
    const char *line = text->data;

    if (heard_by != NULL || !is_coloured(stdout) || text->failed || line == NULL)
        return print_text(text);
    while (*line != '\0') {
        const size_t length = strcspn(line, "\n");
        const bool has_label = *line >= 'A' && *line <= 'Z';
        const size_t bold = line == text->data ? length
                            : has_label        ? label_length(line, length)
                                               : 0;
        const char *end = line + length, *rest = line + bold, *warning = strstr(rest, tight);
        if (bold > 0) {
            ty_text_add(&styled, BOLD);
            ty_text_append(&styled, line, bold);
            ty_text_add(&styled, PLAIN);
        }
        if (warning != NULL && warning < end) {
            ty_text_append(&styled, rest, (size_t)(warning - rest));
            ty_text_addf(&styled, WARNING "%s" PLAIN, tight);
            rest = warning + strlen(tight);
        }
        ty_text_append(&styled, rest, (size_t)(end - rest));
        ty_text_add(&styled, "\n");
        line = *end == '\n' ? end + 1 : end;
    }
    ty_text_clear(text);
    *text = styled;
    return print_text(text);
}

exit_code deliver_text(const char *path, ty_text *text)
{
    ty_error error = {0};

    if (path == NULL)
        return print_text(text);
    return save_text(path, text, &error) == TY_OK ? EXIT_DONE : report_failure(&error);
}

static volatile sig_atomic_t interrupt_count;

static void count_interrupt(int number)
{
    (void)number;
    interrupt_count++;
}

void interrupts_catch(void)
{
    struct sigaction action = {.sa_handler = count_interrupt};

    if (heard_by != NULL) /* the caller of the library handles signals */
        return;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void *unused)
{
    (void)unused;
    if (heard_by != NULL)
        return heard_by->should_stop != NULL && heard_by->should_stop(heard_by->context);
    return interrupt_count > 0;
}

bool interrupted_again(void *unused)
{
    (void)unused;
    return interrupt_count > 1;
}
