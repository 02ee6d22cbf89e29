/**
 * @file ty_program.h
 * A program says *in which order*: for each pipeline rank of the pipeline (a stage, or with
 * interleaving the stages that share its devices), the instructions of one step. It is the only
 * place where a schedule is written down; estimate, simulate and execute all walk it.
 *
 * What orders what, and nothing else does:
 * - Instructions of one stream run in order.
 * - An instruction also waits for those of its own stage replica that it names in `waits`.
 * - A receive waits for the send it matches: same micro-batch, opposite direction, neighbouring
 * stages. Sends never wait for their receive: the receiver always has room (the memory model counts
 * it).
 * - A collective starts when all its members have reached it; its members are those of its bucket.
 *
 * One stage program serves all replicas of its pipeline rank, and all their ranks. `micro_batch`
 * counts a replica's own: replica q of r does, as its k-th, micro-batch k*r + q of the step. The
 * partner of a transfer of micro-batch m is replica m mod r' of the peer stage.
 *
 * A bucket that only one device has has no encode, collective or decode; without compression it has
 * no encode and decode. A compression of two phases makes encode, collective, encode, collective,
 * decode: `phase` tells them apart. Every stage that holds a bucket has one update for it. Of a
 * sharded bucket (ZeRO) the collective leaves each member with its share of the sum, update is of
 * that share, and gather brings the weights together where they are next needed: once a step before
 * the first forward, or with ZeRO 3 before every pass. Begin, at the head of the compute stream,
 * lets gathers wait for the updates of the step before.
 *
 * Frozen layers. Backward covers only layers from ty_workload_first_backward on: a stage that ends
 * before it has no recompute and no backward, and no gradient crosses a cut at or before it. Their
 * layers are in no bucket.
 *
 * Local steps. Where replicas take local steps, the buckets of a step are exchanged after its whole
 * backward, and readers count each collective as the share of one step in it. In a workload without
 * a backward the buckets are exchanged after the last forward.
 *
 * Loads. Samples that the devices make themselves are loaded in the compute stream. A pipeline rank
 * without layers only loads. It sends its samples as an activation and receives the weights after
 * the updates as a gradient. Its begin replaces its weights. The lead of its loads is 1 + lag.
 *
 * The list is repeated every step. An instruction's waits refer to the same step; across steps the
 * streams' own order and the compute stream's updates keep weights and gradients apart: forward of
 * the next step follows update in the compute stream.
 *
 * Asynchronous schedules have no flush: the list is the body of a loop in which steps overlap. An
 * instruction with `lead` l does, in the loop's t-th round, its part of step t + l. Rounds start at
 * minus the largest lead, and instructions of steps that are not of the run (before its first or
 * behind its last) are left out: that fills and drains the pipe. Everything above holds of steps;
 * streams run in order of rounds, then of the list.
 *
 * With a plan's `staleness` s (ty_plan.h) the list is such a loop, too: everything but the updates
 * is s rounds ahead. A round makes the passes of step t + s and sends its gradients off, and ends
 * with the updates of step t, which wait for an exchange that began s rounds before. At the end of
 * a run, as at its beginning, s rounds lack the one or the other part: all updates are made.
 *
 * With a plan's `exchange_order` (ty_plan.h) the list is a loop that is cut in front of the step's
 * last backward: that backward, the exchanges and the updates are of step t, and everything else, a
 * lead of 1, of step t + 1. Each update stands in the compute stream before the forward of its
 * layers, whose pieces so wait for their own buckets and not for those of later layers.
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
    TY_OP_BEGIN,     /* compute: the updates of the step before are over (ZeRO); or the weights that
                        were received become those of the pipeline rank */
    TY_OP_LOAD,      /* input: samples (first stage) and labels (last stage) of a micro-batch;
                        compute: samples that the device makes */
    TY_OP_FORWARD,   /* compute: layers in order, stash kept for backward */
    TY_OP_RECOMPUTE, /* compute: forward of a segment again from what was kept of it */
    TY_OP_BACKWARD,  /* compute: layers in reverse, gradients accumulated over micro-batches */
    TY_OP_BACKWARD_INPUT,  /* compute: the part of backward that makes gradients of activations */
    TY_OP_BACKWARD_WEIGHT, /* compute: the part that makes gradients of weights; layers in reverse
                            */
    TY_OP_SEND,            /* send: the output activation forward, or the input gradient backward */
    TY_OP_RECEIVE,         /* receive: its counterpart */
    TY_OP_ENCODE,          /* collective: compress a bucket (error feedback included) */
    TY_OP_COLLECTIVE,      /* collective: exchange a bucket among its members */
    TY_OP_DECODE,          /* collective: back to fp32 */
    TY_OP_UPDATE,          /* compute: optimizer step on a bucket's layers, or the own share of it;
                              gradients cleared */
    TY_OP_GATHER, /* collective: the weights of a sharded bucket, from its members' shares */
    TY_OP_COUNT
} ty_op;
const char *ty_op_name(ty_op op);
/** The stream that an operation runs in. */
ty_stream ty_op_stream(ty_op op);
/** There is no other but for a load, which may be in the compute stream. */
bool ty_op_runs_in(ty_op op, ty_stream stream);
/** That of a plan's loads. */
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
    uint32_t stage; /* of the plan: one of the pipeline rank's; TY_NO_STAGE for begin */
    uint32_t lead;  /* rounds ahead; 0 in synchronous schedules without staleness or priority */
    uint32_t first_layer,
        layer_count;      /* load, send, receive: 0, 0; encode, collective, decode, update: the
                             bucket's, on the other stage of a tied weight too */
    uint32_t micro_batch; /* the replica's own count; TY_NO_MICRO_BATCH where a bucket is meant; a
                             gather of ZeRO 3 has both */
    uint32_t bucket;      /* index into the plan's buckets, or TY_NO_BUCKET */
    uint32_t phase;       /* encode, collective: of the exchange, see ty_profile.h; else 0 */
    uint32_t peer_stage;  /* send, receive; else TY_NO_STAGE */
    ty_direction direction;
    uint64_t bytes; /* of one process. Send, receive, load: payload; collective, gather: what each
                       member puts in; encode, decode: uncompressed gradient; begin: weights that it
                       replaces; else 0 */
    uint32_t wait_count;
    uint32_t *waits; /* [wait_count]: indices of earlier instructions of this stage program */
} ty_instruction;

