/* Additive attention to another sequence; cpu_additive.c defines it and its tensors. Probabilities
 * and the weight vector are floats in every precision; backward recomputes the input of the
 * tanh. */
#include "cuda_stage.h"

typedef struct additive {
    cuda_additive core;
    uint64_t in, rows, key_rows;
} additive;

enum { MEMORY, QUERIES }; /* inputs */

static additive additive_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const ty_workload *w = stage->options.workload;
    const cuda_additive core = {
        .batch = stage_batch(stage),
        .length = ty_layer_input_shape(w, node->layer_index, QUERIES)->dimensions[0],
        .keys = ty_layer_input_shape(w, node->layer_index, MEMORY)->dimensions[0],
        .features = a[TY_FEATURES],
        .hidden = a[TY_HIDDEN_FEATURES]};

    return (additive){.core = core,
                      .in = a[TY_IN_FEATURES],
                      .rows = core.batch * core.length,
                      .key_rows = core.batch * core.keys};
}

/* Tensors stored per slot. Gradients are stored only if backward is split in two; else they are
 * scratch, like the tensors of a single call. */
typedef struct memory {
    float *probabilities; /* [rows][keys] */
    char *q, *k;          /* [rows][hidden], [key_rows][hidden] */
    float *du;            /* [hidden] */
    char *dq, *dk;        /* as q and k */
    float *u;             /* [hidden] */
    float *dscores;       /* [rows][keys] */
    float *du_of_row;     /* [rows][hidden] */
} memory;

/* Splits `stash` and `scratch`, or counts if they are NULL. */
static memory memory_cut(const ty_stage_device *stage, const additive *at, void *stash,
                         void *scratch, uint64_t *stash_bytes, uint64_t *scratch_bytes)
{
    const uint64_t q = at->rows * at->core.hidden, k = at->key_rows * at->core.hidden;
    const uint64_t pairs = at->rows * at->core.keys;
    const bool splits = stage->options.splits_backward;
    cuda_cutter kept = {stash, 0}, own = {scratch, 0};
    memory m = {.probabilities = cuda_cut_off(&kept, pairs * sizeof(float)),
                .q = cuda_cut_off(&kept, q * stage->element),
                .k = cuda_cut_off(&kept, k * stage->element)};

    m.u = cuda_cut_off(&own, at->core.hidden * sizeof(float));
    m.dscores = cuda_cut_off(&own, pairs * sizeof(float));
    m.du_of_row = cuda_cut_off(&own, q * sizeof(float));
    m.du = cuda_cut_off(splits ? &kept : &own, at->core.hidden * sizeof(float));
    m.dq = cuda_cut_off(splits ? &kept : &own, q * stage->element);
    m.dk = cuda_cut_off(splits ? &kept : &own, k * stage->element);
    *stash_bytes = kept.used;
    *scratch_bytes = own.used;
    return m;
}

static memory memory_of(const ty_stage_device *stage, const stage_node *node, const additive *at,
                        uint32_t slot)
{
    uint64_t stash_bytes, scratch_bytes;

    return memory_cut(stage, at, node->stash[slot], stage->scratch, &stash_bytes, &scratch_bytes);
}

static ty_status additive_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const additive at = additive_of(stage, node);
    const uint64_t of_keys = cuda_affine_sums(at.key_rows, at.core.hidden);
    uint64_t sums = cuda_affine_sums(at.rows, at.core.hidden);

    (void)error;
    (void)memory_cut(stage, &at, NULL, NULL, &node->stash_bytes, &node->scratch_bytes);
    sums = of_keys > sums ? of_keys : sums;
    node->sum_floats = sums;
    return TY_OK;
}

static void vector_make(const ty_stage_device *stage, const stage_node *node, const additive *at,
                        float *u)
{
    cuda_additive_vector(at->core.hidden, cuda_parameters(stage, node, ADDITIVE_VECTOR),
                         cuda_parameters(stage, node, ADDITIVE_GAIN), u, stage->own->stream);
}

