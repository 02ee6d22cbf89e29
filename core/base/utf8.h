/* Private to core: characters of UTF-8 text. */
#ifndef TY_UTF8_H
#define TY_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes of the UTF-8 sequence at `bytes`, 0 if it is invalid (RFC 3629; `left` >= 1). */
size_t ty_utf8_length(const unsigned char *bytes, size_t left);

/** The code point of a sequence that is valid by ty_utf8_length. */
uint32_t ty_utf8_code(const unsigned char *bytes, size_t length);

/** Whether a terminal prints the character without any other effect. */
bool ty_utf8_is_visible(uint32_t code);

#endif
