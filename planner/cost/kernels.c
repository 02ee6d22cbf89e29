/* Layers as kernels. Symbols: e bytes of a number, t tensor-parallel ranks, c context-parallel
 * ranks; a rank has 1/c of each sequence, and 1/t of sharded layers. */
#include "kernels.h"

#include "convolution_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Backward of passes, against forward: with weights, each of the two gradients reads the output's
 * gradient and one factor; without, the input's gradient is written from the output's and one
 * stored tensor, three transfers for forward's two. */
#define BACKWARD_TRAFFIC_WITH_WEIGHTS 2.0
#define BACKWARD_TRAFFIC_WITHOUT 1.5
/* A fused attention recomputes its scores: five products for forward's two (Dao et al. 2022). */
#define SCORES_AGAIN 0.5
#define CAUSAL_SHARE 0.5 /* of the blocks that a fused attention computes */

/* Shape of a layer on one rank. */
typedef struct site {
    const ty_plan *plan;
    const ty_layer *layer;
    const ty_shape *input;
    double element;
    double samples;       /* of this rank */
    double t, c, experts; /* ranks */
    double divided;       /* 1/t if tensor-parallel ranks shard the layer */
    double along;         /* share of the sequence between sharded layers */
    bool has_dropout;
    double narrow; /* bytes of a number in a narrow product; 0: none */
    double cast;   /* numbers converted to a narrow format */
    ty_kernel *out;
    uint32_t count;
} site;

const ty_stack *ty_stack_of(const ty_plan *plan)
{
    static const ty_stack none = {.name = (char *)"none",
                                  .provenance = TY_DATASHEET,
                                  .product_share = TY_OF_DEVICE,
                                  .product_edge = TY_OF_DEVICE,
                                  .fp8_share = TY_OF_DEVICE,
                                  .fp4_share = TY_OF_DEVICE,
                                  .expert_share = 1,
                                  .attention_share = TY_OF_DEVICE,
                                  .attention_backward = TY_OF_DEVICE,
                                  .device_share = 1,
                                  .memory_share = TY_OF_DEVICE,
                                  .kernel_s = TY_OF_DEVICE,
                                  .traffic_share = 1,
                                  .cast_bytes = 3,
                                  .permutation_passes = 4,
                                  .optimizer_bytes = TY_OF_DEVICE,
                                  .host_link_share = 1,
                                  .network_share = 1,
                                  .transfer_share = 1,
                                  .loss_bytes = 8,
                                  .gradient_bytes = TY_GRADIENT_ELEMENT_BYTES,
                                  .compute_scale = 1,
                                  .overlaps_exchange = true};
    return plan->stack != NULL ? plan->stack : &none;
}

static double at(const site *s, ty_attribute attribute)
{
    return (double)s->layer->attributes[attribute];
}

static void add(site *s, ty_kernel kernel)
{
    if (s->count < TY_MOST_KERNELS)
        s->out[s->count++] = kernel;
}

static void add_product(site *s, double times, double m, double n, double k, double launches)
{
    add(s, (ty_kernel){.kind = TY_KERNEL_PRODUCT,
                       .times = times,
                       .m = m,
                       .n = n,
                       .k = k,
                       .flop = 2 * m * n * k,
                       .bytes = s->element * (m * k + k * n + m * n),
                       .launches = launches});
}

/* A product of weights: narrow if the precision is. */
static void add_weights(site *s, double times, double m, double n, double k, double launches)
{
    ty_kernel *added = &s->out[s->count];

    if (!(times > 0 && m > 0 && n > 0 && k > 0))
        return;
    add_product(s, times, m, n, k, launches);
    if (!(s->narrow > 0) || added == &s->out[s->count])
        return;
    added->is_narrow = true;
    added->bytes = s->narrow * (m * k + k * n) + s->element * m * n;
    s->cast += times * m * k;
}

static void add_pass(site *s, double bytes, double launches)
{
    add(s, (ty_kernel){.kind = TY_KERNEL_PASS,
                       .times = 1,
                       .bytes = bytes * ty_stack_of(s->plan)->traffic_share,
                       .launches = launches});
}

/* Rows of the first input, as a matrix over its last dimension. */
static double rows_of(const ty_shape *shape)
{
    return (double)ty_shape_elements(shape) /
           (double)shape->dimensions[shape->dimension_count > 0 ? shape->dimension_count - 1 : 0];
}

