/* Files as users have them: copied out of terminals and web pages, from hosts with other shapes
 * than the first ones. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DATA TY_TEST_SOURCE "/data/"

static const ty_link_edge *link_between(const ty_cluster *c, const char *a, const char *b)
{
    uint32_t link;
    return ty_cluster_find_link(c, a, b, &link, NULL) == TY_OK ? ty_cluster_link(c, link) : NULL;
}

/* ---- nvidia-smi topo -m ------------------------------------------------------------------ */

/* Spaces for tabs, a fence, prefixes, a log and a legend around it, two hosts in one file: each
 * gives the result of its clean print. */
Test(import_forms, smi_copied)
{
    ty_import_notes notes = {0};
    ty_cluster *clean = sample_import(
        DATA "smi.txt", &(ty_cluster_import_options){.host = "dgx-a100", .hosts = 2}, NULL);
    ty_cluster *copied = sample_import(DATA "smi-copied.md",
                                       &(ty_cluster_import_options){.host = "dgx-a100"}, &notes);

    cr_assert_eq(ty_cluster_device_count(copied), 6);
    cr_assert_not_null(strstr(notes.text, "2 matrices, all alike: 2 machines"), "%s", notes.text);
    cr_assert_eq(ty_cluster_link_count(copied), ty_cluster_link_count(clean));
    for (uint32_t l = 0; l < ty_cluster_link_count(clean); l++) {
        const ty_link_edge *want = ty_cluster_link(clean, l);
        const ty_link_edge *got = link_between(copied, ty_cluster_vertex_name(clean, want->from),
                                               ty_cluster_vertex_name(clean, want->to));
        cr_assert_not_null(got);
        cr_assert_str_eq(got->kind, want->kind);
        cr_assert_float_eq(got->bandwidth_bytes_per_s, want->bandwidth_bytes_per_s, 1);
    }
    ty_import_notes_clear(&notes);
    ty_cluster_free(clean);
    ty_cluster_free(copied);
}

