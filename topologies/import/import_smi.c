/* `nvidia-smi topo -m`: a matrix of distances between GPUs and NICs. A file may have several, with
 * a log, a legend or documentation around them; columns are separated by tabs or by blanks.
 *
 * PIX, PXB, PHB, NODE and SYS are levels of a tree, which this reconstructs: entries at PIX share a
 * switch, switches at PXB share a root port, and so on. NV# hides the PCIe level of two GPUs; NICs
 * and the NUMA column replace it. The options give the type of GPU and the PCIe generation. */
#include "importer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THING_LIMIT = 256, NAME_ROOM = 32, MATRIX_LIMIT = 64 };

/* From near to far. */
enum { SELF, PIX, PXB, PHB, NODE, SYS, UNKNOWN, RELATION_COUNT };
static const char *const relation_names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};

typedef struct thing {
    char name[NAME_ROOM];
    char numa[NAME_ROOM]; /* CPU affinity: equal on one NUMA node; "" if there is none */
    bool is_gpu;
    uint32_t row; /* NO_INDEX: no own line */
} thing;

typedef struct cell {
    uint8_t relation; /* UNKNOWN if NVLink hides it */
    uint16_t links;   /* NVLinks */
} cell;

typedef struct matrix {
    importer *im;
    uint32_t count, gpus;
    thing *things; /* [THING_LIMIT] in the order of the columns */
    cell *cells;   /* [THING_LIMIT][THING_LIMIT] */
    bool has_affinity;
    unsigned line; /* of the header */
} matrix;

/* ---- Reading ----------------------------------------------------------------------------- */

/* The next word of a line, without terminal escapes and the bars of a text table; false at the end.
 * Cells and names have no blanks. */
