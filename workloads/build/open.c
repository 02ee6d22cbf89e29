/* Opens a workload from user input: a zoo name or a path, followed by overrides. */
#include "zoo.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ZOO_SUFFIX ".json"

static bool ends_in(const char *text, const char *suffix)
{
    size_t length = strlen(text), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

ty_status ty_zoo_list(char ***names, uint32_t *count, ty_error *error)
{
    return ty_data_names("workloads/zoo", ZOO_SUFFIX, names, count, error);
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
    ty_names_free(names, count);
    return status;
}

/* Error for a missing path: "gpt2.json", or a name in another collection such as
 * "openai-community/gpt2". */
static ty_status fail_no_file(const char *path, ty_error *error)
{
    ty_status status = TY_OK;
    char **names = NULL, *last = NULL;
    uint32_t count = 0;
    const char *slash = strrchr(path, '/'), *start = slash != NULL ? slash + 1 : path, *close;
    size_t length = strlen(start);

    if (ends_in(start, ZOO_SUFFIX))
        length -= strlen(ZOO_SUFFIX);
    last = ty_strndup(start, length);
    TY_TRY(ty_check_memory(last != NULL, error));
    TY_CHECK(ty_zoo_list(&names, &count, error), status, cleanup);
    close = ty_suggest(last, names, count, sizeof *names);
    if (close != NULL)
        status = ty_fail(error, TY_EIO, "no file '%s'; did you mean '%s' of the zoo?", path, close);
    else
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(ENOENT));

cleanup:
    ty_names_free(names, count);
    ty_free(last);
    return status;
}

/* The zoo model with the alias or hub name `name`; NULL: none. */
static ty_status name_of_zoo(const char *name, char **out, bool *is_whole, ty_error *error)
{
    ty_status status = TY_OK;
    char **names = NULL, *alias = NULL;
    uint32_t count = 0;
    const char *found;

    *out = NULL;
    TY_CHECK(ty_zoo_list(&names, &count, error), status, cleanup);
    found = ty_name_find(name, names, count, sizeof *names, is_whole);
    if (!*is_whole) {
        TY_CHECK(ty_alias_find("workloads", "aliases.json", name, &alias, error), status, cleanup);
        found = alias != NULL ? alias : found;
    }
    if (found != NULL && (*out = ty_strdup(found)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "%s: out of memory", name);

cleanup:
    ty_free(alias);
    ty_names_free(names, count);
    return status;
}

/* Whether the zoo has `name` or a model with that alias; only then sets `path`. */
static ty_status find_in_zoo(const char *name, char **path, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text file = {0};
    char *text = NULL, *found = NULL;
    bool is_whole;

    TY_CHECK(name_of_zoo(name, &found, &is_whole, error), status, cleanup);
    if (found == NULL)
        goto cleanup;
    ty_text_addf(&file, "%s" ZOO_SUFFIX, found);
    TY_CHECK(ty_text_take(&file, &text, error), status, cleanup);
    status = ty_data_path("workloads/zoo", text, path, error);

cleanup:
    ty_text_clear(&file);
    ty_free(found);
    ty_free(text);
    return status;
}

/* "meta-llama/Meta-Llama-3-70B": a hub's repository name is an owner, one slash and a name; an
 * owner is no folder. */
static const char *name_in_hub(const char *name)
{
    const char *slash = strchr(name, '/');

    if (slash == NULL || slash == name || name[0] == '.' || name[0] == '~' ||
        strchr(slash + 1, '/') != NULL || ends_in(name, ZOO_SUFFIX))
        return name;
    return slash + 1;
}

/* A text that looks like a path is one. Other words are searched in the zoo first, so that a folder
 * "mlp" does not hide the model. */
static ty_status open_name(const char *name, const ty_zoo_overrides *overrides, ty_workload **out,
                           ty_error *error)
{
    ty_status status = TY_OK;
    char *path = NULL;

    if (strcmp(name, "-") == 0)
        return ty_workload_import(name, overrides, out, NULL, error);
    if ((strchr(name, '/') != NULL || ends_in(name, ZOO_SUFFIX)) &&
        (access(name, F_OK) == 0 || errno != ENOENT))
        return ty_workload_import(name, overrides, out, NULL, error);
    TY_CHECK(find_in_zoo(name_in_hub(name), &path, error), status, cleanup);
    if (path == NULL && (strchr(name, '/') != NULL || ends_in(name, ZOO_SUFFIX)))
        return fail_no_file(name, error);
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

static const char *const override_keys[] = {"sequence", "batch", "vocabulary", "image_size"};
enum { SEQUENCE, BATCH, VOCABULARY, IMAGE_SIZE, OVERRIDE_COUNT };

/* Overrides after a name. */
typedef struct override_words {
    ty_zoo_overrides of_file; /* overrides for an importer */
    uint32_t height, width;   /* of images; 0: the file's */
} override_words;

static ty_status fail_override(const char *word, size_t key_length, ty_error *error)
{
    char *key = ty_strndup(word, key_length);
    const char *close;

    TY_TRY(ty_check_memory(key != NULL, error));
    close = ty_suggest(key, override_keys, OVERRIDE_COUNT, sizeof override_keys[0]);
    ty_free(key);
    return ty_fail(error, TY_EINVAL,
                   "found '%s' behind the workload, expected sequence=N, batch=N, vocabulary=N or "
                   "image_size=N%s%s%s",
                   word, close != NULL ? "; did you mean '" : "", close != NULL ? close : "",
                   close != NULL ? "'?" : "");
}

/* "128", "128x96" */
static ty_status read_image_size(const char *text, override_words *out, ty_error *error)
{
    const char *by = strchr(text, 'x');
    char *height = ty_strndup(text, by != NULL ? (size_t)(by - text) : strlen(text));
    uint64_t sides[2];
    ty_error detail = {0};
    ty_status status;

    TY_TRY(ty_check_memory(height != NULL, error));
    status = ty_parse_uint(height, 1, TY_MOST_PIXELS, &sides[0], &detail);
    sides[1] = sides[0];
    if (status == TY_OK && by != NULL)
        status = ty_parse_uint(by + 1, 1, TY_MOST_PIXELS, &sides[1], &detail);
    ty_free(height);
    if (status != TY_OK)
        return ty_fail(error, TY_EINVAL, "image_size: %s", detail.message);
    out->height = (uint32_t)sides[0];
    out->width = (uint32_t)sides[1];
    return TY_OK;
}

/* "sequence=512" */
static ty_status read_override(const char *word, override_words *out, ty_error *error)
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
    if (key == IMAGE_SIZE)
        return read_image_size(equals + 1, out, error);
    if ((key == SEQUENCE ? ty_parse_length(equals + 1, 1u << 30, &value, &detail)
                         : ty_parse_uint(equals + 1, 1, 1u << 30, &value, &detail)) != TY_OK)
        return ty_fail(error, TY_EINVAL, "%s: %s", override_keys[key], detail.message);
    if (key == SEQUENCE)
        out->of_file.sequence = value;
    else if (key == VOCABULARY)
        out->of_file.vocabulary = value;
    else
        out->of_file.batch = (uint32_t)value;
    return TY_OK;
}

/* ---- "transformer blocks=24 features=2048 ..." ------------------------------------------------
 */

/* Families that one line can describe; docs/guides/bring-a-model.md. */
static const char *const families[] = {"transformer", "decoder", "encoder", "encoder_decoder"};

static bool is_family(const char *word)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(word, families[i]) == 0)
            return true;
    return false;
}

