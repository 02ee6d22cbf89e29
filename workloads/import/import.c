/* Reads a workload from a file of any known format: the table of formats. */
#include "import.h"

#include "gunzip.h"

#include <string.h>

/* Formats identified by a few bytes come before those that need the entire file parsed. */
static const ty_import_format *const formats[] = {
    &ty_import_archive,         &ty_import_onnx,
    &ty_import_chakra,          &ty_import_pipedream,
    &ty_import_profiler_trace,  &ty_import_observer_trace,
    &ty_import_workload,        &ty_import_zoo,
    &ty_import_megatron,        &ty_import_hf,
    &ty_import_calculon,        &ty_import_calculon_execution,
    &ty_import_calculon_system, &ty_import_deepspeed,
    &ty_import_chakra_json,     &ty_import_foreign_text,
};
#define FORMAT_COUNT (sizeof formats / sizeof formats[0])

ty_status ty_import_bytes(const char *path, const char *bytes, size_t length,
                          const ty_import_options *options, ty_workload **out,
                          ty_import_report *report, ty_error *error)
{
    return ty_import_as(formats, FORMAT_COUNT, path, bytes, length, options, out, report, error);
}

ty_status ty_import_settings(const char *path, const char *kind, struct training_pairs *pairs,
                             const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error)
{
    ty_import_source source = {.path = path, .options = options, .error = error};
    ty_status status = ty_settings_model(&source, kind, pairs, false, out);

    if (status == TY_OK && source.note_status != TY_OK) {
        ty_workload_free(*out);
        *out = NULL;
        status = ty_fail(error, source.note_status, "%s: out of memory", path);
    }
    *report = source.report;
    return status;
}

ty_status ty_workload_import(const char *path, const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error)
{
    ty_status status = TY_OK;
    char *bytes = NULL;
    size_t length = 0;

    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, cleanup);
    if (ty_is_gzip(bytes, length))
        TY_CHECK(ty_gunzip(path, &bytes, &length, error), status, cleanup);
    status = ty_import_bytes(strcmp(path, "-") == 0 ? "<standard input>" : path, bytes, length,
                             options, out, report, error);

cleanup:
    ty_free(bytes);
    return status;
}
