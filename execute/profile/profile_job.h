/* A profile job: measures instead of training. Internal to execute/. */
#ifndef TY_EXECUTE_PROFILE_JOB_H
#define TY_EXECUTE_PROFILE_JOB_H

#include "device.h"
#include "transport.h"
#include "ty_execute.h"

/** On all ranks; rank 0 writes `job->output`. */
ty_status ty_profile_job(const ty_job *job, ty_transport *transport,
                         const ty_execute_options *options, ty_error *error) TY_MUST_CHECK;

/** State shared by the parts of a profile. */
typedef struct ty_profiler {
    const ty_job *job;
    const ty_workload *workload;
    const ty_device_backend *backend;
    ty_precision precision;
    ty_transport *transport;
    uint32_t active;     /* ranks below it compute concurrently: as many as there are cores. The
                            predictors handle sharing of cores among more */
    double haste;        /* divides the time spent on each figure; 1 or more */
    ty_profile *profile; /* being filled; the same on all ranks except for rank 0's own times */
} ty_profiler;

/** `samples` divided by the haste; 1 or more. */
uint32_t ty_profiler_least(const ty_profiler *profiler, uint32_t samples);
/** Whether this rank is one of those that compute. */
bool ty_profiler_is_active(const ty_profiler *profiler);

/** Sets of activations of the measured model: as in training, micro-batches are in different
 * buffers. */
enum { PROFILE_SLOTS = 2 };

/** Opens the entire model on one device, as the job computes it, and starts its clock, if any.
 * @param splits_backward as in ty_stage_options */
ty_status ty_profiler_open(const ty_profiler *profiler, uint32_t micro_batch, uint32_t slots,
                           bool splits_backward, ty_stage_device **out,
                           ty_error *error) TY_MUST_CHECK;
/** Fills a slot with random numbers of ordinary size, never the same twice in a row. */
void ty_profiler_batch_fill(const ty_profiler *profiler, ty_stage_device *device, uint32_t slot,
                            uint32_t micro_batch);
/** Whether devices of the backend have their own clock: then a call's time excludes the host's work
 * before and after it. */
bool ty_profiler_has_clock(const ty_profiler *profiler);
/** Time of the device's last call: by its own clock, or by the host's since *started_s, which
 * becomes the current time. */
ty_status ty_profiler_lap(const ty_profiler *profiler, ty_stage_device *device, double *started_s,
                          double *seconds, ty_error *error) TY_MUST_CHECK;

typedef ty_status ty_work(void *context, ty_error *error);
/**
 * Median seconds of one call of `work`, after a first one that does not count. Stops after
 * `budget_s`, but not before five samples; both are divided by the haste. Returns 0 at once on a
 * rank that is not active.
 * @param device whose own clock times each call; NULL: the host's clock, which times calls too
 *               short for it in batches
 */
ty_status ty_measure(const ty_profiler *profiler, ty_stage_device *device, ty_work *work,
                     void *context, double budget_s, double *seconds,
                     ty_error *error) TY_MUST_CHECK;
/** Sorts `values`. */
double ty_median(double *values, uint32_t count);
/** The mean over the active ranks, on all ranks. */
ty_status ty_mean_over_ranks(const ty_profiler *profiler, double *values, uint64_t count,
                             ty_error *error) TY_MUST_CHECK;

/** Random floats of both signs, which do not compress. */
void ty_noise_fill(float *values, uint64_t count);

/* The parts, each on all active ranks at once, so that shared memory is as busy as in training. */
ty_status ty_profile_layers(ty_profiler *profiler, uint32_t micro_batch,
                            ty_error *error) TY_MUST_CHECK; /* and optimizer steps */
/** Adds a row unless the profile has one of this signature and micro-batch size. Takes ownership of
 * the signature. */
ty_status ty_profile_row_add(ty_profile *profile, const ty_layer_time *row,
                             ty_error *error) TY_MUST_CHECK;
/** Episodes: of a population instead of the layers, of reinforcement learning in addition to them
 * (profile_episodes.c). TY_EUNSUPPORTED: the worker cannot run them. */
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
