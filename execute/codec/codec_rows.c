/*
 * Nonzero rows of an embedding's gradient, with their indices: a step touches no more rows of its
 * matrix than it has tokens, so nothing is lost. As in Horovod and TensorFlow with IndexedSlices;
 * Kim et al., "Parallax", EuroSys 2019. A touched row whose gradient is zero adds nothing and is
 * not sent. Parameters after the matrix (positions) are sent uncompressed.
 *
 * A payload is [row_room] indices, [row_room][row_elements] numbers, [dense_elements] numbers.
 */
#include "codec_kinds.h"

/* Elements compared at once: enough for vector code, few enough to leave a touched row early. */
enum { ROW_BLOCK = 64 };

CPU_INLINE bool is_zero(uint64_t count, const float *values)
{
    uint32_t bits = 0;

#pragma omp simd reduction(| : bits)
    for (uint64_t i = 0; i < count; i++)
        bits |= bits_of_float(values[i]) & CODEC_MAGNITUDE;
    return bits == 0;
}

CPU_INLINE bool is_zero_row(uint64_t count, const float *row)
{
    uint64_t i = 0;

    for (; i + ROW_BLOCK <= count; i += ROW_BLOCK)
        if (!is_zero(ROW_BLOCK, row + i))
            return false;
    return is_zero(count - i, row + i);
}

static uint64_t matrix_elements(const ty_codec *codec)
{
    return codec->extent.elements - codec->extent.dense_elements;
}

/* Fills `indices` and `values`, which have room for all rows that tokens touch. More can only be a
 * mistake of the caller; dropped rows must then not go unnoticed. */
CPU_CLONES static uint64_t rows_take(const ty_gradient_extent *extent, uint64_t rows,
                                     const float *matrix, uint32_t *indices, float *values)
{
    const uint64_t columns = extent->row_elements;
    uint64_t taken = 0;

    for (uint64_t row = 0; row < rows; row++) {
        if (is_zero_row(columns, matrix + row * columns))
            continue;
        if (taken == extent->row_room) {
            values[0] = NAN;
            break;
        }
        indices[taken] = (uint32_t)row;
        memcpy(values + taken * columns, matrix + row * columns, columns * sizeof *values);
        taken++;
    }
    return taken;
}

static void rows_encode(ty_codec *codec, const float *gradients)
{
    const ty_gradient_extent *extent = &codec->extent;
    const uint64_t matrix = matrix_elements(codec);
    uint32_t *indices = codec_own_payload(codec, 0);
    float *values = (float *)(void *)(indices + extent->row_room);

    for (uint64_t i = rows_take(extent, matrix / extent->row_elements, gradients, indices, values);
         i < extent->row_room; i++)
        indices[i] = CODEC_NO_INDEX;
    memcpy(values + extent->row_room * extent->row_elements, gradients + matrix,
           extent->dense_elements * sizeof *values);
}

/* Ignores indices from other ranks that are out of range. */
static void member_add(const ty_codec *codec, uint32_t member, float *gradients)
{
    const ty_gradient_extent *extent = &codec->extent;
    const uint64_t matrix = matrix_elements(codec), columns = extent->row_elements;
    const uint32_t *indices = codec_payload_of(codec, 0, member);
    const float *values = (const float *)(const void *)(indices + extent->row_room);

    for (uint64_t i = 0; i < extent->row_room && indices[i] != CODEC_NO_INDEX; i++)
        if (indices[i] < matrix / columns)
            codec_add(columns, values + i * columns, gradients + indices[i] * columns);
    codec_add(extent->dense_elements, values + extent->row_room * columns, gradients + matrix);
}

/* Member by member, so that every sum has the same order on all ranks. */
static void rows_decode(ty_codec *codec, float *gradients)
{
    memset(gradients, 0, codec->options.count * sizeof *gradients);
    for (uint32_t m = 0; m < codec->options.member_count; m++)
        member_add(codec, m, gradients);
}

const codec_kind codec_rows = {.encode = {rows_encode}, .decode = rows_decode};
