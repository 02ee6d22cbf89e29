/**
 * @file emulated_device.h
 * Emulated GPUs that run concurrently with the host. Each has a thread that runs the work in its
 * hardware queues, in an order that a seed determines as far as CUDA leaves it open. Used by
 * runtime.cc and nccl.cc.
 *
 * TRAINYARD_EMULATED_DEVICES  number of devices; unset: one, which runs work at once when called
 * TRAINYARD_EMULATED_ORDER    the seed; read whenever a device is opened, as are these:
 * TRAINYARD_EMULATED_CROWDED  1: while a kernel waits for its peers, no other kernel fits
 * TRAINYARD_EMULATED_LOST     DEVICE:N: that device is lost at its Nth kernel
 * TRAINYARD_EMULATED_KILLED   DEVICE:N: the process that uses it is killed when it submits the
 *                             Nth piece of work, counted from its first NCCL kernel on
 * TRAINYARD_EMULATED_PATIENCE seconds without progress after which a deadlock is reported
 *
 * As on a GPU, streams share CUDA_DEVICE_MAX_CONNECTIONS hardware queues (8), whose first kernel
 * may keep others from starting. Allocating and freeing wait for all running work; so does the
 * first launch of a kernel, unless CUDA_MODULE_LOADING is EAGER.
 */
#ifndef TY_TEST_GPU_EMULATED_DEVICE_H
#define TY_TEST_GPU_EMULATED_DEVICE_H

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

/** A kernel that stays on the device until its peers arrive on other devices. Its functions are
 * called with the lock of all devices. */
struct resident_kernel {
    virtual ~resident_kernel() = default;
    virtual void arrive() = 0; /* it runs now */
    virtual bool is_complete() const = 0;
    virtual void leave() = 0; /* it has left the device */
    virtual void describe(char *text, size_t size) const = 0;
};

struct emulated_queue { /* a stream's state on its device */
    int device, hardware;
    size_t serial;    /* among those of its device */
    size_t left;      /* operations that have not finished */
    bool is_running;  /* the first one is on the device */
    void *race_fiber; /* thread-sanitizer fiber: the work of a stream, in whichever thread it
                       * runs */
};

/**
 * While one lives, its thread may access device memory, as launches and copies do. Elsewhere an
 * access ends the program, if the CPU has protection keys and no sanitizer needs to see the
 * allocations.
 */
struct emulated_access {
    emulated_access();
    ~emulated_access();
    emulated_access(const emulated_access &) = delete;

  private:
    int before;
};

/** NULL if there is one device, which runs work at once. */
emulated_queue *emulated_queue_new(void);
/** Work that is still in the queue runs first. */
void emulated_queue_free(emulated_queue *queue);
void emulated_queue_work(emulated_queue *queue, std::function<void()> work);
void emulated_queue_kernel(emulated_queue *queue, std::shared_ptr<resident_kernel> kernel);
/** Waits until all work queued so far has finished, or the device is lost. */
void emulated_queue_wait(emulated_queue *queue);

/** Of the calling thread. */
int emulated_device_current(void);
/** Whether another kernel fits next to one that waits for its peers. */
bool emulated_device_has_room(void);
bool emulated_device_is_lost(void);
/** Whether a kernel on the calling thread's device waits for its peers. With the lock. */
bool emulated_device_waits(void);
/** Waits until nothing runs there. `call` is named in the error if a kernel waits for its peers
 * meanwhile. */
void emulated_device_drain(const char *call);
/** The code of a kernel, which may have to be loaded. */
void emulated_device_load(emulated_queue *queue, const void *kernel);
/** For the device that is opened. */
void emulated_options_read(int ordinal);

/** Locks all devices and their shared state. */
std::unique_lock<std::mutex> emulated_lock(void);
/** Signals a change that a thread may wait for. Call with the lock. */
void emulated_changed(void);
/** Call with the lock, which is released during the wait. If no device makes progress during a
 * wait, the program ends and prints what each thread waits for. */
void emulated_wait(std::unique_lock<std::mutex> &lock, const char *what,
                   const std::function<bool()> &is_over);
/** The same for a wait that its thread polls until it ends. With the lock. */
struct emulated_waiter;
emulated_waiter *emulated_wait_begin(const std::string &what);
void emulated_wait_end(emulated_waiter *waiter);
/** For tests, between runs: a hash of the order in which operations began on all devices since the
 * last call. */
extern "C" __attribute__((visibility("default"))) uint64_t emulated_order_take(void);
/** A rule is broken: prints a line that fails the test, and continues. */
void emulated_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
