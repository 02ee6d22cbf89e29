/* Load of each link in a step: from the program, its costs and the routes, without a simulation.
 */
#include "traffic.h"

#include "ty_base.h"

#include <stdlib.h>

static void add_to_links(void *context, const ty_visit *v, const ty_fold_edge *edge, uint32_t from,
                         uint32_t to, double bytes)
{
    ty_link_load *loads = context;

    (void)from;
    (void)to;
    for (uint32_t i = 0; i < edge->link_count; i++)
        loads[v->graph->links[edge->first_link + i]].bytes += bytes;
}

static int by_busy_seconds(const void *left, const void *right)
{
    const ty_link_load *a = left, *b = right;
    if (a->busy_s != b->busy_s)
        return a->busy_s > b->busy_s ? -1 : 1;
    if (a->link != b->link)
        return a->link < b->link ? -1 : 1;
    return (int)a->is_backward - (int)b->is_backward;
}

ty_status ty_link_loads(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                        const ty_cluster *cluster, ty_link_load **out, uint32_t *count,
                        ty_error *error)
{
    ty_status status;
    const uint32_t links = ty_cluster_link_count(cluster) * 2;
    uint32_t kept = 0;
    ty_traffic_graph all = {0};
    ty_link_load *loads = ty_alloc(links, sizeof *loads);

    TY_TRY(ty_check_memory(loads != NULL, error));
    TY_CHECK(ty_traffic_graph_fill(&all, plan, program, costs, cluster, error), status, cleanup);
    ty_visit_all(&(ty_visit){.graph = &all.graph,
                             .parallel = &all.parallel,
                             .program = program,
                             .costs = costs,
                             .tell = add_to_links,
                             .context = loads});
    for (uint32_t l = 0; l < links; l++)
        if (loads[l].bytes > 0.0)
            loads[kept++] = (ty_link_load){
                .link = l / 2,
                .is_backward = l % 2 == 1,
                .bytes = loads[l].bytes,
                .busy_s = loads[l].bytes / ty_cluster_link(cluster, l / 2)->bandwidth_bytes_per_s};
    qsort(loads, kept, sizeof *loads, by_busy_seconds);
    *out = loads;
    *count = kept;
    loads = NULL;
cleanup:
    ty_traffic_graph_clear(&all);
    ty_free(loads);
    return status;
}
