/* Writing JSON: commas, indentation, escapes, and numbers that read back exactly. */
#include "ty_json.h"

#include "json_scan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ty_json_writer ty_json_writer_on(ty_text *text)
{
    return (ty_json_writer){.text = text, .is_first = true};
}

/* The root is the outermost container on one line; its depth is 1. */
ty_json_writer ty_json_writer_compact_on(ty_text *text)
{
    return (ty_json_writer){.text = text, .flat_depth = 1, .is_first = true, .is_compact = true};
}

static void indent(ty_json_writer *writer)
{
    static const char blanks[] = "                                ";
    int left = 2 * writer->depth;

    ty_text_append(writer->text, "\n", 1);
    for (; left > 0; left -= 32)
        ty_text_append(writer->text, blanks, (size_t)(left < 32 ? left : 32));
}

/* Bytes that need no escape. */
static size_t plain_length(const unsigned char *at, size_t left)
{
    size_t length = 0;

    while (length < left && at[length] >= ' ' && at[length] < 0x7f && at[length] != '"' &&
           at[length] != '\\')
        length++;
    return length;
}

static void write_quoted(ty_text *text, const char *value)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *at = (const unsigned char *)value;
    size_t left = strlen(value);

    ty_text_append(text, "\"", 1);
    while (left > 0) {
        const size_t plain = plain_length(at, left);
        size_t length;
        const char *found;
        ty_text_append(text, (const char *)at, plain);
        at += plain;
        left -= plain;
        if (left == 0)
            break;
        length = ty_utf8_length(at, left);
        found = strchr(special, *at);
        if (length == 0) {
            if (text->failed == TY_OK)
                text->failed = TY_EINVAL;
            return;
        }
        if (found != NULL)
            ty_text_append(text, (const char[]){'\\', letters[found - special]}, 2);
        else if (*at < 0x20)
            ty_text_addf(text, "\\u%04x", *at);
        else
            ty_text_append(text, (const char *)at, length);
        at += length;
        left -= length;
    }
    ty_text_append(text, "\"", 1);
}

/* Comma, line break, indentation and key before a value. */
static void begin_value(ty_json_writer *writer, const char *key)
{
    if (!writer->is_first)
        ty_text_append(writer->text, ",", 1);
    if (writer->flat_depth == 0 && writer->depth > 0)
        indent(writer);
    else if (!writer->is_first)
        ty_text_append(writer->text, " ", 1);
    writer->is_first = false;
    if (key != NULL) {
        write_quoted(writer->text, key);
        ty_text_append(writer->text, ": ", 2);
    }
}

void ty_json_open(ty_json_writer *writer, const char *key, char bracket)
{
    begin_value(writer, key);
    ty_text_append(writer->text, &bracket, 1);
    writer->depth++;
    writer->is_first = true;
}

void ty_json_open_flat(ty_json_writer *writer, const char *key, char bracket)
{
    ty_json_open(writer, key, bracket);
    if (writer->flat_depth == 0)
        writer->flat_depth = writer->depth;
}

void ty_json_close(ty_json_writer *writer, char bracket)
{
    bool is_flat = writer->flat_depth > 0;

    if (writer->flat_depth == writer->depth)
        writer->flat_depth = 0;
    writer->depth--;
    if (!is_flat && !writer->is_first)
        indent(writer);
    ty_text_append(writer->text, &bracket, 1);
    writer->is_first = false;
}

void ty_json_put_string(ty_json_writer *writer, const char *key, const char *value)
{
    begin_value(writer, key);
    write_quoted(writer->text, value);
}

void ty_json_put_number(ty_json_writer *writer, const char *key, double value)
{
    char number[32];

    if (!isfinite(value)) {
        if (writer->text->failed == TY_OK)
            writer->text->failed = TY_EINVAL;
        return;
    }
    ty_format_number(value, number);
    ty_json_put_raw(writer, key, number);
}

void ty_json_put_uint(ty_json_writer *writer, const char *key, uint64_t value)
{
    char number[32];

    if (value >= (uint64_t)1 << 53 && writer->text->failed == TY_OK)
        writer->text->failed = TY_EINVAL;
    if (writer->is_compact) { /* as ty_json_text: a double, which may be shorter */
        ty_json_put_number(writer, key, (double)value);
        return;
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)value);
    ty_json_put_raw(writer, key, number);
}

void ty_json_put_bool(ty_json_writer *writer, const char *key, bool value)
{
    ty_json_put_raw(writer, key, value ? "true" : "false");
}

void ty_json_put_null(ty_json_writer *writer, const char *key)
{
    ty_json_put_raw(writer, key, "null");
}

void ty_json_put_raw(ty_json_writer *writer, const char *key, const char *json)
{
    begin_value(writer, key);
    ty_text_add(writer->text, json);
}
