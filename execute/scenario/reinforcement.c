/* Reinforcement learning: actors run episodes and send them to the learners, which send weights
 * back (ty_plan.h, "Actors").
 *
 * Actions are drawn from the softmax of the policy's scores. The reward of an action is the
 * distance of the robot along x minus the penalty for a touch, in units of corridor_score. The
 * return of a step is the mean of its own and all later rewards, each weighted EPISODE_DISCOUNT
 * times the one before. The advantage is the return minus the mean over all steps of the
 * micro-batch, in standard deviations. By Williams (1992, section 3), a baseline that does not
 * depend on a single action leaves the direction of the gradient unchanged. The mean of a
 * micro-batch hardly depends on one. */
#include "dataset.h"
#include "scenario.h"

#include <math.h>
#include <string.h>

/* Keys that separate seeds of corridors and of actions, from each other and from evolution.c. */
enum { EPISODE_KEY = 4, DRAW_KEY = 5 };

uint64_t episode_corridor(uint64_t seed, uint32_t step, uint64_t episode)
{
    return dataset_hash(dataset_hash(dataset_hash(seed, EPISODE_KEY), step), episode);
}

double episode_draw(uint64_t seed, uint32_t step, uint64_t episode, uint32_t t)
{
    return dataset_uniform(dataset_hash(episode_corridor(seed, step, episode), DRAW_KEY), t);
}

/* ---- Episodes ------------------------------------------------------------------------------ */

/* A micro-batch's episodes, in one block of count * ty_workload_episode_bytes. */
typedef struct episodes {
    uint32_t count, steps;
    float *seen;       /* [count][steps][CORRIDOR_RAYS] */
    int32_t *actions;  /* [count][steps] */
    float *advantages; /* [count][steps] */
    float *scores;     /* [count]: corridor_score at the end */
} episodes;

static episodes episodes_in(void *memory, uint32_t count, uint32_t steps)
{
    const uint64_t all = (uint64_t)count * steps;
    float *seen = memory;
    void *actions = seen + all * CORRIDOR_RAYS;
    float *advantages = seen + all * (CORRIDOR_RAYS + 1);

    return (episodes){count, steps, seen, actions, advantages, advantages + all};
}

/* @param at in [0, 1): the first action at which the sum of probabilities is above it */
static uint32_t drawn(const float *scores, double at)
{
    const float most = scores[player_likeliest(scores)];
    double weights[CORRIDOR_ACTIONS], sum = 0;
    uint32_t a = 0;

    for (uint32_t i = 0; i < CORRIDOR_ACTIONS; i++)
        sum += weights[i] = exp((double)scores[i] - (double)most);
    for (at *= sum; a + 1 < CORRIDOR_ACTIONS && at >= weights[a]; a++)
        at -= weights[a];
    return a;
}

/* Computes advantages from rewards, in place. */
static void find_advantages(const episodes *e)
{
    const uint64_t all = (uint64_t)e->count * e->steps;
    double mean = 0, square = 0;

    for (uint32_t i = 0; i < e->count; i++) {
        float *reward = e->advantages + (size_t)i * e->steps;
        double sum = 0, weight = 0;

        for (uint32_t t = e->steps; t-- > 0;) {
            sum = (double)reward[t] + EPISODE_DISCOUNT * sum;
            weight = 1 + EPISODE_DISCOUNT * weight;
            reward[t] = (float)(sum / weight);
        }
    }
    for (uint64_t i = 0; i < all; i++)
        mean += (double)e->advantages[i] / (double)all;
    for (uint64_t i = 0; i < all; i++)
        square += ((double)e->advantages[i] - mean) * ((double)e->advantages[i] - mean);
    for (uint64_t i = 0; i < all; i++) /* equal returns teach nothing */
        e->advantages[i] =
            square > 0 ? (float)(((double)e->advantages[i] - mean) / sqrt(square / (double)all))
                       : 0.0f;
}

/* Runs episodes [first, first + p->count) of a step's batch. They depend only on the seed, the
 * step, the index of an episode and the player's weights. */
