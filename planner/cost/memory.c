/* Memory of one device of a stage, row by row as the worker allocates it: parameters, their
 * gradients and optimizer state; a set of activations ("slot") for each micro-batch in flight; one
 * set of gradients of activations, since backward does one micro-batch at a time, unless it comes
 * in two parts; buffers. Where a stage is recomputed in segments, slots have what enters them, and
 * one working set, as large as the largest segment needs, serves all segments and slots. Sums are
 * doubles, exact up to 2^53 bytes, so that no product of sizes can wrap. */
#include "cost/memory.h"
#include "cost/kernels.h"
#include "expert_rows.h"

#include <math.h>

/* Images that a convolution pools itself are made so many bytes, and so many pixels, at a time
 * (execute/cpu/cpu_conv2d.c). */
#define PIECE_BYTES (512 << 10)
#define PIECE_PIXELS 2048

/* Staging for a message that arrives before its slot is free, and for one that leaves. */
#define STAGING_BUFFERS 2
/* A ring reduces one piece while the next arrives. */
#define RING_PIECES 2

typedef struct context {
    const ty_plan *plan;
    const ty_program *program;
    const ty_plan_stage *stage; /* one of the position's */
    uint32_t index, end;        /* of that stage; layer behind its last */
    double slots, samples;
    bool is_on_cores; /* of a host: what its backend does in its own way is marked below */
    double *kept;     /* [layers]: bytes a layer keeps of a sample, all lanes together */
    double *copies;   /* [layers]: images it has besides in another order */
    double *copied;   /* [layers]: the gradients of these */
    double *places;   /* [layers]: and where the maxima of its windows were */
    bool *takes_part; /* [layers]: in backward */
    bool *is_kept;    /* [layers]: without backward, but its output is kept */
    uint32_t *segments, segment_count; /* first layers, of a stage that recomputes them */
    bool *is_between; /* [layers]: its output goes from one segment to another, and no further */
    bool *is_sent;    /* [layers]: its output is sent on */
    bool *has_gradient_between;         /* [layers]: and the gradient that lies in its memory */
    bool *is_added;                     /* [layers]: nothing reads it but a sum, not as its first */
    ty_layer_again *again;              /* [layers]: what recomputing makes again of each */
    uint32_t *crossing, crossing_count; /* layers whose outputs cross the cut behind the stage */
    double in, in_gradient, out,
        out_gradient; /* across the cuts before and behind it, per sample */
} context;

static const ty_layer *layer_at(const context *c, uint32_t layer)
{
    return &c->plan->workload->layers[layer];
}

/* What crosses the cut before a stage, one way; 0 where there is none. */
static double transfer(const context *c, uint32_t stage, ty_direction direction)
{
    if (stage == 0 || stage == c->plan->stage_count)
        return 0;
    return (double)ty_plan_transfer_bytes(c->plan, stage, direction) / c->samples;
}

/* A stage of the plan and program in `all`, which has marked what takes part in backward. */
static context context_of(const context *all, uint32_t stage)
{
    const ty_plan_stage *planned = &all->plan->stages[stage];
    const ty_recompute_range range = {planned->first_layer, planned->layer_count,
                                      planned->recompute, planned->recompute_blocks};
    context c = *all;

    c.stage = &c.plan->stages[stage];
    c.index = stage;
    c.end = c.stage->first_layer + c.stage->layer_count;
    c.slots = ty_program_peak_in_flight(c.program, stage);
    c.samples = c.plan->micro_batch_size;
    c.crossing_count = c.end < c.plan->workload->layer_count
                           ? ty_workload_crossing(c.plan->workload, c.end, c.crossing)
                           : 0;
    c.segment_count = ty_recompute_segments(c.plan->workload, &range, c.segments);
    ty_recompute_mark_again(c.plan->workload, &range, c.segments, c.segment_count, c.again);
    c.in = transfer(&c, stage, TY_ACTIVATION);
    c.in_gradient = transfer(&c, stage, TY_GRADIENT);
    c.out = transfer(&c, stage + 1, TY_ACTIVATION);
    c.out_gradient = transfer(&c, stage + 1, TY_GRADIENT);
    return c;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* Bytes of the matrices that layers of this stage use and layers of an earlier one own; a matrix
 * with several users here is one copy. */
static double tied_copies(const context *c, bool only_trained)
{
    double bytes = 0;
    for (uint32_t user = c->stage->first_layer; user < c->end; user++) {
        const ty_layer *l = layer_at(c, user);
        uint32_t earlier = c->stage->first_layer;
        if (l->tied_to >= c->stage->first_layer || /* TY_NO_LAYER is the largest */
            (only_trained && layer_at(c, l->tied_to)->is_frozen))
            continue;
        while (layer_at(c, earlier)->tied_to != l->tied_to)
            earlier++;
        if (earlier == user)
            bytes += (double)l->attributes[TY_IN_FEATURES] *
                     (double)l->attributes[TY_OUT_FEATURES] * c->plan->workload->element_bytes *
                     ty_lane_parameter_share(c->plan, l->tied_to);
    }
    return bytes;
}

/* One lane's. */
static double parameters(const context *c, bool only_trained)
{
    double bytes = tied_copies(c, only_trained);
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        if (!only_trained || !layer_at(c, i)->is_frozen)
            bytes += (double)layer_at(c, i)->parameter_bytes * ty_lane_parameter_share(c->plan, i);
    return bytes;
}

/* Whether passes read weights of fewer bytes than are updated. */
static bool is_narrow(const context *c)
{
    return c->plan->workload->element_bytes < TY_GRADIENT_ELEMENT_BYTES;
}

/* Of buckets that are sharded, all parameters and the most of one. */
typedef struct sharded_parameters {
    double all, others; /* all, and without the device's own part */
    double largest;
} sharded_parameters;

static sharded_parameters sharded_of(const context *c)
{
    sharded_parameters sharded = {0, 0, 0};

    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        const double devices = ty_bucket_device_count(c->plan, bucket);
        const double bytes = (double)bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES *
                             c->plan->workload->element_bytes;

        if (bucket->stage != c->index || !ty_bucket_is_sharded(c->plan, bucket))
            continue;
        sharded.all += bytes;
        sharded.others += bytes * (1 - 1 / devices);
        sharded.largest = fmax(sharded.largest, bytes);
    }
    return sharded;
}

