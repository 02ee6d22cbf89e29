/**
 * @file ty_compression.h
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
#ifndef TY_COMPRESSION_H
#define TY_COMPRESSION_H

#include "ty_json.h"
#include "ty_precision.h"
#include "ty_status.h"
#include "ty_text.h"

#include <stdbool.h>
#include <stdint.h>

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

/** @param kind below TY_COMPRESSION_COUNT; "none" has a row too */
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

#endif
