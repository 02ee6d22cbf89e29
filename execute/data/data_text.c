/*
 * Text as bytes, or as tokens in a token file: a sample is a window of T + 1, T tokens and for each
 * the next one as its label. If there are fewer labels than tokens, they are those of the last
 * tokens, as in a decoder after an encoder of the tokens before. The last tenth of the file is the
 * test set. Training windows start at every token; test windows do not overlap, so that each token
 * is predicted once.
 */
#include "dataset.h"
#include "tokens.h"

#include <string.h>

/* A text that every Debian system has. */
#define DEFAULT_PATH "/usr/share/common-licenses/GPL-3"

static void bytes_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                         int32_t *labels)
{
    const unsigned char *window = dataset->inputs + sample * dataset->stride;
    const uint64_t unlabelled = dataset->input_count - dataset->label_count;

    (void)input;
    for (uint64_t i = 0; i < dataset->input_count; i++) {
        if (tokens != NULL)
            tokens[i] = window[i];
        if (labels != NULL && i >= unlabelled)
            labels[i - unlabelled] = window[i + 1];
    }
}

static void tokens_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                          int32_t *labels)
{
    const uint64_t start = dataset->first + sample * dataset->stride;
    const uint64_t unlabelled = dataset->input_count - dataset->label_count;

    (void)input;
    for (uint64_t i = 0; i < dataset->input_count; i++) {
        if (tokens != NULL)
            tokens[i] = (int32_t)ty_token_at(dataset->tokens, start + i);
        if (labels != NULL && i >= unlabelled)
            labels[i - unlabelled] = (int32_t)ty_token_at(dataset->tokens, start + i + 1);
    }
}

/* Tokens must be below this: they are inputs and labels. */
static uint64_t vocabulary_of(const ty_dataset *dataset)
{
    return dataset->token_count < dataset->class_count ? dataset->token_count
                                                       : dataset->class_count;
}

static ty_status bytes_check(const ty_dataset *dataset, const char *path, const char *bytes,
                             size_t length, ty_error *error)
{
    const uint64_t limit = vocabulary_of(dataset);

    if (limit > UINT8_MAX)
        return TY_OK;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)bytes[i] >= limit)
            return ty_fail(error, TY_EPARSE,
                           "%s: found byte %u at offset %zu, expected less than the vocabulary of "
                           "%llu",
                           path, (unsigned)(unsigned char)bytes[i], i, (unsigned long long)limit);
    return TY_OK;
}

/* Chooses the training or test part of a text of a given number of bytes or tokens, and its
 * windows.
 */
static ty_status part_choose(ty_dataset *dataset, const char *path, const char *unit,
                             uint64_t length, uint32_t unit_bytes, bool is_test, uint64_t *count,
                             ty_error *error)
{
    const uint64_t window = dataset->input_count + 1;

    dataset->first = is_test ? length - length / 10 : 0;
    *count = is_test ? length / 10 : length - length / 10;
    if (*count < window)
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu %s for %s, expected at least %llu (the last tenth is for "
                       "testing)",
                       path, (unsigned long long)*count, unit, is_test ? "testing" : "training",
                       (unsigned long long)window);
    dataset->sample_bytes = (double)window * unit_bytes;
    dataset->data_bytes = (double)*count * unit_bytes;
    dataset->stride = is_test ? dataset->input_count : 1;
    dataset->sample_count = (*count - window) / dataset->stride + 1;
    return TY_OK;
}

static ty_status open_bytes(ty_dataset *dataset, const char *path, bool is_test, ty_error *error)
{
    char *bytes = NULL;
    size_t length;
    uint64_t count;
    ty_status status;

    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, cleanup);
    TY_CHECK(bytes_check(dataset, path, bytes, length, error), status, cleanup);
    TY_CHECK(part_choose(dataset, path, "bytes", length, 1, is_test, &count, error), status,
             cleanup);
    dataset->inputs = ty_alloc(count, 1);
    TY_CHECK(ty_check_memory(dataset->inputs != NULL, error), status, cleanup);
    memcpy(dataset->inputs, bytes + dataset->first, count);
    dataset->sample = bytes_sample;
cleanup:
    ty_free(bytes);
    return status;
}

static ty_status open_tokens(ty_dataset *dataset, const char *path, bool is_test, ty_error *error)
{
    const uint64_t limit = vocabulary_of(dataset);
    uint64_t count;
    ty_status status = ty_tokens_open(path, &dataset->tokens, error);

    if (status != TY_OK)
        return status;
    if (dataset->tokens->vocabulary > limit)
        return ty_fail(error, TY_EPARSE,
                       "%s: found a vocabulary of %u tokens, expected at most the network's %llu",
                       path, dataset->tokens->vocabulary, (unsigned long long)limit);
    dataset->sample = tokens_sample;
    return part_choose(dataset, path, "tokens", dataset->tokens->count,
                       dataset->tokens->token_bytes, is_test, &count, error);
}

ty_status dataset_open_text(ty_dataset *dataset, const char *path, bool is_test, ty_error *error)
{
    if (path == NULL)
        path = DEFAULT_PATH;
    if (dataset->token_count == 0 || dataset->label_count > dataset->input_count)
        return ty_fail(
            error, TY_EINVAL,
            "text has tokens with at most one label each, the workload expects something else");
    return ty_tokens_is_file(path) ? open_tokens(dataset, path, is_test, error)
                                   : open_bytes(dataset, path, is_test, error);
}
