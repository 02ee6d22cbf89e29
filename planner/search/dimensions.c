/* TP, CP, EP, ZeRO and recomputation if PP and DP alone do not fit: the cheapest first. */
#include "candidate.h"

uint32_t ty_dimensions_width(const ty_plan_dimensions *d)
{
    const ty_plan plan = {.tensor_parallel = d->tensor_parallel,
                          .context_parallel = d->context_parallel,
                          .expert_parallel = d->expert_parallel};
    return ty_plan_replica_ranks(&plan);
}

bool ty_dimensions_exchange(const ty_plan_dimensions *d, uint32_t replicas)
{
    const uint32_t tensor = at_least_one(d->tensor_parallel);

    return replicas > 1 || ty_dimensions_width(d) > tensor;
}

uint32_t ty_dimensions_sequence_parts(const ty_plan_dimensions *d)
{
    const ty_plan plan = {.tensor_parallel = d->tensor_parallel,
                          .context_parallel = d->context_parallel,
                          .sequence_parallel = d->sequence_parallel};
    return ty_plan_sequence_parts(&plan);
}

void ty_dimensions_normalize(ty_plan_dimensions *d)
{
    uint32_t *degrees[] = {&d->tensor_parallel, &d->context_parallel, &d->expert_parallel,
                           &d->virtual_stages};

    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        *degrees[i] = *degrees[i] > 1 ? *degrees[i] : 0;
}

bool ty_dimensions_equal(const ty_plan_dimensions *a, const ty_plan_dimensions *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->context_parallel == b->context_parallel &&
           a->expert_parallel == b->expert_parallel &&
           a->sequence_parallel == b->sequence_parallel && a->table_shard == b->table_shard &&
           a->zero == b->zero && a->virtual_stages == b->virtual_stages &&
           a->recompute == b->recompute && a->recompute_blocks == b->recompute_blocks;
}

ty_plan ty_plan_of_dimensions(const search_question *q, uint32_t micro_batch_size)
{
    return (ty_plan){.workload = (ty_workload *)q->workload,
                     .profile = (ty_profile *)q->profile,
                     .stack = (ty_stack *)q->stack,
                     .micro_batch_size = micro_batch_size,
                     .tensor_parallel = q->dimensions.tensor_parallel,
                     .context_parallel = q->dimensions.context_parallel,
                     .expert_parallel = q->dimensions.expert_parallel,
                     .sequence_parallel = q->dimensions.sequence_parallel,
                     .table_shard = q->dimensions.table_shard};
}

bool ty_asks_for_rows(const ty_pins *o)
{
    return ty_is_pinned(o, TY_AXIS(COMPRESSION)) &&
           ty_compression_at(o->compression.kind)->sends_rows;
}

bool ty_may_have_rows(const ty_pins *o)
{
    if (o->servers > 0)
        return false;
    if (ty_is_pinned(o, TY_AXIS(EMBEDDINGS)))
        return o->embeddings == TY_EMBEDDINGS_SHORTER;
    return !ty_is_pinned(o, TY_AXIS(COMPRESSION)) || ty_asks_for_rows(o);
}

/* Whether any layer may be sent as rows; else why the last embedding may not. */
ty_status ty_rows_possible(const search_question *q, ty_error *error)
{
    const ty_plan plan = ty_plan_of_dimensions(q, 1);
    ty_error detail = {0};

    for (uint32_t l = 0; l < q->workload->layer_count; l++)
        if (ty_layer_has_table(&q->workload->layers[l]) &&
            ty_rows_check(&plan, l, &detail) == TY_OK)
            return TY_OK;
    return ty_fail(error, TY_EINVAL, "%s: nothing of %s can travel as rows: %s",
                   ty_asks_for_rows(q->pins) ? "compression" : "embeddings", q->workload->name,
                   detail.message[0] != '\0' ? detail.message : "it has no embedding");
}

bool ty_may_send_rows(const search_question *q, const ty_plan_dimensions *d)
{
    search_question with = *q; /* borrows */

    with.dimensions = *d;
    return !ty_asks_for_rows(q->pins) || ty_rows_possible(&with, NULL) == TY_OK;
}

