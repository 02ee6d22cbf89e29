/* The best layouts of a question, exactly: whole families of layouts are left out where a bound
 * shows that none of them fits, or that none is among the best or on the front. Families are
 * visited in the order of their bounds, so that good layouts are known early. */
#include "search.h"

#include "ty_memory.h"

#include <math.h>
#include <stdlib.h>

#define STOP_INTERVAL 4096
#define ROUNDING (1 - 1e-9) /* bounds are summed in another order than estimates */

/* All layouts that share a cell and a pipeline: what is left open are schedule, chunks and how
 * gradients are exchanged. */
typedef struct family {
    ty_layout layout; /* with schedule 1f1b, one chunk, nothing sharded */
    uint32_t cell;
    double longest_s, shortest_s, sum_s; /* slots of the stages, without transfers and exchange */
    double time_s, memory_bytes;         /* bounds */
} family;

typedef struct search {
    const ty_layout_question *q;
    const ty_layout_options *options;
    layout_axes axes;
    layout_cell *cells;
    uint32_t cell_count, cell_capacity;
    family *families;
    size_t family_count, family_capacity;
    layout_collector collector;
    layout_choice *choices; /* ways to exchange gradients, with replicas and without */
    uint32_t choice_count, lone_choice_count;
    uint64_t polled;
    double limit_bytes;
    ty_error *error;
} search;

/* ---- Bounds ------------------------------------------------------------------------------------
 */

/* Everything sharded, and no buffers, which are smaller without: no layout of the family holds
 * less. */
static double least_memory(const search *s, const ty_layout *l, const layout_cell *cell)
{
    ty_layout least = *l;
    ty_layout_memory memory;

    least.zero = l->context * l->data > 1 ? 3 : 0;
    layout_memory_with(s->q, &least, cell, &memory);
    return ROUNDING * (memory.total - memory.buffers);
}

/* With slots t_i without exchange and transfers, both of which only add, and k the stage that paces
 * the pipeline: step >= (m-1) max t + t_k + (sum - t_k) / v, which grows with t_k >= min t. */
static double least_time(const search *s, const family *f)
{
    double m = layout_micro_batches(s->q, &f->layout), fill;
    const ty_layout *l = &f->layout;

    fill = (f->sum_s - f->shortest_s) / l->interleave;
    if (l->schedule == TY_LAYOUT_ZERO_BUBBLE)
        fill = fmax(0, f->sum_s - f->longest_s -
                           2.0 * s->q->shape.layers * s->cells[f->cell].weight_s);
    return ROUNDING * ((m - 1) * f->longest_s + f->shortest_s + fill);
}

static void slots(const search *s, family *f)
{
    const layout_cell *cell = &s->cells[f->cell];
    layout_stages stages = layout_stages_of(s->q->shape.layers, f->layout.pipeline);
    double layer = cell->forward_s + cell->backward_s + cell->recompute_s;
    double host = s->q->constants.host_slot_s;
    double first = stages.first * layer + cell->embedding_s + host;
    double middle = stages.middle * layer + host, last = stages.last * layer + cell->head_s + host;

    f->sum_s =
        s->q->shape.layers * layer + cell->embedding_s + cell->head_s + f->layout.pipeline * host;
    if (f->layout.pipeline == 1)
        first = last = middle = f->sum_s;
    else if (f->layout.pipeline == 2)
        middle = first;
    f->longest_s = fmax(first, fmax(middle, last));
    /* Some of the middle stages have a layer less than the longest. */
    f->shortest_s = fmin(first, fmin(middle, last));
}

static bool is_hopeless(const search *s, double time_s, double memory_bytes)
{
    return memory_bytes > s->limit_bytes || layout_is_beaten(&s->collector, time_s, memory_bytes);
}

/* ---- Families ----------------------------------------------------------------------------------
 */

static ty_status add_cell(search *s, const ty_layout *l)
{
    if (s->cell_count == s->cell_capacity) {
        uint32_t capacity = s->cell_capacity > 0 ? 2 * s->cell_capacity : 256;
        layout_cell *grown = ty_resize(s->cells, capacity, sizeof *grown);
        if (grown == NULL)
            return ty_fail(s->error, TY_ENOMEM, "out of memory for %u layouts", capacity);
        s->cells = grown;
        s->cell_capacity = capacity;
    }
    layout_cell_of(s->q, l, &s->cells[s->cell_count++]);
    return TY_OK;
}