bool ty_attention_is_fused(const ty_stack *stack, ty_precision precision, const ty_layer *layer)
{
    if (stack->attention == TY_ATTENTION_OF_WORKLOAD)
        return layer->attributes[TY_IS_FUSED] > 0 ||
               (stack->memory == TY_MEMORY_WORKER && ty_precision_bytes(precision) == 2);
    return stack->attention == TY_ATTENTION_FUSED;
}

/* Scores of all heads of this rank: two products and the softmax between them, or one kernel. */
static void add_scores(site *s, double queries, double sources, double head, double value)
{
    /* Maximum number of keys of a query: all, those of a window, or
     * those that an indexer chooses. */
    const double most = at(s, TY_WINDOW) > 0 ? at(s, TY_WINDOW) : at(s, TY_CHOSEN_ROWS);
    const double keys = most > 0 ? fmin(sources, most) : sources;
    const double heads = at(s, TY_HEADS) * s->divided * s->samples;
    const uint32_t first = s->count;

    if (ty_attention_is_fused(ty_stack_of(s->plan), s->plan->workload->precision, s->layer)) {
        const double shown = at(s, TY_IS_CAUSAL) > 0 && keys >= sources ? CAUSAL_SHARE : 1;
        add(s, (ty_kernel){.kind = TY_KERNEL_ATTENTION,
                           .times = heads,
                           .m = queries,
                           .n = keys,
                           .k = head,
                           .flop = 2 * queries * keys * (head + value) * shown,
                           .bytes = s->element * (queries + keys) * (head + value),
                           .launches = 1});
    } else {
        add_product(s, heads, queries, keys, head, 1);
        add_product(s, heads, queries, value, keys, 1);
        /* Read and written by the softmax, and once more by dropout with its mask. */
        add_pass(s,
                 heads * queries * keys *
                     (2 * s->element + (s->has_dropout ? 2 * s->element + 1 : 0)),
                 1);
    }
    for (uint32_t i = first; i < s->count; i++)
        s->out[i].is_of_scores = true;
}

/* The indexer that chooses keys (DeepSeek-V3.2), unsharded on every rank: every query scores every
 * key, and only the sum of the scores over the heads is written and read. */
static void add_indexer(site *s, double tokens, double queries, double keys)
{
    const double heads = at(s, TY_INDEX_HEADS), size = at(s, TY_INDEX_HEAD_SIZE);
    const double latent = at(s, TY_QUERY_RANK), features = at(s, TY_FEATURES);

    if (!(heads > 0))
        return;
    add_weights(s, 1, tokens, heads * size, latent > 0 ? latent : features, 1);
    add_weights(s, 1, tokens, size + heads, features, 2);
    add(s, (ty_kernel){.kind = TY_KERNEL_PRODUCT,
                       .times = heads * s->samples,
                       .m = queries,
                       .n = keys,
                       .k = size,
                       .flop = 2 * queries * keys * size,
                       .bytes = s->element * (size * (queries + keys) + queries * keys / heads),
                       .launches = 1});
    add_pass(s, s->element * tokens * keys, 1);
}

static void attention(site *s)
{
    const double features = at(s, TY_FEATURES), heads = at(s, TY_HEADS);
    const double head = at(s, TY_HEAD_SIZE);
    const double value = at(s, TY_VALUE_HEAD_SIZE) > 0 ? at(s, TY_VALUE_HEAD_SIZE) : head;
    const double queries = heads * head, context = heads * value;
    const double keys = at(s, TY_KV_HEADS) * (head + value);
    const double key_rows = rows_of(s->input), query_rows = (double)s->layer->output.dimensions[0];
    const double tokens = s->samples * query_rows / s->c, sources = s->samples * key_rows / s->c;
    const double latent = at(s, TY_KV_RANK), query_latent = at(s, TY_QUERY_RANK);
    const double rotated = at(s, TY_ROTARY_SIZE), d = s->divided;
    const double gates = at(s, TY_HAS_GATE) * context;
    const bool is_one = s->layer->input_count < 2 && latent <= 0 && query_latent <= 0;

    if (is_one) {
        add_weights(s, 1, tokens, (queries + gates + keys) * d, features, 1);
    } else {
        /* Latents are unsharded on every rank; tensors computed from them are sharded. */
        if (query_latent > 0)
            add_weights(s, 1, tokens, query_latent, features, 2);
        add_weights(s, 1, tokens, queries * d, query_latent > 0 ? query_latent : features, 1);
        if (latent > 0)
            add_weights(s, 1, sources, latent + rotated, features, 2);
        add_weights(s, 1, sources, (latent > 0 ? keys - heads * rotated : keys) * d,
                    latent > 0 ? latent : features, 1);
        add_weights(s, 1, tokens, gates * d, features, 1);
    }
    add_indexer(s, tokens, query_rows / s->c, key_rows);
    add_scores(s, query_rows / s->c, key_rows, head, value);
    add_weights(s, 1, tokens, features, context * d, 1);
    /* Heads are concatenated for the scores, and split again. */
    add_pass(s, 2 * s->element * d * (tokens * (queries + context) + sources * keys),
             ty_stack_of(s->plan)->attention_kernels + 2 * at(s, TY_HAS_QK_NORM));
    if (gates > 0) /* the context is read with them, and written */
        add_pass(s, 3 * s->element * d * tokens * context, 1);
}

