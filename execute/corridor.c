/* A robot in a winding corridor; see corridor.h. */
#include "corridor.h"

#include "dataset.h"

#include <math.h>
#include <stdbool.h>

static const double half_width = 1.0;
static const double farthest = 4.0;  /* that it sees */
static const double look_step = 0.1; /* along a ray */
static const double first_x = -5.0, point_distance = 0.04;

/* From 0 to 1, the n-th of a seed. */
static double draw(uint64_t seed, uint64_t n)
{
    return (double)(dataset_hash(seed, n) >> 11) * 0x1p-53;
}

/* Bends of 12 to 20 and of 6 to 10, the longer ones wider; it starts along x. */
void corridor_begin(corridor *c, uint64_t seed)
{
    const double pi = acos(-1.0);
    double amplitudes[2], rates[2], phases[2];

    for (uint64_t k = 0; k < 2; k++) {
        const double shortest = k == 0 ? 12 : 6, widest = k == 0 ? 2.0 : 0.8;

        amplitudes[k] = widest * (0.5 + 0.5 * draw(seed, 3 * k));
        rates[k] = 2 * pi / (shortest * (1 + 2.0 / 3 * draw(seed, 3 * k + 1)));
        phases[k] = 2 * pi * draw(seed, 3 * k + 2);
    }
    for (uint32_t i = 0; i < CORRIDOR_POINTS; i++) {
        const double x = first_x + i * point_distance;
        const double eased = x <= 0 ? 0 : x >= 4 ? 1 : x / 4; /* straight behind the start */

        c->middle[i] = (float)(eased * (amplitudes[0] * sin(rates[0] * x + phases[0]) +
                                        amplitudes[1] * sin(rates[1] * x + phases[1])));
    }
    c->x = c->y = c->heading = 0;
    c->steps = c->touches = 0;
}

/* The corridor goes on straight at its ends. */
static double middle_at(const corridor *c, double x)
{
    const double at = (x - first_x) / point_distance;
    const uint32_t last = CORRIDOR_POINTS - 1;

    return (double)c->middle[at <= 0 ? 0 : at >= last ? last : (uint32_t)at];
}

static bool is_wall(const corridor *c, double x, double y)
{
    return fabs(y - middle_at(c, x)) >= half_width;
}

void corridor_look(const corridor *c, float *rays)
{
    const double side = acos(0.5); /* 60 degrees */

    for (uint32_t r = 0; r < CORRIDOR_RAYS; r++) {
        const double angle = c->heading - side + 2 * side * r / (CORRIDOR_RAYS - 1);
        const double dx = cos(angle) * look_step, dy = sin(angle) * look_step;
        const uint32_t most = (uint32_t)(farthest / look_step + 0.5);
        uint32_t n = 1;

        while (n < most && !is_wall(c, c->x + n * dx, c->y + n * dy))
            n++;
        rays[r] = (float)(n * look_step / farthest);
    }
}

void corridor_step(corridor *c, uint32_t action)
{
    c->heading += CORRIDOR_TURN * ((double)action - 1);
    c->x += CORRIDOR_STRIDE * cos(c->heading);
    c->y += CORRIDOR_STRIDE * sin(c->heading);
    c->steps++;
    if (!is_wall(c, c->x, c->y))
        return;
    c->touches++;
    c->y = middle_at(c, c->x);
    c->heading = 0;
}

double corridor_score(const corridor *c)
{
    return c->x / (CORRIDOR_STRIDE * c->steps) - CORRIDOR_PENALTY * c->touches;
}
