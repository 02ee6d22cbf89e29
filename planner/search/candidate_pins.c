/* The pins that reproduce a candidate: `fix` of plans and candidates. */
#include "candidate.h"

#include <string.h>

/* ---- Devices ------------------------------------------------------------------------------- */

/* The pin of a set's devices: a list if their number alone would select others; "" if all train. */
static ty_status name_devices(const search_question *q, const device_set *set, ty_text *out,
                              ty_error *error)
{
    ty_pins by_number = {0};
    device_set *sets = NULL;
    uint32_t count = 0;
    ty_status status;

    ty_pins_take(&by_number, q->pins, TY_AXIS_SERVERS);
    ty_pins_take(&by_number, q->pins, TY_AXIS_ACTORS);
    if (set->count == ty_cluster_device_count(q->cluster))
        return TY_OK;
    TY_TRY(ty_device_sets_propose(q->cluster, &by_number, false, q->servers, q->global_batch, &sets,
                                  &count, error));
    if (sets[0].count == set->count) { /* all except servers and actors */
        ty_device_sets_free(sets, count);
        return TY_OK;
    }
    ty_device_sets_free(sets, count);
    ty_pin(&by_number, TY_AXIS_DEVICES, set->count);
    status = ty_device_sets_propose(q->cluster, &by_number, false, q->servers, q->global_batch,
                                    &sets, &count, NULL);
    if (status == TY_ENOMEM)
        return out_of_memory(error);
    if (status == TY_OK && sets[0].count == set->count &&
        memcmp(sets[0].devices, set->devices, set->count * sizeof *set->devices) == 0) {
        ty_text_addf(out, "%u", set->count);
    } else {
        uint32_t run;
        for (uint32_t i = 0; i < set->count; i += run) {
            for (run = 1; i + run < set->count && set->devices[i + run] == set->devices[i] + run;
                 run++)
                continue;
            ty_text_addf(out, "%s%u-%u", i > 0 ? "+" : "", set->devices[i],
                         set->devices[i] + run - 1);
        }
    }
    if (status == TY_OK)
        ty_device_sets_free(sets, count);
    return TY_OK;
}

/* A set is named once: thousands of candidates share it, and finding the devices for a number scans
 * the cluster. */
static ty_status pin_devices(const search_question *q, const candidate *c, ty_pins *pins,
                             ty_error *error)
{
    device_set *set = &q->sets[c->set != NULL ? c->set - q->sets : 0];

    if (set->name == NULL) {
        ty_text name = {0};
        ty_status status = name_devices(q, set, &name, error);
        if (status == TY_OK)
            status = ty_text_take(&name, &set->name, error);
        ty_text_clear(&name);
        TY_TRY(status);
    }
    if (set->name[0] != '\0') {
        ty_pin(pins, TY_AXIS_DEVICES, set->count);
        pins->device_list = set->name;
    }
    return TY_OK;
}

/* ---- All axes ------------------------------------------------------------------------------ */

/* A size, unless the workload allows only 1. */
static void pin_size(ty_pins *pins, ty_axis axis, uint32_t size, bool may_be_more)
{
    if (may_be_more || size > 1)
        ty_pin(pins, axis, at_least_one(size));
}

static void pin_dimensions(const search_question *q, const candidate *c, ty_pins *pins)
{
    const ty_plan_dimensions *d = &c->dimensions;
    const bool may_divide_tensors = ty_tensor_check(q->workload, 2, 1, NULL) == TY_OK;
    const bool may_divide_tables = ty_expert_check(q->workload, 2, TY_TABLES_ROW, NULL) == TY_OK;
    const uint32_t virtual_stages = at_least_one(d->virtual_stages);

    ty_pin(pins, TY_AXIS_PP, c->division->stage_count / virtual_stages);
    if (pins->pipeline_stages > 1)
        ty_pin(pins, TY_AXIS_VPP, virtual_stages);
    pin_size(pins, TY_AXIS_TP, d->tensor_parallel, may_divide_tensors);
    pin_size(pins, TY_AXIS_CP, d->context_parallel,
             ty_context_check(q->workload, 2, NULL) == TY_OK);
    pin_size(pins, TY_AXIS_EP, d->expert_parallel,
             may_divide_tables || ty_expert_check(q->workload, 2, TY_TABLES_WHOLE, NULL) == TY_OK);
    if (may_divide_tables && d->expert_parallel > 1)
        ty_pin(pins, TY_AXIS_TABLES, d->table_shard);
    if (may_divide_tensors || d->sequence_parallel)
        ty_pin(pins, TY_AXIS_SP, d->sequence_parallel);
    ty_pin(pins, TY_AXIS_ZERO, d->zero);
    ty_pin(pins, TY_AXIS_RECOMPUTE, d->recompute);
    pins->dimensions.recompute_blocks = d->recompute_blocks;
}

