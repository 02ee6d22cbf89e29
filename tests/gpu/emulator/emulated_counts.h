/**
 * @file emulated_counts.h
 * Counts kernels and the bytes of device memory that they read and write. With
 * TRAINYARD_EMULATED_COUNTS=1, launches and library calls are counted but not run, except kernels
 * of one block, because the host waits for their results. So models of any size can be counted.
 * Bytes are what each launch states by TY_MOVES (kernel.cuh), or the operands of a library call:
 * every byte that is read counts once, however often it is read, and so does every byte that is
 * written.
 */
#ifndef TY_TEST_GPU_EMULATED_COUNTS_H
#define TY_TEST_GPU_EMULATED_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulated_count {
    const char *name; /* of the kernel at its launch, or of the library's function */
    uint64_t launches, read_bytes, written_bytes;
    uint64_t unstated; /* launches that did not state their bytes */
} emulated_count;

/** The i-th entry counted since the first call or the last reset.
 * @return whether it exists */
__attribute__((visibility("default"))) bool emulated_count_get(uint32_t i, emulated_count *out);
__attribute__((visibility("default"))) void emulated_counts_forget(void);

/** Callback for every launch before it runs: whether the launch stated its bytes, and how many. */
typedef void emulated_watch(const char *name, bool is_stated, uint64_t read, uint64_t written);
void emulated_counts_watch(emulated_watch *watch);

/** Counts a call if work is only counted. For stand-ins of libraries, and copies.
 * @return whether the call was counted instead of run */
bool emulated_call_counted(const char *name, uint64_t read_bytes, uint64_t written_bytes);

#ifdef __cplusplus
}
#endif

#endif
