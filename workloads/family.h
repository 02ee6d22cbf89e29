/**
 * @file family.h
 * The reader of families/NAME.json: what the configurations of a model family on Hugging Face mean.
 * docs/recipes.md has the form of these files. Internal to workloads/.
 *
 * A family is a list of steps over named numbers. Steps read keys of the configuration, compute,
 * check and note; those of models that are not one stack of blocks also append layers. The numbers
 * that are called as members of ty_transformer become one.
 */
#ifndef TY_WORKLOADS_FAMILY_H
#define TY_WORKLOADS_FAMILY_H

#include "import_language.h"

typedef struct family_variable {
    const char *name;
    double value;
    double *of_blocks; /* [block_count], where each block has its own */
    uint64_t block_count;
    bool is_given; /* the configuration has it */
} family_variable;

/** Numbers under their names: those of the whole, and of parts such as a tower for images. */
typedef struct family_scope {
    const char *name, *prefix;                 /* of the names of its layers */
    struct family_scope *outer, *inner, *next; /* the first inside it; the next beside it */
    const ty_json *object;                     /* where its keys are */
    family_variable *variables;
    size_t count, room;
} family_scope;

typedef struct family_reader {
    ty_import_source *source;
    ty_error *error;
    ty_arena *arena;
    const ty_json *whole;      /* the configuration */
    const ty_json *parts;      /* of families/common.json */
    family_scope *top, *scope; /* `scope`: of the current step */
    ty_builder *builder;       /* once a step opened it; freed by the owner of the reader */
    uint64_t block;            /* of the current step; UINT64_MAX: it is not of one */
    int depth;                 /* of steps in one another */
} family_reader;

/** Sets up the scopes. @param object where the keys of the top scope are */
ty_status family_start(family_reader *reader, const ty_json *object) TY_MUST_CHECK;
/** Runs a list of steps. */
ty_status family_run(family_reader *reader, const ty_json *steps) TY_MUST_CHECK;
/** Runs a list of steps of families/common.json. */
ty_status family_run_part(family_reader *reader, const char *name) TY_MUST_CHECK;

/** The numbers of the current scope as sizes, with a list of blocks where blocks have numbers of
 *  their own; that lives as long as the reader's arena. */
ty_status family_transformer(family_reader *reader, ty_transformer *out) TY_MUST_CHECK;

/* For steps. */

/** A number or an expression. */
ty_status family_number(family_reader *reader, const ty_json *value, double *out) TY_MUST_CHECK;
/** Likewise a member, or true or false; `fallback` where the step has no such member. */
ty_status family_value(family_reader *reader, const ty_json *step, const char *key, double fallback,
                       double *out) TY_MUST_CHECK;
ty_status family_set(family_reader *reader, const char *name, double value) TY_MUST_CHECK;
ty_status family_set_size(family_reader *reader, const char *name, uint64_t value) TY_MUST_CHECK;
/** A text in which "{expression}" stands for a whole number. */
ty_status family_text(family_reader *reader, const ty_json *step, const char *key,
                      ty_text *out) TY_MUST_CHECK;

/* Steps that append layers. */
ty_status family_open(family_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status family_layer(family_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status family_settle(family_reader *reader, const ty_json *step) TY_MUST_CHECK;
ty_status family_fits(family_reader *reader, const ty_json *step) TY_MUST_CHECK;

#endif
