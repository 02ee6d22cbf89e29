/**
 * @file training_pairs.h
 * Configuration files of training programs as a flat list: "parallelism.tensor_parallel_degree" and
 * its value, for TOML, YAML or JSON. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_TRAINING_PAIRS_H
#define TY_WORKLOADS_TRAINING_PAIRS_H

#include "ty_core.h"

typedef struct training_pair {
    const char *key, *value; /* value: without quotes; "" for null */
    unsigned line;           /* 0: unknown */
    bool is_read;            /* a reader has used it */
    bool lacks_value;        /* an option without one: `value` is "true" */
} training_pair;

/** Zero-initialize; free with ty_training_pairs_clear. */
typedef struct training_pairs {
    ty_arena *arena; /* memory of the texts */
    training_pair *pairs;
    uint32_t count, room;
} training_pairs;

/** Detects the format by the text and the name: JSON begins with a brace, TOML has "[section]"
 * lines. Ignores sequences of other values than scalars.
 *  @param unknown as for ty_json_parse_foreign */
ty_status ty_training_pairs_read(const char *path, const char *bytes, size_t length,
                                 training_pairs *out, ty_text *unknown,
                                 ty_error *error) TY_MUST_CHECK;
/** Adds a pair, or replaces one with the same key; `pairs` has an arena. */
ty_status ty_training_pairs_put(training_pairs *pairs, const char *key, const char *value,
                                unsigned line, ty_error *error) TY_MUST_CHECK;
void ty_training_pairs_clear(training_pairs *pairs);

/** Marks all pairs as unread. */
void ty_training_pairs_unread(training_pairs *pairs);
/** Whether a key has been read; '-' counts as '_'. */
bool ty_training_pair_is_read(const training_pairs *pairs, const char *key, size_t length);

/* Both mark what they return as read. */
/** The pair whose key is `key`; NULL: none, or an empty value. */
const training_pair *ty_training_pair_of(const training_pairs *pairs, const char *key);
/** The first pair whose key ends in ".name" or is `name`; NULL: none, or empty. */
const training_pair *ty_training_pair_called(const training_pairs *pairs, const char *name);

#endif
