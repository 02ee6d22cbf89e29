/* Invariants of every cluster importer, selected by FORMAT (and HOST): an accepted file is a valid
 * cluster, a refused file has a reason. The catalogue is read once, not for each input. */
#ifndef TY_CLUSTER_IMPORT_FUZZ_H
#define TY_CLUSTER_IMPORT_FUZZ_H

#include "cluster_fuzz.h"
#include "importer.h"

#ifndef HOST
#define HOST "p100-server" /* a small one */
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static catalogue *known;
    ty_cluster_import_options options = {.format = FORMAT, .host = HOST};
    ty_import_notes notes = {0};
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status;

#ifdef SKIPS
    if (SKIPS(bytes, length))
        return -1; /* not for the corpus */
#endif
    MUST(known != NULL || catalogue_load(&known, NULL) == TY_OK);
    status = import_with(known, (const char *)bytes, length, "input", &options, &cluster, &notes,
                         &error);
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

#endif
