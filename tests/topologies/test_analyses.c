/* Analyses against closed forms, and against brute force on random small graphs. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { GRAPHS = 400, SMALL = 24 };

static bool is_device(const ty_cluster *c, uint32_t v)
{
    return ty_cluster_vertex_kind(c, v) == TY_VERTEX_DEVICE;
}

static bool is_close(double a, double b)
{
    return (isinf(a) && isinf(b)) || fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- Bisection: all cuts ----------------------------------------------------------------- */

/* Whether a device's host is in the first half of the hosts with devices, which gets the odd one.
 * Links between devices of one half are not limited. */
static bool is_in_first_half(const ty_cluster *c, uint32_t device)
{
    uint32_t hosts = 0, before = 0;

    for (uint32_t d = 0, seen = 0; d < ty_cluster_device_count(c); d++) {
        const uint32_t host = ty_cluster_device_host(c, d);
        if ((seen >> host & 1) == 0) {
            hosts++;
            before += host < ty_cluster_device_host(c, device);
        }
        seen |= 1u << host;
    }
    return before < (hosts + 1) / 2;
}

static double least_cut(const ty_cluster *c)
{
    uint32_t count = ty_cluster_vertex_count(c), free_count = 0, free_vertices[32], fixed = 0;
    double least = HUGE_VAL;

    for (uint32_t v = 0; v < count; v++)
        if (!is_device(c, v))
            free_vertices[free_count++] = v;
    for (uint32_t d = 0; d < ty_cluster_device_count(c); d++)
        fixed |= (uint32_t)is_in_first_half(c, d) << ty_cluster_device_vertex(c, d);
    for (uint32_t set = 0; set < 1u << free_count; set++) {
        uint32_t side = fixed;
        double sum = 0;
        for (uint32_t i = 0; i < free_count; i++)
            side |= (set >> i & 1) << free_vertices[i];
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            if ((side >> link->from & 1) != (side >> link->to & 1))
                sum += link->bandwidth_bytes_per_s;
        }
        least = fmin(least, sum);
    }
    return least;
}

Test(analyses, bisection_is_the_least_cut)
{
    uint32_t seen = 0;

    for (uint64_t seed = 1; seen < 100 && seed <= 20 * GRAPHS; seed++) {
        ty_cluster *c = sample_random(seed, 4);
        double found, cut;
        if (c == NULL)
            continue;
        cut = least_cut(c);
        cr_assert_eq(ty_cluster_bisection(c, &found, NULL), TY_OK);
        cr_assert(is_close(found, cut), "seed %llu: %g, expected %g", (unsigned long long)seed,
                  found, cut);
        seen++;
        ty_cluster_free(c);
    }
    cr_assert_eq(seen, 100);
}

/* ---- Rings ------------------------------------------------------------------------------- */

/* Every ring visits all devices once; all rings together fit the NVLink lanes between two
 * devices. */
static void check_rings(const ty_cluster *c, const ty_ring_set *set, double lane)
{
    uint32_t n = set->device_count, used[SMALL][SMALL] = {{0}};

    for (uint32_t r = 0; r < set->ring_count; r++) {
        const uint32_t *ring = set->devices + (size_t)r * n;
        uint64_t seen = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t a = ring[i], b = ring[(i + 1) % n];
            cr_assert_eq(seen >> a & 1, 0);
            seen |= (uint64_t)1 << a;
            used[a < b ? a : b][a < b ? b : a] += n > 2 || i == 0;
        }
    }
    for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
        const ty_link_edge *link = ty_cluster_link(c, l);
        for (uint32_t a = 0; a < SMALL && a < ty_cluster_device_count(c); a++)
            for (uint32_t b = a + 1; b < SMALL && b < ty_cluster_device_count(c); b++) {
                uint32_t x = ty_cluster_device_vertex(c, a), y = ty_cluster_device_vertex(c, b);
                uint32_t lanes = (uint32_t)lround(link->bandwidth_bytes_per_s / lane);
                if ((link->from == x && link->to == y) || (link->from == y && link->to == x)) {
                    cr_assert_leq(used[a][b], lanes, "%u and %u", a, b);
                    used[a][b] = 0;
                }
            }
    }
    for (uint32_t a = 0; a < SMALL; a++)
        for (uint32_t b = 0; b < SMALL; b++)
            cr_assert_eq(used[a][b], 0, "no link between %u and %u", a, b);
}

