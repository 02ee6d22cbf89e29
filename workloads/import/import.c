/* From a file of any known kind to a workload: the table of kinds, and what their readers share. */
#include "import.h"

#include "gunzip.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Kinds that are told by a few bytes stand before those that need the whole file parsed. */
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

struct ty_import_state {
    ty_json_document *document;
    ty_error json_error; /* why there is no document, once it was asked for */
    bool is_parsed;
    ty_import_report report;
    ty_status note_status; /* TY_ENOMEM once a note was lost */
    bool has_vocabulary;   /* the one that was asked for was taken */
};

static bool is_our_own(const ty_json *root)
{
    const char *schema;

    return ty_json_is_object(root) && ty_json_has(root, "schema") &&
           ty_json_string(root, "schema", &schema, NULL) == TY_OK &&
           strncmp(schema, "trainyard.", strlen("trainyard.")) == 0;
}

/* Other programs may write NaN and Infinity, our own do not. */
static ty_status parse_json(ty_import_source *source)
{
    struct ty_import_state *state = source->state;
    ty_text unknown = {0};
    ty_status status = ty_json_parse_foreign(source->bytes, source->length, source->path, &unknown,
                                             &state->document, &state->json_error);

    if (status == TY_OK && unknown.length > 0 && is_our_own(ty_json_root(state->document))) {
        ty_json_free(state->document);
        state->document = NULL;
        status = ty_json_parse(source->bytes, source->length, source->path, &state->document,
                               &state->json_error);
    } else if (unknown.length > 0)
        ty_import_note(source, "%s", unknown.data);
    ty_text_clear(&unknown);
    return status;
}

const ty_json *ty_import_json(ty_import_source *source)
{
    struct ty_import_state *state = source->state;

    if (!state->is_parsed) {
        state->is_parsed = true;
        state->json_error.status = parse_json(source);
    }
    return state->document != NULL ? ty_json_root(state->document) : NULL;
}

ty_status ty_import_report_add(ty_import_report *report, const char *note, ty_error *error)
{
    char *copy, **grown;

    for (uint32_t i = 0; i < report->note_count; i++)
        if (strcmp(report->notes[i], note) == 0)
            return TY_OK;
    copy = ty_strdup(note);
    grown = ty_resize(report->notes, (size_t)report->note_count + 1, sizeof *grown);
    if (grown != NULL)
        report->notes = grown;
    if (copy == NULL || grown == NULL) {
        ty_free(copy);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    grown[report->note_count++] = copy;
    return TY_OK;
}

void ty_import_note(ty_import_source *source, const char *format, ...)
{
    struct ty_import_state *state = source->state;
    char sentence[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (ty_import_report_add(&state->report, sentence, NULL) != TY_OK)
        state->note_status = TY_ENOMEM;
}

uint64_t ty_import_vocabulary(ty_import_source *source)
{
    source->state->has_vocabulary = true;
    return source->options->vocabulary;
}

void ty_import_report_clear(ty_import_report *report)
{
    for (uint32_t i = 0; i < report->note_count; i++)
        ty_free(report->notes[i]);
    ty_free(report->notes);
    *report = (ty_import_report){0};
}

/* ---- Name ------------------------------------------------------------------------------------ */

typedef struct piece { /* of the path */
    const char *at;
    size_t length;
} piece;

static piece last_component(const char *path, size_t length)
{
    size_t end = length, start;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    return (piece){path + start, end - start};
}

static bool is_piece(const piece *p, const char *text)
{
    return p->length == strlen(text) && memcmp(p->at, text, p->length) == 0;
}

ty_status ty_import_name(const ty_import_source *source, char **out)
{
    static const char *const endings[] = {".gz", ".json", ".txt", ".sh", ".yaml", ".onnx", ".et"};
    piece base = last_component(source->path, strlen(source->path));
    piece folder = last_component(source->path, (size_t)(base.at - source->path));

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(endings[i]);
        if (base.length > length && memcmp(base.at + base.length - length, endings[i], length) == 0)
            base.length -= length;
    }
    if (is_piece(&base, "config") && folder.length > 0 && !is_piece(&folder, ".") &&
        !is_piece(&folder, ".."))
        base = folder;
    if (base.length == 0 || is_piece(&base, "-"))
        base = (piece){"imported", 8};
    *out = ty_strndup(base.at, base.length);
    return *out != NULL ? TY_OK
                        : ty_fail(source->error, TY_ENOMEM, "%s: out of memory", source->path);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool looks_like_json(const ty_import_source *source)
{
    char first = source->bytes[strspn(source->bytes, " \t\r\n")];
    return first == '{' || first == '[';
}

/* What to say of a file that no probe knows. */
static ty_status fail_unknown(ty_import_source *source)
{
    const ty_json *root = looks_like_json(source) ? ty_import_json(source) : NULL;
    const ty_error *json_error = &source->state->json_error;
    char known[320] = "";

    if (looks_like_json(source) && root == NULL)
        return ty_fail(source->error, json_error->status, "%s", json_error->message);
    if (root != NULL && ty_json_is_object(root) && ty_json_has(root, "schema"))
        return ty_json_schema(root, "trainyard.workload/1", source->error);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        size_t length = strlen(known);
        if (!formats[i]->is_refused)
            snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "",
                     formats[i]->name);
    }
    return ty_fail(source->error, TY_EPARSE,
                   "%.150s: found no kind of file that is known, expected one of %s", source->path,
                   known);
}

