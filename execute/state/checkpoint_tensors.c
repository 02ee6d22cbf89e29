/* The state of a rank: the memory that it consists of, and the tensors in it. With these a run
 * resumes from the files of a plan with other stages, replicas or ZeRO. */
#include "checkpoint_parts.h"
#include "interpreter_buckets.h"
#include "interpreter_watches.h"
#include "sharding.h"

#include <string.h>

/* Names of values that are equal on all ranks, as the `layer` of an extent. */
enum { LOSSES, NOISE, NOISE_SAMPLES, LOSS_SCALE, CLEAN_STEPS };

/* ---- Sections ---------------------------------------------------------------------------- */

static void add_on(checkpoint_sections *s, ty_stage_device *device, void *data, uint64_t bytes,
                   bool is_weights)
{
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
        checkpoint_section *grown = ty_resize(s->items, capacity, sizeof *grown);
        if (grown == NULL) {
            s->has_failed = true;
            return;
        }
        s->items = grown;
        s->capacity = capacity;
    }
    if (bytes > 0)
        s->items[s->count++] =
            (checkpoint_section){data, bytes, is_weights, s->memory != NULL ? device : NULL};
}

/* Tensor bytes [start, start + bytes) of a layer are in the section from `at` on. */
static void add_extent(checkpoint_sections *s, uint32_t layer, uint32_t kind, uint32_t section,
                       uint64_t start, uint64_t bytes, uint64_t at)
{
    if (s->extent_count == s->extent_capacity) {
        const uint32_t capacity = s->extent_capacity == 0 ? 64 : 2 * s->extent_capacity;
        checkpoint_extent *grown = ty_resize(s->extents, capacity, sizeof *grown);
        if (grown == NULL) {
            s->has_failed = true;
            return;
        }
        s->extents = grown;
        s->extent_capacity = capacity;
    }
    s->extents[s->extent_count++] = (checkpoint_extent){layer, kind, section, 0, start, bytes, at};
}

/* Host memory that is equal on all ranks. */
static void add_equal(checkpoint_sections *s, uint32_t name, void *data, uint64_t bytes)
{
    if (bytes > 0)
        add_extent(s, name, CHECKPOINT_EQUAL, s->count, 0, bytes, 0);
    add_on(s, NULL, data, bytes, false);
}

/* Parameters [start, end) of a stage, in a section of weights and one of states. */
typedef struct parameters {
    uint64_t start, end;
    uint32_t weights, states, state_count;
} parameters;

/* The part of a slice of a layer that is in the range. @param before elements of the layer before
 * the slice */
static void map_slice(checkpoint_sections *s, const parameters *p, uint32_t layer, uint32_t kind,
                      uint64_t offset, uint64_t count, uint64_t before)
{
    const uint64_t size = sizeof(float), states = size * p->state_count;
    const uint64_t first = offset > p->start ? offset : p->start;
    const uint64_t last = offset + count < p->end ? offset + count : p->end;

    if (first >= last)
        return;
    add_extent(s, layer, kind, p->weights, (before + first - offset) * size, (last - first) * size,
               (first - p->start) * size);
    if (p->state_count > 0)
        add_extent(s, layer, kind + 1, p->states, (before + first - offset) * states,
                   (last - first) * states, (first - p->start) * states);
}

/* The layer that owns the matrix which the stage shares with another one; TY_NO_LAYER: none. */
static uint32_t tied_layer_of(const ty_plan *plan, uint32_t stage)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (bucket->tied_stage != TY_NO_STAGE &&
            (bucket->stage == stage || bucket->tied_stage == stage))
            return bucket->first_layer;
    }
    return TY_NO_LAYER;
}

static void map_range(checkpoint_sections *s, const ty_interpreter *in,
                      const virtual_stage_state *virtual_stage, const parameters *p)
{
    const ty_device_backend *backend = in->options.backend;
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[virtual_stage->stage];
    const uint32_t tied = tied_layer_of(plan, virtual_stage->stage);
    uint64_t offset = 0, count = 0, matrix = 0;

    if (tied != TY_NO_LAYER) {
        backend->tied_slice(virtual_stage->device, &offset, &matrix);
        map_slice(s, p, tied, CHECKPOINT_WEIGHTS, offset, matrix, 0);
    }
    for (uint32_t l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
        backend->slice(virtual_stage->device, l, 1, &offset, &count);
        map_slice(s, p, l, CHECKPOINT_WEIGHTS, offset, count, l == tied ? matrix : 0);
        if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) < 2)
            continue;
        backend->expert_slice(virtual_stage->device, l, 1, &offset, &count);
        map_slice(s, p, l, CHECKPOINT_EXPERT_WEIGHTS, offset, count, 0);
    }
}

