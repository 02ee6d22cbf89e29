/* A pull parser over zlib, which passes plain files through. */
#include "json_stream.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define BUFFER_SIZE 65536

struct ty_json_stream {
    gzFile file;
    char *path;
    uint64_t before; /* bytes of the text before the buffer */
    size_t used, at; /* in the buffer */
    bool is_ended, is_cut;
    ty_status failed; /* status of reading */
    char failure[160];
    char buffer[BUFFER_SIZE];
};

/* Bytes of text read so far. */
static uint64_t json_stream_position(const ty_json_stream *stream)
{
    return stream->before + stream->at;
}

bool ty_json_stream_is_cut(const ty_json_stream *stream)
{
    return stream->is_cut;
}

ty_status ty_json_stream_open(const char *path, ty_json_stream **out, ty_error *error)
{
    ty_json_stream *s = ty_alloc(1, sizeof *s);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(s != NULL, error));
    s->path = ty_strdup(path);
    TY_CHECK(ty_check_memory(s->path != NULL, error), status, cleanup);
    errno = 0;
    s->file = gzopen(path, "rb");
    if (s->file == NULL) {
        status = errno == 0 || errno == ENOMEM
                     ? ty_fail(error, TY_ENOMEM, "%s: out of memory", path)
                     : ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
        goto cleanup;
    }
    *out = s;
    s = NULL; /* ownership moved */

cleanup:
    ty_json_stream_close(s);
    return status;
}

void ty_json_stream_close(ty_json_stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->file != NULL)
        gzclose(stream->file);
    ty_free(stream->path);
    ty_free(stream);
}

/* Reads more text; at the end, or on a failure, sets is_ended. */
static void refill(ty_json_stream *s)
{
    int got, code;
    const char *message;

    s->before += s->used;
    s->used = s->at = 0;
    if (s->is_ended)
        return;
    if (s->before > TY_JSON_STREAM_LIMIT) {
        s->failed = TY_ELIMIT;
        snprintf(s->failure, sizeof s->failure, "found more than %llu bytes of text",
                 (unsigned long long)TY_JSON_STREAM_LIMIT);
        s->is_ended = true;
        return;
    }
    got = gzread(s->file, s->buffer, BUFFER_SIZE);
    message = gzerror(s->file, &code);
    s->used = got > 0 ? (size_t)got : 0;
    s->is_ended = got < BUFFER_SIZE;
    if (s->before == 0) {
        const char *text = s->buffer;
        size_t left = s->used;
        ty_skip_mark(&text, &left);
        s->at = s->used - left;
    }
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR)
        return; /* a truncated file gives the text it has */
    s->failed = code == Z_ERRNO ? TY_EIO : code == Z_MEM_ERROR ? TY_ENOMEM : TY_EPARSE;
    snprintf(s->failure, sizeof s->failure, "%.120s", code == Z_ERRNO ? strerror(errno) : message);
    s->is_ended = true;
}

/* The next character, or -1 at the end. */
static int peek(ty_json_stream *s)
{
    if (s->at == s->used && !(s->is_ended && s->used == 0))
        refill(s);
    return s->at < s->used ? (unsigned char)s->buffer[s->at] : -1;
}

static int take(ty_json_stream *s)
{
    int c = peek(s);
    if (c >= 0)
        s->at++;
    return c;
}

static int skip_blanks(ty_json_stream *s)
{
    int c = peek(s);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        s->at++;
        c = peek(s);
    }
    return c;
}

static ty_status fail_at(ty_json_stream *s, int found, const char *expected, ty_error *error)
{
    unsigned long long position = (unsigned long long)json_stream_position(s);

    if (s->failed != TY_OK)
        return ty_fail(error, s->failed, "%s: byte %llu: %s", s->path, position, s->failure);
    if (found < 0) {
        s->is_cut = true;
        return ty_fail(error, TY_EPARSE, "%s: byte %llu: found the end of the file, expected %s",
                       s->path, position, expected);
    }
    if (found > ' ' && found <= '~')
        return ty_fail(error, TY_EPARSE, "%s: byte %llu: found '%c', expected %s", s->path,
                       position, found, expected);
    return ty_fail(error, TY_EPARSE, "%s: byte %llu: found byte 0x%02x, expected %s", s->path,
                   position, (unsigned)found, expected);
}

ty_status ty_json_stream_peek(ty_json_stream *stream, char *out, ty_error *error)
{
    int c = skip_blanks(stream);
    if (c < 0 && stream->failed != TY_OK)
        return fail_at(stream, c, "a value", error);
    *out = c < 0 ? '\0' : (char)c;
    return TY_OK;
}

ty_status ty_json_stream_enter(ty_json_stream *stream, char bracket, ty_error *error)
{
    int c = skip_blanks(stream);
    if (c != bracket)
        return fail_at(stream, c, bracket == '{' ? "an object" : "an array", error);
    stream->at++;
    return TY_OK;
}

/* Reads a string after its opening quote. Escapes of non-ASCII characters become '?': such names
 * are only compared and shown. */
