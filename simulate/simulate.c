/* From a program with its costs to a timeline: check, fork, walk, collect. */
#include "ty_simulate.h"

#include "child.h"
#include "disturbance.h"
#include "engine.h"
#include "platform.h"
#include "walk.h"

#include "ty_base.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Checks, because errors in SimGrid end the process ------------------------------------- */

static ty_status check_options(const ty_simulate_options *options, ty_error *error)
{
    if (options->steps < 1)
        return ty_fail(error, TY_EINVAL, "simulation of 0 steps; expected at least 1");
    if (options->resolution != TY_FLOW && options->resolution != TY_CHUNK)
        return ty_fail(error, TY_EINVAL, "unknown resolution %d; expected flow or chunk",
                       (int)options->resolution);
    if (!(options->jitter >= 0.0 && options->jitter <= 1.0))
        return ty_fail(error, TY_EINVAL, "jitter of %g; expected 0 to 1", options->jitter);
    if (!(options->spread >= 0.0 && options->spread <= 1.0))
        return ty_fail(error, TY_EINVAL, "spread of %g; expected 0 to 1", options->spread);
    if (!(options->time_limit_s > 0.0))
        return ty_fail(error, TY_EINVAL, "time limit of %g s; expected more than 0",
                       options->time_limit_s);
    return TY_OK;
}

static ty_status check_shape(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             ty_error *error)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);

    if (program->stage_count != pipeline_size || costs->stage_count != pipeline_size)
        return ty_fail(error, TY_EINVAL, "a plan of %u stages, a program of %u, costs of %u",
                       pipeline_size, program->stage_count, costs->stage_count);
    if (costs->stage_replica_count != ty_plan_stage_replica_count(plan))
        return ty_fail(error, TY_EINVAL, "a plan of %u stage replicas, costs of %u",
                       ty_plan_stage_replica_count(plan), costs->stage_replica_count);
    for (uint32_t s = 0; s < pipeline_size; s++)
        if (costs->instruction_counts[s] != program->stages[s].instruction_count)
            return ty_fail(error, TY_EINVAL, "stage %u: a program of %u instructions, costs of %u",
                           s, program->stages[s].instruction_count, costs->instruction_counts[s]);
    return TY_OK;
}

/* The two stages of a tied weight are on different devices. */
static ty_status check_buckets(const ty_plan *plan, ty_error *error)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const uint32_t stage = plan->buckets[b].stage, tied = plan->buckets[b].tied_stage;
        if (stage >= plan->stage_count)
            return ty_fail(error, TY_EINVAL,
                           "plan:/buckets/%u: found stage %u, expected one below %u", b, stage,
                           plan->stage_count);
        if (tied != TY_NO_STAGE &&
            (tied >= plan->stage_count || tied % pipeline_size == stage % pipeline_size))
            return ty_fail(error, TY_EINVAL,
                           "plan:/buckets/%u: found stage %u tied to %u, expected one of %u on "
                           "other devices",
                           b, stage, tied, plan->stage_count);
    }
    return TY_OK;
}

/* Above these, SimGrid's clock cannot distinguish the ends of two activities, or activities never
 * end: thirty years, and its maximum of bytes. Real plans are many orders of magnitude below.
 */
#define LONGEST_S 1e9
#define MOST_BYTES 1e18
#define MOST_CORES 1e6

static ty_status check_cost(uint32_t stage, uint32_t index, const ty_instruction_cost *cost,
                            ty_error *error)
{
    const double limit = cost->rate_limit_bytes_per_s;
    const struct {
        const char *name;
        double value, most;
    } figures[] = {
        {"seconds", cost->seconds, LONGEST_S},
        {"latency_s", cost->latency_s, LONGEST_S},
        {"edge_bytes", cost->edge_bytes, MOST_BYTES},
        {"rate_limit_bytes_per_s", limit, DBL_MAX},
        {"core_share", cost->core_share, MOST_CORES},
        {"across_share", cost->across_share, DBL_MAX},
        {"inner_s", cost->inner_s, LONGEST_S},
        {"edge_bytes / rate_limit_bytes_per_s", limit > 0.0 ? cost->edge_bytes / limit : 0.0,
         LONGEST_S},
    };

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (!(figures[i].value >= 0.0 && figures[i].value <= figures[i].most))
            return ty_fail(error, TY_EINVAL,
                           "costs of stage %u, instruction %u: %s is %g; expected 0 to %g", stage,
                           index, figures[i].name, figures[i].value, figures[i].most);
    return TY_OK;
}

