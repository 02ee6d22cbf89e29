/**
 * @file import.h
 * What an importer is: a row of the table in import.c, in a file of its own. Internal to
 * workloads/.
 *
 * To add a kind of file: write import_NAME.c with `const ty_import_format ty_import_NAME`, declare
 * it below and put it into the table; docs/guides/bring-a-model.md gets a row.
 */
#ifndef TY_WORKLOADS_IMPORT_H
#define TY_WORKLOADS_IMPORT_H

#include "ty_workloads.h"

/** The file that is being read, and where what is found out about it goes. */
typedef struct ty_import_source {
    const char *path;  /* as the user gave it: messages begin with it */
    const char *bytes; /* the whole file; a NUL that `length` does not count follows */
    size_t length;
    const ty_import_options *options;
    ty_error *error;
    /* Set by import_source.c: */
    ty_json_document *document;
    ty_error json_error; /* why there is no document, once it was asked for */
    bool is_parsed;
    ty_import_report report;
    ty_status note_status; /* TY_ENOMEM once a note was lost */
    bool has_vocabulary;   /* the one that was asked for was taken */
} ty_import_source;

typedef struct ty_import_format {
    const char *name; /* as people call it: "Hugging Face config.json" */
    /** Whether the file is of this kind: a look at a few features, cheap, and never a failure. */
    bool (*probe)(ty_import_source *source);
    /** The workload, or what is wrong: "path:/pointer: found ..., expected ...". */
    ty_status (*read)(ty_import_source *source, ty_workload **out);
    bool is_refused; /* holds no workload: `read` only says what the file is */
} ty_import_format;

/** The file as JSON, parsed when first asked for; NULL where it is none. */
const ty_json *ty_import_json(ty_import_source *source);

/** The size of the vocabulary that is asked for beside the file, 0 for none; who asks takes it. Of
 * a kind of file that does not ask, one that is asked for is refused. */
uint64_t ty_import_vocabulary(ty_import_source *source);

/** Tells the user what was left out or assumed: one sentence, no full stop. */
void ty_import_note(ty_import_source *source, const char *format, ...) TY_PRINTF(2, 3);

/** A name for the workload, from the path: "llama" of "x/llama.json" and of "llama/config.json".
 *  @param out [out] free with ty_free */
ty_status ty_import_name(const ty_import_source *source, char **out) TY_MUST_CHECK;

/** ty_builder_finish of what a file holds: where it does not hold together, the file is wrong. */
ty_status ty_import_finish(const ty_import_source *source, ty_builder *builder,
                           ty_workload **out) TY_MUST_CHECK;

/** As ty_import_bytes, of a file of one of these kinds. */
ty_status ty_import_as(const ty_import_format *const *formats, size_t count, const char *path,
                       const char *bytes, size_t length, const ty_import_options *options,
                       ty_workload **out, ty_import_report *report, ty_error *error) TY_MUST_CHECK;
/** As ty_workload_import, for bytes in memory; a NUL follows them. */
ty_status ty_import_bytes(const char *path, const char *bytes, size_t length,
                          const ty_import_options *options, ty_workload **out,
                          ty_import_report *report, ty_error *error) TY_MUST_CHECK;

/** Whether bytes are Megatron-LM's arguments, as its importer takes them. */
bool ty_is_megatron_arguments(const char *bytes);
struct training_pairs;
/** They as settings: "--bf16" is "bf16" and "true", a word is what is known of its variables; of
 * one that is given twice the last counts. @param out [out] free with ty_training_pairs_clear
 * @param conditional [out] options inside an "if" or a "case" of the script, "--a, --b"
 * @param report notes of sizes that are given twice */
#define TY_MEGATRON_CONDITIONAL "behind an if or a case, taken as given: %s"
ty_status ty_megatron_settings(const char *path, const char *bytes, size_t length,
                               struct training_pairs *out, ty_text *conditional,
                               ty_import_report *report, ty_error *error) TY_MUST_CHECK;
/** The model of settings of a training program, by training/KIND.json; marks what it reads.
 *  @param is_arguments "--num-layers": what is not there is off */
ty_status ty_settings_model(ty_import_source *source, const char *kind,
                            struct training_pairs *pairs, bool is_arguments,
                            ty_workload **out) TY_MUST_CHECK;
/** Likewise, of a file that no importer reads. */
ty_status ty_import_settings(const char *path, const char *kind, struct training_pairs *pairs,
                             const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error) TY_MUST_CHECK;
#define TY_TRAINING_FOLDER "workloads/training"

/* In the order of the table: the first whose probe agrees reads the file. */
extern const ty_import_format ty_import_workload; /* trainyard.workload/1 */
extern const ty_import_format ty_import_zoo;      /* trainyard.zoo/1 */
extern const ty_import_format ty_import_megatron;
extern const ty_import_format ty_import_hf;
extern const ty_import_format ty_import_calculon;
extern const ty_import_format ty_import_calculon_execution;
extern const ty_import_format ty_import_calculon_system;
extern const ty_import_format ty_import_deepspeed;
extern const ty_import_format ty_import_pipedream;
extern const ty_import_format ty_import_onnx;
extern const ty_import_format ty_import_chakra;
extern const ty_import_format ty_import_chakra_json;
extern const ty_import_format ty_import_archive;
extern const ty_import_format ty_import_profiler_trace;
extern const ty_import_format ty_import_observer_trace;
extern const ty_import_format ty_import_foreign_text;

#endif
