/* What must hold of a workload, whoever made it. */
#include "json_scan.h"
#include "ty_base.h"
#include "workload_layers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checker {
    const ty_workload *workload;
    const char *place;
    ty_error *error;
} checker;

/* "<place>/layers/3<pointer>: <message>"; TY_NO_LAYER for what belongs to the whole. */
static ty_status TY_PRINTF(4, 5)
    bad(const checker *c, uint32_t layer, const char *pointer, const char *format, ...)
{
    char message[256], index[24] = "";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (layer != TY_NO_LAYER)
        snprintf(index, sizeof index, "/layers/%u", layer);
    return ty_fail(c->error, TY_EPARSE, "%.200s%s%s: %s", c->place, index, pointer, message);
}

/* ---- shapes: what a layer makes of its first input ---- */

typedef struct shapes {
    const ty_layer *layer;
    const ty_shape *in;
    const ty_workload *workload;
    uint32_t index;
    ty_shape out;        /* what the layer's output must be */
    char complaint[160]; /* what the input should have been; "" if it is fine */
} shapes;

static uint64_t attribute_of(const shapes *s, ty_attribute attribute)
{
    return s->layer->attributes[attribute];
}

static uint64_t last_dimension(const ty_shape *shape)
{
    return shape->dimensions[shape->dimension_count - 1];
}

static bool shapes_equal(const ty_shape *a, const ty_shape *b)
{
    if (a->dimension_count != b->dimension_count)
        return false;
    for (uint32_t i = 0; i < a->dimension_count; i++) {
        if (a->dimensions[i] != b->dimensions[i])
            return false;
    }
    return true;
}

/* The last dimension of the input must be what the attribute says. */
static bool ends_in(shapes *s, ty_attribute attribute)
{
    if (last_dimension(s->in) == attribute_of(s, attribute))
        return true;
    snprintf(s->complaint, sizeof s->complaint, "a last dimension of %s %llu",
             ty_attribute_name(attribute), (unsigned long long)attribute_of(s, attribute));
    return false;
}

static bool has_dimensions(shapes *s, uint32_t count, const char *what)
{
    if (s->in->dimension_count == count)
        return true;
    snprintf(s->complaint, sizeof s->complaint, "%s", what);
    return false;
}

static void same_shape(shapes *s)
{
    s->out = *s->in;
}

static void norm_shape(shapes *s)
{
    if (ends_in(s, TY_FEATURES))
        s->out = *s->in;
}

static void batch_norm_shape(shapes *s)
{
    if (s->in->dimensions[0] != attribute_of(s, TY_FEATURES))
        snprintf(s->complaint, sizeof s->complaint, "a first dimension of features %llu",
                 (unsigned long long)attribute_of(s, TY_FEATURES));
    s->out = *s->in;
}

static void linear_shape(shapes *s)
{
    if (!ends_in(s, TY_IN_FEATURES))
        return;
    s->out = *s->in;
    s->out.dimensions[s->out.dimension_count - 1] = attribute_of(s, TY_OUT_FEATURES);
}

/* Windows along one dimension; 0 if none fits, or if one could lie in the padding alone. */
static uint64_t window_count(uint64_t size, uint64_t kernel, uint64_t stride, uint64_t padding)
{
    if (padding >= kernel || size + 2 * padding < kernel)
        return 0;
    return (size + 2 * padding - kernel) / stride + 1;
}

static void slide_window(shapes *s, uint64_t channels)
{
    if (!has_dimensions(s, 3, "an image of 3 dimensions"))
        return;
    s->out.dimension_count = 3;
    s->out.dimensions[0] = channels;
    s->out.dimensions[1] =
        window_count(s->in->dimensions[1], attribute_of(s, TY_KERNEL_HEIGHT),
                     attribute_of(s, TY_STRIDE), attribute_of(s, TY_PADDING_HEIGHT));
    s->out.dimensions[2] =
        window_count(s->in->dimensions[2], attribute_of(s, TY_KERNEL_WIDTH),
                     attribute_of(s, TY_STRIDE), attribute_of(s, TY_PADDING_WIDTH));
    if (s->out.dimensions[1] == 0 || s->out.dimensions[2] == 0)
        snprintf(s->complaint, sizeof s->complaint,
                 "an image no smaller than the window, and the window larger than its padding");
}

static void conv2d_shape(shapes *s)
{
    uint64_t in = attribute_of(s, TY_IN_CHANNELS), out = attribute_of(s, TY_OUT_CHANNELS);
    uint64_t groups = attribute_of(s, TY_GROUPS);

    slide_window(s, out);
    if (s->complaint[0] == '\0' && s->in->dimensions[0] != in)
        snprintf(s->complaint, sizeof s->complaint, "in_channels %llu", (unsigned long long)in);
    else if (in % groups != 0 || out % groups != 0)
        snprintf(s->complaint, sizeof s->complaint, "groups that divide in_ and out_channels");
}

