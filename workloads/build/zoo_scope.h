/**
 * @file zoo_scope.h
 * Names in "sequential" zoo files: arguments of blocks and labeled tensors. Internal to
 * workloads/.
 */
#ifndef TY_WORKLOADS_ZOO_SCOPE_H
#define TY_WORKLOADS_ZOO_SCOPE_H

#include "zoo_family.h"

#define TY_ZOO_MOST_LABELS 128
#define TY_ZOO_MOST_BRANCHES 64

/** One use of a block: its members are the arguments of the statements inside. */
typedef struct ty_zoo_frame {
    const ty_json *use; /* NULL outside any block */
    const struct ty_zoo_frame *outer;
    uint32_t depth; /* nesting depth of statements, including blocks */
} ty_zoo_frame;

typedef struct ty_zoo_labels {
    uint32_t count;
    struct {
        const char *name; /* borrowed from the document */
        uint32_t layer;
    } entries[TY_ZOO_MOST_LABELS];
} ty_zoo_labels;

/** State of the statements of one file. */
typedef struct ty_zoo_script {
    ty_zoo_reader *reader;
    const ty_json *blocks; /* NULL: none in the file */
    ty_zoo_labels labels;
    uint32_t steps; /* statements run so far */
} ty_zoo_script;

/** As ty_zoo_size; "$key" means an argument of the current block. */
ty_status ty_zoo_scoped_size(const ty_zoo_frame *frame, const ty_json *object, const char *key,
                             uint64_t fallback, uint64_t *out, ty_error *error) TY_MUST_CHECK;
/** A size, or a list of `count` sizes; a single size is repeated. Also "$key". */
ty_status ty_zoo_scoped_sizes(const ty_zoo_frame *frame, const ty_json *object, const char *key,
                              uint64_t fallback, uint64_t *out, uint32_t count,
                              ty_error *error) TY_MUST_CHECK;

ty_status ty_zoo_label_set(ty_zoo_script *script, const ty_json *object,
                           uint32_t layer) TY_MUST_CHECK;
ty_status ty_zoo_label_get(const ty_zoo_script *script, const ty_json *object, const char *key,
                           uint32_t *layer) TY_MUST_CHECK;
/** The labels listed in "inputs" of `object`. */
ty_status ty_zoo_label_list(const ty_zoo_script *script, const ty_json *object,
                            uint32_t inputs[TY_ZOO_MOST_BRANCHES], uint32_t *count) TY_MUST_CHECK;

/** Appends the layer of `object` with input *x, and sets *x to it. */
ty_status ty_zoo_layer(const ty_zoo_script *script, const ty_zoo_frame *frame,
                       const ty_json *object, uint32_t *x) TY_MUST_CHECK;

#endif
