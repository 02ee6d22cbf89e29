/*
 * Activation recomputation: the segments of a stage, from the model's blocks, and the products
 * whose outputs are stored while others are recomputed.
 */
#include "ty_base.h"
#include "ty_plan.h"

#include <string.h>

/* ---- Names --------------------------------------------------------------------------------- */

void ty_recompute_text(ty_recompute recompute, uint32_t blocks, ty_text *text)
{
    if (recompute == TY_RECOMPUTE_FULL && blocks == 0)
        ty_text_add(text, "stage");
    else if (recompute == TY_RECOMPUTE_FULL && blocks > 1)
        ty_text_addf(text, "full:%u", blocks);
    else
        ty_text_add(text, ty_recompute_name(recompute));
}

ty_status ty_recompute_parse(const char *text, ty_recompute *recompute, uint32_t *blocks,
                             ty_error *error)
{
    static const char full[] = "full:";
    uint64_t number = 0;

    if (strcmp(text, "stage") == 0) {
        *recompute = TY_RECOMPUTE_FULL;
        *blocks = 0;
        return TY_OK;
    }
    for (int r = 0; r < TY_RECOMPUTE_COUNT; r++) {
        if (strcmp(text, ty_recompute_name((ty_recompute)r)) != 0)
            continue;
        *recompute = (ty_recompute)r;
        *blocks = r == TY_RECOMPUTE_FULL ? 1 : 0;
        return TY_OK;
    }
    if (strncmp(text, full, sizeof full - 1) != 0)
        return ty_fail(error, TY_EINVAL,
                       "found '%s', expected none, selective, elementwise, operator, full, full:K "
                       "(blocks of the network a segment) or stage",
                       text);
    if (ty_parse_uint(text + sizeof full - 1, 1, TY_MAX_RECOMPUTE_BLOCKS, &number, NULL) != TY_OK)
        return ty_fail(error, TY_EINVAL, "found '%s', expected full:K with K from 1 to %d", text,
                       TY_MAX_RECOMPUTE_BLOCKS);
    *recompute = TY_RECOMPUTE_FULL;
    *blocks = (uint32_t)number;
    return TY_OK;
}

/* ---- Segments ------------------------------------------------------------------------------ */

bool ty_recompute_has_segments(ty_recompute recompute)
{
    return recompute == TY_RECOMPUTE_FULL || recompute == TY_RECOMPUTE_OPERATOR ||
           recompute == TY_RECOMPUTE_ELEMENTWISE;
}

/* Frozen layers before all trained ones are never recomputed, except in the segment in which
 * backward ends: segments before it store no inputs. @return the number of remaining segments */
static uint32_t frozen_join(const ty_workload *w, uint32_t *starts, uint32_t count)
{
    const uint32_t first_backward = count > 2 ? ty_workload_first_backward(w) : 0;
    uint32_t joined = 0;

    while (joined + 2 < count && starts[joined + 2] <= first_backward)
        joined++;
    for (uint32_t s = 1; joined > 0 && s + joined < count; s++)
        starts[s] = starts[s + joined];
    return count - joined;
}

uint32_t ty_recompute_segments(const ty_workload *w, const ty_recompute_range *range,
                               uint32_t *starts)
{
    const uint32_t end = range->first_layer + range->layer_count;
    const uint32_t blocks = range->recompute == TY_RECOMPUTE_FULL ? range->blocks : 1;
    uint32_t head, count = 1, in_segment = 1;
    const uint32_t *found;
    uint32_t found_count;

    if (!ty_recompute_has_segments(range->recompute))
        return 0;
    starts[0] = range->first_layer;
    if (blocks == 0)
        return 1;
    found_count = ty_workload_blocks(w, &found, &head);
    for (uint32_t b = 0; b < found_count; b++) {
        if (found[b] <= range->first_layer || found[b] >= end)
            continue;
        if (in_segment == blocks || found[b] == head) {
            starts[count++] = found[b];
            in_segment = 0;
        }
        in_segment++;
    }
    return frozen_join(w, starts, count);
}

uint32_t ty_plan_segments(const ty_plan *plan, uint32_t stage, uint32_t *starts)
{
    const ty_plan_stage *s = &plan->stages[stage];
    const ty_recompute_range range = {s->first_layer, s->layer_count, s->recompute,
                                      s->recompute_blocks};

    return ty_recompute_segments(plan->workload, &range, starts);
}

bool ty_plan_forward_serves_backward(const ty_plan *plan, uint32_t stage)
{
    const ty_plan_stage *s = &plan->stages[stage];

    return stage + 1 == plan->stage_count && ty_recompute_has_segments(s->recompute) &&
           !(s->recompute == TY_RECOMPUTE_FULL && s->recompute_blocks == 0);
}

const char *ty_table_recompute_refusal(ty_table_shard tables, ty_recompute recompute)
{
    return tables != TY_TABLES_WHOLE && ty_recompute_has_segments(recompute)
               ? "sharded tables need one all-to-all for all bags of a pass, and segments "
                 "recompute bags one by one"
               : NULL;
}

/* ---- The recomputed part of a layer -------------------------------------------------------- */

