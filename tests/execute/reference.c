#include "reference.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef I /* names of sizes in this file */

/* One layer's operands. */
typedef struct operands {
    reference *r;
    const ty_layer *layer;
    const uint64_t *a;        /* attributes */
    const ty_shape *in, *out; /* per sample */
    const double *x, *dy;
    double *y, *dx;   /* dx is added to */
    const double *x2; /* of a second input, or NULL */
    double *dx2;
    const double *w, *rest; /* the matrix (perhaps another layer's), and the parameters after it */
    double *dw, *drest;     /* added to */
} operands;

static uint64_t elements(const ty_shape *shape)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < shape->dimension_count; d++)
        n *= shape->dimensions[d];
    return n;
}

static uint64_t last(const ty_shape *shape)
{
    return shape->dimensions[shape->dimension_count - 1];
}

static const ty_shape *input_shape(const ty_workload *w, const ty_layer *layer, uint32_t i)
{
    return layer->input_count == 0 ? &w->input : &w->layers[layer->inputs[i]].output;
}

/* ---- Affine maps, used by several layers ---- */

static void affine(uint64_t rows, uint64_t in, uint64_t out, const double *x, const double *w,
                   const double *b, double *y)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t o = 0; o < out; o++) {
            double sum = b == NULL ? 0 : b[o];
            for (uint64_t i = 0; i < in; i++)
                sum += x[r * in + i] * w[o * in + i];
            y[r * out + o] = sum;
        }
}

static void affine_back(uint64_t rows, uint64_t in, uint64_t out, const double *x, const double *w,
                        const double *dy, double *dx, double *dw, double *db)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t o = 0; o < out; o++) {
            double g = dy[r * out + o];
            if (db != NULL)
                db[o] += g;
            for (uint64_t i = 0; i < in; i++) {
                dw[o * in + i] += g * x[r * in + i];
                dx[r * in + i] += g * w[o * in + i];
            }
        }
}

static void linear(operands *p)
{
    affine(p->r->batch * elements(p->out) / last(p->out), p->a[TY_IN_FEATURES],
           p->a[TY_OUT_FEATURES], p->x, p->w, p->a[TY_HAS_BIAS] ? p->rest : NULL, p->y);
}

static void linear_back(operands *p)
{
    affine_back(p->r->batch * elements(p->out) / last(p->out), p->a[TY_IN_FEATURES],
                p->a[TY_OUT_FEATURES], p->x, p->w, p->dy, p->dx, p->dw,
                p->a[TY_HAS_BIAS] ? p->drest : NULL);
}

/* ---- Convolution and pooling: visit every (output, input) pair of pixels ---- */

typedef void (*pixel_pair)(operands *p, uint64_t out, uint64_t in, uint64_t weight);

static void conv_visit(operands *p, pixel_pair visit)
{
    uint64_t O = p->a[TY_OUT_CHANNELS], I = p->a[TY_IN_CHANNELS], G = p->a[TY_GROUPS];
    uint64_t KH = p->a[TY_KERNEL_HEIGHT], KW = p->a[TY_KERNEL_WIDTH], S = p->a[TY_STRIDE];
    uint64_t H = p->in->dimensions[1], W = p->in->dimensions[2];
    uint64_t OH = p->out->dimensions[1], OW = p->out->dimensions[2];
    for (uint64_t b = 0; b < p->r->batch; b++)
        for (uint64_t o = 0; o < O; o++)
            for (uint64_t i = 0; i < I / G; i++)
                for (uint64_t at = 0; at < OH * OW * KH * KW; at++) {
                    uint64_t kw = at % KW, kh = at / KW % KH, ow = at / KW / KH % OW;
                    uint64_t oh = at / KW / KH / OW, c = o / (O / G) * (I / G) + i;
                    int64_t h = (int64_t)(oh * S + kh) - (int64_t)p->a[TY_PADDING_HEIGHT];
                    int64_t w = (int64_t)(ow * S + kw) - (int64_t)p->a[TY_PADDING_WIDTH];
                    if (h < 0 || w < 0 || h >= (int64_t)H || w >= (int64_t)W)
                        continue;
                    visit(p, ((b * O + o) * OH + oh) * OW + ow,
                          ((b * I + c) * H + (uint64_t)h) * W + (uint64_t)w,
                          ((o * (I / G) + i) * KH + kh) * KW + kw);
                }
}

static void conv_pair(operands *p, uint64_t out, uint64_t in, uint64_t weight)
{
    p->y[out] += p->x[in] * p->w[weight];
}

static void conv_pair_back(operands *p, uint64_t out, uint64_t in, uint64_t weight)
{
    p->dx[in] += p->dy[out] * p->w[weight];
    p->dw[weight] += p->dy[out] * p->x[in];
}

static void conv(operands *p)
{
    uint64_t pixels = p->out->dimensions[1] * p->out->dimensions[2], O = p->a[TY_OUT_CHANNELS];
    const double *bias = p->w + O * (p->a[TY_IN_CHANNELS] / p->a[TY_GROUPS]) *
                                    p->a[TY_KERNEL_HEIGHT] * p->a[TY_KERNEL_WIDTH];
    for (uint64_t i = 0; i < p->r->batch * O * pixels; i++)
        p->y[i] = p->a[TY_HAS_BIAS] ? bias[i / pixels % O] : 0;
    conv_visit(p, conv_pair);
}

static void conv_back(operands *p)
{
    uint64_t pixels = p->out->dimensions[1] * p->out->dimensions[2], O = p->a[TY_OUT_CHANNELS];
    double *dbias = p->dw + O * (p->a[TY_IN_CHANNELS] / p->a[TY_GROUPS]) * p->a[TY_KERNEL_HEIGHT] *
                                p->a[TY_KERNEL_WIDTH];
    for (uint64_t i = 0; p->a[TY_HAS_BIAS] && i < p->r->batch * O * pixels; i++)
        dbias[i / pixels % O] += p->dy[i];
    conv_visit(p, conv_pair_back);
}

/* The pixels of one window, at most 4096. */
static uint64_t window(operands *p, uint64_t out, uint64_t pixels[4096])
{
    bool all = p->a[TY_IS_GLOBAL];
    uint64_t C = p->in->dimensions[0], H = p->in->dimensions[1], W = p->in->dimensions[2];
    uint64_t OH = p->out->dimensions[1], OW = p->out->dimensions[2], count = 0;
    uint64_t KH = all ? H : p->a[TY_KERNEL_HEIGHT], KW = all ? W : p->a[TY_KERNEL_WIDTH];
    uint64_t S = all ? 1 : p->a[TY_STRIDE], ow = out % OW, oh = out / OW % OH;
    uint64_t image = out / OW / OH;
    (void)C;
    for (uint64_t k = 0; k < KH * KW; k++) {
        int64_t h = (int64_t)(oh * S + k / KW) - (all ? 0 : (int64_t)p->a[TY_PADDING_HEIGHT]);
        int64_t w = (int64_t)(ow * S + k % KW) - (all ? 0 : (int64_t)p->a[TY_PADDING_WIDTH]);
        if (h >= 0 && w >= 0 && h < (int64_t)H && w < (int64_t)W)
            pixels[count++] = (image * H + (uint64_t)h) * W + (uint64_t)w;
    }
    return count;
}

static double window_area(operands *p)
{
    return p->a[TY_IS_GLOBAL] ? (double)(p->in->dimensions[1] * p->in->dimensions[2])
                              : (double)(p->a[TY_KERNEL_HEIGHT] * p->a[TY_KERNEL_WIDTH]);
}

