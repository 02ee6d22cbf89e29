/*
 * Bytes that launches state to read and write (TY_MOVES) against their accesses. The kernels are
 * compiled for the thread sanitizer, whose functions this program replaces, so that it sees every
 * access. A byte counts as read if it is read before the launch has written it.
 */
#include "emulated_counts.h"
#include "emulator.h"

#include "cuda_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace
{
enum : size_t { ARENA_BYTES = 8 << 20, ALIGNMENT = 256 };
enum : unsigned char { READ = 1, WRITTEN = 2 };

alignas(ALIGNMENT) unsigned char arena[ARENA_BYTES];
unsigned char marks[ARENA_BYTES];
size_t used; /* of the arena */
int failures, launches;

/* The current launch, and its stated bytes. */
struct {
    std::string name;
    bool is_open, is_stated;
    uint64_t read, written;
} now;
std::string of; /* the case */

void note(const void *address, size_t bytes, unsigned char mark)
{
    const uintptr_t at = (uintptr_t)address, first = (uintptr_t)arena;

    if (at < first || at + bytes > first + used)
        return; /* shared memory, stacks, arguments */
    for (size_t i = at - first; i < at - first + bytes; i++)
        if (mark == WRITTEN || (marks[i] & WRITTEN) == 0)
            marks[i] |= mark;
}

void finish()
{
    uint64_t read = 0, written = 0;

    if (!now.is_open)
        return;
    for (size_t i = 0; i < used; i++) {
        read += (marks[i] & READ) != 0;
        written += (marks[i] & WRITTEN) != 0;
        marks[i] = 0;
    }
    const bool is_right = now.is_stated && now.read == read && now.written == written;
    if (!is_right)
        printf("FAIL %s: %s says %ld and %ld bytes, reads %ld and writes %ld\n", of.c_str(),
               now.name.c_str(), now.is_stated ? (long)now.read : -1L,
               now.is_stated ? (long)now.written : -1L, (long)read, (long)written);
    failures += !is_right;
    launches++;
    now.is_open = false;
}

void begin(const char *name, bool is_stated, uint64_t read, uint64_t written)
{
    finish();
    now = {name, true, is_stated, read, written};
}

/* Numbers that differ and are close to 1. */
void *take(size_t bytes)
{
    void *made = arena + used;

    used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (used > ARENA_BYTES)
        abort();
    return made;
}

float *floats(size_t count)
{
    float *made = (float *)take(count * sizeof *made);

    for (size_t i = 0; i < count; i++)
        made[i] = (float)(i * 7 % 13) * 0.1f + 0.1f;
    return made;
}

int32_t *integers(size_t count)
{
    int32_t *made = (int32_t *)take(count * sizeof *made);

    for (size_t i = 0; i < count; i++)
        made[i] = (int32_t)i;
    return made;
}

/* In the type under test; all bit patterns are numbers as floats and as 16 bits. */
cuda_type type;
void *activations(size_t count)
{
    if (type == CUDA_TYPE_FLOAT)
        return floats(count);
    uint16_t *made = (uint16_t *)take(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = (uint16_t)(0x3f00 + i * 7 % 13 * 16);
    return made;
}

void check(const char *what, const std::function<void()> &run)
{
    for (cuda_type each : {CUDA_TYPE_FLOAT, CUDA_TYPE_BF16}) {
        type = each;
        of = std::string(what) + (each == CUDA_TYPE_FLOAT ? ", floats" : ", bf16");
        used = 0;
        run();
        finish();
    }
}

enum { ROWS = 37, N = 70, STRIDE = 72, COUNT = ROWS * N };

void elements()
{
    for (bool adds : {false, true}) {
        check(adds ? "sums of elements" : "elements", [=] {
            void *x = activations(COUNT), *y = activations(COUNT), *z = activations(COUNT);
            float *f = floats(COUNT);
            cuda_convert(type, x, CUDA_TYPE_FLOAT, f, COUNT, nullptr);
            cuda_convert(CUDA_TYPE_FLOAT, f, type, x, COUNT, nullptr);
            cuda_accumulate(type, COUNT, x, adds, y, nullptr);
            cuda_accumulate_float(type, COUNT, x, adds, f, nullptr);
            cuda_take_floats(type, COUNT, f, adds, y, nullptr);
            cuda_activate_backward(type, CUDA_GELU, COUNT, x, y, adds, z, nullptr);
            cuda_copy_rows(type, ROWS, 8, x, N, adds, y, N, nullptr);
            cuda_column_sums(type, ROWS, N - 3, N, x, adds, f, floats(COUNT), nullptr);
            cuda_column_sums(type, ROWS, N - 6, N - 2, x, adds, f, floats(COUNT), nullptr);
        });
    }
    check("pairs and gates", [] {
        void *x = activations(2 * COUNT), *y = activations(COUNT), *z = activations(2 * COUNT);
        float *f = floats(COUNT);
        cuda_sum(type, COUNT, x, y, false, z, nullptr);
        cuda_activate(type, CUDA_RELU, COUNT, x, y, nullptr);
        cuda_gate(type, ROWS, N, x, y, nullptr);
        cuda_gate_backward(type, ROWS, N, x, y, z, nullptr);
        cuda_add_bias(type, COUNT, N, f, y, nullptr);
        const stage_pieces p = {1, 5, 2, COUNT / 10};
        cuda_to_pieces(type, &p, x, y, nullptr);
        cuda_from_pieces(type, &p, y, x, nullptr);
        cuda_add_part_bias(type, ROWS, N, 3, 20, f, y, nullptr);
    });
}

/* Wide, tall and narrow shapes, and several tiles in either direction. */
void layouts()
{
    for (bool adds : {false, true})
        check("orders of images", [=] {
            enum { MATRICES = 3, MOST = 200 * 70 };
            void *x = activations(MATRICES * MOST), *y = activations(MATRICES * MOST);
            float *f = floats(MATRICES * MOST);
            const uint64_t sides[][2] = {{200, 70}, {3, 4000}, {4000, 3}, {1, 50}, {33, 31}};
            for (const auto &side : sides) {
                cuda_transpose(type, MATRICES, side[0], side[1], x, type, adds, y, nullptr);
                cuda_transpose(type, MATRICES, side[0], side[1], x, CUDA_TYPE_FLOAT, adds, f,
                               nullptr);
                cuda_transpose(CUDA_TYPE_FLOAT, MATRICES, side[0], side[1], f, type, adds, x,
                               nullptr);
            }
            cuda_filter_permute(type, 5, 70, 9, x, y, nullptr);
            cuda_filter_gradient(type, 5, 70, 9, x, adds, f, nullptr);
        });
}

/* As many columns as tiles of any number of rows have, and more than the kernel for all gradients
 * supports; one band of rows and several. */
void norms()
{
    const uint64_t sizes[][2] = {{ROWS, N}, {100, 70}, {3, 700}, {37, 1500}, {9, 3000}, {5, 12100}};

    for (const auto &size : sizes)
        for (bool is_rms : {false, true})
            check(is_rms ? "rms norm" : "norm", [=] {
                const uint64_t rows = size[0], n = size[1];
                void *x = activations(rows * n), *y = activations(rows * n);
                void *dx = activations(rows * n);
                float *gain = floats(n), *shift = is_rms ? nullptr : floats(n);
                float *dgain = floats(n), *dshift = is_rms ? nullptr : floats(n);
                float *statistics = floats(2 * rows);
                float *scratch = floats(cuda_norm_scratch(is_rms, rows, n));
                cuda_norm(type, is_rms, rows, n, x, nullptr, nullptr, gain, shift, y, statistics,
                          nullptr);
                cuda_norm(type, is_rms, rows, n, y, dx, x, gain, shift, y, statistics, nullptr);
                for (bool adds : {false, true}) {
                    cuda_norm_backward(type, is_rms, rows, n, x, gain, statistics, y, dgain, dshift,
                                       adds, adds, dx, scratch, nullptr);
                    cuda_norm_backward(type, is_rms, rows, n, x, gain, statistics, y, dgain, dshift,
                                       adds, adds, nullptr, scratch, nullptr);
                    cuda_norm_backward(type, is_rms, rows, n, x, gain, statistics, y, nullptr,
                                       nullptr, adds, adds, dx, scratch, nullptr);
                }
            });
}

/* Fewer channels than a warp has threads, as many as several warps have, and more; one row and
 * several bands of rows. A relu passes everything. */
void batch_norms()
{
    const uint64_t sizes[][2] = {{2000, 3}, {1, 70}, {700, 70}, {40, 2048}};

    for (const auto &size : sizes)
        check("batch norm", [=] {
            const uint64_t rows = size[0], channels = size[1], all = rows * channels;
            void *x = activations(all), *y = activations(all), *dx = activations(all);
            void *dy = activations(all), *other = activations(all);
            float *gain = floats(channels), *shift = floats(channels);
            std::fill(shift, shift + channels, 1e6f);
            float *running = floats(2 * channels), *statistics = floats(3 * channels);
            float *dgain = floats(channels), *dshift = floats(channels);
            float *scratch = floats(cuda_batch_norm_scratch(rows, channels));
            for (const float *given : {(const float *)nullptr, (const float *)running})
                for (const void *summand : {(const void *)nullptr, (const void *)other})
                    cuda_batch_norm(type, rows, channels, x, gain, shift, given, summand, false, y,
                                    statistics, scratch, nullptr);
            for (bool adds : {false, true})
                for (bool is_given : {false, true})
                    for (const void *sum : {(const void *)nullptr, (const void *)y})
                        cuda_batch_norm_backward(
                            type, rows, channels, x, gain, adds && sum == nullptr ? shift : nullptr,
                            sum, statistics, is_given, dy, dgain, dshift, adds,
                            adds ? running : nullptr, adds, dx, scratch, nullptr);
            for (bool is_given : {false, true}) {
                cuda_batch_norm_backward(type, rows, channels, x, gain, shift, nullptr, statistics,
                                         is_given, dy, nullptr, nullptr, false, nullptr, false, dx,
                                         scratch, nullptr);
                cuda_batch_norm_backward(type, rows, channels, x, gain, nullptr, y, statistics,
                                         is_given, dy, nullptr, nullptr, false, nullptr, false, dx,
                                         scratch, nullptr);
            }
            cuda_batch_norm_backward(type, rows, channels, x, gain, nullptr, nullptr, statistics,
                                     false, dy, dgain, dshift, true, running, false, nullptr,
                                     scratch, nullptr);
        });
}

void images()
{
    for (unsigned i = 0; i < 4; i++) {
        const bool is_average = i % 2 != 0;
        const unsigned channels = i < 2 ? 3 : 8; /* the latter 16 bytes at a time */
        check(is_average ? "averages" : "maxima", [=] {
            const cuda_pool p = {2,
                                 {.channels = channels,
                                  .in_height = 8,
                                  .in_width = 10,
                                  .out_height = 4,
                                  .out_width = 5,
                                  .height = 2,
                                  .width = 2,
                                  .stride = 2,
                                  .is_average = is_average}};
            void *x = activations(160 * channels), *y = activations(40 * channels),
                 *dx = activations(160 * channels);
            void *dy = activations(40 * channels);
            for (unsigned i = 0; i < 160 * channels; i++) /* rising in both directions */
                if (type == CUDA_TYPE_FLOAT)
                    ((float *)x)[i] = (float)i;
                else
                    ((uint16_t *)x)[i] = (uint16_t)(0x3f00 + i);
            cuda_pool_forward(type, &p, x, y, nullptr);
            cuda_pool_backward(type, &p, x, y, dy, true, dx, nullptr);
        });
    }
}

void words()
{
    check("embedding",
          [] { /* each word once */
               enum { BATCH = 3, LENGTH = 5, PLACES = BATCH * LENGTH, FEATURES = 12 };
               cuda_embedding_part p = {};
               p.count = PLACES;
               p.length = LENGTH;
               p.features = p.own_features = FEATURES;
               p.runs.count = 1;
               p.runs.length = LENGTH;
               p.words = 40;
               float *table = floats(40 * FEATURES), *positions = floats(LENGTH * FEATURES);
               int32_t *tokens = integers(PLACES), *order = integers(PLACES);
               int32_t *starts = integers(PLACES + 1), *words = integers(PLACES),
                       *count = integers(1);
               void *y = activations(PLACES * FEATURES);
               const cuda_token_groups groups = {order, starts, words, count};
               *count = PLACES;
               cuda_embedding(type, &p, tokens, table, positions, y, nullptr);
               cuda_embedding_backward(type, &p, &groups, PLACES, y, table, positions, nullptr);
          });
    check("cross entropy", [] {
        const cuda_scores s = {.rows = ROWS, .classes = N, .stride = STRIDE, .first = 0, .own = N};
        void *logits = activations(ROWS * STRIDE), *dx = activations(ROWS * STRIDE);
        int32_t *labels = integers(ROWS), *best = integers(ROWS);
        float *log_sums = floats(ROWS), *row_loss = floats(ROWS), *scale = floats(1);
        cuda_loss *loss = (cuda_loss *)take(sizeof *loss);
        cuda_cross_entropy(type, &s, logits, labels, log_sums, row_loss, best, loss, nullptr);
        for (bool adds : {false, true})
            cuda_cross_entropy_backward(type, &s, logits, labels, log_sums, scale, adds, dx,
                                        nullptr);
        cuda_cross_entropy_backward(type, &s, logits, labels, log_sums, scale, false, logits,
                                    nullptr);
    });
}

void attention()
{
    for (bool is_causal : {false, true})
        check(is_causal ? "causal attention" : "attention", [=] {
            enum { BATCH = 2, LENGTH = 40, HEADS = 4, KEY_HEADS = 2, SIZE = 16 };
            enum { WIDTH = (HEADS + 2 * KEY_HEADS) * SIZE, CONTEXT = HEADS * SIZE };
            cuda_attention a = {};
            a.batch = BATCH;
            a.length = a.keys = LENGTH;
            a.heads = HEADS;
            a.kv_heads = KEY_HEADS;
            a.head_size = SIZE;
            a.runs.count = 1;
            a.runs.length = LENGTH;
            a.stride = a.key_stride = WIDTH;
            a.key_at = CONTEXT;
            a.value_at = CONTEXT + KEY_HEADS * SIZE;
            a.context_stride = CONTEXT;
            a.scale = 0.25f;
            a.is_causal = is_causal;
            if (!cuda_attention_tiles(type, 48 * 1024, &a))
                abort();
            void *x = activations(BATCH * LENGTH * WIDTH),
                 *dx = activations(BATCH * LENGTH * WIDTH);
            void *context = activations(BATCH * LENGTH * CONTEXT);
            void *dcontext = activations(BATCH * LENGTH * CONTEXT);
            float *log_sums = floats(BATCH * HEADS * LENGTH),
                  *delta = floats(BATCH * HEADS * LENGTH);
            const cuda_rotary r = {.batch = BATCH,
                                   .length = LENGTH,
                                   .heads = HEADS + KEY_HEADS,
                                   .head_size = SIZE,
                                   .stride = WIDTH,
                                   .runs = a.runs,
                                   .log2_base = 13,
                                   .is_back = false};
            cuda_rotate(type, &r, x, nullptr);
            cuda_attention_forward(type, &a, x, x, context, log_sums, nullptr);
            cuda_attention_backward(type, &a, x, x, context, log_sums, dcontext, delta, dx, dx,
                                    nullptr, nullptr);
        });
}

void mixtures()
{
    check("mixtures of experts",
          [] { /* rows of each expert without padding */
               enum { TOKENS = 64, EXPERTS = 4, CHOSEN = 2, COPIES = TOKENS * CHOSEN, WIDTH = 12 };
               const cuda_mixture m = {
                   .rows = TOKENS, .experts = EXPERTS, .chosen = CHOSEN, .features = WIDTH};
               float *scores = floats(TOKENS * EXPERTS), *weight = floats(COPIES),
                     *gain = floats(COPIES);
               int32_t *choice = integers(COPIES), *place = integers(COPIES),
                       *copy_of = integers(COPIES);
               int32_t *starts = integers(EXPERTS + 1);
               void *x = activations(TOKENS * WIDTH), *copies = activations(COPIES * WIDTH);
               void *dscores = activations(TOKENS * 8), *part = activations(TOKENS * 4);
               for (int i = 0; i < TOKENS * EXPERTS; i++) /* the same number of tokens for each
                                                           * expert */
                   scores[i] = (float)((i + i / EXPERTS) % EXPERTS);
               cuda_route(&m, scores, choice, weight, nullptr);
               cuda_experts_place(&m, choice, starts, place, copy_of, nullptr);
               cuda_copies_take(type, &m, COPIES, copy_of, nullptr, x, copies, nullptr);
               cuda_copies_take(type, &m, COPIES, copy_of, weight, x, copies, nullptr);
               for (bool adds : {false, true})
                   cuda_copies_sum(type, &m, place, adds ? weight : nullptr, copies, adds, x,
                                   nullptr);
               cuda_copy_gains(type, &m, place, copies, x, gain, nullptr);
               cuda_scores_gradient(type, &m, choice, weight, gain, 8, dscores, nullptr);
               cuda_columns_take(type, TOKENS, WIDTH, 4, 4, x, part, nullptr);
               cuda_columns_put(type, TOKENS, WIDTH, 4, 4, part, x, nullptr);
          });
}

void additive()
{
    for (bool adds : {false, true})
        check("additive attention", [=] {
            const cuda_additive a = {
                .batch = 3, .length = 5, .keys = 7, .features = 20, .hidden = 40};
            const uint64_t rows = a.batch * a.length, keys = a.batch * a.keys;
            float *v = floats(a.hidden), *gain = floats(1), *u = floats(a.hidden);
            float *dv = floats(a.hidden), *dgain = floats(1), *du = floats(rows * a.hidden);
            float *p = floats(rows * a.keys), *dscores = floats(rows * a.keys);
            void *q = activations(rows * a.hidden), *k = activations(keys * a.hidden);
            void *dq = activations(rows * a.hidden), *dk = activations(keys * a.hidden);
            void *memory = activations(keys * a.features), *y = activations(rows * a.features);
            cuda_additive_vector(a.hidden, v, gain, u, nullptr);
            cuda_additive_vector_gradients(a.hidden, v, gain, u, adds, dv, dgain, nullptr);
            cuda_additive_forward(type, &a, u, q, k, memory, p, y, nullptr);
            cuda_additive_backward(type, &a, u, q, k, memory, p, y, dscores, dq, dk, du, nullptr);
            cuda_additive_memory(type, &a, p, y, adds, activations(keys * a.features), nullptr);
        });
}

void updates()
{
    check("updates", [] {
        uint64_t *parts = (uint64_t *)take(2 * sizeof *parts);
        float *w = floats(COUNT), *g = floats(COUNT), *state = floats(2 * COUNT);
        const cuda_copy copy = {activations(COUNT), 1, parts, parts + 1};
        cuda_update u = {};
        parts[0] = parts[1] = 0;
        for (bool is_adamw : {false, true}) {
            u.is_adamw = is_adamw;
            cuda_update_step(type, &u, 0, COUNT, w, g, state, &copy, nullptr);
        }
        u.is_adamw = false;
        cuda_update_step(type, &u, 0, COUNT, w, g, nullptr, nullptr, nullptr);
        cuda_copy_make(type, &copy, 0, COUNT, w, nullptr);
        cuda_squares(COUNT, w, (double *)take(CUDA_SQUARE_PARTS * sizeof(double)), nullptr);
        cuda_divide(COUNT, 3, w, nullptr);
        cuda_unscale(COUNT, 3, floats(COUNT), integers(1), nullptr);
    });
}
} // namespace

/* ---- Functions called by code compiled for the thread sanitizer ---- */

extern "C" {
#define ACCESS(bytes)                                                                              \
    void __tsan_read##bytes(void *at);                                                             \
    void __tsan_read##bytes(void *at)                                                              \
    {                                                                                              \
        note(at, bytes, READ);                                                                     \
    }                                                                                              \
    void __tsan_write##bytes(void *at);                                                            \
    void __tsan_write##bytes(void *at)                                                             \
    {                                                                                              \
        note(at, bytes, WRITTEN);                                                                  \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *at);                                                   \
    void __tsan_unaligned_read##bytes(void *at)                                                    \
    {                                                                                              \
        note(at, bytes, READ);                                                                     \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *at);                                                  \
    void __tsan_unaligned_write##bytes(void *at)                                                   \
    {                                                                                              \
        note(at, bytes, WRITTEN);                                                                  \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *);
void __tsan_func_entry(void *)
{
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_read_range(void *at, unsigned long bytes)
{
    note(at, bytes, READ);
}

void __tsan_write_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes)
{
    note(at, bytes, WRITTEN);
}

/* Atomics need no order here: a single thread runs everything. */
#define FETCH_ADD(bits, type)                                                                      \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int);                      \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int)                       \
    {                                                                                              \
        const type before = *at;                                                                   \
        note((const void *)at, sizeof *at, READ);                                                  \
        note((const void *)at, sizeof *at, WRITTEN);                                               \
        *at = before + value;                                                                      \
        return before;                                                                             \
    }
FETCH_ADD(32, uint32_t)
FETCH_ADD(64, uint64_t)

uint64_t __tsan_atomic64_load(const volatile uint64_t *at, int);
uint64_t __tsan_atomic64_load(const volatile uint64_t *at, int)
{
    note((const void *)at, sizeof *at, READ);
    return *at;
}

int __tsan_atomic64_compare_exchange_weak(volatile uint64_t *at, uint64_t *expected, uint64_t value,
                                          int, int);
int __tsan_atomic64_compare_exchange_weak(volatile uint64_t *at, uint64_t *expected, uint64_t value,
                                          int, int)
{
    const bool is_same = *at == *expected;

    note((const void *)at, sizeof *at, READ);
    if (is_same) {
        note((const void *)at, sizeof *at, WRITTEN);
        *at = value;
    } else {
        *expected = *at;
    }
    return is_same;
}
}

int main()
{
    emulated_counts_watch(begin);
    elements();
    layouts();
    norms();
    batch_norms();
    images();
    words();
    attention();
    mixtures();
    additive();
    updates();
    printf("%d launches\n%d failed\n", launches, failures);
    return failures > 0;
}
