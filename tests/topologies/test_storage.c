/* Storage of clusters: in a line, in files, edited, and errors in it. */
#include "samples.h"

#include <criterion/criterion.h>
#include <string.h>

Test(storage, is_what_is_said)
{
    ty_cluster *c = sample_open("2x dgx-a100 storage=page-cache{capacity=1TB} storage=nvme-raid "
                                "storage=mine{bandwidth=65GB/s,host=8GB/s,latency=2ms,requests=64,"
                                "request=4MiB}");
    const ty_storage *cache = ty_cluster_storage(c, 0), *mine = ty_cluster_storage(c, 2);

    cr_assert_eq(ty_cluster_storage_count(c), 3);
    cr_assert_eq(ty_cluster_device_count(c), 16);
    cr_assert_str_eq(cache->name, "page-cache");
    cr_assert_not(cache->is_shared);
    cr_assert_float_eq(cache->capacity_bytes, 1e12, 1);
    cr_assert_not_null(strstr(cache->source, "what the description says"));
    cr_assert_not_null(strstr(ty_cluster_storage(c, 1)->source, "DGX A100"));
    cr_assert(mine->is_shared && mine->requests == 64 && mine->latency_s == 2e-3);
    cr_assert_float_eq(mine->bandwidth_bytes_per_s, 65e9, 1);
    cr_assert_float_eq(mine->host_bytes_per_s, 8e9, 1);
    cr_assert_float_eq(mine->request_bytes, 4194304, 1e-9);
    ty_cluster_free(c);
}

/* Anywhere in the line, after any cluster name; a user-defined name with a capacity is a cache. */
Test(storage, stands_anywhere)
{
    static const char *const lines[] = {
        "storage=nas 4x p4d.24xlarge",
        "host:4 storage=nas gpu:8 @h100 nvlink4 ndr400",
        "[4x p4d.24xlarge] + [4x ND96asr_v4] wan10 storage=nas",
        "horovod-p100 storage=nas",
        "8x A100 storage=nas",
        "torus:4x4 @tpu-v4 ici-v4 host:4 storage=nas",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ty_cluster *c = sample_open(lines[i]);
        cr_expect_eq(ty_cluster_storage_count(c), 1, "%s", lines[i]);
        cr_expect_str_eq(ty_cluster_name(c), lines[i]);
        ty_cluster_free(c);
    }
    ty_cluster *own = sample_open(
        "1x dgx-a100 storage=c{bandwidth=1GB/s,capacity=1GB} storage=d{bandwidth=1GB/s}");
    cr_assert(!ty_cluster_storage(own, 0)->is_shared && ty_cluster_storage(own, 1)->is_shared);
    ty_cluster_free(own);
}

Test(storage, local_ranks_have_it_too)
{
    uint32_t ranks = 0;

    cr_assert(ty_cluster_is_local("local:2 storage=nvme", &ranks) && ranks == 2);
    cr_assert(ty_cluster_is_local("local storage=nvme", &ranks) && ranks == 0);
    cr_assert_not(ty_cluster_is_local("local:2 nvme", &ranks));
    cr_assert_not(ty_cluster_is_local("local:2x storage=nvme", &ranks));
}