/* Parameters [start, end) of one stage: all weight versions, and optimizer states. */
static void add_range(checkpoint_sections *s, ty_interpreter *in,
                      const virtual_stage_state *virtual_stage, uint64_t start, uint64_t end)
{
    const ty_device_backend *backend = in->options.backend;
    const uint64_t state_bytes = (end - start) * in->state_count * sizeof(float);
    const parameters p = {start, end, s->count, s->count + 1, in->state_count};

    for (uint32_t v = 0; v < virtual_stage->version_count; v++) {
        if (virtual_stage->version_count > 1)
            backend->select(virtual_stage->device, v);
        add_on(s, virtual_stage->device, interpreter_weights_at(in, virtual_stage, start),
               (end - start) * sizeof(float), true);
    }
    if (virtual_stage->version_count > 1)
        backend->select(virtual_stage->device, in->controls_done % virtual_stage->version_count);
    else
        map_range(s, in, virtual_stage, &p);
    if (in->memory == NULL)
        add_on(s, NULL, virtual_stage->optimizer_state + start * in->state_count, state_bytes,
               false);
    else if (state_bytes > 0)
        add_on(s, virtual_stage->device, in->memory->state(virtual_stage->device, start),
               state_bytes, false);
}

static void add_statistics(checkpoint_sections *s, ty_interpreter *in,
                           const virtual_stage_state *virtual_stage)
{
    const ty_plan_stage *stage = &in->options.plan->stages[virtual_stage->stage];
    const ty_layer *layers = in->options.plan->workload->layers;
    uint64_t count = 0, at = 0;
    float *statistics = in->options.backend->statistics(virtual_stage->device, &count);

    for (uint32_t l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
        if (!ty_layer_row_of(&layers[l])->has_statistics)
            continue;
        const uint64_t bytes = 2 * layers[l].attributes[TY_FEATURES] * sizeof *statistics;
        add_extent(s, l, CHECKPOINT_STATISTICS, s->count, 0, bytes, at);
        at += bytes;
    }
    add_on(s, virtual_stage->device, statistics, count * sizeof *statistics, false);
}

/* All parameters of a stage except other ranks' shards of its sharded buckets. */
static void add_virtual_stage(checkpoint_sections *s, ty_interpreter *in,
                              const virtual_stage_state *virtual_stage)
{
    ty_parameter_range *ranges = interpreter_kept_room(in);
    uint32_t r, range_count;

    if (ranges == NULL) {
        s->has_failed = true;
        return;
    }
    range_count = interpreter_kept_ranges(in, virtual_stage, ranges);
    for (r = 0; r < range_count; r++)
        add_range(s, in, virtual_stage, ranges[r].offset, ranges[r].offset + ranges[r].count);
    ty_free(ranges);
    if (in->options.backend->statistics != NULL)
        add_statistics(s, in, virtual_stage);
}

static void add_codec(checkpoint_sections *s, const bucket_state *bucket)
{
    void *data = NULL;
    uint64_t bytes = 0;

    for (uint32_t i = 0; bucket->codec != NULL && ty_codec_state(bucket->codec, i, &data, &bytes);
         i++)
        add_on(s, i > 0 ? bucket->virtual_stage->device : NULL, data, bytes, false);
}

ty_status checkpoint_sections_find(ty_interpreter *in, checkpoint_sections *s, ty_error *error)
{
    ty_noise_sample *samples;
    ty_gradient_noise *noise = interpreter_noise_sums(in, &samples);

    s->memory = in->memory;
    add_equal(s, LOSSES, in->losses, in->controls_done * sizeof *in->losses);
    for (uint32_t i = 0; i < in->virtual_stage_count; i++)
        add_virtual_stage(s, in, &in->virtual_stages[i]);
    add_equal(s, NOISE, noise, sizeof *noise);
    add_equal(s, NOISE_SAMPLES, samples,
              interpreter_noise_most(in->controls_done) * sizeof *samples);
    for (uint32_t i = 0; i < in->options.plan->bucket_count; i++)
        if (ty_bucket_keeps_state(&in->options.plan->buckets[i]))
            add_codec(s, &in->buckets[i]);
    if (in->options.precision == TY_PRECISION_FP16) {
        add_equal(s, LOSS_SCALE, &in->loss_scale, sizeof in->loss_scale);
        add_equal(s, CLEAN_STEPS, &in->clean_steps, sizeof in->clean_steps);
    }
    add_on(s, NULL, s->extents, s->extent_count * sizeof *s->extents, false);
    return s->has_failed ? ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint") : TY_OK;
}

void checkpoint_sections_clear(checkpoint_sections *s)
{
    ty_free(s->items);
    ty_free(s->extents);
    *s = (checkpoint_sections){0};
}