typedef struct ty_stage_program {
    uint32_t instruction_count;
    ty_instruction *instructions; /* a valid execution order; streams are subsequences of it */
} ty_stage_program;

typedef struct ty_program {
    ty_digest plan_digest;
    uint32_t stage_count; /* pipeline ranks: the plan's stages unless they are interleaved */
    ty_stage_program *stages;
} ty_program;

/** An instruction of `op` in its stream with everything else absent: a start for designated fields.
 */
ty_instruction ty_instruction_of(ty_op op);

/* Building: used by the schedules in planner/. */
ty_status ty_program_new(const ty_plan *plan, ty_program **out, ty_error *error) TY_MUST_CHECK;
/**
 * Appends an instruction to a pipeline rank; one without a stage, unless it is begin, is of the
 * pipeline rank's first. `waits` are indices this function returned earlier;
 * TY_NO_INSTRUCTION entries are skipped. The instruction's own wait fields are ignored.
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
 * Proves a program complete and free of deadlock before any reader runs it, by walking all stage
 * replicas.
 * - Every send has its receive and every receive its send, with equal bytes.
 * - Every collective has all its members, which meet their common collectives in the same order.
 * - Per replica and micro-batch there is one forward of every layer in order, then its backward of
 *   every layer that is not before ty_workload_first_backward once in reverse. It comes after the
 *   activation (gradient) it needs was received or loaded. What a pass makes is sent only after it.
 * - Where the plan recomputes, every backward is of layers of one segment, whose recompute, or the
 *   forward that left it, came just before it in the compute stream. Nothing else is recomputed.
 * - Every bucket of more than one member is reduced once, after the last backward that adds to it,
 *   and every bucket is updated once after that.
 * - Sharded weights are gathered before the passes that use them.
 * - Payloads are those of the plan: the tensor that crosses the cut, the bucket's bytes on the
 * wire.
 * - Steps overlap where the plan says so, and updates are as late as its staleness.
 * - Weights for a pipeline rank without layers leave after all updates, and are there before the
 * loads of the step they are meant for.
 * - With the order of `exchange_order` no forward is before the update of its
 *   layers.
 * - The program was lowered from this very plan (digest).
 * - The walk reaches the end of every stage replica's streams. Otherwise TY_EPARSE names a stage
 * replica, the instruction it is stuck at and the partner it waits for.
 */
ty_status ty_program_check(const ty_plan *plan, const ty_program *program, const char *name,
                           ty_error *error) TY_MUST_CHECK;

/** Instructions of all stage replicas in one step: the events of one step of a timeline. */
uint64_t ty_program_event_count(const ty_plan *plan, const ty_program *program);

