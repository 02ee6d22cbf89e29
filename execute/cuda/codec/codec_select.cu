/*
 * Selects the largest magnitudes, as codec_select.c does. It finds the threshold digit by digit in
 * the magnitudes' bits: the first digit over all elements, the others over the few that share it.
 * Then it packs the chosen elements in the order of their indices, with counts per tile and their
 * prefix sums. Counts are integers, so the order of additions does not matter.
 */
#include "codec_kernel.cuh"

enum { DIGITS = CODEC_DIGITS, LARGEST_DIGIT = CODEC_LARGEST_DIGIT };
enum { THRESHOLDS = CODEC_MOST_LOWERINGS + 1 };
/* Elements packed per warp; more if there would be too many tiles. */
enum { LEAST_TILE = 2048, MOST_TILES = 4096 };

/* State and workspace of a search. Zero when a search begins. */
struct search {
    uint32_t bits;           /* the threshold, or the digits of it found so far */
    uint32_t is_over;        /* the threshold is found */
    unsigned long long rank; /* of the k-th largest among those that share the digits; then the
                                number of selected elements equal to the threshold */
    unsigned long long candidates, taken;
    uint32_t thresholds[THRESHOLDS];        /* from the sample, in descending order */
    unsigned long long reached[THRESHOLDS]; /* number of elements that reach each */
    unsigned histograms[DIGITS][LARGEST_DIGIT];
    uint32_t above[MOST_TILES], equal[MOST_TILES]; /* counts, then sums over the earlier tiles */
};

/* Words at equal distances. */
struct view {
    const uint32_t *words;
    uint64_t first, stride, count;
};

uint64_t cuda_select_workspace(void)
{
    return sizeof(search);
}

static view view_of(const float *values, uint64_t count)
{
    return {(const uint32_t *)values, 0, 1, count};
}

/* ---- The rank-th largest ---- */

static __device__ void digit_count(const search *s, uint32_t word, int digit, unsigned *histogram)
{
    const unsigned above = codec_digit_shift(digit) + codec_digit_bits(digit);
    const uint32_t bits = word & CODEC_MAGNITUDE;

    if (digit == 0 || bits >> above == s->bits >> above)
        atomicAdd(&histogram[codec_digit_of(bits, digit)], 1u);
}

/* Counts digits of the view or, without one, of the candidates. Each block has its own counters:
 * gradients share a few exponents, and all threads of the device would contend for a few
 * counters. */
static __global__ void digits_count(search *s, view from, const uint32_t *candidates, int digit)
{
    __shared__ unsigned counts[LARGEST_DIGIT];
    const uint64_t count = candidates == NULL ? from.count : s->candidates;

    if (s->is_over)
        return;
    for (unsigned d = threadIdx.x; d < LARGEST_DIGIT; d += blockDim.x)
        counts[d] = 0;
    __syncthreads();
    FOR_EACH (i, count)
        digit_count(s,
                    candidates == NULL ? from.words[from.first + i * from.stride] : candidates[i],
                    digit, counts);
    __syncthreads();
    for (unsigned d = threadIdx.x; d < LARGEST_DIGIT; d += blockDim.x)
        if (counts[d] > 0)
            atomicAdd(&s->histograms[digit][d], counts[d]);
}

/* Enough blocks to fill a device, each with many more elements than digits. */
static unsigned digits_grid(uint64_t count)
{
    enum { MOST = 1024, LEAST_EACH = 4 * LARGEST_DIGIT };
    const uint64_t wanted = (count + LEAST_EACH - 1) / LEAST_EACH;

    return wanted < 1 ? 1 : wanted > MOST ? (unsigned)MOST : (unsigned)wanted;
}

/* One thread: at most 4096 steps. */
static __global__ void digit_find(search *s, uint64_t k, int digit)
{
    uint32_t at = (1u << codec_digit_bits(digit)) - 1;
    unsigned long long rank = digit == 0 ? k : s->rank;

    if (s->is_over)
        return;
    while (s->histograms[digit][at] < rank)
        rank -= s->histograms[digit][at--];
    s->rank = rank;
    s->bits = (digit == 0 ? 0 : s->bits) | at << codec_digit_shift(digit);
}

static void digit_search(search *s, view from, const uint32_t *candidates, int digit, uint64_t k,
                         cudaStream_t stream)
{
    TY_LAUNCH(digits_count, digits_grid(from.count), BLOCK, 0, stream, s, from, candidates, digit);
    TY_LAUNCH(digit_find, 1, 1, 0, stream, s, k, digit);
}

/* Collects magnitudes of at least `bits` that, after a first digit, have that digit; in any
 * order. */
static __global__ void candidates_collect(search *s, uint64_t count, const float *values,
                                          bool has_digit, uint32_t *candidates)
{
    const uint32_t least = s->bits;
    const unsigned shift = codec_digit_shift(0);

    if (s->is_over)
        return;
    FOR_EACH (i, count) {
        const uint32_t bits = codec_magnitude(values[i]);
        if (bits >= least && (!has_digit || bits >> shift == least >> shift))
            candidates[atomicAdd(&s->candidates, 1ull)] = bits;
    }
}

