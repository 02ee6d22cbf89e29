/**
 * @file image_decode.h
 * Pixels of a JPEG or PNG file, in the input size of a model. Internal to execute/.
 */
#ifndef TY_EXECUTE_IMAGE_DECODE_H
#define TY_EXECUTE_IMAGE_DECODE_H

#include "ty_core.h"

typedef struct image_shape {
    uint32_t channels, height, width; /* channels 1 or 3: gray, or red, green and blue */
} image_shape;

/** Most pixels accepted in a file. */
#define IMAGE_MOST_PIXELS (UINT64_C(1) << 28)

/**
 * Scales an image so that it just covers the shape, linearly between pixels, and crops the middle.
 * @param name of the image, for messages
 * @param out  [channels][height][width]
 * @return TY_EPARSE: neither format, damaged, or too large; TY_EUNSUPPORTED: built without the
 * format's library; TY_ENOMEM
 */
ty_status image_decode(const unsigned char *bytes, uint64_t length, const char *name,
                       const image_shape *shape, unsigned char *out, ty_error *error) TY_MUST_CHECK;

#endif
