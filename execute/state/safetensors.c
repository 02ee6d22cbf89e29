/* Reading safetensors. */
#include "safetensors.h"

#include "codec_kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define METADATA "__metadata__"

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},
             {"I32", 4}, {"I16", 2}, {"I8", 1},      {"U64", 8},     {"U32", 4},
             {"U16", 2}, {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};
#define TYPE_COUNT (sizeof types / sizeof types[0])

typedef struct part { /* a file */
    ty_json_document *header;
    void *memory; /* mapped, or NULL */
    uint64_t bytes;
} part;

struct safetensors {
    uint32_t part_count;
    part *parts;
    uint64_t count;
    safetensors_tensor *tensors;
};

void safetensors_close(safetensors *file)
{
    if (file == NULL)
        return;
    for (uint32_t i = 0; i < file->part_count; i++) {
        ty_json_free(file->parts[i].header);
        if (file->parts[i].memory != NULL)
            munmap(file->parts[i].memory, file->parts[i].bytes);
    }
    ty_free(file->parts);
    ty_free(file->tensors);
    ty_free(file);
}

/* ---- One file ---- */

static ty_status tensor_shape(const ty_json *value, safetensors_tensor *out, ty_error *error)
{
    const ty_json *shape;

    TY_TRY(ty_json_array(value, "shape", 0, SAFETENSORS_MOST_DIMENSIONS, &shape, error));
    out->dimension_count = (uint32_t)ty_json_size(shape);
    out->elements = 1;
    for (uint32_t d = 0; d < out->dimension_count; d++) {
        const uint64_t most = (UINT64_C(1) << 53) - 1;
        TY_TRY(ty_json_as_uint64(ty_json_at(shape, d), 0, most, &out->dimensions[d], error));
        if (out->dimensions[d] > 0 && out->elements > most / out->dimensions[d])
            return ty_json_fail(shape, error, "fewer than 2^53 elements");
        out->elements *= out->dimensions[d];
    }
    return TY_OK;
}

/* @param end [out] end of its numbers, from the first tensor's start */
static ty_status tensor_read(const ty_json *value, const unsigned char *data, uint64_t data_bytes,
                             safetensors_tensor *out, uint64_t *end, ty_error *error)
{
    const ty_json *offsets;
    uint64_t first = 0;
    size_t type = 0;

    if (!ty_json_is_object(value))
        return ty_json_fail(value, error, "an object with dtype, shape and data_offsets");
    out->name = ty_json_key(value);
    if (out->name[0] == '\0' || !ty_is_printable(out->name))
        return ty_json_fail(value, error, "a tensor with a name that can be printed");
    TY_TRY(ty_json_string(value, "dtype", &out->type_name, error));
    while (type < TYPE_COUNT && strcmp(types[type].name, out->type_name) != 0)
        type++;
    if (type == TYPE_COUNT)
        return ty_json_fail(value, error, "a dtype of safetensors, such as F32, F16 or BF16");
    out->type = type < SAFETENSORS_OTHER ? (safetensors_type)type : SAFETENSORS_OTHER;
    TY_TRY(tensor_shape(value, out, error));
    TY_TRY(ty_json_array(value, "data_offsets", 2, 2, &offsets, error));
    TY_TRY(ty_json_as_uint64(ty_json_at(offsets, 0), 0, data_bytes, &first, error));
    TY_TRY(ty_json_as_uint64(ty_json_at(offsets, 1), first, data_bytes, end, error));
    if (out->elements > data_bytes || out->elements * types[type].bytes != *end - first)
        return ty_json_fail(offsets, error, "%llu bytes, as many as %llu numbers of %s have",
                            (unsigned long long)out->elements * types[type].bytes,
                            (unsigned long long)out->elements, out->type_name);
    out->data = data + first;
    return ty_json_end(value, error);
}

static ty_status metadata_check(const ty_json *value, ty_error *error)
{
    if (!ty_json_is_object(value))
        return ty_json_fail(value, error, "an object of texts");
    for (size_t i = 0; i < ty_json_size(value); i++)
        if (!ty_json_is_string(ty_json_at(value, i)))
            return ty_json_fail(ty_json_at(value, i), error, "a text");
    return TY_OK;
}

static int by_place(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->elements != y->elements ? (x->elements < y->elements ? -1 : 1)
                                      : strcmp(x->name, y->name);
}

static uint64_t tensor_bytes(const safetensors_tensor *t)
{
    size_t type = 0;

    while (strcmp(types[type].name, t->type_name) != 0)
        type++;
    return t->elements * types[type].bytes;
}

