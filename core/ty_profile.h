/**
 * @file ty_profile.h
 * Collectives and gradient compressors of plans, and measured times.
 *
 *   compression  compressors, and their bytes, collectives and memory
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
 * Gradient compression as a planning decision: the compressor, its parameter, and their
 * consequences for every reader of a plan: bytes on the wire, the collectives it permits, memory
 * for error feedback. Pure functions; docs/guides/compress-gradients.md has the formulas and their
 * sources. The codecs themselves are in execute/.
 *
 * A compressed bucket is reduced in one or two phases, each an encode and a collective, with a
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
    TY_ALL_TO_ALL,   /* each member sends a part of its payload to every other */
    TY_SEND_RECEIVE, /* from each member to one other */
    TY_COLLECTIVE_COUNT
} ty_collective_kind;
const char *ty_collective_name(ty_collective_kind kind); /* "all_reduce" */

/**
 * The kinds of compressors: enumerator, symbol of the codec, name in plans and --fix. All other
 * properties of a kind are in its row (ty_compression_at) and in the file of its codec,
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
#define TY_LARGEST_RANK 64 /* of powersgd; above it orthogonalizing costs more than it saves */

typedef struct ty_compression {
    ty_compression_kind kind;
    double ratio;          /* share of elements sent by top-k, random-k, dgc: (0, 1]; else 0, but
                              see ty_compression_measured */
    uint32_t rank;         /* powersgd: 1 to TY_LARGEST_RANK; else 0 */
    uint32_t warmup_steps; /* dgc: steps in which the share falls from 1/4 to `ratio`; else 0 */
    double clip_norm; /* dgc: of a bucket's averaged gradient; each member clips its own to this /
                         sqrt(members) before momentum; 0: no clipping */
} ty_compression;

/** The sizes of a bucket that a compressor needs. */
typedef struct ty_gradient_extent {
    uint64_t elements;
    /* powersgd: elements of P and of Q over all factored matrices; and the dense rest: vectors, and
     * matrices too small to gain. Rows: dense elements after the matrix, position embeddings. */
    uint64_t p_elements, q_elements, dense_elements;
    uint64_t row_room, row_elements; /* rows: capacity of a payload, numbers per row */
} ty_gradient_extent;

/** Properties of a compressor for all code except its codec. */
typedef struct ty_compression_row {
    uint32_t phases;
    ty_collective_kind collectives[TY_MOST_PHASES];
    ty_precision summed; /* format in which an all-reduce adds encoded gradients */
    bool has_ratio, has_rank, has_warmup;
    bool sends_rows;   /* lossless: only the rows of an embedding that the step's tokens touched */
    bool is_lossy;     /* more is lost than rounding to 16 bits */
    bool has_feedback; /* a step's compression error is sent later */
    bool has_momentum; /* the compressor applies momentum, so the optimizer must not */
    bool is_elementwise;     /* equal gradients compress equally, whatever else is in the bucket */
    bool needs_whole_strata; /* ZeRO may shard it only if members have equally many kept elements */
    /** Message size per member of the phase's collective, bytes. */
    uint64_t (*wire_bytes)(const ty_compression *compression, const ty_gradient_extent *extent,
                           uint32_t members, uint32_t phase);
    /* The codec: number of float arrays kept from step to step; needs a workspace for selection;
     * starts the next step from the last phase's payload. */
    uint32_t arrays;
    uint64_t (*array_elements)(const ty_gradient_extent *extent, uint32_t members,
                               uint32_t index); /* NULL: the bucket's */
    bool selects, keeps_payload;
    /* Passes over the gradient's bytes at memory bandwidth, if there are no measurements: for each
     * phase's encode, for decode, for decode per member, and per powersgd rank in all three. */
    double encode_passes[TY_MOST_PHASES], decode_passes, member_passes, rank_passes;
    /* The ratios or powersgd ranks that a profile measures, terminated by 0; none: one measurement
     * without a parameter. */
    double measured[5]; /* at most four */
} ty_compression_row;

/** The row of a kind; for an invalid value the row of "none". */
const ty_compression_row *ty_compression_at(ty_compression_kind kind);

/** Whether a kind has these parameters. */
bool ty_compression_has_ratio(ty_compression_kind kind);
bool ty_compression_has_rank(ty_compression_kind kind);

/**
 * "fp16", "top-k:0.01", "powersgd-2", "dgc:0.001", "dgc:0.001:100" (warm-up steps),
 * "dgc:0.001:100:4" (and clipping norm).
 * @return TY_EINVAL with the value found and the value expected
 */
ty_status ty_compression_parse(const char *text, ty_compression *out,
                               ty_error *error) TY_MUST_CHECK;
