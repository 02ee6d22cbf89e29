/* Populations: what forward, exchange and update are where a workload learns by evolution. */
#include "interpreter_state.h"

#include <string.h>

/* Members are stored by replica, each its micro-batches one behind the other, so that what a
 * replica has of them is its share of an all-gather. */
struct population {
    ty_workload *policy;
    uint64_t parameter_count;
    float *shared, *noise;    /* [parameter_count] */
    evolution_score *scores;  /* [global_batch], by replica */
    evolution_score *members; /* [global_batch], in the order of the batch */
    float *ranks;             /* [global_batch], likewise */
};

static bool is_population(const ty_interpreter *in)
{
    return !interpreter_is_timed(in) &&
           in->options.plan->workload->learning == TY_LEARNING_EVOLUTION;
}

ty_status interpreter_population_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    population *p;

    if (!is_population(in))
        return TY_OK;
    if (ty_plan_width(plan) > 1 || in->memory != NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "the worker plays no population with %s",
                       in->memory != NULL ? "a backend that has memory of its own"
                                          : "tensor lanes");
    p = in->population = ty_alloc(1, sizeof *p);
    if (p == NULL)
        return interpreter_no_memory(error);
    p->scores = ty_alloc(plan->global_batch, sizeof *p->scores);
    p->members = ty_alloc(plan->global_batch, sizeof *p->members);
    p->ranks = ty_alloc(plan->global_batch, sizeof *p->ranks);
    if (p->scores == NULL || p->members == NULL || p->ranks == NULL)
        return interpreter_no_memory(error);
    return evolution_policy_make(plan->workload, &p->policy, error);
}

const ty_workload *interpreter_policy(const ty_interpreter *in)
{
    return in->population != NULL ? in->population->policy : NULL;
}

ty_status interpreter_population_start(ty_interpreter *in, ty_error *error)
{
    population *p = in->population;

    if (p == NULL)
        return TY_OK;
    p->parameter_count = in->options.backend->parameter_count(in->held[0].device);
    p->shared = ty_alloc(p->parameter_count, sizeof *p->shared);
    p->noise = ty_alloc(p->parameter_count, sizeof *p->noise);
    return p->shared != NULL && p->noise != NULL ? TY_OK : interpreter_no_memory(error);
}

void interpreter_population_close(ty_interpreter *in)
{
    population *p = in->population;

    if (p == NULL)
        return;
    ty_workload_free(p->policy);
    ty_free(p->shared);
    ty_free(p->noise);
    ty_free(p->scores);
    ty_free(p->members);
    ty_free(p->ranks);
    ty_free(p);
}

static uint64_t members_per_replica(const ty_interpreter *in)
{
    return (uint64_t)in->local_micro_batches * in->options.plan->micro_batch_size;
}

ty_status interpreter_population_play(ty_interpreter *in, const ty_instruction *forward,
                                      uint32_t step, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_device_backend *backend = in->options.backend;
    population *p = in->population;
    ty_stage_device *device = interpreter_held(in, forward)->device;
    float *weights = backend->parameters(device);
    const uint32_t size = plan->micro_batch_size,
                   batch = ty_program_global_micro_batch(plan, forward->stage, in->replica,
                                                         forward->micro_batch);
    evolution_score *own =
        p->scores + in->replica * members_per_replica(in) + (uint64_t)forward->micro_batch * size;
    double sum = 0, score;
    uint32_t touches;
    ty_status status = TY_OK;

    memcpy(p->shared, weights, p->parameter_count * sizeof *weights);
    for (uint32_t j = 0; j < size && status == TY_OK; j++) {
        const uint32_t seed = evolution_seed(plan->seed, step, (uint64_t)batch * size + j);
        const float by = (float)plan->workload->deviation * (seed % 2 == 0 ? 1.0f : -1.0f);

        evolution_noise(seed, 0, p->parameter_count, p->noise);
        for (uint64_t i = 0; i < p->parameter_count; i++)
            weights[i] = p->shared[i] + by * p->noise[i];
        status =
            evolution_play(backend, device, p->policy, evolution_corridor(plan->seed, step),
                           (uint32_t)plan->workload->input.dimensions[0], &score, &touches, error);
        if (status != TY_OK)
            break;
        own[j] = (evolution_score){(float)score, seed};
        sum += 1 - score;
    }
    memcpy(weights, p->shared, p->parameter_count * sizeof *weights);
    pthread_mutex_lock(&in->lock);
    in->sums[step % in->window].loss_sum += sum;
    in->sums[step % in->window].label_count += size;
    pthread_mutex_unlock(&in->lock);
    return status;
}

void interpreter_population_exchange(const ty_interpreter *in, ty_collective_options *options)
{
    options->kind = TY_ALL_GATHER;
    options->data = in->population->scores;
    options->count = in->options.plan->global_batch * sizeof(evolution_score);
    options->is_of_shares = true;
    options->element = TY_ELEMENT_BYTE;
}

/* Of all members, in the order of the batch, whoever played them. */
void interpreter_population_gradient(ty_interpreter *in, uint32_t index, uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const bucket_state *bucket = &in->buckets[index];
    const uint32_t replicas = plan->stages[0].replicas, size = plan->micro_batch_size;
    population *p = in->population;

    for (uint32_t m = 0; m < plan->micro_batches; m++)
        memcpy(p->members + (uint64_t)m * size,
               p->scores + m % replicas * members_per_replica(in) + (uint64_t)(m / replicas) * size,
               size * sizeof *p->members);
    evolution_rank(p->members, plan->global_batch, p->ranks);
    evolution_gradient(p->members, p->ranks, plan->global_batch, plan->workload->deviation,
                       bucket->offset, bucket->count, p->noise,
                       interpreter_gradients(in, bucket->held, step) + bucket->offset);
}

/* With the shared parameters, in corridors that no step has: 1 less the score, and the share of
 * those that were passed without a touch. */
ty_status interpreter_population_test(ty_interpreter *in, double *loss_sum, double *correct,
                                      double *count, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t steps = (uint32_t)plan->workload->input.dimensions[0];
    ty_status status = TY_OK;

    for (uint32_t n = in->replica; n < EVOLUTION_TESTS; n += plan->stages[0].replicas) {
        double score;
        uint32_t touches;

        TY_CHECK(evolution_play(in->options.backend, in->held[0].device, in->population->policy,
                                evolution_test_corridor(n), steps, &score, &touches, error),
                 status, done);
        *loss_sum += 1 - score;
        *correct += touches == 0;
        *count += 1;
    }
done:
    return status;
}
