/* Weights from a file: finds every tensor before anything starts. */
#include "weights.h"

#include "safetensors.h"
#include "weight_names.h"

#include <stdio.h>
#include <string.h>

struct weights {
    ty_weights source; /* the first member: `read` gets its address */
    safetensors *file;
    weight_names names;
    bool *is_fresh; /* [layer]: starts from the seed */
    uint32_t layers, fresh;
};

void weights_close(weights *w)
{
    if (w == NULL)
        return;
    safetensors_close(w->file);
    ty_free(w->is_fresh);
    ty_free(w);
}

const ty_weights *weights_source(const weights *w)
{
    return &w->source;
}

void weights_count(const weights *w, uint32_t *layers, uint32_t *fresh)
{
    *layers = w->layers;
    *fresh = w->fresh;
}

/* ---- Finding ---- */

/* Alternative names of BERT's norms in checkpoints from TensorFlow. */
static const safetensors_tensor *norm_find(const safetensors *file, const char *name)
{
    static const char *const ends[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                          {"LayerNorm.bias", "LayerNorm.beta"}};
    const size_t length = strlen(name);
    char other[WEIGHT_NAME_SIZE + 8];

    for (size_t i = 0; i < 2; i++) {
        const size_t end = strlen(ends[i][0]);
        if (length < end || strcmp(name + length - end, ends[i][0]) != 0)
            continue;
        snprintf(other, sizeof other, "%.*s%s", (int)(length - end), name, ends[i][1]);
        return safetensors_find(file, other);
    }
    return NULL;
}

static const safetensors_tensor *name_find(const weights *w, const char *name)
{
    const safetensors_tensor *found = safetensors_find(w->file, name);

    if (found == NULL)
        found = norm_find(w->file, name);
    return found;
}

static const safetensors_tensor *piece_find(const weights *w, const weight_piece *piece)
{
    const char *const names[] = {piece->name, weight_short_name(&w->names, piece->name),
                                 piece->other, weight_short_name(&w->names, piece->other)};
    const safetensors_tensor *found = NULL;

    for (size_t i = 0; i < 4 && found == NULL; i++)
        found = name_find(w, names[i]);
    return found;
}

static void shape_write(uint32_t count, const uint64_t *dimensions, char out[96])
{
    size_t used = 1;

    snprintf(out, 96, "[");
    for (uint32_t d = 0; d < count && used < 70; d++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%llu", d > 0 ? ", " : "",
                                 (unsigned long long)dimensions[d]);
    snprintf(out + used, 96 - used, "]");
}

/* Checks that a tensor exists and has the expected shape and type. */
static ty_status piece_check(const weights *w, const char *path, uint32_t layer,
                             const weight_piece *piece, ty_error *error)
{
    const safetensors_tensor *found = piece_find(w, piece);
    const char *layer_name = w->names.workload->layers[layer].name;
    char expected[96], shape[96];

    shape_write(piece->dimension_count, piece->dimensions, expected);
    if (found == NULL)
        return ty_fail(error, TY_EPARSE,
                       "%s: found no tensor %s, expected one of %s for layer %s (names of %s)",
                       path, piece->name, expected, layer_name,
                       weight_family_name(w->names.family));
    shape_write(found->dimension_count, found->dimensions, shape);
    if (found->dimension_count != piece->dimension_count ||
        memcmp(found->dimensions, piece->dimensions,
               piece->dimension_count * sizeof *piece->dimensions) != 0)
        return ty_fail(error, TY_EPARSE, "%s: found tensor %.100s of %s, expected %s for layer %s",
                       path, found->name, shape, expected, layer_name);
    if (found->type == SAFETENSORS_OTHER)
        return ty_fail(error, TY_EPARSE,
                       "%s: found tensor %.100s of %s, expected F32, F16, BF16 or F64", path,
                       found->name, found->type_name);
    return TY_OK;
}

static ty_status layer_check(const weights *w, const char *path, uint32_t layer, uint32_t *pieces,
                             ty_error *error)
{
    *pieces = 0;
    for (uint32_t t = 0; t < LAYER_FILE_TENSORS; t++) {
        weight_piece piece;
        for (uint32_t i = 0; weight_piece_at(&w->names, layer, t, i, &piece); i++) {
            (*pieces)++;
            TY_TRY(piece_check(w, path, layer, &piece, error));
        }
    }
    return TY_OK;
}

