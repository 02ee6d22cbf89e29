/**
 * @file zoo.h
 * Reading a `trainyard.zoo/1` document. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_ZOO_H
#define TY_WORKLOADS_ZOO_H

#include "ty_workloads.h"

/** The user's overrides; 0: the file's value. */
typedef ty_import_options ty_zoo_overrides;

#define TY_ZOO_SCHEMA "trainyard.zoo/1"

/** @return TY_EPARSE with the pointer of the error; TY_EINVAL for an unsuitable override. */
ty_status ty_zoo_build(const ty_json *root, const ty_zoo_overrides *overrides, ty_workload **out,
                       ty_error *error) TY_MUST_CHECK;

#endif
