/*
 * Fibers for a block's threads: a thread runs until it comes to a barrier, then the next; one that
 * comes to none needs no fiber of its own.
 *
 * With TY_EMULATED_RACES each thread is also a fiber of the thread sanitizer. Only barriers,
 * shuffles and the ends of launches order the work of GPU threads, not the order in which they take
 * turns here. A second thread runs every other block, so that blocks have separate shared memory
 * and a separate order. This file itself is not instrumented.
 */
#include "emulator.h"

#include "emulated_device.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>

__thread emulated_index threadIdx, blockIdx, gridDim, blockDim;

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TY_EMULATED_RACES
#include <condition_variable>
#include <mutex>
#include <sanitizer/tsan_interface.h>
#include <thread>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace
{
enum { LANES = 32, MOST_THREADS = 1024, STACK_BYTES = 64 * 1024, PAGE = 4096 };

struct barrier {
    unsigned alive = 0, arrived = 0;
    unsigned long generation = 0;
    char places[2]; /* for this and the next generation, for the thread sanitizer */
};

struct warp {
    barrier gate;
    uint32_t lanes[2][LANES] = {}; /* alternating: a thread that is one shuffle ahead must not
                                    * overwrite data still to be read */
    struct {
        unsigned long generation; /* counted from 1 */
        unsigned there, alike;    /* threads that arrived; those with the first one's arguments */
        uint64_t same;            /* a number that stands for its arguments */
    } calls[2] = {};              /* of all threads of the warp together, also alternating */
    const void *brought[2][LANES] = {};
};

/* A stack on which threads run one after the other; the first is the launching thread's own. */
struct fiber {
#ifdef __x86_64__
    void *at = nullptr; /* the stack's end, with the registers that calls preserve */
#else
    ucontext_t at;
#endif
    void *made = nullptr;
    const void *bottom = nullptr; /* as the address sanitizer defines it */
    size_t size = 0;
    void *kept = nullptr;
    unsigned thread = 0; /* the thread that it runs, or that waits at a barrier in it */

    fiber() = default;
    fiber(const fiber &) = delete;
    ~fiber();
};

struct machine {
    fiber main;
    std::vector<std::unique_ptr<fiber>> made; /* which are never moved */
    std::vector<fiber *> unused;
    fiber *waiting[MOST_THREADS]; /* a ring of those whose threads are at a barrier, in order */
    unsigned first_waiting = 0, waiting_count = 0;
    fiber *current = nullptr;
    unsigned next_thread = 0, thread_count = 0; /* the first thread that has not begun, and the
                                                 * number of threads */
    std::vector<warp> warps;
    std::vector<unsigned char> shared;
    barrier block;
    std::vector<void *> race_fibers; /* of threads, for the thread sanitizer */
    void *race_main = nullptr;       /* and of the launching thread itself */
    char begin, end;                 /* of a block: before and after its threads */
    const std::function<void()> *body = nullptr;
};

thread_local std::unique_ptr<machine> owned; /* until the thread ends */
__thread machine *here;                      /* the same, without a check whether it exists yet */

/* Selects the sanitizer's next fiber, without ordering anything. */
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

/* ---- Switching stacks ---- */

#ifdef __x86_64__
extern "C" void emulated_switch(void **from, void *to);
/* Caller-saved registers are lost; callee-saved ones are on the stack that is left. */
asm(R"(
    .text
    .hidden emulated_switch
    .globl emulated_switch
    .type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, . - emulated_switch
)");
#endif

/* @param kept of the stack that resumes; NULL for a new one */
void switch_end([[maybe_unused]] void *kept)
{
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;

    __sanitizer_finish_switch_fiber(kept, &bottom, &size);
    if (here->main.bottom == nullptr) { /* only that of the launching thread is unknown */
        here->main.bottom = bottom;
        here->main.size = size;
    }
#endif
}

[[gnu::noinline]] void switch_to(fiber &next)
{
    machine &own = *here;
    fiber &left = *own.current;

    own.current = &next;
    threadIdx.x = next.thread;
#ifdef TY_EMULATED_RACES
    race_switch(&next == &own.main ? own.race_main : own.race_fibers[next.thread]);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&left.kept, next.bottom, next.size);
#endif
#ifdef __x86_64__
    emulated_switch(&left.at, next.at);
#else
    swapcontext(&left.at, &next.at);
#endif
    switch_end(left.kept);
}

/* ---- A block's threads ---- */

void leave(barrier &gate)
{
    gate.alive--;
    if (gate.alive > 0 && gate.arrived == gate.alive) {
        gate.arrived = 0;
        gate.generation++;
    }
}

void thread_run(machine &own, unsigned t)
{
    own.current->thread = t;
    threadIdx.x = t;
#ifdef TY_EMULATED_RACES
    race_switch(own.race_fibers[t]);
#endif
    race_acquire(&own.begin);
    (*own.body)();
    leave(own.warps[t / LANES].gate);
    leave(own.block);
    race_release(&own.end);
}

/* Takes the thread that has waited longest; NULL: no thread waits. */
fiber *waiting_take(machine &own)
{
    if (own.waiting_count == 0)
        return nullptr;
    fiber *taken = own.waiting[own.first_waiting];
    own.first_waiting = (own.first_waiting + 1) % MOST_THREADS;
    own.waiting_count--;
    return taken;
}

