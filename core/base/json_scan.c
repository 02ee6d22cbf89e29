/* The grammar of JSON, strictly: cJSON, which builds the values, is more generous. */
#include "json_scan.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_NUMBER 60

typedef struct scanner {
    const unsigned char *text, *at, *end;
    size_t value_count;
    bool has_python_numbers;
    const char *expected; /* set by the check that failed */
} scanner;

/* The next byte, or -1 at the end. */
static int peek(const scanner *s)
{
    return s->at < s->end ? *s->at : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool refuse(scanner *s, const char *expected)
{
    s->expected = expected;
    return false;
}

static void skip_blanks(scanner *s)
{
    while (peek(s) == ' ' || peek(s) == '\n' || peek(s) == '\r' || peek(s) == '\t')
        s->at++;
}

static bool scan_digits(scanner *s)
{
    if (!is_digit(peek(s)))
        return refuse(s, "a digit");
    while (is_digit(peek(s)))
        s->at++;
    return true;
}

static bool scan_number(scanner *s)
{
    const unsigned char *start = s->at;

    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0') {
        s->at++;
        if (is_digit(peek(s)))
            return refuse(s, "no digit after a leading zero");
    } else if (!scan_digits(s)) {
        return false;
    }
    if (peek(s) == '.') {
        s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!scan_digits(s))
            return false;
    }
    return s->at - start <= LONGEST_NUMBER || refuse(s, "a number of at most 60 characters");
}

/* The four digits of a \u escape, or -1. */
static int32_t scan_hex(scanner *s)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s);
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool scan_escape(scanner *s)
{
    int c = peek(s);
    int32_t code;

    if (c <= 0 || strchr("\"\\/bfnrtu", c) == NULL)
        return refuse(s, "one of \"\\/bfnrtu after a backslash");
    s->at++;
    if (c != 'u')
        return true;
    code = scan_hex(s);
    if (code >= 0xD800 && code <= 0xDBFF && peek(s) == '\\') {
        s->at++;
        if (peek(s) != 'u')
            return refuse(s, "the second half of a surrogate pair");
        s->at++;
        code = scan_hex(s);
        return (code >= 0xDC00 && code <= 0xDFFF) ||
               refuse(s, "the second half of a surrogate pair");
    }
    if (code < 0)
        return refuse(s, "four hexadecimal digits");
    if (code == 0)
        return refuse(s, "no NUL character in a string");
    return code < 0xD800 || code > 0xDFFF || refuse(s, "a surrogate pair");
}

static bool scan_string(scanner *s)
{
    s->at++; /* the opening quote */
    while (peek(s) != '"') {
        size_t length;
        if (peek(s) < 0)
            return refuse(s, "a closing quote");
        if (peek(s) < 0x20)
            return refuse(s, "no control character in a string");
        if (peek(s) == '\\') {
            s->at++;
            if (!scan_escape(s))
                return false;
            continue;
        }
        length = ty_utf8_length(s->at, (size_t)(s->end - s->at));
        if (length == 0)
            return refuse(s, "valid UTF-8");
        s->at += length;
    }
    s->at++;
    return true;
}

static bool is_word_at(const char *at, const char *end, const char *word)
{
    return (size_t)(end - at) >= strlen(word) && memcmp(at, word, strlen(word)) == 0;
}

/* NaN and the infinities are not JSON. They pass here, so a message can name their member. */
static bool scan_word(scanner *s)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (is_word_at((const char *)s->at, (const char *)s->end, words[i])) {
            s->at += strlen(words[i]);
            s->has_python_numbers = s->has_python_numbers || i > 2;
            return true;
        }
    }
    return refuse(s, "a value");
}

/* A string, number or word; the caller handles `{` and `[`. */
static bool scan_scalar(scanner *s)
{
    if (peek(s) == '"')
        return scan_string(s);
    if (is_digit(peek(s)) ||
        (peek(s) == '-' && !is_word_at((const char *)s->at, (const char *)s->end, "-I")))
        return scan_number(s);
    return scan_word(s);
}

static bool scan_key(scanner *s)
{
    skip_blanks(s);
    if (peek(s) != '"')
        return refuse(s, "a key in quotes");
    if (!scan_string(s))
        return false;
    skip_blanks(s);
    if (peek(s) != ':')
        return refuse(s, "':'");
    s->at++;
    return true;
}

/* After a value: closes what ends here, and stops before the next value or at the root's end. */
static bool scan_after_value(scanner *s, const char *closers, int *depth)
{
    while (*depth > 0) {
        char closer = closers[*depth - 1];
        skip_blanks(s);
        if (peek(s) == ',') {
            s->at++;
            return closer != '}' || scan_key(s);
        }
        if (peek(s) != closer)
            return refuse(s, closer == '}' ? "',' or '}'" : "',' or ']'");
        s->at++;
        --*depth;
    }
    return true;
}

/* One value with its contents. `closers` is the stack of brackets that are still open. */
static bool scan_value(scanner *s)
{
    char closers[TY_JSON_MAX_DEPTH];
    int depth = 0;

    do {
        skip_blanks(s);
        s->value_count++;
        if (peek(s) == '{' || peek(s) == '[') {
            if (depth == TY_JSON_MAX_DEPTH)
                return refuse(s, "at most 200 levels of nesting");
            closers[depth] = peek(s) == '{' ? '}' : ']';
            s->at++;
            skip_blanks(s);
            if (peek(s) == closers[depth]) {
                s->at++;
            } else {
                depth++;
                if (closers[depth - 1] == '}' && !scan_key(s))
                    return false;
                continue; /* with the first value inside */
            }
        } else if (!scan_scalar(s)) {
            return false;
        }
        if (!scan_after_value(s, closers, &depth))
            return false;
    } while (depth > 0);
    skip_blanks(s);
    return s->at == s->end || refuse(s, "the end of the text after its one value");
}

static ty_status report(const scanner *s, const char *name, ty_error *error)
{
    size_t line = 1, column = 1;
    char found[32];
    int c = peek(s);

    for (const unsigned char *p = s->text; p < s->at; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    if (c < 0)
        snprintf(found, sizeof found, "the end of the text");
    else if (c > 0x20 && c < 0x7F)
        snprintf(found, sizeof found, "'%c'", c);
    else
        snprintf(found, sizeof found, "byte 0x%02x", (unsigned)c);
    return ty_fail(error, TY_EPARSE, "%.200s: line %zu, column %zu: found %s, expected %s", name,
                   line, column, found, s->expected);
}

void ty_json_spell_out(const char *text, size_t length, ty_text *out)
{
    const char *end = text + length, *done = text;
    bool is_text = false;

    for (const char *at = text; at < end; at++) {
        const bool is_nan = !is_text && is_word_at(at, end, "NaN");
        if (*at == '"')
            is_text = !is_text;
        else if (is_text && *at == '\\')
            at++;
        if (!is_nan && (is_text || !is_word_at(at, end, "Infinity")))
            continue;
        ty_text_append(out, done, (size_t)(at - done)); /* with the sign, if there is one */
        ty_text_add(out, "1e999");
        done = at + strlen(is_nan ? "NaN" : "Infinity");
        at = done - 1;
    }
    ty_text_append(out, done, (size_t)(end - done));
}

ty_status ty_json_scan(const char *text, size_t length, const char *name, size_t *value_count,
                       bool *has_python_numbers, ty_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text;
    scanner s = {.text = bytes, .at = bytes, .end = bytes + length};

    if (!scan_value(&s))
        return report(&s, name, error);
    *value_count = s.value_count;
    *has_python_numbers = s.has_python_numbers;
    return TY_OK;
}
