/* Completion for bash, zsh and fish. The program lists names, and keys of --fix with their values;
 * other values are files. */
#include "completion.h"

#include <ctype.h>
#include <string.h>

/* Values that are not files: words, or a command that prints them. */
static const struct {
    const char *option, *words, *command;
} values[] = {
    {"workload", NULL, "trainyard workload list --quiet"},
    {"cluster", NULL, "trainyard cluster list --quiet"},
    {"stack", NULL, "trainyard stack list --quiet"},
    {"to", NULL, NULL},  /* the targets of export, and what cluster export writes */
    {"fix", NULL, NULL}, /* each key with each of its values */
    {"engine", "simgrid flow", NULL},
    {"resolution", "flow chunk", NULL},
    {"backend", "cpu cuda replay", NULL},
    {"budget", "sensor microcontroller phone jetson-nano", NULL},
};
#define VALUE_COUNT (sizeof values / sizeof values[0])

/* "pp= dp= ...", or "pp=1 pp=2 ..." */
static void put_fix(bool has_values, ty_text *out)
{
    const char *name;

    for (uint32_t a = 0; (name = ty_axis_name(a)) != NULL; a++) {
        ty_text text = {0};
        if (has_values)
            ty_axis_values((ty_axis)a, &text);
        else
            ty_text_addf(out, "%s= ", name);
        for (const char *at = text.data; at != NULL && *at != '\0'; at += strspn(at, " ")) {
            const size_t length = strcspn(at, " ");
            ty_text_addf(out, "%s=%.*s ", name, (int)length, at);
            at += length;
        }
        ty_text_clear(&text);
    }
}

static void put_words(size_t value, ty_text *out)
{
    const char *target;

    if (values[value].words != NULL) {
        ty_text_add(out, values[value].words);
        return;
    }
    if (strcmp(values[value].option, "fix") == 0) {
        put_fix(true, out);
        return;
    }
    for (uint32_t i = 0; (target = ty_launch_target(i, NULL)) != NULL; i++)
        ty_text_addf(out, "%s ", target);
    ty_text_add(out, "json dot nccl simgrid");
}

static size_t value_of(const option_row *row)
{
    size_t i = 0;

    while (i < VALUE_COUNT && strcmp(values[i].option, row->name) != 0)
        i++;
    return i;
}

/* Adds the verbs of "list | show NAME | export NAME [options]": lowercase words that begin an
 * alternative. @return their number; 0 without alternatives */
static int put_verbs(const cli_command *command, ty_text *out)
{
    int count = 0;

    if (strchr(command->usage, '|') == NULL)
        return 0;
    for (const char *at = command->usage; at != NULL; at = strchr(at, '|')) {
        size_t length;
        at += strspn(at, "| ");
        length = strcspn(at, " |[");
        if (!islower((unsigned char)at[0]))
            continue;
        ty_text_add(out, count++ > 0 ? " " : "");
        ty_text_append(out, at, length);
    }
    return count;
}

static void put_commands(const cli_command *commands, ty_text *out)
{
    for (const cli_command *c = commands; c->name != NULL; c++)
        ty_text_addf(out, "%s%s", c != commands ? " " : "", c->name);
}

/* ---- bash -------------------------------------------------------------------------------- */

static void put_bash_values(ty_text *out)
{
    const option_row *row;

    ty_text_add(out, "    case $previous in\n");
    for (size_t i = 0; (row = option_at(i)) != NULL; i++) {
        size_t v = value_of(row);
        if (row->kind == OPTION_FLAG)
            continue;
        ty_text_addf(out, "        --%s", row->name);
        if (row->letter != 0)
            ty_text_addf(out, " | -%c", row->letter);
        if (v == VALUE_COUNT)
            ty_text_add(out, ") mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return ;;\n");
        else if (values[v].command == NULL) {
            ty_text_add(out, ") mapfile -t COMPREPLY < <(compgen -W '");
            put_words(v, out);
            ty_text_add(out, "' -- \"$current\"); return ;;\n");
        } else
            ty_text_addf(out,
                         ") mapfile -t COMPREPLY < <(compgen -W \"$(%s 2>/dev/null)\" -f -- "
                         "\"$current\"); return ;;\n",
                         values[v].command);
    }
    ty_text_add(out, "    esac\n");
}

/* Completes the last of several pins; readline has split them at their equals signs. */
static void put_bash_fix(ty_text *out)
{
    ty_text_add(out, "    local line=${COMP_LINE:0:COMP_POINT} pins='");
    put_fix(false, out);
    ty_text_add(out, "'\n    local word=${line##* } before=${line% *}\n"
                     "    if [ \"${before##* }\" = --fix ]; then\n"
                     "        [[ ${word##*,} != *=* ]] || pins='");
    put_fix(true, out);
    ty_text_add(out,
                "'\n        mapfile -t COMPREPLY < <(compgen -P \"${word%\"${word##*,}\"}\" "
                "-W \"$pins\" -- \"${word##*,}\")\n"
                "        [[ $word != *=* ]] || COMPREPLY=(\"${COMPREPLY[@]#\"${word%=*}=\"}\")\n"
                "        compopt -o nospace 2>/dev/null\n        return\n    fi\n");
}

