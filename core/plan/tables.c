/* Tables of embedding bags on expert-parallel ranks: the shard of each rank, and the
 * collectives. */
#include "parallel_ranks.h"

#include <inttypes.h>

#define INDEX_BYTES 4

uint32_t ty_table_first_bag(const ty_workload *workload)
{
    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (ty_layer_is_bag(&workload->layers[l]))
            return l;
    return TY_NO_LAYER;
}

/* ---- Checks -------------------------------------------------------------------------------- */

ty_status ty_table_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                         ty_error *error)
{
    const uint32_t first = ty_table_first_bag(workload);
    uint32_t bags = 0;

    if (first == TY_NO_LAYER)
        return ty_fail(error, TY_EINVAL,
                       "tables by %s: workload \"%s\" has no embedding_bag, expected whole ones",
                       ty_table_shard_name(tables), workload->name);
    for (uint32_t i = first; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        if (!ty_layer_is_bag(&workload->layers[i]))
            continue;
        bags++;
        if (tables == TY_TABLES_COLUMN && l->attributes[TY_FEATURES] % ranks != 0)
            return ty_fail(error, TY_EINVAL,
                           "tables by column: layer %u (\"%s\") has %" PRIu64
                           " features, expected a multiple of %u ranks",
                           i, l->name, l->attributes[TY_FEATURES], ranks);
        if (l->is_frozen != workload->layers[first].is_frozen)
            return ty_fail(error, TY_EINVAL,
                           "tables by %s: of layers %u (\"%s\") and %u (\"%s\") one is frozen, "
                           "expected both or none",
                           ty_table_shard_name(tables), first, workload->layers[first].name, i,
                           l->name);
    }
    if (tables == TY_TABLES_TABLE && bags < ranks)
        return ty_fail(error, TY_EINVAL,
                       "tables by table: workload \"%s\" has %u of them for %u ranks, expected at "
                       "least one for each",
                       workload->name, bags, ranks);
    return TY_OK;
}

/* ---- Unsharded tables on ranks ------------------------------------------------------------- */

static uint64_t table_elements(const ty_workload *workload, uint32_t layer)
{
    const uint64_t *a = workload->layers[layer].attributes;

    return a[TY_VOCABULARY] * a[TY_FEATURES];
}

/* Whether a table is assigned before another: the larger one, of equal ones the first. */
static bool is_before(const ty_workload *workload, uint32_t layer, uint32_t other)
{
    const uint64_t own = table_elements(workload, layer),
                   of_other = table_elements(workload, other);

    return own > of_other || (own == of_other && layer < other);
}

/* The largest table after `last` in that order; with TY_NO_LAYER the largest of all. */
static uint32_t next_table(const ty_workload *workload, uint32_t last)
{
    uint32_t next = TY_NO_LAYER;

    for (uint32_t l = 0; l < workload->layer_count; l++)
        if (ty_layer_is_bag(&workload->layers[l]) &&
            (last == TY_NO_LAYER || is_before(workload, last, l)) &&
            (next == TY_NO_LAYER || is_before(workload, l, next)))
            next = l;
    return next;
}

/* Iterates over tables as they are assigned to ranks. */
typedef struct giving {
    uint32_t table, rank;                    /* the last assigned table, and its rank */
    uint64_t elements[TY_MAX_PARALLEL_SIZE]; /* [ranks] assigned so far */
} giving;

static void begin_giving(giving *g, uint32_t ranks)
{
    g->table = TY_NO_LAYER;
    for (uint32_t l = 0; l < ranks; l++)
        g->elements[l] = 0;
}

/* Assigns the next table to the rank with the fewest elements. @return false: there is none */
static bool give_next(giving *g, const ty_workload *workload, uint32_t ranks)
{
    g->table = next_table(workload, g->table);
    if (g->table == TY_NO_LAYER)
        return false;
    g->rank = 0;
    for (uint32_t l = 1; l < ranks; l++)
        if (g->elements[l] < g->elements[g->rank])
            g->rank = l;
    g->elements[g->rank] += table_elements(workload, g->table);
    return true;
}

uint32_t ty_table_rank(const ty_workload *workload, uint32_t ranks, uint32_t layer)
{
    giving g;

    begin_giving(&g, ranks);
    while (give_next(&g, workload, ranks) && g.table != layer)
        ;
    return g.rank;
}

uint64_t ty_table_rank_elements(const ty_workload *workload, uint32_t ranks, uint32_t rank)
{
    giving g;

    begin_giving(&g, ranks);
    while (give_next(&g, workload, ranks))
        ;
    return g.elements[rank];
}

