/**
 * @file cuda_codec_kernels.h
 * Functions that launch the compressors' kernels (codec_*.cu) on a stream. Internal to
 * execute/cuda/. Formulas are those of codec_math.h, layouts those of codec_layout.c. Payloads
 * equal the CPU's byte for byte, except for PowerSGD, which sums in another order.
 */
#ifndef TY_EXECUTE_CUDA_CODEC_KERNELS_H
#define TY_EXECUTE_CUDA_CODEC_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Groups with a scale (codec_groups.cu) ---- */

typedef enum cuda_group_format {
    CUDA_GROUP_E4M3,
    CUDA_GROUP_E5M2,
    CUDA_GROUP_INT8,
    CUDA_GROUP_TERNARY
} cuda_group_format;
/** @param encoded all scales, then all codes; neither is aligned */
void cuda_groups_encode(cuda_group_format format, uint64_t count, uint32_t key, const float *values,
                        void *encoded, cudaStream_t stream);
/** values = the sum of the members' payloads, `stride` bytes apart. */
void cuda_groups_decode(cuda_group_format format, uint64_t count, uint32_t members, uint64_t stride,
                        const void *encoded, float *values, cudaStream_t stream);

/* ---- One-bit (codec_one_bit.cu) ---- */

/** Parts of a bucket of `count` elements; see codec_part_size. */
typedef struct cuda_sign_parts {
    uint64_t count, part, groups, bytes; /* elements; of a part: elements, groups, payload bytes */
} cuda_sign_parts;
/** Encodes parts from `first` on; subtracts the sent values from `values`, which begins with part
 * `first`. */
void cuda_signs_encode(const cuda_sign_parts *shape, uint32_t first, uint32_t parts, float *values,
                       void *encoded, cudaStream_t stream);
/** sums += the payloads of all members for a part. */
void cuda_signs_add(const cuda_sign_parts *shape, uint32_t members, const void *encoded,
                    float *sums, cudaStream_t stream);
/** Decodes all parts, up to the last element. */
void cuda_signs_write(const cuda_sign_parts *shape, const void *encoded, float *values,
                      cudaStream_t stream);

/* ---- Selection (codec_select.cu) ---- */

/** Bytes of workspace for the functions that take one. */
uint64_t cuda_select_workspace(void);
/** Finds the k-th largest magnitude. @param scratch [count] */
void cuda_threshold_exact(void *workspace, uint64_t count, uint64_t k, const float *values,
                          uint32_t *scratch, cudaStream_t stream);
/** Finds a magnitude that about k elements reach, never more, from a sample. @param scratch
 * [count] */
void cuda_threshold_sampled(void *workspace, uint64_t count, uint64_t k, uint32_t key,
                            const float *values, uint32_t *scratch, cudaStream_t stream);
/**
 * Takes the elements above the last threshold as pairs, by ascending index, and zeroes them;
 * surplus pairs have no index. @param also [count] zeroed at the same indices; NULL: none
 */
void cuda_pairs_take(void *workspace, uint64_t count, uint64_t k, float *values, float *also,
                     void *pairs, cudaStream_t stream);
/** values = the sum of the members' pairs. */
void cuda_pairs_add(uint64_t count, uint64_t k, uint32_t members, const void *pairs, float *values,
                    cudaStream_t stream);
/**
 * velocity = momentum * velocity + scale * gradients; sum += velocity. The scale clips the
 * gradients' norm. @param squares their sum of squares, in device memory; NULL: not clipped
 */
void cuda_velocity(uint64_t count, float momentum, uint32_t members, double clip_norm,
                   const double *squares, const float *gradients, float *velocity, float *sum,
                   cudaStream_t stream);

/* ---- Random-k (codec_random_k.cu) ---- */

/** encoded = the values at the k places, which become 0. */
void cuda_places_take(uint64_t count, uint64_t k, uint32_t key, float *values, float *encoded,
                      cudaStream_t stream);
/** values = `encoded` at the k places, 0 elsewhere. */
void cuda_places_put(uint64_t count, uint64_t k, uint32_t key, const float *encoded, float *values,
                     cudaStream_t stream);

/* ---- Rows (codec_rows.cu) ---- */

/** A matrix [rows][columns], with `room` rows in a payload, and the dense elements after it. */
typedef struct cuda_row_table {
    uint64_t rows, columns, room, dense_elements;
} cuda_row_table;
/** Bytes of workspace for cuda_rows_encode. */
uint64_t cuda_rows_workspace(uint64_t rows);
/** @param encoded [room] uint32 indices, ascending, UINT32_MAX after the last; [room][columns]
 *         floats; [dense_elements] floats */
void cuda_rows_encode(const cuda_row_table *shape, const float *gradients, void *encoded,
                      void *workspace, cudaStream_t stream);
/** gradients = the sum of the members' payloads. */
void cuda_rows_decode(const cuda_row_table *shape, uint32_t members, const void *encoded,
                      float *gradients, cudaStream_t stream);

/* ---- PowerSGD (codec_powersgd.cu) ---- */

/** A matrix and its factors. p: [rank][rows], q: [rank][columns] */
typedef struct cuda_factored {
    uint64_t rows, columns;
    float *m, *p, *q;
    float *gradients; /* [rows][columns] */
    uint32_t key;     /* random key of q */
} cuda_factored;
/** Matrices per launch: as many as fit into its parameters. */
enum { CUDA_FACTORED_BATCH = 32 };
typedef struct cuda_factored_batch {
    cuda_factored of[CUDA_FACTORED_BATCH];
    uint32_t count;
    uint64_t rank;
} cuda_factored_batch;
/** m += gradients; q orthonormalized; p = m q. */
void cuda_first_factor(const cuda_factored_batch *batch, cudaStream_t stream);
/** p orthonormalized; q = m^T p. */
void cuda_second_factor(const cuda_factored_batch *batch, cudaStream_t stream);
/** gradients = p q^T; m -= gradients / members. */
void cuda_reconstruct(const cuda_factored_batch *batch, uint32_t members, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
