/* oneDNN 2 and 3, wrapped in the few calls that the CPU backend needs. */
#include "dnnl_wrap.h"
#include "ty_base.h"

#include <assert.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <stdatomic.h>
#include <string.h>

/* oneDNN uses the threads of the OpenMP it was built with, if any. Looking up the function in the
 * running process avoids a build dependency on one of them. */
void cpu_single_thread(void)
{
    static _Atomic(void *) cached; /* a symbol's address: the same on every lookup */
    void *symbol = atomic_load_explicit(&cached, memory_order_relaxed);
    void (*set_threads)(int);

    if (symbol == NULL) {
        symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
        if (symbol == NULL)
            return;
        atomic_store_explicit(&cached, symbol, memory_order_relaxed);
    }
    memcpy(&set_threads, &symbol, sizeof set_threads);
    set_threads(1);
}

void cpu_gemm(bool is_a_transposed, bool is_b_transposed, uint64_t m, uint64_t n, uint64_t k,
              float alpha, const float *a, uint64_t a_stride, const float *b, uint64_t b_stride,
              float beta, float *c, uint64_t c_stride)
{
    /* It fails for bad arguments and when memory for packing runs out (a few MiB). A training step
     * cannot continue after either. */
    dnnl_status_t done =
        dnnl_sgemm(is_a_transposed ? 'T' : 'N', is_b_transposed ? 'T' : 'N', (dnnl_dim_t)m,
                   (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a, (dnnl_dim_t)a_stride, b,
                   (dnnl_dim_t)b_stride, beta, c, (dnnl_dim_t)c_stride);
    assert(done == dnnl_success);
    (void)done;
}

/* ---- Descriptions of arrays ---- */

/* How an array is blocked: innermost, from the outer to the inner, `count` blocks, each of a given
 * number of elements along a dimension; around them the blocks of each dimension by its stride.
 * Borrowed from the description. */
typedef struct blocking {
    int count;
    const dnnl_dim_t *sizes, *of, *strides;
} blocking;

/* In oneDNN 2 a description of an array is a struct, passed by address; in 3 it is a handle that is
 * created and destroyed. */
#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *array_view;

static dnnl_status_t array_init(dnnl_memory_desc_t *array, int dimensions, const dnnl_dims_t sizes,
                                dnnl_format_tag_t layout)
{
    return dnnl_memory_desc_init_by_tag(array, dimensions, sizes, dnnl_f32, layout);
}

static array_view array_at(const dnnl_memory_desc_t *array)
{
    return array;
}

static void array_clear(dnnl_memory_desc_t *array)
{
    (void)array;
}

static bool array_blocking(array_view array, blocking *out)
{
    const dnnl_blocking_desc_t *b = &array->format_desc.blocking;

    if (array->format_kind != dnnl_blocked)
        return false;
    *out = (blocking){.count = b->inner_nblks,
                      .sizes = b->inner_blks,
                      .of = b->inner_idxs,
                      .strides = b->strides};
    return true;
}

static dnnl_status_t relu_append(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_eltwise(after, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}
#else
typedef const_dnnl_memory_desc_t array_view;

static dnnl_status_t array_init(dnnl_memory_desc_t *array, int dimensions, const dnnl_dims_t sizes,
                                dnnl_format_tag_t layout)
{
    return dnnl_memory_desc_create_with_tag(array, dimensions, sizes, dnnl_f32, layout);
}

static array_view array_at(const dnnl_memory_desc_t *array)
{
    return *array;
}

static void array_clear(dnnl_memory_desc_t *array)
{
    dnnl_memory_desc_destroy(*array);
}

static bool array_blocking(array_view array, blocking *out)
{
    const dnnl_dims_t *sizes, *of, *strides;
    int count;

    if (dnnl_memory_desc_query(array, dnnl_query_inner_nblks_s32, &count) != dnnl_success ||
        dnnl_memory_desc_query(array, dnnl_query_inner_blks, &sizes) != dnnl_success ||
        dnnl_memory_desc_query(array, dnnl_query_inner_idxs, &of) != dnnl_success ||
        dnnl_memory_desc_query(array, dnnl_query_strides, &strides) != dnnl_success)
        return false;
    *out = (blocking){.count = count, .sizes = *sizes, .of = *of, .strides = *strides};
    return true;
}

static dnnl_status_t relu_append(dnnl_post_ops_t after)
{
    return dnnl_post_ops_append_eltwise(after, dnnl_eltwise_relu, 0.0f, 0.0f);
}
#endif

/* ---- Convolution ---- */

/* oneDNN chooses its own layout for weights, so each pass reorders them from or to ours. */
typedef enum conv_pass { PASS_FORWARD, PASS_WEIGHTS, PASS_DATA, PASS_COUNT } conv_pass;

#define WEIGHT_DIMENSIONS 5 /* group, out, in, row, column */

/* Offsets of weights in a padded layout of oneDNN's: the summand of each index of each dimension,
 * index after index, dimension after dimension. */
typedef struct placement {
    uint64_t bytes; /* padding included */
    uint64_t sizes[WEIGHT_DIMENSIONS];
    uint64_t *adds[WEIGHT_DIMENSIONS]; /* into `all` */
    uint64_t *all;
} placement;

typedef struct pass {
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_memory_t blocked; /* weights or their gradient in oneDNN's layout; NULL: in ours */
    dnnl_primitive_t reorder;
    placement places; /* of `blocked`, instead of `reorder`, if it is padded */
} pass;

struct cpu_conv {
    cpu_conv_shape shape;
    const char *name; /* borrowed: the layer's */
    uint64_t scratch_bytes;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_desc_t source, target, weight, bias;
    dnnl_memory_desc_t any_weight; /* in whatever layout is fastest */
    dnnl_memory_t source_memory, target_memory, weight_memory, bias_memory;
    pass passes[PASS_COUNT];
};

static ty_status dnnl_result(const char *name, dnnl_status_t result, const char *what,
                             ty_error *error)
{
    if (result == dnnl_success)
        return TY_OK;
    return ty_fail(error, result == dnnl_out_of_memory ? TY_ENOMEM : TY_EBACKEND,
                   "layer %s: oneDNN failed with status %d: %s", name, (int)result, what);
}

#define DNNL_CHECK(call, conv, status, label)                                                      \
    TY_CHECK(dnnl_result((conv)->name, (call), #call, error), status, label)

static ty_status descriptions_make(cpu_conv *conv, ty_error *error)
{
    const cpu_conv_shape *s = &conv->shape;
    dnnl_dim_t groups = (dnnl_dim_t)s->groups;
    dnnl_dim_t out = (dnnl_dim_t)s->out_channels, in = (dnnl_dim_t)s->in_channels;
    dnnl_dims_t source = {(dnnl_dim_t)s->batch, in, (dnnl_dim_t)s->in_height,
                          (dnnl_dim_t)s->in_width};
    dnnl_dims_t target = {(dnnl_dim_t)s->batch, out, (dnnl_dim_t)s->out_height,
                          (dnnl_dim_t)s->out_width};
    dnnl_dims_t weight = {out, in, (dnnl_dim_t)s->kernel_height, (dnnl_dim_t)s->kernel_width};
    dnnl_dims_t grouped = {groups, out / groups, in / groups, (dnnl_dim_t)s->kernel_height,
                           (dnnl_dim_t)s->kernel_width};
    dnnl_dims_t bias = {out};
    ty_status status = TY_OK;

    int dimensions = groups == 1 ? 4 : 5;

    DNNL_CHECK(array_init(&conv->source, 4, source, dnnl_nhwc), conv, status, done);
    DNNL_CHECK(array_init(&conv->target, 4, target, dnnl_nhwc), conv, status, done);
    DNNL_CHECK(array_init(&conv->weight, dimensions, groups == 1 ? weight : grouped,
                          groups == 1 ? dnnl_oihw : dnnl_goihw),
               conv, status, done);
    DNNL_CHECK(array_init(&conv->any_weight, dimensions, groups == 1 ? weight : grouped,
                          dnnl_format_tag_any),
               conv, status, done);
    DNNL_CHECK(array_init(&conv->bias, 1, bias, dnnl_a), conv, status, done);
done:
    return status;
}

/* oneDNN's choice of the fastest algorithm for a pass, with any layout of weights. A backward pass
 * is created for its forward pass. */
static dnnl_status_t fastest_make(const cpu_conv *conv, conv_pass which,
                                  const_dnnl_primitive_attr_t attributes,
                                  dnnl_primitive_desc_t *out)
{
    const cpu_conv_shape *s = &conv->shape;
    const_dnnl_primitive_desc_t forward = conv->passes[PASS_FORWARD].description;
    array_view source = array_at(&conv->source), target = array_at(&conv->target);
    array_view weight = array_at(&conv->any_weight);
    array_view bias = s->has_bias ? array_at(&conv->bias) : NULL;
    dnnl_dims_t strides = {(dnnl_dim_t)s->stride, (dnnl_dim_t)s->stride};
    dnnl_dims_t padding = {(dnnl_dim_t)s->padding_height, (dnnl_dim_t)s->padding_width};
#if DNNL_VERSION_MAJOR < 3
    dnnl_convolution_desc_t operation;
    dnnl_status_t result;

    if (which == PASS_FORWARD)
        result = dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training,
                                                    dnnl_convolution_direct, source, weight, bias,
                                                    target, strides, padding, padding);
    else if (which == PASS_WEIGHTS)
        result = dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct,
                                                             source, weight, bias, target, strides,
                                                             padding, padding);
    else
        result = dnnl_convolution_backward_data_desc_init(
            &operation, dnnl_convolution_direct, source, weight, target, strides, padding, padding);
    if (result != dnnl_success)
        return result;
    return dnnl_primitive_desc_create(out, &operation, attributes, conv->engine, forward);
#else
    const dnnl_dims_t dense = {0, 0}; /* no holes in the kernel */

    if (which == PASS_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            out, conv->engine, dnnl_forward_training, dnnl_convolution_direct, source, weight, bias,
            target, strides, dense, padding, padding, attributes);
    if (which == PASS_WEIGHTS)
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, conv->engine, dnnl_convolution_direct, source, weight, bias, target, strides,
            dense, padding, padding, forward, attributes);
    return dnnl_convolution_backward_data_primitive_desc_create(
        out, conv->engine, dnnl_convolution_direct, source, weight, target, strides, dense, padding,
        padding, forward, attributes);
#endif
}

#if DNNL_VERSION_MAJOR < 3
static dnnl_status_t description_make(const cpu_conv *conv, conv_pass which,
                                      const_dnnl_primitive_attr_t attributes,
                                      dnnl_primitive_desc_t *out)
{
    return fastest_make(conv, which, attributes, out);
}
#else
#define WHOLE_CHANNELS 16 /* floats of the widest vector registers */

/* oneDNN writes gradients of one-pixel kernels with strides past the end of its working memory if
 * channels do not fill a block (https://github.com/uxlfoundation/oneDNN/issues/6035). */
static bool writes_past_end(const cpu_conv_shape *s, const_dnnl_primitive_desc_t description)
{
    const char *name = NULL;

    return s->kernel_height == 1 && s->kernel_width == 1 && s->stride > 1 &&
           s->in_channels / s->groups % WHOLE_CHANNELS != 0 &&
           dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) ==
               dnnl_success &&
           strncmp(name, "jit_1x1", 7) == 0;
}

