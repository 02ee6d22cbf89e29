/* From what a user types to a workload: a zoo name or a path, and the overrides behind it. */
#include "zoo.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ZOO_SUFFIX ".json"

static void free_names(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
}

static bool ends_in(const char *text, const char *suffix)
{
    size_t length = strlen(text), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

/* ---- The zoo's directory --------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends "lenet" for "lenet.json"; other files are passed over. */
static ty_status add_name(const char *file, char ***names, uint32_t *count, ty_error *error)
{
    char **grown, *name;

    if (file[0] == '.' || !ends_in(file, ZOO_SUFFIX))
        return TY_OK;
    grown = ty_resize(*names, *count + 1, sizeof **names);
    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", file);
    *names = grown;
    name = ty_strndup(file, strlen(file) - strlen(ZOO_SUFFIX));
    if (name == NULL)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", file);
    grown[(*count)++] = name;
    return TY_OK;
}

ty_status ty_zoo_list(char ***names, uint32_t *count, ty_error *error)
{
    ty_status status = TY_OK;
    char *path = NULL, **list = NULL;
    uint32_t n = 0;
    DIR *directory = NULL;

    TY_CHECK(ty_data_path("workloads", "zoo", &path, error), status, cleanup);
    directory = opendir(path);
    if (directory == NULL) {
        status =
            ty_fail(error, errno == ENOMEM ? TY_ENOMEM : TY_EIO, "%s: %s", path, strerror(errno));
        goto cleanup;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        TY_CHECK(add_name(entry->d_name, &list, &n, error), status, cleanup);
    if (n == 0) {
        status = ty_fail(error, TY_EIO, "%s: no workload in this directory", path);
        goto cleanup;
    }
    qsort(list, n, sizeof *list, by_name);
    *names = list;
    *count = n;
    list = NULL; /* given away */

cleanup:
    if (directory != NULL)
        closedir(directory);
    if (list != NULL)
        free_names(list, n);
    ty_free(path);
    return status;
}

/* ---- What the user typed --------------------------------------------------------------------- */

static ty_status fail_unknown(const char *name, ty_error *error)
{
    ty_status status = TY_OK;
    char **names = NULL;
    uint32_t count = 0;
    const char *close;

    TY_CHECK(ty_zoo_list(&names, &count, error), status, cleanup);
    close = ty_suggest(name, names, count, sizeof *names);
    if (close != NULL)
        status =
            ty_fail(error, TY_EIO, "no workload or file '%s'; did you mean '%s'?", name, close);
    else
        status = ty_fail(error, TY_EIO,
                         "no workload or file '%s', nor one called like it among the %u of the zoo "
                         "(trainyard workload list)",
                         name, count);

cleanup:
    if (names != NULL)
        free_names(names, count);
    return status;
}

/* Whether the zoo has `name`; only then `path` is set. */
static ty_status find_in_zoo(const char *name, char **path, ty_error *error)
{
    ty_status status = TY_OK;
    char **names = NULL;
    uint32_t count = 0;
    ty_text file = {0};
    char *text = NULL;

    TY_CHECK(ty_zoo_list(&names, &count, error), status, cleanup);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        ty_text_addf(&file, "%s" ZOO_SUFFIX, name);
        TY_CHECK(ty_text_take(&file, &text, error), status, cleanup);
        status = ty_data_path("workloads/zoo", text, path, error);
        break;
    }

cleanup:
    ty_text_clear(&file);
    ty_free(text);
    if (names != NULL)
        free_names(names, count);
    return status;
}

/* What looks like a path is one; other words are looked for in the zoo first, so that a folder
 * called "mlp" does not hide it. */
static ty_status open_name(const char *name, const ty_zoo_overrides *overrides, ty_workload **out,
                           ty_error *error)
{
    ty_status status = TY_OK;
    char *path = NULL;

    if (strcmp(name, "-") == 0 || strchr(name, '/') != NULL || ends_in(name, ZOO_SUFFIX))
        return ty_workload_import(name, overrides, out, NULL, error);
    TY_CHECK(find_in_zoo(name, &path, error), status, cleanup);
    if (path != NULL)
        status = ty_workload_import(path, overrides, out, NULL, error);
    else if (ty_file_exists(name))
        status = ty_workload_import(name, overrides, out, NULL, error);
    else
        status = fail_unknown(name, error);

cleanup:
    ty_free(path);
    return status;
}

static const char *const override_keys[] = {"sequence", "batch", "vocabulary"};
enum { SEQUENCE, BATCH, VOCABULARY, OVERRIDE_COUNT };

static ty_status fail_override(const char *word, size_t key_length, ty_error *error)
{
    char *key = ty_strndup(word, key_length);
    const char *close;

    if (key == NULL)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", word);
    close = ty_suggest(key, override_keys, OVERRIDE_COUNT, sizeof override_keys[0]);
    ty_free(key);
    return ty_fail(
        error, TY_EINVAL,
        "found '%s' behind the workload, expected sequence=N, batch=N or vocabulary=N%s%s%s", word,
        close != NULL ? "; did you mean '" : "", close != NULL ? close : "",
        close != NULL ? "'?" : "");
}

/* "sequence=512" */
static ty_status read_override(const char *word, ty_zoo_overrides *out, ty_error *error)
{
    const char *equals = strchr(word, '=');
    uint64_t value;
    ty_error detail = {0};
    size_t key = 0, length = equals != NULL ? (size_t)(equals - word) : strlen(word);

    while (key < OVERRIDE_COUNT &&
           (strlen(override_keys[key]) != length || strncmp(word, override_keys[key], length) != 0))
        key++;
    if (equals == NULL || key == OVERRIDE_COUNT)
        return fail_override(word, length, error);
    if (ty_parse_uint(equals + 1, 1, 1u << 30, &value, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "%s: %s", override_keys[key], detail.message);
    if (key == SEQUENCE)
        out->sequence = value;
    else if (key == VOCABULARY)
        out->vocabulary = value;
    else
        out->batch = (uint32_t)value;
    return TY_OK;
}

ty_status ty_workload_open(const char *name_or_path, ty_workload **out, ty_error *error)
{
    static const char blanks[] = " \t";
    ty_status status = TY_OK;
    ty_zoo_overrides overrides = {0};
    char *text, *rest = NULL, *name, *word;

    if (ty_file_exists(name_or_path) && strchr(name_or_path, ' ') != NULL)
        /* a path with a blank in it */
        return ty_workload_import(name_or_path, &overrides, out, NULL, error);
    text = ty_strdup(name_or_path);
    if (text == NULL)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", name_or_path);
    name = strtok_r(text, blanks, &rest);
    if (name == NULL) {
        status = ty_fail(error, TY_EINVAL, "expected the name or file of a workload, found none");
        goto cleanup;
    }
    while ((word = strtok_r(NULL, blanks, &rest)) != NULL)
        TY_CHECK(read_override(word, &overrides, error), status, cleanup);
    status = open_name(name, &overrides, out, error);

cleanup:
    ty_free(text);
    return status;
}
