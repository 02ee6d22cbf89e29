/* Defaults from files, and trainyard config. */
#include "option_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGEST_CONFIG_BYTES (1u << 20)

typedef struct setting {
    const char *path; /* owned by the configuration */
    unsigned line;
    const cli_command *command; /* NULL: every command that has the option */
    const option_row *row;
    const char *value; /* in the file's text */
    bool is_trusted;   /* file of the system or the user, or in $TRAINYARD_CONFIG */
} setting;

struct cli_config {
    const cli_command *commands;
    char *paths[3], *texts[3]; /* existing files */
    uint32_t file_count;
    setting *settings; /* in order; a later one takes precedence */
    uint32_t count;
};

/* Options of a single call, such as its outputs; files cannot set them. */
static const char *const of_one_call[] = {
    "help",    "output",     "force", "trace",       "candidates",   "directory",
    "metrics", "mlperf-log", "title", "show-origin", "trust-config", "save-weights"};

/* Options that change the task of a command; only its own setting may have them. */
static const struct {
    const char *command, *option;
} of_the_command[] = {
    {"calibrate", "stack"}, {"plan", "steps"}, {"whatif", "steps"}, {"score", "steps"}};

/* Options that an untrusted ./trainyard.conf cannot set. */
static const char *const of_the_trusted[] = {"script", "image"};

void config_free(cli_config *config)
{
    if (config == NULL)
        return;
    for (uint32_t f = 0; f < config->file_count; f++) {
        ty_free(config->paths[f]);
        ty_free(config->texts[f]);
    }
    ty_free(config->settings);
    ty_free(config);
}

