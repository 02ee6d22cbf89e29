/* Lower bounds of a layout's step time and its memory, from the costs of similar plans. */
#include "costing.h"
#include "layout_space.h"
#include "lowering.h"

#include <math.h>

/* Bounds sum in a different order than estimates. */
#define ROUNDING (1 - 1e-9)

/* ---- Plans to price ------------------------------------------------------------------------ */

/* A plan with these dimensions and no stages yet; it owns only what is added later. */
static ty_plan plan_of(const layout_space *s, const ty_plan_dimensions *d, uint32_t size)
{
    const search_question *q = s->q;

    return (ty_plan){.workload = (ty_workload *)q->workload,
                     .profile = (ty_profile *)q->profile,
                     .stack = (ty_stack *)q->stack,
                     .optimizer = q->workload->optimizer,
                     .global_batch = q->global_batch,
                     .micro_batch_size = size,
                     .staleness = q->pins->staleness,
                     .zero = d->zero,
                     .virtual_stages = d->virtual_stages,
                     .tensor_parallel = d->tensor_parallel,
                     .context_parallel = d->context_parallel,
                     .expert_parallel = d->expert_parallel,
                     .sequence_parallel = d->sequence_parallel};
}

/* Equal stages on the first devices, in order. */
static ty_status add_stages(const layout_space *s, const ty_plan_dimensions *d,
                            uint32_t pipeline_size, uint32_t replicas, ty_plan *plan,
                            ty_error *error)
{
    const uint32_t width = ty_dimensions_width(d);
    layout_cuts cuts;

    plan->stage_count = pipeline_size * at_least_one(d->virtual_stages);
    cuts = ty_layout_cuts_of(s, plan->stage_count);
    TY_TRY(ty_check_memory(
        (plan->stages = ty_alloc(plan->stage_count, sizeof *plan->stages)) != NULL, error));
    for (uint32_t k = 0; k < plan->stage_count; k++) {
        const uint32_t first = s->blocks[ty_layout_cut(&cuts, k)];
        const uint32_t end = k + 1 < plan->stage_count ? s->blocks[ty_layout_cut(&cuts, k + 1)]
                                                       : s->q->workload->layer_count;
        plan->stages[k] = (ty_plan_stage){
            .first_layer = first,
            .layer_count = end - first,
            .replicas = replicas,
            .recompute = d->recompute,
            .recompute_blocks = d->recompute_blocks,
            .devices = &s->q->set->devices[(size_t)(k % pipeline_size) * replicas * width]};
    }
    return TY_OK;
}

/* One bucket of all gradients of a stage, and one of its experts if they are on fewer ranks. */
static void add_buckets(ty_plan *plan, uint32_t stage, ty_compression compression)
{
    for (int of_experts = 0; of_experts < 2; of_experts++) {
        ty_bucket *bucket = &plan->buckets[plan->bucket_count];
        if (of_experts && ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == 1)
            continue;
        *bucket = (ty_bucket){.stage = stage,
                              .first_layer = plan->stages[stage].first_layer,
                              .layer_count = plan->stages[stage].layer_count,
                              .tied_stage = TY_NO_STAGE,
                              .of_experts = of_experts,
                              .algorithm = TY_RING};
        if (ty_bucket_device_count(plan, bucket) > 1)
            bucket->compression = compression;
        bucket->gradient_bytes = ty_bucket_gradient_bytes(plan, bucket);
        plan->bucket_count += bucket->gradient_bytes > 0;
    }
}

/* ---- Passes ------------------------------------------------------------------------------- */

typedef struct passes {
    double forward_s, backward_s, weight_s, again_s; /* without the host's time for a pass */
} passes;

/* Time of all layers of a probe's stage, the first stage first; with recomputation only if the
 * segment has it. */
