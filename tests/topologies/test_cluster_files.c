/* trainyard.cluster/1: round trips, refusals, memory that runs out. */
#include "samples.h"

#include "../quick.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPE                                                                                       \
    "{\"name\":\"d\",\"source\":\"test\",\"peak_fp32_flop_per_s\":1e12,"                           \
    "\"peak_tf32_flop_per_s\":0,\"peak_fp16_flop_per_s\":0,"                                       \
    "\"memory_bandwidth_bytes_per_s\":1e11,\"launch_overhead_s\":0,\"matmul_efficiency\":1,"       \
    "\"memory_efficiency\":0.5,\"core_share\":0,\"power_w\":0,\"memory_bytes\":1000000}"

/* Two hosts of one device each on a switch. */
static const char good[] =
    "{\"schema\":\"trainyard.cluster/1\",\"name\":\"pair\",\"device_types\":[" TYPE
    "],\"link_types\":[{\"name\":\"wire\",\"source\":\"test\",\"bandwidth_bytes_per_s\":1e9,"
    "\"latency_s\":1e-6,\"transport\":\"tcp\",\"flows\":4}],\"vertices\":["
    "{\"name\":\"a\",\"kind\":\"device\",\"type\":\"d\",\"host\":\"ha\"},"
    "{\"name\":\"ha\",\"kind\":\"host\",\"cores\":2},"
    "{\"name\":\"b\",\"kind\":\"device\",\"type\":\"d\",\"host\":\"hb\"},"
    "{\"name\":\"hb\",\"kind\":\"host\",\"is_staged\":true},{\"name\":\"s\",\"kind\":\"switch\"}],"
    "\"links\":["
    "{\"from\":\"a\",\"to\":\"ha\",\"type\":\"wire\",\"lanes\":2.5},"
    "{\"from\":\"b\",\"to\":\"hb\",\"type\":\"wire\"},"
    "{\"from\":\"ha\",\"to\":\"s\",\"type\":\"wire\"},"
    "{\"from\":\"s\",\"to\":\"hb\",\"type\":\"wire\"}]}";

/* `good` with the first occurrence of `find` replaced; to be freed. */
static char *edited(const char *find, const char *replacement)
{
    const char *at = strstr(good, find);
    size_t head, size = strlen(good) + strlen(replacement) + 1;
    char *text = malloc(size);

    cr_assert_not_null(at, "%s", find);
    head = (size_t)(at - good);
    snprintf(text, size, "%.*s%s%s", (int)head, good, replacement, at + strlen(find));
    return text;
}

Test(cluster_json, is_read_as_written)
{
    ty_cluster *c = sample_open(good);
    const ty_link_edge *link = ty_cluster_link(c, 0);

    cr_assert_str_eq(ty_cluster_name(c), "pair");
    cr_assert_eq(ty_cluster_device_count(c), 2);
    cr_assert_eq(ty_cluster_host_cores(c, 0), 2);
    cr_assert_eq(ty_cluster_host_cores(c, 1), 0);
    cr_assert_eq(ty_cluster_device_vertex(c, 1), 2);
    cr_assert_str_eq(ty_cluster_vertex_name(c, 4), "s");
    cr_assert_eq(ty_cluster_vertex_kind(c, 4), TY_VERTEX_SWITCH);
    cr_assert_str_eq(link->kind, "wire");
    cr_assert_eq(link->transport, TY_LINK_TCP);
    cr_assert_eq(link->flows, 4);
    cr_assert_not(ty_cluster_host_is_staged(c, 0));
    cr_assert(ty_cluster_host_is_staged(c, 1));
    cr_assert(link->bandwidth_bytes_per_s > 2.4999e9 && link->bandwidth_bytes_per_s < 2.5001e9);
    ty_cluster_free(c);
}

Test(cluster_json, round_trips_with_the_same_digest)
{
    static const char *const texts[] = {
        "2x dgx1-v100",
        "2x dgx1-v100-32gb",
        "2x p100-server",
        "2x dgx-a100",
        "2x dgx-a100-40gb",
        "2x dgx-h100",
        "leaf:3 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:7",
        "pod:2 leaf:2 host:1 gpu:3 @a100-sxm4-40gb pcie4 hdr200 oversub:1.1",
        "host:2 gpu:4 @a100-sxm4-40gb nvlink3 eth100 nics=2",
        "local:3",
        good};
    ty_digest previous = {""};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_cluster *c = sample_open(texts[i]), *again;
        char *json = sample_json(c), *json_again;
        ty_digest digest, digest_again;
        again = sample_open(json);
        json_again = sample_json(again);
        cr_assert_str_eq(json, json_again, "%.60s", texts[i]);
        cr_assert_eq(ty_cluster_digest(c, &digest, NULL), TY_OK);
        cr_assert_eq(ty_cluster_digest(again, &digest_again, NULL), TY_OK);
        cr_assert_str_eq(digest.hex, digest_again.hex, "%.60s", texts[i]);
        cr_assert_str_neq(digest.hex, previous.hex, "%.60s", texts[i]);
        cr_assert_str_eq(ty_cluster_name(c), ty_cluster_name(again));
        previous = digest;
        ty_free(json);
        ty_free(json_again);
        ty_cluster_free(c);
        ty_cluster_free(again);
    }
}

