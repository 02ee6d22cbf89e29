/* Episodes; see episodes.h. */
#include "episodes.h"

#include "dataset.h"
#include "evolution.h"

#include <math.h>

/* Keys that keep corridors and draws apart, and from those of evolution.c. */
enum { EPISODE_KEY = 4, DRAW_KEY = 5 };

episodes episodes_in(void *memory, uint32_t count, uint32_t steps)
{
    const uint64_t all = (uint64_t)count * steps;
    float *seen = memory;
    void *actions = seen + all * CORRIDOR_RAYS;
    float *advantages = seen + all * (CORRIDOR_RAYS + 1);

    return (episodes){count, steps, seen, actions, advantages, advantages + all};
}

ty_status episode_player_open(const ty_device_backend *backend, ty_stage_options options,
                              const ty_workload *policy, episode_player *out, ty_error *error)
{
    episode_player player = {
        .backend = backend, .policy = policy, .count = options.micro_batch_size};
    ty_status status;

    options.workload = policy;
    options.first_layer = 0;
    options.layer_count = policy->layer_count - 1;
    options.slots = 1;
    player.robots = ty_alloc(player.count, sizeof *player.robots);
    if (player.robots == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for episodes");
    TY_CHECK(backend->supports(policy, 0, options.layer_count, error), status, failed);
    TY_CHECK(backend->open(&options, &player.device, error), status, failed);
    *out = player;
    return TY_OK;

failed:
    ty_free(player.robots);
    return status;
}

void episode_player_close(episode_player *player)
{
    if (player->device != NULL)
        player->backend->close(player->device);
    ty_free(player->robots);
    *player = (episode_player){0};
}

/* What all robots see, and what the policy says to it. */
static ty_status look(const episode_player *p, const float **scores, ty_error *error)
{
    float *input = p->backend->input(p->device, 0);
    ty_status status;

    for (uint32_t e = 0; e < p->count; e++)
        corridor_look(&p->robots[e], input + (size_t)e * CORRIDOR_RAYS);
    status = p->backend->forward(p->device, 0, 0, p->policy->layer_count - 1, error);
    *scores = p->backend->output(p->device, 0);
    return status;
}

static uint32_t likeliest(const float *scores)
{
    uint32_t best = 0;

    for (uint32_t a = 1; a < CORRIDOR_ACTIONS; a++)
        best = scores[a] > scores[best] ? a : best;
    return best;
}

/* @param at 0 to 1: where in the softmax */
static uint32_t drawn(const float *scores, double at)
{
    const float most = scores[likeliest(scores)];
    double weights[CORRIDOR_ACTIONS], sum = 0;
    uint32_t a = 0;

    for (uint32_t i = 0; i < CORRIDOR_ACTIONS; i++)
        sum += weights[i] = exp((double)scores[i] - (double)most);
    for (at *= sum; a + 1 < CORRIDOR_ACTIONS && at >= weights[a]; a++)
        at -= weights[a];
    return a;
}

uint64_t episode_corridor(uint64_t seed, uint32_t step, uint64_t episode)
{
    return dataset_hash(dataset_hash(dataset_hash(seed, EPISODE_KEY), step), episode);
}

double episode_draw(uint64_t seed, uint32_t step, uint64_t episode, uint32_t t)
{
    const uint64_t draws = dataset_hash(episode_corridor(seed, step, episode), DRAW_KEY);

    return (double)(dataset_hash(draws, t) >> 11) * 0x1p-53;
}

/* From what came of each step, in place. */
static void find_ahead(const episodes *e, uint32_t episode)
{
    float *came = e->advantages + (size_t)episode * e->steps;
    double sum = 0, weight = 0;

    for (uint32_t t = e->steps; t-- > 0;) {
        sum = (double)came[t] + EPISODE_DISCOUNT * sum;
        weight = 1 + EPISODE_DISCOUNT * weight;
        came[t] = (float)(sum / weight);
    }
}

static void find_advantages(const episodes *e)
{
    const uint64_t all = (uint64_t)e->count * e->steps;
    double mean = 0, square = 0;

    for (uint32_t i = 0; i < e->count; i++)
        find_ahead(e, i);
    for (uint64_t i = 0; i < all; i++)
        mean += (double)e->advantages[i] / (double)all;
    for (uint64_t i = 0; i < all; i++)
        square += ((double)e->advantages[i] - mean) * ((double)e->advantages[i] - mean);
    for (uint64_t i = 0; i < all; i++) /* nothing is learnt where all is alike */
        e->advantages[i] =
            square > 0 ? (float)(((double)e->advantages[i] - mean) / sqrt(square / (double)all))
                       : 0.0f;
}

ty_status episodes_play(const episode_player *p, uint64_t seed, uint32_t step, uint64_t first,
                        const episodes *out, ty_error *error)
{
    const float *scores = NULL;
    ty_status status = TY_OK;

    for (uint32_t e = 0; e < p->count; e++)
        corridor_begin(&p->robots[e], episode_corridor(seed, step, first + e));
    for (uint32_t t = 0; t < out->steps; t++) {
        TY_CHECK(look(p, &scores, error), status, done);
        for (uint32_t e = 0; e < p->count; e++) {
            const float *seen = p->backend->input(p->device, 0) + (size_t)e * CORRIDOR_RAYS;
            const size_t row = (size_t)e * out->steps + t;
            corridor *robot = &p->robots[e];
            const uint32_t touches = robot->touches;
            const double x = robot->x;

            for (uint32_t r = 0; r < CORRIDOR_RAYS; r++)
                out->seen[row * CORRIDOR_RAYS + r] = seen[r];
            out->actions[row] = (int32_t)drawn(scores + (size_t)e * CORRIDOR_ACTIONS,
                                               episode_draw(seed, step, first + e, t));
            corridor_step(robot, (uint32_t)out->actions[row]);
            out->advantages[row] =
                (float)((robot->x - x) / CORRIDOR_STRIDE -
                        CORRIDOR_PENALTY * out->steps * (robot->touches - touches));
        }
    }
    for (uint32_t e = 0; e < p->count; e++)
        out->scores[e] = (float)corridor_score(&p->robots[e]);
    find_advantages(out);
done:
    return status;
}

ty_status episodes_test(const episode_player *p, uint32_t first, uint32_t count, uint32_t steps,
                        double *scores, uint32_t *touches, ty_error *error)
{
    const float *said = NULL;
    ty_status status = TY_OK;

    for (uint32_t e = 0; e < p->count; e++) /* those beyond are played for nothing */
        corridor_begin(&p->robots[e], evolution_test_corridor(first + e % count));
    for (uint32_t t = 0; t < steps; t++) {
        TY_CHECK(look(p, &said, error), status, done);
        for (uint32_t e = 0; e < p->count; e++)
            corridor_step(&p->robots[e], likeliest(said + (size_t)e * CORRIDOR_ACTIONS));
    }
    for (uint32_t e = 0; e < count; e++) {
        scores[e] = corridor_score(&p->robots[e]);
        touches[e] = p->robots[e].touches;
    }
done:
    return status;
}
