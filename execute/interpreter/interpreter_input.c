/*
 * Batches. An input thread prepares them, two ahead of the one that is computed. It starts once
 * several batches in a row took longer to prepare than to hand over. Until then the compute thread
 * prepares them while it waits for other instructions. If ranks compute on all cores of the host,
 * an input thread would only take one from them, and none starts. Samples, their order and their
 * content are the same either way.
 */
#include "interpreter_input.h"
#include "interpreter_parallel.h"
#include "interpreter_replay.h"

#include <math.h>
#include <string.h>

/* Time to wake a thread on another core and to be woken by it. */
static const double handover_s = 100e-6;
enum { SLOW_BATCHES = 3 }; /* in a row: one may have waited for a core */
enum { ALIGNMENT = 64 };

/* Batches prepared before slots are free for them. */
enum { BATCHES_AHEAD = 2 };
typedef struct ahead_batch {
    whole_sample rows; /* NULL: no load of this rank reads it */
    void *room;        /* owned: the first memory of its input */
    void *on_device;   /* its input there, in a device's own memory; NULL: none */
    ty_status status;
    ty_error error;
} ahead_batch;
struct input_ahead {
    ahead_batch batches[BATCHES_AHEAD];
    bool is_allowed, is_worthwhile, is_running; /* compute thread */
    ty_stage_device *device;                    /* of the first stage; NULL: on another rank */
    uint32_t slow_batches;                      /* likewise: prepared by it, in a row */
    pthread_t thread;
    stream_cursor at; /* the thread's */
    double begun_s;   /* when a source with a rate of its own began its next batch; 0: now */
    /* Under the interpreter's lock. */
    pthread_cond_t for_input;
    bool is_ending;
    uint64_t made, taken; /* batches since the thread began */
};

/* ---- Preparing a batch --------------------------------------------------------------------- */

/* Index, in the entire run's samples, of the first of a micro-batch that this rank loads. */
static uint64_t load_position(const ty_interpreter *in, const ty_instruction *load,
                              uint32_t micro_batch, uint32_t step)
{
    const ty_plan *plan = in->options.plan;

    return in->origin_samples + (uint64_t)(step - in->origin_step) * plan->global_batch +
           (uint64_t)ty_program_global_micro_batch(plan, load->stage, in->replica, micro_batch) *
               plan->micro_batch_size +
           interpreter_first_sample(in);
}

/* Announces the samples of this micro-batch and of the next: their files are read while this one is
 * computed. */
static void samples_expect(const ty_interpreter *in, const ty_instruction *load, uint32_t step)
{
    const ty_dataset *dataset = in->options.dataset;
    const bool is_last = load->micro_batch + 1 == in->local_micro_batches;
    const uint64_t starts[] = {
        load_position(in, load, load->micro_batch, step),
        load_position(in, load, is_last ? 0 : load->micro_batch + 1, is_last ? step + 1 : step)};

    for (size_t i = 0; i < 2; i++)
        for (uint64_t j = 0; j < interpreter_rank_samples(in); j++) {
            bool has_label;
            ty_dataset_expect(dataset, ty_dataset_visited(dataset, in->options.plan->seed,
                                                          starts[i] + j, &has_label));
        }
}

/* A source delivers samples one after the other, at its own rate: since the last batch was ready,
 * or since there is room for another. */
static void source_await(ty_interpreter *in)
{
    struct input_ahead *a = in->ahead;
    const double each_s = in->options.plan->workload->input_s_per_sample;

    if (!(each_s > 0))
        return;
    if (!(a->begun_s > 0))
        a->begun_s = ty_now_s();
    a->begun_s += each_s * interpreter_rank_samples(in);
    interpreter_sleep_until(a->begun_s);
}

static ty_status batch_make(ty_interpreter *in, const ty_instruction *load, uint32_t step,
                            const whole_sample *batch, ty_error *error)
{
    const ty_dataset *dataset = in->options.dataset;
    const uint64_t seed = in->options.plan->seed;
    const uint64_t position = load_position(in, load, load->micro_batch, step);
    const scenario *hooks = in->scenario.hooks;
    ty_status status = TY_OK;

    samples_expect(in, load, step);
    if (load->stage == 0)
        source_await(in);
    for (uint64_t j = 0; j < interpreter_rank_samples(in) && status == TY_OK; j++) {
        bool has_label;
        const uint64_t sample = ty_dataset_visited(dataset, seed, position + j, &has_label);

        status = interpreter_sample_load(in, batch, dataset, sample, j, error);
        if (status == TY_OK && hooks->view != NULL) {
            const whole_sample row = interpreter_row_at(in, batch, j);
            hooks->view(&in->scenario, dataset, position + j, has_label, row.input, row.labels);
        }
    }
    return status;
}

