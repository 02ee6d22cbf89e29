/* Growing strings, numbers and quantities as text, suggestions, digests, memory in large blocks. */
#include "ty_base.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Quoting ------------------------------------------------------------------------------- */

Test(quote, what_can_be_seen)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"plain", NULL},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x82", NULL},
        {"", NULL},
        {"a\tb\nc", "a\\x09b\\x0ac"},
        {"\x1b[2J", "\\x1b[2J"},
        {"\x7f", "\\x7f"},
        {"\xc2\x85", "\\u0085"},
        {"\xc2\x9f\xc2\xa0", "\\u009f\xc2\xa0"},
        {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
        {"\xe2\x80\xae\xe2\x81\xa6", "\\u202e\\u2066"},
        {"\xef\xbb\xbf", "\\ufeff"},
        {"\xe2\x80\x8b\xe2\x81\xa0\xc2\xad", "\\u200b\\u2060\\u00ad"}, /* no width */
        {"\xf3\xa0\x81\x81", "\\U000e0041"},                           /* a tag */
        {"\xe2\x9a\xa0\xef\xb8\x8f", NULL}, /* a warning sign as an image */
        {"\xff\xe2\x80", "\\xff\\xe2\\x80"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_quote_visible(&text, rows[i].text, "");
        cr_expect_eq(ty_is_printable(rows[i].text), rows[i].shown == NULL, "row %zu", i);
        cr_expect_str_eq(text.data != NULL ? text.data : "",
                         rows[i].shown != NULL ? rows[i].shown : rows[i].text, "row %zu", i);
        ty_text_clear(&text);
        ty_quote_visible(&text, "a\nb\r", "\n");
        cr_expect_str_eq(text.data, "a\nb\\x0d");
        ty_text_clear(&text);
    }
}

/* Messages with content of files go to terminals. */
Test(quote, messages_show_nothing_else)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x82", NULL},
        {"a\tb\nc\x1b[2J\x7f", "a?b?c?[2J?"},
        {"a\xc2\x85", "a??"},
        {"a\xe2\x80\xa8z\xe2\x80\xaez", "a???z???z"},
        {"\xef\xbb\xbfz", "???z"},
        {"\xe2\x80", "??"},
    };
    ty_error error;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(ty_fail(&error, TY_EIO, "%s", rows[i].text), TY_EIO);
        cr_expect_str_eq(error.message, rows[i].shown != NULL ? rows[i].shown : rows[i].text,
                         "row %zu", i);
    }
    for (int width = 250; width < 260; width++) { /* cut within a character */
        (void)ty_fail(&error, TY_EIO, "%*s\xe2\x82\xac", width, "");
        cr_expect(ty_is_printable(error.message), "width %d", width);
    }
}

Test(quote, words_of_a_shell)
{
    static const char *const rows[][2] = {
        {"train.py", "train.py"}, {"", "''"},         {"a b", "'a b'"}, {"it's", "'it'\\''s'"},
        {"$(x)", "'$(x)'"},       {"a\nb", "'a\nb'"}, {"~", "'~'"},     {"a=b", "'a=b'"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_quote_shell(&text, rows[i][0]);
        cr_expect_str_eq(text.data, rows[i][1]);
        ty_text_clear(&text);
    }
}

Test(text, grows_and_is_handed_over)
{
    ty_text text = {0};
    ty_error error = {0};
    char *out = NULL;

    for (int i = 0; i < 1000; i++)
        ty_text_addf(&text, "%d,", i);
    ty_text_append(&text, "a\0b", 3);
    cr_assert_eq(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    cr_assert_eq(ty_text_take(&text, &out, &error), TY_OK);
    cr_assert_null(text.data, "the text is empty again");
    cr_assert_eq(strncmp(out, "0,1,2,", 6), 0);
    cr_assert_eq(strlen(out), 10 * 2 + 90 * 3 + 900 * 4 + 1, "up to the NUL that was appended");
    ty_free(out);
    cr_assert_eq(ty_text_take(&text, &out, &error), TY_OK);
    cr_assert_str_eq(out, "");
    ty_free(out);
}

Test(text, remembers_that_memory_ran_out)
{
    ty_text text = {0};
    ty_error error = {0};
    char *out = NULL;

    ty_text_add(&text, "kept");
    ty_memory_fail_after(1);
    for (int i = 0; i < 100; i++)
        ty_text_add(&text, "more than fits");
    ty_memory_fail_after(0);
    ty_text_add(&text, "ignored");
    cr_assert_eq(ty_text_take(&text, &out, &error), TY_ENOMEM);
    cr_assert_null(out);
    cr_assert(strstr(error.message, "out of memory") != NULL);
}

/* The fewest digits with which printf's decimal reads back as the value. */
static int shortest_digits(double value)
{
    char text[64];
    int digits = 1;
    for (;; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value)
            return digits;
    }
}

/* Digits of the mantissa, without leading and trailing zeros. */
static int count_digits(const char *text)
{
    int count = 0, zeros = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text == '0' && count > 0)
            zeros++;
        if (*text >= '1' && *text <= '9') {
            count += zeros + 1;
            zeros = 0;
        }
    }
    return count > 0 ? count : 1;
}

