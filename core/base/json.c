/*
 * Reading JSON. json_scan.c checks the text and cJSON builds the values. This file gives each a
 * node with its parent (for pointers in messages) and a mark when it is read (to find unknown
 * keys).
 */
#include "ty_json.h"

#include "json_scan.h"
#include "ty_base.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Optional keys that were requested and absent: an unknown key is probably a misspelling of one.
 * The document stores their names, each object a bit per name. */
#define MAX_ASKED 64

struct ty_json {
    cJSON *item;
    ty_json *parent; /* NULL: the root */
    ty_json *children;
    ty_json_document *document;
    size_t size;
    uint64_t asked;
    bool is_read;
};

struct ty_json_document {
    char *name;
    cJSON *tree;
    ty_json *nodes; /* breadth first, so children are contiguous; [0] is the root */
    size_t node_count;
    char *asked[MAX_ASKED];
    size_t asked_count;
};

/* Reading marks nodes of a document that its only reader owns; the const is for that reader. */
static ty_json *writable(const ty_json *value)
{
    return value->document->nodes + (value - value->document->nodes);
}

/* ---- places and messages ---- */

typedef struct line { /* a fixed buffer that truncates */
    char *data;
    size_t length, size;
} line;

static void line_add(line *to, const char *bytes, size_t length)
{
    size_t room = to->size - 1 - to->length;
    if (length > room)
        length = room;
    memcpy(to->data + to->length, bytes, length);
    to->length += length;
    to->data[to->length] = '\0';
}

/* "/key" with ~ and / escaped as in RFC 6901. */
static void line_add_key(line *to, const char *key)
{
    line_add(to, "/", 1);
    for (; *key != '\0'; key++) {
        if (*key == '~' || *key == '/')
            line_add(to, *key == '~' ? "~0" : "~1", 2);
        else
            line_add(to, (unsigned char)*key < 0x20 ? "?" : key, 1);
    }
}

static void place_of(const ty_json *value, const char *key, char *out, size_t size)
{
    const ty_json *path[TY_JSON_MAX_DEPTH + 1];
    size_t depth = 0;
    line to = {out, 0, size};

    for (const ty_json *v = value; v->parent != NULL; v = v->parent)
        path[depth++] = v;
    out[0] = '\0';
    line_add(&to, value->document->name, strlen(value->document->name));
    line_add(&to, ":", 1);
    while (depth-- > 0) {
        const ty_json *v = path[depth];
        char index[24];
        if (cJSON_IsObject(v->parent->item)) {
            line_add_key(&to, v->item->string);
            continue;
        }
        snprintf(index, sizeof index, "/%zu", (size_t)(v - v->parent->children));
        line_add(&to, index, strlen(index));
    }
    if (key != NULL)
        line_add_key(&to, key);
}

void ty_json_place(const ty_json *value, char out[TY_JSON_PLACE_SIZE])
{
    place_of(value, NULL, out, TY_JSON_PLACE_SIZE);
}

/* The value for a message, shortened. */
static void describe(const ty_json *value, char out[64])
{
    const cJSON *item = value->item;

    if (cJSON_IsNumber(item) && isfinite(item->valuedouble)) {
        ty_format_number(item->valuedouble, out);
    } else if (cJSON_IsString(item)) {
        size_t length = strlen(item->valuestring), shown = length < 40 ? length : 40;
        while (shown < length && ((unsigned char)item->valuestring[shown] & 0xC0) == 0x80)
            shown--; /* do not cut a character in two */
        snprintf(out, 64, "\"%.*s%s\"", (int)shown, item->valuestring, shown < length ? "..." : "");
        for (char *c = out; *c != '\0'; c++) {
            if ((unsigned char)*c < 0x20)
                *c = ' ';
        }
    } else if (cJSON_IsArray(item)) {
        snprintf(out, 64, "an array of %zu", value->size);
    } else {
        snprintf(out, 64, "%s",
                 cJSON_IsObject(item)   ? "an object"
                 : cJSON_IsTrue(item)   ? "true"
                 : cJSON_IsFalse(item)  ? "false"
                 : cJSON_IsNumber(item) ? "NaN, Infinity or a number beyond 1.8e308"
                                        : "null");
    }
}