static void mlp_products(site *s, double times, double tokens, double features, double hidden)
{
    const double in = 1 + at(s, TY_IS_GATED);

    add_weights(s, times, tokens, in * hidden * s->divided, features, in);
    add_weights(s, times, tokens, features, hidden * s->divided, 1);
}

/* An activation function: read and written, and the gate of a gated one. */
static void add_activation(site *s, double tokens, double hidden, double launches)
{
    ty_kernel *added = &s->out[s->count];

    add_pass(s, (2 + at(s, TY_IS_GATED)) * s->element * tokens * hidden * s->divided, launches);
    if (added != &s->out[s->count])
        added->is_of_activation = true;
}

static void mlp(site *s)
{
    const double tokens = s->samples * rows_of(s->input) / s->c;

    mlp_products(s, 1, tokens, at(s, TY_FEATURES), at(s, TY_HIDDEN_FEATURES));
    add_activation(s, tokens, at(s, TY_HIDDEN_FEATURES), 1);
}

double ty_layer_hidden_features(const ty_layer *layer)
{
    const uint64_t *a = layer->attributes;

    return ty_layer_row_of(layer)->has_experts
               ? (double)(a[TY_EXPERTS_PER_TOKEN] * a[TY_HIDDEN_FEATURES] + a[TY_SHARED_FEATURES])
               : (double)a[TY_HIDDEN_FEATURES];
}

/* Each expert of a rank gets its share of the tokens of all its expert-parallel ranks. With latents
 * (Nemotron 3 Super), every rank projects its tokens to latents and back.
 */
static void moe(site *s)
{
    const double tokens = s->samples * rows_of(s->input) / s->c, all = at(s, TY_EXPERTS);
    const double chosen = at(s, TY_EXPERTS_PER_TOKEN), local = all / s->experts;
    const double shared = at(s, TY_SHARED_FEATURES), features = at(s, TY_FEATURES);
    const double latent = at(s, TY_LATENT_FEATURES), width = latent > 0 ? latent : features;
    uint32_t grouped;

    add_product(s, 1, tokens, all + at(s, TY_HAS_GATE), features, 2); /* and the choice */
    add_weights(s, 1, tokens, latent, features, 1);
    add_weights(s, 1, tokens, features, latent, 1);
    grouped = s->count;
    mlp_products(s, local, tokens * chosen / local, width, at(s, TY_HIDDEN_FEATURES));
    for (uint32_t i = grouped; i < s->count; i++)
        s->out[i].is_grouped = true;
    mlp_products(s, 1, tokens, features, shared);
    add_activation(s, tokens, ty_layer_hidden_features(s->layer), shared > 0 ? 2 : 1);
    add_pass(s,
             ty_stack_of(s->plan)->permutation_passes * s->element * tokens * s->along * chosen *
                 width,
             2);
}

/* A head over a vocabulary is never narrow. */
static void linear(site *s)
{
    const uint32_t index = (uint32_t)(s->layer - s->plan->workload->layers);

    if (ty_layer_tensor_split(s->plan->workload, index) == TY_SPLIT_VOCABULARY)
        s->narrow = 0;
    add_weights(s, 1, s->samples * rows_of(s->input) / s->c, at(s, TY_OUT_FEATURES) * s->divided,
                at(s, TY_IN_FEATURES), 1);
}