static ty_status add_family(search *s, const ty_layout *l, uint32_t cell)
{
    const layout_cell *c = &s->cells[cell];
    family *f;

    if (s->family_count == s->family_capacity) {
        size_t capacity = s->family_capacity > 0 ? 2 * s->family_capacity : 1024;
        family *grown = ty_resize(s->families, capacity, sizeof *grown);
        if (grown == NULL)
            return ty_fail(s->error, TY_ENOMEM, "out of memory for %zu layouts", capacity);
        s->families = grown;
        s->family_capacity = capacity;
    }
    f = &s->families[s->family_count++];
    *f = (family){.layout = *l, .cell = cell, .memory_bytes = least_memory(s, l, c)};
    slots(s, f);
    /* No schedule has less to fill than nothing. */
    f->time_s = ROUNDING * ((layout_micro_batches(s->q, l) - 1) * f->longest_s + f->shortest_s);
    return TY_OK;
}

/* All pipelines that share a cell. */
static ty_status add_pipelines(search *s, ty_layout *l)
{
    ty_status status = TY_OK;
    bool has_cell = false;

    for (uint32_t p = 0; p < s->axes.pipelines.count; p++) {
        l->pipeline = s->axes.pipelines.values[p];
        if (!layout_set_data(s->q, s->options, l) || layout_broken_rule(s->q, l) != NULL)
            continue;
        if (!has_cell)
            TY_CHECK(add_cell(s, l), status, cleanup);
        has_cell = true;
        TY_CHECK(add_family(s, l, s->cell_count - 1), status, cleanup);
    }

cleanup:
    return status;
}

static ty_status add_work(search *s, ty_layout *l)
{
    ty_status status = TY_OK;

    for (uint32_t m = 0; m < s->axes.micro_batches.count; m++)
        for (int r = 0; r < TY_LAYOUT_RECOMPUTE_COUNT; r++) {
            if ((s->options->recomputes >> r & 1) == 0)
                continue;
            l->micro_batch = s->axes.micro_batches.values[m];
            l->recompute = (ty_layout_recompute)r;
            TY_CHECK(add_pipelines(s, l), status, cleanup);
        }

cleanup:
    return status;
}

static ty_status add_splits(search *s, ty_layout *l)
{
    ty_status status = TY_OK;

    for (uint32_t c = 0; c < s->axes.contexts.count; c++)
        for (uint32_t e = 0; e < s->axes.experts.count; e++)
            for (unsigned b = 0; b < 4; b++) {
                bool is_sequence = (b & 1) != 0, is_overlap = (b & 2) != 0;
                if ((s->options->sequence_parallel >> is_sequence & 1) == 0 ||
                    (s->options->overlap_tensor >> is_overlap & 1) == 0 ||
                    (l->tensor == 1 && b != 0))
                    continue;
                l->context = s->axes.contexts.values[c];
                l->expert = s->axes.experts.values[e];
                l->sequence_parallel = is_sequence;
                l->overlap_tensor = is_overlap;
                TY_CHECK(add_work(s, l), status, cleanup);
            }

cleanup:
    return status;
}

static int by_bounds(const void *left, const void *right)
{
    const family *a = left, *b = right;
    if (a->time_s != b->time_s)
        return a->time_s < b->time_s ? -1 : 1;
    if (a->memory_bytes != b->memory_bytes)
        return a->memory_bytes < b->memory_bytes ? -1 : 1;
    return ty_layout_compare(&a->layout, &b->layout);
}

static ty_status find_families(search *s)
{
    ty_layout l = {.interleave = 1, .schedule = TY_LAYOUT_1F1B};
    ty_status status = TY_OK;

    for (int precision = 0; precision < TY_LAYOUT_PRECISION_COUNT; precision++)
        for (uint32_t t = 0; t < s->axes.tensors.count; t++) {
            if ((s->options->precisions >> precision & 1) == 0)
                continue;
            l.precision = (ty_layout_precision)precision;
            l.tensor = s->axes.tensors.values[t];
            TY_CHECK(add_splits(s, &l), status, cleanup);
        }
    if (s->family_count > 0)
        qsort(s->families, s->family_count, sizeof *s->families, by_bounds);

cleanup:
    return status;
}

/* ---- Inside a family
 * ------------------------------------------------------------------------------ */

static uint32_t choices_of(const search *s, const ty_layout *l)
{
    return l->context * l->data > 1 ? s->choice_count : s->lone_choice_count;
}

/* Schedule and chunks are set: every way to exchange gradients. */
static ty_status try_choices(search *s, family *f)
{
    ty_layout *l = &f->layout;
    const layout_cell *cell = &s->cells[f->cell];
    uint32_t count = choices_of(s, l);
    ty_layout_answer *answer = s->collector.answer;
    ty_layout_estimate estimate;

    answer->configurations += count;
    if (is_hopeless(s, least_time(s, f), least_memory(s, l, cell))) {
        answer->pruned += count;
        return TY_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        layout_choose(&s->choices[i], l);
        layout_memory_with(s->q, l, cell, &estimate.memory);
        if (estimate.memory.total > s->limit_bytes) {
            answer->unfit++;
            continue;
        }
        layout_time_with(s->q, l, cell, &estimate);
        answer->estimated++;
        if (!layout_collect_result(&s->collector, l, &estimate))
            return ty_fail(s->error, TY_ENOMEM, "out of memory for the front");
    }
    return TY_OK;
}