/** The most micro-batches whose stash of plan stage `stage` is alive at once on a replica. */
uint32_t ty_program_peak_in_flight(const ty_program *program, uint32_t stage);
/** What an instruction does to the number of stashes alive: +1, -1 or 0. A micro-batch's lives from
 * the first piece of its forward to the last piece of its backward, where that comes in two parts
 * of the weights' part; of frozen layers, which have no backward, -1 never comes. */
int ty_program_stash_change(const ty_stage_program *program, uint32_t instruction);
/**
 * The most that the stashes of all stages of a pipeline rank weigh at once on a replica.
 * @param weights [stages of the pipeline rank]: of one micro-batch of its n-th stage
 */
double ty_program_peak_stash(const ty_program *program, uint32_t pipeline_rank,
                             const double *weights);
/** The last instruction that computes with what a load brings: then its slot is free. */
uint32_t ty_program_last_pass(const ty_stage_program *program, uint32_t load);
/** Versions of the weights that a pipeline rank of a schedule keeps beside the newest. */
uint32_t ty_program_stashed_versions(const ty_program *program, ty_schedule schedule,
                                     uint32_t pipeline_rank);

/** Rounds a pipeline rank runs ahead: the largest lead of its instructions. */
uint32_t ty_program_lead(const ty_program *program, uint32_t pipeline_rank);
/** Of all pipeline ranks: so many steps at either end of a run are not like those between. */
uint32_t ty_program_largest_lead(const ty_program *program);

/**
 * Bytes that each process of a stage replica sends of one micro-batch across the cut before plan
 * stage `stage`; 0 for the first. All tensors that cross are one message, in the order of their
 * layers, each [samples][elements]; gradients likewise, of those that have one
 * (ty_workload_cut_gradient_bytes). After a stage without layers: samples that were made
 * there, and part of the weights.
 */
uint64_t ty_plan_transfer_bytes(const ty_plan *plan, uint32_t stage, ty_direction direction);
/** What each member of a sharded bucket puts into a gather of its weights. */
uint64_t ty_bucket_gather_bytes(const ty_plan *plan, const ty_bucket *bucket);

/** The micro-batch of the step that replica `replica` of `stage` does as its `micro_batch`-th. */
uint32_t ty_program_global_micro_batch(const ty_plan *plan, uint32_t stage, uint32_t replica,
                                       uint32_t micro_batch);
/** The stage replica a send or receive of `stage_replica` is matched with. */
uint32_t ty_program_peer_replica(const ty_plan *plan, uint32_t stage_replica,
                                 const ty_instruction *instruction);

/** Readable listing, one instruction a line, per stage: `trainyard estimate --program`. */
void ty_program_print(const ty_plan *plan, const ty_program *program, ty_text *text);

/* ==== costs =================================================================================== */

/*
 * What every instruction of a program costs on a given cluster. The planner fills it from a profile
 * or a cost model; the estimator and the simulator read it. This is what keeps their difference
 * to what they are meant to differ in: how things that share a core or a link slow each other.
 */

/**
 * `seconds` is the time alone on an idle machine. For a transfer or collective it is
 * latency_s + edge_bytes / rate, where rate is the smaller of `rate_limit_bytes_per_s` and the
 * narrowest link of the pattern; an estimator uses `seconds`, a simulator the parts.
 *
 * Of a load, `seconds` is with all that read samples at once (ty_plan_input). Its parts are
 * `latency_s`, what it takes whoever else reads, and `edge_bytes` that come from the store which
 * the cluster's hosts share, at most at `rate_limit_bytes_per_s`, side by side.
 */
