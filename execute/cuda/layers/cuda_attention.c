/* Attention: project [queries | keys | values][features], out [features][queries], and their
 * biases. A tensor-parallel rank has some of the heads. A context-parallel rank has the queries of
 * its tokens, and all-gathers keys and values. Tensors and their order are the CPU backend's. The
 * attention between the two products stores no probabilities, so selective recomputation is always
 * on. It uses cuDNN's kernels if cuDNN has any (cuda_dnn_attention.c), else attention.cu; the stage
 * decides this when it is built. In a workload with a rotary base, queries and keys are rotated by
 * their positions before it, and their gradients rotated back (rotary.cu).
 *
 * With two inputs, queries come from the second, keys and values from the first. Projections are
 * two consecutive matrices then: [rows][queries] and [key rows][keys | values]. */
#include "cuda_stage.h"
#include "relative_buckets.h"

#include <math.h>
#include <stdio.h>

typedef struct attention {
    uint64_t rows, key_rows, features, queries;
    uint64_t key_columns; /* of keys and values */
    /* Of the projections: elements, start of keys and values, and row strides. */
    uint64_t project, key_at, own_key_stride;
    uint64_t buckets; /* of distances, or 0 */
    uint64_t rotary_base;
    bool is_of_two, has_project_bias, has_out_bias, has_norms;
    bool gathers_keys; /* keys and values of all tokens are separate then */
    cuda_attention core;
    const cuda_dnn_attention *dnn; /* NULL: attention.cu */
} attention;

typedef struct attention_state {
    int32_t *buckets;        /* of distances: [2 keys - 1], device */
    cuda_dnn_attention *dnn; /* NULL: attention.cu */
    cuda_attention asked;    /* requested from cuDNN */
    bool is_asked;           /* `asked` is set */
} attention_state;

/* Aligns keys and values that follow another matrix, as products require. */
static uint64_t aligned_elements(const ty_stage_device *stage, uint64_t count)
{
    const uint64_t several = 256 / stage->element;

    return (count + several - 1) / several * several;
}

static attention attention_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const attention_state *state = node->state;
    const uint64_t length = node->whole_output.dimensions[0], size = a[TY_HEAD_SIZE];
    const uint64_t keys =
        ty_layer_input_shape(stage->options.workload, node->layer_index, 0)->dimensions[0];
    const uint64_t heads = a[TY_HEADS] / stage_shards(stage, node);
    const uint64_t kv_heads = a[TY_KV_HEADS] / stage_shards(stage, node);
    const uint64_t queries = heads * size, key_columns = 2 * kv_heads * size;
    const uint64_t rows = stage_batch(stage) * length;
    const uint64_t key_rows = stage_batch(stage) * node->whole_input.dimensions[0];
    const bool gathers_keys = cp_size_of(&stage->options) > 1;
    const bool is_of_two = node->input_count > 1;
    const uint64_t stride = is_of_two ? queries : queries + key_columns;
    const uint64_t own_key_stride = is_of_two ? key_columns : stride;
    const uint64_t key_at = is_of_two ? aligned_elements(stage, rows * queries) : queries;
    attention at = {
        .rows = rows,
        .key_rows = key_rows,
        .features = a[TY_FEATURES],
        .queries = queries,
        .key_columns = key_columns,
        .project = is_of_two ? key_at + key_rows * key_columns : rows * stride,
        .key_at = key_at,
        .own_key_stride = own_key_stride,
        .buckets = a[TY_RELATIVE_BUCKETS],
        .rotary_base = is_of_two ? 0 : stage->options.workload->rotary_base,
        .is_of_two = is_of_two,
        .has_project_bias = a[TY_HAS_BIAS] != 0 || a[TY_HAS_QKV_BIAS] != 0,
        .has_out_bias = a[TY_HAS_BIAS] != 0,
        .has_norms = a[TY_HAS_QK_NORM] != 0,
        .gathers_keys = gathers_keys,
        .core = {.batch = stage_batch(stage),
                 .length = length,
                 .keys = keys,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_size = size,
                 .runs = cp_token_runs(&stage->options, node->layer->output.dimensions[0]),
                 .stride = stride,
                 .key_stride = gathers_keys ? key_columns : own_key_stride,
                 .key_at = gathers_keys ? 0 : key_at,
                 .value_at = (gathers_keys ? 0 : key_at) + kv_heads * size,
                 .context_stride = queries,
                 .scale = 1.0f / sqrtf((float)size),
                 .is_causal = a[TY_IS_CAUSAL] != 0,
                 .is_ordered = stage->options.is_deterministic},
        .dnn = state != NULL ? state->dnn : NULL};

    if (at.buckets > 0 && state != NULL) {
        at.core.bucket_of = state->buckets;
        at.core.buckets = at.buckets;
        at.core.biases = cuda_parameters(stage, node, ATTENTION_RELATIVE);
    }
    (void)cuda_attention_tiles(stage->own->type, stage->own->shared_bytes, &at.core);
    return at;
}

