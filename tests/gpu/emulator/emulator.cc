/*
 * Fibers for a block's threads.
 *
 * With TY_EMULATED_RACES each is a fiber of the thread sanitizer, too: what a thread of the GPU
 * does happens before what another does only by barriers, by shuffles and by the ends of launches,
 * not by the order in which they take turns here. Every other block is played by a second thread,
 * so that blocks have shared memory and an order of their own. This file itself is not
 * instrumented.
 */
#include "emulator.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

__thread emulated_index threadIdx, blockIdx, gridDim, blockDim;

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TY_EMULATED_RACES
#include <condition_variable>
#include <mutex>
#include <sanitizer/tsan_interface.h>
#include <thread>
#endif

namespace
{
enum { LANES = 32, STACK_BYTES = 64 * 1024 };

struct barrier {
    unsigned alive = 0, arrived = 0;
    unsigned long generation = 0;
    char places[2]; /* of this and the next generation, for the thread sanitizer */
};

struct warp {
    barrier gate;
    uint32_t lanes[2][LANES] = {}; /* in turns: who is a shuffle ahead does not write what is read */
};

/* Where to go on: a frame, a stack and an address, as the compiler's own setjmp has it. swapcontext
 * would ask the kernel for the signal mask each time, and longjmp look for clean-ups. */
typedef void *place[5];

/* A fiber is made once and plays a thread of one block after the other. */
struct fiber {
    ucontext_t context;
    place at;
    bool is_started, is_done, is_begun; /* the last in this block */
    void *race_fiber = nullptr;         /* as the thread sanitizer has it */
};

struct machine {
    std::vector<std::unique_ptr<fiber>> fibers; /* whose contexts are never moved */
    std::vector<std::vector<char>> stacks;
    std::vector<warp> warps;
    std::vector<unsigned char> shared;
    barrier block;
    place main;
    const void *own_stack = nullptr; /* of the thread, as the address sanitizer has it */
    size_t own_size = 0;
    ucontext_t unused;
    void *race_main = nullptr; /* the thread itself, for the thread sanitizer */
    char begin, end;           /* of a block: before and behind what its threads do */
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

/* Which of the sanitizer's fibers is next; that orders nothing. */
void race_switch([[maybe_unused]] void *to)
{
#ifdef TY_EMULATED_RACES
    __tsan_switch_to_fiber(to, __tsan_switch_to_fiber_no_sync);
#endif
}

void race_release([[maybe_unused]] void *at)
{
#ifdef TY_EMULATED_RACES
    __tsan_release(at);
#endif
}

void race_acquire([[maybe_unused]] void *at)
{
#ifdef TY_EMULATED_RACES
    __tsan_acquire(at);
#endif
}

/* Apart, since a function may not go to a place of its own. */
[[noreturn, gnu::noipa]] void go(place &to)
{
    __builtin_longjmp(to, 1);
}

/* The compiler keeps nothing in registers across a switch, nor may it know that fewer are changed
 * here; inlined, a place would be its caller's. */
[[gnu::noipa]] void turn_over()
{
    machine &own = *here;
    void *kept = nullptr;

    switch_begin(&kept, own.own_stack, own.own_size);
    if (__builtin_setjmp(own.fibers[own.current]->at) == 0) {
        race_switch(own.race_main);
        go(own.main);
    }
    switch_end(kept, nullptr, nullptr);
}

void pass(barrier &gate)
{
    machine &own = *here;
    unsigned long generation = gate.generation;

    race_release(&gate.places[generation % 2]);
    own.is_meeting = true;
    if (own.is_direct) {
        fprintf(stderr, "emulator: only some blocks of a kernel come to a barrier\n");
        abort();
    }
    if (++gate.arrived == gate.alive) {
        gate.arrived = 0;
        gate.generation++;
    }
    while (gate.generation == generation)
        turn_over();
    race_acquire(&gate.places[generation % 2]);
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
        race_release(&here->end);
        here->fibers[here->current]->is_done = true;
        turn_over();
    }
}

void fiber_make(unsigned t)
{
    fiber &own = *here->fibers[t];

    here->stacks.emplace_back(STACK_BYTES);
    own.is_started = false;
#ifdef TY_EMULATED_RACES
    own.race_fiber = __tsan_create_fiber(0);
#endif
    getcontext(&own.context);
    own.context.uc_stack.ss_sp = here->stacks[t].data();
    own.context.uc_stack.ss_size = STACK_BYTES;
    own.context.uc_link = nullptr;
    makecontext(&own.context, fiber_main, 0);
}

void block_prepare(unsigned threads)
{
    while (here->fibers.size() < threads) {
        here->fibers.push_back(std::make_unique<fiber>());
        fiber_make((unsigned)here->fibers.size() - 1);
    }
    here->warps.assign((threads + LANES - 1) / LANES, warp());
    here->block = barrier();
    here->block.alive = threads;
    for (unsigned t = 0; t < threads; t++) {
        here->fibers[t]->is_done = here->fibers[t]->is_begun = false;
        here->warps[t / LANES].gate.alive++;
    }
}

[[gnu::noipa]] void fiber_resume(fiber &own)
{
    void *volatile kept = nullptr;

    if (__builtin_setjmp(here->main) != 0) {
        switch_end(kept, nullptr, nullptr);
        return;
    }
    switch_begin((void **)&kept, here->stacks[here->current].data(), STACK_BYTES);
    race_switch(own.race_fiber);
    if (!own.is_begun)
        race_acquire(&here->begin);
    own.is_begun = true;
    if (own.is_started)
        go(own.at);
    own.is_started = true;
    swapcontext(&here->unused, &own.context);
}

void block_run(unsigned threads)
{
    machine &own = *here;
    emulated_index &index = threadIdx;
    unsigned left = threads;

    block_prepare(threads);
    race_release(&own.begin);
    while (left > 0) {
        left = 0;
        for (unsigned t = 0; t < threads; t++) {
            fiber &next = *own.fibers[t];
            if (next.is_done)
                continue;
            own.current = t;
            index = {t, 0, 0};
            fiber_resume(next);
            left += !next.is_done;
        }
    }
    race_acquire(&own.end);
}

void block_run_direct(unsigned threads)
{
    for (unsigned t = 0; t < threads; t++) {
        threadIdx = {t, 0, 0};
        (*here->body)();
    }
}
} // namespace

