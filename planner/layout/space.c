/* The values that each dimension of a search may take. */
#include "search.h"

#include "ty_memory.h"

#include <string.h>

#define MEBIBYTE ((uint64_t)1 << 20)

/* As PyTorch's DistributedDataParallel and Megatron-LM have them by default, and some beside. */
static const uint64_t usual_buckets[] = {
    0, 25 * MEBIBYTE, 50 * MEBIBYTE, 100 * MEBIBYTE, 160 * MEBIBYTE, 640 * MEBIBYTE};

ty_layout_options ty_layout_options_default(void)
{
    return (ty_layout_options){.schedules = (1u << TY_LAYOUT_SCHEDULE_COUNT) - 1,
                               .recomputes = (1u << TY_LAYOUT_RECOMPUTE_COUNT) - 1,
                               .precisions = 1u << TY_LAYOUT_HALF,
                               .zeros = 15,
                               .compressions =
                                   1u << TY_COMPRESSION_NONE | 1u << TY_COMPRESSION_FP16,
                               .sequence_parallel = 3,
                               .overlap_gradients = 3,
                               .overlap_tensor = 3,
                               .buckets = usual_buckets,
                               .bucket_count = sizeof usual_buckets / sizeof *usual_buckets,
                               .top = 10};
}

/* ---- Axes
 * ------------------------------------------------------------------------------------------ */

/* Divisors of `whole` up to `most`; only `fixed` where it is not 0. */
static ty_status divisors(uint32_t whole, uint32_t most, uint32_t fixed, layout_axis *out,
                          ty_error *error)
{
    uint32_t capacity = 0;

    out->count = 0;
    for (uint32_t i = 1; i <= most && i <= whole; i++) {
        if (whole % i != 0 || (fixed != 0 && i != fixed))
            continue;
        if (out->count == capacity) {
            uint32_t *grown = ty_resize(out->values, capacity + 64, sizeof *grown);
            if (grown == NULL)
                return ty_fail(error, TY_ENOMEM, "out of memory for divisors");
            out->values = grown;
            capacity += 64;
        }
        out->values[out->count++] = i;
    }
    return TY_OK;
}

ty_status layout_axes_of(const ty_layout_question *q, const ty_layout_options *o, layout_axes *out,
                         ty_error *error)
{
    const ty_layout_shape *s = &q->shape;
    uint32_t devices = q->cluster.devices;
    ty_status status = TY_OK;
    layout_axes axes = {0};

    TY_CHECK(divisors(devices, s->heads, o->tensor, &axes.tensors, error), status, cleanup);
    TY_CHECK(divisors(devices, s->sequence, o->context, &axes.contexts, error), status, cleanup);
    TY_CHECK(divisors(s->experts > 0 ? s->experts : 1, devices, o->expert, &axes.experts, error),
             status, cleanup);
    TY_CHECK(divisors(devices, s->layers, o->pipeline, &axes.pipelines, error), status, cleanup);
    TY_CHECK(divisors(q->global_batch, q->global_batch, o->micro_batch, &axes.micro_batches, error),
             status, cleanup);
    TY_CHECK(divisors(s->layers, s->layers, o->interleave, &axes.chunks, error), status, cleanup);
    *out = axes;
    axes = (layout_axes){0};

cleanup:
    layout_axes_clear(&axes);
    return status;
}

