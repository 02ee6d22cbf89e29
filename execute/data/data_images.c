/*
 * Images: a folder of folders, one for each class, as in torchvision's ImageFolder; or tar files as
 * in WebDataset: files with the same name up to the first dot are a sample, NAME.jpg, .jpeg or
 * .png, and NAME.cls, the number of its class. If the folder has a `train` and a `val` (or `test`),
 * these are the training and test sets; else every tenth sample is for testing.
 *
 * Classes have the order of their folders' names, files the order of theirs. Numbers are normalized
 * with ImageNet's usual means and deviations; there is no augmentation.
 */
#include "dataset.h"
#include "image_decode.h"
#include "tar_entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEST_EVERY = 10, NO_LABEL = -1 };

/* torchvision's values for red, green and blue, as shares of 255. */
static const float means[] = {0.485f, 0.456f, 0.406f}, deviations[] = {0.229f, 0.224f, 0.225f};

typedef struct image_place {
    char *name;             /* owned: path, or name in the tar file */
    uint32_t shard;         /* of a tar file, */
    uint64_t offset, bytes; /* and its place there */
    int32_t label;
} image_place;

typedef struct shard {
    char *path;
    void *memory;
    uint64_t bytes;
} shard;

typedef struct images {
    image_shape shape;
    bool is_test, has_parts; /* has_parts: the folder has a test set of its own */
    uint32_t shard_count;
    shard *shards; /* none: every image is a file */
    uint64_t count;
    image_place *places;
} images;

static void images_free(void *state)
{
    images *im = state;

    if (im == NULL)
        return;
    for (uint32_t i = 0; i < im->shard_count; i++) {
        if (im->shards[i].memory != NULL)
            munmap(im->shards[i].memory, im->shards[i].bytes);
        ty_free(im->shards[i].path);
    }
    for (uint64_t i = 0; i < im->count; i++)
        ty_free(im->places[i].name);
    ty_free(im->shards);
    ty_free(im->places);
    ty_free(im);
}

/* ---- Names ---- */

static bool has_end(const char *name, const char *end)
{
    const size_t length = strlen(name), size = strlen(end);
    return length > size && strcasecmp(name + length - size, end) == 0;
}

static bool is_image(const char *name)
{
    return has_end(name, ".jpg") || has_end(name, ".jpeg") || has_end(name, ".png");
}

