/* Convolutions by loops over every combination of an output, a weight and an input. */
#include "library_convolutions.h"

#include <string.h>

/* A row of weights on a row of an image. `left` is the image element under the first weight;
 * weights from first to last are inside the image. */
static void row_convolve(convolved_sort made, int64_t left, int64_t first, int64_t last, float *x,
                         float *w, float *y)
{
    if (made == CONVOLVE_X)
        for (int64_t s = first; s < last; s++)
            x[left + s] += *y * w[s];
    else if (made == CONVOLVE_W)
        for (int64_t s = first; s < last; s++)
            w[s] += *y * x[left + s];
    else
        for (int64_t s = first; s < last; s++)
            *y += x[left + s] * w[s];
}

/* All weights of one output. */
static void output_convolve(const convolution *c, convolved_sort made, const int64_t at[4],
                            float *x, float *w, float *y)
{
    const int64_t outs = c->w[0] / (c->x[1] / c->w[1]);
    const int64_t top = at[2] * c->strides[0] - c->padding[0];
    const int64_t left = at[3] * c->strides[1] - c->padding[1];
    const int64_t first = left < 0 ? -left : 0;
    const int64_t last = c->x[3] - left < c->w[3] ? c->x[3] - left : c->w[3];

    for (int64_t ch = 0; ch < c->w[1]; ch++) {
        const int64_t plane = at[0] * c->x[1] + at[1] / outs * c->w[1] + ch;
        for (int64_t r = 0; r < c->w[2]; r++)
            if (top + r >= 0 && top + r < c->x[2])
                row_convolve(made, left, first, last, x + (plane * c->x[2] + top + r) * c->x[3],
                             w + ((at[1] * c->w[1] + ch) * c->w[2] + r) * c->w[3], y);
    }
}

void convolve(const convolution *c, convolved_sort made, float *x, float *w, float *y)
{
    int64_t at[4];

    for (at[0] = 0; at[0] < c->y[0]; at[0]++)
        for (at[1] = 0; at[1] < c->y[1]; at[1]++)
            for (at[2] = 0; at[2] < c->y[2]; at[2]++)
                for (at[3] = 0; at[3] < c->y[3]; at[3]++)
                    output_convolve(c, made, at, x, w, y++);
}

float tf32_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&value, &bits, sizeof value);
    return value;
}
