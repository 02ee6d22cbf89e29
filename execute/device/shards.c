/* A rank's shard of a layer. */
#include "shards.h"

#include <string.h>

/* ---- Shards ---- */

uint32_t tp_size_of(const ty_stage_options *options)
{
    return options->parallel.tp_size > 1 ? options->parallel.tp_size : 1;
}

shard_range shard_range_of(uint64_t count, uint32_t ranks, uint32_t rank)
{
    const uint64_t part = shard_size(count, ranks), first = part * rank;

    if (first >= count)
        return (shard_range){count, 0};
    return (shard_range){first, count - first < part ? count - first : part};
}

static bool is_weights_divided(const ty_workload *workload, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(workload, layer);

    return split == TY_SPLIT_HEADS || split == TY_SPLIT_HIDDEN || split == TY_SPLIT_EXPERTS ||
           split == TY_SPLIT_VOCABULARY;
}

bool is_tp_sharded(const ty_stage_options *options, uint32_t layer)
{
    return tp_size_of(options) > 1 && is_weights_divided(options->workload, layer);
}

uint32_t cp_size_of(const ty_stage_options *options)
{
    return options->parallel.cp_size > 1 ? options->parallel.cp_size : 1;
}

uint32_t ep_size_of(const ty_stage_options *options)
{
    return options->parallel.ep_size > 1 ? options->parallel.ep_size : 1;
}

/* The loss has no sequence of its own. */
ty_shape cp_shape(const ty_stage_options *options, const ty_shape *whole)
{
    const uint32_t ranks = cp_size_of(options);
    ty_shape shape = *whole;

    if (shape.dimensions[0] % ranks == 0)
        shape.dimensions[0] /= ranks;
    return shape;
}

_Static_assert(TOKEN_MOST_RUNS == TY_CONTEXT_RUNS,
               "a context-parallel rank has TOKEN_MOST_RUNS runs of tokens");

token_runs cp_token_runs_of(uint64_t sequence, uint32_t ranks, uint32_t rank)
{
    token_runs runs = {.count = 1, .length = sequence};

    if (ranks == 1)
        return runs;
    runs.count = TY_CONTEXT_RUNS;
    runs.length = sequence / ranks / TY_CONTEXT_RUNS;
    for (uint32_t r = 0; r < runs.count; r++)
        runs.starts[r] = ty_context_run_start(sequence, ranks, rank, r);
    return runs;
}

token_runs cp_token_runs(const ty_stage_options *options, uint64_t sequence)
{
    return cp_token_runs_of(sequence, cp_size_of(options), options->parallel.cp_rank);
}

static bool is_along_sequence(const ty_workload *workload, const ty_shape *shape)
{
    return shape->dimension_count == 2 && shape->dimensions[0] == workload->tokens_per_sample;
}

ty_shape tp_shape(const ty_stage_options *options, uint32_t layer)
{
    const ty_workload *workload = options->workload;
    const uint32_t ranks = tp_size_of(options);
    const ty_shape *whole = &workload->layers[layer].output;
    ty_shape shape = cp_shape(options, whole);

    if (ranks == 1)
        return shape;
    if (ty_layer_has_split_scores(workload, layer))
        shape.dimensions[shape.dimension_count - 1] =
            shard_size(shape.dimensions[shape.dimension_count - 1], ranks);
    else if (options->parallel.divides_sequence && is_along_sequence(workload, whole))
        shape.dimensions[0] /= ranks;
    return shape;
}

/* ---- Tensors ---- */

static uint64_t columns_of(const sharded_tensor *tensor)
{
    return tensor->columns > 0 ? tensor->columns : 1;
}

static uint64_t repeats_of(const sharded_tensor *tensor)
{
    return tensor->experts > 0 ? tensor->experts : 1;
}

static uint32_t group_count(const sharded_tensor *tensor)
{
    uint32_t count = 0;

    while (count < TY_MOST_TENSOR_GROUPS && tensor->groups[count] > 0)
        count++;
    return count > 0 ? count : 1;
}

/* Rows that are sharded together: those of group `group`, or all. */
static uint64_t group_rows(const sharded_tensor *tensor, uint32_t group)
{
    return tensor->groups[0] == 0 ? tensor->count / columns_of(tensor) / repeats_of(tensor)
                                  : tensor->groups[group];
}

bool is_ep_sharded(const ty_stage_options *options, const sharded_tensor *tensor)
{
    return ep_size_of(options) > 1 &&
           (tensor->experts > 0 ||
            (tensor->is_table && options->parallel.tables != TY_TABLES_WHOLE));
}

uint32_t ep_rank_of_table(const ty_stage_options *options, uint32_t layer)
{
    const uint32_t ranks = ep_size_of(options);

    return ranks > 1 && options->parallel.tables == TY_TABLES_TABLE &&
                   ty_layer_is_bag(&options->workload->layers[layer])
               ? ty_table_rank(options->workload, ranks, layer)
               : TY_NO_LAYER;
}

uint64_t table_shard_padding(const ty_stage_options *options, uint32_t layer)
{
    const uint32_t ranks = ep_size_of(options);
    uint64_t own, most = 0;

    if (ep_rank_of_table(options, layer) == TY_NO_LAYER)
        return 0;
    for (uint32_t l = layer + 1; l < options->workload->layer_count; l++)
        if (ty_layer_is_bag(&options->workload->layers[l]))
            return 0;
    for (uint32_t l = 0; l < ranks; l++) {
        const uint64_t elements = ty_table_rank_elements(options->workload, ranks, l);
        most = elements > most ? elements : most;
    }
    own = ty_table_rank_elements(options->workload, ranks, options->parallel.ep_rank);
    return most - own;
}

