/* Growing strings, and numbers as text that do not depend on the locale. */
#include "ty_base.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reserves `more` bytes and the terminator; false (and text->failed) without memory. */
static bool text_reserve(ty_text *text, size_t more)
{
    size_t capacity = text->capacity > 0 ? text->capacity : 64;
    char *data;

    if (text->failed != TY_OK)
        return false;
    if (more > SIZE_MAX / 4 - text->length) {
        text->failed = TY_ENOMEM;
        return false;
    }
    if (more < text->capacity - text->length) /* the usual case; the terminator has its byte */
        return true;
    while (capacity <= text->length + more)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    data = ty_resize(text->data, capacity, 1);
    if (data == NULL) {
        text->failed = TY_ENOMEM;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    text->data[text->length] = '\0';
    return true;
}

void ty_text_append(ty_text *text, const char *bytes, size_t length)
{
    if (!text_reserve(text, length))
        return;
    if (length > 0)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void ty_text_add(ty_text *text, const char *string)
{
    ty_text_append(text, string, strlen(string));
}

void ty_text_addf(ty_text *text, const char *format, ...)
{
    va_list arguments;
    size_t room;
    int length;

    if (!text_reserve(text, 32)) /* usually enough to print only once */
        return;
    room = text->capacity - text->length;
    va_start(arguments, format);
    length = vsnprintf(text->data + text->length, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length >= room) {
        text->data[text->length] = '\0'; /* undo; print the longer text again */
        if (!text_reserve(text, (size_t)length))
            return;
        va_start(arguments, format);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    if (length < 0)
        text->failed = TY_EINVAL;
    else
        text->length += (size_t)length;
}

ty_status ty_text_check(const ty_text *text, ty_error *error)
{
    if (text->failed == TY_OK)
        return TY_OK;
    return ty_fail(error, text->failed, "%s",
                   text->failed == TY_ENOMEM ? "out of memory while writing text"
                                             : "a value has no text form: not a finite number, an "
                                               "integer from 2^53 on, or invalid UTF-8");
}

ty_status ty_text_take(ty_text *text, char **out, ty_error *error)
{
    ty_status status;

    (void)text_reserve(text, 0);
    status = ty_text_check(text, error);
    if (status != TY_OK) {
        ty_text_clear(text);
        return status;
    }
    *out = text->data;
    *text = (ty_text){0};
    return TY_OK;
}

void ty_skip_mark(const char **text, size_t *length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t size = sizeof mark - 1;

    if (*length >= size && memcmp(*text, mark, size) == 0) {
        *text += size;
        *length -= size;
    }
}

void ty_text_clear(ty_text *text)
{
    ty_free(text->data);
    *text = (ty_text){0};
}

/* Shortens the output of printf's %g in any locale to the C form: "1,5e+06" -> "1.5e6". */
static void number_tidy(char *text)
{
    const char *from = text;
    char *to = text;
    bool in_point = false;

    for (; *from != '\0' && *from != 'e'; from++) {
        bool is_point = strchr("+-0123456789", *from) == NULL;
        if (!is_point)
            *to++ = *from;
        else if (!in_point) /* a decimal point may be several bytes long */
            *to++ = '.';
        in_point = is_point;
    }
    if (*from == 'e') {
        *to++ = *from++;
        if (*from == '-')
            *to++ = '-';
        while (*from == '+' || *from == '-' || *from == '0')
            from++;
        while (*from != '\0')
            *to++ = *from++;
    }
    *to = '\0';
}

void ty_format_number(double value, char out[32])
{
    /* Every decimal of up to fifteen digits survives %.15g, which drops trailing zeros, so it is
     * the shortest form if it reads back. Below DBL_MIN it is not, because digits are lost. */
    int precision = fabs(value) < DBL_MIN ? 1 : DBL_DIG;

    if (value == floor(value) && fabs(value) < 1e15 && (value != 0.0 || !signbit(value))) {
        snprintf(out, 32, "%" PRId64, (int64_t)value);
        return;
    }
    for (; precision <= 17; precision++) {
        snprintf(out, 32, "%.*g", precision, value);
        if (strtod(out, NULL) == value)
            break;
    }
    number_tidy(out);
}

/* Optimal string alignment: insertions, deletions, substitutions, swaps of neighbors. */
#define LONGEST_NAME 63
static size_t edit_distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    size_t rows[3][LONGEST_NAME + 1]; /* this row, the one before, and the one before that */
    size_t *current = rows[0], *last = rows[1], *before = rows[2];

    if (m > LONGEST_NAME || n > LONGEST_NAME)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *spare = before;
        current[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (current[j - 1] + 1 < best)
                best = current[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            current[j] = best;
        }
        before = last;
        last = current;
        current = spare;
    }
    return last[n];
}

const char *ty_suggest(const char *word, const void *names, size_t count, size_t stride)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1; /* one more than is accepted */

    for (size_t i = 0; i < count; i++) {
        const char *name;
        size_t distance;
        memcpy(&name, (const char *)names + i * stride, sizeof name);
        distance = name == NULL ? SIZE_MAX : edit_distance(word, name);
        if (distance < best_distance) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}
