/**
 * @file ty_simulate.h
 * Simulation of programs on a simulated cluster, by SimGrid or by the flow engine.
 *
 *   failures  a long run with device, host and link failures
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
 * Simulates a long run with device, host and link failures: checkpoints, restarts, fewer replicas,
 * and the goodput. Step times, with all or fewer replicas, are inputs: take them from ty_simulate.
 *
 *     ty_endurance_question question = {.horizon_s = 30 * 86400.0, .failure_rate_per_s = 1e-5,
 *         .checkpoint_interval_s = 1800, .checkpoint_write_s = 20, .restart_s = 300, .seed = 1};
 *     TY_CHECK(ty_endure(&question, &endurance, error), status, cleanup);
 */

/** A failure at a fixed time. */
typedef struct ty_known_fault {
    double time_s;
    double rate; /* rate of work from the restart to the repair: 1 unchanged, as over other links of
                    the same speed; 0 none */
    uint32_t replicas; /* that it removes, see `rates`; 0: none */
} ty_known_fault;

typedef struct ty_endurance_question {
    double horizon_s; /* wall-clock time of the run; > 0 */
    uint32_t known_count;
    const ty_known_fault *known;  /* [known_count], ascending by time */
    double failure_rate_per_s;    /* of all components together: a Poisson process; 0: none */
    double checkpoint_interval_s; /* work at full rate between checkpoints; > 0, HUGE_VAL: no
                                     checkpoints */
    double checkpoint_write_s;    /* work pauses for that long; >= 0 */
    double restart_s;             /* from a failure until work resumes; >= 0 */
    double repair_s;              /* from a failure to the component's return; >= 0 */
    /* With `rate_count` 0, a spare replaces each failed component. Else the run continues with
     * fewer replicas: a random failure removes one. With k replicas out it works at rates[k],
     * rates[0] = 1; with rate_count or more out it waits. When a component returns, the run writes
     * a checkpoint and restarts with it. */
    uint32_t rate_count;
    const double *rates;
    uint64_t seed;
} ty_endurance_question;

/** Time by cause; the terms add up to the horizon. */
typedef struct ty_endurance {
    double goodput;      /* useful work, in seconds at full rate, over the horizon */
    double work_s;       /* useful work, at full rate */
    double degraded_s;   /* lost to the lower rate of fewer replicas */
    double lost_s;       /* work that a failure discarded, because no checkpoint has it */
    double checkpoint_s; /* writing checkpoints */
    double down_s;       /* restarts, and waits for a repair */
    uint32_t failures, checkpoints;
    uint32_t most_out; /* maximum number of failed components at once */
} ty_endurance;

/**
 * Simulates one run. A failure during a restart starts the restart again. A failure while a
 * checkpoint is written discards that checkpoint. At the end of the horizon, work since the last
 * checkpoint counts.
 * @return TY_EINVAL naming the field that is out of range; TY_ELIMIT: more than ten million
 * failures and checkpoints. O(failures + checkpoints).
 */
ty_status ty_endure(const ty_endurance_question *question, ty_endurance *out,
                    ty_error *error) TY_MUST_CHECK;

/**
 * Makes a plan with one model replica less: the run continues without all devices of the lost
 * device's replica. The batch per replica stays, so the global batch shrinks in proportion.
 * @param stage_replica of the lost device
 * @param out [out] a plan without prediction
 * @return TY_EINFEASIBLE: stages with unequal replicas, or only one
 */
ty_status ty_plan_without_replica(const ty_plan *plan, uint32_t stage_replica, ty_plan **out,
                                  ty_error *error) TY_MUST_CHECK;

/* ==== simulate ================================================================================ */

