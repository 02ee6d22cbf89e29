/* Private to core: the strict check of JSON text before cJSON reads it. */
#ifndef TY_JSON_SCAN_H
#define TY_JSON_SCAN_H

#include "ty_base.h"
#include "utf8.h"

#include <stdbool.h>
#include <stddef.h>

#define TY_JSON_MAX_DEPTH 200

/**
 * Checks that `text` is exactly one JSON value by RFC 8259: valid UTF-8 without NUL (nor \u0000),
 * at most TY_JSON_MAX_DEPTH deep, numbers of at most 60 characters (cJSON reads 63). Rejects texts
 * that cJSON accepts: control characters as blanks and in strings, "01", "1.", anything after the
 * value.
 * @param value_count        [out] values in the text, the root included
 * @param has_python_numbers [out] NaN, Infinity or -Infinity are among them: cJSON reads the text
 * of ty_json_spell_out
 * @return TY_EPARSE with line and column.
 */
ty_status ty_json_scan(const char *text, size_t length, const char *name, size_t *value_count,
                       bool *has_python_numbers, ty_error *error) TY_MUST_CHECK;

/** Adds the text with 1e999 for every NaN and Infinity: numbers that overflow. */
void ty_json_spell_out(const char *text, size_t length, ty_text *out);

#endif