static ty_status ask_passes(ty_costing *costing, uint32_t stage, bool is_made_again, double pass_s,
                            passes *out)
{
    static const ty_op ops[] = {TY_OP_FORWARD, TY_OP_BACKWARD, TY_OP_BACKWARD_WEIGHT,
                                TY_OP_RECOMPUTE};
    double seconds[sizeof ops / sizeof *ops] = {0};

    TY_TRY(stage == 0 ? ty_cost_stage_open(costing, stage)
                      : ty_cost_stage_likewise(costing, stage));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const ty_plan_stage *planned = &costing->plan->stages[stage];
        ty_instruction whole = ty_instruction_of(ops[i]);
        ty_instruction_cost cost;
        whole.stage = stage;
        whole.first_layer = planned->first_layer;
        whole.layer_count = planned->layer_count;
        if (ops[i] == TY_OP_RECOMPUTE && !is_made_again)
            continue;
        TY_TRY(ty_cost_layers(costing, &whole, &cost));
        seconds[i] = cost.seconds - pass_s * (ops[i] == TY_OP_BACKWARD_WEIGHT ? 0.5 : 1);
    }
    *out = (passes){seconds[0], seconds[1] + seconds[3], seconds[2], seconds[3]};
    return TY_OK;
}

void ty_layout_cell_clear(layout_cell *cell)
{
    ty_free(cell->forward_s);
    *cell = (layout_cell){0};
}

ty_status ty_layout_cell_make(const layout_space *s, const ty_plan_dimensions *d, uint32_t size,
                              layout_cell *out, ty_error *error)
{
    const bool has_segments = ty_recompute_has_segments(d->recompute);
    const uint32_t layers = s->q->workload->layer_count, blocks = s->block_count;
    const uint32_t has_head = s->head < layers;
    ty_plan plan = plan_of(s, d, size);
    ty_costing costing = ty_costing_of(&plan, s->q->networks, error);
    passes *of_class = ty_alloc(s->class_count, sizeof *of_class), head = {0};
    layout_cell cell = {.forward_s = ty_alloc(4 * ((size_t)blocks + 1), sizeof(double))};
    ty_status status = TY_OK;

    /* One block of each class, the last block, and the head, each as a separate stage. */
    plan.virtual_stages = 0;
    plan.stage_count = s->class_count + 1 + has_head;
    plan.stages = ty_alloc(plan.stage_count, sizeof *plan.stages);
    TY_CHECK(
        ty_check_memory(of_class != NULL && cell.forward_s != NULL && plan.stages != NULL, error),
        status, done);
    cell.backward_s = cell.forward_s + blocks + 1;
    cell.weight_s = cell.backward_s + blocks + 1;
    cell.again_s = cell.weight_s + blocks + 1;
    for (uint32_t k = 0; k < plan.stage_count; k++) {
        const uint32_t block = k < s->class_count ? s->class_of_first[k] : blocks - 1;
        const bool is_head = k > s->class_count;
        const uint32_t first = is_head ? s->head : s->blocks[block];
        plan.stages[k] =
            (ty_plan_stage){.first_layer = first,
                            .layer_count = (is_head ? layers : s->blocks[block + 1]) - first,
                            .replicas = 1,
                            .recompute = d->recompute,
                            .recompute_blocks = d->recompute_blocks,
                            .devices = s->q->set->devices};
    }
    cell.pass_s = s->q->stack->host_pass_s;
    cell.again_pass_s = has_segments ? cell.pass_s : 0;
    if (s->q->profile != NULL)
        cell.pass_s += s->q->profile->instruction_overhead_s;
    for (uint32_t c = 0; c < s->class_count; c++)
        TY_CHECK(ask_passes(&costing, c, has_segments, cell.pass_s, &of_class[c]), status, done);
    /* The last segment is not recomputed if its backward directly follows its forward. */
    if (has_head)
        TY_CHECK(ask_passes(&costing, s->class_count + 1, false, cell.pass_s, &head), status, done);
    for (uint32_t b = 0; b < blocks; b++) {
        const passes *p = &of_class[s->classes[b]];
        cell.forward_s[b + 1] = cell.forward_s[b] + p->forward_s;
        cell.backward_s[b + 1] = cell.backward_s[b] + p->backward_s;
        cell.weight_s[b + 1] = cell.weight_s[b] + p->weight_s;
        cell.again_s[b + 1] = cell.again_s[b] + p->again_s;
    }
    cell.head_forward_s = head.forward_s;
    cell.head_backward_s = head.backward_s;
    cell.head_weight_s = head.weight_s;
    cell.message_bytes = ty_plan_transfer_bytes(&plan, s->class_count, TY_ACTIVATION);
    *out = cell;
    cell = (layout_cell){0};

done:
    ty_cost_stage_close(&costing);
    ty_layout_cell_clear(&cell);
    ty_free(plan.stages);
    ty_free(of_class);
    return status;
}

