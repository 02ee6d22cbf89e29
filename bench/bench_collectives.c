/* Predicted against measured collectives: every row of the logs and records of a data folder.
 *     bench_collectives DATA [--fit]
 * prints the table of docs/collectives.md: errors of NCCL's own model and of the calibrated one, of
 * rows of 1 MiB and more, training and held-out machines apart. --fit fits the calibration to the
 * training machines and prints it for planner/nccl/nccl.json, then the table with it. DATA holds
 * nccl-logs/ and measurements/. What a table and an answer of it cost goes to stderr. */
#include "timing.h"
#include "ty_planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAST_BYTES 1048576.0

/* A log, or the records of measurements/collectives.json whose name starts like this. */
typedef struct source {
    const char *name; /* ends with ".log" or not */
    const char *machine;
    const char *cluster;
    const char *devices; /* "0,1,2"; NULL: the first `ranks` */
    bool is_training;
    bool is_ring; /* measured with NVLS switched off */
} source;

static const source sources[] = {
    {"azure-ndv4-a100x8-allreduce.log", "ND96asr_v4", "1x ND96asr_v4", NULL, true, false},
    {"azure-ndv4-a100x8-allgather.log", "ND96asr_v4", "1x ND96asr_v4", NULL, true, false},
    {"azure-ndv4-a100x8-alltoall.log", "ND96asr_v4", "1x ND96asr_v4", NULL, true, false},
    {"supermicro-h100x8-allreduce-0.log", "Supermicro H100", "1x dgx-h100", NULL, true, false},
    {"supermicro-h100x8-allreduce-1.log", "Supermicro H100", "1x dgx-h100", NULL, true, false},
    {"nebius-h100-2n-all-reduce", "Nebius H100", "2x dgx-h100", NULL, true, false},
    {"dgxa100-2nodes-hdr200x8-allreduce.log", "DGX A100", "4x dgx-a100", NULL, true, false},
    {"oci-h100x8-allreduce-51MB.log", "OCI H100", "1x dgx-h100", NULL, false, false},
    {"gcp-a3ultra-h200-8gpu-allreduce-1.7GB.log", "a3-ultragpu-8g", "1x a3-ultragpu-8g", NULL,
     false, false},
    {"gcp-a3ultra-h200-64gpu-allreduce-1.7GB.log", "a3-ultragpu-8g", "8x a3-ultragpu-8g", NULL,
     false, false},
    {"gcp-a3mega-h100-2nodes-allgather.log", "a3-megagpu-8g", "2x a3-megagpu-8g", NULL, false,
     false},
    {"supermicro-b200x8-allreduce-38MB.log", "Supermicro B200", "1x dgx-b200", NULL, false, false},
    {"dgx1-v100-2nodes-roce100-allreduce.log", "DGX-1 V100", "2x v100-8-roce100", NULL, false,
     false},
    {"aws-p4de-2n-all-reduce", "p4de.24xlarge", "2x p4de.24xlarge", NULL, false, false},
    {"cw-gb200-72-all-reduce", "GB200 NVL72", "1x gb200-nvl72", NULL, false, false},
    {"cw-gb200-144-all-reduce", "GB200 NVL72", "2x gb200-nvl72", NULL, false, false},
    {"oci-slurm-a100-40-2n-all-reduce", "OCI A100",
     "leaf:1 host:2 gpu:8 @a100-sxm4-40gb nvlink3 hdr200", NULL, false, false},
    {"gcp-a3mega-2n-all-gather", "a3-megagpu-8g", "2x a3-megagpu-8g", NULL, false, false},
    {"lambda-b200-2n-all-reduce", "Lambda B200", "2x dgx-b200", NULL, false, false},
    {"dgxh100-2n-2g-all-reduce", "DGX H100", "2x dgx-h100", "0,1,8,9", false, false},
    {"mle-h200-1n-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-4g-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-5g-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-6g-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-7g-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-8g-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-4g-nvlsoff-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-5g-nvlsoff-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-6g-nvlsoff-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-7g-nvlsoff-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-8g-nvlsoff-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-coll-nvls-all-reduce", "H200 node", "1x dgx-h200", NULL, false, false},
    {"mle-h200-coll-ring-all-reduce", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-h200-coll-ring-reduce-scatter", "H200 node", "1x dgx-h200", NULL, false, true},
    {"mle-b200-1n-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-4n-all-reduce", "p6-b200.48xlarge", "4x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-4g-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-5g-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-6g-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-7g-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-8g-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false, false},
    {"mle-b200-4g-nvlsoff-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false,
     true},
    {"mle-b200-5g-nvlsoff-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false,
     true},
    {"mle-b200-6g-nvlsoff-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false,
     true},
    {"mle-b200-7g-nvlsoff-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false,
     true},
    {"mle-b200-8g-nvlsoff-all-reduce", "p6-b200.48xlarge", "1x p6-b200.48xlarge", NULL, false,
     true},
    {"vtrain-a100-g2-all-reduce", "vTrain A100", "1x dgx-a100", NULL, false, false},
    {"vtrain-a100-g4-all-reduce", "vTrain A100", "1x dgx-a100", NULL, false, false},
    {"vtrain-a100-g5-all-reduce", "vTrain A100", "1x dgx-a100", NULL, false, false},
    {"vtrain-a100-g8-all-reduce", "vTrain A100", "1x dgx-a100", NULL, false, false},
    {"vtrain-v100-g3-all-reduce", "vTrain V100", "1x dgx1-v100", NULL, true, false},
    {"vtrain-v100-g4-all-reduce", "vTrain V100", "1x dgx1-v100", NULL, false, false},
    {"vtrain-v100-g7-all-reduce", "vTrain V100", "1x dgx1-v100", NULL, false, false},
    {"vtrain-v100-g8-all-reduce", "vTrain V100", "1x dgx1-v100", NULL, false, false},
    {"oci-mi300x-2n-all-reduce", "OCI MI300X", NULL, NULL, false, false},
    {"mle-mi300x-2g-all-reduce", "MI300X", NULL, NULL, false, false},
    {"mle-4n-all-reduce", "not named", NULL, NULL, false, false},
};
enum { SOURCE_COUNT = sizeof sources / sizeof sources[0], MOST_RANKS = 4096 };

typedef struct point {
    uint64_t bytes;
    double size, seconds;
} point;

typedef struct series {
    const source *from;
    ty_collective_kind kind;
    uint32_t ranks, count;
    point *points;
    ty_communicator communicator;
    bool is_modelled;
} series;

static void stop(const ty_error *error)
{
    fprintf(stderr, "bench_collectives: %s\n", error->message);
    exit(EXIT_FAILURE);
}

static void add_point(series *s, uint64_t bytes, double size, double seconds)
{
    ty_error error = {0};
    point *points = ty_resize(s->points, (size_t)s->count + 1, sizeof *points);

    if (points == NULL) {
        ty_fail(&error, TY_ENOMEM, "out of memory");
        stop(&error);
    }
    s->points = points;
    points[s->count++] = (point){bytes, size, seconds};
}

/* ---- Reading ------------------------------------------------------------------------------- */

static void read_log(const char *folder, series *s)
{
    ty_collective_log *log = NULL;
    ty_error error = {0};
    char path[512];

    snprintf(path, sizeof path, "%s/nccl-logs/%s", folder, s->from->name);
    if (ty_collective_log_load(path, TY_COLLECTIVE_COUNT, &log, &error) != TY_OK)
        stop(&error);
    s->kind = log->kind;
    s->ranks = log->ranks;
    for (uint32_t i = 0; i < log->row_count; i++)
        add_point(s, log->rows[i].bytes, (double)log->rows[i].size, log->rows[i].out_of_place_s);
    ty_collective_log_free(log);
}

static ty_status read_record(const ty_json *record, series *s, ty_error *error)
{
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter"};
    static const char *const metrics[] = {"time", "bus_bandwidth"};
    const ty_json *cluster, *collective, *measured;
    int kind = 0, metric = 0;
    double size = 0, value = 0, seconds;
    ty_status status;

    TY_CHECK(ty_json_object(record, "cluster", &cluster, error), status, done);
    TY_CHECK(ty_json_object(record, "collective", &collective, error), status, done);
    TY_CHECK(ty_json_object(record, "measured", &measured, error), status, done);
    TY_CHECK(ty_json_uint32(cluster, "gpus", 2, MOST_RANKS, &s->ranks, error), status, done);
    TY_CHECK(ty_json_enum(collective, "op", kinds, 3, &kind, error), status, done);
    TY_CHECK(ty_json_number(collective, "bytes", 1, 1e15, &size, error), status, done);
    TY_CHECK(ty_json_enum(measured, "metric", metrics, 2, &metric, error), status, done);
    TY_CHECK(ty_json_number(measured, "value", 0, 1e15, &value, error), status, done);
    s->kind = (ty_collective_kind)kind;
    seconds = metric == 0 ? value * 1e-6
                          : size / (value * 1e9) * ty_collective_bus_factor(s->kind, s->ranks);
    add_point(s, (uint64_t)(kind == TY_ALL_GATHER ? size / s->ranks : size), size, seconds);
done:
    return status;
}

/* collectives/NAME-BYTES */
static bool is_of(const char *id, const char *name)
{
    size_t length = strlen(name);
    const char *slash = strchr(id, '/');

    return slash != NULL && strncmp(slash + 1, name, length) == 0 && slash[1 + length] == '-' &&
           strspn(slash + 2 + length, "0123456789") == strlen(slash + 2 + length);
}

static void read_records(const char *folder, series *all)
{
    ty_json_document *document = NULL;
    const ty_json *records;
    ty_error error = {0};
    char path[512];

    snprintf(path, sizeof path, "%s/measurements/collectives.json", folder);
    if (ty_json_load(path, &document, &error) != TY_OK ||
        ty_json_array(ty_json_root(document), "records", 1, UINT32_MAX, &records, &error) != TY_OK)
        stop(&error);
    for (size_t i = 0; i < ty_json_size(records); i++) {
        const ty_json *record = ty_json_at(records, i);
        const char *id;
        uint32_t s = 0;
        if (ty_json_string(record, "id", &id, &error) != TY_OK)
            stop(&error);
        while (s < SOURCE_COUNT && !is_of(id, sources[s].name))
            s++;
        if (s == SOURCE_COUNT) {
            ty_fail(&error, TY_EPARSE, "%s: record of no known series", id);
            stop(&error);
        }
        if (read_record(record, &all[s], &error) != TY_OK)
            stop(&error);
    }
    ty_json_free(document);
}

static void find_communicator(series *s)
{
    uint32_t devices[MOST_RANKS];
    const char *list = s->from->devices;
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    if (s->from->cluster == NULL)
        return;
    if (ty_cluster_open(s->from->cluster, NULL, &cluster, &error) != TY_OK)
        stop(&error);
    for (uint32_t d = 0; d < s->ranks; d++) {
        devices[d] = list != NULL ? (uint32_t)strtoul(list, NULL, 10) : d;
        list = list != NULL ? strchr(list, ',') : NULL;
        list = list != NULL ? list + 1 : NULL;
    }
    if (ty_communicator_of(cluster, devices, s->ranks, &s->communicator, &error) != TY_OK)
        stop(&error);
    if (s->from->is_ring)
        s->communicator.has_nvls = false;
    s->is_modelled = true;
    ty_cluster_free(cluster);
}

/* ---- Errors -------------------------------------------------------------------------------- */

typedef struct errors {
    uint32_t count;
    double mean, median, ninetieth, signed_mean;
} errors;

static errors summary_of(double *values, uint32_t count, double sum)
{
    errors e = {.count = count};

    if (count == 0)
        return e;
    qsort(values, count, sizeof *values, ascending);
    for (uint32_t i = 0; i < count; i++)
        e.mean += values[i] / count;
    e.median = count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    e.ninetieth = values[(uint32_t)ceil(0.9 * count) - 1];
    e.signed_mean = sum / count;
    return e;
}

typedef struct collected {
    double values[4096], sum;
    uint32_t count;
} collected;

static void collect(const series *s, const ty_collective_calibration *calibration, collected *out)
{
    ty_collective_table table;
    ty_error error = {0};

    if (!s->is_modelled)
        return;
    if (ty_collective_table_make(&s->communicator, calibration, &table, &error) != TY_OK)
        stop(&error);
    for (uint32_t i = 0; i < s->count; i++) {
        double predicted = ty_collective_seconds(&table, s->kind, s->points[i].bytes);
        double off = predicted / s->points[i].seconds - 1;
        if (s->points[i].size < LEAST_BYTES || out->count == 4096)
            continue;
        out->values[out->count++] = fabs(off);
        out->sum += off;
    }
}

/* ---- Fitting ------------------------------------------------------------------------------- */

/* Mean over the training series of their mean |log(predicted / measured)|: each counts alike. */
static double loss(const series *all, const ty_collective_calibration *calibration)
{
    double sum = 0, count = 0;

    for (uint32_t s = 0; s < SOURCE_COUNT; s++) {
        ty_collective_table table;
        double own = 0, rows = 0;
        if (!all[s].from->is_training ||
            ty_collective_table_make(&all[s].communicator, calibration, &table, NULL) != TY_OK)
            continue;
        for (uint32_t i = 0; i < all[s].count; i++)
            if (all[s].points[i].size >= LEAST_BYTES) {
                double predicted =
                    ty_collective_seconds(&table, all[s].kind, all[s].points[i].bytes);
                own += fabs(log(predicted / all[s].points[i].seconds));
                rows++;
            }
        sum += own / rows;
        count++;
    }
    return sum / count;
}

/* One parameter after the other, by steps that shrink. */
static ty_collective_calibration fit(const series *all)
{
    ty_collective_calibration best = ty_collective_uncalibrated();
    double least = loss(all, &best);

    for (double step = 1; step > 1e-3; step /= 1.5)
        for (int round = 0; round < 8; round++)
            for (int p = 0; p < 2 * TY_MEDIUM_COUNT; p++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    ty_collective_calibration tried = best;
                    double found;
                    if (p < TY_MEDIUM_COUNT)
                        tried.overhead_s[p] = fmax(0, tried.overhead_s[p] + sign * step * 40e-6);
                    else
                        tried.efficiency[p - TY_MEDIUM_COUNT] *= exp(sign * step * 0.2);
                    found = loss(all, &tried);
                    if (found < least) {
                        least = found;
                        best = tried;
                    }
                }
    printf("fitted, mean error %.1f %%:\n\"call_overhead_us\":", 100 * (exp(least) - 1));
    for (int m = 0; m < TY_MEDIUM_COUNT; m++)
        printf(" %.1f", best.overhead_s[m] * 1e6);
    printf("\n\"efficiency\":");
    for (int m = 0; m < TY_MEDIUM_COUNT; m++)
        printf(" %.3f", best.efficiency[m]);
    printf("\n\n");
    return best;
}

/* ---- The table ----------------------------------------------------------------------------- */

static void print_row(const char *name, const char *machine, const collected *plain,
                      const collected *fitted)
{
    collected a = *plain, b = *fitted;
    errors x = summary_of(a.values, a.count, a.sum), y = summary_of(b.values, b.count, b.sum);

    printf("| %s | %s | %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %+.1f |\n", name, machine,
           x.count, 100 * x.mean, 100 * x.median, 100 * x.ninetieth, 100 * y.mean, 100 * y.median,
           100 * y.ninetieth, 100 * y.signed_mean);
}

static void print_table(const series *all, const ty_collective_calibration *calibration,
                        bool is_training)
{
    static collected plain_all, fitted_all;
    const ty_collective_calibration plain = ty_collective_uncalibrated();

    plain_all.count = fitted_all.count = 0;
    plain_all.sum = fitted_all.sum = 0;
    printf(
        "%s machines\n\n"
        "| series | machine | rows | NCCL mean %% | median | p90 | calibrated mean %% | median | "
        "p90 | signed mean |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        is_training ? "Training" : "Held-out");
    for (uint32_t s = 0; s < SOURCE_COUNT; s++) {
        static collected a, b;
        if (all[s].from->is_training != is_training)
            continue;
        if (!all[s].is_modelled) {
            printf("| %s | %s | %u | not modelled |\n", all[s].from->name, all[s].from->machine,
                   all[s].count);
            continue;
        }
        a.count = b.count = 0;
        a.sum = b.sum = 0;
        collect(&all[s], &plain, &a);
        collect(&all[s], calibration, &b);
        collect(&all[s], &plain, &plain_all);
        collect(&all[s], calibration, &fitted_all);
        print_row(all[s].from->name, all[s].from->machine, &a, &b);
    }
    print_row("**all**", "", &plain_all, &fitted_all);
    printf("\n");
}

/* Nanoseconds to ask a table, and microseconds to make one. */
static void print_speed(const series *s)
{
    enum { QUESTIONS = 1000000, TABLES = 1000 };
    ty_collective_table table;
    struct timespec t[3];
    double sum = 0;

    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (int i = 0; i < TABLES; i++)
        if (ty_collective_table_make(&s->communicator, NULL, &table, NULL) != TY_OK)
            return;
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    for (uint64_t i = 0; i < QUESTIONS; i++)
        sum += ty_collective_seconds(&table, TY_ALL_REDUCE, 1024 * i);
    clock_gettime(CLOCK_MONOTONIC, &t[2]);
    fprintf(stderr, "a table: %.2f us; an answer: %.0f ns (mean %.3g s)\n",
            ((double)(t[1].tv_sec - t[0].tv_sec) * 1e9 + (double)(t[1].tv_nsec - t[0].tv_nsec)) /
                TABLES / 1e3,
            ((double)(t[2].tv_sec - t[1].tv_sec) * 1e9 + (double)(t[2].tv_nsec - t[1].tv_nsec)) /
                QUESTIONS,
            sum / QUESTIONS);
}

int main(int count, char **words)
{
    static series all[SOURCE_COUNT];
    ty_collective_calibration calibration = ty_collective_calibrated();
    bool is_fit = count == 3 && strcmp(words[2], "--fit") == 0;

    if (count < 2 || count > 3 || (count == 3 && !is_fit)) {
        fprintf(stderr, "usage: bench_collectives DATA [--fit]\n");
        return 2;
    }
    for (uint32_t s = 0; s < SOURCE_COUNT; s++) {
        all[s].from = &sources[s];
        if (strstr(sources[s].name, ".log") != NULL)
            read_log(words[1], &all[s]);
    }
    read_records(words[1], all);
    for (uint32_t s = 0; s < SOURCE_COUNT; s++)
        find_communicator(&all[s]);
    if (is_fit)
        calibration = fit(all);
    print_table(all, &calibration, true);
    print_table(all, &calibration, false);
    print_speed(&all[5]); /* several nodes: the most pairs to compare */
    for (uint32_t s = 0; s < SOURCE_COUNT; s++)
        ty_free(all[s].points);
    return EXIT_SUCCESS;
}
