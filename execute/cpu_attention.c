/*
 * Multi-head attention (Vaswani et al., 2017), with fewer key and value heads than query heads if
 * asked for (Ainslie et al., "GQA", 2023). Probabilities are kept for backward: at the sequence
 * lengths a CPU trains, that is cheaper than computing them again. With selective recomputing they
 * are not (Korthikanti et al., 2022, section 4.1). A lane has some of the heads, with the rows of
 * the first projection and the columns of the second that belong to them.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

enum { PROJECT, OUT, PROJECT_BIAS, OUT_BIAS };

/* Query rows that are multiplied with keys at once; under a causal mask later keys are left out. */
#define QUERY_BLOCK 64

typedef struct attention {
    uint64_t batch, length, rows; /* rows = batch * length */
    uint64_t features, heads, kv_heads, head_size;
    uint64_t queries; /* columns of queries: heads * head size */
    uint64_t project; /* columns of queries, keys and values */
    bool is_causal, has_bias;
    bool is_selective; /* probabilities are made anew for backward */
    float scale;
} attention;

static attention attention_of(const ty_stage_device *stage, const cpu_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t length = node->layer->output.dimensions[0];
    const uint32_t lanes = cpu_lane_count(&stage->options);
    const uint64_t heads = a[TY_HEADS] / lanes, kv_heads = a[TY_KV_HEADS] / lanes;

    return (attention){
        .batch = cpu_batch(stage),
        .length = length,
        .rows = cpu_batch(stage) * length,
        .features = a[TY_FEATURES],
        .heads = heads,
        .kv_heads = kv_heads,
        .head_size = a[TY_HEAD_SIZE],
        .queries = heads * a[TY_HEAD_SIZE],
        .project = (heads + 2 * kv_heads) * a[TY_HEAD_SIZE],
        .is_causal = a[TY_IS_CAUSAL] != 0,
        .has_bias = a[TY_HAS_BIAS] != 0,
        .is_selective = stage->options.recompute == TY_RECOMPUTE_SELECTIVE,
        .scale = 1.0f / sqrtf((float)a[TY_HEAD_SIZE]),
    };
}

/* project [queries | keys | values][features], out [features][queries], and their biases */
static uint32_t attention_tensors(const ty_workload *workload, uint32_t index,
                                  cpu_tensor tensors[CPU_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    uint64_t queries = a[TY_HEADS] * a[TY_HEAD_SIZE], keys = a[TY_KV_HEADS] * a[TY_HEAD_SIZE];
    uint64_t project = queries + 2 * keys;

    tensors[PROJECT] = (cpu_tensor){.count = project * a[TY_FEATURES],
                                    .deviation = ty_init_transformer_deviation(workload, false),
                                    .division = CPU_BY_ROWS,
                                    .columns = a[TY_FEATURES],
                                    .groups = {queries, keys, keys}};
    tensors[OUT] = (cpu_tensor){.count = a[TY_FEATURES] * queries,
                                .deviation = ty_init_transformer_deviation(workload, true),
                                .division = CPU_BY_COLUMNS,
                                .columns = queries};
    tensors[PROJECT_BIAS] =
        (cpu_tensor){.count = project, .division = CPU_BY_ROWS, .groups = {queries, keys, keys}};
    tensors[OUT_BIAS] = (cpu_tensor){.count = a[TY_FEATURES], .division = CPU_BY_ROWS};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

/* What a slot keeps. Where backward comes in two parts that includes the gradient of the
 * projections, which else is scratch; where lanes divide the sequence, the whole input, and in two
 * parts the whole gradient of the output. */
typedef struct kept {
    float *project;       /* [rows][project] */
    float *probabilities; /* [batch][heads][length][length] */
    float *context;       /* [rows][queries] */
    float *dproject;      /* [rows][project], or NULL */
    float *x, *dy;        /* [rows][features], or NULL */
} kept;

static uint64_t probability_count(const attention *at)
{
    return at->is_selective ? 0 : at->batch * at->heads * at->length * at->length;
}

/* Cuts a slot's stash. @return floats of it; `stash` may be NULL to count */
static uint64_t kept_cut(const ty_stage_device *stage, const cpu_node *node, const attention *at,
                         float *stash, kept *out)
{
    const bool splits = stage->options.splits_backward, gathers = cpu_gathers(stage, node);
    const uint64_t whole = gathers ? at->rows * at->features : 0;
    const uint64_t counts[] = {at->rows * at->project,
                               probability_count(at),
                               at->rows * at->queries,
                               splits ? at->rows * at->project : 0,
                               whole,
                               splits ? whole : 0};
    float **const parts[] = {
        &out->project, &out->probabilities, &out->context, &out->dproject, &out->x, &out->dy};
    uint64_t used = 0;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *parts[i] = stash != NULL && counts[i] > 0 ? stash + used : NULL;
        used += counts[i];
    }
    return used;
}

/* Of one head of one sample: kept ones, or room at the end of scratch for those of any head. */
static float *probabilities_at(const ty_stage_device *stage, const attention *at, float *all,
                               uint64_t b, uint64_t h)
{
    if (at->is_selective)
        return (float *)stage->scratch + at->rows * (at->project + at->queries) +
               at->length * at->length;
    return all + (b * at->heads + h) * at->length * at->length;
}

static ty_status attention_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);
    kept none;

    (void)error;
    node->stash_bytes = kept_cut(stage, node, &at, NULL, &none) * sizeof(float);
    node->scratch_bytes =
        (at.rows * (at.project + at.queries) + (at.is_selective ? 2 : 1) * at.length * at.length) *
        sizeof(float);
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

