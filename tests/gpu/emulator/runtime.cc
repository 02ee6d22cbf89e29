/*
 * The part of the CUDA runtime that the backend calls. Device memory is host memory; work runs at
 * once, or in threads of the devices (emulated_device.h). While a stream is captured, its work is
 * recorded, with its arguments by value, and runs whenever the graph is launched. Calls that CUDA
 * forbids during a capture (CUDA C++ programming guide, "Prohibited and unhandled operations") fail
 * here, too.
 */
#include "emulated_counts.h"
#include "emulated_device.h"
#include "emulated_queue.h"
#include "emulator.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <vector>

struct graph_node {
    std::function<void()> work;
    emulated_graph_kernel kernel; /* in place of work, for kernels with peers */
};

struct CUgraph_st {
    std::vector<graph_node> nodes;
};

struct CUgraphExec_st {
    std::vector<graph_node> nodes;
};

struct CUstream_st {
    cudaGraph_t recording; /* not NULL: the stream is being captured */
    cudaStreamCaptureMode mode;
    std::thread::id owner; /* the thread that began the capture */
    bool is_invalid;       /* a forbidden call was made meanwhile */
    emulated_queue *queue; /* NULL: work runs at once */
};

struct event_state {
    double at_s = 0;
    std::atomic<bool> is_captured{false}; /* recorded as a node of a graph, which has no time */
    std::atomic<unsigned long> asked{0}, passed{0}; /* records */
};

struct CUevent_st {
    std::shared_ptr<event_state> state; /* pending records outlive the event */
};

namespace
{
/* Guards everything below. Streams are captured by one thread, and used by several. */
std::mutex lock;
std::set<cudaStream_t> captured;
std::map<const char *, size_t> pinned;       /* host memory that graphs may copy from and to */
std::map<const void *, size_t> shared_asked; /* by kernels that need more than the default */
long graphs_alive;
thread_local cudaError_t last_error = cudaSuccess;
thread_local double skipped_s; /* of delays that no thread waited for */

cudaError_t fail(cudaError_t code)
{
    last_error = code;
    return code;
}

/* Whether a capture forbids this thread a call outside its stream; the capture becomes invalid. */
bool is_forbidden()
{
    std::lock_guard<std::mutex> guard(lock);
    bool is_found = false;

    for (cudaStream_t stream : captured) {
        bool is_own = stream->owner == std::this_thread::get_id();
        if (stream->mode == cudaStreamCaptureModeRelaxed ||
            (stream->mode == cudaStreamCaptureModeThreadLocal && !is_own))
            continue;
        stream->is_invalid = is_found = true;
    }
    return is_found;
}

/* Runs the work, records it, or puts it into the stream's queue. */
cudaError_t take(cudaStream_t stream, std::function<void()> work)
{
    if (emulated_device_is_lost())
        return fail(cudaErrorIllegalAddress);
    if (stream != nullptr) {
        std::lock_guard<std::mutex> guard(lock);
        if (stream->recording != nullptr) {
            if (stream->is_invalid)
                return fail(cudaErrorStreamCaptureInvalidated);
            stream->recording->nodes.push_back({std::move(work), {}});
            return cudaSuccess;
        }
    }
    if (stream != nullptr && stream->queue != nullptr)
        emulated_queue_work(stream->queue, std::move(work));
    else {
        const emulated_access access;
        work();
    }
    return cudaSuccess;
}

bool is_capturing(cudaStream_t stream)
{
    std::lock_guard<std::mutex> guard(lock);

    return stream != nullptr && stream->recording != nullptr;
}

cudaError_t capture_spoil(cudaStream_t stream)
{
    std::lock_guard<std::mutex> guard(lock);

    stream->is_invalid = true;
    return fail(cudaErrorStreamCaptureUnsupported);
}

bool is_pinned(const void *memory, size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock);
    const char *first = (const char *)memory;
    auto found = pinned.upper_bound(first);

    if (found == pinned.begin())
        return false;
    --found;
    return first + bytes <= found->first + found->second;
}

double now_s()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* ---- Memory that only devices access ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int device_key()
{
    return -1;
}
#else
/* Each thread has its own rights to this key; -1: the CPU has no keys. */
int device_key()
{
    static const int made = pkey_alloc(0, PKEY_DISABLE_ACCESS);

    return made;
}
#endif

enum : size_t { PAGE = 4096, LARGE = 1 << 20 };

std::map<void *, size_t> guarded; /* device memory, mapped with the key */

struct taken {
    size_t bytes = 0, peak = 0;
    std::map<void *, size_t> blocks;
};
std::map<int, taken> of_devices;

