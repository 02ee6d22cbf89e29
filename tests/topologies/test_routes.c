/* Paths, rings and cuts: closed forms on known clusters, brute force on small random ones. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

#define US *1e-6

Test(paths, have_their_closed_forms)
{
    static const struct {
        const char *name, *text;
        uint32_t from, to, links;
        double latency_s, bandwidth;
    } rows[] = {
        {"itself", "dgx-a100", 3, 3, 0, 0, HUGE_VAL},
        {"NVSwitch", "dgx-a100", 0, 7, 2, 3.4 US, 240e9},
        {"NVSwitch", "dgx-h100", 7, 0, 2, 3.4 US, 370.8e9},
        /* DGX-1: listed as gpu-0 3 2 1 5 6 7 4 */
        {"two NVLinks", "dgx1-v100", 0, 1, 1, 3.4 US, 40e9},
        {"one NVLink", "dgx1-v100", 0, 2, 1, 3.4 US, 20e9},
        {"NVLink across the halves", "dgx1-v100", 0, 7, 1, 3.4 US, 40e9},
        {"no NVLink: between processors", "dgx1-v100", 0, 4, 6, (5.7 + 0.3 + 0.2) US, 6e9},
        {"one PCIe switch", "p100-server", 0, 1, 2, 5.7 US, 12e9},
        {"two PCIe switches", "p100-server", 1, 2, 4, 6.0 US, 12e9},
        {"25 GbE", "2x p100-server", 0, 7, 8, (5.7 + 0.6 + 20) US, 2.942e9},
        {"HDR, PCIe is narrower", "2x dgx-a100", 0, 8, 6, 14 US, 24e9},
        {"NDR, other GPU", "2x dgx-h100", 3, 14, 6, 14 US, 48e9},
        {"EDR, PCIe is narrower", "2x dgx1-v100", 0, 9, 6, 14 US, 12e9},
        {"same leaf", "leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:8", 0, 2, 4, 13.7 US,
         48e9},
        {"across a wide spine", "leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:2", 0, 4, 6,
         14.3 US, 48e9},
        {"across a narrow spine", "leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:8", 0, 4, 6,
         14.3 US, 25e9},
        {"one NIC of eight devices", "host:2 gpu:8 @h100 nvlink4 eth10 nics=1", 3, 12, 6,
         (5.7 + 0.3 + 20) US, 1.177e9},
        {"a NIC's own rate", "host:2 gpu:8 @h100 nvlink4 eth10 nics=4x80Gb/s", 3, 12, 6,
         (5.7 + 0.3 + 20) US, 10e9},
        {"across the core", "pod:2 leaf:2 host:1 gpu:1 @h100-sxm nvlink4 ndr400 oversub:2", 0, 3, 8,
         14.9 US, 25e9},
        {"this machine", "local:4", 1, 3, 2, 2 US, 4e9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        ty_path path = {0};
        cr_assert_eq(ty_cluster_path(c, rows[i].from, rows[i].to, &path, NULL), TY_OK);
        cr_assert_eq(path.link_count, rows[i].links, "%s: %u links", rows[i].name, path.link_count);
        cr_assert(path.link_count == 0 ? isinf(path.bandwidth_bytes_per_s)
                                       : is_near(path.bandwidth_bytes_per_s, rows[i].bandwidth),
                  "%s: %g bytes/s", rows[i].name, path.bandwidth_bytes_per_s);
        cr_assert(fabs(path.latency_s - rows[i].latency_s) < 1e-14, "%s: %g s", rows[i].name,
                  path.latency_s);
        ty_path_clear(&path);
        ty_cluster_free(c);
    }
}

