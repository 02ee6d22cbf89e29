/* The space of layouts: the values of every dimension, and their allowed combinations. */
#include "layout_space.h"

#include <string.h>

/* Minimum sequence length for context parallelism: Llama 3 was trained without it at 8,192 tokens
 * and with 16 context-parallel ranks at 131,072 (Dubey et al. 2024, table 4). */
#define LONG_SEQUENCE 16384
/* Compression changes convergence: only a cast to 16 bits is proposed without a request. */
static const ty_compression_kind usual_compressions[] = {TY_COMPRESSION_NONE, TY_COMPRESSION_FP16};
/* Everything at once, PyTorch's 25 MiB, and ten times that. */
static const uint64_t usual_buckets[] = {UINT64_MAX, 250u << 20, 25u << 20};

/* ---- Blocks ------------------------------------------------------------------------------ */

/* Whether two blocks have equal costs: kinds, sizes and shapes of their layers. */
static bool are_alike(const ty_workload *w, uint32_t a, uint32_t a_end, uint32_t b, uint32_t b_end)
{
    if (a_end - a != b_end - b)
        return false;
    for (; a < a_end; a++, b++) {
        const ty_layer *left = &w->layers[a], *right = &w->layers[b];
        if (left->kind != right->kind || left->is_frozen != right->is_frozen ||
            left->parameter_bytes != right->parameter_bytes ||
            left->output_bytes != right->output_bytes || left->stash_bytes != right->stash_bytes ||
            left->forward_flop != right->forward_flop || left->input_count != right->input_count ||
            memcmp(left->attributes, right->attributes, sizeof left->attributes) != 0)
            return false;
    }
    return true;
}