/* Masks of dropout are computed at the add of a residual. */
static void elementwise(site *s)
{
    const double share = s->along / s->c;
    const double masks = s->has_dropout && ty_layer_row_of(s->layer)->is_sum
                             ? (double)ty_shape_elements(&s->layer->output)
                             : 0;

    add_pass(s, s->samples * share * ((double)s->layer->traffic_bytes + masks),
             s->layer->kernel_count);
}

/* A stack may specify the bytes of a loss over a vocabulary, in both passes. */
static void loss(site *s)
{
    const double logits = s->samples * (double)ty_shape_elements(s->input) / s->c * s->divided;
    const bool is_known =
        ty_stack_of(s->plan)->logit_bytes > 0 && s->plan->workload->tokens_per_sample > 0;

    if (is_known)
        add(s,
            (ty_kernel){.kind = TY_KERNEL_PASS,
                        .times = 1,
                        .bytes = ty_stack_of(s->plan)->logit_bytes /
                                 (1 + BACKWARD_TRAFFIC_WITHOUT) * logits,
                        .launches = s->layer->kernel_count + ty_stack_of(s->plan)->loss_kernels});
    else
        add_pass(s, s->samples * (double)s->layer->traffic_bytes / s->c * s->divided,
                 s->layer->kernel_count);
}

/* A rank's share of a layer's forward. With unsharded tables on ranks, the rank with most tables
 * does more than an equal share; its look-ups are spread over all bags. */
static double look_up_share(const ty_plan *plan, uint32_t layer)
{
    const double share = ty_rank_work_share(plan, layer);
    ty_table_exchange tables;

    if (plan->table_shard != TY_TABLES_TABLE || !ty_layer_is_bag(&plan->workload->layers[layer]))
        return share;
    tables = ty_plan_tables(plan);
    return share * ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) * (double)tables.own_indices /
           (double)tables.indices;
}

/* Kinds with only flop and bytes known: one kernel for all of it. A table is read only at the rows
 * of a sample's indices, which its traffic includes. */
static void other(site *s)
{
    const uint32_t index = (uint32_t)(s->layer - s->plan->workload->layers);
    const double work = s->plan->micro_batch_size * look_up_share(s->plan, index);
    const double weights =
        ty_layer_has_table(s->layer)
            ? 0
            : (double)s->layer->parameter_bytes * ty_rank_parameter_share(s->plan, index);

    add(s, (ty_kernel){.kind = s->layer->forward_flop > 0 ? TY_KERNEL_PRODUCT : TY_KERNEL_PASS,
                       .times = 1,
                       .flop = work * s->layer->forward_flop,
                       .bytes = work * (double)s->layer->traffic_bytes + weights,
                       .launches = s->layer->kernel_count});
}

