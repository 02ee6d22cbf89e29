/**
 * @file ty_profile.h
 * Collectives and gradient compressors as plans name them, and measured times.
 *
 *   compression  which compressor, and what follows from it: bytes, collectives, memory
 *   profile      measured seconds of layers, copies, compressors and collectives
 */
#ifndef TY_PROFILE_H
#define TY_PROFILE_H

#include "ty_base.h"
#include "ty_json.h"
#include "ty_workload.h"

#include <stdbool.h>
#include <stdint.h>

/* ==== compression ============================================================================= */

/*
 * Gradient compression as a planning decision: which compressor, with which parameter, and what
 * follows from it for every reader of a plan: bytes on the wire, the collectives it permits, memory
 * for error feedback. Pure functions; docs/guides/compress-gradients.md has the formulas and their
 * sources. What compressors compute is execute/'s business.
 *
 * A compressed bucket is exchanged in one or two phases, each an encode and a collective, and a
 * decode at the end:
 *   summed    fp16, bf16, random-k     encode, all-reduce, decode
 *   gathered  rows, fp8, int8,         encode, all-gather, decode
 *             ternary, top-k, dgc
 *   two-phase one-bit                  encode, all-to-all, encode, all-gather, decode
 *   factored  powersgd                 encode, all-reduce, encode, all-reduce, decode
 *
 *   ty_compression c;
 *   ty_compression_parse("powersgd-2", &c, &error);
 *   for (uint32_t phase = 0; phase < ty_compression_phases(&c); phase++)
 *       total += ty_compression_wire_bytes(&c, &extent, members, phase);
 */

typedef enum ty_collective_kind {
    TY_ALL_REDUCE,
    TY_ALL_GATHER,
    TY_REDUCE_SCATTER,
    TY_BROADCAST,
    TY_REDUCE,
    TY_ALL_TO_ALL,   /* each member has a part of its payload for every other */
    TY_SEND_RECEIVE, /* from each of the members to one other */
    TY_COLLECTIVE_COUNT
} ty_collective_kind;
const char *ty_collective_name(ty_collective_kind kind); /* "all_reduce" */

/**
 * The kinds of compressors: enumerator, symbol of the codec, name in plans and --fix. What else
 * there is to know of a kind is its row (ty_compression_at) and the file of its codec,
 * execute/codec_*.c.
 */
#define TY_COMPRESSIONS(KIND)                                                                      \
    KIND(ROWS, rows, "rows")                                                                       \
    KIND(FP16, fp16, "fp16")                                                                       \
    KIND(BF16, bf16, "bf16")                                                                       \
    KIND(FP8_E4M3, fp8_e4m3, "fp8-e4m3")                                                           \
    KIND(FP8_E5M2, fp8_e5m2, "fp8-e5m2")                                                           \
    KIND(INT8, int8, "int8")                                                                       \
    KIND(TERNARY, ternary, "ternary")                                                              \
    KIND(ONE_BIT, one_bit, "one-bit")                                                              \
    KIND(TOP_K, top_k, "top-k")                                                                    \
    KIND(TOP_K_SAMPLED, top_k_sampled, "top-k-sampled")                                            \
    KIND(RANDOM_K, random_k, "random-k")                                                           \
    KIND(DGC, dgc, "dgc")                                                                          \
    KIND(POWERSGD, powersgd, "powersgd")

#define TY_COMPRESSION_ENUMERATOR(kind, symbol, name) TY_COMPRESSION_##kind,
typedef enum ty_compression_kind {
    TY_COMPRESSION_NONE,
    TY_COMPRESSIONS(TY_COMPRESSION_ENUMERATOR) TY_COMPRESSION_COUNT
} ty_compression_kind;
#undef TY_COMPRESSION_ENUMERATOR
const char *ty_compression_name(ty_compression_kind kind); /* "none", "rows", "top-k" */

#define TY_MOST_PHASES 2
#define TY_LARGEST_RANK 64 /* of powersgd; beyond it orthogonalising costs more than it saves */

typedef struct ty_compression {
    ty_compression_kind kind;
    double ratio;          /* share of elements sent by top-k, random-k, dgc: (0, 1]; else 0, but
                              see ty_compression_measured */
    uint32_t rank;         /* powersgd: 1 to TY_LARGEST_RANK; else 0 */
    uint32_t warmup_steps; /* dgc: steps in which the share falls from 1/4 to `ratio`; else 0 */
    double clip_norm; /* dgc: of a bucket's averaged gradient; each member clips its own to this
                         / sqrt(members) before momentum; 0: not */
} ty_compression;

