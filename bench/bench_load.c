/* Cost of reading, as JSON on stdout: CPU time and peak memory of one workload, of a fat tree of
 * 16,384 devices, of its equivalence classes, and of a profiler trace of 300 MB. Each has its own
 * process. Run from the source tree or with TRAINYARD_DATA set. */
#include "timing.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS 9 /* at most; the median is printed */
#define SECONDS_PER_ROW 2.0

/* 16 pods of 8 leaves of 16 hosts of 8 devices */
#define TREE "pod:16 leaf:8 host:16 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2"
#define TREE_OF_HOSTS "pod:16 leaf:8 host:16 dgx-h100 oversub:2"
/* two levels of 128 leaves, wired as a full bisection */
#define PLATFORM                                                                                   \
    "<platform version=\"4.1\"><cluster id=\"c\" prefix=\"n\" radical=\"0-16383\" suffix=\"\" "    \
    "speed=\"1Tf\" bw=\"50GBps\" lat=\"1us\" topology=\"FAT_TREE\" "                               \
    "topo_parameters=\"2;128,128;1,16;1,8\"/></platform>"

typedef struct subject {
    ty_cluster *cluster; /* for the analyses */
    const char *path;    /* of the trace */
} subject;

typedef ty_status (*work_function)(const subject *s, ty_error *error);

static ty_status open_workload(const subject *s, ty_error *error)
{
    ty_workload *workload = NULL;
    ty_status status = ty_workload_open("gpt3-175b", &workload, error);

    (void)s;
    ty_workload_free(workload);
    return status;
}

static ty_status open_cluster(const char *line, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status = ty_cluster_open(line, NULL, &cluster, error);

    ty_cluster_free(cluster);
    return status;
}

static ty_status open_tree(const subject *s, ty_error *error)
{
    (void)s;
    return open_cluster(TREE, error);
}

static ty_status open_tree_of_hosts(const subject *s, ty_error *error)
{
    (void)s;
    return open_cluster(TREE_OF_HOSTS, error);
}

static ty_status import_platform(const subject *s, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status = ty_cluster_import_text(PLATFORM, sizeof PLATFORM - 1, "fat-tree.xml", NULL,
                                              &cluster, NULL, error);

    (void)s;
    ty_cluster_free(cluster);
    return status;
}

static ty_status find_classes(const subject *s, ty_error *error)
{
    uint32_t *classes = ty_alloc(ty_cluster_device_count(s->cluster), sizeof *classes), count;
    ty_status status = classes == NULL
                           ? ty_fail(error, TY_ENOMEM, "out of memory")
                           : ty_cluster_classes(s->cluster, classes, &count, NULL, error);

    ty_free(classes);
    return status;
}

static ty_status find_bisection(const subject *s, ty_error *error)
{
    double bandwidth;

    return ty_cluster_bisection(s->cluster, &bandwidth, error);
}

static ty_status import_trace(const subject *s, ty_error *error)
{
    ty_profile *profile = NULL;
    ty_status status = ty_profile_import_kineto(s->path, &profile, NULL, error);

    if (status == TY_OK)
        ty_profile_free(profile);
    return status;
}

/* ---- Measuring --------------------------------------------------------------------------- */

typedef struct result {
    double cpu_s; /* median */
    ty_status status;
    ty_error error;
} result;

static result repeat(work_function work, const subject *s)
{
    double seconds[RUNS], spent_s = 0;
    result r = {0};
    int runs = 0;

    while (r.status == TY_OK && runs < RUNS && spent_s < SECONDS_PER_ROW) {
        const double start_s = cpu_s();
        r.status = work(s, &r.error);
        seconds[runs] = cpu_s() - start_s;
        spent_s += seconds[runs++];
    }
    r.cpu_s = median(seconds, (size_t)runs);
    return r;
}

/* Measures in a child, which reports its peak memory at its end; memory of the parent counts,
 * too. */
