/* Pins of a test's question, in the words of --fix. */
#ifndef TY_TESTS_PIN_H
#define TY_TESTS_PIN_H

#include "ty_axes.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>

/** Pins the axes of a text such as "pp=%u,replicas=4+4" and leaves the others alone. */
__attribute__((format(printf, 2, 3))) static inline void pin(ty_pins *pins, const char *format, ...)
{
    char text[512];
    ty_error error = {0};
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    cr_assert_eq(ty_pins_read(text, UINT32_MAX, pins, &error), TY_OK, "%s: %s", text,
                 error.message);
    cr_assert_null(pins->device_list, "%s: the text of a list must outlive the pins", text);
}

#endif
