/*
 * Multi-head attention (Vaswani et al., 2017), optionally with fewer key and value heads than query
 * heads (Ainslie et al., "GQA", 2023). Probabilities are stored for backward: at the sequence
 * lengths of CPU training, that is cheaper than recomputing them. Selective recomputation does not
 * store them (Korthikanti et al., 2022, section 4.1), nor does recomputation by operator, which
 * stores all else and recomputes the output. A tensor-parallel rank has some of the heads, with
 * their rows of the first projection and columns of the second. A context-parallel rank has the
 * queries of its tokens, and gathers the keys and values of all.
 *
 * If there are two inputs, queries come from the second, keys and values from the first. There are
 * three options: rms norms of every head's queries and keys (Henry et al., "Query-key
 * normalization", 2020, in the form of Qwen3, 2025); biases of the scores by distance
 * (cpu_relative.c); and rotary position embeddings of queries and keys (cpu_rotary.c). The last
 * come after the norms, if the workload has a rotary base.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

/* Query rows that are multiplied with keys at once; under a causal mask later keys are skipped. */
#define QUERY_BLOCK 64

typedef struct attention {
    uint64_t batch, length, rows; /* of queries: rows = batch * length */
    uint64_t keys;                /* of an unsharded sequence */
    uint64_t key_rows;            /* of this rank's tokens, in all samples */
    token_runs runs;              /* positions of the queries in their sequence */
    uint64_t features, heads, kv_heads, head_size;
    uint64_t queries;     /* columns of queries: heads * head size */
    uint64_t key_columns; /* of keys and values */
    /* Projections: of queries and, from key_at on, of keys and values. With one input they are rows
     * of one matrix. */
    uint64_t project, key_at, query_stride, own_key_stride;
    uint64_t key_stride; /* from row to row of keys; gathered ones have only key columns */
    uint64_t buckets;    /* of distances, or 0 */
    bool gathers_keys, is_of_two, has_norms;
    bool is_causal, has_project_bias, has_out_bias;
    bool is_selective; /* probabilities are recomputed for backward */
    float scale;
    uint64_t rotary_base; /* 0: queries and keys are not rotated */
} attention;

/* Columns and offsets of the projections. */
static void attention_divide(const ty_stage_device *stage, attention *at)
{
    at->queries = at->heads * at->head_size;
    at->key_columns = 2 * at->kv_heads * at->head_size;
    at->project = at->rows * at->queries + at->key_rows * at->key_columns;
    at->query_stride = at->is_of_two ? at->queries : at->queries + at->key_columns;
    at->own_key_stride = at->is_of_two ? at->key_columns : at->query_stride;
    at->key_at = at->is_of_two ? at->rows * at->queries : at->queries;
    at->gathers_keys = cp_size_of(&stage->options) > 1;
    at->key_stride = at->gathers_keys ? at->key_columns : at->own_key_stride;
}

static attention attention_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint32_t ranks = tp_size_of(&stage->options);
    attention at = {
        .batch = stage_batch(stage),
        .length = node->whole_output.dimensions[0],
        .rows = stage_batch(stage) * node->whole_output.dimensions[0],
        .keys = ty_layer_input_shape(stage->options.workload, node->layer_index, 0)->dimensions[0],
        .key_rows = stage_batch(stage) * node->whole_input.dimensions[0],
        .runs = cp_token_runs(&stage->options, node->layer->output.dimensions[0]),
        .features = a[TY_FEATURES],
        .heads = a[TY_HEADS] / ranks,
        .kv_heads = a[TY_KV_HEADS] / ranks,
        .head_size = a[TY_HEAD_SIZE],
        .buckets = a[TY_RELATIVE_BUCKETS],
        .is_of_two = node->input_count > 1,
        .has_norms = a[TY_HAS_QK_NORM] != 0,
        .is_causal = a[TY_IS_CAUSAL] != 0,
        .has_project_bias = a[TY_HAS_BIAS] != 0 || a[TY_HAS_QKV_BIAS] != 0,
        .has_out_bias = a[TY_HAS_BIAS] != 0,
        .is_selective = stage->options.recompute == TY_RECOMPUTE_SELECTIVE ||
                        stage->options.recompute == TY_RECOMPUTE_OPERATOR,
        .scale = 1.0f / sqrtf((float)a[TY_HEAD_SIZE]),
        .rotary_base = node->input_count > 1 ? 0 : stage->options.workload->rotary_base,
    };

    attention_divide(stage, &at);
    return at;
}

