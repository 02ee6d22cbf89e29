/* Who sends to whom in a collective: what `flow` plays all at once, what folding looks at, and what
 * link loads add up. */
#ifndef TY_PATTERN_H
#define TY_PATTERN_H

#include "engine.h"
#include "parallel_exchange.h"
#include "ty_simulate.h"

/** The shapes there are; a kind of collective and an algorithm have one. */
typedef enum ty_pattern_shape {
    TY_SHAPE_RING,
    TY_SHAPE_TREE,       /* binomial, up and then down, in rounds; the root is the first member */
    TY_SHAPE_RAILS,      /* rings in channels: around each host and across hosts at once; on a torus
                            along all axes at once, both ways */
    TY_SHAPE_HIERARCHY,  /* around each host, across hosts, around again */
    TY_SHAPE_SERVERS,    /* everybody sends a share to everybody, twice */
    TY_SHAPE_DEDICATED,  /* members send shares to servers, which send them back summed */
    TY_SHAPE_ALL_TO_ALL, /* everybody sends a share to everybody */
    TY_SHAPE_COUNT
} ty_pattern_shape;

/** Stands for the gathers of a bucket where a phase of its exchange is asked for. */
#define TY_GATHER_PHASE TY_MOST_PHASES

/**
 * Of a group that exchanges a bucket (ty_plan.h), or of the ranks of a kind of one stage replica:
 * its devices are the members, numbered from 0 in ascending order of stage replica, and of rank
 * within a stage replica. All groups do the same side by side; those of ranks are numbered replica
 * by replica.
 */
typedef struct ty_pattern {
    uint32_t pipeline_rank, tied; /* TY_NO_STAGE */
    ty_parallelism among;         /* TY_PARALLELISM_COUNT: of buckets */
    ty_pattern_shape shape;
    bool of_experts;
    bool is_quiet; /* of ranks, where asked for: nobody else uses their links, nor two of them one:
                      they take what they take alone */
    bool
        is_private; /* the same, but for exchanges of buckets that their own devices take part in */
    uint32_t member_count;
    uint32_t servers;                     /* of a dedicated shape: places behind those of members */
    uint32_t ranks, groups;               /* members of each stage replica; groups side by side */
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
 * First those of buckets, then those of ranks.
 * @param parallel NULL: without those
 * @return TY_EUNSUPPORTED naming the bucket whose algorithm has no shape. Clear it after a failure
 * too.
 */
ty_status ty_pattern_set_fill(ty_pattern_set *set, const ty_plan *plan,
                              const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                              ty_error *error) TY_MUST_CHECK;
void ty_pattern_set_clear(ty_pattern_set *set);
/** Of a phase of a bucket's exchange. NULL where nothing is sent: one member, no such phase, or an
 * exchange of every few steps, which is played as time. */
const ty_pattern *ty_pattern_of(const ty_pattern_set *set, const ty_plan *plan,
                                const ty_bucket *bucket, uint32_t phase);
/** Of the ranks of a kind of a pipeline rank; NULL where they exchange nothing. */
const ty_pattern *ty_pattern_of_parallel(const ty_pattern_set *set, uint32_t pipeline_rank,
                                         ty_parallelism kind);

/** The device of a member of a group, as a process: stage replica * ranks of a stage replica +
 * rank; of a server the process it is launched as. */
uint32_t ty_pattern_rank(const ty_plan *plan, const ty_pattern *pattern, uint32_t member,
                         uint32_t group);
/** Members of a group of a bucket, likewise and ascending.
 * @param ranks [out] room for ty_bucket_device_count */
void ty_pattern_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                        uint32_t *ranks);

/** Members by their ways inside a host and across hosts. */
uint32_t ty_pattern_around(const ty_pattern *pattern, uint32_t member, uint32_t further);
uint32_t ty_pattern_across(const ty_pattern *pattern, uint32_t member, uint32_t hosts);

/** A message between members; of one with itself, nothing but time. */
typedef struct ty_leg {
    uint32_t from, to;
    ty_message message; /* without its ends */
} ty_leg;
/** Messages one after the other; all strands of all members run side by side. */
typedef struct ty_strand {
    uint32_t count;
    ty_leg legs[TY_MOST_LEGS];
} ty_strand;
enum { TY_MOST_STRANDS = 8 };
/** The strands of a member; how many and whom they meet does not depend on the cost. */
uint32_t ty_pattern_strands(const ty_pattern *pattern, uint32_t member,
                            const ty_instruction_cost *cost, ty_strand out[TY_MOST_STRANDS]);

/** One of `count` equal messages that follow each other over an edge. */
ty_message ty_message_part(const ty_instruction_cost *cost, double count);
/** Rounds of a binomial tree, one way. */
uint32_t ty_tree_rounds(uint32_t members);
/** The round, from 0, in which a member of a binomial tree sends to its parent; of member 0, which
 * has none, UINT32_MAX. On the way down the rounds come backwards. */
uint32_t ty_tree_turn(uint32_t member);

/** Of a hierarchy's cost, what one phase around the host and the one across takes. */
typedef struct ty_hierarchy_parts {
    double around_latency_s, across_latency_s;
    double around_bytes, across_bytes;
    double around_s, across_s; /* transfer alone */
} ty_hierarchy_parts;

#endif
