/* `ibnetdiscover`: all switches and NICs (channel adapters) of an InfiniBand fabric with their
 * cables. An adapter's description names its host ("node-7 mlx5_0", "node-7 HCA-1"). The options
 * define the rest of a host; its NICs are the adapters in order. */
#include "import_tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_ROOM = 128, ID_ROOM = 40 };

typedef struct ib_node {
    bool is_switch, is_defined;
    char label[LABEL_ROOM];
} ib_node;

typedef struct cable {
    uint32_t from, to; /* nodes, from < to (or equal) */
    uint32_t from_port, to_port;
    uint32_t rate; /* index among rates */
    double lanes;  /* of four lanes */
    unsigned line;
} cable;

typedef struct fabric {
    importer *im;
    tree names; /* of the nodes: "S-..." */
    ib_node *nodes;
    uint32_t node_room;
    cable *cables;
    uint32_t cable_count, cable_room;
    uint32_t unnamed, spare; /* adapters left out */
    uint32_t partial;        /* hosts with fewer adapters than NICs */
} fabric;

/* Catalogue links by ibnetdiscover's name of a link lane's rate. */
static const struct {
    const char *name, *link;
    double share; /* of the catalogue's four lanes */
} rates[] = {
    {"SDR", "qdr40", 0.25},   {"DDR", "qdr40", 0.5}, {"QDR", "qdr40", 1},
    {"FDR10", "qdr40", 1.21}, {"FDR", "fdr56", 1},   {"EDR", "edr100", 1},
    {"HDR", "hdr200", 1},     {"NDR", "ndr400", 1},  {"XDR", "xdr800", 1},
};

/* ---- Words of a line --------------------------------------------------------------------- */

static bool is_blank(const import_lines *l, size_t at)
{
    return at >= l->length || isspace((unsigned char)l->line[at]);
}

static void skip_blanks(const import_lines *l, size_t *at)
{
    while (*at < l->length && is_blank(l, *at))
        (*at)++;
}

/* Reads "..." without the quotes, truncated to `room`. */
static bool read_quoted(const import_lines *l, size_t *at, char *out, size_t room)
{
    size_t length = 0;

    if (*at >= l->length || l->line[*at] != '"')
        return false;
    for ((*at)++; *at < l->length && l->line[*at] != '"'; (*at)++)
        if (length + 1 < room)
            out[length++] = l->line[*at];
    out[length] = '\0';
    if (*at >= l->length)
        return false;
    (*at)++;
    return true;
}

/* [12] */
static bool read_port(const import_lines *l, size_t *at, uint32_t *port)
{
    uint64_t number = 0;
    size_t start = *at + 1;

    if (*at >= l->length || l->line[*at] != '[')
        return false;
    for ((*at)++; *at < l->length && isdigit((unsigned char)l->line[*at]); (*at)++)
        number = number < 100000 ? 10 * number + (uint64_t)(l->line[*at] - '0') : number;
    if (*at == start || *at >= l->length || l->line[*at] != ']' || number >= 100000)
        return false;
    (*at)++;
    *port = (uint32_t)number;
    return true;
}

/* (guid), optional */
static void skip_guid(const import_lines *l, size_t *at)
{
    if (*at < l->length && l->line[*at] == '(')
        while (*at < l->length && l->line[(*at)++] != ')')
            continue;
}

/* The last word of the form 4xNDR. */
static bool read_rate(const import_lines *l, size_t at, cable *out)
{
    bool is_found = false;

    for (; at < l->length; at++) {
        size_t end = at;
        if (!is_blank(l, at == 0 ? l->length : at - 1))
            continue;
        while (!is_blank(l, end))
            end++;
        if (end - at < 5 || !isdigit((unsigned char)l->line[at]))
            continue;
        for (uint32_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
            size_t length = strlen(rates[r].name);
            const char *x = memchr(l->line + at, 'x', end - at);
            if (x == NULL || (size_t)(l->line + end - x) - 1 != length ||
                memcmp(x + 1, rates[r].name, length) != 0)
                continue;
            out->rate = r;
            out->lanes = atoi(l->line + at) / 4.0 * rates[r].share;
            is_found = out->lanes > 0 && out->lanes <= 8;
        }
    }
    return is_found;
}

/* ---- Records ----------------------------------------------------------------------------- */

static ty_status node_of(fabric *f, const char *id, unsigned line, uint32_t *node, ty_error *error)
{
    TY_TRY(tree_node_of(&f->names, id, line, node, error));
    if (f->names.count > f->node_room) {
        uint32_t room = f->names.room;
        ib_node *nodes = ty_resize(f->nodes, room, sizeof *nodes);
        TY_TRY(ty_check_memory(nodes != NULL, error));
        memset(nodes + f->node_room, 0, (room - f->node_room) * sizeof *nodes);
        f->nodes = nodes;
        f->node_room = room;
    }
    return TY_OK;
}

