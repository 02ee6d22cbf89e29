/* The catalogue, one-line descriptions and this host as a cluster. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sorted, each once, with the hardware of all seed systems. */
Test(catalogue, lists_hosts_and_clusters_in_order)
{
    static const char *const wanted[] = {"dgx-a100",
                                         "dgx-a100-40gb",
                                         "dgx-b200",
                                         "dgx-h100",
                                         "dgx-h200",
                                         "dgx1-v100",
                                         "dgx1-v100-32gb",
                                         "dgx2",
                                         "gb200-nvl72",
                                         "p100-server",
                                         "p3.16xlarge",
                                         "p4d.24xlarge",
                                         "p5.48xlarge",
                                         "g5.48xlarge",
                                         "ND40rs_v2",
                                         "ND96asr_v4",
                                         "ND96isr_H100_v5",
                                         "NC24ads_A100_v4",
                                         "a2-highgpu-8g",
                                         "a3-highgpu-8g",
                                         "a3-megagpu-8g",
                                         "mi300x-server",
                                         "gpipe-p100x8",
                                         "pipedream-a",
                                         "pipedream-b",
                                         "pipedream-c",
                                         "horovod-p100",
                                         "bigdl-xeon",
                                         "moxing-v100",
                                         "megatron-selene",
                                         "two-clouds",
                                         "tpu-v4-64",
                                         "cloud-to-edge",
                                         "baidu-ring-40",
                                         "parameter-server-50",
                                         "tensorflow-on-spark-k80",
                                         "ddp-v100",
                                         "pipedream-2bw-v100",
                                         "zero-v100"};
    char **names = NULL;
    uint32_t count = 0, found = 0;
    ty_error error = {0};

    cr_assert_eq(ty_catalogue_list(&names, &count, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            cr_assert_lt(strcmp(names[i - 1], names[i]), 0, "%s", names[i]);
        for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++)
            found += strcmp(names[i], wanted[w]) == 0;
    }
    cr_assert_eq(found, sizeof wanted / sizeof wanted[0]);
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
}

static void check_types(const ty_cluster *c, const char *name)
{
    for (uint32_t d = 0; d < ty_cluster_device_count(c); d++) {
        const ty_device_type *type = ty_cluster_device_type(c, d);
        cr_assert_eq(ty_cluster_vertex_kind(c, ty_cluster_device_vertex(c, d)), TY_VERTEX_DEVICE);
        cr_assert_gt(strlen(type->source), 20, "%s: source \"%s\"", name, type->source);
        cr_assert(type->peak_fp32_flop_per_s >= 0.2e12 && type->peak_fp32_flop_per_s < 2.5e14 &&
                      type->peak_fp16_flop_per_s < 5e15 &&
                      type->memory_bandwidth_bytes_per_s > 2e10 &&
                      type->memory_bandwidth_bytes_per_s < 3e13 &&
                      type->memory_bytes >= (uint64_t)4 << 30 && type->power_w < 2000,
                  "%s: %s", name, type->name);
        cr_assert(type->matmul_efficiency > 0.5 && type->matmul_efficiency < 1 &&
                      type->memory_efficiency > 0.5 && type->memory_efficiency < 1,
                  "%s: %s", name, type->name);
    }
}

Test(catalogue, hosts_are_complete)
{
    char **names = NULL;
    uint32_t count = 0;

    cr_assert_eq(ty_catalogue_list(&names, &count, NULL), TY_OK);
    for (uint32_t i = 0; i < count; i++) {
        ty_cluster *c = sample_open(names[i]); /* a bare name is one host, or a cluster */
        const ty_host_type *host = ty_cluster_host_type(c, 0);
        check_types(c, names[i]);
        cr_assert_eq(ty_cluster_host_cores(c, 0), 0);
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++)
            cr_assert_gt(strlen(ty_cluster_link(c, l)->source), 20, "%s: link %u", names[i], l);
        if (host != NULL && host->price_date != NULL)
            cr_assert(host->price_usd_per_hour > 1 && host->price_usd_per_hour < 200 &&
                          strlen(host->price_date) >= 4 && strlen(host->price_source) > 20,
                      "%s", names[i]);
        ty_cluster_free(c);
        ty_free(names[i]);
    }
    ty_free(names);
}

/* Each device and each kind of link, alone between two hosts. The catalogue's reader refuses
 * figures without a source. */
