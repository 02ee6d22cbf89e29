/* Reinforcement: who plays episodes, how they come to those who learn from them, and how weights
 * come to those who play (ty_plan.h, "Actors"). */
#include "episodes.h"
#include "interpreter_state.h"

#include <string.h>

struct acting {
    ty_workload *policy;   /* one step of an episode */
    episode_player player; /* of actors its device is the held stage's */
    uint64_t parameter_count;
    uint64_t batch_bytes, set_floats;
    uint32_t batch_count;
    char *batches; /* [batch_count][batch_bytes]: episodes of the slots */
    float *sets;   /* [window][set_floats]: weights on their way; NULL: without actors */
    double *scores;
    uint32_t *touches; /* both of a test: [micro_batch_size] */
};

static bool is_played(const ty_interpreter *in)
{
    return in->options.plan->workload->learning == TY_LEARNING_REINFORCEMENT;
}

bool interpreter_is_actor(const ty_interpreter *in)
{
    return ty_plan_is_of_actors(in->options.plan, in->position);
}

static episodes batch_of(const ty_interpreter *in, uint32_t slot)
{
    const ty_plan *plan = in->options.plan;

    return episodes_in(in->acting->batches + slot * in->acting->batch_bytes, plan->micro_batch_size,
                       (uint32_t)plan->workload->input.dimensions[0]);
}

/* ---- Opening ------------------------------------------------------------------------------- */

ty_status interpreter_acting_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    acting *a;

    if (!is_played(in))
        return TY_OK;
    if (in->memory != NULL)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the worker plays no episodes with a backend that has memory of its own");
    a = in->acting = ty_alloc(1, sizeof *a);
    if (a == NULL)
        return interpreter_no_memory(error);
    a->batch_bytes = plan->micro_batch_size * ty_workload_episode_bytes(plan->workload);
    a->set_floats = ty_plan_policy_bytes(plan) / sizeof *a->sets * ty_plan_policy_messages(plan, 0);
    if (a->set_floats > 0 &&
        (a->sets = ty_alloc(a->set_floats, in->window * sizeof *a->sets)) == NULL)
        return interpreter_no_memory(error);
    if (interpreter_is_timed(in))
        return TY_OK;
    a->scores = ty_alloc(plan->micro_batch_size, sizeof *a->scores);
    a->touches = ty_alloc(plan->micro_batch_size, sizeof *a->touches);
    if (a->scores == NULL || a->touches == NULL)
        return interpreter_no_memory(error);
    return evolution_policy_make(plan->workload, &a->policy, error);
}

ty_status interpreter_acting_start(ty_interpreter *in, const ty_stage_options *options,
                                   held_stage *held, ty_error *error)
{
    acting *a = in->acting;
    ty_status status = TY_OK;

    if (a == NULL)
        return TY_OK;
    a->batch_count = held->slot_count;
    a->batches = ty_alloc(a->batch_count, a->batch_bytes);
    if (a->batches == NULL)
        return interpreter_no_memory(error);
    if (interpreter_is_timed(in))
        return TY_OK;
    status = episode_player_open(in->options.backend, *options, a->policy, &a->player, error);
    if (status != TY_OK)
        return status;
    a->parameter_count = in->options.backend->parameter_count(a->player.device);
    if (interpreter_is_actor(in))
        held->device = a->player.device;
    return TY_OK;
}

void interpreter_acting_close(ty_interpreter *in)
{
    acting *a = in->acting;

    if (a == NULL)
        return;
    if (interpreter_is_actor(in))
        a->player.device = NULL; /* closed with its stage */
    episode_player_close(&a->player);
    ty_workload_free(a->policy);
    ty_free(a->batches);
    ty_free(a->sets);
    ty_free(a->scores);
    ty_free(a->touches);
    ty_free(a);
}

/* ---- Messages ------------------------------------------------------------------------------ */

/* Of several messages with weights each is of a part: the one that the learner has among those of
 * the actor. */
