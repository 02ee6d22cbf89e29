/**
 * @file launch.h
 * Launch files from templates: a target is a row of the table in launch.c and its files in
 * templates/. The values that fill them are computed once per plan. Internal to reports/.
 *
 *     l.values: the facts of the plan, by name        (launch_values.c, launch_megatron.c)
 *     ty_launch_render("torchrun", "launch.sh", ...)  (launch_render.c)
 */
#ifndef TY_REPORTS_LAUNCH_H
#define TY_REPORTS_LAUNCH_H

#include "ty_reports.h"

/* ---- Values ------------------------------------------------------------------------------ */

typedef struct launch_values launch_values;

typedef struct launch_value {
    const char *key; /* borrowed */
    char *text;      /* NULL for a list */
    launch_values *rows;
    uint32_t row_count;
} launch_value;

/** Texts and lists of rows by name. Zero-initialise; a failed allocation is stored in `failed`. */
struct launch_values {
    launch_value *items;
    uint32_t count;
    ty_status failed;
};

/** Adds a text; keys are string literals and occur once. */
void ty_launch_put(launch_values *values, const char *key, const char *format, ...) TY_PRINTF(3, 4);
/** The same of a text of any length and content; NULL adds nothing, and so does no row to add to.
 */
void ty_launch_put_text(launch_values *values, const char *key, const char *text);
/** The first `most` bytes of a name, on one line. */
void ty_launch_put_name(launch_values *values, const char *key, const char *name, int most);
void ty_launch_put_uint(launch_values *values, const char *key, uint64_t number);
void ty_launch_put_number(launch_values *values, const char *key, double number);
/** A flag is "1" or absent. */
void ty_launch_put_flag(launch_values *values, const char *key, bool is_set);
/** The same with the content of a text, which is cleared. */
void ty_launch_put_taken(launch_values *values, const char *key, ty_text *text);
/** Appends a row to a list, valid until the next one. NULL, in which nothing is put, where memory
 * is out. */
launch_values *ty_launch_put_row(launch_values *values, const char *key);
void ty_launch_values_clear(launch_values *values);

/* ---- Templates --------------------------------------------------------------------------- */

typedef struct launch_template {
    const char *name; /* the file's without ".in" */
    const char *text;
} launch_template;
extern const launch_template ty_launch_templates[]; /* made by templates.cmake; ends with NULL */

/**
 * Appends the template "OWNER.NAME", else "NAME", filled from the values.
 *
 *     {{key}} {{key|filter}}          a value; missing ones are errors
 *     {{#if key}} ... {{/if}}         where it is there and neither "" nor "0"
 *     {{#if key=word}} {{#if !...}}   where it is that word; the opposite
 *     {{#each key}} ... {{/each}}     for every row of a list, whose values come first
 *     {{>name}} {{>name|filter}}      another template
 *
 * A block tag alone on its line, and {{>name}} that is all of it, take the line's end with them.
 * Filters: shell (a word), yaml (a quoted scalar), block (a literal scalar where YAML allows one,
 * two columns inside its line), indent (further lines as the first), comment ("# " before each
 * line), float (a number of TOML).
 * @return TY_EINVAL for a mistake of a template and for bytes that YAML cannot hold
 */
ty_status ty_launch_render(const char *owner, const char *name, const launch_values *values,
                           ty_text *text, ty_error *error) TY_MUST_CHECK;

/** The same of a template's text. */
ty_status ty_launch_render_text(const char *template, const launch_values *values, ty_text *text,
                                ty_error *error) TY_MUST_CHECK;

/* ---- A launch ---------------------------------------------------------------------------- */

/** A ConfigMap holds at most 1 MiB, keys and all: Kubernetes documentation, "ConfigMaps". */
#define LAUNCH_LARGEST_CONFIG_BYTES ((size_t)1000 * 1000)

typedef struct launch_rank {
    uint32_t stage_replica, replica_rank;
    uint32_t host; /* index into launch.hosts */
    uint32_t slot; /* the device's number on its host */
} launch_rank;

typedef struct launch_host {
    const char *name;
    uint32_t rank_count;
} launch_host;

typedef struct launch {
    const ty_launch_input *input;
    const ty_plan *plan;
    uint32_t rank_count;
    launch_rank *ranks; /* [process_count] */
    uint32_t host_count;
    launch_host *hosts;  /* those in use, in the order processes meet them */
    bool is_blocked;     /* the processes of a host follow each other, each with the next device */
    uint32_t per_host;   /* processes of each host, where all have the same number; else 0 */
    uint32_t first_slot; /* of every host's first process, where it is the same; else UINT32_MAX */
    bool has_accelerators;
    const char *precision; /* "fp32", "bf16", "fp16" */
    launch_values values;
    ty_launch_files *files;
} launch;

/** Finds who runs where. @return TY_EINVAL for devices or host names that cannot be */
ty_status ty_launch_place(launch *l, ty_error *error) TY_MUST_CHECK;
/** The facts of a plan for templates, except for comments and the target. */
ty_status ty_launch_put_plan(launch *l, ty_error *error) TY_MUST_CHECK;
/** The values of Megatron-LM's arguments; "megatron_refusal" where they cannot. */
void ty_launch_put_megatron(launch *l);

/** Appends a file. Takes the text's content, also on failure. */
ty_status ty_launch_add(launch *l, const char *name, ty_text *text, ty_error *error) TY_MUST_CHECK;
/** TY_EUNSUPPORTED: "--to TARGET: REASON". */
ty_status ty_launch_refuse(ty_error *error, const char *target, const char *format, ...)
    TY_PRINTF(3, 4);

/* Content that no template can express: rows for NCCL's tuner, traces of Chakra. */
ty_status ty_launch_nccl(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_chakra(launch *l, ty_error *error) TY_MUST_CHECK;

#endif
