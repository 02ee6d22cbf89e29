/**
 * @file steps.h
 * Reads the keys of a configuration by steps in files: families/NAME.json for model families on
 * Hugging Face, training/NAME.json for training programs. docs/design/families.md lists the steps.
 * Internal to workloads/.
 *
 * Steps run in order over named numbers and texts. They read keys of the configuration, compute,
 * check and add notes; for models that are not one stack of blocks, they also append layers. The
 * numbers named like members of ty_transformer make one.
 */
#ifndef TY_WORKLOADS_STEPS_H
#define TY_WORKLOADS_STEPS_H

#include "import_language.h"
#include "training_pairs.h"

typedef struct steps_variable {
    const char *name;
    double value;
    double *of_blocks; /* [block_count], if each block has its own */
    uint64_t block_count;
    const char *text; /* of a text, whose value is 1 */
    bool is_given;    /* the configuration has it */
} steps_variable;

/** Named numbers of the model, or of a part such as an image tower. */
typedef struct steps_scope {
    const char *name, *prefix;                /* prefix of its layers' names */
    struct steps_scope *outer, *inner, *next; /* first inside; next in the same scope */
    const ty_json *object;                    /* object with its keys */
    steps_variable *variables;
    size_t count, room;
} steps_scope;

typedef struct steps_reader {
    ty_import_source *source;
    ty_error *error;
    ty_arena *arena;
    /** Settings of a training program, which replace JSON keys. */
    training_pairs *pairs;
    bool is_arguments;        /* ... which are written as "--tensor-model-parallel-size 2" */
    ty_import_report *report; /* gets notes; NULL: the source's report */
    ty_text *switches;        /* gets framework options: "tp_comm_overlap=on ..." */
    const ty_json *whole;     /* the configuration */
    const ty_json *parts;     /* of families/common.json */
    steps_scope *top, *scope; /* `scope`: of the current step */
    ty_builder *builder;      /* opened by a step; freed by the owner of the reader */
    uint64_t block;           /* of the current step; UINT64_MAX: none */
    int depth;                /* of nested steps */
} steps_reader;

/** Loads a file with steps. */
ty_status ty_steps_load(const char *folder, const char *name, ty_json_document **out,
                        ty_error *error) TY_MUST_CHECK;
/** Sets up the scopes. @param object with the keys of the top scope */
ty_status ty_steps_start(steps_reader *reader, const ty_json *object) TY_MUST_CHECK;
/** Frees the results of the steps, except for a workload. */
void ty_steps_end(steps_reader *reader);
/** Runs a list of steps. */
ty_status ty_steps_run(steps_reader *reader, const ty_json *steps) TY_MUST_CHECK;
/** Runs a list of steps of families/common.json. */
ty_status ty_steps_run_part(steps_reader *reader, const char *name) TY_MUST_CHECK;

/** The numbers of the current scope as sizes, with a list of blocks if blocks have their own
 * numbers; the list lives as long as the reader's arena. */
ty_status ty_steps_transformer(steps_reader *reader, ty_transformer *out) TY_MUST_CHECK;

/** A number of the current scope; 0 if it has none of that name. */
double ty_steps_number_of(const steps_reader *reader, const char *name);
/** A text of the current scope, or NULL. */
const char *ty_steps_text_of(const steps_reader *reader, const char *name);
/** TY_EPARSE naming the setting's line, key and value. */
ty_status ty_steps_fail_pair(const steps_reader *reader, const training_pair *pair,
                             const char *expected) TY_MUST_CHECK;

/* Shared by the files of steps. */

ty_status ty_steps_out_of_memory(const steps_reader *reader) TY_MUST_CHECK;
/** A number or text of the scope; NULL: none of that name. */
steps_variable *ty_steps_find(const steps_scope *scope, const char *name, size_t length);
/** The scope of that name in a scope, "outer": the one around it; NULL: none. */
steps_scope *ty_steps_find_scope(const steps_scope *scope, const char *name, size_t length);
/** Finds or adds a number or text. `name` lives as long as the reader. */
ty_status ty_steps_make(steps_reader *reader, steps_scope *scope, const char *name,
                        steps_variable **out) TY_MUST_CHECK;
/** The number "blocks"; TY_EPARSE for more than 10,000. */
ty_status ty_steps_count_blocks(const steps_reader *reader, uint64_t *out) TY_MUST_CHECK;
/** Whether a text matches "relu", "gated-*" or "*attention*"; ignores case for settings. */
bool ty_steps_is_like(const steps_reader *reader, const char *pattern, const char *text);
/** The setting of a key, by its last part, or by the full path for "/key" and "a.b". NULL: none */
const training_pair *ty_steps_find_setting(const steps_reader *reader, const char *key);
/** Runs a step that reads keys. @param is_done [out] false if the step is of another kind */
ty_status ty_steps_run_keys(steps_reader *reader, const ty_json *step, bool *is_done) TY_MUST_CHECK;

/** A number or an expression. */
ty_status ty_steps_number(steps_reader *reader, const ty_json *value, double *out) TY_MUST_CHECK;
/** Likewise for a member, also true or false; `fallback` if the step has no such member. */
ty_status ty_steps_value(steps_reader *reader, const ty_json *step, const char *key,
                         double fallback, double *out) TY_MUST_CHECK;
ty_status ty_steps_set(steps_reader *reader, const char *name, double value) TY_MUST_CHECK;
ty_status ty_steps_set_size(steps_reader *reader, const char *name, uint64_t value) TY_MUST_CHECK;
/** A text in which "{expression}" is replaced by an integer. */
ty_status ty_steps_text(steps_reader *reader, const ty_json *step, const char *key,
                        ty_text *out) TY_MUST_CHECK;

/* Runs steps that append layers. */
ty_status ty_steps_open(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_layer(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_settle(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_fits(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;

#endif