static dnnl_status_t description_make(const cpu_conv *conv, conv_pass which,
                                      const_dnnl_primitive_attr_t attributes,
                                      dnnl_primitive_desc_t *out)
{
    dnnl_status_t result = fastest_make(conv, which, attributes, out);

    while (result == dnnl_success && which == PASS_WEIGHTS && writes_past_end(&conv->shape, *out))
        result = dnnl_primitive_desc_next_impl(*out);
    return result;
}
#endif

/* Summand of index `i` along a dimension in an element's offset. */
static uint64_t place_of(const blocking *b, int dimension, uint64_t i)
{
    uint64_t place = 0, stride = 1;

    for (int k = b->count; k-- > 0; stride *= (uint64_t)b->sizes[k])
        if (b->of[k] == dimension) {
            place += i % (uint64_t)b->sizes[k] * stride;
            i /= (uint64_t)b->sizes[k];
        }
    return place + i * (uint64_t)b->strides[dimension];
}

static ty_status placement_make(const cpu_conv *conv, array_view blocked, placement *at,
                                ty_error *error)
{
    const cpu_conv_shape *s = &conv->shape;
    const int first = s->groups == 1 ? 1 : 0; /* without groups the array has four dimensions */
    uint64_t count = 0;
    blocking b;

    if (!array_blocking(blocked, &b))
        return ty_fail(error, TY_EBACKEND,
                       "layer %s: oneDNN has its weights in a layout that is no blocks",
                       conv->name);
    *at = (placement){.bytes = dnnl_memory_desc_get_size(blocked),
                      .sizes = {s->groups, s->out_channels / s->groups, s->in_channels / s->groups,
                                s->kernel_height, s->kernel_width}};
    for (int d = 0; d < WEIGHT_DIMENSIONS; d++)
        count += at->sizes[d];
    at->all = ty_alloc(count, sizeof *at->all);
    if (at->all == NULL)
        return ty_fail(error, TY_ENOMEM, "layer %s: out of memory", conv->name);
    count = 0;
    for (int d = 0; d < WEIGHT_DIMENSIONS; count += at->sizes[d++]) {
        at->adds[d] = at->all + count;
        for (uint64_t i = 0; i < at->sizes[d] && d >= first; i++)
            at->adds[d][i] = place_of(&b, d - first, i);
    }
    return TY_OK;
}

