/* The walk: every stream of every rank is an actor that goes through its instructions. Actors wait
 * for each other through counters that only grow. Built in the parent, which can fail politely;
 * walked in the child. */
#ifndef TY_WALK_H
#define TY_WALK_H

#include "ty_simulate.h"

#include <simgrid/forward.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ty_walk ty_walk;

/** A stream of a rank. */
typedef struct ty_walker {
    ty_walk *walk;
    uint32_t rank;
    ty_stream stream;
    uint32_t step; /* the one it is in */
    uint32_t lead; /* rounds that its rank runs ahead */
    sg_sem_t gate;
    const uint64_t *awaited; /* the counter it waits for; NULL while it runs */
    uint64_t awaited_value;
} ty_walker;

typedef struct ty_walk_rank {
    uint32_t stage;
    const ty_stage_program *program;
    const ty_instruction_cost *costs; /* [instruction] */
    char *host_name;                  /* of the SimGrid host */
    bool has_cores; /* work competes for the cores of its host; else nothing slows it */
    sg_host_t host;
    uint64_t *done;           /* [instruction]: in how many steps */
    const uint64_t **arrival; /* [instruction]: of a receive, the counter of its send */
    uint64_t first_event;     /* of a step's events, the rank's first */
    ty_walker walkers[TY_STREAM_COUNT];
} ty_walk_rank;

#define TY_GROUPS_OF_A_BUCKET (TY_MOST_PHASES + 1)
/** The members of a phase of a bucket's exchange, or of the gathers of its weights. */
typedef struct ty_group {
    uint32_t member_count; /* 1: nothing to exchange */
    uint32_t *ranks;       /* [member_count], ascending: the order of the ring and of the tree */
    ty_collective_kind kind;
    ty_algorithm algorithm;
    bool is_share;      /* of an exchange every few steps: what its cost is, without the network */
    ty_rails rails;     /* where the algorithm follows hosts: order indexes `ranks` */
    uint32_t *position; /* [member_count] in rails.order */
    sg_bar_t barrier;
    uint64_t *plays;   /* [member_count]: how often it has been played */
    uint64_t *arrived; /* [member_count]: messages that reached it */
    uint64_t *invited; /* [member_count]: messages it was ready for, where senders wait for that */
} ty_group;

struct ty_walk {
    const ty_plan *plan;
    uint32_t steps;
    ty_resolution resolution;
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
                      const ty_cluster *cluster, const ty_simulate_options *options, ty_walk **out,
                      ty_error *error) TY_MUST_CHECK;
void ty_walk_free(ty_walk *walk);

/** The host of a member. */
sg_host_t ty_group_host(const ty_walk *walk, const ty_group *group, uint32_t member);
/** Rounds of a binomial tree: the least r with 2^r >= members. */
uint32_t ty_tree_rounds(uint32_t members);

/** Walks it on the platform that the engine has open; fills `events`.
 *  @return TY_EBACKEND when actors were left waiting for each other. */
ty_status ty_walk_run(ty_walk *walk, ty_event *events, ty_error *error) TY_MUST_CHECK;

/** Waits until a counter has reached a value. */
void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value);
/** Adds one to a counter and wakes the streams of `rank` that waited for it. */
void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t rank);
/** Wakes without adding: for a counter that concerns a second rank. */
void ty_walk_wake(ty_walk *walk, const uint64_t *counter, uint32_t rank);

/** Cores that an instruction of a rank takes from others; 0 where they do not compete. */
double ty_walk_share(const ty_walk_rank *rank, const ty_instruction_cost *cost);

/**
 * A collective for one of its members, once all have come: how it is played for a resolution and
 * an algorithm. When it returns, the member has nothing left to do.
 */
typedef void (*ty_collective_play)(ty_walker *walker, ty_group *group, uint32_t member,
                                   const ty_instruction_cost *cost);
/** Whether an algorithm needs `rails`. */
bool ty_is_railed(ty_algorithm algorithm);
void ty_flow_rails(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost);
void ty_chunk_rails(ty_walker *walker, ty_group *group, uint32_t member,
                    const ty_instruction_cost *cost);
/* Phases are messages in both resolutions. */
void ty_phased_hierarchical(ty_walker *walker, ty_group *group, uint32_t member,
                            const ty_instruction_cost *cost);
void ty_phased_exchange(ty_walker *walker, ty_group *group, uint32_t member,
                        const ty_instruction_cost *cost);
void ty_flow_ring(ty_walker *walker, ty_group *group, uint32_t member,
                  const ty_instruction_cost *cost);
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t member,
                  const ty_instruction_cost *cost);
void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost);
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t member,
                         const ty_instruction_cost *cost);
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t member,
                   const ty_instruction_cost *cost);

#endif
