/* Byte pairs against a slow reference, and files of tokens with every kind of damage. */
#include "tokens.h"
#include "ty_core.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4096 };

/* The definition, without optimizations: the most frequent pair within words becomes a token
 * everywhere, from left to right. Ties go to the pair with the earlier tokens. */
typedef struct slow {
    uint32_t tokens[MOST], words[MOST]; /* [count]: and the word each is in */
    uint32_t count;
} slow;

static bool is_space(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static void slow_start(slow *s, const char *text, size_t length)
{
    uint32_t word = 0;

    s->count = (uint32_t)length;
    for (size_t i = 0; i < length; i++) {
        word += i > 0 && is_space((unsigned char)text[i]);
        s->tokens[i] = (unsigned char)text[i];
        s->words[i] = word;
    }
}

static uint32_t occurrences(const slow *s, uint32_t first, uint32_t second)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i + 1 < s->count; i++)
        count +=
            s->words[i] == s->words[i + 1] && s->tokens[i] == first && s->tokens[i + 1] == second;
    return count;
}

static bool slow_merge(slow *s, uint32_t token)
{
    uint32_t best = 1, first = 0, second = 0, kept = 0;

    for (uint32_t i = 0; i + 1 < s->count; i++) {
        const uint32_t a = s->tokens[i], b = s->tokens[i + 1];
        uint32_t count = s->words[i] == s->words[i + 1] ? occurrences(s, a, b) : 0;
        if (count > best ||
            (count == best && best > 1 && (a < first || (a == first && b < second)))) {
            best = count;
            first = a;
            second = b;
        }
    }
    for (uint32_t i = 0; best > 1 && i < s->count; i++) {
        const bool is_pair = i + 1 < s->count && s->words[i] == s->words[i + 1] &&
                             s->tokens[i] == first && s->tokens[i + 1] == second;
        s->words[kept] = s->words[i];
        s->tokens[kept++] = is_pair ? token : s->tokens[i];
        i += is_pair;
    }
    if (best > 1)
        s->count = kept;
    return best > 1;
}

static void compare(const char *text, size_t length, uint32_t vocabulary, const char *what)
{
    static slow s;
    ty_tokens *found = NULL;
    uint32_t made = TY_BYTE_TOKENS;
    char *back = NULL;
    size_t back_length = 0;
    ty_error error = {0};

    cr_assert_eq(ty_tokens_learn(text, length, vocabulary, &found, &error), TY_OK, "%s: %s", what,
                 error.message);
    slow_start(&s, text, length);
    while (made < vocabulary && slow_merge(&s, made))
        made++;
    cr_assert_eq(found->vocabulary, made, "%s: %u tokens, expected %u", what, found->vocabulary,
                 made);
    cr_assert_eq(found->count, s.count, "%s", what);
    for (uint32_t i = 0; i < s.count; i++)
        cr_assert_eq(ty_token_at(found, i), s.tokens[i], "%s: token %u", what, i);
    cr_assert_eq(ty_tokens_text(found, &back, &back_length, &error), TY_OK);
    cr_assert(back_length == length && memcmp(back, text, length) == 0, "%s: another text", what);
    ty_free(back);
    ty_tokens_close(found);
}

Test(tokens, are_those_of_the_definition)
{
    char random[600];
    uint32_t state = 7;

    compare("a", 1, 300, "a letter");
    compare("aaaaaaaaa", 9, 300, "one letter");
    compare("the cat sat on the mat, the cat sat on the hat\n\n  the end", 57, 300, "words");
    for (uint32_t t = 0; t < 20; t++) {
        for (size_t i = 0; i < sizeof random; i++) {
            state = state * 1664525 + 1013904223;
            random[i] = "abcab \nb"[state >> 29];
        }
        compare(random, sizeof random, 256 + t * 8, "random text");
    }
}

static ty_status open_bytes(const char *path, const char *bytes, size_t length, ty_error *error)
{
    ty_tokens *t = NULL;
    ty_status status;

    cr_assert_eq(ty_file_write(path, bytes, length, error), TY_OK);
    status = ty_tokens_open(path, &t, error);
    ty_tokens_close(t);
    return status;
}

Test(tokens, files_tell_damage)
{
    static const struct {
        size_t at;
        char byte;
        const char *words;
    } rows[] = {{0, 'T', "no header"},       {24, 9, "byte order"},      {28, 3, "tokens of 3"},
                {33, 0x40, "a header"},      {40, 1, "a header"},        {39, 1, "a vocabulary"},
                {66, 2, "expected earlier"}, {75, 7, "expected earlier"}};
    char path[] = "/tmp/trainyard-tokens-XXXXXX";
    const int file = mkstemp(path);
    ty_tokens *made = NULL;
    char *bytes = NULL;
    size_t length;
    ty_error error = {0};

    cr_assert(file >= 0);
    close(file);
    cr_assert_eq(ty_tokens_learn("abcabcabcabc", 12, 300, &made, &error), TY_OK);
    cr_assert_eq(made->vocabulary, 259);
    cr_assert_eq(ty_tokens_save(made, path, &error), TY_OK, "%s", error.message);
    cr_assert(ty_tokens_is_file(path));
    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, &error), TY_OK);
    cr_assert_eq(open_bytes(path, bytes, length, &error), TY_OK, "%s", error.message);
    for (size_t cut = 0; cut < length; cut++)
        cr_assert_eq(open_bytes(path, bytes, cut, &error), TY_EPARSE, "%zu bytes", cut);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char before = bytes[rows[i].at];
        bytes[rows[i].at] = rows[i].byte;
        cr_assert_eq(open_bytes(path, bytes, length, &error), TY_EPARSE, "row %zu", i);
        cr_assert_not_null(strstr(error.message, rows[i].words), "row %zu: %s", i, error.message);
        bytes[rows[i].at] = before;
    }
    bytes[length - 1] = 5; /* the upper byte of the last token */
    cr_assert_eq(open_bytes(path, bytes, length, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "expected less than 259"), "%s", error.message);
    cr_assert_eq(ty_tokens_learn("", 0, 300, &made, &error), TY_EPARSE);
    cr_assert_eq(ty_tokens_learn("a", 1, 255, &made, &error), TY_EINVAL);
    unlink(path);
    ty_free(bytes);
    ty_tokens_close(made);
}
