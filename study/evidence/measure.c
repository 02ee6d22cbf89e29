/* Measures this machine with a profile job, and caches the profile. */
#include "busy.h"
#include "cache.h"
#include "question.h"

#include "ty_base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* CPU time of all waited-for children. */
static double children_cpu_s(void)
{
    struct rusage used;

    if (getrusage(RUSAGE_CHILDREN, &used) != 0)
        return 0;
    return (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec +
           (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
}

/* Warns of other processes, whose CPU load slows the measurement. */
static void warn_of_others(double share, const ty_watch *watch)
{
    if (share >= TY_BUSY_SHARE)
        ty_watch_note(watch,
                      "warning: this machine was busy: others took %.0f %% of its cores while it "
                      "was measured; times are longer than they will be",
                      share * 100);
}

ty_status ty_profile_measure(const ty_workload *workload, const char *backend,
                             const char *precision, uint32_t ranks, const uint32_t *micro_batches,
                             uint32_t micro_batch_count, const ty_watch *watch, ty_profile **out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    char output[PATH_MAX] = "";
    ty_cpu_clock from, to;
    double own_cpu_s;
    bool has_clock;
    ty_job *job = ty_alloc(1, sizeof *job);

    TY_CHECK(ty_check_memory(job != NULL, error), status, cleanup);
    TY_CHECK(ty_scratch_file("trainyard-profile", output, sizeof output, error), status, cleanup);
    job->kind = TY_JOB_PROFILE;
    job->backend = ty_strdup(backend);
    job->precision = ty_strdup(precision);
    job->output = ty_strdup(output);
    job->micro_batches = ty_alloc(micro_batch_count, sizeof *job->micro_batches);
    TY_CHECK(ty_check_memory(
                 job->backend != NULL && job->output != NULL && job->micro_batches != NULL, error),
             status, cleanup);
    has_clock = ty_cpu_clock_read(&from);
    own_cpu_s = children_cpu_s();
    memcpy(job->micro_batches, micro_batches, micro_batch_count * sizeof *micro_batches);
    job->micro_batch_count = micro_batch_count;
    TY_CHECK(ty_plan_of_workload(workload, &job->plan, error), status, cleanup);
    TY_CHECK(ty_worker_run(job, ranks, watch, error), status, cleanup);
    TY_CHECK(ty_profile_load(output, out, error), status, cleanup);
    if (has_clock && ty_cpu_clock_read(&to))
        (*out)->others_share = ty_others_share(&from, &to, children_cpu_s() - own_cpu_s);
    warn_of_others((*out)->others_share, watch);

cleanup:
    if (output[0] != '\0')
        unlink(output);
    ty_job_free(job);
    return status;
}

ty_status ty_samples_measure(const ty_workload *workload, const char *data, uint32_t bad_samples,
                             const ty_watch *watch, ty_samples **out, ty_error *error)
{
    ty_status status = TY_OK;
    char output[PATH_MAX] = "";
    ty_cpu_clock from, to;
    bool has_clock;
    double own_cpu_s;
    ty_job *job = ty_alloc(1, sizeof *job);

    TY_TRY(ty_check_memory(job != NULL, error));
    TY_CHECK(ty_scratch_file("trainyard-samples", output, sizeof output, error), status, cleanup);
    job->kind = TY_JOB_SAMPLES;
    job->backend = ty_strdup("cpu");
    job->data = ty_strdup(data);
    job->output = ty_strdup(output);
    job->bad_samples = bad_samples;
    TY_CHECK(
        ty_check_memory(job->backend != NULL && job->data != NULL && job->output != NULL, error),
        status, cleanup);
    has_clock = ty_cpu_clock_read(&from);
    own_cpu_s = children_cpu_s();
    TY_CHECK(ty_plan_of_workload(workload, &job->plan, error), status, cleanup);
    TY_CHECK(ty_worker_run(job, 1, watch, error), status, cleanup);
    TY_CHECK(ty_samples_load(output, out, error), status, cleanup);
    if (has_clock && ty_cpu_clock_read(&to))
        warn_of_others(ty_others_share(&from, &to, children_cpu_s() - own_cpu_s), watch);

cleanup:
    if (output[0] != '\0')
        unlink(output);
    ty_job_free(job);
    return status;
}

/* The batch and its halves: likely micro-batch sizes of a plan with that batch. */
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

/* profile-HOST-WORKLOAD-DIGEST-rRANKS-bBATCH.json: the names are only for readers.
 */
static ty_status cache_of(const ty_workload *workload, uint32_t ranks, uint32_t batch,
                          ty_cache **out, ty_error *error)
{
    char host[65] = "", plain_host[65], plain_name[41], name[256];
    ty_digest digest;

    TY_TRY(ty_workload_digest(workload, &digest, error));
    gethostname(host, sizeof host - 1);
    ty_cache_word(host, plain_host, sizeof plain_host);
    ty_cache_word(workload->name, plain_name, sizeof plain_name);
    snprintf(name, sizeof name, "profile-%s-%s-%.12s-r%u-b%u.json", plain_host, plain_name,
             digest.hex, ranks, batch);
    return ty_cache_open(name, out, error);
}

/* Notes that there is no cache, and continues without it. */
static void warn_of_cache(const ty_error *trouble, const ty_watch *watch)
{
    ty_watch_note(watch, "warning: measurements are not kept: %s", trouble->message);
}

/* Current CPU share of other processes. */
static double others_now(void)
{
    const struct timespec nap = {0, 200000000};
    ty_cpu_clock from, to;

    if (!ty_cpu_clock_read(&from))
        return 0;
    nanosleep(&nap, NULL);
    return ty_cpu_clock_read(&to) ? ty_others_share(&from, &to, 0) : 0;
}

/* A profile cached on a busy machine is used until the machine is quieter, then measured again. */
static void renew_if_quiet(ty_profile **profile, const ty_watch *watch)
{
    const double then = *profile != NULL ? (*profile)->others_share : 0;
    double now;

    if (then < TY_BUSY_SHARE)
        return;
    now = others_now();
    if (now < TY_BUSY_SHARE && now < then / 2) {
        ty_watch_note(watch,
                      "what was kept was measured while others took %.0f %% of this machine: "
                      "measuring again",
                      then * 100);
        ty_profile_free(*profile);
        *profile = NULL;
        return;
    }
    ty_watch_note(watch,
                  "warning: times were measured while others took %.0f %% of this machine, which "
                  "is busy still (%.0f %%)",
                  then * 100, now * 100);
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
    ty_error trouble = {0};
    ty_cache *cache = NULL;

    status = cache_of(workload, ranks, batch, &cache, &trouble);
    if (status == TY_OK)
        status = ty_cache_load(cache, &profile, &trouble);
    if (status != TY_OK)
        warn_of_cache(&trouble, watch);
    renew_if_quiet(&profile, watch);
    if (profile == NULL) {
        const bool is_kept = status == TY_OK;
        TY_CHECK(ty_profile_measure(workload, "cpu", NULL, ranks, sizes, size_count, watch,
                                    &profile, error),
                 status, cleanup);
        if (is_kept && ty_cache_keep(cache, profile, &trouble) != TY_OK)
            warn_of_cache(&trouble, watch);
        else if (is_kept)
            ty_watch_note(watch, "measured this machine; kept in %s (remove it to measure anew)",
                          ty_cache_shown(cache));
    }
    *out = profile;
    profile = NULL;
    status = TY_OK;

cleanup:
    ty_profile_free(profile);
    ty_cache_close(cache);
    return status;
}