/* Switch 65 "S-..." # "label" ...  or  Ca 1 "H-..." # "label" */
static ty_status read_head(fabric *f, const import_lines *l, size_t at, bool is_switch,
                           uint32_t *node, ty_error *error)
{
    char id[ID_ROOM], label[LABEL_ROOM] = "";
    const char *hash;

    skip_blanks(l, &at);
    while (at < l->length && isdigit((unsigned char)l->line[at]))
        at++;
    skip_blanks(l, &at);
    if (!read_quoted(l, &at, id, sizeof id))
        return import_fail(f->im, error, l->number,
                           "found a node without its \"S-...\" or \"H-...\", expected one");
    TY_TRY(node_of(f, id, l->number, node, error));
    if (f->nodes[*node].is_defined)
        return import_fail(f->im, error, l->number, "found %s a second time, expected it once", id);
    hash = memchr(l->line + at, '#', l->length - at);
    if (hash != NULL) {
        at = (size_t)(hash - l->line) + 1;
        skip_blanks(l, &at);
        (void)read_quoted(l, &at, label, sizeof label);
    }
    f->nodes[*node].is_defined = true;
    f->nodes[*node].is_switch = is_switch;
    memcpy(f->nodes[*node].label, label, sizeof label);
    return TY_OK;
}

/* Name of the far end in a cable's comment: the only description of adapters in some files. */
static void take_label(ib_node *node, const import_lines *l, size_t at)
{
    const char *hash = memchr(l->line + at, '#', l->length - at);

    if (hash == NULL || node->label[0] != '\0')
        return;
    at = (size_t)(hash - l->line) + 1;
    skip_blanks(l, &at);
    (void)read_quoted(l, &at, node->label, sizeof node->label);
}

/* [1](guid) "S-..."[32](guid) # "label" lid 236 4xNDR */
static ty_status read_cable(fabric *f, const import_lines *l, uint32_t from, ty_error *error)
{
    cable c = {.from = from, .line = l->number};
    char id[ID_ROOM];
    size_t at = 0;

    if (from == NO_INDEX)
        return import_fail(f->im, error, l->number,
                           "found a port before any node, expected a Switch or Ca line");
    if (!read_port(l, &at, &c.from_port))
        goto malformed;
    skip_guid(l, &at);
    skip_blanks(l, &at);
    if (!read_quoted(l, &at, id, sizeof id) || !read_port(l, &at, &c.to_port))
        goto malformed;
    if (!read_rate(l, at, &c))
        return import_fail(f->im, error, l->number,
                           "found no width and rate, expected one such as 4xNDR");
    TY_TRY(node_of(f, id, l->number, &c.to, error));
    if (!f->nodes[c.to].is_defined && id[0] == 'H')
        take_label(&f->nodes[c.to], l, at);
    if (c.to < c.from || (c.to == c.from && c.to_port < c.from_port)) {
        cable turned = c;
        turned.from = c.to;
        turned.to = c.from;
        turned.from_port = c.to_port;
        turned.to_port = c.from_port;
        c = turned;
    }
    TY_TRY(ty_reserve(&f->cables, f->cable_count, &f->cable_room, sizeof *f->cables, error));
    f->cables[f->cable_count++] = c;
    return TY_OK;
malformed:
    return import_fail(f->im, error, l->number,
                       "found a malformed port, expected [PORT] \"NODE\"[PORT] # ... 4xNDR");
}

static bool starts(const import_lines *l, const char *word)
{
    size_t length = strlen(word);
    return l->length > length && memcmp(l->line, word, length) == 0 && is_blank(l, length);
}

static ty_status read_records(fabric *f, ty_error *error)
{
    import_lines l = import_lines_of(f->im->text, f->im->length);
    uint32_t node = NO_INDEX;

    while (import_next_line(&l)) {
        if (starts(&l, "Switch"))
            TY_TRY(read_head(f, &l, 6, true, &node, error));
        else if (starts(&l, "Ca") || starts(&l, "Rt"))
            TY_TRY(read_head(f, &l, 2, false, &node, error));
        else if (l.length > 0 && l.line[0] == '[')
            TY_TRY(read_cable(f, &l, node, error));
    }
    for (uint32_t n = 0; n < f->names.count; n++)
        if (!f->nodes[n].is_defined && f->names.nodes[n].name[0] != 'H')
            return import_fail(f->im, error, f->names.nodes[n].line,
                               "found a cable to %.40s, expected a Switch line for it",
                               f->names.nodes[n].name);
    return TY_OK;
}

