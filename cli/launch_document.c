/* A plan's launch files as a document for reports. */
#include "cli.h"

#include <string.h>

/* A report shows this much of the beginning and end of a larger file; `export` writes all of it. */
#define SHOWN_END_BYTES 4096
#define JOB_FILE "job.json" /* for the worker, not for readers */

static ty_status put_file(const ty_launch_file *file, ty_json_writer *w, ty_error *error)
{
    const bool is_shown = !file->is_binary && strcmp(file->name, JOB_FILE) != 0;
    size_t head = SHOWN_END_BYTES, tail = file->length - SHOWN_END_BYTES;
    ty_text text = {0};
    ty_status status;

    if (file->length > 3 * SHOWN_END_BYTES) { /* whole lines from the beginning and the end */
        while (head > 0 && file->bytes[head - 1] != '\n')
            head--;
        while (tail < file->length && file->bytes[tail - 1] != '\n')
            tail++;
        ty_text_append(&text, file->bytes, head);
        ty_text_addf(&text, "[... %zu bytes are left out here ...]\n", tail - head);
        ty_text_add(&text, &file->bytes[tail]);
    } else {
        ty_text_add(&text, file->bytes);
    }
    status = ty_text_check(&text, error);
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "name", file->name);
    ty_json_put_uint(w, "bytes", file->length);
    if (status == TY_OK && is_shown)
        ty_json_put_string(w, "text", text.data);
    ty_json_close(w, '}');
    ty_text_clear(&text);
    return status;
}

static ty_status put_target(const cli_options *options, const char *plan_path, ty_plan_inputs *in,
                            const char *target, const char *title, ty_json_writer *w,
                            ty_error *error)
{
    ty_launch_files *files = NULL;
    ty_error refusal = {0};
    ty_status status = launch_open(options, plan_path, in, target, &files, &refusal);

    if (status != TY_OK && status != TY_EUNSUPPORTED && status != TY_EINVAL)
        return ty_fail(error, status, "%s", refusal.message);
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "target", target);
    ty_json_put_string(w, "title", title);
    if (status == TY_OK) {
        ty_json_open(w, "files", '[');
        for (uint32_t i = 0; i < files->count && status == TY_OK; i++)
            status = put_file(&files->files[i], w, error);
        ty_json_close(w, ']');
        ty_json_put_string(w, "next", files->next);
    } else {
        ty_json_put_string(w, "reason", refusal.message);
        status = TY_OK;
    }
    ty_json_close(w, '}');
    ty_launch_free(files);
    return status;
}

ty_status launch_document(const cli_options *options, const char *plan_path, ty_plan_inputs *in,
                          ty_json_document **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = document_open("trainyard.launch/1", &text);
    const char *target, *title;
    ty_status status = TY_OK;

    ty_json_put_string(&w, "plan", plan_path);
    ty_json_open(&w, "targets", '[');
    for (uint32_t i = 0; (target = ty_launch_target(i, &title)) != NULL; i++)
        if (!ty_launch_is_traces(target))
            TY_CHECK(put_target(options, plan_path, in, target, title, &w, error), status, done);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_check(&text, error), status, done);
    status = ty_json_parse(text.data, text.length, "trainyard.launch/1", out, error);
done:
    ty_text_clear(&text);
    return status;
}
