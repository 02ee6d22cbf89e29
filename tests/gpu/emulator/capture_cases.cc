/*
 * Captures in the emulated runtime: launches are recorded with their arguments by value, and calls
 * that CUDA forbids meanwhile fail. Otherwise the tests of graphs would prove nothing.
 */
#include "emulator.h"

#include <csignal>
#include <cstdio>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{
int failures;

void expect(bool is_right, const char *what)
{
    printf("%s %s\n", is_right ? "ok  " : "FAIL", what);
    failures += !is_right;
}

void add(int *to, int value)
{
    if (threadIdx.x == 0)
        *to += value;
}

void launch_add(cudaStream_t stream, int *to, int value)
{
    TY_LAUNCH_GRID(add, dim3(1), 32, 0, stream, to, value);
}

/* Begins a capture, runs something, and ends it. */
bool is_captured(cudaStream_t stream, enum cudaStreamCaptureMode mode,
                 const std::function<void()> &work)
{
    cudaGraph_t graph = nullptr;

    if (cudaStreamBeginCapture(stream, mode) != cudaSuccess)
        return false;
    work();
    bool is_right = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != nullptr;
    if (graph != nullptr)
        cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return is_right;
}

bool spoils(cudaStream_t stream, const std::function<void()> &work)
{
    return !is_captured(stream, cudaStreamCaptureModeThreadLocal, work);
}

void replay_check(cudaStream_t stream, int *on_device, int *pinned)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    int value = 5, *to = on_device;
    const auto seen = [&] { /* by a copy, outside the stream */
                            int found = 0;
                            cudaMemcpyAsync(&found, on_device, sizeof found, cudaMemcpyDeviceToHost,
                                            nullptr);
                            return found;
    };

    cudaMemset(on_device, 0, sizeof *on_device);
    launch_add(stream, on_device, 1);
    *pinned = 0;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    launch_add(stream, to, value);
    cudaMemcpyAsync(pinned, to, sizeof *to, cudaMemcpyDeviceToHost, stream);
    expect(seen() == 1, "a capture runs nothing");
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiateWithFlags(&exec, graph, 0);
    cudaGraphDestroy(graph);
    value = 100; /* the graph has their values at capture */
    to = nullptr;
    cudaGraphLaunch(exec, stream);
    cudaGraphLaunch(exec, stream);
    expect(seen() == 11 && *pinned == 11, "launches have their arguments by value");
    cudaGraphExecDestroy(exec);
}

void forbidden_check(cudaStream_t stream, cudaStream_t other, int *on_device)
{
    void *memory = nullptr;
    int pageable = 0;

    expect(is_captured(stream, cudaStreamCaptureModeThreadLocal,
                       [&] { launch_add(stream, on_device, 1); }),
           "a launch is captured");
    expect(spoils(stream, [&] { cudaMalloc(&memory, 16); }), "cudaMalloc spoils a capture");
    expect(spoils(stream, [&] { cudaMemset(on_device, 0, 4); }), "cudaMemset spoils a capture");
    expect(spoils(stream, [&] { cudaStreamSynchronize(stream); }),
           "awaiting the stream spoils a capture");
    expect(spoils(stream, [&] { cudaStreamSynchronize(other); }),
           "awaiting another stream spoils a capture");
    expect(
        spoils(stream,
               [&] { cudaMemcpyAsync(on_device, &pageable, 4, cudaMemcpyHostToDevice, stream); }),
        "a copy of pageable memory spoils a capture");
    expect(!spoils(stream,
                   [&] {
                       std::thread([&] {
                           cudaMalloc(&memory, 16);
                           cudaFree(memory);
                       }).join();
                   }),
           "another thread may allocate in thread-local mode");
    expect(!is_captured(stream, cudaStreamCaptureModeGlobal,
                        [&] { std::thread([&] { cudaMalloc(&memory, 16); }).join(); }),
           "no thread may allocate in global mode");
}