static bool is_tar(const char *name)
{
    return has_end(name, ".tar");
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static ty_status path_join(const char *folder, const char *name, char **out, ty_error *error)
{
    ty_text text = {0};

    ty_text_addf(&text, "%s/%s", folder, name);
    return ty_text_take(&text, out, error);
}

typedef struct name_list {
    char **names;
    uint32_t count;
} name_list;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The contents of a folder except hidden files, by name. */
static ty_status folder_list(const char *path, name_list *out, ty_error *error)
{
    DIR *folder = opendir(path);
    const struct dirent *found;
    ty_status status = TY_OK;

    if (folder == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    while (status == TY_OK && (found = readdir(folder)) != NULL) {
        char **grown;

        if (found->d_name[0] == '.')
            continue;
        if (out->count % 256 == 0) {
            grown = ty_resize(out->names, (size_t)out->count + 256, sizeof *grown);
            if (grown == NULL) {
                status = ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
                break;
            }
            out->names = grown;
        }
        out->names[out->count] = ty_strdup(found->d_name);
        if (out->names[out->count] == NULL)
            status = ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
        else
            out->count++;
    }
    closedir(folder);
    if (out->count > 0)
        qsort(out->names, out->count, sizeof *out->names, by_text);
    return status;
}

static void list_clear(name_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        ty_free(list->names[i]);
    ty_free(list->names);
}

static ty_status place_add(images *im, const image_place *place, ty_error *error)
{
    if ((im->count & (im->count + 1)) == 0) { /* 0, 1, 3, 7: room for as many again */
        image_place *grown = ty_resize(im->places, 2 * im->count + 1, sizeof *grown);
        if (grown == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for %llu images",
                           (unsigned long long)im->count);
        im->places = grown;
    }
    im->places[im->count++] = *place;
    return TY_OK;
}

/* ---- Folders of classes ---- */

static ty_status class_read(images *im, const char *folder, int32_t label, ty_error *error)
{
    name_list list = {0};
    ty_status status = folder_list(folder, &list, error);

    for (uint32_t i = 0; i < list.count && status == TY_OK; i++) {
        image_place place = {.label = label};

        if (!is_image(list.names[i]))
            continue;
        status = path_join(folder, list.names[i], &place.name, error);
        if (status == TY_OK && (status = place_add(im, &place, error)) != TY_OK)
            ty_free(place.name);
    }
    list_clear(&list);
    return status;
}

static ty_status classes_read(images *im, const char *path, const name_list *list,
                              uint64_t class_count, ty_error *error)
{
    int32_t label = 0;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < list->count && status == TY_OK; i++) {
        char *folder = NULL;

        TY_CHECK(path_join(path, list->names[i], &folder, error), status, done);
        if (is_folder(folder))
            status = class_read(im, folder, label++, error);
        ty_free(folder);
    }
    if (status == TY_OK && (uint64_t)label > class_count)
        status = ty_fail(error, TY_EPARSE,
                         "%s: found %d folders of classes, expected at most the network's %llu",
                         path, (int)label, (unsigned long long)class_count);
done:
    return status;
}

/* ---- Tar files ---- */

static ty_status shard_map(shard *out, const char *path, ty_error *error)
{
    struct stat about;
    void *mapped;
    int file;
    ty_status status = ty_file_check_plain(path, error);

    if (status != TY_OK)
        return status;
    out->path = ty_strdup(path);
    TY_TRY(ty_check_memory(out->path != NULL, error));
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) != 0 || about.st_size == 0) {
        status = file < 0
                     ? ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno))
                     : ty_fail(error, TY_EPARSE, "%s: found an empty file, expected tar", path);
        if (file >= 0)
            close(file);
        return status;
    }
    mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    close(file);
    if (status == TY_OK) {
        out->memory = mapped;
        out->bytes = (uint64_t)about.st_size;
    }
    return status;
}

/* Length up to the first dot after the last slash. */
static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - name) + 1 : 0;

    return folder + strcspn(name + folder, ".");
}

static ty_status label_read(const shard *in, const tar_entry *entry, uint64_t class_count,
                            int32_t *out, ty_error *error)
{
    char text[24], *end;
    long value;

    snprintf(text, sizeof text, "%.*s", (int)(entry->bytes < 20 ? entry->bytes : 20),
             (const char *)in->memory + entry->offset);
    value = strtol(text, &end, 10);
    end += strspn(end, " \r\n");
    if (end == text || *end != '\0' || value < 0 || (uint64_t)value >= class_count)
        return ty_fail(error, TY_EPARSE, "%s: %.100s: found class '%s', expected 0 to %llu",
                       in->path, entry->name, text, (unsigned long long)class_count - 1);
    *out = (int32_t)value;
    return TY_OK;
}

