/* Fibers for a block's threads. */
#include "emulator.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <ucontext.h>
#include <vector>

__thread emulated_index threadIdx, blockIdx, gridDim, blockDim;

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace
{
enum { LANES = 32, STACK_BYTES = 64 * 1024 };

struct barrier {
    unsigned alive = 0, arrived = 0;
    unsigned long generation = 0;
};

struct warp {
    barrier gate;
    uint32_t lanes[LANES] = {};
};

/* Switching by setjmp and longjmp: swapcontext would ask the kernel for the signal mask each time.
 * A fiber is made once and plays a thread of one block after the other. */
struct fiber {
    ucontext_t context;
    jmp_buf place;
    bool is_started, is_done;
};

struct machine {
    std::deque<fiber> fibers; /* whose contexts are never moved */
    std::vector<std::vector<char>> stacks;
    std::vector<warp> warps;
    std::vector<unsigned char> shared;
    barrier block;
    jmp_buf main;
    const void *own_stack = nullptr; /* of the thread, as the address sanitizer has it */
    size_t own_size = 0;
    ucontext_t unused;
    unsigned current = 0;
    bool is_meeting = false; /* a thread of this launch came to a barrier */
    bool is_direct = false;  /* none did in the first block: threads run without fibers */
    const std::function<void()> *body = nullptr;
};

thread_local std::unique_ptr<machine> owned; /* until the thread ends */
__thread machine *here; /* the same, without a look at whether it is there yet */

/* Which stack comes next, for the address sanitizer: a fiber's, or the thread's own. */
void switch_begin([[maybe_unused]] void **kept, [[maybe_unused]] const void *bottom,
                  [[maybe_unused]] size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(kept, bottom, size);
#endif
}

void switch_end([[maybe_unused]] void *kept, [[maybe_unused]] const void **bottom,
                [[maybe_unused]] size_t *size)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(kept, bottom, size);
#endif
}

void turn_over()
{
    void *kept = nullptr;

    switch_begin(&kept, here->own_stack, here->own_size);
    if (_setjmp(here->fibers[here->current].place) == 0)
        _longjmp(here->main, 1);
    switch_end(kept, nullptr, nullptr);
}

void pass(barrier &gate)
{
    unsigned long generation = gate.generation;

    here->is_meeting = true;
    if (here->is_direct) {
        fprintf(stderr, "emulator: only some blocks of a kernel come to a barrier\n");
        abort();
    }
    if (++gate.arrived == gate.alive) {
        gate.arrived = 0;
        gate.generation++;
        return;
    }
    while (gate.generation == generation)
        turn_over();
}

void leave(barrier &gate)
{
    gate.alive--;
    if (gate.alive > 0 && gate.arrived == gate.alive) {
        gate.arrived = 0;
        gate.generation++;
    }
}

void fiber_main()
{
    switch_end(nullptr, &here->own_stack, &here->own_size);
    for (;;) {
        (*here->body)();
        leave(here->warps[here->current / LANES].gate);
        leave(here->block);
        here->fibers[here->current].is_done = true;
        turn_over();
    }
}

void fiber_make(unsigned t)
{
    fiber &own = here->fibers[t];

    here->stacks.emplace_back(STACK_BYTES);
    own.is_started = false;
    getcontext(&own.context);
    own.context.uc_stack.ss_sp = here->stacks[t].data();
    own.context.uc_stack.ss_size = STACK_BYTES;
    own.context.uc_link = nullptr;
    makecontext(&own.context, fiber_main, 0);
}

void block_prepare(unsigned threads)
{
    while (here->fibers.size() < threads) {
        here->fibers.emplace_back();
        fiber_make((unsigned)here->fibers.size() - 1);
    }
    here->warps.assign((threads + LANES - 1) / LANES, warp());
    here->block = barrier();
    here->block.alive = threads;
    for (unsigned t = 0; t < threads; t++) {
        here->fibers[t].is_done = false;
        here->warps[t / LANES].gate.alive++;
    }
}

void fiber_resume(fiber &own)
{
    void *volatile kept = nullptr;

    if (_setjmp(here->main) != 0) {
        switch_end(kept, nullptr, nullptr);
        return;
    }
    switch_begin((void **)&kept, here->stacks[here->current].data(), STACK_BYTES);
    if (own.is_started)
        _longjmp(own.place, 1);
    own.is_started = true;
    swapcontext(&here->unused, &own.context);
}

void block_run(unsigned threads)
{
    unsigned left = threads;

    block_prepare(threads);
    while (left > 0) {
        left = 0;
        for (unsigned t = 0; t < threads; t++) {
            if (here->fibers[t].is_done)
                continue;
            here->current = t;
            threadIdx = {t, 0, 0};
            fiber_resume(here->fibers[t]);
            left += !here->fibers[t].is_done;
        }
    }
}

void block_run_direct(unsigned threads)
{
    for (unsigned t = 0; t < threads; t++) {
        threadIdx = {t, 0, 0};
        (*here->body)();
    }
}
} // namespace

void emulate(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body)
{
    if (here == nullptr) {
        owned = std::make_unique<machine>();
        here = owned.get();
    }
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {threads, 1, 1};
    here->body = &body;
    here->is_meeting = here->is_direct = false;
    here->shared.assign(shared_bytes + 128, 0xff); /* NaN: shared memory starts with anything */
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                here->is_direct = (x > 0 || y > 0 || z > 0) && !here->is_meeting;
                if (here->is_direct)
                    block_run_direct(threads);
                else
                    block_run(threads);
            }
}

unsigned char *emulated_shared(void)
{
    uintptr_t at = (uintptr_t)here->shared.data();

    return (unsigned char *)((at + 127) / 128 * 128);
}

void __syncthreads(void)
{
    emulated_index own = threadIdx;
    pass(here->block);
    threadIdx = own;
}

void __syncwarp(void)
{
    emulated_index own = threadIdx;
    pass(here->warps[here->current / LANES].gate);
    threadIdx = own;
}

const uint32_t *emulated_lanes(uint32_t own)
{
    warp &mine = here->warps[here->current / LANES];

    mine.lanes[here->current % LANES] = own;
    __syncwarp();
    return mine.lanes;
}
