/* Options with several figures. */
#include "option_words.h"

#include "ty_base.h"

#include <string.h>

static ty_status fail_unknown(const char *option, const char *word, bool has_value,
                              const option_key *keys, size_t count, ty_error *error)
{
    const char *near = has_value ? ty_suggest(word, &keys[0].name, count, sizeof keys[0]) : NULL;
    ty_text all = {0};
    ty_status status;

    for (size_t k = 0; k < count; k++)
        ty_text_addf(&all, "%s%s=", k == 0 ? "" : k + 1 < count ? ", " : " or ", keys[k].name);
    status = ty_fail(error, TY_EINVAL, "%s: found '%s', expected %s%s%s%s", option, word,
                     all.data != NULL ? all.data : "", near != NULL ? "; did you mean " : "",
                     near != NULL ? near : "", near != NULL ? "?" : "");
    ty_text_clear(&all);
    return status;
}

static ty_status read_pair(const char *option, const char *pair, size_t length,
                           const option_key *keys, size_t count, void *out, ty_error *error)
{
    char copy[96], *value;
    ty_error detail = {0};
    ty_status status;

    if (length >= sizeof copy)
        return ty_fail(error, TY_EINVAL, "%s: found '%.60s...', expected KEY=VALUE", option, pair);
    memcpy(copy, pair, length);
    copy[length] = '\0';
    value = strchr(copy, '=');
    if (value != NULL)
        *value++ = '\0';
    for (size_t k = 0; k < count && value != NULL; k++) {
        if (strcmp(copy, keys[k].name) != 0)
            continue;
        status = keys[k].read(value, out, &detail);
        return status == TY_OK
                   ? TY_OK
                   : ty_fail(error, TY_EINVAL, "%s %s: %s", option, copy, detail.message);
    }
    return fail_unknown(option, copy, value != NULL, keys, count, error);
}

ty_status ty_option_words_read(const char *option, const char *text, const option_key *keys,
                               size_t count, void *out, ty_error *error)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        const ty_status status = read_pair(option, text, length, keys, count, out, error);
        if (status != TY_OK || text[length] == '\0')
            return status;
        text += length + 1;
    }
}
