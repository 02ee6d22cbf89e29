/**
 * @file ty_samples.h
 * What the worker's reader delivers of a data set on a machine (`trainyard.samples/1`), and what a
 * plan is to be told of it.
 *
 *     TY_CHECK(ty_samples_load("samples.json", &samples, error), status, done);
 *     ty_samples_input(samples, &input); // goes to a question as --input does
 */
#ifndef TY_SAMPLES_H
#define TY_SAMPLES_H

#include "ty_input.h"
#include "ty_json.h"
#include "ty_status.h"

#include <stdbool.h>
#include <stdint.h>

#define TY_MOST_READERS 16 /* numbers of threads that are tried */

/** What so many threads made, and the rank that took it. */
typedef struct ty_samples_rate {
    uint32_t threads; /* that make samples ahead; 0: the rank reads them itself */
    double samples_per_s;
} ty_samples_rate;

typedef struct ty_samples {
    char *workload, *data;            /* owned */
    uint32_t cores;                   /* of the machine */
    uint64_t sample_count;            /* of the part that is trained on */
    double sample_bytes;              /* as they are stored, the mean of those that were visited */
    double data_bytes;                /* of all of them */
    uint64_t visited;                 /* samples, the same ones for every number of threads */
    uint32_t skipped;                 /* of these, that cannot be read */
    double first_visit_samples_per_s; /* when each was read for the first time, from wherever it
                                         lay, with the most threads */
    uint32_t rate_count;
    ty_samples_rate rates[TY_MOST_READERS]; /* of visits after that, by threads, ascending */
} ty_samples;

/** The number of threads with which a plan is to reckon: the fewest that come within 5 % of the
 * best. */
const ty_samples_rate *ty_samples_best(const ty_samples *samples);
/**
 * As --input has it: all bytes, and what each thread of ty_samples_best's makes, on as many cores.
 * Samples that the ranks read themselves take their cores: one, without `cores`.
 */
void ty_samples_input(const ty_samples *samples, ty_input *out);

/** Reads `trainyard.samples/1`; figures out of range are TY_EPARSE. */
ty_status ty_samples_load(const char *path, ty_samples **out, ty_error *error) TY_MUST_CHECK;
/** With `input` and its words beside what was measured, which ty_samples_load passes over. */
void ty_samples_to_json(const ty_samples *samples, ty_json_writer *writer);
ty_status ty_samples_save(const ty_samples *samples, const char *path,
                          ty_error *error) TY_MUST_CHECK;
void ty_samples_free(ty_samples *samples);

#endif