/*
 * Simulates a program on a cluster with SimGrid: the same instructions and costs as the estimator,
 * but send/recv and collectives share links, and stage replicas share cores.
 *
 *     ty_simulate_options options = ty_simulate_options_default();
 *     TY_CHECK(ty_simulate(plan, program, costs, cluster, &options, &timeline, error), ...);
 *
 * How costs are simulated:
 * - Compute, encode, decode, update, and loads without a shared store: `seconds`. With a core_share
 * on a host with shared cores (host_cores finite), it is work of that many cores for that time, and
 * takes longer if the host's stage replicas need more cores than it has. Work gets equal shares of
 * the cores, up to what each can use.
 * - Load: its `latency_s`, and concurrently edge_bytes from the store that the cluster's hosts
 * share, no faster than the rate limit. Concurrent readers share its bandwidth evenly, up to each
 * reader's limit.
 * - Send: latency_s, then edge_bytes over the route of the two devices, no faster than the rate
 * limit; meanwhile core_share cores are busy at both ends for `seconds`. It ends when all of that
 * has ended. The receive ends then, or at once if it starts later; its own cost is not read.
 * - Collective: starts when the last member is ready. Its edges, between members in ascending order
 * of stage replica (a closed ring; or the edges of a binomial tree, up and then down), carry their
 * bytes as above, while each member's cores are busy.
 * - Collective of every k-th step (ty_plan_exchange_interval): `seconds`, averaged per step, and
 * cores. It has no traffic, because the average may be shorter than a route's latency.
 * - Every device of the plan takes part: each rank of a stage replica runs its program alone, and
 * sends to the same rank of the partner. Every process group of ty_plan.h runs its own collective
 * concurrently: its members are the devices of the group, in ascending order of stage replica, then
 * of rank within it.
 * - TP, CP and EP collectives inside a pass or an update (ty_layer_inner_collectives,
 * ty_bucket_rank_bytes) run per process group, once all its ranks are ready: as rings in channels,
 * EP as an all-to-all. `inner_s` is the time of all of them without contention. It is split among
 * the groups by the time that each needs on the links between its ranks, with the bytes of rings,
 * but at most what these links carry in that time. The pass's own work, `seconds` - `inner_s`, and
 * the collectives alternate in equal parts, as many as there are collectives and at most four, the
 * work first. They follow each other as in the estimate, so a pass without contention takes
 * `seconds`. Ranks whose links have no other traffic, each link used by one rank only, cannot meet
 * contention: they wait for each other and take their time, as with flows.
 * - Devices of one simulated host have no link to share: an edge between them takes `seconds`, and
 * cores. A cost's cores are those of the ranks on the host of the stage replica's first rank; each
 * rank takes its share of them.
 *
 * Folding (docs/guides/simulate.md) simulates interchangeable devices, routes and links once: in
 * `flow`, if stage replicas do not share cores and all readers of a shared store are
 * interchangeable. Without folding, every stream of every device is an actor: 0.94 GB for the 4,096
 * devices of a pipeline; TY_ENOMEM if memory runs out.
 *
 * Costs above 1e9 s (also of edge_bytes at the rate limit), 1e18 bytes or 1e6 cores are TY_EINVAL.
 *
 * Without contention every instruction takes its `seconds`, if they come from the same links.
 *
 * Links and cores are shared evenly (max-min), whatever the latencies. The flow engine limits the
 * rate of each message, and SimGrid those of a fold. Without folding, SimGrid gets a message with a
 * rate limit below the route's bandwidth as up to eight pieces at that rate. This is exact without
 * contention, else within an eighth of the message of the even sharing of a true limit.
 *
 * SimGrid allows one platform per process and aborts on errors. All inputs are checked first, and
 * each simulation runs in a child process; if it dies, the call returns TY_EBACKEND with the
 * reason. Deterministic.
 */

/** Resolution of collectives. */
typedef enum ty_resolution {
    TY_FLOW, /* one flow per edge of the collective's pattern for all its bytes; in a tree, one
                round after another */
    TY_CHUNK /* every step of the ring or tree is a message */
} ty_resolution;

/** Simulators that compute the shares of links and cores. */
typedef enum ty_engine_kind {
    TY_ENGINE_ANY,     /* SimGrid; the flow engine if SimGrid is not installed, cannot represent the
                          cluster, runs out of memory, or would simulate more than 1,024 devices or
                          take more than about a minute */
    TY_ENGINE_SIMGRID, /* or a failure */
    TY_ENGINE_FLOW
} ty_engine_kind;
/** "simgrid" or "flow". */
const char *ty_engine_name(ty_engine_kind engine);

