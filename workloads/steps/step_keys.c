/* Steps that read keys: of Hugging Face JSON, and of the settings of a training program.
 */
#include "steps.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- Keys of the configuration --------------------------------------------------------------- */

typedef struct place {
    const ty_json *object; /* NULL: the key's object is missing */
    const char *key;
    const ty_json *element;    /* of a list, instead of object and key */
    const training_pair *pair; /* likewise */
} place;

/* "attn_config.kv_n_heads"; "/name" is at the top of the file, "architectures.0" is an element. */
static ty_status find_place(const steps_reader *r, const ty_json *object, const char *path,
                            bool is_needed, place *out)
{
    const ty_json *list;

    if (r->pairs != NULL) { /* a path, or its last part; '/' begins a full path */
        *out = (place){.key = path + (*path == '/')};
        out->pair = ty_steps_find_setting(r, path);
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
            return ty_steps_out_of_memory(r);
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
        TY_TRY(ty_json_object(out->object, name, &out->object, r->error));
    }
    return TY_OK;
}

static bool is_there(const place *p)
{
    return p->element != NULL || p->pair != NULL ||
           (p->object != NULL && ty_json_has(p->object, p->key));
}

/* The first existing key, else the first of all; marks the others as read. */
static ty_status find_keys(const steps_reader *r, const ty_json *object, const ty_json *keys,
                           bool is_needed, place *out)
{
    const size_t count = ty_json_is_array(keys) ? ty_json_size(keys) : 1;
    bool is_found = false;

    for (size_t i = 0; i < count; i++) {
        const ty_json *name = ty_json_is_array(keys) ? ty_json_at(keys, i) : keys;
        const char *path;
        place p;
        TY_TRY(ty_json_as_string(name, &path, r->error));
        TY_TRY(find_place(r, object, path, is_needed && count == 1, &p));
        if (!is_found && is_there(&p)) {
            *out = p;
            is_found = true;
        } else if (i == 0)
            *out = p;
        else if (p.object != NULL)
            ty_json_ignore(p.object, p.key);
    }
    return TY_OK;
}

/* "relu", "gated-*", "*attention*" */
bool ty_steps_is_like(const steps_reader *r, const char *pattern, const char *text)
{
    int (*const compare)(const char *, const char *, size_t) =
        r->pairs != NULL ? strncasecmp : strncmp;
    const bool is_open = pattern[0] == '*' && pattern[1] != '\0'; /* a single '*' is literal */
    const size_t length = strlen(pattern), all = strlen(text);
    const bool is_end_open = length > 1 && pattern[length - 1] == '*';
    const size_t middle = length - is_open - is_end_open;

    for (size_t at = 0; at + middle <= all && (at == 0 || is_open); at++)
        if (compare(text + at, pattern + is_open, middle) == 0 &&
            (is_end_open || at + middle == all))
            return true;
    return false;
}

/* Refuses a shell variable set outside the script, which has no literal value. */
static ty_status check_literal(const steps_reader *r, const ty_json *step, const place *p)
{
    return p->pair != NULL && ty_json_has(step, "literal") && strchr(p->pair->value, '$') != NULL
               ? ty_steps_fail_pair(r, p->pair, "a value")
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

/* The number of a text in "words"; null refuses it. "otherwise" is the number of other texts, which
 * are refused without it. */
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
        if (is_accepted && !is_refused && ty_steps_is_like(r, word, text)) {
            status = ty_steps_value(r, words, word, 0, out);
            goto done;
        }
        is_refused = is_refused || ty_steps_is_like(r, word, text);
        if (is_accepted)
            ty_text_addf(&expected, "%s%s", expected.length > 0 ? ", " : "", word);
    }
    if (ty_json_has(step, "otherwise") && !is_refused)
        status = ty_steps_value(r, step, "otherwise", 0, out);
    else if (p->pair != NULL)
        status = ty_steps_fail_pair(r, p->pair, expected.data != NULL ? expected.data : "no word");
    else if ((status = node_of(r, p, &node)) == TY_OK)
        status = ty_json_fail(node, r->error, "one of %s",
                              expected.data != NULL ? expected.data : "no words");
