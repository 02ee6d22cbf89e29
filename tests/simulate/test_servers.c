/* Dedicated servers in the predictions: costs against messages counted link by link; the
 * simulator's own time for the traffic against them, folded and unfolded; the best number of
 * servers against trying all. */
#include "../pin.h"
#include "scenario.h"
#include "ty_planner.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HOSTS "host:6 gpu:2 @v100-sxm2-16gb nvlink2 eth10 nics=2"
enum { HOST_COUNT = 6, PER_HOST = 2 };

static ty_plan *plan_on(const char *workload, const char *line, const ty_plan_options *options,
                        ty_cluster **cluster)
{
    ty_workload *opened = NULL;
    ty_plan *plan = NULL, *kept = NULL;
    ty_error error = {0};

    *cluster = cluster_of(line);
    cr_assert_eq(ty_workload_open(workload, &opened, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_search(opened, *cluster, NULL, options, &plan, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_plan_copy(plan, &kept, &error), TY_OK, "%s", error.message);
    ty_plan_free(plan);
    ty_workload_free(opened);
    return kept;
}

typedef struct lowered {
    ty_program *program;
    ty_costs *costs;
} lowered;

static lowered lower(const ty_plan *plan, const ty_cluster *cluster)
{
    lowered l = {0};
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &l.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_program_check(plan, l.program, "served", &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_of_program(plan, l.program, cluster, &l.costs, &error), TY_OK, "%s",
                 error.message);
    return l;
}

static void lowered_free(lowered *l)
{
    ty_program_free(l->program);
    ty_costs_free(l->costs);
}

/* Seconds per direction of a bucket on the busiest link: all messages of all devices over their
 * routes. */
static double way_by_hand(const ty_plan *plan, const ty_cluster *cluster, double bytes)
{
    const uint32_t links = ty_cluster_link_count(cluster);
    double *carried = ty_alloc((size_t)links * 2, sizeof *carried), longest_s = 0;

    for (uint32_t w = 0; w < plan->stages[0].replicas; w++)
        for (uint32_t s = 0; s < plan->servers.count; s++) {
            uint32_t at = ty_cluster_device_vertex(cluster, plan->stages[0].devices[w]);
            ty_path path;
            cr_assert_eq(ty_cluster_path(cluster, plan->stages[0].devices[w],
                                         plan->servers.devices[s], &path, NULL),
                         TY_OK);
            for (uint32_t i = 0; i < path.link_count; i++) {
                const ty_link_edge *link = ty_cluster_link(cluster, path.links[i]);
                const bool is_forward = link->from == at;
                at = is_forward ? link->to : link->from;
                carried[2 * path.links[i] + !is_forward] += bytes / plan->servers.count;
            }
            ty_path_clear(&path);
        }
    for (uint32_t i = 0; i < 2 * links; i++)
        longest_s =
            fmax(longest_s, carried[i] / ty_cluster_link(cluster, i / 2)->bandwidth_bytes_per_s);
    ty_free(carried);
    return longest_s;
}

static ty_plan_options asked(uint32_t servers)
{
    ty_plan_options o = ty_plan_options_default();

    pin(&o.pins, "servers=%u,compression=none,bucket=32MiB", servers);
    o.global_batch = 240; /* of 2 to 10 devices */
    return o;
}

Test(servers, are_on_hosts_that_do_not_train)
{
    for (uint32_t servers = 1; servers < HOST_COUNT; servers++) {
        const ty_plan_options o = asked(servers);
        ty_cluster *cluster;
        ty_plan *plan = plan_on("vgg16", HOSTS, &o, &cluster);
        cr_expect_eq(plan->servers.count, servers);
        cr_expect_eq(plan->stages[0].replicas, PER_HOST * (HOST_COUNT - servers));
        cr_expect_eq(plan->idle_devices, servers, "the other device of each server's host");
        for (uint32_t s = 0; s < servers; s++)
            cr_expect_eq(ty_cluster_device_host(cluster, plan->servers.devices[s]),
                         HOST_COUNT - 1 - s);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
    }
}

/* Without contention, and with a framework that adds no overhead. */
Test(servers, cost_what_their_busiest_link_carries)
{
    for (uint32_t servers = 1; servers < HOST_COUNT; servers++) {
        const ty_plan_options o = asked(servers);
        ty_cluster *cluster;
        ty_plan *plan = plan_on("vgg16", HOSTS, &o, &cluster);
        lowered l = lower(plan, cluster);
        const ty_stage_program *code = &l.program->stages[0];
        uint32_t seen = 0;
        for (uint32_t i = 0; i < code->instruction_count; i++) {
            const ty_instruction_cost *cost = &l.costs->instructions[0][i];
            double by_hand_s;
            if (code->instructions[i].op != TY_OP_COLLECTIVE)
                continue;
            by_hand_s = 2 * way_by_hand(plan, cluster, (double)code->instructions[i].bytes);
            seen++;
            cr_expect(fabs((cost->seconds - cost->latency_s) * plan->stack->network_share -
                           by_hand_s) <= 1e-9 * by_hand_s,
                      "%u servers: found %.9g s, expected %.9g s", servers,
                      cost->seconds - cost->latency_s, by_hand_s);
        }
        cr_expect_gt(seen, 1);
        lowered_free(&l);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
    }
}

static double simulated_s(const ty_plan *plan, const lowered *l, const ty_cluster *cluster,
                          ty_simulate_options options)
{
    ty_timeline *timeline = NULL;
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_eq(ty_simulate(plan, l->program, l->costs, cluster, &options, &timeline, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_timeline_summarize(plan, l->program, timeline, &summary, &error), TY_OK, "%s",
                 error.message);
    ty_timeline_free(timeline);
    return summary.step_time_s;
}

/* The plan's cluster with another memory bandwidth of its devices, which the plan then has. */
static ty_cluster *with_memory_rate(ty_plan *plan, const ty_cluster *cluster,
                                    const ty_device_type *device, double rate, lowered *out)
{
    const ty_cluster_edit edit = {.part = TY_PART_DEVICES,
                                  .name = device->name,
                                  .field = "memory_bandwidth_bytes_per_s",
                                  .value = rate / device->memory_efficiency};
    ty_cluster *slow = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_edited(cluster, &edit, 1, &slow, &error), TY_OK, "%s", error.message);
    ty_cluster_free(plan->cluster);
    plan->cluster = ty_cluster_share(slow);
    *out = lower(plan, slow);
    return slow;
}

static void memory_rate_free(ty_plan *plan, ty_cluster *cluster, ty_cluster *slow, lowered *l)
{
    lowered_free(l);
    ty_plan_free(plan);
    ty_cluster_free(slow);
    ty_cluster_free(cluster);
}

/* Links of two of three hosts, one of them with slow memory. Arriving data hides the summation on a
 * server until that takes longer; estimate and simulation agree. */
Test(servers, add_up_at_the_rate_of_their_memory)
{
    static const double rates[] = {60e9, 4e9, 1e9, 0.25e9};
    double before_s = 0;

    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        const ty_plan_options o = asked(2);
        ty_cluster *cluster, *slow;
        ty_plan *plan = plan_on("vgg16", "[4x p100-server] + [2x xeon-server] eth10", &o, &cluster);
        const ty_device_type *server = ty_cluster_device_type(cluster, plan->servers.devices[0]);
        uint32_t seen = 0, longer = 0;
        double step_s;
        lowered l;

        cr_assert_str_neq(server->name,
                          ty_cluster_device_type(cluster, plan->stages[0].devices[0])->name);
        slow = with_memory_rate(plan, cluster, server, rates[r], &l);
        for (uint32_t i = 0; i < l.program->stages[0].instruction_count; i++) {
            const ty_instruction *in = &l.program->stages[0].instructions[i];
            const ty_instruction_cost *cost = &l.costs->instructions[0][i];
            /* The first input is copied, the others are added to it: half of them on each
             * server. */
            const double touched = (3.0 * plan->stages[0].replicas - 1) * (double)in->bytes / 2;
            double way_s, push_s;
            if (in->op != TY_OP_COLLECTIVE)
                continue;
            way_s = way_by_hand(plan, slow, (double)in->bytes) / plan->stack->network_share;
            push_s = fmax(way_s, touched / rates[r]);
            cr_expect(fabs((cost->seconds - cost->latency_s) / (way_s + push_s) - 1) < 1e-9,
                      "%g bytes/s: found %.9g s, expected %.9g s", rates[r],
                      cost->seconds - cost->latency_s, way_s + push_s);
            longer += push_s > way_s;
            seen++;
        }
        cr_expect_eq(longer, rates[r] < 2e9 ? seen : 0, "%g bytes/s: %u of %u", rates[r], longer,
                     seen);
        step_s = simulated_s(plan, &l, slow, (ty_simulate_options){.steps = 3, .time_limit_s = 60});
        if (r > 1)
            cr_expect_gt(step_s, 1.2 * before_s, "%g bytes/s: the simulator's step is no longer",
                         rates[r]);
        before_s = step_s;
        memory_rate_free(plan, cluster, slow, &l);
    }
}

/* The narrowest link on the route between the first two devices. */
static double narrowest(const ty_cluster *cluster)
{
    double rate = HUGE_VAL;
    ty_path path;

    cr_assert_eq(ty_cluster_path(cluster, 0, 1, &path, NULL), TY_OK);
    for (uint32_t i = 0; i < path.link_count; i++)
        rate = fmin(rate, ty_cluster_link(cluster, path.links[i])->bandwidth_bytes_per_s);
    ty_path_clear(&path);
    return rate;
}

static double estimated_s(const ty_plan *plan, const lowered *l)
{
    ty_timeline *timeline = NULL;
    ty_step_summary summary;

    cr_assert_eq(ty_estimate(plan, l->program, l->costs, 3, &timeline, NULL), TY_OK);
    cr_assert_eq(ty_timeline_summarize(plan, l->program, timeline, &summary, NULL), TY_OK);
    ty_timeline_free(timeline);
    return summary.step_time_s;
}

/* Workers that serve each other sum in the memory of the training devices: each quarter of four
 * three times, with two reads and one write. Rings add nothing here. */
Test(servers, beside_workers_add_up_in_their_memory)
{
    static const double rates[] = {60e9, 8e9, 2e9, 0.5e9};
    static const ty_algorithm algorithms[] = {TY_PARAMETER_SERVER, TY_BLOCK_MANAGER, TY_RING};

    for (size_t r = 0; r < 3 * sizeof rates / sizeof rates[0]; r++) {
        const double rate = rates[r / 3];
        ty_plan_options o = ty_plan_options_default();
        ty_cluster *cluster, *slow;
        ty_plan *plan;
        uint32_t seen = 0;
        double seconds = 0, expected_s = 0;
        lowered l;

        pin(&o.pins, "pp=1,dp=4,compression=none,bucket=32MiB,algorithm=%s",
            ty_algorithm_name(algorithms[r % 3]));
        o.global_batch = 64;
        plan = plan_on("vgg16", "host:4 gpu:1 @v100-sxm2-16gb nvlink2 eth10", &o, &cluster);
        slow = with_memory_rate(plan, cluster, ty_cluster_device_type(cluster, 0), rate, &l);
        for (uint32_t i = 0; i < l.program->stages[0].instruction_count; i++) {
            const ty_instruction *in = &l.program->stages[0].instructions[i];
            const ty_instruction_cost *cost = &l.costs->instructions[0][i];
            const double moved = 0.75 * (double)in->bytes;
            const double way_s = moved / narrowest(slow) / plan->stack->network_share;
            if (in->op != TY_OP_COLLECTIVE)
                continue;
            seconds += cost->seconds - cost->latency_s;
            expected_s +=
                way_s + (o.pins.algorithm == TY_RING ? way_s : fmax(way_s, 3 * moved / rate));
            seen++;
        }
        cr_expect_gt(seen, 1);
        cr_expect_float_eq(seconds, expected_s, 1e-6 * expected_s,
                           "%s at %g bytes/s: found %.9g s, expected %.9g s",
                           ty_algorithm_name(o.pins.algorithm), rate, seconds, expected_s);
        cr_expect_float_eq(
            simulated_s(plan, &l, slow, (ty_simulate_options){.steps = 3, .time_limit_s = 60}) /
                estimated_s(plan, &l),
            1, 0.01, "%s at %g bytes/s", ty_algorithm_name(o.pins.algorithm), rate);
        memory_rate_free(plan, cluster, slow, &l);
    }
}

/* On one host, by the rates of its profile: messages of 1 GB/s, copies of another rate. */
Test(servers, add_up_at_the_rate_of_measured_copies)
{
    static const double rates[] = {20e9, 0.5e9};
    double found_s[2] = {0, 0};

    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        ty_transfer_time transfers[] = {{.bytes = 1000, .seconds = 1e-6},
                                        {.bytes = 100000000, .seconds = 0.1}};
        ty_profile profile = {.machine = "made up",
                              .backend = "cpu",
                              .date = "2026-11-26",
                              .versions = "none",
                              .cores = 3,
                              .concurrent_ranks = 3,
                              .memory_bytes = (uint64_t)64 << 30,
                              .peak_flop_per_s = 1e11,
                              .memory_bandwidth_bytes_per_s = rates[r],
                              .transfer_time_count = 2,
                              .transfer_times = transfers};
        const ty_plan_options o = asked(1);
        ty_cluster *cluster = NULL;
        ty_workload *workload = NULL;
        ty_plan *plan = NULL;
        ty_error error = {0};
        lowered l;

        cr_assert_eq(ty_cluster_local(3, &profile, &cluster, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_workload_open("mlp", &workload, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_plan_search(workload, cluster, &profile, &o, &plan, &error), TY_OK, "%s",
                     error.message);
        l = lower(plan, cluster);
        for (uint32_t i = 0; i < l.program->stages[0].instruction_count; i++)
            if (l.program->stages[0].instructions[i].op == TY_OP_COLLECTIVE) {
                const ty_instruction_cost *cost = &l.costs->instructions[0][i];
                const double bytes = (double)l.program->stages[0].instructions[i].bytes;
                const double way_s = 2 * bytes / 1e9; /* of both workers */
                const double push_s = fmax(way_s, 5 * bytes / rates[r]);
                cr_expect(fabs(cost->seconds / (way_s + push_s) - 1) < 0.01,
                          "%g bytes/s: found %.6g s, expected %.6g s", rates[r], cost->seconds,
                          way_s + push_s);
                found_s[r] += cost->seconds;
            }
        lowered_free(&l);
        ty_plan_free(plan);
        ty_workload_free(workload);
        ty_cluster_free(cluster);
    }
    cr_expect_gt(found_s[1], 2 * found_s[0]);
}

/* Traffic only: collectives without a time in the costs take as long as on SimGrid's links, which
 * the closed form gives; folded or not, as flows or in chunks. Includes more servers than a member
 * has strands. */
Test(servers, simulated_links_are_shared_as_the_price_says)
{
    static const uint32_t counts[] = {1, 2, 4, 8};

    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        const bool has_many = counts[n] >= HOST_COUNT;
        ty_plan_options o = asked(counts[n]);
        ty_cluster *cluster;
        ty_plan *plan =
            plan_on("vgg16", has_many ? "host:18 gpu:1 @v100-sxm2-16gb nvlink2 eth10" : HOSTS, &o,
                    &cluster);
        lowered l = lower(plan, cluster);
        const ty_stage_program *code = &l.program->stages[0];
        double by_hand_s = 0, step_s[3];
        for (uint32_t i = 0; i < code->instruction_count; i++) {
            ty_instruction_cost *cost = &l.costs->instructions[0][i];
            *cost = (ty_instruction_cost){.edge_bytes = cost->edge_bytes};
            if (code->instructions[i].op == TY_OP_COLLECTIVE)
                by_hand_s += 2 * way_by_hand(plan, cluster, (double)code->instructions[i].bytes);
        }
        step_s[0] =
            simulated_s(plan, &l, cluster, (ty_simulate_options){.steps = 3, .time_limit_s = 60});
        step_s[1] =
            simulated_s(plan, &l, cluster,
                        (ty_simulate_options){.steps = 3, .time_limit_s = 60, .no_fold = true});
        step_s[2] = simulated_s(
            plan, &l, cluster,
            (ty_simulate_options){
                .steps = 3, .time_limit_s = 60, .no_fold = true, .resolution = TY_CHUNK});
        for (int k = 0; k < 3; k++)
            cr_expect(fabs(step_s[k] / by_hand_s - 1) < 0.01,
                      "%u servers, way %d: simulated %.6g s, expected %.6g s", counts[n], k,
                      step_s[k], by_hand_s);
        lowered_free(&l);
        ty_plan_free(plan);
        ty_cluster_free(cluster);
    }
}

/* A preset's default number of servers is as good as the best of all valid numbers. */
Test(servers, as_many_as_pay)
{
    ty_plan_options o = ty_plan_options_default();
    ty_cluster *cluster = cluster_of("host:9 gpu:1 @v100-sxm2-16gb nvlink2 eth1");
    ty_workload *vgg = NULL;
    ty_plan *own = NULL;
    double best_s = HUGE_VAL;
    ty_error error = {0};

    o.global_batch = 2520; /* divisible by 2 to 9 */
    cr_assert_eq(ty_workload_open("alexnet", &vgg, &error), TY_OK, "%s", error.message);
    cr_assert_eq(
        ty_plan_system(ty_system_find("tensorflow-on-spark"), vgg, cluster, NULL, &o, &own, &error),
        TY_OK, "%s", error.message);
    for (uint32_t servers = 0; servers <= 4; servers++) {
        ty_plan *plan = NULL;
        ty_pin(&o.pins, TY_AXIS_SERVERS, servers);
        cr_assert_eq(ty_plan_system(ty_system_find("tensorflow-on-spark"), vgg, cluster, NULL, &o,
                                    &plan, &error),
                     TY_OK, "%u servers: %s", servers, error.message);
        cr_expect_eq(plan->servers.count, servers);
        best_s = fmin(best_s, plan->prediction.step_time_s);
        ty_plan_free(plan);
    }
    cr_expect_eq(own->prediction.step_time_s, best_s, "found %g, the best is %g",
                 own->prediction.step_time_s, best_s);
    ty_plan_free(own);
    ty_workload_free(vgg);
    ty_cluster_free(cluster);
}

Test(servers, questions_without_sense_are_refused)
{
    static const struct {
        const char *fix, *message;
    } rows[] = {
        {"servers=6", "servers: found 6, expected fewer than the 6 hosts of"},
        {"servers=2,algorithm=ring",
         "servers: found 2, expected 0: another algorithm is asked for"},
        {"servers=2,pp=2", "expected 0: they serve replicas of the entire model"},
        {"servers=2,tp=2", "expected 0: they serve replicas of one device"},
        {"servers=2,zero=1", "expected 0: with ZeRO"},
        {"servers=2,schedule=pipedream", "expected 0: that schedule has no flush"},
        {"servers=2,compression=one-bit",
         "expected 0: they sum gradients as they are, in fp16 or in bf16"},
        {"servers=2,devices=9", "devices: found 9, "},
        {"shard=tensor",
         "shard: found \"tensor\" without servers of their own, expected servers=N too"},
    };
    ty_cluster *cluster = cluster_of(HOSTS);
    ty_workload *vgg = NULL;

    cr_assert_eq(ty_workload_open("vgg16", &vgg, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan_options o = {.global_batch = 240};
        ty_plan *plan = NULL;
        ty_error error = {0};
        pin(&o.pins, "%s", rows[i].fix);
        cr_expect_eq(ty_plan_search(vgg, cluster, NULL, &o, &plan, &error), TY_EINVAL, "%s",
                     rows[i].message);
        cr_expect_not_null(strstr(error.message, rows[i].message), "found \"%s\", expected \"%s\"",
                           error.message, rows[i].message);
    }
    ty_workload_free(vgg);
    ty_cluster_free(cluster);
}
