/* Attention: project [queries | keys | values][features], out [features][queries], and their
 * biases. Of the heads a tensor lane has some; a context lane has the queries of its tokens, and
 * gathers the keys and values of all. Tensors and their order are the CPU backend's; what lies
 * between the two products is one kernel that keeps no probabilities (attention.cu), so that
 * selective recomputing is what it always does. In a workload with a rotary base queries and keys
 * are turned by their positions before it, and their gradients back (rotary.cu). */
#include "cuda_stage.h"

#include <math.h>

typedef struct attention {
    uint64_t rows, features, queries, project;
    uint64_t key_columns; /* of keys and values */
    bool has_bias;
    bool gathers_keys; /* which then lie alone, those of all tokens */
    cuda_attention core;
} attention;

static attention attention_of(const ty_stage_device *stage, const cuda_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t length = node->whole_output.dimensions[0], size = a[TY_HEAD_SIZE];
    const uint64_t keys = node->layer->output.dimensions[0];
    const uint64_t heads = a[TY_HEADS] / cuda_lanes_of(stage, node);
    const uint64_t kv_heads = a[TY_KV_HEADS] / cuda_lanes_of(stage, node);
    const uint64_t queries = heads * size, key_columns = 2 * kv_heads * size;
    const bool gathers_keys = lane_context_count(&stage->options) > 1;
    const uint64_t key_at = gathers_keys ? 0 : queries;
    attention at = {.rows = cuda_batch(stage) * length,
                    .features = a[TY_FEATURES],
                    .queries = queries,
                    .project = queries + key_columns,
                    .key_columns = key_columns,
                    .has_bias = a[TY_HAS_BIAS] != 0,
                    .gathers_keys = gathers_keys,
                    .core = {.batch = cuda_batch(stage),
                             .length = length,
                             .keys = keys,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .head_size = size,
                             .runs = lane_token_runs(&stage->options, keys),
                             .stride = queries + key_columns,
                             .key_stride = gathers_keys ? key_columns : queries + key_columns,
                             .key_at = key_at,
                             .value_at = key_at + kv_heads * size,
                             .context_stride = queries,
                             .scale = 1.0f / sqrtf((float)size),
                             .is_causal = a[TY_IS_CAUSAL] != 0}};

    (void)cuda_attention_tiles(stage->type, stage->shared_bytes, &at.core);
    return at;
}

/* Pieces of a stash: projections [rows][project], context [rows][queries], log-sums
 * [batch][heads][length]; where backward comes in two parts also the gradient of the projections.
 * Of scratch: the gradients of the first two, and the deltas. */
typedef struct attention_memory {
    char *project, *context;
    float *rows; /* log-sums, or deltas */
    char *dproject;
} attention_memory;

static const uint64_t piece_alignment = 256; /* bytes; as cudaMalloc gives */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
}

/* @return bytes; `base` may be NULL to count */
static uint64_t memory_cut(const ty_stage_device *stage, const attention *at, void *base,
                           attention_memory *out)
{
    const uint64_t project = at->rows * at->project * stage->element;
    const uint64_t rows = aligned(project + at->rows * at->queries * stage->element);
    const uint64_t dproject =
        aligned(rows + at->core.batch * at->core.heads * at->core.length * sizeof(float));

    if (base != NULL) {
        out->project = base;
        out->context = out->project + project;
        out->rows = (float *)(void *)(out->project + rows);
        out->dproject = out->project + dproject;
    }
    return dproject + (stage->options.splits_backward ? project : 0);
}

/* Elements of the keys and values of whole sequences, where they are gathered. */
static uint64_t gathered_elements(const attention *at)
{
    return at->gathers_keys ? at->core.batch * at->core.keys * at->key_columns : 0;
}

