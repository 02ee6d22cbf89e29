/**
 * @file ty_simulate.h
 * Simulation of programs on a SimGrid platform.
 *
 *   failures  a long run whose devices, hosts and links fail
 *   simulate  steps of one plan, with stragglers and disturbances
 *   tenants   several jobs on one cluster
 *   analysis  load of links, traffic, memory over time
 */
#ifndef TY_SIMULATE_H
#define TY_SIMULATE_H

#include "ty_core.h"
#include "ty_topologies.h"

/* ==== failures ================================================================================ */

/*
 * A long run whose devices, hosts and links fail: checkpoints, restarts, going on with fewer
 * replicas, and what is left of the time. No step is simulated here; what a step takes, whole or
 * shrunken, comes from ty_simulate.
 *
 *     ty_endurance_question question = {.horizon_s = 30 * 86400.0, .failure_rate_per_s = 1e-5,
 *         .checkpoint_interval_s = 1800, .checkpoint_write_s = 20, .restart_s = 300, .seed = 1};
 *     TY_CHECK(ty_endure(&question, &endurance, error), status, cleanup);
 */

/** A failure that is known beforehand. */
typedef struct ty_known_fault {
    double time_s;
    double rate; /* how fast work goes on, after a restart, until the repair: 1 as before, as over
                    other links that are as fast; 0 not at all */
    uint32_t replicas; /* that it takes out, see `rates`; 0: none */
} ty_known_fault;

typedef struct ty_endurance_question {
    double horizon_s; /* wall-clock time of the run; > 0 */
    uint32_t known_count;
    const ty_known_fault *known;  /* [known_count], ascending by time */
    double failure_rate_per_s;    /* of all parts together: a Poisson process; 0: none */
    double checkpoint_interval_s; /* of work at full rate between checkpoints; > 0, HUGE_VAL:
                                     none are written */
    double checkpoint_write_s;    /* work stands still for that long; >= 0 */
    double restart_s;             /* from a failure to new work; >= 0 */
    double repair_s;              /* from a failure to the part's return; >= 0 */
    /* With `rate_count` 0 a spare takes the place of what fails. Else the run shrinks, by a replica
     * where the failure came by chance: with k replicas out it works at rates[k], rates[0] being 1;
     * with rate_count or more it waits. When a part returns, the run is restarted with it, from a
     * checkpoint written for that. */
    uint32_t rate_count;
    const double *rates;
    uint64_t seed;
} ty_endurance_question;

/** Where the time went; the parts add up to the horizon. */
typedef struct ty_endurance {
    double goodput;      /* work that lasts, in seconds at full rate, over the horizon */
    double work_s;       /* that lasts */
    double degraded_s;   /* what being fewer cost of it */
    double lost_s;       /* work that was done again, or is in no checkpoint at a failure */
    double checkpoint_s; /* writing */
    double down_s;       /* restarting, or waiting for a repair */
    uint32_t failures, checkpoints;
    uint32_t most_out; /* parts out of order at once */
} ty_endurance;

/**
 * Plays one run. Failures while down start the restart anew; failures while a checkpoint is written
 * lose it. At the end of the horizon what was done since the last checkpoint counts.
 * @return TY_EINVAL naming the figure that does not fit; TY_ELIMIT: more than ten million failures
 * and checkpoints
 * O(failures + checkpoints).
 */
ty_status ty_endure(const ty_endurance_question *question, ty_endurance *out,
                    ty_error *error) TY_MUST_CHECK;

/**
 * A plan with one replica less in every stage: the run goes on without the devices that worked with
 * a lost one; batches per replica stay, so that the global batch shrinks by as much.
 * @param stage_replica of the lost device
 * @param out [out] a plan without prediction
 * @return TY_EINFEASIBLE: stages with unequal replicas, or only one
 */
ty_status ty_plan_without_replica(const ty_plan *plan, uint32_t stage_replica, ty_plan **out,
                                  ty_error *error) TY_MUST_CHECK;

/* ==== simulate ================================================================================ */

