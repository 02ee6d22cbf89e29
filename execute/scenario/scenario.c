/* The scenario of a workload, and the test of a policy; see scenario.h. */
#include "scenario.h"

const scenario *scenario_of(const ty_workload *workload, bool is_timed)
{
    static const scenario none = {0};

    if (workload->learning == TY_LEARNING_REINFORCEMENT)
        return &reinforcement;
    if (is_timed)
        return &none;
    if (workload->learning == TY_LEARNING_EVOLUTION)
        return &evolution;
    return ty_workload_has_teacher(workload) ? &teacher : &none;
}

bool scenario_plays(const scenario_run *run)
{
    return run->hooks->play != NULL;
}

ty_status scenario_start(scenario_run *run, const ty_stage_options *options, ty_error *error)
{
    if (run->hooks->start == NULL)
        return TY_OK;
    if (!run->backend->is_timed) {
        TY_TRY(player_open(run->backend, *options, &run->player, error));
        run->parameter_count = run->backend->parameter_count(run->player.device);
    }
    return run->hooks->start(run, error);
}

bool scenario_close(scenario_run *run)
{
    const bool is_stage = run->player.device != NULL && run->player.device == run->device;

    player_close(&run->player);
    ty_free(run->played);
    ty_free(run->weights);
    return is_stage;
}

ty_status scenario_test(scenario_run *run, double *loss_sum, double *correct, double *count,
                        ty_error *error)
{
    const player *p = &run->player;
    const uint32_t replicas = run->plan->stages[run->position].replicas;

    if (ty_plan_is_of_actors(run->plan, run->position))
        return TY_OK;
    scenario_weights_take(run);
    for (uint32_t at = run->replica * p->count; at < SCENARIO_TESTS; at += replicas * p->count) {
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
