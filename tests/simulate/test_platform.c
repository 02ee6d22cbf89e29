/* The SimGrid platform of a cluster, loaded by SimGrid itself: every message must have the latency
 * and bandwidth of ty_cluster_path, and share links as in the graph. */
#include "platform.h"

#include "../quick.h"

#include <criterion/criterion.h>
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* One message; those with one start run concurrently. */
typedef struct message {
    uint32_t from, to;
    double bytes;
    double seconds; /* measured */
    double latency_s, bandwidth_bytes_per_s;
} message;

typedef struct job {
    const ty_cluster *cluster;
    message *messages;
    size_t count;
    bool is_concurrent;
} job;

static const ty_transfer_time transfers[] = {{1000, 2e-6 + 1000 / 4e9, 0},
                                             {1000000, 2e-6 + 1000000 / 4e9, 0}};
static ty_profile profile(void)
{
    return (ty_profile){.cores = 4,
                        .memory_bytes = (uint64_t)8 << 30,
                        .peak_flop_per_s = 5e10,
                        .memory_bandwidth_bytes_per_s = 1e10,
                        .transfer_time_count = 2,
                        .transfer_times = (ty_transfer_time *)transfers};
}

static ty_cluster *open_cluster(const char *text)
{
    ty_profile local = profile();
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    ty_status status = text[0] == '{' ? ty_cluster_parse(text, "test", &cluster, &error)
                                      : ty_cluster_open(text, &local, &cluster, &error);
    cr_assert_eq(status, TY_OK, "%.60s: %s", text, error.message);
    return cluster;
}

/* ---- In the child ------------------------------------------------------------------------ */

static sg_host_t host_of(const ty_cluster *cluster, uint32_t device)
{
    char name[TY_SIMGRID_NAME_SIZE];
    if (ty_simgrid_host_name(cluster, device, name, NULL) != TY_OK)
        abort();
    return sg_host_by_name(name);
}

static job *current; /* of the child: an actor gets only text */

static void send_one(message *m)
{
    sg_host_t from = host_of(current->cluster, m->from), to = host_of(current->cluster, m->to);
    double start = simgrid_get_clock();
    m->latency_s = sg_host_get_route_latency(from, to);
    m->bandwidth_bytes_per_s = sg_host_get_route_bandwidth(from, to);
    sg_host_sendto(from, to, m->bytes);
    m->seconds = simgrid_get_clock() - start;
}

static void play_one(int argc, char **argv)
{
    (void)argc;
    send_one(&current->messages[strtoul(argv[1], NULL, 10)]);
}

static void play_all(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (size_t i = 0; i < current->count; i++)
        send_one(&current->messages[i]);
}

static void simulate(job *j, const char *path)
{
    char a0[] = "test", a1[] = "--cfg=network/model:CM02", a2[] = "--cfg=network/crosstraffic:0",
         a3[] = "--cfg=network/TCP-gamma:0", a4[] = "--log=xbt_cfg.thres:warning",
         a5[] = "--cfg=contexts/factory:thread";
    char *argv[] = {a0, a1, a2, a3, a4, a5, NULL};
    int argc = 6;

    current = j;
    simgrid_init(&argc, argv);
    simgrid_load_platform(path);
    for (size_t i = 0; i < (j->is_concurrent ? j->count : 1); i++) {
        char number[32];
        char name[] = "actor", *arguments[] = {name, number, NULL};
        snprintf(number, sizeof number, "%zu", i);
        sg_actor_start(sg_actor_init("actor", host_of(j->cluster, j->messages[i].from)),
                       j->is_concurrent ? play_one : play_all, 2, arguments);
    }
    simgrid_run();
}

/* ---- In the parent ----------------------------------------------------------------------- */

static void write_platform(const ty_cluster *cluster, int file)
{
    ty_text xml = {0};
    ty_error error = {0};
    ty_status status = ty_cluster_to_simgrid(cluster, &xml, &error);
    cr_assert_eq(status, TY_OK, "%s", error.message);
    cr_assert_eq(write(file, xml.data, xml.length), (ssize_t)xml.length);
    ty_text_clear(&xml);
}