static void pool_shape(shapes *s)
{
    slide_window(s, s->in->dimensions[0]);
    if (s->complaint[0] == '\0' && attribute_of(s, TY_IS_GLOBAL) != 0 &&
        (attribute_of(s, TY_KERNEL_HEIGHT) != s->in->dimensions[1] ||
         attribute_of(s, TY_KERNEL_WIDTH) != s->in->dimensions[2] || s->out.dimensions[1] != 1 ||
         s->out.dimensions[2] != 1))
        snprintf(s->complaint, sizeof s->complaint, "the image as the window of a global pool");
}

static void embedding_shape(shapes *s)
{
    uint64_t positions = attribute_of(s, TY_POSITIONS);

    if (s->layer->input_count != 0 || s->workload->input_kind != TY_INPUT_TOKEN)
        snprintf(s->complaint, sizeof s->complaint, "the batch, made of tokens");
    else if (positions != 0 && positions < s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint, "at most %llu tokens (positions)",
                 (unsigned long long)positions);
    s->out = (ty_shape){2, {s->in->dimensions[0], attribute_of(s, TY_FEATURES)}};
}

static void embedding_bag_shape(shapes *s)
{
    const uint64_t end = attribute_of(s, TY_FIRST_ROW) + attribute_of(s, TY_ROWS);

    if (s->layer->input_count != 0 || s->workload->input_kind != TY_INPUT_REAL ||
        s->in->dimension_count != 1 || end > s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint,
                 "the batch, made of at least %llu numbers (first_row and rows)",
                 (unsigned long long)end);
    s->out = (ty_shape){1, {attribute_of(s, TY_FEATURES)}};
}

static void dot_interaction_shape(shapes *s)
{
    const uint64_t count = s->layer->input_count;

    if (!has_dimensions(s, 1, "vectors of 1 dimension"))
        return;
    for (uint32_t i = 1; i < count; i++)
        if (!shapes_equal(ty_layer_input_shape(s->workload, s->index, i), s->in))
            snprintf(s->complaint, sizeof s->complaint, "as many numbers in input %u", i);
    s->out = (ty_shape){1, {s->in->dimensions[0] + count * (count - 1) / 2}};
}

/* Latents belong together, and the rotated part of a head leaves something of it. */
static bool latents_fit(const shapes *s)
{
    uint64_t kv = attribute_of(s, TY_KV_RANK), rotary = attribute_of(s, TY_ROTARY_SIZE);

    if (kv == 0)
        return rotary == 0 && attribute_of(s, TY_QUERY_RANK) == 0;
    return s->layer->input_count < 2 && rotary < attribute_of(s, TY_HEAD_SIZE) &&
           attribute_of(s, TY_KV_HEADS) == attribute_of(s, TY_HEADS);
}

static void attention_shape(shapes *s)
{
    if (has_dimensions(s, 2, "a sequence of 2 dimensions") && ends_in(s, TY_FEATURES)) {
        if (attribute_of(s, TY_HEADS) % attribute_of(s, TY_KV_HEADS) != 0)
            snprintf(s->complaint, sizeof s->complaint, "heads to be a multiple of kv_heads");
        else if (!latents_fit(s))
            snprintf(s->complaint, sizeof s->complaint,
                     "query_rank and rotary_size only with kv_rank; with it one input, kv_heads "
                     "equal to heads, and rotary_size below head_size");
    }
    if (s->complaint[0] == '\0' && s->layer->input_count > 1) { /* the queries decide the shape */
        s->in = ty_layer_input_shape(s->workload, s->index, 1);
        if (has_dimensions(s, 2, "a sequence of 2 dimensions"))
            ends_in(s, TY_FEATURES);
    }
    s->out = *s->in;
}

static void slice_shape(shapes *s)
{
    if (attribute_of(s, TY_FIRST_ROW) + attribute_of(s, TY_ROWS) > s->in->dimensions[0])
        snprintf(s->complaint, sizeof s->complaint, "at least %llu rows (first_row and rows)",
                 (unsigned long long)(attribute_of(s, TY_FIRST_ROW) + attribute_of(s, TY_ROWS)));
    s->out = *s->in;
    s->out.dimensions[0] = attribute_of(s, TY_ROWS);
}