static bool has_frozen(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (workload->layers[l].is_frozen)
            return true;
    return false;
}

/* Marks the tensors that layers use. */
static void used_mark(const weights *w, bool *is_used)
{
    for (uint32_t l = 0; l < w->names.workload->layer_count; l++)
        for (uint32_t t = 0; t < LAYER_FILE_TENSORS; t++) {
            weight_piece piece;
            for (uint32_t i = 0; weight_piece_at(&w->names, l, t, i, &piece); i++) {
                const safetensors_tensor *found = piece_find(w, &piece);
                if (found != NULL)
                    is_used[found - safetensors_at(w->file, 0)] = true;
            }
        }
}

static ty_status others_check(const weights *w, const char *path, ty_error *error)
{
    const uint64_t count = safetensors_count(w->file);
    bool *is_used = ty_alloc(count, sizeof *is_used);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(is_used != NULL, error));
    used_mark(w, is_used);
    for (uint64_t i = 0; i < count && status == TY_OK; i++)
        if (!is_used[i] && !weight_is_spare(&w->names, safetensors_at(w->file, i)->name))
            status = ty_fail(error, TY_EPARSE,
                             "%s: found tensor %.100s, expected none but those of the layers of %s "
                             "(names of %s)",
                             path, safetensors_at(w->file, i)->name, w->names.workload->name,
                             weight_family_name(w->names.family));
    ty_free(is_used);
    return status;
}

/* ---- Reading ---- */

/* Rows [first, first + count) of a piece, as consecutive numbers. */
static void piece_read(const safetensors_tensor *from, const weight_piece *piece, uint64_t first,
                       uint64_t count, float *out)
{
    if (from->type == SAFETENSORS_F32 && !piece->is_transposed) {
        memcpy(out, from->data + first * sizeof *out, count * sizeof *out);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = first + i, row = at / piece->columns, column = at % piece->columns;
        const uint64_t place = piece->is_transposed ? column * piece->rows + row : at;

        out[i] = safetensors_float(from, place);
    }
}

static bool weights_read(const ty_weights *source, uint32_t layer, uint32_t tensor, uint64_t first,
                         uint64_t count, float *out)
{
    const weights *w = (const weights *)(const void *)source;
    uint64_t begin = 0, end = first + count;
    weight_piece piece;

    if (w->is_fresh[layer])
        return false;
    for (uint32_t i = 0; begin < end && weight_piece_at(&w->names, layer, tensor, i, &piece); i++) {
        const uint64_t next = begin + piece.rows * piece.columns;
        const uint64_t from = first > begin ? first : begin, to = end < next ? end : next;

        if (from < to)
            piece_read(piece_find(w, &piece), &piece, from - begin, to - from,
                       out + (from - first));
        begin = next;
    }
    return true;
}

ty_status weights_open(const char *path, const ty_workload *workload, weights **out,
                       ty_error *error)
{
    const bool may_be_fresh = has_frozen(workload);
    weights *w = ty_alloc(1, sizeof *w);
    ty_status status;

    if (w == NULL || (w->is_fresh = ty_alloc(workload->layer_count, sizeof *w->is_fresh)) == NULL) {
        ty_free(w);
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
    }
    w->source.read = weights_read;
    w->names = weight_names_of(workload);
    TY_CHECK(safetensors_open(path, &w->file, error), status, cleanup);
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        ty_error detail = {0};
        uint32_t pieces;

        status = layer_check(w, path, l, &pieces, &detail);
        if (status != TY_OK && may_be_fresh && !workload->layers[l].is_frozen) {
            w->is_fresh[l] = true;
            w->fresh++;
            status = TY_OK;
        }
        w->layers += pieces > 0;
        if (status != TY_OK) {
            ty_fail(error, status, "%s", detail.message);
            goto cleanup;
        }
    }
    if (!may_be_fresh)
        TY_CHECK(others_check(w, path, error), status, cleanup);
    *out = w;
    w = NULL; /* given away */

cleanup:
    weights_close(w);
    return status;
}
