/* Named numbers and texts, expressions over them, and the transformer made from them. */
#include "expression.h"
#include "steps.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define MOST_BLOCKS 10000
enum { DEEPEST_EXPRESSION = 24 };

/* ---- Numbers that make a transformer --------------------------------------------------------- */

typedef enum field_kind { SIZE, FLAG, WORD } field_kind;

typedef struct field {
    const char *name;
    size_t offset;
    field_kind kind;
} field;

#define OF(type, kind, name)                                                                       \
    {                                                                                              \
#name, offsetof(type, name), kind                                                          \
    }
#define T(kind, name) OF(ty_transformer, kind, name)
#define B(kind, name) OF(ty_transformer_block, kind, name)
/* clang-format off */
static const field fields[] = {
    T(WORD, form), T(WORD, head), T(WORD, norm_place),
    T(SIZE, blocks), T(SIZE, decoder_blocks), T(SIZE, features), T(SIZE, heads),
    T(SIZE, kv_heads), T(SIZE, head_size), T(SIZE, hidden_features), T(SIZE, vocabulary),
    T(SIZE, positions), T(SIZE, token_types), T(SIZE, sequence), T(SIZE, decoder_sequence),
    T(SIZE, longest_sequence), T(SIZE, token_bytes), T(SIZE, value_head_size), T(SIZE, query_rank),
    T(SIZE, kv_rank), T(SIZE, rotary_size), T(SIZE, relative_buckets), T(SIZE, experts),
    T(SIZE, experts_per_token), T(SIZE, expert_features), T(SIZE, shared_features),
    T(SIZE, dense_blocks), T(SIZE, expert_interval), T(SIZE, embedding_features),
    T(SIZE, late_positions), T(SIZE, classes), T(SIZE, window), T(SIZE, index_heads),
    T(SIZE, index_head_size), T(SIZE, chosen_rows), T(SIZE, latent_features),
    T(SIZE, state_features), T(SIZE, state_size), T(SIZE, state_heads), T(SIZE, state_groups),
    T(SIZE, step_rank), T(SIZE, state_kernel), T(SIZE, delta_heads), T(SIZE, delta_key_heads),
    T(SIZE, delta_head_size), T(SIZE, delta_value_size),
    T(FLAG, has_attention_bias), T(FLAG, has_qkv_bias), T(FLAG, has_mlp_bias),
    T(FLAG, has_qk_norm), T(FLAG, has_router_bias), T(FLAG, is_gated), T(FLAG, is_relu),
    T(FLAG, is_rms_norm), T(FLAG, is_fused), T(FLAG, is_tied), T(FLAG, is_parallel),
    T(FLAG, has_two_norms), T(FLAG, is_unshifted), T(FLAG, is_shared), T(FLAG, lacks_first_norm),
    T(FLAG, lacks_final_norm), T(FLAG, has_embedding_norm), T(FLAG, has_output_bias),
    T(FLAG, has_embedding_bias), T(FLAG, has_sinks), T(FLAG, has_attention_gate),
    T(FLAG, has_wide_qk_norm), T(FLAG, lacks_key_bias), T(FLAG, has_shared_gate),
    T(FLAG, has_state_bias), T(FLAG, has_step_norms),
};
static const field block_fields[] = {
    B(WORD, mixer), B(WORD, feed), B(SIZE, window), B(SIZE, heads), B(SIZE, kv_heads),
    B(SIZE, head_size), B(SIZE, hidden_features), B(FLAG, shares_kv),
};