Test(import_forms, smi_texts)
{
    static const struct {
        const char *text;
        uint32_t hosts; /* of the options */
        ty_status status;
        uint32_t devices;
        const char *part;
    } rows[] = {
        /* a table of Markdown */
        {"|      | GPU0 | GPU1 | CPU Affinity |\n|---|---|---|---|\n| GPU0 | X | NV12 | 0-7 |\n"
         "| GPU1 | NV12 | X | 0-7 |\n",
         0, TY_OK, 2, NULL},
        /* one GPU, which a log mentions before and after */
        {"GPU0 is idle\n  GPU0 CPU Affinity\nGPU0 X 0-7\nGPU0 is idle\n", 0, TY_OK, 1, NULL},
        /* two hosts that differ */
        {"  GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\nNIC0 PIX X\n"
         "  GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X NV12 PIX 0-7\nGPU1 NV12 X PHB 0-7\nNIC0 PIX PHB "
         "X\n",
         0, TY_OK, 3, NULL},
        {"  GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\nNIC0 PIX X\n"
         "  GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X NV12 PIX 0-7\nGPU1 NV12 X PHB 0-7\nNIC0 PIX PHB "
         "X\n",
         2, TY_OK, 3, NULL},
        {"  GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\nNIC0 PIX X\n"
         "  GPU0 GPU1 NIC0 CPU Affinity\nGPU0 X NV12 PIX 0-7\nGPU1 NV12 X PHB 0-7\nNIC0 PIX PHB "
         "X\n",
         4, TY_EPARSE, 0, "found 2 matrices that differ, expected 4 equal machines"},
        /* one host, printed by two ranks */
        {"  GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\nNIC0 PIX X\n"
         "  GPU0 NIC0 CPU Affinity\nGPU0 X PIX 0-7\nNIC0 PIX X\n",
         1, TY_OK, 1, NULL},
        {"  GPU0 GPU1 CPU Affinity\nGPU0 X NV12 0-7\nGPU1 NVL X 0-7\n", 0, TY_EPARSE, 0,
         "found \"NVL\" between GPU1 and GPU0"},
        {"  GPU0 GPU1 CPU Affinity\nGPU0 X NV12 0-7\n", 0, TY_EPARSE, 0, "found no row GPU1"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster_import_options options = {.host = "dgx-a100", .hosts = rows[i].hosts};
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_status status = ty_cluster_import_text(rows[i].text, strlen(rows[i].text), "text",
                                                  &options, &c, NULL, &error);
        cr_assert_eq(status, rows[i].status, "row %zu: %s", i, error.message);
        if (status == TY_OK)
            cr_assert_eq(ty_cluster_device_count(c), rows[i].devices, "row %zu: %u", i,
                         ty_cluster_device_count(c));
        else
            cr_assert_not_null(strstr(error.message, rows[i].part), "row %zu: %s", i,
                               error.message);
        ty_cluster_free(c);
    }
}

/* ---- NVLink domains across hosts ------------------------------------------------------------ */

static double bandwidth_between(const ty_cluster *c, uint32_t a, uint32_t b)
{
    ty_path path = {0};
    double bandwidth;

    cr_assert_eq(ty_cluster_path(c, a, b, &path, NULL), TY_OK);
    bandwidth = path.bandwidth_bytes_per_s;
    ty_path_clear(&path);
    return bandwidth;
}

/* Two blocks of 18 trays: 36 hosts, 144 GPUs, two NVLink domains. The rack's name means the same,
 * without multiplication. */
Test(import_forms, nvlink_domains)
{
    static const char slurm[] = "BlockName=b1 Nodes=n[01-18]\nBlockName=b2 Nodes=n[19-36]\n";
    static const struct {
        const char *text, *host, *nvswitch;
    } rows[] = {{slurm, "gb200-tray", "b1/nvswitch"}, {slurm, "gb200-nvl72", "b2/nvswitch"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster_import_options options = {.host = rows[i].host};
        ty_cluster *c = NULL;
        ty_error error = {0};
        uint32_t domains = 0;
        cr_assert_eq(ty_cluster_import_text(rows[i].text, strlen(rows[i].text), "blocks", &options,
                                            &c, NULL, &error),
                     TY_OK, "%zu: %s", i, error.message);
        cr_assert_eq(ty_cluster_host_count(c), 36);
        cr_assert_eq(ty_cluster_device_count(c), 144);
        for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
            domains += strstr(ty_cluster_vertex_name(c, v), "/nvswitch") != NULL;
        cr_assert_eq(domains, 2);
        cr_assert_not_null(
            link_between(c, rows[i].nvswitch, i % 2 == 0 ? "n01/gpu-0" : "n36/gpu-3"));
        cr_assert_eq(bandwidth_between(c, 0, 71), bandwidth_between(c, 0, 1)); /* of one domain */
        cr_assert_lt(bandwidth_between(c, 0, 72), 60e9);                       /* of two */
        ty_cluster_free(c);
    }
}

Test(import_forms, nvlink_domain_too_large)
{
    static const char text[] = "BlockName=b1 Nodes=n[01-19]\n";
    ty_cluster_import_options options = {.host = "gb200-tray"};
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "blocks", &options, &c, NULL, &error),
                 TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "found more than 18 nodes in NVLink domain b1"), "%s",
                       error.message);
}

/* Trays of a line share the switch of a rack, 18 of them; blocks of hosts without a common switch
 * are unchanged. */
Test(import_forms, hosts_without_a_domain)
{
    ty_cluster_import_options options = {.host = "dgx-h100"};
    ty_cluster *c = sample_open("19x gb200-tray"), *blocks = NULL;

    cr_assert_eq(ty_cluster_device_count(c), 76);
    cr_assert_gt(bandwidth_between(c, 0, 71), 700e9);
    cr_assert_lt(bandwidth_between(c, 0, 72), 60e9);
    cr_assert_eq(ty_cluster_import_text("BlockName=b1 Nodes=n[1-2]\n", 26, "blocks", &options,
                                        &blocks, NULL, NULL),
                 TY_OK);
    cr_assert_null(link_between(blocks, "b1/nvswitch", "n1/gpu-0"));
    ty_cluster_free(blocks);
    ty_cluster_free(c);
}

/* ---- SimGrid ------------------------------------------------------------------------------- */