/* oneDNN's own reorder, except for padded layouts: that of 3.7.2 (Debian 13) loses weights there
 * and leaves the padding unchanged. */
static ty_status reorder_make(cpu_conv *conv, pass *p, bool is_gradient, array_view blocked,
                              ty_error *error)
{
    array_view plain = array_at(&conv->weight);
    array_view from = is_gradient ? blocked : plain, to = is_gradient ? plain : blocked;
    dnnl_primitive_desc_t description = NULL;
    uint64_t bytes = dnnl_memory_desc_get_size(blocked);
    ty_status status = TY_OK;

    if (dnnl_memory_desc_equal(blocked, plain))
        return TY_OK;
    DNNL_CHECK(dnnl_memory_create(&p->blocked, blocked, conv->engine, DNNL_MEMORY_NONE), conv,
               status, cleanup);
    if (bytes > dnnl_memory_desc_get_size(plain)) {
        TY_CHECK(placement_make(conv, blocked, &p->places, error), status, cleanup);
    } else {
        DNNL_CHECK(dnnl_reorder_primitive_desc_create(&description, from, conv->engine, to,
                                                      conv->engine, NULL),
                   conv, status, cleanup);
        DNNL_CHECK(dnnl_primitive_create(&p->reorder, description), conv, status, cleanup);
    }
    if (bytes > conv->scratch_bytes)
        conv->scratch_bytes = bytes;

cleanup:
    dnnl_primitive_desc_destroy(description);
    return status;
}