void cuda_threshold_exact(void *workspace, uint64_t count, uint64_t k, const float *values,
                          uint32_t *scratch, cudaStream_t stream)
{
    search *s = (search *)workspace;
    const view all = view_of(values, count);

    cudaMemsetAsync(s, 0, sizeof *s, stream);
    digit_search(s, all, NULL, 0, k, stream);
    TY_LAUNCH(candidates_collect, grid_for(count), BLOCK, 0, stream, s, count, values, true,
              scratch);
    for (int digit = 1; digit < DIGITS; digit++)
        digit_search(s, all, scratch, digit, k, stream);
}

/* ---- By a sample ---- */

/* One thread. */
static __global__ void thresholds_set(search *s)
{
    uint32_t bits = s->bits;

    for (int t = 0; t < THRESHOLDS; t++) {
        s->thresholds[t] = bits;
        bits = codec_lowered(bits);
    }
}

static __global__ void reached_count(search *s, uint64_t count, const float *values)
{
    __shared__ unsigned long long sums[THRESHOLDS];
    unsigned own[THRESHOLDS] = {0};

    if (threadIdx.x < THRESHOLDS)
        sums[threadIdx.x] = 0;
    __syncthreads();
    FOR_EACH (i, count) {
        const uint32_t bits = codec_magnitude(values[i]);
#pragma unroll
        for (int t = 0; t < THRESHOLDS; t++)
            own[t] += bits >= s->thresholds[t];
    }
    for (int t = 0; t < THRESHOLDS; t++)
        if (own[t] > 0)
            atomicAdd(&sums[t], (unsigned long long)own[t]);
    __syncthreads();
    if (threadIdx.x < THRESHOLDS)
        atomicAdd(&s->reached[threadIdx.x], sums[threadIdx.x]);
}

/* One thread: chooses the first threshold that enough elements reach, or the last. If more than k
 * reach it, the search for the largest k of those continues. */
static __global__ void threshold_choose(search *s, uint64_t count, uint64_t k)
{
    int t = 0;

    while (t < THRESHOLDS - 1 && !codec_is_enough(s->reached[t], k))
        t++;
    s->bits = s->thresholds[t];
    s->is_over = s->reached[t] <= k;
    s->rank = count;
}

void cuda_threshold_sampled(void *workspace, uint64_t count, uint64_t k, uint32_t key,
                            const float *values, uint32_t *scratch, cudaStream_t stream)
{
    const codec_sample sample = codec_sample_of(count, k, key);
    const view all = view_of(values, count);
    const view few = {all.words, sample.first, sample.stride, sample.count};
    search *s = (search *)workspace;

    cudaMemsetAsync(s, 0, sizeof *s, stream);
    for (int digit = 0; digit < DIGITS; digit++)
        digit_search(s, few, NULL, digit, sample.rank, stream);
    TY_LAUNCH(thresholds_set, 1, 1, 0, stream, s);
    TY_LAUNCH(reached_count, grid_for(count), BLOCK, 0, stream, s, count, values);
    TY_LAUNCH(threshold_choose, 1, 1, 0, stream, s, count, k);
    cudaMemsetAsync(s->histograms, 0, sizeof s->histograms, stream);
    TY_LAUNCH(candidates_collect, grid_for(count), BLOCK, 0, stream, s, count, values, false,
              scratch);
    for (int digit = 0; digit < DIGITS; digit++)
        digit_search(s, all, scratch, digit, k, stream);
}

/* ---- Packing ---- */

struct tiling {
    uint64_t size, tiles;
};

static tiling tiling_of(uint64_t count)
{
    const uint64_t even = (count + MOST_TILES - 1) / MOST_TILES;
    tiling t;

    t.size = even > LEAST_TILE ? (even + WARP - 1) / WARP * WARP : (uint64_t)LEAST_TILE;
    t.tiles = (count + t.size - 1) / t.size;
    return t;
}