Test(paths, leave_by_the_nearest_nic)
{
    static const struct {
        const char *text;
        uint32_t device;
        const char *nic;
    } rows[] = {
        {"2x dgx1-v100", 0, "host-0/nic-0"}, /* gpu-0 */
        {"2x dgx1-v100", 1, "host-0/nic-1"}, /* gpu-3 */
        {"2x dgx1-v100", 7, "host-0/nic-2"}, /* gpu-4 */
        {"2x dgx-a100", 5, "host-0/nic-5"},
        {"leaf:2 host:1 gpu:4 @h100-sxm nvlink4 ndr400", 2, "host-0/nic-2"},
        {"leaf:2 host:1 gpu:8 @h100-sxm nvlink4 hdr200 nics=4", 5, "host-0/nic-2"},
        {"leaf:2 host:1 gpu:8 @a100-pcie-80gb pcie4 hdr200 nics=2", 3, "host-0/nic-0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        uint32_t last = ty_cluster_device_count(c) - 1, nics = 0;
        ty_path path = {0};
        cr_assert_eq(ty_cluster_path(c, rows[i].device, last, &path, NULL), TY_OK);
        for (uint32_t l = 0; l < path.link_count; l++) {
            const ty_link_edge *link = ty_cluster_link(c, path.links[l]);
            nics += strcmp(ty_cluster_vertex_name(c, link->from), rows[i].nic) == 0 ||
                    strcmp(ty_cluster_vertex_name(c, link->to), rows[i].nic) == 0;
        }
        cr_assert_eq(nics, 2, "%s, device %u", rows[i].text, rows[i].device);
        ty_path_clear(&path);
        ty_cluster_free(c);
    }
}

Test(paths, refuse_devices_there_are_not)
{
    ty_cluster *c = sample_open("dgx-a100");
    ty_path path = {0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_path(c, 0, 8, &path, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "device 8"), "%s", error.message);
    cr_assert_eq(ty_cluster_path(c, UINT32_MAX, 0, &path, &error), TY_EINVAL);
    cr_assert_null(path.links);
    ty_cluster_free(c);
}

/* ---- The oracle: relax all links until nothing changes ----------------------------------- */

enum { VERTICES = 32 };

typedef struct oracle {
    const ty_cluster *cluster;
    uint32_t islands[VERTICES];
    double latency_ps[VERTICES], bandwidth[VERTICES];
} oracle;

static bool is_kind(const ty_cluster *c, uint32_t v, ty_vertex_kind kind)
{
    return ty_cluster_vertex_kind(c, v) == kind;
}

static void find_islands(oracle *o)
{
    const ty_cluster *c = o->cluster;
    bool changed = true;

    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        o->islands[v] = v;
    while (changed) {
        changed = false;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            uint32_t a = ty_cluster_link(c, l)->from, b = ty_cluster_link(c, l)->to;
            if (is_kind(c, a, TY_VERTEX_SWITCH) || is_kind(c, b, TY_VERTEX_SWITCH) ||
                o->islands[a] == o->islands[b])
                continue;
            o->islands[a] = o->islands[b] =
                o->islands[a] < o->islands[b] ? o->islands[a] : o->islands[b];
            changed = true;
        }
    }
}

/* Whether a route between two device vertices may continue from v. */
static bool forwards(const oracle *o, uint32_t v, uint32_t from, uint32_t to, bool stays_home)
{
    if (v == from)
        return true;
    if (is_kind(o->cluster, v, TY_VERTEX_DEVICE))
        return false;
    return !stays_home || is_kind(o->cluster, v, TY_VERTEX_SWITCH) ||
           o->islands[v] == o->islands[from] || o->islands[v] == o->islands[to];
}

static bool relax(oracle *o, uint32_t a, uint32_t b, const ty_link_edge *link)
{
    double latency = o->latency_ps[a] + round(link->latency_s * 1e12);
    double width = fmin(o->bandwidth[a], link->bandwidth_bytes_per_s);

    if (latency > o->latency_ps[b] || (latency == o->latency_ps[b] && width <= o->bandwidth[b]))
        return false;
    o->latency_ps[b] = latency;
    o->bandwidth[b] = width;
    return true;
}

static bool solve(oracle *o, uint32_t from, uint32_t to, bool stays_home)
{
    bool changed = true;

    for (uint32_t v = 0; v < ty_cluster_vertex_count(o->cluster); v++)
        o->latency_ps[v] = HUGE_VAL, o->bandwidth[v] = 0;
    o->latency_ps[from] = 0;
    o->bandwidth[from] = HUGE_VAL;
    while (changed) {
        changed = false;
        for (uint32_t l = 0; l < ty_cluster_link_count(o->cluster); l++) {
            const ty_link_edge *link = ty_cluster_link(o->cluster, l);
            if (isfinite(o->latency_ps[link->from]) &&
                forwards(o, link->from, from, to, stays_home))
                changed |= relax(o, link->from, link->to, link);
            if (isfinite(o->latency_ps[link->to]) && forwards(o, link->to, from, to, stays_home))
                changed |= relax(o, link->to, link->from, link);
        }
    }
    return isfinite(o->latency_ps[to]);
}

