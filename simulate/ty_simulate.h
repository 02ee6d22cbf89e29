/**
 * @file ty_simulate.h
 * Walks a program on a simulated cluster (SimGrid): the same instructions and costs as the
 * estimator, but transfers and collectives share real links, and ranks share real cores.
 *
 *     ty_simulate_options options = ty_simulate_options_default();
 *     TY_CHECK(ty_simulate(plan, program, costs, cluster, &options, &timeline, error), status,
 * cleanup);
 *
 * How a cost is played:
 * - Compute, encode, decode, update, and loads from no such store: `seconds`; with a core_share on
 * a host whose cores are shared (host_cores finite), work of that many cores for as long, which
 * stretches when the host's ranks ask for more cores than there are. Cores go to work in equal
 * parts, up to what each can use.
 * - Load: its `latency_s`, and beside that edge_bytes from the store that the cluster's hosts
 * share, no faster than the rate limit: those that read at once share its bandwidth evenly, up to
 * what each can draw.
 * - Send: latency_s, then edge_bytes over the route of the two devices, no faster than the rate
 * limit; beside it core_share cores are busy at both ends for `seconds`. Done when all is done. The
 * receive ends then, or at once when it comes later; its own cost is not read.
 * - Collective: starts when the last member is ready. Its edges, between members in ascending order
 * of rank (a closed ring; or the edges of a binomial tree, up and then down), carry their bytes as
 * above, each member keeping its cores busy.
 * - A collective of every k-th step (ty_plan_exchange_interval): `seconds`, its share of one step,
 * and cores; no traffic, since a share may be shorter than a route's latency.
 * - Every device of the plan takes part: the lanes of a rank go through its program each by itself,
 * and send each to the same lane of the partner. An exchange is played by each group of ty_plan.h,
 * side by side: its members are the devices of the group, in ascending order of rank, and of lane
 * within one.
 * - What lanes exchange inside a pass or an update (ty_layer_inner_collectives,
 * ty_bucket_lane_bytes) is played by the lanes of each kind together, once all of them have come:
 * as they would in rings in channels, expert lanes each with each. `inner_s` is what all of it
 * takes alone; it is divided among the kinds by what each would take over the links between its
 * lanes, with the bytes of rings, but no more than these links carry in the time. The pass's own
 * work, `seconds` - `inner_s`, and the exchanges take turns, as many as there are collectives and
 * at most four, equal ones, the work first: one after the other as in the estimate, so that without
 * contention a pass takes `seconds`. Lanes whose links nobody else uses, and each of which only one
 * of them, have nobody to meet: they wait for each other and take their time, as they would with
 * flows.
 * - Between devices of one simulated host there is no link to share: such an edge takes `seconds`,
 * and cores. A cost's cores are those of the lanes that are on the host of the rank's first; each
 * lane takes its part of them.
 *
 * Devices, routes and links that are alike are simulated once (docs/guides/simulate.md), in `flow`,
 * where ranks do not share cores, and those that read from a shared store are all alike. Whole, an
 * actor for each stream of each device is walked: 0.94 GB for the 4,096 devices of a pipeline;
 * memory that runs out is TY_ENOMEM.
 *
 * Costs are refused beyond 1e9 s (also of edge_bytes at the rate limit), 1e18 bytes and 1e6 cores.
 *
 * On an empty cluster every instruction takes its `seconds`, if they come from the same links.
 *
 * A rate limit below the route's bandwidth is one in SimGrid where devices are folded. Whole, it is
 * played by sending in up to eight pieces at the pace of the limit: exact alone, and within an
 * eighth of the message of the even sharing that a true limit gives.
 *
 * The program is first walked in no time: a receive without a sender, a collective without a member
 * or a circle of streams that wait for each other is refused with rank, instruction and partner.
 *
 * SimGrid allows one platform per process and aborts on what it does not like. Everything is
 * checked before it sees anything, and each simulation runs in a child process whose death is
 * reported as TY_EBACKEND with its reason. Deterministic.
 */
#ifndef TY_SIMULATE_H
#define TY_SIMULATE_H

#include "ty_analysis.h"
#include "ty_core.h"
#include "ty_faults.h"
#include "ty_tenants.h"
#include "ty_topologies.h"

/** How finely collectives are played. */
typedef enum ty_resolution {
    TY_FLOW, /* one flow per edge of the collective's pattern for all its bytes; a tree's one round
                after the other */
    TY_CHUNK /* every step of the ring or tree is a message */
} ty_resolution;

typedef struct ty_simulate_options {
    uint32_t steps; /* consecutive steps; >= 1 */
    ty_resolution resolution;
    const double *slowdowns; /* [rank][lane]: compute of that device takes so many times as long;
                                NULL: 1 for all */
    double jitter; /* standard deviation of the logarithm of each compute time, whose median stays;
                      0: none. Every device is simulated then */
    double spread; /* standard deviation of the logarithm of each device's speed, which it keeps for
                      all of its compute; the median stays; 0: none */
    uint64_t seed; /* of jitter and spread */
    bool no_fold;  /* simulate every device, also where many are alike; always so in chunk */
    ty_timeline **devices; /* [out] besides, a timeline of each device, whose ranks are processes
                              (rank * lanes + lane): one of ty_plan_by_device. NULL: none */
    double time_limit_s;   /* wall-clock seconds before the child is stopped (TY_ELIMIT); > 0 */
    double cpu_limit_s; /* TY_ELIMIT if it would take more CPU time, by counting what it has to do:
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
 * Simulates consecutive steps of a program that passed ty_program_check.
 * @param costs   of this program on this cluster: finite, >= 0; hosts and their cores as in the
 * cluster
 * @param out     [out] a sorted timeline with every instruction of every rank and step; of a rank
 * of several devices, from when the last of them was ready to when the last was done
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
    double bytes;     /* transfers, exchanges, gathers, and what lanes of a rank exchange */
    double busy_s;    /* bytes / bandwidth: the least a step can take over it */
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

#endif
