/* Files of tokens: see tokens.h. */
#include "tokens.h"

#include "byte_pairs.h"
#include "tokens_foreign.h"
#include "ty_base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "trainyard.tokens/1"
#define BYTE_ORDER_MARK UINT32_C(0x01020304)

typedef struct header {
    char magic[24];
    uint32_t byte_order, token_bytes;
    uint64_t vocabulary, count;
    char zeros[16];
} header;

static uint64_t pair_count(uint64_t vocabulary)
{
    return vocabulary - TY_BYTE_TOKENS;
}

/* ---- Learning ------------------------------------------------------------------------------ */

static void narrow(const byte_pairs *from, uint32_t token_bytes, void *to)
{
    for (uint64_t i = 0; i < from->count; i++) {
        if (token_bytes == 1)
            ((uint8_t *)to)[i] = (uint8_t)from->tokens[i];
        else if (token_bytes == 2)
            ((uint16_t *)to)[i] = (uint16_t)from->tokens[i];
        else
            ((uint32_t *)to)[i] = from->tokens[i];
    }
}

static ty_status tokens_make(const byte_pairs *from, ty_tokens **out, ty_error *error)
{
    const uint32_t vocabulary = TY_BYTE_TOKENS + from->pair_count;
    const uint32_t token_bytes = vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
    const size_t pairs_bytes = from->pair_count * sizeof *from->pairs;
    ty_tokens *made = ty_alloc(1, sizeof *made);
    char *memory = made != NULL ? ty_alloc(pairs_bytes + from->count * token_bytes, 1) : NULL;

    if (memory == NULL) {
        ty_free(made);
        return ty_fail(error, TY_ENOMEM, "out of memory for %llu tokens",
                       (unsigned long long)from->count);
    }
    memcpy(memory, from->pairs, pairs_bytes);
    narrow(from, token_bytes, memory + pairs_bytes);
    *made = (ty_tokens){.vocabulary = vocabulary,
                        .token_bytes = token_bytes,
                        .count = from->count,
                        .tokens = memory + pairs_bytes,
                        .pairs = (const uint32_t(*)[2])(const void *)memory,
                        .memory = memory};
    *out = made;
    return TY_OK;
}

ty_status ty_tokens_learn(const char *text, size_t length, uint32_t vocabulary, ty_tokens **out,
                          ty_error *error)
{
    byte_pairs learnt = {0};
    ty_status status;

    if (vocabulary < TY_BYTE_TOKENS || vocabulary > TY_MOST_TOKENS)
        return ty_fail(error, TY_EINVAL, "found a vocabulary of %u tokens, expected %d to %u",
                       vocabulary, TY_BYTE_TOKENS, TY_MOST_TOKENS);
    if (length == 0)
        return ty_fail(error, TY_EPARSE, "found no text, expected at least a byte");
    status = ty_byte_pairs_learn(text, length, vocabulary - TY_BYTE_TOKENS, &learnt, error);
    if (status == TY_OK)
        status = tokens_make(&learnt, out, error);
    ty_byte_pairs_clear(&learnt);
    return status;
}

ty_status ty_tokens_save(const ty_tokens *tokens, const char *path, ty_error *error)
{
    header head = {.magic = MAGIC,
                   .byte_order = BYTE_ORDER_MARK,
                   .token_bytes = tokens->token_bytes,
                   .vocabulary = tokens->vocabulary,
                   .count = tokens->count};
    ty_text text = {0};
    ty_status status;

    ty_text_append(&text, (const char *)&head, sizeof head);
    ty_text_append(&text, (const char *)tokens->pairs,
                   pair_count(tokens->vocabulary) * sizeof *tokens->pairs);
    ty_text_append(&text, tokens->tokens, tokens->count * tokens->token_bytes);
    status = ty_file_write_text(path, &text, error);
    ty_text_clear(&text);
    return status;
}

/* ---- Opening ----------------------------------------------------------------------------- */

