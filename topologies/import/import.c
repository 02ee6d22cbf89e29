/* Imports a cluster: detects the format, calls its reader, and resolves the options. */
#include "importer.h"

#include <stdlib.h>
#include <string.h>

/* The largest file read: a fabric of a hundred thousand ports is some 10 MB. */
#define FILE_LIMIT ((uint64_t)256 << 20)

/* In the order of the trials: formats with a distinctive name first. */
static const import_format *const formats[] = {
    &import_own, &import_nccl,  &import_nccl_graph, &import_hwloc, &import_simgrid,
    &import_smi, &import_slurm, &import_slurm_yaml, &import_ibnet, &import_foreign,
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

void ty_import_notes_clear(ty_import_notes *notes)
{
    ty_free(notes->text);
    *notes = (ty_import_notes){0};
}

/* ---- Options ----------------------------------------------------------------------------- */

static ty_status fail_option(const char *option, const char *value, const char *expected,
                             const char *near, ty_error *error)
{
    return ty_fail(error, TY_EINVAL, "%s: found \"%.60s\", expected %s%s%s%s", option, value,
                   expected, near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                   near != NULL ? "\"?" : "");
}

static ty_status read_options(importer *im, ty_error *error)
{
    const ty_cluster_import_options *o = im->options;
    const catalogue *c = im->catalogue;

    im->host = im->device = NO_INDEX;
    if (o->host != NULL && (im->host = catalogue_find_host(c, o->host)) == NO_INDEX)
        return fail_option(
            "host", o->host, "a host of the catalogue",
            ty_suggest(o->host, &c->hosts[0].name, c->host_count, sizeof c->hosts[0]), error);
    if (o->device != NULL && (im->device = catalogue_find_device(c, o->device)) == NO_INDEX &&
        (im->device = catalogue_match_device(c, "alias", o->device)) == NO_INDEX)
        return fail_option("device", o->device, "a device of the catalogue",
                           ty_suggest(o->device, &c->device_types[0].name, c->device_type_count,
                                      sizeof c->device_types[0]),
                           error);
    if (o->hosts > DEVICE_LIMIT)
        return ty_fail(error, TY_EINVAL, "hosts: found %u, expected at most %d", o->hosts,
                       DEVICE_LIMIT);
    if (!(o->oversubscription == 0 || (o->oversubscription >= 1 && o->oversubscription <= 1000)))
        return ty_fail(error, TY_EINVAL, "oversubscription: found %g, expected 1 to 1000",
                       o->oversubscription);
    return TY_OK;
}

bool import_knows(const char *text, size_t length)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (formats[i]->probe(text, length))
            return true;
    return false;
}

static ty_status find_format(const importer *im, const import_format **out, ty_error *error)
{
    const char *wanted = im->options->format;

    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (wanted != NULL ? strcmp(formats[i]->name, wanted) == 0
                           : formats[i]->probe(im->text, im->length)) {
            *out = formats[i];
            return TY_OK;
        }
    if (wanted != NULL) {
        const char *names[FORMAT_COUNT];
        for (size_t i = 0; i < FORMAT_COUNT; i++)
            names[i] = formats[i]->name;
        return fail_option("format", wanted, "a format that is read (nccl, smi, slurm, ...)",
                           ty_suggest(wanted, names, FORMAT_COUNT, sizeof names[0]), error);
    }
    return ty_fail(error, TY_EPARSE,
                   "%.160s: found none of the formats known, expected e.g. NCCL topology XML, "
                   "nvidia-smi topo -m, Slurm topology.conf, hwloc XML, ibnetdiscover (see "
                   "docs/guides/describe-a-cluster.md)",
                   im->name);
}

static ty_status read_all(importer *im, const import_format **format, ty_error *error)
{
    TY_TRY(read_options(im, error));
    TY_TRY(find_format(im, format, error));
    if (memchr(im->text, '\0', im->length) != NULL)
        return import_fail(im, error, 0, "found a NUL character, expected text in UTF-8");
    TY_TRY(import_start(im, error));
    TY_TRY((*format)->read(im, error));
    return im->is_finished ? TY_OK : import_finish(im, error);
}

ty_status import_with(const catalogue *c, const char *text, size_t length, const char *name,
                      const ty_cluster_import_options *options, ty_cluster **out,
                      ty_import_notes *notes, ty_error *error)
{
    static const ty_cluster_import_options none = {0};
    importer im = {.name = name,
                   .length = length,
                   .options = options != NULL ? options : &none,
                   .catalogue = c};
    const import_format *format = NULL;
    char *copy = NULL, *noted = NULL;
    ty_status status;

    TY_TRY(ty_check_memory((copy = ty_alloc(length + 1, 1)) != NULL, error));
    memcpy(copy, text, length);
    im.text = copy;
    TY_CHECK(read_all(&im, &format, error), status, cleanup);
    TY_CHECK(ty_text_take(&im.notes, &noted, error), status, cleanup);
    if (notes != NULL) {
        *notes = (ty_import_notes){.format = format->name, .text = noted};
        noted = NULL; /* ownership moved */
    }
    *out = im.cluster;
    im.cluster = NULL; /* ownership moved */
cleanup:
    builder_close(&im.builder);
    ty_cluster_free(im.cluster);
    ty_text_clear(&im.notes);
    ty_free(noted);
    ty_free(copy);
    return status;
}

ty_status ty_cluster_import_text(const char *text, size_t length, const char *name,
                                 const ty_cluster_import_options *options, ty_cluster **out,
                                 ty_import_notes *notes, ty_error *error)
{
    catalogue *c = NULL;
    ty_status status = catalogue_load(&c, error);

    ty_skip_mark(&text, &length);
    if (status == TY_OK)
        status = import_with(c, text, length, name, options, out, notes, error);
    catalogue_free(c);
    return status;
}

ty_status ty_cluster_import(const char *path, const ty_cluster_import_options *options,
                            ty_cluster **out, ty_import_notes *notes, ty_error *error)
{
    char *text = NULL;
    size_t length;
    ty_status status = ty_file_read(path, FILE_LIMIT, &text, &length, error);

    if (status == TY_OK)
        status =
            ty_cluster_import_text(text, length, strcmp(path, "-") == 0 ? "standard input" : path,
                                   options, out, notes, error);
    ty_free(text);
    return status;
}