/* One stage is 1F1B unless another schedule was requested. Equal replicas are `dp`. */
static void pin_stages(const search_question *q, const candidate *c, ty_pins *pins)
{
    const division *d = c->division;

    if (has_equal_replicas(d)) {
        ty_pin(pins, TY_AXIS_DP, d->replicas[0]);
    } else {
        ty_pin(pins, TY_AXIS_REPLICAS, d->stage_count);
        memcpy(pins->replicas.numbers, d->replicas, d->stage_count * sizeof *d->replicas);
    }
    pins->axes |= TY_AXIS(LAYERS);
    pins->layers = ty_division_layers(q, d);
    if (d->stage_count > 1 || c->schedule != ty_schedule_default(false))
        ty_pin(pins, TY_AXIS_SCHEDULE, c->schedule);
    ty_pin(pins, TY_AXIS_MICRO_BATCH, q->global_batch / c->micro_batches);
}

/* Without `embeddings`, a pinned compression leaves embeddings dense. */
static void pin_gradients(const search_question *q, const candidate *c, ty_pins *pins)
{
    const bool sends_rows = ty_compression_at(c->compression.kind)->sends_rows;

    pins->axes |= TY_AXIS(COMPRESSION);
    pins->compression = c->compression;
    if (c->compression.kind != TY_COMPRESSION_NONE && !sends_rows && ty_chooses_compressed(q->pins))
        ty_pin(pins, TY_AXIS_COMPRESS, TY_COMPRESS_SHORTER);
    if (c->has_dense_embeddings)
        ty_pin(pins, TY_AXIS_EMBEDDINGS, TY_EMBEDDINGS_DENSE);
    else if (!sends_rows && ty_may_have_rows(q->pins) && (c->has_rows || !c->is_judged) &&
             stack_may(q, TY_AXIS_COMPRESSION, TY_COMPRESSION_ROWS) &&
             ty_rows_possible(q, NULL) == TY_OK)
        ty_pin(pins, TY_AXIS_EMBEDDINGS, TY_EMBEDDINGS_SHORTER);
    ty_pin(pins, TY_AXIS_BUCKET, c->has_fitted_buckets ? 0 : c->bucket_bytes);
    pins->fit_buckets = c->has_fitted_buckets;
}

/* Axes that the search does not vary, where the plan depends on them: one replica has no order of
 * collectives, and no lag is without actors. Each bucket's algorithm follows from its own costs
 * unless it is pinned. */
static void pin_others(const search_question *q, const candidate *c, ty_pins *pins)
{
    const ty_pins *asked = q->pins;
    const bool is_alone = c->division->stage_count == 1 && c->division->replicas[0] == 1;

    ty_pins_take(pins, asked, TY_AXIS_CYCLE);
    ty_pins_take(pins, asked, TY_AXIS_ALGORITHM);
    if (asked->priority != TY_PRIORITY_NONE && !is_alone)
        ty_pins_take(pins, asked, TY_AXIS_PRIORITY);
    if (asked->servers > 0) {
        ty_pins_take(pins, asked, TY_AXIS_SERVERS);
        ty_pins_take(pins, asked, TY_AXIS_SHARD);
    }
    if (asked->staleness > 0)
        ty_pins_take(pins, asked, TY_AXIS_STALENESS);
    if (q->workload->learning == TY_LEARNING_REINFORCEMENT)
        ty_pin(pins, TY_AXIS_ACTORS, asked->actors);
    if (asked->actors > 0)
        ty_pin(pins, TY_AXIS_LAG, asked->lag);
}

ty_status ty_candidate_fix(const search_question *q, const candidate *c, char **out,
                           ty_error *error)
{
    ty_pins pins = {0};
    ty_text text = {0};
    ty_status status = TY_OK;

    pin_stages(q, c, &pins);
    pin_dimensions(q, c, &pins);
    pin_gradients(q, c, &pins);
    pin_others(q, c, &pins);
    TY_CHECK(pin_devices(q, c, &pins, error), status, done);
    TY_CHECK(ty_pins_print(&pins, &text, error), status, done);
    status = ty_text_take(&text, out, error);
done:
    ty_text_clear(&text);
    return status;
}