static void pool(operands *p)
{
    uint64_t pixels[4096];
    for (uint64_t o = 0; o < p->r->batch * elements(p->out); o++) {
        uint64_t count = window(p, o, pixels);
        double sum = 0, maximum = -INFINITY;
        for (uint64_t i = 0; i < count; i++) {
            sum += p->x[pixels[i]];
            maximum = fmax(maximum, p->x[pixels[i]]);
        }
        p->y[o] = p->a[TY_IS_AVERAGE] ? sum / window_area(p) : maximum;
    }
}

static void pool_back(operands *p)
{
    uint64_t pixels[4096];
    for (uint64_t o = 0; o < p->r->batch * elements(p->out); o++) {
        uint64_t count = window(p, o, pixels);
        for (uint64_t i = 0; i < count; i++) {
            if (p->a[TY_IS_AVERAGE])
                p->dx[pixels[i]] += p->dy[o] / window_area(p);
            else if (p->x[pixels[i]] == p->y[o]) {
                p->dx[pixels[i]] += p->dy[o];
                break;
            }
        }
    }
}

/* ---- Element by element ---- */

static double relu_of(double x)
{
    return x > 0 ? x : 0;
}
static double relu_slope(double x)
{
    return x > 0;
}
static double gelu_of(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static double silu_of(double x)
{
    return x / (1 + exp(-x));
}
static double tanh_slope(double x)
{
    return 1 - tanh(x) * tanh(x);
}
static double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

static double (*of_kind(ty_layer_kind kind, bool is_slope))(double)
{
    if (kind == TY_LAYER_RELU)
        return is_slope ? relu_slope : relu_of;
    if (kind == TY_LAYER_GELU)
        return is_slope ? gelu_slope : gelu_of;
    if (kind == TY_LAYER_TANH)
        return is_slope ? tanh_slope : tanh;
    return is_slope ? silu_slope : silu_of;
}

static void activation(operands *p)
{
    for (uint64_t i = 0; i < p->r->batch * elements(p->out); i++)
        p->y[i] = of_kind(p->layer->kind, false)(p->x[i]);
}

static void activation_back(operands *p)
{
    for (uint64_t i = 0; i < p->r->batch * elements(p->out); i++)
        p->dx[i] += p->dy[i] * of_kind(p->layer->kind, true)(p->x[i]);
}

static void flatten(operands *p)
{
    memcpy(p->y, p->x, p->r->batch * elements(p->out) * sizeof *p->y);
}

static void flatten_back(operands *p)
{
    for (uint64_t i = 0; i < p->r->batch * elements(p->out); i++)
        p->dx[i] += p->dy[i];
}

static void slice(operands *p)
{
    uint64_t row = elements(p->in) / p->in->dimensions[0], n = elements(p->out);
    for (uint64_t i = 0; i < p->r->batch * n; i++)
        p->y[i] = p->x[i / n * elements(p->in) + p->a[TY_FIRST_ROW] * row + i % n];
}

static void slice_back(operands *p)
{
    uint64_t row = elements(p->in) / p->in->dimensions[0], n = elements(p->out);
    for (uint64_t i = 0; i < p->r->batch * n; i++)
        p->dx[i / n * elements(p->in) + p->a[TY_FIRST_ROW] * row + i % n] += p->dy[i];
}

/* ---- Norms, from their definitions; the gradient from the quotient rule ---- */

static void norm_statistics(operands *p, uint64_t row, double *mean, double *scale)
{
    uint64_t n = last(p->in);
    double variance = 0;
    *mean = 0;
    if (p->layer->kind == TY_LAYER_LAYER_NORM)
        for (uint64_t i = 0; i < n; i++)
            *mean += p->x[row * n + i] / (double)n;
    for (uint64_t i = 0; i < n; i++)
        variance += pow(p->x[row * n + i] - *mean, 2) / (double)n;
    *scale = 1 / sqrt(variance + 1e-5);
}

static void norm(operands *p)
{
    uint64_t n = last(p->in);
    for (uint64_t r = 0; r < p->r->batch * elements(p->in) / n; r++) {
        double mean, scale;
        norm_statistics(p, r, &mean, &scale);
        for (uint64_t i = 0; i < n; i++)
            p->y[r * n + i] = (p->x[r * n + i] - mean) * scale * p->w[i] +
                              (p->layer->kind == TY_LAYER_LAYER_NORM ? p->w[n + i] : 0);
    }
}

static void norm_back(operands *p)
{
    uint64_t n = last(p->in);
    bool has_mean = p->layer->kind == TY_LAYER_LAYER_NORM;
    for (uint64_t r = 0; r < p->r->batch * elements(p->in) / n; r++) {
        const double *x = p->x + r * n, *dy = p->dy + r * n;
        double mean, scale;
        norm_statistics(p, r, &mean, &scale);
        for (uint64_t i = 0; i < n; i++) {
            p->dw[i] += dy[i] * (x[i] - mean) * scale;
            if (has_mean)
                p->dw[n + i] += dy[i];
            /* y_i depends on x_j directly, through the mean, and through the scale. */
            for (uint64_t j = 0; j < n; j++) {
                double direct = (i == j) - (has_mean ? 1 / (double)n : 0);
                double through = -(x[i] - mean) * (x[j] - mean) / (double)n * scale * scale;
                p->dx[r * n + j] += dy[i] * p->w[i] * scale * (direct + through);
            }
        }
    }
}

/* Over all samples and pixels of a channel. */
static void channel_statistics(operands *p, uint64_t c, double *mean, double *scale)
{
    uint64_t C = p->in->dimensions[0], S = elements(p->in) / C, n = p->r->batch * S;
    double variance = 0;
    *mean = 0;
    for (uint64_t i = 0; i < n; i++)
        *mean += p->x[(i / S * C + c) * S + i % S] / (double)n;
    for (uint64_t i = 0; i < n; i++)
        variance += pow(p->x[(i / S * C + c) * S + i % S] - *mean, 2) / (double)n;
    *scale = 1 / sqrt(variance + 1e-5);
}

static void batch_norm(operands *p)
{
    uint64_t C = p->in->dimensions[0], S = elements(p->in) / C;
    for (uint64_t c = 0; c < C; c++) {
        double mean, scale;
        channel_statistics(p, c, &mean, &scale);
        for (uint64_t i = 0; i < p->r->batch * S; i++) {
            uint64_t at = (i / S * C + c) * S + i % S;
            p->y[at] = (p->x[at] - mean) * scale * p->w[c] + p->w[C + c];
        }
    }
}

static void batch_norm_back(operands *p)
{
    uint64_t C = p->in->dimensions[0], S = elements(p->in) / C, n = p->r->batch * S;
    for (uint64_t c = 0; c < C; c++) {
        double mean, scale;
        channel_statistics(p, c, &mean, &scale);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = (i / S * C + c) * S + i % S;
            double z = (p->x[at] - mean) * scale;
            p->dw[c] += p->dy[at] * z;
            p->dw[C + c] += p->dy[at];
            for (uint64_t j = 0; j < n; j++) {
                uint64_t to = (j / S * C + c) * S + j % S;
                double other = (p->x[to] - mean) * scale;
                p->dx[to] += p->dy[at] * p->w[c] * scale *
                             ((i == j) - 1 / (double)n - z * other / (double)n);
            }
        }
    }
}

/* ---- Recurrent layers ---- */

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* Of the t-th step taken. */
static uint64_t place_of(const operands *p, uint64_t t)
{
    return p->a[TY_IS_REVERSED] ? p->in->dimensions[0] - 1 - t : t;
}

