/* Numbers, batches, memory of either backend, comparison with tolerances. */
#include "gpu_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const ty_device_backend *const cpu = &ty_device_cpu;

/* fp32: sums in another order. tf32 and fp16 round products' operands to 11 bits, bf16 to 8, in
 * each of up to 13 layers; measured against fp32 on the CPU. */
const precision_case precisions[PRECISIONS] = {{TY_PRECISION_FP32, 2e-5},
                                               {TY_PRECISION_TF32, 1e-2},
                                               {TY_PRECISION_BF16, 1e-1},
                                               {TY_PRECISION_FP16, 2e-2}};

uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

float next_float(uint64_t *state)
{
    return (float)(next_random(state) % 20001) * 1e-4f - 1.0f;
}

void batch_fill(const ty_device_backend *b, ty_stage_device *stage, uint32_t slot,
                const ty_workload *w, uint32_t samples, uint64_t seed)
{
    const ty_shape *scores = ty_layer_input_shape(w, w->layer_count - 1, 0);
    uint64_t classes = scores->dimensions[scores->dimension_count - 1], vocabulary = classes;
    uint64_t inputs = ty_shape_elements(&w->input) * samples;
    uint64_t labels = ty_shape_elements(scores) / classes * samples, state = seed;
    float *input = w->input_kind == TY_INPUT_REAL ? b->input(stage, slot) : NULL;
    int32_t *tokens = b->tokens(stage, slot), *label = b->labels(stage, slot);

    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].kind == TY_LAYER_EMBEDDING)
            vocabulary = w->layers[l].attributes[TY_VOCABULARY];
    for (uint64_t i = 0; i < inputs; i++) {
        if (tokens != NULL)
            tokens[i] = (int32_t)(next_random(&state) % vocabulary);
        else if (input != NULL)
            input[i] = next_float(&state);
    }
    for (uint64_t i = 0; label != NULL && i < labels; i++)
        label[i] = (int32_t)(next_random(&state) % classes);
}

/* ---- Either backend's memory ---- */

bool device_read(ty_stage_device *stage, const float *from, uint64_t count, float *to)
{
    ty_error error = {0};

    return gpu->memory->read(stage, to, from, count * sizeof *to, &error) == TY_OK ||
           wrong("%s", error.message);
}

bool device_write(ty_stage_device *stage, float *to, const float *from, uint64_t count)
{
    ty_error error = {0};

    return gpu->memory->write(stage, to, from, count * sizeof *to, &error) == TY_OK ||
           wrong("%s", error.message);
}

bool is_close(const ty_workload *w, const ty_stage_device *stage, const float *found,
              const float *expected, double tolerance)
{
    double scale = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t l = 0; l < w->layer_count; l++) {
            uint64_t offset, count;
            double difference = 0, norm = 0;
            cpu->slice(stage, l, 1, &offset, &count);
            for (uint64_t i = offset; i < offset + count; i++) {
                difference += pow((double)found[i] - (double)expected[i], 2);
                norm += pow((double)expected[i], 2);
            }
            difference = sqrt(difference);
            norm = sqrt(norm);
            if (pass == 0)
                scale = fmax(scale, norm);
            else if (!(difference <= tolerance * (norm + 1e-2 * scale)))
                return wrong("gradients of %s differ by %g of %g, expected at most %g",
                             w->layers[l].name, difference, norm,
                             tolerance * (norm + 1e-2 * scale));
        }
    return scale > 0 || wrong("all gradients are 0");
}

/* ---- Passes ---- */

ty_stage_options options_of(const ty_workload *w, uint32_t batch, ty_precision precision)
{
    return (ty_stage_options){.workload = w,
                              .layer_count = w->layer_count,
                              .micro_batch_size = batch,
                              .slots = 2,
                              .loss_scale = 1.0 / (2 * batch),
                              .seed = 7,
                              .tied_layer = TY_NO_LAYER,
                              .precision = precision};
}

bool stage_open(const ty_device_backend *b, const ty_stage_options *o, ty_stage_device **out)
{
    ty_error error = {0};

    return b->open(o, out, &error) == TY_OK || wrong("%s: %s", b->name, error.message);
}

/* Layer by layer, each segment after its recomputation. */
static ty_status backward_in_segments(const ty_device_backend *b, ty_stage_device *stage,
                                      const ty_stage_options *o, uint32_t slot, ty_error *error)
{
    const ty_recompute_range range = {o->first_layer, o->layer_count, o->recompute,
                                      o->recompute_blocks};
    uint32_t *starts = calloc(o->workload->layer_count, sizeof *starts);
    uint32_t end = o->first_layer + o->layer_count;
    ty_status status = TY_OK;

    for (uint32_t s = ty_recompute_segments(o->workload, &range, starts);
         s-- > 0 && status == TY_OK; end = starts[s]) {
        status = b->recompute(stage, slot, starts[s], end - starts[s], error);
        for (uint32_t l = end; l-- > starts[s] && status == TY_OK;)
            status = b->backward(stage, slot, l, 1, slot == 0, error);
    }
    free(starts);
    return status;
}

bool two_passes(const ty_device_backend *b, ty_stage_device *stage, const ty_stage_options *o)
{
    const uint32_t layers = o->layer_count;
    ty_error error = {0};
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < 2 && status == TY_OK; s++) {
        batch_fill(b, stage, s, o->workload, o->micro_batch_size, 11 + s);
        status = b->forward(stage, s, 0, layers, &error);
    }
    for (uint32_t s = 0; s < 2 && status == TY_OK; s++)
        status = ty_recompute_has_segments(o->recompute)
                     ? backward_in_segments(b, stage, o, s, &error)
                     : b->backward(stage, s, 0, layers, s == 0, &error);
    return status == TY_OK || wrong("%s: %s", b->name, error.message);
}