/* A sample's image and class may come in either order. */
static ty_status shard_read(images *im, uint32_t index, uint64_t class_count, ty_error *error)
{
    const shard *own = &im->shards[index];
    char key[TAR_NAME_SIZE] = "";
    image_place place = {.shard = index, .label = NO_LABEL};
    uint64_t at = 0;
    bool is_end = false;
    ty_status status = TY_OK;

    while (status == TY_OK) {
        tar_entry entry = {0};
        size_t length;

        TY_CHECK(tar_next(own->memory, own->bytes, &at, own->path, &entry, &is_end, error), status,
                 done);
        length = is_end ? 0 : key_length(entry.name);
        if (is_end || strncmp(key, entry.name, length) != 0 || key[length] != '\0') {
            if (place.name != NULL && place.label == NO_LABEL)
                status = ty_fail(error, TY_EPARSE, "%s: %.200s: found no .cls beside it", own->path,
                                 place.name);
            if (status == TY_OK && place.name != NULL)
                status = place_add(im, &place, error);
            else
                ty_free(place.name);
            place = (image_place){.shard = index, .label = NO_LABEL};
            snprintf(key, sizeof key, "%.*s", (int)length, entry.name);
        }
        if (is_end)
            break;
        if (is_image(entry.name) && place.name == NULL) {
            place.name = ty_strdup(entry.name);
            place.offset = entry.offset;
            place.bytes = entry.bytes;
            if (place.name == NULL && status == TY_OK)
                status = ty_fail(error, TY_ENOMEM, "%s: out of memory", own->path);
        } else if (has_end(entry.name, ".cls") && status == TY_OK) {
            status = label_read(own, &entry, class_count, &place.label, error);
        }
    }
done:
    if (status != TY_OK)
        ty_free(place.name);
    return status;
}

static ty_status shards_read(images *im, const char *path, const name_list *list,
                             uint64_t class_count, ty_error *error)
{
    ty_status status = TY_OK;

    im->shards = ty_alloc((size_t)list->count + 1, sizeof *im->shards);
    TY_TRY(ty_check_memory(im->shards != NULL, error));
    for (uint32_t i = 0; i < (list->count > 0 ? list->count : 1); i++) {
        char *place = NULL;

        if (list->count > 0 && !is_tar(list->names[i]))
            continue;
        status = list->count > 0 ? path_join(path, list->names[i], &place, error) : TY_OK;
        if (status == TY_OK)
            status = shard_map(&im->shards[im->shard_count++], place != NULL ? place : path, error);
        ty_free(place);
        if (status == TY_OK)
            status = shard_read(im, im->shard_count - 1, class_count, error);
        TY_CHECK(status, status, done);
    }
done:
    return status;
}

/* ---- All of it ---- */

static bool has_tar(const name_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (is_tar(list->names[i]))
            return true;
    return false;
}

/* The folder of the training or test set, if there is one; else the path itself. */
static ty_status part_find(images *im, const char *path, char **out, ty_error *error)
{
    static const char *const names[] = {"train", "val", "test"};
    char *paths[3] = {NULL};
    ty_status status = TY_OK;

    for (size_t i = 0; i < 3; i++)
        TY_CHECK(path_join(path, names[i], &paths[i], error), status, done);
    im->has_parts = is_folder(paths[0]) && (is_folder(paths[1]) || is_folder(paths[2]));
    *out = ty_strdup(!im->has_parts        ? path
                     : !im->is_test        ? paths[0]
                     : is_folder(paths[1]) ? paths[1]
                                           : paths[2]);
    if (*out == NULL)
        status = ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
done:
    for (size_t i = 0; i < 3; i++)
        ty_free(paths[i]);
    return status;
}

static ty_status all_read(images *im, const char *path, uint64_t class_count, ty_error *error)
{
    name_list list = {0};
    char *part = NULL;
    ty_status status;

    TY_CHECK(part_find(im, path, &part, error), status, cleanup);
    if (is_folder(part))
        TY_CHECK(folder_list(part, &list, error), status, cleanup);
    if (!is_folder(part) || has_tar(&list))
        status = shards_read(im, part, &list, class_count, error);
    else
        status = classes_read(im, part, &list, class_count, error);
    if (status == TY_OK && im->count == 0)
        status = ty_fail(error, TY_EPARSE,
                         "%s: found no images, expected folders of classes with .jpg and .png, or "
                         "tar files of .jpg, .png and .cls",
                         part);
cleanup:
    ty_free(part);
    list_clear(&list);
    return status;
}