typedef struct ty_simulate_options {
    uint32_t steps; /* consecutive steps; >= 1 */
    ty_engine_kind engine;
    ty_engine_kind *engine_used; /* [out] the engine of a simulation that succeeded; NULL: none */
    ty_resolution resolution;
    const double *slowdowns; /* [stage replica][rank]: factor on the compute time of that device;
                                NULL: 1 for all */
    double jitter; /* standard deviation of the logarithm of each compute time; the median stays; 0:
                      none. Disables folding */
    double spread; /* standard deviation of the logarithm of each device's speed, constant for the
                      device; the median stays; 0: none */
    uint64_t seed; /* of jitter and spread */
    bool no_fold;  /* simulate every device, also interchangeable ones; implied by chunk */
    ty_timeline *
        *devices; /* [out] a timeline of each device as well, whose stage replicas are ranks (stage
                     replica * ranks + rank), as of ty_plan_by_device. NULL: none */
    double time_limit_s; /* wall-clock seconds before the child is stopped (TY_ELIMIT); > 0 */
    double cpu_limit_s; /* TY_ELIMIT if its operation count implies more CPU time: the same on every
                           machine; 0: no limit */
} ty_simulate_options;
ty_simulate_options ty_simulate_options_default(void); /* 3 steps, flow, 300 s */

/**
 * Mean slowdown of a step by the straggler among `members` equal machines, from public training
 * logs: 1 + l / (l + 1) * 0.09 * sqrt(l), l = log2(members). Source: SimuMax 1.2, straggler model.
 */
double ty_straggler_law(uint32_t members);

/**
 * Simulates consecutive steps of a program that passed ty_program_check. One that did not may fail
 * with TY_EBACKEND and the stage replica, instruction and step that deadlocked.
 * @param costs   of this program on this cluster: finite, >= 0; hosts and their cores as in the
 * cluster
 * @param out [out] a sorted timeline with every instruction of every stage replica and step. With
 * several ranks per stage replica, an instruction starts when the last rank is ready and ends when
 * the last is done
 * @return TY_EINVAL naming the figure that is out of range; TY_ELIMIT at the time limit;
 * TY_EINTERRUPTED if the child was interrupted; TY_EBACKEND with SimGrid's message if it failed.
 * Takes about 1 microsecond per instruction or message, with SimGrid 10, more if very many messages
 * share a link.
 */
ty_status ty_simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options,
                      ty_timeline **out, ty_error *error) TY_MUST_CHECK;

/**
 * Counts the devices that ty_simulate would simulate: the classes of interchangeable devices, or
 * all devices without folding.
 */
ty_status ty_simulate_classes(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              const ty_cluster *cluster, const ty_simulate_options *options,
                              uint32_t *classes, ty_error *error) TY_MUST_CHECK;

/**
 * Step times (ty_timeline_summarize) of simulations with seeds options->seed, + 1, + 2 ..., with
 * one process per core at once.
 * @param step_times_s [out, seeds] in the order of the seeds
 * @return as ty_simulate, for the first seed that failed, with its number
 */
ty_status ty_simulate_seeds(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, const ty_simulate_options *options,
                            uint32_t seeds, double *step_times_s, ty_error *error) TY_MUST_CHECK;

/** Load of one direction of a link in a step. */
typedef struct ty_link_load {
    uint32_t link;    /* of the cluster */
    bool is_backward; /* against the link's direction */
    double bytes;     /* send/recv and collectives, also those within a stage replica */
    double busy_s;    /* bytes / bandwidth: a lower bound of the step time */
} ty_link_load;

/**
 * The links that a step uses, by descending busy time; divide by the step time for utilization.
 * Derived from the program and its costs only; a simulation moves the same bytes.
 * @param out [out] free with ty_free
 */
ty_status ty_link_loads(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                        const ty_cluster *cluster, ty_link_load **out, uint32_t *count,
                        ty_error *error) TY_MUST_CHECK;

/**
 * Writes the SimGrid platform (XML, DTD 4.1) of a cluster, for other programs: one host per device
 * at its fp32 peak, links and routes as in the graph. ty_cluster_import reads it.
 * @return TY_EUNSUPPORTED for more than 512 devices unless they form a tree of switches.
 */