static ty_status episodes_play(const player *p, uint64_t seed, uint32_t step, uint64_t first,
                               const episodes *out, ty_error *error)
{
    const float *scores = NULL;

    for (uint32_t e = 0; e < p->count; e++)
        corridor_begin(&p->robots[e], episode_corridor(seed, step, first + e));
    for (uint32_t t = 0; t < out->steps; t++) {
        const ty_status status = player_observe(p, &scores, error);

        if (status != TY_OK)
            return status;
        for (uint32_t e = 0; e < p->count; e++) {
            const float *seen = p->backend->input(p->device, 0) + (size_t)e * CORRIDOR_RAYS;
            const size_t row = (size_t)e * out->steps + t;
            corridor *robot = &p->robots[e];
            const uint32_t touches = robot->touches;
            const double x = robot->x;

            memcpy(out->seen + row * CORRIDOR_RAYS, seen, CORRIDOR_RAYS * sizeof *seen);
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
    return TY_OK;
}

static ty_status play(const player *p, uint32_t n, void *memory, ty_error *error)
{
    const episodes batch = episodes_in(memory, p->count, p->steps);

    return episodes_play(p, 1, n, 0, &batch, error);
}

/* ---- A rank's data ------------------------------------------------------------------------- */

static bool is_actor(const scenario_run *run)
{
    return ty_plan_is_of_actors(run->plan, run->position);
}

static uint64_t batch_bytes(const ty_plan *plan)
{
    return plan->micro_batch_size * ty_workload_episode_bytes(plan->workload);
}

static episodes batch_of(const scenario_run *run, uint32_t slot)
{
    const ty_plan *plan = run->plan;

    return episodes_in((char *)run->played + slot * batch_bytes(plan), plan->micro_batch_size,
                       (uint32_t)plan->workload->input.dimensions[0]);
}

/* The weights in transit of a step. */
static float *set_of(const scenario_run *run, uint32_t step)
{
    return run->weights + step % run->window * (ty_plan_policy_bytes(run->plan) / sizeof(float)) *
                              ty_plan_policy_messages(run->plan, 0);
}

static ty_status start(scenario_run *run, ty_error *error)
{
    const ty_plan *plan = run->plan;
    const uint64_t set_bytes = ty_plan_policy_bytes(plan) * ty_plan_policy_messages(plan, 0);

    run->played = ty_alloc(run->slots, batch_bytes(plan));
    if (set_bytes > 0)
        run->weights = ty_alloc(run->window, set_bytes);
    if (run->played == NULL || (set_bytes > 0 && run->weights == NULL))
        return ty_fail(error, TY_ENOMEM, "out of memory for episodes");
    if (is_actor(run))
        run->device = run->player.device;
    return TY_OK;
}

/* Each of several messages with weights has a part: the learner's part of the actor's weights. */
static void *buffer(const scenario_run *run, const ty_instruction *transfer, uint32_t slot,
                    uint32_t step)
{
    const ty_plan *plan = run->plan;
    uint64_t part;

    if (transfer->direction == TY_ACTIVATION)
        return batch_of(run, slot).seen;
    part =
        ty_program_global_micro_batch(plan, transfer->stage, run->replica, transfer->micro_batch) /
        ty_plan_actors(plan) % ty_plan_policy_messages(plan, 0);
    return set_of(run, step) + part * (transfer->bytes / sizeof(float));
}

static void begin(const scenario_run *run, uint32_t step)
{
    memcpy(run->backend->parameters(run->device), set_of(run, step),
           run->parameter_count * sizeof(float));
}

/* Copies weights before they are sent: the next update may come while they are in transit. */
static void updated(const scenario_run *run, uint32_t index, uint32_t step)
{
    const ty_bucket *bucket = &run->plan->buckets[index];
    uint64_t offset, count;

    if (run->weights == NULL)
        return;
    run->backend->slice(run->device, bucket->first_layer, bucket->layer_count, &offset, &count);
    memcpy(set_of(run, step) + offset, run->backend->parameters(run->device) + offset,
           count * sizeof(float));
}

static ty_status load(scenario_run *run, const ty_instruction *load, uint32_t step, uint32_t slot,
                      ty_error *error)
{
    const ty_plan *plan = run->plan;
    const uint64_t m =
        ty_program_global_micro_batch(plan, load->stage, run->replica, load->micro_batch);
    const episodes batch = batch_of(run, slot);

    scenario_weights_take(run);
    return episodes_play(&run->player, plan->seed, step, m * plan->micro_batch_size, &batch, error);
}

/* Copies a slot's episodes to the input of its pass. Losses are 1 - score. */
static ty_status forward(scenario_run *run, const ty_instruction *pass, uint32_t step,
                         uint32_t slot, scenario_loss *loss, ty_error *error)
{
    const ty_device_backend *backend = run->backend;
    const episodes batch = batch_of(run, slot);
    const uint64_t rows = (uint64_t)batch.count * batch.steps;
    int32_t *labels = backend->labels(run->device, slot);

    (void)step;
    memcpy(backend->input(run->device, slot), batch.seen,
           rows * CORRIDOR_RAYS * sizeof *batch.seen);
    memcpy(labels, batch.actions, rows * sizeof *labels);
    memcpy(labels + rows, batch.advantages, rows * sizeof *batch.advantages);
    for (uint32_t e = 0; e < batch.count; e++)
        loss->sum += 1 - (double)batch.scores[e];
    loss->count = batch.count;
    return backend->forward(run->device, slot, pass->first_layer, pass->layer_count, error);
}

const scenario reinforcement = {.start = start,
                                .load = load,
                                .forward = forward,
                                .begin = begin,
                                .updated = updated,
                                .buffer = buffer,
                                .play = play};
