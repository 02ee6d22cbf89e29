/* Reads the output of nccl-tests, also as an excerpt of other output. */
#include "ty_collective_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define US 1e-6

enum { MOST_WORDS = 16, FIXED_WORDS = 3, MEASURED_WORDS = 8, NAME_SIZE = 64, MOST_HOSTS = 4096 };

typedef struct log_reader {
    const char *name;
    uint32_t line;
    ty_collective_log *log;
    bool is_named;        /* the log names its program */
    bool counts_wrong;    /* the header has #wrong */
    double bus_over_algo; /* of the largest row */
    uint64_t largest;
    double element_bytes, elements;
    uint32_t host_count;
    char (*hosts)[NAME_SIZE];
    char last[160]; /* last line that is not a row, for a log without rows */
    ty_error *error;
} log_reader;

/* ---- Names --------------------------------------------------------------------------------- */

typedef struct log_name {
    const char *word;
    ty_collective_kind kind;
} log_name;

/* Longer names first where one contains another. */
static const log_name programs[] = {
    {"all_reduce_perf", TY_ALL_REDUCE},
    {"all_gather_perf", TY_ALL_GATHER},
    {"reduce_scatter_perf", TY_REDUCE_SCATTER},
    {"alltoall_perf", TY_ALL_TO_ALL},
    {"broadcast_perf", TY_BROADCAST},
    {"sendrecv_perf", TY_SEND_RECEIVE},
    {"reduce_perf", TY_REDUCE},
};
static const log_name words[] = {
    {"allreduce", TY_ALL_REDUCE},          {"all_reduce", TY_ALL_REDUCE},
    {"all-reduce", TY_ALL_REDUCE},         {"allgather", TY_ALL_GATHER},
    {"all_gather", TY_ALL_GATHER},         {"all-gather", TY_ALL_GATHER},
    {"reducescatter", TY_REDUCE_SCATTER},  {"reduce_scatter", TY_REDUCE_SCATTER},
    {"reduce-scatter", TY_REDUCE_SCATTER}, {"alltoall", TY_ALL_TO_ALL},
    {"all_to_all", TY_ALL_TO_ALL},         {"all-to-all", TY_ALL_TO_ALL},
    {"broadcast", TY_BROADCAST},           {"sendrecv", TY_SEND_RECEIVE},
    {"send_receive", TY_SEND_RECEIVE},     {"reduce", TY_REDUCE},
};

static ty_collective_kind kind_in(const char *text, const log_name *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(text, names[i].word) != NULL)
            return names[i].kind;
    return TY_COLLECTIVE_COUNT;
}

static double type_bytes(const char *type)
{
    static const struct {
        const char *name;
        double bytes;
    } types[] = {{"int8", 1},   {"uint8", 1}, {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"f8e4m3", 1},
                 {"f8e5m2", 1}, {"half", 2},  {"bfloat16", 2}, {"int32", 4},    {"uint32", 4},
                 {"float", 4},  {"int64", 8}, {"uint64", 8},   {"double", 8}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i].name) == 0)
            return types[i].bytes;
    return 0;
}

/* ---- Lines --------------------------------------------------------------------------------- */

static ty_status fail(const log_reader *r, const char *found, const char *expected)
{
    return ty_fail(r->error, TY_EPARSE, "%s:%u: found %s, expected %s", r->name, r->line, found,
                   expected);
}

static uint32_t split(char *line, char *found[MOST_WORDS])
{
    uint32_t count = 0;
    char *rest = line, *word;

    while ((word = strtok_r(rest, " \t\r", &rest)) != NULL) {
        if (count < MOST_WORDS)
            found[count] = word;
        count++;
    }
    return count;
}

static bool read_number(const char *word, double *out)
{
    char *end;
    double value = strtod(word, &end);

    if (end == word || *end != '\0' || !isfinite(value) || value < 0)
        return false;
    *out = value;
    return true;
}

/* The last column of a half: an error bound, a count of wrong elements, or N/A. */
static ty_status check_result(const log_reader *r, const char *word)
{
    double wrong;

    if (!r->counts_wrong || strcmp(word, "N/A") == 0)
        return TY_OK;
    if (!read_number(word, &wrong))
        return fail(r, word, "a number of wrong elements or N/A");
    return wrong > 0 ? fail(r, "wrong results", "a row without any") : TY_OK;
}

