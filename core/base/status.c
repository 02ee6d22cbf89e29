/* Statuses and error messages. */
#include "ty_base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages quote files, which may have any content and may be cut inside a character: each
 * unprintable byte becomes "?". */
static void make_text(char *message)
{
    for (size_t left = strlen(message), length; left > 0; message += length, left -= length) {
        length = ty_printable_length(message, left);
        if (length == 0) {
            *message = '?';
            length = 1;
        }
    }
}

ty_status ty_fail(ty_error *error, ty_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->status = status;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        make_text(error->message);
    }
    return status;
}

const char *ty_status_name(ty_status status)
{
    static const char *const names[] = {
        [TY_OK] = "ok",
        [TY_EINVAL] = "invalid argument",
        [TY_ENOMEM] = "out of memory",
        [TY_EIO] = "file access",
        [TY_EPARSE] = "bad input",
        [TY_EINFEASIBLE] = "infeasible",
        [TY_ELIMIT] = "limit reached",
        [TY_EUNSUPPORTED] = "not supported",
        [TY_EBACKEND] = "backend failure",
        [TY_EINTERRUPTED] = "interrupted",
    };
    return (unsigned)status < sizeof names / sizeof names[0] ? names[status] : "unknown";
}