/* All gates and cells of a sample, from the first step on. */
static void lstm_sample(operands *p, uint64_t b, double *gates, double *cells)
{
    uint64_t D = p->a[TY_IN_FEATURES], H = p->a[TY_HIDDEN_FEATURES], T = p->in->dimensions[0];
    const double *wx = p->w, *wh = wx + 4 * H * D, *bias = wh + 4 * H * H;
    for (uint64_t t = 0; t < T; t++) {
        double *g = gates + t * 4 * H, *y = p->y + (b * T + place_of(p, t)) * H;
        for (uint64_t k = 0; k < 4 * H; k++) {
            double sum = p->a[TY_HAS_BIAS] ? bias[k] + bias[4 * H + k] : 0;
            for (uint64_t i = 0; i < D; i++)
                sum += wx[k * D + i] * p->x[(b * T + place_of(p, t)) * D + i];
            for (uint64_t i = 0; i < H && t > 0; i++)
                sum += wh[k * H + i] * p->y[(b * T + place_of(p, t - 1)) * H + i];
            g[k] = k / H == 2 ? tanh(sum) : logistic(sum);
        }
        for (uint64_t k = 0; k < H; k++) {
            cells[t * H + k] = g[k] * g[2 * H + k];
            if (t > 0)
                cells[t * H + k] += g[H + k] * cells[(t - 1) * H + k];
            y[k] = g[3 * H + k] * tanh(cells[t * H + k]);
        }
    }
}

static void lstm(operands *p)
{
    uint64_t H = p->a[TY_HIDDEN_FEATURES], T = p->in->dimensions[0];
    double *gates = calloc(5 * T * H, sizeof *gates);
    for (uint64_t b = 0; b < p->r->batch; b++)
        lstm_sample(p, b, gates, gates + 4 * T * H);
    free(gates);
}

/* One step backward: adds to the gradients of weights and input, and returns those of the previous
 * step. */
static void lstm_step_back(operands *p, uint64_t b, uint64_t t, const double *gates,
                           const double *cells, double *dh, double *dc)
{
    uint64_t D = p->a[TY_IN_FEATURES], H = p->a[TY_HIDDEN_FEATURES], T = p->in->dimensions[0];
    uint64_t at = b * T + place_of(p, t), before = t > 0 ? b * T + place_of(p, t - 1) : 0;
    const double *g = gates + t * 4 * H, *x = p->x + at * D;
    const double *wx = p->w, *wh = wx + 4 * H * D, *y = p->y + before * H;
    double *dwx = p->dw, *dwh = dwx + 4 * H * D, *dbias = dwh + 4 * H * H;
    double *d = calloc(4 * H, sizeof *d);
    for (uint64_t k = 0; k < H; k++) {
        double c = cells[t * H + k], whole = dh[k] + p->dy[at * H + k];
        double last_cell = t > 0 ? cells[(t - 1) * H + k] : 0;
        dc[k] += whole * g[3 * H + k] * (1 - tanh(c) * tanh(c));
        d[k] = dc[k] * g[2 * H + k] * g[k] * (1 - g[k]);
        d[H + k] = dc[k] * last_cell * g[H + k] * (1 - g[H + k]);
        d[2 * H + k] = dc[k] * g[k] * (1 - g[2 * H + k] * g[2 * H + k]);
        d[3 * H + k] = whole * tanh(c) * g[3 * H + k] * (1 - g[3 * H + k]);
        dc[k] *= g[H + k];
        dh[k] = 0;
    }
    for (uint64_t k = 0; k < 4 * H; k++) {
        for (uint64_t i = 0; i < D; i++) {
            dwx[k * D + i] += d[k] * x[i];
            p->dx[at * D + i] += d[k] * wx[k * D + i];
        }
        for (uint64_t i = 0; i < H && t > 0; i++) {
            dwh[k * H + i] += d[k] * y[i];
            dh[i] += d[k] * wh[k * H + i];
        }
        if (p->a[TY_HAS_BIAS]) {
            dbias[k] += d[k];
            dbias[4 * H + k] += d[k];
        }
    }
    free(d);
}

static void lstm_back(operands *p)
{
    uint64_t H = p->a[TY_HIDDEN_FEATURES], T = p->in->dimensions[0];
    double *gates = calloc(5 * T * H, sizeof *gates), *back = calloc(2 * H, sizeof *back);
    for (uint64_t b = 0; b < p->r->batch; b++) {
        lstm_sample(p, b, gates, gates + 4 * T * H);
        memset(back, 0, 2 * H * sizeof *back);
        for (uint64_t t = T; t-- > 0;)
            lstm_step_back(p, b, t, gates, gates + 4 * T * H, back, back + H);
    }
    free(gates);
    free(back);
}

/* ---- Transformer layers ---- */

static void embedding(operands *p)
{
    uint64_t D = p->a[TY_FEATURES], T = p->out->dimensions[0];
    for (uint64_t i = 0; i < p->r->batch * T * D; i++) {
        uint64_t token = (uint64_t)p->r->tokens[i / D];
        p->y[i] = p->w[token * D + i % D] +
                  (p->a[TY_POSITIONS] ? p->rest[i / D % T * D + i % D] : 0) +
                  (p->a[TY_TOKEN_TYPES] ? p->rest[p->a[TY_POSITIONS] * D + i % D] : 0);
    }
}

static void embedding_back(operands *p)
{
    uint64_t D = p->a[TY_FEATURES], T = p->out->dimensions[0];
    for (uint64_t i = 0; i < p->r->batch * T * D; i++) {
        p->dw[(uint64_t)p->r->tokens[i / D] * D + i % D] += p->dy[i];
        if (p->a[TY_POSITIONS])
            p->drest[i / D % T * D + i % D] += p->dy[i];
        if (p->a[TY_TOKEN_TYPES])
            p->drest[p->a[TY_POSITIONS] * D + i % D] += p->dy[i];
    }
}

static uint64_t bag_index(const operands *p, uint64_t sample, uint64_t r)
{
    return (uint64_t)p->x[sample * elements(p->in) + p->a[TY_FIRST_ROW] + r];
}

static void bag(operands *p)
{
    uint64_t D = p->a[TY_FEATURES], R = p->a[TY_ROWS];
    for (uint64_t i = 0; i < p->r->batch * D; i++) {
        p->y[i] = 0;
        for (uint64_t r = 0; r < R; r++)
            p->y[i] +=
                p->w[bag_index(p, i / D, r) * D + i % D] / (p->a[TY_IS_AVERAGE] ? (double)R : 1);
    }
}

static void bag_back(operands *p)
{
    uint64_t D = p->a[TY_FEATURES], R = p->a[TY_ROWS];
    for (uint64_t i = 0; i < p->r->batch * D; i++)
        for (uint64_t r = 0; r < R; r++)
            p->dw[bag_index(p, i / D, r) * D + i % D] +=
                p->dy[i] / (p->a[TY_IS_AVERAGE] ? (double)R : 1);
}

/* Attention; backward recomputes everything. B samples of T queries and S keys, D features, H
 * heads, K key-value heads, Z numbers each. */
typedef struct heads {
    uint64_t B, T, S, D, H, K, Z, Q, KV;
    const double *xq, *xk, *w, *out, *bias, *out_bias, *gains, *relative;
    double *q, *k, *v;   /* [B T][Q], [B S][KV], [B S][KV] */
    double *nq, *nk;     /* normed */
    double *p, *context; /* [B][H][T][S], [B T][Q] */
} heads;

/* As the authors of T5 write it in their mesh-tensorflow code, with a maximum distance of 128. */
static uint64_t bucket(int64_t query, int64_t key, int64_t buckets, bool is_causal)
{
    int64_t distance = query - key, first = 0, exact, far;
    if (is_causal) {
        distance = distance > 0 ? distance : 0;
    } else {
        int64_t half = buckets / 2;
        first = distance < 0 ? half : 0;
        buckets = distance < 0 ? buckets - half : half;
        distance = distance < 0 ? -distance : distance;
    }
    exact = buckets / 2;
    if (distance < exact)
        return (uint64_t)(first + distance);
    far = exact == 0 ? buckets - 1
                     : exact + (int64_t)(log((double)distance / (double)exact) /
                                         log(128 / (double)exact) * (double)(buckets - exact));
    return (uint64_t)(first + (far < buckets - 1 ? far : buckets - 1));
}

