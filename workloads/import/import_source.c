/* The input file of an importer: its JSON, its name, and its notes. */
#include "import.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_our_own(const ty_json *root)
{
    const char *schema;

    return ty_json_is_object(root) && ty_json_has(root, "schema") &&
           ty_json_string(root, "schema", &schema, NULL) == TY_OK &&
           strncmp(schema, "trainyard.", strlen("trainyard.")) == 0;
}

/* Other programs may write NaN and Infinity; Trainyard does not. */
static ty_status parse_json(ty_import_source *source)
{
    ty_text unknown = {0};
    ty_status status = ty_json_parse_foreign(source->bytes, source->length, source->path, &unknown,
                                             &source->document, &source->json_error);

    if (status == TY_OK && unknown.length > 0 && is_our_own(ty_json_root(source->document))) {
        ty_json_free(source->document);
        source->document = NULL;
        status = ty_json_parse(source->bytes, source->length, source->path, &source->document,
                               &source->json_error);
    } else if (unknown.length > 0)
        ty_import_note(source, "%s", unknown.data);
    ty_text_clear(&unknown);
    return status;
}

const ty_json *ty_import_json(ty_import_source *source)
{

    if (!source->is_parsed) {
        source->is_parsed = true;
        source->json_error.status = parse_json(source);
    }
    return source->document != NULL ? ty_json_root(source->document) : NULL;
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
    char sentence[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (ty_import_report_add(&source->report, sentence, NULL) != TY_OK)
        source->note_status = TY_ENOMEM;
}

uint64_t ty_import_vocabulary(ty_import_source *source)
{
    source->has_vocabulary = true;
    return source->options->vocabulary;
}

void ty_import_report_clear(ty_import_report *report)
{
    for (uint32_t i = 0; i < report->note_count; i++)
        ty_free(report->notes[i]);
    ty_free(report->notes);
    *report = (ty_import_report){0};
}

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

ty_status ty_import_finish(const ty_import_source *source, ty_builder *builder, ty_workload **out)
{
    ty_error mistake = {0};
    const ty_status status = ty_builder_finish(builder, out, &mistake);

    if (status == TY_OK)
        return TY_OK;
    return ty_fail(source->error, status == TY_ENOMEM ? TY_ENOMEM : TY_EPARSE, "%s: %s",
                   source->path, mistake.message);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool looks_like_json(const ty_import_source *source)
{
    char first = source->bytes[strspn(source->bytes, " \t\r\n")];
    return first == '{' || first == '[';
}

/* Error for a file that matches no probe. */
static ty_status fail_unknown(ty_import_source *source, const ty_import_format *const *formats,
                              size_t count)
{
    const ty_json *root = looks_like_json(source) ? ty_import_json(source) : NULL;
    const ty_error *json_error = &source->json_error;
    char known[320] = "";

    if (looks_like_json(source) && root == NULL)
        return ty_fail(source->error, json_error->status, "%s", json_error->message);
    if (root != NULL && ty_json_is_object(root) && ty_json_has(root, "schema"))
        return ty_json_schema(root, "trainyard.workload/1", source->error);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(known);
        if (!formats[i]->is_refused)
            snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "",
                     formats[i]->name);
    }
    return ty_fail(source->error, TY_EPARSE,
                   "%.150s: found no kind of file that is known, expected one of %s", source->path,
                   known);
}

static ty_status read_source(ty_import_source *source, const ty_import_format *const *formats,
                             size_t count, ty_workload **out)
{
    ty_workload *workload = NULL;

    for (size_t i = 0; i < count; i++) {
        if (!formats[i]->probe(source))
            continue;
        source->report.format = formats[i]->name;
        TY_TRY(formats[i]->read(source, &workload));
        if (source->options->vocabulary > 0 && !source->has_vocabulary) {
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
    return fail_unknown(source, formats, count);
}

ty_status ty_import_as(const ty_import_format *const *formats, size_t count, const char *path,
                       const char *bytes, size_t length, const ty_import_options *options,
                       ty_workload **out, ty_import_report *report, ty_error *error)
{
    static const ty_import_options as_it_says = {0};
    ty_status status = TY_OK;
    ty_workload *workload = NULL;
    ty_import_source source = {.path = path,
                               .bytes = bytes,
                               .length = length,
                               .options = options != NULL ? options : &as_it_says,
                               .error = error};

    ty_skip_mark(&source.bytes, &source.length);
    TY_CHECK(read_source(&source, formats, count, &workload), status, cleanup);
    if (source.note_status != TY_OK) {
        status = ty_fail(error, source.note_status, "%s: out of memory", path);
        goto cleanup;
    }
    *out = workload;
    workload = NULL; /* ownership moved */
    if (report != NULL) {
        *report = source.report;
        source.report = (ty_import_report){0};
    }

cleanup:
    ty_workload_free(workload);
    ty_import_report_clear(&source.report);
    ty_json_free(source.document);
    return status;
}
