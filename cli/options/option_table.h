/**
 * @file option_table.h
 * The one table of options. Parsing and help (options.c), the manual and completion (manual.c) and
 * defaults from files (config.c) follow from it.
 */
#ifndef TY_CLI_OPTION_TABLE_H
#define TY_CLI_OPTION_TABLE_H

#include "cli.h"

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_NUMBER,
    OPTION_VARY /* may be given several times */
} option_kind;

typedef struct option_row {
    const char *name;
    char letter; /* 0: none */
    option_kind kind;
    size_t offset; /* of the bool or text in cli_options */
    size_t number; /* of the parsed number */
    uint64_t maximum;
    const char *argument;
    const char *help;
} option_row;

/** At least the number of options. */
#define MOST_OPTIONS 160
/** Row by index; NULL if there is none. */
const option_row *option_at(size_t index);
const option_row *option_named(const char *name);
bool command_accepts(const cli_command *command, const option_row *row);
/** Whether the command line has set it. */
bool option_is_set(const option_row *row, const cli_options *options);
/** Sets an option as the command line does. The text must outlive the options. */
exit_code option_set(const cli_command *command, const option_row *row, const char *value,
                     cli_options *out);

#endif
