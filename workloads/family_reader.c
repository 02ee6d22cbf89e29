/* Steps of a model family: names and their numbers, keys of a configuration, checks and notes. */
#include "expression.h"
#include "family.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define MOST_BLOCKS 10000
enum { MOST_DEPTH = 24, MOST_NAMES = 16, DEEPEST_EXPRESSION = 24 };

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

static ty_status out_of_memory(const family_reader *r)
{
    return ty_fail(r->error, TY_ENOMEM, "%s: out of memory", r->source->path);
}

static bool is_called(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

static family_variable *find_variable(const family_scope *s, const char *name, size_t length)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_called(s->variables[i].name, name, length))
            return &s->variables[i];
    return NULL;
}

/* `name` lives as long as the reader. */
static ty_status make_variable(family_reader *r, family_scope *s, const char *name,
                               family_variable **out)
{
    *out = find_variable(s, name, strlen(name));
    if (*out != NULL)
        return TY_OK;
    if (s->count == s->room) {
        const size_t room = s->room == 0 ? 64 : 2 * s->room;
        family_variable *grown = ty_arena_alloc(r->arena, room, sizeof *grown);
        if (grown == NULL)
            return out_of_memory(r);
        if (s->count > 0)
            memcpy(grown, s->variables, s->count * sizeof *grown);
        s->variables = grown;
        s->room = room;
    }
    *out = &s->variables[s->count++];
    **out = (family_variable){.name = name};
    return TY_OK;
}

ty_status family_set(family_reader *reader, const char *name, double value)
{
    family_variable *v;
    ty_status status = make_variable(reader, reader->scope, name, &v);

    if (status == TY_OK)
        v->value = value;
    return status;
}

ty_status family_set_size(family_reader *reader, const char *name, uint64_t value)
{
    return family_set(reader, name, (double)value);
}

static family_scope *find_scope(const family_scope *s, const char *name, size_t length)
{
    if (is_called("outer", name, length))
        return s->outer;
    for (family_scope *inner = s->inner; inner != NULL; inner = inner->next)
        if (is_called(inner->name, name, length))
            return inner;
    return NULL;
}

/* What a step for each block has set counts before what is said of all. */
static bool find_number(const family_reader *r, const family_scope *s, const char *name,
                        size_t length, double *out)
{
    const family_variable *v = NULL;
    char own[80];

    if (r->block != UINT64_MAX && length < sizeof own - 7) {
        snprintf(own, sizeof own, "block.%.*s", (int)length, name);
        v = find_variable(s, own, strlen(own));
    }
    v = v != NULL ? v : find_variable(s, name, length);
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
        *out = 0; /* a size that is not there */
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
    const family_reader *r = context;
    const family_scope *s = r->scope;
    size_t length = name_length(at);
    const family_variable *v;

    if (is_called("has", at, length) && at[length] == '(') {
        at += length + 1;
        length = name_length(at);
        v = find_variable(s, at, length);
        *value = v != NULL && v->is_given;
        return at[length] == ')' ? at + length + 1 : NULL;
    }
    for (; at[length] == '.' && s != NULL; length = name_length(at)) {
        s = find_scope(s, at, length);
        at += length + 1;
    }
    return s != NULL && length > 0 && find_number(r, s, at, length, value) ? at + length : NULL;
}

static bool evaluate(family_reader *r, const char *text, size_t length, double *out)
{
    ty_expression e = {.at = text, .name = read_name, .context = r, .deepest = DEEPEST_EXPRESSION};

    *out = ty_expression_read(&e);
    return !e.is_wrong && e.at == text + length;
}

ty_status family_number(family_reader *reader, const ty_json *value, double *out)
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

ty_status family_value(family_reader *reader, const ty_json *step, const char *key, double fallback,
                       double *out)
{
    const ty_json *value;
    bool is_true;
    ty_status status;

    *out = fallback;
    if (!ty_json_has(step, key))
        return TY_OK;
    if (ty_json_bool(step, key, &is_true, NULL) == TY_OK) {
        *out = is_true;
        return TY_OK;
    }
    TY_CHECK(ty_json_member(step, key, &value, reader->error), status, done);
    status = family_number(reader, value, out);
done:
    return status;
}

