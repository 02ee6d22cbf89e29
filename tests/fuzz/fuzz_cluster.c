/* Cluster files (JSON): an accepted file is valid, a refused one gets a message with the
 * expectation. */
#include "cluster_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    char *text = ty_strndup((const char *)bytes, length);
    ty_cluster *cluster = NULL;
    ty_status status;

    MUST(text != NULL);
    status = ty_cluster_parse(text, "input", &cluster, &error);
    MUST((status == TY_OK) == (cluster != NULL));
    if (status == TY_OK)
        check_cluster(cluster);
    else
        MUST(status == TY_EPARSE && strstr(error.message, "expected") != NULL);
    ty_cluster_free(cluster);
    ty_free(text);
    return 0;
}
