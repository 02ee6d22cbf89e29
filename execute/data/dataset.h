/**
 * @file dataset.h
 * Internals of the data loaders: one struct of functions per kind of data set, and shared
 * functions.
 */
#ifndef TY_EXECUTE_DATASET_H
#define TY_EXECUTE_DATASET_H

#include "device.h"
#include "tokens.h"

struct ty_dataset {
    const ty_workload *workload; /* while it is opened */
    uint64_t sample_count;
    ty_teacher teacher;    /* the workload's */
    ty_shape view;         /* of its input in the data set */
    uint32_t view_count;   /* views in a sample, one after the other: 2 with a teacher */
    uint64_t input_count;  /* numbers or tokens of a view */
    uint64_t label_count;  /* of a sample */
    uint64_t class_count;  /* labels are less than this */
    uint64_t token_count;  /* tokens are less than this; 0 if the input is not tokens */
    unsigned char *inputs; /* owned; their contents depend on the kind */
    ty_tokens *tokens;     /* owned; text in a file of tokens, or NULL */
    unsigned char *labels; /* owned, or NULL */
    uint64_t stride;       /* text: tokens from one window to the next */
    uint64_t first;      /* synthetic: number of the first sample; text: first token of the part */
    double sample_bytes; /* stored size, if all have the same; 0: see `stored_bytes`, or nothing
                            is stored */
    double data_bytes;   /* stored size of all samples if they overlap; 0: they do not */
    double (*stored_bytes)(const ty_dataset *dataset, uint64_t sample);
    /* One of the two. A sample that is in memory: */
    void (*sample)(const ty_dataset *dataset, uint64_t sample, float *input, int32_t *tokens,
                   int32_t *labels);
    void (*fill)(const ty_dataset *dataset); /* NULL: nothing is cached */
    /* One that needs decoding, by any thread: [input_count] bytes. TY_EPARSE: it cannot be read. */
    ty_status (*make)(const ty_dataset *dataset, uint64_t sample, unsigned char *input,
                      int32_t *label, ty_error *error);
    /* Its label, without reading it. */
    int32_t (*label)(const ty_dataset *dataset, uint64_t sample);
    /* Converts those bytes to input numbers. */
    void (*convert)(const ty_dataset *dataset, const unsigned char *bytes, float *input);
    struct dataset_ahead *ahead; /* samples decoded ahead, and skipped ones (dataset_ahead.c) */
    void *state;                 /* the kind's own, */
    void (*state_free)(void *state);
};

typedef struct dataset_ahead dataset_ahead;
/** Makes `make` serve ty_dataset_sample. */
ty_status dataset_ahead_open(const ty_dataset *dataset, const ty_reading *reading,
                             dataset_ahead **out, ty_error *error) TY_MUST_CHECK;
void dataset_ahead_close(dataset_ahead *ahead);
void dataset_ahead_expect(dataset_ahead *ahead, uint64_t sample);
ty_status dataset_ahead_take(dataset_ahead *ahead, uint64_t sample, float *input, int32_t *label,
                             ty_error *error) TY_MUST_CHECK;
uint32_t dataset_ahead_skipped(dataset_ahead *ahead, const char **first);

/* Each fills a data set whose counts are already set from the workload. */
ty_status dataset_open_idx(ty_dataset *dataset, const char *directory, bool is_test,
                           ty_error *error) TY_MUST_CHECK;
ty_status dataset_open_text(ty_dataset *dataset, const char *path, bool is_test,
                            ty_error *error) TY_MUST_CHECK;
ty_status dataset_open_images(ty_dataset *dataset, const char *path, bool is_test,
                              ty_error *error) TY_MUST_CHECK;
ty_status dataset_open_synthetic(ty_dataset *dataset, const char *unused, bool is_test,
                                 ty_error *error) TY_MUST_CHECK;
ty_status dataset_open_corridor(ty_dataset *dataset, const char *unused, bool is_test,
                                ty_error *error) TY_MUST_CHECK;

/** One of `count` from 64 random bits, small ones more often: runs of 1, 2, 4, .. are equally
 * likely, so that item i has a frequency of about 1 / (i + 1) (Zipf). */
uint64_t dataset_skewed(uint64_t count, uint64_t bits);
/** 64 well-mixed bits of (key, counter): the finalizer of SplitMix64. */
static inline uint64_t dataset_hash(uint64_t key, uint64_t counter)
{
    uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/** Uniform in [0, 1), the n-th of a seed. */
static inline double dataset_uniform(uint64_t seed, uint64_t n)
{
    return (double)(dataset_hash(seed, n) >> 11) * 0x1p-53;
}

/**
 * Checks the bytes of an IDX file (LeCun et al., http://yann.lecun.com/exdb/mnist/): two zero
 * bytes, type 8 (unsigned byte), the number of dimensions, each dimension as a big-endian 32-bit
 * number, then the data and nothing else.
 * @param dimensions     [out] [dimension_count]
 * @return TY_EPARSE with `name`, what was found and what was expected.
 */
ty_status idx_check(const unsigned char *bytes, size_t length, const char *name,
                    uint32_t dimension_count, uint32_t *dimensions, ty_error *error) TY_MUST_CHECK;
#define IDX_HEADER(dimension_count) (4 + 4 * (size_t)(dimension_count))

#endif
