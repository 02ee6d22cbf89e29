/* Values of the report's JSON document: texts, figures and rows. */
#include "html.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void ty_report_put_text(ty_json_writer *w, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        ty_json_put_string(w, key, text);
}

void ty_report_put_taken(ty_json_writer *w, const char *key, ty_text *text)
{
    if (text->failed != TY_OK)
        w->text->failed = text->failed;
    else
        ty_report_put_text(w, key, text->data);
    ty_text_clear(text);
}

void ty_report_put_figure(ty_json_writer *w, const char *key, double value)
{
    char digits[32];

    if (!isfinite(value)) {
        ty_json_put_null(w, key);
        return;
    }
    snprintf(digits, sizeof digits, "%.7g", value);
    ty_json_put_raw(w, key, digits);
}

void ty_report_put_row(ty_json_writer *w, const char *kinds, ...)
{
    va_list values;

    va_start(values, kinds);
    ty_json_open(w, NULL, '[');
    for (; *kinds != '\0'; kinds++) {
        if (*kinds == 's')
            ty_json_put_string(w, NULL, va_arg(values, const char *));
        else if (*kinds == 'u')
            ty_json_put_uint(w, NULL, va_arg(values, uint32_t));
        else if (*kinds == 'l')
            ty_json_put_uint(w, NULL, va_arg(values, uint64_t));
        else
            ty_report_put_figure(w, NULL, va_arg(values, double));
    }
    ty_json_close(w, ']');
    va_end(values);
}
