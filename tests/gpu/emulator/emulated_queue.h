/**
 * @file emulated_queue.h
 * What the stand-ins of libraries ask of the emulated runtime.
 */
#ifndef TY_TEST_GPU_EMULATED_QUEUE_H
#define TY_TEST_GPU_EMULATED_QUEUE_H

#include <cuda_runtime_api.h>

#include <stddef.h>

#ifdef __cplusplus
#include <functional>
#include <memory>

struct emulated_queue;
/** Where a stream's work goes. */
emulated_queue *emulated_queue_of(cudaStream_t stream);

/** A kernel with peers as a part of a graph: what is done whenever that is launched, and what the
 * graph keeps as long as it lives. */
struct emulated_graph_kernel {
    std::function<void()> launch;
    std::shared_ptr<void> kept;
};
/** False where the stream is not being captured. */
bool emulated_capture(cudaStream_t stream, const emulated_graph_kernel &kernel);
/** While one lives, its thread launches a graph; all that it launches is one launch. */
struct emulated_graph_launch {
    emulated_graph_launch();
    ~emulated_graph_launch();
    static unsigned long current(); /* a number of its own; 0: this thread launches none */
};

extern "C" {
#endif

/** Puts a call on a stream, with a copy of its arguments. */
void emulated_call(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments,
                   size_t bytes);

/** Whether TRAINYARD_EMULATED_FAULT names this fault: "allocate" (libraries allocate working memory
 * in every call, which no capture allows), "instantiate", "launch" (of a graph), "unaligned" (there
 * are no products of 16-bit matrices whose rows do not begin at multiples of 16 bytes),
 * "convolutions" (there are none); behind a colon it may say of which device alone. */
int emulated_fault(const char *name);

/** Whether libraries list several algorithms, as TRAINYARD_EMULATED_ALGORITHMS asks: of products
 * four, of which the second is fastest and the last fails; of convolutions several of each sort,
 * the second of which are fastest (library_graphs.c). */
int emulated_algorithms(void);
/** Takes so long on the stream, by the clock of events; nobody waits for it. */
void emulated_delay(cudaStream_t stream, double seconds);

#ifdef __cplusplus
}
#endif

#endif
