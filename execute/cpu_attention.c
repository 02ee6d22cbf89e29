/*
 * Multi-head attention (Vaswani et al., 2017), with fewer key and value heads than query heads if
 * asked for (Ainslie et al., "GQA", 2023). Probabilities are kept for backward: at the sequence
 * lengths a CPU trains, that is cheaper than computing them again. With selective recomputing they
 * are not (Korthikanti et al., 2022, section 4.1). A tensor lane has some of the heads, with the
 * rows of the first projection and the columns of the second that belong to them. A context lane
 * has the queries of its tokens, and gathers the keys and values of all.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

/* Query rows that are multiplied with keys at once; under a causal mask later keys are left out. */
#define QUERY_BLOCK 64

typedef struct attention {
    uint64_t batch, length, rows; /* of queries: rows = batch * length */
    uint64_t keys;                /* of a whole sequence */
    token_runs runs;              /* where the queries are in it */
    uint64_t features, heads, kv_heads, head_size;
    uint64_t queries;     /* columns of queries: heads * head size */
    uint64_t project;     /* columns of queries, keys and values */
    uint64_t key_columns; /* of keys and values */
    uint64_t key_stride;  /* from row to row of them: where they were gathered they are alone */
    bool gathers_keys;
    bool is_causal, has_bias;
    bool is_selective; /* probabilities are made anew for backward */
    float scale;
} attention;

static attention attention_of(const ty_stage_device *stage, const cpu_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t length = node->whole_output.dimensions[0];
    const uint64_t keys = node->layer->output.dimensions[0];
    const uint32_t lanes = lane_count(&stage->options);
    const uint64_t heads = a[TY_HEADS] / lanes, kv_heads = a[TY_KV_HEADS] / lanes;
    const uint64_t key_columns = 2 * kv_heads * a[TY_HEAD_SIZE];
    const uint64_t project = heads * a[TY_HEAD_SIZE] + key_columns;
    const bool gathers_keys = lane_context_count(&stage->options) > 1;

    return (attention){
        .batch = cpu_batch(stage),
        .length = length,
        .rows = cpu_batch(stage) * length,
        .keys = keys,
        .runs = lane_token_runs(&stage->options, keys),
        .features = a[TY_FEATURES],
        .heads = heads,
        .kv_heads = kv_heads,
        .head_size = a[TY_HEAD_SIZE],
        .queries = heads * a[TY_HEAD_SIZE],
        .project = project,
        .key_columns = key_columns,
        .key_stride = gathers_keys ? key_columns : project,
        .gathers_keys = gathers_keys,
        .is_causal = a[TY_IS_CAUSAL] != 0,
        .has_bias = a[TY_HAS_BIAS] != 0,
        .is_selective = stage->options.recompute == TY_RECOMPUTE_SELECTIVE,
        .scale = 1.0f / sqrtf((float)a[TY_HEAD_SIZE]),
    };
}

/* What a slot keeps. Where backward comes in two parts that includes the gradient of the
 * projections, which else is scratch, and where lanes divide the sequence the whole input and the
 * whole gradient of the output. */
typedef struct kept {
    float *project;       /* [rows][project] */
    float *probabilities; /* [batch][heads][length][keys] */
    float *context;       /* [rows][queries] */
    float *dproject;      /* [rows][project], or NULL */
    float *x, *dy;        /* [rows][features], or NULL */
} kept;

static uint64_t probability_count(const attention *at)
{
    return at->is_selective ? 0 : at->batch * at->heads * at->length * at->keys;
}

/* Cuts a slot's stash. @return floats of it; `stash` may be NULL to count */
static uint64_t kept_cut(const ty_stage_device *stage, const cpu_node *node, const attention *at,
                         float *stash, kept *out)
{
    const bool splits = stage->options.splits_backward;
    const uint64_t whole = splits && cpu_gathers(stage, node) ? at->rows * at->features : 0;
    const uint64_t counts[] = {at->rows * at->project,
                               probability_count(at),
                               at->rows * at->queries,
                               splits ? at->rows * at->project : 0,
                               whole,
                               whole};
    float **const parts[] = {
        &out->project, &out->probabilities, &out->context, &out->dproject, &out->x, &out->dy};
    uint64_t used = 0;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *parts[i] = stash != NULL && counts[i] > 0 ? stash + used : NULL;
        used += counts[i];
    }
    return used;
}

/* What a call has to itself. */
typedef struct room {
    float *dcontext;      /* [rows][queries] */
    float *dp;            /* [length][keys] */
    float *dproject;      /* [rows][project] */
    float *probabilities; /* [length][keys] of any head, where they are not kept; or NULL */
    /* Of context lanes, [batch][keys][key columns] each, or NULL. */
    float *all_keys, *all_dkeys, *pieces;
} room;

