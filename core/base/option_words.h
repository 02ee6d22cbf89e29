/* Options with several figures: "data=1.3TB,decode=250". Internal to core. */
#ifndef TY_OPTION_WORDS_H
#define TY_OPTION_WORDS_H

#include "ty_base.h"

#include <stddef.h>

typedef struct option_key {
    const char *name;
    /* Sets a member of the keys' owner; messages begin with the value found. */
    ty_status (*read)(const char *value, void *out, ty_error *error);
} option_key;

/**
 * Reads KEY=VALUE,... into `out`, which has a part of it after a failure.
 * @param option its name, "--input"
 * @return TY_EINVAL naming the option and the key, the value found and the value expected
 */
ty_status ty_option_words_read(const char *option, const char *text, const option_key *keys,
                               size_t count, void *out, ty_error *error) TY_MUST_CHECK;

#endif