/** What of a bucket a compressor sees. */
typedef struct ty_gradient_extent {
    uint64_t elements;
    /* powersgd: over all matrices that are factored, elements of P and of Q; and what is in none:
     * vectors, and matrices too small to gain. Rows: what follows the matrix, positions. */
    uint64_t p_elements, q_elements, dense_elements;
    uint64_t row_room, row_elements; /* rows: that a payload has room for, numbers in each */
} ty_gradient_extent;

/** What a compressor is to everybody but its codec. */
typedef struct ty_compression_row {
    uint32_t phases;
    ty_collective_kind collectives[TY_MOST_PHASES];
    ty_precision summed; /* in which an all-reduce adds what was encoded */
    bool has_ratio, has_rank, has_warmup;
    bool sends_rows;   /* of an embedding, those that the step's tokens touched: nothing is lost */
    bool is_lossy;     /* more is lost than rounding to 16 bits */
    bool has_feedback; /* what a step loses is sent later */
    bool has_momentum; /* taken by the compressor, so that the optimizer must not */
    bool is_elementwise; /* of equal gradients it makes the same, whatever else is in the bucket */
    bool needs_whole_strata; /* ZeRO may share it where members have equally many kept elements */
    /** Bytes that a member hands to the phase's collective. */
    uint64_t (*wire_bytes)(const ty_compression *compression, const ty_gradient_extent *extent,
                           uint32_t members, uint32_t phase);
    /* The codec: arrays of floats kept from step to step; room to select in; whether the last
     * phase's payload is where the next step begins. */
    uint32_t arrays;
    uint64_t (*array_elements)(const ty_gradient_extent *extent, uint32_t members,
                               uint32_t index); /* NULL: the bucket's */
    bool selects, keeps_payload;
    /* Passes over the gradient's bytes at memory bandwidth, where nothing was measured: of each
     * phase's encode, of decode, of decode for each member, and for each rank in all three. */
    double encode_passes[TY_MOST_PHASES], decode_passes, member_passes, rank_passes;
    /* The ratios or ranks that a profile measures, ended by 0; none: once, as it is. */
    double measured[5]; /* at most four */
} ty_compression_row;

/** The row of a kind; that of "none" for what is no kind. */
const ty_compression_row *ty_compression_at(ty_compression_kind kind);

/** Which parameters a kind has. */
bool ty_compression_has_ratio(ty_compression_kind kind);
bool ty_compression_has_rank(ty_compression_kind kind);

/**
 * "fp16", "top-k:0.01", "powersgd-2", "dgc:0.001", "dgc:0.001:100" (warm-up steps),
 * "dgc:0.001:100:4" (and clipping norm).
 * @return TY_EINVAL with what was found and what was expected
 */
ty_status ty_compression_parse(const char *text, ty_compression *out,
                               ty_error *error) TY_MUST_CHECK;
/** What ty_compression_parse reads. */
void ty_compression_text(const ty_compression *compression, ty_text *text);
/** Whether all parameters are in their ranges, and those of other kinds 0. */
ty_status ty_compression_check(const ty_compression *compression, ty_error *error) TY_MUST_CHECK;
bool ty_compression_equals(const ty_compression *a, const ty_compression *b);

/* As members of a JSON object: "compression": "powersgd", "rank": 2. */
void ty_compression_write(const ty_compression *compression, ty_json_writer *writer,
                          const char *key);
ty_status ty_compression_read(const ty_json *object, const char *key, ty_compression *out,
                              ty_error *error) TY_MUST_CHECK;

/* ---- What follows from it ---------------------------------------------------------------- */

/** Of a matrix [rows][columns] with `room` of its rows in a payload, and what follows it. */
ty_gradient_extent ty_rows_extent(uint64_t elements, uint64_t rows, uint64_t columns,
                                  uint64_t room);
/** Phases of an exchange: 1 or 2. */
uint32_t ty_compression_phases(const ty_compression *compression);
ty_collective_kind ty_compression_collective(const ty_compression *compression, uint32_t phase);
/** Whether ZeRO may shard what it compresses: one phase that sums, so that it may as well leave
 * each member its share of the sum. */
