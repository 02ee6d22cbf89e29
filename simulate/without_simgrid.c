/* Replaces the simulator in builds without it. */
#include "ty_simulate.h"

#include "engine.h"
#include "parallel_exchange.h"

bool ty_simulate_is_built(void)
{
    return false;
}

static ty_status not_built(ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "simulation is left out of this build (TY_WITH_SIMULATE=OFF): it needs SimGrid; "
                   "estimate does without");
}

ty_status ty_simulate_load(ty_error *error)
{
    return not_built(error);
}

ty_status ty_engine_load(ty_error *error)
{
    return not_built(error);
}

ty_status ty_simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options,
                      ty_timeline **out, ty_error *error)
{
    (void)plan, (void)program, (void)costs, (void)cluster, (void)options, (void)out;
    return not_built(error);
}

ty_status ty_simulate_parallel(const ty_plan *plan, const ty_program *program,
                               const ty_costs *costs, const ty_parallel_exchanges *parallel,
                               const ty_cluster *cluster, const ty_simulate_options *options,
                               ty_timeline **out, ty_error *error)
{
    (void)plan, (void)program, (void)costs, (void)parallel, (void)cluster, (void)options, (void)out;
    return not_built(error);
}

ty_status ty_simulate_classes(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              const ty_cluster *cluster, const ty_simulate_options *options,
                              uint32_t *classes, ty_error *error)
{
    (void)plan, (void)program, (void)costs, (void)cluster, (void)options, (void)classes;
    return not_built(error);
}
