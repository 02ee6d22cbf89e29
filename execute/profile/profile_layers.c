/* Layers and optimizer steps are timed inside full passes over the model, in its order, so that
 * each finds the caches as its predecessor leaves them. */
#include "dataset.h"
#include "profile_job.h"

#include <math.h>
#include <string.h>

enum { MAX_PASSES = 400, MIN_PASSES = 5, WARM_PASSES = 2 };
static const double budget_s = 0.6;       /* 1 % noise on the median of passes of a few ms */
static const double longest_budget_s = 2; /* for slow passes */
enum { AIM_PASSES = 20 };
/* Most passes add to gradients, as in training. */
enum { MICRO_BATCHES = 4 };

typedef struct layer_samples {
    uint32_t layer_count, pass_count;
    bool is_split; /* backward is its first part, third_s its second; else third_s is the update */
    double *forward_s, *backward_s, *third_s; /* [layer][MAX_PASSES] */
    float *optimizer_state;                   /* of a backend that leaves updates to the host */
} layer_samples;

/* Indices of a table, distributed as in real data. */
static void indices_fill(const ty_workload *w, const ty_layer *bag, uint32_t micro_batch,
                         float *input)
{
    const uint64_t *a = bag->attributes, sample = w->input.dimensions[0];

    for (uint64_t s = 0; s < micro_batch; s++)
        for (uint64_t i = a[TY_FIRST_ROW]; i < a[TY_FIRST_ROW] + a[TY_ROWS]; i++)
            input[s * sample + i] = (float)dataset_skewed(a[TY_VOCABULARY], dataset_hash(i, s));
}

void ty_profiler_batch_fill(const ty_profiler *p, ty_stage_device *device, uint32_t slot,
                            uint32_t micro_batch)
{
    const ty_workload *w = p->workload;
    const uint64_t classes = ty_class_count(w);
    uint64_t i;
    uint64_t inputs = ty_shape_elements(&w->input) * micro_batch;
    uint64_t labels = ty_labels_per_sample(w) * micro_batch;
    float *input = p->backend->input(device, slot);
    int32_t *tokens = p->backend->tokens(device, slot);
    uint64_t vocabulary = classes;

    for (i = 0; i < w->layer_count; i++) {
        if (ty_layer_row_of(&w->layers[i])->table == TY_TABLE_OF_TOKENS)
            vocabulary = w->layers[i].attributes[TY_VOCABULARY];
    }
    for (i = 0; i < inputs; i++) {
        uint64_t hash = (i + 1) * UINT64_C(0x9E3779B97F4A7C15) >> 32;
        if (tokens != NULL)
            tokens[i] = (int32_t)(hash % vocabulary);
        else
            input[i] = (float)(hash % 2000) * 0.001f - 1.0f;
    }
    for (i = 0; i < w->layer_count && input != NULL; i++)
        if (ty_layer_is_bag(&w->layers[i]))
            indices_fill(w, &w->layers[i], micro_batch, input);
    for (i = 0; i < labels; i++)
        p->backend->labels(device, slot)[i] = (int32_t)((i * 7 + 3) % classes);
}

static ty_status update_layer(const ty_profiler *p, ty_stage_device *device, layer_samples *samples,
                              uint32_t layer, ty_error *error)
{
    const ty_optimizer *optimizer = &p->workload->optimizer;
    const ty_device_backend *backend = p->backend;
    uint64_t offset = 0, count = 0;
    bool is_finite;

    backend->slice(device, layer, 1, &offset, &count);
    if (count == 0)
        return TY_OK;
    if (backend->memory != NULL)
        return backend->memory->update(device, optimizer, 1, offset, count, &is_finite, error);
    ty_optimizer_step(optimizer, 1, count, backend->parameters(device) + offset,
                      backend->gradients(device) + offset,
                      samples->optimizer_state + offset * ty_optimizer_state_count(optimizer));
    return TY_OK;
}

typedef struct update_work {
    const ty_profiler *profiler;
    ty_stage_device *device;
} update_work;

static ty_status update_run(void *context, ty_error *error)
{
    const update_work *work = context;
    const ty_device_backend *backend = work->profiler->backend;
    bool is_finite;

    return backend->memory->update(work->device, &work->profiler->workload->optimizer, 1, 0,
                                   backend->parameter_count(work->device), &is_finite, error);
}

