/* Emulated GPUs with separate streams; see emulated_device.h. */
#include "emulated_device.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#ifdef TY_EMULATED_RACES
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_release(at) ((void)(at))
#define __tsan_acquire(at) ((void)(at))
#endif

namespace
{
typedef std::chrono::steady_clock steady;

} // namespace

struct emulated_waiter {
    int device;
    std::string what;
    std::list<emulated_waiter>::iterator place;
    const std::function<bool()> *is_over; /* of a thread that sleeps until then; otherwise NULL */
    std::condition_variable *wake;
};

namespace
{
struct operation {
    emulated_queue *queue;
    std::function<void()> work;
    std::shared_ptr<resident_kernel> kernel; /* instead of work */
};

struct device {
    std::condition_variable wake; /* of its thread */
    std::vector<std::deque<operation>> hardware;
    std::vector<operation> resident;
    size_t next_hardware = 0, left = 0;     /* operations that have not finished */
    size_t streams = 0;                     /* created since the orders were last read */
    unsigned long launched = 0, linked = 0; /* kernels; and those after the first NCCL kernel */
    std::atomic<bool> is_lost{false};       /* written with the lock */
    bool is_busy = false;
    std::set<const void *> loaded;
    std::mt19937 random;
};

/* Never freed: the devices' threads outlive main. */
struct machine {
    std::mutex lock;
    std::deque<device> devices;
    unsigned long moves = 0; /* events on all devices */
    std::list<emulated_waiter> waiters;
    bool is_crowded = false;
    double patience_s = 20;
    int lost_device = -1, killed_device = -1;
    unsigned long lost_after = 0, killed_after = 0;
    bool is_of_processes = false; /* peers are polled */
    uint64_t order = 0;           /* see emulated_order_take */
};

thread_local int current;

const char *asked(const char *name)
{
    const char *value = getenv(name);

    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

void device_main(machine *all, int ordinal);
void watch_main(machine *all);

void options_read(machine *all, int ordinal)
{
    const char *order = asked("TRAINYARD_EMULATED_ORDER");
    const char *lost = asked("TRAINYARD_EMULATED_LOST");
    const char *patience = asked("TRAINYARD_EMULATED_PATIENCE");
    const char *crowded = asked("TRAINYARD_EMULATED_CROWDED");
    const char *killed = asked("TRAINYARD_EMULATED_KILLED");
    const unsigned seed = order != nullptr ? (unsigned)strtoul(order, nullptr, 10) : 1;
    std::seed_seq mixed{seed, (unsigned)ordinal};

    all->devices[(size_t)ordinal].random.seed(mixed);
    all->devices[(size_t)ordinal].is_lost = false;
    all->devices[(size_t)ordinal].launched = all->devices[(size_t)ordinal].linked = 0;
    all->is_crowded = crowded != nullptr && crowded[0] == '1';
    all->patience_s = patience != nullptr ? atof(patience) : 20;
    all->lost_device = -1;
    if (lost != nullptr && sscanf(lost, "%d:%lu", &all->lost_device, &all->lost_after) != 2)
        emulated_broken("TRAINYARD_EMULATED_LOST: found \"%s\", expected DEVICE:N", lost);
    all->is_of_processes = asked("TRAINYARD_EMULATED_NCCL") != nullptr;
    all->killed_device = -1;
    if (killed != nullptr && sscanf(killed, "%d:%lu", &all->killed_device, &all->killed_after) != 2)
        emulated_broken("TRAINYARD_EMULATED_KILLED: found \"%s\", expected DEVICE:N", killed);
}

machine *machine_make()
{
    const char *count = asked("TRAINYARD_EMULATED_DEVICES");
    const char *queues = asked("CUDA_DEVICE_MAX_CONNECTIONS");
    machine *made;

    if (count == nullptr)
        return nullptr;
    made = new machine;
    made->devices.resize((size_t)atoi(count));
    for (device &d : made->devices)
        d.hardware.resize(queues != nullptr ? (size_t)atoi(queues) : 8);
    for (size_t d = 0; d < made->devices.size(); d++) {
        options_read(made, (int)d);
        std::thread(device_main, made, (int)d).detach();
    }
    std::thread(watch_main, made).detach();
    return made;
}

/* NULL: there is one device, which runs work at once. */
machine *the_machine()
{
    static machine *const made = machine_make();

    return made;
}

/* Wakes only the threads whose condition is now true. */
void moved(machine *all)
{
    all->moves++;
    for (emulated_waiter &w : all->waiters)
        if (w.wake != nullptr && (*w.is_over)())
            w.wake->notify_one();
}

/* The next hash of a sequence, by FNV-1a. */
void order_add(uint64_t *order, size_t ordinal, const emulated_queue *queue)
{
    for (size_t part : {ordinal, queue->serial})
        *order = (*order ^ (part + 1)) * 0x100000001b3u;
}

/* ---- Events on a device ---- */

bool is_kernel_waiting(const device &d)
{
    for (const operation &o : d.resident)
        if (!o.kernel->is_complete())
            return true;
    return false;
}

/* Possible next events: the first operation of a hardware queue, by its index, begins, or, after
 * these, a resident kernel ends. */
std::vector<size_t> choices(const machine *all, const device &d)
{
    const bool has_room = !all->is_crowded || !is_kernel_waiting(d);
    std::vector<size_t> found;

    for (size_t q = 0; q < d.hardware.size(); q++)
        if (!d.hardware[q].empty() && !d.hardware[q].front().queue->is_running &&
            (has_room || d.hardware[q].front().kernel != nullptr))
            found.push_back(q);
    for (size_t r = 0; r < d.resident.size(); r++)
        if (d.resident[r].kernel->is_complete())
            found.push_back(d.hardware.size() + r);
    return found;
}

void operation_over(machine *all, device &d, const operation &over)
{
    over.queue->is_running = false;
    d.left--;
    if (--over.queue->left == 0 && over.queue->device < 0)
        delete over.queue;
    moved(all);
}

/* Runs after earlier work of its stream and work done before its launch, and before threads that
 * wait for the stream or the device; concurrent with everything else. */
void work_run(device &d, operation &next)
{
#ifdef TY_EMULATED_RACES
    void *own = __tsan_get_current_fiber();

    __tsan_switch_to_fiber(next.queue->race_fiber, __tsan_switch_to_fiber_no_sync);
    __tsan_acquire(&next.queue->left);
#endif
    next.work();
    next.work = nullptr; /* the stream releases its captured state */
    __tsan_release(&next.queue->is_running);
    __tsan_release(&d.left);
#ifdef TY_EMULATED_RACES
    __tsan_switch_to_fiber(own, __tsan_switch_to_fiber_no_sync);
#endif
}

void operation_begin(machine *all, int ordinal, size_t from, std::unique_lock<std::mutex> &lock)
{
    device &d = all->devices[(size_t)ordinal];
    operation next = std::move(d.hardware[from].front());

    d.hardware[from].pop_front();
    next.queue->is_running = true;
    all->moves++;
    order_add(&all->order, (size_t)ordinal, next.queue);
    if (next.kernel != nullptr) {
        d.resident.push_back(next);
        next.kernel->arrive();
        moved(all);
        return;
    }
    if (!d.is_lost) {
        d.is_busy = true;
        lock.unlock();
        work_run(d, next);
        lock.lock();
        d.is_busy = false;
    }
    operation_over(all, d, next);
}

void device_main(machine *all, int ordinal)
{
    device &d = all->devices[(size_t)ordinal];
    const emulated_access access;
    std::unique_lock<std::mutex> lock(all->lock);

    for (;;) {
        std::vector<size_t> found = choices(all, d);
        size_t chosen;

        if (found.empty()) {
            if (all->is_of_processes && !d.resident.empty())
                d.wake.wait_for(lock, std::chrono::microseconds(200));
            else
                d.wake.wait(lock);
            continue;
        }
        if (d.random() % 8 == 0) { /* others may be faster */
            const auto pause = std::chrono::microseconds(d.random() % 120);
            lock.unlock();
            std::this_thread::sleep_for(pause);
            lock.lock();
            found = choices(all, d);
            if (found.empty())
                continue;
        }
        chosen = found[d.random() % found.size()];
        if (chosen < d.hardware.size()) {
            operation_begin(all, ordinal, chosen, lock);
        } else {
            const operation over = d.resident[chosen - d.hardware.size()];
            d.resident.erase(d.resident.begin() + (long)(chosen - d.hardware.size()));
            over.kernel->leave();
            operation_over(all, d, over);
        }
    }
}

/* ---- Deadlocks ---- */

void deadlock_tell(machine *all)
{
    char text[256];

    printf("FAIL emulator: deadlock, nothing has moved for %g s\n", all->patience_s);
    for (size_t d = 0; d < all->devices.size(); d++) {
        const device &of = all->devices[d];
        for (const operation &o : of.resident) {
            o.kernel->describe(text, sizeof text);
            printf("  device %zu runs %s%s\n", d, text, o.kernel->is_complete() ? ", over" : "");
        }
        for (size_t q = 0; q < of.hardware.size(); q++) {
            if (of.hardware[q].empty())
                continue;
            snprintf(text, sizeof text, "a kernel");
            if (of.hardware[q].front().kernel != nullptr)
                of.hardware[q].front().kernel->describe(text, sizeof text);
            printf("  device %zu, hardware queue %zu: %zu wait, first %s\n", d, q,
                   of.hardware[q].size(), text);
        }
    }
    for (const emulated_waiter &w : all->waiters)
        printf("  a thread of device %d is in %s\n", w.device, w.what.c_str());
    fflush(stdout);
    _exit(1);
}

/* Whether work is pending that was not aborted, and no device is running. */
bool is_stuck(const machine *all)
{
    bool is_under_way = !all->waiters.empty();

    for (const device &d : all->devices) {
        if (d.is_busy)
            return false;
        is_under_way = is_under_way || (d.left > 0 && !d.is_lost);
    }
    return is_under_way;
}

void watch_main(machine *all)
{
    std::unique_lock<std::mutex> lock(all->lock);
    unsigned long seen = 0;
    steady::time_point since = steady::now();

    for (;;) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        lock.lock();
        if (all->moves != seen || !is_stuck(all)) {
            seen = all->moves;
            since = steady::now();
        } else if (std::chrono::duration<double>(steady::now() - since).count() > all->patience_s) {
            deadlock_tell(all);
        }
    }
}
} // namespace

