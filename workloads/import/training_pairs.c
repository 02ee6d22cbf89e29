/* TOML, YAML and JSON as a flat list of keys and scalars. The subset of TOML (toml.io, 1.0) in
 * configuration files of training programs: tables, bare and dotted keys, scalars; arrays as text.
 * Resolves OmegaConf interpolations in YAML (omegaconf.readthedocs.io, 2.3). */
#include "training_pairs.h"

#include "yml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_LIMIT = 32, PAIR_LIMIT = 100000 };

void ty_training_pairs_clear(training_pairs *pairs)
{
    ty_free(pairs->pairs);
    ty_arena_free(pairs->arena);
    *pairs = (training_pairs){0};
}

static ty_status add_pair(training_pairs *p, const char *key, const char *value, size_t length,
                          unsigned line, ty_error *error)
{
    char *own;

    if (p->count == PAIR_LIMIT)
        return ty_fail(error, TY_EPARSE, "found more than %d settings, expected fewer", PAIR_LIMIT);
    if (p->count == p->room) {
        uint32_t room = p->room == 0 ? 64 : 2 * p->room;
        training_pair *grown = ty_resize(p->pairs, room, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        p->pairs = grown;
        p->room = room;
    }
    own = ty_arena_alloc(p->arena, length + 1, 1);
    if (own == NULL || (key = ty_arena_strdup(p->arena, key)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a configuration");
    memcpy(own, value, length);
    own[length] = '\0';
    p->pairs[p->count++] = (training_pair){.key = key, .value = own, .line = line};
    return TY_OK;
}

ty_status ty_training_pairs_put(training_pairs *pairs, const char *key, const char *value,
                                unsigned line, ty_error *error)
{
    for (uint32_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pairs[i].key, key) == 0) {
            memmove(&pairs->pairs[i], &pairs->pairs[i + 1],
                    (--pairs->count - i) * sizeof *pairs->pairs);
            break;
        }
    return add_pair(pairs, key, value, strlen(value), line, error);
}

void ty_training_pairs_unread(training_pairs *pairs)
{
    for (uint32_t i = 0; i < pairs->count; i++)
        pairs->pairs[i].is_read = false;
}

bool ty_training_pair_is_read(const training_pairs *pairs, const char *key, size_t length)
{
    for (uint32_t i = 0; i < pairs->count; i++) {
        const char *own = pairs->pairs[i].key;
        size_t c = 0;
        while (c < length && own[c] == (key[c] == '-' ? '_' : key[c]))
            c++;
        if (c == length && own[c] == '\0')
            return pairs->pairs[i].is_read;
    }
    return false;
}

static const training_pair *filled(training_pair *p)
{
    p->is_read = true;
    return p->value[0] != '\0' ? p : NULL;
}

const training_pair *ty_training_pair_of(const training_pairs *pairs, const char *key)
{
    for (uint32_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pairs[i].key, key) == 0)
            return filled(&pairs->pairs[i]);
    return NULL;
}

const training_pair *ty_training_pair_called(const training_pairs *pairs, const char *name)
{
    for (uint32_t i = 0; i < pairs->count; i++) {
        const char *dot = strrchr(pairs->pairs[i].key, '.');
        if (strcmp(dot != NULL ? dot + 1 : pairs->pairs[i].key, name) == 0 &&
            filled(&pairs->pairs[i]) != NULL)
            return &pairs->pairs[i];
    }
    return NULL;
}

static bool is_null(const char *text)
{
    return strcmp(text, "null") == 0 || strcmp(text, "~") == 0 || strcmp(text, "None") == 0;
}

/* ---- YAML and JSON --------------------------------------------------------------------------- */

#define KEY_ROOM 256

static void join(char out[KEY_ROOM], const char *prefix, const char *key)
{
    snprintf(out, KEY_ROOM, "%.120s%s%.120s", prefix, prefix[0] != '\0' ? "." : "", key);
}

static ty_status add_yml(training_pairs *p, const char *prefix, yml_node node, int depth,
                         ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; yml_is_mapping(node) && i < yml_size(node) && status == TY_OK; i++) {
        yml_node key, value = yml_at(node, i, &key);
        const char *text = yml_text(value);
        char name[KEY_ROOM];
        join(name, prefix, yml_text(key));
        if (yml_is_mapping(value) && depth < DEPTH_LIMIT)
            status = add_yml(p, name, value, depth + 1, error);
        else if (!yml_is_mapping(value) && !yml_is_sequence(value))
            status = add_pair(p, name, is_null(text) ? "" : text, is_null(text) ? 0 : strlen(text),
                              yml_line(value), error);
    }
    return status;
}

