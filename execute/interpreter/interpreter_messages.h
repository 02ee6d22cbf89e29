/* Sends and receives between stages. Communication thread, except open and close. */
#ifndef TY_EXECUTE_INTERPRETER_MESSAGES_H
#define TY_EXECUTE_INTERPRETER_MESSAGES_H

#include "interpreter_state.h"

/* Open once the streams exist. */
ty_status interpreter_messages_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_messages_close(ty_interpreter *interpreter);
/* Open once there is a link: over a direct one nothing can be allocated later. */
ty_status interpreter_staging_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* Sets where a run begins. */
void interpreter_messages_start(ty_interpreter *interpreter, stream_cursor at);
/* Finishes and starts as many messages as possible without waiting. */
ty_status interpreter_messages_advance(ty_interpreter *interpreter, bool *is_moved,
                                       ty_error *error) TY_MUST_CHECK;
bool interpreter_messages_are_under_way(const ty_interpreter *interpreter);
/* Whether a partner waits for this rank to poll: long messages need a handshake. */
bool interpreter_messages_are_awaited(const ty_interpreter *interpreter);
/* Cancels all requests; then memory that they used may be freed. */
void interpreter_messages_cancel(ty_interpreter *interpreter);
void interpreter_staging_release(ty_interpreter *interpreter);

/* Index of the message among all between its pair of ranks since this process began, in the order
 * of rounds; see ty_transfer. Both ends agree about it. Needs no lock. */
uint64_t interpreter_order(const ty_interpreter *interpreter, uint32_t instruction, uint32_t step);
/* Equal for messages of the same direction between the same ranks; NO_INDEX if it is no message. */
uint32_t interpreter_pair(const ty_interpreter *interpreter, uint32_t instruction);

#endif
