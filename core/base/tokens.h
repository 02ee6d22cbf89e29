/**
 * @file tokens.h
 * Text as tokens, in a file that the worker maps into memory: `trainyard.tokens/1`.
 *
 * Tokens below 256 are bytes. Each later one represents two consecutive earlier ones: byte pairs,
 * the most frequent first (Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with
 * Subword Units", ACL 2016, section 3.2), learned from the text itself. A pair never crosses the
 * start of a word, which is whitespace and the text up to the next. The file has the pairs, so the
 * text can be decoded.
 *
 *     TY_CHECK(ty_tokens_learn(text, length, 4096, &made, error), status, cleanup);
 *     TY_CHECK(ty_tokens_save(made, "text.tokens", error), status, cleanup);
 *
 * The file, in the byte order of the machine that wrote it: a header of 64 bytes (24 of magic,
 * uint32 0x01020304, uint32 bytes per token (1, 2 or 4), uint64 vocabulary, uint64 tokens, zeros),
 * the pairs (two uint32 each, vocabulary - 256 of them), the tokens.
 */
#ifndef TOKENS_H
#define TOKENS_H

#include "ty_base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TY_BYTE_TOKENS 256
/** More pairs than any published vocabulary has. */
#define TY_MOST_TOKENS (UINT32_C(1) << 20)

typedef struct ty_tokens {
    uint32_t vocabulary; /* tokens are below this; at least TY_BYTE_TOKENS */
    uint32_t token_bytes;
    uint64_t count;
    const void *tokens;         /* [count] of uint8_t, uint16_t or uint32_t */
    const uint32_t (*pairs)[2]; /* [vocabulary - 256], or NULL */
    void *memory;               /* owner of both */
    uint64_t mapped_bytes;      /* of the file; 0: `memory` is from ty_alloc */
} ty_tokens;

static inline uint32_t ty_token_at(const ty_tokens *tokens, uint64_t index)
{
    if (tokens->token_bytes == 1)
        return ((const uint8_t *)tokens->tokens)[index];
    if (tokens->token_bytes == 2)
        return ((const uint16_t *)tokens->tokens)[index];
    return ((const uint32_t *)tokens->tokens)[index];
}

/**
 * Tokenizes a text. Time grows with the text, and with log(pairs) times the merged occurrences: ten
 * megabytes and 8,192 tokens take seconds.
 * @param vocabulary TY_BYTE_TOKENS to TY_MOST_TOKENS; fewer if no pair occurs twice any more
 * @return TY_EINVAL: vocabulary out of range; TY_EPARSE: no text
 */
ty_status ty_tokens_learn(const char *text, size_t length, uint32_t vocabulary, ty_tokens **out,
                          ty_error *error) TY_MUST_CHECK;
ty_status ty_tokens_save(const ty_tokens *tokens, const char *path, ty_error *error) TY_MUST_CHECK;

/** Whether the file has this format, or one of other programs (tokens_foreign.h). */
bool ty_tokens_is_file(const char *path);
/**
 * Maps a file. Reads it once to check that every token is below the vocabulary, or, for another
 * program's file, to find the vocabulary; such a file has no pairs.
 * @return TY_EIO; TY_EPARSE: not such a file, another byte order, truncated or too long, pairs or
 *   tokens out of range
 */
ty_status ty_tokens_open(const char *path, ty_tokens **out, ty_error *error) TY_MUST_CHECK;
void ty_tokens_close(ty_tokens *tokens);

/** The text; TY_EUNSUPPORTED for another program's tokens. @param out [out] terminated with a NUL
 * that `length` does not count; free with ty_free */
ty_status ty_tokens_text(const ty_tokens *tokens, char **out, size_t *length,
                         ty_error *error) TY_MUST_CHECK;

#endif
