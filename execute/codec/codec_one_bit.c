/*
 * Signs and mean magnitudes, communicated in two phases: Tang et al., "1-bit Adam", ICML 2021,
 * section 5, with the scale of Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019, which
 * makes it a contraction. Every member owns a part of the bucket. It sends the signs of the others'
 * parts to their owners, sums the parts that it receives, and sends the sum's signs to all. The
 * member that encodes stores the residual of either phase and adds it in the next step.
 */
#include "codec_kinds.h"

enum { BITS = CODEC_WORD_BITS, GROUP = TY_COMPRESSION_SIGN_GROUP };

/* Sum of the first `real` magnitudes. */
CPU_INLINE float magnitudes_sum(uint64_t real, const float *values)
{
    float lanes[CODEC_SUM_LANES] = {0};
    uint64_t i = 0;

    for (; i + CODEC_SUM_LANES <= real; i += CODEC_SUM_LANES)
        for (uint32_t l = 0; l < CODEC_SUM_LANES; l++)
            lanes[l] += fabsf(values[i + l]);
    for (uint32_t l = 0; i + l < real; l++)
        lanes[l] += fabsf(values[i + l]);
    return codec_lanes_sum(lanes);
}

/* ---- A group ----------------------------------------------------------------------------- */

/* Encodes the first `real` elements of `values` and leaves the residual in them. */
CPU_CLONES static float group_encode(uint64_t count, uint64_t real, float *restrict values,
                                     uint32_t *restrict words)
{
    const uint64_t width = count / BITS;
    const float scale = real > 0 ? magnitudes_sum(real, values) / (float)real : 0.0f;

    memset(words, 0, width * sizeof *words);
    for (uint32_t b = 0; b < BITS; b++) {
        float *row = values + b * width;
        for (uint64_t w = 0; w < width; w++) {
            uint32_t sign = bits_of_float(row[w]) >> 31;
            words[w] |= sign << b;
            row[w] -= codec_signed(scale, sign);
        }
    }
    for (uint64_t i = real; i < count; i++)
        values[i] = 0.0f;
    return scale;
}

CPU_CLONES static void group_add(uint64_t count, float scale, const uint32_t *restrict words,
                                 float *restrict sums)
{
    const uint64_t width = count / BITS;

    for (uint32_t b = 0; b < BITS; b++)
        for (uint64_t w = 0; w < width; w++)
            sums[b * width + w] += codec_signed(scale, words[w] >> b & 1u);
}

/* ---- A part ------------------------------------------------------------------------------ */

static void part_encode(uint64_t part, uint64_t real, float *values, void *payload)
{
    float *scales = payload;
    uint32_t *words = (uint32_t *)(scales + codec_part_groups(part));

    for (uint64_t first = 0; first < part; first += GROUP) {
        uint64_t size = part - first < GROUP ? part - first : GROUP;
        uint64_t left = real > first ? real - first : 0;
        scales[first / GROUP] =
            group_encode(size, left < size ? left : size, values + first, words + first / BITS);
    }
}

static void part_add(uint64_t part, const void *payload, float *sums)
{
    const float *scales = payload;
    const uint32_t *words = (const uint32_t *)(scales + codec_part_groups(part));

    for (uint64_t first = 0; first < part; first += GROUP)
        group_add(part - first < GROUP ? part - first : GROUP, scales[first / GROUP],
                  words + first / BITS, sums + first);
}

/* Writes only the first `real` elements; the others are padding. */
static void part_write(uint64_t part, uint64_t real, const void *payload, float *out)
{
    const float *scales = payload;
    const uint32_t *words = (const uint32_t *)(scales + codec_part_groups(part));

    for (uint64_t first = 0; first < real; first += GROUP) {
        uint64_t size = part - first < GROUP ? part - first : GROUP;
        uint64_t left = real - first < size ? real - first : size;
        float values[GROUP] = {0};
        group_add(size, scales[first / GROUP], words + first / BITS, values);
        memcpy(out + first, values, left * sizeof *out);
    }
}

/* ---- Phases ------------------------------------------------------------------------------ */

static void signs_to_owners(ty_codec *codec, const float *gradients)
{
    const uint64_t part = codec_part_size(codec);
    float *error = codec->arrays[CODEC_MEMBER_ERROR];

    codec_add(codec->options.count, gradients, error);
    for (uint32_t owner = 0; owner < codec->options.member_count; owner++)
        part_encode(part, codec_part_real(codec, owner), error + owner * part,
                    (char *)codec->payloads[0] + owner * codec_part_bytes(part));
}

static void sum_of_signs(ty_codec *codec, const float *gradients)
{
    const uint64_t part = codec_part_size(codec);
    float *error = codec->arrays[CODEC_OWNER_ERROR];

    (void)gradients;
    for (uint32_t m = 0; m < codec->options.member_count; m++)
        part_add(part, (const char *)codec->payloads[0] + m * codec_part_bytes(part), error);
    part_encode(part, codec_part_real(codec, codec->options.position), error,
                codec_own_payload(codec, 1));
}

static void signs_of_all(ty_codec *codec, float *gradients)
{
    const uint64_t part = codec_part_size(codec);

    for (uint32_t owner = 0; owner < codec->options.member_count; owner++)
        part_write(part, codec_part_real(codec, owner), codec_payload_of(codec, 1, owner),
                   gradients + owner * part);
}

const codec_kind codec_one_bit = {.encode = {signs_to_owners, sum_of_signs},
                                  .decode = signs_of_all};