static void check_pair(oracle *o, uint32_t a, uint32_t b, uint64_t seed)
{
    const ty_cluster *c = o->cluster;
    uint32_t from = ty_cluster_device_vertex(c, a), to = ty_cluster_device_vertex(c, b), at = from;
    bool is_home = solve(o, from, to, true) || solve(o, from, to, false);
    double width = HUGE_VAL, latency = 0;
    ty_path path = {0}, back = {0};

    cr_assert(is_home, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(ty_cluster_path(c, a, b, &path, NULL), TY_OK);
    cr_assert_eq(ty_cluster_path(c, b, a, &back, NULL), TY_OK);
    cr_assert_eq(path.link_count, back.link_count);
    for (uint32_t i = 0; i < path.link_count; i++) {
        const ty_link_edge *link = ty_cluster_link(c, path.links[i]);
        cr_assert_eq(path.links[i], back.links[path.link_count - 1 - i]);
        cr_assert(i == 0 || !is_kind(c, at, TY_VERTEX_DEVICE), "seed %llu: forwarded by a device",
                  (unsigned long long)seed);
        cr_assert(link->from == at || link->to == at, "seed %llu: a gap", (unsigned long long)seed);
        at = link->from == at ? link->to : link->from;
        width = fmin(width, link->bandwidth_bytes_per_s);
        latency += link->latency_s;
    }
    cr_assert_eq(at, to);
    cr_assert(fabs(path.latency_s * 1e12 - o->latency_ps[to]) < 1e-3, "seed %llu: %g s, not %g ps",
              (unsigned long long)seed, path.latency_s, o->latency_ps[to]);
    cr_assert(is_near(path.bandwidth_bytes_per_s, o->bandwidth[to]),
              "seed %llu, %u -> %u: %g, not %g", (unsigned long long)seed, a, b,
              path.bandwidth_bytes_per_s, o->bandwidth[to]);
    cr_assert(is_near(path.bandwidth_bytes_per_s, width) && fabs(path.latency_s - latency) < 1e-18);
    ty_path_clear(&path);
    ty_path_clear(&back);
}

Test(paths, agree_with_brute_force_on_random_graphs)
{
    uint32_t tried = 0;

    for (uint64_t seed = 1; seed <= 600; seed++) {
        ty_cluster *c = sample_random(seed, 4);
        oracle o = {.cluster = c};
        if (c == NULL)
            continue;
        tried++;
        find_islands(&o);
        for (uint32_t a = 0; a < 4; a++)
            for (uint32_t b = 0; b < 4; b++)
                if (a != b)
                    check_pair(&o, a, b, seed);
        ty_cluster_free(c);
    }
    cr_assert_gt(tried, 100, "%u graphs", tried);
}

Test(paths, agree_with_brute_force_on_catalogue_hosts)
{
    static const char *const texts[] = {"dgx1-v100", "2x p100-server", "dgx-a100",
                                        "leaf:2 host:2 gpu:1 @h100 pcie5 ndr400 oversub:3",
                                        "pod:2 leaf:2 host:1 gpu:1 @h100-sxm nvlink4 ndr400"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_cluster *c = sample_open(texts[i]);
        oracle o = {.cluster = c};
        cr_assert_leq(ty_cluster_vertex_count(c), VERTICES, "%s", texts[i]);
        find_islands(&o);
        for (uint32_t a = 0; a < ty_cluster_device_count(c); a++)
            for (uint32_t b = 0; b < ty_cluster_device_count(c); b++)
                if (a != b)
                    check_pair(&o, a, b, 0);
        ty_cluster_free(c);
    }
}

/* ---- Rings ------------------------------------------------------------------------------- */

Test(rings, have_their_closed_forms)
{
    static const struct {
        const char *name, *text;
        uint32_t devices[16], count;
        double bandwidth, latency_s;
    } rows[] = {
        {"one device", "dgx-a100", {3}, 1, HUGE_VAL, 0},
        {"two devices, both ways", "dgx-a100", {0, 1}, 2, 240e9, 3.4 US},
        {"NVSwitch", "dgx-a100", {0, 1, 2, 3, 4, 5, 6, 7}, 8, 240e9, 3.4 US},
        {"cube mesh, as listed", "dgx1-v100", {0, 1, 2, 3, 4, 5, 6, 7}, 8, 40e9, 3.4 US},
        {"half the cube mesh", "dgx1-v100", {0, 1, 2, 3}, 4, 20e9, 3.4 US},
        {"PCIe", "p100-server", {0, 1, 2, 3}, 4, 12e9, 6 US},
        /* 0-2, 2-1, 1-3, 3-0: each direction of each switch's uplink twice */
        {"PCIe, criss-cross", "p100-server", {0, 2, 1, 3}, 4, 6e9, 6 US},
        {"two hosts", "2x p100-server", {0, 1, 2, 3, 4, 5, 6, 7}, 8, 2.942e9, 26.3 US},
        {"two hosts, criss-cross",
         "2x p100-server",
         {0, 4, 1, 5, 2, 6, 3, 7},
         8,
         2.942e9 / 4,
         26.3 US},
        {"two HDR hosts",
         "2x dgx-a100",
         {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
         16,
         24e9,
         14 US},
        {"narrow spine",
         "leaf:2 host:2 gpu:1 @h100-sxm nvlink4 ndr400 oversub:8",
         {0, 1, 2, 3},
         4,
         12.5e9,
         14.3 US},
        {"narrow spine, criss-cross",
         "leaf:2 host:2 gpu:1 @h100-sxm nvlink4 ndr400 oversub:8",
         {0, 2, 1, 3},
         4,
         6.25e9,
         14.3 US},
        {"this machine", "local:4", {0, 1, 2, 3}, 4, 4e9, 2 US},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        double bandwidth = 0, latency = -1;
        cr_assert_eq(ty_cluster_ring(c, rows[i].devices, rows[i].count, &bandwidth, &latency, NULL),
                     TY_OK);
        cr_assert(rows[i].count == 1 ? isinf(bandwidth) : is_near(bandwidth, rows[i].bandwidth),
                  "%s: %g bytes/s", rows[i].name, bandwidth);
        cr_assert(fabs(latency - rows[i].latency_s) < 1e-14, "%s: %g s", rows[i].name, latency);
        ty_cluster_free(c);
    }
}

/* No edge of a ring has more bandwidth than its path without contention, and rotating the ring
 * changes nothing. */
Test(rings, are_bounded_by_their_paths)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        static const uint32_t there[] = {0, 1, 2, 3, 4}, back[] = {4, 3, 2, 1, 0};
        ty_cluster *c = sample_random(seed, 5);
        double bandwidth, latency, bandwidth_back, latency_back, narrowest = HUGE_VAL, longest = 0;
        if (c == NULL)
            continue;
        cr_assert_eq(ty_cluster_ring(c, there, 5, &bandwidth, &latency, NULL), TY_OK);
        cr_assert_eq(ty_cluster_ring(c, back, 5, &bandwidth_back, &latency_back, NULL), TY_OK);
        for (uint32_t i = 0; i < 5; i++) {
            ty_path path = {0};
            cr_assert_eq(ty_cluster_path(c, i, (i + 1) % 5, &path, NULL), TY_OK);
            narrowest = fmin(narrowest, path.bandwidth_bytes_per_s);
            longest = fmax(longest, path.latency_s);
            ty_path_clear(&path);
        }
        cr_assert(bandwidth <= narrowest * (1 + 1e-12) && bandwidth >= narrowest / 5 / 3,
                  "seed %llu: %g, paths %g", (unsigned long long)seed, bandwidth, narrowest);
        cr_assert(is_near(bandwidth, bandwidth_back), "seed %llu", (unsigned long long)seed);
        cr_assert(fabs(latency - longest) < 1e-15 && fabs(latency_back - longest) < 1e-15);
        ty_cluster_free(c);
    }
}

