/**
 * @file fixed_plan.h
 * Step time of a plan that others chose, by the estimator: no search, no look at memory (what was
 * measured did fit). Internal to planner/validate/.
 */
#ifndef TY_PLANNER_FIXED_PLAN_H
#define TY_PLANNER_FIXED_PLAN_H

#include "ty_planner.h"

#define TY_FIXED_PLAN_STAGES 64

typedef struct ty_fixed_plan {
    const ty_workload *workload;
    const ty_cluster *cluster; /* ranks are on its first devices */
    uint32_t stage_count;      /* 1 to TY_FIXED_PLAN_STAGES */
    uint32_t first_layers[TY_FIXED_PLAN_STAGES], replicas[TY_FIXED_PLAN_STAGES];
    uint32_t micro_batch_size, micro_batches;
    ty_schedule schedule;
    ty_compression_kind compression;
    uint64_t bucket_bytes; /* UINT64_MAX: one a stage */
    bool recompute;
    double compute_scale; /* of everything devices do alone: how much slower than costed; 1 */
    /* Not collectives but servers in each host and on all hosts: seconds a byte of gradient takes;
     * 0: collectives. */
    double server_s_per_byte;
    double server_latency_s;
    /* Deviation of a device's step time as a share of it: all wait for the slowest of `devices`. */
    double jitter;
    uint32_t devices;
} ty_fixed_plan;

/**
 * Gradients over servers: every device of a host sends its own to the host's memory and reads the
 * sum back over the host's roots; hosts push to and pull from the shares that all others serve.
 *   seconds per byte = 2 n/R + 2 (H-1)/H / B
 * for n devices a host, roots of R bytes/s, H hosts and B bytes/s between them.
 */
ty_status ty_fixed_plan_use_server(ty_fixed_plan *plan, double root_bytes_per_s,
                                   uint32_t devices_per_host, ty_error *error) TY_MUST_CHECK;

/**
 * Gradients that cross the slowest link of the devices' ring so many times, in place of a ring's 2:
 *   seconds per byte = passes (n-1)/n / B
 */
ty_status ty_fixed_plan_use_passes(ty_fixed_plan *plan, double passes,
                                   ty_error *error) TY_MUST_CHECK;
/** Seconds of one such exchange among the first n devices of a cluster. */
ty_status ty_passes_seconds(const ty_cluster *cluster, uint32_t devices, double passes,
                            double bytes, double *seconds, ty_error *error) TY_MUST_CHECK;

/** Data parallelism over the first `devices` devices with so many samples each. */
ty_fixed_plan ty_fixed_data_parallel(const ty_workload *workload, const ty_cluster *cluster,
                                     uint32_t devices, uint32_t batch_per_device,
                                     uint64_t bucket_bytes);

/** Seconds of a step. */
ty_status ty_fixed_plan_step(const ty_fixed_plan *plan, double *step_time_s,
                             ty_error *error) TY_MUST_CHECK;

/**
 * The compute scale at which the plan's step takes `measured_s`: what calibrates a model of layers
 * by one measurement. Found by scaling again until the step is right to a millionth.
 * @return TY_EINFEASIBLE where communication alone takes as long as was measured, or nearly so
 */
ty_status ty_fixed_plan_calibrate(ty_fixed_plan *plan, double measured_s, double *scale,
                                  ty_error *error) TY_MUST_CHECK;

/**
 * The layers of a workload in a row, each opaque and with its time on a device, so that it can be
 * divided anywhere: what crosses a cut is all that later layers read. Tied weights become two.
 */
ty_status ty_workload_chain(const ty_workload *workload, const ty_device_type *device,
                            uint32_t micro_batch_size, ty_workload **out,
                            ty_error *error) TY_MUST_CHECK;

/** Cuts a chain into stages by ty_partition: least time of the slowest stage or transfer.
 * @param replicas of each stage, or NULL: one each */
ty_status ty_chain_divide(const ty_workload *chain, const ty_cluster *cluster, uint32_t stage_count,
                          const uint32_t *replicas, bool recompute, ty_fixed_plan *plan,
                          ty_error *error) TY_MUST_CHECK;

#endif
