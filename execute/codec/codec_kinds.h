/**
 * @file codec_kinds.h
 * Inside the compressors: one struct of functions per kind and backend. What a compressor has
 * (payloads, what it keeps, when it sends what) is the same wherever it computes: codec.c and
 * codec_layout.c belong to every backend. On the CPU a kind's functions are loops (codec_*.c), on a
 * GPU they queue kernels (cuda/cuda_codec_*.c).
 */
#ifndef TY_EXECUTE_CODEC_KINDS_H
#define TY_EXECUTE_CODEC_KINDS_H

#include "codec.h"
#include "codec_math.h"

typedef struct codec_kind {
    void (*encode[TY_MOST_PHASES])(ty_codec *codec, const float *gradients);
    void (*decode)(ty_codec *codec, float *gradients);
} codec_kind;

/** Where compressors compute, and whose memory they have. */
typedef struct codec_backend {
    const codec_kind *kinds[TY_COMPRESSION_COUNT];   /* NULL: not a compressor */
    void *(*allocate)(void *device, uint64_t bytes); /* zeroed; NULL when there is none */
    void (*release)(void *device, void *memory);     /* NULL is ignored */
} codec_backend;

/* Arrays, by kind; docs/guides/compress-gradients.md says what they are. */
enum {
    CODEC_RESIDUAL = 0,     /* top-k, random-k */
    CODEC_VELOCITY = 0,     /* dgc, */
    CODEC_SUM = 1,          /* and the sum of velocities */
    CODEC_MEMBER_ERROR = 0, /* one-bit: of all parts, */
    CODEC_OWNER_ERROR = 1,  /* and of the own part's sum */
    CODEC_ERRORS = 0,       /* powersgd: of all factored matrices, one after the other */
    CODEC_MOST_ARRAYS = 2
};

struct ty_codec {
    const codec_backend *backend;
    void *device; /* the backend's */
    const codec_kind *kind;
    ty_codec_options options; /* matrices: a copy */
    ty_gradient_extent extent;
    uint32_t steps_begun;                   /* wraps */
    uint32_t step;                          /* in hand; counts from 0, wraps */
    void *payloads[TY_MOST_PHASES];         /* of all members where they are gathered */
    uint64_t payload_bytes[TY_MOST_PHASES]; /* of this member in the step in hand */
    /* Kept from step to step, [array_counts] floats each, zero at first. */
    float *arrays[CODEC_MOST_ARRAYS];
    uint64_t array_counts[CODEC_MOST_ARRAYS];
    uint32_t *scratch;        /* [count], kinds that select: magnitudes; NULL for others */
    uint64_t allocated_bytes; /* payloads, arrays, scratch */
};

ty_status codec_open(const codec_backend *backend, void *device, const ty_codec_options *options,
                     ty_codec **out, ty_error *error) TY_MUST_CHECK;

/** Where this member's payload of a phase begins. */
void *codec_own_payload(const ty_codec *codec, uint32_t phase);
/** Where member `member`'s begins, once it was gathered. */
const void *codec_payload_of(const ty_codec *codec, uint32_t phase, uint32_t member);
/** The key of a step's random numbers: alike on all members, or each member's own. */
uint32_t codec_shared_key(const ty_codec *codec);
uint32_t codec_own_key(const ty_codec *codec);
/** Elements that the step in hand sends: top-k, random-k, dgc. */
uint64_t codec_kept(const ty_codec *codec);

/* ---- Where things lie (codec_layout.c) --------------------------------------------------- */

/** Groups that share a scale; the last one may be smaller. */
uint64_t codec_group_count(const ty_codec *codec);

/* One-bit: every member owns a part of the bucket, of whole words; behind the last element are
 * zeros. A part is groups, the last one maybe smaller; a payload of it is a scale for each and then
 * the words. Bit b of word w of a group of W words is the sign of element b W + w. */
enum { CODEC_WORD_BITS = 32 };
uint64_t codec_part_size(const ty_codec *codec);
uint64_t codec_part_groups(uint64_t part);
uint64_t codec_part_bytes(uint64_t part);
/** Elements of a member's part that are elements of the bucket. */
uint64_t codec_part_real(const ty_codec *codec, uint32_t owner);

