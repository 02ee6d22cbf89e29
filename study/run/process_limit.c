/* Checks before the start how many processes this machine can run. */
#include "worker.h"

#include "ty_topologies.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Ranks per core at most: above it, a run only measures the scheduling queue. Plans for other
 * machines do not assume shared cores at all. */
enum { MOST_PER_CORE = 16, MOST_FOREIGN_PER_CORE = 2 };

/* Memory of a rank without a model: MPI, libraries, buffers. Measured: 35 MB of private memory. */
#define BARE_PROCESS_BYTES (40.0 * (1 << 20))

/* kB of a line "NAME: N kB"; 0 if there is none. */
static double kilobytes_of(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    double kilobytes = 0;

    if (line != NULL && sscanf(line + strlen(name), "%lf", &kilobytes) != 1)
        kilobytes = 0;
    return kilobytes;
}

/* The number in a file of cgroup v2; HUGE if it is "max", or there is no such file. */
static double group_bytes(const char *path)
{
    char text[64] = "";
    double bytes = 1e300;
    FILE *file = fopen(path, "r");

    if (file == NULL)
        return bytes;
    if (fgets(text, sizeof text, file) != NULL && sscanf(text, "%lf", &bytes) != 1)
        bytes = 1e300;
    fclose(file);
    return bytes;
}

/* Memory that is free without swapping; 0 if unknown. */
static double available_bytes(void)
{
    char text[4096];
    size_t length;
    double bytes, group;
    FILE *file = fopen("/proc/meminfo", "r");

    if (file == NULL)
        return 0;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    bytes = 1024 * (kilobytes_of(text, "MemAvailable:") + kilobytes_of(text, "SwapFree:"));
    group = group_bytes("/sys/fs/cgroup/memory.max");
    if (group < 1e300)
        group -= group_bytes("/sys/fs/cgroup/memory.current");
    return group > 0 && group < bytes ? group : bytes;
}

/* Memory of all processes of the job, by the plan. */
static double needed_bytes(const ty_job *job, uint32_t processes)
{
    const ty_plan *plan = job->plan;
    ty_server_map map = {0};
    double bytes = processes * BARE_PROCESS_BYTES;

    if (job->kind != TY_JOB_TRAIN || job->instruction_s != NULL || plan->memory == NULL)
        return bytes;
    for (uint32_t r = 0; r < ty_plan_stage_replica_count(plan); r++) {
        const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, r);
        bytes += (double)ty_memory_use_total(&plan->memory[pipeline_rank % plan->stage_count]) *
                 ty_plan_replica_ranks(plan);
    }
    if (ty_server_map_make(plan, &map, NULL) == TY_OK)
        for (uint32_t s = 0; s < plan->servers.count; s++)
            bytes += (double)ty_server_bytes(plan, &map, s);
    ty_server_map_clear(&map);
    return bytes;
}

ty_status ty_processes_check(const ty_job *job, uint32_t processes, ty_error *error)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t cores = online > 0 ? (uint32_t)online : 1;
    const bool is_training = job->kind == TY_JOB_TRAIN && job->instruction_s == NULL;
    const double available = available_bytes(), needed = needed_bytes(job, processes);
    uint32_t local;
    char has[32], wants[32];

    if (is_training && processes > MOST_FOREIGN_PER_CORE * cores &&
        !ty_cluster_is_local(job->plan->cluster_name, &local))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%u processes of a plan for %.80s, expected at most %u on this machine's %u "
                       "core%s: plan with -c local, or let --backend replay play it",
                       processes, job->plan->cluster_name, MOST_FOREIGN_PER_CORE * cores, cores,
                       cores > 1 ? "s" : "");
    if (processes > MOST_PER_CORE * cores)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%u processes, expected at most %u on this machine: %d for each of %u "
                       "core%s",
                       processes, MOST_PER_CORE * cores, MOST_PER_CORE, cores,
                       cores > 1 ? "s" : "");
    if (available > 0 && needed > available) {
        ty_format_memory(needed, wants);
        ty_format_memory(available, has);
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%u processes that need %s, expected at most the %s of memory that are "
                       "free",
                       processes, wants, has);
    }
    return TY_OK;
}

void ty_limits_text(ty_text *text)
{
    static const struct {
        int resource;
        const char *name;
    } limits[] = {
        {RLIMIT_AS, "the address space of a process"},
        {RLIMIT_DATA, "the data of a process"},
        {RLIMIT_FSIZE, "the size of a file"},
    };
    const char *before = ", under a limit of ";

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit limit;
        char bytes[32];
        if (getrlimit(limits[i].resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
            continue;
        ty_format_memory((double)limit.rlim_cur, bytes);
        ty_text_addf(text, "%s%s for %s", before, bytes, limits[i].name);
        before = " and of ";
    }
}