static void moe_shape(shapes *s)
{
    if (ends_in(s, TY_FEATURES) &&
        attribute_of(s, TY_EXPERTS_PER_TOKEN) > attribute_of(s, TY_EXPERTS))
        snprintf(s->complaint, sizeof s->complaint, "experts_per_token to be at most experts");
    s->out = *s->in;
}

static void lstm_shape(shapes *s)
{
    if (has_dimensions(s, 2, "a sequence of 2 dimensions") && ends_in(s, TY_IN_FEATURES))
        s->out = (ty_shape){2, {s->in->dimensions[0], attribute_of(s, TY_HIDDEN_FEATURES)}};
}

static void loss_shape(shapes *s)
{
    if (ends_in(s, TY_CLASSES))
        s->out = (ty_shape){1, {1}};
}

static void flatten_shape(shapes *s)
{
    s->out = (ty_shape){1, {ty_shape_elements(s->in)}};
}

static void add_shape(shapes *s)
{
    char expected[TY_SHAPE_TEXT_SIZE];

    s->out = *s->in;
    for (uint32_t i = 1; i < s->layer->input_count; i++) {
        if (shapes_equal(ty_layer_input_shape(s->workload, s->index, i), s->in))
            continue;
        ty_shape_text(ty_layer_input_shape(s->workload, s->index, i), expected);
        snprintf(s->complaint, sizeof s->complaint, "%s as input %u", expected, i);
    }
}

static void concat_shape(shapes *s)
{
    const bool is_last = attribute_of(s, TY_IS_OF_FEATURES) != 0;
    const uint32_t along = is_last ? s->in->dimension_count - 1 : 0;

    s->out = *s->in;
    for (uint32_t i = 1; i < s->layer->input_count; i++) {
        const ty_shape *other = ty_layer_input_shape(s->workload, s->index, i);
        ty_shape rest = *other;
        rest.dimensions[along] = s->in->dimensions[along];
        if (!shapes_equal(&rest, s->in))
            snprintf(s->complaint, sizeof s->complaint,
                     "what differs from input %u in the %s dimension only", i,
                     is_last ? "last" : "first");
        s->out.dimensions[along] += other->dimensions[along];
    }
}

/* The memory, then the queries. */
static void additive_attention_shape(shapes *s)
{
    if (!has_dimensions(s, 2, "a sequence of 2 dimensions") || !ends_in(s, TY_FEATURES))
        return;
    s->in = ty_layer_input_shape(s->workload, s->index, 1);
    if (has_dimensions(s, 2, "a sequence of 2 dimensions") && ends_in(s, TY_IN_FEATURES))
        s->out = (ty_shape){2, {s->in->dimensions[0], attribute_of(s, TY_FEATURES)}};
}

/* Heads that share the groups' numbers, or steps made from a rank: one of the two. */
static void state_space_shape(shapes *s)
{
    uint64_t heads = attribute_of(s, TY_HEADS), groups = attribute_of(s, TY_GROUPS);

    if (has_dimensions(s, 2, "a sequence of 2 dimensions") && ends_in(s, TY_FEATURES) &&
        (heads > 0 ? attribute_of(s, TY_HIDDEN_FEATURES) % heads != 0 || groups == 0 ||
                         heads % groups != 0 || attribute_of(s, TY_STEP_RANK) > 0
                   : attribute_of(s, TY_STEP_RANK) == 0))
        snprintf(s->complaint, sizeof s->complaint,
                 "heads that divide hidden_features and groups that divide heads, or a step_rank");
    s->out = *s->in;
}

static void gated_delta_shape(shapes *s)
{
    if (has_dimensions(s, 2, "a sequence of 2 dimensions") && ends_in(s, TY_FEATURES) &&
        attribute_of(s, TY_HEADS) % attribute_of(s, TY_KV_HEADS) != 0)
        snprintf(s->complaint, sizeof s->complaint, "heads to be a multiple of kv_heads");
    s->out = *s->in;
}

