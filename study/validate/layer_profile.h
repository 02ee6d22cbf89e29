/**
 * @file layer_profile.h
 * Networks as others timed them layer by layer: records of kind layer-profile, in
 * pipedream_profiles.json beside the file in hand. Internal to planner/validate/.
 */
#ifndef TY_PLANNER_LAYER_PROFILE_H
#define TY_PLANNER_LAYER_PROFILE_H

#include "ty_validate.h"
#include "ty_workloads.h"

/**
 * The network of a record with the layer times of its profile, all layers opaque; times are the
 * profile's divided by its batch, so another batch takes in proportion. What loads samples (nodes
 * "Input...") counts as the batch.
 * @param workload [out] NULL where the file, a record of that model or its batch is missing
 * @return TY_EPARSE for a profile whose layers or edges make no graph
 */
ty_status ty_layer_profile_find(const ty_records *records, const ty_record *record,
                                ty_workload **workload, ty_error *error) TY_MUST_CHECK;

#endif