static bool holds(const ty_plan *plan, uint32_t pipeline_rank, const ty_bucket *bucket)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    return bucket->stage % pipeline_size == pipeline_rank ||
           (bucket->tied_stage != TY_NO_STAGE &&
            bucket->tied_stage % pipeline_size == pipeline_rank);
}

static ty_status check_instruction(const ty_plan *plan, const ty_stage_program *program,
                                   uint32_t stage, uint32_t index, ty_error *error)
{
    const ty_instruction *instruction = &program->instructions[index];
    const char *fault = NULL;

    if ((unsigned)instruction->op >= TY_OP_COUNT ||
        (unsigned)instruction->stream >= TY_STREAM_COUNT)
        fault = "no known operation or stream";
    else if (!ty_op_runs_in(instruction->op, instruction->stream))
        fault = "an operation in another stream than its own";
    else if (instruction->lead > plan->stage_count && instruction->lead > plan->staleness &&
             instruction->lead > plan->lag + 1)
        fault =
            "further ahead than the plan has stages or its gradients are late, or its actors lag";
    else if ((instruction->op == TY_OP_COLLECTIVE || instruction->op == TY_OP_GATHER) &&
             instruction->bucket >= plan->bucket_count)
        fault = "a collective without a bucket";
    else if (instruction->op == TY_OP_COLLECTIVE &&
             instruction->phase >=
                 ty_compression_phases(&plan->buckets[instruction->bucket].compression))
        fault = "a phase that the bucket's exchange does not have";
    else if ((instruction->op == TY_OP_COLLECTIVE || instruction->op == TY_OP_GATHER) &&
             !holds(plan, stage, &plan->buckets[instruction->bucket]))
        fault = "a collective of a bucket of other stages";
    else if ((instruction->op == TY_OP_SEND || instruction->op == TY_OP_RECEIVE) &&
             (instruction->peer_stage >= plan->stage_count ||
              instruction->stage >= plan->stage_count ||
              instruction->direction == TY_NO_DIRECTION ||
              instruction->micro_batch == TY_NO_MICRO_BATCH))
        fault = "a transfer without peer, direction or micro-batch";
    for (uint32_t w = 0; w < instruction->wait_count; w++)
        if (instruction->waits[w] >= index)
            fault = "it waits for no earlier instruction";
    if (fault != NULL)
        return ty_fail(error, TY_EINVAL, "stage %u, instruction %u: %s; was the program checked?",
                       stage, index, fault);
    return TY_OK;
}

static ty_status check_slowdowns(const ty_simulate_options *options, const ty_plan *plan,
                                 ty_error *error)
{
    const uint32_t width = ty_plan_replica_ranks(plan);

    for (uint32_t p = 0; options->slowdowns != NULL && p < ty_plan_rank_count(plan); p++)
        if (!(options->slowdowns[p] >= 0.01 && options->slowdowns[p] <= 1e6))
            return ty_fail(error, TY_EINVAL,
                           "slowdown of stage replica %u is %g (rank %u); expected 0.01 to 1e6",
                           p / width, options->slowdowns[p], p % width);
    return TY_OK;
}

/* Every rank is on an existing device. */
static ty_status check_ranks(const ty_plan *plan, uint32_t stage_replica, const ty_cluster *cluster,
                             ty_error *error)
{
    for (uint32_t replica_rank = 0; replica_rank < ty_plan_replica_ranks(plan); replica_rank++) {
        const uint32_t device = ty_plan_device_of_replica_rank(plan, stage_replica, replica_rank);
        if (device >= ty_cluster_device_count(cluster))
            return ty_fail(error, TY_EINVAL, "stage replica %u is on device %u; %s has %u devices",
                           stage_replica, device, ty_cluster_name(cluster),
                           ty_cluster_device_count(cluster));
    }
    return TY_OK;
}

