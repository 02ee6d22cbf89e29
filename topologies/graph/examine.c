/* Finds weaknesses of a cluster. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct findings {
    const ty_cluster *cluster;
    uint32_t count, room;
    ty_finding *list;
} findings;

const char *ty_finding_kind_name(ty_finding_kind kind)
{
    static const char *const names[TY_FINDING_KIND_COUNT] = {
        [TY_FINDING_OVERSUBSCRIBED] = "oversubscribed",
        [TY_FINDING_WEAK_POINT] = "weak_point",
        [TY_FINDING_SLOW_LINK] = "slow_link",
        [TY_FINDING_ODD_DEVICE] = "odd_device",
    };
    return (unsigned)kind < TY_FINDING_KIND_COUNT ? names[kind] : "unknown";
}

static ty_status add(findings *f, ty_finding_kind kind, bool is_link, uint32_t index, double value,
                     ty_error *error)
{
    TY_TRY(ty_reserve(&f->list, f->count, &f->room, sizeof *f->list, error));
    f->list[f->count++] = (ty_finding){kind, is_link, index, value};
    return TY_OK;
}

/* ---- Oversubscription -------------------------------------------------------------------- */

/* Level of each network switch: 1 if it connects other vertices than switches, else one more than
 * the lowest neighbor; 0 for all other vertices. */
static ty_status find_levels(const ty_cluster *c, uint32_t *levels, ty_error *error)
{
    uint32_t *queue = ty_alloc(c->vertex_count, sizeof *queue), head = 0, tail = 0;

    TY_TRY(ty_check_memory(queue != NULL, error));
    for (uint32_t v = 0; v < c->vertex_count; v++)
        if (c->vertices[v].kind != TY_VERTEX_SWITCH)
            queue[tail++] = v;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++) {
            uint32_t next = c->ports[p].vertex;
            if (c->vertices[next].kind == TY_VERTEX_SWITCH && levels[next] == 0) {
                levels[next] = levels[v] + 1;
                queue[tail++] = next;
            }
        }
    }
    ty_free(queue);
    return TY_OK;
}

static ty_status find_oversubscribed(findings *f, ty_error *error)
{
    const ty_cluster *c = f->cluster;
    uint32_t *levels = ty_alloc(c->vertex_count, sizeof *levels);
    ty_status status;

    TY_TRY(ty_check_memory(levels != NULL, error));
    TY_CHECK(find_levels(c, levels, error), status, cleanup);
    for (uint32_t v = 0; v < c->vertex_count; v++) {
        double down = 0, up = 0;
        for (uint32_t p = c->port_starts[v]; levels[v] > 0 && p < c->port_starts[v + 1]; p++) {
            double bandwidth = c->links[c->ports[p].link].bandwidth_bytes_per_s;
            uint32_t other = levels[c->ports[p].vertex];
            down += other < levels[v] ? bandwidth : 0;
            up += other > levels[v] ? bandwidth : 0;
        }
        if (up > 0 && down > up * (1 + 1e-9))
            TY_CHECK(add(f, TY_FINDING_OVERSUBSCRIBED, false, v, down / up, error), status,
                     cleanup);
    }
cleanup:
    ty_free(levels);
    return status;
}

/* ---- Slow links -------------------------------------------------------------------------- */

/* A link among similar ones: same kind, same kinds of ends. */
typedef struct sample {
    uint32_t group;
    double lanes;
    uint32_t link;
} sample;

static int compare_samples(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->lanes < y->lanes || x->lanes > y->lanes)
        return x->lanes < y->lanes ? -1 : 1;
    return x->link < y->link ? -1 : x->link > y->link;
}

static uint32_t group_of(const ty_cluster *c, uint32_t link)
{
    uint32_t a = (uint32_t)c->vertices[c->links[link].from].kind;
    uint32_t b = (uint32_t)c->vertices[c->links[link].to].kind;
    uint32_t low = a < b ? a : b, high = a < b ? b : a;

    return (c->link_kinds[link] * TY_VERTEX_KIND_COUNT + low) * TY_VERTEX_KIND_COUNT + high;
}

/* The most frequent width of links [first, end); the wider of two as frequent. */
static double usual_lanes(const sample *list, uint32_t first, uint32_t end)
{
    double usual = 0;
    uint32_t most = 0;

    for (uint32_t i = first, next; i < end; i = next) {
        for (next = i; next < end && !(list[next].lanes > list[i].lanes); next++)
            continue;
        if (next - i >= most) {
            most = next - i;
            usual = list[i].lanes;
        }
    }
    return usual;
}

