/**
 * @file import_language.h
 * The end that importers of language models have in common. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_IMPORT_LANGUAGE_H
#define TY_WORKLOADS_IMPORT_LANGUAGE_H

#include "import.h"
#include "transformer.h"

/** What a file says of training; what is 0 is assumed and noted. */
typedef struct ty_import_training {
    uint32_t batch;
    ty_optimizer optimizer; /* learning_rate 0: the file has no optimizer */
} ty_import_training;

/** Puts in the user's sequence length or the usual one and the bytes of a token, and checks that
 * the sizes go together. @param whole as below */
ty_status ty_import_settle(ty_import_source *source, ty_transformer *t,
                           const char *whole) TY_MUST_CHECK;
/** The workload of a builder that has all layers, with source and training; frees it. */
ty_status ty_import_finish_model(ty_import_source *source, ty_builder *builder,
                                 const ty_import_training *training,
                                 ty_workload **out) TY_MUST_CHECK;

/**
 * The workload of a transformer: the user's sequence length and batch are put in, what nobody gave
 * is assumed. A sequence of 0 becomes the longest possible, at most 4,096; bytes of a stored token
 * of 0 become 2 or 4.
 * @param whole where complaints about sizes that do not go together point, e.g. "config.json:"
 */
ty_status ty_import_transformer(ty_import_source *source, const ty_transformer *sizes,
                                const ty_import_training *training, const char *whole,
                                ty_workload **out) TY_MUST_CHECK;

#endif
