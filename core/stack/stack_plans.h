/* "plans" of a stack, in JSON. Internal to core. */
#ifndef TY_STACK_PLANS_H
#define TY_STACK_PLANS_H

#include "ty_stack.h"

/** Writes "plans"; nothing if the stack can run every plan. */
void ty_stack_plans_to_json(const ty_stack_plans *plans, ty_json_writer *writer);
/** Reads "plans" of a stack; missing members keep their value in `plans`. */
ty_status ty_stack_plans_read(const ty_json *stack, ty_stack_plans *plans,
                              ty_error *error) TY_MUST_CHECK;

#endif