static ty_status add_json(training_pairs *p, const char *prefix, const ty_json *object, int depth,
                          ty_error *error)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < ty_json_size(object) && status == TY_OK; i++) {
        const ty_json *value = ty_json_at(object, i);
        char name[KEY_ROOM], *text = NULL;
        const char *string = NULL;
        join(name, prefix, ty_json_key(value));
        if (ty_json_is_object(value)) {
            status = depth < DEPTH_LIMIT ? add_json(p, name, value, depth + 1, error) : TY_OK;
            continue;
        }
        if (ty_json_is_array(value))
            continue;
        if (ty_json_is_string(value) && ty_json_as_string(value, &string, NULL) == TY_OK) {
            status = add_pair(p, name, string, strlen(string), 0, error);
            continue;
        }
        TY_TRY(ty_json_text(value, &text, error));
        status = add_pair(p, name, text, is_null(text) ? 0 : strlen(text), 0, error);
        ty_free(text);
    }
    return status;
}

/* ---- TOML ------------------------------------------------------------------------------------ */

typedef struct toml {
    const char *path, *at, *end;
    unsigned line;
    char table[KEY_ROOM];
    training_pairs *out;
    ty_error *error;
} toml;

static ty_status fail(const toml *t, const char *expected)
{
    return ty_fail(t->error, TY_EPARSE, "%.200s:%u: found \"%.*s\", expected %s", t->path, t->line,
                   (int)(t->end - t->at < 40 ? t->end - t->at : 40), t->at, expected);
}

static void skip_blank(toml *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
        t->at++;
}

/* Bare or quoted parts joined by dots. */
static ty_status read_key(toml *t, char out[KEY_ROOM])
{
    size_t length = 0;
    char quote = '\0';

    for (; t->at < t->end; t->at++) {
        char c = *t->at;
        if (quote != '\0' ? c == quote : c == '"' || c == '\'') {
            quote = quote != '\0' ? '\0' : c;
            continue;
        }
        if (quote == '\0' && !isalnum((unsigned char)c) && strchr("_-.", c) == NULL)
            break;
        if (length + 1 == KEY_ROOM)
            return fail(t, "a shorter key");
        out[length++] = c;
    }
    out[length] = '\0';
    skip_blank(t);
    return length > 0 && quote == '\0' ? TY_OK : fail(t, "a key");
}

/* A text in quotes; keeps escapes unchanged: sizes and names have none. */
static ty_status read_quoted(toml *t, const char *key)
{
    char quote = *t->at++;
    const char *start = t->at;

    while (t->at < t->end && *t->at != quote)
        t->at += *t->at == '\\' && quote == '"' && t->at + 1 < t->end ? 2 : 1;
    if (t->at >= t->end)
        return fail(t, "the quote that ends a text on its line");
    return add_pair(t->out, key, start, (size_t)(t->at++ - start), t->line, t->error);
}

/* A number or a boolean; drops underscores between digits. */
static ty_status read_bare(toml *t, const char *key)
{
    char value[128];
    size_t length = 0;

    while (t->at < t->end && *t->at != '#' && !isspace((unsigned char)*t->at)) {
        if (length + 1 == sizeof value)
            return fail(t, "a shorter value");
        if (*t->at != '_')
            value[length++] = *t->at;
        t->at++;
    }
    if (length == 0)
        return fail(t, "a value");
    return add_pair(t->out, key, value, length, t->line, t->error);
}

/* Skips a nested value, which may span lines. */
static ty_status skip_nested(toml *t, const char *bytes_end)
{
    int depth = 0;
    char quote = '\0';

    for (;; t->at++) {
        if (t->at >= t->end) { /* of the line */
            if (t->end >= bytes_end)
                return fail(t, "the end of an array or table");
            t->line++;
            t->at = t->end;
            t->end = memchr(t->at + 1, '\n', (size_t)(bytes_end - t->at - 1));
            if (t->end == NULL)
                t->end = bytes_end;
        }
        if (quote != '\0' || *t->at == '"' || *t->at == '\'')
            quote = quote == *t->at ? '\0' : quote != '\0' ? quote : *t->at;
        else if (*t->at == '#')
            t->at = t->end - 1;
        else
            depth += (*t->at == '[' || *t->at == '{') - (*t->at == ']' || *t->at == '}');
        if (depth == 0) {
            t->at++;
            return TY_OK;
        }
    }
}