std::unique_lock<std::mutex> emulated_lock(void)
{
    return std::unique_lock<std::mutex>(the_machine()->lock);
}

void emulated_changed(void)
{
    for (device &d : the_machine()->devices)
        if (!d.resident.empty() && !choices(the_machine(), d).empty())
            d.wake.notify_one();
    moved(the_machine());
}

void emulated_wait(std::unique_lock<std::mutex> &lock, const char *what,
                   const std::function<bool()> &is_over)
{
    std::condition_variable wake;
    emulated_waiter *own;

    if (is_over())
        return;
    own = emulated_wait_begin(what);
    own->is_over = &is_over;
    own->wake = &wake;
    wake.wait(lock, is_over);
    emulated_wait_end(own);
}

emulated_waiter *emulated_wait_begin(const std::string &what)
{
    std::list<emulated_waiter> &all = the_machine()->waiters;
    const auto made = all.insert(all.end(), {current, what, {}, nullptr, nullptr});

    made->place = made;
    return &*made;
}

void emulated_wait_end(emulated_waiter *waiter)
{
    the_machine()->waiters.erase(waiter->place);
}

void emulated_broken(const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("FAIL emulator: %s\n", text);
    fflush(stdout);
}

/* ---- Streams ---- */

emulated_queue *emulated_queue_new(void)
{
    machine *all = the_machine();

    if (all == nullptr)
        return nullptr;
    std::lock_guard<std::mutex> guard(all->lock);
    device &d = all->devices[(size_t)current];
    auto *made = new emulated_queue{
        current, (int)(d.next_hardware++ % d.hardware.size()), d.streams++, 0, false, nullptr};
#ifdef TY_EMULATED_RACES
    made->race_fiber = __tsan_create_fiber(0);
#endif
    return made;
}

