/*
 * Races that the thread sanitizer finds in emulated kernels. Each inserted race runs in a process
 * of its own and must be reported; the correct version next to it must not. Then kernels of the
 * backend.
 */
#include "emulator.h"

#include "cuda_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mma.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{
enum { THREADS = 64, BLOCKS = 4, COUNT = THREADS * BLOCKS, REPORTED = 66 };
int failures;

struct device {
    cudaStream_t first = nullptr, second = nullptr;
    float *a = nullptr, *b = nullptr;

    device()
    {
        cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
        cudaMalloc((void **)&a, COUNT * sizeof *a);
        cudaMalloc((void **)&b, COUNT * sizeof *b);
        cudaMemsetAsync(a, 0, COUNT * sizeof *a, first);
        cudaMemsetAsync(b, 0, COUNT * sizeof *b, first);
        cudaStreamSynchronize(first);
    }
};

/* ---- Kernels, right and wrong ---- */

void shift_in_shared(float *x, bool has_barrier)
{
    __shared__ float all[THREADS];

    all[threadIdx.x] = x[threadIdx.x];
    if (has_barrier)
        __syncthreads();
    x[threadIdx.x] = all[(threadIdx.x + 1) % THREADS];
}

/* A barrier of a warp does not synchronize the other warps of the block. */
void shift_behind_warps(float *x, bool is_of_block)
{
    __shared__ float all[THREADS];

    all[threadIdx.x] = x[threadIdx.x];
    if (is_of_block)
        __syncthreads();
    else
        __syncwarp();
    x[threadIdx.x] = all[(threadIdx.x + 32) % THREADS];
}

void write_element(float *x, unsigned shift)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;

    x[i] = 1;
    if (shift > 0) /* another block's */
        x[(i + shift) % COUNT] = 2;
}

void count(unsigned *sum, bool is_atomic)
{
    if (is_atomic)
        atomicAdd(sum, 1u);
    else
        *sum += 1;
}

void copy(const float *from, float *to)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;

    to[i] = from[i];
}

void two_in_one_place(float *x, bool is_one)
{
    float value = 1;

    value += __shfl_xor_sync(0xffffffffu, value, 1);
    x[is_one ? 0 : threadIdx.x] = value;
}

/* The stand-in for <mma.h> synchronizes the warp before it stores, not after that. */
void store_part(float *x, bool has_barrier)
{
    using namespace nvcuda::wmma;
    alignas(32) __shared__ float part[256];
    fragment<accumulator, 16, 16, 16, float> sum;

    fill_fragment(sum, 1.0f);
    store_matrix_sync(part, sum, 16, mem_row_major);
    if (has_barrier)
        __syncwarp();
    x[threadIdx.x] = part[threadIdx.x + 1];
}

/* ---- Cases ---- */

/* Runs in a child, which the sanitizer ends with its code after a report. */
bool is_reported(const std::function<void()> &run)
{
    int outcome = 0;
    const pid_t child = fork();

    if (child == 0) {
        run();
        exit(0);
    }
    waitpid(child, &outcome, 0);
    if (!WIFEXITED(outcome) || (WEXITSTATUS(outcome) != 0 && WEXITSTATUS(outcome) != REPORTED)) {
        printf("FAIL the case ended with status %d\n", outcome);
        failures++;
    }
    return WIFEXITED(outcome) && WEXITSTATUS(outcome) == REPORTED;
}

void expect(const char *what, bool is_race, const std::function<void()> &run)
{
    const bool is_found = is_reported(run);

    printf("%s %s: %s\n", is_found == is_race ? "ok  " : "FAIL", what,
           is_found ? "a race" : "no race");
    fflush(stdout);
    failures += is_found != is_race;
}

void planted(const char *what, const std::function<void(device &, bool)> &run)
{
    for (bool is_right : {true, false})
        expect((std::string(what) + (is_right ? ", right" : ", planted")).c_str(), !is_right, [&] {
            device d;
            run(d, is_right);
            cudaStreamSynchronize(d.first);
            cudaStreamSynchronize(d.second);
        });
}