/* Consecutive ranges of floats; NULL for empty ones. */
typedef struct piece {
    float **at;
    uint64_t count;
} piece;

/* @return their floats; `from` may be NULL to count */
static uint64_t pieces_cut(const piece *pieces, size_t count, float *from)
{
    uint64_t used = 0;

    for (size_t i = 0; i < count; i++) {
        *pieces[i].at = from != NULL && pieces[i].count > 0 ? from + used : NULL;
        used += pieces[i].count;
    }
    return used;
}

/* Gradients that the second part of backward needs: in the stash if there is one, else scratch. */
typedef struct inner_gradients {
    float *project;  /* as the projections */
    float *gains;    /* [2][head size], of queries and of keys */
    float *relative; /* [buckets][heads] */
} inner_gradients;

enum { INNER_GRADIENTS = 3 };

static void inner_pieces(const attention *at, bool is_here, inner_gradients *out, piece *pieces)
{
    pieces[0] = (piece){&out->project, is_here ? at->project : 0};
    pieces[1] = (piece){&out->gains, is_here && at->has_norms ? 2 * at->head_size : 0};
    pieces[2] = (piece){&out->relative, is_here ? at->buckets * at->heads : 0};
}

/* Stash of a slot. If backward has two parts, it includes the gradients of the projections, which
 * else are scratch; with sequence parallelism also the gathered input and gradient of the output.
 */
typedef struct kept {
    float *project;
    float *probabilities; /* [batch][heads][length][keys] */
    float *context;       /* [rows][queries] */
    /* Queries and keys before their norms, and 1 / root mean square of each head's. */
    float *raw_queries, *raw_keys, *query_scales, *key_scales;
    inner_gradients inner;
    float *x[2], *dy; /* [rows or key rows][features], or NULL */
} kept;

static uint64_t probability_count(const attention *at)
{
    return at->is_selective ? 0 : at->batch * at->heads * at->length * at->keys;
}

/* Cuts a slot's stash. @return floats of it; `stash` may be NULL to count */
static uint64_t kept_cut(const ty_stage_device *stage, const stage_node *node, const attention *at,
                         float *stash, kept *out)
{
    const bool splits = stage->options.splits_backward;
    const uint64_t whole = splits && stage_gathers(stage, node) ? at->features : 0;
    const uint64_t normed = at->has_norms ? at->rows * at->heads : 0;
    const uint64_t normed_keys = at->has_norms ? at->key_rows * at->kv_heads : 0;
    piece pieces[INNER_GRADIENTS + 10] = {
        {&out->project, at->project},
        {&out->probabilities, probability_count(at)},
        {&out->context, at->rows * at->queries},
        {&out->raw_queries, normed * at->head_size},
        {&out->raw_keys, normed_keys * at->head_size},
        {&out->query_scales, normed},
        {&out->key_scales, normed_keys},
        /* x[0] is the input of the first product, which has the queries. */
        {&out->x[0], whole * at->rows},
        {&out->x[1], at->is_of_two ? whole * at->key_rows : 0},
        {&out->dy, whole * at->rows},
    };

    inner_pieces(at, splits, &out->inner, pieces + 10);
    return pieces_cut(pieces, sizeof pieces / sizeof pieces[0], stash);
}

/* Scratch of a call. */
typedef struct room {
    float *dcontext; /* [rows][queries] */
    float *dp;       /* [length][keys] */
    inner_gradients inner;
    float *probabilities; /* [length][keys] of any head, if they are not stored; or NULL */
    /* With context parallelism, [batch][keys][key columns] each; or NULL. */
    float *all_keys, *all_dkeys, *pieces;
    float *by_distance, *dby_distance; /* [2 keys - 1] biases of one head, or NULL */
    float *turns;                      /* [head size] of one position, or NULL */
} room;

