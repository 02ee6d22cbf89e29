/**
 * @file cpu_math.h
 * Loops that compilers vectorize, compiled for several generations of x86 and chosen at run time,
 * so that one build serves every host.
 */
#ifndef TY_EXECUTE_CPU_MATH_H
#define TY_EXECUTE_CPU_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* The choice is made by the dynamic loader, before a sanitizer's runtime is ready for it. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("default", "arch=haswell", "avx512f")))
#else
#define CPU_CLONES
#endif

/* Ordinary inlining stops at the border between generations. */
#if defined(__GNUC__)
#define CPU_INLINE static inline __attribute__((always_inline))
#else
#define CPU_INLINE static inline
#endif

/**
 * e^x to within 2 units in the last place for x in [-87, 88], clamped outside. Cody-Waite reduction
 * by ln 2 in two parts and the degree-6 polynomial of Cephes expf (Moshier); written without
 * branches so that loops over it vectorize.
 */
CPU_INLINE float cpu_exp(float x)
{
    const float log2_e = 1.44269504088896341f;
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float n, r, p;
    int32_t bits;

    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    n = x * log2_e + shifter;
    memcpy(&bits, &n, sizeof bits);
    n -= shifter;
    r = x - n * ln2_high;
    r = r - n * ln2_low;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    /* 2^n: n is in the low bits of the shifted sum. */
    bits = (int32_t)(((uint32_t)bits + 127u) << 23);
    memcpy(&n, &bits, sizeof n);
    return p * n;
}

/**
 * 1 / x for x in [1, 2^120], to within 2 units in the last place: an estimate from the bits (its
 * exponent negated, error below 12 %) and three steps of Newton's method, each squaring the error.
 * A division would take longer than the rest of the functions below.
 */
CPU_INLINE float cpu_reciprocal(float x)
{
    int32_t bits;
    float r;

    memcpy(&bits, &x, sizeof bits);
    bits = 0x7ef311c7 - bits;
    memcpy(&r, &bits, sizeof r);
    r = r * (2.0f - x * r);
    r = r * (2.0f - x * r);
    r = r + r * (1.0f - x * r);
    return r;
}

/** 1 / (1 + e^-x). */
CPU_INLINE float cpu_sigmoid(float x)
{
    float power = -x < 80.0f ? -x : 80.0f; /* below 2^120; the result would be below 2e-35 */
    return cpu_reciprocal(1.0f + cpu_exp(power));
}

CPU_INLINE float cpu_tanh(float x)
{
    return 2.0f * cpu_sigmoid(2.0f * x) - 1.0f;
}

/**
 * Hendrycks and Gimpel, "Gaussian error linear units", 2016, the tanh form: x/2 (1 + tanh(u)) with
 * u = sqrt(2/pi) (x + 0.044715 x^3). Because (1 + tanh(u)) / 2 = sigmoid(2u), it is x sigmoid(2u).
 */
#define CPU_GELU_SCALE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CPU_GELU_CUBIC 0.044715f
CPU_INLINE float cpu_gelu_of(float x)
{
    return x * cpu_sigmoid(CPU_GELU_SCALE * (x + CPU_GELU_CUBIC * x * x * x));
}

CPU_INLINE float cpu_gelu_slope(float x)
{
    float s = cpu_sigmoid(CPU_GELU_SCALE * (x + CPU_GELU_CUBIC * x * x * x));
    float slope = CPU_GELU_SCALE * (1.0f + 3.0f * CPU_GELU_CUBIC * x * x);
    return s + x * s * (1.0f - s) * slope;
}

#endif
