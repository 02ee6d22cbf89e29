/* Shell completion from the tables of commands and options; for manual.c. */
#ifndef TY_CLI_COMPLETION_H
#define TY_CLI_COMPLETION_H

#include "option_table.h"

void completion_bash(const cli_command *commands, ty_text *out);
void completion_zsh(const cli_command *commands, ty_text *out);
void completion_fish(const cli_command *commands, ty_text *out);

#endif
