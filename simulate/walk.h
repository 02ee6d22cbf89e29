/* The walk: every stream of every device of a plan (a rank of a stage replica) is an actor that
 * runs its instructions. Actors wait for each other through counters that only grow. The parent
 * builds the walk, so errors are returned normally; the child runs it. */
#ifndef TY_WALK_H
#define TY_WALK_H

#include "engine.h"
#include "fold.h"
#include "pattern.h"
#include "ty_simulate.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ty_walk ty_walk;
typedef struct ty_group ty_group;

/** A stream of a device. All but that of receives are actors: a receive only waits, and the actor
 * that it waits for completes it. */
typedef struct ty_walker {
    ty_walk *walk;
    uint32_t index; /* among simulated devices */
    ty_stream stream;
    uint32_t step;        /* the current one */
    uint32_t lead;        /* rounds by which its stage replica runs ahead */
    uint32_t round, next; /* of receives: the current instruction */
    bool is_ready;        /* of receives: it waits only for the send */
    ty_gate *gate;
    const uint64_t *awaited; /* the counter it waits for; NULL while it runs */
    uint64_t awaited_value;
} ty_walker;

/** A device, or with folding a class of them, represented by its first.
 */
typedef struct ty_walk_device {
    uint32_t rank, stage_replica, replica_rank; /* of a class: of its first */
    uint32_t stage;
    const ty_stage_program *program;
    const ty_instruction_cost *costs; /* [instruction] */
    double slowdown;
    double core_part; /* share of a cost's cores, which are for a stage replica's ranks on one host;
                         0 without competition for cores */
    uint32_t host;
    uint64_t *done;           /* [instruction]: number of steps */
    const uint64_t **arrival; /* [instruction]: of a receive, the counter of its send */
    uint64_t first_event;     /* index of the device's first event in a step */
    ty_group *parallel[TY_PARALLELISM_COUNT]; /* groups inside instructions; NULL: none */
    ty_walker walkers[TY_STREAM_COUNT];
} ty_walk_device;

#define TY_GROUPS_OF_A_BUCKET (TY_GATHER_PHASE + 1)
/** The group of a phase of a bucket, of the all-gathers of its weights, or of a TP, CP or EP
 * collective; with folding, it represents all concurrent groups with interchangeable members. */
struct ty_group {
    uint32_t member_count; /* of simulated members */
    uint32_t *members;     /* [member_count], ascending: the order of the pattern; with folding, the
                              classes among them, each once */
    ty_collective_kind kind;
    const ty_pattern *pattern; /* of all members; NULL: takes its `seconds` */
    double latency_s;  /* in chunk: of one collective of the first member's first instruction, from
                          which all members derive the same steps */
    ty_fold_way *ways; /* with folding: messages that the first member sends for all */
    uint32_t way_count;
    ty_barrier barrier;
    ty_walker **waiting;    /* [member_count]: actors that the last to arrive releases, */
    uint32_t waiting_count; /* their number */
    uint64_t *plays;        /* in chunk, [member_count]: completed collectives */
    uint64_t *arrived; /* in chunk, [TY_MOST_LEGS][member_count]: messages received, by phase */
    uint64_t *invited; /* in chunk, [member_count]: messages that it is ready for, if senders wait
                          for that */
};

#define TY_NO_GROUP UINT32_MAX

struct ty_walk {
    const ty_plan *plan;
    const ty_cluster *cluster;
    const ty_fold *fold;     /* NULL: every device is simulated */
    ty_pattern_set patterns; /* without folding; else in the fold */
    const ty_parallel_exchanges *parallel;
    uint32_t width; /* ranks of a stage replica */
    ty_engine *engine;
    uint32_t steps;
    ty_resolution resolution;
    double jitter;
    uint64_t seed;
    bool are_ranks_alike; /* no device is ever slower than the other ranks of its stage replica */
    bool **is_apart; /* [pipeline rank][instruction]: a pass that cannot overlap with a gradient
                        collective of its device */
    uint32_t device_count;
    ty_walk_device *devices;
    uint32_t group_count;
    ty_group *groups;
    /* Index of groups: by bucket or kind of ranks, then by the number of the concurrent group.
     */
    uint32_t *bucket_slots;   /* [bucket][TY_GROUPS_OF_A_BUCKET]: phases, then gathers */
    uint32_t *parallel_slots; /* [pipeline rank][kind of ranks] */
    uint32_t *slots;          /* index of the group, or TY_NO_GROUP */
    uint64_t step_events;     /* of all simulated devices in one step */
    ty_event *events;         /* [steps][device][instruction]: written by walkers */
};