/* The eight measured columns. */
static ty_status read_measured(log_reader *r, char *const found[], uint64_t size, double element,
                               double count)
{
    ty_collective_log_row row = {.size = size};
    double us[2], algorithm[2], bus[2];

    for (int half = 0; half < 2; half++) {
        char *const *column = found + 4 * half;
        if (!read_number(column[0], &us[half]) || !read_number(column[1], &algorithm[half]) ||
            !read_number(column[2], &bus[half]))
            return fail(r, column[0], "microseconds and two bandwidths");
        TY_TRY(check_result(r, column[3]));
    }
    if (size == 0)
        return TY_OK;
    if (!(us[0] > 0 && us[1] > 0))
        return fail(r, "a time of 0 us", "one above 0 for a size above 0");
    if (size >= r->largest) {
        r->largest = size;
        r->bus_over_algo = algorithm[0] > 0 ? bus[0] / algorithm[0] : 0;
        r->element_bytes = element;
        r->elements = count;
    }
    row.out_of_place_s = US * us[0];
    row.in_place_s = US * us[1];

    ty_collective_log *log = r->log;
    ty_collective_log_row *rows =
        ty_resize(log->rows, (size_t)log->row_count + 1, sizeof *log->rows);
    TY_TRY(ty_check_memory(rows != NULL, r->error));
    log->rows = rows;
    rows[log->row_count++] = row;
    return TY_OK;
}

static ty_status read_host(log_reader *r, const char *line)
{
    const char *on = strstr(line, " on "), *device = strstr(line, " device ");
    char host[NAME_SIZE] = "";
    uint32_t i = 0;

    r->log->ranks++;
    if (on == NULL || device == NULL || device < on + 4)
        return TY_OK;
    for (on += 4; *on == ' '; on++)
        ;
    while (on < device && *on != ' ' && i + 1 < NAME_SIZE)
        host[i++] = *on++;
    for (i = 0; i < r->host_count; i++)
        if (strcmp(r->hosts[i], host) == 0)
            return TY_OK;
    if (r->host_count == MOST_HOSTS)
        return fail(r, "one host more", "at most 4096");
    char(*hosts)[NAME_SIZE] = ty_resize(r->hosts, (size_t)r->host_count + 1, NAME_SIZE);
    TY_TRY(ty_check_memory(hosts != NULL, r->error));
    r->hosts = hosts;
    memcpy(r->hosts[r->host_count++], host, NAME_SIZE);
    return TY_OK;
}

static ty_status read_line(log_reader *r, char *line)
{
    char *found[MOST_WORDS];
    uint64_t size = 0, elements = 0;
    uint32_t count;

    while (*line == ' ' || *line == '\t')
        line++;
    if (strncmp(line, "collective,size_bytes", strlen("collective,size_bytes")) == 0)
        return fail(r, "a table for NCCL's tuner plug-in", "a log of nccl-tests");
    const char *rank = strstr(line, "Rank ");
    if (line[0] == '#' && rank != NULL && strstr(rank, " Pid ") != NULL)
        return read_host(r, line);
    const ty_collective_kind kind = kind_in(line, programs, sizeof programs / sizeof *programs);
    if (kind != TY_COLLECTIVE_COUNT && !r->is_named) {
        r->log->kind = kind;
        r->is_named = true;
    }
    r->counts_wrong = r->counts_wrong || (line[0] == '#' && strstr(line, "#wrong") != NULL);
    if (*line != '\0' && *line != '#') {
        strncpy(r->last, line, sizeof r->last - 1);
        r->last[strcspn(r->last, "\r")] = '\0';
    }
    count = split(line, found);
    /* Words that do not start a row. */
    if (count <= FIXED_WORDS || !(type_bytes(found[2]) > 0) ||
        ty_parse_uint(found[0], 0, (uint64_t)1 << 52, &size, NULL) != TY_OK ||
        ty_parse_uint(found[1], 0, (uint64_t)1 << 52, &elements, NULL) != TY_OK)
        return TY_OK;
    if (count < FIXED_WORDS + MEASURED_WORDS || count > FIXED_WORDS + MEASURED_WORDS + 2)
        return fail(r, "a row cut short",
                    "size, count, type, redop, root, and twice time, algbw, busbw, error");
    return read_measured(r, found + count - MEASURED_WORDS, size, type_bytes(found[2]),
                         (double)elements);
}

/* ---- Facts of the full log ----------------------------------------------------------------- */

/* Only an all-reduce has a bus bandwidth above its algorithm bandwidth. */
static ty_status find_kind(log_reader *r, ty_collective_kind given)
{
    const char *base = strrchr(r->name, '/');

    if (r->is_named)
        return TY_OK;
    r->log->kind = given;
    if (given == TY_COLLECTIVE_COUNT)
        r->log->kind = kind_in(base != NULL ? base : r->name, words, sizeof words / sizeof *words);
    if (r->log->kind == TY_COLLECTIVE_COUNT && r->bus_over_algo > 1.05)
        r->log->kind = TY_ALL_REDUCE;
    if (r->log->kind == TY_COLLECTIVE_COUNT)
        return ty_fail(r->error, TY_EPARSE,
                       "%s: found no program's name, expected one such as all_reduce_perf, in the "
                       "log or as the collective that is named with it",
                       r->name);
    return TY_OK;
}

