/*
 * Additive attention to another sequence (Bahdanau, Cho and Bengio, "Neural machine translation by
 * jointly learning to align and translate", 2015, appendix A.1.2), with a vector of learned length
 * and a bias (as in GNMT's implementations; Salimans and Kingma, "Weight normalization", 2016):
 *     u = g v / |v|,   p_ts = softmax_s(u tanh(Wq x_t + Wk m_s + b)),   y_t = sum_s p_ts m_s
 * Backward recomputes the arguments of the tanh, one for each pair of rows and hidden feature.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

typedef struct additive {
    uint64_t batch, length, keys;  /* rows of a sample: of queries, of the memory */
    uint64_t in, features, hidden; /* columns: of queries, of the memory, in the tanh */
} additive;

enum { MEMORY, QUERIES }; /* inputs */

static additive additive_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;

    return (additive){.batch = stage_batch(stage),
                      .length = stage->values[node->inputs[QUERIES]].shape.dimensions[0],
                      .keys = stage->values[node->inputs[MEMORY]].shape.dimensions[0],
                      .in = a[TY_IN_FEATURES],
                      .features = a[TY_FEATURES],
                      .hidden = a[TY_HIDDEN_FEATURES]};
}

/* Stash of a slot; includes the gradients only if backward has two parts, else they are scratch. */
typedef struct kept {
    float *q, *k;         /* [batch][length or keys][hidden] */
    float *probabilities; /* [batch][length][keys] */
    float *dq, *dk;       /* as q and k, or NULL */
    float *du;            /* [hidden], or NULL */
} kept;

static uint64_t gradient_count(const additive *at)
{
    return (at->batch * (at->length + at->keys) + 1) * at->hidden;
}

static void gradients_cut(const additive *at, float *from, kept *out)
{
    out->dq = from;
    out->dk = out->dq + at->batch * at->length * at->hidden;
    out->du = out->dk + at->batch * at->keys * at->hidden;
}

/* Gradients follow the stash of forward. Scratch begins with u and the gradient of one sample's
 * scores. */
static kept kept_at(const ty_stage_device *stage, const stage_node *node, const additive *at,
                    uint32_t slot)
{
    float *stash = node->stash[slot];
    kept k = {.q = stash};

    k.k = k.q + at->batch * at->length * at->hidden;
    k.probabilities = k.k + at->batch * at->keys * at->hidden;
    gradients_cut(at,
                  stage->options.splits_backward
                      ? k.probabilities + at->batch * at->length * at->keys
                      : (float *)stage->scratch + at->hidden + at->length * at->keys,
                  &k);
    return k;
}

static ty_status additive_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const additive at = additive_of(stage, node);
    uint64_t stash = at.batch * ((at.length + at.keys) * at.hidden + at.length * at.keys);
    uint64_t scratch = at.hidden + at.length * at.keys;

    (void)error;
    *(stage->options.splits_backward ? &stash : &scratch) += gradient_count(&at);
    node->stash_bytes = stash * sizeof(float);
    node->scratch_bytes = scratch * sizeof(float);
    return TY_OK;
}

/* ---- The weight vector ---- */

static double length_of(uint64_t n, const float *v)
{
    return sqrt(cpu_sum_of_squares(n, v));
}

static void vector_scale(const ty_stage_device *stage, const stage_node *node, uint64_t n, float *u)
{
    const float *v = cpu_parameters(stage, node, ADDITIVE_VECTOR);
    const float scale =
        (float)((double)*cpu_parameters(stage, node, ADDITIVE_GAIN) / length_of(n, v));

    for (uint64_t h = 0; h < n; h++)
        u[h] = scale * v[h];
}

/* u = g w with w = v / |v|: dg = w du, dv = g / |v| (du - w (w du)). */
static void vector_gradients(const ty_stage_device *stage, const stage_node *node, uint64_t n,
                             const float *du, bool is_first)
{
    const float *v = cpu_parameters(stage, node, ADDITIVE_VECTOR);
    float *dv = cpu_parameter_gradient(stage, node, ADDITIVE_VECTOR);
    float *dg = cpu_parameter_gradient(stage, node, ADDITIVE_GAIN);
    const double length = length_of(n, v);
    const double gain = (double)*cpu_parameters(stage, node, ADDITIVE_GAIN);
    double along = 0;

    if (dv == NULL)
        return;
    for (uint64_t h = 0; h < n; h++)
        along += (double)v[h] * (double)du[h] / length;
    *dg = (stage_adds(node, ADDITIVE_GAIN, is_first) ? *dg : 0.0f) + (float)along;
    for (uint64_t h = 0; h < n; h++) {
        const double across = (double)du[h] - (double)v[h] / length * along;
        dv[h] = (stage_adds(node, ADDITIVE_VECTOR, is_first) ? dv[h] : 0.0f) +
                (float)(gain / length * across);
    }
}

/* ---- Scores ---- */

CPU_CLONES static void scores_forward(const additive *at, const float *u, const float *q,
                                      const float *k, float *scores)
{
    for (uint64_t t = 0; t < at->length; t++)
        for (uint64_t s = 0; s < at->keys; s++) {
            const float *qt = q + t * at->hidden, *ks = k + s * at->hidden;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (uint64_t h = 0; h < at->hidden; h++)
                sum += u[h] * cpu_tanh(qt[h] + ks[h]);
            scores[t * at->keys + s] = sum;
        }
}