void events_check(cudaStream_t stream)
{
    cudaEvent_t first, second;
    float milliseconds;

    cudaEventCreateWithFlags(&first, cudaEventDefault);
    cudaEventCreateWithFlags(&second, cudaEventDefault);
    cudaEventRecord(first, stream);
    is_captured(stream, cudaStreamCaptureModeThreadLocal, [&] { cudaEventRecord(second, stream); });
    expect(cudaEventElapsedTime(&milliseconds, first, second) == cudaErrorCapturedEvent,
           "an event that became a part of a graph has no time");
    (void)cudaGetLastError();
    cudaEventDestroy(first);
    cudaEventDestroy(second);
}
} // namespace

/* ---- Launches ---- */

void touch_shared(int *is_poisoned, unsigned bytes)
{
    unsigned char *own = emulated_shared();

    for (unsigned i = 0; i < bytes; i++) {
        *is_poisoned = *is_poisoned && own[i] == 0xff;
        own[i] = 1;
    }
}

bool is_launched(cudaStream_t stream, dim3 grid, unsigned threads, size_t shared_bytes)
{
    int is_poisoned = 1;

    TY_LAUNCH_GRID(touch_shared, grid, threads, shared_bytes, stream, &is_poisoned, 0u);
    return cudaGetLastError() == cudaSuccess;
}

void launches_check(cudaStream_t stream)
{
    int is_poisoned = 1;

    expect(is_launched(stream, dim3(3, 2, 2), 1024, 48 * 1024), "a launch within all limits");
    expect(!is_launched(stream, dim3(1), 1025, 0), "no block has 1025 threads");
    expect(!is_launched(stream, dim3(1), 0, 0), "nor none");
    expect(!is_launched(stream, dim3(0), 32, 0), "no grid is empty");
    expect(!is_launched(stream, dim3(1, 65536), 32, 0), "nor has 65536 rows of blocks");
    expect(!is_launched(stream, dim3(1), 32, 48 * 1024 + 1),
           "more than 48 KiB of shared memory have to be asked for");
    expect(cudaFuncSetAttribute((const void *)touch_shared,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                100 * 1024) == cudaSuccess &&
               is_launched(stream, dim3(1), 32, 100 * 1024) &&
               !is_launched(stream, dim3(1), 32, 100 * 1024 + 1),
           "and then there is as much");
    expect(cudaFuncSetAttribute((const void *)touch_shared,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                228 * 1024) != cudaSuccess,
           "228 KiB are more than there are");
    (void)cudaGetLastError();
    TY_LAUNCH_GRID(touch_shared, dim3(4), 1, 64, stream, &is_poisoned, 64u);
    expect(is_poisoned, "a block finds nothing of the one before in shared memory");
}

/* ---- Memory ---- */

/* The exit of a child that accesses device memory. */
int touched(int *on_device, cudaStream_t stream)
{
    int outcome = 0, pinned_value = 0;
    const pid_t child = fork();

    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (stream != nullptr) { /* by a launch and a copy */
            launch_add(stream, on_device, 1);
            cudaMemcpyAsync(&pinned_value, on_device, sizeof pinned_value, cudaMemcpyDeviceToHost,
                            stream);
        } else {
            *(volatile int *)on_device = 1;
        }
        _exit(0);
    }
    waitpid(child, &outcome, 0);
    return WIFSIGNALED(outcome) ? WTERMSIG(outcome) : WEXITSTATUS(outcome);
}

void memory_check(cudaStream_t stream, int *on_device)
{
    const int key = pkey_alloc(0, 0);

    expect(touched(on_device, stream) == 0, "launches and copies touch device memory");
    if (key < 0) {
        printf("no keys of protection here: device memory is not guarded\n");
        return;
    }
    pkey_free(key);
#if !defined(__SANITIZE_ADDRESS__)
    expect(touched(on_device, nullptr) == SIGSEGV, "the host does not");
#endif
}

int main()
{
    cudaStream_t stream, other;
    void *on_device, *pinned;

    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaMalloc(&on_device, sizeof(int));
    cudaHostAlloc(&pinned, sizeof(int), cudaHostAllocDefault);
    replay_check(stream, (int *)on_device, (int *)pinned);
    forbidden_check(stream, other, (int *)on_device);
    events_check(stream);
    launches_check(stream);
    memory_check(stream, (int *)on_device);
    cudaFree(on_device);
    cudaFreeHost(pinned);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
    printf("%d failed\n", failures);
    return failures > 0;
}