static bool next_word(const char **at, const char *end, char out[NAME_ROOM])
{
    size_t length = 0;

    for (; *at < end; (*at)++) {
        if (**at == '\033') { /* ESC [ ... letter */
            while (*at < end && !isalpha((unsigned char)**at))
                (*at)++;
            if (*at == end)
                break;
        } else if (!isspace((unsigned char)**at) && **at != '|') {
            if (length + 1 < NAME_ROOM)
                out[length++] = **at;
        } else if (length > 0) {
            break;
        }
    }
    out[length] = '\0';
    return length > 0;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_gpu_name(const char *name)
{
    size_t digits = starts_with(name, "GPU") ? strspn(name + 3, "0123456789") : 0;
    return digits > 0 && name[3 + digits] == '\0';
}

/* End of a line's first word of that name; NULL: none. */
static const char *after_word(const import_lines *lines, const char *name)
{
    const char *at = lines->line, *end = lines->line + lines->length;
    char word[NAME_ROOM];

    while (next_word(&at, end, word))
        if (strcmp(word, name) == 0)
            return at;
    return NULL;
}

/* The first word that names a GPU, and its end; NULL: none. */
static const char *first_gpu(const import_lines *lines, char name[NAME_ROOM])
{
    const char *at = lines->line, *end = lines->line + lines->length;

    while (next_word(&at, end, name))
        if (is_gpu_name(name))
            return at;
    return NULL;
}

/* Whether a line is a header: no X follows its first GPU, and that GPU starts a row with X within
 * three lines.
 */
static bool is_header(const import_lines *lines)
{
    import_lines ahead = *lines;
    char name[NAME_ROOM], word[NAME_ROOM];
    const char *at = first_gpu(lines, name);

    if (at == NULL || (next_word(&at, lines->line + lines->length, word) && strcmp(word, "X") == 0))
        return false;
    while (import_next_line(&ahead) && ahead.number <= lines->number + 3) {
        at = after_word(&ahead, name);
        if (at != NULL)
            return next_word(&at, ahead.line + ahead.length, word) && strcmp(word, "X") == 0;
    }
    return false;
}

/* Reads names from the first GPU on; "CPU Affinity" and other row data follow. */
static ty_status read_header(matrix *m, const import_lines *lines, ty_error *error)
{
    const char *end = lines->line + lines->length, *at;
    char word[NAME_ROOM];
    bool has_word = true;

    m->line = lines->number;
    for (at = first_gpu(lines, word); has_word; has_word = next_word(&at, end, word)) {
        m->has_affinity = strcmp(word, "CPU") == 0;
        if (m->has_affinity || strcmp(word, "NUMA") == 0 || strcmp(word, "GPU") == 0)
            break;
        if (m->count == THING_LIMIT)
            return import_fail(m->im, error, lines->number,
                               "found column \"%s\", expected at most %d GPUs and NICs", word,
                               THING_LIMIT);
        m->things[m->count].is_gpu = is_gpu_name(word);
        m->things[m->count].row = NO_INDEX;
        m->gpus += m->things[m->count].is_gpu;
        memcpy(m->things[m->count++].name, word, NAME_ROOM);
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

/* The row of a line, and the start of its cells; NO_INDEX: not a line of the matrix. Such a line
 * has a name of the matrix, followed mostly by relations. */
static uint32_t find_row(const matrix *m, const import_lines *lines, const char **cells)
{
    const char *at = lines->line, *end = lines->line + lines->length;
    char name[NAME_ROOM], word[NAME_ROOM];
    cell c;

    while (next_word(&at, end, name)) {
        const char *next = at;
        uint32_t row = 0, words = 0, known = 0;
        while (row < m->count && strcmp(m->things[row].name, name) != 0)
            row++;
        for (; row < m->count && words < m->count && next_word(&next, end, word); words++)
            known += read_cell(word, &c);
        *cells = at;
        if (known > 0 && 2 * known >= words)
            return row;
    }
    return NO_INDEX;
}

static ty_status read_row(matrix *m, const import_lines *lines, ty_error *error)
{
    const char *at, *end = lines->line + lines->length;
    char word[NAME_ROOM];
    uint32_t row = find_row(m, lines, &at);

    if (row == NO_INDEX)
        return TY_OK; /* the legend, or a log */
    if (m->things[row].row != NO_INDEX)
        return import_fail(m->im, error, lines->number, "found a second row %s, expected one",
                           m->things[row].name);
    m->things[row].row = lines->number;
    for (uint32_t column = 0; column < m->count; column++)
        if (!next_word(&at, end, word) || !read_cell(word, &m->cells[row * THING_LIMIT + column]))
            return import_fail(m->im, error, lines->number,
                               "found \"%s\" between %s and %s, expected X, NV#, PIX, PXB, PHB, "
                               "NODE or SYS",
                               word, m->things[row].name, m->things[column].name);
    if (m->has_affinity && next_word(&at, end, word))
        memcpy(m->things[row].numa, word, NAME_ROOM);
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

/* All matrices of the file. @param matrices [out] [MATRIX_LIMIT], `count` of them to be freed */
static ty_status read_matrices(importer *im, matrix *matrices, uint32_t *count, ty_error *error)
{
    import_lines lines = import_lines_of(im->text, im->length);

    while (import_next_line(&lines)) {
        matrix *m = *count > 0 ? &matrices[*count - 1] : NULL;
        if (is_header(&lines)) {
            if (*count == MATRIX_LIMIT)
                return import_fail(im, error, lines.number,
                                   "found more than %d matrices, expected fewer", MATRIX_LIMIT);
            m = &matrices[(*count)++];
            m->im = im;
            m->things = ty_alloc(THING_LIMIT, sizeof *m->things);
            m->cells = ty_alloc((size_t)THING_LIMIT * THING_LIMIT, sizeof *m->cells);
            TY_TRY(ty_check_memory(m->things != NULL && m->cells != NULL, error));
            TY_TRY(read_header(m, &lines, error));
        } else if (m != NULL) {
            TY_TRY(read_row(m, &lines, error));
        }
    }
    if (*count == 0)
        return import_fail(im, error, 0, "found no GPU, expected a matrix of at least one");
    for (uint32_t i = 0; i < *count; i++)
        TY_TRY(check_matrix(&matrices[i], error));
    return TY_OK;
}

static bool is_same_matrix(const matrix *a, const matrix *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->things[i].is_gpu != b->things[i].is_gpu ||
            strcmp(a->things[i].numa, b->things[i].numa) != 0)
            return false;
        for (uint32_t k = 0; k < a->count; k++) {
            const cell *c = &a->cells[i * THING_LIMIT + k], *d = &b->cells[i * THING_LIMIT + k];
            if (c->relation != d->relation || c->links != d->links)
                return false;
        }
    }
    return true;
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

/* Groups of entries connected by distances of at most `level`. The first member identifies a
 * group. */
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
    uint32_t vertices[THING_LIMIT]; /* of the entries */
} machine;

static uint32_t size_of(const machine *x, const uint32_t *groups, uint32_t group_of)
{
    uint32_t size = 0;

    for (uint32_t i = 0; i < x->m->count; i++)
        size += groups[i] == groups[group_of];
    return size;
}

/* A level of the tree: the names of its switches, and the groups of the next finer level. */
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
    TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, vertex, error));
    if (l->is_processor)
        status = builder_link(&im->builder, *vertex, parent,
                              import_smp_link(im, NULL, NULL, NULL, NULL), false, 1, error);
    else
        status = import_pcie_link(im, *vertex, parent, x->port, true, error);
    return status;
}