static ty_status pass_make(cpu_conv *conv, conv_pass which, ty_error *error)
{
    pass *p = &conv->passes[which];
    bool is_gradient = which == PASS_WEIGHTS;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    ty_status status = TY_OK;

    DNNL_CHECK(dnnl_primitive_attr_create(&attributes), conv, status, cleanup);
    if (which == PASS_FORWARD && conv->shape.has_relu) {
        DNNL_CHECK(dnnl_post_ops_create(&after), conv, status, cleanup);
        DNNL_CHECK(relu_append(after), conv, status, cleanup);
        DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attributes, after), conv, status, cleanup);
    }
    DNNL_CHECK(description_make(conv, which, attributes, &p->description), conv, status, cleanup);
    DNNL_CHECK(dnnl_primitive_create(&p->primitive, p->description), conv, status, cleanup);
    status = reorder_make(
        conv, p, is_gradient,
        dnnl_primitive_desc_query_md(
            p->description, is_gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0),
        error);

cleanup:
    dnnl_post_ops_destroy(after);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static ty_status memories_make(cpu_conv *conv, ty_error *error)
{
    ty_status status = TY_OK;

    DNNL_CHECK(dnnl_memory_create(&conv->source_memory, array_at(&conv->source), conv->engine,
                                  DNNL_MEMORY_NONE),
               conv, status, done);
    DNNL_CHECK(dnnl_memory_create(&conv->target_memory, array_at(&conv->target), conv->engine,
                                  DNNL_MEMORY_NONE),
               conv, status, done);
    DNNL_CHECK(dnnl_memory_create(&conv->weight_memory, array_at(&conv->weight), conv->engine,
                                  DNNL_MEMORY_NONE),
               conv, status, done);
    DNNL_CHECK(dnnl_memory_create(&conv->bias_memory, array_at(&conv->bias), conv->engine,
                                  DNNL_MEMORY_NONE),
               conv, status, done);
done:
    return status;
}