ty_status family_text(family_reader *reader, const ty_json *step, const char *key, ty_text *out)
{
    const char *text;
    double number;
    ty_status status;

    TY_CHECK(ty_json_string(step, key, &text, reader->error), status, done);
    while (*text != '\0') {
        const size_t plain = strcspn(text, "{"), inside = strcspn(text + plain, "}");
        ty_text_append(out, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        if (!evaluate(reader, text + 1, inside > 0 ? inside - 1 : 0, &number)) {
            status = ty_json_fail(step, reader->error, "a text with numbers that are known");
            goto done;
        }
        ty_text_addf(out, "%.0f", number);
        text += inside + (text[inside] == '}');
    }
    status = ty_text_check(out, reader->error);
done:
    return status;
}

/* ---- Keys of the configuration --------------------------------------------------------------- */

typedef struct place {
    const ty_json *object; /* NULL: what holds the key is not there */
    const char *key;
    const ty_json *element; /* of a list, in place of object and key */
} place;

/* "attn_config.kv_n_heads"; "/name" is of the whole file, "architectures.0" an element. */
static ty_status find_place(const family_reader *r, const ty_json *object, const char *path,
                            bool is_needed, place *out)
{
    ty_status status = TY_OK;
    const ty_json *list;

    if (*path == '/') {
        object = r->whole;
        path++;
    }
    *out = (place){.object = object, .key = path};
    for (const char *dot; (dot = strchr(out->key, '.')) != NULL; out->key = dot + 1) {
        char *name = ty_arena_alloc(r->arena, (size_t)(dot - out->key) + 1, 1);
        if (name == NULL)
            return out_of_memory(r);
        memcpy(name, out->key, (size_t)(dot - out->key));
        if (!ty_json_has(out->object, name) && !is_needed) {
            out->object = NULL;
            return TY_OK;
        }
        if (isdigit((unsigned char)dot[1])) { /* no list: no element */
            out->object = NULL;
            if (ty_json_array(object, name, 1, SIZE_MAX, &list, NULL) == TY_OK)
                out->element = ty_json_at(list, 0);
            return TY_OK;
        }
        TY_CHECK(ty_json_object(out->object, name, &out->object, r->error), status, done);
    }
done:
    return status;
}

static bool is_there(const place *p)
{
    return p->element != NULL || (p->object != NULL && ty_json_has(p->object, p->key));
}

/* The first of the keys that is there, else the first of all; the others count as read. */
static ty_status find_keys(const family_reader *r, const ty_json *object, const ty_json *keys,
                           bool is_needed, place *out)
{
    const size_t count = ty_json_is_array(keys) ? ty_json_size(keys) : 1;
    bool is_found = false;
    ty_status status = TY_OK;

    for (size_t i = 0; i < count; i++) {
        const ty_json *name = ty_json_is_array(keys) ? ty_json_at(keys, i) : keys;
        const char *path;
        place p;
        TY_CHECK(ty_json_as_string(name, &path, r->error), status, done);
        TY_CHECK(find_place(r, object, path, is_needed && count == 1, &p), status, done);
        if (!is_found && is_there(&p)) {
            *out = p;
            is_found = true;
        } else if (i == 0)
            *out = p;
        else if (p.object != NULL)
            ty_json_ignore(p.object, p.key);
    }
done:
    return status;
}

/* "relu", "gated-*", "*attention*" */
static bool is_like(const char *pattern, const char *text)
{
    const bool is_open = pattern[0] == '*' && pattern[1] != '\0'; /* alone it is a letter */
    const size_t length = strlen(pattern), all = strlen(text);
    const bool is_end_open = length > 1 && pattern[length - 1] == '*';
    const size_t middle = length - is_open - is_end_open;

    for (size_t at = 0; at + middle <= all && (at == 0 || is_open); at++)
        if (strncmp(text + at, pattern + is_open, middle) == 0 &&
            (is_end_open || at + middle == all))
            return true;
    return false;
}

static ty_status text_of(const family_reader *r, const place *p, const char **out)
{
    return p->element != NULL ? ty_json_as_string(p->element, out, r->error)
                              : ty_json_string(p->object, p->key, out, r->error);
}

static ty_status node_of(const family_reader *r, const place *p, const ty_json **out)
{
    *out = p->element;
    return p->element != NULL ? TY_OK : ty_json_member(p->object, p->key, out, r->error);
}

/* The number that "words" has for a text; null refuses it. "otherwise" is the number of other
 * texts, which a step without it refuses. */
static ty_status find_word(family_reader *r, const ty_json *step, const ty_json *node,
                           const char *text, double *out)
{
    const ty_json *words;
    ty_text expected = {0};
    bool is_refused = false;
    ty_status status;

    TY_CHECK(ty_json_object(step, "words", &words, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(words); i++) {
        const char *word = ty_json_key(ty_json_at(words, i));
        const bool is_accepted = ty_json_has(words, word); /* others are null */
        if (is_accepted && !is_refused && is_like(word, text)) {
            status = family_value(r, words, word, 0, out);
            goto done;
        }
        is_refused = is_refused || is_like(word, text);
        if (is_accepted)
            ty_text_addf(&expected, "%s%s", expected.length > 0 ? ", " : "", word);
    }
    if (ty_json_has(step, "otherwise") && !is_refused)
        status = family_value(r, step, "otherwise", 0, out);
    else
        status = ty_json_fail(node, r->error, "one of %s",
                              expected.data != NULL ? expected.data : "no words");
done:
    ty_text_clear(&expected);
    return status;
}

typedef enum value_kind { A_SIZE, A_NUMBER, A_FLAG, A_WORD, A_SIDE, A_COUNT } value_kind;

/* Two sides that are equal. */
static ty_status read_sides(const family_reader *r, const ty_json *list, double *out)
{
    uint64_t sides[2];
    ty_status status = TY_OK;

    if (ty_json_size(list) != 2)
        return ty_json_fail(list, r->error, "2 elements");
    for (size_t i = 0; i < 2; i++)
        TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), 1, INT32_MAX, &sides[i], r->error), status,
                 done);
    if (sides[0] != sides[1])
        return ty_json_fail(list, r->error, "two equal sides");
    *out = (double)sides[0];
