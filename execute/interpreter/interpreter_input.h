/* Batches of the input stream. */
#ifndef TY_EXECUTE_INTERPRETER_INPUT_H
#define TY_EXECUTE_INTERPRETER_INPUT_H

#include "interpreter_state.h"

/* Open once devices are open; close before they are closed. */
ty_status interpreter_input_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_input_close(ty_interpreter *interpreter);
/* Before and after the instructions of a run, by the compute thread. */
ty_status interpreter_input_start(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_input_stop(ty_interpreter *interpreter);
/* Whether a load need not wait. With the lock. */
bool interpreter_batch_is_ready(const ty_interpreter *interpreter);
/* Runs the instruction on the compute thread. */
ty_status interpreter_load(ty_interpreter *interpreter, const ty_instruction *load, uint32_t step,
                           uint32_t slot, ty_error *error);

#endif
