/* What-if: sets keys to other values, in the question and in the cluster's figures. */
#include "vary.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void ty_vary_point_clear(ty_vary_point *point)
{
    ty_arena_free(point->texts);
    *point = (ty_vary_point){0};
}

ty_status ty_vary_point_new(const ty_question *base, ty_vary_point *point, ty_error *error)
{
    *point = (ty_vary_point){.question = *base, .texts = ty_arena_new()};
    return point->texts != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory");
}

/* Moves a text into the point's arena. */
static ty_status keep(ty_vary_point *point, ty_text *text, const char **out, ty_error *error)
{
    ty_status status = ty_text_check(text, error);

    if (status == TY_OK) {
        *out = ty_arena_strdup(point->texts, text->data != NULL ? text->data : "");
        if (*out == NULL)
            status = ty_fail(error, TY_ENOMEM, "out of memory");
    }
    ty_text_clear(text);
    return status;
}

/* Copies a text, as the caller may free it before the point is opened. */
static ty_status copy(ty_vary_point *point, const char *text, const char **out, ty_error *error)
{
    *out = ty_arena_strdup(point->texts, text);
    return *out != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory");
}

/* ---- Options ------------------------------------------------------------------------------- */

static ty_status set_batch(ty_vary_point *point, const char *value, ty_error *error)
{
    uint64_t samples;
    ty_status status = ty_parse_uint(value, 1, 1u << 30, &samples, error);

    if (status == TY_OK)
        point->question.global_batch = (uint32_t)samples;
    return status;
}

static ty_status set_objective(ty_vary_point *point, const char *value, ty_error *error)
{
    ty_objective ignored;
    ty_status status = copy(point, value, &point->question.objective, error);

    return status == TY_OK ? ty_objective_find(value, &ignored, error) : status;
}

static ty_status set_optimizer(ty_vary_point *point, const char *value, ty_error *error)
{
    ty_optimizer ignored = {0};

    TY_TRY(copy(point, value, &point->question.optimizer, error));
    return ty_optimizer_set(&ignored, value, error);
}

/* Adds KEY=VALUE to a text of the question. */
static ty_status append(ty_vary_point *point, const char **words, const char *between,
                        const char *key, const char *value, ty_error *error)
{
    ty_text text = {0};

    ty_text_addf(&text, "%s%s%s=%s", *words != NULL ? *words : "", *words != NULL ? between : "",
                 key, value);
    return keep(point, &text, words, error);
}

static ty_status set_sequence(ty_vary_point *point, const char *value, ty_error *error)
{
    uint64_t tokens;
    ty_status status = ty_parse_length(value, 1u << 30, &tokens, error);

    return status == TY_OK ? append(point, &point->question.workload, " ", "sequence", value, error)
                           : status;
}

/* ---- The cluster's line -------------------------------------------------------------------- */

/* Replaces the value of every word "key:..." or, for a mark, of every word that starts with it. */
static ty_status replace_word(ty_vary_point *point, const char *prefix, const char *value,
                              ty_error *error)
{
    const char *at = point->question.cluster;
    const size_t length = strlen(prefix);
    bool is_start = true, is_found = false;
    ty_text text = {0};

    while (*at != '\0') {
        if (is_start && strncmp(at, prefix, length) == 0) {
            ty_text_addf(&text, "%s%s", prefix, value);
            at += length + strcspn(at + length, " +[]");
            is_found = true;
        } else {
            ty_text_append(&text, at++, 1);
        }
        is_start = at > point->question.cluster && strchr(" +[]", at[-1]) != NULL;
    }
    if (!is_found) {
        ty_text_clear(&text);
        return ty_fail(error, TY_EINVAL, "cluster \"%s\" has no word \"%s...\" to vary",
                       point->question.cluster, prefix);
    }
    point->question.open_cluster = NULL; /* that is another one */
    return keep(point, &text, &point->question.cluster, error);
}

/* "16x dgx-a100" or a bare host's name; else the "host:" of a described fabric. */
static ty_status set_hosts(ty_vary_point *point, const char *value, ty_error *error)
{
    const char *typed = point->question.cluster, *host;
    char *line = NULL;
    uint64_t count;
    uint32_t ranks;
    ty_text text = {0};

    TY_TRY(ty_parse_uint(value, 1, 262144, &count, error));
    if (strstr(typed, "host:") != NULL)
        return replace_word(point, "host:", value, error);
    if (strpbrk(typed, "+[]") != NULL || ty_cluster_is_local(typed, &ranks))
        return ty_fail(error, TY_EINVAL, "cluster \"%s\": which hosts to vary is not plain", typed);
    TY_TRY(ty_cluster_line(typed, &line, error));
    host = line + strspn(line, "0123456789");
    host = host > line && host[0] == 'x' ? host + 1 + strspn(host + 1, " ") : line;
    ty_text_addf(&text, "%sx %s", value, host);
    ty_free(line);
    point->question.open_cluster = NULL; /* that is another one */
    return keep(point, &text, &point->question.cluster, error);
}