/* Cuts the scratch. @return floats of it; `scratch` may be NULL to count */
static uint64_t room_cut(const attention *at, float *scratch, room *out)
{
    const uint64_t gathered = at->gathers_keys ? at->batch * at->keys * at->key_columns : 0;
    const uint64_t distances = at->buckets > 0 ? 2 * at->keys - 1 : 0;
    piece pieces[INNER_GRADIENTS + 9] = {
        {&out->dcontext, at->rows * at->queries},
        {&out->dp, at->length * at->keys},
        {&out->probabilities, at->is_selective ? at->length * at->keys : 0},
        {&out->all_keys, gathered},
        {&out->all_dkeys, gathered},
        {&out->pieces, gathered},
        {&out->by_distance, distances},
        {&out->dby_distance, distances},
        {&out->turns, at->rotary_base > 0 ? at->head_size : 0},
    };

    inner_pieces(at, true, &out->inner, pieces + 9);
    return pieces_cut(pieces, sizeof pieces / sizeof pieces[0], scratch);
}

/* Probabilities of one head of one sample: in the stash, or the scratch for any head. */
static float *probabilities_at(const attention *at, const room *own, float *all, uint64_t b,
                               uint64_t h)
{
    return own->probabilities != NULL ? own->probabilities
                                      : all + (b * at->heads + h) * at->length * at->keys;
}

static ty_status attention_supports(const ty_workload *workload, uint32_t layer, ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];

    if (l->input_count > 1 && l->attributes[TY_RELATIVE_BUCKETS] > 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the cpu backend does not train attention to another sequence "
                       "with relative_buckets",
                       l->name);
    if (l->input_count < 2 && workload->rotary_base > 0 && l->attributes[TY_HEAD_SIZE] % 2 != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found heads of %llu with rotary positions, expected an even size",
                       l->name, (unsigned long long)l->attributes[TY_HEAD_SIZE]);
    return TY_OK;
}

static ty_status attention_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);
    kept none;
    room nowhere;

    (void)error;
    node->stash_bytes = kept_cut(stage, node, &at, NULL, &none) * sizeof(float);
    if (stage->segments.again[node->layer_index].what == TY_AGAIN_SECOND) {
        node->kept_bytes = node->stash_bytes;
        node->stash_bytes = 0;
    }
    node->scratch_bytes = room_cut(&at, NULL, &nowhere) * sizeof(float);
    node->tp_elements =
        node->is_divided ? (at.rows > at.key_rows ? at.rows : at.key_rows) * at.features : 0;
    return TY_OK;
}

CPU_CLONES void cpu_softmax_rows(uint64_t rows, uint64_t keys, uint64_t stride, bool is_causal,
                                 uint64_t visible, float *scores)
{
    for (uint64_t r = 0; r < rows; r++, scores += stride) {
        uint64_t n = is_causal ? visible + r : keys;
        float maximum = scores[0], sum = 0.0f, scale;
#pragma omp simd reduction(max : maximum)
        for (uint64_t i = 0; i < n; i++)
            maximum = scores[i] > maximum ? scores[i] : maximum;
#pragma omp simd reduction(+ : sum)
        for (uint64_t i = 0; i < n; i++) {
            scores[i] = cpu_exp(scores[i] - maximum);
            sum += scores[i];
        }
        scale = 1.0f / sum;
        for (uint64_t i = 0; i < n; i++)
            scores[i] *= scale;
        memset(scores + n, 0, (keys - n) * sizeof *scores);
    }
}

CPU_CLONES void cpu_softmax_gradient(uint64_t rows, uint64_t keys, uint64_t stride, const float *p,
                                     float *dp)
{
    for (uint64_t r = 0; r < rows; r++, p += stride, dp += stride) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (uint64_t i = 0; i < keys; i++)
            sum += p[i] * dp[i];
        for (uint64_t i = 0; i < keys; i++)
            dp[i] = p[i] * (dp[i] - sum);
    }
}

/* Queries [first, first + rows) of this rank, of one run, and the number of keys that the first and
 * the last of them may see. */