/* ---- Cables, each once ------------------------------------------------------------------- */

static int compare_numbers(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_cables(const void *a, const void *b)
{
    const cable *x = a, *y = b;
    int order = compare_numbers(x->from, y->from);
    order = order != 0 ? order : compare_numbers(x->to, y->to);
    order = order != 0 ? order : compare_numbers(x->rate, y->rate);
    order = order != 0 ? order : compare_numbers(x->from_port, y->from_port);
    return order != 0 ? order : compare_numbers(x->to_port, y->to_port);
}

static void drop_doubles(fabric *f)
{
    uint32_t kept = 0;

    if (f->cable_count > 0)
        qsort(f->cables, f->cable_count, sizeof *f->cables, compare_cables);
    for (uint32_t i = 0; i < f->cable_count; i++)
        if (kept == 0 || compare_cables(&f->cables[kept - 1], &f->cables[i]) != 0)
            f->cables[kept++] = f->cables[i];
    f->cable_count = kept;
}

/* ---- Into the cluster -------------------------------------------------------------------- */

static uint32_t link_of(const fabric *f, const cable *c)
{
    return catalogue_find_link(f->im->catalogue, rates[c->rate].link);
}

/* "MF0;A09-LEAF-04:MQM9701/U1": the part after the semicolon; with its number if names repeat. */
static ty_status add_switches(fabric *f, uint32_t *vertices, tree *taken, ty_error *error)
{
    uint32_t made = 0;

    for (uint32_t n = 0; n < f->names.count; n++) {
        const char *label = f->nodes[n].label, *semicolon = strchr(label, ';');
        char name[LABEL_ROOM + ID_ROOM];
        uint32_t index, before = taken->count;
        if (!f->nodes[n].is_switch)
            continue;
        label = semicolon != NULL ? semicolon + 1 : label;
        TY_TRY(tree_node_of(taken, label, 0, &index, error));
        if (taken->count == before || label[0] == '\0')
            snprintf(name, sizeof name, "%s %s", label, f->names.nodes[n].name);
        else
            snprintf(name, sizeof name, "%s", label);
        TY_TRY(
            ty_cluster_add_vertex(f->im->cluster, TY_VERTEX_SWITCH, name, 0, &vertices[n], error));
        made++;
    }
    if (made == 0)
        return import_fail(f->im, error, 0, "found no switch, expected at least one");
    return TY_OK;
}

/* Cables of one rate between two switches make one link. */
static ty_status add_trunks(fabric *f, const uint32_t *vertices, ty_error *error)
{
    for (uint32_t i = 0, next; i < f->cable_count; i = next) {
        const cable *c = &f->cables[i];
        double lanes = 0;
        for (next = i; next < f->cable_count && f->cables[next].from == c->from &&
                       f->cables[next].to == c->to && f->cables[next].rate == c->rate;
             next++)
            lanes += f->cables[next].lanes;
        if (c->from == c->to || !f->nodes[c->from].is_switch || !f->nodes[c->to].is_switch)
            continue;
        TY_TRY(builder_link(&f->im->builder, vertices[c->from], vertices[c->to], link_of(f, c),
                            true, lanes, error));
    }
    return TY_OK;
}

/* An adapter of a host, in the order of the numbers their labels end with. */
typedef struct adapter {
    uint32_t host, order, node, cable;
} adapter;

static int compare_adapters(const void *a, const void *b)
{
    const adapter *x = a, *y = b;
    int order = compare_numbers(x->host, y->host);
    order = order != 0 ? order : compare_numbers(x->order, y->order);
    order = order != 0 ? order : compare_numbers(x->node, y->node);
    return order != 0 ? order : compare_numbers(x->cable, y->cable);
}

static uint32_t number_at_end(const char *text)
{
    size_t length = strlen(text), at = length;

    while (at > 0 && isdigit((unsigned char)text[at - 1]))
        at--;
    return length - at > 0 && length - at < 9 ? (uint32_t)atoi(text + at) : 0;
}

/* Aggregation nodes (SHARP) are inside switches; an unconfigured adapter has its own name, not its
 * host's. */
static bool names_host(const char *label)
{
    return label[0] != '\0' && !isspace((unsigned char)label[0]) &&
           strstr(label, "Aggregation Node") == NULL && strncmp(label, "MT", 2) != 0 &&
           strncmp(label, "Mellanox", 8) != 0 && strncmp(label, "Quantum", 7) != 0;
}

static ty_status list_adapters(fabric *f, tree *hosts, adapter *list, uint32_t *count,
                               ty_error *error)
{
    *count = 0;
    for (uint32_t i = 0; i < f->cable_count; i++) {
        const cable *c = &f->cables[i];
        bool from_switch = f->nodes[c->from].is_switch;
        uint32_t node = from_switch ? c->to : c->from;
        const char *label = f->nodes[node].label;
        char host[LABEL_ROOM];
        size_t length = strcspn(label, " ");
        if (from_switch == f->nodes[c->to].is_switch)
            continue;
        if (!names_host(label)) {
            f->unnamed += strstr(label, "Aggregation Node") == NULL;
            continue;
        }
        memcpy(host, label, length);
        host[length] = '\0';
        list[*count] = (adapter){.order = number_at_end(label), .node = node, .cable = i};
        TY_TRY(tree_node_of(hosts, host, c->line, &list[*count].host, error));
        (*count)++;
    }
    qsort(list, *count, sizeof *list, compare_adapters);
    return TY_OK;
}

/* The NICs of one host, from its adapters [first, end). */
static ty_status add_host(fabric *f, const char *name, const adapter *list, uint32_t count,
                          const uint32_t *vertices, ty_error *error)
{
    const catalogue_host *host = &f->im->catalogue->hosts[f->im->host];
    uint32_t first, used = 0;

    TY_TRY(builder_host(&f->im->builder, f->im->host, name, &first, error));
    for (uint32_t v = 1; v < host->vertex_count && used < count; v++) {
        const cable *c = &f->cables[list[used].cable];
        uint32_t other = c->from == list[used].node ? c->to : c->from;
        if (host->vertices[v].kind != TY_VERTEX_NIC)
            continue;
        TY_TRY(builder_link(&f->im->builder, first + v, vertices[other], link_of(f, c), false,
                            c->lanes, error));
        used++;
    }
    f->spare += count - used;
    f->partial += used < catalogue_host_count_of(host, TY_VERTEX_NIC);
    return TY_OK;
}

static ty_status add_hosts(fabric *f, const uint32_t *vertices, tree *hosts, ty_error *error)
{
    adapter *list = ty_alloc(f->cable_count, sizeof *list);
    uint32_t count;
    ty_status status;

    TY_TRY(ty_check_memory(list != NULL, error));
    TY_CHECK(list_adapters(f, hosts, list, &count, error), status, cleanup);
    for (uint32_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && list[end].host == list[first].host; end++)
            continue;
        TY_CHECK(add_host(f, hosts->nodes[list[first].host].name, list + first, end - first,
                          vertices, error),
                 status, cleanup);
    }
    if (f->unnamed > 0)
        import_note(f->im, "%u adapters do not say whose they are: left out", f->unnamed);
    if (f->spare > 0)
        import_note(f->im, "%u adapters more than a %s has: left out", f->spare,
                    f->im->catalogue->hosts[f->im->host].name);
    if (f->partial > 0)
        import_note(f->im,
                    "%u hosts show fewer adapters than a %s has: its other NICs lead nowhere",
                    f->partial, f->im->catalogue->hosts[f->im->host].name);
cleanup:
    ty_free(list);
    return status;
}

