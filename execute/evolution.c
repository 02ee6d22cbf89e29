/* Evolution strategies; see evolution.h. */
#include "evolution.h"

#include "corridor.h"
#include "dataset.h"
#include "init.h"

#include <string.h>

/* ---- The policy -------------------------------------------------------------------------- */

static bool sees_one_step(ty_layer_kind kind)
{
    return kind == TY_LAYER_LINEAR || kind == TY_LAYER_TANH || kind == TY_LAYER_RELU ||
           kind == TY_LAYER_GELU || kind == TY_LAYER_SILU || kind == TY_LAYER_LAYER_NORM ||
           kind == TY_LAYER_ADD;
}

static ty_status policy_check(const ty_workload *w, ty_error *error)
{
    const bool has_loss = w->learning == TY_LEARNING_REINFORCEMENT;
    const uint32_t layers = w->layer_count - (has_loss ? 1 : 0);
    const ty_shape *out = &w->layers[layers - 1].output;

    if (strcmp(w->dataset, "corridor") != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: the worker plays in corridors: found data set %s, expected "
                       "corridor",
                       w->name, w->dataset);
    if (w->learning == TY_LEARNING_EVOLUTION && !(w->deviation > 0))
        return ty_fail(error, TY_EINVAL,
                       "%s: found no deviation of the members' noise, expected one", w->name);
    if (w->input.dimension_count != 2 || w->input.dimensions[0] > CORRIDOR_STEPS ||
        w->input.dimensions[1] != CORRIDOR_RAYS || out->dimension_count != 2 ||
        out->dimensions[1] != CORRIDOR_ACTIONS)
        return ty_fail(error, TY_EINVAL,
                       "%s: a corridor takes a policy from at most %d steps x %d distances to as "
                       "many steps x %d actions, the workload has something else",
                       w->name, CORRIDOR_STEPS, CORRIDOR_RAYS, CORRIDOR_ACTIONS);
    for (uint32_t l = 0; l < layers; l++) {
        const ty_layer *layer = &w->layers[l];
        if (!sees_one_step(layer->kind) || layer->is_frozen || layer->tied_to != TY_NO_LAYER)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the worker plays no episodes with a policy that has a %s%s",
                           layer->name, layer->is_frozen ? "frozen " : "",
                           ty_layer_kind_name(layer->kind));
    }
    return TY_OK;
}

ty_status evolution_policy_make(const ty_workload *w, ty_workload **out, ty_error *error)
{
    ty_status status = policy_check(w, error);

    return status == TY_OK ? ty_workload_step_make(w, out, error) : status;
}

/* ---- Members ----------------------------------------------------------------------------- */

/* Keys that keep seeds of noise, corridors and tests apart. */
enum { NOISE_KEY = 1, CORRIDOR_KEY = 2, TEST_KEY = 3 };

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

uint64_t evolution_test_corridor(uint32_t n)
{
    return dataset_hash(TEST_KEY, n);
}

static uint32_t largest(const float *scores)
{
    uint32_t best = 0;

    for (uint32_t a = 1; a < CORRIDOR_ACTIONS; a++)
        best = scores[a] > scores[best] ? a : best;
    return best;
}

ty_status evolution_play(const ty_device_backend *backend, ty_stage_device *device,
                         const ty_workload *policy, uint64_t corridor_seed, uint32_t steps,
                         double *score, uint32_t *touches, ty_error *error)
{
    corridor c;
    ty_status status = TY_OK;

    corridor_begin(&c, corridor_seed);
    while (c.steps < steps) {
        corridor_look(&c, backend->input(device, 0));
        TY_CHECK(backend->forward(device, 0, 0, policy->layer_count - 1, error), status, done);
        corridor_step(&c, largest(backend->output(device, 0)));
    }
    *score = corridor_score(&c);
    *touches = c.touches;
done:
    return status;
}

/* ---- What becomes of scores -------------------------------------------------------------- */

void evolution_rank(const evolution_score *scores, uint64_t count, float *ranks)
{
    for (uint64_t i = 0; i < count; i++) {
        double below = 0;

        for (uint64_t j = 0; j < count; j++)
            below += scores[j].score < scores[i].score              ? 1
                     : j != i && scores[j].score == scores[i].score ? 0.5
                                                                    : 0;
        ranks[i] = count > 1 ? (float)(below / (double)(count - 1) - 0.5) : 0.0f;
    }
}

static float signed_rank(const evolution_score *score, float rank)
{
    return score->seed % 2 == 0 ? rank : -rank;
}

void evolution_gradient(const evolution_score *scores, const float *ranks, uint64_t count,
                        double deviation, uint64_t first, uint64_t parameter_count, float *noise,
                        float *gradient)
{
    const float scale = (float)(-1 / ((double)count * deviation));

    memset(gradient, 0, parameter_count * sizeof *gradient);
    for (uint64_t i = 0; i < count; i++) {
        float weight = scale * signed_rank(&scores[i], ranks[i]);

        evolution_noise(scores[i].seed, first, parameter_count, noise);
        if (i + 1 < count && (scores[i].seed ^ scores[i + 1].seed) == 1) { /* the mirrored one */
            i++;
            weight += scale * signed_rank(&scores[i], ranks[i]);
        }
        for (uint64_t p = 0; p < parameter_count; p++)
            gradient[p] += weight * noise[p];
    }
}