/* Stage replicas must compete for the same cores in the costs and in the cluster. */
static ty_status check_replicas(const ty_plan *plan, const ty_costs *costs,
                                const ty_cluster *cluster, ty_error *error)
{
    for (uint32_t r = 0; r < costs->stage_replica_count; r++) {
        const uint32_t device = ty_plan_device_of_replica(plan, r);
        const uint32_t host = costs->replica_host[r];
        const ty_status status = check_ranks(plan, r, cluster, error);

        if (status != TY_OK)
            return status;
        if (host >= costs->host_count || host != ty_cluster_device_host(cluster, device))
            return ty_fail(error, TY_EINVAL,
                           "costs: stage replica %u is on host %u; its device is on host %u of %s",
                           r, host, ty_cluster_device_host(cluster, device),
                           ty_cluster_name(cluster));
        const uint32_t cores = ty_cluster_host_cores(cluster, host);
        const double expected = cores > 0 ? (double)cores : HUGE_VAL;
        if (isfinite(costs->host_cores[host]) && costs->host_cores[host] != expected)
            return ty_fail(error, TY_EINVAL, "costs: host %u has %g cores; in %s it has %g", host,
                           costs->host_cores[host], ty_cluster_name(cluster), expected);
    }
    return TY_OK;
}

static ty_status check(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                       const ty_cluster *cluster, const ty_simulate_options *options,
                       ty_error *error)
{
    ty_status status = check_options(options, error);

    if (status == TY_OK)
        status = check_shape(plan, program, costs, error);
    if (status == TY_OK)
        status = check_buckets(plan, error);
    for (uint32_t s = 0; status == TY_OK && s < program->stage_count; s++) {
        for (uint32_t i = 0; status == TY_OK && i < costs->instruction_counts[s]; i++) {
            status = check_cost(s, i, &costs->instructions[s][i], error);
            if (status == TY_OK)
                status = check_instruction(plan, &program->stages[s], s, i, error);
        }
    }
    if (status == TY_OK)
        status = check_replicas(plan, costs, cluster, error);
    if (status == TY_OK)
        status = check_slowdowns(options, plan, error);
    return status;
}

/* ---- The child ----------------------------------------------------------------------------- */

struct task {
    ty_walk *walk;
    ty_network *network;
    ty_engine_kind engine;
    ty_text platform; /* of SimGrid */
};

static ty_status walk_in_child(void *context, void *result, ty_error *error)
{
    const struct task *task = context;
    ty_engine engine;

    if (task->engine == TY_ENGINE_SIMGRID)
        TY_TRY(ty_engine_open_simgrid(&engine, task->network, &task->platform, error));
    else
        TY_TRY(ty_engine_open_flow(&engine, task->network, error));
    return ty_walk_run(task->walk, &engine, result, error);
}

/* Merges the events of the ranks of a stage replica: it is ready when its last rank is. */
static ty_event event_of_replica(const ty_walk *walk, const ty_event *events,
                                 uint32_t stage_replica, uint32_t instruction)
{
    ty_event found = {0};

    for (uint32_t replica_rank = 0; replica_rank < walk->width; replica_rank++) {
        const uint32_t device = ty_walk_index(walk, stage_replica * walk->width + replica_rank);
        const ty_event *event = &events[walk->devices[device].first_event + instruction];
        found.start_s = fmax(found.start_s, event->start_s);
        found.end_s = fmax(found.end_s, event->end_s);
    }
    return found;
}

/* Gives every stage replica, or device, the events of its representative.
 * @param width events per stage replica: 1, or one per rank */
static ty_status collect(const ty_walk *walk, const ty_event *events, uint64_t count,
                         uint32_t width, ty_timeline **out, ty_error *error)
{
    ty_timeline *timeline = NULL;
    ty_status status;

    TY_CHECK(ty_timeline_new(walk->plan, walk->steps, &timeline, error), status, cleanup);
    timeline->stage_replica_count *= width;
    timeline->events = count > SIZE_MAX / sizeof *timeline->events / width
                           ? NULL
                           : ty_alloc(count * width, sizeof *timeline->events);
    if (timeline->events == NULL) {
        status = ty_fail(error, TY_ENOMEM, "simulation: no memory for %llu events of each of %u",
                         (unsigned long long)count, width);
        goto cleanup;
    }
    timeline->capacity = count * width;
    for (uint32_t step = 0; step < walk->steps; step++)
        for (uint32_t r = 0; r < timeline->stage_replica_count; r++) {
            const ty_event *of_step = &events[step * walk->step_events];
            const uint32_t rank = width > 1 ? r : r * walk->width;
            const ty_walk_device *walked = &walk->devices[ty_walk_index(walk, rank)];
            for (uint32_t i = 0; i < walked->program->instruction_count; i++) {
                ty_event event = width > 1 ? of_step[walked->first_event + i]
                                           : event_of_replica(walk, of_step, r, i);
                event.stage_replica = r;
                event.step = step;
                event.instruction = i;
                timeline->events[timeline->event_count++] = event;
            }
        }
    *out = timeline;
    timeline = NULL;
cleanup:
    ty_timeline_free(timeline);
    return status;
}

