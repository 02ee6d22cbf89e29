/* Evolution strategies: the members of a population run episodes, replicas all-gather the scores,
 * and every replica moves its copy of the shared parameters by the noise of all members.
 *
 * Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement
 * Learning", arXiv:1703.03864: algorithm 2, with mirrored members (2n and 2n + 1 have opposite
 * noise) and scores replaced by their centered ranks (section 2). All members of a step run in the
 * same corridor, another one in each step. */
#include "dataset.h"
#include "init.h"
#include "scenario.h"

#include <string.h>

/* A member's entry in the all-gather of scores. */
typedef struct member_score {
    float score;
    uint32_t seed; /* of its noise; the lowest bit is its sign */
} member_score;

/* Keys that separate seeds of noise and of corridors. */
enum { NOISE_KEY = 1, CORRIDOR_KEY = 2 };

uint32_t evolution_seed(uint64_t seed, uint32_t step, uint64_t member)
{
    const uint64_t of_step = dataset_hash(dataset_hash(seed, NOISE_KEY), step);

    return ((uint32_t)dataset_hash(of_step, member / 2) & ~(uint32_t)1) | (uint32_t)(member % 2);
}

void evolution_noise(uint32_t member_seed, uint64_t first, uint64_t count, float *out)
{
    ty_init_normal(member_seed & ~(uint32_t)1, 0, 0, 1, first, count, out);
}

uint64_t evolution_corridor(uint64_t seed, uint32_t step)
{
    return dataset_hash(dataset_hash(seed, CORRIDOR_KEY), step);
}

static ty_status start(scenario_run *run, ty_error *error)
{
    if (ty_plan_replica_ranks(run->plan) > 1)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the worker plays no population with tensor parallelism");
    run->played = ty_alloc(run->plan->global_batch, sizeof(member_score));
    run->weights = ty_alloc(run->parameter_count, 2 * sizeof *run->weights);
    run->device = run->player.device;
    return ty_check_memory(run->played != NULL && run->weights != NULL, error);
}

/* Loads nothing: a member begins its episode in its forward. */
static ty_status load(scenario_run *run, const ty_instruction *load, uint32_t step, uint32_t slot,
                      ty_error *error)
{
    (void)run, (void)load, (void)step, (void)slot, (void)error;
    return TY_OK;
}

/* The score of a member by its place in the batch. Scores are stored by replica, each replica's
 * micro-batches one after the other, so that a replica has its shard of an all-gather. */
static member_score *score_of(const scenario_run *run, uint64_t member)
{
    const ty_plan *plan = run->plan;
    const uint32_t size = plan->micro_batch_size, replicas = plan->stages[0].replicas;
    const uint64_t m = member / size;

    return (member_score *)run->played +
           (m % replicas * (plan->micro_batches / replicas) + m / replicas) * size + member % size;
}

/* A micro-batch of members, each with parameters of its own. */
static ty_status forward(scenario_run *run, const ty_instruction *pass, uint32_t step,
                         uint32_t slot, scenario_loss *loss, ty_error *error)
{
    const ty_plan *plan = run->plan;
    const uint64_t count = run->parameter_count;
    float *weights = run->backend->parameters(run->player.device), *noise = run->weights + count;
    const uint32_t size = plan->micro_batch_size,
                   batch = ty_program_global_micro_batch(plan, pass->stage, run->replica,
                                                         pass->micro_batch);
    double sum = 0;
    ty_status status = TY_OK;

    (void)slot;
    memcpy(run->weights, weights, count * sizeof *weights);
    for (uint32_t j = 0; j < size; j++) {
        const uint64_t member = (uint64_t)batch * size + j;
        const uint32_t seed = evolution_seed(plan->seed, step, member);
        const float by = (float)plan->workload->deviation * (seed % 2 == 0 ? 1.0f : -1.0f);
        double score;

        evolution_noise(seed, 0, count, noise);
        for (uint64_t i = 0; i < count; i++)
            weights[i] = run->weights[i] + by * noise[i];
        corridor_begin(run->player.robots, evolution_corridor(plan->seed, step));
        TY_CHECK(player_run(&run->player, error), status, done);
        score = corridor_score(run->player.robots);
        *score_of(run, member) = (member_score){(float)score, seed};
        sum += 1 - score;
    }
done:
    memcpy(weights, run->weights, count * sizeof *weights);
    *loss = (scenario_loss){sum, size};
    return status;
}

static void exchange(const scenario_run *run, ty_collective_options *options)
{
    options->kind = TY_ALL_GATHER;
    options->data = run->played;
    options->count = run->plan->global_batch * sizeof(member_score);
    options->is_of_shares = true;
    options->element = TY_ELEMENT_BYTE;
}

/* The centered rank, -1/2 to 1/2, with the sign of the noise; equal scores have the mean of their
 * ranks. */
static float signed_rank(const scenario_run *run, const member_score *score)
{
    const uint64_t count = run->plan->global_batch;
    double below = 0;
    float rank;

    for (uint64_t j = 0; j < count; j++) {
        const member_score *other = score_of(run, j);

        below += other->score < score->score                      ? 1
                 : other != score && other->score == score->score ? 0.5
                                                                  : 0;
    }
    rank = count > 1 ? (float)(below / (double)(count - 1) - 0.5) : 0.0f;
    return score->seed % 2 == 0 ? rank : -rank;
}

/* -1 / (count deviation) sum of rank x sign x noise, in the order of members, so that all replicas
 * compute the same sum. */
static void gradient(const scenario_run *run, uint64_t offset, uint64_t parameters,
                     float *gradients)
{
    const ty_plan *plan = run->plan;
    const uint64_t count = plan->global_batch;
    const float scale = (float)(-1 / ((double)count * plan->workload->deviation));
    float *noise = run->weights + run->parameter_count;

    memset(gradients, 0, parameters * sizeof *gradients);
    for (uint64_t i = 0; i < count; i++) {
        const member_score *own = score_of(run, i);
        float weight = scale * signed_rank(run, own);

        evolution_noise(own->seed, offset, parameters, noise);
        if (i + 1 < count && (own->seed ^ score_of(run, i + 1)->seed) == 1) /* the mirrored one */
            weight += scale * signed_rank(run, score_of(run, ++i));
        for (uint64_t p = 0; p < parameters; p++)
            gradients[p] += weight * noise[p];
    }
}

static ty_status play(const player *p, uint32_t n, void *memory, ty_error *error)
{
    evolution_noise(evolution_seed(1, 0, n), 0, p->backend->parameter_count(p->device), memory);
    corridor_begin(p->robots, scenario_test_corridor(n));
    return player_run(p, error);
}

const scenario evolution = {.start = start,
                            .load = load,
                            .forward = forward,
                            .exchange = exchange,
                            .gradient = gradient,
                            .play = play};
