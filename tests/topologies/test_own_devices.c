/* User-defined devices in a description or a file, and the catalogue's later devices. */
#include "samples.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(own_devices, are_what_is_said)
{
    ty_cluster *c = sample_open("leaf:2 host:2 gpu:4 "
                                "@mine{bf16=400e12,memory=48GiB,bandwidth=1.5TB/s,power=300} pcie4 "
                                "hdr200");
    const ty_device_type *t = ty_cluster_device_type(c, 15);

    cr_assert_eq(ty_cluster_device_count(c), 16);
    cr_assert_str_eq(t->name, "mine");
    cr_assert_float_eq(t->peak_fp16_flop_per_s, 400e12, 1);
    cr_assert_float_eq(t->peak_fp32_flop_per_s, 25e12, 1);
    cr_assert_eq(t->memory_bytes, (uint64_t)48 << 30);
    cr_assert_float_eq(t->memory_bandwidth_bytes_per_s, 1.5e12, 1);
    cr_assert_float_eq(t->power_w, 300, 1e-9);
    cr_assert_not_null(strstr(t->source, "as the description says"));
    ty_cluster_free(c);
}

/* Another device with the specified changes; twice in one line. */
Test(own_devices, like_another)
{
    ty_cluster *c = sample_open("host:1 gpu:8 @big{like=h100,memory=96GiB} nvlink4 ndr400");
    ty_cluster *h100 = sample_open("host:1 gpu:8 @h100 nvlink4 ndr400");
    const ty_device_type *a = ty_cluster_device_type(c, 0), *b = ty_cluster_device_type(h100, 0);
    ty_cluster *torus =
        sample_open("torus:4x4 @chip{fp32=1e12,memory=1GiB,bandwidth=1e11,port=pcie3} ici-v3");

    cr_assert_float_eq(a->peak_fp16_flop_per_s, b->peak_fp16_flop_per_s, 1);
    cr_assert_float_eq(a->matmul_efficiency, b->matmul_efficiency, 1e-9);
    cr_assert_eq(a->memory_bytes, (uint64_t)96 << 30);
    cr_assert_eq(ty_cluster_link_count(c), ty_cluster_link_count(h100));
    cr_assert_eq(ty_cluster_device_count(torus), 16);
    ty_cluster_free(torus);
    ty_cluster_free(h100);
    ty_cluster_free(c);
}