std::vector<float *> floats(std::initializer_list<size_t> counts)
{
    std::vector<float *> made;

    for (size_t n : counts) {
        float *x = nullptr;
        cudaMalloc((void **)&x, n * sizeof *x);
        for (size_t i = 0; i < n; i++)
            x[i] = (float)(i * 7 % 13) * 0.1f - 0.5f;
        made.push_back(x);
    }
    return made;
}

void attention(const char *what, cuda_type type)
{
    expect(what, false, [=] {
        enum { LENGTH = 40, HEADS = 2, SIZE = 16, WIDTH = HEADS * SIZE };
        device d;
        const auto x = floats({LENGTH * 3 * WIDTH, LENGTH * WIDTH, HEADS * LENGTH, LENGTH * WIDTH,
                               HEADS * LENGTH, LENGTH * 3 * WIDTH});
        /* The queries of the first row end where its keys begin. */
        const auto behind = [=](float *rows) {
            return (char *)rows + WIDTH * (type == CUDA_TYPE_FLOAT ? 4 : 2);
        };
        cuda_attention a = {};
        a.batch = 1;
        a.length = a.keys = LENGTH;
        a.heads = a.kv_heads = HEADS;
        a.head_size = SIZE;
        a.runs.count = 1;
        a.runs.length = LENGTH;
        a.stride = a.key_stride = 3 * WIDTH;
        a.key_at = 0;
        a.value_at = WIDTH;
        a.context_stride = WIDTH;
        a.scale = 0.25f;
        a.is_causal = true;
        if (!cuda_attention_tiles(type, 48 * 1024, &a))
            exit(1);
        cuda_attention_forward(type, &a, x[0], behind(x[0]), x[1], x[2], d.first);
        cuda_attention_backward(type, &a, x[0], behind(x[0]), x[1], x[2], x[3], x[4], x[5],
                                behind(x[5]), nullptr, d.first);
        cudaStreamSynchronize(d.first);
    });
}

void kernels()
{
    enum { ROWS = 37, N = 70 };

    /* Several tiles of a band, several bands; several rows a thread, and several warps a row. */
    const size_t sizes[][2] = {{ROWS, N}, {150, 40}, {20, 1500}, {7, 5000}};
    for (const auto &size : sizes)
        expect("norm and its backward", false, [=] {
            device d;
            const size_t rows = size[0], n = size[1], all = rows * n;
            const auto x = floats({all, n, n, all, 2 * rows, all, n, n, all,
                                   cuda_norm_scratch(false, rows, n), all, all});
            cuda_norm(CUDA_TYPE_FLOAT, false, rows, n, x[10], x[11], x[0], x[1], x[2], x[3], x[4],
                      d.first);
            for (float *dx : {x[8], (float *)nullptr})
                cuda_norm_backward(CUDA_TYPE_FLOAT, false, rows, n, x[0], x[1], x[4], x[5], x[6],
                                   x[7], false, false, dx, x[9], d.first);
            cudaStreamSynchronize(d.first);
        });
    for (bool is_sum : {false, true})
        expect("batch norm and its backward", false, [=] {
            device d;
            enum { PIXELS = 300, CHANNELS = 35, ALL = PIXELS * CHANNELS };
            const auto x =
                floats({ALL, CHANNELS, CHANNELS, ALL, 3 * CHANNELS, ALL, CHANNELS, CHANNELS, ALL,
                        cuda_batch_norm_scratch(PIXELS, CHANNELS), ALL, 2 * CHANNELS});
            cuda_batch_norm(CUDA_TYPE_FLOAT, PIXELS, CHANNELS, x[0], x[1], x[2], nullptr,
                            is_sum ? x[10] : nullptr, true, x[3], x[4], x[9], d.first);
            cuda_batch_norm_backward(CUDA_TYPE_FLOAT, PIXELS, CHANNELS, x[0], x[1],
                                     is_sum ? nullptr : x[2], is_sum ? x[3] : nullptr, x[4], false,
                                     x[5], x[6], x[7], false, x[11], false, x[8], x[9], d.first);
            cudaStreamSynchronize(d.first);
        });
    expect("images in another order", false, [] {
        device d;
        const auto x = floats({2 * 70 * 40, 2 * 70 * 40});
        cuda_transpose(CUDA_TYPE_FLOAT, 2, 70, 40, x[0], CUDA_TYPE_FLOAT, true, x[1], d.first);
        cudaStreamSynchronize(d.first);
    });
    expect("sums of columns and squares", false, [] {
        device d;
        const auto x = floats({ROWS * N, N, cuda_column_sums_scratch(ROWS, N), 4096});
        cuda_column_sums(CUDA_TYPE_FLOAT, ROWS, N, N, x[0], false, x[1], x[2], d.first);
        cuda_squares(ROWS * N, x[0], (double *)(void *)x[3], d.first);
        cudaStreamSynchronize(d.first);
    });
    expect("cross entropy and its backward", false, [] {
        device d;
        const auto x = floats({ROWS * N, ROWS, ROWS, ROWS, ROWS, ROWS * N, 16, 1});
        const cuda_scores s = {.rows = ROWS, .classes = N, .stride = N, .first = 0, .own = N};
        auto *labels = (int32_t *)(void *)x[4];
        for (int r = 0; r < ROWS; r++)
            labels[r] = r % N;
        cuda_cross_entropy(CUDA_TYPE_FLOAT, &s, x[0], labels, x[1], x[2], (int32_t *)(void *)x[3],
                           (cuda_loss *)(void *)x[6], d.first);
        cuda_cross_entropy_backward(CUDA_TYPE_FLOAT, &s, x[0], labels, x[1], x[7], false, x[5],
                                    d.first);
        cuda_cross_entropy_backward(CUDA_TYPE_FLOAT, &s, x[0], labels, x[1], x[7], false, x[0],
                                    d.first);
        cudaStreamSynchronize(d.first);
    });
    attention("attention and its backward", CUDA_TYPE_FLOAT);
    attention("attention and its backward in bf16", CUDA_TYPE_BF16);
}
} // namespace