static ty_status try_family(search *s, const family *f)
{
    ty_status status = TY_OK;

    for (int schedule = 0; schedule < TY_LAYOUT_SCHEDULE_COUNT; schedule++)
        for (uint32_t v = 0; v < s->axes.chunks.count; v++) {
            family one = *f;
            one.layout.schedule = (ty_layout_schedule)schedule;
            one.layout.interleave = s->axes.chunks.values[v];
            if ((s->options->schedules >> schedule & 1) == 0 ||
                !layout_divides(s->q, &one.layout) || layout_broken_rule(s->q, &one.layout) != NULL)
                continue;
            TY_CHECK(try_choices(s, &one), status, cleanup);
        }

cleanup:
    return status;
}

static uint64_t count_family(const search *s, const family *f)
{
    ty_layout l = f->layout;
    uint64_t count = 0;

    for (int schedule = 0; schedule < TY_LAYOUT_SCHEDULE_COUNT; schedule++)
        for (uint32_t v = 0; v < s->axes.chunks.count; v++) {
            l.schedule = (ty_layout_schedule)schedule;
            l.interleave = s->axes.chunks.values[v];
            if ((s->options->schedules >> schedule & 1) != 0 && layout_divides(s->q, &l) &&
                layout_broken_rule(s->q, &l) == NULL)
                count += choices_of(s, &l);
        }
    return count;
}

static bool wants_stop(search *s)
{
    uint64_t done = s->collector.answer->configurations;
    if (s->options->should_stop == NULL || done < s->polled)
        return false;
    s->polled = done + STOP_INTERVAL;
    return s->options->should_stop(s->options->stop_context);
}

static ty_status visit(search *s)
{
    ty_layout_answer *answer = s->collector.answer;
    ty_status status = TY_OK;

    for (size_t i = 0; i < s->family_count; i++) {
        const family *f = &s->families[i];
        if (wants_stop(s)) {
            answer->is_interrupted = true;
            return TY_OK;
        }
        if (is_hopeless(s, f->time_s, f->memory_bytes)) {
            uint64_t count = count_family(s, f);
            answer->configurations += count;
            answer->pruned += count;
            continue;
        }
        TY_CHECK(try_family(s, f), status, cleanup);
    }

cleanup:
    return status;
}

/* ---- The answer
 * ----------------------------------------------------------------------------------- */

/* The layout that needs least memory, whether it fits or not; INFINITY where there is none. */
static double smallest(const search *s, ty_layout *layout)
{
    double least = INFINITY;

    for (size_t i = 0; i < s->family_count; i++) {
        const family *f = &s->families[i];
        ty_layout l = f->layout;
        if (f->memory_bytes > least)
            continue;
        for (int schedule = 0; schedule < TY_LAYOUT_SCHEDULE_COUNT; schedule++)
            for (uint32_t c = 0; c < choices_of(s, &l); c++) {
                ty_layout_memory memory;
                l.schedule = (ty_layout_schedule)schedule;
                layout_choose(&s->choices[c], &l);
                if ((s->options->schedules >> schedule & 1) == 0 ||
                    layout_broken_rule(s->q, &l) != NULL)
                    continue;
                layout_memory_with(s->q, &l, &s->cells[f->cell], &memory);
                if (memory.total < least ||
                    (memory.total == least && ty_layout_compare(&l, layout) < 0)) {
                    least = memory.total;
                    *layout = l;
                }
            }
    }
    return least;
}

static void release(search *s)
{
    ty_free(s->cells);
    ty_free(s->families);
    ty_free(s->choices);
    layout_axes_clear(&s->axes);
}

static ty_status prepare(search *s)
{
    ty_status status = TY_OK;

    s->limit_bytes =
        s->options->memory_bytes > 0 ? s->options->memory_bytes : s->q->device.memory_bytes;
    TY_CHECK(layout_axes_of(s->q, s->options, &s->axes, s->error), status, cleanup);
    TY_CHECK(layout_choices_of(s->options, &s->choices, &s->choice_count, &s->lone_choice_count,
                               s->error),
             status, cleanup);
    TY_CHECK(find_families(s), status, cleanup);

cleanup:
    return status;
}

