/* Attention as graphs of cuDNN's operations. Forward is softmax(scale Q K' + mask) V with an
 * explicit softmax. Backward recomputes scores from the log-sums (Dao, "FlashAttention-2", 2023,
 * section 3.1). The guide to cuDNN's graph API, under "Fused Attention", has the operations, order
 * and types that its fused kernels accept.
 *
 * Backward has two forms. The ordered one stores the gradients of the scores in memory, in 16 bits.
 * Two products read them; the second, a separate kernel, sums the gradients of queries in a fixed
 * order. The other form adds these atomically, in floats, to memory that the caller passes and
 * cuDNN clears. Both use the same engine, whose notes do not distinguish them. */
#include "cuda_dnn.h"
#include "gpu_scratch.h"

#include <float.h>

enum { FIRST_VERSION = 91600 }; /* earlier: another mask unless 128 divides keys */

/* Numbers of the tensors of a call; virtual tensors have higher numbers. */
enum {
    QUERY = 1,
    KEY,
    VALUE,
    CONTEXT,
    LOG_SUM,
    SCALE,
    MASKED,
    ONE,
    DCONTEXT,
    DELTA,
    DQUERY,
    DKEY,
    DVALUE,
    DQUERY_SUMS,
    CALLERS
};

struct cuda_dnn_attention {
    const cuda_dnn *dnn;
    cudnnHandle_t handle;
    uint32_t uses;
    cuda_attention asked;
    cuda_dnn_plan forward, backward;
};

typedef cudnnBackendDescriptor_t descriptor;
typedef cuda_dnn_layout layout;

/* A request and its graph under construction. */
typedef struct builder {
    cuda_dnn_graph graph;
    cudnnDataType_t type;
    int64_t batch, heads, kv_heads, length, keys, size;
    int64_t next; /* number of a tensor */
} builder;

/* ---- Tensors ---- */

static descriptor tensor_make(builder *b, int64_t number, cudnnDataType_t type, layout at)
{
    return cuda_dnn_tensor(&b->graph, number, type, &at, CUDA_DNN_REAL);
}

static descriptor number_make(builder *b, int64_t number)
{
    static const layout alone = {{1, 1, 1, 1}, {1, 1, 1, 1}};

    return cuda_dnn_tensor(&b->graph, number, CUDNN_DATA_FLOAT, &alone, CUDA_DNN_VALUE);
}

static descriptor virtual_make(builder *b, cudnnDataType_t type, layout at)
{
    return cuda_dnn_tensor(&b->graph, b->next++, type, &at, CUDA_DNN_VIRTUAL);
}

/* Row-major, of all query heads. */
static layout packed(const builder *b, int64_t rows, int64_t columns)
{
    return (layout){{b->batch, b->heads, rows, columns},
                    {b->heads * rows * columns, rows * columns, columns, 1}};
}

static layout scores(const builder *b)
{
    return packed(b, b->length, b->keys);
}

static layout transposed(layout of)
{
    const layout back = of;

    for (int i = 2; i < CUDA_DNN_AXES; i++) {
        of.sizes[i] = back.sizes[5 - i];
        of.strides[i] = back.strides[5 - i];
    }
    return of;
}

/* Heads in rows `stride` elements apart. */
static layout heads_of(const builder *b, int64_t heads, int64_t length, uint64_t stride)
{
    return (layout){{b->batch, heads, length, b->size},
                    {length * (int64_t)stride, b->size, (int64_t)stride, 1}};
}

/* ---- Operations ---- */

/* `axis` is the axis of a mode that has one. */
typedef struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    descriptor x, other, choice; /* the latter may be NULL */
    int64_t axis;
} pointwise;

