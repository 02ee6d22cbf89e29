/* Quantities with units, for users. */
#include "ty_base.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    double scale; /* of one in the base unit */
    const char *name;
} unit;

/* Three significant digits without trailing zeros: 25.6, 2.5, 4, 1023. */
static void format_digits(double value, char out[32])
{
    double size = fabs(value);
    int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    char *end;

    snprintf(out, 32, "%.*f", decimals, value);
    for (end = out; *end != '\0'; end++) {
        if (!isdigit((unsigned char)*end) && *end != '-')
            *end = '.'; /* the locale's decimal point */
    }
    if (decimals == 0)
        return;
    while (end[-1] == '0')
        *--end = '\0';
    if (end[-1] == '.')
        end[-1] = '\0';
}

/* `units` ascend; the largest one not above the value is used. A value that rounds up to the next
 * unit (999.9 k) is printed in that one (1 M). */
static void format_in(double value, const unit *units, size_t count, char out[32])
{
    char digits[32];
    size_t i = 0;

    if (!isfinite(value)) {
        snprintf(out, 32, "%s", isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf");
        return;
    }
    if (fabs(value) >= 1e30) {
        snprintf(out, 32, "%.3g", value);
        return;
    }
    while (value == 0.0 ? units[i].scale < 1.0
                        : i + 1 < count && fabs(value) >= units[i + 1].scale * 0.9995)
        i++;
    format_digits(value / units[i].scale, digits);
    if (units[i].name[0] == '\0')
        snprintf(out, 32, "%s", digits);
    else
        snprintf(out, 32, "%.23s %.7s", digits, units[i].name);
}

#define FORMAT(value, units, out) format_in(value, units, sizeof(units) / sizeof((units)[0]), out)

void ty_format_count(double value, char out[32])
{
    static const unit units[] = {{1.0, ""},   {1e3, "k"},  {1e6, "M"}, {1e9, "G"},
                                 {1e12, "T"}, {1e15, "P"}, {1e18, "E"}};
    FORMAT(value, units, out);
}

void ty_format_bytes(double bytes, char out[32])
{
    static const unit units[] = {{1.0, "B"},   {1e3, "kB"},  {1e6, "MB"}, {1e9, "GB"},
                                 {1e12, "TB"}, {1e15, "PB"}, {1e18, "EB"}};
    FORMAT(bytes, units, out);
}

void ty_format_memory(double bytes, char out[32])
{
    static const unit units[] = {{1.0, "B"},      {0x1p10, "KiB"}, {0x1p20, "MiB"}, {0x1p30, "GiB"},
                                 {0x1p40, "TiB"}, {0x1p50, "PiB"}, {0x1p60, "EiB"}};
    FORMAT(bytes, units, out);
}

void ty_format_seconds(double seconds, char out[32])
{
    static const unit small[] = {
        {1e-12, "ps"}, {1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1.0, "s"}};
    static const unit large[] = {{86400.0, "d"}, {3600.0, "h"}, {60.0, "min"}};

    for (size_t i = 0; i < 3; i++) {
        if (fabs(seconds) >= 2.0 * large[i].scale) {
            format_in(seconds, &large[i], 1, out);
            return;
        }
    }
    FORMAT(seconds, small, out);
}

void ty_format_bandwidth(double bytes_per_s, char out[32])
{
    static const unit units[] = {{1.0, "B/s"},   {1e3, "kB/s"},  {1e6, "MB/s"}, {1e9, "GB/s"},
                                 {1e12, "TB/s"}, {1e15, "PB/s"}, {1e18, "EB/s"}};
    FORMAT(bytes_per_s, units, out);
}

/* Three digits and a unit without a blank. */
static void format_short(double value, char out[32])
{
    static const unit units[] = {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}};
    char digits[32];
    size_t i = 0;

    while (i + 1 < sizeof units / sizeof units[0] && fabs(value) >= units[i + 1].scale * 0.9995)
        i++;
    format_digits(value / units[i].scale, digits);
    snprintf(out, 32, "%.20s%s", digits, units[i].name);
}