void emulated_queue_free(emulated_queue *queue)
{
    if (queue == nullptr)
        return;
    std::lock_guard<std::mutex> guard(the_machine()->lock);
    queue->device = -1;
    if (queue->left == 0)
        delete queue;
}

static void queue_put(emulated_queue *queue, operation o)
{
    machine *all = the_machine();
    std::unique_lock<std::mutex> lock(all->lock);
    device &d = all->devices[(size_t)queue->device];
    std::deque<operation> &hardware = d.hardware[(size_t)queue->hardware];
    bool is_next;

    if (o.kernel == nullptr && ++d.launched >= all->lost_after &&
        queue->device == all->lost_device && !d.is_lost) {
        d.is_lost = true;
        moved(all);
    }
    if (queue->device == all->killed_device && (o.kernel != nullptr || d.linked > 0) &&
        ++d.linked >= all->killed_after)
        raise(SIGKILL);
    __tsan_release(&queue->left);
    queue->left++;
    d.left++;
    is_next = hardware.empty() && !queue->is_running;
    hardware.push_back(std::move(o));
    all->moves++;
    lock.unlock(); /* otherwise the woken thread waits for it */
    if (is_next)
        d.wake.notify_one();
}

void emulated_queue_work(emulated_queue *queue, std::function<void()> work)
{
    queue_put(queue, operation{queue, std::move(work), nullptr});
}

