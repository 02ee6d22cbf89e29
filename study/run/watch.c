/* Notes to the watch. */
#include "question.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

void ty_watch_note(const ty_watch *watch, const char *format, ...)
{
    char line[PATH_MAX + 128];
    va_list arguments;

    if (!ty_watch_listens(watch))
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    watch->note(watch->context, line);
}
