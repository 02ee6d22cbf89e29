/* Slurm's topology/tree: man topology.conf, SwitchName, Switches, Nodes. */
#include "export_slurm.h"

#include "ty_base.h"

#include <stdlib.h>
#include <string.h>

typedef struct slurm {
    const ty_cluster *c;
    uint32_t *levels, *queue; /* [vertex] as in examine.c: 1 is a leaf */
    uint32_t *parents;        /* [vertex] of switches: parent, NO_INDEX, or several */
    uint32_t *leaves;         /* [host] its switch */
    bool has_several;
    uint32_t beside; /* a leaf that is linked to another leaf, as in a torus; NO_INDEX */
} slurm;

static void find_levels(slurm *s)
{
    const ty_cluster *c = s->c;
    uint32_t head = 0, tail = 0;

    for (uint32_t v = 0; v < c->vertex_count; v++)
        if (c->vertices[v].kind != TY_VERTEX_SWITCH)
            s->queue[tail++] = v;
    while (head < tail) {
        uint32_t v = s->queue[head++];
        for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++) {
            uint32_t next = c->ports[p].vertex;
            if (c->vertices[next].kind == TY_VERTEX_SWITCH && s->levels[next] == 0) {
                s->levels[next] = s->levels[v] + 1;
                s->queue[tail++] = next;
            }
        }
    }
}

/* A switch with two parents, or linked to one of its level, is no tree. */
static void find_parents(slurm *s)
{
    const ty_cluster *c = s->c;

    for (uint32_t v = 0; v < c->vertex_count; v++) {
        s->parents[v] = NO_INDEX;
        if (s->levels[v] == 0)
            continue;
        for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++) {
            uint32_t next = c->ports[p].vertex;
            if (s->levels[next] > s->levels[v] && s->parents[v] == NO_INDEX)
                s->parents[v] = next;
            else if (s->levels[next] == s->levels[v] ||
                     (s->levels[next] > s->levels[v] && s->parents[v] != next))
                s->has_several = true;
            if (s->levels[v] == 1 && s->levels[next] == 1)
                s->beside = v;
        }
    }
}

/* The first switch linked to a NIC or hub of the host's island. */
static void find_leaves(slurm *s, uint32_t *of_island)
{
    const ty_cluster *c = s->c;

    for (uint32_t i = 0; i < c->island_count; i++)
        of_island[i] = NO_INDEX;
    for (uint32_t v = 0; v < c->vertex_count; v++) {
        uint32_t island = c->vertices[v].island;
        for (uint32_t p = c->port_starts[v]; island != NO_INDEX && p < c->port_starts[v + 1]; p++)
            if (s->levels[c->ports[p].vertex] > 0 && of_island[island] == NO_INDEX)
                of_island[island] = c->ports[p].vertex;
    }
    for (uint32_t h = 0; h < c->host_count; h++)
        s->leaves[h] = of_island[c->vertices[c->host_vertices[h]].island];
}

/* Children of each vertex: items[starts[v]] up to items[starts[v + 1]], in ascending order. */
typedef struct children {
    uint32_t *starts, *items;
} children;

static ty_status find_children(const uint32_t *above, uint32_t count, uint32_t vertices,
                               children *out, ty_error *error)
{
    uint32_t all = 0;

    out->starts = ty_alloc((size_t)vertices + 2, sizeof *out->starts);
    out->items = ty_alloc((size_t)count + 1, sizeof *out->items);
    TY_TRY(ty_check_memory(out->starts != NULL && out->items != NULL, error));
    for (uint32_t i = 0; i < count; i++)
        if (above[i] != NO_INDEX)
            out->starts[above[i] + 2]++;
    for (uint32_t v = 0; v < vertices; v++) {
        all += out->starts[v + 1];
        out->starts[v + 1] = all;
    }
    for (uint32_t i = 0; i < count; i++)
        if (above[i] != NO_INDEX)
            out->items[out->starts[above[i] + 1]++] = i;
    return TY_OK;
}

static void free_children(children *of)
{
    ty_free(of->starts);
    ty_free(of->items);
}

/* Writes "Key=a,b,c" with the children of a switch; nothing if it has none. `vertices`: of
 * hosts. */
static void write_below(const ty_cluster *c, const children *of, uint32_t parent, const char *key,
                        const uint32_t *vertices, ty_text *text)
{
    for (uint32_t i = of->starts[parent]; i < of->starts[parent + 1]; i++) {
        uint32_t item = of->items[i];
        ty_text_add(text, i > of->starts[parent] ? "," : key);
        write_slurm_name(text, c->vertices[vertices != NULL ? vertices[item] : item].name);
    }
}

/* For a fabric that is no tree, writes only the leaves below one switch, as Slurm requires a
 * tree. */
