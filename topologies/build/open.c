/* Opens a cluster from user input: "local:4", a description, a file name. */
#include "describe_storage.h"
#include "importer.h"
#include "plain_names.h"

#include <string.h>

static const char local_word[] = "local";

bool ty_cluster_is_local(const char *text, uint32_t *ranks)
{
    char digits[16];
    uint64_t count = 0;
    size_t length;

    if (strncmp(text, local_word, sizeof local_word - 1) != 0)
        return false;
    text += sizeof local_word - 1;
    length = strcspn(text, " ");
    if (text[length] != '\0' && !storage_is_described(text + length + 1))
        return false;
    if (length > 0 && text[0] == ':' && length < sizeof digits) {
        memcpy(digits, text + 1, length - 1);
        digits[length - 1] = '\0';
        if (ty_parse_uint(digits, 1, DEVICE_LIMIT, &count, NULL) != TY_OK)
            return false;
    } else if (length > 0) {
        return false;
    }
    *ranks = (uint32_t)count;
    return true;
}

/* Opens a cluster file, or another tool's file that needs no options. */
static ty_status open_file(const char *path, ty_cluster **out, ty_error *error)
{
    const char *name = strcmp(path, "-") == 0 ? "<standard input>" : path;
    ty_json_document *document = NULL;
    char *text = NULL;
    const char *content;
    size_t length;
    ty_status status;

    TY_CHECK(ty_file_read(path, 0, &text, &length, error), status, cleanup);
    content = text;
    ty_skip_mark(&content, &length);
    if (import_knows(content, length)) {
        status = ty_cluster_import_text(content, length, name, NULL, out, NULL, error);
        goto cleanup;
    }
    TY_CHECK(ty_json_parse(content, length, name, &document, error), status, cleanup);
    status = ty_cluster_from_json(ty_json_root(document), out, error);
cleanup:
    ty_json_free(document);
    ty_free(text);
    return status;
}

/* Whether the word around or before `at` is the device of a line; no line begins with one.
 */
static bool is_of_device(const char *text, const char *at)
{
    while (at > text && at[-1] != ' ')
        at--;
    return at > text && *at == '@';
}

/* Whether there is a slash outside the unit of a rate, "nvlink4=400GB/s", and a device file,
 * "@./mine.json". After a brace there are only rates. */
static bool has_folder(const char *text)
{
    const char *brace = text + strcspn(text, "{");

    for (const char *slash = strchr(text, '/'); slash != NULL && slash < brace;
         slash = strchr(slash + 1, '/')) {
        bool is_unit = slash > text && (slash[-1] == 'B' || slash[-1] == 'b') && slash[1] == 's' &&
                       (slash[2] == ' ' || slash[2] == ',' || slash[2] == '\0');
        if (!is_unit && !is_of_device(text, slash))
            return true;
    }
    return false;
}

static bool is_path(const char *text)
{
    size_t length = strlen(text);
    return strcmp(text, "-") == 0 || has_folder(text) ||
           (length > 5 && strcmp(text + length - 5, ".json") == 0 &&
            !is_of_device(text, text + length));
}

static ty_status open_plain(const char *text, const ty_profile *local, ty_cluster **out,
                            ty_error *error)
{
    ty_status status;
    ty_error plain = {0};
    char *line = NULL;
    uint32_t ranks;

    if (ty_cluster_is_local(text, &ranks)) {
        if (ranks == 0 && local != NULL)
            ranks = local->cores;
        return ty_cluster_local(ranks == 0 ? 1 : ranks, local, out, error);
    }
    if (strncmp(text, "local:", 6) == 0)
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\", column 7: found \"%.60s\", expected a number of ranks "
                       "from 1 to %d",
                       text, text + 6, DEVICE_LIMIT);
    if (is_path(text))
        return open_file(text, out, error);
    /* A bare word may be a file; the catalogue's names take precedence. */
    status = cluster_describe(text, out, error);
    if (status == TY_EPARSE && ty_file_exists(text))
        return open_file(text, out, error);
    if (status != TY_EPARSE)
        return status;
    status = cluster_plain_line(text, &line, &plain);
    if (line != NULL)
        status = cluster_describe(line, out, error);
    else if (status != TY_OK && error != NULL)
        *error = plain;
    else
        status = TY_EPARSE; /* keeps the description's message */
    ty_free(line);
    return status;
}

ty_status ty_cluster_line(const char *text, char **line, ty_error *error)
{
    const size_t length = strlen(text);
    char *bare = NULL, *plain = NULL;
    ty_text made = {0};
    ty_status status;

    TY_CHECK(storage_without(text, &bare, error), status, cleanup);
    TY_CHECK(cluster_plain_line(bare, &plain, error), status, cleanup);
    /* Keeps the storage words if they follow the hosts. */
    if (plain != NULL && strncmp(text, bare, strlen(bare)) == 0) {
        ty_text_add(&made, plain);
        ty_text_append(&made, text + strlen(bare), length - strlen(bare));
    } else {
        ty_text_add(&made, text);
    }
    status = ty_text_take(&made, line, error);
cleanup:
    ty_text_clear(&made);
    ty_free(plain);
    ty_free(bare);
    return status;
}

ty_status ty_cluster_open(const char *text, const ty_profile *local, ty_cluster **out,
                          ty_error *error)
{
    ty_cluster *cluster = NULL;
    char *line = NULL;
    ty_status status;

    if (!storage_is_described(text))
        return open_plain(text, local, out, error);
    TY_CHECK(storage_without(text, &line, error), status, cleanup);
    TY_CHECK(open_plain(line, local, &cluster, error), status, cleanup);
    TY_CHECK(ty_cluster_describe_storage(cluster, text, error), status, cleanup);
    *out = cluster;
    cluster = NULL; /* ownership moved */
cleanup:
    ty_cluster_free(cluster);
    ty_free(line);
    return status;
}
