/**
 * @file zoo.h
 * Reading a `trainyard.zoo/1` document. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_ZOO_H
#define TY_WORKLOADS_ZOO_H

#include "ty_workloads.h"

/** What the user asked for beside the name; 0: as the file says. */
typedef ty_import_options ty_zoo_overrides;

#define TY_ZOO_SCHEMA "trainyard.zoo/1"

/** @return TY_EPARSE with the pointer of what is wrong; TY_EINVAL for an override that does not
 * suit. */
ty_status ty_zoo_build(const ty_json *root, const ty_zoo_overrides *overrides, ty_workload **out,
                       ty_error *error) TY_MUST_CHECK;

#endif