/* An all-gather's elements are one member's; for the others, the bandwidths decide. */
static ty_status find_ranks(log_reader *r)
{
    ty_collective_log *log = r->log;
    double pieces = r->elements > 0 ? (double)r->largest / (r->elements * r->element_bytes) : 0;
    double factor = r->bus_over_algo, ranks = 0;

    if (log->ranks == 1)
        return ty_fail(r->error, TY_EPARSE,
                       "%s: found a log of one rank, which exchanges nothing: no calibration, "
                       "expected one of two or more",
                       r->name);
    if (log->ranks == 0) {
        if (pieces > 1.5)
            ranks = pieces;
        else if (log->kind == TY_ALL_REDUCE && factor > 0.9 && factor < 2)
            ranks = 2 / (2 - factor);
        else if (factor > 0.4 && factor < 1)
            ranks = 1 / (1 - factor);
        if (!(ranks >= 1.5 && ranks < 1e6))
            return ty_fail(r->error, TY_EPARSE,
                           "%s: found no list of devices and no way to tell the ranks, expected "
                           "lines \"#  Rank  0 ... on HOST device  0\"",
                           r->name);
        log->ranks = (uint32_t)round(ranks);
    }
    log->hosts = r->host_count;
    factor = log->kind == TY_ALL_REDUCE ? 2 - 2.0 / log->ranks : 1 - 1.0 / log->ranks;
    if (r->bus_over_algo > 0 && log->kind == TY_ALL_REDUCE &&
        !(fabs(factor - r->bus_over_algo) < 0.02))
        return ty_fail(r->error, TY_EPARSE,
                       "%s: found a bus bandwidth %.3f times the algorithm bandwidth, expected "
                       "%.3f of an all-reduce among %u",
                       r->name, r->bus_over_algo, factor, log->ranks);
    return TY_OK;
}

static ty_status finish(log_reader *r, ty_collective_kind given)
{
    ty_collective_log *log = r->log;

    if (log->row_count == 0)
        return ty_fail(r->error, TY_EPARSE, "%s: found no rows of nccl-tests%s%s%s", r->name,
                       r->last[0] != '\0' ? "; the last line is \"" : "", r->last,
                       r->last[0] != '\0' ? "\"" : "");
    TY_TRY(find_kind(r, given));
    TY_TRY(find_ranks(r));
    for (uint32_t i = 0; i < log->row_count; i++)
        log->rows[i].bytes =
            log->kind == TY_ALL_GATHER ? log->rows[i].size / log->ranks : log->rows[i].size;
    return TY_OK;
}

ty_status ty_collective_log_parse(const char *text, const char *name, ty_collective_kind kind,
                                  ty_collective_log **out, ty_error *error)
{
    log_reader r = {.name = name, .error = error};
    char *copy = ty_strdup(text), *rest = copy, *line;
    ty_status status = TY_OK;

    r.log = ty_alloc(1, sizeof *r.log);
    TY_CHECK(ty_check_memory(r.log != NULL && copy != NULL, error), status, cleanup);
    while ((line = rest) != NULL && *line != '\0') {
        rest = strchr(line, '\n');
        if (rest != NULL)
            *rest++ = '\0';
        r.line++;
        TY_CHECK(read_line(&r, line), status, cleanup);
    }
    TY_CHECK(finish(&r, kind), status, cleanup);
    *out = r.log;
    r.log = NULL;
cleanup:
    ty_collective_log_free(r.log);
    ty_free(r.hosts);
    ty_free(copy);
    return status;
}

ty_status ty_collective_log_load(const char *path, ty_collective_kind kind, ty_collective_log **out,
                                 ty_error *error)
{
    enum { LIMIT = 64 << 20 };
    char *text = NULL;
    size_t length = 0;
    ty_status status = ty_file_read(path, LIMIT, &text, &length, error);

    if (status == TY_OK) {
        const char *content = text;
        ty_skip_mark(&content, &length);
        status = ty_collective_log_parse(content, path, kind, out, error);
    }
    ty_free(text);
    return status;
}

void ty_collective_log_free(ty_collective_log *log)
{
    if (log == NULL)
        return;
    ty_free(log->rows);
    ty_free(log);
}