/* ---- What layers keep ------------------------------------------------------------------------ */

/* Whether images that are computed channels last, and are planes elsewhere, are not the same in
 * both orders. */
static bool has_two_orders(const ty_shape *shape)
{
    return shape->dimension_count == 3 && shape->dimensions[0] > 1 &&
           shape->dimensions[1] * shape->dimensions[2] > 1;
}

/* The convolution whose images a pool reads before anybody else does, and alone, a rectifier
 * between them perhaps: they never exist all at once. TY_NO_LAYER: there is none. */
static uint32_t pooled_convolution(const context *c, uint32_t pool)
{
    const uint32_t *last_readers = c->plan->workload->index.last_readers;
    const ty_layer *l = layer_at(c, pool);
    uint32_t at = pool;
    bool is_rectified = false;

    if (l->kind != TY_LAYER_POOL || ty_schedule_at(c->plan->schedule)->splits_backward)
        return TY_NO_LAYER;
    do {
        if (layer_at(c, at)->input_count != 1 || layer_at(c, at)->inputs[0] + 1 != at ||
            at == c->stage->first_layer || last_readers[at - 1] != at)
            return TY_NO_LAYER;
        at--;
        is_rectified = is_rectified || layer_at(c, at)->kind == TY_LAYER_RELU;
    } while (layer_at(c, at)->kind == TY_LAYER_RELU);
    return layer_at(c, at)->kind == TY_LAYER_CONV2D &&
                   !(is_rectified && l->attributes[TY_IS_AVERAGE] != 0)
               ? at
               : TY_NO_LAYER;
}

/* How the worker's cpu backend keeps images: channels last within a stage, as planes across its
 * cuts and where they are flattened, each a copy of its own; maxima with their places; and without
 * those that a convolution pools itself. */
static void mark_images_of_cores(const context *c)
{
    const ty_workload *w = c->plan->workload;

    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        const ty_layer *l = layer_at(c, i);
        const bool comes_in = l->input_count == 0 || l->inputs[0] < c->stage->first_layer;
        const ty_shape *in = ty_layer_input_shape(w, i, 0);
        const double bytes = (double)ty_shape_elements(in) * w->element_bytes;
        const uint32_t convolution = pooled_convolution(c, i);

        if (l->kind == TY_LAYER_POOL && l->attributes[TY_IS_AVERAGE] == 0)
            c->places[i] = (double)l->output_bytes;
        if (convolution != TY_NO_LAYER)
            c->kept[convolution] = 0;
        if (!has_two_orders(in) || (l->kind == TY_LAYER_FLATTEN) == comes_in)
            continue;
        if (l->kind == TY_LAYER_FLATTEN || l->kind == TY_LAYER_CONV2D || l->kind == TY_LAYER_POOL ||
            l->kind == TY_LAYER_BATCH_NORM) {
            c->copies[i] += bytes;
            c->copied[i] += l->kind == TY_LAYER_FLATTEN || c->in_gradient > 0 ? bytes : 0;
        }
    }
    for (uint32_t n = 0; n < c->crossing_count; n++) {
        const uint32_t i = c->crossing[n];
        if (i < c->stage->first_layer || !has_two_orders(&layer_at(c, i)->output))
            continue;
        c->copies[i] += (double)layer_at(c, i)->output_bytes;
        c->copied[i] += (double)layer_at(c, i)->output_bytes;
    }
}

/* How accelerators keep them: what crosses cuts comes in the order that it is read in, so that only
 * what is flattened inside a stage is a copy; batch norms make the sums behind them. */
static void mark_images_of_accelerators(const context *c)
{
    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        const ty_layer *l = layer_at(c, i);
        const ty_shape *in = ty_layer_input_shape(c->plan->workload, i, 0);
        const uint32_t norm = ty_workload_norm_of_sum(c->plan->workload, i);

        if (norm != TY_NO_LAYER && norm >= c->stage->first_layer && c->segment_count == 0)
            c->kept[norm] -= (double)layer_at(c, norm)->output_bytes;
        if (l->kind != TY_LAYER_FLATTEN || l->input_count == 0 ||
            l->inputs[0] < c->stage->first_layer || !has_two_orders(in))
            continue;
        c->copies[i] = c->copied[i] = (double)l->output_bytes;
    }
}

/* Copies of a sample's tokens that go to experts, all lanes together. */
static double copies_of_tokens(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);

    return (double)ty_shape_elements(&l->output) /
           (double)l->output.dimensions[l->output.dimension_count - 1] *
           (double)l->attributes[TY_EXPERTS_PER_TOKEN];
}

/* Rows of a micro-batch's copies that accelerators have room for on one lane: of its own tokens,
 * and all that may come. */