/* Whether the layer's weights need work: an update, or the second part of backward, which a layer
 * that shares another's matrix has, too. */
static bool has_third(const ty_profiler *p, const layer_samples *samples, uint32_t layer)
{
    const ty_layer *l = &p->workload->layers[layer];

    return l->parameter_bytes > 0 || (samples->is_split && l->tied_to != TY_NO_LAYER);
}

/* Forward, backward and updates; or forward and both parts of backward. */
static ty_status pass_time(const ty_profiler *p, ty_stage_device *device, layer_samples *samples,
                           uint32_t pass, ty_error *error)
{
    const ty_device_backend *b = p->backend;
    double started_s = ty_now_s();
    uint32_t slot = pass % PROFILE_SLOTS, layer;
    bool is_first = pass % MICRO_BATCHES == 0;

    for (layer = 0; layer < samples->layer_count; layer++) {
        TY_TRY(b->forward(device, slot, layer, 1, error));
        TY_TRY(ty_profiler_lap(p, device, &started_s,
                               &samples->forward_s[layer * MAX_PASSES + pass], error));
    }
    while (layer-- > 0) {
        TY_TRY(samples->is_split ? b->backward_input(device, slot, layer, 1, error)
                                 : b->backward(device, slot, layer, 1, is_first, error));
        TY_TRY(ty_profiler_lap(p, device, &started_s,
                               &samples->backward_s[layer * MAX_PASSES + pass], error));
    }
    for (layer = samples->layer_count; layer-- > 0;) {
        double *seconds = &samples->third_s[layer * MAX_PASSES + pass];

        if (!has_third(p, samples, layer))
            continue; /* 0 */
        TY_TRY(samples->is_split ? b->backward_weight(device, slot, layer, 1, is_first, error)
                                 : update_layer(p, device, samples, layer, error));
        TY_TRY(ty_profiler_lap(p, device, &started_s, seconds, error));
    }
    return TY_OK;
}

/* A device that records passes does so when it meets one for the second time, separately for each
 * slot and for the first micro-batch of a step. */
static uint32_t warm_passes(const ty_profiler *p)
{
    return ty_profiler_has_clock(p) ? 2 * MICRO_BATCHES : WARM_PASSES;
}

static ty_status passes_time(const ty_profiler *p, ty_stage_device *device, layer_samples *samples,
                             ty_error *error)
{
    double started_s, end_s, pass_s;
    uint32_t i;

    for (i = 0; i < warm_passes(p) && ty_profiler_is_active(p); i++)
        TY_TRY(pass_time(p, device, samples, i % MICRO_BATCHES, error));
    TY_TRY(ty_transport_barrier(p->transport, error));
    if (!ty_profiler_is_active(p))
        return TY_OK;
    started_s = ty_now_s();
    TY_TRY(pass_time(p, device, samples, 0, error));
    pass_s = ty_now_s() - started_s;
    end_s = started_s + AIM_PASSES * pass_s / p->haste;
    if (end_s < started_s + budget_s / p->haste)
        end_s = started_s + budget_s / p->haste;
    if (end_s > started_s + longest_budget_s / p->haste)
        end_s = started_s + longest_budget_s / p->haste;
    for (i = 1; i < MAX_PASSES && (i < MIN_PASSES || ty_now_s() < end_s); i++)
        TY_TRY(pass_time(p, device, samples, i, error));
    samples->pass_count = i;
    /* Ranks with fast passes keep their cores busy until the slower ones have finished. */
    while (ty_now_s() < end_s)
        TY_TRY(pass_time(p, device, samples, i - 1, error));
    return TY_OK;
}

ty_status ty_profile_row_add(ty_profile *profile, const ty_layer_time *row, ty_error *error)
{
    ty_layer_time *rows;

    for (uint32_t i = 0; i < profile->layer_time_count; i++)
        if (profile->layer_times[i].micro_batch == row->micro_batch &&
            strcmp(profile->layer_times[i].signature, row->signature) == 0) {
            ty_free(row->signature);
            return TY_OK;
        }
    rows = ty_resize(profile->layer_times, profile->layer_time_count + 1, sizeof *rows);
    if (rows == NULL) {
        ty_free(row->signature);
        return ty_fail(error, TY_ENOMEM, "out of memory for a profile");
    }
    profile->layer_times = rows;
    rows[profile->layer_time_count++] = *row;
    return TY_OK;
}