Test(text, numbers_read_back_and_are_shortest)
{
    static const struct {
        double value;
        const char *expected;
    } rows[] = {{0.0, "0"},
                {-0.0, "-0"},
                {1.0, "1"},
                {0.1, "0.1"},
                {-2.5, "-2.5"},
                {0.1 + 0.2, "0.30000000000000004"},
                {1e5, "100000"},
                {1e22, "1e22"},
                {1e-7, "1e-7"},
                {5e-324, "5e-324"},
                {1e300, "1e300"},
                {123456789012345.0, "123456789012345"},
                {0x1p53, "9007199254740992"}};
    const uint64_t seed = 20240229;
    uint64_t state = seed;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[32];
        ty_format_number(rows[i].value, out);
        cr_expect_str_eq(out, rows[i].expected, "%.17g", rows[i].value);
    }
    for (int i = 0; i < 20000; i++) {
        double value;
        char out[32];
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &state, sizeof value);
        if (!isfinite(value))
            continue;
        ty_format_number(value, out);
        cr_assert(strtod(out, NULL) == value, "seed %llu: %.17g as %s", (unsigned long long)seed,
                  value, out);
        cr_assert_eq(count_digits(out), shortest_digits(value), "%.17g as %s", value, out);
    }
}

Test(text, numbers_do_not_depend_on_the_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    char number[32], amount[32];
    double bandwidth = 0.0;
    size_t i = 0;

    while (i < 4 && setlocale(LC_ALL, names[i]) == NULL)
        i++;
    if (i == 4)
        cr_skip_test("no locale with a decimal comma on this machine");
    ty_format_number(1.5e-7, number);
    ty_format_bytes(2.5e9, amount);
    cr_assert_str_eq(number, "1.5e-7");
    cr_assert_str_eq(amount, "2.5 GB");
    cr_assert_eq(ty_parse_bandwidth("1.5GB/s", &bandwidth, NULL), TY_OK);
    cr_assert(bandwidth == 1.5e9);
}

