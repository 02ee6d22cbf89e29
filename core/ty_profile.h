/**
 * @file ty_profile.h
 * A profile: what was measured on some hardware. Layer times by signature and micro-batch,
 * optimizer and compressor rates, point-to-point and collective times. `trainyard profile` makes it
 * on this machine; the planner prefers it to any formula.
 */
#ifndef TY_PROFILE_H
#define TY_PROFILE_H

#include "ty_compression.h"
#include "ty_json.h"
#include "ty_status.h"
#include "ty_text.h"
#include "ty_workload.h"

#include <stdbool.h>
#include <stdint.h>

/** Where a figure comes from, from most to least trustworthy. */
typedef enum ty_provenance {
    TY_MEASURED,   /* on this hardware */
    TY_CALIBRATED, /* from published curves */
    TY_DATASHEET   /* peak rates and roofline */
} ty_provenance;
const char *ty_provenance_name(ty_provenance provenance);

/** How the members of a bucket exchange it. */
typedef enum ty_algorithm {
    TY_RING,
    TY_TREE,
    TY_AUTOMATIC,        /* the collective library's own choice by size (NCCL's on GPUs) */
    TY_HIERARCHICAL,     /* reduce-scatter in each host, all-reduce across, all-gather in it */
    TY_PARAMETER_SERVER, /* push and pull; every member serves an equal share of the bucket */
    TY_BLOCK_MANAGER,    /* BigDL's: slices gathered and summed, then read by all */
    TY_ALGORITHM_COUNT
} ty_algorithm;
const char *ty_algorithm_name(ty_algorithm algorithm); /* "ring", "parameter-server" */

typedef struct ty_layer_time {
    char *signature;      /* ty_layer_signature */
    uint32_t micro_batch; /* samples in one pass */
    double forward_s, backward_s;
    double input_s, weight_s; /* of a backward in two parts: gradients of what the layer reads, then
                                 of its weights; both 0: not measured */
} ty_layer_time;

typedef struct ty_collective_time {
    ty_collective_kind kind;
    ty_algorithm algorithm;
    uint32_t ranks;
    uint64_t bytes; /* payload per rank */
    double seconds;
    uint32_t hosts; /* that the ranks were on, in equal parts; 0: not said */
} ty_collective_time;

typedef struct ty_transfer_time { /* one message between two ranks, one way */
    uint64_t bytes;
    double seconds;
    double cpu_s; /* that each of the two ranks computed meanwhile; 0: not measured */
} ty_transfer_time;

/** What a compressor takes for one bucket. */
typedef struct ty_codec_cost {
    double encode_s[TY_MOST_PHASES]; /* of each phase; 0 where there is none */
    double decode_s;
} ty_codec_cost;

typedef struct ty_codec_time { /* encodes and decode of a gradient bucket; powersgd: a square one */
    ty_compression compression; /* rows: as ty_compression_measured has it */
    uint32_t ranks;             /* what works on gathered payloads grows with it */
    uint64_t elements;          /* of the uncompressed bucket */
    ty_codec_cost cost;
} ty_codec_time;

typedef struct ty_update_time { /* one optimizer step */
    ty_optimizer_kind kind;
    uint64_t elements;
    double seconds;
} ty_update_time;

/** What look-ups answer where nothing was measured: sizes above the largest or below the smallest.
 */
typedef enum ty_outside {
    TY_OUTSIDE_LIKELY, /* what the measurements suggest: see "Look-ups" */
    TY_OUTSIDE_LEAST,  /* the shorter end of what they allow */
    TY_OUTSIDE_MOST    /* the longer one */
} ty_outside;

typedef struct ty_profile {
    char *machine;             /* host name and processor, for people */
    char *backend;             /* "cpu", "cuda" */
    char *device;              /* what computed, and its libraries; NULL: the processor */
    char *precision;           /* of passes: "fp32", "tf32", "bf16", "fp16"; NULL: fp32 */
    char *date;                /* ISO 8601 */
    char *versions;            /* of the libraries that did the work */
    char *scaled;              /* "v100-sxm2-16gb by 0.81": measured elsewhere; NULL: it was not */
    uint32_t cores;            /* that ranks of this host share */
    double others_share;       /* of them, that others took while it was measured; 0: none, or not
                                  known */
    uint32_t concurrent_ranks; /* ranks that computed side by side while layers were timed */
    uint64_t memory_bytes;     /* of the machine, or of each device that has its own */
    double peak_flop_per_s;    /* one rank's matrix multiplication at its best size */
    double memory_bandwidth_bytes_per_s; /* one rank's large copy, read plus written */
    double instruction_overhead_s;       /* of an instruction beyond the work it does */
    double load_s_per_byte;              /* batch assembly */
    char *input_source;                  /* workload whose samples were made; NULL: none were */
    double input_s_per_sample;           /* that a rank takes to make one of them */
    uint32_t layer_time_count;
    ty_layer_time *layer_times;
    uint32_t collective_time_count;
    ty_collective_time *collective_times;
    uint32_t transfer_time_count;
    ty_transfer_time *transfer_times;
    uint32_t codec_time_count;
    ty_codec_time *codec_times;
    uint32_t update_time_count;
    ty_update_time *update_times;
    ty_outside outside; /* of whoever asks, in no file */
} ty_profile;

