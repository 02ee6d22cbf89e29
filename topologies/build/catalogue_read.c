/* Common code of catalogue readers: figures with their sources, and entries by name. */
#include "catalogue_read.h"

#include <string.h>

ty_status catalogue_copy(const catalogue *c, const char *text, char **out, ty_error *error)
{
    char *copy = ty_arena_strdup(c->arena, text);
    TY_TRY(ty_check_memory(copy != NULL, error));
    *out = copy;
    return TY_OK;
}

ty_status catalogue_copy_member(const catalogue *c, const ty_json *object, const char *key,
                                char **out, ty_error *error)
{
    const char *text;

    TY_TRY(ty_json_string(object, key, &text, error));
    return catalogue_copy(c, text, out, error);
}

ty_status catalogue_cite(citation *cited, const ty_json *figure, ty_error *error)
{
    const char *key, *text;

    TY_TRY(ty_json_string(figure, "source", &key, error));
    if (!ty_json_has(cited->sources, key))
        return ty_json_fail(figure, error, "a source that is a key of /sources");
    TY_TRY(ty_json_string(cited->sources, key, &text, error));
    for (uint32_t i = 0; i < cited->count; i++)
        if (strcmp(cited->seen[i], key) == 0)
            return TY_OK;
    if (cited->count == sizeof cited->seen / sizeof cited->seen[0])
        return ty_json_fail(figure, error, "at most %u sources in an entry", cited->count);
    ty_text_addf(&cited->text, "%s%s", cited->count == 0 ? "" : "; ", text);
    cited->seen[cited->count++] = key;
    return TY_OK;
}

ty_status catalogue_take_citation(const catalogue *c, citation *cited, char **out, ty_error *error)
{
    char *text;
    ty_status status = TY_OK;

    TY_TRY(ty_text_take(&cited->text, &text, error));
    status = catalogue_copy(c, text, out, error);
    ty_free(text);
    return status;
}

ty_status catalogue_read_figure(const ty_json *object, const char *key, double minimum,
                                double maximum, citation *cited, double *out, ty_error *error)
{
    const ty_json *figure;

    TY_TRY(ty_json_object(object, key, &figure, error));
    TY_TRY(ty_json_number(figure, "value", minimum, maximum, out, error));
    TY_TRY(catalogue_cite(cited, figure, error));
    return ty_json_end(figure, error);
}

/* Entries of a catalogue begin with their name. */
static uint32_t find(const void *entries, uint32_t count, size_t size, const char *name)
{
    const char *own;

    for (uint32_t i = 0; i < count; i++) {
        memcpy(&own, (const char *)entries + i * size, sizeof own);
        if (strcmp(own, name) == 0)
            return i;
    }
    return NO_INDEX;
}

uint32_t catalogue_find_device(const catalogue *c, const char *name)
{
    return find(c->device_types, c->device_type_count, sizeof *c->device_types, name);
}

uint32_t catalogue_find_link(const catalogue *c, const char *name)
{
    return find(c->links, c->link_count, sizeof *c->links, name);
}

uint32_t catalogue_find_host(const catalogue *c, const char *name)
{
    return find(c->hosts, c->host_count, sizeof *c->hosts, name);
}

uint32_t catalogue_find_cluster(const catalogue *c, const char *name)
{
    return find(c->clusters, c->cluster_count, sizeof *c->clusters, name);
}