/*
 * Walks a program on a simulated cluster (SimGrid): the same instructions and costs as the
 * estimator, but transfers and collectives share real links, and stage replicas share real cores.
 *
 *     ty_simulate_options options = ty_simulate_options_default();
 *     TY_CHECK(ty_simulate(plan, program, costs, cluster, &options, &timeline, error), status,
 * cleanup);
 *
 * How a cost is played:
 * - Compute, encode, decode, update, and loads from no such store: `seconds`; with a core_share on
 * a host whose cores are shared (host_cores finite), work of that many cores for as long, which
 * stretches when the host's stage replicas ask for more cores than there are. Cores go to work in
 * equal parts, up to what each can use.
 * - Load: its `latency_s`, and beside that edge_bytes from the store that the cluster's hosts
 * share, no faster than the rate limit: those that read at once share its bandwidth evenly, up to
 * what each can draw.
 * - Send: latency_s, then edge_bytes over the route of the two devices, no faster than the rate
 * limit; beside it core_share cores are busy at both ends for `seconds`. Done when all is done. The
 * receive ends then, or at once when it comes later; its own cost is not read.
 * - Collective: starts when the last member is ready. Its edges, between members in ascending order
 * of stage replica (a closed ring; or the edges of a binomial tree, up and then down), carry their
 * bytes as above, each member keeping its cores busy.
 * - A collective of every k-th step (ty_plan_exchange_interval): `seconds`, its share of one step,
 * and cores; no traffic, since a share may be shorter than a route's latency.
 * - Every device of the plan takes part: the ranks of a stage replica go through its program each
 * by itself, and send each to the same rank of the partner. An exchange is played by each group of
 * ty_plan.h, side by side: its members are the devices of the group, in ascending order of stage
 * replica, and of rank within one.
 * - What ranks exchange inside a pass or an update (ty_layer_inner_collectives,
 * ty_bucket_rank_bytes) is played by the ranks of each kind together, once all of them have come:
 * as they would in rings in channels, expert-parallel ranks each with each. `inner_s` is what all
 * of it takes alone; it is divided among the kinds by what each would take over the links between
 * its ranks, with the bytes of rings, but no more than these links carry in the time. The pass's
 * own work, `seconds` - `inner_s`, and the exchanges take turns, as many as there are collectives
 * and at most four, equal ones, the work first: one after the other as in the estimate, so that
 * without contention a pass takes `seconds`. Ranks whose links nobody else uses, and each of which
 * only one of them, have nobody to meet: they wait for each other and take their time, as they
 * would with flows.
 * - Between devices of one simulated host there is no link to share: such an edge takes `seconds`,
 * and cores. A cost's cores are those of the ranks that are on the host of the stage replica's
 * first; each rank takes its part of them.
 *
 * Devices, routes and links that are alike are simulated once (docs/guides/simulate.md), in `flow`,
 * where stage replicas do not share cores, and those that read from a shared store are all alike.
 * Whole, an actor for each stream of each device is walked: 0.94 GB for the 4,096 devices of a
 * pipeline; memory that runs out is TY_ENOMEM.
 *
 * Costs are refused beyond 1e9 s (also of edge_bytes at the rate limit), 1e18 bytes and 1e6 cores.
 *
 * On an empty cluster every instruction takes its `seconds`, if they come from the same links.
 *
 * A rate limit below the route's bandwidth is one in SimGrid where devices are folded. Whole, it is
 * played by sending in up to eight pieces at the pace of the limit: exact alone, and within an
 * eighth of the message of the even sharing that a true limit gives.
 *
 * SimGrid allows one platform per process and aborts on what it does not like. Everything is
 * checked before it sees anything, and each simulation runs in a child process whose death is
 * reported as TY_EBACKEND with its reason. Deterministic.
 */

/** How finely collectives are played. */
typedef enum ty_resolution {
    TY_FLOW, /* one flow per edge of the collective's pattern for all its bytes; a tree's one round
                after the other */
    TY_CHUNK /* every step of the ring or tree is a message */
} ty_resolution;