/* Layers of one signature have one row: the mean of their medians. */
static ty_status rows_add(ty_profiler *p, uint32_t micro_batch, const double *medians,
                          const double *parts, char **names, ty_error *error)
{
    uint32_t count = p->workload->layer_count, layer, other;
    ty_status status = TY_OK;

    for (layer = 0; layer < count; layer++) {
        ty_layer_time row = {.micro_batch = micro_batch};
        uint32_t alike = 0;

        for (other = 0; other < layer && strcmp(names[other], names[layer]) != 0; other++) {
        }
        if (other < layer)
            continue;
        for (other = layer; other < count; other++) {
            if (strcmp(names[other], names[layer]) != 0)
                continue;
            row.forward_s += medians[2 * (size_t)other];
            row.backward_s += medians[2 * (size_t)other + 1];
            /* A part is a difference of clocks: a very short one may come out negative. */
            row.input_s += fmax(0, parts[2 * (size_t)other]);
            row.weight_s += fmax(0, parts[2 * (size_t)other + 1]);
            alike++;
        }
        row.forward_s /= alike;
        row.backward_s /= alike;
        row.input_s /= alike;
        row.weight_s /= alike;
        row.signature = ty_strdup(names[layer]);
        TY_TRY(ty_check_memory(row.signature != NULL, error));
        status = ty_profile_row_add(p->profile, &row, error);
        if (status != TY_OK)
            break;
    }
    return status;
}

static ty_status update_row_add(ty_profile *profile, const ty_update_time *row, ty_error *error)
{
    ty_update_time *rows;

    for (uint32_t i = 0; i < profile->update_time_count; i++)
        if (profile->update_times[i].elements == row->elements)
            return TY_OK; /* another layer of that size, or another micro-batch */
    rows = ty_resize(profile->update_times, profile->update_time_count + 1, sizeof *rows);
    TY_TRY(ty_check_memory(rows != NULL, error));
    profile->update_times = rows;
    rows[profile->update_time_count++] = *row;
    return TY_OK;
}

/* A row for each size of layer, and one for all of them together.
 * @param all_s 0: the sum of the layers' */
static ty_status update_rows_add(ty_profiler *p, const double *medians, double all_s,
                                 ty_error *error)
{
    const ty_workload *w = p->workload;
    ty_update_time whole = {.kind = w->optimizer.kind};
    ty_status status = TY_OK;

    for (uint32_t layer = 0; layer < w->layer_count; layer++) {
        ty_update_time row = {.kind = w->optimizer.kind,
                              .elements = w->layers[layer].parameter_bytes / w->element_bytes,
                              .seconds = medians[layer]};
        if (row.elements == 0)
            continue;
        whole.elements += row.elements;
        whole.seconds += row.seconds;
        TY_CHECK(update_row_add(p->profile, &row, error), status, done);
    }
    if (all_s > 0)
        whole.seconds = all_s;
    if (whole.elements > 0)
        status = update_row_add(p->profile, &whole, error);
done:
    return status;
}

/* Medians, layer by layer. @param pairs [2 * layers]: forward, or first part, and backward, or
 * second part. @param updates [layers + 1], or NULL: the last is that of all weights at once, or 0
 */
static ty_status samples_reduce(const ty_profiler *p, const layer_samples *samples, double *pairs,
                                double *updates, ty_error *error)
{
    const uint32_t count = samples->layer_count;
    const double *first = samples->is_split ? samples->backward_s : samples->forward_s;
    const double *second = samples->is_split ? samples->third_s : samples->backward_s;
    ty_status status = TY_OK;

    for (uint32_t layer = 0; layer < count && samples->pass_count > 0; layer++) {
        double values[MAX_PASSES];
        const size_t at = (size_t)layer * MAX_PASSES, bytes = samples->pass_count * sizeof *values;

        memcpy(values, &first[at], bytes);
        pairs[2 * (size_t)layer] = ty_median(values, samples->pass_count);
        memcpy(values, &second[at], bytes);
        pairs[2 * (size_t)layer + 1] = ty_median(values, samples->pass_count);
        if (updates == NULL)
            continue;
        memcpy(values, &samples->third_s[at], bytes);
        updates[layer] = ty_median(values, samples->pass_count);
    }
    TY_CHECK(ty_mean_over_ranks(p, pairs, 2 * (uint64_t)count, error), status, done);
    if (updates != NULL)
        status = ty_mean_over_ranks(p, updates, count + 1, error);
done:
    return status;
}