/* The parameters of an attention layer, from any base. */
typedef struct attention_places {
    uint64_t out, bias, out_bias, gains, relative;
} attention_places;

static attention_places attention_at(const uint64_t *a)
{
    uint64_t Q = a[TY_HEADS] * a[TY_HEAD_SIZE], P = Q + 2 * a[TY_KV_HEADS] * a[TY_HEAD_SIZE];
    bool has_project_bias = a[TY_HAS_BIAS] || a[TY_HAS_QKV_BIAS];
    attention_places at = {.out = P * a[TY_FEATURES]};
    at.bias = at.out + Q * a[TY_FEATURES];
    at.out_bias = at.bias + (has_project_bias ? P : 0);
    at.gains = at.out_bias + (a[TY_HAS_BIAS] ? a[TY_FEATURES] : 0);
    at.relative = at.gains + (a[TY_HAS_QK_NORM] ? 2 * a[TY_HEAD_SIZE] : 0);
    return at;
}

static void head_norms(uint64_t count, uint64_t Z, const double *x, const double *gain, double *y)
{
    for (uint64_t i = 0; i < count; i++) {
        double squares = 0;
        for (uint64_t c = 0; c < Z; c++)
            squares += x[i / Z * Z + c] * x[i / Z * Z + c] / (double)Z;
        y[i] = gain == NULL ? x[i] : x[i] / sqrt(squares + 1e-5) * gain[i % Z];
    }
}

/* dx from dy, both [count]; adds the gain's gradient. */
static void head_norms_back(uint64_t count, uint64_t Z, const double *x, const double *gain,
                            const double *dy, double *dx, double *dgain)
{
    for (uint64_t i = 0; i < count; i++) {
        double squares = 0, scale;
        const double *row = x + i / Z * Z;
        if (gain == NULL) {
            dx[i] = dy[i];
            continue;
        }
        for (uint64_t c = 0; c < Z; c++)
            squares += row[c] * row[c] / (double)Z;
        scale = 1 / sqrt(squares + 1e-5);
        dgain[i % Z] += dy[i] * x[i] * scale;
        for (uint64_t j = 0; j < Z; j++)
            dx[i / Z * Z + j] += dy[i] * gain[i % Z] * scale *
                                 ((i % Z == j) - x[i] * row[j] / (double)Z * scale * scale);
    }
}

/* Numbers i and i + Z / 2 of a head as a complex number, times exp(i position base^(-2 i / Z)). */
static void turn(const operands *o, uint64_t count, uint64_t width, uint64_t Z, uint64_t T,
                 double direction, double *x)
{
    if (o->r->workload->rotary_base == 0 || o->x2 != NULL)
        return;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t c = i % Z, half = Z / 2, position = i / width % T;
        double angle = direction * (double)position /
                       pow((double)o->r->workload->rotary_base, (double)c / (double)half);
        double complex z;
        if (c >= half)
            continue;
        z = (x[i] + _Complex_I * x[i + half]) * cexp(_Complex_I * angle);
        x[i] = creal(z);
        x[i + half] = cimag(z);
    }
}

static heads heads_new(operands *o)
{
    const uint64_t *a = o->a;
    const attention_places at = attention_at(a);
    heads h = {.B = o->r->batch,
               .T = o->out->dimensions[0],
               .S = o->in->dimensions[0],
               .D = a[TY_FEATURES],
               .H = a[TY_HEADS],
               .K = a[TY_KV_HEADS],
               .Z = a[TY_HEAD_SIZE]};
    h.Q = h.H * h.Z;
    h.KV = h.K * h.Z;
    h.xk = o->x;
    h.xq = o->x2 != NULL ? o->x2 : o->x;
    h.w = o->w;
    h.out = o->w + at.out;
    h.bias = a[TY_HAS_BIAS] || a[TY_HAS_QKV_BIAS] ? o->w + at.bias : NULL;
    h.out_bias = a[TY_HAS_BIAS] ? o->w + at.out_bias : NULL;
    h.gains = a[TY_HAS_QK_NORM] ? o->w + at.gains : NULL;
    h.relative = a[TY_RELATIVE_BUCKETS] ? o->w + at.relative : NULL;
    h.q = calloc(2 * h.B * h.T * h.Q, sizeof(double));
    h.nq = h.q + h.B * h.T * h.Q;
    h.k = calloc(3 * h.B * h.S * h.KV, sizeof(double));
    h.nk = h.k + h.B * h.S * h.KV;
    h.v = h.nk + h.B * h.S * h.KV;
    h.p = calloc(h.B * h.H * h.T * h.S, sizeof(double));
    h.context = calloc(h.B * h.T * h.Q, sizeof(double));
    return h;
}

/* Of query i = (b H + head) T + t: rows of q, and of k for key s. */
static uint64_t query_row(const heads *h, uint64_t i)
{
    return (i / h->T / h->H * h->T + i % h->T) * h->Q + i / h->T % h->H * h->Z;
}
static uint64_t key_row(const heads *h, uint64_t i, uint64_t s)
{
    return (i / h->T / h->H * h->S + s) * h->KV + i / h->T % h->H / (h->H / h->K) * h->Z;
}

static uint64_t relative_of(const operands *o, const heads *h, uint64_t i, uint64_t s)
{
    return bucket((int64_t)(i % h->T), (int64_t)s, (int64_t)o->a[TY_RELATIVE_BUCKETS],
                  o->a[TY_IS_CAUSAL]) *
               h->H +
           i / h->T % h->H;
}

static heads attention_run(operands *o, double *y)
{
    heads h = heads_new(o);
    affine(h.B * h.T, h.D, h.Q, h.xq, h.w, h.bias, h.q);
    affine(h.B * h.S, h.D, h.KV, h.xk, h.w + h.Q * h.D, h.bias ? h.bias + h.Q : NULL, h.k);
    affine(h.B * h.S, h.D, h.KV, h.xk, h.w + (h.Q + h.KV) * h.D,
           h.bias ? h.bias + h.Q + h.KV : NULL, h.v);
    head_norms(h.B * h.T * h.Q, h.Z, h.q, h.gains, h.nq);
    head_norms(h.B * h.S * h.KV, h.Z, h.k, h.gains ? h.gains + h.Z : NULL, h.nk);
    turn(o, h.B * h.T * h.Q, h.Q, h.Z, h.T, 1, h.nq);
    turn(o, h.B * h.S * h.KV, h.KV, h.Z, h.S, 1, h.nk);
    for (uint64_t i = 0; i < h.B * h.H * h.T; i++) {
        double sum = 0, *p = h.p + i * h.S;
        for (uint64_t s = 0; s < h.S; s++) {
            for (uint64_t c = 0; c < h.Z; c++)
                p[s] +=
                    h.nq[query_row(&h, i) + c] * h.nk[key_row(&h, i, s) + c] / sqrt((double)h.Z);
            if (h.relative != NULL)
                p[s] += h.relative[relative_of(o, &h, i, s)];
            p[s] = o->a[TY_IS_CAUSAL] && s > i % h.T ? 0 : exp(p[s]);
            sum += p[s];
        }
        for (uint64_t s = 0; s < h.S; s++) {
            p[s] /= sum;
            for (uint64_t c = 0; c < h.Z; c++)
                h.context[query_row(&h, i) + c] += p[s] * h.v[key_row(&h, i, s) + c];
        }
    }
    if (y != NULL)
        affine(h.B * h.T, h.Q, h.D, h.context, h.out, h.out_bias, y);
    return h;
}

static void heads_free(heads *h)
{
    free(h->q);
    free(h->k);
    free(h->p);
    free(h->context);
}

static void attention(operands *o)
{
    heads h = attention_run(o, o->y);
    heads_free(&h);
}

