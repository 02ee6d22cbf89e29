/* Timed backends: instructions take the time that the plan predicts. Needs no lock. */
#ifndef TY_EXECUTE_INTERPRETER_REPLAY_H
#define TY_EXECUTE_INTERPRETER_REPLAY_H

#include "interpreter_state.h"

/* By the clock of ty_now_s, so that ranks on the same core are not kept from it. */
void interpreter_sleep_until(double end_s);
/* Lets this thread's sleeps end when they should. */
void interpreter_sleep_finely(void);
/* Returns when an instruction of the compute or input stream has taken its time since `start_s`,
 * and the collectives inside it are over. */
ty_status interpreter_play(ty_interpreter *interpreter, uint32_t instruction, double start_s,
                           ty_error *error) TY_MUST_CHECK;
/* Whether an instruction of the collective stream has, since `start_s`. */
bool interpreter_is_over(const ty_interpreter *interpreter, uint32_t instruction, double start_s);
/* A collective or gather of as many bytes as the program says. */
ty_collective_options interpreter_replay_exchange(ty_interpreter *interpreter,
                                                  const ty_instruction *exchange, uint32_t tag);
/* Room for what is exchanged. */
ty_status interpreter_replay_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_replay_close(ty_interpreter *interpreter);

#endif