done:
    return status;
}

static ty_status read_size(family_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;
    uint64_t size;
    ty_status status;

    TY_CHECK(family_value(r, step, "minimum", 1, &minimum), status, done);
    TY_CHECK(family_value(r, step, "maximum", INT32_MAX, &maximum), status, done);
    status = p->element != NULL ? ty_json_as_uint64(p->element, (uint64_t)minimum,
                                                    (uint64_t)maximum, &size, r->error)
                                : ty_json_uint64(p->object, p->key, (uint64_t)minimum,
                                                 (uint64_t)maximum, &size, r->error);
    if (status == TY_OK)
        *out = (double)size;
done:
    return status;
}

static ty_status read_number(family_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;
    ty_status status;

    TY_CHECK(family_value(r, step, "minimum", 0, &minimum), status, done);
    TY_CHECK(family_value(r, step, "maximum", INT32_MAX, &maximum), status, done);
    status = ty_json_number(p->object, p->key, minimum, maximum, out, r->error);
done:
    return status;
}

/* What is there, or is needed. */
static ty_status read_place(family_reader *r, const ty_json *step, value_kind kind, const place *p,
                            double *out)
{
    const bool has_words = ty_json_has(step, "words");
    const ty_json *node = NULL;
    const char *text;
    bool is_on;
    ty_status status = TY_OK;

    if (kind == A_WORD && !is_there(p))
        return text_of(r, p, &text);
    if (is_there(p))
        TY_CHECK(node_of(r, p, &node), status, done);
    if (kind == A_WORD || (has_words && node != NULL && ty_json_is_string(node))) {
        TY_CHECK(text_of(r, p, &text), status, done);
        status = find_word(r, step, node, text, out);
    } else if (kind == A_FLAG) {
        TY_CHECK(ty_json_bool(p->object, p->key, &is_on, r->error), status, done);
        *out = is_on;
    } else if (kind == A_COUNT) {
        if (!ty_json_is_array(node) && !ty_json_is_object(node))
            return ty_json_fail(node, r->error, "a list");
        ty_json_ignore(p->object, p->key);
        *out = (double)ty_json_size(node);
    } else if (kind == A_SIDE && node != NULL && ty_json_is_array(node)) {
        status = read_sides(r, node, out);
    } else if (kind == A_NUMBER) {
        status = read_number(r, step, p, out);
    } else {
        status = read_size(r, step, p, out);
    }
done:
    return status;
}