static void (*const shape_rules[TY_LAYER_KIND_COUNT])(shapes *) = {
    [TY_LAYER_LINEAR] = linear_shape,
    [TY_LAYER_CONV2D] = conv2d_shape,
    [TY_LAYER_BATCH_NORM] = batch_norm_shape,
    [TY_LAYER_LAYER_NORM] = norm_shape,
    [TY_LAYER_RMS_NORM] = norm_shape,
    [TY_LAYER_POOL] = pool_shape,
    [TY_LAYER_RELU] = same_shape,
    [TY_LAYER_GELU] = same_shape,
    [TY_LAYER_SILU] = same_shape,
    [TY_LAYER_EMBEDDING] = embedding_shape,
    [TY_LAYER_ATTENTION] = attention_shape,
    [TY_LAYER_MLP] = norm_shape,
    [TY_LAYER_MOE] = moe_shape,
    [TY_LAYER_LSTM] = lstm_shape,
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = loss_shape,
    [TY_LAYER_ADD] = add_shape,
    [TY_LAYER_CONCAT] = concat_shape,
    [TY_LAYER_FLATTEN] = flatten_shape,
    [TY_LAYER_TANH] = same_shape,
    [TY_LAYER_SLICE] = slice_shape,
    [TY_LAYER_ADDITIVE_ATTENTION] = additive_attention_shape,
    [TY_LAYER_STATE_SPACE] = state_space_shape,
    [TY_LAYER_GATED_DELTA] = gated_delta_shape,
    [TY_LAYER_EMBEDDING_BAG] = embedding_bag_shape,
    [TY_LAYER_DOT_INTERACTION] = dot_interaction_shape,
    [TY_LAYER_OPAQUE] = NULL, /* any */
};

ty_status ty_layer_shape(const ty_workload *workload, uint32_t layer, ty_shape *out,
                         ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];
    shapes s = {.layer = l, .workload = workload, .index = layer};
    char found[TY_SHAPE_TEXT_SIZE];

    s.in = ty_layer_input_shape(workload, layer, 0);
    if (shape_rules[l->kind] == NULL) {
        *out = l->output;
        return TY_OK;
    }
    shape_rules[l->kind](&s);
    if (s.complaint[0] != '\0') {
        ty_shape_text(s.in, found);
        return ty_fail(error, TY_EINVAL, "found %s input %s, expected %s",
                       ty_layer_kind_name(l->kind), found, s.complaint);
    }
    *out = s.out;
    return TY_OK;
}

static ty_status check_shape_rule(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];
    ty_shape shape;
    ty_error detail = {0};
    char found[TY_SHAPE_TEXT_SIZE], expected[TY_SHAPE_TEXT_SIZE];

    if (ty_layer_shape(c->workload, index, &shape, &detail) != TY_OK)
        return bad(c, index, "", "%s", detail.message);
    if (!shapes_equal(&shape, &layer->output)) {
        ty_shape_text(&layer->output, found);
        ty_shape_text(&shape, expected);
        return bad(c, index, "/output_shape", "found %s, expected %s", found, expected);
    }
    return TY_OK;
}

static ty_status check_shape(const checker *c, uint32_t layer, const char *pointer,
                             const ty_shape *shape)
{
    double elements = 1.0;
    char found[TY_SHAPE_TEXT_SIZE];

    if (shape->dimension_count < 1 || shape->dimension_count > TY_MAX_DIMENSIONS)
        return bad(c, layer, pointer, "found %u dimensions, expected 1 to %d",
                   shape->dimension_count, TY_MAX_DIMENSIONS);
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        elements *= (double)shape->dimensions[i];
    if (!(elements >= 1.0 && elements < 0x1p53)) {
        ty_shape_text(shape, found);
        return bad(c, layer, pointer, "found %s, expected dimensions >= 1 and a product below 2^53",
                   found);
    }
    return TY_OK;
}

/* ---- one layer ---- */

static ty_status check_inputs(const checker *c, uint32_t index, bool *is_used)
{
    const ty_layer *layer = &c->workload->layers[index];
    bool is_join = layer->kind == TY_LAYER_ADD || layer->kind == TY_LAYER_CONCAT ||
                   layer->kind == TY_LAYER_DOT_INTERACTION;
    bool is_pair = layer->kind == TY_LAYER_ADDITIVE_ATTENTION;
    uint32_t most = is_pair || layer->kind == TY_LAYER_ATTENTION ? 2 : 1;
    char pointer[32];

    if (is_pair && layer->input_count != 2)
        return bad(c, index, "/inputs", "found %u, expected 2 for %s", layer->input_count,
                   ty_layer_kind_name(layer->kind));
    if (is_join ? layer->input_count < 2
                : layer->input_count > most && layer->kind != TY_LAYER_OPAQUE)
        return bad(c, index, "/inputs", "found %u, expected %s %u for %s", layer->input_count,
                   is_join ? "at least" : "at most", is_join ? 2 : most,
                   ty_layer_kind_name(layer->kind));
    for (uint32_t i = 0; i < layer->input_count; i++) {
        uint32_t low = i == 0 ? 0 : layer->inputs[i - 1] + 1;
        if (layer->inputs[i] < low || layer->inputs[i] >= index) {
            snprintf(pointer, sizeof pointer, "/inputs/%u", i);
            return bad(c, index, pointer,
                       "found %u, expected an earlier layer, from %u up to but not including %u",
                       layer->inputs[i], low, index);
        }
        is_used[layer->inputs[i]] = true;
    }
    if (layer->input_count == 0 && c->workload->input_kind == TY_INPUT_TOKEN &&
        layer->kind != TY_LAYER_EMBEDDING && layer->kind != TY_LAYER_OPAQUE)
        return bad(c, index, "/inputs", "found none, expected one: only an embedding reads tokens");
    return TY_OK;
}