/* Gradients of normed queries and keys, of values and of relative biases from the context's. */
static void scores_back(operands *o, const heads *h, const double *dcontext, double *dnq,
                        double *dnk, double *dv, double *drelative)
{
    for (uint64_t i = 0; i < h->B * h->H * h->T; i++) {
        const double *p = h->p + i * h->S, *dc = dcontext + query_row(h, i);
        double sum = 0, *dp = calloc(h->S, sizeof(double));
        for (uint64_t s = 0; s < h->S; s++) {
            for (uint64_t c = 0; c < h->Z; c++) {
                dp[s] += dc[c] * h->v[key_row(h, i, s) + c];
                dv[key_row(h, i, s) + c] += p[s] * dc[c];
            }
            sum += p[s] * dp[s];
        }
        for (uint64_t s = 0; s < h->S; s++) {
            double ds = p[s] * (dp[s] - sum), scaled = ds / sqrt((double)h->Z);
            if (h->relative != NULL)
                drelative[relative_of(o, h, i, s)] += ds;
            for (uint64_t c = 0; c < h->Z; c++) {
                dnq[query_row(h, i) + c] += scaled * h->nk[key_row(h, i, s) + c];
                dnk[key_row(h, i, s) + c] += scaled * h->nq[query_row(h, i) + c];
            }
        }
        free(dp);
    }
}

static void attention_back(operands *o)
{
    heads h = attention_run(o, NULL);
    const attention_places at = attention_at(o->a);
    uint64_t nq = h.B * h.T * h.Q, nk = h.B * h.S * h.KV;
    double *dcontext = calloc(3 * nq, sizeof(double)), *dnq = dcontext + nq, *dq = dnq + nq;
    double *dnk = calloc(3 * nk, sizeof(double)), *dk = dnk + nk, *dv = dk + nk;
    double *dbias = h.bias ? o->dw + at.bias : NULL;
    double *dxq = o->x2 != NULL ? o->dx2 : o->dx;
    affine_back(h.B * h.T, h.Q, h.D, h.context, h.out, o->dy, dcontext, o->dw + at.out,
                h.out_bias ? o->dw + at.out_bias : NULL);
    scores_back(o, &h, dcontext, dnq, dnk, dv, o->dw + at.relative);
    turn(o, nq, h.Q, h.Z, h.T, -1, dnq);
    turn(o, nk, h.KV, h.Z, h.S, -1, dnk);
    head_norms_back(nq, h.Z, h.q, h.gains, dnq, dq, o->dw + at.gains);
    head_norms_back(nk, h.Z, h.k, h.gains ? h.gains + h.Z : NULL, dnk, dk, o->dw + at.gains + h.Z);
    affine_back(h.B * h.T, h.D, h.Q, h.xq, h.w, dq, dxq, o->dw, dbias);
    affine_back(h.B * h.S, h.D, h.KV, h.xk, h.w + h.Q * h.D, dk, o->dx, o->dw + h.Q * h.D,
                dbias ? dbias + h.Q : NULL);
    affine_back(h.B * h.S, h.D, h.KV, h.xk, h.w + (h.Q + h.KV) * h.D, dv, o->dx,
                o->dw + (h.Q + h.KV) * h.D, dbias ? dbias + h.Q + h.KV : NULL);
    free(dcontext);
    free(dnk);
    heads_free(&h);
}

/* ---- Additive attention: every pair of rows separately ----
 *
 * Parameters: Wq [N][I], Wm [N][D], v [N], g, b [N]. */

/* u tanh(Wq x + Wm m + b), and in `under` the argument of tanh. */
static double pair_score(const operands *o, const double *x, const double *m, double *under)
{
    uint64_t I = o->a[TY_IN_FEATURES], D = o->a[TY_FEATURES], N = o->a[TY_HIDDEN_FEATURES];
    const double *wq = o->w, *wm = wq + N * I, *v = wm + N * D, *g = v + N, *b = g + 1;
    double score = 0, squares = 0;
    for (uint64_t n = 0; n < N; n++) {
        under[n] = b[n];
        for (uint64_t i = 0; i < I; i++)
            under[n] += wq[n * I + i] * x[i];
        for (uint64_t d = 0; d < D; d++)
            under[n] += wm[n * D + d] * m[d];
        score += v[n] * tanh(under[n]);
        squares += v[n] * v[n];
    }
    return *g / sqrt(squares) * score;
}

static double *additive_weights(const operands *o, uint64_t row, double *under)
{
    uint64_t S = o->in->dimensions[0], T = o->out->dimensions[0];
    uint64_t I = o->a[TY_IN_FEATURES], D = o->a[TY_FEATURES];
    double *p = calloc(S, sizeof *p), sum = 0;
    for (uint64_t s = 0; s < S; s++)
        sum += p[s] = exp(pair_score(o, o->x2 + row * I, o->x + (row / T * S + s) * D, under));
    for (uint64_t s = 0; s < S; s++)
        p[s] /= sum;
    return p;
}

static void additive(operands *o)
{
    uint64_t S = o->in->dimensions[0], T = o->out->dimensions[0], D = o->a[TY_FEATURES];
    double *under = calloc(o->a[TY_HIDDEN_FEATURES], sizeof *under);
    for (uint64_t row = 0; row < o->r->batch * T; row++) {
        double *p = additive_weights(o, row, under);
        for (uint64_t d = 0; d < D; d++) {
            o->y[row * D + d] = 0;
            for (uint64_t s = 0; s < S; s++)
                o->y[row * D + d] += p[s] * o->x[(row / T * S + s) * D + d];
        }
        free(p);
    }
    free(under);
}

/* Adds a score's gradient to all others. */
static void pair_back(operands *o, uint64_t query, uint64_t key, double dscore, double *under)
{
    uint64_t I = o->a[TY_IN_FEATURES], D = o->a[TY_FEATURES], N = o->a[TY_HIDDEN_FEATURES];
    const double *wm = o->w + N * I, *v = wm + N * D, *g = v + N;
    double *dwm = o->dw + N * I, *dv = dwm + N * D, *dg = dv + N, *db = dg + 1, squares = 0;
    const double *x = o->x2 + query * I, *m = o->x + key * D;
    double score = pair_score(o, x, m, under);
    for (uint64_t n = 0; n < N; n++)
        squares += v[n] * v[n];
    *dg += dscore * score / *g;
    for (uint64_t n = 0; n < N; n++) {
        double t = tanh(under[n]), inner = dscore * *g / sqrt(squares) * v[n] * (1 - t * t);
        dv[n] += dscore * (*g / sqrt(squares) * t - score * v[n] / squares);
        db[n] += inner;
        for (uint64_t i = 0; i < I; i++) {
            o->dw[n * I + i] += inner * x[i];
            o->dx2[query * I + i] += inner * o->w[n * I + i];
        }
        for (uint64_t d = 0; d < D; d++) {
            dwm[n * D + d] += inner * m[d];
            o->dx[key * D + d] += inner * wm[n * D + d];
        }
    }
}

static void additive_back(operands *o)
{
    uint64_t S = o->in->dimensions[0], T = o->out->dimensions[0], D = o->a[TY_FEATURES];
    double *under = calloc(o->a[TY_HIDDEN_FEATURES], sizeof *under);
    double *dp = calloc(S, sizeof *dp);
    for (uint64_t row = 0; row < o->r->batch * T; row++) {
        double *p = additive_weights(o, row, under), mean = 0;
        for (uint64_t s = 0; s < S; s++) {
            uint64_t key = row / T * S + s;
            dp[s] = 0;
            for (uint64_t d = 0; d < D; d++) {
                dp[s] += o->dy[row * D + d] * o->x[key * D + d];
                o->dx[key * D + d] += p[s] * o->dy[row * D + d];
            }
            mean += p[s] * dp[s];
        }
        for (uint64_t s = 0; s < S; s++)
            pair_back(o, row, row / T * S + s, p[s] * (dp[s] - mean), under);
        free(p);
    }
    free(under);
    free(dp);
}

