/**
 * @file safetensors.h
 * Tensors in Hugging Face's format: https://github.com/huggingface/safetensors, "Format". Internal
 * to execute/.
 *
 *     uint64, little-endian     N, bytes of the header
 *     N bytes of JSON           {"NAME": {"dtype": "F32", "shape": [2, 3],
 *                                         "data_offsets": [0, 24]},
 *                                ..., "__metadata__": {"format": "pt"}}
 *     the rest                  the tensors' numbers, little-endian, row-major; offsets count from
 *                               here, and tensors cover all of it without a gap or an overlap
 *
 * Large models are split into several files, named by an index in the same folder: {"metadata":
 * {...}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}.
 */
#ifndef TY_EXECUTE_SAFETENSORS_H
#define TY_EXECUTE_SAFETENSORS_H

#include "ty_core.h"

#define SAFETENSORS_MOST_DIMENSIONS 8
/** The limit of the reference reader. */
#define SAFETENSORS_MOST_HEADER_BYTES UINT64_C(100000000)

/** Types from which weights can be read come first. */
typedef enum safetensors_type {
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_F64,
    SAFETENSORS_OTHER
} safetensors_type;

typedef struct safetensors_tensor {
    const char *name;
    const char *type_name; /* "F32" */
    safetensors_type type;
    uint32_t dimension_count;
    uint64_t dimensions[SAFETENSORS_MOST_DIMENSIONS];
    uint64_t elements;
    const unsigned char *data;
} safetensors_tensor;

typedef struct safetensors safetensors;

/**
 * Checks an entire file in memory, which is borrowed. Tensors are in the order of their offsets.
 * @param name of the file, for messages
 * @return TY_EPARSE
 */
ty_status safetensors_parse(const unsigned char *bytes, uint64_t length, const char *name,
                            safetensors **out, ty_error *error) TY_MUST_CHECK;
/**
 * Maps a file, all files of an index (a path that ends in .json), or model.safetensors or
 * model.safetensors.index.json of a folder.
 * @return TY_EIO; TY_EPARSE
 */
ty_status safetensors_open(const char *path, safetensors **out, ty_error *error) TY_MUST_CHECK;
void safetensors_close(safetensors *file);

uint64_t safetensors_count(const safetensors *file);
/** The i-th in the order of names. */
const safetensors_tensor *safetensors_at(const safetensors *file, uint64_t i);
/** NULL: there is none. */
const safetensors_tensor *safetensors_find(const safetensors *file, const char *name);
/** Element i of a tensor of a known type, as a float. */
float safetensors_float(const safetensors_tensor *tensor, uint64_t i);

#endif