static ty_status check_attributes(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];

    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        ty_attribute_use use = ty_layer_attribute_use(layer->kind, a);
        bool is_used = use != TY_ATTRIBUTE_UNUSED;
        uint64_t minimum = use == TY_ATTRIBUTE_REQUIRED && ty_attribute_is_size(a) ? 1 : 0;
        uint64_t maximum = !is_used ? 0 : ty_attribute_is_flag(a) ? 1 : TY_MAX_ATTRIBUTE;
        char pointer[64];
        if (layer->attributes[a] >= minimum && layer->attributes[a] <= maximum)
            continue;
        snprintf(pointer, sizeof pointer, "/attributes/%s", ty_attribute_name(a));
        return bad(c, index, pointer, "found %llu, expected %llu to %llu for %s",
                   (unsigned long long)layer->attributes[a], (unsigned long long)minimum,
                   (unsigned long long)maximum, ty_layer_kind_name(layer->kind));
    }
    return TY_OK;
}

/* Rows and columns of the one matrix that can be shared; false for other kinds. */
static bool matrix_of(const ty_layer *layer, uint64_t *rows, uint64_t *columns)
{
    bool is_embedding = layer->kind == TY_LAYER_EMBEDDING;

    if (!is_embedding && layer->kind != TY_LAYER_LINEAR)
        return false;
    *rows = layer->attributes[is_embedding ? TY_VOCABULARY : TY_OUT_FEATURES];
    *columns = layer->attributes[is_embedding ? TY_FEATURES : TY_IN_FEATURES];
    return true;
}

static ty_status check_tie(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index], *owner;
    uint64_t rows, columns, owner_rows, owner_columns;

    if (layer->tied_to == TY_NO_LAYER)
        return TY_OK;
    if (layer->tied_to >= index)
        return bad(c, index, "/tied_to", "found %u, expected an earlier layer", layer->tied_to);
    owner = &c->workload->layers[layer->tied_to];
    if (owner->tied_to != TY_NO_LAYER)
        return bad(c, index, "/tied_to", "found layer %u, which is tied itself, expected layer %u",
                   layer->tied_to, owner->tied_to);
    if (!matrix_of(layer, &rows, &columns) || !matrix_of(owner, &owner_rows, &owner_columns))
        return bad(c, index, "/tied_to", "found %s tied to %s, expected linear or embedding layers",
                   ty_layer_kind_name(layer->kind), ty_layer_kind_name(owner->kind));
    if (rows != owner_rows || columns != owner_columns)
        return bad(c, index, "/tied_to",
                   "found a matrix of %llu x %llu, expected %llu x %llu as in this layer",
                   (unsigned long long)owner_rows, (unsigned long long)owner_columns,
                   (unsigned long long)rows, (unsigned long long)columns);
    return TY_OK;
}

static ty_status check_quantities(const checker *c, uint32_t index)
{
    const ty_layer *layer = &c->workload->layers[index];
    const struct {
        const char *pointer;
        uint64_t bytes;
    } sizes[] = {{"/parameter_bytes", layer->parameter_bytes},
                 {"/output_bytes", layer->output_bytes},
                 {"/stash_bytes", layer->stash_bytes},
                 {"/traffic_bytes", layer->traffic_bytes}};
    const double measured_limit = layer->kind == TY_LAYER_OPAQUE ? HUGE_VAL : 0.0;
    const struct {
        const char *pointer;
        double value, maximum;
    } numbers[] = {{"/forward_flop", layer->forward_flop, HUGE_VAL},
                   {"/backward_flop", layer->backward_flop, HUGE_VAL},
                   {"/measured_forward_s", layer->measured_forward_s, measured_limit},
                   {"/measured_backward_s", layer->measured_backward_s, measured_limit}};

    for (size_t i = 0; i < 4; i++) {
        if (sizes[i].bytes > TY_MAX_QUANTITY)
            return bad(c, index, sizes[i].pointer, "found %llu, expected less than 2^53",
                       (unsigned long long)sizes[i].bytes);
        if (!isfinite(numbers[i].value) || numbers[i].value < 0.0 ||
            numbers[i].value > numbers[i].maximum)
            return bad(c, index, numbers[i].pointer, "found %g, expected %s", numbers[i].value,
                       numbers[i].maximum > 0.0 ? "a number >= 0" : "none: not an opaque layer");
    }
    return TY_OK;
}