typedef struct query_block {
    uint64_t first, rows, visible, keys;
} query_block;

/* The block of a query. */
static query_block block_of(const attention *at, uint64_t query)
{
    const uint64_t run = at->runs.length, within = query % run / QUERY_BLOCK * QUERY_BLOCK;
    const uint64_t rows = within + QUERY_BLOCK < run ? QUERY_BLOCK : run - within;
    const uint64_t first = query / run * run + within, place = token_place(&at->runs, first);

    return (query_block){first, rows, place + 1, at->is_causal ? place + rows : at->keys};
}

/* Biases by distance, or their gradients, of a row of this block's scores. */
static float *distances_of(const attention *at, const query_block *block, uint64_t row,
                           float *by_distance)
{
    return by_distance + at->keys - block->visible - row;
}

static void scores_bias(const attention *at, const query_block *block, float *by_distance,
                        float *scores)
{
    for (uint64_t r = 0; r < block->rows && by_distance != NULL; r++)
        cpu_accumulate(block->keys, distances_of(at, block, r, by_distance), true,
                       scores + r * at->keys);
}

static void scores_bias_gradient(const attention *at, const query_block *block,
                                 const float *dscores, float *dby_distance)
{
    for (uint64_t r = 0; r < block->rows && dby_distance != NULL; r++)
        cpu_accumulate(block->keys, dscores + r * at->keys, true,
                       distances_of(at, block, r, dby_distance));
}

/* Pointers to the columns of one head of one sample in the projections, or in their gradients, with
 * the projections' strides; and the head's biases by distance, or NULL. */
typedef struct head {
    float *q, *k, *v, *by_distance;
} head;

/* `keys`: columns of the projections, or gathered keys. */
static head head_at(const attention *at, float *project, float *keys, float *by_distance,
                    uint64_t b, uint64_t h)
{
    const uint64_t shared = at->heads / at->kv_heads;
    float *k = keys + b * at->keys * at->key_stride + h / shared * at->head_size;

    return (head){project + b * at->length * at->query_stride + h * at->head_size, k,
                  k + at->kv_heads * at->head_size, by_distance};
}

/* Without `context` it computes only probabilities. */
static void head_forward(const attention *at, const head *x, float *p, float *context)
{
    query_block block;

    for (uint64_t query = 0; query < at->length; query += block.rows) {
        float *scores = p + query * at->keys;
        block = block_of(at, query);
        cpu_gemm(false, true, block.rows, block.keys, at->head_size, at->scale,
                 x->q + query * at->query_stride, at->query_stride, x->k, at->key_stride, 0.0f,
                 scores, at->keys);
        scores_bias(at, &block, x->by_distance, scores);
        cpu_softmax_rows(block.rows, block.keys, at->keys, at->is_causal, block.visible, scores);
        if (context != NULL)
            cpu_gemm(false, false, block.rows, at->head_size, block.keys, 1.0f, scores, at->keys,
                     x->v, at->key_stride, 0.0f, context + query * at->queries, at->queries);
    }
}

/* Keys and values: this rank's columns of the projections, or those of all context-parallel ranks.
 */
static ty_status keys_find(ty_stage_device *stage, const attention *at, const room *own,
                           float *project, float **keys, ty_error *error)
{
    const stage_context_rows rows = {at->keys, at->key_columns, at->own_key_stride};

    *keys = at->gathers_keys ? own->all_keys : project + at->key_at;
    return at->gathers_keys ? stage_context_gather(stage, &rows, project + at->key_at, own->pieces,
                                                   own->all_keys, error)
                            : TY_OK;
}

/* Expands one head's biases by distance into the scratch for any head. */
static void distances_spread(const ty_stage_device *stage, const stage_node *node,
                             const attention *at, const room *own, uint64_t h)
{
    if (at->buckets > 0)
        cpu_relative_spread(at->keys, at->buckets, at->heads, h, at->is_causal,
                            cpu_parameters(stage, node, ATTENTION_RELATIVE), own->by_distance);
}

/* ---- Norms of heads ---- */

