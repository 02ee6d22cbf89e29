/**
 * @file import.h
 * Interface of importers: each is a file and a row of the table in import.c. Internal to
 * workloads/.
 *
 * To add a format: write import_NAME.c with `const ty_import_format ty_import_NAME`, declare it
 * below and put it into the table; docs/guides/bring-a-model.md gets a row.
 */
#ifndef TY_WORKLOADS_IMPORT_H
#define TY_WORKLOADS_IMPORT_H

#include "ty_workloads.h"

/** The input file and its notes. */
typedef struct ty_import_source {
    const char *path;  /* as given by the user: prefix of messages */
    const char *bytes; /* the entire file, followed by a NUL outside `length` */
    size_t length;
    const ty_import_options *options;
    ty_error *error;
    /* Set by import_source.c: */
    ty_json_document *document;
    ty_error json_error; /* reason for no document, after the first request */
    bool is_parsed;
    ty_import_report report;
    ty_status note_status; /* TY_ENOMEM after a note was lost */
    bool has_vocabulary;   /* an importer has read the requested one */
} ty_import_source;

typedef struct ty_import_format {
    const char *name; /* for messages: "Hugging Face config.json" */
    /** Whether the file has this format: a cheap check of a few features, which never fails. */
    bool (*probe)(ty_import_source *source);
    /** The workload, or an error: "path:/pointer: found ..., expected ...". */
    ty_status (*read)(ty_import_source *source, ty_workload **out);
    bool is_refused; /* no workload: `read` only reports the format */
} ty_import_format;

/** The file as JSON, parsed on first use; NULL if invalid. */
const ty_json *ty_import_json(ty_import_source *source);

/** The requested vocabulary size, 0 for none; marks it as read. A request is refused if the
 * importer does not read it. */
uint64_t ty_import_vocabulary(ty_import_source *source);

/** Notes an ignored part or an assumption: one sentence, no full stop. */
void ty_import_note(ty_import_source *source, const char *format, ...) TY_PRINTF(2, 3);

/** A name for the workload, from the path: "llama" of "x/llama.json" and of "llama/config.json".
 *  @param out [out] free with ty_free */
ty_status ty_import_name(const ty_import_source *source, char **out) TY_MUST_CHECK;

/** ty_builder_finish for a file's content: an inconsistency is an error of the file. */
ty_status ty_import_finish(const ty_import_source *source, ty_builder *builder,
                           ty_workload **out) TY_MUST_CHECK;

/** As ty_import_bytes, for a file in one of these formats. */
ty_status ty_import_as(const ty_import_format *const *formats, size_t count, const char *path,
                       const char *bytes, size_t length, const ty_import_options *options,
                       ty_workload **out, ty_import_report *report, ty_error *error) TY_MUST_CHECK;
/** As ty_workload_import, for bytes in memory; a NUL follows them. */
ty_status ty_import_bytes(const char *path, const char *bytes, size_t length,
                          const ty_import_options *options, ty_workload **out,
                          ty_import_report *report, ty_error *error) TY_MUST_CHECK;

/** Whether bytes are Megatron-LM's arguments, as accepted by its importer. */
bool ty_is_megatron_arguments(const char *bytes);
struct training_pairs;
/** Reads them as settings: "--bf16" is "bf16" with value "true"; known variables are replaced; the
 * last of repeated options counts. @param out [out] free with ty_training_pairs_clear
 * @param conditional [out] options inside an "if" or a "case" of the script, "--a, --b"
 * @param report gets notes on repeated sizes */
#define TY_MEGATRON_CONDITIONAL "behind an if or a case, taken as given: %s"
ty_status ty_megatron_settings(const char *path, const char *bytes, size_t length,
                               struct training_pairs *out, ty_text *conditional,
                               ty_import_report *report, ty_error *error) TY_MUST_CHECK;
/** Reads the model from settings of a training program, by training/KIND.json; marks the settings
 * it reads.
 * @param is_arguments "--num-layers": missing options are off */
ty_status ty_settings_model(ty_import_source *source, const char *kind,
                            struct training_pairs *pairs, bool is_arguments,
                            ty_workload **out) TY_MUST_CHECK;
/** Likewise, for a file that no importer reads. */
ty_status ty_import_settings(const char *path, const char *kind, struct training_pairs *pairs,
                             const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error) TY_MUST_CHECK;
#define TY_TRAINING_FOLDER "workloads/training"

/* In the order of the table: the first with a matching probe reads the file. */
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