static ty_status string_rest(ty_json_stream *s, char *out, size_t size, ty_error *error)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t length = 0;

    for (;;) {
        int c = take(s);
        const char *escape;
        if (c == '"')
            break;
        if (c < ' ')
            return fail_at(s, c, "the end of a string", error);
        if (c == '\\') {
            int what = take(s);
            unsigned code = 0;
            escape = what > 0 ? strchr(from, what) : NULL;
            if (escape != NULL) {
                c = to[escape - from];
            } else if (what == 'u') {
                for (int i = 0; i < 4; i++) {
                    int digit = take(s);
                    const char *digits = "0123456789abcdefABCDEF";
                    const char *found = digit > 0 ? strchr(digits, digit) : NULL;
                    if (found == NULL)
                        return fail_at(s, digit, "four hexadecimal digits", error);
                    code = code * 16 + (unsigned)(found - digits - (found - digits > 15 ? 6 : 0));
                }
                c = code >= ' ' && code <= '~' ? (int)code : '?';
            } else {
                return fail_at(s, what, "an escaped character", error);
            }
        }
        if (length + 1 < size)
            out[length++] = (char)c;
    }
    if (size > 0)
        out[length] = '\0';
    return TY_OK;
}

ty_status ty_json_stream_string(ty_json_stream *stream, char out[TY_JSON_STREAM_TEXT],
                                ty_error *error)
{
    int c = skip_blanks(stream);
    if (c != '"')
        return fail_at(stream, c, "a string", error);
    stream->at++;
    return string_rest(stream, out, TY_JSON_STREAM_TEXT, error);
}

ty_status ty_json_stream_next(ty_json_stream *stream, char closing, bool *is_first, bool *has_next,
                              char *key, ty_error *error)
{
    int c = skip_blanks(stream);

    *has_next = false;
    if (c == closing) {
        stream->at++;
        return TY_OK;
    }
    if (!*is_first) {
        if (c != ',')
            return fail_at(stream, c, closing == '}' ? "',' or '}'" : "',' or ']'", error);
        stream->at++;
    }
    *is_first = false;
    if (key != NULL) {
        TY_TRY(ty_json_stream_string(stream, key, error));
        c = skip_blanks(stream);
        if (c != ':')
            return fail_at(stream, c, "':'", error);
        stream->at++;
    }
    *has_next = true;
    return TY_OK;
}

/* Python's texts for non-finite numbers. */
static bool is_unknown(const char *text)
{
    return strcmp(text, "NaN") == 0 || strcmp(text + (text[0] == '-'), "Infinity") == 0;
}

ty_status ty_json_stream_number(ty_json_stream *stream, double *out, ty_error *error)
{
    char text[48], *end;
    size_t length = 0;
    int c = skip_blanks(stream);
    double value;

    while (c > 0 && strchr("0123456789+-.eENaInfity", c) != NULL && length + 1 < sizeof text) {
        text[length++] = (char)c;
        stream->at++;
        c = peek(stream);
    }
    text[length] = '\0';
    value = is_unknown(text) ? (double)NAN : strtod(text, &end);
    if (isnan(value) && c >= 0) {
        *out = value;
        return TY_OK;
    }
    if (length == 0 || *end != '\0' || !isfinite(value) ||
        (c > 0 && strchr("0123456789", c) != NULL))
        return fail_at(stream, c, "a finite number", error);
    if (c < 0) /* the text may continue */
        return fail_at(stream, c, "the end of a number", error);
    *out = value;
    return TY_OK;
}

/* Skips a word or number, which has no brackets. */
static ty_status skip_word(ty_json_stream *s, ty_error *error)
{
    static const char *const words[] = {"true", "false", "null"};
    char text[12];
    size_t length = 0;
    int c = peek(s);
    double ignored;

    if ((c >= '0' && c <= '9') || c == '-' || c == 'N' || c == 'I')
        return ty_json_stream_number(s, &ignored, error);
    while (length + 1 < sizeof text && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
        text[length++] = (char)c;
        s->at++;
        c = peek(s);
    }
    text[length] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0)
            return TY_OK;
    return fail_at(s, c, "a value", error);
}

/* Keeps brackets on a stack of bits, without recursion. */
ty_status ty_json_stream_skip(ty_json_stream *stream, ty_error *error)
{
    bool is_object[TY_JSON_STREAM_DEPTH + 1] = {false}, is_first = true, has_next;
    char key[8];
    size_t depth = 0;

    for (;;) {
        int c = skip_blanks(stream);
        if (c == '{' || c == '[') {
            if (depth == TY_JSON_STREAM_DEPTH)
                return fail_at(stream, c, "values nested at most 200 deep", error);
            stream->at++;
            is_object[++depth] = c == '{';
            is_first = true;
        } else if (c == '"') {
            stream->at++;
            TY_TRY(string_rest(stream, key, sizeof key, error));
        } else {
            TY_TRY(skip_word(stream, error));
        }
        for (has_next = false; depth > 0 && !has_next;) {
            char closing = is_object[depth] ? '}' : ']';
            TY_TRY(ty_json_stream_next(stream, closing, &is_first, &has_next, NULL, error));
            if (!has_next) {
                depth--;
                is_first = false;
                continue;
            }
            if (!is_object[depth])
                continue;
            c = skip_blanks(stream);
            if (c != '"')
                return fail_at(stream, c, "the name of a member", error);
            stream->at++;
            TY_TRY(string_rest(stream, key, sizeof key, error));
            c = skip_blanks(stream);
            if (c != ':')
                return fail_at(stream, c, "':'", error);
            stream->at++;
        }
        if (depth == 0)
            break;
    }
    return TY_OK;
}
