/* "on" of a stack: what holds on some devices. Internal to core. */
#ifndef TY_STACK_ON_H
#define TY_STACK_ON_H

#include "ty_json.h"
#include "ty_stack.h"

void ty_stack_on_free(ty_stack *stack);
/** Into a copy that has none yet. @return whether memory was enough */
bool ty_stack_on_copy(const ty_stack *stack, ty_stack *copy);
/** A constant, by its place in the table, is on all devices what the stack itself says. */
void ty_stack_everywhere(ty_stack *stack, uint32_t constant);
/** Lists of a stack: `fitted`, `judged` and `switches`. */
extern const json_record ty_stack_lists_record;
/** A string member in place of the one that there is. */
ty_status ty_stack_text_read(const ty_json *object, const char *key, char **text,
                             ty_error *error) TY_MUST_CHECK;
/** Writes "on"; nothing, where no device differs. */
void ty_stack_on_to_json(const ty_stack *stack, ty_json_writer *writer);
/** Reads "on" over what there is already. */
ty_status ty_stack_on_read(const ty_json *object, ty_stack *stack, ty_error *error) TY_MUST_CHECK;

/** A constant's figure, "device" where it is the device's, with its source if there is one. */
void ty_stack_figure_to_json(const ty_stack_constant *constant, double value, const char *source,
                             ty_json_writer *writer);
/** 0.5, "device", or either with its source: {"value": 0.5, "source": "..."}. @param source
 * replaced where there is one, NULL where there is none */
ty_status ty_stack_figure_read(const ty_json *object, const ty_stack_constant *constant,
                               double *value, char **source, ty_error *error) TY_MUST_CHECK;

#endif
