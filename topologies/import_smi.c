/* `nvidia-smi topo -m`: a matrix of how close GPUs and NICs are to each other.
 *
 * PIX, PXB, PHB, NODE and SYS are levels of a tree, which is put together again: things at PIX
 * share a switch, switches at PXB share a root port, and so on. NV# hides the level two GPUs have
 * otherwise; NICs and the NUMA column stand in. What the GPUs are, and the PCIe generation, is for
 * the options to say. */
#include "importer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THING_LIMIT = 256, NAME_ROOM = 32 };

/* From near to far. */
enum { SELF, PIX, PXB, PHB, NODE, SYS, UNKNOWN, RELATION_COUNT };
static const char *const relation_names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};

typedef struct thing {
    char name[NAME_ROOM];
    char numa[NAME_ROOM]; /* CPU affinity: equal on one NUMA node; "" where there is none */
    bool is_gpu;
    uint32_t row; /* NO_INDEX: no line of its own */
} thing;

typedef struct cell {
    uint8_t relation; /* UNKNOWN where NVLink hides it */
    uint16_t links;   /* NVLinks */
} cell;

typedef struct matrix {
    importer *im;
    uint32_t count, gpus;
    thing *things; /* [THING_LIMIT] in the order of the columns */
    cell *cells;   /* [THING_LIMIT][THING_LIMIT] */
    uint32_t numa_column;
} matrix;

/* ---- Reading ----------------------------------------------------------------------------- */

