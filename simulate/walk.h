/* The walk: every stream of every rank is an actor that goes through its instructions. Actors wait
 * for each other through counters that only grow. Built in the parent, which can fail politely;
 * walked in the child. */
#ifndef TY_WALK_H
#define TY_WALK_H

#include "engine.h"
#include "fold.h"
#include "pattern.h"
#include "ty_simulate.h"

#include <simgrid/forward.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ty_walk ty_walk;

/** A stream of a rank. */
typedef struct ty_walker {
    ty_walk *walk;
    uint32_t rank; /* index of those that are walked */
    ty_stream stream;
    uint32_t step; /* the one it is in */
    uint32_t lead; /* rounds that its rank runs ahead */
    sg_sem_t gate;
    const uint64_t *awaited; /* the counter it waits for; NULL while it runs */
    uint64_t awaited_value;
} ty_walker;

/** A rank, or with folding a class of them. */
typedef struct ty_walk_rank {
    uint32_t number; /* in the plan; of a class, its first */
    uint32_t stage;
    const ty_stage_program *program;
    const ty_instruction_cost *costs; /* [instruction] */
    double slowdown;
    bool has_cores;           /* work competes for the cores of its host; else nothing slows it */
    sg_host_t *hosts;         /* [lane] */
    uint64_t *done;           /* [instruction]: in how many steps */
    const uint64_t **arrival; /* [instruction]: of a receive, the counter of its send */
    uint64_t first_event;     /* of a step's events, the rank's first */
    ty_walker walkers[TY_STREAM_COUNT];
} ty_walk_rank;

#define TY_GROUPS_OF_A_BUCKET (TY_GATHER_PHASE + 1)
/** The members of a phase of a bucket's exchange, or of the gathers of its weights. */
typedef struct ty_group {
    uint32_t member_count; /* of those that are walked; 0: no such phase */
    uint32_t *ranks;       /* [member_count], ascending: the order of the pattern, which has members
                              for `lanes` of each; with folding, the classes among them, each once */
    uint32_t lanes;
    ty_collective_kind kind;
    const ty_pattern *pattern; /* of all members; NULL: it takes its `seconds` */
    double latency_s;          /* step by step: of the first member's first instruction, by which
                                  all members count steps, every time alike */
    ty_fold_way *ways;         /* with folding: what the first member plays for all */
    uint32_t way_count;
    sg_bar_t barrier;
    uint64_t *plays;   /* [member_count]: how often it has been played */
    uint64_t *arrived; /* [TY_MOST_LEGS][members of the pattern]: messages that reached each, in
                          each phase */
    uint64_t *invited; /* [member_count]: messages it was ready for, where senders wait for that */
} ty_group;

struct ty_walk {
    const ty_plan *plan;
    const ty_cluster *cluster;
    const ty_fold *fold;     /* NULL: every rank is walked */
    ty_pattern_set patterns; /* without folding; else the fold has them */
    uint32_t width;          /* lanes of a rank */
    ty_crew *crew;
    sg_host_t *flow_ends; /* [class of routes][from, to], with folding */
    uint32_t steps;
    ty_resolution resolution;
    double jitter;
    uint64_t seed;
    uint32_t rank_count;
    ty_walk_rank *ranks;
    uint32_t group_count;
    ty_group *groups;     /* [bucket][TY_GROUPS_OF_A_BUCKET]: phases, then gathers */
    uint64_t step_events; /* of all ranks in one step */
    ty_event *events;     /* [steps][rank][instruction]: where walkers write */
};

/** Matches receives with sends and finds the members of collectives.
 *  @return TY_EINVAL for what ty_program_check would have refused. */
ty_status ty_walk_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_fold *fold,
                      const ty_simulate_options *options, ty_walk **out,
                      ty_error *error) TY_MUST_CHECK;
void ty_walk_free(ty_walk *walk);

/** Walks it in no time, without SimGrid, in the parent.
 *  @return TY_EINVAL "deadlock: rank 1 at instruction 4 (receive) of step 0 waits for rank 0 at
 *  ..." */
ty_status ty_walk_check(ty_walk *walk, ty_error *error) TY_MUST_CHECK;

/** The members of a collective. */
ty_group *ty_walk_group(const ty_walk *walk, const ty_instruction *instruction);
/** The host of a member of the pattern, in the `side`-th of the groups side by side. */
sg_host_t ty_group_host(const ty_walk *walk, const ty_group *group, uint32_t member, uint32_t side);
/** Which of those that are walked stands for a rank. */
uint32_t ty_walk_index(const ty_walk *walk, uint32_t rank);

/** Walks it on the platform that the engine has open; fills `events`.
 *  @return TY_EBACKEND when actors were left waiting for each other. */
ty_status ty_walk_run(ty_walk *walk, ty_event *events, ty_error *error) TY_MUST_CHECK;

/** Waits until a counter has reached a value. */
void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value);
/** Adds one to a counter and wakes the streams of `rank` that waited for it. */
void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t rank);

/** Cores that an instruction of a rank takes from others; 0 where they do not compete. */
double ty_walk_share(const ty_walk_rank *rank, const ty_instruction_cost *cost);

/** Plays `plays[lane]`, or with folding `plays[way]`, all at once. */
void ty_walk_play(ty_walker *walker, const ty_play *plays, uint32_t count);
/** Room for so many plays; ends the child where there is none. Free with ty_free. */
ty_play *ty_walk_plays(uint32_t count);
/** The two ends of a class of routes; of TY_NO_FLOW, nowhere. */
void ty_walk_aim(const ty_walker *walker, uint32_t flow, ty_message *message);

/**
 * A collective for one of its ranks, once all have come: for all members of the pattern that are
 * lanes of it, in all groups. When it returns, the rank has nothing left to do.
 * @param place of the rank in group->ranks
 */
typedef void (*ty_collective_play)(ty_walker *walker, ty_group *group, uint32_t place,
                                   const ty_instruction_cost *cost);
void ty_flow_play(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost);
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost);
/** With folding, the first member's play of what all do; the others wait for it. */
void ty_flow_folded(ty_walker *walker, const ty_group *group, const ty_instruction_cost *cost);
/** Rings, of one edge a member or in channels. */
void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost);
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost);
void ty_chunk_hierarchy(ty_walker *walker, ty_group *group, uint32_t place,
                        const ty_instruction_cost *cost);
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t place,
                         const ty_instruction_cost *cost);

#endif