typedef struct ty_instruction_cost {
    double seconds;
    double latency_s;  /* fixed part of a transfer or collective */
    double edge_bytes; /* bytes over each edge of the pattern (ring edge, tree edge, one route);
                          0 for what moves nothing */
    double rate_limit_bytes_per_s; /* what the software drives over one edge; 0: no limit but the
                                      link */
    double inner_s;      /* of a pass or an update: the part of `seconds` in which the ranks of a
                            stage replica exchange what tensor parallelism divides */
    double across_share; /* of seconds - latency_s, what passes between hosts, where that and what
                            passes inside them follow one another (TY_HIERARCHICAL); else 0 */
    double core_share;   /* cores of its host one member keeps busy while it runs: 1 for CPU
                            compute and CPU-driven copies, 0 for what a device or NIC does alone */
    /* Of a load: no core is left for an input thread, so that a batch is not made before its slot
     * is free (ty_program_last_pass). */
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
 * A tree's levels take turns, so each counts. All-gather, reduce-scatter and all-to-all have no
 * tree: a binomial tree does not gather pieces of different members more cheaply than a ring, which
 * is what runs. Among members each on a host of its own a hierarchy is a ring. Nothing moves among
 * fewer than two members. Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective
 * Communication Operations in MPICH", 2005, sections 4.1 (all-gather) to 4.5; van de Geijn's
 * broadcast of long messages.
 */
typedef struct ty_collective_terms {
    double steps;      /* messages that follow one another */
    double edge_share; /* bytes over each edge of the pattern, in units of S */
} ty_collective_terms;
/** @param kind, algorithm there are; `members` >= 1 */
ty_collective_terms ty_collective_terms_of(ty_collective_kind kind, ty_algorithm algorithm,
                                           uint32_t members);

/** Seconds of a collective by its terms, and the parts. TY_EINVAL for members == 0, a bandwidth
 * that is not above 0 and a latency below 0. */
ty_status ty_collective_cost(ty_collective_kind kind, ty_algorithm algorithm, uint32_t members,
                             uint64_t bytes, double bandwidth_bytes_per_s, double latency_s,
                             ty_instruction_cost *cost, ty_error *error) TY_MUST_CHECK;

/* ---- On a torus ------------------------------------------------------------------------------ */

enum { TY_TORUS_AXES = 4 };

/** Where the members of a collective lie along one axis of a torus or mesh of chips. */
typedef struct ty_torus_axis {
    uint32_t members; /* >= 2 */
    uint32_t spacing; /* chips from one to the next; where more than 1, as many groups like this one
                         lie between and share the links */
    bool is_ring;     /* three or more that close: data goes both ways round; else a line */
    double bandwidth_bytes_per_s; /* of a link, per direction */
    double latency_s;             /* from chip to chip */
} ty_torus_axis;

/** A group that is all of a box of chips, evenly spaced. axis_count 0: it is not. */
typedef struct ty_torus {
    uint32_t axis_count;
    ty_torus_axis axes[TY_TORUS_AXES];
} ty_torus;

/**
 * What crosses the links of each axis, in units of what a member of a ring sends (edge_share x S of
 * ty_collective_terms): a link of a closed axis carries half of it each way, one of a line all of
 * it both ways.
 *
 * Gathers, scatters and reductions. All axes work at once: each piece of the data is gathered along
 * one axis after the other, pieces in different orders, and of each order there is as much as makes
 * all axes end together. With m_i members along axis i, n in all, r_i what an axis carries (twice
 * its links' rate of a ring, once of a line, over the spacing) and V the whole data (n S of an
 * all-gather) that takes, beside latency,
 *
 *     V / n x max over sets R of axes of (product of m_i in R - 1) / (sum of r_i in R),
 *
 * which is V (n-1)/n / sum of r_i wherever no axis is so slow that even its least part lasts longer
 * (each set of axes carries at least what is left when all others went first). An all-reduce is
 * scatter and gather. Hops: half of a ring, all of a line, axis after axis.
 *
 * An all-to-all crosses the middle of every axis: floor(m_i^2 / 4) / m_i x S over r_i, of the
 * slowest axis.
 *
 * Source: Austin et al., "How to Scale Your Model", 2025, part 3, has both for equal axes and whole
 * rings (V over the axes' rate both ways; a quarter of that for an all-to-all in a ring); the sets
 * follow from the loads that orders can reach, a base of a polymatroid. Nothing is counted for
 * launches.
 * @param torus  axis_count > 0
 * @param shares [out] of each axis
 */
void ty_torus_shares(const ty_torus *torus, ty_collective_kind kind, double shares[TY_TORUS_AXES]);
/** Bytes over an edge of the ring's terms per second. @param is_crowded with the groups that lie
 * between the members at it too */
double ty_torus_rate(const ty_torus *torus, ty_collective_kind kind, bool is_crowded);
/** As ty_collective_cost, alone; `edge_bytes` are those of the ring. */
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
    double *host_cores;       /* [host_count]: HUGE_VAL where devices do not compete for cores */
    ty_provenance provenance; /* of the least certain figure */
} ty_costs;

/**
 * All zero, sized for the program. Hosts are the cluster's: whoever fills the table sets
 * `host_count` and gives `host_cores` a block from ty_alloc, which ty_costs_free releases.
 */
ty_status ty_costs_new(const ty_plan *plan, const ty_program *program, ty_costs **out,
                       ty_error *error) TY_MUST_CHECK;
void ty_costs_free(ty_costs *costs);

#endif