/** The text that ty_compression_parse reads. */
void ty_compression_text(const ty_compression *compression, ty_text *text);
/** Checks that all parameters are in their ranges, and those of other kinds 0. */
ty_status ty_compression_check(const ty_compression *compression, ty_error *error) TY_MUST_CHECK;
bool ty_compression_equals(const ty_compression *a, const ty_compression *b);

/* As members of a JSON object: "compression": "powersgd", "rank": 2. */
void ty_compression_write(const ty_compression *compression, ty_json_writer *writer,
                          const char *key);
ty_status ty_compression_read(const ty_json *object, const char *key, ty_compression *out,
                              ty_error *error) TY_MUST_CHECK;

/* ---- Bytes and collectives --------------------------------------------------------------- */

/** The extent of a matrix [rows][columns] with room for `room` of its rows in a payload, and of the
 * elements after it. */
ty_gradient_extent ty_rows_extent(uint64_t elements, uint64_t rows, uint64_t columns,
                                  uint64_t room);
/** Phases per reduction: 1 or 2. */
uint32_t ty_compression_phases(const ty_compression *compression);
ty_collective_kind ty_compression_collective(const ty_compression *compression, uint32_t phase);
/** Whether ZeRO may shard a bucket with this compression: it has one summing phase, which can leave
 * each member its shard of the sum. */
bool ty_compression_shards(const ty_compression *compression);
/**
 * Message size per member of the phase's collective: the payload of an all-reduce, the own part of
 * an all-gather, all parts of an all-to-all.
 */
uint64_t ty_compression_wire_bytes(const ty_compression *compression,
                                   const ty_gradient_extent *extent, uint32_t members,
                                   uint32_t phase);
/** The same at a step of dgc's warm-up; plans and predictions apply to the steps after it. */
uint64_t ty_compression_warmup_bytes(const ty_compression *compression,
                                     const ty_gradient_extent *extent, uint32_t members,
                                     uint32_t step);
/** Elements of the index-th of a member's arrays. */
uint64_t ty_compression_array(const ty_compression *compression, const ty_gradient_extent *extent,
                              uint32_t members, uint32_t index);
/** State and workspace bytes per member: residuals, velocities, factors, and the workspace for
 * selection. */
uint64_t ty_compression_state_bytes(const ty_compression *compression,
                                    const ty_gradient_extent *extent, uint32_t members);
/** Bytes of encoded payloads, own and received, of all phases. */
uint64_t ty_compression_payload_bytes(const ty_compression *compression,
                                      const ty_gradient_extent *extent, uint32_t members);
/**
 * Rows: bytes of a payload with room for `row_room` rows, an index and the numbers of each, all
 * indices first; the elements after the matrix follow uncompressed.
 */
uint64_t ty_compression_row_bytes(const ty_gradient_extent *extent);
/** The compression for a look-up in profiles: for rows, `ratio` is the share of the matrix that a
 * payload has room for; any other compressor is unchanged. */
ty_compression ty_compression_measured(const ty_compression *compression,
                                       const ty_gradient_extent *extent);
/** Elements selected by the kinds with a ratio: the share rounded down, at least 1. */
uint64_t ty_compression_kept(const ty_compression *compression, uint64_t elements);
/** Whether more is lost than by rounding to 16 bits: the user has to request these. */
bool ty_compression_is_lossy(const ty_compression *compression);
/** Whether error feedback sends a step's compression error later. */
bool ty_compression_has_feedback(const ty_compression *compression);
/** Whether the compressor applies momentum, so the optimizer must not: dgc. */
bool ty_compression_has_momentum(const ty_compression *compression);

/** Whether powersgd factors a matrix [rows][columns]: its factors are small enough to be sent
 * instead, by the rule of PyTorch's hook. */
bool ty_powersgd_factors(const ty_compression *compression, uint64_t rows, uint64_t columns);

/** Moves a matrix from the dense elements of an extent to its factors, if it is factored. */
void ty_powersgd_count(const ty_compression *compression, uint64_t rows, uint64_t columns,
                       ty_gradient_extent *extent);

/* Layouts that sizes follow from. */
#define TY_COMPRESSION_GROUP 512       /* elements that share a scale: fp8, int8, ternary */
#define TY_COMPRESSION_SIGN_GROUP 1024 /* and of one-bit */
/** Elements of one member's part in one-bit: the same number of groups of 32 for each, the last one
 * padded. */
uint64_t ty_one_bit_part(uint64_t elements, uint32_t members);

/* ---- When it pays ------------------------------------------------------------------------ */

