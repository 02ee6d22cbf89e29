/* Importers: small files in tests/topologies/data against graphs drawn by hand, and all real files
 * next to the source tree, if they are there. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define DATA TY_TEST_SOURCE "/data/"
#define REAL TY_SHARED_DATA "/topologies/"

static uint32_t count_kind(const ty_cluster *c, ty_vertex_kind kind)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        count += ty_cluster_vertex_kind(c, v) == kind;
    return count;
}

static double path_bandwidth(const ty_cluster *c, uint32_t a, uint32_t b)
{
    ty_path path = {0};
    double bandwidth;

    cr_assert_eq(ty_cluster_path(c, a, b, &path, NULL), TY_OK);
    bandwidth = path.bandwidth_bytes_per_s;
    ty_path_clear(&path);
    return bandwidth;
}

/* ---- Real files -------------------------------------------------------------------------- */

typedef struct real_file {
    const char *path;
    ty_cluster_import_options options;
    ty_status status;
    uint32_t devices, hosts;
    const char *format, *device;
    double nearest;   /* bandwidth from device 0 to 1; 0: not checked */
    const char *part; /* of the message, if it is refused */
} real_file;

static void check_real(const real_file *row)
{
    char path[400];
    ty_cluster *c = NULL;
    ty_import_notes notes = {0};
    ty_error error = {0};
    ty_status status;

    snprintf(path, sizeof path, "%s%s", REAL, row->path);
    if (!ty_file_exists(path))
        cr_skip_test("%s is not there", path);
    status = ty_cluster_import(path, &row->options, &c, &notes, &error);
    cr_assert_eq(status, row->status, "%s: %s: %s", row->path, ty_status_name(status),
                 error.message);
    if (status != TY_OK) {
        cr_assert_not_null(strstr(error.message, row->part), "%s: %s lacks %s", row->path,
                           error.message, row->part);
        return;
    }
    cr_assert_str_eq(notes.format, row->format, "%s", row->path);
    cr_assert_eq(ty_cluster_device_count(c), row->devices, "%s: %u devices", row->path,
                 ty_cluster_device_count(c));
    cr_assert_eq(ty_cluster_host_count(c), row->hosts, "%s: %u hosts", row->path,
                 ty_cluster_host_count(c));
    if (row->device != NULL)
        cr_assert_str_eq(ty_cluster_device_type(c, 0)->name, row->device, "%s", row->path);
    if (row->nearest > 0) {
        double found = path_bandwidth(c, 0, 1);
        cr_assert(fabs(found - row->nearest) < 1e-6 * row->nearest, "%s: %g between 0 and 1",
                  row->path, found);
    }
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

Test(import_real, nccl)
{
    static const real_file rows[] = {
        {"nccl-xml/oci-h100x8-full-dump.xml", {0}, TY_OK, 8, 1, "nccl", "h100-sxm", 370.8e9, NULL},
        {"nccl-xml/oci-h100x8-full-dump.xml",
         {.hosts = 4},
         TY_OK,
         32,
         4,
         "nccl",
         "h100-sxm",
         370.8e9,
         NULL},
        {"nccl-xml/azure-ncv4-a100pcie.xml",
         {0},
         TY_OK,
         4,
         1,
         "nccl",
         "a100-pcie-80gb",
         12e9,
         NULL},
        {"nccl-xml/azure-ndv4-a100x8.xml",
         {.host = "ND96asr_v4"},
         TY_OK,
         8,
         1,
         "nccl",
         "a100-sxm4-40gb",
         240e9,
         NULL},
        {"nccl-xml/azure-ndv4-a100x8.xml", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "--host"},
        {"nccl-xml/azure-ndv2-v100x8.xml",
         {.host = "ND40rs_v2"},
         TY_OK,
         8,
         1,
         "nccl",
         "v100-sxm2-32gb",
         24e9,
         NULL},
        {"nccl-xml/aws-p4d-a100x8.xml",
         {.host = "p4d.24xlarge"},
         TY_OK,
         8,
         1,
         "nccl",
         "a100-sxm4-40gb",
         240e9,
         NULL},
        {"nccl-xml/aws-g5-48xl.xml", {.host = "g5.48xlarge"}, TY_OK, 8, 1, "nccl", "a10g", 0, NULL},
        {"nccl-xml/aws-g5-48xl.xml", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "names no GPU"},
        {"nccl-xml/nemo-aws-p5.xml",
         {.host = "p5.48xlarge"},
         TY_OK,
         8,
         1,
         "nccl",
         "h100-sxm",
         370.8e9,
         NULL},
        {"nccl-xml/oci-a100-flattened.xml",
         {.host = "dgx-a100-40gb"},
         TY_OK,
         8,
         1,
         "nccl",
         "a100-sxm4-40gb",
         240e9,
         NULL},
        {"nccl-xml/azure-ncv4-graph.xml",
         {0},
         TY_EUNSUPPORTED,
         0,
         0,
         NULL,
         NULL,
         0,
         "NCCL graph file"},
        {"rccl-xml/topo_4p2h.xml", {0}, TY_OK, 8, 1, "nccl", "mi50", 24e9, NULL},
        {"rccl-xml/topo_8p_940.xml", {0}, TY_OK, 8, 1, "nccl", "mi300x", 48e9, NULL},
        {"rccl-xml/topo_16p1h.xml", {0}, TY_OK, 16, 1, "nccl", "mi250-die", 4 * 36e9, NULL},
        {"rccl-xml/topo_8p_rome_4nics.xml", {0}, TY_OK, 8, 1, "nccl", "mi100", 24e9, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

Test(import_real, smi)
{
    static const real_file rows[] = {
        {"nvidia-smi-topo/dgx1-v100x8.txt",
         {.host = "dgx1-v100"},
         TY_OK,
         8,
         1,
         "smi",
         "v100-sxm2-16gb",
         20e9,
         NULL},
        {"nvidia-smi-topo/dgx1-v100x8.txt", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "--device"},
        {"nvidia-smi-topo/gcp-a3ultra-h200x8.txt",
         {.host = "a3-ultragpu-8g", .hosts = 8},
         TY_OK,
         64,
         8,
         "smi",
         "h200-sxm",
         370.8e9,
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

Test(import_real, slurm)
{
    static const real_file rows[] = {
        {"slurm/topology-tree-1.conf",
         {.host = "dgx-a100"},
         TY_OK,
         80000,
         10000,
         "slurm",
         "a100-sxm4-80gb",
         240e9,
         NULL},
        {"slurm/topology-tree-1.conf",
         {.host = "dgx-a100", .root = "grp10"},
         TY_OK,
         3200,
         400,
         "slurm",
         "a100-sxm4-80gb",
         240e9,
         NULL},
        {"slurm/topology-tree-3.conf",
         {.host = "p100-server"},
         TY_OK,
         1600,
         400,
         "slurm",
         "p100-pcie-16gb",
         12e9,
         NULL},
        {"slurm/topology-tree-3.conf", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "names no devices"},
        {"slurm/topology-tree-6.conf",
         {.host = "dgx-a100"},
         TY_EINVAL,
         0,
         0,
         NULL,
         NULL,
         0,
         "3 switches with nothing above them (spineA, spineB, leafC)"},
        {"slurm/topology-tree-6.conf",
         {.host = "dgx-a100", .root = "spineB"},
         TY_OK,
         128,
         16,
         "slurm",
         "a100-sxm4-80gb",
         240e9,
         NULL},
        {"slurm/topology-block.conf",
         {.host = "dgx-h100"},
         TY_OK,
         256,
         32,
         "slurm",
         "h100-sxm",
         370.8e9,
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

Test(import_real, hwloc)
{
    static const real_file rows[] = {
        {"hwloc/nvidiaDGX2-v2.xml", {0}, TY_OK, 16, 1, "hwloc", "v100-sxm3-32gb", 120e9, NULL},
        {"hwloc/nvidiaDGX2-v3.xml", {0}, TY_OK, 16, 1, "hwloc", "v100-sxm3-32gb", 120e9, NULL},
        {"hwloc/nvidia-dgx-gb10.xml", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "names no GPU"},
        {"hwloc/nvidia-dgx-gb10.xml",
         {.host = "dgx-spark", .hosts = 2},
         TY_OK,
         2,
         2,
         "hwloc",
         "gb10",
         0,
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

Test(import_real, ibnetdiscover)
{
    static const real_file rows[] = {
        {"ibnetdiscover/dgx-h100-ndr-fabric.out",
         {.host = "dgx-h100"},
         TY_OK,
         976,
         122,
         "ibnetdiscover",
         "h100-sxm",
         370.8e9,
         NULL},
        {"ibnetdiscover/hdr-small-synthetic.txt",
         {.host = "NC24s_v3"},
         TY_OK,
         40,
         10,
         "ibnetdiscover",
         "v100-pcie-16gb",
         12e9,
         NULL},
        {"ibnetdiscover/hdr-small-synthetic.txt", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "--host"},
        {"ibnetdiscover/bad.out",
         {.host = "dgx-h100"},
         TY_EPARSE,
         0,
         0,
         NULL,
         NULL,
         0,
         "found no switch"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

Test(import_real, simulators)
{
    static const real_file rows[] = {
        {"simgrid/cluster_backbone.xml",
         {0},
         TY_OK,
         100,
         100,
         "simgrid",
         "simgrid-1Gf",
         125e6,
         NULL},
        {"simgrid/cluster_fat_tree.xml",
         {.device = "t4"},
         TY_OK,
         16,
         16,
         "simgrid",
         "t4",
         125e6,
         NULL},
        {"simgrid/cluster_torus.xml", {0}, TY_OK, 12, 12, "simgrid", "simgrid-1Gf", 125e6, NULL},
        {"simgrid/data_center.xml",
         {0},
         TY_OK,
         120,
         120,
         "simgrid",
         "simgrid-5.2297Gf",
         125e6,
         NULL},
        {"astra-sim/8nodes.topo", {0}, TY_EUNSUPPORTED, 0, 0, NULL, NULL, 0, "htsim"},
        {"astra-sim/system-HGX-H100-validated.json",
         {0},
         TY_EUNSUPPORTED,
         0,
         0,
         NULL,
         NULL,
         0,
         "ASTRA-sim system file"},
        {"astra-sim/system-dgx_v100_8gpu.json",
         {0},
         TY_EUNSUPPORTED,
         0,
         0,
         NULL,
         NULL,
         0,
         "ASTRA-sim system file"},
        {"astra-sim/system-hgx_h100_16gpu.json",
         {0},
         TY_EUNSUPPORTED,
         0,
         0,
         NULL,
         NULL,
         0,
         "ASTRA-sim system file"},
        {"astra-sim/system-tpu_v3_32_2dtorus.json",
         {0},
         TY_EUNSUPPORTED,
         0,
         0,
         NULL,
         NULL,
         0,
         "ASTRA-sim system file"},
        {"calculon/a100_80g.json", {0}, TY_EUNSUPPORTED, 0, 0, NULL, NULL, 0, "Calculon"},
        {"calculon/h100_80g_nvl8.json", {0}, TY_EUNSUPPORTED, 0, 0, NULL, NULL, 0, "Calculon"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_real(&rows[i]);
}

/* The catalogue's DGX-1 was drawn from this file: both agree on every pair. */
Test(import_real, smi_gives_the_dgx1_of_the_catalogue)
{
    /* the catalogue lists GPUs along the ring */
    static const uint32_t order[8] = {0, 3, 2, 1, 5, 6, 7, 4};
    const char *path = REAL "nvidia-smi-topo/dgx1-v100x8.txt";
    ty_cluster *drawn = sample_open("dgx1-v100"), *imported;

    if (!ty_file_exists(path))
        cr_skip_test("%s is not there", path);
    imported = sample_import(path, &(ty_cluster_import_options){.host = "dgx1-v100"}, NULL);
    for (uint32_t a = 0; a < 8; a++)
        for (uint32_t b = 0; b < 8; b++) {
            double x = path_bandwidth(drawn, a, b);
            double y = path_bandwidth(imported, order[a], order[b]);
            /* the processors of a DGX-1 are Broadwell; nvidia-smi does not print that */
            if (x < 11e9)
                x = 10e9;
            cr_assert(a == b || fabs(x - y) < 1e-6 * x, "%u %u: %g and %g", a, b, x, y);
        }
    cr_assert_eq(count_kind(imported, TY_VERTEX_NIC), 4);
    cr_assert_eq(count_kind(imported, TY_VERTEX_DEVICE_SWITCH), 6);
    ty_cluster_free(drawn);
    ty_cluster_free(imported);
}

/* ---- Small files, drawn by hand --------------------------------------------------------- */

static const ty_link_edge *link_between(const ty_cluster *c, const char *a, const char *b)
{
    for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
        const ty_link_edge *link = ty_cluster_link(c, l);
        const char *x = ty_cluster_vertex_name(c, link->from);
        const char *y = ty_cluster_vertex_name(c, link->to);
        if ((strcmp(x, a) == 0 && strcmp(y, b) == 0) || (strcmp(x, b) == 0 && strcmp(y, a) == 0))
            return link;
    }
    return NULL;
}

/* A link, or the lack of one (kind NULL). */
typedef struct wanted_link {
    const char *a, *b, *kind;
    double bandwidth;
} wanted_link;

static void check_links(const ty_cluster *c, const wanted_link *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ty_link_edge *link = link_between(c, rows[i].a, rows[i].b);
        cr_assert_eq(link != NULL, rows[i].kind != NULL, "%s - %s", rows[i].a, rows[i].b);
        if (link == NULL)
            continue;
        cr_assert_str_eq(link->kind, rows[i].kind, "%s - %s", rows[i].a, rows[i].b);
        cr_assert(fabs(link->bandwidth_bytes_per_s - rows[i].bandwidth) < 1e-6 * rows[i].bandwidth,
                  "%s - %s: %g", rows[i].a, rows[i].b, link->bandwidth_bytes_per_s);
    }
}
#define CHECK_LINKS(c, rows) check_links(c, rows, sizeof(rows) / sizeof(rows)[0])

Test(import, nccl)
{
    static const wanted_link rows[] = {
        {"host-0/cpu-0", "host-0", "upi-sapphire-rapids", 22e9},
        {"host-0/pci-0000:01:00.0", "host-0/cpu-0", "pcie5-bridge", 48e9},
        {"host-0/gpu-0", "host-0/pci-0000:01:00.0", "pcie5", 24e9}, /* eight PCIe lanes */
        {"host-0/gpu-1", "host-0/cpu-1", "pcie5", 48e9},
        {"host-0/gpu-0", "host-0/nvswitch", "nvlink4", 9 * 20.6e9},
        {"host-0/gpu-1", "host-0/nvswitch", "nvlink4", 9 * 20.6e9},
        {"host-0/gpu-0", "host-0/gpu-1", NULL, 0},
        {"host-0/nic-0", "host-0/pci-0000:01:00.0", "pcie4-bridge", 24e9},
        {"host-0/nic-0", "fabric", "ndr400", 50e9}, /* two ports of 200 */
    };
    ty_cluster *c = sample_import(DATA "nccl.xml", NULL, NULL);
    ty_cluster *opened = sample_open(DATA "nccl.xml");
    char *a = sample_json(c), *b = sample_json(opened);

    CHECK_LINKS(c, rows);
    cr_assert_str_eq(a, b, "opening is importing without options");
    ty_free(a);
    ty_free(b);
    ty_cluster_free(c);
    ty_cluster_free(opened);
}

Test(import, smi)
{
    static const wanted_link rows[] = {
        {"host-0/gpu-0", "host-0/gpu-1", "nvlink3-direct", 80e9},
        {"host-0/gpu-0", "host-0/pcie-0", "pcie4", 24e9},
        {"host-0/nic-0", "host-0/pcie-0", "pcie4-bridge", 24e9},
        {"host-0/gpu-1", "host-0/root-0", "pcie4", 24e9},
        {"host-0/pcie-0", "host-0/root-0", "pcie4-bridge", 24e9},
        {"host-0/root-0", "host-0/numa-0", "pcie4-bridge", 24e9},
        {"host-0/numa-0", "host-0", "upi-skylake", 10e9},
        {"host-0/gpu-2", "host-0", "pcie4", 24e9},
        {"host-0/nic-0", "fabric", "hdr200", 25e9},
    };
    ty_import_notes notes = {0};
    ty_cluster *c =
        sample_import(DATA "smi.txt", &(ty_cluster_import_options){.host = "dgx-a100"}, &notes);

    CHECK_LINKS(c, rows);
    cr_assert_not_null(strstr(notes.text, "hdr200, as of dgx-a100"));
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

Test(import, slurm)
{
    static const wanted_link rows[] = {
        {"rack1", "top", "eth25-trunk", 3 * 2.942e9 / 2},
        {"rack2", "top", "eth25-trunk", 4 * 2.942e9 / 2},
        {"a02/nic-0", "rack1", "eth25", 2.942e9},
        {"login/nic-0", "rack2", "eth25", 2.942e9},
    };
    ty_import_notes notes = {0};
    ty_cluster *c = sample_import(
        DATA "topology.conf",
        &(ty_cluster_import_options){.host = "p100-server", .oversubscription = 2}, &notes);

    CHECK_LINKS(c, rows);
    cr_assert_eq(ty_cluster_device_count(c), 28);
    cr_assert_not_null(strstr(notes.text, "LinkSpeed"));
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

Test(import, hwloc)
{
    static const wanted_link rows[] = {
        {"host-0/package-0", "host-0", "infinity-fabric", 16e9},
        {"host-0/bridge-0", "host-0/package-0", "pcie3-bridge", 12e9},
        {"host-0/gpu-0", "host-0/bridge-0", "pcie3", 12e9},
        {"host-0/gpu-1", "host-0/bridge-0", "pcie3", 6e9},
        {"host-0/gpu-0", "host-0/gpu-1", "nvlink2-direct", 40e9},
        {"host-0/nic-0", "fabric", "edr100", 12.5e9},
    };
    ty_cluster *c = sample_import(
        DATA "hwloc.xml", &(ty_cluster_import_options){.host = "dgx1-v100", .hosts = 2}, NULL);

    CHECK_LINKS(c, rows);
    cr_assert_eq(ty_cluster_host_count(c), 2);
    cr_assert_str_eq(ty_cluster_device_type(c, 3)->name, "v100-sxm2-16gb");
    ty_cluster_free(c);
}

Test(import, ibnetdiscover)
{
    static const wanted_link rows[] = {
        {"leaf-1:MQM8700/U1", "spine:MQM8700/U1", "hdr200-trunk", 50e9}, /* two cables */
        {"leaf-2:MQM8700/U1", "spine:MQM8700/U1", "hdr200-trunk", 25e9},
        {"alpha/nic-0", "leaf-1:MQM8700/U1", "hdr200", 25e9},
        {"beta/nic-0", "leaf-1:MQM8700/U1", "hdr200", 25e9},
        {"gamma/nic-0", "leaf-2:MQM8700/U1", "hdr200", 12.5e9},
    };
    ty_import_notes notes = {0};
    ty_cluster *c = sample_import(DATA "ibnetdiscover.txt",
                                  &(ty_cluster_import_options){.host = "NC24s_v3"}, &notes);

    CHECK_LINKS(c, rows);
    cr_assert_eq(ty_cluster_host_count(c), 3);
    cr_assert_not_null(strstr(notes.text, "1 adapters do not say"));
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
}

Test(import, simgrid_routes_become_a_graph)
{
    ty_cluster *c = sample_import(DATA "platform.xml", NULL, NULL);
    ty_path path = {0};

    cr_assert_eq(ty_cluster_device_count(c), 3);
    cr_assert_eq(count_kind(c, TY_VERTEX_SWITCH), 1); /* junction of la, lb and lc */
    cr_assert(fabs(ty_cluster_device_type(c, 0)->peak_fp32_flop_per_s - 200e9) < 1);
    cr_assert_eq(ty_cluster_path(c, 1, 2, &path, NULL), TY_OK);
    cr_assert(fabs(path.latency_s - 1.01e-3) < 1e-12 &&
                  fabs(path.bandwidth_bytes_per_s - 125e6) < 1,
              "%g %g", path.latency_s, path.bandwidth_bytes_per_s);
    ty_path_clear(&path);
    ty_cluster_free(c);
}

/* Two levels: four leaves of two hosts, each leaf linked to both cores. */
Test(import, simgrid_fat_tree)
{
    ty_cluster *c = sample_import(DATA "fat-tree.xml", NULL, NULL);
    double flow;

    cr_assert_eq(ty_cluster_device_count(c), 8);
    cr_assert_eq(count_kind(c, TY_VERTEX_SWITCH), 4 + 2);
    cr_assert_eq(ty_cluster_link_count(c), 8 + 8 + 4 * 2); /* devices, hosts, leaves */
    cr_assert_eq(ty_cluster_bisection(c, &flow, NULL), TY_OK);
    cr_assert(fabs(flow - 4e9) < 1, "%g", flow);
    ty_cluster_free(c);
}

/* Links of a dragonfly's routers between two of them: 0 to 2 within a group. */
static uint32_t dragonfly_hops(uint32_t a, uint32_t b)
{
    enum { ROUTERS = 3 }; /* of a chassis; two chassis are a group */
    return (a / ROUTERS != b / ROUTERS) + (a % ROUTERS != b % ROUTERS);
}

/* Three groups of two chassis of three routers of two hosts. SimGrid 3.32 has the same latencies
 * except for routes that begin outside a group's first chassis and stay in the group, where its
 * router loses track of the chassis. */
Test(import, simgrid_dragonfly)
{
    enum { GROUP = 6, NODES = 2 };
    ty_cluster *c = sample_import(DATA "dragonfly.xml", NULL, NULL);
    uint32_t devices = ty_cluster_device_count(c), fat = 0;

    cr_assert_eq(devices, 36);
    cr_assert_eq(count_kind(c, TY_VERTEX_SWITCH), 18);
    /* devices, hosts; per group: two triangles and three pairs; one link between two groups */
    cr_assert_eq(ty_cluster_link_count(c), 36 + 36 + 3 * (6 + 3) + 3);
    for (uint32_t i = 0; i < ty_cluster_link_count(c); i++)
        fat += fabs(ty_cluster_link(c, i)->bandwidth_bytes_per_s - 4 * 125e6) < 1;
    cr_assert_eq(fat, 3, "four lines between two groups");
    for (uint32_t a = 0; a < devices; a++)
        for (uint32_t b = 0; b < devices; b++) {
            uint32_t from = a / NODES, to = b / NODES, hops;
            ty_path path = {0};
            if (a == b)
                continue;
            hops = from / GROUP == to / GROUP ? dragonfly_hops(from % GROUP, to % GROUP)
                                              : dragonfly_hops(from % GROUP, to / GROUP) + 1 +
                                                    dragonfly_hops(from / GROUP, to % GROUP);
            cr_assert_eq(ty_cluster_path(c, a, b, &path, NULL), TY_OK);
            cr_assert(fabs(path.latency_s - (hops + 2) * 50e-6) < 1e-12, "%u to %u: %g", a, b,
                      path.latency_s);
            ty_path_clear(&path);
        }
    ty_cluster_free(c);
}

/* topology.yaml gives the same cluster as topology.conf. */
Test(import, slurm_yaml)
{
    ty_cluster_import_options options = {.host = "dgx-a100"};
    ty_import_notes notes = {0};
    ty_cluster *conf = sample_import(DATA "topology.conf", &options, NULL);
    ty_cluster *yaml = sample_import(DATA "topology.yaml", &options, &notes);
    double x, y;

    cr_assert_str_eq(notes.format, "slurm-yaml");
    cr_assert_not_null(strstr(notes.text, "fabric is read"), "%s", notes.text);
    cr_assert_eq(ty_cluster_host_count(yaml), 6);
    cr_assert_eq(ty_cluster_host_count(conf), 7); /* one more, "login" */
    cr_assert_eq(count_kind(yaml, TY_VERTEX_SWITCH), count_kind(conf, TY_VERTEX_SWITCH));
    options.root = "rack1";
    ty_cluster_free(conf);
    ty_cluster_free(yaml);
    ty_import_notes_clear(&notes);
    conf = sample_import(DATA "topology.conf", &options, NULL);
    yaml = sample_import(DATA "topology.yaml", &options, NULL);
    cr_assert_eq(ty_cluster_bisection(conf, &x, NULL), TY_OK);
    cr_assert_eq(ty_cluster_bisection(yaml, &y, NULL), TY_OK);
    cr_assert(x > 0 && fabs(x - y) < 1e-6 * x, "%g and %g", x, y);
    ty_cluster_free(conf);
    ty_cluster_free(yaml);
}

Test(import, slurm_yaml_blocks)
{
    static const char text[] = "- topology: flat\n  flat: true\n"
                               "- topology: b\n  block:\n    block_sizes: [2]\n    blocks:\n"
                               "    - {block: x, nodes: \"n[1-2]\"}\n    - {block: y, nodes: n3}\n";
    ty_cluster_import_options options = {.host = "p100-server"};
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert_eq(
        ty_cluster_import_text(text, sizeof text - 1, "b.yaml", &options, &c, NULL, &error), TY_OK,
        "%s", error.message);
    cr_assert_eq(ty_cluster_host_count(c), 3);
    cr_assert_eq(count_kind(c, TY_VERTEX_SWITCH), 3); /* two blocks and their connection */
    ty_cluster_free(c);
}

Test(import, refuses_bad_slurm_yaml)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"- topology: a\n  flat: true\n", "flat says nothing of the network"},
        {"- topology: a\n  tree: {switchs: []}\n", "did you mean \"switches\""},
        {"- topology: a\n  tree: {switches: []}\n", "found no switches"},
        {"- topology: a\n- - to\n", "b.yaml:2: found no mapping, expected one of topology"},
        {"- to\n- topology: a\n", "b.yaml:1: found no mapping"},
        {"- topology: a\n  tree: [switches]\n", "b.yaml:2: found no mapping"},
        {"- topology: a\n  block: b\n", "b.yaml:2: found no mapping, expected one of blocks"},
        {"- topology: a\n  tree: {switches: [{switch: s, nodes: n1}, {switch: s, nodes: n2}]}\n",
         "found s a second time"},
        {"- topology: a\n  tree: {switches: [{switch: s, nodes: n1, nodes: n2}]}\n",
         "found key \"nodes\" a second time"},
        {"- topology: a\n  tree: {switches: [{switch: s, children: t}]}\n", "found switch t"},
        {"- topology: a\n  tree: {switches: [{nodes: t}]}\n", "without the name"},
        {"- topology: a\n  tree: {switches: [{switch: s, nodes: \"n[1-\"}]}\n", "b.yaml:2"},
    };
    ty_cluster_import_options options = {.host = "p100-server"};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_cluster_import_text(rows[i].text, strlen(rows[i].text), "b.yaml", &options,
                                            &c, NULL, &error),
                     TY_EPARSE, "%s", rows[i].text);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
    }
}

/* ---- Refusals ---------------------------------------------------------------------- */

static const struct {
    const char *text;
    ty_status status;
    const char *part;
} bad_texts[] = {
    {"", TY_EPARSE, "none of the formats"},
    {"hello\n", TY_EPARSE, "none of the formats"},
    {"<system version=\"1\">", TY_EPARSE, "malformed XML"},
    {"<system version=\"1\"/>", TY_EINVAL, "names no GPU"},
    {"<!DOCTYPE s [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><system>&b;</system>", TY_EPARSE,
     "declaration of an entity"},
    {"<system><cpu><pci class=\"0x030200\"><gpu dev=\"0\" sm=\"70\"><nvlink target=\"x\" "
     "count=\"-1\"/></gpu></pci></cpu></system>",
     TY_EPARSE, "count of \"-1\""},
    {"<graphs version=\"1\"/>", TY_EUNSUPPORTED, "graph file"},
    {"<topology version=\"1.0\"/>", TY_EPARSE, "hwloc 2 or 3"},
    {"<platform version=\"3\"/>", TY_EPARSE, "expected 4"},
    {"<platform version=\"4.1\"><cluster id=\"c\" prefix=\"n\" radical=\"0-99999999999\" "
     "speed=\"1Gf\" bw=\"1Bps\" lat=\"0\"/></platform>",
     TY_EPARSE, "radical"},
    {"<platform version=\"4.1\"><cluster id=\"c\" prefix=\"n\" radical=\"99999999999999999999,3\" "
     "speed=\"1Gf\" bw=\"1Bps\" lat=\"0\"/></platform>",
     TY_EPARSE, "radical"},
    {"<platform version=\"4.1\"><cluster id=\"c\" prefix=\"n\" radical=\"0-9\" speed=\"1Gf\" "
     "bw=\"555555555GBps\" lat=\"1us\"/></platform>",
     TY_EPARSE, "5.55556e+18 bytes/s"},
    {"<platform version=\"4.1\"><host id=\"a\" speed=\"1Gf\"/><host id=\"a\" speed=\"1Gf\"/>"
     "</platform>",
     TY_EPARSE, "second time"},
    {"<platform version=\"4.1\"><host id=\"a\" speed=\"1nan\"/></platform>", TY_EPARSE, "speed"},
    {"\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tSYS\t X \n", TY_EPARSE, "different seen from each other"},
    {"\tGPU0\tGPU1\nGPU0\t X \tPIX\n", TY_EPARSE, "no row GPU1"},
    {"\tGPU0\tGPU1\nGPU0\t X \tFAR\n", TY_EPARSE, "\"FAR\" between GPU0 and GPU1"},
    {"SwitchName=a Nodes=n[3-1]\n", TY_EPARSE, "ranges from low to high"},
    {"SwitchName=a Nodes=n[0-99999999]\n", TY_EPARSE, "fewer names"},
    {"SwitchName=a Nodes=n1 Speed=3\n", TY_EPARSE, "found key \"Speed\""},
    {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", TY_EPARSE, "below itself"},
    {"SwitchName=a Switches=b\n", TY_EPARSE, "switch b"},
    {"SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n", TY_EPARSE, "expected one place"},
    {"SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", TY_EPARSE, "second time"},
    {"Switch\t2 \"S-1\" # \"a\"\n[x]\n", TY_EPARSE, "malformed port"},
    {"Switch\t2 \"S-1\" # \"a\"\n[1]\t\"S-2\"[1] # \"b\" lid 1 4xHDR\n", TY_EPARSE, "S-2"},
    {"Switch\t2 \"S-1\" # \"a\"\n[1]\t\"H-2\"[1] # \"b\" lid 1\n", TY_EPARSE, "4xNDR"},
    {"topology: [ Ring ]\nnpus_count: [ 4 ]\n", TY_EUNSUPPORTED, "an ASTRA-sim network"},
    {"- topology: &a t\n  cluster_default: *a\n  tree:\n    switches: []\n", TY_EPARSE, "alias"},
    {"- topology: t\n  tree:\n    switches: [\n", TY_EPARSE, "malformed YAML"},
};

Test(import, refuses_bad_files)
{
    for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
        const char *text = bad_texts[i].text;
        bool needs_host = bad_texts[i].status != TY_EINVAL;
        ty_cluster_import_options options = {.host = needs_host ? "p100-server" : NULL};
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_status status =
            ty_cluster_import_text(text, strlen(text), "bad", &options, &c, NULL, &error);
        cr_assert_eq(status, bad_texts[i].status, "%s: %s: %s", text, ty_status_name(status),
                     error.message);
        cr_assert_null(c);
        cr_assert_not_null(strstr(error.message, bad_texts[i].part), "%s: \"%s\" lacks \"%s\"",
                           text, error.message, bad_texts[i].part);
    }
}

/* Each number is valid, their product is not. */
Test(import, refuses_a_device_faster_than_files_may_say)
{
    static const char text[] = "<platform version=\"4.1\"><cluster id=\"c\" prefix=\"n\" "
                               "radical=\"0-9\" speed=\"1e18f\" core=\"8\" bw=\"1GBps\" "
                               "lat=\"1us\"/></platform>";
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_import_text(text, sizeof text - 1, "p.xml", NULL, &c, NULL, &error),
                 TY_EPARSE);
    cr_assert_str_eq(error.message,
                     "p.xml: found peak_fp32_flop_per_s of 8e+18, expected 1 to 1e+18");
}

Test(import, refuses_bad_options)
{
    static const struct {
        ty_cluster_import_options options;
        const char *part;
    } rows[] = {
        {{.host = "dgxa100"}, "did you mean \"dgx-a100\""},
        {{.device = "h10"}, "a device of the catalogue"},
        {{.format = "slurn", .host = "dgx-a100"}, "did you mean \"slurm\""},
        {{.host = "dgx-a100", .oversubscription = 0.5}, "oversubscription"},
        {{.host = "dgx-a100", .root = "rack3"}, "found \"rack3\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_cluster_import(DATA "topology.conf", &rows[i].options, &c, NULL, &error),
                     TY_EINVAL, "%s", error.message);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
    }
}

/* An accepted file survives a round trip: only a bus id is accepted as a bus id. */
Test(import, nccl_refuses_what_is_no_bus_id)
{
    static const char *const busids[] = {"", "0000:02\xef\xbf\xbd.0", "0000:02\xe2\x80\xa8.0",
                                         "gpu 0", "0000:0000:0000:0000:0000:0000:0000"};

    for (size_t i = 0; i < sizeof busids / sizeof busids[0]; i++) {
        ty_text text = {0};
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_text_addf(
            &text,
            "<system version=\"1\"><cpu numaid=\"0\">\n<pci busid=\"%s\" class=\"0x030200\" "
            "vendor=\"0x10de\" device=\"0x2330\"/></cpu></system>",
            busids[i]);
        cr_assert_eq(
            ty_cluster_import_text(text.data, text.length, "n.xml", NULL, &c, NULL, &error),
            TY_EPARSE, "%s: %s", busids[i], error.message);
        cr_assert(strstr(error.message, "n.xml:2: found the bus id '") == error.message, "%s",
                  error.message);
        ty_text_clear(&text);
    }
}

/* Deep nesting is refused long before it could overflow the stack. */
Test(import, refuses_deep_nesting)
{
    static const struct {
        const char *head, *open;
    } rows[] = {
        {"<system><cpu>", "<pci busid=\"a\">"},
        {"<topology version=\"2.0\">", "<object type=\"Bridge\">"},
        {"<platform version=\"4.1\">", "<zone id=\"a\">"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_text_add(&text, rows[i].head);
        for (int d = 0; d < 100000; d++)
            ty_text_add(&text, rows[i].open);
        cr_assert_eq(ty_cluster_import_text(text.data, text.length, "deep", NULL, &c, NULL, &error),
                     TY_EPARSE, "%s: %s", rows[i].head, error.message);
        ty_text_clear(&text);
    }
}

/* ---- Memory ------------------------------------------------------------------------------- */

static ty_status try_with(long allocations, const char *path,
                          const ty_cluster_import_options *options)
{
    ty_cluster *c = NULL;
    ty_import_notes notes = {0};
    ty_status status;

    ty_memory_fail_after(allocations);
    status = ty_cluster_import(path, options, &c, &notes, NULL);
    ty_memory_fail_after(0);
    cr_assert_eq(status == TY_OK, c != NULL, "%s: allocation %ld", path, allocations);
    cr_assert(status == TY_OK || (status == TY_ENOMEM && notes.text == NULL),
              "%s: allocation %ld: %s", path, allocations, ty_status_name(status));
    ty_import_notes_clear(&notes);
    ty_cluster_free(c);
    return status;
}

/* The catalogue is read first; the importers' allocations come last, and each of them is made to
 * fail. */
Test(import, survives_every_failing_allocation)
{
    static const char *const paths[] = {
        DATA "nccl.xml",          DATA "smi.txt",      DATA "topology.conf", DATA "hwloc.xml",
        DATA "ibnetdiscover.txt", DATA "platform.xml", DATA "fat-tree.xml"};
    ty_cluster_import_options options = {.host = "dgx-a100", .hosts = 2};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        long low = 0, high = 1;
        while (try_with(high, paths[i], &options) != TY_OK)
            high *= 2;
        while (high - low > 1) { /* `low` bytes are too few, `high` bytes are enough */
            long middle = low + (high - low) / 2;
            if (try_with(middle, paths[i], &options) == TY_OK)
                high = middle;
            else
                low = middle;
        }
        for (long n = high > 150 ? high - 150 : 1; n < high; n++)
            cr_assert_eq(try_with(n, paths[i], &options), TY_ENOMEM);
    }
}

/* ---- Exports ------------------------------------------------------------------------------ */

static char *export_as(const char *name, const char *format)
{
    ty_cluster *c = sample_open(name);
    ty_text text = {0};
    ty_error error = {0};
    char *out = NULL;

    cr_assert_eq(ty_cluster_export(c, format, NULL, &text, &error), TY_OK, "%s: %s", name,
                 error.message);
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    ty_cluster_free(c);
    return out;
}

/* Round trip: every pair of devices has the same bandwidth. */
Test(export, nccl_comes_back)
{
    static const char *const names[] = {"dgx-a100", "dgx-h100",     "dgx1-v100",     "dgx-b200",
                                        "dgx2",     "p4d.24xlarge", "mi300x-server", "p100-server"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = export_as(names[i], "nccl");
        ty_cluster *before = sample_open(names[i]), *after = NULL;
        ty_error error = {0};
        cr_assert_eq(ty_cluster_import_text(text, strlen(text), "back", NULL, &after, NULL, &error),
                     TY_OK, "%s: %s", names[i], error.message);
        cr_assert_eq(ty_cluster_device_count(after), ty_cluster_device_count(before));
        /* devices are in the order of the PCIe tree: compare sorted */
        double sums[2] = {0, 0};
        for (uint32_t a = 0; a < ty_cluster_device_count(before); a++)
            for (uint32_t b = 0; b < a; b++) {
                sums[0] += path_bandwidth(before, a, b);
                sums[1] += path_bandwidth(after, a, b);
            }
        cr_assert(fabs(sums[0] - sums[1]) < 1e-6 * sums[0], "%s: %g and %g", names[i], sums[0],
                  sums[1]);
        cr_assert_eq(count_kind(after, TY_VERTEX_NIC), count_kind(before, TY_VERTEX_NIC));
        ty_free(text);
        ty_cluster_free(before);
        ty_cluster_free(after);
    }
}

Test(export, slurm_comes_back)
{
    char *text = export_as("pod:2 leaf:2 host:3 dgx-a100", "slurm");
    ty_cluster_import_options options = {.host = "dgx-a100"};
    ty_cluster *before = sample_open("pod:2 leaf:2 host:3 dgx-a100"), *after = NULL;
    double x, y;

    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "back", &options, &after, NULL, NULL),
                 TY_OK, "%s", text);
    cr_assert_eq(ty_cluster_device_count(after), ty_cluster_device_count(before));
    cr_assert_eq(count_kind(after, TY_VERTEX_SWITCH), count_kind(before, TY_VERTEX_SWITCH));
    cr_assert_eq(ty_cluster_bisection(before, &x, NULL), TY_OK);
    cr_assert_eq(ty_cluster_bisection(after, &y, NULL), TY_OK);
    cr_assert(fabs(x - y) < 1e-6 * x, "%g and %g", x, y);
    ty_free(text);
    ty_cluster_free(before);
    ty_cluster_free(after);
}

Test(export, dot_names_every_vertex_and_link)
{
    ty_cluster *c = sample_open("2x p100-server"), *other = NULL;
    char *text = export_as("2x p100-server", "dot");
    ty_text out = {0};
    ty_error error = {0};
    uint32_t edges = 0;

    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        cr_assert_not_null(strstr(text, ty_cluster_vertex_name(c, v)));
    for (const char *at = text; (at = strstr(at, " -- ")) != NULL; at += 4)
        edges++;
    cr_assert_eq(edges, ty_cluster_link_count(c));
    cr_assert_eq(ty_cluster_export(c, "slrm", NULL, &out, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "did you mean \"slurm\""));
    other = sample_open("local:2");
    cr_assert_eq(ty_cluster_export(other, "slurm", NULL, &out, &error), TY_EUNSUPPORTED);
    ty_cluster_free(other);
    ty_cluster_free(c);
    ty_text_clear(&out);
    ty_free(text);
}

/* NCCL's file describes one host: if hosts differ, the option must name one. */
Test(export, nccl_of_one_host)
{
    ty_cluster *c = sample_open("2x dgx-a100 + 1x p100-server"), *back = NULL;
    static const struct {
        const char *host;
        ty_status status;
        const char *part; /* of the message; NULL: devices of the file */
        uint32_t devices;
    } rows[] = {
        {NULL, TY_EINVAL, "found hosts that differ, such as host-0 and host-2", 0},
        {"host-1", TY_OK, NULL, 8},
        {"host-2", TY_OK, NULL, 4},
        {"host-7", TY_EINVAL, "found \"host-7\", expected a host", 0},
        {"host-2/gpu-0", TY_EINVAL, "expected a host", 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_error error = {0};
        cr_assert_eq(ty_cluster_export(c, "nccl", rows[i].host, &text, &error), rows[i].status);
        if (rows[i].part != NULL) {
            cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
            cr_assert_eq(text.length, 0, "nothing half written");
            continue;
        }
        cr_assert_eq(
            ty_cluster_import_text(text.data, text.length, "back", NULL, &back, NULL, &error),
            TY_OK, "%s", error.message);
        cr_assert_eq(ty_cluster_device_count(back), rows[i].devices);
        ty_cluster_free(back);
        ty_text_clear(&text);
    }
    ty_cluster_free(c);
}