#define LARGEST_NUMBER ((uint64_t)1 << 53)
#define USUAL_BATCH 256
#define TOKEN_BYTES 4

/* KEY=VALUE as a member of the zoo's JSON; `batch` is called global_batch there. */
static ty_status put_member(ty_json_writer *w, char *word, bool *has_batch, ty_error *error)
{
    char *equals = strchr(word, '=');
    uint64_t number;
    ty_error detail = {0};

    if (equals == NULL || equals == word)
        return ty_fail(error, TY_EINVAL,
                       "found '%s' behind the family of a workload, expected KEY=VALUE as in "
                       "features=2048",
                       word);
    *equals = '\0';
    if (strcmp(equals + 1, "true") == 0 || strcmp(equals + 1, "false") == 0) {
        ty_json_put_bool(w, word, equals[1] == 't');
        return TY_OK;
    }
    if (strcmp(word, "head") == 0) {
        ty_json_put_string(w, word, equals + 1);
        return TY_OK;
    }
    if (ty_parse_uint(equals + 1, 0, LARGEST_NUMBER, &number, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "%s: %s", word, detail.message);
    *has_batch = *has_batch || strcmp(word, "batch") == 0;
    ty_json_put_uint(w, strcmp(word, "batch") == 0 ? "global_batch" : word, number);
    return TY_OK;
}

static ty_status describe_family(const char *family, char *rest, ty_workload **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    const ty_zoo_overrides none = {0};
    bool has_batch = false, has_token_bytes = strstr(rest, "token_bytes=") != NULL;
    char *word;
    ty_status status = TY_OK;

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", TY_ZOO_SCHEMA);
    ty_json_put_string(&w, "name", family);
    ty_json_put_string(&w, "family", family);
    ty_json_put_string(&w, "source", "as described");
    ty_json_put_string(&w, "dataset", "synthetic");
    while ((word = strtok_r(NULL, " \t", &rest)) != NULL)
        TY_CHECK(put_member(&w, word, &has_batch, error), status, cleanup);
    if (!has_batch)
        ty_json_put_uint(&w, "global_batch", USUAL_BATCH);
    if (!has_token_bytes)
        ty_json_put_uint(&w, "token_bytes", TOKEN_BYTES);
    ty_json_open(&w, "optimizer", '{'); /* Brown et al., arXiv:2005.14165, appendix B */
    ty_json_put_string(&w, "kind", "adamw");
    ty_json_put_number(&w, "learning_rate", 1e-4);
    ty_json_put_number(&w, "weight_decay", 0.1);
    ty_json_put_number(&w, "beta1", 0.9);
    ty_json_put_number(&w, "beta2", 0.95);
    ty_json_put_number(&w, "epsilon", 1e-8);
    ty_json_close(&w, '}');
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_check(&text, error), status, cleanup);
    TY_CHECK(ty_json_parse(text.data, text.length, family, &document, error), status, cleanup);
    status = ty_zoo_build(ty_json_root(document), &none, out, error);

cleanup:
    ty_json_free(document);
    ty_text_clear(&text);
    return status;
}

