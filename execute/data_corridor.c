/* What robots see on their way through corridors, and how a driver steered there: a stream of
 * distances, each with an action as its label. The driver turns to the side that has more room, and
 * for a tenth of the time, so that it gets to where it must turn back, wherever it likes. */
#include "corridor.h"
#include "dataset.h"

enum { DRIVE_STEPS = 300, DRIVES = 200, TEST_DRIVES = 20, WANDER_STEPS = 3, WANDER_EVERY = 30 };
static const float enough_room = 0.3f; /* more on one side than on the other, of all its rays */

static uint32_t steered(const float *rays)
{
    float more_left = 0;

    for (uint32_t r = 0; r < CORRIDOR_RAYS / 2; r++)
        more_left += rays[CORRIDOR_RAYS - 1 - r] - rays[r];
    return more_left > enough_room ? 2 : more_left < -enough_room ? 0 : 1;
}

/* Distances are kept as bytes, as a cheap sensor gives them. */
static void drive(uint64_t seed, unsigned char *inputs, unsigned char *labels)
{
    corridor c;
    float rays[CORRIDOR_RAYS];

    corridor_begin(&c, seed);
    for (uint32_t step = 0; step < DRIVE_STEPS; step++) {
        const bool wanders = step % WANDER_EVERY < WANDER_STEPS;
        const uint64_t wish = dataset_hash(seed, step / WANDER_EVERY) % CORRIDOR_ACTIONS;

        corridor_look(&c, rays);
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
    if (dataset->inputs == NULL || dataset->labels == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for corridors");
    for (uint32_t d = 0; d < drives; d++) /* the first ones are the test's */
        drive(dataset_hash(0, is_test ? d : TEST_DRIVES + d),
              dataset->inputs + (uint64_t)d * DRIVE_STEPS * CORRIDOR_RAYS,
              dataset->labels + (uint64_t)d * DRIVE_STEPS);
    dataset->sample = corridor_sample;
    return TY_OK;
}
