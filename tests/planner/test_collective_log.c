/* Logs of nccl-tests: the collection next to the repository, and small ones made here. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOGS TY_SHARED_DATA "/nccl-logs/"

static void skip_without_logs(void)
{
    if (!ty_file_exists(LOGS "failed-run.log"))
        cr_skip_test("no %s", LOGS);
}

Test(log, published_logs)
{
    static const struct {
        const char *name;
        ty_collective_kind kind;
        uint32_t ranks, hosts, rows;
        uint64_t last_bytes;
        double last_us; /* out of place */
    } rows[] = {
        {"azure-ndv4-a100x8-allreduce.log", TY_ALL_REDUCE, 8, 1, 32, 8589934592, 63896},
        {"azure-ndv4-a100x8-allgather.log", TY_ALL_GATHER, 8, 1, 29, 1073741824, 33646},
        {"azure-ndv4-a100x8-alltoall.log", TY_ALL_TO_ALL, 8, 1, 29, 8589934592, 33508},
        {"dgx1-v100-2nodes-roce100-allreduce.log", TY_ALL_REDUCE, 16, 0, 29, 2147483648, 175667},
        {"dgxa100-2nodes-hdr200x8-allreduce.log", TY_ALL_REDUCE, 32, 0, 13, 4294967296, 43557},
        {"gcp-a3mega-h100-2nodes-allgather.log", TY_ALL_GATHER, 16, 0, 26, 536870912, 42668.7},
        {"gcp-a3ultra-h200-64gpu-allreduce-1.7GB.log", TY_ALL_REDUCE, 64, 8, 1, 1731821448, 14196},
        {"gcp-a3ultra-h200-8gpu-allreduce-1.7GB.log", TY_ALL_REDUCE, 8, 1, 1, 1731821448, 6483.2},
        {"oci-h100x8-allreduce-51MB.log", TY_ALL_REDUCE, 8, 1, 1, 53687090, 287},
        {"supermicro-b200x8-allreduce-38MB.log", TY_ALL_REDUCE, 8, 1, 1, 40160460, 180.6},
        {"supermicro-h100x8-allreduce-0.log", TY_ALL_REDUCE, 8, 1, 6, 704643072, 2693.8},
        {"supermicro-h100x8-allreduce-1.log", TY_ALL_REDUCE, 8, 1, 6, 704643072, 2693.5},
    };

    skip_without_logs();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_collective_log *log = NULL;
        ty_error error = {0};
        char path[512];
        snprintf(path, sizeof path, "%s%s", LOGS, rows[i].name);
        cr_assert_eq(ty_collective_log_load(path, TY_COLLECTIVE_COUNT, &log, &error), TY_OK, "%s",
                     error.message);
        cr_expect(log->kind == rows[i].kind && log->ranks == rows[i].ranks &&
                      log->hosts == rows[i].hosts && log->row_count == rows[i].rows,
                  "%s: found %s, %u ranks on %u hosts, %u rows", rows[i].name,
                  ty_collective_name(log->kind), log->ranks, log->hosts, log->row_count);
        cr_expect_eq(log->rows[log->row_count - 1].bytes, rows[i].last_bytes, "%s", rows[i].name);
        cr_expect_float_eq(log->rows[log->row_count - 1].out_of_place_s, rows[i].last_us * 1e-6,
                           1e-9);
        ty_collective_log_free(log);
    }
}

Test(log, published_files_that_are_none)
{
    static const struct {
        const char *name, *message;
    } rows[] = {
        {"failed-run.log", "found no rows of nccl-tests; the last line is \"srun: error: Unable to "
                           "create step for job 551"},
        {"nccl-tuner-sample.csv", ":1: found a table for NCCL's tuner plug-in"},
    };

    skip_without_logs();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_collective_log *log = NULL;
        ty_error error = {0};
        char path[512];
        snprintf(path, sizeof path, "%s%s", LOGS, rows[i].name);
        cr_expect_eq(ty_collective_log_load(path, TY_COLLECTIVE_COUNT, &log, &error), TY_EPARSE);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\"", error.message);
        cr_expect_null(log);
    }
}

#define HEADER "# nThread 1\n# size count type redop root time algbw busbw #wrong\n"
#define DEVICES                                                                                    \
    "#  Rank  0 Group  0 Pid 1 on alpha device  0 [0x0f] H100\n"                                   \
    "#  Rank  1 Group  0 Pid 2 on beta device  0 [0x0f] H100\n"
#define ROW "1048576 262144 float sum -1 100.0 10.49 10.49 0 90.0 11.65 11.65 0\n"