Test(own_devices, what_is_wrong_with_them)
{
    static const struct {
        const char *device, *part;
    } rows[] = {
        {"@mine{bf16=400e12,memory=48GiB}", "expected bf16= or fp32=, memory= and bandwidth="},
        {"@mine{bf16=fast,memory=48GiB,bandwidth=1TB/s}", "bf16: found \"fast\""},
        {"@mine{bf16=4GB/s,memory=48GiB,bandwidth=1TB/s}", "bf16: found \"4GB/s\""},
        {"@mine{bf16=400e12,memory=big,bandwidth=1TB/s}", "memory: found \"big\""},
        {"@mine{bf16=400e12,memory=48GiB,bandwidth=0}", "bandwidth: found \"0\""},
        {"@mine{like=h1000}", "like: found \"h1000\""},
        {"@mine{like=h100,port=ndr400}", "port: found \"ndr400\""},
        {"@mine{like=h100,efficiency=70}", "efficiency: found \"70\""},
        {"@mine{like=h100,memmory=1GiB}", "did you mean \"memory\""},
        {"@h100-sxm{like=h100}", "a name of its own"},
        {"@mine{like=h100", "expected @NAME{KEY=VALUE,...}"},
        {"mine{like=h100}", "expected @NAME{KEY=VALUE,...}"},
        {"@{like=h100}", "a name of its own"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[160];
        ty_cluster *c = NULL;
        ty_error error = {0};
        snprintf(line, sizeof line, "host:1 gpu:2 %s pcie4 hdr200", rows[i].device);
        cr_assert_eq(ty_cluster_open(line, NULL, &c, &error), TY_EPARSE, "%s", line);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s: %s", line, error.message);
    }
}

/* A file `name` with this content in a new folder, which the caller removes. */
static void write_device(char folder[static 32], const char *name, const char *content,
                         char path[static 64])
{
    FILE *file;

    strcpy(folder, "/tmp/ty-device-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, 64, "%s/%s", folder, name);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_geq(fputs(content, file), 0);
    cr_assert_eq(fclose(file), 0);
}

/* The same as in braces, except for members that braces cannot express; named twice it is one
 * device. */
Test(own_devices, of_a_file)
{
    char folder[32], path[64], line[256];
    ty_cluster *said = sample_open(
        "leaf:2 host:2 gpu:4 @mine{like=h100,bf16=1.2e15,memory=128GiB,bandwidth=4TB/s} "
        "nvlink4 ndr400");
    const ty_device_type *a, *b = ty_cluster_device_type(said, 0);
    ty_cluster *c, *sites;

    write_device(folder, "mine.json",
                 "{\"schema\": \"trainyard.device/1\", \"name\": \"mine\", \"source\": \"us\","
                 "\"like\": \"h100-sxm\", \"peak_fp16_flop_per_s\": 1.2e15, \"memory_bytes\": "
                 "137438953472, \"memory_bandwidth_bytes_per_s\": 4e12,"
                 "\"attention_efficiency\": 0.55}",
                 path);
    snprintf(line, sizeof line, "leaf:2 host:2 gpu:4 @%s nvlink4 ndr400", path);
    c = sample_open(line);
    a = ty_cluster_device_type(c, 15);
    cr_expect_str_eq(a->name, "mine");
    cr_expect_str_eq(a->source, "us");
    cr_expect_float_eq(a->peak_fp16_flop_per_s, b->peak_fp16_flop_per_s, 1);
    cr_expect_float_eq(a->peak_fp32_flop_per_s, b->peak_fp32_flop_per_s, 1);
    cr_expect_eq(a->memory_bytes, b->memory_bytes);
    cr_expect_float_eq(a->memory_bandwidth_bytes_per_s, b->memory_bandwidth_bytes_per_s, 1);
    cr_expect_float_eq(a->attention_efficiency, 0.55, 1e-12);
    cr_expect_eq(ty_cluster_device_count(c), 16);
    cr_expect_eq(ty_cluster_link_count(c), ty_cluster_link_count(said));
    snprintf(line, sizeof line,
             "[host:2 gpu:4 @%s nvlink4 ndr400] + [host:1 gpu:8 @%s nvlink4 ndr400] wan10", path,
             path);
    sites = sample_open(line);
    cr_expect_eq(ty_cluster_device_type(sites, 0), ty_cluster_device_type(sites, 15));
    /* By a file name ending in .json, relative to the current folder. */
    cr_assert_eq(chdir(folder), 0);
    ty_cluster_free(c);
    c = sample_open("host:1 gpu:2 @mine.json nvlink4 ndr400");
    cr_expect_str_eq(ty_cluster_device_type(c, 1)->name, "mine");
    ty_cluster_free(c);
    ty_cluster_free(sites);
    ty_cluster_free(said);
    cr_assert_eq(ty_device_file_check(path, NULL), TY_OK);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(folder), 0);
}

Test(own_devices, what_is_wrong_with_their_files)
{
#define BEGIN "{\"schema\": \"trainyard.device/1\", \"name\": \"mine\", \"source\": \"us\""
    static const struct {
        const char *content, *part;
    } rows[] = {
        {"{", "mine.json: line 1, column 2"},
        {"{\"schema\": \"trainyard.cluster/1\"}", "trainyard.device/1"},
        {BEGIN "}", "peak_fp16_flop_per_s or peak_fp32_flop_per_s"},
        {BEGIN ", \"like\": \"h1000\"}", "as like a device of the catalogue"},
        {BEGIN ", \"like\": \"h100\", \"port\": \"ndr400\"}", "as port a link"},
        {BEGIN ", \"like\": \"h100\", \"memory\": 5}", "memory"},
        {BEGIN ", \"like\": \"h100\", \"memory_efficiency\": 70}", "/memory_efficiency: found 70"},
        {BEGIN ", \"like\": \"h100\", \"memory_bytes\": -1}", "/memory_bytes: found -1"},
        {"{\"schema\": \"trainyard.device/1\", \"name\": \"mine\", \"like\": \"h100\"}", "source"},
        {"{\"schema\": \"trainyard.device/1\", \"name\": \"h100-sxm\", \"source\": \"us\"}",
         "a name of its own"},
        {"{\"schema\": \"trainyard.device/1\", \"name\": \"a b\", \"source\": \"us\"}",
         "a name of its own"},
    };
    ty_cluster *c = NULL;
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char folder[32], path[64], line[160];
        write_device(folder, "mine.json", rows[i].content, path);
        snprintf(line, sizeof line, "host:1 gpu:2 @%s pcie4 hdr200", path);
        cr_expect_eq(ty_cluster_open(line, NULL, &c, &error), TY_EPARSE, "%s", rows[i].content);
        cr_expect_not_null(strstr(error.message, rows[i].part), "%s: %s", rows[i].content,
                           error.message);
        cr_expect_not_null(strstr(error.message, path), "%s", error.message);
        cr_expect_eq(ty_device_file_check(path, NULL), TY_EPARSE);
        unlink(path);
        rmdir(folder);
    }
    cr_expect_eq(ty_cluster_open("host:1 gpu:2 @/nowhere/mine.json pcie4 hdr200", NULL, &c, &error),
                 TY_EIO);
    cr_expect_not_null(strstr(error.message, "/nowhere/mine.json"), "%s", error.message);
}

