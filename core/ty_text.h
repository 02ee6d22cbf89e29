/**
 * @file ty_text.h
 * Text: growing strings, quantities with units, names close to a misspelt one, digests.
 */
#ifndef TY_TEXT_H
#define TY_TEXT_H

#include "ty_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A growing string. Zero-initialise; append; then either ty_text_take() the result or
 * ty_text_clear(). A failed append is remembered (`failed`) and later ones do nothing, so that
 * only the end needs a check.
 */
typedef struct ty_text {
    char *data; /* terminated; NULL while nothing was appended */
    size_t length, capacity;
    ty_status failed; /* TY_OK; TY_ENOMEM; TY_EINVAL: something that has no text form was written */
} ty_text;

void ty_text_append(ty_text *text, const char *bytes, size_t length);
void ty_text_add(ty_text *text, const char *string);
void ty_text_addf(ty_text *text, const char *format, ...) TY_PRINTF(2, 3);
/** TY_OK, or why an append failed: for those who use `data` and `length` in place. */
ty_status ty_text_check(const ty_text *text, ty_error *error) TY_MUST_CHECK;
/** Hands the string over (never NULL on TY_OK; "" when nothing was appended) and empties `text`. */
ty_status ty_text_take(ty_text *text, char **out, ty_error *error) TY_MUST_CHECK;
void ty_text_clear(ty_text *text);

/** Goes past a byte order mark of UTF-8, which is none of a file's content (Unicode 15, 23.8). */
void ty_skip_mark(const char **text, size_t *length);

/** Shortest decimal that reads back as exactly `value`, locale-independent; `value` is finite. */
void ty_format_number(double value, char out[32]);

/** "1.86 M", "25.6 GB", "3.2 GiB", "12.4 ms", "2.5 GB/s": three significant digits without trailing
 *  zeros, for people. Seconds go up to minutes, hours and days from two of them on. */
void ty_format_count(double value, char out[32]);
void ty_format_bytes(double bytes, char out[32]);  /* decimal: kB, MB, GB, TB */
void ty_format_memory(double bytes, char out[32]); /* binary: KiB, MiB, GiB, TiB */
void ty_format_seconds(double seconds, char out[32]);
void ty_format_bandwidth(double bytes_per_s, char out[32]);
/** As they are written after a price or before "tokens": "$2.50", "$6,020", "$593k"; "300B". */
void ty_format_usd(double usd, char out[32]);
void ty_format_tokens(double tokens, char out[32]);
/** "0.42", "193", "1,457": days, to be followed by the word or in a column of them. */
void ty_format_days(double days, char out[32]);

/**
 * Reads a quantity as people write it. Bandwidth: "100Gb/s", "25GB/s", "400Gbps", "1e9" (bytes/s).
 * Size: "64MiB", "25MB", "4096". Time: "5us", "1.5ms", "3s", "2e-6".
 * @return TY_EINVAL naming the text and the units that are understood; never accepts a negative,
 *         infinite or NaN value, or trailing characters.
 */
ty_status ty_parse_bandwidth(const char *text, double *bytes_per_s, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_bytes(const char *text, uint64_t *bytes, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_seconds(const char *text, double *seconds, ty_error *error) TY_MUST_CHECK;
ty_status ty_parse_flop_rate(const char *text, double *flop_per_s, ty_error *error) TY_MUST_CHECK;
/** A large number above 0: "15.6T", "300B", "2M", "1e12". */
ty_status ty_parse_count(const char *text, double *count, ty_error *error) TY_MUST_CHECK;
/** A whole decimal number in [minimum, maximum]; nothing before or after it. */
ty_status ty_parse_uint(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *out,
                        ty_error *error) TY_MUST_CHECK;

/**
 * The entry of `names` closest to `word` (edit distance, at most a third of its length), or NULL.
 * @param stride bytes between two `const char *` in the table; sizeof(char *) for a plain array.
 */
const char *ty_suggest(const char *word, const void *names, size_t count, size_t stride);

/**
 * The entry of `names` that somebody means who types `word`: case, blanks and - _ . do not matter
 * ("GPT-2" is "gpt2"), and what stands in front of one of - _ . will do where it is that of one
 * entry alone ("p4d" is "p4d.24xlarge"). NULL: none, or several.
 * @param stride   as for ty_suggest
 * @param is_whole [out] whether the word is all of the name: a beginning means less than an alias
 */
const char *ty_name_find(const char *word, const void *names, size_t count, size_t stride,
                         bool *is_whole);

/** SHA-256 of `length` bytes as 64 lower-case hexadecimal digits and a terminator. */
typedef struct ty_digest {
    char hex[65];
} ty_digest;
ty_digest ty_digest_of(const void *bytes, size_t length);

#endif