ty_status ty_layout_space_open(const search_question *q, layout_space *out, bool *has_blocks,
                               ty_error *error)
{
    const ty_workload *w = q->workload;
    const uint32_t layers = w->layer_count;
    layout_space s = {.q = q,
                      .head = layers,
                      .blocks = ty_alloc((size_t)layers + 1, sizeof *s.blocks),
                      .classes = ty_alloc(layers, sizeof *s.classes),
                      .class_of_first = ty_alloc(layers, sizeof *s.class_of_first)};
    const uint32_t *starts;
    uint32_t head, mixers = 0;

    *has_blocks = false;
    if (s.blocks == NULL || s.classes == NULL || s.class_of_first == NULL) {
        ty_layout_space_clear(&s);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    s.block_count = ty_workload_blocks(w, &starts, &head);
    memcpy(s.blocks, starts, s.block_count * sizeof *starts);
    if (head != TY_NO_LAYER) {
        s.block_count--; /* it is the last of them */
        s.head = head;
    }
    s.blocks[s.block_count] = s.head;
    for (uint32_t b = 0; b < s.block_count; b++) {
        bool has = false;
        for (uint32_t l = s.blocks[b]; l < s.blocks[b + 1]; l++)
            has = has || ty_layer_row_of(&w->layers[l])->mixes_tokens;
        mixers += has;
        /* Stages begin where one tensor crosses, and only the first reads the batch. */
        if (b > 0 && !ty_workload_is_cut(w, s.blocks[b]))
            mixers = 0, b = s.block_count;
    }
    if (mixers < 2 || mixers < s.block_count ||
        (head != TY_NO_LAYER && !ty_workload_is_cut(w, head))) {
        ty_layout_space_clear(&s);
        return TY_OK;
    }
    for (uint32_t b = 0; b < s.block_count; b++) {
        uint32_t c = 0;
        while (c < s.class_count &&
               !are_alike(s.q->workload, s.blocks[s.class_of_first[c]],
                          s.blocks[s.class_of_first[c] + 1], s.blocks[b], s.blocks[b + 1]))
            c++;
        if (c == s.class_count)
            s.class_of_first[s.class_count++] = b;
        s.classes[b] = c;
    }
    for (uint32_t l = 0; l < layers; l++) {
        const ty_layer *layer = &w->layers[l];
        s.has_scores = s.has_scores || (ty_layer_has_heads(layer) &&
                                        !ty_attention_is_fused(q->stack, w->precision, layer));
    }
    s.has_experts = ty_workload_has_experts(w);
    *out = s;
    *has_blocks = true;
    return TY_OK;
}

void ty_layout_space_clear(layout_space *s)
{
    ty_free(s->blocks);
    ty_free(s->classes);
    ty_free(s->class_of_first);
    *s = (layout_space){0};
}

layout_cuts ty_layout_cuts_of(const layout_space *s, uint32_t stages)
{
    return (layout_cuts){stages, s->block_count / stages, s->block_count % stages};
}

/* ---- Dimensions -------------------------------------------------------------------------- */

bool ty_layout_allows_parallelism(const layout_space *s, const ty_plan_dimensions *d)
{
    const search_question *q = s->q;
    const uint32_t tensor = d->tensor_parallel, context = d->context_parallel;
    const uint32_t expert = d->expert_parallel, ranks = tensor * context * expert;
    const bool may_sum = q->workload->local_steps <= 1; /* in every step */

    if ((tensor > 1 && !stack_may(q, TY_AXIS_TP, TY_KIND_MORE)) ||
        (context > 1 && !stack_may(q, TY_AXIS_CP, TY_KIND_MORE)) ||
        (expert > 1 && !stack_may(q, TY_AXIS_EP, TY_KIND_MORE)))
        return false;
    if (!ty_pins_suit(q->pins, TY_AXES_OF_RANKS | TY_AXIS(SP), d))
        return false;
    if (q->device_count % ranks != 0 || (d->sequence_parallel && tensor == 1) ||
        !ty_may_send_rows(q, d))
        return false;
    if (context > 1 && (!may_sum || (!ty_is_pinned(q->pins, TY_AXIS(CP)) &&
                                     q->workload->tokens_per_sample < LONG_SEQUENCE)))
        return false;
    if (expert > 1 && (!s->has_experts || !may_sum || q->pins->fit_buckets))
        return false;
    return ty_stack_tensor_check(&q->stack->plans, q->workload, tensor,
                                 ty_dimensions_sequence_parts(d), NULL) == TY_OK &&
           ty_context_check(q->workload, context, NULL) == TY_OK &&
           ty_stack_expert_check(&q->stack->plans, q->workload, expert, (int)TY_TABLES_WHOLE,
                                 q->is_fp16, NULL) == TY_OK;
}

bool ty_layout_allows_grid(const layout_space *s, uint32_t ranks, uint32_t pipeline_size)
{
    const search_question *q = s->q;
    const uint32_t stage_replicas = q->device_count / ranks;

    if (pipeline_size > s->block_count || pipeline_size > TY_MAX_STAGES ||
        stage_replicas % pipeline_size != 0 ||
        (pipeline_size > 1 && !stack_may(q, TY_AXIS_PP, TY_KIND_MORE)))
        return false;
    if (ty_is_pinned(q->pins, TY_AXIS(PP)) && q->pins->pipeline_stages != pipeline_size)
        return false;
    if (ty_is_pinned(q->pins, TY_AXIS(DP)) &&
        q->pins->data_parallel != stage_replicas / pipeline_size)
        return false;
    return q->global_batch % (stage_replicas / pipeline_size) == 0;
}

bool ty_layout_allows_batch(const layout_space *s, uint32_t expert, uint32_t replicas,
                            uint32_t size)
{
    const search_question *q = s->q;

    return q->global_batch / replicas % size == 0 && size % expert == 0 &&
           (!ty_is_pinned(q->pins, TY_AXIS(MICRO_BATCH)) || q->pins->micro_batch_size == size);
}

bool ty_layout_allows_recompute(const layout_space *s, ty_recompute recompute, uint32_t blocks)
{
    const ty_pins *o = s->q->pins;

    if (!ty_has_recompute(s->q, recompute))
        return false;
    if (ty_is_pinned(o, TY_AXIS(RECOMPUTE)))
        return recompute == o->dimensions.recompute && blocks == o->dimensions.recompute_blocks;
    if (recompute == TY_RECOMPUTE_SELECTIVE && !s->has_scores)
        return false;
    return recompute != TY_RECOMPUTE_FULL || blocks == 1;
}

/* Whether the stack supports the layout's recomputation of blocks, in stages of that many. */
static bool suits_segments(const layout_space *s, const layout *l)
{
    const uint32_t segment = l->dimensions.recompute_blocks;
    const uint64_t parts = (uint64_t)l->pipeline_size * at_least_one(l->dimensions.virtual_stages);

    return !s->q->stack->plans.whole_segments || l->dimensions.recompute != TY_RECOMPUTE_FULL ||
           segment == 1 || s->block_count % (parts * at_least_one(segment)) == 0;
}

/* Stages of equal numbers of blocks, except one less in the last, or in the first and the last,
 * which also have the embedding and the head. This is the partition of Llama 3's 126 blocks for 16
 * pipeline ranks (Dubey et al. 2024, section 3.3.2). */
static bool divides_blocks(const layout_space *s, uint32_t stages)
{
    const uint32_t rest = s->block_count % stages;

    return stages <= s->block_count && (rest == 0 || rest + 2 >= stages);
}

bool ty_layout_allows_schedule(const layout_space *s, const layout *l, uint32_t micro_batches)
{
    const ty_pins *o = s->q->pins;
    const uint32_t virtual_stages = at_least_one(l->dimensions.virtual_stages);
    const ty_schedule_row *row = ty_schedule_at(l->schedule);
    const ty_schedule_use use = {.pipeline_size = l->pipeline_size,
                                 .virtual_stages = virtual_stages,
                                 .micro_batches = micro_batches,
                                 .has_segments =
                                     ty_recompute_has_segments(l->dimensions.recompute)};

    if (!ty_pins_suit(o, TY_AXIS(VPP), &l->dimensions) ||
        (l->pipeline_size > 1 && !stack_may(s->q, TY_AXIS_SCHEDULE, l->schedule)))
        return false;
    if ((s->q->most_virtual_stages > 0 && virtual_stages > s->q->most_virtual_stages) ||
        !suits_segments(s, l))
        return false;
    if (ty_schedule_check(l->schedule, &use) != TY_SCHEDULE_SUITS)
        return false;
    if (virtual_stages > 1) {
        if (o->fit_buckets || (ty_is_pinned(o, TY_AXIS(SCHEDULE)) && o->schedule != l->schedule))
            return false;
        return l->pipeline_size > 1 &&
               (uint64_t)l->pipeline_size * virtual_stages <= s->block_count &&
               (uint64_t)l->pipeline_size * virtual_stages <= TY_MAX_STAGES &&
               (ty_is_pinned(o, TY_AXIS(VPP)) ||
                divides_blocks(s, l->pipeline_size * virtual_stages));
    }
    /* As in candidates.c: schedules that change convergence, or that few frameworks have, are only
     * for requests. */
    return ty_is_pinned(o, TY_AXIS(SCHEDULE))
               ? l->schedule == o->schedule
               : row->is_usual && (l->pipeline_size > 1 || !row->has_full_in_flight);
}

bool ty_layout_allows_zero(const layout_space *s, const layout *l, uint32_t zero)
{
    const ty_pins *o = s->q->pins;
    const bool is_exchanged = ty_dimensions_exchange(&l->dimensions, l->replicas);

    if ((zero > 0 && o->fit_buckets) || !stack_may(s->q, TY_AXIS_ZERO, zero))
        return false;
    if (ty_is_pinned(o, TY_AXIS(ZERO)) ? zero != o->dimensions.zero : zero > 0 && !is_exchanged)
        return false;
    return zero == 0 || (o->staleness == 0 && zero <= ty_schedule_at(l->schedule)->most_zero);
}

uint32_t ty_layout_buckets(const layout_space *s, uint64_t stage_bytes, uint32_t zero,
                           uint64_t out[LAYOUT_MOST_BUCKETS])
{
    const ty_pins *o = s->q->pins;
    uint32_t count = 0;

    _Static_assert(sizeof usual_buckets / sizeof *usual_buckets <= LAYOUT_MOST_BUCKETS,
                   "room for all sizes");
    if (ty_is_pinned(o, TY_AXIS(BUCKET))) {
        out[0] = o->fit_buckets ? UINT64_MAX : o->bucket_bytes;
        return 1;
    }
    for (size_t i = 0; i < sizeof usual_buckets / sizeof *usual_buckets; i++)
        if (i == 0 || (s->q->stack->overlaps_exchange && s->q->workload->local_steps <= 1 &&
                       usual_buckets[i] < stage_bytes &&
                       stage_bytes / usual_buckets[i] < ty_most_buckets(zero)))
            out[count++] = usual_buckets[i];
    return count;
}

bool ty_layout_allows_compression(const layout_space *s, const layout *l, ty_compression_kind kind,
                                  bool is_exchanged)
{
    const ty_pins *o = s->q->pins;
    const ty_compression c = ty_proposed_compression(o, kind);

    if (!ty_may_compress(s->q, kind))
        return false;
    if (kind == TY_COMPRESSION_NONE)
        return !ty_is_pinned(o, TY_AXIS(COMPRESSION)) || o->compression.kind == kind ||
               !is_exchanged;
    if (!is_exchanged || (l->dimensions.zero > 0 && !ty_compression_shards(&c)))
        return false;
    if (ty_is_pinned(o, TY_AXIS(COMPRESSION)))
        return kind == o->compression.kind;
    for (size_t i = 0; i < sizeof usual_compressions / sizeof *usual_compressions; i++)
        if (usual_compressions[i] == kind)
            return true;
    return false;
}
