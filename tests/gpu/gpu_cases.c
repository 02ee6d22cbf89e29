/*
 * The program: `gpu_cases [--quick] [-o FILE] [--family F] [--from N] [--stop] [NAME...]`. Prints
 * one line per case; exit code 1 if a case failed, 77 if there is no GPU. The same program runs on
 * the emulator. FILE gets a line of JSON when a case begins and one when it ends, each written
 * immediately. After a crash it names the case; --from continues after that. --stop ends at the
 * first failure, since a device that failed once may fail all later cases. A NAME is a part of
 * cases' names, or, after a "=", a complete name.
 */
#include "gpu_cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

const ty_device_backend *gpu;
char message[512];
bool is_quick, is_deterministic;
static FILE *results;
static int failures, passes;
static char **asked;
static int asked_count;
static long begun, first_wanted; /* cases in their order */
static bool stops;

bool wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return false;
}

static void line_write(const char *kind, const char *name, const bool *passed, const char *said)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    if (results == NULL)
        return;
    ty_json_open_flat(&w, NULL, '{');
    ty_json_put_string(&w, kind, name);
    if (passed != NULL)
        ty_json_put_bool(&w, "passed", *passed);
    if (said != NULL)
        ty_json_put_string(&w, "message", said);
    ty_json_close(&w, '}');
    fprintf(results, "%s\n", ty_text_check(&text, NULL) == TY_OK ? text.data : "{}");
    fflush(results);
    ty_text_clear(&text);
}

static bool is_named(const char *name)
{
    for (int i = 0; i < asked_count; i++)
        if (asked[i][0] == '=' ? strcmp(name, asked[i] + 1) == 0 : strstr(name, asked[i]) != NULL)
            return true;
    return asked_count == 0;
}

bool is_asked(const char *name)
{
    if (!is_named(name) || (stops && failures > 0) || begun++ < first_wanted)
        return false;
    line_write("begins", name, NULL, NULL);
    return true;
}

void report(const char *name, bool is_right)
{
    printf("%s %s%s%s\n", is_right ? "ok  " : "FAIL", name, is_right ? "" : ": ",
           is_right ? "" : message);
    fflush(stdout);
    line_write("name", name, &is_right, is_right ? NULL : message);
    passes += is_right;
    failures += !is_right;
}

/* ---- For tests/gpu/check ---- */

/* Two processes each, which share one GPU. */
static const plan_shape jobs[] = {
    {.name = "replicas", .replicas = {2}, .buckets = 3, BATCH},
    {.name = "halves",
     .schedule = TY_ONE_F_ONE_B,
     .replicas = {1, 1},
     .cuts = {3},
     .buckets = 1,
     BATCH},
    {.name = "lanes", .replicas = {1}, .buckets = 3, BATCH, .tp = 2, .divides_sequence = true},
    {.name = "zero-3", .replicas = {2}, .buckets = 3, BATCH, .zero = 3},
};

static int job_write(const char *workload, const char *name, const char *folder)
{
    const plan_shape *shape = NULL;
    ty_job *job;
    ty_error error = {0};
    char path[4096];
    ty_status status;

    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (strcmp(jobs[i].name, name) == 0)
            shape = &jobs[i];
    if (shape == NULL) {
        fprintf(stderr, "found no job \"%s\"\n", name);
        return 2;
    }
    job = make_job(make_plan(workload, shape), 10, folder);
    ty_free(job->backend);
    job->backend = ty_strdup("cuda");
    snprintf(path, sizeof path, "%s/job.json", folder);
    status = ty_job_save(job, path, &error);
    if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    else
        printf("%s\n", job->output);
    ty_job_free(job);
    return status != TY_OK;
}

static const struct {
    const char *name;
    void (*run)(void);
} families[] = {{"passes", passes_run}, {"lanes", parallel_run}, {"updates", updates_run},
                {"codecs", codecs_run}, {"plans", plans_run},    {"schedules", schedules_run},
                {"graphs", graphs_run}, {"links", links_run},    {"attention", attention_run}};

static int usage(void)
{
    fprintf(stderr,
            "usage: gpu_cases [--quick] [-o FILE] [--family F] [--from N] [--stop] "
            "[NAME...]\n       gpu_cases --bench WORKLOAD PRECISION BATCH STEPS [--deterministic]\n"
            "       gpu_cases --bench-profiled WORKLOAD PRECISION BATCH\n"
            "       gpu_cases --rates PRECISION SIDE\n"
            "       gpu_cases --job WORKLOAD JOB FOLDER\n"
            "       gpu_cases --sweep COLLECTIVE RANKS LARGEST_BYTES\n"
            "       gpu_cases --count WORKLOAD PRECISION BATCH\n");
    return 2;
}

int main(int argc, char **argv)
{
    ty_error error = {0};
    const char *family = NULL;
    int first = 1;

    is_deterministic = argc == 7 && strcmp(argv[6], "--deterministic") == 0;
    if ((argc == 6 || is_deterministic) && strcmp(argv[1], "--bench") == 0)
        return bench_run(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]), false);
    if (argc == 5 && strcmp(argv[1], "--bench-profiled") == 0)
        return bench_run(argv[2], argv[3], (uint32_t)atoi(argv[4]), 1, true);
    if (argc == 4 && strcmp(argv[1], "--rates") == 0)
        return rates_run(argv[2], (uint32_t)atoi(argv[3]));
    if (argc == 5 && strcmp(argv[1], "--job") == 0)
        return job_write(argv[2], argv[3], argv[4]);
    if (argc == 5 && strcmp(argv[1], "--sweep") == 0)
        return sweep_run(argv[2], (uint32_t)atoi(argv[3]), strtoull(argv[4], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "--count") == 0)
        return counts_run(argv[2], argv[3], (uint32_t)atoi(argv[4]));

    for (; first < argc && argv[first][0] == '-'; first++) {
        const bool has_value = first + 1 < argc;
        if (strcmp(argv[first], "--quick") == 0)
            is_quick = true;
        else if (strcmp(argv[first], "--stop") == 0)
            stops = true;
        else if (strcmp(argv[first], "-o") == 0 && has_value)
            results = fopen(argv[++first], "a");
        else if (strcmp(argv[first], "--from") == 0 && has_value)
            first_wanted = atol(argv[++first]);
        else if (strcmp(argv[first], "--family") == 0 && has_value)
            family = argv[++first];
        else
            return usage();
    }
    if (ty_device_backend_find("cuda", false, &gpu, &error) != TY_OK) {
        printf("skipped: %s\n", error.message);
        return EXIT_SKIP;
    }
    asked = argv + first;
    asked_count = argc - first;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        if (family == NULL || strcmp(family, families[f].name) == 0)
            families[f].run();
    if (results != NULL)
        fclose(results);
    printf("%d passed, %d failed\n", passes, failures);
    return failures > 0 || passes == 0;
}
