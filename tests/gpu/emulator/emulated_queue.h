/**
 * @file emulated_queue.h
 * Interface of the emulated runtime for the stand-ins of libraries.
 */
#ifndef TY_TEST_GPU_EMULATED_QUEUE_H
#define TY_TEST_GPU_EMULATED_QUEUE_H

#include <cuda_runtime_api.h>

#include <stddef.h>

#ifdef __cplusplus
#include <functional>
#include <memory>

struct emulated_queue;
/** Target of a stream's work. */
emulated_queue *emulated_queue_of(cudaStream_t stream);

/** A kernel with peers as a node of a graph: the work of each launch, and the state that the graph
 * owns. */
struct emulated_graph_kernel {
    std::function<void()> launch;
    std::shared_ptr<void> kept;
};
/** False if the stream is not being captured. */
bool emulated_capture(cudaStream_t stream, const emulated_graph_kernel &kernel);
/** While one lives, its thread launches a graph; all its launches count as one. */
struct emulated_graph_launch {
    emulated_graph_launch();
    ~emulated_graph_launch();
    static unsigned long current(); /* the launch's number; 0: this thread launches none */
};

extern "C" {
#endif

/** Puts a call on a stream, with a copy of its arguments. */
void emulated_call(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments,
                   size_t bytes);

/** Whether TRAINYARD_EMULATED_FAULT names this fault:
 * "allocate": libraries allocate workspace in every call, which no capture allows.
 * "instantiate", "launch": that call of a graph fails.
 * "unaligned": there are no products of 16-bit matrices whose rows do not begin at multiples of 16
 * bytes.
 * "convolutions": there are none.
 * A device after a colon limits the fault to that device. */
int emulated_fault(const char *name);

/** Whether libraries list several algorithms, as TRAINYARD_EMULATED_ALGORITHMS requests. Of matrix
 * products there are four; the second is the fastest and the last one fails. Of convolutions there
 * are several of each sort; the second one is the fastest (library_graphs.c). */
int emulated_algorithms(void);
/** Takes the given time on the stream, by the clock of events; no thread waits for it. */
void emulated_delay(cudaStream_t stream, double seconds);

#ifdef __cplusplus
}
#endif

#endif
