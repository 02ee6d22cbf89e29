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

typedef enum ty_compression_kind {
    TY_COMPRESSION_NONE,
    TY_COMPRESSION_ROWS, /* of an embedding, those that the step's tokens touched; nothing is lost
                          */
    TY_COMPRESSION_FP16,
    TY_COMPRESSION_BF16,
    TY_COMPRESSION_FP8_E4M3, /* a scale for each group of elements */
    TY_COMPRESSION_FP8_E5M2,
    TY_COMPRESSION_INT8,          /* QSGD with 127 levels, stochastic rounding */
    TY_COMPRESSION_TERNARY,       /* TernGrad */
    TY_COMPRESSION_ONE_BIT,       /* signs and mean magnitudes, error feedback on both ways */
    TY_COMPRESSION_TOP_K,         /* the k largest magnitudes, with error feedback */
    TY_COMPRESSION_TOP_K_SAMPLED, /* those above a threshold that a sample suggests */
    TY_COMPRESSION_RANDOM_K,      /* k places that all members draw alike, with error feedback */
    TY_COMPRESSION_DGC,           /* deep gradient compression: sampled top-k of the velocity */
    TY_COMPRESSION_POWERSGD,      /* factors of rank r, with error feedback */
    TY_COMPRESSION_COUNT
} ty_compression_kind;
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

/** What of a bucket a compressor sees. */
typedef struct ty_gradient_extent {
    uint64_t elements;
    /* powersgd: over all matrices that are factored, elements of P and of Q; and what is in none:
     * vectors, and matrices too small to gain. Rows: what follows the matrix, positions. */
    uint64_t p_elements, q_elements, dense_elements;
    uint64_t row_room, row_elements; /* rows: that a payload has room for, numbers in each */
} ty_gradient_extent;

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
/** Bytes a member keeps from step to step: what was not sent yet, velocities, factors. */
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
