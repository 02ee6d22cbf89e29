/* Options of a simulation. */
#include "ty_simulate.h"

ty_simulate_options ty_simulate_options_default(void)
{
    return (ty_simulate_options){.steps = 3, .resolution = TY_FLOW, .time_limit_s = 300.0};
}

const char *ty_engine_name(ty_engine_kind engine)
{
    return engine == TY_ENGINE_FLOW ? "flow" : "simgrid";
}