Test(rings, refuse_bad_members)
{
    static const uint32_t twice[] = {0, 1, 0}, beyond[] = {0, 8};
    ty_cluster *c = sample_open("dgx-a100");
    double bandwidth = -1, latency = -1;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_ring(c, twice, 3, &bandwidth, &latency, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "device 0 twice"), "%s", error.message);
    cr_assert_eq(ty_cluster_ring(c, beyond, 2, &bandwidth, &latency, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "device 8"), "%s", error.message);
    cr_assert_eq(ty_cluster_ring(c, twice, 0, &bandwidth, &latency, &error), TY_EINVAL);
    cr_assert(bandwidth < 0 && latency < 0);
    ty_cluster_free(c);
}

/* A ring over a large cluster takes time linear in its edges, not quadratic in its size. */
Test(rings, go_round_sixteen_thousand_devices)
{
    ty_cluster *c = sample_open("pod:8 leaf:32 host:8 gpu:8 @h100 nvlink4 ndr400");
    uint32_t count = ty_cluster_device_count(c);
    uint32_t *devices = ty_alloc(count, sizeof *devices);
    double bandwidth = 0, latency = 0;

    for (uint32_t i = 0; i < count; i++)
        devices[i] = i;
    cr_assert_eq(ty_cluster_ring(c, devices, count, &bandwidth, &latency, NULL), TY_OK);
    cr_assert(is_near(bandwidth, 48e9), "%g", bandwidth);
    cr_assert(fabs(latency - 14.9 US) < 1e-14, "%g", latency);
    ty_free(devices);
    ty_cluster_free(c);
}

