/* Megatron-LM: a file of arguments for pretrain_gpt.py, or the shell script around them. Options
 * may be written `--num-layers 32` or `--num-layers=32`, over several lines, in quotes, in an
 * array, with comments between, or as YAML keys `--num-layers: 32`. A shell variable stands for the
 * value it is given in the file, or for the default behind it, $((...)) for what it comes to; what
 * a command makes of it is not followed, nor is one that is given different values. Meaning and
 * defaults of options: NVIDIA/Megatron-LM, megatron/training/arguments.py. */
#include "import_language.h"
#include "training_pairs.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- Words ----------------------------------------------------------------------------------- */

typedef struct word {
    const char *text;
    uint32_t line;
} word;

typedef struct scanner {
    ty_import_source *source;
    ty_arena *arena; /* of the words' texts */
    const char *at;
    uint32_t line;
    char list_quote; /* the one around a list of options that is being read, or 0 */
    word *words;
    size_t count, capacity;
} scanner;

static ty_status out_of_memory(const ty_import_source *source)
{
    return ty_fail(source->error, TY_ENOMEM, "%s: out of memory", source->path);
}

static bool is_continuation(const char *at)
{
    return at[0] == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n'));
}

static bool is_separator(char c)
{
    return isspace((unsigned char)c) || c == '(' || c == ')' || c == ';' || c == ',';
}

static void skip_one(scanner *s)
{
    s->line += *s->at == '\n';
    s->at++;
}

static void skip_blank(scanner *s)
{
    for (;;) {
        if (is_continuation(s->at))
            s->at++;
        else if (*s->at == '#')
            while (*s->at != '\0' && *s->at != '\n')
                s->at++;
        else if (*s->at == '\0' || (!is_separator(*s->at) && *s->at != s->list_quote))
            return;
        else {
            if (*s->at == s->list_quote)
                s->list_quote = '\0';
            skip_one(s);
        }
    }
}

/* Whether what a quote opens is a list of options: GPT_ARGS="--num-layers 24 ...", or
 * "$GPT_ARGS --bf16". One quoted word that looks like an option is taken for a list of one. */
static bool opens_list(const char *quote)
{
    const char *at = quote + 1;
    for (;;) {
        while (isspace((unsigned char)*at) || is_continuation(at))
            at++;
        if (*at != '$')
            return at[0] == '-' && at[1] == '-';
        while (*at != '\0' && *at != *quote && !isspace((unsigned char)*at))
            at++;
    }
}

static ty_status add_word(scanner *s, const ty_text *text, uint32_t line)
{
    const char *copy = ty_arena_strdup(s->arena, text->data != NULL ? text->data : "");

    if (copy == NULL || text->failed != TY_OK)
        return out_of_memory(s->source);
    if (s->count == s->capacity) {
        size_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
        word *grown = ty_resize(s->words, capacity, sizeof *grown);
        if (grown == NULL)
            return out_of_memory(s->source);
        s->words = grown;
        s->capacity = capacity;
    }
    s->words[s->count++] = (word){copy, line};
    return TY_OK;
}

/* A quoted part of a word, without its quotes. */
static void read_quoted(scanner *s, ty_text *text)
{
    char quote = *s->at++;

    while (*s->at != '\0' && *s->at != quote) {
        if (!is_continuation(s->at))
            ty_text_append(text, s->at, 1);
        skip_one(s);
    }
    if (*s->at == quote)
        s->at++;
}

#define DEEPEST_ARITHMETIC 100 /* parentheses in one another */

/* The end of the "$((...))" at `at`, NULL: it is none, or not of one line, or too deep. */
static const char *arithmetic_end(const char *at)
{
    int depth = 0;

    if (strncmp(at, "$((", 3) != 0)
        return NULL;
    for (at++; *at != '\0' && *at != '\n'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth > DEEPEST_ARITHMETIC)
            return NULL;
        if (depth == 0)
            return at[-1] == ')' ? at + 1 : NULL;
    }
    return NULL;
}

