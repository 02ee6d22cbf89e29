/** @file wrap.h  Lines of limited width. Internal to reports/. */
#ifndef TY_REPORTS_WRAP_H
#define TY_REPORTS_WRAP_H

#include "ty_core.h"

/**
 * Appends `string` and a newline. What goes beyond TY_PRINT_COLUMNS goes on in lines that begin
 * with `indent` spaces, divided after a space, comma or plus where there is one.
 * @param column where the cursor is
 */
void ty_wrap_add(ty_text *text, size_t column, size_t indent, const char *string);

/** Appends at most `columns` of `string`, the last three of them dots where it was cut, and then
 * spaces up to that width. */
void ty_wrap_cell(ty_text *text, size_t columns, const char *string);

#endif