ty_status ty_json_fail(const ty_json *value, ty_error *error, const char *expected, ...)
{
    char place[TY_JSON_PLACE_SIZE], found[64], wish[160];
    va_list arguments;

    va_start(arguments, expected);
    vsnprintf(wish, sizeof wish, expected, arguments);
    va_end(arguments);
    ty_json_place(value, place);
    describe(value, found);
    return ty_fail(error, TY_EPARSE, "%s%s found %s, expected %s", place,
                   value->parent == NULL ? "" : ":", found, wish);
}

/* ---- parsing ---- */

static void link_children(ty_json_document *document)
{
    size_t next = 1;

    for (size_t i = 0; i < document->node_count; i++) {
        ty_json *node = &document->nodes[i];
        cJSON *child;
        node->document = document;
        node->children = document->nodes + next;
        cJSON_ArrayForEach(child, node->item)
        {
            document->nodes[next].item = child;
            document->nodes[next].parent = node;
            next++;
            node->size++;
        }
    }
}

static int compare_keys(const void *a, const void *b)
{
    const ty_json *const *left = a, *const *right = b;
    int order = strcmp((*left)->item->string, (*right)->item->string);
    if (order != 0)
        return order;
    return *left < *right ? -1 : *left > *right;
}

/* The second member of a duplicate key, or NULL. `sorted` has room for all members. */
static const ty_json *duplicate_member(const ty_json *object, const ty_json **sorted)
{
    for (size_t i = 0; i < object->size; i++)
        sorted[i] = &object->children[i];
    qsort(sorted, object->size, sizeof *sorted, compare_keys);
    for (size_t i = 1; i < object->size; i++) {
        if (strcmp(sorted[i - 1]->item->string, sorted[i]->item->string) == 0)
            return sorted[i];
    }
    return NULL;
}

/* Rejects duplicate keys and numbers that are not finite, which the grammar allows.
 * @param unknown as in parse */
static ty_status check_values(const ty_json_document *document, ty_text *unknown, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json **sorted;
    char place[TY_JSON_PLACE_SIZE];
    size_t most = 0, unknown_count = 0;

    for (size_t i = 0; i < document->node_count; i++) {
        if (cJSON_IsObject(document->nodes[i].item) && document->nodes[i].size > most)
            most = document->nodes[i].size;
    }
    sorted = ty_alloc(most, sizeof *sorted);
    TY_TRY(ty_check_memory(sorted != NULL, error));
    for (size_t i = 0; i < document->node_count; i++) {
        const ty_json *node = &document->nodes[i], *twice;
        if (cJSON_IsNumber(node->item) && !isfinite(node->item->valuedouble)) {
            if (unknown == NULL) {
                status = ty_json_fail(node, error, "a finite number");
                goto cleanup;
            }
            if (unknown_count++ == 0)
                ty_json_place(node, place);
            node->item->type = cJSON_NULL;
        }
        if (cJSON_IsObject(node->item) && (twice = duplicate_member(node, sorted)) != NULL) {
            status = ty_json_fail(twice, error, "each key only once in an object");
            goto cleanup;
        }
    }
    if (unknown_count > 0)
        ty_text_addf(unknown, "%s: NaN or Infinity, treated as unknown", place);
    if (unknown_count > 1)
        ty_text_addf(unknown, ", as are %zu more numbers", unknown_count - 1);

cleanup:
    ty_free(sorted);
    return status;
}

/* @param unknown gets a note on numbers that are not finite, which count as null; NULL: rejects
 *   them */
static ty_status parse(const char *text, size_t length, const char *name, ty_text *unknown,
                       ty_json_document **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    ty_text spelled = {0};
    size_t value_count = 0;
    bool has_python_numbers = false;

    ty_skip_mark(&text, &length); /* RFC 8259, 8.1: may be ignored */
    TY_CHECK(ty_json_scan(text, length, name, &value_count, &has_python_numbers, error), status,
             cleanup);
    if (has_python_numbers) {
        ty_json_spell_out(text, length, &spelled);
        TY_CHECK(ty_text_check(&spelled, error), status, cleanup);
        text = spelled.data;
        length = spelled.length;
    }
    document = ty_alloc(1, sizeof *document);
    if (document != NULL) {
        document->name = ty_strdup(name);
        document->nodes = ty_alloc(value_count, sizeof *document->nodes);
        document->node_count = value_count;
        document->tree = cJSON_ParseWithLengthOpts(text, length, NULL, 0);
    }
    /* The scan accepts only text that cJSON can read, so cJSON fails only without memory. */
    if (document == NULL || document->name == NULL || document->nodes == NULL ||
        document->tree == NULL) {
        status = ty_fail(error, TY_ENOMEM, "%.200s: out of memory", name);
        goto cleanup;
    }
    document->nodes[0].item = document->tree;
    link_children(document);
    TY_CHECK(check_values(document, unknown, error), status, cleanup);
    *out = document;
    document = NULL;

cleanup:
    ty_json_free(document);
    ty_text_clear(&spelled);
    return status;
}