/* Its text, from bracket to bracket. */
static ty_status read_array(toml *t, const char *key, const char *bytes_end)
{
    const char *start = t->at;
    const uint32_t line = t->line;
    ty_status status = skip_nested(t, bytes_end);

    return status == TY_OK ? add_pair(t->out, key, start, (size_t)(t->at - start), line, t->error)
                           : status;
}

static ty_status read_toml_line(toml *t, const char *bytes_end)
{
    char key[KEY_ROOM], name[KEY_ROOM];
    ty_status status = TY_OK;

    skip_blank(t);
    if (t->at == t->end || *t->at == '#' || *t->at == '\r')
        return TY_OK;
    if (*t->at == '[') {
        t->at += t->at + 1 < t->end && t->at[1] == '[' ? 2 : 1;
        skip_blank(t);
        TY_TRY(read_key(t, t->table));
        return t->at < t->end && *t->at == ']' ? TY_OK : fail(t, "] behind the name of a table");
    }
    TY_TRY(read_key(t, key));
    if (t->at == t->end || *t->at != '=')
        return fail(t, "KEY = VALUE");
    t->at++;
    skip_blank(t);
    join(name, t->table, key);
    if (t->at < t->end && (*t->at == '"' || *t->at == '\''))
        status = read_quoted(t, name);
    else if (t->at < t->end && *t->at == '[')
        status = read_array(t, name, bytes_end);
    else if (t->at < t->end && *t->at == '{')
        status = skip_nested(t, bytes_end);
    else
        status = read_bare(t, name);
    return status;
}

static ty_status read_toml(const char *path, const char *bytes, size_t length, training_pairs *out,
                           ty_error *error)
{
    toml t = {.path = path, .out = out, .error = error};
    const char *end = bytes + length, *next = bytes;
    ty_status status = TY_OK;

    while (next < end && status == TY_OK) {
        t.line++;
        t.at = next;
        t.end = memchr(next, '\n', (size_t)(end - next));
        if (t.end == NULL)
            t.end = end;
        status = read_toml_line(&t, end);
        next = t.end + 1;
    }
    return status;
}

/* ---- Interpolations: "${trainer.devices}", "${.hidden_size}", "${multiply:4, ${.hidden_size}}" -
 */

enum { DEEPEST_EXPANSION = 8, MOST_EXPANSIONS = 100, TEXT_ROOM = 256 };

typedef struct expansion {
    const training_pairs *pairs;
    uint32_t count; /* of one value */
} expansion;

static bool expand_text(expansion *e, const char *key, const char *text, int depth,
                        char out[TEXT_ROOM]);

/* The end of the "${...}" at `at`; NULL: unterminated. */
static const char *interpolation_end(const char *at)
{
    int depth = 0;

    for (; *at != '\0'; at++) {
        depth += (at[0] == '$' && at[1] == '{') - (at[0] == '}');
        if (depth == 0 && *at == '}')
            return at + 1;
    }
    return NULL;
}

/* Evaluates NeMo's resolvers of two numbers; for OmegaConf's environment variables, only the
 * default is known. */
static bool resolve(const char *name, const char *arguments, char out[TEXT_ROOM])
{
    char left[TEXT_ROOM], *comma;
    uint64_t a, b, result;

    snprintf(left, sizeof left, "%s", arguments);
    comma = strchr(left, ',');
    if (comma == NULL)
        return false;
    *comma++ = '\0';
    comma += strspn(comma, " ");
    if (strcmp(name, "oc.env") == 0) {
        snprintf(out, TEXT_ROOM, "%s", comma);
        return true;
    }
    left[strcspn(left, " ")] = '\0';
    if (ty_parse_uint(left, 0, UINT32_MAX, &a, NULL) != TY_OK ||
        ty_parse_uint(comma, 1, UINT32_MAX, &b, NULL) != TY_OK)
        return false;
    if (strcmp(name, "multiply") == 0)
        result = a * b;
    else if (strcmp(name, "divide_floor") == 0)
        result = a / b;
    else if (strcmp(name, "divide_ceil") == 0)
        result = (a + b - 1) / b;
    else
        return false;
    snprintf(out, TEXT_ROOM, "%llu", (unsigned long long)result);
    return true;
}

