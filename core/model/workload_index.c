/*
 * Frequently used properties of a model: the tensors that cross its cuts, and its repeated blocks.
 */
#include "ty_base.h"
#include "ty_workload.h"

#include <string.h>

/* ---- Cuts ---------------------------------------------------------------------------------- */

/* A layer's output crosses all cuts from the one after it to the one before its last reader. */
static void find_cuts(ty_workload *w)
{
    ty_workload_index *index = &w->index;

    memset(index->cut_bytes, 0, w->layer_count * sizeof *index->cut_bytes);
    for (uint32_t i = 0; i < w->layer_count; i++) {
        index->last_readers[i] = i;
        for (uint32_t k = 0; k < w->layers[i].input_count; k++)
            index->last_readers[w->layers[i].inputs[k]] = i;
    }
    for (uint32_t i = 0; i < w->layer_count; i++)
        for (uint32_t cut = i + 1; cut <= index->last_readers[i]; cut++)
            index->cut_bytes[cut] += w->layers[i].output_bytes;
}

uint64_t ty_workload_cut_bytes(const ty_workload *workload, uint32_t layer)
{
    return layer < workload->layer_count ? workload->index.cut_bytes[layer] : 0;
}

uint32_t ty_workload_crossing(const ty_workload *workload, uint32_t layer, uint32_t *producers)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < layer && layer < workload->layer_count; i++)
        if (workload->index.last_readers[i] >= layer) {
            if (producers != NULL)
                producers[count] = i;
            count++;
        }
    return count;
}

uint32_t ty_workload_norm_of_sum(const ty_workload *workload, uint32_t sum)
{
    const ty_layer *l = &workload->layers[sum];

    return ty_layer_row_of(l)->is_sum && l->input_count == 2 && l->inputs[1] + 1 == sum &&
                   ty_layer_row_of(&workload->layers[l->inputs[1]])->has_statistics &&
                   workload->index.last_readers[l->inputs[1]] == sum
               ? l->inputs[1]
               : TY_NO_LAYER;
}

