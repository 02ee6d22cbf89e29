/* Private to core: a time as a function of a size, known at some sizes only. */
#ifndef TY_PROFILE_CURVE_H
#define TY_PROFILE_CURVE_H

#include "ty_profile.h"

#include <stdbool.h>

typedef struct ty_curve_point {
    double size, seconds;
    double weight; /* number of measurements in this mean */
} ty_curve_point;

enum { TY_CURVE_POINTS = 256 };

/** The added points, by size. Set `size` and `outside`, clear the rest. */
typedef struct ty_curve {
    double size; /* the requested size; > 0 */
    ty_outside outside;
    ty_curve_point points[TY_CURVE_POINTS];
    int count;
} ty_curve;

/** Of several points of one size the first counts; above the limit, the smallest are dropped. */
void ty_curve_add(ty_curve *curve, double size, double seconds);

/**
 * The time at the requested size; false if there are no points. Time does not decrease with size:
 * decreasing measurements are noise. Contradicting neighbors are replaced by their mean (isotonic
 * regression, Ayer et al., 1955). Between two points: linear. Above the largest: extends the line
 * from the last point that took less, or that from the first point, whichever is steeper; if all
 * took the same time, in proportion. Below the smallest: extends the line through the first two
 * points, but not below the proportional share of the smallest's time (a line that crosses zero is
 * noise), nor above that time. A single point is scaled in proportion. The prediction interval
 * outside of the points: ty_profile.h, "Look-ups"; the likely time is inside it.
 */
bool ty_curve_seconds(const ty_curve *curve, double *seconds);

#endif
