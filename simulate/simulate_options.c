/* Default options of a simulation. */
#include "ty_simulate.h"

ty_simulate_options ty_simulate_options_default(void)
{
    return (ty_simulate_options){.steps = 3, .resolution = TY_FLOW, .time_limit_s = 300.0};
}