Test(catalogue, has_every_kind)
{
    static const char *const devices[] = {
        "p100-pcie-16gb",
        "p100-sxm2",
        "v100-sxm2-16gb",
        "v100-pcie-16gb",
        "t4",
        "a10",
        "a10g",
        "a100-sxm4-40gb",
        "a100-sxm4-80gb",
        "h100-sxm",
        "h200-sxm",
        "b200",
        "gb200",
        "l4",
        "mi250-die",
        "mi300x",
        "tpu-v2",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "jetson-agx-orin",
        "jetson-nano",
    };
    static const char *const inside[] = {"nvlink1", "nvlink2", "nvlink3", "nvlink4",
                                         "nvlink5", "pcie1",   "pcie2",   "pcie3",
                                         "pcie4",   "pcie5",   "pcie6"};
    static const char *const networks[] = {
        "edr100", "hdr200", "ndr400", "opa100", "eth1",   "eth10",   "eth25",   "eth40",
        "eth50",  "eth100", "eth200", "eth400", "roce25", "roce100", "roce200", "roce400"};
    static const char *const wide[] = {"wan1", "wan10", "wan100"};
    char line[100];

    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        snprintf(line, sizeof line, "host:2 gpu:1 @%s pcie4 ndr400", devices[i]);
        ty_cluster *c = sample_open(line);
        check_types(c, line);
        ty_cluster_free(c);
    }
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        snprintf(line, sizeof line, "host:1 gpu:2 @v100-sxm2-16gb %s edr100", inside[i]);
        ty_cluster_free(sample_open(line));
    }
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        snprintf(line, sizeof line, "host:2 gpu:1 @v100-pcie-16gb pcie3 %s", networks[i]);
        ty_cluster *c = sample_open(line);
        uint32_t cables = 0;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            cables += strcmp(link->kind, networks[i]) == 0;
            cr_assert_gt(strlen(link->source), 20, "%s: \"%s\"", line, link->source);
        }
        cr_assert_eq(cables, 2, "%s", line);
        ty_cluster_free(c);
    }
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        snprintf(line, sizeof line, "[1x p100-server] + [1x p100-server] %s", wide[i]);
        ty_cluster_free(sample_open(line));
    }
}

/* Well-known data sheet figures, as a check of the units. */
Test(catalogue, figures_are_those_of_the_data_sheets)
{
    static const struct {
        const char *text, *device;
        double fp32, fp16, bandwidth;
        uint64_t gib;
    } rows[] = {
        {"p100-server", "p100-pcie-16gb", 9.3e12, 18.7e12, 732e9, 16},
        {"host:1 gpu:4 @p100-sxm2 nvlink1 edr100", "p100-sxm2", 10.6e12, 21.2e12, 732e9, 16},
        {"dgx1-v100", "v100-sxm2-16gb", 15.7e12, 125e12, 900e9, 16},
        {"dgx1-v100-32gb", "v100-sxm2-32gb", 15.7e12, 125e12, 900e9, 32},
        {"dgx-a100-40gb", "a100-sxm4-40gb", 19.5e12, 312e12, 1555e9, 40},
        {"dgx-a100", "a100-sxm4-80gb", 19.5e12, 312e12, 2039e9, 80},
        {"dgx-h100", "h100-sxm", 66.9e12, 989.4e12, 3350e9, 80},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        const ty_device_type *type = ty_cluster_device_type(c, 0);
        cr_assert_str_eq(type->name, rows[i].device);
        cr_assert(fabs(type->peak_fp32_flop_per_s - rows[i].fp32) < 1, "%s", type->name);
        cr_assert(fabs(type->peak_fp16_flop_per_s - rows[i].fp16) < 1, "%s", type->name);
        cr_assert(fabs(type->memory_bandwidth_bytes_per_s - rows[i].bandwidth) < 1, "%s",
                  type->name);
        cr_assert_eq(type->memory_bytes, rows[i].gib << 30, "%s", type->name);
        ty_cluster_free(c);
    }
}

static uint32_t count_kind(const ty_cluster *c, ty_vertex_kind kind)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < ty_cluster_vertex_count(c); v++)
        count += ty_cluster_vertex_kind(c, v) == kind;
    return count;
}