typedef struct ty_simulate_options {
    uint32_t steps; /* consecutive steps; >= 1 */
    ty_resolution resolution;
    const double *slowdowns; /* [stage replica][rank]: compute of that device takes so many times as
                                long; NULL: 1 for all */
    double jitter; /* standard deviation of the logarithm of each compute time, whose median stays;
                      0: none. Every device is simulated then */
    double spread; /* standard deviation of the logarithm of each device's speed, which it keeps for
                      all of its compute; the median stays; 0: none */
    uint64_t seed; /* of jitter and spread */
    bool no_fold;  /* simulate every device, also where many are alike; always so in chunk */
    ty_timeline *
        *devices; /* [out] besides, a timeline of each device, whose stage replicas are processes
                     (stage replica * ranks + rank): one of ty_plan_by_device. NULL: none */
    double time_limit_s; /* wall-clock seconds before the child is stopped (TY_ELIMIT); > 0 */
    double cpu_limit_s;  /* TY_ELIMIT if it would take more CPU time, by counting what it has to do:
                            the same on every machine; 0: no limit */
} ty_simulate_options;
ty_simulate_options ty_simulate_options_default(void); /* 3 steps, flow, 300 s */

/** Whether this build has the simulator: without it (TY_WITH_SIMULATE=OFF) everything that plays a
 *  program returns TY_EUNSUPPORTED. */
bool ty_simulate_is_built(void);
/** Loads SimGrid. @return TY_EUNSUPPORTED: it is not on this machine, or not in this build */
ty_status ty_simulate_load(ty_error *error) TY_MUST_CHECK;

/**
 * How much longer a step takes for the slowest of `members` equal machines, on the average of
 * public training logs: 1 + l / (l + 1) * 0.09 * sqrt(l), l = log2(members). Source: SimuMax 1.2,
 * straggler model.
 */
double ty_straggler_law(uint32_t members);

/**
 * Simulates consecutive steps of a program that passed ty_program_check. One that did not may fail
 * with TY_EBACKEND and a stage replica, its instruction and the step in which it was left waiting.
 * @param costs   of this program on this cluster: finite, >= 0; hosts and their cores as in the
 * cluster
 * @param out     [out] a sorted timeline with every instruction of every stage replica and step; of
 * a stage replica of several devices, from when the last of them was ready to when the last was
 * done
 * @return TY_EINVAL naming the figure that does not fit; TY_ELIMIT when the time was up;
 * TY_EINTERRUPTED when the child was interrupted; TY_EBACKEND when SimGrid failed, with what it
 * said. Some 10 microseconds per instruction or message, more where very many messages share a
 * link.
 */
ty_status ty_simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options,
                      ty_timeline **out, ty_error *error) TY_MUST_CHECK;

/**
 * How many devices ty_simulate would really walk: the classes they fall into, or all of them where
 * nothing is folded.
 */
ty_status ty_simulate_classes(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              const ty_cluster *cluster, const ty_simulate_options *options,
                              uint32_t *classes, ty_error *error) TY_MUST_CHECK;

/**
 * Step times (ty_timeline_summarize) of simulations with seeds options->seed, + 1, + 2 ..., as many
 * processes at once as there are cores.
 * @param step_times_s [out, seeds] in the order of the seeds
 * @return as ty_simulate, of the first that failed, naming its seed
 */
ty_status ty_simulate_seeds(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, const ty_simulate_options *options,
                            uint32_t seeds, double *step_times_s, ty_error *error) TY_MUST_CHECK;

/** What one direction of a link carries in a step. */
typedef struct ty_link_load {
    uint32_t link;    /* of the cluster */
    bool is_backward; /* against the link's direction */
    double bytes;  /* transfers, exchanges, gathers, and what ranks of a stage replica exchange */
    double busy_s; /* bytes / bandwidth: the least a step can take over it */
} ty_link_load;

/**
 * The links a step uses, the longest busy first: divide by the step time for utilisation. From the
 * program and its costs alone; what is simulated moves as much.
 * @param out [out] free with ty_free
 */
ty_status ty_link_loads(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                        const ty_cluster *cluster, ty_link_load **out, uint32_t *count,
                        ty_error *error) TY_MUST_CHECK;

/**
 * The SimGrid platform (XML, DTD 4.1) of a cluster, for programs of other people: one host per
 * device, as fast as its fp32 peak, links and routes as in the graph. ty_cluster_import reads it.
 * @return TY_EUNSUPPORTED for more than 512 devices that are no tree of switches.
 */
