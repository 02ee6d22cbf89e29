/* YAML by libyaml's emitter. */
#include "launch_yaml.h"

#include <stdio.h>
#include <string.h>

static int append(void *text, unsigned char *bytes, size_t size)
{
    ty_text_append(text, (const char *)bytes, size);
    return ((ty_text *)text)->failed == TY_OK;
}

/* Takes the event, if it could be made. */
static void emit(launch_yaml *y, yaml_event_t *event, int is_made)
{
    if (is_made && y->has_failed)
        yaml_event_delete(event);
    else if (!is_made || !yaml_emitter_emit(&y->emitter, event))
        y->has_failed = true;
}

void ty_launch_yaml_start(launch_yaml *y, ty_text *text)
{
    yaml_event_t event;

    *y = (launch_yaml){.text = text, .has_failed = false};
    if (!yaml_emitter_initialize(&y->emitter)) {
        y->has_failed = true;
        return;
    }
    yaml_emitter_set_output(&y->emitter, append, text);
    yaml_emitter_set_width(&y->emitter, -1);
    /* Readers differ in which of the characters beyond ASCII end a line: all are escaped. */
    yaml_emitter_set_unicode(&y->emitter, 0);
    emit(y, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
}

ty_status ty_launch_yaml_end(launch_yaml *y, ty_error *error)
{
    yaml_event_t event;

    emit(y, &event, yaml_stream_end_event_initialize(&event));
    yaml_emitter_delete(&y->emitter);
    if (y->has_failed)
        return ty_fail(error, TY_ENOMEM, "out of memory for YAML");
    return ty_text_check(y->text, error);
}

static void scalar(launch_yaml *y, const char *value, yaml_scalar_style_t style)
{
    yaml_event_t event;

    emit(y, &event,
         yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)value,
                                      (int)strlen(value), 1, 1, style));
}

static void put(launch_yaml *y, const char *key, const char *value, yaml_scalar_style_t style)
{
    if (key != NULL)
        scalar(y, key, YAML_PLAIN_SCALAR_STYLE);
    scalar(y, value, style);
}

void ty_launch_yaml_open_document(launch_yaml *y)
{
    yaml_event_t event;

    emit(y, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 0));
    ty_launch_yaml_open(y, NULL, '{');
}

void ty_launch_yaml_close_document(launch_yaml *y)
{
    yaml_event_t event;

    ty_launch_yaml_close(y, '}');
    emit(y, &event, yaml_document_end_event_initialize(&event, 1));
}

void ty_launch_yaml_open(launch_yaml *y, const char *key, char bracket)
{
    yaml_event_t event;

    if (key != NULL)
        scalar(y, key, YAML_PLAIN_SCALAR_STYLE);
    emit(y, &event,
         bracket == '{'
             ? yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE)
             : yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                                    YAML_BLOCK_SEQUENCE_STYLE));
}

void ty_launch_yaml_close(launch_yaml *y, char bracket)
{
    yaml_event_t event;

    emit(y, &event,
         bracket == '}' ? yaml_mapping_end_event_initialize(&event)
                        : yaml_sequence_end_event_initialize(&event));
}

void ty_launch_yaml_word(launch_yaml *y, const char *key, const char *word)
{
    put(y, key, word, YAML_PLAIN_SCALAR_STYLE);
}

void ty_launch_yaml_number(launch_yaml *y, const char *key, uint32_t number)
{
    char digits[16];

    snprintf(digits, sizeof digits, "%u", number);
    put(y, key, digits, YAML_PLAIN_SCALAR_STYLE);
}

void ty_launch_yaml_string(launch_yaml *y, const char *key, const char *string)
{
    put(y, key, string, YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

void ty_launch_yaml_lines(launch_yaml *y, const char *key, const char *lines)
{
    put(y, key, lines, YAML_LITERAL_SCALAR_STYLE);
}
