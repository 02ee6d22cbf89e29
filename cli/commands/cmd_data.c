/* trainyard data: converts text to files of tokens, and back. */
#include "cli.h"
#include "tokens.h"

#include <stdio.h>
#include <string.h>

/* Reads all files, one after the other. */
static ty_status read_all(const cli_options *options, ty_text *text, ty_error *error)
{
    ty_status status = TY_OK;

    for (int i = 1; i < options->file_count && status == TY_OK; i++)
        status = add_file(options->files[i], text, error);
    return status == TY_OK ? ty_text_check(text, error) : status;
}

static void print_tokens(const ty_tokens *tokens, size_t bytes, const cli_options *options,
                         ty_text *out)
{
    ty_json_writer writer;

    if (!options->json) {
        ty_text_addf(out, "%s: %llu tokens of %zu bytes (%.2f bytes a token), vocabulary %u\n",
                     options->output, (unsigned long long)tokens->count, bytes,
                     (double)bytes / (double)tokens->count, tokens->vocabulary);
        return;
    }
    writer = document_open("trainyard.data-summary/1", out);
    ty_json_put_string(&writer, "file", options->output);
    ty_json_put_uint(&writer, "text_bytes", bytes);
    ty_json_put_uint(&writer, "tokens", tokens->count);
    ty_json_put_uint(&writer, "vocabulary", tokens->vocabulary);
    ty_json_put_uint(&writer, "token_bytes", tokens->token_bytes);
    document_close(&writer);
}

static ty_status tokenize(const cli_options *options, ty_text *out, bool *is_read, ty_error *error)
{
    const uint32_t vocabulary =
        options->vocabulary > 0 ? (uint32_t)options->vocabulary : TY_BYTE_TOKENS;
    ty_tokens *tokens = NULL;
    ty_text text = {0};
    ty_status status;

    TY_CHECK(read_all(options, &text, error), status, cleanup);
    TY_CHECK(ty_tokens_learn(text.data, text.length, vocabulary, &tokens, error), status, cleanup);
    *is_read = true;
    TY_CHECK(ty_tokens_save(tokens, options->output, error), status, cleanup);
    print_tokens(tokens, text.length, options, out);
cleanup:
    ty_tokens_close(tokens);
    ty_text_clear(&text);
    return status;
}

static ty_status show_text(const char *path, ty_text *out, ty_error *error)
{
    ty_tokens *tokens = NULL;
    char *bytes = NULL;
    size_t length = 0;
    ty_status status;

    TY_CHECK(ty_tokens_open(path, &tokens, error), status, cleanup);
    TY_CHECK(ty_tokens_text(tokens, &bytes, &length, error), status, cleanup);
    ty_text_append(out, bytes, length);
    status = ty_text_check(out, error);
cleanup:
    ty_free(bytes);
    ty_tokens_close(tokens);
    return status;
}

exit_code cmd_data(const cli_options *options)
{
    const char *what = options->files[0];
    const bool makes = strcmp(what, "tokenize") == 0, shows = strcmp(what, "text") == 0;
    ty_error error = {0};
    ty_text text = {0};
    bool is_read = false; /* later failures are of the output */
    ty_status status;

    if (!makes && !shows)
        return report_usage("data", "found '%s', expected tokenize or text", what);
    if (makes && (options->file_count < 2 || options->output == NULL))
        return report_usage("data", "tokenize needs a text and -o FILE");
    if (shows && options->file_count != 2)
        return report_usage("data", "text needs one file of tokens");
    if (shows && options->vocabulary > 0)
        return report_usage("data", "--vocabulary belongs to tokenize");
    status = makes ? tokenize(options, &text, &is_read, &error)
                   : show_text(options->files[1], &text, &error);
    if (status == TY_OK)
        return deliver_text(shows ? options->output : NULL, &text);
    ty_text_clear(&text);
    return status == TY_EINVAL ? report_usage("data", "%s", error.message)
           : is_read           ? report_failure(&error)
                               : report_bad_input(&error);
}