/* @param member the keys: of a step's "sizes" and the like; @param out untouched where the
 * configuration does not have it */
static ty_status read_key(family_reader *r, const ty_json *step, value_kind kind,
                          const ty_json *object, const ty_json *keys, bool is_needed,
                          bool *is_given, double *out)
{
    place p = {0};
    const ty_json *list;
    ty_status status;

    TY_CHECK(find_keys(r, object, keys, is_needed, &p), status, done);
    if (ty_json_has(step, "or_list") && p.object != NULL && ty_json_has(p.object, p.key) &&
        ty_json_array(p.object, p.key, 0, SIZE_MAX, &list, NULL) == TY_OK)
        return TY_OK; /* another step's to read */
    if (!is_needed && !is_there(&p))
        return TY_OK;
    *is_given = *is_given || is_there(&p);
    status = read_place(r, step, kind, &p, out);
done:
    return status;
}

/* ---- Steps: keys ----------------------------------------------------------------------------- */

/* Of sizes the first key that is there counts, of flags and words the last. */
static ty_status read_member(family_reader *r, const ty_json *step, const ty_json *keys,
                             value_kind kind, family_variable *v)
{
    const bool has_each = (kind == A_FLAG || kind == A_WORD) && ty_json_is_array(keys);
    double needed, value = v->value;
    bool is_given = v->is_given;
    ty_status status;

    TY_CHECK(family_value(r, step, "needed", 0, &needed), status, done);
    for (size_t i = 0; i < (has_each ? ty_json_size(keys) : 1); i++)
        TY_CHECK(read_key(r, step, kind, r->scope->object, has_each ? ty_json_at(keys, i) : keys,
                          needed != 0 && v->value == 0, &is_given, &value),
                 status, done);
    v->value = value;
    v->is_given = is_given;
done:
    return status;
}

static ty_status read_members(family_reader *r, const ty_json *step, const char *member,
                              value_kind kind)
{
    const ty_json *table;
    family_variable *v;
    ty_status status;

    TY_CHECK(ty_json_object(step, member, &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        TY_CHECK(make_variable(r, r->scope, ty_json_key(ty_json_at(table, i)), &v), status, done);
        TY_CHECK(read_member(r, step, ty_json_at(table, i), kind, v), status, done);
    }
done:
    return status;
}

static ty_status run_sizes(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "sizes", A_SIZE);
}

static ty_status run_numbers(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "numbers", A_NUMBER);
}

static ty_status run_flags(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "flags", A_FLAG);
}

static ty_status run_word(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "word", A_WORD);
}

static ty_status run_sides(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "sides", A_SIDE);
}

static ty_status run_counts(family_reader *r, const ty_json *step)
{
    return read_members(r, step, "counts", A_COUNT);
}

/* Whether a text is like each of the patterns. */
static ty_status run_matches(family_reader *r, const ty_json *step)
{
    const ty_json *patterns, *keys;
    const char *text = "", *pattern;
    place p = {0};
    ty_status status;

    TY_CHECK(ty_json_member(step, "keys", &keys, r->error), status, done);
    TY_CHECK(find_keys(r, r->scope->object, keys, false, &p), status, done);
    if (is_there(&p) && (status = text_of(r, &p, &text)) != TY_OK && p.element == NULL)
        goto done;
    TY_CHECK(ty_json_object(step, "matches", &patterns, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(patterns, i), &pattern, r->error), status, done);
        TY_CHECK(family_set(r, ty_json_key(ty_json_at(patterns, i)), is_like(pattern, text)),
                 status, done);
    }
done:
    return status;
}

/* ---- Steps: a number for each block ---------------------------------------------------------- */