/* Normed tensors of every head: its query and its key. */
enum { NORMED = 2 };
typedef struct normed {
    uint64_t rows, columns, at, stride; /* of the projections */
    uint32_t gain;                      /* tensor */
} normed;

static normed normed_of(const attention *at, int which)
{
    return which == 0 ? (normed){at->rows, at->queries, 0, at->core.stride, ATTENTION_QUERY_GAIN}
                      : (normed){at->key_rows, at->key_columns / 2, at->key_at, at->own_key_stride,
                                 ATTENTION_KEY_GAIN};
}

/* Stash: projections, context [rows][queries], log-sums [batch][heads][length]. With norms also
 * queries and keys before them, [rows][columns] each, and statistics of each head. If backward is
 * split in two, also the gradients of the projections, of the gains, and of the biases by distance.
 * Scratch: the gradients of projections and context, the deltas, and rows of adjacent queries and
 * keys. */
typedef struct attention_memory {
    char *project, *context;
    float *rows; /* log-sums, or deltas */
    char *dproject;
    char *raw[NORMED];
    float *statistics[NORMED]; /* [rows][heads][2] */
    float *gains;              /* [NORMED][head size] */
    float *biases;             /* [buckets][heads] */
} attention_memory;

static const uint64_t piece_alignment = 256; /* bytes, as in cudaMalloc */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
}

/* Also the buffer for norms of another sequence's keys, which may have more rows. */
static uint64_t context_elements(const attention *at)
{
    const uint64_t context = at->rows * at->queries, keys = at->key_rows * at->key_columns / 2;

    return at->has_norms && keys > context ? keys : context;
}

/* @return bytes; `base` may be NULL to count */
static uint64_t memory_cut(const ty_stage_device *stage, const attention *at, void *base,
                           attention_memory *out)
{
    const uint64_t project = at->project * stage->element;
    const uint64_t rows = aligned(project + context_elements(at) * stage->element);
    const uint64_t dproject =
        aligned(rows + at->core.batch * at->core.heads * at->core.length * sizeof(float));

    uint64_t end = dproject + (stage->options.splits_backward ? project : 0);

    if (base != NULL) {
        out->project = base;
        out->context = out->project + project;
        out->rows = (float *)(void *)(out->project + rows);
        out->dproject = out->project + dproject;
    }
    for (int i = 0; i < NORMED && at->has_norms; i++) {
        const normed n = normed_of(at, i);
        const uint64_t elements = n.rows * n.columns;
        const uint64_t raw = aligned(end), statistics = aligned(raw + elements * stage->element);
        end = statistics + elements / at->core.head_size * 2 * sizeof(float);
        if (base != NULL) {
            out->raw[i] = out->project + raw;
            out->statistics[i] = (float *)(void *)(out->project + statistics);
        }
    }
    if (at->has_norms && stage->options.splits_backward) {
        const uint64_t gains = aligned(end);
        end = gains + NORMED * at->core.head_size * sizeof(float);
        if (base != NULL)
            out->gains = (float *)(void *)(out->project + gains);
    }
    if (at->buckets > 0 && stage->options.splits_backward) {
        const uint64_t biases = aligned(end);
        end = biases + at->buckets * at->core.heads * sizeof(float);
        if (base != NULL)
            out->biases = (float *)(void *)(out->project + biases);
    }
    return end;
}

