/* The family "sequential": "layers" is a list of statements, each of which reads the previous
 * statement's tensor.
 *
 *     {"kind": "relu"}                                                a layer
 *     {"repeat": 3, "layers": [...]}
 *     {"frozen": [...]}                                               not trained
 *     {"branches": [[], [...]], "join": "add"}                        side by side
 *     {"label": "a"}  {"from": "a"}  {"join": "add", "inputs": ["a", "b"]}
 *     {"block": "conv", "channels": 64}                               with "blocks": {"conv":
 * [...]}, in it {"out_channels": "$channels"}
 *
 * Files are untrusted data, so statements, nesting, labels and branches are limited. */
#include "zoo_scope.h"

#define MOST_STEPS 200000
#define MOST_DEPTH 40

static ty_status run_list(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *list,
                          uint32_t *x);

/* ---- Joins ----------------------------------------------------------------------------------- */

/* Ascending, as required for inputs of a concatenation; the order does not affect costs. */
static void sort(uint32_t *inputs, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t moving = inputs[i], at = i;
        for (; at > 0 && inputs[at - 1] > moving; at--)
            inputs[at] = inputs[at - 1];
        inputs[at] = moving;
    }
}

static ty_status join(const ty_zoo_script *script, const ty_json *object, uint32_t *inputs,
                      uint32_t count, uint32_t *x)
{
    static const char *const names[] = {"add", "concat", "concat_features"};
    static uint32_t (*const joins[])(ty_builder *, const uint32_t *, uint32_t) = {
        ty_builder_add, ty_builder_concat, ty_builder_concat_features};
    int kind;

    TY_TRY(ty_json_enum(object, "join", names, sizeof names / sizeof names[0], &kind,
                        script->reader->error));
    sort(inputs, count);
    *x = joins[kind](script->reader->builder, inputs, count);
    return TY_OK;
}

/* ---- Statements ------------------------------------------------------------------------------ */

typedef ty_status (*statement)(ty_zoo_script *script, const ty_zoo_frame *frame,
                               const ty_json *object, uint32_t *x);

static ty_status run_layer(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                           uint32_t *x)
{
    return ty_zoo_layer(script, frame, object, x);
}

static ty_status run_repeat(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                            uint32_t *x)
{
    const ty_json *list;
    uint64_t count;

    TY_TRY(ty_zoo_scoped_size(frame, object, "repeat", TY_ZOO_REQUIRED, &count,
                              script->reader->error));
    TY_TRY(ty_json_array(object, "layers", 1, MOST_STEPS, &list, script->reader->error));
    for (uint64_t i = 0; i < count; i++)
        TY_TRY(run_list(script, frame, list, x));
    return TY_OK;
}

static ty_status run_frozen(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                            uint32_t *x)
{
    uint32_t first = ty_builder_layer_count(script->reader->builder);
    const ty_json *list;

    TY_TRY(ty_json_array(object, "frozen", 1, MOST_STEPS, &list, script->reader->error));
    TY_TRY(run_list(script, frame, list, x));
    ty_builder_freeze(script->reader->builder, first,
                      ty_builder_layer_count(script->reader->builder));
    return TY_OK;
}

static ty_status run_branches(ty_zoo_script *script, const ty_zoo_frame *frame,
                              const ty_json *object, uint32_t *x)
{
    ty_error *error = script->reader->error;
    uint32_t ends[TY_ZOO_MOST_BRANCHES], count;
    const ty_json *branches;

    TY_TRY(ty_json_array(object, "branches", 2, TY_ZOO_MOST_BRANCHES, &branches, error));
    count = (uint32_t)ty_json_size(branches);
    for (uint32_t i = 0; i < count; i++) {
        const ty_json *branch = ty_json_at(branches, i);
        ends[i] = *x;
        if (!ty_json_is_array(branch))
            return ty_json_fail(branch, error, "a list of statements");
        TY_TRY(run_list(script, frame, branch, &ends[i]));
    }
    return join(script, object, ends, count, x);
}