/* Checks that each byte of the data belongs to exactly one tensor. */
static ty_status places_check(safetensors_tensor *tensors, uint64_t count,
                              const unsigned char *data, uint64_t data_bytes, const char *name,
                              ty_error *error)
{
    const unsigned char *next = data;

    if (count > 0)
        qsort(tensors, count, sizeof *tensors, by_place);
    for (uint64_t i = 0; i < count; i++) {
        if (tensors[i].data != next)
            return ty_fail(error, TY_EPARSE,
                           "%s: tensor %.100s begins at byte %llu of the data, expected %llu, "
                           "where the one before it ends",
                           name, tensors[i].name, (unsigned long long)(tensors[i].data - data),
                           (unsigned long long)(next - data));
        next += tensor_bytes(&tensors[i]);
    }
    if ((uint64_t)(next - data) != data_bytes)
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu bytes of data, expected the %llu of its tensors", name,
                       (unsigned long long)data_bytes, (unsigned long long)(next - data));
    return TY_OK;
}

/* Adds a file's tensors to the others. */
static ty_status part_parse(safetensors *file, part *own, const unsigned char *bytes,
                            uint64_t length, const char *name, ty_error *error)
{
    const uint64_t room = length > 8 ? length - 8 : 0;
    const ty_json *root;
    safetensors_tensor *grown;
    uint64_t header = 0, count = 0, data_bytes;

    for (uint32_t i = 0; i < 8 && length >= 8; i++)
        header |= (uint64_t)bytes[i] << (8 * i);
    if (length < 8 || header > room || header > SAFETENSORS_MOST_HEADER_BYTES)
        return ty_fail(error, TY_EPARSE,
                       "%s: found a header of %llu bytes in a file of %llu, expected safetensors, "
                       "with a header within the file and of at most %llu",
                       name, (unsigned long long)header, (unsigned long long)length,
                       (unsigned long long)SAFETENSORS_MOST_HEADER_BYTES);
    TY_TRY(ty_json_parse((const char *)bytes + 8, header, name, &own->header, error));
    root = ty_json_root(own->header);
    if (!ty_json_is_object(root))
        return ty_json_fail(root, error, "an object of tensors");
    data_bytes = room - header;
    grown = ty_resize(file->tensors, file->count + ty_json_size(root) + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    file->tensors = grown;
    for (size_t i = 0; i < ty_json_size(root); i++) {
        const ty_json *value = ty_json_at(root, i);
        safetensors_tensor *made = &file->tensors[file->count + count];
        uint64_t end;

        if (strcmp(ty_json_key(value), METADATA) == 0) {
            TY_TRY(metadata_check(value, error));
            continue;
        }
        *made = (safetensors_tensor){0};
        TY_TRY(tensor_read(value, bytes + 8 + header, data_bytes, made, &end, error));
        count++;
    }
    TY_TRY(places_check(file->tensors + file->count, count, bytes + 8 + header, data_bytes, name,
                        error));
    file->count += count;
    return TY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const safetensors_tensor *)a)->name, ((const safetensors_tensor *)b)->name);
}

static safetensors *file_new(uint32_t parts)
{
    safetensors *file = ty_alloc(1, sizeof *file);

    if (file == NULL)
        return NULL;
    file->part_count = parts;
    file->parts = ty_alloc(parts, sizeof *file->parts);
    if (file->parts == NULL) {
        ty_free(file);
        return NULL;
    }
    return file;
}

static void file_finish(safetensors *file)
{
    if (file->count > 0)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
}

ty_status safetensors_parse(const unsigned char *bytes, uint64_t length, const char *name,
                            safetensors **out, ty_error *error)
{
    safetensors *file = file_new(1);
    ty_status status;

    TY_TRY(ty_check_memory(file != NULL, error));
    status = part_parse(file, &file->parts[0], bytes, length, name, error);
    if (status != TY_OK) {
        safetensors_close(file);
        return status;
    }
    file_finish(file);
    *out = file;
    return TY_OK;
}

/* ---- On the disk ---- */

static ty_status part_open(safetensors *file, part *own, const char *path, ty_error *error)
{
    struct stat about;
    void *mapped;
    int descriptor;
    ty_status status = ty_file_check_plain(path, error);

    if (status != TY_OK)
        return status;
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &about) != 0) {
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return status;
    }
    if (about.st_size == 0) {
        close(descriptor);
        return ty_fail(error, TY_EPARSE, "%s: found an empty file, expected safetensors", path);
    }
    mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    close(descriptor);
    if (status != TY_OK)
        return status;
    own->memory = mapped;
    own->bytes = (uint64_t)about.st_size;
    return part_parse(file, own, mapped, own->bytes, path, error);
}

/* Files named by an index, each once. */
typedef struct file_list {
    const char **names;
    uint32_t count;
} file_list;