static void expert_rows(const context *c, uint32_t layer, double *own, double *most)
{
    const uint64_t *a = layer_at(c, layer)->attributes;
    const uint64_t lanes = ty_plan_lanes(c->plan, TY_EXPERT_LANES);
    const uint64_t chosen = a[TY_EXPERTS_PER_TOKEN];
    const uint64_t contexts = ty_plan_lanes(c->plan, TY_CONTEXT_LANES);
    const uint64_t rows =
        (uint64_t)(c->samples * copies_of_tokens(c, layer) / (double)(lanes * contexts * chosen));

    *own = (double)ty_expert_rows(rows * chosen, a[TY_EXPERTS]);
    *most = (double)ty_lane_expert_rows(rows, chosen, a[TY_EXPERTS], lanes);
}

/* And of a sample, all lanes together, beyond the copies that there are. */
static double rows_beyond_copies(const context *c, uint32_t layer)
{
    double own, most;

    if (c->is_on_cores || layer_at(c, layer)->kind != TY_LAYER_MOE)
        return 0;
    expert_rows(c, layer, &own, &most);
    return most * ty_plan_lanes(c->plan, TY_EXPERT_LANES) *
               ty_plan_lanes(c->plan, TY_CONTEXT_LANES) / c->samples -
           copies_of_tokens(c, layer);
}

static void mark_layers(const context *c)
{
    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        const ty_layer *l = layer_at(c, i);
        /* Elements of a token's copy inside an expert: its input, the output of the first product,
         * and the input of the second. */
        const uint64_t *a = l->attributes;
        c->kept[i] =
            (double)l->stash_bytes +
            rows_beyond_copies(c, i) *
                (double)(a[TY_FEATURES] + a[TY_HIDDEN_FEATURES] * (a[TY_IS_GATED] != 0 ? 3 : 2)) *
                c->plan->workload->element_bytes;
        c->copies[i] = c->copied[i] = c->places[i] = 0;
    }
    if (c->is_on_cores)
        mark_images_of_cores(c);
    else
        mark_images_of_accelerators(c);
}

/* What a convolution needs while it computes on cores: its weights in the order of oneDNN's
 * kernels, a gradient of all of them that is added to that of other micro-batches, and the images
 * that are pooled at once. */
static double scratch_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const double weights = (double)l->parameter_bytes;
    double pieces = 0;

    if (!c->is_on_cores || l->kind != TY_LAYER_CONV2D)
        return 0;
    if (c->kept[layer] <= 0) {
        const double image = (double)l->output_bytes;
        const double pixels = (double)l->output.dimensions[1] * (double)l->output.dimensions[2];
        const double least = fmax(PIECE_BYTES / image, PIECE_PIXELS / pixels);
        pieces = image * fmin(c->samples, ceil(least));
    }
    return weights + (l->is_frozen ? 0 : weights) + pieces;
}

/* ---- Activations, per sample ----------------------------------------------------------------- */

/* To accelerators a batch of numbers comes in floats. */
static bool is_batch_converted(const context *c)
{
    return c->stage->first_layer == 0 && !c->is_on_cores &&
           c->plan->workload->input_kind == TY_INPUT_REAL;
}

static double input_bytes(const context *c, uint64_t element_bytes)
{
    const uint64_t elements = ty_shape_elements(&c->plan->workload->input);

    return (double)ty_lane_bytes(c->plan, elements * element_bytes) / c->samples;
}

static double stage_input(const context *c)
{
    if (c->stage->first_layer > 0)
        return c->in;
    return input_bytes(c, is_batch_converted(c) ? sizeof(float) : c->plan->workload->element_bytes);
}

/* What layers read of it then. */
static double converted_batch(const context *c)
{
    return is_batch_converted(c) ? input_bytes(c, c->plan->workload->element_bytes) : 0;
}

/* The part of what is sent on that comes from before the stage: a copy of its own there. */
static double relayed(const context *c)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->crossing_count; i++)
        if (c->crossing[i] < c->stage->first_layer)
            bytes += layer_at(c, c->crossing[i])->output_bytes;
    bytes = ty_lane_bytes(c->plan, bytes);
    if (c->plan->sequence_parallel)
        bytes /= ty_plan_lanes(c->plan, TY_TENSOR_LANES);
    return (double)bytes / c->samples;
}

/* Scores that the workload says attention keeps, and that are not: fused attention and selective
 * recomputation keep a number for each row of queries and head. */
static double score_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const ty_workload *w = c->plan->workload;
    double queries, keys, heads;

    if ((c->stage->recompute != TY_RECOMPUTE_SELECTIVE &&
         c->stage->recompute != TY_RECOMPUTE_OPERATOR &&
         !ty_attention_is_fused(ty_stack_of(c->plan), w->precision, l)) ||
        l->kind != TY_LAYER_ATTENTION || l->attributes[TY_IS_FUSED] > 0)
        return 0;
    heads = (double)l->attributes[TY_HEADS];
    keys = (double)ty_layer_input_shape(w, layer, 0)->dimensions[0];
    queries = (double)l->output.dimensions[0];
    return fmin(heads * queries * (keys - 1) * w->element_bytes, (double)l->stash_bytes);
}

/* What a layer keeps on one lane. */
static double layer_stash(const context *c, uint32_t layer)
{
    return (c->kept[layer] + c->copies[layer] + c->places[layer] - score_bytes(c, layer)) *
           ty_lane_work_share(c->plan, layer);
}

static double output_bytes(const context *c, uint32_t layer)
{
    return fmin(c->kept[layer], (double)layer_at(c, layer)->output_bytes);
}

/* The layer in whose memory the output of `layer` lies: rectifiers and views have none of their
 * own. The layer before the stage's first where that is the stage's input. */