static void forward(site *s)
{
    static void (*const of_kind[TY_LAYER_KIND_COUNT])(site *) = {
        [TY_LAYER_LINEAR] = linear, [TY_LAYER_ATTENTION] = attention,        [TY_LAYER_MLP] = mlp,
        [TY_LAYER_MOE] = moe,       [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = loss,
    };

    if (of_kind[s->layer->kind] != NULL)
        of_kind[s->layer->kind](s);
    else if (ty_layer_row_of(s->layer)->is_pass)
        elementwise(s);
    else
        other(s);
    if (s->cast > 0)
        add(s, (ty_kernel){.kind = TY_KERNEL_PASS,
                           .times = 1,
                           .bytes = ty_stack_of(s->plan)->cast_bytes * s->cast});
}

/* Each product runs once for the gradient of each factor that needs one; passes move the bytes of
 * their gradients. Gradients of weights are added to the existing ones. */
static void turn_around(site *s)
{
    const ty_layer *l = s->layer;
    const uint32_t index = (uint32_t)(l - s->plan->workload->layers);
    const bool has_weights = l->parameter_bytes > 0 || l->tied_to != TY_NO_LAYER;
    const double products = l->forward_flop > 0 ? l->backward_flop / l->forward_flop : 0;
    const double traffic = has_weights ? BACKWARD_TRAFFIC_WITH_WEIGHTS : BACKWARD_TRAFFIC_WITHOUT;
    const double matrix =
        l->tied_to == TY_NO_LAYER ? 0 : at(s, TY_IN_FEATURES) * at(s, TY_OUT_FEATURES);
    const double weights = ((double)l->parameter_bytes / s->element + matrix) *
                           ty_rank_parameter_share(s->plan, index);

    for (uint32_t i = 0; i < s->count; i++) {
        ty_kernel *k = &s->out[i];
        k->launches *= has_weights ? 2 : 1;
        if (k->kind == TY_KERNEL_PASS)
            k->bytes *= traffic;
        else if (k->kind == TY_KERNEL_ATTENTION)
            k->times *= products > 0 ? products + SCORES_AGAIN : 0;
        else
            k->times *= products;
    }
    if (has_weights && ty_layer_is_trained(s->plan->workload, index))
        add(s, (ty_kernel){.kind = TY_KERNEL_PASS,
                           .times = 1,
                           .bytes = weights * ty_stack_of(s->plan)->accumulate_bytes});
}

uint32_t ty_layer_kernels(const ty_plan *plan, uint32_t layer, bool is_backward,
                          ty_kernel out[TY_MOST_KERNELS])
{
    const ty_tensor_split split = ty_layer_tensor_split(plan->workload, layer);
    const double tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    site s = {.plan = plan,
              .layer = &plan->workload->layers[layer],
              .input = ty_layer_input_shape(plan->workload, layer, 0),
              .element = plan->workload->element_bytes,
              .c = ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL),
              .experts = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
              .divided = split == TY_SPLIT_NONE || split == TY_SPLIT_SEQUENCE ? 1 : 1 / tensor,
              .along = plan->sequence_parallel ? 1 / tensor : 1,
              .has_dropout =
                  ty_stack_of(plan)->has_dropout && plan->workload->tokens_per_sample > 0,
              .narrow = ty_precision_narrow_bytes(plan->workload->precision),
              .out = out};

    s.samples = plan->micro_batch_size / s.experts;
    if (split != TY_SPLIT_SEQUENCE && split != TY_SPLIT_EXPERTS)
        s.along = 1;
    forward(&s);
    if (is_backward)
        turn_around(&s);
    return s.count;
}

/* ---- Seconds ------------------------------------------------------------------------------- */

static double of_device(double constant, double device)
{
    return constant < 0 ? device : constant;
}

/* The device's own figures, with a default for each that it lacks. */
static double said(double figure, double otherwise)
{
    return figure > 0 ? figure : otherwise;
}

ty_rates ty_rates_of(const ty_device_type *device, const ty_stack *stack, ty_precision precision)
{
#define ON(constant) ty_stack_on_device(stack, &stack->constant, device->name, device->generation)
    const bool is_narrow = ty_precision_is_narrow(precision),
               is_fp8 = precision == TY_PRECISION_FP8;
    const ty_precision wide = is_narrow ? TY_PRECISION_BF16 : precision;
    const double peak = ty_device_peak(device, wide), sustained = ON(device_share);
    const double narrow =
        said(is_fp8 ? device->fp8_efficiency : device->fp4_efficiency, device->matmul_efficiency);
    const double attention = ty_precision_bytes(precision) == 2 ? device->attention_efficiency : 0;

    /* Shares were fitted in 16 bits; for a peak without matrix units, the device has its own. */
    const double own = device->matmul_efficiency * sustained;
    const double share = wide == TY_PRECISION_FP32 ? own : of_device(ON(product_share), own);

    return (ty_rates){
        .product_flop_per_s = peak * share,
        .narrow_flop_per_s =
            is_narrow ? ty_device_peak(device, precision) *
                            of_device(is_fp8 ? ON(fp8_share) : ON(fp4_share), narrow * sustained)
                      : 0,
        .attention_flop_per_s = peak * of_device(ON(attention_share), attention * sustained),
        .attention_backward =
            of_device(ON(attention_backward), said(device->attention_backward, 1)),
        .grouped = ON(expert_share),
        .bytes_per_s = device->memory_bandwidth_bytes_per_s *
                       of_device(ON(memory_share), device->memory_efficiency),
        .kernel_s = of_device(ON(kernel_s), device->launch_overhead_s),
        .edge = of_device(ON(product_edge), device->product_edge)};
#undef ON
}

