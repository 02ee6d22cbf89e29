/* Reads the lines of PipeDream's profiles, with unconverted figures. */
#include "pipedream_text.h"
#include "ty_workloads.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 1e15
#define MOST_MS 1e12

typedef struct reader {
    const char *path;
    const ty_pipedream_visitor *visitor;
    ty_error *error;
} reader;

static piece trim(piece text)
{
    while (text.at < text.end && (*text.at == ' ' || *text.at == '\t'))
        text.at++;
    while (text.end > text.at && strchr(" \t\r", text.end[-1]) != NULL)
        text.end--;
    return text;
}

static ty_status bad_line(const reader *r, uint32_t line, piece found, const char *expected)
{
    int length = (int)(found.end - found.at < 80 ? found.end - found.at : 80);
    return ty_fail(r->error, TY_EPARSE, "%s:%u: found '%.*s', expected %s", r->path, line, length,
                   found.at, expected);
}

/* The first or last " -- " in a piece; NULL if there is none. */
static const char *find_dashes(piece text, bool is_last)
{
    static const char dashes[] = " -- ";
    const char *found = NULL;
    for (const char *at = text.at; at + 4 <= text.end; at++)
        if (memcmp(at, dashes, 4) == 0) {
            found = at;
            if (!is_last)
                break;
        }
    return found;
}

static bool read_id(piece text, uint64_t *id)
{
    text = trim(text);
    if (!ty_piece_starts_with(text, "node") || text.end - text.at < 5 || text.end - text.at > 19)
        return false;
    *id = 0;
    for (const char *at = text.at + 4; at < text.end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        *id = *id * 10 + (uint64_t)(*at - '0');
    }
    return true;
}

/* Reads a number at text->at, and moves past it. */
static bool read_number(piece *text, double limit, double *out)
{
    char copy[40], *end;
    size_t length = 0;
    while (text->at + length < text->end && length + 1 < sizeof copy &&
           strchr("0123456789.eE+-", text->at[length]) != NULL)
        length++;
    memcpy(copy, text->at, length);
    copy[length] = '\0';
    *out = strtod(copy, &end);
    text->at += length;
    return length > 0 && *end == '\0' && *out >= 0 && *out <= limit;
}

/* A number or the sum of a list. */
static bool read_value(piece text, double limit, double *out)
{
    double value;

    text = trim(text);
    if (text.at == text.end || *text.at != '[')
        return read_number(&text, limit, out) && text.at == text.end;
    *out = 0;
    do {
        text.at++;
        text = trim(text);
        if (!read_number(&text, limit, &value))
            return false;
        *out += value;
        text = trim(text);
    } while (text.at < text.end && *text.at == ';');
    return text.end - text.at == 1 && *text.at == ']' && *out <= limit;
}

/* "forward_compute_time=1.5, ..." */
static ty_status read_figures(const reader *r, uint32_t line, piece text, ty_pipedream_node *n)
{
    const struct {
        const char *key;
        double limit, *out;
    } rows[] = {{"forward_compute_time=", MOST_MS, &n->forward_ms},
                {"backward_compute_time=", MOST_MS, &n->backward_ms},
                {"activation_size=", MOST_BYTES, &n->activation_bytes},
                {"parameter_size=", MOST_BYTES, &n->parameter_bytes}};
    unsigned seen = 0;

    while (text.at < text.end) {
        const char *comma = memchr(text.at, ',', (size_t)(text.end - text.at));
        piece item = trim((piece){text.at, comma != NULL ? comma : text.end});
        size_t i = 0;
        while (i < 4 && !ty_piece_starts_with(item, rows[i].key))
            i++;
        if (i == 4 || (seen & 1u << i) != 0 ||
            !read_value((piece){item.at + strlen(rows[i].key), item.end}, rows[i].limit,
                        rows[i].out))
            return bad_line(r, line, item,
                            "forward_compute_time, backward_compute_time, activation_size and "
                            "parameter_size, each once, as numbers >= 0");
        seen |= 1u << i;
        text.at = comma != NULL ? comma + 1 : text.end;
    }
    return seen == 15
               ? TY_OK
               : bad_line(r, line, text, "four figures: times, activation and parameter size");
}

/* Removes the stage that a partitioned profile adds at the end of a line. */
static piece without_stage(piece text)
{
    const char *last = find_dashes(text, true);
    if (last != NULL && ty_piece_starts_with((piece){last + 4, text.end}, "stage_id="))
        text.end = last;
    return text;
}

static ty_status read_node(const reader *r, uint32_t line, piece text)
{
    const char *first, *last;
    ty_pipedream_node n = {0};
    piece label;

    text = without_stage(text);
    first = find_dashes(text, false);
    last = find_dashes(text, true);
    if (first == NULL || first == last || !read_id((piece){text.at, first}, &n.id))
        return bad_line(r, line, text, "nodeN -- operator -- figures");
    TY_TRY(read_figures(r, line, (piece){last + 4, text.end}, &n));
    label = trim((piece){first + 4, last});
    n.name = label.at;
    n.name_length = (size_t)(label.end - label.at);
    return r->visitor->node(r->visitor->context, &n, r->error);
}

static ty_status read_edge(const reader *r, uint32_t line, piece text)
{
    const char *dashes = find_dashes(text, false);
    uint64_t from, to;

    if (dashes == NULL || !read_id((piece){text.at, dashes}, &from) ||
        !read_id((piece){dashes + 4, text.end}, &to))
        return bad_line(r, line, trim(text), "an edge: nodeA -- nodeB");
    return r->visitor->edge(r->visitor->context, from, to, r->error);
}

ty_status ty_pipedream_read(const char *path, const char *bytes, size_t length,
                            const ty_pipedream_visitor *visitor, ty_error *error)
{
    const reader r = {.path = path, .visitor = visitor, .error = error};
    const char *at = bytes, *end = bytes + length;

    for (uint32_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        piece text = {at, stop != NULL ? stop : end};
        piece content = trim(text);
        at = stop != NULL ? stop + 1 : end;
        if (content.at == content.end)
            continue;
        if (*text.at == '\t')
            TY_TRY(read_edge(&r, line, text));
        else
            TY_TRY(read_node(&r, line, content));
    }
    return TY_OK;
}

/* The first line that is not empty: "nodeN -- ". */
bool ty_pipedream_probe(const char *bytes, size_t length)
{
    piece text = {bytes, bytes + length};
    const char *dashes;
    uint64_t id;

    while (text.at < text.end && strchr(" \t\r\n", *text.at) != NULL)
        text.at++;
    if (text.end - text.at > 40)
        text.end = text.at + 40;
    dashes = find_dashes(text, false);
    return dashes != NULL && read_id((piece){text.at, dashes}, &id);
}