static ty_status run_block(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                           uint32_t *x)
{
    const ty_zoo_frame inner = {object, frame, frame->depth + 1};
    ty_error *error = script->reader->error;
    const ty_json *list;
    const char *name;

    TY_TRY(ty_json_string(object, "block", &name, error));
    if (script->blocks == NULL || !ty_json_has(script->blocks, name))
        return ty_json_fail(object, error, "one of the file's \"blocks\"");
    TY_TRY(ty_json_array(script->blocks, name, 1, MOST_STEPS, &list, error));
    return run_list(script, &inner, list, x);
}

static ty_status run_label(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                           uint32_t *x)
{
    (void)frame;
    return ty_zoo_label_set(script, object, *x);
}

static ty_status run_from(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                          uint32_t *x)
{
    (void)frame;
    return ty_zoo_label_get(script, object, "from", x);
}

static ty_status run_join(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                          uint32_t *x)
{
    uint32_t inputs[TY_ZOO_MOST_BRANCHES], count;
    ty_status status = ty_zoo_label_list(script, object, inputs, &count);
    (void)frame;
    return status != TY_OK ? status : join(script, object, inputs, count, x);
}

/* The first of these members identifies a statement. */
static const struct {
    const char *key;
    statement run;
} statements[] = {
    {"kind", run_layer},  {"repeat", run_repeat}, {"branches", run_branches},
    {"block", run_block}, {"label", run_label},   {"from", run_from},
    {"join", run_join},   {"frozen", run_frozen},
};

static ty_status run_one(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *object,
                         uint32_t *x)
{
    ty_error *error = script->reader->error;

    if (++script->steps > MOST_STEPS)
        return ty_json_fail(object, error, "at most %d statements with all repetitions",
                            MOST_STEPS);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!ty_json_is_object(object) || !ty_json_has(object, statements[i].key))
            continue;
        TY_TRY(statements[i].run(script, frame, object, x));
        TY_TRY(ty_json_end(object, error));
        return ty_zoo_progress(script->reader, object);
    }
    return ty_json_fail(object, error, "a layer: {\"kind\": ...}, or another statement");
}

static ty_status run_list(ty_zoo_script *script, const ty_zoo_frame *frame, const ty_json *list,
                          uint32_t *x)
{
    const ty_zoo_frame inner = {frame->use, frame->outer, frame->depth + 1};

    if (inner.depth > MOST_DEPTH)
        return ty_json_fail(list, script->reader->error, "statements nested at most %d deep",
                            MOST_DEPTH);
    for (size_t i = 0; i < ty_json_size(list); i++)
        TY_TRY(run_one(script, &inner, ty_json_at(list, i), x));
    return TY_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Opens a builder for tokens if the file has a "sequence". */
static ty_status open_builder(ty_zoo_reader *reader)
{
    uint64_t sequence, token_bytes;

    if (!ty_json_has(reader->root, "sequence"))
        return ty_zoo_open_real(reader);
    if (reader->overrides->sequence != 0)
        return ty_fail(reader->error, TY_EINVAL,
                       "%s: found sequence=%llu, but the sequence length of its layers is fixed",
                       reader->name, (unsigned long long)reader->overrides->sequence);
    TY_TRY(ty_zoo_size(reader->root, "sequence", TY_ZOO_REQUIRED, &sequence, reader->error));
    TY_TRY(ty_zoo_size(reader->root, "token_bytes", TY_ZOO_REQUIRED, &token_bytes, reader->error));
    reader->builder = ty_builder_new(reader->name, TY_INPUT_TOKEN, &(ty_shape){1, {sequence}});
    ty_builder_set_sample_bytes(reader->builder, sequence * token_bytes);
    return ty_zoo_progress(reader, reader->root);
}

ty_status ty_zoo_sequential(ty_zoo_reader *reader)
{
    ty_zoo_script script = {.reader = reader};
    const ty_zoo_frame outermost = {0};
    ty_status status = TY_OK;
    const ty_json *layers;
    uint32_t x = TY_BATCH;

    TY_TRY(open_builder(reader));
    if (ty_json_has(reader->root, "blocks"))
        TY_TRY(ty_json_object(reader->root, "blocks", &script.blocks, reader->error));
    TY_TRY(ty_json_array(reader->root, "layers", 1, MOST_STEPS, &layers, reader->error));
    TY_TRY(run_list(&script, &outermost, layers, &x));
    if (script.blocks != NULL)
        status = ty_json_end(script.blocks, reader->error);
    return status;
}