ty_status ty_json_parse(const char *text, size_t length, const char *name, ty_json_document **out,
                        ty_error *error)
{
    return parse(text, length, name, NULL, out, error);
}

ty_status ty_json_parse_foreign(const char *text, size_t length, const char *name, ty_text *unknown,
                                ty_json_document **out, ty_error *error)
{
    return parse(text, length, name, unknown, out, error);
}

ty_status ty_json_load(const char *path, ty_json_document **out, ty_error *error)
{
    char *text = NULL;
    size_t length = 0;
    ty_status status;

    TY_CHECK(ty_file_read(path, 0, &text, &length, error), status, cleanup);
    TY_CHECK(
        ty_json_parse(text, length, strcmp(path, "-") == 0 ? "<standard input>" : path, out, error),
        status, cleanup);

cleanup:
    ty_free(text);
    return status;
}

void ty_json_free(ty_json_document *document)
{
    if (document == NULL)
        return;
    for (size_t i = 0; i < document->asked_count; i++)
        ty_free(document->asked[i]);
    cJSON_Delete(document->tree);
    ty_free(document->nodes);
    ty_free(document->name);
    ty_free(document);
}

/* ---- values ---- */

const ty_json *ty_json_root(const ty_json_document *document)
{
    return document->nodes;
}

size_t ty_json_size(const ty_json *value)
{
    return value->size;
}

const ty_json *ty_json_at(const ty_json *value, size_t i)
{
    ty_json *child = writable(value)->children + i;
    child->is_read = true;
    return child;
}

const char *ty_json_key(const ty_json *value)
{
    return value->item->string;
}

bool ty_json_is_object(const ty_json *value)
{
    return cJSON_IsObject(value->item) != 0;
}

bool ty_json_is_array(const ty_json *value)
{
    return cJSON_IsArray(value->item) != 0;
}

bool ty_json_is_string(const ty_json *value)
{
    return cJSON_IsString(value->item) != 0;
}

bool ty_json_is_number(const ty_json *value)
{
    return cJSON_IsNumber(value->item) != 0;
}

static ty_json *find_member(const ty_json *object, const char *key)
{
    if (!ty_json_is_object(object))
        return NULL;
    for (size_t i = 0; i < object->size; i++) {
        if (strcmp(object->children[i].item->string, key) == 0)
            return writable(object)->children + i;
    }
    return NULL;
}

/* Records that an absent `key` is known. Only a suggestion depends on it, so a lack of memory or
 * space is not a failure. */
static void remember_asked(const ty_json *object, const char *key)
{
    ty_json_document *document = object->document;
    size_t i = 0;

    while (i < document->asked_count && strcmp(document->asked[i], key) != 0)
        i++;
    if (i == MAX_ASKED)
        return;
    if (i == document->asked_count) {
        if ((document->asked[i] = ty_strdup(key)) == NULL)
            return;
        document->asked_count++;
    }
    writable(object)->asked |= (uint64_t)1 << i;
}

bool ty_json_has(const ty_json *object, const char *key)
{
    ty_json *found = find_member(object, key);

    if (found != NULL && !cJSON_IsNull(found->item))
        return true;
    if (found != NULL)
        found->is_read = true; /* null counts as a missing key */
    else
        remember_asked(object, key);
    return false;
}

/* An unread key that may be a misspelling of `key`, or NULL. */
static const char *misspelt_key(const ty_json *object, const char *key)
{
    for (size_t i = 0; i < object->size; i++) {
        const ty_json *member = &object->children[i];
        const char *found = member->item->string;
        if (!member->is_read && ty_suggest(found, &key, 1, sizeof key) != NULL)
            return found;
    }
    return NULL;
}