static ty_status check_layer(const checker *c, uint32_t index, bool *is_used)
{
    const ty_layer *layer = &c->workload->layers[index];

    if (layer->name == NULL || layer->name[0] == '\0')
        return bad(c, index, "/name", "found nothing, expected a name");
    if (!ty_is_printable(layer->name))
        return bad(c, index, "/name", "found bytes that are no UTF-8 or that cannot be seen");
    if ((unsigned)layer->kind >= TY_LAYER_KIND_COUNT)
        return bad(c, index, "/kind", "found number %d, expected a kind of layer",
                   (int)layer->kind);
    if (layer->kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY && index + 1 < c->workload->layer_count)
        return bad(c, index, "/kind", "found a loss, expected it as the last layer only");
    TY_TRY(check_inputs(c, index, is_used));
    TY_TRY(check_attributes(c, index));
    TY_TRY(check_shape(c, index, "/output_shape", &layer->output));
    TY_TRY(check_shape_rule(c, index));
    TY_TRY(check_tie(c, index));
    return check_quantities(c, index);
}

/* ---- the whole ---- */

static ty_status check_optimizer(const checker *c)
{
    const ty_optimizer *o = &c->workload->optimizer;
    const bool is_adamw = o->kind == TY_OPTIMIZER_ADAMW;
    const struct {
        const char *pointer;
        double value, limit; /* 0 <= value < limit */
    } numbers[] = {{"/optimizer/learning_rate", o->learning_rate, HUGE_VAL},
                   {"/optimizer/weight_decay", o->weight_decay, HUGE_VAL},
                   {"/optimizer/momentum", is_adamw ? 0.0 : o->momentum, 1.0},
                   {"/optimizer/beta1", is_adamw ? o->beta1 : 0.0, 1.0},
                   {"/optimizer/beta2", is_adamw ? o->beta2 : 0.0, 1.0},
                   {"/optimizer/epsilon", is_adamw ? o->epsilon : 0.0, HUGE_VAL}};

    if ((unsigned)o->kind > TY_OPTIMIZER_ADAMW)
        return bad(c, TY_NO_LAYER, "/optimizer/kind", "found number %d, expected sgd or adamw",
                   (int)o->kind);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!(numbers[i].value >= 0.0 && numbers[i].value < numbers[i].limit))
            return bad(c, TY_NO_LAYER, numbers[i].pointer, "found %g, expected a number >= 0%s",
                       numbers[i].value, numbers[i].limit <= 1.0 ? " and < 1" : "");
    }
    return TY_OK;
}

static ty_status check_scenario(const checker *c)
{
    const ty_workload *w = c->workload;

    if ((unsigned)w->learning >= TY_LEARNING_COUNT)
        return bad(c, TY_NO_LAYER, "/learning",
                   "found number %d, expected gradient, evolution or reinforcement",
                   (int)w->learning);
    if (w->local_steps > TY_MAX_LOCAL_STEPS)
        return bad(c, TY_NO_LAYER, "/local_steps", "found %u, expected at most %d", w->local_steps,
                   TY_MAX_LOCAL_STEPS);
    if (w->local_steps > 1 && w->learning == TY_LEARNING_EVOLUTION)
        return bad(c, TY_NO_LAYER, "/local_steps",
                   "found %u, expected none: in evolution every step exchanges scores",
                   w->local_steps);
    if (!(w->input_s_per_sample >= 0.0 && w->input_s_per_sample <= TY_MAX_INPUT_S))
        return bad(c, TY_NO_LAYER, "/input_s_per_sample",
                   "found %g, expected a number from 0 to %g", w->input_s_per_sample,
                   TY_MAX_INPUT_S);
    if (!(w->deviation >= 0.0 && w->deviation <= TY_MAX_DEVIATION))
        return bad(c, TY_NO_LAYER, "/deviation", "found %g, expected a number from 0 to %g",
                   w->deviation, TY_MAX_DEVIATION);
    if (w->deviation > 0 && w->learning != TY_LEARNING_EVOLUTION)
        return bad(c, TY_NO_LAYER, "/deviation", "found %g, expected none without evolution",
                   w->deviation);
    return TY_OK;
}

/* An episode is a sample: what is seen in each of its steps, and for each a loss of scores of
 * actions. */
