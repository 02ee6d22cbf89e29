/*
 * Samples that need decoding: threads decode them before they are requested, and the next readable
 * one replaces an unreadable one. The replacement depends only on the samples, so that every rank,
 * and a run that resumes from a checkpoint, has the same.
 */
#include "dataset.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef enum entry_state { ENTRY_FREE, ENTRY_WANTED, ENTRY_MAKING, ENTRY_READY } entry_state;

/* A sample and its result. */
typedef struct made_sample {
    uint64_t sample;
    uint64_t skipped; /* number of samples, from this one on, that could not be read */
    unsigned char *bytes;
    int32_t label;
    ty_status status;
    ty_error error; /* of the first that could not be read, or why there is none */
} made_sample;

typedef struct entry {
    entry_state state;
    uint64_t ticket; /* order in which it was expected */
    made_sample made;
} entry;

struct dataset_ahead {
    const ty_dataset *dataset;
    ty_reading reading;
    pthread_mutex_t lock;
    pthread_cond_t for_threads, for_taker;
    bool is_ending;
    uint64_t tickets;
    entry *entries;      /* [reading.room] */
    made_sample spare;   /* for samples that were not expected */
    unsigned char *room; /* of all of them */
    pthread_t *threads;
    uint32_t thread_count; /* threads started */
    uint64_t *bad;         /* [bad_count] samples that could not be read, each once */
    uint32_t bad_count;
    ty_error first; /* error message of the first of them */
};

static bool is_bad(ty_status status)
{
    return status == TY_EPARSE || status == TY_EIO;
}

/* The sample, or the next one that can be read. */
static void sample_make(const ty_dataset *dataset, made_sample *made)
{
    const uint64_t count = dataset->sample_count;
    ty_error error = {0};

    made->skipped = 0;
    made->error = (ty_error){0};
    do {
        made->status = dataset->make(dataset, (made->sample + made->skipped) % count, made->bytes,
                                     &made->label, &error);
        if (made->status != TY_OK && made->skipped == 0)
            made->error = error;
        if (is_bad(made->status))
            made->skipped++;
    } while (is_bad(made->status) && made->skipped < count);
}

/* The entry that was expected first; NULL: none is. */
static entry *next_wanted(dataset_ahead *a)
{
    entry *found = NULL;

    for (uint32_t i = 0; i < a->reading.room; i++)
        if (a->entries[i].state == ENTRY_WANTED &&
            (found == NULL || a->entries[i].ticket < found->ticket))
            found = &a->entries[i];
    return found;
}

static void *thread_main(void *context)
{
    dataset_ahead *a = context;

    pthread_mutex_lock(&a->lock);
    while (!a->is_ending) {
        entry *e = next_wanted(a);

        if (e == NULL) {
            pthread_cond_wait(&a->for_threads, &a->lock);
            continue;
        }
        e->state = ENTRY_MAKING;
        pthread_mutex_unlock(&a->lock);
        sample_make(a->dataset, &e->made);
        pthread_mutex_lock(&a->lock);
        e->state = ENTRY_READY;
        pthread_cond_broadcast(&a->for_taker);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

ty_status dataset_ahead_open(const ty_dataset *dataset, const ty_reading *reading,
                             dataset_ahead **out, ty_error *error)
{
    dataset_ahead *a = ty_alloc(1, sizeof *a);
    const uint64_t bytes = dataset->input_count;

    TY_TRY(ty_check_memory(a != NULL, error));
    a->dataset = dataset;
    a->reading = *reading;
    /* If samples may be skipped, finding the replacements requires reading. */
    a->reading.labels_only = reading->labels_only && reading->bad_samples == 0;
    if (a->reading.labels_only)
        a->reading.threads = 0;
    if (a->reading.threads == 0)
        a->reading.room = 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->for_threads, NULL);
    pthread_cond_init(&a->for_taker, NULL);
    a->entries = ty_alloc(a->reading.room, sizeof *a->entries);
    a->room = ty_alloc((size_t)a->reading.room + 1, bytes);
    a->threads = ty_alloc(a->reading.threads, sizeof *a->threads);
    if (a->entries == NULL || a->room == NULL || a->threads == NULL) {
        dataset_ahead_close(a);
        return ty_fail(error, TY_ENOMEM, "out of memory for %u samples made ahead", reading->room);
    }
    for (uint32_t i = 0; i < a->reading.room; i++)
        a->entries[i].made.bytes = a->room + i * bytes;
    a->spare.bytes = a->room + a->reading.room * bytes;
    for (; a->thread_count < a->reading.threads; a->thread_count++)
        if (pthread_create(&a->threads[a->thread_count], NULL, thread_main, a) != 0) {
            dataset_ahead_close(a);
            return ty_fail(error, TY_EBACKEND, "no thread for samples made ahead");
        }
    *out = a;
    return TY_OK;
}

void dataset_ahead_close(dataset_ahead *a)
{
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    a->is_ending = true;
    pthread_cond_broadcast(&a->for_threads);
    pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 0; i < a->thread_count; i++)
        pthread_join(a->threads[i], NULL);
    pthread_cond_destroy(&a->for_threads);
    pthread_cond_destroy(&a->for_taker);
    pthread_mutex_destroy(&a->lock);
    ty_free(a->entries);
    ty_free(a->room);
    ty_free(a->threads);
    ty_free(a->bad);
    ty_free(a);
}

