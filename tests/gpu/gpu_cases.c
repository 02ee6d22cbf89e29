/*
 * The program: `gpu_cases [--quick] [-o FILE] [NAME...]`. One line a case; exit code 1 when one
 * failed, 77 where there is no GPU. The same program runs on the emulator.
 */
#include "gpu_cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SKIP = 77 };

const ty_device_backend *gpu;
char message[512];
bool is_quick;
static FILE *results;
static int failures, passes;
static char **asked;
static int asked_count;

bool wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return false;
}

bool is_asked(const char *name)
{
    for (int i = 0; i < asked_count; i++)
        if (strstr(name, asked[i]) != NULL)
            return true;
    return asked_count == 0;
}

void report(const char *name, bool is_right)
{
    printf("%s %s%s%s\n", is_right ? "ok  " : "FAIL", name, is_right ? "" : ": ",
           is_right ? "" : message);
    fflush(stdout);
    if (results != NULL)
        fprintf(results, "%s\n    {\"name\": \"%s\", \"passed\": %s%s%s%s}",
                passes + failures > 0 ? "," : "", name, is_right ? "true" : "false",
                is_right ? "" : ", \"message\": \"", is_right ? "" : message, is_right ? "" : "\"");
    passes += is_right;
    failures += !is_right;
}

/* ---- For tests/gpu/check ---- */

/* The wall time of the later half of the steps, which the first ones' loading does not touch. */
static int bench(const char *workload, const char *precision, uint32_t batch, uint32_t steps)
{
    plan_shape shape = {.name = "one rank", .replicas = {1}, .buckets = 1};
    outcome some = {0}, more = {0};
    double step_s, samples;
    bool is_right;

    shape.global_batch = shape.micro_batch_size = batch;
    is_right = plan_run(workload, &shape, "cuda", precision, steps, &some) &&
               plan_run(workload, &shape, "cuda", precision, 3 * steps, &more);
    if (is_right) {
        step_s = (more.run->wall_s - some.run->wall_s) / (2 * steps);
        samples = batch / step_s;
        printf("{\"workload\": \"%s\", \"precision\": \"%s\", \"batch\": %u, \"steps\": %u, "
               "\"step_time_s\": %.6g, \"samples_per_s\": %.6g, \"first_loss\": %.6g, "
               "\"last_loss\": %.6g}\n",
               workload, precision, batch, steps, step_s, samples, more.run->losses[0],
               more.run->losses[3 * steps - 1]);
    } else {
        fprintf(stderr, "%s\n", message);
    }
    outcome_free(&some);
    outcome_free(&more);
    return !is_right;
}

/* Two processes each, so that they find one GPU. */
static const plan_shape jobs[] = {
    {.name = "replicas", .replicas = {2}, .buckets = 3, BATCH},
    {.name = "lanes", .replicas = {1}, .buckets = 3, BATCH, .lanes = 2, .divides_sequence = true},
    {.name = "2bw",
     .schedule = TY_PIPEDREAM_2BW,
     .replicas = {1, 1},
     .cuts = {13},
     .buckets = 1,
     BATCH},
    {.name = "interleaved",
     .schedule = TY_INTERLEAVED,
     .replicas = {1, 1, 1, 1},
     .cuts = {7, 13, 19},
     .buckets = 1,
     BATCH,
     .interleave = 2},
    {.name = "zero-3", .replicas = {2}, .buckets = 3, BATCH, .zero = 3},
    {.name = "late", .replicas = {2}, .buckets = 3, BATCH, .staleness = 2},
    {.name = "contexts", .replicas = {1}, .buckets = 3, BATCH, .contexts = 2},
    {.name = "one-bit",
     .replicas = {2},
     .buckets = 3,
     BATCH,
     .compression.kind = TY_COMPRESSION_ONE_BIT},
    {.name = "powersgd",
     .replicas = {2},
     .buckets = 3,
     BATCH,
     .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 4}},
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

int main(int argc, char **argv)
{
    ty_error error = {0};
    int first = 1;

    if (argc == 6 && strcmp(argv[1], "--bench") == 0)
        return bench(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]));
    if (argc == 5 && strcmp(argv[1], "--job") == 0)
        return job_write(argv[2], argv[3], argv[4]);

    for (; first < argc && argv[first][0] == '-'; first++) {
        if (strcmp(argv[first], "--quick") == 0)
            is_quick = true;
        else if (strcmp(argv[first], "-o") == 0 && first + 1 < argc)
            results = fopen(argv[++first], "w");
    }
    if (ty_device_backend_find("cuda", &gpu, &error) != TY_OK) {
        printf("skipped: %s\n", error.message);
        return EXIT_SKIP;
    }
    if (results != NULL)
        fprintf(results, "{\"schema\": \"trainyard.gpu_cases/1\", \"cases\": [");
    asked = argv + first;
    asked_count = argc - first;
    passes_run();
    lanes_run();
    updates_run();
    codecs_run();
    plans_run();
    schedules_run();
    graphs_run();
    links_run();
    if (results != NULL) {
        fprintf(results, "\n]}\n");
        fclose(results);
    }
    printf("%d passed, %d failed\n", passes, failures);
    return failures > 0 || passes == 0;
}