[[noreturn]] void fiber_main()
{
    machine &own = *here;

    switch_end(nullptr);
    for (;;) {
        fiber *const self = own.current;
        while (own.next_thread < own.thread_count)
            thread_run(own, own.next_thread++);
        own.unused.push_back(self);
        fiber *const next = waiting_take(own);
        switch_to(next != nullptr ? *next : own.main);
    }
}

fiber::~fiber()
{
    if (made != nullptr)
        munmap(made, size);
}

fiber *fiber_make(machine &own)
{
    auto made = std::make_unique<fiber>();
    /* Untouched pages use no memory; stack ends are spread over the cache. */
    const size_t spread = own.made.size() * 7 % 32 * 128;
    auto *stack = (char *)mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (stack == MAP_FAILED) {
        fprintf(stderr, "emulator: no memory for a stack\n");
        abort();
    }
    made->bottom = made->made = stack;
    made->size = STACK_BYTES + spread;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(stack, made->size); /* an earlier stack may have used the
                                                       * address */
#endif
#ifdef __x86_64__
    auto **end = (void **)(stack + made->size);
    *--end = nullptr; /* as if it had been called */
    *--end = (void *)fiber_main;
    made->at = end - 6; /* the registers that emulated_switch pops first: any values */
#else
    getcontext(&made->at);
    made->at.uc_stack.ss_sp = stack;
    made->at.uc_stack.ss_size = made->size;
    made->at.uc_link = nullptr;
    makecontext(&made->at, (void (*)())fiber_main, 0);
#endif
    own.made.push_back(std::move(made));
    return own.made.back().get();
}

/* A stack for a thread that has not begun, or else the thread that has waited longest. */
fiber *next_take(machine &own)
{
    if (own.next_thread == own.thread_count)
        return waiting_take(own);
    if (own.unused.empty())
        return fiber_make(own);
    fiber *const taken = own.unused.back();
    own.unused.pop_back();
    return taken;
}

void turn_over(machine &own)
{
    fiber *const self = own.current;
    fiber *next;

    own.waiting[(own.first_waiting + own.waiting_count++) % MOST_THREADS] = self;
    next = next_take(own);
    if (next != self)
        switch_to(*next);
}

void pass(machine &own, barrier &gate)
{
    const unsigned long generation = gate.generation;

    race_release(&gate.places[generation % 2]);
    if (++gate.arrived == gate.alive) {
        gate.arrived = 0;
        gate.generation++;
    }
    while (gate.generation == generation)
        turn_over(own);
    race_acquire(&gate.places[generation % 2]);
}

void block_run(machine &own, unsigned threads)
{
    own.warps.assign((threads + LANES - 1) / LANES, warp());
    own.block = barrier();
    own.block.alive = threads;
    for (unsigned t = 0; t < threads; t++)
        own.warps[t / LANES].gate.alive++;
#ifdef TY_EMULATED_RACES
    while (own.race_fibers.size() < threads)
        own.race_fibers.push_back(__tsan_create_fiber(0));
    while (own.made.size() < threads) /* the launching thread's, not one of the block's */
        own.unused.push_back(fiber_make(own));
#endif
    own.next_thread = 0;
    own.thread_count = threads;
    own.current = &own.main;
    race_release(&own.begin);
    switch_to(*next_take(own));
    race_acquire(&own.end);
}

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
    threadIdx = {0, 0, 0};
    here->body = &body;
    for (uint64_t b = first; b < blocks; b += step) {
        blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                    (unsigned)(b / grid.x / grid.y)};
        here->shared.assign(shared_bytes + 128, 0xff); /* NaN: its initial content is arbitrary */
        block_run(*here, threads);
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
    pass(*here, here->block);
}

void __syncwarp(void)
{
    pass(*here, here->warps[threadIdx.x / LANES].gate);
}

const uint32_t *emulated_lanes(uint32_t own)
{
    warp &mine = here->warps[threadIdx.x / LANES];
    uint32_t *lanes = mine.lanes[mine.gate.generation % 2];

    lanes[threadIdx.x % LANES] = own;
    pass(*here, mine.gate);
    return lanes;
}

const void *const *emulated_together(const char *call, uint64_t same, const void *own)
{
    machine &m = *here;
    const unsigned lane = threadIdx.x % LANES;
    warp &mine = m.warps[threadIdx.x / LANES];
    const unsigned long generation = mine.gate.generation + 1;
    auto &all = mine.calls[generation % 2];
    bool is_first;

    if (all.generation != generation)
        all = {generation, 0, 0, same};
    is_first = all.there++ == 0;
    all.alike += all.same == same;
    mine.brought[generation % 2][lane] = own;
    pass(m, mine.gate);
    if (is_first && all.there < LANES)
        emulated_broken("%s: %u threads of a warp come to it together, expected %d", call,
                        all.there, LANES);
    else if (is_first && all.alike < LANES)
        emulated_broken("%s: the threads of a warp have different arguments", call);
    return all.alike < LANES ? nullptr : mine.brought[generation % 2];
}