/* Adds the switch of each group of a level. `at` is the vertex each entry is connected to: before
 * on the level above, after on this one. A group needs no own switch if it has one member, equals a
 * group of the next finer level, or contains all entries. */
static ty_status add_level(machine *x, const level *l, uint32_t *at, ty_error *error)
{
    uint32_t made = 0;

    for (uint32_t i = 0; i < x->m->count; i++) {
        uint32_t size = size_of(x, l->groups, i);
        if (l->groups[i] != i)
            at[i] = at[l->groups[i]];
        else if (size > 1 && (!l->is_processor || size < x->m->count) &&
                 (l->finer == NULL || size_of(x, l->finer, i) < size))
            TY_TRY(add_switch(x, l, made++, at[i], &at[i], error));
    }
    return TY_OK;
}

static ty_status add_things(machine *x, const uint32_t *parents, uint32_t fabric, ty_error *error)
{
    matrix *m = x->m;
    importer *im = m->im;
    uint32_t gpus = 0, nics = 0, device = import_device(im);
    char name[64];

    for (uint32_t i = 0; i < m->count; i++) {
        snprintf(name, sizeof name, "host-%u/%s-%u", x->number, m->things[i].is_gpu ? "gpu" : "nic",
                 m->things[i].is_gpu ? gpus++ : nics++);
        if (m->things[i].is_gpu)
            TY_TRY(builder_device(&im->builder, name, device, x->hub, &x->vertices[i], error));
        else
            TY_TRY(
                ty_cluster_add_vertex(im->cluster, TY_VERTEX_NIC, name, 0, &x->vertices[i], error));
        TY_TRY(
            import_pcie_link(im, x->vertices[i], parents[i], x->port, !m->things[i].is_gpu, error));
        if (!m->things[i].is_gpu && fabric != NO_INDEX)
            TY_TRY(builder_link(&im->builder, x->vertices[i], fabric,
                                im->catalogue->hosts[im->host].network, false, 1, error));
    }
    return TY_OK;
}

/* ---- NVLink ------------------------------------------------------------------------------ */

/* Whether links, summed over pairs, exceed those of a GPU: then they go through a switch. */
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

    for (uint32_t a = 0; a < m->count; a++) {
        uint32_t most = most_links(m, a);
        if (most > 0 && (switched ? device->scale_up : device->direct) == NO_INDEX)
            return import_fail(im, error, m->things[a].row,
                               "found %u NVLinks of %s, expected none on a %s", most,
                               m->things[a].name, device_name);
        if (switched && most > 0 && nvswitch == NO_INDEX) {
            snprintf(name, sizeof name, "host-%u/nvswitch", x->number);
            TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0, &nvswitch,
                                         error));
        }
        if (switched && most > 0)
            TY_TRY(builder_link(&im->builder, x->vertices[a], nvswitch, device->scale_up, false,
                                most / device->scale_up_links, error));
        for (uint32_t b = a + 1; b < m->count && !switched; b++)
            if (m->cells[a * THING_LIMIT + b].links > 0)
                TY_TRY(builder_link(&im->builder, x->vertices[a], x->vertices[b], device->direct,
                                    false, m->cells[a * THING_LIMIT + b].links, error));
    }
    return TY_OK;
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

    if (starts_with(port, "pcie") && isdigit((unsigned char)port[4]))
        x.port.generation = (uint32_t)(port[4] - '0');
    group(m, PIX, pix);
    group(m, PXB, pxb);
    group(m, NODE, numa);
    snprintf(name, sizeof name, "host-%u", number);
    TY_TRY(ty_cluster_add_vertex(m->im->cluster, TY_VERTEX_HOST, name, 0, &x.hub, error));
    for (uint32_t i = 0; i < m->count; i++)
        at[i] = x.hub;
    TY_TRY(add_level(&x, &(level){"numa", numa, NULL, true}, at, error));
    TY_TRY(add_level(&x, &(level){"root", pxb, pix, false}, at, error));
    TY_TRY(add_level(&x, &(level){"pcie", pix, NULL, false}, at, error));
    TY_TRY(add_things(&x, at, fabric, error));
    return add_nvlinks(&x, error);
}

