/* Statuses and error messages. */
#include "ty_status.h"

#include <stdarg.h>
#include <stdio.h>

ty_status ty_fail(ty_error *error, ty_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->status = status;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
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