/* Without separate folders, sample s of training is image s + s / 9, that of testing 10 s + 9. */
static uint64_t image_of(const images *im, uint64_t sample)
{
    if (im->has_parts)
        return sample;
    return im->is_test ? sample * TEST_EVERY + TEST_EVERY - 1 : sample + sample / (TEST_EVERY - 1);
}

static ty_status image_make(const ty_dataset *dataset, uint64_t sample, unsigned char *input,
                            int32_t *label, ty_error *error)
{
    const images *im = dataset->state;
    const image_place *place = &im->places[image_of(im, sample)];
    char *bytes = NULL;
    size_t length;
    ty_status status;

    *label = place->label;
    if (im->shard_count > 0) {
        const shard *from = &im->shards[place->shard];
        ty_text name = {0};

        ty_text_addf(&name, "%s: %s", from->path, place->name);
        status = ty_text_check(&name, error);
        if (status == TY_OK)
            status = image_decode((const unsigned char *)from->memory + place->offset, place->bytes,
                                  name.data, &im->shape, input, error);
        ty_text_clear(&name);
        return status;
    }
    status = ty_file_check_plain(place->name, error);
    if (status == TY_OK)
        status = ty_file_read(place->name, 0, &bytes, &length, error);
    if (status == TY_OK)
        status =
            image_decode((unsigned char *)bytes, length, place->name, &im->shape, input, error);
    ty_free(bytes);
    return status;
}

/* 0 for a file that no longer exists: reading it will report that. */
static double image_bytes(const ty_dataset *dataset, uint64_t sample)
{
    const images *im = dataset->state;
    const image_place *place = &im->places[image_of(im, sample)];
    struct stat about;

    if (im->shard_count > 0)
        return (double)place->bytes;
    return stat(place->name, &about) == 0 ? (double)about.st_size : 0;
}

static int32_t image_label(const ty_dataset *dataset, uint64_t sample)
{
    const images *im = dataset->state;

    return im->places[image_of(im, sample)].label;
}

static void image_convert(const ty_dataset *dataset, const unsigned char *bytes, float *input)
{
    const image_shape *shape = &((const images *)dataset->state)->shape;
    const uint64_t pixels = (uint64_t)shape->height * shape->width;

    for (uint32_t c = 0; c < shape->channels; c++)
        for (uint64_t i = 0; i < pixels; i++)
            input[c * pixels + i] =
                ((float)bytes[c * pixels + i] / 255.0f - means[c]) / deviations[c];
}

ty_status dataset_open_images(ty_dataset *dataset, const char *path, bool is_test, ty_error *error)
{
    const ty_shape *shape = &dataset->view;
    images *im;

    if (shape->dimension_count != 3 || dataset->label_count != 1 ||
        (shape->dimensions[0] != 1 && shape->dimensions[0] != 3) ||
        shape->dimensions[1] > UINT16_MAX || shape->dimensions[2] > UINT16_MAX)
        return ty_fail(error, TY_EINVAL,
                       "%s: images of 1 or 3 channels have one label each, the workload expects "
                       "something else",
                       path);
    im = ty_alloc(1, sizeof *im);
    TY_TRY(ty_check_memory(im != NULL, error));
    dataset->state = im;
    dataset->state_free = images_free;
    im->is_test = is_test;
    im->shape = (image_shape){(uint32_t)shape->dimensions[0], (uint32_t)shape->dimensions[1],
                              (uint32_t)shape->dimensions[2]};
    TY_TRY(all_read(im, path, dataset->class_count, error));
    dataset->sample_count = im->has_parts ? im->count
                            : is_test     ? im->count / TEST_EVERY
                                          : im->count - im->count / TEST_EVERY;
    if (dataset->sample_count == 0)
        return ty_fail(error, TY_EPARSE, "%s: found %llu images, expected at least %d", path,
                       (unsigned long long)im->count, TEST_EVERY);
    dataset->make = image_make;
    dataset->label = image_label;
    dataset->convert = image_convert;
    dataset->stored_bytes = image_bytes;
    return TY_OK;
}
