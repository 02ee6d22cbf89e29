/**
 * @file codec.h
 * Inside the compressors: one struct of functions per kind.
 */
#ifndef TY_EXECUTE_CODEC_H
#define TY_EXECUTE_CODEC_H

#include "device.h"

typedef struct codec_kind {
    const char *name;
    ty_status (*open)(ty_codec *codec, ty_error *error); /* NULL: nothing to allocate */
    uint64_t (*bytes)(const ty_codec *codec);
    void (*encode)(ty_codec *codec, const float *gradients, void *encoded);
    void (*decode)(ty_codec *codec, const void *encoded, uint32_t members, float *gradients);
} codec_kind;

struct ty_codec {
    const codec_kind *kind;
    uint64_t count, top_k;
    float *residual;      /* top-k: what was not sent yet */
    uint32_t *candidates; /* top-k: magnitudes under selection */
};

extern const codec_kind codec_fp16, codec_top_k;

/* Rounding to nearest, ties to even; overflow gives infinity, NaN stays NaN. */
void half_from_float(uint64_t count, const float *from, uint16_t *to);
void half_to_float(uint64_t count, const uint16_t *from, float *to);

#endif