/** The time of a reduction as fixed_s + edge_bytes / bandwidth; fixed_s has latencies and
 * codecs. */
typedef struct ty_exchange_terms {
    double fixed_s, edge_bytes;
} ty_exchange_terms;

/**
 * The bandwidth below which a compressed reduction is faster than an uncompressed one, bytes/s:
 *   b = (plain.edge_bytes - compressed.edge_bytes) / (compressed.fixed_s - plain.fixed_s)
 * 0: at none; HUGE_VAL: at every one. It assumes no overlap with other work. A compressed reduction
 * that moves more bytes in less fixed time pays *above* a bandwidth; the result is then 0, because
 * it does not save traffic.
 */
double ty_compression_crossover(ty_exchange_terms plain, ty_exchange_terms compressed);

/* ==== profile ================================================================================= */

/*
 * A profile: measurements of some hardware. It has layer times by signature and micro-batch size,
 * optimizer and compressor rates, point-to-point and collective times. `trainyard profile` measures
 * this machine; the planner prefers a profile to any formula.
 */

/** Provenance of a figure, from most to least trustworthy. */
typedef enum ty_provenance {
    TY_MEASURED,   /* on this hardware */
    TY_CALIBRATED, /* from published curves */
    TY_DATASHEET   /* peak rates and roofline */
} ty_provenance;
const char *ty_provenance_name(ty_provenance provenance);

/** The algorithm of a bucket's collective. */
typedef enum ty_algorithm {
    TY_RING,
    TY_TREE,
    TY_AUTOMATIC,    /* the collective library's own choice by size (NCCL's on GPUs) */
    TY_HIERARCHICAL, /* reduce-scatter inside hosts, all-reduce between them, all-gather inside */
    TY_PARAMETER_SERVER, /* push and pull; every member sums an equal share of the bucket */
    TY_BLOCK_MANAGER,    /* BigDL's: slices are gathered and summed, then read by all */
    TY_ALGORITHM_COUNT
} ty_algorithm;
const char *ty_algorithm_name(ty_algorithm algorithm); /* "ring", "parameter-server" */

typedef struct ty_layer_time {
    char *signature;      /* ty_layer_signature */
    uint32_t micro_batch; /* samples in one pass */
    double forward_s, backward_s;
    double input_s, weight_s; /* of a backward in two parts: gradients of the layer's inputs, then
                                 of its weights; both 0: not measured */
} ty_layer_time;

typedef struct ty_collective_time {
    ty_collective_kind kind;
    ty_algorithm algorithm;
    uint32_t ranks;
    uint64_t bytes; /* payload per rank */
    double seconds;
    uint32_t hosts; /* hosts of the ranks, in equal parts; 0: unknown */
} ty_collective_time;

typedef struct ty_transfer_time { /* one message between two ranks, in one direction */
    uint64_t bytes;
    double seconds;
    double cpu_s; /* compute time of each of the two ranks meanwhile; 0: not measured */
} ty_transfer_time;

/** Seconds of a compressor for one bucket. */
typedef struct ty_codec_cost {
    double encode_s[TY_MOST_PHASES]; /* per phase; 0 if there is none */
    double decode_s;
} ty_codec_cost;

typedef struct ty_codec_time { /* encodes and decode of a gradient bucket; powersgd: a square one */
    ty_compression compression; /* rows: from ty_compression_measured */
    uint32_t ranks;             /* decoding gathered payloads grows with it */
    uint64_t elements;          /* of the uncompressed bucket */
    ty_codec_cost cost;
} ty_codec_time;

typedef struct ty_update_time { /* one optimizer step */
    ty_optimizer_kind kind;
    uint64_t elements;
    double seconds;
} ty_update_time;

/** Results of look-ups outside the measured sizes: above the largest or below the smallest.
 */
typedef enum ty_outside {
    TY_OUTSIDE_LIKELY, /* the extrapolation: see "Look-ups" */
    TY_OUTSIDE_LEAST,  /* the lower end of the interval */
    TY_OUTSIDE_MOST    /* the upper end */
} ty_outside;