int main()
{
    planted("shared memory behind a barrier", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(shift_in_shared, dim3(1), THREADS, 0, d.first, d.a, is_right);
    });
    planted("shared memory between warps", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(shift_behind_warps, dim3(1), THREADS, 0, d.first, d.a, is_right);
    });
    planted("elements of other blocks", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(write_element, dim3(BLOCKS), THREADS, 0, d.first, d.a,
                       is_right ? 0u : (unsigned)THREADS);
    });
    planted("a sum of all threads", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(count, dim3(BLOCKS), THREADS, 0, d.first, (unsigned *)(void *)d.a, is_right);
    });
    planted("one place of a block's threads", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(two_in_one_place, dim3(1), THREADS, 0, d.first, d.a, !is_right);
    });
    planted("a part that a warp stored", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(store_part, dim3(1), 32, 0, d.first, d.a, is_right);
    });
    planted("two streams without a wait", [](device &d, bool is_right) {
        TY_LAUNCH_GRID(copy, dim3(BLOCKS), THREADS, 0, d.first, d.a, d.b);
        if (is_right)
            cudaStreamSynchronize(d.first);
        TY_LAUNCH_GRID(write_element, dim3(BLOCKS), THREADS, 0, d.second, d.b, 0u);
    });
    planted("an event that is awaited", [](device &d, bool is_right) {
        cudaEvent_t event = nullptr;
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        if (!is_right) /* before the kernel instead of after it */
            cudaEventRecord(event, d.first);
        TY_LAUNCH_GRID(write_element, dim3(BLOCKS), THREADS, 0, d.first, d.a, 0u);
        if (is_right)
            cudaEventRecord(event, d.first);
        while (cudaEventQuery(event) == cudaErrorNotReady)
            ;
        TY_LAUNCH_GRID(copy, dim3(BLOCKS), THREADS, 0, d.second, d.a, d.b);
    });
    planted("memory that the host reads", [](device &d, bool is_right) {
        static volatile float seen;
        TY_LAUNCH_GRID(write_element, dim3(BLOCKS), THREADS, 0, d.first, d.a, 0u);
        if (is_right)
            cudaStreamSynchronize(d.first);
        seen = d.a[COUNT - 1];
    });
    kernels();
    printf("%d failed\n", failures);
    return failures > 0;
}
