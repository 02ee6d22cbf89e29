/* Steps that read a configuration: names and their numbers, keys, checks and notes. */
#include "steps.h"
#include "expression.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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

static ty_status out_of_memory(const steps_reader *r)
{
    return ty_fail(r->error, TY_ENOMEM, "%s: out of memory", r->source->path);
}

static bool is_called(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

static steps_variable *find_variable(const steps_scope *s, const char *name, size_t length)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_called(s->variables[i].name, name, length))
            return &s->variables[i];
    return NULL;
}

/* `name` lives as long as the reader. */
static ty_status make_variable(steps_reader *r, steps_scope *s, const char *name,
                               steps_variable **out)
{
    *out = find_variable(s, name, strlen(name));
    if (*out != NULL)
        return TY_OK;
    if (s->count == s->room) {
        const size_t room = s->room == 0 ? 64 : 2 * s->room;
        steps_variable *grown = ty_arena_alloc(r->arena, room, sizeof *grown);
        if (grown == NULL)
            return out_of_memory(r);
        if (s->count > 0)
            memcpy(grown, s->variables, s->count * sizeof *grown);
        s->variables = grown;
        s->room = room;
    }
    *out = &s->variables[s->count++];
    **out = (steps_variable){.name = name};
    return TY_OK;
}

ty_status steps_set(steps_reader *reader, const char *name, double value)
{
    steps_variable *v;
    ty_status status = make_variable(reader, reader->scope, name, &v);

    if (status == TY_OK)
        v->value = value;
    return status;
}

ty_status steps_set_size(steps_reader *reader, const char *name, uint64_t value)
{
    return steps_set(reader, name, (double)value);
}

static steps_scope *find_scope(const steps_scope *s, const char *name, size_t length)
{
    if (is_called("outer", name, length))
        return s->outer;
    for (steps_scope *inner = s->inner; inner != NULL; inner = inner->next)
        if (is_called(inner->name, name, length))
            return inner;
    return NULL;
}