/* Scratch after the gradients: sums by distance, then keys and values of entire sequences; or
 * cuDNN's workspace. */
static char *room_behind(const ty_stage_device *stage, const attention *at)
{
    return (char *)stage->scratch + aligned(memory_cut(stage, at, NULL, NULL));
}

/* Elements of the all-gathered keys and values of entire sequences. */
static uint64_t gathered_elements(const attention *at)
{
    return at->gathers_keys ? at->core.batch * at->core.keys * at->key_columns : 0;
}

/* The bucket of each distance. */
static ty_status buckets_make(ty_stage_device *stage, const stage_node *node, const attention *at,
                              ty_error *error)
{
    const uint64_t count = 2 * at->core.keys - 1;
    attention_state *state = node->state;
    int32_t *host = cuda_host_buffer(stage, count * sizeof *host);
    ty_status status = TY_OK;

    state->buckets = cuda_buffer(stage, count * sizeof *state->buckets);
    if (host == NULL || state->buckets == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the distances of %s",
                       node->layer->name);
    for (uint64_t i = 0; i < count; i++)
        host[i] = (int32_t)relative_bucket(i, at->core.keys, at->buckets, at->core.is_causal);
    CUDA_CHECK(cudaMemcpyAsync(state->buckets, host, count * sizeof *host, cudaMemcpyHostToDevice,
                               stage->own->stream),
               status, done);
    CUDA_CHECK(cudaStreamSynchronize(stage->own->stream), status, done);
done:
    return status;
}

static void attention_release(ty_stage_device *stage, stage_node *node)
{
    attention_state *state = node->state;

    (void)stage;
    if (state != NULL)
        cuda_dnn_attention_free(state->dnn);
    ty_free(state);
}

/* An earlier layer with the same request, whatever the result; or NULL. */
static const attention_state *alike_find(const ty_stage_device *stage, const stage_node *node,
                                         const cuda_attention *asked)
{
    for (const stage_node *n = stage->nodes; n < node; n++) {
        const attention_state *state = n->kind == &cuda_attention_kind ? n->state : NULL;
        if (state != NULL && state->is_asked && cuda_dnn_attention_is_alike(&state->asked, asked))
            return state;
    }
    return NULL;
}

/* Layers for which cuDNN is not used. */
static ty_status dnn_check(const ty_stage_device *stage, const attention *at, ty_error *reason)
{
    if (stage->own->attention_asked == CUDA_ATTENTION_OWN)
        return ty_fail(reason, TY_EUNSUPPORTED, CUDA_ATTENTION_SWITCH "=own");
    if (stage->own->type == CUDA_TYPE_FLOAT)
        return ty_fail(reason, TY_EUNSUPPORTED, "%s", ty_precision_name(stage->options.precision));
    if (at->buckets > 0)
        return ty_fail(reason, TY_EUNSUPPORTED, "%s", ty_attribute_name(TY_RELATIVE_BUCKETS));
    if (at->gathers_keys)
        return ty_fail(reason, TY_EUNSUPPORTED, "contexts");
    return TY_OK;
}

