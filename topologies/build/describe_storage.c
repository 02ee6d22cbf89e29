/* Storage in a description: storage=nas, storage=mine{bandwidth=65GB/s,latency=1ms}. Such words may
 * be anywhere in a line; each adds a level after the previous one. */
#include "describe_storage.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "storage=";

/* Default: the catalogue's estimate of reading threads per host. */
#define USUAL_REQUESTS 32

/* ---- Words --------------------------------------------------------------------------------- */

/* The next such word, up to the blank after it or after its brace; NULL: none. */
static const char *find_word(const char *text, size_t *length)
{
    const char *word = text;

    while ((word = strstr(word, mark)) != NULL) {
        if (word == text || isspace((unsigned char)word[-1])) {
            const size_t name = strcspn(word, " \t\r\n{");
            const char *close = word[name] == '{' ? strchr(word + name, '}') : NULL;
            const char *end = close != NULL ? close : word + name;
            *length = (size_t)(end - word) + strcspn(end, " \t\r\n");
            return word;
        }
        word++;
    }
    return NULL;
}

bool storage_is_described(const char *text)
{
    size_t length;
    return find_word(text, &length) != NULL;
}

ty_status storage_without(const char *text, char **line, ty_error *error)
{
    const char *word;
    size_t length;
    ty_text rest = {0};
    ty_status status;

    for (; (word = find_word(text, &length)) != NULL; text = word + length)
        ty_text_append(&rest, text, (size_t)(word - text));
    ty_text_add(&rest, text);
    while (rest.length > 0 && isspace((unsigned char)rest.data[rest.length - 1]))
        rest.data[--rest.length] = '\0';
    status = ty_text_take(&rest, line, error);
    ty_text_clear(&rest);
    return status;
}

/* ---- A level ------------------------------------------------------------------------------- */

typedef struct reading {
    const catalogue *known;
    const char *text; /* the description, for messages */
    ty_storage level;
    bool says_shared;
} reading;

static ty_status fail_value(const reading *r, const char *key, const char *value,
                            const char *expected, ty_error *error)
{
    return ty_fail(error, TY_EPARSE,
                   "cluster \"%.80s\": storage %.40s: %s: found \"%.40s\", expected %s", r->text,
                   r->level.name, key, value, expected);
}

static ty_status read_rate(reading *r, const char *key, const char *value, ty_error *error)
{
    double *out =
        strcmp(key, "host") == 0 ? &r->level.host_bytes_per_s : &r->level.bandwidth_bytes_per_s;

    if (ty_parse_bandwidth(value, out, NULL) != TY_OK ||
        !(*out >= BANDWIDTH_MINIMUM && *out <= BANDWIDTH_MAXIMUM))
        return fail_value(r, key, value, "a bandwidth such as 65GB/s", error);
    return TY_OK;
}

static ty_status read_latency(reading *r, const char *key, const char *value, ty_error *error)
{
    if (ty_parse_seconds(value, &r->level.latency_s, NULL) != TY_OK ||
        r->level.latency_s > LATENCY_MAXIMUM)
        return fail_value(r, key, value, "a time such as 1ms", error);
    return TY_OK;
}

static ty_status read_requests(reading *r, const char *key, const char *value, ty_error *error)
{
    uint64_t count;

    if (ty_parse_uint(value, 1, 1000000000, &count, NULL) != TY_OK)
        return fail_value(r, key, value, "a number of requests such as 32", error);
    r->level.requests = (double)count;
    return TY_OK;
}

static ty_status read_size(reading *r, const char *key, const char *value, ty_error *error)
{
    double *out = strcmp(key, "capacity") == 0 ? &r->level.capacity_bytes : &r->level.request_bytes;
    uint64_t bytes;

    if (ty_parse_bytes(value, &bytes, NULL) != TY_OK || bytes == 0 || bytes > (uint64_t)1e15)
        return fail_value(r, key, value, "a size such as 500GB", error);
    *out = (double)bytes;
    return TY_OK;
}

static ty_status read_shared(reading *r, const char *key, const char *value, ty_error *error)
{
    r->says_shared = true;
    r->level.is_shared = strcmp(value, "yes") == 0;
    if (!r->level.is_shared && strcmp(value, "no") != 0)
        return fail_value(r, key, value, "yes or no", error);
    return TY_OK;
}

static const ty_storage *find_known(const reading *r, const char *name)
{
    for (uint32_t i = 0; i < r->known->storage_count; i++)
        if (strcmp(r->known->storage[i].name, name) == 0)
            return &r->known->storage[i];
    return NULL;
}

