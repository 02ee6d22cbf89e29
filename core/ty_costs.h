/**
 * @file ty_costs.h
 * What every instruction of a program costs on a given cluster. The planner fills it from a profile
 * or a cost model; the estimator and the simulator read it. This is what keeps their difference
 * to what they are meant to differ in: how things that share a core or a link slow each other.
 */
#ifndef TY_COSTS_H
#define TY_COSTS_H

#include "ty_plan.h"
#include "ty_profile.h"
#include "ty_program.h"
#include "ty_status.h"

#include <stdint.h>

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
    double inner_s;      /* of a pass or an update: the part of `seconds` in which the lanes of a
                            rank exchange what tensor parallelism divides */
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
    uint32_t rank_count;
    uint32_t *rank_host; /* [rank]: host index; ranks of one host share its cores */
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
