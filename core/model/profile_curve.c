/* Interpolation between measured sizes, of a time that grows with the size. */
#include "profile_curve.h"

#include <string.h>

void ty_curve_add(ty_curve *curve, double size, double seconds)
{
    int at = curve->count;

    while (at > 0 && curve->points[at - 1].size >= size) {
        if (curve->points[at - 1].size == size)
            return;
        at--;
    }
    if (curve->count == TY_CURVE_POINTS) { /* drop the smallest */
        if (at == 0)
            return;
        at--;
        memmove(curve->points, curve->points + 1, (size_t)at * sizeof curve->points[0]);
    } else {
        memmove(curve->points + at + 1, curve->points + at,
                (size_t)(curve->count - at) * sizeof curve->points[0]);
        curve->count++;
    }
    curve->points[at] = (ty_curve_point){size, seconds, 1};
}

/* Pools decreasing neighbors until there are none: the nearest increasing times by least
 * squares. */
static void make_grow(ty_curve_point *points, int count)
{
    double means[TY_CURVE_POINTS], weights[TY_CURVE_POINTS];
    int lengths[TY_CURVE_POINTS], blocks = 0, at = 0;

    for (int i = 0; i < count; i++) {
        means[blocks] = points[i].seconds;
        weights[blocks] = points[i].weight;
        lengths[blocks++] = 1;
        while (blocks > 1 && means[blocks - 2] > means[blocks - 1]) {
            const double weight = weights[blocks - 2] + weights[blocks - 1];
            means[blocks - 2] = (means[blocks - 2] * weights[blocks - 2] +
                                 means[blocks - 1] * weights[blocks - 1]) /
                                weight;
            weights[blocks - 2] = weight;
            lengths[blocks - 2] += lengths[blocks - 1];
            blocks--;
        }
    }
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < lengths[b]; i++)
            points[at++].seconds = means[b];
}

/* The line through two points of different sizes, at `size`. */
static double line_at(const ty_curve_point *a, const ty_curve_point *b, double size)
{
    double slope = (b->seconds - a->seconds) / (b->size - a->size);
    return a->seconds + slope * (size - a->size);
}

/* A flat end of a curve is noise and does not predict larger sizes: use the slope before it, or
 * that of the entire curve. Times of more work bend upwards, if at all. */
static double beyond_largest(const ty_curve *curve, const ty_curve_point *points)
{
    const ty_curve_point *last = &points[curve->count - 1];
    const double size = curve->size;
    const double proportional =
        last->size > 0.0 ? last->seconds * size / last->size : last->seconds;
    double near_s, all_s, least = proportional, most = proportional;
    int before = curve->count - 2;

    while (before >= 0 && points[before].seconds >= last->seconds)
        before--;
    if (before < 0)
        return curve->outside == TY_OUTSIDE_LEAST ? last->seconds : proportional;
    near_s = line_at(&points[before], last, size);
    all_s = line_at(&points[0], last, size);
    if (curve->outside == TY_OUTSIDE_LIKELY)
        return near_s > all_s ? near_s : all_s;
    for (; before >= 0; before--) {
        const double at = line_at(&points[before], last, size);
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    return curve->outside == TY_OUTSIDE_LEAST ? least : most;
}

static double below_smallest(const ty_curve *curve, const ty_curve_point *points)
{
    const ty_curve_point *first = &points[0];
    double proportional = first->seconds * curve->size / first->size, seconds = proportional;

    if (curve->outside != TY_OUTSIDE_LIKELY)
        return curve->outside == TY_OUTSIDE_LEAST ? proportional : first->seconds;
    if (curve->count > 1)
        seconds = line_at(first, &points[1], curve->size);
    if (seconds > first->seconds)
        return first->seconds;
    return seconds > proportional ? seconds : proportional;
}

bool ty_curve_seconds(const ty_curve *curve, double *seconds)
{
    ty_curve_point points[TY_CURVE_POINTS];
    int above = 0;

    if (curve->count == 0)
        return false;
    memcpy(points, curve->points, (size_t)curve->count * sizeof points[0]);
    make_grow(points, curve->count);
    while (above < curve->count && points[above].size <= curve->size)
        above++;
    if (above > 0 && points[above - 1].size == curve->size)
        *seconds = points[above - 1].seconds;
    else if (above == 0)
        *seconds = below_smallest(curve, points);
    else if (above == curve->count)
        *seconds = beyond_largest(curve, points);
    else
        *seconds = line_at(&points[above - 1], &points[above], curve->size);
    return true;
}