static const struct key {
    const char *name;
    ty_status (*read)(reading *r, const char *key, const char *value, ty_error *error);
} keys[] = {
    {"bandwidth", read_rate},    {"host", read_rate},    {"latency", read_latency},
    {"requests", read_requests}, {"request", read_size}, {"capacity", read_size},
    {"shared", read_shared},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static ty_status read_pair(reading *r, char *pair, ty_error *error)
{
    char *equals = strchr(pair, '=');
    const char *near;

    if (equals != NULL)
        *equals = '\0';
    for (size_t k = 0; k < KEY_COUNT && equals != NULL; k++)
        if (strcmp(keys[k].name, pair) == 0)
            return keys[k].read(r, pair, equals + 1, error);
    near = ty_suggest(pair, &keys[0].name, KEY_COUNT, sizeof keys[0]);
    return ty_fail(error, TY_EPARSE,
                   "cluster \"%.80s\": storage %.40s: found \"%.40s\", expected bandwidth=, host=, "
                   "latency=, requests=, request=, capacity= or shared=%s%s%s",
                   r->text, r->level.name, pair, near != NULL ? "; did you mean \"" : "",
                   near != NULL ? near : "", near != NULL ? "\"?" : "");
}

/* @param word "storage=NAME..." in a copy, modified */
static ty_status read_level(reading *r, char *word, ty_error *error)
{
    char *name = word + sizeof mark - 1, *body = strchr(name, '{'), *rest = NULL, *pair;
    const ty_storage *known;
    ty_status status = TY_OK;

    if (body != NULL) {
        char *close = strchr(body, '}');
        if (close == NULL || close[1] != '\0')
            return ty_fail(error, TY_EPARSE,
                           "cluster \"%.80s\": found \"%.60s\", expected storage=NAME or "
                           "storage=NAME{KEY=VALUE,...}",
                           r->text, word);
        *body++ = '\0';
        *close = '\0';
    }
    if (*name == '\0')
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": found \"%s\", expected a name behind it, such as "
                       "storage=nas",
                       r->text, mark);
    known = find_known(r, name);
    r->says_shared = known != NULL;
    r->level = known != NULL ? *known : (ty_storage){.name = name, .requests = USUAL_REQUESTS};
    for (pair = body == NULL ? NULL : strtok_r(body, ",", &rest); pair != NULL && status == TY_OK;
         pair = strtok_r(NULL, ",", &rest))
        TY_TRY(read_pair(r, pair, error));
    if (!(r->level.bandwidth_bytes_per_s > 0)) {
        const char *near = r->known->storage_count == 0
                               ? NULL
                               : ty_suggest(name, &r->known->storage[0].name,
                                            r->known->storage_count, sizeof r->known->storage[0]);
        return ty_fail(error, TY_EPARSE,
                       "cluster \"%.80s\": storage %.40s: expected storage of the catalogue, or "
                       "{bandwidth=RATE} behind a name of its own%s%s%s",
                       r->text, name, near != NULL ? "; did you mean \"" : "",
                       near != NULL ? near : "", near != NULL ? "\"?" : "");
    }
    if (body != NULL)
        r->level.source = (char *)(known != NULL ? "the catalogue's, with what the description says"
                                                 : "as the description says");
    if (!r->says_shared)
        r->level.is_shared = !(r->level.capacity_bytes > 0);
    if (!r->level.is_shared && r->level.host_bytes_per_s > 0)
        return fail_value(r, "host", "a rate", "none, as every host has its own", error);
    return TY_OK;
}

ty_status ty_cluster_describe_storage(ty_cluster *cluster, const char *text, ty_error *error)
{
    reading r = {.text = text};
    catalogue *known = NULL;
    const char *at = text, *word;
    char *copy = NULL, *name;
    size_t length;
    ty_status status = TY_OK;

    if (!storage_is_described(text))
        return TY_OK;
    TY_CHECK(catalogue_load(&known, error), status, cleanup);
    r.known = known;
    for (; (word = find_word(at, &length)) != NULL; at = word + length) {
        ty_free(copy);
        TY_CHECK(ty_check_memory((copy = ty_alloc(length + 1, 1)) != NULL, error), status, cleanup);
        memcpy(copy, word, length);
        TY_CHECK(read_level(&r, copy, error), status, cleanup);
        TY_CHECK(ty_cluster_add_storage(cluster, &r.level, cluster->name, error), status, cleanup);
    }
    TY_CHECK(ty_cluster_check_figures(cluster, cluster->name, error), status, cleanup);
    if ((name = ty_arena_strdup(cluster->arena, text)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory for a cluster");
    else
        cluster->name = name;
cleanup:
    ty_free(copy);
    catalogue_free(known);
    return status;
}