static bool may_fold(const ty_simulate_options *options)
{
    return !options->no_fold && options->resolution == TY_FLOW && options->jitter <= 0.0;
}

/* *out NULL: no folding, also if the readers of a shared store differ. */
static ty_status fold_of(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                         const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                         const double *slowdowns, ty_fold **out, ty_error *error)
{
    ty_status status = ty_fold_new(plan, program, costs, parallel, cluster, slowdowns, out, error);

    if (status == TY_OK && *out != NULL && !ty_fold_reads_alike(*out, program, costs)) {
        ty_fold_free(*out);
        *out = NULL;
    }
    return status;
}

/* CPU seconds on a core of 2024, within a factor of about two: per folded device, per collected
 * event, and per activity of SimGrid. */
#define DEVICE_S 2e-5
#define EVENT_S 5e-8
#define ACTIVITY_S 2e-6
/* Longer simulations, or of more devices, whose flows SimGrid would share again and again, are for
 * the flow engine. */
#define MOST_SIMGRID_S 60.0
enum { MOST_SIMGRID_DEVICES = 1024 };

static ty_status check_effort(double cpu_s, const ty_simulate_options *options, ty_error *error)
{
    if (!(options->cpu_limit_s > 0.0) || cpu_s <= options->cpu_limit_s)
        return TY_OK;
    return ty_fail(error, TY_ELIMIT, "a simulation would take about %.2g s of CPU time", cpu_s);
}

/* SimGrid, if it can be used; `task` gets its platform. */
static ty_status choose_engine(const ty_simulate_options *options, const ty_fold *fold,
                               const ty_cluster *cluster, struct task *task, ty_error *error)
{
    const bool is_large = task->walk->device_count > MOST_SIMGRID_DEVICES ||
                          ACTIVITY_S * ty_walk_activities(task->walk) > MOST_SIMGRID_S;
    const bool is_free = options->engine == TY_ENGINE_ANY;
    ty_error *cause = is_free ? NULL : error;
    ty_status status;

    task->engine = TY_ENGINE_FLOW;
    if (options->engine == TY_ENGINE_FLOW || (is_free && is_large))
        return TY_OK;
    status = ty_engine_load_simgrid(cause);
    if (status == TY_OK && fold == NULL)
        status = ty_simgrid_platform(cluster, &task->platform, cause);
    if (status != TY_OK)
        return is_free ? TY_OK : status;
    if (fold != NULL)
        ty_fold_platform(fold, &task->platform);
    task->engine = TY_ENGINE_SIMGRID;
    return ty_text_check(&task->platform, error);
}

/* With the flow engine if memory runs out for SimGrid. */
static ty_status run_engine(struct task *task, ty_event *events, uint64_t count,
                            const ty_simulate_options *options, ty_error *error)
{
    const size_t size = count * sizeof *events;
    ty_status status =
        ty_child_run(walk_in_child, task, events, size, options->time_limit_s, error);

    if (status == TY_ENOMEM && options->engine == TY_ENGINE_ANY &&
        task->engine == TY_ENGINE_SIMGRID) {
        task->engine = TY_ENGINE_FLOW;
        status = ty_child_run(walk_in_child, task, events, size, options->time_limit_s, error);
    }
    if (status == TY_OK && options->engine_used != NULL)
        *options->engine_used = task->engine;
    return status;
}

