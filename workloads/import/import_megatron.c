/* Megatron-LM: a file of arguments for pretrain_gpt.py, or the shell script around them. Options
 * may be written `--num-layers 32` or `--num-layers=32`, over several lines, in quotes, in an
 * array, with comments between, or as YAML keys `--num-layers: 32`. A shell variable has its value
 * from the file, or its default; $((...)) is evaluated. Variables set by a command, or to different
 * values, are unknown. Meaning and defaults of options: NVIDIA/Megatron-LM,
 * megatron/training/arguments.py. */
#include "expression.h"
#include "steps.h"

#include <ctype.h>
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
    ty_arena *arena; /* texts of the words */
    const char *at;
    uint32_t line;
    char list_quote; /* quote around the current list of options, or 0 */
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

/* Whether a quote opens a list of options: GPT_ARGS="--num-layers 24 ...", or "$GPT_ARGS --bf16".
 * One quoted word that looks like an option is a list of one. */
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

/* Reads a quoted part of a word, without its quotes. */
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

#define DEEPEST_ARITHMETIC 100 /* nested parentheses */

/* The end of the "$((...))" at `at`; NULL: none, over several lines, or too deep. */
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

/* The value of a word NAME=VALUE that assigns the variable; NULL: none. Arrays, whose words follow,
 * do not count. */
static const char *assigned_value(const word *w, const char *name, size_t length)
{
    if (strncmp(w->text, name, length) != 0 || w->text[length] != '=' ||
        w->text[length + 1] == '\0')
        return NULL;
    return w->text + length + 1;
}

enum { MOST_EXPANSIONS = 8 };

static const char *expand(const scanner *s, const char *text, int depth);

/* The value of `name`, if it is the only one in the file. For a variable set outside with a
 * default, "${N:-7}", it is 7. NULL: unknown. */
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

/* The variable at "$": its name, default and end. false: no plain variable. */
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

/* ---- $((...)) -- */

typedef struct shell_names {
    const scanner *s;
    int depth; /* nested variables */
} shell_names;

/* "$NAME", "${NAME:-7}" or "NAME" in an arithmetic expression. */
static const char *read_shell_name(void *context, const char *at, double *value)
{
    const shell_names *names = context;
    const char *name = at, *otherwise = NULL, *end, *text;
    size_t length = 0, otherwise_length = 0;
    uint64_t number;
    char own[24];

    if (*at == '$') {
        if (!read_variable(at, &name, &length, &otherwise, &otherwise_length, &end))
            return NULL;
    } else {
        while (is_name_part(name[length]))
            length++;
        end = name + length;
    }
    text = length > 0 ? value_of(names->s, name, length, names->depth + 1) : NULL;
    if (text == NULL && otherwise != NULL && otherwise_length < sizeof own) {
        snprintf(own, sizeof own, "%.*s", (int)otherwise_length, otherwise);
        text = own;
    }
    if (text == NULL || ty_parse_uint(text, 0, (uint64_t)1 << 53, &number, NULL) != TY_OK)
        return NULL;
    *value = (double)number;
    return end;
}

/* Evaluates the text between the parentheses; false if unknown. */
static bool evaluate(const scanner *s, const char *text, int depth, double *out)
{
    shell_names names = {s, depth};
    ty_expression e = {.at = text,
                       .name = read_shell_name,
                       .context = &names,
                       .is_whole = true,
                       .deepest = MOST_EXPANSIONS};

    if (depth > MOST_EXPANSIONS)
        return false;
    *out = ty_expression_read(&e);
    return !e.is_wrong && strncmp(e.at, "))", 2) == 0;
}