/* cuDNN's plans, shared by equal layers. */
static ty_status dnn_plan(ty_stage_device *stage, const stage_node *node, const attention *at,
                          ty_error *reason)
{
    attention_state *state = node->state;
    const attention_state *other = alike_find(stage, node, &at->core);
    cuda_dnn_target target = {.capability = stage->own->capability};
    ty_status status = dnn_check(stage, at, reason);

    if (status != TY_OK)
        return status;
    if (other != NULL) {
        state->dnn = cuda_dnn_attention_share(other->dnn);
        return TY_OK;
    }
    state->asked = at->core;
    state->is_asked = true;
    TY_CHECK(cuda_dnn_open(stage, reason), status, done);
    target.dnn = stage->own->dnn;
    target.handle = stage->own->dnn_handle;
    status = cuda_dnn_attention_new(&target, stage->own->type, &at->core, &state->dnn, reason);
done:
    return status;
}

/* Chooses the attention kernels; the stage notes the choice, and why it is not cuDNN. */
static ty_status dnn_choose(ty_stage_device *stage, const stage_node *node, const attention *at,
                            ty_error *error)
{
    const attention_state *state = node->state;
    ty_error reason = {0};

    if (dnn_plan(stage, node, at, &reason) == TY_ENOMEM)
        return ty_fail(error, TY_ENOMEM, "layer %s: %s", node->layer->name, reason.message);
    stage->own->attention_layers++;
    stage->own->attention_layers_of_dnn += state->dnn != NULL;
    if (state->dnn == NULL && stage->own->attention_reason[0] == '\0')
        snprintf(stage->own->attention_reason, sizeof stage->own->attention_reason, "%.*s",
                 (int)sizeof stage->own->attention_reason - 1, reason.message);
    return TY_OK;
}

static ty_status attention_check(const ty_stage_device *stage, const stage_node *node,
                                 const attention *at, ty_error *error)
{
    cuda_attention core = at->core;

    if (!cuda_attention_tiles(stage->own->type, stage->own->shared_bytes, &core))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: heads of %llu need more shared memory than the GPU's %llu bytes",
                       node->layer->name, (unsigned long long)core.head_size,
                       (unsigned long long)stage->own->shared_bytes);
    if (at->rotary_base > 0 && core.head_size % 2 != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found heads of %llu with rotary positions, expected an even size",
                       node->layer->name, (unsigned long long)core.head_size);
    if (core.heads > UINT16_MAX || core.batch > UINT16_MAX)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu heads and %llu samples, expected at most %d of each",
                       node->layer->name, (unsigned long long)core.heads,
                       (unsigned long long)core.batch, UINT16_MAX);
    if (at->is_of_two && stage_gathers(stage, node))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the cuda backend does not divide attention to another sequence "
                       "along the sequence",
                       node->layer->name);
    if (at->buckets > 0 && at->gathers_keys)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the cuda backend does not divide attention with %s among "
                       "contexts",
                       node->layer->name, ty_attribute_name(TY_RELATIVE_BUCKETS));
    return TY_OK;
}

/* Bytes of cuDNN's workspace; 0 without cuDNN. */
static uint64_t workspace_bytes(const attention *at)
{
    uint64_t forward, backward;

    if (at->dnn == NULL)
        return 0;
    forward = cuda_dnn_forward_workspace(at->dnn);
    backward = cuda_dnn_backward_workspace(at->dnn);
    return forward > backward ? forward : backward;
}

/* Number of floats for the biases' gradients by tile; 0 without biases. */
static uint64_t distance_floats(const attention *at)
{
    return at->buckets > 0 ? cuda_attention_distances(&at->core) : 0;
}

