/* Evolution strategies: a population plays, its scores are exchanged, and every replica moves its
 * copy of the shared parameters by the noise of all members.
 *
 * Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement
 * Learning", arXiv:1703.03864: algorithm 2, with mirrored members (2n and 2n + 1 have opposite
 * noise) and scores replaced by their centered ranks (section 2). All members of a step play in the
 * same corridor, another one in each step. */
#include "dataset.h"
#include "init.h"
#include "scenario.h"

#include <string.h>

/* A member as replicas exchange it. */
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

static ty_status start(ty_interpreter *in, held_stage *held, ty_error *error)
{
    scenario_state *s = in->scenario_state;

    if (ty_plan_width(in->options.plan) > 1)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the worker plays no population with tensor parallelism");
    s->played = ty_alloc(in->options.plan->global_batch, sizeof(member_score));
    s->weights = ty_alloc(s->parameter_count, 2 * sizeof *s->weights);
    held->device = s->player.device;
    return s->played != NULL && s->weights != NULL ? TY_OK : interpreter_no_memory(error);
}

/* The score of a member by its place in the batch. Scores are stored by replica, each replica's
 * micro-batches one after the other, so that a replica has its share of an all-gather. */
static member_score *score_of(const ty_interpreter *in, uint64_t member)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t size = plan->micro_batch_size, replicas = plan->stages[0].replicas;
    const uint64_t m = member / size;

    return (member_score *)in->scenario_state->played +
           (m % replicas * in->local_micro_batches + m / replicas) * size + member % size;
}

/* A micro-batch of members, each with parameters of its own. */
static ty_status forward(ty_interpreter *in, const ty_instruction *pass, uint32_t step,
                         uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const scenario_state *s = in->scenario_state;
    const uint64_t count = s->parameter_count;
    float *weights = in->options.backend->parameters(s->player.device), *noise = s->weights + count;
    const uint32_t size = plan->micro_batch_size,
                   batch = ty_program_global_micro_batch(plan, pass->stage, in->replica,
                                                         pass->micro_batch);
    double sum = 0;
    ty_status status = TY_OK;

    (void)slot;
    memcpy(s->weights, weights, count * sizeof *weights);
    for (uint32_t j = 0; j < size; j++) {
        const uint64_t member = (uint64_t)batch * size + j;
        const uint32_t seed = evolution_seed(plan->seed, step, member);
        const float by = (float)plan->workload->deviation * (seed % 2 == 0 ? 1.0f : -1.0f);
        double score;

        evolution_noise(seed, 0, count, noise);
        for (uint64_t i = 0; i < count; i++)
            weights[i] = s->weights[i] + by * noise[i];
        corridor_begin(s->player.robots, evolution_corridor(plan->seed, step));
        TY_CHECK(player_run(&s->player, error), status, done);
        score = corridor_score(s->player.robots);
        *score_of(in, member) = (member_score){(float)score, seed};
        sum += 1 - score;
    }
done:
    memcpy(weights, s->weights, count * sizeof *weights);
    interpreter_loss_add(in, step, sum, size);
    return status;
}

static void exchange(const ty_interpreter *in, ty_collective_options *options)
{
    options->kind = TY_ALL_GATHER;
    options->data = in->scenario_state->played;
    options->count = in->options.plan->global_batch * sizeof(member_score);
    options->is_of_shares = true;
    options->element = TY_ELEMENT_BYTE;
}

/* The centered rank, -1/2 to 1/2, with the sign of the noise; equal scores have the mean of their
 * ranks. */
static float signed_rank(const ty_interpreter *in, const member_score *score)
{
    const uint64_t count = in->options.plan->global_batch;
    double below = 0;
    float rank;

    for (uint64_t j = 0; j < count; j++) {
        const member_score *other = score_of(in, j);

        below += other->score < score->score                      ? 1
                 : other != score && other->score == score->score ? 0.5
                                                                  : 0;
    }
    rank = count > 1 ? (float)(below / (double)(count - 1) - 0.5) : 0.0f;
    return score->seed % 2 == 0 ? rank : -rank;
}

/* -1 / (count deviation) sum of rank x sign x noise, in the order of members: whichever replica
 * played them, all replicas compute the same sum. */
static void gradient(ty_interpreter *in, uint32_t index, uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const bucket_state *bucket = &in->buckets[index];
    const uint64_t count = plan->global_batch;
    const float scale = (float)(-1 / ((double)count * plan->workload->deviation));
    float *noise = in->scenario_state->weights + in->scenario_state->parameter_count;
    float *sum = interpreter_gradients(in, bucket->held, step) + bucket->offset;

    memset(sum, 0, bucket->count * sizeof *sum);
    for (uint64_t i = 0; i < count; i++) {
        const member_score *own = score_of(in, i);
        float weight = scale * signed_rank(in, own);

        evolution_noise(own->seed, bucket->offset, bucket->count, noise);
        if (i + 1 < count && (own->seed ^ score_of(in, i + 1)->seed) == 1) /* the mirrored one */
            weight += scale * signed_rank(in, score_of(in, ++i));
        for (uint64_t p = 0; p < bucket->count; p++)
            sum[p] += weight * noise[p];
    }
}

static ty_status play(const player *p, uint32_t n, void *memory, ty_error *error)
{
    evolution_noise(evolution_seed(1, 0, n), 0, p->backend->parameter_count(p->device), memory);
    corridor_begin(p->robots, scenario_test_corridor(n));
    return player_run(p, error);
}

const scenario evolution = {
    .start = start, .forward = forward, .exchange = exchange, .gradient = gradient, .play = play};
