/**
 * @file ty_program.h
 * A program specifies *the order* of a plan: for each pipeline rank (a stage, or the virtual stages
 * that share its devices), the instructions of one step. It is the only representation of a
 * schedule; estimate, simulate and execute all read it.
 *
 * Only these rules order instructions:
 * - Instructions of one stream run in order.
 * - An instruction also waits for the instructions of its own stage replica in `waits`.
 * - A receive waits for its matching send: same micro-batch, opposite direction, neighboring
 *   stages. Sends never wait for their receive: the receiver always has a buffer (the memory model
 *   counts it).
 * - A collective starts when all members of its bucket have reached it.
 *
 * All replicas of a pipeline rank, and all their ranks, share one stage program. `micro_batch` is a
 * replica's own count: the k-th of replica q of r is micro-batch k*r + q of the step. The partner
 * of a transfer of micro-batch m is replica m mod r' of the peer stage.
 *
 * A bucket of one device has no encode, collective and decode; one without compression has no
 * encode and decode. A compression of two phases makes encode, collective, encode, collective,
 * decode, distinguished by `phase`. Every stage that has a bucket updates it once. The collective
 * of a sharded bucket (ZeRO) leaves each member with its shard of the sum, and update is of that
 * shard. Gather restores the weights before their next use: once per step before the first forward,
 * or with ZeRO 3 before every pass. Begin, at the head of the compute stream, makes gathers wait
 * for the updates of the previous step.
 *
 * Frozen layers. Backward covers only layers from ty_workload_first_backward on: a stage that ends
 * before it has no recompute and no backward, and no gradient crosses a cut at or before it. Their
 * layers are in no bucket.
 *
 * Local steps. If replicas take local steps, the collectives of a step run after its entire
 * backward, and readers count one step's share of each. In a workload without backward they run
 * after the last forward.
 *
 * Loads. Samples that the devices generate are loaded in the compute stream. A pipeline rank
 * without layers only loads. It sends its samples as an activation and receives the weights after
 * the updates as a gradient. Its begin replaces its weights. The lead of its loads is 1 + lag.
 *
 * The list is repeated every step. An instruction's waits refer to the same step. Across steps,
 * stream order keeps weights and gradients consistent: forward of the next step follows update in
 * the compute stream.
 *
 * Asynchronous schedules have no flush: the list is the body of a loop in which steps overlap. An
 * instruction with `lead` l runs, in the loop's t-th round, for step t + l. Rounds start at minus
 * the largest lead, and instructions of steps outside the run are left out, which gives the warm-up
 * and cool-down phases. Everything above applies to steps; streams run in order of rounds, then of
 * the list.
 *
 * With a plan's `staleness` s (ty_plan.h) the list is such a loop, too: everything but the updates
 * is s rounds ahead. A round runs the passes of step t + s and starts the reduction of its
 * gradients. It ends with the updates of step t, which wait for a reduction that began s rounds
 * before. At either end of a run, s rounds lack the updates or the passes; all updates take place.
 *
 * With a plan's `exchange_order` (ty_plan.h) the list is a loop that is cut before the step's last
 * backward: that backward, the collectives and the updates are of step t, and everything else has a
 * lead of 1, for step t + 1. Each update is in the compute stream before the forward of its layers.
 * So each part of the forward waits only for its own buckets and not for those of later layers.
 */
#ifndef TY_PROGRAM_H
#define TY_PROGRAM_H

#include "ty_base.h"
#include "ty_plan.h"
#include "ty_profile.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ty_stream {
    TY_STREAM_COMPUTE,
    TY_STREAM_SEND,
    TY_STREAM_RECEIVE,
    TY_STREAM_COLLECTIVE, /* also encodes and decodes */
    TY_STREAM_INPUT,
    TY_STREAM_COUNT
} ty_stream;
const char *ty_stream_name(ty_stream stream);
#define TY_NO_INSTRUCTION UINT32_MAX

