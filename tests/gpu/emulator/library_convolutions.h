/**
 * @file library_convolutions.h
 * Convolutions by loops, for the stand-in for cuDNN.
 */
#ifndef TY_TEST_GPU_LIBRARY_CONVOLUTIONS_H
#define TY_TEST_GPU_LIBRARY_CONVOLUTIONS_H

#include <stdint.h>

typedef struct convolution {
    int64_t x[4], w[4], y[4]; /* sizes: [n][c][h][w], [k][c / groups][r][s], [n][k][p][q] */
    int64_t strides[2], padding[2];
} convolution;

/** The tensor that is computed from the other two; for a forward convolution, x's and y's gradients
 * for example. */
typedef enum convolved_sort { CONVOLVE_X, CONVOLVE_W, CONVOLVE_Y } convolved_sort;

/** Adds the result of the two other arrays to one of three row-major arrays, in floats and in a
 * fixed order. */
void convolve(const convolution *c, convolved_sort made, float *x, float *w, float *y);

/** Rounds a float to 11 bits, as tensor cores do. */
float tf32_of(float value);

#endif
