/* Measured during training: gradient noise, distortion by compression, other load. */
#ifndef TY_EXECUTE_INTERPRETER_WATCHES_H
#define TY_EXECUTE_INTERPRETER_WATCHES_H

#include "codec.h"
#include "interpreter_state.h"

/* ---- Gradient noise (noise.c) ------------------------------------------------------------ */

/* The most of the first `steps` steps in which it may be measured. */
uint32_t interpreter_noise_most(uint32_t steps);
ty_status interpreter_noise_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_noise_close(ty_interpreter *interpreter);
/* For checkpoints: the sums so far, and their samples. */
ty_gradient_noise *interpreter_noise_sums(ty_interpreter *interpreter, ty_noise_sample **samples);
/* Before and after the collective of a bucket, in the steps in which it is measured. */
void interpreter_noise_before(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
void interpreter_noise_after(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
/* Adds the sums of a step over all ranks. */
void interpreter_noise_add(ty_interpreter *interpreter, const step_control *control);

/* ---- Compression distortion (distortion.c) ------------------------------------------------ */

/* With the options of the bucket's own compressor. */
ty_status interpreter_distortion_open(ty_interpreter *interpreter, const ty_codec_options *options,
                                      uint32_t bucket, ty_error *error) TY_MUST_CHECK;
void interpreter_distortion_close(ty_interpreter *interpreter);
/* Before the collective of a bucket, in the steps in which it is measured. */
void interpreter_distortion_measure(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
/* Adds the sums of a step over all ranks. */
void interpreter_distortion_add(ty_interpreter *interpreter, const step_control *control);

/* ---- Other processes on this host (busy_steps.c) --------------------------------------------- */

ty_status interpreter_busy_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_busy_close(ty_interpreter *interpreter);
void interpreter_busy_count(ty_interpreter *interpreter, step_control *control);
void interpreter_busy_add(ty_interpreter *interpreter, const step_control *control);

#endif
