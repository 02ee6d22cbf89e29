/* Fibers by makecontext, for their start, and by _setjmp and _longjmp, which do not enter the
 * kernel. See fiber.h. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* its longjmp only leaves functions of the same stack */
#include "fiber.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature) /* clang's form; gcc defines macros */
#if __has_feature(address_sanitizer)
#define IS_ADDRESS_SANITIZED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define IS_ADDRESS_SANITIZED
#endif

#ifdef IS_ADDRESS_SANITIZED /* frames are larger, and switches are announced */
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES ((size_t)256 << 10)
#else
#define STACK_BYTES ((size_t)64 << 10)
#endif
#define SLAB_BYTES (64 * STACK_BYTES)

struct ty_fiber {
    ty_fiber *next; /* in the list of unused ones */
    jmp_buf at;
    ucontext_t start; /* for the first switch to it */
    bool has_started;
    void (*code)(void *);
    void *context;
    char *stack;
    void *sanitizer; /* the address sanitizer's record of the fiber */
};

typedef struct slab {
    struct slab *next;
    char *stacks;
    size_t used;
} slab;

struct ty_fibers {
    ty_fiber main;
    ty_fiber *unused;
    slab *slabs;
    ty_arena *blocks;
};

ty_status ty_fibers_new(ty_fibers **out, ty_error *error)
{
    ty_fibers *fibers = ty_alloc(1, sizeof *fibers);

    if (fibers == NULL || (fibers->blocks = ty_arena_new()) == NULL) {
        ty_free(fibers);
        return ty_check_memory(false, error);
    }
    fibers->main.has_started = true;
    *out = fibers;
    return TY_OK;
}

void ty_fibers_free(ty_fibers *fibers)
{
    if (fibers == NULL)
        return;
    for (slab *s = fibers->slabs; s != NULL; s = s->next)
        (void)munmap(s->stacks, SLAB_BYTES);
    ty_arena_free(fibers->blocks);
    ty_free(fibers);
}

ty_fiber *ty_fibers_main(ty_fibers *fibers)
{
    return &fibers->main;
}

/* Stacks are taken from slabs, because a process may have only so many mappings; without large
 * pages, because most use a page or two. */
static char *take_stack(ty_fibers *fibers)
{
    slab *s = fibers->slabs;

    if (s == NULL || s->used == SLAB_BYTES) {
        if ((s = ty_arena_alloc(fibers->blocks, 1, sizeof *s)) == NULL)
            return NULL;
        s->stacks = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s->stacks == MAP_FAILED)
            return NULL;
        (void)madvise(s->stacks, SLAB_BYTES, MADV_NOHUGEPAGE);
        s->next = fibers->slabs;
        fibers->slabs = s;
    }
    s->used += STACK_BYTES;
    return s->stacks + s->used - STACK_BYTES;
}

/* makecontext passes only int: a pointer in two halves. */
static void enter(unsigned high, unsigned low)
{
    const uintptr_t address = (uintptr_t)((uint64_t)high << 32 | low);
    const ty_fiber *self = (const ty_fiber *)address;

#ifdef IS_ADDRESS_SANITIZED
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    self->code(self->context);
}

static bool prepare(ty_fiber *fiber)
{
    const uint64_t address = (uintptr_t)fiber;

    if (getcontext(&fiber->start) != 0)
        return false;
    fiber->start.uc_stack.ss_sp = fiber->stack;
    fiber->start.uc_stack.ss_size = STACK_BYTES;
    fiber->start.uc_link = NULL;
    makecontext(&fiber->start, (void (*)(void))enter, 2, (unsigned)(address >> 32),
                (unsigned)address);
    return true;
}

ty_fiber *ty_fiber_new(ty_fibers *fibers, void (*code)(void *), void *context)
{
    ty_fiber *fiber = fibers->unused;

    if (fiber != NULL) {
        fibers->unused = fiber->next;
    } else {
        if ((fiber = ty_arena_alloc(fibers->blocks, 1, sizeof *fiber)) == NULL ||
            (fiber->stack = take_stack(fibers)) == NULL)
            return NULL;
    }
    fiber->code = code;
    fiber->context = context;
    fiber->has_started = false;
    return prepare(fiber) ? fiber : NULL;
}

void ty_fiber_reuse(ty_fibers *fibers, ty_fiber *fiber)
{
    fiber->next = fibers->unused;
    fibers->unused = fiber;
}

void ty_fiber_switch(ty_fiber *from, ty_fiber *to)
{
#ifdef IS_ADDRESS_SANITIZED
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack,
                                   to->stack != NULL ? STACK_BYTES : 0);
#endif
    if (_setjmp(from->at) == 0) {
        if (to->has_started)
            _longjmp(to->at, 1);
        to->has_started = true;
        (void)setcontext(&to->start);
    }
#ifdef IS_ADDRESS_SANITIZED
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}