sharded_tensor sharded_tensor_here(const ty_stage_options *options, uint32_t layer,
                                   const sharded_tensor *tensor, uint64_t *first,
                                   shard_place *place)
{
    const uint32_t ranks = ep_size_of(options), rank = options->parallel.ep_rank;
    sharded_tensor here = *tensor;

    *first = 0;
    *place = (shard_place){tp_size_of(options), options->parallel.tp_rank};
    if (!is_ep_sharded(options, tensor))
        return here;
    if (!tensor->is_table) {
        here.experts /= ranks;
        here.count /= ranks;
        *first = rank * here.count;
        return here;
    }
    *place = (shard_place){ranks, rank};
    if (options->parallel.tables == TY_TABLES_ROW)
        here.division = TY_BY_ROWS;
    else if (options->parallel.tables == TY_TABLES_COLUMN)
        here.division = TY_BY_COLUMNS;
    else if (ep_rank_of_table(options, layer) != rank)
        here.count = 0;
    return here;
}

uint64_t sharded_tensor_count(const sharded_tensor *tensor, uint32_t ranks)
{
    uint64_t rows = 0;

    if (ranks == 1 || tensor->division == TY_UNDIVIDED)
        return tensor->count;
    if (tensor->division == TY_BY_COLUMNS)
        return tensor->count / columns_of(tensor) * shard_size(columns_of(tensor), ranks);
    for (uint32_t g = 0; g < group_count(tensor); g++)
        rows += shard_size(group_rows(tensor, g), ranks);
    return rows * repeats_of(tensor) * columns_of(tensor);
}

static bool row_run(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank, uint64_t index,
                    rank_run *out)
{
    const uint64_t columns = columns_of(tensor), repeat = index / group_count(tensor);
    const uint32_t group = (uint32_t)(index % group_count(tensor));
    uint64_t before = 0, part = 0, all = 0, all_parts = 0;
    shard_range rows;

    if (repeat >= repeats_of(tensor) || group_rows(tensor, group) == 0)
        return false;
    for (uint32_t g = 0; g < group_count(tensor); g++) {
        before += g < group ? group_rows(tensor, g) : 0;
        part += g < group ? shard_size(group_rows(tensor, g), ranks) : 0;
        all += group_rows(tensor, g);
        all_parts += shard_size(group_rows(tensor, g), ranks);
    }
    rows = shard_range_of(group_rows(tensor, group), ranks, rank);
    *out = (rank_run){(repeat * all + before + rows.first) * columns,
                      (repeat * all_parts + part) * columns, rows.count * columns};
    return true;
}

static bool column_run(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank, uint64_t row,
                       rank_run *out)
{
    const uint64_t columns = columns_of(tensor);
    const shard_range own = shard_range_of(columns, ranks, rank);

    if (row >= tensor->count / columns)
        return false;
    *out = (rank_run){row * columns + own.first, row * shard_size(columns, ranks), own.count};
    return true;
}

bool sharded_tensor_run(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank, uint64_t index,
                        rank_run *out)
{
    if (ranks > 1 && tensor->division == TY_BY_ROWS)
        return row_run(tensor, ranks, rank, index, out);
    if (ranks > 1 && tensor->division == TY_BY_COLUMNS)
        return column_run(tensor, ranks, rank, index, out);
    *out = (rank_run){0, 0, tensor->count};
    return index == 0;
}

void sharded_tensor_join(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank,
                         const float *part, float *whole)
{
    rank_run run;

    for (uint64_t i = 0; sharded_tensor_run(tensor, ranks, rank, i, &run); i++)
        memcpy(whole + run.whole, part + run.part, run.count * sizeof *whole);
}

/* Batches that are not along the sequence have no tokens to shard. */
static ty_status context_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t ranks = cp_size_of(options);
    const ty_shape *batch = &options->workload->input;
    ty_status status = ty_context_check(options->workload, ranks, error);

    if (status == TY_OK && ranks > 1 &&
        (batch->dimension_count > 2 ||
         batch->dimensions[0] != options->workload->tokens_per_sample))
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "%s: found samples whose first dimension is %llu among %u context-parallel ranks, "
            "expected one of %llu tokens",
            options->workload->name, (unsigned long long)batch->dimensions[0], ranks,
            (unsigned long long)options->workload->tokens_per_sample);
    return status;
}

/* Copies of tokens would be sent from each tensor-parallel rank's shard of the sequence, and
 * gathered after that. */
static ty_status copies_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t expert = ep_size_of(options);

    for (uint32_t l = 0; l < options->layer_count && expert > 1; l++) {
        const ty_layer *layer = &options->workload->layers[options->first_layer + l];
        if (ty_layer_row_of(layer)->has_experts && tp_size_of(options) > 1 &&
            options->parallel.divides_sequence)
            return ty_fail(
                error, TY_EUNSUPPORTED,
                "layer %s: found %u expert-parallel ranks with sequence parallelism, expected "
                "one of them",
                layer->name, expert);
    }
    return TY_OK;
}

ty_status parallel_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t ranks = tp_size_of(options);
    const uint32_t parts = ranks * cp_size_of(options);
    ty_status status = context_check(options, error);

    if (status == TY_OK)
        status = ty_expert_check(options->workload, ep_size_of(options), options->parallel.tables,
                                 error);
    if (status == TY_OK)
        status = copies_check(options, error);
    if (status != TY_OK)
        return status;
    return ty_tensor_run_check(options->workload, ranks,
                               options->parallel.divides_sequence ? parts : 1, options->first_layer,
                               options->layer_count, error);
}