static ty_status attention_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);
    const uint64_t columns = at.queries + at.key_columns;
    const uint64_t rows = at.rows > at.key_rows ? at.rows : at.key_rows;
    attention_state *state = ty_alloc(1, sizeof *state);

    if (state == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %s", node->layer->name);
    node->state = state;
    TY_TRY(attention_check(stage, node, &at, error));
    if (at.buckets > 0)
        TY_TRY(buckets_make(stage, node, &at, error));
    TY_TRY(dnn_choose(stage, node, &at, error));
    at.dnn = state->dnn;
    node->stash_bytes = memory_cut(stage, &at, NULL, NULL);
    node->scratch_bytes = aligned(node->stash_bytes) + distance_floats(&at) * sizeof(float) +
                          gathered_elements(&at) * stage->element + workspace_bytes(&at);
    if (stage_finds_product(stage, node)) {
        node->kept_bytes = node->stash_bytes;
        node->stash_bytes = 0;
    }
    node->sum_floats = cuda_affine_sums(rows, columns > at.features ? columns : at.features);
    if (at.has_norms) {
        const uint64_t sums =
            cuda_norm_scratch(true, rows * at.queries / at.core.head_size, at.core.head_size);
        node->sum_floats = sums > node->sum_floats ? sums : node->sum_floats;
    }
    node->tp_elements = node->is_divided ? rows * at.features : 0;
    if (node->tp_elements < gathered_elements(&at))
        node->tp_elements = gathered_elements(&at);
    return TY_OK;
}

/* Rotates adjacent queries and keys, or their gradients. */
static void positions_turn(const ty_stage_device *stage, const attention *at, void *project,
                           bool is_back)
{
    if (at->rotary_base > 0)
        cuda_rotate(stage->own->type,
                    &(cuda_rotary){.batch = at->core.batch,
                                   .length = at->core.length,
                                   .heads = at->core.heads + at->core.kv_heads,
                                   .head_size = at->core.head_size,
                                   .stride = at->core.stride,
                                   .runs = at->core.runs,
                                   .log2_base = log2((double)at->rotary_base),
                                   .is_back = is_back},
                    project, stage->own->stream);
}

/* Keys and values: in this rank's projections, or, for entire sequences, in the room for
 * all-gathered tensors of a sharded layer. */
static ty_status keys_find(ty_stage_device *stage, const attention *at, const char *project,
                           const void **keys, ty_error *error)
{
    const stage_context_rows rows = {at->core.keys, at->key_columns, at->own_key_stride};

    *keys = at->gathers_keys ? stage->gather_workspace : project;
    return at->gathers_keys
               ? stage_context_gather(stage, &rows, project + at->key_at * stage->element,
                                      stage->parallel_message, stage->gather_workspace, error)
               : TY_OK;
}

/* The second projection: this rank's partial output, and its sum over ranks. */
static ty_status out_forward(ty_stage_device *stage, const stage_node *node, const attention *at,
                             const void *context, void *y, ty_error *error)
{
    void *summand = stage_summand(stage, node, false, y);
    bool has_epilogue = at->has_out_bias && !node->is_divided;
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
    if (at->has_out_bias && !has_epilogue)
        cuda_add_tp_bias(stage, at->rows, at->features,
                         cuda_parameters(stage, node, ATTENTION_OUT_BIAS), summand);
    return stage_ranks_sum(stage, node, &node->whole_output, summand, false, y, error);
}

/* Norms in the projections, through `room`, which has the context's rows. */
static void heads_norm(const ty_stage_device *stage, const stage_node *node, const attention *at,
                       const attention_memory *m, void *room)
{
    const uint64_t size = at->core.head_size;

    for (int i = 0; i < NORMED && at->has_norms; i++) {
        const normed n = normed_of(at, i);
        char *here = m->project + n.at * stage->element;

        cuda_copy_rows(stage->own->type, n.rows, n.columns, here, n.stride, false, m->raw[i],
                       n.columns, stage->own->stream);
        cuda_norm(stage->own->type, true, n.rows * n.columns / size, size, m->raw[i], NULL, NULL,
                  cuda_parameters(stage, node, n.gain), NULL, room, m->statistics[i],
                  stage->own->stream);
        cuda_copy_rows(stage->own->type, n.rows, n.columns, room, n.columns, false, here, n.stride,
                       stage->own->stream);
    }
}

/* Converts gradients of normed queries and keys, in `d`, to those of the projections. Gradients of
 * the gains go to the gradient set, or to the slot if backward is split in two. */
