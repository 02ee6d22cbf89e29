/* Parsing and help, from the table of options. */
#include "option_table.h"

#include <stdlib.h>
#include <string.h>

static const option_row *find(const cli_command *command, const char *name, size_t length,
                              char letter)
{
    static const char synonym[] = "framework";
    const option_row *row;

    if (name != NULL && length == strlen(synonym) && memcmp(name, synonym, length) == 0)
        return find(command, "stack", strlen("stack"), 0);
    for (size_t i = 0; (row = option_at(i)) != NULL; i++) {
        bool is_match = letter != 0
                            ? row->letter == letter
                            : strlen(row->name) == length && memcmp(row->name, name, length) == 0;
        if (is_match && command_accepts(command, row))
            return row;
    }
    return NULL;
}

/* Names of our options in other programs. */
static const struct {
    const char *word, *option;
} said_elsewhere[] = {
    {"model", "workload"},      {"network", "workload"},   {"gpus", "cluster"},
    {"nodes", "cluster"},       {"batch", "global-batch"}, {"batch-size", "global-batch"},
    {"seq-len", "seq"},         {"seq-length", "seq"},     {"sequence", "seq"},
    {"sequence-length", "seq"}, {"dtype", "precision"},    {"out", "output"},
    {"output-file", "output"},
};

static exit_code unknown_option(const cli_command *command, const char *word)
{
    const char *names[MOST_OPTIONS];
    const option_row *row;
    size_t count = 0;
    const char *close;
    char bare[32];

    if (strncmp(word, "--", 2) != 0) { /* "-w=lenet", "-wlenet" */
        row = find(command, NULL, 0, word[1]);
        if (row != NULL && row->argument != NULL)
            return report_usage(command->name,
                                "unknown option '%s'; did you mean '-%c %s', with a blank?", word,
                                word[1], word + 2 + strspn(word + 2, "="));
        return report_usage(command->name, "unknown option '%s'", word);
    }
    for (size_t i = 0; (row = option_at(i)) != NULL; i++)
        if (command_accepts(command, row))
            names[count++] = row->name;
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    close = ty_suggest(bare, names, count, sizeof names[0]);
    for (size_t i = 0; i < sizeof said_elsewhere / sizeof said_elsewhere[0]; i++)
        if (strcmp(bare, said_elsewhere[i].word) == 0 &&
            find(command, said_elsewhere[i].option, strlen(said_elsewhere[i].option), 0) != NULL)
            close = said_elsewhere[i].option;
    if (close != NULL)
        return report_usage(command->name, "unknown option '%s'; did you mean '--%s'?", word,
                            close);
    for (char *at = bare; *at != '\0'; at++) /* keys of --fix have underscores */
        *at = *at == '-' ? '_' : *at;
    if (ty_axis_find(bare) != TY_AXIS_COUNT && find(command, "fix", strlen("fix"), 0) != NULL)
        return report_usage(command->name, "unknown option '%s'; did you mean '--fix %s=...'?",
                            word, bare);
    return report_usage(command->name, "unknown option '%s'", word);
}

/* Reports an argument too many. The shell may have split the value before it at a blank, or it is
 * the missing workload or cluster. */
static exit_code unexpected_argument(const cli_command *command, const cli_options *options,
                                     const option_row *before, const char *value)
{
    const char *word = options->files[command->maximum_files];
    const char *missing = NULL;

    if (before != NULL && (strcmp(before->name, "fix") == 0 || before->kind == OPTION_VARY)) {
        const size_t length = strlen(value);
        return report_usage(command->name,
                            "unexpected argument '%s'; values are one word, with commas: --%s "
                            "'%s%s%s'",
                            word, before->name, value,
                            length > 0 && value[length - 1] == ',' ? "" : ",", word);
    }
    if (before != NULL &&
        ((strcmp(before->name, "cluster") == 0 &&
          (strspn(value, "0123456789x") == strlen(value) || strpbrk(word, ":@") != NULL)) ||
         (strcmp(before->name, "workload") == 0 && strchr(word, '=') != NULL)))
        return report_usage(command->name,
                            "unexpected argument '%s'; words that belong together are quoted: "
                            "--%s '%s %s%s'",
                            word, before->name, value, word,
                            options->file_count > command->maximum_files + 1 ? " ..." : "");
    if (options->workload == NULL && find(command, "workload", strlen("workload"), 0) != NULL)
        missing = "workload";
    else if (options->cluster == NULL && find(command, "cluster", strlen("cluster"), 0) != NULL)
        missing = "cluster";
    if (missing != NULL && strcmp(command->name, missing) != 0)
        return report_usage(command->name, "unexpected argument '%s'; a %s is given as --%s '%s'",
                            word, missing, missing, word);
    return report_usage(command->name, "unexpected argument '%s'", word);
}

/* Parses one word that starts with '-'; it may take the next word as its value.
 * @param taken [out] the option whose value the next word was; NULL: none */
