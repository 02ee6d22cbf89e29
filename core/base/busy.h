/**
 * @file busy.h
 * Whether others compute on this machine while something is measured: what the processors have done
 * in all, less what one's own processes have.
 *
 *     ty_cpu_clock from, to;
 *     if (ty_cpu_clock_read(&from)) ... measure ...
 *     if (ty_cpu_clock_read(&to)) share = ty_others_share(&from, &to, own_cpu_s);
 */
#ifndef BUSY_H
#define BUSY_H

#include <stdbool.h>

/** From this share of the cores on, taken by others, a measurement is called disturbed. What is
 * always there, a desktop or a monitor, takes less. */
#define TY_BUSY_SHARE 0.08

/** Linux's count of what all processors have done, in steps of 10 ms. */
typedef struct ty_cpu_clock {
    double now_s;   /* ty_now_s */
    double busy_s;  /* by anybody, and by a hypervisor's other guests */
    double steal_s; /* of that by those */
} ty_cpu_clock;
/** @return false where /proc/stat cannot be read */
bool ty_cpu_clock_read(ty_cpu_clock *out);

/** The share of all cores that was taken between two readings, 0 to 1, by others than those that
 * computed `own_cpu_s`; 0 for readings less than 50 ms apart, which tell nothing. */
double ty_others_share(const ty_cpu_clock *from, const ty_cpu_clock *to, double own_cpu_s);

#endif
