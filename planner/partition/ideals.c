/* The ideals of a graph, found by growing them layer by layer from the empty one. */
#include "bit_rows.h"
#include "graph_links.h"
#include "set_table.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    const graph_links *links;
    const double *weights; /* [layer] what the order goes by */
    uint32_t limit, first_source;
    uint32_t words;
    set_table found;
    uint64_t *trial; /* [words] */
} finder;

static const uint64_t *set_of(const finder *f, uint32_t i)
{
    return set_table_at(&f->found, i);
}

/* Keeps f->trial if it is new. */
static ty_status keep_trial(finder *f, ty_error *error)
{
    if (ty_set_table_find(&f->found, f->trial) != UINT32_MAX)
        return TY_OK;
    if (f->found.count == f->limit)
        return ty_fail(error, TY_ELIMIT,
                       "a graph of %u layers has more than %u ideals; merge it first",
                       f->links->layer_count, f->limit);
    return ty_set_table_add(&f->found, f->trial, error);
}

/* Whether a layer may be added, with all its ancestors, to a set that lacks it. */
static bool may_join(const finder *f, uint32_t number, uint32_t layer)
{
    const graph_links *g = f->links;
    const uint64_t *set = set_of(f, number);

    if (number == 0)
        return layer == f->first_source;
    for (uint32_t i = g->source_starts[layer]; i < g->source_starts[layer + 1]; i++)
        if (bit_has(set, g->sources[i]))
            return true;
    return false;
}

static ty_status grow_all(finder *f, ty_error *error)
{
    ty_status status = TY_OK;

    memset(f->trial, 0, f->words * sizeof *f->trial);
    TY_CHECK(keep_trial(f, error), status, done);
    for (uint32_t i = 0; i < f->found.count; i++)
        for (uint32_t v = 0; v < f->links->layer_count; v++) {
            if (bit_has(set_of(f, i), v) || !may_join(f, i, v))
                continue;
            memcpy(f->trial, set_of(f, i), f->words * sizeof *f->trial);
            bits_join(f->trial, graph_ancestors(f->links, v), f->words);
            TY_CHECK(keep_trial(f, error), status, done);
        }
done:
    return status;
}

/* ---- Order ----------------------------------------------------------------------------------- */

typedef struct ranked {
    double weight;
    uint32_t size, words;
    const uint64_t *set;
} ranked;

static int by_rank(const void *left, const void *right)
{
    const ranked *a = left, *b = right;

    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    for (uint32_t w = 0; w < a->words; w++)
        if (a->set[w] != b->set[w])
            return a->set[w] < b->set[w] ? -1 : 1;
    return 0;
}

/* Sums run over layers in one order, so that a part never weighs more than the whole, rounding
 * included. */
static double weigh(const finder *f, const uint64_t *set)
{
    double sum = 0;
    for (uint32_t v = 0; v < f->links->layer_count; v++)
        if (bit_has(set, v))
            sum += f->weights[v];
    return sum;
}

static ty_status sort_sets(const finder *f, uint64_t *out, ty_error *error)
{
    ranked *ranks = ty_alloc(f->found.count, sizeof *ranks);

    if (ranks == NULL)
        return ty_fail(error, TY_ENOMEM, "ideals: out of memory");
    for (uint32_t i = 0; i < f->found.count; i++) {
        const uint64_t *set = set_of(f, i);
        ranks[i] = (ranked){weigh(f, set), bits_count(set, f->words), f->words, set};
    }
    qsort(ranks, f->found.count, sizeof *ranks, by_rank);
    for (uint32_t i = 0; i < f->found.count; i++)
        memcpy(&out[(size_t)i * f->words], ranks[i].set, f->words * sizeof *out);
    ty_free(ranks);
    return TY_OK;
}

/* ---- Finding --------------------------------------------------------------------------------- */

static uint32_t first_source(const graph_links *links)
{
    uint32_t v = 0;
    while (graph_source_count(links, v) > 0)
        v++;
    return v;
}

static ty_status find(finder *f, ty_ideals **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_ideals *ideals = NULL;

    f->trial = ty_alloc(f->words, sizeof *f->trial);
    if (f->trial == NULL)
        return ty_fail(error, TY_ENOMEM, "ideals: out of memory");
    TY_CHECK(grow_all(f, error), status, cleanup);
    ideals = ty_alloc(1, sizeof *ideals);
    if (ideals != NULL)
        ideals->sets = ty_alloc((size_t)f->found.count * f->words, sizeof *ideals->sets);
    if (ideals == NULL || ideals->sets == NULL) {
        status = ty_fail(error, TY_ENOMEM, "ideals: out of memory");
        goto cleanup;
    }
    ideals->layer_count = f->links->layer_count;
    ideals->count = f->found.count;
    ideals->words = f->words;
    TY_CHECK(sort_sets(f, ideals->sets, error), status, cleanup);
    *out = ideals;
    ideals = NULL;

cleanup:
    ty_ideals_free(ideals);
    ty_set_table_clear(&f->found);
    ty_free(f->trial);
    return status;
}

ty_status ty_ideals_find(const ty_layer_graph *graph, uint32_t limit, ty_ideals **out,
                         ty_error *error)
{
    ty_status status = TY_OK;
    ty_arena *arena = ty_arena_new();
    double *weights = ty_alloc(graph->layer_count, sizeof *weights);
    graph_links links;
    finder f = {.links = &links, .weights = weights, .limit = limit};

    if (arena == NULL || weights == NULL) {
        status = ty_fail(error, TY_ENOMEM, "ideals: out of memory");
        goto cleanup;
    }
    TY_CHECK(ty_graph_links_make(arena, graph->layer_count, graph->edges, graph->edge_count, &links,
                                 error),
             status, cleanup);
    for (uint32_t v = 0; v < graph->layer_count; v++)
        weights[v] = graph->layers[v].compute_s;
    f.words = f.found.words = links.words;
    f.first_source = first_source(&links);
    status = find(&f, out, error);

cleanup:
    ty_free(weights);
    ty_arena_free(arena);
    return status;
}

void ty_ideals_free(ty_ideals *ideals)
{
    if (ideals == NULL)
        return;
    ty_free(ideals->sets);
    ty_free(ideals);
}

bool ty_ideal_has(const ty_ideals *ideals, uint32_t ideal, uint32_t layer)
{
    return bit_has(&ideals->sets[(size_t)ideal * ideals->words], layer);
}

bool ty_ideal_is_inside(const ty_ideals *ideals, uint32_t part, uint32_t whole)
{
    return bits_inside(&ideals->sets[(size_t)part * ideals->words],
                       &ideals->sets[(size_t)whole * ideals->words], ideals->words);
}