static ty_status read_word(scanner *s)
{
    ty_text text = {0};
    uint32_t line = s->line;
    ty_status status;

    while (*s->at != '\0' && !is_separator(*s->at) && *s->at != s->list_quote &&
           !is_continuation(s->at)) {
        const char *end = arithmetic_end(s->at);
        if (end != NULL) {
            ty_text_append(&text, s->at, (size_t)(end - s->at));
            s->at = end;
        } else if (*s->at != '"' && *s->at != '\'') {
            ty_text_append(&text, s->at++, 1);
        } else if (s->list_quote == '\0' && opens_list(s->at)) {
            s->list_quote = *s->at++;
            break;
        } else {
            read_quoted(s, &text);
            if (*s->at == ']') { /* of a list in Python */
                s->at++;
                break;
            }
        }
    }
    status = add_word(s, &text, line);
    ty_text_clear(&text);
    return status;
}

static ty_status read_words(scanner *s)
{
    for (;;) {
        ty_status status;
        skip_blank(s);
        if (*s->at == '\0')
            return TY_OK;
        if ((status = read_word(s)) != TY_OK)
            return status;
    }
}

/* ---- Shell variables ------------------------------------------------------------------------- */

static bool is_name_part(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The value of a word that assigns to the variable, NAME=VALUE; NULL: it does not. Arrays, whose
 * words follow, are none. */
static const char *assigned_value(const word *w, const char *name, size_t length)
{
    if (strncmp(w->text, name, length) != 0 || w->text[length] != '=' ||
        w->text[length + 1] == '\0')
        return NULL;
    return w->text + length + 1;
}

enum { MOST_EXPANSIONS = 8 };

static const char *expand(const scanner *s, const char *text, int depth);

/* What `name` is given, where that is one value in the whole file; "${N:-7}" where it is given from
 * outside and has a default counts as 7. NULL: not known. */
static const char *value_of(const scanner *s, const char *name, size_t length, int depth)
{
    const char *found = NULL;

    for (size_t i = 0; i < s->count; i++) {
        const char *value = assigned_value(&s->words[i], name, length);
        if (value == NULL)
            continue;
        if (strchr(value, '$') != NULL)
            value = expand(s, value, depth + 1);
        if (value == NULL || (found != NULL && strcmp(found, value) != 0))
            return NULL;
        found = value;
    }
    return found;
}

/* The variable at "$": its name, a default, and where it ends. false: it is no plain variable. */
static bool read_variable(const char *at, const char **name, size_t *length, const char **otherwise,
                          size_t *otherwise_length, const char **end)
{
    bool is_braced = at[1] == '{';

    *name = at + 1 + is_braced;
    *otherwise = NULL;
    *otherwise_length = 0;
    for (*length = 0; is_name_part((*name)[*length]);)
        (*length)++;
    *end = *name + *length;
    if (*length == 0 || isdigit((unsigned char)**name))
        return false;
    if (!is_braced)
        return true;
    if ((*end)[0] == ':' && ((*end)[1] == '-' || (*end)[1] == '=')) {
        *otherwise = *end + 2;
        *otherwise_length = strcspn(*otherwise, "}$");
        *end = *otherwise + *otherwise_length;
    }
    if (**end != '}')
        return false;
    ++*end;
    return true;
}

/* ---- $((...)): whole numbers, variables, + - * / % and parentheses */

typedef struct arithmetic {
    const scanner *s;
    const char *at;
    int depth;
    bool is_known;
} arithmetic;

#define LARGEST_TERM ((int64_t)1 << 53)

static int64_t sum_of(arithmetic *a);

static void skip_spaces(arithmetic *a)
{
    while (*a->at == ' ' || *a->at == '\t')
        a->at++;
}

static int64_t term_of(arithmetic *a)
{
    const char *name, *otherwise, *end, *value;
    char own[24];
    size_t length, otherwise_length;
    uint64_t number = 0;

    skip_spaces(a);
    if (*a->at == '(' && a->depth < MOST_EXPANSIONS) {
        int64_t inner;
        a->at++;
        a->depth++;
        inner = sum_of(a);
        a->depth--;
        a->is_known = a->is_known && *a->at++ == ')';
        return inner;
    }
    if (isdigit((unsigned char)*a->at)) {
        for (; isdigit((unsigned char)*a->at) && number < (uint64_t)LARGEST_TERM; a->at++)
            number = number * 10 + (uint64_t)(*a->at - '0');
        a->is_known = a->is_known && number < (uint64_t)LARGEST_TERM;
        return a->is_known ? (int64_t)number : 0;
    }
    if (*a->at == '$') {
        a->is_known = a->is_known &&
                      read_variable(a->at, &name, &length, &otherwise, &otherwise_length, &end);
    } else {
        name = a->at;
        for (length = 0; is_name_part(name[length]);)
            length++;
        end = name + length;
        otherwise = NULL;
        a->is_known = a->is_known && length > 0;
    }
    if (!a->is_known)
        return 0;
    a->at = end;
    value = value_of(a->s, name, length, a->depth + 1);
    if (value == NULL && otherwise != NULL && otherwise_length < sizeof own) {
        snprintf(own, sizeof own, "%.*s", (int)otherwise_length, otherwise);
        value = own;
    }
    a->is_known =
        value != NULL && ty_parse_uint(value, 0, (uint64_t)LARGEST_TERM, &number, NULL) == TY_OK;
    return a->is_known ? (int64_t)number : 0;
}

static int64_t product_of(arithmetic *a)
{
    int64_t left = term_of(a);

    for (;;) {
        char operation;
        int64_t right;
        skip_spaces(a);
        operation = *a->at;
        if (operation == '\0' || strchr("*/%", operation) == NULL)
            return left;
        a->at++;
        right = term_of(a);
        if (operation == '*') {
            a->is_known = a->is_known && (right == 0 || llabs(left) <= LARGEST_TERM / llabs(right));
            left = a->is_known ? left * right : 0;
        } else {
            a->is_known = a->is_known && right != 0;
            left = !a->is_known ? 0 : operation == '/' ? left / right : left % right;
        }
    }
}

static int64_t sum_of(arithmetic *a)
{
    int64_t left = product_of(a);

    for (;;) {
        char operation;
        skip_spaces(a);
        operation = *a->at;
        if (operation != '+' && operation != '-')
            return left;
        a->at++;
        left += operation == '+' ? product_of(a) : -product_of(a);
        a->is_known = a->is_known && llabs(left) <= LARGEST_TERM;
        left = a->is_known ? left : 0;
    }
}

/* What stands between the parentheses, as a number; false where it is not known. */
static bool evaluate(const scanner *s, const char *text, int depth, int64_t *out)
{
    arithmetic a = {.s = s, .at = text, .depth = depth, .is_known = depth <= MOST_EXPANSIONS};

    if (!a.is_known)
        return false;
    *out = sum_of(&a);
    return a.is_known && strncmp(a.at, "))", 2) == 0;
}

/* A text with its variables replaced; NULL where one is not known. Lives as long as the words. */
static const char *expand(const scanner *s, const char *text, int depth)
{
    ty_text out = {0};
    const char *result = NULL, *name, *otherwise, *end;
    size_t length, otherwise_length;
    int64_t number;

    if (depth > MOST_EXPANSIONS)
        return NULL;
    while (*text != '\0') {
        const char *value;
        size_t plain = strcspn(text, "$");
        ty_text_append(&out, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        end = arithmetic_end(text);
        if (end != NULL) {
            if (!evaluate(s, text + 3, depth, &number))
                goto cleanup;
            ty_text_addf(&out, "%lld", (long long)number);
            text = end;
            continue;
        }
        if (!read_variable(text, &name, &length, &otherwise, &otherwise_length, &end))
            goto cleanup;
        value = value_of(s, name, length, depth);
        if (value != NULL)
            ty_text_append(&out, value, strlen(value));
        else if (otherwise != NULL)
            ty_text_append(&out, otherwise, otherwise_length);
        else
            goto cleanup;
        text = end;
    }
    if (out.failed == TY_OK)
        result = ty_arena_strdup(s->arena, out.data != NULL ? out.data : "");

cleanup:
    ty_text_clear(&out);
    return result;
}

/* ---- Options --------------------------------------------------------------------------------- */

typedef struct arguments {
    uint64_t layers, hidden, ffn, heads, kv_channels, groups, sequence, positions, vocabulary;
    uint64_t padded_vocabulary, divisor, tensor_parallel, experts, top_k, expert_ffn, shared_ffn;
    uint64_t batch, query_rank, kv_rank, qk_size, rotary_size, value_size, rotary_base;
    double learning_rate, weight_decay, beta1, beta2, epsilon, momentum;
    const char *position_type, *normalization, *optimizer, *layer_frequency, *tokenizer;
    bool has_groups, is_gated, is_unbiased, has_qkv_bias, has_qk_norm, is_untied, is_rotary;
    bool has_no_positions, has_router_bias, has_latents;
} arguments;

typedef enum option_kind { SIZE, NUMBER, TEXT, FLAG } option_kind;

#define OPTION(name, kind, field)                                                                  \
    {                                                                                              \
        name, kind, offsetof(arguments, field)                                                     \
    }
static const struct option {
    const char *name;
    option_kind kind;
    size_t offset;
} options[] = {
    OPTION("num-layers", SIZE, layers),
    OPTION("hidden-size", SIZE, hidden),
    OPTION("ffn-hidden-size", SIZE, ffn),
    OPTION("num-attention-heads", SIZE, heads),
    OPTION("kv-channels", SIZE, kv_channels),
    OPTION("group-query-attention", FLAG, has_groups),
    OPTION("num-query-groups", SIZE, groups),
    OPTION("seq-length", SIZE, sequence),
    OPTION("max-position-embeddings", SIZE, positions),
    OPTION("position-embedding-type", TEXT, position_type),
    OPTION("use-rotary-position-embeddings", FLAG, is_rotary),
    OPTION("no-position-embedding", FLAG, has_no_positions),
    OPTION("rotary-base", SIZE, rotary_base),
    OPTION("vocab-size", SIZE, vocabulary),
    OPTION("padded-vocab-size", SIZE, padded_vocabulary),
    OPTION("make-vocab-size-divisible-by", SIZE, divisor),
    OPTION("tensor-model-parallel-size", SIZE, tensor_parallel),
    OPTION("tokenizer-type", TEXT, tokenizer),
    OPTION("swiglu", FLAG, is_gated),
    OPTION("normalization", TEXT, normalization),
    OPTION("disable-bias-linear", FLAG, is_unbiased),
    OPTION("add-qkv-bias", FLAG, has_qkv_bias),
    OPTION("qk-layernorm", FLAG, has_qk_norm),
    OPTION("untie-embeddings-and-output-weights", FLAG, is_untied),
    OPTION("num-experts", SIZE, experts),
    OPTION("moe-router-topk", SIZE, top_k),
    OPTION("moe-ffn-hidden-size", SIZE, expert_ffn),
    OPTION("moe-shared-expert-intermediate-size", SIZE, shared_ffn),
    OPTION("moe-layer-freq", TEXT, layer_frequency),
    OPTION("moe-router-enable-expert-bias", FLAG, has_router_bias),
    OPTION("multi-latent-attention", FLAG, has_latents),
    OPTION("q-lora-rank", SIZE, query_rank),
    OPTION("kv-lora-rank", SIZE, kv_rank),
    OPTION("qk-head-dim", SIZE, qk_size),
    OPTION("qk-pos-emb-head-dim", SIZE, rotary_size),
    OPTION("v-head-dim", SIZE, value_size),
    OPTION("global-batch-size", SIZE, batch),
    OPTION("optimizer", TEXT, optimizer),
    OPTION("lr", NUMBER, learning_rate),
    OPTION("weight-decay", NUMBER, weight_decay),
    OPTION("adam-beta1", NUMBER, beta1),
    OPTION("adam-beta2", NUMBER, beta2),
    OPTION("adam-eps", NUMBER, epsilon),
    OPTION("sgd-momentum", NUMBER, momentum),
};

/* One option as it stands in the file. */
typedef struct given {
    const struct option *option; /* NULL: not one of ours */
    const char *name;            /* without dashes */
    size_t name_length;
    const char *value; /* NULL: none */
    uint32_t line;
} given;

static ty_status fail_option(const ty_import_source *source, const given *g, const char *expected)
{
    bool is_variable = g->value != NULL && strchr(g->value, '$') != NULL;

    return ty_fail(source->error, TY_EPARSE, "%.200s:%u: --%.*s: found %s%.60s%s, expected %s%s",
                   source->path, g->line, (int)g->name_length, g->name, g->value != NULL ? "'" : "",
                   g->value != NULL ? g->value : "no value", g->value != NULL ? "'" : "", expected,
                   is_variable ? "; the variable has no one literal value here: write the value"
                               : "");
}

static bool is_option(const word *w)
{
    return w->text[0] == '-' && w->text[1] == '-' && isalpha((unsigned char)w->text[2]);
}

/* Its value with what is known of its variables. */
static void expand_value(const scanner *s, given *g)
{
    const char *expanded =
        g->value != NULL && strchr(g->value, '$') != NULL ? expand(s, g->value, 0) : NULL;
    if (expanded != NULL && expanded[0] != '\0')
        g->value = expanded;
}

/* Whether words stand behind an "if" or a "case" whose end is to come: whether they are there when
 * the script runs is not known here. */
static void count_condition(const word *w, uint32_t *depth)
{
    if (strcmp(w->text, "then") == 0 || strcmp(w->text, "case") == 0)
        ++*depth;
    else if (*depth > 0 && (strcmp(w->text, "fi") == 0 || strcmp(w->text, "esac") == 0))
        --*depth;
}

/* Switches of the layout and the training, which sizes do not depend on: a word behind one, as the
 * first of the next command, is no value of it. */
static bool is_switch(const given *g)
{
    static const char *const switches[] = {"bf16",
                                           "fp16",
                                           "sequence-parallel",
                                           "use-distributed-optimizer",
                                           "recompute-activations",
                                           "overlap-grad-reduce",
                                           "overlap-param-gather",
                                           "tp-comm-overlap",
                                           "grad-reduce-in-bf16"};

    for (size_t i = 0; i < COUNT(switches); i++)
        if (strlen(switches[i]) == g->name_length &&
            memcmp(switches[i], g->name, g->name_length) == 0)
            return true;
    return false;
}

/* Reads the option at words[*at] and its value, if there is one, and moves on. */
static given next_option(const scanner *s, size_t *at)
{
    const word *w = &s->words[(*at)++];
    given g = {.name = w->text + 2, .line = w->line};
    bool is_flag;

    g.name_length = strcspn(g.name, "=");
    if (g.name[g.name_length] == '=')
        g.value = g.name + g.name_length + 1;
    else if (g.name_length > 0 && g.name[g.name_length - 1] == ':')
        g.name_length--; /* YAML */
    for (size_t i = 0; i < COUNT(options); i++)
        if (strlen(options[i].name) == g.name_length &&
            memcmp(options[i].name, g.name, g.name_length) == 0)
            g.option = &options[i];
    is_flag = g.option != NULL ? g.option->kind == FLAG : is_switch(&g);
    if (g.value != NULL || *at >= s->count || is_option(&s->words[*at]) ||
        strcmp(s->words[*at].text, "fi") == 0 || strcmp(s->words[*at].text, "esac") == 0)
        return g;
    if (!is_flag || strcmp(s->words[*at].text, "true") == 0 ||
        strcmp(s->words[*at].text, "false") == 0)
        g.value = s->words[(*at)++].text;
    return g;
}

/* A decimal number, whatever the locale. */
static ty_status parse_number(const char *text, double *out)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;

    TY_CHECK(ty_json_parse(text, strlen(text), "number", &document, NULL), status, cleanup);
    status = ty_json_as_number(ty_json_root(document), 0, 1e6, out, NULL);

cleanup:
    ty_json_free(document);
    return status;
}

static ty_status set_option(ty_import_source *source, const given *g, arguments *out)
{
    char *field = (char *)out + g->option->offset;
    uint64_t size, before;
    double number;
    ty_status status;

    if (g->option->kind == FLAG) {
        const bool is_set = g->value == NULL || strcmp(g->value, "false") != 0;
        memcpy(field, &is_set, sizeof is_set);
        return TY_OK;
    }
    if (g->value == NULL || (g->option->kind == TEXT && strchr(g->value, '$') != NULL))
        return fail_option(source, g, "a value");
    switch (g->option->kind) {
    case SIZE:
        if (ty_parse_uint(g->value, 1, INT32_MAX, &size, NULL) != TY_OK)
            return fail_option(source, g, "a whole number from 1 to 2147483647");
        memcpy(&before, field, sizeof before);
        if (before > 0 && before != size)
            ty_import_note(source, "--%.*s is %llu and, on line %u, %llu: the last counts",
                           (int)g->name_length, g->name, (unsigned long long)before, g->line,
                           (unsigned long long)size);
        memcpy(field, &size, sizeof size);
        break;
    case NUMBER:
        status = parse_number(g->value, &number);
        if (status == TY_ENOMEM)
            return out_of_memory(source);
        if (status != TY_OK)
            return fail_option(source, g, "a number from 0 to 1000000");
        memcpy(field, &number, sizeof number);
        break;
    case TEXT:
        memcpy(field, &g->value, sizeof g->value);
        break;
    case FLAG:
        break;
    }
    return TY_OK;
}

static ty_status read_options(const scanner *s, arguments *out)
{
    ty_status status = TY_OK;
    ty_text ignored = {0}, conditional = {0};
    const training_pairs *settings = s->source->options->settings;
    uint32_t depth = 0;

    for (size_t at = 0; at < s->count;) {
        given g;
        if (!is_option(&s->words[at])) {
            count_condition(&s->words[at++], &depth);
            continue;
        }
        g = next_option(s, &at);
        expand_value(s, &g);
        if (depth > 0)
            ty_text_addf(&conditional, "%s--%.*s", conditional.length > 0 ? ", " : "",
                         (int)g.name_length, g.name);
        if (g.option != NULL)
            TY_CHECK(set_option(s->source, &g, out), status, cleanup);
        else if (settings == NULL || !ty_training_pair_is_read(settings, g.name, g.name_length))
            ty_text_addf(&ignored, "%s%.*s", ignored.length > 0 ? ", " : "", (int)g.name_length,
                         g.name);
    }
    if (ignored.length > 0)
        ty_import_note(s->source, "options not read: %s", ignored.data);
    if (conditional.length > 0)
        ty_import_note(s->source, TY_MEGATRON_CONDITIONAL, conditional.data);

cleanup:
    ty_text_clear(&conditional);
    ty_text_clear(&ignored);
    return status;
}

/* ---- From options to sizes ------------------------------------------------------------------- */

static ty_status check_needed(const ty_import_source *source, const arguments *a)
{
    const struct {
        const char *name;
        uint64_t value;
    } needed[] = {
        {"num-layers", a->layers}, {"hidden-size", a->hidden}, {"num-attention-heads", a->heads}};

    for (size_t i = 0; i < COUNT(needed); i++)
        if (needed[i].value == 0)
            return ty_fail(source->error, TY_EPARSE,
                           "%.200s: found no --%s, expected it with a number", source->path,
                           needed[i].name);
    return TY_OK;
}

/* As Megatron pads it, so that it divides evenly over tensor-parallel ranks. */
static ty_status set_vocabulary(ty_import_source *source, const arguments *a, ty_transformer *t)
{
    const uint64_t asked = ty_import_vocabulary(source);
    uint64_t size = asked > 0 ? asked : a->vocabulary, multiple;

    if (asked == 0 && a->padded_vocabulary > 0) {
        t->vocabulary = a->padded_vocabulary;
        return TY_OK;
    }
    if (size == 0 && a->tokenizer != NULL && strcmp(a->tokenizer, "GPT2BPETokenizer") == 0) {
        size = 50257;
        ty_import_note(source,
                       "a vocabulary of 50257 taken from --tokenizer-type GPT2BPETokenizer");
    }
    if (size == 0)
        return ty_fail(source->error, TY_EPARSE,
                       "%.200s: found no --vocab-size, expected it with a number, or vocabulary=N "
                       "behind the file (--vocabulary N): vocabulary files are not read",
                       source->path);
    multiple =
        (a->divisor > 0 ? a->divisor : 128) * (a->tensor_parallel > 0 ? a->tensor_parallel : 1);
    if (multiple > INT32_MAX)
        return ty_fail(source->error, TY_EPARSE,
                       "%.200s: found --make-vocab-size-divisible-by times "
                       "--tensor-model-parallel-size of %llu, expected at most 2147483647",
                       source->path, (unsigned long long)multiple);
    t->vocabulary = (size + multiple - 1) / multiple * multiple;
    if (t->vocabulary != size)
        ty_import_note(source, "the vocabulary of %llu is padded to %llu, a multiple of %llu",
                       (unsigned long long)size, (unsigned long long)t->vocabulary,
                       (unsigned long long)multiple);
    return TY_OK;
}

static ty_status set_positions(ty_import_source *source, const arguments *a, ty_transformer *t)
{
    bool is_learned = a->position_type == NULL || strcmp(a->position_type, "learned_absolute") == 0;

    t->longest_sequence = a->positions;
    if (!is_learned || a->is_rotary || a->has_no_positions)
        return TY_OK;
    if (a->positions == 0)
        return ty_fail(source->error, TY_EPARSE,
                       "%.200s: found no --max-position-embeddings, expected it with a number: "
                       "positions are learned unless --position-embedding-type says otherwise",
                       source->path);
    t->positions = a->positions;
    return TY_OK;
}

/* "2": every second block has experts; "([0]*3+[1]*58)": all but the first three. */
static ty_status set_expert_blocks(ty_import_source *source, const arguments *a, ty_transformer *t)
{
    const char *text = a->layer_frequency, *pattern;
    unsigned dense, expert;
    int end = 0;

    if (text == NULL || ty_parse_uint(text, 1, INT32_MAX, &t->expert_interval, NULL) == TY_OK)
        return TY_OK;
    pattern = text + strspn(text, "(");
    if (sscanf(pattern, "[0]*%6u+[1]*%6u%n", &dense, &expert, &end) == 2 &&
        pattern[end + (int)strspn(pattern + end, ")")] == '\0' && dense + expert == a->layers) {
        t->dense_blocks = dense;
        return TY_OK;
    }
    return ty_fail(
        source->error, TY_EPARSE,
        "%.200s: --moe-layer-freq: found '%.60s', expected a number, or [0]*M+[1]*N with "
        "M+N layers",
        source->path, text);
}

/* Megatron's defaults: 4 hidden sizes, two thirds of it with a gate, rounded to 64. */
static uint64_t usual_ffn(const arguments *a)
{
    return a->is_gated ? a->hidden * 8 / 3 / 64 * 64 : 4 * a->hidden;
}

static ty_status set_experts(ty_import_source *source, const arguments *a, ty_transformer *t)
{
    if (a->experts == 0)
        return TY_OK;
    t->experts = a->experts;
    t->experts_per_token = a->top_k > 0 ? a->top_k : 2;
    t->expert_features = a->expert_ffn > 0 ? a->expert_ffn : t->hidden_features;
    t->shared_features = a->shared_ffn;
    t->has_router_bias = a->has_router_bias;
    return set_expert_blocks(source, a, t);
}

static void set_attention(const arguments *a, ty_transformer *t)
{
    t->heads = a->heads;
    t->head_size = a->kv_channels;
    t->kv_heads = a->has_groups ? (a->groups > 0 ? a->groups : 1) : 0;
    t->has_attention_bias = !a->is_unbiased;
    t->has_qkv_bias = a->has_qkv_bias;
    t->has_qk_norm = a->has_qk_norm && !a->has_latents; /* latents have norms anyway */
    t->is_fused = true;
    if (!a->has_latents)
        return;
    t->kv_heads = 0;
    t->query_rank = a->query_rank;
    t->kv_rank = a->kv_rank > 0 ? a->kv_rank : 32;
    t->rotary_size = a->rotary_size > 0 ? a->rotary_size : 64;
    t->head_size = (a->qk_size > 0 ? a->qk_size : 128) + t->rotary_size;
    t->value_head_size = a->value_size > 0 ? a->value_size : 128;
}

static ty_status set_training(ty_import_source *source, const arguments *a,
                              ty_import_training *training)
{
    training->batch = (uint32_t)a->batch;
    if (a->learning_rate <= 0)
        return TY_OK;
    training->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_ADAMW,
                                         .learning_rate = a->learning_rate,
                                         .weight_decay = a->weight_decay,
                                         .beta1 = a->beta1,
                                         .beta2 = a->beta2,
                                         .epsilon = a->epsilon};
    if (a->optimizer != NULL && strcmp(a->optimizer, "sgd") == 0)
        training->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD,
                                             .learning_rate = a->learning_rate,
                                             .weight_decay = a->weight_decay,
                                             .momentum = a->momentum};
    else if (a->optimizer != NULL && strcmp(a->optimizer, "adam") != 0)
        ty_import_note(source, "--optimizer %.60s is not known, adam in its place", a->optimizer);
    return TY_OK;
}