/* The member, marked as read; if there is none, an error with the expected value. */
static ty_status require(const ty_json *object, const char *key, const char *expected,
                         const ty_json **out, ty_error *error)
{
    ty_json *found = find_member(object, key);
    char place[TY_JSON_PLACE_SIZE];
    const char *misspelt;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error, "an object");
    if (found == NULL) {
        place_of(object, key, place, sizeof place);
        misspelt = misspelt_key(object, key);
        if (misspelt != NULL)
            return ty_fail(error, TY_EPARSE, "%s: found only \"%.40s\", expected %s", place,
                           misspelt, expected);
        return ty_fail(error, TY_EPARSE, "%s: found nothing, expected %s", place, expected);
    }
    found->is_read = true;
    *out = found;
    return TY_OK;
}

ty_status ty_json_member(const ty_json *object, const char *key, const ty_json **out,
                         ty_error *error)
{
    return require(object, key, "a value", out, error);
}

/* ---- numbers ---- */

#define MAX_INTEGER (((uint64_t)1 << 53) - 1) /* 2^53 may be a rounded 2^53 + 1 */

static void describe_number(double minimum, double maximum, char out[96])
{
    char low[32], high[32];
    bool has_low = minimum > -DBL_MAX, has_high = maximum < DBL_MAX;

    if (has_low)
        ty_format_number(minimum, low);
    if (has_high)
        ty_format_number(maximum, high);
    if (minimum == DBL_MIN && has_high)
        snprintf(out, 96, "a number > 0 and <= %s", high);
    else if (minimum == DBL_MIN)
        snprintf(out, 96, "a number > 0");
    else if (has_low && has_high)
        snprintf(out, 96, "a number from %s to %s", low, high);
    else if (has_low)
        snprintf(out, 96, "a number >= %s", low);
    else if (has_high)
        snprintf(out, 96, "a number <= %s", high);
    else
        snprintf(out, 96, "a number");
}

static void describe_integer(uint64_t minimum, uint64_t maximum, char out[96])
{
    snprintf(out, 96, "an integer from %llu to %llu", (unsigned long long)minimum,
             (unsigned long long)(maximum < MAX_INTEGER ? maximum : MAX_INTEGER));
}

ty_status ty_json_as_number(const ty_json *value, double minimum, double maximum, double *out,
                            ty_error *error)
{
    double number = value->item->valuedouble;
    char expected[96];

    if (ty_json_is_number(value) && fabs(number) > TY_JSON_MAX_NUMBER) {
        minimum = fmax(minimum, -TY_JSON_MAX_NUMBER);
        maximum = fmin(maximum, TY_JSON_MAX_NUMBER);
    }
    if (!ty_json_is_number(value) || !(number >= minimum && number <= maximum)) {
        describe_number(minimum, maximum, expected);
        return ty_json_fail(value, error, "%s", expected);
    }
    *out = number;
    return TY_OK;
}

ty_status ty_json_as_uint64(const ty_json *value, uint64_t minimum, uint64_t maximum, uint64_t *out,
                            ty_error *error)
{
    double number = value->item->valuedouble;
    char expected[96];

    if (!ty_json_is_number(value) || !(number >= 0.0 && number <= (double)MAX_INTEGER) ||
        number != floor(number) || (uint64_t)number < minimum || (uint64_t)number > maximum) {
        describe_integer(minimum, maximum, expected);
        return ty_json_fail(value, error, "%s", expected);
    }
    *out = (uint64_t)number;
    return TY_OK;
}

ty_status ty_json_as_uint32(const ty_json *value, uint32_t minimum, uint32_t maximum, uint32_t *out,
                            ty_error *error)
{
    uint64_t wide = 0;
    ty_status status = ty_json_as_uint64(value, minimum, maximum, &wide, error);
    if (status == TY_OK)
        *out = (uint32_t)wide;
    return status;
}

ty_status ty_json_number(const ty_json *object, const char *key, double minimum, double maximum,
                         double *out, ty_error *error)
{
    const ty_json *value = NULL;
    char expected[96];
    ty_status status;

    describe_number(minimum, maximum, expected);
    status = require(object, key, expected, &value, error);
    return status != TY_OK ? status : ty_json_as_number(value, minimum, maximum, out, error);
}

