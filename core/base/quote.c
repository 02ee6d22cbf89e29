/* Quoting for shells, comments and terminals. */
#include "ty_base.h"

#include "utf8.h"

#include <string.h>

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
        code = ty_utf8_code(at, length);
        if (ty_utf8_is_visible(code) || (code < 0x20 && strchr(kept, (int)code) != NULL))
            ty_text_append(text, (const char *)at, length);
        else
            ty_text_addf(text,
                         code < 0x80     ? "\\x%02x"
                         : code > 0xffff ? "\\U%08x"
                                         : "\\u%04x",
                         (unsigned)code);
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