/* Keys that the queries of a block [first, end) may see. */
static uint64_t keys_seen(const attention *at, uint64_t end)
{
    return at->is_causal ? end : at->length;
}

/* One head of one sample. q, k and v are columns of the projections; so the stride is theirs.
 * Without `context` only probabilities are made. */
static void head_forward(const attention *at, const float *q, const float *k, const float *v,
                         float *p, float *context)
{
    for (uint64_t first = 0; first < at->length; first += QUERY_BLOCK) {
        uint64_t end = first + QUERY_BLOCK < at->length ? first + QUERY_BLOCK : at->length;
        uint64_t keys = keys_seen(at, end), rows = end - first;
        float *block = p + first * at->length;
        cpu_gemm(false, true, rows, keys, at->head_size, at->scale, q + first * at->project,
                 at->project, k, at->project, 0.0f, block, at->length);
        softmax_rows(rows, keys, at->length, at->is_causal, first + 1, block);
        if (context != NULL)
            cpu_gemm(false, false, rows, at->head_size, keys, 1.0f, block, at->length, v,
                     at->project, 0.0f, context + first * at->queries, at->queries);
    }
}

/* The second projection: this lane's summand of the output, and the sum. */
static ty_status out_forward(ty_stage_device *stage, const cpu_node *node, const attention *at,
                             const float *context, float *y, ty_error *error)
{
    float *summand = cpu_summand(stage, node, false, y);

    cpu_affine(at->rows, at->queries, at->features, context, cpu_parameters(stage, node, OUT), NULL,
               summand);
    if (at->has_bias)
        cpu_add_lane_bias(stage, at->rows, at->features, cpu_parameters(stage, node, OUT_BIAS),
                          summand);
    return cpu_lanes_sum(stage, &node->layer->output, summand, false, y, error);
}

static ty_status attention_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                   ty_error *error)
{
    attention at = attention_of(stage, node);
    uint64_t size = at.head_size, shared = at.heads / at.kv_heads;
    const float *x;
    kept keep;
    ty_status status;

    kept_cut(stage, node, &at, node->stash[slot], &keep);
    status = cpu_whole_input(stage, node, slot, keep.x, &x, error);
    if (status != TY_OK)
        return status;
    cpu_affine(at.rows, at.features, at.project, x, cpu_parameters(stage, node, PROJECT),
               at.has_bias ? cpu_parameters(stage, node, PROJECT_BIAS) : NULL, keep.project);
    for (uint64_t b = 0; b < at.batch; b++)
        for (uint64_t h = 0; h < at.heads; h++) {
            const float *q = keep.project + b * at.length * at.project;
            const float *k = q + at.queries + h / shared * size;
            head_forward(&at, q + h * size, k, k + at.kv_heads * size,
                         probabilities_at(stage, &at, keep.probabilities, b, h),
                         keep.context + b * at.length * at.queries + h * size);
        }
    return out_forward(stage, node, &at, keep.context, cpu_out(stage, node, slot), error);
}

/* Pointers into the projections of one head of one sample, or into their gradients. */
typedef struct head {
    float *q, *k, *v;
} head;

