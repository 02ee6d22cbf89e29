/* State spaces and linear attention, which no worker trains.
 *
 * state_space: T rows of D features; I inner ones with N numbers of state each. Mamba (Gu and Dao,
 * arXiv:2312.00752, section 3.4): the input gives I channels and I gates; after a convolution over
 * K rows the channels give the steps, through a rank, and the vectors that write and read the
 * state, N numbers each. Mamba-2 (Dao and Gu, arXiv:2405.21060, section 8): the input gives all of
 * that at once, with one step per head. Groups of heads share the vectors that write and read the
 * state; the output is normed before the last projection. The state is written and read once per
 * row: 4 I N flop; a scan in chunks stores it only at their ends. */
#include "layer_kind.h"

#include <stdio.h>

/* Heads that share the groups' numbers, or steps computed from a rank: one of the two. */
static void state_space_shape(layer_shapes *s)
{
    uint64_t heads = layer_size(s, TY_HEADS), groups = layer_size(s, TY_GROUPS);

    if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") &&
        ty_layer_ends_in(s, TY_FEATURES) &&
        (heads > 0 ? layer_size(s, TY_HIDDEN_FEATURES) % heads != 0 || groups == 0 ||
                         heads % groups != 0 || layer_size(s, TY_STEP_RANK) > 0
                   : layer_size(s, TY_STEP_RANK) == 0))
        snprintf(s->complaint, sizeof s->complaint,
                 "heads that divide hidden_features and groups that divide heads, or a step_rank");
    s->out = *s->in;
}

static double channels(const layer_view *v)
{
    return at(v, TY_HIDDEN_FEATURES);
}

static bool has_ranked_steps(const layer_view *v)
{
    return at(v, TY_STEP_RANK) > 0;
}

static double written_and_read(const layer_view *v) /* numbers per row */
{
    return 2 * (has_ranked_steps(v) ? 1 : at(v, TY_GROUPS)) * at(v, TY_STATE_SIZE);
}

static double convolved(const layer_view *v)
{
    return channels(v) + (has_ranked_steps(v) ? 0 : written_and_read(v));
}

static double from_input(const layer_view *v) /* results of the first product per row */
{
    return channels(v) + convolved(v) + at(v, TY_HEADS);
}

static double
step_matrices(const layer_view *v) /* of Mamba: channels to ranks and state, ranks to steps */
{
    return has_ranked_steps(v) ? channels(v) * (2 * at(v, TY_STEP_RANK) + written_and_read(v)) : 0;
}

static double state_space_parameters(const layer_view *v)
{
    double matrices = at(v, TY_FEATURES) * (from_input(v) + channels(v)) + step_matrices(v);
    double convolution = convolved(v) * (at(v, TY_KERNEL_WIDTH) + 1);
    double biases = at(v, TY_HAS_BIAS) * (from_input(v) + at(v, TY_FEATURES));
    double dynamics = has_ranked_steps(v) /* bias of steps, decay, skip connection; norm */
                          ? channels(v) * (2 + at(v, TY_STATE_SIZE))
                          : 3 * at(v, TY_HEADS) + channels(v);
    double norms = at(v, TY_HAS_STEP_NORMS) * (at(v, TY_STEP_RANK) + written_and_read(v));
    return matrices + convolution + biases + dynamics + norms;
}

static double state_space_input_product(const layer_view *v)
{
    return 2 * v->rows * at(v, TY_FEATURES) * from_input(v);
}

static double state_space_scan(const layer_view *v)
{
    return 4 * v->rows * channels(v) * at(v, TY_STATE_SIZE);
}

static double state_space_flop(const layer_view *v)
{
    return state_space_input_product(v) + state_space_scan(v) +
           2 * v->rows *
               (channels(v) * at(v, TY_FEATURES) + step_matrices(v) +
                convolved(v) * at(v, TY_KERNEL_WIDTH));
}

#define SCAN_CHUNK 256 /* rows: chunk_size of Mamba-2, from which mamba_ssm recomputes */

static double state_space_stashed(const layer_view *v)
{
    double row =
        from_input(v) + convolved(v) + channels(v) + (has_ranked_steps(v) ? channels(v) : 0);
    return v->rows * (row + at(v, TY_STEP_RANK)) +
           v->rows / SCAN_CHUNK * channels(v) * at(v, TY_STATE_SIZE);
}