/* The devices of the smallest host: TP ranks communicate in every
 * layer, so they stay inside one. */
static uint32_t smallest_host(const search_question *q)
{
    const uint32_t hosts = ty_cluster_host_count(q->cluster);
    uint32_t smallest = UINT32_MAX, *counts = ty_alloc(hosts, sizeof *counts);

    if (counts == NULL)
        return 1;
    for (uint32_t d = 0; d < q->device_count; d++)
        counts[ty_cluster_device_host(q->cluster, q->set->devices[d])]++;
    for (uint32_t h = 0; h < hosts; h++)
        if (counts[h] > 0 && counts[h] < smallest)
            smallest = counts[h];
    ty_free(counts);
    return smallest;
}

static bool is_on_cores(const search_question *q)
{
    return ty_cluster_device_type(q->cluster, q->set->devices[0])->core_share > 0;
}

/* Whether the stack supports it, and pinned fields have their values. */
static bool is_wanted(const search_question *q, const ty_plan_dimensions *d)
{
    const ty_pins *o = q->pins;

    if ((d->tensor_parallel > 1 && !stack_may(q, TY_AXIS_TP, TY_KIND_MORE)) ||
        !stack_may(q, TY_AXIS_ZERO, d->zero) || !ty_has_recompute(q, d->recompute) ||
        !ty_may_send_rows(q, d))
        return false;
    return ty_pins_suit(o, TY_AXES_OF_DIMENSIONS & ~TY_AXIS(TP), d) &&
           (!ty_is_pinned(o, TY_AXIS(TP)) ||
            ty_dimensions_width(d) == ty_dimensions_width(&o->dimensions));
}

/* Proposals for CPUs must run on the worker. */
static bool can_have_ranks(const search_question *q, uint32_t widest, uint32_t ranks,
                           bool divides_sequence)
{
    const ty_workload *w = q->workload;
    const uint32_t parts = divides_sequence ? ranks : 1;

    if (widest % ranks != 0 || q->device_count % ranks != 0)
        return false;
    return (is_on_cores(q)
                ? ty_tensor_run_check(w, ranks, parts, 0, w->layer_count, NULL)
                : ty_stack_tensor_check(&q->stack->plans, w, ranks, parts, NULL)) == TY_OK;
}

uint32_t ty_dimensions_of_tensor_parallel(const search_question *q,
                                          ty_plan_dimensions out[TY_MOST_DIMENSIONS])
{
    const uint32_t widest = smallest_host(q);
    uint32_t count = 0;

    if (!is_on_cores(q) || !stack_may(q, TY_AXIS_TP, TY_KIND_MORE) ||
        ty_workload_whole_reason(q->workload) != NULL)
        return 0;
    for (uint32_t ranks = 2; ranks <= widest; ranks++)
        for (int divides = 0; divides < 2 && count < TY_MOST_DIMENSIONS; divides++)
            if (can_have_ranks(q, widest, ranks, divides == 1))
                out[count++] = (ty_plan_dimensions){.tensor_parallel = ranks,
                                                    .sequence_parallel = divides == 1};
    return count;
}

/* Sizes on one host: powers of two, or all its devices. */
uint32_t ty_dimensions_of_tables(const search_question *q,
                                 ty_plan_dimensions out[TY_MOST_DIMENSIONS])
{
    const uint64_t both = TY_AXIS(EP) | TY_AXIS(TABLES);
    uint32_t count = 0;

    if (!stack_may(q, TY_AXIS_EP, TY_KIND_MORE) || q->pins->servers > 0 ||
        q->pins->priority == TY_PRIORITY_FRONT || q->pins->fit_buckets ||
        (q->pins->axes & both) == both) /* the request itself */
        return 0;
    for (uint32_t ranks = 2; ranks <= q->device_count && ranks <= TY_MAX_PARALLEL_SIZE; ranks++) {
        const bool is_usual = (ranks & (ranks - 1)) == 0 || ranks == q->device_count ||
                              ty_is_pinned(q->pins, TY_AXIS(EP));
        for (int t = TY_TABLES_WHOLE + 1; is_usual && t < TY_TABLE_SHARD_COUNT; t++) {
            ty_plan_dimensions d = q->pins->dimensions;
            d.expert_parallel = ranks;
            d.table_shard = (ty_table_shard)t;
            if (count < TY_MOST_DIMENSIONS && is_wanted(q, &d) &&
                ty_expert_check(q->workload, ranks, d.table_shard, NULL) == TY_OK)
                out[count++] = d;
        }
    }
    return count;
}

