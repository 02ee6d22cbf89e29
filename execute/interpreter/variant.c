/* A model's weights as deployed, pruned or quantized (ty_plan.h), for a test. */
#include "variant.h"
#include "codec_kinds.h"
#include "sharding.h"

#include <math.h>
#include <string.h>

/* ---- A matrix ------------------------------------------------------------------------------ */

/* Digits of a magnitude's 31 bits. */
enum { LOW_BITS = 16, DIGITS = 1 << LOW_BITS };

static uint32_t magnitude_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

/* The digit of the `rank`-th smallest; `*rank` then counts among those with that digit. */
static uint32_t digit_find(const uint64_t *counts, uint64_t *rank)
{
    uint32_t digit = 0;

    while (counts[digit] <= *rank)
        *rank -= counts[digit++];
    return digit;
}

/* Replaces the `pruned` smallest magnitudes by 0, the first ones among equals. Floats of one sign
 * have the order of their bits. */
static ty_status prune(float *weights, uint64_t count, uint64_t pruned, ty_error *error)
{
    uint64_t *counts, rank = pruned, kept_equal;
    uint32_t high, threshold;

    if (pruned == 0)
        return TY_OK;
    if ((counts = ty_alloc(DIGITS, sizeof *counts)) == NULL)
        return ty_check_memory(false, error);
    for (uint64_t i = 0; i < count; i++)
        counts[magnitude_of(weights[i]) >> LOW_BITS]++;
    high = digit_find(counts, &rank);
    memset(counts, 0, DIGITS * sizeof *counts);
    for (uint64_t i = 0; i < count; i++)
        if (magnitude_of(weights[i]) >> LOW_BITS == high)
            counts[magnitude_of(weights[i]) & (DIGITS - 1)]++;
    threshold = high << LOW_BITS | digit_find(counts, &rank);
    kept_equal = rank; /* number of those equal to the threshold that are pruned */
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t magnitude = magnitude_of(weights[i]);
        if (magnitude < threshold || (magnitude == threshold && kept_equal > 0)) {
            kept_equal -= magnitude == threshold;
            weights[i] = 0;
        }
    }
    ty_free(counts);
    return TY_OK;
}

/* Rounds to integer multiples of the row's largest magnitude over the largest integer. */
static void row_quantise(float *row, uint64_t columns, float largest_integer)
{
    float most = 0, scale;

    for (uint64_t c = 0; c < columns; c++)
        most = fmaxf(most, fabsf(row[c]));
    scale = most / largest_integer;
    for (uint64_t c = 0; c < columns && scale > 0; c++)
        row[c] =
            scale * fminf(largest_integer, fmaxf(-largest_integer, nearbyintf(row[c] / scale)));
}

ty_status variant_make_matrix(const ty_variant *variant, uint64_t rows, uint64_t columns,
                              float *weights, ty_error *error)
{
    const uint64_t count = rows * columns;
    const ty_status status = prune(weights, count, ty_variant_pruned(variant, count), error);

    if (status != TY_OK)
        return status;
    for (uint64_t r = 0; r < rows && variant->bits < 16; r++)
        row_quantise(weights + r * columns, columns, (float)((1 << (variant->bits - 1)) - 1));
    for (uint64_t i = 0; i < count && variant->bits == 16; i++) {
        uint16_t half;
        half_from_float(1, &weights[i], &half);
        half_to_float(1, &half, &weights[i]);
    }
    return TY_OK;
}

/* ---- A stage ------------------------------------------------------------------------------- */

/* The matrix that the stage has in addition to its layers', because it is tied to another stage's.
 */
static ty_status tied_make(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                           const ty_variant *variant, float *parameters, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_bucket_matrix matrices[TY_MOST_MATRICES];
    uint64_t offset, count;
    ty_status status = TY_OK;

    in->options.backend->tied_slice(virtual_stage->device, &offset, &count);
    for (uint32_t b = 0; b < plan->bucket_count && count > 0 && status == TY_OK; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage == TY_NO_STAGE ||
            (bucket->stage != virtual_stage->stage && bucket->tied_stage != virtual_stage->stage))
            continue;
        if (ty_layer_matrices(plan->workload, bucket->first_layer, matrices) > 0)
            status = variant_make_matrix(variant, matrices[0].rows, matrices[0].columns,
                                         parameters + offset, error);
    }
    return status;
}