void layout_axes_clear(layout_axes *axes)
{
    layout_axis *all[] = {&axes->tensors,   &axes->contexts,      &axes->experts,
                          &axes->pipelines, &axes->micro_batches, &axes->chunks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ty_free(all[i]->values);
    *axes = (layout_axes){0};
}

bool layout_set_data(const ty_layout_question *q, const ty_layout_options *o, ty_layout *l)
{
    uint64_t rest = (uint64_t)l->tensor * l->context * l->pipeline;
    if (rest > q->cluster.devices || q->cluster.devices % rest != 0)
        return false;
    l->data = (uint32_t)(q->cluster.devices / rest);
    return o->data == 0 || o->data == l->data;
}

bool layout_divides(const ty_layout_question *q, const ty_layout *l)
{
    return l->interleave == 1 || q->shape.layers % ((uint64_t)l->pipeline * l->interleave) == 0;
}

/* ---- Ways to exchange gradients
 * ---------------------------------------------------------------------- */

static bool allows(uint32_t mask, unsigned value)
{
    return (mask >> value & 1) != 0;
}

ty_status layout_choices_of(const ty_layout_options *o, layout_choice **out, uint32_t *count,
                            uint32_t *lone_count, ty_error *error)
{
    size_t most = 4 * (size_t)TY_COMPRESSION_COUNT * (o->bucket_count + 1u);
    layout_choice *choices = ty_alloc(most + 1, sizeof *choices);
    uint32_t n = 0;

    if (choices == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %zu choices", most);
    for (unsigned zero = 0; zero < 4; zero++)
        for (unsigned c = 0; c < TY_COMPRESSION_COUNT; c++) {
            if (!allows(o->zeros, zero) || !allows(o->compressions, c) ||
                !layout_compresses((ty_compression_kind)c) ||
                (c == TY_COMPRESSION_TOP_K && zero > 0))
                continue;
            if (allows(o->overlap_gradients, 0))
                choices[n++] = (layout_choice){zero, (ty_compression_kind)c, false, 0};
            for (uint32_t b = 0; b < o->bucket_count && allows(o->overlap_gradients, 1); b++)
                choices[n++] = (layout_choice){zero, (ty_compression_kind)c, true, o->buckets[b]};
        }
    *lone_count = n > 0 && choices[0].zero == 0 && choices[0].compression == TY_COMPRESSION_NONE &&
                          !choices[0].overlap_gradients
                      ? 1
                      : 0;
    *count = n;
    *out = choices;
    return TY_OK;
}

/* ---- Every combination
 * ----------------------------------------------------------------------------------- */

/* The next number, the first digit fastest; false behind the last. */
static bool count_up(layout_counter *counter, const uint32_t counts[LAYOUT_DIGITS])
{
    uint32_t *d = counter->digits;
    size_t i = 0;

    while (counter->is_started && i < LAYOUT_DIGITS && d[i] == counts[i] - 1)
        d[i++] = 0;
    if (i == LAYOUT_DIGITS)
        return false;
    d[i] += counter->is_started ? 1 : 0;
    counter->is_started = true;
    return true;
}

static ty_layout layout_of(const uint32_t d[LAYOUT_DIGITS], const layout_axes *a,
                           const layout_choice *choices)
{
    ty_layout l = {.tensor = a->tensors.values[d[11]],
                   .context = a->contexts.values[d[10]],
                   .expert = a->experts.values[d[9]],
                   .pipeline = a->pipelines.values[d[8]],
                   .micro_batch = a->micro_batches.values[d[7]],
                   .interleave = a->chunks.values[d[6]],
                   .schedule = (ty_layout_schedule)d[5],
                   .recompute = (ty_layout_recompute)d[4],
                   .precision = (ty_layout_precision)d[3],
                   .sequence_parallel = d[2] == 1,
                   .overlap_tensor = d[1] == 1};
    layout_choose(&choices[d[0]], &l);
    return l;
}

/* Each digit of a number stands for a value of a dimension. */
bool layout_next(const ty_layout_question *q, const ty_layout_options *o, const layout_axes *a,
                 const layout_choice *choices, uint32_t choice_count, layout_counter *counter,
                 ty_layout *out)
{
    const uint32_t counts[LAYOUT_DIGITS] = {choice_count,
                                            2,
                                            2,
                                            TY_LAYOUT_PRECISION_COUNT,
                                            TY_LAYOUT_RECOMPUTE_COUNT,
                                            TY_LAYOUT_SCHEDULE_COUNT,
                                            a->chunks.count,
                                            a->micro_batches.count,
                                            a->pipelines.count,
                                            a->experts.count,
                                            a->contexts.count,
                                            a->tensors.count};

    for (size_t i = 0; i < LAYOUT_DIGITS; i++)
        if (counts[i] == 0)
            return false;
    while (count_up(counter, counts)) {
        *out = layout_of(counter->digits, a, choices);
        if (layout_set_data(q, o, out) && allows(o->schedules, out->schedule) &&
            allows(o->recomputes, out->recompute) && allows(o->precisions, out->precision) &&
            allows(o->sequence_parallel, out->sequence_parallel) &&
            allows(o->overlap_tensor, out->overlap_tensor))
            return true;
    }
    return false;
}