/* Links between devices (meshes have single and double ones) and trunks (as wide as the links
 * below) differ by design. */
static bool is_comparable(const ty_cluster *c, uint32_t link)
{
    ty_vertex_kind a = c->vertices[c->links[link].from].kind;
    ty_vertex_kind b = c->vertices[c->links[link].to].kind;
    return !(a == b && (a == TY_VERTEX_DEVICE || a == TY_VERTEX_SWITCH));
}

static ty_status find_slow_links(findings *f, ty_error *error)
{
    const ty_cluster *c = f->cluster;
    sample *list = ty_alloc(c->link_count, sizeof *list);
    uint32_t count = 0;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(list != NULL, error));
    for (uint32_t i = 0; i < c->link_count; i++)
        if (is_comparable(c, i))
            list[count++] = (sample){group_of(c, i), c->link_lanes[i], i};
    qsort(list, count, sizeof *list, compare_samples);
    for (uint32_t first = 0, end; first < count; first = end) {
        double usual;
        for (end = first; end < count && list[end].group == list[first].group; end++)
            continue;
        usual = usual_lanes(list, first, end);
        for (uint32_t i = first; i < end && list[i].lanes < usual * (1 - 1e-9); i++)
            TY_CHECK(add(f, TY_FINDING_SLOW_LINK, true, list[i].link, list[i].lanes / usual, error),
                     status, cleanup);
    }
cleanup:
    ty_free(list);
    return status;
}

/* ---- Weak points and odd devices --------------------------------------------------------- */

static ty_status find_weak_points(findings *f, ty_error *error)
{
    ty_weak_point *points = NULL;
    uint32_t count;
    ty_status status = ty_cluster_weak_points(f->cluster, &points, &count, error);

    for (uint32_t i = 0; status == TY_OK && i < count; i++)
        status = add(f, TY_FINDING_WEAK_POINT, points[i].is_link, points[i].index,
                     points[i].devices, error);
    ty_free(points);
    return status;
}

/* A device in a class less than a tenth as large as the largest of its type. */
static ty_status find_odd_devices(findings *f, ty_error *error)
{
    const ty_cluster *c = f->cluster;
    uint32_t *classes = ty_alloc(2 * (size_t)c->device_count, sizeof *classes), *sizes, count;
    uint32_t *largest = ty_alloc(c->device_type_count, sizeof *largest);
    ty_status status;

    TY_CHECK(ty_check_memory(classes != NULL && largest != NULL, error), status, cleanup);
    sizes = classes + c->device_count;
    TY_CHECK(ty_cluster_classes(c, classes, &count, NULL, error), status, cleanup);
    for (uint32_t d = 0; d < c->device_count; d++) {
        uint32_t size = ++sizes[classes[d]];
        uint32_t *most = &largest[c->vertices[c->device_vertices[d]].device_type];
        *most = size > *most ? size : *most;
    }
    for (uint32_t d = 0; d < c->device_count; d++) {
        uint32_t vertex = c->device_vertices[d], size = sizes[classes[d]];
        if ((uint64_t)size * 10 < largest[c->vertices[vertex].device_type])
            TY_CHECK(add(f, TY_FINDING_ODD_DEVICE, false, vertex, size, error), status, cleanup);
    }
cleanup:
    ty_free(classes);
    ty_free(largest);
    return status;
}

/* The worst first: the highest value, or the lowest for shares. */
static int compare_findings(const void *a, const void *b)
{
    const ty_finding *x = a, *y = b;
    bool is_share = x->kind == TY_FINDING_SLOW_LINK || x->kind == TY_FINDING_ODD_DEVICE;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->value < y->value || x->value > y->value)
        return (x->value < y->value) == is_share ? -1 : 1;
    if (x->is_link != y->is_link)
        return x->is_link ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

ty_status ty_cluster_examine(const ty_cluster *cluster, ty_finding **out, uint32_t *count,
                             ty_error *error)
{
    findings f = {.cluster = cluster, .room = 16};
    ty_status status;

    TY_TRY(ty_check_memory((f.list = ty_alloc(f.room, sizeof *f.list)) != NULL, error));
    TY_CHECK(find_oversubscribed(&f, error), status, cleanup);
    TY_CHECK(find_weak_points(&f, error), status, cleanup);
    TY_CHECK(find_slow_links(&f, error), status, cleanup);
    TY_CHECK(find_odd_devices(&f, error), status, cleanup);
    qsort(f.list, f.count, sizeof *f.list, compare_findings);
    *out = f.list;
    *count = f.count;
    f.list = NULL; /* ownership moved */
cleanup:
    ty_free(f.list);
    return status;
}
