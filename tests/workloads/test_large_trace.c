/* A trace of 300 MB, made here, is imported in less than 256 MB of memory. */
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#define EVENT_COUNT 1500000
#define NAME_COUNT 5000

/* About 200 bytes per event.
 * @return bytes of text */
static uint64_t write_trace(const char *path)
{
    gzFile file = gzopen(path, "wb1");
    uint64_t bytes = 0;

    cr_assert_not_null(file);
    bytes += (uint64_t)gzprintf(file, "{\"schemaVersion\": 1, \"traceEvents\": [\n");
    for (int i = 0; i < EVENT_COUNT; i++)
        bytes += (uint64_t)gzprintf(
            file,
            "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"void some::name<space>::kernel_%d\", "
            "\"pid\": 0, \"tid\": 7, \"ts\": %d.5, \"dur\": %d, \"args\": {\"External id\": %d, "
            "\"device\": 0, \"stream\": 7, \"grid\": [1, 2, 3], \"block\": [256, 1, 1]}}\n",
            i > 0 ? ", " : "", i % 3 == 0 ? "cpu_op" : "kernel", i % NAME_COUNT, i, i % 10, i);
    bytes += (uint64_t)gzprintf(file, "]}\n");
    gzclose(file);
    return bytes;
}

Test(large_trace, stays_in_bounds, .timeout = 300)
{
    char path[] = "/tmp/trainyard-large-XXXXXX";
    int file = mkstemp(path);
    ty_profile *p = NULL;
    ty_error error = {0};
    struct rusage usage;

    cr_assert_geq(file, 0);
    close(file);
    cr_assert_gt(write_trace(path), 300000000);
    cr_assert_eq(ty_profile_import_kineto(path, &p, NULL, &error), TY_OK, "%s", error.message);
    unlink(path);
    cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
    cr_assert_lt(usage.ru_maxrss, 256 * 1024, "%ld KiB", usage.ru_maxrss);
    /* a period of three in names combines with all remainders, so kernels have all names */
    cr_assert_eq(p->layer_time_count, NAME_COUNT);
    ty_profile_free(p);
}