bool ty_compression_shards(const ty_compression *compression);
/**
 * Bytes each member hands to the phase's collective: the payload that is summed, the own part of
 * what is gathered, all parts of an all-to-all.
 */
uint64_t ty_compression_wire_bytes(const ty_compression *compression,
                                   const ty_gradient_extent *extent, uint32_t members,
                                   uint32_t phase);
/** The same at a step of dgc's warm-up; plans and predictions are of the steps after it. */
uint64_t ty_compression_warmup_bytes(const ty_compression *compression,
                                     const ty_gradient_extent *extent, uint32_t members,
                                     uint32_t step);
/** Elements of the index-th of a member's arrays. */
uint64_t ty_compression_array(const ty_compression *compression, const ty_gradient_extent *extent,
                              uint32_t members, uint32_t index);
/** Bytes a member keeps from step to step: what was not sent yet, velocities, factors, and room to
 *  select in. */
uint64_t ty_compression_state_bytes(const ty_compression *compression,
                                    const ty_gradient_extent *extent, uint32_t members);
/** Bytes of encoded payloads, own and received, of all phases. */
uint64_t ty_compression_payload_bytes(const ty_compression *compression,
                                      const ty_gradient_extent *extent, uint32_t members);
/**
 * Rows: bytes of a payload's room for `row_room` rows, an index and the numbers of each, all
 * indices first; what follows the matrix comes behind them as it is.
 */
uint64_t ty_compression_row_bytes(const ty_gradient_extent *extent);
/** What profiles have times of: rows with the share of the matrix that a payload has room for as
 *  its ratio, any other compressor as it is. */
ty_compression ty_compression_measured(const ty_compression *compression,
                                       const ty_gradient_extent *extent);
/** Elements kept by the kinds with a ratio: the share rounded down, at least 1. */
uint64_t ty_compression_kept(const ty_compression *compression, uint64_t elements);
/** Whether more is lost than rounding to 16 bits: such need the user's word. */
bool ty_compression_is_lossy(const ty_compression *compression);
/** Whether what a step loses is sent later, by error feedback. */
bool ty_compression_has_feedback(const ty_compression *compression);
/** Whether momentum is taken by the compressor, so that the optimizer must not: dgc. */
bool ty_compression_has_momentum(const ty_compression *compression);

/** A matrix [rows][columns] as powersgd sees it: whether factors are small enough to be sent in its
 *  place, as PyTorch's hook decides. */
bool ty_powersgd_factors(const ty_compression *compression, uint64_t rows, uint64_t columns);

/** Moves a matrix from the dense elements of an extent to its factors, if it is factored. */
void ty_powersgd_count(const ty_compression *compression, uint64_t rows, uint64_t columns,
                       ty_gradient_extent *extent);

/* Layouts that sizes follow from. */
#define TY_COMPRESSION_GROUP 512       /* elements that share a scale: fp8, int8, ternary */
#define TY_COMPRESSION_SIGN_GROUP 1024 /* and of one-bit */
/** Elements of one member's part in one-bit: as many groups of 32 for each, the last one padded. */
uint64_t ty_one_bit_part(uint64_t elements, uint32_t members);

/* ---- When it pays ------------------------------------------------------------------------ */

/** The time of an exchange as fixed_s + edge_bytes / bandwidth: fixed are latencies and codecs. */
typedef struct ty_exchange_terms {
    double fixed_s, edge_bytes;
} ty_exchange_terms;

/**
 * The bandwidth below which the compressed exchange is faster than the plain one, bytes/s:
 *   b = (plain.edge_bytes - compressed.edge_bytes) / (compressed.fixed_s - plain.fixed_s)
 * 0: at none; HUGE_VAL: at every one. It asks whether anything is hidden behind other work by
 * neither. A compressed exchange that moves more bytes in less fixed time pays *above* a bandwidth;
 * it counts as 0, because what it saves is not traffic.
 */
double ty_compression_crossover(ty_exchange_terms plain, ty_exchange_terms compressed);

/* ==== profile ================================================================================= */

/*
 * A profile: what was measured on some hardware. Layer times by signature and micro-batch,
 * optimizer and compressor rates, point-to-point and collective times. `trainyard profile` makes it
 * on this machine; the planner prefers it to any formula.
 */

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