static entry *entry_of(dataset_ahead *a, uint64_t sample)
{
    for (uint32_t i = 0; i < a->reading.room; i++)
        if (a->entries[i].state != ENTRY_FREE && a->entries[i].made.sample == sample)
            return &a->entries[i];
    return NULL;
}

/* A free entry, or the oldest that is decoded and was not requested; NULL: all are in progress. */
static entry *entry_free(dataset_ahead *a)
{
    entry *found = NULL;

    for (uint32_t i = 0; i < a->reading.room; i++) {
        entry *e = &a->entries[i];
        if (e->state == ENTRY_FREE)
            return e;
        if (e->state == ENTRY_READY && (found == NULL || e->ticket < found->ticket))
            found = e;
    }
    return found;
}

void dataset_ahead_expect(dataset_ahead *a, uint64_t sample)
{
    entry *e;

    if (a->reading.room == 0)
        return;
    pthread_mutex_lock(&a->lock);
    e = entry_of(a, sample) == NULL ? entry_free(a) : NULL;
    if (e != NULL) {
        e->state = ENTRY_WANTED;
        e->ticket = a->tickets++;
        e->made.sample = sample;
        pthread_cond_signal(&a->for_threads);
    }
    pthread_mutex_unlock(&a->lock);
}

static bool is_known(const dataset_ahead *a, uint64_t sample)
{
    for (uint32_t i = 0; i < a->bad_count; i++)
        if (a->bad[i] == sample)
            return true;
    return false;
}

/* Counts the samples skipped for one. */
static ty_status bad_count(dataset_ahead *a, const made_sample *made, ty_error *error)
{
    const uint64_t count = a->dataset->sample_count;

    for (uint64_t i = 0; i < made->skipped; i++) {
        const uint64_t sample = (made->sample + i) % count;
        uint64_t *grown;

        if (is_known(a, sample))
            continue;
        if (a->reading.bad_samples == 0)
            return ty_fail(error, TY_EPARSE, "%.180s; --bad-samples N skips up to N of them",
                           made->error.message);
        if (a->bad_count >= a->reading.bad_samples)
            return ty_fail(error, TY_EPARSE,
                           "%.180s; found %u samples before it that cannot be read, expected fewer",
                           made->error.message, a->bad_count);
        grown = ty_resize(a->bad, (size_t)a->bad_count + 1, sizeof *grown);
        TY_TRY(ty_check_memory(grown != NULL, error));
        if (a->bad_count == 0)
            a->first = made->error;
        a->bad = grown;
        a->bad[a->bad_count++] = sample;
    }
    return TY_OK;
}

/* Waits until an entry is decoded, by this thread if none has begun. With the lock. */
static void entry_wait(dataset_ahead *a, entry *e)
{
    if (e->state == ENTRY_WANTED) {
        e->state = ENTRY_MAKING;
        pthread_mutex_unlock(&a->lock);
        sample_make(a->dataset, &e->made);
        pthread_mutex_lock(&a->lock);
        e->state = ENTRY_READY;
    }
    while (e->state == ENTRY_MAKING)
        pthread_cond_wait(&a->for_taker, &a->lock);
}

ty_status dataset_ahead_take(dataset_ahead *a, uint64_t sample, float *input, int32_t *label,
                             ty_error *error)
{
    made_sample *made = &a->spare;
    entry *e;
    ty_status status;

    if (a->reading.labels_only && input == NULL) {
        if (label != NULL)
            *label = a->dataset->label(a->dataset, sample);
        return TY_OK;
    }
    pthread_mutex_lock(&a->lock);
    e = entry_of(a, sample);
    if (e != NULL) {
        entry_wait(a, e);
        made = &e->made;
    }
    pthread_mutex_unlock(&a->lock);
    if (e == NULL) {
        made->sample = sample;
        sample_make(a->dataset, made);
    }
    status = bad_count(a, made, error);
    if (status == TY_OK && made->status != TY_OK)
        status = ty_fail(error, made->status, "%s", made->error.message);
    if (status == TY_OK && input != NULL)
        a->dataset->convert(a->dataset, made->bytes, input);
    if (status == TY_OK && label != NULL)
        *label = made->label;
    if (e != NULL) { /* its entry was not reused meanwhile: only this thread expects */
        pthread_mutex_lock(&a->lock);
        e->state = ENTRY_FREE;
        pthread_mutex_unlock(&a->lock);
    }
    return status;
}

uint32_t dataset_ahead_skipped(dataset_ahead *a, const char **first)
{
    if (first != NULL)
        *first = a->first.message;
    return a->bad_count;
}