/* Adds to dq, dk and du. */
CPU_CLONES static void scores_backward(const additive *at, const float *u, const float *q,
                                       const float *k, const float *dscores, float *dq, float *dk,
                                       float *du)
{
    for (uint64_t t = 0; t < at->length; t++)
        for (uint64_t s = 0; s < at->keys; s++) {
            const float *qt = q + t * at->hidden, *ks = k + s * at->hidden;
            float *dqt = dq + t * at->hidden, *dks = dk + s * at->hidden;
            const float d = dscores[t * at->keys + s];
#pragma omp simd
            for (uint64_t h = 0; h < at->hidden; h++) {
                const float a = cpu_tanh(qt[h] + ks[h]);
                const float inner = d * u[h] * (1.0f - a * a);
                dqt[h] += inner;
                dks[h] += inner;
                du[h] += d * a;
            }
        }
}

/* ---- Passes ---- */

static ty_status additive_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  ty_error *error)
{
    const additive at = additive_of(stage, node);
    const kept keep = kept_at(stage, node, &at, slot);
    const float *memory = cpu_in(stage, node, MEMORY, slot);
    float *u = stage->scratch, *y = cpu_out(stage, node, slot);

    (void)error;
    cpu_affine(at.batch * at.keys, at.features, at.hidden, memory,
               cpu_parameters(stage, node, ADDITIVE_MEMORY), NULL, keep.k);
    cpu_affine(at.batch * at.length, at.in, at.hidden, cpu_in(stage, node, QUERIES, slot),
               cpu_parameters(stage, node, ADDITIVE_QUERY),
               cpu_parameters(stage, node, ADDITIVE_BIAS), keep.q);
    vector_scale(stage, node, at.hidden, u);
    for (uint64_t b = 0; b < at.batch; b++) {
        float *p = keep.probabilities + b * at.length * at.keys;
        scores_forward(&at, u, keep.q + b * at.length * at.hidden, keep.k + b * at.keys * at.hidden,
                       p);
        cpu_softmax_rows(at.length, at.keys, at.keys, false, 0, p);
        cpu_gemm(false, false, at.length, at.features, at.keys, 1.0f, p, at.keys,
                 memory + b * at.keys * at.features, at.features, 0.0f,
                 y + b * at.length * at.features, at.features);
    }
    return TY_OK;
}

/* Gradients of the tanh's arguments and of u, and the memory's gradient as values. */
static void pairs_backward(ty_stage_device *stage, const stage_node *node, const additive *at,
                           const kept *keep, uint32_t slot)
{
    const float *memory = cpu_in(stage, node, MEMORY, slot);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *dmemory = cpu_in_gradient(stage, node, MEMORY, slot);
    float *u = stage->scratch, *dscores = u + at->hidden;
    const float beta = node->adds[MEMORY] ? 1.0f : 0.0f;

    vector_scale(stage, node, at->hidden, u);
    memset(keep->dq, 0, gradient_count(at) * sizeof *keep->dq);
    for (uint64_t b = 0; b < at->batch; b++) {
        const uint64_t of_query = b * at->length, of_key = b * at->keys;
        const float *p = keep->probabilities + of_query * at->keys;
        const float *dyb = dy + of_query * at->features;

        cpu_gemm(false, true, at->length, at->keys, at->features, 1.0f, dyb, at->features,
                 memory + of_key * at->features, at->features, 0.0f, dscores, at->keys);
        cpu_softmax_gradient(at->length, at->keys, at->keys, p, dscores);
        scores_backward(at, u, keep->q + of_query * at->hidden, keep->k + of_key * at->hidden,
                        dscores, keep->dq + of_query * at->hidden, keep->dk + of_key * at->hidden,
                        keep->du);
        if (dmemory != NULL)
            cpu_gemm(true, false, at->keys, at->features, at->length, 1.0f, p, at->keys, dyb,
                     at->features, beta, dmemory + of_key * at->features, at->features);
    }
}

static ty_status additive_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   bool is_first, ty_error *error)
{
    const additive at = additive_of(stage, node);
    const kept keep = kept_at(stage, node, &at, slot);
    const cpu_affine_gradient to_memory = {
        .weight = cpu_parameter_gradient(stage, node, ADDITIVE_MEMORY),
        .x = cpu_in_gradient(stage, node, MEMORY, slot),
        .adds_weight = stage_adds(node, ADDITIVE_MEMORY, is_first),
        .adds_x = true, /* to its gradient as values */
    };
    const cpu_affine_gradient to_queries = {
        .weight = cpu_parameter_gradient(stage, node, ADDITIVE_QUERY),
        .bias = cpu_parameter_gradient(stage, node, ADDITIVE_BIAS),
        .x = cpu_in_gradient(stage, node, QUERIES, slot),
        .adds_weight = stage_adds(node, ADDITIVE_QUERY, is_first),
        .adds_bias = stage_adds(node, ADDITIVE_BIAS, is_first),
        .adds_x = node->adds[QUERIES],
    };

    (void)error;
    if (stage->part != STAGE_WEIGHTS)
        pairs_backward(stage, node, &at, &keep, slot);
    cpu_affine_backward(at.batch * at.keys, at.features, at.hidden,
                        cpu_in(stage, node, MEMORY, slot),
                        cpu_parameters(stage, node, ADDITIVE_MEMORY), keep.dk, &to_memory);
    cpu_affine_backward(at.batch * at.length, at.in, at.hidden, cpu_in(stage, node, QUERIES, slot),
                        cpu_parameters(stage, node, ADDITIVE_QUERY), keep.dq, &to_queries);
    vector_gradients(stage, node, at.hidden, keep.du, is_first);
    return TY_OK;
}

const stage_kind cpu_additive_attention = {
    .build = additive_build,
    .forward = additive_forward,
    .backward = additive_backward,
};
