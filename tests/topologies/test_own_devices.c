/* Devices of one's own in a description, and those of the catalogue's later years. */
#include "samples.h"

#include <criterion/criterion.h>
#include <string.h>

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

/* But for what is said, as another device; twice in one line. */
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

/* By the short names people write; half-precision rates of the data sheets. */
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
        {"gh200", 989.4e12, 141},
        {"b200", 2250e12, 180},
        {"b300", 2250e12, 268},
        {"gb300", 2500e12, 268},
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

/* Peaks of eight and four bits are dense: of sparse ones, which data sheets print, half. What a
 * device reaches of them is known of all that train today; less power leaves less. */
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
