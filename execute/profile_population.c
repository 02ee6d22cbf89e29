/* What playing costs: whole episodes, which steps of the environment and the policy take turns in.
 * Of a population they are shared out equally among the policy's layers; those that are learnt from
 * are a row of their own, beside what learning takes. */
#include "episodes.h"
#include "evolution.h"
#include "profile_job.h"

#include <string.h>

static const double episodes_budget_s = 0.3;

typedef struct episode_work {
    const ty_profiler *profiler;
    ty_stage_device *device;
    float *noise; /* [parameter_count] */
    uint32_t played;
} episode_work;

/* A member's noise, and its episode; the weights stay as they are. */
static ty_status episode_run(void *context, ty_error *error)
{
    episode_work *work = context;
    const ty_profiler *p = work->profiler;
    double score;
    uint32_t touches;

    evolution_noise(evolution_seed(1, 0, work->played), 0,
                    p->backend->parameter_count(work->device), work->noise);
    return evolution_play(p->backend, work->device, p->policy,
                          evolution_test_corridor(work->played++),
                          (uint32_t)p->workload->input.dimensions[0], &score, &touches, error);
}

static ty_status row_add(ty_profile *profile, char *signature, uint32_t micro_batch,
                         double forward_s, ty_error *error)
{
    ty_layer_time *rows;

    for (uint32_t i = 0; i < profile->layer_time_count; i++)
        if (profile->layer_times[i].micro_batch == micro_batch &&
            strcmp(profile->layer_times[i].signature, signature) == 0) {
            ty_free(signature);
            return TY_OK;
        }
    rows = ty_resize(profile->layer_times, profile->layer_time_count + 1, sizeof *rows);
    if (rows == NULL) {
        ty_free(signature);
        return ty_fail(error, TY_ENOMEM, "out of memory for a profile");
    }
    profile->layer_times = rows;
    rows[profile->layer_time_count++] =
        (ty_layer_time){.signature = signature, .micro_batch = micro_batch, .forward_s = forward_s};
    return TY_OK;
}

ty_status ty_profile_population(ty_profiler *p, uint32_t micro_batch, ty_error *error)
{
    const uint32_t layers = p->workload->layer_count;
    episode_work work = {.profiler = p};
    double seconds = 0;
    ty_status status;

    TY_CHECK(ty_profiler_open(p, 1, 1, false, &work.device, error), status, cleanup);
    work.noise = ty_alloc(p->backend->parameter_count(work.device), sizeof *work.noise);
    if (work.noise == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a profile");
        goto cleanup;
    }
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(ty_measure(p, NULL, episode_run, &work, episodes_budget_s, &seconds, error), status,
             cleanup);
    TY_CHECK(ty_mean_over_ranks(p, &seconds, 1, error), status, cleanup);
    for (uint32_t l = 0; l < layers; l++) {
        char *signature = NULL;

        TY_CHECK(ty_layer_signature(p->workload, l, &signature, error), status, cleanup);
        TY_CHECK(row_add(p->profile, signature, micro_batch, seconds * micro_batch / layers, error),
                 status, cleanup);
    }
cleanup:
    if (work.device != NULL)
        p->backend->close(work.device);
    ty_free(work.noise);
    return status;
}

/* ---- Episodes to learn from ---------------------------------------------------------------- */

typedef struct batch_work {
    episode_player player;
    episodes batch;
    uint32_t step;
} batch_work;

static ty_status batch_run(void *context, ty_error *error)
{
    batch_work *work = context;

    return episodes_play(&work->player, 1, work->step++, 0, &work->batch, error);
}

ty_status ty_profile_play(ty_profiler *p, uint32_t micro_batch, ty_error *error)
{
    const uint32_t steps = (uint32_t)p->workload->input.dimensions[0];
    const ty_stage_options options = {.micro_batch_size = micro_batch,
                                      .loss_scale = 1.0 / micro_batch,
                                      .seed = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .precision = p->precision,
                                      .local_rank = p->transport->local_rank};
    batch_work work = {0};
    ty_workload *policy = NULL;
    void *memory = NULL;
    char *signature = NULL;
    double seconds = 0;
    ty_status status;

    if (p->backend->memory != NULL)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: the worker plays no episodes with a backend that has memory of its own",
                       p->workload->name);
    TY_CHECK(evolution_policy_make(p->workload, &policy, error), status, cleanup);
    TY_CHECK(episode_player_open(p->backend, options, policy, &work.player, error), status,
             cleanup);
    memory = ty_alloc(micro_batch, ty_workload_episode_bytes(p->workload));
    if (memory == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a profile");
        goto cleanup;
    }
    work.batch = episodes_in(memory, micro_batch, steps);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(ty_measure(p, NULL, batch_run, &work, episodes_budget_s, &seconds, error), status,
             cleanup);
    TY_CHECK(ty_mean_over_ranks(p, &seconds, 1, error), status, cleanup);
    TY_CHECK(ty_workload_play_signature(p->workload, &signature, error), status, cleanup);
    status = row_add(p->profile, signature, micro_batch, seconds, error);
cleanup:
    episode_player_close(&work.player);
    ty_workload_free(policy);
    ty_free(memory);
    return status;
}