typedef enum ty_op {
    TY_OP_BEGIN, /* compute: the updates of the previous step are done (ZeRO); or received weights
                    become those of the pipeline rank */
    TY_OP_LOAD,  /* input: samples (first stage) and labels (last stage) of a micro-batch; compute:
                    samples that the device generates */
    TY_OP_FORWARD,        /* compute: layers in order, stash stored for backward */
    TY_OP_RECOMPUTE,      /* compute: recompute a segment from its stored inputs */
    TY_OP_BACKWARD,       /* compute: layers in reverse, gradients accumulated over micro-batches */
    TY_OP_BACKWARD_INPUT, /* compute: the part of backward for gradients of activations */
    TY_OP_BACKWARD_WEIGHT, /* compute: the part for gradients of weights; layers in reverse */
    TY_OP_SEND,            /* send: the output activation forward, or the input gradient backward */
    TY_OP_RECEIVE,         /* receive: its counterpart */
    TY_OP_ENCODE,          /* collective: compress a bucket (error feedback included) */
    TY_OP_COLLECTIVE,      /* collective: reduce a bucket over its members */
    TY_OP_DECODE,          /* collective: back to fp32 */
    TY_OP_UPDATE,          /* compute: optimizer step on a bucket's layers, or the own shard; clears
                              gradients */
    TY_OP_GATHER,          /* collective: all-gather the weights of a sharded bucket */
    TY_OP_COUNT
} ty_op;
const char *ty_op_name(ty_op op);
/** The default stream of an operation. */
ty_stream ty_op_stream(ty_op op);
/** Whether an operation may be in a stream: its default one, and a load also in compute. */
bool ty_op_runs_in(ty_op op, ty_stream stream);
/** The stream of a plan's loads. */
ty_stream ty_plan_load_stream(const ty_plan *plan);

typedef enum ty_direction {
    TY_NO_DIRECTION,
    TY_ACTIVATION, /* to the next stage */
    TY_GRADIENT,   /* to the previous stage; to one without layers: weights */
    TY_DIRECTION_COUNT
} ty_direction;
const char *ty_direction_name(ty_direction direction); /* "activation", "gradient" */
/** One of the two ways over a cut, 0 or 1. */
uint32_t ty_direction_way(ty_direction direction);

#define TY_NO_MICRO_BATCH UINT32_MAX
#define TY_NO_BUCKET UINT32_MAX

typedef struct ty_instruction {
    ty_op op;
    ty_stream stream;
    uint32_t stage; /* of the plan and of the pipeline rank; TY_NO_STAGE for begin */
    uint32_t lead;  /* rounds ahead; 0 in synchronous schedules without staleness or priority */
    uint32_t first_layer,
        layer_count;      /* load, send, receive: 0, 0; encode, collective, decode, update: the
                             bucket's, on the other stage of a tied weight too */
    uint32_t micro_batch; /* the replica's own count; TY_NO_MICRO_BATCH if `bucket` is set; a gather
                             of ZeRO 3 has both */
    uint32_t bucket;      /* index into the plan's buckets, or TY_NO_BUCKET */
    uint32_t phase;       /* encode, collective: of the compression, see ty_profile.h; else 0 */
    uint32_t peer_stage;  /* send, receive; else TY_NO_STAGE */
    ty_direction direction;
    uint64_t
        bytes; /* per rank. Send, receive, load: payload; collective, gather: input of each member;
                  encode, decode: uncompressed gradient; begin: weights that it replaces; else 0 */
    uint32_t wait_count;
    uint32_t *waits; /* [wait_count]: indices of earlier instructions of this stage program */
} ty_instruction;

typedef struct ty_stage_program {
    uint32_t instruction_count;
    ty_instruction *instructions; /* a valid execution order; streams are subsequences of it */
    uint32_t more_in_flight;      /* of the micro-batches left out, per replica; see `left_out` */
} ty_stage_program;

typedef struct ty_program {
    ty_digest plan_digest;
    uint32_t stage_count; /* pipeline ranks: the plan's stages over its virtual stages */
    ty_stage_program *stages;
    uint32_t left_out; /* of the plan's micro-batches: the planner's own programs may be shorter
                          than the plan; nothing runs or stores those */
} ty_program;

/** The most instructions of a program: with its costs and its timeline, one takes about 500 bytes.
 */
#define TY_MAX_INSTRUCTIONS (1u << 21)

/** An instruction of `op` in its stream with all other fields unset.
 */
ty_instruction ty_instruction_of(ty_op op);

/* Building: used by the schedules in planner/. */
ty_status ty_program_new(const ty_plan *plan, ty_program **out, ty_error *error) TY_MUST_CHECK;
/**
 * Appends an instruction to a pipeline rank. One without a stage, except begin, gets the pipeline
 * rank's first. `waits` are indices this function returned earlier; TY_NO_INSTRUCTION entries are
 * skipped. The instruction's own wait fields are ignored.
 * @param index [out] of the new instruction; may be NULL
 */
