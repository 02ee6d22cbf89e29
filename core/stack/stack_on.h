/* "on" of a stack: figures for some devices. Internal to core. */
#ifndef TY_STACK_ON_H
#define TY_STACK_ON_H

#include "ty_json.h"
#include "ty_stack.h"

void ty_stack_on_free(ty_stack *stack);
/** Copies into a stack without any. @return false without memory */
bool ty_stack_on_copy(const ty_stack *stack, ty_stack *copy);
/** Sets a constant, by its place in the table, to the stack's own figure on all devices. */
void ty_stack_everywhere(ty_stack *stack, uint32_t constant);
/** Lists of a stack: `fitted`, `judged` and `switches`. */
extern const json_record ty_stack_lists_record;
/** Replaces a string member. */
ty_status ty_stack_text_read(const ty_json *object, const char *key, char **text,
                             ty_error *error) TY_MUST_CHECK;
/** Whether figures of a name are of a device: "h20" of "h20-pcie", not of "h200-sxm". */
bool ty_stack_names_device(const char *name, const char *device);
/** Writes "on"; nothing if no device differs. */
void ty_stack_on_to_json(const ty_stack *stack, ty_json_writer *writer);
/** Reads "on" over existing figures. */
ty_status ty_stack_on_read(const ty_json *object, ty_stack *stack, ty_error *error) TY_MUST_CHECK;

/** Writes a constant's figure, or "device" for TY_OF_DEVICE, with its source if there is one. */
void ty_stack_figure_to_json(const ty_stack_constant *constant, double value, const char *source,
                             ty_json_writer *writer);
/** 0.5, "device", or either with its source: {"value": 0.5, "source": "..."}. @param source
 * replaced if there is one; else NULL */
ty_status ty_stack_figure_read(const ty_json *object, const ty_stack_constant *constant,
                               double *value, char **source, ty_error *error) TY_MUST_CHECK;

#endif