/* How many devices, doubling, would hold the smallest layout; 0: not even a million. */
static uint32_t enough_devices(const ty_layout_question *question, const ty_layout_options *options)
{
    ty_layout_question larger = *question;
    ty_layout_options open = *options;
    uint32_t found = 0;

    open.data = open.pipeline = 0;
    while (found == 0 && larger.cluster.devices < 1u << 19) {
        search s = {.q = &larger, .options = &open};
        ty_layout layout;
        larger.cluster.devices *= 2;
        if (larger.cluster.devices > larger.cluster.devices_per_host &&
            !(larger.cluster.nic_bandwidth_bytes_per_s > 0))
            return 0;
        if (prepare(&s) == TY_OK && smallest(&s, &layout) <= s.limit_bytes)
            found = larger.cluster.devices;
        release(&s);
    }
    return found;
}

static ty_status explain(search *s)
{
    char text[TY_LAYOUT_TEXT_SIZE], needs[32], has[32], misses[32], change[96];
    ty_layout layout;
    double least = smallest(s, &layout);
    uint32_t devices;

    if (!isfinite(least))
        return ty_fail(s->error, TY_EINVAL,
                       "no layout of %u devices for %u sequences keeps the rules and the options",
                       s->q->cluster.devices, s->q->global_batch);
    devices = enough_devices(s->q, s->options);
    ty_layout_text(&layout, text);
    ty_format_memory(least, needs);
    ty_format_memory(s->limit_bytes, has);
    ty_format_memory(least - s->limit_bytes, misses);
    snprintf(change, sizeof change,
             devices > 0 ? "%u devices would do" : "no number of devices does", devices);
    return ty_fail(s->error, TY_EINFEASIBLE,
                   "no layout fits %s per device: the smallest (%s) needs %s, %s more; devices of "
                   "%s or %s",
                   has, text, needs, misses, needs, change);
}

ty_status ty_layout_search(const ty_layout_question *question, const ty_layout_options *options,
                           ty_layout_answer **out, ty_error *error)
{
    search s = {.q = question, .options = options, .error = error};
    ty_status status = TY_OK;

    TY_CHECK(layout_collector_open(&s.collector, options, error), status, cleanup);
    TY_CHECK(prepare(&s), status, cleanup);
    TY_CHECK(visit(&s), status, cleanup);
    if (s.collector.answer->best_count == 0) {
        status = s.collector.answer->is_interrupted
                     ? ty_fail(error, TY_EINTERRUPTED, "stopped before a layout was found")
                     : explain(&s);
        goto cleanup;
    }
    *out = s.collector.answer;
    s.collector.answer = NULL;

cleanup:
    ty_layout_answer_free(s.collector.answer);
    release(&s);
    return status;
}

/* ---- The oracle: every combination of every value
 * ---------------------------------------------------- */

static ty_status try_one(search *s, const ty_layout *l)
{
    ty_layout_estimate estimate;
    ty_layout_answer *answer = s->collector.answer;

    if (!layout_divides(s->q, l) || ty_layout_estimate_of(s->q, l, &estimate, NULL) != TY_OK)
        return TY_OK;
    answer->configurations++;
    if (estimate.memory.total > s->limit_bytes) {
        answer->unfit++;
        return TY_OK;
    }
    answer->estimated++;
    if (!layout_collect_result(&s->collector, l, &estimate))
        return ty_fail(s->error, TY_ENOMEM, "out of memory for the front");
    return TY_OK;
}

ty_status ty_layout_search_exhaustive(const ty_layout_question *question,
                                      const ty_layout_options *options, ty_layout_answer **out,
                                      ty_error *error)
{
    search s = {.q = question, .options = options, .error = error};
    layout_counter counter = {0};
    ty_status status = TY_OK;
    ty_layout l;

    s.limit_bytes =
        options->memory_bytes > 0 ? options->memory_bytes : question->device.memory_bytes;
    TY_CHECK(layout_collector_open(&s.collector, options, error), status, cleanup);
    TY_CHECK(layout_axes_of(question, options, &s.axes, error), status, cleanup);
    TY_CHECK(layout_choices_of(options, &s.choices, &s.choice_count, &s.lone_choice_count, error),
             status, cleanup);
    while (layout_next(question, options, &s.axes, s.choices, s.choice_count, &counter, &l))
        TY_CHECK(try_one(&s, &l), status, cleanup);
    if (s.collector.answer->best_count == 0) {
        status = ty_fail(error, TY_EINFEASIBLE, "no layout fits");
        goto cleanup;
    }
    *out = s.collector.answer;
    s.collector.answer = NULL;

cleanup:
    ty_layout_answer_free(s.collector.answer);
    release(&s);
    return status;
}