/* A V100 of a DGX-1 has six links, a ring uses two: the hybrid cube mesh has three concurrent
 * rings, which use all 24 NVLink lanes (NCCL finds the same three, in both directions). K8
 * decomposes into three cycles and a matching (Walecki 1892). */
Test(analyses, meshes_have_the_known_rings)
{
    static const struct {
        const char *text;
        uint32_t devices, rings;
        double lane;
    } rows[] = {
        {"dgx1-v100", 8, 3, 20e9}, {"p3.16xlarge", 8, 3, 20e9}, {"mi300x-server", 8, 3, 48e9},
        {"dgx1-v100", 2, 2, 20e9}, /* two NVLink lanes between the first two of the list */
        {"dgx1-v100", 4, 2, 20e9}, /* a square of double links and its single diagonals */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const uint32_t devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
        ty_cluster *c = sample_open(rows[i].text);
        ty_ring_set set = {0};
        cr_assert_eq(ty_cluster_find_rings(c, devices, rows[i].devices, &set, NULL), TY_OK);
        cr_assert_eq(set.ring_count, rows[i].rings, "%s, %u: %u rings", rows[i].text,
                     rows[i].devices, set.ring_count);
        cr_assert(is_close(set.bandwidth_bytes_per_s, rows[i].rings * rows[i].lane));
        check_rings(c, &set, rows[i].lane);
        ty_ring_set_clear(&set);
        ty_cluster_free(c);
    }
}

/* Pairs of a DGX-1 have two NVLink lanes, one or none. Its first five devices have no ring over
 * NVLink lanes, but one that enters and leaves the fifth through its only neighbor. Two devices
 * without a common neighbor use the routes. */
Test(analyses, pairs_and_groups_of_a_mesh)
{
    static const struct {
        uint32_t devices[5], count, rings;
        double bytes_per_s;
        bool is_routed;
    } rows[] = {
        {{0, 1}, 2, 2, 40e9, false},  {{0, 2}, 2, 1, 20e9, false},
        {{0, 5}, 2, 1, 6e9, true},    {{0, 1, 2, 3, 4}, 5, 1, 20e9, false},
        {{0, 1, 5}, 3, 1, 6e9, true},
    };
    ty_cluster *c = sample_open("dgx1-v100");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_ring_set set = {0};
        cr_assert_eq(ty_cluster_find_rings(c, rows[i].devices, rows[i].count, &set, NULL), TY_OK);
        cr_expect_eq(set.ring_count, rows[i].rings, "row %zu: %u rings", i, set.ring_count);
        cr_expect_eq(set.is_routed, rows[i].is_routed, "row %zu", i);
        cr_expect(is_close(set.bandwidth_bytes_per_s, rows[i].bytes_per_s), "row %zu: %g", i,
                  set.bandwidth_bytes_per_s);
        ty_ring_set_clear(&set);
    }
    ty_cluster_free(c);
}

Test(analyses, without_a_mesh_the_ring_is_over_the_routes)
{
    static const uint32_t devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
    ty_cluster *c = sample_open("dgx-a100");
    ty_ring_set set = {0};
    double bandwidth, latency;

    cr_assert_eq(ty_cluster_find_rings(c, devices, 8, &set, NULL), TY_OK);
    cr_assert_eq(ty_cluster_ring(c, devices, 8, &bandwidth, &latency, NULL), TY_OK);
    cr_assert_eq(set.ring_count, 1);
    cr_assert(is_close(set.bandwidth_bytes_per_s, bandwidth));
    cr_assert_eq(memcmp(set.devices, devices, sizeof devices), 0);
    ty_ring_set_clear(&set);
    cr_assert_eq(ty_cluster_find_rings(c, devices, 1, &set, NULL), TY_EINVAL);
    cr_assert_eq(ty_cluster_find_rings(c, devices, 65, &set, NULL), TY_EINVAL);
    ty_cluster_free(c);
}