/* A text with its variables replaced; NULL if one is unknown. Lives as long as the words. */
static const char *expand(const scanner *s, const char *text, int depth)
{
    ty_text out = {0};
    const char *result = NULL, *name, *otherwise, *end;
    size_t length, otherwise_length;
    double number;

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
            ty_text_addf(&out, "%.0f", number);
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

/* One option in the file. */
typedef struct given {
    const char *name; /* without dashes */
    size_t name_length;
    const char *value; /* NULL: none */
    uint32_t line;
} given;

static bool is_option(const word *w)
{
    return w->text[0] == '-' && w->text[1] == '-' && isalpha((unsigned char)w->text[2]);
}

/* Replaces the known variables in its value. */
static void expand_value(const scanner *s, given *g)
{
    const char *expanded =
        g->value != NULL && strchr(g->value, '$') != NULL ? expand(s, g->value, 0) : NULL;
    if (expanded != NULL && expanded[0] != '\0')
        g->value = expanded;
}

/* Tracks "if" and "case" blocks: whether options inside apply depends on the run of the script. */
static void count_condition(const word *w, uint32_t *depth)
{
    if (strcmp(w->text, "then") == 0 || strcmp(w->text, "case") == 0)
        ++*depth;
    else if (*depth > 0 && (strcmp(w->text, "fi") == 0 || strcmp(w->text, "esac") == 0))
        --*depth;
}

/* Options without a value: a word after one, such as the next command, is not its value.
 */
static bool is_switch(const given *g)
{
    /* clang-format off */
    static const char *const switches[] = {
        "group-query-attention", "use-rotary-position-embeddings", "no-position-embedding",
        "swiglu", "disable-bias-linear", "add-qkv-bias", "qk-layernorm",
        "untie-embeddings-and-output-weights", "moe-router-enable-expert-bias",
        "multi-latent-attention", "bf16", "fp16", "sequence-parallel", "use-distributed-optimizer",
        "recompute-activations", "overlap-grad-reduce", "overlap-param-gather",
        "tp-comm-overlap", "grad-reduce-in-bf16",
    };
    /* clang-format on */

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

    g.name_length = strcspn(g.name, "=");
    if (g.name[g.name_length] == '=')
        g.value = g.name + g.name_length + 1;
    else if (g.name_length > 0 && g.name[g.name_length - 1] == ':')
        g.name_length--; /* YAML */
    if (g.value != NULL || *at >= s->count || is_option(&s->words[*at]) ||
        strcmp(s->words[*at].text, "fi") == 0 || strcmp(s->words[*at].text, "esac") == 0)
        return g;
    if (!is_switch(&g) || strcmp(s->words[*at].text, "true") == 0 ||
        strcmp(s->words[*at].text, "false") == 0)
        g.value = s->words[(*at)++].text;
    return g;
}

/* ---- From options to sizes ------------------------------------------------------------------- */

/* "2": every second block has experts; "([0]*3+[1]*58)": all but the first three. */
static ty_status set_expert_blocks(steps_reader *r, ty_transformer *t)
{
    const training_pair *p = ty_training_pair_called(r->pairs, "moe_layer_freq");
    const char *pattern;
    unsigned dense, expert;
    int end = 0;

    if (p == NULL || t->experts == 0 ||
        ty_parse_uint(p->value, 1, INT32_MAX, &t->expert_interval, NULL) == TY_OK)
        return TY_OK;
    pattern = p->value + strspn(p->value, "(");
    if (sscanf(pattern, "[0]*%6u+[1]*%6u%n", &dense, &expert, &end) == 2 &&
        pattern[end + (int)strspn(pattern + end, ")")] == '\0' && dense + expert == t->blocks) {
        t->dense_blocks = dense;
        return TY_OK;
    }
    return ty_steps_fail_pair(r, p, "a number, or [0]*M+[1]*N with M+N layers");
}

static void set_training(const steps_reader *r, ty_import_training *training)
{
    const char *asked = ty_steps_text_of(r, "optimizer");
    const ty_optimizer_row *row;
    ty_optimizer *o = &training->optimizer;

    training->batch = (uint32_t)ty_steps_number_of(r, "batch");
    if (ty_steps_number_of(r, "learning_rate") <= 0)
        return;
    o->kind = TY_OPTIMIZER_ADAMW;
    if (asked != NULL && ty_optimizer_set(o, asked, NULL) != TY_OK)
        ty_import_note(r->source, "--optimizer %.60s is not known, adam in its place", asked);
    row = ty_optimizer_row_of(o->kind);
    o->learning_rate = ty_steps_number_of(r, "learning_rate");
    o->weight_decay = ty_steps_number_of(r, "weight_decay");
    if (row->is_descent)
        o->momentum = ty_steps_number_of(r, "momentum");
    if (!row->has_betas)
        return;
    o->beta1 = ty_steps_number_of(r, "beta1");
    o->beta2 = ty_steps_number_of(r, "beta2");
    o->epsilon = ty_steps_number_of(r, "epsilon");
}

/* Runs the "model_steps" of the kind's file. */
ty_status ty_settings_model(ty_import_source *source, const char *kind, training_pairs *pairs,
                            bool is_arguments, ty_workload **out)
{
    steps_reader r = {
        .source = source, .error = source->error, .pairs = pairs, .is_arguments = is_arguments};
    ty_import_training training = {0};
    ty_json_document *document = NULL;
    ty_transformer t = {0};
    const ty_json *steps;
    char whole[256];
    ty_status status;

    TY_CHECK(ty_steps_load(TY_TRAINING_FOLDER, kind, &document, source->error), status, done);
    TY_CHECK(ty_json_array(ty_json_root(document), "model_steps", 1, 1000, &steps, source->error),
             status, done);
    if (ty_json_has(ty_json_root(document), "parts"))
        TY_CHECK(ty_json_object(ty_json_root(document), "parts", &r.parts, source->error), status,
                 done);
    TY_CHECK(ty_steps_start(&r, NULL), status, done);
    TY_CHECK(ty_steps_set(&r, "is_arguments", is_arguments), status, done);
    TY_CHECK(ty_steps_set_size(&r, "asked_vocabulary", ty_import_vocabulary(source)), status, done);
    TY_CHECK(ty_steps_run(&r, steps), status, done);
    TY_CHECK(ty_steps_transformer(&r, &t), status, done);
    if (is_arguments)
        TY_CHECK(set_expert_blocks(&r, &t), status, done);
    set_training(&r, &training);
    snprintf(whole, sizeof whole, "%.240s:", source->path);
    TY_CHECK(ty_import_transformer(source, &t, &training, whole, out), status, done);
    (*out)->rotary_base = t.positions > 0 ? 0 : (uint64_t)ty_steps_number_of(&r, "rotary_base");
done:
    ty_steps_end(&r);
    ty_json_free(document);
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

/* Notes an integer that is specified twice. */
static ty_status note_other_size(const training_pairs *pairs, const char *key, const char *value,
                                 uint32_t line, ty_import_report *report, ty_error *error)
{
    const training_pair *p = NULL;
    uint64_t before, after;
    ty_text text = {0};
    ty_status status;

    for (uint32_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pairs[i].key, key) == 0)
            p = &pairs->pairs[i];
    if (p == NULL || ty_parse_uint(p->value, 1, INT32_MAX, &before, NULL) != TY_OK ||
        ty_parse_uint(value, 1, INT32_MAX, &after, NULL) != TY_OK || before == after)
        return TY_OK;
    ty_text_addf(&text, "--%s is %llu and, on line %u, %llu: the last counts", key,
                 (unsigned long long)before, line, (unsigned long long)after);
    for (size_t i = 0; i < text.length && text.data[i] != ' '; i++)
        text.data[i] = (char)(text.data[i] == '_' ? '-' : text.data[i]);
    TY_CHECK(ty_text_check(&text, error), status, done);
    status = ty_import_report_add(report, text.data, error);
done:
    ty_text_clear(&text);
    return status;
}

/* Adds the setting of the option at words[*at], and moves on. */
static ty_status put_setting(const scanner *s, size_t *at, training_pairs *out,
                             ty_import_report *report)
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
    TY_CHECK(note_other_size(out, key.data, value.data, g.line, report, error), status, done);
    TY_CHECK(ty_training_pairs_put(out, key.data, value.data, g.line, error), status, done);
    out->pairs[out->count - 1].lacks_value = g.value == NULL;
done:
    ty_text_clear(&key);
    ty_text_clear(&value);
    return status;
}