static uint32_t holder(const context *c, uint32_t layer)
{
    while (layer >= c->stage->first_layer && layer < c->end &&
           layer_at(c, layer)->stash_bytes == 0 && layer_at(c, layer)->input_count <= 1)
        layer = layer_at(c, layer)->input_count == 1 ? layer_at(c, layer)->inputs[0] : TY_NO_LAYER;
    return layer;
}

/* Outputs that outlive their forward, of layers without backward: what layers with one read, and
 * what is sent on. */
static void mark_kept(const context *c, bool *is_kept)
{
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        for (uint32_t k = 0; c->takes_part[i] && k < layer_at(c, i)->input_count; k++)
            if (holder(c, layer_at(c, i)->inputs[k]) < c->end)
                is_kept[holder(c, layer_at(c, i)->inputs[k])] = true;
    for (uint32_t i = 0; i < c->crossing_count; i++)
        if (c->crossing[i] >= c->stage->first_layer && holder(c, c->crossing[i]) < c->end)
            is_kept[holder(c, c->crossing[i])] = true;
}

/* What the gradients of a layer's copies take on one lane, if it has a backward. */
static double copied_gradient_bytes(const context *c, uint32_t layer)
{
    return c->takes_part[layer] ? c->copied[layer] * ty_lane_work_share(c->plan, layer) : 0;
}

/* What a micro-batch keeps until its backward is over. */
static double stash(const context *c)
{
    double bytes = 0;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        if (c->takes_part[i])
            bytes += layer_stash(c, i);
        else if (c->is_kept[i])
            bytes += (output_bytes(c, i) + c->copies[i]) * ty_lane_work_share(c->plan, i);
    }
    return bytes;
}

/* What forward uses and no backward needs: one set, whatever is in flight. */
static double passing(const context *c)
{
    double bytes = 0;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        bytes += layer_stash(c, i);
    return bytes - stash(c);
}

/* What a layer keeps on one lane, if it has a backward, and the output among that. */
static double kept_bytes(const context *c, uint32_t layer)
{
    return c->takes_part[layer] ? c->kept[layer] * ty_lane_work_share(c->plan, layer) : 0;
}

static double kept_output_bytes(const context *c, uint32_t layer)
{
    return fmin(kept_bytes(c, layer),
                (double)layer_at(c, layer)->output_bytes * ty_lane_work_share(c->plan, layer));
}

/* The layer in whose memory the gradient of a layer's output lies: a sum's is that of the first of
 * what it adds, so that a residual stream has one. */
static uint32_t gradient_holder(const context *c, uint32_t layer)
{
    layer = holder(c, layer);
    while (layer >= c->stage->first_layer && layer < c->end &&
           layer_at(c, layer)->kind == TY_LAYER_ADD)
        layer = holder(c, layer_at(c, layer)->inputs[0]);
    return layer;
}

/* What only a sum of the stage reads, beside the first of what it adds. */
static void mark_added(const context *c, bool *is_read)
{
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        c->is_added[i] = is_read[i] = false;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        for (uint32_t k = 0; k < layer_at(c, i)->input_count; k++) {
            const uint32_t read = layer_at(c, i)->inputs[k];
            if (read < c->stage->first_layer)
                continue;
            c->is_added[read] = !is_read[read] && layer_at(c, i)->kind == TY_LAYER_ADD && k > 0;
            is_read[read] = true;
        }
}

/* Scores, which only the loss reads: on accelerators they become their gradient. */
static bool becomes_gradient(const context *c, uint32_t layer)
{
    const ty_layer *next = layer_at(c, layer + 1 < c->end ? layer + 1 : layer);

    return !c->is_on_cores && layer_at(c, layer)->kind == TY_LAYER_LINEAR &&
           next->kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY && next->inputs[0] == layer;
}

/* Gradients of the outputs of layers [first, end). Those that go between segments are not of one.
 */
static double output_gradients(const context *c, uint32_t first, uint32_t end)
{
    double bytes = 0;
    for (uint32_t i = first; i < end; i++)
        /* A sum has no gradient of its own, nor has what it adds to its first. */
        if (!c->has_gradient_between[i] && layer_at(c, i)->kind != TY_LAYER_ADD &&
            !c->is_added[i] && !becomes_gradient(c, i))
            bytes += kept_output_bytes(c, i);
    for (uint32_t i = first; i < end; i++)
        bytes += copied_gradient_bytes(c, i);
    return bytes;
}

/* And for the largest of what layers keep beside their output, one layer at a time; of all samples
 * of a micro-batch, with what a layer needs while it computes. */
static double inner_gradient(const context *c)
{
    double largest = 0;
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        largest = fmax(largest, c->samples * (kept_bytes(c, i) - kept_output_bytes(c, i)) +
                                    scratch_bytes(c, i));
    return largest;
}

/* ---- Backward in two parts, per sample ------------------------------------------------------- */

static bool splits_backward(const context *c)
{
    return ty_schedule_at(c->plan->schedule)->splits_backward;
}

/* What the first of a layer's products makes, in elements: the second part reads its gradient,
 * which is that of no output. */