/* "llama 3 8b", "GPT 2 sequence=512": words without a value belong to the name, if the zoo has such
 * a name. @return length of the name in bytes, 0: one word, or not in the zoo */
static ty_status name_of_words(const char *text, size_t *length, ty_error *error)
{
    const char *equals = strchr(text, '=');
    size_t end = equals != NULL ? (size_t)(equals - text) : strlen(text);
    char *name = NULL, *path = NULL;
    ty_status status;

    *length = 0;
    while (equals != NULL && end > 0 && text[end - 1] != ' ') /* the key of the first value */
        end--;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    if (memchr(text, ' ', end) == NULL)
        return TY_OK;
    name = ty_strndup(text, end);
    TY_TRY(ty_check_memory(name != NULL, error));
    status = find_in_zoo(name, &path, error);
    if (status == TY_OK && path != NULL)
        *length = end;
    ty_free(path);
    ty_free(name);
    return status;
}

ty_status ty_zoo_name(const char *typed, char **name, bool *is_guess, ty_error *error)
{
    char *words = NULL;
    size_t length = 0;
    bool is_whole = false;
    ty_status status;

    *name = NULL;
    *is_guess = false;
    TY_CHECK(name_of_words(typed, &length, error), status, cleanup);
    words = ty_strndup(typed, length > 0 ? length : strcspn(typed, " \t"));
    TY_CHECK(ty_check_memory(words != NULL, error), status, cleanup);
    if (!is_family(words) && access(words, F_OK) != 0)
        status = name_of_zoo(name_in_hub(words), name, &is_whole, error);
    *is_guess = *name != NULL && !is_whole;

cleanup:
    ty_free(words);
    return status;
}

ty_status ty_workload_open(const char *name_or_path, ty_workload **out, ty_error *error)
{
    static const char blanks[] = " \t";
    ty_status status = TY_OK;
    override_words overrides = {0};
    ty_workload *workload = NULL;
    char *text, *rest = NULL, *name, *word;
    size_t length;

    if (ty_file_exists(name_or_path) && strchr(name_or_path, ' ') != NULL)
        /* a path with a blank */
        return ty_workload_import(name_or_path, &overrides.of_file, out, NULL, error);
    text = ty_strdup(name_or_path);
    TY_TRY(ty_check_memory(text != NULL, error));
    TY_CHECK(name_of_words(text, &length, error), status, cleanup);
    name = length > 0 ? text : strtok_r(text, blanks, &rest);
    if (length > 0) {
        rest = text + length + (text[length] != '\0');
        text[length] = '\0';
    }
    if (name == NULL) {
        status = ty_fail(error, TY_EINVAL, "expected the name or file of a workload, found none");
        goto cleanup;
    }
    if (is_family(name) && *rest != '\0') {
        status = describe_family(name, rest, out, error);
        goto cleanup;
    }
    while ((word = strtok_r(NULL, blanks, &rest)) != NULL)
        TY_CHECK(read_override(word, &overrides, error), status, cleanup);
    TY_CHECK(open_name(name, &overrides.of_file, &workload, error), status, cleanup);
    if (overrides.height > 0)
        TY_CHECK(ty_workload_set_image_size(workload, overrides.height, overrides.width, error),
                 status, cleanup);
    *out = workload;
    workload = NULL; /* ownership moved */

cleanup:
    ty_workload_free(workload);
    ty_free(text);
    return status;
}
