/* Where a workload may be divided into stages, found on its graph: every path from the batch to the
 * loss passes the layer before a cut, so those layers are the dominators of the last layer. All
 * igraph calls of workloads/ are in this file. */
#include "ty_workloads.h"

#include <igraph.h>

static ty_status translate(igraph_error_t code, ty_error *error)
{
    if (code == IGRAPH_SUCCESS)
        return TY_OK;
    return ty_fail(error, code == IGRAPH_ENOMEM ? TY_ENOMEM : TY_EBACKEND, "igraph: %s",
                   igraph_strerror(code));
}

/* Vertex i is layer i; one more vertex stands for the batch. */
static ty_status list_edges(const ty_workload *w, igraph_vector_int_t *edges, ty_error *error)
{
    ty_status status = TY_OK;
    igraph_integer_t batch = (igraph_integer_t)w->layer_count;

    for (uint32_t layer = 0; layer < w->layer_count; layer++) {
        const ty_layer *l = &w->layers[layer];
        for (uint32_t i = 0; i < (l->input_count > 0 ? l->input_count : 1); i++) {
            igraph_integer_t from = l->input_count > 0 ? (igraph_integer_t)l->inputs[i] : batch;
            TY_CHECK(translate(igraph_vector_int_push_back(edges, from), error), status, cleanup);
            TY_CHECK(translate(igraph_vector_int_push_back(edges, layer), error), status, cleanup);
        }
    }

cleanup:
    return status;
}

/* dominators[v]: the last vertex that every path from the batch to v passes. */
static ty_status find_dominators(const ty_workload *w, igraph_vector_int_t *dominators,
                                 ty_error *error)
{
    ty_status status = TY_OK;
    igraph_integer_t batch = (igraph_integer_t)w->layer_count;
    igraph_vector_int_t edges;
    igraph_t graph;
    bool has_graph = false;

    TY_CHECK(translate(igraph_vector_int_init(&edges, 0), error), status, nothing);
    TY_CHECK(list_edges(w, &edges, error), status, cleanup);
    TY_CHECK(translate(igraph_create(&graph, &edges, batch + 1, IGRAPH_DIRECTED), error), status,
             cleanup);
    has_graph = true;
    status =
        translate(igraph_dominator_tree(&graph, batch, dominators, NULL, NULL, IGRAPH_OUT), error);

cleanup:
    if (has_graph)
        igraph_destroy(&graph);
    igraph_vector_int_destroy(&edges);
nothing:
    return status;
}

/* Walks from the last layer up to the batch; the dominators met are the layers before the cuts. */
static ty_status collect(const ty_workload *w, const igraph_vector_int_t *dominators,
                         uint32_t **cuts, uint32_t *count, ty_error *error)
{
    igraph_integer_t batch = (igraph_integer_t)w->layer_count;
    uint32_t n = 0, *list;

    for (igraph_integer_t v = VECTOR(*dominators)[batch - 1]; v >= 0 && v != batch;
         v = VECTOR(*dominators)[v])
        n++;
    list = ty_alloc(n, sizeof *list);
    if (list == NULL)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", w->name);
    *count = n;
    for (igraph_integer_t v = VECTOR(*dominators)[batch - 1]; v >= 0 && v != batch;
         v = VECTOR(*dominators)[v])
        list[--n] = (uint32_t)v + 1;
    *cuts = list;
    return TY_OK;
}

ty_status ty_workload_cuts(const ty_workload *workload, uint32_t **cuts, uint32_t *count,
                           ty_error *error)
{
    ty_status status = TY_OK;
    igraph_error_handler_t *old = igraph_set_error_handler(igraph_error_handler_ignore);
    igraph_vector_int_t dominators;
    bool has_dominators = false;

    if (workload->layer_count == 0) {
        status = ty_fail(error, TY_EINVAL, "%s: has no layers", workload->name);
        goto cleanup;
    }
    TY_CHECK(translate(igraph_vector_int_init(&dominators, 0), error), status, cleanup);
    has_dominators = true;
    TY_CHECK(find_dominators(workload, &dominators, error), status, cleanup);
    status = collect(workload, &dominators, cuts, count, error);

cleanup:
    if (has_dominators)
        igraph_vector_int_destroy(&dominators);
    igraph_set_error_handler(old);
    return status;
}