static double inner_elements(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const uint64_t *a = l->attributes;
    const double tokens = (double)ty_shape_elements(&l->output) /
                          (double)l->output.dimensions[l->output.dimension_count - 1];
    /* Of attention, of another sequence or the same. */
    const double keys = (double)ty_layer_input_shape(c->plan->workload, layer, 0)->dimensions[0];
    const double products = a[TY_IS_GATED] != 0 ? 2 : 1, gates = 4; /* of a recurrent layer */

    if (l->kind == TY_LAYER_ATTENTION)
        return (tokens * (double)a[TY_HEADS] + keys * 2 * (double)a[TY_KV_HEADS]) *
               (double)a[TY_HEAD_SIZE];
    if (l->kind == TY_LAYER_MLP)
        return tokens * (double)a[TY_HIDDEN_FEATURES] * products;
    if (l->kind == TY_LAYER_MOE) /* and the scores of experts */
        return (copies_of_tokens(c, layer) + rows_beyond_copies(c, layer)) *
                   (double)a[TY_HIDDEN_FEATURES] * products +
               tokens * ((double)a[TY_SHARED_FEATURES] * products + (double)a[TY_EXPERTS]);
    if (l->kind == TY_LAYER_LSTM)
        return tokens * gates * (double)a[TY_HIDDEN_FEATURES];
    if (l->kind == TY_LAYER_ADDITIVE_ATTENTION) /* of queries and keys, and of the vector */
        return (tokens + keys + 1) * (double)a[TY_HIDDEN_FEATURES];
    return 0;
}

/* What lanes have gathered of the sequence for the first part stays for the second: the input of a
 * divided layer, and the gradient of its output where all of it is on every lane. */
static double gathered_elements(const context *c, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(c->plan->workload, layer);
    const double whole = 1.0 / ty_plan_lanes(c->plan, TY_CONTEXT_LANES);
    double input, output = 0;

    if (!c->plan->sequence_parallel || layer_at(c, layer)->input_count == 0 ||
        (split != TY_SPLIT_HEADS && split != TY_SPLIT_HIDDEN && split != TY_SPLIT_VOCABULARY))
        return 0;
    input = (double)ty_shape_elements(ty_layer_input_shape(c->plan->workload, layer, 0));
    if (split != TY_SPLIT_VOCABULARY)
        output = (double)ty_shape_elements(&layer_at(c, layer)->output);
    return (input + output) * whole;
}

/* What a micro-batch keeps from the first part of its backward to the second, beside its stash. */
static double gradients_between(const context *c)
{
    const double element = c->plan->workload->element_bytes;
    double bytes = 0;

    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        if (!c->takes_part[i])
            continue;
        bytes +=
            (becomes_gradient(c, i) ? 0 : kept_output_bytes(c, i)) + copied_gradient_bytes(c, i) +
            element *
                (inner_elements(c, i) * ty_lane_work_share(c->plan, i) + gathered_elements(c, i));
    }
    return bytes;
}

/* ---- Segments -------------------------------------------------------------------------------- */

/* What activation functions make inside an mlp or of experts. */
static double activation_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const double tokens = (double)ty_shape_elements(&l->output) /
                          (double)l->output.dimensions[l->output.dimension_count - 1];

    return (tokens * ty_layer_hidden_features(l) +
            rows_beyond_copies(c, layer) * (double)l->attributes[TY_HIDDEN_FEATURES]) *
           c->plan->workload->element_bytes;
}

/* What a layer keeps that recomputing does not make again, but for an output that goes to another
 * segment or behind the stage: of attention without its output's product all but its scores. */
static double found_bytes(const context *c, uint32_t layer)
{
    const ty_layer *l = layer_at(c, layer);
    const double output = output_bytes(c, layer);
    double bytes = c->kept[layer] - score_bytes(c, layer) - output;

    switch (c->again[layer].what) {
    case TY_AGAIN_ALL:
        return 0;
    case TY_AGAIN_SECOND:
        if (l->kind == TY_LAYER_MLP)
            bytes = inner_elements(c, layer) * c->plan->workload->element_bytes;
        break;
    case TY_AGAIN_ACTIVATION:
        bytes -= activation_bytes(c, layer);
        break;
    case TY_AGAIN_NOTHING:
        break;
    }
    if (c->again[layer].keeps_output && !c->is_between[layer] && !c->is_sent[layer])
        bytes += output;
    return fmax(0, fmin(bytes, c->kept[layer])) * ty_lane_work_share(c->plan, layer);
}

/* Which outputs go from a segment to a later one, and which behind the stage. */
static void mark_between(const context *c)
{
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        c->is_between[i] = c->is_sent[i] = c->has_gradient_between[i] = false;
    for (uint32_t i = 0; i < c->crossing_count; i++)
        if (holder(c, c->crossing[i]) >= c->stage->first_layer &&
            holder(c, c->crossing[i]) < c->end)
            c->is_sent[holder(c, c->crossing[i])] = true;
    for (uint32_t s = 1; s < c->segment_count; s++) {
        const uint32_t end = s + 1 < c->segment_count ? c->segments[s + 1] : c->end;
        for (uint32_t i = c->segments[s]; i < end; i++)
            for (uint32_t k = 0; k < layer_at(c, i)->input_count; k++) {
                const uint32_t made = holder(c, layer_at(c, i)->inputs[k]);
                const uint32_t gradient = gradient_holder(c, layer_at(c, i)->inputs[k]);
                if (made >= c->stage->first_layer && made < c->segments[s])
                    c->is_between[made] = !c->is_sent[made];
                if (gradient >= c->stage->first_layer && gradient < c->segments[s])
                    c->has_gradient_between[gradient] = true;
            }
    }
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Of each micro-batch in flight, where a stage is recomputed: what goes from one segment to
 * another, and what else is not made again. */
static double kept_between(const context *c)
{
    double bytes = 0;

    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        const double output = output_bytes(c, i);
        if (c->is_between[i])
            bytes += output * ty_lane_work_share(c->plan, i);
        bytes += found_bytes(c, i);
    }
    return bytes;
}

/* What else layers [first, end) make that backward or a later layer of them reads. */
static double working_set(const context *c, uint32_t first, uint32_t end)
{
    double bytes = 0;

    for (uint32_t i = first; i < end; i++) {
        const double output = output_bytes(c, i);
        bytes += layer_stash(c, i) - found_bytes(c, i);
        if (c->is_between[i] || c->is_sent[i])
            bytes -= output * ty_lane_work_share(c->plan, i);
    }
    return bytes;
}

