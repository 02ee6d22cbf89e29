/* Fashion-MNIST: images and labels in IDX files, compressed or not. */
#include "dataset.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Folder of Debian's package dataset-fashion-mnist; the user's folder of data sets has precedence
 * if it has this one. */
#define DEFAULT_DIRECTORY "/usr/share/datasets/fashion-mnist"
#define FOLDER_VARIABLE "TRAINYARD_DATASETS"
#define LARGEST_FILE ((uint64_t)1 << 30)

static const char *const file_names[2][2] = {
    {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
    {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
};

/* Mean and deviation of the training images' pixels, as shares of 255. */
static const float pixel_mean = 0.2860406f, pixel_deviation = 0.3530242f;

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Bytes of a file with this header; 0 if the header is not IDX or its counts are too large. */
static uint64_t declared_bytes(const unsigned char *bytes, size_t length, uint32_t dimension_count)
{
    uint64_t total = 1;

    if (length < IDX_HEADER(dimension_count) || big_endian(bytes) != (0x0800 | dimension_count))
        return 0;
    for (uint32_t d = 0; d < dimension_count; d++) {
        uint32_t size = big_endian(bytes + 4 + (size_t)4 * d);
        if (size == 0 || total > LARGEST_FILE / size)
            return 0;
        total *= size;
    }
    return total + IDX_HEADER(dimension_count);
}

ty_status idx_check(const unsigned char *bytes, size_t length, const char *name,
                    uint32_t dimension_count, uint32_t *dimensions, ty_error *error)
{
    size_t header = IDX_HEADER(dimension_count);
    uint64_t declared;

    if (length < header)
        return ty_fail(error, TY_EPARSE, "%s: found %zu bytes, expected an IDX header of %zu", name,
                       length, header);
    if (big_endian(bytes) != (0x0800 | dimension_count))
        return ty_fail(error, TY_EPARSE,
                       "%s: found magic number 0x%08x, expected 0x%08x (IDX, unsigned bytes, %u "
                       "dimensions)",
                       name, (unsigned)big_endian(bytes), (unsigned)(0x0800 | dimension_count),
                       (unsigned)dimension_count);
    declared = declared_bytes(bytes, length, dimension_count);
    if (declared == 0)
        return ty_fail(error, TY_EPARSE,
                       "%s: found dimensions whose product is 0 or above 2^30, expected less",
                       name);
    if (length < declared)
        return ty_fail(error, TY_EPARSE, "%s: truncated: found %zu bytes, expected %llu", name,
                       length, (unsigned long long)declared);
    if (length > declared)
        return ty_fail(error, TY_EPARSE, "%s: found more than %llu bytes, expected the end", name,
                       (unsigned long long)declared);
    for (uint32_t d = 0; d < dimension_count; d++)
        dimensions[d] = big_endian(bytes + 4 + (size_t)4 * d);
    return TY_OK;
}

/* Up to `limit` bytes; fewer at the end of the file. */
static ty_status gz_read(gzFile file, const char *path, unsigned char *bytes, uint64_t limit,
                         size_t *length, ty_error *error)
{
    *length = 0;
    while (*length < limit) {
        uint64_t left = limit - *length;
        int got = gzread(file, bytes + *length, (unsigned)(left < INT_MAX ? left : INT_MAX));
        int code = Z_OK;
        const char *message;
        if (got > 0) {
            *length += (size_t)got;
            continue;
        }
        message = gzerror(file, &code);
        if (code == Z_ERRNO)
            return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
        if (code == Z_BUF_ERROR)
            return ty_fail(error, TY_EPARSE, "%s: truncated: the compressed data ends too early",
                           path);
        if (got < 0)
            return ty_fail(error, TY_EPARSE, "%s: damaged compressed data: %s", path, message);
        break;
    }
    return TY_OK;
}

/* Reads the header, then as much as it declares and one byte more, however much the file has: a
 * small compressed file cannot fill the memory. */
static ty_status file_load(gzFile file, const char *path, uint32_t dimension_count,
                           unsigned char **out, uint32_t *dimensions, ty_error *error)
{
    size_t header = IDX_HEADER(dimension_count), length, rest = 0;
    unsigned char *bytes = ty_alloc(header, 1);
    uint64_t declared;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(bytes != NULL, error));
    TY_CHECK(gz_read(file, path, bytes, header, &length, error), status, cleanup);
    declared = declared_bytes(bytes, length, dimension_count);
    if (declared > 0) {
        unsigned char *whole = ty_alloc_large(declared + 1, 1);
        if (whole == NULL) {
            status = ty_fail(error, TY_ENOMEM, "%s: out of memory for %llu bytes", path,
                             (unsigned long long)declared);
            goto cleanup;
        }
        memcpy(whole, bytes, header);
        ty_free(bytes);
        bytes = whole;
        TY_CHECK(gz_read(file, path, bytes + header, declared + 1 - header, &rest, error), status,
                 cleanup);
    }
    TY_CHECK(idx_check(bytes, length + rest, path, dimension_count, dimensions, error), status,
             cleanup);
    *out = bytes;
    bytes = NULL; /* given away */

cleanup:
    ty_free(bytes);
    return status;
}

/* `directory/name`, or the same with .gz appended. */
static ty_status path_find(const char *directory, const char *name, char **out, ty_error *error)
{
    static const char *const endings[] = {"", ".gz"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        ty_text text = {0};
        char *path = NULL;
        ty_status status;
        ty_text_addf(&text, "%s/%s%s", directory, name, endings[i]);
        status = ty_text_take(&text, &path, error);
        if (status != TY_OK)
            return status;
        if (ty_file_exists(path)) {
            *out = path;
            return TY_OK;
        }
        ty_free(path);
    }
    return ty_fail(error, TY_EIO,
                   "%s/%s: no such file, compressed or not; Debian has it in the package "
                   "dataset-fashion-mnist",
                   directory, name);
}

static ty_status idx_load(const char *directory, const char *name, uint32_t dimension_count,
                          unsigned char **out, uint32_t *dimensions, char **path, ty_error *error)
{
    gzFile file = NULL;
    ty_status status = TY_OK;

    TY_CHECK(path_find(directory, name, path, error), status, cleanup);
    TY_CHECK(ty_file_check_plain(*path, error), status, cleanup);
    errno = 0;
    file = gzopen(*path, "rb"); /* reads uncompressed files, too */
    if (file == NULL) {
        status = ty_fail(error, errno == 0 ? TY_ENOMEM : TY_EIO, "%s: %s", *path,
                         errno == 0 ? "out of memory" : strerror(errno));
        goto cleanup;
    }
    status = file_load(file, *path, dimension_count, out, dimensions, error);

cleanup:
    if (file != NULL)
        gzclose_r(file);
    return status;
}

static ty_status labels_check(const ty_dataset *dataset, const char *path, ty_error *error)
{
    for (uint64_t i = 0; i < dataset->sample_count; i++) {
        unsigned label = dataset->labels[IDX_HEADER(1) + i];
        if (label >= dataset->class_count)
            return ty_fail(error, TY_EPARSE,
                           "%s: found label %u of sample %llu, expected 0 to %llu", path, label,
                           (unsigned long long)i, (unsigned long long)dataset->class_count - 1);
    }
    return TY_OK;
}

static void idx_sample(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                       int32_t *labels)
{
    const unsigned char *pixels = dataset->inputs + IDX_HEADER(3) + sample * dataset->input_count;

    (void)tokens;
    if (input != NULL)
        for (uint64_t i = 0; i < dataset->input_count; i++)
            input[i] = ((float)pixels[i] / 255.0f - pixel_mean) / pixel_deviation;
    if (labels != NULL)
        labels[0] = dataset->labels[IDX_HEADER(1) + sample];
}

/* The default folder of the files. */
static ty_status directory_find(char **out, ty_error *error)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    ty_text text = {0};
    ty_status status;

    if (folder != NULL && folder[0] != '\0') {
        ty_text_addf(&text, "%s/fashion-mnist", folder);
        status = ty_text_take(&text, out, error);
        if (status != TY_OK || ty_file_exists(*out))
            return status;
        ty_free(*out);
        *out = NULL;
    }
    ty_text_add(&text, DEFAULT_DIRECTORY);
    return ty_text_take(&text, out, error);
}