Test(describe, makes_what_the_line_says)
{
    static const struct {
        const char *text, *name;
        uint32_t devices, hosts, device_switches, nics, switches;
    } rows[] = {
        {"16x dgx-a100", "16x dgx-a100", 128, 16, 16 * 11, 128, 1},
        {"  4x\tp100-server ", "4x p100-server", 16, 4, 8, 4, 1},
        {"1x dgx1-v100", "1x dgx1-v100", 8, 1, 6, 4, 1},
        {"leaf:4 host:8 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2", NULL, 256, 32, 32, 256, 5},
        {"pod:4 leaf:8 host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2", NULL, 1024, 128, 128, 1024,
         32 + 4 + 1},
        {"host:3 gpu:2 @p100-pcie-16gb pcie3 eth25 nics=2", NULL, 6, 3, 0, 6, 1},
        /* NICs that devices share have separate PCIe switches. */
        {"host:2 gpu:8 @h100 nvlink4 eth10 nics=1", NULL, 16, 2, 2 * 2, 2, 1},
        {"leaf:2 host:2 gpu:8 @h100 nvlink4 hdr200 nics=4x200Gb/s oversub:2", NULL, 32, 4, 4 * 5,
         16, 3},
        {"host:1 gpu:8 @a100-pcie-80gb pcie4 hdr200 nics=2", NULL, 8, 1, 2, 2, 1},
        {"host:1 gpu:8 @h100 nvlink4 ndr400 nics=8", NULL, 8, 1, 1, 8, 1},
        {"pod:2 leaf:1 host:1 gpu:1 @h100 nvlink4 ndr400", NULL, 2, 2, 2, 2, 2 + 2 + 1},
        {"2048x dgx-h100", NULL, 16384, 2048, 2048 * 11, 16384, 1},
        {"pod:8 leaf:32 host:8 gpu:8 @h100 nvlink4 ndr400", NULL, 16384, 2048, 2048, 16384, 265},
        {"8x dgx-a100 + 4x dgx1-v100", NULL, 96, 12, 8 * 11 + 4 * 6, 64 + 16, 1},
        {"leaf:2 host:3 dgx-a100 oversub:2", NULL, 48, 6, 66, 48, 3},
        {"pod:3 leaf:8 host:16 dgx-a100", NULL, 3072, 384, 384 * 11, 3072, 24 + 3 + 1},
        {"site:2 [4x dgx-a100] wan10", NULL, 64, 8, 88, 64, 3},
        {" [ 2x dgx-a100+1x dgx1-v100 ]+[leaf:2 host:1 dgx-a100] wan100 ",
         "[2x dgx-a100 + 1x dgx1-v100] + [leaf:2 host:1 dgx-a100] wan100", 40, 5, 50, 36,
         1 + 3 + 1},
        {"torus:4x4x4 @tpu-v4 ici-v4 host:4", NULL, 64, 16, 0, 0, 64},
        {"torus:3x2 @tpu-v3 ici-v3", NULL, 6, 6, 0, 0, 6},
        {"mesh:4x8 @tpu-v6e ici-v6e host:4", NULL, 32, 8, 0, 0, 32},
        {"horovod-p100", "horovod-p100", 512, 128, 256, 128, 1},
        /* Trays of a rack share a switch, 18 of them; the last one has its own. */
        {"2x gb300-tray", NULL, 8, 2, 2 * 2 + 1, 8, 1},
        {"19x gb200-tray", NULL, 76, 19, 19 * 2 + 2, 76, 1},
        {"dgx-h100 nics=4", NULL, 8, 1, 11, 4, 1},
        {"2x dgx1-v100 gpu:4 eth10", NULL, 8, 2, 12, 2, 1}, /* Ethernet: one NIC */
        {"2x dgx-a100 roce=200Gb/s", NULL, 16, 2, 22, 16, 1},
        {"leaf:2 host:2 dgx-a100 nics=4 oversub:2", NULL, 32, 4, 44, 16, 3},
        {"host:2 gpu:8 @h100 nvlink4 eth100", NULL, 16, 2, 2 * 2, 2, 1},
        {"host:2 gpu:8 @h100 nvlink4 eth100 nics=8", NULL, 16, 2, 2, 16, 1},
        {"2 hosts x 8 v100, eth10", "2x dgx1-v100 eth10", 16, 2, 12, 2, 1},
        {"2 hosts x 8 v100, roce=200Gb/s, nics=4", "2x dgx1-v100 roce=200Gb/s nics=4", 16, 2, 12, 8,
         1},
        {"p4d, tcp flows=4", "1x p4d.24xlarge tcp flows=4", 8, 1, 7, 4, 1},
        {"local:3", "local:3", 3, 1, 0, 0, 0},
        {"local", "local:4", 4, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        cr_assert_str_eq(ty_cluster_name(c), rows[i].name != NULL ? rows[i].name : rows[i].text);
        cr_assert_eq(ty_cluster_device_count(c), rows[i].devices, "%s", rows[i].text);
        cr_assert_eq(ty_cluster_host_count(c), rows[i].hosts, "%s", rows[i].text);
        cr_assert_eq(count_kind(c, TY_VERTEX_DEVICE), rows[i].devices, "%s", rows[i].text);
        cr_assert_eq(count_kind(c, TY_VERTEX_HOST), rows[i].hosts, "%s", rows[i].text);
        cr_assert_eq(count_kind(c, TY_VERTEX_DEVICE_SWITCH), rows[i].device_switches, "%s",
                     rows[i].text);
        cr_assert_eq(count_kind(c, TY_VERTEX_NIC), rows[i].nics, "%s", rows[i].text);
        cr_assert_eq(count_kind(c, TY_VERTEX_SWITCH), rows[i].switches, "%s", rows[i].text);
        ty_cluster_free(c);
    }
}

/* Rates and latencies of the catalogue's transports, and figures of the line. */
Test(describe, words_of_the_network)
{
    static const struct {
        const char *text;
        double bandwidth_bytes_per_s, latency_s;
        ty_link_transport transport;
        uint32_t flows;
        bool is_staged;
    } rows[] = {
        {"2x dgx-h100", 50e9, 4e-6, TY_LINK_INFINIBAND, 0, false},
        {"2x dgx-h100 tcp", 50e9 * 0.94148, 10e-6, TY_LINK_TCP, 0, false},
        {"2x p4d.24xlarge", 11.25e9, 12e-6, TY_LINK_EFA, 0, false},
        {"2x p4d.24xlarge ena flows=4", 12.5e9 * 0.94148, 10e-6, TY_LINK_ENA, 4, false},
        {"2x dgx-h100 nics=2x200Gb/s", 25e9, 4e-6, TY_LINK_INFINIBAND, 0, false},
        {"host:2 gpu:8 @t4 pcie3 tcp=10Gb/s p2p=host", 1.25e9 * 0.94148, 10e-6, TY_LINK_TCP, 0,
         true},
        {"host:2 gpu:8 @t4 pcie3 roce nics=4x100Gb/s p2p=pcie", 12.5e9 * 0.97757, 4e-6,
         TY_LINK_ROCE, 0, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        uint32_t seen = 0;
        for (uint32_t l = 0; l < ty_cluster_link_count(c); l++) {
            const ty_link_edge *link = ty_cluster_link(c, l);
            if (link->transport == TY_LINK_NONE)
                continue;
            cr_assert_float_eq(link->bandwidth_bytes_per_s, rows[i].bandwidth_bytes_per_s, 1e6,
                               "%s: %g", rows[i].text, link->bandwidth_bytes_per_s);
            cr_assert_float_eq(link->latency_s, rows[i].latency_s, 1e-12, "%s", rows[i].text);
            cr_assert_eq(link->transport, rows[i].transport, "%s", rows[i].text);
            cr_assert_eq(link->flows, rows[i].flows, "%s", rows[i].text);
            seen++;
        }
        cr_assert_gt(seen, 0, "%s", rows[i].text);
        cr_assert_eq(ty_cluster_host_is_staged(c, 1), rows[i].is_staged, "%s", rows[i].text);
        ty_cluster_free(c);
    }
}

/* Devices of a host have consecutive numbers: groups of consecutive devices stay inside it. */
Test(describe, numbers_devices_by_host)
{
    static const char *const texts[] = {"3x dgx1-v100",
                                        "leaf:2 host:2 gpu:4 @h100-sxm nvlink4 ndr400"};
    for (size_t i = 0; i < 2; i++) {
        ty_cluster *c = sample_open(texts[i]);
        uint32_t per_host = ty_cluster_device_count(c) / ty_cluster_host_count(c);
        for (uint32_t d = 0; d < ty_cluster_device_count(c); d++)
            cr_assert_eq(ty_cluster_device_host(c, d), d / per_host, "%s: device %u", texts[i], d);
        ty_cluster_free(c);
    }
}

Test(describe, refuses_bad_lines)
{
    static const struct {
        const char *text;
        ty_status status;
        const char *parts[3]; /* of the message */
    } rows[] = {
        {"", TY_EPARSE, {"empty"}},
        {"   ", TY_EPARSE, {"empty"}},
        {"dgxb100", TY_EPARSE, {"\"dgxb100\"", "did you mean \"dgx-"}},
        {"16x dgx-a10",
         TY_EPARSE,
         {"word 2, column 5", "\"dgx-a10\"", "did you mean \"dgx-a100\""}},
        {"16x", TY_EPARSE, {"\"16x\"", "a host of the catalogue"}},
        {"0x dgx-a100", TY_EPARSE, {"word 1, column 1", "\"0x\"", "from 1 to 262144"}},
        {"-3x dgx-a100", TY_EPARSE, {"\"-3x\"", "from 1 to 262144"}},
        {"1.5x dgx-a100", TY_EPARSE, {"\"1.5x\""}},
        {"18446744073709551617x dgx-a100", TY_EPARSE, {"\"18446744073709551617x\""}},
        {"262144x dgx-a100", TY_EPARSE, {"2097152 devices", "at most 262144"}},
        {"2x dgx-a100 dgx-a100", TY_EPARSE, {"word 3, column 13", "nothing after"}},
        {"16 dgx-a1000", TY_EPARSE, {"word 1", "\"16\"", "16x HOST"}},
        {"leaf:4 hots:3 gpu:8", TY_EPARSE, {"word 2, column 8", "\"hots:3\"", "\"host\""}},
        {"leaf:4 host:8", TY_EPARSE, {"its end after 2 words", "gpu:N"}},
        {"leaf:4 gpu:8", TY_EPARSE, {"word 2", "host:N before"}},
        {"gpu:8 host:4", TY_EPARSE, {"word 1", "host:N before"}},
        {"host:4 leaf:2 gpu:8", TY_EPARSE, {"word 2", "outermost first"}},
        {"host:4 host:4 gpu:8", TY_EPARSE, {"word 2", "each level once"}},
        {"host:0 gpu:8", TY_EPARSE, {"\"host:0\"", "from 1"}},
        {"host:-1 gpu:8", TY_EPARSE, {"\"host:-1\"", "from 1"}},
        {"host:nan gpu:8", TY_EPARSE, {"\"host:nan\""}},
        {"pod:65536 leaf:65536 host:65536 gpu:65536", TY_EPARSE, {"4294967296 devices"}},
        {"host:4 gpu:8", TY_EPARSE, {"its end after 2 words", "a device of the catalogue"}},
        {"2x", TY_EPARSE, {"its end after 1 word,", "a host of the catalogue"}},
        {"host:4 gpu:8 h100-sxm nvlink4 ndr400", TY_EPARSE, {"word 3", "@ and a device"}},
        {"host:4 gpu:8 @h100-smx nvlink4 ndr400", TY_EPARSE, {"did you mean \"h100-sxm\""}},
        {"host:4 gpu:8 @mi250x-x nvlink2 edr100", TY_EPARSE, {"\"@mi250x-x\""}}, /* no match */
        {"host:4 gpu:8 @tpu nvlink2 edr100", TY_EPARSE, {"\"@tpu\""}},           /* several kinds */
        {"host:4 gpu:8 @h100 nvlnk4 ndr400", TY_EPARSE, {"word 4", "did you mean \"nvlink4\""}},
        {"host:4 gpu:8 @h100 ndr400 nvlink4", TY_EPARSE, {"word 4", "inside the host"}},
        {"host:4 gpu:8 @h100 nvlink4", TY_EPARSE, {"its end after 4 words", "to the network"}},
        {"host:4 gpu:8 @h100 nvlink4 pcie5", TY_EPARSE, {"word 5", "to the network"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 nics=0", TY_EPARSE, {"word 6", "nics=N"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 nics=3", TY_EPARSE, {"word 6", "a divisor or a"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 nics=4x", TY_EPARSE, {"word 6", "a rate"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400=50GB/s nics=4x200Gb/s", TY_EPARSE, {"one rate"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2 nics=4", TY_EPARSE, {"word 7", "nothing"}},
        {"host:4 gpu:8 @h100 nvlink4 roce", TY_EPARSE, {"its end", "a rate of the network"}},
        {"[1x dgx-h100] + [1x dgx-h100] tcp", TY_EPARSE, {"word 10", "a rate of the network"}},
        {"mesh:2x2 @tpu-v4 tcp", TY_EPARSE, {"word 3", "a rate of the network"}},
        {"2x dgx-h100 nics=9", TY_EPARSE, {"word 3", "from 1 to the 8"}},
        {"2x dgx-h100 flows=0", TY_EPARSE, {"word 3", "from 1 to 1024"}},
        {"2x dgx-h100 p2p=nvlink", TY_EPARSE, {"word 3", "p2p=pcie"}},
        {"2x dgx-h100 eth10 eth25", TY_EPARSE, {"word 4", "one network"}},
        {"2x dgx-h100 + 2x dgx-h100 tcp", TY_EPARSE, {"word 6", "one transport"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 oversub:0", TY_EPARSE, {"word 6", "from 1 to 1000"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 oversub:nan", TY_EPARSE, {"from 1 to 1000"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2x", TY_EPARSE, {"from 1 to 1000"}},
        {"host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2 2", TY_EPARSE, {"word 7", "nothing after"}},
        {"host:4 DGX", TY_EPARSE, {"word 2", "a host of the catalogue"}},
        {"4x dgx-a100 +", TY_EPARSE, {"its end after 3 words", "hosts"}},
        {"+ 4x dgx-a100", TY_EPARSE, {"word 1", "hosts"}},
        {"4x dgx-a100 + host:2 dgx-a100", TY_EPARSE, {"word 4", "both sides"}},
        {"host:2 dgx-a100 + 4x dgx-a100", TY_EPARSE, {"word 3", "both sides"}},
        {"4x dgx-a100 ]", TY_EPARSE, {"word 3, column 13", "\"]\""}},
        {"[4x dgx-a100] [4x dgx-a100] wan10", TY_EPARSE, {"word 5", "another site"}},
        {"[4x dgx-a100] + [4x dgx-a100]", TY_EPARSE, {"its end", "wan10"}},
        {"[4x dgx-a100 wan10", TY_EPARSE, {"after 4 words", "\"]\" or"}},
        {"site:2 4x dgx-a100 wan10", TY_EPARSE, {"word 2", "\"[\""}},
        {"site:2 [4x dgx-a100] wan11", TY_EPARSE, {"did you mean \"wan1"}},
        {"site:99999 [99x dgx-a100] wan10", TY_EPARSE, {"devices, expected at most"}},
        {"torus:4 @tpu-v4 ici-v4 host:3", TY_EPARSE, {"word 4", "a divisor"}},
        {"torus:4x @tpu-v4 ici-v4", TY_EPARSE, {"word 1", "torus:4x4x4"}},
        {"torus:4096x4096 @tpu-v4 ici-v4", TY_EPARSE, {"16777216 devices"}},
        {"mesh:4x @tpu-v4 ici-v4", TY_EPARSE, {"word 1", "\"mesh:4x\"", "torus: or mesh:"}},
        {"torus:4x4 @tpu-v4 nvlink4", TY_EPARSE, {"word 3", "to the network"}},
        {"local:0", TY_EPARSE, {"column 7", "\"0\""}},
        {"local:four", TY_EPARSE, {"column 7", "\"four\""}},
        {"./no-such-file.json", TY_EIO, {"no-such-file.json"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_profile local = sample_profile();
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_status status = ty_cluster_open(rows[i].text, &local, &c, &error);
        cr_assert_eq(status, rows[i].status, "\"%s\": status %d, %s", rows[i].text, status,
                     error.message);
        cr_assert_eq(error.status, status);
        cr_assert_null(c);
        for (int p = 0; p < 3 && rows[i].parts[p] != NULL; p++)
            cr_assert_not_null(strstr(error.message, rows[i].parts[p]), "\"%s\": %s lacks %s",
                               rows[i].text, error.message, rows[i].parts[p]);
    }
}

/* ---- This host ------------------------------------------------------------------------ */

Test(local, is_recognised)
{
    static const struct {
        const char *text;
        bool is_local;
        uint32_t ranks;
    } rows[] = {
        {"local", true, 0},     {"local:1", true, 1},    {"local:64", true, 64},
        {"local:", false, 7},   {"local:0", false, 7},   {"local:-1", false, 7},
        {"local:4 ", false, 7}, {"localhost", false, 7}, {"16x dgx-a100", false, 7},
        {"", false, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t ranks = 7;
        cr_assert_eq(ty_cluster_is_local(rows[i].text, &ranks), rows[i].is_local, "%s",
                     rows[i].text);
        cr_assert_eq(ranks, rows[i].ranks, "%s", rows[i].text);
    }
}

Test(local, is_what_the_profile_measured)
{
    ty_profile profile = sample_profile();
    ty_cluster *c = NULL;
    ty_path path = {0};
    const ty_device_type *type;

    cr_assert_eq(ty_cluster_local(3, &profile, &c, NULL), TY_OK);
    type = ty_cluster_device_type(c, 2);
    cr_assert_str_eq(type->name, "cpu");
    cr_assert_not_null(strstr(type->source, "test machine"));
    cr_assert(fabs(type->peak_fp32_flop_per_s - 5e10) < 1);
    cr_assert(fabs(type->memory_bandwidth_bytes_per_s - 1e10) < 1);
    cr_assert_eq(type->memory_bytes, ((uint64_t)8 << 30) / 3);
    cr_assert(fabs(type->core_share - 1) < 1e-12);
    cr_assert(fabs(type->launch_overhead_s - 3e-6) < 1e-15);
    cr_assert_eq(ty_cluster_host_cores(c, ty_cluster_device_host(c, 2)), 4);
    cr_assert_eq(ty_cluster_path(c, 0, 2, &path, NULL), TY_OK);
    cr_assert_eq(path.link_count, 2);
    cr_assert(fabs(path.latency_s / 2e-6 - 1) < 1e-9, "%g", path.latency_s);
    cr_assert(fabs(path.bandwidth_bytes_per_s / 4e9 - 1) < 1e-9, "%g", path.bandwidth_bytes_per_s);
    ty_path_clear(&path);
    ty_cluster_free(c);
}

/* The fit against one by hand: two points define one line. A line with a negative intercept starts
 * at zero instead, with the slope sum(w x y) / sum(w x x), w = 1/y^2, that is sum(x/y) /
 * sum(x^2/y^2). */
Test(local, fits_latency_and_bandwidth)
{
    static const struct {
        ty_transfer_time times[3];
        uint32_t count;
        double latency_s, bandwidth;
    } rows[] = {
        {{{1000, 3e-6, 0}, {3000, 5e-6, 0}}, 2, 2e-6, 1e9},
        {{{1000, 1e-6, 0}, {2000, 3e-6, 0}, {4000, 7e-6, 0}},
         3,
         0,
         (1e6 / 1e-12 + 4e6 / 9e-12 + 16e6 / 49e-12) / (1e3 / 1e-6 + 2e3 / 3e-6 + 4e3 / 7e-6)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_profile profile = sample_profile();
        ty_cluster *c = NULL;
        ty_path path = {0};
        profile.transfer_times = (ty_transfer_time *)rows[i].times;
        profile.transfer_time_count = rows[i].count;
        cr_assert_eq(ty_cluster_local(2, &profile, &c, NULL), TY_OK);
        cr_assert_eq(ty_cluster_path(c, 0, 1, &path, NULL), TY_OK);
        cr_assert(fabs(path.latency_s - rows[i].latency_s) < 1e-15, "row %zu: %g", i,
                  path.latency_s);
        cr_assert(fabs(path.bandwidth_bytes_per_s / rows[i].bandwidth - 1) < 1e-9, "row %zu: %g", i,
                  path.bandwidth_bytes_per_s);
        ty_path_clear(&path);
        ty_cluster_free(c);
    }
}

Test(local, refuses_profiles_that_say_too_little)
{
    static ty_transfer_time same[] = {{1000, 1e-6, 0}, {1000, 2e-6, 0}};
    static ty_transfer_time falling[] = {{1000, 2e-6, 0}, {2000, 1e-6, 0}};
    static ty_transfer_time zero[] = {{1000, 0, 0}, {2000, 1e-6, 0}};
    static ty_transfer_time nan_time[] = {{1000, 1e-6, 0}, {2000, NAN, 0}};
    ty_profile rows[8];
    ty_cluster *c = NULL;
    ty_error error = {0};

    for (int i = 0; i < 8; i++)
        rows[i] = sample_profile();
    rows[0].cores = 0;
    rows[1].memory_bytes = 1;
    rows[2].peak_flop_per_s = 0;
    rows[3].transfer_time_count = 0;
    rows[4].transfer_times = same;
    rows[5].transfer_times = falling;
    rows[6].transfer_times = zero;
    rows[7].transfer_times = nan_time;
    for (int i = 0; i < 8; i++) {
        if (i >= 4)
            rows[i].transfer_time_count = 2;
        cr_assert_eq(ty_cluster_local(2, &rows[i], &c, &error), TY_EINVAL, "row %d", i);
        cr_assert_not_null(strstr(error.message, "local:2"), "row %d: %s", i, error.message);
        cr_assert_not_null(strstr(error.message, "expected"), "row %d: %s", i, error.message);
        cr_assert_null(c);
    }
    cr_assert_eq(ty_cluster_local(2, NULL, &c, &error), TY_EINVAL);
    cr_assert_eq(ty_cluster_open("local:2", NULL, &c, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "no profile"), "%s", error.message);
    cr_assert_eq(ty_cluster_local(0, &rows[3], &c, &error), TY_EINVAL);
    cr_assert_eq(ty_cluster_local(1, &rows[3], &c, &error), TY_OK, "%s", error.message);
    ty_cluster_free(c); /* a single rank sends nothing: no transfers needed */
}

/* Figures that follow from a line: bandwidths between sites, along a torus, up from a leaf. */
Test(describe, new_forms_have_the_closed_form)
{
    static const struct {
        const char *text;
        uint32_t from, to;
        double bandwidth, latency; /* latency 0: not checked */
    } rows[] = {
        /* all devices of a site share its link: 10 Gbit/s, 15 ms to the center and on */
        {"site:2 [4x dgx-a100] wan10", 0, 32, 1.25e9, 0.03},
        {"[1x dgx-a100] + [1x dgx1-v100] wan100", 0, 8, 12e9, 0.03},
        /* one hop, two hops, and around the edge of a torus */
        {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 1, 50e9, 1e-6},
        {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 3, 50e9, 1e-6},
        {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 42, 50e9, 6e-6},
        {"mesh:4x4x4 @tpu-v4 ici-v4 host:4", 0, 3, 50e9, 3e-6},
        {"torus:2x3 @tpu-v4 ici-v4", 0, 1, 100e9, 1e-6}, /* both ports lead to the same neighbor */
        {"mesh:2x3 @tpu-v4 ici-v4", 0, 1, 50e9, 1e-6},
        {"2x dgx-a100 + 1x dgx1-v100", 0, 16, 12e9, 0},
        /* user-defined bandwidths, wherever the kind of link is used */
        {"host:2 gpu:2 @h100 nvlink4=300GB/s ndr400=10GB/s", 0, 1, 300e9, 0},
        {"host:2 gpu:2 @h100 nvlink4=300GB/s ndr400=10GB/s", 0, 2, 10e9, 0},
        {"leaf:2 host:1 gpu:1 @h100 nvlink4 ndr400=80Gb/s oversub:2", 0, 1, 5e9, 0},
        {"torus:4x4 @tpu-v4 ici-v4=20GB/s", 0, 1, 20e9, 1e-6},
        {"torus:2x3 @tpu-v4 ici-v4=20GB/s", 0, 1, 40e9, 1e-6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text);
        ty_path path = {0};
        cr_assert_eq(ty_cluster_path(c, rows[i].from, rows[i].to, &path, NULL), TY_OK);
        cr_assert(fabs(path.bandwidth_bytes_per_s - rows[i].bandwidth) < 1, "%s: %g", rows[i].text,
                  path.bandwidth_bytes_per_s);
        if (rows[i].latency > 0)
            cr_assert(fabs(path.latency_s - rows[i].latency) < 1e-2 * rows[i].latency, "%s: %g",
                      rows[i].text, path.latency_s);
        ty_path_clear(&path);
        ty_cluster_free(c);
    }
}

/* Names that users type, and the line that each one means. */
Test(catalogue, names_that_people_type)
{
    static const struct {
        const char *text, *line;
        uint32_t devices;
    } rows[] = {
        {"1x h100", "1x dgx-h100 gpu:1", 1},
        {"2x rtx-3090", "1x rtx-3090-server gpu:2", 2},
        {"12x h100", "1x dgx-h100 + 1x dgx-h100 gpu:4", 12},
        {"4x A100-40GB", "1x dgx-a100-40gb gpu:4", 4},
        {"8x mi300x", "1x mi300x-server", 8},
        {"ND H100 v5", "1x ND96isr_H100_v5", 8},
        {"Standard_ND96isr_H100_v5", "1x ND96isr_H100_v5", 8},
        {"2x azure ND H100 v5", "2x ND96isr_H100_v5", 16},
        {"v5p-256", "v5p-256", 128}, /* TensorCores, two a chip */
        {"V5P-8", "v5p-8", 4},
        {"v6e-8", "v6e-8", 8},
        {"tpu v5litepod-16", "v5e-16", 16},
        {"8x a3-mega", "8x a3-megagpu-8g", 64},
        {"aws p5", "1x p5.48xlarge", 8},
        {"H100-SXM5-80GB", "1x dgx-h100", 8},
        {"8x NVIDIA H100 80GB HBM3", "1x dgx-h100", 8},
        {"128 nodes h100", "128x dgx-h100", 1024},
        {"2 nodes of 8 h100", "2x dgx-h100", 16},
        {"2 nodes of 4x H100", "2x dgx-h100 gpu:4", 8},
        {"4 hosts with 8 GPU", NULL, 0},
        {"4x8 h100", "4x dgx-h100", 32},
        {"64 H100 GPUs", "8x dgx-h100", 64},
        {"16 h100 nodes", "16x dgx-h100", 128},
        {"36 nodes gb200", "2x gb200-nvl72", 144}, /* trays of a rack */
        {"8x gb200", "1x gb200-nvl72 gpu:8", 8},
        {"g5.12xlarge", "g5.12xlarge", 4},
        {"8x v6e-8", NULL, 0},
        {"2x dgx-h100 gpu:9", NULL, 0},
        {"2x dgx-h100 gpu:2 gpu:2", NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = NULL;
        ty_error error = {0};
        const ty_status status = ty_cluster_open(rows[i].text, NULL, &c, &error);
        if (rows[i].line == NULL) {
            cr_expect_eq(status, TY_EPARSE, "\"%s\"", rows[i].text);
            continue;
        }
        cr_assert_eq(status, TY_OK, "\"%s\": %s", rows[i].text, error.message);
        cr_expect_str_eq(ty_cluster_name(c), rows[i].line, "\"%s\": \"%s\"", rows[i].text,
                         ty_cluster_name(c));
        cr_expect_eq(ty_cluster_device_count(c), rows[i].devices, "\"%s\"", rows[i].text);
        ty_cluster_free(c);
    }
}

/* A part of a host: its first devices, with the same links between them as in the complete host,
 * and no price. */
Test(catalogue, parts_of_hosts)
{
    ty_cluster *whole = sample_open("1x p4d.24xlarge"),
               *part = sample_open("1x p4d.24xlarge gpu:4");
    ty_path a = {0}, b = {0};

    cr_assert_eq(ty_cluster_path(whole, 1, 3, &a, NULL), TY_OK);
    cr_assert_eq(ty_cluster_path(part, 1, 3, &b, NULL), TY_OK);
    cr_expect_float_eq(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s, 1);
    cr_expect_float_eq(a.latency_s, b.latency_s, 1e-12);
    cr_expect_not_null(ty_cluster_host_type(whole, 0));
    cr_expect_null(ty_cluster_host_type(part, 0));
    ty_path_clear(&a);
    ty_path_clear(&b);
    ty_cluster_free(whole);
    ty_cluster_free(part);
}

/* Each alias gives its documented result, not that of another name with the same prefix. */
Test(catalogue, aliases_mean_what_they_say)
{
    ty_json_document *document = NULL;
    const ty_json *aliases;
    char *path = NULL;

    cr_assert_eq(ty_data_path("topologies/catalogue", "aliases.json", &path, NULL), TY_OK);
    cr_assert_eq(ty_json_load(path, &document, NULL), TY_OK);
    cr_assert_eq(ty_json_object(ty_json_root(document), "aliases", &aliases, NULL), TY_OK);
    for (size_t i = 0; i < ty_json_size(aliases); i++) {
        const char *typed = ty_json_key(ty_json_at(aliases, i)), *meant = NULL, *found;
        ty_cluster *c = sample_open(typed);
        cr_assert_eq(ty_json_as_string(ty_json_at(aliases, i), &meant, NULL), TY_OK);
        found = strstr(ty_cluster_name(c), meant);
        cr_expect(found != NULL && strcmp(found, meant) == 0, "%s is %s, not %s", typed,
                  ty_cluster_name(c), meant);
        ty_cluster_free(c);
    }
    ty_json_free(document);
    ty_free(path);
}

/* Prices and power come with hosts, survive a JSON round trip, and are absent if unknown. */
Test(catalogue, prices_have_a_date_and_a_source)
{
    static const struct {
        const char *text;
        double price, power;
    } rows[] = {{"p4d.24xlarge", 21.957642, 0}, {"2x ND40rs_v2", 22.032, 0},
                {"g5.48xlarge", 16.288, 0}, /* A10G */
                {"BM.GPU.MI300X.8", 48, 0},     {"BM.GPU.MI355X.8", 68.8, 0},
                {"BM.GPU.B300.8", 120, 0},      {"2x BM.GPU.GB200.4", 64, 0},
                {"2x BM.GPU.GB300.4", 72, 0},   {"gpu_1x_gh200", 2.29, 0},
                {"gpu_8x_rtx4090", 2.72, 0},    {"gpu_8x_rtx5090", 3.6, 0},
                {"n3-RTX-A6000x8", 4, 0},       {"2x tpu-v6e-host", 10.8, 0},
                {"trn1.32xlarge", 21.5, 0},     {"dgx-h100", 0, 10200},
                {"xeon-server", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].text), *again;
        char *json = sample_json(c);
        again = sample_open(json);
        for (uint32_t h = 0; h < ty_cluster_host_count(again); h++) {
            const ty_host_type *type = ty_cluster_host_type(again, h);
            cr_assert_not_null(type);
            cr_assert(fabs(type->price_usd_per_hour - rows[i].price) < 1e-9, "%s", rows[i].text);
            cr_assert(fabs(type->power_w - rows[i].power) < 1e-9, "%s", rows[i].text);
            cr_assert_eq(type->price_date != NULL, rows[i].price > 0, "%s", rows[i].text);
            if (type->price_date != NULL)
                cr_assert(strncmp(type->price_date, "202", 3) == 0 &&
                          strlen(type->price_source) > 20);
        }
        ty_free(json);
        ty_cluster_free(c);
        ty_cluster_free(again);
    }
}