static char *trim(char *text)
{
    size_t length;

    text += strspn(text, " \t\r");
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

static bool may_be_set(const option_row *row)
{
    if (row->kind == OPTION_VARY)
        return false;
    for (size_t i = 0; i < sizeof of_one_call / sizeof of_one_call[0]; i++)
        if (strcmp(row->name, of_one_call[i]) == 0)
            return false;
    return true;
}

/* ---- Reading ----------------------------------------------------------------------------- */

static ty_status fail_key(const setting *s, const char *key, ty_error *error)
{
    const char *names[MOST_OPTIONS];
    char meant[SUGGESTION_SIZE];
    const option_row *row;
    size_t count = 0;

    for (size_t i = 0; (row = option_at(i)) != NULL; i++)
        if (may_be_set(row))
            names[count++] = row->name;
    return ty_fail(error, TY_EPARSE, "%s:%u: found key '%.60s', expected an option's name%s",
                   s->path, s->line, key, suggestion(key, names, count, sizeof names[0], meant));
}

/* Parses "top" or "plan.top". */
static ty_status read_key(const cli_command *commands, setting *s, char *key, ty_error *error)
{
    char *dot = strchr(key, '.');

    if (dot != NULL) {
        *dot = '\0';
        for (const cli_command *c = commands; c->name != NULL; c++)
            if (strcmp(c->name, key) == 0)
                s->command = c;
        if (s->command == NULL)
            return ty_fail(error, TY_EPARSE,
                           "%s:%u: found '%.60s.', expected a command before the "
                           "dot",
                           s->path, s->line, key);
        key = dot + 1;
    }
    s->row = option_named(key);
    if (s->row == NULL || !may_be_set(s->row))
        return fail_key(s, key, error);
    if (s->command != NULL && !command_accepts(s->command, s->row))
        return ty_fail(error, TY_EPARSE, "%s:%u: found '%.60s', expected an option of %s", s->path,
                       s->line, key, s->command->name);
    return TY_OK;
}

static ty_status read_value(setting *s, char *value, ty_error *error)
{
    uint64_t number;
    ty_error detail = {0};

    s->value = value;
    if (s->row->kind == OPTION_FLAG && strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return ty_fail(error, TY_EPARSE, "%s:%u: found '%.60s', expected true or false", s->path,
                       s->line, value);
    if (value[0] == '\0')
        return ty_fail(error, TY_EPARSE, "%s:%u: %s: found no value, expected %s", s->path, s->line,
                       s->row->name, s->row->argument);
    if (s->row->kind == OPTION_NUMBER &&
        ty_parse_uint(value, strcmp(s->row->name, "seed") == 0 ? 0 : 1, s->row->maximum, &number,
                      &detail) != TY_OK)
        return ty_fail(error, TY_EPARSE, "%s:%u: %s: %.200s", s->path, s->line, s->row->name,
                       detail.message);
    return TY_OK;
}

/* Whether a component of a path is a symbolic link out of the folder. A dangling link counts, since
 * a write may create its target; a missing file does not. */
static bool is_linked_out(const char *part, const char *folder)
{
    const size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    struct stat found;
    char *real;
    bool is_out;

    if (lstat(part, &found) != 0)
        return errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG;
    real = realpath(part, NULL);
    is_out = real == NULL || strncmp(real, folder, length) != 0 ||
             (real[length] != '/' && real[length] != '\0');
    free(real);
    return is_out;
}

/* Whether a path leaves the folder, by its components or by existing links. */
static bool leads_out(const char *value)
{
    char *folder, *path;
    bool is_out = false;

    if (value[0] == '/' || value[0] == '~')
        return true;
    for (const char *part = value; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    folder = realpath(".", NULL);
    path = ty_strdup(value);
    is_out = folder == NULL || path == NULL;
    for (char *end = path; !is_out && end != NULL;) {
        end = strchr(end, '/');
        if (end != NULL)
            *end = '\0';
        is_out = is_linked_out(path, folder);
        if (end != NULL)
            *end++ = '/';
    }
    ty_free(path);
    free(folder);
    return is_out;
}

/* Whether a device file in a cluster's line leaves it: "host:1 gpu:8 @../mine.json nvlink4
 * ndr400". */
static bool device_leads_out(const char *value)
{
    bool is_out = false;

    for (const char *at = strchr(value, '@'); at != NULL && !is_out; at = strchr(at + 1, '@')) {
        char *path = ty_strndup(at + 1, strcspn(at + 1, "{] \t"));
        is_out = path == NULL || leads_out(path);
        ty_free(path);
    }
    return is_out;
}

static ty_status check_trust(const setting *s, ty_error *error)
{
    bool is_refused =
        s->row->kind == OPTION_TEXT && (leads_out(s->value) || device_leads_out(s->value));

    for (size_t i = 0; i < sizeof of_the_trusted / sizeof of_the_trusted[0]; i++)
        is_refused = is_refused || strcmp(s->row->name, of_the_trusted[i]) == 0;
    if (!is_refused)
        return TY_OK;
    return ty_fail(error, TY_EPARSE,
                   "%s:%u: %s: found '%.60s', expected no script, image or path outside in the "
                   "file of a folder; --trust-config takes it",
                   s->path, s->line, s->row->name, s->value);
}

static ty_status read_line(cli_config *config, setting *s, char *line, ty_error *error)
{
    char *equals;
    setting *grown;

    line = trim(line);
    if (line[0] == '\0' || line[0] == '#')
        return TY_OK;
    equals = strchr(line, '=');
    if (equals == NULL)
        return ty_fail(error, TY_EPARSE, "%s:%u: found '%.60s', expected KEY = VALUE", s->path,
                       s->line, line);
    *equals = '\0';
    TY_TRY(read_key(config->commands, s, trim(line), error));
    TY_TRY(read_value(s, trim(equals + 1), error));
    if (!s->is_trusted)
        TY_TRY(check_trust(s, error));
    grown = ty_resize(config->settings, (size_t)config->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    config->settings = grown;
    grown[config->count++] = *s;
    return TY_OK;
}

static ty_status read_file(cli_config *config, const char *path, bool is_trusted, ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t f = config->file_count;
    char *text = NULL, *next;
    const char *content;
    size_t length;
    unsigned number = 1;

    TY_TRY(ty_file_read(path, LARGEST_CONFIG_BYTES, &text, &length, error));
    config->paths[f] = ty_strdup(path);
    config->texts[f] = text;
    config->file_count++;
    TY_TRY(ty_check_memory(config->paths[f] != NULL, error));
    if (strlen(text) < length) {
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
            number++;
        return ty_fail(error, TY_EPARSE, "%s:%u: found a NUL byte, expected text", path, number);
    }
    content = text;
    ty_skip_mark(&content, &length);
    for (char *line = text + (content - text); line != NULL && status == TY_OK;
         line = next, number++) {
        setting s = {.path = config->paths[f], .line = number, .is_trusted = is_trusted};
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        status = read_line(config, &s, line, error);
    }
    return status;
}

static ty_status config_read(const cli_command *commands, bool trusts_all, cli_config **out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    const char *only = getenv("TRAINYARD_CONFIG"), *home = getenv("HOME");
    const char *folder = getenv("XDG_CONFIG_HOME");
    ty_text user = {0};
    cli_config *config = ty_alloc(1, sizeof *config);

    TY_TRY(ty_check_memory(config != NULL, error));
    config->commands = commands;
    if (only != NULL) {
        TY_CHECK(read_file(config, only, true, error), status, cleanup);
    } else {
        if (folder != NULL && folder[0] != '\0')
            ty_text_addf(&user, "%s/trainyard/config", folder);
        else
            ty_text_addf(&user, "%s/.config/trainyard/config", home != NULL ? home : "");
        TY_CHECK(ty_text_check(&user, error), status, cleanup);
        const char *const paths[] = {"/etc/trainyard.conf", user.data, "trainyard.conf"};
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
            if (ty_file_exists(paths[i]))
                TY_CHECK(read_file(config, paths[i], trusts_all || i < 2, error), status, cleanup);
    }
    *out = config;
    config = NULL;

cleanup:
    config_free(config);
    ty_text_clear(&user);
    return status;
}

/* ---- Applying ---------------------------------------------------------------------------- */

static bool is_for_all(const cli_command *command, const option_row *row)
{
    for (size_t i = 0; i < sizeof of_the_command / sizeof of_the_command[0]; i++)
        if (strcmp(of_the_command[i].command, command->name) == 0 &&
            strcmp(of_the_command[i].option, row->name) == 0)
            return false;
    return true;
}

/* Setting that a command uses: the last of its own, else the last for all commands. */
static const setting *setting_of(const cli_config *config, const cli_command *command,
                                 const option_row *row)
{
    const setting *found = NULL;

    for (uint32_t i = 0; i < config->count; i++) {
        const setting *s = &config->settings[i];
        if (s->row == row &&
            (s->command == command || (s->command == NULL && is_for_all(command, row) &&
                                       (found == NULL || found->command == NULL))))
            found = s;
    }
    return found;
}

exit_code config_apply(const cli_command *command, cli_options *options)
{
    ty_error error = {0};
    const option_row *row;
    const setting *s;
    exit_code code = EXIT_DONE;

    if (config_read(options->commands, options->trust_config, &options->config, &error) != TY_OK)
        return report_bad_input(&error);
    for (size_t i = 0; (row = option_at(i)) != NULL && code == EXIT_DONE; i++) {
        if (!command_accepts(command, row) || option_is_set(row, options))
            continue;
        s = setting_of(options->config, command, row);
        if (s != NULL && (row->kind != OPTION_FLAG || strcmp(s->value, "true") == 0))
            code = option_set(command, row, s->value, options);
    }
    return code;
}

/* ---- trainyard config -------------------------------------------------------------------- */

/* Whether a later line sets the same key. */
static bool is_overruled(const cli_config *config, uint32_t index)
{
    for (uint32_t i = index + 1; i < config->count; i++)
        if (config->settings[i].row == config->settings[index].row &&
            config->settings[i].command == config->settings[index].command)
            return true;
    return false;
}

exit_code cmd_config(const cli_options *options)
{
    const cli_config *config = options->config;
    ty_text text = {0};
    ty_json_writer w = list_open(options->json, "trainyard.config/1", "settings", &text);

    for (uint32_t i = 0; i < config->count; i++) {
        const setting *s = &config->settings[i];
        const char *command = s->command != NULL ? s->command->name : NULL;
        if (is_overruled(config, i))
            continue;
        if (options->json) {
            ty_json_open_flat(&w, NULL, '{');
            if (command != NULL)
                ty_json_put_string(&w, "command", command);
            ty_json_put_string(&w, "option", s->row->name);
            ty_json_put_string(&w, "value", s->value);
            ty_json_put_string(&w, "file", s->path);
            ty_json_put_uint(&w, "line", s->line);
            ty_json_close(&w, '}');
            continue;
        }
        if (options->show_origin)
            ty_text_addf(&text, "%s:%u\t", s->path, s->line);
        ty_text_addf(&text, "%s%s%s = %s\n", command != NULL ? command : "",
                     command != NULL ? "." : "", s->row->name, s->value);
    }
    list_close(options->json, &w);
    if (text.length == 0 && !options->quiet)
        print_stderr(
            "trainyard: no settings: no file of defaults has any (see trainyard help config)");
    return print_text(&text);
}
