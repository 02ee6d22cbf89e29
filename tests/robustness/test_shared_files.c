/* Every file of the shared samples is imported, or refused for the reason listed here. */
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A refused file, by a part of its path, and a part of the reason. */
typedef struct refusal {
    const char *path, *reason;
} refusal;

static const refusal workloads[] = {
    {"calculon/execution-", "a Calculon execution"},
    {"calculon/validation-", "a Calculon execution"},
    {"chakra/all_reduce", "none that computes"},
    {"chakra/all_to_all", "none that computes"},
    {"chakra/json_trace.tar.gz", "a tar archive"},
    {"pytorch-et/", "ExecutionTraceObserver"},
    {"simai/Llama7B_zero2", "a SimAI log"},
    {"simai/busbw", "SimAI's bandwidths"},
    {"simai/", "a SimAI or ASTRA-sim workload"},
    {"timm/", "a table of measured speeds"},
    {"mlperf-training", "a table of measured speeds"},
    {"expected-parameter-counts", "no kind of file that is known"},
};

static const refusal clusters[] = {
    {"astra-sim/8nodes.topo", "an htsim topology"},
    {"astra-sim/system-", "an ASTRA-sim system file"},
    {"astra-sim/", "an ASTRA-sim network"},
    {"clos/", "none of the formats"},
    {"topograph/", "none of the formats"},
    {"calculon/", "a Calculon system"},
    {"ibnetdiscover/bad.out", "no switch"},
    {"azure-ncv4-graph.xml", "an NCCL graph file"},
    {"slurm/topology-tree-6.conf", "3 switches with nothing above them"},
};

static uint32_t seen, refused;

/* Whether it was imported or rightly refused; the rows are tried in order. */
static void judge(const char *path, ty_status status, const ty_error *error, const refusal *rows,
                  size_t count)
{
    size_t row = 0;

    while (row < count && strstr(path, rows[row].path) == NULL)
        row++;
    seen++;
    if (status == TY_OK) {
        cr_assert_eq(row, count, "%s: imported, expected \"%s\"", path, rows[row].reason);
        return;
    }
    refused++;
    cr_assert_lt(row, count, "%s: %s", path, error->message);
    cr_assert_not_null(strstr(error->message, rows[row].reason), "%s: %s", path, error->message);
    cr_assert_not_null(strstr(error->message, strrchr(path, '/') + 1), "%s: %s", path,
                       error->message);
}

static void import_workload(const char *path)
{
    ty_workload *workload = NULL;
    ty_profile *profile = NULL;
    ty_error error = {0};
    ty_status status = ty_workload_import(path, NULL, &workload, NULL, &error);

    if (strstr(path, "/kineto/") != NULL) { /* times, not a model */
        cr_assert_neq(status, TY_OK, "%s", path);
        cr_assert_not_null(strstr(error.message, "as a profile"), "%s", error.message);
        status = ty_profile_import_kineto(path, &profile, NULL, &error);
    }
    judge(path, status, &error, workloads, sizeof workloads / sizeof workloads[0]);
    ty_workload_free(workload);
    ty_profile_free(profile);
}

/* Without a host, or with one if the file requires it. */
static void import_cluster(const char *path)
{
    static const char *const hosts[] = {NULL, "dgx-a100", "dgx1-v100", "dgx-h100", "g5.48xlarge"};
    ty_cluster *cluster = NULL;
    ty_status status = TY_EINVAL;
    ty_error error = {0};

    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0] && status != TY_OK; h++)
        status = ty_cluster_import(path, &(ty_cluster_import_options){.host = hosts[h]}, &cluster,
                                   NULL, &error);
    judge(path, status, &error, clusters, sizeof clusters / sizeof clusters[0]);
    ty_cluster_free(cluster);
}

static void walk(const char *folder, void (*visit)(const char *path))
{
    DIR *directory = opendir(folder);
    char path[1024];
    struct stat about;

    cr_assert_not_null(directory, "%s", folder);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        cr_assert_eq(stat(path, &about), 0);
        if (S_ISDIR(about.st_mode))
            walk(path, visit);
        else
            visit(path);
    }
    closedir(directory);
}

static void walk_all(const char *folder, void (*visit)(const char *path), uint32_t files,
                     uint32_t refusals)
{
    struct stat about;

    if (stat(folder, &about) != 0)
        cr_skip_test("%s is not there", folder);
    walk(folder, visit);
    cr_assert_geq(seen, files, "%u files", seen);
    cr_assert_geq(refused, refusals, "%u refused", refused);
    cr_assert_gt(seen, refused);
}

Test(shared_files, workloads, .timeout = 300)
{
    walk_all(TY_SHARED_DATA "/workloads", import_workload, 70, 30);
}

Test(shared_files, topologies, .timeout = 300)
{
    walk_all(TY_SHARED_DATA "/topologies", import_cluster, 40, 11);
}