static ty_status set_cluster(ty_vary_point *point, const char *value, ty_error *error)
{
    point->question.open_cluster = NULL;
    return copy(point, value, &point->question.cluster, error);
}

static ty_status set_device(ty_vary_point *point, const char *value, ty_error *error)
{
    return replace_word(point, "@", value[0] == '@' ? value + 1 : value, error);
}

/* ---- The cluster's figures ----------------------------------------------------------------- */

static ty_status parse_bytes(const char *text, double *value, ty_error *error)
{
    uint64_t bytes;
    ty_status status = ty_parse_bytes(text, &bytes, error);

    if (status == TY_OK)
        *value = (double)bytes;
    return status;
}

static ty_status parse_count(const char *text, double *value, ty_error *error)
{
    uint64_t count;
    ty_status status = ty_parse_uint(text, 1, 1000000000, &count, error);

    if (status == TY_OK)
        *value = (double)count;
    return status;
}

typedef struct figure {
    const char *key; /* with a final dot: a name may follow */
    ty_cluster_part part;
    const char *field; /* as for ty_cluster_edit */
    /* NULL: only factors are valid, as there are several rates */
    ty_status (*parse)(const char *text, double *value, ty_error *error);
    bool needs_name;
} figure;

static const figure figures[] = {
    {"bandwidth.", TY_PART_LINKS, "bandwidth_bytes_per_s", ty_parse_bandwidth, true},
    {"latency.", TY_PART_LINKS, "latency_s", ty_parse_seconds, true},
    {"memory", TY_PART_DEVICES, "memory_bytes", parse_bytes, false},
    {"memory_bandwidth", TY_PART_DEVICES, "memory_bandwidth_bytes_per_s", ty_parse_bandwidth,
     false},
    {"compute", TY_PART_DEVICES, "peak_", NULL, false},
    {"storage.bandwidth.", TY_PART_STORAGE, "bandwidth_bytes_per_s", ty_parse_bandwidth, false},
    {"storage.host.", TY_PART_STORAGE, "host_bytes_per_s", ty_parse_bandwidth, false},
    {"storage.latency.", TY_PART_STORAGE, "latency_s", ty_parse_seconds, false},
    {"storage.requests.", TY_PART_STORAGE, "requests", parse_count, false},
    {"storage.request.", TY_PART_STORAGE, "request_bytes", parse_bytes, false},
    {"storage.capacity.", TY_PART_STORAGE, "capacity_bytes", parse_bytes, false},
};

/* The part after the key of a figure: "" or a name; NULL: not its key. */
static const char *name_behind(const figure *f, const char *key)
{
    const size_t length = strlen(f->key);

    if (f->key[length - 1] != '.')
        return strcmp(key, f->key) == 0 ? "" : NULL;
    if (!f->needs_name && strlen(key) == length - 1 && strncmp(key, f->key, length - 1) == 0)
        return "";
    return strncmp(key, f->key, length) == 0 && key[length] != '\0' ? key + length : NULL;
}

static ty_status set_figure(ty_vary_point *point, const figure *f, const char *name,
                            const char *value, ty_error *error)
{
    ty_status status = TY_OK;
    ty_cluster_edit edit = {.part = f->part, .field = f->field, .is_factor = value[0] == 'x'};
    ty_error detail = {0};
    char *end;

    if (point->edit_count == TY_VARY_MOST_KEYS)
        return ty_fail(error, TY_EINVAL, "at most %d figures can be varied", TY_VARY_MOST_KEYS);
    if (*name != '\0' && strcmp(name, "all") != 0 &&
        (status = copy(point, name, &edit.name, error)) != TY_OK)
        return status;
    if (edit.is_factor) {
        edit.value = strtod(value + 1, &end);
        if (end == value + 1 || *end != '\0' || !(edit.value > 0) || edit.value > 1e6)
            status = ty_fail(error, TY_EINVAL, "found '%s', expected a factor as in x0.5", value);
    } else if (f->parse == NULL) {
        status = ty_fail(error, TY_EINVAL, "found '%s', expected a factor as in x2", value);
    } else {
        status = f->parse(value, &edit.value, &detail);
        if (status != TY_OK)
            return ty_fail(error, status, "%s; or a factor as in x2", detail.message);
    }
    if (status == TY_OK)
        point->edits[point->edit_count++] = edit;
    return status;
}