typedef struct ty_profile {
    char *machine;   /* host name and processor, for display */
    char *backend;   /* "cpu", "cuda" */
    char *device;    /* device and its libraries; NULL: the processor */
    char *precision; /* of passes: "fp32", "tf32", "bf16", "fp16"; NULL: fp32 */
    char *date;      /* ISO 8601 */
    char *versions;  /* of the libraries in use */
    char *scaled;    /* measured on another device: "v100-sxm2-16gb by 0.81"; NULL: it was not */
    uint32_t cores;  /* cores that ranks of this host share */
    double others_share; /* share of the cores used by other programs during measurement; 0: none or
                            unknown */
    uint32_t concurrent_ranks; /* ranks that computed concurrently while layers were timed */
    uint64_t memory_bytes;     /* of the machine, or of each device that has its own */
    double peak_flop_per_s;    /* one rank's matrix multiplication at its best size */
    double memory_bandwidth_bytes_per_s; /* one rank's large copy, read plus written */
    double instruction_overhead_s;       /* per instruction in addition to its work */
    double load_s_per_byte;              /* batch assembly */
    char *input_source;                  /* workload whose samples were generated; NULL: none */
    double input_s_per_sample;           /* time of a rank to generate one */
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
    ty_outside outside; /* set by the caller, not in files */
} ty_profile;

ty_status ty_profile_load(const char *path, ty_profile **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_profile_from_json(const ty_json *object, ty_profile **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_profile_to_json(const ty_profile *profile, ty_json_writer *writer, const char *key);
ty_status ty_profile_save(const ty_profile *profile, const char *path,
                          ty_error *error) TY_MUST_CHECK;
void ty_profile_free(ty_profile *profile);
/** Scales times of layers, codecs and updates to a device that takes `scale` times as long as
 * `measured_on`. */
ty_status ty_profile_scale(ty_profile *profile, const char *measured_on, double scale,
                           ty_error *error) TY_MUST_CHECK;

/*
 * Look-ups. Between measured sizes, times are interpolated linearly. Above the largest the last
 * slope continues, and never falls. Below the smallest the first slope continues towards its
 * intercept, but not below the time in proportion to size (if the intercept is negative). A single
 * measured size is scaled in proportion. Each returns false if there is no measurement.
 *
 * That is TY_OUTSIDE_LIKELY. The prediction interval around it is empty at and between measured
 * sizes. Above the largest, it is from the flattest to the steepest of the lines through that point
 * and a point that took less, including the line through 0 (if all took the same time: from that
 * time up). Below the smallest, it is from the time in proportion to size to the smallest's time.
 * It is the range that the measurements suggest, not a bound: work that no longer fits a cache
 * takes longer.
 */

/** Seconds of a rank for assembling a batch of `samples` from `bytes`: by the time per sample if
 * that was measured for this workload, else by the time per byte. */
double ty_profile_input(const ty_profile *profile, const ty_workload *workload, uint32_t samples,
                        uint64_t bytes);
/** One layer's forward and backward seconds for a micro-batch of `samples`. */
bool ty_profile_layer(const ty_profile *profile, const char *signature, uint32_t samples,
                      double *forward_s, double *backward_s);
/** The smallest and the largest micro-batch size with layer times; false: none. */
bool ty_profile_micro_batches(const ty_profile *profile, uint32_t *smallest, uint32_t *largest);
/** The second part's share of a backward in two parts, from 0 to 1, at the measured size nearest to
 * `samples`. */
bool ty_profile_weight_share(const ty_profile *profile, const char *signature, uint32_t samples,
                             double *share);
/** Whether that was measured for any layer. */
bool ty_profile_has_parts(const ty_profile *profile);
/** A collective of `ranks`. The time of the nearest lower measured rank count (below all: the
 * smallest) is scaled by the algorithm's number of steps, at equal bytes per step. 1 rank: 0 s. */
bool ty_profile_collective(const ty_profile *profile, ty_collective_kind kind,
                           ty_algorithm algorithm, uint32_t ranks, uint64_t bytes, double *seconds);
/** The same for exactly this number of ranks and hosts: measurements of a collective library. */
bool ty_profile_placed_collective(const ty_profile *profile, ty_collective_kind kind,
                                  ty_algorithm algorithm, uint32_t ranks, uint32_t hosts,
                                  uint64_t bytes, double *seconds);
bool ty_profile_transfer(const ty_profile *profile, uint64_t bytes, double *seconds);
/** Share of its core that a rank uses during transfers of this size: close to 1 for copies in
 * memory, close to 0 on a slow network; 1 if it was not measured. */
double ty_profile_busy_share(const ty_profile *profile, uint64_t bytes);
/** Seconds of a codec, from the rows of the kind with the nearest ratio (powersgd rank): first
 * encodes from the nearest lower rank count, work on gathered payloads interpolated in the ranks.
 * No compression takes no time.
 * @param compression from ty_compression_measured */
bool ty_profile_codec(const ty_profile *profile, const ty_compression *compression, uint32_t ranks,
                      uint64_t elements, ty_codec_cost *cost);
bool ty_profile_update(const ty_profile *profile, ty_optimizer_kind kind, uint64_t elements,
                       double *seconds);

#endif