double ty_kernels_seconds(const ty_kernel *kernels, uint32_t count, const ty_rates *rates,
                          bool is_backward)
{
    double seconds = 0;

    for (uint32_t i = 0; i < count; i++) {
        const ty_kernel *k = &kernels[i];
        double compute_s = 0;
        if (k->kind == TY_KERNEL_ATTENTION && rates->attention_flop_per_s > 0)
            compute_s = k->flop / rates->attention_flop_per_s /
                        (is_backward ? rates->attention_backward : 1);
        else if (k->flop > 0)
            compute_s = k->flop /
                        (k->is_narrow ? rates->narrow_flop_per_s : rates->product_flop_per_s) /
                        (k->is_grouped ? rates->grouped : 1) *
                        (k->m > 0 ? (1 + rates->edge / k->m) * (1 + rates->edge / k->n) *
                                        (1 + rates->edge / k->k)
                                  : 1);
        seconds += k->times * fmax(compute_s, k->bytes / rates->bytes_per_s) +
                   k->launches * rates->kernel_s;
    }
    return seconds;
}

/* The fused softmax of Megatron-LM needs a multiple of four of (sequence, head) pairs. */
#define SOFTMAX_BATCH 4

static double host_s(const ty_plan *plan, uint32_t layer, const ty_kernel *kernels, uint32_t count)
{
    const ty_stack *stack = ty_stack_of(plan);
    const ty_layer *l = &plan->workload->layers[layer];
    double seconds = 0;

    for (uint32_t i = 0; i < count; i++)
        seconds += kernels[i].launches * stack->host_kernel_s;
    if (ty_layer_row_of(l)->has_experts)
        seconds += stack->host_expert_s;
    if (ty_layer_has_heads(l) && !ty_attention_is_fused(stack, plan->workload->precision, l) &&
        (plan->micro_batch_size * l->attributes[TY_HEADS] /
         ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL)) %
                SOFTMAX_BATCH !=
            0)
        seconds += stack->host_unfused_s;
    return seconds;
}

static ty_status by_kernels(const ty_plan *plan, uint32_t layer, const ty_device_type *device,
                            ty_layer_price *out, ty_error *error)
{
    const ty_workload *workload = plan->workload;
    const ty_rates rates = ty_rates_of(device, ty_stack_of(plan), workload->precision);
    ty_kernel kernels[TY_MOST_KERNELS];
    uint32_t count = ty_layer_kernels(plan, layer, false, kernels);

    if (!(rates.product_flop_per_s > 0 && rates.bytes_per_s > 0) ||
        (ty_precision_is_narrow(workload->precision) && !(rates.narrow_flop_per_s > 0))) {
        char has[80] = "";
        for (int p = 0; p < TY_PRECISION_COUNT; p++)
            if (ty_device_peak(device, (ty_precision)p) > 0 &&
                (p != TY_PRECISION_TF32 || device->peak_tf32_flop_per_s > 0))
                snprintf(has + strlen(has), sizeof has - strlen(has), "%s%s",
                         has[0] == '\0' ? "; it has " : ", ", ty_precision_name((ty_precision)p));
        return ty_fail(error, TY_EUNSUPPORTED, "device %s: has no peak rate or bandwidth in %s%s",
                       device->name, ty_precision_name(workload->precision), has);
    }
    out->forward = (ty_layer_pass){ty_kernels_seconds(kernels, count, &rates, false),
                                   host_s(plan, layer, kernels, count)};
    for (uint32_t i = 0; i < count; i++) {
        if (kernels[i].is_of_scores && kernels[i].kind != TY_KERNEL_ATTENTION)
            out->scores_s += ty_kernels_seconds(&kernels[i], 1, &rates, false);
        if (kernels[i].is_of_activation)
            out->activation_s += ty_kernels_seconds(&kernels[i], 1, &rates, false);
    }
    count = ty_layer_kernels(plan, layer, true, kernels);
    out->backward = (ty_layer_pass){ty_kernels_seconds(kernels, count, &rates, true),
                                    host_s(plan, layer, kernels, count)};
    if (ty_convolution_is_chosen(workload, &workload->layers[layer], device)) {
        const double work = plan->micro_batch_size * ty_rank_work_share(plan, layer);
        const convolution_times t = ty_convolution_cost(&workload->layers[layer], work, device);
        const double launches = workload->layers[layer].kernel_count * rates.kernel_s;
        out->forward.device_s = t.forward_s + launches;
        out->backward.device_s = t.backward_s + 2 * launches;
    }
    out->forward.device_s *= ty_stack_of(plan)->compute_scale;
    out->backward.device_s *= ty_stack_of(plan)->compute_scale;
    out->scores_s *= ty_stack_of(plan)->compute_scale;
    out->activation_s *= ty_stack_of(plan)->compute_scale;
    out->provenance = TY_DATASHEET;
    return TY_OK;
}

