/* What is read as a cluster, from JSON or from one line, is the same after writing and reading, and
 * all its devices reach each other. */
#include "fuzz.h"
#include "ty_topologies.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Files are another matter, and hundreds of thousands of devices take their time. */
static bool is_skipped(const char *line)
{
    size_t digits = 0;

    if (strchr(line, '/') != NULL || strstr(line, ".json") != NULL || strcmp(line, "-") == 0)
        return true;
    for (; *line != '\0'; line++) {
        digits = isdigit((unsigned char)*line) ? digits + 1 : 0;
        if (digits > 3)
            return true;
    }
    return false;
}

static ty_cluster *read_cluster(const char *text, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status = text[0] == '{' ? ty_cluster_parse(text, "input", &cluster, error)
                                      : ty_cluster_open(text, NULL, &cluster, error);

    MUST((status == TY_OK) == (cluster != NULL));
    return cluster;
}

static char *text_of(const ty_cluster *cluster)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    ty_cluster_to_json(cluster, &writer, NULL);
    MUST(ty_text_take(&text, &out, NULL) == TY_OK);
    return out;
}

static void ask_everything(const ty_cluster *c)
{
    uint32_t devices[5], count = ty_cluster_device_count(c);
    double bandwidth = -1, latency = -1;

    MUST(count > 0 && ty_cluster_host_count(c) > 0);
    if (count > 5)
        count = 5;
    for (uint32_t a = 0; a < count; a++) {
        devices[a] = a;
        MUST(ty_cluster_device_host(c, a) < ty_cluster_host_count(c));
        MUST(ty_cluster_device_type(c, a)->peak_fp32_flop_per_s > 0);
        for (uint32_t b = 0; b < count; b++) {
            ty_path path = {0};
            MUST(ty_cluster_path(c, a, b, &path, NULL) == TY_OK);
            MUST((path.link_count == 0) == (a == b) && path.bandwidth_bytes_per_s > 0 &&
                 path.latency_s >= 0);
            ty_path_clear(&path);
        }
    }
    MUST(ty_cluster_ring(c, devices, count, &bandwidth, &latency, NULL) == TY_OK);
    MUST(bandwidth > 0 && latency >= 0 && isfinite(latency));
    if (ty_cluster_vertex_count(c) < 200)
        MUST(ty_cluster_bisection(c, &bandwidth, NULL) == TY_OK && bandwidth >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    char *text = ty_strndup((const char *)bytes, length), *before, *after;
    ty_cluster *first, *second;

    MUST(text != NULL);
    first = text[0] != '{' && is_skipped(text) ? NULL : read_cluster(text, &error);
    ty_free(text);
    if (first == NULL) {
        MUST(error.status == TY_OK || strstr(error.message, "expected") != NULL ||
             error.status == TY_EIO);
        return 0;
    }
    ask_everything(first);
    before = text_of(first);
    second = read_cluster(before, &error);
    MUST(second != NULL);
    after = text_of(second);
    MUST(strcmp(before, after) == 0);
    ty_free(before);
    ty_free(after);
    ty_cluster_free(first);
    ty_cluster_free(second);
    return 0;
}