uint64_t ty_workload_cut_gradient_bytes(const ty_workload *workload, uint32_t layer)
{
    uint64_t sum = 0;

    for (uint32_t i = ty_workload_first_backward(workload);
         i < layer && layer < workload->layer_count; i++)
        if (workload->index.last_readers[i] >= layer)
            sum += workload->layers[i].output_bytes;
    return sum;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

/* Whether two layers could be the same layer of two blocks: in T5 only the first block has the
 * table of biases that all use. */
static bool is_alike(const ty_layer *a, const ty_layer *b)
{
    if (a->kind != b->kind || a->input_count != b->input_count ||
        a->output.dimension_count != b->output.dimension_count ||
        memcmp(a->output.dimensions, b->output.dimensions,
               a->output.dimension_count * sizeof a->output.dimensions[0]) != 0)
        return false;
    for (int k = 0; k < TY_ATTRIBUTE_COUNT; k++)
        if (k != TY_RELATIVE_BUCKETS && a->attributes[k] != b->attributes[k])
            return false;
    return true;
}

/* Consecutive matrix products of a layer, 2 at most; an opaque one counts as one. */
static uint32_t product_count(const ty_layer *layer)
{
    const ty_layer_row *row = ty_layer_row_of(layer);

    return row->is_opaque ? 1 : row->products;
}

/* With fewer products it is not worth storing an input: the activations between two such inputs are
 * little more than the inputs. */
enum { LEAST_PRODUCTS = 2 };

static uint32_t products_of(const ty_workload *w, uint32_t first, uint32_t count)
{
    uint32_t products = 0;
    for (uint32_t i = first; i < first + count; i++)
        products += product_count(&w->layers[i]);
    return products;
}

/* Number of layers from `first` that equal those `period` before them, including the first period;
 * 0 without two full periods. */
static uint32_t run_length(const ty_workload *w, uint32_t first, uint32_t period)
{
    uint32_t length = period;

    while (first + length < w->layer_count &&
           is_alike(&w->layers[first + length], &w->layers[first + length - period]))
        length++;
    return length >= 2 * period ? length : 0;
}

/* Consecutive equal blocks. */
typedef struct run {
    uint32_t first, period, count; /* layers, layers, blocks */
} run;

/* The place in a period where a block begins: where the fewest bytes cross, which is outside
 * residual branches. Not before a layer that works in place. */
static run run_at(const ty_workload *w, uint32_t first, uint32_t period, uint32_t length)
{
    run best = {first, period, length / period};
    uint64_t least = UINT64_MAX;

    for (uint32_t shift = 0; shift < period && length - shift >= 2 * period; shift++) {
        const uint32_t second = first + shift + period; /* before the first nothing may cross */
        const uint64_t bytes = w->index.cut_bytes[second];
        if (w->layers[second].stash_bytes == 0 || bytes >= least)
            continue;
        least = bytes;
        best = (run){first + shift, period, (length - shift) / period};
    }
    return best;
}

/* The shortest period with enough products that begins at a layer. @return whether there is one */
static bool run_find(const ty_workload *w, uint32_t first, run *out)
{
    const uint32_t left = w->layer_count - first;

    for (uint32_t period = 1; period <= left / 2; period++) {
        const uint32_t length = run_length(w, first, period);
        if (length == 0 || products_of(w, first, period) < LEAST_PRODUCTS)
            continue;
        *out = run_at(w, first, period, length);
        return true;
    }
    return false;
}

/* Where a block without repetition may begin: at a cut that one tensor crosses, before the start of
 * a branch. */
static bool may_begin(const ty_workload *w, uint32_t layer)
{
    const ty_layer *l = &w->layers[layer];

    return (product_count(l) > 0 || ty_layer_row_of(l)->is_norm) && ty_workload_is_cut(w, layer);
}

static void find_blocks(ty_workload *w)
{
    uint32_t *starts = w->index.blocks;
    uint32_t count = 1, products = 0, layer = 0;
    bool is_own = true; /* the last block has no repetition */
    run next;

    starts[0] = 0;
    while (layer < w->layer_count) {
        if (run_find(w, layer, &next)) {
            products += products_of(w, layer, next.first - layer);
            if (next.first > starts[count - 1] && products >= LEAST_PRODUCTS)
                starts[count++] = next.first;
            for (uint32_t b = 1; b < next.count; b++)
                starts[count++] = next.first + b * next.period;
            layer = next.first + next.count * next.period;
            is_own = layer < w->layer_count;
            if (is_own)
                starts[count++] = layer;
            products = 0;
            continue;
        }
        if (layer > starts[count - 1] && products >= LEAST_PRODUCTS && may_begin(w, layer)) {
            starts[count++] = layer;
            products = 0;
        }
        products += product_count(&w->layers[layer++]);
    }
    w->index.head = is_own && count > 1 ? starts[count - 1] : TY_NO_LAYER;
    w->index.block_count = count;
}

uint32_t ty_workload_blocks(const ty_workload *workload, const uint32_t **starts, uint32_t *head)
{
    *starts = workload->index.blocks;
    *head = workload->index.head;
    return workload->index.block_count;
}

/* ---- Index --------------------------------------------------------------------------------- */

ty_status ty_workload_index_make(ty_workload *workload, ty_error *error)
{
    ty_workload_index *index = &workload->index;

    ty_workload_index_clear(workload);
    index->last_readers = ty_alloc(workload->layer_count, sizeof *index->last_readers);
    index->blocks = ty_alloc(workload->layer_count, sizeof *index->blocks);
    index->cut_bytes = ty_alloc(workload->layer_count, sizeof *index->cut_bytes);
    TY_TRY(ty_check_memory(
        index->last_readers != NULL && index->blocks != NULL && index->cut_bytes != NULL, error));
    find_cuts(workload);
    find_blocks(workload);
    return TY_OK;
}
