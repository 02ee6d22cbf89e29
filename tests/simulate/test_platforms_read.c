/* Imported SimGrid platforms against libsimgrid itself: between any two hosts a message has the
 * latency and the bandwidth of SimGrid's own route. */
#include "child.h"
#include "ty_topologies.h"

#include <criterion/criterion.h>
#include <math.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/version.h>
#include <stdlib.h>
#include <string.h>

#define DATA TY_TEST_SOURCE "/../topologies/data/"

enum { PAIR_LIMIT = 2000 };

/* A query to SimGrid, by names of hosts, in a child process: it takes one platform per process. */
typedef struct question {
    const char *path;
    const char *(*pairs)[2];
    size_t count;
} question;

static ty_status ask_simgrid(void *context, void *result, ty_error *error)
{
    const question *q = context;
    double(*routes)[2] = result; /* latency, bandwidth */
    char a0[] = "test", a1[] = "--log=root.thres:critical", a2[] = "--cfg=contexts/factory:thread";
    char *argv[] = {a0, a1, a2, NULL};
    int argc = 3;

    simgrid_init(&argc, argv);
    simgrid_load_platform(q->path);
    for (size_t i = 0; i < q->count; i++) {
        sg_host_t from = sg_host_by_name(q->pairs[i][0]), to = sg_host_by_name(q->pairs[i][1]);
        if (from == NULL || to == NULL)
            return ty_fail(error, TY_EPARSE, "SimGrid has no host %s or %s", q->pairs[i][0],
                           q->pairs[i][1]);
        routes[i][0] = sg_host_get_route_latency(from, to);
        routes[i][1] = sg_host_get_route_bandwidth(from, to);
    }
    return TY_OK;
}

static const char *host_name(const ty_cluster *c, uint32_t device)
{
    return ty_cluster_host_name(c, ty_cluster_device_host(c, device));
}

/* All pairs of hosts, or as many as the limit, spread evenly.
 * @return number of differing pairs */
static size_t compare(const char *path, size_t *asked)
{
    static const char *pairs[PAIR_LIMIT][2];
    static uint32_t ends[PAIR_LIMIT][2];
    static double routes[PAIR_LIMIT][2];
    question q = {.path = path, .pairs = pairs};
    ty_cluster *c = NULL;
    ty_error error = {0};
    uint32_t count;
    size_t differ = 0;

    cr_assert_eq(ty_cluster_import(path, NULL, &c, NULL, &error), TY_OK, "%s: %s", path,
                 error.message);
    count = ty_cluster_device_count(c);
    size_t all = (size_t)count * (count - 1), step = all / PAIR_LIMIT + 1;
    for (size_t k = 0; k < all; k += step) {
        uint32_t a = (uint32_t)(k / (count - 1)), b = (uint32_t)(k % (count - 1));
        b += b >= a;
        ends[q.count][0] = a;
        ends[q.count][1] = b;
        pairs[q.count][0] = host_name(c, a);
        pairs[q.count++][1] = host_name(c, b);
    }
    cr_assert_eq(ty_child_run(ask_simgrid, &q, routes, sizeof routes, INFINITY, &error), TY_OK,
                 "%s: %s", path, error.message);
    for (size_t i = 0; i < q.count; i++) {
        ty_path way = {0};
        cr_assert_eq(ty_cluster_path(c, ends[i][0], ends[i][1], &way, NULL), TY_OK);
        bool is_same = fabs(way.latency_s - routes[i][0]) <= 1e-9 + 1e-9 * routes[i][0] &&
                       fabs(way.bandwidth_bytes_per_s - routes[i][1]) <= 1e-6 * routes[i][1];
        if (!is_same && differ++ < 3)
            fprintf(stderr, "%s: %s - %s: %g s, %g B/s instead of %g s, %g B/s\n", path,
                    pairs[i][0], pairs[i][1], way.latency_s, way.bandwidth_bytes_per_s,
                    routes[i][0], routes[i][1]);
        ty_path_clear(&way);
    }
    *asked = q.count;
    ty_cluster_free(c);
    return differ;
}

/* Dragonflies are excluded: SimGrid 3.32 omits, or adds, a link between chassis of one group on
 * some routes. */
Test(platforms_read, have_the_routes_of_simgrid, .timeout = 120)
{
    static const char *const files[] = {
        DATA "platform.xml",
        DATA "platform-shared.xml",
        DATA "platform-full.xml",
        DATA "platform-star.xml",
#if SIMGRID_VERSION_MAJOR < 4 /* 4.0 ends with a signal on a query of their routes */
        DATA "platform-cabinets.xml",
        DATA "platform-rooms.xml",
        DATA "platform-torus.xml",
        DATA "fat-tree.xml",
#endif
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t asked = 0, differ = compare(files[i], &asked);
        cr_expect(asked > 1 && differ == 0, "%s: %zu of %zu routes differ", files[i], differ,
                  asked);
    }
}
