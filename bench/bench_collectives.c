/* Compares predicted and measured collectives: every row of the logs and records of a data folder.
 *     bench_collectives DATA [--fit]
 * prints the errors of NCCL's own model and of the calibrated model by log and record.
 * docs/design/collectives.md has the totals. Rows of 1 MiB and more are apart from smaller ones,
 * and training machines from held-out ones. --fit fits the calibration to the training machines and
 * prints it for planner/nccl/nccl.json, then the tables with it. DATA holds nccl-logs/,
 * measurements/ and kernels/. The cost of a table and of one answer goes to stderr. */
#include "timing.h"
#include "ty_base.h"
#include "ty_planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAST_BYTES 1048576.0

/* A log, or the records of measurements/collectives.json whose name starts like this. */
typedef struct source {
    const char *name; /* with or without ".log" */
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
    {"gcp-a3mega-h100-2nodes-allgather.log", "a3-megagpu-8g", "2x a3-megagpu-8g", NULL, true,
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
/* Devices of kernels/nccl-one-node.csv, whose calls are queued: a series for each collective and
 * number of GPUs. Its rows in bytes are left out: their sums are another kind of arithmetic. */
static const source queued_sources[] = {
    {"a100-sxm4-80gb", "DGX A100", "1x dgx-a100", NULL, true, false},
    {"h100-sxm", "DGX H100", "1x dgx-h100", NULL, true, false},
    {"b200-sxm", "DGX B200", "1x dgx-b200", NULL, true, false},
    {"h200-sxm", "DGX H200", "1x dgx-h200", NULL, false, false},
    {"b300-sxm", "DGX B300", "1x dgx-b300", NULL, false, false},
    {"gb200", "GB200 tray", "1x gb200-tray", NULL, false, false},
};
enum {
    SOURCE_COUNT = sizeof sources / sizeof sources[0],
    QUEUED_COUNT = sizeof queued_sources / sizeof queued_sources[0],
    MOST_SERIES = SOURCE_COUNT + 64,
    MOST_RANKS = 4096
};

typedef struct point {
    uint64_t bytes;
    double size, seconds;
} point;

typedef struct series {
    const source *from;
    ty_collective_calls calls;
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

    TY_TRY(ty_json_object(record, "cluster", &cluster, error));
    TY_TRY(ty_json_object(record, "collective", &collective, error));
    TY_TRY(ty_json_object(record, "measured", &measured, error));
    TY_TRY(ty_json_uint32(cluster, "gpus", 2, MOST_RANKS, &s->ranks, error));
    TY_TRY(ty_json_enum(collective, "op", kinds, 3, &kind, error));
    TY_TRY(ty_json_number(collective, "bytes", 1, 1e15, &size, error));
    TY_TRY(ty_json_enum(measured, "metric", metrics, 2, &metric, error));
    TY_TRY(ty_json_number(measured, "value", 0, 1e15, &value, error));
    s->kind = (ty_collective_kind)kind;
    seconds = metric == 0 ? value * 1e-6
                          : size / (value * 1e9) * ty_collective_bus_factor(s->kind, s->ranks);
    add_point(s, (uint64_t)(kind == TY_ALL_GATHER ? size / s->ranks : size), size, seconds);
    return TY_OK;
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

/* "all_reduce", and "alltoall" as that table has it. */
static ty_collective_kind kind_named(const char *name)
{
    for (int kind = 0; kind < TY_COLLECTIVE_COUNT; kind++)
        if (strcmp(ty_collective_name((ty_collective_kind)kind), name) == 0)
            return (ty_collective_kind)kind;
    return strcmp(name, "alltoall") == 0 ? TY_ALL_TO_ALL : TY_COLLECTIVE_COUNT;
}

static void read_queued(const char *folder, series *all, uint32_t *count)
{
    enum { HALF = 2 };
    ty_error error = {0};
    char path[512], *text = NULL, *rest = NULL;
    size_t length;

    snprintf(path, sizeof path, "%s/kernels/nccl-one-node.csv", folder);
    if (ty_file_read(path, 0, &text, &length, &error) != TY_OK)
        stop(&error);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char device[32], operation[32], type[8];
        unsigned ranks;
        double elements, us, size;
        ty_collective_kind kind;
        uint32_t q = 0, s = SOURCE_COUNT;
        if (sscanf(line, "%31[^,],%*[^,],%31[^,],%7[^,],%u,%lf,%lf", device, operation, type,
                   &ranks, &elements, &us) != 6 ||
            strcmp(type, "half") != 0)
            continue;
        kind = kind_named(operation);
        while (q < QUEUED_COUNT && strcmp(queued_sources[q].name, device) != 0)
            q++;
        if (q == QUEUED_COUNT || kind == TY_COLLECTIVE_COUNT) {
            ty_fail(&error, TY_EPARSE, "%s: %s of %s is not known", path, operation, device);
            stop(&error);
        }
        while (s < *count &&
               !(all[s].from == &queued_sources[q] && all[s].kind == kind && all[s].ranks == ranks))
            s++;
        if (s == MOST_SERIES) {
            ty_fail(&error, TY_ELIMIT, "%s: more than %d series", path, MOST_SERIES - SOURCE_COUNT);
            stop(&error);
        }
        if (s == *count)
            all[(*count)++] = (series){
                .from = &queued_sources[q], .calls = TY_CALLS_QUEUED, .kind = kind, .ranks = ranks};
        size = HALF * elements;
        add_point(&all[s], (uint64_t)(kind == TY_ALL_GATHER ? size / ranks : size), size,
                  us * 1e-6);
    }
    ty_free(text);
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

/* ---- Errors ---------------------------------------------------------------------------- */

/* A calibration of each kind of calls. */
typedef struct calibrations {
    ty_collective_calibration of[TY_CALLS_COUNT];
} calibrations;

/* Class of a row: below 1 MiB, or larger. */
enum { SMALL, LARGE, CLASSES };
static int class_of(const point *p)
{
    return p->size < LEAST_BYTES ? SMALL : LARGE;
}

/* Whether a row counts: rows without time or bytes do not. */
static bool is_told(const point *p)
{
    return p->seconds > 0 && p->bytes > 0;
}

typedef struct collected {
    double values[CLASSES][4096], sums[CLASSES];
    uint32_t counts[CLASSES];
} collected;

static void collect(const series *s, const calibrations *with, collected *out)
{
    ty_collective_table table;
    ty_error error = {0};

    if (!s->is_modelled)
        return;
    if (ty_collective_table_make(&s->communicator, &with->of[s->calls], &table, &error) != TY_OK)
        stop(&error);
    for (uint32_t i = 0; i < s->count; i++) {
        const double predicted = ty_collective_seconds(&table, s->kind, s->points[i].bytes);
        const double off = predicted / s->points[i].seconds - 1;
        const int c = class_of(&s->points[i]);
        if (!is_told(&s->points[i]) || out->counts[c] == 4096)
            continue;
        out->values[c][out->counts[c]++] = fabs(off);
        out->sums[c] += off;
    }
}

/* ---- Fitting ------------------------------------------------------------------------------- */

/* Ranges of sizes with equal weight in a fit: below 1, 16 and 256 MiB, and above. */
enum { SPANS = 4 };
static int span_of(const point *p)
{
    return (p->size >= LEAST_BYTES) + (p->size >= 16 * LEAST_BYTES) +
           (p->size >= 256 * LEAST_BYTES);
}

/* Mean over the training series, and within each over the ranges of sizes, of |log(predicted /
 * measured)|: every machine has the same weight, however long its log is. */
static double loss(const series *all, uint32_t count, const calibrations *with)
{
    double sum = 0, terms = 0;

    for (uint32_t s = 0; s < count; s++) {
        ty_collective_table table;
        double own[SPANS] = {0}, rows[SPANS] = {0};
        if (!all[s].from->is_training ||
            ty_collective_table_make(&all[s].communicator, &with->of[all[s].calls], &table, NULL) !=
                TY_OK)
            continue;
        for (uint32_t i = 0; i < all[s].count; i++) {
            const point *p = &all[s].points[i];
            const int span = span_of(p);
            if (!is_told(p))
                continue;
            own[span] +=
                fabs(log(ty_collective_seconds(&table, all[s].kind, p->bytes) / p->seconds));
            rows[span]++;
        }
        for (int span = 0; span < SPANS; span++)
            if (rows[span] > 0) {
                sum += own[span] / rows[span];
                terms++;
            }
    }
    return sum / terms;
}

/* A fitted figure, with all its places. A figure that no training row determines equals that of the
 * previous generation. */
typedef struct figure {
    double *at[TY_CALLS_COUNT * TY_GPU_GENERATION_COUNT];
    uint32_t count;
    double step; /* first; 0: of the logarithm */
} figure;

static void add_to(figure *f, double *at)
{
    f->at[f->count++] = at;
}

static double set(const figure *f, double value)
{
    const double before = *f->at[0];

    for (uint32_t i = 0; i < f->count; i++)
        *f->at[i] = value;
    return before;
}

enum { MOST_FIGURES = 128 };

/* Lists the fitted figures. The overhead of launched calls is one figure for all generations; the
 * others are one per generation. Between nodes there is one of each for all generations, and queued
 * calls have the figures of launched ones. */
static uint32_t list_figures(calibrations *c, figure figures[MOST_FIGURES])
{
    ty_collective_calibration *of = c->of;
    uint32_t count = 0;

    for (int m = 0; m < TY_MEDIUM_COUNT; m++) {
        const bool is_network = m == TY_MEDIUM_NETWORK_FLAGS || m == TY_MEDIUM_NETWORK_SIMPLE;
        figure *launched = &figures[count++], *rate = NULL;
        *launched = (figure){.step = 40e-6};
        for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++) {
            add_to(launched, &of[TY_CALLS_LAUNCHED].overhead_s[g][m]);
            if (is_network) {
                add_to(launched, &of[TY_CALLS_QUEUED].overhead_s[g][m]);
            } else {
                figures[count] = (figure){.step = 20e-6};
                add_to(&figures[count++], &of[TY_CALLS_QUEUED].overhead_s[g][m]);
            }
            if (rate == NULL || !is_network) {
                rate = &figures[count++];
                *rate = (figure){.step = 0};
            }
            add_to(rate, &of[TY_CALLS_LAUNCHED].efficiency[g][m]);
            add_to(rate, &of[TY_CALLS_QUEUED].efficiency[g][m]);
        }
    }
    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++) {
        figures[count] = (figure){.step = 0.5};
        add_to(&figures[count], &of[TY_CALLS_LAUNCHED].own_steps[g]);
        add_to(&figures[count++], &of[TY_CALLS_QUEUED].own_steps[g]);
        figures[count] = (figure){.step = 4e-6};
        add_to(&figures[count++], &of[TY_CALLS_QUEUED].peer_s[g]);
    }
    figures[count] = (figure){.step = 4e-6};
    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++)
        add_to(&figures[count], &of[TY_CALLS_LAUNCHED].peer_s[g]);
    return count + 1;
}

