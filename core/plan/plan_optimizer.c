/* Memory and work of an optimizer step on one rank: the row of the optimizer, over the tensors of
 * layers as parallelism shards them. */
#include "ty_plan.h"

#include <math.h>

static bool is_read_by_loss(const ty_workload *w, uint32_t layer)
{
    const ty_layer *last = &w->layers[w->layer_count - 1];

    for (uint32_t i = 0; ty_layer_row_of(last)->is_loss && i < last->input_count; i++)
        if (last->inputs[i] == layer)
            return true;
    return false;
}

typedef struct sums {
    double parameters, state_bytes, flop;
} sums;

static void add_part(const ty_optimizer_row *row, const ty_tensor_part *part, double times,
                     sums *sum)
{
    sum->parameters += times * part->rows * part->columns;
    sum->state_bytes += times * row->state_bytes(part);
    sum->flop += row->flop != NULL ? times * row->flop(part) : 0;
}

/* Adds a tensor's matrices: of each expert, and of each group of rows (queries, keys, values). */
static void add_tensor(const ty_plan *plan, uint32_t layer, const ty_layer_tensor *t,
                       bool is_hidden, sums *sum)
{
    const double ranks = ty_layer_tensor_split(plan->workload, layer) != TY_SPLIT_NONE
                             ? ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL)
                             : 1;
    const double experts = fmax((double)t->experts, 1), columns = fmax((double)t->columns, 1);
    const double expert_ranks =
        t->experts > 0 ? ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) : 1;
    const double all[TY_MOST_TENSOR_GROUPS] = {(double)t->count / experts / columns};

    for (int g = 0; g < TY_MOST_TENSOR_GROUPS; g++) {
        const double rows = t->groups[0] > 0 ? (double)t->groups[g] : all[g];
        const ty_tensor_part part = {.rows = t->division == TY_BY_ROWS ? rows / ranks : rows,
                                     .columns =
                                         t->division == TY_BY_COLUMNS ? columns / ranks : columns,
                                     .is_hidden = is_hidden};
        if (rows > 0)
            add_part(ty_optimizer_row_of(plan->optimizer.kind), &part, experts / expert_ranks, sum);
    }
}

/* A layer whose tensors are unknown counts as one square matrix. */
static void add_layer(const ty_plan *plan, uint32_t layer, sums *sum)
{
    const ty_workload *w = plan->workload;
    const ty_layer *l = &w->layers[layer];
    const bool is_hidden = !ty_layer_has_table(l) && !is_read_by_loss(w, layer);
    ty_layer_tensor tensors[TY_MOST_TENSORS] = {0};
    const uint32_t count = ty_layer_tensors(w, layer, tensors);

    for (uint32_t t = l->tied_to != TY_NO_LAYER; t < count; t++)
        if (tensors[t].count > 0)
            add_tensor(plan, layer, &tensors[t], is_hidden, sum);
    if (count == 0 && l->parameter_bytes > 0) {
        const double side = sqrt((double)l->parameter_bytes / w->element_bytes *
                                 ty_rank_parameter_share(plan, layer));
        add_part(ty_optimizer_row_of(plan->optimizer.kind),
                 &(ty_tensor_part){side, side, is_hidden}, 1, sum);
    }
}

ty_optimizer_work ty_plan_optimizer_work(const ty_plan *plan, uint32_t first, uint32_t count)
{
    const bool has_shapes = ty_optimizer_row_of(plan->optimizer.kind)->state_bytes != NULL;
    sums sum = {0};

    for (uint32_t l = first; has_shapes && l < first + count; l++)
        if (!plan->workload->layers[l].is_frozen)
            add_layer(plan, l, &sum);
    if (sum.parameters > 0)
        return (ty_optimizer_work){sum.state_bytes / sum.parameters, sum.flop / sum.parameters};
    return (ty_optimizer_work){.state_bytes = (double)sizeof(float) *
                                              ty_optimizer_state_count(&plan->optimizer)};
}
