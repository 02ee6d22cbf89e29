/**
 * @file interpreter.h
 * Runs one rank's stage program with a compute thread and a communication thread, which is the
 * caller's own. Internal to execute/.
 *
 * The compute thread runs the compute and input streams; the communication thread advances the
 * send, receive and collective streams together, so that send/recv, all-reduces and compression
 * overlap with compute. Streams wait for each other through completion counts under one lock.
 */
#ifndef TY_EXECUTE_INTERPRETER_H
#define TY_EXECUTE_INTERPRETER_H

#include "device.h"
#include "transport.h"

#include <signal.h>

typedef struct ty_interpreter ty_interpreter;

/** Borrowed for the life of the interpreter. */
typedef struct ty_interpreter_options {
    const ty_plan *plan;
    const ty_program *program;
    const ty_device_backend *backend;
    const ty_dataset *dataset; /* of the first and last stage; else NULL */
    bool has_spare_core;       /* for an input thread */
    /* [pipeline rank][instruction], of a timed backend: times of instructions other than messages
     */
    double *const *instruction_s;
    ty_precision precision;
    const ty_weights *weights; /* initial weights; NULL: the seed's */
    ty_transport *transport;
    uint32_t steps;                          /* in all, and the length of `losses` */
    uint32_t first_recorded, recorded_steps; /* steps whose events are recorded */
    bool is_deterministic;                   /* see ty_stage_options */
    bool measure_distortion;                 /* of lossy compressors, on the host */
    const volatile sig_atomic_t *stop;       /* not 0: the user asked to stop; may be NULL */
    void (*on_step)(void *context, uint32_t steps_done, double loss); /* may be NULL */
    void *context;
} ty_interpreter_options;

/** Opens the rank's shard of the model and everything that communicates its data. */
ty_status ty_interpreter_open(const ty_interpreter_options *options, ty_interpreter **out,
                              ty_error *error) TY_MUST_CHECK;

/** Opens the link between devices with memory of their own; does nothing for others. All ranks call
 * it together, once all are open. */
ty_status ty_interpreter_connect(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;

/**
 * Runs until `until` steps are done on all ranks. All ranks call it with the same `until`.
 * @return TY_EINTERRUPTED on all ranks when any received a stop; TY_EBACKEND on all ranks when
 * the loss is no longer finite; any other failure is this rank's alone, and the transport is then
 * marked as broken.
 */
ty_status ty_interpreter_run(ty_interpreter *interpreter, uint32_t until,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Mean loss and accuracy over a data set with the current weights, through the pipeline: replica
 * b mod r of each stage computes batch b. Full micro-batches only. Between runs, on all ranks,
 * which all get the result.
 * @param dataset on ranks of the first and last stage
 * @param variant of the weights to test; the weights are restored afterwards. NULL: the weights
 *                themselves
 */
ty_status ty_interpreter_evaluate(ty_interpreter *interpreter, const ty_dataset *dataset,
                                  const ty_variant *variant, double *loss, double *accuracy,
                                  ty_error *error) TY_MUST_CHECK;

/**
 * The gradients of the last step, of all layers in workload order, into one file on rank 0:
 * [uint64 layer, uint64 count, float...] in the host's byte order. Between runs, on all ranks.
 */
ty_status ty_interpreter_save_gradients(ty_interpreter *interpreter, const char *path,
                                        ty_error *error) TY_MUST_CHECK;

void ty_interpreter_close(ty_interpreter *interpreter);

/* Results; valid between runs. */
uint32_t ty_interpreter_steps(const ty_interpreter *interpreter);
/** Means over the steps in which it was measured; `steps` 0 without data-parallel collectives. */
ty_gradient_noise ty_interpreter_noise(const ty_interpreter *interpreter);
/** Samples by step, including those of the run that this one resumes. */
const ty_noise_sample *ty_interpreter_noise_samples(const ty_interpreter *interpreter,
                                                    uint32_t *count);
/** |Cg - g|^2 / |g|^2 of lossy compressors, mean over the measured steps; 0 if there are none. */
double ty_interpreter_distortion(const ty_interpreter *interpreter, uint32_t *steps);
const double *ty_interpreter_losses(const ty_interpreter *interpreter); /* [steps], on all ranks */
/** Times are on the clock of ty_now_s. */
const ty_event *ty_interpreter_events(const ty_interpreter *interpreter, uint64_t *count);
/** Peak memory of this rank so far: of its device, or its resident set if that is the host's. */
uint64_t ty_interpreter_peak_memory_bytes(const ty_interpreter *interpreter);
/** Describes the device: "NVIDIA H100, CUDA 13.0, bf16, link nccl"; NULL if the host computes. */
ty_status ty_interpreter_describe(const ty_interpreter *interpreter, char **out,
                                  ty_error *error) TY_MUST_CHECK;

/** CPU time of other processes on the host; all 0 if unknown, and on ranks other than 0.
 *  @param first, count the steps of the timeline, from the first that is recorded on
 *  @param out [out] its list is freed with ty_free */
ty_status ty_interpreter_disturbance(ty_interpreter *interpreter, uint32_t first, uint32_t count,
                                     ty_disturbance *out, ty_error *error) TY_MUST_CHECK;

#endif