static double state_space_kernels(const layer_view *v) /* products, convolution, scan, norm */
{
    return has_ranked_steps(v) ? 6 : 5;
}

const layer_kind ty_kind_state_space = {
    .row = {.name = "state_space",
            .required = BIT(TY_FEATURES) | BIT(TY_HIDDEN_FEATURES) | BIT(TY_STATE_SIZE) |
                        BIT(TY_KERNEL_WIDTH) | BIT(TY_HAS_BIAS),
            .optional = BIT(TY_HEADS) | BIT(TY_GROUPS) | BIT(TY_STEP_RANK) | BIT(TY_HAS_STEP_NORMS),
            .mixes_tokens = true},
    .shape = state_space_shape,
    .parameters = state_space_parameters,
    .forward_flop = state_space_flop,
    .input_product = state_space_input_product,
    .unweighted = state_space_scan,
    .stashed = state_space_stashed,
    .kernels = state_space_kernels,
};

/* ---- gated_delta (Yang, Kautz and Hatamizadeh, arXiv:2412.06464; Qwen3-Next): H heads of values
 * of w numbers, K of queries and keys of h; gates as wide as the values; a decay and a strength per
 * head. The state of a head is h x w: the key reads it, the correction is written, the query reads
 * it. ---- */

static void gated_delta_shape(layer_shapes *s)
{
    if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") &&
        ty_layer_ends_in(s, TY_FEATURES) &&
        layer_size(s, TY_HEADS) % layer_size(s, TY_KV_HEADS) != 0)
        snprintf(s->complaint, sizeof s->complaint, "heads to be a multiple of kv_heads");
    s->out = *s->in;
}

static double delta_keys(const layer_view *v)
{
    return at(v, TY_KV_HEADS) * at(v, TY_HEAD_SIZE);
}

static double delta_values(const layer_view *v)
{
    return at(v, TY_HEADS) * at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_convolved(const layer_view *v)
{
    return 2 * delta_keys(v) + delta_values(v);
}

static double delta_from_input(const layer_view *v)
{
    return delta_convolved(v) + delta_values(v) + 2 * at(v, TY_HEADS);
}

static double delta_parameters(const layer_view *v)
{
    return at(v, TY_FEATURES) * (delta_from_input(v) + delta_values(v)) +
           delta_convolved(v) * at(v, TY_KERNEL_WIDTH) + 2 * at(v, TY_HEADS) +
           at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_input_product(const layer_view *v)
{
    return 2 * v->rows * at(v, TY_FEATURES) * delta_from_input(v);
}

static double delta_state(const layer_view *v)
{
    return at(v, TY_HEADS) * at(v, TY_HEAD_SIZE) * at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_scan(const layer_view *v)
{
    return 6 * v->rows * delta_state(v);
}

static double delta_flop(const layer_view *v)
{
    return delta_input_product(v) + delta_scan(v) +
           2 * v->rows *
               (at(v, TY_FEATURES) * delta_values(v) + delta_convolved(v) * at(v, TY_KERNEL_WIDTH));
}

#define DELTA_CHUNK 64 /* rows between stashed states: flash-linear-attention */

static double delta_stashed(const layer_view *v)
{
    return v->rows * (delta_from_input(v) + delta_convolved(v) + delta_values(v)) +
           v->rows / DELTA_CHUNK * delta_state(v);
}

static double
delta_kernels(const layer_view *v) /* three products, convolution, scan in four, norm */
{
    (void)v;
    return 9;
}

const layer_kind ty_kind_gated_delta = {
    .row = {.name = "gated_delta",
            .required = BIT(TY_FEATURES) | BIT(TY_HEADS) | BIT(TY_KV_HEADS) | BIT(TY_HEAD_SIZE) |
                        BIT(TY_VALUE_HEAD_SIZE) | BIT(TY_KERNEL_WIDTH),
            .mixes_tokens = true},
    .shape = gated_delta_shape,
    .parameters = delta_parameters,
    .forward_flop = delta_flop,
    .input_product = delta_input_product,
    .unweighted = delta_scan,
    .stashed = delta_stashed,
    .kernels = delta_kernels,
};
