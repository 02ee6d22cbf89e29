/**
 * @file zoo_family.h
 * Interface of a family of zoo files. A family reads its own keys of the document, opens the
 * builder and appends its layers; zoo.c does the rest. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_ZOO_FAMILY_H
#define TY_WORKLOADS_ZOO_FAMILY_H

#include "builder.h"
#include "zoo.h"

typedef struct ty_zoo_reader {
    const char *name;
    const ty_json *root;
    const ty_zoo_overrides *overrides;
    ty_builder *builder; /* NULL until the family opens it; freed by zoo.c */
    ty_error *error;
} ty_zoo_reader;

typedef ty_status (*ty_zoo_family)(ty_zoo_reader *reader);
ty_status ty_zoo_sequential(ty_zoo_reader *reader) TY_MUST_CHECK;
ty_status ty_zoo_residual(ty_zoo_reader *reader) TY_MUST_CHECK;
ty_status ty_zoo_transformer(ty_zoo_reader *reader) TY_MUST_CHECK;
ty_status ty_zoo_decoder(ty_zoo_reader *reader) TY_MUST_CHECK;
ty_status ty_zoo_encoder(ty_zoo_reader *reader) TY_MUST_CHECK;
ty_status ty_zoo_encoder_decoder(ty_zoo_reader *reader) TY_MUST_CHECK;

/* Helpers of the families. */

#define TY_ZOO_REQUIRED UINT64_MAX
/** A size of at most 2^31 - 1, at least 1 (or 0 if that is the fallback); `fallback` if absent. */
ty_status ty_zoo_size(const ty_json *object, const char *key, uint64_t fallback, uint64_t *out,
                      ty_error *error) TY_MUST_CHECK;
ty_status ty_zoo_flag(const ty_json *object, const char *key, bool fallback, bool *out,
                      ty_error *error) TY_MUST_CHECK;
/** Opens a builder for "input" (a shape) and "sample_bytes": for samples that are not sequences. */
ty_status ty_zoo_open_real(ty_zoo_reader *reader) TY_MUST_CHECK;
/** Fails if the builder has failed, with `value` as the place of the error. */
ty_status ty_zoo_progress(const ty_zoo_reader *reader, const ty_json *value) TY_MUST_CHECK;

#endif
