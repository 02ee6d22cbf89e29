/* Private to core: characters of UTF-8 text. */
#ifndef TY_UTF8_H
#define TY_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes of the UTF-8 sequence at `bytes`, 0 if it is none (RFC 3629; `left` >= 1). */
size_t ty_utf8_length(const unsigned char *bytes, size_t left);

/** The code point of a sequence that ty_utf8_length found. */
uint32_t ty_utf8_code(const unsigned char *bytes, size_t length);

/** Whether a terminal shows the character and nothing else happens. */
bool ty_utf8_is_visible(uint32_t code);

#endif