/* What a micro-batch of a stage keeps while it is in flight: its input, what is sent on, and all
 * that backward needs, or what goes between segments. */
static double slot_bytes(const context *c)
{
    double beside = c->segment_count > 0 ? c->out + kept_between(c)
                                         : converted_batch(c) + stash(c) + relayed(c);

    if (splits_backward(c))
        beside += gradients_between(c);
    return c->samples * (stage_input(c) + beside);
}

/* What one stage of the position has beside its slots: gradients, which are of one stage at a time,
 * and where it is recomputed those of the segment in hand with what that makes again. */
static double beside_slots(const context *c)
{
    double bytes = 0, largest = 0;

    for (uint32_t s = 0; s < c->segment_count; s++) {
        const uint32_t end = s + 1 < c->segment_count ? c->segments[s + 1] : c->end;
        largest =
            fmax(largest, (s == 0 ? converted_batch(c) : 0) + working_set(c, c->segments[s], end) +
                              output_gradients(c, c->segments[s], end));
    }
    for (uint32_t i = c->stage->first_layer; i < c->end; i++)
        if (c->has_gradient_between[i])
            bytes += kept_output_bytes(c, i);
    if (c->segment_count == 0)
        largest = passing(c) + (splits_backward(c) /* in slots */
                                    ? 0
                                    : output_gradients(c, c->stage->first_layer, c->end));
    return inner_gradient(c) + c->samples * (bytes + largest);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static bool is_exchanged_here(const context *c, const ty_bucket *bucket)
{
    return (bucket->stage == c->index || bucket->tied_stage == c->index) &&
           ty_bucket_device_count(c->plan, bucket) > 1;
}

/* To each neighbour: staging, and per slot the gradient that is received or waits to be sent, where
 * one crosses the cut. */
static double neighbour_buffers(const context *c)
{
    return c->samples *
           (c->slots * (c->in_gradient + c->out_gradient) + STAGING_BUFFERS * (c->in + c->out));
}

/* Scratch of a collective: a tree receives whole payloads to add them, a ring pieces of them; what
 * is gathered arrives in place; what goes from all to all must not land on what is still there. */
static double collective_scratch(const context *c, const ty_bucket *bucket, uint32_t phase)
{
    double wire = (double)ty_plan_exchange_bytes(c->plan, bucket, phase);
    ty_collective_kind kind = ty_plan_exchange_kind(c->plan, bucket, phase);
    if (kind == TY_ALL_GATHER)
        return 0;
    if (kind == TY_ALL_TO_ALL || bucket->algorithm == TY_TREE ||
        bucket->algorithm == TY_PARAMETER_SERVER ||
        bucket->algorithm == TY_BLOCK_MANAGER) /* whole payloads, or everybody's share */
        return wire;
    return fmin(wire, RING_PIECES * wire / ty_bucket_device_count(c->plan, bucket));
}

/* Of tables that lanes divide: each slot's indices of all lanes' samples, vectors that are made for
 * all samples or their gradients, and where those are not summed in place the own ones. */
static double table_buffers(const context *c)
{
    const ty_table_exchange tables = ty_plan_tables(c->plan);
    const double own = c->samples / ty_plan_lanes(c->plan, TY_EXPERT_LANES);
    double vectors = c->samples * (double)tables.own_numbers;
    double indices = c->samples * (double)tables.own_indices;

    if (tables.first_bag < c->stage->first_layer || tables.first_bag >= c->end)
        return 0;
    if (c->plan->table_shard != TY_TABLES_ROW)
        vectors += own * (double)tables.numbers;
    if (splits_backward(c)) /* kept for the second part */
        indices += c->samples * (double)tables.own_numbers;
    return c->slots * indices * TY_GRADIENT_ELEMENT_BYTES +
           vectors * c->plan->workload->element_bytes;
}

/* Of accelerators with expert lanes: what arrives, and the gradients of what experts made. */
static double expert_messages(const context *c, uint32_t layer)
{
    double own, most;

    expert_rows(c, layer, &own, &most);
    return 2 * most * (double)layer_at(c, layer)->attributes[TY_FEATURES] *
           c->plan->workload->element_bytes;
}

/* Of one layer at a time: keys and values of whole sequences, their gradients, and one of both in
 * the order in which context lanes exchange it; with sequence parallelism what is gathered and what
 * is to be scattered; copies of tokens on their way to experts elsewhere and back. What is summed
 * in place has no room of its own. */
static double lane_buffers(const context *c)
{
    double largest = 0;

    for (uint32_t i = c->stage->first_layer; i < c->end; i++) {
        ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
        const uint32_t count = ty_layer_inner_collectives(c->plan, i, true, inner);
        const bool sends_rows = layer_at(c, i)->kind == TY_LAYER_MOE && !c->is_on_cores &&
                                ty_plan_lanes(c->plan, TY_EXPERT_LANES) > 1;
        double bytes = sends_rows ? expert_messages(c, i) : 0;
        for (uint32_t k = 0; k < count; k++)
            if (inner[k].kind != TY_ALL_REDUCE &&
                layer_at(c, i)->kind != TY_LAYER_EMBEDDING_BAG && /* table_buffers */
                !(sends_rows && inner[k].among == TY_EXPERT_LANES))
                bytes +=
                    (double)inner[k].bytes *
                    (inner[k].kind == TY_ALL_GATHER ? ty_plan_lanes(c->plan, inner[k].among) : 1) *
                    (inner[k].kind == TY_REDUCE_SCATTER && inner[k].among == TY_CONTEXT_LANES ? 2
                                                                                              : 1);
        largest = fmax(largest, bytes);
    }
    return largest;
}

/* Buckets are exchanged one after the other, so the largest scratch serves all. */
static double bucket_buffers(const context *c)
{
    double largest = 0;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        uint32_t phases = ty_compression_phases(&bucket->compression);
        for (uint32_t phase = 0; phase < phases && is_exchanged_here(c, bucket); phase++)
            largest = fmax(largest, collective_scratch(c, bucket, phase));
    }
    return ceil(largest);
}

