/* The sends of a collective: `flow` simulates them at once, folding classifies them, and link loads
 * add them up. */
#ifndef TY_PATTERN_H
#define TY_PATTERN_H

#include "engine.h"
#include "parallel_exchange.h"
#include "ty_simulate.h"

/** Shapes; a kind of collective and an algorithm determine one. */
typedef enum ty_pattern_shape {
    TY_SHAPE_RING,
    TY_SHAPE_TREE,       /* binomial, up and then down, in rounds; the root is the first member */
    TY_SHAPE_RAILS,      /* rings in channels: around each host and across hosts at once; on a torus
                            along all axes at once, both ways */
    TY_SHAPE_HIERARCHY,  /* around each host, across hosts, around again */
    TY_SHAPE_SERVERS,    /* all-to-all, twice */
    TY_SHAPE_DEDICATED,  /* members send shards to servers, which return the sums */
    TY_SHAPE_ALL_TO_ALL, /* every member sends a share to every other */
    TY_SHAPE_COUNT
} ty_pattern_shape;

/** The phase that denotes the all-gathers of a bucket's weights. */
#define TY_GATHER_PHASE TY_MOST_PHASES

/**
 * The pattern of a group that reduces a bucket (ty_plan.h), or of a TP, CP or EP group. Its devices
 * are the members, numbered from 0 in ascending order of stage replica, then of rank within it. All
 * groups of a kind do the same concurrently; TP, CP and EP groups are numbered replica by replica.
 */
typedef struct ty_pattern {
    uint32_t pipeline_rank, tied; /* TY_NO_STAGE */
    ty_parallelism among;         /* TY_PARALLELISM_COUNT: of buckets */
    ty_pattern_shape shape;
    bool of_experts;
    bool is_quiet;   /* of TP, CP or EP, if requested: no other traffic on their links, and one rank
                        per link: no contention */
    bool is_private; /* the same, except gradient collectives of their own devices */
    uint32_t member_count;
    uint32_t servers;                     /* of a dedicated shape: places after those of members */
    uint32_t ranks, groups;               /* members per stage replica; concurrent groups */
    ty_rails rails;                       /* of shapes that follow hosts; `order` indexes members */
    uint32_t *places;                     /* [member] in rails.order */
    double tree_rounds;                   /* of a tree: the least r with 2^r >= members */
    uint32_t replicas, first_replicas[2]; /* of the lower pipeline rank; of both */
} ty_pattern;

/** All patterns of a plan, each once. */
typedef struct ty_pattern_set {
    uint32_t count;
    ty_pattern *patterns;
} ty_pattern_set;

/**
 * Fills the patterns of buckets, then those of TP, CP and EP.
 * @param parallel NULL: without the latter
 * @return TY_EUNSUPPORTED naming the bucket whose algorithm has no shape. Clear it after a failure
 * too.
 */
ty_status ty_pattern_set_fill(ty_pattern_set *set, const ty_plan *plan,
                              const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                              ty_error *error) TY_MUST_CHECK;
void ty_pattern_set_clear(ty_pattern_set *set);
/** The pattern of a phase of a bucket. NULL if nothing is sent: one member, no such phase, or a
 * collective of every k-th step, which is simulated as time only. */
const ty_pattern *ty_pattern_of(const ty_pattern_set *set, const ty_plan *plan,
                                const ty_bucket *bucket, uint32_t phase);
/** The pattern of the TP, CP or EP ranks of a pipeline rank; NULL without collectives. */
const ty_pattern *ty_pattern_of_parallel(const ty_pattern_set *set, uint32_t pipeline_rank,
                                         ty_parallelism kind);

/** The rank of a member of a group: stage replica * ranks of a stage replica + rank within it; for
 * a server the rank it is launched as. */
uint32_t ty_pattern_rank(const ty_plan *plan, const ty_pattern *pattern, uint32_t member,
                         uint32_t group);
/** Ranks of a group of a bucket, ascending.
 * @param ranks [out] room for ty_bucket_device_count */
void ty_pattern_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                        uint32_t *ranks);

/** Members by their rings inside a host and across hosts. */
uint32_t ty_pattern_around(const ty_pattern *pattern, uint32_t member, uint32_t further);
uint32_t ty_pattern_across(const ty_pattern *pattern, uint32_t member, uint32_t hosts);

/** A message between members; from a member to itself, only time. */
typedef struct ty_leg {
    uint32_t from, to;
    ty_message message; /* without its ends */
} ty_leg;
/** Messages one after another; all strands of all members run concurrently. */
typedef struct ty_strand {
    uint32_t count;
    ty_leg legs[TY_MOST_LEGS];
} ty_strand;
enum { TY_MOST_STRANDS = 8 };
/** The strands of a member; their number and peers do not depend on the cost. */
uint32_t ty_pattern_strands(const ty_pattern *pattern, uint32_t member,
                            const ty_instruction_cost *cost, ty_strand out[TY_MOST_STRANDS]);

/** One of `count` equal messages that follow each other over an edge. */
ty_message ty_message_part(const ty_instruction_cost *cost, double count);
/** Rounds of a binomial tree, one way. */
uint32_t ty_tree_rounds(uint32_t members);
/** The round, from 0, in which a member of a binomial tree sends to its parent; UINT32_MAX for
 * member 0, which has none. On the way down the rounds are in reverse order. */
uint32_t ty_tree_turn(uint32_t member);

/** Shares of a hierarchy's cost: one phase inside hosts, and the one across. */
typedef struct ty_hierarchy_parts {
    double around_latency_s, across_latency_s;
    double around_bytes, across_bytes;
    double around_s, across_s; /* transfer only */
} ty_hierarchy_parts;

#endif
