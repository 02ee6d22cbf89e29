/* Rotary position embeddings of queries and keys. */
#include "cpu_layer.h"

#include <math.h>

/* Su et al., "RoFormer", 2021, section 3.4.2: numbers i and i + size / 2 of a head are a pair, as
 * in GPT-NeoX and in the Llama of Hugging Face's transformers. Position p rotates the pair by
 * p / base^(2i / size); in floats, as there. Cosines, then sines. */
static void turns_make(const cpu_rotary *r, uint64_t position, float *turns)
{
    const uint64_t half = r->head_size / 2;

    for (uint64_t i = 0; i < half; i++) {
        const double exponent = 2.0 * (double)i / (double)r->head_size;
        const float frequency = (float)pow((double)r->base, -exponent);
        const float angle = (float)position * frequency;

        turns[i] = cosf(angle);
        turns[half + i] = r->is_back ? -sinf(angle) : sinf(angle);
    }
}

static void head_turn(uint64_t half, const float *turns, float *x)
{
    for (uint64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[half + i];

        x[i] = a * turns[i] - b * turns[half + i];
        x[half + i] = b * turns[i] + a * turns[half + i];
    }
}

void cpu_rotate(const cpu_rotary *r, float *rows, float *turns)
{
    for (uint64_t t = 0; t < r->length; t++) {
        turns_make(r, token_place(r->runs, t), turns);
        for (uint64_t b = 0; b < r->batch; b++)
            for (uint64_t h = 0; h < r->heads; h++)
                head_turn(r->head_size / 2, turns,
                          rows + (b * r->length + t) * r->stride + h * r->head_size);
    }
}
