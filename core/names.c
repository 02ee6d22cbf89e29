/* What people type, and what it is called. */
#include "ty_file.h"
#include "ty_json.h"
#include "ty_memory.h"
#include "ty_text.h"

#include <ctype.h>
#include <string.h>

static bool is_separator(char c)
{
    return c == '-' || c == '_' || c == '.' || c == ' ';
}

typedef enum match { MATCH_NONE, MATCH_START, MATCH_WHOLE } match;

/* Walks both side by side, over separators. */
static match match_of(const char *word, const char *name)
{
    bool is_any = false;

    for (;;) {
        while (is_separator(*word))
            word++;
        if (*word == '\0')
            break;
        while (is_separator(*name))
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

const char *ty_name_find(const char *word, const void *names, size_t count, size_t stride,
                         bool *is_whole)
{
    const char *start = NULL;
    size_t starts = 0;

    *is_whole = false;
    for (size_t i = 0; i < count; i++) {
        const char *name;
        match found;
        memcpy(&name, (const char *)names + i * stride, sizeof name);
        found = name != NULL ? match_of(word, name) : MATCH_NONE;
        if (found == MATCH_WHOLE) {
            *is_whole = true;
            return name;
        }
        if (found == MATCH_START) {
            start = name;
            starts++;
        }
    }
    return starts == 1 ? start : NULL;
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