/* ---- Collectives, updates, sends ----------------------------------------------------------- */

/* Bytes of a bucket that may be sent as rows, which cannot be slower. */
static uint64_t row_bytes(const layout_space *s, const ty_plan *plan, const ty_bucket *bucket)
{
    uint64_t bytes = 0;

    if (!ty_may_have_rows(s->q->pins) || bucket->of_experts)
        return 0;
    for (uint32_t l = bucket->first_layer; l < bucket->first_layer + bucket->layer_count; l++)
        if (ty_layer_has_table(&plan->workload->layers[l]) &&
            ty_rows_check(plan, l, NULL) == TY_OK) {
            const ty_bucket one = {.stage = bucket->stage,
                                   .first_layer = l,
                                   .layer_count = 1,
                                   .tied_stage = TY_NO_STAGE};
            bytes += ty_bucket_gradient_bytes(plan, &one);
        }
    return bytes;
}

/* Seconds of the reductions of all buckets of a pipeline rank, or of their all-gathers. */
static ty_status ask_exchange(const layout_space *s, ty_costing *costing, ty_op op, double *seconds)
{
    const ty_plan *plan = costing->plan;

    *seconds = 0;
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        ty_instruction in = ty_instruction_of(op);
        ty_instruction_cost cost;
        const uint32_t phases =
            op == TY_OP_GATHER ? 1 : ty_compression_phases(&bucket->compression);
        if (bucket->stage != costing->stage.stage || ty_bucket_device_count(plan, bucket) < 2)
            continue;
        if (ty_compression_at(bucket->compression.kind)->sends_rows)
            continue; /* dense or rows, whichever pays: 0 is a lower bound */
        in.stage = bucket->stage;
        in.bucket = b;
        for (in.phase = 0; in.phase < phases; in.phase++) {
            in.bytes = op == TY_OP_GATHER ? ty_bucket_gather_bytes(plan, bucket)
                                          : ty_plan_exchange_bytes(plan, bucket, in.phase);
            if (op == TY_OP_COLLECTIVE && plan->zero == 0)
                in.bytes -= (uint64_t)((double)in.bytes * (double)row_bytes(s, plan, bucket) /
                                       (double)bucket->gradient_bytes);
            if (in.bytes == 0)
                continue;
            TY_TRY(ty_cost_collective(costing, &in, &cost));
            *seconds += cost.seconds;
        }
    }
    return TY_OK;
}

static ty_status ask_update(ty_costing *costing, double *seconds)
{
    *seconds = 0;
    for (uint32_t b = 0; b < costing->plan->bucket_count; b++) {
        ty_instruction in = ty_instruction_of(TY_OP_UPDATE);
        ty_instruction_cost cost;
        if (costing->plan->buckets[b].stage != costing->stage.stage)
            continue;
        in.stage = costing->plan->buckets[b].stage;
        in.bucket = b;
        TY_TRY(ty_cost_update(costing, &in, &cost));
        *seconds += cost.seconds;
    }
    return TY_OK;
}

/* The send from the first pipeline rank to the second, as latency and rate. */
static ty_status ask_transfer(ty_costing *costing, layout_grid_costs *out)
{
    ty_instruction in = ty_instruction_of(TY_OP_SEND);
    ty_instruction_cost cost;

    in.stage = 0;
    in.peer_stage = 1;
    in.bytes = 1u << 20;
    TY_TRY(ty_cost_send(costing, &in, &cost));
    out->latency_s = cost.latency_s;
    out->s_per_byte = (cost.seconds - cost.latency_s) / (double)in.bytes;
    return TY_OK;
}

