/* Statuses and error messages. */
#include "ty_status.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of a character of UTF-8 in well-formed text; 0 where it is none, or a control character. */
static int character_length(const unsigned char *c)
{
    int length = c[0] < 0x80 ? 1 : c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;

    if (c[0] < ' ' || c[0] == 0x7f || (c[0] >= 0x80 && c[0] < 0xc2) || c[0] > 0xf4)
        return 0;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* U+0080 to U+009F command terminals, too */
        return 0;
    for (int i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Messages quote files, which may hold anything, and may have been cut within a character: what is
 * no text becomes "?". */
static void make_text(char *message)
{
    for (unsigned char *c = (unsigned char *)message; *c != '\0';) {
        int length = character_length(c);
        if (length == 0)
            *c = '?';
        c += length > 0 ? length : 1;
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