/* One block per tile. */
static __global__ void tiles_count(search *s, uint64_t count, tiling t, const float *values)
{
    __shared__ unsigned counts[2];
    const uint64_t first = blockIdx.x * t.size;
    const uint64_t end = first + t.size < count ? first + t.size : count;

    if (threadIdx.x < 2)
        counts[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        const uint32_t bits = codec_magnitude(values[i]);
        if (bits > s->bits)
            atomicAdd(&counts[0], 1u);
        if (bits == s->bits)
            atomicAdd(&counts[1], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s->above[blockIdx.x] = counts[0];
        s->equal[blockIdx.x] = counts[1];
    }
}

/* One block: each thread sums a run of tiles, then adds the sums of the earlier runs. */
static __global__ void tiles_scan(search *s, uint64_t tiles)
{
    __shared__ uint32_t runs[2][BLOCK];
    const uint64_t first = tiles * threadIdx.x / BLOCK, end = tiles * (threadIdx.x + 1) / BLOCK;
    uint32_t a = 0, e = 0;

    for (uint64_t t = first; t < end; t++) {
        a += s->above[t];
        e += s->equal[t];
    }
    runs[0][threadIdx.x] = a;
    runs[1][threadIdx.x] = e;
    __syncthreads();
    a = e = 0;
    for (unsigned r = 0; r < threadIdx.x; r++) {
        a += runs[0][r];
        e += runs[1][r];
    }
    for (uint64_t t = first; t < end; t++) {
        const uint32_t own_a = s->above[t], own_e = s->equal[t];
        s->above[t] = a;
        s->equal[t] = e;
        a += own_a;
        e += own_e;
    }
    if (threadIdx.x == BLOCK - 1)
        s->taken = a + (e < s->rank ? e : s->rank);
}

/* One warp per tile: reads the tile in order, 32 elements at a time. */
static __global__ void tiles_pack(const search *s, uint64_t count, tiling t, float *values,
                                  float *also, codec_pair *out)
{
    const uint64_t tile = warp_index(), ties = s->rank;
    const unsigned lane = threadIdx.x % WARP, before = (1u << lane) - 1;
    uint64_t a, e, end;

    if (tile >= t.tiles)
        return;
    a = s->above[tile];
    e = s->equal[tile];
    end = (tile + 1) * t.size < count ? (tile + 1) * t.size : count;
    for (uint64_t first = tile * t.size; first < end; first += WARP) {
        const uint64_t i = first + lane;
        const uint32_t bits = i < end ? codec_magnitude(values[i]) : 0;
        const bool is_above = i < end && bits > s->bits, is_equal = i < end && bits == s->bits;
        const unsigned above_mask = __ballot_sync(0xffffffffu, is_above);
        const unsigned equal_mask = __ballot_sync(0xffffffffu, is_equal);
        const uint64_t own_a = a + __popc(above_mask & before);
        const uint64_t own_e = e + __popc(equal_mask & before);
        if (is_above || (is_equal && own_e < ties)) {
            codec_pair *to = &out[own_a + (own_e < ties ? own_e : ties)];
            to->index = (uint32_t)i;
            to->value = values[i];
            values[i] = 0.0f;
            if (also != NULL)
                also[i] = 0.0f;
        }
        a += __popc(above_mask);
        e += __popc(equal_mask);
    }
}

static __global__ void pairs_fill(const search *s, uint64_t k, codec_pair *out)
{
    FOR_EACH (i, k)
        if (i >= s->taken) {
            out[i].index = CODEC_NO_INDEX;
            out[i].value = 0.0f;
        }
}

void cuda_pairs_take(void *workspace, uint64_t count, uint64_t k, float *values, float *also,
                     void *pairs, cudaStream_t stream)
{
    const tiling t = tiling_of(count);
    search *s = (search *)workspace;
    codec_pair *out = (codec_pair *)pairs;

    TY_LAUNCH(tiles_count, t.tiles, BLOCK, 0, stream, s, count, t, values);
    TY_LAUNCH(tiles_scan, 1, BLOCK, 0, stream, s, t.tiles);
    TY_LAUNCH(tiles_pack, warps_grid(t.tiles), BLOCK, 0, stream, s, count, t, values, also, out);
    TY_LAUNCH(pairs_fill, grid_for(k), BLOCK, 0, stream, s, k, out);
}

/* The indices of one member differ, so that no two threads add to one element; invalid ones are
 * ignored. */
static __global__ void pairs_add(uint64_t count, uint64_t k, const codec_pair *pairs, float *values)
{
    FOR_EACH (i, k)
        if (pairs[i].index < count)
            values[pairs[i].index] += pairs[i].value;
}

void cuda_pairs_add(uint64_t count, uint64_t k, uint32_t members, const void *pairs, float *values,
                    cudaStream_t stream)
{
    cudaMemsetAsync(values, 0, count * sizeof *values, stream);
    for (uint32_t m = 0; m < members; m++)
        TY_LAUNCH(pairs_add, grid_for(k), BLOCK, 0, stream, count, k,
                  (const codec_pair *)pairs + m * k, values);
}

/* ---- Accumulated gradients of deep gradient compression ---- */

static __global__ void velocity_move(uint64_t count, float momentum, uint32_t members,
                                     double clip_norm, const double *squares,
                                     const float *gradients, float *velocity, float *sum)
{
    const float scale = squares != NULL ? codec_clipping_scale(members, clip_norm, *squares) : 1.0f;

    FOR_EACH (i, count) {
        velocity[i] = momentum * velocity[i] + scale * gradients[i];
        sum[i] += velocity[i];
    }
}

void cuda_velocity(uint64_t count, float momentum, uint32_t members, double clip_norm,
                   const double *squares, const float *gradients, float *velocity, float *sum,
                   cudaStream_t stream)
{
    TY_LAUNCH(velocity_move, grid_for(count), BLOCK, 0, stream, count, momentum, members, clip_norm,
              squares, gradients, velocity, sum);
}
