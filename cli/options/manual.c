/* Man pages from the tables of commands and options. Macros: groff_man(7). */
#include "completion.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Escapes text for roff: backslashes, dots and quotes that would start a request. */
static void put_text(ty_text *out, const char *text)
{
    bool is_line_start = true;

    for (const char *c = text; *c != '\0'; c++) {
        if (is_line_start && (*c == '.' || *c == '\''))
            ty_text_add(out, "\\&");
        if (*c == '\\')
            ty_text_add(out, "\\e");
        else if (*c == '-')
            ty_text_add(out, "\\-");
        else
            ty_text_append(out, c, 1);
        is_line_start = *c == '\n';
    }
}

static void put_head(ty_text *out, const char *suffix, const char *summary)
{
    char upper[40];
    size_t i;

    for (i = 0; suffix[i] != '\0' && i + 1 < sizeof upper; i++)
        upper[i] = (char)toupper((unsigned char)suffix[i]);
    upper[i] = '\0';
    ty_text_addf(out, ".TH TRAINYARD%s%s 1 \"\" \"Trainyard " TY_VERSION "\" \"Trainyard\"\n",
                 suffix[0] != '\0' ? "\\-" : "", upper);
    ty_text_addf(out, ".SH NAME\ntrainyard%s%s \\- ", suffix[0] != '\0' ? "\\-" : "", suffix);
    put_text(out, summary);
    ty_text_add(out, "\n.SH SYNOPSIS\n");
}

static void put_option(ty_text *out, const option_row *row)
{
    ty_text_add(out, ".TP\n\\fB");
    if (row->letter != 0)
        ty_text_addf(out, "\\-%c\\fR, \\fB", row->letter);
    ty_text_add(out, "\\-\\-");
    put_text(out, row->name);
    ty_text_add(out, "\\fR");
    if (row->argument != NULL) {
        ty_text_add(out, " \\fI");
        put_text(out, row->argument);
        ty_text_add(out, "\\fR");
    }
    ty_text_add(out, "\n");
    put_text(out, row->help);
    ty_text_add(out, "\n");
}

static void put_exit_codes(ty_text *out)
{
    static const char *const codes[][2] = {{"0", "done"},
                                           {"1", "failed"},
                                           {"2", "wrong usage"},
                                           {"3", "bad input file; the message has the place"},
                                           {"4", "no feasible plan"},
                                           {"130", "interrupted"}};

    ty_text_add(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        ty_text_addf(out, ".TP\n%s\n%s\n", codes[i][0], codes[i][1]);
}

static void page_of_command(const cli_command *command, ty_text *out)
{
    const option_row *row;

    put_head(out, command->name, command->summary);
    ty_text_addf(out, ".B trainyard %s\n", command->name);
    put_text(out, command->usage);
    ty_text_add(out, "\n");
    if (command->details != NULL) {
        ty_text_add(out, ".SH DESCRIPTION\n.nf\n");
        put_text(out, command->details);
        ty_text_add(out, ".fi\n");
    }
    ty_text_add(out, ".SH OPTIONS\n");
    for (size_t i = 0; (row = option_at(i)) != NULL; i++)
        if (command_accepts(command, row))
            put_option(out, row);
    ty_text_add(out, ".SH EXAMPLES\n.nf\n");
    for (size_t i = 0; example_of(command->name, i) != NULL; i++) {
        put_text(out, example_of(command->name, i));
        ty_text_add(out, "\n");
    }
    ty_text_add(out, ".fi\n");
    put_exit_codes(out);
    ty_text_add(out, ".SH SEE ALSO\n.BR trainyard (1)\n");
}

static void page_of_all(const cli_command *commands, ty_text *out)
{
    put_head(out, "", "plan, simulate and run distributed training of neural networks");
    ty_text_add(out, ".B trainyard\n.I COMMAND\n[options] [files]\n.SH COMMANDS\n");
    for (const cli_command *c = commands; c->name != NULL; c++) {
        ty_text_addf(out, ".TP\n.BR trainyard\\-%s (1)\n", c->name);
        put_text(out, c->summary);
        ty_text_add(out, "\n");
    }
    ty_text_add(
        out, ".SH FILES\n.TP\n/etc/trainyard.conf, ~/.config/trainyard/config, "
             "./trainyard.conf\nDefaults of options; later ones win. See\n"
             ".BR trainyard\\-config (1).\n"
             ".SH ENVIRONMENT\n"
             ".TP\nTRAINYARD_CONFIG\nOne file of defaults in place of those above.\n"
             ".TP\nTRAINYARD_DATA\nWhere the zoo and the catalogue are.\n"
             ".TP\nTRAINYARD_DATASETS\nA folder in which the worker looks for data sets, each in a "
             "folder of its name, before it does where packages put them.\n"
             ".TP\nTRAINYARD_WORKER\nThe worker that run and profile start.\n"
             ".TP\nTRAINYARD_NETWORK\n\\(lqhost\\(rq: local runs stay in this machine's network. "
             "Without it they get one of their own, with nothing but a loopback, where the "
             "system allows it.\n"
             ".TP\nTRAINYARD_START_SECONDS\nHow long mpirun may hang before a run is given up, "
             "while it brings up its ranks or once they have ended: 30 where it is not set, 0 for "
             "ever.\n"
             ".TP\nTRAINYARD_PROFILE_HASTE\nMeasurements of layers and messages take this many "
             "times less time, from 1 to 1000, and are the noisier for it.\n"
             ".TP\nTRAINYARD_SECRET, TRAINYARD_SECRET_FILE\nA secret of a run, or a file of mode "
             "0600 with it, that its ranks prove to each other to have. Without one, run makes "
             "one up.\n"
             ".TP\nNO_COLOR\nSet to anything: no colour on terminals.\n"
             ".TP\nXDG_CACHE_HOME\nWhere measurements of this machine are kept.\n");
    put_exit_codes(out);
}

exit_code manual_generate(const cli_command *commands, int count, char **words)
{
    static const struct {
        const char *name;
        void (*write)(const cli_command *commands, ty_text *out);
    } kinds[] = {{"man", page_of_all},
                 {"bash", completion_bash},
                 {"zsh", completion_zsh},
                 {"fish", completion_fish}};
    ty_text text = {0};

    for (const cli_command *c = commands; count == 2 && c->name != NULL; c++)
        if (strcmp(words[0], "man") == 0 && strcmp(words[1], c->name) == 0) {
            page_of_command(c, &text);
            return print_text(&text);
        }
    for (size_t i = 0; count == 1 && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(words[0], kinds[i].name) == 0) {
            kinds[i].write(commands, &text);
            return print_text(&text);
        }
    return report_usage(NULL, "--generate: expected man [COMMAND], bash, zsh or fish");
}