static exit_code parse_option(const cli_command *command, int count, char **words, int *at,
                              const option_row **taken, cli_options *out)
{
    const char *word = words[*at];
    bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t length = equals != NULL ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const option_row *row = is_long ? find(command, word + 2, length, 0)
                                    : (word[2] == '\0' ? find(command, NULL, 0, word[1]) : NULL);

    *taken = NULL;
    if (row == NULL)
        return unknown_option(command, word);
    if (row->kind == OPTION_FLAG) {
        if (equals != NULL)
            return report_usage(command->name, "--%s takes no value", row->name);
        return option_set(command, row, NULL, out);
    }
    if (equals != NULL)
        return option_set(command, row, equals + 1, out);
    if (*at + 1 >= count)
        return report_usage(command->name, "--%s needs a value: %s", row->name, row->argument);
    *taken = row;
    return option_set(command, row, words[++*at], out);
}

/* Reports a name in place of a plan's file, as in "run lenet". */
static exit_code check_plan_name(const cli_command *command, const cli_options *options)
{
    static const char plan[] = "PLAN ";
    ty_error error = {0};

    if (strncmp(command->usage, plan, sizeof plan - 1) != 0 ||
        strpbrk(options->files[0], "./") != NULL || strcmp(options->files[0], "-") == 0 ||
        ty_file_exists(options->files[0]))
        return EXIT_DONE;
    ty_fail(&error, TY_EIO,
            "%s: found no such file, expected that of a plan, which trainyard plan -w W -c C -o "
            "FILE writes",
            options->files[0]);
    return report_bad_input(&error);
}

exit_code options_parse(const cli_command *command, int count, char **words, cli_options *out)
{
    exit_code code = EXIT_DONE;
    bool only_files = false;
    const option_row *last = NULL,
                     *before = NULL; /* option whose value precedes an argument too many */
    const char *value = NULL;

    out->files = ty_alloc((size_t)count + 1, sizeof *out->files);
    if (out->files == NULL)
        return report_failure(&(ty_error){TY_ENOMEM, "out of memory"});
    for (int i = 0; i < count && code == EXIT_DONE; i++) {
        if (!only_files && strcmp(words[i], "--") == 0)
            only_files = true;
        else if (!only_files && words[i][0] == '-' && words[i][1] != '\0')
            code = parse_option(command, count, words, &i, &last, out);
        else {
            if (out->file_count == command->maximum_files && i > 0) {
                before = last;
                value = words[i - 1];
            }
            out->files[out->file_count++] = words[i];
            last = NULL;
        }
    }
    if (code != EXIT_DONE || out->help)
        return code;
    if ((code = config_apply(command, out)) != EXIT_DONE)
        return code;
    if (out->file_count < command->minimum_files)
        return report_usage(command->name, "needs %s", command->usage);
    if (out->file_count > command->maximum_files)
        return unexpected_argument(command, out, before, value);
    return check_plan_name(command, out);
}

void options_clear(cli_options *options)
{
    ty_free(options->files);
    config_free(options->config);
    options->files = NULL;
    options->config = NULL;
}

/* Prints `text` from column `column` on, with line breaks at spaces before column 80. */
static void print_wrapped(FILE *stream, const char *text, int column)
{
    int at = column;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > 79) {
            fprintf(stream, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', stream);
            at++;
        }
        fprintf(stream, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

static void print_option(FILE *stream, const option_row *row)
{
    char left[64];
    int width;

    if (row->letter != 0)
        width =
            snprintf(left, sizeof left, "-%c, --%s%s%s", row->letter, row->name,
                     row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
    else
        width =
            snprintf(left, sizeof left, "    --%s%s%s", row->name, row->argument != NULL ? " " : "",
                     row->argument != NULL ? row->argument : "");
    fprintf(stream, "  %s%*s", left, width < 28 ? 28 - width : 1, "");
    print_wrapped(stream, row->help, 30);
}

void options_help_all(const cli_command *commands, FILE *stream)
{
    fputs("usage: trainyard COMMAND [options] [files]\n\n", stream);
    for (const cli_command *c = commands; c->name != NULL; c++) {
        fprintf(stream, "  %-10s", c->name);
        print_wrapped(stream, c->summary, 12);
    }
    fputs("\nDefaults come from /etc/trainyard.conf, ~/.config/trainyard/config and\n"
          "./trainyard.conf: see trainyard config.\n"
          "trainyard help COMMAND tells more, with examples; trainyard -V the version.\n"
          "Exit codes: 0 done, 1 failed, 2 usage, 3 bad input, 4 no feasible plan,\n"
          "130 interrupted.\n",
          stream);
}

void options_help(const cli_command *command, FILE *stream)
{
    const option_row *row;

    fprintf(stream, "usage: trainyard %s %s\n\n", command->name, command->usage);
    print_wrapped(stream, command->summary, 0);
    fputc('\n', stream);
    for (size_t i = 0; (row = option_at(i)) != NULL; i++)
        if (command_accepts(command, row))
            print_option(stream, row);
    if (command->details != NULL)
        fprintf(stream, "\n%s", command->details);
    for (size_t i = 0; example_of(command->name, i) != NULL; i++)
        fprintf(stream, "%s  %s\n", i == 0 ? "\nFor example:\n" : "", example_of(command->name, i));
}
