/* Common code of families: sizes and flags; arguments of blocks, searched from the innermost block
 * outwards; labels, where the last definition of a name counts. */
#include "zoo_scope.h"

#include <string.h>

ty_status ty_zoo_size(const ty_json *object, const char *key, uint64_t fallback, uint64_t *out,
                      ty_error *error)
{
    if (fallback != TY_ZOO_REQUIRED && !ty_json_has(object, key)) {
        *out = fallback;
        return TY_OK;
    }
    return ty_json_uint64(object, key, fallback == 0 ? 0 : 1, INT32_MAX, out, error);
}

ty_status ty_zoo_flag(const ty_json *object, const char *key, bool fallback, bool *out,
                      ty_error *error)
{
    if (!ty_json_has(object, key)) {
        *out = fallback;
        return TY_OK;
    }
    return ty_json_bool(object, key, out, error);
}

ty_status ty_zoo_progress(const ty_zoo_reader *reader, const ty_json *value)
{
    const ty_error *mistake = ty_builder_mistake(reader->builder);
    if (mistake == NULL)
        return TY_OK;
    if (mistake->status == TY_ENOMEM)
        return ty_fail(reader->error, TY_ENOMEM, "%s", mistake->message);
    return ty_json_fail(value, reader->error, "layers that fit (%s)", mistake->message);
}

ty_status ty_zoo_open_real(ty_zoo_reader *reader)
{
    ty_shape input = {0};
    const ty_json *shape;
    uint64_t sample_bytes;

    if (reader->overrides->sequence != 0)
        return ty_fail(reader->error, TY_EINVAL,
                       "%s: found sequence=%llu, but its samples are not sequences", reader->name,
                       (unsigned long long)reader->overrides->sequence);
    TY_TRY(ty_json_array(reader->root, "input", 1, TY_MAX_DIMENSIONS, &shape, reader->error));
    input.dimension_count = (uint32_t)ty_json_size(shape);
    for (uint32_t i = 0; i < input.dimension_count; i++)
        TY_TRY(ty_json_as_uint64(ty_json_at(shape, i), 1, INT32_MAX, &input.dimensions[i],
                                 reader->error));
    TY_TRY(ty_json_uint64(reader->root, "sample_bytes", 1, (uint64_t)1 << 50, &sample_bytes,
                          reader->error));
    reader->builder = ty_builder_new(reader->name, TY_INPUT_REAL, &input);
    ty_builder_set_sample_bytes(reader->builder, sample_bytes);
    return ty_zoo_progress(reader, shape);
}

/* Resolves "$key" to the object and key of a value. */
static ty_status follow(const ty_zoo_frame *frame, const ty_json **object, const char **key,
                        ty_error *error)
{
    const char *text;

    while (ty_json_has(*object, *key) && ty_json_string(*object, *key, &text, NULL) == TY_OK &&
           text[0] == '$') {
        if (frame == NULL || frame->use == NULL || !ty_json_has(frame->use, text + 1))
            return ty_json_fail(*object, error, "a block used with \"%s\", which \"%s\" refers to",
                                text + 1, *key);
        *object = frame->use;
        *key = text + 1;
        frame = frame->outer;
    }
    return TY_OK;
}

ty_status ty_zoo_scoped_size(const ty_zoo_frame *frame, const ty_json *object, const char *key,
                             uint64_t fallback, uint64_t *out, ty_error *error)
{
    ty_status status = follow(frame, &object, &key, error);
    return status != TY_OK ? status : ty_zoo_size(object, key, fallback, out, error);
}

ty_status ty_zoo_scoped_sizes(const ty_zoo_frame *frame, const ty_json *object, const char *key,
                              uint64_t fallback, uint64_t *out, uint32_t count, ty_error *error)
{
    const ty_json *list;

    TY_TRY(follow(frame, &object, &key, error));
    if (ty_json_has(object, key) && ty_json_array(object, key, 0, SIZE_MAX, &list, NULL) == TY_OK) {
        TY_TRY(ty_json_array(object, key, count, count, &list, error));
        for (uint32_t i = 0; i < count; i++)
            TY_TRY(ty_json_as_uint64(ty_json_at(list, i), fallback == 0 ? 0 : 1, INT32_MAX, &out[i],
                                     error));
        return TY_OK;
    }
    TY_TRY(ty_zoo_size(object, key, fallback, &out[0], error));
    for (uint32_t i = 1; i < count; i++)
        out[i] = out[0];
    return TY_OK;
}

ty_status ty_zoo_label_set(ty_zoo_script *script, const ty_json *object, uint32_t layer)
{
    ty_zoo_labels *labels = &script->labels;
    const char *name;
    uint32_t i = 0;

    TY_TRY(ty_json_string(object, "label", &name, script->reader->error));
    while (i < labels->count && strcmp(labels->entries[i].name, name) != 0)
        i++;
    if (i == TY_ZOO_MOST_LABELS)
        return ty_json_fail(object, script->reader->error, "at most %d labels", TY_ZOO_MOST_LABELS);
    if (i == labels->count)
        labels->count++;
    labels->entries[i].name = name;
    labels->entries[i].layer = layer;
    return TY_OK;
}

static ty_status find(const ty_zoo_script *script, const ty_json *where, const char *name,
                      uint32_t *layer)
{
    for (uint32_t i = 0; i < script->labels.count; i++) {
        if (strcmp(script->labels.entries[i].name, name) != 0)
            continue;
        *layer = script->labels.entries[i].layer;
        return TY_OK;
    }
    return ty_json_fail(where, script->reader->error, "a label given before; \"%s\" was not", name);
}

ty_status ty_zoo_label_get(const ty_zoo_script *script, const ty_json *object, const char *key,
                           uint32_t *layer)
{
    const char *name;

    TY_TRY(ty_json_string(object, key, &name, script->reader->error));
    return find(script, object, name, layer);
}

ty_status ty_zoo_label_list(const ty_zoo_script *script, const ty_json *object,
                            uint32_t inputs[TY_ZOO_MOST_BRANCHES], uint32_t *count)
{
    const ty_json *list;
    const char *name;

    TY_TRY(ty_json_array(object, "inputs", 1, TY_ZOO_MOST_BRANCHES, &list, script->reader->error));
    *count = (uint32_t)ty_json_size(list);
    for (uint32_t i = 0; i < *count; i++) {
        TY_TRY(ty_json_as_string(ty_json_at(list, i), &name, script->reader->error));
        TY_TRY(find(script, ty_json_at(list, i), name, &inputs[i]));
    }
    return TY_OK;
}