static double latency_between(const ty_cluster *c, uint32_t a, uint32_t b)
{
    ty_path path = {0};
    double latency;

    cr_assert_eq(ty_cluster_path(c, a, b, &path, NULL), TY_OK);
    latency = path.latency_s;
    ty_path_clear(&path);
    return latency;
}

/* Links used by several routes, as in SimGrid's small_platform: every route has the latency and
 * bandwidth of its links. */
Test(import_forms, simgrid_links_in_several_places)
{
    static const struct {
        uint32_t from, to;
        double latency_s, bandwidth_bytes_per_s;
    } rows[] = {{0, 1, 3e-3, 10e6}, {0, 2, 4e-3, 5e6}, {1, 2, 5e-3, 5e6}};
    ty_import_notes notes = {0};
    ty_cluster *c = sample_import(DATA "platform-shared.xml", NULL, &notes);

    cr_assert_eq(ty_cluster_host_count(c), 3);
    cr_assert_float_eq(ty_cluster_device_type(c, 0)->peak_fp32_flop_per_s, 50e6, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_float_eq(latency_between(c, rows[i].from, rows[i].to), rows[i].latency_s, 1e-9);
        cr_assert_float_eq(bandwidth_between(c, rows[i].from, rows[i].to),
                           rows[i].bandwidth_bytes_per_s, 1);
    }
    cr_assert_not_null(strstr(notes.text, "1 routes have links that lie elsewhere"), "%s",
                       notes.text);
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

/* One link between any two of three cabinets, as in griffon and Grid'5000. */
Test(import_forms, simgrid_one_link_among_clusters)
{
    ty_cluster *c = sample_import(DATA "platform-cabinets.xml", NULL, NULL);

    cr_assert_eq(ty_cluster_host_count(c), 9);
    cr_assert_float_eq(latency_between(c, 0, 3), 3 * 24e-6, 1e-9);
    cr_assert_float_eq(latency_between(c, 3, 5), 3 * 24e-6, 1e-9);
    cr_assert_float_eq(latency_between(c, 0, 8), 3 * 24e-6, 1e-9);
    ty_cluster_free(c);
}

/* Routes that would be shorter in a graph of their links, as in small_platform: each is drawn
 * separately. tests/simulate/test_platforms_read.c compares every host's routes with libsimgrid. */
Test(import_forms, simgrid_routes_that_no_graph_has)
{
    ty_import_notes notes = {0};
    ty_cluster *c = sample_import(DATA "platform-full.xml", NULL, &notes);

    cr_assert_not_null(strstr(notes.text, "no graph of the links has all routes: each of the 6"),
                       "%s", notes.text);
    cr_assert_null(strstr(notes.text, "not those of the platform"), "%s", notes.text);
    cr_assert_float_eq(latency_between(c, 1, 2), 32e-3, 1e-9); /* via oak it would be 5.1 ms */
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

/* A different return route cannot be drawn, which is reported. */
Test(import_forms, simgrid_ways_back)
{
    static const char text[] =
        "<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"><host id=\"a\" speed=\"1Gf\"/>"
        "<host id=\"b\" speed=\"1Gf\"/><link id=\"1\" bandwidth=\"1MBps\" latency=\"10ms\"/>"
        "<link id=\"2\" bandwidth=\"1MBps\" latency=\"10ms\"/>"
        "<route src=\"b\" dst=\"a\" symmetrical=\"NO\"><link_ctn id=\"1\"/></route>"
        "<route src=\"a\" dst=\"b\" symmetrical=\"NO\"><link_ctn id=\"1\"/><link_ctn id=\"2\"/>"
        "</route></zone></platform>";
    ty_import_notes notes = {0};
    ty_cluster *c = NULL;

    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "text", NULL, &c, &notes, NULL), TY_OK);
    cr_assert_not_null(strstr(notes.text, "1 of these are not those of the platform"), "%s",
                       notes.text);
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

Test(import_forms, simgrid_refused_with_a_reason)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Vivaldi\">"
         "<peer id=\"p\" speed=\"1Gf\"/></zone></platform>",
         "as its coordinates say"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Vivaldi\"><host id=\"a\" "
         "speed=\"1Gf\"/>"
         "<host id=\"b\" speed=\"1Gf\"/></zone></platform>",
         "as long as coordinates say"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"><link id=\"l\" "
         "bandwidth=\"1MBps\" latency=\"2097152s\"/></zone></platform>",
         "found latency=\"2097152s\", expected 0 to 1000 s"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"><cabinet id=\"c\"/></zone>"
         "</platform>",
         "found <cabinet>, expected"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Cluster\"><host id=\"a\" "
         "speed=\"1Gf\"/><link id=\"l\" bandwidth=\"1MBps\"/><link id=\"m\" "
         "bandwidth=\"2MBps\"/><host_link id=\"a\" up=\"l\" down=\"m\"/></zone></platform>",
         "another way up than down"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Cluster\"><link id=\"l\" "
         "bandwidth=\"1MBps\"/><host_link id=\"a\" up=\"l\" down=\"l\"/></zone></platform>",
         "found host_link id=\"a\", expected a host"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Cluster\"><host id=\"a\" "
         "speed=\"1Gf\"/><host_link id=\"a\" up=\"l\" down=\"l\"/></zone></platform>",
         "found host_link up=\"l\", expected a link"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"WIFI\"/></platform>",
         "a cell that all share"},
        {"<platform version=\"3\"><AS id=\"z\" routing=\"Full\"/></platform>", "expected 4 or 4.1"},
        {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"><host id=\"a\" speed=\"1Gf\"/>"
         "<host id=\"b\" speed=\"1Gf\"/></zone></platform>",
         "all others"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_cluster_import_text(rows[i].text, strlen(rows[i].text), "platform.xml",
                                            NULL, &c, NULL, &error),
                     TY_EPARSE, "row %zu", i);
        cr_assert_not_null(strstr(error.message, rows[i].part), "row %zu: %s", i, error.message);
    }
}