static ty_status count_blocks(const family_reader *r, uint64_t *out)
{
    const family_variable *v = find_variable(r->scope, "blocks", strlen("blocks"));

    *out = v != NULL && v->value >= 1 ? (uint64_t)fmin(v->value, 1e18) : 0;
    return *out > MOST_BLOCKS
               ? ty_json_fail(r->scope->object, r->error, "at most %d blocks", MOST_BLOCKS)
               : TY_OK;
}

static ty_status make_list(family_reader *r, const char *name, uint64_t blocks,
                           family_variable **out)
{
    ty_status status = make_variable(r, r->scope, name, out);

    if (status != TY_OK)
        return status;
    (*out)->of_blocks = ty_arena_alloc(r->arena, blocks + 1, sizeof *(*out)->of_blocks);
    if ((*out)->of_blocks == NULL)
        return out_of_memory(r);
    (*out)->block_count = blocks;
    return TY_OK;
}

static ty_status read_list(family_reader *r, const ty_json *step, const char *member,
                           family_variable **v, const ty_json **out, uint64_t *blocks)
{
    const ty_json *keys;
    const char *name;
    place p = {0};
    ty_status status;

    *out = NULL;
    TY_CHECK(ty_json_string(step, member, &name, r->error), status, done);
    TY_CHECK(ty_json_member(step, "keys", &keys, r->error), status, done);
    TY_CHECK(count_blocks(r, blocks), status, done);
    TY_CHECK(make_list(r, name, *blocks, v), status, done);
    TY_CHECK(find_keys(r, r->scope->object, keys, ty_json_has(step, "needed"), &p), status, done);
    if (is_there(&p) || ty_json_has(step, "needed"))
        TY_CHECK(node_of(r, &p, out), status, done);
    if (*out != NULL && ty_json_has(step, "or_number") && !ty_json_is_array(*out)) {
        *out = NULL; /* another step's to read */
        return TY_OK;
    }
    (*v)->is_given = *out != NULL;
done:
    return status;
}

/* One element a block: a size, or "flag", "number" or "word" by "of". "at" is a key in it, which is
 * needed "where" that holds, and read in no other block. */
static ty_status run_list(family_reader *r, const ty_json *step)
{
    static const char *const kinds[] = {"size", "number", "flag", "word"};
    const ty_json *list, *at;
    family_variable *v = NULL;
    uint64_t blocks = 0;
    int kind = 0;
    double applies;
    ty_status status;

    TY_CHECK(read_list(r, step, "list", &v, &list, &blocks), status, done);
    if (ty_json_has(step, "of"))
        TY_CHECK(ty_json_enum(step, "of", kinds, COUNT(kinds), &kind, r->error), status, done);
    ty_json_ignore(step, "words");
    if (list == NULL)
        goto done;
    if (!ty_json_is_array(list) || ty_json_size(list) != blocks) {
        status =
            ty_json_fail(list, r->error, "an array of %llu", (unsigned long long)blocks);
        goto done;
    }
    for (r->block = 0; r->block < blocks && status == TY_OK; r->block++) {
        const ty_json *element = ty_json_at(list, (size_t)r->block);
        bool is_given = false;
        if (!ty_json_has(step, "at")) {
            status = read_place(r, step, (value_kind)kind, &(place){.element = element},
                                &v->of_blocks[r->block]);
            continue;
        }
        TY_CHECK(ty_json_member(step, "at", &at, r->error), status, done);
        TY_CHECK(family_value(r, step, "where", 1, &applies), status, done);
        if (!ty_json_is_object(element))
            status = ty_json_fail(element, r->error, "an object");
        else if (applies != 0)
            status = read_key(r, step, (value_kind)kind, element, at, ty_json_has(step, "where"),
                              &is_given, &v->of_blocks[r->block]);
    }
done:
    r->block = UINT64_MAX;
    return status;
}

/* Blocks by their numbers: 1 for those, 0 for others. */
static ty_status run_indices(family_reader *r, const ty_json *step)
{
    const ty_json *list;
    family_variable *v = NULL;
    uint64_t blocks = 0, block;
    ty_status status;

    TY_CHECK(read_list(r, step, "indices", &v, &list, &blocks), status, done);
    if (list != NULL && (!ty_json_is_array(list) || ty_json_size(list) > blocks))
        status = ty_json_fail(list, r->error, "an array of at most %llu elements",
                              (unsigned long long)blocks);
    for (size_t i = 0; list != NULL && status == TY_OK && i < ty_json_size(list); i++) {
        status = ty_json_as_uint64(ty_json_at(list, i), 0, blocks - 1, &block, r->error);
        if (status == TY_OK)
            v->of_blocks[block] = 1;
    }
done:
    return status;
}