/* ---- Weak points: remove each vertex and link ---------------------------------------------- */

/* Connected components of the graph without devices, `gone` and link `cut`. */
static void find_parts(const ty_cluster *c, uint32_t gone, uint32_t cut, uint32_t *part)
{
    uint32_t count = ty_cluster_vertex_count(c);
    bool has_changed = true;

    for (uint32_t v = 0; v < count; v++)
        part[v] = v;
    while (has_changed) {
        has_changed = false;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            uint32_t a = link->from, b = link->to, low;
            if (l == cut || is_device(c, a) || is_device(c, b) || a == gone || b == gone ||
                part[a] == part[b])
                continue;
            low = part[a] < part[b] ? part[a] : part[b];
            part[a] = part[b] = low;
            has_changed = true;
        }
    }
}

/* Bit set of the components that a device has links to. */
static uint32_t parts_of(const ty_cluster *c, uint32_t device, uint32_t gone, uint32_t cut,
                         const uint32_t *part)
{
    uint32_t v = ty_cluster_device_vertex(c, device), set = 0;

    for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
        const ty_link_edge *link = ty_cluster_link(c, l);
        uint32_t other = link->from == v ? link->to : link->to == v ? link->from : v;
        if (other != v && l != cut && other != gone && !is_device(c, other))
            set |= 1u << part[other];
    }
    return set;
}

/* Devices lost if the remaining component is a largest one of the component that all devices were
 * linked to. Two may be equally large: `found` must be one of the answers. */
static bool is_right(const ty_cluster *c, uint32_t gone, uint32_t cut, uint32_t found)
{
    uint32_t count = ty_cluster_vertex_count(c), devices = ty_cluster_device_count(c);
    uint32_t whole[SMALL], part[SMALL], sizes[SMALL] = {0}, main = UINT32_MAX, largest = 0;
    bool is_one = false;

    find_parts(c, UINT32_MAX, UINT32_MAX, whole);
    for (uint32_t p = 0; p < count; p++) {
        uint32_t all = 0;
        for (uint32_t d = 0; d < devices; d++)
            all += parts_of(c, d, UINT32_MAX, UINT32_MAX, whole) >> p & 1;
        if (all == devices && main == UINT32_MAX)
            main = p;
    }
    find_parts(c, gone, cut, part);
    for (uint32_t v = 0; v < count; v++)
        if (!is_device(c, v) && v != gone && whole[v] == main && ++sizes[part[v]] > largest)
            largest = sizes[part[v]];
    for (uint32_t p = 0; p < count; p++) {
        uint32_t lost = 0;
        if (sizes[p] != largest)
            continue;
        for (uint32_t d = 0; d < devices; d++)
            lost += (parts_of(c, d, gone, cut, part) >> p & 1) == 0 || largest == 0;
        is_one = is_one || lost == found;
    }
    return is_one;
}

static uint32_t found_at(const ty_weak_point *points, uint32_t count, bool is_link, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        if (points[i].is_link == is_link && points[i].index == index)
            return points[i].devices;
    return 0;
}

Test(analyses, weak_points_are_what_taking_away_shows)
{
    uint32_t seen = 0;

    for (uint64_t seed = 1; seed <= 5 * GRAPHS; seed++) {
        ty_cluster *c = sample_random(seed, 5);
        ty_weak_point *points = NULL;
        uint32_t count = 0;
        if (c == NULL)
            continue;
        cr_assert_eq(ty_cluster_weak_points(c, &points, &count, NULL), TY_OK);
        for (uint32_t i = 1; i < count; i++)
            cr_assert_leq(points[i].devices, points[i - 1].devices);
        for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
            if (!is_device(c, v) && ty_cluster_vertex_kind(c, v) != TY_VERTEX_HOST)
                cr_assert(is_right(c, v, UINT32_MAX, found_at(points, count, false, v)),
                          "seed %llu: %s: %u", (unsigned long long)seed,
                          ty_cluster_vertex_name(c, v), found_at(points, count, false, v));
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++)
            cr_assert(is_right(c, UINT32_MAX, l, found_at(points, count, true, l)),
                      "seed %llu: link %u: %u", (unsigned long long)seed, l,
                      found_at(points, count, true, l));
        seen += count;
        ty_free(points);
        ty_cluster_free(c);
    }
    cr_assert_gt(seen, 200);
}