Test(cluster_json, is_opened_from_files)
{
    char path[] = "/tmp/test-cluster-XXXXXX.json";
    int file = mkstemps(path, 5);
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert(file >= 0);
    cr_assert_eq(write(file, good, strlen(good)), (ssize_t)strlen(good));
    cr_assert_eq(ty_cluster_open(path, NULL, &c, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_device_count(c), 2);
    ty_cluster_free(c);
    c = NULL;
    cr_assert_eq(ftruncate(file, 100), 0);
    cr_assert_eq(ty_cluster_open(path, NULL, &c, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, path), "%s", error.message);
    cr_assert_null(c);
    close(file);
    unlink(path);
}

Test(cluster_json, refuses_bad_content)
{
    static const struct {
        const char *find, *replacement;
        const char *part; /* of the message */
    } rows[] = {
        {"cluster/1", "cluster/2", "/schema"},
        {"\"name\":\"pair\"", "\"name\":\"\"", "/name"},
        {"\"name\":\"pair\"", "\"nmae\":\"pair\"", "name"},
        {"\"name\":\"pair\"", "\"name\":\"pair\",\"extra\":1", "/extra"},
        {"\"power_w\":0", "\"power_w\":-1", "/device_types/0/power_w"},
        {"\"power_w\":0", "\"power_w\":NaN", "test"},
        {"\"power_w\":0", "\"power_w\":1e999", "test"},
        {"\"power_w\":0", "\"power_w\":\"0\"", "/device_types/0/power_w"},
        {"\"power_w\":0,", "", "power_w"},
        {"\"power_w\":0", "\"power_w\":0,\"power_kw\":0", "/device_types/0/power_kw"},
        {"\"memory_efficiency\":0.5", "\"memory_efficiency\":1.5", "memory_efficiency"},
        {"\"memory_efficiency\":0.5", "\"memory_efficiency\":0", "memory_efficiency"},
        {"\"memory_bytes\":1000000", "\"memory_bytes\":0", "memory_bytes"},
        {"\"memory_bytes\":1000000", "\"memory_bytes\":1.5", "memory_bytes"},
        {TYPE, TYPE "," TYPE, "/device_types/1"},
        {TYPE, "", "/device_types"},
        {"\"bandwidth_bytes_per_s\":1e9", "\"bandwidth_bytes_per_s\":0", "/link_types/0"},
        {"\"bandwidth_bytes_per_s\":1e9", "\"bandwidth_bytes_per_s\":1e30", "/link_types/0"},
        {"\"latency_s\":1e-6", "\"latency_s\":-1e-6", "/link_types/0/latency_s"},
        {"\"latency_s\":1e-6", "\"latency_us\":1", "latency_s"},
        {"\"kind\":\"switch\"", "\"kind\":\"swich\"", "/vertices/4/kind"},
        {"\"name\":\"s\",", "\"name\":\"a\",", "a name that no other vertex has"},
        {"\"type\":\"d\"", "\"type\":\"e\"", "/vertices/0"},
        {"\"host\":\"ha\"", "\"host\":\"s\"", "/vertices/0"},
        {"\"host\":\"ha\"", "\"host\":\"hc\"", "/vertices/0"},
        {",\"host\":\"ha\"", "", "host"},
        {"\"cores\":2", "\"cores\":0", "/vertices/1/cores"},
        {"\"kind\":\"switch\"", "\"kind\":\"switch\",\"cores\":2", "/vertices/4/cores"},
        {"\"from\":\"a\"", "\"from\":\"x\"", "/links/0"},
        {"\"from\":\"a\",\"to\":\"ha\"", "\"from\":\"a\",\"to\":\"a\"", "/links/0"},
        {"\"type\":\"wire\",\"lanes\":2.5", "\"type\":\"rope\"", "/links/0"},
        {"\"lanes\":2.5", "\"lanes\":0", "/links/0/lanes"},
        {"\"lanes\":2.5", "\"lanes\":-2", "/links/0/lanes"},
        /* disconnected, in two ways; a device that others would have to route through */
        {"{\"from\":\"b\",\"to\":\"hb\",\"type\":\"wire\"},", "", "/vertices/2"},
        {",{\"from\":\"s\",\"to\":\"hb\",\"type\":\"wire\"}", "", "/vertices/2"},
        {"{\"from\":\"b\",\"to\":\"hb\"", "{\"from\":\"b\",\"to\":\"a\"", "do not forward"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = edited(rows[i].find, rows[i].replacement);
        ty_cluster *c = NULL;
        ty_error error = {0};
        ty_status status = ty_cluster_parse(text, "test", &c, &error);
        cr_assert_eq(status, TY_EPARSE, "%s: status %d, %s", rows[i].replacement, status,
                     error.message);
        cr_assert_null(c);
        cr_assert_eq(strncmp(error.message, "test:", 5), 0, "%s: %s", rows[i].replacement,
                     error.message);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s: %s lacks %s",
                           rows[i].replacement, error.message, rows[i].part);
        free(text);
    }
}

Test(cluster_json, refuses_every_truncation)
{
    char text[sizeof good];

    for (size_t length = 0; length + 1 < sizeof good; length++) {
        ty_cluster *c = NULL;
        memcpy(text, good, length);
        text[length] = '\0';
        cr_assert_eq(ty_cluster_parse(text, "test", &c, NULL), TY_EPARSE, "%zu bytes", length);
        cr_assert_null(c);
    }
}

/* ---- Memory that runs out ---------------------------------------------------------------- */

typedef ty_status (*attempt)(const ty_cluster *pair);

static ty_status try_text(const char *text)
{
    ty_profile local = sample_profile();
    ty_cluster *c = NULL;
    ty_status status = ty_cluster_open(text, &local, &c, NULL);
    ty_cluster_free(c);
    return status;
}

static ty_status try_hosts(const ty_cluster *pair)
{
    (void)pair;
    return try_text("2x p100-server");
}

static ty_status try_levels(const ty_cluster *pair)
{
    (void)pair;
    return try_text("pod:2 leaf:2 host:1 gpu:1 @h100 nvlink4 ndr400");
}

static ty_status try_local(const ty_cluster *pair)
{
    (void)pair;
    return try_text("local:2");
}

static ty_status try_json(const ty_cluster *pair)
{
    ty_cluster *c = NULL;
    ty_status status = ty_cluster_parse(good, "test", &c, NULL);
    (void)pair;
    ty_cluster_free(c);
    return status;
}

static ty_status try_digest(const ty_cluster *pair)
{
    ty_digest digest;
    return ty_cluster_digest(pair, &digest, NULL);
}

static ty_status try_path(const ty_cluster *pair)
{
    ty_path path = {0};
    ty_status status = ty_cluster_path(pair, 0, 1, &path, NULL);
    ty_path_clear(&path);
    return status;
}

static ty_status try_ring(const ty_cluster *pair)
{
    static const uint32_t devices[] = {0, 1};
    double bandwidth, latency;
    return ty_cluster_ring(pair, devices, 2, &bandwidth, &latency, NULL);
}

static ty_status try_bisection(const ty_cluster *pair)
{
    double bandwidth;
    return ty_cluster_bisection(pair, &bandwidth, NULL);
}

static ty_status try_list(const ty_cluster *pair)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_status status = ty_catalogue_list(&names, &count, NULL);
    (void)pair;
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
    return status;
}

Test(memory, every_failed_allocation_is_reported)
{
    static const struct {
        const char *name;
        attempt run;
    } rows[] = {{"hosts", try_hosts}, {"levels", try_levels}, {"local", try_local},
                {"json", try_json},   {"digest", try_digest}, {"path", try_path},
                {"ring", try_ring},   {"list", try_list},     {"bisection", try_bisection}};
    ty_cluster *pair = sample_open(good);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_status status = TY_ENOMEM;
        long n = 1;
        for (; status == TY_ENOMEM && n < 1000000; n += is_quick() ? 1 + n / 50 : 1) {
            ty_memory_fail_after(n);
            status = rows[i].run(pair);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "%s: allocation %ld: status %d",
                      rows[i].name, n, status);
        }
        cr_assert_eq(status, TY_OK, "%s", rows[i].name);
        cr_assert_gt(n, 2, "%s", rows[i].name);
    }
    ty_cluster_free(pair);
}
