/* The walk: every stream of every device of a plan (a rank of a stage replica) is an actor that
 * goes through its instructions. Actors wait for each other through counters that only grow. Built
 * in the parent, which can fail politely; walked in the child. */
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
typedef struct ty_group ty_group;

/** A stream of a device. All but that of receives are actors: a receive only waits, and is seen to
 * by whoever it waits for. */
typedef struct ty_walker {
    ty_walk *walk;
    uint32_t index; /* of those that are walked */
    ty_stream stream;
    uint32_t step;        /* the one it is in */
    uint32_t lead;        /* rounds that its stage replica runs ahead */
    uint32_t round, next; /* of receives: the instruction that it is at */
    bool is_ready;        /* of receives: it waits for nothing but the send */
    sg_sem_t gate;
    const uint64_t *awaited; /* the counter it waits for; NULL while it runs */
    uint64_t awaited_value;
} ty_walker;

/** A device, or with folding a class of them: the same rank of the same stage replica wherever one
 * is named.
 */
typedef struct ty_walk_device {
    uint32_t rank, stage_replica, replica_rank; /* of a class, of its first */
    uint32_t stage;
    const ty_stage_program *program;
    const ty_instruction_cost *costs; /* [instruction] */
    double slowdown;
    double core_part; /* of the cores that a cost has for a stage replica's ranks on one host; 0
                         where nothing competes for cores */
    sg_host_t host;
    uint64_t *done;           /* [instruction]: in how many steps */
    const uint64_t **arrival; /* [instruction]: of a receive, the counter of its send */
    uint64_t first_event;     /* of a step's events, the device's first */
    ty_group *
        parallel[TY_PARALLELISM_COUNT]; /* with whom it exchanges inside instructions; NULL: none */
    ty_walker walkers[TY_STREAM_COUNT];
} ty_walk_device;

#define TY_GROUPS_OF_A_BUCKET (TY_GATHER_PHASE + 1)
/** Who does a phase of a bucket's exchange together, or the gathers of its weights, or what ranks
 * exchange; with folding, for all groups side by side whose members are alike. */
struct ty_group {
    uint32_t member_count; /* of those that are walked */
    uint32_t *members;     /* [member_count], ascending: the order of the pattern; with folding, the
                              classes among them, each once */
    ty_collective_kind kind;
    const ty_pattern *pattern; /* of all members; NULL: it takes its `seconds` */
    double latency_s;          /* step by step: of one collective of the first member's first
                                  instruction, by which all members count steps, every time alike */
    ty_fold_way *ways;         /* with folding: what the first member plays for all */
    uint32_t way_count;
    sg_bar_t barrier;
    ty_walker **waiting;    /* [member_count]: ranks that the last to come lets go, */
    uint32_t waiting_count; /* so many */
    uint64_t *plays;        /* step by step, [member_count]: how often it has been played */
    uint64_t *arrived; /* step by step, [TY_MOST_LEGS][member_count]: messages that reached each, in
                          each phase */
    uint64_t *invited; /* step by step, [member_count]: messages it was ready for, where senders
                          wait for that */
};

#define TY_NO_GROUP UINT32_MAX

struct ty_walk {
    const ty_plan *plan;
    const ty_cluster *cluster;
    const ty_fold *fold;     /* NULL: every device is walked */
    ty_pattern_set patterns; /* without folding; else the fold has them */
    const ty_parallel_exchanges *parallel;
    uint32_t width; /* ranks of a stage replica */
    ty_crew *crew;
    sg_host_t *flow_ends;    /* [class of routes][from, to], with folding */
    ty_limit *flow_limits;   /* [class of routes], with folding */
    sg_host_t *server_hosts; /* [servers of the plan], without */
    sg_host_t store;         /* that hosts share; NULL: none, or with folding */
    uint32_t steps;
    ty_resolution resolution;
    double jitter;
    uint64_t seed;
    bool are_ranks_alike; /* no device is slower than the other ranks of its stage replica, nor at
                             times */
    bool **is_apart; /* [pipeline rank][instruction]: a pass that cannot overlap with a collective
                        of the buckets of its device */
    uint32_t device_count;
    ty_walk_device *devices;
    uint32_t group_count;
    ty_group *groups;
    /* Where a group is found: by what it exchanges, then by the number of the group side by side.
     */
    uint32_t *bucket_slots;   /* [bucket][TY_GROUPS_OF_A_BUCKET]: phases, then gathers */
    uint32_t *parallel_slots; /* [pipeline rank][kind of ranks] */
    uint32_t *slots;          /* index of the group, or TY_NO_GROUP */
    uint64_t step_events;     /* of all that are walked in one step */
    ty_event *events;         /* [steps][device][instruction]: where walkers write */
};

/** Matches receives with sends and finds the members of collectives.
 *  @return TY_EINVAL for what ty_program_check would have refused. */
ty_status ty_walk_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const ty_fold *fold, const ty_simulate_options *options, ty_walk **out,
                      ty_error *error) TY_MUST_CHECK;
void ty_walk_free(ty_walk *walk);

/** Activities of SimGrid in all steps, roughly. */
double ty_walk_activities(const ty_walk *walk);

/** With whom a device does a collective. */
ty_group *ty_walk_group(const ty_walk *walk, const ty_walk_device *device,
                        const ty_instruction *instruction);
/** Which of those that are walked stands for a process. */
uint32_t ty_walk_index(const ty_walk *walk, uint32_t rank);
/** The process that a send or receive of a device is matched with. */
uint32_t ty_walk_peer(const ty_walk *walk, const ty_walk_device *device,
                      const ty_instruction *instruction);

/** Walks it on the platform that the engine has open; fills `events`.
 *  @return TY_EBACKEND when actors were left waiting for each other. */
ty_status ty_walk_run(ty_walk *walk, ty_event *events, ty_error *error) TY_MUST_CHECK;

/** Waits until a counter has reached a value. */
void ty_walk_await(ty_walker *walker, const uint64_t *counter, uint64_t value);
/** Adds one to a counter and wakes the streams of a device that waited for it. */
void ty_walk_advance(ty_walk *walk, uint64_t *counter, uint32_t index);

/** Cores that an instruction takes from others; 0 if they do not compete. */
static inline double ty_walk_share(const ty_walk_device *device, const ty_instruction_cost *cost)
{
    return device->core_part * cost->core_share;
}

/** In how many turns work and collectives of a pass are played: it has several in each layer. */
static inline uint32_t ty_walk_turns(const ty_parallel_instruction *parallel)
{
    enum { MOST_TURNS = 4 };
    return parallel->collectives < MOST_TURNS ? parallel->collectives : MOST_TURNS;
}
/** Plays all at once. */
static inline void ty_walk_play(ty_walker *walker, const ty_play *plays, uint32_t count)
{
    ty_engine_play(walker->walk->crew, walker->gate, plays, count);
}
/** Room for so many plays; ends the child where there is none. Free with ty_free. */
ty_play *ty_walk_plays(uint32_t count);
/** The two ends of a class of routes, and its limit; of TY_NO_FLOW, nowhere. */
void ty_walk_aim(const ty_walker *walker, uint32_t flow, ty_message *message);

/**
 * A collective for one of its members, once all have come. When it returns, the member has nothing
 * left to do.
 * @param place of the member in group->members
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
