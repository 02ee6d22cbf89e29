/* Links over time, and the traffic matrix: see ty_simulate.h. */
#include "traffic.h"
#include "ty_simulate.h"

#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

/* ---- Over time ----------------------------------------------------------------------------- */

typedef struct recorder {
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *timeline;
    uint32_t *curve_of; /* [2 * link + way]: its curve, or TY_NO_EDGE */
    ty_link_history *out;
    /* The instruction of the last span look-up: all edges of a collective have the same span. */
    uint32_t pipeline_rank, instruction, replica, step;
    double from_s, to_s;
} recorder;

static void spread(const recorder *h, double *bins, double bytes)
{
    const double bin_s = h->out->bin_s, span_s = h->to_s - h->from_s;
    const uint32_t last = h->out->bin_count - 1;
    const uint32_t from = (uint32_t)fmin(h->from_s / bin_s, last);
    const uint32_t to = (uint32_t)fmin(h->to_s / bin_s, last);

    if (from == to || span_s <= 0.0) {
        bins[to] += bytes;
        return;
    }
    for (uint32_t b = from; b <= to; b++) {
        const double begin_s = b == from ? h->from_s : b * bin_s;
        const double end_s = b == to ? h->to_s : (b + 1) * bin_s;
        bins[b] += bytes * (end_s - begin_s) / span_s;
    }
}

/* From the time the last member was ready to the end, over the replicas of the pipeline rank. */
static void find_span(recorder *h, const ty_visit *v, uint32_t step)
{
    const uint32_t first = ty_plan_first_replica(h->plan, v->pipeline_rank);
    const uint32_t begin = v->replica == TY_NO_EDGE ? 0 : v->replica;
    const uint32_t end =
        v->replica == TY_NO_EDGE ? h->plan->stages[v->pipeline_rank].replicas : v->replica + 1;

    if (h->pipeline_rank == v->pipeline_rank && h->instruction == v->instruction &&
        h->replica == v->replica && h->step == step)
        return;
    h->pipeline_rank = v->pipeline_rank;
    h->instruction = v->instruction;
    h->replica = v->replica;
    h->step = step;
    h->from_s = h->to_s = 0.0;
    for (uint32_t q = begin; q < end; q++) {
        const ty_event *event =
            ty_timeline_find(h->timeline, h->program, h->plan, step, first + q, v->instruction);
        h->from_s = fmax(h->from_s, event->start_s);
        h->to_s = fmax(h->to_s, event->end_s);
    }
}

static void add_to_history(void *context, const ty_visit *v, const ty_fold_edge *edge,
                           uint32_t from, uint32_t to, double bytes)
{
    recorder *h = context;

    (void)from;
    (void)to;
    for (uint32_t i = 0; i < edge->link_count; i++) {
        const uint32_t curve = h->curve_of[v->graph->links[edge->first_link + i]];
        for (uint32_t step = 0; curve != TY_NO_EDGE && step < h->timeline->step_count; step++) {
            find_span(h, v, step);
            spread(h, &h->out->block[(size_t)curve * h->out->bin_count], bytes);
        }
    }
}

static ty_status prepare(recorder *h, const ty_cluster *cluster, const uint32_t *links,
                         uint32_t count, uint32_t bins, ty_error *error)
{
    const uint32_t all = ty_cluster_link_count(cluster) * 2;
    double end_s = 0.0;

    if (bins < 1 || bins > 1u << 20 || count > all)
        return ty_fail(error, TY_EINVAL,
                       "links over time: found %u links in %u bins, expected at "
                       "most %u and 1 to 1048576",
                       count, bins, all);
    for (uint64_t e = 0; e < h->timeline->event_count; e++)
        end_s = fmax(end_s, h->timeline->events[e].end_s);
    h->out->bin_s = end_s > 0.0 ? end_s / bins : 1.0;
    h->out->bin_count = bins;
    h->out->curve_count = count;
    h->curve_of = ty_alloc(all, sizeof *h->curve_of);
    h->out->curves = ty_alloc(count, sizeof *h->out->curves);
    h->out->block = ty_alloc((size_t)count * bins, sizeof *h->out->block);
    TY_TRY(ty_check_memory(h->curve_of != NULL && h->out->curves != NULL && h->out->block != NULL,
                           error));
    for (uint32_t l = 0; l < all; l++)
        h->curve_of[l] = TY_NO_EDGE;
    for (uint32_t c = 0; c < count; c++) {
        if (links[c] >= all)
            return ty_fail(error, TY_EINVAL, "links over time: found way %u, expected below %u",
                           links[c], all);
        h->curve_of[links[c]] = c;
        h->out->curves[c] =
            (ty_link_curve){links[c] / 2, links[c] % 2 == 1, &h->out->block[(size_t)c * bins]};
    }
    return TY_OK;
}

