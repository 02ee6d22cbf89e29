/*
 * The k largest magnitudes with error feedback (Lin et al., "Deep gradient compression", ICLR 2018,
 * without momentum correction). Selection is exact and linear: magnitudes of floats are ordered as
 * their bits are as integers, so the k-th largest is found digit by digit, the first digit over
 * everything and the others over the few that share it.
 */
#include "codec.h"
#include "cpu_math.h"

/* 31 bits of magnitude in three digits, the highest first. */
#define DIGITS 3
static const unsigned digit_shift[DIGITS] = {19, 8, 0};
static const unsigned digit_bits[DIGITS] = {12, 11, 8};
#define LARGEST_DIGIT 4096

/* Elements looked at together: large enough for vector code, small enough to be skipped often. */
#define BLOCK 16

typedef struct pair {
    uint32_t index;
    float value;
} pair;

static uint32_t magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

static uint32_t digit_of(uint32_t bits, unsigned digit)
{
    return bits >> digit_shift[digit] & ((1u << digit_bits[digit]) - 1);
}

static ty_status top_k_open(ty_codec *codec, ty_error *error)
{
    if (codec->top_k == 0 || codec->top_k > codec->count || codec->count > UINT32_MAX)
        return ty_fail(error, TY_EINVAL,
                       "found top-k of %llu of %llu elements, expected 1 to %llu of less than 2^32",
                       (unsigned long long)codec->top_k, (unsigned long long)codec->count,
                       (unsigned long long)codec->count);
    codec->residual = ty_alloc(codec->count, sizeof *codec->residual);
    codec->candidates = ty_alloc(codec->count, sizeof *codec->candidates);
    if (codec->residual == NULL || codec->candidates == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for error feedback of %llu elements",
                       (unsigned long long)codec->count);
    return TY_OK;
}

static uint64_t top_k_bytes(const ty_codec *codec)
{
    return codec->top_k * sizeof(pair);
}

CPU_CLONES static void add_to_residual(uint64_t count, const float *gradients, float *residual)
{
    for (uint64_t i = 0; i < count; i++)
        residual[i] += gradients[i];
}

/* Whether any of a full block's magnitudes reaches `least`. */
CPU_INLINE int32_t block_maximum(const float *values)
{
    int32_t maximum = 0, bits[BLOCK];

    memcpy(bits, values, sizeof bits);
    for (int i = 0; i < BLOCK; i++)
        maximum = (bits[i] & 0x7fffffff) > maximum ? bits[i] & 0x7fffffff : maximum;
    return maximum;
}

/* The digit that holds the `rank`-th largest number, which is then its rank among those with that
 * digit. */
static uint32_t digit_find(const uint32_t *histogram, unsigned digit, uint64_t *rank)
{
    uint32_t at = (1u << digit_bits[digit]) - 1;

    while (histogram[at] < *rank)
        *rank -= histogram[at--];
    return at;
}

/* First digit over all elements. Two histograms take turns: equal digits often follow each other,
 * and an increment of the same counter would wait for the one before. */
static uint32_t first_digit(const ty_codec *codec, uint64_t *rank)
{
    uint32_t histogram[2][LARGEST_DIGIT] = {{0}};
    const float *values = codec->residual;

    for (uint64_t i = 0; i < codec->count; i++)
        histogram[i & 1][magnitude(values[i]) >> digit_shift[0]]++;
    for (uint32_t d = 0; d < LARGEST_DIGIT; d++)
        histogram[0][d] += histogram[1][d];
    return digit_find(histogram[0], 0, rank);
}

/* Magnitudes whose first digit is `first`, into the candidates. */
CPU_CLONES static uint64_t candidates_collect(uint64_t count, const float *values, uint32_t first,
                                              uint32_t *candidates)
{
    const uint32_t least = first << 19;
    uint64_t found = 0, i = 0;

    while (i < count) {
        uint64_t end = i + BLOCK < count ? i + BLOCK : count;
        if (end - i == BLOCK && (uint32_t)block_maximum(values + i) < least) {
            i = end;
            continue;
        }
        for (; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            bits &= 0x7fffffffu;
            candidates[found] = bits;
            found += bits >> 19 == first;
        }
    }
    return found;
}

/* The k-th largest magnitude; `ties` of the elements equal to it belong to the k largest. */
static uint32_t threshold_find(ty_codec *codec, uint64_t *ties)
{
    uint64_t rank = codec->top_k, count;
    uint32_t threshold = first_digit(codec, &rank);

    count = candidates_collect(codec->count, codec->residual, threshold, codec->candidates);
    threshold <<= digit_shift[0];
    for (unsigned d = 1; d < DIGITS; d++) {
        uint32_t histogram[LARGEST_DIGIT] = {0}, digit;
        uint64_t kept = 0;
        for (uint64_t i = 0; i < count; i++)
            histogram[digit_of(codec->candidates[i], d)]++;
        digit = digit_find(histogram, d, &rank);
        for (uint64_t i = 0; i < count; i++)
            if (digit_of(codec->candidates[i], d) == digit)
                codec->candidates[kept++] = codec->candidates[i];
        count = kept;
        threshold |= digit << digit_shift[d];
    }
    *ties = rank;
    return threshold;
}

/* Takes the chosen elements out of the residual, in the order of their indices. */
CPU_CLONES static void chosen_take(uint64_t count, uint32_t threshold, uint64_t ties,
                                   float *residual, pair *out)
{
    uint64_t i = 0;

    while (i < count) {
        uint64_t end = i + BLOCK < count ? i + BLOCK : count;
        if (end - i == BLOCK && (uint32_t)block_maximum(residual + i) < threshold) {
            i = end;
            continue;
        }
        for (; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &residual[i], sizeof bits);
            bits &= 0x7fffffffu;
            if (bits < threshold || (bits == threshold && ties == 0))
                continue;
            ties -= bits == threshold;
            *out++ = (pair){(uint32_t)i, residual[i]};
            residual[i] = 0.0f;
        }
    }
}

static void top_k_encode(ty_codec *codec, const float *gradients, void *encoded)
{
    uint64_t ties;
    uint32_t threshold;

    add_to_residual(codec->count, gradients, codec->residual);
    threshold = threshold_find(codec, &ties);
    chosen_take(codec->count, threshold, ties, codec->residual, encoded);
}

/* Indices from other ranks are believed only if they fit. */
static void top_k_decode(ty_codec *codec, const void *encoded, uint32_t members, float *gradients)
{
    const pair *pairs = encoded;

    memset(gradients, 0, codec->count * sizeof *gradients);
    for (uint64_t i = 0; i < codec->top_k * members; i++)
        if (pairs[i].index < codec->count)
            gradients[pairs[i].index] += pairs[i].value;
}

const codec_kind codec_top_k = {.name = "top-k",
                                .open = top_k_open,
                                .bytes = top_k_bytes,
                                .encode = top_k_encode,
                                .decode = top_k_decode};