ty_status dataset_open_idx(ty_dataset *dataset, const char *directory, bool is_test,
                           ty_error *error)
{
    const char *const *names = file_names[is_test ? 1 : 0];
    uint32_t images[3], labels[1];
    char *image_path = NULL, *label_path = NULL, *usual = NULL;
    ty_status status = TY_OK;

    if (dataset->token_count != 0 || dataset->label_count != 1)
        return ty_fail(error, TY_EINVAL,
                       "fashion-mnist has images with one label each, the workload expects "
                       "something else");
    if (directory == NULL) {
        TY_CHECK(directory_find(&usual, error), status, cleanup);
        directory = usual;
    }
    TY_CHECK(idx_load(directory, names[0], 3, &dataset->inputs, images, &image_path, error), status,
             cleanup);
    TY_CHECK(idx_load(directory, names[1], 1, &dataset->labels, labels, &label_path, error), status,
             cleanup);
    if ((uint64_t)images[1] * images[2] != dataset->input_count) {
        status = ty_fail(error, TY_EPARSE, "%s: found images of %u x %u, expected %llu pixels",
                         image_path, (unsigned)images[1], (unsigned)images[2],
                         (unsigned long long)dataset->input_count);
        goto cleanup;
    }
    if (images[0] != labels[0]) {
        status = ty_fail(error, TY_EPARSE, "%s: found %u labels, expected %u as in %s", label_path,
                         (unsigned)labels[0], (unsigned)images[0], image_path);
        goto cleanup;
    }
    dataset->sample_count = images[0];
    dataset->sample = idx_sample;
    dataset->sample_bytes = (double)dataset->input_count + 1; /* and its label */
    status = labels_check(dataset, label_path, error);

cleanup:
    ty_free(usual);
    ty_free(image_path);
    ty_free(label_path);
    return status;
}