ty_status ty_link_history_of(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             const ty_cluster *cluster, const ty_timeline *timeline,
                             const uint32_t *links, uint32_t count, uint32_t bins,
                             ty_link_history *out, ty_error *error)
{
    ty_status status;
    ty_link_history made = {0};
    ty_traffic_graph all = {0};
    recorder h = {.plan = plan,
                  .program = program,
                  .timeline = timeline,
                  .out = &made,
                  .pipeline_rank = TY_NO_EDGE};
    ty_visit v = {.graph = &all.graph,
                  .parallel = &all.parallel,
                  .program = program,
                  .costs = costs,
                  .tell = add_to_history,
                  .context = &h};

    TY_CHECK(ty_timeline_check(plan, program, timeline, "timeline", error), status, cleanup);
    TY_CHECK(ty_traffic_graph_fill(&all, plan, program, costs, cluster, error), status, cleanup);
    TY_CHECK(prepare(&h, cluster, links, count, bins, error), status, cleanup);
    ty_visit_all(&v);
    *out = made;
    made = (ty_link_history){0};
cleanup:
    ty_free(h.curve_of);
    ty_link_history_clear(&made);
    ty_traffic_graph_clear(&all);
    return status;
}

void ty_link_history_clear(ty_link_history *history)
{
    ty_free(history->curves);
    ty_free(history->block);
    *history = (ty_link_history){0};
}

/* ---- Traffic matrix ------------------------------------------------------------------------ */

/* A table of pairs by open addressing; `room` is a power of two. */
typedef struct matrix {
    const ty_cluster *cluster;
    ty_traffic_ends ends;
    ty_traffic *cells; /* bytes < 0: empty */
    uint64_t room, count;
    bool has_failed;
} matrix;

static ty_traffic *new_cells(uint64_t room)
{
    ty_traffic *cells = ty_alloc(room, sizeof *cells);
    for (uint64_t i = 0; cells != NULL && i < room; i++)
        cells[i].bytes = -1.0;
    return cells;
}

static ty_traffic *cell_of(const matrix *m, uint32_t from, uint32_t to)
{
    const uint64_t key = ((uint64_t)from << 32 | to) * 0x9e3779b97f4a7c15u;
    uint64_t at = (key >> 20) & (m->room - 1);

    while (m->cells[at].bytes >= 0.0 && (m->cells[at].from != from || m->cells[at].to != to))
        at = (at + 1) & (m->room - 1);
    return &m->cells[at];
}

static void grow(matrix *m)
{
    matrix larger = {.room = m->room * 2, .cells = new_cells(m->room * 2)};

    if (larger.cells == NULL) {
        m->has_failed = true;
        return;
    }
    for (uint64_t i = 0; i < m->room; i++)
        if (m->cells[i].bytes >= 0.0)
            *cell_of(&larger, m->cells[i].from, m->cells[i].to) = m->cells[i];
    ty_free(m->cells);
    m->cells = larger.cells;
    m->room = larger.room;
}

static void add_to_matrix(void *context, const ty_visit *v, const ty_fold_edge *edge, uint32_t from,
                          uint32_t to, double bytes)
{
    matrix *m = context;

    (void)v;
    (void)edge;
    if (from == to || bytes <= 0.0 || m->has_failed)
        return;
    if (m->count * 2 >= m->room)
        grow(m);
    if (m->ends == TY_BETWEEN_HOSTS) {
        from = ty_cluster_device_host(m->cluster, from);
        to = ty_cluster_device_host(m->cluster, to);
    }
    ty_traffic *cell = cell_of(m, from, to);
    if (cell->bytes < 0.0) {
        *cell = (ty_traffic){from, to, 0.0};
        m->count++;
    }
    cell->bytes += bytes;
}

static int most_bytes_first(const void *left, const void *right)
{
    const ty_traffic *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->to > b->to) - (a->to < b->to);
}

ty_status ty_traffic_matrix(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, ty_traffic_ends ends, ty_traffic **out,
                            uint32_t *count, ty_error *error)
{
    ty_status status;
    ty_traffic_graph all = {0};
    matrix m = {.cluster = cluster, .ends = ends, .room = 64, .cells = new_cells(64)};
    ty_visit v = {.graph = &all.graph,
                  .parallel = &all.parallel,
                  .program = program,
                  .costs = costs,
                  .tell = add_to_matrix,
                  .context = &m};
    uint32_t kept = 0;

    TY_TRY(ty_check_memory(m.cells != NULL, error));
    TY_CHECK(ty_traffic_graph_fill(&all, plan, program, costs, cluster, error), status, cleanup);
    ty_visit_all(&v);
    if (m.has_failed) {
        status = ty_fail(error, TY_ENOMEM, "traffic matrix: memory ran out");
        goto cleanup;
    }
    for (uint64_t i = 0; i < m.room; i++)
        if (m.cells[i].bytes >= 0.0)
            m.cells[kept++] = m.cells[i];
    qsort(m.cells, kept, sizeof *m.cells, most_bytes_first);
    *out = m.cells;
    *count = kept;
    m.cells = NULL;
cleanup:
    ty_free(m.cells);
    ty_traffic_graph_clear(&all);
    return status;
}