/* By the short names that users type; half-precision rates of the data sheets. */
Test(catalogue, devices_of_later_years)
{
    static const struct {
        const char *name;
        double bf16;
        uint64_t gigabytes; /* of 2^30, rounded down */
    } rows[] = {
        {"rtx3090", 71e12, 24},
        {"rtx4090", 165.2e12, 24},
        {"rtx5090", 209.5e12, 32},
        {"a6000", 154.8e12, 48},
        {"a10g", 70e12, 24},
        {"h20", 148e12, 96},
        {"h800", 989.4e12, 80},
        {"gh200", 989.4e12, 143},
        {"b200", 2250e12, 180},
        {"b300", 2250e12, 268},
        {"gb300", 2500e12, 277},
        {"mi325x", 1307.4e12, 256},
        {"mi355x", 2500e12, 288},
        {"tpu-v6e", 918e12, 32},
        {"tpu-v7", 2307e12, 192},
        {"trainium1", 190e12, 32},
        {"trainium2", 667e12, 96},
        {"gaudi2", 432e12, 96},
        {"gaudi3", 1835e12, 128},
        {"910b", 376e12, 59},
        {"910c", 752e12, 119},
        {"h100-96gb", 989.4e12, 94},
        {"rtx-pro-6000", 503.8e12, 96},
        {"mi350x", 2300e12, 288},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[80];
        ty_cluster *c;
        const ty_device_type *t;
        snprintf(line, sizeof line, "host:1 gpu:1 @%s pcie5 ndr400", rows[i].name);
        c = sample_open(line);
        t = ty_cluster_device_type(c, 0);
        cr_expect_float_eq(t->peak_fp16_flop_per_s, rows[i].bf16, 0.01 * rows[i].bf16, "%s: %g",
                           rows[i].name, t->peak_fp16_flop_per_s);
        cr_expect_eq(t->memory_bytes >> 30, rows[i].gigabytes, "%s: %llu", rows[i].name,
                     (unsigned long long)(t->memory_bytes >> 30));
        ty_cluster_free(c);
    }
}

/* Peaks in eight and four bits are dense, half of the sparse ones in data sheets. All devices that
 * train today have a known efficiency; a lower power limit leaves less. */