static const struct {
    const char *name;
    double value;
} constants[] = {
    {"BATCH", TY_BATCH},
    {"DECODER", TY_DECODER}, {"ENCODER", TY_ENCODER}, {"ENCODER_DECODER", TY_ENCODER_DECODER},
    {"MASKED_HEAD", TY_MASKED_HEAD}, {"POOLER_HEAD", TY_POOLER_HEAD},
    {"CLASSIFIER_HEAD", TY_CLASSIFIER_HEAD}, {"NO_HEAD", TY_NO_HEAD},
    {"NORMS_BEFORE", TY_NORMS_BEFORE}, {"NORMS_AROUND", TY_NORMS_AROUND},
    {"NORMS_AFTER", TY_NORMS_BEHIND}, {"NORMS_AFTER_SUM", TY_NORMS_AFTER_SUM},
    {"ATTENTION", TY_MIX_ATTENTION}, {"STATE_SPACE", TY_MIX_STATE_SPACE},
    {"DELTA", TY_MIX_DELTA}, {"LINEAR_MIXER", TY_MIX_LINEAR}, {"NO_MIXER", TY_MIX_NONE},
    {"MLP", TY_FEED_MLP}, {"EXPERTS", TY_FEED_EXPERTS}, {"LINEAR_MLP", TY_FEED_LINEAR},
    {"NO_MLP", TY_FEED_NONE},
};
/* clang-format on */

static void put_field(void *record, const field *f, double value)
{
    void *at = (char *)record + f->offset;

    if (f->kind == FLAG)
        *(bool *)at = value != 0;
    else if (f->kind == WORD)
        *(int *)at = (int)value; /* an enumeration */
    else
        *(uint64_t *)at = value >= 1 ? (uint64_t)fmin(value, 1e18) : 0;
}

/* ---- Names ----------------------------------------------------------------------------------- */

ty_status ty_steps_out_of_memory(const steps_reader *r)
{
    return ty_fail(r->error, TY_ENOMEM, "%s: out of memory", r->source->path);
}

static bool is_called(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

steps_variable *ty_steps_find(const steps_scope *s, const char *name, size_t length)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_called(s->variables[i].name, name, length))
            return &s->variables[i];
    return NULL;
}

/* `name` lives as long as the reader. */
ty_status ty_steps_make(steps_reader *r, steps_scope *s, const char *name, steps_variable **out)
{
    *out = ty_steps_find(s, name, strlen(name));
    if (*out != NULL)
        return TY_OK;
    if (s->count == s->room) {
        const size_t room = s->room == 0 ? 64 : 2 * s->room;
        steps_variable *grown = ty_arena_alloc(r->arena, room, sizeof *grown);
        if (grown == NULL)
            return ty_steps_out_of_memory(r);
        if (s->count > 0)
            memcpy(grown, s->variables, s->count * sizeof *grown);
        s->variables = grown;
        s->room = room;
    }
    *out = &s->variables[s->count++];
    **out = (steps_variable){.name = name};
    return TY_OK;
}

ty_status ty_steps_set(steps_reader *reader, const char *name, double value)
{
    steps_variable *v;
    ty_status status = ty_steps_make(reader, reader->scope, name, &v);

    if (status == TY_OK)
        v->value = value;
    return status;
}

ty_status ty_steps_set_size(steps_reader *reader, const char *name, uint64_t value)
{
    return ty_steps_set(reader, name, (double)value);
}

steps_scope *ty_steps_find_scope(const steps_scope *s, const char *name, size_t length)
{
    if (is_called("outer", name, length))
        return s->outer;
    for (steps_scope *inner = s->inner; inner != NULL; inner = inner->next)
        if (is_called(inner->name, name, length))
            return inner;
    return NULL;
}

