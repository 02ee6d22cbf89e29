/* A profile job: measures instead of training. Internal to execute/. */
#ifndef TY_EXECUTE_PROFILE_JOB_H
#define TY_EXECUTE_PROFILE_JOB_H

#include "device.h"
#include "transport.h"
#include "ty_execute.h"

/** On all ranks; rank 0 writes `job->output`. */
ty_status ty_profile_job(const ty_job *job, ty_transport *transport,
                         const ty_execute_options *options, ty_error *error) TY_MUST_CHECK;

/** What the parts of it share. */
typedef struct ty_profiler {
    const ty_job *job;
    const ty_workload *workload;
    const ty_device_backend *backend;
    ty_transport *transport;
    ty_profile *profile; /* being filled, alike on all ranks but for what only rank 0 times */
} ty_profiler;

/**
 * Median seconds of one call of `work`, after a first one that does not count. Calls too short for
 * the clock are timed in batches. Stops after `budget_s`, but not before five samples.
 */
double ty_measure(void (*work)(void *context), void *context, double budget_s);
/** Sorts `values`. */
double ty_median(double *values, uint32_t count);
/** The mean over all ranks, on all ranks. */
ty_status ty_mean_over_ranks(ty_transport *transport, double *values, uint64_t count,
                             ty_error *error) TY_MUST_CHECK;

/* The parts, each on all ranks at once, so that shared cores and memory are as busy as they will
 * be. */
ty_status ty_profile_layers(ty_profiler *profiler, uint32_t micro_batch,
                            ty_error *error) TY_MUST_CHECK; /* profile_layers.c */
/** Optimizer, codecs, matrix product, copy, batch assembly, instruction overhead. */
ty_status ty_profile_parts(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_codecs(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_transfers(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_collectives(ty_profiler *profiler, uint32_t ranks,
                                 ty_error *error) TY_MUST_CHECK; /* profile_network.c */

#endif
