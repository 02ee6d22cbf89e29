/* Memory of a device by what a framework's automatic differentiation keeps: every operation the
 * inputs that its backward reads, a tensor that several of them read once. Source: Korthikanti et
 * al., "Reducing Activation Recomputation in Large Transformer Models", 2022, sections 4.1 to 4.3,
 * for layers of any sizes; Rajbhandari et al., SC 2020, for what ZeRO divides. */
#include "memory.h"

#include "kernels.h"

#include <math.h>

#define MESSAGES 4 /* activation and gradient, each way */
/* Layers whose weights are together with ZeRO 3: the one at work and the next. */
#define GATHERED_LAYERS 2

typedef struct context {
    const ty_plan *plan;
    const ty_stack *stack;
    double samples, element; /* of a lane's micro-batch; bytes of a number */
    double narrow; /* bytes of a number that entered a narrow product and is kept so; 0: none is */
    double c, along; /* share of a sequence; of what lies between divided layers */
    bool has_dropout;
    const bool *takes_part;
    uint32_t *segments;    /* room for the workload's layers */
    ty_layer_again *again; /* [layers]: what recomputing makes again of each */
    bool *is_seen; /* [layers]: tensors that are counted already; [layers]: and in narrow numbers */
} context;

static const ty_layer *layer_at(const context *c, uint32_t layer)
{
    return &c->plan->workload->layers[layer];
}

/* Tokens, or whatever rows a layer's output has, on this lane. */
static double tokens(const context *c, const ty_shape *shape)
{
    return c->samples * c->c * (double)ty_shape_elements(shape) /
           (double)shape->dimensions[shape->dimension_count > 0 ? shape->dimension_count - 1 : 0];
}

/* Bytes of a number inside an mlp or an expert on its way to the second product. */
static double inside(const context *c)
{
    return c->narrow > 0 ? c->narrow : c->element;
}

/* Share of a layer among tensor lanes. */
static double divided(const context *c, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(c->plan->workload, layer);
    return split == TY_SPLIT_NONE || split == TY_SPLIT_SEQUENCE
               ? 1
               : 1.0 / ty_plan_lanes(c->plan, TY_TENSOR_LANES);
}

/* Bytes of a layer's output on one lane: along the sequence where lanes divide that, scores by the
 * vocabulary. */
static double output_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const ty_tensor_split split = ty_layer_tensor_split(c->plan->workload, layer);
    double share = split == TY_SPLIT_NONE ? 1 : c->along;

    if (l->kind == TY_LAYER_LINEAR && split == TY_SPLIT_VOCABULARY)
        share = divided(c, layer);
    return c->samples * c->c * share * (double)l->output_bytes;
}

/* Scores of attention: the softmax's result, and of dropout its mask and its result. */
static double score_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const double keys = (double)ty_layer_input_shape(c->plan->workload, layer, 0)->dimensions[0];

    if (l->kind != TY_LAYER_ATTENTION ||
        ty_attention_is_fused(c->stack, c->plan->workload->precision, l))
        return 0;
    return tokens(c, &l->output) * keys * (double)l->attributes[TY_HEADS] * divided(c, layer) *
           (c->element + (c->has_dropout ? c->element + 1 : 0));
}