static ty_status write_tree(const slurm *s, ty_text *text, ty_error *error)
{
    const ty_cluster *c = s->c;
    children hosts = {0}, switches = {0};
    uint32_t leaves = 0;
    ty_status status;

    TY_CHECK(find_children(s->leaves, c->host_count, c->vertex_count, &hosts, error), status, done);
    TY_CHECK(find_children(s->parents, c->vertex_count, c->vertex_count, &switches, error), status,
             done);
    ty_text_add(text, "# topology.conf of ");
    ty_quote_visible(text, c->name, "");
    ty_text_add(text, "\n");
    for (uint32_t v = 0; v < c->vertex_count; v++) {
        if (s->levels[v] == 0 || (s->has_several && s->levels[v] > 1))
            continue;
        ty_text_add(text, "SwitchName=");
        write_slurm_name(text, c->vertices[v].name);
        write_below(c, &hosts, v, " Nodes=", c->host_vertices, text);
        if (!s->has_several)
            write_below(c, &switches, v, " Switches=", NULL, text);
        ty_text_add(text, "\n");
    }
    for (uint32_t v = 0; s->has_several && v < c->vertex_count; v++)
        if (s->levels[v] == 1) {
            ty_text_add(text, leaves++ == 0 ? "SwitchName=all Switches=" : ",");
            write_slurm_name(text, c->vertices[v].name);
        }
    if (leaves > 0)
        ty_text_add(text, "\n");
    status = ty_text_check(text, error);
done:
    free_children(&hosts);
    free_children(&switches);
    return status;
}

static ty_status export_tree(const ty_cluster *c, ty_text *text, ty_error *error)
{
    size_t vertices = c->vertex_count;
    slurm s = {.c = c, .beside = NO_INDEX};
    ty_status status;

    s.levels = ty_alloc(4 * vertices + c->host_count, sizeof *s.levels);
    TY_TRY(ty_check_memory(s.levels != NULL, error));
    s.queue = s.levels + vertices;
    s.parents = s.queue + vertices;
    s.leaves = s.parents + 2 * vertices;
    find_levels(&s);
    find_parents(&s);
    find_leaves(&s, s.parents + vertices); /* at most as many islands as vertices */
    for (uint32_t h = 0; h < c->host_count; h++)
        if (s.leaves[h] == NO_INDEX) {
            status = ty_fail(error, TY_EUNSUPPORTED,
                             "cluster %s: found host %s on no network switch, expected one",
                             c->name, c->vertices[c->host_vertices[h]].name);
            goto cleanup;
        }
    if (s.beside != NO_INDEX) {
        status = ty_fail(error, TY_EUNSUPPORTED,
                         "cluster %.100s: found switch %.60s linked to others like it, as in a "
                         "torus or a mesh, expected a tree: topology.conf has no words for it",
                         c->name, c->vertices[s.beside].name);
        goto cleanup;
    }
    status = write_tree(&s, text, error);
cleanup:
    ty_free(s.levels);
    return status;
}

/* Length of a name in the checked text. */
static size_t length_of(const char *name)
{
    return strcspn(name, " ,\n");
}

static int compare_names(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;
    size_t length = length_of(*one), second = length_of(*other);
    int order = memcmp(*one, *other, length < second ? length : second);

    return order != 0 ? order : (length > second) - (length < second);
}

/* Finds the names after a key, in a list separated by commas. */
static size_t find_names(const char *text, const char *key, const char **names)
{
    size_t count = 0;

    while ((text = strstr(text, key)) != NULL) {
        text += strlen(key);
        names[count++] = text;
        for (text += length_of(text); *text == ','; text += length_of(text))
            names[count++] = ++text;
    }
    return count;
}

/* Slurm identifies hosts and switches by name. Names that differ only in unsupported characters
 * would become equal. */
static ty_status check_names(const ty_cluster *c, const ty_text *text, ty_error *error)
{
    static const struct {
        const char *key, *what;
    } kinds[] = {{"SwitchName=", "switches"}, {"BlockName=", "blocks"}, {" Nodes=", "hosts"}};
    const char **names = ty_alloc((size_t)c->vertex_count + 1, sizeof *names);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(names != NULL, error));
    for (size_t k = 0; status == TY_OK && k < sizeof kinds / sizeof kinds[0]; k++) {
        size_t count = find_names(strchr(text->data, '\n'), kinds[k].key, names);
        qsort(names, count, sizeof *names, compare_names);
        for (size_t i = 1; status == TY_OK && i < count; i++)
            if (compare_names(&names[i - 1], &names[i]) == 0)
                status =
                    ty_fail(error, TY_EUNSUPPORTED,
                            "cluster %.80s: found two %s that topology.conf would call "
                            "%.*s, expected names that differ in letters, digits, '-', '_' "
                            "or '.'",
                            c->name, kinds[k].what,
                            length_of(names[i]) < 60 ? (int)length_of(names[i]) : 60, names[i]);
    }
    ty_free(names);
    return status;
}

ty_status export_slurm(const ty_cluster *c, const char *host, ty_text *text, ty_error *error)
{
    ty_text written = {0};
    bool has_blocks = false;
    ty_status status;

    (void)host; /* the file describes the entire cluster */
    TY_CHECK(export_blocks(c, &written, &has_blocks, error), status, cleanup);
    if (!has_blocks)
        TY_CHECK(export_tree(c, &written, error), status, cleanup);
    TY_CHECK(check_names(c, &written, error), status, cleanup);
    ty_text_append(text, written.data, written.length);
    status = ty_text_check(text, error);

cleanup:
    ty_text_clear(&written);
    return status;
}
