/**
 * @file ty_precision.h
 * In what numbers layers compute: one enumeration for plans, profiles, runs and launch files.
 *
 *     ty_precision precision;
 *     TY_CHECK(ty_precision_find("bf16", &precision, error), status, done);
 *     ty_workload_set_precision(workload, precision);
 *
 * Weights that are updated, gradients and the optimizer's state are fp32 in all of them
 * (Micikevicius et al., "Mixed Precision Training", ICLR 2018). Sources of the narrow ones:
 * Micikevicius et al., "FP8 Formats for Deep Learning", 2022, arXiv:2209.05433; NVIDIA Transformer
 * Engine for which products are narrow: those of attention's projections, of mlps and of experts.
 * Attention itself, a head over a vocabulary, norms and what lies between layers stay in bf16.
 */
#ifndef TY_PRECISION_H
#define TY_PRECISION_H

#include "ty_status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ty_precision {
    TY_PRECISION_FP32,
    TY_PRECISION_TF32, /* numbers of 4 bytes, products of 10-bit significands, sums in fp32 */
    TY_PRECISION_BF16,
    TY_PRECISION_FP16, /* with loss scaling */
    TY_PRECISION_FP8,  /* narrow products of 8 bits, whatever their scaling; the rest bf16 */
    TY_PRECISION_FP4,  /* narrow products of 4 bits (NVFP4, MXFP4); the rest bf16 */
    TY_PRECISION_COUNT
} ty_precision;

#define TY_PRECISION_NAMES "fp32, tf32, bf16, fp16, fp8 or fp4"

const char *ty_precision_name(ty_precision precision); /* "fp32", ... */
/** From its name. @return TY_EINVAL: what was found and what there is */
ty_status ty_precision_find(const char *name, ty_precision *out, ty_error *error) TY_MUST_CHECK;

/** Bytes of a weight as layers read it and of a number between layers: 4 or 2. */
uint32_t ty_precision_bytes(ty_precision precision);
/** Whether products of weights are narrower than what lies between layers. */
bool ty_precision_is_narrow(ty_precision precision);
/** Bytes of a number in narrow products: 1, 0.5 or, where there are none, 0. */
double ty_precision_narrow_bytes(ty_precision precision);

#endif