/* Whether a table is on the rank with the most elements. */
static bool is_on_fullest(const ty_workload *workload, uint32_t ranks, uint32_t layer)
{
    uint32_t rank = 0, fullest = 0;
    giving g;

    begin_giving(&g, ranks);
    while (give_next(&g, workload, ranks))
        if (g.table == layer)
            rank = g.rank;
    for (uint32_t l = 1; l < ranks; l++)
        if (g.elements[l] > g.elements[fullest])
            fullest = l;
    return rank == fullest;
}

/* ---- Shares per rank ----------------------------------------------------------------------- */

uint64_t ty_table_part(const ty_plan *plan, uint32_t layer)
{
    const ty_workload *workload = plan->workload;
    const uint64_t *a = workload->layers[layer].attributes;
    const uint32_t ranks = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);

    if (plan->table_shard == TY_TABLES_ROW)
        return (a[TY_VOCABULARY] + ranks - 1) / ranks * a[TY_FEATURES];
    if (plan->table_shard == TY_TABLES_COLUMN)
        return a[TY_VOCABULARY] * (a[TY_FEATURES] / ranks);
    return is_on_fullest(workload, ranks, layer) ? table_elements(workload, layer) : 0;
}

/* With unsharded tables: look-ups and outputs of the ranks with the most of each. */
static void most_of_a_rank(const ty_workload *workload, uint32_t ranks, ty_table_exchange *found)
{
    uint64_t indices[TY_MAX_PARALLEL_SIZE], numbers[TY_MAX_PARALLEL_SIZE];
    giving g;

    for (uint32_t l = 0; l < ranks; l++)
        indices[l] = numbers[l] = 0;
    begin_giving(&g, ranks);
    while (give_next(&g, workload, ranks)) {
        indices[g.rank] += workload->layers[g.table].attributes[TY_ROWS];
        numbers[g.rank] += workload->layers[g.table].attributes[TY_FEATURES];
    }
    for (uint32_t l = 0; l < ranks; l++) {
        found->own_indices = indices[l] > found->own_indices ? indices[l] : found->own_indices;
        found->own_numbers = numbers[l] > found->own_numbers ? numbers[l] : found->own_numbers;
    }
}

ty_table_exchange ty_plan_tables(const ty_plan *plan)
{
    const ty_workload *workload = plan->workload;
    const uint32_t ranks = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
    ty_table_exchange found = {.first_bag = TY_NO_LAYER};

    if (ranks == 1 || plan->table_shard == TY_TABLES_WHOLE)
        return found;
    found.first_bag = ty_table_first_bag(workload);
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        const uint64_t *a = workload->layers[l].attributes;
        if (!ty_layer_is_bag(&workload->layers[l]))
            continue;
        found.indices += a[TY_ROWS];
        found.numbers += a[TY_FEATURES];
        found.own_numbers +=
            plan->table_shard == TY_TABLES_COLUMN ? a[TY_FEATURES] / ranks : a[TY_FEATURES];
    }
    found.own_indices = found.indices;
    if (plan->table_shard == TY_TABLES_TABLE) {
        found.own_indices = found.own_numbers = 0;
        most_of_a_rank(workload, ranks, &found);
    }
    return found;
}

/* ---- Collectives --------------------------------------------------------------------------- */

uint32_t ty_table_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                              ty_inner_collective *out)
{
    const ty_workload *workload = plan->workload;
    const bool by_rows = plan->table_shard == TY_TABLES_ROW;
    const bool by_tables = plan->table_shard == TY_TABLES_TABLE;
    ty_table_exchange tables;
    uint64_t samples, all, vectors;
    uint32_t count = 0;

    if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == 1 ||
        plan->table_shard == TY_TABLES_WHOLE || layer != ty_table_first_bag(workload) ||
        (is_backward && workload->layers[layer].is_frozen))
        return 0;
    tables = ty_plan_tables(plan);
    samples = ty_rank_bytes(plan, 1);
    all = plan->micro_batch_size;
    vectors = all * tables.own_numbers * workload->element_bytes;
    if (!is_backward)
        out[count++] =
            (ty_inner_collective){.among = TY_EXPERT_PARALLEL,
                                  .kind = by_tables ? TY_ALL_TO_ALL : TY_ALL_GATHER,
                                  .bytes = INDEX_BYTES * (by_tables ? all * tables.own_indices
                                                                    : samples * tables.indices),
                                  .count = 1};
    out[count++] = (ty_inner_collective){
        .among = TY_EXPERT_PARALLEL,
        .kind = !by_rows      ? TY_ALL_TO_ALL
                : is_backward ? TY_ALL_GATHER
                              : TY_REDUCE_SCATTER,
        .bytes =
            by_rows && is_backward ? samples * tables.numbers * workload->element_bytes : vectors,
        .count = 1};
    return count;
}