/* Gradient of one row of the input of an mlp's activation function. */
static void activation_row_back(const operands *o, const double *h, const double *dact, double *dh)
{
    uint64_t N = o->a[TY_HIDDEN_FEATURES];
    for (uint64_t i = 0; i < N; i++) {
        if (o->a[TY_IS_GATED]) {
            dh[i] = dact[i] * silu_slope(h[i]) * h[N + i];
            dh[N + i] = dact[i] * silu_of(h[i]);
        } else {
            dh[i] = dact[i] * (o->a[TY_IS_RELU] ? relu_slope(h[i]) : gelu_slope(h[i]));
        }
    }
}

/* mlp: hidden values before (h) and after (act) the activation. */
static void mlp_run(operands *o, uint64_t rows, double **h, double **act)
{
    uint64_t D = o->a[TY_FEATURES], N = o->a[TY_HIDDEN_FEATURES], U = N * (o->a[TY_IS_GATED] + 1);
    const double *bias = o->a[TY_HAS_BIAS] ? o->w + (U + N) * D : NULL;
    *h = calloc(rows * U, sizeof(double));
    *act = calloc(rows * N, sizeof(double));
    affine(rows, D, U, o->x, o->w, bias, *h);
    for (uint64_t i = 0; i < rows * N; i++) {
        const double *row = *h + i / N * U;
        (*act)[i] = o->a[TY_IS_GATED]  ? silu_of(row[i % N]) * row[N + i % N]
                    : o->a[TY_IS_RELU] ? relu_of(row[i % N])
                                       : gelu_of(row[i % N]);
    }
}

static void mlp(operands *o)
{
    uint64_t D = o->a[TY_FEATURES], N = o->a[TY_HIDDEN_FEATURES], U = N * (o->a[TY_IS_GATED] + 1);
    uint64_t rows = o->r->batch * elements(o->in) / D;
    double *h, *act;
    mlp_run(o, rows, &h, &act);
    affine(rows, N, D, act, o->w + U * D, o->a[TY_HAS_BIAS] ? o->w + (U + N) * D + U : NULL, o->y);
    free(h);
    free(act);
}

static void mlp_back(operands *o)
{
    uint64_t D = o->a[TY_FEATURES], N = o->a[TY_HIDDEN_FEATURES], U = N * (o->a[TY_IS_GATED] + 1);
    uint64_t rows = o->r->batch * elements(o->in) / D;
    double *h, *act, *dact = calloc(rows * N, sizeof(double)),
                     *dh = calloc(rows * U, sizeof(double));
    double *dbias = o->a[TY_HAS_BIAS] ? o->dw + (U + N) * D : NULL;
    mlp_run(o, rows, &h, &act);
    affine_back(rows, N, D, act, o->w + U * D, o->dy, dact, o->dw + U * D,
                dbias == NULL ? NULL : dbias + U);
    for (uint64_t r = 0; r < rows; r++)
        activation_row_back(o, h + r * U, dact + r * N, dh + r * U);
    affine_back(rows, D, U, o->x, o->w, dh, o->dx, o->dw, dbias);
    free(h);
    free(act);
    free(dact);
    free(dh);
}

/* moe: token by token. Tensors: router [E][D], those of an mlp of all shared experts, then up
 * [E][U][D], down [E][D][N], biases [E][U], [E][D]. */
enum { MOST_EXPERTS = 16 };

/* The shared experts as an mlp.
 * @param attributes [out] its attributes */
static operands shared_mlp(const operands *o, uint64_t attributes[TY_ATTRIBUTE_COUNT])
{
    const uint64_t router = o->a[TY_EXPERTS] * o->a[TY_FEATURES];
    operands shared = *o;

    memcpy(attributes, o->a, TY_ATTRIBUTE_COUNT * sizeof *attributes);
    attributes[TY_HIDDEN_FEATURES] = o->a[TY_SHARED_FEATURES];
    shared.a = attributes;
    shared.w += router;
    if (shared.dw != NULL)
        shared.dw += router;
    return shared;
}

static uint64_t shared_count(const operands *o)
{
    const uint64_t D = o->a[TY_FEATURES], S = o->a[TY_SHARED_FEATURES];
    const uint64_t U = S * (o->a[TY_IS_GATED] + 1);

    return S == 0 ? 0 : D * (U + S) + (o->a[TY_HAS_BIAS] ? U + D : 0);
}

typedef struct token {
    uint64_t D, N, U, E, K;
    uint64_t at[5];                /* of the tensors */
    uint64_t choice[MOST_EXPERTS]; /* [K] */
    double weight[MOST_EXPERTS];   /* [K] */
    double *h, *act, *y;           /* of one expert */
} token;

static token token_new(const operands *o)
{
    token t = {.D = o->a[TY_FEATURES],
               .N = o->a[TY_HIDDEN_FEATURES],
               .U = o->a[TY_HIDDEN_FEATURES] * (o->a[TY_IS_GATED] + 1),
               .E = o->a[TY_EXPERTS],
               .K = o->a[TY_EXPERTS_PER_TOKEN]};
    uint64_t sizes[] = {t.E * t.D + shared_count(o), t.E * t.U * t.D, t.E * t.D * t.N, t.E * t.U};
    for (int i = 0; i < 4; i++)
        t.at[i + 1] = t.at[i] + sizes[i];
    t.h = calloc(t.U, sizeof(double));
    t.act = calloc(t.N, sizeof(double));
    t.y = calloc(t.D, sizeof(double));
    return t;
}

static void token_free(token *t)
{
    free(t->h);
    free(t->act);
    free(t->y);
}

/* The K largest scores, and their softmax. */
static void token_route(const operands *o, token *t, const double *x)
{
    double score[MOST_EXPERTS], sum = 0;
    bool taken[MOST_EXPERTS] = {false};
    affine(1, t->D, t->E, x, o->w, NULL, score);
    for (uint64_t k = 0; k < t->K; k++) {
        uint64_t best = t->E;
        for (uint64_t e = 0; e < t->E; e++)
            if (!taken[e] && (best == t->E || score[e] > score[best]))
                best = e;
        taken[best] = true;
        t->choice[k] = best;
        t->weight[k] = exp(score[best]);
        sum += t->weight[k];
    }
    for (uint64_t k = 0; k < t->K; k++)
        t->weight[k] /= sum;
}

static void expert_run(const operands *o, token *t, uint64_t e, const double *x)
{
    bool has_bias = o->a[TY_HAS_BIAS] != 0;
    affine(1, t->D, t->U, x, o->w + t->at[1] + e * t->U * t->D,
           has_bias ? o->w + t->at[3] + e * t->U : NULL, t->h);
    for (uint64_t i = 0; i < t->N; i++)
        t->act[i] = o->a[TY_IS_GATED] ? silu_of(t->h[i]) * t->h[t->N + i] : gelu_of(t->h[i]);
    affine(1, t->N, t->D, t->act, o->w + t->at[2] + e * t->D * t->N,
           has_bias ? o->w + t->at[4] + e * t->D : NULL, t->y);
}

static void moe(operands *o)
{
    token t = token_new(o);
    uint64_t attributes[TY_ATTRIBUTE_COUNT];
    operands shared = shared_mlp(o, attributes);
    memset(o->y, 0, o->r->batch * elements(o->in) * sizeof(double));
    if (shared_count(o) > 0)
        mlp(&shared);
    for (uint64_t r = 0; r < o->r->batch * elements(o->in) / t.D; r++) {
        token_route(o, &t, o->x + r * t.D);
        for (uint64_t k = 0; k < t.K; k++) {
            expert_run(o, &t, t.choice[k], o->x + r * t.D);
            for (uint64_t i = 0; i < t.D; i++)
                o->y[r * t.D + i] += t.weight[k] * t.y[i];
        }
    }
    token_free(&t);
}

