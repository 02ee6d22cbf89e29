/*
 * Selecting the largest magnitudes. Magnitudes of floats are ordered as their bits are as integers,
 * so the k-th largest is found digit by digit, the first digit over everything and the others over
 * the few that share it: exact and linear.
 */
#include "codec_kinds.h"

/* 31 bits of magnitude in three digits, the highest first. */
#define DIGITS 3
static const unsigned digit_shift[DIGITS] = {19, 8, 0};
static const unsigned digit_bits[DIGITS] = {12, 11, 8};
#define LARGEST_DIGIT 4096

/* Elements looked at together: large enough for vector code, small enough to be skipped often. */
#define BLOCK 16

/* Of deep gradient compression, by its authors' code (dgc/compression.py). The sample is larger
   than 1 % where that would leave few of the largest in it. */
#define SAMPLED_SHARE 0.01
#define LEAST_SAMPLED_RANK 32
#define LEAST_FOUND 0.8
#define LOWERED_BY 0.8f
#define MOST_LOWERINGS 10

static uint32_t magnitude(float value)
{
    return bits_of_float(value) & CODEC_MAGNITUDE;
}

static uint32_t digit_of(uint32_t bits, unsigned digit)
{
    return bits >> digit_shift[digit] & ((1u << digit_bits[digit]) - 1);
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
static uint32_t first_digit(uint64_t count, const float *values, uint64_t *rank)
{
    uint32_t histogram[2][LARGEST_DIGIT] = {{0}};

    for (uint64_t i = 0; i < count; i++)
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

/* The digits from `digit` on of the `rank`-th largest of a list, which is used up. */
static uint32_t lower_digits(uint32_t *candidates, uint64_t count, unsigned digit, uint64_t *rank)
{
    uint32_t bits = 0;

    for (unsigned d = digit; d < DIGITS; d++) {
        uint32_t histogram[LARGEST_DIGIT] = {0}, found;
        uint64_t kept = 0;
        for (uint64_t i = 0; i < count; i++)
            histogram[digit_of(candidates[i], d)]++;
        found = digit_find(histogram, d, rank);
        for (uint64_t i = 0; i < count; i++)
            if (digit_of(candidates[i], d) == found)
                candidates[kept++] = candidates[i];
        count = kept;
        bits |= found << digit_shift[d];
    }
    return bits;
}

codec_threshold codec_threshold_exact(uint64_t count, const float *values, uint64_t k,
                                      uint32_t *scratch)
{
    uint64_t rank = k, found;
    uint32_t first = first_digit(count, values, &rank);
    codec_threshold threshold = {.bits = first << digit_shift[0]};

    found = candidates_collect(count, values, first, scratch);
    threshold.bits |= lower_digits(scratch, found, 1, &rank);
    threshold.ties = rank;
    return threshold;
}

/* ---- By a sample ------------------------------------------------------------------------- */

CPU_CLONES static uint64_t count_from(uint64_t count, const float *values, uint32_t least)
{
    uint64_t reached = 0;

    for (uint64_t i = 0; i < count;) { /* in counters of 32 bits, which vectorise better */
        uint64_t end = count - i > UINT32_C(1) << 30 ? i + (UINT32_C(1) << 30) : count;
        uint32_t part = 0;
#pragma omp simd reduction(+ : part)
        for (uint64_t j = i; j < end; j++)
            part += (int32_t)(bits_of_float(values[j]) & CODEC_MAGNITUDE) >= (int32_t)least;
        reached += part;
        i = end;
    }
    return reached;
}

/* Magnitudes of at least `least`. */
CPU_CLONES static uint64_t reaching_collect(uint64_t count, const float *values, uint32_t least,
                                            uint32_t *found)
{
    uint64_t kept = 0, i = 0;

    while (i < count) {
        uint64_t end = i + BLOCK < count ? i + BLOCK : count;
        if (end - i == BLOCK && (uint32_t)block_maximum(values + i) < least) {
            i = end;
            continue;
        }
        for (; i < end; i++) {
            found[kept] = bits_of_float(values[i]) & CODEC_MAGNITUDE;
            kept += found[kept] >= least;
        }
    }
    return kept;
}

/* The threshold of a sample: every stride-th element from a random one on. */
static uint32_t sample_threshold(uint64_t count, const float *values, uint64_t k, uint32_t key,
                                 uint32_t *scratch)
{
    double wanted =
        fmax(SAMPLED_SHARE * (double)count, (double)LEAST_SAMPLED_RANK * (double)count / (double)k);
    uint64_t stride = wanted < (double)count ? (uint64_t)((double)count / wanted) : 1;
    uint64_t sampled = 0, rank;

    for (uint64_t i = codec_hash(key) % stride; i < count; i += stride)
        scratch[sampled++] = magnitude(values[i]);
    rank = (uint64_t)ceil((double)k * (double)sampled / (double)count);
    return lower_digits(scratch, sampled, 0, &rank);
}

codec_threshold codec_threshold_sampled(uint64_t count, const float *values, uint64_t k,
                                        uint32_t key, uint32_t *scratch)
{
    uint32_t bits = sample_threshold(count, values, k, key, scratch);
    uint64_t reached = count_from(count, values, bits), rank = k;
    codec_threshold threshold;

    for (int i = 0; i < MOST_LOWERINGS && (double)reached < LEAST_FOUND * (double)k; i++) {
        bits = bits_of_float(float_of_bits(bits) * LOWERED_BY);
        reached = count_from(count, values, bits);
    }
    threshold = (codec_threshold){.bits = bits, .ties = count};
    if (reached <= k)
        return threshold;
    reached = reaching_collect(count, values, bits, scratch);
    threshold.bits = lower_digits(scratch, reached, 0, &rank);
    threshold.ties = rank;
    return threshold;
}

/* ---- Sending ----------------------------------------------------------------------------- */

CPU_CLONES uint64_t codec_take(uint64_t count, codec_threshold threshold, float *values,
                               codec_pair *out)
{
    const uint32_t least = threshold.bits;
    const codec_pair *first = out;
    uint64_t i = 0, ties = threshold.ties;

    while (i < count) {
        uint64_t end = i + BLOCK < count ? i + BLOCK : count;
        if (end - i == BLOCK && (uint32_t)block_maximum(values + i) < least) {
            i = end;
            continue;
        }
        for (; i < end; i++) {
            uint32_t bits = bits_of_float(values[i]) & CODEC_MAGNITUDE;
            if (bits < least || (bits == least && ties == 0))
                continue;
            ties -= bits == least;
            *out++ = (codec_pair){(uint32_t)i, values[i]};
            values[i] = 0.0f;
        }
    }
    return (uint64_t)(out - first);
}

void codec_pairs_decode(ty_codec *codec, float *gradients)
{
    const uint64_t count = codec->options.count;
    const codec_pair *pairs = codec->payloads[0];
    uint64_t all = codec->payload_bytes[0] / sizeof *pairs * codec->options.member_count;

    memset(gradients, 0, count * sizeof *gradients);
    for (uint64_t i = 0; i < all; i++)
        if (pairs[i].index < count)
            gradients[pairs[i].index] += pairs[i].value;
}