/* Rows of the projections with a norm for every head. */
typedef struct normed {
    uint64_t rows, heads, stride;
    uint32_t gain;       /* tensor */
    float *at;           /* in the projections, or their gradient */
    float *raw, *scales; /* in the stash */
    float *dgain;
} normed;

/* Norms of queries and of keys. */
static void normed_find(const attention *at, const kept *keep, float *project, float *dgains,
                        normed out[2])
{
    out[0] = (normed){at->rows, at->heads,         at->query_stride,   ATTENTION_QUERY_GAIN,
                      project,  keep->raw_queries, keep->query_scales, dgains};
    out[1] = (normed){at->key_rows,         at->kv_heads,
                      at->own_key_stride,   ATTENTION_KEY_GAIN,
                      project + at->key_at, keep->raw_keys,
                      keep->key_scales,     dgains != NULL ? dgains + at->head_size : NULL};
}

static void norms_forward(const ty_stage_device *stage, const stage_node *node, const attention *at,
                          const kept *keep)
{
    normed parts[2];

    normed_find(at, keep, keep->project, NULL, parts);
    for (uint32_t i = 0; i < 2 && at->has_norms; i++) {
        const normed *n = &parts[i];
        for (uint64_t r = 0; r < n->rows; r++) {
            float *row = n->at + r * n->stride, *raw = n->raw + r * n->heads * at->head_size;
            memcpy(raw, row, n->heads * at->head_size * sizeof *raw);
            cpu_rms_norm_rows(n->heads, at->head_size, raw, cpu_parameters(stage, node, n->gain),
                              row, n->scales + r * n->heads);
        }
    }
}

/* The gradients of the norms' outputs become those of the projections, in place. */
static void norms_backward(const ty_stage_device *stage, const stage_node *node,
                           const attention *at, const kept *keep, const inner_gradients *inner)
{
    normed parts[2];

    if (!at->has_norms)
        return;
    memset(inner->gains, 0, 2 * at->head_size * sizeof *inner->gains);
    normed_find(at, keep, inner->project, inner->gains, parts);
    for (uint32_t i = 0; i < 2; i++) {
        const normed *n = &parts[i];
        for (uint64_t r = 0; r < n->rows; r++)
            cpu_rms_norm_gradient(n->heads, at->head_size, n->raw + r * n->heads * at->head_size,
                                  cpu_parameters(stage, node, n->gain), n->scales + r * n->heads,
                                  n->at + r * n->stride, n->dgain, false, n->at + r * n->stride);
    }
}

/* Rotates queries and keys, which are contiguous, by their positions; or their gradients back. */
static void positions_turn(const attention *at, const room *own, float *project, bool is_back)
{
    if (at->rotary_base > 0)
        cpu_rotate(&(cpu_rotary){.batch = at->batch,
                                 .length = at->length,
                                 .heads = at->heads + at->kv_heads,
                                 .head_size = at->head_size,
                                 .stride = at->query_stride,
                                 .base = at->rotary_base,
                                 .runs = &at->runs,
                                 .is_back = is_back},
                   project, own->turns);
}

/* ---- Products with the inputs and of the output ---- */

static cpu_output_product out_product(const attention *at, const kept *keep)
{
    return (cpu_output_product){.rows = at->rows,
                                .in = at->queries,
                                .out = at->features,
                                .weight = ATTENTION_OUT,
                                .bias = ATTENTION_OUT_BIAS,
                                .has_bias = at->has_out_bias,
                                .x = keep->context,
                                .dy = keep->dy};
}

/* One for all projections, or one for each input, queries first. @return their number */
static uint32_t in_products(const attention *at, const kept *keep, cpu_input_product out[2])
{
    out[0] = (cpu_input_product){.rows = at->rows,
                                 .in = at->features,
                                 .out = at->query_stride,
                                 .weight = ATTENTION_PROJECT,
                                 .bias = ATTENTION_PROJECT_BIAS,
                                 .has_bias = at->has_project_bias,
                                 .x = keep->x[0]};
    if (!at->is_of_two)
        return 1;
    out[0].input = 1;
    out[1] = out[0];
    out[1].rows = at->key_rows;
    out[1].out = at->key_columns;
    out[1].input = 0;
    out[1].first_row = at->queries;
    out[1].x = keep->x[1];
    return 2;
}