namespace
{
/* Every `step`-th block from `first` on, by the calling thread. */
void blocks_run(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body,
                uint64_t first, uint64_t step)
{
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;

    if (here == nullptr) {
        owned = std::make_unique<machine>();
        here = owned.get();
    }
#ifdef TY_EMULATED_RACES
    here->race_main = __tsan_get_current_fiber();
#endif
    gridDim = {grid.x, grid.y, grid.z};
    blockDim = {threads, 1, 1};
    here->body = &body;
    here->is_meeting = here->is_direct = false;
    for (uint64_t b = first; b < blocks; b += step) {
        blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                    (unsigned)(b / grid.x / grid.y)};
        here->shared.assign(shared_bytes + 128, 0xff); /* NaN: it starts with anything */
        here->is_direct = here->race_main == nullptr && b > first && !here->is_meeting;
        if (here->is_direct)
            block_run_direct(threads);
        else
            block_run(threads);
    }
}

#ifdef TY_EMULATED_RACES
/* The second thread of a thread that launches. */
struct helper {
    std::mutex lock;
    std::condition_variable changed;
    const std::function<void()> *work = nullptr;
    bool is_over = false;
    std::thread thread{[this] {
        std::unique_lock<std::mutex> held(lock);
        for (;;) {
            changed.wait(held, [this] { return work != nullptr || is_over; });
            if (is_over)
                return;
            (*work)();
            work = nullptr;
            changed.notify_all();
        }
    }};

    ~helper()
    {
        {
            std::lock_guard<std::mutex> held(lock);
            is_over = true;
        }
        changed.notify_all();
        thread.join();
    }
    /* Both at once. */
    void run(const std::function<void()> &theirs, const std::function<void()> &own)
    {
        {
            std::lock_guard<std::mutex> held(lock);
            work = &theirs;
        }
        changed.notify_all();
        own();
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [this] { return work == nullptr; });
    }
};
#endif
} // namespace

void emulate(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body)
{
#ifdef TY_EMULATED_RACES
    static thread_local std::unique_ptr<helper> other;

    if ((uint64_t)grid.x * grid.y * grid.z > 1) {
        if (other == nullptr)
            other = std::make_unique<helper>();
        other->run([&] { blocks_run(grid, threads, shared_bytes, body, 1, 2); },
                   [&] { blocks_run(grid, threads, shared_bytes, body, 0, 2); });
        return;
    }
#endif
    blocks_run(grid, threads, shared_bytes, body, 0, 1);
}

unsigned char *emulated_shared(void)
{
    uintptr_t at = (uintptr_t)here->shared.data();

    return (unsigned char *)((at + 127) / 128 * 128);
}

void __syncthreads(void)
{
    emulated_index &index = threadIdx;
    const emulated_index own = index;

    pass(here->block);
    index = own;
}

static void warp_pass(warp &mine)
{
    emulated_index &index = threadIdx;
    const emulated_index own = index;

    pass(mine.gate);
    index = own;
}

void __syncwarp(void)
{
    warp_pass(here->warps[here->current / LANES]);
}

const uint32_t *emulated_lanes(uint32_t own)
{
    const unsigned current = here->current;
    warp &mine = here->warps[current / LANES];
    uint32_t *lanes = mine.lanes[mine.gate.generation % 2];

    lanes[current % LANES] = own;
    warp_pass(mine);
    return lanes;
}
