/* Reads tar files. */
#include "tar_entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, PREFIX_AT = 345 };

/* Octal, or big-endian if the first bit is set; UINT64_MAX: invalid, or too large. */
static uint64_t number_read(const unsigned char *field, uint32_t length)
{
    uint64_t value = 0;
    uint32_t i = 0;

    if ((field[0] & 0x80) != 0) {
        for (i = 1; i < length; i++) {
            if (value >> 48 != 0)
                return UINT64_MAX;
            value = value << 8 | field[i];
        }
        return value;
    }
    while (i < length && field[i] == ' ')
        i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    return i == length || field[i] == '\0' || field[i] == ' ' ? value : UINT64_MAX;
}

static bool is_sum_right(const unsigned char *header)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : header[i];
    return sum == number_read(header + SUM_AT, 8);
}

static bool is_zero(const unsigned char *block)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

static void name_read(const unsigned char *header, char out[TAR_NAME_SIZE])
{
    const bool has_prefix = memcmp(header + 257, "ustar", 6) == 0 && header[PREFIX_AT] != '\0';

    snprintf(out, TAR_NAME_SIZE, "%.*s%s%.100s", has_prefix ? 155 : 0,
             (const char *)header + PREFIX_AT, has_prefix ? "/" : "", (const char *)header);
}

/* Finds "LENGTH path=NAME\n" among the records of a pax header. */
static void pax_read(const unsigned char *data, uint64_t length, char out[TAR_NAME_SIZE])
{
    uint64_t at = 0;

    while (at < length) {
        uint64_t size = 0, digits = at;
        while (digits < length && data[digits] >= '0' && data[digits] <= '9' && size < length)
            size = size * 10 + (uint64_t)(data[digits++] - '0');
        if (size <= digits - at + 1 || size > length - at || data[digits] != ' ')
            return;
        if (size > digits - at + 7 && memcmp(data + digits + 1, "path=", 5) == 0)
            snprintf(out, TAR_NAME_SIZE, "%.*s", (int)(at + size - 1 - (digits + 6)),
                     (const char *)data + digits + 6);
        at += size;
    }
}

ty_status tar_next(const unsigned char *bytes, uint64_t length, uint64_t *at, const char *name,
                   tar_entry *out, bool *is_end, ty_error *error)
{
    char given[TAR_NAME_SIZE] = ""; /* by a header before the file's own */

    *is_end = false;
    while (*at < length && length - *at >= BLOCK && !is_zero(bytes + *at)) {
        const unsigned char *header = bytes + *at;
        const uint64_t size = number_read(header + SIZE_AT, 12), room = length - *at - BLOCK;
        const uint64_t start = *at + BLOCK;
        const char type = (char)header[TYPE_AT];

        if (!is_sum_right(header) || size > room)
            return ty_fail(error, TY_EPARSE,
                           "%s: found no header of tar at byte %llu, or one of more than the %llu "
                           "bytes behind it",
                           name, (unsigned long long)*at, (unsigned long long)room);
        *at = size + (BLOCK - 1) > room ? length : start + (size + BLOCK - 1) / BLOCK * BLOCK;
        if (type == 'L' && size < INT32_MAX)
            snprintf(given, sizeof given, "%.*s", (int)size, (const char *)bytes + start);
        if (type == 'x' && size < INT32_MAX)
            pax_read(bytes + start, size, given);
        if (type != '0' && type != '\0')
            continue;
        name_read(header, out->name);
        if (given[0] != '\0')
            memcpy(out->name, given, sizeof given);
        out->offset = start;
        out->bytes = size;
        return TY_OK;
    }
    *is_end = true;
    return TY_OK;
}