Test(storage, goes_through_files)
{
    ty_cluster *c = sample_open("2x p100-server storage=nvme storage=s3"), *read = NULL;
    ty_cluster *impaired = NULL;
    ty_error error = {0};
    double factors[256];
    char *text = NULL, *again = NULL;

    cr_assert_eq(ty_cluster_text(c, &text, &error), TY_OK);
    cr_assert_eq(ty_cluster_parse(text, "c.json", &read, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_text(read, &again, &error), TY_OK);
    cr_assert_str_eq(text, again);
    cr_assert_leq(ty_cluster_link_count(c), 256);
    for (uint32_t l = 0; l < ty_cluster_link_count(c); l++)
        factors[l] = 0.5;
    cr_assert_eq(ty_cluster_impaired(c, factors, &impaired, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_storage_count(impaired), 2);
    ty_cluster_free(impaired);
    ty_cluster_free(read);
    ty_cluster_free(c);
    ty_free(again);
    ty_free(text);
}

Test(storage, figures_are_edited)
{
    ty_cluster *c = sample_open("2x p100-server storage=nvme storage=nas"), *made = NULL;
    const ty_cluster_edit edits[] = {
        {.part = TY_PART_STORAGE, .field = "bandwidth_bytes_per_s", .value = 2, .is_factor = true},
        {.part = TY_PART_STORAGE, .name = "nvme", .field = "capacity_bytes", .value = 5e9},
    };
    const ty_cluster_edit none = {.part = TY_PART_STORAGE, .name = "disk", .field = "latency_s"};
    const ty_cluster_edit slow = {
        .part = TY_PART_STORAGE, .field = "bandwidth_bytes_per_s", .value = 0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_edited(c, edits, 2, &made, &error), TY_OK, "%s", error.message);
    cr_assert_float_eq(ty_cluster_storage(made, 1)->bandwidth_bytes_per_s, 130e9, 1);
    cr_assert_float_eq(ty_cluster_storage(made, 0)->bandwidth_bytes_per_s, 7e9, 1);
    cr_assert_float_eq(ty_cluster_storage(made, 0)->capacity_bytes, 5e9, 1);
    cr_assert_float_eq(ty_cluster_storage(c, 1)->bandwidth_bytes_per_s, 65e9, 1);
    ty_cluster_free(made);
    cr_assert_eq(ty_cluster_edited(c, &none, 1, &made, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "has no storage \"disk\" with a latency_s"));
    cr_assert_eq(ty_cluster_edited(c, &slow, 1, &made, &error), TY_EPARSE);
    cr_assert_not_null(
        strstr(error.message, "found storage \"nas\" with bandwidth_bytes_per_s of 0"));
    ty_cluster_free(c);
}

Test(storage, what_is_wrong_with_it)
{
    static const struct {
        const char *words, *part;
    } rows[] = {
        {"storage=", "expected a name behind it"},
        {"storage=naz", "did you mean \"nas\""},
        {"storage=mine", "{bandwidth=RATE} behind a name of its own"},
        {"storage=mine{latency=1ms}", "{bandwidth=RATE} behind a name of its own"},
        {"storage=mine{bandwidth=0}", "bandwidth: found \"0\", expected a bandwidth"},
        {"storage=nas{bandwidth=fast}", "bandwidth: found \"fast\""},
        {"storage=nas{latency=1h1}", "latency: found \"1h1\""},
        {"storage=nas{requests=0}", "requests: found \"0\""},
        {"storage=nas{capacity=0}", "capacity: found \"0\""},
        {"storage=nas{shared=maybe}", "shared: found \"maybe\", expected yes or no"},
        {"storage=nas{bandwith=1GB/s}", "did you mean \"bandwidth\""},
        {"storage=nas{bandwidth=1GB/s", "expected storage=NAME or storage=NAME{KEY=VALUE,...}"},
        {"storage=nvme{host=1GB/s}", "host: found \"a rate\", expected none"},
        {"storage=nas storage=nas", "found storage \"nas\" twice"},
        {"storage=nas storage=nvme", "found storage \"nvme\" behind \"nas\", which hosts share"},
        {"storage=a{bandwidth=1GB/s,shared=no} storage=nas", "which holds everything"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = NULL;
        ty_error error = {0};
        char line[160];
        snprintf(line, sizeof line, "2x p100-server %s", rows[i].words);
        cr_expect_eq(ty_cluster_open(line, NULL, &c, &error), TY_EPARSE, "%s", line);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "%s: %s", line, error.message);
    }
}

Test(storage, what_is_wrong_in_files)
{
    static const struct {
        const char *from, *to, *part;
    } rows[] = {
        {"\"is_shared\": true", "\"is_shared\": 1", "/storage/1/is_shared"},
        {"\"requests\": 32", "\"requests\": 0", "/storage/0/requests: found 0"},
        {"\"latency_s\": 0.0001", "\"latency_s\": -1", "/storage/0/latency_s: found -1"},
        {"\"name\": \"nas\"", "\"name\": \"nvme\"", "/storage/1"},
        {"\"host_bytes_per_s\"", "\"host_bytes\"", "host_bytes"},
        {"\"capacity_bytes\": 3840000000000", "\"capacity_bytes\": 0", "holds everything"},
    };
    ty_cluster *c = sample_open("1x p100-server storage=nvme storage=nas");
    char *text = NULL;

    cr_assert_eq(ty_cluster_text(c, &text, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = strstr(text, rows[i].from);
        ty_text changed = {0};
        ty_cluster *read = NULL;
        ty_error error = {0};
        cr_assert_not_null(at, "%s: %s", rows[i].from, text);
        ty_text_append(&changed, text, (size_t)(at - text));
        ty_text_addf(&changed, "%s%s", rows[i].to, at + strlen(rows[i].from));
        cr_expect_eq(ty_cluster_parse(changed.data, "c.json", &read, &error), TY_EPARSE, "%s",
                     rows[i].to);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "%s: %s", rows[i].to, error.message);
        ty_text_clear(&changed);
    }
    ty_free(text);
    ty_cluster_free(c);
}