/** A factored matrix, and where it lies: in the bucket, in the errors, in P, in Q. P is
 *  [rank][rows], Q is [rank][columns]. */
typedef struct codec_factored {
    uint64_t rows, columns, offset, m, p, q;
    uint32_t key; /* of what is drawn for Q */
} codec_factored;
/** Goes through the factored matrices; `*index` and `*at` are zero at first. */
bool codec_next_factored(const ty_codec *codec, uint32_t *index, codec_factored *at);

/** A stretch of the bucket that is in no factored matrix. */
typedef struct codec_dense {
    uint64_t offset, count, at; /* in the bucket; and behind P in the payload */
} codec_dense;
/** Goes through those stretches, which may be empty; all three are zero at first. */
bool codec_next_dense(const ty_codec *codec, uint32_t *index, codec_factored *behind,
                      codec_dense *out);

/* ---- The CPU's (codec_cpu.c) --------------------------------------------------------------- */

#define CODEC_DECLARE(kind, symbol, name) extern const codec_kind codec_##symbol;
TY_COMPRESSIONS(CODEC_DECLARE)
#undef CODEC_DECLARE

/* Rounding to nearest, ties to even; overflow gives infinity, NaN stays NaN. */
void half_from_float(uint64_t count, const float *from, uint16_t *to);
void half_to_float(uint64_t count, const uint16_t *from, float *to);
void bfloat_from_float(uint64_t count, const float *from, uint16_t *to);
void bfloat_to_float(uint64_t count, const uint16_t *from, float *to);

/** target += source. */
void codec_add(uint64_t count, const float *source, float *target);

/** Bits of the largest magnitude; those of a NaN are larger than all others. */
CPU_INLINE uint32_t codec_largest(uint64_t count, const float *values)
{
    int32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(bits_of_float(values[i]) & CODEC_MAGNITUDE);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest;
}

/** Of CODEC_SUM_LANES partial sums. */
CPU_INLINE float codec_lanes_sum(float *lanes)
{
    for (uint32_t width = CODEC_SUM_LANES / 2; width > 0; width /= 2)
        for (uint32_t l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

/* ---- Groups with a scale (codec_groups.c) ------------------------------------------------ */

/**
 * Codes of up to TY_COMPRESSION_GROUP elements; numbers that are not finite make the scale NaN, so
 * that they are not lost. `key` is that of the group's first element, the next one's is larger
 * by 1.
 */
typedef void (*codec_group_encode)(uint64_t count, const float *values, uint32_t key, float *scale,
                                   uint8_t *codes);
/** sums += scale * what the codes stand for. */
typedef void (*codec_group_add)(uint64_t count, float scale, const uint8_t *codes, float *sums);

/* A payload is all scales and then all codes, `group_bytes` of them for each whole group. */
void codec_groups_encode(ty_codec *codec, const float *gradients, uint64_t group_bytes,
                         codec_group_encode encode);
void codec_groups_decode(ty_codec *codec, float *gradients, uint64_t group_bytes,
                         codec_group_add add);

/* ---- Selection (codec_select.c) ---------------------------------------------------------- */

/** Bits of a magnitude that separates the largest from the others. */
typedef struct codec_threshold {
    uint32_t bits;
    uint64_t ties; /* how many of the elements equal to it belong to the largest */
} codec_threshold;

/** The k-th largest magnitude, exactly, in linear time. @param scratch [count] */
codec_threshold codec_threshold_exact(uint64_t count, const float *values, uint64_t k,
                                      uint32_t *scratch);
/**
 * One that about k elements reach, by a sample; never more than k. Lin et al., "Deep gradient
 * compression", ICLR 2018, section 3 and the authors' code: 1 % are looked at, the threshold is
 * lowered while fewer than 0.8 k reach it, and where more than k do, the largest k of those are
 * found. @param scratch [count]
 */
codec_threshold codec_threshold_sampled(uint64_t count, const float *values, uint64_t k,
                                        uint32_t key, uint32_t *scratch);
/** The elements above the threshold as pairs, in the order of their indices, and zeroes them;
 *  returns how many. */
uint64_t codec_take(uint64_t count, codec_threshold threshold, float *values, codec_pair *out);
/** Sums gathered pairs; indices from other ranks are believed only if they fit. */
void codec_pairs_decode(ty_codec *codec, float *gradients);

#endif