double ty_layer_again_s(const ty_layer *layer, const ty_layer_price *price, ty_again again)
{
    return again == TY_AGAIN_ACTIVATION
               ? price->activation_s
               : price->forward.device_s * ty_layer_recompute_share(layer, again);
}

static ty_status look_up(const ty_plan *plan, uint32_t layer, ty_layer_price *out, bool *is_found,
                         ty_error *error)
{
    ty_status status = TY_OK;
    char *signature = NULL;

    *is_found = false;
    if (plan->profile == NULL)
        return TY_OK;
    TY_CHECK(ty_layer_signature(plan->workload, layer, &signature, error), status, cleanup);
    *is_found = ty_profile_layer(plan->profile, signature, plan->micro_batch_size,
                                 &out->forward.device_s, &out->backward.device_s);

cleanup:
    ty_free(signature);
    return status;
}

ty_status ty_layer_price_of(const ty_plan *plan, uint32_t layer, const ty_device_type *device,
                            ty_layer_price *out, ty_error *error)
{
    ty_layer_price price = {.provenance = TY_MEASURED};
    const ty_layer *l;
    double share, back;
    bool is_found;

    if (layer >= plan->workload->layer_count || plan->micro_batch_size == 0)
        return ty_fail(error, TY_EINVAL,
                       "found layer %u for %u samples, expected one of %u layers "
                       "and at least one sample",
                       layer, plan->micro_batch_size, plan->workload->layer_count);
    l = &plan->workload->layers[layer];
    share = look_up_share(plan, layer);
    /* Share of backward: by parameters for tables, because it zeroes all their gradients. */
    back = ty_layer_expert_elements(plan, layer) > 0 && ty_layer_is_bag(l)
               ? ty_rank_parameter_share(plan, layer)
               : ty_rank_work_share(plan, layer);
    TY_TRY(look_up(plan, layer, &price, &is_found, error));
    if (is_found && plan->profile->scaled != NULL)
        price.provenance = TY_CALIBRATED;
    /* An opaque layer that has work but was never timed is priced like any other. */
    bool is_timed = l->measured_forward_s > 0 || l->measured_backward_s > 0;
    bool has_work = l->forward_flop > 0 || l->backward_flop > 0 || l->traffic_bytes > 0;
    if (!is_found && ty_layer_row_of(l)->is_opaque &&
        (is_timed || !has_work)) { /* imported: measured, but not on this device */
        price.forward.device_s = l->measured_forward_s * plan->micro_batch_size;
        price.backward.device_s = l->measured_backward_s * plan->micro_batch_size;
        price.provenance = TY_CALIBRATED;
        is_found = true;
    }
    if (is_found) {
        if (share < 1 || back < 1) {
            price.forward.device_s *= share;
            price.backward.device_s *= back;
            price.provenance = TY_CALIBRATED;
        }
        if (ty_layer_has_heads(l) &&
            !ty_attention_is_fused(ty_stack_of(plan), plan->workload->precision, l) &&
            l->forward_flop > 0) /* by its share of the work */
            price.scores_s = price.forward.device_s *
                             fmax(0, 1 - ty_layer_weight_flop(plan->workload, l) / l->forward_flop);
        if (device != NULL && ty_layer_row_of(l)->has_activation) {
            ty_layer_price reckoned = {0};
            if (by_kernels(plan, layer, device, &reckoned, NULL) == TY_OK)
                price.activation_s =
                    price.forward.device_s * reckoned.activation_s / reckoned.forward.device_s;
        }
    } else if (device == NULL) {
        return ty_fail(error, TY_EINVAL, "layer %s: not in the profile, and no device is given",
                       l->name);
    } else {
        TY_TRY(by_kernels(plan, layer, device, &price, error));
    }
    *out = price;
    return TY_OK;
}

double ty_layer_weight_flop(const ty_workload *workload, const ty_layer *layer)
{
    const double elements = (double)layer->parameter_bytes / workload->element_bytes;
    const double rows =
        layer->output.dimension_count == 2 ? (double)layer->output.dimensions[0] : 1;

    if (ty_layer_row_of(layer)->products == 1) /* a tied one has no parameters of its own */
        return layer->forward_flop;
    if (ty_layer_has_table(layer))
        return 0;
    return fmin(2 * elements * rows, layer->forward_flop);
}