done:
    ty_text_clear(&expected);
    return status;
}

typedef enum value_kind { A_SIZE, A_NUMBER, A_FLAG, A_WORD, A_SIDE, A_COUNT, A_DEGREE } value_kind;

/* Reads two equal sides. */
static ty_status read_sides(const steps_reader *r, const ty_json *list, double *out)
{
    uint64_t sides[2];

    if (ty_json_size(list) != 2)
        return ty_json_fail(list, r->error, "2 elements");
    for (size_t i = 0; i < 2; i++)
        TY_TRY(ty_json_as_uint64(ty_json_at(list, i), 1, INT32_MAX, &sides[i], r->error));
    if (sides[0] != sides[1])
        return ty_json_fail(list, r->error, "two equal sides");
    *out = (double)sides[0];
    return TY_OK;
}

static ty_status read_size(steps_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;
    uint64_t size;
    ty_status status = TY_OK;

    TY_TRY(ty_steps_value(r, step, "minimum", 1, &minimum));
    TY_TRY(ty_steps_value(r, step, "maximum", INT32_MAX, &maximum));
    status = p->element != NULL ? ty_json_as_uint64(p->element, (uint64_t)minimum,
                                                    (uint64_t)maximum, &size, r->error)
                                : ty_json_uint64(p->object, p->key, (uint64_t)minimum,
                                                 (uint64_t)maximum, &size, r->error);
    if (status == TY_OK)
        *out = (double)size;
    return status;
}

static ty_status read_number(steps_reader *r, const ty_json *step, const place *p, double *out)
{
    double minimum, maximum;

    TY_TRY(ty_steps_value(r, step, "minimum", 0, &minimum));
    TY_TRY(ty_steps_value(r, step, "maximum", INT32_MAX, &maximum));
    return ty_json_number(p->object, p->key, minimum, maximum, out, r->error);
}

/* ---- Settings of training programs: texts ---------------------------------------------------- */

ty_status ty_steps_fail_pair(const steps_reader *reader, const training_pair *pair,
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

/* A decimal number, independent of the locale. */
static ty_status parse_number(const char *text, double minimum, double maximum, double *out)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "number", &document, NULL);

    if (status == TY_OK)
        status = ty_json_as_number(ty_json_root(document), minimum, maximum, out, NULL);
    ty_json_free(document);
    return status;
}

/* Number of lists in a list, or of occurrences of "of" in the text. */
static ty_status count_in(const steps_reader *r, const ty_json *step, const char *text, double *out)
{
    const char *mark = "[";
    int depth = 0;

    if (ty_json_has(step, "of"))
        TY_TRY(ty_json_string(step, "of", &mark, r->error));
    for (*out = 0; *text != '\0'; text++) {
        depth += *text == '[';
        *out += *text == mark[0] && (*text != '[' || depth == 2);
        depth -= *text == ']' && depth > 0;
    }
    return TY_OK;
}