ty_status ty_cluster_to_simgrid(const ty_cluster *cluster, ty_text *xml,
                                ty_error *error) TY_MUST_CHECK;

/* ==== tenants ================================================================================= */

/*
 * Several jobs on one cluster: they talk to nobody but themselves, and share its links.
 */

struct ty_simulate_options;

typedef struct ty_tenant {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    uint32_t first_device; /* the plan's device 0 is this one of the cluster */
} ty_tenant;

/**
 * Simulates them side by side, each for options->steps steps from time 0; who has done its steps
 * leaves the links to the others.
 * @param options   slowdowns of all devices, of one job after the other
 * @param timelines [out, count] one of each; free each with ty_timeline_free
 * @return TY_EINVAL: a device that there is not, or that two use; TY_EUNSUPPORTED: jobs that differ
 * in ranks, interleaving, sharding, staleness, or what learning they are for; and as ty_simulate
 */
ty_status ty_simulate_tenants(const ty_tenant *tenants, uint32_t count, const ty_cluster *cluster,
                              const struct ty_simulate_options *options, ty_timeline **timelines,
                              ty_error *error) TY_MUST_CHECK;

/* ==== analysis ================================================================================ */

/*
 * What a simulated timeline says of links and memory: how full the busiest links are over time, who
 * sends how much to whom, how a stage replica's memory fills.
 */

/** One direction of a link over time. */
typedef struct ty_link_curve {
    uint32_t link;
    bool is_backward;
    const double *bytes; /* [bins]; within the one block of all curves */
} ty_link_curve;

typedef struct ty_link_history {
    double bin_s; /* the bins follow each other from 0 */
    uint32_t bin_count, curve_count;
    ty_link_curve *curves;
    double *block;
} ty_link_history;

/**
 * Bytes over some links in equal spans of time, of a timeline of this program: what a transfer or a
 * collective carries, spread evenly from when the last of its members was ready to its end; what
 * ranks exchange, over the whole pass. The sum over the bins is the bytes of ty_link_loads, times
 * the steps.
 * @param links [count] 2 * link, + 1 for the way against its direction
 * @param bins  >= 1
 * @param out   [out] clear with ty_link_history_clear
 */
ty_status ty_link_history_of(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             const ty_cluster *cluster, const ty_timeline *timeline,
                             const uint32_t *links, uint32_t count, uint32_t bins,
                             ty_link_history *out, ty_error *error) TY_MUST_CHECK;
void ty_link_history_clear(ty_link_history *history);

/** Between what a traffic matrix tells apart. */
typedef enum ty_traffic_ends { TY_BETWEEN_DEVICES, TY_BETWEEN_HOSTS } ty_traffic_ends;
/** Bytes that one device sends to another in a step, or the devices of one host to those of another
 * or to each other. */
typedef struct ty_traffic {
    uint32_t from, to;
    double bytes;
} ty_traffic;
/**
 * The traffic matrix, without its zeros: most bytes first. Transfers, collectives and what ranks of
 * a stage replica exchange, as they are played as flows; not what is exchanged in every few steps
 * only.
 * @param out [out] free with ty_free
 */
ty_status ty_traffic_matrix(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, ty_traffic_ends ends, ty_traffic **out,
                            uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** A stage replica's memory from a time on. */
typedef struct ty_memory_point {
    double time_s;
    uint64_t bytes;
} ty_memory_point;
/**
 * Memory of a device of `stage_replica` over the steps of a timeline: what the memory model says of
 * its pipeline rank, of the activations so many micro-batches as are in flight: from the start of
 * forward to the end of the backward that needs them last. Stages that share the device keep in
 * proportion to their layers. The highest point is the model's figure where the timeline has as
 * many in flight as the program allows.
 * @param out   [out] ascending in time; free with ty_free
 * @return TY_EINVAL: a plan without a memory model's answer, or no such stage replica
 */
ty_status ty_memory_curve(const ty_plan *plan, const ty_program *program,
                          const ty_timeline *timeline, uint32_t stage_replica,
                          ty_memory_point **out, uint32_t *count, ty_error *error) TY_MUST_CHECK;

#endif
