/* Lines of limited width: cells of tables, and sentences that continue in further lines. */
#include "wrap.h"

#include "ty_reports.h"

#include <string.h>

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Columns of a UTF-8 text, one per character. */
static size_t columns_of(const char *string)
{
    size_t columns = 0;

    for (; *string != '\0'; string++)
        columns += !is_continuation(*string);
    return columns;
}

/* Bytes of the first `columns` characters. */
static size_t bytes_of(const char *string, size_t columns)
{
    size_t i = 0;

    for (; string[i] != '\0'; i++)
        if (!is_continuation(string[i]) && columns-- == 0)
            break;
    return i;
}

static void add_spaces(ty_text *text, size_t count)
{
    while (count-- > 0)
        ty_text_add(text, " ");
}

/* Position at which to divide a text if only `bytes` fit. */
static size_t break_before(const char *string, size_t bytes)
{
    for (size_t i = bytes; i > 0; i--)
        if (strchr(" ,+", string[i - 1]) != NULL)
            return i;
    return bytes;
}

void ty_wrap_add(ty_text *text, size_t column, size_t indent, const char *string)
{
    while (column + columns_of(string) > TY_PRINT_COLUMNS) {
        size_t room = column < TY_PRINT_COLUMNS ? TY_PRINT_COLUMNS - column : 0;
        size_t bytes = break_before(string, bytes_of(string, room)), end = bytes;
        while (end > 0 && string[end - 1] == ' ')
            end--;
        ty_text_append(text, string, end);
        ty_text_add(text, "\n");
        string += bytes;
        add_spaces(text, indent);
        column = indent;
    }
    ty_text_add(text, string);
    ty_text_add(text, "\n");
}

void ty_wrap_cell(ty_text *text, size_t columns, const char *string)
{
    size_t width = columns_of(string);

    if (width <= columns) {
        ty_text_add(text, string);
        add_spaces(text, columns - width);
        return;
    }
    ty_text_append(text, string, bytes_of(string, columns - 3));
    ty_text_add(text, "...");
}
