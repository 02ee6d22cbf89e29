/* Adds logs to a profile as measured collectives, which the planner prefers to its model. */
#include "ty_collective_model.h"

#include <math.h>

/* Ranks fill hosts one after another. */
static ty_status find_hosts(const ty_collective_log *log, const ty_cluster *cluster,
                            uint32_t *hosts, ty_error *error)
{
    uint32_t devices = ty_cluster_device_count(cluster), packed;

    if (log->ranks > devices)
        return ty_fail(error, TY_EINVAL,
                       "found %u ranks in the log, expected at most the %u "
                       "devices of cluster \"%s\"",
                       log->ranks, devices, ty_cluster_name(cluster));
    packed = ty_cluster_device_host(cluster, log->ranks - 1) + 1;
    if (log->hosts > ty_cluster_host_count(cluster) || log->ranks % (log->hosts ? log->hosts : 1))
        return ty_fail(error, TY_EINVAL,
                       "found %u ranks on %u hosts in the log, expected them in equal parts on at "
                       "most the %u hosts of cluster \"%s\"",
                       log->ranks, log->hosts, ty_cluster_host_count(cluster),
                       ty_cluster_name(cluster));
    *hosts = log->hosts > 0 ? log->hosts : packed;
    return TY_OK;
}

static ty_status put_row(ty_profile *profile, const ty_collective_time *row, ty_error *error)
{
    ty_collective_time *rows = profile->collective_times;
    uint32_t count = profile->collective_time_count;

    for (uint32_t i = 0; i < count; i++)
        if (rows[i].kind == row->kind && rows[i].algorithm == row->algorithm &&
            rows[i].ranks == row->ranks && rows[i].hosts == row->hosts &&
            rows[i].bytes == row->bytes) {
            rows[i] = *row;
            return TY_OK;
        }
    TY_TRY(
        ty_check_memory((rows = ty_resize(rows, (size_t)count + 1, sizeof *rows)) != NULL, error));
    rows[count] = *row;
    profile->collective_times = rows;
    profile->collective_time_count++;
    return TY_OK;
}

ty_status ty_profile_calibrate(ty_profile *profile, const ty_collective_log *log,
                               const ty_cluster *cluster, ty_error *error)
{
    uint32_t hosts = 0;
    ty_status status = find_hosts(log, cluster, &hosts, error);

    for (uint32_t i = 0; status == TY_OK && i < log->row_count; i++) {
        const ty_collective_log_row *row = &log->rows[i];
        status =
            put_row(profile,
                    &(ty_collective_time){.kind = log->kind,
                                          .algorithm = TY_AUTOMATIC,
                                          .ranks = log->ranks,
                                          .hosts = hosts,
                                          .bytes = row->bytes,
                                          .seconds = fmin(row->out_of_place_s, row->in_place_s)},
                    error);
    }
    return status;
}

ty_status ty_profile_of_cluster(const ty_cluster *cluster, const char *date, ty_profile **out,
                                ty_error *error)
{
    const ty_device_type *type = ty_cluster_device_type(cluster, 0);
    ty_profile *profile = ty_alloc(1, sizeof *profile);

    TY_TRY(ty_check_memory(profile != NULL, error));
    *profile = (ty_profile){.machine = ty_strdup(ty_cluster_name(cluster)),
                            .backend = ty_strdup("nccl"),
                            .date = ty_strdup(date),
                            .versions = ty_strdup("nccl-tests"),
                            .cores = 1,
                            .concurrent_ranks = 1,
                            .memory_bytes = type->memory_bytes,
                            .peak_flop_per_s = type->peak_fp32_flop_per_s,
                            .memory_bandwidth_bytes_per_s = type->memory_bandwidth_bytes_per_s};
    if (profile->machine == NULL || profile->backend == NULL || profile->date == NULL ||
        profile->versions == NULL) {
        ty_profile_free(profile);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    *out = profile;
    return TY_OK;
}