ty_status ty_json_uint64(const ty_json *object, const char *key, uint64_t minimum, uint64_t maximum,
                         uint64_t *out, ty_error *error)
{
    const ty_json *value = NULL;
    char expected[96];
    ty_status status;

    describe_integer(minimum, maximum, expected);
    status = require(object, key, expected, &value, error);
    return status != TY_OK ? status : ty_json_as_uint64(value, minimum, maximum, out, error);
}

ty_status ty_json_uint32(const ty_json *object, const char *key, uint32_t minimum, uint32_t maximum,
                         uint32_t *out, ty_error *error)
{
    uint64_t wide = 0;
    ty_status status = ty_json_uint64(object, key, minimum, maximum, &wide, error);
    if (status == TY_OK)
        *out = (uint32_t)wide;
    return status;
}

/* ---- other members ---- */

ty_status ty_json_bool(const ty_json *object, const char *key, bool *out, ty_error *error)
{
    const ty_json *value = NULL;

    TY_TRY(require(object, key, "true or false", &value, error));
    if (!cJSON_IsBool(value->item))
        return ty_json_fail(value, error, "true or false");
    *out = cJSON_IsTrue(value->item) != 0;
    return TY_OK;
}

ty_status ty_json_as_string(const ty_json *value, const char **out, ty_error *error)
{
    if (!ty_json_is_string(value) || value->item->valuestring[0] == '\0')
        return ty_json_fail(value, error, "a string that is not empty");
    if (!ty_is_printable(value->item->valuestring))
        return ty_json_fail(value, error, "a string without controls and invisible characters");
    *out = value->item->valuestring;
    return TY_OK;
}

ty_status ty_json_string(const ty_json *object, const char *key, const char **out, ty_error *error)
{
    const ty_json *value = NULL;
    ty_status status = require(object, key, "a string that is not empty", &value, error);
    return status != TY_OK ? status : ty_json_as_string(value, out, error);
}

ty_status ty_json_lines(const ty_json *object, const char *key, const char **out, ty_error *error)
{
    const ty_json *value = NULL;

    TY_TRY(require(object, key, "a text that is not empty", &value, error));
    if (!ty_json_is_string(value) || value->item->valuestring[0] == '\0')
        return ty_json_fail(value, error, "a text that is not empty");
    *out = value->item->valuestring;
    return TY_OK;
}

static void describe_names(const char *const *names, size_t count, char *out, size_t size)
{
    line to = {out, 0, size};

    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (names[i] == NULL)
            continue;
        if (to.length > 0)
            line_add(&to, i + 1 < count ? ", " : " or ", i + 1 < count ? 2 : 4);
        line_add(&to, "\"", 1);
        line_add(&to, names[i], strlen(names[i]));
        line_add(&to, "\"", 1);
    }
    if (to.length + 1 == size)
        memcpy(out + size - 4, "...", 4);
}

ty_status ty_json_enum(const ty_json *object, const char *key, const char *const *names,
                       size_t count, int *out, ty_error *error)
{
    const ty_json *value = NULL;
    const char *close;
    char expected[128];

    describe_names(names, count, expected, sizeof expected);
    TY_TRY(require(object, key, expected, &value, error));
    if (!ty_json_is_string(value))
        return ty_json_fail(value, error, "%s", expected);
    for (size_t i = 0; i < count; i++) {
        if (names[i] != NULL && strcmp(names[i], value->item->valuestring) == 0) {
            *out = (int)i;
            return TY_OK;
        }
    }
    close = ty_suggest(value->item->valuestring, names, count, sizeof *names);
    if (close != NULL)
        return ty_json_fail(value, error, "\"%s\"?", close);
    return ty_json_fail(value, error, "%s", expected);
}

ty_status ty_json_object(const ty_json *object, const char *key, const ty_json **out,
                         ty_error *error)
{
    const ty_json *value = NULL;

    TY_TRY(require(object, key, "an object", &value, error));
    if (!ty_json_is_object(value))
        return ty_json_fail(value, error, "an object");
    *out = value;
    return TY_OK;
}