Test(catalogue, narrow_rates)
{
    static const struct {
        const char *name;
        double fp8, fp4;
    } rows[] = {
        {"a100-sxm4-80gb", 0, 0},
        {"h100-sxm", 1978.9e12, 0},
        {"h100-sxm-500w", 1978.9e12, 0},
        {"h100-pcie", 1513e12, 0},
        {"h100-nvl", 1671e12, 0},
        {"h200-sxm", 1978.9e12, 0},
        {"l40s", 733e12, 0},
        {"rtx-pro-6000", 1007.6e12, 2015.2e12},
        {"b200", 4500e12, 9000e12},
        {"b300", 4500e12, 13500e12},
        {"gb200", 5000e12, 10000e12},
        {"gb300", 5000e12, 15000e12},
        {"mi300x", 2614.9e12, 0},
        {"mi350x", 4600e12, 9200e12},
        {"tpu-v5p", 0, 0},
        {"tpu-v7", 4614e12, 0},
        {"gaudi3", 1835e12, 0},
        {"ascend-910b", 0, 0},
    };
    double full = 0;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[80];
        ty_cluster *c;
        const ty_device_type *t;
        snprintf(line, sizeof line, "host:1 gpu:1 @%s pcie5 ndr400", rows[i].name);
        c = sample_open(line);
        t = ty_cluster_device_type(c, 0);
        cr_expect_float_eq(t->peak_fp8_flop_per_s, rows[i].fp8, 1e9, "%s: %g", rows[i].name,
                           t->peak_fp8_flop_per_s);
        cr_expect_float_eq(t->peak_fp4_flop_per_s, rows[i].fp4, 1e9, "%s: %g", rows[i].name,
                           t->peak_fp4_flop_per_s);
        cr_expect(t->attention_efficiency > 0.2 && t->attention_efficiency < t->matmul_efficiency,
                  "%s: attention %g of products' %g", rows[i].name, t->attention_efficiency,
                  t->matmul_efficiency);
        cr_expect(t->attention_backward > 0.7 && t->attention_backward < 0.9, "%s", rows[i].name);
        if (strcmp(rows[i].name, "h100-sxm") == 0)
            full = t->peak_fp16_flop_per_s * t->matmul_efficiency;
        else if (strncmp(rows[i].name, "h100", 4) == 0)
            cr_expect_lt(t->peak_fp16_flop_per_s * t->matmul_efficiency, 0.9 * full, "%s",
                         rows[i].name);
        ty_cluster_free(c);
    }
}

static uint64_t room_of(const char *line, double reserve)
{
    ty_cluster *c = NULL;
    ty_error error = {0};
    uint64_t bytes;

    cr_assert_eq(ty_cluster_open(line, NULL, &c, &error), TY_OK, "%s", error.message);
    bytes = ty_device_room_bytes(ty_cluster_device_type(c, 0), reserve);
    ty_cluster_free(c);
    return bytes;
}

/* Usable memory is less than that of the data sheet, and scales with it. */
Test(catalogue, usable_memory)
{
    const ty_cluster_edit half = {
        .part = TY_PART_DEVICES, .field = "memory_bytes", .value = 0.5, .is_factor = true};
    ty_cluster *c = NULL, *edited = NULL;
    const ty_device_type *h100;

    cr_assert_eq(ty_cluster_open("1x dgx-h100", NULL, &c, NULL), TY_OK);
    h100 = ty_cluster_device_type(c, 0);
    cr_expect_eq(h100->memory_bytes, 80ull << 30);
    cr_expect_float_eq((double)ty_device_usable_bytes(h100) / 0x1p30, 79.1, 1e-6);
    cr_expect_float_eq((double)ty_device_room_bytes(h100, 0.04) / 0x1p30, 0.96 * 79.1, 1e-6);
    cr_assert_eq(ty_cluster_edited(c, &half, 1, &edited, NULL), TY_OK);
    cr_expect_float_eq((double)ty_device_usable_bytes(ty_cluster_device_type(edited, 0)) / 0x1p30,
                       79.1 / 2, 1e-6);
    ty_cluster_free(edited);
    ty_cluster_free(c);
    cr_expect_eq(room_of("host:1 gpu:2 @mine{like=h100,memory=90GiB} pcie4 hdr200", 0), 90ull << 30,
                 "of another size it is not known");
    cr_expect_eq(room_of("host:1 gpu:2 @mine{like=h100,fp8=1e15} pcie4 hdr200", 0),
                 room_of("1x dgx-h100", 0));
    cr_expect_eq(room_of("1x p100-server", 0), 16ull << 30, "nobody says less");
}

/* No device has more usable memory than its data sheet states. */
Test(catalogue, no_more_is_usable_than_there_is)
{
    static const char json[] =
        "{\"schema\": \"trainyard.cluster/1\", \"name\": \"toy\", \"device_types\": "
        "[{\"name\": \"d\", \"source\": \"made by hand\", \"peak_fp32_flop_per_s\": 1e9, "
        "\"peak_tf32_flop_per_s\": 0, \"peak_fp16_flop_per_s\": 0, "
        "\"memory_bandwidth_bytes_per_s\": 1e9, \"launch_overhead_s\": 0, "
        "\"matmul_efficiency\": 1, \"memory_efficiency\": 1, \"core_share\": 0, \"power_w\": 1, "
        "\"memory_bytes\": 1000, \"usable_memory_bytes\": 1001}], \"link_types\": [], "
        "\"vertices\": [], \"links\": []}";
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_parse(json, "toy", &c, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "usable_memory_bytes up to memory_bytes"), "%s",
                       error.message);
}
