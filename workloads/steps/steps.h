/**
 * @file steps.h
 * What the keys of a configuration mean, as files say it: families/NAME.json of model families on
 * Hugging Face, training/NAME.json of training programs. docs/design/families.md lists the steps.
 * Internal to workloads/.
 *
 * Steps run in order over named numbers and texts. They read keys of the configuration, compute,
 * check and note; those of models that are not one stack of blocks also append layers. The numbers
 * that are called as members of ty_transformer become one.
 */
#ifndef TY_WORKLOADS_STEPS_H
#define TY_WORKLOADS_STEPS_H

#include "import_language.h"
#include "training_pairs.h"

typedef struct steps_variable {
    const char *name;
    double value;
    double *of_blocks; /* [block_count], where each block has its own */
    uint64_t block_count;
    const char *text; /* of a text; its value is then 1 */
    bool is_given;    /* the configuration has it */
} steps_variable;

/** Numbers under their names: those of the whole, and of parts such as a tower for images. */
typedef struct steps_scope {
    const char *name, *prefix;                /* of the names of its layers */
    struct steps_scope *outer, *inner, *next; /* the first inside it; the next of the same */
    const ty_json *object;                    /* where its keys are */
    steps_variable *variables;
    size_t count, room;
} steps_scope;

typedef struct steps_reader {
    ty_import_source *source;
    ty_error *error;
    ty_arena *arena;
    /** Where keys are looked for in place of JSON: settings of a training program. */
    training_pairs *pairs;
    bool is_arguments;        /* ... which are written as "--tensor-model-parallel-size 2" */
    ty_import_report *report; /* where notes go; NULL: to the source's */
    ty_text *switches;        /* where words of a stack go: "tp_comm_overlap=on ..." */
    const ty_json *whole;     /* the configuration */
    const ty_json *parts;     /* of families/common.json */
    steps_scope *top, *scope; /* `scope`: of the current step */
    ty_builder *builder;      /* once a step opened it; freed by the owner of the reader */
    uint64_t block;           /* of the current step; UINT64_MAX: it is not of one */
    int depth;                /* of steps in one another */
} steps_reader;

/** A file of the catalogue with steps. */
ty_status ty_steps_load(const char *folder, const char *name, ty_json_document **out,
                        ty_error *error) TY_MUST_CHECK;
/** Sets up the scopes. @param object where the keys of the top scope are */
ty_status ty_steps_start(steps_reader *reader, const ty_json *object) TY_MUST_CHECK;
/** Frees what the steps made, but for a workload. */
void ty_steps_end(steps_reader *reader);
/** Runs a list of steps. */
ty_status ty_steps_run(steps_reader *reader, const ty_json *steps) TY_MUST_CHECK;
/** Runs a list of steps of families/common.json. */
ty_status ty_steps_run_part(steps_reader *reader, const char *name) TY_MUST_CHECK;

/** The numbers of the current scope as sizes, with a list of blocks where blocks have numbers of
 *  their own; that lives as long as the reader's arena. */
ty_status ty_steps_transformer(steps_reader *reader, ty_transformer *out) TY_MUST_CHECK;

/** A number of the current scope; 0 where it has none of the name. */
double ty_steps_number_of(const steps_reader *reader, const char *name);
/** A text likewise, or NULL. */
const char *ty_steps_text_of(const steps_reader *reader, const char *name);
/** TY_EPARSE that names the setting's line, key and value. */
ty_status ty_steps_fail_pair(const steps_reader *reader, const training_pair *pair,
                             const char *expected) TY_MUST_CHECK;

/* For steps. */

ty_status ty_steps_out_of_memory(const steps_reader *reader) TY_MUST_CHECK;
/** A number or text of the scope; NULL: no step has made one of the name. */
steps_variable *ty_steps_find(const steps_scope *scope, const char *name, size_t length);
/** The scope of that name in a scope, "outer": the one around it; NULL: none. */
steps_scope *ty_steps_find_scope(const steps_scope *scope, const char *name, size_t length);
/** As ty_steps_find, made where there is none. `name` lives as long as the reader. */
ty_status ty_steps_make(steps_reader *reader, steps_scope *scope, const char *name,
                        steps_variable **out) TY_MUST_CHECK;
/** The number "blocks"; TY_EPARSE for more than 10,000. */
ty_status ty_steps_count_blocks(const steps_reader *reader, uint64_t *out) TY_MUST_CHECK;
/** Whether a text is like "relu", "gated-*" or "*attention*"; of settings whatever the case. */
bool ty_steps_is_like(const steps_reader *reader, const char *pattern, const char *text);
/** The setting of a key: its last part, or "/key" and "a.b" in whole. NULL: none */
const training_pair *ty_steps_find_setting(const steps_reader *reader, const char *key);
/** Runs a step that reads keys. @param is_done [out] false where it is another kind */
ty_status ty_steps_run_keys(steps_reader *reader, const ty_json *step, bool *is_done) TY_MUST_CHECK;

/** A number or an expression. */
ty_status ty_steps_number(steps_reader *reader, const ty_json *value, double *out) TY_MUST_CHECK;
/** Likewise a member, or true or false; `fallback` where the step has no such member. */
ty_status ty_steps_value(steps_reader *reader, const ty_json *step, const char *key,
                         double fallback, double *out) TY_MUST_CHECK;
ty_status ty_steps_set(steps_reader *reader, const char *name, double value) TY_MUST_CHECK;
ty_status ty_steps_set_size(steps_reader *reader, const char *name, uint64_t value) TY_MUST_CHECK;
/** A text in which "{expression}" stands for a whole number. */
ty_status ty_steps_text(steps_reader *reader, const ty_json *step, const char *key,
                        ty_text *out) TY_MUST_CHECK;

/* Steps that append layers. */
ty_status ty_steps_open(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_layer(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_settle(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status ty_steps_fits(steps_reader *reader, const ty_json *step) TY_MUST_CHECK;

#endif