static ty_status list_add(file_list *list, const ty_json *value, ty_error *error)
{
    const char **grown, *name;
    ty_status status = ty_json_as_string(value, &name, error);

    if (status != TY_OK)
        return status;
    if (strchr(name, '/') != NULL || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        return ty_json_fail(value, error, "the name of a file in the index's own folder");
    for (uint32_t i = list->count; i > 0; i--)
        if (strcmp(list->names[i - 1], name) == 0)
            return TY_OK;
    grown = ty_resize(list->names, list->count + 1, sizeof *grown);
    TY_TRY(ty_check_memory(grown != NULL, error));
    list->names = grown;
    list->names[list->count++] = name;
    return TY_OK;
}

/* Checks that the files contain exactly the tensors of the map, each in its file. */
static ty_status map_check(const safetensors *file, const ty_json *map, const char *path,
                           ty_error *error)
{
    for (uint64_t i = 1; i < file->count; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return ty_fail(error, TY_EPARSE, "%s: tensor %.100s is in two of its files", path,
                           file->tensors[i].name);
    for (size_t i = 0; i < ty_json_size(map); i++)
        if (safetensors_find(file, ty_json_key(ty_json_at(map, i))) == NULL)
            return ty_json_fail(ty_json_at(map, i), error, "a file that has this tensor");
    return TY_OK;
}

static ty_status index_open(const char *path, safetensors **out, ty_error *error)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - path) + 1;
    ty_json_document *document = NULL;
    const ty_json *map;
    safetensors *file = NULL;
    file_list list = {0};
    ty_status status;

    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    TY_CHECK(ty_json_object(ty_json_root(document), "weight_map", &map, error), status, cleanup);
    for (size_t i = 0; i < ty_json_size(map); i++)
        TY_CHECK(list_add(&list, ty_json_at(map, i), error), status, cleanup);
    file = file_new(list.count);
    TY_CHECK(ty_check_memory(file != NULL, error), status, cleanup);
    for (uint32_t i = 0; i < list.count; i++) {
        ty_text text = {0};
        char *place = NULL;

        ty_text_addf(&text, "%.*s%s", folder, path, list.names[i]);
        TY_CHECK(ty_text_take(&text, &place, error), status, cleanup);
        status = part_open(file, &file->parts[i], place, error);
        ty_free(place);
        TY_CHECK(status, status, cleanup);
    }
    file_finish(file);
    TY_CHECK(map_check(file, map, path, error), status, cleanup);
    *out = file;
    file = NULL; /* given away */

cleanup:
    ty_free(list.names);
    safetensors_close(file);
    ty_json_free(document);
    return status;
}

static ty_status file_open(const char *path, safetensors **out, ty_error *error)
{
    const size_t length = strlen(path);
    safetensors *file;
    ty_status status;

    if (length > 5 && strcmp(path + length - 5, ".json") == 0)
        return index_open(path, out, error);
    file = file_new(1);
    TY_TRY(ty_check_memory(file != NULL, error));
    status = part_open(file, &file->parts[0], path, error);
    if (status != TY_OK) {
        safetensors_close(file);
        return status;
    }
    file_finish(file);
    *out = file;
    return TY_OK;
}

ty_status safetensors_open(const char *path, safetensors **out, ty_error *error)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    struct stat about;

    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return file_open(path, out, error);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ty_text text = {0};
        char *place = NULL;
        ty_status status;

        ty_text_addf(&text, "%s/%s", path, names[i]);
        status = ty_text_take(&text, &place, error);
        if (status != TY_OK)
            return status;
        if (ty_file_exists(place)) {
            status = file_open(place, out, error);
            ty_free(place);
            return status;
        }
        ty_free(place);
    }
    return ty_fail(error, TY_EIO, "%s: found a folder without %s or %s", path, names[0], names[1]);
}

/* ---- Contents ---- */

uint64_t safetensors_count(const safetensors *file)
{
    return file->count;
}

const safetensors_tensor *safetensors_at(const safetensors *file, uint64_t i)
{
    return &file->tensors[i];
}

const safetensors_tensor *safetensors_find(const safetensors *file, const char *name)
{
    const safetensors_tensor wanted = {.name = name};

    return file->count == 0 ? NULL
                            : bsearch(&wanted, file->tensors, file->count, sizeof wanted, by_name);
}

float safetensors_float(const safetensors_tensor *tensor, uint64_t i)
{
    const unsigned char *data = tensor->data;
    uint16_t narrow;
    uint32_t bits;
    double wide;
    float number;

    switch (tensor->type) {
    case SAFETENSORS_F16:
        memcpy(&narrow, data + 2 * i, sizeof narrow);
        half_to_float(1, &narrow, &number);
        return number;
    case SAFETENSORS_BF16:
        memcpy(&narrow, data + 2 * i, sizeof narrow);
        bits = (uint32_t)narrow << 16;
        memcpy(&number, &bits, sizeof number);
        return number;
    case SAFETENSORS_F64:
        memcpy(&wide, data + 8 * i, sizeof wide);
        return (float)wide;
    case SAFETENSORS_F32:
    case SAFETENSORS_OTHER:
        break;
    }
    memcpy(&number, data + 4 * i, sizeof number);
    return number;
}
