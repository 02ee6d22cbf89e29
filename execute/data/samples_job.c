/*
 * Measures how fast samples are read: the same ones repeatedly, as in training, with more and more
 * threads. By then they are in the page cache, if they fit; the first visit measures the storage.
 */
#include "samples_job.h"
#include "dataset.h"
#include "machine.h"

enum {
    MOST_VISITED = 4096,
    AHEAD = 64, /* samples expected while one is taken: four micro-batches of 16 */
    SEED = 1
};
static const double first_visit_s = 2, shortest_visit_s = 0.4, longest_visit_s = 3;

typedef struct samples_reader {
    const ty_job *job;
    const ty_execute_options *options;
    ty_dataset *dataset;
    float *input; /* floats or tokens of a sample */
    int32_t *tokens, *labels;
    uint64_t visited; /* samples that are visited, lap by lap */
    ty_samples *found;
} samples_reader;

/* ---- Visits ---- */

static uint64_t sample_at(const samples_reader *r, uint64_t position)
{
    return ty_dataset_shuffled(r->dataset, SEED, position % r->visited);
}

static ty_status take(const samples_reader *r, uint64_t position, uint64_t ahead, ty_error *error)
{
    if (r->options->stop != NULL && *r->options->stop != 0)
        return ty_fail(error, TY_EINTERRUPTED, "stopped before all was measured");
    ty_dataset_expect(r->dataset, sample_at(r, position + ahead));
    return ty_dataset_sample(r->dataset, sample_at(r, position), r->input, r->tokens, r->labels,
                             error);
}

static uint64_t visit_begin(const samples_reader *r)
{
    const uint64_t ahead = r->visited < AHEAD ? r->visited : AHEAD;

    for (uint64_t i = 0; i < ahead; i++)
        ty_dataset_expect(r->dataset, sample_at(r, i));
    return ahead;
}

static ty_status prepare(const samples_reader *r, uint32_t threads, ty_error *error)
{
    return ty_dataset_prepare(r->dataset,
                              &(ty_reading){.bad_samples = r->job->bad_samples,
                                            .threads = threads,
                                            .room = AHEAD + threads},
                              error);
}

/* Visits each sample once, as many as time allows: later visits use these. */
static ty_status visit_first(samples_reader *r, uint32_t threads, ty_error *error)
{
    const uint64_t count = ty_dataset_sample_count(r->dataset);
    uint64_t ahead, done = 0;
    double bytes = 0, started_s, seconds;

    r->visited = count < MOST_VISITED ? count : MOST_VISITED;
    TY_TRY(prepare(r, threads, error));
    started_s = ty_now_s();
    ahead = visit_begin(r);
    do {
        bytes += ty_dataset_stored_bytes(r->dataset, sample_at(r, done));
        TY_TRY(take(r, done, ahead, error));
        seconds = ty_now_s() - started_s;
    } while (++done < r->visited && seconds < first_visit_s);
    r->visited = done;
    r->found->sample_count = count;
    r->found->visited = done;
    r->found->sample_bytes = bytes / (double)done;
    r->found->data_bytes = ty_dataset_data_bytes(r->dataset);
    if (!(r->found->data_bytes > 0))
        r->found->data_bytes = r->found->sample_bytes * (double)count;
    r->found->skipped = ty_dataset_skipped(r->dataset, NULL);
    r->found->first_visit_samples_per_s = (double)done / seconds;
    return TY_OK;
}

/* Visits in full laps, unless these take too long; timed once the pipeline of samples is full. */
static ty_status visit_again(const samples_reader *r, uint32_t threads, ty_error *error)
{
    ty_samples_rate *rate = &r->found->rates[r->found->rate_count];
    uint64_t ahead, position, first;
    double started_s, seconds;

    TY_TRY(prepare(r, threads, error));
    ahead = visit_begin(r);
    for (position = 0; position < ahead; position++)
        TY_TRY(take(r, position, ahead, error));
    first = position;
    started_s = ty_now_s();
    do {
        TY_TRY(take(r, position++, ahead, error));
        seconds = ty_now_s() - started_s;
    } while (((position - first) % r->visited != 0 || seconds < shortest_visit_s) &&
             seconds < longest_visit_s);
    *rate = (ty_samples_rate){threads, (double)(position - first) / seconds};
    r->found->rate_count++;
    return TY_OK;
}

/* ---- All of it ---- */

static ty_status rows_open(samples_reader *r, ty_error *error)
{
    const ty_workload *w = r->job->plan->workload;
    const ty_shape *scores = ty_layer_input_shape(w, w->layer_count - 1, 0);
    const uint64_t inputs = ty_shape_elements(&w->input);
    const bool is_token = w->input_kind == TY_INPUT_TOKEN;

    r->input = is_token ? NULL : ty_alloc(inputs, sizeof *r->input);
    r->tokens = is_token ? ty_alloc(inputs, sizeof *r->tokens) : NULL;
    r->labels =
        ty_alloc(ty_shape_elements(scores) / scores->dimensions[scores->dimension_count - 1],
                 sizeof *r->labels);
    if ((r->input == NULL && r->tokens == NULL) || r->labels == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a sample");
    return TY_OK;
}

/* 1, 2, 4 and so on, then all cores. */
static uint32_t next_threads(uint32_t threads, uint32_t cores)
{
    if (threads >= cores)
        return cores + 1;
    return 2 * threads < cores ? 2 * threads : cores;
}

static ty_status measure(samples_reader *r, ty_error *error)
{
    const uint32_t cores = r->found->cores;

    if (!ty_dataset_takes_work(r->dataset)) {
        TY_TRY(visit_first(r, 0, error));
        return visit_again(r, 0, error);
    }
    TY_TRY(visit_first(r, cores, error));
    for (uint32_t threads = 1; threads <= cores && r->found->rate_count < TY_MOST_READERS;
         threads = next_threads(threads, cores))
        TY_TRY(visit_again(r, threads, error));
    return TY_OK;
}

ty_status ty_samples_job(const ty_job *job, const ty_execute_options *options, ty_error *error)
{
    samples_reader r = {.job = job, .options = options};
    ty_status status;

    TY_CHECK(ty_workload_check(job->plan->workload, "plan:/workload", error), status, cleanup);
    TY_CHECK(ty_dataset_open(job->plan->workload, job->data, false, &r.dataset, error), status,
             cleanup);
    r.found = ty_alloc(1, sizeof *r.found);
    TY_CHECK(ty_check_memory(r.found != NULL, error), status, cleanup);
    r.found->workload = ty_strdup(job->plan->workload->name);
    r.found->data = ty_strdup(job->data);
    r.found->cores = ty_machine_cores();
    TY_CHECK(ty_check_memory(r.found->workload != NULL && r.found->data != NULL, error), status,
             cleanup);
    TY_CHECK(rows_open(&r, error), status, cleanup);
    TY_CHECK(measure(&r, error), status, cleanup);
    status = ty_samples_save(r.found, job->output, error);
cleanup:
    ty_samples_free(r.found);
    if (r.dataset != NULL)
        ty_dataset_close(r.dataset);
    ty_free(r.input);
    ty_free(r.tokens);
    ty_free(r.labels);
    return status;
}
