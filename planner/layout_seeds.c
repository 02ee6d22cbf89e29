/* Where to look first for a transformer on a cluster of equal hosts: the best layouts by the closed
 * form of ty_layout.h, which sees the whole space. */
#include "candidate.h"

#define LAYOUTS_ASKED 200 /* of which most differ only in buckets and overlap */
/* From so many tokens on context parallelism is looked at: Llama 3 was trained without it at 8,192
 * tokens and with 16 context lanes at 131,072 (Dubey et al. 2024, table 4). */
#define LONG_SEQUENCE 16384

static bool is_accelerator(const search_question *q)
{
    return ty_cluster_device_type(q->cluster, 0)->core_share <= 0;
}

/* Whether the question leaves open what layouts would decide. */
static bool is_open(const search_question *q)
{
    const ty_plan_options *o = q->options;

    return !o->fix_dimensions && !o->fix_schedule && o->replicas == NULL &&
           o->pipeline_stages == 0 && o->micro_batch_size == 0;
}

static bool is_long(const search_question *q)
{
    return q->workload->tokens_per_sample >= LONG_SEQUENCE;
}

static ty_layout_options layout_options(const search_question *q, const ty_layout_shape *shape,
                                        layout_seed_space space)
{
    ty_layout_options options = ty_layout_options_default();
    const bool is_half = q->workload->element_bytes < 4;

    options.context = space != TY_SEEDS_PLAIN && is_long(q) ? 0 : 1;
    options.expert = space != TY_SEEDS_PLAIN && shape->experts > 0 ? 0 : 1;
    options.schedules = 1u << TY_LAYOUT_1F1B;
    options.precisions = 1u << (is_half ? TY_LAYOUT_HALF : TY_LAYOUT_FP32);
    options.zeros = q->options->staleness > 0 ? 1u << 0 : 1u << 0 | 1u << 1 | 1u << 3;
    options.compressions = 1u << TY_COMPRESSION_NONE;
    options.overlap_tensor = 1u << 0;
    options.top = LAYOUTS_ASKED;
    options.should_stop = q->options->should_stop;
    options.stop_context = q->options->stop_context;
    return options;
}

static ty_recompute recompute_of(ty_layout_recompute recompute)
{
    static const ty_recompute same[TY_LAYOUT_RECOMPUTE_COUNT] = {
        [TY_LAYOUT_KEEP_ALL] = TY_RECOMPUTE_NONE,
        [TY_LAYOUT_SELECTIVE] = TY_RECOMPUTE_SELECTIVE,
        [TY_LAYOUT_FULL] = TY_RECOMPUTE_FULL,
    };
    return same[recompute];
}

/* There a data parallel rank is a device of each expert group, here a lane. */
static layout_seed seed_of(const ty_layout *l)
{
    return (layout_seed){
        .dimensions = {.tensor_parallel = l->tensor,
                       .context_parallel = l->context,
                       .expert_parallel = l->expert,
                       .sequence_parallel = l->sequence_parallel && l->tensor > 1,
                       .zero = l->data * l->context > 1 ? l->zero : 0,
                       .interleave = l->interleave > 1 ? l->interleave : 0,
                       .recompute = recompute_of(l->recompute),
                       .recompute_blocks = l->recompute == TY_LAYOUT_FULL},
        .positions = l->pipeline,
        .replicas = l->data / l->expert,
        .micro_batch_size = l->micro_batch * l->expert,
    };
}

bool ty_layout_seed_equals(const layout_seed *a, const layout_seed *b)
{
    return a->positions == b->positions && a->replicas == b->replicas &&
           a->micro_batch_size == b->micro_batch_size &&
           ty_dimensions_equal(&a->dimensions, &b->dimensions);
}

static uint32_t add_seed(layout_seed seeds[TY_MOST_LAYOUT_SEEDS], uint32_t count,
                         const search_question *q, const ty_layout *layout)
{
    const layout_seed seed = seed_of(layout);
    const uint32_t stages = layout->pipeline * layout->interleave;

    /* Expert lanes of a replica have samples of their own: none are shared with context lanes. */
    if (layout->data % layout->expert != 0 ||
        ty_tensor_check(q->workload, seed.dimensions.tensor_parallel,
                        ty_dimensions_sequence_parts(&seed.dimensions), NULL) != TY_OK ||
        ty_context_check(q->workload, layout->context, NULL) != TY_OK)
        return count;
    if (count == TY_MOST_LAYOUT_SEEDS || stages > TY_MAX_STAGES || stages > q->all_cut_count + 1)
        return count;
    for (uint32_t i = 0; i < count; i++)
        if (ty_layout_seed_equals(&seeds[i], &seed))
            return count;
    seeds[count] = seed;
    return count + 1;
}

/* Evenly over the front: its first ones are much like the best. */
static uint32_t add_front(layout_seed seeds[TY_MOST_LAYOUT_SEEDS], const search_question *q,
                          const ty_layout_answer *answer)
{
    const uint64_t last = answer->front_count > 0 ? answer->front_count - 1 : 0;
    uint32_t count = 0;

    for (uint64_t i = 0; answer->front_count > 0 && i < TY_MOST_LAYOUT_SEEDS; i++)
        count =
            add_seed(seeds, count, q, &answer->front[i * last / (TY_MOST_LAYOUT_SEEDS - 1)].layout);
    return count;
}

uint32_t ty_layout_seeds(const search_question *q, layout_seed_space space,
                         layout_seed seeds[TY_MOST_LAYOUT_SEEDS])
{
    ty_layout_question question;
    ty_layout_options options;
    ty_layout_answer *answer = NULL;
    uint32_t count = 0;

    if (q->device_count < 2 || !is_open(q) || !is_accelerator(q) ||
        q->workload->learning != TY_LEARNING_GRADIENT ||
        ty_layout_question_of(q->workload, q->cluster, q->global_batch, &question, NULL) != TY_OK ||
        (space == TY_SEEDS_ALL && question.shape.experts == 0 && !is_long(q)))
        return 0;
    options = layout_options(q, &question.shape, space);
    if (ty_layout_search(&question, &options, &answer, NULL) != TY_OK)
        return 0;
    if (space == TY_SEEDS_FRONT)
        count = add_front(seeds, q, answer);
    for (uint32_t i = 0; space != TY_SEEDS_FRONT && i < answer->best_count; i++)
        count = add_seed(seeds, count, q, &answer->best[i].layout);
    ty_layout_answer_free(answer);
    return count;
}