/* A number of the current block takes precedence over one of the whole model. */
static bool find_number(const steps_reader *r, const steps_scope *s, const char *name,
                        size_t length, double *out)
{
    const steps_variable *v = NULL;
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
    const steps_reader *r = context;
    const steps_scope *s = r->scope;
    size_t length = name_length(at);
    const steps_variable *v;

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

static bool evaluate(steps_reader *r, const char *text, size_t length, double *out)
{
    ty_expression e = {.at = text, .name = read_name, .context = r, .deepest = DEEPEST_EXPRESSION};

    *out = ty_expression_read(&e);
    return !e.is_wrong && e.at == text + length;
}

ty_status steps_number(steps_reader *reader, const ty_json *value, double *out)
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

ty_status steps_value(steps_reader *reader, const ty_json *step, const char *key, double fallback,
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
    status = steps_number(reader, value, out);
done:
    return status;
}

ty_status steps_text(steps_reader *reader, const ty_json *step, const char *key, ty_text *out)
{
    const steps_variable *v;
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
        v = find_variable(reader->scope, text + 1, inside > 0 ? inside - 1 : 0);
        if (v != NULL && v->text != NULL) {
            ty_text_addf(out, "%.60s", v->text);
        } else if (evaluate(reader, text + 1, inside > 0 ? inside - 1 : 0, &number)) {
            ty_text_addf(out, "%.0f", number);
        } else {
            status = ty_json_fail(step, reader->error, "a text with numbers that are known");
            goto done;
        }
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
    const ty_json *element;    /* of a list, in place of object and key */
    const training_pair *pair; /* likewise */
} place;

/* "attn_config.kv_n_heads"; "/name" is of the whole file, "architectures.0" an element. */
static ty_status find_place(const steps_reader *r, const ty_json *object, const char *path,
                            bool is_needed, place *out)
{
    ty_status status = TY_OK;
    const ty_json *list;

    if (r->pairs != NULL) { /* a path, or the last part of one; '/' begins a whole path */
        *out = (place){.key = path + (*path == '/')};
        out->pair = *path == '/' || strchr(path, '.') != NULL
                        ? ty_training_pair_of(r->pairs, out->key)
                        : ty_training_pair_called(r->pairs, path);
        return TY_OK;
    }
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
    return p->element != NULL || p->pair != NULL ||
           (p->object != NULL && ty_json_has(p->object, p->key));
}

/* The first of the keys that is there, else the first of all; the others count as read. */
static ty_status find_keys(const steps_reader *r, const ty_json *object, const ty_json *keys,
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
static bool is_like(const steps_reader *r, const char *pattern, const char *text)
{
    int (*const compare)(const char *, const char *, size_t) =
        r->pairs != NULL ? strncasecmp : strncmp;
    const bool is_open = pattern[0] == '*' && pattern[1] != '\0'; /* alone it is a letter */
    const size_t length = strlen(pattern), all = strlen(text);
    const bool is_end_open = length > 1 && pattern[length - 1] == '*';
    const size_t middle = length - is_open - is_end_open;

    for (size_t at = 0; at + middle <= all && (at == 0 || is_open); at++)
        if (compare(text + at, pattern + is_open, middle) == 0 &&
            (is_end_open || at + middle == all))
            return true;
    return false;
}

/* A shell variable that is set outside the script has no literal value. */
static ty_status check_literal(const steps_reader *r, const ty_json *step, const place *p)
{
    return p->pair != NULL && ty_json_has(step, "literal") && strchr(p->pair->value, '$') != NULL
               ? steps_fail_pair(r, p->pair, "a value")
               : TY_OK;
}

static ty_status text_of(const steps_reader *r, const place *p, const char **out)
{
    if (p->pair != NULL) {
        *out = p->pair->value;
        return TY_OK;
    }
    return p->element != NULL ? ty_json_as_string(p->element, out, r->error)
                              : ty_json_string(p->object, p->key, out, r->error);
}

static ty_status node_of(const steps_reader *r, const place *p, const ty_json **out)
{
    *out = p->element;
    return p->element != NULL ? TY_OK : ty_json_member(p->object, p->key, out, r->error);
}

/* The number that "words" has for a text; null refuses it. "otherwise" is the number of other
 * texts, which a step without it refuses. */
static ty_status find_word(steps_reader *r, const ty_json *step, const place *p, const char *text,
                           double *out)
{
    const ty_json *words, *node;
    ty_text expected = {0};
    bool is_refused = false;
    ty_status status;

    TY_CHECK(ty_json_object(step, "words", &words, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(words); i++) {
        const char *word = ty_json_key(ty_json_at(words, i));
        const bool is_accepted = ty_json_has(words, word); /* others are null */
        if (is_accepted && !is_refused && is_like(r, word, text)) {
            status = steps_value(r, words, word, 0, out);
            goto done;
        }
        is_refused = is_refused || is_like(r, word, text);
        if (is_accepted)
            ty_text_addf(&expected, "%s%s", expected.length > 0 ? ", " : "", word);
    }
    if (ty_json_has(step, "otherwise") && !is_refused)
        status = steps_value(r, step, "otherwise", 0, out);
    else if (p->pair != NULL)
        status = steps_fail_pair(r, p->pair, expected.data != NULL ? expected.data : "no word");
    else if ((status = node_of(r, p, &node)) == TY_OK)
        status = ty_json_fail(node, r->error, "one of %s",
                              expected.data != NULL ? expected.data : "no words");
done:
    ty_text_clear(&expected);
    return status;
}

typedef enum value_kind { A_SIZE, A_NUMBER, A_FLAG, A_WORD, A_SIDE, A_COUNT, A_DEGREE } value_kind;

/* Two sides that are equal. */
static ty_status read_sides(const steps_reader *r, const ty_json *list, double *out)
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

static ty_status read_size(steps_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;
    uint64_t size;
    ty_status status;

    TY_CHECK(steps_value(r, step, "minimum", 1, &minimum), status, done);
    TY_CHECK(steps_value(r, step, "maximum", INT32_MAX, &maximum), status, done);
    status = p->element != NULL ? ty_json_as_uint64(p->element, (uint64_t)minimum,
                                                    (uint64_t)maximum, &size, r->error)
                                : ty_json_uint64(p->object, p->key, (uint64_t)minimum,
                                                 (uint64_t)maximum, &size, r->error);
    if (status == TY_OK)
        *out = (double)size;
done:
    return status;
}

static ty_status read_number(steps_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;
    ty_status status;

    TY_CHECK(steps_value(r, step, "minimum", 0, &minimum), status, done);
    TY_CHECK(steps_value(r, step, "maximum", INT32_MAX, &maximum), status, done);
    status = ty_json_number(p->object, p->key, minimum, maximum, out, r->error);
done:
    return status;
}

/* ---- Settings of training programs: texts ---------------------------------------------------- */

ty_status steps_fail_pair(const steps_reader *reader, const training_pair *pair,
                          const char *expected)
{
    const bool is_variable = strchr(pair->value, '$') != NULL;
    const char *quote = pair->lacks_value ? "" : reader->is_arguments ? "'" : "\"";
    char name[96], line[16] = "";

    snprintf(name, sizeof name, "%.80s", pair->key);
    for (char *at = name; reader->is_arguments && *at != '\0'; at++)
        *at = (char)(*at == '_' ? '-' : *at);
    if (pair->line > 0)
        snprintf(line, sizeof line, ":%u", pair->line);
    return ty_fail(reader->error, TY_EPARSE, "%.160s%s: %s%s: found %s%.60s%s, expected %s%s",
                   reader->source->path, line, reader->is_arguments ? "--" : "", name, quote,
                   pair->lacks_value ? "no value" : pair->value, quote, expected,
                   reader->is_arguments && is_variable
                       ? "; the variable has no one literal value here: write the value"
                       : "");
}

/* A decimal number, whatever the locale. */
static ty_status parse_number(const char *text, double minimum, double maximum, double *out)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "number", &document, NULL);

    if (status == TY_OK)
        status = ty_json_as_number(ty_json_root(document), minimum, maximum, out, NULL);
    ty_json_free(document);
    return status;
}

/* The lists in a list, or how often "of" is in the text. */
static ty_status count_in(const steps_reader *r, const ty_json *step, const char *text, double *out)
{
    const char *mark = "[";
    int depth = 0;
    ty_status status = TY_OK;

    if (ty_json_has(step, "of"))
        TY_CHECK(ty_json_string(step, "of", &mark, r->error), status, done);
    for (*out = 0; *text != '\0'; text++) {
        depth += *text == '[';
        *out += *text == mark[0] && (*text != '[' || depth == 2);
        depth -= *text == ']' && depth > 0;
    }
done:
    return status;
}

/* -1 and "auto" leave a degree open. */
static ty_status read_pair(steps_reader *r, const ty_json *step, value_kind kind,
                           const training_pair *p, double *out)
{
    const bool is_degree = kind == A_DEGREE, is_number = kind == A_NUMBER;
    char expected[80];
    double minimum, maximum, number;
    uint64_t size = 0;
    ty_status status;

    if (kind == A_FLAG) {
        *out = strcasecmp(p->value, "true") == 0;
        return TY_OK;
    }
    if (kind == A_WORD) {
        TY_CHECK(check_literal(r, step, &(place){.pair = p}), status, done);
        return find_word(r, step, &(place){.pair = p}, p->value, out);
    }
    if (kind == A_COUNT)
        return count_in(r, step, p->value, out);
    if (is_degree && (strcmp(p->value, "-1") == 0 || strcmp(p->value, "auto") == 0))
        return TY_OK;
    TY_CHECK(steps_value(r, step, "minimum", is_degree || is_number ? 0 : 1, &minimum), status,
             done);
    TY_CHECK(steps_value(r, step, "maximum",
                         is_degree   ? 1 << 30
                         : is_number ? 1e6
                                     : INT32_MAX,
                         &maximum),
             status, done);
    status = is_number ? parse_number(p->value, minimum, maximum, &number)
                       : ty_parse_uint(p->value, (uint64_t)minimum, (uint64_t)maximum, &size, NULL);
    if (status == TY_ENOMEM)
        return out_of_memory(r);
    snprintf(expected, sizeof expected, "a %snumber from %.10g to %.10g", is_number ? "" : "whole ",
             minimum, maximum);
    if (status != TY_OK)
        return steps_fail_pair(r, p, is_degree ? "a whole number" : expected);
    *out = is_number ? number : (double)size;
done:
    return status;
}

static ty_status fail_missing(const steps_reader *r, const char *key)
{
    char name[96];

    snprintf(name, sizeof name, "%.80s", key);
    for (char *at = name; r->is_arguments && *at != '\0'; at++)
        *at = (char)(*at == '_' ? '-' : *at);
    return ty_fail(r->error, TY_EPARSE, "%.200s: found no %s%s, expected it with a number",
                   r->source->path, r->is_arguments ? "--" : "", name);
}

/* Reads a key that is there or needed. */
static ty_status read_place(steps_reader *r, const ty_json *step, value_kind kind, const place *p,
                            double *out)
{
    const bool has_words = ty_json_has(step, "words");
    const ty_json *node = NULL;
    const char *text;
    bool is_on;
    ty_status status = TY_OK;

    if (p->pair != NULL)
        return read_pair(r, step, kind, p->pair, out);
    if (r->pairs != NULL)
        return fail_missing(r, p->key);
    if (kind == A_WORD && !is_there(p))
        return text_of(r, p, &text);
    if (is_there(p))
        TY_CHECK(node_of(r, p, &node), status, done);
    if (kind == A_WORD || (has_words && node != NULL && ty_json_is_string(node))) {
        TY_CHECK(text_of(r, p, &text), status, done);
        status = find_word(r, step, p, text, out);
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
static ty_status read_key(steps_reader *r, const ty_json *step, value_kind kind,
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
static ty_status read_member(steps_reader *r, const ty_json *step, const ty_json *keys,
                             value_kind kind, steps_variable *v)
{
    const bool has_each = (kind == A_FLAG || kind == A_WORD) && ty_json_is_array(keys);
    double needed, value = v->value;
    bool is_given = v->is_given;
    ty_status status;

    TY_CHECK(steps_value(r, step, "needed", 0, &needed), status, done);
    for (size_t i = 0; i < (has_each ? ty_json_size(keys) : 1); i++)
        TY_CHECK(read_key(r, step, kind, r->scope->object, has_each ? ty_json_at(keys, i) : keys,
                          needed != 0 && v->value == 0, &is_given, &value),
                 status, done);
    v->value = value;
    v->is_given = is_given;
done:
    return status;
}

static ty_status read_members(steps_reader *r, const ty_json *step, const char *member,
                              value_kind kind)
{
    const ty_json *table;
    steps_variable *v;
    ty_status status;

    TY_CHECK(ty_json_object(step, member, &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        TY_CHECK(make_variable(r, r->scope, ty_json_key(ty_json_at(table, i)), &v), status, done);
        TY_CHECK(read_member(r, step, ty_json_at(table, i), kind, v), status, done);
    }
done:
    return status;
}

static ty_status run_sizes(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "sizes", A_SIZE);
}

static ty_status run_numbers(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "numbers", A_NUMBER);
}

static ty_status run_flags(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "flags", A_FLAG);
}

static ty_status run_word(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "word", A_WORD);
}

static ty_status run_degrees(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "degrees", A_DEGREE);
}