/* Collectives and updates of a plan with the buckets of some pipeline ranks. */
static ty_status ask_places(const layout_space *s, ty_plan *plan, ty_compression_kind kind,
                            const uint32_t places[LAYOUT_PLACES], layout_grid_costs *out,
                            ty_error *error)
{
    ty_costing costing = ty_costing_of(plan, s->q->networks, error);
    const ty_compression compression = kind == TY_COMPRESSION_NONE
                                           ? (ty_compression){0}
                                           : ty_proposed_compression(s->q->pins, kind);
    ty_status status = TY_OK;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (ty_bucket_device_count(plan, &plan->buckets[b]) > 1)
            plan->buckets[b].compression = compression;
    if (ty_is_pinned(s->q->pins, TY_AXIS(ALGORITHM)))
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            plan->buckets[b].algorithm = s->q->pins->algorithm;
    else
        TY_CHECK(ty_choose_algorithms(plan, s->q->networks, error), status, done);
    for (uint32_t i = 0; i < LAYOUT_PLACES; i++) {
        double *exchange_s = plan->zero > 0 ? &out->scatter_s[i][kind] : &out->reduce_s[i][kind];
        if (places[i] == TY_NO_STAGE)
            continue;
        TY_CHECK(ty_cost_stage_meet(&costing, places[i]), status, done);
        TY_CHECK(ask_exchange(s, &costing, TY_OP_COLLECTIVE, exchange_s), status, done);
        if (kind == TY_COMPRESSION_NONE) {
            TY_CHECK(ask_update(&costing,
                                plan->zero > 0 ? &out->sharded_update_s[i] : &out->update_s[i]),
                     status, done);
            if (plan->zero > 0)
                TY_CHECK(ask_exchange(s, &costing, TY_OP_GATHER, &out->gather_s[i]), status, done);
        }
        if (i == LAYOUT_FIRST && plan->stage_count > 1 && kind == TY_COMPRESSION_NONE)
            TY_CHECK(ask_transfer(&costing, out), status, done);
        ty_cost_stage_close(&costing);
    }
done:
    ty_cost_stage_close(&costing);
    return status;
}

ty_status ty_layout_grid_make(const layout_space *s, const ty_plan_dimensions *dimensions,
                              uint32_t pipeline_size, layout_grid_costs *out, ty_error *error)
{
    const uint32_t replicas = s->q->device_count / ty_dimensions_width(dimensions) / pipeline_size;
    const uint32_t places[LAYOUT_PLACES] = {0, pipeline_size > 2 ? 1 : TY_NO_STAGE,
                                            pipeline_size > 1 ? pipeline_size - 1 : TY_NO_STAGE};
    ty_plan_dimensions d = *dimensions;
    ty_plan plan;
    ty_status status = TY_OK;

    *out = (layout_grid_costs){0};
    d.virtual_stages = 0;
    d.recompute = TY_RECOMPUTE_NONE;
    plan = plan_of(s, &d, 1);
    TY_TRY(ty_check_memory(
        (plan.buckets = ty_alloc(2 * LAYOUT_PLACES, sizeof *plan.buckets)) != NULL, error));
    plan.micro_batches = replicas;
    TY_CHECK(add_stages(s, &d, pipeline_size, replicas, &plan, error), status, done);
    for (uint32_t zero = 0; zero <= 1; zero++) {
        plan.zero = zero;
        plan.bucket_count = 0;
        for (uint32_t i = 0; i < LAYOUT_PLACES; i++)
            if (places[i] != TY_NO_STAGE)
                add_buckets(&plan, places[i], (ty_compression){0});
        for (uint32_t b = 0; b < plan.bucket_count; b++) {
            out->is_exchanged =
                out->is_exchanged || ty_bucket_device_count(&plan, &plan.buckets[b]) > 1;
            if (plan.buckets[b].gradient_bytes > out->gradient_bytes)
                out->gradient_bytes = plan.buckets[b].gradient_bytes;
        }
        if (zero > 0 && !out->is_exchanged)
            break;
        for (int k = 0; k < TY_COMPRESSION_COUNT; k++) {
            layout l = {.dimensions = d, .pipeline_size = pipeline_size, .replicas = replicas};
            l.dimensions.zero = zero;
            if (k == TY_COMPRESSION_NONE ||
                ty_layout_allows_compression(s, &l, (ty_compression_kind)k, out->is_exchanged))
                TY_CHECK(ask_places(s, &plan, (ty_compression_kind)k, places, out, error), status,
                         done);
        }
    }
done:
    ty_free(plan.stages);
    ty_free(plan.buckets);
    return status;
}

