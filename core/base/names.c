/* Names as users type them, and their entries. */
#include "ty_base.h"
#include "ty_json.h"

#include <ctype.h>
#include <string.h>

static const char separators[] = "-_. ", plain_separators[] = "-_ "; /* "1.3b" is not "13b" */

static bool is_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static bool is_separator(char c)
{
    return is_of(c, separators);
}

typedef enum match { MATCH_NONE, MATCH_START, MATCH_WHOLE } match;

/* Compares both, ignoring skipped characters. */
static match match_over(const char *word, const char *name, const char *skipped)
{
    bool is_any = false;

    for (;;) {
        while (is_of(*word, skipped))
            word++;
        if (*word == '\0')
            break;
        while (is_of(*name, skipped))
            name++;
        if (tolower((unsigned char)*word) != tolower((unsigned char)*name))
            return MATCH_NONE;
        is_any = true;
        word++;
        name++;
    }
    if (!is_any)
        return MATCH_NONE;
    return *name == '\0' ? MATCH_WHOLE : (is_separator(*name) ? MATCH_START : MATCH_NONE);
}

static match match_of(const char *word, const char *name)
{
    return match_over(word, name, separators);
}

const char *ty_name_find(const char *word, const void *names, size_t count, size_t stride,
                         bool *is_whole)
{
    const char *start = NULL, *whole = NULL;
    size_t starts = 0;

    for (size_t i = 0; i < count; i++) {
        const char *name;
        match found;
        memcpy(&name, (const char *)names + i * stride, sizeof name);
        found = name != NULL ? match_of(word, name) : MATCH_NONE;
        if (found == MATCH_WHOLE) {
            if (whole == NULL || match_over(word, name, plain_separators) == MATCH_WHOLE)
                whole = name;
        } else if (found == MATCH_START) {
            start = name;
            starts++;
        }
    }
    *is_whole = whole != NULL;
    return whole != NULL ? whole : starts == 1 ? start : NULL;
}

/* The text after `prefix` in `word`; NULL: it does not begin with it. */
static const char *after_prefix(const char *word, const char *prefix)
{
    for (;;) {
        while (is_separator(*prefix))
            prefix++;
        if (*prefix == '\0')
            return word;
        while (is_separator(*word))
            word++;
        if (tolower((unsigned char)*word++) != tolower((unsigned char)*prefix++))
            return NULL;
    }
}

ty_status ty_alias_strip(const char *folder, const char *file, const char *word, const char **rest,
                         ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *prefixes;
    const char *prefix;
    char *path = NULL;
    ty_status status;

    *rest = NULL;
    TY_CHECK(ty_data_path(folder, file, &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_json_array(ty_json_root(document), "prefixes", 1, 1000, &prefixes, error), status,
             cleanup);
    for (size_t i = 0; *rest == NULL && i < ty_json_size(prefixes); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(prefixes, i), &prefix, error), status, cleanup);
        *rest = after_prefix(word, prefix);
    }
cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}

ty_status ty_alias_find(const char *folder, const char *file, const char *word, char **name,
                        ty_error *error)
{
    ty_json_document *document = NULL;
    const ty_json *aliases;
    const char *target = NULL;
    char *path = NULL, *found = NULL;
    ty_status status;

    TY_CHECK(ty_data_path(folder, file, &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_json_schema(ty_json_root(document), "trainyard.aliases/1", error), status, cleanup);
    TY_CHECK(ty_json_object(ty_json_root(document), "aliases", &aliases, error), status, cleanup);
    for (size_t i = 0; target == NULL && i < ty_json_size(aliases); i++)
        if (match_of(word, ty_json_key(ty_json_at(aliases, i))) == MATCH_WHOLE)
            TY_CHECK(ty_json_as_string(ty_json_at(aliases, i), &target, error), status, cleanup);
    if (target != NULL && (found = ty_strdup(target)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
    if (status == TY_OK)
        *name = found;
cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}
