/* Shared by the files of jobs and of runs. Internal to core. */
#ifndef TY_RUN_PARTS_H
#define TY_RUN_PARTS_H

#include "ty_run.h"

enum { TY_MAX_STEPS = 1000000000 };

/** The backend that replays a plan without training. */
#define TY_REPLAY "replay"

#endif