void emulated_queue_kernel(emulated_queue *queue, std::shared_ptr<resident_kernel> kernel)
{
    queue_put(queue, operation{queue, nullptr, std::move(kernel)});
}

void emulated_queue_wait(emulated_queue *queue)
{
    machine *all = the_machine();
    std::unique_lock<std::mutex> lock(all->lock);
    device &d = all->devices[(size_t)queue->device];

    emulated_wait(lock, "cudaStreamSynchronize", [&] { return queue->left == 0 || d.is_lost; });
    __tsan_acquire(&queue->is_running);
}

/* ---- Devices ---- */

int emulated_device_current(void)
{
    return current;
}

bool emulated_device_has_room(void)
{
    return the_machine() == nullptr || !the_machine()->is_crowded;
}

bool emulated_device_is_lost(void)
{
    machine *all = the_machine();

    return all != nullptr && all->devices[(size_t)current].is_lost;
}

bool emulated_device_waits(void)
{
    return is_kernel_waiting(the_machine()->devices[(size_t)current]);
}

void emulated_device_drain(const char *call)
{
    machine *all = the_machine();

    if (all == nullptr)
        return;
    std::unique_lock<std::mutex> lock(all->lock);
    device &d = all->devices[(size_t)current];
    if (is_kernel_waiting(d) && !d.is_lost)
        emulated_broken("%s while a kernel waits for its peers", call);
    emulated_wait(lock, call, [&] { return d.left == 0 || (d.is_lost && !d.is_busy); });
    __tsan_acquire(&d.left);
}

void emulated_device_load(emulated_queue *queue, const void *kernel)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    machine *all = the_machine();

    if (queue == nullptr || (loading != nullptr && strcmp(loading, "EAGER") == 0))
        return;
    std::unique_lock<std::mutex> lock(all->lock);
    device &d = all->devices[(size_t)queue->device];
    if (!d.loaded.insert(kernel).second)
        return;
    emulated_wait(lock, "the first launch of a kernel", [&] { return d.left == 0 || d.is_lost; });
}

void emulated_options_read(int ordinal)
{
    machine *all = the_machine();

    if (all == nullptr)
        return;
    std::unique_lock<std::mutex> lock(all->lock);
    device &d = all->devices[(size_t)ordinal];
    if (d.is_lost) /* work left on it must not run on the next device */
        emulated_wait(lock, "a device that was lost", [&] { return d.left == 0; });
    options_read(all, ordinal);
}

extern "C" {

uint64_t emulated_order_take(void)
{
    machine *all = the_machine();
    std::lock_guard<std::mutex> guard(all->lock);

    const uint64_t order = all->order;
    all->order = 0;
    for (device &d : all->devices)
        d.streams = 0;
    return order;
}

cudaError_t cudaSetDevice(int ordinal)
{
    current = ordinal;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ordinal)
{
    *ordinal = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = the_machine() == nullptr ? 1 : (int)the_machine()->devices.size();
    return cudaSuccess;
}
}