Test(analyses, a_leaf_cuts_off_its_hosts)
{
    ty_cluster *c = sample_open("leaf:4 host:2 gpu:8 @h100 nvlink4 ndr400");
    ty_weak_point *points = NULL;
    uint32_t count = 0, leaves = 0;

    cr_assert_eq(ty_cluster_weak_points(c, &points, &count, NULL), TY_OK);
    cr_assert_str_eq(ty_cluster_vertex_name(c, points[0].index), "spine-0");
    cr_assert_eq(points[0].devices, 48); /* of 64: one leaf's devices stay connected */
    for (uint32_t i = 0; i < count; i++)
        if (!points[i].is_link &&
            strncmp(ty_cluster_vertex_name(c, points[i].index), "leaf-", 5) == 0) {
            cr_assert_eq(points[i].devices, 16);
            leaves++;
        }
    cr_assert_eq(leaves, 4);
    ty_free(points);
    ty_cluster_free(c);
}

/* ---- Classes ----------------------------------------------------------------------------- */

static uint32_t classes_of(const char *text, uint32_t *sizes, bool *is_exact)
{
    ty_cluster *c = sample_open(text);
    uint32_t devices = ty_cluster_device_count(c), count = 0;
    uint32_t *classes = ty_alloc(devices, sizeof *classes);

    cr_assert_eq(ty_cluster_classes(c, classes, &count, is_exact, NULL), TY_OK);
    for (uint32_t d = 0; d < devices; d++) {
        cr_assert_lt(classes[d], count);
        if (classes[d] < 4)
            sizes[classes[d]]++;
    }
    ty_free(classes);
    ty_cluster_free(c);
    return count;
}