/* Adds to dk and dv when another head that shares them, or an earlier block, has written them. */
static void head_backward(const attention *at, const head *x, const float *p, const float *dcontext,
                          bool adds, float *dp, const head *dx)
{
    uint64_t stride = at->project, size = at->head_size;

    /* The last block comes first: it sees all keys, so that it may overwrite. */
    for (uint64_t end = at->length; end > 0;) {
        uint64_t first = (end - 1) / QUERY_BLOCK * QUERY_BLOCK, rows = end - first;
        uint64_t keys = keys_seen(at, end);
        const float *pb = p + first * at->length, *dc = dcontext + first * at->queries;
        float *dpb = dp + first * at->length;
        float beta = adds || end < at->length ? 1.0f : 0.0f;

        cpu_gemm(true, false, keys, size, rows, 1.0f, pb, at->length, dc, at->queries, beta, dx->v,
                 stride);
        cpu_gemm(false, true, rows, keys, size, 1.0f, dc, at->queries, x->v, stride, 0.0f, dpb,
                 at->length);
        softmax_gradient(rows, keys, at->length, pb, dpb);
        cpu_gemm(false, false, rows, size, keys, at->scale, dpb, at->length, x->k, stride, 0.0f,
                 dx->q + first * stride, stride);
        cpu_gemm(true, false, keys, size, rows, at->scale, dpb, at->length, x->q + first * stride,
                 stride, beta, dx->k, stride);
        end = first;
    }
}

static head head_at(const attention *at, float *project, uint64_t b, uint64_t h)
{
    float *row = project + b * at->length * at->project;
    float *k = row + at->queries + h / (at->heads / at->kv_heads) * at->head_size;

    return (head){row + h * at->head_size, k, k + at->kv_heads * at->head_size};
}

/* Gradients of the second projection, and of the context into `dcontext`, unless only those of
 * weights are asked for. */
static ty_status out_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                              const attention *at, const kept *keep, bool is_first, float *dcontext,
                              ty_error *error)
{
    float *bias = at->has_bias ? cpu_parameter_gradient(stage, node, OUT_BIAS) : NULL;
    const float *dy = keep->dy;
    cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, OUT),
        .x = stage->part == CPU_WEIGHTS ? NULL : dcontext,
        .adds_weight = cpu_adds(node, OUT, is_first),
    };
    ty_status status = TY_OK;

    if (dy == NULL || stage->part != CPU_WEIGHTS)
        status = cpu_whole_gradient(stage, node, slot,
                                    keep->dy != NULL ? keep->dy : stage->lane_whole, &dy, error);
    if (status != TY_OK)
        return status;
    cpu_affine_backward(at->rows, at->queries, at->features, keep->context,
                        cpu_parameters(stage, node, OUT), dy, &to);
    if (bias != NULL)
        cpu_lane_bias_gradient(stage, at->rows, at->features, dy,
                               cpu_adds(node, OUT_BIAS, is_first), bias);
    return TY_OK;
}

/* Gradients of the first projection and of the input. */
static ty_status project_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                  const attention *at, const kept *keep, const float *dproject,
                                  bool is_first, ty_error *error)
{
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    float *summand = cpu_summand(stage, node, node->adds[0], dx);
    cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, PROJECT),
        .bias = at->has_bias ? cpu_parameter_gradient(stage, node, PROJECT_BIAS) : NULL,
        .x = summand,
        .adds_weight = cpu_adds(node, PROJECT, is_first),
        .adds_bias = cpu_adds(node, PROJECT_BIAS, is_first),
        .adds_x = summand == dx && node->adds[0],
    };

    cpu_affine_backward(at->rows, at->features, at->project,
                        keep->x != NULL ? keep->x : cpu_in(stage, node, 0, slot),
                        cpu_parameters(stage, node, PROJECT), dproject, &to);
    if (dx == NULL)
        return TY_OK;
    return cpu_lanes_sum(stage, cpu_whole_input_shape(stage, node), summand, node->adds[0], dx,
                         error);
}

static ty_status attention_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    float *dcontext = stage->scratch, *dp = dcontext + at.rows * at.queries, *dproject;
    kept keep;
    ty_status status;

    kept_cut(stage, node, &at, node->stash[slot], &keep);
    dproject = keep.dproject != NULL ? keep.dproject : dp + at.length * at.length;
    status = out_backward(stage, node, slot, &at, &keep, is_first, dcontext, error);
    if (status != TY_OK)
        return status;
    for (uint64_t b = 0; b < at.batch && stage->part != CPU_WEIGHTS; b++)
        for (uint64_t h = 0; h < at.heads; h++) {
            head x = head_at(&at, keep.project, b, h), dx = head_at(&at, dproject, b, h);
            float *own = probabilities_at(stage, &at, keep.probabilities, b, h);
            if (at.is_selective)
                head_forward(&at, x.q, x.k, x.v, own, NULL);
            head_backward(&at, &x, own, dcontext + b * at.length * at.queries + h * at.head_size,
                          h % (at.heads / at.kv_heads) != 0, dp, &dx);
        }
    return project_backward(stage, node, slot, &at, &keep, dproject, is_first, error);
}

const cpu_kind cpu_attention = {
    .tensors = attention_tensors,
    .build = attention_build,
    .forward = attention_forward,
    .backward = attention_backward,
};