static descriptor pointwise_make(builder *b, const pointwise *p, descriptor y)
{
    const descriptor kind = cuda_dnn_make(&b->graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor made;

    cuda_dnn_set(&b->graph, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                 &p->mode);
    cuda_dnn_set_type(&b->graph, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, p->math);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        cuda_dnn_set(&b->graph, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    cuda_dnn_finalize(&b->graph, kind);
    made = cuda_dnn_make(&b->graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    if (p->other != NULL)
        cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->other);
    if (p->choice != NULL)
        cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->choice);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    cuda_dnn_operation(&b->graph, made);
    return y;
}

/* y = x <mode> other, in floats; other may be NULL. */
static descriptor combine(builder *b, cudnnPointwiseMode_t mode, descriptor x, descriptor other,
                          descriptor y)
{
    return pointwise_make(
        b, &(pointwise){.mode = mode, .math = CUDNN_DATA_FLOAT, .x = x, .other = other}, y);
}

static descriptor reduce(builder *b, cudnnReduceTensorOp_t operator, descriptor x, descriptor y)
{
    const descriptor kind = cuda_dnn_make(&b->graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    descriptor made;

    cuda_dnn_set(&b->graph, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                 1, &operator);
    cuda_dnn_set_type(&b->graph, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_finalize(&b->graph, kind);
    made = cuda_dnn_make(&b->graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    cuda_dnn_operation(&b->graph, made);
    return y;
}

static descriptor multiply(builder *b, descriptor x, descriptor y, descriptor product)
{
    const descriptor kind = cuda_dnn_make(&b->graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    descriptor made;

    cuda_dnn_set_type(&b->graph, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_finalize(&b->graph, kind);
    made = cuda_dnn_make(&b->graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, product);
    cuda_dnn_operation(&b->graph, made);
    return product;
}

/* The same numbers in another order of rows and columns. */
static descriptor reshape(builder *b, descriptor x, cudnnDataType_t type, layout at)
{
    const descriptor y = virtual_make(b, type, at);
    const descriptor made = cuda_dnn_make(&b->graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    cuda_dnn_link(&b->graph, made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    cuda_dnn_operation(&b->graph, made);
    return y;
}

/* ---- Common to both directions ---- */

/* Scores after scaling. */
static descriptor scores_make(builder *b, descriptor query, descriptor key_columns)
{
    const descriptor raw =
        multiply(b, query, key_columns, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));

    return combine(b, CUDNN_POINTWISE_MUL, raw, number_make(b, SCALE),
                   virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
}

/* Sets scores of keys after their query to the lowest number. */
static descriptor mask(builder *b, descriptor x)
{
    const descriptor row = virtual_make(b, CUDNN_DATA_INT32, scores(b));
    const descriptor column = virtual_make(b, CUDNN_DATA_INT32, scores(b));
    const descriptor is_seen = virtual_make(b, CUDNN_DATA_BOOLEAN, scores(b));
    pointwise index = {
        .mode = CUDNN_POINTWISE_GEN_INDEX, .math = CUDNN_DATA_INT32, .x = x, .axis = 2};

    pointwise_make(b, &index, row);
    index.axis = 3;
    pointwise_make(b, &index, column);
    pointwise_make(
        b,
        &(pointwise){
            .mode = CUDNN_POINTWISE_CMP_GE, .math = CUDNN_DATA_BOOLEAN, .x = row, .other = column},
        is_seen);
    return pointwise_make(b,
                          &(pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                       .math = CUDNN_DATA_FLOAT,
                                       .x = x,
                                       .other = number_make(b, MASKED),
                                       .choice = is_seen},
                          virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
}

/* ---- Forward ---- */

static void forward_make(builder *b, const cuda_attention *a)
{
    const layout rows = packed(b, b->length, 1);
    const layout keys = heads_of(b, b->kv_heads, b->keys, a->key_stride);
    const descriptor query =
        tensor_make(b, QUERY, b->type, heads_of(b, b->heads, b->length, a->stride));
    const descriptor key = tensor_make(b, KEY, b->type, transposed(keys));
    const descriptor value = tensor_make(b, VALUE, b->type, keys);
    const descriptor context =
        tensor_make(b, CONTEXT, b->type, heads_of(b, b->heads, b->length, a->context_stride));
    const descriptor log_sums = tensor_make(b, LOG_SUM, CUDNN_DATA_FLOAT, rows);
    descriptor x = scores_make(b, query, key), most, sums;

    if (a->is_causal)
        x = mask(b, x);
    most = reduce(b, CUDNN_REDUCE_TENSOR_MAX, x, virtual_make(b, CUDNN_DATA_FLOAT, rows));
    x = combine(b, CUDNN_POINTWISE_SUB, x, most, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_EXP, x, NULL, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    sums = reduce(b, CUDNN_REDUCE_TENSOR_ADD, x, virtual_make(b, CUDNN_DATA_FLOAT, rows));
    combine(b, CUDNN_POINTWISE_ADD, most,
            combine(b, CUDNN_POINTWISE_LOG, sums, NULL, virtual_make(b, CUDNN_DATA_FLOAT, rows)),
            log_sums);
    x = combine(b, CUDNN_POINTWISE_DIV, x, sums, virtual_make(b, b->type, scores(b)));
    multiply(b, x, value, context);
}

/* ---- Backward ---- */

/* Sums a product over the query heads that share a key head; with one query head per key head, the
 * product itself. */
static void heads_sum(builder *b, descriptor x, descriptor y, descriptor to)
{
    if (b->heads == b->kv_heads)
        multiply(b, x, y, to);
    else
        reduce(b, CUDNN_REDUCE_TENSOR_ADD,
               multiply(b, x, y, virtual_make(b, b->type, packed(b, b->keys, b->size))), to);
}

static void backward_make(builder *b, const cuda_attention *a)
{
    const layout rows = packed(b, b->length, 1);
    const layout queries = heads_of(b, b->heads, b->length, a->stride);
    const layout contexts = heads_of(b, b->heads, b->length, a->context_stride);
    const layout keys = heads_of(b, b->kv_heads, b->keys, a->key_stride);
    const descriptor query = tensor_make(b, QUERY, b->type, queries);
    const descriptor key = tensor_make(b, KEY, b->type, transposed(keys));
    const descriptor value = tensor_make(b, VALUE, b->type, transposed(keys));
    const descriptor context = tensor_make(b, CONTEXT, b->type, contexts);
    const descriptor log_sums = tensor_make(b, LOG_SUM, CUDNN_DATA_FLOAT, rows);
    const descriptor dcontext = tensor_make(b, DCONTEXT, b->type, contexts);
    const descriptor delta = tensor_make(b, DELTA, CUDNN_DATA_FLOAT, rows);
    const descriptor scale = number_make(b, SCALE);
    descriptor x, chances;

    /* Delta of every row: the sum of dO O. */
    x = combine(b, CUDNN_POINTWISE_MUL, dcontext, context,
                virtual_make(b, CUDNN_DATA_FLOAT, packed(b, b->length, b->size)));
    x = reduce(b, CUDNN_REDUCE_TENSOR_ADD, x, virtual_make(b, CUDNN_DATA_FLOAT, rows));
    combine(b, CUDNN_POINTWISE_MUL, x, number_make(b, ONE), delta);

    /* Probabilities again, and dV = P' dO. */
    x = multiply(b, query, key, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_MUL, x, scale, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_SUB, x, log_sums, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    if (a->is_causal)
        x = mask(b, x);
    chances =
        combine(b, CUDNN_POINTWISE_EXP, x, NULL, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    heads_sum(b, reshape(b, chances, b->type, transposed(scores(b))), dcontext,
              tensor_make(b, DVALUE, b->type, keys));

    /* dS = scale P (dO V' - delta), dK = dS' Q, dQ = dS K. */
    x = multiply(b, dcontext, value, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_SUB, x, delta, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_MUL, x, chances, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    x = combine(b, CUDNN_POINTWISE_MUL, x, scale, virtual_make(b, CUDNN_DATA_FLOAT, scores(b)));
    heads_sum(b, reshape(b, x, b->type, transposed(scores(b))), query,
              tensor_make(b, DKEY, b->type, keys));
    x = multiply(b, x, reshape(b, key, b->type, keys),
                 a->is_ordered ? tensor_make(b, DQUERY, b->type, queries)
                               : tensor_make(b, DQUERY_SUMS, CUDNN_DATA_FLOAT,
                                             packed(b, b->length, b->size)));
    if (!a->is_ordered)
        combine(b, CUDNN_POINTWISE_IDENTITY, x, NULL, tensor_make(b, DQUERY, b->type, queries));
}

/* ---- Plans ---- */

/* A graph of one direction, and its plan. */
static ty_status direction_make(const cuda_dnn_target *target, cuda_type type,
                                const cuda_attention *a,
                                void (*make)(builder *b, const cuda_attention *a),
                                cuda_dnn_plan *out, ty_error *error)
{
    const cuda_dnn_terms terms = {.workspace_bytes = TY_ATTENTION_SCRATCH_LIMIT,
                                  .refused_notes =
                                      CUDA_DNN_NOTE(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)};
    builder b = {.graph.target = target,
                 .type = cuda_dnn_type(type),
                 .batch = (int64_t)a->batch,
                 .heads = (int64_t)a->heads,
                 .kv_heads = (int64_t)a->kv_heads,
                 .length = (int64_t)a->length,
                 .keys = (int64_t)a->keys,
                 .size = (int64_t)a->head_size,
                 .next = CALLERS};

    make(&b, a);
    return cuda_dnn_plan_make(&b.graph, &terms, out, error);
}

/* Limits that cuDNN does not report: sizes with known errors in some versions, and devices whose
 * engines are not known to be deterministic. Source: cudnn-frontend, sdpa_support_surface.h. */
static ty_status attention_check(const cuda_dnn_target *target, cuda_type type,
                                 const cuda_attention *a, ty_error *error)
{
    const size_t version = target->dnn->cudnnGetVersion();

    if (type == CUDA_TYPE_FLOAT)
        return ty_fail(error, TY_EUNSUPPORTED, "cuDNN has it in 16 bits alone");
    if (a->head_size % 8 != 0)
        return ty_fail(error, TY_EUNSUPPORTED, "heads of %llu, cuDNN takes multiples of 8",
                       (unsigned long long)a->head_size);
    if (a->is_causal && a->length != a->keys)
        return ty_fail(error, TY_EUNSUPPORTED, "%llu queries see %llu keys in order",
                       (unsigned long long)a->length, (unsigned long long)a->keys);
    if (a->length == 1 && a->keys == 1)
        return ty_fail(error, TY_EUNSUPPORTED, "cuDNN does not take one token");
    if (target->capability < 80 || target->capability >= 100)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "compute capability %d.%d: cuDNN's is known to repeat on 8.x and 9.x",
                       target->capability / 10, target->capability % 10);
    if (version < FIRST_VERSION)
        return ty_fail(error, TY_EUNSUPPORTED, "found cuDNN %zu, expected %d or newer", version,
                       FIRST_VERSION);
    return TY_OK;
}

ty_status cuda_dnn_attention_new(const cuda_dnn_target *target, cuda_type type,
                                 const cuda_attention *attention, cuda_dnn_attention **out,
                                 ty_error *error)
{
    cuda_dnn_attention *made = NULL;
    ty_status status;

    TY_CHECK(attention_check(target, type, attention, error), status, done);
    made = ty_alloc(1, sizeof *made);
    TY_TRY(ty_check_memory(made != NULL, error));
    *made = (cuda_dnn_attention){
        .dnn = target->dnn, .handle = target->handle, .uses = 1, .asked = *attention};
    TY_CHECK(direction_make(target, type, attention, forward_make, &made->forward, error), status,
             done);
    TY_CHECK(direction_make(target, type, attention, backward_make, &made->backward, error), status,
             done);
    *out = made;
    made = NULL;
done:
    cuda_dnn_attention_free(made);
    return status;
}

void cuda_dnn_attention_free(cuda_dnn_attention *attention)
{
    if (attention == NULL || --attention->uses > 0)
        return;
    if (attention->forward.descriptor != NULL)
        attention->dnn->cudnnBackendDestroyDescriptor(attention->forward.descriptor);
    if (attention->backward.descriptor != NULL)
        attention->dnn->cudnnBackendDestroyDescriptor(attention->backward.descriptor);
    ty_free(attention);
}

bool cuda_dnn_attention_is_alike(const cuda_attention *a, const cuda_attention *b)
{
    return a->batch == b->batch && a->length == b->length && a->keys == b->keys &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_size == b->head_size &&
           a->stride == b->stride && a->key_stride == b->key_stride && a->key_at == b->key_at &&
           a->value_at == b->value_at && a->context_stride == b->context_stride &&
           a->scale == b->scale && a->is_causal == b->is_causal && a->is_ordered == b->is_ordered;
}

cuda_dnn_attention *cuda_dnn_attention_share(cuda_dnn_attention *attention)
{
    if (attention != NULL)
        attention->uses++;
    return attention;
}

uint64_t cuda_dnn_forward_workspace(const cuda_dnn_attention *attention)
{
    return attention->forward.workspace_bytes;
}

/* Bytes for sums of the gradients of queries, before cuDNN's workspace. */
static uint64_t sums_bytes(const cuda_attention *a)
{
    const uint64_t bytes = a->batch * a->heads * a->length * a->head_size * sizeof(float);

    return a->is_ordered ? 0 : (bytes + 255) / 256 * 256;
}

uint64_t cuda_dnn_backward_workspace(const cuda_dnn_attention *attention)
{
    return sums_bytes(&attention->asked) + attention->backward.workspace_bytes;
}

/* ---- Calls ---- */

static const float one = 1.0f, lowest = -FLT_MAX;

static const void *behind(const void *from, uint64_t elements)
{
    return (const char *)from + elements * sizeof(uint16_t);
}

/* Tensors that both directions read. */
static cuda_dnn_pack pack_begin(const cuda_attention *asked, const void *queries, const void *keys)
{
    cuda_dnn_pack p = {0};

    cuda_dnn_pack_add(&p, QUERY, queries);
    cuda_dnn_pack_add(&p, KEY, behind(keys, asked->key_at));
    cuda_dnn_pack_add(&p, VALUE, behind(keys, asked->value_at));
    cuda_dnn_pack_add(&p, SCALE, &asked->scale);
    if (asked->is_causal)
        cuda_dnn_pack_add(&p, MASKED, &lowest);
    return p;
}

ty_status cuda_dnn_attention_forward(const cuda_dnn_attention *attention, const void *queries,
                                     const void *keys, void *context, float *log_sums,
                                     void *workspace, ty_error *error)
{
    cuda_dnn_pack p = pack_begin(&attention->asked, queries, keys);

    cuda_dnn_pack_add(&p, CONTEXT, context);
    cuda_dnn_pack_add(&p, LOG_SUM, log_sums);
    return cuda_dnn_plan_run(attention->dnn, attention->handle, &attention->forward, &p, workspace,
                             error);
}

ty_status cuda_dnn_attention_backward(const cuda_dnn_attention *attention, const void *queries,
                                      const void *keys, const void *context, const float *log_sums,
                                      const void *dcontext, float *delta, void *dqueries,
                                      void *dkeys, void *workspace, ty_error *error)
{
    cuda_dnn_pack p = pack_begin(&attention->asked, queries, keys);

    cuda_dnn_pack_add(&p, ONE, &one);
    cuda_dnn_pack_add(&p, CONTEXT, context);
    cuda_dnn_pack_add(&p, LOG_SUM, log_sums);
    cuda_dnn_pack_add(&p, DCONTEXT, dcontext);
    cuda_dnn_pack_add(&p, DELTA, delta);
    cuda_dnn_pack_add(&p, DQUERY, dqueries);
    cuda_dnn_pack_add(&p, DKEY, behind(dkeys, attention->asked.key_at));
    cuda_dnn_pack_add(&p, DVALUE, behind(dkeys, attention->asked.value_at));
    if (!attention->asked.is_ordered)
        cuda_dnn_pack_add(&p, DQUERY_SUMS, workspace);
    return cuda_dnn_plan_run(attention->dnn, attention->handle, &attention->backward, &p,
                             (char *)workspace + sums_bytes(&attention->asked), error);
}
