/* Traces of PyTorch's profiler (Kineto, Chrome's trace format) as a profile: the mean time of every
 * kernel by name, of annotations by name, and of collectives with a size in the trace.
 *
 * Reads events one by one and sums them by name, so memory grows with the names, not the events.
 * Source of the members: pytorch/kineto libkineto/src/output_json.cpp; times are microseconds. */
#include "json_stream.h"
#include "ty_workloads.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 50000
#define MOST_NAME_BYTES ((size_t)64 << 20)

typedef enum group { KERNEL, DEVICE_ANNOTATION, HOST_ANNOTATION, GROUP_COUNT } group;

/* Prefix of a row's name in the profile. */
static const char *const prefixes[GROUP_COUNT] = {"kernel ", "annotation ", "host annotation "};

typedef struct sum { /* of the events of one name */
    char *name;      /* with its prefix */
    double seconds;
    uint64_t count;
} sum;

typedef struct collective {
    ty_collective_time time; /* seconds: sum of all */
    uint64_t count;
} collective;

typedef struct event { /* relevant members */
    char phase, category[32], name[TY_JSON_STREAM_TEXT];
    char collective_name[64], type[32];
    double duration_us, start_us, elements, ranks;
    bool has_duration;
} event;

typedef struct trace {
    ty_json_stream *stream;
    const char *path;
    ty_error *error;
    sum *sums;
    uint32_t sum_count, sum_capacity;
    uint32_t *table; /* open addressing: index of a sum plus 1; [table_size], a power of 2 */
    uint32_t table_size;
    size_t name_bytes;
    collective *collectives;
    uint32_t collective_count, collective_capacity;
    uint64_t event_count, kernel_count, odd_count, unknown_count;
    double kernel_s, first_us, last_us;
    char device[128];
    double memory_bytes;
    char key[TY_JSON_STREAM_TEXT];
    event event;
} trace;

static ty_status fail_memory(const trace *t)
{
    return ty_fail(t->error, TY_ENOMEM, "%s: out of memory", t->path);
}

/* ---- Sums by name ---------------------------------------------------------------------------- */