/* ---- The input thread ---------------------------------------------------------------------- */

/* The buffers of a batch that the load's stage reads. */
static whole_sample rows_of(const ty_interpreter *in, const ty_instruction *load,
                            const ahead_batch *batch)
{
    const bool is_first = load->stage == 0;
    const bool is_last = load->stage + 1 == in->options.plan->stage_count;

    return (whole_sample){.input = is_first ? batch->rows.input : NULL,
                          .tokens = is_first ? batch->rows.tokens : NULL,
                          .labels = is_last ? batch->rows.labels : NULL};
}

static void *input_main(void *argument)
{
    ty_interpreter *in = argument;
    struct input_ahead *a = in->ahead;
    ty_status status = TY_OK;
    uint32_t step, index;

    pthread_mutex_lock(&in->lock);
    while (!a->is_ending && status == TY_OK &&
           (index = interpreter_next(in, TY_STREAM_INPUT, &a->at, &step)) != NO_INDEX) {
        const ty_instruction *load = &in->program->instructions[index];
        ahead_batch *batch = &a->batches[a->made % BATCHES_AHEAD];
        whole_sample rows;

        if (a->made - a->taken == BATCHES_AHEAD) {
            pthread_cond_wait(&a->for_input, &in->lock);
            a->begun_s = 0;
            continue;
        }
        rows = rows_of(in, load, batch);
        pthread_mutex_unlock(&in->lock);
        batch->error = (ty_error){0};
        batch->status = status = batch_make(in, load, step, &rows, &batch->error);
        if (status == TY_OK && rows.input != NULL && batch->on_device != NULL)
            batch->status = status =
                in->memory->input_send(a->device, batch->on_device, rows.input, &batch->error);
        pthread_mutex_lock(&in->lock);
        interpreter_advance(in, TY_STREAM_INPUT, &a->at);
        a->made++;
        pthread_cond_signal(&in->for_compute);
    }
    pthread_mutex_unlock(&in->lock);
    return NULL;
}

static ty_status thread_start(ty_interpreter *in, ty_error *error)
{
    struct input_ahead *a = in->ahead;

    a->made = a->taken = 0;
    a->is_ending = false;
    a->is_running = pthread_create(&a->thread, NULL, input_main, in) == 0;
    return a->is_running ? TY_OK : ty_fail(error, TY_EBACKEND, "no thread for input");
}

ty_status interpreter_input_start(ty_interpreter *in, ty_error *error)
{
    in->ahead->begun_s = 0;
    in->ahead->at = in->input;
    return in->ahead->is_worthwhile ? thread_start(in, error) : TY_OK;
}

void interpreter_input_stop(ty_interpreter *in)
{
    struct input_ahead *a = in->ahead;

    if (!a->is_running)
        return;
    pthread_mutex_lock(&in->lock);
    a->is_ending = true;
    pthread_cond_signal(&a->for_input);
    pthread_mutex_unlock(&in->lock);
    pthread_join(a->thread, NULL);
    a->is_running = false;
}

bool interpreter_batch_is_ready(const ty_interpreter *in)
{
    return !in->ahead->is_running || in->ahead->made > in->ahead->taken;
}

/* ---- Loading ------------------------------------------------------------------------------- */

/* The slot's input becomes the batch's: its copy on the device, or its buffer, by a swap. */
static ty_status batch_take(ty_interpreter *in, virtual_stage_state *virtual_stage, uint32_t slot,
                            ty_error *error)
{
    struct input_ahead *a = in->ahead;
    ahead_batch *batch = &a->batches[a->taken % BATCHES_AHEAD];
    const whole_sample to = interpreter_slot_rows(in, virtual_stage, slot);
    const uint64_t samples = interpreter_rank_samples(in);

    if (batch->status != TY_OK)
        return ty_fail(error, batch->status, "%s", batch->error.message);
    if (to.input != NULL && batch->on_device != NULL)
        TY_TRY(in->memory->input_take(virtual_stage->device, slot, batch->on_device, error));
    else if (to.input != NULL)
        batch->rows.input =
            in->options.backend->swap_input(virtual_stage->device, slot, batch->rows.input);
    if (to.tokens != NULL)
        memcpy(to.tokens, batch->rows.tokens,
               samples * interpreter_row_inputs(in) * sizeof *to.tokens);
    if (to.labels != NULL)
        memcpy(to.labels, batch->rows.labels,
               samples * interpreter_row_labels(in) * sizeof *to.labels);
    pthread_mutex_lock(&in->lock);
    a->taken++;
    pthread_cond_signal(&a->for_input);
    pthread_mutex_unlock(&in->lock);
    return TY_OK;
}

