/**
 * @file busy.h
 * CPU use of other programs during a measurement: total CPU time less that of the measured
 * processes.
 *
 *     ty_cpu_clock from, to;
 *     if (ty_cpu_clock_read(&from)) ... measure ...
 *     if (ty_cpu_clock_read(&to)) share = ty_others_share(&from, &to, own_cpu_s);
 */
#ifndef BUSY_H
#define BUSY_H

#include <stdbool.h>

/** Share of the cores used by other programs from which a measurement counts as disturbed. Constant
 * background load, such as a desktop or a monitor, takes less. */
#define TY_BUSY_SHARE 0.08

/** Linux's CPU time of all processors, in steps of 10 ms. */
typedef struct ty_cpu_clock {
    double now_s;   /* ty_now_s */
    double busy_s;  /* of all processes and of a hypervisor's other guests */
    double steal_s; /* of this, by those guests */
} ty_cpu_clock;
/** @return false if /proc/stat cannot be read */
bool ty_cpu_clock_read(ty_cpu_clock *out);

/** The share of all cores, 0 to 1, used between two readings by processes other than those with
 * `own_cpu_s`; 0 for readings less than 50 ms apart, which are too coarse. */
double ty_others_share(const ty_cpu_clock *from, const ty_cpu_clock *to, double own_cpu_s);

#endif