static void print_grid(const char *name, double of[TY_GPU_GENERATION_COUNT][TY_MEDIUM_COUNT],
                       double unit, int digits)
{
    printf("%s [", name);
    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++) {
        printf("%s[", g > 0 ? ", " : "");
        for (int m = 0; m < TY_MEDIUM_COUNT; m++)
            printf("%s%.*f", m > 0 ? ", " : "", digits, of[g][m] / unit);
        printf("]");
    }
    printf("]\n");
}

static void print_line(const char *name, double of[TY_GPU_GENERATION_COUNT], double unit)
{
    printf("%s [", name);
    for (int g = 0; g < TY_GPU_GENERATION_COUNT; g++)
        printf("%s%.2f", g > 0 ? ", " : "", of[g] / unit);
    printf("]\n");
}

/* Fits one figure after the other with shrinking steps, starting from no overhead and full
 * rates. */
static calibrations fit(const series *all, uint32_t count)
{
    calibrations best;
    figure figures[MOST_FIGURES];
    uint32_t figure_count;
    double least;

    for (int calls = 0; calls < TY_CALLS_COUNT; calls++) {
        const ty_collective_calibration with = ty_collective_calibrated((ty_collective_calls)calls);
        best.of[calls] = ty_collective_uncalibrated();
        best.of[calls].is_nvls_by_links = with.is_nvls_by_links;
        best.of[calls].direct_links = with.direct_links;
    }
    figure_count = list_figures(&best, figures);
    least = loss(all, count, &best);
    for (double step = 1; step > 1e-2; step /= 1.5)
        for (int round = 0; round < 4; round++)
            for (uint32_t f = 0; f < figure_count; f++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    const double now = *figures[f].at[0];
                    double found;
                    set(&figures[f], figures[f].step > 0
                                         ? fmax(0, now + sign * step * figures[f].step)
                                         : fmin(1, now * exp(sign * step * 0.2)));
                    found = loss(all, count, &best);
                    if (found < least)
                        least = found;
                    else
                        set(&figures[f], now);
                }
    printf("fitted, mean error %.1f %%:\n", 100 * (exp(least) - 1));
    for (int calls = 0; calls < TY_CALLS_COUNT; calls++) {
        printf("%s: ", ty_collective_calls_name((ty_collective_calls)calls));
        print_grid("call_overhead_us", best.of[calls].overhead_s, 1e-6, 1);
        print_line("call_peer_us", best.of[calls].peer_s, 1e-6);
    }
    print_grid("efficiency", best.of[TY_CALLS_LAUNCHED].efficiency, 1, 3);
    print_line("own_steps", best.of[TY_CALLS_LAUNCHED].own_steps, 1);
    printf("\n");
    return best;
}

