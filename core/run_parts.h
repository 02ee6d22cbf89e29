/* What the files of jobs and of runs have in common. Internal to core. */
#ifndef TY_RUN_PARTS_H
#define TY_RUN_PARTS_H

#include "ty_json.h"
#include "ty_run.h"

enum { TY_MAX_STEPS = 1000000000 };

/** The backend that only plays a plan. */
#define TY_REPLAY "replay"

/** The member `until`; left alone where there is none. */
ty_status ty_target_read(const ty_json *object, ty_target *target, ty_error *error) TY_MUST_CHECK;
/** Only where it is set. */
void ty_target_write(const ty_target *target, ty_json_writer *writer);

#endif
