/* Importers: our own small files in tests/topologies/data against what was drawn by hand, and all
 * real files that lie beside the source tree, where they do. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define DATA TY_TEST_SOURCE "/data/"
#define REAL TY_SHARED_DATA "/topologies/"

static ty_cluster *import(const char *path, const ty_cluster_import_options *options,
                          ty_import_notes *notes)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status = ty_cluster_import(path, options, &cluster, notes, &error);

    cr_assert_eq(status, TY_OK, "%s: %s", path, error.message);
    return cluster;
}

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
    const char *part; /* of the message where it is refused */
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

Test(import_real, trees)
{
    static const real_file rows[] = {
        {"topograph/small-tree.yaml",
         {.host = "dgx-a100"},
         TY_OK,
         48,
         6,
         "topograph",
         "a100-sxm4-80gb",
         240e9,
         NULL},
        {"topograph/medium.yaml",
         {.host = "dgx-a100"},
         TY_OK,
         64,
         8,
         "topograph",
         "a100-sxm4-80gb",
         240e9,
         NULL},
        {"topograph/nvl72.yaml",
         {.host = "dgx-b200"},
         TY_OK,
         576,
         72,
         "topograph",
         "b200",
         721.8e9,
         NULL},
        {"topograph/nvl72.yaml", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "names no devices"},
        {"clos/alibaba-lingjun-2023-topo.csv",
         {.host = "dgx-a100"},
         TY_OK,
         8 * 847,
         847,
         "csv",
         "a100-sxm4-80gb",
         240e9,
         NULL},
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
        {"astra-sim/HGX-H100-validated.yml",
         {.device = "h100"},
         TY_OK,
         8,
         1,
         "astra-sim",
         "h100-sxm",
         400e9,
         NULL},
        {"astra-sim/HGX-H100-validated.yml", {0}, TY_EINVAL, 0, 0, NULL, NULL, 0, "--device"},
        {"astra-sim/hgx_h100_16gpu.yml",
         {.device = "h100"},
         TY_OK,
         16,
         2,
         "astra-sim",
         "h100-sxm",
         0,
         NULL},
        {"astra-sim/tpu_v3_32_2dtorus.yml",
         {.device = "tpu-v3"},
         TY_OK,
         32,
         8,
         "astra-sim",
         "tpu-v3",
         0,
         NULL},
        {"astra-sim/dgx_v100_8gpu.yml",
         {.device = "v100-sxm2-16gb"},
         TY_EPARSE,
         0,
         0,
         NULL,
         NULL,
         0,
         "found \"tbd\""},
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
    imported = import(path, &(ty_cluster_import_options){.host = "dgx1-v100"}, NULL);
    for (uint32_t a = 0; a < 8; a++)
        for (uint32_t b = 0; b < 8; b++) {
            double x = path_bandwidth(drawn, a, b);
            double y = path_bandwidth(imported, order[a], order[b]);
            /* the processors of a DGX-1 are Broadwells; nvidia-smi does not say so */
            if (x < 11e9)
                x = 10e9;
            cr_assert(a == b || fabs(x - y) < 1e-6 * x, "%u %u: %g and %g", a, b, x, y);
        }
    cr_assert_eq(count_kind(imported, TY_VERTEX_NIC), 4);
    cr_assert_eq(count_kind(imported, TY_VERTEX_DEVICE_SWITCH), 6);
    ty_cluster_free(drawn);
    ty_cluster_free(imported);
}