ty_status cpu_conv_open(const cpu_conv_shape *shape, const char *name, cpu_conv **out,
                        ty_error *error)
{
    cpu_conv *conv = ty_alloc(1, sizeof *conv);
    ty_status status = TY_OK;

    if (conv == NULL)
        return ty_fail(error, TY_ENOMEM, "layer %s: out of memory", name);
    conv->shape = *shape;
    conv->name = name;
    DNNL_CHECK(dnnl_engine_create(&conv->engine, dnnl_cpu, 0), conv, status, cleanup);
    DNNL_CHECK(dnnl_stream_create(&conv->stream, conv->engine, dnnl_stream_default_flags), conv,
               status, cleanup);
    TY_CHECK(descriptions_make(conv, error), status, cleanup);
    TY_CHECK(memories_make(conv, error), status, cleanup);
    TY_CHECK(pass_make(conv, PASS_FORWARD, error), status, cleanup);
    if (shape->has_weight_gradient)
        TY_CHECK(pass_make(conv, PASS_WEIGHTS, error), status, cleanup);
    if (shape->has_input_gradient)
        TY_CHECK(pass_make(conv, PASS_DATA, error), status, cleanup);
    *out = conv;
    conv = NULL; /* given away */

cleanup:
    cpu_conv_close(conv);
    return status;
}

void cpu_conv_close(cpu_conv *conv)
{
    if (conv == NULL)
        return;
    for (int i = 0; i < PASS_COUNT; i++) {
        dnnl_primitive_destroy(conv->passes[i].primitive);
        dnnl_primitive_desc_destroy(conv->passes[i].description);
        dnnl_primitive_destroy(conv->passes[i].reorder);
        dnnl_memory_destroy(conv->passes[i].blocked);
        ty_free(conv->passes[i].places.all);
    }
    dnnl_memory_destroy(conv->source_memory);
    dnnl_memory_destroy(conv->target_memory);
    dnnl_memory_destroy(conv->weight_memory);
    dnnl_memory_destroy(conv->bias_memory);
    array_clear(&conv->source);
    array_clear(&conv->target);
    array_clear(&conv->weight);
    array_clear(&conv->any_weight);
    array_clear(&conv->bias);
    dnnl_stream_destroy(conv->stream);
    dnnl_engine_destroy(conv->engine);
    ty_free(conv);
}

uint64_t cpu_conv_scratch_bytes(const cpu_conv *conv)
{
    return conv->scratch_bytes;
}

/* oneDNN's handles are not const, although it does not change data that it only reads. */
static dnnl_memory_t memory_at(dnnl_memory_t memory, const void *data)
{
    void *handle;
    memcpy(&handle, &data, sizeof handle);
    dnnl_memory_set_data_handle(memory, handle);
    return memory;
}

/* Copies weights to oneDNN's layout or from it; the plain layout has element after element. */
static void weights_move(const placement *at, bool is_back, float *blocked, float *plain)
{
    const uint64_t *rows = at->adds[3], *columns = at->adds[4];

    for (uint64_t g = 0; g < at->sizes[0]; g++)
        for (uint64_t o = 0; o < at->sizes[1]; o++)
            for (uint64_t i = 0; i < at->sizes[2]; i++) {
                float *of_pair = blocked + at->adds[0][g] + at->adds[1][o] + at->adds[2][i];
                for (uint64_t h = 0; h < at->sizes[3]; h++)
                    for (uint64_t w = 0; w < at->sizes[4]; w++, plain++) {
                        float *place = of_pair + rows[h] + columns[w];
                        *(is_back ? plain : place) = *(is_back ? place : plain);
                    }
            }
}