/* ---- The bound ----------------------------------------------------------------------------- */

/* The host's time of recomputing passes: of the last stage without the head. */
static double again_pass_s(const layout_space *s, const layout_cell *c, const layout_cuts *cuts,
                           uint32_t stage)
{
    const uint32_t first = s->blocks[ty_layout_cut(cuts, stage)];
    const uint32_t end = s->blocks[ty_layout_cut(cuts, stage + 1)];
    const uint32_t behind = stage + 1 == cuts->stages ? s->q->workload->layer_count : end;

    if (c->again_pass_s <= 0)
        return 0;
    return c->again_pass_s * (end - first) / (behind - first);
}

/* Passes of one stage. */
static passes passes_of(const layout_space *s, const layout_cell *c, const layout_cuts *cuts,
                        uint32_t stage)
{
    const uint32_t first = ty_layout_cut(cuts, stage), end = ty_layout_cut(cuts, stage + 1);
    const bool is_last = stage + 1 == cuts->stages;
    passes p = {.forward_s = c->forward_s[end] - c->forward_s[first] +
                             (is_last ? c->head_forward_s : 0) + c->pass_s,
                .backward_s =
                    c->backward_s[end] - c->backward_s[first] + (is_last ? c->head_backward_s : 0),
                .weight_s =
                    c->weight_s[end] - c->weight_s[first] + (is_last ? c->head_weight_s : 0)};

    if (p.backward_s > 0)
        p.backward_s += c->pass_s + again_pass_s(s, c, cuts, stage);
    return p;
}

/* Recomputation that can run before its gradient arrives: a stage's last segment. */
static double made_early_s(const layout *l, const layout_cell *c, const layout_cuts *cuts,
                           uint32_t stage)
{
    const uint32_t first = ty_layout_cut(cuts, stage), end = ty_layout_cut(cuts, stage + 1);
    const uint32_t blocks = l->dimensions.recompute_blocks;
    const uint32_t segment = l->dimensions.recompute != TY_RECOMPUTE_FULL ? 1
                             : blocks > 0                                 ? blocks
                                                                          : end - first;

    return c->again_s[end] - c->again_s[segment < end - first ? end - segment : first] +
           c->again_pass_s;
}

/* Factor by which several buckets may be faster than one, if a library changes its protocol. */
#define LEAST_OF_PARTS 0.97

/* Whether gradients are reduced bucket by bucket during backward. */
static bool is_overlapped(const layout_space *s, const layout *l)
{
    return l->bucket_bytes != UINT64_MAX && s->q->stack->overlaps_exchange;
}

/* Exposed time of a collective that may overlap with some work. */
static double exposed_s(const layout_space *s, const layout *l, double all_s, double beside_s)
{
    return is_overlapped(s, l) ? fmax(0, LEAST_OF_PARTS * all_s - beside_s) : all_s;
}