static void heads_norm_backward(const ty_stage_device *stage, const stage_node *node,
                                const attention *at, bool is_first, const attention_memory *m,
                                const attention_memory *d)
{
    const bool splits = stage->options.splits_backward;
    const uint64_t size = at->core.head_size;

    for (int i = 0; i < NORMED && at->has_norms; i++) {
        const normed n = normed_of(at, i);
        char *room = d->context, *here = d->project + n.at * stage->element;

        cuda_copy_rows(stage->own->type, n.rows, n.columns, here, n.stride, false, d->raw[i],
                       n.columns, stage->own->stream);
        cuda_norm_backward(stage->own->type, true, n.rows * n.columns / size, size, m->raw[i],
                           cuda_parameters(stage, node, n.gain), m->statistics[i], d->raw[i],
                           splits ? m->gains + (uint64_t)i * size
                                  : cuda_parameter_gradient(stage, node, n.gain),
                           NULL, !splits && stage_adds(node, n.gain, is_first), false, room,
                           stage->own->sums, stage->own->stream);
        cuda_copy_rows(stage->own->type, n.rows, n.columns, room, n.columns, false, here, n.stride,
                       stage->own->stream);
    }
}

/* Adds the gains' gradients from the first part of backward. */
static void gains_take(const ty_stage_device *stage, const stage_node *node, const attention *at,
                       bool is_first, const attention_memory *m)
{
    const uint64_t size = at->core.head_size;

    for (int i = 0; i < NORMED && at->has_norms && stage->options.splits_backward; i++) {
        const uint32_t gain = normed_of(at, i).gain;
        float *sums = cuda_parameter_gradient(stage, node, gain);

        if (sums != NULL)
            cuda_column_sums(CUDA_TYPE_FLOAT, 1, size, size, m->gains + (uint64_t)i * size,
                             stage_adds(node, gain, is_first), sums, stage->own->sums,
                             stage->own->stream);
    }
}

/* One product for all projections, or one per input, queries first. `out`: rows of the matrix from
 * `first` on; the same for biases. */
typedef struct input_product {
    uint32_t input;
    uint64_t rows, out, first, at; /* at: elements of the projections */
} input_product;

static uint32_t input_products(const attention *at, input_product out[2])
{
    out[0] = (input_product){0, at->rows, at->core.stride, 0, 0};
    if (!at->is_of_two)
        return 1;
    out[0].input = 1;
    out[1] = (input_product){0, at->key_rows, at->key_columns, at->queries, at->key_at};
    return 2;
}

static const void *weights_from(const ty_stage_device *stage, const stage_node *node,
                                uint32_t tensor, uint64_t elements)
{
    return (const char *)cuda_weights(stage, node, tensor) + elements * stage->element;
}

static ty_status project_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 const attention *at, const attention_memory *m, ty_error *error)
{
    input_product products[2];
    const uint32_t count = input_products(at, products);
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        const input_product *p = &products[i];
        cuda_affine in = {.rows = p->rows,
                          .in = at->features,
                          .out = p->out,
                          .x = cuda_in(stage, node, p->input, slot),
                          .weight =
                              weights_from(stage, node, ATTENTION_PROJECT, p->first * at->features),
                          .bias = at->has_project_bias
                                      ? weights_from(stage, node, ATTENTION_PROJECT_BIAS, p->first)
                                      : NULL,
                          .y = m->project + p->at * stage->element};
        if (!at->is_of_two)
            TY_CHECK(stage_whole_input(stage, node, 0, slot, stage->gather_workspace, &in.x, error),
                     status, done);
        status = cuda_affine_forward(stage, &in, error);
    }
done:
    return status;
}