/** Matches receives with sends and finds the members of collectives.
 *  @return TY_EINVAL for a program that ty_program_check would reject. */
ty_status ty_walk_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const ty_fold *fold, const ty_simulate_options *options, ty_walk **out,
                      ty_error *error) TY_MUST_CHECK;
void ty_walk_free(ty_walk *walk);

/** Approximate number of the engine's activities in all steps. */
double ty_walk_activities(const ty_walk *walk);

/** The group of a device's collective. */
ty_group *ty_walk_group(const ty_walk *walk, const ty_walk_device *device,
                        const ty_instruction *instruction);
/** Index of the simulated device that represents a rank. */
uint32_t ty_walk_index(const ty_walk *walk, uint32_t rank);
/** The rank that a send or receive of a device is matched with. */
uint32_t ty_walk_peer(const ty_walk *walk, const ty_walk_device *device,
                      const ty_instruction *instruction);

/** Runs it on an open engine, with the network of its cluster or fold; fills `events`.
 * @return TY_EBACKEND if actors were in deadlock. */
ty_status ty_walk_run(ty_walk *walk, ty_engine *engine, ty_event *events,
                      ty_error *error) TY_MUST_CHECK;

/** Waits until a counter has reached a value. */
void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value);
/** Increments a counter and wakes the streams of a device that wait for it. */
void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t index);

/** Cores that an instruction takes from others; 0 if they do not compete. */
static inline double ty_walk_share(const ty_walk_device *device, const ty_instruction_cost *cost)
{
    return device->core_part * cost->core_share;
}

/** Number of turns in which work and collectives of a pass alternate: a pass has several in each
 * layer. */
static inline uint32_t ty_walk_turns(const ty_parallel_instruction *parallel)
{
    enum { MOST_TURNS = 4 };
    return parallel->collectives < MOST_TURNS ? parallel->collectives : MOST_TURNS;
}
/** Runs all plays at once. */
static inline void ty_walk_play(ty_walker *walker, const ty_play *plays, uint32_t count)
{
    ty_engine_play(walker->walk->engine, walker->gate, plays, count);
}
/** Allocates `count` plays; ends the child if memory runs out. Free with ty_free. */
ty_play *ty_walk_plays(uint32_t count);
/** Sets the two ends of a class of routes; for TY_NO_FLOW the same host. */
void ty_walk_aim(const ty_walker *walker, uint32_t flow, ty_message *message);

/**
 * A collective for one of its members, once all have arrived. When it returns, the member has
 * completed it.
 * @param place of the member in group->members
 */
typedef void (*ty_collective_play)(ty_walker *walker, ty_group *group, uint32_t place,
                                   const ty_instruction_cost *cost);
void ty_flow_play(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost);
void ty_flow_tree(ty_walker *walker, ty_group *group, uint32_t place,
                  const ty_instruction_cost *cost);
/** With folding, the first member runs the collective for all; the others wait for it. */
void ty_flow_folded(ty_walker *walker, const ty_group *group, const ty_instruction_cost *cost);
/** Rings, of one edge per member or in channels. */
void ty_chunk_ring(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost);
void ty_chunk_tree(ty_walker *walker, ty_group *group, uint32_t place,
                   const ty_instruction_cost *cost);
void ty_chunk_hierarchy(ty_walker *walker, ty_group *group, uint32_t place,
                        const ty_instruction_cost *cost);
void ty_chunk_all_to_all(ty_walker *walker, ty_group *group, uint32_t place,
                         const ty_instruction_cost *cost);

#endif