/* A text of one letter a block. */
static ty_status run_letters(family_reader *r, const ty_json *step)
{
    const ty_json *node;
    const char *text = "";
    family_variable *v = NULL;
    uint64_t blocks = 0;
    ty_status status;

    TY_CHECK(read_list(r, step, "letters", &v, &node, &blocks), status, done);
    if (node != NULL)
        TY_CHECK(ty_json_as_string(node, &text, r->error), status, done);
    if (node != NULL && strlen(text) != blocks)
        status = ty_json_fail(node, r->error, "%llu letters", (unsigned long long)blocks);
    for (uint64_t i = 0; node != NULL && status == TY_OK && i < blocks; i++)
        status = find_word(r, step, node, (char[]){text[i], '\0'}, &v->of_blocks[i]);
done:
    ty_json_ignore(step, "words");
    return status;
}

/* Numbers of each block; one that was set before counts as the block's. */
static ty_status run_block(family_reader *r, const ty_json *step)
{
    const ty_json *table;
    uint64_t blocks;
    ty_status status;

    TY_CHECK(ty_json_object(step, "block", &table, r->error), status, done);
    TY_CHECK(count_blocks(r, &blocks), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const ty_json *value = ty_json_at(table, i);
        double *own = ty_arena_alloc(r->arena, blocks + 1, sizeof *own);
        char *name = ty_arena_alloc(r->arena, strlen(ty_json_key(value)) + 7, 1);
        family_variable *v;
        if (own == NULL || name == NULL)
            return out_of_memory(r);
        memcpy(name, "block.", 6);
        memcpy(name + 6, ty_json_key(value), strlen(ty_json_key(value)) + 1);
        for (r->block = 0; r->block < blocks; r->block++)
            TY_CHECK(family_value(r, table, ty_json_key(value), 0, &own[r->block]), status, done);
        r->block = UINT64_MAX;
        TY_CHECK(make_variable(r, r->scope, name, &v), status, done);
        v->of_blocks = own;
        v->block_count = blocks;
    }
done:
    r->block = UINT64_MAX;
    return status;
}

/* ---- Steps: numbers, checks and notes -------------------------------------------------------- */

static ty_status run_set(family_reader *r, const ty_json *step)
{
    const ty_json *table;
    double value;
    ty_status status;

    TY_CHECK(ty_json_object(step, "set", &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *name = ty_json_key(ty_json_at(table, i));
        TY_CHECK(family_value(r, table, name, 0, &value), status, done);
        TY_CHECK(family_set(r, name, value), status, done);
    }
done:
    return status;
}

/* Numbers that are not there yet. */
static ty_status run_default(family_reader *r, const ty_json *step)
{
    const ty_json *table;
    double value;
    ty_status status;

    TY_CHECK(ty_json_object(step, "default", &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *name = ty_json_key(ty_json_at(table, i));
        if (find_variable(r->scope, name, strlen(name)) != NULL)
            continue;
        TY_CHECK(family_value(r, table, name, 0, &value), status, done);
        TY_CHECK(family_set(r, name, value), status, done);
    }
done:
    return status;
}

/* "expected" is of the key "at", or of the whole. */
static ty_status run_require(family_reader *r, const ty_json *step)
{
    ty_text expected = {0};
    const ty_json *node = r->scope->object;
    const char *key;
    double value;
    ty_status status;

    TY_CHECK(family_value(r, step, "require", 0, &value), status, done);
    TY_CHECK(family_text(r, step, "expected", &expected), status, done);
    if (ty_json_has(step, "at")) {
        TY_CHECK(ty_json_string(step, "at", &key, r->error), status, done);
        if (ty_json_has(r->scope->object, key))
            TY_CHECK(ty_json_member(r->scope->object, key, &node, r->error), status, done);
    }
    if (value == 0)
        status = ty_json_fail(node, r->error, "%s", expected.data);
done:
    ty_text_clear(&expected);
    return status;
}

static ty_status run_note(family_reader *r, const ty_json *step)
{
    ty_text note = {0};
    ty_status status = family_text(r, step, "note", &note);

    if (status == TY_OK)
        ty_import_note(r->source, "%s", note.data);
    ty_text_clear(&note);
    return status;
}

static ty_status run_ignore(family_reader *r, const ty_json *step)
{
    const ty_json *list;
    const char *key;
    ty_status status;

    TY_CHECK(ty_json_array(step, "ignore", 1, 1000, &list, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(list); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(list, i), &key, r->error), status, done);
        ty_json_ignore(r->scope->object, key);
    }
done:
    return status;
}

/* ---- Steps: steps in steps ------------------------------------------------------------------- */

ty_status family_run_part(family_reader *reader, const char *name)
{
    const ty_json *steps;
    ty_status status;

    TY_CHECK(ty_json_array(reader->parts, name, 1, 1000, &steps, reader->error), status, done);
    status = family_run(reader, steps);
done:
    return status;
}

static ty_status run_use(family_reader *r, const ty_json *step)
{
    const ty_json *parts;
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_array(step, "use", 1, 100, &parts, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(parts); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(parts, i), &name, r->error), status, done);
        TY_CHECK(family_run_part(r, name), status, done);
    }