void completion_bash(const cli_command *commands, ty_text *out)
{
    const option_row *row;

    ty_text_add(out, "# bash completion for trainyard\n_trainyard()\n{\n"
                     "    local current=${COMP_WORDS[COMP_CWORD]} words verbs=\n"
                     "    local previous=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
                     "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                     "        mapfile -t COMPREPLY < <(compgen -W '");
    put_commands(commands, out);
    ty_text_add(out, " help --help --version' -- \"$current\")\n        return\n    fi\n"
                     "    if [ \"$command\" = help ]; then\n"
                     "        mapfile -t COMPREPLY < <(compgen -W '");
    put_commands(commands, out);
    ty_text_add(out, "' -- \"$current\")\n        return\n    fi\n");
    put_bash_fix(out);
    put_bash_values(out);
    ty_text_add(out, "    case $command in\n");
    for (const cli_command *c = commands; c->name != NULL; c++) {
        const char *between = "";
        ty_text_addf(out, "        %s) words='", c->name);
        for (size_t i = 0; (row = option_at(i)) != NULL; i++)
            if (command_accepts(c, row)) {
                ty_text_addf(out, "%s--%s", between, row->name);
                between = " ";
            }
        ty_text_add(out, "' verbs='");
        put_verbs(c, out);
        ty_text_add(out, "' ;;\n");
    }
    ty_text_add(
        out, "        *) return ;;\n    esac\n"
             "    if [[ $current == -* ]]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
             "    elif [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$verbs\" ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$current\")\n"
             "    else\n        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n    fi\n}\n"
             "complete -o filenames -F _trainyard trainyard\n");
}

/* ---- zsh --------------------------------------------------------------------------------- */

/* Adds help without characters that end single quotes and brackets. */
static void put_plain(ty_text *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        ty_text_append(out, strchr("'[]:\"\\$`", *c) != NULL ? " " : c, 1);
}

static void put_zsh_option(const option_row *row, ty_text *out)
{
    size_t v = value_of(row);

    ty_text_addf(out, " \\\n            '--%s[", row->name);
    put_plain(out, row->help);
    ty_text_add(out, "]");
    if (row->kind != OPTION_FLAG) {
        ty_text_add(out, ":");
        put_plain(out, row->argument);
        if (v == VALUE_COUNT)
            ty_text_add(out, ":_files");
        else if (values[v].command == NULL) {
            ty_text_add(out, ":(");
            put_words(v, out);
            ty_text_add(out, ")");
        } else
            ty_text_addf(out, ":{compadd -- ${(f)\"$(%s 2>/dev/null)\"}; _files}",
                         values[v].command);
    }
    ty_text_add(out, "'");
}

void completion_zsh(const cli_command *commands, ty_text *out)
{
    const option_row *row;

    ty_text_add(out, "#compdef trainyard\nlocal -a commands\ncommands=(\n");
    for (const cli_command *c = commands; c->name != NULL; c++) {
        ty_text_addf(out, "    '%s:", c->name);
        put_plain(out, c->summary);
        ty_text_add(out, "'\n");
    }
    ty_text_add(out, ")\nif (( CURRENT == 2 )); then\n    _describe command commands\n    return\n"
                     "fi\nlocal command=$words[2]\nshift words\n(( CURRENT-- ))\n"
                     "case $command in\n");
    for (const cli_command *c = commands; c->name != NULL; c++) {
        ty_text verbs = {0};
        ty_text_addf(out, "    %s)\n        _arguments", c->name);
        for (size_t i = 0; (row = option_at(i)) != NULL; i++)
            if (command_accepts(c, row))
                put_zsh_option(row, out);
        if (put_verbs(c, &verbs) > 0)
            ty_text_addf(out, " \\\n            '1:action:(%s)'", verbs.data);
        ty_text_add(out, " \\\n            '*:file:_files' ;;\n");
        ty_text_clear(&verbs);
    }
    ty_text_add(out, "esac\n");
}

/* ---- fish -------------------------------------------------------------------------------- */

static void put_fish_option(const cli_command *command, const option_row *row, ty_text *out)
{
    size_t v = value_of(row);

    ty_text_addf(out, "complete -c trainyard -n '__fish_seen_subcommand_from %s' -l %s",
                 command->name, row->name);
    if (row->letter != 0)
        ty_text_addf(out, " -s %c", row->letter);
    if (row->kind != OPTION_FLAG)
        ty_text_add(out, " -r");
    if (v < VALUE_COUNT && values[v].command == NULL) {
        ty_text_add(out, " -a '");
        put_words(v, out);
        ty_text_add(out, "'");
    } else if (v < VALUE_COUNT)
        ty_text_addf(out, " -a '(%s 2>/dev/null)'", values[v].command);
    ty_text_add(out, " -d '");
    put_plain(out, row->help);
    ty_text_add(out, "'\n");
}

void completion_fish(const cli_command *commands, ty_text *out)
{
    const option_row *row;

    ty_text_add(out, "# fish completion for trainyard\n");
    for (const cli_command *c = commands; c->name != NULL; c++) {
        ty_text verbs = {0};
        ty_text_addf(out, "complete -c trainyard -n __fish_use_subcommand -a %s -d '", c->name);
        put_plain(out, c->summary);
        ty_text_add(out, "'\n");
        if (put_verbs(c, &verbs) > 0)
            ty_text_addf(out, "complete -c trainyard -n '__fish_seen_subcommand_from %s' -a '%s'\n",
                         c->name, verbs.data);
        ty_text_clear(&verbs);
        for (size_t i = 0; (row = option_at(i)) != NULL; i++)
            if (command_accepts(c, row))
                put_fish_option(c, row, out);
    }
}
