/* Fibers: functions with a stack of their own, which run by turns on one thread. */
#ifndef TY_FIBER_H
#define TY_FIBER_H

#include "ty_base.h"

typedef struct ty_fiber ty_fiber;
typedef struct ty_fibers ty_fibers;

ty_status ty_fibers_new(ty_fibers **out, ty_error *error) TY_MUST_CHECK;
/** Also frees all its fibers, wherever they are. */
void ty_fibers_free(ty_fibers *fibers);
/** The fiber of the thread's own stack. */
ty_fiber *ty_fibers_main(ty_fibers *fibers);
/** A fiber that calls `code(context)` when first switched to. `code` never returns: it calls
 * ty_fiber_reuse, then switches away. NULL: out of memory. */
ty_fiber *ty_fiber_new(ty_fibers *fibers, void (*code)(void *), void *context);
/** Frees a fiber that will not be switched to again, once another runs. */
void ty_fiber_reuse(ty_fibers *fibers, ty_fiber *fiber);
/** Switches from the running fiber to another. Returns when that or another one switches back. */
void ty_fiber_switch(ty_fiber *from, ty_fiber *to);

#endif
