/*
 * Text as bytes: a sample is a window of T + 1 of them, T tokens and for each the next byte as its
 * label. The last tenth of the file is the test part. Training windows start at every byte, test
 * windows lie side by side, so that each byte is predicted once.
 */
#include "dataset.h"

#include <string.h>

/* A text that every Debian system has. */
#define DEFAULT_PATH "/usr/share/common-licenses/GPL-3"

static void text_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                        int32_t *labels)
{
    const unsigned char *window = dataset->inputs + sample * dataset->stride;

    (void)input;
    for (uint64_t i = 0; i < dataset->input_count; i++) {
        if (tokens != NULL)
            tokens[i] = window[i];
        if (labels != NULL)
            labels[i] = window[i + 1];
    }
}

static ty_status bytes_check(const ty_dataset *dataset, const char *path, const char *bytes,
                             size_t length, ty_error *error)
{
    uint64_t limit =
        dataset->token_count < dataset->class_count ? dataset->token_count : dataset->class_count;

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

ty_status dataset_open_text(ty_dataset *dataset, const char *path, bool is_test, ty_error *error)
{
    uint64_t window = dataset->input_count + 1, part;
    char *bytes = NULL;
    size_t length, first;
    ty_status status = TY_OK;

    if (path == NULL)
        path = DEFAULT_PATH;
    if (dataset->token_count == 0 || dataset->label_count != dataset->input_count)
        return ty_fail(error, TY_EINVAL,
                       "text has tokens with one label each, the workload expects something else");
    TY_CHECK(ty_file_read(path, 0, &bytes, &length, error), status, cleanup);
    TY_CHECK(bytes_check(dataset, path, bytes, length, error), status, cleanup);
    first = is_test ? length - length / 10 : 0;
    part = is_test ? length / 10 : length - length / 10;
    if (part < window) {
        status = ty_fail(error, TY_EPARSE,
                         "%s: found %llu bytes for %s, expected at least %llu (the last tenth is "
                         "for testing)",
                         path, (unsigned long long)part, is_test ? "testing" : "training",
                         (unsigned long long)window);
        goto cleanup;
    }
    dataset->inputs = ty_alloc(part, 1);
    if (dataset->inputs == NULL) {
        status = ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    memcpy(dataset->inputs, bytes + first, part);
    dataset->stride = is_test ? dataset->input_count : 1;
    dataset->sample_count = (part - window) / dataset->stride + 1;
    dataset->sample = text_sample;

cleanup:
    ty_free(bytes);
    return status;
}
