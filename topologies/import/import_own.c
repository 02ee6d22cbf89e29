/* Trainyard's own clusters (trainyard.cluster/1), so that `cluster import` takes them too. */
#include "importer.h"

#include <string.h>

static bool probe(const char *text, size_t length)
{
    static const char schema[] = "\"trainyard.cluster/1\"";

    (void)length;
    return text[strspn(text, " \t\r\n")] == '{' && strstr(text, schema) != NULL;
}

/* The file is the complete cluster: no options apply. */
static ty_status read(importer *im, ty_error *error)
{
    const ty_cluster_import_options *o = im->options;
    ty_json_document *document = NULL;
    ty_cluster *own = NULL;
    ty_status status;

    if (o->host != NULL || o->device != NULL || o->hosts > 0 || o->root != NULL ||
        o->oversubscription > 0)
        return ty_fail(error, TY_EINVAL,
                       "%.160s: found a cluster that is complete, expected no --host, --device, "
                       "--hosts, --root and --oversubscription with it",
                       im->name);
    TY_CHECK(ty_json_parse(im->text, im->length, im->name, &document, error), status, cleanup);
    TY_CHECK(ty_cluster_from_json(ty_json_root(document), &own, error), status, cleanup);
    ty_cluster_free(im->cluster);
    im->cluster = own;
    im->is_finished = true;
cleanup:
    ty_json_free(document);
    return status;
}

const import_format import_own = {"trainyard", "trainyard.cluster/1", probe, read};