/* ---- Bisection
 * -------------------------------------------------------------------------------- */

Test(bisection, has_its_closed_forms)
{
    static const struct {
        const char *text;
        double bandwidth;
    } rows[] = {
        {"dgx-a100", 0},
        {"local:4", 0},
        {"2x p100-server", 2.942e9},
        {"3x p100-server", 2.942e9}, /* two hosts against one */
        {"4x p100-server", 2 * 2.942e9},
        {"16x dgx-a100", 64 * 24e9},
        {"2x dgx-h100", 8 * 48e9},
        {"2x dgx1-v100", 4 * 12e9},
        {"leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:2", 2 * 50e9},
        {"leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400", 4 * 48e9},
        {"pod:2 leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:4", 2 * 50e9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        double bandwidth = -1;
        cr_assert_eq(ty_cluster_bisection(c, &bandwidth, NULL), TY_OK);
        cr_assert(fabs(bandwidth - rows[i].bandwidth) <= 1e-9 * rows[i].bandwidth, "%s: %g, not %g",
                  rows[i].text, bandwidth, rows[i].bandwidth);
        ty_cluster_free(c);
    }
}

/* Minimum sum of the cut links over all assignments of the vertices without devices to the two
 * sides. */
static double least_cut(const ty_cluster *c, uint32_t second_half)
{
    uint32_t free_vertices[VERTICES], count = 0;
    double least = HUGE_VAL;
    bool sides[VERTICES];

    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        if (!is_kind(c, v, TY_VERTEX_DEVICE))
            free_vertices[count++] = v;
    for (uint32_t d = 0; d < ty_cluster_device_count(c); d++)
        sides[ty_cluster_device_vertex(c, d)] = ty_cluster_device_host(c, d) >= second_half;
    for (uint32_t mask = 0; mask < 1u << count; mask++) {
        double cut = 0;
        for (uint32_t i = 0; i < count; i++)
            sides[free_vertices[i]] = mask >> i & 1;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            if (sides[link->from] != sides[link->to])
                cut += link->bandwidth_bytes_per_s;
        }
        least = fmin(least, cut);
    }
    return least;
}

Test(bisection, agrees_with_brute_force)
{
    uint32_t tried = 0;

    for (uint64_t seed = 1; seed <= 1500; seed++) {
        ty_cluster *c = sample_random(seed, 6); /* six devices: every host has some */
        double bandwidth = -1, expected;
        if (c == NULL)
            continue;
        tried++;
        expected = least_cut(c, (ty_cluster_host_count(c) + 1) / 2);
        cr_assert_eq(ty_cluster_bisection(c, &bandwidth, NULL), TY_OK);
        cr_assert(is_near(bandwidth, expected), "seed %llu: %g, not %g", (unsigned long long)seed,
                  bandwidth, expected);
        ty_cluster_free(c);
    }
    cr_assert_gt(tried, 50, "%u graphs", tried);
}