double ty_layout_bound_s(const layout_space *s, const layout *l, const layout_cell *c,
                         const layout_grid_costs *g)
{
    const uint32_t pipeline_size = l->pipeline_size,
                   virtual_stages = at_least_one(l->dimensions.virtual_stages);
    const uint32_t stages = pipeline_size * virtual_stages, zero = l->dimensions.zero;
    const layout_cuts cuts = ty_layout_cuts_of(s, stages);
    const double count = (double)(s->q->global_batch / l->micro_batch_size / l->replicas);
    const double transfer_s =
        pipeline_size > 1 ? g->latency_s + g->s_per_byte * (double)c->message_bytes : 0;
    /* With a priority order, the next step's forward may hide them. */
    const bool is_late = s->q->pins->staleness > 0 || s->q->pins->priority != TY_PRIORITY_NONE ||
                         ty_schedule_at(l->schedule)->is_asynchronous;
    /* Experts have a separate bucket: one is updated while the other is reduced. */
    const bool has_parts = is_overlapped(s, l) || l->dimensions.expert_parallel > 1;
    const bool is_split = ty_schedule_at(l->schedule)->splits_backward;
    double fill_s = 0, drain_s = 0, longest_s = 0, first_end_s = 0;

    for (uint32_t i = 0; i < pipeline_size; i++) {
        const uint32_t place = i == 0                   ? LAYOUT_FIRST
                               : i + 1 == pipeline_size ? LAYOUT_LAST
                                                        : LAYOUT_MIDDLE;
        const double exchange_s =
            zero > 0 ? g->scatter_s[place][l->compression] : g->reduce_s[place][l->compression];
        const passes lowest = passes_of(s, c, &cuts, i); /* of its first stage */
        double work_s = lowest.forward_s + lowest.backward_s, exchanged_s = 0, end_s, all_s;
        for (uint32_t k = i + pipeline_size; k < stages; k += pipeline_size) {
            const passes p = passes_of(s, c, &cuts, k);
            work_s += p.forward_s + p.backward_s;
        }
        /* Time from a pipeline rank's last backward to its next step's first forward. It has the
         * reduction of its last stage, which only a backward of that stage hides, and the update:
         * buckets reduced early overlap theirs with the other reductions. With ZeRO it also has the
         * all-gather of its first stage's weights, which only that stage's forward hides. */
        end_s = zero > 0 ? g->sharded_update_s[place] : g->update_s[place];
        if (!is_late)
            exchanged_s = exposed_s(s, l, exchange_s / virtual_stages, lowest.backward_s);
        end_s = has_parts ? fmax(end_s, exchanged_s) : end_s + exchanged_s;
        if (zero > 0)
            end_s += exposed_s(s, l, g->gather_s[place] / virtual_stages, lowest.forward_s);
        if (i == 0)
            first_end_s = end_s;
        all_s = count * work_s;
        longest_s = fmax(longest_s, fmax(all_s + end_s, exchange_s));
        if (zero == 3) /* weights are gathered for every pass */
            longest_s = fmax(longest_s, 2 * count * g->gather_s[place]);
        if (!ty_schedule_at(l->schedule)->is_asynchronous) {
            if (is_split) /* deferred weight gradients may come later, and the last one's */
                all_s -= fmin(count, ty_schedule_put_off(l->schedule, i) + 1.0) *
                         (lowest.weight_s + c->pass_s);
            longest_s = fmax(longest_s, fill_s + all_s + drain_s + first_end_s);
            fill_s += lowest.forward_s + transfer_s;
            drain_s += lowest.backward_s - made_early_s(l, c, &cuts, i) + transfer_s -
                       (is_split ? lowest.weight_s + c->pass_s : 0);
        }
    }
    return ROUNDING * longest_s;
}

/* ---- Memory -------------------------------------------------------------------------------- */

ty_status ty_layout_memory(const layout_space *s, const layout *l, uint64_t *bytes, ty_error *error)
{
    const uint32_t virtual_stages = at_least_one(l->dimensions.virtual_stages);
    ty_plan plan = plan_of(s, &l->dimensions, l->micro_batch_size);
    ty_program *program = NULL;
    ty_status status = TY_OK;

    plan.schedule = l->schedule;
    plan.micro_batches = s->q->global_batch / l->micro_batch_size;
    TY_TRY(ty_check_memory((plan.buckets = ty_alloc(2 * (size_t)l->pipeline_size * virtual_stages,
                                                    sizeof *plan.buckets)) != NULL,
                           error));
    TY_CHECK(add_stages(s, &l->dimensions, l->pipeline_size, l->replicas, &plan, error), status,
             done);
    for (uint32_t k = 0; k < plan.stage_count; k++)
        add_buckets(&plan, k, (ty_compression){0});
    TY_CHECK(ty_plan_lower_passes(&plan, &program, error), status, done);
    *bytes = 0;
    /* The first has most in-flight micro-batches, the next may have more blocks, the last has the
     * head.
     */
    for (uint32_t i = 0; i < l->pipeline_size;
         i = i < 1 || i + 1 == l->pipeline_size ? i + 1 : l->pipeline_size - 1) {
        ty_memory_use use;
        uint64_t need;
        TY_CHECK(ty_stage_memory(&plan, program, i, &use, error), status, done);
        need = ty_memory_use_total(&use) -
               (l->bucket_bytes == UINT64_MAX ? 0 : use.communication_bytes);
        *bytes = need > *bytes ? need : *bytes;
    }
done:
    ty_program_free(program);
    ty_free(plan.stages);
    ty_free(plan.buckets);
    return status;
}