/* Validated inputs. */
static ty_status simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                          const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                          const ty_simulate_options *options, ty_timeline **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_fold *fold = NULL;
    ty_walk *walk = NULL;
    struct task task = {0};
    ty_event *events = NULL;
    ty_timeline *timeline = NULL;
    uint64_t count = ty_program_event_count(plan, program) * options->steps;
    const double devices_s = DEVICE_S * ty_plan_rank_count(plan) + EVENT_S * (double)count;

    TY_CHECK(check_effort(devices_s, options, error), status, cleanup);
    if (may_fold(options))
        TY_CHECK(fold_of(plan, program, costs, parallel, cluster, options->slowdowns, &fold, error),
                 status, cleanup);
    TY_CHECK(ty_walk_new(plan, program, costs, parallel, cluster, fold, options, &walk, error),
             status, cleanup);
    TY_CHECK(check_effort(devices_s + ACTIVITY_S * ty_walk_activities(walk), options, error),
             status, cleanup);
    task.walk = walk;
    if (fold != NULL)
        TY_CHECK(ty_network_of_fold(fold, &task.network, error), status, cleanup);
    else
        TY_CHECK(ty_network_of_cluster(cluster, &task.network, error), status, cleanup);
    TY_CHECK(choose_engine(options, fold, cluster, &task, error), status, cleanup);
    if (walk->step_events > SIZE_MAX / sizeof *events / options->steps) {
        status = ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
        goto cleanup;
    }
    count = walk->step_events * options->steps;
    if ((events = ty_alloc(count, sizeof *events)) == NULL) {
        status = ty_fail(error, TY_ENOMEM, "simulation: no memory for %llu events",
                         (unsigned long long)count);
        goto cleanup;
    }
    TY_CHECK(run_engine(&task, events, count, options, error), status, cleanup);
    count = ty_program_event_count(plan, program) * options->steps;
    TY_CHECK(collect(walk, events, count, 1, &timeline, error), status, cleanup);
    if (options->devices != NULL)
        TY_CHECK(collect(walk, events, count, walk->width, options->devices, error), status,
                 cleanup);
    *out = timeline;
    timeline = NULL;

cleanup:
    ty_timeline_free(timeline);
    ty_free(events);
    ty_text_clear(&task.platform);
    ty_network_free(task.network);
    ty_walk_free(walk);
    ty_fold_free(fold);
    return status;
}

ty_status ty_simulate_parallel(const ty_plan *plan, const ty_program *program,
                               const ty_costs *costs, const ty_parallel_exchanges *parallel,
                               const ty_cluster *cluster, const ty_simulate_options *options,
                               ty_timeline **out, ty_error *error)
{
    ty_simulate_options with_spread = *options;
    const uint32_t devices = ty_plan_rank_count(plan);
    double *slowdowns = NULL;
    ty_status status = check(plan, program, costs, cluster, options, error);

    if (status != TY_OK)
        return status;
    if (options->spread > 0.0) {
        TY_TRY(ty_check_memory((slowdowns = ty_alloc(devices, sizeof *slowdowns)) != NULL, error));
        for (uint32_t d = 0; d < devices; d++)
            slowdowns[d] = (options->slowdowns != NULL ? options->slowdowns[d] : 1.0) *
                           ty_spread(options->spread, options->seed, d);
        with_spread.slowdowns = slowdowns;
    }
    status = simulate(plan, program, costs, parallel, cluster, &with_spread, out, error);
    ty_free(slowdowns);
    return status;
}

ty_status ty_simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options,
                      ty_timeline **out, ty_error *error)
{
    ty_parallel_exchanges parallel = {0};
    ty_status status = check(plan, program, costs, cluster, options, error);

    if (status == TY_OK)
        status = ty_parallel_exchanges_find(plan, program, costs, cluster, &parallel, error);
    if (status == TY_OK)
        status =
            ty_simulate_parallel(plan, program, costs, &parallel, cluster, options, out, error);
    ty_parallel_exchanges_clear(&parallel);
    return status;
}

ty_status ty_simulate_classes(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              const ty_cluster *cluster, const ty_simulate_options *options,
                              uint32_t *classes, ty_error *error)
{
    ty_fold *fold = NULL;
    ty_parallel_exchanges parallel = {0};
    ty_status status = check(plan, program, costs, cluster, options, error);

    if (status == TY_OK)
        status = ty_parallel_exchanges_find(plan, program, costs, cluster, &parallel, error);
    if (status == TY_OK && may_fold(options) && options->spread <= 0.0)
        status =
            fold_of(plan, program, costs, &parallel, cluster, options->slowdowns, &fold, error);
    if (status == TY_OK)
        *classes = fold != NULL ? ty_fold_class_count(fold) : ty_plan_rank_count(plan);
    ty_fold_free(fold);
    ty_parallel_exchanges_clear(&parallel);
    return status;
}