done:
    return status;
}

static ty_status enter_scope(family_reader *r, const char *name, family_scope **out)
{
    family_scope *s = find_scope(r->scope, name, strlen(name));

    if (s == NULL) {
        s = ty_arena_alloc(r->arena, 1, sizeof *s);
        if (s == NULL)
            return out_of_memory(r);
        *s = (family_scope){.name = name,
                            .prefix = "",
                            .outer = r->scope,
                            .next = r->scope->inner,
                            .object = r->scope->object};
        r->scope->inner = s;
    }
    *out = s;
    return TY_OK;
}

/* Steps with numbers of their own: {"scope": "vision", "object": "vision_config", ...}. */
static ty_status run_scope(family_reader *r, const ty_json *step)
{
    family_scope *before = r->scope, *s = NULL;
    const char *name, *key;
    const ty_json *steps;
    ty_status status;

    TY_CHECK(ty_json_string(step, "scope", &name, r->error), status, done);
    TY_CHECK(enter_scope(r, name, &s), status, done);
    if (ty_json_has(step, "object")) {
        TY_CHECK(ty_json_string(step, "object", &key, r->error), status, done);
        TY_CHECK(ty_json_object(r->whole, key, &s->object, r->error), status, done);
    }
    if (ty_json_has(step, "prefix"))
        TY_CHECK(ty_json_string(step, "prefix", &s->prefix, r->error), status, done);
    TY_CHECK(ty_json_array(step, "steps", 1, 1000, &steps, r->error), status, done);
    r->scope = s;
    status = family_run(r, steps);
done:
    r->scope = before;
    return status;
}

/* Steps for `block` from "from" on, "repeat" times. */
static ty_status run_repeat(family_reader *r, const ty_json *step)
{
    const ty_json *steps;
    double times, first;
    ty_status status;

    TY_CHECK(family_value(r, step, "repeat", 0, &times), status, done);
    TY_CHECK(family_value(r, step, "from", 0, &first), status, done);
    TY_CHECK(ty_json_array(step, "steps", 1, 1000, &steps, r->error), status, done);
    for (double i = 0; i < times && i < MOST_BLOCKS; i++) {
        r->block = (uint64_t)(first + i);
        TY_CHECK(family_run(r, steps), status, done);
    }
done:
    r->block = UINT64_MAX;
    return status;
}

static const struct {
    const char *key;
    ty_status (*run)(family_reader *r, const ty_json *step);
} kinds[] = {
    {"set", run_set},          {"default", run_default}, {"sizes", run_sizes},
    {"flags", run_flags},      {"numbers", run_numbers}, {"word", run_word},
    {"matches", run_matches},  {"sides", run_sides},     {"counts", run_counts},
    {"list", run_list},        {"indices", run_indices}, {"letters", run_letters},
    {"block", run_block},      {"require", run_require}, {"note", run_note},
    {"ignore", run_ignore},    {"use", run_use},         {"scope", run_scope},
    {"repeat", run_repeat},    {"open", family_open},    {"layer", family_layer},
    {"settle", family_settle}, {"fits", family_fits},
};