ty_status ty_cluster_to_simgrid(const ty_cluster *cluster, ty_text *xml,
                                ty_error *error) TY_MUST_CHECK;

/* ==== tenants ================================================================================= */

/*
 * Several jobs on one cluster. Each communicates only within itself; they share the cluster's
 * links.
 */

struct ty_simulate_options;

typedef struct ty_tenant {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    uint32_t first_device; /* the plan's device 0 is this one of the cluster */
} ty_tenant;

/**
 * Simulates jobs concurrently, each for options->steps steps from time 0; a finished job leaves the
 * links to the others.
 * @param options   slowdowns of all devices, job after job
 * @param timelines [out, count] one of each; free each with ty_timeline_free
 * @return TY_EINVAL: an unknown device, or one that two jobs use; TY_EUNSUPPORTED: jobs that differ
 * in TP, CP, EP, VPP, sharding, staleness or kind of learning; and as ty_simulate
 */
ty_status ty_simulate_tenants(const ty_tenant *tenants, uint32_t count, const ty_cluster *cluster,
                              const struct ty_simulate_options *options, ty_timeline **timelines,
                              ty_error *error) TY_MUST_CHECK;

/* ==== analysis ================================================================================ */

/*
 * Analyses of a simulated timeline: load of the busiest links over time, traffic between devices or
 * hosts, and memory of a stage replica over time.
 */

/** One direction of a link over time. */
typedef struct ty_link_curve {
    uint32_t link;
    bool is_backward;
    const double *bytes; /* [bins]; in the block of all curves */
} ty_link_curve;

typedef struct ty_link_history {
    double bin_s; /* the bins follow each other from 0 */
    uint32_t bin_count, curve_count;
    ty_link_curve *curves;
    double *block;
} ty_link_history;

/**
 * Bytes over some links in equal time bins, for a timeline of this program. The bytes of a
 * send/recv or collective are spread evenly from the time its last member was ready to its end;
 * those of TP, CP and EP collectives over the entire pass. The sum over the bins is the bytes of
 * ty_link_loads times the steps.
 * @param links [count] 2 * link, + 1 against its direction
 * @param bins  >= 1
 * @param out   [out] clear with ty_link_history_clear
 */
ty_status ty_link_history_of(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             const ty_cluster *cluster, const ty_timeline *timeline,
                             const uint32_t *links, uint32_t count, uint32_t bins,
                             ty_link_history *out, ty_error *error) TY_MUST_CHECK;
void ty_link_history_clear(ty_link_history *history);

/** Endpoints of a traffic matrix. */
typedef enum ty_traffic_ends { TY_BETWEEN_DEVICES, TY_BETWEEN_HOSTS } ty_traffic_ends;
/** Bytes per step from one device to another, or from the devices of one host to those of another
 * or of the same host. */
typedef struct ty_traffic {
    uint32_t from, to;
    double bytes;
} ty_traffic;
/**
 * The non-zero entries of the traffic matrix, most bytes first: send/recv and collectives, also
 * those within a stage replica, as simulated as flows. Collectives of every k-th step are not
 * included.
 * @param out [out] free with ty_free
 */
ty_status ty_traffic_matrix(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, ty_traffic_ends ends, ty_traffic **out,
                            uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** Memory of a stage replica from a point in time on. */
typedef struct ty_memory_point {
    double time_s;
    uint64_t bytes;
} ty_memory_point;
/**
 * Memory of a device of `stage_replica` over the steps of a timeline: the memory model's figure for
 * its pipeline rank, with activations of the in-flight micro-batches only. These count from the
 * start of forward to the end of the last backward that needs them. Virtual stages on the device
 * have activations in proportion to their layers. The peak equals the model's figure if the
 * timeline reaches the program's maximum of in-flight micro-batches.
 * @param out   [out] ascending in time; free with ty_free
 * @return TY_EINVAL: a plan without memory figures, or no such stage replica
 */
ty_status ty_memory_curve(const ty_plan *plan, const ty_program *program,
                          const ty_timeline *timeline, uint32_t stage_replica,
                          ty_memory_point **out, uint32_t *count, ty_error *error) TY_MUST_CHECK;

#endif