static ty_status reorder(cpu_conv *conv, const pass *p, dnnl_memory_t from, dnnl_memory_t to,
                         ty_error *error)
{
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    return dnnl_result(conv->name, dnnl_primitive_execute(p->reorder, conv->stream, 2, arguments),
                       "reordering weights", error);
}

/* The weights in the pass's layout. */
static ty_status weights_prepare(cpu_conv *conv, const pass *p, const float *weight, void *scratch,
                                 dnnl_memory_t *out, ty_error *error)
{
    dnnl_memory_t plain = memory_at(conv->weight_memory, weight);
    void *handle;

    *out = p->blocked == NULL ? plain : memory_at(p->blocked, scratch);
    if (p->reorder != NULL)
        return reorder(conv, p, plain, *out, error);
    if (p->blocked != NULL) {
        memset(scratch, 0, p->places.bytes);     /* padding adds 0 to sums */
        memcpy(&handle, &weight, sizeof handle); /* only read */
        weights_move(&p->places, false, scratch, handle);
    }
    return TY_OK;
}

ty_status cpu_conv_forward(cpu_conv *conv, const float *x, const float *weight, const float *bias,
                           float *y, void *scratch, ty_error *error)
{
    const pass *p = &conv->passes[PASS_FORWARD];
    dnnl_memory_t weights;
    ty_status status = weights_prepare(conv, p, weight, scratch, &weights, error);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, memory_at(conv->source_memory, x)},
                                   {DNNL_ARG_DST, memory_at(conv->target_memory, y)},
                                   {DNNL_ARG_WEIGHTS, weights},
                                   {DNNL_ARG_BIAS, memory_at(conv->bias_memory, bias)}};

    if (status != TY_OK)
        return status;
    return dnnl_result(
        conv->name,
        dnnl_primitive_execute(p->primitive, conv->stream, conv->shape.has_bias ? 4 : 3, arguments),
        "convolution", error);
}

ty_status cpu_conv_backward_weights(cpu_conv *conv, const float *x, const float *dy, float *dw,
                                    float *db, void *scratch, ty_error *error)
{
    const pass *p = &conv->passes[PASS_WEIGHTS];
    dnnl_memory_t plain = memory_at(conv->weight_memory, dw);
    dnnl_memory_t gradient = p->blocked == NULL ? plain : memory_at(p->blocked, scratch);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, memory_at(conv->source_memory, x)},
                                   {DNNL_ARG_DIFF_DST, memory_at(conv->target_memory, dy)},
                                   {DNNL_ARG_DIFF_WEIGHTS, gradient},
                                   {DNNL_ARG_DIFF_BIAS, memory_at(conv->bias_memory, db)}};
    ty_status status = dnnl_result(
        conv->name,
        dnnl_primitive_execute(p->primitive, conv->stream, conv->shape.has_bias ? 4 : 3, arguments),
        "gradient of weights", error);

    if (status != TY_OK || p->blocked == NULL)
        return status;
    if (p->reorder != NULL)
        return reorder(conv, p, gradient, plain, error);
    weights_move(&p->places, true, scratch, dw);
    return TY_OK;
}

ty_status cpu_conv_backward_data(cpu_conv *conv, const float *dy, const float *weight, float *dx,
                                 void *scratch, ty_error *error)
{
    const pass *p = &conv->passes[PASS_DATA];
    dnnl_memory_t weights;
    ty_status status = weights_prepare(conv, p, weight, scratch, &weights, error);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_DIFF_SRC, memory_at(conv->source_memory, dx)},
                                   {DNNL_ARG_DIFF_DST, memory_at(conv->target_memory, dy)},
                                   {DNNL_ARG_WEIGHTS, weights}};

    if (status != TY_OK)
        return status;
    return dnnl_result(conv->name, dnnl_primitive_execute(p->primitive, conv->stream, 3, arguments),
                       "gradient of the input", error);
}