static ty_status build(fabric *f, ty_error *error)
{
    uint32_t *vertices = ty_alloc((size_t)f->names.count + 1, sizeof *vertices);
    tree taken = {0}, hosts = {0};
    ty_status status;

    TY_TRY(ty_check_memory(vertices != NULL, error));
    TY_CHECK(tree_open(&taken, f->im, error), status, cleanup);
    TY_CHECK(tree_open(&hosts, f->im, error), status, cleanup);
    drop_doubles(f);
    TY_CHECK(add_switches(f, vertices, &taken, error), status, cleanup);
    TY_CHECK(import_need_host(f->im, "does not say what its hosts are", error), status, cleanup);
    TY_CHECK(add_trunks(f, vertices, error), status, cleanup);
    status = add_hosts(f, vertices, &hosts, error);
cleanup:
    tree_close(&taken);
    tree_close(&hosts);
    ty_free(vertices);
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    fabric f = {.im = im};
    ty_status status;

    TY_CHECK(tree_open(&f.names, im, error), status, cleanup);
    TY_CHECK(read_records(&f, error), status, cleanup);
    status = build(&f, error);
cleanup:
    tree_close(&f.names);
    ty_free(f.nodes);
    ty_free(f.cables);
    return status;
}

static bool probe(const char *text, size_t length)
{
    import_lines l = import_lines_of(text, length);

    while (import_next_line(&l) && l.number < 100)
        if ((starts(&l, "Switch") || starts(&l, "Ca")) && memchr(l.line, '"', l.length) != NULL)
            return true;
    return false;
}

const import_format import_ibnet = {"ibnetdiscover", "ibnetdiscover", probe, read};
