/* The error messages of all checks of a plan. */
#include "plan_check.h"

#include <stdarg.h>
#include <stdio.h>

ty_status ty_plan_complain(const plan_checker *c, const char *format, ...)
{
    char what[384];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ty_fail(c->error, TY_EPARSE, "%s%s", c->place, what);
}
