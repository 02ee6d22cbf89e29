/* Characters of UTF-8 text. */
#include "utf8.h"

#include "ty_base.h"

size_t ty_utf8_length(const unsigned char *bytes, size_t left)
{
    /* First byte, length, and the range of the second byte; the others are 80..BF. */
    static const struct form {
        unsigned char first, last, length, second_first, second_last;
    } forms[] = {
        {0x00, 0x7F, 1, 0, 0},       {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
        {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
        {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
    };

    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        const struct form *form = &forms[f];
        if (bytes[0] < form->first || bytes[0] > form->last)
            continue;
        if (form->length > left)
            return 0;
        if (form->length > 1 && (bytes[1] < form->second_first || bytes[1] > form->second_last))
            return 0;
        for (size_t i = 2; i < form->length; i++) {
            if (bytes[i] < 0x80 || bytes[i] > 0xBF)
                return 0;
        }
        return form->length;
    }
    return 0;
}

uint32_t ty_utf8_code(const unsigned char *bytes, size_t length)
{
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3fu);
    return code;
}

bool ty_utf8_is_visible(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {
        /* Controls, separators and marks of direction. */
        {0x00, 0x1f},
        {0x7f, 0x9f},
        {0x200e, 0x200f},
        {0x2028, 0x202e},
        {0x2066, 0x2069},
        {0xfeff, 0xfeff},
        /* Without width, and tags: Unicode, Default_Ignorable_Code_Point, but for variants of a
         * character that is seen. */
        {0xad, 0xad},
        {0x34f, 0x34f},
        {0x61c, 0x61c},
        {0x115f, 0x1160},
        {0x17b4, 0x17b5},
        {0x180b, 0x180f},
        {0x200b, 0x200d},
        {0x2060, 0x206f},
        {0x3164, 0x3164},
        {0xffa0, 0xffa0},
        {0xfff0, 0xfff8},
        {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a},
        {0xe0000, 0xe0fff},
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

    return length > 0 && ty_utf8_is_visible(ty_utf8_code(at, length)) ? length : 0;
}