static ty_status run_sides(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "sides", A_SIDE);
}

static ty_status run_counts(steps_reader *r, const ty_json *step)
{
    return read_members(r, step, "counts", A_COUNT);
}

/* Whether a text is like each of the patterns. */
static ty_status run_matches(steps_reader *r, const ty_json *step)
{
    const ty_json *patterns, *keys;
    const char *text = "", *pattern;
    place p = {0};
    ty_status status;

    TY_CHECK(ty_json_member(step, "keys", &keys, r->error), status, done);
    TY_CHECK(find_keys(r, r->scope->object, keys, false, &p), status, done);
    TY_CHECK(check_literal(r, step, &p), status, done);
    if (is_there(&p) && (status = text_of(r, &p, &text)) != TY_OK && p.element == NULL)
        goto done;
    TY_CHECK(ty_json_object(step, "matches", &patterns, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(patterns, i), &pattern, r->error), status, done);
        TY_CHECK(steps_set(r, ty_json_key(ty_json_at(patterns, i)), is_like(r, pattern, text)),
                 status, done);
    }
done:
    return status;
}

/* The text for a pattern that `text` is like; null: `text` itself. */
static ty_status choose_text(const steps_reader *r, const ty_json *patterns, const char *text,
                             const char **out)
{
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        const char *pattern = ty_json_key(ty_json_at(patterns, i));
        if (!is_like(r, pattern, text))
            continue;
        *out = NULL;
        return ty_json_has(patterns, pattern) ? ty_json_string(patterns, pattern, out, r->error)
                                              : TY_OK;
    }
    return TY_OK;
}

