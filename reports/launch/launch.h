/**
 * @file launch.h
 * Launch files from templates: a target is a row of the table in launch.c and its files in
 * templates/. The values that fill them are computed once per plan. Internal to reports/.
 *
 *     l.values: the values of the plan, by name       (launch_values.c, launch_megatron.c)
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

/** Texts and lists of rows by name. Initialize with zeros; a failed allocation is stored in
 * `failed`. */
struct launch_values {
    launch_value *items;
    uint32_t count;
    ty_status failed;
};

/** Adds a text; keys are string literals and occur once. */
void ty_launch_put(launch_values *values, const char *key, const char *format, ...) TY_PRINTF(3, 4);
/** The same for a text of any length and content. Nothing if the text or the values are NULL. */
void ty_launch_put_text(launch_values *values, const char *key, const char *text);
/** Adds the first `most` bytes of a name, on one line. */
void ty_launch_put_name(launch_values *values, const char *key, const char *name, int most);
void ty_launch_put_uint(launch_values *values, const char *key, uint64_t number);
void ty_launch_put_number(launch_values *values, const char *key, double number);
/** Adds "1" if `is_set`, else nothing. */
void ty_launch_put_flag(launch_values *values, const char *key, bool is_set);
/** Adds the content of a text and clears it. */
void ty_launch_put_taken(launch_values *values, const char *key, ty_text *text);
/** Appends a row to a list, valid until the next one. NULL when memory runs out; adding to NULL
 * does nothing. */
launch_values *ty_launch_put_row(launch_values *values, const char *key);
void ty_launch_values_clear(launch_values *values);

/* ---- Templates --------------------------------------------------------------------------- */

typedef struct launch_template {
    const char *name; /* name of its file without ".in" */
    const char *text;
} launch_template;
extern const launch_template ty_launch_templates[]; /* made by templates.cmake; ends with NULL */

/**
 * Appends the template "OWNER.NAME", else "NAME", filled from the values.
 *
 *     {{key}} {{key|filter}}          a value; missing ones are errors
 *     {{#if key}} ... {{/if}}         if it exists and is neither "" nor "0"
 *     {{#if key=word}} {{#if !...}}   if it is that word; the opposite
 *     {{#each key}} ... {{/each}}     for every row of a list, whose values take precedence
 *     {{>name}} {{>name|filter}}      another template
 *
 * A block tag or {{>name}} alone on its line also removes the line's end.
 * Filters: shell (a word), yaml (a quoted scalar), block (a literal scalar if YAML allows one,
 * indented by two columns), indent (further lines as the first), comment ("# " before each line),
 * float (a number of TOML).
 * @return TY_EINVAL for a mistake of a template and for bytes that YAML cannot hold
 */
ty_status ty_launch_render(const char *owner, const char *name, const launch_values *values,
                           ty_text *text, ty_error *error) TY_MUST_CHECK;

/** The same for a template's text. */
ty_status ty_launch_render_text(const char *template, const launch_values *values, ty_text *text,
                                ty_error *error) TY_MUST_CHECK;

/* ---- A launch ---------------------------------------------------------------------------- */

/** A ConfigMap holds at most 1 MiB, keys and all: Kubernetes documentation, "ConfigMaps". */
#define LAUNCH_LARGEST_CONFIG_BYTES ((size_t)1000 * 1000)

typedef struct launch_rank {
    uint32_t stage_replica, replica_rank;
    uint32_t host; /* index in launch.hosts */
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
    launch_rank *ranks; /* [rank_count] */
    uint32_t host_count;
    launch_host *hosts;  /* hosts in use, in the order of their first rank */
    bool is_blocked;     /* a host's ranks are consecutive, each on the next device */
    uint32_t per_host;   /* ranks per host if equal on all hosts; else 0 */
    uint32_t first_slot; /* device of every host's first rank if equal; else UINT32_MAX */
    bool has_accelerators;
    const char *precision; /* "fp32", "bf16", "fp16" */
    launch_values values;
    ty_launch_files *files;
} launch;

/** Places ranks on hosts and devices. @return TY_EINVAL for devices or host names that cannot be
 * used */
ty_status ty_launch_place(launch *l, ty_error *error) TY_MUST_CHECK;
/** Adds the values of a plan for templates, except for comments and the target. */
ty_status ty_launch_put_plan(launch *l, ty_error *error) TY_MUST_CHECK;
/** Adds the values of Megatron-LM's arguments; "megatron_refusal" if they cannot express the
 * plan. */
void ty_launch_put_megatron(launch *l);

/** Appends a file. Takes ownership of the text's content, also on failure. */
ty_status ty_launch_add(launch *l, const char *name, ty_text *text, ty_error *error) TY_MUST_CHECK;
/** Sets the error "--to TARGET: REASON" and returns TY_EUNSUPPORTED. */
ty_status ty_launch_refuse(ty_error *error, const char *target, const char *format, ...)
    TY_PRINTF(3, 4);

/* Files that no template can express: rows for NCCL's tuner, traces of Chakra. */
ty_status ty_launch_nccl(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_chakra(launch *l, ty_error *error) TY_MUST_CHECK;

#endif
