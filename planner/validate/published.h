/**
 * @file published.h
 * What the names in published measurements stand for in the catalogue and the zoo:
 * planner/catalogue/published.json. Internal to planner/validate/.
 */
#ifndef TY_PLANNER_PUBLISHED_H
#define TY_PLANNER_PUBLISHED_H

#include "ty_topologies.h"
#include "ty_validate.h"
#include "ty_workloads.h"

/**
 * The hosts that a record ran on, as a one-line description: as many as its devices fill, hosts of
 * the catalogue where the record names one that has the record's devices per host, else devices
 * with one adapter each.
 * @param cluster [out] NULL with a reason where the device or the network is not known
 */
ty_status ty_published_cluster(const ty_record *record, ty_cluster **cluster,
                               char reason[TY_SKIP_REASON_SIZE], ty_error *error) TY_MUST_CHECK;

/** The zoo's workload of a record's model; NULL with a reason. */
ty_status ty_published_workload(const ty_record *record, ty_workload **workload,
                                char reason[TY_SKIP_REASON_SIZE], ty_error *error) TY_MUST_CHECK;

/** Bytes of gradient that the record's software sends at once; the usual ones of today where it is
 * not known. */
ty_status ty_published_bucket_bytes(const ty_record *record, uint64_t *bytes,
                                    ty_error *error) TY_MUST_CHECK;

#endif