/* {"text": {"precision": "bf16"}}, or by the text of "keys": {"precision": {"no": "fp32"}}; true:
 * that text itself. null and {"...": null}: none. */
static ty_status run_text(steps_reader *r, const ty_json *step)
{
    const ty_json *table, *keys;
    const char *found = NULL;
    steps_variable *v;
    place p = {0};
    bool is_itself;
    ty_status status;

    TY_CHECK(ty_json_object(step, "text", &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++)
        TY_CHECK(make_variable(r, r->scope, ty_json_key(ty_json_at(table, i)), &v), status, done);
    if (ty_json_has(step, "keys")) {
        TY_CHECK(ty_json_member(step, "keys", &keys, r->error), status, done);
        TY_CHECK(find_keys(r, r->scope->object, keys, false, &p), status, done);
        if (!is_there(&p))
            return TY_OK;
        TY_CHECK(check_literal(r, step, &p), status, done);
        TY_CHECK(text_of(r, &p, &found), status, done);
    }
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const ty_json *value = ty_json_at(table, i);
        const char *name = ty_json_key(value);
        TY_CHECK(make_variable(r, r->scope, name, &v), status, done);
        if (!ty_json_has(table, name))
            v->text = NULL;
        else if (ty_json_is_object(value) && found != NULL)
            TY_CHECK(choose_text(r, value, found, &v->text), status, done);
        else if (ty_json_bool(table, name, &is_itself, NULL) == TY_OK)
            v->text = found;
        else
            TY_CHECK(ty_json_as_string(value, &v->text, r->error), status, done);
        v->value = v->text != NULL;
        v->is_given = v->is_given || found != NULL;
    }
done:
    return status;
}