/* What is kept inside a layer, beside what it reads. */
static double inner_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const uint64_t *a = l->attributes;
    const ty_shape *input = ty_layer_input_shape(c->plan->workload, layer, 0);
    const double rows = tokens(c, &l->output), share = divided(c, layer);
    const double head = (double)a[TY_HEAD_SIZE];
    const double value = a[TY_VALUE_HEAD_SIZE] > 0 ? (double)a[TY_VALUE_HEAD_SIZE] : head;
    const double sides = a[TY_IS_GATED] != 0 ? 3 : 2; /* of an activation, and its gate */
    const double mask = c->has_dropout ? (double)ty_shape_elements(&l->output) : 0;

    switch (l->kind) {
    case TY_LAYER_ATTENTION: /* queries, keys, values, and what goes to the output's projection,
                                which fused attention's backward reads as well */
        return c->element * share *
                   (rows * (double)a[TY_HEADS] * head +
                    tokens(c, input) * (double)a[TY_KV_HEADS] * (head + value)) +
               (ty_attention_is_fused(c->stack, c->plan->workload->precision, l)
                    ? c->element + c->narrow
                    : inside(c)) *
                   share * rows * (double)a[TY_HEADS] * value +
               c->element * (rows * (double)a[TY_QUERY_RANK] +
                             tokens(c, input) * (double)(a[TY_KV_RANK] + a[TY_ROTARY_SIZE])) +
               score_bytes(c, layer);
    case TY_LAYER_MLP:
        return ((sides - 1) * c->element + inside(c)) * rows * (double)a[TY_HIDDEN_FEATURES] *
               share;
    case TY_LAYER_MOE: /* and a token's copies for its experts, or its latents, made and given back
                        */
        return ((sides - 1) * c->element + inside(c)) * rows * share * ty_layer_hidden_features(l) +
               rows * c->along *
                   (a[TY_LATENT_FEATURES] > 0
                        ? c->element *
                              (double)((a[TY_EXPERTS_PER_TOKEN] + 2) * a[TY_LATENT_FEATURES])
                        : inside(c) * (double)(a[TY_EXPERTS_PER_TOKEN] * a[TY_FEATURES]));
    case TY_LAYER_ADD:
    case TY_LAYER_EMBEDDING:
        return c->samples * c->c * c->along * mask;
    case TY_LAYER_SOFTMAX_CROSS_ENTROPY:
        return c->stack->loss_bytes / 2 * c->samples * c->c * share *
               (double)ty_shape_elements(input);
    case TY_LAYER_LSTM:
    case TY_LAYER_STATE_SPACE:
    case TY_LAYER_GATED_DELTA:
    case TY_LAYER_ADDITIVE_ATTENTION:
    case TY_LAYER_OPAQUE:
        return fmax(0, (double)l->stash_bytes - (double)l->output_bytes) * c->samples * c->c;
    case TY_LAYER_LINEAR:
    case TY_LAYER_CONV2D:
    case TY_LAYER_BATCH_NORM:
    case TY_LAYER_LAYER_NORM:
    case TY_LAYER_RMS_NORM:
    case TY_LAYER_POOL:
    case TY_LAYER_RELU:
    case TY_LAYER_GELU:
    case TY_LAYER_SILU:
    case TY_LAYER_TANH:
    case TY_LAYER_CONCAT:
    case TY_LAYER_FLATTEN:
    case TY_LAYER_SLICE:
    case TY_LAYER_EMBEDDING_BAG:
    case TY_LAYER_DOT_INTERACTION:
    case TY_LAYER_KIND_COUNT:
        break;
    }
    return 0;
}

/* Whether backward reads what the layer read. */
static bool keeps_input(const ty_layer *l)
{
    return l->kind != TY_LAYER_ADD && l->kind != TY_LAYER_CONCAT && l->kind != TY_LAYER_FLATTEN &&
           l->kind != TY_LAYER_SLICE && l->kind != TY_LAYER_RELU && l->kind != TY_LAYER_EMBEDDING &&
           l->kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY;
}

/* The layer in whose memory an output lies: rectifiers work in place, views have none. */
static uint32_t holder(const context *c, uint32_t layer)
{
    while ((layer_at(c, layer)->kind == TY_LAYER_RELU ||
            layer_at(c, layer)->kind == TY_LAYER_FLATTEN) &&
           layer_at(c, layer)->input_count == 1)
        layer = layer_at(c, layer)->inputs[0];
    return layer;
}

static void forget(const context *c)
{
    for (uint32_t i = 0; i < 2 * c->plan->workload->layer_count; i++)
        c->is_seen[i] = false;
}

/* What a layer keeps of a tensor that it reads, beside what others keep of it: all that read it
 * narrow have one copy, all others one. */
