/**
 * @file import_language.h
 * The last steps of all importers of language models. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_IMPORT_LANGUAGE_H
#define TY_WORKLOADS_IMPORT_LANGUAGE_H

#include "import.h"
#include "transformer.h"

/** A file's training values; values of 0 get a default and a note. */
typedef struct ty_import_training {
    uint32_t batch;
    ty_optimizer optimizer; /* learning_rate 0: the file has no optimizer */
} ty_import_training;

/** Sets the user's or the usual sequence length, and the bytes of a token, and checks that sizes
 * are consistent. @param whole as below */
ty_status ty_import_settle(ty_import_source *source, ty_transformer *t,
                           const char *whole) TY_MUST_CHECK;
/** Finishes a builder with all layers, adding source and training; frees it. */
ty_status ty_import_finish_model(ty_import_source *source, ty_builder *builder,
                                 const ty_import_training *training,
                                 ty_workload **out) TY_MUST_CHECK;

/**
 * Makes the workload of a transformer with the user's sequence length and batch, and defaults. A
 * sequence of 0 becomes the longest possible, at most 4,096; bytes of a stored token of 0 become 2
 * or 4.
 * @param whole place of errors about inconsistent sizes, e.g. "config.json:"
 */
ty_status ty_import_transformer(ty_import_source *source, const ty_transformer *sizes,
                                const ty_import_training *training, const char *whole,
                                ty_workload **out) TY_MUST_CHECK;

#endif
