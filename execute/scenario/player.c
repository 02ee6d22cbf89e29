/* A policy that runs episodes; see scenario.h. */
#include "dataset.h"
#include "scenario.h"

#include <string.h>

/* Seeds of tests have a key of their own, like those of evolution.c and reinforcement.c. */
enum { TEST_KEY = 3 };

uint64_t scenario_test_corridor(uint32_t n)
{
    return dataset_hash(TEST_KEY, n);
}

/* ---- Players ------------------------------------------------------------------------------- */

static bool sees_one_step(const ty_layer *layer)
{
    const ty_layer_row *row = ty_layer_row_of(layer);

    return row->split == TY_SPLIT_SEQUENCE || (row->products == 1 && row->is_of_tokens);
}

ty_status player_check(const ty_workload *w, ty_error *error)
{
    const bool has_loss = w->learning == TY_LEARNING_REINFORCEMENT;
    const uint32_t layers = w->layer_count - (has_loss ? 1 : 0);
    const ty_shape *scores = &w->layers[layers - 1].output;

    if (w->learning == TY_LEARNING_GRADIENT)
        return TY_OK;
    if (strcmp(w->dataset, "corridor") != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: the worker plays in corridors: found data set %s, expected "
                       "corridor",
                       w->name, w->dataset);
    if (w->learning == TY_LEARNING_EVOLUTION && !(w->deviation > 0))
        return ty_fail(error, TY_EINVAL,
                       "%s: found no deviation of the members' noise, expected one", w->name);
    if (w->input.dimension_count != 2 || w->input.dimensions[0] > CORRIDOR_STEPS ||
        w->input.dimensions[1] != CORRIDOR_RAYS || scores->dimension_count != 2 ||
        scores->dimensions[1] != CORRIDOR_ACTIONS)
        return ty_fail(error, TY_EINVAL,
                       "%s: a corridor takes a policy from at most %d steps x %d distances to as "
                       "many steps x %d actions, the workload has something else",
                       w->name, CORRIDOR_STEPS, CORRIDOR_RAYS, CORRIDOR_ACTIONS);
    for (uint32_t l = 0; l < layers; l++) {
        const ty_layer *layer = &w->layers[l];
        if (!sees_one_step(layer) || layer->is_frozen || layer->tied_to != TY_NO_LAYER)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the worker plays no episodes with a policy that has a %s%s",
                           layer->name, layer->is_frozen ? "frozen " : "",
                           ty_layer_kind_name(layer->kind));
    }
    return TY_OK;
}

ty_status player_open(const ty_device_backend *backend, ty_stage_options options, player *out,
                      ty_error *error)
{
    const ty_workload *w = options.workload;
    player made = {
        .backend = backend,
        .count = w->learning == TY_LEARNING_EVOLUTION ? 1 : options.micro_batch_size,
        .steps = (uint32_t)w->input.dimensions[0],
    };
    ty_status status;

    if (backend->memory != NULL)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: the worker plays no episodes with a backend that has memory of its own",
                       w->name);
    TY_CHECK(player_check(w, error), status, failed);
    TY_CHECK(ty_workload_step_make(w, &made.policy, error), status, failed);
    options.workload = made.policy;
    options.first_layer = 0;
    options.layer_count = made.policy->layer_count - 1;
    options.micro_batch_size = made.count;
    options.slots = 1;
    made.robots = ty_alloc(made.count, sizeof *made.robots);
    TY_CHECK(ty_check_memory(made.robots != NULL, error), status, failed);
    TY_CHECK(backend->supports(made.policy, 0, options.layer_count, error), status, failed);
    TY_CHECK(backend->open(&options, &made.device, error), status, failed);
    *out = made;
    return TY_OK;

failed:
    player_close(&made);
    return status;
}

void player_close(player *p)
{
    if (p->device != NULL)
        p->backend->close(p->device);
    ty_workload_free(p->policy);
    ty_free(p->robots);
}

ty_status player_observe(const player *p, const float **scores, ty_error *error)
{
    float *input = p->backend->input(p->device, 0);
    ty_status status;

    for (uint32_t e = 0; e < p->count; e++)
        corridor_observe(&p->robots[e], input + (size_t)e * CORRIDOR_RAYS);
    status = p->backend->forward(p->device, 0, 0, p->policy->layer_count - 1, error);
    *scores = p->backend->output(p->device, 0);
    return status;
}

uint32_t player_likeliest(const float *scores)
{
    uint32_t best = 0;

    for (uint32_t a = 1; a < CORRIDOR_ACTIONS; a++)
        best = scores[a] > scores[best] ? a : best;
    return best;
}

ty_status player_run(const player *p, ty_error *error)
{
    const float *scores = NULL;

    for (uint32_t t = 0; t < p->steps; t++) {
        const ty_status status = player_observe(p, &scores, error);

        if (status != TY_OK)
            return status;
        for (uint32_t e = 0; e < p->count; e++)
            corridor_step(&p->robots[e], player_likeliest(scores + (size_t)e * CORRIDOR_ACTIONS));
    }
    return TY_OK;
}

void scenario_weights_take(scenario_run *run)
{
    if (run->player.device != run->device)
        memcpy(run->backend->parameters(run->player.device), run->backend->parameters(run->device),
               run->parameter_count * sizeof(float));
}