/* A number of the current block takes precedence over the model's. */
static bool find_number(const steps_reader *r, const steps_scope *s, const char *name,
                        size_t length, double *out)
{
    const steps_variable *v = NULL;
    char own[80];

    if (r->block != UINT64_MAX && length < sizeof own - 7) {
        snprintf(own, sizeof own, "block.%.*s", (int)length, name);
        v = ty_steps_find(s, own, strlen(own));
    }
    v = v != NULL ? v : ty_steps_find(s, name, length);
    if (v != NULL)
        *out = r->block < v->block_count ? v->of_blocks[r->block] : v->value;
    else if (r->block != UINT64_MAX && is_called("block", name, length))
        *out = (double)r->block;
    else {
        for (size_t i = 0; i < COUNT(constants); i++)
            if (is_called(constants[i].name, name, length)) {
                *out = constants[i].value;
                return true;
            }
        *out = 0; /* a missing size */
        for (size_t i = 0; i < COUNT(fields); i++)
            if (is_called(fields[i].name, name, length))
                return true;
        return false;
    }
    return true;
}

static size_t name_length(const char *at)
{
    size_t length = 0;

    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    return length;
}

/* "features", "vision.features", "outer.features", "has(window)" */
static const char *read_name(void *context, const char *at, double *value)
{
    const steps_reader *r = context;
    const steps_scope *s = r->scope;
    size_t length = name_length(at);
    const steps_variable *v;

    if (is_called("has", at, length) && at[length] == '(') {
        at += length + 1;
        length = name_length(at);
        v = ty_steps_find(s, at, length);
        *value = v != NULL && v->is_given;
        return at[length] == ')' ? at + length + 1 : NULL;
    }
    for (; at[length] == '.' && s != NULL; length = name_length(at)) {
        s = ty_steps_find_scope(s, at, length);
        at += length + 1;
    }
    return s != NULL && length > 0 && find_number(r, s, at, length, value) ? at + length : NULL;
}

static bool evaluate(steps_reader *r, const char *text, size_t length, double *out)
{
    ty_expression e = {.at = text, .name = read_name, .context = r, .deepest = DEEPEST_EXPRESSION};

    *out = ty_expression_read(&e);
    return !e.is_wrong && e.at == text + length;
}

ty_status ty_steps_number(steps_reader *reader, const ty_json *value, double *out)
{
    const char *text;
    ty_status status;

    if (ty_json_is_number(value))
        return ty_json_as_number(value, -1e18, 1e18, out, reader->error);
    status = ty_json_as_string(value, &text, reader->error);
    if (status == TY_OK && !evaluate(reader, text, strlen(text), out))
        status = ty_json_fail(value, reader->error, "an expression of numbers that are known");
    return status;
}

ty_status ty_steps_value(steps_reader *reader, const ty_json *step, const char *key,
                         double fallback, double *out)
{
    const ty_json *value;
    bool is_true;

    *out = fallback;
    if (!ty_json_has(step, key))
        return TY_OK;
    if (ty_json_bool(step, key, &is_true, NULL) == TY_OK) {
        *out = is_true;
        return TY_OK;
    }
    TY_TRY(ty_json_member(step, key, &value, reader->error));
    return ty_steps_number(reader, value, out);
}