ty_status ty_vary_open(const ty_vary_point *point, const ty_watch *watch, ty_question_inputs *out,
                       ty_error *error)
{
    ty_question_inputs q = {0};
    ty_cluster *edited = NULL;
    ty_status status;

    TY_CHECK(ty_question_open(&point->question, watch, &q, error), status, done);
    if (point->edit_count > 0) {
        TY_CHECK(ty_cluster_edited(q.cluster, point->edits, point->edit_count, &edited, error),
                 status, done);
        ty_cluster_free(q.cluster);
        q.cluster = edited;
    }
    *out = q;
    q = (ty_question_inputs){0};
done:
    ty_question_inputs_clear(&q);
    return status;
}

/* ---- Keys ---------------------------------------------------------------------------------- */

typedef struct plain_key {
    const char *name;
    ty_status (*set)(ty_vary_point *point, const char *value, ty_error *error);
    size_t text; /* in ty_question, where the value is the text; `set` is NULL then */
} plain_key;

static const plain_key plain_keys[] = {
    {"workload", NULL, offsetof(ty_question, workload)},
    {"cluster", set_cluster, 0},
    {"batch", set_batch, 0},
    {"seq", set_sequence, 0},
    {"hosts", set_hosts, 0},
    {"device", set_device, 0},
    {"system", NULL, offsetof(ty_question, system)},
    {"precision", NULL, offsetof(ty_question, precision)},
    {"optimizer", set_optimizer, 0},
    {"input", NULL, offsetof(ty_question, input)},
    {"stack", NULL, offsetof(ty_question, stack)},
    {"objective", set_objective, 0},
    {"task", NULL, offsetof(ty_question, task)},
    {"price", NULL, offsetof(ty_question, cost.price)},
    {"power", NULL, offsetof(ty_question, cost.power)},
    {"failure_rate", NULL, offsetof(ty_question, cost.failure_rate)},
};
#define PLAIN_KEY_COUNT (sizeof plain_keys / sizeof plain_keys[0])

static const char *const fabric_words[] = {"pod:", "leaf:", "host:", "gpu:", "oversub:"};

static ty_status fail_unknown(const char *key, ty_error *error)
{
    const bool is_of_hosts = strcasecmp(key, "nodes") == 0 || strcasecmp(key, "gpus") == 0 ||
                             strcasecmp(key, "machines") == 0;
    const char *const close =
        is_of_hosts ? "hosts" : ty_suggest(key, plain_keys, PLAIN_KEY_COUNT, sizeof plain_keys[0]);

    if (close != NULL)
        return ty_fail(error, TY_EINVAL, "unknown key '%s'; did you mean %s?", key, close);
    return ty_fail(
        error, TY_EINVAL,
        "unknown key '%s'; expected workload, cluster, batch, seq, hosts, device, pod, "
        "leaf, host, gpu, oversub, system, stack, precision, optimizer, objective, task, "
        "bandwidth.LINK, latency.LINK, storage.FIGURE, input, input.KEY, memory, memory_bandwidth, "
        "compute, price, "
        "power, failure_rate, or a key of --fix",
        key);
}

ty_status ty_vary_set(ty_vary_point *point, const char *key, const char *value, ty_error *error)
{
    ty_question *q = &point->question;
    const size_t length = strlen(key);
    ty_input ignored = {0};

    for (size_t k = 0; k < PLAIN_KEY_COUNT; k++) {
        if (strcmp(key, plain_keys[k].name) != 0)
            continue;
        if (plain_keys[k].set != NULL)
            return plain_keys[k].set(point, value, error);
        TY_TRY(copy(point, value, (const char **)((char *)q + plain_keys[k].text), error));
        return ty_cost_question_check(&q->cost, error);
    }
    for (size_t k = 0; k < sizeof fabric_words / sizeof fabric_words[0]; k++)
        if (strlen(fabric_words[k]) == length + 1 && strncmp(fabric_words[k], key, length) == 0)
            return replace_word(point, fabric_words[k], value, error);
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++) {
        const char *const name = name_behind(&figures[k], key);
        if (name != NULL)
            return set_figure(point, &figures[k], name, value, error);
    }
    if (strncmp(key, "workload.", 9) == 0 && key[9] != '\0')
        return append(point, &q->workload, " ", key + 9, value, error);
    if (strncmp(key, "input.", 6) == 0 && key[6] != '\0') {
        TY_TRY(append(point, &q->input, ",", key + 6, value, error));
        return ty_input_read(q->input, &ignored, error);
    }
    if (ty_axis_find(key) != TY_AXIS_COUNT)
        return append(point, &q->fix, ",", key, value, error);
    return fail_unknown(key, error);
}
