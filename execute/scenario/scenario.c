/* The common code of evolution and reinforcement learning; see scenario.h. */
#include "scenario.h"

#include "dataset.h"
#include "profile_job.h"

#include <string.h>

const scenario *scenario_of(const ty_workload *workload, bool is_timed)
{
    if (workload->learning == TY_LEARNING_REINFORCEMENT)
        return &reinforcement;
    return workload->learning == TY_LEARNING_EVOLUTION && !is_timed ? &evolution : NULL;
}

/* Seeds of tests have a key of their own, as those of evolution.c and reinforcement.c. */
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
    if (made.robots == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for episodes");
        goto failed;
    }
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

ty_status player_look(const player *p, const float **scores, ty_error *error)
{
    float *input = p->backend->input(p->device, 0);
    ty_status status;

    for (uint32_t e = 0; e < p->count; e++)
        corridor_look(&p->robots[e], input + (size_t)e * CORRIDOR_RAYS);
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
        const ty_status status = player_look(p, &scores, error);

        if (status != TY_OK)
            return status;
        for (uint32_t e = 0; e < p->count; e++)
            corridor_step(&p->robots[e], player_likeliest(scores + (size_t)e * CORRIDOR_ACTIONS));
    }
    return TY_OK;
}

/* ---- In the interpreter -------------------------------------------------------------------- */

ty_status scenario_start(ty_interpreter *in, const ty_stage_options *options, held_stage *held,
                         ty_error *error)
{
    scenario_state *s = in->scenario_state = ty_alloc(1, sizeof *in->scenario_state);
    ty_status status;

    if (s == NULL)
        return interpreter_no_memory(error);
    if (!interpreter_is_timed(in)) {
        TY_CHECK(player_open(in->options.backend, *options, &s->player, error), status, done);
        s->parameter_count = in->options.backend->parameter_count(s->player.device);
    }
    status = in->scenario->start(in, held, error);
done:
    return status;
}

void scenario_close(ty_interpreter *in)
{
    scenario_state *s = in->scenario_state;

    if (s == NULL)
        return;
    if (in->held[0].device == s->player.device)
        in->held[0].device = NULL; /* closed with the player */
    player_close(&s->player);
    ty_free(s->played);
    ty_free(s->weights);
    ty_free(s);
}

void scenario_weights_take(ty_interpreter *in)
{
    const ty_device_backend *backend = in->options.backend;
    const scenario_state *s = in->scenario_state;

    if (s->player.device != in->held[0].device)
        memcpy(backend->parameters(s->player.device), backend->parameters(in->held[0].device),
               s->parameter_count * sizeof(float));
}

ty_status scenario_test(ty_interpreter *in, double *loss_sum, double *correct, double *count,
                        ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const player *p = &in->scenario_state->player;
    const uint32_t replicas = plan->stages[in->position].replicas;

    if (ty_plan_is_of_actors(plan, in->position))
        return TY_OK;
    scenario_weights_take(in);
    for (uint32_t at = in->replica * p->count; at < SCENARIO_TESTS; at += replicas * p->count) {
        const uint32_t left = SCENARIO_TESTS - at, here = left < p->count ? left : p->count;
        ty_status status;

        for (uint32_t e = 0; e < p->count; e++) /* the results of those beyond `here` are unused */
            corridor_begin(&p->robots[e], scenario_test_corridor(at + e % here));
        status = player_run(p, error);
        if (status != TY_OK)
            return status;
        for (uint32_t e = 0; e < here; e++) {
            *loss_sum += 1 - corridor_score(&p->robots[e]);
            *correct += p->robots[e].touches == 0;
            *count += 1;
        }
    }
    return TY_OK;
}

/* ---- The profile --------------------------------------------------------------------------- */

static const double episodes_budget_s = 0.3;

typedef struct play_work {
    const scenario *scenario;
    player player;
    void *memory;
    uint32_t played;
} play_work;

static ty_status play_run(void *context, ty_error *error)
{
    play_work *work = context;

    return work->scenario->play(&work->player, work->played++, work->memory, error);
}

/* The time of a population goes to the layers in equal parts; episodes of reinforcement learning
 * have a row of their own. */
static ty_status rows_add(const ty_profiler *p, uint32_t micro_batch, double seconds,
                          ty_error *error)
{
    const ty_workload *w = p->workload;
    const bool is_evolution = w->learning == TY_LEARNING_EVOLUTION;
    const uint32_t rows = is_evolution ? w->layer_count : 1;
    ty_status status = TY_OK;

    for (uint32_t l = 0; l < rows && status == TY_OK; l++) {
        ty_layer_time row = {.micro_batch = micro_batch,
                             .forward_s = is_evolution ? seconds * micro_batch / rows : seconds};

        status = is_evolution ? ty_layer_signature(w, l, &row.signature, error)
                              : ty_workload_play_signature(w, &row.signature, error);
        if (status == TY_OK)
            status = ty_profile_row_add(p->profile, &row, error);
    }
    return status;
}

ty_status ty_profile_episodes(ty_profiler *p, uint32_t micro_batch, ty_error *error)
{
    const ty_stage_options options = {.workload = p->workload,
                                      .micro_batch_size = micro_batch,
                                      .loss_scale = 1.0 / micro_batch,
                                      .seed = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .precision = p->precision,
                                      .local_rank = p->transport->local_rank};
    play_work work = {.scenario = scenario_of(p->workload, false)};
    double seconds = 0;
    ty_status status;

    TY_CHECK(player_open(p->backend, options, &work.player, error), status, cleanup);
    work.memory = ty_alloc(1, p->backend->parameter_count(work.player.device) * sizeof(float) +
                                  micro_batch * ty_workload_episode_bytes(p->workload));
    if (work.memory == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a profile");
        goto cleanup;
    }
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(ty_measure(p, NULL, play_run, &work, episodes_budget_s, &seconds, error), status,
             cleanup);
    TY_CHECK(ty_mean_over_ranks(p, &seconds, 1, error), status, cleanup);
    status = rows_add(p, micro_batch, seconds, error);
cleanup:
    player_close(&work.player);
    ty_free(work.memory);
    return status;
}
