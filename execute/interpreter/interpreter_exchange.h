/* The collective stream. Communication thread, except open and close. */
#ifndef TY_EXECUTE_INTERPRETER_EXCHANGE_H
#define TY_EXECUTE_INTERPRETER_EXCHANGE_H

#include "interpreter_state.h"

ty_status interpreter_exchange_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_exchange_close(ty_interpreter *interpreter);
/* Sets where a run begins. */
void interpreter_exchange_start(ty_interpreter *interpreter, stream_cursor at);
/* Advances as far as possible without waiting. */
ty_status interpreter_exchange_advance(ty_interpreter *interpreter, bool *is_moved,
                                       ty_error *error) TY_MUST_CHECK;
bool interpreter_exchange_is_under_way(const ty_interpreter *interpreter);
/* Of a timed backend: whether an encode or decode takes its time; nothing rings at its end. */
bool interpreter_exchange_is_passing(const ty_interpreter *interpreter);
void interpreter_exchange_cancel(ty_interpreter *interpreter);

#endif