ty_status ty_megatron_settings(const char *path, const char *bytes, size_t length,
                               training_pairs *out, ty_text *conditional, ty_import_report *report,
                               ty_error *error)
{
    uint32_t depth = 0;
    ty_import_source source = {.path = path, .bytes = bytes, .length = length, .error = error};
    scanner s = {.source = &source, .at = bytes, .line = 1, .arena = ty_arena_new()};
    ty_status status = TY_OK;

    *out = (training_pairs){.arena = ty_arena_new()};
    TY_CHECK(ty_check_memory(s.arena != NULL && out->arena != NULL, error), status, done);
    TY_CHECK(read_words(&s), status, done);
    for (size_t at = 0; at < s.count;) {
        if (!is_option(&s.words[at])) {
            count_condition(&s.words[at++], &depth);
            continue;
        }
        if (depth > 0)
            ty_text_addf(conditional, "%s%.*s", conditional->length > 0 ? ", " : "",
                         (int)strcspn(s.words[at].text, "="), s.words[at].text);
        TY_CHECK(put_setting(&s, &at, out, report), status, done);
    }
    status = ty_text_check(conditional, error);
done:
    ty_free(s.words);
    ty_arena_free(s.arena);
    return status;
}

/* Notes options that neither the model nor, if requested, the layout reads. */
static ty_status note_unread(ty_import_source *source, const training_pairs *pairs)
{
    const training_pairs *settings = source->options->settings;
    ty_text text = {0};
    ty_status status;

    for (uint32_t i = 0; i < pairs->count; i++) {
        const training_pair *p = &pairs->pairs[i];
        if (p->is_read ||
            (settings != NULL && ty_training_pair_is_read(settings, p->key, strlen(p->key))))
            continue;
        ty_text_add(&text, text.length > 0 ? ", " : "");
        for (const char *c = p->key; *c != '\0'; c++)
            ty_text_append(&text, *c == '_' ? "-" : c, 1);
    }
    status = ty_text_check(&text, source->error);
    if (status == TY_OK && text.length > 0)
        ty_import_note(source, "options not read: %s", text.data);
    ty_text_clear(&text);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    training_pairs pairs = {0};
    ty_text conditional = {0};
    ty_import_report report = {0};
    ty_workload *workload = NULL;
    ty_status status;

    TY_CHECK(ty_megatron_settings(source->path, source->bytes, source->length, &pairs, &conditional,
                                  &report, source->error),
             status, done);
    for (uint32_t i = 0; i < report.note_count; i++)
        ty_import_note(source, "%s", report.notes[i]);
    if (conditional.length > 0)
        ty_import_note(source, TY_MEGATRON_CONDITIONAL, conditional.data);
    TY_CHECK(ty_settings_model(source, "megatron", &pairs, true, &workload), status, done);
    TY_CHECK(note_unread(source, &pairs), status, done);
    *out = workload;
    workload = NULL; /* ownership moved */
done:
    ty_workload_free(workload);
    ty_import_report_clear(&report);
    ty_text_clear(&conditional);
    ty_training_pairs_clear(&pairs);
    return status;
}

const ty_import_format ty_import_megatron = {"Megatron-LM arguments", probe, read, false};