static ty_status check_reinforcement(const checker *c)
{
    const ty_workload *w = c->workload;
    const uint32_t last = w->layer_count - 1;
    const char *why = NULL;
    const ty_shape *scores;

    if (w->learning != TY_LEARNING_REINFORCEMENT)
        return TY_OK;
    if (w->layers[last].kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY) {
        scores = ty_layer_input_shape(w, last, 0);
        if (scores->dimension_count != 2 || scores->dimensions[0] != w->input.dimensions[0] ||
            scores->dimensions[1] < 2)
            why = "the loss is not of two actions or more in each step of an episode";
    } else {
        why = "the last layer is no softmax_cross_entropy of the actions";
    }
    if (w->input_kind != TY_INPUT_REAL || w->input.dimension_count != 2)
        why = "the input is not an episode, so many steps of so many numbers";
    else if (w->local_steps > 1)
        why = "replicas take local steps";
    else if (ty_workload_has_teacher(w))
        why = "there is a teacher";
    else if (w->input_s_per_sample > 0)
        why = "samples have a source with a pace of its own, and episodes are played";
    for (uint32_t l = 0; l < w->layer_count && why == NULL; l++)
        if (w->layers[l].is_frozen || w->layers[l].tied_to != TY_NO_LAYER)
            why = "there are frozen or tied layers";
    if (why != NULL)
        return bad(c, TY_NO_LAYER, "/learning", "found reinforcement, expected another: %s", why);
    return TY_OK;
}

/* Teacher and student are one network twice, each with a view of its own and scores of its own. */
static ty_status check_pupils(const checker *c)
{
    const ty_workload *w = c->workload;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *own = &w->layers[l], *other;
        uint32_t at;

        if (own->tied_to != TY_NO_LAYER)
            return bad(c, l, "/tied_to", "found %u, expected none beside a teacher", own->tied_to);
        if (own->parameter_bytes == 0)
            continue;
        at = own->is_frozen ? ty_layer_leader(w, l) : ty_layer_follower(w, l);
        other = at == TY_NO_LAYER ? NULL : &w->layers[at];
        if (other == NULL || other->kind != own->kind ||
            memcmp(other->attributes, own->attributes, sizeof own->attributes) != 0)
            return bad(c, l, "", "found %s \"%.60s\", expected a %s layer like it",
                       own->is_frozen ? "the teacher's" : "the student's", own->name,
                       own->is_frozen ? "trained" : "frozen");
    }
    return TY_OK;
}

static ty_status check_teacher(const checker *c)
{
    const ty_workload *w = c->workload;
    const ty_teacher *t = &w->teacher;
    const ty_layer *loss = &w->layers[w->layer_count - 1];
    const char *why = NULL;

    if (!ty_workload_has_teacher(w))
        return TY_OK;
    if (t->every == 0 || t->every > TY_MAX_TEACHER_EVERY)
        return bad(c, TY_NO_LAYER, "/teacher/every", "found %u, expected 1 to %d", t->every,
                   TY_MAX_TEACHER_EVERY);
    if (!(t->decay >= 0.0 && t->decay < 1.0))
        return bad(c, TY_NO_LAYER, "/teacher/decay", "found %g, expected a number >= 0 and < 1",
                   t->decay);
    if (!(t->consistency >= 0.0 && t->consistency <= TY_MAX_CONSISTENCY))
        return bad(c, TY_NO_LAYER, "/teacher/consistency",
                   "found %g, expected a number from 0 to %g", t->consistency, TY_MAX_CONSISTENCY);
    if (t->shift > 0 && (w->input.dimension_count != 3 || t->shift >= w->input.dimensions[1] ||
                         t->shift >= w->input.dimensions[2]))
        return bad(c, TY_NO_LAYER, "/teacher/shift",
                   "found %u, expected less than the sides of images, which samples are", t->shift);
    if (w->learning == TY_LEARNING_EVOLUTION)
        why = "a population has no gradients";
    else if (w->local_steps > 1)
        why = "replicas take local steps, and their teachers would differ";
    else if (w->input_kind != TY_INPUT_REAL || w->input.dimensions[0] % 2 != 0)
        why = "the input is not two views, one behind the other along its first dimension";
    else if (loss->kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY ||
             loss->attributes[TY_CLASSES] % 2 != 0 ||
             ty_layer_input_shape(w, w->layer_count - 1, 0)->dimension_count != 1)
        why = "the last layer is no loss of a teacher's and as many of a student's scores";
    if (why != NULL)
        return bad(c, TY_NO_LAYER, "/teacher", "found one, expected none: %s", why);
    return check_pupils(c);
}