/* Encoded payloads, of all members where they are gathered, and what compressors keep. */
static double compression(const context *c)
{
    double bytes = 0;
    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        ty_gradient_extent extent;
        uint32_t members = ty_bucket_device_count(c->plan, bucket);
        if (!is_exchanged_here(c, bucket) || bucket->compression.kind == TY_COMPRESSION_NONE)
            continue;
        extent = ty_bucket_extent(c->plan, bucket);
        bytes += (double)ty_compression_payload_bytes(&bucket->compression, &extent, members) +
                 (double)ty_compression_state_bytes(&bucket->compression, &extent, members);
    }
    return bytes;
}

/* ---- All rows -------------------------------------------------------------------------------- */

#define LARGEST 9007199254740992.0 /* 2^53 */

/* Whether ZeRO keeps shares alone of gradients: those of several micro-batches are summed before
 * they are exchanged, and whole until then. */
static bool shares_gradients(const context *c)
{
    return c->plan->zero >= 2 && c->plan->micro_batches == c->plan->stages[c->index].replicas;
}

/* Parameters of sharded buckets that are whole at a time: the one in use and the next, which take
 * turns in two places, or so the experts of their layers. */
static double whole_at_once(const context *c, bool of_experts)
{
    double places[2] = {0, 0};
    uint32_t turn = 0;

    for (uint32_t b = 0; b < c->plan->bucket_count; b++) {
        const ty_bucket *bucket = &c->plan->buckets[b];
        if (bucket->stage != c->index || bucket->of_experts != of_experts ||
            !ty_bucket_is_sharded(c->plan, bucket))
            continue;
        places[turn] =
            fmax(places[turn], (double)bucket->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES);
        turn = 1 - turn;
    }
    return places[0] + places[1];
}

/* Room for these: of weights with ZeRO 3, as passes read them, and of gradients between backward
 * and their exchange. Weights of 16 bits come together, a bucket at a time, before they go where
 * they are read; the gains and biases that are read as floats are not counted. */
static double gathered(const context *c)
{
    const double at_once = whole_at_once(c, false) + whole_at_once(c, true);
    double bytes = c->plan->zero > 0 && is_narrow(c) ? sharded_of(c).largest : 0;

    if (c->plan->zero >= 3)
        bytes += at_once * c->plan->workload->element_bytes;
    if (shares_gradients(c))
        bytes += at_once * TY_GRADIENT_ELEMENT_BYTES;
    return bytes;
}

typedef struct rows {
    double weights, gradients, optimizer, activations, communication, compression;
} rows;

/* What one stage adds to its position; `state` bytes of optimizer state a parameter. Late gradients
 * have a set for each step whose exchange may be under way, beside the one that is made. */
static void add_stage(const context *c, double state, double versions, rows *r)
{
    const double all = parameters(c, false), trained = parameters(c, true);
    const sharded_parameters sharded = sharded_of(c);
    const uint32_t zero = c->plan->zero;
    const double element = c->plan->workload->element_bytes;

    r->weights += all * (1 + versions);
    if (zero >= 3) /* of narrow ones the share is there as what is updated alone; all but for the
                      rounding of what lanes have whole */
        r->weights = fmax(0, r->weights - (is_narrow(c) ? sharded.all : sharded.others));
    r->gradients += (1.0 + c->plan->staleness) *
                    (trained - (shares_gradients(c) ? sharded.others : 0)) / element *
                    TY_GRADIENT_ELEMENT_BYTES;
    r->optimizer += state * (trained - (zero >= 1 ? sharded.others : 0)) / element;
    r->communication +=
        neighbour_buffers(c) + bucket_buffers(c) + lane_buffers(c) + table_buffers(c) + gathered(c);
    r->compression += compression(c);
}

static bool is_on_cores(const ty_plan *plan, uint32_t stage)
{
    const uint32_t *devices = plan->stages[stage].devices;

    return plan->cluster != NULL && devices != NULL &&
           ty_cluster_device_type(plan->cluster, devices[0])->core_share > 0;
}

/* ---- Actors ---------------------------------------------------------------------------------- */

/* Batches that actors have room for: one is sent while the next is played (execute/). */
#define ACTOR_BATCHES 2

static double batch_bytes(const ty_plan *plan)
{
    return (double)plan->micro_batch_size * (double)ty_workload_episode_bytes(plan->workload);
}

/* Of whoever plays: the weights once more, and what their layers make of one step. */
static void add_player(const ty_plan *plan, ty_memory_use *use)
{
    const ty_workload *w = plan->workload;
    const double steps = (double)w->input.dimensions[0];
    double outputs = 0;

    for (uint32_t l = 0; l + 1 < w->layer_count; l++)
        outputs += (double)w->layers[l].output_bytes;
    use->parameter_bytes += ty_workload_parameter_bytes(w, 0, w->layer_count);
    use->gradient_bytes += ty_workload_parameter_bytes(w, 0, w->layer_count); /* there, unused */
    use->activation_bytes += (uint64_t)(outputs / steps * plan->micro_batch_size);
    /* Sets of weights that may be on their way at once: those of a step, of the next, and of as
     * many as actors are ahead. */
    const double set = (double)ty_plan_policy_bytes(plan) * ty_plan_policy_messages(plan, 0);
    use->communication_bytes += (uint64_t)(set * (plan->lag + 3));
}

