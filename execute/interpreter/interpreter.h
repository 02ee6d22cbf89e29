/**
 * @file interpreter.h
 * Walks one rank's stage program: a compute thread and a communication thread, which is the
 * caller's own. Internal to execute/.
 *
 * The compute thread runs the compute and input streams; the communication thread advances the
 * send, receive and collective streams together, so that transfers, all-reduces and compression
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
    bool has_spare_core;       /* that an input thread may use */
    /* [position][instruction], of a timed backend: what each takes that is no message */
    double *const *instruction_s;
    ty_precision precision;
    const ty_weights *weights; /* that it starts from; NULL: the seed's */
    ty_transport *transport;
    uint32_t steps;                          /* in all: what `losses` has room for */
    uint32_t first_recorded, recorded_steps; /* steps whose events are kept */
    bool is_deterministic;                   /* see ty_stage_options */
    bool measure_distortion;                 /* of lossy compressors, on the host */
    const volatile sig_atomic_t *stop;       /* not 0: the user asked to stop; may be NULL */
    void (*on_step)(void *context, uint32_t steps_done, double loss); /* may be NULL */
    void *context;
} ty_interpreter_options;

/** The rank's part of the network and everything that moves its data. */
ty_status ty_interpreter_open(const ty_interpreter_options *options, ty_interpreter **out,
                              ty_error *error) TY_MUST_CHECK;

/** Opens the way between devices whose memory is their own; nothing to do for the others. All ranks
 * call it together, once all are open. */
ty_status ty_interpreter_connect(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;

/**
 * Runs on until `until` steps are done on all ranks. All ranks call it with the same `until`.
 * @return TY_EINTERRUPTED on all ranks when any was asked to stop; TY_EBACKEND on all ranks when
 * the loss is no longer finite; any other failure is this rank's alone, and the transport is then
 * marked as broken.
 */
ty_status ty_interpreter_run(ty_interpreter *interpreter, uint32_t until,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Loss (mean) and accuracy over a data set with the present weights, through the pipeline: batch b
 * is done by replica b mod r of each stage. Whole micro-batches only. Between runs, on all ranks,
 * which all get the result.
 * @param dataset on ranks of the first and last stage
 * @param variant as which the weights are tested, and afterwards are what they were; NULL: as they
 *                are
 */
ty_status ty_interpreter_evaluate(ty_interpreter *interpreter, const ty_dataset *dataset,
                                  const ty_variant *variant, double *loss, double *accuracy,
                                  ty_error *error) TY_MUST_CHECK;

/**
 * The gradients of the last step, of all layers in workload order, into one file on rank 0:
 * [uint64 layer, uint64 count, float...] in the machine's byte order. Between runs, on all ranks.
 */
ty_status ty_interpreter_save_gradients(ty_interpreter *interpreter, const char *path,
                                        ty_error *error) TY_MUST_CHECK;

void ty_interpreter_close(ty_interpreter *interpreter);

/* What came of it; valid between runs. */
uint32_t ty_interpreter_steps(const ty_interpreter *interpreter);
/** Means over the steps it was measured in; `steps` 0 where nothing is exchanged. */
ty_gradient_noise ty_interpreter_noise(const ty_interpreter *interpreter);
/** Step by step, with those of the run that it goes on from. */
const ty_noise_sample *ty_interpreter_noise_samples(const ty_interpreter *interpreter,
                                                    uint32_t *count);
/** |Cg - g|^2 / |g|^2 of lossy compressors, mean over the steps it was measured in; 0 in none. */
double ty_interpreter_distortion(const ty_interpreter *interpreter, uint32_t *steps);
const double *ty_interpreter_losses(const ty_interpreter *interpreter); /* [steps], on all ranks */
/** Times are on the clock of ty_now_s. */
const ty_event *ty_interpreter_events(const ty_interpreter *interpreter, uint64_t *count);
/** Of this rank, so far, at its highest: what it took of its device's memory, or, where that is the
 * host's, its resident set. */
uint64_t ty_interpreter_peak_memory_bytes(const ty_interpreter *interpreter);
/** What computes, in words: "NVIDIA H100, CUDA 13.0, bf16, link nccl"; NULL where it is the
 * machine. */
ty_status ty_interpreter_describe(const ty_interpreter *interpreter, char **out,
                                  ty_error *error) TY_MUST_CHECK;

/** What others took of the host meanwhile; all 0 where nothing is known, and on other ranks than 0.
 *  @param first, count the steps of the timeline, from the first that is recorded on
 *  @param out [out] its list is freed with ty_free */
ty_status ty_interpreter_disturbance(ty_interpreter *interpreter, uint32_t first, uint32_t count,
                                     ty_disturbance *out, ty_error *error) TY_MUST_CHECK;

#endif