/* Every other product of a block is stored; for layers with two, the first. */
static void mark_products(const ty_workload *w, const ty_recompute_range *range,
                          const uint32_t *starts, uint32_t segments, ty_layer_again *again)
{
    uint32_t segment = 0, single = 0; /* products of the segment's layers with one product */

    for (uint32_t i = range->first_layer; i < range->first_layer + range->layer_count; i++) {
        const ty_layer_row *row = ty_layer_row_of(&w->layers[i]);

        if (segment < segments && i == starts[segment]) {
            segment++;
            single = 0;
        }
        if (row->products == 1 && single++ % 2 == 0)
            again[i] = (ty_layer_again){TY_AGAIN_NOTHING, true};
        else if (row->has_second)
            again[i].what = TY_AGAIN_SECOND;
    }
}

/* Layers come after their inputs. */
static ty_again elementwise_of(const ty_workload *w, uint32_t first, uint32_t layer,
                               const ty_layer_again *again)
{
    const ty_layer *l = &w->layers[layer];

    if (l->stash_bytes == 0 && l->input_count == 1) /* is in its input's memory */
        return l->inputs[0] >= first && again[l->inputs[0]].what == TY_AGAIN_ALL ? TY_AGAIN_ALL
                                                                                 : TY_AGAIN_NOTHING;
    if (ty_layer_row_of(l)->is_elementwise)
        return TY_AGAIN_ALL;
    return ty_layer_row_of(l)->has_activation ? TY_AGAIN_ACTIVATION : TY_AGAIN_NOTHING;
}

static void mark_elementwise(const ty_workload *w, const ty_recompute_range *range,
                             ty_layer_again *again)
{
    const uint32_t first = range->first_layer, end = first + range->layer_count;

    for (uint32_t i = first; i < end; i++) {
        const ty_layer *l = &w->layers[i];
        const ty_layer_row *row = ty_layer_row_of(l);

        again[i].what = elementwise_of(w, first, i, again);
        again[i].keeps_output = again[i].what != TY_AGAIN_ALL && !row->ignores_output;
        for (uint32_t k = 0; !row->is_sum && k < l->input_count; k++)
            if (l->inputs[k] >= first && again[l->inputs[k]].what != TY_AGAIN_ALL)
                again[l->inputs[k]].keeps_output = true;
    }
}

void ty_recompute_mark_again(const ty_workload *w, const ty_recompute_range *range,
                             const uint32_t *starts, uint32_t segments, ty_layer_again *again)
{
    for (uint32_t i = range->first_layer; i < range->first_layer + range->layer_count; i++)
        again[i] = (ty_layer_again){TY_AGAIN_ALL, false};
    if (range->recompute == TY_RECOMPUTE_OPERATOR)
        mark_products(w, range, starts, segments, again);
    else if (range->recompute == TY_RECOMPUTE_ELEMENTWISE)
        mark_elementwise(w, range, again);
}

ty_status ty_plan_mark_again(const ty_plan *plan, ty_layer_again *again, ty_error *error)
{
    uint32_t *starts = ty_alloc(plan->workload->layer_count, sizeof *starts);

    TY_TRY(ty_check_memory(starts != NULL, error));
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_plan_stage *own = &plan->stages[s];
        const ty_recompute_range range = {own->first_layer, own->layer_count, own->recompute,
                                          own->recompute_blocks};
        const uint32_t count = ty_recompute_segments(plan->workload, &range, starts);
        ty_recompute_mark_again(plan->workload, &range, starts, count, again);
    }
    ty_free(starts);
    return TY_OK;
}

double ty_layer_recompute_share(const ty_layer *layer, ty_again again)
{
    const uint64_t *a = layer->attributes;
    const uint64_t value_size = a[TY_VALUE_HEAD_SIZE] > 0 ? a[TY_VALUE_HEAD_SIZE] : a[TY_HEAD_SIZE];
    double output_flop;

    if (again == TY_AGAIN_ALL)
        return 1;
    if (again != TY_AGAIN_SECOND)
        return 0;
    if (ty_layer_row_of(layer)->split == TY_SPLIT_HIDDEN)
        return 1.0 / (a[TY_IS_GATED] != 0 ? 3 : 2);
    if (!(layer->forward_flop > 0))
        return 0;
    output_flop = 2 * (double)layer->output.dimensions[0] * (double)a[TY_HEADS] *
                  (double)value_size * (double)a[TY_FEATURES];
    return output_flop < layer->forward_flop ? output_flop / layer->forward_flop : 1;
}

uint32_t ty_layer_recompute_collectives(const ty_plan *plan, uint32_t layer, ty_again again,
                                        ty_inner_collective *out)
{
    const uint32_t found = ty_layer_inner_collectives(plan, layer, false, out);
    uint32_t count = 0;

    if (again == TY_AGAIN_ALL)
        return found;
    /* FLOPs of the second product. */
    for (uint32_t i = 0; again == TY_AGAIN_SECOND && i < found; i++)
        if (out[i].among == TY_TENSOR_PARALLEL &&
            (out[i].kind == TY_ALL_REDUCE || out[i].kind == TY_REDUCE_SCATTER))
            out[count++] = out[i];
    return count;
}