/* -1 and "auto" leave a size open. */
static ty_status read_pair(steps_reader *r, const ty_json *step, value_kind kind,
                           const training_pair *p, double *out)
{
    const bool is_degree = kind == A_DEGREE, is_number = kind == A_NUMBER;
    char expected[80];
    double minimum, maximum, number;
    uint64_t size = 0;
    ty_status status = TY_OK;

    if (kind == A_FLAG) {
        *out = strcasecmp(p->value, "true") == 0;
        return TY_OK;
    }
    if (kind == A_WORD) {
        TY_TRY(check_literal(r, step, &(place){.pair = p}));
        return find_word(r, step, &(place){.pair = p}, p->value, out);
    }
    if (kind == A_COUNT)
        return count_in(r, step, p->value, out);
    if (is_degree && (strcmp(p->value, "-1") == 0 || strcmp(p->value, "auto") == 0))
        return TY_OK;
    TY_TRY(ty_steps_value(r, step, "minimum", is_degree || is_number ? 0 : 1, &minimum));
    TY_TRY(ty_steps_value(r, step, "maximum",
                          is_degree   ? 1 << 30
                          : is_number ? 1e6
                                      : INT32_MAX,
                          &maximum));
    status = is_number ? parse_number(p->value, minimum, maximum, &number)
                       : ty_parse_uint(p->value, (uint64_t)minimum, (uint64_t)maximum, &size, NULL);
    if (status == TY_ENOMEM)
        return ty_steps_out_of_memory(r);
    snprintf(expected, sizeof expected, "a %snumber from %.10g to %.10g", is_number ? "" : "whole ",
             minimum, maximum);
    if (status != TY_OK)
        return ty_steps_fail_pair(r, p, is_degree ? "a whole number" : expected);
    *out = is_number ? number : (double)size;
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

/* Reads a key that exists or is required. */
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
        TY_TRY(node_of(r, p, &node));
    if (kind == A_WORD || (has_words && node != NULL && ty_json_is_string(node))) {
        TY_TRY(text_of(r, p, &text));
        status = find_word(r, step, p, text, out);
    } else if (kind == A_FLAG) {
        TY_TRY(ty_json_bool(p->object, p->key, &is_on, r->error));
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
    return status;
}

/* @param member the keys: of a step's "sizes" and the like; @param out unchanged if the
 *               configuration lacks it */
static ty_status read_key(steps_reader *r, const ty_json *step, value_kind kind,
                          const ty_json *object, const ty_json *keys, bool is_needed,
                          bool *is_given, double *out)
{
    place p = {0};
    const ty_json *list;

    TY_TRY(find_keys(r, object, keys, is_needed, &p));
    if (ty_json_has(step, "or_list") && p.object != NULL && ty_json_has(p.object, p.key) &&
        ty_json_array(p.object, p.key, 0, SIZE_MAX, &list, NULL) == TY_OK)
        return TY_OK; /* another step's to read */
    if (!is_needed && !is_there(&p))
        return TY_OK;
    *is_given = *is_given || is_there(&p);
    return read_place(r, step, kind, &p, out);
}

/* ---- Steps: keys ----------------------------------------------------------------------------- */

/* For sizes the first existing key counts, for flags and words the last. */
static ty_status read_member(steps_reader *r, const ty_json *step, const ty_json *keys,
                             value_kind kind, steps_variable *v)
{
    const bool has_each = (kind == A_FLAG || kind == A_WORD) && ty_json_is_array(keys);
    double needed, value = v->value;
    bool is_given = v->is_given;

    TY_TRY(ty_steps_value(r, step, "needed", 0, &needed));
    for (size_t i = 0; i < (has_each ? ty_json_size(keys) : 1); i++)
        TY_TRY(read_key(r, step, kind, r->scope->object, has_each ? ty_json_at(keys, i) : keys,
                        needed != 0 && v->value == 0, &is_given, &value));
    v->value = value;
    v->is_given = is_given;
    return TY_OK;
}

static ty_status read_members(steps_reader *r, const ty_json *step, const char *member,
                              value_kind kind)
{
    const ty_json *table;
    steps_variable *v;

    TY_TRY(ty_json_object(step, member, &table, r->error));
    for (size_t i = 0; i < ty_json_size(table); i++) {
        TY_TRY(ty_steps_make(r, r->scope, ty_json_key(ty_json_at(table, i)), &v));
        TY_TRY(read_member(r, step, ty_json_at(table, i), kind, v));
    }
    return TY_OK;
}

/* Sets a flag per pattern: whether a text matches it. */
static ty_status run_matches(steps_reader *r, const ty_json *step)
{
    const ty_json *patterns, *keys;
    const char *text = "", *pattern;
    place p = {0};
    ty_status status = TY_OK;

    TY_TRY(ty_json_member(step, "keys", &keys, r->error));
    TY_TRY(find_keys(r, r->scope->object, keys, false, &p));
    TY_TRY(check_literal(r, step, &p));
    if (is_there(&p) && (status = text_of(r, &p, &text)) != TY_OK && p.element == NULL)
        return status;
    TY_TRY(ty_json_object(step, "matches", &patterns, r->error));
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        TY_TRY(ty_json_as_string(ty_json_at(patterns, i), &pattern, r->error));
        TY_TRY(ty_steps_set(r, ty_json_key(ty_json_at(patterns, i)),
                            ty_steps_is_like(r, pattern, text)));
    }
    return TY_OK;
}

