/* Checks of all targets that end in a cluster. An accepted cluster is the same after a JSON round
 * trip, and its devices can reach each other. */
#ifndef TY_CLUSTER_FUZZ_H
#define TY_CLUSTER_FUZZ_H

#include "fuzz.h"
#include "ty_topologies.h"

#include <math.h>
#include <string.h>

/* Limits above which writing the cluster, its bisection and its routes take too long. */
enum { MOST_VERTICES_TO_WRITE = 1000, MOST_VERTICES_TO_CUT = 200, MOST_DEVICES_TO_ASK = 5 };

static char *text_of(const ty_cluster *cluster)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    ty_cluster_to_json(cluster, &writer, NULL);
    MUST(ty_text_take(&text, &out, NULL) == TY_OK);
    return out;
}

static void check_paths(const ty_cluster *c)
{
    uint32_t devices[MOST_DEVICES_TO_ASK], count = ty_cluster_device_count(c);
    double bandwidth = -1, latency = -1;

    MUST(count > 0 && ty_cluster_host_count(c) > 0);
    if (count > MOST_DEVICES_TO_ASK)
        count = MOST_DEVICES_TO_ASK;
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
    if (ty_cluster_vertex_count(c) < MOST_VERTICES_TO_CUT)
        MUST(ty_cluster_bisection(c, &bandwidth, NULL) == TY_OK && bandwidth >= 0);
}

static void check_cluster(const ty_cluster *c)
{
    ty_cluster *again = NULL;
    char *before, *after;

    check_paths(c);
    if (ty_cluster_vertex_count(c) > MOST_VERTICES_TO_WRITE)
        return;
    before = text_of(c);
    MUST(ty_cluster_parse(before, "again", &again, NULL) == TY_OK);
    after = text_of(again);
    MUST(strcmp(before, after) == 0);
    ty_free(before);
    ty_free(after);
    ty_cluster_free(again);
}

#endif