static ty_status attention_build(ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);

    if (!cuda_attention_tiles(stage->type, stage->shared_bytes, &at.core))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: heads of %llu need more shared memory than the GPU's %llu bytes",
                       node->layer->name, (unsigned long long)at.core.head_size,
                       (unsigned long long)stage->shared_bytes);
    if (stage->options.workload->rotary_base > 0 && at.core.head_size % 2 != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found heads of %llu with rotary positions, expected an even size",
                       node->layer->name, (unsigned long long)at.core.head_size);
    if (at.core.heads > UINT16_MAX || at.core.batch > UINT16_MAX)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu heads and %llu samples, expected at most %d of each",
                       node->layer->name, (unsigned long long)at.core.heads,
                       (unsigned long long)at.core.batch, UINT16_MAX);
    node->stash_bytes = memory_cut(stage, &at, NULL, NULL);
    node->scratch_bytes = aligned(node->stash_bytes) + gathered_elements(&at) * stage->element;
    if (cuda_finds_product(stage, node)) {
        node->kept_bytes = node->stash_bytes;
        node->stash_bytes = 0;
    }
    node->sum_floats =
        cuda_affine_sums(at.rows, at.project > at.features ? at.project : at.features);
    node->lane_elements = node->is_divided ? at.rows * at.features : 0;
    if (node->lane_elements < gathered_elements(&at))
        node->lane_elements = gathered_elements(&at);
    return TY_OK;
}

/* Queries and keys, which lie side by side, or their gradients. */
static void positions_turn(const ty_stage_device *stage, const attention *at, void *project,
                           bool is_back)
{
    const uint64_t base = stage->options.workload->rotary_base;

    if (base > 0)
        cuda_rotate(stage->type,
                    &(cuda_rotary){.batch = at->core.batch,
                                   .length = at->core.length,
                                   .heads = at->core.heads + at->core.kv_heads,
                                   .head_size = at->core.head_size,
                                   .stride = at->core.stride,
                                   .runs = at->core.runs,
                                   .log2_base = log2((double)base),
                                   .is_back = is_back},
                    project, stage->stream);
}

/* Keys and values: in this lane's projections, or, of whole sequences, where else a divided layer's
 * tensors are gathered. */
static ty_status keys_find(ty_stage_device *stage, const attention *at, const char *project,
                           const void **keys, ty_error *error)
{
    const cuda_context_rows rows = {at->core.keys, at->key_columns, at->project};

    *keys = at->gathers_keys ? stage->lane_whole : project;
    return at->gathers_keys
               ? cuda_context_gather(stage, &rows, project + at->queries * stage->element,
                                     stage->lane_whole, error)
               : TY_OK;
}

/* The second projection: this lane's summand of the output, and the sum. */
static ty_status out_forward(ty_stage_device *stage, const cuda_node *node, const attention *at,
                             const void *context, void *y, ty_error *error)
{
    void *summand = cuda_summand(stage, node, false, y);
    bool has_epilogue = at->has_bias && !node->is_divided;
    cuda_affine out = {.rows = at->rows,
                       .in = at->queries,
                       .out = at->features,
                       .x = context,
                       .weight = cuda_weights(stage, node, ATTENTION_OUT),
                       .bias = has_epilogue ? cuda_weights(stage, node, ATTENTION_OUT_BIAS) : NULL,
                       .y = summand};
    ty_status status = cuda_affine_forward(stage, &out, error);

    if (status != TY_OK)
        return status;
    if (at->has_bias && !has_epilogue)
        cuda_add_lane_bias(stage, at->rows, at->features,
                           cuda_parameters(stage, node, ATTENTION_OUT_BIAS), summand);
    return cuda_lanes_sum(stage, node, &node->whole_output, summand, false, y, error);
}

static ty_status attention_forward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                   ty_error *error)
{
    attention at = attention_of(stage, node);
    attention_memory m;
    const void *keys;
    cuda_affine in = {.rows = at.rows,
                      .in = at.features,
                      .out = at.project,
                      .weight = cuda_weights(stage, node, ATTENTION_PROJECT),
                      .bias =
                          at.has_bias ? cuda_weights(stage, node, ATTENTION_PROJECT_BIAS) : NULL};
    ty_status status;

    memory_cut(stage, &at, node->kept[slot], &m);
    in.y = m.project;
    TY_CHECK(cuda_whole_input(stage, node, slot, stage->lane_whole, &in.x, error), status, done);
    TY_CHECK(cuda_affine_forward(stage, &in, error), status, done);
    positions_turn(stage, &at, m.project, false);
    TY_CHECK(keys_find(stage, &at, m.project, &keys, error), status, done);
    cuda_attention_forward(stage->type, &at.core, m.project, keys, m.context, m.rows,
                           stage->stream);
    status = out_forward(stage, node, &at, m.context, cuda_out(stage, node, slot), error);
done:
    return status;
}