ty_status ty_profile_load(const char *path, ty_profile **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_from_json(const ty_json *object, ty_profile **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_profile_to_json(const ty_profile *profile, ty_json_writer *writer, const char *key);
ty_status ty_profile_save(const ty_profile *profile, const char *path,
                          ty_error *error) TY_MUST_CHECK;
void ty_profile_free(ty_profile *profile);
/** Times of layers, codecs and updates as on a device that takes `scale` times as long as the one
 * named, on which they were measured. */
ty_status ty_profile_scale(ty_profile *profile, const char *measured_on, double scale,
                           ty_error *error) TY_MUST_CHECK;

/*
 * Look-ups. Between measured sizes times are interpolated linearly in the size; beyond the largest
 * the last slope goes on, never falling; below the smallest the first slope goes on towards its
 * intercept, but not below the smallest's time in proportion (where the intercept is negative). A
 * single measured size is scaled in proportion. Each returns false when nothing was measured for
 * the question.
 *
 * That holds of TY_OUTSIDE_LIKELY. The band around it, which is empty at and between measured
 * sizes: beyond the largest from the flattest to the steepest of the lines through it and a point
 * that took less, its own proportion among them (where all took as long: from that time on);
 * below the smallest from its time in proportion to its time. It is what the measurements agree
 * with, and no bound: what no longer fits a cache takes longer than all of them suggest.
 */

/** Seconds in which a rank makes a batch of `samples`, stored in `bytes`. By the time per sample
 * if that is of this workload, else by the time per byte. */
double ty_profile_input(const ty_profile *profile, const ty_workload *workload, uint32_t samples,
                        uint64_t bytes);
/** One layer's forward and backward seconds for a micro-batch of `samples`. */
bool ty_profile_layer(const ty_profile *profile, const char *signature, uint32_t samples,
                      double *forward_s, double *backward_s);
/** The smallest and the largest micro-batch that layers were timed with; false: none was. */
bool ty_profile_micro_batches(const ty_profile *profile, uint32_t *smallest, uint32_t *largest);
/** Of backward in two parts the second's share, from 0 to 1, nearest to `samples` at which it was
 * measured. */
bool ty_profile_weight_share(const ty_profile *profile, const char *signature, uint32_t samples,
                             double *share);
/** Whether it was measured for any layer. */
bool ty_profile_has_parts(const ty_profile *profile);
/** A collective among `ranks`. Of the measured rank counts the nearest lower one (below all: the
 *  smallest) is scaled by the algorithm's number of steps, at equal bytes per step. 1 rank: 0 s. */
bool ty_profile_collective(const ty_profile *profile, ty_collective_kind kind,
                           ty_algorithm algorithm, uint32_t ranks, uint64_t bytes, double *seconds);
/** The same for this very number of ranks and hosts: what a collective library measured. */
bool ty_profile_placed_collective(const ty_profile *profile, ty_collective_kind kind,
                                  ty_algorithm algorithm, uint32_t ranks, uint32_t hosts,
                                  uint64_t bytes, double *seconds);
bool ty_profile_transfer(const ty_profile *profile, uint64_t bytes, double *seconds);
/** Share of its core that a rank keeps busy while messages of this size are under way: close to 1
 * where they are copies in memory, close to 0 on a slow network; 1 where it was not measured. */
double ty_profile_busy_share(const ty_profile *profile, uint64_t bytes);
/** Rows of the kind whose ratio (rank) is nearest; first encodes from the nearest lower rank count,
 * what works on gathered payloads interpolated in the ranks. No compression takes no time.
 * @param compression as ty_compression_measured has it */
bool ty_profile_codec(const ty_profile *profile, const ty_compression *compression, uint32_t ranks,
                      uint64_t elements, ty_codec_cost *cost);
bool ty_profile_update(const ty_profile *profile, ty_optimizer_kind kind, uint64_t elements,
                       double *seconds);

#endif
