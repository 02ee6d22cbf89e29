/** @file wrap.h  Lines of limited width. Internal to reports/. */
#ifndef TY_REPORTS_WRAP_H
#define TY_REPORTS_WRAP_H

#include "ty_core.h"

/**
 * Appends `string` and a newline. Text beyond TY_PRINT_COLUMNS continues in lines that begin with
 * `indent` spaces. Lines break after a space, comma or plus if there is one.
 * @param column current column of the cursor
 */
void ty_wrap_add(ty_text *text, size_t column, size_t indent, const char *string);

/** Appends `string`, padded with spaces to `columns`. Longer text is cut and ends in three dots. */
void ty_wrap_cell(ty_text *text, size_t columns, const char *string);

#endif