/* ---- hwloc ---------------------------------------------------------------------------------- */

static void check_processors(ty_cluster *c, const char *direct, const char *up, double bandwidth)
{
    const struct {
        const char *a, *b, *kind;
    } rows[] = {
        {"host-0/gpu-0", "host-0/gpu-1", direct},
        {"host-0/gpu-0", "host-0/package-0", up},
        {"host-0/gpu-1", "host-0/package-0", up},
        {"host-0/gpu-2", "host-0/package-1", up},
    };

    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        cr_assert_null(strstr(ty_cluster_vertex_name(c, v), "nvswitch"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t found = 0;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            found += strcmp(ty_cluster_vertex_name(c, link->from), rows[i].a) == 0 &&
                     strcmp(ty_cluster_vertex_name(c, link->to), rows[i].b) == 0 &&
                     strcmp(link->kind, rows[i].kind) == 0 &&
                     fabs(link->bandwidth_bytes_per_s - bandwidth) < 1;
        }
        cr_assert_eq(found, 1, "%s - %s", rows[i].a, rows[i].b);
    }
    cr_assert_geq(bandwidth_between(c, 0, 1), bandwidth);
    ty_cluster_free(c);
}

/* POWER9 with three NVLinks per pair, POWER8 with two of the previous generation: GPUs are linked
 * to each other and to their processor; there is no switch. */
Test(import_forms, hwloc_nvlinks_to_processors)
{
    static const char *const changes[][2] = {
        {"10de:1db1", "10de:15f9"}, {"V100", "P100"}, {"75000", "40000"}};
    char *text = NULL;
    size_t length;
    ty_cluster *c = NULL;
    ty_error error = {0};

    check_processors(sample_import(DATA "hwloc-power9.xml", NULL, NULL), "nvlink2-direct",
                     "nvlink2", 60e9);
    cr_assert_eq(ty_file_read(DATA "hwloc-power9.xml", 0, &text, &length, &error), TY_OK, "%s",
                 error.message);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        for (char *at = text; (at = strstr(at, changes[i][0])) != NULL;)
            memcpy(at, changes[i][1], strlen(changes[i][1]));
    cr_assert_eq(ty_cluster_import_text(text, length, "power8.xml", NULL, &c, NULL, &error), TY_OK,
                 "%s", error.message);
    check_processors(c, "nvlink1-direct", "nvlink1", 36e9);
    ty_free(text);
}
