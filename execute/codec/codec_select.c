/*
 * Selection of the largest magnitudes. Magnitudes of floats have the order of their bits as
 * integers, so the k-th largest is found digit by digit. The first digit is counted over all
 * elements, the others over the few that share it: exact and linear.
 */
#include "codec_kinds.h"

/* Elements compared at once: large enough for vector code, small enough to be skipped often. */
#define BLOCK 16

/* Whether any of a full block's magnitudes reaches `least`. */
CPU_INLINE int32_t block_maximum(const float *values)
{
    int32_t maximum = 0, bits[BLOCK];

    memcpy(bits, values, sizeof bits);
    for (int i = 0; i < BLOCK; i++)
        maximum = (bits[i] & 0x7fffffff) > maximum ? bits[i] & 0x7fffffff : maximum;
    return maximum;
}

/* The digit of the `rank`-th largest number; `*rank` becomes its rank among those with that digit.
 */
static uint32_t digit_find(const uint32_t *histogram, int digit, uint64_t *rank)
{
    uint32_t at = (1u << codec_digit_bits(digit)) - 1;

    while (histogram[at] < *rank)
        *rank -= histogram[at--];
    return at;
}

/* First digit over all elements. Two histograms alternate: equal digits often follow each other,
 * and an increment of the same counter would wait for the one before. */
static uint32_t first_digit(uint64_t count, const float *values, uint64_t *rank)
{
    uint32_t histogram[2][CODEC_LARGEST_DIGIT] = {{0}};

    for (uint64_t i = 0; i < count; i++)
        histogram[i & 1][codec_magnitude(values[i]) >> codec_digit_shift(0)]++;
    for (uint32_t d = 0; d < CODEC_LARGEST_DIGIT; d++)
        histogram[0][d] += histogram[1][d];
    return digit_find(histogram[0], 0, rank);
}

/* Collects magnitudes whose first digit is `first` as candidates. */
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

/* The digits from `digit` on of the `rank`-th largest of a list, which it overwrites. */
static uint32_t lower_digits(uint32_t *candidates, uint64_t count, int digit, uint64_t *rank)
{
    uint32_t bits = 0;

    for (int d = digit; d < CODEC_DIGITS; d++) {
        uint32_t histogram[CODEC_LARGEST_DIGIT] = {0}, found;
        uint64_t kept = 0;
        for (uint64_t i = 0; i < count; i++)
            histogram[codec_digit_of(candidates[i], d)]++;
        found = digit_find(histogram, d, rank);
        for (uint64_t i = 0; i < count; i++)
            if (codec_digit_of(candidates[i], d) == found)
                candidates[kept++] = candidates[i];
        count = kept;
        bits |= found << codec_digit_shift(d);
    }
    return bits;
}

codec_threshold codec_threshold_exact(uint64_t count, const float *values, uint64_t k,
                                      uint32_t *scratch)
{
    uint64_t rank = k, found;
    uint32_t first = first_digit(count, values, &rank);
    codec_threshold threshold = {.bits = first << codec_digit_shift(0)};

    found = candidates_collect(count, values, first, scratch);
    threshold.bits |= lower_digits(scratch, found, 1, &rank);
    threshold.ties = rank;
    return threshold;
}

/* ---- By a sample ------------------------------------------------------------------------- */

CPU_CLONES static uint64_t count_from(uint64_t count, const float *values, uint32_t least)
{
    uint64_t reached = 0;

    for (uint64_t i = 0; i < count;) { /* in counters of 32 bits, which vectorize better */
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

/* Collects magnitudes of at least `least`. */
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

/* The threshold of a sample. */
static uint32_t sample_threshold(uint64_t count, const float *values, uint64_t k, uint32_t key,
                                 uint32_t *scratch)
{
    codec_sample sample = codec_sample_of(count, k, key);

    for (uint64_t i = 0; i < sample.count; i++)
        scratch[i] = codec_magnitude(values[sample.first + i * sample.stride]);
    return lower_digits(scratch, sample.count, 0, &sample.rank);
}

codec_threshold codec_threshold_sampled(uint64_t count, const float *values, uint64_t k,
                                        uint32_t key, uint32_t *scratch)
{
    uint32_t bits = sample_threshold(count, values, k, key, scratch);
    uint64_t reached = count_from(count, values, bits), rank = k;
    codec_threshold threshold;

    for (int i = 0; i < CODEC_MOST_LOWERINGS && !codec_is_enough(reached, k); i++) {
        bits = codec_lowered(bits);
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