/* Sets values that the file omits, from the options, with notes. @param count machines */
static ty_status settle_network(importer *im, const matrix *matrices, uint32_t matrix_count,
                                uint32_t count, uint32_t *fabric, ty_error *error)
{
    uint32_t nics = 0;

    for (uint32_t i = 0; i < matrix_count; i++) {
        nics += matrices[i].count - matrices[i].gpus;
        if (count > 1 && matrices[i].count == matrices[i].gpus)
            return import_fail(im, error, matrices[i].line,
                               "found no NIC, expected some to link %u machines", count);
    }
    if (nics > 0 && im->host == NO_INDEX && count == 1)
        import_note(im,
                    "the rate of %u NICs is not in the file and no host was named: not linked "
                    "to a network",
                    nics);
    if (count > 1)
        TY_TRY(import_need_host(im, "does not say how fast its NICs are", error));
    if (nics > 0 && im->host != NO_INDEX) {
        TY_TRY(ty_cluster_add_vertex(im->cluster, TY_VERTEX_SWITCH, "fabric", 0, fabric, error));
        import_note(im, "the rate of the NICs is not in the file: %s, as of %s",
                    im->catalogue->links[im->catalogue->hosts[im->host].network].name,
                    im->catalogue->hosts[im->host].name);
    }
    return TY_OK;
}

/* Several matrices are several machines, or repeated output of one if the options specify one. */
static ty_status count_machines(importer *im, const matrix *matrices, uint32_t matrix_count,
                                uint32_t *count, bool *are_alike, ty_error *error)
{
    *are_alike = true;
    for (uint32_t i = 1; i < matrix_count; i++)
        *are_alike = *are_alike && is_same_matrix(&matrices[0], &matrices[i]);
    *count = im->options->hosts > 0 ? im->options->hosts : matrix_count;
    if (!*are_alike && *count != matrix_count)
        return import_fail(im, error, matrices[1].line,
                           "found %u matrices that differ, expected %u equal machines: cut out one "
                           "matrix, or leave --hosts out",
                           matrix_count, *count);
    if (matrix_count > 1)
        import_note(im, "%u matrices%s: %u machine%s", matrix_count,
                    *are_alike ? ", all alike" : "", *count, *count > 1 ? "s" : "");
    return TY_OK;
}

static ty_status build(importer *im, matrix *matrices, uint32_t matrix_count, ty_error *error)
{
    uint32_t count, fabric = NO_INDEX;
    bool are_alike;

    TY_TRY(import_need_device(im, "does not say what its GPUs are", error));
    TY_TRY(count_machines(im, matrices, matrix_count, &count, &are_alike, error));
    TY_TRY(settle_network(im, matrices, matrix_count, count, &fabric, error));
    import_note(im, "PCIe is taken as a %s has it, processors as 10 GB/s apart",
                im->catalogue->device_types[import_device(im)].name);
    for (uint32_t h = 0; h < count; h++)
        TY_TRY(add_machine(&matrices[are_alike ? 0 : h], h, fabric, error));
    return TY_OK;
}

static ty_status read(importer *im, ty_error *error)
{
    matrix *matrices = ty_alloc(MATRIX_LIMIT, sizeof *matrices);
    uint32_t count = 0;
    ty_status status;

    TY_TRY(ty_check_memory(matrices != NULL, error));
    TY_CHECK(read_matrices(im, matrices, &count, error), status, cleanup);
    status = build(im, matrices, count, error);
cleanup:
    for (uint32_t i = 0; i < count; i++) {
        ty_free(matrices[i].things);
        ty_free(matrices[i].cells);
    }
    ty_free(matrices);
    return status;
}

static bool probe(const char *text, size_t length)
{
    import_lines lines = import_lines_of(text, length);

    while (import_next_line(&lines) && lines.number < 10000)
        if (is_header(&lines))
            return true;
    return false;
}

const import_format import_smi = {"smi", "nvidia-smi topo -m", probe, read};