/* Simulates the messages in a child process: SimGrid takes one platform per process. */
static void play(job *j)
{
    char path[] = "/tmp/test-platform-XXXXXX.xml";
    int file = mkstemps(path, 4), ends[2], state = 0;
    size_t bytes = j->count * sizeof(message), got = 0;
    pid_t child;

    cr_assert(file >= 0);
    write_platform(j->cluster, file);
    close(file);
    cr_assert_eq(pipe(ends), 0);
    fflush(NULL);
    child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        size_t sent = 0;
        simulate(j, path);
        while (sent < bytes) {
            ssize_t n = write(ends[1], (char *)j->messages + sent, bytes - sent);
            if (n <= 0)
                _exit(2);
            sent += (size_t)n;
        }
        _exit(0);
    }
    close(ends[1]);
    while (got < bytes) {
        ssize_t n = read(ends[0], (char *)j->messages + got, bytes - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(ends[0]);
    waitpid(child, &state, 0);
    unlink(path);
    cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0, "%s: SimGrid died (state %d)",
              ty_cluster_name(j->cluster), state);
    cr_assert_eq(got, bytes);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* All pairs of small clusters; of large ones a few hundred, spread evenly, in both directions. */
#define MOST_DEVICES 600 /* devices of a tested catalogue cluster: the largest have thousands */

static size_t choose_pairs(const ty_cluster *cluster, message *messages, size_t limit)
{
    uint64_t n = ty_cluster_device_count(cluster), pairs = n * n, count = 0;
    uint64_t stride = pairs <= limit ? 1 : pairs / limit + 1;

    if (stride > 1 && stride % n == 0)
        stride++;
    for (uint64_t p = 0; p < pairs; p += stride)
        if (p / n != p % n)
            messages[count++] =
                (message){.from = (uint32_t)(p / n), .to = (uint32_t)(p % n), .bytes = 1e10};
    return count;
}

static void check_cluster(const char *text)
{
    ty_cluster *cluster = open_cluster(text);
    message *messages = calloc(4096, sizeof *messages);
    job j = {.cluster = cluster, .messages = messages};

    j.count = choose_pairs(cluster, messages, 4096);
    cr_assert_eq(j.count > 0, ty_cluster_device_count(cluster) > 1, "%.60s", text);
    if (j.count > 0) /* a single device has no peer */
        play(&j);
    for (size_t i = 0; i < j.count; i++) {
        const message *m = &messages[i];
        ty_path path = {0};
        double expected;
        cr_assert_eq(ty_cluster_path(cluster, m->from, m->to, &path, NULL), TY_OK);
        expected = path.latency_s + m->bytes / path.bandwidth_bytes_per_s;
        cr_assert(is_near(m->latency_s, path.latency_s), "%.60s: %u -> %u: latency %g, not %g",
                  text, m->from, m->to, m->latency_s, path.latency_s);
        cr_assert(is_near(m->bandwidth_bytes_per_s, path.bandwidth_bytes_per_s),
                  "%.60s: %u -> %u: bandwidth %g, not %g", text, m->from, m->to,
                  m->bandwidth_bytes_per_s, path.bandwidth_bytes_per_s);
        cr_assert(is_near(m->seconds, expected), "%.60s: %u -> %u: %.9g s, not %.9g", text, m->from,
                  m->to, m->seconds, expected);
        ty_path_clear(&path);
    }
    free(messages);
    ty_cluster_free(cluster);
}

/* Two hosts of two devices on two unconnected rails: not a tree, so all pairs are written. */
#define TYPE                                                                                       \
    "{\"name\":\"d\",\"source\":\"test\",\"peak_fp32_flop_per_s\":1e12,"                           \
    "\"peak_tf32_flop_per_s\":0,\"peak_fp16_flop_per_s\":0,"                                       \
    "\"memory_bandwidth_bytes_per_s\":1e11,\"launch_overhead_s\":0,\"matmul_efficiency\":1,"       \
    "\"memory_efficiency\":1,\"core_share\":0,\"power_w\":0,\"memory_bytes\":1000000}"
#define LINK(name, bandwidth, latency)                                                             \
    "{\"name\":\"" name "\",\"source\":\"test\",\"bandwidth_bytes_per_s\":" bandwidth              \
    ",\"latency_s\":" latency "}"
#define DEVICE(name, host)                                                                         \
    "{\"name\":\"" name "\",\"kind\":\"device\",\"type\":\"d\",\"host\":\"" host "\"}"
#define VERTEX(name, kind) "{\"name\":\"" name "\",\"kind\":\"" kind "\"}"
#define JOIN(from, to, type) "{\"from\":\"" from "\",\"to\":\"" to "\",\"type\":\"" type "\"}"
static const char
    two_rails[] =
        "{\"schema\":\"trainyard.cluster/1\",\"name\":\"two rails\",\"device_types\":[" TYPE
        "],\"link_types\":[" LINK("in", "3e10",
                                  "1e-6") "," LINK("out", "1e10",
                                                   "5e-6") "],"
                                                           "\"vertices\":[" VERTEX("h0", "host") "," VERTEX("h1", "host") "," DEVICE("a", "h0") "," DEVICE("b", "h0") "," DEVICE("c", "h1") "," DEVICE("d", "h1") "," VERTEX("r0", "switch") "," VERTEX("r1", "switch") "],\"links\":[" JOIN("a",
                                                                                                                                                                                                                                                                                             "h0",
                                                                                                                                                                                                                                                                                             "in") "," JOIN("b", "h0", "in") "," JOIN("c",
                                                                                                                                                                                                                                                                                                                                      "h1", "in") "," JOIN("d", "h1", "in") "," JOIN("a",
                                                                                                                                                                                                                                                                                                                                                                                     "r0",
                                                                                                                                                                                                                                                                                                                                                                                     "out") "," JOIN("r0", "c", "out") "," JOIN("b",
                                                                                                                                                                                                                                                                                                                                                                                                                                "r1", "out") "," JOIN("d", "r1", "out") "," JOIN("h0", "r0", "out") "," JOIN("h1", "r1", "out") "," JOIN("h1", "r0", "out") "," JOIN("h0", "r1", "out") "]}";

Test(platform, messages_meet_the_paths_of_catalogue_clusters)
{
    char **names = NULL, text[64];
    uint32_t count = 0, hosts = 0;
    ty_error error = {0};

    cr_assert_eq(ty_catalogue_list(&names, &count, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i += quick_or_all(4, 1)) {
        ty_cluster *cluster =
            NULL; /* the catalogue has hosts, to be multiplied, and complete clusters */
        snprintf(text, sizeof text, "3x %s", names[i]);
        if (ty_cluster_open(text, NULL, &cluster, NULL) == TY_OK) {
            check_cluster(text);
            hosts++;
        }
        ty_cluster_free(cluster);
        cluster = open_cluster(names[i]);
        if (ty_cluster_device_count(cluster) <= MOST_DEVICES)
            check_cluster(names[i]);
        ty_cluster_free(cluster);
    }
    cr_assert(hosts > 4 && hosts < count, "%u hosts of %u names", hosts, count);
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
}

Test(platform, messages_meet_the_paths_of_described_and_written_clusters)
{
    static const char *const texts[] = {
        "host:2 gpu:2 @p100-pcie-16gb pcie3 eth25 nics=2",
        "leaf:4 host:3 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2",
        "pod:4 leaf:8 host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2",
        "local:4",
        two_rails,
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_cluster(texts[i]);
}

/* Concurrent messages, and the expected time of each, relative to a single message. */
Test(platform, links_are_shared_in_one_direction_only)
{
    static const struct {
        const char *name, *text;
        message messages[3];
        size_t count;
        double expected[3]; /* seconds on the narrowest link, in addition to the latency */
    } rows[] = {
        {"two out of one NIC",
         "2x p100-server",
         {{0, 4, 1e10, 0, 0, 0}, {1, 5, 1e10, 0, 0, 0}},
         2,
         {2e10 / 2.942e9, 2e10 / 2.942e9}},
        {"out and in",
         "2x p100-server",
         {{0, 4, 1e10, 0, 0, 0}, {5, 1, 1e10, 0, 0, 0}},
         2,
         {1e10 / 2.942e9, 1e10 / 2.942e9}},
        {"inside and out",
         "2x p100-server",
         {{0, 1, 1e10, 0, 0, 0}, {2, 4, 1e10, 0, 0, 0}},
         2,
         {1e10 / 12e9, 1e10 / 2.942e9}},
        /* Uplinks of a leaf with three NICs, oversubscribed 3:1: three messages share 50 GB/s. */
        {"oversubscribed uplink",
         "leaf:2 host:3 gpu:1 @h100-sxm pcie5 ndr400 oversub:3",
         {{0, 3, 1e10, 0, 0, 0}, {1, 4, 1e10, 0, 0, 0}, {2, 5, 1e10, 0, 0, 0}},
         3,
         {3e10 / 50e9, 3e10 / 50e9, 3e10 / 50e9}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *cluster = open_cluster(rows[i].text);
        message messages[3];
        job j = {cluster, messages, rows[i].count, true};
        memcpy(messages, rows[i].messages, sizeof messages);
        play(&j);
        for (size_t m = 0; m < rows[i].count; m++) {
            double expected = messages[m].latency_s + rows[i].expected[m];
            cr_assert(fabs(messages[m].seconds - expected) <= 1e-4 * expected,
                      "%s, message %zu: %g s, not %g", rows[i].name, m, messages[m].seconds,
                      expected);
        }
        ty_cluster_free(cluster);
    }
}

Test(platform, hosts_with_shared_cores_are_one)
{
    ty_cluster *cluster = open_cluster("local:3");
    char first[TY_SIMGRID_NAME_SIZE], last[TY_SIMGRID_NAME_SIZE];
    ty_text xml = {0};
    ty_error error = {0};

    cr_assert_eq(ty_simgrid_host_name(cluster, 0, first, NULL), TY_OK);
    cr_assert_eq(ty_simgrid_host_name(cluster, 2, last, NULL), TY_OK);
    cr_assert_str_eq(first, "host-0");
    cr_assert_str_eq(last, "host-0");
    cr_assert_eq(ty_simgrid_host_name(cluster, 3, last, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "device 3"), "%s", error.message);
    cr_assert_eq(ty_simgrid_platform(cluster, &xml, NULL), TY_OK);
    cr_assert_not_null(strstr(xml.data, "<host id=\"host-0\" speed=\"1000000000f\" core=\"4\"/>"),
                       "%s", xml.data);
    ty_text_clear(&xml);
    ty_cluster_free(cluster);
}

Test(platform, refuses_what_would_take_too_many_routes)
{
    ty_cluster *cluster = open_cluster("host:1 gpu:600 @h100-sxm nvlink4 ndr400");
    ty_text xml = {0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_to_simgrid(cluster, &xml, &error), TY_EUNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "600 devices"), "%s", error.message);
    cr_assert_eq(xml.length, 0);
    ty_cluster_free(cluster);
}

Test(platform, survives_failed_allocations)
{
    static const char *const texts[] = {"2x p100-server", "local:3"};
    for (size_t i = 0; i < 2; i++) {
        ty_cluster *cluster = open_cluster(texts[i]);
        ty_status status = TY_ENOMEM;
        long n = 1;
        for (; status == TY_ENOMEM && n < 100000; n++) {
            ty_text xml = {0};
            ty_memory_fail_after(n);
            status = ty_cluster_to_simgrid(cluster, &xml, NULL);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "%s: allocation %ld: status %d",
                      texts[i], n, status);
            ty_text_clear(&xml);
        }
        cr_assert_eq(status, TY_OK);
        cr_assert_gt(n, 5);
        ty_cluster_free(cluster);
    }
}

static uint32_t device_named(const ty_cluster *cluster, const char *name)
{
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++)
        if (strcmp(ty_cluster_vertex_name(cluster, ty_cluster_device_vertex(cluster, d)), name) ==
            0)
            return d;
    cr_assert_fail("no device \"%s\"", name);
    return 0;
}

static bool is_close(double found, double expected)
{
    return fabs(found - expected) <= 1e-6 * expected;
}

/* Between all devices, as far as a single message can show. */
static void check_same_paths(const ty_cluster *before, const ty_cluster *after)
{
    uint32_t count = ty_cluster_device_count(before);

    for (uint32_t i = 0; i < count * count; i++) {
        uint32_t ends[2] = {i / count, i % count}, same[2];
        ty_path expected = {0}, found = {0};
        for (int k = 0; k < 2; k++) {
            char name[TY_SIMGRID_NAME_SIZE + 8], host[TY_SIMGRID_NAME_SIZE];
            cr_assert_eq(ty_simgrid_host_name(before, ends[k], host, NULL), TY_OK);
            snprintf(name, sizeof name, "%s/cpu", host);
            same[k] = device_named(after, name);
            cr_assert_float_eq(ty_cluster_device_type(after, same[k])->peak_fp32_flop_per_s,
                               ty_cluster_device_type(before, ends[k])->peak_fp32_flop_per_s, 1);
        }
        cr_assert_eq(ty_cluster_path(before, ends[0], ends[1], &expected, NULL), TY_OK);
        cr_assert_eq(ty_cluster_path(after, same[0], same[1], &found, NULL), TY_OK);
        cr_assert(ends[0] == ends[1] ||
                      (is_close(found.latency_s, expected.latency_s) &&
                       is_close(found.bandwidth_bytes_per_s, expected.bandwidth_bytes_per_s)),
                  "%s, %u to %u: %g s and %g bytes/s, expected %g and %g", ty_cluster_name(before),
                  ends[0], ends[1], found.latency_s, found.bandwidth_bytes_per_s,
                  expected.latency_s, expected.bandwidth_bytes_per_s);
        ty_path_clear(&expected);
        ty_path_clear(&found);
    }
}

Test(platform, exported_ones_come_back)
{
    static const char *const texts[] = {
        "dgx1-v100",
        "2x p100-server",
        "3x dgx-a100",
        "2x dgx1-v100 + 1x p100-server",
        "leaf:2 host:2 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2",
        "torus:4x4 @tpu-v4 ici-v4 host:4",
        "cloud-to-edge",
        "pod:2 leaf:2 host:2 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_cluster *before = open_cluster(texts[i]), *after = NULL;
        ty_text xml = {0};
        ty_error error = {0};
        cr_assert_eq(ty_cluster_to_simgrid(before, &xml, &error), TY_OK, "%s", error.message);
        cr_assert_eq(
            ty_cluster_import_text(xml.data, xml.length, texts[i], NULL, &after, NULL, &error),
            TY_OK, "%s", error.message);
        cr_assert_eq(ty_cluster_device_count(after), ty_cluster_device_count(before));
        check_same_paths(before, after);
        ty_text_clear(&xml);
        ty_cluster_free(after);
        ty_cluster_free(before);
    }
}
