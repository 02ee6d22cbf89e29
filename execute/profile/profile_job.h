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
    ty_precision precision;
    ty_transport *transport;
    uint32_t active;     /* ranks below it compute side by side: as many as there are cores. Sharing
                            of cores among more is the predictors' business */
    double haste;        /* what is spent on each figure is divided by it; 1 or more */
    ty_profile *profile; /* being filled, alike on all ranks but for what only rank 0 times */
} ty_profiler;

/** Of so many samples, that many in haste; 1 or more. */
uint32_t ty_profiler_least(const ty_profiler *profiler, uint32_t samples);
/** Whether this rank is one of those that compute. */
bool ty_profiler_is_active(const ty_profiler *profiler);

/** Sets of activations of the network that is measured: as in training, micro-batches lie in
 * different buffers. */
enum { PROFILE_SLOTS = 2 };

/** All of the network on one device, as the job computes it, with its clock started if it has one.
 * @param splits_backward as in ty_stage_options */
ty_status ty_profiler_open(const ty_profiler *profiler, uint32_t micro_batch, uint32_t slots,
                           bool splits_backward, ty_stage_device **out,
                           ty_error *error) TY_MUST_CHECK;
/** Numbers without meaning, but of ordinary size and never the same twice in a row, for a slot. */
void ty_profiler_batch_fill(const ty_profiler *profiler, ty_stage_device *device, uint32_t slot,
                            uint32_t micro_batch);
/** Whether devices of the backend tell the time themselves: then what the host does before and
 * behind a call is no part of what it takes. */
bool ty_profiler_has_clock(const ty_profiler *profiler);
/** What the device's last call took: by its own clock, or by the host's since *started_s, which
 * becomes now. */
ty_status ty_profiler_lap(const ty_profiler *profiler, ty_stage_device *device, double *started_s,
                          double *seconds, ty_error *error) TY_MUST_CHECK;

typedef ty_status ty_work(void *context, ty_error *error);
/**
 * Median seconds of one call of `work`, after a first one that does not count. Stops after
 * `budget_s`, or the haste's share of it, but not before five samples, or theirs. 0 at once on a
 * rank that is not active.
 * @param device whose own clock tells, call by call; NULL: the host's, and calls too short for it
 *               are timed in batches
 */
ty_status ty_measure(const ty_profiler *profiler, ty_stage_device *device, ty_work *work,
                     void *context, double budget_s, double *seconds,
                     ty_error *error) TY_MUST_CHECK;
/** Sorts `values`. */
double ty_median(double *values, uint32_t count);
/** The mean over the active ranks, on all ranks. */
ty_status ty_mean_over_ranks(const ty_profiler *profiler, double *values, uint64_t count,
                             ty_error *error) TY_MUST_CHECK;

/** Floats of both signs that compressors cannot guess. */
void ty_noise_fill(float *values, uint64_t count);

/* The parts, each on all active ranks at once, so that shared memory is as busy as it will be. */
ty_status ty_profile_layers(ty_profiler *profiler, uint32_t micro_batch,
                            ty_error *error) TY_MUST_CHECK; /* and optimizer steps */
/** Unless the profile has a row of this signature and micro-batch size. Takes the signature. */
ty_status ty_profile_row_add(ty_profile *profile, const ty_layer_time *row,
                             ty_error *error) TY_MUST_CHECK;
/** Episodes: of a population instead of the layers, of reinforcement learning in addition to them
 * (profile_episodes.c). TY_EUNSUPPORTED: the worker cannot play them. */
ty_status ty_profile_episodes(ty_profiler *profiler, uint32_t micro_batch,
                              ty_error *error) TY_MUST_CHECK;
/** Optimizer, matrix product, copy, batch assembly. */
ty_status ty_profile_parts(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_overhead(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_codecs(ty_profiler *profiler,
                            ty_error *error) TY_MUST_CHECK; /* profile_codecs.c */
ty_status ty_profile_transfers(ty_profiler *profiler, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_collectives(ty_profiler *profiler, uint32_t ranks,
                                 ty_error *error) TY_MUST_CHECK; /* profile_network.c */

#endif