/* The next tab-separated field without blanks and terminal escapes; false at the end. */
static bool next_field(const char **at, const char *end, char out[NAME_ROOM])
{
    size_t length = 0;

    if (*at > end)
        return false;
    while (*at < end && **at != '\t') {
        if (**at == '\033') { /* ESC [ ... letter */
            while (*at < end && !isalpha((unsigned char)**at))
                (*at)++;
            if (*at < end)
                (*at)++;
            continue;
        }
        if (!isspace((unsigned char)**at) && length + 1 < NAME_ROOM)
            out[length++] = **at;
        (*at)++;
    }
    (*at)++; /* the tab, or past the end */
    out[length] = '\0';
    return true;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_gpu_name(const char *name)
{
    return starts_with(name, "GPU") && isdigit((unsigned char)name[3]);
}

static bool is_header(const import_lines *lines)
{
    const char *at = lines->line, *end = lines->line + lines->length;
    char field[NAME_ROOM];
    int empty = 0;

    while (next_field(&at, end, field))
        if (field[0] != '\0')
            return empty == 1 && is_gpu_name(field);
        else
            empty++;
    return false;
}

static ty_status read_header(matrix *m, const import_lines *lines, ty_error *error)
{
    const char *at = lines->line, *end = lines->line + lines->length;
    char field[NAME_ROOM];
    uint32_t column = 0;

    for (; next_field(&at, end, field); column++) {
        if (starts_with(field, "CPUAffinity"))
            m->numa_column = column;
        if (field[0] == '\0' || strstr(field, "Affinity") != NULL || starts_with(field, "GPUNUMA"))
            continue;
        if (column != m->count + 1 || m->count == THING_LIMIT)
            return import_fail(m->im, error, lines->number,
                               "found column \"%s\", expected GPUs and NICs (at most %d) before "
                               "anything else",
                               field, THING_LIMIT);
        m->things[m->count].is_gpu = is_gpu_name(field);
        m->things[m->count].row = NO_INDEX;
        m->gpus += m->things[m->count].is_gpu;
        memcpy(m->things[m->count++].name, field, NAME_ROOM);
    }
    return TY_OK;
}

static bool read_cell(const char *field, cell *out)
{
    for (uint8_t r = 0; r < UNKNOWN; r++)
        if (strcmp(field, relation_names[r]) == 0) {
            *out = (cell){r, 0};
            return true;
        }
    if (starts_with(field, "NV")) {
        uint64_t links;
        if (ty_parse_uint(field + 2, 1, 1000, &links, NULL) == TY_OK) {
            *out = (cell){UNKNOWN, (uint16_t)links};
            return true;
        }
    }
    return false;
}

static ty_status read_row(matrix *m, const import_lines *lines, bool *is_row, ty_error *error)
{
    const char *at = lines->line, *end = lines->line + lines->length;
    char field[NAME_ROOM];
    uint32_t row = 0;

    *is_row = false;
    if (!next_field(&at, end, field) || field[0] == '\0' || at > end)
        return TY_OK;
    while (row < m->count && strcmp(m->things[row].name, field) != 0)
        row++;
    if (row == m->count)
        return TY_OK; /* the legend */
    *is_row = true;
    if (m->things[row].row != NO_INDEX)
        return import_fail(m->im, error, lines->number, "found a second row %s, expected one",
                           field);
    m->things[row].row = lines->number;
    for (uint32_t column = 0; column < m->count; column++)
        if (!next_field(&at, end, field) ||
            !read_cell(field, &m->cells[row * THING_LIMIT + column]))
            return import_fail(m->im, error, lines->number,
                               "found \"%s\" between %s and %s, expected X, NV#, PIX, PXB, PHB, "
                               "NODE or SYS",
                               field, m->things[row].name, m->things[column].name);
    for (uint32_t column = m->count + 1; next_field(&at, end, field); column++)
        if (column == m->numa_column)
            memcpy(m->things[row].numa, field, NAME_ROOM);
    return TY_OK;
}

static ty_status check_matrix(const matrix *m, ty_error *error)
{
    if (m->gpus == 0)
        return import_fail(m->im, error, 0, "found no GPU, expected at least one");
    for (uint32_t a = 0; a < m->count; a++)
        if (m->things[a].row == NO_INDEX)
            return import_fail(m->im, error, 0, "found no row %s, expected one as for each column",
                               m->things[a].name);
    for (uint32_t a = 0; a < m->count; a++)
        for (uint32_t b = 0; b < m->count; b++) {
            const cell *c = &m->cells[a * THING_LIMIT + b], *d = &m->cells[b * THING_LIMIT + a];
            if ((c->relation == SELF) != (a == b) || c->relation != d->relation ||
                c->links != d->links)
                return import_fail(m->im, error, m->things[a].row,
                                   "found %s and %s different seen from each other, expected a "
                                   "symmetric matrix with X on its diagonal",
                                   m->things[a].name, m->things[b].name);
        }
    return TY_OK;
}

static ty_status read_matrix(matrix *m, ty_error *error)
{
    import_lines lines = import_lines_of(m->im->text, m->im->length);
    ty_status status = TY_OK;
    bool is_row;

    while (m->count == 0 && import_next_line(&lines))
        if (is_header(&lines))
            TY_CHECK(read_header(m, &lines, error), status, done);
    while (import_next_line(&lines))
        TY_CHECK(read_row(m, &lines, &is_row, error), status, done);
    status = check_matrix(m, error);
done:
    return status;
}

/* ---- The tree ---------------------------------------------------------------------------- */

static bool is_same_numa(const matrix *m, uint32_t a, uint32_t b)
{
    return m->things[a].numa[0] != '\0' && strcmp(m->things[a].numa, m->things[b].numa) == 0;
}

static bool is_within(const matrix *m, uint32_t a, uint32_t b, uint8_t level)
{
    const cell *c = &m->cells[a * THING_LIMIT + b];
    return c->relation <= level || (c->links > 0 && level >= NODE && is_same_numa(m, a, b));
}

/* Groups of things no farther from each other than `level`, through others if need be. A group is
 * known by its first member. */
static void group(const matrix *m, uint8_t level, uint32_t *groups)
{
    bool has_changed = true;

    for (uint32_t i = 0; i < m->count; i++)
        groups[i] = i;
    while (has_changed) {
        has_changed = false;
        for (uint32_t a = 0; a < m->count; a++)
            for (uint32_t b = 0; b < m->count; b++)
                if (groups[b] < groups[a] && is_within(m, a, b, level)) {
                    groups[a] = groups[b];
                    has_changed = true;
                }
    }
}

typedef struct machine {
    matrix *m;
    uint32_t number, hub;
    import_pcie port;
    uint32_t vertices[THING_LIMIT]; /* of the things */
} machine;

static uint32_t size_of(const machine *x, const uint32_t *groups, uint32_t group_of)
{
    uint32_t size = 0;

    for (uint32_t i = 0; i < x->m->count; i++)
        size += groups[i] == groups[group_of];
    return size;
}

/* A level of the tree: what its switches are called, and the groups of the level inside it. */
typedef struct level {
    const char *kind;
    const uint32_t *groups, *finer; /* finer: NULL at the innermost */
    bool is_processor;
} level;

static ty_status add_switch(machine *x, const level *l, uint32_t number, uint32_t parent,
                            uint32_t *vertex, ty_error *error)
{
    importer *im = x->m->im;
    char name[64];
    ty_status status;

    snprintf(name, sizeof name, "host-%u/%s-%u", x->number, l->kind, number);
    TY_CHECK(cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, vertex, error),
             status, done);
    if (l->is_processor)
        status = builder_link(&im->builder, *vertex, parent,
                              import_smp_link(im, NULL, NULL, NULL, NULL), false, 1, error);
    else
        status = import_pcie_link(im, *vertex, parent, x->port, true, error);
done:
    return status;
}