/* The output of what the heads have summed. */
static ty_status attention_again(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                 ty_error *error)
{
    const attention at = attention_of(stage, node);
    attention_memory m;

    memory_cut(stage, &at, node->kept[slot], &m);
    return out_forward(stage, node, &at, m.context, cuda_out(stage, node, slot), error);
}

/* Gradients of the second projection, and of the context. */
static ty_status out_backward(ty_stage_device *stage, const cuda_node *node, const attention *at,
                              bool is_first, const void *context, void *dcontext, ty_error *error)
{
    float *dbias = at->has_bias ? cuda_parameter_gradient(stage, node, ATTENTION_OUT_BIAS) : NULL;
    cuda_affine_gradient out = {.rows = at->rows,
                                .in = at->queries,
                                .out = at->features,
                                .x = context,
                                .weight = cuda_weights(stage, node, ATTENTION_OUT),
                                .dweight = cuda_parameter_gradient(stage, node, ATTENTION_OUT),
                                .dbias = node->is_divided ? NULL : dbias,
                                .dx = stage->part != CUDA_WEIGHTS ? dcontext : NULL,
                                .adds_weight = cuda_adds(node, ATTENTION_OUT, is_first),
                                .adds_bias = cuda_adds(node, ATTENTION_OUT_BIAS, is_first)};
    ty_status status = cuda_whole_gradient(stage, node, stage->lane_whole, &out.dy, error);

    if (status == TY_OK)
        status = cuda_affine_backward(stage, &out, error);
    if (status == TY_OK && node->is_divided && dbias != NULL)
        cuda_lane_bias_gradient(stage, at->rows, at->features, out.dy, out.adds_bias, dbias);
    return status;
}

/* Gradients of the first projection and of the input. */
static ty_status project_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                  const attention *at, bool is_first, const void *dproject,
                                  ty_error *error)
{
    cuda_affine_gradient in = {
        .rows = at->rows,
        .in = at->features,
        .out = at->project,
        .weight = cuda_weights(stage, node, ATTENTION_PROJECT),
        .dy = dproject,
        .dweight = cuda_parameter_gradient(stage, node, ATTENTION_PROJECT),
        .dbias = at->has_bias ? cuda_parameter_gradient(stage, node, ATTENTION_PROJECT_BIAS) : NULL,
        .adds_weight = cuda_adds(node, ATTENTION_PROJECT, is_first),
        .adds_bias = cuda_adds(node, ATTENTION_PROJECT_BIAS, is_first)};

    return cuda_input_product_backward(stage, node, slot, &in, error);
}

/* Gradients of the projections from those of the context. What this lane's queries make of keys
 * elsewhere goes there. */
static ty_status heads_backward(ty_stage_device *stage, const attention *at,
                                const attention_memory *m, const attention_memory *d,
                                ty_error *error)
{
    const cuda_context_rows rows = {at->core.keys, at->key_columns, at->project};
    char *gathered = (char *)stage->scratch + aligned(memory_cut(stage, at, NULL, NULL));
    void *dkeys = at->gathers_keys ? gathered : d->project;
    const void *keys;
    ty_status status = keys_find(stage, at, m->project, &keys, error);

    if (status != TY_OK)
        return status;
    cuda_attention_backward(stage->type, &at->core, m->project, keys, m->context, m->rows,
                            d->context, d->rows, d->project, dkeys, stage->stream);
    if (at->gathers_keys)
        status = cuda_context_scatter(stage, &rows, dkeys,
                                      d->project + at->queries * stage->element, error);
    if (status == TY_OK)
        positions_turn(stage, at, d->project, true);
    return status;
}

static ty_status attention_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    attention_memory m, d;
    ty_status status;

    memory_cut(stage, &at, node->kept[slot], &m);
    memory_cut(stage, &at, stage->scratch, &d);
    if (stage->options.splits_backward)
        d.project = m.dproject;
    TY_CHECK(out_backward(stage, node, &at, is_first, m.context, d.context, error), status, done);
    if (stage->part != CUDA_WEIGHTS)
        TY_CHECK(heads_backward(stage, &at, &m, &d, error), status, done);
    status = project_backward(stage, node, slot, &at, is_first, d.project, error);
done:
    return status;
}

const cuda_kind cuda_attention_kind = {.build = attention_build,
                                       .forward = attention_forward,
                                       .again = attention_again,
                                       .backward = attention_backward};