void ty_format_tokens(double tokens, char out[32])
{
    format_short(tokens, out);
}

void ty_format_usd(double usd, char out[32])
{
    char digits[32];

    if (fabs(usd) < 999.5) {
        snprintf(out, 32, "$%.*f", fabs(usd) < 99.95 ? 2 : 0, usd);
    } else if (fabs(usd) < 9999.5) {
        const int whole = (int)lround(usd);
        snprintf(out, 32, "$%d,%03d", whole / 1000, abs(whole) % 1000);
    } else {
        format_short(usd, digits);
        snprintf(out, 32, "$%.30s", digits);
    }
}

void ty_format_days(double days, char out[32])
{
    char usd[32];

    if (fabs(days) < 999.5) {
        format_digits(days, out);
    } else {
        ty_format_usd(days, usd);
        snprintf(out, 32, "%.30s", usd + 1);
    }
}

/* A decimal number at the start of `text`, digits first, whatever the locale; NULL if there is none
 * or it is too large. Returns its end. */
static const char *read_number(const char *text, double *value)
{
    char number[64], point[8];
    const char *from = text;
    size_t length = 0, point_length;
    bool has_point = false, has_digit = false;

    /* strtod needs the locale's decimal point, and printf prints it. */
    point_length = (size_t)snprintf(point, sizeof point, "%.1f", 0.0) - 2;
    for (; length < sizeof number - 16; from++) {
        if (isdigit((unsigned char)*from)) {
            number[length++] = *from;
            has_digit = true;
        } else if (*from == '.' && !has_point && isdigit((unsigned char)from[1])) {
            memcpy(number + length, point + 1, point_length);
            length += point_length;
            has_point = true;
        } else {
            break;
        }
    }
    if (!has_digit || isdigit((unsigned char)*from))
        return NULL;
    if (*from == 'e' || *from == 'E') {
        size_t digits = from[1] == '+' || from[1] == '-' ? 2 : 1;
        if (isdigit((unsigned char)from[digits])) {
            number[length++] = *from++;
            for (size_t i = 0; i < 6 && (i + 1 < digits || isdigit((unsigned char)*from)); i++)
                number[length++] = *from++;
        }
    }
    number[length] = '\0';
    *value = strtod(number, NULL);
    return isfinite(*value) ? from : NULL;
}

static const struct prefix {
    char text[3];
    double scale;
} prefixes[] = {
    {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"k", 1e3},
    {"K", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},    {"", 1.0},
};

/* A number, spaces, then a unit of `units`, with a prefix if `is_prefixed`. */
static bool read_quantity(const char *text, const unit *units, size_t count, bool is_prefixed,
                          double *value)
{
    const char *rest = read_number(text, value);

    if (rest == NULL)
        return false;
    while (*rest == ' ')
        rest++;
    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++) {
        size_t length = strlen(prefixes[p].text);
        if ((length > 0 && !is_prefixed) || strncmp(rest, prefixes[p].text, length) != 0)
            continue;
        for (size_t u = 0; u < count; u++) {
            if (strcmp(rest + length, units[u].name) == 0 &&
                (length == 0 || units[u].name[0] != '\0')) {
                *value *= prefixes[p].scale * units[u].scale;
                return isfinite(*value);
            }
        }
    }
    return false;
}

/* Its value in the unit of scale 1. */
static ty_status parse(const char *text, const unit *units, size_t count, bool is_prefixed,
                       const char *expected, double *out, ty_error *error)
{
    double value;

    if (!read_quantity(text, units, count, is_prefixed, &value))
        return ty_fail(error, TY_EINVAL, "found \"%.60s\", expected %s", text, expected);
    *out = value;
    return TY_OK;
}
#define PARSE(is_prefixed, expected, out)                                                          \
    parse(text, units, sizeof units / sizeof units[0], is_prefixed, expected, out, error)