/* The switch of each group of a level. `at` is where each thing hangs: before, on the level above;
 * after, on this one. A group needs no switch of its own if it has one member, is what the next
 * finer level has as well, or is everything there is. */
static ty_status add_level(machine *x, const level *l, uint32_t *at, ty_error *error)
{
    uint32_t made = 0;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < x->m->count && status == TY_OK; i++) {
        uint32_t size = size_of(x, l->groups, i);
        if (l->groups[i] != i)
            at[i] = at[l->groups[i]];
        else if (size > 1 && (!l->is_processor || size < x->m->count) &&
                 (l->finer == NULL || size_of(x, l->finer, i) < size))
            status = add_switch(x, l, made++, at[i], &at[i], error);
    }
    return status;
}

static ty_status add_things(machine *x, const uint32_t *parents, uint32_t fabric, ty_error *error)
{
    matrix *m = x->m;
    importer *im = m->im;
    uint32_t gpus = 0, nics = 0, device = import_device(im);
    char name[64];
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < m->count; i++) {
        snprintf(name, sizeof name, "host-%u/%s-%u", x->number, m->things[i].is_gpu ? "gpu" : "nic",
                 m->things[i].is_gpu ? gpus++ : nics++);
        if (m->things[i].is_gpu)
            TY_CHECK(builder_device(&im->builder, name, device, x->hub, &x->vertices[i], error),
                     status, done);
        else
            TY_CHECK(
                cluster_add_vertex(im->cluster, TY_VERTEX_NIC, name, 0, &x->vertices[i], error),
                status, done);
        TY_CHECK(
            import_pcie_link(im, x->vertices[i], parents[i], x->port, !m->things[i].is_gpu, error),
            status, done);
        if (!m->things[i].is_gpu && fabric != NO_INDEX)
            TY_CHECK(builder_link(&im->builder, x->vertices[i], fabric,
                                  im->catalogue->hosts[im->host].network, false, 1, error),
                     status, done);
    }
done:
    return status;
}

/* ---- NVLink ------------------------------------------------------------------------------ */

/* More links than a GPU has, counted pair by pair: they go through a switch. */
static bool is_switched(const matrix *m, const catalogue_device *device)
{
    for (uint32_t a = 0; a < m->count; a++) {
        double sum = 0;
        for (uint32_t b = 0; b < m->count; b++)
            sum += m->cells[a * THING_LIMIT + b].links;
        if (sum > device->scale_up_links && device->scale_up != NO_INDEX)
            return true;
    }
    return false;
}

static uint32_t most_links(const matrix *m, uint32_t of)
{
    uint32_t most = 0;

    for (uint32_t b = 0; b < m->count; b++)
        if (m->cells[of * THING_LIMIT + b].links > most)
            most = m->cells[of * THING_LIMIT + b].links;
    return most;
}

static ty_status add_nvlinks(machine *x, ty_error *error)
{
    matrix *m = x->m;
    importer *im = m->im;
    const catalogue_device *device = &im->catalogue->devices[import_device(im)];
    const char *device_name = im->catalogue->device_types[import_device(im)].name;
    uint32_t nvswitch = NO_INDEX;
    bool switched = is_switched(m, device);
    char name[64];
    ty_status status = TY_OK;

    for (uint32_t a = 0; a < m->count; a++) {
        uint32_t most = most_links(m, a);
        if (most > 0 && (switched ? device->scale_up : device->direct) == NO_INDEX)
            return import_fail(im, error, m->things[a].row,
                               "found %u NVLinks of %s, expected none on a %s", most,
                               m->things[a].name, device_name);
        if (switched && most > 0 && nvswitch == NO_INDEX) {
            snprintf(name, sizeof name, "host-%u/nvswitch", x->number);
            TY_CHECK(
                cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &nvswitch, error),
                status, done);
        }
        if (switched && most > 0)
            TY_CHECK(builder_link(&im->builder, x->vertices[a], nvswitch, device->scale_up, false,
                                  most / device->scale_up_links, error),
                     status, done);
        for (uint32_t b = a + 1; b < m->count && !switched; b++)
            if (m->cells[a * THING_LIMIT + b].links > 0)
                TY_CHECK(builder_link(&im->builder, x->vertices[a], x->vertices[b], device->direct,
                                      false, m->cells[a * THING_LIMIT + b].links, error),
                         status, done);
    }