/* ---- Steps: a number for each block ---------------------------------------------------------- */

static ty_status count_blocks(const steps_reader *r, uint64_t *out)
{
    const steps_variable *v = find_variable(r->scope, "blocks", strlen("blocks"));

    *out = v != NULL && v->value >= 1 ? (uint64_t)fmin(v->value, 1e18) : 0;
    return *out > MOST_BLOCKS
               ? ty_json_fail(r->scope->object, r->error, "at most %d blocks", MOST_BLOCKS)
               : TY_OK;
}

static ty_status make_list(steps_reader *r, const char *name, uint64_t blocks, steps_variable **out)
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

static ty_status read_list(steps_reader *r, const ty_json *step, const char *member,
                           steps_variable **v, const ty_json **out, uint64_t *blocks)
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
static ty_status run_list(steps_reader *r, const ty_json *step)
{
    static const char *const kinds[] = {"size", "number", "flag", "word"};
    const ty_json *list, *at;
    steps_variable *v = NULL;
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
        status = ty_json_fail(list, r->error, "an array of %llu", (unsigned long long)blocks);
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
        TY_CHECK(steps_value(r, step, "where", 1, &applies), status, done);
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
static ty_status run_indices(steps_reader *r, const ty_json *step)
{
    const ty_json *list;
    steps_variable *v = NULL;
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
static ty_status run_letters(steps_reader *r, const ty_json *step)
{
    const ty_json *node;
    const char *text = "";
    steps_variable *v = NULL;
    uint64_t blocks = 0;
    ty_status status;

    TY_CHECK(read_list(r, step, "letters", &v, &node, &blocks), status, done);
    if (node != NULL)
        TY_CHECK(ty_json_as_string(node, &text, r->error), status, done);
    if (node != NULL && strlen(text) != blocks)
        status = ty_json_fail(node, r->error, "%llu letters", (unsigned long long)blocks);
    for (uint64_t i = 0; node != NULL && status == TY_OK && i < blocks; i++)
        status = find_word(r, step, &(place){.element = node}, (char[]){text[i], '\0'},
                           &v->of_blocks[i]);
done:
    ty_json_ignore(step, "words");
    return status;
}

/* Numbers of each block; one that was set before counts as the block's. */
static ty_status run_block(steps_reader *r, const ty_json *step)
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
        steps_variable *v;
        if (own == NULL || name == NULL)
            return out_of_memory(r);
        memcpy(name, "block.", 6);
        memcpy(name + 6, ty_json_key(value), strlen(ty_json_key(value)) + 1);
        for (r->block = 0; r->block < blocks; r->block++)
            TY_CHECK(steps_value(r, table, ty_json_key(value), 0, &own[r->block]), status, done);
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

static ty_status run_set(steps_reader *r, const ty_json *step)
{
    const ty_json *table;
    double value;
    ty_status status;

    TY_CHECK(ty_json_object(step, "set", &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *name = ty_json_key(ty_json_at(table, i));
        TY_CHECK(steps_value(r, table, name, 0, &value), status, done);
        TY_CHECK(steps_set(r, name, value), status, done);
    }
done:
    return status;
}

/* Numbers that are not there yet. */
static ty_status run_default(steps_reader *r, const ty_json *step)
{
    const ty_json *table;
    double value;
    ty_status status;

    TY_CHECK(ty_json_object(step, "default", &table, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const char *name = ty_json_key(ty_json_at(table, i));
        if (find_variable(r->scope, name, strlen(name)) != NULL)
            continue;
        TY_CHECK(steps_value(r, table, name, 0, &value), status, done);
        TY_CHECK(steps_set(r, name, value), status, done);
    }
done:
    return status;
}

/* "expected" is of the key "at", or of the whole. */
static ty_status run_require(steps_reader *r, const ty_json *step)
{
    ty_text expected = {0}, found = {0};
    const ty_json *node = r->scope->object;
    const char *key;
    double value;
    ty_status status;

    TY_CHECK(steps_value(r, step, "require", 0, &value), status, done);
    TY_CHECK(steps_text(r, step, "expected", &expected), status, done);
    if (ty_json_has(step, "found"))
        TY_CHECK(steps_text(r, step, "found", &found), status, done);
    ty_json_ignore(step, "at");
    if (value != 0)
        goto done;
    if (r->pairs != NULL) {
        place p = {0};
        if (ty_json_has(step, "at")) {
            TY_CHECK(ty_json_string(step, "at", &key, r->error), status, done);
            TY_CHECK(find_place(r, NULL, key, false, &p), status, done);
        }
        status =
            p.pair != NULL
                ? steps_fail_pair(r, p.pair, expected.data)
                : ty_fail(r->error, TY_EPARSE, "%.160s: found %s, expected %s", r->source->path,
                          found.data != NULL ? found.data : "settings", expected.data);
        goto done;
    }
    if (ty_json_has(step, "at")) {
        TY_CHECK(ty_json_string(step, "at", &key, r->error), status, done);
        if (ty_json_has(r->scope->object, key))
            TY_CHECK(ty_json_member(r->scope->object, key, &node, r->error), status, done);
    }
    status = ty_json_fail(node, r->error, "%s", expected.data);
done:
    ty_text_clear(&expected);
    ty_text_clear(&found);
    return status;
}

static ty_status run_note(steps_reader *r, const ty_json *step)
{
    ty_text note = {0};
    ty_status status = steps_text(r, step, "note", &note);

    if (status == TY_OK && r->report != NULL)
        status = ty_import_report_add(r->report, note.data, r->error);
    else if (status == TY_OK)
        ty_import_note(r->source, "%s", note.data);
    ty_text_clear(&note);
    return status;
}

static ty_status run_switch(steps_reader *r, const ty_json *step)
{
    const char *word;
    ty_status status = ty_json_string(step, "switch", &word, r->error);

    if (status != TY_OK || r->switches == NULL)
        return status;
    ty_text_addf(r->switches, "%s%s", r->switches->length > 0 ? " " : "", word);
    return ty_text_check(r->switches, r->error);
}

static ty_status run_ignore(steps_reader *r, const ty_json *step)
{
    const ty_json *list;
    const char *key;
    ty_status status;

    TY_CHECK(ty_json_array(step, "ignore", 1, 1000, &list, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(list); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(list, i), &key, r->error), status, done);
        if (r->pairs == NULL)
            ty_json_ignore(r->scope->object, key);
        for (uint32_t p = 0; r->pairs != NULL && p < r->pairs->count; p++)
            if (is_like(r, key, r->pairs->pairs[p].key))
                r->pairs->pairs[p].is_read = true;
    }
done:
    return status;
}

/* ---- Steps: steps in steps ------------------------------------------------------------------- */

ty_status steps_run_part(steps_reader *reader, const char *name)
{
    const ty_json *steps;
    ty_status status;

    TY_CHECK(ty_json_array(reader->parts, name, 1, 1000, &steps, reader->error), status, done);
    status = steps_run(reader, steps);
done:
    return status;
}

static ty_status run_use(steps_reader *r, const ty_json *step)
{
    const ty_json *parts;
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_array(step, "use", 1, 100, &parts, r->error), status, done);
    for (size_t i = 0; i < ty_json_size(parts); i++) {
        TY_CHECK(ty_json_as_string(ty_json_at(parts, i), &name, r->error), status, done);
        TY_CHECK(steps_run_part(r, name), status, done);
    }
done:
    return status;
}

static ty_status enter_scope(steps_reader *r, const char *name, steps_scope **out)
{
    steps_scope *s = find_scope(r->scope, name, strlen(name));

    if (s == NULL) {
        s = ty_arena_alloc(r->arena, 1, sizeof *s);
        if (s == NULL)
            return out_of_memory(r);
        *s = (steps_scope){.name = name,
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
static ty_status run_scope(steps_reader *r, const ty_json *step)
{
    steps_scope *before = r->scope, *s = NULL;
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
    status = steps_run(r, steps);
done:
    r->scope = before;
    return status;
}

/* Steps for `block` from "from" on, "repeat" times. */
static ty_status run_repeat(steps_reader *r, const ty_json *step)
{
    const ty_json *steps;
    double times, first;
    ty_status status;

    TY_CHECK(steps_value(r, step, "repeat", 0, &times), status, done);
    TY_CHECK(steps_value(r, step, "from", 0, &first), status, done);
    TY_CHECK(ty_json_array(step, "steps", 1, 1000, &steps, r->error), status, done);
    for (double i = 0; i < times && i < MOST_BLOCKS; i++) {
        r->block = (uint64_t)(first + i);
        TY_CHECK(steps_run(r, steps), status, done);
    }
done:
    r->block = UINT64_MAX;
    return status;
}

static const struct {
    const char *key;
    ty_status (*run)(steps_reader *r, const ty_json *step);
} kinds[] = {
    {"set", run_set},         {"default", run_default}, {"sizes", run_sizes},
    {"flags", run_flags},     {"numbers", run_numbers}, {"word", run_word},
    {"matches", run_matches}, {"sides", run_sides},     {"counts", run_counts},
    {"switch", run_switch},   {"degrees", run_degrees}, {"text", run_text},
    {"list", run_list},       {"indices", run_indices}, {"letters", run_letters},
    {"block", run_block},     {"require", run_require}, {"note", run_note},
    {"ignore", run_ignore},   {"use", run_use},         {"scope", run_scope},
    {"repeat", run_repeat},   {"open", steps_open},     {"layer", steps_layer},
    {"settle", steps_settle}, {"fits", steps_fits},
};

static ty_status run_one(steps_reader *r, const ty_json *step)
{
    static const char *const optional[] = {
        "needed", "minimum", "maximum", "or_list", "or_number", "words",   "otherwise",
        "of",     "at",      "where",   "text",    "found",     "literal",
    };
    size_t kind = 0;
    double applies;
    ty_status status;

    while (kind < COUNT(kinds) && !(ty_json_is_object(step) && ty_json_has(step, kinds[kind].key)))
        kind++;
    if (kind == COUNT(kinds))
        return ty_json_fail(step, r->error, "a step: {\"set\": ...}, or another kind");
    TY_CHECK(steps_value(r, step, "if", 1, &applies), status, done);
    if (applies == 0)
        goto done;
    TY_CHECK(kinds[kind].run(r, step), status, done);
    for (size_t i = 0; i < COUNT(optional); i++) /* of keys that the configuration lacks */
        ty_json_ignore(step, optional[i]);
    status = ty_json_end(step, r->error);
done:
    return status;
}

ty_status steps_run(steps_reader *reader, const ty_json *steps)
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

ty_status steps_load(const char *folder, const char *name, ty_json_document **out, ty_error *error)
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

ty_status steps_start(steps_reader *reader, const ty_json *object)
{
    reader->block = UINT64_MAX;
    reader->arena = ty_arena_new();
    reader->top =
        reader->arena != NULL ? ty_arena_alloc(reader->arena, 1, sizeof *reader->top) : NULL;
    if (reader->top == NULL)
        return out_of_memory(reader);
    reader->scope = reader->top;
    *reader->top = (steps_scope){.name = "", .prefix = "", .object = object};
    return TY_OK;
}

double steps_number_of(const steps_reader *reader, const char *name)
{
    const steps_variable *v = find_variable(reader->scope, name, strlen(name));
    return v != NULL ? v->value : 0;
}

const char *steps_text_of(const steps_reader *reader, const char *name)
{
    const steps_variable *v = find_variable(reader->scope, name, strlen(name));
    return v != NULL ? v->text : NULL;
}

void steps_end(steps_reader *reader)
{
    ty_builder_free(reader->builder);
    ty_arena_free(reader->arena);
    reader->builder = NULL;
    reader->arena = NULL;
}

/* ---- The sizes ------------------------------------------------------------------------------- */

static ty_transformer_block usual_block(const ty_transformer *t, uint64_t block)
{
    const uint64_t interval = t->expert_interval > 0 ? t->expert_interval : 1;
    const bool has_experts = t->experts > 0 && block >= t->dense_blocks && block % interval == 0;

    return (ty_transformer_block){.window = t->window,
                                  .feed = has_experts ? TY_FEED_EXPERTS : TY_FEED_MLP};
}

ty_status steps_transformer(steps_reader *reader, ty_transformer *out)
{
    const steps_variable *of_blocks[COUNT(block_fields)];
    const steps_scope *s = reader->scope;
    ty_transformer_block *blocks;
    bool has_list = false;
    uint64_t count;
    ty_status status;

    *out = (ty_transformer){0};
    for (size_t i = 0; i < COUNT(fields); i++) {
        const steps_variable *v = find_variable(s, fields[i].name, strlen(fields[i].name));
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
