/* Measuring this machine through a profile job, and keeping what was measured. */
#include "question.h"

#include "ty_memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whoever computes meanwhile makes all that is measured longer. */
static void warn_of_load(const ty_watch *watch)
{
    const double most_share = 0.5; /* of the cores, by others */
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double load = 0;

    if (getloadavg(&load, 1) == 1 && load > most_share * (double)cores)
        ty_watch_note(watch,
                      "warning: this machine is busy (load %.1f on %ld cores); times measured now "
                      "are longer than they will be",
                      load, cores);
}

ty_status ty_profile_measure(const ty_workload *workload, const char *backend,
                             const char *precision, uint32_t ranks, const uint32_t *micro_batches,
                             uint32_t micro_batch_count, const ty_watch *watch, ty_profile **out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    char output[PATH_MAX] = "";
    ty_job *job = ty_alloc(1, sizeof *job);

    if (job == NULL) {
        status = ty_fail(error, TY_ENOMEM, "cannot prepare a profile job");
        goto cleanup;
    }
    TY_CHECK(ty_scratch_file("trainyard-profile", output, sizeof output, error), status, cleanup);
    job->kind = TY_JOB_PROFILE;
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(precision);
    job->output = ty_strdup(output);
    job->micro_batches = ty_alloc(micro_batch_count, sizeof *job->micro_batches);
    if (job->backend == NULL || job->output == NULL || job->micro_batches == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    warn_of_load(watch);
    memcpy(job->micro_batches, micro_batches, micro_batch_count * sizeof *micro_batches);
    job->micro_batch_count = micro_batch_count;
    TY_CHECK(ty_plan_of_workload(workload, &job->plan, error), status, cleanup);
    TY_CHECK(ty_worker_run(job, ranks, watch, error), status, cleanup);
    TY_CHECK(ty_profile_load(output, out, error), status, cleanup);

cleanup:
    if (output[0] != '\0')
        unlink(output);
    ty_job_free(job);
    return status;
}

/* The batch and its halves: what micro-batch sizes a plan of that batch is likely to use. */
static uint32_t usual_sizes(uint32_t batch, uint32_t sizes[6])
{
    uint32_t count = 0;
    uint32_t smallest = batch;

    while (count < 5 && smallest > 1 && smallest % 2 == 0) {
        smallest /= 2;
        count++;
    }
    for (uint32_t i = 0; i <= count; i++)
        sizes[i] = smallest << i;
    return count + 1;
}

/* $XDG_CACHE_HOME/trainyard/profile-HOST-WORKLOAD-rRANKS-bBATCH.json */
static ty_status cache_path(const ty_workload *workload, uint32_t ranks, uint32_t batch, char **out,
                            ty_error *error)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char host[65] = "";
    ty_digest digest;
    ty_text path = {0};
    ty_status status = ty_workload_digest(workload, &digest, error);

    if (status != TY_OK)
        return status;
    gethostname(host, sizeof host - 1);
    if (cache != NULL && cache[0] != '\0')
        ty_text_addf(&path, "%s/trainyard", cache);
    else
        ty_text_addf(&path, "%s/.cache/trainyard", home != NULL ? home : "/tmp");
    status = ty_directory_make(path.data != NULL ? path.data : "", error);
    ty_text_addf(&path, "/profile-%s-%s-%.12s-r%u-b%u.json", host, workload->name, digest.hex,
                 ranks, batch);
    if (status == TY_OK)
        status = ty_text_take(&path, out, error);
    ty_text_clear(&path);
    return status;
}

ty_status ty_profile_measure_cached(const ty_workload *workload, uint32_t ranks,
                                    uint32_t global_batch, const ty_watch *watch, ty_profile **out,
                                    ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t batch = global_batch > 0 ? global_batch : workload->global_batch;
    uint32_t sizes[6];
    uint32_t size_count = usual_sizes(batch, sizes);
    ty_profile *profile = NULL;
    ty_error ignored = {0};
    char *path = NULL;

    TY_CHECK(cache_path(workload, ranks, batch, &path, error), status, cleanup);
    /* A cached file that no longer reads is measured anew, not complained about. */
    if (!ty_file_exists(path) || ty_profile_load(path, &profile, &ignored) != TY_OK) {
        TY_CHECK(ty_profile_measure(workload, "cpu", NULL, ranks, sizes, size_count, watch,
                                    &profile, error),
                 status, cleanup);
        TY_CHECK(ty_profile_save(profile, path, error), status, cleanup);
        ty_watch_note(watch, "measured this machine; kept in %s (remove it to measure anew)", path);
    }
    *out = profile;
    profile = NULL;

cleanup:
    ty_profile_free(profile);
    ty_free(path);
    return status;
}
