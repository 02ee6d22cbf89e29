/* Clocks, and statistics of several timings. */
#ifndef TY_BENCH_TIMING_H
#define TY_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double clock_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/** CPU time of all threads of the process. */
static inline double cpu_s(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

/** Compares doubles, for qsort. */
static inline int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/** Median of `values`, which it sorts. */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

#endif
