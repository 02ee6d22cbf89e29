/* One-line descriptions of clusters: an accepted one is valid, a refused one gets a message with
 * the expectation. */
#include "build.h"
#include "cluster_fuzz.h"

#include <ctype.h>

/* Hundreds of thousands of devices take too long. */
static bool is_large(const char *line)
{
    size_t digits = 0;

    for (; *line != '\0'; line++) {
        digits = isdigit((unsigned char)*line) ? digits + 1 : 0;
        if (digits > 3)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static catalogue *known;
    ty_error error = {0};
    char *text = ty_strndup((const char *)bytes, length);
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    MUST(text != NULL && (known != NULL || catalogue_load(&known, NULL) == TY_OK));
    if (!is_large(text)) {
        status = describe_with(known, text, &cluster, &error);
        MUST((status == TY_OK) == (cluster != NULL));
    }
    if (cluster != NULL)
        check_cluster(cluster);
    else
        MUST(status == TY_OK ||
             (status == TY_EPARSE && strstr(error.message, "expected") != NULL) ||
             (status == TY_EIO && strstr(text, "@") != NULL)); /* no such file of a device */
    ty_cluster_free(cluster);
    ty_free(text);
    return 0;
}