/* @return the gradient of the expert's weight */
static double expert_back(operands *o, token *t, uint64_t k, const double *x, const double *dy,
                          double *dx)
{
    uint64_t e = t->choice[k];
    bool has_bias = o->a[TY_HAS_BIAS] != 0;
    double *dout = calloc(t->D, sizeof(double)), *dact = calloc(t->N, sizeof(double));
    double *dh = calloc(t->U, sizeof(double)), sum = 0;
    expert_run(o, t, e, x);
    for (uint64_t i = 0; i < t->D; i++) {
        sum += dy[i] * t->y[i];
        dout[i] = t->weight[k] * dy[i];
    }
    affine_back(1, t->N, t->D, t->act, o->w + t->at[2] + e * t->D * t->N, dout, dact,
                o->dw + t->at[2] + e * t->D * t->N, has_bias ? o->dw + t->at[4] + e * t->D : NULL);
    activation_row_back(o, t->h, dact, dh);
    affine_back(1, t->D, t->U, x, o->w + t->at[1] + e * t->U * t->D, dh, dx,
                o->dw + t->at[1] + e * t->U * t->D, has_bias ? o->dw + t->at[3] + e * t->U : NULL);
    free(dout);
    free(dact);
    free(dh);
    return sum;
}

static void moe_back(operands *o)
{
    token t = token_new(o);
    uint64_t attributes[TY_ATTRIBUTE_COUNT];
    operands shared = shared_mlp(o, attributes);
    if (shared_count(o) > 0)
        mlp_back(&shared);
    for (uint64_t r = 0; r < o->r->batch * elements(o->in) / t.D; r++) {
        const double *x = o->x + r * t.D;
        double dweight[MOST_EXPERTS], dscore[MOST_EXPERTS] = {0}, mean = 0;
        token_route(o, &t, x);
        for (uint64_t k = 0; k < t.K; k++) {
            dweight[k] = expert_back(o, &t, k, x, o->dy + r * t.D, o->dx + r * t.D);
            mean += t.weight[k] * dweight[k];
        }
        for (uint64_t k = 0; k < t.K; k++)
            dscore[t.choice[k]] = t.weight[k] * (dweight[k] - mean);
        affine_back(1, t.D, t.E, x, o->w, dscore, o->dx + r * t.D, o->dw, NULL);
    }
    token_free(&t);
}

/* One score: probability 1 / (1 + e^-x) of label 1. */
static void one_score(operands *o)
{
    for (uint64_t r = 0; r < o->r->batch * elements(o->in); r++) {
        double probability = logistic(o->x[r]);
        o->r->loss_sum -= log(o->r->labels[r] ? probability : 1 - probability);
        o->r->correct += (probability > 0.5) == (o->r->labels[r] == 1);
    }
}

static void one_score_back(operands *o)
{
    for (uint64_t r = 0; r < o->r->batch * elements(o->in); r++)
        o->dx[r] += o->r->loss_scale * (logistic(o->x[r]) - o->r->labels[r]);
}

/* A row's softmax. */
static void softmax(uint64_t C, const double *x, double *p)
{
    double sum = 0;
    for (uint64_t c = 0; c < C; c++)
        sum += exp(x[c]);
    for (uint64_t c = 0; c < C; c++)
        p[c] = exp(x[c]) / sum;
}

/* With a teacher, whose C scores precede the student's: the labels' cross-entropy, `every` times,
 * and the mean squared distance of probabilities (ty_teacher). */
static void taught_loss(operands *o)
{
    const ty_teacher *t = &o->r->workload->teacher;
    uint64_t C = last(o->in) / 2;
    double *p = calloc(2 * C, sizeof *p);
    for (uint64_t r = 0; r < o->r->batch; r++) {
        const double *x = o->x + 2 * C * r;
        uint64_t best = 0;
        softmax(C, x, p);
        softmax(C, x + C, p + C);
        for (uint64_t c = 0; c < C; c++) {
            o->r->loss_sum += t->consistency / (double)C * (p[C + c] - p[c]) * (p[C + c] - p[c]);
            best = x[C + c] > x[C + best] ? c : best;
        }
        if (o->r->labels[r] < 0)
            continue;
        o->r->loss_sum -= t->every * log(p[C + (uint64_t)o->r->labels[r]]);
        o->r->correct += best == (uint64_t)o->r->labels[r];
    }
    free(p);
}

/* Through the student's softmax: d p[k] / d x[c] = p[k] ((k == c) - p[c]). */
static void taught_loss_back(operands *o)
{
    const ty_teacher *t = &o->r->workload->teacher;
    uint64_t C = last(o->in) / 2;
    double *p = calloc(2 * C, sizeof *p);
    for (uint64_t r = 0; r < o->r->batch; r++) {
        const double *x = o->x + 2 * C * r;
        double *dx = o->dx + 2 * C * r + C;
        softmax(C, x, p);
        softmax(C, x + C, p + C);
        for (uint64_t c = 0; c < C; c++)
            for (uint64_t k = 0; k < C; k++) {
                double dp = 2 * t->consistency / (double)C * (p[C + k] - p[k]);
                if (o->r->labels[r] == (int32_t)k)
                    dp -= t->every / p[C + k];
                dx[c] += o->r->loss_scale * dp * p[C + k] * ((k == c) - p[C + c]);
            }
    }
    free(p);
}

static void loss(operands *o)
{
    uint64_t C = last(o->in);
    o->r->loss_sum = 0;
    o->r->correct = 0;
    if (ty_workload_has_teacher(o->r->workload)) {
        taught_loss(o);
        return;
    }
    if (C == 1) {
        one_score(o);
        return;
    }
    for (uint64_t r = 0; r < o->r->batch * elements(o->in) / C; r++) {
        double sum = 0;
        uint64_t best = 0;
        for (uint64_t c = 0; c < C; c++) {
            sum += exp(o->x[r * C + c]);
            best = o->x[r * C + c] > o->x[r * C + best] ? c : best;
        }
        o->r->loss_sum += log(sum) - o->x[r * C + (uint64_t)o->r->labels[r]];
        o->r->correct += best == (uint64_t)o->r->labels[r];
    }
}

static void loss_back(operands *o)
{
    uint64_t C = last(o->in);
    if (ty_workload_has_teacher(o->r->workload)) {
        taught_loss_back(o);
        return;
    }
    if (C == 1) {
        one_score_back(o);
        return;
    }
    for (uint64_t r = 0; r < o->r->batch * elements(o->in) / C; r++) {
        double sum = 0;
        for (uint64_t c = 0; c < C; c++)
            sum += exp(o->x[r * C + c]);
        for (uint64_t c = 0; c < C; c++)
            o->dx[r * C + c] +=
                o->r->loss_scale * (exp(o->x[r * C + c]) / sum - (c == (uint64_t)o->r->labels[r]));
    }
}

static const struct {
    void (*forward)(operands *), (*backward)(operands *);
} kinds[TY_LAYER_KIND_COUNT] = {
    [TY_LAYER_LINEAR] = {linear, linear_back},
    [TY_LAYER_CONV2D] = {conv, conv_back},
    [TY_LAYER_POOL] = {pool, pool_back},
    [TY_LAYER_RELU] = {activation, activation_back},
    [TY_LAYER_GELU] = {activation, activation_back},
    [TY_LAYER_SILU] = {activation, activation_back},
    [TY_LAYER_TANH] = {activation, activation_back},
    [TY_LAYER_SLICE] = {slice, slice_back},
    [TY_LAYER_FLATTEN] = {flatten, flatten_back},
    [TY_LAYER_LAYER_NORM] = {norm, norm_back},
    [TY_LAYER_RMS_NORM] = {norm, norm_back},
    [TY_LAYER_BATCH_NORM] = {batch_norm, batch_norm_back},
    [TY_LAYER_LSTM] = {lstm, lstm_back},
    [TY_LAYER_EMBEDDING] = {embedding, embedding_back},
    [TY_LAYER_EMBEDDING_BAG] = {bag, bag_back},
    [TY_LAYER_ATTENTION] = {attention, attention_back},
    [TY_LAYER_ADDITIVE_ATTENTION] = {additive, additive_back},
    [TY_LAYER_MLP] = {mlp, mlp_back},
    [TY_LAYER_MOE] = {moe, moe_back},
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = {loss, loss_back},
};