ty_status ty_stage_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                          ty_memory_use *out, ty_error *error)
{
    const uint32_t position = plan->stage_count > 0 ? stage % ty_plan_position_count(plan) : 0;
    /* Gradients and optimizer state are fp32; weights of fewer bytes have an fp32 copy that is
     * updated (Micikevicius et al., "Mixed Precision Training", 2018, section 3.1). */
    const double numbers = ty_optimizer_state_count(&plan->optimizer);
    const double copy = plan->workload->element_bytes < TY_GRADIENT_ELEMENT_BYTES ? 1 : 0;
    const double state = (numbers + copy) * TY_GRADIENT_ELEMENT_BYTES;
    context all = {.plan = plan, .program = program};
    double *weights, most = 0;
    ty_status status = TY_OK;
    rows r = {0};

    if (stage >= plan->stage_count || program->stage_count != ty_plan_position_count(plan))
        return ty_fail(error, TY_EINVAL,
                       "found stage %u and a program of %u stages, expected one "
                       "of %u",
                       stage, program->stage_count, plan->stage_count);
    if (ty_plan_is_of_actors(plan, stage)) {
        all.is_on_cores = is_on_cores(plan, stage);
        *out = (ty_memory_use){
            .communication_bytes = (uint64_t)(ACTOR_BATCHES * batch_bytes(plan)),
            .optimizer_bytes =
                (uint64_t)(ty_workload_parameter_bytes(plan->workload, 0,
                                                       plan->workload->layer_count) /
                           plan->workload->element_bytes *
                           ty_optimizer_state_count(&plan->optimizer) * sizeof(float)),
            .workspace_bytes =
                ty_workspace_bytes(plan, position, program->stage_count, all.is_on_cores)};
        add_player(plan, out);
        return TY_OK;
    }
    if (ty_stack_of(plan)->memory == TY_MEMORY_AUTOGRAD) {
        for (all.index = position; all.index < plan->stage_count; all.index += program->stage_count)
            r.compression += compression(&all);
        return ty_autograd_memory(plan, program, stage, r.compression, out, error);
    }
    weights = ty_alloc(ty_plan_interleave(plan), sizeof *weights);
    all.takes_part = ty_alloc(plan->workload->layer_count, 7 * sizeof *all.takes_part);
    all.kept = ty_alloc(plan->workload->layer_count, 4 * sizeof *all.kept);
    all.crossing = ty_alloc(plan->workload->layer_count, 2 * sizeof *all.crossing);
    all.again = ty_alloc(plan->workload->layer_count, sizeof *all.again);
    if (weights == NULL || all.takes_part == NULL || all.kept == NULL || all.crossing == NULL ||
        all.again == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto done;
    }
    all.is_on_cores = is_on_cores(plan, stage);
    all.copies = all.kept + plan->workload->layer_count;
    all.copied = all.copies + plan->workload->layer_count;
    all.places = all.copied + plan->workload->layer_count;
    all.is_kept = all.takes_part + plan->workload->layer_count;
    all.is_between = all.is_kept + plan->workload->layer_count;
    all.is_sent = all.is_between + plan->workload->layer_count;
    all.has_gradient_between = all.is_sent + plan->workload->layer_count;
    all.is_added = all.has_gradient_between + plan->workload->layer_count;
    all.segments = all.crossing + plan->workload->layer_count;
    ty_workload_mark_backward(plan->workload, all.takes_part);
    for (uint32_t s = position; s < plan->stage_count; s += program->stage_count) {
        const context c = context_of(&all, s);
        mark_layers(&c);
        mark_kept(&c, all.is_kept);
        mark_between(&c);
        mark_added(&c, all.is_added + plan->workload->layer_count);
        /* Versions of the weights in addition to the newest: PipeDream keeps one for each step that
         * a micro-batch can be behind (section 3.3), 2BW one (section 3.1). */
        add_stage(&c, state, ty_program_stashed_versions(program, plan->schedule, position), &r);
        weights[s / program->stage_count] = slot_bytes(&c);
        most = fmax(most, beside_slots(&c));
    }
    /* All stages' slots together at the fullest moment. */
    r.activations = ty_program_peak_stash(program, position, weights) + most;
    if (!(r.weights + r.gradients + r.optimizer + r.activations + r.communication + r.compression <
          LARGEST)) {
        status = ty_fail(error, TY_EINVAL, "stage %u: needs more than 2^53 bytes", stage);
        goto done;
    }
    *out = (ty_memory_use){.parameter_bytes = (uint64_t)r.weights,
                           .gradient_bytes = (uint64_t)r.gradients,
                           .optimizer_bytes = (uint64_t)r.optimizer,
                           .activation_bytes = (uint64_t)r.activations,
                           .communication_bytes = (uint64_t)r.communication,
                           .compression_bytes = (uint64_t)r.compression,
                           .workspace_bytes = ty_workspace_bytes(
                               plan, position, program->stage_count, all.is_on_cores)};
    if (plan->workload->learning == TY_LEARNING_REINFORCEMENT) {
        add_player(plan, out);
        out->communication_bytes +=
            (uint64_t)(ty_program_peak_in_flight(program, stage) * batch_bytes(plan));
    }
done:
    ty_free(weights);
    ty_free(all.takes_part);
    ty_free(all.kept);
    ty_free(all.crossing);
    ty_free(all.again);
    return status;
}