static ty_status run_one(family_reader *r, const ty_json *step)
{
    static const char *const optional[] = {"needed", "minimum",   "maximum", "or_list", "or_number",
                                           "words",  "otherwise", "of",      "at",      "where"};
    size_t kind = 0;
    double applies;
    ty_status status;

    while (kind < COUNT(kinds) && !(ty_json_is_object(step) && ty_json_has(step, kinds[kind].key)))
        kind++;
    if (kind == COUNT(kinds))
        return ty_json_fail(step, r->error, "a step: {\"set\": ...}, or another kind");
    TY_CHECK(family_value(r, step, "if", 1, &applies), status, done);
    if (applies == 0)
        goto done;
    TY_CHECK(kinds[kind].run(r, step), status, done);
    for (size_t i = 0; i < COUNT(optional); i++) /* of keys that the configuration lacks */
        ty_json_ignore(step, optional[i]);
    status = ty_json_end(step, r->error);
done:
    return status;
}

ty_status family_run(family_reader *reader, const ty_json *steps)
{
    ty_status status = TY_OK;

    if (++reader->depth > MOST_DEPTH)
        return ty_json_fail(steps, reader->error, "steps in one another at most %d deep",
                            MOST_DEPTH);
    for (size_t i = 0; i < ty_json_size(steps) && status == TY_OK; i++)
        status = run_one(reader, ty_json_at(steps, i));
    reader->depth--;
    return status;
}

ty_status family_start(family_reader *reader, const ty_json *object)
{
    reader->block = UINT64_MAX;
    reader->arena = ty_arena_new();
    reader->top =
        reader->arena != NULL ? ty_arena_alloc(reader->arena, 1, sizeof *reader->top) : NULL;
    if (reader->top == NULL)
        return out_of_memory(reader);
    reader->scope = reader->top;
    *reader->top = (family_scope){.name = "", .prefix = "", .object = object};
    return TY_OK;
}

/* ---- The sizes ------------------------------------------------------------------------------- */

static ty_transformer_block usual_block(const ty_transformer *t, uint64_t block)
{
    const uint64_t interval = t->expert_interval > 0 ? t->expert_interval : 1;
    const bool has_experts = t->experts > 0 && block >= t->dense_blocks && block % interval == 0;

    return (ty_transformer_block){.window = t->window,
                                  .feed = has_experts ? TY_FEED_EXPERTS : TY_FEED_MLP};
}

ty_status family_transformer(family_reader *reader, ty_transformer *out)
{
    const family_variable *of_blocks[COUNT(block_fields)];
    const family_scope *s = reader->scope;
    ty_transformer_block *blocks;
    bool has_list = false;
    uint64_t count;
    ty_status status;

    *out = (ty_transformer){0};
    for (size_t i = 0; i < COUNT(fields); i++) {
        const family_variable *v = find_variable(s, fields[i].name, strlen(fields[i].name));
        if (v != NULL)
            put_field(out, &fields[i], v->value);
    }
    for (size_t i = 0; i < COUNT(block_fields); i++) {
        char name[48];
        snprintf(name, sizeof name, "block.%s", block_fields[i].name);
        of_blocks[i] = find_variable(s, name, strlen(name));
        has_list = has_list || of_blocks[i] != NULL;
    }
    if (!has_list)
        return TY_OK;
    TY_CHECK(count_blocks(reader, &count), status, done);
    blocks = ty_arena_alloc(reader->arena, count + 1, sizeof *blocks);
    if (blocks == NULL)
        return out_of_memory(reader);
    for (uint64_t b = 0; b < count; b++) {
        blocks[b] = usual_block(out, b);
        for (size_t i = 0; i < COUNT(block_fields); i++)
            if (of_blocks[i] != NULL && b < of_blocks[i]->block_count)
                put_field(&blocks[b], &block_fields[i], of_blocks[i]->of_blocks[b]);
    }
    out->block_list = blocks;
done:
    return status;
}