static ty_status attention_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error)
{
    const attention at = attention_of(stage, node);
    attention_memory m, room;
    const void *keys;

    memory_cut(stage, &at, node->kept[slot], &m);
    memory_cut(stage, &at, stage->scratch, &room);
    TY_TRY(project_forward(stage, node, slot, &at, &m, error));
    heads_norm(stage, node, &at, &m, room.context);
    positions_turn(stage, &at, m.project, false);
    TY_TRY(keys_find(stage, &at, m.project, &keys, error));
    if (at.dnn != NULL)
        TY_TRY(cuda_dnn_attention_forward(at.dnn, m.project, keys, m.context, m.rows,
                                          room_behind(stage, &at), error));
    else
        cuda_attention_forward(stage->own->type, &at.core, m.project, keys, m.context, m.rows,
                               stage->own->stream);
    return out_forward(stage, node, &at, m.context, cuda_out(stage, node, slot), error);
}

/* Recomputes the output from the context. */
static ty_status attention_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 ty_error *error)
{
    const attention at = attention_of(stage, node);
    attention_memory m;

    memory_cut(stage, &at, node->kept[slot], &m);
    return out_forward(stage, node, &at, m.context, cuda_out(stage, node, slot), error);
}

/* Gradients of the second projection, and of the context. */
static ty_status out_backward(ty_stage_device *stage, const stage_node *node, const attention *at,
                              bool is_first, const void *context, void *dcontext, ty_error *error)
{
    float *dbias =
        at->has_out_bias ? cuda_parameter_gradient(stage, node, ATTENTION_OUT_BIAS) : NULL;
    cuda_affine_gradient out = {.rows = at->rows,
                                .in = at->queries,
                                .out = at->features,
                                .x = context,
                                .weight = cuda_weights(stage, node, ATTENTION_OUT),
                                .dweight = cuda_parameter_gradient(stage, node, ATTENTION_OUT),
                                .dbias = node->is_divided ? NULL : dbias,
                                .dx = stage->part != STAGE_WEIGHTS ? dcontext : NULL,
                                .adds_weight = stage_adds(node, ATTENTION_OUT, is_first),
                                .adds_bias = stage_adds(node, ATTENTION_OUT_BIAS, is_first)};
    ty_status status = cuda_whole_gradient(stage, node, stage->gather_workspace, &out.dy, error);

    if (status == TY_OK)
        status = cuda_affine_backward(stage, &out, error);
    if (status == TY_OK && node->is_divided && dbias != NULL)
        cuda_tp_bias_gradient(stage, at->rows, at->features, out.dy, out.adds_bias, dbias);
    return status;
}

/* Gradients of the first projection and of the inputs. With two inputs, each has some rows of the
 * matrix; ranks then sum the gradients of both instead of gathering. */
static ty_status project_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  const attention *at, bool is_first, const char *dproject,
                                  ty_error *error)
{
    float *dweight = cuda_parameter_gradient(stage, node, ATTENTION_PROJECT);
    float *dbias =
        at->has_project_bias ? cuda_parameter_gradient(stage, node, ATTENTION_PROJECT_BIAS) : NULL;
    input_product products[2];
    const uint32_t count = input_products(at, products);
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        const input_product *p = &products[i];
        cuda_affine_gradient in = {
            .rows = p->rows,
            .in = at->features,
            .out = p->out,
            .weight = weights_from(stage, node, ATTENTION_PROJECT, p->first * at->features),
            .dy = dproject + p->at * stage->element,
            .dweight = dweight != NULL ? dweight + p->first * at->features : NULL,
            .dbias = dbias != NULL ? dbias + p->first : NULL,
            .adds_weight = stage_adds(node, ATTENTION_PROJECT, is_first),
            .adds_bias = stage_adds(node, ATTENTION_PROJECT_BIAS, is_first)};
        status = cuda_input_product_backward(stage, node, p->input, slot, &in, error);
    }
    return status;
}

/* Gradients of the projections from those of the context. Gradients of other ranks' keys are sent
 * to them. */