uint32_t ty_dimensions_of_accelerators(const search_question *q,
                                       ty_plan_dimensions out[TY_MOST_DIMENSIONS])
{
    static const ty_recompute recomputes[] = {TY_RECOMPUTE_NONE, TY_RECOMPUTE_SELECTIVE,
                                              TY_RECOMPUTE_FULL};
    const uint32_t widest = smallest_host(q), most_experts = 64;
    const uint32_t zero = stack_may(q, TY_AXIS_ZERO, 1) && q->pins->staleness == 0 ? 1 : 0;
    uint32_t count = 0;

    if (is_on_cores(q) || ty_workload_whole_reason(q->workload) != NULL)
        return 0;
    for (size_t r = 0; r < sizeof recomputes / sizeof *recomputes; r++)
        for (uint32_t tensor = 1; tensor <= widest; tensor++) {
            const bool divides_sequence = tensor > 1 && can_have_ranks(q, widest, tensor, true);
            if (!divides_sequence && !can_have_ranks(q, widest, tensor, false))
                continue;
            for (uint32_t expert = 1; expert <= most_experts && count < TY_MOST_DIMENSIONS;
                 expert *= 2) {
                /* Expert parallelism may span hosts. */
                if (tensor * expert == 1 ||
                    (expert > 1 &&
                     (!stack_may(q, TY_AXIS_EP, TY_KIND_MORE) ||
                      q->device_count % (tensor * expert) != 0 ||
                      ty_stack_expert_check(&q->stack->plans, q->workload, expert,
                                            (int)TY_TABLES_WHOLE, q->is_fp16, NULL) != TY_OK)))
                    continue;
                out[count] = (ty_plan_dimensions){.tensor_parallel = tensor,
                                                  .expert_parallel = expert,
                                                  .sequence_parallel = divides_sequence,
                                                  .zero = zero,
                                                  .recompute = recomputes[r],
                                                  .recompute_blocks =
                                                      recomputes[r] == TY_RECOMPUTE_FULL ? 1 : 0};
                count += is_wanted(q, &out[count]);
            }
        }
    return count;
}

uint32_t ty_dimensions_propose(const search_question *q, ty_plan_dimensions out[TY_MOST_DIMENSIONS])
{
    const bool is_whole = ty_workload_has_teacher(q->workload);
    const uint32_t widest = is_whole ? 1 : smallest_host(q), levels = is_whole ? 0 : 3;
    uint32_t count = 0;

    for (uint32_t ranks = 1; ranks <= widest; ranks++) {
        const bool divides_sequence = can_have_ranks(q, widest, ranks, ranks > 1);
        if (!divides_sequence && !can_have_ranks(q, widest, ranks, false))
            continue;
        for (int r = 0; r < TY_RECOMPUTE_COUNT; r++)
            for (uint32_t zero = 0; zero <= levels && count < TY_MOST_DIMENSIONS; zero++) {
                if (ranks == 1 && r == 0 && zero == 0)
                    continue;
                if (zero == 2) /* gradients are the smallest term; ZeRO 3 includes it */
                    continue;
                if (zero > 0 && q->pins->staleness > 0)
                    continue;
                out[count] =
                    (ty_plan_dimensions){.tensor_parallel = ranks,
                                         .sequence_parallel = ranks > 1 && divides_sequence,
                                         .zero = zero,
                                         .recompute = (ty_recompute)r,
                                         .recompute_blocks = r == TY_RECOMPUTE_FULL};
                count += is_wanted(q, &out[count]);
            }
    }
    return count;
}