static double tensor_bytes(const context *c, uint32_t reader, uint32_t tensor)
{
    /* Other readers, such as a router of experts, keep the tensor unconverted. */
    const ty_layer *l = layer_at(c, reader);
    const bool is_narrow =
        c->narrow > 0 &&
        (l->kind == TY_LAYER_ATTENTION || l->kind == TY_LAYER_MLP ||
         (l->kind == TY_LAYER_LINEAR &&
          ty_layer_tensor_split(c->plan->workload, reader) != TY_SPLIT_VOCABULARY));
    bool *is_seen = &c->is_seen[tensor + (is_narrow ? c->plan->workload->layer_count : 0)];
    const double bytes =
        *is_seen ? 0 : output_bytes(c, tensor) * (is_narrow ? c->narrow / c->element : 1);

    *is_seen = true;
    return bytes;
}

/* What layers [first, end) keep of a micro-batch until its backward. */
static double kept_bytes(const context *c, uint32_t first, uint32_t end, bool without_scores)
{
    double bytes = 0;

    forget(c);
    for (uint32_t i = first; i < end; i++) {
        const ty_layer *l = layer_at(c, i);
        if (!c->takes_part[i])
            continue;
        bytes += inner_bytes(c, i) - (without_scores ? score_bytes(c, i) : 0);
        for (uint32_t k = 0; keeps_input(l) && k < l->input_count; k++)
            bytes += tensor_bytes(c, i, holder(c, l->inputs[k]));
    }
    return bytes;
}

/* What enters a segment: the output of the layer before it, or of those that it reads from before.
 */
static double entering_bytes(const context *c, uint32_t first, uint32_t end)
{
    double bytes = 0;

    forget(c);
    for (uint32_t i = first; i < end; i++)
        for (uint32_t k = 0; k < layer_at(c, i)->input_count; k++) {
            const uint32_t tensor = holder(c, layer_at(c, i)->inputs[k]);
            if (tensor < first && !c->is_seen[tensor])
                bytes += output_bytes(c, tensor);
            c->is_seen[tensor] = true;
        }
    return bytes;
}

/* What activation functions make inside an mlp or of experts. */
static double activation_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);

    return inside(c) * tokens(c, &l->output) * ty_layer_hidden_features(l) * divided(c, layer);
}

/* Of what a segment keeps, all that recomputing does not make again, beside what enters it. */
static double found_bytes(const context *c, uint32_t first, uint32_t end)
{
    double bytes = 0;

    forget(c);
    for (uint32_t i = first; i < end; i++) {
        const ty_layer *l = layer_at(c, i);
        const ty_again again = c->again[i].what;
        if (!c->takes_part[i])
            continue;
        if (again != TY_AGAIN_ALL)
            bytes += inner_bytes(c, i);
        if (again == TY_AGAIN_SECOND)
            bytes -= score_bytes(c, i);
        if (again == TY_AGAIN_ACTIVATION || (again == TY_AGAIN_SECOND && l->kind == TY_LAYER_MLP))
            bytes -= activation_bytes(c, i);
        for (uint32_t k = 0; keeps_input(l) && k < l->input_count; k++) {
            const uint32_t tensor = holder(c, l->inputs[k]);
            if (tensor >= first && c->again[tensor].keeps_output)
                bytes += tensor_bytes(c, i, tensor);
        }
    }
    return bytes;
}

/* While a layer's backward is at work: the gradients of its output, of its input and of its widest
 * tensor, rows whole where lanes divide them between layers, a vocabulary's scores divided; of a
 * loss over a vocabulary the gradient of the scores. */
static double working_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const double rows = tokens(c, &l->output), share = divided(c, layer);
    double widest = 0, row = 0;

    if (l->kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY)
        return c->stack->loss_bytes / 2 * c->samples * c->c * share *
               (double)ty_shape_elements(ty_layer_input_shape(c->plan->workload, layer, 0));
    if (l->kind == TY_LAYER_ATTENTION)
        widest = (double)(l->attributes[TY_HEAD_SIZE] *
                          (l->attributes[TY_HEADS] + 2 * l->attributes[TY_KV_HEADS]));
    if (l->kind == TY_LAYER_MLP || l->kind == TY_LAYER_MOE)
        widest = (double)l->attributes[TY_HIDDEN_FEATURES];
    row = ty_layer_tensor_split(c->plan->workload, layer) == TY_SPLIT_VOCABULARY
              ? output_bytes(c, layer)
              : c->samples * c->c * (double)l->output_bytes;
    return 2 * row + 2 * rows * widest * share * c->element;
}