/* `inside`: text in the braces of an interpolation in the value of `key`. */
static bool look_up(expansion *e, const char *key, const char *inside, int depth,
                    char out[TEXT_ROOM])
{
    char near[KEY_ROOM] = "", name[KEY_ROOM], expanded[TEXT_ROOM], *colon;
    const training_pair *found;

    if (!expand_text(e, key, inside, depth + 1, expanded))
        return false;
    colon = strchr(expanded, ':');
    if (colon != NULL) {
        *colon = '\0';
        return resolve(expanded, colon + 1, out);
    }
    inside = expanded;
    if (*inside == '.') /* in the same mapping; each further dot goes one level out */
        snprintf(near, sizeof near, "%s", key);
    for (; *inside == '.'; inside++) {
        char *dot = strrchr(near, '.');
        *(dot != NULL ? dot : near) = '\0';
    }
    join(name, near, inside);
    found = ty_training_pair_of(e->pairs, name);
    return found != NULL && expand_text(e, found->key, found->value, depth + 1, out);
}

/* A value with its interpolations replaced; false if one is unknown. */
static bool expand_text(expansion *e, const char *key, const char *text, int depth,
                        char out[TEXT_ROOM])
{
    size_t length = 0;

    if (depth > DEEPEST_EXPANSION || ++e->count > MOST_EXPANSIONS)
        return false;
    while (*text != '\0') {
        char inside[TEXT_ROOM], value[TEXT_ROOM];
        const char *end = text[0] == '$' && text[1] == '{' ? interpolation_end(text) : NULL;
        if (end == NULL) {
            value[0] = *text++;
            value[1] = '\0';
        } else {
            if (end - text > TEXT_ROOM)
                return false;
            snprintf(inside, sizeof inside, "%.*s", (int)(end - text - 3), text + 2);
            if (!look_up(e, key, inside, depth, value))
                return false;
            text = end;
        }
        if (length + strlen(value) >= TEXT_ROOM)
            return false;
        length += (size_t)snprintf(out + length, TEXT_ROOM - length, "%s", value);
    }
    out[length] = '\0';
    return true;
}

/* Unknown interpolations stay, and are refused where a number is needed. */
static ty_status expand_all(training_pairs *p, ty_error *error)
{
    for (uint32_t i = 0; i < p->count; i++) {
        expansion e = {.pairs = p};
        char value[TEXT_ROOM];
        if (strstr(p->pairs[i].value, "${") == NULL ||
            !expand_text(&e, p->pairs[i].key, p->pairs[i].value, 0, value))
            continue;
        p->pairs[i].value = ty_arena_strdup(p->arena, is_null(value) ? "" : value);
        TY_TRY(ty_check_memory(p->pairs[i].value != NULL, error));
    }
    return TY_OK;
}

/* ---- Which ----------------------------------------------------------------------------------- */

/* Whether a line is only a table's name, which YAML does not have. */
static bool looks_like_toml(const char *bytes)
{
    for (const char *at = bytes; at != NULL && *at != '\0';
         at = strchr(at, '\n'), at = at != NULL ? at + 1 : NULL) {
        size_t name = *at == '[' ? strspn(at + 1, "abcdefghijklmnopqrstuvwxyz_.-0123456789") : 0;
        if (name > 0 && at[1 + name] == ']' &&
            strchr("\r\n #", at[2 + name]) != NULL) /* including the end of the text */
            return true;
    }
    return false;
}

ty_status ty_training_pairs_read(const char *path, const char *bytes, size_t length,
                                 training_pairs *out, ty_text *unknown, ty_error *error)
{
    ty_json_document *json = NULL;
    yml_document *yml = NULL;
    ty_status status = TY_OK;

    ty_skip_mark(&bytes, &length);
    *out = (training_pairs){.arena = ty_arena_new()};
    TY_TRY(ty_check_memory(out->arena != NULL, error));
    if (bytes[strspn(bytes, " \t\r\n")] == '{') {
        TY_CHECK(ty_json_parse_foreign(bytes, length, path, unknown, &json, error), status,
                 cleanup);
        status = add_json(out, "", ty_json_root(json), 0, error);
    } else if (looks_like_toml(bytes)) {
        status = read_toml(path, bytes, length, out, error);
    } else {
        TY_CHECK(yml_parse(bytes, length, path, &yml, error), status, cleanup);
        TY_CHECK(add_yml(out, "", yml_root(yml), 0, error), status, cleanup);
        status = expand_all(out, error);
    }

cleanup:
    ty_json_free(json);
    yml_free(yml);
    return status;
}