static ty_status measure(const char *name, work_function work, const subject *s,
                         ty_json_writer *writer)
{
    int ends[2];
    pid_t child;
    result r = {.status = TY_EBACKEND};
    struct rusage usage = {0};

    if (pipe(ends) != 0 || (child = fork()) < 0)
        return TY_EIO;
    if (child == 0) {
        r = repeat(work, s);
        _exit(write(ends[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &r, sizeof r) != (ssize_t)sizeof r)
        r.status = TY_EBACKEND;
    close(ends[0]);
    wait4(child, NULL, 0, &usage);
    if (r.status != TY_OK) {
        fprintf(stderr, "bench_load: %s: %s\n", name, r.error.message);
        return r.status;
    }
    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_string(writer, "name", name);
    ty_json_put_number(writer, "cpu_s", r.cpu_s);
    ty_json_put_uint(writer, "peak_memory_bytes", (uint64_t)usage.ru_maxrss * 1024);
    ty_json_close(writer, '}');
    return TY_OK;
}

/* About 200 bytes per event, 5,000 names. */
static uint64_t write_trace(FILE *file)
{
    enum { EVENTS = 1500000, NAMES = 5000 };
    int bytes = fprintf(file, "{\"schemaVersion\": 1, \"traceEvents\": [\n");
    uint64_t all = (uint64_t)bytes;

    for (int i = 0; i < EVENTS && bytes > 0; i++) {
        bytes =
            fprintf(file,
                    "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"void some::name<space>::"
                    "kernel_%d\", \"pid\": 0, \"tid\": 7, \"ts\": %d.5, \"dur\": %d, \"args\": "
                    "{\"External id\": %d, \"device\": 0, \"stream\": 7, \"grid\": [1, 2, 3], "
                    "\"block\": [256, 1, 1]}}\n",
                    i > 0 ? ", " : "", i % 3 == 0 ? "cpu_op" : "kernel", i % NAMES, i, i % 10, i);
        all += (uint64_t)bytes;
    }
    return bytes > 0 && fprintf(file, "]}\n") > 0 && fclose(file) == 0 ? all + 3 : 0;
}

static ty_status measure_trace(ty_json_writer *writer)
{
    char path[] = "/tmp/trainyard-bench-XXXXXX";
    int file = mkstemp(path);
    uint64_t bytes = file < 0 ? 0 : write_trace(fdopen(file, "w"));
    ty_status status = TY_EIO;

    if (bytes >= 300000000)
        status = measure("trace of 300 MB", import_trace, &(subject){.path = path}, writer);
    if (file >= 0)
        unlink(path);
    return status;
}

static ty_status measure_all(ty_json_writer *writer, ty_error *error)
{
    static const struct {
        const char *name;
        work_function work;
    } rows[] = {
        {"workload gpt3-175b", open_workload},
        {"fat tree of 16384 devices", open_tree},
        {"fat tree of 16384 devices in full hosts", open_tree_of_hosts},
        {"fat tree of 16384 hosts from SimGrid XML", import_platform},
    };
    subject tree = {0};
    ty_status status = TY_OK;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        TY_CHECK(measure(rows[i].name, rows[i].work, &tree, writer), status, cleanup);
    TY_CHECK(ty_cluster_open(TREE, NULL, &tree.cluster, error), status, cleanup);
    TY_CHECK(measure("classes of the fat tree", find_classes, &tree, writer), status, cleanup);
    TY_CHECK(measure("bisection of the fat tree", find_bisection, &tree, writer), status, cleanup);
    ty_cluster_free(tree.cluster);
    tree.cluster = NULL;
    TY_CHECK(ty_cluster_open(TREE_OF_HOSTS, NULL, &tree.cluster, error), status, cleanup);
    TY_CHECK(measure("classes of the fat tree in full hosts", find_classes, &tree, writer), status,
             cleanup);
cleanup:
    ty_cluster_free(tree.cluster);
    return status;
}

int main(void)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_error error = {0};
    ty_status status;

    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", "trainyard.bench-load/1");
    ty_json_open(&writer, "rows", '[');
    status = measure_all(&writer, &error);
    if (status == TY_OK)
        status = measure_trace(&writer);
    ty_json_close(&writer, ']');
    ty_json_close(&writer, '}');
    if (status == TY_OK && ty_text_check(&text, &error) == TY_OK)
        puts(text.data);
    else if (error.message[0] != '\0')
        fprintf(stderr, "bench_load: %s\n", error.message);
    ty_text_clear(&text);
    return status == TY_OK ? 0 : 1;
}