/* The caller of a later free may have another current device. */
void taken_count(void *memory, size_t bytes)
{
    std::lock_guard<std::mutex> guard(lock);
    taken &own = of_devices[emulated_device_current()];

    own.blocks[memory] = bytes;
    own.bytes += bytes;
    own.peak = own.bytes > own.peak ? own.bytes : own.peak;
}

void taken_release(void *memory)
{
    std::lock_guard<std::mutex> guard(lock);

    for (auto &of : of_devices) {
        const auto found = of.second.blocks.find(memory);
        if (found == of.second.blocks.end())
            continue;
        of.second.bytes -= found->second;
        of.second.blocks.erase(found);
        return;
    }
}

void *device_allocate(size_t bytes)
{
    const size_t size = (bytes + PAGE) / PAGE * PAGE;
    void *made;

    if (device_key() < 0)
        return aligned_alloc(256, (bytes + 255) / 256 * 256);
    made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return nullptr;
    if (pkey_mprotect(made, size, PROT_READ | PROT_WRITE, device_key()) != 0) {
        munmap(made, size);
        return nullptr;
    }
    std::lock_guard<std::mutex> guard(lock);
    guarded[made] = size;
    return made;
}

void device_release(void *memory)
{
    size_t size = 0;

    {
        std::lock_guard<std::mutex> guard(lock);
        const auto found = guarded.find(memory);
        if (found != guarded.end()) {
            size = found->second;
            guarded.erase(found);
        }
    }
    if (size > 0)
        munmap(memory, size);
    else
        free(memory);
}

/* A program that ends must have freed its graphs. */
struct leak_check {
    ~leak_check()
    {
        if (graphs_alive != 0)
            printf("FAIL emulator: %ld graphs are left\n", graphs_alive);
    }
} at_end;
} // namespace

emulated_access::emulated_access() : before(device_key() < 0 ? 0 : pkey_get(device_key()))
{
    if (device_key() >= 0)
        pkey_set(device_key(), 0);
}

emulated_access::~emulated_access()
{
    if (device_key() >= 0)
        pkey_set(device_key(), (unsigned)before);
}

static std::atomic<unsigned long> graph_launches;
static thread_local unsigned long graph_launch;

emulated_graph_launch::emulated_graph_launch()
{
    graph_launch = ++graph_launches;
}

emulated_graph_launch::~emulated_graph_launch()
{
    graph_launch = 0;
}

unsigned long emulated_graph_launch::current()
{
    return graph_launch;
}

void emulated_work(cudaStream_t stream, const void *kernel, std::function<void()> work)
{
    if (stream != nullptr && !is_capturing(stream))
        emulated_device_load(stream->queue, kernel);
    (void)take(stream, std::move(work));
}

/* The limits of compute capabilities 8.0 and 9.0 (CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability"); above 48 KiB a kernel has to request shared memory. */
bool emulated_launch_check(const void *kernel, dim3 grid, unsigned threads, size_t shared_bytes)
{
    const size_t unasked = 48 * 1024;
    const bool has_shape = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff &&
                           grid.y <= 65535 && grid.z <= 65535 && threads > 0 && threads <= 1024;
    size_t allowed = unasked;

    {
        std::lock_guard<std::mutex> guard(lock);
        const auto found = shared_asked.find(kernel);
        if (found != shared_asked.end() && found->second > unasked)
            allowed = found->second;
    }
    if (has_shape && shared_bytes <= allowed)
        return true;
    fprintf(stderr,
            "emulator: a launch of %u x %u x %u blocks of %u threads with %zu bytes shared\n",
            grid.x, grid.y, grid.z, threads, shared_bytes);
    (void)fail(has_shape ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration);
    return false;
}

bool emulated_capture(cudaStream_t stream, const emulated_graph_kernel &kernel)
{
    std::lock_guard<std::mutex> guard(lock);

    if (stream->recording == nullptr)
        return false;
    stream->recording->nodes.push_back({{}, kernel});
    return true;
}

emulated_queue *emulated_queue_of(cudaStream_t stream)
{
    return stream->queue;
}

