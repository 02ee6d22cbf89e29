/* Timed backends: instructions take the time that the plan predicts. Needs no lock. */
#ifndef TY_EXECUTE_INTERPRETER_REPLAY_H
#define TY_EXECUTE_INTERPRETER_REPLAY_H

#include "interpreter_state.h"

/* Sleeps by the clock of ty_now_s, and leaves the core to other ranks meanwhile. */
void interpreter_sleep_until(double end_s);
/* Makes this thread's sleeps end on time. */
void interpreter_sleep_finely(void);
/* Returns when an instruction of the compute or input stream has taken its time since `start_s`,
 * and the collectives inside it have ended. */
ty_status interpreter_play(ty_interpreter *interpreter, uint32_t instruction, double start_s,
                           ty_error *error) TY_MUST_CHECK;
/* Whether an instruction of the collective stream has taken its time since `start_s`. */
bool interpreter_is_over(const ty_interpreter *interpreter, uint32_t instruction, double start_s);
/* A collective or gather of the program's message size. */
ty_collective_options interpreter_replay_exchange(ty_interpreter *interpreter,
                                                  const ty_instruction *exchange, uint32_t tag);
/* Allocates the buffers of collectives. */
ty_status interpreter_replay_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_replay_close(ty_interpreter *interpreter);

#endif