/* Of a stage: what each micro-batch in flight keeps, and what is there once. */
static void stage_activations(const context *c, uint32_t stage, double *slot, double *once)
{
    const ty_plan_stage *s = &c->plan->stages[stage];
    const uint32_t end = s->first_layer + s->layer_count;
    const bool is_selective = s->recompute == TY_RECOMPUTE_SELECTIVE;
    const ty_recompute_range range = {s->first_layer, s->layer_count, s->recompute,
                                      s->recompute_blocks};
    const uint32_t count = ty_recompute_segments(c->plan->workload, &range, c->segments);
    double again = 0;

    ty_recompute_mark_again(c->plan->workload, &range, c->segments, count, c->again);

    *slot = 0;
    if (count == 0) {
        *slot = kept_bytes(c, s->first_layer, end, is_selective);
        for (uint32_t i = s->first_layer; is_selective && i < end; i++)
            again = fmax(again, score_bytes(c, i));
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t next = i + 1 < count ? c->segments[i + 1] : end;
        const double found = found_bytes(c, c->segments[i], next);
        *slot += entering_bytes(c, c->segments[i], next) + found;
        again = fmax(again, kept_bytes(c, c->segments[i], next, false) - found);
    }
    double largest = 0;
    for (uint32_t i = s->first_layer; i < end; i++)
        if (c->takes_part[i])
            largest = fmax(largest, working_bytes(c, i));
    *once = again + largest;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

/* Parameters of a stage on one device: all, those that are trained, and of these what is left where
 * ZeRO divides them. */
typedef struct numbers {
    double all, trained, own;
} numbers;

static numbers numbers_of(const context *c, uint32_t stage)
{
    const ty_plan *plan = c->plan;
    const ty_plan_stage *s = &plan->stages[stage];
    numbers n = {0};

    for (uint32_t i = s->first_layer; i < s->first_layer + s->layer_count; i++) {
        const ty_layer *l = layer_at(c, i);
        double own = (double)l->parameter_bytes / c->element * ty_lane_parameter_share(plan, i);
        if (l->tied_to < s->first_layer) /* a matrix of an earlier stage has a copy here */
            own += (double)(l->attributes[TY_IN_FEATURES] * l->attributes[TY_OUT_FEATURES]) *
                   ty_lane_parameter_share(plan, l->tied_to);
        n.all += own;
        n.trained += ty_layer_is_trained(plan->workload, i) ? own : 0;
    }
    n.own = n.trained;
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->stage == stage && ty_bucket_is_sharded(plan, bucket))
            n.own -= (double)bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES *
                     (1 - 1.0 / ty_bucket_device_count(plan, bucket));
    }
    return n;
}

/* Messages to and from neighbours, the largest bucket on its way, gathered layers and sequences. */
static double buffers(const context *c, uint32_t stage, double parameters)
{
    const ty_plan *plan = c->plan;
    double message = 0, bucket_bytes = 0, gathered = 0;

    if (stage > 0)
        message = (double)ty_plan_transfer_bytes(plan, stage, TY_ACTIVATION);
    if (stage + 1 < plan->stage_count)
        message = fmax(message, (double)ty_plan_transfer_bytes(plan, stage + 1, TY_ACTIVATION));
    for (uint32_t b = 0; c->stack->overlaps_exchange && b < plan->bucket_count; b++)
        if (plan->buckets[b].stage == stage && ty_bucket_device_count(plan, &plan->buckets[b]) > 1)
            bucket_bytes =
                fmax(bucket_bytes, (double)plan->buckets[b].gradient_bytes *
                                       c->stack->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES);
    /* Parameters of the largest layer: what is gathered at once. */
    const ty_plan_stage *s = &c->plan->stages[stage];
    double largest = 0;
    for (uint32_t i = s->first_layer; i < s->first_layer + s->layer_count; i++)
        largest = fmax(largest, (double)layer_at(c, i)->parameter_bytes / c->element *
                                    ty_lane_parameter_share(c->plan, i));
    if (plan->zero >= 3)
        gathered = GATHERED_LAYERS * c->element * largest;
    /* One bucket of all gradients is the gradients themselves. */
    if (bucket_bytes >= parameters * c->stack->gradient_bytes)
        bucket_bytes = 0;
    return MESSAGES * message + bucket_bytes + gathered;
}

