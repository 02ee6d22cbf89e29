/* Private to core: a time as a function of a size, known at some sizes only. */
#ifndef TY_PROFILE_CURVE_H
#define TY_PROFILE_CURVE_H

#include <stdbool.h>

typedef struct ty_curve_point {
    double size, seconds;
} ty_curve_point;

/** Of all points that were added, those that decide the time at `size`. Set `size`, clear the rest.
 */
typedef struct ty_curve {
    double size;             /* the question; > 0 */
    ty_curve_point below[2]; /* the two largest sizes <= `size`, the nearest first */
    ty_curve_point above[2]; /* the two smallest sizes > `size`, the nearest first */
    int below_count, above_count;
} ty_curve;

void ty_curve_add(ty_curve *curve, double size, double seconds);

/**
 * The time at the size asked for; false when no point was added.
 * Between two points: linear. Beyond the largest: the last two points' line goes on, though never
 * falling. Below the smallest: the first two points' line goes on, but not below the
 * proportional share of the smallest's time (a line that would cross zero is noise), nor above that
 * time. A single point is scaled in proportion.
 */
bool ty_curve_seconds(const ty_curve *curve, double *seconds);

#endif
