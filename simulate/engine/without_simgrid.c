/* Replaces the engine SimGrid in builds without it. */
#include "engine.h"

ty_status ty_engine_load_simgrid(ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "SimGrid is left out of this build (TY_WITH_SIMULATE=OFF); --engine flow does "
                   "without");
}

ty_status ty_engine_open_simgrid(ty_engine *out, ty_network *network, const ty_text *platform,
                                 ty_error *error)
{
    (void)out, (void)network, (void)platform;
    return ty_engine_load_simgrid(error);
}
