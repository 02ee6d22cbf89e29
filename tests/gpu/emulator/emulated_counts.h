/**
 * @file emulated_counts.h
 * How many kernels there are, and how many bytes of device memory they read and write. With
 * TRAINYARD_EMULATED_COUNTS=1 launches and calls of libraries are counted and, unless a kernel is
 * one block, not played: what the host waits for comes of such, and a network of any size can be
 * counted. Bytes are what each launch says by TY_MOVES (kernel.cuh), or what the operands of a
 * library's call have: every byte that is read once, however often, and every byte that is written.
 */
#ifndef TY_TEST_GPU_EMULATED_COUNTS_H
#define TY_TEST_GPU_EMULATED_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulated_count {
    const char *name; /* of the kernel, as it is launched, or of the library's function */
    uint64_t launches, read_bytes, written_bytes;
    uint64_t unstated; /* launches that did not say what they move */
} emulated_count;

/** The i-th of what was counted since the first call, or since it was last forgotten.
 * @return whether there is one */
__attribute__((visibility("default"))) bool emulated_count_get(uint32_t i, emulated_count *out);
__attribute__((visibility("default"))) void emulated_counts_forget(void);

/** Has every launch told before it is played: whether it said what it moves, and what. */
typedef void emulated_watch(const char *name, bool is_stated, uint64_t read, uint64_t written);
void emulated_counts_watch(emulated_watch *watch);

/** Whether work is only counted: then this call has been. For stand-ins of libraries, copies. */
bool emulated_call_counted(const char *name, uint64_t read_bytes, uint64_t written_bytes);

#ifdef __cplusplus
}
#endif

#endif