/* Cuts the scratch. @return floats of it; `scratch` may be NULL to count */
static uint64_t room_cut(const attention *at, float *scratch, room *out)
{
    const uint64_t gathered = at->gathers_keys ? at->batch * at->keys * at->key_columns : 0;
    const uint64_t counts[] = {at->rows * at->queries,
                               at->length * at->keys,
                               at->rows * at->project,
                               at->is_selective ? at->length * at->keys : 0,
                               gathered,
                               gathered,
                               gathered};
    float **const parts[] = {&out->dcontext, &out->dp,        &out->dproject, &out->probabilities,
                             &out->all_keys, &out->all_dkeys, &out->pieces};
    uint64_t used = 0;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *parts[i] = scratch != NULL && counts[i] > 0 ? scratch + used : NULL;
        used += counts[i];
    }
    return used;
}

/* Of one head of one sample: kept ones, or the room for those of any head. */
static float *probabilities_at(const attention *at, const room *own, float *all, uint64_t b,
                               uint64_t h)
{
    return own->probabilities != NULL ? own->probabilities
                                      : all + (b * at->heads + h) * at->length * at->keys;
}

static ty_status attention_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);
    kept none;
    room nowhere;

    (void)error;
    node->stash_bytes = kept_cut(stage, node, &at, NULL, &none) * sizeof(float);
    node->scratch_bytes = room_cut(&at, NULL, &nowhere) * sizeof(float);
    node->lane_floats = at.rows * at.features;
    return TY_OK;
}

/* Softmax of `rows` rows of scores, of which row r sees keys [0, visible + r) under a mask. The
 * rest of the row, up to `keys`, becomes 0. */
CPU_CLONES static void softmax_rows(uint64_t rows, uint64_t keys, uint64_t stride, bool is_causal,
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

/* dp becomes p (dp - sum(p dp)): the gradient of what went into the softmax. */
CPU_CLONES static void softmax_gradient(uint64_t rows, uint64_t keys, uint64_t stride,
                                        const float *p, float *dp)
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

/* Queries [first, first + rows) of this lane, of one run, and how many keys the first of them and
 * all of them may see. */
typedef struct query_block {
    uint64_t first, rows, visible, keys;
} query_block;

/* The block that a query is in. */
static query_block block_of(const attention *at, uint64_t query)
{
    const uint64_t run = at->runs.length, within = query % run / QUERY_BLOCK * QUERY_BLOCK;
    const uint64_t rows = within + QUERY_BLOCK < run ? QUERY_BLOCK : run - within;
    const uint64_t first = query / run * run + within, place = token_place(&at->runs, first);

    return (query_block){first, rows, place + 1, at->is_causal ? place + rows : at->keys};
}

/* Pointers into the projections of one head of one sample, or into their gradients: columns, so
 * that the stride of queries is that of projections. */
typedef struct head {
    float *q, *k, *v;
} head;

/* `keys`: columns of the projections, or what was gathered. */
static head head_at(const attention *at, float *project, float *keys, uint64_t b, uint64_t h)
{
    const uint64_t shared = at->heads / at->kv_heads;
    float *k = keys + b * at->keys * at->key_stride + h / shared * at->head_size;

    return (head){project + b * at->length * at->project + h * at->head_size, k,
                  k + at->kv_heads * at->head_size};
}

/* Without `context` only probabilities are made. */
static void head_forward(const attention *at, const head *x, float *p, float *context)
{
    query_block block;

    for (uint64_t query = 0; query < at->length; query += block.rows) {
        float *scores = p + query * at->keys;
        block = block_of(at, query);
        cpu_gemm(false, true, block.rows, block.keys, at->head_size, at->scale,
                 x->q + query * at->project, at->project, x->k, at->key_stride, 0.0f, scores,
                 at->keys);
        softmax_rows(block.rows, block.keys, at->keys, at->is_causal, block.visible, scores);
        if (context != NULL)
            cpu_gemm(false, false, block.rows, at->head_size, block.keys, 1.0f, scores, at->keys,
                     x->v, at->key_stride, 0.0f, context + query * at->queries, at->queries);
    }
}

/* Keys and values: this lane's columns of the projections, or those of all context lanes. */
static ty_status keys_find(ty_stage_device *stage, const attention *at, const room *own,
                           float *project, float **keys, ty_error *error)
{
    const cpu_context_rows rows = {at->keys, at->key_columns, at->project};

    *keys = at->gathers_keys ? own->all_keys : project + at->queries;
    return at->gathers_keys ? cpu_context_gather(stage, &rows, project + at->queries, own->pieces,
                                                 own->all_keys, error)
                            : TY_OK;
}

static cpu_output_product out_product(const attention *at, const kept *keep)
{
    return (cpu_output_product){.rows = at->rows,
                                .in = at->queries,
                                .out = at->features,
                                .weight = ATTENTION_OUT,
                                .bias = ATTENTION_OUT_BIAS,
                                .has_bias = at->has_bias,
                                .x = keep->context,
                                .dy = keep->dy};
}

static ty_status attention_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                   ty_error *error)
{
    attention at = attention_of(stage, node);
    cpu_output_product out;
    const float *x;
    float *keys;
    kept keep;
    room own;
    ty_status status;

    kept_cut(stage, node, &at, node->stash[slot], &keep);
    room_cut(&at, stage->scratch, &own);
    TY_CHECK(cpu_whole_input(stage, node, slot, stage->lane_whole, &x, error), status, done);
    cpu_affine(at.rows, at.features, at.project, x, cpu_parameters(stage, node, ATTENTION_PROJECT),
               at.has_bias ? cpu_parameters(stage, node, ATTENTION_PROJECT_BIAS) : NULL,
               keep.project);
    TY_CHECK(keys_find(stage, &at, &own, keep.project, &keys, error), status, done);
    for (uint64_t b = 0; b < at.batch; b++)
        for (uint64_t h = 0; h < at.heads; h++) {
            const head all = head_at(&at, keep.project, keys, b, h);
            head_forward(&at, &all, probabilities_at(&at, &own, keep.probabilities, b, h),
                         keep.context + b * at.length * at.queries + h * at.head_size);
        }
    out = out_product(&at, &keep);
    status = cpu_output_product_forward(stage, node, slot, &out, error);
done:
    return status;
}

