/* What any importer accepts is a cluster that is the same after writing and reading as JSON; what
 * it refuses has a reason. */
#include "fuzz.h"
#include "ty_topologies.h"

#include <string.h>

enum { COMPARED = 20000 }; /* vertices: larger clusters take their time to write */

static char *text_of(const ty_cluster *cluster)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    ty_cluster_to_json(cluster, &writer, NULL);
    MUST(ty_text_take(&text, &out, NULL) == TY_OK);
    return out;
}

static void check_cluster(const ty_cluster *c)
{
    ty_path path = {0};
    uint32_t last = ty_cluster_device_count(c) - 1;
    ty_cluster *again = NULL;
    char *before, *after;

    MUST(ty_cluster_device_count(c) > 0 && ty_cluster_host_count(c) > 0);
    MUST(ty_cluster_path(c, 0, last, &path, NULL) == TY_OK);
    MUST((path.link_count == 0) == (last == 0) && path.bandwidth_bytes_per_s > 0);
    ty_path_clear(&path);
    if (ty_cluster_vertex_count(c) > COMPARED)
        return;
    before = text_of(c);
    MUST(ty_cluster_parse(before, "again", &again, NULL) == TY_OK);
    after = text_of(again);
    MUST(strcmp(before, after) == 0);
    ty_free(before);
    ty_free(after);
    ty_cluster_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_cluster_import_options options = {.host = "p100-server"};
    ty_import_notes notes = {0};
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status = ty_cluster_import_text((const char *)bytes, length, "input", &options,
                                              &cluster, &notes, &error);

    MUST((status == TY_OK) == (cluster != NULL));
    if (status == TY_OK)
        check_cluster(cluster);
    else
        MUST(strlen(error.message) > 10 && status != TY_ENOMEM && status != TY_EBACKEND &&
             status != TY_EIO);
    ty_import_notes_clear(&notes);
    ty_cluster_free(cluster);
    return 0;
}
