/* A list of hosts with their places, as operators keep it: a column with the host, others with the
 * rack, the pod, the switches above it. Places of one name under different ones above are
 * different places. */
#include "import_tree.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { COLUMN_LIMIT = 16, FIELD_ROOM = 200 };

/* What columns may be called, the outermost place first; rank 0 is the host. */
static const struct {
    const char *name;
    int rank;
} columns[] = {
    {"host", 0},   {"hostname", 0}, {"node", 0},   {"ip", 0},         {"name", 0}, {"server", 0},
    {"region", 1}, {"site", 2},     {"zone", 3},   {"datacenter", 3}, {"dsw", 4},  {"core", 4},
    {"pod", 5},    {"psw", 6},      {"spine", 6},  {"row", 7},        {"rack", 8}, {"asw", 9},
    {"leaf", 9},   {"tor", 9},      {"switch", 9},
};

typedef struct header {
    uint32_t count;
    int ranks[COLUMN_LIMIT]; /* -1: not read */
} header;

/* A field of a line, without quotes and blanks around it; false at the end. */
static bool next_field(const import_lines *l, size_t *at, char out[FIELD_ROOM])
{
    size_t length = 0;
    bool is_quoted;

    if (*at > l->length)
        return false;
    while (*at < l->length && (l->line[*at] == ' ' || l->line[*at] == '\t'))
        (*at)++;
    is_quoted = *at < l->length && l->line[*at] == '"';
    *at += is_quoted;
    for (; *at < l->length && l->line[*at] != (is_quoted ? '"' : ','); (*at)++)
        if (length + 1 < FIELD_ROOM)
            out[length++] = l->line[*at];
    while (*at < l->length && l->line[*at] != ',')
        (*at)++;
    (*at)++; /* the comma, or past the end */
    while (length > 0 && isspace((unsigned char)out[length - 1]))
        length--;
    out[length] = '\0';
    return true;
}

static int rank_of(const char *name)
{
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        if (strcasecmp(columns[i].name, name) == 0)
            return columns[i].rank;
    return -1;
}

/* Whether a line names a host and a place. */
static bool read_header(const import_lines *l, header *out)
{
    char field[FIELD_ROOM];
    uint32_t hosts = 0, places = 0;
    size_t at = 0;

    *out = (header){0};
    while (out->count < COLUMN_LIMIT && next_field(l, &at, field)) {
        int rank = rank_of(field);
        out->ranks[out->count++] = rank;
        hosts += rank == 0;
        places += rank > 0;
    }
    return hosts == 1 && places > 0;
}

static ty_status add_line(tree *t, const header *h, const import_lines *l, ty_error *error)
{
    char fields[COLUMN_LIMIT][FIELD_ROOM], path[(1 + COLUMN_LIMIT) * (FIELD_ROOM + 1)] = "cluster";
    const char *host = "";
    uint32_t count = 0, parent, node, before;
    size_t at = 0;

    while (count < h->count && next_field(l, &at, fields[count]))
        count++;
    if (count < h->count)
        return import_fail(t->im, error, l->number, "found %u fields, expected %u", count,
                           h->count);
    TY_TRY(tree_node_of(t, path, l->number, &parent, error));
    for (int rank = 1; rank < 10; rank++)
        for (uint32_t c = 0; c < h->count; c++) {
            size_t length = strlen(path);
            if (h->ranks[c] != rank || fields[c][0] == '\0')
                continue;
            snprintf(path + length, sizeof path - length, "/%s", fields[c]);
            TY_TRY(tree_node_of(t, path, l->number, &node, error));
            TY_TRY(tree_hang(t, node, parent, l->number, error));
            parent = node;
        }
    for (uint32_t c = 0; c < h->count; c++)
        if (h->ranks[c] == 0)
            host = fields[c];
    before = t->count;
    TY_TRY(tree_node_of(t, host, l->number, &node, error));
    if (host[0] == '\0' || t->count == before)
        return import_fail(t->im, error, l->number,
                           "found host \"%.60s\" a second time or without a name, expected it once",
                           host);
    t->nodes[node].host = t->im->host;
    return tree_hang(t, node, parent, l->number, error);
}

static ty_status read(importer *im, ty_error *error)
{
    import_lines l = import_lines_of(im->text, im->length);
    header h;
    tree t = {0};
    ty_status status;

    TY_CHECK(tree_open(&t, im, error), status, cleanup);
    if (!import_next_line(&l) || !read_header(&l, &h)) {
        status = import_fail(im, error, 1,
                             "found no header, expected a column host (or hostname, node, ip) and "
                             "some of region, zone, pod, rack, leaf");
        goto cleanup;
    }
    TY_CHECK(import_need_host(im, "names no devices", error), status, cleanup);
    while (import_next_line(&l))
        if (l.length > 0 && l.line[0] != '#')
            TY_CHECK(add_line(&t, &h, &l, error), status, cleanup);
    if (im->options->oversubscription == 0)
        import_note(im, "uplinks are taken as wide as what is below them (oversubscription is an "
                        "option)");
    status = tree_build(&t, NULL, error);
cleanup:
    tree_close(&t);
    return status;
}

static bool probe(const char *text, size_t length)
{
    import_lines l = import_lines_of(text, length);
    header h;

    return import_next_line(&l) && read_header(&l, &h);
}

const import_format import_hosts_csv = {"csv", "CSV of hosts and their places", probe, read};