static ty_status check_whole(const checker *c)
{
    const ty_workload *w = c->workload;
    const struct {
        const char *pointer, *text;
    } texts[] = {{"/name", w->name}, {"/source", w->source}, {"/dataset", w->dataset}};
    const struct {
        const char *pointer;
        uint64_t value, minimum, maximum;
    } numbers[] = {{"/element_bytes", w->element_bytes, 1, 8},
                   {"/sample_bytes", w->sample_bytes, 0, TY_MAX_QUANTITY},
                   {"/tokens_per_sample", w->tokens_per_sample, 0, TY_MAX_QUANTITY},
                   {"/global_batch", w->global_batch, 1, UINT32_MAX},
                   {"/layers", w->layer_count, 1, UINT32_MAX - 1}};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].text == NULL || texts[i].text[0] == '\0')
            return bad(c, TY_NO_LAYER, texts[i].pointer, "found nothing, expected a text");
        if (!ty_is_printable(texts[i].text))
            return bad(c, TY_NO_LAYER, texts[i].pointer,
                       "found bytes that are no UTF-8 or that cannot be seen");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].value < numbers[i].minimum || numbers[i].value > numbers[i].maximum)
            return bad(c, TY_NO_LAYER, numbers[i].pointer, "found %llu, expected %llu to %llu",
                       (unsigned long long)numbers[i].value, (unsigned long long)numbers[i].minimum,
                       (unsigned long long)numbers[i].maximum);
    }
    if ((unsigned)w->precision >= TY_PRECISION_COUNT)
        return bad(c, TY_NO_LAYER, "/precision", "found number %d, expected " TY_PRECISION_NAMES,
                   (int)w->precision);
    if (w->precision != TY_PRECISION_FP32 && w->element_bytes != ty_precision_bytes(w->precision))
        return bad(c, TY_NO_LAYER, "/precision", "found %s with numbers of %u bytes, expected %u",
                   ty_precision_name(w->precision), w->element_bytes,
                   ty_precision_bytes(w->precision));
    if ((unsigned)w->input_kind > TY_INPUT_TOKEN)
        return bad(c, TY_NO_LAYER, "/input_kind", "found number %d, expected real or token",
                   (int)w->input_kind);
    if (w->input_kind == TY_INPUT_TOKEN && w->input.dimension_count != 1)
        return bad(c, TY_NO_LAYER, "/input_shape", "found %u dimensions, expected 1 for tokens",
                   w->input.dimension_count);
    return check_shape(c, TY_NO_LAYER, "/input_shape", &w->input);
}

static int compare_names(const void *a, const void *b)
{
    const ty_layer *const *left = a, *const *right = b;
    int order = strcmp((*left)->name, (*right)->name);
    if (order != 0)
        return order;
    return *left < *right ? -1 : *left > *right;
}

static ty_status check_names(const checker *c)
{
    const ty_workload *w = c->workload;
    const ty_layer **sorted = ty_alloc(w->layer_count, sizeof *sorted);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(sorted != NULL, c->error));
    for (uint32_t i = 0; i < w->layer_count; i++)
        sorted[i] = &w->layers[i];
    qsort(sorted, w->layer_count, sizeof *sorted, compare_names);
    for (uint32_t i = 1; i < w->layer_count && status == TY_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = bad(c, (uint32_t)(sorted[i] - w->layers), "/name",
                         "found \"%.60s\" as in layer %u, expected a name of its own",
                         sorted[i]->name, (unsigned)(sorted[i - 1] - w->layers));
    }
    ty_free(sorted);
    return status;
}

ty_status ty_workload_check_at(const ty_workload *workload, const char *place, ty_error *error)
{
    const checker c = {workload, place, error};
    ty_status status = TY_OK;
    bool *is_used = NULL;

    TY_CHECK(check_whole(&c), status, cleanup);
    TY_CHECK(check_optimizer(&c), status, cleanup);
    TY_CHECK(check_scenario(&c), status, cleanup);
    is_used = ty_alloc(workload->layer_count, sizeof *is_used);
    TY_CHECK(ty_check_memory(is_used != NULL, error), status, cleanup);
    for (uint32_t i = 0; i < workload->layer_count; i++)
        TY_CHECK(check_layer(&c, i, is_used), status, cleanup);
    for (uint32_t i = 0; i + 1 < workload->layer_count; i++) {
        if (!is_used[i]) {
            status =
                bad(&c, i, "",
                    "found no reader of \"%.60s\", expected every layer but the last to have one",
                    workload->layers[i].name);
            goto cleanup;
        }
    }
    TY_CHECK(check_names(&c), status, cleanup);
    TY_CHECK(check_teacher(&c), status, cleanup);
    TY_CHECK(check_reinforcement(&c), status, cleanup);

cleanup:
    ty_free(is_used);
    return status;
}

ty_status ty_workload_check(const ty_workload *workload, const char *name, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];
    snprintf(place, sizeof place, "%.200s:", name);
    return ty_workload_check_at(workload, place, error);
}
