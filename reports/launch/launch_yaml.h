/**
 * @file launch_yaml.h
 * YAML by libyaml's emitter: whatever is put stays where it is put. Internal to reports/.
 */
#ifndef TY_REPORTS_LAUNCH_YAML_H
#define TY_REPORTS_LAUNCH_YAML_H

#include "ty_text.h"

#include <stdint.h>
#include <yaml.h>

/** Writes documents behind what a text has. A failure is remembered until ty_launch_yaml_end. */
typedef struct launch_yaml {
    yaml_emitter_t emitter;
    ty_text *text;
    bool has_failed;
} launch_yaml;

void ty_launch_yaml_start(launch_yaml *y, ty_text *text);
/** @return TY_ENOMEM when anything failed since the start */
ty_status ty_launch_yaml_end(launch_yaml *y, ty_error *error) TY_MUST_CHECK;

/** A document is one mapping: of what is put until it is closed. */
void ty_launch_yaml_open_document(launch_yaml *y);
void ty_launch_yaml_close_document(launch_yaml *y);

/** Keys are ours; NULL inside a sequence. */
void ty_launch_yaml_open(launch_yaml *y, const char *key, char bracket); /* '{' or '[' */
void ty_launch_yaml_close(launch_yaml *y, char bracket);                 /* '}' or ']' */
/** A word of ours, without quotes. */
void ty_launch_yaml_word(launch_yaml *y, const char *key, const char *word);
void ty_launch_yaml_number(launch_yaml *y, const char *key, uint32_t number);
/** A string, whatever it has, in quotes. */
void ty_launch_yaml_string(launch_yaml *y, const char *key, const char *string);
/** Lines of text, as a literal block where YAML allows one. */
void ty_launch_yaml_lines(launch_yaml *y, const char *key, const char *lines);

#endif