static ty_status heads_backward(ty_stage_device *stage, const attention *at,
                                const attention_memory *m, const attention_memory *d,
                                ty_error *error)
{
    const stage_context_rows rows = {at->core.keys, at->key_columns, at->own_key_stride};
    char *const room = room_behind(stage, at);
    char *const gathered = room + distance_floats(at) * sizeof(float);
    void *dkeys = at->gathers_keys ? gathered : d->project;
    const void *keys;
    ty_status status = keys_find(stage, at, m->project, &keys, error);

    if (status != TY_OK)
        return status;
    if (at->dnn != NULL)
        status = cuda_dnn_attention_backward(at->dnn, m->project, keys, m->context, m->rows,
                                             d->context, d->rows, d->project, dkeys, room, error);
    else
        cuda_attention_backward(stage->own->type, &at->core, m->project, keys, m->context, m->rows,
                                d->context, d->rows, d->project, dkeys,
                                at->buckets > 0 ? (float *)(void *)room : NULL, stage->own->stream);
    if (at->gathers_keys)
        status = stage_context_scatter(stage, &rows, dkeys, stage->parallel_message,
                                       d->project + at->key_at * stage->element, error);
    if (status == TY_OK)
        positions_turn(stage, at, d->project, true);
    return status;
}

/* Gradients of the biases by distance, into the gradient set, or into the slot if backward is split
 * in two. */
static void biases_backward(const ty_stage_device *stage, const stage_node *node,
                            const attention *at, bool is_first, const attention_memory *m)
{
    const bool splits = stage->options.splits_backward;
    char *const room = room_behind(stage, at);
    float *biases = at->buckets == 0 ? NULL
                    : splits         ? m->biases
                                     : cuda_parameter_gradient(stage, node, ATTENTION_RELATIVE);

    if (biases != NULL)
        cuda_attention_biases(&at->core, (float *)(void *)room,
                              !splits && stage_adds(node, ATTENTION_RELATIVE, is_first), biases,
                              stage->own->stream);
}

/* Adds their gradients from the first part of backward. */
static void biases_take(const ty_stage_device *stage, const stage_node *node, const attention *at,
                        bool is_first, const attention_memory *m)
{
    const uint64_t count = at->buckets * at->core.heads;
    float *sums = at->buckets > 0 && stage->options.splits_backward
                      ? cuda_parameter_gradient(stage, node, ATTENTION_RELATIVE)
                      : NULL;

    if (sums != NULL)
        cuda_accumulate_float(CUDA_TYPE_FLOAT, count, m->biases,
                              stage_adds(node, ATTENTION_RELATIVE, is_first), sums,
                              stage->own->stream);
}

static ty_status attention_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    attention_memory m, d;

    memory_cut(stage, &at, node->kept[slot], &m);
    memory_cut(stage, &at, stage->scratch, &d);
    if (stage->options.splits_backward)
        d.project = m.dproject;
    TY_TRY(out_backward(stage, node, &at, is_first, m.context, d.context, error));
    if (stage->part != STAGE_WEIGHTS) {
        TY_TRY(heads_backward(stage, &at, &m, &d, error));
        heads_norm_backward(stage, node, &at, is_first, &m, &d);
        biases_backward(stage, node, &at, is_first, &m);
    }
    gains_take(stage, node, &at, is_first, &m);
    biases_take(stage, node, &at, is_first, &m);
    return project_backward(stage, node, slot, &at, is_first, d.project, error);
}

static ty_status attention_supports(const ty_workload *workload, uint32_t layer, ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];

    if (l->input_count == 1 || l->attributes[TY_RELATIVE_BUCKETS] == 0)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED,
                   "layer %s: the cuda backend does not train attention to another sequence with "
                   "%s",
                   l->name, ty_attribute_name(TY_RELATIVE_BUCKETS));
}

const stage_kind cuda_attention_kind = {
    .supports = attention_supports,
    .floats = STAGE_BIT(ATTENTION_OUT_BIAS) | STAGE_BIT(ATTENTION_QUERY_GAIN) |
              STAGE_BIT(ATTENTION_KEY_GAIN) | STAGE_BIT(ATTENTION_RELATIVE),
    .build = attention_build,
    .forward = attention_forward,
    .again = attention_again,
    .backward = attention_backward,
    .release = attention_release};
