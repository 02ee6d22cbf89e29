/* ty_plan_check for a plan inside a document. Internal to core. */
#ifndef TY_PLAN_CHECK_H
#define TY_PLAN_CHECK_H

#include "ty_plan.h"

/** @param place what messages begin with, as ty_json_place gives it: "job.json:/plan" */
ty_status ty_plan_check_at(const ty_plan *plan, const char *place, ty_error *error) TY_MUST_CHECK;

#endif