void *interpreter_acting_buffer(const ty_interpreter *in, const ty_instruction *transfer,
                                uint32_t slot, uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const acting *a = in->acting;
    uint64_t part;

    if (transfer->direction == TY_ACTIVATION)
        return a->batches + slot * a->batch_bytes;
    part =
        ty_program_global_micro_batch(plan, transfer->stage, in->replica, transfer->micro_batch) /
        ty_plan_actors(plan) % ty_plan_policy_messages(plan, 0);
    return a->sets + step % in->window * a->set_floats + part * (transfer->bytes / sizeof *a->sets);
}

/* ---- Instructions -------------------------------------------------------------------------- */

/* The weights of a replica that learns, where it plays itself. */
static void take_own_weights(ty_interpreter *in)
{
    const ty_device_backend *backend = in->options.backend;
    acting *a = in->acting;

    if (!interpreter_is_actor(in))
        memcpy(backend->parameters(a->player.device), backend->parameters(in->held[0].device),
               a->parameter_count * sizeof(float));
}

ty_status interpreter_act(ty_interpreter *in, const ty_instruction *act, uint32_t step,
                          uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const episodes batch = batch_of(in, slot);
    const uint64_t m =
        ty_program_global_micro_batch(plan, act->stage, in->replica, act->micro_batch);

    take_own_weights(in);
    return episodes_play(&in->acting->player, plan->seed, step, m * plan->micro_batch_size, &batch,
                         error);
}

ty_status interpreter_renew(ty_interpreter *in, const ty_instruction *renew, uint32_t step,
                            uint32_t slot, ty_error *error)
{
    acting *a = in->acting;
    float *set = a->sets + step % in->window * a->set_floats;
    float *own = in->options.backend->parameters(in->held[0].device);
    const uint64_t bytes = a->parameter_count * sizeof *own;

    (void)renew, (void)slot, (void)error;
    if (interpreter_is_actor(in))
        memcpy(own, set, bytes);
    else
        memcpy(set, own, bytes);
    return TY_OK;
}

void interpreter_episodes_take(ty_interpreter *in, const ty_instruction *forward, uint32_t step,
                               uint32_t slot)
{
    const ty_device_backend *backend = in->options.backend;
    ty_stage_device *device = interpreter_held(in, forward)->device;
    const episodes batch = batch_of(in, slot);
    const uint64_t rows = (uint64_t)batch.count * batch.steps;
    int32_t *labels = backend->labels(device, slot);
    double lost = 0;

    memcpy(backend->input(device, slot), batch.seen, rows * CORRIDOR_RAYS * sizeof *batch.seen);
    memcpy(labels, batch.actions, rows * sizeof *labels);
    memcpy(labels + rows, batch.advantages, rows * sizeof *batch.advantages);
    for (uint32_t e = 0; e < batch.count; e++)
        lost += 1 - (double)batch.scores[e];
    pthread_mutex_lock(&in->lock);
    in->sums[step % in->window].loss_sum += lost;
    in->sums[step % in->window].label_count += batch.count;
    pthread_mutex_unlock(&in->lock);
}

/* ---- A test -------------------------------------------------------------------------------- */

/* Learners share out the corridors, as many at once as a micro-batch has episodes. */
ty_status interpreter_acting_test(ty_interpreter *in, double *loss_sum, double *correct,
                                  double *count, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t steps = (uint32_t)plan->workload->input.dimensions[0];
    const uint32_t size = plan->micro_batch_size, learners = plan->stages[in->position].replicas;
    acting *a = in->acting;
    ty_status status = TY_OK;

    if (interpreter_is_actor(in))
        return TY_OK;
    take_own_weights(in);
    for (uint32_t at = in->replica * size; at < EVOLUTION_TESTS; at += learners * size) {
        const uint32_t left = EVOLUTION_TESTS - at, here = left < size ? left : size;

        TY_CHECK(episodes_test(&a->player, at, here, steps, a->scores, a->touches, error), status,
                 done);
        for (uint32_t e = 0; e < here; e++) {
            *loss_sum += 1 - a->scores[e];
            *correct += a->touches[e] == 0;
            *count += 1;
        }
    }
done:
    return status;
}