ty_status ty_json_array(const ty_json *object, const char *key, size_t minimum, size_t maximum,
                        const ty_json **out, ty_error *error)
{
    const ty_json *value = NULL;
    char expected[96];

    if (minimum == maximum)
        snprintf(expected, sizeof expected, "an array of %zu", minimum);
    else if (maximum >= UINT32_MAX)
        snprintf(expected, sizeof expected, "an array of at least %zu", minimum);
    else
        snprintf(expected, sizeof expected, "an array of %zu to %zu", minimum, maximum);
    TY_TRY(require(object, key, expected, &value, error));
    if (!ty_json_is_array(value) || value->size < minimum || value->size > maximum)
        return ty_json_fail(value, error, "%s", expected);
    *out = value;
    return TY_OK;
}

const char *ty_json_schema_now(const char *schema)
{
    static const char *const versions[][2] = {{"trainyard.timeline/1", "trainyard.timeline/2"},
                                              {"trainyard.run/1", "trainyard.run/2"},
                                              {"trainyard.simulation/1", "trainyard.simulation/2"}};

    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (strcmp(schema, versions[i][0]) == 0)
            return versions[i][1];
    return schema;
}

ty_status ty_json_schema(const ty_json *object, const char *schema, ty_error *error)
{
    const ty_json *value = NULL;
    char expected[96];

    snprintf(expected, sizeof expected, "\"%s\"", schema);
    TY_TRY(require(object, "schema", expected, &value, error));
    if (!ty_json_is_string(value) ||
        strcmp(ty_json_schema_now(value->item->valuestring), schema) != 0)
        return ty_json_fail(value, error, "%s", expected);
    return TY_OK;
}

/* ---- the end of an object ---- */

static const char *suggest_key(const ty_json *object, const char *word)
{
    const char *candidates[MAX_ASKED];
    size_t count = 0;

    for (size_t i = 0; i < object->document->asked_count; i++) {
        if ((object->asked >> i & 1) != 0)
            candidates[count++] = object->document->asked[i];
    }
    return ty_suggest(word, candidates, count, sizeof *candidates);
}

ty_status ty_json_end(const ty_json *object, ty_error *error)
{
    for (size_t i = 0; i < object->size; i++) {
        const ty_json *member = &object->children[i];
        char place[TY_JSON_PLACE_SIZE];
        const char *close;
        if (member->is_read || !ty_json_is_object(object))
            continue;
        ty_json_place(member, place);
        close = suggest_key(object, member->item->string);
        if (close != NULL)
            return ty_fail(error, TY_EPARSE, "%s: found an unknown key, expected \"%s\"?", place,
                           close);
        return ty_fail(error, TY_EPARSE, "%s: found an unknown key, expected no such member",
                       place);
    }
    return TY_OK;
}

void ty_json_ignore(const ty_json *object, const char *key)
{
    ty_json *found = find_member(object, key);
    if (found != NULL)
        found->is_read = true;
    else
        remember_asked(object, key);
}

const char *ty_json_next_unread(const ty_json *object)
{
    if (!ty_json_is_object(object))
        return NULL;
    for (size_t i = 0; i < object->size; i++) {
        ty_json *member = &object->children[i];
        if (member->is_read)
            continue;
        member->is_read = true;
        return member->item->string;
    }
    return NULL;
}

/* ---- back to text ---- */

/* @param left_out a member of `value` that is not written; NULL: none */
static void write_value(const ty_json *value, const char *key, const char *left_out,
                        ty_json_writer *writer)
{
    const cJSON *item = value->item;

    if (cJSON_IsObject(item) || cJSON_IsArray(item)) {
        bool is_object = cJSON_IsObject(item) != 0;
        ty_json_open_flat(writer, key, is_object ? '{' : '[');
        for (size_t i = 0; i < value->size; i++) {
            const ty_json *child = &value->children[i];
            if (!is_object || left_out == NULL || strcmp(child->item->string, left_out) != 0)
                write_value(child, child->item->string, NULL, writer);
        }
        ty_json_close(writer, is_object ? '}' : ']');
    } else if (cJSON_IsString(item)) {
        ty_json_put_string(writer, key, item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        ty_json_put_number(writer, key, item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        ty_json_put_bool(writer, key, cJSON_IsTrue(item) != 0);
    } else {
        ty_json_put_null(writer, key);
    }
}

ty_status ty_json_text(const ty_json *value, char **out, ty_error *error)
{
    return ty_json_text_without(value, NULL, out, error);
}

ty_status ty_json_text_without(const ty_json *value, const char *key, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);

    write_value(value, NULL, key, &writer);
    return ty_text_take(&text, out, error);
}
