/* Quoting for shells, comments and terminals. */
#include "ty_quote.h"

#include "json_scan.h"

#include <string.h>

/* The code point of a UTF-8 sequence that ty_utf8_length found. */
static uint32_t code_of(const unsigned char *bytes, size_t length)
{
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3fu);
    return code;
}

static bool is_visible(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x200e, 0x200f},
        {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff},
    };

    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (code >= hidden[i].first && code <= hidden[i].last)
            return false;
    return true;
}

size_t ty_printable_length(const char *text, size_t left)
{
    const unsigned char *at = (const unsigned char *)text;
    const size_t length = left > 0 ? ty_utf8_length(at, left) : 0;

    return length > 0 && is_visible(code_of(at, length)) ? length : 0;
}

bool ty_is_printable(const char *text)
{
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length)
        if ((length = ty_printable_length(text, left)) == 0)
            return false;
    return true;
}

void ty_quote_visible(ty_text *text, const char *string, const char *kept)
{
    const unsigned char *at = (const unsigned char *)string;
    size_t left = strlen(string), length;

    for (; left > 0; at += length, left -= length) {
        uint32_t code;
        if ((length = ty_utf8_length(at, left)) == 0) {
            ty_text_addf(text, "\\x%02x", *at);
            length = 1;
            continue;
        }
        code = code_of(at, length);
        if (is_visible(code) || (code < 0x20 && strchr(kept, (int)code) != NULL))
            ty_text_append(text, (const char *)at, length);
        else
            ty_text_addf(text, code < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)code);
    }
}

void ty_quote_shell(ty_text *text, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._/:@%+,-";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        ty_text_add(text, word);
        return;
    }
    ty_text_add(text, "'");
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            ty_text_add(text, "'\\''");
        else
            ty_text_append(text, word, 1);
    }
    ty_text_add(text, "'");
}