static ty_status to_sizes(ty_import_source *source, const arguments *a, ty_transformer *t)
{
    ty_status status = TY_OK;

    TY_CHECK(check_needed(source, a), status, cleanup);
    t->form = TY_DECODER;
    t->blocks = a->layers;
    t->features = a->hidden;
    t->sequence = a->sequence;
    t->hidden_features = a->ffn > 0 ? a->ffn : usual_ffn(a);
    t->has_mlp_bias = !a->is_unbiased;
    t->is_gated = a->is_gated;
    t->is_tied = !a->is_untied;
    t->is_rms_norm = a->normalization != NULL && strcmp(a->normalization, "RMSNorm") == 0;
    set_attention(a, t);
    TY_CHECK(set_vocabulary(source, a, t), status, cleanup);
    TY_CHECK(set_positions(source, a, t), status, cleanup);
    TY_CHECK(set_experts(source, a, t), status, cleanup);
    ty_import_note(source, "fused attention assumed: scores are not kept");

cleanup:
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

bool ty_is_megatron_arguments(const char *bytes)
{
    return bytes[0] != '{' &&
           (strstr(bytes, "--num-layers") != NULL || strstr(bytes, "--hidden-size") != NULL);
}

static bool probe(ty_import_source *source)
{
    return ty_is_megatron_arguments(source->bytes);
}

/* A setting of the option at words[*at], and moves on. */
static ty_status put_setting(const scanner *s, size_t *at, training_pairs *out)
{
    ty_error *error = s->source->error;
    given g = next_option(s, at);
    ty_text key = {0}, value = {0};
    ty_status status;

    expand_value(s, &g);
    ty_text_append(&key, g.name, g.name_length);
    for (size_t i = 0; i < key.length; i++)
        key.data[i] = (char)(key.data[i] == '-' ? '_' : key.data[i]);
    ty_text_add(&value, g.value != NULL ? g.value : "true");
    while (key.data != NULL && strcmp(key.data, "recompute_modules") == 0 && *at < s->count &&
           !is_option(&s->words[*at])) /* one or more */
        ty_text_addf(&value, " %s", s->words[(*at)++].text);
    TY_CHECK(ty_text_check(&key, error), status, done);
    TY_CHECK(ty_text_check(&value, error), status, done);
    status = ty_training_pairs_put(out, key.data, value.data, g.line, error);
done:
    ty_text_clear(&key);
    ty_text_clear(&value);
    return status;
}

ty_status ty_megatron_settings(const char *path, const char *bytes, size_t length,
                               training_pairs *out, ty_text *conditional, ty_error *error)
{
    uint32_t depth = 0;
    ty_import_source source = {.path = path, .bytes = bytes, .length = length, .error = error};
    scanner s = {.source = &source, .at = bytes, .line = 1, .arena = ty_arena_new()};
    ty_status status = TY_OK;

    *out = (training_pairs){.arena = ty_arena_new()};
    if (s.arena == NULL || out->arena == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a configuration");
        goto done;
    }
    TY_CHECK(read_words(&s), status, done);
    for (size_t at = 0; at < s.count;) {
        if (!is_option(&s.words[at])) {
            count_condition(&s.words[at++], &depth);
            continue;
        }
        if (depth > 0)
            ty_text_addf(conditional, "%s%.60s", conditional->length > 0 ? ", " : "",
                         s.words[at].text);
        TY_CHECK(put_setting(&s, &at, out), status, done);
    }
    status = ty_text_check(conditional, error);
done:
    ty_free(s.words);
    ty_arena_free(s.arena);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    ty_status status = TY_OK;
    scanner s = {.source = source, .at = source->bytes, .line = 1, .arena = ty_arena_new()};
    /* Defaults of the optimizer as Megatron has them. */
    arguments a = {
        .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .momentum = 0.9};
    ty_transformer sizes = {0};
    ty_import_training training = {0};
    char whole[256];

    if (s.arena == NULL) {
        status = out_of_memory(source);
        goto cleanup;
    }
    TY_CHECK(read_words(&s), status, cleanup);
    TY_CHECK(read_options(&s, &a), status, cleanup);
    TY_CHECK(to_sizes(source, &a, &sizes), status, cleanup);
    TY_CHECK(set_training(source, &a, &training), status, cleanup);
    snprintf(whole, sizeof whole, "%.240s:", source->path);
    TY_CHECK(ty_import_transformer(source, &sizes, &training, whole, out), status, cleanup);
    (*out)->rotary_base = sizes.positions > 0 ? 0 : a.rotary_base;

cleanup:
    ty_free(s.words);
    ty_arena_free(s.arena);
    return status;
}

const ty_import_format ty_import_megatron = {"Megatron-LM arguments", probe, read, false};