/* The text of the pattern that `text` matches; null: `text` itself. */
static ty_status choose_text(const steps_reader *r, const ty_json *patterns, const char *text,
                             const char **out)
{
    for (size_t i = 0; i < ty_json_size(patterns); i++) {
        const char *pattern = ty_json_key(ty_json_at(patterns, i));
        if (!ty_steps_is_like(r, pattern, text))
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

    TY_TRY(ty_json_object(step, "text", &table, r->error));
    for (size_t i = 0; i < ty_json_size(table); i++)
        TY_TRY(ty_steps_make(r, r->scope, ty_json_key(ty_json_at(table, i)), &v));
    if (ty_json_has(step, "keys")) {
        TY_TRY(ty_json_member(step, "keys", &keys, r->error));
        TY_TRY(find_keys(r, r->scope->object, keys, false, &p));
        if (!is_there(&p))
            return TY_OK;
        TY_TRY(check_literal(r, step, &p));
        TY_TRY(text_of(r, &p, &found));
    }
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const ty_json *value = ty_json_at(table, i);
        const char *name = ty_json_key(value);
        TY_TRY(ty_steps_make(r, r->scope, name, &v));
        if (!ty_json_has(table, name))
            v->text = NULL;
        else if (ty_json_is_object(value) && found != NULL)
            TY_TRY(choose_text(r, value, found, &v->text));
        else if (ty_json_bool(table, name, &is_itself, NULL) == TY_OK)
            v->text = found;
        else
            TY_TRY(ty_json_as_string(value, &v->text, r->error));
        v->value = v->text != NULL;
        v->is_given = v->is_given || found != NULL;
    }
    return TY_OK;
}

/* ---- Steps: a number for each block ---------------------------------------------------------- */

static ty_status make_list(steps_reader *r, const char *name, uint64_t blocks, steps_variable **out)
{
    ty_status status = ty_steps_make(r, r->scope, name, out);

    if (status != TY_OK)
        return status;
    (*out)->of_blocks = ty_arena_alloc(r->arena, blocks + 1, sizeof *(*out)->of_blocks);
    if ((*out)->of_blocks == NULL)
        return ty_steps_out_of_memory(r);
    (*out)->block_count = blocks;
    return TY_OK;
}

static ty_status read_list(steps_reader *r, const ty_json *step, const char *member,
                           steps_variable **v, const ty_json **out, uint64_t *blocks)
{
    const ty_json *keys;
    const char *name;
    place p = {0};

    *out = NULL;
    TY_TRY(ty_json_string(step, member, &name, r->error));
    TY_TRY(ty_json_member(step, "keys", &keys, r->error));
    TY_TRY(ty_steps_count_blocks(r, blocks));
    TY_TRY(make_list(r, name, *blocks, v));
    TY_TRY(find_keys(r, r->scope->object, keys, ty_json_has(step, "needed"), &p));
    if (is_there(&p) || ty_json_has(step, "needed"))
        TY_TRY(node_of(r, &p, out));
    if (*out != NULL && ty_json_has(step, "or_number") && !ty_json_is_array(*out)) {
        *out = NULL; /* another step's to read */
        return TY_OK;
    }
    (*v)->is_given = *out != NULL;
    return TY_OK;
}