static ty_status project_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 const attention *at, const kept *keep, ty_error *error)
{
    cpu_input_product products[2];
    const uint32_t count = in_products(at, keep, products);
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count && status == TY_OK; i++)
        status = cpu_input_product_forward(stage, node, slot, &products[i],
                                           keep->project + (i > 0 ? at->key_at : 0), error);
    return status;
}

static ty_status attention_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error)
{
    attention at = attention_of(stage, node);
    cpu_output_product out;
    float *keys;
    kept keep;
    room own;

    kept_cut(stage, node, &at, node->kept[slot], &keep);
    room_cut(&at, stage->scratch, &own);
    TY_TRY(project_forward(stage, node, slot, &at, &keep, error));
    norms_forward(stage, node, &at, &keep);
    positions_turn(&at, &own, keep.project, false);
    TY_TRY(keys_find(stage, &at, &own, keep.project, &keys, error));
    for (uint64_t h = 0; h < at.heads; h++) {
        distances_spread(stage, node, &at, &own, h);
        for (uint64_t b = 0; b < at.batch; b++) {
            const head all = head_at(&at, keep.project, keys, own.by_distance, b, h);
            head_forward(&at, &all, probabilities_at(&at, &own, keep.probabilities, b, h),
                         keep.context + b * at.length * at.queries + h * at.head_size);
        }
    }
    out = out_product(&at, &keep);
    return cpu_output_product_forward(stage, node, slot, &out, error);
}

/* Recomputes the output from the stored context. */
static ty_status attention_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 ty_error *error)
{
    const attention at = attention_of(stage, node);
    cpu_output_product out;
    kept keep;

    kept_cut(stage, node, &at, node->kept[slot], &keep);
    out = out_product(&at, &keep);
    return cpu_output_product_forward(stage, node, slot, &out, error);
}

/* ---- Backward ---- */

/* Adds to dk and dv when another head that shares them, or an earlier block, has written them. */
static void head_backward(const attention *at, const head *x, const float *p, const float *dcontext,
                          bool adds, float *dp, const head *dx)
{
    const uint64_t stride = at->query_stride, beside = at->key_stride, size = at->head_size;

    /* The last block comes first: without context-parallel ranks it sees all keys, so that it may
     * overwrite.
     */
    for (uint64_t end = at->length; end > 0;) {
        const query_block block = block_of(at, end - 1);
        const uint64_t rows = block.rows, keys = block.keys;
        const float *pb = p + block.first * at->keys, *dc = dcontext + block.first * at->queries;
        float *dpb = dp + block.first * at->keys;
        const float beta = adds || end < at->length ? 1.0f : 0.0f;

        cpu_gemm(true, false, keys, size, rows, 1.0f, pb, at->keys, dc, at->queries, beta, dx->v,
                 beside);
        cpu_gemm(false, true, rows, keys, size, 1.0f, dc, at->queries, x->v, beside, 0.0f, dpb,
                 at->keys);
        cpu_softmax_gradient(rows, keys, at->keys, pb, dpb);
        scores_bias_gradient(at, &block, dpb, dx->by_distance);
        cpu_gemm(false, false, rows, size, keys, at->scale, dpb, at->keys, x->k, beside, 0.0f,
                 dx->q + block.first * stride, stride);
        cpu_gemm(true, false, keys, size, rows, at->scale, dpb, at->keys,
                 x->q + block.first * stride, stride, beta, dx->k, beside);
        end = block.first;
    }
}

/* Backward of one head for all samples. */
static void head_of_all_backward(const attention *at, const kept *keep, const room *own,
                                 const inner_gradients *inner, float *keys, float *dkeys,
                                 uint64_t h)
{
    const bool adds = at->gathers_keys || h % (at->heads / at->kv_heads) != 0;

    if (at->buckets > 0)
        memset(own->dby_distance, 0, (2 * at->keys - 1) * sizeof *own->dby_distance);
    for (uint64_t b = 0; b < at->batch; b++) {
        const head x = head_at(at, keep->project, keys, own->by_distance, b, h);
        const head dx = head_at(at, inner->project, dkeys, own->dby_distance, b, h);
        float *p = probabilities_at(at, own, keep->probabilities, b, h);
        if (at->is_selective)
            head_forward(at, &x, p, NULL);
        head_backward(at, &x, p, own->dcontext + b * at->length * at->queries + h * at->head_size,
                      adds, own->dp, &dx);
    }
    if (at->buckets > 0)
        cpu_relative_gather(at->keys, at->buckets, at->heads, h, at->is_causal, own->dby_distance,
                            inner->relative);
}