ty_status interpreter_load(ty_interpreter *in, const ty_instruction *load, uint32_t step,
                           uint32_t slot, ty_error *error)
{
    virtual_stage_state *virtual_stage = interpreter_virtual_stage(in, load);
    const double start_s = ty_now_s();
    whole_sample rows;
    ty_status status;

    if (in->scenario.hooks->load != NULL)
        return in->scenario.hooks->load(&in->scenario, load, step, slot, error);
    if (in->ahead->is_running)
        return batch_take(in, virtual_stage, slot, error);
    rows = interpreter_slot_rows(in, virtual_stage, slot);
    status = batch_make(in, load, step, &rows, error);
    in->ahead->slow_batches = ty_now_s() - start_s > handover_s ? in->ahead->slow_batches + 1 : 0;
    if (status != TY_OK || !in->ahead->is_allowed || in->ahead->slow_batches < SLOW_BATCHES)
        return status;
    in->ahead->is_worthwhile = true;
    in->ahead->at = in->input;
    interpreter_advance(in, TY_STREAM_INPUT, &in->ahead->at);
    return thread_start(in, error);
}

/* ---- Memory of batches --------------------------------------------------------------------- */

/* Host memory that the device copies fast; aligned like slots. */
static float *input_make(const ty_interpreter *in, ahead_batch *batch, uint64_t bytes)
{
    unsigned char *room;

    if (in->memory != NULL) {
        batch->on_device = in->memory->allocate(in->ahead->device, bytes);
        batch->room = in->memory->host_allocate(in->ahead->device, bytes);
        return batch->on_device != NULL ? batch->room : NULL;
    }
    batch->room = room = ty_alloc_large(bytes + ALIGNMENT, 1);
    return room == NULL ? NULL : (void *)(room + (ALIGNMENT - (uintptr_t)room % ALIGNMENT));
}

static bool batch_open(const ty_interpreter *in, ahead_batch *batch, bool has_input,
                       bool has_labels)
{
    const bool has_tokens = in->options.plan->workload->input_kind == TY_INPUT_TOKEN;
    const uint64_t samples = interpreter_rank_samples(in);
    const uint64_t inputs = samples * interpreter_row_inputs(in);
    whole_sample *rows = &batch->rows;

    if (has_input && has_tokens)
        rows->tokens = ty_alloc(inputs, sizeof *rows->tokens);
    else if (has_input)
        rows->input = input_make(in, batch, inputs * sizeof *rows->input);
    if (has_labels)
        rows->labels = ty_alloc(samples * interpreter_row_labels(in), sizeof *rows->labels);
    return (!has_input || rows->tokens != NULL || rows->input != NULL) &&
           (!has_labels || rows->labels != NULL);
}

ty_status interpreter_input_open(ty_interpreter *in, ty_error *error)
{
    bool has_input = false, has_labels = false;

    in->ahead = ty_alloc(1, sizeof *in->ahead);
    TY_TRY(ty_check_memory(in->ahead != NULL, error));
    pthread_cond_init(&in->ahead->for_input, NULL);
    if (in->options.dataset == NULL)
        return TY_OK;
    for (uint32_t h = 0; h < in->virtual_stage_count; h++) {
        if (in->virtual_stages[h].stage == 0)
            in->ahead->device = in->virtual_stages[h].device;
        has_input = has_input || in->virtual_stages[h].stage == 0;
        has_labels = has_labels || in->virtual_stages[h].stage + 1 == in->options.plan->stage_count;
    }
    /* A source with a rate of its own takes no CPU time. */
    in->ahead->is_worthwhile = in->options.plan->workload->input_s_per_sample > 0;
    in->ahead->is_allowed = in->options.has_spare_core || in->memory != NULL;
    for (uint32_t b = 0; b < BATCHES_AHEAD; b++)
        if (!batch_open(in, &in->ahead->batches[b], has_input, has_labels))
            return ty_fail(error, TY_ENOMEM, "out of memory for batches made ahead");
    return TY_OK;
}

void interpreter_input_close(ty_interpreter *in)
{
    if (in->ahead == NULL)
        return;
    for (uint32_t b = 0; b < BATCHES_AHEAD; b++) {
        ahead_batch *batch = &in->ahead->batches[b];
        if (in->memory == NULL)
            ty_free(batch->room);
        else if (batch->room != NULL)
            in->memory->host_release(in->ahead->device, batch->room);
        if (batch->on_device != NULL)
            in->memory->release(in->ahead->device, batch->on_device);
        ty_free(batch->rows.tokens);
        ty_free(batch->rows.labels);
    }
    pthread_cond_destroy(&in->ahead->for_input);
    ty_free(in->ahead);
}