Test(analyses, classes_of_known_clusters)
{
    static const struct {
        const char *text;
        uint32_t classes, sizes[4];
        bool is_exact;
    } rows[] = {
        {"dgx-a100", 1, {8}, true},
        {"16x p100-server", 1, {64}, true},
        {"dgx1-v100", 2, {4, 4}, true}, /* doubly linked to the other half, or singly */
        {"mi300x-server", 1, {8}, true},
        {"torus:4x4x4 @tpu-v4 ici-v4", 1, {64}, true},
        {"leaf:4 host:8 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2", 1, {256}, true},
        {"2x dgx-a100 + 3x dgx1-v100", 3, {16, 12, 12}, true},
        {"[2x dgx-a100] + [3x dgx-a100] wan10", 2, {16, 24}, true},
        {"pod:8 leaf:32 host:8 gpu:8 @h100 nvlink4 ndr400", 1, {16384}, false},
        {"2048x dgx-h100", 1, {16384}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t sizes[4] = {0}, count;
        bool is_exact = false;
        count = classes_of(rows[i].text, sizes, &is_exact);
        cr_assert_eq(count, rows[i].classes, "%s: %u classes", rows[i].text, count);
        for (int k = 0; k < 4; k++)
            cr_assert_eq(sizes[k], rows[i].sizes[k], "%s: class %d has %u", rows[i].text, k,
                         sizes[k]);
        cr_assert_eq(is_exact, rows[i].is_exact, "%s", rows[i].text);
    }
}

/* Twelve devices with a switch each, all linked to a core, and among themselves in a ring of six
 * and two of three. Color refinement sees three neighbors everywhere, but they are not
 * interchangeable. */
Test(analyses, automorphisms_part_what_refinement_cannot)
{
    static const char type[] = "{\"name\": \"t\", \"source\": \"test\", ";
    ty_text text = {0};
    uint32_t sizes[4] = {0};
    bool is_exact = false;

    ty_text_addf(&text,
                 "{\"schema\": \"trainyard.cluster/1\", \"name\": \"rings\", \"device_types\": [%s"
                 "\"peak_fp32_flop_per_s\": 1, \"peak_tf32_flop_per_s\": 0, "
                 "\"peak_fp16_flop_per_s\": 0, \"memory_bandwidth_bytes_per_s\": 1, "
                 "\"launch_overhead_s\": 0, \"matmul_efficiency\": 1, \"memory_efficiency\": 1, "
                 "\"core_share\": 0, \"power_w\": 0, \"memory_bytes\": 1}], \"link_types\": [%s"
                 "\"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 0}], \"vertices\": [",
                 type, type);
    ty_text_add(&text, "{\"name\": \"host\", \"kind\": \"host\"}, "
                       "{\"name\": \"core\", \"kind\": \"switch\"}");
    for (int i = 0; i < 12; i++)
        ty_text_addf(&text,
                     ", {\"name\": \"s%d\", \"kind\": \"switch\"}, {\"name\": \"d%d\", \"kind\": "
                     "\"device\", \"type\": \"t\", \"host\": \"host\"}",
                     i, i);
    ty_text_add(&text, "], \"links\": [{\"from\": \"host\", \"to\": \"core\", \"type\": \"t\"}");
    for (int i = 0; i < 12; i++) {
        int first = i < 6 ? 0 : i < 9 ? 6 : 9, length = i < 6 ? 6 : 3;
        ty_text_addf(&text,
                     ", {\"from\": \"s%d\", \"to\": \"d%d\", \"type\": \"t\"}, {\"from\": \"s%d\", "
                     "\"to\": \"core\", \"type\": \"t\"}, {\"from\": \"s%d\", \"to\": \"s%d\", "
                     "\"type\": \"t\"}",
                     i, i, i, i, first + (i - first + 1) % length);
    }
    ty_text_add(&text, "]}");
    cr_assert_eq(classes_of(text.data, sizes, &is_exact), 2);
    cr_assert(is_exact && sizes[0] == 6 && sizes[1] == 6);
    ty_text_clear(&text);
}

/* ---- Findings ---------------------------------------------------------------------------- */

static uint32_t count_findings(const char *text, ty_finding_kind kind, double *worst)
{
    ty_cluster *c = sample_open(text);
    ty_finding *findings = NULL;
    uint32_t count = 0, found = 0;

    cr_assert_eq(ty_cluster_examine(c, &findings, &count, NULL), TY_OK);
    for (uint32_t i = 0; i < count; i++)
        if (findings[i].kind == kind && found++ == 0)
            *worst = findings[i].value;
    ty_free(findings);
    ty_cluster_free(c);
    return found;
}

Test(analyses, findings)
{
    double worst = 0;

    cr_assert_eq(count_findings("leaf:4 host:8 gpu:8 @h100 nvlink4 ndr400 oversub:4",
                                TY_FINDING_OVERSUBSCRIBED, &worst),
                 4);
    cr_assert(is_close(worst, 4), "%g", worst);
    cr_assert_eq(count_findings("leaf:4 host:8 gpu:8 @h100 nvlink4 ndr400",
                                TY_FINDING_OVERSUBSCRIBED, &worst),
                 0);
    cr_assert_eq(
        count_findings("[4x dgx-a100] + [4x dgx-a100] wan10", TY_FINDING_OVERSUBSCRIBED, &worst),
        2);
    cr_assert(is_close(worst, 32 * 25e9 / 1.25e9), "%g", worst);
    cr_assert_eq(count_findings("16x dgx-h100", TY_FINDING_SLOW_LINK, &worst), 0);
    cr_assert_eq(count_findings("16x dgx-h100", TY_FINDING_ODD_DEVICE, &worst), 0);
    /* the switch; for every GPU, the PCIe switch on its route to the interconnect, and the link
     * there */
    cr_assert_eq(count_findings("16x dgx-h100", TY_FINDING_WEAK_POINT, &worst), 1 + 2 * 128);
    cr_assert(is_close(worst, 15 * 8));
}
