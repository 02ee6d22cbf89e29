/* The time of entire episodes: their steps are too short to be measured alone. */
#include "profile_job.h"
#include "scenario.h"

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
    TY_CHECK(ty_check_memory(work.memory != NULL, error), status, cleanup);
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
