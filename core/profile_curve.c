/* Interpolation between measured sizes. */
#include "profile_curve.h"

/* Keeps the nearest two of what was seen on one side. */
static void keep_nearest(ty_curve_point kept[2], int *count, ty_curve_point point, bool is_nearest,
                         bool is_second)
{
    if (*count == 0 || is_nearest) {
        kept[1] = kept[0];
        kept[0] = point;
    } else if (*count == 1 || is_second) {
        kept[1] = point;
    } else {
        return;
    }
    if (*count < 2)
        ++*count;
}

void ty_curve_add(ty_curve *curve, double size, double seconds)
{
    ty_curve_point point = {size, seconds};

    for (int i = 0; i < 2; i++) { /* two points of one size would be no line: the first counts */
        if ((i < curve->below_count && curve->below[i].size == size) ||
            (i < curve->above_count && curve->above[i].size == size))
            return;
    }
    if (size <= curve->size)
        keep_nearest(curve->below, &curve->below_count, point, size > curve->below[0].size,
                     size > curve->below[1].size);
    else
        keep_nearest(curve->above, &curve->above_count, point, size < curve->above[0].size,
                     size < curve->above[1].size);
}

/* The line through two points of different sizes, at `size`. */
static double line_at(const ty_curve_point *a, const ty_curve_point *b, double size)
{
    double slope = (b->seconds - a->seconds) / (b->size - a->size);
    return a->seconds + slope * (size - a->size);
}

static double beyond_largest(const ty_curve *curve)
{
    const ty_curve_point *last = &curve->below[0];
    double seconds;

    if (curve->below_count == 1)
        return last->size > 0.0 ? last->seconds * curve->size / last->size : last->seconds;
    seconds = line_at(&curve->below[1], last, curve->size);
    return seconds > last->seconds ? seconds : last->seconds;
}

static double below_smallest(const ty_curve *curve)
{
    const ty_curve_point *first = &curve->above[0];
    double proportional = first->seconds * curve->size / first->size, seconds = proportional;

    if (curve->above_count == 2)
        seconds = line_at(first, &curve->above[1], curve->size);
    if (seconds > first->seconds)
        return first->seconds;
    return seconds > proportional ? seconds : proportional;
}

bool ty_curve_seconds(const ty_curve *curve, double *seconds)
{
    if (curve->below_count == 0 && curve->above_count == 0)
        return false;
    if (curve->below_count > 0 && curve->below[0].size == curve->size)
        *seconds = curve->below[0].seconds;
    else if (curve->below_count == 0)
        *seconds = below_smallest(curve);
    else if (curve->above_count == 0)
        *seconds = beyond_largest(curve);
    else
        *seconds = line_at(&curve->below[0], &curve->above[0], curve->size);
    return true;
}