done:
    return status;
}

/* ---- The file ---------------------------------------------------------------------------- */

static ty_status add_machine(matrix *m, uint32_t number, uint32_t fabric, ty_error *error)
{
    const catalogue *c = m->im->catalogue;
    const char *port = c->links[c->devices[import_device(m->im)].port].name;
    machine x = {.m = m, .number = number, .port = {.generation = 3, .lanes = 1}};
    uint32_t pix[THING_LIMIT], pxb[THING_LIMIT], numa[THING_LIMIT];
    uint32_t at[THING_LIMIT];
    char name[32];
    ty_status status;

    if (starts_with(port, "pcie") && isdigit((unsigned char)port[4]))
        x.port.generation = (uint32_t)(port[4] - '0');
    group(m, PIX, pix);
    group(m, PXB, pxb);
    group(m, NODE, numa);
    snprintf(name, sizeof name, "host-%u", number);
    TY_CHECK(cluster_add_vertex(m->im->cluster, TY_VERTEX_HOST, name, 0, &x.hub, error), status,
             done);
    for (uint32_t i = 0; i < m->count; i++)
        at[i] = x.hub;
    TY_CHECK(add_level(&x, &(level){"numa", numa, NULL, true}, at, error), status, done);
    TY_CHECK(add_level(&x, &(level){"root", pxb, pix, false}, at, error), status, done);
    TY_CHECK(add_level(&x, &(level){"pcie", pix, NULL, false}, at, error), status, done);
    TY_CHECK(add_things(&x, at, fabric, error), status, done);
    status = add_nvlinks(&x, error);
done:
    return status;
}

static ty_status build(matrix *m, ty_error *error)
{
    importer *im = m->im;
    uint32_t count = im->options->hosts > 0 ? im->options->hosts : 1, fabric = NO_INDEX;
    ty_status status;

    TY_CHECK(import_need_device(im, "does not say what its GPUs are", error), status, done);
    if (m->count > m->gpus && im->host == NO_INDEX && count == 1)
        import_note(im,
                    "the rate of %u NICs is not in the file and no host was named: not linked "
                    "to a network",
                    m->count - m->gpus);
    if (count > 1)
        TY_CHECK(import_need_host(im, "does not say how fast its NICs are", error), status, done);
    if (count > 1 && m->count == m->gpus)
        return import_fail(im, error, 0, "found no NIC, expected some to link %u machines", count);
    if (m->count > m->gpus && im->host != NO_INDEX) {
        TY_CHECK(cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, "fabric", 0, &fabric, error),
                 status, done);
        import_note(im, "the rate of the NICs is not in the file: %s, as of %s",
                    im->catalogue->links[im->catalogue->hosts[im->host].network].name,
                    im->catalogue->hosts[im->host].name);
    }
    import_note(im, "PCIe is taken as a %s has it, processors as 10 GB/s apart",
                im->catalogue->device_types[import_device(im)].name);
    for (uint32_t h = 0; h < count; h++)
        TY_CHECK(add_machine(m, h, fabric, error), status, done);
done:
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    matrix m = {.im = im, .numa_column = NO_INDEX};
    ty_status status;

    m.things = ty_alloc(THING_LIMIT, sizeof *m.things);
    m.cells = ty_alloc((size_t)THING_LIMIT * THING_LIMIT, sizeof *m.cells);
    if (m.things == NULL || m.cells == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for %.160s", im->name);
        goto cleanup;
    }
    TY_CHECK(read_matrix(&m, error), status, cleanup);
    status = build(&m, error);
cleanup:
    ty_free(m.things);
    ty_free(m.cells);
    return status;
}

static bool probe(const char *text, size_t length)
{
    import_lines lines = import_lines_of(text, length);

    while (import_next_line(&lines) && lines.number < 100)
        if (is_header(&lines))
            return true;
    return false;
}

const import_format import_smi = {"smi", "nvidia-smi topo -m", probe, read};