ty_status ty_autograd_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                             double compression_bytes, ty_memory_use *out, ty_error *error)
{
    const uint32_t positions = ty_plan_position_count(plan), position = stage % positions;
    const uint32_t layers = plan->workload->layer_count;
    const ty_stack *stack = ty_stack_of(plan);
    bool *marks = ty_alloc(layers, 3 * sizeof *marks);
    double *slots = ty_alloc(ty_plan_interleave(plan), sizeof *slots);
    context c = {.plan = plan,
                 .stack = stack,
                 .samples = (double)plan->micro_batch_size / ty_plan_lanes(plan, TY_EXPERT_LANES),
                 .element = plan->workload->element_bytes,
                 .narrow =
                     stack->narrow_copies * ty_precision_narrow_bytes(plan->workload->precision),
                 .c = 1.0 / ty_plan_lanes(plan, TY_CONTEXT_LANES),
                 .along = plan->sequence_parallel ? 1.0 / ty_plan_lanes(plan, TY_TENSOR_LANES) : 1,
                 .has_dropout = stack->has_dropout && plan->workload->tokens_per_sample > 0,
                 .segments = ty_alloc(layers, sizeof *c.segments),
                 .again = ty_alloc(layers, sizeof *c.again)};
    double weights = 0, gradients = 0, optimizer = 0, communication = 0, once = 0, activations;
    ty_status status = TY_OK;

    if (marks == NULL || slots == NULL || c.segments == NULL || c.again == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    ty_workload_mark_backward(plan->workload, marks);
    c.takes_part = marks;
    c.is_seen = marks + layers;
    for (uint32_t s = position; s < plan->stage_count; s += positions) {
        const numbers n = numbers_of(&c, s);
        double working;
        /* Weights of earlier steps: PipeDream's, one for each step that a micro-batch can be
         * behind. */
        weights += c.element *
                   (n.all * (1 + ty_program_stashed_versions(program, plan->schedule, position)) -
                    (plan->zero >= 3 ? n.trained - n.own : 0));
        gradients +=
            stack->gradient_bytes * (1 + plan->staleness) * (plan->zero >= 2 ? n.own : n.trained);
        /* Optimizer state is fp32, and so is the copy of 16-bit weights that it updates
         * (Micikevicius et al., ICLR 2018). */
        const double copy = plan->workload->element_bytes < TY_GRADIENT_ELEMENT_BYTES ? 1 : 0;
        optimizer += (ty_optimizer_state_count(&plan->optimizer) + copy) *
                     TY_GRADIENT_ELEMENT_BYTES * (plan->zero >= 1 ? n.own : n.trained);
        communication += buffers(&c, s, n.all);
        stage_activations(&c, s, &slots[s / positions], &working);
        once = fmax(once, working);
    }
    activations = ty_program_peak_stash(program, position, slots) + once;
    *out = (ty_memory_use){
        .parameter_bytes = (uint64_t)weights,
        .gradient_bytes = (uint64_t)gradients,
        .optimizer_bytes = (uint64_t)optimizer,
        .activation_bytes = (uint64_t)activations,
        .communication_bytes = (uint64_t)communication,
        .compression_bytes = (uint64_t)compression_bytes,
        .workspace_bytes = (uint64_t)(stack->context_bytes + stack->memory_waste * activations)};
done:
    ty_free(marks);
    ty_free(slots);
    ty_free(c.segments);
    ty_free(c.again);
    return status;
}