bool ty_tokens_is_file(const char *path)
{
    char magic[sizeof MAGIC] = "";
    FILE *file = ty_file_check_plain(path, NULL) == TY_OK ? fopen(path, "rb") : NULL;
    bool is_one;

    if (file == NULL)
        return ty_tokens_is_foreign(path);
    is_one = fread(magic, sizeof magic, 1, file) == 1 && memcmp(magic, MAGIC, sizeof magic) == 0;
    fclose(file);
    return is_one || ty_tokens_is_foreign(path);
}

static ty_status header_check(const header *head, uint64_t bytes, const char *path, ty_error *error)
{
    uint64_t pairs_end;

    if (bytes < sizeof *head || memcmp(head->magic, MAGIC, sizeof MAGIC) != 0)
        return ty_fail(error, TY_EPARSE, "%s: found no header of tokens, expected \"" MAGIC "\"",
                       path);
    if (head->byte_order != BYTE_ORDER_MARK)
        return ty_fail(error, TY_EPARSE,
                       "%s: found byte order %08x, expected this machine's: make it anew here",
                       path, head->byte_order);
    if (head->vocabulary < TY_BYTE_TOKENS || head->vocabulary > TY_MOST_TOKENS)
        return ty_fail(error, TY_EPARSE, "%s: found a vocabulary of %llu tokens, expected %d to %u",
                       path, (unsigned long long)head->vocabulary, TY_BYTE_TOKENS, TY_MOST_TOKENS);
    if (head->token_bytes != 1 && head->token_bytes != 2 && head->token_bytes != 4)
        return ty_fail(error, TY_EPARSE, "%s: found tokens of %u bytes, expected 1, 2 or 4", path,
                       head->token_bytes);
    pairs_end = sizeof *head + pair_count(head->vocabulary) * 2 * sizeof(uint32_t);
    if (bytes < pairs_end || (bytes - pairs_end) % head->token_bytes != 0 ||
        (bytes - pairs_end) / head->token_bytes != head->count)
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu bytes, expected a header, %llu pairs and %llu tokens of %u",
                       path, (unsigned long long)bytes,
                       (unsigned long long)pair_count(head->vocabulary),
                       (unsigned long long)head->count, head->token_bytes);
    return TY_OK;
}

/* For a file without it. */
static ty_status vocabulary_find(ty_tokens *t, const char *path, ty_error *error)
{
    uint32_t most = TY_BYTE_TOKENS - 1;

    for (uint64_t i = 0; i < t->count; i++)
        most = ty_token_at(t, i) > most ? ty_token_at(t, i) : most;
    if (most >= TY_MOST_TOKENS)
        return ty_fail(error, TY_EPARSE, "%s: found token %u, expected less than %u", path, most,
                       TY_MOST_TOKENS);
    t->vocabulary = most + 1;
    return TY_OK;
}

static ty_status contents_check(const ty_tokens *t, const char *path, ty_error *error)
{
    for (uint32_t i = 0; i < pair_count(t->vocabulary); i++)
        if (t->pairs[i][0] >= TY_BYTE_TOKENS + i || t->pairs[i][1] >= TY_BYTE_TOKENS + i)
            return ty_fail(error, TY_EPARSE,
                           "%s: token %u stands for %u and %u, expected earlier ones", path,
                           TY_BYTE_TOKENS + i, t->pairs[i][0], t->pairs[i][1]);
    for (uint64_t i = 0; i < t->count; i++)
        if (ty_token_at(t, i) >= t->vocabulary)
            return ty_fail(error, TY_EPARSE,
                           "%s: found token %u at place %llu, expected less than %u", path,
                           ty_token_at(t, i), (unsigned long long)i, t->vocabulary);
    return TY_OK;
}