/* Gradients of the projections from those of the context. Gradients of other ranks' keys are summed
 * and sent there. */
static ty_status heads_backward(ty_stage_device *stage, const stage_node *node, const attention *at,
                                const kept *keep, const room *own, const inner_gradients *inner,
                                ty_error *error)
{
    const stage_context_rows rows = {at->keys, at->key_columns, at->own_key_stride};
    float *keys, *own_dkeys = inner->project + at->key_at;
    float *dkeys = at->gathers_keys ? own->all_dkeys : own_dkeys;
    ty_status status = keys_find(stage, at, own, keep->project, &keys, error);

    if (status != TY_OK)
        return status;
    if (at->gathers_keys) /* a rank may have no query that sees the last of them */
        memset(dkeys, 0, at->batch * at->keys * at->key_columns * sizeof *dkeys);
    if (at->buckets > 0)
        memset(inner->relative, 0, at->buckets * at->heads * sizeof *inner->relative);
    for (uint64_t h = 0; h < at->heads; h++) {
        distances_spread(stage, node, at, own, h);
        head_of_all_backward(at, keep, own, inner, keys, dkeys, h);
    }
    if (at->gathers_keys)
        status = stage_context_scatter(stage, &rows, dkeys, own->pieces, own_dkeys, error);
    if (status == TY_OK) {
        positions_turn(at, own, inner->project, true);
        norms_backward(stage, node, at, keep, inner);
    }
    return status;
}

/* Adds the gradients of gains and biases, computed with those of the projections. */
static void option_gradients(const ty_stage_device *stage, const stage_node *node,
                             const attention *at, const inner_gradients *inner, bool is_first)
{
    const struct {
        uint32_t tensor;
        uint64_t count;
        const float *from;
    } parts[] = {
        {ATTENTION_QUERY_GAIN, at->has_norms ? at->head_size : 0, inner->gains},
        {ATTENTION_KEY_GAIN, at->has_norms ? at->head_size : 0,
         at->has_norms ? inner->gains + at->head_size : NULL},
        {ATTENTION_RELATIVE, at->buckets * at->heads, inner->relative},
    };

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        float *to = cpu_parameter_gradient(stage, node, parts[i].tensor);
        if (to != NULL && parts[i].count > 0)
            cpu_accumulate(parts[i].count, parts[i].from,
                           stage_adds(node, parts[i].tensor, is_first), to);
    }
}

static ty_status attention_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    cpu_input_product products[2];
    cpu_output_product out;
    inner_gradients inner;
    uint32_t count;
    kept keep;
    room own;

    kept_cut(stage, node, &at, node->kept[slot], &keep);
    room_cut(&at, stage->scratch, &own);
    inner = stage->options.splits_backward ? keep.inner : own.inner;
    out = out_product(&at, &keep);
    TY_TRY(cpu_output_product_backward(stage, node, slot, &out, is_first, own.dcontext, error));
    if (stage->part != STAGE_WEIGHTS)
        TY_TRY(heads_backward(stage, node, &at, &keep, &own, &inner, error));
    option_gradients(stage, node, &at, &inner, is_first);
    count = in_products(&at, &keep, products);
    for (uint32_t i = 0; i < count; i++)
        TY_TRY(cpu_input_product_backward(stage, node, slot, &products[i],
                                          inner.project + (i > 0 ? at.key_at : 0), is_first,
                                          error));
    return TY_OK;
}

const stage_kind cpu_attention = {
    .supports = attention_supports,
    .build = attention_build,
    .forward = attention_forward,
    .again = attention_again,
    .backward = attention_backward,
};