extern "C" {

void emulated_call(cudaStream_t stream, void (*run)(const void *arguments), const void *arguments,
                   size_t bytes)
{
    auto copy = std::make_shared<std::vector<char>>((const char *)arguments,
                                                    (const char *)arguments + bytes);

    if (stream != nullptr && !is_capturing(stream))
        emulated_device_load(stream->queue, (const void *)run);
    (void)take(stream, [=] { run(copy->data()); });
}

int emulated_fault(const char *name)
{
    const char *asked = getenv("TRAINYARD_EMULATED_FAULT");
    const size_t length = strlen(name);

    if (asked == nullptr || strncmp(asked, name, length) != 0)
        return 0;
    return asked[length] == '\0' ||
           (asked[length] == ':' && atoi(asked + length + 1) == emulated_device_current());
}

int emulated_algorithms(void)
{
    const char *asked = getenv("TRAINYARD_EMULATED_ALGORITHMS");

    return asked != nullptr && asked[0] == '1';
}

void emulated_delay(cudaStream_t stream, double seconds)
{
    (void)take(stream, [=] { skipped_s += seconds; });
}

/* ---- Memory ---- */

/* For tests: peak memory of a device since the last call. */
__attribute__((visibility("default"))) uint64_t emulated_memory_peak(int device);
uint64_t emulated_memory_peak(int device)
{
    std::lock_guard<std::mutex> guard(lock);
    taken &own = of_devices[device];
    const uint64_t peak = own.peak;

    own.peak = own.bytes;
    return peak;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (emulated_device_is_lost())
        return fail(cudaErrorIllegalAddress);
    emulated_device_drain("cudaMalloc");
    *out = device_allocate(bytes);
    if (*out == nullptr)
        return fail(cudaErrorMemoryAllocation);
    taken_count(*out, bytes);
    const emulated_access access;
    memset(*out, 0xff, bytes < LARGE ? bytes : LARGE); /* NaN; pages of a workspace are not
                                                        * touched */
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (memory == nullptr)
        return cudaSuccess;
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    emulated_device_drain("cudaFree");
    taken_release(memory);
    device_release(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (emulated_device_is_lost())
        return fail(cudaErrorIllegalAddress);
    emulated_device_drain("cudaHostAlloc");
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (*out == nullptr)
        return fail(cudaErrorMemoryAllocation);
    memset(*out, 0xff, bytes);
    std::lock_guard<std::mutex> guard(lock);
    pinned[(const char *)*out] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    {
        std::lock_guard<std::mutex> guard(lock);
        pinned.erase((const char *)memory);
    }
    if (memory != nullptr)
        emulated_device_drain("cudaFreeHost");
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    const emulated_access access;
    char *first = (char *)(((uintptr_t)memory + PAGE - 1) / PAGE * PAGE);
    char *end = (char *)(((uintptr_t)memory + bytes) / PAGE * PAGE);
    if (value != 0 || bytes < LARGE || madvise(first, (size_t)(end - first), MADV_DONTNEED) != 0)
        first = end = (char *)memory + bytes;
    memset(memory, value, (size_t)(first - (char *)memory));
    memset(end, value,
           (size_t)((char *)memory + bytes - end)); /* around pages that are zero again */
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    if (emulated_call_counted("cudaMemsetAsync", 0, bytes))
        return cudaSuccess;
    return take(stream, [=] { memset(memory, value, bytes); });
}

cudaError_t cudaMemset2DAsync(void *memory, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    if (emulated_call_counted("cudaMemset2DAsync", 0, width * height))
        return cudaSuccess;
    return take(stream, [=] {
        for (size_t row = 0; row < height; row++)
            memset((char *)memory + row * pitch, value, width);
    });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const bool reads = kind != cudaMemcpyHostToDevice, writes = kind != cudaMemcpyDeviceToHost;
    const void *host = kind == cudaMemcpyHostToDevice   ? from
                       : kind == cudaMemcpyDeviceToHost ? to
                                                        : nullptr;

    if (emulated_call_counted("cudaMemcpyAsync", reads ? bytes : 0, writes ? bytes : 0) &&
        host == nullptr)
        return cudaSuccess;
    if (host != nullptr && !is_pinned(host, bytes)) {
        if (is_capturing(stream))
            return capture_spoil(stream);
        if (stream != nullptr && stream->queue != nullptr) { /* through a buffer of the driver's */
            cudaError_t code = cudaStreamSynchronize(stream);
            if (code == cudaSuccess) {
                const emulated_access access;
                memmove(to, from, bytes);
            }
            return code;
        }
    }
    return take(stream, [=] { memmove(to, from, bytes); });
}

/* ---- Streams and graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    if (flags !=
        cudaStreamNonBlocking) /* the others wait for the legacy stream, which is not emulated */
        return fail(cudaErrorNotSupported);
    *out = new CUstream_st{nullptr, cudaStreamCaptureModeGlobal, {}, false, emulated_queue_new()};
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulated_queue_free(stream->queue);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (is_capturing(stream))
        return capture_spoil(stream);
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (stream != nullptr && stream->queue != nullptr)
        emulated_queue_wait(stream->queue);
    return emulated_device_is_lost() ? fail(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    emulated_device_drain("cudaDeviceSynchronize");
    return emulated_device_is_lost() ? fail(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data)
{
    return take(stream, [=] { call(data); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    std::lock_guard<std::mutex> guard(lock);

    if (stream == nullptr || stream->recording != nullptr)
        return fail(cudaErrorIllegalState);
    stream->recording = new CUgraph_st;
    stream->mode = mode;
    stream->owner = std::this_thread::get_id();
    stream->is_invalid = false;
    captured.insert(stream);
    graphs_alive++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    std::lock_guard<std::mutex> guard(lock);

    *out = nullptr;
    if (stream->recording == nullptr)
        return fail(cudaErrorIllegalState);
    if (stream->mode != cudaStreamCaptureModeRelaxed && stream->owner != std::this_thread::get_id())
        return fail(cudaErrorStreamCaptureWrongThread);
    captured.erase(stream);
    if (stream->is_invalid) {
        delete stream->recording;
        stream->recording = nullptr;
        graphs_alive--;
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    *out = stream->recording;
    stream->recording = nullptr;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long)
{
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (emulated_fault("instantiate"))
        return fail(cudaErrorMemoryAllocation);
    *out = new CUgraphExec_st{graph->nodes};
    std::lock_guard<std::mutex> guard(lock);
    graphs_alive++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    std::lock_guard<std::mutex> guard(lock);

    delete graph;
    graphs_alive--;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    std::lock_guard<std::mutex> guard(lock);

    delete graph;
    graphs_alive--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    if (is_capturing(stream))
        return fail(cudaErrorNotSupported); /* a graph in a graph, which the backend does not use */
    if (emulated_fault("launch"))
        return fail(cudaErrorLaunchOutOfResources);
    /* Launched as a unit; kernels without peers are combined into one piece of work. The graph may
     * be freed meanwhile. */
    const emulated_graph_launch launch;
    std::vector<std::function<void()>> works;
    const auto put = [&works, stream] {
        return take(stream, [works] {
            for (const std::function<void()> &work : works)
                work();
        });
    };
    for (const graph_node &node : graph->nodes) {
        if (node.work) {
            works.push_back(node.work);
            continue;
        }
        if (const cudaError_t code = put())
            return code;
        works.clear();
        node.kernel.launch();
    }
    return put();
}

/* ---- Events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = new CUevent_st{std::make_shared<event_state>()};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    const bool is_captured = is_capturing(stream);
    std::shared_ptr<event_state> state = event->state;
    const auto pass = [state] {
        state->at_s = now_s() + skipped_s;
        state->is_captured = false;
    };

    if (is_captured && flags != cudaEventRecordExternal) {
        state->is_captured = true;
        return cudaSuccess;
    }
    if (is_captured) /* each launch is a record */
        return take(stream, [state, pass] {
            state->asked++;
            pass();
            state->passed++;
        });
    /* The time is that of the last requested record, whichever stream reaches it last. */
    const unsigned long record = ++state->asked;
    return take(stream, [state, pass, record] {
        if (state->asked == record)
            pass();
        state->passed++;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->state->is_captured)
        return fail(cudaErrorCapturedEvent);
    if (is_forbidden())
        return fail(cudaErrorStreamCaptureUnsupported);
    if (emulated_device_is_lost())
        return fail(cudaErrorIllegalAddress);
    return event->state->passed == event->state->asked ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (start->state->is_captured || end->state->is_captured)
        return fail(cudaErrorCapturedEvent);
    *milliseconds = (float)((end->state->at_s - start->state->at_s) * 1e3);
    return cudaSuccess;
}

/* ---- The device ---- */

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int ordinal)
{
    emulated_options_read(ordinal);
    memset(properties, 0, sizeof *properties);
    memset(&properties->uuid, ordinal + 1, sizeof properties->uuid);
    strcpy(properties->name, "emulated GPU");
    properties->major = 9;
    properties->totalGlobalMem = (size_t)16 << 30;
    properties->multiProcessorCount = emulated_device_has_room() ? 132 : 1;
    return cudaSuccess;
}

/* The shared memory set by TRAINYARD_EMULATED_SHARED, so that tests reach every tile size. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int)
{
    const char *asked = getenv("TRAINYARD_EMULATED_SHARED");

    *value = asked != nullptr ? atoi(asked) : 227 * 1024;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last_error;

    last_error = cudaSuccess;
    return code;
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default:
        return "emulated failure";
    }
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 227 * 1024)
        return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(lock);
    shared_asked[kernel] = (size_t)value;
    return cudaSuccess;
}
}