/* Adds to dk and dv when another head that shares them, or an earlier block, has written them. */
static void head_backward(const attention *at, const head *x, const float *p, const float *dcontext,
                          bool adds, float *dp, const head *dx)
{
    const uint64_t stride = at->project, beside = at->key_stride, size = at->head_size;

    /* The last block comes first: without context lanes it sees all keys, so that it may overwrite.
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
        softmax_gradient(rows, keys, at->keys, pb, dpb);
        cpu_gemm(false, false, rows, size, keys, at->scale, dpb, at->keys, x->k, beside, 0.0f,
                 dx->q + block.first * stride, stride);
        cpu_gemm(true, false, keys, size, rows, at->scale, dpb, at->keys,
                 x->q + block.first * stride, stride, beta, dx->k, beside);
        end = block.first;
    }
}

/* Gradients of the projections from those of the context. What this lane's queries make of keys
 * elsewhere goes there. */
static ty_status heads_backward(ty_stage_device *stage, const attention *at, const kept *keep,
                                const room *own, float *dproject, ty_error *error)
{
    const cpu_context_rows rows = {at->keys, at->key_columns, at->project};
    float *keys, *dkeys = at->gathers_keys ? own->all_dkeys : dproject + at->queries;
    ty_status status = keys_find(stage, at, own, keep->project, &keys, error);

    if (status != TY_OK)
        return status;
    if (at->gathers_keys) /* a lane may have no query that sees the last of them */
        memset(dkeys, 0, at->batch * at->keys * at->key_columns * sizeof *dkeys);
    for (uint64_t b = 0; b < at->batch; b++)
        for (uint64_t h = 0; h < at->heads; h++) {
            const head x = head_at(at, keep->project, keys, b, h);
            const head dx = head_at(at, dproject, dkeys, b, h);
            float *p = probabilities_at(at, own, keep->probabilities, b, h);
            if (at->is_selective)
                head_forward(at, &x, p, NULL);
            head_backward(at, &x, p,
                          own->dcontext + b * at->length * at->queries + h * at->head_size,
                          at->gathers_keys || h % (at->heads / at->kv_heads) != 0, own->dp, &dx);
        }
    return at->gathers_keys ? cpu_context_scatter(stage, &rows, dkeys, own->pieces,
                                                  dproject + at->queries, error)
                            : TY_OK;
}

static ty_status attention_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    cpu_output_product out;
    float *dproject;
    kept keep;
    room own;
    ty_status status;

    kept_cut(stage, node, &at, node->stash[slot], &keep);
    room_cut(&at, stage->scratch, &own);
    dproject = keep.dproject != NULL ? keep.dproject : own.dproject;
    out = out_product(&at, &keep);
    TY_CHECK(cpu_output_product_backward(stage, node, slot, &out, is_first, own.dcontext, error),
             status, done);
    if (stage->part != CPU_WEIGHTS)
        TY_CHECK(heads_backward(stage, &at, &keep, &own, dproject, error), status, done);
    status = cpu_input_product_backward(stage, node, slot,
                                        &(cpu_input_product){.rows = at.rows,
                                                             .in = at.features,
                                                             .out = at.project,
                                                             .weight = ATTENTION_PROJECT,
                                                             .bias = ATTENTION_PROJECT_BIAS,
                                                             .has_bias = at.has_bias,
                                                             .x = keep.x},
                                        dproject, is_first, error);
done:
    return status;
}

const cpu_kind cpu_attention = {
    .build = attention_build,
    .forward = attention_forward,
    .backward = attention_backward,
};
