/* Private to core: a time as a function of a size, known at some sizes only. */
#ifndef TY_PROFILE_CURVE_H
#define TY_PROFILE_CURVE_H

#include "ty_profile.h"

#include <stdbool.h>

typedef struct ty_curve_point {
    double size, seconds;
    double weight; /* measurements that it is the mean of */
} ty_curve_point;

enum { TY_CURVE_POINTS = 256 };

/** The points that were added, by size. Set `size` and `outside`, clear the rest. */
typedef struct ty_curve {
    double size; /* the question; > 0 */
    ty_outside outside;
    ty_curve_point points[TY_CURVE_POINTS];
    int count;
} ty_curve;

/** Of several points of one size the first counts; beyond the most, the smallest go. */
void ty_curve_add(ty_curve *curve, double size, double seconds);

/**
 * The time at the size asked for; false when no point was added.
 * More takes no less time: where measurements fall, noise made them, and neighbours that contradict
 * each other are replaced by their mean (isotonic regression, Ayer et al., 1955), so that what
 * comes out never falls with the size. Between two points: linear. Beyond the largest: the line
 * from the last point that took less goes on, or that from the first point, whichever is steeper;
 * where all took as long, in proportion. Below the smallest: the first two points' line goes on,
 * but not below the proportional share of the smallest's time (a line that would cross zero is
 * noise), nor above that time. A single point is scaled in proportion. The ends of the band outside
 * of the points: ty_profile.h, "Look-ups"; what is likely lies between them.
 */
bool ty_curve_seconds(const ty_curve *curve, double *seconds);

#endif
