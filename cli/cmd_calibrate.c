/* trainyard calibrate: logs of nccl-tests become measured collectives of a profile; with a workload
 * in their place see calibrate_training.c. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The collective that logs are of which do not say so themselves. */
static ty_status kind_of(const char *name, ty_collective_kind *kind, ty_error *error)
{
    *kind = TY_COLLECTIVE_COUNT;
    if (name == NULL)
        return TY_OK;
    for (int k = 0; k < TY_COLLECTIVE_COUNT; k++)
        if (strcmp(name, ty_collective_name((ty_collective_kind)k)) == 0) {
            *kind = (ty_collective_kind)k;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL,
                   "--collective: found '%s', expected all_reduce, all_gather, reduce_scatter, "
                   "broadcast, reduce, all_to_all or send_receive",
                   name);
}

/* The profile that rows are added to: the one that was named, else one of the cluster's devices. */
static ty_status open_profile(const cli_options *options, const ty_cluster *cluster,
                              ty_profile **out, ty_error *error)
{
    time_t now = time(NULL);
    char date[32] = "1970-01-01T00:00:00Z";
    struct tm day;

    if (options->profile != NULL)
        return ty_profile_load(options->profile, out, error);
    if (gmtime_r(&now, &day) != NULL)
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &day);
    return ty_profile_of_cluster(cluster, date, out, error);
}

static ty_status add_log(const char *path, ty_collective_kind kind, const ty_cluster *cluster,
                         bool quiet, ty_profile *profile, ty_error *error)
{
    ty_collective_log *log = NULL;
    ty_error detail = {0};
    ty_status status = ty_collective_log_load(path, kind, &log, error);

    if (status != TY_OK)
        return status;
    status = ty_profile_calibrate(profile, log, cluster, &detail);
    if (status == TY_EINVAL)
        status = ty_fail(error, TY_EPARSE, "%s: %s", path, detail.message);
    else if (status != TY_OK)
        status = ty_fail(error, status, "%s", detail.message);
    else if (!quiet)
        fprintf(stderr, "%s: %u sizes of %s among %u ranks\n", path, log->row_count,
                ty_collective_name(log->kind), log->ranks);
    ty_collective_log_free(log);
    return status;
}

exit_code cmd_calibrate(const cli_options *options)
{
    ty_error error = {0};
    ty_cluster *cluster = NULL;
    ty_profile *profile = NULL;
    ty_collective_kind kind = TY_COLLECTIVE_COUNT;
    exit_code code = EXIT_DONE;
    ty_status status;

    if (options->workload != NULL && options->file_count > 0)
        return report_usage("calibrate", "found logs and --workload, expected one of them");
    if (options->workload != NULL)
        return calibrate_training(options);
    if (options->file_count == 0)
        return report_usage("calibrate", "needs logs, or --workload");
    if (options->cluster == NULL)
        return report_usage("calibrate", "--cluster is needed");
    TY_CHECK(kind_of(options->collective, &kind, &error), status, failed);
    TY_CHECK(ty_cluster_open(options->cluster, NULL, &cluster, &error), status, failed);
    TY_CHECK(open_profile(options, cluster, &profile, &error), status, failed);
    for (int i = 0; i < options->file_count; i++)
        TY_CHECK(add_log(options->files[i], kind, cluster, options->quiet, profile, &error), status,
                 failed);
    if (ty_profile_save(profile, options->output != NULL ? options->output : "-", &error) != TY_OK)
        code = report_failure(&error);
failed:
    if (status != TY_OK)
        code = report_bad_input(&error);
    ty_profile_free(profile);
    ty_cluster_free(cluster);
    return code;
}