static ty_status additive_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  ty_error *error)
{
    const additive at = additive_of(stage, node);
    const memory m = memory_of(stage, node, &at, slot);
    const void *from = cuda_in(stage, node, MEMORY, slot);
    const cuda_affine keys = {.rows = at.key_rows,
                              .in = at.core.features,
                              .out = at.core.hidden,
                              .x = from,
                              .weight = cuda_weights(stage, node, ADDITIVE_MEMORY),
                              .y = m.k};
    const cuda_affine queries = {.rows = at.rows,
                                 .in = at.in,
                                 .out = at.core.hidden,
                                 .x = cuda_in(stage, node, QUERIES, slot),
                                 .weight = cuda_weights(stage, node, ADDITIVE_QUERY),
                                 .bias = cuda_weights(stage, node, ADDITIVE_BIAS),
                                 .y = m.q};

    TY_TRY(cuda_affine_forward(stage, &keys, error));
    TY_TRY(cuda_affine_forward(stage, &queries, error));
    vector_make(stage, node, &at, m.u);
    cuda_additive_forward(stage->own->type, &at.core, m.u, m.q, m.k, from, m.probabilities,
                          cuda_out(stage, node, slot), stage->own->stream);
    return TY_OK;
}

/* Gradients of the tanh's input and of the vector, and of the memory as values. */
static void pairs_backward(const ty_stage_device *stage, const stage_node *node, const additive *at,
                           const memory *m, uint32_t slot)
{
    const void *dy = cuda_out_gradient(stage, node);
    void *dmemory = cuda_in_gradient(stage, node, MEMORY);

    vector_make(stage, node, at, m->u);
    cuda_additive_backward(stage->own->type, &at->core, m->u, m->q, m->k,
                           cuda_in(stage, node, MEMORY, slot), m->probabilities, dy, m->dscores,
                           m->dq, m->dk, m->du_of_row, stage->own->stream);
    cuda_column_sums(CUDA_TYPE_FLOAT, at->rows, at->core.hidden, at->core.hidden, m->du_of_row,
                     false, m->du, stage->own->sums, stage->own->stream);
    if (dmemory != NULL)
        cuda_additive_memory(stage->own->type, &at->core, m->probabilities, dy, node->adds[MEMORY],
                             dmemory, stage->own->stream);
}

static ty_status additive_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   bool is_first, ty_error *error)
{
    const additive at = additive_of(stage, node);
    const memory m = memory_of(stage, node, &at, slot);
    const cuda_affine_gradient to_memory = {
        .rows = at.key_rows,
        .in = at.core.features,
        .out = at.core.hidden,
        .x = cuda_in(stage, node, MEMORY, slot),
        .weight = cuda_weights(stage, node, ADDITIVE_MEMORY),
        .dy = m.dk,
        .dweight = cuda_parameter_gradient(stage, node, ADDITIVE_MEMORY),
        .dx = cuda_in_gradient(stage, node, MEMORY),
        .adds_weight = stage_adds(node, ADDITIVE_MEMORY, is_first),
        .adds_x = true}; /* to its gradient as values */
    const cuda_affine_gradient to_queries = {
        .rows = at.rows,
        .in = at.in,
        .out = at.core.hidden,
        .x = cuda_in(stage, node, QUERIES, slot),
        .weight = cuda_weights(stage, node, ADDITIVE_QUERY),
        .dy = m.dq,
        .dweight = cuda_parameter_gradient(stage, node, ADDITIVE_QUERY),
        .dbias = cuda_parameter_gradient(stage, node, ADDITIVE_BIAS),
        .dx = cuda_in_gradient(stage, node, QUERIES),
        .adds_weight = stage_adds(node, ADDITIVE_QUERY, is_first),
        .adds_bias = stage_adds(node, ADDITIVE_BIAS, is_first),
        .adds_x = node->adds[QUERIES]};
    float *dv = cuda_parameter_gradient(stage, node, ADDITIVE_VECTOR);

    if (stage->part != STAGE_WEIGHTS)
        pairs_backward(stage, node, &at, &m, slot);
    TY_TRY(cuda_affine_backward(stage, &to_memory, error));
    TY_TRY(cuda_affine_backward(stage, &to_queries, error));
    if (dv != NULL)
        cuda_additive_vector_gradients(
            at.core.hidden, cuda_parameters(stage, node, ADDITIVE_VECTOR),
            cuda_parameters(stage, node, ADDITIVE_GAIN), m.du,
            stage_adds(node, ADDITIVE_VECTOR, is_first), dv,
            cuda_parameter_gradient(stage, node, ADDITIVE_GAIN), stage->own->stream);
    return TY_OK;
}

const stage_kind cuda_additive_attention = {.floats = STAGE_BIT(ADDITIVE_VECTOR) |
                                                      STAGE_BIT(ADDITIVE_GAIN),
                                            .build = additive_build,
                                            .forward = additive_forward,
                                            .backward = additive_backward};