ty_status ty_program_append(ty_program *program, uint32_t stage, const ty_instruction *instruction,
                            const uint32_t *waits, uint32_t wait_count, uint32_t *index,
                            ty_error *error) TY_MUST_CHECK;

/** Reads `trainyard.program/1`. Checks shape only; ty_program_check checks meaning. */
ty_status ty_program_from_json(const ty_json *object, ty_program **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_program_to_json(const ty_program *program, ty_json_writer *writer, const char *key);
void ty_program_free(ty_program *program);

/**
 * Proves that a program is complete and free of deadlock before any reader runs it, by walking all
 * stage replicas.
 * - Every send has its receive and every receive its send, with equal bytes.
 * - Every collective has all its members, which meet their common collectives in the same order.
 * - Per replica and micro-batch there is one forward of every layer in order, then its backward of
 *   every layer that is not before ty_workload_first_backward once in reverse. Each pass comes
 *   after its input activation (gradient) was received or loaded, and its output is sent only after
 *   it.
 * - If the plan recomputes, every backward is of layers of one segment. The recompute of that
 *   segment, or the forward that stored it, comes directly before it in the compute stream. Nothing
 *   else is recomputed.
 * - Every bucket of more than one member is reduced once, after the last backward that adds to it,
 *   and every bucket is updated once after that.
 * - Sharded weights are gathered before the passes that use them.
 * - Payloads match the plan: the tensor that crosses the cut, the bucket's bytes on the wire.
 * - Steps overlap only as the plan specifies, and updates have the plan's staleness.
 * - Weights for a pipeline rank without layers are sent after all updates, and arrive before the
 *   loads of their step.
 * - With `exchange_order` no forward is before the update of its layers.
 * - The program was lowered from exactly this plan (digest).
 * - The walk reaches the end of every stage replica's streams. Otherwise TY_EPARSE names a stage
 *   replica, its blocked instruction and the partner that it waits for.
 */
ty_status ty_program_check(const ty_plan *plan, const ty_program *program, const char *name,
                           ty_error *error) TY_MUST_CHECK;

/** Instructions of all stage replicas in one step: the events of one step of a timeline. */
uint64_t ty_program_event_count(const ty_plan *plan, const ty_program *program);

/** In-flight micro-batches: the most whose stash of plan stage `stage` is live at once on a
 * replica. */
uint32_t ty_program_peak_in_flight(const ty_program *program, uint32_t stage);
/** Change by an instruction in the number of live stashes: +1, -1 or 0. The stash of a micro-batch
 * is live from the first part of its forward to the last part of its backward; of a backward in two
 * parts, to the last weight part. Frozen layers, which have no backward, never have -1. */
int ty_program_stash_change(const ty_stage_program *program, uint32_t instruction);
/**
 * The peak of the weighted live stashes of all stages of a pipeline rank on a replica.
 * @param weights [virtual stages]: of one micro-batch of the pipeline rank's n-th stage
 */
double ty_program_peak_stash(const ty_program *program, uint32_t pipeline_rank,
                             const double *weights);
/** The last instruction that reads the samples of a load; after it, their buffer is free. */
uint32_t ty_program_last_pass(const ty_stage_program *program, uint32_t load);
/** Weight versions that a pipeline rank of a schedule keeps in addition to the newest. */
uint32_t ty_program_stashed_versions(const ty_program *program, ty_schedule schedule,
                                     uint32_t pipeline_rank);

/** Rounds a pipeline rank runs ahead: the largest lead of its instructions. */
uint32_t ty_program_lead(const ty_program *program, uint32_t pipeline_rank);
/** The largest lead of all pipeline ranks: the number of steps at either end of a run that differ
 * from those between. */
uint32_t ty_program_largest_lead(const ty_program *program);

/**
 * Bytes that each rank of a stage replica sends per micro-batch across the cut before plan stage
 * `stage`; 0 for the first. All tensors that cross form one message, in the order of their layers,
 * each [samples][elements]. Gradients do likewise, for tensors that have one
 * (ty_workload_cut_gradient_bytes). After a stage without layers: its samples, and part of the
 * weights.
 */
uint64_t ty_plan_transfer_bytes(const ty_plan *plan, uint32_t stage, ty_direction direction);
/** Input bytes per member of a gather of a sharded bucket's weights. */
uint64_t ty_bucket_gather_bytes(const ty_plan *plan, const ty_bucket *bucket);

/** The index in the step of the `micro_batch`-th micro-batch of replica `replica` of `stage`. */
uint32_t ty_program_global_micro_batch(const ty_plan *plan, uint32_t stage, uint32_t replica,
                                       uint32_t micro_batch);
/** The stage replica with the matching receive or send. */
uint32_t ty_program_peer_replica(const ty_plan *plan, uint32_t stage_replica,
                                 const ty_instruction *instruction);

/** Readable listing, one instruction per line, by stage: `trainyard estimate --program`. */
void ty_program_print(const ty_plan *plan, const ty_program *program, ty_text *text);

/* ==== costs =================================================================================== */

/*
 * The cost of every instruction of a program on a given cluster. The planner fills it from a
 * profile or a cost model; the estimator and the simulator read it. So they differ only in
 * contention: how users of one core or link slow each other down.
 */

/**
 * `seconds` is the time alone on an idle machine. For a transfer or collective it is latency_s +
 * edge_bytes / rate, where rate is the smaller of `rate_limit_bytes_per_s` and the narrowest link
 * of the pattern; the estimator uses `seconds`, the simulator the parts.
 *
 * For a load, `seconds` assumes that all readers of samples run at once (ty_plan_input). Its parts
 * overlap: `latency_s`, which does not depend on other readers, and `edge_bytes` from the storage
 * that the cluster's hosts share, at most at `rate_limit_bytes_per_s`.
 */
typedef struct ty_instruction_cost {
    double seconds;
    double latency_s;  /* fixed part of a transfer or collective */
    double edge_bytes; /* bytes over each edge of the pattern (ring edge, tree edge, one route); 0
                          if nothing moves */
    double rate_limit_bytes_per_s; /* most that the software achieves over one edge; 0: only the
                                      link limits */
    double inner_s;      /* of a pass or an update: the part of `seconds` in collectives between the
                            ranks of a stage replica */
    double across_share; /* share of seconds - latency_s between hosts, if the phases between and
                            inside hosts alternate (TY_HIERARCHICAL); else 0 */
    double core_share;   /* host cores that one member occupies while it runs: 1 for CPU compute and
                            CPU-driven copies, 0 for work of a device or NIC alone */
    /* Of a load: no core is left for an input thread, so a batch is not loaded before its buffer is
     * free (ty_program_last_pass). */
    bool is_between_steps;
} ty_instruction_cost;

/**
 * A collective by the latency-bandwidth model, of n members that have S bytes each, over links of
 * bandwidth B and latency a: steps x a + edge_share x S / B.
 *
 *                                       steps                   edge_share
 *   ring all-reduce                     2 (n-1)                 2 (n-1)/n
 *   ring all-gather                     n-1                     n-1
 *   ring reduce-scatter, all-to-all     n-1                     (n-1)/n
 *   ring broadcast, reduce              ceil(log2 n) + n-1      2 (n-1)/n      (a tree scatters,
 *                                                                  a ring gathers; the reverse)
 *   tree all-reduce                     2 ceil(log2 n)          2 ceil(log2 n)
 *   tree broadcast, reduce              ceil(log2 n)            ceil(log2 n)
 *   servers, block managers: all-reduce 2                       2 (n-1)/n
 *   send and receive                    1                       1
 *
 * A tree's levels run one after the other, so each counts. All-gather, reduce-scatter and
 * all-to-all have no tree: a binomial tree does not gather the members' inputs more cheaply than a
 * ring, so the ring runs. With one member per host a hierarchy is a ring. With fewer than two
 * members nothing moves. Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective
 * Communication Operations in MPICH", 2005, sections 4.1 (all-gather) to 4.5; van de Geijn's
 * broadcast of long messages.
 */
typedef struct ty_collective_terms {
    double steps;      /* messages that follow one another */
    double edge_share; /* bytes over each edge of the pattern, in units of S */
} ty_collective_terms;
/** @param kind, algorithm valid values; `members` >= 1 */
ty_collective_terms ty_collective_terms_of(ty_collective_kind kind, ty_algorithm algorithm,
                                           uint32_t members);

/** Seconds of a collective by its terms, and the parts. TY_EINVAL for members == 0, a bandwidth <=
 * 0 and a latency < 0. */
ty_status ty_collective_cost(ty_collective_kind kind, ty_algorithm algorithm, uint32_t members,
                             uint64_t bytes, double bandwidth_bytes_per_s, double latency_s,
                             ty_instruction_cost *cost, ty_error *error) TY_MUST_CHECK;

/* ---- On a torus ------------------------------------------------------------------------------ */

enum { TY_TORUS_AXES = 4 };

/** Placement of a collective's members along one axis of a torus or mesh of chips. */
typedef struct ty_torus_axis {
    uint32_t members; /* >= 2 */
    uint32_t spacing; /* chips from one to the next; if more than 1, that many equal groups are
                         interleaved and share the links */
    bool is_ring; /* three or more members in a closed ring, with data in both directions; else a
                     line */
    double bandwidth_bytes_per_s; /* of a link, per direction */
    double latency_s;             /* from chip to chip */
} ty_torus_axis;

/** A group that fills a box of evenly spaced chips. axis_count 0: it does not. */
typedef struct ty_torus {
    uint32_t axis_count;
    ty_torus_axis axes[TY_TORUS_AXES];
} ty_torus;

/**
 * Load on the links of each axis, in units of the bytes that a member of a ring sends (edge_share x
 * S of ty_collective_terms): a link of a closed axis carries half of it in each direction, one of a
 * line all of it in both directions.
 *
 * Gathers, scatters and reductions. All axes work at once: each part of the data is gathered along
 * one axis after the other. Parts use different orders, in the proportions that make all axes end
 * together. With m_i members along axis i, n in total, r_i the rate of an axis (its links' rate
 * over the spacing, twice that for a ring) and V the total data (n S of an all-gather), this takes,
 * in addition to latency,
 *
 *     V / n x max over sets R of axes of (product of m_i in R - 1) / (sum of r_i in R),
 *
 * which is V (n-1)/n / sum of r_i unless one axis is so slow that even its least part lasts longer
 * (each set of axes carries at least the rest after all others went first). An all-reduce is a
 * reduce-scatter and an all-gather. Hops: half of a ring, all of a line, axis by axis.
 *
 * An all-to-all crosses the middle of every axis: floor(m_i^2 / 4) / m_i x S over r_i, of the
 * slowest axis.
 *
 * Source: Austin et al., "How to Scale Your Model", 2025, part 3, has both for equal axes and full
 * rings (V over the axes' rate in both directions; a quarter of that for an all-to-all in a ring).
 * The sets follow from the loads that orders can reach, a base of a polymatroid. Launch overhead is
 * not counted.
 * @param torus  axis_count > 0
 * @param shares [out] of each axis
 */
void ty_torus_shares(const ty_torus *torus, ty_collective_kind kind, double shares[TY_TORUS_AXES]);
/** Rate in bytes/s, for the ring's edge bytes. @param is_crowded the interleaved groups use the
 * links too */
double ty_torus_rate(const ty_torus *torus, ty_collective_kind kind, bool is_crowded);
/** As ty_collective_cost, without contention; `edge_bytes` are those of the ring. */
void ty_torus_cost(const ty_torus *torus, ty_collective_kind kind, uint64_t bytes,
                   ty_instruction_cost *cost);
uint32_t ty_torus_members(const ty_torus *torus);

/* ---- Of a program ---------------------------------------------------------------------------- */

typedef struct ty_costs {
    uint32_t stage_count;
    uint32_t *instruction_counts;       /* [stage_count] */
    ty_instruction_cost **instructions; /* [stage][instruction], as in the program */
    uint32_t stage_replica_count;
    uint32_t
        *replica_host; /* [stage replica]: host index; stage replicas of one host share its cores */
    uint32_t host_count;
    double *host_cores;       /* [host_count]: HUGE_VAL if devices do not compete for cores */
    ty_provenance provenance; /* of the least certain figure */
} ty_costs;

/**
 * Allocates a zeroed table for the program. Hosts are the cluster's: the code that fills the table
 * sets `host_count`, and `host_cores` to a block from ty_alloc, which ty_costs_free releases.
 */
ty_status ty_costs_new(const ty_plan *plan, const ty_program *program, ty_costs **out,
                       ty_error *error) TY_MUST_CHECK;
void ty_costs_free(ty_costs *costs);

#endif