/* ---- From other ranks' files ------------------------------------------------------------- */

/* The bytes of a file from `start` of an extent's layer on, and how many; NULL: it has none. */
static const char *bytes_find(const checkpoint_file *file, const checkpoint_extent *wanted,
                              uint64_t start, uint64_t *bytes)
{
    uint64_t room = 0, length = 0;
    const char *map = checkpoint_file_section(file, checkpoint_file_sections(file) - 1, &room);

    for (uint64_t i = 0; map != NULL && i < room / sizeof(checkpoint_extent); i++) {
        checkpoint_extent found;
        const char *content;
        memcpy(&found, map + i * sizeof found, sizeof found);
        if (found.layer != wanted->layer || found.kind != wanted->kind || start < found.start ||
            start - found.start >= found.bytes)
            continue;
        content = checkpoint_file_section(file, found.section, &length);
        if (content == NULL || found.at > length || found.bytes > length - found.at)
            continue;
        *bytes = found.bytes - (start - found.start);
        return content + found.at + (start - found.start);
    }
    return NULL;
}

/* Ranks that have a tensor: with the same TP rank and, for experts, the same EP rank. */
static bool has_tensors_of(const ty_plan *plan, uint32_t rank, uint32_t kind, uint32_t own)
{
    const uint32_t inner = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) *
                           ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL),
                   experts = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);

    return (kind != CHECKPOINT_EXPERT_WEIGHTS && kind != CHECKPOINT_EXPERT_STATES) ||
           rank / inner % experts == own / inner % experts;
}

/* The files of the ranks, opened when first needed. */
typedef struct rank_files {
    const char *directory;
    const ty_checkpoint_place *place;
    checkpoint_file *files; /* [place->rank_count] */
} rank_files;

static ty_status extent_fill(const ty_interpreter *in, const checkpoint_sections *s,
                             const checkpoint_extent *wanted, rank_files *r, ty_error *error)
{
    const checkpoint_section *to = &s->items[wanted->section];
    const ty_checkpoint_place *place = r->place;

    for (uint64_t done = 0, bytes = 0; done < wanted->bytes; done += bytes) {
        char *at = (char *)to->data + wanted->at + done;
        const char *from = NULL;
        for (uint32_t f = place->source; f < place->rank_count && from == NULL;
             f += place->stride) {
            if (!has_tensors_of(in->options.plan, f, wanted->kind, in->options.transport->rank))
                continue;
            if (r->files[f].bytes == NULL)
                TY_TRY(checkpoint_file_open(r->directory, place->step, f, &place->files[f],
                                            &r->files[f], error));
            from = bytes_find(&r->files[f], wanted, wanted->start + done, &bytes);
        }
        if (from == NULL)
            return ty_fail(error, TY_EPARSE, "%s: found no tensors of layer %u in its files",
                           r->directory, wanted->layer);
        bytes = bytes < wanted->bytes - done ? bytes : wanted->bytes - done;
        if (to->device == NULL)
            memcpy(at, from, bytes);
        else
            TY_TRY(s->memory->write(to->device, at, from, bytes, error));
    }
    return TY_OK;
}

/* Memory of a section that is of no tensor would keep its initial values. */
static ty_status coverage_check(const checkpoint_sections *s, const char *directory,
                                ty_error *error)
{
    uint64_t left = 0;

    for (uint32_t i = 0; i + 1 < s->count; i++) /* without the map */
        left += s->items[i].bytes;
    for (uint32_t e = 0; e < s->extent_count; e++)
        left -= s->extents[e].bytes;
    if (left > 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: found a checkpoint of other stages or ZeRO, expected one of this plan: "
                       "%llu bytes of its state are of no tensor",
                       directory, (unsigned long long)left);
    return TY_OK;
}

ty_status checkpoint_tensors_load(ty_interpreter *in, const char *directory,
                                  const ty_checkpoint_place *place, ty_error *error)
{
    checkpoint_sections s = {0};
    rank_files r = {directory, place, ty_alloc(place->rank_count, sizeof *r.files)};
    ty_status status;

    TY_CHECK(ty_check_memory(r.files != NULL, error), status, cleanup);
    TY_CHECK(checkpoint_sections_find(in, &s, error), status, cleanup);
    TY_CHECK(coverage_check(&s, directory, error), status, cleanup);
    for (uint32_t e = 0; e < s.extent_count; e++)
        TY_CHECK(extent_fill(in, &s, &s.extents[e], &r, error), status, cleanup);
cleanup:
    for (uint32_t f = 0; r.files != NULL && f < place->rank_count; f++)
        checkpoint_file_close(&r.files[f]);
    checkpoint_sections_clear(&s);
    ty_free(r.files);
    return status;
}