/* Whether a layer's first matrix is not among its own parameters, but the stage's tied one. */
static bool is_matrix_apart(const ty_plan *plan, uint32_t layer)
{
    return plan->workload->layers[layer].tied_to == TY_NO_LAYER &&
           !plan->workload->layers[layer].is_frozen &&
           ty_plan_tied_stage(plan, layer) != TY_NO_STAGE;
}

static ty_status stage_make(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                            const ty_variant *variant, float *parameters, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[virtual_stage->stage];
    ty_status status = tied_make(in, virtual_stage, variant, parameters, error);

    for (uint32_t l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
        ty_bucket_matrix matrices[TY_MOST_MATRICES];
        const uint32_t found = ty_layer_matrices(plan->workload, l, matrices);
        const bool is_apart = is_matrix_apart(plan, l);
        uint64_t offset, count, missing = 0;

        in->options.backend->slice(virtual_stage->device, l, 1, &offset, &count);
        for (uint32_t m = 0; m < found && status == TY_OK; m++) {
            if (m == 0 && is_apart) {
                missing = matrices[0].rows * matrices[0].columns;
                continue;
            }
            status = variant_make_matrix(variant, matrices[m].rows, matrices[m].columns,
                                         parameters + offset + matrices[m].offset - missing, error);
        }
    }
    return status;
}

/* ---- A rank -------------------------------------------------------------------------------- */

/* Writes all weights that this rank keeps. */
static ty_status weights_write(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                               const float *from, uint64_t bytes, ty_error *error)
{
    ty_parameter_range *kept;
    uint32_t count;
    ty_status status = TY_OK;

    if (in->memory == NULL) {
        memcpy(in->options.backend->parameters(virtual_stage->device), from, bytes);
        return TY_OK;
    }
    kept = interpreter_kept_room(in);
    TY_TRY(ty_check_memory(kept != NULL, error));
    count = interpreter_kept_ranges(in, virtual_stage, kept);
    for (uint32_t k = 0; k < count && status == TY_OK; k++)
        if (kept[k].count > 0)
            status = in->memory->write(virtual_stage->device,
                                       interpreter_weights_at(in, virtual_stage, kept[k].offset),
                                       from + kept[k].offset, kept[k].count * sizeof *from, error);
    ty_free(kept);
    return status;
}

/* Reads all weights, which have been gathered. */
static ty_status weights_read(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                              float *to, uint64_t bytes, ty_error *error)
{
    const float *parameters = in->options.backend->parameters(virtual_stage->device);

    if (in->memory != NULL && virtual_stage->gathered == NULL)
        return in->memory->read(virtual_stage->device, to, parameters, bytes, error);
    memcpy(to, virtual_stage->gathered != NULL ? virtual_stage->gathered : parameters, bytes);
    return TY_OK;
}

ty_status interpreter_variant_make(ty_interpreter *in, const ty_variant *variant, float ***trained,
                                   ty_error *error)
{
    float **kept = ty_alloc(in->virtual_stage_count, sizeof *kept), *made = NULL;
    ty_status status =
        kept != NULL ? interpreter_gather_all(in, false, error) : ty_check_memory(false, error);

    for (uint32_t h = 0; h < in->virtual_stage_count && status == TY_OK; h++) {
        const virtual_stage_state *virtual_stage = &in->virtual_stages[h];
        const uint64_t count = in->options.backend->parameter_count(virtual_stage->device);

        kept[h] = ty_alloc(count, sizeof **kept);
        made = ty_alloc(count, sizeof *made);
        if (kept[h] == NULL || made == NULL)
            status = ty_check_memory(false, error);
        if (status == TY_OK)
            status = weights_read(in, virtual_stage, kept[h], count * sizeof *made, error);
        if (status == TY_OK) {
            memcpy(made, kept[h], count * sizeof *made);
            status = stage_make(in, virtual_stage, variant, made, error);
        }
        if (status == TY_OK)
            status = weights_write(in, virtual_stage, made, count * sizeof *made, error);
        ty_free(made);
    }
    *trained = kept;
    return status;
}

ty_status interpreter_variant_over(ty_interpreter *in, float *const *trained, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t h = 0; h < in->virtual_stage_count && status == TY_OK; h++) {
        const virtual_stage_state *virtual_stage = &in->virtual_stages[h];
        const uint64_t count = in->options.backend->parameter_count(virtual_stage->device);
        status = weights_write(in, virtual_stage, trained[h], count * sizeof **trained, error);
    }
    return status;
}

void interpreter_variant_free(const ty_interpreter *in, float **trained)
{
    for (uint32_t h = 0; trained != NULL && h < in->virtual_stage_count; h++)
        ty_free(trained[h]);
    ty_free(trained);
}