/* ---- The model ---- */

static operands operands_of(reference *r, uint32_t index)
{
    const ty_layer *layer = &r->workload->layers[index];
    bool is_tied = layer->tied_to != TY_NO_LAYER, is_pair = layer->input_count > 1;
    uint64_t own = r->offsets[index], matrix = is_tied ? r->offsets[layer->tied_to] : own;
    uint64_t skip = 0; /* an embedding's position rows follow its table; a linear's bias follows its
                        * matrix */
    if (!is_tied && layer->kind == TY_LAYER_EMBEDDING)
        skip = layer->attributes[TY_VOCABULARY] * layer->attributes[TY_FEATURES];
    if (!is_tied && layer->kind == TY_LAYER_LINEAR)
        skip = layer->attributes[TY_IN_FEATURES] * layer->attributes[TY_OUT_FEATURES];
    return (operands){
        .r = r,
        .layer = layer,
        .a = layer->attributes,
        .in = input_shape(r->workload, layer, 0),
        .out = &layer->output,
        .x = layer->input_count == 0 ? r->input : r->outputs[layer->inputs[0]],
        .y = r->outputs[index],
        .dx = layer->input_count == 0 ? r->input_gradient : r->output_gradients[layer->inputs[0]],
        .dy = r->output_gradients[index],
        .x2 = is_pair ? r->outputs[layer->inputs[1]] : NULL,
        .dx2 = is_pair ? r->output_gradients[layer->inputs[1]] : NULL,
        .w = r->parameters + matrix,
        .dw = r->gradients + matrix,
        .rest = r->parameters + own + skip,
        .drest = r->gradients + own + skip,
    };
}

/* Sums and concatenations have several inputs. */
static void join(reference *r, uint32_t index, bool is_backward)
{
    const ty_layer *layer = &r->workload->layers[index];
    uint64_t whole = elements(&layer->output), at = 0;
    double *y = r->outputs[index], *dy = r->output_gradients[index];
    uint64_t count = r->batch; /* number of joined blocks: samples, or rows of samples */
    if (!is_backward)
        memset(y, 0, r->batch * whole * sizeof *y);
    if (layer->attributes[TY_IS_OF_FEATURES]) {
        count *= whole / last(&layer->output);
        whole = last(&layer->output);
    }
    for (uint32_t k = 0; k < layer->input_count; k++) {
        uint64_t piece = elements(input_shape(r->workload, layer, k)) * r->batch / count;
        double *x = r->outputs[layer->inputs[k]], *dx = r->output_gradients[layer->inputs[k]];
        for (uint64_t i = 0; i < count * piece; i++) {
            uint64_t to = i / piece * whole + at + i % piece;
            if (is_backward)
                dx[i] += dy[to];
            else
                y[to] += x[i];
        }
        at += layer->kind == TY_LAYER_CONCAT ? piece : 0;
    }
}

static void interaction(reference *r, uint32_t index, bool is_backward)
{
    const ty_layer *layer = &r->workload->layers[index];
    uint64_t whole = elements(&layer->output), D = last(input_shape(r->workload, layer, 0));
    for (uint64_t b = 0; b < r->batch; b++) {
        double *y = r->outputs[index] + b * whole, *dy = r->output_gradients[index] + b * whole;
        for (uint64_t d = 0; d < D; d++) {
            y[d] = r->outputs[layer->inputs[0]][b * D + d];
            if (is_backward)
                r->output_gradients[layer->inputs[0]][b * D + d] += dy[d];
        }
        y += D;
        dy += D;
        for (uint32_t i = 1; i < layer->input_count; i++)
            for (uint32_t k = 0; k < i; k++, y++, dy++) {
                const double *xi = r->outputs[layer->inputs[i]] + b * D;
                const double *xk = r->outputs[layer->inputs[k]] + b * D;
                *y = 0;
                for (uint64_t d = 0; d < D; d++) {
                    *y += xi[d] * xk[d];
                    if (is_backward) {
                        r->output_gradients[layer->inputs[i]][b * D + d] += *dy * xk[d];
                        r->output_gradients[layer->inputs[k]][b * D + d] += *dy * xi[d];
                    }
                }
            }
    }
}

/* Of layers with many inputs. @return whether this is one */
static bool many(reference *r, uint32_t index, bool is_backward)
{
    const ty_layer_kind kind = r->workload->layers[index].kind;
    if (kind == TY_LAYER_ADD || kind == TY_LAYER_CONCAT)
        join(r, index, is_backward);
    else if (kind == TY_LAYER_DOT_INTERACTION)
        interaction(r, index, is_backward);
    else
        return false;
    return true;
}

reference *reference_new(const ty_workload *workload, uint64_t batch)
{
    reference *r = calloc(1, sizeof *r);
    r->workload = workload;
    r->batch = batch;
    r->loss_scale = 1;
    r->offsets = calloc(workload->layer_count + 1, sizeof *r->offsets);
    r->outputs = calloc(workload->layer_count, sizeof *r->outputs);
    r->output_gradients = calloc(workload->layer_count, sizeof *r->outputs);
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        uint64_t n = batch * elements(&workload->layers[l].output);
        r->offsets[l + 1] = r->offsets[l] + workload->layers[l].parameter_bytes / 4;
        r->outputs[l] = calloc(n, sizeof(double));
        r->output_gradients[l] = calloc(n, sizeof(double));
    }
    r->parameter_count = r->offsets[workload->layer_count];
    r->parameters = calloc(r->parameter_count, sizeof(double));
    r->gradients = calloc(r->parameter_count, sizeof(double));
    r->input_gradient = calloc(batch * elements(&workload->input), sizeof(double));
    return r;
}

void reference_free(reference *r)
{
    if (r == NULL)
        return;
    for (uint32_t l = 0; l < r->workload->layer_count; l++) {
        free(r->outputs[l]);
        free(r->output_gradients[l]);
    }
    free(r->outputs);
    free(r->output_gradients);
    free(r->offsets);
    free(r->parameters);
    free(r->gradients);
    free(r->input_gradient);
    free(r);
}

void reference_forward(reference *r)
{
    for (uint32_t l = 0; l < r->workload->layer_count; l++) {
        operands o = operands_of(r, l);
        if (!many(r, l, false))
            kinds[o.layer->kind].forward(&o);
    }
}

void reference_backward(reference *r)
{
    const ty_workload *w = r->workload;
    memset(r->gradients, 0, r->parameter_count * sizeof(double));
    memset(r->input_gradient, 0, r->batch * elements(&w->input) * sizeof(double));
    for (uint32_t l = 0; l < w->layer_count; l++)
        memset(r->output_gradients[l], 0,
               r->batch * elements(&w->layers[l].output) * sizeof(double));
    for (uint32_t l = w->layer_count; l-- > 0;) {
        operands o = operands_of(r, l);
        if (!many(r, l, true))
            kinds[o.layer->kind].backward(&o);
    }
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].is_frozen)
            memset(r->gradients + r->offsets[l], 0,
                   (r->offsets[l + 1] - r->offsets[l]) * sizeof(double));
}