/* FNV-1a with its own seed; collisions only cost time, and names are few. */
static uint32_t hash(const char *text)
{
    uint32_t h = 2166136261u;
    for (; *text != '\0'; text++)
        h = (h ^ (uint8_t)*text) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t find_slot(const trace *t, const char *name)
{
    uint32_t slot = hash(name) & (t->table_size - 1);
    while (t->table[slot] != 0 && strcmp(t->sums[t->table[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (t->table_size - 1);
    return slot;
}

static ty_status grow_table(trace *t)
{
    uint32_t size = t->table_size == 0 ? 1024 : t->table_size * 2, *table;

    if (t->table_size > 0 && t->sum_count < t->table_size / 2)
        return TY_OK;
    table = ty_alloc(size, sizeof *table);
    if (table == NULL)
        return fail_memory(t);
    ty_free(t->table);
    t->table = table;
    t->table_size = size;
    for (uint32_t i = 0; i < t->sum_count; i++)
        table[find_slot(t, t->sums[i].name)] = i + 1;
    return TY_OK;
}

static ty_status add_name(trace *t, const char *name, uint32_t slot)
{
    uint32_t capacity = t->sum_capacity == 0 ? 256 : t->sum_capacity * 2;
    sum *grown;

    t->name_bytes += strlen(name) + 1;
    if (t->sum_count == MOST_NAMES || t->name_bytes > MOST_NAME_BYTES)
        return ty_fail(t->error, TY_ELIMIT, "%s: found more than %d names or %zu bytes of them",
                       t->path, MOST_NAMES, MOST_NAME_BYTES);
    if (t->sum_count == t->sum_capacity) {
        grown = ty_resize(t->sums, capacity, sizeof *grown);
        if (grown == NULL)
            return fail_memory(t);
        t->sums = grown;
        t->sum_capacity = capacity;
    }
    t->sums[t->sum_count] = (sum){.name = ty_strdup(name)};
    if (t->sums[t->sum_count].name == NULL)
        return fail_memory(t);
    t->table[slot] = ++t->sum_count;
    return TY_OK;
}

static ty_status add_time(trace *t, group g, const char *name, double seconds)
{
    char full[TY_JSON_STREAM_TEXT + 20];
    uint32_t slot;

    snprintf(full, sizeof full, "%s%s", prefixes[g], name);
    TY_TRY(grow_table(t));
    slot = find_slot(t, full);
    if (t->table[slot] == 0)
        TY_TRY(add_name(t, full, slot));
    t->sums[t->table[slot] - 1].seconds += seconds;
    t->sums[t->table[slot] - 1].count++;
    return TY_OK;
}

/* ---- Collectives ----------------------------------------------------------------------------- */

static double type_size(const char *name)
{
    static const struct {
        const char *name;
        double bytes;
    } rows[] = {{"Float", 4}, {"Half", 2}, {"BFloat16", 2}, {"Double", 8}, {"Long", 8},
                {"Int", 4},   {"Byte", 1}, {"Char", 1},     {"Bool", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].bytes;
    return 0;
}

static bool read_kind(const char *name, ty_collective_kind *kind)
{
    static const struct {
        const char *name;
        ty_collective_kind kind;
    } rows[] = {{"allreduce", TY_ALL_REDUCE},
                {"allreduce_coalesced", TY_ALL_REDUCE},
                {"all_gather", TY_ALL_GATHER},
                {"_allgather_base", TY_ALL_GATHER},
                {"reduce_scatter", TY_REDUCE_SCATTER},
                {"_reduce_scatter_base", TY_REDUCE_SCATTER},
                {"broadcast", TY_BROADCAST}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *kind = rows[i].kind;
            return true;
        }
    return false;
}

/* Newer traces have the collective, element count and ranks of NCCL kernels. */
static ty_status add_collective(trace *t, const event *e)
{
    uint32_t capacity = t->collective_capacity == 0 ? 64 : t->collective_capacity * 2, i = 0;
    double bytes = e->elements * type_size(e->type);
    ty_collective_time time = {.algorithm = strstr(e->name, "TREE") != NULL ? TY_TREE : TY_RING};
    collective *grown;

    if (!read_kind(e->collective_name, &time.kind) || !(bytes >= 1 && bytes < 1e15) ||
        !(e->ranks >= 2 && e->ranks <= 1e6))
        return TY_OK;
    time.bytes = (uint64_t)bytes;
    time.ranks = (uint32_t)e->ranks;
    while (i < t->collective_count && (t->collectives[i].time.kind != time.kind ||
                                       t->collectives[i].time.algorithm != time.algorithm ||
                                       t->collectives[i].time.ranks != time.ranks ||
                                       t->collectives[i].time.bytes != time.bytes))
        i++;
    if (i == 4096)
        return TY_OK; /* enough sizes for any curve */
    if (i == t->collective_capacity) {
        grown = ty_resize(t->collectives, capacity, sizeof *grown);
        if (grown == NULL)
            return fail_memory(t);
        t->collectives = grown;
        t->collective_capacity = capacity;
    }
    if (i == t->collective_count)
        t->collectives[t->collective_count++] = (collective){.time = time};
    t->collectives[i].time.seconds += e->duration_us * 1e-6;
    t->collectives[i].count++;
    return TY_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Reads a string or number into the member of that name; skips anything else. */
static ty_status read_text(trace *t, char *out, size_t size)
{
    char text[TY_JSON_STREAM_TEXT], first;

    TY_TRY(ty_json_stream_peek(t->stream, &first, t->error));
    if (first != '"')
        return ty_json_stream_skip(t->stream, t->error);
    TY_TRY(ty_json_stream_string(t->stream, text, t->error));
    text[strlen(text) < size ? strlen(text) : size - 1] = '\0';
    memcpy(out, text, strlen(text) + 1);
    return TY_OK;
}

static ty_status read_figure(trace *t, double *out)
{
    char first;
    double value;

    TY_TRY(ty_json_stream_peek(t->stream, &first, t->error));
    if (first == '\0' || strchr("-NI0123456789", first) == NULL)
        return ty_json_stream_skip(t->stream, t->error);
    TY_TRY(ty_json_stream_number(t->stream, &value, t->error));
    if (isnan(value))
        t->unknown_count++;
    else
        *out = value;
    return TY_OK;
}

typedef struct member {
    const char *key;
    char *text;
    size_t size;
    double *figure;
} member;

/* An object: reads listed members, skips others, enters "args". */
static ty_status read_members(trace *t, const member *members, size_t count)
{
    bool is_first = true, has_next;

    TY_TRY(ty_json_stream_enter(t->stream, '{', t->error));
    for (;;) {
        const member *m = members;
        TY_TRY(ty_json_stream_next(t->stream, '}', &is_first, &has_next, t->key, t->error));
        if (!has_next)
            break;
        while (m < members + count && strcmp(m->key, t->key) != 0)
            m++;
        if (m == members + count)
            TY_TRY(ty_json_stream_skip(t->stream, t->error));
        else if (m->text != NULL)
            TY_TRY(read_text(t, m->text, m->size));
        else
            TY_TRY(read_figure(t, m->figure));
    }
    return TY_OK;
}

static ty_status read_arguments(trace *t)
{
    event *e = &t->event;
    const member members[] = {
        {"Collective name", e->collective_name, sizeof e->collective_name, NULL},
        {"dtype", e->type, sizeof e->type, NULL},
        {"In msg nelems", NULL, 0, &e->elements},
        {"Group size", NULL, 0, &e->ranks},
    };
    char first;

    TY_TRY(ty_json_stream_peek(t->stream, &first, t->error));
    if (first != '{')
        return ty_json_stream_skip(t->stream, t->error);
    return read_members(t, members, sizeof members / sizeof members[0]);
}

/* "ProfilerStep#12" is one name for all steps. */
static void drop_number(char *name)
{
    char *mark = strrchr(name, '#');
    if (mark != NULL && mark[1] != '\0' && mark[1 + strspn(mark + 1, "0123456789")] == '\0')
        *mark = '\0';
}

static ty_status take_event(trace *t)
{
    static const struct {
        const char *category;
        group group;
    } groups[] = {{"kernel", KERNEL},
                  {"Kernel", KERNEL},
                  {"gpu_user_annotation", DEVICE_ANNOTATION},
                  {"user_annotation", HOST_ANNOTATION}};
    event *e = &t->event;
    size_t i = 0;

    t->event_count++;
    while (i < 4 && strcmp(groups[i].category, e->category) != 0)
        i++;
    if (e->phase != 'X' || i == 4)
        return TY_OK;
    if (isnan(e->duration_us) || !(e->duration_us >= 0 && e->duration_us < 1e15) ||
        e->name[0] == '\0') {
        t->odd_count++;
        return TY_OK;
    }
    if (groups[i].group == KERNEL) {
        double end = e->start_us + e->duration_us;
        t->first_us = t->kernel_count == 0 || e->start_us < t->first_us ? e->start_us : t->first_us;
        t->last_us = t->kernel_count == 0 || end > t->last_us ? end : t->last_us;
        t->kernel_count++;
        t->kernel_s += e->duration_us * 1e-6;
        TY_TRY(add_collective(t, e));
    } else {
        drop_number(e->name);
    }
    return add_time(t, groups[i].group, e->name, e->duration_us * 1e-6);
}

static ty_status read_event(trace *t)
{
    event *e = &t->event;
    char phase[4] = "";
    const member members[] = {
        {"ph", phase, sizeof phase, NULL},       {"cat", e->category, sizeof e->category, NULL},
        {"name", e->name, sizeof e->name, NULL}, {"dur", NULL, 0, &e->duration_us},
        {"ts", NULL, 0, &e->start_us},
    };
    bool is_first = true, has_next;

    e->category[0] = e->name[0] = e->collective_name[0] = e->type[0] = '\0';
    e->duration_us = NAN;
    e->start_us = e->elements = e->ranks = 0;
    TY_TRY(ty_json_stream_enter(t->stream, '{', t->error));
    for (;;) {
        size_t i = 0;
        TY_TRY(ty_json_stream_next(t->stream, '}', &is_first, &has_next, t->key, t->error));
        if (!has_next)
            break;
        while (i < 5 && strcmp(members[i].key, t->key) != 0)
            i++;
        if (strcmp(t->key, "args") == 0)
            TY_TRY(read_arguments(t));
        else if (i == 5)
            TY_TRY(ty_json_stream_skip(t->stream, t->error));
        else if (members[i].text != NULL)
            TY_TRY(read_text(t, members[i].text, members[i].size));
        else
            TY_TRY(read_figure(t, members[i].figure));
    }
    e->phase = phase[0];
    return take_event(t);
}

static ty_status read_list(trace *t, ty_status (*read_one)(trace *))
{
    bool is_first = true, has_next;

    TY_TRY(ty_json_stream_enter(t->stream, '[', t->error));
    for (;;) {
        TY_TRY(ty_json_stream_next(t->stream, ']', &is_first, &has_next, NULL, t->error));
        if (!has_next)
            break;
        TY_TRY(read_one(t));
    }
    return TY_OK;
}

/* The first device represents all. */
static ty_status read_device(trace *t)
{
    char name[128] = "";
    double memory = 0;
    const member members[] = {{"name", name, sizeof name, NULL},
                              {"totalGlobalMem", NULL, 0, &memory}};
    ty_status status = read_members(t, members, 2);

    if (status != TY_OK || t->device[0] != '\0')
        return status;
    memcpy(t->device, name, sizeof name);
    t->memory_bytes = memory > 0 && memory < 1e15 ? memory : 0;
    return status;
}

/* A list of events (the older form), or an object with one. */
static ty_status read_trace(trace *t)
{
    ty_status status = TY_OK;
    bool is_first = true, has_next, has_events = false;
    char first;

    TY_TRY(ty_json_stream_peek(t->stream, &first, t->error));
    if (first == '[')
        return read_list(t, read_event);
    TY_TRY(ty_json_stream_enter(t->stream, '{', t->error));
    for (;;) {
        TY_TRY(ty_json_stream_next(t->stream, '}', &is_first, &has_next, t->key, t->error));
        if (!has_next)
            break;
        if (strcmp(t->key, "traceEvents") == 0) {
            has_events = true;
            TY_TRY(read_list(t, read_event));
        } else if (strcmp(t->key, "deviceProperties") == 0) {
            TY_TRY(read_list(t, read_device));
        } else {
            TY_TRY(ty_json_stream_skip(t->stream, t->error));
        }
    }
    if (!has_events)
        status = ty_fail(t->error, TY_EPARSE,
                         "%s: found no \"traceEvents\", expected a trace of "
                         "PyTorch's profiler or Chrome's",
                         t->path);
    return status;
}

/* ---- The profile ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sum *)a)->name, ((const sum *)b)->name);
}

static ty_status fill_times(trace *t, ty_profile *p)
{
    p->layer_times = ty_alloc(t->sum_count, sizeof *p->layer_times);
    p->collective_times = ty_alloc(t->collective_count, sizeof *p->collective_times);
    if (p->layer_times == NULL || p->collective_times == NULL)
        return fail_memory(t);
    qsort(t->sums, t->sum_count, sizeof *t->sums, by_name);
    for (uint32_t i = 0; i < t->sum_count; i++) {
        p->layer_times[i] =
            (ty_layer_time){.signature = t->sums[i].name,
                            .micro_batch = 1,
                            .forward_s = t->sums[i].seconds / (double)t->sums[i].count};
        t->sums[i].name = NULL; /* ownership moved */
        p->layer_time_count = i + 1;
    }
    for (uint32_t i = 0; i < t->collective_count; i++) {
        p->collective_times[i] = t->collectives[i].time;
        p->collective_times[i].seconds /= (double)t->collectives[i].count;
        p->collective_time_count = i + 1;
    }
    return TY_OK;
}

static ty_status build(trace *t, ty_profile **out)
{
    ty_profile *p = ty_alloc(1, sizeof *p);
    ty_status status = TY_OK;

    if (p == NULL)
        return fail_memory(t);
    p->machine = ty_strdup(t->device[0] != '\0' ? t->device : "not in the trace");
    p->backend = ty_strdup("cuda");
    p->date = ty_strdup("not in the trace");
    p->versions = ty_strdup("Kineto trace");
    p->cores = p->concurrent_ranks = 1;
    p->memory_bytes = (uint64_t)t->memory_bytes;
    p->peak_flop_per_s = p->memory_bandwidth_bytes_per_s =
        1; /* unknown; a profile cannot express it */
    if (p->machine == NULL || p->backend == NULL || p->date == NULL || p->versions == NULL) {
        status = fail_memory(t);
        goto cleanup;
    }
    TY_CHECK(fill_times(t, p), status, cleanup);
    *out = p;
    p = NULL; /* ownership moved */

cleanup:
    ty_profile_free(p);
    return status;
}

static ty_status note(trace *t, ty_import_report *report, bool is_cut)
{
    double span = (t->last_us - t->first_us) * 1e-6;
    char text[256], busy[32], whole[32];

    if (report == NULL)
        return TY_OK;
    report->format = "PyTorch profiler trace";
    ty_format_seconds(t->kernel_s, busy);
    ty_format_seconds(span, whole);
    snprintf(text, sizeof text, "%llu kernels of %llu events: %s of kernels within %s",
             (unsigned long long)t->kernel_count, (unsigned long long)t->event_count, busy, whole);
    TY_TRY(ty_import_report_add(report, text, t->error));
    TY_TRY(ty_import_report_add(
        report, "a trace has no peak rates: 1 stands for each in the profile", t->error));
    if (is_cut) {
        snprintf(text, sizeof text,
                 "the file ends in the middle of event %llu; what comes before it was read",
                 (unsigned long long)t->event_count + 1);
        TY_TRY(ty_import_report_add(report, text, t->error));
    }
    if (t->odd_count > 0) {
        snprintf(text, sizeof text, "%llu events without a name or a duration were left out",
                 (unsigned long long)t->odd_count);
        TY_TRY(ty_import_report_add(report, text, t->error));
    }
    if (t->unknown_count > 0) {
        snprintf(text, sizeof text, "%llu numbers are NaN or Infinity: treated as unknown",
                 (unsigned long long)t->unknown_count);
        TY_TRY(ty_import_report_add(report, text, t->error));
    }
    return TY_OK;
}

static bool has_device_times(const trace *t)
{
    for (uint32_t i = 0; i < t->sum_count; i++)
        if (strncmp(t->sums[i].name, "host ", 5) != 0)
            return true;
    return false;
}

static void free_trace(trace *t)
{
    for (uint32_t i = 0; i < t->sum_count; i++)
        ty_free(t->sums[i].name);
    ty_free(t->sums);
    ty_free(t->table);
    ty_free(t->collectives);
    ty_json_stream_close(t->stream);
    ty_free(t);
}

ty_status ty_profile_import_kineto(const char *path, ty_profile **out, ty_import_report *report,
                                   ty_error *error)
{
    ty_status status = TY_OK;
    ty_error detail = {0};
    ty_profile *profile = NULL;
    trace *t = ty_alloc(1, sizeof *t);
    bool is_cut = false;

    TY_TRY(ty_check_memory(t != NULL, error));
    t->path = path;
    t->error = &detail;
    TY_CHECK(ty_json_stream_open(path, &t->stream, &detail), status, cleanup);
    status = read_trace(t);
    is_cut = status == TY_EPARSE && ty_json_stream_is_cut(t->stream) && t->sum_count > 0;
    if (status != TY_OK && !is_cut)
        goto cleanup;
    if (t->sum_count == 0) {
        status = ty_fail(&detail, TY_EPARSE,
                         "%s: found %llu events but no kernel and no annotation with a duration",
                         path, (unsigned long long)t->event_count);
        goto cleanup;
    }
    if (!has_device_times(t)) {
        status = ty_fail(&detail, TY_EPARSE,
                         "%s: found %llu events but no kernel and no annotation of a device, "
                         "expected a trace with them: the host's times say nothing of a device's",
                         path, (unsigned long long)t->event_count);
        goto cleanup;
    }
    TY_CHECK(build(t, &profile), status, cleanup);
    TY_CHECK(note(t, report, is_cut), status, cleanup);
    *out = profile;
    profile = NULL; /* ownership moved */

cleanup:
    if (status != TY_OK)
        status = ty_fail(error, status, "%s", detail.message);
    ty_profile_free(profile);
    free_trace(t);
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

const char *ty_traced_kind_name(ty_traced_kind kind)
{
    static const char *const names[] = {"products", "attention", "passes", "collectives"};
    return (unsigned)kind < TY_TRACED_KIND_COUNT ? names[kind] : "unknown";
}

/* Parts of names, in lower case; the first match gives the kind of a kernel. Sources: names in
 * PyTorch's profiler of cuBLAS (gemm, xmma, nvjet), CUTLASS, cuDNN, rocBLAS (Cijk), FlashAttention,
 * NCCL and RCCL. */
static ty_traced_kind kind_of_kernel(const char *name)
{
    static const struct {
        const char *part;
        ty_traced_kind kind;
    } rows[] = {{"nccl", TY_TRACED_COLLECTIVES},    {"rccl", TY_TRACED_COLLECTIVES},
                {"nvshmem", TY_TRACED_COLLECTIVES}, {"deep_ep", TY_TRACED_COLLECTIVES},
                {"flash", TY_TRACED_ATTENTION},     {"fmha", TY_TRACED_ATTENTION},
                {"attention", TY_TRACED_ATTENTION}, {"sdpa", TY_TRACED_ATTENTION},
                {"elementwise", TY_TRACED_PASSES},  {"gemm", TY_TRACED_PRODUCTS},
                {"gemv", TY_TRACED_PRODUCTS},       {"xmma", TY_TRACED_PRODUCTS},
                {"nvjet", TY_TRACED_PRODUCTS},      {"cutlass", TY_TRACED_PRODUCTS},
                {"cijk_", TY_TRACED_PRODUCTS},      {"scudnn", TY_TRACED_PRODUCTS},
                {"splitk", TY_TRACED_PRODUCTS},     {"matmul", TY_TRACED_PRODUCTS},
                {"fft2d", TY_TRACED_PRODUCTS},      {"winograd", TY_TRACED_PRODUCTS},
                {"conv2d", TY_TRACED_PRODUCTS}};
    char small[TY_JSON_STREAM_TEXT + 20];
    size_t length = 0;

    for (; name[length] != '\0' && length + 1 < sizeof small; length++)
        small[length] = (char)tolower((unsigned char)name[length]);
    small[length] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(small, rows[i].part) != NULL)
            return rows[i].kind;
    return TY_TRACED_PASSES;
}

ty_status ty_traced_steps_load(const char *path, ty_traced_steps *out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_error detail = {0};
    ty_traced_steps found = {.steps = 0};
    trace *t = ty_alloc(1, sizeof *t);

    TY_TRY(ty_check_memory(t != NULL, error));
    t->path = path;
    t->error = &detail;
    TY_CHECK(ty_json_stream_open(path, &t->stream, &detail), status, cleanup);
    TY_CHECK(read_trace(t), status, cleanup);
    if (t->kernel_count == 0) {
        status = ty_fail(&detail, TY_EPARSE,
                         "%s: found %llu events but no kernel, expected a trace of a device", path,
                         (unsigned long long)t->event_count);
        goto cleanup;
    }
    for (uint32_t i = 0; i < t->sum_count; i++) {
        const sum *s = &t->sums[i];
        const size_t kernel = strlen(prefixes[KERNEL]);
        if (strncmp(s->name, prefixes[KERNEL], kernel) == 0)
            found.seconds[kind_of_kernel(s->name + kernel)] += s->seconds;
        else if (strcmp(s->name, "host annotation ProfilerStep") == 0 ||
                 (found.steps == 0 && strcmp(s->name, "annotation ProfilerStep") == 0))
            found.steps = s->count < UINT32_MAX ? (uint32_t)s->count : UINT32_MAX;
    }
    if (found.steps == 0)
        found.steps = 1;
    for (int k = 0; k < TY_TRACED_KIND_COUNT; k++)
        found.seconds[k] /= found.steps;
    found.step_s = (t->last_us - t->first_us) * 1e-6 / found.steps;
    *out = found;

cleanup:
    if (status != TY_OK)
        status = ty_fail(error, status, "%s", detail.message);
    free_trace(t);
    return status;
}
