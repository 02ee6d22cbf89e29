/**
 * @file codec.h
 * Compressors of gradients: what a plan's ty_compression computes. One file per kind, codec_*.c on
 * the CPU. A device with memory of its own (device.h) opens, encodes and decodes by itself. All
 * other functions serve its compressors too, with pointers to the device's memory.
 * docs/guides/compress-gradients.md has the formulas. Internal to execute/.
 *
 * A compressed all-reduce of a bucket calls, for each phase, ty_codec_encode and the collective
 * from ty_codec_exchange; then ty_codec_decode writes the sum over the members. All random numbers
 * of a compressor follow from its seed, the step and, if members must differ, its position; nothing
 * depends on the number of threads. All members decode the same bits, with powersgd only if hosts
 * have the same vector instructions.
 *
 *   ty_codec_open(&options, &codec, error);
 *   for (phase = 0; phase < ty_compression_phases(&options.compression); phase++) {
 *       ty_codec_encode(codec, phase, gradients);
 *       collective = ty_codec_exchange(codec, phase); ... ty_collective_run(..., &collective, ...)
 *   }
 *   ty_codec_decode(codec, gradients);
 */
#ifndef TY_EXECUTE_CODEC_H
#define TY_EXECUTE_CODEC_H

#include "transport.h"
#include "ty_core.h"

/** A compressor of one bucket. It is not thread-safe; each bucket has its own. */
typedef struct ty_codec ty_codec;

typedef struct ty_codec_options {
    ty_compression compression;
    uint64_t count; /* floats of the bucket */
    uint32_t member_count, position;
    uint64_t seed; /* equal on all members */
    /* [matrix_count], powersgd and rows; for rows the first begins the bucket; borrowed for the
     * call
     */
    const ty_bucket_matrix *matrices;
    uint32_t matrix_count;
    uint64_t row_room; /* rows: number of rows of the first matrix that fit in a payload */
    double momentum;   /* dgc: the optimizer's, which must not apply it again */
} ty_codec_options;

/** @return TY_EINVAL: parameters outside their ranges, an empty bucket, 2^32 elements or more for
 *  kinds that send indices, rows without a matrix or without room */
ty_status ty_codec_open(const ty_codec_options *options, ty_codec **out,
                        ty_error *error) TY_MUST_CHECK;
void ty_codec_close(ty_codec *codec); /* NULL is ignored */
/** The type of the encoded numbers that an all-reduce adds. */
ty_element ty_codec_element(const ty_compression *compression);

/**
 * Encodes a phase into the compressor's own buffer. Phase 0 begins a step and reads `gradients`,
 * [count]; a later phase reads the result of the collective before it.
 */
void ty_codec_encode(ty_codec *codec, uint32_t phase, const float *gradients);
/** The collective to run after that encode: kind, data, count and element are filled in. */
ty_collective_options ty_codec_exchange(const ty_codec *codec, uint32_t phase);
/** Writes the sum over the members, [count]; with error feedback it stores the step's residual. */
void ty_codec_decode(ty_codec *codec, float *gradients);
/**
 * State of the compressor from step to step, array by array, for checkpoints. Index 0: the number
 * of steps begun, which is in host memory on every backend; then the arrays of error feedback and
 * momentum; then factors. Arrays and their contents do not depend on the device.
 * @param data [out] valid while the compressor is open; a caller may write data read before from a
 *        compressor of equal options
 * @return false: there is no array of this index
 */
bool ty_codec_state(ty_codec *codec, uint32_t index, void **data, uint64_t *bytes);
/** Bytes allocated for state and payloads, as ty_compression_state_bytes and _payload_bytes
 * predict.
 */
uint64_t ty_codec_memory_bytes(const ty_codec *codec);

/* target += source, `count` 16-bit floats each, summed in fp32: the reducing steps of a collective.
 */
void ty_half_add(uint16_t *target, const uint16_t *source, uint64_t count);
void ty_bfloat_add(uint16_t *target, const uint16_t *source, uint64_t count);

#endif
