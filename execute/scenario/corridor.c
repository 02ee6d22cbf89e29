/* A robot in a winding corridor, and the data set of drives through corridors; see corridor.h. */
#include "corridor.h"

#include "dataset.h"

#include <math.h>

static const double half_width = 1.0;
static const double farthest = 4.0; /* distance that it sees */
static const double ray_step = 0.1; /* along a ray */
static const double first_x = -5.0, point_distance = 0.04;

/* Bends of 12 to 20 and of 6 to 10, the longer ones wider; it starts along x. */
void corridor_begin(corridor *c, uint64_t seed)
{
    const double pi = acos(-1.0);
    double amplitudes[2], rates[2], phases[2];

    for (uint64_t k = 0; k < 2; k++) {
        const double shortest = k == 0 ? 12 : 6, widest = k == 0 ? 2.0 : 0.8;

        amplitudes[k] = widest * (0.5 + 0.5 * dataset_uniform(seed, 3 * k));
        rates[k] = 2 * pi / (shortest * (1 + 2.0 / 3 * dataset_uniform(seed, 3 * k + 1)));
        phases[k] = 2 * pi * dataset_uniform(seed, 3 * k + 2);
    }
    for (uint32_t i = 0; i < CORRIDOR_POINTS; i++) {
        const double x = first_x + i * point_distance;
        const double eased = x <= 0 ? 0 : x >= 4 ? 1 : x / 4; /* straight before the start */

        c->middle[i] = (float)(eased * (amplitudes[0] * sin(rates[0] * x + phases[0]) +
                                        amplitudes[1] * sin(rates[1] * x + phases[1])));
    }
    c->x = c->y = c->heading = 0;
    c->steps = c->touches = 0;
}

/* The corridor continues straight at its ends. */
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

void corridor_observe(const corridor *c, float *rays)
{
    const double side = acos(0.5); /* 60 degrees */

    for (uint32_t r = 0; r < CORRIDOR_RAYS; r++) {
        const double angle = c->heading - side + 2 * side * r / (CORRIDOR_RAYS - 1);
        const double dx = cos(angle) * ray_step, dy = sin(angle) * ray_step;
        const uint32_t most = (uint32_t)(farthest / ray_step + 0.5);
        uint32_t n = 1;

        while (n < most && !is_wall(c, c->x + n * dx, c->y + n * dy))
            n++;
        rays[r] = (float)(n * ray_step / farthest);
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

/* ---- The data set -------------------------------------------------------------------------- */

/* Each sample is a robot's view; its label is the action of a driver. The driver turns to the
 * side with more room, except that a tenth of its actions are random: it also has to see how to
 * turn back. */
enum { DRIVE_STEPS = 300, DRIVES = 200, TEST_DRIVES = 20, WANDER_STEPS = 3, WANDER_EVERY = 30 };
static const float enough_room = 0.3f; /* difference between the sides, over all its rays */

static uint32_t steered(const float *rays)
{
    float more_left = 0;

    for (uint32_t r = 0; r < CORRIDOR_RAYS / 2; r++)
        more_left += rays[CORRIDOR_RAYS - 1 - r] - rays[r];
    return more_left > enough_room ? 2 : more_left < -enough_room ? 0 : 1;
}

/* Distances are stored as bytes, like those of a cheap sensor. */
static void drive(uint64_t seed, unsigned char *inputs, unsigned char *labels)
{
    corridor c;
    float rays[CORRIDOR_RAYS];

    corridor_begin(&c, seed);
    for (uint32_t step = 0; step < DRIVE_STEPS; step++) {
        const bool wanders = step % WANDER_EVERY < WANDER_STEPS;
        const uint64_t wish = dataset_hash(seed, step / WANDER_EVERY) % CORRIDOR_ACTIONS;

        corridor_observe(&c, rays);
        for (uint32_t r = 0; r < CORRIDOR_RAYS; r++)
            inputs[step * CORRIDOR_RAYS + r] = (unsigned char)(rays[r] * 255.0f + 0.5f);
        labels[step] = (unsigned char)steered(rays);
        corridor_step(&c, wanders ? (uint32_t)wish : labels[step]);
    }
}

static void corridor_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                            int32_t *tokens, int32_t *labels)
{
    const unsigned char *from = dataset->inputs + sample * CORRIDOR_RAYS;

    (void)tokens;
    for (uint32_t r = 0; r < CORRIDOR_RAYS && input != NULL; r++)
        input[r] = (float)from[r] / 255.0f;
    if (labels != NULL)
        labels[0] = dataset->labels[sample];
}

ty_status dataset_open_corridor(ty_dataset *dataset, const char *unused, bool is_test,
                                ty_error *error)
{
    const uint32_t drives = is_test ? TEST_DRIVES : DRIVES;

    (void)unused;
    if (dataset->token_count != 0 || dataset->label_count != 1 ||
        dataset->input_count != CORRIDOR_RAYS || dataset->class_count != CORRIDOR_ACTIONS)
        return ty_fail(error, TY_EINVAL,
                       "a corridor has %d distances and one of %d actions for each sample, the "
                       "workload expects something else",
                       CORRIDOR_RAYS, CORRIDOR_ACTIONS);
    dataset->sample_count = (uint64_t)drives * DRIVE_STEPS;
    dataset->inputs = ty_alloc(dataset->sample_count, CORRIDOR_RAYS);
    dataset->labels = ty_alloc(dataset->sample_count, 1);
    TY_TRY(ty_check_memory(dataset->inputs != NULL && dataset->labels != NULL, error));
    for (uint32_t d = 0; d < drives; d++) /* the first ones are the test's */
        drive(dataset_hash(0, is_test ? d : TEST_DRIVES + d),
              dataset->inputs + (uint64_t)d * DRIVE_STEPS * CORRIDOR_RAYS,
              dataset->labels + (uint64_t)d * DRIVE_STEPS);
    dataset->sample = corridor_sample;
    return TY_OK;
}