static ty_status read_source(ty_import_source *source, ty_workload **out)
{
    ty_workload *workload = NULL;
    ty_status status;

    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (!formats[i]->probe(source))
            continue;
        source->state->report.format = formats[i]->name;
        TY_CHECK(formats[i]->read(source, &workload), status, done);
        if (source->options->vocabulary > 0 && !source->state->has_vocabulary) {
            ty_workload_free(workload);
            return ty_fail(
                source->error, TY_EINVAL,
                "%.200s: found vocabulary=%llu, but this %s has no vocabulary that could "
                "be another",
                source->path, (unsigned long long)source->options->vocabulary, formats[i]->name);
        }
        *out = workload;
        return TY_OK;
    }
    status = fail_unknown(source);
done:
    return status;
}

ty_status ty_import_finish(const ty_import_source *source, ty_builder *builder, ty_workload **out)
{
    ty_error mistake = {0};
    const ty_status status = ty_builder_finish(builder, out, &mistake);

    if (status == TY_OK)
        return TY_OK;
    return ty_fail(source->error, status == TY_ENOMEM ? TY_ENOMEM : TY_EPARSE, "%s: %s",
                   source->path, mistake.message);
}

ty_status ty_import_bytes(const char *path, const char *bytes, size_t length,
                          const ty_import_options *options, ty_workload **out,
                          ty_import_report *report, ty_error *error)
{
    static const ty_import_options as_it_says = {0};
    ty_status status = TY_OK;
    ty_workload *workload = NULL;
    struct ty_import_state state = {0};
    ty_import_source source = {.path = path,
                               .bytes = bytes,
                               .length = length,
                               .options = options != NULL ? options : &as_it_says,
                               .error = error,
                               .state = &state};

    ty_skip_mark(&source.bytes, &source.length);
    TY_CHECK(read_source(&source, &workload), status, cleanup);
    if (state.note_status != TY_OK) {
        status = ty_fail(error, state.note_status, "%s: out of memory", path);
        goto cleanup;
    }
    *out = workload;
    workload = NULL; /* given away */
    if (report != NULL) {
        *report = state.report;
        state.report = (ty_import_report){0};
    }

cleanup:
    ty_workload_free(workload);
    ty_import_report_clear(&state.report);
    ty_json_free(state.document);
    return status;
}

ty_status ty_import_settings(const char *path, const char *kind, struct training_pairs *pairs,
                             const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error)
{
    struct ty_import_state state = {0};
    ty_import_source source = {.path = path, .options = options, .error = error, .state = &state};
    ty_status status = ty_settings_model(&source, kind, pairs, false, out);

    if (status == TY_OK && state.note_status != TY_OK) {
        ty_workload_free(*out);
        *out = NULL;
        status = ty_fail(error, state.note_status, "%s: out of memory", path);
    }
    *report = state.report;
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