Test(text, quantities_for_people)
{
    static const struct {
        void (*format)(double, char[32]);
        double value;
        const char *expected;
    } rows[] = {
        {ty_format_count, 0, "0"},
        {ty_format_count, 7, "7"},
        {ty_format_count, 0.25, "0.25"},
        {ty_format_count, 1864000, "1.86 M"},
        {ty_format_count, 999.4, "999"},
        {ty_format_count, 999.6, "1 k"},
        {ty_format_count, -25600, "-25.6 k"},
        {ty_format_count, HUGE_VAL, "inf"},
        {ty_format_bytes, 25.6e9, "25.6 GB"},
        {ty_format_bytes, 999950, "1 MB"},
        {ty_format_memory, 3.2 * 1073741824, "3.2 GiB"},
        {ty_format_memory, 1023, "1023 B"},
        {ty_format_memory, 65536, "64 KiB"},
        {ty_format_bandwidth, 2.5e9, "2.5 GB/s"},
        {ty_format_usd, 2.5, "$2.50"},
        {ty_format_usd, 415.3, "$415"},
        {ty_format_usd, 6020.4, "$6,020"},
        {ty_format_usd, 592896, "$593k"},
        {ty_format_usd, 999960, "$1M"},
        {ty_format_usd, 1.234e9, "$1.23B"},
        {ty_format_days, 2.163, "2.16"},
        {ty_format_days, 193.2, "193"},
        {ty_format_days, 1457, "1,457"},
        {ty_format_tokens, 1e12, "1T"},
        {ty_format_tokens, 15.6e12, "15.6T"},
        {ty_format_tokens, 3e11, "300B"},
        {ty_format_seconds, 0, "0 s"},
        {ty_format_seconds, 0.0124, "12.4 ms"},
        {ty_format_seconds, 5e-6, "5 us"},
        {ty_format_seconds, 3e-13, "0.3 ps"},
        {ty_format_seconds, 90, "90 s"},
        {ty_format_seconds, 600, "10 min"},
        {ty_format_seconds, 9000, "2.5 h"},
        {ty_format_seconds, 864000, "10 d"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[32];
        rows[i].format(rows[i].value, out);
        cr_expect_str_eq(out, rows[i].expected, "%g", rows[i].value);
    }
}

static ty_status parse_bytes(const char *text, double *out, ty_error *error)
{
    uint64_t bytes = 0;
    ty_status status = ty_parse_bytes(text, &bytes, error);
    if (status == TY_OK)
        *out = (double)bytes;
    return status;
}

static ty_status parse_length(const char *text, double *value, ty_error *error)
{
    uint64_t tokens;
    ty_status status = ty_parse_length(text, 1u << 20, &tokens, error);
    if (status == TY_OK)
        *value = (double)tokens;
    return status;
}

Test(text, quantities_from_people)
{
    static const struct {
        ty_status (*parse)(const char *, double *, ty_error *);
        const char *text;
        double expected; /* < 0: refused */
    } rows[] = {
        {ty_parse_bandwidth, "100Gb/s", 12.5e9},
        {ty_parse_bandwidth, "400Gbps", 50e9},
        {ty_parse_bandwidth, "25GB/s", 25e9},
        {ty_parse_bandwidth, "25 GB/s", 25e9},
        {ty_parse_bandwidth, "1GiB/s", 1073741824},
        {ty_parse_bandwidth, "1e9", 1e9},
        {ty_parse_bandwidth, "1.5e-3 kB/s", 1.5},
        {ty_parse_bandwidth, "25GB", -1},
        {ty_parse_bandwidth, "25G", -1},
        {ty_parse_bandwidth, "-1GB/s", -1},
        {ty_parse_bandwidth, "1e400", -1},
        {ty_parse_bandwidth, "nan", -1},
        {ty_parse_bandwidth, "inf", -1},
        {ty_parse_bandwidth, "0x10", -1},
        {ty_parse_bandwidth, "", -1},
        {ty_parse_bandwidth, " 1GB/s", -1},
        {ty_parse_bandwidth, "1GB/s ", -1},
        {ty_parse_bandwidth, "1.GB/s", -1},
        {parse_bytes, "64MiB", 67108864},
        {parse_bytes, "25MB", 25e6},
        {parse_bytes, "4096", 4096},
        {parse_bytes, "0", 0},
        {parse_bytes, "1.5KiB", 1536},
        {parse_bytes, "0.5", -1},
        {parse_bytes, "9007199254740992", -1},
        {parse_bytes, "1EB", -1},
        {ty_parse_seconds, "5us", 5e-6},
        {ty_parse_seconds, "1.5ms", 1.5e-3},
        {ty_parse_seconds, "3s", 3},
        {ty_parse_seconds, "2e-6", 2e-6},
        {ty_parse_seconds, "10min", 600},
        {ty_parse_seconds, "2h", 7200},
        {ty_parse_seconds, "5 ks", -1},
        {parse_length, "512", 512},
        {parse_length, "8k", 8192},
        {parse_length, "128K", 131072},
        {parse_length, "1M", 1048576},
        {parse_length, "0k", -1},
        {parse_length, "k", -1},
        {parse_length, "8kb", -1},
        {parse_length, "1.5k", -1},
        {parse_length, "2M", -1},
        {ty_parse_count, "15.6T", 15.6e12},
        {ty_parse_count, "300B", 3e11},
        {ty_parse_count, "2 million", 2e6},
        {ty_parse_count, "1e12", 1e12},
        {ty_parse_count, "0", -1},
        {ty_parse_count, "1TB", -1},
        {ty_parse_count, "nan", -1},
        {ty_parse_count, "-3", -1},
        {ty_parse_seconds, "5,5s", -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = -7.0;
        ty_error error = {0};
        ty_status status = rows[i].parse(rows[i].text, &value, &error);
        if (rows[i].expected >= 0.0) {
            cr_expect_eq(status, TY_OK, "%s: %s", rows[i].text, error.message);
            cr_expect(fabs(value - rows[i].expected) <= 1e-15 * rows[i].expected, "%s: %.17g",
                      rows[i].text, value);
        } else {
            cr_expect_eq(status, TY_EINVAL, "%s was taken", rows[i].text);
            cr_expect(value == -7.0, "%s: the result was touched", rows[i].text);
            cr_expect(strstr(error.message, rows[i].text) != NULL, "%s", error.message);
        }
    }
}

Test(text, whole_numbers)
{
    static const struct {
        const char *text;
        uint64_t minimum, maximum, expected;
        ty_status status;
    } rows[] = {{"1", 1, 8, 1, TY_OK},
                {"8", 1, 8, 8, TY_OK},
                {"18446744073709551615", 0, UINT64_MAX, UINT64_MAX, TY_OK},
                {"18446744073709551616", 0, UINT64_MAX, 0, TY_EINVAL},
                {"9", 1, 8, 0, TY_EINVAL},
                {"0", 1, 8, 0, TY_EINVAL},
                {"-1", 0, 8, 0, TY_EINVAL},
                {"+1", 0, 8, 0, TY_EINVAL},
                {" 1", 0, 8, 0, TY_EINVAL},
                {"1x", 0, 8, 0, TY_EINVAL},
                {"", 0, 8, 0, TY_EINVAL}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t value = 0;
        ty_status status =
            ty_parse_uint(rows[i].text, rows[i].minimum, rows[i].maximum, &value, NULL);
        cr_expect_eq(status, rows[i].status, "\"%s\"", rows[i].text);
        cr_expect_eq(value, rows[i].expected, "\"%s\"", rows[i].text);
    }
}

Test(text, suggestions)
{
    static const char *const names[] = {"resnet50", "resnet18", "gpt2", "lenet", "vgg16"};
    static const struct {
        const char *word, *expected;
    } rows[] = {
        {"resnet5", "resnet50"}, {"resnet81", "resnet18"}, {"gtp2", "gpt2"}, {"lnet", "lenet"},
        {"vg16", "vgg16"},       {"transformer", NULL},    {"xy", NULL},     {"", NULL},
        {"lenet", "lenet"}};
    char longest[400];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *found = ty_suggest(rows[i].word, names, 5, sizeof names[0]);
        if (rows[i].expected == NULL)
            cr_expect_null(found, "%s", rows[i].word);
        else
            cr_expect_str_eq(found, rows[i].expected, "%s", rows[i].word);
    }
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert_null(ty_suggest(longest, names, 5, sizeof names[0]));
}

/* FIPS 180-2, appendix B, and the empty message. */
Test(text, digests)
{
    static const struct {
        const char *text, *hex;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char *million = malloc(1000000);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_digest digest = ty_digest_of(rows[i].text, strlen(rows[i].text));
        cr_expect_str_eq(digest.hex, rows[i].hex);
    }
    memset(million, 'a', 1000000);
    cr_expect_str_eq(ty_digest_of(million, 1000000).hex,
                     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* ---- Memory ---- */

Test(memory, large_blocks_are_zeroed_and_counted)
{
    const size_t sizes[] = {0, 1, 1000, ((size_t)4 << 20) - 1, ((size_t)4 << 20) + 12345};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *block = ty_alloc_large(sizes[i], 1);
        cr_assert_not_null(block);
        for (size_t at = 0; at < sizes[i]; at++)
            cr_assert_eq(block[at], 0, "byte %zu of %zu", at, sizes[i]);
        memset(block, 1, sizes[i]);
        ty_free(block);
    }
    cr_assert_null(ty_alloc_large(SIZE_MAX / 2, 4), "the product overflows");
    ty_memory_fail_after(1);
    cr_assert_null(ty_alloc_large((size_t)8 << 20, 1));
    ty_memory_fail_after(0);
}

#ifdef __linux__
/* The flag "hg" of the mapping that contains a large block. */
Test(memory, large_blocks_ask_for_large_pages)
{
    unsigned char *block = ty_alloc_large((size_t)16 << 20, 1);
    const uintptr_t middle = (uintptr_t)block + ((size_t)8 << 20);
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long first, end;
    bool is_ours = false, is_asked = false;
    char line[512];

    cr_assert_not_null(block);
    if (file == NULL || access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        cr_skip_test("this system does not tell of large pages");
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            is_ours = first <= middle && middle < end;
        is_asked =
            is_asked || (is_ours && strstr(line, "VmFlags") != NULL && strstr(line, " hg") != NULL);
    }
    fclose(file);
    cr_assert(is_asked);
    ty_free(block);
}
#endif