static ty_status map_file(const char *path, void **memory, uint64_t *bytes, ty_error *error)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    void *mapped = MAP_FAILED;
    ty_status status = TY_OK;

    if (file < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (fstat(file, &about) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    else if (about.st_size == 0)
        status = ty_fail(error, TY_EPARSE, "%s: found an empty file, expected tokens", path);
    else
        mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (status == TY_OK && mapped == MAP_FAILED)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    close(file);
    if (status == TY_OK) {
        *memory = mapped;
        *bytes = (uint64_t)about.st_size;
    }
    return status;
}

static ty_status own_open(const char *path, ty_tokens **out, ty_error *error)
{
    ty_tokens *t = ty_alloc(1, sizeof *t);
    const header *head;
    ty_status status;

    TY_TRY(ty_check_memory(t != NULL, error));
    TY_CHECK(ty_file_check_plain(path, error), status, cleanup);
    TY_CHECK(map_file(path, &t->memory, &t->mapped_bytes, error), status, cleanup);
    head = t->memory;
    TY_CHECK(header_check(head, t->mapped_bytes, path, error), status, cleanup);
    t->vocabulary = (uint32_t)head->vocabulary;
    t->token_bytes = head->token_bytes;
    t->count = head->count;
    t->pairs = (const uint32_t(*)[2])(const void *)((const char *)t->memory + sizeof *head);
    t->tokens = t->pairs + pair_count(t->vocabulary);
    TY_CHECK(contents_check(t, path, error), status, cleanup);
    *out = t;
    t = NULL; /* given away */

cleanup:
    ty_tokens_close(t);
    return status;
}

static ty_status foreign_open(const char *given, ty_tokens **out, ty_error *error)
{
    ty_tokens *t = ty_alloc(1, sizeof *t);
    char *path = NULL;
    uint64_t start = 0;
    ty_status status;

    TY_TRY(ty_check_memory(t != NULL, error));
    TY_CHECK(ty_tokens_foreign_read(given, &path, &start, t, error), status, cleanup);
    TY_CHECK(map_file(path, &t->memory, &t->mapped_bytes, error), status, cleanup);
    if (t->mapped_bytes != start + t->count * t->token_bytes) {
        status = ty_fail(error, TY_EPARSE, "%s: changed while it was opened", path);
        goto cleanup;
    }
    t->tokens = (const char *)t->memory + start;
    TY_CHECK(vocabulary_find(t, path, error), status, cleanup);
    *out = t;
    t = NULL; /* given away */

cleanup:
    ty_free(path);
    ty_tokens_close(t);
    return status;
}

ty_status ty_tokens_open(const char *path, ty_tokens **out, ty_error *error)
{
    if (ty_tokens_is_foreign(path))
        return foreign_open(path, out, error);
    return own_open(path, out, error);
}

void ty_tokens_close(ty_tokens *tokens)
{
    if (tokens == NULL)
        return;
    if (tokens->mapped_bytes > 0)
        munmap(tokens->memory, (size_t)tokens->mapped_bytes);
    else
        ty_free(tokens->memory);
    ty_free(tokens);
}

/* ---- Decoding ------------------------------------------------------------------------------ */

/* The bytes of a token, from last to first: `stack` has room for the vocabulary, because pairs
 * consist of earlier tokens. */
static void token_write(const ty_tokens *t, uint32_t token, uint32_t *stack, ty_text *text)
{
    uint32_t depth = 0;

    stack[depth++] = token;
    while (depth > 0) {
        const uint32_t top = stack[--depth];
        if (top < TY_BYTE_TOKENS) {
            const char byte = (char)top;
            ty_text_append(text, &byte, 1);
        } else {
            stack[depth++] = t->pairs[top - TY_BYTE_TOKENS][1];
            stack[depth++] = t->pairs[top - TY_BYTE_TOKENS][0];
        }
    }
}

ty_status ty_tokens_text(const ty_tokens *tokens, char **out, size_t *length, ty_error *error)
{
    uint32_t *stack;
    ty_text text = {0};

    if (tokens->pairs == NULL && tokens->vocabulary > TY_BYTE_TOKENS)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "tokens of another program: what they stand for is not in their file");
    stack = ty_alloc((size_t)tokens->vocabulary + 1, sizeof *stack);
    TY_TRY(ty_check_memory(stack != NULL, error));
    for (uint64_t i = 0; i < tokens->count; i++)
        token_write(tokens, ty_token_at(tokens, i), stack, &text);
    ty_free(stack);
    *length = text.length;
    return ty_text_take(&text, out, error);
}