static ty_status state_open(const ty_profiler *p, const ty_stage_device *device,
                            layer_samples *samples, ty_error *error)
{
    if (p->backend->memory != NULL)
        return TY_OK;
    samples->optimizer_state = ty_alloc_large(p->backend->parameter_count(device) *
                                                  ty_optimizer_state_count(&p->workload->optimizer),
                                              sizeof(float));
    return samples->optimizer_state != NULL
               ? TY_OK
               : ty_fail(error, TY_ENOMEM, "out of memory for a profile");
}

/* Passes of one kind; see samples_reduce. */
static ty_status kind_time(ty_profiler *p, uint32_t micro_batch, bool is_split, double *pairs,
                           double *updates, ty_error *error)
{
    layer_samples samples = {.layer_count = p->workload->layer_count, .is_split = is_split};
    ty_stage_device *device = NULL;
    ty_status status;

    samples.forward_s = ty_alloc(samples.layer_count, MAX_PASSES * sizeof(double));
    samples.backward_s = ty_alloc(samples.layer_count, MAX_PASSES * sizeof(double));
    samples.third_s = ty_alloc(samples.layer_count, MAX_PASSES * sizeof(double));
    TY_CHECK(ty_check_memory(samples.forward_s != NULL && samples.backward_s != NULL &&
                                 samples.third_s != NULL,
                             error),
             status, cleanup);
    TY_CHECK(ty_profiler_open(p, micro_batch, PROFILE_SLOTS, is_split, &device, error), status,
             cleanup);
    TY_CHECK(state_open(p, device, &samples, error), status, cleanup);
    for (uint32_t slot = 0; slot < PROFILE_SLOTS; slot++)
        ty_profiler_batch_fill(p, device, slot, micro_batch);
    TY_CHECK(passes_time(p, device, &samples, error), status, cleanup);
    if (updates != NULL && p->backend->memory != NULL) /* a launch for all costs less than many */
        TY_CHECK(ty_measure(p, device, update_run, &(update_work){p, device}, budget_s,
                            &updates[samples.layer_count], error),
                 status, cleanup);
    status = samples_reduce(p, &samples, pairs, updates, error);
cleanup:
    if (device != NULL)
        p->backend->close(device);
    ty_free(samples.forward_s);
    ty_free(samples.backward_s);
    ty_free(samples.third_s);
    ty_free(samples.optimizer_state);
    return status;
}

/* Backward in two parts is measured only if that does not change the time of all of it: on the CPU
 * backend it stores more in memory, which affects caches. */
ty_status ty_profile_layers(ty_profiler *p, uint32_t micro_batch, ty_error *error)
{
    const uint32_t count = p->workload->layer_count;
    double *pairs = ty_alloc(count, 2 * sizeof *pairs), *parts = ty_alloc(count, 2 * sizeof *parts);
    double *updates = ty_alloc((size_t)count + 1, sizeof *updates);
    char **names = ty_alloc(count, sizeof *names);
    ty_status status = TY_OK;

    TY_CHECK(
        ty_check_memory(pairs != NULL && parts != NULL && updates != NULL && names != NULL, error),
        status, cleanup);
    for (uint32_t layer = 0; layer < count; layer++)
        TY_CHECK(ty_layer_signature(p->workload, layer, &names[layer], error), status, cleanup);
    TY_CHECK(kind_time(p, micro_batch, false, pairs, updates, error), status, cleanup);
    if (ty_profiler_has_clock(p) && p->backend->backward_input != NULL)
        TY_CHECK(kind_time(p, micro_batch, true, parts, NULL, error), status, cleanup);
    TY_CHECK(rows_add(p, micro_batch, pairs, parts, names, error), status, cleanup);
    status = update_rows_add(p, updates, updates[count], error);
cleanup:
    for (uint32_t layer = 0; names != NULL && layer < count; layer++)
        ty_free(names[layer]);
    ty_free(names);
    ty_free(pairs);
    ty_free(parts);
    ty_free(updates);
    return status;
}