/* One element per block: a size, or "flag", "number" or "word" by "of". "at" is a key in it, read
 * and required only in blocks in which "where" holds. */
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
        TY_CHECK(ty_steps_value(r, step, "where", 1, &applies), status, done);
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

/* Listed block numbers: 1 for those, 0 for others. */
static ty_status run_indices(steps_reader *r, const ty_json *step)
{
    const ty_json *list;
    steps_variable *v = NULL;
    uint64_t blocks = 0, block;
    ty_status status = TY_OK;

    TY_TRY(read_list(r, step, "indices", &v, &list, &blocks));
    if (list != NULL && (!ty_json_is_array(list) || ty_json_size(list) > blocks))
        status = ty_json_fail(list, r->error, "an array of at most %llu elements",
                              (unsigned long long)blocks);
    for (size_t i = 0; list != NULL && status == TY_OK && i < ty_json_size(list); i++) {
        status = ty_json_as_uint64(ty_json_at(list, i), 0, blocks - 1, &block, r->error);
        if (status == TY_OK)
            v->of_blocks[block] = 1;
    }
    return status;
}

/* A text of one letter per block. */
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

/* Sets numbers per block; a number set earlier applies to the block. */
static ty_status run_block(steps_reader *r, const ty_json *step)
{
    const ty_json *table;
    uint64_t blocks;
    ty_status status;

    TY_CHECK(ty_json_object(step, "block", &table, r->error), status, done);
    TY_CHECK(ty_steps_count_blocks(r, &blocks), status, done);
    for (size_t i = 0; i < ty_json_size(table); i++) {
        const ty_json *value = ty_json_at(table, i);
        double *own = ty_arena_alloc(r->arena, blocks + 1, sizeof *own);
        char *name = ty_arena_alloc(r->arena, strlen(ty_json_key(value)) + 7, 1);
        steps_variable *v;
        if (own == NULL || name == NULL)
            return ty_steps_out_of_memory(r);
        memcpy(name, "block.", 6);
        memcpy(name + 6, ty_json_key(value), strlen(ty_json_key(value)) + 1);
        for (r->block = 0; r->block < blocks; r->block++)
            TY_CHECK(ty_steps_value(r, table, ty_json_key(value), 0, &own[r->block]), status, done);
        r->block = UINT64_MAX;
        TY_CHECK(ty_steps_make(r, r->scope, name, &v), status, done);
        v->of_blocks = own;
        v->block_count = blocks;
    }
done:
    r->block = UINT64_MAX;
    return status;
}

/* ---- Kinds ----------------------------------------------------------------------------------- */

const training_pair *ty_steps_find_setting(const steps_reader *reader, const char *key)
{
    return *key == '/' || strchr(key, '.') != NULL
               ? ty_training_pair_of(reader->pairs, key + (*key == '/'))
               : ty_training_pair_called(reader->pairs, key);
}

static const struct {
    const char *key;
    value_kind kind;
} values[] = {
    {"sizes", A_SIZE}, {"flags", A_FLAG},   {"numbers", A_NUMBER}, {"word", A_WORD},
    {"sides", A_SIDE}, {"counts", A_COUNT}, {"degrees", A_DEGREE},
};

static const struct {
    const char *key;
    ty_status (*run)(steps_reader *r, const ty_json *step);
} others[] = {
    {"matches", run_matches}, {"text", run_text},       {"list", run_list},
    {"indices", run_indices}, {"letters", run_letters}, {"block", run_block},
};

ty_status ty_steps_run_keys(steps_reader *reader, const ty_json *step, bool *is_done)
{
    *is_done = true;
    for (size_t i = 0; i < COUNT(others); i++)
        if (ty_json_has(step, others[i].key))
            return others[i].run(reader, step);
    for (size_t i = 0; i < COUNT(values); i++)
        if (ty_json_has(step, values[i].key))
            return read_members(reader, step, values[i].key, values[i].kind);
    *is_done = false;
    return TY_OK;
}