Test(log, what_is_wrong_with_them)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "x: found no rows of nccl-tests"},
        {HEADER DEVICES "1048576 262144 float sum -1 100.0 10.49\n", "x:5: found a row cut short"},
        {HEADER DEVICES "1048576 262144 float sum -1 100.0 10.49 10.49 3 90.0 11.65 11.65 0\n",
         "x:5: found wrong results"},
        {HEADER DEVICES "1048576 262144 float sum -1 0.0 10.49 10.49 0 90.0 11.65 11.65 0\n",
         "x:5: found a time of 0 us"},
        {HEADER DEVICES "1048576 262144 float sum -1 nan 10.49 10.49 0 90.0 11.65 11.65 0\n",
         "x:5: found nan, expected microseconds"},
        {HEADER DEVICES ROW, "x: found no program's name"},
        {"all_reduce_perf\n" HEADER "8 2 float sum -1 1.0 0.00 0.00 0 1.0 0.00 0.00 0\n",
         "x: found no list of devices and no way to tell the ranks"},
        {"all_reduce_perf\n" HEADER "#  Rank  0 Group  0 Pid 1 on a device  0\n"
         "1048576 262144 float sum -1 10.0 104.9 0.00 0 9.0 116.5 0.00 0\n",
         "x: found a log of one rank, which exchanges nothing: no calibration"},
        {"all_reduce_perf\n" HEADER DEVICES
         "1048576 262144 float sum -1 100.0 10.0 15.0 0 90.0 10.0 15.0 0\n",
         "x: found a bus bandwidth 1.500 times"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_collective_log *log = NULL;
        ty_error error = {0};
        cr_expect_eq(ty_collective_log_parse(rows[i].text, "x", TY_COLLECTIVE_COUNT, &log, &error),
                     TY_EPARSE, "%s", rows[i].message);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\", expected \"%s\"",
                  error.message, rows[i].message);
        ty_collective_log_free(log);
    }
}

Test(log, memory_may_run_out_anywhere)
{
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK; n++) {
        ty_collective_log *log = NULL;
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_collective_log_parse("all_reduce_perf\n" HEADER DEVICES ROW, "x",
                                         TY_COLLECTIVE_COUNT, &log, &error);
        ty_memory_fail_after(0);
        if (status != TY_OK)
            cr_assert(status == TY_ENOMEM && log == NULL, "allocation %ld: %s", n, error.message);
        ty_collective_log_free(log);
    }
    cr_expect_gt(n, 3);
}

/* Rows are added to a profile with their hosts, the shorter of the two times. A second log of the
 * same sizes replaces the first, and a query between measured sizes also counts as measured. */
Test(log, calibration)
{
    ty_collective_log *log = NULL;
    ty_cluster *cluster = NULL;
    ty_profile *profile = NULL;
    ty_error error = {0};
    double seconds = 0;

    cr_assert_eq(ty_cluster_open("2x dgx-h100", NULL, &cluster, &error), TY_OK);
    cr_assert_eq(ty_profile_of_cluster(cluster, "2026-01-01T00:00:00Z", &profile, &error), TY_OK);
    cr_assert_eq(ty_collective_log_parse("all_reduce_perf\n" HEADER DEVICES ROW, "x",
                                         TY_COLLECTIVE_COUNT, &log, &error),
                 TY_OK, "%s", error.message);
    cr_expect(log->ranks == 2 && log->hosts == 2);
    for (int twice = 0; twice < 2; twice++)
        cr_assert_eq(ty_profile_calibrate(profile, log, cluster, &error), TY_OK, "%s",
                     error.message);
    cr_assert_eq(profile->collective_time_count, 1);
    cr_expect(ty_profile_placed_collective(profile, TY_ALL_REDUCE, TY_AUTOMATIC, 2, 2, 1 << 20,
                                           &seconds));
    cr_expect_float_eq(seconds, 90e-6, 1e-12);
    cr_expect_not(
        ty_profile_placed_collective(profile, TY_ALL_REDUCE, TY_AUTOMATIC, 2, 1, 1 << 20, &seconds),
        "two ranks on one host are another matter");
    log->ranks = 17;
    cr_expect_eq(ty_profile_calibrate(profile, log, cluster, &error), TY_EINVAL);
    cr_expect(strstr(error.message, "found 17 ranks in the log, expected at most the 16 devices") !=
                  NULL,
              "%s", error.message);
    ty_collective_log_free(log);
    ty_profile_free(profile);
    ty_cluster_free(cluster);
}