ty_status ty_parse_bandwidth(const char *text, double *bytes_per_s, ty_error *error)
{
    static const unit units[] = {{1.0, ""},      {1.0, "B/s"},   {1.0, "Bps"},
                                 {0.125, "b/s"}, {0.125, "bps"}, {0.125, "bit/s"}};

    return PARSE(true,
                 "a bandwidth such as 100Gb/s or 400Gbps (bits), 25GB/s, 12GiB/s or 1e9 (bytes per "
                 "second)",
                 bytes_per_s);
}

ty_status ty_parse_bytes(const char *text, uint64_t *bytes, ty_error *error)
{
    static const unit units[] = {{1.0, ""}, {1.0, "B"}};
    static const char expected[] = "a size below 2^53 bytes such as 4096, 25MB or 64MiB";
    double value;

    TY_TRY(PARSE(true, expected, &value));
    if (value >= 0x1p53 || (value != floor(value) && value < 1024.0))
        return ty_fail(error, TY_EINVAL, "found \"%.60s\", expected %s", text, expected);
    *bytes = (uint64_t)llround(value);
    return TY_OK;
}

ty_status ty_parse_seconds(const char *text, double *seconds, ty_error *error)
{
    static const unit units[] = {{1.0, ""},    {1.0, "s"},    {1e-3, "ms"},  {1e-6, "us"},
                                 {1e-9, "ns"}, {60.0, "min"}, {3600.0, "h"}, {86400.0, "d"}};

    return PARSE(false, "a time such as 5us, 1.5ms, 3s, 10min, 2h or 2e-6 (seconds)", seconds);
}

ty_status ty_parse_flop_rate(const char *text, double *flop_per_s, ty_error *error)
{
    static const unit units[] = {
        {1.0, ""}, {1.0, "FLOPS"}, {1.0, "flops"}, {1.0, "FLOP/s"}, {1.0, "flop/s"}};

    return PARSE(true, "a rate such as 1TFLOPS, 250Mflop/s or 1e12 (flop per second)", flop_per_s);
}

ty_status ty_parse_count(const char *text, double *count, ty_error *error)
{
    static const unit units[] = {{1.0, ""},        {1e3, "k"},      {1e3, "K"},  {1e6, "M"},
                                 {1e9, "B"},       {1e9, "G"},      {1e12, "T"}, {1e12, "trillion"},
                                 {1e9, "billion"}, {1e6, "million"}};
    static const char expected[] = "a number above 0 such as 15.6T, 300B, 2M or 1e12";
    double value;

    TY_TRY(PARSE(false, expected, &value));
    if (!(value > 0))
        return ty_fail(error, TY_EINVAL, "found \"%.60s\", expected %s", text, expected);
    *count = value;
    return TY_OK;
}

ty_status ty_parse_uint(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *out,
                        ty_error *error)
{
    unsigned long long value = 0;
    char *end = NULL;
    bool is_good = isdigit((unsigned char)text[0]) != 0;

    if (is_good) {
        errno = 0;
        value = strtoull(text, &end, 10);
        is_good = *end == '\0' && errno == 0 && value >= minimum && value <= maximum;
    }
    if (!is_good)
        return ty_fail(error, TY_EINVAL,
                       "found \"%.60s\", expected a whole number from %llu to %llu", text,
                       (unsigned long long)minimum, (unsigned long long)maximum);
    *out = value;
    return TY_OK;
}

ty_status ty_parse_length(const char *text, uint64_t maximum, uint64_t *tokens, ty_error *error)
{
    const size_t digits = strspn(text, "0123456789");
    const char *suffix = text + digits;
    const int shift = strcmp(suffix, "k") == 0 || strcmp(suffix, "K") == 0 ? 10
                      : strcmp(suffix, "M") == 0                           ? 20
                                                                           : 0;
    char number[24];

    if (shift == 0 || digits >= sizeof number)
        return ty_parse_uint(text, 1, maximum, tokens, error);
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    if (ty_parse_uint(number, 1, maximum >> shift, tokens, NULL) != TY_OK)
        return ty_parse_uint(text, 1, maximum, tokens, error);
    *tokens <<= shift;
    return TY_OK;
}