/* ---- The tables ---------------------------------------------------------------------------- */

static double mean(const collected *of, int class)
{
    double sum = 0;

    for (uint32_t i = 0; i < of->counts[class]; i++)
        sum += of->values[class][i];
    return of->counts[class] > 0 ? 100 * sum / of->counts[class] : 0;
}

static void print_class(const collected *plain, collected *fitted, int class)
{
    const uint32_t n = fitted->counts[class];

    if (n == 0) {
        printf(" - | | | | |");
        return;
    }
    printf(" %u | %.1f | %.1f | %.1f | %+.1f |", n, mean(plain, class), mean(fitted, class),
           100 * median(fitted->values[class], n), 100 * fitted->sums[class] / n);
}

static void print_row(const char *name, const char *machine, const collected *plain,
                      collected *fitted)
{
    printf("| %s | %s |", name, machine);
    print_class(plain, fitted, LARGE);
    print_class(plain, fitted, SMALL);
    printf("\n");
}

/* Prints consecutive series with the same source and collective as one row. */
static void print_table(const char *title, const series *all, uint32_t first, uint32_t end,
                        const calibrations *with, bool is_training)
{
    static collected plain_all, fitted_all;
    const calibrations plain = {{ty_collective_uncalibrated(), ty_collective_uncalibrated()}};

    memset(&plain_all, 0, sizeof plain_all);
    memset(&fitted_all, 0, sizeof fitted_all);
    printf(
        "%s, %s machines\n\n"
        "| series | machine | rows from 1 MiB | NCCL %% | calibrated %% | median | signed | rows "
        "below | NCCL %% | calibrated %% | median | signed |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        title, is_training ? "training" : "held-out");
    for (uint32_t s = first, next; s < end; s = next) {
        static collected a, b;
        const bool is_queued = all[s].calls == TY_CALLS_QUEUED;
        char name[96];
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        for (next = s; next < end && all[next].from == all[s].from && all[next].kind == all[s].kind;
             next++) {
            if (all[s].from->is_training != is_training)
                continue;
            collect(&all[next], &plain, &a);
            collect(&all[next], with, &b);
            collect(&all[next], &plain, &plain_all);
            collect(&all[next], with, &fitted_all);
        }
        snprintf(name, sizeof name, "%s%s%s", all[s].from->name, is_queued ? " " : "",
                 is_queued ? ty_collective_name(all[s].kind) : "");
        if (all[s].from->is_training == is_training && !all[s].is_modelled)
            printf("| %s | %s | %u | not modelled |\n", name, all[s].from->machine, all[s].count);
        else if (all[s].from->is_training == is_training)
            print_row(name, all[s].from->machine, &a, &b);
    }
    print_row("**all**", "", &plain_all, &fitted_all);
    printf("\n");
}

/* Predicts rows from every second size of the same series, as a profile that `calibrate` makes of a
 * log: rows between its first and last size. */
static void collect_between(const series *s, collected *out)
{
    ty_profile profile = {0};
    ty_error error = {0};

    profile.collective_times = ty_alloc(s->count, sizeof *profile.collective_times);
    if (profile.collective_times == NULL) {
        ty_fail(&error, TY_ENOMEM, "out of memory");
        stop(&error);
    }
    for (uint32_t i = 0; i < s->count; i += 2)
        if (is_told(&s->points[i]))
            profile.collective_times[profile.collective_time_count++] =
                (ty_collective_time){.kind = s->kind,
                                     .algorithm = TY_AUTOMATIC,
                                     .ranks = s->ranks,
                                     .hosts = 1,
                                     .bytes = s->points[i].bytes,
                                     .seconds = s->points[i].seconds};
    for (uint32_t i = 1; i + 1 < s->count; i += 2) {
        const point *p = &s->points[i];
        const int c = class_of(p);
        double seconds;
        if (!is_told(p) || !is_told(p - 1) || out->counts[c] == 4096 ||
            !ty_profile_placed_collective(&profile, s->kind, TY_AUTOMATIC, s->ranks, 1, p->bytes,
                                          &seconds))
            continue;
        out->values[c][out->counts[c]++] = fabs(seconds / p->seconds - 1);
        out->sums[c] += seconds / p->seconds - 1;
    }
    ty_free(profile.collective_times);
}

/* Logs in which small messages take ten times as long as large ones. */
static bool is_erratic(const source *from)
{
    static const char *const names[] = {"dgx1-v100-2nodes-roce100-allreduce.log",
                                        "mle-b200-4n-all-reduce"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(from->name, names[i]) == 0)
            return true;
    return false;
}

static void print_between(const char *title, const series *all, uint32_t first, uint32_t end,
                          bool has_erratic)
{
    static collected between;

    memset(&between, 0, sizeof between);
    for (uint32_t s = first; s < end; s++)
        if (has_erratic || !is_erratic(all[s].from))
            collect_between(&all[s], &between);
    printf("| %s |", title);
    for (int c = LARGE; c >= SMALL; c--)
        printf(" %u | %.1f | %.1f |", between.counts[c], mean(&between, c),
               between.counts[c] > 0 ? 100 * median(between.values[c], between.counts[c]) : 0);
    printf("\n");
}

/* Measures nanoseconds to query a table, and microseconds to make one. */
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
    static series all[MOST_SERIES];
    calibrations with;
    uint32_t series_count = SOURCE_COUNT;
    const bool is_fit = count == 3 && strcmp(words[2], "--fit") == 0;

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
    read_queued(words[1], all, &series_count);
    for (uint32_t s = 0; s < series_count; s++)
        find_communicator(&all[s]);
    for (int calls = 0; calls < TY_CALLS_COUNT; calls++)
        with.of[calls] = ty_collective_calibrated((ty_collective_calls)calls);
    if (is_fit)
        with = fit(all, series_count);
    print_table("Launched", all, 0, SOURCE_COUNT, &with, true);
    print_table("Launched", all, 0, SOURCE_COUNT, &with, false);
    print_table("Queued", all, SOURCE_COUNT, series_count, &with, true);
    print_table("Queued", all, SOURCE_COUNT, series_count, &with, false);
    printf("Every second size by those beside it\n\n"
           "| calls | rows from 1 MiB | mean %% | median | rows below | mean %% | median |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    print_between("launched", all, 0, SOURCE_COUNT, true);
    print_between("launched, without two erratic logs", all, 0, SOURCE_COUNT, false);
    print_between("queued", all, SOURCE_COUNT, series_count, true);
    print_speed(&all[5]); /* several nodes: the most pairs to compare */
    for (uint32_t s = 0; s < series_count; s++)
        ty_free(all[s].points);
    return EXIT_SUCCESS;
}