ty_status ty_steps_text(steps_reader *reader, const ty_json *step, const char *key, ty_text *out)
{
    const steps_variable *v;
    const char *text;
    double number;

    TY_TRY(ty_json_string(step, key, &text, reader->error));
    while (*text != '\0') {
        const size_t plain = strcspn(text, "{"), inside = strcspn(text + plain, "}");
        ty_text_append(out, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        v = ty_steps_find(reader->scope, text + 1, inside > 0 ? inside - 1 : 0);
        if (v != NULL && v->text != NULL) {
            ty_text_addf(out, "%.60s", v->text);
        } else if (evaluate(reader, text + 1, inside > 0 ? inside - 1 : 0, &number)) {
            ty_text_addf(out, "%.0f", number);
        } else {
            return ty_json_fail(step, reader->error, "a text with numbers that are known");
        }
        text += inside + (text[inside] == '}');
    }
    return ty_text_check(out, reader->error);
}

/* ---- A reader -- */

ty_status ty_steps_load(const char *folder, const char *name, ty_json_document **out,
                        ty_error *error)
{
    char *path = NULL, file[80];
    ty_status status;

    snprintf(file, sizeof file, "%.64s.json", name);
    TY_CHECK(ty_data_path(folder, file, &path, error), status, done);
    status = ty_json_load(path, out, error);
done:
    ty_free(path);
    return status;
}

ty_status ty_steps_start(steps_reader *reader, const ty_json *object)
{
    reader->block = UINT64_MAX;
    reader->arena = ty_arena_new();
    reader->top =
        reader->arena != NULL ? ty_arena_alloc(reader->arena, 1, sizeof *reader->top) : NULL;
    if (reader->top == NULL)
        return ty_steps_out_of_memory(reader);
    reader->scope = reader->top;
    *reader->top = (steps_scope){.name = "", .prefix = "", .object = object};
    return TY_OK;
}

double ty_steps_number_of(const steps_reader *reader, const char *name)
{
    const steps_variable *v = ty_steps_find(reader->scope, name, strlen(name));
    return v != NULL ? v->value : 0;
}

const char *ty_steps_text_of(const steps_reader *reader, const char *name)
{
    const steps_variable *v = ty_steps_find(reader->scope, name, strlen(name));
    return v != NULL ? v->text : NULL;
}

void ty_steps_end(steps_reader *reader)
{
    ty_builder_free(reader->builder);
    ty_arena_free(reader->arena);
    reader->builder = NULL;
    reader->arena = NULL;
}

/* ---- The sizes ------------------------------------------------------------------------------- */

ty_status ty_steps_count_blocks(const steps_reader *r, uint64_t *out)
{
    const steps_variable *v = ty_steps_find(r->scope, "blocks", strlen("blocks"));

    *out = v != NULL && v->value >= 1 ? (uint64_t)fmin(v->value, 1e18) : 0;
    return *out > MOST_BLOCKS
               ? ty_json_fail(r->scope->object, r->error, "at most %d blocks", MOST_BLOCKS)
               : TY_OK;
}

static ty_transformer_block usual_block(const ty_transformer *t, uint64_t block)
{
    const uint64_t interval = t->expert_interval > 0 ? t->expert_interval : 1;
    const bool has_experts = t->experts > 0 && block >= t->dense_blocks && block % interval == 0;

    return (ty_transformer_block){.window = t->window,
                                  .feed = has_experts ? TY_FEED_EXPERTS : TY_FEED_MLP};
}

ty_status ty_steps_transformer(steps_reader *reader, ty_transformer *out)
{
    const steps_variable *of_blocks[COUNT(block_fields)];
    const steps_scope *s = reader->scope;
    ty_transformer_block *blocks;
    bool has_list = false;
    uint64_t count;

    *out = (ty_transformer){0};
    for (size_t i = 0; i < COUNT(fields); i++) {
        const steps_variable *v = ty_steps_find(s, fields[i].name, strlen(fields[i].name));
        if (v != NULL)
            put_field(out, &fields[i], v->value);
    }
    for (size_t i = 0; i < COUNT(block_fields); i++) {
        char name[48];
        snprintf(name, sizeof name, "block.%s", block_fields[i].name);
        of_blocks[i] = ty_steps_find(s, name, strlen(name));
        has_list = has_list || of_blocks[i] != NULL;
    }
    if (!has_list)
        return TY_OK;
    TY_TRY(ty_steps_count_blocks(reader, &count));
    blocks = ty_arena_alloc(reader->arena, count + 1, sizeof *blocks);
    if (blocks == NULL)
        return ty_steps_out_of_memory(reader);
    for (uint64_t b = 0; b < count; b++) {
        blocks[b] = usual_block(out, b);
        for (size_t i = 0; i < COUNT(block_fields); i++)
            if (of_blocks[i] != NULL && b < of_blocks[i]->block_count)
                put_field(&blocks[b], &block_fields[i], of_blocks[i]->of_blocks[b]);
    }
    out->block_list = blocks;
    return TY_OK;
}
